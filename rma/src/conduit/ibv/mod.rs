//! Active messages and one-sided access over RDMA: ibverbs reliable connections, on any device that libibverbs has a
//! provider for (DRust §4.2.1 and §5; DArray §4.5).
//!
//! * `verbs`: libibverbs as objects, found at run time, and all `unsafe`. `device`: which card, port and address.
//! * `notice`: the peers' exchange for setting up connections, over a tcp connection that proves the job's
//!   key. `cm`: through librdmacm, in a `network` of addresses.
//! * `events`: events of the device itself.
//! * `connecting`: making connections; `receive`: handling completions.
//! * `connection`: sending, credits, regions; `packet`: the bytes.
//! * `shared`: the state common to all connections, with registered memory (see `conduit::oneside`).
//!
//! # What travels how
//!
//! | operation | verbs | completions |
//! |---|---|---|
//! | short message, or one that fits inline | SEND | one in `signal_interval` |
//! | medium message | SEND from staging memory | one |
//! | block with a note | WRITE with immediate data into the receiver's region | one |
//! | other long message | WRITE into the receiver's region, SEND, in one post | one for both |
//! | put | WRITE into the owner's segment; nobody there takes part | one |
//! | get | READ from it | one |
//! | atomic update | FETCH_ADD or CMP_SWAP of it, if the device offers them; otherwise messages | one |
//!
//! A long payload that its sender lends ([`Conduit::try_send_lent`]) goes out of the sender's own registered region
//! without a copy: a block is moved from one agent's region to another's by the two cards alone.
//!
//! A put whose source stays as it is (a blocking or a bulk one), and a get, of more than 512 bytes move them straight out of
//! and into the caller's memory if that is in the rank's own part of a segment, which is registered when this first happens. Other
//! memory is copied: to staging memory, or by the post if it is little.
//!
//! Regions are registered when the first peer wants them, as far as they are attached, and an agent's blocks
//! also when another agent first lets it write into its own: it then sends from them. Registered pages are
//! locked in memory. If the system does not let this process lock so many, the device is asked to do without
//! (on-demand paging); if it cannot, [`RmaError::LockedMemory`] says what to do.
//!
//! # Words
//!
//! A transfer is divided into packets of the connection's MTU, counted from its beginning. If that is within
//! an aligned word, a put or get of more than a packet beside another access to the same bytes may leave a
//! word half old and half new, as was seen on Soft-RoCE; for transfers that begin at a word, none was.
//!
//! # Which card, and how peers are found
//!
//! Without a setting: InfiniBand before Ethernet, the faster card before the slower, the port that is up,
//! RoCE v2 over IPv4 before other addresses, the smaller MTU of both sides, as many READs in flight as both
//! devices can; nodes of one machine spread over equal cards. On InfiniBand peers are addressed by their
//! LIDs, in the partition with the first key. A job with one node has no use for a card: its ranks share
//! memory, whatever the conduit. Queue pairs find each other over the tcp conduit's connections and not
//! through librdmacm: the proof of the key needs such a connection anyway, it has the addresses, and its end
//! tells of the peer's. That leaves out iWARP, and InfiniBand across routers.
//!
//! # Loss
//!
//! Messages are numbered, because Soft-RoCE (Linux 6.1), when it retransmits, was seen to deliver one twice:
//! the second is dropped; a missing one is a loss. (A WRITE that such a device repeats cannot be told from
//! the first.) Events of a device are read every now and then, and soon when it wakes a sleeping thread: a
//! failed device is the loss of all peers, a failed queue pair that of its peer, both with the device's name
//! and port.
//!
//! The end of a process is seen at once, by the end of its tcp connection; a network that is cut, after
//! `retries` times `timeout` with something in flight, else as the tcp conduit sees it. Access outside of
//! registered memory, or with a wrong key, such as that of a detached segment, is refused by the owner's card
//! and ends the offender's connection. Within a region that was granted to a peer the card does not ask:
//! blocks are granted to agents only, segments to all, as GASNet does.
//!
//! # Thousands of peers
//!
//! Connections are made lazily, and receive slots are shared by all of them (a shared receive queue), so a
//! peer that is never spoken to costs nothing and a connected one a queue pair of `depth` requests. When
//! slots run out the device makes senders wait and try again. If queue pairs themselves become too many (some
//! ten thousand on one card), the next steps are one XRC or DC initiator per node instead of one per rank;
//! the seam for that is `connection`.

