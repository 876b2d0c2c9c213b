//! Measures a rank's cost of a page of its node's NVMe that is in no cache, to be run by `vgas run`:
//!
//! ```text
//! cargo build --profile profiling -p vgas-command && cargo build --profile profiling -p vgas-bench --example own_miss
//! vgas run -n 1 --page 4KiB --cache 64MiB -- valgrind --tool=callgrind --toggle-collect='*Client::get_slow*' \
//!     target/profiling/examples/own_miss [GETS]
//! ```
//!
//! It says how many gets were misses that this rank has served by itself; callgrind's count divided by them is the figure.
//! Instructions of the kernel and its device do not count.

use std::time::Instant;
use vgas::say::print;
use vgas::{Counter, GlobalAddress, Rank, Runtime, SegmentOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let gets: usize = std::env::args().nth(1).map_or(Ok(2000), |word| word.parse())?;
    let runtime = Runtime::init()?;
    // SAFETY: it only counts.
    let pool = unsafe { runtime.raw_client() }.pool();
    let bytes = 4 * pool.layout().frames_bytes();
    runtime.attach(&SegmentOptions::tiered(bytes))?;
    let page_bytes = runtime.page_bytes() as u64;
    let page = vec![1u64; page_bytes as usize / 8];
    let pages = bytes / page_bytes;
    for page_number in 0..pages {
        runtime.put(GlobalAddress::tiered(Rank(0), page_number * page_bytes), &page)?;
    }
    // All pages once, in an order that does not look like a scan.
    let random = (0..pages).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15 | 1) % pages);
    let counted = || runtime.rank_statistics().get(Counter::NvmReads);
    let (before, began) = (counted(), Instant::now());
    let mut block = vec![0u8; page_bytes as usize];
    for page_number in random.take(gets) {
        runtime.get(GlobalAddress::tiered(Rank(0), page_number * page_bytes), &mut block)?;
    }
    let (misses, spent) = (counted() - before, began.elapsed());
    let each = spent.as_secs_f64() * 1e6 / gets as f64;
    print(format!("{misses} of {gets} gets were own misses; {each:.1} us a get\n"))?;
    runtime.finalize()?;
    Ok(())
}
