//! A partition that an earlier job has left.
//!
//! Its records say what each slab is for, and that is all that is looked at: which slots of a slab are free,
//! its header says when it is needed. Copies' slots are free, and so are slots whose colours are used up: no
//! process has copies from anywhere yet.

use super::class::{CLASSES, Class, Small};
use super::{Geometry, LARGE, Memory, Slabs, Use, colour_of, decode, header, list_of};
use crate::colour::{Event, Slot, step};
use crate::word::Colour;
use std::collections::BTreeSet;

/// Slabs that are looked at for a free slot before another slab is taken.
const LOOKS: usize = 4;

impl<M: Memory> Slabs<M> {
    /// Opens a partition of an earlier job, which had `live` values in the first slabs, and used `used` of
    /// them at most; otherwise as [`Slabs::new`].
    pub fn reopen(memory: M, geometry: Geometry, last: Colour, live: u64, used: u32) -> Self {
        let used = used.min(geometry.slabs);
        let empty = Self::new(memory, geometry, last);
        let mut slabs = Self { free: Default::default(), free_slabs: 0, live, used, ..empty };
        let mut at = 0;
        while at < used {
            let record = Geometry::record(at);
            let kind = slabs.memory.load(record);
            let mut count = 1;
            match list_of(kind) {
                Some((small, Use::Values)) => {
                    slabs.unseen[usize::from(small.number)].insert(at);
                }
                None if kind == LARGE => {
                    count = slabs.memory.load(record + 12).clamp(1, used - at);
                    if matches!(decode(slabs.memory.load(record + 8)), Slot::Live { .. }) {
                        slabs.sizes.add(Class::Large(count), 1);
                    } else {
                        slabs.give(at, count, Colour::default());
                    }
                }
                None if kind == 0 => slabs.join(at, 1),
                _ => slabs.give(at, 1, Colour::default()),
            }
            at += count;
        }
        if used < geometry.slabs {
            slabs.join(used, geometry.slabs - used);
        }
        slabs
    }

    /// Looks at some slabs of an earlier job, for one with a free slot.
    pub(super) fn look(&mut self, small: Small, of: Use) -> Option<u32> {
        let number = usize::from(small.number);
        for _ in 0..LOOKS {
            let slab = *self.unseen[number].first().filter(|_| of == Use::Values)?;
            self.see(slab);
            if let Some(&found) = self.partial[number * 2].last() {
                return Some(found);
            }
        }
        None
    }

    /// Looks at all slabs of an earlier job.
    pub(super) fn look_everywhere(&mut self) {
        for number in 0..self.unseen.len() {
            while let Some(&slab) = self.unseen[number].first() {
                self.see(slab);
            }
        }
    }

    /// Takes note of the free slots of a slab, if that was not done yet.
    pub(super) fn see(&mut self, slab: u32) {
        let of = list_of(self.memory.load(Geometry::record(slab)));
        let Some((small, _)) = of.filter(|(small, _)| self.unseen[usize::from(small.number)].remove(&slab))
        else {
            return;
        };
        let start = self.geometry.start(slab);
        let live = self.memory.load(start + header::LIVE).min(small.slots);
        self.sizes.add(Class::Small(small.number), live.into());
        if !self.is_full(small, start) {
            self.partial[usize::from(small.number) * 2].push(slab);
        }
        let used = self.memory.load(start + header::FRESH).min(small.slots);
        for slot in 0..used {
            let word = self.memory.load(start + Small::word_offset(slot));
            if let (Slot::Retired, Some((after, _))) =
                (decode(word), step(Slot::Retired, Event::Confirmed, self.last))
            {
                self.count(start + header::RETIRED, -1);
                self.put_slot(small, slab, start + small.slot_offset(slot), after, colour_of(word));
            }
        }
    }

    /// Slabs of each class that were not looked at.
    pub(super) fn none_unseen() -> Vec<BTreeSet<u32>> {
        vec![BTreeSet::new(); CLASSES]
    }
}
