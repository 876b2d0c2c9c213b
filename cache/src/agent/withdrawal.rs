//! Giving up a segment: first every node gives up its copies, then every node forgets the pages.
//!
//! Nobody uses the segment any more when this begins, on any node: no rank has a put, a get, a mapped page or a claim of it under
//! way, and none begins one. So what a node has of it at that time is all that it will ever have, and what goes on is what the
//! evictions of all nodes bring about. Nothing of it is written to NVMe: what has no checkpoint is gone.

use super::context::Outgoing;
use super::controller::CacheController;
use super::items::{DetachRequester, ShardMessage, Waiter};
use crate::error::{CacheError, FailureKind};
use crate::page::PageIndex;
use crate::partition::{Partition, PartitionId, SegmentId, Which};
use crate::request::{About, Detach, Extent, InPlaceAnswer};
use vgas_rma::address::Peer;

/// A segment whose copies are being given up.
#[derive(Debug)]
struct Withdrawal {
    which: Which,
    /// Of the first shard.
    requesters: Vec<DetachRequester>,
    /// Pages of which this shard has, or does, something.
    pages: Vec<PageIndex>,
    /// Other shards that are not done.
    others: u32,
    /// The first shard has been told that this one is.
    told: bool,
}

/// The segments that are being given up.
#[derive(Debug, Default)]
pub(super) struct Withdrawals {
    in_progress: Vec<Withdrawal>,
}

impl Withdrawals {
    /// Whether a segment is being given up.
    pub(super) fn is_withdrawing(&self) -> bool {
        self.in_progress.iter().any(|one| !one.pages.is_empty() || one.others > 0)
    }

    /// A rank says that nobody uses a segment any more.
    pub(super) fn withdraw(
        &mut self,
        cache: &mut CacheController,
        which: Which,
        requester: DetachRequester,
    ) -> Result<(), CacheError> {
        if let Some(begun) = self.in_progress.iter_mut().find(|one| one.which == which) {
            begun.requesters.push(requester);
            return self.advance(cache).map(drop);
        }
        let others = cache.ctx.shards.count() - 1;
        (1..=others).for_each(|shard| cache.ctx.shards.tell(shard, ShardMessage::Withdraw(which)));
        let requesters = vec![requester];
        self.begin_withdrawal(cache, Withdrawal { which, requesters, pages: Vec::new(), others, told: true })
    }

    /// This shard's part, for the first.
    pub(super) fn withdraw_part(
        &mut self,
        cache: &mut CacheController,
        which: Which,
    ) -> Result<(), CacheError> {
        let (requesters, pages) = (Vec::new(), Vec::new());
        self.begin_withdrawal(cache, Withdrawal { which, requesters, pages, others: 0, told: false })
    }

    /// Another shard has done its part.
    pub(super) fn part_withdrawn(
        &mut self,
        cache: &mut CacheController,
        which: Which,
    ) -> Result<(), CacheError> {
        if let Some(one) = self.in_progress.iter_mut().find(|one| one.which == which) {
            one.others = one.others.saturating_sub(1);
        }
        self.advance(cache).map(drop)
    }

    fn begin_withdrawal(
        &mut self,
        cache: &mut CacheController,
        withdrawal: Withdrawal,
    ) -> Result<(), CacheError> {
        let which = withdrawal.which;
        let partitions: Vec<Partition> =
            cache.ctx.segments.partitions.all().filter(|found| which.covers(found)).copied().collect();
        let is_of = |page: &PageIndex| partitions.iter().any(|found| found.range().contains(page));
        // Nobody comes to what was to be read ahead.
        cache.ctx.frames.later.retain(|(page, _)| !is_of(page));
        let mut pages: Vec<PageIndex> = cache
            .ctx
            .cached_pages()
            .chain(cache.lines.pages.keys().copied())
            .chain(cache.homes.keys().copied())
            .filter(|page| is_of(page) && cache.ctx.is_mine(*page))
            .collect();
        pages.sort_unstable();
        pages.dedup();
        cache.ctx.segments.withdrawn.push(which);
        self.in_progress.push(Withdrawal { pages, ..withdrawal });
        for partition in partitions {
            // Those of others are not published here.
            cache.unpublish(partition.range())?;
        }
        self.advance(cache).map(drop)
    }

    /// Evicts what is left of segments that are given up; true when one is done.
    pub(super) fn advance(&mut self, cache: &mut CacheController) -> Result<bool, CacheError> {
        let mut any = false;
        for index in 0..self.in_progress.len() {
            let pages = std::mem::take(&mut self.in_progress[index].pages);
            let mut left = Vec::new();
            for page in pages {
                if !self.has_left(cache, page)? {
                    left.push(page);
                }
            }
            let one = &mut self.in_progress[index];
            one.pages = left;
            if !one.pages.is_empty() || one.others > 0 {
                continue;
            }
            if !std::mem::replace(&mut one.told, true) {
                cache.ctx.shards.tell(0, ShardMessage::Withdrawn(one.which));
                any = true;
            }
            for requester in std::mem::take(&mut one.requesters) {
                any = true;
                self.tell_requester(cache, requester, true)?;
            }
        }
        Ok(any)
    }

