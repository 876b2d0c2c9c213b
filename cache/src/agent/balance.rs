//! Sharing the pool out among pages of different sizes: a block of frames of one size is emptied, so that it can be cut into
//! frames of another, which need room more ([`crate::pool`]).
//!
//! Each size evicts among its own pages as long as these are the older ones. When the page that another size would evict next
//! has not been used for longer, the block that it is in goes over. So sizes settle where their oldest pages are equally old,
//! as in one list of all of them; a segment's weight stretches the time of its pages, and that of streamed ones is short. The first shard decides, one block at a
//! time; every shard evicts what it has there, and ranks give back what they have mapped there.
//!
//! A size that segments have keeps so many blocks that its pages can come and go one by one
//! ([`crate::pool::TableLayout::blocks_at_least`]). A rank has them made before it attaches a segment ([`Agent::keep_room_for`]):
//! afterwards it could be too late, because what is pinned or mapped may be in every block.

use super::Agent;
use super::shards::Aside;
use crate::error::CacheError;
use crate::page::PageIndex;
use crate::pool::{FrameUse, PageSize};
use crate::request::Room;
use smallvec::SmallVec;

/// How long a block may take to be emptied, in milliseconds: pages that are pinned stay.
const TIMEOUT_MS: u64 = 100;
/// After that, none is emptied for as long, and for twice as long each time that it happens again, up to this.
const PAUSE_MS_MAX: u64 = 5000;
/// How long the shards have to evict what is in the block, before they are asked again.
const ASK_AGAIN_MS: u64 = 2;
/// Most pages that are passed over because they are in a block that could not be emptied.
const LOOKS_MAX: usize = 64;
/// How often sizes are compared, in milliseconds.
const COMPARE_MS: u64 = 2;
/// How long a size is kept room for after a rank has asked for it last, in milliseconds: until its segment is known, for which the
/// slowest rank is waited for.
const PROMISE_MS: u64 = 60_000;
/// A size's oldest page must be older than the other's by so many parts of eight, so that blocks do not go to and fro.
const OLDER: u64 = 10;

/// A block that is being emptied.
#[derive(Clone, Copy, Debug)]
struct Vacating {
    block: u32,
    since_ms: u64,
    asked_ms: u64,
}

/// What the first shard knows of it.
#[derive(Debug, Default)]
pub(super) struct Balance {
    vacating: Option<Vacating>,
    compared_ms: u64,
    /// Blocks that could not be emptied: others come first.
    stuck: Vec<u32>,
    /// By size: until when room is kept for it that no segment has yet, in milliseconds.
    promised: [u64; PageSize::COUNT],
    /// After a block could not be emptied: when to try again, and how long such a while was.
    again_ms: u64,
    pause_ms: u64,
}

impl Agent {
    /// Goes on with the block that is being emptied, or finds one where a size is short of room.
    pub(super) fn balance(&mut self) -> Result<(), CacheError> {
        if self.shard != 0 {
            return Ok(());
        }
        if let Some(vacating) = self.balance.vacating {
            return self.go_on_vacating(vacating);
        }
        // Most jobs have pages of one size.
        if self.shards.sizes().nth(1).is_none() || self.balance.compared_ms == self.time.now_ms {
            return Ok(());
        }
        let promised = self.shards.sizes().find(|&size| self.is_promised(size) && self.lacks_blocks(size));
        if self.time.now_ms < self.balance.again_ms && promised.is_none() {
            return Ok(());
        }
        let others =
            self.shards.used_sizes().filter(|&size| Some(size) != promised && self.is_short_of(size));
        let mut short: SmallVec<[PageSize; PageSize::COUNT]> = promised.into_iter().chain(others).collect();
        // Those first that cannot do without.
        short.sort_by_key(|&size| (!self.lacks_blocks(size), !self.is_wanted(size)));
        let Some(&first) = short.first() else { return Ok(()) };
        if self.balance.compared_ms + COMPARE_MS > self.time.now_ms && !self.lacks_blocks(first) {
            return Ok(());
        }
        self.balance.compared_ms = self.time.now_ms;
        for size in short {
            if let Some(block) = self.block_for(size)?.filter(|&block| self.pool.begin_to_vacate(block)) {
                tracing::debug!(block, bytes = size.bytes(), "a block of the pool changes its size");
                let now_ms = self.time.now_ms;
                self.balance.vacating = Some(Vacating { block, since_ms: now_ms, asked_ms: now_ms });
                return self.ask_to_vacate(block);
            }
        }
        Ok(())
    }

