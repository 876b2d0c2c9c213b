//! Collectives of a team whose members share memory: each member gives its bytes on its [`Board`], and takes what others give there.
//!
//! An operation is a [`Machine`] that progresses as far as the board allows: it enters, posts, takes, and
//! waits until others have taken. Starting one never blocks. A piece that does not fit the board stays with
//! its operation, in flight, and is posted later: by any poll of the endpoint, any wait in it, and any call
//! that tests or waits for a collective. So a member may start any number of operations while another one
//! computes, and answers messages while it waits.
//!
//! # Progress
//!
//! Members start the operations of a team in the same order, and *finish* them in that order: operation n is finished on a member when
//! that member has done n and all before it. No schedule deadlocks. Let n be the first operation that is not finished on all members,
//! after all have started it. It is the oldest on each member that has not finished it, and each look begins with the oldest.
//! * *Its cells are free*: they were last used by operation n - [`CELLS`], which all have finished. A member tells so at the latest
//!   [`TOLD_OPERATIONS`] later, a small part of the cells.
//! * *Its bytes have room*: all bytes before them are of operations that all have finished, at most
//!   [`TOLD_BYTES`] of which from each member are untold. With a piece, and the end of the arena that a piece
//!   did not fit, that is less than the arena. Bytes are copied in the order of the operations, so that those
//!   of later ones never take that room.
//! * *Its pieces* depend on each other in the order of their numbers only, and its members wait for nothing else.
//!
//! Every look at the operations in flight is bounded, however many they are: the oldest one, the one that is waited for, and one of the
//! others in turn; all of them only before a thread goes to sleep.

use super::board::{ARENA_ALIGN, ARENA_BYTES, Board, CELLS, Shape};
use super::machine::{Machine, PIECE_BYTES_MAX, publish_before_look};
use super::standing::Standing;
use super::team_call::{Caller, TeamCall};
use super::view::{Combiner, View};
use super::{Collectives, operation};
use crate::Rank;
use crate::endpoint::{Endpoint, Extent, lock};
use crate::error::{Result, RmaError};
use rustix::thread::sched_getcpu;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::Waker;
use std::time::{Duration, Instant};
use vgas_shm::bell::Sleeps;
use vgas_shm::biased::{BiasedLock, this_thread};
use vgas_shm::cores;

/// Operations, and bytes given in them, after which a member tells that it has finished them.
const TOLD_OPERATIONS: u64 = CELLS / 8;
const TOLD_BYTES: usize = ARENA_BYTES / 8;

const _: () = assert!(2 * TOLD_BYTES + 2 * PIECE_BYTES_MAX < ARENA_BYTES);

/// Looks at the board of a wait before it looks at the clock.
const LOOKS: u32 = 16;

/// Looks between two looks at the clock, and at arrivals in the endpoint.
const LOOKS_PER_POLL: u32 = 32;

const IN_FLIGHT: u8 = 0;
const DONE: u8 = 1;
const GIVEN_UP: u8 = 2;

/// An operation that was not done when it was started.
pub struct NearOperation {
    near: Arc<Near>,
    number: u64,
    state: AtomicU8,
    /// It proceeds even while no thread polls or waits, and wakes this at its end.
    waker: Option<Mutex<Option<Waker>>>,
}

/// An operation in flight.
struct Pending {
    operation: Arc<NearOperation>,
    /// Bytes that some member may have in its arena for it.
    bytes: u64,
    /// None when it is done, until those before it are.
    machine: Option<Box<Machine>>,
}

/// The collectives of one team on this rank, of members that share memory.
pub(super) struct Near {
    /// Weak, because the engine has this.
    engine: Weak<Collectives>,
    pub(super) endpoint: Arc<Endpoint>,
    standing: Arc<Standing>,
    pub(super) board: Board,
    pub(super) ranks: Arc<[Rank]>,
    pub(super) me: u32,
    pub(super) size: u32,
    /// Processors that this process may use.
    cores: u32,
    state: BiasedLock<State>,
    /// The thread that runs a function of the program that combines, with the state locked; 0: none.
    combining: AtomicUsize,
    /// Some operation is in flight, and counted as the endpoint's work.
    is_any_in_flight: AtomicBool,
    spin_budget: SpinBudget,
}

