//! Further segments: what attaching and detaching one of each kind takes, what 64 of them cost a hit and a miss, what many cost in
//! memory, and whether pages of two sizes share the cache without losing any of it.

use super::job::{self, Result};
use super::report::Report;
use crate::raw::client;
use crate::registry::{Benchmark, Options, Parameter, Row, Setup};
use std::hint::black_box;
use std::time::Instant;
use vgas::{Rank, Runtime, Segment, SegmentId, SegmentOptions};
use vgas_cache::pool::PageSize;

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "segments",
    help: "Attaching and detaching segments; hits and misses beside many of them; memory; pages of two sizes in one cache.",
    setup: Setup::Job { ranks: 4, nodes: 1 },
    settings: &[("cache.size", "128MiB")],
    parameters: &[
        Parameter { name: "samples", default: "21", help: "Samples of each figure." },
        Parameter {
            name: "many",
            default: "64",
            help: "Segments beside which hits and misses are measured.",
        },
        Parameter { name: "most", default: "700", help: "Segments whose memory is measured." },
        Parameter {
            name: "scans",
            default: "12",
            help: "Times that each of two segments is read, with pages of one size and of two.",
        },
    ],
    full: &[],
    figures: &[],
    check: |_| Ok(()),
    run,
};

/// Bytes of a segment whose pages are used one after the other.
const FIRST: u64 = 64 << 20;
const PAGE: u64 = 64 << 10;
/// Pages that are missed in one sample.
const MISSES: u64 = 16;

fn run(options: &Options) -> Result<Vec<Row>> {
    let (samples, many, most): (usize, usize, usize) =
        (options.get("samples")?, options.get("many")?, options.get("most")?);
    let scans: usize = options.get("scans")?;
    job::on_every_rank(Runtime::builder(), |runtime| {
        let one = runtime.attach(&SegmentOptions::tiered(FIRST))?;
        let tiered = come_and_go(runtime, samples, &SegmentOptions::tiered(0))?;
        let pinned = come_and_go(runtime, samples, &SegmentOptions::pinned(0))?;
        let (mut unused, mut further_unused) = (1, 1);
        let alone = beside(runtime, samples, &one, &mut unused)?;
        let small = SegmentOptions::tiered(0);
        let segments: Vec<Segment> =
            (0..many).map(|_| runtime.attach(&small.sized(FIRST))).collect::<vgas::Result<_>>()?;
        let last = segments.last().unwrap_or(&one);
        let first = beside(runtime, samples, &one, &mut unused)?;
        let further = beside(runtime, samples, last, &mut further_unused)?;
        segments.into_iter().try_for_each(|segment| segment.detach())?;

        // Until the rings of messages have been around once, each message touches memory that none has touched before.
        for _ in 0..ROUNDS {
            let none = runtime.attach(&small.sized(0))?;
            none.detach()?;
        }
        let before = memory(runtime)?;
        let all: Vec<Segment> =
            (0..most).map(|_| runtime.attach(&small.sized(4096))).collect::<vgas::Result<_>>()?;
        let after = memory(runtime)?;
        let each: [f64; 3] = std::array::from_fn(|part| (after[part] - before[part]) / most.max(1) as f64);
        all.into_iter().try_for_each(|segment| segment.detach())?;

        let [same, two] = two_sizes(runtime, scans)?;
        runtime.barrier()?;
        if runtime.rank() != Rank(0) {
            return Ok(Vec::new());
        }
        let mut report = Report::new("segments");
        for (kind, [attached, detached]) in [("tiered", tiered), ("pinned", pinned)] {
            report.add(&format!("attach a {kind} segment"), "latency", "us", attached);
            report.add(&format!("detach a {kind} segment"), "latency", "us", detached);
        }
        let whats =
            ["get of 8 bytes, cached", "put of 8 bytes, cached", "get of a page that nobody has used"];
        for (at, what) in whats.into_iter().enumerate() {
            let beside = [("beside many segments", &first[at]), ("in the last of many", &further[at])];
            for (place, times) in beside {
                let case = format!("{what}, {place}");
                report.compare(["latency", "ns"], (&case, times), ("beside none", &alone[at]));
            }
        }
        report.add("memory of a segment on the node", "memory", "B", vec![each.iter().sum()]);
        for (part, bytes) in PARTS.into_iter().zip(each) {
            report.add(&format!("of which {part}"), "memory", "B", vec![bytes]);
        }
        let share = two.kept / same.kept.max(1.0);
        report.add("cache that pages of two sizes fill, of what one fills", "share", "", vec![share]);
        for (sizes, Filled { kept, free, pool }) in [("one size", same), ("two sizes", two)] {
            report.add(&format!("cache that pages of {sizes} fill, of all"), "share", "", vec![kept / pool]);
            report.add(&format!("cache left free with {sizes}, of all"), "share", "", vec![free / pool]);
        }
        Ok(report.into_rows())
    })
}

