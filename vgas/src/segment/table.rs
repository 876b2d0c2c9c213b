//! The segments that a rank has: their numbers, names and open parts.

use super::options::SegmentOptions;
use super::reopened::{AtCheckpoint, Common, Reopened};
use crate::address::{Kind, LIBRARY_PINNED, LIBRARY_TIERED};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use vgas_cache::client::LocalRange;
use vgas_cache::local::LocalSegment;
use vgas_cache::partition::{PartitionId, SegmentId};
use vgas_nvm::{CheckpointId, Companion, name_hash};
use vgas_rma::{Rank, RegionId};

/// Numbers of tiered segments that all ranks attach together.
const TIERED: Range<u16> = 0..768;

/// Numbers of those that each rank attaches for itself.
const TIERED_INDEPENDENT: Range<u16> = TIERED.end..LIBRARY_TIERED.start;

/// Numbers of pinned segments that all ranks attach together, which are those of their regions; and [`SegmentId::FIRST`].
const PINNED: Range<u16> = RegionId::FURTHER.0..RegionId::FURTHER.0 + RegionId::FURTHER_MAX / 2;

/// Numbers of those that each rank attaches for itself.
const PINNED_INDEPENDENT: Range<u16> = PINNED.end..LIBRARY_PINNED.start;

/// A part that is open by pointers.
pub(super) trait OpenPart: std::fmt::Debug + Send + Sync {
    fn memory(&self) -> &LocalSegment;
}

/// A segment that outlives the job.
#[derive(Clone, Debug)]
struct NamedSegment {
    segment: SegmentId,
    is_owned: bool,
    reopened: Option<Reopened>,
    at: AtCheckpoint,
}

/// The attaching code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attacher {
    /// All ranks together.
    All,
    /// A library, on all ranks together, for a slot of its own.
    Library(u16),
    /// One rank.
    Independent,
}

/// The segments that this rank has.
#[derive(Debug, Default)]
pub(crate) struct SegmentTable {
    /// Pages taken of those that a rank may map ([`super::local`]).
    pub(super) mapped: AtomicU32,
    /// The partitions that are open by pointers: one that is opened twice would be mapped twice.
    open: Mutex<Vec<PartitionId>>,
    pub(super) opening: Mutex<()>,
    /// The usable parts among them, and their local addresses.
    local: Mutex<Vec<(LocalRange, Weak<dyn OpenPart>)>>,
    /// The segments of each kind, by number.
    used: Mutex<[Vec<(SegmentId, SegmentOptions)>; 2]>,
    /// True if a segment has had the number 0, of each kind: it is given once.
    first_was_given: [AtomicBool; 2],
    /// Those with a name, in the order in which they were attached.
    named: Mutex<Vec<NamedSegment>>,
    /// Calls that change the table take turns.
    changing: Mutex<()>,
    /// True if all ranks have met to attach a tiered segment.
    pub(super) have_met: AtomicBool,
}

/// Stands for a segment that is being detached, among the partitions that are open: the part of a rank that no job has.
fn leaving(segment: SegmentId) -> PartitionId {
    PartitionId { segment, owner: Rank(u32::MAX) }
}

/// The number of a slot among those of libraries, as a range; empty if there is none.
fn slot_of(numbers: Range<u16>, slot: u16) -> Range<u16> {
    let number = numbers.start.saturating_add(slot);
    number..(number + 1).min(numbers.end)
}

