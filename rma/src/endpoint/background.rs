//! Background progress: operations complete without being synchronised.
//!
//! * *A thread that polls or waits* takes the answers in and sends waiting messages, for all operations of
//!   the process; those of the layer above ([`Work`]) progress by the same polls.
//! * *While no thread does*, a thread of the endpoint's own looks after them, less than half a millisecond
//!   apart. It runs no handler of a library or program: their messages stay in place ([`Traffic::Below`]).
//!
//! The thread is started by the first operation that returns to its caller incomplete, and sleeps, without a
//! clock, while nothing is in flight. Operations that their starting thread waits for never wake it. If the
//! system refuses the thread, operations progress when some thread polls or waits, as far as polls take them.

use super::signals::with_signals_blocked;
use super::wait::lock;
use super::{Endpoint, EndpointSink, Extent, Work, handler_index};
use crate::conduit::{Conduit, Traffic};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::thread::Thread;
use std::time::Duration;

/// Between two looks of the thread. Operations that a rank starts, and leaves alone after it has polled once
/// more, progress at the second look after that: within a millisecond, with the latency of a sleep.
const INTERVAL: Duration = Duration::from_micros(400);

/// The thread's stack: a copy may touch a page of a tiered segment that has to be fetched first, which takes 64 KiB.
const STACK_BYTES: usize = 256 << 10;

/// Number of users that can have operations in flight: the cache, and collectives.
const WORKS_MAX: usize = 2;

/// The state of an endpoint's background.
#[derive(Default)]
pub(super) struct Background {
    works: [OnceLock<Weak<dyn Work>>; WORKS_MAX],
    /// Operations of all work.
    in_flight: AtomicUsize,
    /// Set while something may be in flight. Only the thread clears it, when nothing is.
    armed: AtomicBool,
    /// Polls while armed that have looked at the network, too: they show that another thread makes progress.
    polls: AtomicU32,
    /// None: the system has refused it.
    thread: OnceLock<Option<Thread>>,
    /// The thread is not to look any more.
    is_over: AtomicBool,
    /// Held by the thread while it looks.
    looking: Mutex<()>,
}

