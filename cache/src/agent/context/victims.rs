//! Whom replacement chooses among: one policy for each size of pages in use, over the frames of that size, and for each weight that
//! segments with such pages have: of what the policies name, that leaves which has not been used for longest, by weight. Beside
//! them the pages of streamed segments, which come and go in one order and leave first, unless they are few.

use crate::error::CacheError;
use crate::partition::Policy;
use crate::pool::{FrameId, FrameUse, PageSize, PageState, PoolAgent};
use crate::replacement;
use crate::replacement::{Class, Fifo, FrameView, Queue, Replacement};
use rustc_hash::FxHashSet;
use smallvec::{SmallVec, smallvec};
use std::cmp::Reverse;

/// The part of a shard's frames of a size that streamed pages may have before they leave ahead of others: enough that what is read ahead of a
/// scan has been read before it leaves.
const STREAMED_PART: usize = 8;

/// How many times as fast as others the pages of streamed segments age: faster by far than any policy lets pages age that others have.
const STREAMED_AGES: u64 = 1024;

/// The policies.
pub struct Victims {
    /// The name of the policy.
    policy: &'static str,
    by_size: [Option<OfSize>; PageSize::COUNT],
    /// Frames of pages that were shared, and that nobody else has any more, as far as is known.
    last: FxHashSet<FrameId>,
}

/// The frames of a size.
struct OfSize {
    /// Those of pages of each weight; nearly always of one.
    by_weight: SmallVec<[OfWeight; 1]>,
    streamed: Fifo,
}

struct OfWeight {
    weight: u8,
    policy: Box<dyn Replacement>,
}

impl OfWeight {
    fn new(name: &str, frames: u32, weight: u8) -> Option<Self> {
        replacement::by_name(name, frames).map(|policy| Self { weight, policy })
    }
}

impl OfSize {
    /// How many pages the policies know.
    fn known(&self) -> usize {
        self.by_weight.iter().map(|one| one.policy.len()).sum()
    }

    /// Whether streamed pages leave first: there are many of them here.
    fn streamed_first(&self) -> bool {
        STREAMED_PART * self.streamed.len() > self.streamed.len() + self.known()
    }

    /// What the policy says whose next frame has not been used for longest, by weight.
    fn in_turn<T>(
        &mut self,
        view: &View,
        ask: impl FnOnce(&mut dyn Replacement, &dyn FrameView) -> Option<T>,
    ) -> Option<T> {
        let known = self.known();
        let mut oldest = None;
        if self.by_weight.len() > 1 {
            for (at, one) in self.by_weight.iter_mut().enumerate() {
                let Some((frame, _)) = one.policy.next(&view.part(one.policy.len(), known)) else { continue };
                let age = aged(one.policy.age(frame, view), one.weight);
                oldest = oldest.max(Some((age, Reverse(at))));
            }
        }
        let at = oldest.map_or(0, |(_, Reverse(at))| at);
        let policy = &mut *self.by_weight.get_mut(at)?.policy;
        let part = view.part(policy.len(), known);
        ask(policy, &part)
    }

    fn victim(&mut self, view: &View) -> Option<(FrameId, Queue)> {
        if self.streamed_first()
            && let Some(found) = self.streamed.victim(view)
        {
            return Some(found);
        }
        self.in_turn(view, |policy, view| policy.victim(view)).or_else(|| self.streamed.victim(view))
    }

    fn next(&mut self, view: &View) -> Option<(FrameId, Queue)> {
        if self.streamed_first()
            && let Some(found) = self.streamed.next(view)
        {
            return Some(found);
        }
        self.in_turn(view, |policy, view| policy.next(view)).or_else(|| self.streamed.next(view))
    }
}

/// How old a page is for replacement, in eighths of a tick of the clock: a weight stretches its time.
fn aged(ticks: u64, weight: u8) -> u64 {
    8 * ticks / u64::from(weight.max(1))
}

/// The pool as a policy sees it, which numbers the frames of its size from 0.
#[derive(Clone, Copy)]
struct View<'a> {
    pool: &'a PoolAgent,
    last: &'a FxHashSet<FrameId>,
    now_ms: u64,
    size: PageSize,
    /// How many frames the shard has for pages of this size, about.
    frames: usize,
}

/// One size of pages, and the pool as it is now.
#[derive(Clone, Copy)]
pub struct Among<'a> {
    pub pool: &'a PoolAgent,
    pub size: PageSize,
    pub now_ms: u64,
    /// How many frames the shard has for pages of this size, about.
    pub frames: usize,
}

impl<'a> Among<'a> {
    fn view(self, last: &'a FxHashSet<FrameId>) -> View<'a> {
        let Self { pool, size, now_ms, frames } = self;
        View { pool, last, size, now_ms, frames }
    }
}

impl View<'_> {
    /// For a policy that knows so many of so many pages.
    fn part(&self, known: usize, of: usize) -> Self {
        Self { frames: self.frames * known / of.max(1), ..*self }
    }
}