// The data behind these locks is changed in single steps.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SegmentTable {
    /// Keeps other threads from attaching and detaching.
    pub(super) fn turn(&self) -> MutexGuard<'_, ()> {
        lock(&self.changing)
    }

    /// Notes that a segment with a name was attached.
    pub(super) fn begin_named(
        &self,
        segment: SegmentId,
        name: &str,
        is_owned: bool,
        common: &Common,
        is_read_only: bool,
    ) {
        let (at, reopened) = (common.at(name), common.reopened(is_read_only));
        lock(&self.named).push(NamedSegment { segment, is_owned, reopened, at });
    }

    pub(super) fn has_name(&self, name: &str) -> bool {
        lock(&self.named).iter().any(|named| named.at.name == name)
    }

    /// Returns the companions in the next checkpoint of a segment: every other named segment, with the
    /// generation that it will have.
    pub(crate) fn companions_of(&self, segment: SegmentId) -> Vec<Companion> {
        let named = lock(&self.named);
        if named.iter().all(|one| one.segment != segment) {
            return Vec::new();
        }
        let companion = |one: &NamedSegment| Companion {
            name_hash: name_hash(&one.at.name),
            generation: one.at.checkpoint.generation + 1,
        };
        named.iter().filter(|one| one.segment != segment).map(companion).collect()
    }

    /// Notes that a checkpoint of all named segments is complete.
    pub(crate) fn end_checkpoint(&self, identity: u64) {
        let segments: Vec<SegmentId> = lock(&self.named).iter().map(|one| one.segment).collect();
        let companions: Vec<_> = segments.iter().map(|&segment| self.companions_of(segment)).collect();
        for (one, companions) in lock(&self.named).iter_mut().zip(companions) {
            one.at.checkpoint = CheckpointId { generation: one.at.checkpoint.generation + 1, identity };
            one.at.companions = companions;
        }
    }

    pub(crate) fn named_count(&self) -> usize {
        lock(&self.named).len()
    }

    /// The name of a named segment that belongs to a library.
    pub(crate) fn named_of_library(&self) -> Option<String> {
        lock(&self.named).iter().find(|named| named.is_owned).map(|named| named.at.name.clone())
    }

    /// The named segment that was opened first.
    pub(crate) fn opened_first(&self) -> Option<SegmentId> {
        lock(&self.named).first().map(|named| named.segment)
    }

    /// The checkpoints that the named segments are at, in the order in which they were attached.
    pub(super) fn at_checkpoints(&self) -> Vec<AtCheckpoint> {
        lock(&self.named).iter().map(|named| named.at.clone()).collect()
    }

    pub(super) fn reopened(&self, segment: SegmentId) -> Option<Reopened> {
        lock(&self.named).iter().find(|named| named.segment == segment)?.reopened
    }

    /// Reserves a partition for pointers. False: it is open, or its segment is being detached.
    pub(super) fn begin_open(&self, of: PartitionId) -> bool {
        let mut open = lock(&self.open);
        let is_closed = !open.contains(&of) && !open.contains(&leaving(of.segment));
        open.extend(Some(of).filter(|_| is_closed));
        is_closed
    }

    pub(super) fn end_open(&self, of: PartitionId) {
        lock(&self.open).retain(|open| *open != of);
    }

    /// Refuses pointers into a segment from now on. Returns whether a part of it is open.
    pub(super) fn begin_leaving(&self, segment: SegmentId) -> bool {
        let mut open = lock(&self.open);
        let is_open = open.iter().any(|open| open.segment == segment);
        open.push(leaving(segment));
        is_open
    }

    /// The segment is gone, or stays.
    pub(super) fn end_leaving(&self, segment: SegmentId) {
        self.end_open(leaving(segment));
    }

    pub(super) fn begin_local(&self, range: LocalRange, part: Weak<dyn OpenPart>) {
        lock(&self.local).push((range, part));
    }

    pub(super) fn end_local(&self, base: usize) {
        lock(&self.local).retain(|(range, _)| range.base != base);
    }

    /// An open part, if it is in use.
    pub(super) fn local_part(&self, of: PartitionId) -> Option<Arc<dyn OpenPart>> {
        lock(&self.local).iter().find(|(range, _)| range.of == of)?.1.upgrade()
    }

    pub(super) fn open_parts(&self) -> Vec<Arc<dyn OpenPart>> {
        lock(&self.local).iter().filter_map(|(_, part)| part.upgrade()).collect()
    }

    pub(super) fn local_ranges(&self) -> Vec<LocalRange> {
        lock(&self.local).iter().map(|(range, _)| *range).collect()
    }

    /// All tiered segments, in order: those of all ranks, the same everywhere, first.
    pub(crate) fn tiered(&self) -> Vec<SegmentId> {
        lock(&self.used)[Kind::Tiered as usize].iter().map(|(segment, _)| *segment).collect()
    }

    /// Returns true if this rank has attached the segment.
    pub(super) fn has(&self, kind: Kind, segment: SegmentId) -> bool {
        self.options_of(kind, segment).is_some()
    }

    /// The options of a segment that this rank has attached.
    pub(super) fn options_of(&self, kind: Kind, segment: SegmentId) -> Option<SegmentOptions> {
        let used = &lock(&self.used)[kind as usize];
        let at = used.binary_search_by_key(&segment, |(segment, _)| *segment).ok()?;
        Some(used[at].1.clone())
    }

    pub(super) fn begin(&self, segment: SegmentId, options: &SegmentOptions) {
        let kind = options.kind;
        let used = &mut lock(&self.used)[kind as usize];
        if let Err(at) = used.binary_search_by_key(&segment, |(segment, _)| *segment) {
            used.insert(at, (segment, options.clone()));
        }
        if segment == SegmentId::FIRST {
            self.first_was_given[kind as usize].store(true, std::sync::atomic::Ordering::Relaxed);
        }
    }

    pub(super) fn end(&self, kind: Kind, segment: SegmentId) {
        lock(&self.used)[kind as usize].retain(|(known, _)| *known != segment);
        if kind == Kind::Tiered {
            lock(&self.named).retain(|named| named.segment != segment);
        }
    }

    /// The least number for one more segment, the same on all ranks unless it is independent. The first of all gets
    /// [`SegmentId::FIRST`], which the hit path knows best, if `may_be_first`.
    pub(super) fn vacant(&self, kind: Kind, attacher: Attacher, may_be_first: bool) -> Option<SegmentId> {
        let numbers = match (kind, attacher) {
            (Kind::Tiered, Attacher::All) => TIERED.start + 1..TIERED.end,
            (Kind::Tiered, Attacher::Library(slot)) => slot_of(LIBRARY_TIERED, slot),
            (Kind::Tiered, Attacher::Independent) => TIERED_INDEPENDENT,
            (Kind::Pinned, Attacher::All) => PINNED,
            (Kind::Pinned, Attacher::Library(slot)) => slot_of(LIBRARY_PINNED, slot),
            (Kind::Pinned, Attacher::Independent) => PINNED_INDEPENDENT,
        };
        let first_was_given = self.first_was_given[kind as usize].load(std::sync::atomic::Ordering::Relaxed);
        if attacher == Attacher::All && may_be_first && !first_was_given {
            return Some(SegmentId::FIRST);
        }
        let used = lock(&self.used);
        let is_used = |segment: &SegmentId| used[kind as usize].iter().any(|(used, _)| used == segment);
        numbers.map(SegmentId).find(|segment| !is_used(segment))
    }
}