thread_local! {
    /// This is the thread of an endpoint.
    static IS_OWN: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether this is a thread of an endpoint's own, and not of the program.
pub(crate) fn in_own_thread() -> bool {
    IS_OWN.get()
}

impl Drop for Background {
    fn drop(&mut self) {
        // It finds that its endpoint is gone. Not joined: a child that the program has forked has no such thread.
        if let Some(Some(thread)) = self.thread.get() {
            thread.unpark();
        }
    }
}

impl Endpoint {
    /// Registers work that is to progress while something of it is in flight, beside earlier registrations:
    /// of the cache and of collectives, once each.
    pub fn set_work(&self, work: Weak<dyn Work>) {
        let left = self.background.works.iter().try_fold(work, |work, place| place.set(work).err().ok_or(()));
        if left.is_ok() {
            tracing::debug!("the endpoint of {} has other work already", self.me);
        }
    }

    /// Returns the registered users that still exist.
    pub(super) fn works(&self) -> impl Iterator<Item = Arc<dyn Work>> {
        self.background.works.iter().filter_map(|work| work.get()?.upgrade())
    }

    /// An operation of the [`Work`] returns to its caller incomplete: from now on it progresses by itself.
    pub fn work_started(&self) {
        if self.background.in_flight.fetch_add(1, Ordering::SeqCst) == 0 {
            self.wake_sleeper();
        }
        self.look_after_it();
    }

    /// An operation of the [`Work`] returns to its caller incomplete, and progresses in polls and waits of
    /// this process only: the endpoint's own thread does not look after it.
    pub(crate) fn work_for_polls(&self) {
        if self.background.in_flight.fetch_add(1, Ordering::SeqCst) == 0 {
            self.wake_sleeper();
        }
    }

    /// So many operations of the [`Work`] have ended.
    pub fn work_ended(&self, count: usize) {
        self.background.in_flight.fetch_sub(count, Ordering::SeqCst);
    }

    /// From now on the thread does nothing, and operations progress by polls alone; a look that it has begun
    /// may continue for a moment. May be called anywhere, even in a signal handler: for a program that is
    /// about to exit, with forgotten operations in flight, and for simulations, in which nothing happens by
    /// itself.
    pub fn stop_background(&self) {
        self.background.is_over.store(true, Ordering::SeqCst);
    }

    /// [`Endpoint::stop_background`], returning when the thread does nothing any more: before memory goes that forgotten
    /// operations may be about.
    pub fn end_background(&self) {
        self.stop_background();
        drop(lock(&self.background.looking));
    }

    /// Has the thread look after operations in flight. Cheap while it does already.
    #[inline]
    pub(super) fn look_after_it(&self) {
        // The operation is started first: either the thread finds it, or this finds that the thread has gone
        // to sleep.
        fence(Ordering::SeqCst);
        if !self.background.armed.load(Ordering::Relaxed) {
            self.arm_background();
        }
    }

    #[cold]
    fn arm_background(&self) {
        let background = &self.background;
        // Agents poll all the time.
        if self.rank().is_none() || background.armed.swap(true, Ordering::SeqCst) {
            return;
        }
        if background.is_over.load(Ordering::SeqCst) {
            return;
        }
        let start = || {
            let endpoint = self.myself.get().cloned().unwrap_or_default();
            let builder = std::thread::Builder::new().name("vgas-progress".into()).stack_size(STACK_BYTES);
            // The program's handlers of signals run in its own threads.
            match with_signals_blocked(|| builder.spawn(move || look_after(&endpoint))) {
                Ok(handle) => Some(handle.thread().clone()),
                Err(error) => {
                    tracing::debug!(%error, "no thread looks after operations while the rank computes");
                    None
                }
            }
        };
        if let Some(thread) = background.thread.get_or_init(start) {
            thread.unpark();
        }
    }

    /// Makes progress on the work, in addition to every poll's delivery.
    #[inline]
    pub(super) fn tend(&self) {
        if self.background.in_flight.load(Ordering::Relaxed) > 0 {
            self.tend_work();
        }
    }

    /// A poll looks everywhere: the thread need not.
    #[inline]
    pub(super) fn has_looked(&self) {
        if self.background.armed.load(Ordering::Relaxed) {
            self.background.polls.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[cold]
    fn tend_work(&self) {
        if !self.wait.in_handler() {
            self.advance_work(Extent::Some);
        }
    }

    /// Makes progress on the work, and tells its waiting threads.
    pub(super) fn advance_work(&self, extent: Extent) {
        if self.background.in_flight.load(Ordering::Relaxed) == 0 {
            return;
        }
        let ended = self.works().map(|work| work.advance(extent)).sum();
        if ended > 0 {
            self.work_ended(ended);
            self.notify_local();
        }
    }

    /// All work, as long as something of it is in flight.
    pub(super) fn work_in_flight(&self) -> Vec<Arc<dyn Work>> {
        let is_any = self.background.in_flight.load(Ordering::Relaxed) > 0;
        if is_any { self.works().collect() } else { Vec::new() }
    }

    fn has_in_flight(&self) -> bool {
        self.background.in_flight.load(Ordering::SeqCst) > 0
            || !self.operations.is_empty()
            || self.has_unsent()
    }

    /// Returns true if bytes wait for room that no thread may be about to send.
    pub(super) fn has_unsent(&self) -> bool {
        self.smp.as_ref().is_some_and(|smp| smp.has_unsent())
            || self.network.as_ref().is_some_and(|network| network.has_unsent())
    }

    fn may_look(&self) -> bool {
        !self.background.is_over.load(Ordering::SeqCst) && self.check_failure().is_ok()
    }

    /// One look of the thread. `seen`: the polls when it looked last. False: nothing is in flight.
    fn look(&self, seen: &mut u32) -> bool {
        let _looking = lock(&self.background.looking);
        if !self.may_look() || !self.has_in_flight() {
            return false;
        }
        let polls = self.background.polls.load(Ordering::Relaxed);
        let is_tended = polls != *seen;
        *seen = polls;
        if is_tended {
            return true;
        }
        if self.wait.has_sleeper() {
            // It is woken by what comes. Bytes that it has sent since it made itself wakeable do not wake it.
            if let Err(error) = self.push_out() {
                self.fail(error);
            }
            return true;
        }
        self.advance_work(Extent::Some);
        if let Err(error) = self.deliver_own() {
            self.fail(error);
        }
        self.advance_work(Extent::Some);
        // A thread that has gone to sleep meanwhile may sleep on what was read here and left where it is.
        self.notify_local();
        true
    }

    /// Sends waiting messages, beside a sleeping thread; tells it when all of them have gone: others may be
    /// admitted now.
    fn push_out(&self) -> crate::error::Result<()> {
        if !self.has_unsent() {
            return Ok(());
        }
        if let Some(smp) = &self.smp {
            smp.flush()?;
        }
        if let Some(network) = &self.network
            && let Err(error) = network.flush()
        {
            self.weigh(error)?;
        }
        if !self.has_unsent() {
            self.notify_local();
        }
        Ok(())
    }

    /// Handles messages for the endpoint and the cache, and sends waiting ones.
    pub(super) fn deliver_own(&self) -> crate::error::Result<()> {
        let traffic = Traffic::Below(handler_index::LIBRARY);
        let _running = self.wait.enter_handlers();
        let is_awaited = self.works().any(|work| work.awaits_messages());
        if let Some(smp) = &self.smp {
            // Only where something is expected: the ways to other ranks of the node are faster for a thread that has them
            // to itself (`shm::biased`).
            if is_awaited {
                smp.poll(&EndpointSink(self), traffic)?;
            } else {
                smp.flush()?;
            }
        }
        if let Some(network) = &self.network
            && let Some(_delivering) = self.begin_delivery()
        {
            self.check_failure()?;
            if (is_awaited || !self.operations.is_empty())
                && let Err(error) = network.poll(&EndpointSink(self), traffic)
            {
                self.weigh(error)?;
            }
            if let Err(error) = network.flush() {
                self.weigh(error)?;
            }
        }
        Ok(())
    }
}

/// Runs the thread until its endpoint goes.
fn look_after(endpoint: &Weak<Endpoint>) {
    IS_OWN.set(true);
    let mut seen = 0;
    loop {
        let Some(ours) = endpoint.upgrade() else { return };
        let background: &Background = &ours.background;
        if background.is_over.load(Ordering::SeqCst) {
            // It stays armed: polls go on with what is in flight.
            background.armed.store(true, Ordering::SeqCst);
            return;
        }
        let is_armed = background.armed.load(Ordering::SeqCst) && {
            let goes_on = ours.look(&mut seen);
            if !goes_on {
                background.armed.store(false, Ordering::SeqCst);
                // Operations started before that was cleared found it set.
                fence(Ordering::SeqCst);
                let is_over = background.is_over.load(Ordering::SeqCst);
                if is_over || (ours.check_failure().is_ok() && ours.has_in_flight()) {
                    background.armed.store(true, Ordering::SeqCst);
                }
            }
            background.armed.load(Ordering::SeqCst)
        };
        drop::<Arc<Endpoint>>(ours);
        if !is_armed {
            std::thread::park();
        }
        // Also when it was woken: most of what is started is waited for next.
        std::thread::park_timeout(INTERVAL);
    }
}
