//! Which frame to give up: the seam, and the intrusive queues its implementations are made of. Pure; no unsafe code.
//!
//! A policy knows the frames that hold pages; it learns of accesses lazily, from the stamps that users leave
//! ([`crate::pool`]): when a frame comes up for eviction and its stamp has moved since the policy filed it, it was used
//! meanwhile. So a hit costs no queue operation and the queues belong to the agent alone. The agent may also report an
//! access that it sees itself ([`Replacement::accessed`]); when all accesses are reported the policies are exact.
//!
//! * [`LruByCost`]: in terms of the cluster, the default.
//! * [`LruSecondChance`]: the paper's (vgasnet III.F).
//! * [`Lru`], [`Fifo`]: to measure them against.

#![forbid(unsafe_code)]

mod by_use;
mod fifo;
mod lru;
mod lru_by_cost;
mod lru_second_chance;
mod queue;
#[cfg(test)]
mod tests;

pub use fifo::Fifo;
pub use lru::Lru;
pub use lru_by_cost::LruByCost;
pub use lru_second_chance::LruSecondChance;

pub use crate::pool::FrameId;

/// What a frame's copy means to the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The only copy, clean.
    Exclusive,
    /// The only copy, dirty.
    Modified,
    /// Others have copies too.
    Other,
}

/// The queue a victim came from, for the counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// All pages, or those of which others may have copies.
    Common,
    /// Last copies, which are kept longer: by the paper's policy, first in, first out.
    Last,
}

/// What a policy may ask about frames.
pub trait FrameView {
    /// The clock at the frame's last use. Only whether it differs from an earlier answer is looked at.
    fn stamp(&self, frame: FrameId) -> u32;
    /// What its copy is.
    fn class(&self, frame: FrameId) -> Class;
    /// The clock now.
    fn clock(&self) -> u32;
    /// Whether it may be evicted now: not pinned, not reserved, not in transit.
    fn evictable(&self, frame: FrameId) -> bool;
    /// How many frames there are for the pages among which the policy chooses.
    fn frames(&self) -> usize;
}

/// A replacement policy.
pub trait Replacement: Send {
    /// Its name in the configuration.
    fn name(&self) -> &'static str;

    /// A frame has been given a page; `stamp` is its stamp now. Frames beyond the pool and frames already known are
    /// ignored.
    fn insert(&mut self, frame: FrameId, stamp: u32);

    /// A frame has lost its page (invalidated, or evicted by choice of [`Replacement::victim`]). False: it was not known.
    fn remove(&mut self, frame: FrameId) -> bool;

    /// Another node gets a copy of the page of this frame. Of those that ask for [`FrameView::class`] only when a frame comes up for
    /// eviction, some would not see it in time.
    fn shared(&mut self, _frame: FrameId, _stamp: u32) {}

    /// The agent has seen an access itself.
    fn accessed(&mut self, frame: FrameId, stamp: u32);

    /// The frame to evict next, and the queue it is from; none when no frame may be evicted. It stays known and keeps its turn, however
    /// often it is asked for. What has been used since it was filed is filed again.
    fn next(&mut self, view: &dyn FrameView) -> Option<(FrameId, Queue)>;

    /// The same frame, which the policy forgets. When the eviction does not come about, insert the frame again.
    fn victim(&mut self, view: &dyn FrameView) -> Option<(FrameId, Queue)> {
        let (frame, queue) = self.next(view)?;
        self.remove(frame);
        Some((frame, queue))
    }

    /// How long a frame has not been used, in ticks of the clock, as the policy sees it: the larger, the sooner it goes.
    fn age(&self, frame: FrameId, view: &dyn FrameView) -> u64 {
        view.clock().wrapping_sub(view.stamp(frame)).into()
    }

    /// Number of frames known.
    fn len(&self) -> usize;

    /// Whether no frame is known.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The policy of a name, for a pool of `frames` frames.
pub fn by_name(name: &str, frames: u32) -> Option<Box<dyn Replacement>> {
    match name {
        LruByCost::NAME => Some(Box::new(LruByCost::new(frames))),
        LruSecondChance::NAME => Some(Box::new(LruSecondChance::new(frames))),
        Lru::NAME => Some(Box::new(Lru::new(frames))),
        Fifo::NAME => Some(Box::new(Fifo::new(frames))),
        _ => None,
    }
}

/// The names that [`by_name`] knows, the default first.
pub const NAMES: [&str; 4] = [LruByCost::NAME, LruSecondChance::NAME, Lru::NAME, Fifo::NAME];