    /// Has a size get the blocks without which its pages could not come and go, and keeps them for a while.
    pub(super) fn keep_room_for(&mut self, size: PageSize) -> Room {
        let layout = self.pool.layout();
        let used: SmallVec<[PageSize; PageSize::COUNT]> = self.shards.used_sizes().collect();
        let keeps = |other: &PageSize| *other == size || used.contains(other);
        let least = PageSize::all().filter(keeps).map(|other| layout.blocks_at_least(other)).sum();
        if least > layout.blocks() && self.lacks_blocks(size) {
            return Room::Never { least, blocks: layout.blocks() };
        }
        self.shards.expect_size(size);
        self.balance.promised[size.index()] = self.time.now_ms + PROMISE_MS;
        if self.cut_for(size) { Room::There } else { Room::NotYet }
    }

    /// Cuts blocks for a size until it has as many as it needs. False: none is left.
    fn cut_for(&self, size: PageSize) -> bool {
        while self.lacks_blocks(size) {
            if !self.pool.cut(size) {
                return false;
            }
        }
        true
    }

    fn is_promised(&self, size: PageSize) -> bool {
        self.time.now_ms <= self.balance.promised[size.index()]
    }

    /// Whether a size has fewer blocks than it needs.
    fn lacks_blocks(&self, size: PageSize) -> bool {
        self.pool.blocks_of(size) < self.pool.layout().blocks_at_least(size)
    }

    /// Whether the agent is emptying a block.
    pub(super) fn is_vacating(&self) -> bool {
        self.balance.vacating.is_some()
    }

    /// Whether somebody needs a frame of this size, or soon would, and evicting others of the size is what makes room.
    fn is_short_of(&self, size: PageSize) -> bool {
        self.pool.free_frames(size) < self.pool.free_target(size).div_ceil(2)
            && (self.shards.evicting(size) > 0 || self.lacks_blocks(size) || self.is_wanted(size))
    }

    /// The block whose pages are the ones to leave; none when those of this size are.
    fn block_for(&mut self, size: PageSize) -> Result<Option<u32>, CacheError> {
        let own = match self.lacks_blocks(size) {
            true => None,
            false => self.oldest_of(size)?.map(|(age, _)| age),
        };
        // Pages of it must have room, or wait, and none of its own, as far as this shard knows, can be evicted for them.
        let must = self.lacks_blocks(size) || (own.is_none() && self.is_wanted(size));
        let used: Vec<PageSize> = self.shards.used_sizes().collect();
        let mut oldest = None;
        let mut some = None;
        for other in self.shards.sizes().filter(|&other| other != size) {
            let stuck = &self.balance.stuck;
            if !used.contains(&other) && !self.is_promised(other) {
                if let Some(block) = self.pool.some_block_of(other, stuck) {
                    return Ok(Some(block));
                }
                continue;
            }
            if self.pool.blocks_of(other) <= self.pool.layout().blocks_at_least(other) {
                continue;
            }
            // Pages that have left for good, those of a segment that was detached, are older than any.
            let kept = self.wished_for(other).max(self.pool.free_target(other));
            if let Some(block) = self.pool.spare_block_of(other, kept, stuck) {
                return Ok(Some(block));
            }
            some = some.or_else(|| self.pool.some_block_of(other, stuck));
            if let Some((age, block)) = self.oldest_of(other)?
                && oldest.is_none_or(|(before, _)| age > before)
            {
                oldest = Some((age, block));
            }
        }
        let own = own.unwrap_or(0);
        tracing::trace!(bytes = size.bytes(), own, ?oldest, must, "sizes are compared");
        let found = oldest.filter(|&(age, _)| must || age > own * OLDER / 8).map(|(_, block)| block);
        // If need be, those are to leave, too, that replacement does not know: they are mapped.
        let found = found.or(some.filter(|_| must));
        if found.is_none() {
            self.balance.stuck.clear();
        }
        Ok(found)
    }

