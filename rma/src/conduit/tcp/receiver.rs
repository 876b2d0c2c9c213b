//! The receiving half of a connection: from bytes of the stream to messages that are ready for their handlers.
//!
//! Short and medium frames are read into one buffer, many per system call; a medium payload is handed out as
//! a shared piece of that buffer, so that a poll from inside its handler can read on (into a fresh buffer)
//! without touching it. A large one that ends what was read comes with the whole buffer: its handler may
//! write there. The payload of a long frame is read from the socket straight into the sink's memory, except
//! for the little that came along with its head, and for memory that others may use meanwhile, where words
//! are stored as a whole: such a payload goes through the buffer, too, unless it is larger.
//!
//! Each read asks for as much as the last message had, so that one brings all of the next; and its beginning
//! is put such that the payload of such a message begins with a cache line, because that is handled, or
//! copied on, fastest.

#![forbid(unsafe_code)]

use super::connection::{CREDITS, Connection};
use super::socket::{Received, Target};
use crate::conduit::Traffic;
use crate::conduit::wire::frame::{self, Body, FrameError, HEAD_BYTES_MAX, Head, Kind, MEDIUM_BYTES_MAX};
use crate::error::RmaError;
use crate::message::{Arrived, Delivery, Destination, Direction, Sink};
use rustix::net::{RecvFlags, recv};
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// Bytes asked for when only heads and small payloads are expected. More would drag the beginnings of long payloads
/// through the buffer; less would split batches of short frames. See `tcp_latency`.
const READ_AHEAD_BYTES: usize = 8 << 10;

/// Preferred alignment of payloads: a multiple of this.
const LINE_BYTES: usize = 64;

/// A buffer holds one unfinished frame with its payload, and bytes read ahead. Untouched parts cost no
/// memory.
const BUFFER_BYTES: usize = LINE_BYTES + HEAD_BYTES_MAX + MEDIUM_BYTES_MAX + READ_AHEAD_BYTES;

/// Medium payloads from which on the buffer is lent to the handler: below, a copy is cheaper than a lock.
const LENT_BYTES_MIN: usize = 4 << 10;

/// Why a connection ends.
#[derive(Debug)]
pub(super) enum ReceiveError {
    /// The other side closed.
    End,
    /// The system reports an error.
    Socket(io::Error),
    /// The peer broke the protocol.
    Protocol(String),
    /// The sink refused the message.
    Sink(RmaError),
}

impl From<FrameError> for ReceiveError {
    fn from(error: FrameError) -> Self {
        Self::Protocol(error.to_string())
    }
}

/// A complete message.
pub(super) struct Arrival {
    head: Head,
    payload: Contents,
}

enum Contents {
    None,
    /// A piece of a receive buffer.
    Shared(Arc<Vec<u8>>, Range<usize>),
    /// A piece of a receive buffer that the receiver has given away until [`Receiver::take_back`].
    Lent(Arc<Vec<u8>>, Range<usize>),
    /// Payload of a parked request.
    Owned(Vec<u8>),
    Placed(Target),
}

/// The state between two reads.
#[derive(Default)]
pub(super) struct Receiver {
    buffer: Option<Arc<Vec<u8>>>,
    /// The part of `buffer` that was received and not consumed.
    unread: Range<usize>,
    /// The last message that came through the buffer.
    last: Shape,
    /// A long message whose payload is being received.
    long: Option<(Head, Target)>,
    /// Complete requests that may not be delivered yet, oldest first; at most [`CREDITS`].
    parked: VecDeque<Arrival>,
    /// The last read emptied the socket; do not ask again in this poll.
    drained: bool,
    ended: bool,
}

/// Length of a message.
#[derive(Clone, Copy, Debug, Default)]
struct Shape {
    head_bytes: usize,
    /// With its payload.
    bytes: usize,
}

/// Returns true if the payload of a message is collected in the buffer.
fn is_collected(head: &Head) -> bool {
    match head.kind {
        Kind::Short | Kind::Medium => true,
        Kind::Long(Destination::Region { region, .. }) => {
            region.is_segment() && head.payload_bytes as usize <= MEDIUM_BYTES_MAX
        }
        Kind::Long(Destination::Operation { .. }) => false,
    }
}

