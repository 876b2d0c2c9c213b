//! A rank's side of the cache: puts and gets on tiered segments.
//!
//! Hits stay in the calling thread (DESIGN, property 1); everything else becomes a request to the node's agent, and the
//! thread waits in [`Endpoint::wait_until`], where it also serves its active messages.
//!
//! # Rules for the unsafe code in this folder
//!
//! 1. *The caller's bytes.* The local address of a get or put is valid for its length until the operation has ended
//!    (the blocking call returned, the handle was waited for or dropped); for a get it may be written, and nobody else
//!    uses it meanwhile. Only `Operation::advance` touches it, run by whoever holds the operation: the thread that waits
//!    where it started it, or, of one that goes on by itself, any thread under the operation's lock (`under_way`).
//! 2. *The pool's bytes* are reached through [`PoolClient`] alone, under its own rules.
//! 3. *Own memory first.* While a page is in use (it stands in the thread's hazard slot) nothing is touched that may fault
//!    into tiered memory: the fault might need, somewhere in the cluster, what this use keeps. So bytes that lie in this
//!    rank's own segment ([`Client::set_local`]) go through private memory.

mod operation;
mod own;
mod pin;
mod relaxed;
mod remote;
mod service;
mod under_way;
mod update;

use crate::error::{CacheError, Failure, PAGE_UNKNOWN};
use crate::parts::History;
use crate::pool::{Attempt, Claim, Counter, CounterSnapshot, INLINE_BYTES, PoolClient, WaitStatus};
use crate::read_ahead::{ReadAhead, ReadAheadSettings};
use crate::request::{InPlace, InPlaceAnswer, Named, PageIndex, Request, handler};
use operation::{Operation, Piece, Way};
use own::{OwnPages, Patience};
use relaxed::RelaxedSegments;
use remote::RemoteOperations;
pub use service::PendingCall;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock, Weak};
use under_way::{Started, UnderWay};
pub use update::{PendingUpdates, SegmentUpdate};
use vgas_rma::address::{Layout, NodeId, Peer, Rank};
use vgas_rma::conduit::Sent;
use vgas_rma::endpoint::{Endpoint, SegmentPiece, Token, Work};
use vgas_rma::message::{Arrived, Payload, Source};

/// Pieces of an agent's words that a client asks for at most: 4 KiB of them.
const WHY_PIECES_MAX: u32 = 64;

/// What a client does and leaves; from the job's settings.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// A put of a whole page needs no old content (DESIGN, property 8).
    pub whole_page_put: bool,
    /// Most pages one request may name; 1 switches batching off.
    pub window_pages_max: u64,
    /// Most bytes of a get that reads a part of a page; as for the agents.
    pub part_bytes_max: u32,
    /// Bring in pages of this node's own NVMe without its agent.
    pub self_service: bool,
    /// What of them to fetch ahead, where scans are recognised.
    pub read_ahead: Option<ReadAheadSettings>,
}

/// The tiered segments of the job as one rank sees them. Any thread may call anything.
///
/// *What was started goes on by itself*: an operation of [`Client::put_nb`] or [`Client::get_nb`] advances whenever some
/// thread of the process polls or waits in the endpoint, and within a millisecond when none does.
pub struct Client {
    core: Arc<Core>,
    pool: Arc<PoolClient>,
    /// Bytes of each rank's tiered segment, once attached.
    segment_bytes: OnceLock<Box<[u64]>>,
    /// Why segments can only be read, by rank.
    read_only: OnceLock<Box<[Option<Failure>]>>,
    /// The same beside the number of the segment's first page: what a hit looks up. Relaxed segments, and those that can
    /// only be read, have no bytes here: their puts and gets are never plain hits.
    places: OnceLock<Box<[Place]>>,
    relaxed: RelaxedSegments,
    /// Where this rank's own segment is in its memory, and how large; 0 when it is not.
    local_base: AtomicUsize,
    local_bytes: AtomicUsize,
    page_bytes: usize,
    page_shift: u32,
}

