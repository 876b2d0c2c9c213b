//! The allocator of a partition: slabs of slots of one size, and large objects of whole slabs. It touches
//! bytes only through [`Memory`], and does not depend on its user.
//!
//! ```text
//!  partition │ record of each slab │ slab 0              │ slab 1 … │
//!            │ 16 bytes each       │ header words slots  │          │
//! ```
//!
//! State that must outlive a process lies in the partition: a *record* of each slab (its use, the colour
//! below which none of its slots begins, and the state of a large object), and, at the beginning of a slab, a
//! *word* of each slot (its state and colour, see [`crate::colour`]). So a slot's colour continues when it is
//! freed and used again, even by another size. Values and copies of remote values lie in different slabs
//! ([`Use`]), and the slab used last is filled first, so that values born together lie together, and cold
//! apart from hot.

mod census;
mod class;
mod reopen;
mod served;
mod sizes;

pub use census::Census;
pub use class::{Class, SLAB_BYTES, word_address};
pub use served::has_object;
pub use sizes::OfSize;

use crate::colour::{Event, Outcome, Slot, step};
use crate::word::Colour;
use class::{CLASSES, LARGE_REST, Small};
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of a slab's record.
const RECORD_BYTES: u64 = 16;
/// Bytes of a partition before the records: the owner's header.
pub const HEAD_BYTES: u64 = 64;
/// Kind in the record of a large object's first slab.
const LARGE: u32 = LARGE_REST - 1;
/// The same, of a copy.
const LARGE_COPY: u32 = LARGE_REST - 2;
/// The end of a list of free slots.
const NONE: u32 = 0x7fff;
const LIVE: u32 = 0x8000;
const RETIRED: u32 = 0xc000;
/// Bytes of a copy's label: its word, and its serial number at its rank.
pub const LABEL_BYTES: u64 = 16;

/// Offset of the label of a copy of this size.
pub const fn label_offset(bytes: u64) -> u64 {
    bytes.next_multiple_of(8)
}

/// Bit of a slot's word, set by the node that gives the object to another rank.
pub const SERVED: u32 = 1;

/// Words of a partition, at offsets that are multiples of 4. Zeros at first.
pub trait Memory {
    /// Returns the word there.
    fn load(&self, offset: u64) -> u32;
    /// Writes there.
    fn store(&self, offset: u64, word: u32);
}

/// Use of a slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Objects of this partition.
    Values = 0,
    /// Copies of other ranks' objects.
    Copies = 1,
}

/// Nothing is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no {bytes} bytes are free in {} of {of} bytes{}; free objects, or attach the heap with more bytes a rank (HeapOptions::bytes)",
    whose(*rank), asked(*others)
)]
pub struct Full {
    /// Bytes requested.
    pub bytes: u64,
    /// Size of the partition.
    pub of: u64,
    /// Rank of the partition, if known.
    pub rank: Option<u32>,
    /// So many other ranks were asked, and have no room either.
    pub others: u32,
}

fn whose(rank: Option<u32>) -> String {
    rank.map_or_else(|| "a partition".into(), |rank| format!("the partition of rank {rank}"))
}

fn asked(others: u32) -> String {
    match others {
        0 => String::new(),
        1 => ", nor in that of one other rank".into(),
        others => format!(", nor in those of {others} other ranks"),
    }
}

/// A free of something that is no object: it was freed before, or a peer has sent nonsense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no object is at offset {offset} of the partition (colour {})", colour.0)]
pub struct NoObject {
    /// Its offset.
    pub offset: u64,
    /// In which colour.
    pub colour: Colour,
}

/// Place of a new object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotPlace {
    /// From the beginning of the partition.
    pub offset: u64,
    /// First colour of its word.
    pub colour: Colour,
}

/// Layout of a partition: the same in every process that knows its address and size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    bytes: u64,
    /// Offset of the first slab.
    first: u64,
    slabs: u32,
}

