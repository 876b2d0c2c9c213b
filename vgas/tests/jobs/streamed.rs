//! Streamed segments: what is read once leaves what is read again where it is. And weights: of two segments that are used alike, more
//! stays of the one that is to be kept longer.

use crate::Setting;
use crate::scenarios::Outcome;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use vgas::{Runtime, Segment, SegmentOptions};

pub fn settings() -> Vec<Setting> {
    const SMALL: [(&str, &str); 3] =
        [("cache.size", "8MiB"), ("cache.page", "4KiB"), ("segment.tiered_max", "256MiB")];
    vec![Setting::new(1, 1, &SMALL), Setting::new(2, 2, &SMALL), Setting::new(2, 1, &SMALL)]
}

/// What all ranks read again, bytes: half of a node's cache.
const RECORDS: u64 = 4 << 20;
/// What they read once: several times the cache.
const SCAN: u64 = 32 << 20;

/// Where the processors are others', ranks run far ahead of their agent, and it cannot tell what to keep: so often it is tried until it can.
const TRIES: u32 = 8;

/// Goal: a scan of a streamed segment, in pages of the same or of another size, leaves more of the records in the cache than one of
/// another segment, which leaves next to none. (It leaves all of them, mostly.)
pub fn rank(runtime: &Runtime, _: u64) -> Outcome {
    let own = RECORDS / u64::from(runtime.ranks());
    runtime.attach(&SegmentOptions::tiered(own))?;
    for page_bytes in [4 << 10, 64 << 10] {
        let mut tries = 0;
        loop {
            tries += 1;
            let otherwise = share_kept_beside(runtime, 4 << 10, false)?;
            let kept = share_kept_beside(runtime, page_bytes, true)?;
            if runtime.all_reduce(u64::from(kept < otherwise + 0.2), u64::max)? == 0 {
                break;
            }
            if tries == TRIES {
                let stream = format!("a stream in pages of {page_bytes}");
                return Err(
                    format!("{kept} of the records stay beside {stream}, {otherwise} otherwise").into()
                );
            }
        }
    }
    Ok(())
}

/// How much of the records stays here when all ranks have scanned a segment.
fn share_kept_beside(
    runtime: &Runtime,
    page_bytes: u32,
    streamed: bool,
) -> Result<f64, Box<dyn std::error::Error>> {
    let part = SCAN / u64::from(runtime.ranks());
    let options = SegmentOptions::tiered(0).page_size(page_bytes).streamed(streamed);
    let scanned = runtime.attach(&options.sized(part))?;
    read(runtime, &crate::scenarios::first(runtime), RECORDS / u64::from(runtime.ranks()), 3)?;
    runtime.barrier()?;
    read(runtime, &scanned, part, 1)?;
    runtime.barrier()?;
    let kept = share_kept(runtime, &crate::scenarios::first(runtime))?;
    runtime.barrier()?;
    scanned.detach()?;
    Ok(kept)
}

/// Reads what all ranks have of a segment, so often.
fn read(runtime: &Runtime, segment: &Segment, part: u64, times: u64) -> Outcome {
    let mut piece = vec![0_u8; 32 << 10];
    for _ in 0..times {
        for owner in (0..runtime.ranks()).map(vgas::Rank) {
            for offset in (0..part).step_by(piece.len()) {
                runtime.get(segment.address(owner, offset), &mut piece)?;
            }
        }
    }
    Ok(())
}

/// Goal: of two segments with pages of one size, used alike at random, each as large as all caches, about as much stays in the cache if they weigh
/// the same, and more of the second if it weighs four times as much.
pub fn weighted(runtime: &Runtime, seed: u64) -> Outcome {
    runtime.attach(&SegmentOptions::tiered(0))?;
    let nodes = u64::from(runtime.nodes());
    let own = nodes * 2 * RECORDS / u64::from(runtime.ranks());
    for weight in [1, 4] {
        let options = |weight| SegmentOptions::tiered(0).page_size(4 << 10).weight(weight);
        let segments =
            [runtime.attach(&options(1).sized(own))?, runtime.attach(&options(weight).sized(own))?];
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        for _ in 0..10_000 {
            let owner = vgas::Rank(random.random_range(0..runtime.ranks()));
            let offset = random.random_range(0..own >> 12) << 12;
            for segment in &segments {
                runtime.get_value::<u64>(segment.address(owner, offset))?;
            }
        }
        runtime.barrier()?;
        let [light, heavy] = segments.each_ref().map(|segment| share_kept(runtime, segment));
        let more = heavy? - light?;
        // A node holds its part of them.
        let (least, most) = if weight == 1 { (-0.15, 0.15) } else { (0.2 / nodes as f64, 1.0) };
        if !(least..=most).contains(&more) {
            return Err(format!("with the weight {weight}, {more} more of the second segment stays").into());
        }
        runtime.barrier()?;
        segments.iter().try_for_each(Segment::detach)?;
    }
    Ok(())
}

/// The part of a segment that this node has in its cache.
fn share_kept(runtime: &Runtime, segment: &Segment) -> Result<f64, Box<dyn std::error::Error>> {
    let (client, mut here, mut all) = (crate::client(runtime), 0, 0);
    for owner in (0..runtime.ranks()).map(vgas::Rank) {
        let partition = client.partition((segment.id(), owner)).ok_or("no part of a segment")?;
        all += partition.pages;
        here += partition.each_page().filter(|&page| client.pool().peek(page).state().readable()).count();
    }
    Ok(here as f64 / all as f64)
}
