//! The bytes of an active message on a stream, or in a packet: encoding, and checked decoding. Pure: no
//! sockets, no memory but its arguments. The *meaning* of a frame (order, credits, permitted senders) is the
//! connection's.
//!
//! # A frame (little-endian)
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 1 | kind: 1 short, 2 medium, 3 long to a region, 4 long to an operation, 5 credits, 6 goodbye |
//! | 1 | 1 | direction: 0 request, 1 reply |
//! | 2 | 1 | handler |
//! | 3 | 1 | number of arguments, 0 to 16 |
//! | 4 | 2 | credits: how many more of the receiver's requests this sender has taken in |
//! | 6 | 2 | zero |
//! | 8 | 4 | payload bytes |
//! | 12 | 16 | only in long frames, region: owner (4), region (2), zero (2), offset (8); operation: id (8), offset (8) |
//! | | 4 each | arguments |
//! | | | payload |
//!
//! Kinds 5 and 6 are the first twelve bytes alone, with everything but the credits zero.
//!
//! # History of [`VERSION`]
//!
//! * 1: the first. Both sides of a connection speak the same version; the handshake refuses any other.

#![forbid(unsafe_code)]

use crate::address::{Peer, RegionId};
use crate::message::{ARGUMENTS_MAX, Destination, Direction, Message, Payload};

/// Version of handshake and frames.
pub const VERSION: u16 = 1;

/// Most payload bytes of a medium frame. Large enough for any batch of control data; small enough that parking as
/// many as there are credits stays affordable.
pub const MEDIUM_BYTES_MAX: usize = 64 << 10;

/// Most payload bytes of a long frame.
pub const LONG_BYTES_MAX: usize = 4 << 20;

const FIXED_BYTES: usize = 12;
const DESTINATION_BYTES: usize = 16;

/// Most bytes of a frame before its payload.
pub const HEAD_BYTES_MAX: usize = FIXED_BYTES + DESTINATION_BYTES + 4 * ARGUMENTS_MAX;

const SHORT: u8 = 1;
const MEDIUM: u8 = 2;
const LONG_REGION: u8 = 3;
const LONG_OPERATION: u8 = 4;
const CREDITS: u8 = 5;
const GOODBYE: u8 = 6;

/// Content of a frame beside credits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// An active message.
    Message(Head),
    /// Only credits.
    Credits,
    /// The sender will send nothing more; the end of the connection is then no loss.
    Goodbye,
}

/// Everything of an active message but the payload itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Request or reply.
    pub direction: Direction,
    /// Index of the handler; any byte.
    pub handler: u8,
    /// Number of valid `arguments`; at most 16.
    pub argument_count: u8,
    /// The arguments; the rest is zero.
    pub arguments: [u32; ARGUMENTS_MAX],
    /// Kind of payload.
    pub kind: Kind,
    /// Payload bytes that follow the head, within the kind's limit.
    pub payload_bytes: u32,
}

/// Kind of payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// None.
    Short,
    /// For a buffer of the receiver.
    Medium,
    /// For memory that the receiver has named.
    Long(Destination),
}

/// A decoded frame, without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Requests of the receiver that the sender has taken in since its last frame.
    pub credits: u16,
    /// Its content.
    pub body: Body,
    /// Bytes of the frame before the payload.
    pub head_bytes: usize,
}

/// Why bytes are not a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Unknown kind.
    #[error("a frame of unknown kind {0}")]
    Kind(u8),
    /// Neither request nor reply.
    #[error("a frame with direction {0}")]
    Direction(u8),
    /// More than 16.
    #[error("a frame with {0} arguments")]
    Arguments(u8),
    /// More than the kind may carry.
    #[error("a frame with a payload of {0} bytes where {1} are allowed")]
    Payload(u32, usize),
    /// Reserved bytes that are not zero.
    #[error("a frame whose reserved bytes are not zero")]
    Reserved,
}

impl Head {
    /// The arguments that count.
    pub fn arguments(&self) -> &[u32] {
        &self.arguments[..usize::from(self.argument_count)]
    }
}

/// Writes the bytes that precede the payload and returns their number. The caller has checked the message
/// against the limits (16 arguments, payload of its kind).
#[inline]
pub fn encode(message: &Message<'_>, credits: u16, to: &mut [u8; HEAD_BYTES_MAX]) -> usize {
    let (kind, payload_bytes) = match message.payload {
        Payload::Short => (Kind::Short, 0),
        Payload::Medium(source) => (Kind::Medium, source.bytes()),
        Payload::Long(source, destination) => (Kind::Long(destination), source.bytes()),
    };
    encode_head(
        message.direction,
        message.handler,
        message.arguments,
        (kind, payload_bytes as u32),
        credits,
        to,
    )
}

