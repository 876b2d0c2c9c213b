//! Reading objects whose home has them on NVMe: with a third node that has copies, to which the home hands readers on, and without.

use super::job::{self, Result};
use super::report::Report;
use crate::registry::{Benchmark, Options, Parameter, Row, Setup};
use std::time::Instant;
use vgas::{Rank, Runtime};
use vgas_objects::{DBox, DVec, HeapOptions, Objects};

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "handon",
    help: "Objects that their home has on NVMe: first reads, where another node has copies, and where none has.",
    setup: Setup::Job { ranks: 3, nodes: 3 },
    settings: &[("cache.size", "64MiB"), ("cache.page", "64KiB")],
    parameters: &[Parameter { name: "samples", default: "9", help: "Samples of each figure." }],
    full: &[],
    figures: &[],
    check: |_| Ok(()),
    run,
};

/// Objects that are read in a sample. A message has room for each, without which reads are not forwarded.
const COUNT: usize = 400;
/// Words that the home uses in between: twice its cache.
const OTHER_WORDS: usize = 16 << 20;

/// Those of one size.
type Boxes<const WORDS: usize> = DVec<DBox<[u64; WORDS]>>;

/// Returns the number of objects of this size in two pages, one of which is also of another's page. Only one
/// of so many is read: none is in memory since another one was read.
const fn of_two_pages(words: usize) -> usize {
    2 * (64 << 10) / (8 * words) + 1
}

fn run(options: &Options) -> Result<Vec<Row>> {
    let heap = HeapOptions { bytes: 1 << 29, copies: 1 << 16, copy_bytes: 1 << 28, ..HeapOptions::default() };
    job::with_objects(Runtime::init()?, &heap, |objects| {
        let mut report = Report::new("handon");
        measure::<1200>(options, objects, &mut report)?;
        measure::<5000>(options, objects, &mut report)?;
        Ok(report.into_rows())
    })
}

fn measure<const WORDS: usize>(options: &Options, objects: &Objects, report: &mut Report) -> Result<()> {
    let samples: usize = options.get("samples")?;
    let runtime = objects.runtime();
    job::need(runtime, 3, 3)?;
    let (home, holder, reader, me) = (Rank(0), Rank(1), Rank(2), objects.rank());
    let mut other: DVec<u64> = DVec::new();
    if me == home {
        other = DVec::try_with_capacity(OTHER_WORDS)?;
        other.extend(0..OTHER_WORDS as u64);
    }
    // Median and 99th percentile, with and without copies elsewhere.
    let mut times = [const { Vec::new() }; 4];
    let step = of_two_pages(WORDS);
    let before = handed_on(objects)?;
    for sample in 0..=samples {
        for (at, has_copies) in [true, false].into_iter().enumerate() {
            let all = 0..COUNT * step;
            let boxes = (me == home)
                .then(|| DBox::new(all.map(|at| DBox::new([at as u64; WORDS])).collect::<Boxes<WORDS>>()));
            objects.lend(home, boxes.as_ref(), |boxes| {
                if me == holder && has_copies {
                    boxes.iter().step_by(step).for_each(|one| assert_eq!(one[1], one[WORDS - 1]));
                }
                boxes.len()
            })?;
            if me == home {
                other.iter_mut().step_by(512).for_each(|word| *word += 1);
            }
            let found = objects.lend(home, boxes.as_ref(), |boxes| {
                let mut each: Vec<f64> = Vec::new();
                if me == reader {
                    for (number, one) in boxes.iter().enumerate().step_by(step) {
                        let began = Instant::now();
                        let read = one.read();
                        each.push(began.elapsed().as_nanos() as f64);
                        assert_eq!(*read, [number as u64; WORDS]);
                    }
                }
                each
            })?;
            drop(boxes);
            objects.barrier()?;
            objects.drop_copies()?;
            objects.barrier()?;
            if sample > 0 && me == reader {
                let mut found = found;
                found.sort_by(f64::total_cmp);
                times[2 * at].push(found[COUNT / 2]);
                times[2 * at + 1].push(found[COUNT * 99 / 100]);
            }
        }
    }
    drop(other);
    let handed_on = handed_on(objects)? - before;
    // The first rank tells.
    let bytes: Vec<u8> = times.iter().flatten().flat_map(|time| time.to_le_bytes()).collect();
    let told = runtime.all_gatherv(&bytes)?;
    if me != home {
        return Ok(());
    }
    let all = told.get(reader.0 as usize).map_or(&[][..], |bytes| bytes.as_chunks::<8>().0);
    let all: Vec<f64> = all.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect();
    let [with, with_p99, without, without_p99] =
        std::array::from_fn(|at| all[at * samples..(at + 1) * samples].to_vec());
    let bytes = 8 * WORDS;
    for (what, with, without) in [("median", with, without), ("99th percentile", with_p99, without_p99)] {
        report.compare(
            ["latency", "ns"],
            (&format!("{bytes} B, {what}, from NVMe"), &without),
            (&format!("{bytes} B, {what}, handed on"), &with),
        );
    }
    report.add(
        &format!("{bytes} B, readers that were handed on, of all"),
        "part",
        "1",
        vec![handed_on as f64 / (COUNT * (samples + 1)) as f64],
    );
    Ok(())
}

/// Readers that were handed on by now. Collective.
fn handed_on(objects: &Objects) -> Result<u64> {
    Ok(objects.report()?.nodes.iter().map(|of| of.handed_on).sum())
}
