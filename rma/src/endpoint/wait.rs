//! Waiting: look around for a moment, go on looking while a core is free for it, then sleep until something arrives.
//!
//! Any number of threads may wait at once. One of them, the *sleeper*, sleeps in `poll(2)` on the conduits'
//! descriptors and delivers; the others are *parked* on a condition variable. No thread polls in turns, and
//! no wake-up is lost:
//!
//! * a condition may change by a handler in this process: the delivering thread calls
//!   [`Endpoint::notify_local`], which wakes the parked threads and, through a descriptor of its own, the
//!   sleeper;
//! * it may change in shared memory: the changing thread rings the member's doorbell, which wakes the sleeper
//!   if the sleeping word is set; the sleeper then wakes the parked threads. A ring that comes before the
//!   word is set is covered because the sleeper, having set it, wakes the parked threads once to look again,
//!   and looks itself;
//! * the sleeper may be satisfied first: it wakes the parked threads when it leaves, and one takes its place.
//!
//! A program may ask for another way of waiting ([`WaitMode`]). Only one that asks to spin is never put to sleep.

use super::{Endpoint, Extent};
use crate::conduit::Conduit;
use crate::error::{Result, RmaError};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd};
use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};
use vgas_shm::bell::{self, Sleeps};
use vgas_shm::{cores, fence};

/// Looking around before it is asked whether a core is free: several round trips through shared memory. An answer that is
/// in flight already comes within it, also on a machine where none is free.
const SPIN: Duration = Duration::from_micros(2);

/// Looking around while a core is free: about what it costs to be woken on an idle machine (16 to 44 µs across cores), so
/// that in the worst case the wait takes twice as long as with perfect foresight.
const SPIN_SPARE: Duration = Duration::from_micros(42);

/// Between two looks while messages are withheld.
const WITHHOLDING: Duration = Duration::from_micros(200);

/// Polls between two looks at the clock, which costs as much as several polls. Together they take less than
/// [`SPIN`], and are many when an answer is on its way.
const POLLS_PER_LOOK: u32 = 32;

/// Way of waiting in an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum WaitMode {
    /// Never sleep. For programs that own their cores and ask for it; on a crowded machine all other
    /// processes pay for it.
    Spin,
    /// Sleep at once.
    Block,
    /// Look around for a moment, for about as long as being woken takes while a core is free ([`vgas_shm::cores`]), then sleep.
    SpinBlock,
}

thread_local! {
    static IN_HANDLER: Cell<bool> = const { Cell::new(false) };
}

/// Locks, also after a panic elsewhere: what these locks protect is consistent at every step.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks unless it is locked.
pub(super) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

pub(super) struct WaitState {
    parking: Mutex<Parking>,
    changed: Condvar,
    /// Threads in `changed`, or on their way into it.
    parked: AtomicU32,
    /// Sleeping word and descriptor of the sleeper, for this process's own threads.
    sleeping: AtomicU32,
    waker: OwnedFd,
    waker_pending: AtomicBool,
    /// A [`WaitMode`].
    mode: AtomicU8,
}

#[derive(Default)]
struct Parking {
    generation: u64,
    has_sleeper: bool,
}

/// Marks the thread as running handlers until dropped.
pub(super) struct InHandler {
    /// Handlers of another endpoint may be below on this stack.
    before: bool,
}

impl Drop for InHandler {
    #[inline]
    fn drop(&mut self) {
        IN_HANDLER.with(|here| here.set(self.before));
    }
}

/// The place of the sleeper; when it is left, also by a panic in a handler, a parked thread takes it.
struct SleeperRole<'a>(&'a WaitState);

impl Drop for SleeperRole<'_> {
    fn drop(&mut self) {
        let mut parking = lock(&self.0.parking);
        parking.has_sleeper = false;
        parking.generation += 1;
        if self.0.parked.load(Ordering::SeqCst) > 0 {
            self.0.changed.notify_all();
        }
    }
}

/// Counts a thread as parked until dropped.
struct Parked<'a>(&'a AtomicU32);

