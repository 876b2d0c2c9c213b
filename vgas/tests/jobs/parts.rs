//! Small gets at random from pages of a mebibyte and more, which hardly bring pages in and always bring the right bytes.

use crate::Setting;
use crate::scenarios::{Outcome, Scenario, with};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use vgas::{Counter, GlobalAddress, Rank, Runtime, SegmentOptions};

pub const ALL: &[Scenario] = &[Scenario {
    name: "parts",
    settings: || {
        let large = |more: &[(&'static str, &'static str)]| {
            let large = [("cache.page", "1MiB"), ("cache.size", "16MiB"), ("segment.tiered_max", "1GiB")];
            with(&[&large[..], more].concat())
        };
        vec![
            Setting::new(2, 1, &large(&[("cache.size", "24MiB")])),
            Setting::new(2, 2, &large(&[])),
            Setting::new(3, 3, &large(&[("conduit", "smp"), ("ablation.checksums", "off")])),
            Setting::new(
                2,
                2,
                &large(&[("cache.page", "4MiB"), ("cache.size", "64MiB"), ("nvm.device", "memory")]),
            ),
            Setting::new(2, 2, &large(&[("ablation.parts", "off")])),
        ]
    },
    rank: parts,
}];

/// Pages of all segments together, for each frame of all nodes.
const PAGES_PER_FRAME: u64 = 2;
const ROUNDS: u64 = 4;
/// Places that each rank puts in a round; everybody gets all of them afterwards.
const PUTS: usize = 8;
const GETS: usize = 60;

/// What byte `at` of a segment holds before anybody else writes there.
fn content(owner: u32, at: u64) -> u8 {
    let word = (at / 8 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ u64::from(owner);
    (word.wrapping_mul(0xD6E8_FEB8_6659_FD93) >> (at % 8 * 8)) as u8
}

/// What a rank puts into which words in a round, as every rank can tell.
fn puts(seed: u64, round: u64, rank: u32, ranks: u32, words: u64) -> Vec<(Rank, u64, u64)> {
    let mut random = ChaCha8Rng::seed_from_u64(seed ^ (round << 32 | u64::from(rank)));
    let mut places = Vec::new();
    while places.len() < PUTS {
        // Each rank has words of its own.
        let word = random.random_range(0..words / u64::from(ranks)) * u64::from(ranks) + u64::from(rank);
        let owner = Rank(random.random_range(0..ranks));
        if !places.iter().any(|&(other, at, _)| (other, at) == (owner, word * 8)) {
            places.push((owner, word * 8, random.random::<u64>()));
        }
    }
    places
}

fn parts(runtime: &Runtime, seed: u64) -> Outcome {
    let (me, ranks) = (runtime.rank().0, runtime.ranks());
    let page = runtime.page_bytes();
    let frames = runtime.cache_layout().frames_bytes() / page as u64;
    let frames = frames * u64::from(runtime.nodes());
    let bytes = (PAGES_PER_FRAME * frames / u64::from(ranks)) * page as u64;
    runtime.attach(&SegmentOptions::tiered(bytes))?;
    // The last page is never written.
    let written = bytes - page as u64;
    for start in (0..written).step_by(page) {
        let whole: Vec<u8> = (start..start + page as u64).map(|at| content(me, at)).collect();
        runtime.put(GlobalAddress::tiered(runtime.rank(), start), &whole)?;
    }
    runtime.barrier()?;
    let before = runtime.statistics()?;
    let mut random = ChaCha8Rng::seed_from_u64(seed ^ u64::from(me));
    // Gets of what nobody has changed, of every length and place, across the ends of pages, too.
    for _ in 0..GETS {
        let length = [1, 8, 100, 4096, 16 << 10][random.random_range(0..5)];
        let owner = random.random_range(0..ranks);
        let at = match random.random_range(0..8) {
            0 => random.random_range(1..bytes / page as u64) * page as u64 - random.random_range(0..=length),
            _ => random.random_range(0..=bytes - length),
        };
        let mut found = vec![0xee; length as usize];
        runtime.get(GlobalAddress::tiered(Rank(owner), at), &mut found)?;
        let right =
            (at..).zip(&found).all(|(at, &byte)| byte == if at < written { content(owner, at) } else { 0 });
        if !right {
            return Err(format!("{length} bytes at {at} of rank {owner} are wrong").into());
        }
    }
    runtime.barrier()?;
    let counted = runtime.statistics()?;
    let of = |counter| counted.get(counter) - before.get(counter);
    let (parts, read) = (of(Counter::NvmPartReads), of(Counter::NvmReadBytes));
    let gets = GETS as u64 * u64::from(ranks);
    if !runtime.settings().ablation.parts {
        if parts > 0 {
            return Err(format!("{parts} parts were read although that is switched off").into());
        }
    } else if parts < gets / 8 || read > gets * page as u64 / 2 {
        return Err(format!("{gets} gets read {parts} parts, and {read} bytes in all").into());
    }
    runtime.barrier()?;
    for round in 0..ROUNDS {
        for (owner, at, value) in puts(seed, round, me, ranks, written / 8) {
            runtime.put_value(GlobalAddress::tiered(owner, at), value)?;
        }
        runtime.barrier()?;
        for rank in (0..ranks).map(|rank| (rank + me) % ranks) {
            for (owner, at, value) in puts(seed, round, rank, ranks, written / 8) {
                let found = runtime.get_value::<u64>(GlobalAddress::tiered(owner, at))?;
                if found != value {
                    return Err(
                        format!("round {round}: {at} of {owner:?} is {found:#x}, not {value:#x}").into()
                    );
                }
            }
        }
        runtime.barrier()?;
    }
    Ok(())
}