/// Attaching and detaching so many times goes around all rings.
const ROUNDS: usize = 4000;

/// Microseconds of attaching a segment of 1 MiB each, and of detaching it when each rank has used a page of its part.
fn come_and_go(runtime: &Runtime, samples: usize, options: &SegmentOptions) -> Result<[Vec<f64>; 2]> {
    let mut times = [const { Vec::new() }; 2];
    for sample in 0..=samples {
        runtime.barrier()?;
        let (segment, attach) = timed(|| runtime.attach(&options.sized(1 << 20)))?;
        runtime.put(segment.address(runtime.rank(), 0), &[1; 4096])?;
        runtime.barrier()?;
        let ((), detach) = timed(|| segment.detach())?;
        if sample > 0 {
            times.iter_mut().zip([attach, detach]).for_each(|(all, time)| all.push(time / 1e3));
        }
    }
    Ok(times)
}

fn timed<T>(work: impl FnOnce() -> vgas::Result<T>) -> Result<(T, f64)> {
    let start = Instant::now();
    let result = work()?;
    Ok((result, start.elapsed().as_nanos() as f64))
}

/// Nanoseconds of a get and a put that hit, and of a get of an unused page, in rank 0's part of a segment.
fn beside(runtime: &Runtime, samples: usize, segment: &Segment, unused: &mut u64) -> Result<[Vec<f64>; 3]> {
    const TIMES: u64 = 100_000;
    let mut times = [const { Vec::new() }; 3];
    if runtime.rank() == Rank(0) {
        let at = |n: u64| segment.address(Rank(0), n * 1237 * 8 % PAGE);
        runtime.put(at(0), &[7; PAGE as usize])?;
        for sample in 0..=samples {
            let read = |n| {
                black_box(runtime.get_value::<u64>(at(n))?);
                Ok(())
            };
            let ((), gets) = timed(|| (0..TIMES).try_for_each(read))?;
            let ((), puts) = timed(|| (0..TIMES).try_for_each(|n| runtime.put_value(at(n), n)))?;
            let miss = |n| {
                let page = segment.address(Rank(0), (*unused + n) * PAGE);
                black_box(runtime.get_value::<u64>(page)?);
                Ok(())
            };
            let ((), misses) = timed(|| (0..MISSES).try_for_each(miss))?;
            *unused += MISSES;
            if sample > 0 {
                let found = [gets / TIMES as f64, puts / TIMES as f64, misses / MISSES as f64];
                times.iter_mut().zip(found).for_each(|(all, time)| all.push(time));
            }
        }
    }
    runtime.barrier()?;
    Ok(times)
}

/// Kinds of a node's memory.
const PARTS: [&str; 3] = ["the ranks'", "the daemon's", "shared"];

