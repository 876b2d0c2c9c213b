//! Active messages over TCP: works everywhere, needs nothing.
//!
//! * The bytes of messages, and before the first message, are those of [`wire`](super::wire).
//! * `door`: a thread that connects and accepts; `table`: the state that it shares with the others.
//! * `connection`: sending, credits, back-pressure; `receiver`: receiving.
//! * `socket`: the system calls on raw addresses, and all `unsafe` of this conduit.
//!
//! A pair of peers has one connection, opened when the first of them wants to send (until then `try_send` answers
//! [`Sent::Busy`]). The thread that sends makes one system call a message, usually; the thread that polls makes one a
//! batch. There is no other thread on the way of a message.
//!
//! # Loss
//!
//! A process that ends is seen at once, by the end of its stream. A peer that does not accept or prove itself
//! is lost after [`TcpLimits::connect_timeout`]. A machine that falls silent is lost after
//! [`TcpLimits::silence_max`] and up to two looks of the door; a process that merely computes is not, however
//! long, since its system continues to answer.

#![deny(unsafe_code)]

mod connection;
mod door;
#[cfg(test)]
mod hostile;
mod provider;
mod receiver;
#[allow(unsafe_code)]
mod socket;
mod table;

pub(super) use provider::PROVIDER;

use self::connection::{Connection, QUEUE_BYTES, lock};
use self::door::Door;
use self::receiver::ReceiveError;
use self::table::Table;
use super::turn::Turn;
use super::wire::frame;
use super::{Capabilities, Conduit, Loan, Sent, Traffic};
use crate::address::{Layout, Peer};
use crate::error::{HAS_LEFT, Result, RmaError};
use crate::key::JobKey;
use crate::message::{ARGUMENTS_MAX, Direction, Message, Payload, Sink};
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use vgas_shm::Span;

/// The name of this conduit.
pub const NAME: &str = "tcp";

/// Most messages that one poll delivers, so that other conduits get their turn.
const POLL_MESSAGES: usize = 64;

/// Parameters of a [`TcpConduit`].
#[derive(Debug)]
pub struct TcpSpec {
    /// The job's peers.
    pub layout: Layout,
    /// The peer of this process.
    pub me: Peer,
    /// The job's key.
    pub key: JobKey,
    /// Bound, listening socket for other peers.
    pub listener: TcpListener,
    /// Addresses of the peers' listeners; the index is the peer. An entry that is never called may be
    /// anything.
    pub addresses: Vec<SocketAddr>,
}

/// The times and numbers that bound waiting and strangers.
#[derive(Clone, Debug)]
pub struct TcpLimits {
    /// From the first message to a peer until its connection is open, or the peer is lost.
    pub connect_timeout: Duration,
    /// From accepting a connection until it has proved the key, or is dropped.
    pub proof_timeout: Duration,
    /// Connections that may be in flight to a proof; more push out the oldest.
    pub unproved_max: usize,
    /// Time that a peer's machine may leave sent bytes unacknowledged before the peer is lost. A peer that
    /// computes without polling is not silent: its system answers.
    pub silence_max: Duration,
    /// Interval of that check.
    pub watch_interval: Duration,
    /// Bytes, over all peers, that may wait for sockets before large requests are refused: copies for slow
    /// readers, each of which may hold most of a request. One request goes beyond it at most, for each thread
    /// that sends.
    pub unsent_bytes_max: usize,
}

impl TcpLimits {
    /// Parameters of [`TcpConduit::new`] for a job of this many peers: failures become errors within five
    /// seconds when connecting, ten afterwards.
    pub fn for_peers(peers: u32) -> Self {
        Self {
            connect_timeout: Duration::from_millis(4500),
            proof_timeout: Duration::from_secs(5),
            // All peers may call at once when a job starts.
            unproved_max: 64 + peers as usize,
            silence_max: Duration::from_secs(10),
            watch_interval: Duration::from_secs(1),
            unsent_bytes_max: 64 << 20,
        }
    }
}

/// The conduit. See the module's page.
pub struct TcpConduit {
    table: Arc<Table>,
    capabilities: Capabilities,
    turn: Turn,
    /// First connection of the next poll, so that a busy one does not starve the others.
    first: AtomicUsize,
    /// Some connection may have bytes that its socket did not take.
    unsent: AtomicBool,
    unsent_bytes_max: usize,
    door: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for TcpConduit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TcpConduit").field("me", &self.table.me).finish_non_exhaustive()
    }
}

impl TcpConduit {
    /// Starts to accept connections. Own ones are opened by the first message to each peer.
    ///
    /// # Errors
    /// If the addresses do not fit the layout, or the system refuses descriptors or a thread.
    pub fn new(spec: TcpSpec) -> Result<Self> {
        let limits = TcpLimits::for_peers(spec.layout.peers());
        Self::with_limits(spec, limits)
    }