/// As [`encode`], of a message whose payload is elsewhere.
#[inline]
pub fn encode_head(
    direction: Direction,
    handler: u8,
    arguments: &[u32],
    (kind, payload_bytes): (Kind, u32),
    credits: u16,
    to: &mut [u8; HEAD_BYTES_MAX],
) -> usize {
    to[0] = match kind {
        Kind::Short => SHORT,
        Kind::Medium => MEDIUM,
        Kind::Long(Destination::Region { .. }) => LONG_REGION,
        Kind::Long(Destination::Operation { .. }) => LONG_OPERATION,
    };
    to[1] = match direction {
        Direction::Request => 0,
        Direction::Reply => 1,
    };
    to[2] = handler;
    to[3] = arguments.len() as u8;
    to[4..6].copy_from_slice(&credits.to_le_bytes());
    to[6..8].fill(0);
    to[8..12].copy_from_slice(&payload_bytes.to_le_bytes());
    let mut end = FIXED_BYTES;
    match kind {
        Kind::Long(Destination::Region { region, owner, offset }) => {
            to[12..16].copy_from_slice(&owner.0.to_le_bytes());
            to[16..18].copy_from_slice(&region.0.to_le_bytes());
            to[18..20].fill(0);
            to[20..28].copy_from_slice(&offset.to_le_bytes());
            end += DESTINATION_BYTES;
        }
        Kind::Long(Destination::Operation { id, offset }) => {
            to[12..20].copy_from_slice(&id.to_le_bytes());
            to[20..28].copy_from_slice(&offset.to_le_bytes());
            end += DESTINATION_BYTES;
        }
        Kind::Short | Kind::Medium => {}
    }
    for argument in arguments {
        to[end..end + 4].copy_from_slice(&argument.to_le_bytes());
        end += 4;
    }
    end
}

/// A frame that only returns credits.
pub fn encode_credits(credits: u16) -> [u8; FIXED_BYTES] {
    control(CREDITS, credits)
}

/// The last frame of a sender.
pub fn encode_goodbye(credits: u16) -> [u8; FIXED_BYTES] {
    control(GOODBYE, credits)
}

fn control(kind: u8, credits: u16) -> [u8; FIXED_BYTES] {
    let mut bytes = [0; FIXED_BYTES];
    bytes[0] = kind;
    bytes[4..6].copy_from_slice(&credits.to_le_bytes());
    bytes
}

/// Reads the frame at the front of `bytes`; `None` while its head is incomplete.
#[inline]
pub fn decode(bytes: &[u8]) -> Result<Option<Frame>, FrameError> {
    let Some(fixed) = bytes.first_chunk::<FIXED_BYTES>() else { return Ok(None) };
    let [kind, direction, handler, argument_count, ..] = *fixed;
    let credits = u16::from_le_bytes([fixed[4], fixed[5]]);
    let payload_bytes = u32::from_le_bytes([fixed[8], fixed[9], fixed[10], fixed[11]]);
    if fixed[6..8] != [0, 0] {
        return Err(FrameError::Reserved);
    }
    if kind == CREDITS || kind == GOODBYE {
        if fixed[1..4] != [0, 0, 0] || payload_bytes != 0 {
            return Err(FrameError::Reserved);
        }
        let body = if kind == CREDITS { Body::Credits } else { Body::Goodbye };
        return Ok(Some(Frame { credits, body, head_bytes: FIXED_BYTES }));
    }
    let direction = match direction {
        0 => Direction::Request,
        1 => Direction::Reply,
        other => return Err(FrameError::Direction(other)),
    };
    if usize::from(argument_count) > ARGUMENTS_MAX {
        return Err(FrameError::Arguments(argument_count));
    }
    let (limit, destination_bytes) = match kind {
        SHORT => (0, 0),
        MEDIUM => (MEDIUM_BYTES_MAX, 0),
        LONG_REGION | LONG_OPERATION => (LONG_BYTES_MAX, DESTINATION_BYTES),
        other => return Err(FrameError::Kind(other)),
    };
    if payload_bytes as usize > limit {
        return Err(FrameError::Payload(payload_bytes, limit));
    }
    let arguments_at = FIXED_BYTES + destination_bytes;
    let head_bytes = arguments_at + 4 * usize::from(argument_count);
    let Some(head) = bytes.get(..head_bytes) else { return Ok(None) };
    let kind = match kind {
        SHORT => Kind::Short,
        MEDIUM => Kind::Medium,
        LONG_REGION => {
            if head[18..20] != [0, 0] {
                return Err(FrameError::Reserved);
            }
            Kind::Long(Destination::Region {
                owner: Peer(u32_at(head, 12)),
                region: RegionId(u16::from_le_bytes([head[16], head[17]])),
                offset: u64_at(head, 20),
            })
        }
        _ => Kind::Long(Destination::Operation { id: u64_at(head, 12), offset: u64_at(head, 20) }),
    };
    let mut arguments = [0; ARGUMENTS_MAX];
    for (argument, bytes) in arguments.iter_mut().zip(head[arguments_at..].chunks_exact(4)) {
        *argument = u32_at(bytes, 0);
    }
    let head = Head { direction, handler, argument_count, arguments, kind, payload_bytes };
    Ok(Some(Frame { credits, body: Body::Message(head), head_bytes }))
}

