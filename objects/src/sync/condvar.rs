//! Conditions that are waited for without a lock, and found with it.

use super::DAtomicU64;
use super::mutex::{At, Guard, LockError};
use super::wait::{self, Meets};
use crate::heap::{
    ObjectError, cannot_be_had, cannot_go_on, has_links, job, jobs_before, lost_node, pass_on, place_of,
};
use crate::service::Bytes;
use crate::service::locks::{Answer, LockService, Request};
use crate::task::meet;
use crate::{Portable, Shareable};
use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use vgas::NodeId;

/// A condition variable for the value of a [`DMutex`](super::DMutex): as [`std::sync::Condvar`]. 16 bytes,
/// shareable.
///
/// Waiting gives the lock back and takes it again, with its value: a message, and its answer when it is
/// notified and it is its turn. A waiter is registered at the lock's home before the lock can be granted to
/// another thread: no notification is lost. To notify is a message. It is used with locks of one node, best
/// with those that lie beside it: elsewhere, each use is a message and its answer more.
///
/// ```no_run
/// # use vgas_objects::sync::{DCondvar, DMutex, LockError};
/// fn await_turn(turn: &(DMutex<u64>, DCondvar), mine: u64) -> Result<(), LockError> {
///     let mut guard = turn.1.wait_while(turn.0.lock()?, |turn| *turn != mine)?;
///     *guard += 1;
///     turn.1.notify_all();
///     Ok(())
/// }
/// ```
///
/// A thread cannot wait without the lock, or read the value meanwhile:
///
/// ```compile_fail,E0382
/// # use vgas_objects::sync::{DCondvar, DMutex};
/// fn read(lock: &DMutex<u64>, condition: &DCondvar) -> u64 {
///     let guard = lock.lock().unwrap();
///     let _again = condition.wait(guard).unwrap();
///     *guard
/// }
/// ```
#[derive(Debug, Portable, Shareable)]
pub struct DCondvar {
    /// The node of its locks, plus 1, once there is one (low 32 bits), and the number of earlier jobs on this heap (high 32 bits): a later job may
    /// have other nodes. Its address is the condition's name.
    node: DAtomicU64,
    meets: Meets,
}

/// Encodes the node of a condition's locks.
fn of_this_job(node: NodeId) -> Result<u64, ObjectError> {
    Ok(u64::from(jobs_before()?) << 32 | (u64::from(node.0) + 1))
}

/// Decodes the node of a condition's locks; none if an earlier job has noted it.
fn node_of(noted: u64) -> Result<Option<NodeId>, ObjectError> {
    let is_of_this_job = noted >> 32 == u64::from(jobs_before()?);
    Ok((noted as u32).checked_sub(1).filter(|_| is_of_this_job).map(NodeId))
}

/// True if the wait timed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Returns true if it timed out: no notification came before.
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

impl Default for DCondvar {
    #[track_caller]
    fn default() -> Self {
        Self::new()
    }
}

impl DCondvar {
    /// A condition on this rank.
    ///
    /// # Panics
    /// As [`DBox::new`](crate::DBox::new).
    #[track_caller]
    pub fn new() -> Self {
        meet();
        Self { node: DAtomicU64::new(0), meets: Meets }
    }