impl Geometry {
    /// Layout of a partition of this size at this address.
    pub fn new(address: u64, bytes: u64) -> Self {
        let most = bytes / (SLAB_BYTES + RECORD_BYTES);
        let end = address + HEAD_BYTES + RECORD_BYTES * most;
        let first = end.next_multiple_of(SLAB_BYTES) - address;
        let slabs = (bytes.saturating_sub(first) / SLAB_BYTES).min(most).min(u64::from(LARGE_REST));
        Self { bytes, first, slabs: slabs as u32 }
    }

    fn record(slab: u32) -> u64 {
        HEAD_BYTES + RECORD_BYTES * u64::from(slab)
    }

    fn slab_at(&self, offset: u64) -> Option<u32> {
        let slab = offset.checked_sub(self.first)? / SLAB_BYTES;
        (slab < u64::from(self.slabs)).then_some(slab as u32)
    }

    fn start(&self, slab: u32) -> u64 {
        self.first + SLAB_BYTES * u64::from(slab)
    }

    /// Returns the base to which a 4096th of a large object's address is added for the address of its word,
    /// in a partition at this address.
    pub fn large_words(&self, address: u64) -> u64 {
        // A slab's number is what its address has of slabs more than the first's, and a record is a 4096th of a slab.
        const { assert!(RECORD_BYTES * 4096 == SLAB_BYTES) };
        (address + Self::record(0) + 8).wrapping_sub((address + self.first) >> 12)
    }

    /// Returns the offset of the word of an object's slot; none if no object of this class can be there.
    #[inline]
    pub fn word_of(&self, offset: u64, class: Class) -> Option<u64> {
        let slab = self.slab_at(offset)?;
        let start = self.start(slab);
        match class {
            Class::Small(number) => {
                let slot = Small::new(number).slot_at(offset - start)?;
                Some(start + Small::word_offset(slot))
            }
            Class::Large(_) => (offset == start).then_some(Self::record(slab) + 8),
        }
    }
}

/// The state of a slot in its word, and the next free slot of one that is free.
fn encode(slot: Slot, colour: Colour, next: u32) -> u32 {
    let low = match slot {
        Slot::Free(_) => next,
        Slot::Live { served } => LIVE | (u32::from(served) * SERVED),
        Slot::Retired => RETIRED,
    };
    (u32::from(colour.0) << 16) | low
}

fn decode(word: u32) -> Slot {
    match word & 0xffff {
        RETIRED => Slot::Retired,
        low if low & LIVE != 0 => Slot::Live { served: low & SERVED != 0 },
        _ => Slot::Free(colour_of(word)),
    }
}

fn colour_of(word: u32) -> Colour {
    Colour((word >> 16) as u16)
}

/// Decodes a slab's record: its slots and use, if it has any.
fn list_of(kind: u32) -> Option<(Small, Use)> {
    let small = Class::small((kind & 0xff).wrapping_sub(1)).filter(|_| kind < LARGE_COPY)?;
    Some((small, if kind >> 8 == Use::Copies as u32 { Use::Copies } else { Use::Values }))
}

/// The allocator.
#[derive(Debug)]
pub struct Slabs<M> {
    memory: M,
    geometry: Geometry,
    last: Colour,
    /// Unused slabs: first and number.
    free: BTreeMap<u32, u32>,
    /// Their total number.
    free_slabs: u32,
    /// By class and use: slabs with a free slot, the one used last at the end.
    partial: Vec<Vec<u32>>,
    /// By class: slabs of values left by an earlier job that were not yet inspected.
    unseen: Vec<BTreeSet<u32>>,
    /// Offsets of slots whose colours are used up.
    retired: Vec<u64>,
    live: u64,
    sizes: sizes::Sizes,
    /// Slabs from here on were never anybody's.
    used: u32,
    /// The objects of a slab are marked as served when all of its slots have had one.
    marks_full: bool,
}