    /// As [`TcpConduit::new`], with other bounds.
    pub fn with_limits(spec: TcpSpec, limits: TcpLimits) -> Result<Self> {
        let TcpSpec { layout, me, key, listener, addresses } = spec;
        if addresses.len() != layout.peers() as usize || !layout.contains(me) {
            return Err(RmaError::Usage(format!(
                "{} tcp addresses and {me} for a layout of {} peers",
                addresses.len(),
                layout.peers()
            )));
        }
        let table = Arc::new(Table::new(layout, me)?);
        let door = Door::new(table.clone(), key, listener, addresses, limits.clone())?;
        let door = std::thread::Builder::new()
            .name("vgas-tcp-door".into())
            .stack_size(256 << 10)
            .spawn(move || door.run())
            .map_err(|e| RmaError::io("start the thread that accepts connections", e))?;
        Ok(Self {
            table,
            capabilities: Capabilities {
                medium_bytes_max: frame::MEDIUM_BYTES_MAX,
                long_bytes_max: frame::LONG_BYTES_MAX,
                ordered: true,
                long_to_operation: true,
                load_store: false,
                one_sided: false,
                atomics: false,
                polls_through_kernel: true,
            },
            turn: Turn::default(),
            first: AtomicUsize::new(0),
            unsent: AtomicBool::new(false),
            unsent_bytes_max: limits.unsent_bytes_max,
            door: Some(door),
        })
    }

    /// Returns true if a peer has said goodbye: it closed its conduit, so that its end is no loss.
    pub(super) fn has_left(&self, peer: Peer) -> bool {
        self.table.connection(peer).is_some_and(Connection::said_goodbye)
    }

    /// Delivers what one connection has brought.
    fn poll_connection(
        &self,
        connection: &Connection,
        sink: &dyn Sink,
        traffic: Traffic,
        room: usize,
    ) -> Result<usize> {
        let mut count = 0;
        let mut begun = false;
        // Until the stream is found empty with everything allowed.
        let mut left = true;
        while count < room {
            let requests = traffic.has_requests() && !connection.is_backlogged();
            let next = {
                let mut receiver = lock(&connection.receiver);
                if !begun {
                    receiver.begin();
                    begun = true;
                }
                receiver.next(connection, sink, requests, traffic)
            };
            let mut arrival = match next {
                Ok(Some(arrival)) => arrival,
                Ok(None) => {
                    left = !requests || traffic != Traffic::Everything;
                    break;
                }
                Err(trouble) => {
                    self.end_connection(connection, trouble)?;
                    break;
                }
            };
            count += 1;
            if arrival.direction() == Direction::Request {
                // Before the handler runs, so that its reply carries the credit back.
                connection.owe_credit();
            }
            // No lock is held: handlers send, and wait for room by polling again.
            if let Err(error) = arrival.deliver(connection, sink) {
                self.end_connection(connection, ReceiveError::Sink(error))?;
                break;
            }
            if arrival.has_buffer() {
                lock(&connection.receiver).take_back(arrival);
            }
        }
        connection.set_left(left);
        self.flush_connection(connection);
        if count > 0 {
            let _ = connection.return_credits();
            self.note_unsent(connection);
            if connection.count_deliveries(count) {
                self.table.unwatch_if_awake(connection);
            }
        }
        Ok(count)
    }

    /// Pushes out what waits, and tells those whose requests were refused when there is room again.
    fn flush_connection(&self, connection: &Connection) {
        if connection.wants_room() {
            // A failed send shows as the loss of the peer when the end of its stream has been read.
            let _ = connection.flush(self.table.poller());
        }
        if connection.has_room_again() {
            self.table.ring_bell();
        }
    }

    /// Returns true if so much waits for sockets already that another large request, most of which may have
    /// to be copied, had better wait where it is.
    fn is_full_for(&self, message: &Message<'_>) -> bool {
        let (Payload::Medium(source) | Payload::Long(source, _)) = message.payload else { return false };
        let is_large = message.direction == Direction::Request && source.bytes() > QUEUE_BYTES;
        is_large
            && self.unsent.load(Ordering::Relaxed)
            && self.table.open_from(0).map(Connection::unsent_bytes).sum::<usize>() > self.unsent_bytes_max
    }

    /// Remembers that a connection has bytes that its socket did not take.
    #[inline]
    fn note_unsent(&self, connection: &Connection) {
        if connection.has_unsent() && !self.unsent.load(Ordering::Relaxed) {
            self.unsent.store(true, Ordering::SeqCst);
        }
    }

