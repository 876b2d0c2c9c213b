//! Access to each other's registered regions: one side requests access to a region, by name, and is granted
//! it or told that there is no such region. Pure: the notices, and a side's view of the other one's regions.
//! Sending, and the meaning of a key to a device, are the conduit's.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 1 | kind: 32 want, 33 grant, 34 refusal (no [`frame`](crate::conduit::wire::frame) begins so) |
//! | 1 | 1 | of a grant: 1 if words may be updated, else 0; otherwise zero |
//! | 2 | 2 | region |
//! | 4 | 4 | owner |
//! | 8 | 8 | of a grant: address of the first byte at the granter |
//! | 16 | 8 | of a grant: length |
//! | 24 | 8 | of a grant: key |

use super::Name;
use crate::address::{Peer, RegionId};
use crate::error::{Result, RmaError};

const WANT: u8 = 32;
const GRANT: u8 = 33;
const REFUSAL: u8 = 34;

/// Address and key of a region of the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::conduit) struct Access {
    /// Address of its first byte there, as the other side's device counts: not all of them begin at 0.
    pub(in crate::conduit) address: u64,
    /// Length.
    pub(in crate::conduit) bytes: u64,
    /// Key for the other side's device; as wide as any device's.
    pub(in crate::conduit) key: u64,
    /// True if words may be updated atomically.
    pub(in crate::conduit) atomics: bool,
}

impl Access {
    /// Returns the other side's address of bytes of the region.
    ///
    /// # Errors
    /// [`RmaError::OutOfRange`] when they do not lie in it.
    pub(in crate::conduit) fn reach(&self, (owner, region): Name, offset: u64, bytes: usize) -> Result<u64> {
        let limit = self.bytes;
        if offset.checked_add(bytes as u64).is_none_or(|end| end > limit) {
            return Err(RmaError::OutOfRange { owner, region, offset, bytes: bytes as u64, limit });
        }
        Ok(self.address.wrapping_add(offset))
    }
}

/// Notice about regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::conduit) enum AccessNotice {
    /// Asks for access.
    Want(Name),
    /// Gives it.
    Grant(Name, Access),
    /// There is no such region here.
    Refusal(Name),
}

impl AccessNotice {
    /// Bytes of each.
    pub(in crate::conduit) const BYTES: usize = 32;

    /// The bytes.
    pub(in crate::conduit) fn encode(self) -> [u8; Self::BYTES] {
        let (kind, (owner, region), access) = match self {
            Self::Want(name) => (WANT, name, None),
            Self::Grant(name, access) => (GRANT, name, Some(access)),
            Self::Refusal(name) => (REFUSAL, name, None),
        };
        let mut bytes = [0; Self::BYTES];
        bytes[0] = kind;
        bytes[2..4].copy_from_slice(&region.0.to_le_bytes());
        bytes[4..8].copy_from_slice(&owner.0.to_le_bytes());
        if let Some(access) = access {
            bytes[1] = access.atomics.into();
            bytes[8..16].copy_from_slice(&access.address.to_le_bytes());
            bytes[16..24].copy_from_slice(&access.bytes.to_le_bytes());
            bytes[24..].copy_from_slice(&access.key.to_le_bytes());
        }
        bytes
    }

    /// Returns true if a packet is one of these, well-formed or not.
    pub(in crate::conduit) fn is(packet: &[u8]) -> bool {
        matches!(packet.first(), Some(&(WANT..=REFUSAL)))
    }

    /// From a packet of a peer; none when it is malformed.
    pub(in crate::conduit) fn decode(packet: &[u8]) -> Option<Self> {
        let (head, rest) = packet.split_first_chunk::<8>()?;
        let rest: &[u8; Self::BYTES - 8] = rest.try_into().ok()?;
        let [kind, atomics, low, high, owner @ ..] = *head;
        let name = (Peer(u32::from_le_bytes(owner)), RegionId(u16::from_le_bytes([low, high])));
        let (words, _) = rest.as_chunks::<8>();
        let [address, bytes, key] = [0, 1, 2].map(|at| u64::from_le_bytes(words[at]));
        let nothing_more = atomics == 0 && (address, bytes, key) == (0, 0, 0);
        match kind {
            WANT if nothing_more => Some(Self::Want(name)),
            GRANT if atomics <= 1 => {
                Some(Self::Grant(name, Access { address, bytes, key, atomics: atomics == 1 }))
            }
            REFUSAL if nothing_more => Some(Self::Refusal(name)),
            _ => None,
        }
    }
}

/// One side's view of the other one's regions.
#[derive(Debug, Default)]
pub(in crate::conduit) struct Granted(Vec<(Name, State)>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Asked,
    Granted(Access),
    Refused,
}

/// State of a region of the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::conduit) enum AccessState {
    /// It may reach it.
    Granted(Access),
    /// It has asked.
    Asked,
    /// It is to ask, by an [`AccessNotice::Want`], and to call [`Granted::asked`] then.
    Unknown,
}

