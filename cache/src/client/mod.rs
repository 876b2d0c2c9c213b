//! A rank's side of the cache: puts and gets on tiered segments.
//!
//! Hits stay in the calling thread (promise 1); everything else becomes a request to the node's agent, and the
//! thread waits in [`Endpoint::wait_until`], where it also serves its active messages.
//!
//! # Rules for the unsafe code in this folder
//!
//! 1. *The caller's bytes.* The local address of a get or put is valid for its length until the operation has ended
//!    (the blocking call returned, the handle was waited for or dropped); for a get it may be written, and nobody else
//!    uses it meanwhile. Only `Operation::advance` touches it, run by whoever holds the operation: the thread that waits
//!    where it started it, or, of one that goes on by itself, any thread under the operation's lock (`in_flight`).
//! 2. *The pool's bytes* are reached through [`PoolClient`] alone, under its own rules.
//! 3. *Own memory first.* While a page is in use (it stands in the thread's hazard slot) nothing is touched that may fault
//!    into tiered memory: the fault might need, somewhere in the cluster, what this use keeps. So bytes that lie in this
//!    rank's own segment ([`Client::set_local`]) go through private memory.
//! 4. *Landings* ([`vgas_rma::endpoint::Landing`]). Where a home's bytes are to land, the conduit writes by itself until that home has
//!    answered: an operation does not end before that, also not with an error, unless the endpoint fails. A buffer of this
//!    crate's own is freed only then, or never.

mod attach;
mod in_flight;
mod local_transfer;
mod operation;
mod own;
mod pin;
mod relaxed;
mod remote;
mod segments;
mod service;
mod update;

use crate::error::{CacheError, Failure, PAGE_UNKNOWN};
use crate::page::{PageInSegment, PageIndex};
use crate::partition::{Partition, PartitionId, Policy, SegmentId};
use crate::parts::{History, Limits};
use crate::pool::{
    Attempt, Claim, Counter, CounterSnapshot, INLINE_BYTES, Known, PagePart, PageSize, PageState, PoolClient,
    WaitId, WaitStatus,
};
use crate::read_ahead::{Detectors, ReadAheadSettings};
use crate::region;
use crate::request::{InPlace, InPlaceAnswer, Request, handler};
use in_flight::{InFlight, Started};
use local_transfer::{LocalTransfer, Stretch, Transfer};
use operation::{Buffers, Operation, Piece, Way};
use own::{IoMode, OwnPages};
use relaxed::RelaxedSegments;
use remote::{Heard, RemoteOperations};
use segments::Segments;
pub use service::PendingCall;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock, PoisonError, RwLock, Weak};
pub use update::{PendingUpdates, SegmentUpdate};
use vgas_rma::address::{Layout, NodeId, Peer, Rank};
use vgas_rma::conduit::Sent;
use vgas_rma::endpoint::{Endpoint, SegmentPiece, Token, Work};
use vgas_rma::message::{Arrived, Payload, Source};
use vgas_shm::copy::copy;

/// What a client does and leaves; from the job's settings.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// A put of a whole page needs no old content (promise 8).
    pub whole_page_put: bool,
    /// Most pages one request may name, or as many bytes in pages of another size; 1 switches batching off.
    pub window_pages_max: u64,
    /// How long gets may be that read parts of pages; as for the agents.
    pub parts: Limits,
    /// Bring in pages of this node's own NVMe without its agent.
    pub self_service: bool,
    /// What of them to fetch ahead, where scans are recognised.
    pub read_ahead: Option<ReadAheadSettings>,
}

/// A segment, and what its pages are like: the same on all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentPages {
    /// Which.
    pub segment: SegmentId,
    /// How large its pages are.
    pub size: PageSize,
    /// How they are treated.
    pub policy: Policy,
}

impl SegmentPages {
    /// The first segment, with the pages of segments that say nothing else.
    pub fn first(pool: &PoolClient) -> Self {
        Self { segment: SegmentId::FIRST, size: pool.layout().page_size(), policy: Policy::default() }
    }
}

/// A rank's partition of a segment, as it was created; what the others are to be told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Created {
    /// The number of its first page.
    pub first: PageIndex,
    /// How large it is; 0: there is none.
    pub bytes: u64,
    /// Its content is agreed upon at barriers only ([`Client::flush_relaxed`]). The creator's to say.
    pub relaxed: bool,
    /// Why it can only be read.
    pub read_only: Option<Failure>,
}

