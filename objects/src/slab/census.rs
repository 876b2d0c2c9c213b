//! Content of a partition, from its records alone: for inspecting one that is not in use. Any words are
//! answered with numbers.

use super::{Geometry, LARGE, LARGE_COPY, SLAB_BYTES, Use, decode, list_of};
use crate::colour::Slot;
use std::collections::BTreeMap;

/// Content of a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// By kind and size of values, whether large and the bytes of each: the number of slabs, or large
    /// objects, and their bytes.
    pub sizes: BTreeMap<(bool, u64), (u64, u64)>,
    /// Bytes of slabs that were ever used.
    pub used_bytes: u64,
    /// Bytes of those that are free, or were copies.
    pub free_bytes: u64,
    /// Large slots whose colours are used up.
    pub retired: u64,
}

impl Census {
    /// Census of a partition with `used` slabs; `load` gets offsets.
    pub fn of(geometry: Geometry, used: u32, mut load: impl FnMut(u64) -> u32) -> Self {
        let used = used.min(geometry.slabs);
        let mut census = Self { used_bytes: u64::from(used) * SLAB_BYTES, ..Self::default() };
        let mut at = 0;
        while at < used {
            let record = Geometry::record(at);
            let kind = load(record);
            let is_large = kind == LARGE || kind == LARGE_COPY;
            let count = if is_large { load(record + 12).clamp(1, used - at) } else { 1 };
            let bytes = u64::from(count) * SLAB_BYTES;
            let size = match list_of(kind) {
                Some((small, Use::Values)) => Some((false, small.size)),
                None if kind == LARGE => match decode(load(record + 8)) {
                    Slot::Live { .. } => Some((true, bytes)),
                    state => {
                        census.retired += u64::from(state == Slot::Retired);
                        None
                    }
                },
                _ => None,
            };
            match size {
                Some(size) => {
                    let (slabs, total) = census.sizes.entry(size).or_default();
                    (*slabs, *total) = (*slabs + 1, *total + bytes);
                }
                None => census.free_bytes += bytes,
            }
            at += count;
        }
        census
    }
}
