//! A row of the object heap that is many times the cache, read from one end to the other through its pointer, beside the device's own rate
//! for as many bytes: in turn, in the same folder.

use super::files::NoiseFile;
use super::job::{self, Result};
use super::raw::RawReader;
use super::report::Report;
use crate::registry::{Benchmark, Options, Parameter, Row, Setup};
use std::time::Instant;
use vgas::Runtime;
use vgas_objects::{DVec, HeapOptions};

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "heap-scan",
    help: "A row of the object heap, many times the cache, read in order, beside the device.",
    setup: Setup::Job { ranks: 1, nodes: 1 },
    settings: &[("cache.size", "64MiB")],
    parameters: &[
        Parameter { name: "row", default: "512", help: "MiB of the row." },
        Parameter { name: "samples", default: "5", help: "Samples of each figure." },
    ],
    full: &[("row", "2048"), ("samples", "9")],
    figures: &[],
    check: |options| options.mebibytes("row").map(|_| ()),
    run,
};

/// As the device likes it best.
const RAW_BLOCK_BYTES: usize = 1 << 20;
const RAW_DEPTH: usize = 8;

fn run(options: &Options) -> Result<Vec<Row>> {
    let runtime = Runtime::init()?;
    let (row_bytes, folder) = (options.mebibytes("row")?, runtime.settings().nvm.directory_path());
    super::files::check_space(&folder, 4 * row_bytes)?;
    let cache_bytes = runtime.cache_layout().frames_bytes();
    let heap = HeapOptions { bytes: row_bytes + (64 << 20), ..HeapOptions::default() };
    job::with_objects(runtime, &heap, |_| {
        let samples: usize = options.get("samples")?;
        let count = row_bytes / size_of::<u64>() as u64;
        let row: DVec<u64> = value_of_all(count)?;
        let right = (0..count).fold(0, |sum: u64, at| sum.wrapping_add(value_of(at)));
        let file = NoiseFile::create(&folder, row_bytes)?;
        let mut raw = RawReader::open(&file.path(), RAW_BLOCK_BYTES, RAW_DEPTH)?;
        let places: Vec<u64> = (0..row_bytes).step_by(RAW_BLOCK_BYTES).collect();
        let (mut scans, mut device) = (Vec::new(), Vec::new());
        let rate = |time: std::time::Duration| row_bytes as f64 / time.as_secs_f64() / 1e9;
        // The first round writes what has changed.
        for sample in 0..=samples {
            let began = Instant::now();
            let sum = row.iter().fold(0, |sum: u64, value| sum.wrapping_add(*value));
            let scan = rate(began.elapsed());
            if sum != right {
                return Err("the row has other values than were written".into());
            }
            let bare = rate(raw.read(&places)?);
            if sample > 0 {
                scans.push(scan);
                device.push(bare);
            }
        }
        let mut report =
            Report::new("heap-scan").under("row_bytes", row_bytes).under("cache_bytes", cache_bytes);
        report.compare(["rate", "GB/s"], ("scan of the row", &scans), ("raw device", &device));
        Ok(report.into_rows())
    })
}

fn value_of(at: u64) -> u64 {
    at.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn value_of_all(count: u64) -> Result<DVec<u64>> {
    let mut row = DVec::try_with_capacity(count as usize)?;
    row.extend((0..count).map(value_of));
    Ok(row)
}
