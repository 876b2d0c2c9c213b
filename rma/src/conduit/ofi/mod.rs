//! Active messages and one-sided access over libfabric: whatever network it has a provider for, such as Slingshot (`cxi`), EFA,
//! Omni-Path (`opx`, `psm3`), and InfiniBand (`verbs`).
//!
//! * `fabric`: libfabric as objects, found at run time, and all `unsafe`. `choice`: which of its providers.
//! * `notice`: the peers' first exchange, over a tcp connection that proves the job's key; `connecting`.
//! * `connection`: sending, credits; `packet`: the bytes; `window`: their order; `receive`: handling
//!   completions.
//! * `shared`: the state common to all connections, with registered memory (see `conduit::oneside`).
//! * `truth`: whether a write that has completed is visible. `wire`: where tests put a bad network.
//!
//! # What is asked of a provider, and what is not
//!
//! Unconnected reliable endpoints (`FI_EP_RDM`) with messages and one-sided access, used by any thread. No
//! order is asked for: packets have numbers of ours and are put in order on arrival, within a window.
//! Completions that a provider may give early are not trusted: a packet has come when its receiver says so,
//! and a write is visible when it completes with `FI_DELIVERY_COMPLETE` if a trial shows that to be true
//! (`truth`), and if not, the bytes travel in packets.
//!
//! | operation | requests |
//! |---|---|
//! | short or medium message; long one of up to some 8 KiB | one packet |
//! | other long message | a write into the receiver's region, and, when that is visible, a packet; before access is granted, and where writes cannot be trusted, packets |
//! | put | a write into the owner's segment; where writes cannot be trusted, packets that are acknowledged |
//! | get | a read from it |
//! | atomic update | messages: a card's updates and the processor's do not agree on the same word |
//!
//! Memory is registered explicitly, when the first peer wants it, and named by unguessable keys. A packet
//! that does not begin as its sender was told over the proven connection is dropped.
//!
//! # Words
//!
//! A card writes and reads whole cache lines. Providers that move bytes with the processor (`tcp`, `net`,
//! `shm`) have the C library or the kernel copy them, and either divides words: of a put or get of some KiB
//! beside another access to the same bytes an aligned word may be half old and half new there; shared memory
//! and the tcp conduit exclude that.
//!
//! # Loss
//!
//! The end of a process is seen at once, by the end of its tcp connection; a machine that falls silent as the
//! tcp conduit sees it. An error of the provider ends its connection.
//!
//! # Sleeping
//!
//! On the descriptor of the completion queue, if the provider has one, but never longer than 10 ms: some are known to miss
//! a wake-up. Without one, 1 ms at a time.

#![deny(unsafe_code)]

mod choice;
mod connecting;
mod connection;
#[allow(unsafe_code)]
mod fabric;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod notice;
mod options;
mod packet;
mod provider;
mod receive;
mod shared;
#[cfg(test)]
mod shim;
#[cfg(test)]
mod tests;
mod truth;
mod window;
mod wire;

pub use fabric::{REMEDY, types};
pub use options::OfiOptions;
pub use shared::OfiCounts;

pub(super) use provider::PROVIDER;

use self::choice::{AUTOMATIC, Offered, choose, names};
use self::connection::{Accepted, Connection, OneSided};
use self::fabric::{Offer, Posted};
use self::notice::Notice;
use self::receive::Inbox;
use self::shared::{Shared, lock};
use self::wire::{Sizes, Wire};
use super::oneside::{Notices, SLOT_BYTES};
use super::tcp::{TcpConduit, TcpSpec};
use super::turn::Turn;
use super::wire::frame::HEAD_BYTES_MAX;
use super::{Capabilities, Conduit, Loan, Part, Place, Sent, Traffic};
use crate::address::{Layout, Peer, RegionId};
use crate::error::{HAS_LEFT, Result, RmaError};
use crate::message::{ARGUMENTS_MAX, Message, Payload, Sink, Source};
use rustc_hash::FxHashMap;
use rustix::event::epoll;
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};
use vgas_shm::{Span, cores};

/// The name of this conduit.
pub const NAME: &str = "ofi";

/// Bytes of a receive slot, and so of the largest packet.
const PACKET_BYTES_MAX: usize = SLOT_BYTES;

/// Most payload bytes of a medium message.
pub const MEDIUM_BYTES_MAX: usize = PACKET_BYTES_MAX - HEAD_BYTES_MAX - 64;

/// Most payload bytes of a long message. Staging memory has room for two.
pub const LONG_BYTES_MAX: usize = 4 << 20;

