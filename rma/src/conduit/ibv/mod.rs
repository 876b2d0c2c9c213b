//! Active messages and one-sided access over RDMA: ibverbs reliable connections, on any device that libibverbs has a
//! provider for (drust-osdi24.txt section 4.2.1 and section 5; darray-icpp23.txt section 4.5).
//!
//! * `verbs`: libibverbs as objects, found at run time, and all `unsafe`. `device`: which card, port and address.
//! * `bootstrap`: setting connections up, over a tcp connection that proves the job's key. `cm`: through librdmacm, in a
//!   `network` of addresses.
//! * `events`: what the device says about itself.
//! * `connection`: sending, credits, regions; `staging`: registered memory for private bytes; `packet`: the bytes.
//! * `shared`: what all connections have in common.
//!
//! # What travels how
//!
//! | operation | verbs | completions |
//! |---|---|---|
//! | short message, or one that fits inline | SEND | one in `signal_interval` |
//! | medium message | SEND from staging memory | one |
//! | page for a frame | WRITE with immediate data into the receiver's frame | one |
//! | other long message | WRITE into the receiver's region, SEND, in one post | one for both |
//! | put | WRITE into the owner's segment; nobody there takes part | one |
//! | get | READ from it into staging memory | one |
//! | atomic update | FETCH_ADD or CMP_SWAP of it, if the device offers them; otherwise messages | one |
//!
//! A long payload that its sender lends ([`Conduit::try_send_lent`]) goes out of the sender's own registered region
//! without a copy: a page is moved from the forwarder's frame to the requester's by the two cards alone.
//!
//! Regions are registered when the first peer wants them, as far as they are attached, and an agent's frames also when
//! another agent first lets it write into its own: pages are sent out of them from then on. Registered pages are locked in
//! memory. Where the system does not let this process lock so many, the device is asked to do without (on-demand paging);
//! one that cannot gets [`RmaError::LockedMemory`], which says what to do.
//!
//! # Which card, and how peers are found
//!
//! Without a setting: InfiniBand before Ethernet, the faster card before the slower, the port that is up, RoCE v2 over IPv4
//! before other addresses, the smaller MTU of both sides, as many READs under way as both devices can; nodes of one machine
//! spread over equal cards. On InfiniBand peers are addressed by their LIDs, in the partition with the first key. A job with
//! one node has no use for a card: its ranks share memory, whatever the conduit. Queue pairs find each
//! other over the tcp conduit's connections and not through librdmacm: the proof of the key needs such a connection anyway, it
//! has the addresses, and its end tells of the peer's. What that leaves out is iWARP, and InfiniBand across routers.
//!
//! # Loss
//!
//! Messages are numbered, because Soft-RoCE (Linux 6.1), where it sends again what was lost, was seen to deliver one twice:
//! it is dropped; one that is missing is a loss. (A WRITE that such a device repeats cannot be told from the first.) What a
//! device says about itself is read every now and then, and soon when it wakes a thread that sleeps: one that has failed is the
//! loss of all peers, a queue pair that has failed that of its peer, both with the device's name and port.
//!
//! The end of a process is seen at once, by the end of its tcp connection; a network that is cut, after `retries` times
//! `timeout` with something under way, else as the tcp conduit sees it. Access outside of what is registered, or with a
//! wrong key, is refused by the owner's card and ends the connection of who tried. Within a region that was granted to a peer
//! the card asks nobody: frames are granted to agents only, segments to all, as GASNet does.
//!
//! # Thousands of peers
//!
//! Connections are made lazily, and receive slots are shared by all of them (a shared receive queue), so a peer that is
//! never spoken to costs nothing and a connected one a queue pair of `depth` requests. When slots run out the device
//! makes senders wait and try again. Where queue pairs themselves become too many (some ten thousand on one card), the
//! next steps are one XRC or DC initiator per node instead of one per rank; the seam for that is `connection`.

#![deny(unsafe_code)]