/// What operations need to go on, wherever the client is.
struct Core {
    endpoint: Arc<Endpoint>,
    pool: Arc<PoolClient>,
    layout: Layout,
    agent: Peer,
    /// What to call each node's NVMe in errors.
    homes: OnceLock<Box<[String]>>,
    /// The number of each segment's first page.
    first_page: Box<[PageIndex]>,
    remote: Arc<RemoteOperations>,
    under_way: UnderWay,
    own: OwnPages,
    /// Pages of each segment, once attached.
    segment_pages: OnceLock<Box<[u64]>>,
    page_bytes: usize,
    page_shift: u32,
    whole_page_put: bool,
    window_pages_max: u64,
    /// Most bytes of a put that are posted in a message.
    post_max: usize,
    /// Most bytes of one in-place operation.
    in_place_max: usize,
    /// Most bytes of a message.
    medium_max: usize,
    /// Most bytes of a get that reads a part of a page, and who has done so of late.
    part_max: usize,
    part_reads: History,
}

/// Where a rank's tiered segment lies.
#[derive(Clone, Copy)]
struct Place {
    bytes: u64,
    first_page: PageIndex,
}

/// A get or put that goes on while the program does something else. Dropping it waits for its end.
#[must_use = "an operation is complete only after `wait`"]
pub struct Pending<'c> {
    core: &'c Core,
    /// None: its end was reported.
    state: Option<Held>,
}

/// An operation, as its handle has it.
enum Held {
    /// For the thread that waits for it where it was started.
    Own(Operation),
    /// It goes on by itself.
    Listed(Arc<Started>),
}

impl Client {
    /// Registers the client's handlers; to be called before the endpoint is opened, with the value for [`Client::new`].
    pub fn register(endpoint: &Endpoint) -> Result<Handlers, CacheError> {
        let remote = Arc::new(RemoteOperations::default());
        let known = remote.clone();
        endpoint.register(
            handler::IN_PLACE_ANSWER,
            move |token: &Token<'_>, arguments: &[u32], payload: Arrived<'_>| {
                let bytes = match payload {
                    Arrived::Medium(bytes) => bytes,
                    _ => &[],
                };
                let known = InPlaceAnswer::decode(arguments)
                    .is_some_and(|(number, answer)| known.answer(token.from(), number, answer, bytes));
                if !known {
                    tracing::warn!(?arguments, "an in-place answer that nobody waits for was ignored");
                }
            },
        )?;
        service::register(endpoint, &remote)?;
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
        let page_bytes = pool.layout().spec().page_bytes as usize;
        let medium = endpoint.medium_bytes_max();
        let core = Arc::new(Core {
            agent,
            homes: OnceLock::new(),
            first_page: (0..layout.ranks())
                .map(|rank| pool.layout().page_index(Rank(rank), 0).unwrap_or(PageIndex::MAX))
                .collect(),
            remote: handlers.remote,
            under_way: UnderWay::default(),
            own: OwnPages::new(
                options.self_service,
                layout.ranks_of(layout.node_of_peer(endpoint.me())),
                options.read_ahead.map(ReadAhead::new),
            ),
            segment_pages: OnceLock::new(),
            page_bytes,
            page_shift: page_bytes.trailing_zeros(),
            whole_page_put: options.whole_page_put,
            window_pages_max: options.window_pages_max.max(1),
            post_max: medium.min(page_bytes),
            in_place_max: medium.min(page_bytes),
            medium_max: medium,
            part_max: medium.min(options.part_bytes_max as usize),
            part_reads: History::new(pool.layout().spec().frames),
            endpoint,
            pool: pool.clone(),
            layout,
        });
        let work: Weak<Core> = Arc::downgrade(&core);
        core.endpoint.set_work(work as Weak<dyn Work>);
        Self {
            segment_bytes: OnceLock::new(),
            read_only: OnceLock::new(),
            places: OnceLock::new(),
            relaxed: RelaxedSegments::default(),
            local_base: AtomicUsize::new(0),
            local_bytes: AtomicUsize::new(0),
            page_bytes,
            page_shift: core.page_shift,
            core,
            pool,
        }
    }

