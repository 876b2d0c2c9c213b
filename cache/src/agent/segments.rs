//! The tiered segments: which there are, creating and forgetting the partitions whose home is this node, and making them
//! durable.

use super::Agent;
use super::answers::Waiter;
use super::shards::Aside;
use super::storage::{StorageWork, failure, failure_of};
use super::withdrawal::Hearer;
use crate::error::{CacheError, Failure, FailureKind};
use crate::page::PageIndex;
use crate::partition::{Partition, Partitions, SegmentId, Which, file_number};
use crate::pool::INLINE_BYTES;
use crate::request::{Attached, Detach, Named};
use rustix::io::Errno;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use vgas_nvm::{Companion, Extent, NamedFile, OpenReport, VolumeError};
use vgas_rma::address::Rank;

/// What is known of the segments.
#[derive(Debug, Default)]
pub(super) struct Segments {
    /// Which there are, as this shard knows them, and how often that had changed then.
    pub partitions: Arc<Partitions>,
    changes: u64,
    checkpoints: Vec<Checkpoint>,
    /// Checkpoints of segments of which one is in progress: a page that is being stored for that one may have been
    /// written since.
    queued: VecDeque<(u32, Waiter, Purpose)>,
    /// Segments that are being given up.
    pub withdrawals: Vec<super::withdrawal::Withdrawal>,
    /// Steps of the job's checkpoint in progress at the volume.
    steps: usize,
    /// By the number in the volume: the last error of a partition as a whole, in words.
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

/// A checkpoint in progress.
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
    /// The partitions that this shard knows.
    pub fn partitions(&self) -> impl Iterator<Item = &Partition> {
        self.segments.partitions.all()
    }

    /// Learns what has changed in the table of segments since this shard looked last.
    pub(super) fn hear_of_segments(&mut self) {
        if let Some((partitions, changes)) = self.shards.partitions_since(self.segments.changes) {
            (self.segments.partitions, self.segments.changes) = (partitions, changes);
        }
    }

    pub(super) fn change_segments<T>(&mut self, change: impl FnOnce(&mut Partitions) -> T) -> T {
        // Without this, the table is copied for each change, unless other shards have it, too.
        self.segments.partitions = Arc::default();
        let result = self.shards.with_partitions(change);
        self.hear_of_segments();
        result
    }

    /// Whether the page belongs to a segment that may be used.
    pub(super) fn attached(&self, page: PageIndex) -> bool {
        self.segments.partitions.find(page).is_some()
    }

    /// Whether a page of the job is of no segment, or of one that is being given up: whoever asks for it is told so.
    pub(super) fn is_gone(&self, page: PageIndex) -> bool {
        page.0 < self.pool.layout().pages() && (!self.attached(page) || self.is_withdrawn(page))
    }

    /// What a rank's partition of a segment is called in the volume.
    pub(super) fn file_of(&self, local_rank: u32, segment: SegmentId) -> u32 {
        file_number(segment, Rank(self.layout.ranks_of(self.node).start + local_rank))
    }

    /// A partition of this node's, by its number in the volume.
    fn partition_in(&self, file: u32) -> Option<Partition> {
        let mut all = self.segments.partitions.all();
        all.find(|found| found.file_number() == file && self.layout.node_of(found.owner) == self.node)
            .copied()
    }

    /// A rank makes a segment's partitions known, of the ranks from one on. Every rank of the node says the same; those of this
    /// node are known already.
    pub(super) fn learn_partitions(
        &mut self,
        all: Partition,
        data: &[u8],
        waiter: Waiter,
    ) -> Result<(), CacheError> {
        let (words, rest) = data.as_chunks::<8>();
        let (pairs, odd) = words.as_chunks::<2>();
        let mut learnt = rest.is_empty() && odd.is_empty();
        let mut found = Vec::with_capacity(pairs.len());
        for (owner, pair) in (all.owner.0..=u32::MAX).zip(pairs) {
            let [first, pages] = pair.map(u64::from_le_bytes);
            let partition = Partition { owner: Rank(owner), first: PageIndex(first), pages, ..all };
            if pages > 0 {
                learnt &= partition.fits(self.pool.layout());
                found.push(partition);
            } else {
                learnt &= owner < self.layout.ranks();
            }
        }
        learnt = learnt && self.change_segments(|known| found.into_iter().all(|one| known.insert(one)));
        self.complete(waiter, if learnt { Ok(()) } else { Err(FailureKind::Segment.into()) })
    }

