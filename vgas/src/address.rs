//! Where bytes are: a rank's segment, of which kind, and an offset in it.

use vgas_rma::Rank;

/// Which of a rank's two segments.
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
    /// Which of its segments.
    pub kind: Kind,
    /// Offset in bytes.
    pub offset: u64,
}

impl GlobalAddress {
    /// An address in a tiered segment.
    pub fn tiered(rank: Rank, offset: u64) -> Self {
        Self { rank, kind: Kind::Tiered, offset }
    }

    /// An address in a pinned segment.
    pub fn pinned(rank: Rank, offset: u64) -> Self {
        Self { rank, kind: Kind::Pinned, offset }
    }

    /// The address `bytes` bytes further on; none when it cannot be represented.
    pub fn checked_add(self, bytes: u64) -> Option<Self> {
        Some(Self { offset: self.offset.checked_add(bytes)?, ..self })
    }
}
