//! What the first plain load or store to an absent page of one's own segment costs, when the page is in DRAM and when it
//! has to come from NVMe (vGASNet §III.D). Rank 0 goes round a segment that is larger than what it may have mapped, one
//! word a page: in an order in which no page follows its neighbour every access faults, and gives another page back; in order
//! one fault brings several.
//!
//! # Rule for the unsafe code in this file
//!
//! Words are loaded and stored inside of the local segment, which nobody else uses, and which lives as long as the runtime.

use super::job::{self, Result};
use super::report::Report;
use crate::raw::client;
use crate::registry::{Benchmark, Options, Parameter, Row, Setup};
use std::hint::black_box;
use std::time::Instant;
use vgas::{Counter, GlobalAddress, Runtime, SegmentOptions};

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "local",
    help: "Faults of plain loads and stores on one's own segment.",
    setup: Setup::Job { ranks: 1, nodes: 1 },
    settings: &[("cache.size", "128MiB"), ("local.mapped", "8MiB")],
    parameters: &[Parameter {
        name: "samples",
        default: "15",
        help: "Samples of each figure, each a round of the segment.",
    }],
    full: &[],
    figures: &[],
    check: |_| Ok(()),
    run,
};

/// Pages between two that are used one after the other, where none is to follow its neighbour.
const APART: usize = 17;

fn run(options: &Options) -> Result<Vec<Row>> {
    let samples: usize = options.get("samples")?;
    job::on_every_rank(Runtime::builder(), |runtime| {
        let page_bytes = runtime.page_bytes();
        let cache = runtime.cache_layout().frames_bytes();
        let here = runtime.rank().0 == 0;
        // First a quarter of the cache, which stays in DRAM; then four times the cache, which does not.
        let segment = runtime.attach(&SegmentOptions::tiered(if here { cache * 4 } else { 0 }))?;
        let mut rows = Vec::new();
        if here {
            let local = segment.local()?;
            let mut report = Report::new("local")
                .under("page_bytes", page_bytes)
                .under("mechanism", format!("{:?}", local.mechanism()));
            let rounds = Rounds { runtime, base: local.base(), page_bytes };
            let near = cache / 4;
            rounds.fill(near)?;
            let apart = ["load of a page in DRAM", "store to a page in DRAM"];
            let in_order = ["load of a page in DRAM, in order", "store to a page in DRAM, in order"];
            for (step, names) in [(APART, apart), (1, in_order)] {
                let order = rounds.order(near, step);
                let expected = Expected { faults: step == APART, reads: false };
                // What the rounds before have left mapped is no help.
                rounds.round(&order, false, Expected { faults: false, reads: false })?;
                let mut times = [const { Vec::new() }; 2];
                for sample in 0..2 * samples {
                    times[sample % 2].push(rounds.round(&order, sample % 2 == 1, expected)?);
                }
                for (name, times) in names.into_iter().zip(times) {
                    report.add(name, "latency", "us", times);
                }
            }
            rounds.fill(local.bytes())?;
            let all = rounds.order(local.bytes(), 1);
            let far = (0..samples.div_ceil(5))
                .map(|_| rounds.round(&all, false, Expected { faults: false, reads: true }));
            report.add("load of a page on NVMe, in order", "latency", "us", far.collect::<Result<_>>()?);
            rows = report.into_rows();
        }
        runtime.barrier()?;
        Ok(rows)
    })
}

/// What a round must, or must not, have needed.
#[derive(Clone, Copy)]
struct Expected {
    /// One for each page.
    faults: bool,
    /// NVMe may have been read.
    reads: bool,
}

struct Rounds<'r> {
    runtime: &'r Runtime,
    base: *mut u8,
    page_bytes: usize,
}

impl Rounds<'_> {
    /// Puts something into every page.
    fn fill(&self, bytes: u64) -> Result<()> {
        let noise = job::noise(1 << 20, 1);
        for offset in (0..bytes).step_by(noise.len()) {
            let piece = &noise[..noise.len().min((bytes - offset) as usize)];
            self.runtime.put(GlobalAddress::tiered(self.runtime.rank(), offset), piece)?;
        }
        Ok(())
    }

    /// All pages of so many bytes, in steps of so many.
    fn order(&self, bytes: u64, step: usize) -> Vec<usize> {
        let pages = bytes as usize / self.page_bytes;
        (0..step).flat_map(|first| (first..pages).step_by(step)).collect()
    }

    /// Microseconds of an access, over one round of these pages.
    fn round(&self, order: &[usize], store: bool, expected: Expected) -> Result<f64> {
        let before = self.counts();
        let start = Instant::now();
        for &page in order {
            let word = self.base.wrapping_add(page * self.page_bytes).cast::<u64>();
            // SAFETY: the rule of this file.
            unsafe {
                match store {
                    true => word.write_volatile(page as u64),
                    false => {
                        black_box(word.read_volatile());
                    }
                }
            }
        }
        let elapsed = start.elapsed();
        let (faults, reads) = (self.counts().0 - before.0, self.counts().1 - before.1);
        let pages = order.len() as u64;
        if expected.faults && faults < pages || !expected.reads && reads > 0 {
            return Err(format!("{faults} faults and {reads} reads of NVMe for {pages} pages").into());
        }
        Ok(elapsed.as_secs_f64() * 1e6 / pages as f64)
    }

    /// Faults of this rank, and reads of NVMe by its node.
    fn counts(&self) -> (u64, u64) {
        let client = client(self.runtime);
        let of = |counts: vgas_cache::pool::CounterSnapshot, wanted| {
            counts.iter().find(|(counter, _)| *counter == wanted).map_or(0, |(_, value)| value)
        };
        let reads = of(client.counters(), Counter::NvmReads) + of(client.node_counters(), Counter::NvmReads);
        (of(client.counters(), Counter::Faults), reads)
    }
}
