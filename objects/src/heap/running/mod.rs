//! Heaps of running jobs, for observers: [`door`] is the rank's side, [`look`] the observer's.
//!
//! A rank has a socket without a file, so that nothing is left behind, on which a thread of its own sleeps
//! until an observer connects. It reports the rank's own tables and reads no page of the heap: observation
//! does not change the residency of pages, and the rank continues meanwhile. The socket's name has the job's
//! number, which its ranks have agreed on, and the rank's.
//!
//! The only credential is the process's user, as reported by the system: the rank's own user, and root, could
//! read its memory anyway. Nothing that they send is read.

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

/// Prefix of the names.
const NAME: &str = "vgas-objects.";
/// Prefix of the messages, which tells versions apart.
const PROTOCOL: [u8; 8] = *b"vgasobj1";
/// Most sizes, and ranks that objects are copied from, in an answer: those that take most.
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
        /// The process.
        process: u32,
    },
    /// There was one.
    #[error("the job ended while it was looked at")]
    Ended,
    /// The system does not say which there are.
    #[error("{file} cannot be read: {why}")]
    Unseen {
        /// Name of the file that should have it.
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
    /// Number of objects.
    pub objects: u64,
    /// They have slabs of their own.
    pub is_large: bool,
}

/// A rank's use of another rank's objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CopiesRunning {
    /// The rank of the objects.
    pub of: u32,
    /// Copies that it keeps.
    pub copies: u64,
    /// Bytes that these take.
    pub bytes: u64,
    /// Number of boxes and borrows that use them now, or those of another rank of the node.
    pub uses: u64,
}

/// A rank's objects and copies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PartitionRunning {
    /// The rank.
    pub rank: u32,
    /// Its node.
    pub node: u32,
    /// Its process.
    pub process: u32,
    /// Bytes of the partition that objects and copies may still take.
    pub room_bytes: u64,
    /// Its numbers, as in [`Report`](crate::Report), but for objects freed by other ranks, which it may not
    /// have collected yet.
    pub report: RankReport,
    /// Content of its partition, by size, the smallest first; of more than 256 sizes, those that take most.
    pub sizes: Vec<SizeRunning>,
    /// Objects left by an earlier job whose slabs were not yet inspected.
    pub unseen: u64,
    /// Its copies, by the rank that has the objects; of more than 256, those that take most.
    pub copies_of: Vec<CopiesRunning>,
}

/// Work of a node's home.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HomeRunning {
    /// The node.
    pub node: u32,
    /// Its numbers.
    pub report: NodeReport,
}

/// A rank without an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SilentRank {
    /// The rank.
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
    /// Number of its ranks.
    pub ranks: u32,
    /// Number of nodes.
    pub nodes: u32,
    /// The partitions of the ranks that have answered.
    pub partitions: Vec<PartitionRunning>,
    /// The homes of the nodes whose first rank has answered.
    pub homes: Vec<HomeRunning>,
    /// Ranks of this machine that have not.
    pub silent: Vec<SilentRank>,
    /// Ranks that are not on this machine, or have ended.
    pub elsewhere: Vec<u32>,
}

/// A rank's report.
#[derive(Debug, Serialize, Deserialize)]
struct RankAnswer {
    program: String,
    ranks: u32,
    nodes: u32,
    partition: PartitionRunning,
    home: Option<NodeReport>,
}

/// Returns the name of a rank's socket.
fn name_of(job: u64, rank: u32) -> String {
    format!("{NAME}{job:016x}.{rank}")
}

/// The job and the rank of such a name.
fn named(name: &str) -> Option<(u64, u32)> {
    let (job, rank) = name.strip_prefix(NAME)?.split_once('.')?;
    let found = (u64::from_str_radix(job, 16).ok()?, rank.parse().ok()?);
    (name_of(found.0, found.1) == name).then_some(found)
}