    /// A connection brings nothing more. An error unless that was to be expected.
    fn end_connection(&self, connection: &Connection, trouble: ReceiveError) -> Result<()> {
        {
            let mut receiver = lock(&connection.receiver);
            if receiver.ended() {
                return Ok(());
            }
            receiver.end(matches!(trouble, ReceiveError::Protocol(_) | ReceiveError::Sink(_)));
        }
        // Only fails when it was not watched, which is what is wanted.
        let _ = connection.end_watch(self.table.poller());
        let peer = connection.peer;
        match trouble {
            ReceiveError::End | ReceiveError::Socket(_)
                if connection.said_goodbye() || self.table.closing() =>
            {
                connection.lose(HAS_LEFT.into());
                Ok(())
            }
            ReceiveError::End => {
                connection.lose("its connection was closed; its process has probably ended".into());
                Err(self.lost(connection, "waiting for messages"))
            }
            ReceiveError::Socket(error) => {
                connection.lose(error.to_string());
                Err(self.lost(connection, "waiting for messages"))
            }
            ReceiveError::Protocol(what) => {
                let error = RmaError::Protocol { peer: Some(peer), what };
                connection.lose(error.to_string());
                Err(error)
            }
            // A sink's error is the peer's fault: it must name the peer.
            ReceiveError::Sink(error @ RmaError::Protocol { peer: Some(_), .. }) => {
                connection.lose(error.to_string());
                Err(error)
            }
            ReceiveError::Sink(other) => {
                let error = RmaError::Protocol { peer: Some(peer), what: other.to_string() };
                connection.lose(error.to_string());
                Err(error)
            }
        }
    }

    fn lost(&self, connection: &Connection, during: &str) -> RmaError {
        self.table.lost(connection.peer, during, connection.lost().unwrap_or("its connection was closed"))
    }

    fn send(&self, to: Peer, message: &Message<'_>, lent: Option<&Span>) -> Result<Option<Loan>> {
        self.check(to, message)?;
        if self.table.closing() {
            return Err(RmaError::Usage("sending after the conduit was closed".into()));
        }
        let Some(connection) = self.table.connection(to) else {
            if let Some(reason) = self.table.failure(to) {
                return Err(self.table.lost(to, "connecting", reason));
            }
            self.table.want(to);
            return Ok(None);
        };
        if connection.lost().is_some() {
            return Err(self.lost(connection, "sending"));
        }
        if lent.is_none() && self.is_full_for(message) {
            // Told apart from others that wait when any connection has got room: each poll looks at all of them.
            connection.refuse();
            return Ok(None);
        }
        let sent = connection.send(message, lent).map_err(|error| {
            // Messages that the peer sent before it went away can still be read; a poll will see the end
            // after that.
            self.table.lost(to, "sending", connection.lost().unwrap_or(&error.to_string()))
        })?;
        self.note_unsent(connection);
        if sent != Some(Loan::NONE) && self.table.has_sleepers() {
            // A thread that has prepared to sleep may try once more, or has to send the rest of a loan, and
            // the watched events were decided before that. An error is the end of the connection, which a
            // read reports.
            let _ = connection.watch(self.table.poller());
        }
        Ok(sent)
    }

    /// The check of a message at its sender; the receiver checks the same.
    fn check(&self, to: Peer, message: &Message<'_>) -> Result<()> {
        let (bytes, limit) = match message.payload {
            Payload::Short => (0, 0),
            Payload::Medium(source) => (source.bytes(), frame::MEDIUM_BYTES_MAX),
            Payload::Long(source, _) => (source.bytes(), frame::LONG_BYTES_MAX),
        };
        if message.arguments.len() > ARGUMENTS_MAX || bytes > limit {
            return Err(RmaError::Usage(format!(
                "a message of {} arguments and {bytes} bytes; {ARGUMENTS_MAX} and {limit} are possible",
                message.arguments.len()
            )));
        }
        if !self.reaches(to) {
            return Err(RmaError::Usage(format!("the tcp conduit of {} cannot send to {to}", self.table.me)));
        }
        Ok(())
    }
}

impl Conduit for TcpConduit {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn reaches(&self, to: Peer) -> bool {
        to != self.table.me && self.table.layout.contains(to)
    }

    fn try_send(&self, to: Peer, message: &Message<'_>) -> Result<Sent> {
        Ok(self.send(to, message, None)?.map_or(Sent::Busy, |_| Sent::Accepted))
    }

    fn try_send_lent(&self, to: Peer, message: &Message<'_>, lent: &Span) -> Result<Option<Loan>> {
        self.send(to, message, Some(lent))
    }

