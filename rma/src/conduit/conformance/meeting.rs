//! Barriers and collectives.

use super::super::sim::SplitMix;
use super::{Case, Fabric, Job, SEGMENT_BYTES, pattern};
use crate::address::Rank;
use crate::collective::{Blocks, Collectives, Combiner, Pattern, SharedCombiner, Team, View};
use crate::conduit::smp::CARRIED_BYTES_MAX;
use crate::endpoint::BarrierName::{Anonymous, Mismatch, Named};
use crate::endpoint::{BarrierName, BarrierOutcome, Endpoint};
use crate::error::RmaError;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
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
            assert!(endpoint.barrier_notify(BarrierName::Carrying(0)).is_err());
            // A carrying and a plain member learn of each other.
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
        let engines = Mutex::new(BTreeMap::new());
        let register = |endpoint: &Arc<Endpoint>| {
            if endpoint.rank().is_some() {
                let engine = Collectives::register(endpoint).unwrap();
                engines.lock().unwrap().insert(endpoint.me(), engine);
            }
        };
        Job::new(fabric, ranks, register).run(|endpoint, _| {
            let engine = engines.lock().unwrap()[&endpoint.me()].clone();
            // In the first team, members that share memory use the board; in the second, none does.
            for team in [engine.world().unwrap(), engine.internal_world().unwrap()] {
                let large = (endpoint.medium_bytes_max() * 2 + 17) / STEP_BYTES;
                for round in 0..20 {
                    let steps = match round {
                        7 => large,
                        13 => 20_000,
                        few => few as usize,
                    };
                    check_collectives(&team, round, steps * STEP_BYTES);
                }
                let (gather, blocks) = (Pattern::Gather { root: 0 }, Blocks::Apart(&[1, 2], &mut []));
                let refused = team.run(gather, gather.call(), 1, blocks, None);
                assert!(matches!(refused, Err(RmaError::Usage(_))), "{refused:?}");
            }
        });
    }
}

/// Bytes of an element of a reduction: a factor and a summand, as a function of a number.
const STEP_BYTES: usize = 16;

/// Composes functions: neither commutative nor the same in another order.
struct Compose;

// SAFETY: the views are used in the call only.
unsafe impl Combiner for Compose {
    fn combine(&self, left: View, right: View, result: View) {
        let words = |view: View| -> Vec<u64> {
            view.read().as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect()
        };
        let (left, right) = (words(left), words(right));
        let pairs = left.as_chunks().0.iter().zip(right.as_chunks().0);
        let composed = pairs.flat_map(|(&[factor, summand], &[by, plus]): (&[u64; 2], &[u64; 2])| {
            [factor.wrapping_mul(by), summand.wrapping_mul(by).wrapping_add(plus)]
        });
        let bytes: Vec<u8> = composed.flat_map(u64::to_le_bytes).collect();
        result.write(&bytes);
    }

    fn element_bytes(&self) -> usize {
        STEP_BYTES
    }

    fn needs_caller(&self) -> bool {
        true
    }
}

/// Runs every pattern with blocks of `bytes` bytes, by slices and by vectors, against a plain model.
fn check_collectives(team: &Arc<Team>, round: u64, bytes: usize) {
    let (me, size) = (team.me(), team.size());
    let root = (round % u64::from(size)) as u32;
    let of = |member: u32| pattern(u64::from(member) * 100 + round, bytes);
    let blocks = |member: u32| pattern(u64::from(member) * 1000 + round, bytes * size as usize);
    let block = |blocks: &[u8], at: u32| blocks[at as usize * bytes..][..bytes].to_vec();
    let all: Vec<u8> = (0..size).flat_map(of).collect();
    let up_to = |last: u32| {
        (1..=last).fold(of(0), |mut left, member| {
            let mut right = of(member);
            let mut result = vec![0; bytes];
            // SAFETY: the vectors outlive the call.
            let [left, right, result_view] = [&mut left, &mut right, &mut result]
                .map(|of| unsafe { View::new(of.as_mut_ptr(), of.len()) });
            Compose.combine(left, right, result_view);
            result
        })
    };
    let at = |here: bool, what: Vec<u8>| if here { what } else { Vec::new() };
    let (is_root, mine) = (me == root, of(me));
    let before = if me == 0 { mine.clone() } else { up_to(me - 1) };
    let taken: Vec<u8> = (0..size).flat_map(|member| block(&blocks(member), me)).collect();
    let cases = [
        (Pattern::Barrier, Vec::new(), Vec::new()),
        (Pattern::Broadcast { root }, at(is_root, mine.clone()), of(root)),
        (Pattern::Scatter { root }, at(is_root, blocks(root)), block(&blocks(root), me)),
        (Pattern::Gather { root }, mine.clone(), at(is_root, all.clone())),
        (Pattern::AllGather, mine.clone(), all.clone()),
        (Pattern::AllToAll, blocks(me), taken),
        (Pattern::Reduce { root }, mine.clone(), at(is_root, up_to(size - 1))),
        (Pattern::AllReduce, mine.clone(), up_to(size - 1)),
        (Pattern::Scan { is_exclusive: false }, mine.clone(), up_to(me)),
        (Pattern::Scan { is_exclusive: true }, mine.clone(), before),
    ];
    let combiner = |pattern: Pattern| {
        use Pattern::{AllReduce, Reduce, Scan};
        matches!(pattern, Reduce { .. } | AllReduce | Scan { .. }).then_some(Compose)
    };
    let started = cases.iter().map(|(pattern, from, _)| {
        let combiner = combiner(*pattern).map(|combiner| Box::new(combiner) as SharedCombiner);
        team.start_owned(*pattern, pattern.call(), bytes, from.clone(), combiner).unwrap()
    });
    let started: Vec<_> = started.collect();
    for ((pattern, from, expected), started) in cases.iter().zip(started).rev() {
        let found = started.wait().unwrap();
        let is_left = matches!(pattern, Pattern::Gather { .. } | Pattern::Reduce { .. }) && !is_root;
        assert!(found == if is_left { from.clone() } else { expected.clone() }, "{pattern:?} {round}");
    }
    for (pattern, from, expected) in &cases {
        let combiner = combiner(*pattern);
        let combiner = combiner.as_ref().map(|combiner| combiner as &dyn Combiner);
        let is_scan = matches!(pattern, Pattern::Scan { .. });
        let mut to = if is_scan { from.clone() } else { vec![0; expected.len()] };
        team.run(*pattern, pattern.call(), bytes, Blocks::Apart(from, &mut to), combiner).unwrap();
        let is_given = matches!(pattern, Pattern::Broadcast { .. }) && is_root;
        assert!(is_given || to == *expected, "{pattern:?} {round}");
        if combiner.is_some() {
            let mut both = from.clone();
            team.run(*pattern, pattern.call(), bytes, Blocks::InPlace(&mut both), combiner).unwrap();
            assert!(
                both == *if expected.is_empty() { from } else { expected },
                "{pattern:?} {round} in place"
            );
        }
    }
    let length = |member: u32| ((u64::from(member) + round) % 5) as usize * bytes / 3;
    let found = team.all_gatherv(&pattern(round, length(me))).unwrap();
    assert!(found.iter().zip(0..).all(|(found, member)| *found == pattern(round, length(member))), "{round}");
    assert_eq!(found.len(), size as usize);
}
