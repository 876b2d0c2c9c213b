//! Both mappings with their layout: checked access to every word, without unsafe code. The hot path has its own way.

use super::PoolError;
use super::counters::{Counter, CounterSnapshot};
use super::layout::ROW_BYTES;
use super::layout::{
    BLOCK_CELL_BYTES, COUNTERS_BYTES, FAULT_BYTES, FAULT_SLOTS, FILE_BYTES, FRAME_BYTES, PoolSpec,
    SLOT_BYTES, TableLayout, WAIT_BYTES, header,
};
use super::size::{FrameId, PageSize};
use crate::page::PageIndex;
use crate::partition::{PartitionId, SEGMENTS_MAX, SegmentId};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};
use vgas_shm::{Mapping, Span};

const MAGIC: u64 = u64::from_le_bytes(*b"vgaspool");
const VERSION: u32 = 6;

/// Words of a hazard slot, in units of 8 bytes. The first slot of a rank is shared by threads that found no own.
pub(super) mod slot {
    /// Number of the page in use, plus one.
    pub const HAZARD: usize = 0;
    /// Hits of the threads that owned the slot.
    pub const GET_HITS: usize = 1;
    /// Likewise.
    pub const PUT_HITS: usize = 2;
    /// First slot only: how many slots were ever used.
    pub const USED: usize = 3;
    /// First slot only: 1 while a process is attached as this rank.
    pub const ATTACHED: usize = 4;
}

/// In whose hands a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameUse {
    /// In the stack of free frames.
    Free,
    /// The agent's: just popped, being filled, or about to be freed.
    Agent,
    /// Popped by a rank (its number on this node), which fills it.
    Staged {
        /// Number on this node.
        local_rank: u32,
    },
    /// Holds a page.
    Page(PageIndex),
    /// Nobody's, and not to be handed out: its block is being emptied (`blocks.rs`).
    Vacated,
}

const USE_AGENT: u64 = 1 << 63;
const USE_STAGED: u64 = 1 << 62;
/// Of a frame that holds a page of this node's own: the agent knows nothing of the page.
pub(super) const UNKNOWN: u64 = 1 << 61;
/// Of such a frame: its owner uses it through pointers, and keeps it by a pin.
pub(super) const IN_USE: u64 = 1 << 60;
const USE_VACATED: u64 = 1 << 59;

impl FrameUse {
    pub(super) fn word(self) -> u64 {
        match self {
            FrameUse::Free => 0,
            FrameUse::Agent => USE_AGENT,
            FrameUse::Staged { local_rank } => USE_STAGED | u64::from(local_rank),
            FrameUse::Page(page) => page.0 + 1,
            FrameUse::Vacated => USE_VACATED,
        }
    }

    pub(super) fn from_word(word: u64) -> Self {
        match word {
            0 => FrameUse::Free,
            word if word & USE_AGENT != 0 => FrameUse::Agent,
            USE_VACATED => FrameUse::Vacated,
            word if word & USE_STAGED != 0 => FrameUse::Staged { local_rank: word as u32 },
            word => FrameUse::Page(PageIndex((word & !(UNKNOWN | IN_USE)).wrapping_sub(1))),
        }
    }
}

/// How often a frame is pinned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pins {
    /// Read pins.
    pub readers: u16,
    /// Write pins.
    pub writers: u16,
}

impl Pins {
    pub(super) const READER: u32 = 1;
    pub(super) const WRITER: u32 = 1 << 16;

    pub(super) fn from_word(word: u32) -> Self {
        Self { readers: word as u16, writers: (word >> 16) as u16 }
    }

    /// Neither.
    pub fn none(self) -> bool {
        self == Pins::default()
    }
}

/// The two regions of a pool in this process.
pub(super) struct Shared {
    pub layout: TableLayout,
    pub table: Arc<Mapping>,
    pub frames: Arc<Mapping>,
}