/// Most bytes that are handed over without a completion: as many as are worth another copy.
const INJECT_MAX: usize = 2048;

/// Requests in flight in all, and writes and reads on one connection.
const REQUESTS: u32 = 512;
const DEPTH: u32 = 128;

/// Receive slots.
const SLOTS: u32 = 256;

/// Most messages that one poll delivers, so that other conduits get their turn.
const POLL_MESSAGES: usize = 64;

/// Completions taken from the port at once.
const COMPLETIONS: usize = 16;

/// A look at the tcp connections costs a system call, and rarely finds something (see `ibv`).
const POLLS_PER_BOOTSTRAP: u32 = 1024;
const POLLS_PER_TICK: u32 = 32;

/// Packets that wait for room before a peer's requests are left alone.
const REPLIES_WAITING_MAX: usize = 32;

/// The longest sleep.
const SLEEP_MAX: Duration = Duration::from_millis(10);

/// The longest sleep if a provider cannot wake.
const SLEEP_WITHOUT_DESCRIPTOR: Duration = Duration::from_millis(1);

/// Timeout of a conduit that is dropped without being closed, for peers that may never look.
const DROP_TIMEOUT: Duration = Duration::from_millis(10);

impl Offered for Offer {
    fn provider(&self) -> &str {
        &self.provider
    }

    fn address(&self) -> Option<IpAddr> {
        self.address
    }
}

/// Checks that libfabric has this provider for this conduit; otherwise returns the reason, in words.
///
/// # Errors
/// See above.
pub fn available(provider: &str) -> Result<(), String> {
    offer_of(&[provider.to_owned()], IpAddr::from([127, 0, 0, 1])).map(drop)
}

/// The offer of libfabric's that a node at this address takes.
fn offer_of(wished: &[String], address: IpAddr) -> Result<&'static Offer, String> {
    let offers = fabric::offers()?;
    choose(offers, wished, address).ok_or_else(|| {
        let there = names(offers);
        let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
        let wanted = if wished.is_empty() {
            format!("takes {} by itself", AUTOMATIC.join(", "))
        } else {
            format!("is to take {} (ofi.provider)", wished.join(", "))
        };
        format!(
            "the ofi conduit {wanted}; libfabric has {there}: name one of them with ofi.provider, or use tcp"
        )
    })
}

/// The conduit. See the module's page.
pub struct OfiConduit {
    layout: Layout,
    me: Peer,
    capabilities: Capabilities,
    slots: Box<[OnceLock<Connection>]>,
    /// Held while a connection is made.
    making: Mutex<()>,
    /// The peers with a connection, in the order of their making.
    known: RwLock<Vec<Peer>>,
    /// Parts of hellos that are not complete.
    hellos: Mutex<FxHashMap<Peer, Vec<u8>>>,
    /// Connections that are made and not open.
    connecting: AtomicUsize,
    /// Something has opened since the last poll ended: a connection, or a region.
    opened: AtomicBool,
    notices: Notices<Notice>,
    turn: Turn,
    inbox: Mutex<Inbox>,
    parked: AtomicUsize,
    held: AtomicUsize,
    polls: AtomicU32,
    /// The coarse clock when the tcp connections were last looked at because of it, in nanoseconds.
    tick: AtomicU64,
    woken: AtomicBool,
    closing: AtomicBool,
    poller: OwnedFd,
    timer: OwnedFd,
    shared: Shared,
    #[cfg(test)]
    numbering_is_off: bool,
}

impl std::fmt::Debug for OfiConduit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let provider = &self.shared.wire.offer().provider;
        f.debug_struct("OfiConduit").field("me", &self.me).field("provider", provider).finish_non_exhaustive()
    }
}