mod bootstrap;
mod cm;
mod connection;
mod device;
mod events;
#[cfg(test)]
mod hostile;
mod network;
mod packet;
mod shared;
mod staging;
#[allow(unsafe_code)]
mod verbs;

pub use device::{DeviceState, devices};
pub use network::Network;
pub use shared::IbvCounts;
pub use verbs::{CM_REMEDY, REMEDY, available, cm_available, cm_types, locked_memory_limit, types};

use self::bootstrap::{Bootstrap, Notice};
use self::cm::Manager;
use self::connection::{CREDITS, Connection, OneSided, Posted, lock, sent_by};
use self::events::{Verdict, judge};
use self::packet::{Control, Number, Order};
use self::shared::Shared;
use self::verbs::types::Completion;
use self::verbs::types::number::{IBV_WC_RECV, IBV_WC_RECV_RDMA_WITH_IMM, IBV_WC_SUCCESS};
use super::tcp::frame::{self, Body, HEAD_BYTES_MAX, Head, Kind};
use super::tcp::{TcpConduit, TcpSpec};
use super::turn::Turn;
use super::{Capabilities, Conduit, Loan, Place, Sent, Traffic};
use crate::address::{Layout, NodeId, Peer, RegionId};
use crate::error::{Result, RmaError};
use crate::message::{
    ARGUMENTS_MAX, Arrived, Delivery, Destination, Direction, Message, Payload, Sink, Source,
};
use crate::shm::{Atomic, Span};
use rustix::event::epoll;
use rustix::time::{ClockId, clock_gettime};
use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// Bytes of a receive slot, and so of the largest packet.
const PACKET_BYTES_MAX: usize = staging::BLOCK_BYTES;

/// Most payload bytes of a medium message.
pub const MEDIUM_BYTES_MAX: usize = PACKET_BYTES_MAX - HEAD_BYTES_MAX - 64;

/// Most payload bytes of a long message: the largest page. Staging memory has room for two.
pub const LONG_BYTES_MAX: usize = 4 << 20;

/// Most bytes that are ever sent inline: what is worth a copy by the processor.
const INLINE_MAX: usize = 512;

/// Most messages that one poll delivers, so that other conduits get their turn.
const POLL_MESSAGES: usize = 64;

/// Completions taken from the device at once.
const COMPLETIONS: usize = 16;

/// A look at the tcp connections costs a system call, and what it finds is rare: a peer that wants to be connected, or has
/// ended. One poll in so many, for those who poll all the time, and the first of some polls after each tick of the clock.
const POLLS_PER_BOOTSTRAP: u32 = 1024;
const POLLS_PER_TICK: u32 = 32;

/// A look at what the device says about itself costs one, too, and is rarely worth it. Who sleeps is woken by it: a poll
/// after a sleep counts as many, so that it is looked at soon.
const POLLS_PER_EVENTS: u32 = 4096;
const POLLS_PER_SLEEP: u32 = 256;

/// Replies to a peer that wait for room before its requests are left alone.
const REPLIES_WAITING_MAX: usize = 32;

