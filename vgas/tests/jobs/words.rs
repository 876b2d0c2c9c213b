//! Words that are written while they are read: each is one of those that were written, whichever way it takes.

use crate::Setting;
use crate::scenarios::{Outcome, Scenario, with};
use vgas::{Rank, Runtime, SegmentOptions};

pub const ALL: &[Scenario] = &[Scenario { name: "words", settings, rank }];

fn settings() -> Vec<Setting> {
    let (tcp, smp) = (with(&[("cache.size", "8MiB")]), with(&[("cache.size", "8MiB"), ("conduit", "smp")]));
    vec![
        Setting::new(2, 1, &tcp),
        Setting::new(2, 2, &tcp),
        Setting::new(4, 2, &tcp),
        Setting::new(3, 3, &smp),
    ]
}

/// Of a piece: one that a message's head brings along, one of a page, and one that several messages bring.
const WORDS: [usize; 4] = [2, 400, 3000, 100_000];

/// Where a piece begins, and ends behind its last word: bytes that are no word.
const BESIDE: [usize; 2] = [0, 4];

/// What is written, and read, in each way.
const ROUNDS: u8 = 24;

fn rank(runtime: &Runtime, _seed: u64) -> Outcome {
    runtime.attach(&SegmentOptions::tiered(1 << 20))?;
    let home_only = SegmentOptions::tiered(0).page_size(4 << 10).home_only(true);
    let kinds = [
        ("pinned", SegmentOptions::pinned(0)),
        ("home-only", home_only),
        ("tiered", SegmentOptions::tiered(0)),
        // A page takes several messages.
        ("large pages", SegmentOptions::tiered(0).page_size(256 << 10)),
    ];
    for (kind, options) in kinds {
        let segment = runtime.attach(&options.sized(900_000))?;
        for (words, beside) in WORDS.into_iter().flat_map(|words| BESIDE.map(|beside| (words, beside))) {
            let bytes = 2 * beside + 8 * words;
            // The writer's own part, and that of the rank which is farthest from it.
            for owner in [Rank(0), Rank(runtime.ranks() - 1)] {
                let place = segment.address(owner, (8 - beside) as u64);
                if runtime.rank() == Rank(0) {
                    runtime.memset(place, 0, bytes as u64)?;
                }
                runtime.barrier()?;
                let mut found = vec![0; bytes];
                for round in 1..=ROUNDS {
                    match (runtime.rank(), round % 8) {
                        (Rank(0), 0) => runtime.memset(place, round, bytes as u64)?,
                        (Rank(0), _) => runtime.put(place, &vec![round; bytes])?,
                        _ => runtime.get(place, &mut found)?,
                    }
                    let is_torn = |word: &&[u8]| word.iter().any(|byte| *byte != word[0]);
                    if let Some(torn) = found[beside..bytes - beside].chunks_exact(8).find(is_torn) {
                        return Err(format!("a word of {words} of {owner}, {kind}, is {torn:?}").into());
                    }
                }
                runtime.barrier()?;
            }
        }
        segment.detach()?;
    }
    Ok(())
}
