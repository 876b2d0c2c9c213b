//! `v[i] += 1` all over an unshared row in the heap, beside `Vec`: each goes through the row's pointer, and
//! none moves it (DRust §4.1.1, where a colour that overflows copies the object). And the same of a slice
//! that was borrowed once.

use super::job::{self, Result};
use super::report::Report;
use crate::registry::{Benchmark, Options, Parameter, Row, Setup};
use std::hint::black_box;
use std::ops::DerefMut;
use std::time::Instant;
use vgas::Runtime;
use vgas_objects::{DVec, HeapOptions};

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "increments",
    help: "v[i] += 1 in a row of the object heap that nobody else reads, beside Vec.",
    setup: Setup::Job { ranks: 1, nodes: 1 },
    // Half of the cache can be mapped: room for the larger row, in pages that cost few faults.
    settings: &[("cache.size", "3GiB"), ("cache.page", "4MiB")],
    parameters: &[
        Parameter { name: "row", default: "256", help: "MiB of the row." },
        Parameter { name: "increments", default: "100000000", help: "Of each sample." },
        Parameter { name: "samples", default: "7", help: "Samples of each figure." },
    ],
    full: &[("row", "1024"), ("increments", "1000000000"), ("samples", "3")],
    figures: &[],
    check: |options| options.mebibytes("row").map(|_| ()),
    run,
};

fn run(options: &Options) -> Result<Vec<Row>> {
    let heap = HeapOptions { bytes: 4 * options.mebibytes("row")?, ..HeapOptions::default() };
    job::with_objects(Runtime::init()?, &heap, |_| measure(options).map(Report::into_rows))
}

fn measure(options: &Options) -> Result<Report> {
    let (samples, increments): (usize, usize) = (options.get("samples")?, options.get("increments")?);
    let count = (options.mebibytes("row")? / size_of::<u64>() as u64) as usize;
    let mut plain = vec![0_u64; count];
    let mut owned: DVec<u64> = DVec::with_capacity(count);
    owned.resize(count, 0);
    let place = owned.as_ptr();
    let mut times = [const { Vec::new() }; 3];
    // The first round brings both in.
    for sample in 0..=samples {
        let found = [
            increment(&mut plain, count, increments),
            increment(&mut owned, count, increments),
            increment(&mut &mut owned[..], count, increments),
        ];
        // As often as the other.
        increment(&mut plain, count, increments);
        if sample > 0 {
            times.iter_mut().zip(found).for_each(|(all, time)| all.push(time));
        }
    }
    if owned[..] != plain[..] {
        return Err("the rows differ".into());
    }
    let moves = u32::from(owned.as_ptr() != place);
    let mut report = Report::new("increments").under("row_bytes", options.mebibytes("row")?);
    let [plain, owned, borrowed] = times;
    let (latency, base) = (["latency", "ns"], ("Vec", &plain[..]));
    report.compare(latency, ("v[i] += 1 in the heap", &owned), base);
    report.compare(latency, ("of a slice that was borrowed before", &borrowed), base);
    report.add("moves of the row", "count", "", vec![f64::from(moves)]);
    Ok(report)
}

/// Nanoseconds of each of so many increments, from one end of the row to the other, again and again.
#[inline(never)]
fn increment(row: &mut impl DerefMut<Target = [u64]>, count: usize, times: usize) -> f64 {
    let began = Instant::now();
    let mut left = times;
    while left > 0 {
        let now = left.min(count);
        for at in 0..now {
            // Each for itself, in both: a compiler that sees through `Vec` alone would add several at once.
            row[black_box(at)] += 1;
        }
        left -= now;
    }
    began.elapsed().as_nanos() as f64 / times as f64
}
