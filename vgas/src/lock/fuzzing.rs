//! Any bytes as requests of ranks and other nodes to the service of locks. See [`crate::fuzzing`].

#![forbid(unsafe_code)]

use super::service::{Answer, Locks, Request};
use serde::Serialize;
use serde::de::DeserializeOwned;
use vgas_cache::service::Trial;
use vgas_rma::{Layout, NodeId, Rank};

/// Bytes of the segment of each rank: a few locks.
const BYTES: usize = 64;
/// Ranks of the node, and of all nodes.
const RANKS_HERE: u32 = 2;
const RANKS: u32 = 4;
/// Orders of the service that are carried out for each request at most, when nothing else comes.
const ORDERS_PER_REQUEST: usize = 64;

/// Decodes an answer from all of the bytes; and runs a service on the same bytes as events, each a byte for
/// its kind and its parameters: a call or a notice, as it travels; an order that is done; a second that
/// passes; a word that is written. The service survives it, and comes to rest.
pub fn locks(bytes: &[u8]) {
    if let Ok(answer) = postcard::from_bytes::<Answer>(bytes) {
        travels(&answer);
    }
    let mut trial = Trial::new(Locks::default(), Layout::blocks(RANKS, RANKS / RANKS_HERE), NodeId(0), BYTES);
    let (mut rest, mut requests) = (bytes, 0);
    while let Some((&what, after)) = rest.split_first() {
        rest = after;
        match what % 8 {
            kind @ 0..=3 => {
                let Ok((request, after)) = postcard::take_from_bytes::<Request>(rest) else { continue };
                (rest, requests) = (after, requests + 1);
                travels(&request);
                let from = Rank(u32::from(what >> 3) % RANKS);
                match kind {
                    0 => trial.tell(from, &request),
                    _ => drop(trial.call(from, &request)),
                }
            }
            4 | 5 if trial.pending() > 0 => trial.carry_out(usize::from(what >> 3) % trial.pending()),
            6 => trial.pass(1000),
            7 => {
                let Some((word, after)) = rest.split_first_chunk::<8>() else { return };
                rest = after;
                let at = usize::from(what >> 3) * 8 % BYTES;
                trial.memory(Rank(0))[at..at + 8].copy_from_slice(word);
            }
            _ => {}
        }
    }
    for _ in 0..ORDERS_PER_REQUEST * (1 + requests) {
        match trial.pending() {
            0 => return,
            _ => trial.carry_out(0),
        }
    }
    panic!("{requests} requests, and no end of orders");
}

/// Checks that a decoded value round-trips.
fn travels<T: Serialize + DeserializeOwned>(found: &T) {
    let bytes = postcard::to_allocvec(found).expect("what was decoded");
    let again: T = postcard::from_bytes(&bytes).expect("what was encoded");
    assert!(postcard::to_allocvec(&again).is_ok_and(|again| again == bytes));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::service::{Edge, LockPlace};
    use crate::lock::word::LockOwner;
    use vgas_testing::replay;

    const ORDER: &[u8] = &[4];
    const SECOND: &[u8] = &[6];

    fn asked(what: u8, request: &Request) -> Vec<u8> {
        [&[what], postcard::to_allocvec(request).unwrap().as_slice()].concat()
    }

    fn call(request: &Request) -> Vec<u8> {
        asked(1, request)
    }

    #[test]
    fn any_bytes_are_survived_by_the_service() {
        let (one, other) = (LockOwner::new(Rank(0), 1), LockOwner::new(Rank(1), 1));
        let place = |lock: u64| LockPlace { segment: 0, owner: Rank(0), offset: 8 * lock };
        let lock = |who, at| call(&Request::Lock(place(at), who, true));
        let unlock = |who, poison| asked(0, &Request::Unlock(place(0), who, true, poison));
        let answer = |answer: Answer| postcard::to_allocvec(&answer).unwrap();
        let edge = Edge { waiter: one, place: place(0), holder: other, wait: 300, grant: 7 };
        let all = [ORDER; 6].concat();
        let queue = [lock(one, 0), lock(other, 0), all.clone(), unlock(one, false), all.clone()].concat();
        let poisoned =
            [lock(one, 0), all.clone(), unlock(one, true), all.clone(), lock(other, 0), all.clone()];
        let clear = call(&Request::ClearPoison(place(0)));
        let crossed = [lock(one, 0), lock(other, 1), all.clone(), lock(one, 1), lock(other, 0), all.clone()];
        let late = [SECOND; 4].concat();
        let elsewhere =
            call(&Request::TryLock(LockPlace { segment: 0, owner: Rank(3), offset: 3 }, one, false));
        let written = [&[7][..], &[0x5a; 8], &lock(one, 0), &all].concat();
        replay(
            "locks",
            locks,
            &[
                ("queue", queue),
                ("poisoned", [poisoned.concat(), clear, all].concat()),
                ("cycle", [crossed.concat(), late].concat()),
                ("elsewhere", [elsewhere, ORDER.to_vec()].concat()),
                ("no-lock", written),
                ("waits-for", call(&Request::WaitsFor(other))),
                ("answer-cycle", answer(Answer::Cycle(vec![edge.clone(), edge]))),
                ("answer-poisoned", answer(Answer::Poisoned(one))),
            ],
        );
    }
}
