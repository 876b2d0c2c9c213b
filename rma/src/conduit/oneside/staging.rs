//! Registered memory for data in unregistered memory: the payloads of puts and gets of private memory, and
//! control messages that are too large to be sent inline. A source may be reused as soon as a send is
//! accepted, but the device reads later; so the bytes are copied here first.

use std::sync::{Mutex, PoisonError};

/// The unit: a message without a long payload fits in it.
pub(in crate::conduit) const SLOT_BYTES: usize = 8 << 10;

/// A run of slots, to be given back with [`Staging::free`].
#[derive(Debug, PartialEq, Eq)]
pub(in crate::conduit) struct Slots {
    first: usize,
    count: usize,
}

impl Slots {
    /// Offset of the first byte in the memory.
    pub(in crate::conduit) fn offset(&self) -> usize {
        self.first * SLOT_BYTES
    }
}

/// Registered memory, parts of which are taken and given back.
pub(in crate::conduit) struct Staging<R> {
    pub(in crate::conduit) memory: R,
    map: Mutex<SlotTable>,
}

impl<R> Staging<R> {
    /// All of `memory`, which has `bytes` bytes, a multiple of [`SLOT_BYTES`].
    pub(in crate::conduit) fn new(memory: R, bytes: usize) -> Self {
        Self { memory, map: Mutex::new(SlotTable::new(bytes / SLOT_BYTES)) }
    }

    /// Takes room for `bytes` bytes, at least one slot; none at the moment.
    pub(in crate::conduit) fn take(&self, bytes: usize) -> Option<Slots> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner).take(bytes.div_ceil(SLOT_BYTES).max(1))
    }

    /// Gives room back, if there is some.
    pub(in crate::conduit) fn free(&self, slots: Option<Slots>) {
        if let Some(slots) = slots {
            self.map.lock().unwrap_or_else(PoisonError::into_inner).free(slots);
        }
    }
}

/// Table of taken slots. First fit from the end of the last search: slots taken together are given back
/// together, so the free runs stay long.
struct SlotTable {
    taken: Vec<bool>,
    next: usize,
}

impl SlotTable {
    fn new(slots: usize) -> Self {
        Self { taken: vec![false; slots], next: 0 }
    }

    fn take(&mut self, count: usize) -> Option<Slots> {
        // Most are small, and find the next one free.
        if count == 1
            && let Some(taken @ false) = self.taken.get_mut(self.next)
        {
            *taken = true;
            self.next += 1;
            return Some(Slots { first: self.next - 1, count });
        }
        let first = self.find(self.next, count).or_else(|| self.find(0, count))?;
        self.taken[first..first + count].fill(true);
        self.next = first + count;
        Some(Slots { first, count })
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

    fn free(&mut self, slots: Slots) {
        let range = slots.first..slots.first + slots.count;
        debug_assert!(self.taken[range.clone()].iter().all(|&taken| taken), "{slots:?} are free already");
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
            let mut map = SlotTable::new(16);
            let mut held: Vec<Slots> = Vec::new();
            for size in sizes {
                match map.take(size) {
                    Some(slots) => {
                        for other in &held {
                            let apart = slots.first + slots.count <= other.first
                                || other.first + other.count <= slots.first;
                            prop_assert!(apart, "{:?} and {:?}", slots, other);
                        }
                        held.push(slots);
                    }
                    None => held.drain(..held.len().div_ceil(2)).for_each(|slots| map.free(slots)),
                }
            }
            held.drain(..).for_each(|slots| map.free(slots));
            prop_assert_eq!(map.take(16), Some(Slots { first: 0, count: 16 }));
            prop_assert_eq!(map.take(1), None);
        }
    }
}
