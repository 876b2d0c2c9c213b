//! The conduit between processes that share a [`Domain`]: one byte ring per ordered pair of members and per direction,
//! a doorbell per member. Long payloads are copied straight into the receiver's mapped region.
//!
//! * *Polling is cheap.* A producer marks itself in the consumer's bitmap before its first message and stays marked
//!   while it is busy; the consumer looks at marked rings only, and takes the mark away after a while of silence.
//! * *Replies always find room.* What the ring does not take waits in this process, and no request of that peer is
//!   delivered before it is gone: so at most the replies to one batch wait, and the peer feels it as back-pressure.
//! * *Sleeping.* A consumer sets its sleeping word, then looks once more; a producer publishes, then looks at the
//!   sleeping word; between the two is an asymmetric fence ([`fence`]). One of them sees the other.
//!
//! All unsafe code is in `ring.rs` and in the copy of long payloads.

mod layout;
mod ring;

pub(crate) use layout::ControlLayout;
pub use layout::{LINE_BYTES, RING_BYTES_DEFAULT, RING_BYTES_MAX, RING_BYTES_MIN, control_bytes};

use super::{Capabilities, Conduit, Sent, Traffic};
use crate::address::{Peer, RegionId};
use crate::endpoint::CarrierCounts;
use crate::error::{Result, RmaError};
use crate::message::{
    ARGUMENTS_MAX, Arrived, Delivery, Destination, Direction, Message, Payload, Sink, Source,
};
use crate::shm::copy::copy;
use crate::shm::spin::SpinLock;
use crate::shm::{Domain, Mapping, Word, bell, fence};
use ring::{Body, Consumer, Producer, RecordBody};
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Most bytes of a long payload: the length in a record has 32 bits; a power of two below that.
const LONG_BYTES_MAX: usize = 1 << 30;

/// Records taken from one ring before the next has its turn.
const BATCH: usize = 32;

/// Polls that find nothing before a producer's mark is taken away. Large enough that a pair that plays ping-pong never
/// touches the bitmap, small enough that a consumer with 30 peers soon looks only at those that talk.
const SILENT_POLLS: u32 = 4096;

/// The `smp` conduit of one member.
pub struct SmpConduit {
    domain: Arc<Domain>,
    me: usize,
    capabilities: Capabilities,
    links: Vec<Option<Link>>,
    mailboxes: Vec<Mailbox>,
    inbox: SpinLock<Inbox>,
    /// Replies that wait for room, over all links: nothing to flush when 0.
    waiting_replies: AtomicUsize,
    /// Whether the doorbell may hold a ring that nobody has read.
    bell_pending: AtomicBool,
}

/// The way to another member.
struct Link {
    requests: SpinLock<RequestProducer>,
    replies: SpinLock<ReplyProducer>,
    /// Length of the queue in `replies`, readable without its lock.
    replies_waiting: AtomicUsize,
}

struct RequestProducer {
    ring: Producer,
    counts: LinkCounts,
    busy: u64,
}

/// Messages accepted. Counted under the lock of the ring, where it costs nothing.
#[derive(Clone, Copy, Default)]
struct LinkCounts {
    messages: u64,
    payload_bytes: u64,
}

impl LinkCounts {
    fn add(&mut self, payload: &Payload) {
        self.messages += 1;
        if let Payload::Medium(source) | Payload::Long(source, _) = payload {
            self.payload_bytes += source.bytes as u64;
        }
    }
}

struct ReplyProducer {
    counts: LinkCounts,
    ring: Producer,
    waiting: VecDeque<OwnedReply>,
}

/// A reply that waits for room. A long payload is at its destination already.
struct OwnedReply {
    handler: u8,
    arguments: Vec<u32>,
    medium: Option<Vec<u8>>,
    long: Option<(u32, RegionId, Peer, u64)>,
}

/// A long payload to copy: into which mapping, what, at which offset. The range has been checked.
type LongCopy = (Arc<Mapping>, Source, u64);

/// What a member's senders look at.
struct Mailbox {
    sleeping: Word<AtomicU32>,
    bitmap: Vec<Word<AtomicU64>>,
}

