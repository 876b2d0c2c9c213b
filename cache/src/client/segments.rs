//! What a rank knows of the job's segments: rows in the node's shared memory, which any thread looks up without a lock, because every
//! hit does ([`Row`](crate::pool::Row)), and which segments this rank has left.

use crate::error::Failure;
use crate::page::PageIndex;
use crate::partition::{Partition, PartitionId, SEGMENTS_MAX, SegmentId};
use crate::pool::{Known, PoolClient};
use rustc_hash::FxHashMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use vgas_rma::address::Rank;

/// Segments of a word.
const WORD: u16 = u64::BITS as u16;
const WORDS: usize = SEGMENTS_MAX.div_ceil(WORD) as usize;

/// All of them.
pub(super) struct Segments {
    pool: Arc<PoolClient>,
    /// Which segments this rank has left, a bit each, while its neighbours may use them still. A hit does not look: it finds a page
    /// there as long as the node has it, and nothing after that.
    left: [AtomicU64; WORDS],
    /// Why some can only be read.
    refused: Mutex<FxHashMap<PartitionId, Failure>>,
}

impl Segments {
    pub(super) fn new(pool: Arc<PoolClient>) -> Self {
        Self { pool, left: [const { AtomicU64::new(0) }; WORDS], refused: Mutex::default() }
    }

    fn word(&self, segment: SegmentId) -> Option<(&AtomicU64, u64)> {
        Some((self.left.get(usize::from(segment.0 / WORD))?, 1 << (segment.0 % WORD)))
    }

    fn is_left(&self, segment: SegmentId) -> bool {
        self.word(segment).is_some_and(|(word, bit)| word.load(Relaxed) & bit != 0)
    }

    /// The first page of a partition, and how many bytes plain hits may reach from there.
    pub(super) fn plain(&self, of: PartitionId) -> Option<(PageIndex, u64)> {
        Some(self.pool.row(of).filter(|_| !self.is_left(of.segment))?.plain())
    }

    /// A partition; none that nobody has made known, or without bytes.
    pub(super) fn find(&self, of: PartitionId) -> Option<Known> {
        self.pool.row(of).filter(|_| !self.is_left(of.segment))?.read(of)
    }

    /// The partition of an owner that a page is of.
    pub(super) fn find_page(&self, owner: Rank, page: PageIndex) -> Option<Partition> {
        let segments = (0..SEGMENTS_MAX).map(SegmentId);
        let mut all = segments.filter_map(|segment| self.find(PartitionId { segment, owner }));
        all.find(|known| known.partition.range().contains(&page)).map(|known| known.partition)
    }

    /// Whether any rank has a part of the first segment, whose pages keep their room as long as the job.
    pub(super) fn has_first(&self) -> bool {
        (0..self.pool.layout().ranks()).map(Rank).any(|rank| self.find(rank.into()).is_some())
    }

    /// Why a partition can only be read.
    pub(super) fn refusal(&self, of: PartitionId) -> Option<Failure> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).get(&of).copied()
    }

    /// Makes a partition known. False: there is no such segment or rank.
    pub(super) fn insert(&self, known: Known, refused: Option<Failure>) -> bool {
        let id = known.partition.id();
        // The first segment's pages are those of segments that say nothing else.
        let fits = id.segment != SegmentId::FIRST || known.partition.size == self.pool.layout().page_size();
        let row = self.pool.row(id).filter(|_| fits);
        let (Some(row), Some((word, bit))) = (row, self.word(id.segment)) else { return false };
        if let Some(why) = refused {
            self.refused.lock().unwrap_or_else(PoisonError::into_inner).insert(id, why);
        }
        row.write(&known);
        word.fetch_and(!bit, Relaxed);
        true
    }

    /// Forgets a segment, which this rank does not use any more; others of its node may. The rows are the agent's to end.
    pub(super) fn remove(&self, segment: SegmentId) {
        if let Some((word, bit)) = self.word(segment) {
            word.fetch_or(bit, Relaxed);
        }
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.retain(|of, _| of.segment != segment);
    }

    /// Forgets a partition that this rank has attached by itself, and nobody uses any more. Other ranks may have one of that number.
    pub(super) fn remove_own(&self, of: PartitionId) {
        if let Some(row) = self.pool.row(of) {
            row.end();
        }
    }
}
