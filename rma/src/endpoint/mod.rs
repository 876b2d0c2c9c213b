//! Endpoints: active messages, waiting, put/get into pinned segments and barriers, for one rank or agent.
//!
//! An [`Endpoint`] routes each message: to itself through a queue (or [inside the
//! call](Endpoint::request_inline)), to members of its shared-memory domain through the `smp` conduit, to all
//! others through the network conduit. Everything above active messages is built here once, for every conduit
//! (GASNet specification 1.8, Core and Extended API; vGASNet §II).
//!
//! # Three moments
//!
//! * *Source reusable*: the caller may overwrite the bytes it gave.
//! * *Operation complete*: the caller has been told; a get's bytes are there, a put's bytes are visible at the target.
//! * *Visible at the target*: a load there, ordered after a message or barrier from here, sees the bytes.
//!
//! # Progress
//!
//! Handlers run in threads that call [`Endpoint::poll`] or wait in this endpoint, one thread at a time (those that
//! [`Endpoint::request_inline`] runs excepted), and must not block: they may reply once, send with [`Endpoint::try_request`], and complete things. A rank that computes runs no
//! handler of a library or program; puts and gets of its pinned segment do not need it (the agent of its node serves them).
//!
//! *Operations in flight progress by themselves*, waited for or not: at once when some thread of the rank
//! polls or waits for anything, and within a millisecond when the rank computes and calls nothing. A put
//! reaches its target, and a get its buffer, without being synchronised; messages that a conduit did not take
//! at once are sent. See `background`.
//!
//! # Atomic updates
//!
//! [`Endpoint::update`] of a word of a pinned segment is atomic with every other such update of the word, by
//! any rank, in one of two ways. *All updates of a job take the same one*:
//!
//! * The processor's: a rank of the target's node updates the shared memory itself; others ask the agent of that node,
//!   which does.
//! * The network card's, if the conduit between nodes offers it ([`Capabilities::atomics`]): the card of the
//!   agent that serves the segment. Most cards are atomic only with themselves, so the ranks of the target's
//!   node, and the target itself, go through it too.
//!
//! The choice follows from the devices and a setting, and is the same everywhere; if devices differ, the
//! first update between two of them reports it. Against plain puts, gets and loads of the word only "not
//! torn" is promised: an atomically updated word is changed in no other way between two barriers.
//!
//! [`Capabilities::atomics`]: crate::conduit::Capabilities::atomics
//!
//! # Rules for the unsafe code in this folder
//!
//! 1. *The caller's bytes* are valid for as long as the unsafe function that takes their address says: the call, or until the
//!    operation is complete. Only operations that still wait hold such an address.
//! 2. *Segments.* An address in a segment is used after its range was checked against the mapping (`reach`,
//!    `segment_address`, a `place`), which the endpoint's domain keeps. A peer's numbers are checked where
//!    its message arrives.
//! 3. *Both may be shared memory*: bytes are copied by [`vgas_shm::copy`], never borrowed (rule 1 of [`vgas_shm`]).

mod access;
mod atomic;
mod background;
mod barrier;
mod counters;
mod further;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod implicit;
mod inline;
mod landing;
mod loopback;
mod operation;
mod pieces;
mod segment;
mod serve;
mod shared;
mod signals;
mod survive;
mod token;
mod wait;
mod work;

pub use access::ValueHandle;
pub(crate) use background::in_own_thread;
pub use barrier::{BarrierName, BarrierOutcome};
pub use counters::{Carrier, CarrierCounts, EndpointCounts};
pub use implicit::Implicit;
pub use landing::Landing;
pub use operation::Handle;
pub use pieces::SegmentPiece;
pub use segment::SegmentInfo;
pub use survive::Report;
pub use token::Token;
pub use wait::WaitMode;
pub(crate) use wait::lock;
pub use work::{Extent, Work};

use crate::address::{Layout, Peer, Rank, RegionId};
use crate::conduit::smp::SmpConduit;
use crate::conduit::{Conduit, Loan, Sent, Traffic};
use crate::domain::Domain;
use crate::error::{Result, RmaError};
use crate::message::{
    ARGUMENTS_MAX, Arrived, Delivery, Destination, Direction, Message, Payload, Sink, Source,
};
use counters::Counters;
use loopback::Loopback;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, RwLock, Weak};
use vgas_shm::biased::this_thread;
use vgas_shm::{Mapping, Span};