    fn is_returned(&self, to: Peer, loan: Loan) -> bool {
        loan == Loan::NONE || self.table.connection(to).is_none_or(|connection| connection.is_returned(loan))
    }

    fn poll(&self, sink: &dyn Sink, traffic: Traffic) -> Result<usize> {
        let Some(turn) = self.turn.take() else { return Ok(0) };
        if let Some(peer) = self.table.take_failed() {
            let reason = self.table.failure(peer).unwrap_or("it cannot be reached");
            return Err(self.table.lost(peer, "connecting", reason));
        }
        let open = self.table.open_count();
        if open == 0 {
            return Ok(0);
        }
        // From inside a handler, running further requests could recurse for ever.
        let traffic = if turn.nested { Traffic::RepliesOnly } else { traffic };
        let first = self.first.fetch_add(1, Ordering::Relaxed) % open;
        let mut count = 0;
        let mut visit = |connection: &Connection| -> Result<()> {
            count += self.poll_connection(connection, sink, traffic, POLL_MESSAGES.saturating_sub(count))?;
            Ok(())
        };
        if !self.table.is_many() {
            self.table.open_from(first).try_for_each(&mut visit)?;
            self.table.open_from(0).take(first).try_for_each(&mut visit)?;
            return Ok(count);
        }
        let mut events =
            [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }; 32];
        // The only failure is an interruption by a signal, after which the next poll asks again.
        let ready =
            epoll::wait(self.table.poller(), &mut events[..], Some(&Timespec::default())).unwrap_or(0);
        for event in &events[..ready] {
            if let Ok(peer) = u32::try_from(event.data.u64())
                && let Some(connection) = self.table.connection(Peer(peer))
            {
                visit(connection)?;
            }
        }
        // epoll does not know messages that were received and not delivered, and bytes that wait for room.
        self.table.open_from(0).filter(|c| c.has_left() || c.wants_room()).try_for_each(&mut visit)?;
        Ok(count)
    }

    fn flush(&self) -> Result<()> {
        self.table.open_from(0).for_each(|connection| self.flush_connection(connection));
        Ok(())
    }

    fn has_unsent(&self) -> bool {
        // Taken back before the look, so that bytes which are left behind meanwhile are remembered.
        if !self.unsent.load(Ordering::SeqCst) || !self.unsent.swap(false, Ordering::SeqCst) {
            return false;
        }
        let has_some = self.table.open_from(0).any(Connection::has_unsent);
        if has_some {
            self.unsent.store(true, Ordering::SeqCst);
        }
        has_some
    }

    fn wait_descriptor(&self) -> BorrowedFd<'_> {
        self.table.poller()
    }

    fn arm(&self) -> bool {
        if self.table.clear_bell() {
            return false;
        }
        // Inside a handler only replies count: parked requests wait until it has returned.
        let requests = !self.turn.is_mine();
        for connection in self.table.open_from(0) {
            let Ok(receiver) = connection.receiver.try_lock() else { return false };
            if receiver.has_message(requests && !connection.is_backlogged()) {
                return false;
            }
        }
        self.table.watch_all()
    }

    fn disarm(&self) {
        self.table.woke();
    }

    fn close(&self, timeout: Duration) {
        if !self.table.start_closing() {
            return;
        }
        let deadline = Instant::now() + timeout;
        for connection in self.table.open_from(0) {
            // An error is the end of a connection, which is what is being asked for.
            let _ = connection.say_goodbye();
        }
        for connection in self.table.open_from(0) {
            while connection.wants_room() && connection.flush(self.table.poller()).is_ok() {
                let rest = deadline.saturating_duration_since(Instant::now());
                if !connection.wants_room() || rest.is_zero() {
                    break;
                }
                let timeout =
                    Timespec { tv_sec: rest.as_secs() as i64, tv_nsec: i64::from(rest.subsec_nanos()) };
                let socket = connection.socket();
                let _ = poll(&mut [PollFd::from_borrowed_fd(socket, PollFlags::OUT)], Some(&timeout));
            }
            let _ = rustix::net::shutdown(connection.socket(), rustix::net::Shutdown::Write);
        }
        // Closing a socket with unread bytes resets the connection, which would overtake the goodbye.
        for connection in self.table.open_from(0) {
            while Instant::now() < deadline
                && socket::state(connection.socket()).is_ok_and(|state| state.unacknowledged)
            {
                std::thread::sleep(Duration::from_micros(50));
            }
        }
    }
}

impl Drop for TcpConduit {
    fn drop(&mut self) {
        self.close(Duration::from_secs(1));
        self.table.stop();
        if let Some(door) = self.door.take() {
            // A panic there was reported when it happened.
            let _ = door.join();
        }
    }
}
