//! What the ranks of a test job do.

use crate::{Setting, addresses, forms, locks, mates, named, progress, segments, services, streamed};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use vgas::{
    Arrived, Change, Counter, GlobalAddress, Kind, LocalPart, Rank, Runtime, Segment, SegmentId,
    SegmentOptions,
};

pub type Outcome = Result<(), Box<dyn std::error::Error>>;

/// A scenario, and in which settings it is run.
pub struct Scenario {
    pub name: &'static str,
    pub settings: fn() -> Vec<Setting>,
    pub rank: fn(&Runtime, u64) -> Outcome,
}

/// The smallest cache there can be makes everything be evicted all the time.
pub fn small() -> Vec<(&'static str, &'static str)> {
    vec![
        ("cache.size", "1MiB"),
        ("cache.page", "4KiB"),
        ("segment.tiered_max", "64MiB"),
        ("segment.pinned_max", "1MiB"),
    ]
}

pub fn with(more: &[(&'static str, &'static str)]) -> Vec<(&'static str, &'static str)> {
    small().into_iter().chain(more.iter().copied()).collect()
}

const NO_FOLDER: &[(&str, &str)] = &[("segment.kind", "pinned"), ("nvm.directory", "/nonexistent")];

const ALL: &[Scenario] = &[
    Scenario {
        name: "ring",
        settings: || {
            vec![
                Setting::new(1, 1, &small()),
                Setting::new(4, 1, &small()),
                Setting::new(4, 2, &small()),
                Setting::new(3, 3, &with(&[("conduit", "smp")])),
            ]
        },
        rank: ring,
    },
    Scenario {
        name: "refused",
        settings: || vec![Setting::new(3, 1, &small()), Setting::new(4, 2, &small())],
        rank: refused,
    },
    Scenario {
        name: "too_early",
        settings: || {
            vec![
                Setting::new(3, 1, &small()),
                Setting::new(3, 3, &small()),
                // Plain GASNet, which needs no folder on NVMe.
                Setting::new(3, 3, &with(NO_FOLDER)),
            ]
        },
        rank: too_early,
    },
    Scenario { name: "no_folder", settings: || vec![Setting::new(2, 2, &with(NO_FOLDER))], rank: no_folder },
    Scenario {
        name: "answers",
        settings: || vec![Setting::new(3, 1, &small()), Setting::new(3, 3, &small())],
        rank: answers,
    },
    Scenario {
        name: "rooted",
        settings: || vec![Setting::new(3, 1, &small()), Setting::new(3, 3, &small())],
        rank: rooted,
    },
    Scenario {
        name: "traffic",
        settings: || {
            vec![
                Setting::new(1, 1, &small()),
                Setting::new(3, 1, &small()),
                Setting::new(2, 2, &small()),
                Setting::new(4, 2, &small()),
                Setting::new(3, 3, &with(&[("conduit", "smp")])),
                Setting::new(3, 3, &with(&[("ablation.cooperative", "off")])),
                Setting::new(2, 2, &with(&[("ablation.in_place", "off")])),
                Setting::new(2, 2, &with(&[("ablation.read_ahead", "off"), ("ablation.batch", "off")])),
                Setting::new(
                    2,
                    2,
                    &with(&[("ablation.whole_page_put", "off"), ("ablation.replacement", "lru")]),
                ),
                Setting::new(3, 2, &with(&[("hooks", "delay=200us,loss=2%,count")])),
                Setting::new(2, 2, &with(&[("hooks", "loss=5%,rate=100MiB,trace,delay=100us")])),
                Setting::new(2, 2, &with(&[("cache.page", "64KiB"), ("cache.size", "4MiB")])),
                Setting::new(2, 1, &with(&[("nvm.device", "blocking")])),
                Setting::new(2, 2, &with(&[("nvm.device", "memory")])),
                Setting::new(2, 1, &with(&[("agent.threads", "2")])),
                Setting::new(4, 2, &with(&[("agent.threads", "3")])),
                Setting::new(3, 3, &with(&[("agent.threads", "2"), ("conduit", "smp")])),
            ]
        },
        rank: traffic,
    },
    Scenario {
        name: "scan",
        settings: || {
            vec![
                Setting::new(1, 1, &small()),
                Setting::new(2, 2, &small()),
                Setting::new(2, 2, &with(&[("agent.threads", "2")])),
            ]
        },
        rank: scan,
    },
    Scenario {
        name: "prefault",
        settings: || {
            let large = [("cache.size", "48MiB"), ("cache.page", "64KiB"), ("cache.prefault", "on")];
            vec![Setting::new(2, 1, &with(&large)), Setting::new(2, 2, &with(&large))]
        },
        rank: prefault,
    },
    Scenario {
        name: "false_sharing",
        settings: || {
            vec![
                Setting::new(2, 2, &small()),
                Setting::new(4, 4, &with(&[("conduit", "smp")])),
                Setting::new(2, 2, &with(&[("ablation.in_place", "off")])),
                Setting::new(4, 4, &with(&[("agent.threads", "2")])),
            ]
        },
        rank: false_sharing,
    },
    Scenario {
        name: "forms",
        settings: || {
            vec![
                Setting::new(1, 1, &small()),
                Setting::new(3, 1, &small()),
                Setting::new(4, 2, &small()),
                Setting::new(2, 2, &with(&[("conduit", "smp"), ("cache.page", "64KiB")])),
            ]
        },
        rank: forms::forms,
    },
    Scenario {
        name: "goes_on",
        settings: || {
            vec![
                Setting::new(2, 1, &small()),
                Setting::new(4, 2, &small()),
                Setting::new(2, 2, &with(&[("ablation.in_place", "off")])),
                Setting::new(2, 2, &with(&[("conduit", "smp")])),
            ]
        },
        rank: progress::goes_on,
    },
    Scenario {
        name: "relaxed",
        settings: || {
            vec![
                Setting::new(3, 1, &small()),
                Setting::new(3, 3, &small()),
                Setting::new(2, 2, &with(&[("ablation.in_place", "off")])),
            ]
        },
        rank: forms::relaxed,
    },
    Scenario {
        name: "atomics",
        settings: || {
            vec![
                Setting::new(1, 1, &small()),
                Setting::new(4, 2, &small()),
                Setting::new(3, 3, &with(&[("conduit", "smp")])),
                Setting::new(4, 2, &with(&[("agent.threads", "2"), ("ablation.cooperative", "off")])),
                Setting::new(3, 3, &with(&[("ablation.in_place", "off"), ("cache.page", "16KiB")])),
            ]
        },
        rank: atomics,
    },
    Scenario { name: "addresses", settings: addresses::settings, rank: addresses::rank },
    Scenario { name: "mates", settings: mates::settings, rank: mates::rank },
    Scenario { name: "segments", settings: segments::settings, rank: segments::rank },
    Scenario { name: "streamed", settings: streamed::settings, rank: streamed::rank },
    Scenario { name: "weighted", settings: streamed::settings, rank: streamed::weighted },
    Scenario { name: "leaving", settings: segments::settings_of_leaving, rank: segments::leave },
    Scenario { name: "attach_again", settings: segments::settings, rank: segments::again },
    Scenario { name: "full_disk", settings: segments::settings_of_a_full_disk, rank: segments::full_disk },
    Scenario {
        name: "too_many_sizes",
        settings: segments::settings_of_too_many_sizes,
        rank: segments::too_many_sizes,
    },
    Scenario { name: "services", settings: services::settings, rank: services::rank },
    Scenario { name: "owned", settings: services::settings_of_owned, rank: services::rank_of_owned },
    Scenario { name: "locks", settings: locks::settings, rank: locks::rank },
    // Parts of `named::sequence`, which are not run by themselves.
    Scenario { name: "named_write", settings: Vec::new, rank: named::write },
    Scenario { name: "named_verify", settings: Vec::new, rank: named::verify },
    Scenario { name: "named_without_a_part", settings: Vec::new, rank: named::without_a_part },
    Scenario { name: "named_mixed", settings: Vec::new, rank: named::mixed },
    Scenario { name: "named_together", settings: Vec::new, rank: named::one_of_many },
    Scenario { name: "named_crash", settings: Vec::new, rank: named::crash },
    Scenario { name: "named_refused", settings: Vec::new, rank: named::refusal },
    Scenario { name: "named_damaged", settings: Vec::new, rank: named::damaged },
];

