//! Counts random numbers in bins that are spread over all ranks: small messages go to where the bin is, its owner's
//! handler counts.
//!
//! Run it: `cargo build --release --examples && target/release/vgas run -n 4 --nodes 2 -- target/release/examples/histogram`

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vgas::{Rank, Runtime};

/// The handler that counts; programs have the indices from 128 on.
const COUNT: u8 = 128;

const BINS: u32 = 64;
const NUMBERS: u64 = 200_000;

/// Numbers that travel in one message.
const BATCH: usize = 256;

fn main() -> vgas::Result<()> {
    let bins: Arc<Vec<AtomicU64>> = Arc::new((0..BINS).map(|_| AtomicU64::new(0)).collect());
    let counted = bins.clone();
    let runtime = Runtime::builder()
        .handler(COUNT, move |_, _, payload| {
            if let vgas::Arrived::Medium(bytes) = payload {
                for bin in bytes.iter() {
                    // A peer's bytes are data: one that names no bin counts nowhere.
                    if let Some(bin) = counted.get(usize::from(*bin)) {
                        bin.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        })
        .init()?;
    let (me, ranks) = (runtime.rank(), runtime.ranks());
    let mut batches: Vec<Vec<u8>> = vec![Vec::with_capacity(BATCH); ranks as usize];
    let mut state = u64::from(me.0) + 1;
    for _ in 0..NUMBERS {
        // A linear congruential generator will do.
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let bin = (state >> 33) as u32 % BINS;
        let owner = bin % ranks;
        let batch = &mut batches[owner as usize];
        batch.push(bin as u8);
        if batch.len() == BATCH {
            runtime.request(Rank(owner), COUNT, &[], batch)?;
            batch.clear();
        }
    }
    for (owner, batch) in (0..).map(Rank).zip(&batches).filter(|(_, batch)| !batch.is_empty()) {
        runtime.request(owner, COUNT, &[], batch)?;
    }
    // A message is done when its handler has run: all numbers are counted when the sums agree.
    let all = NUMBERS * u64::from(ranks);
    loop {
        let mine: u64 = bins.iter().map(|bin| bin.load(Ordering::Relaxed)).sum();
        if runtime.all_reduce(mine, |a, b| a + b)? == all {
            break;
        }
    }
    let own = bins.iter().filter(|bin| bin.load(Ordering::Relaxed) > 0).count();
    vgas::print(format_args!("{me} of {ranks} counted {own} bins\n"))?;
    runtime.finalize()
}
