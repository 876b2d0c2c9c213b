//! Connecting queue pairs through librdmacm, where [`IbvOptions::network`](super::IbvOptions) gives addresses: between
//! subnets of InfiniBand that a router joins, in partitions, and wherever addresses are to decide which card is used.
//!
//! The queue pairs stay this conduit's own, and so does the proof of the job's key: before their places the
//! two sides exchange, over that tcp connection, a [`Door`]: the address of a listener, and a token that is
//! drawn again for every pair of peers. Then
//!
//! ```text
//! the peer with the lower number                          the other one
//! resolve its address, the route
//! connect: own number, the other one's token       ->     unknown, wrong, used before: refused, a line in the log
//!                                                         the queue pair receives and sends
//!                                                  <-     accept: the first one's token; over tcp: ready
//! the queue pair receives and sends
//! establish; over tcp: ready                       ->
//! ```
//!
//! A sender waits for the other side's `ready`, as without librdmacm. Everything is done by the thread that
//! polls, as events come; nothing waits. An address is looked for as long as [`LOOKING_MAX`]; an answer is
//! the business of the other side's kernel, which tells this one to be patient while its process computes;
//! that it has ended is told by its tcp connection. (If the daemon ibacm runs, librdmacm asks it for routes,
//! and waits for the answer.)

#![forbid(unsafe_code)]

#[cfg(test)]
mod strangers;

use super::IbvConduit;
use super::connection::{Connection, lock};
use super::network::Network;
use super::notice::Notice;
use super::verbs::QueuePairAddress;
use super::verbs::cm::{Channel, Id, News, REQUEST_BYTES_MAX, Request};
use crate::address::Peer;
use crate::conduit::interfaces::interface_addresses;
use crate::error::{Result, RmaError};
use crate::key::fresh_random;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Timeout for resolving an address, and then a route.
const LOOKING_MAX: Duration = Duration::from_secs(4);

/// Requests that may wait for this side's next look.
const BACKLOG: i32 = 1024;

/// Most events that are looked at at once.
const EVENTS: usize = 64;

/// Peers whose tcp connections one look reads at least.
const PEERS_PER_LOOK: u32 = 16;

/// Proves that the connecting or accepting side is the peer to which it was told.
#[derive(Clone, Copy)]
pub(super) struct Token([u8; 32]);

impl Token {
    pub(super) const BYTES: usize = 32;

    fn fresh() -> Result<Self> {
        fresh_random().map(Self)
    }

    pub(super) fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    pub(super) fn as_bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }

    /// Returns true if these bytes begin with it; in constant time, which `blake3::Hash` documents.
    fn begins(&self, bytes: &[u8]) -> bool {
        bytes.first_chunk::<{ Self::BYTES }>().is_some_and(|bytes| blake3::Hash::from_bytes(self.0) == *bytes)
    }
}

impl PartialEq for Token {
    fn eq(&self, other: &Self) -> bool {
        self.begins(&other.0)
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(hidden)")
    }
}

/// Address at which a side accepts connections, and the token it expects.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Door {
    pub(super) address: SocketAddr,
    pub(super) token: Token,
}

/// The connections of this side through librdmacm.
pub(super) struct Manager {
    me: Peer,
    calls: Mutex<HashMap<Peer, Call>>,
    /// Connections that failed and why; their loss is reported one by one.
    failed: Mutex<Vec<(Peer, String)>>,
    /// Kept, because it listens as long as it lives.
    _listener: Id,
    /// That of the listener.
    pub(super) address: SocketAddr,
    pub(super) channel: Arc<Channel>,
}

/// A connection, and its progress.
struct Call {
    /// Token expected from the other side.
    token: Token,
    door: Option<Door>,
    place: Option<QueuePairAddress>,
    /// This side's, or the other side's request.
    id: Option<Id>,
    /// The number of the queue pair that the request named.
    number: u32,
    joined: bool,
    /// The other side receives.
    ready: bool,
}

impl Manager {
    /// Listens at one of this machine's addresses in the network: the one whose turn it is at `index`, among those of the
    /// device and port that are wished for. Returns the device and port, too.
    ///
    /// # Errors
    /// [`RmaError::Refused`] when there is no such address, or librdmacm is missing.
    pub(super) fn new(
        me: Peer,
        network: Network,
        (device, port): (Option<&str>, Option<u8>),
        index: usize,
    ) -> Result<(Self, String, u8)> {
        let channel = Channel::new()?;
        let interfaces = interface_addresses();
        let addresses = network.of(&interfaces);
        if addresses.is_empty() {
            return Err(RmaError::Refused(network.why_none(&interfaces)));
        }
        let mut usable = Vec::new();
        let mut reasons = Vec::new();
        for address in addresses {
            let id = Id::new(&channel)?;
            match id.bind(SocketAddr::new(address, 0)) {
                Ok((name, number))
                    if device.is_some_and(|device| device != name) || port.is_some_and(|p| p != number) =>
                {
                    reasons.push(format!("{address} is of port {number} of {name}"));
                }
                Ok((name, number)) => usable.push((id, address, name, number)),
                Err(error) => reasons.push(error.to_string()),
            }
        }
        if usable.is_empty() {
            let reasons = reasons.join("; ");
            return Err(RmaError::Refused(format!(
                "no RDMA device to use in ibv.network={network}: {reasons}"
            )));
        }
        let (listener, address, device, port) = usable.swap_remove(index % usable.len());
        let address = SocketAddr::new(address, listener.listen(BACKLOG)?);
        Ok((
            Self {
                me,
                calls: Mutex::default(),
                failed: Mutex::default(),
                _listener: listener,
                address,
                channel,
            },
            device,
            port,
        ))
    }