impl Shared {
    /// Checks that the mappings have the sizes that the layout needs.
    pub fn new(spec: &PoolSpec, table: Arc<Mapping>, frames: Arc<Mapping>) -> Result<Self, PoolError> {
        let layout = TableLayout::new(spec)?;
        for (name, mapping, need) in
            [("table", &table, layout.table_bytes()), ("frames", &frames, layout.frames_bytes())]
        {
            if (mapping.bytes() as u64) < need {
                let have = mapping.bytes();
                return Err(PoolError::Mismatch(format!("{name}: {need} bytes expected, {have} mapped")));
            }
        }
        Ok(Self { layout, table, frames })
    }

    /// Announces a table whose parts are in place.
    pub fn publish(&self, asymmetric: bool) {
        self.table.atomic_u32(header::VERSION).store(VERSION, Relaxed);
        self.table.atomic_u32(header::ASYMMETRIC).store(u32::from(asymmetric), Relaxed);
        self.table.atomic_u64(header::FINGERPRINT).store(self.layout.fingerprint(), Relaxed);
        self.table.atomic_u64(header::MAGIC).store(MAGIC, Release);
    }

    /// Checks that the creator announced the table that this process expects; whether revocations use `membarrier`.
    pub fn verify(&self) -> Result<bool, PoolError> {
        let mismatch = |what: String| Err(PoolError::Mismatch(what));
        if self.table.atomic_u64(header::MAGIC).load(Acquire) != MAGIC {
            return mismatch("its creator has not finished it".into());
        }
        let version = self.table.atomic_u32(header::VERSION).load(Relaxed);
        if version != VERSION {
            return mismatch(format!("version {version}, this program has {VERSION}"));
        }
        if self.table.atomic_u64(header::FINGERPRINT).load(Relaxed) != self.layout.fingerprint() {
            return mismatch("it was made for other sizes of pages, segments or ranks".into());
        }
        Ok(self.table.atomic_u32(header::ASYMMETRIC).load(Relaxed) != 0)
    }

    pub fn clock(&self) -> &AtomicU32 {
        self.table.atomic_u32(header::CLOCK)
    }

    /// How many frames of a size ranks would like to be free.
    pub fn wish(&self, size: PageSize) -> &AtomicU32 {
        self.table.atomic_u32(header::WISHES + size.index() * 4)
    }

    pub fn check_page(&self, page: PageIndex) -> Result<(), PoolError> {
        check("page", page.0, self.layout.pages())
    }

    /// The size of the pages that a frame is for. An error where no frame begins.
    #[inline]
    pub fn size_of_frame(&self, frame: FrameId) -> Result<PageSize, PoolError> {
        let size = self.size_of_block(self.layout.frame_blocks.of_frame(frame));
        size.filter(|&size| {
            size.begins_at(frame) && frame.offset() + u64::from(size.bytes()) <= self.layout.pool_bytes
        })
        .ok_or(PoolError::OutOfRange {
            what: "frame",
            value: u64::from(frame.0),
            limit: self.layout.pool_bytes / u64::from(super::size::PAGE_BYTES_MIN),
        })
    }

    /// Where a frame's words are among all.
    fn cell(&self, frame: FrameId) -> Result<u64, PoolError> {
        Ok(u64::from(self.layout.frame_blocks.cell(frame, self.size_of_frame(frame)?)))
    }

    /// What is kept of a block: the size of its frames, and what becomes of it.
    pub fn block_state(&self, block: u32) -> Option<&AtomicU64> {
        self.block_word(block, 0)
    }

    /// A block's cell in the stack of blocks without frames; none for a number beyond the pool.
    pub fn block_cell(&self, block: u32) -> Option<&AtomicU64> {
        self.block_word(block, 8)
    }

    fn block_word(&self, block: u32, offset: u64) -> Option<&AtomicU64> {
        let at = self.layout.blocks + u64::from(block) * BLOCK_CELL_BYTES + offset;
        (block < self.layout.block_count).then(|| self.table.atomic_u64(at as usize))
    }