/// All scenarios of all files, each with what the job must say when it is to end badly.
pub fn all() -> impl Iterator<Item = (&'static Scenario, Option<&'static str>)> {
    let good = ALL
        .iter()
        .chain(crate::cluster::ALL)
        .chain(crate::local::ALL)
        .chain(crate::misses::ALL)
        .chain(crate::own::ALL)
        .chain(crate::large::ALL)
        .chain(crate::parts::ALL)
        .chain(crate::fetches::ALL)
        .chain(crate::reads::ALL)
        .chain(crate::words::ALL)
        .chain(crate::pinned::ALL)
        .chain(crate::teams::ALL)
        .chain(crate::teams_nb::ALL);
    let good = good.map(|scenario| (scenario, None));
    let bad = crate::local::ENDING_BADLY.iter().chain(crate::pinned::ENDING_BADLY);
    good.chain(bad.map(|(scenario, says)| (scenario, Some(*says))))
}

/// Goal: what is wrong with one rank's call is an error on every rank, and nobody waits for ever. Method: one rank asks for
/// too much of each kind of segment, the others for nothing wrong; then one reduces a value of another size.
fn refused(runtime: &Runtime, _seed: u64) -> Outcome {
    let me = runtime.rank().0;
    let says = |rank: u32, own: &'static str, others: &'static str| if me == rank { own } else { others };
    let tiered = runtime.attach(&SegmentOptions::tiered(if me == 1 { 65 << 20 } else { 4096 }));
    let pinned = runtime.attach(&SegmentOptions::pinned(if me == 2 { 2 << 20 } else { 4096 }));
    let reduced = match runtime.rank().0 {
        0 => runtime.all_reduce(1u8, |a, b| a + b).map(u64::from),
        _ => runtime.all_reduce(1u64, |a, b| a + b),
    };
    let attached = [
        (tiered.map(|_| 0), says(1, "segment.tiered_max", "rank 1 could not attach its segment")),
        (pinned.map(|_| 0), says(2, "segment.pinned_max", "rank 2 could not attach its segment")),
    ];
    for (result, expected) in attached.into_iter().chain([(reduced, "bytes in an all-reduce")]) {
        match result {
            Err(error) if error.to_string().contains(expected) => {}
            other => return Err(format!("{other:?} without {expected:?}").into()),
        }
    }
    Ok(())
}

