//! Blocking puts, gets and long messages of 1 to 64 MiB through a cache that is no larger than the smallest of them, against io_uring
//! moving the same bytes of a file in pieces of 1 MiB.
//!
//! The bytes are those that the drives of all nodes have moved during the sample, as the counters say: what was read and what was
//! written back. The reference reads as many and writes as many, in the same run and folder, one direction after the other.
//!
//! A long message is what GASNet clients send: its payload lies in the sender's own tiered segment, is put into the receiver's, and a
//! handler runs there and replies.
//!
//! # Rule for the unsafe code in this file
//!
//! The payload of a long message lies in the lower half of this rank's local segment, which lives as long as the runtime. This rank
//! alone writes there, and not while the message is being sent.

use super::arrivals::{Arrivals, PING};
use super::cold_seq::SPARE;
use super::files::{NoiseFile, check_space};
use super::job::{self, Result, noise};
use super::raw::RawReader;
use super::report::Report;
use crate::raw::client;
use crate::registry::{Benchmark, Options, Parameter, Row, Setup};
use std::cell::OnceCell;
use std::time::{Duration, Instant};
use vgas::{Counter, GlobalAddress, LocalPart, Rank, Runtime, Segment, SegmentOptions};

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "transfer",
    help: "Puts, gets and long messages larger than the cache, against io_uring moving the same bytes.",
    setup: Setup::Job { ranks: 1, nodes: 1 },
    settings: &[("cache.size", "1MiB"), ("cache.page", "4KiB")],
    parameters: &[
        Parameter {
            name: "largest",
            default: "64",
            help: "MiB of the largest transfer; the smallest is 1 MiB.",
        },
        Parameter {
            name: "only",
            default: "all",
            help: "`put`, `get`, `long message`, or `all` of them in turn.",
        },
        Parameter { name: "sample", default: "32", help: "MiB that a sample transfers at least." },
        Parameter { name: "samples", default: "5", help: "Samples of each figure." },
    ],
    full: &[("sample", "64"), ("samples", "9")],
    figures: &[],
    check,
    run,
};

const MIB: u64 = 1 << 20;

/// Number of the reference's pieces in flight, of 1 MiB each.
const RAW_DEPTH: usize = 8;

/// The ways of moving bytes, and what the reference is called that moves the same.
const WAYS: [(&str, &str); 3] = [
    ("put", "io_uring, the bytes of a put"),
    ("get", "io_uring, the bytes of a get"),
    ("long message", "io_uring, the bytes of a long message"),
];

fn check(options: &Options) -> Result<()> {
    let (largest, sample) = (options.mebibytes("largest")?, options.mebibytes("sample")?);
    if options.text("only") != "all" && !WAYS.iter().any(|(name, _)| *name == options.text("only")) {
        return Err("`only` is `put`, `get`, `long message` or `all`".into());
    }
    if largest.max(sample) > 64 << 30 {
        return Err("so many bytes are more than a sample needs: at most 65536 MiB".into());
    }
    Ok(())
}

fn run(options: &Options) -> Result<Vec<Row>> {
    let (largest, sample_bytes) = (options.mebibytes("largest")?, options.mebibytes("sample")?);
    let samples: usize = options.get("samples")?;
    let (builder, arrivals) = Arrivals::counted(Runtime::builder());
    job::on_every_rank(builder, |runtime| {
        if runtime.ranks() != runtime.nodes() {
            return Err("measures one rank on each node: use as many ranks as nodes".into());
        }
        let folder = runtime.settings().nvm.directory_path();
        let cache_bytes = runtime.cache_layout().frames_bytes();
        let half = largest.max(SPARE * cache_bytes).next_multiple_of(MIB);
        check_space(&folder, (2 * u64::from(runtime.ranks()) + 1) * half)?;
        let segment = runtime.attach(&SegmentOptions::tiered(2 * half))?;
        let mut private = noise(MIB as usize, 5).repeat((largest / MIB) as usize);
        for offset in (0..2 * half).step_by(MIB as usize) {
            runtime.put(GlobalAddress::tiered(runtime.rank(), offset), &private[..MIB as usize])?;
        }
        let mut raw = match runtime.rank().0 {
            0 => Some(RawFile::create(&folder, half)?),
            _ => None,
        };
        let mut transfers = Transfers {
            runtime,
            segment,
            local: OnceCell::new(),
            arrivals: &arrivals,
            owner: Rank(runtime.ranks() - 1),
            half,
            next: 0,
        };
        let mut rows = Vec::new();
        for bytes in
            std::iter::successors(Some(MIB), |size| Some(4 * size)).take_while(|&size| size <= largest)
        {
            let private = &mut private[..bytes as usize];
            let times = sample_bytes.div_ceil(bytes);
            let mut results = [const { [const { Vec::new() }; 4] }; WAYS.len()];
            // The first round takes what was written before out of the cache.
            for sample in 0..=samples {
                for turn in 0..WAYS.len() {
                    let way = (sample + turn) % WAYS.len();
                    if !["all", WAYS[way].0].contains(&options.text("only")) {
                        continue;
                    }
                    let moved = transfers.measure(way, private, times)?;
                    let reference =
                        raw.as_mut().map(|raw| raw.transfer(moved.read, moved.written)).transpose()?;
                    runtime.barrier()?;
                    if sample > 0
                        && let Some(reference) = reference
                    {
                        let rate =
                            |time: Duration| (moved.read + moved.written) as f64 / time.as_secs_f64() / 1e6;
                        let share = |moved: u64| moved as f64 / (times * bytes) as f64;
                        let result =
                            [rate(moved.time), rate(reference), share(moved.read), share(moved.written)];
                        results[way].iter_mut().zip(result).for_each(|(all, one)| all.push(one));
                    }
                }
            }
            if raw.is_none() {
                continue;
            }
            let mut report = Report::new("transfer")
                .under("bytes", bytes)
                .under("page_bytes", runtime.page_bytes())
                .under("cache_bytes", cache_bytes)
                .under("nodes", runtime.nodes());
            for ((name, reference), [ours, theirs, read, written]) in WAYS.into_iter().zip(results) {
                if ours.is_empty() {
                    continue;
                }
                report.compare(["rate", "MB/s"], (name, &ours), (reference, &theirs));
                report.add(&format!("{name}, bytes read for each"), "share", "", read);
                report.add(&format!("{name}, bytes written for each"), "share", "", written);
            }
            rows.extend(report.into_rows());
        }
        Ok(rows)
    })
}