impl FrameView for View<'_> {
    fn stamp(&self, frame: FrameId) -> u32 {
        self.pool.stamp(self.size.nth(frame.0)).unwrap_or(0)
    }

    fn clock(&self) -> u32 {
        self.pool.clock()
    }

    fn class(&self, frame: FrameId) -> Class {
        let frame = self.size.nth(frame.0);
        let Ok(FrameUse::Page(page)) = self.pool.frame_use(frame) else {
            return Class::Other;
        };
        match self.pool.entry(page).map(|entry| entry.state()) {
            Ok(PageState::Shared) if self.last.contains(&frame) => Class::Exclusive,
            Ok(PageState::Owned) if self.last.contains(&frame) => Class::Modified,
            Ok(PageState::Exclusive) => Class::Exclusive,
            Ok(PageState::Modified) => Class::Modified,
            _ => Class::Other,
        }
    }

    fn evictable(&self, frame: FrameId) -> bool {
        self.pool.evictable(self.size.nth(frame.0), self.now_ms)
    }

    fn frames(&self) -> usize {
        self.frames
    }
}

impl Victims {
    /// With the policy of this name.
    pub fn new(policy: &'static str) -> Self {
        Self { policy, by_size: Default::default(), last: FxHashSet::default() }
    }

    /// A frame has been given a page, of a segment with this policy.
    pub fn insert(&mut self, pool: &PoolAgent, frame: FrameId, of: Policy) -> Result<(), CacheError> {
        let (stamp, size) = (pool.stamp(frame)?, pool.size_of_frame(frame)?);
        let frames = pool.layout().frames_of(size);
        let of_size = self.by_size[size.index()]
            .get_or_insert_with(|| OfSize { by_weight: smallvec![], streamed: Fifo::new(frames) });
        let frame = FrameId(size.ordinal(frame));
        if of.streamed {
            of_size.streamed.insert(frame, stamp);
            return Ok(());
        }
        let known = of_size.by_weight.iter().position(|one| one.weight == of.weight);
        let at = known.unwrap_or_else(|| {
            of_size.by_weight.extend(OfWeight::new(self.policy, frames, of.weight));
            of_size.by_weight.len().saturating_sub(1)
        });
        if let Some(one) = of_size.by_weight.get_mut(at) {
            one.policy.insert(frame, stamp);
        }
        Ok(())
    }

    /// A frame has lost its page. False: it was to be evicted, or is not known for another reason.
    pub fn remove(&mut self, pool: &PoolAgent, frame: FrameId) -> Result<bool, CacheError> {
        self.last.remove(&frame);
        let size = pool.size_of_frame(frame)?;
        let Some(of_size) = &mut self.by_size[size.index()] else { return Ok(false) };
        let frame = FrameId(size.ordinal(frame));
        let policies = of_size.by_weight.iter_mut().map(|one| &mut *one.policy as &mut dyn Replacement);
        Ok(policies.chain([&mut of_size.streamed as _]).any(|policy| policy.remove(frame)))
    }

    /// Nobody else has the page of this frame any more, which is shared.
    pub fn is_last(&mut self, frame: FrameId) {
        self.last.insert(frame);
    }

    /// Another node has the page of this frame, too, from now on.
    pub fn is_shared(&mut self, pool: &PoolAgent, frame: FrameId) -> Result<(), CacheError> {
        self.last.remove(&frame);
        let (stamp, size) = (pool.stamp(frame)?, pool.size_of_frame(frame)?);
        if let Some(of_size) = &mut self.by_size[size.index()] {
            let frame = FrameId(size.ordinal(frame));
            of_size.by_weight.iter_mut().for_each(|one| one.policy.shared(frame, stamp));
        }
        Ok(())
    }

    /// The frame to be evicted next, which is forgotten.
    pub fn take(&mut self, among: Among) -> Option<(FrameId, Queue)> {
        let size = among.size;
        let (frame, queue) = self.by_size[size.index()].as_mut()?.victim(&among.view(&self.last))?;
        Some((size.nth(frame.0), queue))
    }

    /// How long a frame has not been used as its policy sees it, and by its page's weight: the larger, the sooner it goes.
    pub fn age(&self, among: Among, frame: FrameId, of: Policy) -> u64 {
        let ticks = u64::from(among.pool.clock().wrapping_sub(among.pool.stamp(frame).unwrap_or(0)));
        if of.streamed {
            return aged(STREAMED_AGES * ticks, of.weight);
        }
        let policies = self.by_size[among.size.index()].iter().flat_map(|of_size| &of_size.by_weight);
        let policy = policies.into_iter().find(|one| one.weight == of.weight).map(|one| &*one.policy);
        let ordinal = FrameId(among.size.ordinal(frame));
        let seen = policy.map_or(ticks, |policy| policy.age(ordinal, &among.view(&self.last)));
        aged(seen, of.weight)
    }

    /// The same frame, which keeps its turn.
    pub fn next(&mut self, among: Among) -> Option<FrameId> {
        let size = among.size;
        let (frame, _) = self.by_size[size.index()].as_mut()?.next(&among.view(&self.last))?;
        Some(size.nth(frame.0))
    }
}
