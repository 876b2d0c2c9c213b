//! Frames: evicting ahead of need, and the reserve of the home.

use super::Agent;
use super::answers::Waiter;
use super::homes::Staging;
use super::shards::Aside;
use crate::error::{CacheError, Failure, FailureKind};
use crate::pool::{Counter, FrameId, FrameUse, PageState, PoolAgent};
use crate::replacement::{Class, FrameView, Queue};
use crate::request::PageIndex;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// The pool as replacement sees it.
struct View<'a> {
    pool: &'a PoolAgent,
    now_ms: u64,
}

impl FrameView for View<'_> {
    fn stamp(&self, frame: FrameId) -> u32 {
        self.pool.stamp(frame).unwrap_or(0)
    }

    fn class(&self, frame: FrameId) -> Class {
        let Ok(FrameUse::Page(page)) = self.pool.frame_use(frame) else { return Class::Other };
        match self.pool.entry(page).map(|entry| entry.state()) {
            Ok(PageState::Exclusive) => Class::Exclusive,
            Ok(PageState::Modified) => Class::Modified,
            _ => Class::Other,
        }
    }

    fn evictable(&self, frame: FrameId) -> bool {
        self.pool.evictable(frame, self.now_ms)
    }
}

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

/// The agent's frames, and who waits for one.
#[derive(Debug)]
pub(super) struct Frames {
    /// Frames whose content waits in the outbox, how often, and whether they are to be released then.
    pub sending: FxHashMap<FrameId, (u32, bool)>,
    /// Pages that need a frame and did not get one.
    pub starved: VecDeque<PageIndex>,
    /// Ranks that found no free frame for a put and sleep until there is one.
    pub hungry: Vec<Waiter>,
    /// Homes that wait for a frame of the reserve.
    pub unstaged: VecDeque<Staging>,
    /// Frames kept back for staging at the home: they are only ever held for NVMe and network operations that end by
    /// themselves, so that evictions cannot wait for each other in a circle.
    reserve: Vec<FrameId>,
    reserve_size: usize,
    /// Free frames for the run of pages that is being started now; the next one is the last.
    pub at_hand: Vec<FrameId>,
    /// [`Shards::refused`](super::Shards::refused) when that was too many the last time.
    refused_before: u32,
    /// When the other shards were asked for room last, in milliseconds.
    asked_ms: u64,
    /// How many frames another shard waits for that has nothing to evict, and until when it is believed.
    asked: u32,
    asked_until_ms: u64,
    /// How many frames ranks would like to be free, and until when.
    wished: u32,
    wished_until_ms: u64,
    /// When evictions that nobody waits for are worth trying again, in milliseconds.
    evict_again_ms: u64,
    /// How long such a while was the last time.
    pause_ms: u64,
}

impl Frames {
    /// Of a pool of so many.
    pub fn new(frames: usize) -> Self {
        Self {
            sending: FxHashMap::default(),
            starved: VecDeque::new(),
            hungry: Vec::new(),
            unstaged: VecDeque::new(),
            reserve: Vec::new(),
            // A sixteenth, as long as that leaves the pool usable, and no more than keeps a device busy.
            reserve_size: (frames / 16).clamp(1, 64),
            at_hand: Vec::new(),
            refused_before: 0,
            asked_ms: 0,
            asked: 0,
            asked_until_ms: 0,
            wished: 0,
            wished_until_ms: 0,
            evict_again_ms: 0,
            pause_ms: 0,
        }
    }
}

impl Agent {
    /// Starts evictions until enough frames are free or on their way to be.
    pub(super) fn make_room(&mut self) -> Result<(), CacheError> {
        self.pool.reclaim();
        if self.evictions_are_hopeless()? {
            return Ok(());
        }
        match self.pool.take_wish() {
            0 if self.time.now_ms > self.frames.wished_until_ms => self.frames.wished = 0,
            0 => {}
            wish => (self.frames.wished, self.frames.wished_until_ms) = (wish, self.time.now_ms + WISH_MS),
        }
        let asked = if self.is_asked() { self.frames.asked } else { 0 };
        let waiting = self.frames.starved.len() as u32 + self.frames.unstaged.len() as u32;
        self.make_room_for(waiting.max(self.frames.wished).max(asked))
    }

    /// Another shard waits for frames, and has nothing to evict.
    pub(super) fn was_asked_for_room(&mut self, frames: u32) {
        (self.frames.asked, self.frames.asked_until_ms) = (frames, self.time.now_ms + ASKED_MS);
    }

