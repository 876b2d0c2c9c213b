//! Parameters that queue pairs exchange before they are connected, as
//! [`Notices`](crate::conduit::oneside::Notices): two each way, and a third before them if librdmacm connects
//! (see `cm`):
//!
//! ```text
//! door:  version, address, port, token
//! place: version, number of the queue pair, first packet, MTU, LID, GID, READs in flight that it can ask for and answer
//!                                                                   (the other side connects, then answers with its own)
//! ready: my queue pair receives                                             (the other side may send)
//! failed: there will be no connection
//! ```

#![forbid(unsafe_code)]

use super::cm::{Door, Token};
use super::packet::VERSION;
use super::verbs::{QueuePairAddress, Reads};
use crate::conduit::oneside::{self, bytes_of, words_of};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

const PLACE: u8 = 1;
const READY: u8 = 2;
const DOOR: u8 = 3;
const FAILED: u8 = 4;

/// Words of an address.
const ADDRESS_WORDS: usize = 4;

/// Notice of one side to the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Notice {
    /// Place of its queue pair.
    Place(QueuePairAddress),
    /// That it receives.
    Ready,
    /// Address for connecting through librdmacm.
    Door(Door),
    /// That it could not connect.
    Failed,
}

impl oneside::Notice for Notice {
    fn encode(&self) -> (u8, Vec<u32>) {
        match self {
            Notice::Place(place) => {
                let mut words =
                    vec![VERSION, place.number, place.first_packet, place.mtu as u32, u32::from(place.lid)];
                words.extend(words_of(&place.gid));
                words.push(u32::from(place.reads.asked) | u32::from(place.reads.answered) << 8);
                (PLACE, words)
            }
            Notice::Ready => (READY, vec![VERSION]),
            Notice::Door(door) => {
                let address = match door.address.ip() {
                    IpAddr::V4(address) => address.to_ipv6_mapped(),
                    IpAddr::V6(address) => address,
                };
                let mut words = vec![VERSION, u32::from(door.address.port())];
                words.extend(words_of(&address.octets()));
                words.extend(words_of(door.token.as_bytes()));
                (DOOR, words)
            }
            Notice::Failed => (FAILED, vec![VERSION]),
        }
    }

    fn decode(handler: u8, words: &[u32]) -> Result<Self, String> {
        if words.first() != Some(&VERSION) {
            return Err(format!("version {:?} of the ibv conduit, this is {VERSION}", words.first()));
        }
        match (handler, words) {
            (PLACE, &[_, number, first_packet, mtu @ 1..=5, lid, ref gid @ .., reads]) if lid <= 0xFFFF => {
                let Some(gid) = bytes_of(gid) else { return Err(format!("a GID of {} words", gid.len())) };
                // Numbers of queue pairs and packets have 24 bits.
                if number >> 24 != 0 || first_packet >> 24 != 0 {
                    return Err(format!("a queue pair {number} that starts with packet {first_packet}"));
                }
                let [asked, answered, 0, 0] = reads.to_le_bytes() else {
                    return Err(format!("{reads} READs"));
                };
                let (mtu, lid, reads) = (mtu as i32, lid as u16, Reads { asked, answered });
                Ok(Notice::Place(QueuePairAddress { number, first_packet, mtu, lid, gid, reads }))
            }
            (READY, [_]) => Ok(Notice::Ready),
            (DOOR, &[_, port @ 1..=0xFFFF, ref words @ ..]) => {
                let halves = words.split_at_checked(ADDRESS_WORDS);
                let halves = halves.and_then(|(address, token)| Some((bytes_of(address)?, bytes_of(token)?)));
                let Some((address, token)) = halves else {
                    return Err(format!("a door of {} words", words.len()));
                };
                let address: [u8; 16] = address;
                let address = SocketAddr::new(Ipv6Addr::from(address).to_canonical(), port as u16);
                Ok(Notice::Door(Door { address, token: Token::from_bytes(token) }))
            }
            (FAILED, [_]) => Ok(Notice::Failed),
            _ => Err(format!("a notice {handler} with the words {words:?}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conduit::oneside::Notice as _;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(
            number in 0u32..1 << 24, first_packet in 0u32..1 << 24, mtu in 1i32..=5, lid: u16, gid: [u8; 16],
            asked: u8, answered: u8, port in 1u16.., token: [u8; Token::BYTES], short: bool,
        ) {
            let reads = Reads { asked, answered };
            let address = if short { IpAddr::from([10, 9, 0, gid[0]]) } else { IpAddr::from(gid).to_canonical() };
            let door = Door { address: SocketAddr::new(address, port), token: Token::from_bytes(token) };
            let place = QueuePairAddress { number, first_packet, mtu, lid, gid, reads };
            for notice in [Notice::Place(place), Notice::Ready, Notice::Door(door), Notice::Failed] {
                let (handler, words) = notice.encode();
                prop_assert_eq!(Notice::decode(handler, &words), Ok(notice));
                prop_assert!(Notice::decode(handler, &words[..words.len() - 1]).is_err());
                prop_assert!(Notice::decode(5, &words).is_err());
            }
        }
    }

    #[test]
    fn another_version_is_refused() {
        assert!(Notice::decode(READY, &[VERSION]).is_ok());
        assert!(Notice::decode(READY, &[VERSION + 1]).unwrap_err().contains("version"));
    }
}