/// First index of a class of handlers; the class ends where the next begins.
pub mod handler_index {
    /// 0..32: the endpoint's own (put/get, barriers, collectives).
    pub const ENDPOINT: u8 = 0;
    /// 32..64: the cache.
    pub const CACHE: u8 = 32;
    /// 64..128: libraries (objects, arrays).
    pub const LIBRARY: u8 = 64;
    /// 128..=255: programs.
    pub const USER: u8 = 128;
}

/// Runs when a message arrives: with the token of the message, its arguments and its payload. It must not block.
pub type Handler = Box<dyn Fn(&Token<'_>, &[u32], Arrived<'_>) + Send + Sync>;

/// Returns true if a peer's long payload, of this many bytes at this offset of a region, is expected.
pub type RegionGuard = Box<dyn Fn(Peer, u64, usize) -> bool + Send + Sync>;

/// Parameters of an endpoint.
pub struct EndpointSpec {
    /// Assignment of ranks to nodes; equal everywhere.
    pub layout: Layout,
    /// The endpoint's own peer.
    pub me: Peer,
    /// The shared memory of the co-located processes, if any. `me` is a member.
    pub domain: Option<Arc<Domain>>,
    /// The way to peers outside of the domain, if there are any.
    pub network: Option<Arc<dyn Conduit>>,
}

/// Looks at a silent network, one each poll, before polls look less often.
const LOOKS: u32 = 255;

/// Regions below this number can be guarded.
const GUARDED_REGIONS: usize = 8;

static NEXT_SERIAL: AtomicU64 = AtomicU64::new(0);

/// The right to deliver from the network, which one thread has at a time.
struct Delivering<'a> {
    deliverer: &'a AtomicUsize,
    /// Released last.
    _lock: MutexGuard<'a, ()>,
}

impl Drop for Delivering<'_> {
    fn drop(&mut self) {
        self.deliverer.store(0, Ordering::Relaxed);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    Loopback,
    /// With the position among the members of the domain.
    Smp(u32),
    Network,
    Nowhere,
}

/// One peer's side of all communication. Used through an `Arc`, from any thread.
pub struct Endpoint {
    /// Tells the endpoints of a process apart (see `implicit`).
    serial: u64,
    /// For the thread of the background.
    myself: OnceLock<Weak<Endpoint>>,
    background: background::Background,
    layout: Layout,
    me: Peer,
    domain: Option<Arc<Domain>>,
    smp: Option<SmpConduit>,
    network: Option<Arc<dyn Conduit>>,
    routes: Box<[Route]>,
    loopback: Loopback,
    handlers: Box<[OnceLock<Handler>]>,
    is_open: AtomicBool,
    /// Polls deliver only messages for the endpoint and the cache.
    withholds: AtomicBool,
    /// Held by the thread that delivers from the network.
    delivering: Mutex<()>,
    /// Number of that thread; 0 while there is none.
    deliverer: AtomicUsize,
    /// Polls since the network last brought something, while it brings nothing (see [`Endpoint::poll`]).
    network_silence: AtomicU32,
    failed: AtomicBool,
    failure: OnceLock<RmaError>,
    wait: wait::WaitState,
    counters: Counters,
    segments: segment::Segments,
    exposed: RwLock<HashMap<RegionId, Arc<Mapping>>>,
    /// By region.
    guards: [OnceLock<RegionGuard>; GUARDED_REGIONS],
    operations: operation::Operations,
    barrier: barrier::Barrier,
    lost: survive::LostPeers,
    medium_bytes_max: usize,
    long_bytes_max: usize,
    /// First address and length of the memory named with [`Endpoint::set_absent`].
    absent: (AtomicUsize, AtomicUsize),
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Endpoint of {}", self.layout.describe(self.me))
    }
}

