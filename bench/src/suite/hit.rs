//! Cost of a hit: 8 bytes against a plain array read, large blocks against memcpy of the same bytes. Rank 0
//! measures pages whose home is the last rank's node, in processor time, so that neighbours disturb little.
//! Then several threads of it, and several ranks of its node, measure at once.
//!
//! # Rule for the unsafe code in this file
//!
//! Pinned frames are read and written only by rank 0, which holds the pins meanwhile; the other ranks wait in a barrier.

use super::job::{self, Result};
use super::report::Report;
use crate::figure::{Better, Claim, Figure, Form, Reference};
use crate::raw::client;
use crate::registry::{Benchmark, Options, Parameter, Row, Setup};
use std::hint::black_box;
use vgas::{GlobalAddress, Rank, Runtime, SegmentOptions};
use vgas_cache::pool::{PinMode, PinnedPage};

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "hit",
    help: "Gets and puts of cached remote pages, against plain memory.",
    setup: Setup::Job { ranks: 4, nodes: 2 },
    settings: &[],
    parameters: &[Parameter { name: "samples", default: "51", help: "Samples of each figure." }],
    full: &[("samples", "201")],
    figures: &[
        Figure {
            name: "hit-small",
            question: "What does a hit of 8 bytes cost?",
            expect: "A few nanoseconds more than an array access behind a call: no lock, no system call, no message.",
            metric: "latency",
            unit: "ns",
            cases: &[
                "get 8 B, pinned",
                "get 8 B, cached",
                "put 8 B, cached",
                "array read 8 B, not inlined",
                "array write 8 B, not inlined",
            ],
            references: &["array read 8 B, not inlined", "array write 8 B, not inlined"],
            better: Better::Lower,
            claims: &[
                Claim::new("get 8 B, pinned", Reference::Case("array read 8 B, not inlined"), 0.5),
                Claim::new("get 8 B, cached", Reference::Value(15.0), 1.0),
                Claim::new("put 8 B, cached", Reference::Value(15.0), 1.0),
            ],
            ..Figure::BASE
        },
        Figure {
            name: "hit-large",
            question: "How fast are hits of larger blocks?",
            expect: "As fast as memcpy of the same frames.",
            unit: "GB/s",
            cases: &["get", "put", "memcpy out", "memcpy in"],
            references: &["memcpy out", "memcpy in"],
            claims: &[
                Claim::new("get", Reference::Case("memcpy out"), 0.9).within(4096.0, f64::INFINITY),
                Claim::new("put", Reference::Case("memcpy in"), 0.9).within(4096.0, f64::INFINITY),
            ],
            form: Form::Lines { by: "bytes", label: "size of a block", panels: "" },
            ..Figure::BASE
        },
        Figure {
            name: "hit-together",
            question: "What does a hit of 8 bytes cost when several threads, or ranks, hit the same pages?",
            expect: "The same: hits of different threads write no common line. Beyond the number of cores they take turns; counted is the \
                     time that they run.",
            metric: "latency together",
            unit: "ns",
            form: Form::Lines {
                by: "together",
                label: "threads of a rank, or ranks of a node, at once",
                panels: "",
            },
            better: Better::Lower,
            ..Figure::BASE
        },
    ],
    check: |_| Ok(()),
    run,
};

/// Cached bytes: enough to leave the nearest cache, few enough to stay out of DRAM's noise.
const CACHED_BYTES: u64 = 8 << 20;
/// Small accesses go to changing places in so many bytes, so that every candidate reads from the same level of cache.
const SMALL_BYTES: u64 = 64 << 10;
/// Small accesses of one sample.
const SMALL_TIMES: usize = 100_000;

fn run(options: &Options) -> Result<Vec<Row>> {
    let samples: usize = options.get("samples")?;
    job::on_every_rank(Runtime::builder(), |runtime| {
        runtime.attach(&SegmentOptions::tiered(CACHED_BYTES))?;
        let mut rows = Vec::new();
        if runtime.rank().0 == 0 {
            let hit = Hit { runtime, home: Rank(runtime.ranks() - 1), samples };
            hit.warm()?;
            let mut report = Report::new("hit").under("page_bytes", runtime.page_bytes());
            hit.small(&mut report)?;
            rows = report.into_rows();
            for bytes in [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20] {
                let page_bytes = runtime.page_bytes();
                let mut report = Report::new("hit").under("page_bytes", page_bytes).under("bytes", bytes);
                hit.large(&mut report, bytes)?;
                rows.extend(report.into_rows());
            }
            rows.extend(hit.threads()?);
        }
        runtime.barrier()?;
        let of_ranks = ranks_together(runtime, samples)?;
        rows.extend(if runtime.rank().0 == 0 { of_ranks } else { Vec::new() });
        Ok(rows)
    })
}

struct Hit<'r> {
    runtime: &'r Runtime,
    home: Rank,
    samples: usize,
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
fn cached_read(runtime: &Runtime, address: GlobalAddress) -> u64 {
    // A wrong value shows in the sum.
    runtime.get_value(address).unwrap_or(u64::MAX / 2)
}

