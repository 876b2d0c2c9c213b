//! Plain LRU, blind to what a copy means: what the paper's policy is measured against.

use super::queue::Queues;
use super::{FrameId, FrameView, Queue, Replacement};

/// Least recently used.
#[derive(Debug)]
pub struct Lru {
    queues: Queues<1>,
}

impl Lru {
    /// Its name in the configuration.
    pub const NAME: &'static str = "lru";

    /// For a pool of `frames` frames.
    pub fn new(frames: u32) -> Self {
        Self { queues: Queues::new(frames) }
    }
}

impl Replacement for Lru {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn insert(&mut self, frame: FrameId, stamp: u32) {
        if self.queues.is_out(frame) {
            self.queues.push_top(0, frame, stamp);
        }
    }

    fn remove(&mut self, frame: FrameId) {
        self.queues.take_out(frame);
    }

    fn accessed(&mut self, frame: FrameId, stamp: u32) {
        self.queues.move_top(0, frame, stamp);
    }

    fn victim(&mut self, view: &dyn FrameView) -> Option<(FrameId, Queue)> {
        // Once to bring used frames up, once more to choose among them.
        for _ in 0..2 * self.len() {
            let frame = self.queues.bottom(0)?;
            let stamp = view.stamp(frame);
            if stamp == self.queues.stamp(frame) && view.evictable(frame) {
                self.queues.take_out(frame);
                return Some((frame, Queue::Lru));
            }
            self.queues.move_top(0, frame, stamp);
        }
        None
    }

    fn len(&self) -> usize {
        self.queues.len(0)
    }
}