impl Endpoint {
    /// Makes an endpoint. Nothing is received before [`Endpoint::open`].
    pub fn new(spec: EndpointSpec) -> Result<Arc<Self>> {
        let EndpointSpec { layout, me, domain, network } = spec;
        if !layout.contains(me) {
            return Err(RmaError::Usage(format!("{me} is not in the layout")));
        }
        let smp = domain.as_ref().map(|domain| SmpConduit::new(domain.clone(), me)).transpose()?;
        let routes = (0..layout.peers())
            .map(Peer)
            .map(|peer| match (&smp, &network) {
                _ if peer == me => Route::Loopback,
                (Some(smp), _) if smp.reaches(peer) => {
                    Route::Smp(smp.index_of(peer).unwrap_or_default() as u32)
                }
                (_, Some(network)) if network.reaches(peer) => Route::Network,
                _ => Route::Nowhere,
            })
            .collect();
        let capabilities = || {
            let smp = smp.iter().map(|conduit| conduit.capabilities());
            smp.chain(network.iter().map(|conduit| conduit.capabilities()))
        };
        let medium_bytes_max = capabilities().map(|c| c.medium_bytes_max).min().unwrap_or(64 << 10);
        let long_bytes_max = capabilities().map(|c| c.long_bytes_max).min().unwrap_or(1 << 30);
        let shared = shared::SharedWords::new(domain.as_deref())?;
        let endpoint = Arc::new(Self {
            segments: segment::Segments::new(&layout, shared.clone(), domain.as_deref()),
            barrier: barrier::Barrier::new(&layout, me, domain.as_deref(), shared)?,
            wait: wait::WaitState::new()?,
            lost: survive::LostPeers::new(&layout),
            serial: NEXT_SERIAL.fetch_add(1, Ordering::Relaxed),
            myself: OnceLock::new(),
            background: background::Background::default(),
            layout,
            me,
            domain,
            smp,
            network,
            routes,
            loopback: Loopback::default(),
            handlers: (0..256).map(|_| OnceLock::new()).collect(),
            is_open: AtomicBool::new(false),
            withholds: AtomicBool::new(false),
            delivering: Mutex::new(()),
            deliverer: AtomicUsize::new(0),
            network_silence: AtomicU32::new(0),
            failed: AtomicBool::new(false),
            failure: OnceLock::new(),
            counters: Counters::default(),
            exposed: RwLock::default(),
            guards: Default::default(),
            operations: operation::Operations::default(),
            medium_bytes_max,
            long_bytes_max,
            absent: Default::default(),
        });
        let _ = endpoint.myself.set(Arc::downgrade(&endpoint));
        endpoint.register_own(handler_index::ENDPOINT..handler_index::CACHE)?;
        Ok(endpoint)
    }

    /// Returns the assignment of ranks to nodes.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns the endpoint's own peer.
    pub fn me(&self) -> Peer {
        self.me
    }

    /// The rank whose endpoint this is, unless it is an agent's.
    pub fn rank(&self) -> Option<Rank> {
        self.layout.rank_of_peer(self.me)
    }

    /// The shared memory of the co-located processes.
    pub fn domain(&self) -> Option<&Arc<Domain>> {
        self.domain.as_ref()
    }

    /// Most bytes of a medium payload, to any peer.
    pub fn medium_bytes_max(&self) -> usize {
        self.medium_bytes_max
    }

    /// Most bytes of a long payload, to any peer.
    pub fn long_bytes_max(&self) -> usize {
        self.long_bytes_max
    }

    /// Registers a handler, before [`Endpoint::open`]. The same index means the same handler on all peers. Indices
    /// below [`handler_index::CACHE`] are the endpoint's own.
    pub fn register(
        &self,
        index: u8,
        handler: impl Fn(&Token<'_>, &[u32], Arrived<'_>) + Send + Sync + 'static,
    ) -> Result<()> {
        self.register_boxed(index, Box::new(handler))
    }

    /// [`Endpoint::register`] of a handler that has its place already.
    ///
    /// # Errors
    /// As [`Endpoint::register`].
    pub fn register_boxed(&self, index: u8, handler: Handler) -> Result<()> {
        if index < handler_index::CACHE {
            return Err(RmaError::Usage(format!("handler index {index} belongs to the endpoint")));
        }
        self.register_any(index, handler)
    }