impl Receiver {
    /// A new poll begins.
    pub(super) fn begin(&mut self) {
        self.drained = false;
    }

    /// Nothing more can be received. `discard`: nor shall what was received from this peer be delivered.
    pub(super) fn end(&mut self, discard: bool) {
        self.ended = true;
        if discard {
            self.parked.clear();
        }
        self.unread = 0..0;
        self.long = None;
    }

    /// Returns true if [`Receiver::end`] was called.
    pub(super) fn ended(&self) -> bool {
        self.ended
    }

    /// Returns true if a message can be delivered without reading from the socket.
    pub(super) fn has_message(&self, requests: bool) -> bool {
        if requests && !self.parked.is_empty() {
            return true;
        }
        let Some(buffer) = &self.buffer else { return false };
        match frame::decode(&buffer[self.unread.clone()]) {
            Ok(None) => false,
            Ok(Some(frame)) => match frame.body {
                Body::Message(head) if is_collected(&head) => {
                    self.unread.len() >= frame.head_bytes + head.payload_bytes as usize
                }
                Body::Message(_) | Body::Credits | Body::Goodbye => true,
            },
            Err(_) => true,
        }
    }

    /// Returns the next message for the sink; `None` if nothing more is there at the moment, or if it is one
    /// that `traffic` leaves in place. With `requests` false, requests are parked until a call allows them
    /// again.
    pub(super) fn next(
        &mut self,
        connection: &Connection,
        sink: &dyn Sink,
        requests: bool,
        traffic: Traffic,
    ) -> Result<Option<Arrival>, ReceiveError> {
        if let Some(arrival) = self.parked.front() {
            if !traffic.admits(arrival.head.handler) {
                return Ok(None);
            }
            if requests {
                return Ok(self.parked.pop_front());
            }
        }
        loop {
            let Some(arrival) = self.read_on(connection, sink, traffic)? else { return Ok(None) };
            if requests || arrival.head.direction == Direction::Reply {
                return Ok(Some(arrival));
            }
            if self.parked.len() >= CREDITS as usize {
                return Err(ReceiveError::Protocol("more requests than it has credits for".into()));
            }
            self.parked.push_back(arrival.into_owned());
        }
    }