/// The tiered segments of the job as one rank sees them. Any thread may call anything.
///
/// *What was started goes on by itself*: an operation of [`Client::put_nb`] or [`Client::get_nb`] advances whenever some
/// thread of the process polls or waits in the endpoint, and within a millisecond when none does.
pub struct Client {
    core: Arc<Core>,
    pool: Arc<PoolClient>,
    segments: Arc<Segments>,
    relaxed: RelaxedSegments,
    /// The smallest range of addresses that has all of `local_parts`, for a first look; of 0 bytes when there are none.
    local_base: AtomicUsize,
    local_bytes: AtomicUsize,
    /// The partitions that this process reaches through pointers.
    local_parts: RwLock<Vec<LocalRange>>,
}

/// Where a partition is in this process's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalRange {
    /// First address.
    pub base: usize,
    /// Size in bytes.
    pub bytes: usize,
    /// Which partition.
    pub of: PartitionId,
}

/// What operations need to go on, wherever the client is.
struct Core {
    endpoint: Arc<Endpoint>,
    pool: Arc<PoolClient>,
    layout: Layout,
    agent: Peer,
    /// What to call each node's NVMe in errors.
    homes: OnceLock<Box<[String]>>,
    segments: Arc<Segments>,
    remote: Arc<RemoteOperations>,
    buffers: Buffers,
    in_flight: InFlight,
    own: OwnPages,
    whole_page_put: bool,
    window_bytes_max: u64,
    /// Most bytes of a message: of a put that is posted, and of an operation in place.
    medium_max: usize,
    /// How long gets may be that read parts of pages, and who has done so of late.
    parts: Limits,
    part_reads: History,
}

/// A get or put in flight. It proceeds while the program does something else; dropping it waits for its end.
#[must_use = "an operation is complete only after `wait`"]
pub struct Pending {
    /// None: its end was reported.
    started: Option<(Arc<Core>, Arc<Started>)>,
}

/// An operation of the thread that started it, which waits for it or [lists](Begun::listed) it.
struct Begun<'c> {
    core: &'c Core,
    /// None: its end was reported.
    transfer: Option<Transfer>,
}

impl Client {
    /// Registers the client's handlers; to be called before the endpoint is opened, with the value for [`Client::new`].
    pub fn register(endpoint: &Endpoint) -> Result<Handlers, CacheError> {
        let remote = Arc::new(RemoteOperations::default());
        let known = remote.clone();
        endpoint.register(
            handler::IN_PLACE_ANSWER,
            move |token: &Token<'_>, arguments: &[u32], payload: Arrived<'_>| {
                let heard = InPlaceAnswer::decode(arguments).map_or(Heard::ByNobody, |(number, answer)| {
                    known.answer(token.from(), number, answer, payload)
                });
                match heard {
                    // SAFETY: it ends what the cache has begun.
                    Heard::By(over) => over.settle(unsafe { token.raw_endpoint() }),
                    Heard::ByNobody => {
                        tracing::warn!(?arguments, "an in-place answer that nobody waits for was ignored");
                    }
                }
            },
        )?;
        service::register(endpoint, &remote)?;
        service::tell_of_lost(endpoint, &remote);
        Ok(Handlers { remote })
    }

    /// A client over an open endpoint and the node's pool.
    pub fn new(
        endpoint: Arc<Endpoint>,
        handlers: Handlers,
        pool: Arc<PoolClient>,
        layout: Layout,
        options: ClientOptions,
    ) -> Self {
        let agent = layout.agent_of(layout.node_of_peer(endpoint.me()));
        let segments = Arc::new(Segments::new(pool.clone()));
        let landings = endpoint.domain().and_then(|domain| domain.map(endpoint.me(), region::LANDINGS).ok());
        let core = Arc::new(Core {
            agent,
            homes: OnceLock::new(),
            segments: segments.clone(),
            remote: handlers.remote,
            buffers: Buffers::new(landings),
            in_flight: InFlight::default(),
            own: OwnPages::new(
                options.self_service,
                layout.ranks_of(layout.node_of_peer(endpoint.me())),
                Detectors::new(options.read_ahead),
            ),
            whole_page_put: options.whole_page_put,
            window_bytes_max: options.window_pages_max.max(1) << pool.layout().page_size().shift(),
            medium_max: endpoint.medium_bytes_max(),
            parts: options.parts,
            part_reads: History::new(pool.layout().spec().frames),
            endpoint,
            pool: pool.clone(),
            layout,
        });
        let work: Weak<Core> = Arc::downgrade(&core);
        core.endpoint.set_work(work as Weak<dyn Work>);
        Self {
            segments,
            relaxed: RelaxedSegments::default(),
            local_base: AtomicUsize::new(0),
            local_bytes: AtomicUsize::new(0),
            local_parts: RwLock::default(),
            core,
            pool,
        }
    }

    /// Tells the agent that this process is about to use pages. Once, before any other call.
    pub fn announce(&self) -> Result<(), CacheError> {
        self.ask_and_wait(|wait| Request::Attached { wait }, &[])
    }

