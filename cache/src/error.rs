//! What can go wrong with tiered segments.

use crate::page::PageInSegment;
use crate::partition::PartitionId;
use crate::pool::PoolError;
use rustix::io::Errno;
use vgas_rma::RmaError;
use vgas_rma::address::NodeId;

/// Everything that can go wrong in the cache layer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CacheError {
    /// Something below: a peer lost, the job ending.
    #[error(transparent)]
    Rma(#[from] RmaError),
    /// The pool.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The NVMe.
    #[error(transparent)]
    Storage(#[from] vgas_nvm::VolumeError),
    /// An address outside of a tiered segment.
    #[error(
        "{bytes} bytes at offset {offset} are outside of the tiered segment of {owner}, which has {limit}"
    )]
    OutOfRange {
        /// Whose segment.
        owner: PartitionId,
        /// First byte asked for.
        offset: u64,
        /// Length asked for.
        bytes: u64,
        /// Length of the segment.
        limit: u64,
    },
    /// A page could not be read, written or made durable.
    #[error("page {page} of the segment of {owner}: {}", reason.describe(place))]
    Page {
        /// Whose segment.
        owner: PartitionId,
        /// Which page of it.
        page: PageInSegment,
        /// What happened.
        reason: Failure,
        /// Whose NVMe it was: node, host and folder. Not always that of the page's home: a page that must leave the cache to
        /// make room for this one has a home, too.
        place: String,
    },
    /// A put to a segment that can only be read, because nothing can be written where it is stored.
    #[error("the segment of {owner} can only be read: {}", reason.describe(place))]
    ReadOnly {
        /// Whose segment.
        owner: PartitionId,
        /// What refused to be written.
        reason: Failure,
        /// Its home: node, host and folder.
        place: String,
    },
    /// A rank's own segment could not be created, opened or made durable.
    #[error("the segment of {owner} on {place}: {why}")]
    Segment {
        /// Whose segment.
        owner: PartitionId,
        /// What happened.
        reason: Failure,
        /// Its home: node, host and folder.
        place: String,
        /// What happened, and what to do, as the agent says it.
        why: String,
    },
    /// A service of a node could not be called.
    #[error("the service {name} of {node}: {why}")]
    Service {
        /// Which.
        name: &'static str,
        /// Of which node.
        node: NodeId,
        /// Why.
        why: crate::service::ServiceError,
    },
    /// A message that the protocol does not allow.
    #[error("protocol violation by {who}: {what}")]
    Protocol {
        /// Who sent it.
        who: String,
        /// What was wrong.
        what: String,
    },
    /// A page of one's own segment that cannot be mapped for plain loads and stores.
    #[error("page {page} of the segment of {owner} cannot be mapped: {trouble}")]
    Local {
        /// Whose segment.
        owner: PartitionId,
        /// Which page of it.
        page: PageInSegment,
        /// Why.
        trouble: crate::local::Trouble,
    },
    /// A call that the interface forbids.
    #[error("wrong use: {0}")]
    Usage(String),
}

/// Why an agent refused a request: what travels in wait slots and between agents, as one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What happened.
    pub kind: FailureKind,
    /// The system's reason, if it was the system that refused.
    pub errno: Option<Errno>,
    /// The node whose NVMe it was.
    pub node: Option<NodeId>,
}

/// What kind of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum FailureKind {
    /// The device refused to read or write.
    Device = 1,
    /// What was read is not what was written.
    Corrupt = 2,
    /// The NVMe is full, or the user's quota used up.
    NoSpace = 3,
    /// A page that no attached segment has.
    NoSuchPage = 4,
    /// The segment could not be created or opened.
    Segment = 5,
    /// The page is not in this node's memory, and was not to be brought there.
    NotInMemory = 6,
    /// Anything else, from a newer agent.
    Unknown = 15,
}

/// In place of the failed page's number in its segment: it is not a page that failed, or the number is too large.
pub(crate) const PAGE_UNKNOWN: u32 = u32::MAX;

// The number of a failure: 4 bits of kind, 12 of the system's reason (0: none), 16 of the node (all ones: none).
const KIND_BITS: u32 = 4;
const ERRNO_BITS: u32 = 12;
const NODE_SHIFT: u32 = KIND_BITS + ERRNO_BITS;
const NO_NODE: u32 = u32::MAX >> NODE_SHIFT;

impl From<FailureKind> for Failure {
    fn from(kind: FailureKind) -> Self {
        Self { kind, errno: None, node: None }
    }
}

impl Failure {
    /// As a number; never 0.
    pub fn code(self) -> u32 {
        let errno = self.errno.map_or(0, |errno| errno.raw_os_error() as u32);
        let errno = if errno >> ERRNO_BITS == 0 { errno } else { 0 };
        let node = self.node.map_or(NO_NODE, |node| node.0.min(NO_NODE));
        self.kind as u32 | errno << KIND_BITS | node << NODE_SHIFT
    }

