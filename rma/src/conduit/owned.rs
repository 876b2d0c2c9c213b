//! Messages that wait: copies that own their payload.
//!
//! All unsafe code is the copying of payloads, under two rules: a source is valid during the send that takes it, and the
//! sink vouches for a destination until the delivery has returned ([`Sink::destination`]).

use crate::address::Peer;
use crate::error::Result;
use crate::message::{Arrived, Delivery, Destination, Direction, Message, Payload, Sink, Source};
use vgas_shm::copy::copy;

/// A message with bytes of its own.
#[derive(Debug)]
pub(crate) struct OwnedMessage {
    direction: Direction,
    handler: u8,
    arguments: Vec<u32>,
    payload: OwnedPayload,
}

#[derive(Debug)]
enum OwnedPayload {
    Short,
    Medium(Vec<u8>),
    Long(Vec<u8>, Destination),
}

/// The bytes of a source, copied.
pub(crate) fn copy_of(source: Source<'_>) -> Vec<u8> {
    let mut bytes = vec![0; source.bytes()];
    if source.bytes() > 0 {
        // SAFETY: a source is valid during the send that takes it; the buffer is new and has its length.
        unsafe { copy(source.address(), bytes.as_mut_ptr(), source.bytes()) };
    }
    bytes
}

impl OwnedMessage {
    /// A copy of a message and of its payload.
    pub(crate) fn of(message: &Message<'_>) -> Self {
        Self {
            direction: message.direction,
            handler: message.handler,
            arguments: message.arguments.to_vec(),
            payload: match message.payload {
                Payload::Short => OwnedPayload::Short,
                Payload::Medium(source) => OwnedPayload::Medium(copy_of(source)),
                Payload::Long(source, destination) => OwnedPayload::Long(copy_of(source), destination),
            },
        }
    }

    /// Index of the handler at the receiver.
    pub(crate) fn handler(&self) -> u8 {
        self.handler
    }

    /// Bytes of a long payload; 0 without one.
    pub(crate) fn long_bytes(&self) -> usize {
        match &self.payload {
            OwnedPayload::Long(bytes, _) => bytes.len(),
            OwnedPayload::Short | OwnedPayload::Medium(_) => 0,
        }
    }

    /// It, to be sent.
    pub(crate) fn message(&self) -> Message<'_> {
        let payload = match &self.payload {
            OwnedPayload::Short => Payload::Short,
            OwnedPayload::Medium(bytes) => Payload::Medium(Source::of(bytes)),
            OwnedPayload::Long(bytes, destination) => Payload::Long(Source::of(bytes), *destination),
        };
        let (direction, handler) = (self.direction, self.handler);
        Message { direction, handler, arguments: &self.arguments, payload }
    }

    /// Delivers it to a sink in this process, a long payload first.
    ///
    /// # Errors
    /// Those of the sink.
    pub(crate) fn deliver(&self, from: Peer, sink: &dyn Sink) -> Result<()> {
        let payload = match &self.payload {
            OwnedPayload::Short => Arrived::Short,
            OwnedPayload::Medium(bytes) => Arrived::Medium(bytes.as_slice().into()),
            OwnedPayload::Long(bytes, destination) => {
                let to = sink.destination(from, *destination, bytes.len())?;
                // SAFETY: the sink vouches for `bytes.len()` bytes there until the delivery has returned.
                unsafe { copy(bytes.as_ptr(), to, bytes.len()) };
                Arrived::Long(to, bytes.len())
            }
        };
        let (direction, handler) = (self.direction, self.handler);
        sink.deliver(Delivery { from, direction, handler, arguments: &self.arguments, payload })
    }
}

/// A message that has arrived and waits for its delivery.
#[derive(Debug)]
pub(crate) struct OwnedDelivery {
    pub(crate) from: Peer,
    pub(crate) direction: Direction,
    pub(crate) handler: u8,
    pub(crate) arguments: Vec<u32>,
    pub(crate) payload: OwnedArrival,
}

#[derive(Debug)]
pub(crate) enum OwnedArrival {
    Short,
    Medium(Vec<u8>),
    /// Already in place: exposed address and length.
    Long(usize, usize),
}

impl OwnedDelivery {
    /// Copies an arrived message.
    pub(crate) fn of(delivery: &Delivery<'_>) -> Self {
        Self {
            from: delivery.from,
            direction: delivery.direction,
            handler: delivery.handler,
            arguments: delivery.arguments.to_vec(),
            payload: match delivery.payload {
                Arrived::Short => OwnedArrival::Short,
                Arrived::Medium(bytes) => OwnedArrival::Medium(bytes.to_vec()),
                Arrived::Long(address, bytes) => OwnedArrival::Long(address.expose_provenance(), bytes),
            },
        }
    }

    /// Bytes of the payload.
    pub(crate) fn bytes(&self) -> usize {
        match &self.payload {
            OwnedArrival::Short => 0,
            OwnedArrival::Medium(bytes) => bytes.len(),
            OwnedArrival::Long(_, bytes) => *bytes,
        }
    }

    /// It, to be delivered.
    pub(crate) fn delivery(&self) -> Delivery<'_> {
        let payload = match &self.payload {
            OwnedArrival::Short => Arrived::Short,
            OwnedArrival::Medium(bytes) => Arrived::Medium(bytes.as_slice().into()),
            OwnedArrival::Long(address, bytes) => {
                Arrived::Long(std::ptr::with_exposed_provenance_mut(*address), *bytes)
            }
        };
        let (from, direction, handler) = (self.from, self.direction, self.handler);
        Delivery { from, direction, handler, arguments: &self.arguments, payload }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::RegionId;

    /// Goal: a message that waited is sent as it was, although its source has changed since.
    #[test]
    fn a_copy_is_sent_as_the_message_was() {
        let to = Destination::Region { region: RegionId::SEGMENT, owner: Peer(2), offset: 24 };
        let mut bytes = [1, 2, 3];
        for kind in 0..3 {
            bytes = [1, 2, 3];
            let source = Source::of(&bytes);
            let payload = [Payload::Short, Payload::Medium(source), Payload::Long(source, to)][kind];
            let owned = OwnedMessage::of(&Message {
                direction: Direction::Reply,
                handler: 9,
                arguments: &[4, 5],
                payload,
            });
            bytes = [0; 3];
            let message = owned.message();
            assert_eq!(
                (message.direction, message.handler, message.arguments),
                (Direction::Reply, 9, &[4, 5][..])
            );
            match (kind, message.payload) {
                (0, Payload::Short) => {}
                (1, Payload::Medium(source)) => assert_eq!(copy_of(source), [1, 2, 3]),
                (2, Payload::Long(source, place)) => {
                    assert_eq!((copy_of(source), place), (vec![1, 2, 3], to))
                }
                (_, other) => panic!("{other:?}"),
            }
        }
        assert_eq!(bytes, [0; 3]);
    }
}