/// Words of a slab's header.
mod header {
    pub const FREE: u64 = 0;
    pub const LIVE: u64 = 4;
    pub const FRESH: u64 = 8;
    pub const RETIRED: u64 = 12;
}

impl<M: Memory> Slabs<M> {
    /// Allocator of a partition that is all zeros. A slot has colours up to `last`.
    pub fn new(memory: M, geometry: Geometry, last: Colour) -> Self {
        let free = (geometry.slabs > 0).then_some((0, geometry.slabs)).into_iter().collect();
        let partial = vec![Vec::new(); 2 * CLASSES];
        let unseen = Self::none_unseen();
        let (free_slabs, retired, sizes) = (geometry.slabs, Vec::new(), Default::default());
        let (live, used, marks_full) = (0, 0, false);
        Self {
            memory,
            geometry,
            last,
            free,
            free_slabs,
            partial,
            unseen,
            retired,
            live,
            sizes,
            used,
            marks_full,
        }
    }

    /// From now on, marks the objects of a slab as served when all of its slots have had one. The slab is still being written then; a mark by
    /// the first reader would write a page back that is only read. A marked object takes another colour when it is written next.
    pub fn mark_full_slabs(&mut self) {
        self.marks_full = true;
    }

    /// Returns the number of objects.
    pub fn live(&self) -> u64 {
        self.live
    }

    /// Returns the number of objects of each size, the smallest first: no copies, and none in slabs of an
    /// earlier job that were not yet inspected.
    pub fn sizes(&self) -> Vec<OfSize> {
        self.sizes.all()
    }

    /// Returns the number of slabs, from the first on, that were ever used.
    pub fn used(&self) -> u32 {
        self.used
    }

    /// Returns the number of unused slabs.
    pub fn free_slabs(&self) -> u32 {
        self.free_slabs
    }

    /// Returns the offsets of slots whose colours are used up.
    pub fn retired(&self) -> &[u64] {
        &self.retired
    }

    /// Finds room.
    ///
    /// # Errors
    /// When none is left.
    pub fn allocate(&mut self, class: Class, of: Use) -> Result<SlotPlace, Full> {
        self.allocate_leaving(class, of, 0)
    }

    /// Allocates, but takes no slab unless `spare` others stay free.
    ///
    /// # Errors
    /// When none is left.
    pub fn allocate_leaving(&mut self, class: Class, of: Use, spare: u32) -> Result<SlotPlace, Full> {
        let place = match class {
            Class::Small(number) => self.allocate_small(Small::new(number), of, spare)?,
            Class::Large(slabs) => self.allocate_large(slabs, of, spare)?,
        };
        self.live += 1;
        if of == Use::Values {
            self.sizes.add(class, 1);
        }
        Ok(place)
    }

    fn full(&self, bytes: u64) -> Full {
        Full { bytes, of: self.geometry.bytes, rank: None, others: 0 }
    }

    fn allocate_small(&mut self, small: Small, of: Use, spare: u32) -> Result<SlotPlace, Full> {
        let list = usize::from(small.number) * 2 + of as usize;
        let known = |slabs: &Self| slabs.partial[list].last().copied();
        let slab = known(self).or_else(|| self.look(small, of)).or_else(|| self.take_small(small, of, spare));
        // Looking for a slab may have found free slots.
        let slab = slab.or_else(|| known(self)).ok_or(self.full(small.size))?;
        let start = self.geometry.start(slab);
        let (free, fresh) = (self.memory.load(start + header::FREE), self.memory.load(start + header::FRESH));
        let (slot, next) = match free {
            NONE => {
                self.memory.store(start + header::FRESH, fresh + 1);
                let floor = self.memory.load(Geometry::record(slab) + 4);
                (fresh, Colour(floor as u16))
            }
            slot => {
                let word = self.memory.load(start + Small::word_offset(slot));
                self.memory.store(start + header::FREE, word & 0xffff);
                (slot, colour_of(word))
            }
        };
        self.count(start + header::LIVE, 1);
        if self.is_full(small, start) {
            self.partial[list].pop();
        }
        let offset = start + small.slot_offset(slot);
        let word = start + Small::word_offset(slot);
        self.memory.store(word, encode(Slot::Free(next), next, NONE));
        let place = self.begin(offset, word);
        if self.marks_full && of == Use::Values && free == NONE && fresh + 1 == small.slots {
            (0..small.slots).for_each(|slot| self.serve(start + Small::word_offset(slot)));
        }
        Ok(place)
    }

