//! First in, first out: no memory of use at all. The lower bound of any policy.

use super::queue::Queues;
use super::{FrameId, FrameView, Queue, Replacement};

/// First in, first out.
#[derive(Debug)]
pub struct Fifo {
    queues: Queues<1>,
}

impl Fifo {
    /// Its name in the configuration.
    pub const NAME: &'static str = "fifo";

    /// For a pool of `frames` frames.
    pub fn new(frames: u32) -> Self {
        Self { queues: Queues::new(frames) }
    }
}

impl Replacement for Fifo {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn insert(&mut self, frame: FrameId, stamp: u32) {
        if self.queues.is_out(frame) {
            self.queues.push_top(0, frame, stamp);
        }
    }

    fn remove(&mut self, frame: FrameId) -> bool {
        self.queues.take_out(frame).is_some()
    }

    fn accessed(&mut self, _frame: FrameId, _stamp: u32) {}

    fn next(&mut self, view: &dyn FrameView) -> Option<(FrameId, Queue)> {
        for _ in 0..self.len() {
            let frame = self.queues.bottom(0)?;
            if view.evictable(frame) {
                return Some((frame, Queue::Common));
            }
            self.queues.move_top(0, frame, 0);
        }
        None
    }

    fn len(&self) -> usize {
        self.queues.len(0)
    }
}