    /// Reads pages of this node's NVMe with this reader instead of one of its own: for simulations. Before the first page is used.
    pub fn set_reader(&self, reader: vgas_nvm::Reader) {
        self.core.own.set_reader(reader);
    }

    /// What fills the frame of a page of this rank's own partition that it has claimed, in a handler of a signal; false when it
    /// cannot be read here. To be made after the segment was attached.
    pub fn page_reader(&self, of: PartitionId) -> Box<dyn Fn(&Claim) -> bool + Send + Sync> {
        let file = self.core.own.prepare(&self.core, of);
        let known = self.segments.find(of).map(|known| known.partition);
        let core = self.core.clone();
        Box::new(move |claim| {
            let known = file.as_ref().zip(known.as_ref());
            known.is_some_and(|(file, partition)| OwnPages::read_claimed(&core, file, partition, claim))
        })
    }

    /// Says what to call the NVMe of each node in errors: node, host, folder. Once, or never.
    pub fn set_homes(&self, homes: Vec<String>) {
        let _ = self.core.homes.set(homes.into_boxed_slice());
    }

    /// A partition that is known.
    pub fn partition(&self, of: impl Into<PartitionId>) -> Option<Partition> {
        self.segments.find(of.into()).map(|known| known.partition)
    }

    /// Bytes of a partition; 0 of one that is not attached.
    pub fn bytes_of(&self, of: impl Into<PartitionId>) -> u64 {
        self.segments.find(of.into()).map_or(0, |known| known.bytes)
    }

    /// How large the pages of a partition are; of one that is not attached, as large as those of segments that say nothing else.
    pub fn page_size_of(&self, of: impl Into<PartitionId>) -> PageSize {
        let known = self.segments.find(of.into());
        known.map_or(self.pool.layout().page_size(), |known| known.partition.size)
    }

    /// The number of the first page of a partition, and how many bytes plain hits may reach from there: none of one that is relaxed
    /// or not attached. For code that follows the hit path elsewhere ([`crate::pool::mirror`]).
    pub fn plain_pages(&self, of: impl Into<PartitionId>) -> Option<(PageIndex, u64)> {
        self.segments.plain(of.into())
    }

    /// Says which partitions this process reaches through pointers, and where: buffers of gets and puts there may be absent pages. So may
    /// any that lies between the first of their addresses and the last; other memory there is copied for nothing.
    pub fn set_local(&self, parts: Vec<LocalRange>) {
        let base = parts.iter().map(|part| part.base).min().unwrap_or(0);
        let end = parts.iter().map(|part| part.base + part.bytes).max().unwrap_or(0);
        *self.local_parts.write().unwrap_or_else(PoisonError::into_inner) = parts;
        self.local_base.store(base, Relaxed);
        self.local_bytes.store(end - base, Relaxed);
    }

    /// The first address of what [`Client::set_local`] was told last, and the bytes up to its end; 0 when that was nothing.
    pub fn local(&self) -> (usize, usize) {
        (self.local_base.load(Relaxed), self.local_bytes.load(Relaxed))
    }

    /// Whether an address lies in this rank's own segment. A buffer that does not begin there does not reach into it: the
    /// addresses before the segment are no memory.
    #[inline]
    pub fn is_local(&self, address: *const u8) -> bool {
        address.addr().wrapping_sub(self.local_base.load(Relaxed)) < self.local_bytes.load(Relaxed)
    }

    /// Bytes of a page of segments that say nothing else.
    pub fn page_bytes(&self) -> usize {
        self.pool.layout().page_size().bytes() as usize
    }

    /// Reads `bytes` bytes of a rank's segment. When it returns, they are at `to`.
    ///
    /// # Safety
    /// `to` is valid for writing `bytes` bytes during the call.
    #[inline]
    pub unsafe fn get(
        &self,
        of: impl Into<PartitionId>,
        offset: u64,
        to: *mut u8,
        bytes: usize,
    ) -> Result<(), CacheError> {
        let of = of.into();
        // SAFETY: as the caller promised.
        if unsafe { self.get_cached(of, offset, to, bytes) } {
            return Ok(());
        }
        // SAFETY: as the caller promised.
        unsafe { self.get_slow(of, offset, to, bytes) }
    }

    /// Writes `bytes` bytes into a rank's segment. When it returns, every later get anywhere sees them.
    ///
    /// # Safety
    /// `from` is valid for reading `bytes` bytes during the call.
    #[inline]
    pub unsafe fn put(
        &self,
        of: impl Into<PartitionId>,
        offset: u64,
        from: *const u8,
        bytes: usize,
    ) -> Result<(), CacheError> {
        let of = of.into();
        // SAFETY: as the caller promised.
        if unsafe { self.put_cached(of, offset, from, bytes) } {
            return Ok(());
        }
        // SAFETY: as the caller promised.
        unsafe { self.put_slow(of, offset, from, bytes) }
    }