    fn is_asked(&self) -> bool {
        self.frames.asked > 0 && self.time.now_ms <= self.frames.asked_until_ms
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
        let refusals_max = if awaited { 2 * self.pool.layout().spec().frames } else { REFUSALS_IDLE };
        if self.shards.refused_since(self.frames.refused_before) < refusals_max {
            return Ok(!awaited && now < self.frames.evict_again_ms);
        }
        self.frames.refused_before = self.shards.refused();
        self.frames.pause_ms = (2 * self.frames.pause_ms).clamp(EVICT_AGAIN_MS, EVICT_AGAIN_MS_MAX);
        self.frames.evict_again_ms = now + self.frames.pause_ms;
        for waiter in std::mem::take(&mut self.frames.hungry) {
            self.complete(waiter, Err(self.why_no_frame()))?;
        }
        for page in std::mem::take(&mut self.frames.starved) {
            self.give_up(page)?;
        }
        Ok(true)
    }

    /// Why no frame can be had: as the last eviction was refused.
    pub(super) fn why_no_frame(&self) -> Failure {
        self.shards.refusal().unwrap_or(FailureKind::Device.into())
    }

    /// The same, for at least this many frames.
    pub(super) fn make_room_for(&mut self, frames: u32) -> Result<(), CacheError> {
        let kept = self.pool.layout().free_target();
        let target = kept.max(frames);
        // In batches: what is taken from ranks in one turn shares one barrier, which interrupts all of them.
        let low = if frames < kept { kept - kept / 4 } else { target };
        if self.free_or_soon() >= low {
            return Ok(());
        }
        while self.free_or_soon() < target {
            let view = View { pool: &self.pool, now_ms: self.time.now_ms };
            let Some((frame, queue)) = self.options.replacement.victim(&view) else {
                self.ask_for_room(target);
                return Ok(());
            };
            let FrameUse::Page(page) = self.pool.frame_use(frame)? else { continue };
            if !self.quiet(page) || self.claims.has_parked(page) {
                // Something is under way for it: not now.
                let stamp = self.pool.stamp(frame)?;
                self.options.replacement.insert(frame, stamp);
                return Ok(());
            }
            let counter = match queue {
                Queue::Lru => Counter::EvictionsLru,
                Queue::Fifo => Counter::EvictionsFifo,
            };
            self.pool.count(counter, 1);
            if self.pool.entry(page)?.ahead() {
                self.evicted_unused(page);
            }
            self.shards.eviction_begins();
            self.evict(page)?;
        }
        Ok(())
    }

    /// Frames that are free, or will be without anybody doing more for it.
    fn free_or_soon(&self) -> u32 {
        self.pool.free_frames() + self.shards.evicting()
    }

    /// Asks the other shards, as this one has nothing to evict, and somebody waits; once a millisecond.
    fn ask_for_room(&mut self, frames: u32) {
        if self.is_awaited() && self.frames.asked_ms != self.time.now_ms {
            self.frames.asked_ms = self.time.now_ms;
            let others = (0..self.shards.count()).filter(|&shard| shard != self.shard);
            others.for_each(|shard| self.shards.tell(shard, Aside::MakeRoom(frames)));
        }
    }

    /// An eviction has ended: the frame is free.
    pub(super) fn evicted(&mut self, _page: PageIndex) -> Result<(), CacheError> {
        self.frames.pause_ms = 0;
        self.shards.eviction_ended();
        self.shards.somebody_got_a_frame();
        Ok(())
    }

    /// An eviction has ended: the page stays.
    pub(super) fn not_evicted(&mut self, page: PageIndex) -> Result<(), CacheError> {
        self.shards.eviction_ended();
        let entry = self.pool.entry(page)?;
        if entry.state().readable() {
            let stamp = self.pool.stamp(entry.frame())?;
            self.options.replacement.insert(entry.frame(), stamp);
        }
        Ok(())
    }

    /// Fills the reserve up; it comes before everything else that wants frames.
    pub(super) fn refill_reserve(&mut self) -> Result<(), CacheError> {
        while self.frames.reserve.len() < self.frames.reserve_size {
            let Some(frame) = self.pool.take_frame() else { break };
            self.frames.reserve.push(frame);
        }
        self.feed_unstaged()
    }

    /// Takes free frames for so many neighbouring pages, so that neighbours get neighbouring frames as far as possible: the
    /// device then moves them in one piece.
    pub(super) fn take_at_hand(&mut self, count: usize) {
        if count > 1 {
            self.pool.take_frames(count, &mut self.frames.at_hand);
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

    /// A frame for the home's own work, which ends without needing another one.
    pub(super) fn take_reserve(&mut self) -> Option<FrameId> {
        self.frames.reserve.pop().or_else(|| self.pool.take_frame())
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
        if self.frames.reserve.len() < self.frames.reserve_size && self.pool.pins(frame)?.none() {
            self.frames.reserve.push(frame);
            return Ok(());
        }
        Ok(self.pool.release(frame)?)
    }
}
