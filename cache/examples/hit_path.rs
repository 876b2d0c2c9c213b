//! What a hit costs: small gets and puts against a plain array access, large ones against memcpy, and what a revocation
//! costs the agent. Medians of short alternated runs, in processor time, so that neighbours disturb little; ratios are
//! taken within one run.
//!
//! `cargo run --release -p vgas-cache --example hit_path [-- --fences]` (`--fences`: as where membarrier is refused)

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use vgas_cache::page::PageIndex;
use vgas_cache::pool::{
    Attempt, Fences, Intent, Outcome, PageState, PinMode, PoolAgent, PoolClient, PoolSpec, TableLayout,
};
use vgas_shm::Mapping;

const ROUNDS: usize = 101;

fn pool(page_bytes: u32, frames: u32, fences: Fences) -> (PoolAgent, PoolClient) {
    let spec = PoolSpec {
        page_bytes,
        frames,
        page_bytes_max: 4 << 20,
        segment_pages_max: vec![u64::from(frames); 2],
        local_ranks: 1,
        wait_slots_per_rank: 16,
        hazard_slots_per_rank: 8,
        mapped_pages_per_rank: 0,
        agent_threads: 1,
        block_pages: 512,
    };
    let layout = TableLayout::new(&spec).expect("a sound specification");
    let table = Mapping::anonymous("table", layout.table_bytes()).expect("memory");
    let bytes = Mapping::anonymous("frames", layout.frames_bytes()).expect("memory");
    let agent = PoolAgent::create(&spec, table.clone(), bytes.clone(), fences).expect("a pool");
    for page in (0..u64::from(frames)).map(PageIndex) {
        let frame = agent.take_frame(agent.layout().page_size()).expect("a free frame");
        agent.frame_span(frame).expect("in range").write(&vec![page.0 as u8; page_bytes as usize]);
        agent.install(page, frame, PageState::Modified, false).expect("a free page");
    }
    let client = PoolClient::attach(&spec, table, bytes, 0).expect("a fresh rank");
    (agent, client)
}

/// Processor time of this thread.
fn now_ns() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Runs the candidates in a changing order, `ROUNDS` times, each after a short run to settle its caches; the median
/// nanoseconds of one operation of each.
fn alternate(operations: usize, candidates: &mut [&mut dyn FnMut(usize)]) -> Vec<f64> {
    let mut times = vec![Vec::new(); candidates.len()];
    let mut order: Vec<usize> = (0..candidates.len()).collect();
    let mut random = ChaCha8Rng::seed_from_u64(1);
    for _ in 0..ROUNDS {
        order.shuffle(&mut random);
        for &which in &order {
            candidates[which](operations / 4);
            let start = now_ns();
            candidates[which](operations);
            times[which].push((now_ns() - start) / operations as f64);
        }
    }
    times.iter_mut().map(|times| median(times)).collect()
}

#[inline(never)]
fn array_read(array: &[u64], index: usize) -> u64 {
    array[index]
}

#[inline(never)]
fn array_write(array: &mut [u64], index: usize, value: u64) {
    array[index] = value;
}

#[inline(never)]
fn cached_read(client: &PoolClient, page: PageIndex, in_page: u32) -> u64 {
    let mut value = 0u64;
    // SAFETY: `value` is 8 private bytes.
    let attempt = unsafe { client.try_get(client.page(page), in_page, (&raw mut value).cast(), 8) };
    debug_assert_eq!(attempt, Attempt::Hit);
    value
}

#[inline(never)]
fn cached_write(client: &PoolClient, page: PageIndex, in_page: u32, value: u64) {
    // SAFETY: `value` is 8 private bytes.
    let attempt = unsafe { client.try_put(client.page(page), in_page, (&raw const value).cast(), 8) };
    debug_assert_eq!(attempt, Attempt::Hit);
}

#[inline(never)]
fn pinned_read(page: &vgas_cache::pool::PinnedPage, in_page: u32) -> u64 {
    let mut value = 0u64;
    // SAFETY: `value` is 8 private bytes.
    let current = unsafe { page.try_get(in_page, (&raw mut value).cast(), 8) };
    debug_assert!(current);
    value
}

