//! One connection: a side's sending and receiving state for a peer.
//!
//! # Numbers
//!
//! Packets are numbered when they are accepted, and sent at once if there is room, otherwise from a queue. A
//! long message whose payload is written takes its number first and its packet goes when the payload is in
//! place: packets behind it wait at the receiver. Each packet carries the sender's count of packets taken in,
//! and one goes alone if no other does.
//!
//! # Room
//!
//! A request finds room or is refused ([`Sent::Busy`](crate::conduit::Sent::Busy)). A reply is encoded and queued. A peer has
//! [`CREDITS`] requests that the other side has not taken in, as in the other conduits, and [`WINDOW`] packets that it has not
//! acknowledged.

#![forbid(unsafe_code)]

use super::fabric::{Registration, RemoteMemory, gather};
use super::packet::{self, HEAD_BYTES, Head, MARK_BYTES, PUT_BYTES};
use super::shared::{Flight, RequestPurpose, Shared, count, lock};
use super::window::{WINDOW, Window};
use super::{DEPTH, LONG_BYTES_MAX, PACKET_BYTES_MAX};
use crate::address::Peer;
use crate::conduit::Part;
use crate::conduit::oneside::{Access, AccessNotice, AccessState, Granted, Name};
use crate::conduit::wire::frame::{self, HEAD_BYTES_MAX};
use crate::error::{Result, RmaError};
use crate::message::{Destination, Direction, Message, Payload, Source};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// Requests that a peer may send beyond those that were taken in. Part of the version.
pub(super) const CREDITS: u32 = 64;

/// Owed credits that are worth a packet of their own.
const CREDIT_BATCH: u32 = CREDITS / 4;

/// Packets taken in that are worth an acknowledgement alone.
const ACKNOWLEDGE_BATCH: u32 = WINDOW / 4;

/// Bytes of a long payload, or of a put, that its packet has room for; more go in several, or are written.
pub(super) const PAYLOAD_MAX: usize = PACKET_BYTES_MAX - HEAD_BYTES - MARK_BYTES - HEAD_BYTES_MAX;

/// Path to the other side.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerRoute {
    /// As the library counts.
    pub(super) peer: u64,
    /// Prefix of packets to it.
    pub(super) token: u64,
}

pub(super) struct Connection {
    pub(super) peer: Peer,
    /// Prefix of packets from it.
    pub(super) token: u64,
    pub(super) way: OnceLock<PeerRoute>,
    open: AtomicBool,
    lost: OnceLock<String>,
    /// Requests that may still be sent.
    credits: AtomicU32,
    /// Requests taken in and not yet reported.
    owed: AtomicU32,
    /// Packets of the peer that were taken in, as the number of the next. Written by the thread whose turn it is.
    taken: AtomicU32,
    /// The count last reported to it.
    told: AtomicU32,
    /// It waits to be told.
    acknowledge: AtomicBool,
    /// Packets that wait in the queue.
    waiting: AtomicUsize,
    /// Requests to the port in flight, without packets.
    in_flight: AtomicU32,
    sender: Mutex<Sender>,
    pub(super) incoming: Mutex<Incoming>,
    /// Requests that came while none could be delivered, oldest first; at most [`CREDITS`].
    pub(super) parked: Mutex<VecDeque<Vec<u8>>>,
    /// Replies that came while they were not to be delivered, oldest first.
    pub(super) held: Mutex<VecDeque<Vec<u8>>>,
}

#[derive(Default)]
struct Sender {
    /// The number of the next packet.
    next: u32,
    /// Those before it have been taken in by the peer.
    acknowledged: u32,
    /// Packets that wait for room.
    queue: VecDeque<Vec<u8>>,
    /// Memory for the packet that is being made.
    scratch: Vec<u8>,
    /// Puts in packets: the number behind the last packet, and the operation.
    puts: VecDeque<(u32, u64)>,
    granted: Granted,
    loans: Vec<u64>,
    last_loan: u64,
    /// The number behind the goodbye, when it was said.
    closed: Option<u32>,
}

/// Receiving side of a connection.
#[derive(Default)]
pub(super) struct Incoming {
    pub(super) window: Window,
    /// A long message that is not complete.
    pub(super) assembly: Option<Assembly>,
}

/// A long message that comes in parts.
pub(super) struct Assembly {
    /// Its frame.
    pub(super) frame: Vec<u8>,
    pub(super) to: Destination,
    pub(super) bytes: usize,
    pub(super) filled: usize,
}