    /// Whether this shard has nothing of a page any more; otherwise it goes on with that.
    fn has_left(&mut self, cache: &mut CacheController, page: PageIndex) -> Result<bool, CacheError> {
        let entry = cache.ctx.entry(page)?;
        if !cache.quiet(page) || entry.held() {
            return Ok(false);
        }
        if entry.state().readable() {
            let frame = entry.frame();
            if cache.ctx.is_evictable(frame, u64::MAX) {
                cache.evict_early(frame)?;
            }
            return Ok(false);
        }
        Ok(!cache.homes.contains_key(&page))
    }

    fn end(&mut self, cache: &mut CacheController, which: Which) {
        self.in_progress.retain(|one| one.which != which);
        cache.ctx.segments.withdrawn.retain(|one| *one != which);
    }

    /// The first shard has forgotten a segment.
    pub(super) fn forget_part(&mut self, cache: &mut CacheController, which: Which) {
        self.end(cache, which);
        cache.ctx.storage.volume.leave_closed();
    }

    /// No node has copies of a segment any more: its pages are nobody's.
    pub(super) fn forget_segment(
        &mut self,
        cache: &mut CacheController,
        which: Which,
        requester: DetachRequester,
    ) -> Result<(), CacheError> {
        let own = |found: &Partition| {
            which.covers(found) && cache.ctx.layout.node_of(found.owner) == cache.ctx.node
        };
        let here: Vec<Partition> =
            cache.ctx.segments.partitions.all().filter(|found| own(found)).copied().collect();
        for partition in here {
            cache.unpublish(partition.range())?;
            cache.ctx.show_file(&partition, None)?;
            if let Err(error) = cache.ctx.storage.volume.close(partition.file_number()) {
                tracing::error!(%error, "a segment that is given up is in use");
                return self.tell_requester(cache, requester, false);
            }
        }
        cache.ctx.end_rows(which);
        cache.ctx.change_segments(|known| known.remove(which));
        self.end(cache, which);
        // Before the number can be used again: the waiter has not heard of it.
        let others = 1..cache.ctx.shards.count();
        others.for_each(|shard| cache.ctx.shards.tell(shard, ShardMessage::Forget(which)));
        self.tell_requester(cache, requester, true)
    }

    fn tell_requester(
        &mut self,
        cache: &mut CacheController,
        requester: DetachRequester,
        done: bool,
    ) -> Result<(), CacheError> {
        let failure = crate::error::Failure::from(FailureKind::Segment);
        match requester {
            DetachRequester::Waiter(waiter) => {
                cache.ctx.complete(waiter, if done { Ok(()) } else { Err(failure) })
            }
            DetachRequester::Peer(to, number) => {
                let (answer, bytes) = match done {
                    true => (InPlaceAnswer::Done, Vec::new()),
                    false => (InPlaceAnswer::Failed, [[0; 4], failure.code().to_le_bytes()].concat()),
                };
                cache.ctx.outbox.push(to, Outgoing::Answer { words: answer.encode(number), bytes });
                Ok(())
            }
        }
    }

    /// A rank wants something of a partition as a whole.
    pub(super) fn about_partition(
        &mut self,
        cache: &mut CacheController,
        from: Peer,
        of: PartitionId,
        what: About,
        number: u32,
    ) -> Result<(), CacheError> {
        let which = Which { segment: of.segment, owner: Some(of.owner) };
        match what {
            About::Describe => {
                let found = cache.ctx.segments.partitions.of(of.segment, of.owner);
                let is_here = |found: &&Partition| cache.ctx.layout.node_of(found.owner) == cache.ctx.node;
                let (answer, bytes) = match found.filter(is_here) {
                    Some(&Partition { first, pages, size, policy, .. }) => {
                        (InPlaceAnswer::Done, Extent { first, pages, size, policy }.encode())
                    }
                    None => (InPlaceAnswer::NotInPlace, Vec::new()),
                };
                cache.ctx.outbox.push(from, Outgoing::Answer { words: answer.encode(number), bytes });
                Ok(())
            }
            // Only who has made it may give it up.
            _ if cache.ctx.layout.rank_of_peer(from) != Some(of.owner) => Err(CacheError::Protocol {
                who: cache.ctx.layout.describe(from),
                what: format!("wants {of} to be given up, which is not its own"),
            }),
            About::Withdraw => self.withdraw(cache, which, DetachRequester::Peer(from, number)),
            About::Forget => self.forget_segment(cache, which, DetachRequester::Peer(from, number)),
        }
    }

    /// A segment is given up, a step further.
    pub(super) fn detach(
        &mut self,
        cache: &mut CacheController,
        segment: SegmentId,
        step: Detach,
        waiter: Waiter,
    ) -> Result<(), CacheError> {
        let which = Which { segment, owner: None };
        match step {
            Detach::Withdraw => self.withdraw(cache, which, DetachRequester::Waiter(waiter)),
            Detach::Forget => self.forget_segment(cache, which, DetachRequester::Waiter(waiter)),
        }
    }
}
