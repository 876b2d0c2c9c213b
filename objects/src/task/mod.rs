//! Tasks: functions that run where their objects are, or wherever nothing else is done (DRust §4.2).
//!
//! # Rules for the unsafe code in this folder
//!
//! 1. *Code.* A number runs the entry of this program's table, made for these types (`entry.rs`). All ranks run the same
//!    program: [`Objects::attach`] compares it.
//! 2. *Bytes.* Arguments and results that travel are bytes of [`Portable`] types, or of loans, and become
//!    values once on arrival, of exactly as many bytes. Extensions of their links are 0 on arrival.
//! 3. *Lent.* Loans are borrowed until the task has ended, and the lender learns of that before it continues:
//!    a scope waits for all of its tasks, even when it unwinds, and ends the process if it cannot hear of
//!    them. So a queue may have it, and another thread use it, as if it lived for ever; entries left in
//!    queues of a task that has ended have no part of it.

mod alone;
mod call;
mod entry;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod here;
mod job;
mod lend;
mod placed;
mod pool;
mod program;
mod room;
mod run;
mod scope;
mod sleeper;
mod spare;
mod travel;
mod watch;

pub(crate) use alone::{Holds, meet};
pub use call::Call;
pub use entry::{Task, a_task_gets_what_it_uses_as_arguments, task_of};
pub(crate) use here::{number_of, run_here};
pub(crate) use lend::drop_payload;
pub use lend::{Arguments, Lent};
pub(crate) use pool::is_within_run;
pub use pool::{TaskCounts, task_counts};
pub(crate) use program::program;
pub(crate) use room::ask_for_room;
pub use run::RunOptions;
pub use scope::{JoinHandle, Scope, scope, spawn, spawn_to};
pub(crate) use spare::{BRIEFLY, are_run, while_blocked};
pub(crate) use travel::{register, tell_lender};

/// Support of [`call!`](crate::call).
#[doc(hidden)]
pub mod called {
    pub use super::call::{
        Argument, ByReference, ByValue, Is, IsGiven, IsLent, OwnedCall, call_of, called_with,
    };
    pub use super::scope::LendsNothing;
}

#[cfg(doc)]
use crate::Objects;
use crate::Portable;
use vgas::{NodeId, Rank};

/// Before its end is seen, a task's sends have arrived, and its drops were told.
fn settle() -> Result<(), crate::ObjectError> {
    crate::sync::settle()?;
    crate::heap::tell_drops()
}

/// Has the watch drop values for others, or answer them; a rank that is idle drops at once. Also in handlers.
pub(crate) fn see_others() {
    if let Ok(pool) = pool::pool() {
        // Pairs with the watch's, before it sleeps without a clock.
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        pool.watch.see();
    }
}

/// Rank on which a task is to begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TaskPlace {
    /// On the rank that has most of the objects of the boxes and rows among its arguments, in bytes, each
    /// object counting some thousand more for the message that brings it; on this rank, if there are none.
    /// Objects that these lead to in turn do not count: to lend a box of a large row, name the place,
    /// `spawn_to(&row, …)`. On another one if that has nothing to do and these have.
    #[default]
    Anywhere,
    /// On this rank.
    Rank(Rank),
    /// On any rank of this node.
    Node(NodeId),
}

impl From<Rank> for TaskPlace {
    fn from(rank: Rank) -> Self {
        Self::Rank(rank)
    }
}

impl From<NodeId> for TaskPlace {
    fn from(node: NodeId) -> Self {
        Self::Node(node)
    }
}

impl<T: Portable> From<&T> for TaskPlace {
    /// The rank that has most bytes of the objects that a value has: a box, a row, a text, a map, a counted
    /// value, a lock, or any type with some of these in it. Anywhere for a value without objects, and if
    /// there is no heap.
    fn from(value: &T) -> Self {
        let rank = lend::rank_of_most(|note| value.weigh(note), crate::heap::rank_of);
        rank.map_or(Self::Anywhere, Self::Rank)
    }
}

/// The rank of this process, as a task may want to know; none if there is no heap.
pub fn rank() -> Option<Rank> {
    crate::heap::job().ok().map(vgas::Runtime::rank)
}

/// Why a task has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TaskError {
    /// It has panicked.
    #[error("a task has panicked on {rank}: {message}")]
    Panicked {
        /// The rank.
        rank: Rank,
        /// The panic's message.
        message: String,
    },
    /// It was not run: outside of [`crate::Objects::run`], or when that has ended.
    #[error("no worker runs tasks: they are begun within `Objects::run`")]
    Stopped,
    /// It was for a rank that runs none any more, if the job continues without a lost node: that rank was
    /// about to begin or end a run as the node was lost, or all runs are over. It has not begun, and what it
    /// was lent is as it was before.
    #[error("{rank} runs no tasks any more: {lost} is lost")]
    Abandoned {
        /// The rank that should have run it.
        rank: Rank,
        /// Without which the job continues.
        lost: vgas::NodeId,
    },
    /// It did not arrive as it was sent: ranks of different programs.
    #[error("a task was not understood on {0}: the ranks run different programs")]
    Misread(Rank),
    /// The node that had it is lost, and the job continues without it. It may have run, in part or as a
    /// whole; what it was lent is as it was before, and what it was given is gone. If its rank had passed on
    /// objects meanwhile, boxes in what it was lent to change are
    /// [`ObjectError::Lost`](crate::ObjectError::Lost): another rank may own what they meant.
    #[error("a task was on {0}, which is lost")]
    Lost(vgas::NodeId),
    /// The heap or the job.
    #[error(transparent)]
    Objects(Box<crate::ObjectError>),
}

impl From<crate::ObjectError> for TaskError {
    fn from(error: crate::ObjectError) -> Self {
        Self::Objects(Box::new(error))
    }
}

impl From<vgas::Error> for TaskError {
    fn from(error: vgas::Error) -> Self {
        crate::ObjectError::from(error).into()
    }
}
