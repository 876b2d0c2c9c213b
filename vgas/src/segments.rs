//! Further segments: attached and detached while the job runs. Tiered ones, each with pages and a policy of its own, are made here,
//! pinned ones in `pinned`.
//!
//! [`Runtime::attach`] creates the first segment, the one that GASNet clients see. A library that needs memory of another kind
//! attaches a segment of its own with [`Runtime::attach_segment`], on all ranks together:
//!
//! ```no_run
//! use vgas::{Runtime, SegmentOptions, SegmentSpec};
//!
//! fn main() -> vgas::Result<()> {
//!     let runtime = Runtime::init()?;
//!     runtime.attach(&SegmentSpec::default())?;
//!     // Records that are read at random, and a matrix that is read in order, once.
//!     let records = runtime.attach_segment(1 << 20, &SegmentOptions::with_pages_of(4 << 10))?;
//!     let matrix = runtime.attach_segment(64 << 20, &SegmentOptions::with_pages_of(1 << 20))?;
//!     runtime.put(records.address(runtime.rank(), 0), b"key and value")?;
//!     runtime.barrier()?;
//!     runtime.detach_segment(matrix)?;
//!     runtime.finalize()
//! }
//! ```
//!
//! A rank may also attach a segment by itself ([`Runtime::attach_own`]); others who are told of an address in it put and get
//! there as anywhere ([`Runtime::learn`]).

use crate::address::{GlobalAddress, Kind};
use crate::attach::{Reopened, Together, in_short};
use crate::error::{Error, Result};
use crate::pinned;
use crate::runtime::Runtime;
use serde::{Deserialize, Serialize};
use std::ops::Deref;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use vgas_cache::Failure;
use vgas_cache::client::{Created, LocalRange, SegmentPages};
use vgas_cache::local::{Everywhere, LocalSegment};
use vgas_cache::page::PageIndex;
use vgas_cache::partition::{PartitionId, Policy, SEGMENTS_MAX, SegmentId};
use vgas_cache::pool::{MAPPED_PAGES_MIN, PageSize};
use vgas_cache::request::{Detach, Named};
use vgas_nvm::{CheckpointId, Companion, name_hash};
use vgas_rma::Rank;

/// Numbers from here on are those of tiered segments that ranks have attached by themselves, each rank its own. Those of pinned
/// segments follow.
const OWN_FIRST: u16 = 768;

/// What a segment stands on, and what its pages are like. The same on all ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentOptions {
    /// [`Kind::Tiered`], to which everything else here belongs, or [`Kind::Pinned`]: memory that each rank has for itself, out of the
    /// bytes of the setting `segment.pinned_max` that it has not attached otherwise; every rank reaches it as it does the first pinned
    /// segment, ranks of the same node also by pointers ([`Runtime::pointer_to`]).
    pub kind: Kind,
    /// A name keeps the segment after the job, as [`crate::SegmentSpec::name`] does the first; no two of a job may have the same.
    /// [`Runtime::checkpoint`] makes all named segments durable as one, and notes in each which others took part. A later job
    /// finds them as they were at one checkpoint: if one of them was removed meanwhile, or replaced by an older copy, attaching it
    /// is refused unless `segment.mixed_checkpoints` is on ([`Reopened::is_together`]). Not for [`Runtime::attach_own`].
    pub name: Option<String>,
    /// Bytes of a page, a power of two from 4 KiB to 4 MiB, and at most a sixteenth of a node's cache; 0: as `cache.page` says.
    /// Small pages suit small things at random, large ones scans: a page is what travels, and what is kept or evicted.
    pub page_bytes: u32,
    /// As [`crate::SegmentSpec::relaxed`].
    pub relaxed: bool,
    /// Only the owner's node ever has copies: puts and gets of other nodes travel there and back with the bytes that they name. For
    /// memory that several nodes write, or whose owner must not wait for others.
    pub home_only: bool,
    /// The home serves small puts and gets of other nodes where the page is from the second node that puts on, instead of
    /// waiting for the page to go to and fro. Other nodes cannot pin such a page.
    pub in_place: bool,
    /// Scans are recognised, and run ahead.
    pub read_ahead: bool,
    /// For what is read once, from one end to the other: while the cache is full and more than an eighth of what it holds is of
    /// such segments, their pages leave before others, the oldest first. So a scan does not flush what others read again. Each of
    /// `agent.threads` chooses among the pages that it has: with several, a scan may flush more.
    pub streamed: bool,
    /// Its parts are mapped at the same addresses in all processes, as those of the first with [`crate::SegmentSpec::one_address`]:
    /// [`Runtime::pointer_to`] says where. Not for [`Runtime::attach_own`].
    pub one_address: bool,
    /// How many times as long as others its pages are kept when others want their memory, 1 to 255. Each of `agent.threads` chooses
    /// among the pages that it has.
    pub weight: u8,
}