#[derive(Default)]
pub(super) struct State {
    /// Pieces of operations begun.
    next: u64,
    pending: VecDeque<Pending>,
    /// The next of the pending ones to look at in turn.
    turn: usize,
    /// The least finished operation of the others, when last looked at.
    others_finished: u64,
    /// Some operation has waited until all others have finished those below this number, and this member has
    /// announced that.
    awaited: u64,
    wants_room: bool,
    /// The finished operations that this member has announced, and those that it has compared with the calls
    /// of others.
    told: u64,
    compared: u64,
    /// Bytes of all operations that this member has finished, and of those that it has announced.
    finished_bytes: u64,
    told_bytes: u64,
    /// The next byte of the arena, and the used ones: the number of the piece, and the end of its bytes.
    arena_head: u64,
    arena_used: VecDeque<(u64, u64)>,
    arena_tail: u64,
    /// Operations with bytes to copy to the arena, by their first pieces. They do so in order: bytes of a later one would wait for an
    /// earlier one to be finished, which would wait for their room.
    pub(super) to_copy: VecDeque<u64>,
}

impl Near {
    pub(super) fn new(
        engine: &Arc<Collectives>,
        standing: &Arc<Standing>,
        ranks: &Arc<[Rank]>,
        me: u32,
        board: usize,
    ) -> Option<Arc<Self>> {
        let endpoint = engine.endpoint().clone();
        let peers: Vec<_> = ranks.iter().map(|&rank| endpoint.layout().peer_of_rank(rank)).collect();
        let board = Board::new(endpoint.domain()?, board, &peers)?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Some(Arc::new(Self {
            engine: Arc::downgrade(engine),
            endpoint,
            standing: standing.clone(),
            board,
            ranks: ranks.clone(),
            me,
            size: ranks.len() as u32,
            cores: cores as u32,
            state: BiasedLock::new(State::default()),
            combining: AtomicUsize::new(0),
            is_any_in_flight: AtomicBool::new(false),
            spin_budget: SpinBudget::default(),
        }))
    }

