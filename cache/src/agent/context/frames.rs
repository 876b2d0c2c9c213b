//! Frames: evicting ahead of need, and the reserve of the home.

use super::NodeContext;
use super::victims::Among;
use crate::agent::items::{ShardMessage, StagingRequest, Waiter};
use crate::error::{CacheError, Failure, FailureKind};
use crate::page::PageIndex;
use crate::partition::Policy;
use crate::pool::{FrameId, FrameUse, PageSize, PageState, PoolError};
use crate::replacement::Queue;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// For how long another shard is believed that has asked for room, in milliseconds: it asks each of them.
const ASKED_MS: u64 = 2;

/// For how long more frames are kept free after a rank has asked for them, in milliseconds: scans ask again sooner.
const WISH_MS: u64 = 20;

/// How many frames somebody wants, and until when, in milliseconds, that is believed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted {
    pub frames: u32,
    pub until_ms: u64,
}

impl Wanted {
    pub fn at(self, now_ms: u64) -> u32 {
        if now_ms <= self.until_ms { self.frames } else { 0 }
    }
}

/// The agent's frames, and who waits for one.
#[derive(Debug)]
pub struct Frames {
    /// Frames whose content waits in the outbox, how often, and whether they are to be released then.
    pub sending: FxHashMap<FrameId, (u32, bool)>,
    /// Pages that need a frame and did not get one.
    pub starved: VecDeque<PageIndex>,
    /// Pages that are to be read ahead when there are frames for them, in the order of their readers, with their marks.
    pub later: VecDeque<(PageIndex, bool)>,
    /// Ranks that found no free frame of a size for a put and sleep until there is one.
    pub hungry: Vec<(PageSize, Waiter)>,
    /// Homes that wait for a frame of the reserve.
    pub unstaged: VecDeque<StagingRequest>,
    /// Frames kept back for staging at the home: they are only ever held for NVMe and network operations that end by
    /// themselves, so that evictions cannot wait for each other in a circle.
    reserve: [Vec<FrameId>; PageSize::COUNT],
    /// Free frames for the run of pages that is being started now; the next one is the last.
    pub at_hand: Vec<FrameId>,
    /// [`Shards::refused`](crate::agent::Shards::refused) when that was too many the last time.
    pub refused_before: u32,
    /// When the other shards were asked for room last, in milliseconds.
    asked_ms: u64,
    /// By size: how many frames another shard waits for that has nothing to evict, and until when it is believed.
    asked: [Wanted; PageSize::COUNT],
    /// By size: how many frames ranks would like to be free, and until when.
    wished: [Wanted; PageSize::COUNT],
    /// When evictions that nobody waits for are worth trying again, in milliseconds.
    pub evict_again_ms: u64,
    /// How long such a while was the last time.
    pub pause_ms: u64,
}

impl Frames {
    /// None yet.
    pub fn new() -> Self {
        Self {
            sending: FxHashMap::default(),
            starved: VecDeque::new(),
            later: VecDeque::new(),
            hungry: Vec::new(),
            unstaged: VecDeque::new(),
            reserve: Default::default(),
            at_hand: Vec::new(),
            refused_before: 0,
            asked_ms: 0,
            asked: Default::default(),
            wished: Default::default(),
            evict_again_ms: 0,
            pause_ms: 0,
        }
    }
}

impl NodeContext {
    /// Shows a page that has come into a frame, which may be evicted from now on.
    #[inline]
    pub fn install(
        &mut self,
        page: PageIndex,
        frame: FrameId,
        state: PageState,
        ahead: bool,
    ) -> Result<(), CacheError> {
        self.pool.install(page, frame, state, ahead)?;
        self.may_be_evicted(frame)
    }

    /// Hides a page; returns its frame, which replacement does not know any more.
    #[inline]
    pub fn detach(&mut self, page: PageIndex) -> Result<Option<FrameId>, CacheError> {
        let frame = self.pool.detach(page)?;
        frame.into_iter().try_for_each(|frame| self.victims.remove(&self.pool, frame).map(drop))?;
        Ok(frame)
    }

