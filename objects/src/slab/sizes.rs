//! Number of objects of each size, counted on allocation and free: a query touches no page of the partition.

use super::class::{CLASSES, Class, SLAB_BYTES};
use std::collections::BTreeMap;

/// Objects of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfSize {
    /// Bytes of each slot.
    pub bytes: u64,
    /// Number of objects.
    pub objects: u64,
    /// They have slabs of their own.
    pub is_large: bool,
}

/// Objects of all sizes; no copies, and none of slabs of an earlier job that were not yet inspected.
#[derive(Debug)]
pub(super) struct Sizes {
    small: [u64; CLASSES],
    /// By slabs.
    large: BTreeMap<u32, u64>,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { small: [0; CLASSES], large: BTreeMap::new() }
    }
}

impl Sizes {
    /// So many more.
    pub fn add(&mut self, class: Class, count: u64) {
        match class {
            Class::Small(number) => self.small[usize::from(number) % CLASSES] += count,
            Class::Large(slabs) => *self.large.entry(slabs).or_default() += count,
        }
    }

    /// One less.
    pub fn take(&mut self, class: Class) {
        match class {
            Class::Small(number) => {
                let count = &mut self.small[usize::from(number) % CLASSES];
                *count = count.saturating_sub(1);
            }
            Class::Large(slabs) => {
                if let Some(count) = self.large.get_mut(&slabs) {
                    *count -= 1;
                    if *count == 0 {
                        self.large.remove(&slabs);
                    }
                }
            }
        }
    }

    /// Returns the sizes that have some, the smallest first.
    pub fn all(&self) -> Vec<OfSize> {
        let small = (0..).zip(&self.small).filter(|(_, count)| **count > 0).map(|(number, &objects)| {
            OfSize { bytes: Class::Small(number).bytes(), objects, is_large: false }
        });
        let large = self.large.iter().map(|(&slabs, &objects)| OfSize {
            bytes: u64::from(slabs) * SLAB_BYTES,
            objects,
            is_large: true,
        });
        small.chain(large).collect()
    }
}
