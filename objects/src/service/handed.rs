//! Forwarded readers, and messages of a hostile peer, each service by itself.

use super::Bytes;
use super::heap::{Answer, CopyAt, Freed, HeapService, Read, Request};
use proptest::prelude::*;
use vgas::service::Trial;
use vgas::{Layout, NodeId, Rank};

/// Two ranks a node.
fn layout() -> Layout {
    Layout::blocks(6, 3)
}

fn service(node: u32) -> Trial<HeapService> {
    Trial::new(HeapService::default(), layout(), NodeId(node), 4096)
}

const WORD: u64 = 0x7000_0000_0040;

/// Reads 12 bytes at 64 of rank 0, into a copy at 256 of the reader.
fn read(reader: u32) -> Read {
    let copy = Some(CopyAt { word: WORD, rank: reader, offset: 256 });
    Read { owner: 0, offset: 64, bytes: 12, served: Some(128), copy }
}

/// The copy that a rank has, with its label behind it.
fn copied(peer: &mut Trial<HeapService>, rank: Rank, word: u64, serial: u64) {
    let memory = peer.memory(rank);
    memory[256..268].copy_from_slice(b"twelve bytes");
    memory[272..280].copy_from_slice(&word.to_le_bytes());
    memory[280..288].copy_from_slice(&serial.to_le_bytes());
}

/// A home that knows that rank 2 has a copy, and whose bytes are not in memory.
fn cold_home() -> Trial<HeapService> {
    let mut home = service(0);
    home.memory(Rank(0))[64..76].copy_from_slice(b"twelve bytes");
    let first = home.call(Rank(2), &Request::Read(read(2)));
    home.finish();
    assert_eq!(home.answer(first), Some(Ok(Answer::Bytes(Bytes(b"twelve bytes".to_vec())))));
    home.is_cold = true;
    home
}

/// Goal: a home whose bytes are on NVMe forwards the next reader to the node of the last, which answers with
/// the copy; one whose bytes are in memory answers by itself, and so does one that knows no reader but the
/// requester.
#[test]
fn a_cold_home_hands_on() {
    let mut home = cold_home();
    let call = home.call(Rank(4), &Request::Read(read(4)));
    home.finish();
    let (node, request) = home.passed(call).unwrap();
    assert_eq!((node, &request), (NodeId(1), &Request::Handed(read(4), read(2).copy.unwrap())));
    let mut peer = service(1);
    copied(&mut peer, Rank(2), WORD, 5);
    let handed = peer.call(Rank(4), &request);
    peer.finish();
    assert_eq!(peer.answer(handed), Some(Ok(Answer::Bytes(Bytes(b"twelve bytes".to_vec())))));
    // Rank 4 is the last reader now, and asks again: rank 2 is known, too.
    let call = home.call(Rank(5), &Request::Read(read(5)));
    home.finish();
    assert_eq!(home.passed(call).unwrap().0, NodeId(1));
    home.is_cold = false;
    let call = home.call(Rank(4), &Request::Read(read(4)));
    home.finish();
    assert!(home.passed(call).is_none() && home.answer(call).is_some_and(|answer| answer.is_ok()));
    // Another word of the same bytes: they were written since.
    home.is_cold = true;
    let mut later = read(4);
    later.copy = Some(CopyAt { word: WORD | 1 << 48, rank: 4, offset: 256 });
    let call = home.call(Rank(4), &Request::Read(later));
    home.finish();
    assert!(home.passed(call).is_none() && home.answer(call).is_some_and(|answer| answer.is_ok()));
}