impl Default for SegmentOptions {
    fn default() -> Self {
        Self {
            kind: Kind::Tiered,
            name: None,
            page_bytes: 0,
            relaxed: false,
            home_only: false,
            in_place: false,
            read_ahead: true,
            streamed: false,
            one_address: false,
            weight: 1,
        }
    }
}

impl SegmentOptions {
    /// With pages of this size, otherwise like the first segment.
    pub fn with_pages_of(page_bytes: u32) -> Self {
        Self { page_bytes, ..Self::default() }
    }

    /// Of a pinned segment, which has no pages.
    pub fn pinned() -> Self {
        Self { kind: Kind::Pinned, ..Self::default() }
    }

    fn policy(&self) -> Policy {
        let &Self { home_only, in_place, read_ahead, streamed, weight, .. } = self;
        Policy { home_only, in_place, read_ahead, streamed, owned: false, weight }
    }
}

/// A segment that [`Runtime::attach_segment`] has attached: its number, good until it is detached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Segment {
    id: SegmentId,
}

impl Segment {
    /// The first tiered segment, of [`Runtime::attach`]. (Of the first pinned one, see [`GlobalAddress::pinned`].)
    pub const FIRST: Self = Self { id: SegmentId::FIRST };

    /// The segment of a number, for who keeps numbers: no more than the number is known of it.
    pub fn numbered(id: SegmentId) -> Self {
        Self { id }
    }

    /// Its number: the same on all ranks.
    pub fn id(self) -> SegmentId {
        self.id
    }

    /// What it stands on, which its number says.
    #[inline]
    pub fn kind(self) -> Kind {
        if self.id.0 < SEGMENTS_MAX { Kind::Tiered } else { Kind::Pinned }
    }

    /// A place in a rank's part of it.
    #[inline]
    pub fn address(self, rank: Rank, offset: u64) -> GlobalAddress {
        GlobalAddress { rank, kind: self.kind(), segment: self.id, offset }
    }
}

/// This rank's part of a further segment as memory, until it is dropped ([`Runtime::local_of`]).
#[derive(Debug)]
pub struct LocalPart<'r> {
    runtime: &'r Runtime,
    segment: LocalSegment,
    of: PartitionId,
    /// What it has of [`Segments::mapped`].
    counted: u32,
    /// After `segment`, which lies in it.
    _everywhere: Option<Arc<Everywhere>>,
}

impl Deref for LocalPart<'_> {
    type Target = LocalSegment;

    fn deref(&self) -> &LocalSegment {
        &self.segment
    }
}

impl Drop for LocalPart<'_> {
    fn drop(&mut self) {
        // The agent is gone with the job, and its pages with it.
        let _ = self.segment.close();
        let segments = &self.runtime.segments;
        segments.shown().retain(|shown| shown.base != self.segment.base().addr());
        self.runtime.tell_absent();
        segments.mapped.fetch_sub(self.counted, Relaxed);
        segments.open().retain(|open| *open != self.of);
    }
}

/// Stands for a segment that is being detached, among those that are open: the part of a rank that no job has.
fn leaving(segment: SegmentId) -> PartitionId {
    PartitionId { segment, owner: Rank(u32::MAX) }
}

/// A segment that outlives the job.
#[derive(Clone, Debug)]
struct NamedSegment {
    segment: SegmentId,
    reopened: Option<Reopened>,
    at: AtCheckpoint,
}

/// The last checkpoint of a named segment that the job has open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AtCheckpoint {
    pub name: String,
    pub checkpoint: CheckpointId,
    /// The other segments that took part in it.
    pub companions: Vec<Companion>,
}

