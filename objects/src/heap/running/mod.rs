//! Heaps of jobs that run, for who looks at them from outside: [`door`] is what each rank has for that, [`look`] who comes.
//!
//! A rank has a socket without a file, so that nothing is left behind, in which a thread of its own sleeps until somebody comes. It tells
//! what the rank's own tables say and looks at no page of the heap: whoever looks changes nothing in what is in memory, and the rank
//! goes on meanwhile. The socket's name has the job's number, which its ranks have agreed on, and the rank's.
//!
//! Who comes proves nothing but whose process it is, which the system says: the rank's own user, and root, could read its memory
//! anyway. Nothing is read of what they send.

#![forbid(unsafe_code)]

mod door;
mod look;

pub(super) use door::Door;
#[cfg(any(test, fuzzing))]
pub(crate) use look::any_words;
pub use look::heaps_running;
#[cfg(test)]
pub(super) use look::some_words;

use super::report::{NodeReport, RankReport};
use serde::{Deserialize, Serialize};

/// What names begin with.
const NAME: &str = "vgas-objects.";
/// What is said begins with this: another version is told from this one.
const PROTOCOL: [u8; 8] = *b"vgasobj1";
/// Sizes, and ranks that objects are copied from, of which a rank tells: those that take most.
const ROWS: usize = 256;

/// Why no running heap can be shown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunningError {
    /// There is none.
    #[error("no job of this user runs on this machine with a heap of objects")]
    Nothing,
    /// A process has nothing to do with one.
    #[error("process {process} is of no job that runs on this machine with a heap of objects")]
    NoSuchJob {
        /// Which.
        process: u32,
    },
    /// There was one.
    #[error("the job ended while it was looked at")]
    Ended,
    /// The system does not say which there are.
    #[error("{file} cannot be read: {why}")]
    Unseen {
        /// What should say it.
        file: &'static str,
        /// The system's reason.
        why: std::io::Error,
    },
}

/// Objects of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SizeRunning {
    /// Bytes of the slot of each.
    pub bytes: u64,
    /// How many.
    pub objects: u64,
    /// They have slabs of their own.
    pub is_large: bool,
}

/// What a rank uses of another one's objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CopiesRunning {
    /// Whose objects.
    pub of: u32,
    /// Copies that it keeps.
    pub copies: u64,
    /// Bytes that these take.
    pub bytes: u64,
    /// How many boxes and borrows use them now, or those of another rank of the node.
    pub uses: u64,
}

/// What a rank has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PartitionRunning {
    /// Which.
    pub rank: u32,
    /// Its node.
    pub node: u32,
    /// Its process.
    pub process: u32,
    /// Bytes of the partition that objects and copies may still take.
    pub room_bytes: u64,
    /// Its numbers, as in [`Report`](crate::Report), but for what others have freed, which it may not have looked at yet.
    pub report: RankReport,
    /// What is in its partition, by size, the smallest first; of more than 256 sizes, those that take most.
    pub sizes: Vec<SizeRunning>,
    /// Objects that an earlier job has left, and whose sizes nobody has looked at since.
    pub unseen: u64,
    /// What it has copies of, by the rank that has the objects; of more than 256, those that take most.
    pub copies_of: Vec<CopiesRunning>,
}

/// What a node's home has done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HomeRunning {
    /// Which.
    pub node: u32,
    /// Its numbers.
    pub report: NodeReport,
}

/// A rank that has said nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SilentRank {
    /// Which.
    pub rank: u32,
    /// Its process, if that is known.
    pub process: Option<u32>,
    /// Why.
    pub why: String,
}

/// The heap of a job that runs, as far as its ranks are on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HeapRunning {
    /// The job's number, of this heap alone.
    pub job: String,
    /// Its program; empty if no rank has said so.
    pub program: String,
    /// How many ranks it has.
    pub ranks: u32,
    /// How many nodes.
    pub nodes: u32,
    /// Of each rank that has answered.
    pub partitions: Vec<PartitionRunning>,
    /// Of each node whose first rank has answered.
    pub homes: Vec<HomeRunning>,
    /// Ranks of this machine that have not.
    pub silent: Vec<SilentRank>,
    /// Ranks that are not on this machine, or have ended.
    pub elsewhere: Vec<u32>,
}

/// What a rank says.
#[derive(Debug, Serialize, Deserialize)]
struct Said {
    program: String,
    ranks: u32,
    nodes: u32,
    partition: PartitionRunning,
    home: Option<NodeReport>,
}

/// What a rank's socket is called.
fn name_of(job: u64, rank: u32) -> String {
    format!("{NAME}{job:016x}.{rank}")
}

/// The job and the rank of such a name.
fn named(name: &str) -> Option<(u64, u32)> {
    let (job, rank) = name.strip_prefix(NAME)?.split_once('.')?;
    let found = (u64::from_str_radix(job, 16).ok()?, rank.parse().ok()?);
    (name_of(found.0, found.1) == name).then_some(found)
}
