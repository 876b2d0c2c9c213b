//! Virtual nodes with links and drives of their own rates.

use crate::Setting;
use crate::scenarios::{Outcome, Scenario, with};
use std::time::{Duration, Instant};
use vgas::{GlobalAddress, Rank, Runtime, SegmentOptions};

pub const ALL: &[Scenario] = &[
    Scenario {
        name: "cluster_link",
        settings: || {
            let link = [("cluster.link", "80mbit,1ms"), ("segment.pinned_max", "4MiB")];
            let mut settings = vec![Setting::new(3, 3, &with(&link))];
            match vgas::launch::holds_back() {
                Ok(true) => {
                    settings.push(Setting::new(3, 3, &with(&[link[0], link[1], ("cluster.netns", "on")])))
                }
                Ok(false) => {
                    eprintln!("skipped: no tc, or no tbf in the kernel, holds back a network namespace")
                }
                Err(error) => eprintln!("skipped: {error}"),
            }
            settings
        },
        rank: links,
    },
    Scenario {
        name: "cluster_drive",
        settings: || {
            let slow = |more: &'static str| with(&[("cluster.nvm", "16MiB,2k"), ("agent.threads", more)]);
            vec![Setting::new(2, 2, &slow("1")), Setting::new(2, 1, &slow("2"))]
        },
        rank: drives,
    },
];

const BYTES: usize = 1 << 20;

/// Goal: what passes a link takes as long as its bytes do at 10 MB a second, when two nodes send to one as long as both together, and
/// an answer does not come before twice the delay. All bytes come. In namespaces, the kernel lets some bytes pass at once.
fn links(runtime: &Runtime, _seed: u64) -> Outcome {
    runtime.attach(&SegmentOptions::pinned(2 * BYTES as u64))?;
    let me = runtime.rank().0;
    let least = |millis| {
        Duration::from_millis(millis).mul_f64(if runtime.settings().cluster.netns { 0.9 } else { 1.0 })
    };
    runtime.barrier()?;
    let start = Instant::now();
    if me > 0 {
        let place = GlobalAddress::pinned(Rank(0), u64::from(me - 1) * BYTES as u64);
        runtime.put(place, &vec![me as u8; BYTES])?;
        let single = start.elapsed();
        if single < least(104) {
            return Err(format!("1 MiB came over 80 Mbit/s in {single:?}").into());
        }
    }
    runtime.barrier()?;
    let both = start.elapsed();
    if both < least(209) {
        return Err(format!("two nodes sent 1 MiB each to one over 80 Mbit/s in {both:?}").into());
    }
    if me == 0 {
        for rank in 1..3u8 {
            let mut bytes = vec![0; BYTES];
            runtime.get(GlobalAddress::pinned(Rank(0), u64::from(rank - 1) * BYTES as u64), &mut bytes)?;
            if bytes.iter().any(|byte| *byte != rank) {
                return Err(format!("not all bytes of rank {rank} have come").into());
            }
        }
    } else {
        let start = Instant::now();
        let byte: u8 = runtime.get_value(GlobalAddress::pinned(Rank(0), u64::from(me - 1) * BYTES as u64))?;
        let answered = start.elapsed();
        if byte != me as u8 || answered < Duration::from_millis(2) {
            return Err(format!("a byte {byte} came back in {answered:?}").into());
        }
    }
    Ok(runtime.barrier()?)
}

/// Goal: pages that come from NVMe come no faster than the drive gives them: a segment of four times the cache, read by its own rank and
/// by another, is what was put, and takes as long as its bytes do.
fn drives(runtime: &Runtime, _seed: u64) -> Outcome {
    let bytes: u64 = 8 << 20;
    runtime.attach(&SegmentOptions::tiered(bytes))?;
    let (me, ranks) = (runtime.rank().0, runtime.ranks());
    let block = |owner: u32, at: u64| vec![u64::from(owner) << 32 | at; 1 << 13];
    let blocks = bytes / (1 << 16);
    for at in 0..blocks {
        runtime.put(GlobalAddress::tiered(Rank(me), at << 16), &block(me, at))?;
    }
    runtime.barrier()?;
    let start = Instant::now();
    let owner = (me + 1) % ranks;
    let mut found = vec![0u64; 1 << 13];
    for at in 0..blocks {
        runtime.get(GlobalAddress::tiered(Rank(owner), at << 16), &mut found)?;
        if found != block(owner, at) {
            return Err(format!("block {at} of rank {owner} is not what was put").into());
        }
    }
    let took = start.elapsed();
    // At least half of it was on NVMe, and what was read may still have to be written.
    if took < Duration::from_millis(240) {
        return Err(format!("{bytes} bytes came at 16 MiB/s in {took:?}").into());
    }
    Ok(runtime.barrier()?)
}