/// What the polling thread has.
struct Inbox {
    sources: Vec<Option<InboundPair>>,
    /// Members whose rings are looked at.
    marked: Vec<usize>,
    /// The bitmap from which `marked` was made.
    marks_seen: Vec<u64>,
    medium: Box<[u8]>,
}

struct InboundPair {
    requests: Consumer,
    replies: Consumer,
    silent_polls: u32,
    broken: bool,
}

impl SmpConduit {
    /// The conduit of the member `me` of a domain. Once a process and member: it owns one end of the member's rings.
    pub fn new(domain: Arc<Domain>, me: Peer) -> Result<Self> {
        let spec = domain.spec();
        let members = spec.members.len();
        let layout = ControlLayout::new(members, spec.ring_bytes, domain.control().bytes() as u64)?;
        let my_index = domain
            .member_index(me)
            .ok_or_else(|| RmaError::Usage(format!("{me} is no member of this shared-memory domain")))?;
        let ring_bytes = spec.ring_bytes as usize;
        let control = domain.control();
        let producer =
            |to: usize, direction| Producer::new(control, layout.ring(to, my_index, direction), ring_bytes);
        let consumer = |from: usize, direction| {
            Consumer::new(control, layout.ring(my_index, from, direction), ring_bytes)
        };
        let others = |index: &usize| *index != my_index;
        let links = (0..members)
            .map(|to| {
                Some(to).filter(others).map(|to| Link {
                    requests: SpinLock::new(RequestProducer {
                        ring: producer(to, Direction::Request),
                        counts: LinkCounts::default(),
                        busy: 0,
                    }),
                    replies: SpinLock::new(ReplyProducer {
                        counts: LinkCounts::default(),
                        ring: producer(to, Direction::Reply),
                        waiting: VecDeque::new(),
                    }),
                    replies_waiting: AtomicUsize::new(0),
                })
            })
            .collect();
        let sources = (0..members)
            .map(|from| {
                Some(from).filter(others).map(|from| InboundPair {
                    requests: consumer(from, Direction::Request),
                    replies: consumer(from, Direction::Reply),
                    silent_polls: 0,
                    broken: false,
                })
            })
            .collect();
        let mailboxes = (0..members)
            .map(|member| Mailbox {
                sleeping: control.word_u32(layout.sleeping(member)),
                bitmap: (0..layout.bitmap_words())
                    .map(|word| control.word_u64(layout.bitmap(member, word)))
                    .collect(),
            })
            .collect();
        bell::introduce(&control.word_u32(layout.sleeping(my_index)));
        let medium_bytes_max = ring::medium_bytes_max(ring_bytes);
        Ok(Self {
            me: my_index,
            capabilities: Capabilities {
                medium_bytes_max,
                long_bytes_max: LONG_BYTES_MAX,
                ordered: false,
                long_to_operation: false,
                load_store: true,
                one_sided: false,
                atomics: false,
            },
            links,
            mailboxes,
            inbox: SpinLock::new(Inbox {
                sources,
                marked: Vec::new(),
                marks_seen: vec![0; layout.bitmap_words()],
                medium: vec![0; medium_bytes_max].into_boxed_slice(),
            }),
            waiting_replies: AtomicUsize::new(0),
            bell_pending: AtomicBool::new(false),
            domain,
        })
    }

    /// Wakes a member that sleeps, so that it looks again at what it waits for: after something was changed for it in
    /// shared memory. A system call only if it does sleep. Nothing happens for a peer outside of the domain.
    pub fn ring(&self, peer: Peer) {
        if let Some(index) = self.domain.member_index(peer) {
            self.ring_index(index);
        }
    }

    fn ring_index(&self, index: usize) {
        bell::ring(&self.mailboxes[index].sleeping, self.domain.doorbell(index));
    }

    /// After a record was published: mark this producer, wake the consumer.
    #[inline]
    fn announce(&self, to: usize) {
        let mailbox = &self.mailboxes[to];
        // Pairs with the heavy halves in `arm` and in `Inbox::forget_silent`.
        bell::light_toward(&mailbox.sleeping);
        let (word, bit) = (self.me / 64, 1 << (self.me % 64));
        if mailbox.bitmap[word].load(Ordering::Relaxed) & bit == 0 {
            mailbox.bitmap[word].fetch_or(bit, Ordering::SeqCst);
        }
        self.ring_index(to);
    }

