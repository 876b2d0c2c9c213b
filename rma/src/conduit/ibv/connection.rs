//! One connection: a queue pair to a peer, its waiting requests, and those in flight.
//!
//! # Completion
//!
//! Requests to a queue pair are done in order, so one completion stands for all before it. A message that fits inline
//! asks for one only when [`IbvOptions::signal_interval`](super::IbvOptions) others went without; whatever holds memory
//! (staging slots, a caller's page) always asks, so that nothing is held by a peer that is not written to any more.
//!
//! # Room
//!
//! A request finds room or is refused ([`Sent::Busy`]). A reply must find it, so it is copied and queued when there is
//! none. A peer has [`CREDITS`] requests that the other side has not taken in, as in the tcp conduit. Long messages need
//! access to their region, which is asked for once and granted while the other side polls; until then there is no room.

#![forbid(unsafe_code)]

use super::packet::{self, IMMEDIATE_CREDITS_MAX, NUMBER_BYTES, Number, Order};
use super::shared::Shared;
use super::verbs::cm::Id;
use super::verbs::{Local, QueuePair, QueuePairAddress, Registration, Route, Verb, Work, gather};
use super::{INLINE_MAX, LONG_BYTES_MAX, PACKET_BYTES_MAX};
use crate::address::Peer;
use crate::conduit::Part;
use crate::conduit::oneside::{Access, AccessNotice, AccessState, Granted, Name, Slots};
use crate::conduit::owned::OwnedMessage;
use crate::conduit::wire::frame::{self, HEAD_BYTES_MAX};
use crate::error::{Result, RmaError};
use crate::message::{Destination, Direction, Message, Payload, Source};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use vgas_shm::Atomic;

/// Requests that a peer may send beyond those that were taken in: enough to hide the way to a handler and back, few
/// enough that parking them is bearable. Part of the version.
pub(super) const CREDITS: u32 = 64;

/// Owed credits that are worth a packet of their own.
const CREDIT_BATCH: u32 = CREDITS / 4;

/// Bits of a request's id that count requests; the peer and a mark are above.
const COUNT_BITS: u32 = 40;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;
const SEND_MARK: u64 = 1 << 63;

/// Locks; the guarded state is consistent at every step.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The peer and the count in the id of a completion; none for a receive.
pub(super) fn sent_by(id: u64) -> Option<(Peer, u64)> {
    (id & SEND_MARK != 0).then_some((Peer(((id & !SEND_MARK) >> COUNT_BITS) as u32), id & COUNT_MASK))
}

pub(super) struct Connection {
    pub(super) peer: Peer,
    pair: QueuePair,
    pub(super) place: QueuePairAddress,
    /// The other side receives: sending may begin.
    open: AtomicBool,
    lost: OnceLock<String>,
    /// Requests that may still be sent.
    credits: AtomicU32,
    /// Requests taken in and not yet reported.
    owed: AtomicU32,
    /// The number of the next message; of the polling thread.
    expected: AtomicU32,
    /// Things in the sender's queues.
    waiting: AtomicUsize,
    sender: Mutex<Sender>,
    /// Requests that came while none could be delivered, oldest first; at most [`CREDITS`].
    pub(super) parked: Mutex<VecDeque<Vec<u8>>>,
    /// Replies that came while they were not to be delivered, oldest first.
    pub(super) held: Mutex<VecDeque<Vec<u8>>>,
}

#[derive(Default)]
struct Sender {
    /// Requests to the queue pair so far, and the number known to be done.
    posted: u64,
    done: u64,
    unsignalled: u32,
    /// Messages so far, which number them: SENDs, and WRITEs with immediate data.
    messages: u32,
    flights: VecDeque<Flight>,
    notices: VecDeque<AccessNotice>,
    replies: VecDeque<OwnedMessage>,
    granted: Granted,
    connected: bool,
    closed: bool,
}

