//! The way to another member: two rings, the shared hot line, and replies that wait for room.

use super::hotline::Hotline;
use super::layout::ControlLayout;
use super::ring::{Body, Producer};
use crate::address::{Peer, RegionId};
use crate::conduit::Sent;
use crate::endpoint::CarrierCounts;
use crate::error::{Result, RmaError};
use crate::message::{Direction, Message, Payload, Source};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use vgas_shm::biased::BiasedLock;
use vgas_shm::copy::copy;
use vgas_shm::stream::copy_streaming;
use vgas_shm::{Mapping, Word, bell, fence};

/// The way to another member.
pub(super) struct Link {
    to: Peer,
    requests: BiasedLock<RequestProducer>,
    replies: BiasedLock<ReplyProducer>,
    /// Length of the queue in `replies`, readable without its lock.
    replies_waiting: AtomicUsize,
    pub(super) hotline: Hotline,
    /// Held by the thread that writes to the hot line.
    writing: BiasedLock<()>,
    /// Number of the last message that was taken from the hot line. Changed by the thread that polls.
    pub(super) taken: AtomicU8,
    /// The other member's sleeping word, and the word of its bitmap with this member's bit.
    sleeping: Word<AtomicU32>,
    marks: Word<AtomicU64>,
    mark: u64,
}

struct RequestProducer {
    ring: Producer,
    counts: LinkCounts,
    busy: u64,
}

struct ReplyProducer {
    ring: Producer,
    counts: LinkCounts,
    waiting: VecDeque<OwnedReply>,
}

/// Messages accepted. Counted under the lock of the ring, at no cost.
#[derive(Clone, Copy, Default)]
struct LinkCounts {
    messages: u64,
    payload_bytes: u64,
}

impl LinkCounts {
    fn add(&mut self, payload: &Payload) {
        self.messages += 1;
        if let Payload::Medium(source) | Payload::Long(source, _) = payload {
            self.payload_bytes += source.bytes() as u64;
        }
    }
}

/// A reply that waits for room. A long payload is at its destination already.
struct OwnedReply {
    handler: u8,
    arguments: Vec<u32>,
    medium: Option<Vec<u8>>,
    long: Option<(u32, RegionId, Peer, u64)>,
}

/// A message's content beside its arguments: the record's body, and a long payload that is still to be
/// copied. Its range has been checked.
pub(super) struct Cargo<'a> {
    pub(super) body: Body<'a>,
    /// Target mapping, source, and offset.
    pub(super) long: Option<(Arc<Mapping>, Source<'a>, u64)>,
}

impl Cargo<'_> {
    fn place_long(&self) {
        if let Some((mapping, source, offset)) = &self.long
            && source.bytes() > 0
        {
            // A block was written some time ago, and is read by another process next.
            let is_block = matches!(self.body, Body::Long { region: RegionId::BLOCKS, .. });
            let copy = if is_block { copy_streaming } else { copy };
            // SAFETY: rules 1 to 3 of `shm`: the range was checked when this was made, the mapping is held; the source is
            // valid during the send (contract of `Source`). The release store of the record's header publishes the bytes.
            unsafe { copy(source.address(), mapping.base().add(*offset as usize), source.bytes()) }
        }
    }
}

impl Link {
    /// From member `me` to member `to`, which is the peer of that name.
    pub(super) fn new(
        control: &Arc<Mapping>,
        layout: &ControlLayout,
        me: usize,
        (to, peer): (usize, Peer),
        ring_bytes: usize,
    ) -> Self {
        let ring = |direction| Producer::new(control, layout.ring(to, me, direction), ring_bytes);
        let (requests, replies) = (ring(Direction::Request), ring(Direction::Reply));
        let counts = LinkCounts::default();
        Self {
            to: peer,
            requests: BiasedLock::new(RequestProducer { ring: requests, counts, busy: 0 }),
            replies: BiasedLock::new(ReplyProducer { ring: replies, counts, waiting: VecDeque::new() }),
            replies_waiting: AtomicUsize::new(0),
            hotline: Hotline::new(control, layout.hotline(me, to), me < to),
            writing: BiasedLock::new(()),
            taken: AtomicU8::new(0),
            sleeping: control.word_u32(layout.sleeping(to)),
            marks: control.word_u64(layout.bitmap(to, me / 64)),
            mark: 1 << (me % 64),
        }
    }

    /// Returns the peer.
    #[inline]
    pub(super) fn to(&self) -> Peer {
        self.to
    }

    /// Sends a short request of at most [`ARGUMENTS_HOT_MAX`](super::hotline::ARGUMENTS_HOT_MAX) arguments by the hot line,
    /// or through the ring if that line is not free. False: there is no room.
    #[inline]
    pub(super) fn try_short_request(&self, handler: u8, arguments: &[u32]) -> Result<bool> {
        let mut requests = self.requests.lock();
        if !self.try_hotline(Direction::Request, requests.ring.slot(), handler, arguments) {
            if !requests.ring.has_room(arguments.len(), &Body::Short).map_err(|_| self.bad_index())? {
                return Ok(false);
            }
            requests.ring.write(handler, arguments, &Body::Short);
        }
        requests.counts.messages += 1;
        Ok(true)
    }

    /// Sends a short reply by the hot line, if that is free.
    #[inline]
    pub(super) fn try_short_reply(&self, handler: u8, arguments: &[u32]) -> bool {
        let mut replies = self.replies.lock();
        let sent = replies.waiting.is_empty()
            && self.try_hotline(Direction::Reply, replies.ring.slot(), handler, arguments);
        replies.counts.messages += u64::from(sent);
        sent
    }

