//! Plain loads and stores on a rank's own segment (vGASNet §III.D), against a mapped file in a control group of the same memory: while
//! all data is in DRAM, when a page in DRAM is touched for the first time, and when data is larger than memory.
//!
//! Each figure is the time of an access to a block of 4 KiB, in rounds that take turns: the segment, the file with MADV_NORMAL, the file
//! with MADV_RANDOM. The better of the latter two, by its median, is the reference. With two threads it is the time of the round over the
//! accesses of both: half of one thread's where they do not disturb each other. A round ends after a time, so that a run takes
//! minutes however slow an access is. Each block carries its number, and every load looks at it.
//!
//! What fits is measured after all of it was used once the same way; what does not, after more than the cache's size was.
//!
//! # Rule for the unsafe code in this file
//!
//! A segment is used through its pointers only by [`BlockMemory::run`], while it is open, and by no other rank.

mod memory;
mod paged_file;

use super::files::check_space;
use super::job::{self, Result};
use super::report::Report;
use crate::registry::{Benchmark, Options, Parameter, Row, Setup, median};
use memory::{AccessKind, AccessOrder, BLOCK_BYTES, BlockMemory, Round, RoundTime, stamped};
use paged_file::PagedFileProcess;
use rand::SeedableRng;
use rand::seq::index;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use vgas::{LocalPart, Runtime, Segment, SegmentOptions, say};

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "local",
    help: "Plain loads and stores on one's own segment, against mmap with the same memory.",
    setup: Setup::Job { ranks: 1, nodes: 1 },
    settings: &[("cache.size", "256MiB")],
    parameters: &[
        Parameter { name: "samples", default: "5", help: "Rounds of each figure." },
        Parameter {
            name: "round",
            default: "150",
            help: "Milliseconds of a round at most; twice as many beyond memory.",
        },
        Parameter { name: "seed", default: "1", help: "Seed of the random orders." },
        Parameter {
            name: "part",
            default: "all",
            help: "Internal: the part of the benchmark that a process runs.",
        },
    ],
    full: &[("cache.size", "2GiB"), ("round", "400")],
    figures: &[],
    check,
    run,
};

/// Working sets that fit, as shares of the cache.
const FITTING: [(&str, f64); 3] = [("1/8", 0.125), ("1/2", 0.5), ("0.95", 0.95)];

/// Data beyond memory, in times of the cache.
const BEYOND: f64 = 4.0;

/// What is used before data beyond memory is measured, in times of the cache.
const WARM: f64 = 1.25;

/// Most accesses of a round: enough for some fifty milliseconds.
const ACCESSES_MAX: u64 = 1 << 22;

/// Direct reads of the drive in a sample.
const READS: usize = 500;

/// Blocks that the kernel maps at most when one of them is touched, where it has the others, too (`fault_around_bytes`).
const MAPPED_AROUND: u32 = 16;

/// Bytes of one put.
const PUT_BYTES: usize = 1 << 20;

fn check(options: &Options) -> Result<()> {
    match options.text("part") {
        "all" | paged_file::PART => Ok(()),
        _ => Err("parameter `part` is `all`".into()),
    }
}

fn run(options: &Options) -> Result<Vec<Row>> {
    if options.text("part") == paged_file::PART {
        return paged_file::serve().map(|()| Vec::new());
    }
    let (samples, seed) = (options.get("samples")?, options.get("seed")?);
    let round = Duration::from_millis(options.get("round")?);
    job::on_every_rank(Runtime::builder(), |runtime| {
        if runtime.ranks() != 1 {
            return Err("measures one rank, with memory of its own: -n 1".into());
        }
        let cache_bytes = runtime.cache_layout().frames_bytes();
        let folder = runtime.settings().nvm.directory_path();
        // Ours and the file.
        check_space(&folder, cache_bytes.saturating_mul(2 * BEYOND as u64))?;
        let file = match PagedFileProcess::start(paged_file::limit(cache_bytes), &folder) {
            Ok(file) => Some(file),
            Err(why) => {
                say::line(format_args!("vgas: local: the rows of mmap are skipped: {why}"));
                None
            }
        };
        let ours = OwnSegment { runtime, segment: None, local: None, blocks: 0 };
        let mut suite = LocalSuite {
            ours,
            file,
            cache_bytes,
            page_blocks: runtime.page_bytes().div_ceil(BLOCK_BYTES) as u32,
            samples,
            seed,
            round,
            rounds: 0,
            next: [0; 2],
            rows: Vec::new(),
        };
        suite.fresh()?;
        suite.on_both(&[
            MemoryStep::Create { blocks: suite.blocks(BEYOND)? },
            MemoryStep::Put,
            MemoryStep::Map,
        ])?;
        suite.on_both(&[MemoryStep::Settle])?;
        suite.fitting()?;
        suite.beyond()?;
        Ok(suite.rows)
    })
}

