//! Further pinned segments in whole jobs: at random beside each other, by pointers, of one rank, and after their end.
//!
//! # Rules for the unsafe code in this file
//!
//! Words are used as atomics, inside of a pinned segment of a rank of this node, while it is attached.

use crate::Setting;
use crate::scenarios::{Outcome, Scenario, with};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::sync::atomic::{AtomicU64, Ordering};
use vgas::{Change, GlobalAddress, Kind, PinMode, Rank, Runtime, Segment, SegmentId, SegmentOptions};

pub const ALL: &[Scenario] = &[Scenario { name: "pinned", settings, rank }];

/// Jobs that end with what is said.
pub const ENDING_BADLY: &[(Scenario, &str)] = &[(
    Scenario { name: "pinned_stale", settings: || vec![Setting::new(2, 2, &with(&[]))], rank: stale },
    "protocol violation by rank 1",
)];

fn settings() -> Vec<Setting> {
    vec![
        Setting::new(1, 1, &with(&[])),
        Setting::new(3, 1, &with(&[])),
        Setting::new(4, 2, &with(&[])),
        Setting::new(3, 3, &with(&[("conduit", "smp")])),
        Setting::new(3, 2, &with(&[("hooks", "delay=200us,loss=2%,count")])),
    ]
}

/// Bytes of each rank's first pinned segment.
const FIRST: u64 = 8192;
/// Words of a stripe, which one rank writes.
const WORDS: u64 = 512;

fn rank(runtime: &Runtime, seed: u64) -> Outcome {
    // A rank's own segment leaves room at the beginning for the first of all ranks.
    let own = runtime.attach(&SegmentOptions::pinned(4096).independent())?;
    runtime.attach(&SegmentOptions::tiered(1 << 20))?;
    runtime.attach(&SegmentOptions::pinned(FIRST))?;
    own.detach()?;
    refuse(runtime)?;
    at_random(runtime, seed)?;
    point(runtime)?;
    alone(runtime)?;
    Ok(runtime.checkpoint()?)
}

/// What cannot be is an error on all ranks, and nothing is left of it.
fn refuse(runtime: &Runtime) -> Outcome {
    let (me, ranks) = (runtime.rank().0, runtime.ranks());
    let pinned = || SegmentOptions::pinned(0);
    let last = |one: u64, other: u64| if me == ranks - 1 { one } else { other };
    let mixed = if me == 0 { SegmentOptions::tiered(0) } else { pinned() };
    let wrong = [
        ("more than there is", 1 << 20, pinned()),
        ("more than there can be", u64::MAX, pinned()),
        ("too much of one rank", last(1 << 40, 4096), pinned()),
        ("pages", 4096, pinned().page_size(4096)),
        ("a name", 4096, pinned().name("pinned")),
        ("relaxed", 4096, pinned().relaxed(true)),
        ("two kinds", 4096, mixed),
    ];
    for (what, bytes, options) in wrong.into_iter().take(if ranks > 1 { 7 } else { 6 }) {
        let refused = runtime.attach(&options.sized(bytes));
        let all = runtime.all_gatherv(&[u8::from(refused.is_err())])?;
        if all.iter().any(|is_refused| is_refused[..] != [1]) {
            return Err(format!("{what} was not refused everywhere: {refused:?}").into());
        }
    }
    if runtime.segment(Kind::Pinned, SegmentId(1024)).is_some() {
        return Err("a segment that is none is there".into());
    }
    // Numbers of the one kind are none of the other.
    let me = Rank(me);
    for (kind, number) in
        [(Kind::Tiered, 1024), (Kind::Pinned, 1), (Kind::Pinned, 1024), (Kind::Pinned, u16::MAX)]
    {
        let nowhere = GlobalAddress { kind, segment: SegmentId(number), ..GlobalAddress::tiered(me, 0) };
        let used = [
            runtime.get(nowhere, &mut [0u64]).is_ok(),
            runtime.put_value(nowhere, 1u64).is_ok(),
            runtime.update(nowhere, Change::Add(1u64)).is_ok(),
            runtime.pointer_to(nowhere).is_some(),
        ];
        if used.contains(&true) {
            return Err(format!("{nowhere:?} is used: {used:?}").into());
        }
    }
    Ok(())
}