/// Goal: a wrong hint is harmless, whatever is at the copy's place: nothing, another word, another copy of
/// the same word while it is read, or nothing in memory. The reader comes back, and the home serves it, and
/// hands it on no more.
#[test]
fn wrong_hints_are_harmless() {
    type Before = fn(&mut Trial<HeapService>);
    type Between = fn(&mut [u8]);
    let wrong: [(Before, Between); 6] = [
        (|_| {}, |_| {}),
        (|peer| copied(peer, Rank(2), WORD + 16, 5), |_| {}),
        (|peer| copied(peer, Rank(2), WORD | 1 << 48, 5), |_| {}),
        // It is evicted, or made again, after its label was looked at.
        (|peer| copied(peer, Rank(2), WORD, 5), |memory| memory[272..280].fill(0)),
        (|peer| copied(peer, Rank(2), WORD, 5), |memory| memory[280] = 6),
        (
            |peer| {
                copied(peer, Rank(2), WORD, 5);
                peer.is_cold = true;
            },
            |_| {},
        ),
    ];
    for (at, (before, between)) in wrong.into_iter().enumerate() {
        let mut home = cold_home();
        let call = home.call(Rank(4), &Request::Read(read(4)));
        home.finish();
        let (_, request) = home.passed(call).unwrap();
        let mut peer = service(1);
        before(&mut peer);
        let handed = peer.call(Rank(4), &request);
        peer.carry_out(0);
        between(peer.memory(Rank(2)));
        peer.finish();
        assert!(peer.answer(handed).is_none(), "{at}: it has answered with what is none");
        let (node, back) = peer.passed(handed).unwrap();
        assert_eq!((node, &back), (NodeId(0), &Request::Back(read(4))), "{at}");
        let call = home.call(Rank(4), &back);
        home.finish();
        assert!(home.passed(call).is_none());
        assert_eq!(home.answer(call), Some(Ok(Answer::Bytes(Bytes(b"twelve bytes".to_vec())))), "{at}");
    }
}

/// Goal: a home that is behind hands on without looking whether it has the bytes.
#[test]
fn a_busy_home_hands_on() {
    let mut home = cold_home();
    home.is_cold = false;
    let calls: Vec<u32> = (0..200)
        .map(|at| home.call(Rank(4), &Request::Read(Read { offset: 1024 + at, copy: None, ..read(4) })))
        .collect();
    let call = home.call(Rank(4), &Request::Read(read(4)));
    assert_eq!(home.passed(call).unwrap().0, NodeId(1));
    home.finish();
    assert!(calls.into_iter().all(|call| home.answer(call).is_some_and(|answer| answer.is_ok())));
}

/// Goal: reads of one message are answered by one, each after its mark, in the order of the requests; those
/// that cannot be reached are none, without effect on others; more than a message has room for, and another
/// node's objects, are refused.
#[test]
fn reads_are_answered_together() {
    let mut home = service(0);
    home.memory(Rank(0))[64..76].copy_from_slice(b"twelve bytes");
    home.memory(Rank(1))[32..36].copy_from_slice(b"four");
    let four = Read { owner: 1, offset: 32, bytes: 4, served: Some(512), copy: None };
    let nowhere = Read { offset: 1 << 40, ..four };
    let call = home.call(Rank(4), &Request::All(vec![four, nowhere, read(4)]));
    assert_eq!(home.pending(), 3, "each slot is marked first, all at the same time");
    home.carry_out(2);
    home.finish();
    let found = [Some(Bytes(b"four".to_vec())), None, Some(Bytes(b"twelve bytes".to_vec()))];
    assert_eq!(home.answer(call), Some(Ok(Answer::All(found.to_vec()))));
    assert_eq!((home.memory(Rank(1))[512], home.memory(Rank(0))[128]), (1, 1));
    let none = home.call(Rank(4), &Request::All(Vec::new()));
    assert_eq!(home.answer(none), Some(Ok(Answer::All(Vec::new()))));
    for wrong in [
        vec![four, Read { owner: 2, ..four }],
        vec![four, Read { owner: u32::MAX, ..four }],
        vec![Read { bytes: 33 << 10, ..four }; 2],
        vec![Read { bytes: u32::MAX, ..four }; 2],
        vec![Read { bytes: 0, ..four }; super::LIST_READS_MAX + 1],
    ] {
        let call = home.call(Rank(4), &Request::All(wrong));
        assert_eq!((home.pending(), home.answer(call)), (0, Some(Ok(Answer::Failed))));
    }
    assert!(home.service().is_idle());
}

