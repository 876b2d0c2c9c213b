//! Frames: evicting ahead of need, and the reserve of the home.

use super::Agent;
use super::answers::Waiter;
use super::homes::Staging;
use super::shards::Aside;
use crate::error::{CacheError, Failure, FailureKind};
use crate::page::PageIndex;
use crate::pool::{Counter, FrameId, FrameUse, PageSize};
use crate::replacement::Queue;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// Refused evictions after which a node that needs no frame now stops trying for a while.
const REFUSALS_IDLE: u32 = 8;
/// That while, in milliseconds: space may be made on the device by somebody else. Twice as long each time that nothing could be
/// evicted, up to a bound.
const EVICT_AGAIN_MS: u64 = 100;
const EVICT_AGAIN_MS_MAX: u64 = 5000;

/// For how long another shard is believed that has asked for room, in milliseconds: it asks each of them.
const ASKED_MS: u64 = 2;

/// For how long more frames are kept free after a rank has asked for them, in milliseconds: scans ask again sooner.
const WISH_MS: u64 = 20;

/// How many frames somebody wants, and until when, in milliseconds, that is believed.
#[derive(Clone, Copy, Debug, Default)]
struct Wanted {
    frames: u32,
    until_ms: u64,
}

impl Wanted {
    fn at(self, now_ms: u64) -> u32 {
        if now_ms <= self.until_ms { self.frames } else { 0 }
    }
}