    /// Takes an unused slab for slots of this size.
    fn take_small(&mut self, small: Small, of: Use, spare: u32) -> Option<u32> {
        let slab = self.take(1, spare)?;
        self.memory.store(Geometry::record(slab), (1 + u32::from(small.number)) | ((of as u32) << 8));
        let start = self.geometry.start(slab);
        for (at, word) in [(header::FREE, NONE), (header::LIVE, 0), (header::FRESH, 0), (header::RETIRED, 0)]
        {
            self.memory.store(start + at, word);
        }
        self.partial[usize::from(small.number) * 2 + of as usize].push(slab);
        Some(slab)
    }

    /// Returns true if the slab that starts there has no free slot.
    fn is_full(&self, small: Small, start: u64) -> bool {
        self.memory.load(start + header::FREE) == NONE
            && self.memory.load(start + header::FRESH) >= small.slots
    }

    /// The table's row for a new object.
    fn begin(&self, offset: u64, word: u64) -> SlotPlace {
        let slot = decode(self.memory.load(word));
        match step(slot, Event::Allocate, self.last) {
            Some((live, Outcome::Takes(colour))) => {
                self.memory.store(word, encode(live, colour, NONE));
                SlotPlace { offset, colour }
            }
            _ => unreachable!("only free slots are allocated: {slot:?}"),
        }
    }

    fn allocate_large(&mut self, slabs: u32, of: Use, spare: u32) -> Result<SlotPlace, Full> {
        let first = self.take(slabs, spare).ok_or(self.full(u64::from(slabs) * SLAB_BYTES))?;
        let floors = (first..first + slabs).map(|slab| self.memory.load(Geometry::record(slab) + 4));
        let floor = Colour(floors.max().unwrap_or(0) as u16);
        for slab in first + 1..first + slabs {
            self.memory.store(Geometry::record(slab), LARGE_REST);
        }
        let record = Geometry::record(first);
        self.memory.store(record, if of == Use::Copies { LARGE_COPY } else { LARGE });
        self.memory.store(record + 12, slabs);
        self.memory.store(record + 8, encode(Slot::Free(floor), floor, NONE));
        Ok(self.begin(self.geometry.start(first), record + 8))
    }

    /// Takes the first free slabs in a row, if `spare` others are free.
    fn take(&mut self, slabs: u32, spare: u32) -> Option<u32> {
        let found = |slabs_of: &Self| {
            if slabs_of.free_slabs < slabs.saturating_add(spare) {
                return None;
            }
            slabs_of.free.iter().find(|(_, count)| **count >= slabs).map(|(first, count)| (*first, *count))
        };
        let (first, count) = match found(self) {
            Some(found) => found,
            None => {
                self.look_everywhere();
                found(self)?
            }
        };
        self.free.remove(&first);
        if count > slabs {
            self.free.insert(first + slabs, count - slabs);
        }
        self.free_slabs -= slabs;
        self.used = self.used.max(first + slabs);
        Some(first)
    }

    /// Gives slabs back, with the colour below which nothing in them may begin.
    fn give(&mut self, first: u32, slabs: u32, floor: Colour) {
        for slab in first..first + slabs {
            let record = Geometry::record(slab);
            self.memory.store(record, 0);
            let floor = u32::from(floor.0).max(self.memory.load(record + 4));
            self.memory.store(record + 4, floor);
        }
        self.join(first, slabs);
    }