/// The segments that this rank has, by number.
#[derive(Debug, Default)]
pub(crate) struct Segments {
    /// Pages that may be mapped of further segments, taken.
    mapped: AtomicU32,
    /// Which partitions are open beside the own part of the first segment: one that is opened twice would be mapped twice.
    open: Mutex<Vec<PartitionId>>,
    /// Where partitions are in this rank's memory.
    shown: Mutex<Vec<LocalRange>>,
    used: Mutex<Vec<SegmentId>>,
    /// Those with a name, in the order in which they were attached.
    named: Mutex<Vec<NamedSegment>>,
    /// Collective calls take turns.
    changing: Mutex<()>,
}

impl Segments {
    fn used(&self) -> MutexGuard<'_, Vec<SegmentId>> {
        // It is changed in single steps.
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self) -> MutexGuard<'_, Vec<PartitionId>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn named(&self) -> MutexGuard<'_, Vec<NamedSegment>> {
        self.named.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A segment with a name has been attached.
    pub fn is_named(&self, segment: SegmentId, name: &str, together: &Together, is_read_only: bool) {
        let (at, reopened) = (together.at(name), together.reopened(is_read_only));
        self.named().push(NamedSegment { segment, reopened, at });
    }

    fn is_known(&self, name: &str) -> bool {
        self.named().iter().any(|named| named.at.name == name)
    }

    /// What the next checkpoint of a segment names: every other named segment, with the generation that it will have.
    pub fn companions_of(&self, segment: SegmentId) -> Vec<Companion> {
        let named = self.named();
        if named.iter().all(|one| one.segment != segment) {
            return Vec::new();
        }
        let companion = |one: &NamedSegment| Companion {
            name_hash: name_hash(&one.at.name),
            generation: one.at.checkpoint.generation + 1,
        };
        named.iter().filter(|one| one.segment != segment).map(companion).collect()
    }

    /// Records that a checkpoint of all named segments is complete.
    pub fn are_at(&self, identity: u64) {
        let segments: Vec<SegmentId> = self.named().iter().map(|one| one.segment).collect();
        let companions: Vec<_> = segments.iter().map(|&segment| self.companions_of(segment)).collect();
        for (one, companions) in self.named().iter_mut().zip(companions) {
            one.at.checkpoint = CheckpointId { generation: one.at.checkpoint.generation + 1, identity };
            one.at.companions = companions;
        }
    }

    pub fn named_count(&self) -> usize {
        self.named().len()
    }

    /// The first of those with a name.
    pub fn opened_first(&self) -> Option<SegmentId> {
        self.named().first().map(|named| named.segment)
    }

    /// The checkpoints that the named segments are at, in the order in which they were attached.
    pub fn at_checkpoints(&self) -> Vec<AtCheckpoint> {
        self.named().iter().map(|named| named.at.clone()).collect()
    }

    pub fn reopened(&self, segment: SegmentId) -> Option<Reopened> {
        self.named().iter().find(|named| named.segment == segment)?.reopened
    }

    fn shown(&self) -> MutexGuard<'_, Vec<LocalRange>> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on no part of a segment is opened. Returns whether one is open.
    fn begin_leaving(&self, segment: SegmentId) -> bool {
        let mut open = self.open();
        let is_open = open.iter().any(|open| open.segment == segment);
        open.push(leaving(segment));
        is_open
    }

    /// The segment is gone, or stays.
    fn end_leaving(&self, segment: SegmentId) {
        self.open().retain(|open| *open != leaving(segment));
    }

    /// A partition can be reached by pointers now.
    pub fn is_shown(&self, of: PartitionId, segment: &LocalSegment) {
        let (base, bytes) = (segment.base().addr(), segment.bytes() as usize);
        self.shown().push(LocalRange { base, bytes, of });
    }

    /// All tiered ones that there are, in order: what all ranks have together, the same everywhere, first.
    pub fn tiered(&self) -> Vec<SegmentId> {
        self.used().iter().copied().filter(|segment| segment.0 < SEGMENTS_MAX).collect()
    }

    /// Whether this rank has attached it.
    pub fn has(&self, segment: SegmentId) -> bool {
        self.used().binary_search(&segment).is_ok()
    }

    /// One more.
    pub fn begin(&self, segment: SegmentId) {
        let mut used = self.used();
        if let Err(at) = used.binary_search(&segment) {
            used.insert(at, segment);
        }
    }

    pub fn end(&self, segment: SegmentId) {
        self.used().retain(|known| *known != segment);
        self.named().retain(|named| named.segment != segment);
    }

    pub fn vacant(&self, numbers: std::ops::Range<u16>) -> Option<SegmentId> {
        let used = self.used();
        numbers.map(SegmentId).find(|segment| used.binary_search(segment).is_err())
    }
}