    /// Gives a lock back until the condition is notified, and takes it again then. It may also be notified
    /// for others: look again.
    ///
    /// # Errors
    /// As [`DMutex::lock`](super::DMutex::lock); with locks of several nodes; and if a node is lost, in a job
    /// that continues without it: the notifier may have been there. The lock is not had then.
    #[track_caller]
    pub fn wait<'m, T: Portable>(&self, guard: Guard<'m, T>) -> Result<Guard<'m, T>, LockError> {
        Ok(self.wait_until(guard, None)?.0)
    }

    /// Waits as long as something is so of the value.
    ///
    /// # Errors
    /// As [`DCondvar::wait`].
    #[track_caller]
    pub fn wait_while<'m, T: Portable>(
        &self,
        mut guard: Guard<'m, T>,
        mut is_so: impl FnMut(&mut T) -> bool,
    ) -> Result<Guard<'m, T>, LockError> {
        while is_so(&mut guard) {
            guard = self.wait(guard)?;
        }
        Ok(guard)
    }

    /// [`DCondvar::wait`] for at most `timeout`, and some messages' time.
    ///
    /// # Errors
    /// As [`DCondvar::wait`].
    #[track_caller]
    pub fn wait_timeout<'m, T: Portable>(
        &self,
        guard: Guard<'m, T>,
        timeout: Duration,
    ) -> Result<(Guard<'m, T>, WaitTimeoutResult), LockError> {
        self.wait_until(guard, Instant::now().checked_add(timeout))
    }

    #[track_caller]
    fn wait_until<'m, T: Portable>(
        &self,
        guard: Guard<'m, T>,
        deadline: Option<Instant>,
    ) -> Result<(Guard<'m, T>, WaitTimeoutResult), LockError> {
        let here = Location::caller();
        static TOKENS: AtomicU64 = AtomicU64::new(1);
        // While it has the lock: the next notifier knows the place.
        self.bind(guard.at())?;
        let gives = has_links(&*guard);
        let (At { owner, offset, node }, changed) = guard.leave();
        // As where a lock is given back.
        if let Err(why) = pass_on(gives) {
            cannot_go_on(&format!("what a lock leads to cannot be replicated: {why}"));
        }
        let (condition, token) = (self.node.word().address(), TOKENS.fetch_add(1, Ordering::Relaxed));
        let request = Request::Wait { owner, offset, changed: Bytes(changed), condition, token };
        let mut call = job()?.start_call::<LockService>(node, &request)?;
        let answer = match wait::answered(&mut call, deadline)? {
            Some(answer) => answer,
            None => {
                wait::call::<LockService>(node, &Request::CallBack { condition, token })?;
                wait::answer(call)?
            }
        };
        let (Bytes(found), is_late) = match answer {
            // No other waiter is told for it, and it has no lock.
            Answer::Lost(lost) => {
                let (at, error) = (place_of(self.node.word())?, lost_node(NodeId(lost)));
                return Err(cannot_be_had::<Self>(error, at, here).into());
            }
            Answer::Granted(found) => (found, false),
            Answer::Late(found) => (found, true),
            _ => return Err(LockError::busy()),
        };
        let guard = Guard::<T>::of(At { owner, offset, node }, &found).ok_or_else(LockError::busy)?;
        Ok((guard.unless_poisoned()?, WaitTimeoutResult(is_late)))
    }

    /// Sets the node of its locks.
    fn bind(&self, at: At) -> Result<(), ObjectError> {
        let node = of_this_job(at.node)?;
        let mut seen = 0;
        loop {
            match self.node.compare_exchange(seen, node)? {
                Err(other) if other != node => match node_of(other)? {
                    // Stale: of an earlier job.
                    None => seen = other,
                    Some(other) => {
                        return Err(ObjectError::Usage(format!(
                            "a condition is waited for with locks of {other} and of {}",
                            at.node
                        )));
                    }
                },
                _ => return Ok(()),
            }
        }
    }

    #[track_caller]
    fn notify(&self, all: bool) {
        let notified = (|| {
            if let Some(node) = node_of(self.node.load()?)? {
                let condition = self.node.word().address();
                job()?.tell::<LockService>(node, &Request::Notify { condition, all })?;
            }
            Ok::<_, ObjectError>(())
        })();
        if let Err(error) = notified {
            panic!("{error}");
        }
    }

    /// Wakes one waiter, if any: the one that has waited longest.
    ///
    /// # Panics
    /// If the job has failed.
    #[track_caller]
    pub fn notify_one(&self) {
        self.notify(false);
    }

    /// Wakes all waiters, one after the other.
    ///
    /// # Panics
    /// If the job has failed.
    #[track_caller]
    pub fn notify_all(&self) {
        self.notify(true);
    }
}
