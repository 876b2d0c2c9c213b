//! Packets between two sides: a head, and a body. Pure.
//!
//! | offset | size | field of the head |
//! |---|---|---|
//! | 0 | 8 | what the receiver has told this sender, and nobody else, to begin with |
//! | 8 | 4 | the sender |
//! | 12 | 4 | the packet's number among all packets of this pair and direction; of an acknowledgement alone: zero |
//! | 16 | 4 | how many packets of the receiver's this sender has taken in, as a number: those before it |
//!
//! A network may reorder packets and deliver them again. Numbers restore the order
//! ([`window`](super::window)); the count taken in shows the arrivals, whatever a provider means by its
//! completions.
//!
//! | first byte of the body | what |
//! |---|---|
//! | 1 to 6 | a [`frame`](crate::conduit::wire::frame), with the payload of a medium message; that of a long one was written before |
//! | 32 to 34 | an [`AccessNotice`](crate::conduit::oneside::AccessNotice) |
//! | 40 | nothing more: an acknowledgement |
//! | 41 | three zeros, and more of the payload of the long message before |
//! | 42 | three zeros, the frame of a long message, and the beginning of its payload |
//! | 43 | a zero, region (2), owner (4), offset (8), and bytes of a put |

#![forbid(unsafe_code)]

use crate::address::{Peer, RegionId};
use crate::conduit::oneside::{AccessNotice, Name};

/// Version of the packets and of how a connection is set up, exchanged before there is one.
pub(super) const VERSION: u32 = 1;

/// Bytes of the head.
pub(super) const HEAD_BYTES: usize = 20;

/// Offset of the head's count of packets taken in.
const TAKEN_AT: usize = 16;

/// Bytes of a body of a long message, or of a part of it, before the rest.
pub(super) const MARK_BYTES: usize = 4;

/// Bytes of the body of a put before the rest.
pub(super) const PUT_BYTES: usize = 16;

const ACKNOWLEDGEMENT: u8 = 40;
const PART: u8 = 41;
const LONG: u8 = 42;
const PUT: u8 = 43;

/// The head of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) token: u64,
    pub(super) from: Peer,
    pub(super) number: u32,
    pub(super) taken: u32,
}

impl Head {
    /// Its bytes, behind what `to` has.
    pub(super) fn encode(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.token.to_le_bytes());
        to.extend_from_slice(&self.from.0.to_le_bytes());
        to.extend_from_slice(&self.number.to_le_bytes());
        to.extend_from_slice(&self.taken.to_le_bytes());
    }

    /// The head of a packet, and its body; none when it is too short for both.
    pub(super) fn split(packet: &[u8]) -> Option<(Self, &[u8])> {
        let (head, body) = packet.split_first_chunk::<HEAD_BYTES>()?;
        let (token, rest) = head.split_first_chunk::<8>()?;
        let [from, number, taken] = [0, 1, 2].map(|at| {
            let word = rest.as_chunks::<4>().0.get(at).copied().unwrap_or_default();
            u32::from_le_bytes(word)
        });
        let head = Self { token: u64::from_le_bytes(*token), from: Peer(from), number, taken };
        (!body.is_empty()).then_some((head, body))
    }
}

/// Says in an encoded packet what has been taken in meanwhile.
pub(super) fn set_taken(packet: &mut [u8], taken: u32) {
    packet[TAKEN_AT..HEAD_BYTES].copy_from_slice(&taken.to_le_bytes());
}

