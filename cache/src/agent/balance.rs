//! Sharing the pool out among pages of different sizes: a block of frames of one size is emptied, so that it can be cut into
//! frames of another, which need room more ([`crate::pool`]).
//!
//! Each size evicts among its own pages as long as these are the older ones. When the page that another size would evict next
//! has not been used for longer, the block that it is in goes over. So sizes settle where their oldest pages are equally old,
//! as in one list of all of them; a segment's weight stretches the time of its pages, and that of streamed ones is short. The first shard decides, one block at a
//! time; every shard evicts what it has there, and ranks give back what they have mapped there.
//!
//! A size that segments have keeps so many blocks that its pages can come and go one by one
//! ([`crate::pool::TableLayout::blocks_at_least`]). A rank has them made before it attaches a segment ([`Balance::keep_room_for`]):
//! afterwards it could be too late, because what is pinned or mapped may be in every block.

use super::context::NodeContext;
use super::controller::CacheController;
use super::items::ShardMessage;
use crate::error::CacheError;
use crate::pool::PageSize;
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

impl Balance {
    /// Goes on with the block that is being emptied, or finds one where a size is short of room.
    pub(super) fn advance(&mut self, cache: &mut CacheController) -> Result<(), CacheError> {
        if cache.ctx.shard != 0 {
            return Ok(());
        }
        if let Some(vacating) = self.vacating {
            return self.go_on_vacating(cache, vacating);
        }
        // Most jobs have pages of one size.
        if cache.ctx.shards.sizes().nth(1).is_none() || self.compared_ms == cache.ctx.time.now_ms {
            return Ok(());
        }
        let promised = cache
            .ctx
            .shards
            .sizes()
            .find(|&size| self.is_promised(&cache.ctx, size) && cache.ctx.lacks_blocks(size));
        if cache.ctx.time.now_ms < self.again_ms && promised.is_none() {
            return Ok(());
        }
        let others = cache
            .ctx
            .shards
            .used_sizes()
            .filter(|&size| Some(size) != promised && cache.ctx.is_short_of(size));
        let mut short: SmallVec<[PageSize; PageSize::COUNT]> = promised.into_iter().chain(others).collect();
        // Those first that cannot do without.
        short.sort_by_key(|&size| (!cache.ctx.lacks_blocks(size), !cache.ctx.is_wanted(size)));
        let Some(&first) = short.first() else { return Ok(()) };
        if self.compared_ms + COMPARE_MS > cache.ctx.time.now_ms && !cache.ctx.lacks_blocks(first) {
            return Ok(());
        }
        self.compared_ms = cache.ctx.time.now_ms;
        for size in short {
            if let Some(block) =
                self.block_for(&mut cache.ctx, size)?.filter(|&block| cache.ctx.pool.begin_to_vacate(block))
            {
                tracing::debug!(block, bytes = size.bytes(), "a block of the pool changes its size");
                let now_ms = cache.ctx.time.now_ms;
                self.vacating = Some(Vacating { block, since_ms: now_ms, asked_ms: now_ms });
                return self.ask_to_vacate(cache, block);
            }
        }
        Ok(())
    }

    /// Has a size get the blocks without which its pages could not come and go, and keeps them for a while.
    pub(super) fn keep_room_for(&mut self, ctx: &mut NodeContext, size: PageSize) -> Room {
        let layout = ctx.pages();
        let used: SmallVec<[PageSize; PageSize::COUNT]> = ctx.shards.used_sizes().collect();
        let keeps = |other: &PageSize| *other == size || used.contains(other);
        let least = PageSize::all().filter(keeps).map(|other| layout.blocks_at_least(other)).sum();
        if least > layout.blocks() && ctx.lacks_blocks(size) {
            return Room::Never { least, blocks: layout.blocks() };
        }
        ctx.shards.expect_size(size);
        self.promised[size.index()] = ctx.time.now_ms + PROMISE_MS;
        if self.cut_for(ctx, size) { Room::There } else { Room::NotYet }
    }

    /// Cuts blocks for a size until it has as many as it needs. False: none is left.
    fn cut_for(&self, ctx: &NodeContext, size: PageSize) -> bool {
        while ctx.lacks_blocks(size) {
            if !ctx.pool.cut(size) {
                return false;
            }
        }
        true
    }

    fn is_promised(&self, ctx: &NodeContext, size: PageSize) -> bool {
        ctx.time.now_ms <= self.promised[size.index()]
    }

    /// Whether the agent is emptying a block.
    pub(super) fn is_vacating(&self) -> bool {
        self.vacating.is_some()
    }

