//! Sizes and offsets of the two shared regions of a node: frames, and the table that describes them. Pure arithmetic.
//!
//! Both regions are sparse anonymous files: the table has an entry for every page that any rank's tiered segment can
//! ever have, but only touched parts of it cost memory.

use super::PoolError;
use super::counters::Counter;
use serde::{Deserialize, Serialize};
use vgas_nvm::Whereabouts;
use vgas_rma::address::Rank;

/// A frame of the node's pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FrameId(pub u32);

/// Smallest page: what the NVMe and the virtual memory of the supported machines work in.
pub const PAGE_BYTES_MIN: u32 = 4 << 10;
/// Largest page: beyond it nothing is won (vgasnet IV.B) and a copy would hold up a revocation for too long.
pub const PAGE_BYTES_MAX: u32 = 4 << 20;
/// Bytes of a thread's hazard slot: two cache lines, because neighbouring lines are fetched in pairs.
pub(super) const SLOT_BYTES: u64 = 128;
/// Bytes of a frame's metadata.
pub(super) const FRAME_BYTES: u64 = 32;
/// Bytes of a wait slot.
pub(super) const WAIT_BYTES: u64 = 128;
/// Bytes of an answer that travel in the wait slot itself: what an agent says about a segment.
pub const INLINE_BYTES: usize = 64;
/// Threads of a rank that may wait for a page at the same time because of a fault; further ones wait for a slot.
pub(super) const FAULT_SLOTS: u32 = 16;
/// Bytes of a fault slot: a cache line.
pub(super) const FAULT_BYTES: u64 = 64;
/// Fewest pages that a rank must be able to keep mapped: one instruction may touch two places that each cross from one
/// page to the next, and goes on only when all of them are mapped at once. One more is hidden, and given back with the next
/// fault.
pub const MAPPED_PAGES_MIN: u32 = 5;
/// Most threads of an agent.
pub const AGENT_THREADS_MAX: u32 = 16;
const _: () = assert!(header::FILLED_HEADS as u64 + AGENT_THREADS_MAX as u64 * 128 <= header::BYTES);
/// Bytes of what other processes need to read a segment's file.
pub(super) const FILE_BYTES: u64 = 64;
const _: () = assert!(Whereabouts::WORDS as u64 * 8 <= FILE_BYTES);
/// Bytes of one block of counters; one block per rank of the node, one per thread of its agent.
pub(super) const COUNTERS_BYTES: u64 = 512;
const _: () = assert!(Counter::COUNT as u64 * 8 <= COUNTERS_BYTES);

/// Offsets in the header of the table.
pub(super) mod header {
    /// Written last by the creator.
    pub const MAGIC: usize = 0;
    /// Version of this layout.
    pub const VERSION: usize = 8;
    /// 1 when the agent revokes with `membarrier`, so that users need no fence.
    pub const ASYMMETRIC: usize = 12;
    /// Hash of the specification: both sides must mean the same table.
    pub const FINGERPRINT: usize = 16;
    /// The coarse clock, alone on its lines: read by every hit, written rarely.
    pub const CLOCK: usize = 128;
    /// The top of the stack of free frames, and how often it has changed.
    pub const FREE_HEAD: usize = 256;
    /// How many frames are free.
    pub const FREE_COUNT: usize = 384;
    /// 1 when the agent has ended: nobody answers faults any more.
    pub const CLOSED: usize = 24;
    /// How many faults were ever posted, by all ranks: alone on its lines.
    pub const FAULTS: usize = 512;
    /// How many frames ranks would like to be free, since the agent looked last.
    pub const WISH: usize = 768;
    /// For each shard of the agent, the top of the stack of frames that ranks have filled by themselves with its pages, and how
    /// often it has changed: each alone on its lines.
    pub const FILLED_HEADS: usize = 1024;
    /// Size of the header.
    pub const BYTES: u64 = 4096;
}

