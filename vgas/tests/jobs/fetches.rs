//! Large gets of segments whose pages stay at their home: into plain memory, into memory that is itself paged, several at a time,
//! beside writers, and of a segment that goes away meanwhile.

use crate::Setting;
use crate::scenarios::{Outcome, Scenario, small, with};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use vgas::{Counter, Error, Rank, Runtime, Segment, SegmentOptions};

fn settings() -> Vec<Setting> {
    let (tcp, several) =
        (with(&[("cache.size", "8MiB")]), with(&[("agent.threads", "2"), ("cache.size", "8MiB")]));
    let smp = with(&[("conduit", "smp"), ("cache.size", "8MiB")]);
    // Less than what is read: pages come from the NVMe.
    let few = small();
    let late = with(&[("hooks", "delay=200us"), ("cache.size", "8MiB")]);
    vec![
        Setting::new(2, 2, &tcp),
        Setting::new(4, 2, &several),
        Setting::new(3, 3, &few),
        Setting::new(2, 2, &late),
        Setting::new(2, 2, &smp),
        Setting::new(2, 1, &tcp),
    ]
}

pub const ALL: &[Scenario] = &[Scenario { name: "fetches", settings, rank }];

/// Words of a rank's part: more than several questions may ask for.
const WORDS: usize = (3 << 20) / 8 - 100;

/// A word says who wrote it, when, and where: in both halves, so that a torn one shows.
fn word(owner: Rank, round: u32, at: usize) -> u64 {
    let half = (owner.0 << 28 ^ round << 20 ^ at as u32 & 0xf_ffff).wrapping_mul(0x9e37_79b1);
    u64::from(half) << 32 | u64::from(half)
}

fn check(owner: Rank, round: u32, first: usize, found: &[u64]) -> Outcome {
    for (at, &found) in (first..).zip(found) {
        if found != word(owner, round, at) {
            return Err(format!("word {at} of {owner} in round {round} is {found:#x}").into());
        }
    }
    Ok(())
}

fn rank(runtime: &Runtime, seed: u64) -> Outcome {
    runtime.attach(&SegmentOptions::tiered(2 << 20))?;
    for page_bytes in [4 << 10, 64 << 10] {
        let options = SegmentOptions::tiered(0).page_size(page_bytes).home_only(true);
        let segment = runtime.attach(&options.sized(8 * WORDS as u64))?;
        for round in 0..2 {
            whole(runtime, &segment, round)?;
        }
        questions(runtime, &segment)?;
        pieces(runtime, &segment, seed)?;
        into_own_pages(runtime, &segment)?;
        beside_a_writer(runtime, &segment)?;
        goes_away(runtime, &segment)?;
    }
    Ok(())
}

fn write_own(runtime: &Runtime, segment: &Segment, round: u32) -> Outcome {
    let me = runtime.rank();
    let words: Vec<u64> = (0..WORDS).map(|at| word(me, round, at)).collect();
    Ok(runtime.put(segment.address(me, 0), &words)?)
}

/// Goal: everything of everybody is read as it was written, in one get; again after it was written again.
fn whole(runtime: &Runtime, segment: &Segment, round: u32) -> Outcome {
    write_own(runtime, segment, round)?;
    runtime.barrier()?;
    let mut found = vec![0u64; WORDS];
    for owner in (0..runtime.ranks()).map(Rank) {
        runtime.get(segment.address(owner, 0), &mut found)?;
        check(owner, round, 0, &found)?;
    }
    Ok(runtime.barrier()?)
}

/// Goal: a long get asks its home in as few messages as the conduit needs: one for each quarter of a MiB, where bytes land.
fn questions(runtime: &Runtime, segment: &Segment) -> Outcome {
    let served = || -> vgas::Result<u64> {
        let counted = runtime.statistics()?.get(Counter::InPlaceServed);
        runtime.barrier()?;
        Ok(counted)
    };
    let last = Rank(runtime.ranks() - 1);
    let is_far = runtime.layout().node_of(last) != runtime.layout().node_of(Rank(0));
    let before = served()?;
    if runtime.rank().0 == 0 {
        let mut found = vec![0u64; WORDS];
        runtime.get(segment.address(last, 0), &mut found)?;
        check(last, 1, 0, &found)?;
    }
    runtime.barrier()?;
    let (asked, least) = (served()? - before, (8 * WORDS as u64).div_ceil(256 << 10));
    let most = if is_far { least + 1 } else { 0 };
    if asked > most {
        Err(format!("{asked} questions for one get; {most} are enough").into())
    } else {
        Ok(())
    }
}

