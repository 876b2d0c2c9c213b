//! LRU plus a FIFO second chance for last copies (vgasnet III.F).
//!
//! Every page begins at the top of the LRU queue. An eviction takes the bottom of the LRU queue; if that is an E or M
//! page, the only copy in the cluster, it moves to the FIFO queue instead and the next bottom is tried. When the FIFO
//! queue grows longer than half of the pool, its bottom is evicted. An accessed page of the FIFO queue moves back to the
//! LRU queue. Accesses are noticed when a frame reaches a bottom (see [`super`]), and count
//! from when they were made.

use super::by_use::ByUse;
use super::queue::Queues;
use super::{Class, FrameId, FrameView, Queue, Replacement};

/// The paper's policy.
#[derive(Debug)]
pub struct LruSecondChance {
    lru: ByUse,
    fifo: Queues<1>,
}

impl LruSecondChance {
    /// Its name in the configuration.
    pub const NAME: &'static str = "lru-second-chance";

    /// For a pool of `frames` frames.
    pub fn new(frames: u32) -> Self {
        Self { lru: ByUse::new(frames), fifo: Queues::new(frames) }
    }

    /// The bottom of a queue, after used and immovable frames have gone up in the LRU queue. Looks at no more than
    /// `budget` frames, so that a pool in full use ends in "none", not in a circle.
    fn settled_bottom(&mut self, queue: Queue, view: &dyn FrameView, budget: &mut usize) -> Option<FrameId> {
        loop {
            let (frame, filed) = match queue {
                Queue::Common => self.lru.oldest().map(|frame| (frame, self.lru.stamp(frame)))?,
                Queue::Last => self.fifo.bottom(0).map(|frame| (frame, Some(self.fifo.stamp(frame))))?,
            };
            *budget = budget.checked_sub(1)?;
            let stamp = view.stamp(frame);
            if !view.evictable(frame) {
                self.fifo.take_out(frame);
                self.lru.file_top(frame, stamp);
            } else if Some(stamp) == filed {
                return Some(frame);
            } else {
                self.fifo.take_out(frame);
                self.lru.file(frame, stamp);
            }
        }
    }
}

impl Replacement for LruSecondChance {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn insert(&mut self, frame: FrameId, stamp: u32) {
        if self.lru.stamp(frame).is_none() && self.fifo.is_out(frame) {
            self.lru.file(frame, stamp);
        }
    }

    fn remove(&mut self, frame: FrameId) -> bool {
        self.lru.remove(frame) || self.fifo.take_out(frame).is_some()
    }

    fn accessed(&mut self, frame: FrameId, stamp: u32) {
        if self.fifo.take_out(frame).is_some() || self.lru.stamp(frame).is_some() {
            self.lru.file_top(frame, stamp);
        }
    }

    fn next(&mut self, view: &dyn FrameView) -> Option<(FrameId, Queue)> {
        // A second round only if the first one found all second chances used and sent them back to the LRU queue.
        for _ in 0..2 {
            // Each frame is looked at once to file it by its use, and once more to choose it.
            let mut budget = 2 * self.len() + 1;
            loop {
                // So it is, too, after it was only asked who is next.
                if self.fifo.len(0) > view.frames() / 2
                    && let Some(oldest) = self.settled_bottom(Queue::Last, view, &mut budget)
                {
                    return Some((oldest, Queue::Last));
                }
                let Some(frame) = self.settled_bottom(Queue::Common, view, &mut budget) else { break };
                if view.class(frame) == Class::Other {
                    return Some((frame, Queue::Common));
                }
                let stamp = view.stamp(frame);
                self.lru.remove(frame);
                self.fifo.push_top(0, frame, stamp);
            }
            // The LRU queue has nothing to give, so the second chances end early.
            let mut budget = self.fifo.len(0);
            if let Some(oldest) = self.settled_bottom(Queue::Last, view, &mut budget) {
                return Some((oldest, Queue::Last));
            }
        }
        None
    }

    fn len(&self) -> usize {
        self.lru.len() + self.fifo.len(0)
    }
}

#[cfg(test)]
impl LruSecondChance {
    /// Both queues from the bottom up.
    pub(super) fn queues(&self) -> (Vec<FrameId>, Vec<FrameId>) {
        (self.lru.oldest_first(), self.fifo.bottom_up(0))
    }
}
