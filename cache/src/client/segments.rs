//! What a rank knows of the job's segments: words that any thread looks up without a lock, because every hit does.

use crate::error::Failure;
use crate::partition::{Partition, PartitionId, Policy, SEGMENTS_MAX, SegmentId};
use crate::pool::{PAGE_BYTES_MAX, Page, PageSize};
use crate::request::PageIndex;
use rustc_hash::FxHashMap;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Mutex, OnceLock, PoisonError};
use vgas_rma::address::Rank;

/// In the flags, beside the policy: puts wait for the rank's next barrier.
const RELAXED: u32 = 1 << 31;
/// In the flags: it cannot be written.
const READ_ONLY: u32 = 1 << 30;

/// A partition, as words. All zeros: there is none.
#[derive(Debug, Default)]
struct Cell {
    /// Bytes that plain hits may reach: none of a partition that is relaxed or can only be read.
    plain: AtomicU64,
    /// The number of its first page.
    first: AtomicU64,
    bytes: AtomicU64,
    flags: AtomicU32,
    /// A page has 2 to this power bytes.
    shift: AtomicU32,
}

impl Cell {
    #[inline(always)]
    fn size(&self) -> PageSize {
        PageSize::of_shift(self.shift.load(Relaxed))
    }
}

/// A partition, as a rank uses it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) partition: Partition,
    /// Bytes of it; its last page may have more.
    pub(super) bytes: u64,
    pub(super) relaxed: bool,
    pub(super) read_only: bool,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Segments {
    /// Of the first segment, whose pages have a size that is known: what most programs use, and use most.
    first: OnceLock<Box<[Cell]>>,
    first_size: PageSize,
    /// By segment, once it is known, and by rank.
    cells: [OnceLock<Box<[Cell]>>; SEGMENTS_MAX as usize],
    ranks: u32,
    /// Why some can only be read.
    refused: Mutex<FxHashMap<PartitionId, Failure>>,
}

impl Segments {
    pub(super) fn new(ranks: u32, first_size: PageSize) -> Self {
        let first = OnceLock::new();
        Self {
            first,
            first_size,
            cells: [const { OnceLock::new() }; SEGMENTS_MAX as usize],
            ranks,
            refused: Mutex::default(),
        }
    }

    #[inline(always)]
    fn cells(&self, segment: SegmentId) -> Option<&OnceLock<Box<[Cell]>>> {
        if segment == SegmentId::FIRST { Some(&self.first) } else { self.cells.get(segment.0 as usize) }
    }

    #[inline(always)]
    fn cell(&self, of: PartitionId) -> Option<&Cell> {
        self.cells(of.segment)?.get()?.get(of.owner.0 as usize)
    }

    /// The page of a place that plain hits may reach, and the place in it. Whether the page has all `bytes` bytes is the pool's to
    /// say.
    #[inline(always)]
    pub(super) fn locate(&self, of: PartitionId, offset: u64, bytes: usize) -> Option<(Page, u32)> {
        let cell = self.cell(of)?;
        let (plain, first) = (cell.plain.load(Acquire), cell.first.load(Relaxed));
        let size = if of.segment == SegmentId::FIRST { self.first_size } else { cell.size() };
        // Larger lengths are cut by the cast to the pool's 32 bits.
        if bytes > PAGE_BYTES_MAX as usize || offset > plain || bytes as u64 > plain - offset {
            return None;
        }
        let number = first.wrapping_add(offset >> size.shift());
        Some((Page { number, size }, offset as u32 & (size.bytes() - 1)))
    }

    /// The first page of a partition, and how many bytes plain hits may reach from there.
    pub(super) fn plain(&self, of: PartitionId) -> Option<(PageIndex, u64)> {
        let cell = self.cell(of)?;
        Some((cell.first.load(Relaxed), cell.plain.load(Acquire)))
    }

    /// A partition; none that nobody has made known, or without bytes.
    pub(super) fn find(&self, of: PartitionId) -> Option<Known> {
        let cell = self.cell(of)?;
        let bytes = cell.bytes.load(Acquire);
        let (first, flags) = (cell.first.load(Relaxed), cell.flags.load(Relaxed));
        let size = cell.size();
        let partition = Partition {
            segment: of.segment,
            owner: of.owner,
            size,
            first,
            pages: bytes.div_ceil(size.bytes().into()),
            policy: Policy::decode(flags & !(RELAXED | READ_ONLY)).unwrap_or_default(),
            shared: false,
        };
        let (relaxed, read_only) = (flags & RELAXED != 0, flags & READ_ONLY != 0);
        (bytes > 0).then_some(Known { partition, bytes, relaxed, read_only })
    }

    /// The partition of an owner that a page is of.
    pub(super) fn find_page(&self, owner: Rank, page: PageIndex) -> Option<Partition> {
        let segments = (0..SEGMENTS_MAX).map(SegmentId);
        let mut all = segments.filter_map(|segment| self.find(PartitionId { segment, owner }));
        all.find(|known| known.partition.range().contains(&page)).map(|known| known.partition)
    }

    /// Whether any rank has a part of the first segment, whose pages keep their room as long as the job.
    pub(super) fn has_first(&self) -> bool {
        self.first.get().is_some_and(|cells| cells.iter().any(|cell| cell.bytes.load(Relaxed) > 0))
    }

    /// Why a partition can only be read.
    pub(super) fn refusal(&self, of: PartitionId) -> Option<Failure> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).get(&of).copied()
    }

    /// Makes a partition known. False: there is no such segment or rank.
    pub(super) fn insert(&self, known: Known, refused: Option<Failure>) -> bool {
        let Known { partition, bytes, relaxed, .. } = known;
        let id = partition.id();
        let ranks = self.ranks;
        let cells = self.cells(id.segment).filter(|_| {
            // Its pages are those of segments that say nothing else.
            id.segment != SegmentId::FIRST || partition.size == self.first_size
        });
        let cells = cells.map(|cells| cells.get_or_init(|| (0..ranks).map(|_| Cell::default()).collect()));
        let Some(cell) = cells.and_then(|cells| cells.get(id.owner.0 as usize)) else { return false };
        if let Some(why) = refused {
            self.refused.lock().unwrap_or_else(PoisonError::into_inner).insert(id, why);
        }
        let flag = |on: bool, flag: u32| if on { flag } else { 0 };
        let flags = partition.policy.encode() | flag(relaxed, RELAXED) | flag(refused.is_some(), READ_ONLY);
        cell.flags.store(flags, Relaxed);
        cell.first.store(partition.first, Relaxed);
        cell.shift.store(partition.size.shift(), Relaxed);
        cell.bytes.store(bytes, Release);
        // Last, because gets that find it go ahead.
        let is_plain = !relaxed && refused.is_none();
        cell.plain.store(if is_plain { bytes } else { 0 }, Release);
        true
    }

    /// Forgets a segment, which nobody uses any more.
    pub(super) fn remove(&self, segment: SegmentId) {
        let Some(cells) = self.cells(segment).and_then(OnceLock::get) else { return };
        for (owner, cell) in (0..).map(Rank).zip(cells) {
            cell.plain.store(0, Release);
            cell.bytes.store(0, Release);
            let id = PartitionId { segment, owner };
            self.refused.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
        }
    }
}

impl Known {
    /// Bytes of a page.
    pub(super) fn page_bytes(&self) -> usize {
        self.partition.size.bytes() as usize
    }
}
