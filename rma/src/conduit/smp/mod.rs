//! The conduit between processes that share a [`Domain`]: for each two members a byte ring per sender and direction, and a
//! line that carries one short message each way; a doorbell per member. Long payloads are copied straight into the
//! receiver's mapped region.
//!
//! * *No locked instruction* and no store of the consumer's is on the way of a message, as long as one thread of a process
//!   sends and one polls ([`vgas_shm::biased`]): each would wait for the message before it to leave the processor.
//! * *Polling is cheap.* A producer marks itself in the consumer's bitmap before its first message and stays marked
//!   while it is busy; the consumer looks at marked rings only, and takes the mark away after a while of silence.
//! * *Replies always find room.* A reply without room in the ring waits in this process, and no request of that peer is
//!   delivered before it is gone: so at most the replies to one batch wait, and the peer feels the back-pressure.
//! * *Sleeping.* A consumer sets its sleeping word, then looks once more; a producer publishes, then looks at the
//!   sleeping word; between the two is an asymmetric fence ([`fence`](vgas_shm::fence)). One of them sees the other.
//! * *A medium payload is copied once*, into the ring; its handler finds it there ([`MediumPayload`]).
//!
//! All unsafe code is in `ring.rs`, and in the copies of payloads in `link.rs` and `mod.rs`.

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod hotline;
mod inbox;
mod layout;
mod link;
mod provider;
mod ring;

pub use layout::CARRIED_BYTES_MAX;
pub(crate) use layout::{BOARD_PART_BYTES, ControlLayout};
pub use layout::{LINE_BYTES, RING_BYTES_DEFAULT, RING_BYTES_MAX, RING_BYTES_MIN, control_bytes};
pub(super) use provider::PROVIDER;

use super::{Capabilities, Conduit, Sent, Traffic};
use crate::address::{Peer, RegionId};
use crate::domain::Domain;
use crate::endpoint::CarrierCounts;
use crate::error::{Result, RmaError};
use crate::message::{
    ARGUMENTS_MAX, Arrived, Delivery, Destination, Direction, MediumPayload, Message, Payload, Sink,
};
use hotline::ARGUMENTS_HOT_MAX;
use inbox::{Inbox, Marks, Source};
use link::{Cargo, Link};
use ring::{Body, RecordBody, Scratch};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use vgas_shm::biased::BiasedLock;
use vgas_shm::{Mapping, Word, bell};

/// The name of this conduit.
pub const NAME: &str = "smp";

/// Most bytes of a long payload: the length in a record has 32 bits; a power of two below that.
const LONG_BYTES_MAX: usize = 1 << 30;

/// Messages taken of one direction of a source before the next has its turn.
const BATCH: usize = 32;

/// Polls that find nothing before a producer's mark is taken away. Large enough that a pair that plays ping-pong never
/// touches the bitmap, small enough that a consumer with 30 peers soon looks only at those that talk.
const SILENT_POLLS: u32 = 4096;

/// Polls that find nothing before a message on the hot line is acknowledged by itself: longer than an answer
/// takes, so that the acknowledgement does not take the line from a thread that waits for an answer.
const ANSWER_POLLS: u32 = 64;

/// Polls that find nothing and then pause, while an answer on the hot line is awaited. Each look takes the line from the
/// member that is about to write the answer into it; on one core all of them together are little beside a switch.
const PAUSED_POLLS: u32 = 4;

/// The processor's pauses in such a poll: with two, some 0.1 µs, round trips were the shortest.
const PAUSES: u32 = 2;

