//! What can go wrong with tiered segments.

use crate::pool::PoolError;
use vgas_rma::RmaError;
use vgas_rma::address::Rank;

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
        owner: Rank,
        /// First byte asked for.
        offset: u64,
        /// Length asked for.
        bytes: u64,
        /// Length of the segment.
        limit: u64,
    },
    /// A page could not be read, written or made durable.
    #[error("page {page} of the segment of {owner}: {reason}")]
    Page {
        /// Whose segment.
        owner: Rank,
        /// Which page of it.
        page: u64,
        /// What happened, and what to do.
        reason: Failure,
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
        owner: Rank,
        /// Which page of it.
        page: u64,
        /// Why.
        trouble: crate::local::Trouble,
    },
    /// A call that the interface forbids.
    #[error("wrong use: {0}")]
    Usage(String),
}

/// Why an agent refused a request, as it travels in a wait slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[repr(u32)]
pub enum Failure {
    /// The device refused to read or write.
    #[error("the NVMe device of its home failed to read or write it (see the log of that node)")]
    Device = 1,
    /// What was read is not what was written.
    #[error(
        "its stored bytes are damaged (checksum mismatch); restore the segment from an earlier checkpoint"
    )]
    Corrupt = 2,
    /// The NVMe is full.
    #[error("the NVMe folder of its home is full; free space there or choose another with nvm.directory")]
    NoSpace = 3,
    /// A page that no attached segment has.
    #[error("no attached segment has such a page")]
    NoSuchPage = 4,
    /// The segment could not be created or opened.
    #[error("the segment file could not be created or opened (see the log of that node)")]
    Segment = 5,
    /// Anything else, from a newer agent.
    #[error("the agent refused for a reason that this version does not know")]
    Unknown = u32::MAX,
}

/// In place of the failed page's number in its segment: it is not a page that failed, or the number is too large.
pub(crate) const PAGE_UNKNOWN: u32 = u32::MAX;

impl Failure {
    /// From the number in a wait slot or message.
    pub fn from_code(code: u32) -> Self {
        match code {
            1 => Failure::Device,
            2 => Failure::Corrupt,
            3 => Failure::NoSpace,
            4 => Failure::NoSuchPage,
            5 => Failure::Segment,
            _ => Failure::Unknown,
        }
    }
}

impl CacheError {
    /// From what a wait slot says. `page` is where the operation stood, for when the agent does not name the page.
    pub(crate) fn from_code(owner: Rank, page: u64, code: u32, detail: u32) -> Self {
        let page = if detail == PAGE_UNKNOWN { page } else { u64::from(detail) };
        CacheError::Page { owner, page, reason: Failure::from_code(code) }
    }
}
