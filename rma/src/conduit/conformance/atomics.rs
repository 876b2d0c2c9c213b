//! Atomic updates of words of pinned segments, by all ranks at once, in whichever way the fabric has for each of them.

use super::{Case, Fabric, Job};
use crate::address::{Rank, RegionId};
use crate::error::RmaError;
use std::collections::BTreeSet;
use std::sync::Mutex;
use vgas_shm::cores;
use vgas_shm::{Atomic, Change};

pub(super) const CASES: &[Case] = &[
    ("no atomic addition is lost, and every one sees another sum", additions),
    ("of those who compare and swap at once, one succeeds", swaps),
    ("updates of every kind and length are made, and only of their word", kinds),
    ("atomic updates keep to aligned words of segments", limits),
];

const SEGMENT: u64 = 4096;

/// Every rank adds to a word of every segment, its own too: all take numbers from the same counters, as tickets.
fn additions(fabric: &dyn Fabric) {
    const RANKS: u32 = 3;
    const ROUNDS: u64 = 60;
    let drawn: Vec<Mutex<BTreeSet<u64>>> = (0..RANKS).map(|_| Mutex::default()).collect();
    Job::new(fabric, RANKS, |_| ()).run(|endpoint, rank| {
        endpoint.attach_segment(SEGMENT).unwrap();
        for _ in 0..ROUNDS {
            for (target, drawn) in (0..).map(Rank).zip(&drawn) {
                let ticket = endpoint.fetch_add(target, 8, 1).unwrap();
                assert!(drawn.lock().unwrap().insert(ticket), "ticket {ticket} of {target} was drawn twice");
            }
        }
        // Several at once, with a carry into the upper half and a sum that wraps around.
        let before = [u64::from(u32::MAX), u64::MAX];
        endpoint.put_value(Rank((rank.0 + 1) % RANKS), 16, before[0], 8).unwrap();
        endpoint.put_value(Rank((rank.0 + 1) % RANKS), 24, before[1], 8).unwrap();
        endpoint.barrier().unwrap();
        let started: Vec<_> = (0..RANKS)
            .flat_map(|target| [(Rank(target), 16), (Rank(target), 24)])
            .map(|(target, offset)| endpoint.atomic_nb(target, offset, Atomic::FetchAdd(1)).unwrap())
            .collect();
        for (value, before) in started.into_iter().zip(before.into_iter().cycle()) {
            let was = endpoint.wait_value(value).unwrap();
            assert!(was.wrapping_sub(before) < u64::from(RANKS), "{was:#x} after {before:#x}");
        }
        endpoint.barrier().unwrap();
        for target in (0..RANKS).map(Rank) {
            let word = |offset| endpoint.get_value(target, offset, 8).unwrap();
            assert_eq!(word(8), u64::from(RANKS) * ROUNDS);
            assert_eq!(word(16), before[0] + u64::from(RANKS));
            assert_eq!(word(24), u64::from(RANKS) - 1);
            assert_eq!((word(0), word(32)), (0, 0), "the words beside them");
        }
    });
    for drawn in drawn {
        let drawn = drawn.into_inner().unwrap();
        assert!(drawn.into_iter().eq(0..u64::from(RANKS) * ROUNDS), "every ticket was drawn");
    }
}

/// A lock made of compare-and-swap guards a plain word; the owner of the segment takes it like any other
/// rank.
fn swaps(fabric: &dyn Fabric) {
    const RANKS: u32 = 3;
    const ROUNDS: u64 = 12;
    Job::new(fabric, RANKS, |_| ()).run(|endpoint, rank| {
        endpoint.attach_segment(SEGMENT).unwrap();
        let (home, me) = (Rank(1), u64::from(rank.0) + 1);
        let mut failed = 0;
        for _ in 0..ROUNDS {
            let mut naps = 0;
            loop {
                let was = endpoint.compare_swap(home, 0, 0, me).unwrap();
                if was == 0 {
                    break;
                }
                assert!(was <= u64::from(RANKS) && was != me, "the lock is held by {was}");
                failed += 1;
                cores::nap(&mut naps);
            }
            let count = endpoint.get_value(home, 64, 8).unwrap();
            endpoint.put_value(home, 64, count + 1, 8).unwrap();
            assert_eq!(
                endpoint.compare_swap(home, 0, 77, 5).unwrap(),
                me,
                "not what was expected: unchanged"
            );
            assert_eq!(endpoint.compare_swap(home, 0, me, 0).unwrap(), me, "nobody else had it");
        }
        assert!(failed < 10_000_000, "others held the lock {failed} times");
        endpoint.barrier().unwrap();
        assert_eq!(endpoint.get_value(home, 64, 8).unwrap(), u64::from(RANKS) * ROUNDS);
    });
}