impl<'a> Parked<'a> {
    fn begin(count: &'a AtomicU32) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for Parked<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl WaitState {
    pub(super) fn new() -> Result<Self> {
        cores::prepare();
        let waker = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| RmaError::system("create a descriptor to wake waiting threads (eventfd)", e))?;
        Ok(Self {
            parking: Mutex::default(),
            changed: Condvar::new(),
            parked: AtomicU32::new(0),
            sleeping: AtomicU32::new(0),
            waker,
            waker_pending: AtomicBool::new(false),
            mode: AtomicU8::new(WaitMode::SpinBlock as u8),
        })
    }

    fn is_mode(&self, mode: WaitMode) -> bool {
        self.mode.load(Ordering::Relaxed) == mode as u8
    }

    /// Returns true if this thread runs a handler.
    #[inline]
    pub(super) fn in_handler(&self) -> bool {
        IN_HANDLER.get()
    }

    #[inline]
    pub(super) fn enter_handlers(&self) -> InHandler {
        InHandler { before: IN_HANDLER.replace(true) }
    }

    /// Returns true if a thread waits as the one that sleeps and delivers.
    pub(super) fn has_sleeper(&self) -> bool {
        lock(&self.parking).has_sleeper
    }

    fn wake_parked(&self) {
        if self.parked.load(Ordering::SeqCst) > 0 {
            lock(&self.parking).generation += 1;
            self.changed.notify_all();
        }
    }
}

impl Endpoint {
    /// Sets the way of waiting from now on; threads that wait already may finish as they began.
    pub fn set_wait_mode(&self, mode: WaitMode) {
        self.wait.mode.store(mode as u8, Ordering::Relaxed);
    }

    /// Returns true if this thread runs a handler, in which it must neither wait nor poll.
    #[inline]
    pub fn in_handler(&self) -> bool {
        self.wait.in_handler()
    }

    /// Waits until `condition` holds, delivering messages meanwhile. True: it holds; false: the deadline has passed.
    ///
    /// The condition is checked after every delivery, after every [`Endpoint::notify_local`] in this process and after
    /// every [`Endpoint::ring`] by another; it must depend on nothing else. It may send with
    /// [`Endpoint::try_request`] (a `Busy` wakes this wait when there is room), must not wait itself, and is checked
    /// spuriously. Ends with the endpoint's error when it fails. Not from handlers.
    pub fn wait_until(&self, deadline: Option<Instant>, mut condition: impl FnMut() -> bool) -> Result<bool> {
        if condition() {
            return Ok(true);
        }
        if self.wait.in_handler() {
            return Err(RmaError::Usage("a handler must not wait".into()));
        }
        if let Some(done) = self.wait_awake(deadline, &mut condition)? {
            return Ok(done);
        }
        self.wait_long(deadline, &mut condition)
    }

    /// Sleeps once, until something wakes this thread, and delivers what has come, for a caller that spins by itself between two sleeps
    /// of one wait. Returns whether the condition holds.
    pub(crate) fn sleep_once(
        &self,
        sleeps: &mut Sleeps,
        mut condition: impl FnMut() -> bool,
    ) -> Result<bool> {
        if self.wait.in_handler() {
            return Err(RmaError::Usage("a handler must not wait".into()));
        }
        if self.wait.is_mode(WaitMode::Spin) {
            return self.wait_until(None, condition);
        }
        self.wait_in_turn(None, &mut condition, |condition| {
            if self.sleep_between(None, sleeps, condition)? {
                return Ok(true);
            }
            self.look_around()?;
            Ok(condition())
        })
    }

    fn wait_long(&self, deadline: Option<Instant>, condition: &mut impl FnMut() -> bool) -> Result<bool> {
        self.wait_in_turn(deadline, condition, |condition| self.sleep(deadline, condition))
    }

    /// Runs `sleep` as the thread that sleeps and delivers; while another thread does, waits parked.
    fn wait_in_turn<C: FnMut() -> bool>(
        &self,
        deadline: Option<Instant>,
        condition: &mut C,
        sleep: impl FnOnce(&mut C) -> Result<bool>,
    ) -> Result<bool> {
        loop {
            let mut parking = lock(&self.wait.parking);
            if !parking.has_sleeper {
                parking.has_sleeper = true;
                drop(parking);
                let _role = SleeperRole(&self.wait);
                return sleep(condition);
            }
            let _parked = Parked::begin(&self.wait.parked);
            let generation = parking.generation;
            drop(parking);
            // Pairs with the light half of threads that change something and then look for parked ones.
            fence::heavy();
            if let Some(done) = self.park(generation, deadline, condition)? {
                return Ok(done);
            }
        }
    }

