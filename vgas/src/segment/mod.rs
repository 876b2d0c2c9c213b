//! Segments: address spaces with a part of each rank, tiered or pinned, attached and detached while the job
//! runs.
//!
//! | file | what is in it |
//! |---|---|
//! | [`options`] | what a program asks for |
//! | [`attach`], [`wanted`] | the ways to attach and detach, collective and independent, and what ranks tell each other for it |
//! | [`stored`], [`reopened`] | what all ranks must agree on about the files of a named segment, and what they found |
//! | [`pinned`]; [`addresses`], [`ranges`] | what only pinned segments, and only segments at one address, need |
//! | [`access`] | puts, gets and updates through a [`Segment`] |
//! | [`local`] | plain pointers |
//! | [`table`] | which segments a rank has |

mod access;
mod addresses;
mod attach;
mod local;
mod options;
mod pinned;
mod ranges;
mod reopened;
mod stored;
mod table;
mod wanted;

pub use local::LocalPart;
pub use options::SegmentOptions;
pub(crate) use ranges::Addresses;
pub use reopened::Reopened;
pub(crate) use stored::in_short;
pub(crate) use table::SegmentTable;
pub use wanted::{SegmentOwner, library_segment};

use crate::address::{GlobalAddress, Kind};
use crate::runtime::Runtime;
use std::sync::Arc;
use vgas_cache::partition::{PartitionId, SegmentId};
use vgas_rma::Rank;

/// A segment that [`Runtime::attach`] has attached. A handle: clones name the same segment, and dropping all of them leaves the
/// segment attached, until [`Segment::detach`] or the end of the job.
///
/// A segment names a byte by the rank that owns it and an offset in that rank's part; [`Segment::address`] makes both one value
/// that any rank can use. Any thread may call anything.
///
/// ```no_run
/// use vgas::{Runtime, SegmentOptions};
///
/// fn main() -> vgas::Result<()> {
///     let runtime = Runtime::init()?;
///     // Records that are read at random, and a matrix that is read in order, once.
///     let records = runtime.attach(&SegmentOptions::tiered(1 << 20).page_size(4 << 10))?;
///     let matrix = runtime.attach(&SegmentOptions::tiered(64 << 20).page_size(1 << 20).streamed(true))?;
///     records.put(runtime.rank(), 0, b"key and value")?;
///     runtime.barrier()?;
///     matrix.detach()?;
///     runtime.finalize()
/// }
/// ```
#[derive(Clone)]
pub struct Segment(Arc<Inner>);

struct Inner {
    runtime: Runtime,
    id: SegmentId,
    options: SegmentOptions,
    /// Another rank has attached it, which alone may detach it.
    is_foreign: bool,
}

impl std::fmt::Debug for Segment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = if self.kind() == Kind::Tiered { "tiered" } else { "pinned" };
        match &self.options().name {
            Some(name) => write!(f, "{kind} segment {} ({name:?})", self.id().0),
            None => write!(f, "{kind} segment {}", self.id().0),
        }
    }
}

impl PartialEq for Segment {
    fn eq(&self, other: &Self) -> bool {
        (self.kind(), self.id()) == (other.kind(), other.id())
    }
}

impl Eq for Segment {}

impl Runtime {
    /// Returns a segment that this rank has attached, by its number; none of one that belongs to a library.
    pub fn segment(&self, kind: Kind, id: SegmentId) -> Option<Segment> {
        let at = GlobalAddress { rank: self.rank(), kind, segment: id, offset: 0 };
        let options = self.segments().options_of(kind, id).filter(|_| !at.is_of_library())?;
        Some(Segment::new(self, id, &options))
    }
}

impl Segment {
    fn new(runtime: &Runtime, id: SegmentId, options: &SegmentOptions) -> Self {
        Self(Arc::new(Inner { runtime: runtime.clone(), id, options: options.clone(), is_foreign: false }))
    }

    /// A segment of another rank that is known here by its address only.
    fn foreign(at: GlobalAddress, runtime: &Runtime) -> Self {
        let (runtime, options) = (runtime.clone(), SegmentOptions::of_kind(at.kind, 0).independent());
        Self(Arc::new(Inner { runtime, id: at.segment, options, is_foreign: true }))
    }

    /// Returns the job's runtime.
    #[inline]
    pub fn runtime(&self) -> &Runtime {
        &self.0.runtime
    }

    /// Returns the segment's number: the same on all ranks, among the segments of its kind.
    #[inline]
    pub fn id(&self) -> SegmentId {
        self.0.id
    }

    /// Returns the options that it was attached with on this rank.
    pub fn options(&self) -> &SegmentOptions {
        &self.0.options
    }

    /// Tiered or pinned.
    #[inline]
    pub fn kind(&self) -> Kind {
        self.0.options.kind
    }

    /// Returns the address of a byte of a rank's part.
    #[inline]
    pub fn address(&self, rank: Rank, offset: u64) -> GlobalAddress {
        GlobalAddress { rank, kind: self.kind(), segment: self.id(), offset }
    }

    /// Bytes of a rank's part; 0 if it has none, and after [`Segment::detach`].
    pub fn bytes_of(&self, rank: Rank) -> u64 {
        let runtime = self.runtime();
        match self.kind() {
            Kind::Tiered => runtime.client().bytes_of(PartitionId { segment: self.id(), owner: rank }),
            Kind::Pinned => {
                runtime.endpoint().part_bytes(self.address(rank, 0).pinned_part()).unwrap_or_default()
            }
        }
    }

    /// Bytes of a page of a tiered segment.
    pub fn page_bytes(&self) -> usize {
        match self.options().page_bytes {
            0 => self.runtime().page_bytes(),
            bytes => bytes as usize,
        }
    }

    /// Tells what was found of a segment with a name; none if it was created now.
    pub fn reopened(&self) -> Option<Reopened> {
        self.runtime().segments().reopened(self.id()).filter(|_| self.kind() == Kind::Tiered)
    }
}