impl OfiConduit {
    /// Opens a provider's endpoint and starts to accept connections, at the address that `bootstrap` names.
    ///
    /// # Errors
    /// [`RmaError::Refused`] when libfabric or a provider is missing; [`RmaError::Io`] when the provider refuses; and those of
    /// [`TcpConduit::new`].
    pub fn new(bootstrap: TcpSpec, options: OfiOptions) -> Result<Self> {
        let (layout, me) = (bootstrap.layout.clone(), bootstrap.me);
        let address = bootstrap.addresses.get(me.0 as usize).map(std::net::SocketAddr::ip);
        let address = address.unwrap_or(IpAddr::from([127, 0, 0, 1]));
        let offer = offer_of(&options.providers, address)
            .map_err(|reason| RmaError::Refused(format!("the ofi conduit cannot be used: {reason}")))?;
        let delivers = truth::delivers(
            offer,
            #[cfg(test)]
            options.faults.as_ref(),
        )?;
        let sizes =
            Sizes { requests: REQUESTS, slots: SLOTS, slot_bytes: PACKET_BYTES_MAX, peers: layout.peers() };
        let wire = Wire::open(
            offer,
            sizes,
            #[cfg(test)]
            options.faults.as_ref(),
        )?;
        for index in 0..wire.slots {
            let slot = wire.slot(wire.requests + index);
            if slot.map(|slot| slot.post()).transpose()? == Some(Posted::Again) {
                return Err(RmaError::Refused(format!(
                    "libfabric's {} takes {index} receives only",
                    offer.provider
                )));
            }
        }
        let shared = Shared::new(wire, delivers, me)?;
        let tcp = TcpConduit::new(bootstrap)?;
        let (poller, timer) = descriptors(&shared.wire, &tcp)?;
        Ok(Self {
            slots: (0..layout.peers()).map(|_| OnceLock::new()).collect(),
            layout,
            me,
            capabilities: Capabilities {
                medium_bytes_max: MEDIUM_BYTES_MAX,
                long_bytes_max: LONG_BYTES_MAX,
                ordered: true,
                long_to_operation: true,
                load_store: false,
                one_sided: true,
                atomics: false,
                polls_through_kernel: false,
            },
            making: Mutex::default(),
            known: RwLock::default(),
            hellos: Mutex::default(),
            connecting: AtomicUsize::new(0),
            opened: AtomicBool::new(false),
            notices: Notices::new(tcp),
            turn: Turn::default(),
            inbox: Mutex::default(),
            parked: AtomicUsize::new(0),
            held: AtomicUsize::new(0),
            polls: AtomicU32::new(0),
            tick: AtomicU64::new(0),
            woken: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            poller,
            timer,
            shared,
            #[cfg(test)]
            numbering_is_off: options.faults.is_some_and(|faults| faults.numbering_is_off),
        })
    }

    /// Returns the counts so far: for measurements and tests.
    pub fn counts(&self) -> OfiCounts {
        self.shared.counts.read()
    }

    /// The provider in use.
    pub fn provider(&self) -> &str {
        &self.shared.wire.offer().provider
    }

    /// Returns true if writes are used: they are visible when they complete. Otherwise bytes travel in
    /// packets.
    pub fn writes(&self) -> bool {
        self.shared.delivers
    }

    fn connection(&self, peer: Peer) -> Option<&Connection> {
        self.slots.get(peer.0 as usize)?.get()
    }