    /// What was sent through shared memory.
    pub(crate) fn counts(&self) -> CarrierCounts {
        let mut counts = CarrierCounts::default();
        for link in self.links.iter().flatten() {
            let requests = link.requests.lock();
            counts.requests += requests.counts.messages;
            counts.payload_bytes += requests.counts.payload_bytes;
            counts.busy += requests.busy;
            drop(requests);
            let replies = link.replies.lock().counts;
            counts.replies += replies.messages;
            counts.payload_bytes += replies.payload_bytes;
        }
        counts
    }

    fn bad_index(&self, to: Peer) -> RmaError {
        RmaError::Protocol { peer: Some(to), what: "it spoiled the index of a shared-memory ring".into() }
    }

    /// The record body for a payload. The bytes of a long payload are not copied yet; their place is returned.
    fn body(&self, payload: &Payload) -> Result<(Body, Option<LongCopy>)> {
        match *payload {
            Payload::Short => Ok((Body::Short, None)),
            Payload::Medium(source) if source.bytes <= self.capabilities.medium_bytes_max => {
                Ok((Body::Medium(source), None))
            }
            Payload::Long(source, Destination::Region { region, owner, offset })
                if source.bytes <= LONG_BYTES_MAX =>
            {
                let mapping = self.domain.map(owner, region)?;
                let bytes = source.bytes as u64;
                if !mapping.contains(offset, bytes) {
                    let limit = mapping.bytes() as u64;
                    return Err(RmaError::OutOfRange { owner, region, offset, bytes, limit });
                }
                // Frames are filled as a whole sooner or later; a segment may be meant to stay sparse.
                if region == RegionId::FRAMES {
                    mapping.prepare(offset as usize, source.bytes);
                }
                let body = Body::Long { bytes: source.bytes as u32, region, owner, offset };
                Ok((body, Some((mapping, source, offset))))
            }
            Payload::Long(_, Destination::Operation { .. }) => {
                Err(RmaError::Usage("the smp conduit takes no long message to an operation".into()))
            }
            Payload::Medium(source) | Payload::Long(source, _) => Err(RmaError::Usage(format!(
                "{} bytes exceed what one message of the smp conduit carries",
                source.bytes
            ))),
        }
    }

    fn place_long(long: Option<LongCopy>) {
        if let Some((mapping, source, offset)) = long
            && source.bytes > 0
        {
            // SAFETY: rules 1 to 3 of `shm`: the range was checked by `body`, the mapping is held; the source is valid
            // during the send (contract of `Source`). The release store of the record's header publishes the bytes.
            unsafe { copy(source.address, mapping.base().add(offset as usize), source.bytes) }
        }
    }

    fn send_reply(&self, link: &Link, to: Peer, message: &Message<'_>) -> Result<bool> {
        let (body, long) = self.body(&message.payload)?;
        let mut replies = link.replies.lock();
        Self::place_long(long);
        replies.counts.add(&message.payload);
        if replies.waiting.is_empty()
            && replies.ring.has_room(message.arguments.len(), &body).map_err(|_| self.bad_index(to))?
        {
            replies.ring.write(message.handler, message.arguments, &body);
            return Ok(true);
        }
        let (medium, long) = match body {
            Body::Short => (None, None),
            Body::Medium(source) => {
                let mut bytes = vec![0; source.bytes];
                // SAFETY: the source is valid during the send; the buffer is new and as long.
                unsafe { copy(source.address, bytes.as_mut_ptr(), source.bytes) };
                (Some(bytes), None)
            }
            Body::Long { bytes, region, owner, offset } => (None, Some((bytes, region, owner, offset))),
        };
        let arguments = message.arguments.to_vec();
        replies.waiting.push_back(OwnedReply { handler: message.handler, arguments, medium, long });
        link.replies_waiting.store(replies.waiting.len(), Ordering::Release);
        self.waiting_replies.fetch_add(1, Ordering::AcqRel);
        Ok(false)
    }

    #[inline]
    fn has_waiting_replies(&self, member: usize) -> bool {
        self.waiting_replies.load(Ordering::Relaxed) != 0
            && self.links[member].as_ref().is_some_and(|l| l.replies_waiting.load(Ordering::Relaxed) != 0)
    }