/// The file of the reference.
struct RawFile {
    reader: RawReader,
    blocks: u64,
    next: u64,
    /// Keeps the file open.
    _file: NoiseFile,
}

impl RawFile {
    fn create(folder: &std::path::Path, bytes: u64) -> Result<Self> {
        let file = NoiseFile::create(folder, bytes)?;
        let reader = RawReader::open(&file.path(), MIB as usize, RAW_DEPTH)?;
        Ok(Self { reader, blocks: bytes / MIB, next: 0, _file: file })
    }

    /// Reads and writes so many bytes; the time for both.
    fn transfer(&mut self, read: u64, written: u64) -> Result<Duration> {
        let mut all = Duration::ZERO;
        for (bytes, write) in [(read, false), (written, true)] {
            let blocks = bytes.div_ceil(MIB);
            if blocks == 0 {
                continue;
            }
            let offsets: Vec<u64> =
                (self.next..self.next + blocks).map(|at| at % self.blocks * MIB).collect();
            self.next += blocks;
            let time = if write { self.reader.write(&offsets)? } else { self.reader.read(&offsets)? };
            all += time.mul_f64(bytes as f64 / (blocks * MIB) as f64);
        }
        Ok(all)
    }
}

/// Time of a sample, and bytes moved by the drives of all nodes meanwhile.
struct Moved {
    time: Duration,
    read: u64,
    written: u64,
}

struct Transfers<'r> {
    runtime: &'r Runtime,
    segment: Segment,
    /// This rank's part by pointers, once a way needs it.
    local: OnceCell<LocalPart>,
    arrivals: &'r Arrivals,
    owner: Rank,
    /// Bytes of a half of each rank's segment: long messages are sent from the lower one of rank 0, everything else concerns the upper
    /// one of the owner.
    half: u64,
    next: u64,
}

impl Transfers<'_> {
    /// Rank 0 transfers as many bytes as `private` has, so many times, each time others.
    fn measure(&mut self, way: usize, private: &mut [u8], times: u64) -> Result<Moved> {
        let before = self.counts()?;
        let start = Instant::now();
        if self.runtime.rank().0 == 0 {
            for _ in 0..times {
                if self.next + private.len() as u64 > self.half {
                    self.next = 0;
                }
                self.transfer(way, private)?;
                self.next += private.len() as u64;
            }
        }
        let time = start.elapsed();
        self.runtime.barrier()?;
        let after = self.counts()?;
        Ok(Moved { time, read: after[0] - before[0], written: after[1] - before[1] })
    }

    fn transfer(&self, way: usize, private: &mut [u8]) -> Result<()> {
        let at = self.half + self.next;
        let to = GlobalAddress::tiered(self.owner, at);
        match way {
            0 => self.runtime.put(to, private)?,
            1 => self.runtime.get(to, private)?,
            _ => {
                if self.local.get().is_none() {
                    let _ = self.local.set(self.segment.local()?);
                }
                let from = self.local.get().map(|local| local.base().wrapping_add(self.next as usize));
                let from = from.ok_or("no part of the segment")?;
                // SAFETY: the rule of this file.
                unsafe { client(self.runtime).put(self.owner, at, from, private.len())? };
                let handled = self.arrivals.pongs() + 1;
                self.runtime.request(self.owner, PING, &[], &[])?;
                self.runtime.wait_until(|| self.arrivals.pongs() == handled)?;
            }
        }
        Ok(())
    }

    /// Bytes that all nodes have read from their drives, and written.
    fn counts(&self) -> Result<[u64; 2]> {
        let client = client(self.runtime);
        let (rank, agent) = (client.counters(), client.node_counters());
        let mut sums = [0; 2];
        for (sum, counter) in sums.iter_mut().zip([Counter::NvmReadBytes, Counter::NvmWriteBytes]) {
            *sum = self.runtime.all_reduce(rank.get(counter) + agent.get(counter), u64::wrapping_add)?;
        }
        Ok(sums)
    }
}