    /// Readable when there is something to do.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.channel.descriptor()
    }

    /// Makes a door for a peer that has none.
    pub(super) fn door(&self, peer: Peer) -> Result<Door> {
        let token = Token::fresh()?;
        let call = Call { token, door: None, place: None, id: None, number: 0, joined: false, ready: false };
        lock(&self.calls).insert(peer, call);
        Ok(Door { address: self.address, token })
    }

    fn with<T>(&self, peer: Peer, act: impl FnOnce(&mut Call) -> T) -> Option<T> {
        lock(&self.calls).get_mut(&peer).map(act)
    }

    /// The peer's door; false when it was told before.
    pub(super) fn heard_door(&self, peer: Peer, door: Door) -> bool {
        self.with(peer, |call| call.door.replace(door).is_none()).unwrap_or(false)
    }

    /// The peer is ready: whether this side is, too; none when it was before.
    pub(super) fn heard_ready(&self, peer: Peer) -> Option<bool> {
        self.with(peer, |call| (!std::mem::replace(&mut call.ready, true)).then_some(call.joined)).flatten()
    }

    /// Notes that there is no connection to a peer, and why.
    pub(super) fn failed(&self, peer: Peer, reason: String) {
        lock(&self.failed).push((peer, reason));
    }

    fn next_failed(&self) -> Option<(Peer, String)> {
        lock(&self.failed).pop()
    }

    /// Returns the peer whose token a request has brought, if it is right and was not used; otherwise refuses
    /// the request.
    fn admit(&self, request: Request) -> Option<Peer> {
        let named =
            request.bytes.split_first_chunk().map(|(peer, token)| (Peer(u32::from_le_bytes(*peer)), token));
        let mut calls = lock(&self.calls);
        if let Some((peer, token)) = named
            && let Some(call) = calls.get_mut(&peer)
            && peer < self.me
            && call.token.begins(token)
            && call.id.is_none()
            && !call.joined
        {
            call.number = request.number;
            call.id = Some(request.id);
            return Some(peer);
        }
        drop(calls);
        tracing::warn!(listener = %self.address, "refused an RDMA connection of somebody without this job's token");
        request.id.reject();
        None
    }

    /// Returns the peer of an event.
    fn peer_of(&self, key: usize) -> Option<Peer> {
        let calls = lock(&self.calls);
        let own = |call: &Call| call.id.as_ref().is_some_and(|id| id.key() == key);
        calls.iter().find(|(_, call)| own(call)).map(|(peer, _)| *peer)
    }
}

impl IbvConduit {
    /// The peer's queue pair is known.
    pub(super) fn heard_place(
        &self,
        manager: &Manager,
        connection: &Connection,
        place: QueuePairAddress,
    ) -> Result<()> {
        let peer = connection.peer;
        let known = manager.with(peer, |call| (call.door, call.place.replace(place).is_some()));
        let violation = |what: &str| Err(RmaError::Protocol { peer: Some(peer), what: what.into() });
        match known {
            Some((_, true)) => violation("it named its queue pair twice"),
            Some((Some(door), false)) if self.me < peer => {
                let begun = Id::new(&manager.channel).and_then(|id| {
                    let from = SocketAddr::new(manager.address.ip(), 0);
                    id.resolve_address(from, door.address, LOOKING_MAX).map(|()| id)
                });
                match begun {
                    Ok(id) => drop(manager.with(peer, |call| call.id = Some(id))),
                    Err(error) => self.fail(manager, connection, &error.to_string()),
                }
                Ok(())
            }
            Some((Some(_), false)) => self.answer(manager, connection),
            Some((None, _)) | None => Err(RmaError::Refused(format!(
                "ibv.network is set here and not for {peer}: set it for the whole job"
            ))),
        }
    }

