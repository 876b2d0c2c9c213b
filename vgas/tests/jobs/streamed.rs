//! Streamed segments: what is read once leaves what is read again where it is.

use crate::Setting;
use crate::scenarios::Outcome;
use vgas::{Runtime, Segment, SegmentOptions, SegmentSpec};

pub fn settings() -> Vec<Setting> {
    const SMALL: [(&str, &str); 3] =
        [("cache.size", "8MiB"), ("cache.page", "4KiB"), ("segment.tiered_max", "256MiB")];
    vec![Setting::new(1, 1, &SMALL), Setting::new(2, 2, &SMALL), Setting::new(2, 1, &SMALL)]
}

/// What all ranks read again, bytes: half of a node's cache.
const RECORDS: u64 = 4 << 20;
/// What they read once: several times the cache.
const SCAN: u64 = 32 << 20;

/// Goal: a scan of a streamed segment, in pages of the same or of another size, leaves more of the records in the cache than one of
/// another segment, which leaves next to none. (It leaves all of them, mostly; fewer where ranks run far ahead of their agent.)
pub fn rank(runtime: &Runtime, _: u64) -> Outcome {
    let own = RECORDS / u64::from(runtime.ranks());
    runtime.attach(&SegmentSpec { tiered_bytes: own, ..SegmentSpec::default() })?;
    let mut otherwise = 0.0;
    for (page_bytes, streamed) in [(4 << 10, false), (4 << 10, true), (64 << 10, true)] {
        let options = SegmentOptions { streamed, ..SegmentOptions::with_pages_of(page_bytes) };
        let scanned = runtime.attach_segment(SCAN / u64::from(runtime.ranks()), &options)?;
        read(runtime, Segment::FIRST, own, 3)?;
        runtime.barrier()?;
        read(runtime, scanned, SCAN / u64::from(runtime.ranks()), 1)?;
        runtime.barrier()?;
        let kept = share_kept(runtime)?;
        if !streamed {
            otherwise = kept;
        } else if kept < otherwise + 0.2 {
            return Err(format!(
                "{kept} of the records stay beside a stream in pages of {page_bytes}, {otherwise} otherwise"
            )
            .into());
        }
        runtime.barrier()?;
        runtime.detach_segment(scanned)?;
    }
    Ok(())
}

/// Reads what all ranks have of a segment, so often.
fn read(runtime: &Runtime, segment: Segment, part: u64, times: u64) -> Outcome {
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

/// The part of the first segment that this node has in its cache.
fn share_kept(runtime: &Runtime) -> Result<f64, Box<dyn std::error::Error>> {
    let (client, mut here, mut all) = (runtime.client(), 0, 0);
    for owner in (0..runtime.ranks()).map(vgas::Rank) {
        let range = client.partition(owner).ok_or("no part of the first segment")?.range();
        all += range.end - range.start;
        here += range.filter(|&page| client.pool().peek(page).state().readable()).count();
    }
    Ok(here as f64 / all as f64)
}
