//! Giving up a segment: first every node gives up its copies, then every node forgets the pages.
//!
//! Nobody uses the segment any more when this begins, on any node: no rank has a put, a get, a mapped page or a claim of it under
//! way, and none begins one. So what a node has of it at that time is all that it will ever have, and what goes on is what the
//! evictions of all nodes bring about. Nothing of it is written to NVMe: what has no checkpoint is gone.

use super::Agent;
use super::Outgoing;
use super::answers::Waiter;
use super::shards::Aside;
use crate::error::{CacheError, FailureKind};
use crate::page::PageIndex;
use crate::partition::{Partition, PartitionId, Which};
use crate::pool::FrameUse;
use crate::request::{About, Extent, InPlaceAnswer};
use vgas_rma::address::Peer;

/// Who is told when a step is done.
#[derive(Clone, Copy, Debug)]
pub(super) enum Hearer {
    /// A rank of this node.
    Waiter(Waiter),
    /// A rank, under this number of its own.
    Peer(Peer, u32),
}

/// A segment whose copies are being given up.
#[derive(Debug)]
pub(super) struct Withdrawal {
    which: Which,
    /// Of the first shard.
    hearers: Vec<Hearer>,
    /// Pages of which this shard has, or does, something.
    pages: Vec<PageIndex>,
    /// Other shards that are not done.
    others: u32,
    /// The first shard has been told that this one is.
    told: bool,
}

impl Agent {
    /// Whether a page is of a segment that is being given up.
    pub(super) fn is_withdrawn(&self, page: PageIndex) -> bool {
        let is_of = |found: &Partition| self.segments.withdrawals.iter().any(|one| one.which.covers(found));
        !self.segments.withdrawals.is_empty() && self.segments.partitions.find(page).is_some_and(is_of)
    }

    /// Whether a segment is being given up.
    pub(super) fn is_withdrawing(&self) -> bool {
        self.segments.withdrawals.iter().any(|one| !one.pages.is_empty() || one.others > 0)
    }

    /// A rank says that nobody uses a segment any more.
    pub(super) fn withdraw(&mut self, which: Which, hearer: Hearer) -> Result<(), CacheError> {
        if let Some(begun) = self.segments.withdrawals.iter_mut().find(|one| one.which == which) {
            begun.hearers.push(hearer);
            return self.go_on_withdrawing().map(drop);
        }
        let others = self.shards.count() - 1;
        (1..=others).for_each(|shard| self.shards.tell(shard, Aside::Withdraw(which)));
        let hearers = vec![hearer];
        self.begin_withdrawal(Withdrawal { which, hearers, pages: Vec::new(), others, told: true })
    }

    /// This shard's part, for the first.
    pub(super) fn withdraw_part(&mut self, which: Which) -> Result<(), CacheError> {
        let (hearers, pages) = (Vec::new(), Vec::new());
        self.begin_withdrawal(Withdrawal { which, hearers, pages, others: 0, told: false })
    }

    /// Another shard has done its part.
    pub(super) fn part_withdrawn(&mut self, which: Which) -> Result<(), CacheError> {
        if let Some(one) = self.segments.withdrawals.iter_mut().find(|one| one.which == which) {
            one.others = one.others.saturating_sub(1);
        }
        self.go_on_withdrawing().map(drop)
    }

    fn begin_withdrawal(&mut self, withdrawal: Withdrawal) -> Result<(), CacheError> {
        let which = withdrawal.which;
        let partitions: Vec<Partition> =
            self.segments.partitions.all().filter(|found| which.covers(found)).copied().collect();
        let is_of = |page: &PageIndex| partitions.iter().any(|found| found.range().contains(page));
        // Nobody comes to what was to be read ahead.
        self.frames.later.retain(|(page, _)| !is_of(page));
        let in_frames = self.pool.frames().filter_map(|frame| match self.pool.frame_use(frame) {
            Ok(FrameUse::Page(page)) => Some(page),
            _ => None,
        });
        let mut pages: Vec<PageIndex> = in_frames
            .chain(self.lines.pages.keys().copied())
            .chain(self.homes.keys().copied())
            .filter(|page| is_of(page) && self.is_mine(*page))
            .collect();
        pages.sort_unstable();
        pages.dedup();
        self.segments.withdrawals.push(Withdrawal { pages, ..withdrawal });
        for partition in partitions {
            // Those of others are not published here.
            self.unpublish(partition.range())?;
        }
        self.go_on_withdrawing().map(drop)
    }

