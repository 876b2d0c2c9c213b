//! Sizes and offsets of the two shared regions of a node: frames, and the table that describes them. Pure arithmetic.
//!
//! Both regions are sparse anonymous files: the table has an entry for every page that any rank's tiered segment can
//! ever have, but only touched parts of it cost memory.

use super::PoolError;
use super::counters::Counter;
use super::size::{Blocks, PAGE_BYTES_MIN, PageSize};
use crate::page::PageIndex;
use crate::page::SEGMENTS_MAX;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use vgas_nvm::Whereabouts;
use vgas_rma::address::Rank;

/// Bytes of a row: two rows of neighbouring ranks share a cache line.
pub(super) const ROW_BYTES: u64 = 32;
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
/// What a home keeps back for its own work if all pages are of one size: as much as keeps a device busy, in no fewer frames and no more
/// than so many.
const RESERVE_BYTES: u32 = 4 << 20;
const RESERVE_FRAMES: std::ops::RangeInclusive<u32> = 8..=64;
/// Most threads of an agent.
pub const AGENT_THREADS_MAX: u32 = 16;
const _: () = assert!(header::FILLED_HEADS + AGENT_THREADS_MAX as usize * 128 <= header::FREE_HEADS);
const _: () =
    assert!((header::FREE_HEADS + PageSize::COUNT * header::FREE_HEAD_BYTES) as u64 <= header::BYTES);
/// Bytes of what is kept of a block of frames.
pub(super) const BLOCK_CELL_BYTES: u64 = 16;
/// Bytes of what other processes need to read a partition's file, beside what all files have in common.
pub(super) const FILE_BYTES: u64 = Whereabouts::FILE_WORDS as u64 * 8;
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
    /// The top of the stack of blocks without frames, and how often it has changed.
    pub const BLOCKS_HEAD: usize = 256;
    /// How many blocks have no frames.
    pub const BLOCKS_COUNT: usize = 384;
    /// 1 when the agent has ended: nobody answers faults any more.
    pub const CLOSED: usize = 24;
    /// The block that is being emptied plus one, 0 for none; ranks that have pages of it mapped sleep on it: alone on its lines.
    pub const LEAVING: usize = 640;
    /// What the files of all partitions have in common ([`Whereabouts::encode_volume`](vgas_nvm::Whereabouts)).
    pub const VOLUME: usize = 32;
    /// How many faults were ever posted, by all ranks: alone on its lines.
    pub const FAULTS: usize = 512;
    /// For each size of pages, how many frames ranks would like to be free, since the agent looked last.
    pub const WISHES: usize = 768;
    /// For each shard of the agent, the top of the stack of frames that ranks have filled by themselves with its pages, and how
    /// often it has changed: each alone on its lines.
    pub const FILLED_HEADS: usize = 1024;
    /// For each size of pages, the top of the stack of free frames of that size, and how often it has changed; how many these
    /// are; and how many blocks have such frames: each alone on its lines.
    pub const FREE_HEADS: usize = 3072;
    /// From one size to the next.
    pub const FREE_HEAD_BYTES: usize = 256;
    /// How many frames of a size are free, behind its head.
    pub const FREE_COUNT: usize = 128;
    /// How many blocks have frames of the size, behind that.
    pub const BLOCKS_OF_SIZE: usize = 136;
    /// Size of the header.
    pub const BYTES: u64 = 8192;
}

/// What determines the layout of a node's pool; equal in all processes of the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolSpec {
    /// Size of a page, for segments that say nothing else: a power of two from 4 KiB to 4 MiB.
    pub page_bytes: u32,
    /// How large the pool is, in frames of such pages.
    pub frames: u32,
    /// Size of the largest pages that segments may have. The pool changes from pages of one size to those of another in blocks
    /// of so many bytes.
    pub page_bytes_max: u32,
    /// For each rank of the job, the most such pages that its tiered segments can have in all; or as many bytes in pages of
    /// other sizes.
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
    /// The size of pages of segments that say nothing else.
    pub(super) size: PageSize,
    /// `first_page[rank]..first_page[rank + 1]` are the page numbers of a rank, of that size.
    first_page: Vec<u64>,
    /// The numbers of pages of each size begin here, those of the size above first.
    first_of_size: [u64; PageSize::COUNT],
    /// How many numbers there are.
    pages: u64,
    /// Bytes of the pool, and blocks, of which the last may be smaller.
    pub(super) pool_bytes: u64,
    pub(super) frame_blocks: Blocks,
    pub(super) block_count: u32,
    pub(super) slots: u64,
    pub(super) counters: u64,
    pub(super) blocks: u64,
    pub(super) free_cells: u64,
    pub(super) stamps: u64,
    pub(super) frames: u64,
    pub(super) waits: u64,
    pub(super) faults: u64,
    pub(super) files: u64,
    pub(super) rows: u64,
    pub(super) entries: u64,
    table_bytes: u64,
}