    /// The block whose pages are the ones to leave; none when those of this size are.
    fn block_for(&mut self, ctx: &mut NodeContext, size: PageSize) -> Result<Option<u32>, CacheError> {
        let own = match ctx.lacks_blocks(size) {
            true => None,
            false => self.oldest_of(ctx, size)?.map(|(age, _)| age),
        };
        // Pages of it must have room, or wait, and none of its own, as far as this shard knows, can be evicted for them.
        let must = ctx.lacks_blocks(size) || (own.is_none() && ctx.is_wanted(size));
        let used: Vec<PageSize> = ctx.shards.used_sizes().collect();
        let mut oldest = None;
        let mut some = None;
        for other in ctx.shards.sizes().filter(|&other| other != size) {
            let stuck = &self.stuck;
            if !used.contains(&other) && !self.is_promised(ctx, other) {
                if let Some(block) = ctx.pool.some_block_of(other, stuck) {
                    return Ok(Some(block));
                }
                continue;
            }
            if ctx.pool.blocks_of(other) <= ctx.pages().blocks_at_least(other) {
                continue;
            }
            // Pages that have left for good, those of a segment that was detached, are older than any.
            let kept = ctx.wished_for(other).max(ctx.pool.free_target(other));
            if let Some(block) = ctx.pool.spare_block_of(other, kept, stuck) {
                return Ok(Some(block));
            }
            some = some.or_else(|| ctx.pool.some_block_of(other, stuck));
            if let Some((age, block)) = self.oldest_of(ctx, other)?
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
            self.stuck.clear();
        }
        Ok(found)
    }

    /// How long the page that this size would evict next has not been used, in ticks of the clock and by weight, and its block.
    fn oldest_of(&mut self, ctx: &mut NodeContext, size: PageSize) -> Result<Option<(u64, u32)>, CacheError> {
        let is_free = |stuck: &[u32], block: u32| !stuck.contains(&block);
        let (mut passed, mut found) = (Vec::new(), None);
        if let Some(frame) = ctx.oldest_frame(size) {
            found = Some(frame).filter(|&frame| is_free(&self.stuck, ctx.pool.block_of(frame)));
        }
        // Only where blocks could not be emptied, those that come after.
        while found.is_none()
            && !self.stuck.is_empty()
            && passed.len() < LOOKS_MAX
            && let Some((frame, _)) = ctx.next_victim(size)
        {
            passed.push(frame);
            found = Some(frame).filter(|&frame| is_free(&self.stuck, ctx.pool.block_of(frame)));
        }
        for frame in passed {
            ctx.may_be_evicted(frame)?;
        }
        let Some(frame) = found else { return Ok(None) };
        let page = ctx.pool.page_in(frame)?;
        let policy = page.and_then(|page| ctx.segments.partitions.find(page)).map(|found| found.policy);
        let age = ctx.age_of(frame, policy.unwrap_or_default())?;
        Ok(Some((age, ctx.pool.block_of(frame))))
    }

    fn go_on_vacating(&mut self, cache: &mut CacheController, vacating: Vacating) -> Result<(), CacheError> {
        let Vacating { block, since_ms, asked_ms } = vacating;
        if cache.ctx.pool.end_vacating(block)? {
            tracing::debug!(block, "a block of the pool is empty");
            (self.vacating, self.pause_ms) = (None, 0);
            self.stuck.clear();
            cache.ctx.shards.sizes().filter(|&size| self.is_promised(&cache.ctx, size)).for_each(|size| {
                self.cut_for(&cache.ctx, size);
            });
            return Ok(());
        }
        let now_ms = cache.ctx.time.now_ms;
        if now_ms > since_ms + TIMEOUT_MS {
            tracing::debug!(block, "a block of the pool is not to be emptied");
            cache.ctx.pool.stop_vacating(block);
            self.vacating = None;
            self.stuck.push(block);
            self.pause_ms = (2 * self.pause_ms).clamp(TIMEOUT_MS, PAUSE_MS_MAX);
            self.again_ms = now_ms + self.pause_ms;
            return Ok(());
        }
        if now_ms < asked_ms + ASK_AGAIN_MS {
            return Ok(());
        }
        self.vacating = Some(Vacating { asked_ms: now_ms, ..vacating });
        self.ask_to_vacate(cache, block)
    }

    fn ask_to_vacate(&mut self, cache: &mut CacheController, block: u32) -> Result<(), CacheError> {
        cache.ctx.pool.ask_to_leave();
        (1..cache.ctx.shards.count())
            .for_each(|shard| cache.ctx.shards.tell(shard, ShardMessage::Vacate(block)));
        cache.vacate(block)
    }
}