    /// The part of a wait that keeps the processor. It begins again whenever something was delivered: where messages come,
    /// more are likely to follow, also if this wait is not about them.
    fn wait_awake(
        &self,
        deadline: Option<Instant>,
        condition: &mut impl FnMut() -> bool,
    ) -> Result<Option<bool>> {
        let mut quiet_since = None;
        let mut polls = if self.wait.is_mode(WaitMode::Block) { 1 } else { POLLS_PER_LOOK };
        loop {
            for _ in 0..polls {
                let delivered = self.look_around()?;
                if condition() {
                    return Ok(Some(true));
                }
                if delivered > 0 {
                    quiet_since = None;
                }
                // No `spin_loop` here: a poll has some pause in it, and the processor's takes half a message's way.
            }
            let now = Instant::now();
            if deadline.is_some_and(|deadline| now >= deadline) {
                return Ok(Some(false));
            }
            if self.wait.is_mode(WaitMode::Block) {
                return Ok(None);
            }
            if self.wait.is_mode(WaitMode::Spin) {
                continue;
            }
            let quiet = now - *quiet_since.get_or_insert(now);
            if quiet >= SPIN && (quiet >= SPIN_SPARE || !cores::spare()) {
                return Ok(None);
            }
            polls = POLLS_PER_LOOK;
        }
    }

    /// Waits as the thread that sleeps and delivers, until the condition holds or the deadline has passed.
    fn sleep(&self, deadline: Option<Instant>, condition: &mut impl FnMut() -> bool) -> Result<bool> {
        let mut sleeps = Sleeps::default();
        loop {
            if self.sleep_between(deadline, &mut sleeps, condition)? {
                return Ok(true);
            }
            if let Some(done) = self.wait_awake(deadline, condition)? {
                return Ok(done);
            }
        }
    }

    /// Sleeps until something wakes this thread, or not at all if something has come already. True: the condition held before.
    fn sleep_between(
        &self,
        deadline: Option<Instant>,
        sleeps: &mut Sleeps,
        condition: &mut impl FnMut() -> bool,
    ) -> Result<bool> {
        let most = sleeps.most();
        if self.arm_for(most.is_some()) {
            self.wait.wake_parked();
            // Work goes on by events that wake this thread from now on; earlier ones have woken no thread.
            self.advance_work(Extent::All);
            if condition() {
                self.disarm();
                return Ok(true);
            }
            let woken = self.sleep_armed(deadline, most);
            self.disarm();
            sleeps.slept(woken?);
            self.wait.wake_parked();
        } else if self.withholds.load(Ordering::Relaxed) {
            // Nothing that sleeps tells what is withheld from what else may come.
            std::thread::sleep(WITHHOLDING);
        }
        Ok(false)
    }

