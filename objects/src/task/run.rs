//! Workers: threads of each rank that run tasks, from the beginning of [`Objects::run`] to its end.

use super::TaskError;
use super::entry::{code_of, table};
use super::lend::MISREAD;
use crate::heap::{ObjectError, Objects, job};
use crate::service::Bytes;
use crate::service::tasks::{Answer, Request, TaskService, Work};
use rustc_hash::FxHasher;
use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use vgas::service::PendingCall;
use vgas::{Rank, Runtime};

/// How tasks are run. The same on all ranks.
#[derive(Clone, Copy, Debug)]
pub struct RunOptions {
    /// Workers of each rank, at least 1: threads that run tasks, beside the one that runs `main` on the first rank. One that waits for
    /// a task runs others meanwhile.
    pub workers: usize,
    /// Bytes of a worker's stack, which takes memory as it is used. Who waits for a task runs others on the same stack.
    pub stack_bytes: usize,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self { workers: 1, stack_bytes: 64 << 20 }
    }
}

thread_local! {
    static IS_WORKER: Cell<bool> = const { Cell::new(false) };
}

impl Objects {
    /// Runs a program: `main` on the first rank, and on all ranks the tasks that it and its tasks spawn, until `main` has returned.
    /// Collective; yields what `main` has returned, on the first rank.
    ///
    /// Nothing moves a task that has begun: a stack that goes on in another process, or only in another thread, is undefined behaviour in
    /// Rust, whose compiler keeps addresses of thread-local variables, and whose references mean memory of one process. Tasks that
    /// have not begun go where there is nothing to do.
    ///
    /// # Errors
    /// When the ranks do not run the same program, a worker cannot be started, or a peer is lost.
    ///
    /// # Panics
    /// On the first rank, when `main` does; the tasks that it has not waited for have ended then.
    pub fn run<R>(&self, options: &RunOptions, main: impl FnOnce() -> R) -> Result<Option<R>, ObjectError> {
        let runtime = self.job();
        let program = program().to_le_bytes();
        let all = runtime.barrier_exchange(&program)?;
        if let Some(other) = all.iter().position(|said| *said != program) {
            let (me, other) = (self.rank(), Rank(other as u32));
            return Err(ObjectError::Usage(format!(
                "{me} and {other} do not run the same program: tasks would not be the same"
            )));
        }
        if self.is_first_of_node() {
            runtime.call::<TaskService>(runtime.node(), &Request::Begin)?;
        }
        runtime.barrier()?;
        let result = std::thread::scope(|scope| {
            let mut workers = Vec::new();
            for _ in 0..options.workers.max(1) {
                let worker =
                    std::thread::Builder::new().name("objects".into()).stack_size(options.stack_bytes);
                match worker.spawn_scoped(scope, || work(runtime)) {
                    Ok(worker) => workers.push(worker),
                    Err(why) => {
                        // The others would wait for ever.
                        let _ = runtime.abort(&format!("a worker cannot be started: {why}"), 1);
                        return Err(ObjectError::Usage(format!("a worker cannot be started: {why}")));
                    }
                }
            }
            let result = (self.rank() == Rank(0)).then(|| {
                let stop = Stop(runtime);
                let result = main();
                drop(stop);
                result
            });
            workers.into_iter().try_for_each(|worker| match worker.join() {
                Ok(ended) => ended,
                Err(panic) => std::panic::resume_unwind(panic),
            })?;
            Ok(result)
        })?;
        runtime.barrier()?;
        Ok(result)
    }

    fn is_first_of_node(&self) -> bool {
        let runtime = self.job();
        runtime.layout().ranks_of(runtime.node()).start == self.rank().0
    }
}

/// Ends the workers of all nodes, also when `main` panics.
struct Stop<'r>(&'r Runtime);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        for node in 0..self.0.nodes() {
            if let Err(error) = self.0.call::<TaskService>(vgas::NodeId(node), &Request::Stop) {
                // Somebody is lost, and with it the job.
                vgas::say::line(format_args!("vgas: tasks cannot be ended: {error}"));
            }
        }
    }
}

/// What tells programs apart: where their tasks are, and how large they are.
fn program() -> u64 {
    let mut hasher = FxHasher::default();
    table().hash(&mut hasher);
    std::fs::metadata("/proc/self/exe").map_or(0, |exe| exe.len()).hash(&mut hasher);
    hasher.finish()
}

/// A worker: runs tasks until it is told to end.
fn work(runtime: &'static Runtime) -> Result<(), ObjectError> {
    IS_WORKER.set(true);
    loop {
        match runtime.call::<TaskService>(runtime.node(), &Request::Next { token: 0 })? {
            Answer::Task { id, work } => execute(runtime, id, &work)?,
            Answer::Stopped => return Ok(()),
            _ => {}
        }
    }
}

fn execute(runtime: &Runtime, id: u64, work: &Work) -> Result<(), ObjectError> {
    let outcome = code_of(work.entry).and_then(|code| code(&work.arguments.0));
    let outcome = outcome.unwrap_or_else(|| vec![MISREAD]);
    // Who ran it: errors say so.
    let outcome = [&runtime.rank().0.to_le_bytes(), &outcome[..]].concat();
    Ok(runtime.tell::<TaskService>(runtime.node(), &Request::Done { id, outcome: Bytes(outcome) })?)
}

/// Waits until a call is answered; a worker runs other tasks meanwhile.
pub(super) fn wait(call: &mut PendingCall<'static, Answer>) -> Result<Answer, TaskError> {
    let runtime = job()?;
    if !IS_WORKER.get() {
        return Ok(until(runtime, &mut [call])?.1);
    }
    static TOKENS: AtomicU64 = AtomicU64::new(1);
    loop {
        let token = TOKENS.fetch_add(1, Ordering::Relaxed);
        let mut next = runtime.start_call::<TaskService>(runtime.node(), &Request::Next { token })?;
        let (which, answer) = until(runtime, &mut [call, &mut next])?;
        if which == 1 {
            match answer {
                Answer::Task { id, work } => execute(runtime, id, &work)?,
                // Nothing else begins.
                _ => return Ok(until(runtime, &mut [call])?.1),
            }
            continue;
        }
        // What was on its way to this worker is run by nobody else.
        runtime.call::<TaskService>(runtime.node(), &Request::Cancel { token })?;
        if let (_, Answer::Task { id, work }) = until(runtime, &mut [&mut next])? {
            execute(runtime, id, &work)?;
        }
        return Ok(answer);
    }
}

/// Waits for the first of some calls that is answered.
fn until(
    runtime: &Runtime,
    calls: &mut [&mut PendingCall<'static, Answer>],
) -> Result<(usize, Answer), vgas::Error> {
    let mut found = Ok(None);
    runtime.wait_until(|| {
        found = calls
            .iter_mut()
            .enumerate()
            .find_map(|(which, call)| match call.test() {
                Ok(answer) => answer.map(|answer| Ok((which, answer))),
                Err(error) => Some(Err(error)),
            })
            .transpose();
        !matches!(found, Ok(None))
    })?;
    found?.ok_or_else(|| vgas::Error::Usage("a call was waited for that nobody has made".into()))
}