    /// Tells the agent that this process is about to use pages. Once, before any other call.
    pub fn announce(&self) -> Result<(), CacheError> {
        self.ask_and_wait(|slot| Request::Attached { slot }, &[])
    }

    /// Creates this rank's tiered segment at its agent; a name keeps it after the job. Collective agreement on everybody's
    /// size is the caller's, with [`Client::set_segments`], and on the checkpoint that named ones are opened at, too. A
    /// failure in the result says why the segment can only be read: it was opened all the same.
    pub fn attach(&self, bytes: u64, named: Option<&Named>) -> Result<Option<Failure>, CacheError> {
        let pages = bytes.div_ceil(self.page_bytes as u64);
        let data = named.map(Named::encode).unwrap_or_default();
        let [a, b, c, d, ..] = self.ask_about_segment(|slot| Request::Attach { pages, slot }, &data)?;
        let code = u32::from_le_bytes([a, b, c, d]);
        Ok((code != 0).then(|| Failure::from_code(code)))
    }

    /// Reads pages of this node's NVMe with this reader instead of one of its own: for simulations. Before the first page is used.
    pub fn set_reader(&self, reader: vgas_nvm::Reader) {
        self.core.own.set_reader(reader);
    }

    /// What fills the frame of a page of this rank's own segment that it has claimed, in a handler of a signal; false when it
    /// cannot be read here. To be made after the segment was attached.
    pub fn page_reader(&self, owner: Rank) -> Box<dyn Fn(&Claim) -> bool + Send + Sync> {
        self.core.own.prepare(&self.core, owner);
        let core = self.core.clone();
        Box::new(move |claim| core.own.read_claimed(&core, owner, claim))
    }

    /// Says what to call the NVMe of each node in errors: node, host, folder. Once, or never.
    pub fn set_homes(&self, homes: Vec<String>) {
        let _ = self.core.homes.set(homes.into_boxed_slice());
    }

    /// Says which ranks' segments can only be read, and why: what [`Client::attach`] has told each rank. Puts to them are
    /// refused from now on, instead of changing pages that can never be stored. Once, before the sizes are known.
    pub fn set_read_only(&self, read_only: Vec<Option<Failure>>) {
        let _ = self.read_only.set(read_only.into_boxed_slice());
    }

    /// Why a rank's segment can only be read, as an error of whoever wants to write.
    pub fn check_writable(&self, owner: Rank) -> Result<(), CacheError> {
        match self.read_only.get().and_then(|all| all.get(owner.0 as usize)) {
            Some(&Some(reason)) => {
                Err(CacheError::ReadOnly { owner, reason, place: self.core.place(owner, reason) })
            }
            _ => Ok(()),
        }
    }

    /// Says how large each rank's tiered segment is, here and to the agent. Once, after everybody has attached.
    pub fn set_segments(&self, bytes: Vec<u64>) -> Result<(), CacheError> {
        let pages: Vec<u8> =
            bytes.iter().flat_map(|bytes| bytes.div_ceil(self.page_bytes as u64).to_le_bytes()).collect();
        let piece = self.core.post_max / 8;
        for (index, part) in pages.chunks(piece * 8).enumerate() {
            let first_rank = (index * piece) as u32;
            self.ask_and_wait(|slot| Request::Segments { first_rank, slot }, part)?;
        }
        self.know_segments(bytes)
    }

    /// The half of [`Client::set_segments`] that concerns this client alone: for those who have told the agent in
    /// their own way, because they must not block.
    pub fn know_segments(&self, bytes: Vec<u64>) -> Result<(), CacheError> {
        let places = (0..).map(Rank).zip(self.core.first_page.iter().zip(&bytes));
        let places = places.map(|(rank, (&first_page, &bytes))| {
            let plain = !self.relaxed.covers(rank) && self.check_writable(rank).is_ok();
            let bytes = if plain { bytes } else { 0 };
            Place { bytes, first_page }
        });
        let places = places.collect();
        let pages = bytes.iter().map(|bytes| bytes.div_ceil(self.page_bytes as u64)).collect();
        let _ = self.core.segment_pages.set(pages);
        self.segment_bytes
            .set(bytes.into_boxed_slice())
            .map_err(|_| CacheError::Usage("the segments are attached already".into()))?;
        // Last, because gets that find it go ahead.
        let _ = self.places.set(places);
        Ok(())
    }

