//! All objects of a partition at once: marked as served, and located.

use super::class::{LARGE_REST, SLAB_BYTES, Small};
use super::{
    Class, Geometry, LARGE, LARGE_COPY, LIVE, Memory, RETIRED, SERVED, Slabs, Use, colour_of, header, list_of,
};
use crate::word::Colour;
use std::ops::Range;

/// Returns true if a slot with this word has an object.
fn is_live(word: u32) -> bool {
    word & LIVE != 0 && word & 0xffff != RETIRED
}

impl<M: Memory> Slabs<M> {
    /// Marks all objects as given to others, so that their next writer sees it, and returns their places,
    /// with the allocator's records: ranges of offsets, in order. Copies are not among them.
    pub fn serve_all(&mut self) -> Vec<Range<u64>> {
        let records = Geometry::record(self.used());
        let mut ranges: Vec<_> = std::iter::once(0..records).collect();
        let mut slab = 0;
        while slab < self.used() {
            let (record, start) = (Geometry::record(slab), self.geometry.start(slab));
            let kind = self.memory.load(record);
            let mut slabs = 1;
            match kind {
                0 | LARGE_REST => {}
                LARGE | LARGE_COPY => {
                    slabs = self.memory.load(record + 12).max(1);
                    if kind == LARGE {
                        self.serve(record + 8);
                        ranges.push(start..start + u64::from(slabs) * SLAB_BYTES);
                    }
                }
                kind => {
                    if let Some((small, Use::Values)) = list_of(kind) {
                        let fresh = self.memory.load(start + header::FRESH).min(small.slots);
                        (0..fresh).for_each(|slot| self.serve(start + Small::word_offset(slot)));
                        ranges.push(start..start + small.slot_offset(fresh));
                    }
                }
            }
            slab += slabs;
        }
        ranges
    }

    pub(super) fn serve(&self, at: u64) {
        let word = self.memory.load(at);
        if is_live(word) && word & SERVED == 0 {
            self.memory.store(at, word | SERVED);
        }
    }

    /// Returns true if the object that begins there was given to another rank.
    pub fn is_served(&self, offset: u64) -> bool {
        let word = self.geometry.slab_at(offset).and_then(|slab| {
            let kind = self.memory.load(Geometry::record(slab));
            self.geometry.word_of(offset, class_of(kind)?)
        });
        word.map(|at| self.memory.load(at)).is_some_and(|word| is_live(word) && word & SERVED != 0)
    }
}

/// Returns the class of the slots of a slab with such a record.
fn class_of(kind: u32) -> Option<Class> {
    match kind {
        0 | LARGE_REST => None,
        LARGE | LARGE_COPY => Some(Class::Large(0)),
        kind => Class::small((kind & 0xff).wrapping_sub(1)).map(|small| Class::Small(small.number)),
    }
}

impl Geometry {
    /// Returns the offset of the kind of the slab that contains an offset.
    pub fn kind_of(&self, offset: u64) -> Option<u64> {
        self.slab_at(offset).map(Self::record)
    }

    /// Returns the offset of the word of the slot that begins at an offset, in a slab of this kind; none if
    /// none begins there.
    pub fn word_at(&self, offset: u64, kind: u32) -> Option<u64> {
        self.word_of(offset, class_of(kind)?)
    }
}

/// Returns true if a slot with this word has an object in this colour.
pub fn has_object(word: u32, colour: Colour) -> bool {
    is_live(word) && colour_of(word) == colour
}

#[cfg(test)]
mod tests {
    use super::super::tests::{ADDRESS, slabs};
    use super::*;
    use crate::slab::SlotPlace;

    /// Goal: on request, objects are marked as served when their slab has had one in each slot; one that
    /// comes into a freed slot is not.
    #[test]
    fn full_slabs_are_served() {
        for marks in [false, true] {
            let mut slabs = slabs(4 << 20, u16::MAX);
            if marks {
                slabs.mark_full_slabs();
            }
            let class = Class::of(9000, 8).unwrap();
            let Class::Small(number) = class else { panic!("{class:?} is not small") };
            let mut places = Vec::new();
            for _ in 0..Small::new(number).slots {
                assert!(places.iter().all(|place: &SlotPlace| !slabs.is_served(place.offset)));
                places.push(slabs.allocate(class, Use::Values).unwrap());
            }
            assert!(places.iter().all(|place| slabs.is_served(place.offset) == marks));
            slabs.free(places[0].offset, places[0].colour).unwrap();
            let again = slabs.allocate(class, Use::Values).unwrap();
            assert_eq!((again.offset, slabs.is_served(again.offset)), (places[0].offset, false));
        }
    }

    /// Goal: all values are marked and within what is named, of all sizes; copies and free slots are not.
    #[test]
    fn all_values_are_served() {
        let mut slabs = slabs(4 << 20, u16::MAX);
        assert_eq!(slabs.geometry, Geometry::new(ADDRESS, 4 << 20));
        let mut values = Vec::new();
        for size in [8, 40, 700, 9000, 200_000] {
            let class = Class::of(size, 8).unwrap();
            for _ in 0..3 {
                let copy = slabs.allocate(class, Use::Copies).unwrap();
                assert!(!slabs.is_served(copy.offset) && slabs.value_at(copy.offset, copy.colour).is_err());
                values.push((slabs.allocate(class, Use::Values).unwrap(), size));
            }
        }
        let (gone, _) = values.remove(1);
        slabs.free(gone.offset, gone.colour).unwrap();
        assert!([0, 64, gone.offset, u64::MAX].iter().all(|at| slabs.value_at(*at, gone.colour).is_err()));
        assert!(values.iter().all(|(place, _)| !slabs.is_served(place.offset)));
        let ranges = slabs.serve_all();
        for (SlotPlace { offset, colour }, size) in values {
            assert!(slabs.is_served(offset));
            assert!(
                ranges.iter().any(|range| range.contains(&offset) && offset + size <= range.end),
                "{size}"
            );
            let kind = slabs.memory.load(slabs.geometry.kind_of(offset).unwrap());
            let word = slabs.memory.load(slabs.geometry.word_at(offset, kind).unwrap());
            assert!(has_object(word, colour) && !has_object(word, Colour(9)));
            assert!(slabs.value_at(offset, colour).is_ok_and(|bytes| bytes >= size));
            assert!(slabs.value_at(offset + 4, colour).is_err());
        }
        assert!(!slabs.is_served(gone.offset));
        assert!(ranges.windows(2).all(|two| two[0].end <= two[1].start), "{ranges:?}");
    }
}
