//! Whom replacement chooses among: one policy for each size of pages in use, over the frames of that size; and beside it the
//! pages of streamed segments, which come and go in one order and leave first, unless they are few.

use super::Agent;
use crate::error::CacheError;
use crate::pool::{FrameId, FrameUse, PageSize, PageState, PoolAgent};
use crate::replacement::{self, Class, Fifo, FrameView, Queue, Replacement};
use crate::request::PageIndex;

/// The part of a shard's frames of a size that streamed pages may have before they leave ahead of others: enough that what is read ahead of a
/// scan has been read before it leaves.
const STREAMED_PART: usize = 8;

/// The policies.
pub(super) struct Victims {
    /// The name of the policy.
    policy: &'static str,
    by_size: [Option<OfSize>; PageSize::COUNT],
}

/// The frames of a size.
struct OfSize {
    policy: Box<dyn Replacement>,
    streamed: Fifo,
}

impl OfSize {
    /// Whose pages leave first: streamed ones, if there are many of these here, or others.
    fn in_turn(&mut self) -> [&mut dyn Replacement; 2] {
        let streamed = self.streamed.len();
        match STREAMED_PART * streamed > streamed + self.policy.len() {
            true => [&mut self.streamed, &mut *self.policy],
            false => [&mut *self.policy, &mut self.streamed],
        }
    }

    fn victim(&mut self, view: &View) -> Option<(FrameId, Queue)> {
        self.in_turn().into_iter().find_map(|policy| policy.victim(view))
    }
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

    /// A frame has been given a page, which may be a streamed one.
    pub fn insert(&mut self, pool: &PoolAgent, frame: FrameId, is_streamed: bool) -> Result<(), CacheError> {
        let (stamp, size) = (pool.stamp(frame)?, pool.size_of_frame(frame)?);
        let frames = pool.layout().frames_of(size);
        let of_size = &mut self.by_size[size.index()];
        if of_size.is_none() {
            *of_size = replacement::by_name(self.policy, frames)
                .map(|policy| OfSize { policy, streamed: Fifo::new(frames) });
        }
        let Some(of_size) = of_size else { return Ok(()) };
        let frame = FrameId(size.ordinal(frame));
        match is_streamed {
            true => of_size.streamed.insert(frame, stamp),
            false => of_size.policy.insert(frame, stamp),
        }
        Ok(())
    }

    /// A frame has lost its page.
    pub fn remove(&mut self, pool: &PoolAgent, frame: FrameId) -> Result<(), CacheError> {
        let size = pool.size_of_frame(frame)?;
        if let Some(of_size) = &mut self.by_size[size.index()] {
            of_size.policy.remove(FrameId(size.ordinal(frame)));
            of_size.streamed.remove(FrameId(size.ordinal(frame)));
        }
        Ok(())
    }

    /// The frame of this size to be evicted next, which is forgotten.
    fn take(&mut self, view: &View) -> Option<(FrameId, Queue)> {
        let (frame, queue) = self.by_size[view.size.index()].as_mut()?.victim(view)?;
        Some((view.size.nth(frame.0), queue))
    }

    /// The same frame, which keeps its turn.
    fn next(&mut self, view: &View) -> Option<FrameId> {
        let mut in_turn = self.by_size[view.size.index()].as_mut()?.in_turn().into_iter();
        in_turn.find_map(|policy| policy.next(view)).map(|frame| view.size.nth(frame.0))
    }
}

impl Agent {
    /// A page has come into this frame.
    pub(super) fn may_be_evicted(&mut self, frame: FrameId) -> Result<(), CacheError> {
        let page = self.pool.page_in(frame)?;
        let is_streamed = page.is_some_and(|page| self.segments.partitions.is_streamed(page));
        self.victims.insert(&self.pool, frame, is_streamed)
    }

    /// The frame of this size to be evicted next, which replacement forgets.
    pub(super) fn next_victim(&mut self, size: PageSize) -> Option<(FrameId, Queue)> {
        self.victims.take(&View { pool: &self.pool, now_ms: self.time.now_ms, size })
    }

    /// The same frame, which replacement keeps where it is: whoever only compares must not change whose turn it is.
    pub(super) fn oldest_frame(&mut self, size: PageSize) -> Option<FrameId> {
        self.victims.next(&View { pool: &self.pool, now_ms: self.time.now_ms, size })
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