#![deny(unsafe_code)]

mod cm;
mod connecting;
mod connection;
mod device;
mod events;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
#[cfg(test)]
mod hostile;
mod network;
mod notice;
mod options;
mod packet;
mod provider;
mod receive;
mod shared;
#[allow(unsafe_code)]
mod verbs;

pub use device::{DeviceState, devices};
pub use network::Network;
pub use options::IbvOptions;
pub use shared::IbvCounts;
pub use verbs::{CM_REMEDY, REMEDY, available, cm_available, cm_types, locked_memory_limit, types};

pub(super) use provider::PROVIDER;

use self::cm::Manager;
use self::connection::{Connection, OneSided, Posted, lock, sent_by};
use self::events::{Verdict, judge};
use self::notice::Notice;
use self::shared::Shared;
use self::verbs::Queues;
use self::verbs::types::Completion;
use self::verbs::types::number::IBV_WC_SUCCESS;
use super::oneside::{Notices, SLOT_BYTES};
use super::tcp::{TcpConduit, TcpSpec};
use super::turn::Turn;
use super::wire::frame::HEAD_BYTES_MAX;
use super::{Capabilities, Conduit, Loan, Part, Place, Sent, Traffic};
use crate::address::{Layout, NodeId, Peer, RegionId};
use crate::error::{HAS_LEFT, Result, RmaError};
use crate::message::{ARGUMENTS_MAX, Message, Payload, Sink, Source};
use rustc_hash::FxHashMap;
use rustix::event::epoll;
use rustix::time::{ClockId, clock_gettime};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};
use vgas_shm::cores;
use vgas_shm::{Atomic, Span};

/// The name of this conduit.
pub const NAME: &str = "ibv";

/// Bytes of a receive slot, and so of the largest packet.
const PACKET_BYTES_MAX: usize = SLOT_BYTES;

/// Most payload bytes of a medium message.
pub const MEDIUM_BYTES_MAX: usize = PACKET_BYTES_MAX - HEAD_BYTES_MAX - 64;

/// Most payload bytes of a long message. Staging memory has room for two.
pub const LONG_BYTES_MAX: usize = 4 << 20;

/// Most bytes that are ever sent inline: as many as are worth a copy by the processor.
const INLINE_MAX: usize = 512;

/// Most messages that one poll delivers, so that other conduits get their turn.
const POLL_MESSAGES: usize = 64;

/// Completions taken from the device at once.
const COMPLETIONS: usize = 16;

/// A look at the tcp connections costs a system call, and rarely finds something: a peer that wants to be
/// connected, or has ended. One poll in this number looks, for threads that poll all the time, and the first
/// of some polls after each tick of the clock.
const POLLS_PER_BOOTSTRAP: u32 = 1024;
const POLLS_PER_TICK: u32 = 32;

/// A look at the device's events costs one, too, and is rarely worth it. A sleeping thread is woken by it: a
/// poll after a sleep counts as many, so that it is looked at soon.
const POLLS_PER_EVENTS: u32 = 4096;
const POLLS_PER_SLEEP: u32 = 256;

/// Replies to a peer that wait for room before its requests are left alone.
const REPLIES_WAITING_MAX: usize = 32;

/// The conduit. See the module's page.
pub struct IbvConduit {
    layout: Layout,
    me: Peer,
    capabilities: Capabilities,
    slots: Box<[OnceLock<Connection>]>,
    /// Held while a connection is made.
    making: Mutex<()>,
    /// The peers with a connection, in the order of their making.
    known: RwLock<Vec<Peer>>,
    /// Peers by queue pair.
    by_number: RwLock<FxHashMap<u32, Peer>>,
    /// Connections that are made and not open.
    connecting: AtomicUsize,
    /// One has opened since the last poll ended.
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
    /// librdmacm's, if that connects. After the connections, because their queue pairs go before what has
    /// connected them.
    manager: Option<Manager>,
    /// After the connections, because their requests use its memory (rule 3 of `verbs`).
    shared: Shared,
}