    /// Registers a handler of a library at an endpoint that may be open already: for a library that is
    /// attached to an existing one. A message for it is an error before that, so peers send none until they
    /// know (by a barrier, say).
    ///
    /// # Errors
    /// [`RmaError::Usage`] when the index is not from 64 to 127, or is taken.
    pub fn register_library(
        &self,
        index: u8,
        handler: impl Fn(&Token<'_>, &[u32], Arrived<'_>) + Send + Sync + 'static,
    ) -> Result<()> {
        if !(handler_index::LIBRARY..handler_index::USER).contains(&index) {
            return Err(RmaError::Usage(format!("handler index {index}: libraries have 64 to 127")));
        }
        self.set_handler(index, Box::new(handler))
    }

    pub(crate) fn register_any(&self, index: u8, handler: Handler) -> Result<()> {
        if self.is_open.load(Ordering::Acquire) {
            return Err(RmaError::Usage("handlers are registered before the endpoint is opened".into()));
        }
        self.set_handler(index, handler)
    }

    fn set_handler(&self, index: u8, handler: Handler) -> Result<()> {
        self.handlers[usize::from(index)]
            .set(handler)
            .map_err(|_| RmaError::Usage(format!("handler index {index} is taken")))
    }

    fn register_own(&self, indices: std::ops::Range<u8>) -> Result<()> {
        // The collectives register theirs where they begin.
        let mut next = indices.filter(|index| *index != crate::collective::HANDLER);
        let own = serve::handlers().into_iter().chain(barrier::handlers());
        let own = own
            .chain(atomic::handlers())
            .chain(pieces::handlers())
            .chain(barrier::carrying_handlers())
            .chain(further::handlers())
            .chain(survive::handlers());
        for (expected, (index, handler)) in own.enumerate() {
            debug_assert_eq!(next.next(), Some(index), "own handler {expected} out of place");
            self.register_any(index, handler)?;
        }
        Ok(())
    }

    /// Makes a region of this peer's own a destination of long messages, besides those of its domain: for peers
    /// without shared memory, and for tests. Once a region; it stays exposed as long as the endpoint lives.
    pub fn expose(&self, region: RegionId, mapping: Arc<Mapping>) -> Result<()> {
        let mut exposed = self.exposed.write().unwrap_or_else(|e| e.into_inner());
        if exposed.contains_key(&region) {
            return Err(RmaError::Usage(format!("region {} is exposed already", region.0)));
        }
        exposed.insert(region, mapping);
        Ok(())
    }

    /// From now on a long message into this region of this peer is taken only if `guard` returns true for it;
    /// another one is an error that names its sender, before its bytes are written (unless the sender shares
    /// this memory, or a device writes for it, without asking). Once a region, before [`Endpoint::open`].
    ///
    /// # Errors
    /// [`RmaError::Usage`] when the region is guarded already, or its number is above those that can be.
    pub fn guard(&self, region: RegionId, guard: RegionGuard) -> Result<()> {
        let place = self.guards.get(usize::from(region.0));
        let is_set = place.is_some_and(|place| place.set(guard).is_ok());
        let refused = || RmaError::Usage(format!("region {} is guarded already, or cannot be", region.0));
        if is_set { Ok(()) } else { Err(refused()) }
    }

    /// Names the memory of this process whose pages may be absent, and come when they are touched: conduits
    /// may hand their sources to a system call, which cannot wait for a page. Replies from there go by a
    /// copy; senders of requests from there make it themselves.
    pub fn set_absent(&self, first: *const u8, bytes: usize) {
        self.absent.0.store(first.addr(), Ordering::Relaxed);
        self.absent.1.store(bytes, Ordering::Relaxed);
    }

    /// A copy of the bytes of a payload that begins in memory that may be absent.
    pub(crate) fn present(&self, payload: Payload<'_>) -> Option<Box<[u8]>> {
        let (Payload::Medium(source) | Payload::Long(source, _)) = payload else { return None };
        let offset = source.address().addr().wrapping_sub(self.absent.0.load(Ordering::Relaxed));
        if source.bytes() == 0 || offset >= self.absent.1.load(Ordering::Relaxed) {
            return None;
        }
        let mut own = vec![0; source.bytes()].into_boxed_slice();
        // SAFETY: the source is valid as long as it lives ([`Source`]); the copy is as long.
        unsafe { vgas_shm::copy::copy(source.address(), own.as_mut_ptr(), source.bytes()) };
        Some(own)
    }