/// The choices of an [`IbvConduit`]. The defaults suit every device; the settings `ibv.*` of a job override them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IbvOptions {
    /// The device by name (`ibv_devinfo -l` prints them); none: an active one, InfiniBand before Ethernet and the faster
    /// before the slower. Nodes of one machine take turns among equal ones.
    pub device: Option<String>,
    /// Its port; none: an active one.
    pub port: Option<u8>,
    /// Index of its own address, without a network; none: RoCE v2 over IPv4 if there is one, none at all on InfiniBand.
    pub gid: Option<u8>,
    /// Where the addresses of the nodes are among which librdmacm connects; none: without librdmacm. Its device and port are
    /// those of the address that this node has in it, and `gid` does not count. The same for all nodes.
    pub network: Option<Network>,
    /// Bytes of a packet on the wire; none: what both ports have.
    pub mtu: Option<u32>,
    /// Most requests under way on a connection.
    pub depth: u32,
    /// Receive slots, of 8 KiB each, for all connections together.
    pub receive_slots: u32,
    /// Most bytes sent inline, if the device takes so many; at most 512.
    pub inline: u32,
    /// Inline messages that go without a completion of their own before one has one.
    pub signal_interval: u32,
    /// The wait for an acknowledgement is 4.096 µs times 2 to this power (0 to 31).
    pub timeout: u8,
    /// How often an unacknowledged packet is sent again before the peer is lost (0 to 7).
    pub retries: u8,
    /// The service level of every packet (0 to 15; on Ethernet its priority), by which switches keep kinds of traffic apart;
    /// none: what librdmacm finds out, or 0.
    pub service_level: Option<u8>,
    /// The traffic class of every packet that has a global route (RoCE v2: the type of service in its IP header); none: as
    /// above.
    pub traffic_class: Option<u8>,
    /// Whether words of segments are updated by the device if it can; the same for all peers.
    pub atomics: bool,
    /// Registered memory for payloads that lie in private memory; at least twice [`LONG_BYTES_MAX`].
    pub staging_bytes: usize,
}

impl Default for IbvOptions {
    fn default() -> Self {
        Self {
            device: None,
            port: None,
            gid: None,
            network: None,
            mtu: None,
            depth: 128,
            receive_slots: 256,
            inline: 256,
            signal_interval: 16,
            // 67 ms. A lost packet costs this once; a silent peer is lost after a quarter of a second.
            timeout: 14,
            retries: 3,
            service_level: None,
            traffic_class: None,
            atomics: true,
            staging_bytes: 2 * LONG_BYTES_MAX,
        }
    }
}

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
    /// Whose a queue pair is.
    by_number: RwLock<HashMap<u32, Peer>>,
    /// Connections that are made and not open.
    connecting: AtomicUsize,
    /// One has opened since the last poll ended.
    opened: AtomicBool,
    bootstrap: Bootstrap,
    turn: Turn,
    inbox: Mutex<Inbox>,
    parked: AtomicUsize,
    polls: AtomicU32,
    /// The coarse clock when the tcp connections were last looked at because of it, in nanoseconds.
    tick: AtomicU64,
    woken: AtomicBool,
    closing: AtomicBool,
    poller: OwnedFd,
    /// Of librdmacm, if that connects. After the connections, because their queue pairs go before what has connected them.
    manager: Option<Manager>,
    /// After the connections, because their requests use its memory (rule 3 of `verbs`).
    shared: Shared,
}

