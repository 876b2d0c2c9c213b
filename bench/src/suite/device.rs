//! Rates of the device below: raw io_uring with O_DIRECT, on a file of its own, by size and depth; and the
//! gain of io_uring's options. (The volume on top of it has its own measurement:
//! `cargo run --release -p vgas-nvm --example device_rates`.)

use super::files::NoiseFile;
use super::job::Result;
use super::raw::{RawReader, RingMode};
use super::report::Report;
use crate::figure::{Figure, Form};
use crate::registry::{Benchmark, CannotRun, Options, Parameter, Row, Setup};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use std::path::PathBuf;

const BY_SIZE: Form = Form::Lines { by: "bytes", label: "size of one access", panels: "depth" };

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "device",
    help: "Raw direct reads and writes of the disk, sequential and random, by size and depth; options of io_uring.",
    setup: Setup::NoJob { takes: &["nvm.directory"] },
    settings: &[],
    parameters: &[
        Parameter { name: "directory", default: "", help: "Folder of the file; default: nvm.directory." },
        Parameter { name: "mebibytes", default: "512", help: "Size of the file in MiB." },
        Parameter { name: "samples", default: "3", help: "Samples of each figure." },
        Parameter { name: "sample", default: "32", help: "MiB of one sample at most." },
    ],
    full: &[("mebibytes", "4096"), ("samples", "9"), ("sample", "256")],
    figures: &[
        Figure {
            name: "device",
            question: "How much does the drive give, by size and by how many are in flight?",
            expect: "Small accesses need many in flight; from some 64 KiB on the drive gives all it has. Writes may end in a cache.",
            unit: "MB/s",
            cases: &["random read", "sequential read", "random write", "sequential write"],
            form: BY_SIZE,
            ..Figure::BASE
        },
        Figure {
            name: "device-options",
            question: "What do the options of io_uring bring, for random reads of 4 KiB?",
            expect: "Registered files and memory spare some of each access; a polling thread spares system calls and takes a core.",
            metric: "operations",
            unit: "k/s",
            form: Form::Dots { by: &["depth"] },
            ..Figure::BASE
        },
    ],
    check: |options| options.mebibytes("sample").map(drop),
    run,
};

const SIZES: [u64; 6] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];
const DEPTHS: [usize; 3] = [1, 8, 32];
const KINDS: [(&str, bool, bool); 4] = [
    ("random read", true, false),
    ("sequential read", false, false),
    ("random write", true, true),
    ("sequential write", false, true),
];
const ASKED: [(&str, RingMode); 3] = [
    ("plain", RingMode::Plainly),
    ("file and memory registered", RingMode::Registered),
    ("registered, polled by the kernel", RingMode::Polled),
];

/// Accesses of one sample at most: what a slow drive does in a tenth of a second.
const TIMES: u64 = 1000;

fn run(options: &Options) -> Result<Vec<Row>> {
    let (samples, bytes): (usize, u64) = (options.get("samples")?, options.mebibytes("mebibytes")?);
    let sample_bytes = options.mebibytes("sample")?;
    let folder = match options.text("directory") {
        "" => options.config().settings().nvm.directory_path(),
        folder => PathBuf::from(folder),
    };
    let file = NoiseFile::create(&folder, bytes)?;
    let mut places = Places { bytes, seed: 0 };
    let mut rows = Vec::new();
    for depth in DEPTHS {
        for block in SIZES {
            let blocks = (sample_bytes / block).min(TIMES).max(depth as u64 * 2);
            if blocks * block > bytes {
                return Err("the file is too small for so large samples".into());
            }
            let mut rates = [const { Vec::new() }; KINDS.len()];
            let mut raw = RawReader::open(&file.path(), block as usize, depth)?;
            for _ in 0..samples {
                for ((_, random, write), rates) in KINDS.iter().zip(&mut rates) {
                    let offsets = places.next(block, blocks, *random);
                    let time = if *write { raw.write(&offsets)? } else { raw.read(&offsets)? };
                    rates.push((block * blocks) as f64 / time.as_secs_f64() / 1e6);
                }
            }
            let mut report = Report::new("device").under("bytes", block).under("depth", depth);
            for ((name, ..), rates) in KINDS.iter().zip(rates) {
                report.add(name, "rate", "MB/s", rates);
            }
            rows.extend(report.into_rows());
        }
        rows.extend(with_options(&file, &mut places, depth, samples)?);
    }
    Ok(rows)
}

/// Random reads of 4 KiB in each way of asking, in turn. Ways that the kernel refuses are left out.
fn with_options(file: &NoiseFile, places: &mut Places, depth: usize, samples: usize) -> Result<Vec<Row>> {
    let mut report = Report::new("device").under("bytes", 4096).under("depth", depth);
    let mut found = Vec::new();
    for (name, asked) in ASKED {
        match RawReader::asked(asked, &file.path(), 4096, depth) {
            Ok(raw) => found.push((name, raw, Vec::new())),
            Err(error) if error.is::<CannotRun>() && asked == RingMode::Polled => {}
            Err(error) => return Err(error),
        }
    }
    for _ in 0..samples {
        for (_, raw, rates) in &mut found {
            let offsets = places.next(4096, TIMES * depth.min(4) as u64, true);
            rates.push(offsets.len() as f64 / raw.read(&offsets)?.as_secs_f64() / 1e3);
        }
    }
    for (name, _, rates) in found {
        report.add(name, "operations", "k/s", rates);
    }
    Ok(report.into_rows())
}

/// Places of samples: each in another part of the file.
struct Places {
    bytes: u64,
    seed: u64,
}

impl Places {
    fn next(&mut self, block: u64, blocks: u64, random: bool) -> Vec<u64> {
        self.seed += 1;
        let all = self.bytes / block;
        if random {
            let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(self.seed);
            let mut offsets: Vec<u64> = (0..all).map(|at| at * block).collect();
            let (chosen, _) = offsets.partial_shuffle(&mut random, blocks as usize);
            return chosen.to_vec();
        }
        // Steps of a golden section come back to no place soon.
        let first = (self.seed * all * 618 / 1000) % all;
        (first..first + blocks).map(|at| at % all * block).collect()
    }
}