    /// How long the page that this size would evict next has not been used, in ticks of the clock and by weight, and its block.
    fn oldest_of(&mut self, size: PageSize) -> Result<Option<(u64, u32)>, CacheError> {
        let is_free = |stuck: &[u32], block: u32| !stuck.contains(&block);
        let (mut passed, mut found) = (Vec::new(), None);
        if let Some(frame) = self.oldest_frame(size) {
            found = Some(frame).filter(|&frame| is_free(&self.balance.stuck, self.pool.block_of(frame)));
        }
        // Only where blocks could not be emptied, those that come after.
        while found.is_none()
            && !self.balance.stuck.is_empty()
            && passed.len() < LOOKS_MAX
            && let Some((frame, _)) = self.next_victim(size)
        {
            passed.push(frame);
            found = Some(frame).filter(|&frame| is_free(&self.balance.stuck, self.pool.block_of(frame)));
        }
        for frame in passed {
            self.may_be_evicted(frame)?;
        }
        let Some(frame) = found else { return Ok(None) };
        let page = self.pool.page_in(frame)?;
        let policy = page.and_then(|page| self.segments.partitions.find(page)).map(|found| found.policy);
        let age = self.age_of(frame, policy.unwrap_or_default())?;
        Ok(Some((age, self.pool.block_of(frame))))
    }

    fn go_on_vacating(&mut self, vacating: Vacating) -> Result<(), CacheError> {
        let Vacating { block, since_ms, asked_ms } = vacating;
        if self.pool.end_vacating(block)? {
            tracing::debug!(block, "a block of the pool is empty");
            (self.balance.vacating, self.balance.pause_ms) = (None, 0);
            self.balance.stuck.clear();
            self.shards.sizes().filter(|&size| self.is_promised(size)).for_each(|size| {
                self.cut_for(size);
            });
            return Ok(());
        }
        let now_ms = self.time.now_ms;
        if now_ms > since_ms + TIMEOUT_MS {
            tracing::debug!(block, "a block of the pool is not to be emptied");
            self.pool.stop_vacating(block);
            self.balance.vacating = None;
            self.balance.stuck.push(block);
            self.balance.pause_ms = (2 * self.balance.pause_ms).clamp(TIMEOUT_MS, PAUSE_MS_MAX);
            self.balance.again_ms = now_ms + self.balance.pause_ms;
            return Ok(());
        }
        if now_ms < asked_ms + ASK_AGAIN_MS {
            return Ok(());
        }
        self.balance.vacating = Some(Vacating { asked_ms: now_ms, ..vacating });
        self.ask_to_vacate(block)
    }

    fn ask_to_vacate(&mut self, block: u32) -> Result<(), CacheError> {
        self.pool.ask_to_leave();
        (1..self.shards.count()).for_each(|shard| self.shards.tell(shard, Aside::Vacate(block)));
        self.vacate(block)
    }

    /// Evicts a page of a block that is being emptied which is about to be pinned there: it is wanted elsewhere.
    pub(super) fn leave_block(&mut self, page: PageIndex) -> Result<(), CacheError> {
        let entry = self.pool.entry(page)?;
        let frame = entry.frame();
        let leaves = entry.state().readable() && self.pool.is_vacating(frame);
        if leaves && self.pool.evictable(frame, self.time.now_ms) && self.quiet(page) {
            self.victims.remove(&self.pool, frame)?;
            self.begin_to_evict(frame)?;
        }
        Ok(())
    }

    /// Evicts what a block holds of this shard's.
    pub(super) fn vacate(&mut self, block: u32) -> Result<(), CacheError> {
        self.empty_reserve(block)?;
        let frames: Vec<_> = self.pool.frames_in_block(block).collect();
        for frame in frames {
            // No frame any more, where the first shard has found the block empty meanwhile and cut it again.
            let Ok(FrameUse::Page(page)) = self.pool.frame_use(frame) else { continue };
            let is_here =
                self.is_mine(page) && matches!(self.pool.page_in(frame), Ok(Some(found)) if found == page);
            if is_here && self.pool.evictable(frame, self.time.now_ms) && self.quiet(page) {
                self.victims.remove(&self.pool, frame)?;
                self.begin_to_evict(frame)?;
            }
        }
        Ok(())
    }
}