    #[inline]
    pub fn entry(&self, page: PageIndex) -> Result<&AtomicU64, PoolError> {
        self.check_page(page)?;
        Ok(self.table.atomic_u64((self.layout.entries + page.0 * 8) as usize))
    }

    #[inline]
    pub fn stamp(&self, frame: FrameId) -> Result<&AtomicU32, PoolError> {
        self.size_of_frame(frame)?;
        Ok(self.table.atomic_u32((self.layout.stamps + u64::from(frame.0) * 4) as usize))
    }

    fn frame_word(&self, frame: FrameId, offset: u64) -> Result<usize, PoolError> {
        Ok((self.layout.frames + self.cell(frame)? * FRAME_BYTES + offset) as usize)
    }

    #[inline]
    pub fn pins(&self, frame: FrameId) -> Result<&AtomicU32, PoolError> {
        Ok(self.table.atomic_u32(self.frame_word(frame, 0)?))
    }

    #[inline]
    pub fn reservation(&self, frame: FrameId) -> Result<&AtomicU64, PoolError> {
        Ok(self.table.atomic_u64(self.frame_word(frame, 8)?))
    }

    #[inline]
    pub fn frame_use(&self, frame: FrameId) -> Result<&AtomicU64, PoolError> {
        Ok(self.table.atomic_u64(self.frame_word(frame, 16)?))
    }

    pub fn frame_span(&self, frame: FrameId) -> Result<Span, PoolError> {
        let bytes = self.size_of_frame(frame)?.bytes();
        Ok(self.frames.span(frame.offset() as usize, bytes as usize))
    }

    /// The cell in the stack of free frames of its size that a frame of this size has; none for a number beyond the pool.
    pub fn free_cell(&self, frame: FrameId, size: PageSize) -> Option<&AtomicU64> {
        let cell = u64::from(self.layout.frame_blocks.cell(frame, size));
        let is_there = frame.offset() < self.layout.pool_bytes;
        is_there.then(|| self.table.atomic_u64((self.layout.free_cells + cell * 8) as usize))
    }

    /// A frame's cell in the stack of filled frames; none where no frame begins.
    pub fn filled_cell(&self, frame: FrameId) -> Option<&AtomicU64> {
        Some(self.table.atomic_u64(self.frame_word(frame, 24).ok()?))
    }

    /// Where the file of the partition of a rank of this node is, as far as it was said.
    pub fn file_word(
        &self,
        segment: SegmentId,
        local_rank: u32,
        word: usize,
    ) -> Result<&AtomicU64, PoolError> {
        let local_ranks = u64::from(self.layout.spec.local_ranks);
        check("rank of this node", u64::from(local_rank), local_ranks)?;
        check("segment", segment.0.into(), SEGMENTS_MAX.into())?;
        let at =
            self.layout.files + (u64::from(segment.0) * local_ranks + u64::from(local_rank)) * FILE_BYTES;
        Ok(self.table.atomic_u64(at as usize + word * 8))
    }

    /// A word of what the files of all partitions have in common.
    pub fn volume_word(&self, word: usize) -> &AtomicU64 {
        self.table.atomic_u64(header::VOLUME + word * 8)
    }

    /// Where the row of a partition is in the table; none of a segment or rank that cannot be.
    pub fn row_offset(&self, of: PartitionId) -> Option<usize> {
        let ranks = u64::from(self.layout.ranks());
        let (segment, owner) = (u64::from(of.segment.0), u64::from(of.owner.0));
        let is_there = of.segment.0 < SEGMENTS_MAX && owner < ranks;
        is_there.then(|| (self.layout.rows + (segment * ranks + owner) * ROW_BYTES) as usize)
    }

    /// A word of a hazard slot. Panics when out of range: ranks and slots are checked where they enter.
    pub fn slot_word(&self, local_rank: u32, index: u32, word: usize) -> &AtomicU64 {
        self.table.atomic_u64(self.slot_offset(local_rank, index) + word * 8)
    }

