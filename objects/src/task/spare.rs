//! Workers in the place of those that wait for something else than a task, or for a task and must not run others ([`super::alone`]): what they wait for may be done by a task that no other
//! worker would begin.

use super::pool::{IS_WORKER, Member, pool};
use super::run::RunOptions;
use crate::heap::ObjectError;
use crossbeam_deque::Worker;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// For so long, who waits needs no other worker in its place: some answers' time.
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

/// Before the workers begin.
pub(super) fn begin(options: &RunOptions) {
    let mut workers = workers();
    (workers.wanted, workers.stack_bytes) = (options.workers.max(1), options.stack_bytes);
}

/// Whether tasks are run.
pub(crate) fn are_run() -> bool {
    workers().wanted > 0
}

/// When the workers have ended.
pub(super) fn end() -> Result<(), ObjectError> {
    workers().wanted = 0;
    let mut all = Ok(());
    loop {
        let Some(spare) = workers().spare.pop() else { return all };
        let panicked = || Err(ObjectError::Usage("a worker has panicked".into()));
        all = all.and(spare.join().unwrap_or_else(|_| panicked()));
    }
}

/// Waits; if this thread is a worker, there is another one meanwhile.
pub(crate) fn while_blocked<R>(wait: impl FnOnce() -> R) -> R {
    if !IS_WORKER.get() {
        return wait();
    }
    struct Waits;
    impl Drop for Waits {
        fn drop(&mut self) {
            workers().waiting -= 1;
        }
    }
    let _waits = {
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
        Waits
    };
    wait()
}