/// The `smp` conduit of one member.
pub struct SmpConduit {
    domain: Arc<Domain>,
    me: usize,
    capabilities: Capabilities,
    links: Vec<Option<Link>>,
    /// Sleeping words of the members, which their senders look at.
    sleeping: Vec<Word<AtomicU32>>,
    /// Bits of the senders to this member.
    marks: Marks,
    inbox: BiasedLock<Inbox>,
    /// Replies that wait for room, over all links: nothing to flush when 0.
    waiting_replies: AtomicUsize,
    /// True if the doorbell may hold a ring that was not read.
    bell_pending: AtomicBool,
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
        let link = |to: (usize, &Peer)| {
            (to.0 != my_index).then(|| Link::new(control, &layout, my_index, (to.0, *to.1), ring_bytes))
        };
        let sleeping: Vec<_> = (0..members).map(|member| control.word_u32(layout.sleeping(member))).collect();
        bell::introduce(&sleeping[my_index]);
        Ok(Self {
            me: my_index,
            capabilities: Capabilities {
                medium_bytes_max: ring::medium_bytes_max(ring_bytes),
                long_bytes_max: LONG_BYTES_MAX,
                ordered: false,
                long_to_operation: false,
                load_store: true,
                one_sided: false,
                atomics: false,
                polls_through_kernel: false,
            },
            links: spec.members.iter().enumerate().map(link).collect(),
            sleeping,
            marks: (0..layout.bitmap_words())
                .map(|word| control.word_u64(layout.bitmap(my_index, word)))
                .collect(),
            inbox: BiasedLock::new(Inbox::new(control, &layout, my_index, members, ring_bytes)),
            waiting_replies: AtomicUsize::new(0),
            bell_pending: AtomicBool::new(false),
            domain,
        })
    }

    /// Wakes a sleeping member, so that it looks again at its condition: after a change for it in shared
    /// memory. A system call only if it does sleep. Nothing happens for a peer outside of the domain.
    pub fn ring(&self, peer: Peer) {
        if let Some(index) = self.domain.member_index(peer) {
            self.ring_index(index);
        }
    }

    /// As [`SmpConduit::ring`], for the member at a position.
    #[inline]
    pub(crate) fn ring_index(&self, index: usize) {
        bell::ring(&self.sleeping[index], self.domain.doorbell(index));
    }

    /// Returns whether the member at a position sleeps and was not woken yet: an estimate.
    #[inline]
    pub(crate) fn is_asleep(&self, index: usize) -> bool {
        bell::is_asleep(&self.sleeping[index])
    }

    /// After a message was published: mark this producer, wake the consumer.
    #[inline]
    fn announce(&self, to: usize, link: &Link) {
        if !link.is_heard() {
            self.announce_loudly(to, link);
        }
    }

    #[cold]
    fn announce_loudly(&self, to: usize, link: &Link) {
        link.set_mark();
        self.ring_index(to);
    }

    /// Returns the counts of messages sent through shared memory.
    pub(crate) fn counts(&self) -> CarrierCounts {
        let mut counts = CarrierCounts::default();
        self.links.iter().flatten().for_each(|link| link.add_counts(&mut counts));
        counts
    }

    /// Position of a peer that this conduit reaches; it stays the same.
    pub(crate) fn index_of(&self, peer: Peer) -> Option<usize> {
        self.domain.member_index(peer).filter(|&index| index != self.me)
    }

    /// Checks a payload and returns the contents of its record. The bytes of a long payload are not copied
    /// yet.
    #[inline]
    fn cargo<'a>(&self, payload: &Payload<'a>) -> Result<Cargo<'a>> {
        match payload {
            Payload::Short => Ok(Cargo { body: Body::Short, long: None }),
            payload => self.cargo_of(payload),
        }
    }

    fn cargo_of<'a>(&self, payload: &Payload<'a>) -> Result<Cargo<'a>> {
        match *payload {
            Payload::Short => Ok(Cargo { body: Body::Short, long: None }),
            Payload::Medium(source) if source.bytes() <= self.capabilities.medium_bytes_max => {
                Ok(Cargo { body: Body::Medium(source), long: None })
            }
            Payload::Long(source, Destination::Region { region, owner, offset })
                if source.bytes() <= LONG_BYTES_MAX =>
            {
                let mapping = self.domain.map(owner, region)?;
                let bytes = source.bytes() as u64;
                if !mapping.contains(offset, bytes) {
                    let limit = mapping.bytes() as u64;
                    return Err(RmaError::OutOfRange { owner, region, offset, bytes, limit });
                }
                // Blocks are filled sooner or later, all of them; a segment may be meant to stay sparse.
                if region == RegionId::BLOCKS {
                    mapping.prepare(offset as usize, source.bytes());
                }
                let body = Body::Long { bytes: source.bytes() as u32, region, owner, offset };
                Ok(Cargo { body, long: Some((mapping, source, offset)) })
            }
            Payload::Long(_, Destination::Operation { .. }) => {
                Err(RmaError::Usage("the smp conduit takes no long message to an operation".into()))
            }
            Payload::Medium(source) | Payload::Long(source, _) => Err(RmaError::Usage(format!(
                "{} bytes exceed what one message of the smp conduit carries",
                source.bytes()
            ))),
        }
    }

    /// [`Conduit::try_send`] to the member at a position that [`SmpConduit::index_of`] gave.
    #[inline]
    pub(crate) fn try_send_to(&self, index: usize, message: &Message<'_>) -> Result<Sent> {
        if let Payload::Short = message.payload {
            return self.try_short_to(index, message.direction, message.handler, message.arguments);
        }
        self.try_send_record(index, self.link(index)?, message)
    }

    #[inline]
    fn link(&self, index: usize) -> Result<&Link> {
        match self.links.get(index) {
            Some(Some(link)) => Ok(link),
            _ => Err(RmaError::Usage(format!("the smp conduit has no member {index} to send to"))),
        }
    }

    /// [`SmpConduit::try_send_to`] of a short message, from its parts.
    #[inline]
    pub(crate) fn try_short_to(
        &self,
        index: usize,
        direction: Direction,
        handler: u8,
        arguments: &[u32],
    ) -> Result<Sent> {
        let link = self.link(index)?;
        let is_sent = arguments.len() <= ARGUMENTS_HOT_MAX
            && match direction {
                Direction::Request => link.try_short_request(handler, arguments)?,
                Direction::Reply => link.try_short_reply(handler, arguments),
            };
        if is_sent {
            self.announce(index, link);
            return Ok(Sent::Accepted);
        }
        // It keeps a reply, counts a lack of room, and refuses too many arguments.
        self.try_send_record(index, link, &Message { direction, handler, arguments, payload: Payload::Short })
    }

    /// Sends through the rings.
    #[inline(never)]
    fn try_send_record(&self, index: usize, link: &Link, message: &Message<'_>) -> Result<Sent> {
        if message.arguments.len() > ARGUMENTS_MAX {
            return Err(RmaError::Usage(format!("{} arguments; 16 are the most", message.arguments.len())));
        }
        let cargo = self.cargo(&message.payload)?;
        match message.direction {
            Direction::Request => {
                if link.try_send_request(message, &cargo)? == Sent::Busy {
                    return Ok(Sent::Busy);
                }
            }
            Direction::Reply => {
                if !link.send_reply(message, &cargo)? {
                    self.waiting_replies.fetch_add(1, Ordering::AcqRel);
                    return Ok(Sent::Accepted);
                }
            }
        }
        self.announce(index, link);
        Ok(Sent::Accepted)
    }

    /// Delivers what has come from one member, in a bounded batch, replies first.
    fn deliver_from(
        &self,
        (member, link): (usize, &Link),
        source: &mut Source,
        scratch: &mut Scratch,
        sink: &dyn Sink,
        traffic: Traffic,
    ) -> Result<usize> {
        let from = link.to();
        let mut taken = 0;
        for direction in [Direction::Reply, Direction::Request] {
            if direction == Direction::Request && !traffic.has_requests() {
                break;
            }
            let most = taken + BATCH;
            while taken < most && !source.is_broken {
                // It must take the replies that wait for room before it may ask for more.
                if direction == Direction::Request && link.has_waiting_replies() {
                    break;
                }
                if matches!(traffic, Traffic::Below(_)) && !source.is_next_admitted(link, direction, traffic)
                {
                    break;
                }
                let record = match source.next(link, direction, scratch) {
                    Ok(Some(record)) => record,
                    Ok(None) => break,
                    Err(what) => {
                        source.is_broken = true;
                        return Err(RmaError::Protocol { peer: Some(from), what });
                    }
                };
                taken += 1;
                let payload = match record.body {
                    RecordBody::Short => Arrived::Short,
                    RecordBody::Medium(address, bytes) => {
                        // SAFETY: rule 1 of `ring`: the range was checked, and is not given back before the delivery is over. The
                        // buffer was cleared for this record.
                        Arrived::Medium(unsafe { MediumPayload::shared(address, bytes, &scratch.medium) })
                    }
                    RecordBody::Long(bytes) => {
                        Arrived::Long(sink.destination(from, scratch.destination, bytes)?, bytes)
                    }
                };
                sink.deliver(Delivery {
                    from,
                    direction,
                    handler: record.handler,
                    arguments: &scratch.arguments[..record.argument_count],
                    payload,
                })?;
                if source.give_back(direction) {
                    self.ring_index(member);
                }
                if source.is_quiet(link) {
                    return Ok(taken);
                }
            }
        }
        Ok(taken)
    }

    /// Moves waiting replies into their rings.
    #[cold]
    fn flush_replies(&self) -> Result<usize> {
        let mut all = 0;
        for (index, link) in self.links.iter().enumerate() {
            let Some(link) = link else { continue };
            let sent = link.flush_replies()?;
            if sent > 0 {
                self.waiting_replies.fetch_sub(sent, Ordering::AcqRel);
                self.announce(index, link);
                all += sent;
            }
        }
        Ok(all)
    }
}