    /// The pages of all frames, of all shards.
    pub fn cached_pages(&self) -> impl Iterator<Item = PageIndex> + '_ {
        self.pool.frames().filter_map(|frame| match self.pool.frame_use(frame) {
            Ok(FrameUse::Page(page)) => Some(page),
            _ => None,
        })
    }

    /// Whether nothing keeps the page of a frame from being evicted.
    #[inline]
    pub fn is_evictable(&self, frame: FrameId, now_ms: u64) -> bool {
        self.pool.evictable(frame, now_ms)
    }

    /// Free frames of a size.
    #[inline]
    pub fn free_frames(&self, size: PageSize) -> u32 {
        self.pool.free_frames(size)
    }

    /// Returns how large a frame is.
    #[inline]
    pub fn size_of_frame(&self, frame: FrameId) -> Result<PageSize, PoolError> {
        self.pool.size_of_frame(frame)
    }

    /// Returns how many frames of a size are to be free.
    #[inline]
    pub fn free_target(&self, size: PageSize) -> u32 {
        self.pool.free_target(size)
    }

    /// Returns frames that ranks have given back to the free ones.
    pub fn reclaim(&mut self) {
        self.pool.reclaim();
    }

    /// Returns how many frames of a size ranks would like to be free, and whatever they would have a while ago.
    pub fn take_wish(&mut self, size: PageSize) -> u32 {
        let (wish, now_ms) = (self.pool.take_wish(size), self.time.now_ms);
        let wished = &mut self.frames.wished[size.index()];
        if wish > 0 {
            *wished = Wanted { frames: wish, until_ms: now_ms + WISH_MS };
        }
        wished.at(now_ms)
    }

    /// Takes over a frame that a rank has filled.
    pub fn adopt(&self, frame: FrameId, local_rank: u32) -> Result<(), PoolError> {
        self.pool.adopt(frame, local_rank)
    }

    /// Tells ranks that sleep until a frame is free.
    pub fn feed_hungry(&mut self) -> Result<(), CacheError> {
        let hungry = std::mem::take(&mut self.frames.hungry);
        for (size, waiter) in hungry {
            if self.pool.free_frames(size) == 0 {
                self.frames.hungry.push((size, waiter));
                continue;
            }
            self.shards.somebody_got_a_frame();
            self.complete(waiter, Ok(()))?;
        }
        Ok(())
    }

    /// Free frames of a size below which more are made.
    pub fn low_mark(&self, size: PageSize) -> u32 {
        let kept = self.pool.free_target(size);
        kept - kept / 4
    }

    /// How many frames of this size somebody waits for or would like to be free.
    pub fn wished_for(&self, size: PageSize) -> u32 {
        self.needed_for(size).max(self.frames.wished[size.index()].at(self.time.now_ms))
    }

    /// How many frames of this size a page, or another shard, waits for.
    pub fn needed_for(&self, size: PageSize) -> u32 {
        let asked = self.frames.asked[size.index()].at(self.time.now_ms);
        let later = self.frames.later.iter().filter(|(page, _)| self.size_of(*page) == size).count() as u32;
        asked.max(self.waiting_for(size)).max(later)
    }

    /// How many pages of this size wait for a frame.
    pub fn waiting_for(&self, size: PageSize) -> u32 {
        let Frames { starved, unstaged, .. } = &self.frames;
        if starved.is_empty() && unstaged.is_empty() {
            return 0;
        }
        let pages = starved.iter().copied().chain(unstaged.iter().map(StagingRequest::page));
        pages.filter(|&page| self.size_of(page) == size).count() as u32
    }

    /// Whether anybody waits for a frame of this size, as far as this shard knows.
    pub fn is_wanted(&self, size: PageSize) -> bool {
        self.waiting_for(size) > 0
            || self.frames.asked[size.index()].at(self.time.now_ms) > 0
            || self.frames.hungry.iter().any(|(wanted, _)| *wanted == size)
    }

    /// Another shard waits for frames, and has nothing to evict.
    pub fn was_asked_for_room(&mut self, size: PageSize, frames: u32) {
        let until_ms = self.time.now_ms + ASKED_MS;
        self.frames.asked[size.index()] = Wanted { frames, until_ms };
    }

    pub fn is_asked(&self) -> bool {
        self.frames.asked.iter().any(|asked| asked.at(self.time.now_ms) > 0)
    }

    /// Whether somebody here waits for a frame.
    fn is_awaited(&self) -> bool {
        let Frames { starved, hungry, unstaged, .. } = &self.frames;
        !starved.is_empty() || !hungry.is_empty() || !unstaged.is_empty()
    }

    /// Whether nothing is evicted for a while, because pages could not be stored.
    pub fn evictions_rest(&self) -> bool {
        self.frames.pause_ms > 0 && self.time.now_ms < self.frames.evict_again_ms
    }

    /// Why no frame can be had: as the last eviction was refused.
    pub fn why_no_frame(&self) -> Failure {
        self.shards.refusal().unwrap_or(FailureKind::Device.into())
    }

    /// Frames of a size that are free, or will be without anybody doing more for it.
    pub fn free_or_soon(&self, size: PageSize) -> u32 {
        self.pool.free_frames(size) + self.shards.evicting(size)
    }

    /// Asks the other shards, as this one has nothing to evict, and somebody waits; once a millisecond.
    pub fn ask_for_room(&mut self, size: PageSize, frames: u32) {
        if self.is_awaited() && self.frames.asked_ms != self.time.now_ms {
            self.frames.asked_ms = self.time.now_ms;
            let others = (0..self.shards.count()).filter(|&shard| shard != self.shard);
            others.for_each(|shard| self.shards.tell(shard, ShardMessage::MakeRoom(size, frames)));
        }
    }

    /// An eviction has ended: the frame is free.
    pub fn evicted(&mut self, page: PageIndex) -> Result<(), CacheError> {
        self.frames.pause_ms = 0;
        self.shards.eviction_ended(self.size_of(page));
        self.shards.somebody_got_a_frame();
        Ok(())
    }

    /// An eviction has ended: the page stays.
    pub fn not_evicted(&mut self, page: PageIndex) -> Result<(), CacheError> {
        self.shards.eviction_ended(self.size_of(page));
        let entry = self.entry(page)?;
        if entry.state().readable() {
            self.may_be_evicted(entry.frame())?;
        }
        Ok(())
    }

    /// Fills the reserve up; it comes before everything else that wants frames.
    pub fn refill_reserve(&mut self) -> Result<(), CacheError> {
        for size in self.shards.used_sizes() {
            let wanted = self.reserve_size(size);
            while self.frames.reserve[size.index()].len() > wanted {
                let Some(frame) = self.frames.reserve[size.index()].pop() else { break };
                self.pool.release(frame)?;
            }
            while self.frames.reserve[size.index()].len() < wanted {
                let Some(frame) = self.pool.take_frame(size) else { break };
                self.frames.reserve[size.index()].push(frame);
            }
        }
        Ok(())
    }

    /// How many frames of a size are kept back by this shard.
    fn reserve_size(&self, size: PageSize) -> usize {
        let shards = self.shards.count();
        let frames = self.pool.frames_now(size) / shards;
        (self.pages().reserve_target(size, frames, shards) as usize).max(1)
    }

    /// Gives back the frames of the reserve that are in a block.
    pub fn empty_reserve(&mut self, block: u32) -> Result<(), CacheError> {
        for size in self.shards.sizes() {
            let here = |frame: &mut FrameId| self.pool.block_of(*frame) == block;
            let frames: Vec<FrameId> = self.frames.reserve[size.index()].extract_if(.., here).collect();
            frames.into_iter().try_for_each(|frame| self.pool.release(frame))?;
        }
        Ok(())
    }

    /// Takes free frames for so many neighbouring pages, so that neighbours get neighbouring frames as far as possible: the
    /// device then moves them in one piece.
    pub fn take_at_hand(&mut self, first: PageIndex, count: usize) {
        if count > 1 {
            self.pool.take_frames(self.size_of(first), count, &mut self.frames.at_hand);
            self.frames.at_hand.sort_unstable_by_key(|frame| std::cmp::Reverse(frame.0));
        }
    }

    /// Frees the frames that were not needed, because the pages were here or on their way.
    pub fn give_back_at_hand(&mut self) -> Result<(), CacheError> {
        while let Some(frame) = self.frames.at_hand.pop() {
            self.pool.release(frame)?;
        }
        Ok(())
    }

    /// A free frame for a page: of those at hand, if they are of its size, or of the pool.
    pub fn take_frame_for(&mut self, page: PageIndex) -> Option<FrameId> {
        let size = self.size_of(page);
        let fits = |frame: &FrameId| self.pool.size_of_frame(*frame).is_ok_and(|found| found == size);
        match self.frames.at_hand.last().is_some_and(fits) {
            true => self.frames.at_hand.pop(),
            false => self.pool.take_frame(size),
        }
    }

    /// A frame for the home's own work on a page, which ends without needing another one.
    pub fn take_reserve(&mut self, page: PageIndex) -> Option<FrameId> {
        let size = self.size_of(page);
        self.frames.reserve[size.index()].pop().or_else(|| self.pool.take_frame(size))
    }

    pub fn sent(&mut self, frame: FrameId) -> Result<(), CacheError> {
        if let Some((count, release)) = self.frames.sending.get_mut(&frame) {
            *count -= 1;
            if *count == 0 {
                let release = *release;
                self.frames.sending.remove(&frame);
                if release {
                    self.free(frame)?;
                }
            }
        }
        Ok(())
    }

    /// Frees a frame now, or when its content has left.
    pub fn release(&mut self, frame: FrameId) -> Result<(), CacheError> {
        match self.frames.sending.get_mut(&frame) {
            Some((_, release)) => *release = true,
            None => self.free(frame)?,
        }
        Ok(())
    }

    /// The reserve comes first.
    fn free(&mut self, frame: FrameId) -> Result<(), CacheError> {
        self.shards.expected().settled(frame);
        let size = self.pool.size_of_frame(frame)?;
        let is_full = self.frames.reserve[size.index()].len() >= self.reserve_size(size);
        if !is_full && !self.pool.is_vacating(frame) && self.pool.pins(frame)?.none() {
            self.frames.reserve[size.index()].push(frame);
            return Ok(());
        }
        Ok(self.pool.release(frame)?)
    }

    /// A page has come into this frame.
    pub fn may_be_evicted(&mut self, frame: FrameId) -> Result<(), CacheError> {
        let page = self.pool.page_in(frame)?;
        let of = page.map(|page| self.segments.partitions.kept_by(page)).unwrap_or_default();
        self.victims.insert(&self.pool, frame, of)
    }

    /// Nobody else has a page any more that this node shares.
    pub fn holds_last(&mut self, frame: FrameId) {
        self.victims.is_last(frame);
    }

    /// Another node gets a page that this node has.
    pub fn holds_shared(&mut self, frame: FrameId) -> Result<(), CacheError> {
        self.victims.is_shared(&self.pool, frame)
    }

    /// The frame of this size to be evicted next, which replacement forgets.
    pub fn next_victim(&mut self, size: PageSize) -> Option<(FrameId, Queue)> {
        let frames = self.frames_among(size);
        self.victims.take(Among { pool: &self.pool, size, now_ms: self.time.now_ms, frames })
    }

    /// The same frame, which replacement keeps where it is: whoever only compares must not change whose turn it is.
    pub fn oldest_frame(&mut self, size: PageSize) -> Option<FrameId> {
        let frames = self.frames_among(size);
        self.victims.next(Among { pool: &self.pool, size, now_ms: self.time.now_ms, frames })
    }

    /// How long a frame has not been used, as replacement sees it: the larger, the sooner it goes.
    pub fn age_of(&self, frame: FrameId, of: Policy) -> Result<u64, CacheError> {
        let size = self.pool.size_of_frame(frame)?;
        let among =
            Among { pool: &self.pool, size, now_ms: self.time.now_ms, frames: self.frames_among(size) };
        Ok(self.victims.age(among, frame, of))
    }

    /// How many frames of a size this shard has, about.
    fn frames_among(&self, size: PageSize) -> usize {
        (self.pool.frames_now(size) / self.shards.count()) as usize
    }

    /// Whether a size has fewer blocks than it needs.
    pub fn lacks_blocks(&self, size: PageSize) -> bool {
        self.pool.blocks_of(size) < self.pages().blocks_at_least(size)
    }

    /// Whether somebody needs a frame of this size, or soon would, and evicting others of the size is what makes room.
    pub fn is_short_of(&self, size: PageSize) -> bool {
        self.pool.free_frames(size) < self.pool.free_target(size).div_ceil(2)
            && (self.shards.evicting(size) > 0 || self.lacks_blocks(size) || self.is_wanted(size))
    }
}
