//! Any bytes as packets and notices. See [`crate::fuzzing`].

use super::notice::{Hello, Notice};
use super::packet::{self, Body, Head};
use crate::conduit::oneside::{AccessNotice, Notice as _};
use crate::conduit::wire::fuzzing::tcp_frame;
use crate::fuzzing::words;

/// A packet.
pub fn ofi_packet(bytes: &[u8]) {
    let Some((head, body)) = Head::split(bytes) else { return };
    let mut again = Vec::new();
    head.encode(&mut again);
    match Body::decode(body) {
        None => return,
        Some(Body::Acknowledgement) => packet::acknowledgement(&mut again),
        Some(Body::Access(notice)) => match AccessNotice::decode(notice) {
            Some(notice) => again.extend_from_slice(&notice.encode()),
            None => return,
        },
        Some(Body::Long(frame)) => {
            tcp_frame(frame);
            packet::long(&mut again);
            again.extend_from_slice(frame);
        }
        Some(Body::Part(payload)) => {
            packet::part(&mut again);
            again.extend_from_slice(payload);
        }
        Some(Body::Put(name, offset, payload)) => {
            packet::put(name, offset, &mut again);
            again.extend_from_slice(payload);
        }
        Some(Body::Frame(frame)) => {
            tcp_frame(frame);
            again.extend_from_slice(frame);
        }
    }
    assert_eq!(again, bytes);
}

/// Decodes the notices that two sides exchange before they can speak: the handler's index in one byte, and
/// the arguments. Or, after an index of zero, all bytes of a hello.
pub fn ofi_notice(bytes: &[u8]) {
    let Some((&handler, rest)) = bytes.split_first() else { return };
    if handler == 0 {
        let Some(hello) = Hello::decode(rest) else { return };
        let mut joined = Vec::new();
        for part in hello.parts() {
            let Notice::Hello { total, at, part } = part else { panic!("{part:?}") };
            Notice::join(&mut joined, total, at, &part).expect("the next part");
        }
        assert_eq!(joined, rest);
        return;
    }
    let Ok(notice) = Notice::decode(handler, &words(rest)) else { return };
    let (handler, again) = notice.encode();
    assert_eq!(Notice::decode(handler, &again), Ok(notice));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::{Peer, RegionId};
    use crate::conduit::oneside::Access;
    use crate::conduit::wire::frame::{self, HEAD_BYTES_MAX, Kind};
    use crate::message::{Destination, Direction};
    use vgas_testing::replay;

    #[test]
    fn any_bytes_are_a_packet_or_refused() {
        let name = (Peer(3), RegionId::SEGMENT);
        let packet = |body: &[u8]| {
            let mut bytes = Vec::new();
            Head { token: 77, from: Peer(1), number: 9, taken: 8 }.encode(&mut bytes);
            bytes.extend_from_slice(body);
            bytes
        };
        let of = |begin: &dyn Fn(&mut Vec<u8>), rest: &[u8]| {
            let mut body = Vec::new();
            begin(&mut body);
            body.extend_from_slice(rest);
            packet(&body)
        };
        let access = Access { address: 1 << 40, bytes: 1 << 30, key: 99, atomics: false };
        let destination = Destination::Region { region: RegionId::SEGMENT, owner: Peer(3), offset: 4096 };
        let mut head = [0; HEAD_BYTES_MAX];
        let long = (Kind::Long(destination), 100);
        let bytes = frame::encode_head(Direction::Request, 130, &[1, 2], long, 3, &mut head);
        replay(
            "ofi_packet",
            ofi_packet,
            &[
                ("acknowledgement", of(&packet::acknowledgement, &[])),
                ("want", packet(&AccessNotice::Want(name).encode())),
                ("grant", packet(&AccessNotice::Grant(name, access).encode())),
                ("long", of(&packet::long, &[&head[..bytes], &[5; 20]].concat())),
                ("part", of(&packet::part, &[6; 80])),
                ("put", of(&|to| packet::put(name, 1 << 33, to), &[7; 30])),
                ("goodbye", packet(&frame::encode_goodbye(2))),
            ],
        );
    }

    #[test]
    fn any_bytes_are_a_notice_or_refused() {
        let said = |notice: &Notice| {
            let (handler, words) = notice.encode();
            let words: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
            [&[handler], words.as_slice()].concat()
        };
        let hello = Hello { token: 5, provider: "tcp;ofi_rxm".into(), name: vec![9; 60] };
        let parts = hello.parts();
        let whole = [&[0][..], &5u64.to_le_bytes(), &[11], b"tcp;ofi_rxm", &[9; 60]].concat();
        replay(
            "ofi_notice",
            ofi_notice,
            &[
                ("ready", said(&Notice::Ready)),
                ("first-part", said(&parts[0])),
                ("last-part", said(&parts[1])),
                ("hello", whole),
            ],
        );
    }
}