/// Goal: a pinned segment that is used before it is attached is an error of who does it, not the end of the job.
fn too_early(runtime: &Runtime, _seed: u64) -> Outcome {
    let right = Rank((runtime.rank().0 + 1) % runtime.ranks());
    for result in [
        runtime.put_value(GlobalAddress::pinned(right, 0), 1u64),
        runtime.get_value::<u64>(GlobalAddress::pinned(right, 0)).map(drop),
        runtime.fetch_add(GlobalAddress::pinned(right, 0), 1).map(drop),
    ] {
        match result {
            Err(error) if error.to_string().contains("attach segments first") => {}
            other => return Err(format!("before attach: {other:?}").into()),
        }
    }
    runtime.barrier()?;
    runtime.attach(&SegmentOptions::pinned(4096))?;
    Ok(runtime.put_value(GlobalAddress::pinned(right, 0), 1u64)?)
}

/// Goal: a tiered segment in a job of pinned ones is refused when the folder cannot be used, and the job goes on.
fn no_folder(runtime: &Runtime, _seed: u64) -> Outcome {
    match runtime.attach(&SegmentOptions::tiered(1 << 20)) {
        Err(error) if error.to_string().contains("cannot open the folder /nonexistent") => {
            Ok(runtime.barrier()?)
        }
        other => Err(format!("a segment in no folder: {other:?}").into()),
    }
}

const ASK: u8 = 128;
const ANSWER: u8 = 129;

/// Answers that have come: their number, and a sum of what is in them.
static ANSWERS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Asks a rank, which answers while it polls.
pub fn ask(runtime: &Runtime, rank: Rank) -> vgas::Result<()> {
    runtime.request(rank, ASK, &[], &[])
}