    /// Bytes of each rank's tiered segment.
    pub fn segments(&self) -> &[u64] {
        self.segment_bytes.get().map_or(&[], |bytes| bytes)
    }

    /// The number of the first page of a rank's segment, and how many bytes plain hits may reach from there: none of a segment
    /// that is relaxed or not attached. For code that follows the hit path elsewhere ([`crate::pool::mirror`]).
    pub fn plain_pages(&self, owner: Rank) -> Option<(PageIndex, u64)> {
        let place = self.places.get()?.get(owner.0 as usize)?;
        Some((place.first_page, place.bytes))
    }

    /// Says where this rank's own segment is in its memory ([`crate::local`]); no bytes: nowhere any more. Buffers of puts and
    /// gets may lie there afterwards, at the cost of a second copy.
    pub fn set_local(&self, base: *const u8, bytes: usize) {
        self.local_base.store(base.addr(), Relaxed);
        self.local_bytes.store(bytes, Relaxed);
    }

    /// What [`Client::set_local`] was told last: first address and size, 0 when the segment is nowhere.
    pub fn local(&self) -> (usize, usize) {
        (self.local_base.load(Relaxed), self.local_bytes.load(Relaxed))
    }

    /// Whether an address lies in this rank's own segment. A buffer that does not begin there does not reach into it: the
    /// addresses before the segment are no memory.
    #[inline]
    pub fn is_local(&self, address: *const u8) -> bool {
        address.addr().wrapping_sub(self.local_base.load(Relaxed)) < self.local_bytes.load(Relaxed)
    }

    /// Size of a page in bytes.
    pub fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// Reads `bytes` bytes of a rank's segment. When it returns, they are at `to`.
    ///
    /// # Safety
    /// `to` is valid for writing `bytes` bytes during the call.
    #[inline]
    pub unsafe fn get(&self, owner: Rank, offset: u64, to: *mut u8, bytes: usize) -> Result<(), CacheError> {
        // SAFETY: as the caller promised.
        if unsafe { self.get_cached(owner, offset, to, bytes) } {
            return Ok(());
        }
        // SAFETY: as the caller promised.
        unsafe { self.get_slow(owner, offset, to, bytes) }
    }

    /// Writes `bytes` bytes into a rank's segment. When it returns, every later get anywhere sees them.
    ///
    /// # Safety
    /// `from` is valid for reading `bytes` bytes during the call.
    #[inline]
    pub unsafe fn put(
        &self,
        owner: Rank,
        offset: u64,
        from: *const u8,
        bytes: usize,
    ) -> Result<(), CacheError> {
        // SAFETY: as the caller promised.
        if unsafe { self.put_cached(owner, offset, from, bytes) } {
            return Ok(());
        }
        // SAFETY: as the caller promised.
        unsafe { self.put_slow(owner, offset, from, bytes) }
    }

    /// The part of [`Client::get`] that a hit needs: true when the bytes lie in one cached page, and are at `to` now.
    /// Never waits. For callers that are inlined themselves, so that a length they know becomes a constant here; after
    /// false they go on with [`Client::get_slow`].
    ///
    /// # Safety
    /// As [`Client::get`].
    #[inline(always)]
    pub unsafe fn get_cached(&self, owner: Rank, offset: u64, to: *mut u8, bytes: usize) -> bool {
        let Some((index, in_page)) = self.locate(owner, offset, bytes) else { return false };
        if self.is_local(to) {
            return false;
        }
        // SAFETY: as the caller promised; rule 3.
        self.served(index, unsafe { self.pool.try_get(index, in_page, to, bytes as u32) })
    }