    /// The part of [`Client::get`] that a hit needs: true when the bytes lie in one cached page, and are at `to` now.
    /// Never waits. For callers that are inlined themselves, so that a length they know becomes a constant here; after
    /// false they go on with [`Client::get_slow`].
    ///
    /// # Safety
    /// As [`Client::get`].
    #[inline(always)]
    pub unsafe fn get_cached(
        &self,
        of: impl Into<PartitionId>,
        offset: u64,
        to: *mut u8,
        bytes: usize,
    ) -> bool {
        let Some(part) = self.pool.locate(of.into(), offset, bytes) else { return false };
        if self.is_local(to) {
            return false;
        }
        // SAFETY: as the caller promised; rule 3.
        self.served(part, unsafe { self.pool.get_part(part, to) })
    }

    /// The part of [`Client::put`] that a hit needs; see [`Client::get_cached`].
    ///
    /// # Safety
    /// As [`Client::put`].
    #[inline(always)]
    pub unsafe fn put_cached(
        &self,
        of: impl Into<PartitionId>,
        offset: u64,
        from: *const u8,
        bytes: usize,
    ) -> bool {
        let Some(part) = self.pool.locate(of.into(), offset, bytes) else { return false };
        if self.is_local(from) {
            return false;
        }
        // SAFETY: as the caller promised; rule 3.
        self.served(part, unsafe { self.pool.put_part(part, from) })
    }

    /// Whether an attempt was a hit. One on a page that was read ahead lets the read-ahead go on.
    #[inline(always)]
    fn served(&self, part: PagePart, attempt: Attempt) -> bool {
        if matches!(attempt, Attempt::HitNotify) {
            self.hint(part.page());
        }
        !matches!(attempt, Attempt::Miss(_))
    }

    /// A get of any length, hit or not.
    ///
    /// # Safety
    /// As [`Client::get`].
    #[inline]
    pub unsafe fn get_slow(
        &self,
        of: impl Into<PartitionId>,
        offset: u64,
        to: *mut u8,
        bytes: usize,
    ) -> Result<(), CacheError> {
        self.do_now(of.into(), Piece { offset, bytes, way: Way::Get(to) })
    }

    /// A put of any length, hit or not.
    ///
    /// # Safety
    /// As [`Client::put`].
    #[inline]
    pub unsafe fn put_slow(
        &self,
        of: impl Into<PartitionId>,
        offset: u64,
        from: *const u8,
        bytes: usize,
    ) -> Result<(), CacheError> {
        self.do_now(of.into(), Piece { offset, bytes, way: Way::Put(from) })
    }

    /// Starts a get; the bytes are at `to` when the returned operation has been waited for.
    ///
    /// # Safety
    /// `to` is valid for writing until then, and used by nobody else.
    #[inline]
    pub unsafe fn get_nb(
        &self,
        of: impl Into<PartitionId>,
        offset: u64,
        to: *mut u8,
        bytes: usize,
    ) -> Result<Pending, CacheError> {
        self.begin(of.into(), Piece { offset, bytes, way: Way::Get(to) })
    }

    /// Starts a put; `from` may be reused, and the bytes are visible everywhere, when the returned operation has been
    /// waited for.
    ///
    /// # Safety
    /// `from` is valid for reading until then, and not written.
    #[inline]
    pub unsafe fn put_nb(
        &self,
        of: impl Into<PartitionId>,
        offset: u64,
        from: *const u8,
        bytes: usize,
    ) -> Result<Pending, CacheError> {
        self.begin(of.into(), Piece { offset, bytes, way: Way::Put(from) })
    }

    /// Starts a get of many pieces of a rank's segment as one operation: those that follow each other in one page travel together
    /// where its home serves it in place.
    ///
    /// # Safety
    /// As [`Client::get_nb`], for each piece.
    pub unsafe fn get_pieces_nb(
        &self,
        of: impl Into<PartitionId>,
        pieces: &[SegmentPiece],
    ) -> Result<Pending, CacheError> {
        self.start_pieces(of.into(), pieces, |piece| Way::Get(piece.here))
    }

    /// Starts a put of many pieces; see [`Client::get_pieces_nb`]. They do not overlap.
    ///
    /// # Safety
    /// As [`Client::put_nb`], for each piece.
    pub unsafe fn put_pieces_nb(
        &self,
        of: impl Into<PartitionId>,
        pieces: &[SegmentPiece],
    ) -> Result<Pending, CacheError> {
        self.start_pieces(of.into(), pieces, |piece| Way::Put(piece.here))
    }