    /// From the number in a wait slot or message, which may be any.
    pub fn from_code(code: u32) -> Self {
        let kind = match code & ((1 << KIND_BITS) - 1) {
            1 => FailureKind::Device,
            2 => FailureKind::Corrupt,
            3 => FailureKind::NoSpace,
            4 => FailureKind::NoSuchPage,
            5 => FailureKind::Segment,
            6 => FailureKind::NotInMemory,
            _ => return FailureKind::Unknown.into(),
        };
        let errno = code >> KIND_BITS & ((1 << ERRNO_BITS) - 1);
        let node = code >> NODE_SHIFT;
        Self {
            kind,
            errno: (errno != 0).then(|| Errno::from_raw_os_error(errno as i32)),
            node: (node != NO_NODE).then_some(NodeId(node)),
        }
    }

    /// In words. `place`: whose NVMe it was, as people know it: node, host, folder.
    pub fn describe(&self, place: &str) -> String {
        let reason = match self.errno {
            Some(errno) => std::io::Error::from(errno).to_string(),
            None => "it moved fewer bytes than it was asked to".to_owned(),
        };
        match self.kind {
            FailureKind::NoSpace if self.errno == Some(Errno::DQUOT) => format!(
                "the quota of the NVMe folder of {place} is used up; free space there, raise the quota, or choose another \
                 folder with nvm.directory"
            ),
            FailureKind::NoSpace => format!(
                "the NVMe folder of {place} is full; free space there or choose another with nvm.directory"
            ),
            FailureKind::Device => {
                format!("the NVMe of {place} refused to read or write: {reason}; {}", advice(self.errno))
            }
            FailureKind::Corrupt => {
                "its stored bytes are damaged (checksum mismatch); restore the segment from an earlier checkpoint".into()
            }
            FailureKind::NoSuchPage => "no attached segment has such a page".into(),
            FailureKind::Segment => {
                format!("the segment file could not be created or opened (see the log of {place})")
            }
            FailureKind::NotInMemory => "it is not in this node's memory, and was not to be brought there".into(),
            FailureKind::Unknown => "the agent refused for a reason that this version does not know".into(),
        }
    }
}

fn advice(errno: Option<Errno>) -> &'static str {
    match errno {
        Some(Errno::ROFS | Errno::ACCESS | Errno::PERM) => {
            "make the folder writable, or choose another with nvm.directory"
        }
        Some(Errno::FBIG) => "raise the limit of the file size there (ulimit -f), or use smaller segments",
        Some(Errno::CANCELED | Errno::AGAIN | Errno::NOMEM) => {
            "a limit of that node may be the cause: raise those of processes and of locked memory (ulimit -u, ulimit -l), or \
             set nvm.device to blocking"
        }
        _ => "check the device there (dmesg), and the node's log",
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.node {
            Some(node) => f.write_str(&self.describe(&node.to_string())),
            None => f.write_str(&self.describe("its home")),
        }
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_survive_the_wire() {
        use FailureKind::{Corrupt, Device, NoSpace, NoSuchPage, NotInMemory, Segment, Unknown};
        for kind in [Device, Corrupt, NoSpace, NoSuchPage, Segment, NotInMemory] {
            for errno in [None, Some(Errno::IO), Some(Errno::ROFS), Some(Errno::from_raw_os_error(4095))] {
                for node in [None, Some(NodeId(0)), Some(NodeId(4095))] {
                    let failure = Failure { kind, errno, node };
                    assert_eq!(Failure::from_code(failure.code()), failure);
                    assert!(failure.code() != 0 && !failure.to_string().contains('\n'));
                }
            }
        }
        for code in [0, 7, 15, u32::MAX, 0xffff_fff0] {
            assert_eq!(Failure::from_code(code), Unknown.into());
        }
    }

    /// Goal: nobody is sent to free space on a disk that has some.
    #[test]
    fn only_a_full_disk_is_called_full() {
        for errno in [Errno::IO, Errno::ROFS, Errno::CANCELED, Errno::FBIG, Errno::DQUOT, Errno::NOSPC] {
            let kind = match errno {
                Errno::NOSPC | Errno::DQUOT => FailureKind::NoSpace,
                _ => FailureKind::Device,
            };
            let said =
                Failure { kind, errno: Some(errno), node: Some(NodeId(1)) }.describe("node 1 (host a, /b)");
            assert!(said.contains("node 1 (host a, /b)"), "{said}");
            assert_eq!(said.contains("is full"), errno == Errno::NOSPC, "{said}");
            assert!(
                kind == FailureKind::NoSpace || said.contains(&std::io::Error::from(errno).to_string()),
                "{said}"
            );
        }
    }
}
