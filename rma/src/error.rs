//! Errors below the cache: the operation, the object, its progress, and what to do.

use crate::address::{Peer, Rank, RegionId};
use std::io;
use vgas_shm::error::{ShmError, advice};

/// Result of this crate.
pub type Result<T, E = RmaError> = std::result::Result<T, E>;

/// Everything that can go wrong in endpoints, conduits and start-up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RmaError {
    /// The operating system refused something.
    #[error("cannot {what}: {source}{}", advice(.source))]
    Io {
        /// The attempted operation.
        what: String,
        /// The system's reason.
        source: io::Error,
    },
    /// A peer is gone: its process ended, its connection broke, or it did not answer in time.
    #[error("lost {who} while {during}: {reason}")]
    PeerLost {
        /// The endpoint.
        peer: Peer,
        /// "rank 3", "the agent of node 1".
        who: String,
        /// The operation that noticed it.
        during: String,
        /// The observation.
        reason: String,
    },
    /// A peer (or a stranger) sent something that the protocol does not allow.
    #[error("protocol violation{}: {what}", .peer.map(|p| format!(" by {p}")).unwrap_or_default())]
    Protocol {
        /// The peer, if known.
        peer: Option<Peer>,
        /// The fault.
        what: String,
    },
    /// The other side does not know the job's key.
    #[error("{who} did not prove the job's key; the connection was closed")]
    WrongKey {
        /// Address or peer.
        who: String,
    },
    /// An address outside of what is registered there.
    #[error("{bytes} bytes at offset {offset} are outside of region {} of {owner}, which has {limit}", .region.0)]
    OutOfRange {
        /// Owner of the region.
        owner: Peer,
        /// The region.
        region: RegionId,
        /// First byte asked for.
        offset: u64,
        /// Length asked for.
        bytes: u64,
        /// Length of the region.
        limit: u64,
    },
    /// The peer has no such region (or this process can't reach it by load and store).
    #[error("{owner} has no region {}", .region.0)]
    NoSuchRegion {
        /// Owner of the region.
        owner: Peer,
        /// The region.
        region: RegionId,
    },
    /// The system does not let this process lock the memory that a network card is to use.
    #[error(
        "cannot lock {bytes} bytes for the network card: {}; run `ulimit -l unlimited` before the job (as root, or with \
         `* - memlock unlimited` in /etc/security/limits.conf)",
        .limit.map_or("the system refuses it".to_owned(), |limit| format!("this process may lock {limit}"))
    )]
    LockedMemory {
        /// Bytes requested, in one piece.
        bytes: u64,
        /// `RLIMIT_MEMLOCK`; none: unlimited.
        limit: Option<u64>,
    },
    /// The members of a team do not call the same collectives. The team is spoilt: this and every later collective on it ends with
    /// an error on every member. Other teams go on.
    #[error(
        "{what}; all members of a team call the same collectives in the same order, with the same root and sizes. This \
         team is of no use any more"
    )]
    Collective {
        /// A member that has called something else than another.
        member: Rank,
        /// The calls of the members.
        what: String,
    },
    /// A call that the interface forbids, such as a reply from a reply handler.
    #[error("wrong use: {0}")]
    Usage(String),
    /// A job that cannot be started as asked; nothing was started.
    #[error("{0}")]
    Refused(String),
    /// This process was not started as a rank of a job. A caller may start a job of one process instead.
    #[error("this program is not part of a job; start it with `vgas run -n 2 -- PROGRAM` (or srun, mpirun)")]
    NotInJob,
    /// The job is ending because something failed elsewhere.
    #[error("the job is being ended: {0}")]
    JobAborted(String),
}

impl From<ShmError> for RmaError {
    fn from(ShmError { what, source }: ShmError) -> Self {
        Self::Io { what, source }
    }
}

/// Observation of a peer that has ended its part of the job properly.
pub(crate) const HAS_LEFT: &str = "it has left the job";

impl RmaError {
    /// An [`RmaError::Io`] from a standard error.
    pub fn io(what: impl Into<String>, source: io::Error) -> Self {
        Self::Io { what: what.into(), source }
    }

    /// Returns true if this is about another process, which may know more: such an end of the job gives way
    /// to that process's report.
    pub fn is_complaint(&self) -> bool {
        matches!(self, Self::PeerLost { .. } | Self::JobAborted(_))
    }

    /// Returns true if it says that a peer has ended its part of the job properly, and is gone.
    pub fn peer_has_left(&self) -> bool {
        matches!(self, Self::PeerLost { reason, .. } if reason == HAS_LEFT)
    }

    /// Returns the same error once more: for every waiter of the failed operation.
    pub fn duplicate(&self) -> Self {
        match self {
            Self::Io { what, source } => {
                let source = match source.raw_os_error() {
                    Some(code) => io::Error::from_raw_os_error(code),
                    None => io::Error::new(source.kind(), source.to_string()),
                };
                Self::Io { what: what.clone(), source }
            }
            Self::PeerLost { peer, who, during, reason } => Self::PeerLost {
                peer: *peer,
                who: who.clone(),
                during: during.clone(),
                reason: reason.clone(),
            },
            Self::Protocol { peer, what } => Self::Protocol { peer: *peer, what: what.clone() },
            Self::WrongKey { who } => Self::WrongKey { who: who.clone() },
            &Self::OutOfRange { owner, region, offset, bytes, limit } => {
                Self::OutOfRange { owner, region, offset, bytes, limit }
            }
            &Self::NoSuchRegion { owner, region } => Self::NoSuchRegion { owner, region },
            &Self::LockedMemory { bytes, limit } => Self::LockedMemory { bytes, limit },
            Self::Collective { member, what } => Self::Collective { member: *member, what: what.clone() },
            Self::Usage(what) => Self::Usage(what.clone()),
            Self::JobAborted(what) => Self::JobAborted(what.clone()),
            Self::Refused(what) => Self::Refused(what.clone()),
            Self::NotInJob => Self::NotInJob,
        }
    }

    /// An [`RmaError::Io`] from an errno.
    pub fn system(what: impl Into<String>, source: rustix::io::Errno) -> Self {
        Self::Io { what: what.into(), source: source.into() }
    }
}