/// Completions taken from the device and not yet handled; only the thread whose turn it is uses it.
#[derive(Default)]
struct Inbox {
    /// Buffer that the device fills; completions in `ready` have not been taken.
    batch: [Completion; COMPLETIONS],
    ready: std::ops::Range<usize>,
    /// Put aside while closing; younger than those of the batch.
    kept: VecDeque<Completion>,
}

impl Inbox {
    fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.kept.is_empty()
    }

    /// Asks the device, when nothing is left. True: it may have more.
    fn fill(&mut self, queues: &Queues) -> Result<bool> {
        self.ready = 0..queues.poll(&mut self.batch)?;
        Ok(self.ready.len() == COMPLETIONS)
    }

    fn take(&mut self) -> Option<Completion> {
        match self.ready.next() {
            Some(index) => Some(self.batch[index]),
            None => self.kept.pop_front(),
        }
    }
}

impl std::fmt::Debug for IbvConduit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let device = &self.shared.chosen.context.name;
        f.debug_struct("IbvConduit").field("me", &self.me).field("device", device).finish_non_exhaustive()
    }
}

impl IbvConduit {
    /// Opens the device and starts to accept connections, at the address that `bootstrap` names.
    ///
    /// # Errors
    /// [`RmaError::Refused`] when libibverbs or a device is missing, or, with a network, librdmacm or an address in it;
    /// [`RmaError::LockedMemory`] when not even the queues may be registered; and those of [`TcpConduit::new`].
    pub fn new(bootstrap: TcpSpec, mut options: IbvOptions) -> Result<Self> {
        let (layout, me) = (bootstrap.layout.clone(), bootstrap.me);
        if options.staging_bytes < 2 * LONG_BYTES_MAX {
            let what = format!(
                "{} bytes of staging memory; {} are the least",
                options.staging_bytes,
                2 * LONG_BYTES_MAX
            );
            return Err(RmaError::Usage(what));
        }
        let index = nodes_before(&bootstrap);
        let mut manager = None;
        if let Some(network) = options.network {
            let wished = (options.device.as_deref(), options.port);
            let (made, device, port) = Manager::new(me, network, wished, index)?;
            (options.device, options.port, options.gid) = (Some(device), Some(port), None);
            manager = Some(made);
        }
        let shared = Shared::new(options, index, layout.peers())?;
        let tcp = TcpConduit::new(bootstrap)?;
        let system = |e| RmaError::system("create the descriptors of the ibv conduit", e);
        let poller = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system)?;
        let descriptors =
            [shared.queues.descriptor(), tcp.wait_descriptor(), shared.chosen.context.event_descriptor()];
        let descriptors = descriptors.into_iter().chain(manager.as_ref().map(Manager::descriptor));
        for (index, descriptor) in descriptors.enumerate() {
            let data = epoll::EventData::new_u64(index as u64);
            epoll::add(&poller, descriptor, data, epoll::EventFlags::IN).map_err(system)?;
        }
        Ok(Self {
            slots: (0..layout.peers()).map(|_| OnceLock::new()).collect(),
            layout,
            me,
            capabilities: Capabilities {
                medium_bytes_max: MEDIUM_BYTES_MAX,
                long_bytes_max: LONG_BYTES_MAX,
                ordered: true,
                long_to_operation: false,
                load_store: false,
                one_sided: true,
                atomics: shared.atomics,
                polls_through_kernel: false,
            },
            making: Mutex::default(),
            known: RwLock::default(),
            by_number: RwLock::default(),
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
            manager,
            shared,
        })
    }

    /// Requests and completions so far: for measurements and tests.
    pub fn counts(&self) -> IbvCounts {
        self.shared.counts.read()
    }

    /// The device in use.
    pub fn device(&self) -> &str {
        &self.shared.chosen.context.name
    }

    /// While closing: counts what is done and keeps the rest for later polls.
    fn take_completions(&self) -> Result<()> {
        let mut batch = [Completion::default(); COMPLETIONS];
        let count = self.shared.queues.poll(&mut batch)?;
        for completion in &batch[..count] {
            match sent_by(completion.wr_id) {
                Some((peer, low)) if completion.status == IBV_WC_SUCCESS => {
                    if let Some(connection) = self.connection(peer) {
                        connection.completed(&self.shared, low, |_, _| Ok(()))?;
                    }
                }
                Some((peer, _)) => {
                    if let Some(connection) = self.connection(peer) {
                        connection.lose(self.shared.explain(completion.status));
                    }
                }
                None => lock(&self.inbox).kept.push_back(*completion),
            }
        }
        Ok(())
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

    /// Handles the device's events.
    fn poll_events(&self) -> Result<()> {
        let context = &self.shared.chosen.context;
        let port = self.shared.chosen.route.port;
        while let Some(event) = context.next_event() {
            self.shared.counts.events.fetch_add(1, Ordering::Relaxed);
            match judge(event, &context.name, port) {
                Verdict::Nothing => {
                    tracing::debug!(device = context.name, ?event, "an event of the RDMA device")
                }
                Verdict::Note(what) => tracing::warn!("{what}"),
                Verdict::PortIs(up) => {
                    self.shared.port_is_down.store(!up, Ordering::Release);
                    let state = if up {
                        "is up again"
                    } else {
                        "is down: what is in flight is lost unless it comes back"
                    };
                    tracing::warn!("port {port} of the RDMA device {} {state}", context.name);
                }
                Verdict::PairLost(number, reason) => {
                    let by_number = self.by_number.read().unwrap_or_else(PoisonError::into_inner);
                    let peer = by_number.get(&number).copied();
                    drop(by_number);
                    if let Some(connection) = peer.and_then(|peer| self.connection(peer))
                        && connection.lose(reason)
                        && !self.notices.tcp.has_left(connection.peer)
                    {
                        return Err(self.lost(connection, "exchanging messages"));
                    }
                }
                Verdict::AllLost(reason) => {
                    let lost: Vec<_> = self.known_connections().filter(|c| c.lose(reason.clone())).collect();
                    return Err(match lost.first() {
                        Some(connection) => self.lost(connection, "exchanging messages"),
                        None => RmaError::Refused(reason),
                    });
                }
            }
        }
        Ok(())
    }

    /// A request of ours, or a receive, has failed.
    fn broken(&self, connection: &Connection, status: i32, during: &str) -> Result<()> {
        // A peer that ends says so before its queue pair goes; a flushed request is the consequence of an end.
        let heard = self.poll_connecting();
        // And a port that is down may explain it.
        let heard = heard.and(self.poll_events());
        let left = self.notices.tcp.has_left(connection.peer) || self.closing.load(Ordering::Acquire);
        let reason = if left { HAS_LEFT.into() } else { self.shared.explain(status) };
        if connection.lose(reason) && !left { Err(self.lost(connection, during)) } else { heard }
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
    fn posted<T>(&self, connection: &Connection, result: Result<T>, during: &str) -> Result<T> {
        result.map_err(|error| match error {
            error @ (RmaError::OutOfRange { .. }
            | RmaError::NoSuchRegion { .. }
            | RmaError::Usage(_)
            | RmaError::Refused(_)) => error,
            other => {
                connection.lose(other.to_string());
                self.lost(connection, during)
            }
        })
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
            return Err(RmaError::Usage(format!("the ibv conduit of {} cannot send to {to}", self.me)));
        }
        if self.closing.load(Ordering::Acquire) {
            return Err(RmaError::Usage("sending after the conduit was closed".into()));
        }
        let connection = self.connection_to(to)?;
        if connection.lost().is_some() { Err(self.lost(connection, during)) } else { Ok(connection) }
    }

    fn send(&self, to: Peer, message: &Message<'_>, lent: bool) -> Result<Posted> {
        Self::check(message)?;
        let connection = self.outgoing(to, "sending")?;
        self.posted(connection, connection.send(&self.shared, message, lent), "sending")
    }

    fn start(&self, server: Peer, place: Place, what: &OneSided, operation: u64) -> Result<Sent> {
        let connection = self.outgoing(server, "reading or writing its memory")?;
        let name = (place.owner, place.region);
        let posted = connection.start(&self.shared, name, place.offset, what, operation);
        Ok(match self.posted(connection, posted, "reading or writing its memory")? {
            Posted::At(_) => Sent::Accepted,
            Posted::NoRoom => Sent::Busy,
        })
    }
}

