//! Any bytes as packets, immediate data and notices. See [`crate::fuzzing`].

use super::notice::Notice;
use super::packet::{self, Number};
use crate::address::Peer;
use crate::conduit::oneside::{AccessNotice, Notice as _};
use crate::conduit::wire::frame;
use crate::conduit::wire::fuzzing::tcp_frame;
use crate::fuzzing::words;

/// A packet with its number, and its first eight bytes as those of a WRITE: immediate data and a length.
pub fn ibv_packet(bytes: &[u8]) {
    if let Some((_, packet)) = Number::split(bytes) {
        if AccessNotice::is(packet) {
            if let Some(notice) = AccessNotice::decode(packet) {
                assert_eq!(notice.encode(), packet, "{notice:?}");
            }
        } else {
            tcp_frame(packet);
        }
    }
    if let &[immediate, length, ..] = words(bytes).as_slice() {
        let (head, head_bytes) = packet::expand(immediate, length, Peer(7));
        let fits = length as usize <= frame::LONG_BYTES_MAX;
        assert_eq!(frame::decode(&head[..head_bytes]).is_ok(), fits, "{immediate:#x} {length}");
        let _ = Number::of_immediate(immediate).order(length);
    }
}

/// Decodes the notices that two sides exchange before they are connected: the handler's index in one byte,
/// and the arguments.
pub fn ibv_notice(bytes: &[u8]) {
    let Some((&handler, rest)) = bytes.split_first() else { return };
    let Ok(notice) = Notice::decode(handler, &words(rest)) else { return };
    let (handler, again) = notice.encode();
    assert_eq!(Notice::decode(handler, &again), Ok(notice));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::RegionId;
    use crate::conduit::ibv::cm::{Door, Token};
    use crate::conduit::ibv::verbs::{QueuePairAddress, Reads};
    use crate::conduit::oneside::Access;
    use vgas_testing::replay;

    #[test]
    fn any_bytes_are_a_packet_or_refused() {
        let name = (Peer(3), RegionId::SEGMENT);
        let access = Access { address: 1 << 40, bytes: 1 << 30, key: 99, atomics: true };
        let packet = |notice: AccessNotice| [&[7, 0, 0, 0][..], &notice.encode()].concat();
        let frame = [&[8, 0, 0, 0][..], &frame::encode_credits(3)].concat();
        let immediate = [packet::complete(5 | 6 << 21, 1, 3), 4096].map(u32::to_le_bytes).concat();
        replay(
            "ibv_packet",
            ibv_packet,
            &[
                ("want", packet(AccessNotice::Want(name))),
                ("grant", packet(AccessNotice::Grant(name, access))),
                ("refusal", packet(AccessNotice::Refusal(name))),
                ("frame", frame),
                ("page", immediate),
            ],
        );
    }

    #[test]
    fn any_bytes_are_a_notice_or_refused() {
        let reads = Reads { asked: 16, answered: 8 };
        let place =
            QueuePairAddress { number: 77, first_packet: 0x12_3456, mtu: 3, lid: 9, gid: [5; 16], reads };
        let door = |address: &str| {
            let address = address.parse().expect("an address");
            Notice::Door(Door { address, token: Token::from_bytes([6; Token::BYTES]) })
        };
        let said = |notice: Notice| {
            let (handler, words) = notice.encode();
            let words: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
            [&[handler], words.as_slice()].concat()
        };
        replay(
            "ibv_notice",
            ibv_notice,
            &[
                ("place", said(Notice::Place(place))),
                ("ready", said(Notice::Ready)),
                ("door", said(door("10.0.0.7:4000"))),
                ("door-of-version-6", said(door("[fe80::7]:4000"))),
                ("failed", said(Notice::Failed)),
            ],
        );
    }
}