    /// Runs a function that combines. Callbacks of the function find the state locked by their own thread. A
    /// panic spoils the team, because other members wait for the result.
    pub(super) fn combine(&self, combiner: &dyn Combiner, left: View, right: View, result: View) {
        struct Combining<'a>(&'a Near);
        impl Drop for Combining<'_> {
            fn drop(&mut self) {
                self.0.combining.store(0, Ordering::Relaxed);
                if std::thread::panicking() {
                    let here = self.0.describe(self.0.me);
                    self.0.spoil(self.0.me, format!("a function that combines has panicked on {here}"));
                }
            }
        }
        self.combining.store(this_thread(), Ordering::Relaxed);
        let _combining = Combining(self);
        combiner.combine(left, right, result);
    }

    fn is_combining_here(&self) -> bool {
        self.combining.load(Ordering::Relaxed) == this_thread()
    }

    pub(super) fn check_not_combining(&self) -> Result<()> {
        let refused =
            || RmaError::Usage("a reduction function must not begin or wait for a collective".into());
        if self.is_combining_here() { Err(refused()) } else { Ok(()) }
    }

    pub(super) fn others(&self) -> impl Iterator<Item = u32> + use<> {
        let (me, size) = (self.me, self.size);
        (1..size).map(move |step| if me + step < size { me + step } else { me + step - size })
    }

    /// Returns whether there are more members than cores.
    fn shares_cores(&self) -> bool {
        self.size > self.cores
    }

    /// Estimates whether another member needs this thread's core to proceed: one that was last seen on it,
    /// and is awake.
    fn is_crowded(&self) -> bool {
        if !self.shares_cores() {
            return false;
        }
        let here = sched_getcpu() as u64 + 1;
        let own = self.board.core(self.me);
        if own.load(Ordering::Relaxed) != here {
            own.store(here, Ordering::Relaxed);
        }
        let is_awake = |member: u32| !self.endpoint.is_member_asleep(self.board.members[member as usize]);
        self.others()
            .any(|member| self.board.core(member).load(Ordering::Relaxed) == here && is_awake(member))
    }

    #[inline]
    pub(super) fn ring(&self, member: u32) {
        self.endpoint.ring_member(self.board.members[member as usize]);
    }

    pub(super) fn ring_others(&self) {
        self.others().for_each(|member| self.ring(member));
    }

    /// Wakes the others if they have what they may wait for: something that this member has just published, and each other one, too.
    /// The last of several to publish finds all.
    #[inline]
    pub(super) fn ring_all_if(&self, has_published: impl Fn(u32) -> bool) {
        if self.is_last(has_published) {
            self.ring_others();
        }
    }

    /// The same for one member.
    #[inline]
    pub(super) fn ring_if(&self, waiting: u32, has_published: impl Fn(u32) -> bool) {
        if self.is_last(has_published) {
            self.ring(waiting);
        }
    }

    fn is_last(&self, has_published: impl Fn(u32) -> bool) -> bool {
        // With two members, the other one may wait for nothing else.
        if self.size == 2 {
            return true;
        }
        publish_before_look();
        self.others().all(has_published)
    }

    /// Returns whether a member has published a piece.
    pub(super) fn has_posted(&self, member: u32, number: u64) -> bool {
        self.board.header(member, number).is_some()
    }

    /// Starts an operation; none if it is done at once.
    pub(super) fn start(self: &Arc<Self>, call: TeamCall, caller: Caller) -> Option<Arc<NearOperation>> {
        let mut state = self.state.lock();
        // One that all must meet in anyway gains nothing by it.
        let has_root = call.pattern.root().is_some();
        let is_copied = self.shares_cores() && has_root && state.pending.is_empty();
        let proceeds = matches!(caller, Caller::Owned(_));
        let mut machine = Machine::new(self, call, caller, !is_copied);
        machine.first = state.next;
        state.next += machine.pieces;
        if machine.copies(self) {
            state.to_copy.push_back(machine.first);
        }
        if machine.is_entered_together() {
            self.board.arrival(self.me).store(machine.first + 1, Ordering::Release);
            self.ring_all_if(|member| self.board.arrival(member).load(Ordering::Acquire) > machine.first);
        }
        if machine.go_on(self, &mut state) {
            let bytes = machine.arena_bytes(self, machine.pieces);
            if state.pending.is_empty() {
                state.finished_bytes += bytes;
                self.tell_finished(&mut state);
                self.count(&state);
                return None;
            }
            // It is finished when those before it are.
            let operation = self.operation(machine.first, DONE, false);
            state.pending.push_back(Pending { operation, bytes, machine: None });
            return None;
        }
        let operation = self.operation(machine.first, IN_FLIGHT, proceeds);
        let bytes = machine.arena_bytes(self, machine.pieces);
        state.pending.push_back(Pending {
            operation: operation.clone(),
            bytes,
            machine: Some(Box::new(machine)),
        });
        self.count(&state);
        Some(operation)
    }

    /// Makes operations in flight, or not yet compared, work of the endpoint, which makes progress in its
    /// polls and waits.
    #[inline]
    fn count(&self, state: &State) {
        let is_any = !state.pending.is_empty() || state.compared < state.next;
        if self.is_any_in_flight.load(Ordering::Relaxed) != is_any {
            self.is_any_in_flight.store(is_any, Ordering::Relaxed);
            if is_any { self.endpoint.work_for_polls() } else { self.endpoint.work_ended(1) }
        }
    }

    fn operation(self: &Arc<Self>, number: u64, state: u8, proceeds: bool) -> Arc<NearOperation> {
        if proceeds && let Some(engine) = self.engine.upgrade() {
            engine.proceeds();
        }
        let waker = proceeds.then(Mutex::default);
        Arc::new(NearOperation { near: self.clone(), number, state: AtomicU8::new(state), waker })
    }

    /// Announces this member's finished operations, once that is worth it.
    #[inline]
    fn tell_finished(&self, state: &mut State) {
        let (finished, bytes) = match state.pending.front() {
            None => (state.next, state.finished_bytes),
            // Pieces of a long one are finished one by one.
            Some(front) => {
                let taken = front.machine.as_ref().map_or(0, |machine| machine.taken);
                let bytes = front.machine.as_ref().map_or(0, |machine| machine.arena_bytes(self, taken));
                (front.operation.number + taken, state.finished_bytes + bytes)
            }
        };
        let news = finished - state.told;
        if news >= TOLD_OPERATIONS || (news > 0 && bytes - state.told_bytes >= TOLD_BYTES as u64) {
            self.compare_calls(state, finished);
            (state.told, state.told_bytes) = (finished, bytes);
            self.board.finished(self.me).store(finished, Ordering::Release);
            publish_before_look();
            for member in self.others() {
                if self.board.wants_room(member).load(Ordering::Relaxed) != 0 {
                    self.ring(member);
                }
            }
        }
    }

    /// Finds members that have called other operations than this one: among those that have called, which may
    /// be later than this one; then they find it, because cells are not used again before all have told.
    /// Called before a member announces, and in its polls: the operations of others may be done as well, and
    /// wait for nothing that would show it.
    fn compare_calls(&self, state: &mut State, to: u64) {
        if state.compared >= to {
            return;
        }
        publish_before_look();
        for number in std::mem::replace(&mut state.compared, to)..to {
            let Some(own) = self.board.header(self.me, number) else { continue };
            for member in self.others() {
                if let Some(header) = self.board.header(member, number)
                    && header.shape != own.shape
                {
                    return self.disagree(member, header.shape, own.shape);
                }
            }
        }
    }

    /// Returns true if the cell of a piece may be written: all others have finished the former piece in it.
    #[inline]
    pub(super) fn has_cell(&self, state: &mut State, number: u64) -> bool {
        number < CELLS || self.have_finished(state, number + 1 - CELLS)
    }

    /// Returns true if all others have finished the operations below a number.
    #[inline]
    fn have_finished(&self, state: &mut State, number: u64) -> bool {
        if state.others_finished >= number {
            return true;
        }
        let least = || {
            let finished = |member| self.board.finished(member).load(Ordering::Acquire);
            self.others().map(finished).min().unwrap_or(u64::MAX)
        };
        state.others_finished = least();
        state.awaited = state.awaited.max(number);
        let wants_room = state.others_finished < state.awaited;
        if wants_room != state.wants_room {
            state.wants_room = wants_room;
            self.board.wants_room(self.me).store(wants_room.into(), Ordering::Relaxed);
            if wants_room {
                publish_before_look();
                state.others_finished = least();
            }
        }
        state.others_finished >= number
    }

    /// Reserves bytes of the arena for a piece; none while there is no room.
    pub(super) fn reserve(&self, state: &mut State, number: u64, bytes: usize) -> Option<usize> {
        let bytes = bytes.next_multiple_of(ARENA_ALIGN) as u64;
        loop {
            let rest = ARENA_BYTES as u64 - state.arena_head % ARENA_BYTES as u64;
            let start = if bytes <= rest { state.arena_head } else { state.arena_head + rest };
            if start + bytes - state.arena_tail <= ARENA_BYTES as u64 {
                state.arena_head = start + bytes;
                state.arena_used.push_back((number, state.arena_head));
                return Some((start % ARENA_BYTES as u64) as usize);
            }
            let &(oldest, end) = state.arena_used.front()?;
            if !self.have_finished(state, oldest + 1) {
                return None;
            }
            state.arena_used.pop_front();
            state.arena_tail = end;
            if state.arena_used.is_empty() {
                state.arena_tail = state.arena_head;
            }
        }
    }

    /// Goes on with the operations in flight: the oldest, one in turn, and `wanted`; with all of them if the caller sleeps next.
    fn look(&self, state: &mut State, wanted: Option<&NearOperation>, may_call: bool, extent: Extent) {
        self.look_at_oldest(state, may_call);
        if let Some(wanted) = wanted.filter(|wanted| !wanted.is_done()) {
            let at = state.pending.partition_point(|pending| pending.operation.number < wanted.number);
            self.look_at(state, at, may_call);
        }
        if extent == Extent::All {
            (1..state.pending.len()).for_each(|at| self.look_at(state, at, may_call));
            let oldest = state.pending.front().and_then(|oldest| oldest.machine.as_ref());
            oldest.into_iter().for_each(|machine| machine.compare(self));
        } else if state.pending.len() > 1 {
            state.turn = if state.turn + 1 < state.pending.len() { state.turn + 1 } else { 0 };
            self.look_at(state, state.turn, may_call);
        }
    }

    #[inline]
    fn look_at_oldest(&self, state: &mut State, may_call: bool) {
        while !state.pending.is_empty() {
            self.look_at(state, 0, may_call);
            if !state.pending[0].operation.is_done() {
                break;
            }
            state.finished_bytes += state.pending.pop_front().map_or(0, |oldest| oldest.bytes);
        }
        self.tell_finished(state);
    }

    #[inline]
    fn look_at(&self, state: &mut State, at: usize, may_call: bool) {
        let Some(mut machine) = state.pending.get_mut(at).and_then(|pending| pending.machine.take()) else {
            return;
        };
        let is_done = machine.may_proceed(may_call) && machine.go_on(self, state);
        if is_done {
            self.end(&state.pending[at].operation, DONE);
        } else {
            state.pending[at].machine = Some(machine);
        }
    }

    fn end(&self, operation: &NearOperation, how: u8) {
        operation.state.store(how, Ordering::Release);
        if operation.waker.is_some() {
            if let Some(engine) = self.engine.upgrade() {
                engine.has_proceeded();
            }
            operation.wake();
        }
        self.endpoint.notify_local();
    }

    /// Wakes those that wait for operations that proceed by themselves.
    pub(super) fn wake_all(&self) {
        self.state.lock().pending.iter().for_each(|pending| pending.operation.wake());
    }

    /// Gives up what is in flight, because the team is spoilt or a node is lost: no view is used any more.
    fn give_up(&self) {
        let mut state = self.state.lock();
        state.to_copy.clear();
        state.compared = state.next;
        for pending in std::mem::take(&mut state.pending) {
            if !pending.operation.is_done() {
                self.end(&pending.operation, GIVEN_UP);
            }
        }
        self.count(&state);
    }

    /// Makes progress on operations in flight, if any, from a thread that polls or waits for something else.
    /// `may_call`: it is a thread of the program, outside of handlers.
    #[inline]
    pub(super) fn progress(&self, may_call: bool, extent: Extent) {
        if !self.is_any_in_flight.load(Ordering::Relaxed) || self.is_combining_here() {
            return;
        }
        if self.standing.spoilt().is_some() {
            return self.give_up();
        }
        let state = match extent {
            // Another thread is at it.
            Extent::Some => self.state.try_lock(),
            Extent::All => Some(self.state.lock()),
        };
        if let Some(mut state) = state {
            let state = &mut *state;
            self.look(state, None, may_call, extent);
            let finished = state.pending.front().map_or(state.next, |front| front.operation.number);
            self.compare_calls(state, finished);
            self.count(state);
        }
    }

    fn look_for(&self, wanted: &NearOperation) {
        let mut state = self.state.lock();
        self.look(&mut state, Some(wanted), true, Extent::Some);
        self.count(&state);
    }

    /// Gives up the team: a member has called something else than this one.
    #[cold]
    pub(super) fn disagree(&self, member: u32, theirs: Shape, own: Shape) {
        let (who, here) = (self.describe(member), self.describe(self.me));
        let what = if theirs.call != own.call {
            format!("{who} calls {} where {here} calls {}", theirs.call, own.call)
        } else if theirs.bytes != own.bytes {
            let (given, expected) = (theirs.bytes, own.bytes);
            format!("{who} gave {given} bytes in {}, of which {here} expects {expected}", own.call)
        } else {
            format!("{who} calls {} with elements of another size than {here}", own.call)
        };
        self.spoil(member, what);
    }

    fn spoil(&self, member: u32, what: String) {
        let peer = self.endpoint.layout().peer_of_rank(self.ranks[member as usize]);
        if let Some(engine) = self.engine.upgrade() {
            engine.spoil(&self.standing, peer, what);
        }
    }

    fn describe(&self, member: u32) -> String {
        let layout = self.endpoint.layout();
        layout.describe(layout.peer_of_rank(self.ranks[member as usize]))
    }
}