/// Goal: many gets of any length from anywhere at the same time get what is there, and write nothing beside it.
fn pieces(runtime: &Runtime, segment: &Segment, seed: u64) -> Outcome {
    let mut random = ChaCha8Rng::seed_from_u64(seed ^ u64::from(runtime.rank().0));
    let mut wanted = Vec::new();
    for _ in 0..24 {
        let most = [8, 2000, 200_000][random.random_range(0..3)];
        let count = random.random_range(1..=most);
        wanted.push((
            Rank(random.random_range(0..runtime.ranks())),
            random.random_range(0..WORDS - count),
            count,
        ));
    }
    let mut found: Vec<Vec<u64>> = wanted.iter().map(|&(_, _, count)| vec![7; count + 2]).collect();
    runtime.batch(|batch| {
        for (&(owner, first, count), found) in wanted.iter().zip(&mut found) {
            batch.get(segment.address(owner, 8 * first as u64), &mut found[1..=count])?;
        }
        Ok(())
    })?;
    for ((owner, first, count), found) in wanted.into_iter().zip(found) {
        check(owner, 1, first, &found[1..=count])?;
        if (found[0], found[count + 1]) != (7, 7) {
            return Err("a get has written beside its bytes".into());
        }
    }
    Ok(runtime.barrier()?)
}

/// Goal: bytes also get into this rank's own segment, of which only some pages can be mapped at a time.
fn into_own_pages(runtime: &Runtime, segment: &Segment) -> Outcome {
    {
        let local = crate::scenarios::local(runtime)?;
        let count = (1 << 20) / 8;
        for owner in (0..runtime.ranks()).map(Rank) {
            let to = local.address_of(4096).ok_or("no address")?.cast::<u64>();
            // SAFETY: a part of this rank's own segment, which nobody else uses between the barriers.
            let to = unsafe { std::slice::from_raw_parts_mut(to, count) };
            runtime.get(segment.address(owner, 8 * 1000), to)?;
            check(owner, 1, 1000, to)?;
        }
    }
    Ok(runtime.barrier()?)
}

/// Goal: a word that is read while its owner writes it is one of those that were written, whole.
fn beside_a_writer(runtime: &Runtime, segment: &Segment) -> Outcome {
    let me = runtime.rank();
    let mut found = vec![0u64; WORDS];
    for round in 2..5 {
        if me.0 == 0 {
            write_own(runtime, segment, round)?;
            continue;
        }
        runtime.get(segment.address(Rank(0), 0), &mut found)?;
        for (at, &found) in found.iter().enumerate() {
            if found >> 32 != found & u64::from(u32::MAX)
                || (1..5).all(|round| found != word(Rank(0), round, at))
            {
                return Err(format!("word {at} is {found:#x}, which nobody wrote").into());
            }
        }
    }
    Ok(runtime.barrier()?)
}

/// Goal: of a segment that its ranks detach, gets that are started and not waited for end before it goes; later ones are refused.
fn goes_away(runtime: &Runtime, segment: &Segment) -> Outcome {
    let next = Rank((runtime.rank().0 + 1) % runtime.ranks());
    let gets: Vec<_> = (0..4)
        .map(|_| runtime.get_nb(segment.address(next, 0), vec![0u64; WORDS]))
        .collect::<Result<_, _>>()?;
    for get in gets {
        get.wait()?;
    }
    runtime.barrier()?;
    segment.detach()?;
    match runtime.get(segment.address(next, 0), &mut [0u64; 9000]) {
        Err(Error::Cache(_)) => Ok(()),
        other => Err(format!("a get of a segment that is gone: {other:?}").into()),
    }
}
