//! One proven connection to a peer: its state, the loss of it, and the sending half. The receiving half is
//! [`super::receiver`].
//!
//! # Credits and back-pressure
//!
//! A peer may have [`CREDITS`] requests in flight that the other side has not taken in. A credit is returned
//! when the request is handed to its handler, with the next frame of the other direction (usually the reply),
//! or by a frame of its own once a quarter of them is owed. So a poll that reads on for replies without
//! running requests has to park a bounded number. Bytes that the socket does not take are copied to a queue:
//! for a request only when the queue stays below [`QUEUE_BYTES`] (or the socket has taken a part already),
//! for a reply always; the receiver stops taking in a peer's requests while the queue towards that peer is
//! full, which bounds the replies that handlers can add. A payload that is lent is not copied: the rest that
//! the socket leaves is written on from its place, before the queue.

#![forbid(unsafe_code)]

use super::receiver::Receiver;
use super::socket;
use crate::address::Peer;
use crate::conduit::Loan;
use crate::conduit::wire::frame::{self, HEAD_BYTES_MAX};
use crate::message::{Direction, Message, Payload, Source};
use rustix::event::epoll;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use vgas_shm::Span;

/// Requests that a peer may send beyond those that were taken in. Enough to keep a link with 50 µs of delay busy with
/// short messages; small enough that parking that many medium ones is bearable. Part of the protocol's version.
pub(super) const CREDITS: u32 = 256;

/// Owed credits that are worth a frame of their own.
const CREDIT_BATCH: u32 = CREDITS / 4;

/// Bytes that may wait for the socket before requests are refused: a few of the largest medium messages.
pub(super) const QUEUE_BYTES: usize = 256 << 10;

/// Tries after the socket took a part of a message and then nothing, before the rest is copied. The other side empties
/// a socket buffer faster than a copy, when it is awake at all; 200 tries are about 50 µs.
const TRIES_BEFORE_COPY: u32 = 200;

/// Deliveries without a sleep after which a connection is no longer watched: ending and renewing the watch are two
/// system calls, each worth some ten arrivals.
const AWAKE_DELIVERIES: u32 = 256;

const _: () = assert!(CREDITS <= u16::MAX as u32, "credits travel in 16 bits");

/// A connection. Lives until the conduit is dropped, even when it is lost: descriptors are never reused under
/// a thread that still has the old one in hand.
pub(super) struct Connection {
    pub(super) peer: Peer,
    socket: OwnedFd,
    /// Requests that may still be sent. Lowered under the sender's lock, raised by the polling thread.
    credits: AtomicU32,
    /// Requests of the peer that were taken in and not yet reported to it.
    owed: AtomicU32,
    /// Bytes in the sender's queue; written under its lock.
    backlog: AtomicUsize,
    /// A message was refused because the socket had no room, or a lent payload waits for it, or the wait descriptor reports
    /// room.
    blocked: AtomicBool,
    /// The last loan that was given back.
    returned: AtomicU64,
    /// A request was refused, for want of room or credits, and its waiting thread was not told of any since.
    refused: AtomicBool,
    /// Messages delivered since a thread last slept, up to [`AWAKE_DELIVERIES`].
    deliveries_awake: AtomicU32,
    /// Received messages may wait for delivery.
    left: AtomicBool,
    /// The door found the peer silent when it last looked.
    silent: AtomicBool,
    lost: OnceLock<String>,
    goodbye_received: AtomicBool,
    sender: Mutex<Sender>,
    pub(super) receiver: Mutex<Receiver>,
}

/// Bytes that the socket did not take.
#[derive(Default)]
struct Sender {
    /// Precedes the queue.
    lent: Option<Lent>,
    /// Number of payloads kept as loans; the present one is the last.
    loans: u64,
    queue: Vec<u8>,
    /// The first byte of `queue` that was not sent.
    head: usize,
    watched: Watched,
    closed: bool,
}

/// A lent payload that the socket has taken in part.
struct Lent {
    span: Span,
    sent: usize,
}