/// `bytes` has been checked to reach four bytes beyond `at`.
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// `bytes` has been checked to reach eight bytes beyond `at`.
fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Source;
    use proptest::prelude::*;

    fn destination() -> impl Strategy<Value = Destination> {
        prop_oneof![
            (any::<u16>(), any::<u32>(), any::<u64>()).prop_map(|(region, owner, offset)| {
                Destination::Region { region: RegionId(region), owner: Peer(owner), offset }
            }),
            (any::<u64>(), any::<u64>()).prop_map(|(id, offset)| Destination::Operation { id, offset }),
        ]
    }

    static BYTES: [u8; LONG_BYTES_MAX] = [0; LONG_BYTES_MAX];

    fn payload() -> impl Strategy<Value = Payload<'static>> {
        let of = |bytes: usize| Source::of(&BYTES[..bytes]);
        prop_oneof![
            Just(Payload::Short),
            (0..=MEDIUM_BYTES_MAX).prop_map(move |n| Payload::Medium(of(n))),
            ((0..=LONG_BYTES_MAX), destination()).prop_map(move |(n, d)| Payload::Long(of(n), d)),
        ]
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(
            reply: bool, handler: u8, credits: u16, payload in payload(),
            arguments in prop::collection::vec(any::<u32>(), 0..=ARGUMENTS_MAX),
        ) {
            let direction = if reply { Direction::Reply } else { Direction::Request };
            let message = Message { direction, handler, arguments: &arguments, payload };
            let mut bytes = [0xaa; HEAD_BYTES_MAX];
            let head_bytes = encode(&message, credits, &mut bytes);
            for cut in 0..head_bytes {
                prop_assert_eq!(decode(&bytes[..cut]), Ok(None));
            }
            let frame = decode(&bytes).unwrap().unwrap();
            prop_assert_eq!(frame.head_bytes, head_bytes);
            prop_assert_eq!(frame.credits, credits);
            let Body::Message(head) = frame.body else { panic!("not a message: {frame:?}") };
            prop_assert_eq!((head.direction, head.handler), (direction, handler));
            prop_assert_eq!(head.arguments(), &arguments[..]);
            match payload {
                Payload::Short => prop_assert_eq!((head.kind, head.payload_bytes), (Kind::Short, 0)),
                Payload::Medium(s) => prop_assert_eq!((head.kind, head.payload_bytes as usize), (Kind::Medium, s.bytes())),
                Payload::Long(s, d) => prop_assert_eq!((head.kind, head.payload_bytes as usize), (Kind::Long(d), s.bytes())),
            }
        }

        #[test]
        fn arbitrary_bytes_are_refused_or_within_limits(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            check(&bytes);
        }

        /// As above, but with a plausible beginning, so that the later checks are reached.
        #[test]
        fn nearly_valid_bytes_too(
            kind in 0u8..8, direction in 0u8..3, arguments in 0u8..18, small: bool,
            bytes in prop::collection::vec(any::<u8>(), 12..120),
        ) {
            let mut bytes = bytes;
            (bytes[0], bytes[1], bytes[3]) = (kind, direction, arguments);
            bytes[6..8].fill(0);
            if small { bytes[10..12].fill(0); }
            check(&bytes);
        }
    }

    fn check(bytes: &[u8]) {
        if let Ok(Some(frame)) = decode(bytes) {
            assert!(frame.head_bytes <= bytes.len().min(HEAD_BYTES_MAX));
            if let Body::Message(head) = frame.body {
                assert!(head.arguments().len() <= ARGUMENTS_MAX);
                assert!(head.payload_bytes as usize <= LONG_BYTES_MAX);
            }
        }
    }

    #[test]
    fn limits_hold_just_inside_and_just_outside() {
        let medium = |bytes: u32| {
            let mut frame = [0; FIXED_BYTES];
            frame[0] = MEDIUM;
            frame[8..12].copy_from_slice(&bytes.to_le_bytes());
            decode(&frame)
        };
        assert!(medium(MEDIUM_BYTES_MAX as u32).is_ok());
        assert!(matches!(medium(MEDIUM_BYTES_MAX as u32 + 1), Err(FrameError::Payload(..))));
        assert!(matches!(medium(u32::MAX), Err(FrameError::Payload(..))));
        let mut short = [0; FIXED_BYTES];
        (short[0], short[3]) = (SHORT, 17);
        assert_eq!(decode(&short), Err(FrameError::Arguments(17)));
    }
}