    /// Moves waiting replies into their rings.
    fn flush_replies(&self) -> Result<()> {
        for (index, link) in self.links.iter().enumerate() {
            let Some(link) = link else { continue };
            if link.replies_waiting.load(Ordering::Acquire) == 0 {
                continue;
            }
            let to = self.domain.spec().members[index];
            let mut replies = link.replies.lock();
            let mut sent = 0;
            while let Some(reply) = replies.waiting.pop_front() {
                let body = match (&reply.medium, reply.long) {
                    (Some(bytes), _) => Body::Medium(Source::of(bytes)),
                    (None, Some((bytes, region, owner, offset))) => {
                        Body::Long { bytes, region, owner, offset }
                    }
                    (None, None) => Body::Short,
                };
                if !replies.ring.has_room(reply.arguments.len(), &body).map_err(|_| self.bad_index(to))? {
                    replies.waiting.push_front(reply);
                    break;
                }
                replies.ring.write(reply.handler, &reply.arguments, &body);
                sent += 1;
            }
            link.replies_waiting.store(replies.waiting.len(), Ordering::Release);
            drop(replies);
            if sent > 0 {
                self.waiting_replies.fetch_sub(sent, Ordering::AcqRel);
                self.announce(index);
            }
        }
        Ok(())
    }
}

impl Inbox {
    /// Takes in the marks that producers have set since the last look.
    #[inline]
    fn take_marks(&mut self, mailbox: &Mailbox) {
        for (word, seen) in mailbox.bitmap.iter().zip(&self.marks_seen) {
            if word.load(Ordering::Acquire) != *seen {
                self.rebuild_marks(mailbox);
                return;
            }
        }
    }

    #[cold]
    fn rebuild_marks(&mut self, mailbox: &Mailbox) {
        self.marked.clear();
        for (index, word) in mailbox.bitmap.iter().enumerate() {
            let bits = word.load(Ordering::Acquire);
            self.marks_seen[index] = bits;
            let mut rest = bits;
            while rest != 0 {
                let member = index * 64 + rest.trailing_zeros() as usize;
                rest &= rest - 1;
                // A bit that stands for nobody, or for this process, was not set by a producer and means nothing.
                if let Some(Some(source)) = self.sources.get_mut(member) {
                    source.silent_polls = 0;
                    self.marked.push(member);
                }
            }
        }
    }

    /// Takes a producer's mark away, unless a message came in the same moment.
    #[cold]
    fn forget_silent(&mut self, member: usize, mailbox: &Mailbox) {
        let (word, bit) = (&mailbox.bitmap[member / 64], 1 << (member % 64));
        word.fetch_and(!bit, Ordering::SeqCst);
        // Pairs with the light half in `announce`: a producer that still saw the mark has published before we look.
        fence::heavy();
        let Some(source) = &mut self.sources[member] else { return };
        source.silent_polls = 0;
        if source.requests.has_record() || source.replies.has_record() {
            word.fetch_or(bit, Ordering::SeqCst);
        } else {
            self.marked.retain(|&marked| marked != member);
            self.marks_seen[member / 64] &= !bit;
        }
    }
}

impl Conduit for SmpConduit {
    fn name(&self) -> &'static str {
        "smp"
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn reaches(&self, to: Peer) -> bool {
        self.domain.member_index(to).is_some_and(|index| index != self.me)
    }

    fn try_send(&self, to: Peer, message: &Message<'_>) -> Result<Sent> {
        let index = self.domain.member_index(to);
        let Some((index, link)) = index.and_then(|i| Some((i, self.links[i].as_ref()?))) else {
            return Err(RmaError::Usage(format!("the smp conduit does not reach {to}")));
        };
        if message.arguments.len() > ARGUMENTS_MAX {
            return Err(RmaError::Usage(format!("{} arguments; 16 are the most", message.arguments.len())));
        }
        match message.direction {
            Direction::Request => {
                let (body, long) = self.body(&message.payload)?;
                let mut ring = link.requests.lock();
                if !ring.ring.has_room(message.arguments.len(), &body).map_err(|_| self.bad_index(to))? {
                    ring.busy += 1;
                    return Ok(Sent::Busy);
                }
                Self::place_long(long);
                ring.counts.add(&message.payload);
                ring.ring.write(message.handler, message.arguments, &body);
            }
            Direction::Reply => {
                if !self.send_reply(link, to, message)? {
                    return Ok(Sent::Accepted);
                }
            }
        }
        self.announce(index);
        Ok(Sent::Accepted)
    }

