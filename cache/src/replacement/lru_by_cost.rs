//! Least recently used, where what nobody else has counts as used more recently: replacement in terms of the cluster.
//!
//! A page of which another node has a copy comes back with a message; one that nobody has must be read from NVMe, of which its home has
//! one for all nodes. So a last copy stays until it has not been used for [`DEARER`] times as long as the copy that would go in its stead: as
//! GreedyDual values pages by what it costs to get them back (Young, Algorithmica 1994), with two prices. The paper's
//! second chance ([`super::LruSecondChance`]) keeps last copies in at most half of a pool, and gives them up in the order in which they
//! came there: caches that hold the data together lose some of it.

use super::by_use::ByUse;
use super::{Class, FrameId, FrameView, Queue, Replacement};

/// How many times as long as a copy that others have, too, a last copy may be unused before it goes in its stead. Where all caches together
/// hold the data, a node has some of its frames for what it reads beside its last copies: all data goes through these in the time in
/// which it comes to each last copy again. Counted by `vgas bench replacement`, where that is a fifth of the frames, in scans by all: with 8
/// NVMe is read nearly as often as by LRU, with 16 once for each page.
pub(super) const DEARER: u64 = 16;

/// Frames in turn that cannot move before the other queue is asked.
const IMMOVABLE_MAX: usize = 64;

/// The policy.
#[derive(Debug)]
pub struct LruByCost {
    /// Those of which others had copies when they were filed, and those that have not been looked at.
    others: ByUse,
    /// Those that nobody else had then.
    last: ByUse,
}

impl LruByCost {
    /// Its name in the configuration.
    pub const NAME: &'static str = "lru-by-cost";

    /// For a pool of `frames` frames.
    pub fn new(frames: u32) -> Self {
        Self { others: ByUse::new(frames), last: ByUse::new(frames) }
    }

    /// The oldest frame of a queue, after those have been filed again that were used, cannot move, or belong into the other queue. None,
    /// too, when so many in turn cannot move.
    fn settled(&mut self, queue: Queue, view: &dyn FrameView, immovable_max: usize) -> Option<FrameId> {
        let (here, there) = match queue {
            Queue::Common => (&mut self.others, &mut self.last),
            Queue::Last => (&mut self.last, &mut self.others),
        };
        let mut immovable = 0;
        // Each is looked at once to file it by its use, and once more to choose it.
        for _ in 0..2 * here.len() {
            let frame = here.oldest()?;
            let (stamp, filed) = (view.stamp(frame), here.stamp(frame));
            let belongs_here = (view.class(frame) == Class::Other) == (queue == Queue::Common);
            if !belongs_here {
                here.remove(frame);
                there.file(frame, stamp);
            } else if !view.evictable(frame) {
                immovable += 1;
                if immovable > immovable_max {
                    return None;
                }
                here.file_top(frame, stamp);
            } else if Some(stamp) == filed {
                return Some(frame);
            } else {
                here.file(frame, stamp);
            }
        }
        None
    }

    fn choose(&mut self, view: &dyn FrameView, immovable_max: usize) -> Option<(FrameId, Queue)> {
        // The first time so that what others have come to have is among theirs when the oldest of these is looked for.
        self.settled(Queue::Last, view, immovable_max);
        let other = self.settled(Queue::Common, view, immovable_max);
        let last = self.settled(Queue::Last, view, immovable_max);
        match (other, last) {
            (Some(other), Some(last)) => {
                let is_last = self.age(last, view) > self.age(other, view);
                Some(if is_last { (last, Queue::Last) } else { (other, Queue::Common) })
            }
            (Some(other), None) => Some((other, Queue::Common)),
            (None, last) => last.map(|last| (last, Queue::Last)),
        }
    }
}

impl Replacement for LruByCost {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn insert(&mut self, frame: FrameId, stamp: u32) {
        if self.others.stamp(frame).is_none() && self.last.stamp(frame).is_none() {
            self.others.file(frame, stamp);
        }
    }

    fn remove(&mut self, frame: FrameId) -> bool {
        self.others.remove(frame) || self.last.remove(frame)
    }

    fn shared(&mut self, frame: FrameId, stamp: u32) {
        if self.last.remove(frame) {
            self.others.file(frame, stamp);
        }
    }

    fn accessed(&mut self, frame: FrameId, stamp: u32) {
        for queue in [&mut self.others, &mut self.last] {
            if queue.stamp(frame).is_some() {
                queue.file_top(frame, stamp);
            }
        }
    }

    fn next(&mut self, view: &dyn FrameView) -> Option<(FrameId, Queue)> {
        // As long as one queue has something to give, the other need not be searched to its end each time.
        self.choose(view, IMMOVABLE_MAX).or_else(|| self.choose(view, usize::MAX))
    }

    fn age(&self, frame: FrameId, view: &dyn FrameView) -> u64 {
        let ticks = u64::from(view.clock().wrapping_sub(view.stamp(frame)));
        if view.class(frame) == Class::Other { DEARER * ticks } else { ticks }
    }

    fn len(&self) -> usize {
        self.others.len() + self.last.len()
    }
}