/// Whether a number is one of those that all ranks attach together.
fn is_of_all(segment: SegmentId) -> bool {
    segment.0 < OWN_FIRST || pinned::OF_ALL.contains(&segment.0)
}

/// What a rank tells the others of its part of a new segment: small, because a barrier carries it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Part {
    /// What it was asked for, so that ranks that ask for different things notice.
    wanted: Wanted,
    pub bytes: u64,
    /// Of its first page, and why it can only be read, or 0; or why there is none.
    first: std::result::Result<(PageIndex, u32), String>,
}

/// Number, bytes of a page, policy, relaxed and at one address, name.
pub(crate) type Wanted = (u16, u32, u32, [bool; 2], Option<String>);

/// Longer names are none, and none has other than ASCII characters.
const NAME_BYTES_MAX: usize = 200;
/// Most characters of why a rank could not attach: up to four bytes each, of the 1024 that a barrier carries.
const WHY_MAX: usize = 150;

impl Runtime {
    /// Attaches a further segment, of which this rank has `bytes` bytes (0 for none), zeros at first. Collective: all ranks
    /// call it with the same options, in the same order, after [`Runtime::attach`]; when it returns, the segment may be used
    /// everywhere. Takes some hundred microseconds.
    ///
    /// # Errors
    /// The same on all ranks, and nothing has been created, except where the job goes on without a node that is lost meanwhile: some may have
    /// it then, and this rank's part stays until the end. Pages of a size that the cache has no room for, more bytes than
    /// `segment.tiered_max` or `segment.pinned_max` leaves, a file that cannot be created, more than 767 further tiered segments or 256
    /// pinned ones, more than 56 at one address, or no addresses for one that are free in all processes; options that differ; for a
    /// pinned one, any other option than its kind.
    pub fn attach_segment(&self, bytes: u64, options: &SegmentOptions) -> Result<Segment> {
        self.endpoint().check_all("attaching a segment")?;
        let _turn = self.segments.changing.lock().unwrap_or_else(PoisonError::into_inner);
        match options.kind {
            Kind::Tiered => self.attach_tiered(bytes, options),
            Kind::Pinned => self.attach_pinned(bytes, options),
        }
    }

    fn attach_tiered(&self, bytes: u64, options: &SegmentOptions) -> Result<Segment> {
        let vacant = self.segments.vacant(1..OWN_FIRST);
        let wanted: Wanted = (
            vacant.unwrap_or_default().0,
            options.page_bytes,
            options.policy().encode(),
            [options.relaxed, options.one_address],
            options
                .name
                .as_ref()
                .map(|name| name.chars().filter(char::is_ascii).take(NAME_BYTES_MAX).collect()),
        );
        // Before they look for its files, or for addresses, all must mean the same segment.
        let mut parts = Vec::new();
        if options.name.is_some() || options.one_address {
            let is_known = options.name.as_ref().is_some_and(|name| self.segments.is_known(name));
            let most = self.client().companions_max();
            let first = match (is_known, &options.name) {
                (true, _) => Err("a segment of this job has that name already".into()),
                (false, Some(_)) if self.segments.named_count() > most => {
                    Err(format!("a job has at most {} segments with names", most + 1))
                }
                _ => Ok(Default::default()),
            };
            parts = self.mean_the_same(&Part { wanted: wanted.clone(), bytes, first })?;
        }
        let together = match &options.name {
            None => None,
            Some(name) => Some(self.find_together(name, bytes, options.relaxed)?),
        };
        let named = together.as_ref().and_then(|together| together.named(options.name.as_ref()));
        // What keeps all from it is told with what keeps this rank from its part.
        let (everywhere, refused) = match self.place(options, &parts) {
            Ok(everywhere) => (everywhere, None),
            Err(error) => (None, Some(error)),
        };
        let created = match refused {
            Some(error) => Err(error),
            None => self.create(vacant, bytes, options, named.as_ref()),
        };
        let first = |(_, created): &(_, Created)| (created.first, created.read_only.map_or(0, Failure::code));
        let ((pages, _), all) = self.all_or_none(wanted, bytes, created, first, |(pages, _)| {
            // Nobody knows of it but this node.
            Ok(self.client().detach(pages.segment, Detach::Forget)?)
        })?;
        let relaxed = options.relaxed;
        let created = |part: Part| {
            let (first, code) = part.first.unwrap_or_default();
            let read_only = (code != 0).then(|| Failure::from_code(code));
            Created { first, bytes: part.bytes, relaxed, read_only }
        };
        let parts: Vec<Created> = all.into_iter().map(created).collect();
        match self.speaks_for_node() {
            true => self.client().know(pages, Rank(0), &parts)?,
            false => self.client().know_here(pages, Rank(0), &parts)?,
        }
        self.segments.begin(pages.segment);
        everywhere.into_iter().for_each(|everywhere| self.addresses.begin(pages.segment, everywhere));
        // A name of nothing keeps nothing.
        let name = options.name.as_ref().filter(|_| parts.iter().any(|part| part.bytes > 0));
        if let (Some(name), Some(together)) = (name, &together) {
            let is_read_only = parts.iter().any(|part| part.read_only.is_some());
            self.segments.is_named(pages.segment, name, together, is_read_only);
        }
        self.barrier()?;
        Ok(Segment { id: pages.segment })
    }