/// A step on the segment or on the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum MemoryStep {
    /// Replaces it by a new one of `blocks` blocks of zeros.
    Create { blocks: u32 },
    /// Fills all blocks with their numbers, not by pointers.
    Put,
    /// Maps it again, with no page of it mapped yet.
    Map,
    /// Writes the file back, drops its pages from the page cache and maps it again. A no-op on the segment.
    Settle,
    /// Advises the kernel about reading ahead. A no-op on the segment.
    Advise { random: bool },
    /// Loads and stores.
    Round(Round),
    /// Reads pages of the file, one at a time, past all caches. A no-op on the segment.
    Read { page_bytes: usize, offsets: Vec<u64> },
}

/// The segment or its reference.
trait MeasuredMemory {
    /// Executes a step. Returns its accesses and time where it has any.
    fn act(&mut self, action: &MemoryStep) -> Result<RoundTime>;
}

/// Calls `put` with the offset and the words of one piece after the other of `blocks` blocks that hold their numbers.
fn put_numbers(blocks: u32, mut put: impl FnMut(u64, &[u64]) -> Result<()>) -> Result<()> {
    let step = PUT_BYTES / BLOCK_BYTES;
    let mut words = Vec::with_capacity(PUT_BYTES / 8);
    for first in (0..blocks).step_by(step) {
        words.clear();
        let piece = first..blocks.min(first + step as u32);
        words.extend(piece.flat_map(|block| [stamped(block, 0); BLOCK_BYTES / 8]));
        put(u64::from(first) * BLOCK_BYTES as u64, &words)?;
    }
    Ok(())
}

/// A tiered segment of this rank.
struct OwnSegment<'r> {
    runtime: &'r Runtime,
    segment: Option<Segment>,
    local: Option<LocalPart>,
    blocks: u32,
}

impl MeasuredMemory for OwnSegment<'_> {
    fn act(&mut self, action: &MemoryStep) -> Result<RoundTime> {
        if let MemoryStep::Create { blocks } = *action {
            self.local = None;
            if let Some(segment) = self.segment.take() {
                segment.detach()?;
            }
            let options = SegmentOptions::tiered(u64::from(blocks) * BLOCK_BYTES as u64);
            self.segment = Some(self.runtime.attach(&options)?);
            self.blocks = blocks;
            return Ok(RoundTime::default());
        }
        let segment = self.segment.as_ref().ok_or("no segment is attached")?;
        match action {
            MemoryStep::Put => {
                let rank = self.runtime.rank();
                put_numbers(self.blocks, |offset, words| Ok(segment.put(rank, offset, words)?))?;
            }
            MemoryStep::Map => {
                self.local = None;
                self.local = Some(segment.local()?);
            }
            MemoryStep::Round(round) => {
                let local = self.local.as_ref().ok_or("the segment is not open")?;
                // SAFETY: this file's rule; the part is open until this returns, for all threads, and as large as it was attached.
                let memory = unsafe { BlockMemory::new(local.base(), self.blocks, vgas::prepare_thread) };
                return memory.run(round);
            }
            MemoryStep::Create { .. }
            | MemoryStep::Settle
            | MemoryStep::Advise { .. }
            | MemoryStep::Read { .. } => {}
        }
        Ok(RoundTime::default())
    }
}

/// One case: its name and its rounds.
struct CaseSpec<'a> {
    case: &'a str,
    access: AccessKind,
    /// Accesses are in random order.
    is_apart: bool,
    blocks: u32,
    stride: u32,
    threads: u32,
    accesses: u64,
    time: Duration,
    /// Steps before each round, not measured.
    prepare: &'a [MemoryStep],
}