    fn known_connections(&self) -> impl Iterator<Item = &Connection> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner).clone();
        known.into_iter().filter_map(|peer| self.connection(peer))
    }

    /// Returns true if the system's coarse clock, which is read without a system call, has moved since the
    /// last such look.
    fn has_ticked(&self) -> bool {
        let now = clock_gettime(ClockId::MonotonicCoarse);
        let tick = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
        self.tick.swap(tick, Ordering::Relaxed) != tick
    }

    fn lost(&self, connection: &Connection, during: &str) -> RmaError {
        let (peer, who) = (connection.peer, self.layout.describe(connection.peer));
        let reason = connection.lost().unwrap_or("its connection ended").into();
        RmaError::PeerLost { peer, who, during: during.into(), reason }
    }

    /// The peer broke the protocol: an error the first time.
    fn refuse(&self, connection: &Connection, error: RmaError) -> Result<()> {
        let error = match error {
            error @ RmaError::Protocol { peer: Some(_), .. } => error,
            other => RmaError::Protocol { peer: Some(connection.peer), what: other.to_string() },
        };
        if connection.lose(error.to_string()) { Err(error) } else { Ok(()) }
    }

    fn violation(&self, connection: &Connection, what: impl Into<String>) -> Result<()> {
        self.refuse(connection, RmaError::Protocol { peer: Some(connection.peer), what: what.into() })
    }

    /// Passes the caller's own mistakes on, and turns everything else into the loss of the peer.
    fn posted<T: Default>(&self, connection: &Connection, result: Result<T>, during: &str) -> Result<T> {
        match result {
            Err(
                error @ (RmaError::OutOfRange { .. }
                | RmaError::NoSuchRegion { .. }
                | RmaError::Usage(_)
                | RmaError::Refused(_)),
            ) => Err(error),
            Err(other) => {
                // One that has left is no loss: what goes to it then is of no interest.
                if self.notices.tcp.has_left(connection.peer) || self.closing.load(Ordering::Acquire) {
                    connection.lose(HAS_LEFT.into());
                    return Ok(T::default());
                }
                connection.lose(other.to_string());
                Err(self.lost(connection, during))
            }
            Ok(value) => Ok(value),
        }
    }

    /// The limits of a message; the receiver checks the same.
    fn check(message: &Message<'_>) -> Result<()> {
        let (bytes, limit) = match message.payload {
            Payload::Short => (0, 0),
            Payload::Medium(source) => (source.bytes(), MEDIUM_BYTES_MAX),
            Payload::Long(source, _) => (source.bytes(), LONG_BYTES_MAX),
        };
        if message.arguments.len() > ARGUMENTS_MAX || bytes > limit {
            return Err(RmaError::Usage(format!(
                "a message of {} arguments and {bytes} bytes; {ARGUMENTS_MAX} and {limit} are possible",
                message.arguments.len()
            )));
        }
        Ok(())
    }

    /// The connection to send on.
    fn outgoing(&self, to: Peer, during: &str) -> Result<&Connection> {
        if !self.reaches(to) {
            return Err(RmaError::Usage(format!("the ofi conduit of {} cannot send to {to}", self.me)));
        }
        if self.closing.load(Ordering::Acquire) {
            return Err(RmaError::Usage("sending after the conduit was closed".into()));
        }
        let connection = self.connection_to(to)?;
        if connection.lost().is_some() { Err(self.lost(connection, during)) } else { Ok(connection) }
    }

    fn send(&self, to: Peer, message: &Message<'_>, lent: bool) -> Result<Accepted> {
        Self::check(message)?;
        let connection = self.outgoing(to, "sending")?;
        self.posted(connection, connection.send(&self.shared, message, lent), "sending")
    }

    fn start(&self, server: Peer, place: Place, what: &OneSided<'_>, operation: u64) -> Result<Sent> {
        let connection = self.outgoing(server, "reading or writing its memory")?;
        let name = (place.owner, place.region);
        let started = connection.start(&self.shared, name, place.offset, what, operation);
        Ok(match self.posted(connection, started, "reading or writing its memory")? {
            Accepted::Yes(_) => Sent::Accepted,
            Accepted::NoRoom => Sent::Busy,
        })
    }
}

/// Builds the descriptors that a thread sleeps on: the completion queue, the tcp connections, and a timer.
fn descriptors(wire: &Wire, tcp: &TcpConduit) -> Result<(OwnedFd, OwnedFd)> {
    let system = |e| RmaError::system("create the descriptors of the ofi conduit", e);
    let poller = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system)?;
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    let timer = timerfd_create(TimerfdClockId::Monotonic, flags).map_err(system)?;
    let all = [Some(tcp.wait_descriptor()), Some(timer.as_fd()), wire.descriptor()];
    for (index, descriptor) in all.into_iter().flatten().enumerate() {
        let data = epoll::EventData::new_u64(index as u64);
        epoll::add(&poller, descriptor, data, epoll::EventFlags::IN).map_err(system)?;
    }
    Ok((poller, timer))
}

impl Conduit for OfiConduit {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn reaches(&self, to: Peer) -> bool {
        to != self.me && self.layout.contains(to)
    }

    fn try_send(&self, to: Peer, message: &Message<'_>) -> Result<Sent> {
        Ok(match self.send(to, message, false)? {
            Accepted::Yes(_) => Sent::Accepted,
            Accepted::NoRoom => Sent::Busy,
        })
    }

    fn try_send_lent(&self, to: Peer, message: &Message<'_>, _lent: &Span) -> Result<Option<Loan>> {
        Ok(match self.send(to, message, true)? {
            Accepted::Yes(loan) => Some(Loan(loan)),
            Accepted::NoRoom => None,
        })
    }

    fn is_returned(&self, to: Peer, loan: Loan) -> bool {
        self.connection(to).is_none_or(|connection| connection.is_returned(loan.0))
    }

    fn offer(&self, region: RegionId, memory: Span) {
        self.shared.offer((self.me, region), memory);
    }

    fn forget(&self, owner: Peer, region: RegionId) {
        self.known_connections().for_each(|connection| connection.forget((owner, region)));
        self.shared.forget((owner, region));
    }

    fn start_put(
        &self,
        server: Peer,
        place: Place,
        from: Source<'_>,
        stays: bool,
        operation: u64,
    ) -> Result<Sent> {
        self.start(server, place, &OneSided::Put { source: from, stays }, operation)
    }