#[inline(never)]
fn cached_write(runtime: &Runtime, address: GlobalAddress, value: u64) -> bool {
    runtime.put_value(address, value).is_ok()
}

#[inline(never)]
fn pinned_read(page: &PinnedPage, in_page: u32) -> u64 {
    let mut value = 0u64;
    // SAFETY: `value` is 8 private bytes.
    let current = unsafe { page.try_get(in_page, (&raw mut value).cast(), 8) };
    if current { value } else { u64::MAX / 2 }
}

impl Hit<'_> {
    fn at(&self, offset: u64) -> GlobalAddress {
        GlobalAddress::tiered(self.home, offset)
    }

    /// Makes this node the owner of all pages.
    fn warm(&self) -> Result<()> {
        let ones = vec![1u64; CACHED_BYTES as usize / 8];
        self.runtime.put(self.at(0), &ones)?;
        Ok(())
    }

    fn pin(&self, page: u64, mode: PinMode) -> Result<PinnedPage> {
        let pool = client(self.runtime).pool();
        let index = pool.layout().page_index(self.home, page).ok_or("no such page")?;
        pool.try_pin(pool.page(index), mode).ok_or_else(|| "a page that should be cached is not".into())
    }

    fn small(&self, report: &mut Report) -> Result<()> {
        let page_bytes = self.runtime.page_bytes() as u64;
        let words = (SMALL_BYTES.min(page_bytes) / 8) as usize;
        // A step that is odd visits all words in a scattered order.
        let place = |n: usize| (n * 1237) % words;
        let at = |n: usize| self.at(place(n) as u64 * 8);
        let mut array = vec![1u64; words];
        let pin = self.pin(0, PinMode::Read)?;
        let [mut sum, mut sum_cached, mut sum_pinned] = [0u64; 3];
        let [plain, cached, pinned] = alternate(
            self.samples,
            SMALL_TIMES,
            [
                &mut |n| sum = (0..n).map(|n| array_read(black_box(&array), place(n))).sum(),
                &mut |n| sum_cached = (0..n).map(|n| cached_read(self.runtime, at(n))).sum(),
                &mut |n| sum_pinned = (0..n).map(|n| pinned_read(&pin, place(n) as u32 * 8)).sum(),
            ],
        );
        if [sum, sum_cached, sum_pinned] != [SMALL_TIMES as u64; 3] {
            return Err("a get gave a wrong value".into());
        }
        report.add("array read 8 B, not inlined", "latency", "ns", plain.clone());
        report.add("get 8 B, cached", "latency", "ns", cached.clone());
        let more = cached.iter().zip(&plain).map(|(cached, plain)| cached - plain).collect();
        report.add("get 8 B, cached, beyond the array read", "latency", "ns", more);
        report.add("get 8 B, pinned", "latency", "ns", pinned.clone());
        report.ratio(("get 8 B, pinned", &pinned), ("array read", &plain));
        drop(pin);

        let mut all = true;
        let [plain, cached] = alternate(
            self.samples,
            SMALL_TIMES,
            [
                &mut |n| (0..n).for_each(|n| array_write(black_box(&mut array), place(n), n as u64)),
                &mut |n| (0..n).for_each(|n| all &= cached_write(self.runtime, at(n), 1)),
            ],
        );
        if !all {
            return Err("a put failed".into());
        }
        report.add("array write 8 B, not inlined", "latency", "ns", plain.clone());
        report.add("put 8 B, cached", "latency", "ns", cached.clone());
        let more = cached.iter().zip(&plain).map(|(cached, plain)| cached - plain).collect();
        report.add("put 8 B, cached, beyond the array write", "latency", "ns", more);
        Ok(())
    }

    /// Blocks of one size, at places in turn, against memcpy of the same bytes: of the frames themselves.
    fn large(&self, report: &mut Report, bytes: usize) -> Result<()> {
        let page_bytes = self.runtime.page_bytes();
        let pins: Vec<PinnedPage> = (0..CACHED_BYTES / page_bytes as u64)
            .map(|page| self.pin(page, PinMode::Write))
            .collect::<Result<_>>()?;
        let blocks = CACHED_BYTES as usize / bytes;
        // The block in pieces of pages, as they lie in memory: (private offset, frame address, bytes).
        let pieces = |block: usize| {
            let (start, pins) = (block * bytes, &pins);
            (0..bytes).step_by(page_bytes).map(move |done| {
                let (page, in_page) = ((start + done) / page_bytes, (start + done) % page_bytes);
                let piece = (bytes - done).min(page_bytes - in_page);
                (done, pins[page].address().wrapping_add(in_page), piece)
            })
        };
        let block_at = |n: usize| self.at(((n % blocks) * bytes) as u64);
        // The place of a buffer can matter more than the measured operation: all candidates use the same.
        let mut private = vec![1u8; bytes];
        let address = private.as_mut_ptr();
        let slice = |bytes| {
            // SAFETY: the buffer lives to the end of this function, and one candidate runs at a time.
            unsafe { std::slice::from_raw_parts_mut(address, bytes) }
        };
        let mut all = true;
        let mut all_put = true;
        let times = ((16 << 20) / bytes).max(4);
        let [copy_out, get, copy_in, put] = alternate(
            self.samples,
            times,
            [
                &mut |n| {
                    for n in 0..n {
                        for (done, frame, piece) in pieces(n % blocks) {
                            // SAFETY: this file's rule; both ranges are valid and apart.
                            unsafe { libc::memcpy(address.add(done).cast(), frame.cast(), black_box(piece)) };
                        }
                    }
                },
                &mut |n| {
                    (0..n).for_each(|n| all &= self.runtime.get(block_at(n), slice(black_box(bytes))).is_ok())
                },
                &mut |n| {
                    for n in 0..n {
                        for (done, frame, piece) in pieces(n % blocks) {
                            // SAFETY: this file's rule; both ranges are valid and apart.
                            unsafe { libc::memcpy(frame.cast(), address.add(done).cast(), black_box(piece)) };
                        }
                    }
                },
                &mut |n| {
                    (0..n).for_each(|n| {
                        all_put &= self.runtime.put(block_at(n), slice(black_box(bytes))).is_ok()
                    })
                },
            ],
        )
        .map(|times| times.into_iter().map(|ns| bytes as f64 / ns).collect::<Vec<_>>());
        if !(all && all_put) {
            return Err("a get or put failed".into());
        }
        report.compare(["rate", "GB/s"], ("get", &get), ("memcpy out", &copy_out));
        report.compare(["rate", "GB/s"], ("put", &put), ("memcpy in", &copy_in));
        Ok(())
    }

    /// Threads of this rank that all hit.
    fn threads(&self) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        for threads in THREADS {
            let mut times = Vec::new();
            for _ in 0..self.samples.div_ceil(5) {
                let sums = std::thread::scope(|scope| -> Result<f64> {
                    let work = || hits(self.runtime, self.home);
                    let all: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
                    let mut sum = 0.0;
                    for thread in all {
                        sum += thread.join().map_err(|_| "a thread failed")??;
                    }
                    Ok(sum)
                });
                times.push(sums? / f64::from(threads));
            }
            let mut report = Report::new("hit").under("together", threads);
            report.add("get 8 B, threads of a rank", "latency together", "ns", times);
            rows.extend(report.into_rows());
        }
        Ok(rows)
    }
}

