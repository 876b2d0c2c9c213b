//! Registered memory for what lies in unregistered memory: the payloads of puts and gets of private memory, and control
//! messages that are too large to be sent inline. A source may be reused as soon as a send is accepted, but the device
//! reads later; so the bytes are copied here first.

use std::sync::{Mutex, PoisonError};

/// The unit: one receive slot.
pub(in crate::conduit) const BLOCK_BYTES: usize = 8 << 10;

/// A run of blocks, to be given back with [`Staging::free`].
#[derive(Debug, PartialEq, Eq)]
pub(in crate::conduit) struct Blocks {
    first: usize,
    count: usize,
}

impl Blocks {
    /// Offset of the first byte in the memory.
    pub(in crate::conduit) fn offset(&self) -> usize {
        self.first * BLOCK_BYTES
    }
}

/// Registered memory, of which parts are taken and given back.
pub(in crate::conduit) struct Staging<R> {
    pub(in crate::conduit) memory: R,
    map: Mutex<BlockMap>,
}

impl<R> Staging<R> {
    /// All of `memory`, which has `bytes` bytes, a multiple of [`BLOCK_BYTES`].
    pub(in crate::conduit) fn new(memory: R, bytes: usize) -> Self {
        Self { memory, map: Mutex::new(BlockMap::new(bytes / BLOCK_BYTES)) }
    }

    /// Room for so many bytes, at least one block; none at the moment.
    pub(in crate::conduit) fn take(&self, bytes: usize) -> Option<Blocks> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner).take(bytes.div_ceil(BLOCK_BYTES).max(1))
    }

    /// Gives room back, if there is some.
    pub(in crate::conduit) fn free(&self, blocks: Option<Blocks>) {
        if let Some(blocks) = blocks {
            self.map.lock().unwrap_or_else(PoisonError::into_inner).free(blocks);
        }
    }
}

/// Which blocks are taken. First fit from where the last search ended: what is taken together is given back together, so
/// the free runs stay long.
struct BlockMap {
    taken: Vec<bool>,
    next: usize,
}

impl BlockMap {
    fn new(blocks: usize) -> Self {
        Self { taken: vec![false; blocks], next: 0 }
    }

    fn take(&mut self, count: usize) -> Option<Blocks> {
        // Most are small, and find the next one free.
        if count == 1
            && let Some(taken @ false) = self.taken.get_mut(self.next)
        {
            *taken = true;
            self.next += 1;
            return Some(Blocks { first: self.next - 1, count });
        }
        let first = self.find(self.next, count).or_else(|| self.find(0, count))?;
        self.taken[first..first + count].fill(true);
        self.next = first + count;
        Some(Blocks { first, count })
    }

    fn find(&self, from: usize, count: usize) -> Option<usize> {
        let mut run = 0;
        for (index, taken) in self.taken.iter().enumerate().skip(from) {
            run = if *taken { 0 } else { run + 1 };
            if run == count {
                return Some(index + 1 - count);
            }
        }
        None
    }

    fn free(&mut self, blocks: Blocks) {
        let range = blocks.first..blocks.first + blocks.count;
        debug_assert!(self.taken[range.clone()].iter().all(|&taken| taken), "{blocks:?} are free already");
        match &mut self.taken[range] {
            [taken] => *taken = false,
            several => several.fill(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against a plain count: runs never overlap, and an empty map always has room for as much as it is long.
        #[test]
        fn runs_do_not_overlap(sizes in prop::collection::vec(1usize..6, 1..60)) {
            let mut map = BlockMap::new(16);
            let mut held: Vec<Blocks> = Vec::new();
            for size in sizes {
                match map.take(size) {
                    Some(blocks) => {
                        for other in &held {
                            let apart = blocks.first + blocks.count <= other.first
                                || other.first + other.count <= blocks.first;
                            prop_assert!(apart, "{:?} and {:?}", blocks, other);
                        }
                        held.push(blocks);
                    }
                    None => held.drain(..held.len().div_ceil(2)).for_each(|blocks| map.free(blocks)),
                }
            }
            held.drain(..).for_each(|blocks| map.free(blocks));
            prop_assert_eq!(map.take(16), Some(Blocks { first: 0, count: 16 }));
            prop_assert_eq!(map.take(1), None);
        }
    }
}