/// Resources of the requests up to `last`.
struct Flight {
    last: u64,
    slots: Option<Slots>,
    ends: Option<Ended>,
}

/// A one-sided operation that is done.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ended {
    /// The initiator's number.
    pub(super) operation: u64,
    pub(super) how: How,
}

/// Current place of the bytes of a one-sided operation.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum How {
    /// There.
    Written,
    /// Read straight into their place.
    Read,
    /// In staging memory. Their number, and their first byte in the operation's memory.
    Staged(u64, usize),
}

/// The answer to an attempt to post.
pub(super) enum Posted {
    /// The count of its last request.
    At(u64),
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
    /// A word; its old value goes to the beginning of the operation's memory.
    Atomic(Atomic),
}

impl OneSided<'_> {
    fn bytes(&self) -> usize {
        match self {
            Self::Put { source, .. } => source.bytes(),
            Self::Get(part) => part.bytes,
            Self::Atomic(_) => size_of::<u64>(),
        }
    }

    /// The caller's memory, if the device may use it until the end.
    fn direct(&self, shared: &Shared) -> Option<(Arc<Registration>, usize)> {
        let address = match self {
            Self::Put { source, stays: true } => source.address(),
            Self::Get(part) => part.here.cast_const(),
            Self::Put { stays: false, .. } | Self::Atomic(_) => return None,
        };
        shared.in_own_segment(address, self.bytes())
    }
}

impl Connection {
    pub(super) fn new(shared: &Shared, peer: Peer) -> Result<Self> {
        let (options, chosen) = (&shared.options, &shared.chosen);
        let pair = QueuePair::new(
            &shared.queues,
            shared.depth,
            options.inline.min(INLINE_MAX as u32),
            chosen.route.port,
            shared.atomics,
        )?;
        let random = crate::key::fresh_random()?;
        let first_packet = u32::from_le_bytes([random[0], random[1], random[2], 0]);
        let (number, mtu) = (pair.number(), chosen.route.mtu);
        let (lid, gid, reads) = (chosen.lid, chosen.gid, chosen.route.reads);
        let place = QueuePairAddress { number, first_packet, mtu, lid, gid, reads };
        Ok(Self {
            peer,
            pair,
            place,
            open: AtomicBool::new(false),
            lost: OnceLock::new(),
            credits: AtomicU32::new(CREDITS),
            owed: AtomicU32::new(0),
            expected: AtomicU32::new(0),
            waiting: AtomicUsize::new(0),
            sender: Mutex::default(),
            parked: Mutex::default(),
            held: Mutex::default(),
        })
    }

    /// Connects to the queue pair at `there`. False: that was done before.
    pub(super) fn connect(&self, shared: &Shared, there: &QueuePairAddress) -> Result<bool> {
        let mut sender = lock(&self.sender);
        if sender.connected {
            return Ok(false);
        }
        sender.connected = true;
        let ours = shared.chosen.route;
        if ours.gid_index.is_some() == (there.gid == [0; 16]) {
            return Err(RmaError::Refused(format!(
                "{} here and the RDMA device of {} are on different kinds of network (one InfiniBand, one Ethernet); \
                 name devices that reach each other with ibv.device",
                shared.chosen.context.name, self.peer
            )));
        }
        let route = self.route(shared, there);
        self.pair.receive_from(there, &route)?;
        self.pair.send_from(self.place.first_packet, &route)?;
        Ok(true)
    }

    /// Connects to the queue pair at `there` as librdmacm says: afterwards it receives and may send.
    pub(super) fn join(&self, shared: &Shared, there: &QueuePairAddress, id: &Id) -> Result<()> {
        self.pair.join(id, &self.route(shared, there))
    }

    /// Returns the parameters that both sides support.
    pub(super) fn route(&self, shared: &Shared, there: &QueuePairAddress) -> Route {
        let ours = shared.chosen.route;
        Route { mtu: ours.mtu.min(there.mtu), reads: ours.reads.with(there.reads), ..ours }
    }