/// Answers so far.
pub fn answered() -> u64 {
    ANSWERS[0].load(Ordering::Acquire)
}

/// Goal: handlers answer with and without bytes.
fn answers(runtime: &Runtime, _seed: u64) -> Outcome {
    let ranks = u64::from(runtime.ranks());
    for rank in (0..runtime.ranks()).map(Rank) {
        runtime.request(rank, ASK, &[], &[])?;
        runtime.request(rank, ASK, &[], b"twelve bytes")?;
    }
    runtime.wait_until(|| ANSWERS[0].load(Ordering::Acquire) == 2 * ranks)?;
    match ANSWERS[1].load(Ordering::Relaxed) {
        sum if sum == ranks * (1 + 12) => Ok(()),
        sum => Err(format!("the answers sum up to {sum}").into()),
    }
}

/// Goal: reductions and gatherings end at their root, in the order of the ranks.
fn rooted(runtime: &Runtime, _seed: u64) -> Outcome {
    let (me, ranks) = (runtime.rank().0, runtime.ranks());
    let root = Rank(ranks - 1);
    // Neither commutative nor the same from another end.
    let mut reduced = [[u64::from(me) + 1, 10]];
    let append = |[left, power]: [u64; 2], [right, by]: [u64; 2]| [left * by + right, power * by];
    runtime.world()?.reduce(root.0, &mut reduced, append)?;
    let gathered = runtime.all_gatherv(&vec![me as u8; me as usize])?;
    let number = (1..=u64::from(ranks)).fold(0, |sum, digit| sum * 10 + digit);
    let expected = if me == root.0 { [[number, 10u64.pow(ranks)]] } else { [[u64::from(me) + 1, 10]] };
    let strings: Vec<Vec<u8>> = (0..ranks).map(|rank| vec![rank as u8; rank as usize]).collect();
    if (reduced, &gathered) != (expected, &strings) {
        return Err(format!("reduced to {reduced:?}, gathered {gathered:?}").into());
    }
    Ok(())
}

/// Runs one rank of a scenario.
pub fn run_rank(name: &str, seed: u64) -> ExitCode {
    let Some(scenario) = all().map(|(scenario, _)| scenario).find(|scenario| scenario.name == name) else {
        eprintln!("no scenario {name}");
        return ExitCode::FAILURE;
    };
    let outcome = || -> Outcome {
        let runtime = Runtime::builder()
            .handler(ASK, |token, _, payload| {
                token.check(match payload {
                    Arrived::Medium(bytes) => token.reply_medium(ANSWER, &[], &bytes),
                    _ => token.reply_short(ANSWER, &[1]),
                });
            })
            .handler(ANSWER, |_, arguments, payload| {
                let bytes = if let Arrived::Medium(bytes) = payload { bytes.len() } else { 0 };
                let sum = arguments.iter().copied().map(u64::from).sum::<u64>() + bytes as u64;
                ANSWERS[1].fetch_add(sum, Ordering::Relaxed);
                ANSWERS[0].fetch_add(1, Ordering::Release);
            })
            .init()?;
        (scenario.rank)(&runtime, seed)?;
        runtime.finalize()?;
        Ok(())
    };
    match outcome() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {error}");
            ExitCode::FAILURE
        }
    }
}

pub fn attach(runtime: &Runtime, bytes: u64) -> vgas::Result<()> {
    runtime.attach(&SegmentOptions::tiered(bytes)).map(drop)
}

/// The tiered segment that a scenario has attached first, with pages of the usual size.
pub fn first(runtime: &Runtime) -> Segment {
    runtime.segment(Kind::Tiered, SegmentId::FIRST).expect("the scenario has attached a segment")
}

/// This rank's part of it as memory, until the end of the job.
pub fn local(runtime: &Runtime) -> vgas::Result<LocalPart> {
    let local = first(runtime).local()?;
    std::mem::forget(local.clone());
    Ok(local)
}