    /// Finds addresses for all parts of a segment that is to be at one address.
    fn place(&self, options: &SegmentOptions, parts: &[Part]) -> Result<Option<Everywhere>> {
        if !options.one_address {
            return Ok(None);
        }
        let page_bytes = match options.page_bytes {
            0 => self.client().page_bytes() as u64,
            bytes => bytes.into(),
        };
        let exchange = |own: u32| {
            let all = self.barrier_with(&own.to_le_bytes())?;
            let word = |bytes: &Vec<u8>| Some(u32::from_le_bytes(bytes.as_slice().try_into().ok()?));
            Ok(all.iter().map(|bytes| word(bytes).unwrap_or(0)).collect())
        };
        self.agree_on_addresses(parts.iter().map(|part| part.bytes), page_bytes, exchange).map(Some)
    }

    /// Tells the others whether this rank has its part of a new segment, and what `first` says of it: when this returns, all ranks have
    /// theirs, which are told, or none has, and what was made here was undone.
    pub(crate) fn all_or_none<T>(
        &self,
        wanted: Wanted,
        bytes: u64,
        created: Result<T>,
        first: impl FnOnce(&T) -> (PageIndex, u32),
        undo: impl FnOnce(&T) -> Result<()>,
    ) -> Result<(T, Vec<Part>)> {
        let first = match &created {
            Ok(created) => Ok(first(created)),
            Err(error) => Err(in_short(error).chars().take(WHY_MAX).collect()),
        };
        let own = Part { wanted, bytes, first };
        let heard = self.hear_parts(&own);
        let are_together = heard.is_ok();
        match (created, heard.and_then(|all| self.agree(&own, all))) {
            (Ok(created), Ok(all)) => Ok((created, all)),
            (created, told) => {
                // Where a node is lost, others may have heard that all have theirs, and use this one.
                let stays = self.endpoint().has_lost();
                let undone = created.as_ref().ok().filter(|_| !stays).map_or(Ok(()), undo);
                // The next segment may have the same number: no neighbour is to forget that one. Who is at another call does not come.
                if are_together {
                    self.barrier()?;
                }
                undone?;
                let error = created.err().or(told.err());
                Err(error.unwrap_or_else(|| Error::Usage("a segment could not be attached".into())))
            }
        }
    }

    /// Refuses whoever attaches a further segment before the first.
    pub(crate) fn check_first(&self) -> Result<()> {
        match self.segments.has(SegmentId::FIRST) {
            true => Ok(()),
            false => Err(Error::Usage(
                "attach the first segment before others (Runtime::attach; it may be empty)".into(),
            )),
        }
    }