    /// Reads pieces that all lie in one page, if the page is cached here: true, and all are read. Never waits. After false, nothing
    /// has been read, and the caller goes on with [`Client::get_pieces_nb`].
    ///
    /// # Safety
    /// As [`Client::get`], for each piece.
    pub unsafe fn get_pieces_cached(&self, of: impl Into<PartitionId>, pieces: &[SegmentPiece]) -> bool {
        let copy = |page: *mut u8, here: *mut u8, bytes| {
            // SAFETY: as the caller promised; `pieces_cached` passes on bytes of the page.
            unsafe { copy(page, here, bytes) }
        };
        self.pieces_cached(of.into(), pieces, PageState::Shared, copy)
    }

    /// Writes pieces that all lie in one page, if this node may write the page; see [`Client::get_pieces_cached`].
    ///
    /// # Safety
    /// As [`Client::put`], for each piece.
    pub unsafe fn put_pieces_cached(&self, of: impl Into<PartitionId>, pieces: &[SegmentPiece]) -> bool {
        let copy = |page: *mut u8, here: *mut u8, bytes| {
            // SAFETY: as above, with the right to write.
            unsafe { copy(here, page, bytes) }
        };
        self.pieces_cached(of.into(), pieces, PageState::Modified, copy)
    }

    /// Calls `copy` with the place in the page, the memory here and the length of each piece.
    fn pieces_cached(
        &self,
        of: PartitionId,
        pieces: &[SegmentPiece],
        least: PageState,
        copy: impl Fn(*mut u8, *mut u8, usize),
    ) -> bool {
        let (mut begin, mut end) = (u64::MAX, 0);
        for piece in pieces {
            if self.is_local(piece.here) {
                return false;
            }
            begin = begin.min(piece.offset);
            end = end.max(piece.offset.saturating_add(piece.bytes as u64));
        }
        let Some(bytes) = end.checked_sub(begin) else { return pieces.is_empty() };
        let Some(part) = self.pool.locate(of, begin, bytes as usize) else { return false };
        let copy_all = |first: *mut u8| {
            for piece in pieces {
                copy(first.wrapping_add((piece.offset - begin) as usize), piece.here, piece.bytes);
            }
        };
        // SAFETY: the pieces lie in the part, and their other sides are memory that does not fault into tiered memory.
        self.served(part, unsafe { self.pool.with_part(part, least, pieces.len() as u64, copy_all) })
    }

    fn start_pieces(
        &self,
        of: PartitionId,
        pieces: &[SegmentPiece],
        way: impl Fn(&SegmentPiece) -> Way,
    ) -> Result<Pending, CacheError> {
        let nothing = Pending { started: None };
        let Some(known) = self.segments.find(of) else {
            pieces.iter().try_for_each(|piece| self.check(of, piece.offset, piece.bytes as u64).map(drop))?;
            return Ok(nothing);
        };
        for piece in pieces {
            self.check(of, piece.offset, piece.bytes as u64)?;
        }
        if known.relaxed {
            // Combined here, mostly: nothing travels.
            for piece in pieces {
                let piece = Piece { offset: piece.offset, bytes: piece.bytes, way: way(piece) };
                self.start(of, piece, IoMode::Blocking)?.wait()?;
            }
            return Ok(nothing);
        }
        let is_any_local = pieces.iter().any(|piece| self.is_local(piece.here));
        let bounce = is_any_local.then(|| vec![0; known.page_bytes()].into_boxed_slice());
        let pieces = pieces.iter().filter(|piece| piece.bytes > 0);
        let pieces: Vec<Piece> =
            pieces.map(|piece| Piece { offset: piece.offset, bytes: piece.bytes, way: way(piece) }).collect();
        let Some(first) = pieces.first() else { return Ok(nothing) };
        let counter = if matches!(first.way, Way::Get(_)) { Counter::GetMisses } else { Counter::PutMisses };
        let operation = Operation::of_pieces(known.partition, pieces, bounce);
        let mut begun = Begun { core: &self.core, transfer: Some(Transfer::Plain(operation)) };
        if !begun.test()? {
            self.pool.count(counter, 1);
        }
        Ok(begun.listed(&self.core))
    }

    /// Asks for bytes to be brought to this node when convenient. Completes at once; a hint, no promise.
    pub fn prefetch(&self, of: impl Into<PartitionId>, offset: u64, bytes: u64) -> Result<(), CacheError> {
        let Some(known) = self.check(of.into(), offset, bytes)? else { return Ok(()) };
        let partition = known.partition;
        if bytes == 0 || self.core.stays_at_home(&partition) {
            return Ok(());
        }
        let (first, last) = (partition.page_at(offset), partition.page_at(offset + bytes - 1));
        let count = (last - first + 1).min(u64::from(u32::MAX)) as u32;
        self.core.try_ask(Request::Prefetch { page: first, count }, &[])?;
        Ok(())
    }