    /// The next complete message of the stream.
    fn read_on(
        &mut self,
        connection: &Connection,
        sink: &dyn Sink,
        traffic: Traffic,
    ) -> Result<Option<Arrival>, ReceiveError> {
        loop {
            if let Some((head, mut target)) = self.long.take() {
                if !traffic.admits(head.handler) {
                    self.long = Some((head, target));
                    return Ok(None);
                }
                if target.missing() == 0 {
                    return Ok(Some(Arrival { head, payload: Contents::Placed(target) }));
                }
                if sink.is_gone(connection.peer) {
                    // Its requester was told that it does not come, and may have freed the memory.
                    return Err(ReceiveError::Protocol("a payload that nobody waits for any more".into()));
                }
                let read = self.fill_target(connection, &mut target);
                self.long = Some((head, target));
                if !read? {
                    return Ok(None);
                }
                continue;
            }
            let available = match &self.buffer {
                Some(buffer) => &buffer[self.unread.clone()],
                None => &[],
            };
            let Some(frame) = frame::decode(available)? else {
                if self.fill(connection, self.unread.len())? {
                    continue;
                }
                return Ok(None);
            };
            let head = match frame.body {
                Body::Message(head) => head,
                Body::Credits | Body::Goodbye => {
                    self.accept_head(connection, frame.credits, frame.head_bytes)?;
                    if frame.body == Body::Goodbye {
                        connection.receive_goodbye();
                    }
                    continue;
                }
            };
            if !traffic.admits(head.handler) {
                return Ok(None);
            }
            let bytes = head.payload_bytes as usize;
            self.last = match is_collected(&head) {
                true => Shape { head_bytes: frame.head_bytes, bytes: frame.head_bytes + bytes },
                false => Shape::default(),
            };
            match head.kind {
                Kind::Short => {
                    self.accept_head(connection, frame.credits, frame.head_bytes)?;
                    return Ok(Some(Arrival { head, payload: Contents::None }));
                }
                Kind::Medium => {
                    if available.len() < self.last.bytes {
                        if self.fill(connection, self.last.bytes)? {
                            continue;
                        }
                        return Ok(None);
                    }
                    self.accept_head(connection, frame.credits, frame.head_bytes)?;
                    let range = self.unread.start..self.unread.start + bytes;
                    self.unread.start = range.end;
                    let is_lent = self.unread.is_empty() && bytes >= LENT_BYTES_MIN;
                    let payload = match (&self.buffer, is_lent) {
                        (Some(buffer), false) => Contents::Shared(buffer.clone(), range),
                        (Some(_), true) => self.lend(range),
                        (None, _) => Contents::None,
                    };
                    return Ok(Some(Arrival { head, payload }));
                }
                Kind::Long(destination) => {
                    let mut target =
                        Target::of(sink, connection.peer, destination, bytes).map_err(ReceiveError::Sink)?;
                    if available.len() < self.last.bytes {
                        if self.fill(connection, self.last.bytes)? {
                            continue;
                        }
                        return Ok(None);
                    }
                    self.accept_head(connection, frame.credits, frame.head_bytes)?;
                    if let Some(buffer) = &self.buffer {
                        self.unread.start += target.fill_from(&buffer[self.unread.clone()]);
                    }
                    self.long = Some((head, target));
                }
            }
        }
    }

    /// Gives the buffer away, which has no unread bytes.
    fn lend(&mut self, range: Range<usize>) -> Contents {
        self.unread = 0..0;
        self.buffer.take().map_or(Contents::None, |buffer| Contents::Lent(buffer, range))
    }

    /// Takes the buffer of a message that has been delivered back, unless there is another one meanwhile.
    pub(super) fn take_back(&mut self, arrival: Arrival) {
        if let Contents::Lent(buffer, _) = arrival.payload
            && self.buffer.is_none()
        {
            self.buffer = Some(buffer);
        }
    }

    /// Consumes a head that was decoded, with its credits.
    fn accept_head(
        &mut self,
        connection: &Connection,
        credits: u16,
        bytes: usize,
    ) -> Result<(), ReceiveError> {
        if connection.said_goodbye() {
            return Err(ReceiveError::Protocol("a frame after its goodbye".into()));
        }
        if credits > 0 && !connection.take_credits(credits) {
            return Err(ReceiveError::Protocol(format!("{credits} credits that nobody is owed")));
        }
        self.unread.start += bytes;
        Ok(())
    }

    /// Reads more of a long payload, and a little of the following bytes. False: nothing there.
    fn fill_target(&mut self, connection: &Connection, target: &mut Target) -> Result<bool, ReceiveError> {
        if self.drained || self.ended {
            return Ok(false);
        }
        // Everything in the buffer went to the target before: it is empty.
        let buffer = writable(&mut self.buffer, &mut self.unread, READ_AHEAD_BYTES, 0);
        let after = &mut buffer[..READ_AHEAD_BYTES];
        let (received, behind, wanted) =
            target.fill_from_socket(connection.socket(), after).map_err(ReceiveError::Socket)?;
        self.unread = 0..behind;
        self.note(received, wanted)
    }