    /// Sleeps for at most so long. Returns true if something woke it.
    fn sleep_armed(&self, deadline: Option<Instant>, most: Option<Duration>) -> Result<bool> {
        let work = self.work_in_flight();
        let mut descriptors: Vec<PollFd<'_>> = self
            .wait_descriptors()
            .into_iter()
            .chain(work.iter().filter_map(|work| work.descriptor()))
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        // An overwritten descriptor of -1 reads as none and ends the list: a thread that slept on the rest might never wake.
        let own = 1 + usize::from(self.smp.is_some()) + usize::from(self.network.is_some());
        if descriptors.len() < own {
            return Err(RmaError::Usage("this program has overwritten memory of vgas".into()));
        }
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let timeout = [left, most].into_iter().flatten().min();
        let timeout = timeout
            .map(|left| Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) });
        match rustix::event::poll(&mut descriptors, timeout.as_ref()) {
            Ok(woken_by) => Ok(woken_by > 0),
            Err(rustix::io::Errno::INTR) => Ok(true),
            Err(error) => Err(RmaError::system("wait for messages (poll)", error)),
        }
    }

    /// Waits while another thread sleeps. None: the sleeper has left; its place may be taken.
    fn park(
        &self,
        mut generation: u64,
        deadline: Option<Instant>,
        condition: &mut impl FnMut() -> bool,
    ) -> Result<Option<bool>> {
        loop {
            self.check_failure()?;
            if condition() {
                return Ok(Some(true));
            }
            let mut parking = lock(&self.wait.parking);
            while parking.generation == generation {
                parking = match deadline {
                    None => self.wait.changed.wait(parking).unwrap_or_else(PoisonError::into_inner),
                    Some(deadline) => {
                        let left = deadline.saturating_duration_since(Instant::now());
                        if left.is_zero() {
                            drop(parking);
                            return Ok(Some(condition()));
                        }
                        let waited = self.wait.changed.wait_timeout(parking, left);
                        waited.unwrap_or_else(PoisonError::into_inner).0
                    }
                };
            }
            generation = parking.generation;
            if !parking.has_sleeper {
                drop(parking);
                return Ok(condition().then_some(true));
            }
        }
    }

    /// Wakes this process's threads that wait in this endpoint, so that they look at their conditions again. Called
    /// after something that they wait for was changed by other means than a message.
    #[inline]
    pub fn notify_local(&self) {
        // Its fence comes before the look for parked threads, too.
        self.wake_sleeper();
        if self.wait.parked.load(Ordering::Relaxed) > 0 {
            self.wait.wake_parked();
        }
    }

    /// Tells the sleeper that an operation is in flight from now on: it sleeps on the descriptors of earlier
    /// ones, and the starting thread may be parked beside it.
    #[inline]
    pub(super) fn wake_sleeper(&self) {
        // Pairs with the heavy halves in `bell::prepare` and before a thread parks.
        fence::light();
        bell::ring(&self.wait.sleeping, self.wait.waker.as_fd());
    }

    /// The descriptors to sleep on, for an outer event loop: readable when there is something to [`Endpoint::poll`],
    /// provided that [`Endpoint::arm`] returned true after the last poll. The list does not change.
    pub fn wait_descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let smp = self.smp.iter().map(|smp| smp.wait_descriptor());
        let network = self.network.iter().map(|network| network.wait_descriptor());
        smp.chain(network).chain([self.wait.waker.as_fd()]).collect()
    }

    /// Prepares an outer event loop to sleep. False: do not sleep, poll. After true, check once more what the loop
    /// waits for besides messages, sleep, and call [`Endpoint::disarm`]. One thread of a process at a time, and not
    /// while others wait in [`Endpoint::wait_until`].
    pub fn arm(&self) -> bool {
        self.arm_for(false)
    }

    /// The same for a loop that sleeps as long as [`Sleeps`] says, and polls then: what comes in the moment
    /// of the preparation need not wake it. Preparing takes one system call less, one that interrupts all
    /// processors: for threads that expect to be woken soon.
    pub fn arm_briefly(&self) -> bool {
        self.arm_for(true)
    }

    fn arm_for(&self, is_brief: bool) -> bool {
        let arm = |conduit: &dyn Conduit| if is_brief { conduit.arm_briefly() } else { conduit.arm() };
        let is_armed = match &self.smp {
            // It executes the fence, for both words.
            Some(smp) => {
                bell::prepare_before_fence(&self.wait.sleeping);
                arm(smp)
            }
            None if is_brief => {
                bell::prepare_briefly(&self.wait.sleeping);
                true
            }
            None => {
                bell::prepare(&self.wait.sleeping);
                true
            }
        };
        if is_armed {
            let quiet = !self.failed.load(Ordering::SeqCst) && self.loopback.is_empty();
            if quiet && self.network.as_ref().is_none_or(|network| arm(&**network)) {
                return true;
            }
            if let Some(smp) = &self.smp {
                smp.disarm();
            }
        }
        // The cause may have come over the network.
        self.network_silence.store(0, Ordering::Relaxed);
        bell::finish(&self.wait.sleeping, self.wait.waker.as_fd(), &self.wait.waker_pending);
        false
    }

    /// Ends what [`Endpoint::arm`] began, slept or not.
    pub fn disarm(&self) {
        if let Some(network) = &self.network {
            network.disarm();
            self.network_silence.store(0, Ordering::Relaxed);
        }
        if let Some(smp) = &self.smp {
            smp.disarm();
        }
        bell::finish(&self.wait.sleeping, self.wait.waker.as_fd(), &self.wait.waker_pending);
    }
}
