//! Rows of the table of segments in the node's shared memory: what each hit looks up, once for all ranks of a node.
//!
//! A rank that has heard of a partition writes its row; all ranks of a node write the same. A row ends, all zeros, when the agent
//! forgets the segment, or when the rank that has attached it by itself gives it up. What a broken process may have written
//! there finds another page, or none: the pool checks each number before it becomes an address.

use super::layout::ROW_BYTES;
use super::size::{PAGE_BYTES_MAX, PageSize};
use crate::page::PageIndex;
use crate::partition::{Partition, PartitionId, Policy};
use std::mem::{offset_of, size_of};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

/// In the flags, beside the policy: puts wait for the rank's next barrier.
const RELAXED: u16 = 1 << 7;
/// In the flags: it cannot be written.
const READ_ONLY: u16 = 1 << 6;

const _: () = assert!(ROW_BYTES == size_of::<Row>() as u64);
/// The words that end a row when they are 0, in this order.
pub(super) const END: [usize; 2] = [offset_of!(Row, plain), offset_of!(Row, bytes)];

/// A partition, as words. All zeros: there is none.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Row {
    /// Bytes that plain hits may reach: none of a partition that is relaxed or can only be read.
    pub(super) plain: AtomicU64,
    /// The number of its first page.
    pub(super) first: AtomicU64,
    bytes: AtomicU64,
    flags: AtomicU16,
    /// A page has 2 to this power bytes, and one more than this.
    shift: AtomicU16,
    mask: AtomicU32,
}

/// A partition, as a rank uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// Its pages.
    pub partition: Partition,
    /// Bytes of it; its last page may have more.
    pub bytes: u64,
    /// Puts wait for the rank's next barrier.
    pub relaxed: bool,
    /// It cannot be written.
    pub read_only: bool,
}

impl Row {
    #[inline(always)]
    pub(super) fn shift(&self) -> u32 {
        self.shift.load(Relaxed).into()
    }

    /// Less than the bytes of the largest pages, whoever has written it.
    #[inline(always)]
    pub(super) fn mask(&self) -> u32 {
        self.mask.load(Relaxed) & (PAGE_BYTES_MAX - 1)
    }

    /// The number of the first page, and how many bytes plain hits may reach from there.
    pub fn plain(&self) -> (PageIndex, u64) {
        (PageIndex(self.first.load(Relaxed)), self.plain.load(Acquire))
    }

    /// What it says of this partition; none where there is none.
    pub fn read(&self, of: PartitionId) -> Option<Known> {
        let bytes = self.bytes.load(Acquire);
        let (first, flags) = (self.first.load(Relaxed), self.flags.load(Relaxed));
        let size = PageSize::of_bytes(self.mask() + 1)?;
        let partition = Partition {
            segment: of.segment,
            owner: of.owner,
            size,
            first: PageIndex(first),
            pages: bytes.div_ceil(size.bytes().into()),
            policy: Policy::decode(u32::from(flags & !(RELAXED | READ_ONLY))).unwrap_or_default(),
            shared: false,
        };
        let (relaxed, read_only) = (flags & RELAXED != 0, flags & READ_ONLY != 0);
        (bytes > 0).then_some(Known { partition, bytes, relaxed, read_only })
    }

    /// Says what is known.
    pub fn write(&self, known: &Known) {
        let Known { partition, bytes, relaxed, read_only } = known;
        let flag = |on: &bool, flag: u16| if *on { flag } else { 0 };
        let flags = partition.policy.encode() as u16 | flag(relaxed, RELAXED) | flag(read_only, READ_ONLY);
        self.flags.store(flags, Relaxed);
        self.first.store(partition.first.0, Relaxed);
        self.shift.store(partition.size.shift() as u16, Relaxed);
        self.mask.store(partition.size.bytes() - 1, Relaxed);
        self.bytes.store(*bytes, Release);
        // Last, because gets that find it go ahead.
        let is_plain = !relaxed && !read_only;
        self.plain.store(if is_plain { *bytes } else { 0 }, Release);
    }

    /// Ends it.
    pub fn end(&self) {
        self.plain.store(0, Release);
        self.bytes.store(0, Release);
    }
}

impl Known {
    /// Bytes of a page.
    pub fn page_bytes(&self) -> usize {
        self.partition.size.bytes() as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::PageIndex;
    use crate::partition::SegmentId;
    use vgas_rma::address::Rank;

    /// Goal: what is written of a partition is what is read, whatever its policy; nothing is read before, and nothing after the end.
    #[test]
    fn a_row_says_what_was_written() {
        let of = PartitionId { segment: SegmentId(1023), owner: Rank(7) };
        let row = Row::default();
        assert_eq!(row.read(of), None);
        for bits in 0..64u32 {
            let size = PageSize::all().nth(bits as usize % PageSize::COUNT).unwrap();
            let flag = |bit: u32| bits >> bit & 1 != 0;
            let policy = Policy {
                home_only: flag(0),
                in_place: flag(1),
                read_ahead: flag(2),
                streamed: flag(3),
                owned: flag(4),
                weight: 255 - bits as u8,
            };
            let (segment, owner) = (of.segment, of.owner);
            let partition = Partition {
                segment,
                owner,
                size,
                first: PageIndex(1 << 48),
                pages: 3,
                policy,
                shared: false,
            };
            let bytes = partition.bytes() - 1;
            let known = Known { partition, bytes, relaxed: flag(4), read_only: flag(5) };
            row.write(&known);
            assert_eq!(row.read(of), Some(known));
            let plain = if flag(4) || flag(5) { 0 } else { bytes };
            assert_eq!(row.plain(), (PageIndex(1 << 48), plain));
            assert_eq!((row.shift(), row.mask()), (size.shift(), size.bytes() - 1));
            row.end();
            assert_eq!((row.read(of), row.plain().1), (None, 0));
        }
        let broken = Row { bytes: 1.into(), mask: u32::MAX.into(), shift: 99.into(), ..Row::default() };
        assert!(broken.mask() < PAGE_BYTES_MAX && broken.read(of).is_some_and(|known| known.bytes == 1));
    }
}