    /// Reads more into the buffer: up to `bytes` unread ones, or as many as the last message had, and a
    /// little of the following bytes. False: nothing there.
    fn fill(&mut self, connection: &Connection, bytes: usize) -> Result<bool, ReceiveError> {
        if self.drained || self.ended {
            return Ok(false);
        }
        let bytes = bytes.max(self.last.bytes) + READ_AHEAD_BYTES;
        let buffer = writable(&mut self.buffer, &mut self.unread, bytes, self.last.head_bytes);
        let room = &mut buffer[self.unread.end..self.unread.start + bytes];
        let wanted = room.len();
        let received = loop {
            match recv(connection.socket(), &mut *room, RecvFlags::DONTWAIT) {
                Ok((_, 0)) => break Received::End,
                Ok((_, bytes)) => break Received::Bytes(bytes),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => break Received::Nothing,
                Err(error) => return Err(ReceiveError::Socket(error.into())),
            }
        };
        if let Received::Bytes(bytes) = received {
            self.unread.end += bytes;
        }
        self.note(received, wanted)
    }

    fn note(&mut self, received: Received, wanted: usize) -> Result<bool, ReceiveError> {
        match received {
            Received::Bytes(bytes) => {
                self.drained = bytes < wanted;
                Ok(true)
            }
            Received::Nothing => {
                self.drained = true;
                Ok(false)
            }
            Received::End => Err(ReceiveError::End),
        }
    }
}

/// The buffer, writable, with room for `bytes` bytes from the start of the unread ones. When a handler still
/// looks at a part of it, the unread bytes move to a new one. If none are unread, they will begin so that the
/// bytes after `head_bytes` of them begin at a cache line.
fn writable<'a>(
    slot: &'a mut Option<Arc<Vec<u8>>>,
    unread: &mut Range<usize>,
    bytes: usize,
    head_bytes: usize,
) -> &'a mut [u8] {
    let buffer = slot.get_or_insert_with(|| Arc::new(vec![0; BUFFER_BYTES]));
    if (*unread).is_empty() {
        let start = (buffer.as_ptr().addr() + head_bytes).wrapping_neg() % LINE_BYTES;
        *unread = start..start;
    }
    if Arc::get_mut(buffer).is_none() {
        let mut fresh = vec![0; BUFFER_BYTES];
        fresh[..unread.len()].copy_from_slice(&buffer[unread.clone()]);
        *unread = 0..unread.len();
        *buffer = Arc::new(fresh);
    }
    let Some(bytes_of) = Arc::get_mut(buffer) else { unreachable!("nobody shares a fresh buffer") };
    if unread.start + bytes > BUFFER_BYTES {
        bytes_of.copy_within(unread.clone(), 0);
        *unread = 0..unread.len();
    }
    bytes_of
}

impl Arrival {
    /// Returns true if the receiver is to [take a buffer back](Receiver::take_back) after the delivery.
    pub(super) fn has_buffer(&self) -> bool {
        matches!(self.payload, Contents::Lent(..))
    }

    /// Returns its direction.
    pub(super) fn direction(&self) -> Direction {
        self.head.direction
    }

    /// Hands the message to the sink.
    pub(super) fn deliver(&mut self, connection: &Connection, sink: &dyn Sink) -> Result<(), RmaError> {
        let payload = match (&mut self.payload, self.head.kind) {
            (Contents::None, Kind::Medium) => Arrived::Medium([].as_slice().into()),
            (Contents::None, _) => Arrived::Short,
            (Contents::Shared(buffer, range), _) => Arrived::Medium(buffer[range.clone()].into()),
            (Contents::Lent(buffer, range), _) => Arrived::Medium(match Arc::get_mut(buffer) {
                Some(bytes) => (&mut bytes[range.clone()]).into(),
                None => buffer[range.clone()].into(),
            }),
            (Contents::Owned(bytes), _) => Arrived::Medium(bytes.as_mut_slice().into()),
            (Contents::Placed(target), _) => Arrived::Long(target.base(), target.bytes()),
        };
        sink.deliver(Delivery {
            from: connection.peer,
            direction: self.head.direction,
            handler: self.head.handler,
            arguments: self.head.arguments(),
            payload,
        })
    }

    /// Independent of the receive buffer: parked messages must not pin one each.
    fn into_owned(self) -> Self {
        let payload = match self.payload {
            Contents::Shared(buffer, range) | Contents::Lent(buffer, range) => {
                Contents::Owned(buffer[range].to_vec())
            }
            other => other,
        };
        Self { payload, ..self }
    }
}