    /// Slabs are free, with those that are before and after them.
    fn join(&mut self, first: u32, slabs: u32) {
        let (mut from, mut count) = (first, slabs);
        self.free_slabs += slabs;
        if let Some((&before, &its)) =
            self.free.range(..first).next_back().filter(|(at, its)| **at + **its == first)
        {
            self.free.remove(&before);
            (from, count) = (before, its + count);
        }
        if let Some(after) = self.free.remove(&(first + slabs)) {
            count += after;
        }
        self.free.insert(from, count);
    }

    fn count(&self, at: u64, change: i32) {
        self.memory.store(at, self.memory.load(at).wrapping_add_signed(change));
    }

    /// Frees what [`Slabs::allocate`] has given, whose word has this colour now.
    ///
    /// # Errors
    /// If no object begins there, or its colour was never given out.
    pub fn free(&mut self, offset: u64, colour: Colour) -> Result<(), NoObject> {
        let no_object = NoObject { offset, colour };
        let slab = self.geometry.slab_at(offset).ok_or(no_object)?;
        let record = Geometry::record(slab);
        let kind = self.memory.load(record);
        let small = match kind {
            0 | LARGE_REST => return Err(no_object),
            LARGE | LARGE_COPY => None,
            kind => Some(Class::small((kind & 0xff).wrapping_sub(1)).ok_or(no_object)?),
        };
        self.see(slab);
        let class = small.map_or(Class::Large(0), |small| Class::Small(small.number));
        let at = self.geometry.word_of(offset, class).ok_or(no_object)?;
        let start = self.geometry.start(slab);
        if small.is_some_and(|small| {
            small.slot_at(offset - start).is_none_or(|slot| slot >= self.memory.load(start + header::FRESH))
        }) {
            return Err(no_object);
        }
        let word = self.memory.load(at);
        if colour < colour_of(word) || colour > self.last {
            return Err(no_object);
        }
        let (after, _) = step(decode(word), Event::Free(colour), self.last).ok_or(no_object)?;
        self.live -= 1;
        match small {
            Some(small) if list_of(kind).is_some_and(|(_, of)| of == Use::Values) => {
                self.sizes.take(Class::Small(small.number));
            }
            None if kind == LARGE => self.sizes.take(Class::Large(self.memory.load(record + 12))),
            _ => {}
        }
        match (small, after) {
            (_, Slot::Live { .. }) => return Err(no_object),
            (None, Slot::Free(next)) => {
                let slabs = self.memory.load(record + 12);
                self.give(slab, slabs, next);
            }
            (None, Slot::Retired) => {
                self.memory.store(at, encode(after, colour, NONE));
                self.retired.push(offset);
            }
            (Some(small), after) => {
                self.count(start + header::LIVE, -1);
                self.put_slot(small, slab, offset, after, colour);
            }
        }
        Ok(())
    }

    /// Frees a slot of a slab.
    fn put_slot(&mut self, small: Small, slab: u32, offset: u64, after: Slot, colour: Colour) {
        let start = self.geometry.start(slab);
        let Some(slot) = small.slot_at(offset - start) else { return };
        let at = start + Small::word_offset(slot);
        let Slot::Free(next) = after else {
            self.memory.store(at, encode(after, colour, NONE));
            self.count(start + header::RETIRED, 1);
            self.retired.push(offset);
            return;
        };
        let free = self.memory.load(start + header::FREE);
        let was_full = self.is_full(small, start);
        self.memory.store(at, encode(after, next, free));
        self.memory.store(start + header::FREE, slot);
        let of = ((self.memory.load(Geometry::record(slab)) >> 8) & 1) as usize;
        let list = usize::from(small.number) * 2 + of;
        if was_full {
            self.partial[list].push(slab);
        }
        let is_empty = [header::LIVE, header::RETIRED].map(|at| self.memory.load(start + at)) == [0, 0];
        if is_empty {
            self.partial[list].retain(|other| *other != slab);
            // Another size begins its slots elsewhere, where any of these colours may have been seen.
            let fresh = self.memory.load(start + header::FRESH);
            let words = (0..fresh).map(|slot| self.memory.load(start + Small::word_offset(slot)));
            let floor = words.map(colour_of).max().unwrap_or_default();
            self.give(slab, 1, floor);
        }
    }

