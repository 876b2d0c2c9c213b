//! Any bytes as frames, and as steps of the handshake. See [`crate::fuzzing`].

use super::frame::{self, Body, HEAD_BYTES_MAX};
use super::handshake::{self, CHALLENGE_BYTES, HELLO_BYTES, Session, VERDICT_BYTES};
use crate::address::Peer;
use crate::key::JobKey;

/// The head of a frame: a decoded one is spelled in one way only, and needs each of its bytes.
pub fn tcp_frame(bytes: &[u8]) {
    let Ok(Some(found)) = frame::decode(bytes) else { return };
    assert!(found.head_bytes <= bytes.len());
    let mut head = [0; HEAD_BYTES_MAX];
    let length = match found.body {
        Body::Message(said) => frame::encode_head(
            said.direction,
            said.handler,
            said.arguments(),
            (said.kind, said.payload_bytes),
            found.credits,
            &mut head,
        ),
        Body::Credits => put(&mut head, &frame::encode_credits(found.credits)),
        Body::Goodbye => put(&mut head, &frame::encode_goodbye(found.credits)),
    };
    assert_eq!(head[..length], bytes[..found.head_bytes], "{found:?}");
    assert_eq!(frame::decode(&head[..length]), Ok(Some(found)));
    assert_eq!(frame::decode(&bytes[..found.head_bytes - 1]), Ok(None), "{found:?}");
}

fn put(head: &mut [u8], bytes: &[u8]) -> usize {
    head[..bytes.len()].copy_from_slice(bytes);
    bytes.len()
}

const ME: Peer = Peer(2);
const PEERS: u32 = 4;

fn key() -> JobKey {
    JobKey::from_bytes([1; 32])
}

fn session() -> Session {
    Session { from: Peer(1), to: ME, opener_nonce: [3; 32], acceptor_nonce: [4; 32] }
}

/// The first byte selects the step of the others; each is as long as that step, because nothing else reaches
/// these decoders.
pub fn tcp_handshake(bytes: &[u8]) {
    let Some((step, rest)) = bytes.split_first() else { return };
    match step {
        0 => hello(rest),
        1 => challenge(rest),
        _ => verdict(rest),
    }
}

fn hello(bytes: &[u8]) {
    let Some(step) = bytes.first_chunk::<HELLO_BYTES>() else { return };
    let job = key().job_id();
    if let Ok((from, nonce)) = handshake::read_hello(job, ME, PEERS, step) {
        assert!(from != ME && from.0 < PEERS);
        assert_eq!(handshake::hello(job, from, ME, &nonce), *step);
    }
}

fn challenge(bytes: &[u8]) {
    let Some(step) = bytes.first_chunk::<CHALLENGE_BYTES>() else { return };
    if let Ok(nonce) = handshake::read_challenge(step) {
        assert_eq!(handshake::challenge(&nonce), *step);
    }
}

fn verdict(bytes: &[u8]) {
    let Some(step) = bytes.first_chunk::<VERDICT_BYTES>() else { return };
    if let Ok(verdict) = session().read_verdict(&key(), step) {
        assert_eq!(session().verdict(&key(), verdict), *step);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::RegionId;
    use crate::conduit::wire::frame::Kind;
    use crate::conduit::wire::handshake::Verdict;
    use crate::message::{Destination, Direction};
    use vgas_testing::replay;

    fn message(direction: Direction, arguments: &[u32], kind: Kind, payload_bytes: u32) -> Vec<u8> {
        let mut head = [0; HEAD_BYTES_MAX];
        let length = frame::encode_head(direction, 130, arguments, (kind, payload_bytes), 3, &mut head);
        head[..length].to_vec()
    }

    #[test]
    fn any_bytes_are_a_frame_or_refused() {
        let region = Destination::Region { region: RegionId::SEGMENT, owner: Peer(3), offset: 1 << 40 };
        let operation = Destination::Operation { id: 7, offset: 4096 };
        let most: Vec<u32> = (0..16).collect();
        replay(
            "tcp_frame",
            tcp_frame,
            &[
                ("short", message(Direction::Request, &[1, 2], Kind::Short, 0)),
                ("short-with-most-arguments", message(Direction::Request, &most, Kind::Short, 0)),
                ("medium", message(Direction::Reply, &[1], Kind::Medium, 100)),
                ("long-to-a-region", message(Direction::Request, &[], Kind::Long(region), 1 << 22)),
                ("long-to-an-operation", message(Direction::Reply, &[9], Kind::Long(operation), 4096)),
                ("credits", frame::encode_credits(12).to_vec()),
                ("goodbye", frame::encode_goodbye(0).to_vec()),
            ],
        );
    }

    #[test]
    fn any_bytes_are_a_step_of_the_handshake_or_refused() {
        let step = |kind: u8, bytes: &[u8]| [&[kind], bytes].concat();
        replay(
            "tcp_handshake",
            tcp_handshake,
            &[
                ("hello", step(0, &handshake::hello(key().job_id(), Peer(1), ME, &[9; 32]))),
                ("challenge", step(1, &handshake::challenge(&[4; 32]))),
                ("welcome", step(2, &session().verdict(&key(), Verdict::Welcome))),
                ("redundant", step(2, &session().verdict(&key(), Verdict::Redundant))),
            ],
        );
    }
}