    /// Creates a rank's partition.
    pub(super) fn attach(
        &mut self,
        wanted: Partition,
        named: &[u8],
        waiter: Waiter,
    ) -> Result<(), CacheError> {
        let Partition { segment, owner, size, pages, .. } = wanted;
        if pages == 0 {
            self.pool.answer(
                waiter.local_rank,
                waiter.wait,
                &Attached { first: PageIndex(0), read_only: 0 }.encode(),
            )?;
            return self.complete(waiter, Ok(()));
        }
        let known = &self.segments.partitions;
        let layout = self.pool.layout();
        let most = layout.spec().segment_pages_max.get(owner.0 as usize).copied().unwrap_or(0);
        let most = most << layout.page_size().shift();
        let has_room = pages <= (most >> size.shift()).max(1)
            && known.bytes_of(owner).saturating_add(pages << size.shift())
                <= most.next_multiple_of(size.bytes().into());
        let vacant = known.vacant(layout, owner, size, pages).filter(|_| has_room);
        let Some(first) = vacant.filter(|_| known.of(segment, owner).is_none()) else {
            tracing::error!(%owner, pages, most, "a tiered segment of this size cannot be attached");
            return self.complete(waiter, Err(FailureKind::Segment.into()));
        };
        let file = wanted.file_number();
        let extent = Extent { pages, page_bytes: Some(size.bytes()) };
        let created = match Named::decode(named) {
            None if named.is_empty() => self.storage.volume.create_scratch(file, extent).map(|()| None),
            None => return self.complete(waiter, Err(FailureKind::Segment.into())),
            Some(Named { name, checkpoint, tells }) => {
                let called = volume_name(&name, owner);
                let named = NamedFile { name: &called, number: owner.0, checkpoint };
                let report = self.storage.volume.open_named(file, named, extent);
                report.map(|report| {
                    tell_losses(owner.0, &name, &report, tells);
                    report.read_only.map(|refused| refused.errno().unwrap_or(Errno::IO))
                })
            }
        };
        match created {
            Ok(read_only) => {
                let shared = self.show_file(wanted)?;
                let partition = Partition { first, shared, ..wanted };
                if !self.change_segments(|known| known.insert(partition)) {
                    return Err(self.violation(self.node, "has given the same pages away twice"));
                }
                let read_only = read_only.map_or(0, |refused| failure_of(Some(refused), self.node).code());
                let answer = Attached { first, read_only };
                self.pool.answer(waiter.local_rank, waiter.wait, &answer.encode())?;
                self.complete(waiter, Ok(()))
            }
            Err(error) => {
                tracing::error!(%error, %owner, "cannot create the segment file");
                let failure = match failure(&error, self.node) {
                    failure if failure.kind == FailureKind::NoSpace => failure,
                    failure => Failure { kind: FailureKind::Segment, ..failure },
                };
                self.segments.complain(file, &error);
                self.complete(waiter, Err(failure))
            }
        }
    }

    /// Says where the file of a partition of this node is, so that ranks may bring in its pages. False: they may not.
    fn show_file(&self, partition: Partition) -> Result<bool, CacheError> {
        let at = self.storage.volume.whereabouts(partition.file_number());
        let Some(at) = at.filter(|_| self.options.self_service) else { return Ok(false) };
        let local_rank = partition.owner.0.saturating_sub(self.layout.ranks_of(self.node).start);
        self.pool.show_file(partition.segment, local_rank, Some(&at))?;
        Ok(true)
    }

