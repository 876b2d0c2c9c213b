//! Errors of objects.

use crate::slab::{Full, NoObject};
use std::fmt;
use std::panic::Location;
use vgas::{NodeId, Rank};

/// An error of the heap. `Debug` prints the message, too, for `main` prints its error so.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ObjectError {
    /// There is no room for it.
    #[error(transparent)]
    Full(#[from] Full),
    /// An object cannot be reached from where it is.
    #[error(transparent)]
    Lost(Box<LostObject>),
    /// A remote rank freed a word that is no object here.
    #[error("another rank has freed what is none: {0}")]
    Freed(#[from] NoObject),
    /// The job.
    #[error(transparent)]
    Job(#[from] vgas::Error),
    /// An earlier job's object of this name has another layout.
    #[error(transparent)]
    Layout(Box<OtherLayout>),
    /// A checkpoint while a lock is held: none was taken.
    #[error(
        "no checkpoint was taken: {holder} holds the lock at offset {at:#x} of {owner}, and what was taken out of it would have two owners when \
         the heap is opened again; drop its guard before"
    )]
    LockHeld {
        /// The rank with the guard.
        holder: Rank,
        /// The rank that has the lock.
        owner: Rank,
        /// The lock's place in that rank's part of the heap.
        at: u64,
    },
    /// A call that does not fit the heap, or those of the other ranks.
    #[error("{0}")]
    Usage(String),
    /// The heap has been ended.
    #[error(
        "there is no heap in this process: objects are used between `Objects::attach` and `Objects::finalize`"
    )]
    NoHeap,
}

/// An object that cannot be reached from where it is: its rank's node is gone, or cannot read it.
#[derive(Debug, thiserror::Error)]
#[error("the {type_name} at {address:#x}, which {rank} on {node} has, cannot be had{}: {why}", wanted(*at))]
#[non_exhaustive]
pub struct LostObject {
    /// Its type.
    pub type_name: &'static str,
    /// Its address.
    pub address: u64,
    /// The rank that has it.
    pub rank: Rank,
    /// The node of that rank.
    pub node: NodeId,
    /// Location of the program's call, if known.
    pub at: Option<&'static Location<'static>>,
    /// Why not.
    #[source]
    pub why: vgas::Error,
}

fn wanted(at: Option<&Location<'_>>) -> String {
    at.map(|at| format!(" for {at}")).unwrap_or_default()
}

/// A value for which there was no room.
#[derive(Debug)]
pub struct Refused<T> {
    /// The value.
    pub value: T,
    /// Why it was not placed.
    pub why: Box<ObjectError>,
}

impl<T> fmt::Display for Refused<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.why.fmt(f)
    }
}

impl<T: fmt::Debug> std::error::Error for Refused<T> {}

impl fmt::Debug for ObjectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // In one piece, which is one write where it is printed: ranks often fail together.
        f.write_str(&self.to_string())
    }
}

impl<T> From<Refused<T>> for ObjectError {
    /// The value is dropped.
    fn from(refused: Refused<T>) -> Self {
        *refused.why
    }
}

impl ObjectError {
    /// Adds the location of the program's call, unless it is set.
    pub(crate) fn for_call(mut self, at: &'static Location<'static>) -> Self {
        if let Self::Lost(lost) = &mut self {
            lost.at.get_or_insert(at);
        }
        self
    }
}

/// An object that was kept under a name is of another type, or of another version of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the object {name:?} cannot be read as a {type_name}: {why}; another program has kept it, or another version of this one"
)]
pub struct OtherLayout {
    /// The name.
    pub name: String,
    /// The type it was to be read as.
    pub type_name: &'static str,
    /// The difference.
    pub why: String,
}
