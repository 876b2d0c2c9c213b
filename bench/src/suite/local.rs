//! What the first plain load or store to an absent page of one's own segment costs, when the page is in DRAM and when it
//! has to come from NVMe (vgasnet.txt III.D). Rank 0 goes round a segment that is larger than what it may have mapped, one
//! word a page: every access faults, and gives another page back.
//!
//! # Rule for the unsafe code in this file
//!
//! Words are loaded and stored inside of the local segment, which nobody else uses, and which lives as long as the runtime.

use super::job::{self, Result};
use super::report::Report;
use crate::registry::{Benchmark, Options, Parameter, Row, Setup};
use std::hint::black_box;
use std::time::Instant;
use vgas::{Counter, GlobalAddress, Runtime, SegmentSpec};

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
    check: |_| Ok(()),
    run,
};

fn run(options: &Options) -> Result<Vec<Row>> {
    let samples: usize = options.get("samples")?;
    job::on_every_rank(Runtime::builder(), |runtime| {
        let page_bytes = runtime.client().page_bytes();
        let cache = runtime.client().pool().layout().frames_bytes();
        let here = runtime.rank().0 == 0;
        // First a quarter of the cache, which stays in DRAM; then four times the cache, which does not.
        runtime.attach(&SegmentSpec {
            tiered_bytes: if here { cache * 4 } else { 0 },
            ..SegmentSpec::default()
        })?;
        let mut rows = Vec::new();
        if here {
            let local = runtime.local()?;
            let mut report = Report::new("local")
                .under("page_bytes", page_bytes)
                .under("mechanism", format!("{:?}", local.mechanism()));
            let rounds = Rounds { runtime, base: local.base(), page_bytes };
            let near = cache / 4;
            rounds.fill(near)?;
            let mut times = [const { Vec::new() }; 2];
            for sample in 0..2 * samples {
                times[sample % 2].push(rounds.round(near, sample % 2 == 1, true)?);
            }
            report.add("load of a page in DRAM", "latency", "us", times[0].clone());
            report.add("store to a page in DRAM", "latency", "us", times[1].clone());
            rounds.fill(local.bytes())?;
            let far = (0..samples.div_ceil(5)).map(|_| rounds.round(local.bytes(), false, false));
            report.add("load of a page on NVMe, in order", "latency", "us", far.collect::<Result<_>>()?);
            rows = report.into_rows();
        }
        runtime.barrier()?;
        Ok(rows)
    })
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

    /// Microseconds of an access, over one round; every access must have faulted, and none needed NVMe if `in_dram`.
    fn round(&self, bytes: u64, store: bool, in_dram: bool) -> Result<f64> {
        let before = self.counts();
        let pages = bytes / self.page_bytes as u64;
        let start = Instant::now();
        for page in 0..pages {
            let word = self.base.wrapping_add(page as usize * self.page_bytes).cast::<u64>();
            // SAFETY: the rule of this file.
            unsafe {
                match store {
                    true => word.write_volatile(page),
                    false => {
                        black_box(word.read_volatile());
                    }
                }
            }
        }
        let elapsed = start.elapsed();
        let (faults, reads) = (self.counts().0 - before.0, self.counts().1 - before.1);
        if faults < pages || (in_dram && reads > 0) {
            return Err(format!("{faults} faults and {reads} reads of NVMe for {pages} pages").into());
        }
        Ok(elapsed.as_secs_f64() * 1e6 / pages as f64)
    }

    /// Faults of this rank, and reads of NVMe by its node.
    fn counts(&self) -> (u64, u64) {
        let client = self.runtime.client();
        let of = |counts: vgas_cache::pool::CounterSnapshot, wanted| {
            counts.iter().find(|(counter, _)| *counter == wanted).map_or(0, |(_, value)| value)
        };
        let reads = of(client.counters(), Counter::NvmReads) + of(client.node_counters(), Counter::NvmReads);
        (of(client.counters(), Counter::Faults), reads)
    }
}
