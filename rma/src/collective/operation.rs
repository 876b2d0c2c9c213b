//! The life of one collective on this rank: it is begun, runs over the strings that come, and is done.

use super::arrival::{Arrivals, Landing, Next};
use super::call::Call;
use super::credit::UNASKED_MAX;
use super::departure::{Departures, Flushed, Text};
use super::post::{Key, Tag};
use super::standing::Standing;
use super::team_call::OwnedBlocks;
use super::{Collectives, Team};
use crate::Peer;
use crate::endpoint::lock;
use crate::error::{Result, RmaError};
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::task::{Context, Poll, Waker};

/// Context in which a lost node is noticed.
pub(super) const WHERE: &str = "in a collective";

/// Body of an operation that has begun.
pub type Run = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Context in which a step of an operation runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum StepContext {
    /// In a handler of active messages.
    Handler,
    /// In a thread that called the library.
    Caller,
}

/// One collective on this rank.
pub struct Operation {
    key: Key,
    standing: Arc<Standing>,
    pub(super) arrivals: Mutex<Arrivals>,
    pub(super) departures: Mutex<Departures>,
    /// Unless a thread runs it that waits for it.
    run: Mutex<Option<Run>>,
    /// The memory of its views, until it ends.
    owned: Mutex<Option<Arc<OwnedBlocks>>>,
    is_begun: AtomicBool,
    /// Something changed since the run was last looked at.
    is_stirred: AtomicBool,
    /// Calls functions of the program, which must not run in handlers.
    needs_caller: AtomicBool,
    /// Also while no thread polls or waits.
    goes_on: AtomicBool,
    /// True if the operation is queued for a step by a caller.
    is_queued: AtomicBool,
    /// Waker for its end.
    waker: Mutex<Option<Waker>>,
    is_complete: AtomicBool,
    is_done: AtomicBool,
}

impl Operation {
    pub(super) fn new(key: Key, standing: Arc<Standing>) -> Self {
        Self {
            key,
            standing,
            arrivals: Mutex::default(),
            departures: Mutex::default(),
            run: Mutex::default(),
            owned: Mutex::default(),
            is_begun: AtomicBool::new(false),
            is_stirred: AtomicBool::new(false),
            needs_caller: AtomicBool::new(false),
            goes_on: AtomicBool::new(false),
            is_queued: AtomicBool::new(false),
            waker: Mutex::default(),
            is_complete: AtomicBool::new(false),
            is_done: AtomicBool::new(false),
        }
    }

    pub(super) fn key(&self) -> Key {
        self.key
    }

    /// Marks the operation as queued for a step; false: it is queued already.
    pub(super) fn enqueue(&self) -> bool {
        !self.is_queued.swap(true, Ordering::SeqCst)
    }

    /// Marks the operation as no longer queued, before it is stepped.
    pub(super) fn dequeue(&self) {
        self.is_queued.store(false, Ordering::SeqCst);
    }

    pub(super) fn is_spoilt(&self) -> bool {
        self.standing.spoilt().is_some()
    }

    pub(super) fn is_begun(&self) -> bool {
        self.is_begun.load(Ordering::Acquire)
    }

    /// Returns true if it is done here, successfully or not: the views given to it are not used any more.
    pub fn is_done(&self) -> bool {
        self.is_done.load(Ordering::Acquire)
    }

    pub(super) fn needs_caller(&self) -> bool {
        self.needs_caller.load(Ordering::Relaxed)
    }

    pub(super) fn goes_on(&self) -> bool {
        self.goes_on.load(Ordering::Relaxed)
    }