impl Lent {
    /// Bytes that the socket has not taken.
    fn rest(&self) -> usize {
        self.span.bytes().saturating_sub(self.sent)
    }
}

/// Events of the connection that the wait descriptor reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Watched {
    /// Nothing: no thread has slept lately. Every arrival on a watched socket costs a walk through epoll's
    /// call-back, about a tenth of a short message's way.
    #[default]
    No,
    Arrivals,
    ArrivalsAndRoom,
    /// Nothing, for ever: its end would wake sleepers again and again.
    Ended,
}

/// Locks; a thread that panicked in between left the data usable (single assignments only).
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Connection {
    pub(super) fn new(peer: Peer, socket: OwnedFd) -> Self {
        Self {
            peer,
            socket,
            credits: AtomicU32::new(CREDITS),
            owed: AtomicU32::new(0),
            backlog: AtomicUsize::new(0),
            blocked: AtomicBool::new(false),
            returned: AtomicU64::new(0),
            refused: AtomicBool::new(false),
            deliveries_awake: AtomicU32::new(0),
            left: AtomicBool::new(false),
            silent: AtomicBool::new(false),
            lost: OnceLock::new(),
            goodbye_received: AtomicBool::new(false),
            sender: Mutex::default(),
            receiver: Mutex::default(),
        }
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Sends a message; none if there is no room. `lent`: the memory of its payload, which stays unchanged
    /// until [`Connection::is_returned`] returns true. An error means that the connection is broken.
    pub(super) fn send(&self, message: &Message<'_>, lent: Option<&Span>) -> io::Result<Option<Loan>> {
        loop {
            if let Some(loan) = self.try_send(message, lent)? {
                return Ok(Some(loan));
            }
            // A thread that makes room either finds this, or has made it before this is asked.
            self.refused.store(true, Ordering::SeqCst);
            if !self.has_room_again() {
                return Ok(None);
            }
        }
    }

    fn try_send(&self, message: &Message<'_>, lent: Option<&Span>) -> io::Result<Option<Loan>> {
        let payload = match message.payload {
            Payload::Short => Source::EMPTY,
            Payload::Medium(source) | Payload::Long(source, _) => source,
        };
        let request = message.direction == Direction::Request;
        let mut sender = lock(&self.sender);
        if sender.closed {
            return Err(io::Error::other("the conduit was closed"));
        }
        // A poll sees when a full socket has room for a good part of a long message; trying before that is in vain.
        let is_full = lent.is_some() && self.blocked.load(Ordering::Acquire);
        if request && (is_full || self.credits.load(Ordering::Acquire) == 0) {
            return Ok(None);
        }
        if sender.waiting() > 0 {
            self.push(&mut sender)?;
            let full = sender.waiting() > 0 && sender.waiting() + payload.bytes() > QUEUE_BYTES;
            if request && full {
                self.blocked.store(true, Ordering::Release);
                return Ok(None);
            }
        }
        debug_assert!(lent.is_none() || !payload.is_contended(), "what is lent stays as it is");
        let (first, mut rest) = socket::split(payload);
        let loan = socket::with_whole_words(first, |first| self.begin(&mut sender, message, first, lent))?;
        while loan.is_some() && rest.bytes() > 0 {
            let (piece, behind) = socket::split(rest);
            socket::with_whole_words(piece, |piece| self.send_rest(&mut sender, &[], piece, 0))?;
            rest = behind;
        }
        Ok(loan)
    }

    /// Hands a message that may be sent to the socket, or queues it; of its payload only the beginning.
    fn begin(
        &self,
        sender: &mut Sender,
        message: &Message<'_>,
        payload: Source<'_>,
        lent: Option<&Span>,
    ) -> io::Result<Option<Loan>> {
        let request = message.direction == Direction::Request;
        // Before the message can be seen: its credit may be back before this call returns.
        if request {
            self.credits.fetch_sub(1, Ordering::Relaxed);
        }
        let mut head = [0; HEAD_BYTES_MAX];
        let owed = self.owed.swap(0, Ordering::Relaxed);
        let head_bytes = frame::encode(message, owed as u16, &mut head);
        let head = &head[..head_bytes];
        let mut done = 0;
        if sender.waiting() == 0 {
            match socket::send(self.socket(), head, payload, 0)? {
                Some(bytes) => done = bytes,
                None if request && (lent.is_some() || payload.bytes() > QUEUE_BYTES) => {
                    self.owed.fetch_add(owed, Ordering::Relaxed);
                    self.credits.fetch_add(1, Ordering::Relaxed);
                    self.blocked.store(true, Ordering::Release);
                    return Ok(None);
                }
                None => {}
            }
            if let Some(span) = lent
                && (head.len()..head.len() + payload.bytes()).contains(&done)
            {
                sender.lent = Some(Lent { span: span.clone(), sent: done - head.len() });
                sender.loans += 1;
                self.blocked.store(true, Ordering::SeqCst);
                return Ok(Some(Loan(sender.loans)));
            }
        }
        if done < head.len() + payload.bytes() {
            self.send_rest(sender, head, payload, done)?;
        }
        Ok(Some(Loan::NONE))
    }

    /// Returns true if a loan is returned: its bytes are with the system, or the connection is lost.
    pub(super) fn is_returned(&self, loan: Loan) -> bool {
        self.returned.load(Ordering::Acquire) >= loan.0 || self.lost().is_some()
    }

    /// Sends what the first attempt left, or (without a head) a further piece, as long as the socket takes some, then queues a copy.
    #[cold]
    fn send_rest(
        &self,
        sender: &mut Sender,
        head: &[u8],
        payload: Source<'_>,
        mut done: usize,
    ) -> io::Result<()> {
        let total = head.len() + payload.bytes();
        // With older bytes waiting, or nothing taken at all, the other side is not reading at the moment.
        let is_taken = done > 0 || head.is_empty();
        let mut tries = if sender.waiting() == 0 && is_taken { TRIES_BEFORE_COPY } else { 0 };
        while done < total && tries > 0 {
            let sent = if done < head.len() {
                socket::send(self.socket(), &head[done..], payload, 0)?
            } else {
                socket::send(self.socket(), &[], payload, done - head.len())?
            };
            match sent {
                Some(bytes) => (done, tries) = (done + bytes, TRIES_BEFORE_COPY),
                None => tries -= 1,
            }
        }
        if done < total {
            sender.queue.extend_from_slice(head.get(done..).unwrap_or(&[]));
            socket::append(&mut sender.queue, payload, done.saturating_sub(head.len()));
            self.backlog.store(sender.queued(), Ordering::Release);
        }
        Ok(())
    }

    /// Sends what waits in the queue; when nothing is left and there is room, the wait descriptor no longer reports it.
    pub(super) fn flush(&self, poller: BorrowedFd<'_>) -> io::Result<()> {
        let mut sender = lock(&self.sender);
        self.push(&mut sender)?;
        if sender.waiting() == 0 && socket::has_room(self.socket()) {
            self.blocked.store(false, Ordering::SeqCst);
            if sender.watched == Watched::ArrivalsAndRoom {
                self.set_watched(&mut sender, poller, Watched::Arrivals)?;
            }
        }
        Ok(())
    }

    /// Returns true if [`Connection::flush`] has something to do.
    pub(super) fn wants_room(&self) -> bool {
        self.backlog.load(Ordering::SeqCst) > 0 || self.blocked.load(Ordering::SeqCst)
    }

    /// Copied bytes that wait for the socket of a connection that lives.
    #[inline]
    pub(super) fn unsent_bytes(&self) -> usize {
        let bytes = self.backlog.load(Ordering::SeqCst);
        if bytes > 0 && self.lost().is_some() { 0 } else { bytes }
    }

    /// Returns true if there are unsent bytes.
    #[inline]
    pub(super) fn has_unsent(&self) -> bool {
        self.unsent_bytes() > 0
    }

    /// A request was refused for want of room elsewhere.
    pub(super) fn refuse(&self) {
        self.refused.store(true, Ordering::SeqCst);
    }

    /// Returns true if a refused request may find room and credit now. Returns it once: the caller must tell
    /// the waiting threads. The thread that made room may be another one than those, and nothing that they
    /// sleep on shows it.
    pub(super) fn has_room_again(&self) -> bool {
        self.refused.load(Ordering::SeqCst)
            && !self.wants_room()
            && self.credits.load(Ordering::SeqCst) > 0
            && self.refused.swap(false, Ordering::SeqCst)
    }

    /// Before sleeping: makes the wait descriptor report arrivals, and room in the socket if something waits for it.
    pub(super) fn watch(&self, poller: BorrowedFd<'_>) -> io::Result<()> {
        let mut sender = lock(&self.sender);
        self.deliveries_awake.store(0, Ordering::Relaxed);
        match sender.watched {
            Watched::No | Watched::Arrivals if self.wants_room() => {
                // Another thread may send the rest: the watch must still be ended, by the next poll.
                self.blocked.store(true, Ordering::Release);
                self.set_watched(&mut sender, poller, Watched::ArrivalsAndRoom)
            }
            Watched::No => self.set_watched(&mut sender, poller, Watched::Arrivals),
            Watched::Arrivals | Watched::ArrivalsAndRoom | Watched::Ended => Ok(()),
        }
    }

    /// Counts deliveries; returns true after so many since a thread last slept that watching has become a
    /// waste.
    pub(super) fn count_deliveries(&self, count: usize) -> bool {
        let before = self.deliveries_awake.load(Ordering::Relaxed);
        if before < AWAKE_DELIVERIES {
            self.deliveries_awake.store(before + count as u32, Ordering::Relaxed);
            return before + count as u32 >= AWAKE_DELIVERIES;
        }
        false
    }

    /// Ends the watch if `unneeded` still returns true under the lock that [`Connection::watch`] takes.
    pub(super) fn unwatch(&self, poller: BorrowedFd<'_>, unneeded: impl Fn() -> bool) -> io::Result<()> {
        let mut sender = lock(&self.sender);
        if sender.watched == Watched::Arrivals && unneeded() {
            self.set_watched(&mut sender, poller, Watched::No)?;
        }
        Ok(())
    }

    /// Ends the watch for ever.
    pub(super) fn end_watch(&self, poller: BorrowedFd<'_>) -> io::Result<()> {
        self.set_watched(&mut lock(&self.sender), poller, Watched::Ended)
    }

    fn set_watched(&self, sender: &mut Sender, poller: BorrowedFd<'_>, to: Watched) -> io::Result<()> {
        use epoll::{EventData, EventFlags, add, delete, modify};
        let of = |watched| match watched {
            Watched::No | Watched::Ended => None,
            Watched::Arrivals => Some(EventFlags::IN),
            Watched::ArrivalsAndRoom => Some(EventFlags::IN | EventFlags::OUT),
        };
        let data = EventData::new_u64(u64::from(self.peer.0));
        match (of(sender.watched), of(to)) {
            (None, Some(flags)) => add(poller, &self.socket, data, flags)?,
            (Some(_), Some(flags)) => modify(poller, &self.socket, data, flags)?,
            (Some(_), None) => delete(poller, &self.socket)?,
            (None, None) => {}
        }
        sender.watched = to;
        Ok(())
    }

    /// Returns true if so much waits for the peer that its requests are left alone.
    pub(super) fn is_backlogged(&self) -> bool {
        self.backlog.load(Ordering::Acquire) > QUEUE_BYTES
    }

    /// Notes that a poll left messages behind, or none; only the polling thread calls this.
    pub(super) fn set_left(&self, left: bool) {
        if self.left.load(Ordering::Relaxed) != left {
            self.left.store(left, Ordering::Relaxed);
        }
    }

    /// Returns true if a poll should look here even if the socket brings nothing.
    pub(super) fn has_left(&self) -> bool {
        self.left.load(Ordering::Relaxed)
    }

    /// Notes that a request of the peer was taken in.
    pub(super) fn owe_credit(&self) {
        self.owed.fetch_add(1, Ordering::Relaxed);
    }

    /// Tells the peer about owed credits if they are many.
    pub(super) fn return_credits(&self) -> io::Result<()> {
        if self.owed.load(Ordering::Relaxed) < CREDIT_BATCH {
            return Ok(());
        }
        let mut sender = lock(&self.sender);
        let owed = self.owed.swap(0, Ordering::Relaxed);
        if owed > 0 && !sender.closed {
            sender.queue.extend_from_slice(&frame::encode_credits(owed as u16));
            self.push(&mut sender)?;
        }
        Ok(())
    }

    /// Takes credits from the peer; false when there are more than it can have owed.
    pub(super) fn take_credits(&self, credits: u16) -> bool {
        let before = self.credits.fetch_add(u32::from(credits), Ordering::SeqCst);
        before + u32::from(credits) <= CREDITS
    }

    /// Queues the last frame. Afterwards nothing can be sent.
    pub(super) fn say_goodbye(&self) -> io::Result<()> {
        let mut sender = lock(&self.sender);
        if sender.closed {
            return Ok(());
        }
        sender.closed = true;
        let owed = self.owed.swap(0, Ordering::Relaxed);
        sender.queue.extend_from_slice(&frame::encode_goodbye(owed as u16));
        self.push(&mut sender)
    }

    /// Notes the peer's last frame.
    pub(super) fn receive_goodbye(&self) {
        self.goodbye_received.store(true, Ordering::Release);
    }

    /// Returns true if the peer has announced that it sends nothing more.
    pub(super) fn said_goodbye(&self) -> bool {
        self.goodbye_received.load(Ordering::Acquire)
    }

    /// Notes whether the peer is silent; whether it was so at two looks in a row. One look may fall between a probe,
    /// long after the one before, and its answer.
    pub(super) fn note_silence(&self, silent: bool) -> bool {
        self.silent.swap(silent, Ordering::Relaxed) && silent
    }

    /// Gives the connection up; the first reason stays.
    pub(super) fn lose(&self, reason: String) {
        let _ = self.lost.set(reason);
        // An error means that the socket is not connected any more, which is what is wanted.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }

    /// Why it was given up, if it was.
    pub(super) fn lost(&self) -> Option<&str> {
        self.lost.get().map(String::as_str)
    }

    /// Writes what waits until the socket takes no more.
    fn push(&self, sender: &mut Sender) -> io::Result<()> {
        while let Some(lent) = &mut sender.lent {
            if lent.rest() == 0 {
                sender.lent = None;
                self.returned.store(sender.loans, Ordering::Release);
                break;
            }
            let rest = Source::of_span(&lent.span).part(lent.sent, lent.rest());
            match socket::send(self.socket(), &[], rest, 0)? {
                Some(bytes) => lent.sent += bytes,
                None => return Ok(()),
            }
        }
        while sender.queued() > 0 {
            match socket::send(self.socket(), &sender.queue[sender.head..], Source::EMPTY, 0)? {
                Some(bytes) => sender.head += bytes,
                None => break,
            }
        }
        if sender.queued() == 0 {
            sender.head = 0;
            sender.queue.clear();
            // A large message that had to be copied is not a reason to keep its memory.
            sender.queue.shrink_to(QUEUE_BYTES);
        } else if sender.head > sender.queue.len() / 2 {
            sender.queue.drain(..sender.head);
            sender.head = 0;
        }
        self.backlog.store(sender.queued(), Ordering::SeqCst);
        Ok(())
    }
}

impl Sender {
    /// Bytes that were copied.
    fn queued(&self) -> usize {
        self.queue.len() - self.head
    }

    /// Bytes that the socket has not taken yet.
    fn waiting(&self) -> usize {
        self.queued() + self.lent.as_ref().map_or(0, Lent::rest)
    }
}
