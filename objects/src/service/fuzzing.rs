//! Any bytes as requests of ranks and other nodes to the services of owned objects. See [`crate::fuzzing`].

#![forbid(unsafe_code)]

use super::barriers::{self, BarrierService};
use super::channels::{self, ChannelService};
use super::heap::{HeapService, LIST_READS_MAX};
use super::locks::{self, LockService};
use crate::fuzzing::travelled;
use vgas::service::{Service, Trial};
use vgas::{Layout, NodeId, Rank};

/// Bytes of the partition of each rank.
const BYTES: usize = 16 << 10;
const RANKS: u32 = 6;
const NODES: u32 = 3;
/// Orders of a service that are carried out for each request at most, when nothing else comes.
const ORDERS_PER_REQUEST: usize = 4 * LIST_READS_MAX;

/// The first byte selects the service: objects, locks, channels or barriers. They are what happens to it: see
/// [`happen`]. It survives that, comes to rest, and still answers.
pub fn objects_services(bytes: &[u8]) {
    let Some((which, rest)) = bytes.split_first() else { return };
    match which % 4 {
        0 => {
            let (mut home, calls) = happen(HeapService::default(), rest);
            for call in calls {
                let (answer, passed) = (home.answer(call), home.passed(call));
                assert!(answer.is_some() != passed.is_some(), "{call}: {answer:?}, {passed:?}");
            }
            assert!(home.service().is_idle());
        }
        1 => {
            let (mut home, calls) = happen(LockService::default(), rest);
            let _: Vec<_> = calls.into_iter().map(|call| home.answer(call)).collect();
            let call = home.call(Rank(0), &locks::Request::Count);
            assert!(matches!(home.answer(call), Some(Ok(locks::Answer::Counted(_)))));
        }
        2 => {
            let (mut home, calls) = happen(ChannelService::numbered(), rest);
            let _: Vec<_> = calls.into_iter().map(|call| home.answer(call)).collect();
            let call = home.call(Rank(0), &channels::Request::Count);
            assert!(matches!(home.answer(call), Some(Ok(channels::Answer::Counted(_)))));
        }
        _ => {
            let (mut home, calls) = happen(BarrierService::default(), rest);
            let _: Vec<_> = calls.into_iter().map(|call| home.answer(call)).collect();
            let call = home.call(Rank(0), &barriers::Request::Come { name: u64::MAX, parties: 1 });
            assert!(home.answer(call).is_some());
        }
    }
}

/// Each event is a byte and its parameters: a call or a notice, as it travels; an order that is done; a node
/// that is lost; whether pages are in memory; a word that is written. The service, at rest, and the calls
/// that it has heard.
fn happen<S: Service>(service: S, bytes: &[u8]) -> (Trial<S>, Vec<u32>) {
    let mut trial = Trial::new(service, Layout::blocks(RANKS, NODES), NodeId(0), BYTES);
    let (mut rest, mut calls, mut requests) = (bytes, Vec::new(), 0);
    while let Some((&what, after)) = rest.split_first() {
        rest = after;
        let which = usize::from(what >> 3);
        match what % 8 {
            kind @ 0..=3 => {
                let Some((request, after)) = travelled::<S::Request>(rest) else { continue };
                (rest, requests) = (after, requests + 1);
                let from = Rank(which as u32 % RANKS);
                match kind {
                    0 => trial.tell(from, &request),
                    _ => calls.push(trial.call(from, &request)),
                }
            }
            4 if trial.pending() > 0 => trial.carry_out(which % trial.pending()),
            5 => trial.lose(NodeId(1 + which as u32 % (NODES - 1))),
            6 => trial.is_cold = which % 2 == 1,
            7 => {
                let Some((at, after)) = rest.split_first_chunk::<2>() else { break };
                let Some((word, after)) = after.split_first_chunk::<8>() else { break };
                rest = after;
                let at = usize::from(u16::from_le_bytes(*at)) % (BYTES - 8);
                trial.memory(Rank(which as u32 % 2))[at..at + 8].copy_from_slice(word);
            }
            _ => {}
        }
    }
    for _ in 0..ORDERS_PER_REQUEST * (1 + requests) {
        if trial.pending() == 0 {
            return (trial, calls);
        }
        trial.carry_out(0);
    }
    panic!("{requests} requests, and no end of orders");
}