/// What determines the layout of a node's pool; equal in all processes of the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolSpec {
    /// Size of a page and of a frame: a power of two from 4 KiB to 4 MiB.
    pub page_bytes: u32,
    /// Number of frames.
    pub frames: u32,
    /// For each rank of the job, the most pages its tiered segment can have.
    pub segment_pages_max: Vec<u64>,
    /// Number of ranks of this node.
    pub local_ranks: u32,
    /// Operations a rank may have waiting at the same time (at most 4096).
    pub wait_slots_per_rank: u32,
    /// Threads of a rank that can use pages without sharing a slot (at most 4096); further threads take turns.
    pub hazard_slots_per_rank: u32,
    /// Pages of its own segment that a rank may keep mapped for plain loads and stores ([`crate::local`]); their frames
    /// cannot be evicted. At least [`MAPPED_PAGES_MIN`], or 0 for none.
    pub mapped_pages_per_rank: u32,
    /// Threads of the node's agent, each with its share of the pages: 1 to [`AGENT_THREADS_MAX`].
    pub agent_threads: u32,
    /// Neighbouring pages that have the same of these threads: so many from each multiple on. A power of two.
    pub block_pages: u64,
}

/// Where everything lies; derived from a [`PoolSpec`].
#[derive(Clone, Debug)]
pub struct TableLayout {
    pub(super) spec: PoolSpec,
    /// `first_page[rank]..first_page[rank + 1]` are the page numbers of a rank.
    first_page: Vec<u64>,
    pub(super) slots: u64,
    pub(super) counters: u64,
    pub(super) free_cells: u64,
    pub(super) stamps: u64,
    pub(super) frames: u64,
    pub(super) waits: u64,
    pub(super) faults: u64,
    pub(super) files: u64,
    pub(super) entries: u64,
    table_bytes: u64,
}

impl TableLayout {
    /// Computes the layout, or says what is wrong with the numbers.
    pub fn new(spec: &PoolSpec) -> Result<Self, PoolError> {
        let refuse = |what: String| Err(PoolError::Spec(what));
        let page = spec.page_bytes;
        if !page.is_power_of_two() || !(PAGE_BYTES_MIN..=PAGE_BYTES_MAX).contains(&page) {
            return refuse(format!("a page of {page} bytes: need a power of two from 4 KiB to 4 MiB"));
        }
        if spec.frames == 0 || spec.frames > 1 << 30 {
            return refuse(format!("{} frames: need 1 to 2^30", spec.frames));
        }
        if spec.local_ranks == 0 || spec.local_ranks > 1 << 16 {
            return refuse(format!("{} ranks on a node", spec.local_ranks));
        }
        for (name, n) in
            [("wait slots", spec.wait_slots_per_rank), ("hazard slots", spec.hazard_slots_per_rank)]
        {
            if !(1..=4096).contains(&n) {
                return refuse(format!("{n} {name} a rank: need 1 to 4096"));
            }
        }
        let mapped = spec.mapped_pages_per_rank;
        if (1..MAPPED_PAGES_MIN).contains(&mapped) {
            return refuse(format!("{mapped} mapped pages a rank: need 0, or at least {MAPPED_PAGES_MIN}"));
        }
        if u64::from(mapped) * u64::from(spec.local_ranks) >= u64::from(spec.frames) {
            let (frames, ranks) = (spec.frames, spec.local_ranks);
            return refuse(format!("{mapped} mapped pages for each of {ranks} ranks in {frames} frames"));
        }
        if !(1..=AGENT_THREADS_MAX).contains(&spec.agent_threads) || !spec.block_pages.is_power_of_two() {
            return refuse(format!(
                "{} threads of an agent, in blocks of {} pages: need 1 to {AGENT_THREADS_MAX}, and a power of two",
                spec.agent_threads, spec.block_pages
            ));
        }
        let mut first_page = Vec::with_capacity(spec.segment_pages_max.len() + 1);
        let mut pages = 0u64;
        first_page.push(0);
        for &segment in &spec.segment_pages_max {
            pages = match pages.checked_add(segment) {
                // 2^48 pages of 4 KiB are far beyond any device and keep the arithmetic below in range.
                Some(sum) if sum <= 1 << 48 => sum,
                _ => return refuse(format!("more than 2^48 pages in all segments ({segment} in one)")),
            };
            first_page.push(pages);
        }
        let ranks = u64::from(spec.local_ranks);
        let mut end = header::BYTES;
        let mut take = |bytes: u64| {
            let at = end;
            end = (end + bytes).next_multiple_of(128);
            at
        };
        let slots = take(ranks * u64::from(spec.hazard_slots_per_rank) * SLOT_BYTES);
        let counters = take((ranks + u64::from(spec.agent_threads)) * COUNTERS_BYTES);
        let free_cells = take(u64::from(spec.frames) * 8);
        let stamps = take(u64::from(spec.frames) * 4);
        let frames = take(u64::from(spec.frames) * FRAME_BYTES);
        let waits = take(ranks * u64::from(spec.wait_slots_per_rank) * WAIT_BYTES);
        let faults = take(ranks * u64::from(FAULT_SLOTS) * FAULT_BYTES);
        let files = take(ranks * FILE_BYTES);
        let entries = take(pages * 8);
        Ok(Self {
            spec: spec.clone(),
            first_page,
            slots,
            counters,
            free_cells,
            stamps,
            frames,
            waits,
            faults,
            files,
            entries,
            table_bytes: end.next_multiple_of(4096),
        })
    }