impl NearOperation {
    /// Returns whether it is done here, well or not: no view that it was given is used any more.
    #[inline]
    pub fn is_done(&self) -> bool {
        self.state.load(Ordering::Acquire) != IN_FLIGHT
    }

    /// Returns how it has ended; none while it has not.
    ///
    /// # Errors
    /// [`RmaError::Collective`] when its team is spoilt, [`RmaError::PeerLost`] when a node is lost.
    pub fn outcome(&self) -> Option<Result<()>> {
        match self.state.load(Ordering::Acquire) {
            IN_FLIGHT => None,
            DONE => Some(Ok(())),
            _ => Some(self.near.standing.check().and_then(|()| {
                self.near.endpoint.check_all(operation::WHERE)?;
                Err(RmaError::Usage("a collective was given up".into()))
            })),
        }
    }

    /// Waits until it is done; messages are delivered meanwhile. Not in handlers. When this returns, with an error too, no view
    /// that the operation was given is used any more, except in a function that combines.
    ///
    /// # Errors
    /// [`RmaError::Usage`] in a function that combines. As [`NearOperation::outcome`], and the error with which the endpoint has failed.
    pub fn wait(&self) -> Result<()> {
        let near = &self.near;
        near.check_not_combining()?;
        let endpoint = &near.endpoint;
        let mut sleeps = Sleeps::default();
        let mut wait = || -> Result<()> {
            while !self.spin()? {
                let is_over = endpoint.sleep_once(&mut sleeps, || {
                    near.look_for(self);
                    self.is_done()
                        || near.standing.spoilt().is_some()
                        || endpoint.check_all(operation::WHERE).is_err()
                })?;
                if is_over {
                    break;
                }
            }
            Ok(())
        };
        let waited = wait();
        if !self.is_done() {
            near.give_up();
        }
        waited?;
        let outcome = self.outcome().unwrap_or(Ok(()));
        if outcome.is_err() {
            // This rank may never wait again where others hear why.
            let engine = near.engine.upgrade();
            endpoint.wait_until(None, || engine.as_ref().is_none_or(|engine| engine.tell()))?;
        }
        outcome
    }