    /// Opens the endpoint: from now on messages are delivered and handlers can no longer be registered.
    pub fn open(&self) {
        self.is_open.store(true, Ordering::Release);
    }

    /// Makes handlers of libraries and programs wait from now on, with their messages kept in place, or lets
    /// them run again: while the program is not ready for it. No message is lost. Waits look for other
    /// messages a few times a millisecond then.
    pub fn withhold(&self, withholds: bool) {
        self.withholds.store(withholds, Ordering::SeqCst);
        self.notify_local();
    }

    /// Returns the messages that polls deliver.
    #[inline]
    fn traffic(&self) -> Traffic {
        if self.withholds.load(Ordering::Relaxed) {
            Traffic::Below(handler_index::LIBRARY)
        } else {
            Traffic::Everything
        }
    }

    /// Sends a request, waiting for room if there is none: other messages are delivered meanwhile.
    ///
    /// When it returns the source is reusable. The message is delivered when the target polls. Not from
    /// handlers.
    pub fn request(&self, to: Peer, handler: u8, arguments: &[u32], payload: Payload<'_>) -> Result<()> {
        self.request_part(to, handler, arguments, payload)?;
        // The caller may compute next.
        if !matches!(payload, Payload::Short) && self.has_unsent() {
            self.look_after_it();
        }
        Ok(())
    }

    /// [`Endpoint::request`], for a part of something that is waited for, or looked after as a whole.
    fn request_part(&self, to: Peer, handler: u8, arguments: &[u32], payload: Payload<'_>) -> Result<()> {
        self.until_accepted(|| self.try_request(to, handler, arguments, payload))
    }

    /// Waits for room for something, delivering other messages meanwhile. Not in handlers.
    fn until_accepted(&self, attempt: impl Fn() -> Result<Sent>) -> Result<()> {
        if attempt()? == Sent::Accepted {
            return Ok(());
        }
        if self.wait.in_handler() {
            return Err(RmaError::Usage("a handler must not wait for room: use try_request".into()));
        }
        let mut outcome = Ok(());
        self.wait_until(None, || match attempt() {
            Ok(sent) => sent == Sent::Accepted,
            Err(error) => {
                outcome = Err(error);
                true
            }
        })?;
        outcome
    }

    /// Sends a request if there is room for it now; never polls, so it may be called in handlers and event loops. The
    /// source is reusable when it returns, accepted or not.
    pub fn try_request(
        &self,
        to: Peer,
        handler: u8,
        arguments: &[u32],
        payload: Payload<'_>,
    ) -> Result<Sent> {
        self.send(to, Direction::Request, handler, arguments, payload)
    }

    /// As [`Endpoint::try_request`] with a long payload, all of `lent`, which the caller leaves unchanged
    /// until [`Endpoint::is_returned`] returns true. A conduit that can sends it without a copy. None: no
    /// room now.
    pub fn try_request_lent(
        &self,
        to: Peer,
        handler: u8,
        arguments: &[u32],
        lent: &Span,
        destination: Destination,
    ) -> Result<Option<Loan>> {
        let payload = Payload::Long(Source::of_span(lent), destination);
        if !matches!(self.routes.get(to.0 as usize), Some(Route::Network)) {
            let sent = self.send(to, Direction::Request, handler, arguments, payload)?;
            return Ok((sent == Sent::Accepted).then_some(Loan::NONE));
        }
        let message = Message { direction: Direction::Request, handler, arguments, payload };
        self.check_failure()?;
        self.check_size(&message)?;
        self.check_peer(to, "sending")?;
        let loan = match self.network_conduit()?.try_send_lent(to, &message, lent) {
            Ok(loan) => loan,
            Err(error) => self.weigh(error).map(|()| None)?,
        };
        let sent = if loan.is_some() { Sent::Accepted } else { Sent::Busy };
        self.counters.sent(Carrier::Network, sent, &message);
        Ok(loan)
    }

