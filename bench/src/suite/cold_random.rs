//! Random 4 KiB reads of a tiered segment that is nowhere cached, one at a time and many in flight, against the device's
//! own rate and against a mapped file: same folder, fresh files, in turn. Every block is read once. About the memory
//! limit of the mapped file, see `cold-seq`.

use super::cold_seq::Cold;
use super::files::NoiseFile;
use super::job::{self, Result};
use super::raw::RawReader;
use super::report::least;
use crate::registry::{Benchmark, Options, Parameter, Row, Setup};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rustix::mm::Advice;
use std::time::{Duration, Instant};
use vgas::{GetHandle, Runtime};

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "cold-random",
    help: "Random 4 KiB tiered reads that miss everything, against the device and mmap.",
    setup: Setup::Job { ranks: 1, nodes: 1 },
    settings: &[("cache.size", "64MiB"), ("cache.page", "4KiB")],
    parameters: &[
        Parameter { name: "depth", default: "32", help: "Gets in flight." },
        Parameter { name: "mebibytes", default: "512", help: "MiB that the blocks are spread over." },
        Parameter { name: "gets", default: "6000", help: "Gets of one sample with many in flight." },
        Parameter { name: "single", default: "400", help: "Gets of one sample with one in flight." },
        Parameter { name: "samples", default: "7", help: "Samples of each figure." },
    ],
    full: &[],
    figures: &[],
    check,
    run,
};

const BLOCK_BYTES: usize = 4096;

/// Reads in flight: io_uring takes some more, and 16 MiB of buffers can be registered.
const DEPTH_MAX: usize = 4096;

fn check(options: &Options) -> Result<()> {
    if options.get::<usize>("depth")? > DEPTH_MAX {
        return Err(format!("parameter `depth` is at most {DEPTH_MAX}").into());
    }
    let blocks = options.mebibytes("mebibytes")? / BLOCK_BYTES as u64;
    let gets = options.get::<u64>("gets")?.saturating_add(options.get("single")?);
    let samples: u64 = options.get("samples")?;
    if blocks < samples.saturating_mul(gets) {
        return Err(format!("{blocks} blocks are too few for {samples} samples of {gets}").into());
    }
    Ok(())
}

fn run(options: &Options) -> Result<Vec<Row>> {
    let depth: usize = options.get("depth")?;
    let bytes = options.mebibytes("mebibytes")?;
    let (gets, single): (usize, usize) = (options.get("gets")?, options.get("single")?);
    let samples: usize = options.get("samples")?;
    job::on_every_rank(Runtime::builder(), |runtime| {
        let mut rows = Vec::new();
        let source = Cold::create(runtime, bytes)?;
        if runtime.rank().0 == 0 {
            let mut offsets: Vec<u64> = (0..bytes).step_by(BLOCK_BYTES).collect();
            offsets.shuffle(&mut rand_chacha::ChaCha8Rng::seed_from_u64(5));
            let folder = runtime.settings().nvm.directory_path();
            let (direct, mapped) = (NoiseFile::create(&folder, bytes)?, NoiseFile::create(&folder, bytes)?);
            let mut raw_many = RawReader::open(&direct.path(), BLOCK_BYTES, depth)?;
            let mut raw_one = RawReader::open(&direct.path(), BLOCK_BYTES, 1)?;
            let [mut many, mut one] = [[const { Vec::new() }; 2], [const { Vec::new() }; 2]];
            let mut mmap = [const { Vec::new() }; 2];
            let before = (source.pages_from_nvm(), source.bytes_from_nvm());
            for (sample, places) in offsets.chunks_exact(gets + single).take(samples).enumerate() {
                let (of_many, of_one) = places.split_at(gets);
                for turn in 0..2 {
                    let way = (sample + turn) % 2;
                    let time = match way {
                        0 => in_flight(runtime, &source, of_many, depth)?,
                        _ => raw_many.read(of_many)?,
                    };
                    many[way].push(gets as f64 / time.as_secs_f64());
                    let time = match way {
                        0 => one_by_one(runtime, &source, of_one)?,
                        _ => raw_one.read(of_one)?,
                    };
                    let us = |time: Duration| time.as_secs_f64() * 1e6 / single as f64;
                    one[way].push(us(time));
                    let advice = if way == 0 { Advice::Normal } else { Advice::Random };
                    mmap[way].push(us(mapped.map(advice)?.read(of_one, &mut [0; BLOCK_BYTES])));
                }
            }
            let gets = (samples * (gets + single)) as f64;
            let pages = (source.pages_from_nvm() - before.0) as f64 / gets;
            let bytes = (source.bytes_from_nvm() - before.1) as f64 / gets;
            let (latency, rate) = (["latency", "us"], ["rate", "1/s"]);
            let mut report = source.report("cold-random").under("depth", depth);
            report.compare(rate, ("cold get 4 KiB", &many[0]), ("raw device", &many[1]));
            rows = report.into_rows();
            let mut report = source.report("cold-random").under("depth", 1);
            report.compare(latency, ("cold get 4 KiB", &one[0]), ("raw device", &one[1]));
            report.add("mmap, MADV_NORMAL", latency[0], latency[1], mmap[0].clone());
            report.add("mmap, MADV_RANDOM", latency[0], latency[1], mmap[1].clone());
            report.ratio(("cold get 4 KiB", &one[0]), ("better mmap", &least(&mmap[0], &mmap[1])));
            report.add("pages from NVMe for each get", "count", "", vec![pages]);
            report.add("bytes from NVMe for each get", "size", "B", vec![bytes]);
            rows.extend(report.into_rows());
        }
        runtime.barrier()?;
        Ok(rows)
    })
}

fn one_by_one(runtime: &Runtime, source: &Cold<'_>, offsets: &[u64]) -> Result<Duration> {
    let mut block = [0u8; BLOCK_BYTES];
    let start = Instant::now();
    for &offset in offsets {
        runtime.get(source.at(offset), &mut block)?;
    }
    Ok(start.elapsed())
}

/// Keeps `depth` gets going, whichever ends first.
fn in_flight(runtime: &Runtime, source: &Cold<'_>, offsets: &[u64], depth: usize) -> Result<Duration> {
    let mut places = offsets.iter();
    let mut gets: Vec<GetHandle<u8>> = Vec::with_capacity(depth);
    let start = Instant::now();
    for &offset in places.by_ref().take(depth) {
        gets.push(runtime.get_nb(source.at(offset), vec![0; BLOCK_BYTES])?);
    }
    while !gets.is_empty() {
        let mut ended: Result<Option<usize>> = Ok(None);
        runtime.wait_until(|| {
            ended = gets
                .iter_mut()
                .enumerate()
                .find_map(|(index, get)| match get.test() {
                    Ok(false) => None,
                    Ok(true) => Some(Ok(index)),
                    Err(error) => Some(Err(error.into())),
                })
                .transpose();
            !matches!(ended, Ok(None))
        })?;
        let index = ended?.ok_or("a wait ended without reason")?;
        let buffer = gets.swap_remove(index).wait()?;
        if let Some(&offset) = places.next() {
            gets.push(runtime.get_nb(source.at(offset), buffer)?);
        }
    }
    Ok(start.elapsed())
}