/// What was taken from the device and not looked at; only whoever has the turn uses it.
#[derive(Default)]
struct Inbox {
    completions: VecDeque<Completion>,
    /// Where the device puts them.
    batch: [Completion; COMPLETIONS],
    /// Spare memory for a packet.
    buffer: Vec<u8>,
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
    /// [`RmaError::Refused`] when libibverbs or a device is missing, or librdmacm or an address although there is a network, [`RmaError::LockedMemory`] when not even the queues
    /// may be registered, and those of [`TcpConduit::new`].
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
            },
            making: Mutex::default(),
            known: RwLock::default(),
            by_number: RwLock::default(),
            connecting: AtomicUsize::new(0),
            opened: AtomicBool::new(false),
            bootstrap: Bootstrap::new(tcp),
            turn: Turn::default(),
            inbox: Mutex::default(),
            parked: AtomicUsize::new(0),
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

    /// Ends the use of the conduit at the end of a job: as [`TcpConduit::close`]. What was sent arrives before, if the
    /// other side lives, within `patience`.
    pub fn close(&self, patience: Duration) {
        if self.closing.swap(true, Ordering::AcqRel) {
            return;
        }
        let deadline = Instant::now() + patience;
        let Some(_turn) = self.turn.take() else { return };
        for connection in self.known_connections() {
            while let Some(count) = connection.say_goodbye(&self.shared) {
                if connection.is_done(count) || Instant::now() >= deadline || self.take_completions().is_err()
                {
                    break;
                }
                std::thread::yield_now();
            }
        }
        self.bootstrap
            .tcp
            .close(deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(100)));
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
                None => lock(&self.inbox).completions.push_back(*completion),
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

    /// The connection to a peer, made and announced if there is none.
    fn connection_to(&self, peer: Peer) -> Result<&Connection> {
        if let Some(connection) = self.connection(peer) {
            return Ok(connection);
        }
        let _making = lock(&self.making);
        let slot = &self.slots[peer.0 as usize];
        if slot.get().is_none() {
            let connection = Connection::new(&self.shared, peer)?;
            let place = connection.place;
            // Before anybody finds the connection, who may hear from the peer at this moment.
            let door = self.manager.as_ref().map(|manager| manager.door(peer)).transpose()?;
            self.by_number.write().unwrap_or_else(PoisonError::into_inner).insert(place.number, peer);
            self.known.write().unwrap_or_else(PoisonError::into_inner).push(peer);
            let _ = slot.set(connection);
            self.connecting.fetch_add(1, Ordering::AcqRel);
            if let Some(door) = door {
                self.bootstrap.tell(peer, Notice::Door(door))?;
            }
            self.bootstrap.tell(peer, Notice::Place(place))?;
        }
        slot.get().ok_or_else(|| RmaError::Usage("a connection vanished".into()))
    }

    fn hear(&self, from: Peer, notice: Notice) -> Result<()> {
        let connection = self.connection_to(from)?;
        let twice = |what: &str| RmaError::Protocol { peer: Some(from), what: format!("it {what} twice") };
        match notice {
            Notice::Door(door) => match &self.manager {
                Some(manager) if manager.heard_door(from, door) => Ok(()),
                Some(_) => Err(twice("named its address")),
                None => {
                    let what =
                        format!("{from} has ibv.network set and this side has not: set it for the whole job");
                    Err(RmaError::Refused(what))
                }
            },
            Notice::Failed => match &self.manager {
                Some(manager) => {
                    manager.failed(
                        from,
                        "it could not connect over the RDMA network, and says why itself".into(),
                    );
                    Ok(())
                }
                None => {
                    Err(RmaError::Protocol { peer: Some(from), what: "it failed without librdmacm".into() })
                }
            },
            Notice::Place(there) => {
                if let Some(manager) = &self.manager {
                    return self.heard_place(manager, connection, there);
                }
                if !connection.connect(&self.shared, &there)? {
                    return Err(twice("named its queue pair"));
                }
                self.bootstrap.tell(from, Notice::Ready)
            }
            Notice::Ready => {
                let joined = match &self.manager {
                    Some(manager) => manager.heard_ready(from),
                    None => (!connection.is_open()).then_some(true),
                };
                if joined.ok_or_else(|| twice("was ready"))? {
                    self.open(connection);
                }
                Ok(())
            }
        }
    }

    /// Whether the system's coarse clock, which is read without a system call, has moved since the last such look.
    fn has_ticked(&self) -> bool {
        let now = clock_gettime(ClockId::MonotonicCoarse);
        let tick = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
        self.tick.swap(tick, Ordering::Relaxed) != tick
    }

    /// Both sides receive: sending may begin.
    fn open(&self, connection: &Connection) {
        connection.open();
        self.connecting.fetch_sub(1, Ordering::AcqRel);
        self.opened.store(true, Ordering::Release);
    }

    /// Hears what peers, and librdmacm, have to say about connections.
    fn poll_bootstrap(&self) -> Result<()> {
        self.poll_notices().and_then(|()| self.poll_manager())
    }

    fn poll_notices(&self) -> Result<()> {
        let result = self.bootstrap.poll(&|from, notice| self.hear(from, notice));
        let Err(RmaError::PeerLost { peer, who, during, reason }) = result else { return result };
        match self.connection(peer) {
            Some(connection) if !connection.lose(reason.clone()) => Ok(()),
            _ => Err(RmaError::PeerLost { peer, who, during, reason }),
        }
    }

    fn lost(&self, connection: &Connection, during: &str) -> RmaError {
        let (peer, who) = (connection.peer, self.layout.describe(connection.peer));
        let reason = connection.lost().unwrap_or("its connection ended").into();
        RmaError::PeerLost { peer, who, during: during.into(), reason }
    }

    /// Takes in what the device says about itself.
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
                        "is down: what is under way is lost unless it comes back"
                    };
                    tracing::warn!("port {port} of the RDMA device {} {state}", context.name);
                }
                Verdict::PairLost(number, reason) => {
                    let by_number = self.by_number.read().unwrap_or_else(PoisonError::into_inner);
                    let peer = by_number.get(&number).copied();
                    drop(by_number);
                    if let Some(connection) = peer.and_then(|peer| self.connection(peer))
                        && connection.lose(reason)
                        && !self.bootstrap.tcp.has_left(connection.peer)
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
        let heard = self.poll_bootstrap();
        // And a port that is down may explain it.
        let heard = heard.and(self.poll_events());
        let left = self.bootstrap.tcp.has_left(connection.peer) || self.closing.load(Ordering::Acquire);
        let reason = if left { "it has left the job".into() } else { self.shared.explain(status) };
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

    /// One completion; returns how many messages were delivered and one-sided operations ended.
    fn handle(&self, completion: &Completion, sink: &dyn Sink, requests: bool) -> Result<usize> {
        let counts = &self.shared.counts;
        if let Some((peer, low)) = sent_by(completion.wr_id) {
            counts.completions.fetch_add(1, Ordering::Relaxed);
            let Some(connection) = self.connection(peer) else { return Ok(0) };
            if completion.status != IBV_WC_SUCCESS {
                return self.broken(connection, completion.status, connection.purpose(low)).map(|()| 0);
            }
            let mut operations = 0;
            connection.completed(&self.shared, low, |ended, at| {
                operations += 1;
                if let Some((offset, bytes)) = ended.part {
                    let place = Destination::Operation { id: ended.operation, offset };
                    let to = sink.destination(peer, place, bytes)?;
                    self.shared.staging.memory.empty(at, to, bytes);
                }
                sink.completed(peer, ended.operation)
            })?;
            return Ok(operations);
        }
        counts.receives.fetch_add(1, Ordering::Relaxed);
        let peer =
            self.by_number.read().unwrap_or_else(PoisonError::into_inner).get(&completion.qp_num).copied();
        let connection = peer.and_then(|peer| self.connection(peer)).filter(|c| c.lost().is_none());
        let slot = completion.wr_id as u32;
        let mut packet = std::mem::take(&mut lock(&self.inbox).buffer);
        let good = completion.status == IBV_WC_SUCCESS;
        let mut number = None;
        if good {
            match completion.opcode {
                IBV_WC_RECV => {
                    let bytes = (completion.byte_len as usize).min(PACKET_BYTES_MAX);
                    self.shared.queues.read_slot(slot, bytes, &mut packet);
                    number = Number::take(&mut packet);
                }
                // Nothing is in the slot: the bytes are where the peer has written them.
                IBV_WC_RECV_RDMA_WITH_IMM => {
                    let immediate = u32::from_be(completion.imm_data);
                    packet::expand(immediate, completion.byte_len, self.me, &mut packet);
                    number = Some(Number::of_immediate(immediate));
                }
                _ => {}
            }
        }
        self.shared.queues.post_slot(slot)?;
        let Some(connection) = connection else { return Ok(0) };
        if !good {
            return self.broken(connection, completion.status, "receiving").map(|()| 0);
        }
        let delivered = match number.map(|number| connection.order(number)) {
            Some(Order::Next) => self.receive(connection, &mut packet, sink, requests),
            Some(Order::Again) => {
                counts.repeated.fetch_add(1, Ordering::Relaxed);
                tracing::debug!(peer = %connection.peer, "a message came twice");
                Ok(0)
            }
            Some(Order::Gap) => {
                self.violation(connection, "messages before this one are missing").map(|()| 0)
            }
            None => self.violation(connection, "a message without a number").map(|()| 0),
        };
        lock(&self.inbox).buffer = packet;
        delivered
    }

    /// One packet.
    fn receive(
        &self,
        connection: &Connection,
        packet: &mut Vec<u8>,
        sink: &dyn Sink,
        requests: bool,
    ) -> Result<usize> {
        if Control::is(packet) {
            match Control::decode(packet) {
                Some(Control::Want(name)) => {
                    connection.tell(&self.shared, self.shared.answer(sink, connection.peer, name)?)?
                }
                Some(Control::Grant(name, access)) if connection.answered(name, Some(access)) => {
                    if name.1 == RegionId::FRAMES {
                        self.shared.register_own_frames(sink, self.me)?;
                    }
                }
                Some(Control::Refusal(name)) if connection.answered(name, None) => {}
                Some(other) => {
                    self.violation(connection, format!("{other:?}, which it was not asked for"))?
                }
                None => self.violation(connection, "a malformed packet about regions")?,
            }
            return Ok(0);
        }
        let (frame, head) = match frame::decode(packet) {
            Ok(Some(frame)) => match frame.body {
                Body::Message(head) => (frame, Some(head)),
                Body::Credits | Body::Goodbye => (frame, None),
            },
            Ok(None) => return self.violation(connection, "half a packet").map(|()| 0),
            Err(error) => return self.violation(connection, error.to_string()).map(|()| 0),
        };
        let medium = match head {
            Some(Head { kind: Kind::Medium, payload_bytes, .. }) => payload_bytes as usize,
            _ => 0,
        };
        if packet.len() != frame.head_bytes + medium {
            let what =
                format!("a packet of {} bytes that claims {}", packet.len(), frame.head_bytes + medium);
            return self.violation(connection, what).map(|()| 0);
        }
        if frame.credits > 0 && !connection.take_credits(frame.credits) {
            return self
                .violation(connection, format!("{} credits that nobody is owed", frame.credits))
                .map(|()| 0);
        }
        let Some(head) = head else { return Ok(0) };
        let mut parked = lock(&connection.parked);
        if head.direction == Direction::Request
            && (!requests || !parked.is_empty() || self.is_backlogged(connection))
        {
            if parked.len() >= CREDITS as usize {
                return self.violation(connection, "more requests than it has credits for").map(|()| 0);
            }
            parked.push_back(std::mem::take(packet));
            self.parked.fetch_add(1, Ordering::AcqRel);
            return Ok(0);
        }
        drop(parked);
        self.deliver(connection, packet, &head, frame.head_bytes, sink)
    }

    fn is_backlogged(&self, connection: &Connection) -> bool {
        connection.waiting_replies() > REPLIES_WAITING_MAX
    }

    /// Hands a checked message to the sink.
    fn deliver(
        &self,
        connection: &Connection,
        packet: &[u8],
        head: &Head,
        head_bytes: usize,
        sink: &dyn Sink,
    ) -> Result<usize> {
        let from = connection.peer;
        let payload = match head.kind {
            Kind::Short => Arrived::Short,
            Kind::Medium => Arrived::Medium(&packet[head_bytes..]),
            Kind::Long(destination) => {
                let bytes = head.payload_bytes as usize;
                match sink.destination(from, destination, bytes) {
                    Ok(to) => Arrived::Long(to, bytes),
                    Err(error) => return self.refuse(connection, error).map(|()| 0),
                }
            }
        };
        if head.direction == Direction::Request {
            // Before the handler runs, so that its reply carries the credit back.
            connection.owe_credit();
        }
        let delivery = Delivery {
            from,
            direction: head.direction,
            handler: head.handler,
            arguments: head.arguments(),
            payload,
        };
        if let Err(error) = sink.deliver(delivery) {
            return self.refuse(connection, error).map(|()| 0);
        }
        if connection.lost().is_none() {
            self.posted(connection, connection.return_credits(&self.shared), "returning credits")?;
        }
        Ok(1)
    }

    /// Delivers requests that were parked, oldest first.
    fn deliver_parked(&self, sink: &dyn Sink, room: usize) -> Result<usize> {
        let mut count = 0;
        for connection in self.known_connections() {
            while count < room && !self.is_backlogged(connection) {
                let Some(packet) = lock(&connection.parked).pop_front() else { break };
                self.parked.fetch_sub(1, Ordering::AcqRel);
                // It was checked when it came.
                if let Ok(Some(frame)) = frame::decode(&packet)
                    && let Body::Message(head) = frame.body
                    && connection.lost().is_none()
                {
                    count += self.deliver(connection, &packet, &head, frame.head_bytes, sink)?;
                }
            }
        }
        Ok(count)
    }

    /// The next completion, in the order of the device; none at the moment.
    fn next_completion(&self) -> Result<Option<Completion>> {
        let Inbox { completions, batch, .. } = &mut *lock(&self.inbox);
        if completions.is_empty() {
            let count = self.shared.queues.poll(batch)?;
            completions.extend(&batch[..count]);
        }
        Ok(completions.pop_front())
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
        "ibv"
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

    fn start_put(&self, server: Peer, place: Place, from: Source<'_>, operation: u64) -> Result<Sent> {
        self.start(server, place, &OneSided::Put(from), operation)
    }

    fn start_get(&self, server: Peer, place: Place, bytes: usize, operation: u64, at: u64) -> Result<Sent> {
        self.start(server, place, &OneSided::Get(bytes, at), operation)
    }

    fn start_atomic(&self, server: Peer, place: Place, atomic: Atomic, operation: u64) -> Result<Sent> {
        self.start(server, place, &OneSided::Atomic(atomic), operation)
    }

    fn poll(&self, sink: &dyn Sink, traffic: Traffic) -> Result<usize> {
        let Some(turn) = self.turn.take() else { return Ok(0) };
        let requests = traffic == Traffic::Everything && !turn.nested;
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
            || self.bootstrap.is_pending()
            || woken
        {
            self.poll_bootstrap()?;
        }
        let mut count = 0;
        if requests && self.parked.load(Ordering::Acquire) > 0 {
            count += self.deliver_parked(sink, POLL_MESSAGES)?;
        }
        let mut completions = 0;
        while count < POLL_MESSAGES
            && completions < 2 * POLL_MESSAGES
            && let Some(completion) = self.next_completion()?
        {
            completions += 1;
            count += self.handle(&completion, sink, requests)?;
        }
        self.flush()?;
        // Counts as a message, of which all threads are told: one that was refused may sleep on a connection whose last
        // bytes this thread has read. (What comes through the completion queue wakes it by an event.)
        let opened = self.opened.load(Ordering::Relaxed) && self.opened.swap(false, Ordering::AcqRel);
        Ok(count + usize::from(opened))
    }

    fn flush(&self) -> Result<()> {
        if self.shared.waiting.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        for connection in self.known_connections().filter(|c| c.is_waiting() && c.lost().is_none()) {
            self.posted(connection, connection.flush(&self.shared), "sending")?;
        }
        Ok(())
    }

    fn wait_descriptor(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }

    fn arm(&self) -> bool {
        // Somebody polls at this moment: what it finds may be what the caller waits for.
        let Some(turn) = self.turn.take() else { return false };
        let parked = !turn.nested && self.parked.load(Ordering::Acquire) > 0;
        if parked || !lock(&self.inbox).completions.is_empty() || self.shared.queues.request_event().is_err()
        {
            return false;
        }
        // What came before the event was asked for brings none.
        let found = self.next_completion();
        if let Ok(None) = found {
            return self.bootstrap.tcp.arm();
        }
        if let Ok(Some(completion)) = found {
            lock(&self.inbox).completions.push_front(completion);
        }
        false
    }

    fn disarm(&self) {
        self.bootstrap.tcp.disarm();
        self.woken.store(true, Ordering::Release);
    }
}

impl Drop for IbvConduit {
    fn drop(&mut self) {
        self.close(Duration::from_secs(1));
    }
}
