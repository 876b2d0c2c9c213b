//! The tiered segments whose home is this node: creating them, and making them durable.

use super::Agent;
use super::answers::Waiter;
use super::shards::Aside;
use super::storage::{StorageWork, failure, failure_of};
use crate::error::{CacheError, Failure, FailureKind};
use crate::pool::INLINE_BYTES;
use crate::request::{Named, PageIndex};
use rustix::io::Errno;
use std::collections::{BTreeMap, VecDeque};
use vgas_nvm::{OpenReport, VolumeError};
use vgas_rma::address::Rank;

/// What is known of the segments.
#[derive(Debug, Default)]
pub(super) struct Segments {
    checkpoints: Vec<Checkpoint>,
    /// Checkpoints of segments of which one is under way: a page that is being stored for that one may have been
    /// written since.
    queued: VecDeque<(u32, Waiter, Purpose)>,
    /// Steps of the job's checkpoint under way at the volume.
    steps: usize,
    /// By segment: the last error of it as a whole, in words.
    complaints: BTreeMap<u32, String>,
}

/// What a segment's cached pages are brought to NVMe for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A checkpoint of the segment by itself.
    Flush,
    /// The job's checkpoint, which other requests go on with.
    Clean,
    /// Either, for the first shard, which goes on with it.
    Part,
}

impl Segments {
    /// How many checkpoints wait for the end of another, or for the volume.
    pub fn checkpoints_waiting(&self) -> usize {
        self.queued.len() + self.steps
    }

    /// Keeps why something could not be done with a segment as a whole, for its rank to ask.
    pub fn complain(&mut self, segment: u32, error: &VolumeError) {
        self.complaints.insert(segment, error.to_string());
    }
}

/// A checkpoint under way.
#[derive(Debug)]
struct Checkpoint {
    segment: u32,
    /// None: the first shard.
    waiter: Option<Waiter>,
    purpose: Purpose,
    /// Pages whose cached content is still to be stored.
    pages: u64,
    /// The first failure.
    failed: Option<Failure>,
}

impl Agent {
    /// Whether the page belongs to a segment that may be used.
    pub(super) fn attached(&self, page: PageIndex) -> bool {
        let located = self.pool.layout().locate(page);
        located.is_some_and(|(owner, in_segment)| in_segment < self.shards.pages_of(owner))
    }

    /// A rank makes the sizes of everybody's segments known, in pages from a rank on. Every rank of the node says the
    /// same; the sizes of this node's own are known already.
    pub(super) fn learn_segments(
        &mut self,
        first_rank: u32,
        data: &[u8],
        waiter: Waiter,
    ) -> Result<(), CacheError> {
        // Of the ranks that exist; a list that goes on behind them is refused with the first that does not.
        for (rank, pages) in (first_rank..=self.layout.ranks()).zip(data.as_chunks::<8>().0) {
            let pages = u64::from_le_bytes(*pages);
            let most = self.pool.layout().spec().segment_pages_max.get(rank as usize).copied().unwrap_or(0);
            if pages > most || rank >= self.layout.ranks() {
                return self.complete(waiter, Err(FailureKind::Segment.into()));
            }
            if self.layout.node_of(Rank(rank)) != self.node {
                self.shards.set_pages_of(Rank(rank), pages);
            }
        }
        self.complete(waiter, Ok(()))
    }

    pub(super) fn attach(
        &mut self,
        local_rank: u32,
        pages: u64,
        named: &[u8],
        waiter: Waiter,
    ) -> Result<(), CacheError> {
        let rank = self.layout.ranks_of(self.node).start + local_rank;
        let most = self.pool.layout().spec().segment_pages_max[rank as usize];
        if pages > most || self.shards.pages_of(Rank(rank)) != 0 {
            tracing::error!(rank, pages, most, "a tiered segment of this size cannot be attached");
            return self.complete(waiter, Err(FailureKind::Segment.into()));
        }
        if pages == 0 {
            self.pool.answer(local_rank, waiter.wait, &[0; 4])?;
            return self.complete(waiter, Ok(()));
        }
        let created = match Named::decode(named) {
            None if named.is_empty() => self.storage.volume.create_scratch(rank, pages).map(|()| None),
            None => return self.complete(waiter, Err(FailureKind::Segment.into())),
            Some(Named { name, checkpoint, tells }) => {
                let file = volume_name(&name, Rank(rank));
                let report = self.storage.volume.open_checkpoint(rank, &file, pages, checkpoint);
                report.map(|report| {
                    tell_losses(rank, &name, &report, tells);
                    report.read_only.map(|refused| refused.errno().unwrap_or(Errno::IO))
                })
            }
        };
        match created {
            Ok(read_only) => {
                self.shards.set_pages_of(Rank(rank), pages);
                self.open_to_claims(local_rank, Rank(rank))?;
                let code = read_only.map_or(0, |refused| failure_of(Some(refused), self.node).code());
                self.pool.answer(local_rank, waiter.wait, &code.to_le_bytes())?;
                self.complete(waiter, Ok(()))
            }
            Err(error) => {
                tracing::error!(%error, rank, "cannot create the segment file");
                let failure = match failure(&error, self.node) {
                    failure if failure.kind == FailureKind::NoSpace => failure,
                    failure => Failure { kind: FailureKind::Segment, ..failure },
                };
                self.segments.complain(rank, &error);
                self.complete(waiter, Err(failure))
            }
        }
    }

