//! A rank's waiting tasks: their queues, the threads that take them, and the wake-ups.
//!
//! Each worker has a queue of its own, where it puts the tasks that it spawns and takes the newest; others
//! take the oldest there when they have nothing. Tasks from other ranks wait in a shared queue.
//!
//! # Who waits, and how
//!
//! A thread without work looks around and then sleeps *in the endpoint*, where a message wakes it, and so
//! does [`Endpoint::notify_local`](vgas::Runtime::endpoint). One is enough for that, so that messages from
//! other ranks wake one thread and no more: a thread that waits for a task, or else one of the idle workers,
//! the *listener*. Other idle workers sleep on the *bench*, and are woken one at a time.
//!
//! No wake is lost: a thread that goes to sleep says so, and then looks once more for work; a thread that
//! makes work looks for sleepers afterwards. Wakes that are left out on purpose (below) are made good by the
//! watch ([`super::watch`]), which looks within two milliseconds of when it was needed.
//!
//! * *A spawn that its thread waits for at once* is done sooner than a thread could be woken for it. After a
//!   wake that has found nothing, only a longer queue wakes.
//! * *A thread that waits for a task* runs others meanwhile, if none of them may wait for it
//!   ([`super::alone`]). It takes the listener's place, and gives it back only when it has not waited for a
//!   while: programs wait often.

use super::alone;
use super::job::{Leaves, Packed, Work};
use super::travel;
use crate::heap::{Messages, ObjectError, pass_on};
use crossbeam_deque::{Injector, Steal, Stealer, Worker};
use rustc_hash::{FxHashMap, FxHashSet};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::thread::Thread;
use std::time::{Duration, Instant};
use vgas::{NodeId, Rank, Runtime};

/// Most tasks that wait in a worker's queue: it runs spawned tasks beyond them at once, so that memory is
/// bounded.
const WAITING_MAX: usize = 1 << 16;

/// Most tasks of a rank that are on others, beyond which it waits: so that memory is bounded there.
const AWAY_MAX: usize = 1 << 16;

/// Tasks that threads whose stacks are not the pool's run within each other while they wait.
const NESTED_MAX: u32 = 32;

/// Tasks that a thread takes from another at a time.
const STOLEN_MAX: usize = 8;

/// Longest queue that does not wake a sleeper after wakes in vain.
const VAIN_MAX: u32 = 4;

/// Looks at a task that another thread runs before its waiter waits in the endpoint: about a microsecond.
const LOOKS: u32 = 64;

/// Between two polls of a thread that runs one task after another.
const POLL_AFTER: Duration = Duration::from_micros(100);

/// Part of a rank's time that giving tasks away may take: one in this number.
const GIVING_SHARE: u32 = 8;

/// Longest that giving a task away is taken to last.
const GIVING_MAX: Duration = Duration::from_micros(25);

/// Ranks that are asked for a task at a time.
const ASKED_AT_ONCE: usize = 8;

/// Tasks that may not leave, and are put aside in the search for one that may.
const PUT_ASIDE_MAX: usize = 16;

/// Times that a task may leave: idle ranks would otherwise pass the last one around.
const HOPS_MAX: u8 = 4;

pub(super) type Queued = Arc<dyn Work>;

/// Erases the lifetime of a task's arguments.
pub(super) fn erase<'s>(work: Arc<dyn Work + 's>) -> Queued {
    // SAFETY: rule 3: it has what is lent only until it has ended, of which its lender hears before it goes
    // on. Entries left in queues after that have no part of it.
    unsafe { std::mem::transmute::<Arc<dyn Work + 's>, Arc<dyn Work + 'static>>(work) }
}

thread_local! {
    /// The queue of this thread, if it is one of the pool's.
    static QUEUE: RefCell<Option<Worker<Queued>>> = const { RefCell::new(None) };
    pub(super) static IS_WORKER: Cell<bool> = const { Cell::new(false) };
    /// Tasks that this thread runs within each other.
    static NESTED: Cell<u32> = const { Cell::new(0) };
    static POLLED: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Counts of a rank's tasks that involve other ranks and threads ([`task_counts`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskCounts {
    /// Tasks of other ranks that came here.
    pub came: u64,
    /// Tasks that left from here, begun here or not.
    pub left: u64,
    /// Times that this rank has asked another for a task.
    pub asked: u64,
    /// Messages to other ranks about tasks: those that have left, ends of those that came, questions.
    pub sent: u64,
    /// Times that a thread was woken, or was to be, for a task of its own process.
    pub wakes: u64,
}

