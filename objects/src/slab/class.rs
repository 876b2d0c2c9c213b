//! Sizes of slots.

/// Bytes of a slab, and its alignment.
pub const SLAB_BYTES: u64 = 64 << 10;

/// Bytes of the slots of each class. Steps of at most a quarter, so that little of a slot is wasted; once
/// slabs have few slots, a sixth of a slab, a fifth, and so on. Heaps at rest contain the numbers: new
/// classes are added behind.
const SIZES: [u32; 37] = [
    16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 896, 1024, 1280,
    1536, 1792, 2048, 2560, 3072, 3584, 4096, 5120, 6144, 7168, 8192, 10_912, 13_088, 16_368, 21_824, 32_752,
];

/// The largest whose slots begin at multiples of their size.
const ALIGNED_MAX: u64 = 8192;

/// Bit that sets a large class's code apart.
const LARGE_CODE: u32 = 1 << 31;

/// Number of classes.
pub(crate) const CLASSES: usize = SIZES.len();

/// Bytes of a slab before the words of its slots.
pub(crate) const HEADER_BYTES: u64 = 16;

/// Room of an object: a slot of some size, or slabs of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Slots of the size with this number.
    Small(u8),
    /// So many slabs.
    Large(u32),
}

impl Class {
    /// Returns the class for a value of this size, at a multiple of `align`; none if no heap holds it.
    pub const fn of(size: u64, align: u64) -> Option<Self> {
        if !align.is_power_of_two() || align > SLAB_BYTES {
            return None;
        }
        // Slots begin at multiples of 16, those whose size is a power of two at multiples of that; slabs at multiples of any alignment.
        let is_large = align > 16 && (size > ALIGNED_MAX || align > ALIGNED_MAX);
        let size = if align <= 16 || is_large {
            size
        } else {
            (if size > align { size } else { align }).next_power_of_two()
        };
        let mut class = 0;
        while class < CLASSES && !is_large {
            if size <= SIZES[class] as u64 {
                return Some(Self::Small(class as u8));
            }
            class += 1;
        }
        // Also of a value without bytes, if it must lie at a multiple of many.
        let slabs = if size == 0 { 1 } else { size.div_ceil(SLAB_BYTES) };
        if slabs < LARGE_REST as u64 { Some(Self::Large(slabs as u32)) } else { None }
    }

    /// Bytes of a slot or of the slabs.
    #[inline]
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Small(number) => SIZES[number as usize % CLASSES] as u64,
            Self::Large(slabs) => slabs as u64 * SLAB_BYTES,
        }
    }

    /// As a word of messages.
    pub const fn code(self) -> u32 {
        match self {
            Self::Small(number) => number as u32,
            Self::Large(slabs) => LARGE_CODE | slabs,
        }
    }

    /// Decodes a peer's word; none if it is no class.
    pub fn of_code(code: u32) -> Option<Self> {
        match code & !LARGE_CODE {
            slabs if code & LARGE_CODE != 0 => (1..LARGE_REST).contains(&slabs).then_some(Self::Large(slabs)),
            number => ((number as usize) < CLASSES).then_some(Self::Small(number as u8)),
        }
    }

    /// The class with this number in a slab's record.
    pub(crate) fn small(number: u32) -> Option<Small> {
        SMALLS.get(number as usize).copied()
    }
}

/// The records of slabs that belong to a large object, but its first.
pub(crate) const LARGE_REST: u32 = u32::MAX >> 8;

/// Division of a slab into small slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Small {
    pub number: u8,
    pub size: u64,
    pub slots: u32,
    /// Offset of the first slot.
    pub first: u64,
}

/// All of them, so that no access has to compute one.
const SMALLS: [Small; CLASSES] = {
    let mut all = [Small::compute(0); CLASSES];
    let mut number = 1;
    while number < CLASSES {
        all[number] = Small::compute(number as u8);
        number += 1;
    }
    all
};

/// For each class: the offset of a slab's first slot, and the size's reciprocal for a division by
/// multiplication: 2³² over it, rounded up. That is exact for multiples of the size within a slab, since what
/// rounding adds to them is less than 2³² in all.
const SHORT: [(u32, u32); CLASSES] = {
    let mut all = [(0, 0); CLASSES];
    let mut number = 0;
    while number < CLASSES {
        all[number] = (SMALLS[number].first as u32, (1u64 << 32).div_ceil(SMALLS[number].size) as u32);
        number += 1;
    }
    all
};