    /// The other side receives.
    pub(super) fn open(&self) {
        self.open.store(true, Ordering::Release);
    }

    pub(super) fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    /// Gives it up; the first reason stays. True the first time.
    pub(super) fn lose(&self, reason: String) -> bool {
        let first = self.lost.set(reason).is_ok();
        if first {
            self.pair.stop();
        }
        first
    }

    /// Why it was given up, if it was.
    pub(super) fn lost(&self) -> Option<&str> {
        self.lost.get().map(String::as_str)
    }

    /// Returns true if a request waits for room.
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > 0
    }

    /// Replies that wait for room.
    pub(super) fn waiting_replies(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }

    /// Sends a message. `lent`: its long payload stays as it is until the returned count is done.
    pub(super) fn send(&self, shared: &Shared, message: &Message<'_>, lent: bool) -> Result<Posted> {
        let mut sender = lock(&self.sender);
        self.push(shared, &mut sender)?;
        let request = message.direction == Direction::Request;
        let first = sender.replies.is_empty() && sender.notices.is_empty();
        if first && self.is_open() && !sender.closed {
            if request && self.credits.load(Ordering::Acquire) == 0 {
                return Ok(Posted::NoRoom);
            }
            if let Posted::At(count) = self.post_message(shared, &mut sender, message, lent)? {
                return Ok(Posted::At(count));
            }
        }
        if !request {
            sender.replies.push_back(OwnedMessage::of(message));
            self.note(shared, &sender);
            return Ok(Posted::At(0));
        }
        Ok(Posted::NoRoom)
    }

    /// Starts a one-sided operation on a region.
    pub(super) fn start(
        &self,
        shared: &Shared,
        name: Name,
        offset: u64,
        what: &OneSided,
        operation: u64,
    ) -> Result<Posted> {
        let bytes = what.bytes();
        if bytes > LONG_BYTES_MAX {
            let what = format!("a put or get of {bytes} bytes at once; {LONG_BYTES_MAX} are possible");
            return Err(RmaError::Usage(what));
        }
        // Before the lock: the first time this takes a while.
        let direct = what.direct(shared);
        let mut sender = lock(&self.sender);
        self.push(shared, &mut sender)?;
        let ordered = sender.replies.is_empty() && sender.notices.is_empty();
        if !ordered || !self.is_open() || !self.has_room(shared, &sender) {
            return Ok(Posted::NoRoom);
        }
        let Some(access) = self.access(shared, &mut sender, name)? else { return Ok(Posted::NoRoom) };
        if matches!(what, OneSided::Atomic(_)) && !access.atomics {
            return Err(self.differs());
        }
        let address = access.reach(name, offset, bytes)?;
        let inline = match what {
            OneSided::Put { source, .. } if bytes <= self.pair.inline_max => Some(Local::Inline(*source)),
            _ => None,
        };
        let direct = || direct.as_ref().map(|(memory, at)| Local::Registered(memory, *at, bytes));
        let (local, slots) = match inline.or_else(direct) {
            Some(local) => (local, None),
            None => match shared.staging.take(bytes) {
                Some(slots) => {
                    (Local::Registered(&shared.staging.memory, slots.offset(), bytes), Some(slots))
                }
                None => return Ok(Posted::NoRoom),
            },
        };
        let (verb, how) = match what {
            OneSided::Put { source, .. } => {
                if let Some(slots) = &slots {
                    shared.staging.memory.fill(slots.offset(), *source);
                }
                (Verb::Write(address, key_of(&access)), How::Written)
            }
            OneSided::Get(part) => {
                let how = if slots.is_some() { How::Staged(part.at, bytes) } else { How::Read };
                (Verb::Read(address, key_of(&access)), how)
            }
            OneSided::Atomic(atomic) => {
                (Verb::Atomic(address, key_of(&access), *atomic), How::Staged(0, bytes))
            }
        };
        if slots.is_some() && bytes > INLINE_MAX {
            shared.counts.copied.fetch_add(1, Ordering::Relaxed);
        }
        sender.posted += 1;
        let count = sender.posted;
        self.pair.post(Work { id: self.id(count), verb, local, signalled: true }, None)?;
        shared.counts.posted(verb, true);
        sender.unsignalled = 0;
        sender.flights.push_back(Flight { last: count, slots, ends: Some(Ended { operation, how }) });
        Ok(Posted::At(count))
    }

    /// The device here makes atomic updates, that of the other side does not.
    fn differs(&self) -> RmaError {
        RmaError::Refused(format!(
            "the RDMA device here makes atomic updates and that of {} does not; set ibv.atomics=off for the whole job",
            self.peer
        ))
    }

    /// Pretends that other access was granted.
    #[cfg(test)]
    pub(super) fn forge(&self, name: Name, forge: fn(Access) -> Access) {
        lock(&self.sender).granted.forge(name, forge);
    }

    /// Sends a packet about regions as soon as there is room.
    pub(super) fn tell(&self, shared: &Shared, notice: AccessNotice) -> Result<()> {
        let mut sender = lock(&self.sender);
        sender.notices.push_back(notice);
        self.push(shared, &mut sender)
    }

    /// Sends what waits, as far as there is room.
    pub(super) fn flush(&self, shared: &Shared) -> Result<()> {
        self.push(shared, &mut lock(&self.sender))
    }

    fn push(&self, shared: &Shared, sender: &mut Sender) -> Result<()> {
        if (sender.notices.is_empty() && sender.replies.is_empty())
            || !self.is_open()
            || self.lost().is_some()
        {
            self.note(shared, sender);
            return Ok(());
        }
        while let Some(notice) = sender.notices.front()
            && sender.posted - sender.done < u64::from(shared.depth)
        {
            let packet = notice.encode();
            if let Posted::NoRoom = self.post_packet(shared, sender, &packet)? {
                self.note(shared, sender);
                return Ok(());
            }
            sender.notices.pop_front();
        }
        while let Some(reply) = sender.replies.pop_front() {
            let message = reply.message();
            match self.post_message(shared, sender, &message, false) {
                Ok(Posted::At(_)) => {}
                Ok(Posted::NoRoom) => {
                    sender.replies.push_front(reply);
                    break;
                }
                Err(error) => {
                    self.note(shared, sender);
                    return Err(error);
                }
            }
        }
        self.note(shared, sender);
        Ok(())
    }

    fn note(&self, shared: &Shared, sender: &Sender) {
        let waiting = sender.notices.len() + sender.replies.len();
        let before = self.waiting.swap(waiting, Ordering::AcqRel);
        if waiting != before {
            // Wraps around when it gets less.
            shared.waiting.fetch_add(waiting.wrapping_sub(before), Ordering::Release);
        }
    }

    /// Room for a payload and its message.
    fn has_room(&self, shared: &Shared, sender: &Sender) -> bool {
        sender.posted - sender.done + 2 <= u64::from(shared.depth) && shared.has_room()
    }

    fn id(&self, count: u64) -> u64 {
        SEND_MARK | u64::from(self.peer.0) << COUNT_BITS | count & COUNT_MASK
    }

    /// The access to a region of the other side; asks for it the first time.
    fn access(&self, shared: &Shared, sender: &mut Sender, name: Name) -> Result<Option<Access>> {
        match sender.granted.find(name)? {
            AccessState::Granted(access) => return Ok(Some(access)),
            AccessState::Asked => {}
            AccessState::Unknown => {
                let want = AccessNotice::Want(name).encode();
                if let Posted::At(_) = self.post_packet(shared, sender, &want)? {
                    sender.granted.asked(name);
                }
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

    /// Posts a message: one SEND, behind a WRITE if it is long; or one WRITE if its immediate data says
    /// everything. The caller must be the next in order.
    fn post_message(
        &self,
        shared: &Shared,
        sender: &mut Sender,
        message: &Message<'_>,
        lent: bool,
    ) -> Result<Posted> {
        if !self.has_room(shared, sender) {
            return Ok(Posted::NoRoom);
        }
        let medium = match message.payload {
            Payload::Medium(source) => source,
            Payload::Short | Payload::Long(..) => Source::EMPTY,
        };
        let long = match message.payload {
            Payload::Long(source, Destination::Region { region, owner, offset }) => {
                let name = (owner, region);
                let Some(access) = self.access(shared, sender, name)? else { return Ok(Posted::NoRoom) };
                let address = access.reach(name, offset, source.bytes())?;
                (source.bytes() > 0).then_some((source, address, key_of(&access)))
            }
            Payload::Long(_, Destination::Operation { .. }) => {
                return Err(RmaError::Usage("the ibv conduit answers gets with one-sided reads".into()));
            }
            Payload::Short | Payload::Medium(_) => None,
        };
        let immediate = long.and_then(|_| packet::immediate(message, self.peer));
        // Memory before anything is changed: without it there is no room.
        let registered =
            if lent { shared.registered(long.map_or(Source::EMPTY, |(source, ..)| source)) } else { None };
        let copied = long.filter(|_| registered.is_none()).map_or(0, |(source, ..)| source.bytes());
        let packet_max = if immediate.is_some() { 0 } else { NUMBER_BYTES + HEAD_BYTES_MAX + medium.bytes() };
        let packet_bytes = if packet_max <= self.pair.inline_max { 0 } else { packet_max };
        // The copied payload first, then the packet, in one run of slots.
        let packet_at = copied.next_multiple_of(64);
        let slots = match packet_at + packet_bytes {
            0 => None,
            bytes => match shared.staging.take(bytes) {
                Some(slots) => Some(slots),
                None => return Ok(Posted::NoRoom),
            },
        };
        if message.direction == Direction::Request {
            self.credits.fetch_sub(1, Ordering::Relaxed);
        }
        if copied > 0 {
            shared.counts.copied.fetch_add(1, Ordering::Relaxed);
        }
        let memory = &shared.staging.memory;
        let payload = long.map(|(source, address, key)| {
            let local = match (&registered, &slots) {
                (Some((registration, offset)), _) => Local::Registered(registration, *offset, source.bytes()),
                (None, Some(slots)) => {
                    memory.fill(slots.offset(), source);
                    Local::Registered(memory, slots.offset(), source.bytes())
                }
                (None, None) => Local::Inline(Source::EMPTY),
            };
            (local, address, key)
        });
        let holds = slots.is_some() || long.is_some();
        let signalled = holds || sender.unsignalled + 1 >= shared.signal_interval;
        sender.unsignalled = if signalled { 0 } else { sender.unsignalled + 1 };
        if let (Some((local, address, key)), Some(immediate)) = (payload, immediate) {
            let credits = self.take_owed(IMMEDIATE_CREDITS_MAX);
            let immediate = packet::complete(immediate, credits, sender.number());
            sender.posted += 1;
            let verb = Verb::WriteImmediate(address, key, immediate);
            self.pair.post(Work { id: self.id(sender.posted), verb, local, signalled }, None)?;
            shared.counts.posted(verb, signalled);
        } else {
            let (mut small, mut large);
            // Most messages are short: no more is cleared than they need.
            let packet: &mut [u8] = if medium.bytes() == 0 {
                small = [0; NUMBER_BYTES + HEAD_BYTES_MAX];
                &mut small
            } else {
                large = [0; INLINE_MAX];
                &mut large
            };
            let (number, rest) = packet.split_at_mut(NUMBER_BYTES);
            number.copy_from_slice(&sender.number().to_le_bytes());
            let head = rest.first_chunk_mut().expect("a packet has room for a head");
            let before = NUMBER_BYTES + frame::encode(message, self.take_owed(CREDITS) as u16, head);
            let bytes = before + medium.bytes();
            let local = match &slots {
                Some(slots) if packet_bytes > 0 => {
                    let at = slots.offset() + packet_at;
                    memory.fill(at, Source::of(&packet[..before]));
                    memory.fill(at + before, medium);
                    Local::Registered(memory, at, bytes)
                }
                _ => {
                    gather(medium, &mut packet[before..bytes]);
                    Local::Inline(Source::of(&packet[..bytes]))
                }
            };
            sender.posted += if payload.is_some() { 2 } else { 1 };
            let send = Work { id: self.id(sender.posted), verb: Verb::Send, local, signalled };
            match payload {
                Some((local, address, key)) => {
                    let verb = Verb::Write(address, key);
                    let write = Work { id: self.id(sender.posted - 1), verb, local, signalled: false };
                    self.pair.post(write, Some(send))?;
                    shared.counts.posted(verb, false);
                }
                None => self.pair.post(send, None)?,
            }
            shared.counts.posted(Verb::Send, signalled);
        }
        let count = sender.posted;
        if slots.is_some() {
            sender.flights.push_back(Flight { last: count, slots, ends: None });
        }
        Ok(Posted::At(count))
    }

    /// Takes credits to return to the peer, at most `most`. Call it with the sender's lock.
    fn take_owed(&self, most: u32) -> u32 {
        let owed = self.owed.load(Ordering::Relaxed).min(most);
        self.owed.fetch_sub(owed, Ordering::Relaxed);
        owed
    }

    /// Posts a small packet that is no message, if there is memory for it.
    fn post_packet(&self, shared: &Shared, sender: &mut Sender, packet: &[u8]) -> Result<Posted> {
        let bytes = NUMBER_BYTES + packet.len();
        let slots = if bytes <= self.pair.inline_max {
            None
        } else {
            match shared.staging.take(bytes) {
                Some(slots) => Some(slots),
                // Payloads that are in flight have it all; they will give it back.
                None => return Ok(Posted::NoRoom),
            }
        };
        let mut numbered = [0; NUMBER_BYTES + AccessNotice::BYTES];
        let numbered = &mut numbered[..bytes];
        numbered[..NUMBER_BYTES].copy_from_slice(&sender.number().to_le_bytes());
        numbered[NUMBER_BYTES..].copy_from_slice(packet);
        let local = match &slots {
            Some(slots) => {
                shared.staging.memory.fill(slots.offset(), Source::of(numbered));
                Local::Registered(&shared.staging.memory, slots.offset(), bytes)
            }
            None => Local::Inline(Source::of(numbered)),
        };
        sender.posted += 1;
        let count = sender.posted;
        // Rare, and the last before a long silence perhaps: always with a completion.
        self.pair.post(Work { id: self.id(count), verb: Verb::Send, local, signalled: true }, None)?;
        shared.counts.posted(Verb::Send, true);
        sender.unsignalled = 0;
        if slots.is_some() {
            sender.flights.push_back(Flight { last: count, slots, ends: None });
        }
        Ok(Posted::At(count))
    }

    /// Returns the purpose of the request with these low bits of its count, for errors.
    pub(super) fn purpose(&self, low: u64) -> &'static str {
        let sender = lock(&self.sender);
        let flight = sender.flights.iter().find(|flight| flight.last & COUNT_MASK == low);
        match flight.and_then(|flight| flight.ends.as_ref()) {
            Some(Ended { how: How::Written, .. }) => "writing its memory",
            Some(Ended { how: How::Read | How::Staged(..), .. }) => "reading its memory",
            None => "sending",
        }
    }

    /// Everything up to the request with these low bits of its count is done: frees what it held, and tells `end` of
    /// one-sided operations, with the offset of a get's bytes in the staging memory.
    pub(super) fn completed(
        &self,
        shared: &Shared,
        low: u64,
        mut end: impl FnMut(Ended, usize) -> Result<()>,
    ) -> Result<()> {
        let mut sender = lock(&self.sender);
        // Requests in flight are far fewer than counts of 40 bits.
        let behind = sender.posted.wrapping_sub(low) & COUNT_MASK;
        let done = sender.posted.saturating_sub(behind);
        sender.done = sender.done.max(done);
        let mut result = Ok(());
        while let Some((Flight { slots, ends, .. }, is_last)) = sender.landed() {
            let Some(ends) = ends else {
                shared.staging.free(slots);
                continue;
            };
            // The notified threads may want to send.
            drop(sender);
            if result.is_ok() {
                result = end(ends, slots.as_ref().map_or(0, Slots::offset));
            }
            shared.staging.free(slots);
            if is_last {
                return result;
            }
            sender = lock(&self.sender);
        }
        result
    }

    /// Returns true if everything up to this count is done, or nothing will be.
    pub(super) fn is_done(&self, count: u64) -> bool {
        lock(&self.sender).done >= count || self.lost().is_some()
    }

    /// Compares the number with that of the next message in order. Called by the thread whose turn it is.
    pub(super) fn order(&self, number: Number) -> Order {
        let expected = self.expected.load(Ordering::Relaxed);
        let order = number.order(expected);
        if order == Order::Next {
            self.expected.store(expected.wrapping_add(1), Ordering::Relaxed);
        }
        order
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
        if sender.posted - sender.done >= u64::from(shared.depth) || sender.closed {
            return Ok(());
        }
        let owed = self.take_owed(CREDITS);
        if let Posted::NoRoom = self.post_packet(shared, &mut sender, &frame::encode_credits(owed as u16))? {
            self.owed.fetch_add(owed, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Takes credits from the peer; false when there are more than it can have owed.
    pub(super) fn take_credits(&self, credits: u16) -> bool {
        let before = self.credits.fetch_add(u32::from(credits), Ordering::Release);
        before + u32::from(credits) <= CREDITS
    }

    /// Sends a last packet whose completion means that everything has arrived. None if nothing was ever sent,
    /// or the connection is lost; no room is a reason to try again.
    pub(super) fn say_goodbye(&self, shared: &Shared) -> Option<u64> {
        let mut sender = lock(&self.sender);
        if sender.posted == 0 || self.lost().is_some() {
            return None;
        }
        let full = sender.posted - sender.done >= u64::from(shared.depth);
        if !sender.closed && !full && sender.replies.is_empty() && sender.notices.is_empty() {
            let owed = self.take_owed(CREDITS);
            let goodbye = frame::encode_goodbye(owed as u16);
            sender.closed = matches!(self.post_packet(shared, &mut sender, &goodbye).ok()?, Posted::At(_));
        }
        (sender.done < sender.posted).then_some(sender.posted)
    }
}

impl Sender {
    /// Takes the oldest completed flight; returns true if it is the last of its request.
    fn landed(&mut self) -> Option<(Flight, bool)> {
        let is_done = |flight: Option<&Flight>| flight.is_some_and(|flight| flight.last <= self.done);
        if !is_done(self.flights.front()) {
            return None;
        }
        let is_last = !is_done(self.flights.get(1));
        Some((self.flights.pop_front()?, is_last))
    }

    /// The number of the message that is posted next.
    fn number(&mut self) -> u32 {
        let number = self.messages;
        self.messages = number.wrapping_add(1);
        number
    }
}

/// The key of access that was granted: keys of this network have 32 bits, which was seen to when it came.
fn key_of(access: &Access) -> u32 {
    access.key as u32
}

const _: () = assert!(NUMBER_BYTES + HEAD_BYTES_MAX <= INLINE_MAX && INLINE_MAX < PACKET_BYTES_MAX);
const _: () = assert!(CREDITS <= u16::MAX as u32, "credits travel in 16 bits");