    /// Creates this rank's part.
    fn create(
        &self,
        segment: Option<SegmentId>,
        bytes: u64,
        options: &SegmentOptions,
        named: Option<&Named>,
    ) -> Result<(SegmentPages, Created)> {
        let usage = |what: String| Err(Error::Usage(what));
        self.check_first()?;
        let Some(segment) = segment else {
            return usage("no number for another segment is left".into());
        };
        let layout = self.client().pool().layout();
        let size = match options.page_bytes {
            0 => layout.page_size(),
            bytes => PageSize::try_from(bytes).map_err(Error::Usage)?,
        };
        if size.bytes() > layout.spec().page_bytes_max {
            let (bytes, most) = (size.bytes(), layout.spec().page_bytes_max);
            return usage(format!(
                "pages of {bytes} bytes: the cache of a node has room for pages of at most {most}; raise cache.size (--cache)"
            ));
        }
        if options.weight == 0 {
            return usage("a segment with the weight 0: 1 to 255".into());
        }
        let most = self.settings().segment.tiered_max.bytes();
        if bytes > most {
            return usage(format!("a segment of {bytes} bytes: at most {most} (segment.tiered_max)"));
        }
        self.client().make_room(size)?;
        let pages = SegmentPages { segment, size, policy: options.policy() };
        let created = self.client().attach(pages, bytes, named)?;
        Ok((pages, Created { relaxed: options.relaxed, ..created }))
    }

    /// Tells the others what this rank means to attach, and learns what they do. An error when that does not fit together: then ranks that
    /// mean something else have come to [`Runtime::all_or_none`] and left it.
    fn mean_the_same(&self, own: &Part) -> Result<Vec<Part>> {
        let all = self.hear_parts(own)?;
        let agreed = self.agree(own, all);
        if agreed.is_err() {
            self.barrier()?;
        }
        agreed
    }

    /// What all ranks have, if all are at the same call.
    fn hear_parts(&self, own: &Part) -> Result<Vec<Part>> {
        let bytes = postcard::to_allocvec(own)
            .map_err(|error| Error::Usage(format!("cannot tell what to attach: {error}")))?;
        let all = self.barrier_with(&bytes)?;
        let decode = |(rank, bytes): (usize, &Vec<u8>)| {
            postcard::from_bytes(bytes).map_err(|error| {
                Error::Usage(format!("rank {rank} is at another barrier than attach_segment: {error}"))
            })
        };
        all.iter().enumerate().map(decode).collect()
    }

    /// All parts, if all ranks have attached theirs and mean the same.
    fn agree(&self, own: &Part, all: Vec<Part>) -> Result<Vec<Part>> {
        let mut refused =
            all.iter().enumerate().filter_map(|(rank, part)| Some((rank, part.first.as_ref().err()?)));
        if let Some((rank, why)) = refused.next() {
            return Err(Error::Usage(format!("rank {rank} could not attach a segment: {why}")));
        }
        match all.iter().position(|part| part.wanted != own.wanted) {
            Some(other) => Err(Error::Usage(format!(
                "{} and rank {other} attach segments with different options, or in different order",
                self.rank()
            ))),
            None => Ok(all),
        }
    }

    /// Gives a segment of [`Runtime::attach_segment`] up, with everything in it. Collective: when it returns, its pages, its
    /// files and its number are free. Nobody may use it any more: operations have been waited for, and pins are gone.
    ///
    /// # Errors
    /// The first segment, or one that is none. On every rank, and then nothing has happened, when one of them has it open by pointers
    /// ([`Runtime::local_of`], [`Runtime::local_of_mate`]). When a relaxed put that was still waiting fails.
    pub fn detach_segment(&self, segment: Segment) -> Result<()> {
        let _turn = self.segments.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let id = segment.id;
        if id == SegmentId::FIRST || !is_of_all(id) || !self.segments.has(id) {
            return Err(Error::Usage(format!(
                "{segment:?} is no segment that all ranks have attached together"
            )));
        }
        if segment.kind() == Kind::Pinned {
            return self.detach_pinned(segment);
        }
        let is_open = self.segments.begin_leaving(id);
        let all = self.barrier_with(&[u8::from(is_open)])?;
        if let Some(rank) = all.iter().position(|said| said[..] == [1]) {
            self.segments.end_leaving(id);
            return Err(Error::Usage(format!(
                "{segment:?} is open by pointers in rank {rank}: drop what Runtime::local_of has returned before it is detached"
            )));
        }
        self.client().leave(id)?;
        self.barrier()?;
        for step in [Detach::Withdraw, Detach::Forget] {
            if self.speaks_for_node() {
                self.client().detach(id, step)?;
            }
            if step == Detach::Forget {
                self.segments.end(id);
                self.addresses.end(id);
            }
            self.barrier()?;
        }
        self.segments.end_leaving(id);
        Ok(())
    }