struct LocalSuite<'r> {
    ours: OwnSegment<'r>,
    file: Option<PagedFileProcess>,
    cache_bytes: u64,
    /// Blocks of a page.
    page_blocks: u32,
    samples: usize,
    seed: u64,
    round: Duration,
    /// Number of rounds so far, so that no two have the same random order.
    rounds: u32,
    /// First access of the next round in order, on the segment and on the file.
    next: [u64; 2],
    rows: Vec<Row>,
}

impl LocalSuite<'_> {
    /// Returns `times` the cache's size in blocks of whole pages.
    fn blocks(&self, times: f64) -> Result<u32> {
        let page_bytes = u64::from(self.page_blocks) * BLOCK_BYTES as u64;
        let pages = (self.cache_bytes as f64 * times) as u64 / page_bytes;
        let blocks = u32::try_from(pages * u64::from(self.page_blocks));
        blocks.map_err(|_| "measures at most 16 TiB: take a smaller cache".into())
    }

    fn on_both(&mut self, actions: &[MemoryStep]) -> Result<()> {
        for action in actions {
            self.ours.act(action)?;
            if let Some(file) = &mut self.file {
                file.act(action)?;
            }
        }
        Ok(())
    }

    /// Accesses all blocks from `first` on once, in order.
    fn warm(&mut self, access: AccessKind, first: u32, blocks: u32) -> Result<()> {
        let (accesses, time) = (u64::from(blocks - first), Duration::from_secs(3600));
        let order = AccessOrder::From(u64::from(first));
        let round = Round { access, order, blocks, stride: 1, threads: 1, accesses, time, stamp: 0 };
        self.on_both(&[MemoryStep::Advise { random: false }, MemoryStep::Round(round)])
    }

    /// Measures pages that were never mapped: those that puts have filled, and those of a new segment.
    fn fresh(&mut self) -> Result<()> {
        let blocks = self.blocks(0.5)?;
        let new = [MemoryStep::Create { blocks }, MemoryStep::Map];
        let put = [MemoryStep::Create { blocks }, MemoryStep::Put, MemoryStep::Map];
        for (case, access, is_apart, stride, prepare) in [
            // No page that the kernel maps with another one.
            (
                "first load in DRAM, apart",
                AccessKind::Load,
                true,
                self.page_blocks.max(MAPPED_AROUND),
                &put[..],
            ),
            ("first load in DRAM, in order", AccessKind::Load, false, 1, &put),
            ("fill of a new segment, in order", AccessKind::StoreAll, false, 1, &new),
        ] {
            // Each once.
            let (accesses, time) = (u64::from(blocks / stride), 2 * self.round);
            self.next = [0; 2];
            self.measure(&CaseSpec {
                case,
                access,
                is_apart,
                blocks,
                stride,
                threads: 1,
                accesses,
                time,
                prepare,
            })?;
        }
        Ok(())
    }

    /// Measures data that fits in the cache, after all of it was used once.
    fn fitting(&mut self) -> Result<()> {
        for (share, times) in FITTING {
            let blocks = self.blocks(times)?;
            for (name, access) in [("load", AccessKind::Load), ("store", AccessKind::Store)] {
                self.warm(access, 0, blocks)?;
                for (order, is_apart) in [("apart", true), ("in order", false)] {
                    for threads in [1, 2] {
                        self.measure(&CaseSpec {
                            case: &format!("{name} {order}, {share} of the cache"),
                            access,
                            is_apart,
                            blocks,
                            stride: 1,
                            threads,
                            accesses: ACCESSES_MAX,
                            time: self.round,
                            prepare: &[],
                        })?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Measures data that does not fit.
    fn beyond(&mut self) -> Result<()> {
        self.on_both(&[MemoryStep::Settle])?;
        let blocks = self.blocks(BEYOND)?;
        let first = blocks - self.blocks(WARM)?;
        self.warm(AccessKind::Load, first, blocks)?;
        for (case, access, is_apart) in [
            ("scan, 4 times the cache", AccessKind::LoadAll, false),
            ("load apart, 4 times the cache", AccessKind::Load, true),
            ("store apart, 4 times the cache", AccessKind::Store, true),
            ("load and store apart, 4 times the cache", AccessKind::LoadStore, true),
        ] {
            if access == AccessKind::Store {
                // From now on, what is evicted was changed.
                self.warm(access, first, blocks)?;
            }
            let mut ours = Vec::new();
            for threads in [1, 2] {
                let (accesses, time) = (ACCESSES_MAX, 2 * self.round);
                let prepare = &[];
                let work =
                    CaseSpec { case, access, is_apart, blocks, stride: 1, threads, accesses, time, prepare };
                ours.push(self.measure(&work)?);
                if access == AccessKind::Load && threads == 1 {
                    self.bare_reads(case, blocks, &ours[0])?;
                }
            }
            let mut report = self.report();
            report.ratio((&format!("{case}, one thread"), &ours[0]), ("two threads", &ours[1]));
            self.rows.extend(report.into_rows());
        }
        Ok(())
    }

    /// Measures the drive's own time for a page, against loads from the segment.
    fn bare_reads(&mut self, case: &str, blocks: u32, ours: &[f64]) -> Result<()> {
        let mut report = self.report().under("threads", 1);
        let Some(file) = &mut self.file else { return Ok(()) };
        let page_bytes = self.page_blocks as usize * BLOCK_BYTES;
        let pages = (blocks / self.page_blocks) as usize;
        let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(self.seed);
        let mut times = Vec::new();
        for _ in 0..self.samples {
            let chosen = index::sample(&mut random, pages, READS.min(pages));
            let offsets = chosen.into_iter().map(|page| (page * page_bytes) as u64).collect();
            times.push(file.act(&MemoryStep::Read { page_bytes, offsets })?.nanoseconds());
        }
        report.add("bare read of a page", "time", "ns", times.clone());
        report.ratio((case, ours), ("bare read of a page", &times));
        self.rows.extend(report.into_rows());
        Ok(())
    }

    /// Begins rows with their circumstances.
    fn report(&self) -> Report {
        let local = self.ours.local.as_ref();
        Report::new("local")
            .under("page_bytes", self.page_blocks as usize * BLOCK_BYTES)
            .under("cache_bytes", self.cache_bytes)
            .under("mechanism", local.map_or_else(String::new, |local| format!("{:?}", local.mechanism())))
            .under("seed", self.seed)
    }

    /// Takes the samples of a case, the segment's and the file's in turn, and adds its rows. Returns the segment's samples.
    fn measure(&mut self, work: &CaseSpec<'_>) -> Result<Vec<f64>> {
        let ways = if self.file.is_some() { 3 } else { 1 };
        let mut times = [const { Vec::new() }; 3];
        for sample in 0..self.samples {
            for turn in 0..ways {
                let way = (sample + turn) % ways;
                times[way].push(self.one_round(work, way)?);
            }
        }
        let [ours, normal, random] = times;
        let mut report =
            self.report().under("threads", work.threads).under("round_ms", work.time.as_millis() as u64);
        report.add(work.case, "time", "ns", ours.clone());
        if ways > 1 {
            let better = if median(&normal) <= median(&random) { normal } else { random };
            report.add(&format!("{}, mmap", work.case), "time", "ns", better.clone());
            report.ratio((work.case, &ours), ("mmap", &better));
        }
        self.rows.extend(report.into_rows());
        Ok(ours)
    }

    /// Runs one round on the segment (way 0) or on the file with MADV_NORMAL (1) or MADV_RANDOM (2). Returns nanoseconds of an access.
    fn one_round(&mut self, work: &CaseSpec<'_>, way: usize) -> Result<f64> {
        self.rounds += 1;
        let memory: &mut dyn MeasuredMemory = match &mut self.file {
            Some(file) if way > 0 => file,
            _ => &mut self.ours,
        };
        for action in work.prepare {
            memory.act(action)?;
        }
        memory.act(&MemoryStep::Advise { random: way == 2 })?;
        let next = &mut self.next[way.min(1)];
        // As new segments are filled and touched once, their rounds begin at the first block.
        let first = if work.prepare.is_empty() { *next } else { 0 };
        let order = match work.is_apart {
            true => AccessOrder::Apart(self.seed.wrapping_mul(1 << 20).wrapping_add(self.rounds.into())),
            false => AccessOrder::From(first),
        };
        let &CaseSpec { access, blocks, stride, threads, accesses, time, .. } = work;
        let stamp = self.rounds;
        let taken = memory.act(&MemoryStep::Round(Round {
            access,
            order,
            blocks,
            stride,
            threads,
            accesses,
            time,
            stamp,
        }))?;
        *next = first + taken.accesses / u64::from(threads);
        Ok(taken.nanoseconds())
    }
}