impl Conduit for SmpConduit {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn reaches(&self, to: Peer) -> bool {
        self.index_of(to).is_some()
    }

    fn try_send(&self, to: Peer, message: &Message<'_>) -> Result<Sent> {
        let Some(index) = self.index_of(to) else {
            return Err(RmaError::Usage(format!("the smp conduit does not reach {to}")));
        };
        self.try_send_to(index, message)
    }

    fn poll(&self, sink: &dyn Sink, traffic: Traffic) -> Result<usize> {
        // A handler that panicked leaves this consistent: indices are advanced before it runs.
        let Some(mut inbox) = self.inbox.try_lock() else { return Ok(0) };
        if self.waiting_replies.load(Ordering::Relaxed) != 0 {
            self.flush_replies()?;
        }
        let inbox = &mut *inbox;
        inbox.take_marks(&self.marks);
        let mut delivered = 0;
        let mut turn = 0;
        while turn < inbox.marked.len() {
            let member = inbox.marked[turn];
            turn += 1;
            let (Some(source), Some(link)) = (&mut inbox.sources[member], &self.links[member]) else {
                continue;
            };
            let mut taken = 0;
            if let Some(header) = source.next_hot(link, &mut inbox.scratch, traffic) {
                sink.deliver(Delivery {
                    from: link.to(),
                    direction: header.direction(),
                    handler: header.handler(),
                    arguments: &inbox.scratch.arguments[..header.argument_count()],
                    payload: Arrived::Short,
                })?;
                taken = 1;
            }
            if !source.is_quiet(link) {
                taken += self.deliver_from((member, link), source, &mut inbox.scratch, sink, traffic)?;
            }
            delivered += taken;
            if taken > 0 {
                source.silent_polls = 0;
                continue;
            }
            source.silent_polls += 1;
            if source.silent_polls <= PAUSED_POLLS && link.hotline.awaits_answer() {
                (0..PAUSES).for_each(|_| std::hint::spin_loop());
            }
            if source.silent_polls == ANSWER_POLLS {
                link.acknowledge();
            } else if source.silent_polls >= SILENT_POLLS {
                inbox.forget_silent(member, link, &self.marks);
            }
        }
        Ok(delivered)
    }