    /// Handles librdmacm's events.
    pub(super) fn poll_manager(&self) -> Result<()> {
        let Some(manager) = &self.manager else { return Ok(()) };
        for _ in 0..EVENTS {
            let Some((key, news)) = manager.channel.next() else { break };
            let peer = match news {
                News::Request(request) => {
                    if let Some(connection) = manager.admit(request).and_then(|peer| self.connection(peer)) {
                        self.answer(manager, connection)?;
                    }
                    continue;
                }
                _ => manager.peer_of(key),
            };
            if let Some(connection) = peer.and_then(|peer| self.connection(peer))
                && connection.lost().is_none()
            {
                self.advance(manager, connection, news)?;
            }
        }
        while let Some((peer, reason)) = manager.next_failed() {
            if let Some(connection) = self.connection(peer)
                && connection.lose(reason)
            {
                let during = if connection.is_open() { "exchanging messages" } else { "connecting" };
                return Err(self.lost(connection, during));
            }
        }
        Ok(())
    }

    /// The side that connects goes one step further.
    fn advance(&self, manager: &Manager, connection: &Connection, news: News) -> Result<()> {
        let peer = connection.peer;
        let step = |act: &dyn Fn(&Id, &Door, &QueuePairAddress) -> Result<()>| {
            let step = |call: &mut Call| match (&call.id, &call.door, &call.place) {
                (Some(id), Some(door), Some(place)) => act(id, door, place),
                _ => Ok(()),
            };
            manager.with(peer, step).unwrap_or(Ok(()))
        };
        let done = match news {
            News::AddressResolved => step(&|id, _, _| id.resolve_route(LOOKING_MAX)),
            News::RouteResolved => step(&|id, door, place| {
                let mut bytes = [0; 4 + Token::BYTES];
                bytes[..4].copy_from_slice(&self.me.0.to_le_bytes());
                bytes[4..].copy_from_slice(door.token.as_bytes());
                id.connect(connection.place.number, connection.route(&self.shared, place).reads, &bytes)
            }),
            News::Accepted(bytes)
                if !manager.with(peer, |call| call.token.begins(&bytes)).unwrap_or(false) =>
            {
                Err(RmaError::Refused(
                    "its address on the RDMA network is somebody else's, who has no token".into(),
                ))
            }
            News::Accepted(_) => {
                let joined = step(&|id, _, place| {
                    connection.join(&self.shared, place, id).and_then(|()| id.establish())
                });
                match joined {
                    Ok(()) => return self.joined(manager, connection),
                    Err(error) => Err(error),
                }
            }
            News::Disconnected => {
                // A peer that leaves says so first; but many may leave at once, and their tcp connections be read by and by.
                let left = || self.notices.tcp.has_left(peer) || self.closing.load(Ordering::Acquire);
                let mut looks = 0..=self.layout.peers() / PEERS_PER_LOOK;
                let heard = looks.try_for_each(|_| if left() { Ok(()) } else { self.poll_notices() });
                if !left() {
                    self.fail(manager, connection, "its side of the RDMA connection has ended");
                }
                return heard;
            }
            News::Failed(reason) => {
                self.fail(manager, connection, &reason);
                Ok(())
            }
            News::Request(_) | News::Other => Ok(()),
        };
        if let Err(error) = done {
            self.fail(manager, connection, &error.to_string());
        }
        Ok(())
    }

    /// Accepts a connection, as soon as the peer is known and the request has arrived.
    fn answer(&self, manager: &Manager, connection: &Connection) -> Result<()> {
        let accepted = manager.with(connection.peer, |call| {
            let (Some(id), Some(door), Some(place)) = (&call.id, &call.door, &call.place) else {
                return None;
            };
            if call.number != place.number {
                let what = format!("a connection for the queue pair {}, which is not its own", call.number);
                return Some(Err(RmaError::Protocol { peer: Some(connection.peer), what }));
            }
            let reads = connection.route(&self.shared, place).reads;
            let joined = connection.join(&self.shared, place, id);
            Some(joined.and_then(|()| id.accept(connection.place.number, reads, door.token.as_bytes())))
        });
        match accepted.flatten() {
            None => Ok(()),
            Some(Ok(())) => self.joined(manager, connection),
            Some(Err(error)) => {
                self.fail(manager, connection, &error.to_string());
                Ok(())
            }
        }
    }

    /// The queue pair here receives and may send.
    fn joined(&self, manager: &Manager, connection: &Connection) -> Result<()> {
        let ready = manager.with(connection.peer, |call| {
            call.joined = true;
            call.ready
        });
        if ready == Some(true) {
            self.open(connection);
        }
        self.notices.tell(connection.peer, Notice::Ready)
    }

    /// There is no connection, or none any more. The other side is told, whose own device may never see it.
    fn fail(&self, manager: &Manager, connection: &Connection, reason: &str) {
        let peer = connection.peer;
        let (id, door) = manager.with(peer, |call| (call.id.take(), call.door)).unwrap_or_default();
        // Its end tells the other side's kernel.
        drop(id);
        let there = door.map(|door| format!(" at {}", door.address)).unwrap_or_default();
        manager.failed(peer, format!("{reason} (between {} here and it{there})", manager.address));
        // Should this fail, the tcp connection has ended, which says it as well.
        let _ = self.notices.tell(peer, Notice::Failed);
    }
}

const _: () = assert!(4 + Token::BYTES <= REQUEST_BYTES_MAX);