/// Threads that hit at once.
const THREADS: [u32; 3] = [1, 2, 4];

/// Nanoseconds of this thread for a hit of 8 bytes.
fn hits(runtime: &Runtime, home: Rank) -> Result<f64> {
    let words = SMALL_BYTES / 8;
    let at = |n: usize| GlobalAddress::tiered(home, (n as u64 * 1237) % words * 8);
    let start = now_ns();
    for n in 0..SMALL_TIMES {
        black_box(runtime.get_value::<u64>(at(n))?);
    }
    Ok((now_ns() - start) / SMALL_TIMES as f64)
}

/// Ranks of the first node that all hit: one, two, and so on doubled up to as many as it has. Collective.
fn ranks_together(runtime: &Runtime, samples: usize) -> Result<Vec<Row>> {
    let (me, home) = (runtime.rank().0, Rank(runtime.ranks() - 1));
    let here = runtime.layout().ranks_of(runtime.layout().node_of(Rank(0))).len() as u32;
    let mut rows = Vec::new();
    for ranks in std::iter::successors(Some(1), |ranks| Some(ranks * 2)).take_while(|&ranks| ranks <= here) {
        let mut times = Vec::new();
        for _ in 0..samples.div_ceil(5) {
            runtime.barrier()?;
            let mine = if me < ranks { hits(runtime, home)? } else { 0.0 };
            times.push(runtime.all_reduce(mine, |a, b| a + b)? / f64::from(ranks));
        }
        let mut report = Report::new("hit").under("together", ranks);
        report.add("get 8 B, ranks of a node", "latency together", "ns", times);
        rows.extend(report.into_rows());
    }
    Ok(rows)
}

/// Processor time of this thread.
fn now_ns() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Runs the candidates in turn, each after a short run to settle its caches; nanoseconds of one operation, by
/// sample. The first candidate changes.
fn alternate<const N: usize>(
    samples: usize,
    operations: usize,
    candidates: [&mut dyn FnMut(usize); N],
) -> [Vec<f64>; N] {
    let mut times = [const { Vec::new() }; N];
    for sample in 0..samples.max(1) {
        for turn in 0..N {
            let which = (sample + turn) % N;
            candidates[which](operations / 4);
            let start = now_ns();
            candidates[which](operations);
            times[which].push((now_ns() - start) / operations as f64);
        }
    }
    times
}
