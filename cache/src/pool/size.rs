//! Sizes of pages: powers of two, numbered, and where frames of each size stand in the pool.
//!
//! The pool is cut into *blocks*, as large as the largest page that it is to hold. A block holds frames of one size; when none of
//! them holds anything it may be given frames of another ([`super::blocks`]). Whatever its size, a frame is named by where it
//! begins.

use serde::{Deserialize, Serialize};

/// Smallest page: what the NVMe and the virtual memory of the supported machines work in.
pub const PAGE_BYTES_MIN: u32 = 4 << 10;
/// Largest page: beyond it nothing is won (vgasnet IV.B) and a copy would hold up a revocation for too long.
pub const PAGE_BYTES_MAX: u32 = 4 << 20;
const SHIFT_MIN: u32 = PAGE_BYTES_MIN.trailing_zeros();

/// A frame of the node's pool: where it begins, in units of the smallest page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FrameId(pub u32);

impl FrameId {
    /// Where it begins in the pool's memory, in bytes.
    #[inline(always)]
    pub const fn offset(self) -> u64 {
        (self.0 as u64) << SHIFT_MIN
    }

    /// The frame that begins there; none where no frame can begin.
    pub fn at(offset: u64) -> Option<Self> {
        let unit = u32::try_from(offset >> SHIFT_MIN).ok()?;
        offset.is_multiple_of(u64::from(PAGE_BYTES_MIN)).then_some(Self(unit))
    }
}

/// How large a page is: a power of two of bytes from [`PAGE_BYTES_MIN`] to [`PAGE_BYTES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct PageSize(
    /// A page has 2 to this power bytes.
    u8,
);

impl PageSize {
    /// Number of sizes.
    pub const COUNT: usize = (PAGE_BYTES_MAX / PAGE_BYTES_MIN).trailing_zeros() as usize + 1;

    /// All of them, the smallest first.
    pub fn all() -> impl DoubleEndedIterator<Item = Self> {
        (0..Self::COUNT as u8).map(|index| Self(index + SHIFT_MIN as u8))
    }

    /// Of so many bytes; none where no page can have them.
    pub const fn of_bytes(bytes: u32) -> Option<Self> {
        match bytes.is_power_of_two() && bytes >= PAGE_BYTES_MIN && bytes <= PAGE_BYTES_MAX {
            true => Some(Self(bytes.trailing_zeros() as u8)),
            false => None,
        }
    }

    /// From [`PageSize::index`].
    pub(super) fn of_index(index: usize) -> Option<Self> {
        (index < Self::COUNT).then_some(Self(index as u8 + SHIFT_MIN as u8))
    }

    /// From [`PageSize::shift`], for who has kept that: of any other number, what becomes of it is of no size.
    #[inline(always)]
    pub const fn of_shift(shift: u32) -> Self {
        debug_assert!(shift == 0 || SHIFT_MIN <= shift && shift <= PAGE_BYTES_MAX.trailing_zeros());
        Self(shift as u8)
    }

    /// Its number among all, from 0.
    #[inline(always)]
    pub const fn index(self) -> usize {
        self.shift() as usize - SHIFT_MIN as usize
    }

    /// Bytes of a page.
    #[inline(always)]
    pub const fn bytes(self) -> u32 {
        1 << self.shift()
    }

    /// A page has 2 to this power bytes.
    #[inline(always)]
    pub const fn shift(self) -> u32 {
        // The mask changes nothing: it tells the compiler how small the number is.
        self.0 as u32 & 31
    }

    /// Frames of this size in so many bytes of a block.
    pub(super) const fn frames_in(self, bytes: u64) -> u32 {
        (bytes >> self.shift()) as u32
    }

    /// Whether a frame of this size may begin there.
    pub const fn begins_at(self, frame: FrameId) -> bool {
        frame.0.is_multiple_of(1 << self.index())
    }