/// Bytes that the node's processes and the pages they share take, by [`PARTS`].
fn memory(runtime: &Runtime) -> Result<[f64; 3]> {
    let [own, shared] = resident("self")?;
    let mut parts = [own, 0, shared];
    if runtime.rank() == Rank(0) {
        let daemon = rustix::process::getppid().ok_or("no daemon")?.as_raw_nonzero().to_string();
        let [own, shared] = resident(&daemon)?;
        (parts[1], parts[2]) = (own, parts[2] + shared);
    }
    let all = runtime.barrier_with(&parts.map(u64::to_le_bytes).concat())?;
    let mut sums = [0.0; 3];
    for bytes in &all {
        let (words, _) = bytes.as_chunks::<8>();
        sums.iter_mut().zip(words).for_each(|(sum, word)| *sum += u64::from_le_bytes(*word) as f64);
    }
    Ok(sums)
}

/// Bytes that a process has for itself, and its part of what it shares: a page that four processes use counts a quarter in each.
fn resident(process: &str) -> Result<[u64; 2]> {
    let map = std::fs::read_to_string(format!("/proc/{process}/smaps_rollup"))?;
    let of = |kind: &str| -> Result<u64> {
        let line = map.lines().find_map(|line| line.strip_prefix(kind));
        let number = line.and_then(|line| line.split_whitespace().next());
        Ok(number.ok_or("the kernel counts no such memory")?.parse::<u64>()? << 10)
    };
    Ok([of("Pss_Anon:")?, of("Pss_Shmem:")?])
}

/// Shares of two segments' pages in the cache when there are more than it holds, in bytes.
#[derive(Clone, Copy)]
struct Filled {
    /// Has pages that ranks may read.
    kept: f64,
    /// Is ready for others.
    free: f64,
    pool: f64,
}

/// That of pages of one size, and of two.
fn two_sizes(runtime: &Runtime, scans: usize) -> Result<[Filled; 2]> {
    let cache = runtime.cache_layout().frames_bytes();
    let kept = |sizes: [u32; 2]| -> Result<Filled> {
        let segments: Vec<Segment> = sizes
            .into_iter()
            .map(|bytes| runtime.attach(&SegmentOptions::tiered(cache).page_size(bytes)))
            .collect::<vgas::Result<_>>()?;
        let mut filled = Filled { kept: 0.0, free: 0.0, pool: cache as f64 };
        if runtime.rank() == Rank(0) {
            let mut piece = vec![0_u8; 1 << 20];
            // In turn, so that both are used, far more than there is room for, and long enough that memory has gone where it is needed.
            for _ in 0..scans {
                for offset in (0..cache).step_by(piece.len()) {
                    for segment in &segments {
                        runtime.get(segment.address(Rank(0), offset), &mut piece)?;
                    }
                }
            }
            let pool = client(runtime).pool();
            let mut sizes: Vec<PageSize> =
                sizes.iter().filter_map(|&bytes| PageSize::of_bytes(bytes)).collect();
            sizes.dedup();
            let free = |size: PageSize| f64::from(pool.free_frames(size)) * f64::from(size.bytes());
            filled.free = sizes.into_iter().map(free).sum();
            let ranks = (0..runtime.ranks()).map(Rank);
            let first = ranks.map(|rank| (SegmentId::FIRST, rank));
            let all = segments.iter().map(|one| (one.id(), Rank(0))).chain(first);
            for partition in all.filter_map(|of| client(runtime).partition(of)) {
                let here = partition.each_page().filter(|&page| pool.peek(page).state().readable()).count();
                filled.kept += here as f64 * f64::from(partition.size.bytes());
            }
        }
        runtime.barrier()?;
        segments.into_iter().try_for_each(|segment| segment.detach())?;
        Ok(filled)
    };
    // Those of the first segment, which keep their room, are one of the sizes.
    let page = runtime.cache_layout().page_size().bytes();
    let other = if page < 1 << 20 { 1 << 20 } else { 64 << 10 };
    Ok([kept([page, page])?, kept([page, other])?])
}