    /// [`NearOperation::wait`] of a caller that has lent its memory: even if a combining function panics
    /// here.
    pub(super) fn wait_to_the_end(&self) -> Result<()> {
        struct EndOnUnwind<'a>(&'a NearOperation);
        impl Drop for EndOnUnwind<'_> {
            fn drop(&mut self) {
                if !self.0.is_done() {
                    self.0.near.give_up();
                }
            }
        }
        let _end = EndOnUnwind(self);
        self.wait()
    }

    /// Sets the waker of the end.
    pub(super) fn set_waker(&self, waker: &Waker) {
        if let Some(place) = &self.waker {
            lock(place).clone_from(&Some(waker.clone()));
        }
    }

    fn wake(&self) {
        let waker = self.waker.as_ref().and_then(|place| lock(place).take());
        waker.into_iter().for_each(Waker::wake);
    }

    /// Looks for as long as that may pay off. Returns true if it is done.
    fn spin(&self) -> Result<bool> {
        let near = &self.near;
        let is_done = |looks| {
            (0..looks).any(|_| {
                near.look_for(self);
                self.is_done()
            })
        };
        if near.is_crowded() {
            return Ok(is_done(1));
        }
        if is_done(LOOKS) {
            return Ok(true);
        }
        let began = Instant::now();
        let is_spare = cores::spare();
        let most = if is_spare { SPIN_MAX } else { near.spin_budget.next() };
        let mut has_come = false;
        while !has_come && began.elapsed() < most {
            has_come = is_done(LOOKS_PER_POLL);
            if !has_come {
                near.endpoint.poll()?;
                if near.standing.spoilt().is_some() {
                    break;
                }
                if near.is_crowded() {
                    return Ok(false);
                }
            }
        }
        if !is_spare {
            near.spin_budget.learn(most, has_come);
        }
        Ok(has_come)
    }
}

