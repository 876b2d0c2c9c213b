//! Any bytes as messages of teams' members. See [`crate::fuzzing`].

#![forbid(unsafe_code)]

use super::algorithm::{self, Meeting, Part};
use super::arrival::Landing;
use super::call::{Call, Kind};
use super::operation::Exchange;
use super::{Collectives, sequence};
use crate::address::Layout;
use crate::conduit::sim::{SimNetwork, SimOptions};
use crate::endpoint::{BarrierName, Endpoint, EndpointSpec, Token};
use crate::error::RmaError;
use crate::fuzzing::words;
use crate::message::{Arrived, Direction};
use crate::{Peer, Rank};
use std::sync::Arc;

/// Ranks of the job, each on a node of its own; this one is the first.
const RANKS: u32 = 3;

/// Words of a message.
const WORDS: usize = 8;

/// Messages: each a byte for the sender, one for the number of payload bytes (none: it is short), its words,
/// and these bytes. They come to a rank that is in a broadcast, a reduction and a barrier of the team of all,
/// and then calls more. It survives them; each leads to nothing, progress, or an error that names the sender.
pub fn collective_messages(bytes: &[u8]) {
    let engine = engine();
    let exchanges = begin(&engine);
    let mut rest = bytes;
    while let Some(((&[from, carried], words_of), after)) =
        rest.split_first_chunk::<2>().and_then(|(head, rest)| {
            let (words, rest) = rest.split_at_checked(WORDS * 4)?;
            Some(((head, words), rest))
        })
    {
        let (payload, after) = after.split_at(after.len().min(carried.into()));
        rest = after;
        let from = Peer(u32::from(from) % RANKS);
        let arrived = if payload.is_empty() { Arrived::Short } else { Arrived::Medium(payload.into()) };
        let token = Token::new(&engine.endpoint, from, Direction::Request);
        engine.on_message(&token, &words(words_of), arrived);
        engine.progress();
        if let Err(error) = engine.endpoint.check_failure() {
            match error {
                RmaError::Protocol { peer: Some(peer), .. } => assert!(peer.0 < RANKS),
                other => panic!("{other}"),
            }
            return;
        }
    }
    let Ok(world) = engine.world() else { panic!("the team of all") };
    match world.exchange(sequence::RANKS, Call::of_all(Kind::Scan)) {
        Ok(_) | Err(RmaError::Collective { member: Rank(0..RANKS), .. }) => {}
        Err(other) => panic!("{other}"),
    }
    for exchange in exchanges {
        let _ = exchange.operation().outcome();
    }
}

/// A rank whose own messages are discarded.
pub(super) fn engine() -> Arc<Collectives> {
    engine_with(|_| {})
}

/// The same, after something was done with its endpoint.
fn engine_with(prepare: impl FnOnce(&Endpoint)) -> Arc<Collectives> {
    let layout = Layout::blocks(RANKS, RANKS);
    let options = SimOptions { requests_max: 1 << 16, ..SimOptions::default() };
    let network = SimNetwork::new(1, layout.peers(), options).expect("a network");
    let me = layout.peer_of_rank(Rank(0));
    let spec = EndpointSpec { layout, me, domain: None, network: Some(network.conduit(me)) };
    let endpoint = Endpoint::new(spec).expect("an endpoint");
    let engine = Collectives::register(&endpoint).expect("it is not open");
    prepare(&endpoint);
    endpoint.open();
    engine
}

/// Begins the rank's operations: in turn it takes a string, gives one on request, and combines two; and a
/// barrier.
fn begin(engine: &Arc<Collectives>) -> Vec<Exchange> {
    let world = engine.world().expect("the team of all");
    let called = |call| world.exchange(sequence::RANKS, call).expect("nothing is spoilt");
    let taken = called(Call::with_root(Kind::Broadcast, 1));
    let part = Part::Take(Landing::Own(Vec::new()), 4);
    let run = taken.clone();
    taken.begin(Box::pin(async move { drop(algorithm::broadcast(&run, 1, part).await) }), false);
    let given = called(Call::with_root(Kind::Broadcast, 0));
    let run = given.clone();
    let long = Part::Give(vec![7; 20_000].into());
    given.begin(Box::pin(async move { drop(algorithm::broadcast(&run, 0, long).await) }), false);
    let reduced = called(Call::with_root(Kind::Reduce, 0));
    let run = reduced.clone();
    let both = |left: &[u8], right: &[u8]| [left, right].concat()[..2].to_vec();
    reduced.begin(Box::pin(async move { drop(algorithm::reduce(&run, 0, vec![1; 2], both).await) }), false);
    let met = called(Call::of_all(Kind::Barrier));
    let run = met.clone();
    met.begin(Box::pin(async move { algorithm::meet(&run, Meeting::Before).await }), false);
    world.barrier_notify(BarrierName::Named(1)).expect("it is the first");
    vec![taken, given, reduced, met]
}