/// Every rank makes updates whose order does not matter, of words that lie side by side in eight bytes.
fn kinds(fabric: &dyn Fabric) {
    const RANKS: u32 = 3;
    const ROUNDS: u32 = 6;
    Job::new(fabric, RANKS, |_| ()).run(|endpoint, rank| {
        endpoint.attach_segment(SEGMENT).unwrap();
        let (home, me) = (Rank(1), i64::from(rank.0));
        endpoint.put_value(rank, 40, u64::MAX, 8).unwrap();
        endpoint.barrier().unwrap();
        for round in 0..ROUNDS {
            endpoint.update(home, 0, Change::Add(1u32)).unwrap();
            endpoint.update(home, 4, Change::Add(-1i32)).unwrap();
            endpoint.update(home, 8, Change::Or(1u32 << rank.0)).unwrap();
            endpoint.update(home, 12, Change::Max(round + rank.0)).unwrap();
            endpoint.update(home, 16, Change::Min(-me)).unwrap();
            endpoint.update(home, 24, Change::Max(me - 100)).unwrap();
            endpoint.update(home, 32, Change::Xor(1u64 << rank.0)).unwrap();
            endpoint.update(home, 40, Change::And(!(1u64 << rank.0))).unwrap();
        }
        let swapped = endpoint.update(home, 48 + 8 * u64::from(rank.0), Change::Swap(7u32)).unwrap();
        assert_eq!(swapped, 0);
        endpoint.barrier().unwrap();
        let word = |offset, bytes| endpoint.get_value(home, offset, bytes).unwrap();
        let all = RANKS * ROUNDS;
        assert_eq!(word(0, 4), u64::from(all));
        assert_eq!(word(4, 4) as u32, all.wrapping_neg());
        assert_eq!((word(8, 4), word(12, 4)), (7, u64::from(ROUNDS - 1 + RANKS - 1)));
        assert_eq!(word(16, 8) as i64, -2);
        // It was 0 before.
        assert_eq!(word(24, 8), 0);
        assert_eq!((word(32, 8), word(40, 8)), (0, u64::MAX << 3));
        assert_eq!((word(48, 8), word(56, 8), word(64, 8), word(72, 8)), (7, 7, 7, 0));
    });
}

fn limits(fabric: &dyn Fabric) {
    Job::new(fabric, 2, |_| ()).run(|endpoint, rank| {
        endpoint.attach_segment(SEGMENT).unwrap();
        for target in [rank, Rank(1 - rank.0)] {
            for offset in [1, 4, SEGMENT - 4] {
                let refused = endpoint.fetch_add(target, offset, 1);
                assert!(matches!(refused, Err(RmaError::Usage(_))), "at {offset}: {refused:?}");
            }
            for offset in [1, 2, SEGMENT - 2] {
                let refused = endpoint.update(target, offset, Change::Add(1u32));
                assert!(matches!(refused, Err(RmaError::Usage(_))), "at {offset}: {refused:?}");
            }
            for offset in [SEGMENT, u64::MAX - 7] {
                let refused = endpoint.compare_swap(target, offset, 0, 1);
                assert!(
                    matches!(refused, Err(RmaError::OutOfRange { region: RegionId::SEGMENT, .. })),
                    "at {offset}: {refused:?}"
                );
            }
            assert!(endpoint.fetch_add(target, SEGMENT - 8, 1).unwrap() < 2, "the last word");
            endpoint.update(target, SEGMENT - 4, Change::Add(0u32)).unwrap();
        }
        assert!(endpoint.fetch_add(Rank(2), 0, 1).is_err(), "there is no third rank");
    });
}
