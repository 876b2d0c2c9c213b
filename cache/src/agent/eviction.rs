//! Evicting ahead of need: until there are as many free frames as somebody waits for, or may soon.

use super::Agent;
use crate::error::CacheError;
use crate::pool::{Counter, PageSize};
use crate::replacement::Queue;

/// Refused evictions after which a node that needs no frame now stops trying for a while.
const REFUSALS_IDLE: u32 = 8;
/// That while, in milliseconds: space may be made on the device by somebody else. Twice as long each time that nothing could be
/// evicted, up to a bound.
const EVICT_AGAIN_MS: u64 = 100;
const EVICT_AGAIN_MS_MAX: u64 = 5000;

impl Agent {
    /// Starts evictions until enough frames are free or on their way to be.
    pub(super) fn make_room(&mut self) -> Result<(), CacheError> {
        self.cache.ctx.reclaim();
        if self.evictions_are_hopeless()? {
            return Ok(());
        }
        for size in self.cache.ctx.shards.used_sizes() {
            let (needed, wished) = (self.cache.ctx.needed_for(size), self.cache.ctx.take_wish(size));
            // In batches: victims in the order in which they were filled leave in long runs, and share one barrier.
            if self.cache.ctx.free_or_soon(size)
                < needed.max(wished - wished / 4).max(self.cache.ctx.low_mark(size))
            {
                self.make_room_for(size, needed.max(wished))?;
            }
        }
        self.balance.advance(&mut self.cache)
    }

    /// The same for pages of this size, of which at least so many are to come.
    pub(super) fn make_room_for(&mut self, size: PageSize, frames: u32) -> Result<(), CacheError> {
        let kept = self.cache.ctx.free_target(size);
        let target = kept.max(frames);
        // In batches: what is taken from ranks in one turn shares one barrier, which interrupts all of them.
        let low = if frames < kept { self.cache.ctx.low_mark(size) } else { target };
        if self.cache.ctx.free_or_soon(size) >= low {
            return Ok(());
        }
        while self.cache.ctx.free_or_soon(size) < target {
            let Some((frame, queue)) = self.cache.ctx.next_victim(size) else {
                self.cache.ctx.ask_for_room(size, target);
                return Ok(());
            };
            if !self.cache.begin_to_evict(frame)? {
                // Something is in flight for it: not now.
                return Ok(());
            }
            let counter = match queue {
                Queue::Common => Counter::EvictionsCommon,
                Queue::Last => Counter::EvictionsLast,
            };
            self.cache.ctx.count(counter, 1);
        }
        Ok(())
    }

    /// Whether pages are dirty and cannot be stored, so that trying to evict them leads nowhere. Those who wait for a
    /// frame are told then; without them it is tried again later.
    fn evictions_are_hopeless(&mut self) -> Result<bool, CacheError> {
        let ctx = &mut self.cache.ctx;
        let awaited = !ctx.frames.starved.is_empty() || !ctx.frames.hungry.is_empty() || ctx.is_asked();
        let now = ctx.time.now_ms;
        // A refused page goes to the end of the queue: after so many, every page has had its turn.
        let frames: u32 = ctx.shards.sizes().map(|size| ctx.pages().frames_of(size)).sum();
        let refusals_max = if awaited { 2 * frames } else { REFUSALS_IDLE };
        if ctx.shards.refused_since(ctx.frames.refused_before) < refusals_max {
            return Ok(!awaited && now < ctx.frames.evict_again_ms);
        }
        ctx.frames.refused_before = ctx.shards.refused();
        ctx.frames.pause_ms = (2 * ctx.frames.pause_ms).clamp(EVICT_AGAIN_MS, EVICT_AGAIN_MS_MAX);
        ctx.frames.evict_again_ms = now + ctx.frames.pause_ms;
        for (_, waiter) in std::mem::take(&mut ctx.frames.hungry) {
            ctx.complete(waiter, Err(ctx.why_no_frame()))?;
        }
        for page in std::mem::take(&mut ctx.frames.starved) {
            self.cache.give_up(page)?;
        }
        Ok(true)
    }
}