    /// Sets the waker for the end, replacing the previous one.
    pub(super) fn set_waker(&self, waker: &Waker) {
        let mut place = lock(&self.waker);
        if !place.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *place = Some(waker.clone());
        }
    }

    pub(super) fn wake(&self) {
        let waker = lock(&self.waker).take();
        waker.into_iter().for_each(Waker::wake);
    }

    /// Returns its result on this rank; none while it is in flight. Complete means that this rank's results
    /// are there, and its own bytes have left; others may be in flight.
    ///
    /// # Errors
    /// [`RmaError::Collective`] when its team is spoilt, [`RmaError::PeerLost`] when a node is lost.
    pub fn outcome(&self) -> Option<Result<()>> {
        match (self.is_done(), self.is_complete.load(Ordering::Acquire)) {
            (false, _) => None,
            (true, true) => Some(Ok(())),
            (true, false) => Some(self.standing.check()),
        }
    }

    /// Says what this rank calls, before it sends or expects anything.
    fn call(&self, engine: &Collectives, call: Call) {
        self.is_begun.store(true, Ordering::Release);
        lock(&self.departures).call = Some(call);
        let other = lock(&self.arrivals).calls.begin(call);
        if let Some((from, theirs)) = other {
            let _ = self.go_on(engine, from, 0, Next::Calls(theirs, call));
        }
    }

    /// Does what follows from something that has come, or was asked for. An error is the sender's fault.
    pub(super) fn go_on(
        &self,
        engine: &Collectives,
        from: Peer,
        tag: Tag,
        next: Next,
    ) -> Result<(), &'static str> {
        let layout = engine.endpoint.layout();
        let names = || (layout.describe(from), layout.describe(engine.endpoint.me()));
        match next {
            Next::Nothing => {}
            Next::Taken(bytes) => engine.taken(self.key, from, bytes),
            Next::Ask(place) => {
                lock(&self.departures).ask(from, tag, place);
                self.flush(engine);
            }
            Next::Differs(given, expected) => {
                let (who, here) = names();
                let call = lock(&self.arrivals).calls.own().map(|call| call.to_string()).unwrap_or_default();
                let what = format!("{who} gave {given} bytes in {call}, of which {here} expects {expected}");
                engine.spoil(&self.standing, from, what);
            }
            Next::Calls(theirs, own) => {
                let (who, here) = names();
                let what = format!("{who} calls {theirs} where {here} calls {own}");
                engine.spoil(&self.standing, from, what);
            }
            Next::Refuse => return Err("a string of a collective that does not fit what came before"),
        }
        Ok(())
    }

    /// Sends what there is room for. True: nothing is left. An operation of the engine that is short of room is stepped again.
    fn flush(&self, engine: &Collectives) -> bool {
        let flushed = lock(&self.departures).flush(self.key, engine);
        if flushed == Flushed::Busy {
            engine.queue_step(self);
        }
        flushed == Flushed::All
    }

    /// Makes progress as far as the arrivals allow. A thread that finds another one at it leaves the work to
    /// that thread, which looks again before it goes.
    pub(super) fn step(&self, engine: &Collectives, place: StepContext) {
        self.is_stirred.store(true, Ordering::SeqCst);
        if place == StepContext::Handler && self.needs_caller() {
            self.flush(engine);
            engine.queue_step(self);
            return;
        }
        while self.is_stirred.load(Ordering::SeqCst) {
            let mut run = match self.run.try_lock() {
                Ok(run) => run,
                Err(TryLockError::Poisoned(poisoned)) => PoisonError::into_inner(poisoned),
                Err(TryLockError::WouldBlock) => return,
            };
            self.is_stirred.store(false, Ordering::SeqCst);
            // Not begun here, or done: strings wait for their operation. Or it is run by its waiting thread,
            // which is woken.
            let Some(future) = run.as_mut() else { return };
            let is_ready = future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
            let is_sent = self.flush(engine);
            let is_complete = is_ready && is_sent;
            if is_complete || self.standing.spoilt().is_some() {
                *run = None;
                drop(run);
                return self.end(engine, is_complete);
            }
            if is_ready {
                // Only its last strings are left to be sent: it goes on as a future that is done already.
                *run = Some(Box::pin(std::future::ready(())));
            }
        }
    }

    fn end(&self, engine: &Collectives, is_complete: bool) {
        lock(&engine.operations).remove(&self.key);
        if !is_complete {
            // Views that it was given are no longer used.
            *lock(&self.departures) = Departures::default();
            *lock(&self.arrivals) = Arrivals::default();
        }
        *lock(&self.owned) = None;
        self.is_complete.store(is_complete, Ordering::Release);
        self.is_done.store(true, Ordering::SeqCst);
        if self.goes_on() {
            engine.has_proceeded();
        }
        self.wake();
        // Threads may wait for it while it was this one that moved it.
        engine.endpoint.notify_local();
    }
}

/// Ends an operation that a thread runs, even if it leaves by an error or a panic.
struct Running<'a> {
    exchange: &'a Exchange,
    is_complete: bool,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.exchange.operation.end(&self.exchange.team.engine, self.is_complete);
    }
}

/// Interface of an algorithm to its operation: exchanges strings with the members of the team.
#[derive(Clone)]
pub struct Exchange {
    team: Arc<Team>,
    operation: Arc<Operation>,
}

impl Exchange {
    /// Says what an operation of a team is, on this rank: once, before anything is done with it.
    pub fn new(team: Arc<Team>, operation: Arc<Operation>, call: Call) -> Self {
        operation.call(&team.engine, call);
        Self { team, operation }
    }

    /// Returns the operation's team.
    pub fn team(&self) -> &Arc<Team> {
        &self.team
    }

    /// The operation.
    pub fn operation(&self) -> &Arc<Operation> {
        &self.operation
    }

    /// Hands the operation over to the engine. It progresses in any thread that polls or waits in the
    /// endpoint, or calls [`Collectives::progress`]; only there if it `needs_caller`, because it calls
    /// functions of a program, which must not run in handlers. [`Operation::outcome`] says when it is done.
    pub fn begin(&self, run: Run, needs_caller: bool) {
        self.begin_for(run, needs_caller, None);
    }

