//! What travels in the SENDs of a connection. Pure. A packet is a frame of the tcp conduit ([`super::super::tcp::frame`]),
//! with the payload of a medium message behind it (that of a long one was written to its place before), or one of three
//! packets of this conduit about regions:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 1 | kind: 32 want, 33 grant, 34 refusal |
//! | 1 | 1 | of a grant: 1 if words may be updated, else 0; otherwise zero |
//! | 2 | 2 | region |
//! | 4 | 4 | owner |
//! | 8 | 8 | of a grant: address of the first byte at the granter |
//! | 16 | 8 | of a grant: length |
//! | 24 | 4 | of a grant: key |

#![forbid(unsafe_code)]

use crate::address::{Peer, RegionId};

/// Version of the packets and of how a connection is set up, exchanged before a queue pair is connected.
pub(super) const VERSION: u32 = 2;

const WANT: u8 = 32;
const GRANT: u8 = 33;
const REFUSAL: u8 = 34;
const BYTES: usize = 28;

/// How a region of the other side is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Access {
    /// Address of its first byte there.
    pub(super) address: u64,
    /// Length.
    pub(super) bytes: u64,
    /// What the other side's device asks for.
    pub(super) key: u32,
    /// Whether words may be updated atomically.
    pub(super) atomics: bool,
}

/// A region, by its owner and number.
pub(super) type Name = (Peer, RegionId);

/// A packet about regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Control {
    /// Asks for access.
    Want(Name),
    /// Gives it.
    Grant(Name, Access),
    /// There is no such region here.
    Refusal(Name),
}

impl Control {
    /// The bytes.
    pub(super) fn encode(self) -> [u8; BYTES] {
        let (kind, (owner, region), access) = match self {
            Self::Want(name) => (WANT, name, None),
            Self::Grant(name, access) => (GRANT, name, Some(access)),
            Self::Refusal(name) => (REFUSAL, name, None),
        };
        let mut bytes = [0; BYTES];
        bytes[0] = kind;
        bytes[2..4].copy_from_slice(&region.0.to_le_bytes());
        bytes[4..8].copy_from_slice(&owner.0.to_le_bytes());
        if let Some(access) = access {
            bytes[1] = access.atomics.into();
            bytes[8..16].copy_from_slice(&access.address.to_le_bytes());
            bytes[16..24].copy_from_slice(&access.bytes.to_le_bytes());
            bytes[24..28].copy_from_slice(&access.key.to_le_bytes());
        }
        bytes
    }

    /// Whether a packet is one of these.
    pub(super) fn is(packet: &[u8]) -> bool {
        matches!(packet.first(), Some(&(WANT..=REFUSAL)))
    }

    /// From a packet; none when it is malformed.
    pub(super) fn decode(packet: &[u8]) -> Option<Self> {
        let bytes: &[u8; BYTES] = packet.try_into().ok()?;
        let u64_at = |at: usize| bytes[at..at + 8].try_into().map_or(0, u64::from_le_bytes);
        let u32_at = |at: usize| bytes[at..at + 4].try_into().map_or(0, u32::from_le_bytes);
        let name = (Peer(u32_at(4)), RegionId(u16::from_le_bytes([bytes[2], bytes[3]])));
        let access =
            Access { address: u64_at(8), bytes: u64_at(16), key: u32_at(24), atomics: bytes[1] == 1 };
        let none = bytes[8..].iter().all(|&byte| byte == 0);
        match (bytes[0], bytes[1], none) {
            (WANT, 0, true) => Some(Self::Want(name)),
            (GRANT, 0 | 1, _) => Some(Self::Grant(name, access)),
            (REFUSAL, 0, true) => Some(Self::Refusal(name)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(
            owner: u32, region: u16, address: u64, bytes in 1u64.., key: u32, atomics: bool, kind in 0..3,
        ) {
            let name = (Peer(owner), RegionId(region));
            let control = match kind {
                0 => Control::Want(name),
                1 => Control::Grant(name, Access { address, bytes, key, atomics }),
                _ => Control::Refusal(name),
            };
            let packet = control.encode();
            prop_assert!(Control::is(&packet));
            prop_assert_eq!(Control::decode(&packet), Some(control));
            prop_assert_eq!(Control::decode(&packet[1..]), None);
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(packet in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = Control::decode(&packet);
        }
    }

    /// The kinds of the two formats do not meet.
    #[test]
    fn no_packet_is_a_frame_too() {
        let packet = Control::Want((Peer(1), RegionId(2))).encode();
        assert!(crate::conduit::tcp::frame::decode(&packet).is_err());
    }
}