    /// The part of [`Client::put`] that a hit needs; see [`Client::get_cached`].
    ///
    /// # Safety
    /// As [`Client::put`].
    #[inline(always)]
    pub unsafe fn put_cached(&self, owner: Rank, offset: u64, from: *const u8, bytes: usize) -> bool {
        let Some((index, in_page)) = self.locate(owner, offset, bytes) else { return false };
        if self.is_local(from) {
            return false;
        }
        // SAFETY: as the caller promised; rule 3.
        self.served(index, unsafe { self.pool.try_put(index, in_page, from, bytes as u32) })
    }

    /// Whether an attempt was a hit. One on a page that was read ahead lets the read-ahead go on.
    #[inline(always)]
    fn served(&self, index: PageIndex, attempt: Attempt) -> bool {
        if matches!(attempt, Attempt::HitNotify) {
            self.hint(index);
        }
        !matches!(attempt, Attempt::Miss(_))
    }

    /// A get of any length, hit or not.
    ///
    /// # Safety
    /// As [`Client::get`].
    #[cold]
    #[inline(never)]
    pub unsafe fn get_slow(
        &self,
        owner: Rank,
        offset: u64,
        to: *mut u8,
        bytes: usize,
    ) -> Result<(), CacheError> {
        self.start(owner, offset, bytes, Way::Get(to), Patience::Waits)?.wait()
    }

    /// A put of any length, hit or not.
    ///
    /// # Safety
    /// As [`Client::put`].
    #[cold]
    #[inline(never)]
    pub unsafe fn put_slow(
        &self,
        owner: Rank,
        offset: u64,
        from: *const u8,
        bytes: usize,
    ) -> Result<(), CacheError> {
        self.start(owner, offset, bytes, Way::Put(from), Patience::Waits)?.wait()
    }

