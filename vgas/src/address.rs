//! Global addresses: a rank, a kind of memory, a segment, and an offset in it.

use crate::config::value::choices;
use std::ops::Range;
use vgas_cache::partition::{PartitionId, SEGMENTS_MAX, SegmentId};
use vgas_rma::{PinnedPart, Rank, RegionId};

choices! {
    /// Memory of a rank's segment.
    #[derive(Default, Hash)]
    pub enum Kind {
        /// Backed by a file on NVMe and cached in DRAM; may exceed DRAM.
        Tiered = "tiered" (default),
        /// DRAM only: plain GASNet, without cache and files.
        Pinned = "pinned",
    }
}

/// Numbers of tiered segments that belong to libraries ([`crate::Runtime::attach_owned`]).
pub(crate) const LIBRARY_TIERED: Range<u16> = SEGMENTS_MAX - LIBRARY_SEGMENTS_MAX..SEGMENTS_MAX;

/// Numbers of pinned segments that belong to libraries.
pub(crate) const LIBRARY_PINNED: Range<u16> = {
    let end = RegionId::FURTHER.0 + RegionId::FURTHER_MAX;
    end - LIBRARY_SEGMENTS_MAX..end
};

/// Segments of each kind that all libraries together can have.
const LIBRARY_SEGMENTS_MAX: u16 = 16;

/// The address of a byte of a segment: the same on every rank. [`Segment::address`](crate::Segment::address) makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GlobalAddress {
    /// The rank that owns the byte.
    pub rank: Rank,
    /// The kind of the segment.
    pub kind: Kind,
    /// The number of the segment, among those of its kind.
    pub segment: SegmentId,
    /// Offset in the owner's part, in bytes.
    pub offset: u64,
}

impl GlobalAddress {
    /// An address in the tiered segment with the number 0: the first that was attached with pages of the usual size.
    #[inline]
    pub fn tiered(rank: Rank, offset: u64) -> Self {
        Self { rank, kind: Kind::Tiered, segment: SegmentId::FIRST, offset }
    }

    /// An address in the pinned segment with the number 0: the first that was attached.
    #[inline]
    pub fn pinned(rank: Rank, offset: u64) -> Self {
        Self { rank, kind: Kind::Pinned, segment: SegmentId::FIRST, offset }
    }

    /// Returns true if it lies in a segment of a library, into which only the library may write.
    #[inline(always)]
    pub(crate) fn is_of_library(self) -> bool {
        let first = match self.kind {
            Kind::Tiered => LIBRARY_TIERED.start,
            Kind::Pinned => LIBRARY_PINNED.start,
        };
        self.segment != SegmentId::FIRST && self.segment.0 >= first
    }

    /// Returns the tiered segment and the rank of its partition.
    #[inline]
    pub(crate) fn partition(self) -> PartitionId {
        PartitionId { segment: self.segment, owner: self.rank }
    }

    /// Returns the pinned segment and the rank of its part.
    #[inline(always)]
    pub(crate) fn pinned_part(self) -> PinnedPart {
        // Further pinned segments have the numbers of their regions.
        PinnedPart { region: RegionId(self.segment.0), owner: self.rank }
    }

    /// An address in the segment of a kind with the number 0.
    #[inline]
    pub fn of_kind(kind: Kind, rank: Rank, offset: u64) -> Self {
        Self { rank, kind, segment: SegmentId::FIRST, offset }
    }

    /// Returns the address `bytes` bytes further on; none if it cannot be represented.
    #[inline]
    pub fn checked_add(self, bytes: u64) -> Option<Self> {
        Some(Self { offset: self.offset.checked_add(bytes)?, ..self })
    }
}
