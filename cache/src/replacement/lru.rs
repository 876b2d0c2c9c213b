//! Plain LRU, blind to what a copy means: what the paper's policy is measured against.

use super::by_use::ByUse;
use super::{FrameId, FrameView, Queue, Replacement};

/// Least recently used.
#[derive(Debug)]
pub struct Lru {
    queue: ByUse,
}

impl Lru {
    /// Its name in the configuration.
    pub const NAME: &'static str = "lru";

    /// For a pool of `frames` frames.
    pub fn new(frames: u32) -> Self {
        Self { queue: ByUse::new(frames) }
    }
}

impl Replacement for Lru {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn insert(&mut self, frame: FrameId, stamp: u32) {
        if self.queue.stamp(frame).is_none() {
            self.queue.file(frame, stamp);
        }
    }

    fn remove(&mut self, frame: FrameId) -> bool {
        self.queue.remove(frame)
    }

    fn accessed(&mut self, frame: FrameId, stamp: u32) {
        if self.queue.stamp(frame).is_some() {
            self.queue.file_top(frame, stamp);
        }
    }

    fn next(&mut self, view: &dyn FrameView) -> Option<(FrameId, Queue)> {
        // Once to file used frames by their use, once more to choose among them.
        for _ in 0..2 * self.len() {
            let frame = self.queue.oldest()?;
            let stamp = view.stamp(frame);
            if !view.evictable(frame) {
                self.queue.file_top(frame, stamp);
            } else if Some(stamp) == self.queue.stamp(frame) {
                return Some((frame, Queue::Common));
            } else {
                self.queue.file(frame, stamp);
            }
        }
        None
    }

    fn len(&self) -> usize {
        self.queue.len()
    }
}