/// A segment, and what this rank has written into its stripe of each rank's part.
struct Known {
    segment: Segment,
    words: Vec<Vec<u64>>,
}

/// Goal: whatever ranks do, each stripe holds what its only writer wrote last, in every segment; segments come and go meanwhile,
/// always with zeros. Method: what is attached follows from a seed that all ranks share, what is written from one of their own.
fn at_random(runtime: &Runtime, seed: u64) -> Outcome {
    let (me, ranks) = (runtime.rank(), runtime.ranks());
    let stripe = u64::from(me.0) * WORDS;
    let mut common = ChaCha8Rng::seed_from_u64(seed);
    let mut random =
        ChaCha8Rng::seed_from_u64(seed ^ (u64::from(me.0) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut all: Vec<Known> = Vec::new();
    for step in 1..=60u64 {
        match common.random_range(0..6) {
            0 | 1 if all.len() < 6 => {
                let is_pinned = common.random_bool(0.7);
                let options = if is_pinned { SegmentOptions::pinned(0) } else { SegmentOptions::tiered(0) };
                // Sizes differ by rank.
                let bytes = 8 * WORDS * u64::from(ranks) + common.random_range(0..9000) * u64::from(me.0);
                let segment = runtime.attach(&options.sized(bytes))?;
                let words = vec![vec![0; WORDS as usize]; ranks as usize];
                all.push(Known { segment, words });
            }
            2 if !all.is_empty() => {
                let known = all.swap_remove(common.random_range(0..all.len()));
                known.segment.detach()?;
                let there = known.segment.address(Rank((me.0 + 1) % ranks), 0);
                if runtime.get_value::<u64>(there).is_ok() || known.segment.bytes_of(me) != 0 {
                    return Err(format!("{:?} is used after it was detached", known.segment).into());
                }
                // The next may have its number.
                runtime.barrier()?;
            }
            _ => {}
        }
        for _ in 0..30 {
            let Some(last) = all.len().checked_sub(1) else { break };
            let Known { segment, words } = &mut all[random.random_range(0..=last)];
            let owner = random.random_range(0..ranks);
            let words = &mut words[owner as usize];
            let first = random.random_range(0..WORDS);
            let count = random.random_range(1..=(WORDS - first).min(if step % 5 == 0 { WORDS } else { 9 }));
            let at = segment.address(Rank(owner), 8 * (stripe + first));
            let mine = &mut words[first as usize..(first + count) as usize];
            let values: Vec<u64> = (0..count).map(|word| step << 32 | word).collect();
            match random.random_range(0..7) {
                0 => runtime.put(at, &values)?,
                1 => drop(runtime.put_nb(at, values.clone())?.wait()?),
                2 => runtime.batch(|batch| batch.put(at, &values))?,
                3 => {
                    runtime.memset(at, 0xAB, 8 * count)?;
                    mine.fill(0xABAB_ABAB_ABAB_ABAB);
                    continue;
                }
                4 => {
                    if runtime.update(at, Change::Add(step))? != mine[0] {
                        return Err(format!("an update of {at:?} found another word").into());
                    }
                    mine[0] = mine[0].wrapping_add(step);
                    continue;
                }
                5 => {
                    let mut found = vec![0; count as usize];
                    runtime.batch(|batch| batch.get(at, &mut found))?;
                    if found != mine {
                        return Err(format!("{at:?} is {found:?}, not {mine:?}").into());
                    }
                    continue;
                }
                _ => {
                    let found = runtime.get_nb(at, vec![0u64; count as usize])?.wait()?;
                    if found != mine {
                        return Err(format!("{at:?} is {found:?}, not {mine:?}").into());
                    }
                    continue;
                }
            }
            mine.copy_from_slice(&values);
        }
    }
    for Known { segment, words } in all {
        for (owner, words) in (0..).map(Rank).zip(&words) {
            let mut found = vec![0u64; WORDS as usize];
            runtime.get(segment.address(owner, 8 * stripe), &mut found)?;
            let end = segment.bytes_of(owner);
            if found != *words || runtime.get(segment.address(owner, end), &mut [0u8]).is_ok() {
                return Err(format!("the part of {owner} of {segment:?} is wrong at the end").into());
            }
        }
        segment.detach()?;
    }
    Ok(())
}

/// Ranks of a node use each other's parts by pointers; others see it.
fn point(runtime: &Runtime) -> Outcome {
    let (me, ranks) = (runtime.rank(), runtime.ranks());
    let segment = runtime.attach(&SegmentOptions::pinned(64 << 10))?;
    for owner in (0..ranks).map(Rank) {
        let is_here = runtime.layout().node_of(owner) == runtime.node()
            || runtime.settings().conduit == vgas::config::ConduitChoice::Smp;
        let at = segment.address(owner, 32 << 10);
        let (word, behind) = (runtime.pointer_to(at), runtime.pointer_to(segment.address(owner, 64 << 10)));
        if word.is_some() != is_here || behind.is_some() {
            return Err(format!("{owner} from {me}: {word:?}, {behind:?}").into());
        }
        match word {
            // SAFETY: the rule of this file.
            Some(word) => drop(unsafe { AtomicU64::from_ptr(word.cast()) }.fetch_add(1, Ordering::Relaxed)),
            None => drop(runtime.fetch_add(at, 1)?),
        }
    }
    runtime.barrier()?;
    let next = segment.address(Rank((me.0 + 1) % ranks), 32 << 10);
    let counted: u64 = runtime.get_value(next)?;
    if counted != u64::from(ranks)
        || segment.local_pages(5).is_ok()
        || runtime.pin(next, PinMode::Read).is_ok()
    {
        return Err(format!("{counted} ranks have counted, or a pinned segment has pages").into());
    }
    Ok(segment.detach()?)
}

/// A rank attaches one by itself, others learn of it, and of the next of the same number.
fn alone(runtime: &Runtime) -> Outcome {
    let (me, ranks) = (runtime.rank(), runtime.ranks());
    let next = Rank((me.0 + 1) % ranks);
    let before = u64::from((me.0 + ranks - 1) % ranks);
    for round in 0..5u64 {
        let bytes = 4096 * (round + 1) + 8 * u64::from(me.0);
        let own = runtime.attach(&SegmentOptions::pinned(bytes).independent())?;
        // All have attached as many, so that numbers are the same.
        let there = own.address(next, 4096 * (round + 1) - 8);
        runtime.barrier()?;
        runtime.open_remote(there)?;
        if own.bytes_of(next) != 4096 * (round + 1) + 8 * u64::from(next.0) {
            return Err(format!("round {round}: the part of {next} has another size").into());
        }
        if runtime.get_value::<u64>(there)? != 0 {
            return Err(format!("round {round}: something of another segment is left").into());
        }
        runtime.put_value(there, round << 32 | u64::from(me.0))?;
        runtime.barrier()?;
        let found: u64 = runtime.get_value(own.address(me, 4096 * (round + 1) - 8))?;
        if found != round << 32 | before {
            return Err(format!("round {round}: {before} has put {found:#x}").into());
        }
        runtime.barrier()?;
        own.detach()?;
        runtime.barrier()?;
        if runtime.open_remote(there).is_ok()
            || runtime.put_value(there, 1u64).is_ok()
            || own.detach().is_ok()
        {
            return Err(format!("round {round}: an own segment is used after its end").into());
        }
        runtime.barrier()?;
    }
    if runtime.attach(&SegmentOptions::pinned(0).independent()).is_ok() {
        return Err("an own segment of nothing".into());
    }
    Ok(())
}

/// Goal: a rank that uses what another has given up without telling it is named by who notices.
fn stale(runtime: &Runtime, _seed: u64) -> Outcome {
    runtime.attach(&SegmentOptions::pinned(4096))?;
    let there = GlobalAddress { segment: SegmentId(1024 + 256), ..GlobalAddress::pinned(Rank(0), 0) };
    let own = match runtime.rank() {
        Rank(0) => Some(runtime.attach(&SegmentOptions::pinned(4096).independent())?),
        _ => None,
    };
    runtime.barrier()?;
    if own.is_none() {
        runtime.open_remote(there)?;
        runtime.put_value(there, 1u64)?;
    }
    runtime.barrier()?;
    own.as_ref().map_or(Ok(()), Segment::detach)?;
    runtime.barrier()?;
    match own {
        Some(_) => Ok(runtime.wait_until(|| false)?),
        None => Ok(runtime.put_value(there, 2u64)?),
    }
}