    /// [`Exchange::begin`]. An operation that owns its memory proceeds even while no thread polls or waits,
    /// in a thread of the endpoint's own: at once if a thread does, within a millisecond otherwise.
    pub(super) fn begin_for(&self, run: Run, needs_caller: bool, owned: Option<Arc<OwnedBlocks>>) {
        let (operation, engine) = (&self.operation, &self.team.engine);
        if owned.is_some() {
            *lock(&operation.owned) = owned;
            operation.goes_on.store(true, Ordering::Relaxed);
            engine.proceeds();
        }
        operation.needs_caller.store(needs_caller, Ordering::Relaxed);
        *lock(&operation.run) = Some(run);
        operation.step(engine, StepContext::Caller);
    }

    /// Runs the operation to its end in this thread. When it returns, this rank's results are there, and its
    /// own bytes have left. `future` is polled in this thread only. Not from handlers.
    ///
    /// # Errors
    /// [`RmaError::Collective`] when the team is spoilt, [`RmaError::PeerLost`] when a node is lost, and the error with which the
    /// endpoint has failed.
    pub fn run<T>(&self, future: impl Future<Output = T>) -> Result<T> {
        let engine = &self.team.engine;
        let mut running = Running { exchange: self, is_complete: false };
        let standing = &self.operation.standing;
        let mut future = pin!(future);
        let mut result = None;
        engine.endpoint.wait_until(None, || {
            engine.progress();
            if result.is_none()
                && let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
            {
                result = Some(value);
            }
            let is_sent = self.operation.flush(engine);
            running.is_complete = result.is_some() && is_sent;
            running.is_complete || standing.spoilt().is_some() || engine.endpoint.check_all(WHERE).is_err()
        })?;
        if !running.is_complete && standing.spoilt().is_none() {
            engine.endpoint.check_all(WHERE)?;
        }
        // The last arrival may be the one that spoils the team.
        running.is_complete &= standing.spoilt().is_none();
        match result.filter(|_| running.is_complete) {
            Some(value) => Ok(value),
            None => {
                // This rank may never wait again where others hear why.
                engine.endpoint.wait_until(None, || engine.tell())?;
                Err(standing
                    .check()
                    .err()
                    .unwrap_or_else(|| RmaError::Usage("a collective has ended without a result".into())))
            }
        }
    }

    fn peer(&self, member: u32) -> Peer {
        // Algorithms count members by the size of the team.
        let rank = self.team.rank_of(member).unwrap_or(self.team.engine.rank());
        self.team.engine.endpoint.layout().peer_of_rank(rank)
    }

    /// Sends a string to a member. It does not wait; the operation is not done before it has left.
    pub fn send(&self, to: u32, tag: u32, text: Text) {
        lock(&self.operation.departures).add(self.peer(to), tag, text);
        self.operation.flush(&self.team.engine);
    }

    /// Sets the destination of a member's string of this length. To receive several strings together, expect
    /// all before waiting for the first.
    pub fn expect(&self, from: u32, tag: u32, at: Landing, bytes: usize) {
        let engine = &self.team.engine;
        let place = match &at {
            Landing::View(view) if bytes > UNASKED_MAX => {
                engine.endpoint.offset_in_segment(view.address(), bytes)
            }
            _ => None,
        };
        let peer = self.peer(from);
        self.expect_in(peer, tag, at, Some(bytes), place);
    }

    fn expect_in(&self, peer: Peer, tag: Tag, at: Landing, bytes: Option<usize>, place: Option<u64>) {
        let engine = &self.team.engine;
        let next = lock(&self.operation.arrivals).expect(peer, tag, at, bytes, place);
        if let Err(what) = self.operation.go_on(engine, peer, tag, next) {
            engine.endpoint.fail(RmaError::Protocol { peer: Some(peer), what: what.into() });
        }
    }

    /// Waits for a string that is expected.
    pub async fn arrival(&self, from: u32, tag: u32) -> Landing {
        let peer = self.peer(from);
        std::future::poll_fn(|_| match lock(&self.operation.arrivals).take(peer, tag) {
            Some(at) => Poll::Ready(at),
            None => Poll::Pending,
        })
        .await
    }

    /// Waits for a string that is expected, and returns its bytes.
    pub async fn arrival_aside(&self, from: u32, tag: u32) -> Vec<u8> {
        match self.arrival(from, tag).await {
            Landing::Own(string) => string,
            Landing::View(view) => view.read(),
        }
    }

    /// Expects the string of a member, of any length.
    pub(super) fn expect_any(&self, from: u32, tag: u32) {
        self.expect_in(self.peer(from), tag, Landing::Own(Vec::new()), None, None);
    }

    /// Waits for the string of a member, of `bytes` bytes.
    pub async fn receive(&self, from: u32, tag: u32, bytes: usize) -> Vec<u8> {
        self.expect(from, tag, Landing::Own(Vec::new()), bytes);
        self.arrival_aside(from, tag).await
    }
}