    fn flush(&self) -> Result<()> {
        if self.has_unsent() { self.flush_replies().map(drop) } else { Ok(()) }
    }

    fn has_unsent(&self) -> bool {
        self.waiting_replies.load(Ordering::Relaxed) != 0
    }

    fn wait_descriptor(&self) -> BorrowedFd<'_> {
        self.domain.doorbell(self.me)
    }

    fn arm(&self) -> bool {
        self.arm_by(bell::prepare)
    }

    fn arm_briefly(&self) -> bool {
        self.arm_by(bell::prepare_briefly)
    }

    fn disarm(&self) {
        bell::finish(&self.sleeping[self.me], self.wait_descriptor(), &self.bell_pending);
    }

    fn map(&self, owner: Peer, region: RegionId) -> Result<Option<Arc<Mapping>>> {
        self.domain.map(owner, region).map(Some)
    }
}

impl SmpConduit {
    fn arm_by(&self, prepare: fn(&AtomicU32)) -> bool {
        // Another thread is polling: it may find the message that the caller waits for.
        let Some(mut inbox) = self.inbox.try_lock() else { return false };
        prepare(&self.sleeping[self.me]);
        inbox.rebuild_marks(&self.marks);
        let waiting = inbox.marked.iter().any(|&member| {
            let both = inbox.sources[member].as_ref().zip(self.links[member].as_ref());
            both.is_some_and(|(source, link)| source.has_deliverable(link))
        });
        drop(inbox);
        // Room for waiting replies may have come while no rings were requested. Behind them are requests. The
        // next poll reports errors of a link.
        let any = waiting || (self.has_unsent() && !matches!(self.flush_replies(), Ok(0)));
        if any {
            self.disarm();
        }
        !any
    }
}