#[derive(Default)]
pub(super) struct Counters {
    pub came: AtomicU64,
    pub left: AtomicU64,
    pub asked: AtomicU64,
    pub sent: AtomicU64,
    pub wakes: AtomicU64,
}

/// An idle worker on the bench.
struct Benched {
    thread: Thread,
    is_called: Arc<AtomicBool>,
}

pub(super) struct Pool {
    pub runtime: &'static Runtime,
    /// Number of runs; messages of other numbers are of another run.
    pub run: AtomicU32,
    /// No task begins any more.
    is_over: AtomicBool,
    /// It is over, and no worker has a task left.
    is_closed: AtomicBool,
    queues: RwLock<Vec<Stealer<Queued>>>,
    /// From messages, and from threads that are not the pool's.
    shared: Injector<Queued>,
    /// Tasks found not to leave.
    aside: Injector<Queued>,
    /// Threads that sleep in the endpoint, or are about to, and would run a task.
    idle: AtomicUsize,
    /// Those that wait for a task there.
    waiting: AtomicUsize,
    /// An idle worker is there.
    has_listener: AtomicBool,
    bench: Mutex<Vec<Benched>>,
    benched: AtomicUsize,
    vain: AtomicU32,
    /// Changes when a thread leaves the endpoint.
    pub activity: AtomicU64,
    pub watch: super::watch::Watch,
    /// Slots for other ranks, and theirs.
    pub rooms: super::room::Rooms,
    /// Ranks that want a task.
    hungry: Mutex<VecDeque<Rank>>,
    hungry_count: AtomicUsize,
    gives_after: Mutex<Option<Instant>>,
    /// Ranks that were asked for one, and have not sent it.
    asked: Mutex<FxHashSet<Rank>>,
    asked_count: AtomicUsize,
    /// Number of tasks of each other rank that wait here.
    visitors: Mutex<FxHashMap<Rank, usize>>,
    /// Tasks of this rank that are elsewhere, by their numbers, and on which rank.
    away: Mutex<FxHashMap<u64, (Queued, Rank)>>,
    /// Numbers of this rank's notes to its lenders, until they are acknowledged.
    pub notes: Mutex<FxHashSet<u64>>,
    pub next: AtomicU64,
    pub counters: Counters,
}

static POOL: OnceLock<Pool> = OnceLock::new();

/// The pool of this process.
pub(super) fn pool() -> Result<&'static Pool, ObjectError> {
    crate::heap::job()?;
    POOL.get().ok_or(ObjectError::NoHeap)
}

/// Returns true if this rank is within a run.
pub(crate) fn is_within_run() -> bool {
    POOL.get().is_some_and(|pool| !pool.is_closed())
}

/// Returns the counts of this rank's tasks that involve other ranks and threads, since the heap was attached;
/// zeros if there is none.
pub fn task_counts() -> TaskCounts {
    pool().map(Pool::counts).unwrap_or_default()
}