    fn poll(&self, sink: &dyn Sink, traffic: Traffic) -> Result<usize> {
        // A handler that panicked leaves this consistent: indices are advanced before it runs.
        let Some(mut inbox) = self.inbox.try_lock() else { return Ok(0) };
        if self.waiting_replies.load(Ordering::Relaxed) != 0 {
            self.flush_replies()?;
        }
        let inbox = &mut *inbox;
        let mailbox = &self.mailboxes[self.me];
        inbox.take_marks(mailbox);
        let mut delivered = 0;
        let mut turn = 0;
        while turn < inbox.marked.len() {
            let member = inbox.marked[turn];
            turn += 1;
            let Some(source) = &mut inbox.sources[member] else { continue };
            let from = self.domain.spec().members[member];
            let mut taken = 0;
            for direction in [Direction::Reply, Direction::Request] {
                if direction == Direction::Request && traffic == Traffic::RepliesOnly {
                    break;
                }
                let consumer = match direction {
                    Direction::Reply => &mut source.replies,
                    Direction::Request => &mut source.requests,
                };
                let mut batch = 0;
                while batch < BATCH && !source.broken {
                    // It must take the replies that wait for room before it may ask for more.
                    if direction == Direction::Request && self.has_waiting_replies(member) {
                        break;
                    }
                    let record = match consumer.read(&mut inbox.medium) {
                        Ok(Some(record)) => record,
                        Ok(None) => break,
                        Err(what) => {
                            source.broken = true;
                            return Err(RmaError::Protocol { peer: Some(from), what });
                        }
                    };
                    if consumer.give_back() {
                        self.ring_index(member);
                    }
                    batch += 1;
                    let payload = match record.body {
                        RecordBody::Short => Arrived::Short,
                        RecordBody::Medium(bytes) => Arrived::Medium(&inbox.medium[..bytes]),
                        RecordBody::Long(bytes, destination) => {
                            Arrived::Long(sink.destination(from, destination, bytes)?, bytes)
                        }
                    };
                    sink.deliver(Delivery {
                        from,
                        direction,
                        handler: record.handler,
                        arguments: &record.arguments[..record.argument_count],
                        payload,
                    })?;
                }
                taken += batch;
            }
            delivered += taken;
            if taken > 0 {
                source.silent_polls = 0;
            } else {
                source.silent_polls += 1;
                if source.silent_polls >= SILENT_POLLS {
                    inbox.forget_silent(member, mailbox);
                }
            }
        }
        Ok(delivered)
    }

    fn flush(&self) -> Result<()> {
        if self.waiting_replies.load(Ordering::Relaxed) == 0 { Ok(()) } else { self.flush_replies() }
    }

    fn wait_descriptor(&self) -> BorrowedFd<'_> {
        self.domain.doorbell(self.me)
    }

    fn arm(&self) -> bool {
        let mailbox = &self.mailboxes[self.me];
        // Somebody polls at this moment: what it finds may be what the caller waits for.
        let Some(mut inbox) = self.inbox.try_lock() else { return false };
        bell::prepare(&mailbox.sleeping);
        inbox.rebuild_marks(mailbox);
        let waiting = inbox.marked.iter().any(|&member| {
            inbox.sources[member].as_ref().is_some_and(|source| {
                // Requests behind waiting replies are not delivered: the peer rings when it has made room.
                let requests = source.requests.has_record() && !self.has_waiting_replies(member);
                !source.broken && (source.replies.has_record() || requests)
            })
        });
        drop(inbox);
        if waiting {
            self.disarm();
        }
        !waiting
    }

    fn disarm(&self) {
        bell::finish(&self.mailboxes[self.me].sleeping, self.wait_descriptor(), &self.bell_pending);
    }

    fn map(&self, owner: Peer, region: RegionId) -> Result<Option<Arc<Mapping>>> {
        self.domain.map(owner, region).map(Some)
    }
}
