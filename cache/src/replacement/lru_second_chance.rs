//! LRU plus a FIFO second chance for last copies (vgasnet III.F).
//!
//! Every page begins at the top of the LRU queue. An eviction takes the bottom of the LRU queue; if that is an E or M
//! page, the only copy in the cluster, it moves to the FIFO queue instead and the next bottom is tried. When the FIFO
//! queue grows longer than half of the pool, its bottom is evicted. An accessed page of the FIFO queue moves back to the
//! LRU queue. Accesses are noticed when a frame reaches a bottom (see [`super`]).

use super::queue::Queues;
use super::{Class, FrameId, FrameView, Queue, Replacement};

const LRU: usize = 0;
const FIFO: usize = 1;

/// The paper's policy.
#[derive(Debug)]
pub struct LruSecondChance {
    queues: Queues<2>,
}

impl LruSecondChance {
    /// Its name in the configuration.
    pub const NAME: &'static str = "lru-second-chance";

    /// For a pool of `frames` frames.
    pub fn new(frames: u32) -> Self {
        Self { queues: Queues::new(frames) }
    }

    /// The bottom of a queue, after used and immovable frames have gone up to the top of the LRU queue. Looks at no
    /// more than `budget` frames, so that a pool in full use ends in "none", not in a circle.
    fn settled_bottom(&mut self, queue: usize, view: &dyn FrameView, budget: &mut usize) -> Option<FrameId> {
        while let Some(frame) = self.queues.bottom(queue) {
            *budget = budget.checked_sub(1)?;
            let stamp = view.stamp(frame);
            if stamp == self.queues.stamp(frame) && view.evictable(frame) {
                return Some(frame);
            }
            self.queues.move_top(LRU, frame, stamp);
        }
        None
    }

    fn take(&mut self, frame: FrameId, queue: Queue) -> Option<(FrameId, Queue)> {
        self.queues.take_out(frame);
        Some((frame, queue))
    }
}

impl Replacement for LruSecondChance {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn insert(&mut self, frame: FrameId, stamp: u32) {
        if self.queues.is_out(frame) {
            self.queues.push_top(LRU, frame, stamp);
        }
    }

    fn remove(&mut self, frame: FrameId) {
        self.queues.take_out(frame);
    }

    fn accessed(&mut self, frame: FrameId, stamp: u32) {
        self.queues.move_top(LRU, frame, stamp);
    }

    fn victim(&mut self, view: &dyn FrameView) -> Option<(FrameId, Queue)> {
        // A second round only if the first one found all second chances used and sent them back to the LRU queue.
        for _ in 0..2 {
            // Each frame is looked at once to bring it up if it was used, and once more to choose it.
            let mut budget = 2 * self.len() + 1;
            while let Some(frame) = self.settled_bottom(LRU, view, &mut budget) {
                if view.class(frame) == Class::Other {
                    return self.take(frame, Queue::Lru);
                }
                self.queues.move_top(FIFO, frame, self.queues.stamp(frame));
                if self.queues.len(FIFO) > self.queues.frames() / 2
                    && let Some(oldest) = self.settled_bottom(FIFO, view, &mut budget)
                {
                    return self.take(oldest, Queue::Fifo);
                }
            }
            // The LRU queue has nothing to give, so the second chances end early.
            let mut budget = self.queues.len(FIFO);
            if let Some(oldest) = self.settled_bottom(FIFO, view, &mut budget) {
                return self.take(oldest, Queue::Fifo);
            }
        }
        None
    }

    fn len(&self) -> usize {
        self.queues.len(LRU) + self.queues.len(FIFO)
    }
}

#[cfg(test)]
impl LruSecondChance {
    /// Both queues from the bottom up.
    pub(super) fn queues(&self) -> (Vec<FrameId>, Vec<FrameId>) {
        (self.queues.bottom_up(LRU), self.queues.bottom_up(FIFO))
    }
}
