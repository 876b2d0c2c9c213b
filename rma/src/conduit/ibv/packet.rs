//! Packets in the SENDs of a connection. Pure. Each begins with its number, four bytes, among all messages of
//! the connection (see [`Number`] for its use). Then follows a [`frame`](super::super::wire::frame), with the
//! payload of a medium message behind it (that of a long one was written to its place before), or an
//! [`AccessNotice`](crate::conduit::oneside::AccessNotice) about regions.
//!
//! A note about a block of the receiver's needs no packet: everything about it is in the immediate data of the block's WRITE,
//! as far as the receiver does not know it. [`expand`] makes the frame of it that a packet would have had.
//!
//! | bits | field |
//! |---|---|
//! | 0 to 20 | the block's index, also the first argument: the payload's offset in the region, divided by its length |
//! | 21 to 28 | the second argument |
//! | 29 | credits |
//! | 30, 31 | the last two bits of the message's number |
//!
//! The handler is [`NOTE_HANDLER`]. Larger ones go as a WRITE and a SEND.

#![forbid(unsafe_code)]

use crate::address::{Peer, RegionId};
use crate::conduit::wire::frame::{self, HEAD_BYTES_MAX, Kind};
use crate::message::{Destination, Direction, Message, NOTE_HANDLER, Payload};

/// Version of the packets and of how a connection is set up, exchanged before a queue pair is connected.
pub(super) const VERSION: u32 = 6;

const INDEX_BITS: u32 = 21;
const NOTE_BITS: u32 = 8;
const CREDIT_BITS: u32 = 1;
const ORDER_BITS: u32 = 2;
const _: () = assert!(INDEX_BITS + NOTE_BITS + CREDIT_BITS + ORDER_BITS == 32);

/// Most credits that immediate data can bring.
pub(super) const IMMEDIATE_CREDITS_MAX: u32 = (1 << CREDIT_BITS) - 1;

/// Bytes of the number in front of a packet.
pub(super) const NUMBER_BYTES: usize = 4;

/// A message's place in the order of its connection. A reliable connection delivers all messages once and in
/// order; Soft-RoCE, when it retransmits, may deliver one twice (its requester and its completer race for the
/// packet to begin with).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Number {
    /// All of it.
    Whole(u32),
    /// Its last bits, in immediate data.
    Part(u32),
}

/// Order of a received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// The one that was to come.
    Next,
    /// One that has come before.
    Again,
    /// A message whose predecessors are missing.
    Gap,
}

impl Number {
    /// Splits a packet into its number and the rest; none if it is too short.
    pub(super) fn split(packet: &[u8]) -> Option<(Self, &[u8])> {
        let (number, rest) = packet.split_first_chunk::<NUMBER_BYTES>()?;
        Some((Self::Whole(u32::from_le_bytes(*number)), rest))
    }

    /// From immediate data.
    pub(super) fn of_immediate(immediate: u32) -> Self {
        Self::Part(immediate >> (32 - ORDER_BITS))
    }

    /// Compared with the number of the message that is to come.
    pub(super) fn order(self, expected: u32) -> Order {
        let ahead = match self {
            Self::Whole(number) => number.wrapping_sub(expected) as i32,
            // A few bits cannot tell ahead from behind: the next whole number does.
            Self::Part(part) => -((expected.wrapping_sub(part) & ((1 << ORDER_BITS) - 1)) as i32),
        };
        match ahead {
            0 => Order::Next,
            ..0 => Order::Again,
            1.. => Order::Gap,
        }
    }
}

/// The immediate data of a message to this peer, without credits; none if more has to be said.
pub(super) fn immediate(message: &Message<'_>, to: Peer) -> Option<u32> {
    let Payload::Long(source, Destination::Region { region: RegionId::BLOCKS, owner, offset }) =
        message.payload
    else {
        return None;
    };
    let &[index, note] = message.arguments else { return None };
    let fits = message.direction == Direction::Request
        && message.handler == NOTE_HANDLER
        && owner == to
        && source.bytes() > 0
        && offset == u64::from(index) * source.bytes() as u64
        && index < 1 << INDEX_BITS
        && note < 1 << NOTE_BITS;
    fits.then_some(index | note << INDEX_BITS)
}

/// Adds at most [`IMMEDIATE_CREDITS_MAX`] credits, and the number of the message.
pub(super) fn complete(immediate: u32, credits: u32, number: u32) -> u32 {
    debug_assert!(credits <= IMMEDIATE_CREDITS_MAX);
    immediate | credits << (INDEX_BITS + NOTE_BITS) | number << (32 - ORDER_BITS)
}