    /// Returns true if the loan of a message to this peer may be changed again. Polling makes it so.
    pub fn is_returned(&self, to: Peer, loan: Loan) -> bool {
        loan == Loan::NONE || self.network.as_ref().is_none_or(|network| network.is_returned(to, loan))
    }

    #[inline]
    fn send(
        &self,
        to: Peer,
        direction: Direction,
        handler: u8,
        arguments: &[u32],
        payload: Payload<'_>,
    ) -> Result<Sent> {
        self.check_failure()?;
        // Nearly all messages between ranks of a node; that conduit checks their arguments, and is the one that counts. A
        // payload that was just written and is copied as a whole makes the processor wait, so none is.
        match (&self.smp, self.routes.get(to.0 as usize), payload) {
            (Some(smp), Some(&Route::Smp(member)), Payload::Short) => {
                smp.try_short_to(member as usize, direction, handler, arguments)
            }
            _ => self.send_any(to, &Message { direction, handler, arguments, payload }),
        }
    }

    #[inline(never)]
    fn send_any(&self, to: Peer, message: &Message<'_>) -> Result<Sent> {
        self.check_size(message)?;
        let (carrier, sent) = match self.routes.get(to.0 as usize) {
            Some(&Route::Smp(member)) => {
                if let Payload::Long(source, destination) = message.payload {
                    self.check_long_to_member(source, destination)?;
                }
                return self.smp_conduit()?.try_send_to(member as usize, message);
            }
            Some(Route::Network) => {
                self.check_peer(to, "sending")?;
                let sent = match self.network_conduit()?.try_send(to, message) {
                    Ok(sent) => sent,
                    // It waits for what becomes of the peer.
                    Err(error) => self.weigh(error).map(|()| Sent::Busy)?,
                };
                (Carrier::Network, sent)
            }
            Some(Route::Loopback) => {
                let sent = self.loopback.try_send(self.me, message, |destination, bytes| {
                    self.destination(self.me, destination, bytes)
                })?;
                if sent == Sent::Accepted {
                    self.notify_local();
                }
                (Carrier::Loopback, sent)
            }
            Some(Route::Nowhere) | None => {
                return Err(RmaError::Usage(format!("no conduit of {:?} reaches {to}", self)));
            }
        };
        // Messages through shared memory are counted there.
        self.counters.sent(carrier, sent, message);
        Ok(sent)
    }

    /// The handler that a message of this peer names.
    #[inline]
    fn handler_of(&self, from: Peer, index: u8) -> Result<&Handler> {
        self.handlers[usize::from(index)].get().ok_or_else(|| {
            let what = format!("a message for handler {index}, which nobody registered");
            RmaError::Protocol { peer: Some(from), what }
        })
    }

    /// The same limits to every peer, whatever its conduit would take.
    fn check_size(&self, message: &Message<'_>) -> Result<()> {
        let (bytes, limit) = match message.payload {
            Payload::Short => (0, 0),
            Payload::Medium(source) => (source.bytes(), self.medium_bytes_max),
            Payload::Long(source, _) => (source.bytes(), self.long_bytes_max),
        };
        if message.arguments.len() > ARGUMENTS_MAX || bytes > limit {
            let count = message.arguments.len();
            let what =
                format!("a message with {count} arguments and {bytes} bytes; 16 and {limit} are the most");
            return Err(RmaError::Usage(what));
        }
        Ok(())
    }

    /// The conduit to a peer; none to oneself, or if there is no way.
    fn carrier_of(&self, to: Peer) -> Option<&dyn Conduit> {
        match self.routes.get(to.0 as usize)? {
            Route::Smp(_) => self.smp.as_ref().map(|smp| smp as &dyn Conduit),
            Route::Network => self.network.as_deref(),
            Route::Loopback | Route::Nowhere => None,
        }
    }

    fn smp_conduit(&self) -> Result<&SmpConduit> {
        self.smp.as_ref().ok_or_else(|| RmaError::Usage("this endpoint has no shared memory".into()))
    }

    fn network_conduit(&self) -> Result<&dyn Conduit> {
        self.network.as_deref().ok_or_else(|| RmaError::Usage("this endpoint has no network".into()))
    }

