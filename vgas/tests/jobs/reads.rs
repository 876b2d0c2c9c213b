//! Reads never write: whatever the kind of segment and the way in which it is read, no page reaches NVMe that nobody wrote.

use crate::Setting;
use crate::scenarios::{Outcome, Scenario, with};
use crate::services::{Hand, Order};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use vgas::{Change, Counter, GlobalAddress, PinMode, Rank, Runtime, Segment, SegmentOptions};

pub const ALL: &[Scenario] = &[Scenario {
    name: "reads_write_nothing",
    settings: || {
        vec![
            Setting::new(2, 1, &with(&[CACHE])),
            Setting::new(4, 2, &with(&[CACHE])),
            Setting::new(3, 3, &with(&[CACHE, ("conduit", "smp"), ("agent.threads", "2")])),
            Setting::new(2, 2, &with(&[CACHE, ("ablation.cooperative", "off"), ("conduit", "smp")])),
        ]
    },
    rank: reads,
}];

const CACHE: (&str, &str) = ("cache.size", "2MiB");
/// Bytes of each rank's part: all parts together exceed the cache of a node.
const BYTES: u64 = 1536 << 10;
const PAGE: u64 = 16 << 10;
/// Pages that all ranks have copies of when their owner loads from them.
const SHARED: u64 = 6;
/// Bytes of a rank's part of the memory that is read so that all else is evicted.
const SWEPT: u64 = 4 << 20;
/// Pages that a rank maps at a time.
const MAPPED: u32 = 5;
/// Rounds of gets until all that was put has been written back.
const ROUNDS_MAX: u32 = 8;
/// Sweeps of other memory until nothing is written back any more.
const SWEEPS_MAX: u32 = 50;