/// Returns the frame of the message that came as immediate data, with `bytes` bytes, and its length. Any
/// number means something; whether it may be is decided as for other frames.
pub(super) fn expand(immediate: u32, bytes: u32, me: Peer) -> ([u8; HEAD_BYTES_MAX], usize) {
    let index = immediate & ((1 << INDEX_BITS) - 1);
    let note = immediate >> INDEX_BITS & ((1 << NOTE_BITS) - 1);
    let credits = immediate >> (INDEX_BITS + NOTE_BITS) & IMMEDIATE_CREDITS_MAX;
    let offset = u64::from(index) * u64::from(bytes);
    let destination = Destination::Region { region: RegionId::BLOCKS, owner: me, offset };
    let mut head = [0; HEAD_BYTES_MAX];
    let head_bytes = frame::encode_head(
        Direction::Request,
        NOTE_HANDLER,
        &[index, note],
        (Kind::Long(destination), bytes),
        credits as u16,
        &mut head,
    );
    (head, head_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Source;
    use proptest::prelude::*;

    static BLOCK: [u8; 1 << 22] = [0; 1 << 22];

    proptest! {
        /// Immediate data decodes to the frame that a packet would have carried.
        #[test]
        fn immediate_data_is_a_frame(
            index in 0u32..1 << 21, note in 0u32..256, credits in 0u32..2, number: u32, bytes in 1u32..1 << 22,
        ) {
            let destination = Destination::Region {
                region: RegionId::BLOCKS,
                owner: Peer(7),
                offset: u64::from(index) * u64::from(bytes),
            };
            let message = Message {
                direction: Direction::Request,
                handler: NOTE_HANDLER,
                arguments: &[index, note],
                payload: Payload::Long(Source::of(&BLOCK[..bytes as usize]), destination),
            };
            let immediate = complete(immediate(&message, Peer(7)).unwrap(), credits, number);
            prop_assert_eq!(Number::of_immediate(immediate).order(number), Order::Next);
            let (packet, packet_bytes) = expand(immediate, bytes, Peer(7));
            let mut head = [0; HEAD_BYTES_MAX];
            let head_bytes = frame::encode(&message, credits as u16, &mut head);
            prop_assert_eq!(&packet[..packet_bytes], &head[..head_bytes]);
        }

        /// A peer may send any number with any count of bytes; more than a long payload may have is no frame.
        #[test]
        fn any_immediate_data_is_a_frame_or_refused(immediate: u32, bytes: u32) {
            let (packet, packet_bytes) = expand(immediate, bytes, Peer(7));
            prop_assert_eq!(frame::decode(&packet[..packet_bytes]).is_ok(), bytes as usize <= frame::LONG_BYTES_MAX);
        }
    }

    #[test]
    fn what_does_not_fit_is_no_immediate_data() {
        let arguments = [5, 6];
        let of = |arguments, handler, owner, offset, region| {
            let source = Source::of(&[0; 4096]);
            let payload = Payload::Long(source, Destination::Region { region, owner: Peer(owner), offset });
            immediate(&Message { direction: Direction::Request, handler, arguments, payload }, Peer(7))
        };
        let (note, blocks) = (NOTE_HANDLER, RegionId::BLOCKS);
        assert_eq!(of(&arguments, note, 7, 5 * 4096, blocks), Some(5 | 6 << 21));
        assert_eq!(of(&arguments, note, 7, 6 * 4096, blocks), None, "another block than it says");
        assert_eq!(of(&arguments, note, 7, 5 * 4096 + 8, blocks), None);
        assert_eq!(of(&arguments, note, 8, 5 * 4096, blocks), None, "the blocks of somebody else");
        assert_eq!(of(&arguments, note, 7, 5 * 4096, RegionId::SEGMENT), None);
        assert_eq!(of(&arguments, note + 1, 7, 5 * 4096, blocks), None);
        assert_eq!(of(&[5, 256], note, 7, 5 * 4096, blocks), None);
        assert_eq!(of(&[1 << 21, 6], note, 7, 4096 << 21, blocks), None);
        assert_eq!(of(&[5], note, 7, 5 * 4096, blocks), None);
    }

    proptest! {
        /// A repeated message is told from the next, even where the numbers begin again.
        #[test]
        fn messages_come_in_order(expected: u32, behind in 1u32..1000) {
            let order = |number| Number::Whole(number).order(expected);
            prop_assert_eq!(order(expected), Order::Next);
            prop_assert_eq!(order(expected.wrapping_sub(behind)), Order::Again);
            prop_assert_eq!(order(expected.wrapping_add(behind)), Order::Gap);
            for behind in 1..4 {
                let immediate = complete(0, 0, expected.wrapping_sub(behind));
                prop_assert_eq!(Number::of_immediate(immediate).order(expected), Order::Again);
            }
        }
    }

    #[test]
    fn the_number_is_taken_off() {
        assert_eq!(Number::split(&[1, 2, 0, 0, 9]), Some((Number::Whole(0x201), &[9][..])));
        assert_eq!(Number::split(&[1, 2, 0]), None);
    }
}