    /// What this rank has counted.
    pub fn counters(&self) -> CounterSnapshot {
        self.pool.counters()
    }

    /// What the node's agent has counted.
    pub fn node_counters(&self) -> CounterSnapshot {
        self.pool.agent_counters()
    }

    /// The node's pool.
    pub fn pool(&self) -> &Arc<PoolClient> {
        &self.pool
    }

    /// Whether the bytes are in a partition, which is yielded unless there are none to be used.
    fn check(&self, of: PartitionId, offset: u64, bytes: u64) -> Result<Option<Known>, CacheError> {
        let known = self.segments.find(of);
        let limit = known.map_or(0, |known| known.bytes);
        if offset.checked_add(bytes).is_some_and(|end| end <= limit) {
            Ok(known)
        } else {
            Err(CacheError::OutOfRange { owner: of, offset, bytes, limit })
        }
    }

    #[cold]
    #[inline(never)]
    fn do_now(&self, of: PartitionId, piece: Piece) -> Result<(), CacheError> {
        self.start(of, piece, IoMode::Blocking)?.wait()
    }

    #[inline(never)]
    fn begin(&self, of: PartitionId, piece: Piece) -> Result<Pending, CacheError> {
        Ok(self.start(of, piece, IoMode::NonBlocking)?.listed(&self.core))
    }

    fn start(&self, of: PartitionId, piece: Piece, io_mode: IoMode) -> Result<Begun<'_>, CacheError> {
        let Some(known) = self.check(of, piece.offset, piece.bytes as u64)? else {
            return Ok(Begun { core: &self.core, transfer: None });
        };
        if known.read_only && matches!(piece.way, Way::Put(_)) && piece.bytes > 0 {
            self.check_writable(of)?;
        }
        // SAFETY: rule 1: the caller of what called this has promised it for the address in `way`.
        if known.relaxed && unsafe { self.relaxed_part(&known.partition, piece) }? {
            return Ok(Begun { core: &self.core, transfer: None });
        }
        self.start_anywhere(known.partition, piece, io_mode)
    }

    /// Where bytes are that this process reaches through pointers ([`Client::set_local`]), if they lie in one partition whose
    /// pages a get from there, or a put to there, may use.
    fn local_stretch(&self, address: *const u8, bytes: usize, is_source: bool) -> Option<Stretch> {
        let local = self.local_parts.read().unwrap_or_else(PoisonError::into_inner);
        let (part, offset) = local.iter().find_map(|part| {
            let offset = address.addr().checked_sub(part.base)?;
            (offset < part.bytes && bytes <= part.bytes - offset).then_some((part, offset as u64))
        })?;
        let known = self.check(part.of, offset, bytes as u64).ok().flatten()?;
        let is_own = self.core.layout.peer_of_rank(part.of.owner) == self.core.endpoint.me();
        let may_be_put = is_own && !known.read_only && !known.relaxed;
        (is_source || may_be_put).then_some(Stretch { partition: known.partition, offset })
    }

    /// An operation on the cluster's memory, which has been checked.
    fn start_anywhere(
        &self,
        partition: Partition,
        piece: Piece,
        io_mode: IoMode,
    ) -> Result<Begun<'_>, CacheError> {
        let Piece { way, bytes, offset } = piece;
        let counter = if matches!(way, Way::Get(_)) { Counter::GetMisses } else { Counter::PutMisses };
        let address = match way {
            Way::Get(to) => to.cast_const(),
            Way::Put(from) => from,
        };
        let page_bytes = partition.size.bytes() as usize;
        let is_local = self.is_local(address);
        let is_put = matches!(way, Way::Put(_));
        let here =
            (is_local && bytes > page_bytes).then(|| self.local_stretch(address, bytes, is_put)).flatten();
        let transfer = match here {
            Some(here) => {
                let there = Stretch { partition, offset };
                let (from, to) = if is_put { (here, there) } else { (there, here) };
                Transfer::Local(Box::new(LocalTransfer::new(&self.core, from, to, bytes as u64, is_put)))
            }
            None => {
                let bounce = is_local.then(|| vec![0; page_bytes.min(bytes)].into_boxed_slice());
                Transfer::Plain(Operation::new(partition, piece, bounce, io_mode))
            }
        };
        let mut begun = Begun { core: &self.core, transfer: Some(transfer) };
        if !begun.test()? {
            self.pool.count(counter, 1);
        }
        Ok(begun)
    }

    fn ask_and_wait(&self, request: impl Fn(WaitId) -> Request, data: &[u8]) -> Result<(), CacheError> {
        self.ask(request, data).map(drop)
    }

    /// Asks, and waits for the answer; with the bytes that came with it, if any did.
    fn ask(
        &self,
        request: impl Fn(WaitId) -> Request,
        data: &[u8],
    ) -> Result<[u8; INLINE_BYTES], CacheError> {
        let mut wait = None;
        self.wait_for(|| {
            wait = self.pool.begin_wait(1);
            Ok(wait.is_some())
        })?;
        let wait = wait.expect("just waited for");
        let request = request(wait);
        let mut asked = false;
        let result = self.wait_for(|| {
            asked = asked || self.core.try_ask(request, data)?;
            Ok(asked && !matches!(self.pool.wait_status(wait), WaitStatus::Pending(_)))
        });
        let status = self.pool.wait_status(wait);
        let mut answer = [0; INLINE_BYTES];
        if status == WaitStatus::Done {
            self.pool.read_answer(wait, &mut answer);
        }
        self.pool.end_wait(wait);
        result?;
        match status {
            WaitStatus::Failed { code, detail } => {
                let me = self.core.layout.rank_of_peer(self.core.endpoint.me()).unwrap_or(Rank(0));
                Err(self.core.failed(me.into(), PageInSegment(0), code, detail))
            }
            _ => Ok(answer),
        }
    }

    fn wait_for(&self, ready: impl FnMut() -> Result<bool, CacheError>) -> Result<(), CacheError> {
        self.core.wait_for(ready)
    }

    #[cold]
    #[inline(never)]
    fn hint(&self, index: PageIndex) {
        self.core.hint(index);
    }
}