/// 8 bytes at changing places of the same 64 KiB, so that every candidate reads from the same level of cache.
fn small(fences: Fences) {
    const PAGE: u32 = 4096;
    const PAGES: usize = 16;
    const WORDS: usize = PAGES * PAGE as usize / 8;
    let (_agent, client) = pool(PAGE, PAGES as u32, fences);
    let mut array = vec![1u64; WORDS];
    let pin = client.try_pin(client.page(PageIndex(0)), PinMode::Read).expect("a cached page");
    // A step that is odd visits all words in a scattered order.
    let place = |n: usize| (n * 1237) % WORDS;
    let reads = alternate(
        100_000,
        &mut [
            &mut |n| {
                let mut sum = 0u64;
                for n in 0..n {
                    sum = sum.wrapping_add(array_read(&array, place(n)));
                }
                black_box(sum);
            },
            &mut |n| {
                let mut sum = 0u64;
                for n in 0..n {
                    let at = place(n) * 8;
                    sum = sum.wrapping_add(cached_read(
                        &client,
                        PageIndex((at / PAGE as usize) as u64),
                        (at % PAGE as usize) as u32,
                    ));
                }
                black_box(sum);
            },
            &mut |n| {
                let mut sum = 0u64;
                for n in 0..n {
                    sum = sum.wrapping_add(pinned_read(&pin, (place(n) * 8 % PAGE as usize) as u32));
                }
                black_box(sum);
            },
        ],
    );
    println!("8-byte read of an array, not inlined           {:7.2} ns", reads[0]);
    println!(
        "8-byte get of a cached page                    {:7.2} ns  {:+.2} ns",
        reads[1],
        reads[1] - reads[0]
    );
    println!(
        "8-byte get of a pinned page                    {:7.2} ns  x{:.2}",
        reads[2],
        reads[2] / reads[0]
    );
    let writes = alternate(
        100_000,
        &mut [
            &mut |n| {
                for n in 0..n {
                    array_write(black_box(&mut array), place(n), n as u64);
                }
            },
            &mut |n| {
                for n in 0..n {
                    let at = place(n) * 8;
                    cached_write(
                        &client,
                        PageIndex((at / PAGE as usize) as u64),
                        (at % PAGE as usize) as u32,
                        n as u64,
                    );
                }
            },
        ],
    );
    println!("8-byte write of an array, not inlined          {:7.2} ns", writes[0]);
    println!(
        "8-byte put of a cached page                    {:7.2} ns  {:+.2} ns",
        writes[1],
        writes[1] - writes[0]
    );
}

/// Whole pages of one size against memcpy of the same bytes, so that both meet the same caches.
fn large(page_bytes: u32, fences: Fences) {
    // Enough pages to leave the nearest cache for small sizes, few enough to stay out of DRAM's noise for large ones.
    let pages = ((8 << 20) / page_bytes).max(2);
    let (agent, client) = pool(page_bytes, pages, fences);
    let bytes = page_bytes as usize;
    let mut private = vec![1u8; bytes];
    let frames: Vec<_> = (0..u64::from(pages))
        .map(PageIndex)
        .map(|page| agent.frame_span(agent.entry(page).expect("in range").frame()).expect("in range"))
        .collect();
    let place = |n: usize| frames[n % pages as usize].address();
    let operations = ((16 << 20) / bytes).max(4);
    let to = private.as_mut_ptr();
    let times = alternate(
        operations,
        &mut [
            &mut |n| {
                for n in 0..n {
                    // SAFETY: both ranges are valid and apart.
                    unsafe { libc::memcpy(to.cast(), place(n).cast(), black_box(bytes)) };
                }
            },
            &mut |n| {
                for n in 0..n {
                    // SAFETY: `to` has `bytes` bytes.
                    let attempt = unsafe {
                        client.try_get(
                            client.page(PageIndex((n % pages as usize) as u64)),
                            0,
                            to,
                            black_box(page_bytes),
                        )
                    };
                    assert_eq!(attempt, Attempt::Hit);
                }
            },
            &mut |n| {
                for n in 0..n {
                    // SAFETY: both ranges are valid and apart.
                    unsafe { libc::memcpy(place(n).cast(), to.cast(), black_box(bytes)) };
                }
            },
            &mut |n| {
                for n in 0..n {
                    // SAFETY: `to` has `bytes` bytes.
                    let attempt = unsafe {
                        client.try_put(
                            client.page(PageIndex((n % pages as usize) as u64)),
                            0,
                            to,
                            black_box(page_bytes),
                        )
                    };
                    assert_eq!(attempt, Attempt::Hit);
                }
            },
        ],
    );
    println!(
        "{:5} KiB  get {:6.1} GB/s, memcpy {:6.1} GB/s, {:.3}    put {:6.1} GB/s, memcpy {:6.1} GB/s, {:.3}",
        bytes >> 10,
        bytes as f64 / times[1],
        bytes as f64 / times[0],
        times[0] / times[1],
        bytes as f64 / times[3],
        bytes as f64 / times[2],
        times[2] / times[3],
    );
}

/// Taking pages from users that are not there: the barrier's price, one page at a time and in a batch.
fn revocations(fences: Fences) {
    let (mut agent, client) = pool(4096, 64, fences);
    let mut done = Vec::new();
    for batch in [1u64, 64] {
        let mut times: Vec<f64> = (0..ROUNDS * 5)
            .map(|_| {
                // A thread that has used pages has a slot to be looked at.
                let _ = client.peek(PageIndex(0));
                let start = now_ns();
                for page in (0..batch).map(PageIndex) {
                    agent.revoke(page, Intent::Evict).expect("in range");
                }
                while agent.revoking() {
                    agent.poll_revocations(&mut done).expect("membarrier works");
                }
                for (page, outcome) in done.drain(..) {
                    assert_eq!(outcome, Outcome::Quiet);
                    agent.unhold(page).expect("in range");
                }
                (now_ns() - start) / batch as f64
            })
            .collect();
        println!(
            "revocation of {batch:2} pages at once                 {:7.0} ns a page",
            median(&mut times)
        );
    }
}

fn main() {
    let fences = match std::env::args().nth(1).as_deref() {
        None => Fences::Detect,
        Some("--fences") => Fences::Symmetric,
        Some(_) => {
            eprintln!("usage: hit_path [--fences]");
            std::process::exit(2);
        }
    };
    small(fences);
    for page_bytes in [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20] {
        large(page_bytes, fences);
    }
    revocations(fences);
}