    /// Delivers arrived messages, in bounded batches; returns their number. Messages that another thread is
    /// delivering are left to it. An error ends the endpoint: it stays failed (see [`Endpoint::fail`]).
    pub fn poll(&self) -> Result<usize> {
        self.poll_until_silent(LOOKS)
    }

    /// [`Endpoint::poll`] for a thread that does nothing but wait, and looks again at once: where looking at the network is a
    /// system call, most calls only look at shared memory. Beside more threads that wait than there are cores, such looks took
    /// a quarter of the time.
    pub(super) fn look_around(&self) -> Result<usize> {
        let asks = self.network.as_ref().is_some_and(|network| network.capabilities().polls_through_kernel);
        self.poll_until_silent(if asks && self.smp.is_some() { 1 } else { LOOKS })
    }

    fn poll_until_silent(&self, looks: u32) -> Result<usize> {
        self.check_failure()?;
        if !self.is_open.load(Ordering::Acquire) {
            return Ok(0);
        }
        self.settle_lost();
        match self.deliver_all(looks) {
            Ok(0) => {
                self.tend();
                Ok(0)
            }
            Ok(delivered) => {
                self.tend();
                self.notify_local();
                // Replies of handlers: the caller may compute next.
                if self.has_unsent() {
                    self.look_after_it();
                }
                Ok(delivered)
            }
            Err(error) => {
                let copy = error.duplicate();
                self.fail(error);
                Err(copy)
            }
        }
    }

    fn deliver_all(&self, looks: u32) -> Result<usize> {
        let _running = self.wait.enter_handlers();
        let traffic = self.traffic();
        let mut delivered = 0;
        if !self.loopback.is_empty() {
            delivered += self.loopback.deliver(traffic, |delivery| self.deliver(delivery))?;
        }
        if let Some(smp) = &self.smp {
            delivered += smp.poll(&EndpointSink(self), traffic)?;
        }
        let is_turn = self.network.is_none() || self.is_turn_of_network(delivered, looks);
        if is_turn {
            self.has_looked();
        }
        if let Some(network) = self.network.as_ref().filter(|_| is_turn)
            && let Some(_delivering) = self.begin_delivery()
        {
            // Read again under the lock: the thread that failed the endpoint may be waiting for us to leave
            // (see `operation`).
            self.check_failure()?;
            let brought = match network.poll(&EndpointSink(self), traffic) {
                Ok(brought) => brought,
                Err(error) => self.weigh(error).map(|()| 0)?,
            };
            if brought > 0 {
                self.network_silence.store(0, Ordering::Relaxed);
            }
            delivered += brought;
        }
        Ok(delivered)
    }