/// Makes the pool of this process, if it has none.
pub(super) fn make(runtime: &'static Runtime) -> &'static Pool {
    POOL.get_or_init(|| Pool {
        runtime,
        run: AtomicU32::new(0),
        is_over: AtomicBool::new(true),
        is_closed: AtomicBool::new(true),
        queues: RwLock::default(),
        shared: Injector::new(),
        aside: Injector::new(),
        idle: AtomicUsize::new(0),
        waiting: AtomicUsize::new(0),
        has_listener: AtomicBool::new(false),
        bench: Mutex::default(),
        benched: AtomicUsize::new(0),
        vain: AtomicU32::new(0),
        activity: AtomicU64::new(0),
        watch: super::watch::Watch::default(),
        rooms: super::room::Rooms::default(),
        hungry: Mutex::default(),
        hungry_count: AtomicUsize::new(0),
        gives_after: Mutex::default(),
        asked: Mutex::default(),
        asked_count: AtomicUsize::new(0),
        visitors: Mutex::default(),
        away: Mutex::default(),
        notes: Mutex::default(),
        next: AtomicU64::new(0),
        counters: Counters::default(),
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn until_known<T>(steal: impl Fn() -> Steal<T>) -> Option<T> {
    loop {
        match steal() {
            Steal::Success(found) => return Some(found),
            Steal::Empty => return None,
            // Another thread has just taken one.
            Steal::Retry => {}
        }
    }
}

/// Makes a thread one of the pool's, with this queue, until dropped.
pub(super) struct Member(&'static Pool);

impl Member {
    pub fn new(pool: &'static Pool, queue: Worker<Queued>, is_worker: bool) -> Self {
        QUEUE.set(Some(queue));
        IS_WORKER.set(is_worker);
        // Its tasks go through rows.
        vgas::prepare_thread();
        Self(pool)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // No tasks are run any more; their waiters learn of it.
        while let Some(work) = take_own() {
            work.run(self.0.is_over());
        }
        QUEUE.set(None);
        IS_WORKER.set(false);
    }
}

fn take_own() -> Option<Queued> {
    QUEUE.with_borrow(|queue| queue.as_ref().and_then(Worker::pop))
}

impl Pool {
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// Begins a new run, with these queues.
    pub fn begin(&self, queues: &[Worker<Queued>]) {
        *self.queues.write().unwrap_or_else(PoisonError::into_inner) =
            queues.iter().map(Worker::stealer).collect();
        lock(&self.hungry).clear();
        self.hungry_count.store(0, Ordering::SeqCst);
        lock(&self.asked).clear();
        self.asked_count.store(0, Ordering::SeqCst);
        self.vain.store(0, Ordering::Relaxed);
        self.run.fetch_add(1, Ordering::SeqCst);
        self.is_closed.store(false, Ordering::SeqCst);
        self.is_over.store(false, Ordering::SeqCst);
    }

    /// One more queue in this run.
    pub fn add(&self, queue: &Worker<Queued>) {
        self.queues.write().unwrap_or_else(PoisonError::into_inner).push(queue.stealer());
    }

    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    /// All ranks have ended the run.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        self.watch.wake();
        // Wakes threads outside of the pool that wait for room elsewhere.
        self.runtime.messages().notify_local();
    }

    pub fn counts(&self) -> TaskCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Counters { came, left, asked, sent, wakes } = &self.counters;
        TaskCounts {
            came: read(came),
            left: read(left),
            asked: read(asked),
            sent: read(sent),
            wakes: read(wakes),
        }
    }

    /// Stops new tasks from beginning: wakes all sleepers.
    pub fn stop(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        let bench = std::mem::take(&mut *lock(&self.bench));
        self.benched.fetch_sub(bench.len(), Ordering::SeqCst);
        bench.iter().for_each(Benched::call);
        self.runtime.messages().notify_local();
        self.watch.wake();
    }

    /// Refuses the tasks left after the workers have ended.
    pub fn end(&self) {
        // A thread that is giving one away has done so then: before all ranks meet.
        drop(lock(&self.gives_after));
        self.refuse_all();
        self.queues.write().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Tells the waiters of remaining tasks that these are not run.
    pub fn refuse_all(&self) {
        while let Some(work) = self.find() {
            work.run(true);
        }
    }

    /// Queues a task, for a thread of this rank, or for another rank on request.
    pub fn push(&self, work: Queued) {
        let mut work = Some(work);
        let length = QUEUE.with_borrow(|queue| {
            let queue = queue.as_ref()?;
            let length = queue.len();
            if length < WAITING_MAX {
                work.take().into_iter().for_each(|work| queue.push(work));
            }
            Some(length + 1)
        });
        match (length, work) {
            (Some(length), None) => self.pushed(length),
            (Some(_), Some(work)) => {
                self.run(&work);
            }
            (None, Some(work)) => self.push_shared(work),
            (None, None) => {}
        }
    }

    /// As [`Pool::push`], into the shared queue; handlers may call it.
    pub fn push_shared(&self, work: Queued) {
        self.shared.push(work);
        self.pushed(self.shared.len().max(1 + VAIN_MAX as usize));
    }

    #[inline]
    fn pushed(&self, length: usize) {
        // Pairs with the fences of threads that go to sleep.
        fence(Ordering::SeqCst);
        if self.idle.load(Ordering::Relaxed) + self.benched.load(Ordering::Relaxed) > 0 {
            if length > self.vain.load(Ordering::Relaxed) as usize {
                self.wake_one();
            } else {
                self.watch.see();
            }
        }
        if self.hungry_count.load(Ordering::Relaxed) > 0 {
            self.give(2);
        }
    }

    /// Wakes a thread that would run a task, if one sleeps.
    pub fn wake_one(&self) {
        self.counters.wakes.fetch_add(1, Ordering::Relaxed);
        if self.idle.load(Ordering::SeqCst) > 0 {
            return self.runtime.messages().notify_local();
        }
        self.call_one();
    }

    /// Wakes a worker on the bench.
    pub fn call_one(&self) {
        let called = lock(&self.bench).pop();
        if let Some(called) = called {
            self.benched.fetch_sub(1, Ordering::SeqCst);
            called.call();
        }
    }

    /// Returns true if some task may wait.
    pub fn has_work(&self) -> bool {
        !self.shared.is_empty()
            || !self.aside.is_empty()
            || self
                .queues
                .read()
                .unwrap_or_else(PoisonError::into_inner)
                .iter()
                .any(|queue| !queue.is_empty())
    }

    fn count(&self) -> usize {
        let queues = self.queues.read().unwrap_or_else(PoisonError::into_inner);
        self.shared.len() + self.aside.len() + queues.iter().map(Stealer::len).sum::<usize>()
    }

    pub fn has_idle(&self) -> bool {
        self.idle.load(Ordering::SeqCst) + self.benched.load(Ordering::SeqCst) > 0
    }

    /// Returns true if a thread is in the endpoint.
    pub fn is_attended(&self) -> bool {
        self.has_listener.load(Ordering::SeqCst) || self.waiting.load(Ordering::SeqCst) > 0
    }

    pub fn has_benched(&self) -> bool {
        self.benched.load(Ordering::SeqCst) > 0
    }

    /// Returns a task for this thread: its newest, an arrived one, or the oldest of others.
    pub fn find(&self) -> Option<Queued> {
        if let Some(own) = take_own() {
            return Some(own);
        }
        let other = || {
            until_known(|| self.shared.steal())
                .or_else(|| until_known(|| self.aside.steal()))
                .or_else(|| self.steal_some())
        };
        let found = other()?;
        self.vain.store(0, Ordering::Relaxed);
        Some(found)
    }

    /// The oldest task of another thread; some more come into the queue of this one, if it has one, so that
    /// short tasks are not taken one by one. Half of them at most: idle threads take them from there.
    fn steal_some(&self) -> Option<Queued> {
        QUEUE.with_borrow(|own| {
            let Some(own) = own else { return self.steal_oldest() };
            let queues = self.queues.read().unwrap_or_else(PoisonError::into_inner);
            queues
                .iter()
                .find_map(|queue| until_known(|| queue.steal_batch_with_limit_and_pop(own, STOLEN_MAX)))
        })
    }

    fn steal_oldest(&self) -> Option<Queued> {
        let queues = self.queues.read().unwrap_or_else(PoisonError::into_inner);
        queues.iter().find_map(|queue| until_known(|| queue.steal()))
    }

    /// Runs a task, unless it has begun.
    pub fn run(&self, work: &Queued) -> bool {
        NESTED.set(NESTED.get() + 1);
        let ran = work.run(self.is_over());
        NESTED.set(NESTED.get() - 1);
        ran
    }

    /// Work of a thread between two tasks, for other ranks.
    fn between(&self) {
        if self.runtime.ranks() == 1 {
            return;
        }
        let now = Instant::now();
        if POLLED.get().is_none_or(|polled| now - polled >= POLL_AFTER) {
            POLLED.set(Some(now));
            // An error is the endpoint's, and found by the next waiter.
            let _ = self.runtime.poll();
            if self.hungry_count.load(Ordering::Relaxed) > 0 {
                self.give(1);
            }
        }
    }

    /// Returns true if this thread runs tasks within each other.
    fn may_nest() -> bool {
        IS_WORKER.get() || NESTED.get() < NESTED_MAX
    }

    /// Returns true if this thread runs other tasks than the one that it waits for.
    fn may_help() -> bool {
        Self::may_nest() && !alone::is_alone()
    }

    /// Runs a task that this thread is about to wait for, unless it has begun; tidies up the tasks that it
    /// passes.
    pub fn run_first(&self, wanted: &Queued) {
        if !Self::may_nest() {
            return;
        }
        while let Some(newest) = take_own() {
            if newest.waits() && !Arc::ptr_eq(&newest, wanted) {
                QUEUE.with_borrow(|queue| queue.as_ref().map(|queue| queue.push(newest)));
                break;
            }
            if Arc::ptr_eq(&newest, wanted) {
                break;
            }
        }
        self.run(wanted);
    }

    /// Waits, and runs tasks meanwhile. `announce` makes the end of the awaited condition notify the
    /// endpoint.
    ///
    /// # Errors
    /// If the job fails.
    pub fn wait(
        &self,
        is_over: impl Fn() -> bool,
        announce: impl FnOnce() -> bool,
    ) -> Result<(), ObjectError> {
        for _ in 0..LOOKS {
            if is_over() {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        if announce() {
            return Ok(());
        }
        loop {
            // Each time: what has come meanwhile may be waited for by what comes next.
            while let Some(work) = Self::may_help().then(|| self.find()).flatten() {
                self.run(&work);
                if is_over() {
                    return Ok(());
                }
                self.between();
            }
            if is_over() {
                return Ok(());
            }
            if Self::may_help() {
                if IS_WORKER.get() {
                    self.ask(ASKED_AT_ONCE)?;
                }
                self.wait_in_endpoint(true, None, &is_over)?;
            } else if !self.wait_in_endpoint(false, Some(Instant::now() + super::BRIEFLY), &is_over)? {
                // Others are run by a worker in its place, which most tasks are too short for.
                super::while_blocked(|| self.wait_in_endpoint(false, None, &is_over))?;
            }
        }
    }

    /// False: it is not over, and there is nothing to do here, by then.
    fn wait_in_endpoint(
        &self,
        may_help: bool,
        deadline: Option<Instant>,
        is_over: &impl Fn() -> bool,
    ) -> Result<bool, ObjectError> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        self.idle.fetch_add(usize::from(may_help), Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if self.has_listener.load(Ordering::SeqCst) {
            // One is enough.
            self.runtime.messages().notify_local();
        }
        if !may_help && self.has_work() {
            // It will not do it itself.
            self.wake_one();
        }
        let is_so = || is_over() || (may_help && self.has_work());
        let waited = self.runtime.messages().wait_until(deadline, is_so);
        self.idle.fetch_sub(usize::from(may_help), Ordering::SeqCst);
        self.left_endpoint(|| self.waiting.fetch_sub(1, Ordering::SeqCst));
        Ok(waited.map_err(vgas::Error::from)?)
    }

    /// Notes that a thread leaves the endpoint.
    fn left_endpoint<T>(&self, leave: impl FnOnce() -> T) {
        self.activity.fetch_add(1, Ordering::Relaxed);
        leave();
        fence(Ordering::SeqCst);
        if !self.is_attended() {
            self.watch.see();
        }
    }

    /// Runs a worker until the run is over.
    ///
    /// # Errors
    /// If the job fails.
    pub fn work(&self) -> Result<(), ObjectError> {
        let mut was_woken = false;
        loop {
            let mut has_run = false;
            while let Some(work) = self.find() {
                if !has_run && self.has_benched() && self.has_work() {
                    // One wakes the next, as long as there is something for it.
                    self.wake_one();
                }
                self.run(&work);
                has_run = true;
                self.between();
            }
            if self.is_over() {
                return Ok(());
            }
            if was_woken && !has_run {
                let vain = self.vain.load(Ordering::Relaxed);
                self.vain.store((vain + 1).min(VAIN_MAX), Ordering::Relaxed);
            }
            self.ask(ASKED_AT_ONCE)?;
            was_woken = self.idle()?;
        }
    }

    /// Sleeps until there may be work; whether it was woken for that.
    fn idle(&self) -> Result<bool, ObjectError> {
        if self.waiting.load(Ordering::SeqCst) > 0 || self.has_listener.swap(true, Ordering::SeqCst) {
            return Ok(self.sit());
        }
        self.idle.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let may_go_on = || self.has_work() || self.is_over();
        let waited = self.runtime.wait_until(|| may_go_on() || self.waiting.load(Ordering::SeqCst) > 0);
        self.idle.fetch_sub(1, Ordering::SeqCst);
        let was_woken = may_go_on();
        self.left_endpoint(|| self.has_listener.store(false, Ordering::SeqCst));
        waited?;
        Ok(was_woken)
    }

    /// Sleeps on the bench until it is called.
    fn sit(&self) -> bool {
        let is_called = Arc::new(AtomicBool::new(false));
        {
            let mut bench = lock(&self.bench);
            bench.push(Benched { thread: std::thread::current(), is_called: is_called.clone() });
            self.benched.fetch_add(1, Ordering::SeqCst);
        }
        fence(Ordering::SeqCst);
        let is_needed = || self.has_work() || self.is_over() || !self.is_attended();
        if is_needed() {
            let mut bench = lock(&self.bench);
            if let Some(at) = bench.iter().position(|benched| Arc::ptr_eq(&benched.is_called, &is_called)) {
                bench.swap_remove(at);
                self.benched.fetch_sub(1, Ordering::SeqCst);
                return false;
            }
        }
        while !is_called.load(Ordering::Acquire) {
            std::thread::park();
        }
        true
    }

    /// Asks other ranks for a task, at most `at_most` that were not asked yet: they answer when they have one
    /// too many.
    ///
    /// # Errors
    /// If the job fails.
    pub fn ask(&self, at_most: usize) -> Result<(), ObjectError> {
        let ranks = self.runtime.ranks();
        if self.asked_count.load(Ordering::Relaxed) + 1 >= ranks as usize || self.is_over() {
            return Ok(());
        }
        let me = self.runtime.rank();
        let chosen: Vec<Rank> = {
            let mut asked = lock(&self.asked);
            let room = at_most.saturating_sub(asked.len());
            // Neighbours in the order of ranks, which begins with those of this node.
            let others = (1..ranks).map(|step| Rank((me.0 + step) % ranks));
            let others = others.filter(|rank| !asked.contains(rank) && !self.runtime.is_lost(*rank));
            let chosen: Vec<Rank> = others.take(room).collect();
            asked.extend(chosen.iter().copied());
            self.asked_count.store(asked.len(), Ordering::Relaxed);
            chosen
        };
        for rank in chosen {
            self.counters.asked.fetch_add(1, Ordering::Relaxed);
            match travel::ask(self, rank) {
                Err(_) if self.runtime.is_lost(rank) => self.has_answered(rank),
                asked => asked?,
            }
        }
        Ok(())
    }

    /// A node is lost, and the job continues without it: it is not asked, it gets nothing, and what it had
    /// has ended. In handlers.
    pub fn lose(&self, node: NodeId) {
        let layout = self.runtime.layout();
        let is_there = |rank: &Rank| layout.node_of(*rank) == node;
        {
            let mut hungry = lock(&self.hungry);
            hungry.retain(|rank| !is_there(rank));
            self.hungry_count.store(hungry.len(), Ordering::SeqCst);
        }
        {
            let mut asked = lock(&self.asked);
            asked.retain(|rank| !is_there(rank));
            self.asked_count.store(asked.len(), Ordering::Relaxed);
        }
        let lost: Vec<Queued> = {
            let mut away = lock(&self.away);
            let lost = away.extract_if(|_, (_, rank)| is_there(rank));
            lost.map(|(_, (work, _))| work).collect()
        };
        lost.into_iter().for_each(|work| work.lost(node));
        // The first rank may have heard of it as all were about to begin, and have begun nothing.
        self.watch.doubt();
    }

    /// A rank has sent a task, or will not: it may be asked again.
    pub fn has_answered(&self, rank: Rank) {
        let mut asked = lock(&self.asked);
        asked.remove(&rank);
        self.asked_count.store(asked.len(), Ordering::Relaxed);
    }

    /// A rank wants a task. In handlers.
    pub fn is_hungry(&self, rank: Rank) {
        let mut hungry = lock(&self.hungry);
        if !hungry.contains(&rank) {
            hungry.push_back(rank);
        }
        self.hungry_count.store(hungry.len(), Ordering::SeqCst);
    }

    /// Returns true if a rank has requested a task, and was not given one.
    pub fn is_anybody_hungry(&self) -> bool {
        self.hungry_count.load(Ordering::SeqCst) > 0
    }

    /// Gives a task to a rank that wants one, if `beyond` wait here beyond those for which a thread of this
    /// rank is idle. Takes an eighth of this rank's time at most.
    pub fn give(&self, beyond: usize) {
        if self.runtime.messages().in_handler() {
            return;
        }
        let Ok(mut gives_after) = self.gives_after.try_lock() else { return };
        let began = Instant::now();
        if gives_after.is_some_and(|after| began < after) {
            return;
        }
        let idle = self.idle.load(Ordering::Relaxed) + self.benched.load(Ordering::Relaxed);
        if self.count() < beyond + idle || self.is_over() {
            *gives_after = Some(began + POLL_AFTER / 4);
            return;
        }
        let Some(rank) = lock(&self.hungry).front().copied() else { return };
        let Some(packed) = self.one_that_leaves(rank) else {
            *gives_after = Some(began + POLL_AFTER);
            return;
        };
        {
            let mut hungry = lock(&self.hungry);
            hungry.retain(|other| *other != rank);
            self.hungry_count.store(hungry.len(), Ordering::SeqCst);
        }
        let (work, packed) = packed;
        self.send_away(work, packed, rank, true);
        let now = Instant::now();
        // It may have been made to wait for its core meanwhile, which costs this rank nothing.
        *gives_after = Some(now + (now - began).min(GIVING_MAX) * GIVING_SHARE);
    }

    fn one_that_leaves(&self, to: Rank) -> Option<(Queued, Packed)> {
        let layout = self.runtime.layout();
        let is_near = layout.node_of(to) == self.runtime.node();
        for _ in 0..PUT_ASIDE_MAX {
            let work = self.steal_oldest().or_else(|| until_known(|| self.shared.steal()))?;
            let leaves = match work.leaves() {
                Leaves::Anywhere => true,
                Leaves::Node => is_near,
                Leaves::No => false,
            };
            if !leaves {
                if work.waits() {
                    self.aside.push(work);
                }
                continue;
            }
            if let Some(packed) = work.pack() {
                return Some((work, packed));
            }
        }
        None
    }

    /// Sends a task that was begun by its packing; `is_answer`: to a rank that has asked for one.
    pub fn send_away(&self, work: Queued, mut packed: Packed, to: Rank, is_answer: bool) {
        let leaves = work.leaves();
        let own = match packed.origin {
            Some(_) => None,
            None => {
                let is_room = || lock(&self.away).len() < AWAY_MAX;
                if !is_answer && !is_room() && !self.runtime.messages().in_handler() {
                    // An error is the endpoint's, and found by the task's waiter.
                    let _ = self.wait(is_room, is_room);
                }
                let number = self.next.fetch_add(1, Ordering::Relaxed);
                packed.origin = Some((self.runtime.rank(), number));
                lock(&self.away).insert(number, (work, to));
                Some(number)
            }
        };
        packed.hops = packed.hops.saturating_add(1);
        // The spawning rank must know the task's rank, if that may be lost.
        let hops_max = if self.runtime.settings().run.survive { 1 } else { HOPS_MAX };
        let leaves = if packed.hops < hops_max { leaves } else { Leaves::No };
        self.counters.left.fetch_add(1, Ordering::Relaxed);
        // Other ranks may have to find the objects in its arguments.
        let sent = pass_on(packed.gives).and_then(|()| travel::send(self, &packed, to, leaves, is_answer));
        if let Err(why) = sent
            && let Some(work) = own.and_then(|number| self.back(number))
        {
            match self.runtime.is_lost(to) {
                true => work.lost(self.runtime.layout().node_of(to)),
                false => work.failed(why.into()),
            }
        }
    }

    /// A rank has sent a task; false: it has sent more than it may have elsewhere, and others may have
    /// forwarded some.
    pub fn has_come(&self, from: Rank) -> bool {
        self.counters.came.fetch_add(1, Ordering::Relaxed);
        let mut visitors = lock(&self.visitors);
        let count = visitors.entry(from).or_default();
        *count += 1;
        *count <= 2 * AWAY_MAX
    }

    /// Notes that a task sent by a rank has begun.
    pub fn has_begun(&self, from: Rank) {
        if let Some(count) = lock(&self.visitors).get_mut(&from) {
            *count = count.saturating_sub(1);
        }
    }

    /// A number that goes round.
    pub fn turn(&self) -> u32 {
        self.next.fetch_add(1, Ordering::Relaxed) as u32
    }

    /// The rank that has a task of this one passes something on. In handlers.
    pub fn gives(&self, number: u64) {
        if let Some((work, _)) = lock(&self.away).get(&number) {
            work.gives();
        }
    }

    /// A task of this rank that was elsewhere.
    pub fn back(&self, number: u64) -> Option<Queued> {
        lock(&self.away).remove(&number).map(|(work, _)| work)
    }
}

impl Benched {
    fn call(&self) {
        self.is_called.store(true, Ordering::Release);
        self.thread.unpark();
    }
}