#[cfg(test)]
mod tests {
    use super::super::post::{Key, PostKind};
    use super::*;
    use crate::address::NodeId;
    use vgas_testing::replay;

    fn message(from: u8, words: [u32; WORDS], payload: &[u8]) -> Vec<u8> {
        let words: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        [&[from, payload.len() as u8], words.as_slice(), payload].concat()
    }

    fn of(number: u32, call: Call, tag: u32, what: PostKind, about: u64) -> [u32; WORDS] {
        Key { team: 0, sequence: sequence::RANKS, number }.words(call, tag, what, about)
    }

    /// Goal: when a node is lost, operations in flight end with an error that says so and blames no other
    /// peer; later ones do not begin; and the endpoint continues.
    #[test]
    fn a_loss_ends_what_is_in_flight() {
        let engine = engine_with(|endpoint| endpoint.survive(|_| {}).unwrap());
        let exchanges = begin(&engine);
        engine.endpoint.lose_node(NodeId(RANKS - 1));
        engine.progress();
        let is_lost =
            |ended: Option<crate::Result<()>>| matches!(ended, Some(Err(RmaError::PeerLost { .. })));
        for (at, exchange) in exchanges.into_iter().enumerate() {
            let ended = exchange.operation().outcome();
            assert!(is_lost(ended), "operation {at}");
        }
        let world = engine.world().unwrap();
        assert!(is_lost(world.barrier_try().err().map(Err)));
        assert!(is_lost(world.exchange(sequence::RANKS, Call::of_all(Kind::Scan)).err().map(Err)));
        engine.endpoint.check_failure().unwrap();
    }

    #[test]
    fn any_bytes_are_survived_by_collectives() {
        const DATA: u32 = 0x300;
        const UP: u32 = 0x400;
        let first = Call::with_root(Kind::Broadcast, 1);
        let second = Call::with_root(Kind::Broadcast, 0);
        let third = Call::with_root(Kind::Reduce, 0);
        let whole = message(1, of(0, first, DATA, PostKind::Whole, 4), b"four");
        let offered = message(1, of(0, first, DATA, PostKind::Offer, 4), &[]);
        let pieces =
            [b"fo", b"ur"].map(|piece| message(1, of(0, first, DATA, PostKind::Piece, 0), piece)).concat();
        let ask = |place| message(2, of(1, second, DATA, PostKind::Ask, place), &[]);
        let sums = [(1, 0), (2, 1)]
            .map(|(from, round)| message(from, of(2, third, UP + round, PostKind::Whole, 2), &[1, 2]));
        let barrier = |round: u8, from| {
            let word = BarrierName::Named(1).encode(1);
            let words =
                Key::of_team(0).words(Call::of_all(Kind::Barrier), round.into(), PostKind::Barrier, word);
            message(from, words, &[])
        };
        let spoilt = Key::of_team(0).words(first, 2, PostKind::Spoilt, 0);
        replay(
            "collective_messages",
            collective_messages,
            &[
                ("whole", whole.clone()),
                ("pieces", [offered.clone(), pieces].concat()),
                ("asked", ask(0)),
                ("asked-for-the-end-of-memory", ask(u64::MAX)),
                ("sums", sums.concat()),
                ("barrier", [barrier(0, 2), barrier(1, 1)].concat()),
                ("another-length", message(1, of(0, first, DATA, PostKind::Whole, 3), b"abc")),
                ("another-root", message(1, of(0, second, DATA, PostKind::Whole, 4), b"four")),
                ("another-kind", message(1, of(3, third, DATA, PostKind::Offer, 4), &[])),
                ("twice", [whole.clone(), whole].concat()),
                ("credit", message(1, of(0, first, 0, PostKind::Credit, 100), &[])),
                ("spoilt", [message(1, spoilt, b"why"), offered].concat()),
            ],
        );
    }
}