    /// How many frames are to be free, so that a miss or a staged put finds one at once: evictions of dirty pages take
    /// a write to NVMe, maybe on another node. At most a sixteenth of the pool, and about what a device moves at a time.
    pub fn free_target(&self) -> u32 {
        let wanted = (4u32 << 20) / self.spec.page_bytes;
        wanted.clamp(2, 512).min((self.spec.frames / 16).max(1))
    }

    /// What it was derived from.
    pub fn spec(&self) -> &PoolSpec {
        &self.spec
    }

    /// Size of region `FRAMES`.
    pub fn frames_bytes(&self) -> u64 {
        u64::from(self.spec.frames) * u64::from(self.spec.page_bytes)
    }

    /// Size of region `TABLE`.
    pub fn table_bytes(&self) -> u64 {
        self.table_bytes
    }

    /// Number of pages of the job: page numbers are below it.
    pub fn pages(&self) -> u64 {
        *self.first_page.last().expect("the first bound is always there")
    }

    /// The number of page `page` of a rank's segment, the same on all nodes; none when the segment cannot have it.
    pub fn page_index(&self, owner: Rank, page: u64) -> Option<u64> {
        let first = *self.first_page.get(owner.0 as usize)?;
        let limit = *self.first_page.get(owner.0 as usize + 1)?;
        first.checked_add(page).filter(|&index| index < limit)
    }

    /// Whose page a number is, and which of the segment; none when no segment has it.
    pub fn locate(&self, index: u64) -> Option<(Rank, u64)> {
        if index >= self.pages() {
            return None;
        }
        // Segments without pages share their first page with the next rank: the last such rank owns it.
        let rank = self.first_page.partition_point(|&first| first <= index) - 1;
        Some((Rank(rank as u32), index - self.first_page[rank]))
    }

    /// Which thread of the agent of its home, and of each node, a page belongs to. Any number is some thread's.
    pub fn shard_of(&self, page: u64) -> u32 {
        if self.spec.agent_threads == 1 {
            return 0;
        }
        // Neighbouring blocks go to different threads, in no order that a program's own steps could have.
        let mixed = (page / self.spec.block_pages).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        (mixed % u64::from(self.spec.agent_threads)) as u32
    }

    /// The end of the pages from this one on that are certain to have the same thread.
    pub fn block_end(&self, page: u64) -> u64 {
        match self.spec.agent_threads {
            1 => u64::MAX,
            _ => (page | (self.spec.block_pages - 1)).saturating_add(1),
        }
    }

