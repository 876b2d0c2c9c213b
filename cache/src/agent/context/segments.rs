//! The tiered segments: which there are, creating and forgetting the partitions whose home is this node, and making them
//! durable.

use super::storage::{failure, failure_of};
use super::{LocalMessage, NodeContext};
use crate::agent::items::Waiter;
use crate::error::{CacheError, Failure, FailureKind};
use crate::page::PageIndex;
use crate::partition::{Partition, Partitions, SegmentId, Which, file_number};
use crate::pool::INLINE_BYTES;
use crate::request::{Attached, Named};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::sync::Arc;
use vgas_nvm::{Extent, NamedFile, OpenReport, VolumeError};
use vgas_rma::address::Rank;

/// What is known of the segments.
#[derive(Debug, Default)]
pub struct Segments {
    /// Which there are, as this shard knows them, and how often that had changed then.
    pub partitions: Arc<Partitions>,
    changes: u64,
    /// Segments that are being given up.
    pub withdrawn: Vec<Which>,
    /// By the number in the volume: the last error of a partition as a whole, in words.
    pub complaints: BTreeMap<u32, String>,
}

impl Segments {
    /// Keeps why something could not be done with a segment as a whole, for its rank to ask.
    pub fn complain(&mut self, segment: u32, error: &VolumeError) {
        self.complaints.insert(segment, error.to_string());
    }
}

impl NodeContext {
    /// Learns what has changed in the table of segments since this shard looked last.
    pub fn hear_of_segments(&mut self) {
        if let Some((partitions, changes)) = self.shards.partitions_since(self.segments.changes) {
            (self.segments.partitions, self.segments.changes) = (partitions, changes);
        }
    }

    pub fn change_segments<T>(&mut self, change: impl FnOnce(&mut Partitions) -> T) -> T {
        // Without this, the table is copied for each change, unless other shards have it, too.
        self.segments.partitions = Arc::default();
        let result = self.shards.with_partitions(change);
        self.hear_of_segments();
        result
    }

    /// Whether the page belongs to a segment that may be used.
    pub fn attached(&self, page: PageIndex) -> bool {
        self.segments.partitions.find(page).is_some()
    }

    /// Whether a page is of a segment that is being given up.
    pub fn is_withdrawn(&self, page: PageIndex) -> bool {
        let is_of = |found: &Partition| self.segments.withdrawn.iter().any(|which| which.covers(found));
        !self.segments.withdrawn.is_empty() && self.segments.partitions.find(page).is_some_and(is_of)
    }

    /// Whether a page of the job is of no segment, or of one that is being given up: whoever asks for it is told so.
    pub fn is_gone(&self, page: PageIndex) -> bool {
        page.0 < self.pages().pages() && (!self.attached(page) || self.is_withdrawn(page))
    }

    /// The same of a page whose home is here.
    pub fn is_gone_here(&self, page: PageIndex) -> bool {
        self.home_of(page) == Some(self.node) && self.is_gone(page)
    }

    /// What a rank's partition of a segment is called in the volume.
    pub fn file_of(&self, local_rank: u32, segment: SegmentId) -> u32 {
        file_number(segment, Rank(self.layout.ranks_of(self.node).start + local_rank))
    }

    /// A partition of this node's, by its number in the volume.
    pub fn partition_in(&self, file: u32) -> Option<Partition> {
        let mut all = self.segments.partitions.all();
        all.find(|found| found.file_number() == file && self.layout.node_of(found.owner) == self.node)
            .copied()
    }

    /// A rank makes a segment's partitions known, of the ranks from one on. Every rank of the node says the same; those of this
    /// node are known already.
    pub fn learn_partitions(
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
                learnt &= partition.fits(self.pages());
                found.push(partition);
            } else {
                learnt &= owner < self.layout.ranks();
            }
        }
        learnt = learnt && self.change_segments(|known| found.into_iter().all(|one| known.insert(one)));
        self.complete(waiter, if learnt { Ok(()) } else { Err(FailureKind::Segment.into()) })
    }

    /// Creates a rank's partition.
    pub fn attach(&mut self, wanted: Partition, named: &[u8], waiter: Waiter) -> Result<(), CacheError> {
        let Partition { segment, owner, size, pages, .. } = wanted;
        if pages == 0 {
            return self.answer(waiter, &Attached { first: PageIndex(0), read_only: 0 }.encode());
        }
        let known = &self.segments.partitions;
        let layout = self.pages();
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
                // So that ranks may bring in its pages.
                let at = self.storage.volume.whereabouts(file).filter(|_| self.options.self_service);
                at.iter().try_for_each(|at| self.show_file(&wanted, Some(at)))?;
                let shared = at.is_some();
                let partition = Partition { first, shared, ..wanted };
                if !self.change_segments(|known| known.insert(partition)) {
                    return Err(self.violation(self.node, "has given the same pages away twice"));
                }
                let read_only = read_only.map_or(0, |refused| failure_of(Some(refused), self.node).code());
                let answer = Attached { first, read_only };
                self.answer(waiter, &answer.encode())
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

    /// Tells a rank a piece of why something could not be done with its segment; zeros behind the end.
    pub fn tell_why(&mut self, segment: u32, piece: u32, waiter: Waiter) -> Result<(), CacheError> {
        let text = self.segments.complaints.get(&segment).map_or("", String::as_str);
        let mut bytes = [0; INLINE_BYTES];
        if let Some(text) = text.as_bytes().chunks(INLINE_BYTES).nth(piece as usize) {
            bytes[..text.len()].copy_from_slice(text);
        }
        self.answer(waiter, &bytes)
    }

    /// A page agrees with NVMe for a checkpoint, or cannot. The checkpoint hears of it later: its end may begin the next one,
    /// which asks about the same page.
    pub fn page_cleaned(&mut self, page: PageIndex, result: Result<(), Failure>) {
        if let Some(found) = self.segments.partitions.find(page) {
            self.local.push_back(LocalMessage::Cleaned(found.file_number(), result));
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
