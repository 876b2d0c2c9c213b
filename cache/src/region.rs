//! The regions of an agent's memory, by what this layer keeps in them.

#![forbid(unsafe_code)]

use vgas_rma::RegionId;

/// The frames of the pool: agents write pages into each other's, and tell of each by a note.
pub const FRAMES: RegionId = RegionId::BLOCKS;

/// The page table, and the words that ranks share with their agent.
pub const TABLE: RegionId = RegionId::PRIVATE;
