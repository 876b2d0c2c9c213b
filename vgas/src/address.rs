//! Where bytes are: a rank's segment, of which kind, which one, and an offset in it.

use crate::config::value::choices;
use vgas_cache::partition::{PartitionId, SegmentId};
use vgas_rma::{PinnedPart, Rank, RegionId};

choices! {
    /// What a rank's segment is made of.
    #[derive(Default, Hash)]
    pub enum Kind {
        /// Backed by a file on NVMe and cached in DRAM; may exceed DRAM.
        Tiered = "tiered" (default),
        /// DRAM only: plain GASNet, without cache and files.
        Pinned = "pinned",
    }
}

/// A global address: the same on every rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GlobalAddress {
    /// Whose segment.
    pub rank: Rank,
    /// Of which kind it is.
    pub kind: Kind,
    /// Which of its segments of that kind: [`SegmentId::FIRST`], or the number of a further one ([`crate::Segment`]).
    pub segment: SegmentId,
    /// Offset in bytes.
    pub offset: u64,
}

impl GlobalAddress {
    /// An address in the first tiered segment ([`crate::Runtime::attach`]).
    #[inline]
    pub fn tiered(rank: Rank, offset: u64) -> Self {
        Self { rank, kind: Kind::Tiered, segment: SegmentId::FIRST, offset }
    }

    /// An address in the first pinned segment ([`crate::Runtime::attach`]).
    #[inline]
    pub fn pinned(rank: Rank, offset: u64) -> Self {
        Self { rank, kind: Kind::Pinned, segment: SegmentId::FIRST, offset }
    }

    /// Whose part of which tiered segment it is in.
    #[inline]
    pub(crate) fn partition(self) -> PartitionId {
        PartitionId { segment: self.segment, owner: self.rank }
    }

    /// Whose part of which pinned segment it is in.
    #[inline(always)]
    pub(crate) fn pinned_part(self) -> PinnedPart {
        // Further pinned segments have the numbers of their regions.
        PinnedPart { region: RegionId(self.segment.0), owner: self.rank }
    }

    /// An address in the first segment of a kind.
    #[inline]
    pub fn of_kind(kind: Kind, rank: Rank, offset: u64) -> Self {
        Self { rank, kind, segment: SegmentId::FIRST, offset }
    }

    /// The address `bytes` bytes further on; none when it cannot be represented.
    #[inline]
    pub fn checked_add(self, bytes: u64) -> Option<Self> {
        Some(Self { offset: self.offset.checked_add(bytes)?, ..self })
    }
}