    /// The frame's number among all of this size that the pool could have.
    pub const fn ordinal(self, frame: FrameId) -> u32 {
        frame.0 >> self.index()
    }

    /// The frame with that number.
    pub const fn nth(self, ordinal: u32) -> FrameId {
        FrameId(ordinal << self.index())
    }
}

/// How large blocks are: a power of two of units of the smallest page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Blocks {
    /// One less than the units.
    unit_mask: u32,
}

impl Blocks {
    /// As large as a page of this size.
    pub const fn of(size: PageSize) -> Self {
        Self { unit_mask: (1 << size.index()) - 1 }
    }

    /// Units of the smallest page in a block.
    pub const fn units(self) -> u32 {
        self.unit_mask + 1
    }

    /// Bytes of a block.
    pub const fn bytes(self) -> u64 {
        self.units() as u64 * PAGE_BYTES_MIN as u64
    }

    /// The block that a frame is in.
    pub const fn of_frame(self, frame: FrameId) -> u32 {
        frame.0 / self.units()
    }

    /// The place of a frame of this size among what is kept of frames, one behind the other for those of a block.
    #[inline(always)]
    pub const fn cell(self, frame: FrameId, size: PageSize) -> u32 {
        let in_block = frame.0 & self.unit_mask;
        (frame.0 - in_block) + ((in_block << SHIFT_MIN) >> size.shift())
    }

    /// The `index`-th frame of a size in a block.
    pub const fn frame(self, block: u32, size: PageSize, index: u32) -> FrameId {
        FrameId(block * self.units() + (index << size.index()))
    }
}

impl TryFrom<u32> for PageSize {
    type Error = String;

    fn try_from(bytes: u32) -> Result<Self, String> {
        Self::of_bytes(bytes)
            .ok_or_else(|| format!("a page of {bytes} bytes: need a power of two from 4 KiB to 4 MiB"))
    }
}

impl From<PageSize> for u32 {
    fn from(size: PageSize) -> u32 {
        size.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_the_powers_of_two() {
        for (index, bytes) in (0..).zip((12..=22).map(|shift| 1u32 << shift)) {
            let size = PageSize::of_bytes(bytes).unwrap();
            assert_eq!((size.index(), size.bytes()), (index, bytes));
            assert_eq!(PageSize::of_index(index), Some(size));
        }
        assert_eq!(PageSize::all().map(|size| size.bytes()).max(), Some(PAGE_BYTES_MAX));
        for bytes in [0, 1, 2048, 4097, 12 << 10, 8 << 20, 1 << 31] {
            assert!(PageSize::of_bytes(bytes).is_none() && PageSize::try_from(bytes).is_err(), "{bytes}");
        }
        assert!(PageSize::of_index(PageSize::COUNT).is_none());
    }

    /// Frames of a block have cells one behind the other, of no other block, and begin where their numbers say.
    #[test]
    fn frames_of_all_sizes_have_cells_of_their_own() {
        for (largest, size) in PageSize::all().flat_map(|one| PageSize::all().map(move |other| (one, other)))
        {
            let blocks = Blocks::of(largest);
            if size > largest {
                assert_eq!(size.frames_in(blocks.bytes()), 0);
                continue;
            }
            let each = size.frames_in(blocks.bytes());
            for (block, index) in [(0, 0), (0, each - 1), (7, 0), (7, each / 2), (7, each - 1)] {
                let frame = blocks.frame(block, size, index);
                assert_eq!(blocks.cell(frame, size), block * blocks.units() + index);
                assert_eq!((blocks.of_frame(frame), size.begins_at(frame)), (block, true));
                let offset = u64::from(block) * blocks.bytes() + u64::from(index) * u64::from(size.bytes());
                assert_eq!((frame.offset(), FrameId::at(offset)), (offset, Some(frame)));
                assert_eq!(size.nth(size.ordinal(frame)), frame);
            }
        }
        assert_eq!((FrameId::at(4095), FrameId::at(u64::MAX - 4095)), (None, None));
    }
}
