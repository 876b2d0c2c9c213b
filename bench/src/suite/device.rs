//! What the device below gives: raw io_uring with O_DIRECT and registered memory, on a file of its own. (The volume on
//! top of it has its own measurement: `cargo run --release -p vgas-nvm --example device_rates`.)

use super::files::NoiseFile;
use super::job::Result;
use super::raw::RawReader;
use super::report::Report;
use crate::registry::{Benchmark, Options, Parameter, Row, Setup};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use std::path::PathBuf;

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "device",
    help: "Raw direct reads of the disk, sequential and random.",
    setup: Setup::NoJob { takes: &["nvm.directory"] },
    settings: &[],
    parameters: &[
        Parameter { name: "directory", default: "", help: "Folder of the file; default: nvm.directory." },
        Parameter { name: "mebibytes", default: "1024", help: "Size of the file in MiB." },
        Parameter {
            name: "samples",
            default: "5",
            help: "Samples of each figure, each on blocks not read before.",
        },
    ],
    check: |_| Ok(()),
    run,
};

struct Case {
    name: &'static str,
    block_bytes: usize,
    depth: usize,
    random: bool,
    /// Of one sample.
    blocks_max: usize,
}

const CASES: [Case; 6] = [
    Case { name: "random read 4 KiB", block_bytes: 4 << 10, depth: 1, random: true, blocks_max: 1000 },
    Case { name: "random read 4 KiB", block_bytes: 4 << 10, depth: 32, random: true, blocks_max: 8000 },
    Case { name: "random read 64 KiB", block_bytes: 64 << 10, depth: 8, random: true, blocks_max: 500 },
    Case { name: "sequential read 64 KiB", block_bytes: 64 << 10, depth: 16, random: false, blocks_max: 500 },
    Case { name: "sequential read 1 MiB", block_bytes: 1 << 20, depth: 8, random: false, blocks_max: 32 },
    Case { name: "sequential read 4 MiB", block_bytes: 4 << 20, depth: 4, random: false, blocks_max: 8 },
];

fn run(options: &Options) -> Result<Vec<Row>> {
    let samples: usize = options.get("samples")?;
    let bytes = options.mebibytes("mebibytes")?;
    let folder = match options.text("directory") {
        "" => options.config().settings().nvm.directory_path(),
        folder => PathBuf::from(folder),
    };
    let file = NoiseFile::create(&folder, bytes)?;
    let mut rates = vec![Vec::new(); CASES.len()];
    let share = bytes / (samples * CASES.len()).max(1) as u64;
    for sample in 0..samples {
        for (index, case) in CASES.iter().enumerate() {
            let first = (sample * CASES.len() + index) as u64 * share;
            let block = case.block_bytes as u64;
            let blocks = first.next_multiple_of(block)..=(first + share).saturating_sub(block);
            let mut offsets: Vec<u64> = blocks.step_by(case.block_bytes).collect();
            if case.random {
                offsets.shuffle(&mut rand_chacha::ChaCha8Rng::seed_from_u64(first));
            }
            offsets.truncate(case.blocks_max);
            if offsets.is_empty() {
                return Err("the file is too small for so many samples".into());
            }
            let mut reader = RawReader::open(&file.path(), case.block_bytes, case.depth)?;
            rates[index].push(offsets.len() as f64 / reader.read(&offsets)?.as_secs_f64());
        }
    }
    let mut rows = Vec::new();
    for (case, rates) in CASES.iter().zip(rates) {
        let mut report = Report::new("device").under("depth", case.depth);
        match (case.block_bytes, case.depth) {
            (4096, 1) => {
                report.add(case.name, "latency", "us", rates.iter().map(|rate| 1e6 / rate).collect())
            }
            (4096, _) => report.add(case.name, "rate", "1/s", rates),
            (bytes, _) => report.add(
                case.name,
                "rate",
                "GB/s",
                rates.iter().map(|rate| rate * bytes as f64 / 1e9).collect(),
            ),
        }
        rows.extend(report.into_rows());
    }
    Ok(rows)
}