/// The answer to an attempt to send.
#[derive(Default)]
pub(super) enum Accepted {
    /// With the number of the loan, or 0.
    Yes(u64),
    #[default]
    NoRoom,
}

/// Kind of a one-sided operation.
pub(super) enum OneSided<'a> {
    /// The source stays as it is until the end, or not.
    Put {
        source: Source<'a>,
        stays: bool,
    },
    Get(Part),
}

impl OneSided<'_> {
    fn bytes(&self) -> usize {
        match self {
            Self::Put { source, .. } => source.bytes(),
            Self::Get(part) => part.bytes,
        }
    }

    /// The caller's memory, if requests may use it until the end.
    fn direct(&self, shared: &Shared) -> Option<(Arc<Registration>, usize)> {
        let address = match self {
            Self::Put { source, stays: true } if shared.delivers => source.address(),
            Self::Get(part) => part.here.cast_const(),
            Self::Put { .. } => return None,
        };
        shared.in_own_segment(address, self.bytes())
    }
}

impl Connection {
    pub(super) fn new(peer: Peer) -> Result<Self> {
        let random = crate::key::fresh_random()?;
        let token = random.first_chunk::<8>().copied().map_or(0, u64::from_le_bytes);
        Ok(Self {
            peer,
            token,
            way: OnceLock::new(),
            open: AtomicBool::new(false),
            lost: OnceLock::new(),
            credits: AtomicU32::new(CREDITS),
            owed: AtomicU32::new(0),
            taken: AtomicU32::new(0),
            told: AtomicU32::new(0),
            acknowledge: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            in_flight: AtomicU32::new(0),
            sender: Mutex::default(),
            incoming: Mutex::default(),
            parked: Mutex::default(),
            held: Mutex::default(),
        })
    }

    /// The other side knows this one. False: it was known.
    pub(super) fn open(&self) -> bool {
        !self.open.swap(true, Ordering::AcqRel)
    }

    fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    /// Gives it up; the first reason stays. True the first time.
    pub(super) fn lose(&self, reason: String) -> bool {
        self.lost.set(reason).is_ok()
    }

    /// Why it was given up, if it was.
    pub(super) fn lost(&self) -> Option<&str> {
        self.lost.get().map(String::as_str)
    }

    /// Packets that wait for room.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }

    fn refuse(&self, shared: &Shared) -> Accepted {
        shared.refused.store(true, Ordering::Release);
        Accepted::NoRoom
    }

    /// Sends a message. `lent`: its long payload stays as it is until the loan is returned.
    pub(super) fn send(&self, shared: &Shared, message: &Message<'_>, lent: bool) -> Result<Accepted> {
        let mut sender = lock(&self.sender);
        self.push(shared, &mut sender)?;
        let is_request = message.direction == Direction::Request;
        if is_request && (self.credits.load(Ordering::Acquire) == 0 || !self.has_room(&sender)) {
            return Ok(self.refuse(shared));
        }
        if shared.delivers
            && let Payload::Long(source, Destination::Region { region, owner, offset }) = message.payload
            && source.bytes() > PAYLOAD_MAX
            && let Some(access) = self.access(shared, &mut sender, (owner, region))?
        {
            let address = access.reach((owner, region), offset, source.bytes())?;
            let key = access.key;
            if let Some(loan) = self.write_payload(shared, &mut sender, message, lent, (address, key))? {
                return Ok(Accepted::Yes(loan));
            }
            if is_request {
                return Ok(self.refuse(shared));
            }
        }
        let sent = match message.payload {
            Payload::Short => self.emit_frame(shared, &mut sender, message, Source::EMPTY)?,
            Payload::Medium(source) => self.emit_frame(shared, &mut sender, message, source)?,
            Payload::Long(source, _) => self.emit_long(shared, &mut sender, message, source)?,
        };
        if sent {
            if is_request {
                self.credits.fetch_sub(1, Ordering::Relaxed);
            }
            return Ok(Accepted::Yes(0));
        }
        Ok(self.refuse(shared))
    }

    /// Returns true if a request may be sent: none is before it, and the peer has taken in enough.
    fn has_room(&self, sender: &Sender) -> bool {
        // Some are left for replies and for what is said about regions.
        let outstanding = sender.next.wrapping_sub(sender.acknowledged);
        self.is_open() && sender.closed.is_none() && sender.queue.is_empty() && outstanding < WINDOW / 2
    }