    /// Whether this rank tells its node's agent what all ranks would tell theirs, and wait for at the next barrier: each that asks may
    /// have to wait for a processor, and so all would.
    fn speaks_for_node(&self) -> bool {
        self.layout().ranks_of(self.node()).start == self.rank().0
    }

    /// Attaches a segment of this rank's alone, zeros at first; the others need not do anything. Whoever is told of an address
    /// in it can use it after [`Runtime::learn`]. A rank can have 256 such segments of each kind.
    ///
    /// # Errors
    /// As [`Runtime::attach_segment`], here.
    pub fn attach_own(&self, bytes: u64, options: &SegmentOptions) -> Result<Segment> {
        let _turn = self.segments.changing.lock().unwrap_or_else(PoisonError::into_inner);
        if bytes == 0 {
            return Err(Error::Usage("an own segment of no bytes".into()));
        }
        for (given, what) in
            [(options.name.is_some(), "with a name"), (options.one_address, "at one address")]
        {
            if given {
                return Err(Error::Usage(format!("an own segment {what}: attach it on all ranks together")));
            }
        }
        if options.kind == Kind::Pinned {
            return self.attach_own_pinned(bytes, options);
        }
        let vacant = self.segments.vacant(OWN_FIRST..SEGMENTS_MAX);
        let (pages, created) = self.create(vacant, bytes, options, None)?;
        self.client().know(pages, self.rank(), &[created])?;
        self.segments.begin(pages.segment);
        Ok(Segment { id: pages.segment })
    }

    /// Learns of a segment that another rank has attached by itself ([`Runtime::attach_own`]), of which this is an address. Nothing
    /// happens when it is known, as a tiered one is to all ranks of a node when one of them knows it, except of a pinned one: learnt of again, it may be another of the same number. One message
    /// there and back, and, of a tiered one, one to the own agent, which keeps room for its pages.
    ///
    /// # Errors
    /// When that rank has no such segment, and when nothing can leave the cache for its pages.
    pub fn learn(&self, at: GlobalAddress) -> Result<()> {
        match at.kind {
            Kind::Tiered => Ok(self.client().learn(at.partition())?),
            Kind::Pinned => self.learn_pinned(at),
        }
    }

    /// Gives a segment of [`Runtime::attach_own`] up, when no rank of the node has it open any more ([`Runtime::local_of_mate`]). Other
    /// ranks that use it still get errors, and it is for the program to see to it
    /// that none uses an address of it later, when its number may be another segment's. Others' copies need not be given back. Of
    /// a pinned one, nobody may use an address any more: what a rank of another node does with it ends the job with a line that names
    /// that rank.
    ///
    /// # Errors
    /// A segment that this rank has not attached by itself, or has open by pointers ([`Runtime::local_of`]).
    pub fn detach_own(&self, segment: Segment) -> Result<()> {
        let _turn = self.segments.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let id = segment.id;
        if is_of_all(id) || !self.segments.has(id) {
            return Err(Error::Usage(format!(
                "{segment:?} is no segment that this rank has attached by itself"
            )));
        }
        if self.segments.begin_leaving(id) {
            self.segments.end_leaving(id);
            return Err(Error::Usage(format!(
                "{segment:?} is open by pointers: drop what Runtime::local_of has returned before it is detached"
            )));
        }
        let gone = self.give_up_own(segment);
        self.segments.end_leaving(id);
        gone
    }

    fn give_up_own(&self, segment: Segment) -> Result<()> {
        let id = segment.id;
        match segment.kind() {
            Kind::Tiered => self.client().detach_own((id, self.rank()))?,
            Kind::Pinned => self.give_back(segment)?,
        }
        self.segments.end(id);
        Ok(())
    }

    /// Bytes of a rank's part of a segment; 0 when it has none.
    pub fn segment_bytes(&self, segment: Segment, rank: Rank) -> u64 {
        match segment.kind() {
            Kind::Tiered => self.client().bytes_of(PartitionId { segment: segment.id, owner: rank }),
            Kind::Pinned => {
                self.endpoint().part_bytes(segment.address(rank, 0).pinned_part()).unwrap_or_default()
            }
        }
    }

