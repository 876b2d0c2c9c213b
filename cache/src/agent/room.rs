//! Frames: evicting ahead of need, and the reserve of the home.

use super::Agent;
use crate::error::{CacheError, Failure, FailureKind};
use crate::pool::{Counter, FrameId, FrameUse, PageState, PoolAgent};
use crate::replacement::{Class, FrameView, Queue};
use crate::request::PageIndex;

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
/// That while, in milliseconds: space may be made on the device by somebody else.
const EVICT_AGAIN_MS: u64 = 100;

/// For how long more frames are kept free after a rank has asked for them, in milliseconds: scans ask again sooner.
const WISH_MS: u64 = 20;

impl Agent {
    /// Starts evictions until enough frames are free or on their way to be.
    pub(super) fn make_room(&mut self) -> Result<(), CacheError> {
        self.pool.reclaim();
        if self.evictions_are_hopeless()? {
            return Ok(());
        }
        match self.pool.take_wish() {
            0 if self.now_ms > self.wished_until_ms => self.wished = 0,
            0 => {}
            wish => (self.wished, self.wished_until_ms) = (wish, self.now_ms + WISH_MS),
        }
        self.make_room_for((self.starved.len() as u32 + self.unstaged.len() as u32).max(self.wished))
    }

    /// Whether pages are dirty and cannot be stored, so that trying to evict them leads nowhere. Those who wait for a
    /// frame are told then; without them it is tried again later.
    fn evictions_are_hopeless(&mut self) -> Result<bool, CacheError> {
        let awaited = !self.starved.is_empty() || !self.hungry.is_empty();
        let now = self.now_ms;
        // A refused page goes to the end of the queue: after so many, every page has had its turn.
        let refusals_max = if awaited { 2 * self.pool.layout().spec().frames } else { REFUSALS_IDLE };
        if self.refused < refusals_max {
            return Ok(!awaited && now < self.evict_again_ms);
        }
        self.refused = 0;
        self.evict_again_ms = now + EVICT_AGAIN_MS;
        for waiter in std::mem::take(&mut self.hungry) {
            self.complete(waiter, Err(self.why_no_frame()))?;
        }
        for page in std::mem::take(&mut self.starved) {
            self.give_up(page)?;
        }
        Ok(true)
    }

    /// Why no frame can be had: as the last eviction was refused.
    pub(super) fn why_no_frame(&self) -> Failure {
        self.refusal.unwrap_or(FailureKind::Device.into())
    }

    /// The same, for at least this many frames.
    pub(super) fn make_room_for(&mut self, frames: u32) -> Result<(), CacheError> {
        let kept = self.pool.layout().free_target();
        let target = kept.max(frames);
        // In batches: what is taken from ranks in one turn shares one barrier, which interrupts all of them.
        let low = if frames < kept { kept - kept / 4 } else { target };
        if self.pool.free_frames() + self.evicting >= low {
            return Ok(());
        }
        while self.pool.free_frames() + self.evicting < target {
            let view = View { pool: &self.pool, now_ms: self.now_ms };
            let Some((frame, queue)) = self.options.replacement.victim(&view) else { return Ok(()) };
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
            self.evicting += 1;
            self.evict(page)?;
        }
        Ok(())
    }

    /// An eviction has ended: the frame is free.
    pub(super) fn evicted(&mut self, _page: PageIndex) -> Result<(), CacheError> {
        self.evicting = self.evicting.saturating_sub(1);
        self.refused = 0;
        Ok(())
    }

    /// An eviction has ended: the page stays.
    pub(super) fn not_evicted(&mut self, page: PageIndex) -> Result<(), CacheError> {
        self.evicting = self.evicting.saturating_sub(1);
        let entry = self.pool.entry(page)?;
        if entry.state().readable() {
            let stamp = self.pool.stamp(entry.frame())?;
            self.options.replacement.insert(entry.frame(), stamp);
        }
        Ok(())
    }

    /// Fills the reserve up; it comes before everything else that wants frames.
    pub(super) fn refill_reserve(&mut self) -> Result<(), CacheError> {
        while self.reserve.len() < self.reserve_size {
            let Some(frame) = self.pool.take_frame() else { break };
            self.reserve.push(frame);
        }
        self.feed_unstaged()
    }

    /// Takes free frames for so many neighbouring pages, so that neighbours get neighbouring frames as far as possible: the
    /// device then moves them in one piece.
    pub(super) fn take_at_hand(&mut self, count: usize) {
        if count > 1 {
            self.pool.take_frames(count, &mut self.at_hand);
            self.at_hand.sort_unstable_by_key(|frame| std::cmp::Reverse(frame.0));
        }
    }

    /// Frees the frames that were not needed, because the pages were here or on their way.
    pub(super) fn give_back_at_hand(&mut self) -> Result<(), CacheError> {
        while let Some(frame) = self.at_hand.pop() {
            self.pool.release(frame)?;
        }
        Ok(())
    }

    /// A frame for the home's own work, which ends without needing another one.
    pub(super) fn take_reserve(&mut self) -> Option<FrameId> {
        self.reserve.pop().or_else(|| self.pool.take_frame())
    }
}
