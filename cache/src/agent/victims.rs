//! Whom replacement chooses among: one policy for each size of pages in use, over the frames of that size.

use super::Agent;
use crate::error::CacheError;
use crate::pool::{FrameId, FrameUse, PageSize, PageState, PoolAgent};
use crate::replacement::{self, Class, FrameView, Queue, Replacement};
use crate::request::PageIndex;

/// The policies.
pub(super) struct Victims {
    /// The name of the policy.
    policy: &'static str,
    by_size: [Option<Box<dyn Replacement>>; PageSize::COUNT],
}

/// The pool as a policy sees it, which numbers the frames of its size from 0.
struct View<'a> {
    pool: &'a PoolAgent,
    now_ms: u64,
    size: PageSize,
}

impl FrameView for View<'_> {
    fn stamp(&self, frame: FrameId) -> u32 {
        self.pool.stamp(self.size.nth(frame.0)).unwrap_or(0)
    }

    fn class(&self, frame: FrameId) -> Class {
        let Ok(FrameUse::Page(page)) = self.pool.frame_use(self.size.nth(frame.0)) else {
            return Class::Other;
        };
        match self.pool.entry(page).map(|entry| entry.state()) {
            Ok(PageState::Exclusive) => Class::Exclusive,
            Ok(PageState::Modified) => Class::Modified,
            _ => Class::Other,
        }
    }

    fn evictable(&self, frame: FrameId) -> bool {
        self.pool.evictable(self.size.nth(frame.0), self.now_ms)
    }
}

impl Victims {
    /// With the policy of this name.
    pub fn new(policy: &'static str) -> Self {
        Self { policy, by_size: Default::default() }
    }

    fn of(&mut self, pool: &PoolAgent, size: PageSize) -> Option<&mut Box<dyn Replacement>> {
        let policy = &mut self.by_size[size.index()];
        if policy.is_none() {
            *policy = replacement::by_name(self.policy, pool.layout().frames_of(size));
        }
        policy.as_mut()
    }

    /// A frame has been given a page.
    pub fn insert(&mut self, pool: &PoolAgent, frame: FrameId) -> Result<(), CacheError> {
        let (stamp, size) = (pool.stamp(frame)?, pool.size_of_frame(frame)?);
        if let Some(policy) = self.of(pool, size) {
            policy.insert(FrameId(size.ordinal(frame)), stamp);
        }
        Ok(())
    }

    /// A frame has lost its page.
    pub fn remove(&mut self, pool: &PoolAgent, frame: FrameId) -> Result<(), CacheError> {
        let size = pool.size_of_frame(frame)?;
        if let Some(policy) = &mut self.by_size[size.index()] {
            policy.remove(FrameId(size.ordinal(frame)));
        }
        Ok(())
    }

    /// The frame of this size to be evicted next, which is forgotten.
    pub fn next(&mut self, pool: &PoolAgent, now_ms: u64, size: PageSize) -> Option<(FrameId, Queue)> {
        let policy = self.by_size[size.index()].as_mut()?;
        let (frame, queue) = policy.victim(&View { pool, now_ms, size })?;
        Some((size.nth(frame.0), queue))
    }
}

impl Agent {
    /// A page has come into this frame.
    pub(super) fn may_be_evicted(&mut self, frame: FrameId) -> Result<(), CacheError> {
        self.victims.insert(&self.pool, frame)
    }

    /// How large a page is.
    pub(super) fn size_of(&self, page: PageIndex) -> PageSize {
        self.pool.layout().size_of(page)
    }

    /// A free frame for a page: of those at hand, if they are of its size, or of the pool.
    pub(super) fn take_frame_for(&mut self, page: PageIndex) -> Option<FrameId> {
        let size = self.size_of(page);
        let fits = |frame: &FrameId| self.pool.size_of_frame(*frame).is_ok_and(|found| found == size);
        match self.frames.at_hand.last().is_some_and(fits) {
            true => self.frames.at_hand.pop(),
            false => self.pool.take_frame(size),
        }
    }
}