    /// A packet that is one frame, with the payload of a medium message.
    fn emit_frame(
        &self,
        shared: &Shared,
        sender: &mut Sender,
        message: &Message<'_>,
        medium: Source<'_>,
    ) -> Result<bool> {
        let mut packet = self.packet(shared, sender);
        let credits = self.take_owed();
        push_frame(message, credits, &mut packet);
        gather(medium, &mut packet);
        self.emit(shared, sender, packet, message.direction == Direction::Request, credits)
    }

    /// A long message in packets.
    fn emit_long(
        &self,
        shared: &Shared,
        sender: &mut Sender,
        message: &Message<'_>,
        source: Source<'_>,
    ) -> Result<bool> {
        let mut packet = self.packet(shared, sender);
        let credits = self.take_owed();
        packet::long(&mut packet);
        push_frame(message, credits, &mut packet);
        let mut at = source.bytes().min(PACKET_BYTES_MAX - packet.len());
        gather(source.part(0, at), &mut packet);
        if !self.emit(shared, sender, packet, message.direction == Direction::Request, credits)? {
            return Ok(false);
        }
        while at < source.bytes() {
            let mut packet = self.packet(shared, sender);
            packet::part(&mut packet);
            let bytes = (source.bytes() - at).min(PACKET_BYTES_MAX - packet.len());
            gather(source.part(at, bytes), &mut packet);
            at += bytes;
            self.emit(shared, sender, packet, false, 0)?;
        }
        Ok(true)
    }

    /// Writes the payload of a long message; its packet follows when it is in place. None: no room.
    fn write_payload(
        &self,
        shared: &Shared,
        sender: &mut Sender,
        message: &Message<'_>,
        lent: bool,
        (address, key): (u64, u64),
    ) -> Result<Option<u64>> {
        let Payload::Long(source, _) = message.payload else { return Ok(None) };
        let Some(way) = self.way.get() else { return Ok(None) };
        let outstanding = sender.next.wrapping_sub(sender.acknowledged);
        if self.is_busy() || outstanding >= WINDOW - 1 || !self.is_open() {
            return Ok(None);
        }
        let held = if lent { shared.registered(source) } else { None };
        let loan = if held.is_some() { sender.last_loan + 1 } else { 0 };
        let (held, slots, at) = match held {
            Some((registration, at)) => (Some(registration), None, at),
            None => {
                let Some(slots) = shared.slots(source.bytes()) else { return Ok(None) };
                let at = slots.offset();
                shared.staging.memory.fill_from(at, source);
                (None, Some(slots), at)
            }
        };
        let mut packet = Vec::with_capacity(HEAD_BYTES + HEAD_BYTES_MAX);
        self.head(shared, sender.next).encode(&mut packet);
        let credits = self.take_owed();
        push_frame(message, credits, &mut packet);
        let what = RequestPurpose::Payload(packet, loan);
        let flight = Flight { peer: self.peer, slots, held, what };
        let there = RemoteMemory { peer: way.peer, address, key };
        if !shared.write(there, at, source.bytes(), flight)? {
            self.owed.fetch_add(credits, Ordering::Relaxed);
            return Ok(None);
        }
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        sender.next = sender.next.wrapping_add(1);
        if loan > 0 {
            sender.last_loan = loan;
            sender.loans.push(loan);
        }
        if message.direction == Direction::Request {
            self.credits.fetch_sub(1, Ordering::Relaxed);
        }
        Ok(Some(loan))
    }

    /// Returns true if as many requests to the port are in flight as one connection may have.
    fn is_busy(&self) -> bool {
        self.in_flight.load(Ordering::Relaxed) >= DEPTH
    }