/// Nodes of the same machine, by their addresses, that come before this one.
fn nodes_before(bootstrap: &TcpSpec) -> usize {
    let (layout, addresses) = (&bootstrap.layout, &bootstrap.addresses);
    let machine = |node| addresses.get(layout.agent_of(node).0 as usize).map(|address| address.ip());
    let mine = layout.node_of_peer(bootstrap.me);
    (0..mine.0).filter(|&node| machine(NodeId(node)) == machine(mine)).count()
}

impl Conduit for IbvConduit {
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
            Posted::At(_) => Sent::Accepted,
            Posted::NoRoom => Sent::Busy,
        })
    }

    fn try_send_lent(&self, to: Peer, message: &Message<'_>, _lent: &Span) -> Result<Option<Loan>> {
        Ok(match self.send(to, message, true)? {
            Posted::At(count) => Some(Loan(count)),
            Posted::NoRoom => None,
        })
    }

    fn is_returned(&self, to: Peer, loan: Loan) -> bool {
        self.connection(to).is_none_or(|connection| connection.is_done(loan.0))
    }

    fn offer(&self, region: RegionId, memory: Span) {
        self.shared.own.offer((self.me, region), memory);
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

    fn start_atomic(&self, server: Peer, place: Place, atomic: Atomic, operation: u64) -> Result<Sent> {
        self.start(server, place, &OneSided::Atomic(atomic), operation)
    }

    fn poll(&self, sink: &dyn Sink, traffic: Traffic) -> Result<usize> {
        let Some(turn) = self.turn.take() else { return Ok(0) };
        let traffic = if turn.nested { Traffic::RepliesOnly } else { traffic };
        let polls = self.polls.load(Ordering::Relaxed);
        let woken = self.woken.load(Ordering::Relaxed) && self.woken.swap(false, Ordering::AcqRel);
        let next = polls.wrapping_add(if woken { POLLS_PER_SLEEP } else { 1 });
        self.polls.store(next, Ordering::Relaxed);
        if next / POLLS_PER_EVENTS != polls / POLLS_PER_EVENTS {
            self.poll_events()?;
        }
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
        let (mut completions, mut look) = (0, true);
        while count < POLL_MESSAGES
            && completions < 2 * POLL_MESSAGES
            && let Some(completion) = self.next_completion(&mut look)?
        {
            completions += 1;
            count += self.handle(&completion, sink, traffic)?;
        }
        self.flush()?;
        // Counts as a message, of which all threads are told: one that was refused may sleep on a connection whose last
        // bytes this thread has read. (What comes through the completion queue wakes it by an event.)
        let opened = self.opened.load(Ordering::Relaxed) && self.opened.swap(false, Ordering::AcqRel);
        Ok(count + usize::from(opened))
    }

    fn flush(&self) -> Result<()> {
        if !self.has_unsent() {
            return Ok(());
        }
        for connection in self.known_connections().filter(|c| c.is_waiting() && c.lost().is_none()) {
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
        let inbox = &mut *lock(&self.inbox);
        if parked || !inbox.is_empty() || self.shared.queues.request_event().is_err() {
            return false;
        }
        // Completions before the event was requested bring none.
        inbox.fill(&self.shared.queues).is_ok() && inbox.is_empty() && self.notices.tcp.arm()
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
        for connection in self.known_connections() {
            let mut naps = 0;
            while let Some(count) = connection.say_goodbye(&self.shared) {
                if connection.is_done(count) || Instant::now() >= deadline || self.take_completions().is_err()
                {
                    break;
                }
                cores::nap(&mut naps);
            }
        }
        self.notices
            .tcp
            .close(deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(100)));
    }
}

impl Drop for IbvConduit {
    fn drop(&mut self) {
        self.close(Duration::from_secs(1));
    }
}