/// Goal: a put is seen by its target's own get after a barrier.
fn ring(runtime: &Runtime, _seed: u64) -> Outcome {
    attach(runtime, 1 << 20)?;
    let right = Rank((runtime.rank().0 + 1) % runtime.ranks());
    runtime.put_value(GlobalAddress::tiered(right, 0), u64::from(runtime.rank().0) + 1)?;
    runtime.barrier()?;
    let left: u64 = runtime.get_value(GlobalAddress::tiered(runtime.rank(), 0))?;
    let expected = u64::from((runtime.rank().0 + runtime.ranks() - 1) % runtime.ranks()) + 1;
    if left != expected {
        return Err(format!("read {left} instead of {expected}").into());
    }
    Ok(())
}

/// Goal: processes draw tickets from each other's words without losing one, whichever way an update takes.
fn atomics(runtime: &Runtime, _seed: u64) -> Outcome {
    const ROUNDS: u64 = 100;
    runtime.attach(&SegmentOptions::tiered(1 << 20))?;
    runtime.attach(&SegmentOptions::pinned(4096))?;
    let ranks = u64::from(runtime.ranks());
    let word = |rank: u32| GlobalAddress::pinned(Rank(rank), 64);
    let mut last = vec![None; ranks as usize];
    for _ in 0..ROUNDS {
        for (rank, last) in (0..).zip(&mut last) {
            let ticket = runtime.fetch_add(word(rank), 1)?;
            if last.replace(ticket).is_some_and(|last| last >= ticket) {
                return Err(format!("ticket {ticket} after {last:?}").into());
            }
        }
    }
    runtime.barrier()?;
    let sum: u64 = runtime.get_value(word(0))?;
    if sum != ROUNDS * ranks {
        return Err(format!("{sum} tickets instead of {}", ROUNDS * ranks).into());
    }
    runtime.barrier()?;
    // One of all succeeds.
    let won = runtime.compare_swap(word(0), sum, u64::from(runtime.rank().0))? == sum;
    let winners = runtime.all_reduce(u64::from(won), |a, b| a + b)?;
    if winners != 1 || runtime.get_value::<u64>(word(0))? >= ranks {
        return Err(format!("{winners} ranks replaced the same word").into());
    }
    tiered_atomics(runtime)
}

/// Goal: sums in tiered words are exact, whatever happens to their pages. Method: all ranks add to words of all segments, alone and
/// many at a time, while they put words beside them and the owners add by pointers; of the segments, larger than the caches, other
/// pages are read in between, so that everything is evicted.
fn tiered_atomics(runtime: &Runtime) -> Outcome {
    const ROUNDS: u64 = 40;
    const WORDS: u64 = 64;
    let (me, ranks) = (runtime.rank(), u64::from(runtime.ranks()));
    let bytes = first(runtime).bytes_of(me);
    // Some in the same page, some in others, of 8 bytes each: two sums of 4, or one.
    let word =
        |rank: u64, index: u64| GlobalAddress::tiered(Rank(rank as u32), index * 8 + index % 4 * (bytes / 4));
    let local = local(runtime)?;
    let mut random = ChaCha8Rng::seed_from_u64(u64::from(me.0));
    let mut page = vec![0u8; 4096];
    for round in 0..ROUNDS {
        for rank in 0..ranks {
            let index = random.random_range(0..WORDS);
            runtime.update(word(rank, index), Change::Add(1i32))?;
            runtime.update(
                GlobalAddress { offset: word(rank, index).offset + 4, ..word(rank, index) },
                Change::Add(-1i32),
            )?;
            // Every word once, in one call.
            let all: Vec<_> =
                (0..WORDS).map(|index| (word(rank, index), Change::Add(1u64 << 32 | 1))).collect();
            if round % 8 == 0 && runtime.update_many(&all)?.len() != all.len() {
                return Err("not every update was answered".into());
            }
            let beside = word(rank, WORDS + u64::from(me.0));
            runtime.put_value(beside, round)?;
            if runtime.get_value::<u64>(beside)? != round {
                return Err(format!("a word beside is not {round}").into());
            }
            let elsewhere = random.random_range(0..bytes / 4096) * 4096;
            runtime.get(GlobalAddress::tiered(Rank(rank as u32), elsewhere), &mut page)?;
        }
        // SAFETY: an aligned word of this rank's segment, used as an atomic.
        let own = unsafe { AtomicU64::from_ptr(local.base().add(word(0, 3).offset as usize).cast()) };
        own.fetch_add(5, Ordering::SeqCst);
    }
    runtime.barrier()?;
    for rank in 0..ranks {
        let (mut low, mut high) = (0u32, 0u32);
        for index in 0..WORDS {
            let sum: u64 = runtime.get_value(word(rank, index))?;
            (low, high) = (low.wrapping_add(sum as u32), high.wrapping_add((sum >> 32) as u32));
        }
        let many = (WORDS * ROUNDS.div_ceil(8) * ranks) as u32;
        let expected =
            (many + (ranks * ROUNDS) as u32 + 5 * ROUNDS as u32, many.wrapping_sub((ranks * ROUNDS) as u32));
        if (low, high) != expected {
            return Err(format!(
                "sums {low} and {high} in the segment of rank {rank} instead of {expected:?}"
            )
            .into());
        }
    }
    for (at, what) in [(bytes, "outside"), (4, "multiple of 8")] {
        match runtime.fetch_add(GlobalAddress::tiered(Rank(0), at), 1) {
            Err(error) if error.to_string().contains(what) => {}
            other => return Err(format!("an update at {at}: {other:?}").into()),
        }
    }
    Ok(())
}