impl TableLayout {
    /// Computes the layout, or says what is wrong with the numbers.
    pub fn new(spec: &PoolSpec) -> Result<Self, PoolError> {
        let refuse = |what: String| Err(PoolError::Spec(what));
        let size = PageSize::try_from(spec.page_bytes).map_err(PoolError::Spec)?;
        let largest = PageSize::try_from(spec.page_bytes_max).map_err(PoolError::Spec)?;
        if largest < size {
            return refuse(format!("pages of {} bytes, and {} at most", size.bytes(), largest.bytes()));
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
        let pool_bytes = u64::from(spec.frames) << size.shift();
        if pool_bytes / u64::from(PAGE_BYTES_MIN) > 1 << 30 {
            return refuse(format!("a pool of {pool_bytes} bytes: at most 4 TiB"));
        }
        let frame_blocks = Blocks::of(largest);
        let block_count = pool_bytes.div_ceil(frame_blocks.bytes()) as u32;
        let mut first_of_size = [0; PageSize::COUNT];
        for other in PageSize::all().filter(|&other| other != size) {
            first_of_size[other.index()] = pages;
            pages += first_among(&first_page, size, other, spec.segment_pages_max.len());
        }
        let cells = u64::from(block_count) * u64::from(frame_blocks.units());
        let ranks = u64::from(spec.local_ranks);
        let mut end = header::BYTES;
        let mut take = |bytes: u64| {
            let at = end;
            end = (end + bytes).next_multiple_of(128);
            at
        };
        let slots = take(ranks * u64::from(spec.hazard_slots_per_rank) * SLOT_BYTES);
        let counters = take((ranks + u64::from(spec.agent_threads)) * COUNTERS_BYTES);
        let blocks = take(u64::from(block_count) * BLOCK_CELL_BYTES);
        let free_cells = take(cells * 8);
        let stamps = take(cells * 4);
        let frames = take(cells * FRAME_BYTES);
        let waits = take(ranks * u64::from(spec.wait_slots_per_rank) * WAIT_BYTES);
        let faults = take(ranks * u64::from(FAULT_SLOTS) * FAULT_BYTES);
        let files = take(ranks * u64::from(SEGMENTS_MAX) * FILE_BYTES);
        let rows = take(spec.segment_pages_max.len() as u64 * u64::from(SEGMENTS_MAX) * ROW_BYTES);
        let entries = take(pages * 8);
        Ok(Self {
            spec: spec.clone(),
            size,
            first_page,
            first_of_size,
            pages,
            pool_bytes,
            frame_blocks,
            block_count,
            slots,
            counters,
            blocks,
            free_cells,
            stamps,
            frames,
            waits,
            faults,
            files,
            rows,
            entries,
            table_bytes: end.next_multiple_of(4096),
        })
    }

    /// How many frames for pages of a size are to be free, so that a miss or a staged put finds one at once: evictions of
    /// dirty pages take a write to NVMe, maybe on another node. At most a sixteenth of those that there are, and about what a
    /// device moves at a time: of that, each size has as large a part as it has of the pool, so that several keep no more free
    /// than one.
    pub(super) fn free_target(&self, size: PageSize, among: u32) -> u32 {
        let wanted = u64::from(((4u32 << 20) / size.bytes()).clamp(2, 512));
        let all = u64::from(self.frames_of(size)).max(1);
        let part = (wanted * u64::from(among)).div_ceil(all) as u32;
        part.max(2).min((among / 16).max(1))
    }

    /// How many frames of a size each of so many threads keeps back for its work at the home, of so many that it has of it: as many as keep
    /// a device busy if all are of this size, and the same part of that as of the frames; no more than a sixteenth of them, which leaves the pool usable.
    pub(crate) fn reserve_target(&self, size: PageSize, among: u32, threads: u32) -> u32 {
        let wanted =
            u64::from((RESERVE_BYTES / size.bytes()).clamp(*RESERVE_FRAMES.start(), *RESERVE_FRAMES.end()));
        let all = u64::from(self.frames_of(size) / threads.max(1)).max(1);
        let part = (wanted * u64::from(among)).div_ceil(all) as u32;
        part.min(among / 16)
    }

    /// How many blocks the pool has.
    pub fn blocks(&self) -> u32 {
        self.block_count
    }

    /// How many blocks pages of a size keep while some segment has such pages: room for what each thread of the agent keeps back,
    /// and for two pages.
    pub fn blocks_at_least(&self, size: PageSize) -> u32 {
        let wanted = self.spec.agent_threads + 2;
        let each = size.frames_in(self.frame_blocks.bytes()).max(1);
        wanted.div_ceil(each).min((self.block_count / 2).max(1))
    }

    /// How many frames for pages of a size the pool has if it has no others.
    pub fn frames_of(&self, size: PageSize) -> u32 {
        let block = self.frame_blocks.bytes();
        (self.pool_bytes / block) as u32 * size.frames_in(block) + size.frames_in(self.pool_bytes % block)
    }

    /// Pages of its further segments that a rank may keep mapped, beside those of the first.
    pub fn mapped_beside_first(&self) -> u32 {
        let pages = self.spec.mapped_pages_per_rank / 4;
        if pages < MAPPED_PAGES_MIN { 0 } else { pages }
    }

    /// The size of pages of segments that say nothing else.
    pub fn page_size(&self) -> PageSize {
        self.size
    }

    /// How many bytes of the pool a block has.
    pub(super) fn bytes_of_block(&self, block: u32) -> u64 {
        let bytes = self.frame_blocks.bytes();
        self.pool_bytes.saturating_sub(u64::from(block) * bytes).min(bytes)
    }

    /// How many ranks the job has.
    pub fn ranks(&self) -> u32 {
        self.spec.segment_pages_max.len() as u32
    }

    /// What it was derived from.
    pub fn spec(&self) -> &PoolSpec {
        &self.spec
    }

    /// Size of region `FRAMES`.
    pub fn frames_bytes(&self) -> u64 {
        self.pool_bytes
    }

    /// Size of region `TABLE`.
    pub fn table_bytes(&self) -> u64 {
        self.table_bytes
    }

    /// Number of pages of the job: page numbers are below it.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// The number of a rank's page of the size that segments have which say nothing else, the same on all nodes; none when the
    /// rank cannot have so many.
    pub fn page_index(&self, owner: Rank, page: u64) -> Option<PageIndex> {
        let numbers = self.numbers_of(owner, self.size)?;
        numbers.start.checked_add(page).filter(|&index| index < numbers.end)
    }

    /// The numbers that a rank's pages of a size can have, the same on all nodes; none of a rank that is not of the job.
    pub fn numbers_of(&self, owner: Rank, size: PageSize) -> Option<Range<PageIndex>> {
        let rank = owner.0 as usize;
        if rank + 1 >= self.first_page.len() {
            return None;
        }
        let first = self.first_of_size[size.index()];
        let bound = |rank| PageIndex(first + first_among(&self.first_page, self.size, size, rank));
        Some(bound(rank)..bound(rank + 1))
    }

    /// How large a page is; any number beyond the last is as large as the last.
    #[inline]
    pub fn size_of(&self, index: PageIndex) -> PageSize {
        if index.0 < self.first_page[self.first_page.len() - 1] {
            self.size
        } else {
            self.other_size_of(index)
        }
    }

    #[cold]
    fn other_size_of(&self, index: PageIndex) -> PageSize {
        let begun = |size: &PageSize| *size != self.size && self.first_of_size[size.index()] <= index.0;
        PageSize::all().rev().find(begun).unwrap_or(self.size)
    }

    /// Whose page a number is, and which of that rank's pages of its size; none when nobody can have it.
    pub fn locate(&self, index: PageIndex) -> Option<(Rank, u64)> {
        if index.0 >= self.pages() {
            return None;
        }
        let size = self.size_of(index);
        let among = index.0 - self.first_of_size[size.index()];
        // Ranks without pages share their first page with the next rank: the last such rank owns it.
        let rank = match size == self.size {
            true => self.first_page.partition_point(|&first| first <= among) - 1,
            false => {
                let ranks = self.first_page.len() - 1;
                let first = |rank| first_among(&self.first_page, self.size, size, rank);
                partition(ranks, |rank| first(rank) <= among) - 1
            }
        };
        let first = first_among(&self.first_page, self.size, size, rank);
        Some((Rank(rank as u32), among - first))
    }

    /// Which thread of the agent of its home, and of each node, a page belongs to. Any number is some thread's.
    pub fn shard_of(&self, page: PageIndex) -> u32 {
        if self.spec.agent_threads == 1 {
            return 0;
        }
        // Neighbouring blocks go to different threads, in no order that a program's own steps could have.
        let mixed = (page.0 / self.spec.block_pages).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        (mixed % u64::from(self.spec.agent_threads)) as u32
    }

    /// The end of the pages from this one on that are certain to have the same thread.
    pub fn block_end(&self, page: PageIndex) -> PageIndex {
        match self.spec.agent_threads {
            1 => PageIndex::MAX,
            _ => PageIndex(page.0 | (self.spec.block_pages - 1)).saturating_add(1),
        }
    }

    /// A number that differs, with near certainty, when two processes mean different layouts.
    pub(super) fn fingerprint(&self) -> u64 {
        let spec = &self.spec;
        let numbers = [spec.page_bytes, spec.frames, spec.local_ranks, spec.wait_slots_per_rank]
            .into_iter()
            .chain([spec.page_bytes_max])
            .chain([spec.hazard_slots_per_rank, spec.mapped_pages_per_rank, spec.agent_threads])
            .map(u64::from)
            .chain([spec.block_pages])
            .chain(spec.segment_pages_max.iter().copied());
        // FNV-1a over whole words: no secrets here, only mistakes to be noticed.
        numbers.fold(0xcbf2_9ce4_8422_2325, |hash, n| (hash ^ n).wrapping_mul(0x0000_0100_0000_01b3))
    }
}

/// Where a rank's pages of a size begin among all of that size, when its pages of another begin there: as many bytes before it,
/// and room for the one page more that each rank before it may need when these are larger.
fn first_among(first_page: &[u64], of: PageSize, size: PageSize, rank: usize) -> u64 {
    let first = first_page[rank];
    match (of.shift(), size.shift()) {
        (of, size) if size <= of => first << (of - size),
        (of, size) => (first >> (size - of)) + rank as u64,
    }
}

/// The first of `0..count` for which this is false.
fn partition(count: usize, is_before: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low.midpoint(high);
        if is_before(middle) { low = middle + 1 } else { high = middle }
    }
    low
}