    /// Makes durable what anybody has written to the rank's segment and told: first the cached pages reach NVMe, wherever
    /// they are, then the volume makes a checkpoint.
    pub(super) fn checkpoint(
        &mut self,
        segment: u32,
        waiter: Waiter,
        purpose: Purpose,
    ) -> Result<(), CacheError> {
        let Some(pages) = self.partition_in(segment).map(|found| found.range()) else {
            return self.complete(waiter, Ok(()));
        };
        if self.segments.checkpoints.iter().any(|one| one.segment == segment) {
            self.segments.queued.push_back((segment, waiter, purpose));
            return Ok(());
        }
        // What fails from here on fails for a page, and says so by itself.
        self.segments.complaints.remove(&segment);
        // The other shards each count as a page.
        let others = self.shards.count() - 1;
        (1..=others).for_each(|shard| self.shards.tell(shard, Aside::Clean(segment)));
        let checkpoint =
            Checkpoint { segment, waiter: Some(waiter), purpose, pages: others.into(), failed: None };
        self.clean_pages(checkpoint, pages)
    }

    /// Does this shard's part of a checkpoint for the first one.
    pub(super) fn clean_part(&mut self, segment: u32) -> Result<(), CacheError> {
        let pages = self.partition_in(segment).map(|found| found.range()).unwrap_or_default();
        let checkpoint = Checkpoint { segment, waiter: None, purpose: Purpose::Part, pages: 0, failed: None };
        self.clean_pages(checkpoint, pages)
    }

    fn clean_pages(&mut self, checkpoint: Checkpoint, pages: Range<PageIndex>) -> Result<(), CacheError> {
        let segment = checkpoint.segment;
        let known = self.known_pages(pages);
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
        let Some(found) = self.segments.partitions.find(page) else { return Ok(()) };
        self.part_cleaned(found.file_number(), result)
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
        let next = self.segments.queued.iter().position(|(queued, ..)| *queued == segment);
        match next.and_then(|next| self.segments.queued.remove(next)) {
            Some((segment, waiter, purpose)) => self.checkpoint(segment, waiter, purpose),
            None => Ok(()),
        }
    }

    /// Makes what is on NVMe of the rank's segment a checkpoint beside the last one.
    pub(super) fn prepare(
        &mut self,
        segment: u32,
        identity: u64,
        companions: Vec<Companion>,
        waiter: Waiter,
    ) -> Result<(), CacheError> {
        if self.partition_in(segment).is_none() {
            return self.complete(waiter, Ok(()));
        }
        self.segments.steps += 1;
        let key = self.storage.keys.insert(StorageWork::Step(segment, waiter));
        // Writes that were collected in this turn come before the checkpoint.
        self.issue_storage()?;
        self.storage.volume.prepare(segment, identity, companions, key)?;
        Ok(())
    }

    /// Makes the prepared checkpoint the last one, or gives it up.
    pub(super) fn conclude(&mut self, segment: u32, commit: bool, waiter: Waiter) -> Result<(), CacheError> {
        if self.partition_in(segment).is_none() {
            return self.complete(waiter, Ok(()));
        }
        self.segments.steps += 1;
        let key = self.storage.keys.insert(StorageWork::Step(segment, waiter));
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
    pub(super) fn tell_why(&mut self, segment: u32, piece: u32, waiter: Waiter) -> Result<(), CacheError> {
        let text = self.segments.complaints.get(&segment).map_or("", String::as_str);
        let mut bytes = [0; INLINE_BYTES];
        if let Some(text) = text.as_bytes().chunks(INLINE_BYTES).nth(piece as usize) {
            bytes[..text.len()].copy_from_slice(text);
        }
        self.pool.answer(waiter.local_rank, waiter.wait, &bytes)?;
        self.complete(waiter, Ok(()))
    }

    /// A segment is given up, a step further.
    pub(super) fn detach(
        &mut self,
        segment: SegmentId,
        step: Detach,
        waiter: Waiter,
    ) -> Result<(), CacheError> {
        let which = Which { segment, owner: None };
        match step {
            Detach::Withdraw => self.withdraw(which, Hearer::Waiter(waiter)),
            Detach::Forget => self.forget_segment(which, Hearer::Waiter(waiter)),
        }
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