/// Longest time to spin: about what a sleep and a wake cost, so that in the worst case a wait costs twice as much as with perfect
/// foresight.
const SPIN_MAX: Duration = Duration::from_micros(42);

/// Shorter times are none.
const SPIN_MIN: Duration = Duration::from_micros(2);

/// A spin time that is tried now and then when none pays off.
const SPIN_TRIED: Duration = Duration::from_micros(20);
const WAITS_PER_TRY: u32 = 64;

/// Time to spin where more threads want to run than there are cores. Beside programs that compute, the
/// members of a team are often on their cores together for a time slice, and answers come at once; if several
/// members share a core, answers come only if this one leaves it. It learns from outcomes: twice as long
/// after an answer, half as long without one.
#[derive(Default)]
struct SpinBudget {
    nanoseconds: AtomicU32,
    waits: AtomicU32,
}

impl SpinBudget {
    fn next(&self) -> Duration {
        let learnt = Duration::from_nanos(self.nanoseconds.load(Ordering::Relaxed).into());
        if learnt >= SPIN_MIN {
            return learnt;
        }
        let waits = self.waits.fetch_add(1, Ordering::Relaxed);
        if waits.is_multiple_of(WAITS_PER_TRY) { SPIN_TRIED } else { Duration::ZERO }
    }

    fn learn(&self, spun: Duration, has_come: bool) {
        let next = if has_come { (2 * spun).clamp(SPIN_MIN, SPIN_MAX) } else { spun / 2 };
        self.nanoseconds.store(next.subsec_nanos(), Ordering::Relaxed);
    }
}