/// Goal: a home that is behind leaves objects with known copies to be requested by themselves; one that is
/// not gives all, even from NVMe.
#[test]
fn a_busy_home_leaves_what_others_have() {
    let mut home = cold_home();
    let other = Read { offset: 1024, copy: None, ..read(4) };
    let call = home.call(Rank(4), &Request::All(vec![other, read(4)]));
    home.finish();
    let is_whole = |answer| matches!(answer, Some(Ok(Answer::All(all))) if all.iter().all(Option::is_some));
    assert!(is_whole(home.answer(call)));
    let before: Vec<u32> =
        (0..100).map(|at| home.call(Rank(4), &Request::Read(Read { offset: 1024 + at, ..other }))).collect();
    let call = home.call(Rank(5), &Request::All(vec![other, read(5)]));
    home.finish();
    let Some(Ok(Answer::All(all))) = home.answer(call) else { panic!("no answer") };
    assert_eq!(all.iter().map(Option::is_some).collect::<Vec<_>>(), [true, false]);
    assert!(before.into_iter().all(|call| home.answer(call).is_some_and(|answer| answer.is_ok())));
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0..4200u64, any::<u64>(), Just(u64::MAX), (0..64u32).prop_map(|shift| 1 << shift)]
}

fn owner() -> impl Strategy<Value = u32> {
    prop_oneof![0..8u32, any::<u32>()]
}

prop_compose! {
    fn copy_at()(word in number(), rank in owner(), offset in number()) -> CopyAt {
        CopyAt { word, rank, offset }
    }
}

prop_compose! {
    fn any_read()(
        owner in owner(),
        offset in number(),
        bytes in prop_oneof![0..5000u32, any::<u32>()],
        served in proptest::option::of(number()),
        copy in proptest::option::of(copy_at()),
    ) -> Read {
        Read { owner, offset, bytes, served, copy }
    }
}

prop_compose! {
    fn freed()(word in number(), offset in number(), note in proptest::collection::vec(any::<u64>(), 0..6)) -> Freed {
        Freed { word, offset, note }
    }
}

fn request() -> impl Strategy<Value = Request> {
    prop_oneof![
        any_read().prop_map(Request::Read),
        any_read().prop_map(Request::Back),
        proptest::collection::vec(any_read(), 0..6).prop_map(Request::All),
        (any_read(), copy_at()).prop_map(|(read, copy)| Request::Handed(read, copy)),
        (owner(), proptest::collection::vec(freed(), 0..5))
            .prop_map(|(owner, all)| Request::Free { owner, all }),
        Just(Request::Counts),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Goal: addresses, sizes, words and lists of any numbers, in any order, with whatever is in memory, are answered, by an error or
    /// otherwise, or passed to a node of the job; and nothing of them is left.
    #[test]
    fn no_request_breaks_a_home(
        requests in proptest::collection::vec((0..6u32, request()), 1..40),
        orders in proptest::collection::vec(any::<u16>(), 0..60),
        is_cold: bool,
    ) {
        let mut home = service(0);
        home.is_cold = is_cold;
        let calls: Vec<u32> = requests.iter().map(|(from, request)| home.call(Rank(*from), request)).collect();
        for order in orders {
            if home.pending() > 0 {
                home.carry_out(usize::from(order) % home.pending());
            }
        }
        home.finish();
        for (call, (_, request)) in calls.into_iter().zip(&requests) {
            let (answer, passed) = (home.answer(call), home.passed(call));
            prop_assert!(answer.is_some() != passed.is_some(), "{:?}: {:?}, {:?}", request, answer, passed);
        }
        prop_assert!(home.service().is_idle());
    }

    /// Goal: bytes that are no request are an error of their sender.
    #[test]
    fn no_bytes_break_a_home(all in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 1..20)) {
        let mut home = service(0);
        for bytes in all {
            let call = home.call_with(Rank(4), bytes);
            home.finish();
            prop_assert!(home.answer(call).is_some() != home.passed(call).is_some());
        }
        prop_assert!(home.service().is_idle());
    }
}