    /// A number that differs, with near certainty, when two processes mean different layouts.
    pub(super) fn fingerprint(&self) -> u64 {
        let spec = &self.spec;
        let numbers = [spec.page_bytes, spec.frames, spec.local_ranks, spec.wait_slots_per_rank]
            .into_iter()
            .chain([spec.hazard_slots_per_rank, spec.mapped_pages_per_rank, spec.agent_threads])
            .map(u64::from)
            .chain([spec.block_pages])
            .chain(spec.segment_pages_max.iter().copied());
        // FNV-1a over whole words: no secrets here, only mistakes to be noticed.
        numbers.fold(0xcbf2_9ce4_8422_2325, |hash, n| (hash ^ n).wrapping_mul(0x0000_0100_0000_01b3))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> PoolSpec {
        PoolSpec {
            page_bytes: 4096,
            frames: 100,
            segment_pages_max: vec![3, 0, 5],
            local_ranks: 2,
            wait_slots_per_rank: 4,
            hazard_slots_per_rank: 3,
            mapped_pages_per_rank: 8,
            agent_threads: 1,
            block_pages: 512,
        }
    }

    #[test]
    fn pages_are_numbered_through_all_segments() {
        let layout = TableLayout::new(&spec()).unwrap();
        assert_eq!(layout.pages(), 8);
        let mut seen = 0;
        for rank in 0..3 {
            for page in 0..layout.spec.segment_pages_max[rank as usize] {
                let index = layout.page_index(Rank(rank), page).unwrap();
                assert_eq!(index, seen);
                assert_eq!(layout.locate(index), Some((Rank(rank), page)));
                seen += 1;
            }
            assert_eq!(layout.page_index(Rank(rank), layout.spec.segment_pages_max[rank as usize]), None);
        }
        assert_eq!(layout.locate(8), None);
        assert_eq!(layout.page_index(Rank(3), 0), None);
        assert_eq!(layout.page_index(Rank(0), u64::MAX), None);
    }

    #[test]
    fn bad_numbers_are_refused_and_their_neighbours_are_not() {
        let with = |change: fn(&mut PoolSpec)| {
            let mut spec = spec();
            change(&mut spec);
            TableLayout::new(&spec).map(|_| ())
        };
        assert!(with(|s| s.page_bytes = 2048).is_err());
        assert!(with(|s| s.page_bytes = 4097).is_err());
        assert!(with(|s| s.page_bytes = 4 << 20).is_ok());
        assert!(with(|s| s.page_bytes = 8 << 20).is_err());
        assert!(with(|s| s.frames = 0).is_err());
        assert!(with(|s| s.frames = 16).is_err(), "all frames could be mapped");
        assert!(with(|s| s.frames = 17).is_ok());
        assert!(with(|s| (s.frames, s.mapped_pages_per_rank) = (1, 0)).is_ok());
        assert!(with(|s| s.mapped_pages_per_rank = MAPPED_PAGES_MIN - 1).is_err());
        assert!(with(|s| s.mapped_pages_per_rank = MAPPED_PAGES_MIN).is_ok());
        assert!(with(|s| s.local_ranks = 0).is_err());
        assert!(with(|s| s.hazard_slots_per_rank = 0).is_err());
        assert!(with(|s| s.wait_slots_per_rank = 4097).is_err());
        assert!(with(|s| s.agent_threads = 0).is_err());
        assert!(with(|s| s.agent_threads = AGENT_THREADS_MAX).is_ok());
        assert!(with(|s| s.agent_threads = AGENT_THREADS_MAX + 1).is_err());
        assert!(with(|s| s.block_pages = 3).is_err());
        assert!(with(|s| s.segment_pages_max = vec![u64::MAX, 1]).is_err());
        assert!(with(|s| s.segment_pages_max = vec![]).is_ok());
    }

    /// Goal: every page has one thread, neighbours mostly the same, and each thread about as many as the others.
    #[test]
    fn pages_are_shared_out_in_blocks() {
        for threads in [1, 2, 3, 16] {
            let spec = PoolSpec { agent_threads: threads, block_pages: 8, ..spec() };
            let layout = TableLayout::new(&spec).unwrap();
            let mut counts = vec![0; threads as usize];
            for page in 0..8 * 4096 {
                let shard = layout.shard_of(page);
                counts[shard as usize] += 1;
                let end = layout.block_end(page);
                assert!(end > page && layout.shard_of(end - 1) == shard);
            }
            let fair = 8 * 4096 / threads;
            assert!(counts.iter().all(|&count| count > fair / 2 && count < fair * 2), "{counts:?}");
        }
    }
}