/// Goal: whatever ranks do at random, each word holds what its only writer wrote last, and nobody ever sees a word go
/// back. Method: words belong to writers by turns (one word each, some hundred bytes each, or whole pages each), so that
/// pages are shared by all; segments are several times larger than the caches, so that everything is evicted.
fn traffic(runtime: &Runtime, seed: u64) -> Outcome {
    const BYTES: u64 = 2 << 20;
    const STEPS: u64 = 4000;
    attach(runtime, BYTES)?;
    let words = (BYTES / 8) as usize;
    let ranks = u64::from(runtime.ranks());
    let me = u64::from(runtime.rank().0);
    let mut random = ChaCha8Rng::seed_from_u64(seed ^ me.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    // What this rank has last seen of every word; of its own words, what it has written.
    let mut seen = vec![0u64; words * ranks as usize];
    let block = |word: u64| match word / (words as u64 / 4) {
        0 => 1,
        1 => 32,
        2 => 512,
        _ => 8192,
    };
    let writer = |word: u64| word / block(word) % ranks;
    let check = |seen: &mut [u64], segment: u64, first: u64, values: &[u64]| -> Outcome {
        for (word, &value) in (first..).zip(values) {
            let place = &mut seen[segment as usize * words + word as usize];
            let own = writer(word) == me;
            if (own && value != *place) || value < *place {
                return Err(format!(
                    "word {word} of segment {segment} is {value:#x}, was {:#x} ({})",
                    *place,
                    if own { "mine" } else { "another's" }
                )
                .into());
            }
            *place = value;
        }
        Ok(())
    };
    for step in 1..=STEPS {
        let segment = random.random_range(0..ranks);
        let at = |word: u64| GlobalAddress::tiered(Rank(segment as u32), word * 8);
        let first = random.random_range(0..words as u64);
        if random.random_bool(0.5) {
            // A piece of a block of this rank's own, sometimes all of it.
            let size = block(first);
            let start = first / size / ranks * ranks * size + me * size;
            let within = if random.random_bool(0.3) { 0 } else { random.random_range(0..size) };
            let length = if within == 0 { size } else { random.random_range(1..=size - within) };
            let (first, end) = (start + within, (start + within + length).min(words as u64));
            if first >= end || (first..end).any(|word| writer(word) != me) {
                continue;
            }
            let values: Vec<u64> = (first..end).map(|_| step).collect();
            if random.random_bool(0.3) {
                runtime.put_nb(at(first), values)?.wait()?;
            } else {
                runtime.put(at(first), &values)?;
            }
            seen[segment as usize * words..][first as usize..end as usize].fill(step);
        } else {
            let most = if random.random_bool(0.1) { 4096 } else { 16 };
            let length = random.random_range(1..=most).min(words as u64 - first) as usize;
            let mut values = vec![0u64; length];
            if random.random_bool(0.3) {
                values = runtime.get_nb(at(first), values)?.wait()?;
            } else {
                runtime.get(at(first), &mut values)?;
            }
            check(&mut seen, segment, first, &values)?;
        }
    }
    runtime.barrier()?;
    // Everybody reads everything: nothing may have been lost.
    for segment in 0..ranks {
        for first in (0..words as u64).step_by(2048) {
            let mut values = vec![0u64; 2048];
            runtime.get(GlobalAddress::tiered(Rank(segment as u32), first * 8), &mut values)?;
            check(&mut seen, segment, first, &values)?;
        }
    }
    // And all agree.
    let sum = seen.iter().fold(0u64, |sum, word| sum.rotate_left(5) ^ word);
    let sums = runtime.all_gatherv(&sum.to_le_bytes())?;
    if sums.iter().any(|other| *other != sum.to_le_bytes()) {
        return Err("the ranks see different memory".into());
    }
    Ok(())
}

/// Goal: where that is asked for, memory is behind all of the cache when ranks begin: their daemon has it mapped before anything was read or written.
fn prefault(runtime: &Runtime, _seed: u64) -> Outcome {
    let daemon = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
    let status = std::fs::read_to_string(format!("/proc/{daemon}/status"))?;
    let shared = status.lines().find_map(|line| line.strip_prefix("RssShmem:"));
    let shared: u64 =
        shared.and_then(|text| text.trim().strip_suffix(" kB")).ok_or("no RssShmem")?.trim().parse()?;
    let size = &runtime.settings().cache.size;
    if shared < 48 << 10 {
        return Err(format!("{shared} KiB of a cache of {size:?} are there").into());
    }
    attach(runtime, 1 << 20)?;
    Ok(runtime.barrier()?)
}

/// Goal: a scan over more than the cache reads what was written, in whole pages, and runs ahead of its reader.
fn scan(runtime: &Runtime, _seed: u64) -> Outcome {
    const BYTES: u64 = 16 << 20;
    attach(runtime, BYTES)?;
    let own = |offset: u64| GlobalAddress::tiered(runtime.rank(), offset);
    let piece = |index: u64| -> Vec<u64> { (0..8192).map(|word| index << 32 | word).collect() };
    for index in 0..BYTES / 65536 {
        runtime.put(own(index * 65536), &piece(index))?;
    }
    runtime.barrier()?;
    let next = Rank((runtime.rank().0 + 1) % runtime.ranks());
    for rank in [runtime.rank(), next] {
        for index in 0..BYTES / 65536 {
            let mut values = vec![0u64; 8192];
            runtime.get(GlobalAddress::tiered(rank, index * 65536), &mut values)?;
            if values != piece(index) {
                return Err(format!("piece {index} of {rank} is wrong").into());
            }
        }
    }
    let statistics = runtime.statistics()?;
    let counted = [Counter::WholePagePuts, Counter::ReadAheadPages, Counter::ReadAheadUsed];
    if counted.iter().any(|&counter| statistics.get(counter) == 0) {
        return Err(format!("no whole-page puts, or no read-ahead that was of use:\n{statistics}").into());
    }
    Ok(())
}

/// Goal: nodes that write the same page in turn lose nothing.
fn false_sharing(runtime: &Runtime, _seed: u64) -> Outcome {
    attach(runtime, 1 << 20)?;
    let me = u64::from(runtime.rank().0);
    let at = |index: u64| GlobalAddress::tiered(Rank(0), index);
    for round in 0..2000u64 {
        runtime.put_value(at(me), round as u8)?;
        let mine: u8 = runtime.get_value(at(me))?;
        if mine != round as u8 {
            return Err(format!("wrote {round}, read {mine}").into());
        }
    }
    runtime.barrier()?;
    for rank in 0..u64::from(runtime.ranks()) {
        let value: u8 = runtime.get_value(at(rank))?;
        if value != 1999u64 as u8 {
            return Err(format!("the byte of rank {rank} is {value}").into());
        }
    }
    Ok(())
}
