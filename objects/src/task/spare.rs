//! Compensation workers: each replaces a worker that waits for something else than a task, or for a task and
//! must not run others ([`super::alone`]), so that the task it waits for can still run. So does one for a
//! worker that polls for the end of a task, since the program may park its thread meanwhile.

use super::pool::{IS_WORKER, Member, pool};
use crate::heap::ObjectError;
use crossbeam_deque::Worker;
use std::cell::RefCell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// Time that a waiting thread needs no other worker in its place: that of some answers.
pub(crate) const BRIEFLY: Duration = Duration::from_millis(1);

/// The workers of this rank.
struct Workers {
    wanted: usize,
    stack_bytes: usize,
    /// Those that wait now.
    waiting: usize,
    spare: Vec<JoinHandle<Result<(), ObjectError>>>,
}

static WORKERS: Mutex<Workers> =
    Mutex::new(Workers { wanted: 0, stack_bytes: 0, waiting: 0, spare: Vec::new() });

fn workers() -> MutexGuard<'static, Workers> {
    // Changed in steps that cannot panic.
    WORKERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notes the number of workers and their stack size, before they begin.
pub(super) fn begin(wanted: usize, stack_bytes: usize) {
    let mut workers = workers();
    (workers.wanted, workers.stack_bytes) = (wanted, stack_bytes);
}

/// Returns true if tasks are run.
pub(crate) fn are_run() -> bool {
    workers().wanted > 0
}

/// Called when the workers have ended.
pub(super) fn end() -> Result<(), ObjectError> {
    workers().wanted = 0;
    let mut all = Ok(());
    loop {
        let Some(spare) = workers().spare.pop() else { return all };
        let ended = spare.join().unwrap_or_else(|panic| {
            super::drop_payload(panic);
            Err(ObjectError::Usage("a worker has panicked".into()))
        });
        all = all.and(ended);
    }
}

/// A worker that does not run tasks: until this is dropped, another worker takes its place.
#[derive(Debug)]
pub(super) struct Blocked;

impl Blocked {
    fn begin() -> Self {
        let mut workers = workers();
        workers.waiting += 1;
        if workers.spare.len() < workers.waiting
            && workers.wanted > 0
            && let Ok(pool) = pool()
        {
            let thread = Builder::new().name("objects".into()).stack_size(workers.stack_bytes);
            // Without one, what can run on the other workers still does.
            workers.spare.extend(thread.spawn(move || {
                let queue = Worker::new_lifo();
                pool.add(&queue);
                let _member = Member::new(pool, queue, true);
                pool.work()
            }));
        }
        Self
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        workers().waiting -= 1;
    }
}

/// Waits; if this thread is a worker, there is another one meanwhile.
pub(crate) fn while_blocked<R>(wait: impl FnOnce() -> R) -> R {
    let _blocked = IS_WORKER.get().then(Blocked::begin);
    wait()
}

thread_local! {
    /// Shared by the handles that this thread polls.
    static POLLS: RefCell<Weak<Blocked>> = const { RefCell::new(Weak::new()) };
}

/// Notes that this thread polls for the end of a task, and may be parked by the program until then: if it is a worker, another one takes its place
/// as long as a result of this function exists.
pub(super) fn poll_in_place() -> Option<Arc<Blocked>> {
    if !IS_WORKER.get() {
        return None;
    }
    POLLS.with_borrow_mut(|polls| {
        let blocked = polls.upgrade().unwrap_or_else(|| Arc::new(Blocked::begin()));
        *polls = Arc::downgrade(&blocked);
        Some(blocked)
    })
}