    /// No node has a copy from this retired place any more: it is used again, from the first colour on.
    ///
    /// # Errors
    /// If it is not retired.
    pub fn confirmed(&mut self, offset: u64) -> Result<(), NoObject> {
        let no_object = NoObject { offset, colour: self.last };
        let at = self.retired.iter().position(|retired| *retired == offset).ok_or(no_object)?;
        let slab = self.geometry.slab_at(offset).ok_or(no_object)?;
        let (after, _) = step(Slot::Retired, Event::Confirmed, self.last).ok_or(no_object)?;
        self.retired.swap_remove(at);
        let kind = self.memory.load(Geometry::record(slab));
        match Class::small((kind & 0xff).wrapping_sub(1)).filter(|_| kind < LARGE_COPY) {
            Some(small) => {
                self.count(self.geometry.start(slab) + header::RETIRED, -1);
                self.put_slot(small, slab, offset, after, Colour::default());
            }
            None => {
                // Floors stay: of addresses inside, where smaller slots have begun, nothing was confirmed.
                let slabs = self.memory.load(Geometry::record(slab) + 12);
                self.give(slab, slabs, Colour::default());
            }
        }
        Ok(())
    }

    /// Returns the size of the slot at this offset.
    ///
    /// # Errors
    /// If no slot can begin there.
    pub fn bytes_at(&self, offset: u64) -> Result<u64, NoObject> {
        let no_object = NoObject { offset, colour: Colour::default() };
        let slab = self.geometry.slab_at(offset).ok_or(no_object)?;
        let within = offset - self.geometry.start(slab);
        let record = Geometry::record(slab);
        match self.memory.load(record) {
            0 | LARGE_REST => Err(no_object),
            LARGE | LARGE_COPY if within == 0 => Ok(u64::from(self.memory.load(record + 12)) * SLAB_BYTES),
            kind => {
                let small = Class::small((kind & 0xff).wrapping_sub(1)).ok_or(no_object)?;
                small.slot_at(within).map(|_| small.size).ok_or(no_object)
            }
        }
    }

    /// Returns the size of the slot of a value that begins there, whose word has this colour.
    ///
    /// # Errors
    /// If no value begins there, or its colour was never given out: what [`Slabs::free`] would refuse, and
    /// copies.
    pub fn value_at(&self, offset: u64, colour: Colour) -> Result<u64, NoObject> {
        let no_object = NoObject { offset, colour };
        let bytes = self.bytes_at(offset).map_err(|_| no_object)?;
        let slab = self.geometry.slab_at(offset).ok_or(no_object)?;
        let kind = self.memory.load(Geometry::record(slab));
        let is_of_values = kind == LARGE || list_of(kind).is_some_and(|(_, of)| of == Use::Values);
        let at = self.geometry.word_at(offset, kind).filter(|_| is_of_values).ok_or(no_object)?;
        if let Some((small, _)) = list_of(kind) {
            let start = self.geometry.start(slab);
            let slot = small.slot_at(offset - start).ok_or(no_object)?;
            if slot >= self.memory.load(start + header::FRESH) {
                return Err(no_object);
            }
        }
        let word = self.memory.load(at);
        match decode(word) {
            Slot::Live { .. } if colour_of(word) <= colour && colour <= self.last => Ok(bytes),
            _ => Err(no_object),
        }
    }

    /// The bytes that it divides.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// Returns the layout of the partition.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }
}

#[cfg(test)]
mod tests;
