//! Work that goes to a lock's value, instead of the value to the work.

use super::mutex::{At, DMutex, Guard, LockError};
use crate::Portable;
use crate::heap::{job, lost_node};
use crate::planted::{Fault, is_planted};
use crate::task::{Task, TaskError, number_of, run_here, spawn_to, task_of};
use std::panic::Location;
use vgas::Rank;

/// Closure's arguments on their way to the lock.
#[derive(Portable)]
struct Work<A: Portable> {
    owner: u32,
    node: u32,
    offset: u64,
    /// The task's.
    number: u32,
    argument: A,
}

/// Result of the closure there.
#[derive(Portable)]
enum Ended<R: Portable> {
    Returned(R),
    Poisoned,
    /// The previous holder was on this node.
    Left(u32),
    /// The same, and objects were passed on.
    Given(u32),
    /// The home has an error, and returns it when asked directly.
    Failed,
}

impl<T: Portable> DMutex<T> {
    /// Locks the value, has a task change it, and gives it back, on the value's rank: a message and its
    /// answer, while [`DMutex::lock`] is three messages with the value in two of them. On this node, and if
    /// no tasks run ([`Objects::run`](crate::Objects::run)), this thread does it.
    ///
    /// ```no_run
    /// # use vgas_objects::{DVec, sync::{DMutex, LockError}, task};
    /// fn add(rows: &DMutex<DVec<u64>>, number: u64) -> Result<u64, LockError> {
    ///     rows.with(number, task!(|rows: &mut DVec<u64>, number: u64| -> u64 {
    ///         rows.push(number);
    ///         rows.len() as u64
    ///     }))
    /// }
    /// ```
    ///
    /// The value is the task's until it returns, however long the lock lives, and it brings nothing along but its argument:
    ///
    /// ```compile_fail
    /// # use vgas_objects::{sync::DMutex, task};
    /// fn keep(count: &'static DMutex<u64>) {
    ///     let _ = count.with((), task!(|count: &'static mut u64, _n: ()| -> () { *count += 1; }));
    /// }
    /// ```
    /// ```compile_fail,E0308
    /// # use vgas_objects::{sync::DMutex, task};
    /// fn add(count: &DMutex<u64>, by: u64) {
    ///     let _ = count.with((), task!(|count: &mut u64, _n: ()| -> () { *count += by; }));
    /// }
    /// ```
    /// ```compile_fail,E0277
    /// # use vgas_objects::{sync::DMutex, task};
    /// fn add(count: &DMutex<u64>, by: String) {
    ///     let _ = count.with(by, task!(|count: &mut u64, by: String| -> () { *count += by.len() as u64; }));
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`DMutex::lock`]; and [`LockError::Panicked`] when the task has: the lock is poisoned then.
    #[track_caller]
    pub fn with<'m, A: Portable, R: Portable>(
        &'m self,
        argument: A,
        change: Task<(&'m mut T, A), R>,
    ) -> Result<R, LockError> {
        let here = Location::caller();
        let (at, me) = (self.at()?, job()?.node());
        let number = number_of(change)
            .ok_or_else(|| crate::ObjectError::Usage("the task is not of this program".into()))?;
        if at.node == me || !crate::task::are_run() {
            return change_here::<T, A, R>(at, number, argument);
        }
        let At { owner, offset, node } = at;
        let work = Work { owner, node: node.0, offset, number, argument };
        let there = |((), work): ((), Work<A>)| -> Ended<R> {
            let Work { owner, node, offset, number, argument } = work;
            let at = At { owner, offset, node: vgas::NodeId(node) };
            match change_here::<T, A, R>(at, number, argument) {
                Ok(result) => Ended::Returned(result),
                Err(LockError::Poisoned(_)) => Ended::Poisoned,
                Err(LockError::Left { node, .. }) => Ended::Left(node.0),
                Err(LockError::Given { node, .. }) => Ended::Given(node.0),
                Err(LockError::Panicked { message, .. }) => std::panic::resume_unwind(Box::new(message)),
                Err(LockError::Objects(_)) => Ended::Failed,
            }
        };
        crate::a_task_gets_what_it_uses_as_arguments(there);
        // SAFETY: it coerces to a function pointer.
        let there = unsafe { task_of(there) };
        match spawn_to(Rank(owner), there, work).join() {
            Ok(Ended::Returned(result)) => Ok(result),
            Ok(Ended::Poisoned) => Err(LockError::Poisoned(offset)),
            Ok(Ended::Left(node)) => Err(LockError::Left { at: offset, node: vgas::NodeId(node) }),
            Ok(Ended::Given(node)) => Err(LockError::Given { at: offset, node: vgas::NodeId(node) }),
            Ok(Ended::Failed) => Err(LockError::busy()),
            Err(TaskError::Panicked { rank, message }) => Err(LockError::Panicked { rank, message }),
            Err(TaskError::Lost(lost)) => Err(at.cannot_be_had::<T>(lost_node(lost), here).into()),
            Err(TaskError::Objects(error)) => Err(at.cannot_be_had::<T>(*error, here).into()),
            Err(error) => Err(crate::ObjectError::Usage(error.to_string()).into()),
        }
    }
}

#[track_caller]
fn change_here<T: Portable, A: Portable, R: Portable>(
    at: At,
    number: u32,
    argument: A,
) -> Result<R, LockError> {
    let found = at.lock::<T>(false, false)?.ok_or_else(LockError::busy)?;
    let guard = Guard::<T>::of(at, &found).ok_or_else(LockError::busy)?;
    let mut guard = guard.unless_poisoned()?;
    match run_here::<(&mut T, A), R>(number, &mut *guard, argument) {
        Ok(result) => Ok(result),
        Err(error) => {
            if !is_planted(Fault::LostPoison) {
                guard.poison();
            }
            Err(match error {
                TaskError::Panicked { rank, message } => LockError::Panicked { rank, message },
                error => crate::ObjectError::Usage(error.to_string()).into(),
            })
        }
    }
}