fn content(owner: Rank, offset: u64) -> u64 {
    (offset / 8 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ u64::from(owner.0)
}

fn check(owner: Rank, offset: u64, words: &[u64], how: &str) -> Outcome {
    let wrong = (0..).zip(words).find(|(n, word)| **word != content(owner, offset + 8 * n));
    wrong.map_or(Ok(()), |(n, word)| Err(format!("{how}: {word:#x} at {} of {owner}", offset + 8 * n).into()))
}

/// Goal: reads by all ways leave the count of pages written to NVMe as it is, in segments of every kind. Method: all is written and
/// evicted first; after the reads all is evicted again, so that a page which is dirty would be counted.
fn reads(runtime: &Runtime, seed: u64) -> Outcome {
    let base = SegmentOptions::tiered(0).page_size(PAGE as u32);
    let kinds = [
        ("plain", base.clone()),
        ("relaxed", base.clone().relaxed(true)),
        ("home_only", base.clone().home_only(true)),
        ("in_place", base.clone().in_place(true)),
        ("streamed", base.clone().streamed(true)),
        ("without read_ahead", base.clone().read_ahead(false)),
        ("home_only, without read_ahead", base.clone().home_only(true).read_ahead(false)),
    ];
    runtime.attach(&SegmentOptions::tiered(BYTES).home_only(true))?;
    let sweep = runtime.attach(&base.sized(SWEPT))?;
    one_kind(runtime, seed, "the first", &crate::scenarios::first(runtime), &sweep)?;
    for (kind, options) in kinds {
        let segment = runtime.attach(&options.sized(BYTES))?;
        one_kind(runtime, seed, kind, &segment, &sweep)?;
        segment.detach()?;
    }
    Ok(())
}

/// All ranks read zeros until nothing is written back any more; how many pages have been written since the job began.
fn evict_all(runtime: &Runtime, sweep: &Segment) -> Result<u64, Box<dyn std::error::Error>> {
    let written = || -> vgas::Result<u64> {
        runtime.barrier()?;
        let counted = runtime.statistics()?.get(Counter::NvmWrites);
        runtime.barrier()?;
        Ok(counted)
    };
    let mut before = written()?;
    let mut bytes = vec![0u8; 64 << 10];
    for _ in 0..SWEEPS_MAX {
        for _ in 0..2 {
            for offset in (0..SWEPT).step_by(bytes.len()) {
                runtime.get(sweep.address(runtime.rank(), offset), &mut bytes)?;
            }
        }
        let now = written()?;
        if now == before {
            return Ok(now);
        }
        before = now;
    }
    Err("pages are written back for ever".into())
}

fn one_kind(runtime: &Runtime, seed: u64, kind: &str, segment: &Segment, sweep: &Segment) -> Outcome {
    let me = runtime.rank();
    let words: Vec<u64> = (0..BYTES).step_by(8).map(|offset| content(me, offset)).collect();
    runtime.put(segment.address(me, 0), &words)?;
    // Some dirty pages leave only when others of their segment come.
    let mut before = evict_all(runtime, sweep)?;
    for round in 0.. {
        gets(runtime, seed, segment)?;
        let now = evict_all(runtime, sweep)?;
        if now == std::mem::replace(&mut before, now) {
            break;
        }
        if round == ROUNDS_MAX {
            return Err(format!("{kind}: each round of gets writes pages to NVMe").into());
        }
    }
    type Way = fn(&Runtime, u64, &Segment) -> Outcome;
    let ways: [(&str, Way); 6] = [
        ("gets", gets),
        ("small gets", small_gets),
        ("gets that go on by themselves", gets_nb),
        ("pins", pins),
        ("pointers", pointers),
        ("services", services),
    ];
    for (how, way) in ways {
        // Pages that were put may still leave late; reads that make pages dirty do so each time.
        for round in 0.. {
            way(runtime, seed, segment).map_err(|error| format!("{kind}, {how}: {error}"))?;
            let now = evict_all(runtime, sweep)?;
            let pages = now - std::mem::replace(&mut before, now);
            if pages == 0 {
                break;
            }
            if round == ROUNDS_MAX {
                return Err(
                    format!("{kind}: {how} alone, and each time pages are written, at last {pages}").into()
                );
            }
        }
    }
    Ok(())
}

fn gets(runtime: &Runtime, _: u64, segment: &Segment) -> Outcome {
    let mut words = vec![0u64; (BYTES / 8) as usize];
    for owner in (0..runtime.ranks()).map(Rank) {
        runtime.get(segment.address(owner, 0), &mut words)?;
        check(owner, 0, &words, "whole")?;
        runtime.prefetch(segment.address(owner, 0), BYTES)?;
        for offset in (0..BYTES).step_by(PAGE as usize) {
            let page = &mut words[..(PAGE / 8) as usize];
            runtime.get(segment.address(owner, offset), page)?;
            check(owner, offset, page, "a page")?;
        }
    }
    Ok(())
}

fn small_gets(runtime: &Runtime, seed: u64, segment: &Segment) -> Outcome {
    let mut random = ChaCha8Rng::seed_from_u64(seed ^ u64::from(runtime.rank().0));
    for _ in 0..400 {
        let owner = Rank(random.random_range(0..runtime.ranks()));
        let offset = random.random_range(0..BYTES / 8) * 8;
        let word: u64 = runtime.get_value(segment.address(owner, offset))?;
        check(owner, offset, &[word], "a word")?;
    }
    Ok(())
}

fn gets_nb(runtime: &Runtime, _: u64, segment: &Segment) -> Outcome {
    let pieces = |owner| (0..BYTES).step_by(5 * 4096).map(move |offset| (owner, offset.min(BYTES - 4096)));
    let places: Vec<(Rank, u64)> = (0..runtime.ranks()).map(Rank).flat_map(pieces).collect();
    for some in places.chunks(16) {
        let started: Result<Vec<_>, _> = some
            .iter()
            .map(|&(owner, offset)| runtime.get_nb(segment.address(owner, offset), vec![0u64; 512]))
            .collect();
        for (handle, &(owner, offset)) in started?.into_iter().zip(some) {
            check(owner, offset, &handle.wait()?, "a handle")?;
        }
    }
    Ok(())
}

fn pins(runtime: &Runtime, _: u64, segment: &Segment) -> Outcome {
    for offset in (0..BYTES).step_by(PAGE as usize) {
        let page = runtime.pin(segment.address(runtime.rank(), offset), PinMode::Read)?;
        check(runtime.rank(), offset, &[page.get_value(0)?], "a pin")?;
    }
    Ok(())
}

/// Loads from the own part, also of pages that other nodes have copies of, and from parts of ranks of the node.
fn pointers(runtime: &Runtime, _: u64, segment: &Segment) -> Outcome {
    let me = runtime.rank();
    let mut page = vec![0u64; (PAGE / 8) as usize];
    for owner in (0..runtime.ranks()).map(Rank) {
        for offset in (0..SHARED * PAGE).step_by(PAGE as usize) {
            runtime.get(segment.address(owner, offset), &mut page)?;
            check(owner, offset, &page, "a copy")?;
        }
    }
    runtime.barrier()?;
    let load = |owner: Rank, base: *const u8| -> Outcome {
        for offset in (0..BYTES).step_by(1024) {
            // SAFETY: inside of the part, which all ranks only read.
            let word = unsafe { base.add(offset as usize).cast::<u64>().read_volatile() };
            check(owner, offset, &[word], "a pointer")?;
        }
        Ok(())
    };
    if *segment == crate::scenarios::first(runtime) {
        load(me, crate::scenarios::local(runtime)?.base())?;
    } else {
        let part = segment.local_pages(MAPPED)?;
        load(me, part.base())?;
        runtime.barrier()?;
        drop(part);
        for owner in runtime.layout().ranks_of(runtime.node()).map(Rank).filter(|owner| *owner != me) {
            load(owner, segment.local_of_peer(owner, MAPPED)?.base())?;
        }
    }
    runtime.barrier()?;
    Ok(())
}

/// What services read of the first segment, and updates that change nothing.
fn services(runtime: &Runtime, _: u64, segment: &Segment) -> Outcome {
    for owner in (0..runtime.ranks()).map(Rank) {
        let home = runtime.layout().node_of(owner);
        if *segment == crate::scenarios::first(runtime) {
            for offset in (0..BYTES).step_by(32 << 10) {
                let found = runtime.call::<Hand>(home, &Order::Read(owner.0, offset, 32 << 10))??;
                let words: Vec<u64> =
                    found.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
                check(owner, offset, &words, "a service")?;
            }
        }
        if *segment == crate::scenarios::first(runtime) {
            for offset in (0..BYTES).step_by(PAGE as usize) {
                let at: GlobalAddress = segment.address(owner, offset);
                check(owner, offset, &[runtime.update(at, Change::Or(0u64))?], "an update")?;
            }
        }
    }
    Ok(())
}