    /// Evicts what is left of segments that are given up; true when one is done.
    pub(super) fn go_on_withdrawing(&mut self) -> Result<bool, CacheError> {
        let mut any = false;
        for index in 0..self.segments.withdrawals.len() {
            let pages = std::mem::take(&mut self.segments.withdrawals[index].pages);
            let mut left = Vec::new();
            for page in pages {
                if !self.has_left(page)? {
                    left.push(page);
                }
            }
            let one = &mut self.segments.withdrawals[index];
            one.pages = left;
            if !one.pages.is_empty() || one.others > 0 {
                continue;
            }
            if !std::mem::replace(&mut one.told, true) {
                self.shards.tell(0, Aside::Withdrawn(one.which));
                any = true;
            }
            for hearer in std::mem::take(&mut one.hearers) {
                any = true;
                self.tell_hearer(hearer, true)?;
            }
        }
        Ok(any)
    }

    /// Whether this shard has nothing of a page any more; otherwise it goes on with that.
    fn has_left(&mut self, page: PageIndex) -> Result<bool, CacheError> {
        let entry = self.pool.entry(page)?;
        if !self.quiet(page) || entry.held() {
            return Ok(false);
        }
        if entry.state().readable() {
            let frame = entry.frame();
            if self.pool.evictable(frame, u64::MAX) {
                self.victims.remove(&self.pool, frame)?;
                self.begin_to_evict(frame)?;
            }
            return Ok(false);
        }
        Ok(!self.homes.contains_key(&page))
    }

    /// The first shard has forgotten a segment.
    pub(super) fn forget_part(&mut self, which: Which) {
        self.segments.withdrawals.retain(|one| one.which != which);
        self.storage.volume.leave_closed();
    }

    /// No node has copies of a segment any more: its pages are nobody's.
    pub(super) fn forget_segment(&mut self, which: Which, hearer: Hearer) -> Result<(), CacheError> {
        let own = |found: &Partition| which.covers(found) && self.layout.node_of(found.owner) == self.node;
        let here: Vec<Partition> =
            self.segments.partitions.all().filter(|found| own(found)).copied().collect();
        let first_rank = self.layout.ranks_of(self.node).start;
        for partition in here {
            self.unpublish(partition.range())?;
            let local_rank = partition.owner.0 - first_rank;
            self.pool.show_file(partition.segment, local_rank, None)?;
            if let Err(error) = self.storage.volume.close(partition.file_number()) {
                tracing::error!(%error, "a segment that is given up is in use");
                return self.tell_hearer(hearer, false);
            }
        }
        self.pool.end_rows(which.segment, which.owner);
        self.change_segments(|known| known.remove(which));
        self.segments.withdrawals.retain(|one| one.which != which);
        // Before the number can be used again: the waiter has not heard of it.
        let others = 1..self.shards.count();
        others.for_each(|shard| self.shards.tell(shard, Aside::Forget(which)));
        self.tell_hearer(hearer, true)
    }

    fn tell_hearer(&mut self, hearer: Hearer, done: bool) -> Result<(), CacheError> {
        let failure = crate::error::Failure::from(FailureKind::Segment);
        match hearer {
            Hearer::Waiter(waiter) => self.complete(waiter, if done { Ok(()) } else { Err(failure) }),
            Hearer::Peer(to, number) => {
                let (answer, bytes) = match done {
                    true => (InPlaceAnswer::Done, Vec::new()),
                    false => (InPlaceAnswer::Failed, [[0; 4], failure.code().to_le_bytes()].concat()),
                };
                self.outbox.push(to, Outgoing::Answer { words: answer.encode(number), bytes });
                Ok(())
            }
        }
    }

    /// A rank wants something of a partition as a whole.
    pub(super) fn about_partition(
        &mut self,
        from: Peer,
        of: PartitionId,
        what: About,
        number: u32,
    ) -> Result<(), CacheError> {
        let which = Which { segment: of.segment, owner: Some(of.owner) };
        match what {
            About::Describe => {
                let found = self.segments.partitions.of(of.segment, of.owner);
                let is_here = |found: &&Partition| self.layout.node_of(found.owner) == self.node;
                let (answer, bytes) = match found.filter(is_here) {
                    Some(&Partition { first, pages, size, policy, .. }) => {
                        (InPlaceAnswer::Done, Extent { first, pages, size, policy }.encode())
                    }
                    None => (InPlaceAnswer::NotInPlace, Vec::new()),
                };
                self.outbox.push(from, Outgoing::Answer { words: answer.encode(number), bytes });
                Ok(())
            }
            // Only who has made it may give it up.
            _ if self.layout.rank_of_peer(from) != Some(of.owner) => Err(CacheError::Protocol {
                who: self.layout.describe(from),
                what: format!("wants {of} to be given up, which is not its own"),
            }),
            About::Withdraw => self.withdraw(which, Hearer::Peer(from, number)),
            About::Forget => self.forget_segment(which, Hearer::Peer(from, number)),
        }
    }
}