    /// Makes durable what anybody has written to the rank's segment and told: first the cached pages reach NVMe, wherever
    /// they are, then the volume makes a checkpoint.
    pub(super) fn checkpoint(
        &mut self,
        local_rank: u32,
        waiter: Waiter,
        purpose: Purpose,
    ) -> Result<(), CacheError> {
        let segment = self.layout.ranks_of(self.node).start + local_rank;
        let pages = self.shards.pages_of(Rank(segment));
        let Some(first) = self.pool.layout().page_index(Rank(segment), 0).filter(|_| pages > 0) else {
            return self.complete(waiter, Ok(()));
        };
        if self.segments.checkpoints.iter().any(|one| one.segment == segment) {
            self.segments.queued.push_back((local_rank, waiter, purpose));
            return Ok(());
        }
        // What fails from here on fails for a page, and says so by itself.
        self.segments.complaints.remove(&segment);
        // The other shards each count as a page.
        let others = self.shards.count() - 1;
        (1..=others).for_each(|shard| self.shards.tell(shard, Aside::Clean(segment)));
        let checkpoint =
            Checkpoint { segment, waiter: Some(waiter), purpose, pages: others.into(), failed: None };
        self.clean_pages(checkpoint, first, pages)
    }

    /// Does this shard's part of a checkpoint for the first one.
    pub(super) fn clean_part(&mut self, segment: u32) -> Result<(), CacheError> {
        let pages = self.shards.pages_of(Rank(segment));
        let first = self.pool.layout().page_index(Rank(segment), 0).unwrap_or_default();
        let checkpoint = Checkpoint { segment, waiter: None, purpose: Purpose::Part, pages: 0, failed: None };
        self.clean_pages(checkpoint, first, pages)
    }

    fn clean_pages(
        &mut self,
        checkpoint: Checkpoint,
        first: PageIndex,
        pages: u64,
    ) -> Result<(), CacheError> {
        let segment = checkpoint.segment;
        let known = self.known_pages(first, first + pages);
        // One more than there are pages, so that it does not end before the last one was asked for.
        self.segments.checkpoints.push(Checkpoint { pages: checkpoint.pages + 1, ..checkpoint });
        for page in known {
            if let Some(checkpoint) = self.segments.checkpoints.iter_mut().find(|one| one.segment == segment)
            {
                checkpoint.pages += 1;
            }
            if !self.clean(page)? {
                self.page_cleaned(page, Ok(()))?;
            }
        }
        self.part_cleaned(segment, Ok(()))
    }

    pub(super) fn page_cleaned(
        &mut self,
        page: PageIndex,
        result: Result<(), Failure>,
    ) -> Result<(), CacheError> {
        let Some((owner, _)) = self.pool.layout().locate(page) else { return Ok(()) };
        self.part_cleaned(owner.0, result)
    }

    /// A page of a segment, or another shard's part of it, is on NVMe, or cannot be.
    pub(super) fn part_cleaned(
        &mut self,
        segment: u32,
        result: Result<(), Failure>,
    ) -> Result<(), CacheError> {
        let Some(checkpoint) = self.segments.checkpoints.iter_mut().find(|one| one.segment == segment) else {
            return Ok(());
        };
        checkpoint.pages -= 1;
        checkpoint.failed = checkpoint.failed.or(result.err());
        if checkpoint.pages > 0 {
            return Ok(());
        }
        if let Some(failure) = checkpoint.failed {
            return self.flushed(segment, Err(failure));
        }
        if checkpoint.purpose != Purpose::Flush {
            return self.flushed(segment, Ok(()));
        }
        let key = self.storage.keys.insert(StorageWork::Flush(segment));
        // Writes that were collected in this turn come before the flush.
        self.issue_storage()?;
        self.storage.volume.flush(segment, key)?;
        Ok(())
    }