    pub fn slot_offset(&self, local_rank: u32, index: u32) -> usize {
        let each = self.layout.spec.hazard_slots_per_rank;
        assert!(local_rank < self.layout.spec.local_ranks && index < each && SLOT_BYTES >= 64);
        let position = u64::from(local_rank) * u64::from(each) + u64::from(index);
        (self.layout.slots + position * SLOT_BYTES) as usize
    }

    /// How many of a rank's slots were ever used.
    pub fn slots_used(&self, local_rank: u32) -> u32 {
        let used = self.slot_word(local_rank, 0, slot::USED).load(Acquire);
        used.min(u64::from(self.layout.spec.hazard_slots_per_rank)) as u32
    }

    pub fn wait_word(&self, local_rank: u32, index: u32, word: usize) -> Result<&AtomicU64, PoolError> {
        let each = self.layout.spec.wait_slots_per_rank;
        check("rank of this node", u64::from(local_rank), u64::from(self.layout.spec.local_ranks))?;
        check("wait slot", u64::from(index), u64::from(each))?;
        let position = u64::from(local_rank) * u64::from(each) + u64::from(index);
        Ok(self.table.atomic_u64((self.layout.waits + position * WAIT_BYTES) as usize + word * 8))
    }

    /// Where a fault slot begins.
    pub fn fault_slot(&self, local_rank: u32, index: u32) -> Result<usize, PoolError> {
        check("rank of this node", u64::from(local_rank), u64::from(self.layout.spec.local_ranks))?;
        check("fault slot", u64::from(index), u64::from(FAULT_SLOTS))?;
        let position = u64::from(local_rank) * u64::from(FAULT_SLOTS) + u64::from(index);
        Ok((self.layout.faults + position * FAULT_BYTES) as usize)
    }

    /// A counter of a rank, or of a thread of the agent when `block` is the number of local ranks or more.
    pub fn counter(&self, block: u32, counter: Counter) -> &AtomicU64 {
        assert!(block < self.layout.spec.local_ranks + self.layout.spec.agent_threads);
        let offset = self.layout.counters + u64::from(block) * COUNTERS_BYTES + counter as u64 * 8;
        self.table.atomic_u64(offset as usize)
    }

    /// A block of counters; a rank's hits are added up from its threads' slots.
    pub fn counters(&self, block: u32) -> CounterSnapshot {
        let mut snapshot = CounterSnapshot::default();
        for &counter in Counter::ALL {
            snapshot.values[counter as usize] = self.counter(block, counter).load(Relaxed);
        }
        if block < self.layout.spec.local_ranks {
            for index in 0..self.slots_used(block) {
                for (counter, word) in
                    [(Counter::GetHits, slot::GET_HITS), (Counter::PutHits, slot::PUT_HITS)]
                {
                    snapshot.values[counter as usize] += self.slot_word(block, index, word).load(Relaxed);
                }
            }
        }
        snapshot
    }
}

fn check(what: &'static str, value: u64, limit: u64) -> Result<(), PoolError> {
    if value < limit { Ok(()) } else { Err(PoolError::OutOfRange { what, value, limit }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_uses_survive_the_word() {
        for used in [
            FrameUse::Free,
            FrameUse::Agent,
            FrameUse::Staged { local_rank: 0 },
            FrameUse::Staged { local_rank: 65_535 },
            FrameUse::Page(PageIndex(0)),
            FrameUse::Page(PageIndex((1 << 58) - 1)),
            FrameUse::Vacated,
        ] {
            let marked = FrameUse::from_word(FrameUse::Page(PageIndex(7)).word() | UNKNOWN | IN_USE);
            assert_eq!(marked, FrameUse::Page(PageIndex(7)));
            assert_eq!(FrameUse::from_word(used.word()), used);
        }
    }
}