/// Body of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Body<'a> {
    Acknowledgement,
    /// A notice about regions, well-formed or not.
    Access(&'a [u8]),
    /// The frame and the first bytes of a long message.
    Long(&'a [u8]),
    /// More of them.
    Part(&'a [u8]),
    /// Bytes for a region, from an offset on.
    Put(Name, u64, &'a [u8]),
    /// A frame, well-formed or not, with the payload of a medium message.
    Frame(&'a [u8]),
}

impl<'a> Body<'a> {
    /// From bytes of a peer; none when they are malformed.
    pub(super) fn decode(bytes: &'a [u8]) -> Option<Self> {
        match *bytes {
            [ACKNOWLEDGEMENT] => Some(Self::Acknowledgement),
            [ACKNOWLEDGEMENT, ..] => None,
            [LONG, 0, 0, 0, ref rest @ ..] => Some(Self::Long(rest)),
            [PART, 0, 0, 0, ref rest @ ..] if !rest.is_empty() => Some(Self::Part(rest)),
            [PUT, 0, low, high, ref rest @ ..] => {
                let (owner, rest) = rest.split_first_chunk::<4>()?;
                let (offset, rest) = rest.split_first_chunk::<8>()?;
                let name = (Peer(u32::from_le_bytes(*owner)), RegionId(u16::from_le_bytes([low, high])));
                (!rest.is_empty()).then_some(Self::Put(name, u64::from_le_bytes(*offset), rest))
            }
            [LONG | PART | PUT, ..] => None,
            _ if AccessNotice::is(bytes) => Some(Self::Access(bytes)),
            _ => Some(Self::Frame(bytes)),
        }
    }
}

/// The body of an acknowledgement.
pub(super) fn acknowledgement(to: &mut Vec<u8>) {
    to.push(ACKNOWLEDGEMENT);
}

/// The beginning of the body of a long message.
pub(super) fn long(to: &mut Vec<u8>) {
    to.extend_from_slice(&[LONG, 0, 0, 0]);
}

/// The beginning of the body of a part of one.
pub(super) fn part(to: &mut Vec<u8>) {
    to.extend_from_slice(&[PART, 0, 0, 0]);
}

/// The beginning of the body of a put.
pub(super) fn put((owner, region): Name, offset: u64, to: &mut Vec<u8>) {
    let [low, high] = region.0.to_le_bytes();
    to.extend_from_slice(&[PUT, 0, low, high]);
    to.extend_from_slice(&owner.0.to_le_bytes());
    to.extend_from_slice(&offset.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(
            token: u64, from: u32, number: u32, taken: u32, later: u32, region: u16, owner: u32, offset: u64,
            bytes in prop::collection::vec(any::<u8>(), 1..100),
        ) {
            let head = Head { token, from: Peer(from), number, taken };
            let name = (Peer(owner), RegionId(region));
            type Begin<'a> = &'a dyn Fn(&mut Vec<u8>);
            let all: [(Begin<'_>, Body<'_>); 4] = [
                (&|to| put(name, offset, to), Body::Put(name, offset, &bytes)),
                (&long, Body::Long(&bytes)),
                (&part, Body::Part(&bytes)),
                (&|to| to.push(1), Body::Frame(&[])),
            ];
            for (begin, body) in all {
                let mut packet = Vec::new();
                head.encode(&mut packet);
                begin(&mut packet);
                packet.extend_from_slice(&bytes);
                set_taken(&mut packet, later);
                let (found, rest) = Head::split(&packet).unwrap();
                prop_assert_eq!(found, Head { taken: later, ..head });
                match body {
                    Body::Frame(_) => prop_assert_eq!(Body::decode(rest), Some(Body::Frame(rest))),
                    body => prop_assert_eq!(Body::decode(rest), Some(body)),
                }
            }
        }
    }

    #[test]
    fn what_is_too_short_or_has_more_is_refused() {
        let mut packet = Vec::new();
        Head { token: 1, from: Peer(0), number: 2, taken: 3 }.encode(&mut packet);
        assert_eq!(Head::split(&packet), None, "a head without a body");
        acknowledgement(&mut packet);
        assert_eq!(Body::decode(Head::split(&packet).unwrap().1), Some(Body::Acknowledgement));
        for malformed in [&[40, 0][..], &[41, 0, 0, 0], &[41, 1, 0, 0, 9], &[42, 0, 0], &[43, 0, 1, 2, 3]] {
            assert_eq!(Body::decode(malformed), None, "{malformed:?}");
        }
    }
}