/// Address of the word of a small object's slot, from the object's address, for slabs begin at multiples of
/// their size. It must be an object of this class: from anything else it leads anywhere.
#[inline]
pub const fn word_address(number: u8, address: u64) -> u64 {
    let (first, part) = SHORT[number as usize % CLASSES];
    let within = (address % SLAB_BYTES) as u32;
    let slot = (within.wrapping_sub(first) as u64 * part as u64) >> 32;
    (address - address % SLAB_BYTES) + HEADER_BYTES + 4 * slot
}

impl Small {
    pub const fn new(number: u8) -> Self {
        SMALLS[number as usize]
    }

    const fn compute(number: u8) -> Self {
        let size = SIZES[number as usize] as u64;
        let align = if size.is_power_of_two() { size } else { 16 };
        let mut slots = (SLAB_BYTES - HEADER_BYTES) / (size + 4);
        loop {
            let first = (HEADER_BYTES + 4 * slots).next_multiple_of(align);
            if first + slots * size <= SLAB_BYTES {
                return Self { number, size, slots: slots as u32, first };
            }
            slots -= 1;
        }
    }

    pub const fn slot_offset(&self, slot: u32) -> u64 {
        self.first + self.size * slot as u64
    }

    pub const fn word_offset(slot: u32) -> u64 {
        HEADER_BYTES + 4 * slot as u64
    }

    /// The slot that begins there in its slab.
    pub const fn slot_at(&self, offset: u64) -> Option<u32> {
        if offset < self.first || !(offset - self.first).is_multiple_of(self.size) {
            return None;
        }
        let slot = (offset - self.first) / self.size;
        if slot < self.slots as u64 { Some(slot as u32) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the fast path from an object to its word ends where the slow one does.
    #[test]
    fn words_are_found_by_address() {
        for number in 0..CLASSES as u8 {
            let small = Small::new(number);
            assert_eq!((small, Class::Small(number).bytes()), (Small::compute(number), small.size));
            for slot in 0..small.slots {
                let address = 7 * SLAB_BYTES + small.slot_offset(slot);
                assert_eq!(
                    word_address(number, address),
                    7 * SLAB_BYTES + Small::word_offset(slot),
                    "{small:?}"
                );
            }
        }
    }

    /// Goal: slots lie in their slab, behind their words, apart from each other, and as aligned as is promised.
    #[test]
    fn slots_fit() {
        // All that Miri could find is found in few of them.
        let (slots, sizes) = if cfg!(miri) { (97, 1009) } else { (1, 7) };
        for number in 0..CLASSES as u8 {
            let small = Small::new(number);
            assert!(Small::word_offset(small.slots) <= small.first, "{small:?}");
            assert!(small.slot_offset(small.slots) <= SLAB_BYTES && small.slots < 0x7fff, "{small:?}");
            for slot in (0..small.slots).step_by(slots) {
                assert_eq!(small.slot_at(small.slot_offset(slot)), Some(slot));
            }
        }
        for align in [1, 8, 16, 32, 64, 4096, 8192, 16_384, 65_536] {
            for size in (0..40_000).step_by(sizes) {
                match Class::of(size, align).unwrap() {
                    Class::Small(number) => {
                        let small = Small::new(number);
                        assert!(small.size >= size && small.size <= (2 * size.max(align)).max(16));
                        assert!(
                            size < 8192 || align > 16 || small.size <= size * 3 / 2 + 16,
                            "{size} {small:?}"
                        );
                        assert!(small.slot_offset(1).is_multiple_of(align), "{size} {align} {small:?}");
                    }
                    Class::Large(slabs) => assert!(slabs > 0 && u64::from(slabs) * SLAB_BYTES >= size),
                }
            }
        }
        for class in
            [Class::Small(0), Class::Small(CLASSES as u8 - 1), Class::Large(1), Class::Large(LARGE_REST - 1)]
        {
            assert_eq!(Class::of_code(class.code()), Some(class));
        }
        for wrong in [CLASSES as u32, LARGE_CODE, LARGE_CODE | LARGE_REST, LARGE_CODE - 1, u32::MAX] {
            assert_eq!(Class::of_code(wrong), None, "{wrong:#x}");
        }
        assert_eq!((Class::of(8, 3), Class::of(8, 1 << 20), Class::of(u64::MAX, 8)), (None, None, None));
    }
}