    pub(super) fn flushed(&mut self, segment: u32, result: Result<(), Failure>) -> Result<(), CacheError> {
        let Some(at) = self.segments.checkpoints.iter().position(|one| one.segment == segment) else {
            return Ok(());
        };
        let checkpoint = self.segments.checkpoints.remove(at);
        match checkpoint.waiter {
            Some(waiter) => self.complete(waiter, result)?,
            None => self.shards.tell(0, Aside::Cleaned(segment, result.err())),
        }
        let first_rank = self.layout.ranks_of(self.node).start;
        let next =
            self.segments.queued.iter().position(|(local_rank, ..)| first_rank + local_rank == segment);
        match next.and_then(|next| self.segments.queued.remove(next)) {
            Some((local_rank, waiter, purpose)) => self.checkpoint(local_rank, waiter, purpose),
            None => Ok(()),
        }
    }

    /// Makes what is on NVMe of the rank's segment a checkpoint beside the last one.
    pub(super) fn prepare(
        &mut self,
        local_rank: u32,
        identity: u64,
        waiter: Waiter,
    ) -> Result<(), CacheError> {
        let Some(segment) = self.attached_segment(local_rank) else { return self.complete(waiter, Ok(())) };
        self.segments.steps += 1;
        let key = self.storage.keys.insert(StorageWork::Step(waiter));
        // Writes that were collected in this turn come before the checkpoint.
        self.issue_storage()?;
        self.storage.volume.prepare(segment, identity, key)?;
        Ok(())
    }

    /// Makes the prepared checkpoint the last one, or gives it up.
    pub(super) fn conclude(
        &mut self,
        local_rank: u32,
        commit: bool,
        waiter: Waiter,
    ) -> Result<(), CacheError> {
        let Some(segment) = self.attached_segment(local_rank) else { return self.complete(waiter, Ok(())) };
        self.segments.steps += 1;
        let key = self.storage.keys.insert(StorageWork::Step(waiter));
        self.storage.volume.conclude(segment, commit, key)?;
        Ok(())
    }

    pub(super) fn step_done(
        &mut self,
        waiter: Waiter,
        result: Result<(), Failure>,
    ) -> Result<(), CacheError> {
        self.segments.steps -= 1;
        self.complete(waiter, result)
    }

    /// Tells a rank a piece of why something could not be done with its segment; zeros behind the end.
    pub(super) fn tell_why(&mut self, local_rank: u32, piece: u32, waiter: Waiter) -> Result<(), CacheError> {
        let segment = self.layout.ranks_of(self.node).start + local_rank;
        let text = self.segments.complaints.get(&segment).map_or("", String::as_str);
        let mut bytes = [0; INLINE_BYTES];
        if let Some(text) = text.as_bytes().chunks(INLINE_BYTES).nth(piece as usize) {
            bytes[..text.len()].copy_from_slice(text);
        }
        self.pool.answer(local_rank, waiter.wait, &bytes)?;
        self.complete(waiter, Ok(()))
    }

    fn attached_segment(&self, local_rank: u32) -> Option<u32> {
        let segment = self.layout.ranks_of(self.node).start + local_rank;
        (self.shards.pages_of(Rank(segment)) > 0).then_some(segment)
    }
}

/// What a rank's named segment is called in its node's volume: nodes of one machine may share a folder.
pub fn volume_name(name: &str, rank: Rank) -> String {
    format!("{name}.{}", rank.0)
}

/// Says what an earlier job has flushed and this one does not find: nothing else would, before a damaged page is read, and
/// an older flush reads like the newest.
fn tell_losses(rank: u32, name: &str, report: &OpenReport, tells: bool) {
    tracing::info!(rank, ?report, "named segment opened");
    if let Some(refused) = &report.read_only {
        tracing::warn!("the named segment {name:?} of {} can only be read: {refused}", Rank(rank));
    }
    if let (Some(newer), true) = (report.given_up, tells) {
        tracing::warn!(
            "the named segment {name:?} is reopened at checkpoint {}: checkpoint {newer} of {} was not complete on all \
             ranks when its job ended",
            newer - 1,
            Rank(rank)
        );
    }
    if let Some(line) = &report.fallback {
        tracing::warn!(rank, "{line}");
    }
    if let Some(first) = report.damaged_pages.first() {
        let pages: u64 = report.damaged_pages.iter().map(|range| range.end - range.start).sum();
        tracing::warn!(
            rank,
            pages,
            first = first.start,
            "pages of a named segment are damaged; reading one fails until it is written whole"
        );
    }
}