    /// Makes this rank's own part of a further tiered segment addressable by plain pointers, as [`Runtime::local`] does for the first,
    /// until the result is dropped. (Those of pinned ones always are: [`Runtime::pointer_to`].) At most `pages` of it are mapped at a time. Beside what is mapped of the first segment, a rank may
    /// map a quarter as many pages of others, and as many bytes.
    ///
    /// # Errors
    /// As [`Runtime::local`].
    pub fn local_of(&self, segment: Segment, pages: u32) -> Result<LocalPart<'_>> {
        if segment == Segment::FIRST {
            return Err(Error::Usage("the first segment is Runtime::local's".into()));
        }
        self.open_beside(PartitionId { segment: segment.id, owner: self.rank() }, pages)
    }

    /// Makes the part of a tiered segment of another rank of this rank's node addressable by plain pointers, to be read, until the result is
    /// dropped: of a segment at one address, where [`Runtime::pointer_to`] says. The
    /// pages are those that the owner's pointers use; each is, like with these, only here while somebody uses it so. They count as
    /// [`Runtime::local_of`] says, `pages` of them at most are mapped. A store ends the process with a line that says so.
    ///
    /// # Errors
    /// As [`Runtime::local`], for a rank of another node, and for a part that is open already.
    pub fn local_of_mate(&self, segment: Segment, owner: Rank, pages: u32) -> Result<LocalPart<'_>> {
        let is_there = owner.0 < self.ranks() && self.layout().node_of(owner) == self.node();
        if !is_there || owner == self.rank() {
            return Err(Error::Usage(format!(
                "{owner} is no other rank of the node of {}: its memory is not here; get what it has",
                self.rank()
            )));
        }
        self.open_beside(PartitionId { segment: segment.id, owner }, pages)
    }

    /// Opens a segment that counts to what is mapped beside the first.
    fn open_beside(&self, of: PartitionId, pages: u32) -> Result<LocalPart<'_>> {
        if (Segment { id: of.segment }).kind() == Kind::Pinned {
            return Err(Error::Usage(
                "a pinned segment is not opened: Runtime::pointer_to says where it is".into(),
            ));
        }
        let layout = self.client().pool().layout();
        let size = self.client().partition(of).map_or(layout.page_size(), |found| found.size);
        // In pages of the first segment, which the rank's share is counted in: larger ones count as several.
        let each = size.bytes().div_ceil(layout.page_size().bytes());
        let most = layout.mapped_beside_first();
        let counted = pages.saturating_mul(each);
        let mapped = &self.segments.mapped;
        let take = |taken: u32| taken.checked_add(counted).filter(|&taken| taken <= most);
        if pages < MAPPED_PAGES_MIN || mapped.fetch_update(Relaxed, Relaxed, take).is_err() {
            return Err(Error::Usage(format!(
                "{pages} pages of a further segment to be mapped: {MAPPED_PAGES_MIN} at least, and of all of them together {}; raise \
                 local.mapped",
                most / each
            )));
        }
        let is_open = {
            let mut open = self.segments.open();
            let is_open = open.contains(&of) || open.contains(&leaving(of.segment));
            open.extend(Some(of).filter(|_| !is_open));
            is_open
        };
        let everywhere = self.addresses.of(of.segment);
        let opened = match is_open {
            true => {
                Err(Error::Usage(format!("the part of {of} is open in this rank already, or being detached")))
            }
            false => self.open_local(of, Some(pages), everywhere.as_deref()),
        };
        if opened.is_err() {
            mapped.fetch_sub(counted, Relaxed);
            if !is_open {
                self.segments.open().retain(|open| *open != of);
            }
        }
        let segment = opened?;
        self.segments.is_shown(of, &segment);
        self.tell_absent();
        Ok(LocalPart { runtime: self, segment, of, counted, _everywhere: everywhere })
    }

    /// Says where buffers of puts, gets and messages may be absent pages.
    pub(crate) fn tell_absent(&self) {
        self.client().set_local(self.segments.shown().clone());
        let (base, bytes) = self.client().local();
        self.endpoint().set_absent(std::ptr::without_provenance(base), bytes);
    }
}