#[cfg(test)]
impl PoolSpec {
    /// A hundred frames of the smallest pages, on a node of two ranks.
    pub(crate) fn small(segment_pages_max: Vec<u64>) -> Self {
        Self {
            page_bytes: 4096,
            frames: 100,
            page_bytes_max: 4 << 20,
            segment_pages_max,
            local_ranks: 2,
            wait_slots_per_rank: 4,
            hazard_slots_per_rank: 3,
            mapped_pages_per_rank: 8,
            agent_threads: 1,
            block_pages: 512,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> PoolSpec {
        PoolSpec::small(vec![3, 0, 5])
    }

    #[test]
    fn pages_are_numbered_through_all_segments() {
        let layout = TableLayout::new(&spec()).unwrap();
        let mut seen = 0;
        for rank in 0..3 {
            for page in 0..layout.spec.segment_pages_max[rank as usize] {
                let index = layout.page_index(Rank(rank), page).unwrap();
                assert_eq!(index, PageIndex(seen));
                assert_eq!(layout.locate(index), Some((Rank(rank), page)));
                seen += 1;
            }
            assert_eq!(layout.page_index(Rank(rank), layout.spec.segment_pages_max[rank as usize]), None);
        }
        assert_eq!(layout.locate(PageIndex(layout.pages())), None);
        assert_eq!(layout.page_index(Rank(3), 0), None);
        assert_eq!(layout.page_index(Rank(0), u64::MAX), None);
    }

    /// Goal: a number tells how large the page is and whose; ranks can have all their bytes in pages of any size, and no two
    /// ranks or sizes have a number in common.
    #[test]
    fn numbers_of_all_sizes_tell_whose_page_it_is() {
        for page_bytes in [4096, 65536, 4 << 20] {
            let spec = PoolSpec { page_bytes, segment_pages_max: vec![3, 0, 5000, 1, 1025], ..spec() };
            let layout = TableLayout::new(&spec).unwrap();
            let mut seen = 0;
            let sizes = PageSize::all().filter(|size| size.bytes() != page_bytes);
            for size in PageSize::of_bytes(page_bytes).into_iter().chain(sizes) {
                for (rank, &pages) in (0..).map(Rank).zip(&spec.segment_pages_max) {
                    let numbers = layout.numbers_of(rank, size).unwrap();
                    assert_eq!(numbers.start.0, seen, "{size:?} of {rank}");
                    seen = numbers.end.0;
                    let bytes = pages * u64::from(page_bytes);
                    let most = numbers.end - numbers.start;
                    assert!(
                        most >= bytes.div_ceil(u64::from(size.bytes())),
                        "{most} of {size:?} for {bytes}"
                    );
                    for page in
                        [0, 1, most / 2, most.saturating_sub(1)].into_iter().filter(|&page| page < most)
                    {
                        assert_eq!(layout.locate(numbers.start + page), Some((rank, page)));
                        assert_eq!(layout.size_of(numbers.start + page), size);
                    }
                }
            }
            assert_eq!(layout.pages(), seen);
            assert_eq!(layout.numbers_of(Rank(5), layout.page_size()), None);
        }
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
                let shard = layout.shard_of(PageIndex(page));
                counts[shard as usize] += 1;
                let end = layout.block_end(PageIndex(page)).0;
                assert!(end > page && layout.shard_of(PageIndex(end - 1)) == shard);
            }
            let fair = 8 * 4096 / threads;
            assert!(counts.iter().all(|&count| count > fair / 2 && count < fair * 2), "{counts:?}");
        }
    }
}
