//! Workers: threads of each rank that run tasks, from the beginning of [`Objects::run`] to its end.

use super::pool::{Member, Pool, is_within_run, pool};
use super::{spare, travel};
use crate::heap::{ObjectError, Objects, complain, goes_on};
use crossbeam_deque::Worker;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// The watch's stack at least: it takes in messages.
const WATCH_STACK_BYTES: usize = 512 << 10;

/// Options of running tasks. The same on all ranks.
#[derive(Clone, Copy, Debug)]
pub struct RunOptions {
    /// Workers of each rank, at least 1: threads that run tasks, beside the one that runs `main` on the first
    /// rank. A thread that waits for a task runs others meanwhile, `main` as well; a worker that waits for
    /// something else ([`crate::sync`]) is replaced by another.
    pub workers: usize,
    /// Bytes of a worker's stack, which takes memory as it is used. A thread that waits for a task runs
    /// others on the same stack.
    pub stack_bytes: usize,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self { workers: 1, stack_bytes: 64 << 20 }
    }
}

impl Objects {
    /// Runs a program: `main` on the first rank, and on all ranks the tasks that it and its tasks spawn, until `main` has returned.
    /// Collective; yields what `main` has returned, on the first rank.
    ///
    /// A task that has begun does not move ([why](crate::manual::tasks#running-tasks-do-not-migrate));
    /// waiting ones go to idle ranks. Handlers of active messages may run in any thread of a rank meanwhile,
    /// even while its workers compute.
    ///
    /// ```no_run
    /// use vgas::{Rank, Runtime};
    /// use vgas_objects::{HeapOptions, Objects, RunOptions, rank, spawn_to, task};
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let objects = Objects::attach(&Runtime::init()?, &HeapOptions::default())?;
    ///     let options = RunOptions { workers: 2, ..RunOptions::default() };
    ///     let last = Rank(objects.ranks() - 1);
    ///     let ran = objects.run(&options, || {
    ///         spawn_to(last, task!(|_n: ()| -> u32 { rank().map_or(0, |rank| rank.0) }), ()).join()
    ///     })?;
    ///     // Only the first rank has run it.
    ///     if let Some(ran) = ran {
    ///         assert_eq!(ran?, last.0);
    ///     }
    ///     Ok(objects.finalize()?)
    /// }
    /// ```
    ///
    /// # Errors
    /// Within another run; when a worker cannot be started, or a peer is lost. If a node is lost as ranks
    /// begin, in a job that continues without it, some ranks may have begun: the run ends there with nothing
    /// done, and they return none. With the first rank, `main` is lost: the job ends, even if it would
    /// continue without another.
    ///
    /// # Panics
    /// On the first rank, when `main` does, with its payload. All ranks have ended the run then, with the
    /// tasks that `main` has not waited for: a program that catches the panic continues as after any run.
    pub fn run<R>(&self, options: &RunOptions, main: impl FnOnce() -> R) -> Result<Option<R>, ObjectError> {
        let runtime = self.job();
        if is_within_run() {
            return Err(ObjectError::Usage(
                "`Objects::run` is called within a run: it has one `main` at a time".into(),
            ));
        }
        let heard = |why: vgas::Error| {
            travel::is_main_lost(runtime);
            ObjectError::from(why)
        };
        // All have ended the run before.
        runtime.barrier().map_err(heard)?;
        let pool = pool()?;
        let workers = options.workers.max(1);
        let is_first = self.rank() == travel::FIRST;
        let mut queues: Vec<_> = (0..workers + usize::from(is_first)).map(|_| Worker::new_lifo()).collect();
        pool.begin(&queues);
        spare::begin(workers, options.stack_bytes);
        // From here on, all understand what tasks say to each other.
        if let Err(why) = runtime.barrier() {
            // If a node is lost meanwhile, others may have met, and begin: a rank that sends a task here is
            // told that it is not run, and ranks that wait for tasks of `main` are told that there are none.
            // Closed before they are told: a rank that asks meanwhile is told that the run does not go on.
            pool.stop();
            pool.close();
            if is_first {
                let _ = travel::stop(pool);
            }
            pool.give_room();
            let _ = spare::end();
            pool.end();
            return Err(heard(why));
        }
        let result = std::thread::scope(|scope| {
            let start = |name: &str, stack_bytes| {
                std::thread::Builder::new().name(name.into()).stack_size(stack_bytes)
            };
            let refused = |why: std::io::Error| {
                // The others would wait for ever.
                let _ = runtime.abort(&format!("a worker cannot be started: {why}"), 1);
                pool.stop();
                ObjectError::Usage(format!("a worker cannot be started: {why}"))
            };
            // Also where a worker cannot be started: the scope waits for the watch.
            let close = Close(pool);
            // It drops values for others, as workers do.
            let watch = start("objects-watch", options.stack_bytes.max(WATCH_STACK_BYTES));
            watch.spawn_scoped(scope, || pool.look_after()).map_err(refused)?;
            let mut all = Vec::new();
            for queue in queues.drain(..workers) {
                let worker = move || {
                    let _member = Member::new(pool, queue, true);
                    pool.work()
                };
                let started = start("objects", options.stack_bytes).spawn_scoped(scope, worker);
                all.push(started.map_err(refused)?);
            }
            let result = queues.pop().map(|queue| {
                let _member = Member::new(pool, queue, false);
                // A panic goes on when all ranks have ended the run: they meet at its end.
                let result = catch_unwind(AssertUnwindSafe(main));
                stop(pool);
                result
            });
            let mut panicked = None;
            let mut ended = Ok(());
            for worker in all {
                match worker.join() {
                    Ok(worked) => ended = ended.and(worked),
                    Err(panic) => panicked = Some(panic),
                }
            }
            let ended = ended.and(spare::end());
            pool.end();
            // Requests that come before all are here are handled by the watch.
            let all_are_here = match runtime.barrier() {
                // They do not meet any more: a rank that is asked for something after this says so (`travel.rs`).
                Err(_) if goes_on() && !runtime.is_lost(travel::FIRST) => Ok(()),
                met => met.map_err(heard),
            };
            drop(close);
            // Requests that have come since the watch looked last.
            pool.refuse_all();
            pool.give_room();
            let result = match (result.transpose(), panicked) {
                (Err(panic), _) | (Ok(_), Some(panic)) => resume_unwind(panic),
                (Ok(result), None) => result,
            };
            ended?;
            all_are_here?;
            Ok::<_, ObjectError>(result)
        })?;
        Ok(result)
    }
}

/// Ends the workers of all ranks.
fn stop(pool: &Pool) {
    if let Err(error) = travel::stop(pool) {
        // A rank is lost, and with it the job.
        complain(&format!("tasks cannot be ended: {error}"));
    }
}

/// Ends the watch.
struct Close(&'static Pool);

impl Drop for Close {
    fn drop(&mut self) {
        self.0.stop();
        // The waiters of their tasks learn of it; other errors have been reported.
        let _ = spare::end();
        self.0.close();
    }
}
