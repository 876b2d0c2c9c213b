//! Barriers and collectives.

use super::super::sim::SplitMix;
use super::{Case, Fabric, Job, SEGMENT_BYTES, pattern};
use crate::address::Rank;
use crate::conduit::smp::CARRIED_BYTES_MAX;
use crate::endpoint::BarrierName::{Anonymous, Mismatch, Named};
use crate::endpoint::{BarrierName, BarrierOutcome};
use crate::error::RmaError;
use std::sync::atomic::{AtomicU32, Ordering};
use vgas_shm::cores;

pub(super) const CASES: &[Case] = &[
    ("no rank leaves a barrier before all have arrived", barriers),
    ("a mismatch of barrier names is reported to every rank", mismatches),
    ("what was put before a barrier is visible after it", visible_after_barrier),
    ("a barrier carries what every rank brings to all", carried),
    ("collectives give every rank the same result", collectives),
];

fn barriers(fabric: &dyn Fabric) {
    for ranks in [1, 2, 3, 5] {
        let arrived = AtomicU32::new(0);
        Job::new(fabric, ranks, |_| ()).run(|endpoint, rank| {
            let mut random = SplitMix(u64::from(rank.0));
            for round in 1..=100 {
                for _ in 0..random.below(2000) {
                    std::hint::spin_loop();
                }
                arrived.fetch_add(1, Ordering::SeqCst);
                endpoint.barrier_notify(Anonymous).unwrap();
                assert!(endpoint.barrier_notify(Anonymous).is_err(), "notified twice");
                if round % 2 == 0 {
                    let mut naps = 0;
                    while endpoint.barrier_try(Anonymous).unwrap().is_none() {
                        cores::nap(&mut naps);
                    }
                } else {
                    assert_eq!(endpoint.barrier_wait(Anonymous).unwrap(), BarrierOutcome::Matched);
                }
                assert!(arrived.load(Ordering::SeqCst) >= round * ranks, "left barrier {round} too early");
                assert!(endpoint.barrier_wait(Anonymous).is_err(), "waited without notify");
            }
        });
    }
}

fn mismatches(fabric: &dyn Fabric) {
    const RANKS: usize = 3;
    let rounds: [([BarrierName; RANKS], BarrierOutcome); 7] = [
        ([Named(1), Named(1), Named(1)], BarrierOutcome::Matched),
        ([Named(1), Named(2), Named(1)], BarrierOutcome::Mismatch),
        ([Named(1), Anonymous, Named(1)], BarrierOutcome::Matched),
        ([Anonymous, Anonymous, Named(9)], BarrierOutcome::Matched),
        ([Named(0), Named(0), Named(u32::MAX)], BarrierOutcome::Mismatch),
        ([Mismatch, Anonymous, Anonymous], BarrierOutcome::Mismatch),
        ([Anonymous, Anonymous, Anonymous], BarrierOutcome::Matched),
    ];
    Job::new(fabric, RANKS as u32, |_| ()).run(|endpoint, rank| {
        for (names, outcome) in &rounds {
            let name = names[rank.0 as usize];
            endpoint.barrier_notify(name).unwrap();
            assert_eq!(endpoint.barrier_wait(name).unwrap(), *outcome, "{names:?}");
        }
        endpoint.barrier_notify(Named(5)).unwrap();
        let outcome = endpoint.barrier_wait(Named(if rank.0 == 0 { 6 } else { 5 })).unwrap();
        let expected = if rank.0 == 0 { BarrierOutcome::Mismatch } else { BarrierOutcome::Matched };
        assert_eq!(outcome, expected, "a rank that waits with another name than all have is told");
        assert_eq!(endpoint.barrier_result(), Some(Named(5)));
        for (notified, waited, met) in [
            (Named(5), Anonymous, Named(5)),
            (if rank.0 == 1 { Named(7) } else { Anonymous }, Named(7), Named(7)),
            (Anonymous, Named(3), Anonymous),
        ] {
            endpoint.barrier_notify(notified).unwrap();
            assert_eq!(
                endpoint.barrier_wait(waited).unwrap(),
                BarrierOutcome::Matched,
                "{notified:?} {waited:?}"
            );
            assert_eq!(endpoint.barrier_result(), Some(met), "{notified:?} {waited:?}");
        }
    });
}