/// Checks a foreign service's answer to a request for values: an answer that claims to be whole is.
pub(crate) fn answer(what: u8, bytes: &[u8]) {
    match what {
        1 => drop(travelled::<locks::Answer>(bytes)),
        2 => {
            let &[size, most, ref rest @ ..] = bytes else { return };
            let (size, most) = (usize::from(size), usize::from(most));
            let Some((answer, _)) = travelled::<channels::Answer>(rest) else { return };
            if !answer.is_whole(size, most) {
                return;
            }
            if let channels::Answer::Values(count, values)
            | channels::Answer::Closed(count, values)
            | channels::Answer::Lost(_, count, values) = answer
            {
                // As they are taken, and dropped.
                let taken: usize = (0..count as usize).map(|at| values.0[at * size..][..size].len()).sum();
                assert!(taken == values.0.len() && count as usize <= most);
            }
        }
        _ => drop(travelled::<barriers::Answer>(bytes)),
    }
}

/// Seeds for the target of answers.
#[cfg(test)]
pub(crate) fn answers() -> Vec<(&'static str, Vec<u8>)> {
    use super::Bytes;
    fn said(what: &[u8], answer: &impl serde::Serialize) -> Vec<u8> {
        [what, &postcard::to_allocvec(answer).expect("an answer")].concat()
    }
    let values = || Bytes(vec![3; 24]);
    vec![
        ("lock-granted", said(&[1], &locks::Answer::Granted(values()))),
        ("lock-lost", said(&[1], &locks::Answer::Lost(2))),
        ("channel-values", said(&[2, 8, 4], &channels::Answer::Values(3, values()))),
        ("channel-closed", said(&[2, 8, 4], &channels::Answer::Closed(3, values()))),
        ("channel-more-than-came", said(&[2, 8, 4], &channels::Answer::Closed(4, values()))),
        ("channel-of-no-bytes", said(&[2, 0, 4], &channels::Answer::Values(u32::MAX, Bytes(Vec::new())))),
        ("channel-lost", said(&[2, 8, 4], &channels::Answer::Lost(1, 3, values()))),
        ("barrier-passed", said(&[3], &barriers::Answer::Passed(true))),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::Bytes;
    use super::super::heap::{CopyAt, Freed, Kind, Read, Request};
    use super::*;
    use vgas_testing::replay;

    const ORDER: &[u8] = &[4];
    const LAST_ORDER: &[u8] = &[4 | 5 << 3];
    const LOST: &[u8] = &[5];
    const COLD: &[u8] = &[6 | 1 << 3];

    fn call(from: u8, request: &impl serde::Serialize) -> Vec<u8> {
        [&[1 | from << 3], &postcard::to_allocvec(request).unwrap()[..]].concat()
    }

    /// Encodes a write of a rank here.
    fn word(at: u16, word: u64) -> Vec<u8> {
        [&[7][..], &at.to_le_bytes(), &word.to_le_bytes()].concat()
    }

    fn about(which: u8, what: &[Vec<u8>]) -> Vec<u8> {
        [&[which][..], &what.concat()].concat()
    }

    fn of_heap() -> Vec<(&'static str, Vec<u8>)> {
        const BASE: u64 = 1 << 20;
        let copy = |rank| CopyAt { word: (1 << 48) + BASE + 64, rank, offset: 256 };
        let read = |copy| Read { owner: 0, offset: 64, bytes: 12, served: Some(128), copy: Some(copy) };
        let kinds = vec![Kind { bytes: 24, slot: Some(1), ties: vec![(8, 0)] }];
        let first = vec![Read { bytes: 24, copy: None, offset: 8192, ..read(copy(4)) }];
        let group = Request::Group { first, base: BASE, stride: 1 << 17, most: 4096, kinds };
        let freed = |offset: u64, next| Freed { word: BASE + offset, offset, note: vec![next, 5] };
        let free = Request::Free { owner: 0, all: vec![freed(512, BASE + 576), freed(576, 0)] };
        let nowhere = Read { owner: 1, offset: 1 << 40, ..read(copy(4)) };
        vec![
            ("heap-read", about(0, &[call(4, &Request::Read(read(copy(4))))])),
            (
                "heap-handed-on",
                about(
                    0,
                    &[
                        call(2, &Request::Read(read(copy(2)))),
                        COLD.to_vec(),
                        call(4, &Request::Read(read(copy(4)))),
                        call(4, &Request::Back(read(copy(4)))),
                    ],
                ),
            ),
            (
                "heap-from-a-copy",
                about(
                    0,
                    &[
                        word(272, copy(1).word),
                        word(280, 3),
                        call(4, &Request::Handed(read(copy(4)), copy(0))),
                    ],
                ),
            ),
            (
                "heap-all",
                about(0, &[call(4, &Request::All(vec![read(copy(4)), nowhere])), LAST_ORDER.to_vec()]),
            ),
            (
                "heap-group",
                about(
                    0,
                    &[word(8200, BASE + 8704), word(8712, BASE + 8192), call(3, &group), ORDER.to_vec()],
                ),
            ),
            (
                "heap-free",
                about(0, &[call(3, &free), call(5, &free), ORDER.to_vec(), call(3, &Request::Counts)]),
            ),
        ]
    }

    fn of_locks() -> Vec<(&'static str, Vec<u8>)> {
        use locks::Request;
        let (owner, offset, bytes) = (0, 64, 16);
        let lock = |shared, try_only| Request::Lock { owner, offset, bytes, shared, try_only };
        let unlock = |changed| Request::Unlock { owner, offset, changed };
        let changed = || Bytes(vec![0; 16]);
        let wait = Request::Wait { owner, offset, changed: changed(), condition: 9, token: 1 };
        let orders = || ORDER.repeat(4);
        vec![
            (
                "locks-queue",
                about(
                    1,
                    &[
                        call(2, &lock(false, false)),
                        call(3, &lock(true, false)),
                        call(4, &lock(false, true)),
                        orders(),
                        call(2, &unlock(Some(changed()))),
                        orders(),
                        call(3, &unlock(None)),
                        call(5, &Request::Copy { owner, offset, bytes }),
                    ],
                ),
            ),
            (
                "locks-condition",
                about(
                    1,
                    &[
                        call(2, &lock(false, false)),
                        orders(),
                        call(2, &wait),
                        orders(),
                        call(3, &Request::Notify { condition: 9, all: true }),
                        call(2, &Request::CallBack { condition: 9, token: 1 }),
                    ],
                ),
            ),
            (
                "locks-lost",
                about(
                    1,
                    &[call(2, &lock(false, false)), orders(), call(4, &lock(false, false)), LOST.to_vec()],
                ),
            ),
        ]
    }

    fn of_channels() -> Vec<(&'static str, Vec<u8>)> {
        use channels::Request;
        let channel = 1;
        let send = |count, try_only| {
            let values = Bytes(vec![7; 4 * count as usize]);
            Request::Send { channel, count, values, try_only }
        };
        let receive = |most, try_only| Request::Receive { channel, most, try_only };
        let open = || call(0, &Request::Open { bytes: 4, room: 2 });
        vec![
            (
                "channels-room",
                about(
                    2,
                    &[
                        open(),
                        call(2, &send(5, false)),
                        call(3, &send(1, true)),
                        call(0, &receive(1, false)),
                        call(0, &receive(9, true)),
                        call(0, &Request::Close { channel }),
                        call(2, &send(1, false)),
                    ],
                ),
            ),
            (
                "channels-end",
                about(
                    2,
                    &[
                        open(),
                        call(2, &Request::Draw { channel, units: 3 }),
                        call(0, &receive(1, false)),
                        call(0, &Request::Cancel { channel }),
                        call(2, &Request::Leave { channel, units: 4 }),
                        call(0, &receive(1, false)),
                    ],
                ),
            ),
            (
                "channels-lost",
                about(2, &[open(), call(2, &receive(1, true)), call(4, &send(3, false)), LOST.to_vec()]),
            ),
            (
                "channels-of-nothing",
                about(
                    2,
                    &[
                        call(0, &Request::Open { bytes: 0, room: u32::MAX }),
                        call(
                            2,
                            &Request::Send {
                                channel,
                                count: u32::MAX,
                                values: Bytes(vec![]),
                                try_only: false,
                            },
                        ),
                        call(0, &receive(u32::MAX, false)),
                    ],
                ),
            ),
        ]
    }

    #[test]
    fn any_bytes_are_survived_by_the_services() {
        let come = |name, parties| barriers::Request::Come { name, parties };
        let mut seeds = of_heap();
        seeds.extend(of_locks());
        seeds.extend(of_channels());
        seeds.extend([
            ("barriers", about(3, &[call(0, &come(5, 2)), call(1, &come(5, 3)), call(2, &come(5, 2))])),
            ("barriers-lost", about(3, &[call(0, &come(5, 2)), LOST.to_vec(), call(1, &come(5, 2))])),
        ]);
        replay("objects_services", objects_services, &seeds);
    }
}
