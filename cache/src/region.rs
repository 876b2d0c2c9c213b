//! The regions of the memory of agents and ranks, by what this layer keeps in them.

#![forbid(unsafe_code)]

use crate::request::FETCH_BYTES_MAX;
use vgas_rma::RegionId;

/// The frames of the pool: agents write pages into each other's, and tell of each by a note.
pub const FRAMES: RegionId = RegionId::BLOCKS;

/// The page table, and the words that ranks share with their agent.
pub const TABLE: RegionId = RegionId::PRIVATE;

/// A rank's landings, where all nodes share memory: what other nodes' agents fill with the bytes of its long gets
/// ([`crate::request::InPlace::Fetch`]), each a piece of [`FETCH_BYTES_MAX`] bytes.
pub const LANDINGS: RegionId = RegionId(RegionId::PRIVATE.0 + 1);

/// Bytes of a rank's landings: two gets have as many as they use at a time.
pub const LANDINGS_BYTES: u64 = 16 * FETCH_BYTES_MAX as u64;