/// Ranks bring different lengths, nothing and the most; plain barriers in between, and ranks that run ahead.
fn carried(fabric: &dyn Fabric) {
    for ranks in [1, 2, 5] {
        Job::new(fabric, ranks, |_| ()).run(|endpoint, rank| {
            let brought = |rank: u32, round: u32| -> Vec<u8> {
                let length = [0, 1, 256, CARRIED_BYTES_MAX, 77][((rank + round) % 5) as usize];
                (0..length).map(|at| (at as u32 * 7 + rank * 31 + round) as u8).collect()
            };
            for round in 0..7 {
                let all = endpoint.barrier_with(&brought(rank.0, round)).unwrap();
                assert_eq!(all.len(), ranks as usize);
                for (other, found) in (0..).zip(all) {
                    assert_eq!(found, brought(other, round), "of rank {other} in round {round}");
                }
                if round % 3 == 0 {
                    endpoint.barrier().unwrap();
                }
            }
            let refused = endpoint.barrier_with(&[0; CARRIED_BYTES_MAX + 1]);
            assert!(matches!(refused, Err(RmaError::Usage(_))), "{refused:?}");
            assert!(endpoint.barrier_notify(BarrierName::Carrying).is_err());
            // Who carries and who does not hear of each other.
            if ranks > 1 {
                let outcome = if rank.0 == 0 {
                    endpoint.barrier()
                } else {
                    endpoint.barrier_with(b"something").map(drop)
                };
                assert!(matches!(outcome, Err(RmaError::Usage(_))), "{outcome:?}");
                assert_eq!(endpoint.barrier_with(b"again").unwrap(), vec![b"again".to_vec(); ranks as usize]);
            }
        });
    }
}

fn visible_after_barrier(fabric: &dyn Fabric) {
    Job::new(fabric, 3, |_| ()).run(|endpoint, rank| {
        endpoint.attach_segment(SEGMENT_BYTES).unwrap();
        let next = Rank((rank.0 + 1) % 3);
        for round in 0..50u64 {
            endpoint.put(next, 64, &(round * 3 + u64::from(rank.0)).to_le_bytes()).unwrap();
            endpoint.barrier().unwrap();
            let previous = u64::from((rank.0 + 2) % 3);
            assert_eq!(endpoint.get_value(rank, 64, 8).unwrap(), round * 3 + previous);
            endpoint.barrier().unwrap();
        }
    });
}

fn collectives(fabric: &dyn Fabric) {
    for ranks in [1, 2, 3, 5] {
        Job::new(fabric, ranks, |_| ()).run(|endpoint, rank| {
            let large = endpoint.medium_bytes_max() * 2 + 17;
            for round in 0..40u64 {
                let root = Rank((round % u64::from(ranks)) as u32);
                let bytes = if round == 7 { large } else { round as usize * 3 };
                let mut told = if rank == root { pattern(round, bytes) } else { vec![1, 2, 3] };
                endpoint.broadcast(root, &mut told).unwrap();
                assert!(told == pattern(round, bytes), "broadcast {round}");

                let mine = pattern(u64::from(rank.0) + round, bytes + rank.0 as usize);
                let all: Vec<_> =
                    (0..ranks).map(|r| pattern(u64::from(r) + round, bytes + r as usize)).collect();
                assert_eq!(endpoint.gather(root, &mine).unwrap(), (rank == root).then(|| all.clone()));
                assert_eq!(endpoint.all_gather(&mine).unwrap(), all);

                let mut sum = (u64::from(rank.0) + round).to_le_bytes().to_vec();
                let expected = (0..u64::from(ranks)).map(|r| r + round).sum::<u64>();
                let reduced = endpoint.reduce(root, &sum, add).unwrap();
                assert_eq!(reduced, (rank == root).then(|| expected.to_le_bytes().to_vec()));
                endpoint.all_reduce(&mut sum, add).unwrap();
                assert_eq!(sum, expected.to_le_bytes());
            }
            assert!(endpoint.broadcast(Rank(ranks), &mut Vec::new()).is_err(), "no such root");
        });
    }
}

fn add(into: &mut [u8], other: &[u8]) {
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    let sum = number(into) + number(other);
    into.copy_from_slice(&sum.to_le_bytes());
}
