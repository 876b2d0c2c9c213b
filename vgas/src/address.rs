//! Where bytes are: a rank's segment, of which kind, which one, and an offset in it.

use vgas_cache::partition::{PartitionId, SegmentId};
use vgas_rma::Rank;

/// What a segment stands on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Backed by NVMe, cached in the DRAM of all nodes; may exceed memory.
    Tiered,
    /// DRAM only: plain GASNet.
    Pinned,
}

/// A global address: the same on every rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GlobalAddress {
    /// Whose segment.
    pub rank: Rank,
    /// Of which kind it is.
    pub kind: Kind,
    /// Which of its tiered segments; [`SegmentId::FIRST`] of pinned ones.
    pub segment: SegmentId,
    /// Offset in bytes.
    pub offset: u64,
}

impl GlobalAddress {
    /// An address in the first tiered segment ([`crate::Runtime::attach`]).
    pub fn tiered(rank: Rank, offset: u64) -> Self {
        Self { rank, kind: Kind::Tiered, segment: SegmentId::FIRST, offset }
    }

    /// An address in a pinned segment.
    pub fn pinned(rank: Rank, offset: u64) -> Self {
        Self { rank, kind: Kind::Pinned, segment: SegmentId::FIRST, offset }
    }

    /// Whose part of which tiered segment it is in.
    #[inline]
    pub(crate) fn partition(self) -> PartitionId {
        PartitionId { segment: self.segment, owner: self.rank }
    }

    /// An address in the first segment of a kind.
    pub fn of_kind(kind: Kind, rank: Rank, offset: u64) -> Self {
        Self { rank, kind, segment: SegmentId::FIRST, offset }
    }

    /// The address `bytes` bytes further on; none when it cannot be represented.
    pub fn checked_add(self, bytes: u64) -> Option<Self> {
        Some(Self { offset: self.offset.checked_add(bytes)?, ..self })
    }
}