    /// Becomes the thread that delivers from the network, unless another one is.
    fn begin_delivery(&self) -> Option<Delivering<'_>> {
        let lock = wait::try_lock(&self.delivering)?;
        self.deliverer.store(this_thread(), Ordering::Relaxed);
        Some(Delivering { deliverer: &self.deliverer, _lock: lock })
    }

    /// Returns whether this thread delivers from the network, in a handler.
    fn delivers_here(&self) -> bool {
        self.deliverer.load(Ordering::Relaxed) == this_thread()
    }

    /// A look at the network may cost a system call. After this many `looks` in vain, or while shared memory
    /// brings messages, only every eighth poll looks.
    fn is_turn_of_network(&self, delivered: usize, looks: u32) -> bool {
        let silence = self.network_silence.load(Ordering::Relaxed).wrapping_add(1);
        self.network_silence.store(silence, Ordering::Relaxed);
        (delivered == 0 && silence <= looks) || silence.is_multiple_of(8)
    }

    /// Wakes a sleeping peer of this domain, so that it looks again at its condition: after a change for it
    /// in shared memory. A system call only if it does sleep; nothing for other peers.
    #[inline]
    pub fn ring(&self, peer: Peer) {
        if peer == self.me {
            self.notify_local();
        } else if let Some(smp) = &self.smp {
            smp.ring(peer);
        }
    }

    /// [`Endpoint::ring`] of the domain's member at a position.
    #[inline]
    pub(crate) fn ring_member(&self, member: usize) {
        if let Some(smp) = &self.smp {
            smp.ring_index(member);
        }
    }

    /// Returns whether the member of the domain at a position sleeps and was not woken yet: an estimate.
    #[inline]
    pub(crate) fn is_member_asleep(&self, member: usize) -> bool {
        self.smp.as_ref().is_some_and(|smp| smp.is_asleep(member))
    }

    /// Marks the endpoint as failed: every wait, send and poll, now and later, ends with this error (the first counts).
    pub fn fail(&self, error: RmaError) {
        if self.failure.set(error).is_ok() {
            self.failed.store(true, Ordering::SeqCst);
            self.works().for_each(|work| work.failed());
        }
        self.notify_local();
    }

    /// The error with which this endpoint has failed, if it has.
    #[inline]
    pub fn check_failure(&self) -> Result<()> {
        if self.failed.load(Ordering::Relaxed) { self.failure() } else { Ok(()) }
    }

    #[cold]
    fn failure(&self) -> Result<()> {
        // No lock: a process that has corrupted the heap that this lies in must get an error and not wait for
        // ever.
        let is_failed = self.failed.load(Ordering::Acquire);
        match self.failure.get() {
            Some(error) => Err(error.duplicate()),
            None if is_failed => Err(RmaError::Usage("memory of an endpoint was overwritten".into())),
            None => Ok(()),
        }
    }

    /// Messages and bytes so far.
    pub fn counts(&self) -> EndpointCounts {
        let smp = self.smp.as_ref().map(SmpConduit::counts).unwrap_or_default();
        EndpointCounts { smp, ..self.counters.read() }
    }
}

/// An endpoint as its conduits see it: private to this crate, because its users could otherwise report an
/// operation as complete.
pub(crate) struct EndpointSink<'a>(&'a Endpoint);

impl Sink for EndpointSink<'_> {
    fn destination(&self, from: Peer, destination: Destination, bytes: usize) -> Result<*mut u8, RmaError> {
        self.0.destination(from, destination, bytes)
    }

    fn is_gone(&self, peer: Peer) -> bool {
        // After a failure callers free the memory of their gets.
        self.0.failed.load(Ordering::Acquire) || self.0.is_gone(peer)
    }

    fn region(&self, from: Peer, owner: Peer, region: RegionId) -> Option<Span> {
        self.0.registrable(from, owner, region)
    }

    fn completed(&self, server: Peer, operation: u64) -> Result<(), RmaError> {
        self.0.check_peer(server, "receiving")?;
        self.0.operations.answered(server, operation, None)
    }

    fn deliver(&self, delivery: Delivery<'_>) -> Result<(), RmaError> {
        self.0.deliver(delivery)
    }
}

impl Endpoint {
    /// Returns the destination of a peer's long payload; all its numbers are checked.
    fn destination(&self, from: Peer, destination: Destination, bytes: usize) -> Result<*mut u8> {
        self.check_peer(from, "receiving")?;
        match destination {
            Destination::Region { region, owner, offset } => {
                self.region_destination(from, region, owner, offset, bytes)
            }
            Destination::Operation { id, offset } => self.operations.destination(from, id, offset, bytes),
        }
    }

    fn deliver(&self, delivery: Delivery<'_>) -> Result<()> {
        let handler = self.handler_of(delivery.from, delivery.handler)?;
        if delivery.arguments.len() > ARGUMENTS_MAX {
            let what = format!("a message with {} arguments", delivery.arguments.len());
            return Err(RmaError::Protocol { peer: Some(delivery.from), what });
        }
        let carrier = match self.routes.get(delivery.from.0 as usize) {
            Some(Route::Smp(_)) => Carrier::Smp,
            Some(Route::Loopback) => Carrier::Loopback,
            _ => Carrier::Network,
        };
        self.counters.delivered(carrier, &delivery);
        if self.is_gone(delivery.from) {
            return Ok(());
        }
        let token = Token::new(self, delivery.from, delivery.direction);
        match delivery.payload {
            // Not a copy of what the conduit has just written: the processor would wait for it.
            Arrived::Short => handler(&token, delivery.arguments, Arrived::Short),
            payload => handler(&token, delivery.arguments, payload),
        }
        Ok(())
    }
}