impl Core {
    fn wait_for(&self, mut ready: impl FnMut() -> Result<bool, CacheError>) -> Result<(), CacheError> {
        let mut error = None;
        self.endpoint.wait_until(None, || match ready() {
            Ok(ready) => ready,
            Err(e) => {
                error = Some(e);
                true
            }
        })?;
        error.map_or(Ok(()), Err)
    }

    /// An error if an operation waits for a peer that is lost.
    fn check_awaited(&self, number: u32) -> Result<(), CacheError> {
        if self.endpoint.has_lost()
            && let Some(peer) = self.remote.awaited(number)
        {
            self.endpoint.check_peer(peer, "waiting for its answer")?;
        }
        Ok(())
    }

    /// Whether this node must not have copies of a partition's pages.
    #[inline]
    fn stays_at_home(&self, partition: &Partition) -> bool {
        partition.policy.home_only && self.layout.agent_of(self.home(partition.owner)) != self.agent
    }

    /// Whether a page may be brought in by a rank of this node: NVMe has it, and no node.
    fn is_claimable(&self, page: PageIndex) -> bool {
        self.pool.peek(page).state().is_claimable()
    }

    #[cold]
    fn hint(&self, index: PageIndex) {
        if self.own.used_ahead(self, index) {
            return;
        }
        // Only a hint: lost when the ring is full.
        let _ = self.try_ask(Request::Ahead { page: index }, &[]);
    }

    /// Has the agent make room before the frames run out: for what is left of an operation, if that is known to be long.
    fn look_after_frames(&self, size: PageSize, pages_left: u64) {
        let pool = &self.pool;
        let wanted = u32::try_from(pages_left).unwrap_or(u32::MAX).min(pool.transfer_frames(size));
        let free = pool.free_frames(size);
        if wanted > pool.free_target(size) {
            if free < wanted {
                pool.wish_for_frames(size, wanted);
                self.endpoint.ring(self.agent);
            }
        } else if pool.is_short_of_frames(size) {
            self.endpoint.ring(self.agent);
        }
    }

    fn try_ask(&self, request: Request, data: &[u8]) -> Result<bool, CacheError> {
        let payload = if data.is_empty() { Payload::Short } else { Payload::Medium(Source::of(data)) };
        let sent = self.endpoint.try_request(self.agent, handler::REQUEST, &request.encode(), payload)?;
        Ok(sent == Sent::Accepted)
    }

    fn try_in_place(&self, owner: Rank, operation: InPlace, data: &[u8]) -> Result<bool, CacheError> {
        let home = self.layout.agent_of(self.home(owner));
        let payload = if data.is_empty() { Payload::Short } else { Payload::Medium(Source::of(data)) };
        let sent = self.endpoint.try_request(home, handler::IN_PLACE, &operation.encode(), payload)?;
        Ok(sent == Sent::Accepted)
    }

    fn home(&self, owner: Rank) -> NodeId {
        self.layout.node_of(owner)
    }