    /// A request of [`Connection::start`] or for a payload has ended.
    pub(super) fn landed(&self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    /// The payload of a long message is in place: its packet goes before all that wait.
    pub(super) fn payload_landed(&self, shared: &Shared, packet: Vec<u8>, loan: u64) -> Result<()> {
        let mut sender = lock(&self.sender);
        sender.loans.retain(|&other| other != loan);
        sender.queue.push_front(packet);
        self.push(shared, &mut sender)
    }

    /// Returns true if a loan is returned, or never will be.
    pub(super) fn is_returned(&self, loan: u64) -> bool {
        loan == 0 || self.lost().is_some() || !lock(&self.sender).loans.contains(&loan)
    }

    /// Starts a one-sided operation on a region.
    pub(super) fn start(
        &self,
        shared: &Shared,
        name: Name,
        offset: u64,
        what: &OneSided<'_>,
        operation: u64,
    ) -> Result<Accepted> {
        let bytes = what.bytes();
        if bytes > LONG_BYTES_MAX {
            let what = format!("a put or get of {bytes} bytes at once; {LONG_BYTES_MAX} are possible");
            return Err(RmaError::Usage(what));
        }
        // Before the lock: the first time this takes a while.
        let direct = what.direct(shared);
        let mut sender = lock(&self.sender);
        self.push(shared, &mut sender)?;
        let Some(way) = self.way.get() else { return Ok(self.refuse(shared)) };
        if !self.has_room(&sender) || self.is_busy() {
            return Ok(self.refuse(shared));
        }
        let Some(access) = self.access(shared, &mut sender, name)? else { return Ok(self.refuse(shared)) };
        let address = access.reach(name, offset, bytes)?;
        if let OneSided::Put { source, .. } = what
            && !shared.delivers
        {
            let sent = self.emit_put(shared, &mut sender, name, offset, *source)?;
            if sent {
                let behind = sender.next;
                sender.puts.push_back((behind, operation));
            }
            return Ok(if sent { Accepted::Yes(0) } else { self.refuse(shared) });
        }
        let (held, slots, at) = match direct {
            Some((registration, at)) => (Some(registration), None, at),
            None => {
                let Some(slots) = shared.slots(bytes) else { return Ok(self.refuse(shared)) };
                let at = slots.offset();
                (None, Some(slots), at)
            }
        };
        let there = RemoteMemory { peer: way.peer, address, key: access.key };
        let flight = |what| Flight { peer: self.peer, slots, held, what };
        let begun = match what {
            OneSided::Put { source, .. } => {
                let flight = flight(RequestPurpose::Put(operation));
                if flight.slots.is_some() {
                    shared.staging.memory.fill_from(at, *source);
                }
                shared.write(there, at, bytes, flight)?
            }
            OneSided::Get(part) => {
                let mut flight = flight(RequestPurpose::Got(operation));
                if flight.slots.is_some() {
                    flight.what = RequestPurpose::Staged(operation, part.at, bytes);
                }
                shared.read(there, at, bytes, flight)?
            }
        };
        if !begun {
            return Ok(self.refuse(shared));
        }
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        Ok(Accepted::Yes(0))
    }

    /// A put in packets; false: no room, and nothing was sent.
    fn emit_put(
        &self,
        shared: &Shared,
        sender: &mut Sender,
        name: Name,
        offset: u64,
        source: Source<'_>,
    ) -> Result<bool> {
        const MOST: usize = PACKET_BYTES_MAX - HEAD_BYTES - PUT_BYTES;
        let mut at = 0;
        while at < source.bytes() {
            let bytes = (source.bytes() - at).min(MOST);
            let mut packet = self.packet(shared, sender);
            packet::put(name, offset + at as u64, &mut packet);
            gather(source.part(at, bytes), &mut packet);
            // A message that has begun is finished, from the queue if need be.
            if !self.emit(shared, sender, packet, at == 0, 0)? {
                return Ok(false);
            }
            at += bytes;
        }
        Ok(true)
    }

    /// The access to a region of the other side; asks for it the first time.
    fn access(&self, shared: &Shared, sender: &mut Sender, name: Name) -> Result<Option<Access>> {
        match sender.granted.find(name)? {
            AccessState::Granted(access) => return Ok(Some(access)),
            AccessState::Asked => {}
            AccessState::Unknown => {
                self.emit_notice(shared, sender, AccessNotice::Want(name))?;
                sender.granted.asked(name);
            }
        }
        Ok(None)
    }

    /// Invalidates the other side's grants of this region.
    pub(super) fn forget(&self, name: Name) {
        lock(&self.sender).granted.forget(name);
    }

    /// An answer of the other side; false when it was not asked.
    pub(super) fn answered(&self, name: Name, access: Option<Access>) -> bool {
        lock(&self.sender).granted.answered(name, access)
    }

    /// Sends a packet about regions.
    pub(super) fn tell(&self, shared: &Shared, notice: AccessNotice) -> Result<()> {
        self.emit_notice(shared, &mut lock(&self.sender), notice)
    }

    fn emit_notice(&self, shared: &Shared, sender: &mut Sender, notice: AccessNotice) -> Result<()> {
        let mut packet = self.packet(shared, sender);
        packet.extend_from_slice(&notice.encode());
        self.emit(shared, sender, packet, false, 0).map(drop)
    }

    fn head(&self, shared: &Shared, number: u32) -> Head {
        let token = self.way.get().map_or(0, |way| way.token);
        Head { token, from: shared.me, number, taken: 0 }
    }

    /// The beginning of the next packet, in the sender's memory.
    fn packet(&self, shared: &Shared, sender: &mut Sender) -> Vec<u8> {
        let mut packet = std::mem::take(&mut sender.scratch);
        packet.clear();
        self.head(shared, sender.next).encode(&mut packet);
        packet
    }

    /// Sends the next packet, or queues it, unless it may be refused: false then, and its credits are owed again.
    fn emit(
        &self,
        shared: &Shared,
        sender: &mut Sender,
        mut packet: Vec<u8>,
        may_be_refused: bool,
        credits: u32,
    ) -> Result<bool> {
        let in_turn = sender.queue.is_empty() && self.way.get().is_some() && self.is_open();
        if in_turn && self.is_in_window(sender, &packet) && self.post(shared, &mut packet)? {
            sender.scratch = packet;
        } else if may_be_refused {
            sender.scratch = packet;
            self.owed.fetch_add(credits, Ordering::Relaxed);
            return Ok(false);
        } else {
            sender.queue.push_back(packet);
            self.note(shared, sender);
        }
        sender.next = sender.next.wrapping_add(1);
        Ok(true)
    }

    /// Returns true if the peer surely has room for this packet.
    fn is_in_window(&self, sender: &Sender, packet: &[u8]) -> bool {
        let number = Head::split(packet).map_or(0, |(head, _)| head.number);
        number.wrapping_sub(sender.acknowledged) < WINDOW
    }

    /// Sends a packet, with the count taken in until now; false: no room.
    fn post(&self, shared: &Shared, packet: &mut [u8]) -> Result<bool> {
        let Some(way) = self.way.get() else { return Ok(false) };
        // Taken back before the look, so that what comes meanwhile is acknowledged again.
        let due = self.acknowledge.swap(false, Ordering::AcqRel);
        let taken = self.taken.load(Ordering::Acquire);
        packet::set_taken(packet, taken);
        let sent = shared.send(self.peer, way.peer, packet);
        if matches!(sent, Ok(true)) {
            self.told.store(taken, Ordering::Relaxed);
        } else if due {
            self.acknowledge.store(true, Ordering::Release);
            shared.acknowledge.store(true, Ordering::Release);
        }
        sent
    }

    /// Sends what waits, as far as there is room, and an acknowledgement that is due.
    pub(super) fn flush(&self, shared: &Shared) -> Result<()> {
        self.push(shared, &mut lock(&self.sender))
    }

    fn push(&self, shared: &Shared, sender: &mut Sender) -> Result<()> {
        if sender.queue.is_empty() || !self.is_open() || self.lost().is_some() {
            return Ok(());
        }
        while let Some(mut packet) = sender.queue.pop_front() {
            let posted =
                if self.is_in_window(sender, &packet) { self.post(shared, &mut packet) } else { Ok(false) };
            if !matches!(posted, Ok(true)) {
                sender.queue.push_front(packet);
                self.note(shared, sender);
                return posted.map(drop);
            }
        }
        self.note(shared, sender);
        Ok(())
    }

    fn note(&self, shared: &Shared, sender: &Sender) {
        let waiting = sender.queue.len();
        let before = self.waiting.swap(waiting, Ordering::AcqRel);
        if waiting != before {
            // Wraps around when it gets less.
            shared.waiting.fetch_add(waiting.wrapping_sub(before), Ordering::Release);
        }
    }

    /// A packet of the peer's, with this number, was taken in. `soon`: the peer waits to hear of it.
    pub(super) fn took(&self, shared: &Shared, number: u32, soon: bool) {
        let behind = number.wrapping_add(1);
        let taken = self.taken.load(Ordering::Relaxed);
        if behind.wrapping_sub(taken) as i32 > 0 {
            self.taken.store(behind, Ordering::Release);
        }
        let untold = behind.wrapping_sub(self.told.load(Ordering::Relaxed)) as i32;
        if soon || untold >= ACKNOWLEDGE_BATCH as i32 {
            self.acknowledge.store(true, Ordering::Release);
            shared.acknowledge.store(true, Ordering::Release);
        }
    }

    /// Acknowledges what was taken in, if the peer waits for that and nothing else goes to it; false: there is no room.
    pub(super) fn acknowledge(&self, shared: &Shared) -> Result<bool> {
        if !self.acknowledge.load(Ordering::Acquire) || self.lost().is_some() {
            return Ok(true);
        }
        let mut packet = Vec::with_capacity(HEAD_BYTES + 1);
        self.head(shared, 0).encode(&mut packet);
        packet::acknowledgement(&mut packet);
        // Not before the other side knows this one; it waits for nothing then.
        let sent = self.is_open() && self.post(shared, &mut packet)?;
        if sent {
            count(&shared.counts.acknowledgements);
        }
        Ok(sent)
    }

    /// The peer has taken in all packets before this number. False: it cannot have.
    pub(super) fn acknowledged(&self, shared: &Shared, taken: u32) -> Result<bool> {
        let mut sender = lock(&self.sender);
        let further = taken.wrapping_sub(sender.acknowledged);
        if further as i32 <= 0 {
            // An older one: packets may come in any order.
            return Ok(true);
        }
        if further > sender.next.wrapping_sub(sender.acknowledged) {
            return Ok(false);
        }
        sender.acknowledged = taken;
        while let Some(&(behind, operation)) = sender.puts.front()
            && taken.wrapping_sub(behind) as i32 >= 0
        {
            sender.puts.pop_front();
            lock(&shared.ended).push((self.peer, operation));
            shared.ended_count.fetch_add(1, Ordering::Release);
        }
        self.push(shared, &mut sender).map(|()| true)
    }

    /// Returns true if sent packets may not have been taken in by the peer.
    pub(super) fn is_unsure(&self) -> bool {
        let sender = lock(&self.sender);
        sender.next != sender.acknowledged
    }

    /// Credits to be told to the peer. Call it with the sender's lock.
    fn take_owed(&self) -> u32 {
        let owed = self.owed.load(Ordering::Relaxed).min(CREDITS);
        self.owed.fetch_sub(owed, Ordering::Relaxed);
        owed
    }

    /// Notes that a request of the peer was taken in.
    pub(super) fn owe_credit(&self) {
        self.owed.fetch_add(1, Ordering::Relaxed);
    }

    /// Tells the peer about owed credits if they are many.
    pub(super) fn return_credits(&self, shared: &Shared) -> Result<()> {
        if self.owed.load(Ordering::Relaxed) < CREDIT_BATCH {
            return Ok(());
        }
        let mut sender = lock(&self.sender);
        if sender.closed.is_some() {
            return Ok(());
        }
        let credits = self.take_owed();
        let mut packet = self.packet(shared, &mut sender);
        packet.extend_from_slice(&frame::encode_credits(credits as u16));
        self.emit(shared, &mut sender, packet, false, credits).map(drop)
    }

    /// Takes credits from the peer; false when there are more than it can have owed.
    pub(super) fn take_credits(&self, credits: u16) -> bool {
        let before = self.credits.fetch_add(u32::from(credits), Ordering::Release);
        before + u32::from(credits) <= CREDITS
    }

    /// Says that nothing more will come. True: the peer has taken in everything, or never will.
    pub(super) fn say_goodbye(&self, shared: &Shared) -> Result<bool> {
        let mut sender = lock(&self.sender);
        if sender.next == 0 || self.lost().is_some() || !self.is_open() {
            return Ok(true);
        }
        if sender.closed.is_none() {
            let credits = self.take_owed();
            let mut packet = self.packet(shared, &mut sender);
            packet.extend_from_slice(&frame::encode_goodbye(credits as u16));
            self.emit(shared, &mut sender, packet, false, credits)?;
            sender.closed = Some(sender.next);
        }
        self.push(shared, &mut sender)?;
        Ok(sender.closed == Some(sender.acknowledged))
    }
}

/// The frame of a message, behind what `to` has.
fn push_frame(message: &Message<'_>, credits: u32, to: &mut Vec<u8>) {
    let mut head = [0; HEAD_BYTES_MAX];
    let bytes = frame::encode(message, credits as u16, &mut head);
    to.extend_from_slice(&head[..bytes]);
}

const _: () = assert!(CREDITS <= u16::MAX as u32, "credits travel in 16 bits");
const _: () = assert!(2 * CREDITS + 8 < WINDOW, "requests and their replies fit into the window");