    /// Sends a request through the ring, if there is room.
    #[inline]
    pub(super) fn try_send_request(&self, message: &Message<'_>, cargo: &Cargo) -> Result<Sent> {
        let mut requests = self.requests.lock();
        if !requests.ring.has_room(message.arguments.len(), &cargo.body).map_err(|_| self.bad_index())? {
            requests.busy += 1;
            return Ok(Sent::Busy);
        }
        cargo.place_long();
        requests.ring.write(message.handler, message.arguments, &cargo.body);
        requests.counts.add(&message.payload);
        Ok(Sent::Accepted)
    }

    /// Sends a reply through the ring, or keeps it until there is room. True: it is on its way.
    #[inline]
    pub(super) fn send_reply(&self, message: &Message<'_>, cargo: &Cargo) -> Result<bool> {
        let mut replies = self.replies.lock();
        replies.counts.add(&message.payload);
        let has_room = replies.waiting.is_empty()
            && replies.ring.has_room(message.arguments.len(), &cargo.body).map_err(|_| self.bad_index())?;
        if !has_room {
            self.keep_reply(&mut replies, message, cargo);
            return Ok(false);
        }
        cargo.place_long();
        replies.ring.write(message.handler, message.arguments, &cargo.body);
        Ok(true)
    }

    #[cold]
    fn keep_reply(&self, replies: &mut ReplyProducer, message: &Message<'_>, cargo: &Cargo) {
        cargo.place_long();
        let (medium, long) = match cargo.body {
            Body::Short => (None, None),
            Body::Medium(source) => {
                let mut bytes = vec![0; source.bytes()];
                // SAFETY: the source is valid during the send; the buffer is new and as long.
                unsafe { copy(source.address(), bytes.as_mut_ptr(), source.bytes()) };
                (Some(bytes), None)
            }
            Body::Long { bytes, region, owner, offset } => (None, Some((bytes, region, owner, offset))),
        };
        let arguments = message.arguments.to_vec();
        replies.waiting.push_back(OwnedReply { handler: message.handler, arguments, medium, long });
        self.replies_waiting.store(replies.waiting.len(), Ordering::Release);
    }

    /// Moves waiting replies into their ring; returns their number.
    pub(super) fn flush_replies(&self) -> Result<usize> {
        if !self.has_waiting_replies() {
            return Ok(0);
        }
        let mut replies = self.replies.lock();
        let mut sent = 0;
        while let Some(reply) = replies.waiting.pop_front() {
            let body = match (&reply.medium, reply.long) {
                (Some(bytes), _) => Body::Medium(Source::of(bytes)),
                (None, Some((bytes, region, owner, offset))) => Body::Long { bytes, region, owner, offset },
                (None, None) => Body::Short,
            };
            if !replies.ring.has_room(reply.arguments.len(), &body).map_err(|_| self.bad_index())? {
                replies.waiting.push_front(reply);
                break;
            }
            replies.ring.write(reply.handler, &reply.arguments, &body);
            sent += 1;
        }
        self.replies_waiting.store(replies.waiting.len(), Ordering::Release);
        Ok(sent)
    }

    /// Returns true if replies wait for room.
    #[inline]
    pub(super) fn has_waiting_replies(&self) -> bool {
        self.replies_waiting.load(Ordering::Acquire) != 0
    }

    /// The writing itself. `slot`: of the next record in the ring of this direction, whose lock the caller has.
    #[inline]
    fn try_hotline(&self, direction: Direction, slot: u32, handler: u8, arguments: &[u32]) -> bool {
        // Floods find it taken nearly always: they don't need the lock to learn that.
        if self.hotline.awaits_answer() {
            return false;
        }
        let _writing = self.writing.lock();
        // Under the lock, so that it never goes back.
        let taken = self.taken.load(Ordering::Acquire);
        self.hotline.try_write(direction, slot, handler, arguments, taken)
    }

    /// Lets the other member use its half of the hot line again.
    #[cold]
    pub(super) fn acknowledge(&self) {
        let _writing = self.writing.lock();
        self.hotline.acknowledge(self.taken.load(Ordering::Acquire));
    }

    /// Call it after publishing a message: returns true if the other member need not be told, because it
    /// looks at this link and is awake.
    #[inline]
    pub(super) fn is_heard(&self) -> bool {
        // Pairs with the heavy halves in `SmpConduit::arm` and `Inbox::forget_silent`. A word that is not 0 may want more
        // than the light half.
        fence::light();
        self.sleeping.load(Ordering::Relaxed) == 0 && self.marks.load(Ordering::Relaxed) & self.mark != 0
    }

    /// Marks this member as one that sends.
    pub(super) fn set_mark(&self) {
        bell::light_toward(&self.sleeping);
        if self.marks.load(Ordering::Relaxed) & self.mark == 0 {
            self.marks.fetch_or(self.mark, Ordering::SeqCst);
        }
    }

    /// Adds what was sent this way.
    pub(super) fn add_counts(&self, counts: &mut CarrierCounts) {
        let requests = self.requests.lock();
        counts.requests += requests.counts.messages;
        counts.payload_bytes += requests.counts.payload_bytes;
        counts.busy += requests.busy;
        drop(requests);
        let replies = self.replies.lock().counts;
        counts.replies += replies.messages;
        counts.payload_bytes += replies.payload_bytes;
    }

    fn bad_index(&self) -> RmaError {
        let what = "it spoiled the index of a shared-memory ring".into();
        RmaError::Protocol { peer: Some(self.to), what }
    }
}