    /// Starts a get; the bytes are at `to` when the returned operation has been waited for.
    ///
    /// # Safety
    /// `to` is valid for writing until then, and used by nobody else.
    pub unsafe fn get_nb(
        &self,
        owner: Rank,
        offset: u64,
        to: *mut u8,
        bytes: usize,
    ) -> Result<Pending<'_>, CacheError> {
        self.start(owner, offset, bytes, Way::Get(to), Patience::Goes).map(Pending::listed)
    }

    /// Starts a put; `from` may be reused, and the bytes are visible everywhere, when the returned operation has been
    /// waited for.
    ///
    /// # Safety
    /// `from` is valid for reading until then, and not written.
    pub unsafe fn put_nb(
        &self,
        owner: Rank,
        offset: u64,
        from: *const u8,
        bytes: usize,
    ) -> Result<Pending<'_>, CacheError> {
        self.start(owner, offset, bytes, Way::Put(from), Patience::Goes).map(Pending::listed)
    }

    /// Starts a get of many pieces of a rank's segment as one operation: those that follow each other in one page travel together
    /// where its home serves it in place.
    ///
    /// # Safety
    /// As [`Client::get_nb`], for each piece.
    pub unsafe fn get_pieces_nb(
        &self,
        owner: Rank,
        pieces: &[SegmentPiece],
    ) -> Result<Pending<'_>, CacheError> {
        self.start_pieces(owner, pieces, |piece| Way::Get(piece.here)).map(Pending::listed)
    }

    /// Starts a put of many pieces; see [`Client::get_pieces_nb`]. They do not overlap.
    ///
    /// # Safety
    /// As [`Client::put_nb`], for each piece.
    pub unsafe fn put_pieces_nb(
        &self,
        owner: Rank,
        pieces: &[SegmentPiece],
    ) -> Result<Pending<'_>, CacheError> {
        self.start_pieces(owner, pieces, |piece| Way::Put(piece.here)).map(Pending::listed)
    }

    fn start_pieces(
        &self,
        owner: Rank,
        pieces: &[SegmentPiece],
        way: impl Fn(&SegmentPiece) -> Way,
    ) -> Result<Pending<'_>, CacheError> {
        for piece in pieces {
            self.check(owner, piece.offset, piece.bytes as u64)?;
        }
        if self.relaxed.covers(owner) {
            // Combined here, mostly: nothing travels.
            for piece in pieces {
                self.start(owner, piece.offset, piece.bytes, way(piece), Patience::Waits)?.wait()?;
            }
            return Ok(Pending { core: &self.core, state: None });
        }
        let is_any_local = pieces.iter().any(|piece| self.is_local(piece.here));
        let bounce = is_any_local.then(|| vec![0; self.page_bytes].into_boxed_slice());
        let pieces = pieces.iter().filter(|piece| piece.bytes > 0);
        let pieces: Vec<Piece> =
            pieces.map(|piece| Piece { offset: piece.offset, bytes: piece.bytes, way: way(piece) }).collect();
        let Some(first) = pieces.first() else {
            return Ok(Pending { core: &self.core, state: None });
        };
        let counter = if matches!(first.way, Way::Get(_)) { Counter::GetMisses } else { Counter::PutMisses };
        let operation = Operation::of_pieces(owner, pieces, bounce);
        let mut pending = Pending { core: &self.core, state: Some(Held::Own(operation)) };
        if !pending.test()? {
            self.pool.count(counter, 1);
        }
        Ok(pending)
    }

    /// Asks for bytes to be brought to this node when convenient. Completes at once; a hint, no promise.
    pub fn prefetch(&self, owner: Rank, offset: u64, bytes: u64) -> Result<(), CacheError> {
        self.check(owner, offset, bytes)?;
        if bytes == 0 {
            return Ok(());
        }
        let first = offset >> self.page_shift;
        let last = (offset + bytes - 1) >> self.page_shift;
        let count = (last - first + 1).min(u64::from(u32::MAX)) as u32;
        self.core.try_ask(Request::Prefetch { page: self.core.index(owner, first), count }, &[])?;
        Ok(())
    }

    /// Makes this rank's own named segment durable: everything written to it by this rank, and by others who told it
    /// before the call (after a barrier: everything before the barrier). Returns when it would survive a crash.
    ///
    /// It is this rank's checkpoint alone: a job whose ranks have not made equally many of them when it ends badly cannot be
    /// reopened. A checkpoint of the job takes the three steps that follow, each on all ranks before the next on any.
    pub fn checkpoint(&self) -> Result<(), CacheError> {
        self.ask_about_segment(|slot| Request::Checkpoint { slot }, &[]).map(drop)
    }

    /// The first step of the job's checkpoint: brings everything that [`Client::checkpoint`] would make durable to the NVMe.
    pub fn clean(&self) -> Result<(), CacheError> {
        self.ask_about_segment(|slot| Request::Clean { slot }, &[]).map(drop)
    }

    /// The second step: a checkpoint that is durable beside the last one. `identity` is the same on all ranks and was never
    /// used before. When all ranks have taken it, a job that is killed is reopened at this checkpoint; until then, at the
    /// one before.
    pub fn prepare(&self, identity: u64) -> Result<(), CacheError> {
        self.ask_about_segment(|slot| Request::Prepare { identity, slot }, &[]).map(drop)
    }

    /// The third step: with `commit`, which all ranks have prepared for, the one before is not needed any more. Without,
    /// the checkpoint is given up, also by a rank that could not prepare it.
    pub fn conclude(&self, commit: bool) -> Result<(), CacheError> {
        self.ask_about_segment(|slot| Request::Conclude { commit, slot }, &[]).map(drop)
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

    /// The page of a place in an attached segment, and the place in it. Whether the page has all `bytes` bytes is the
    /// pool's to say.
    #[inline(always)]
    fn locate(&self, owner: Rank, offset: u64, bytes: usize) -> Option<(PageIndex, u32)> {
        let place = self.places.get()?.get(owner.0 as usize)?;
        // Larger lengths are cut by the cast to the pool's 32 bits.
        if bytes > self.page_bytes || offset > place.bytes || bytes as u64 > place.bytes - offset {
            return None;
        }
        let in_page = offset & (self.page_bytes as u64 - 1);
        Some((place.first_page.wrapping_add(offset >> self.page_shift), in_page as u32))
    }

    fn check(&self, owner: Rank, offset: u64, bytes: u64) -> Result<(), CacheError> {
        let limit = self.segments().get(owner.0 as usize).copied().unwrap_or(0);
        if offset.checked_add(bytes).is_some_and(|end| end <= limit) {
            Ok(())
        } else {
            Err(CacheError::OutOfRange { owner, offset, bytes, limit })
        }
    }

    fn start(
        &self,
        owner: Rank,
        offset: u64,
        bytes: usize,
        way: Way,
        patience: Patience,
    ) -> Result<Pending<'_>, CacheError> {
        self.check(owner, offset, bytes as u64)?;
        if matches!(way, Way::Put(_)) && bytes > 0 {
            self.check_writable(owner)?;
        }
        // SAFETY: rule 1: the caller of what called this has promised it for the address in `way`.
        if self.relaxed.covers(owner) && unsafe { self.relaxed_part(owner, offset, bytes, way) }? {
            return Ok(Pending { core: &self.core, state: None });
        }
        self.start_anywhere(owner, offset, bytes, way, patience)
    }

    /// An operation on the cluster's memory, which has been checked.
    fn start_anywhere(
        &self,
        owner: Rank,
        offset: u64,
        bytes: usize,
        way: Way,
        patience: Patience,
    ) -> Result<Pending<'_>, CacheError> {
        let counter = if matches!(way, Way::Get(_)) { Counter::GetMisses } else { Counter::PutMisses };
        let address = match way {
            Way::Get(to) => to.cast_const(),
            Way::Put(from) => from,
        };
        let bounce = self.is_local(address).then(|| vec![0; self.page_bytes.min(bytes)].into_boxed_slice());
        let operation = Operation::new(owner, offset, bytes, way, bounce, patience);
        let mut pending = Pending { core: &self.core, state: Some(Held::Own(operation)) };
        if !pending.test()? {
            self.pool.count(counter, 1);
        }
        Ok(pending)
    }

    /// A request about this rank's segment as a whole, of which the agent can say why it fails.
    fn ask_about_segment(
        &self,
        request: impl Fn(u32) -> Request,
        data: &[u8],
    ) -> Result<[u8; INLINE_BYTES], CacheError> {
        match self.ask(request, data) {
            Err(CacheError::Page { owner, reason, place, .. }) => {
                let said = self.ask_why()?;
                let why = if said.is_empty() { reason.describe(&place) } else { said };
                Err(CacheError::Segment { owner, reason, place, why })
            }
            other => other,
        }
    }

    fn ask_why(&self) -> Result<String, CacheError> {
        let mut said = Vec::new();
        for piece in 0..WHY_PIECES_MAX {
            let bytes = self.ask(|slot| Request::Why { piece, slot }, &[])?;
            let text = bytes.iter().take_while(|byte| **byte != 0);
            let before = said.len();
            said.extend(text);
            if said.len() < before + bytes.len() {
                break;
            }
        }
        Ok(String::from_utf8_lossy(&said).into_owned())
    }

    fn ask_and_wait(&self, request: impl Fn(u32) -> Request, data: &[u8]) -> Result<(), CacheError> {
        self.ask(request, data).map(drop)
    }

    /// Asks, and waits for the answer; with the bytes that came with it, if any did.
    fn ask(&self, request: impl Fn(u32) -> Request, data: &[u8]) -> Result<[u8; INLINE_BYTES], CacheError> {
        let mut wait = None;
        self.wait_for(|| {
            wait = self.pool.begin_wait(1);
            Ok(wait.is_some())
        })?;
        let wait = wait.expect("just waited for");
        let request = request(wait.0);
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
                Err(self.core.failed(me, 0, code, detail))
            }
            _ => Ok(answer),
        }
    }

    fn wait_for(&self, ready: impl FnMut() -> Result<bool, CacheError>) -> Result<(), CacheError> {
        self.core.wait_for(ready)
    }

    #[inline]
    fn index(&self, owner: Rank, page: u64) -> PageIndex {
        self.core.index(owner, page)
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

    #[inline]
    fn index(&self, owner: Rank, page: u64) -> PageIndex {
        // `check` has compared the bytes with the attached size, which the table has room for.
        self.first_page.get(owner.0 as usize).map_or(PageIndex::MAX, |first| first.saturating_add(page))
    }

    fn first_page_of(&self, owner: Rank) -> PageIndex {
        self.first_page.get(owner.0 as usize).copied().unwrap_or(PageIndex::MAX)
    }

    fn pages_of(&self, owner: Rank) -> u64 {
        self.segment_pages.get().and_then(|pages| pages.get(owner.0 as usize)).copied().unwrap_or(0)
    }

    #[cold]
    fn hint(&self, index: PageIndex) {
        if self.own.used_ahead(self, index) {
            return;
        }
        // Only a hint: lost when the ring is full.
        let _ = self.try_ask(Request::Ahead { page: index }, &[]);
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

    fn failed(&self, owner: Rank, page: u64, code: u32, detail: u32) -> CacheError {
        let page = if detail == PAGE_UNKNOWN { page } else { u64::from(detail) };
        let reason = Failure::from_code(code);
        CacheError::Page { owner, page, reason, place: self.place(owner, reason) }
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
        self.endpoint.work_ended(self.under_way.clear());
    }
}

impl Pending<'_> {
    /// From now on it goes on by itself, unless it has ended.
    fn listed(mut self) -> Self {
        self.state = match self.state.take() {
            Some(Held::Own(operation)) => {
                // Counted first: it may end at once.
                self.core.endpoint.work_started();
                Some(Held::Listed(self.core.under_way.add(operation)))
            }
            state => state,
        };
        self
    }

    /// Goes on as far as possible without waiting. True: complete. An error also when nobody will complete it any more,
    /// because the endpoint has failed.
    pub fn test(&mut self) -> Result<bool, CacheError> {
        let ended = match &mut self.state {
            None => return Ok(true),
            // SAFETY: rule 1: whoever started the operation keeps the bytes valid until it has ended, which is here.
            Some(Held::Own(operation)) => match unsafe { operation.advance(self.core) } {
                Ok(false) => None,
                ended => Some(ended.map(drop)),
            },
            Some(Held::Listed(started)) => started.test(self.core),
        };
        let ended = match ended {
            Some(ended) => ended,
            None => match self.core.endpoint.check_failure() {
                Ok(()) => return Ok(false),
                Err(error) => Err(error.into()),
            },
        };
        if ended.is_err() {
            self.give_up();
        }
        self.state = None;
        ended.map(|()| true)
    }

    /// Waits for the end, serving active messages meanwhile.
    pub fn wait(mut self) -> Result<(), CacheError> {
        self.finish()
    }

    fn finish(&mut self) -> Result<(), CacheError> {
        if self.state.is_none() {
            return Ok(());
        }
        let core = self.core;
        core.wait_for(|| self.test())
    }

    /// Ends it where it stands.
    fn give_up(&mut self) {
        match self.state.take() {
            Some(Held::Own(mut operation)) => operation.abandon(self.core),
            Some(Held::Listed(started)) => started.give_up(self.core),
            None => {}
        }
    }

    fn is_put(&self) -> bool {
        match &self.state {
            Some(Held::Own(operation)) => operation.is_put(),
            Some(Held::Listed(started)) => started.is_put(),
            None => false,
        }
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        // A put must not be lost because its handle was dropped. An error has no one left to go to but the log. What
        // a get would have brought, nobody wants any more.
        let is_put = self.is_put();
        match self.finish() {
            Err(error) if is_put => tracing::error!(%error, "a put whose handle was dropped has failed"),
            Err(error) => tracing::debug!(%error, "a get whose handle was dropped has failed"),
            Ok(()) => {}
        }
        self.give_up();
    }
}