    fn failed(&self, of: PartitionId, page: PageInSegment, code: u32, detail: u32) -> CacheError {
        let page = if detail == PAGE_UNKNOWN { page } else { PageInSegment(detail.into()) };
        let reason = Failure::from_code(code);
        CacheError::Page { owner: of, page, reason, place: self.place(of.owner, reason) }
    }

    /// Whose NVMe it was, in words.
    fn place(&self, owner: Rank, reason: Failure) -> String {
        let node = reason.node.filter(|node| node.0 < self.layout.nodes()).unwrap_or(self.home(owner));
        let place = self.homes.get().and_then(|homes| homes.get(node.0 as usize)).cloned();
        place.unwrap_or_else(|| node.to_string())
    }

    fn short_answer(&self, owner: Rank, expected: usize, got: usize) -> CacheError {
        let home = self.layout.agent_of(self.home(owner));
        CacheError::Protocol {
            who: self.layout.describe(home),
            what: format!("answered an in-place get of {expected} bytes with {got}"),
        }
    }
}

/// What [`Client::register`] prepared.
pub struct Handlers {
    remote: Arc<RemoteOperations>,
}

impl Drop for Core {
    fn drop(&mut self) {
        self.own.finish_all(self);
        // Handles that were forgotten: their operations end with the client.
        self.endpoint.work_ended(self.in_flight.clear());
    }
}

impl Begun<'_> {
    /// Hands the operation to the client, which lets it proceed by itself from now on, unless it has ended.
    fn listed(mut self, core: &Arc<Core>) -> Pending {
        let list = |transfer| {
            // Counted first: it may end at once.
            core.endpoint.work_started();
            (core.clone(), core.in_flight.add(transfer))
        };
        Pending { started: self.transfer.take().map(list) }
    }

    /// Proceeds as far as possible without waiting. True: complete. An error also if the endpoint has failed, because nobody
    /// completes the operation then.
    fn test(&mut self) -> Result<bool, CacheError> {
        let Some(transfer) = &mut self.transfer else { return Ok(true) };
        // SAFETY: rule 1: whoever started the operation keeps the bytes valid until it has ended, which is here.
        let ended = match unsafe { transfer.advance(self.core) } {
            Ok(false) => match self.core.endpoint.check_failure() {
                Ok(()) => return Ok(false),
                Err(error) => Err(error.into()),
            },
            ended => ended.map(drop),
        };
        if ended.is_err() {
            transfer.abandon(self.core);
        }
        self.transfer = None;
        ended.map(|()| true)
    }

    /// Waits for the end, serving active messages meanwhile.
    fn wait(mut self) -> Result<(), CacheError> {
        self.finish()
    }

    fn finish(&mut self) -> Result<(), CacheError> {
        if self.transfer.is_none() {
            return Ok(());
        }
        let core = self.core;
        core.wait_for(|| self.test())
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        let Some(is_put) = self.transfer.as_ref().map(Transfer::is_put) else { return };
        report_dropped(is_put, self.finish());
        if let Some(mut transfer) = self.transfer.take() {
            transfer.abandon(self.core);
        }
    }
}

impl Pending {
    /// Proceeds as far as possible without waiting. True: complete. An error also if the endpoint has failed, because nobody
    /// completes the operation then.
    pub fn test(&mut self) -> Result<bool, CacheError> {
        let Some((core, started)) = &self.started else { return Ok(true) };
        let ended = match started.test(core) {
            Some(ended) => ended,
            None => match core.endpoint.check_failure() {
                Ok(()) => return Ok(false),
                Err(error) => Err(error.into()),
            },
        };
        if ended.is_err() {
            started.give_up(core);
        }
        self.started = None;
        ended.map(|()| true)
    }

    /// Waits for the end, serving active messages meanwhile.
    pub fn wait(mut self) -> Result<(), CacheError> {
        self.finish()
    }

    fn finish(&mut self) -> Result<(), CacheError> {
        let Some((core, _)) = &self.started else { return Ok(()) };
        core.clone().wait_for(|| self.test())
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let Some(is_put) = self.started.as_ref().map(|(_, started)| started.is_put()) else { return };
        report_dropped(is_put, self.finish());
        if let Some((core, started)) = self.started.take() {
            started.give_up(&core);
        }
    }
}

/// Logs an error that has no one left to go to: a put must not be lost because its handle was dropped, while nobody wants any more
/// what a get would have brought.
fn report_dropped(is_put: bool, ended: Result<(), CacheError>) {
    match ended {
        Err(error) if is_put => tracing::error!(%error, "a put whose handle was dropped has failed"),
        Err(error) => tracing::debug!(%error, "a get whose handle was dropped has failed"),
        Ok(()) => {}
    }
}
