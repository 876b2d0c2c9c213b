//! A sequential scan of a tiered segment that is nowhere cached, against the device's own rate and against a mapped file:
//! same folder, fresh files, in turn.
//!
//! The mapped file is dropped from the kernel's cache before each of its samples instead of being limited to the memory
//! of the cache: every byte is read once, so a limit would only add the cost of reclaiming.

use super::files::{NoiseFile, check_space};
use super::job::{self, Result, noise};
use super::raw::RawReader;
use super::report::{Report, most};
use crate::raw::client;
use crate::registry::{Benchmark, Options, Parameter, Row, Setup};
use rustix::mm::Advice;
use std::time::Instant;
use vgas::{Counter, GlobalAddress, Rank, Runtime, SegmentOptions};

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "cold-seq",
    help: "Sequential tiered reads that miss everything, against the device and mmap.",
    setup: Setup::Job { ranks: 1, nodes: 1 },
    settings: &[("cache.size", "64MiB")],
    parameters: &[
        Parameter { name: "get", default: "1048576", help: "Bytes of one get." },
        Parameter { name: "mebibytes", default: "64", help: "MiB of one sample." },
        Parameter {
            name: "samples",
            default: "7",
            help: "Samples of each figure, each on bytes not read before.",
        },
    ],
    full: &[],
    figures: &[],
    check,
    run,
};

/// Blocks of the raw reader, and how many are in flight: what the device likes best.
const RAW_BLOCK_BYTES: usize = 1 << 20;
const RAW_DEPTH: usize = 8;

/// The cache is emptied of what was written by reading so many times its size of other bytes.
pub(super) const SPARE: u64 = 4;

fn check(options: &Options) -> Result<()> {
    let sample_bytes = options.mebibytes("mebibytes")?;
    if sample_bytes < options.get::<u64>("get")? {
        return Err("a sample needs at least one get: `mebibytes` are fewer bytes than `get`".into());
    }
    if sample_bytes.checked_mul(options.get("samples")?).is_none() {
        return Err("so many samples are more than any disk has".into());
    }
    Ok(())
}

fn run(options: &Options) -> Result<Vec<Row>> {
    let get_bytes: usize = options.get("get")?;
    let samples: u64 = options.get("samples")?;
    let sample_bytes = options.mebibytes("mebibytes")?;
    job::on_every_rank(Runtime::builder(), |runtime| {
        let bytes = samples * sample_bytes;
        let mut rows = Vec::new();
        let source = Cold::create(runtime, bytes)?;
        if runtime.rank().0 == 0 {
            let folder = runtime.settings().nvm.directory_path();
            let (direct, mapped) = (NoiseFile::create(&folder, bytes)?, NoiseFile::create(&folder, bytes)?);
            let mut raw = RawReader::open(&direct.path(), RAW_BLOCK_BYTES, RAW_DEPTH)?;
            let mut buffer = vec![0; get_bytes];
            let mut rates = [const { Vec::new() }; 4];
            let before = source.pages_from_nvm();
            for sample in 0..samples {
                let range = sample * sample_bytes..(sample + 1) * sample_bytes;
                let places = |block: usize| -> Vec<u64> { range.clone().step_by(block).collect() };
                for turn in 0..4 {
                    let way = ((sample + turn) % 4) as usize;
                    let time = match way {
                        0 => {
                            let start = Instant::now();
                            for offset in places(get_bytes) {
                                let bytes = get_bytes.min((range.end - offset) as usize);
                                runtime.get(source.at(offset), &mut buffer[..bytes])?;
                            }
                            start.elapsed()
                        }
                        1 => raw.read(&places(RAW_BLOCK_BYTES))?,
                        way => {
                            let advice = if way == 2 { Advice::Normal } else { Advice::Random };
                            let mapped = mapped.map(advice)?;
                            // In small steps, or reading a block would cost a second pass through memory.
                            mapped.read(&places(4096), &mut [0; 4096])
                        }
                    };
                    rates[way].push(sample_bytes as f64 / time.as_secs_f64() / 1e9);
                }
            }
            let missed = (source.pages_from_nvm() - before) as f64 * source.page_bytes as f64 / bytes as f64;
            let [tiered, raw, normal, random] = rates;
            let mut report = source.report("cold-seq").under("get_bytes", get_bytes);
            let rate = ["rate", "GB/s"];
            report.compare(rate, ("cold scan", &tiered), ("raw device", &raw));
            report.add("mmap, MADV_NORMAL", rate[0], rate[1], normal.clone());
            report.add("mmap, MADV_RANDOM", rate[0], rate[1], random.clone());
            report.ratio(("cold scan", &tiered), ("better mmap", &most(&normal, &random)));
            report.add("cold scan, share that came from NVMe", "share", "", vec![missed]);
            rows = report.into_rows();
        }
        runtime.barrier()?;
        Ok(rows)
    })
}

/// A tiered segment full of noise whose bytes are on NVMe and in no cache. Rank 0's own with one node, the last rank's
/// otherwise.
pub(super) struct Cold<'r> {
    runtime: &'r Runtime,
    owner: Rank,
    pub page_bytes: usize,
    cache_bytes: u64,
}

impl<'r> Cold<'r> {
    /// Collective; the owner writes.
    pub fn create(runtime: &'r Runtime, bytes: u64) -> Result<Self> {
        const STEP: usize = 1 << 20;
        let owner = Rank(runtime.ranks() - 1);
        let cache_bytes = runtime.cache_layout().frames_bytes();
        let page_bytes = runtime.page_bytes();
        let all = bytes.next_multiple_of(STEP as u64) + SPARE * cache_bytes;
        // The segment, and the two files it is compared with.
        check_space(&runtime.settings().nvm.directory_path(), all.saturating_add(2 * bytes))?;
        runtime.attach(&SegmentOptions::tiered(if runtime.rank() == owner { all } else { 0 }))?;
        let cold = Self { runtime, owner, page_bytes, cache_bytes };
        if runtime.rank() == owner {
            let mut chunk = noise(STEP, 3);
            for offset in (0..all).step_by(STEP) {
                let part = STEP.min((all - offset) as usize);
                runtime.put(cold.at(offset), &chunk[..part])?;
            }
            // Dirty pages leave the cache now, and not during the measurement.
            for offset in (all - SPARE * cache_bytes..all).step_by(STEP) {
                let part = STEP.min((all - offset) as usize);
                runtime.get(cold.at(offset), &mut chunk[..part])?;
            }
        }
        runtime.barrier()?;
        Ok(cold)
    }

    /// An address in it.
    pub fn at(&self, offset: u64) -> GlobalAddress {
        GlobalAddress::tiered(self.owner, offset)
    }

    /// Pages that this node has got from NVMe, its own or the home's.
    pub fn pages_from_nvm(&self) -> u64 {
        self.counted(Counter::FromNvm)
    }

    /// Bytes that this rank and the agent of its node have read from the node's NVMe, in pages and parts of pages.
    pub fn bytes_from_nvm(&self) -> u64 {
        self.counted(Counter::NvmReadBytes)
    }

    fn counted(&self, counter: Counter) -> u64 {
        let client = client(self.runtime);
        client.counters().get(counter) + client.node_counters().get(counter)
    }

    /// A report with what every row of such a benchmark depends on.
    pub fn report(&self, bench: &'static str) -> Report {
        Report::new(bench)
            .under("page_bytes", self.page_bytes)
            .under("cache_bytes", self.cache_bytes)
            .under("nodes", self.runtime.nodes())
    }
}