impl Granted {
    /// Returns the state of a region.
    ///
    /// # Errors
    /// [`RmaError::NoSuchRegion`] once after each refusal, because the region may come into being later.
    pub(in crate::conduit) fn find(&mut self, name: Name) -> Result<AccessState> {
        let Some(index) = self.0.iter().position(|(known, _)| *known == name) else {
            return Ok(AccessState::Unknown);
        };
        match self.0[index].1 {
            State::Granted(access) => Ok(AccessState::Granted(access)),
            State::Asked => Ok(AccessState::Asked),
            State::Refused => {
                self.0.swap_remove(index);
                Err(RmaError::NoSuchRegion { owner: name.0, region: name.1 })
            }
        }
    }

    /// The question has been sent.
    pub(in crate::conduit) fn asked(&mut self, name: Name) {
        self.0.push((name, State::Asked));
    }

    /// An answer of the other side: access, or none. False when it was not asked.
    #[must_use]
    pub(in crate::conduit) fn answered(&mut self, name: Name, access: Option<Access>) -> bool {
        let asked = self.0.iter_mut().find(|known| **known == (name, State::Asked));
        asked.map(|(_, state)| *state = access.map_or(State::Refused, State::Granted)).is_some()
    }

    /// Invalidates the grant of this region. An answer that is still to come will find that it was asked for.
    pub(in crate::conduit) fn forget(&mut self, name: Name) {
        self.0.retain(|(known, state)| *known != name || *state == State::Asked);
    }

    /// Pretends that other access was granted.
    #[cfg(test)]
    pub(in crate::conduit) fn forge(&mut self, name: Name, forge: fn(Access) -> Access) {
        let known = self.0.iter_mut().find(|(known, _)| *known == name);
        let Some((_, State::Granted(access))) = known else { panic!("no access to {name:?} was granted") };
        *access = forge(*access);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(
            owner: u32, region: u16, address: u64, bytes in 1u64.., key: u64, atomics: bool, kind in 0..3,
        ) {
            let name = (Peer(owner), RegionId(region));
            let notice = match kind {
                0 => AccessNotice::Want(name),
                1 => AccessNotice::Grant(name, Access { address, bytes, key, atomics }),
                _ => AccessNotice::Refusal(name),
            };
            let packet = notice.encode();
            prop_assert!(AccessNotice::is(&packet));
            prop_assert_eq!(AccessNotice::decode(&packet), Some(notice));
            prop_assert_eq!(AccessNotice::decode(&packet[1..]), None);
        }

        #[test]
        fn any_bytes_are_one_notice_or_none(packet in prop::collection::vec(any::<u8>(), 0..40), kind in 31u8..36) {
            let packets = [packet.clone(), [&[kind, 1][..], &packet].concat()];
            for packet in packets {
                if let Some(notice) = AccessNotice::decode(&packet) {
                    prop_assert_eq!(&notice.encode()[..], &packet);
                }
            }
        }
    }

    /// The kinds of the two formats do not meet.
    #[test]
    fn no_notice_is_a_frame_too() {
        let packet = AccessNotice::Want((Peer(1), RegionId(2))).encode();
        assert!(crate::conduit::wire::frame::decode(&packet).is_err());
    }

    #[test]
    fn only_what_lies_in_the_region_is_reached() {
        let access = Access { address: u64::MAX - 9, bytes: 100, key: 1, atomics: false };
        let name = (Peer(1), RegionId(2));
        assert_eq!(access.reach(name, 90, 10).ok(), Some(80), "devices may count from anywhere");
        assert_eq!(access.reach(name, 100, 0).ok(), Some(90));
        for (offset, bytes) in [(91, 10), (101, 0), (u64::MAX, 1), (0, 101)] {
            let refused = access.reach(name, offset, bytes).unwrap_err();
            assert!(matches!(refused, RmaError::OutOfRange { limit: 100, .. }), "{refused}");
        }
    }

    /// Goal: access is requested once, is had only when it was granted, a refusal may be followed by another
    /// request, and an unrequested answer is recognised, even if the region was forgotten meanwhile.
    #[test]
    fn access_is_asked_for_and_answered_once() {
        let name = (Peer(1), RegionId(2));
        let access = Access { address: 7, bytes: 8, key: 9, atomics: true };
        let mut known = Granted::default();
        assert_eq!(known.find(name).unwrap(), AccessState::Unknown);
        assert!(!known.answered(name, Some(access)), "nobody has asked");
        known.asked(name);
        assert_eq!(known.find(name).unwrap(), AccessState::Asked);
        known.forget(name);
        assert!(known.answered(name, None) && !known.answered(name, None));
        assert!(matches!(known.find(name), Err(RmaError::NoSuchRegion { .. })));
        assert_eq!(known.find(name).unwrap(), AccessState::Unknown, "it may have come into being");
        known.asked(name);
        assert!(known.answered(name, Some(access)) && !known.answered(name, Some(access)));
        known.forget((Peer(1), RegionId(3)));
        assert_eq!(known.find(name).unwrap(), AccessState::Granted(access));
        known.forget(name);
        assert_eq!(known.find(name).unwrap(), AccessState::Unknown, "it was given up");
    }
}