    fn start_get(&self, server: Peer, place: Place, part: Part) -> Result<Sent> {
        self.start(server, place, &OneSided::Get(part), part.operation)
    }

    fn poll(&self, sink: &dyn Sink, traffic: Traffic) -> Result<usize> {
        let Some(turn) = self.turn.take() else { return Ok(0) };
        let traffic = if turn.nested { Traffic::RepliesOnly } else { traffic };
        let polls = self.polls.fetch_add(1, Ordering::Relaxed);
        let woken = self.woken.load(Ordering::Relaxed) && self.woken.swap(false, Ordering::AcqRel);
        if polls.is_multiple_of(POLLS_PER_BOOTSTRAP)
            || (polls.is_multiple_of(POLLS_PER_TICK) && self.has_ticked())
            || self.connecting.load(Ordering::Acquire) > 0
            || self.notices.is_pending()
            || woken
        {
            self.poll_connecting()?;
        }
        let mut count = 0;
        if self.held.load(Ordering::Acquire) > 0 && !matches!(traffic, Traffic::Below(_)) {
            count += self.deliver_held(sink)?;
        }
        if traffic.has_requests() && self.parked.load(Ordering::Acquire) > 0 {
            count += self.deliver_parked(sink, traffic, POLL_MESSAGES)?;
        }
        count += self.take_in(sink, traffic, POLL_MESSAGES.saturating_sub(count))?;
        count += self.tell_ended(sink)?;
        self.flush()?;
        self.acknowledge()?;
        // Counts as a message, of which all threads are told: one that was refused may sleep on what this thread has read.
        let opened = self.opened.load(Ordering::Relaxed) && self.opened.swap(false, Ordering::AcqRel);
        Ok(count + usize::from(opened))
    }

    fn flush(&self) -> Result<()> {
        if !self.has_unsent() {
            return Ok(());
        }
        for connection in self.known_connections().filter(|c| c.waiting() > 0 && c.lost().is_none()) {
            self.posted(connection, connection.flush(&self.shared), "sending")?;
        }
        Ok(())
    }

    fn has_unsent(&self) -> bool {
        self.shared.waiting.load(Ordering::Acquire) != 0
    }

    fn wait_descriptor(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }

    fn arm(&self) -> bool {
        // Another thread is polling: it may find the message that the caller waits for.
        let Some(turn) = self.turn.take() else { return false };
        let held = self.held.load(Ordering::Acquire) > 0;
        let parked = held || (!turn.nested && self.parked.load(Ordering::Acquire) > 0);
        if parked || !lock(&self.inbox).is_empty() || self.shared.ended_count.load(Ordering::Acquire) > 0 {
            return false;
        }
        let wakes = self.shared.wire.descriptor().is_some() && !self.has_unsent();
        let longest = if wakes { SLEEP_MAX } else { SLEEP_WITHOUT_DESCRIPTOR };
        let longest = Timespec { tv_sec: 0, tv_nsec: i64::from(longest.subsec_nanos()) };
        let once = Itimerspec { it_interval: Timespec::default(), it_value: longest };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once).is_ok()
            && self.shared.wire.may_sleep()
            && self.notices.tcp.arm()
    }

    fn disarm(&self) {
        self.notices.tcp.disarm();
        self.woken.store(true, Ordering::Release);
    }

    fn close(&self, timeout: Duration) {
        if self.closing.swap(true, Ordering::AcqRel) {
            return;
        }
        let deadline = Instant::now() + timeout;
        let Some(_turn) = self.turn.take() else { return };
        let mut naps = 0;
        loop {
            // A failure here is the end of a connection, which is the condition in question.
            let heard = self.poll_connecting();
            let mut waits = false;
            for connection in self.known_connections() {
                if self.notices.tcp.has_left(connection.peer) {
                    // Its endpoint is gone, or soon will be: nothing is sent to it any more.
                    connection.lose(HAS_LEFT.into());
                }
                waits |= !connection.say_goodbye(&self.shared).unwrap_or(true);
            }
            let idle = self.shared.is_idle();
            let failed = self.take_while_closing().is_err() || heard.is_err();
            if (!waits && idle) || failed || Instant::now() >= deadline {
                break;
            }
            cores::nap(&mut naps);
        }
        self.notices
            .tcp
            .close(deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(100)));
    }
}

impl Drop for OfiConduit {
    fn drop(&mut self) {
        self.close(DROP_TIMEOUT);
    }
}