/// The agent's frames, and who waits for one.
#[derive(Debug)]
pub(super) struct Frames {
    /// Frames whose content waits in the outbox, how often, and whether they are to be released then.
    pub sending: FxHashMap<FrameId, (u32, bool)>,
    /// Pages that need a frame and did not get one.
    pub starved: VecDeque<PageIndex>,
    /// Pages that are to be read ahead when there are frames for them, in the order of their readers, with their marks.
    pub later: VecDeque<(PageIndex, bool)>,
    /// Ranks that found no free frame of a size for a put and sleep until there is one.
    pub hungry: Vec<(PageSize, Waiter)>,
    /// Homes that wait for a frame of the reserve.
    pub unstaged: VecDeque<Staging>,
    /// Frames kept back for staging at the home: they are only ever held for NVMe and network operations that end by
    /// themselves, so that evictions cannot wait for each other in a circle.
    reserve: [Vec<FrameId>; PageSize::COUNT],
    /// Free frames for the run of pages that is being started now; the next one is the last.
    pub at_hand: Vec<FrameId>,
    /// [`Shards::refused`](super::Shards::refused) when that was too many the last time.
    refused_before: u32,
    /// When the other shards were asked for room last, in milliseconds.
    asked_ms: u64,
    /// By size: how many frames another shard waits for that has nothing to evict, and until when it is believed.
    asked: [Wanted; PageSize::COUNT],
    /// By size: how many frames ranks would like to be free, and until when.
    wished: [Wanted; PageSize::COUNT],
    /// When evictions that nobody waits for are worth trying again, in milliseconds.
    evict_again_ms: u64,
    /// How long such a while was the last time.
    pause_ms: u64,
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

impl Agent {
    /// Tells ranks that sleep until a frame is free.
    pub(super) fn feed_hungry(&mut self) -> Result<(), CacheError> {
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

    /// Starts evictions until enough frames are free or on their way to be.
    pub(super) fn make_room(&mut self) -> Result<(), CacheError> {
        self.pool.reclaim();
        if self.evictions_are_hopeless()? {
            return Ok(());
        }
        let now_ms = self.time.now_ms;
        for size in self.shards.used_sizes() {
            let wish = self.pool.take_wish(size);
            if wish > 0 {
                self.frames.wished[size.index()] = Wanted { frames: wish, until_ms: now_ms + WISH_MS };
            }
            let (needed, wished) = (self.needed_for(size), self.frames.wished[size.index()].at(now_ms));
            // In batches: victims in the order in which they were filled leave in long runs, and share one barrier.
            if self.free_or_soon(size) < needed.max(wished - wished / 4).max(self.low_mark(size)) {
                self.make_room_for(size, needed.max(wished))?;
            }
        }
        self.balance()
    }

    /// Free frames of a size below which more are made.
    fn low_mark(&self, size: PageSize) -> u32 {
        let kept = self.pool.free_target(size);
        kept - kept / 4
    }

    /// How many frames of this size somebody waits for or would like to be free.
    pub(super) fn wished_for(&self, size: PageSize) -> u32 {
        self.needed_for(size).max(self.frames.wished[size.index()].at(self.time.now_ms))
    }

    /// How many frames of this size a page, or another shard, waits for.
    fn needed_for(&self, size: PageSize) -> u32 {
        let asked = self.frames.asked[size.index()].at(self.time.now_ms);
        let later = self.frames.later.iter().filter(|(page, _)| self.size_of(*page) == size).count() as u32;
        asked.max(self.waiting_for(size)).max(later)
    }

    /// How many pages of this size wait for a frame.
    pub(super) fn waiting_for(&self, size: PageSize) -> u32 {
        let Frames { starved, unstaged, .. } = &self.frames;
        if starved.is_empty() && unstaged.is_empty() {
            return 0;
        }
        let pages = starved.iter().copied().chain(unstaged.iter().map(Staging::page));
        pages.filter(|&page| self.size_of(page) == size).count() as u32
    }

    /// Whether anybody waits for a frame of this size, as far as this shard knows.
    pub(super) fn is_wanted(&self, size: PageSize) -> bool {
        self.waiting_for(size) > 0
            || self.frames.asked[size.index()].at(self.time.now_ms) > 0
            || self.frames.hungry.iter().any(|(wanted, _)| *wanted == size)
    }

    /// Another shard waits for frames, and has nothing to evict.
    pub(super) fn was_asked_for_room(&mut self, size: PageSize, frames: u32) {
        let until_ms = self.time.now_ms + ASKED_MS;
        self.frames.asked[size.index()] = Wanted { frames, until_ms };
    }

    fn is_asked(&self) -> bool {
        self.frames.asked.iter().any(|asked| asked.at(self.time.now_ms) > 0)
    }

    /// Whether somebody here waits for a frame.
    fn is_awaited(&self) -> bool {
        let Frames { starved, hungry, unstaged, .. } = &self.frames;
        !starved.is_empty() || !hungry.is_empty() || !unstaged.is_empty()
    }

    /// Whether pages are dirty and cannot be stored, so that trying to evict them leads nowhere. Those who wait for a
    /// frame are told then; without them it is tried again later.
    fn evictions_are_hopeless(&mut self) -> Result<bool, CacheError> {
        let awaited = !self.frames.starved.is_empty() || !self.frames.hungry.is_empty() || self.is_asked();
        let now = self.time.now_ms;
        // A refused page goes to the end of the queue: after so many, every page has had its turn.
        let frames: u32 = self.shards.sizes().map(|size| self.pool.layout().frames_of(size)).sum();
        let refusals_max = if awaited { 2 * frames } else { REFUSALS_IDLE };
        if self.shards.refused_since(self.frames.refused_before) < refusals_max {
            return Ok(!awaited && now < self.frames.evict_again_ms);
        }
        self.frames.refused_before = self.shards.refused();
        self.frames.pause_ms = (2 * self.frames.pause_ms).clamp(EVICT_AGAIN_MS, EVICT_AGAIN_MS_MAX);
        self.frames.evict_again_ms = now + self.frames.pause_ms;
        for (_, waiter) in std::mem::take(&mut self.frames.hungry) {
            self.complete(waiter, Err(self.why_no_frame()))?;
        }
        for page in std::mem::take(&mut self.frames.starved) {
            self.give_up(page)?;
        }
        Ok(true)
    }

    /// Whether nothing is evicted for a while, because pages could not be stored.
    pub(super) fn evictions_rest(&self) -> bool {
        self.frames.pause_ms > 0 && self.time.now_ms < self.frames.evict_again_ms
    }

    /// Why no frame can be had: as the last eviction was refused.
    pub(super) fn why_no_frame(&self) -> Failure {
        self.shards.refusal().unwrap_or(FailureKind::Device.into())
    }

    /// The same for pages of this size, of which at least so many are to come.
    pub(super) fn make_room_for(&mut self, size: PageSize, frames: u32) -> Result<(), CacheError> {
        let kept = self.pool.free_target(size);
        let target = kept.max(frames);
        // In batches: what is taken from ranks in one turn shares one barrier, which interrupts all of them.
        let low = if frames < kept { self.low_mark(size) } else { target };
        if self.free_or_soon(size) >= low {
            return Ok(());
        }
        while self.free_or_soon(size) < target {
            let Some((frame, queue)) = self.next_victim(size) else {
                self.ask_for_room(size, target);
                return Ok(());
            };
            if !self.begin_to_evict(frame)? {
                // Something is in flight for it: not now.
                return Ok(());
            }
            let counter = match queue {
                Queue::Common => Counter::EvictionsCommon,
                Queue::Last => Counter::EvictionsLast,
            };
            self.pool.count(counter, 1);
        }
        Ok(())
    }

    /// Evicts what a frame holds that replacement has just forgotten. False: not now, and it is known there again.
    pub(super) fn begin_to_evict(&mut self, frame: FrameId) -> Result<bool, CacheError> {
        let FrameUse::Page(page) = self.pool.frame_use(frame)? else { return Ok(true) };
        if !self.quiet(page) || self.claims.has_parked(page) {
            self.may_be_evicted(frame)?;
            return Ok(false);
        }
        if self.pool.entry(page)?.ahead() {
            self.evicted_unused(page);
        }
        self.shards.eviction_begins(self.size_of(page));
        self.evict(page)?;
        Ok(true)
    }

    /// Frames of a size that are free, or will be without anybody doing more for it.
    pub(super) fn free_or_soon(&self, size: PageSize) -> u32 {
        self.pool.free_frames(size) + self.shards.evicting(size)
    }

    /// Asks the other shards, as this one has nothing to evict, and somebody waits; once a millisecond.
    fn ask_for_room(&mut self, size: PageSize, frames: u32) {
        if self.is_awaited() && self.frames.asked_ms != self.time.now_ms {
            self.frames.asked_ms = self.time.now_ms;
            let others = (0..self.shards.count()).filter(|&shard| shard != self.shard);
            others.for_each(|shard| self.shards.tell(shard, Aside::MakeRoom(size, frames)));
        }
    }

    /// An eviction has ended: the frame is free.
    pub(super) fn evicted(&mut self, page: PageIndex) -> Result<(), CacheError> {
        self.frames.pause_ms = 0;
        self.shards.eviction_ended(self.size_of(page));
        self.shards.somebody_got_a_frame();
        Ok(())
    }

    /// An eviction has ended: the page stays.
    pub(super) fn not_evicted(&mut self, page: PageIndex) -> Result<(), CacheError> {
        self.shards.eviction_ended(self.size_of(page));
        let entry = self.pool.entry(page)?;
        if entry.state().readable() {
            self.may_be_evicted(entry.frame())?;
        }
        Ok(())
    }

    /// Fills the reserve up; it comes before everything else that wants frames.
    pub(super) fn refill_reserve(&mut self) -> Result<(), CacheError> {
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
        self.feed_unstaged()
    }

    /// How many frames of a size are kept back by this shard.
    fn reserve_size(&self, size: PageSize) -> usize {
        let shards = self.shards.count();
        let frames = self.pool.frames_now(size) / shards;
        (self.pool.layout().reserve_target(size, frames, shards) as usize).max(1)
    }

    /// Gives back the frames of the reserve that are in a block.
    pub(super) fn empty_reserve(&mut self, block: u32) -> Result<(), CacheError> {
        for size in self.shards.sizes() {
            let here = |frame: &mut FrameId| self.pool.block_of(*frame) == block;
            let frames: Vec<FrameId> = self.frames.reserve[size.index()].extract_if(.., here).collect();
            frames.into_iter().try_for_each(|frame| self.pool.release(frame))?;
        }
        Ok(())
    }

    /// Takes free frames for so many neighbouring pages, so that neighbours get neighbouring frames as far as possible: the
    /// device then moves them in one piece.
    pub(super) fn take_at_hand(&mut self, first: PageIndex, count: usize) {
        if count > 1 {
            self.pool.take_frames(self.size_of(first), count, &mut self.frames.at_hand);
            self.frames.at_hand.sort_unstable_by_key(|frame| std::cmp::Reverse(frame.0));
        }
    }

    /// Frees the frames that were not needed, because the pages were here or on their way.
    pub(super) fn give_back_at_hand(&mut self) -> Result<(), CacheError> {
        while let Some(frame) = self.frames.at_hand.pop() {
            self.pool.release(frame)?;
        }
        Ok(())
    }

    /// A frame for the home's own work on a page, which ends without needing another one.
    pub(super) fn take_reserve(&mut self, page: PageIndex) -> Option<FrameId> {
        let size = self.size_of(page);
        self.frames.reserve[size.index()].pop().or_else(|| self.pool.take_frame(size))
    }

    pub(super) fn sent(&mut self, frame: FrameId) -> Result<(), CacheError> {
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
    pub(super) fn release(&mut self, frame: FrameId) -> Result<(), CacheError> {
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
}
