//! All ranks put one byte each into the same page, again and again, against the same puts into a pinned segment: what
//! vGASNet loses a factor of 138 by (vgasnet.txt IV.C). Once all at once, when a node may finish many puts while it has
//! the page, and once with a barrier after every put, when it may not.

use super::job::{self, Result};
use super::report::Report;
use crate::registry::{Benchmark, Options, Parameter, Row, Setup};
use std::time::Instant;
use vgas::{Counter, GlobalAddress, Rank, Runtime, SegmentSpec};

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "false-sharing",
    help: "Bytes of one page put by all ranks at once, against a pinned segment.",
    setup: Setup::Job { ranks: 2, nodes: 2 },
    settings: &[],
    parameters: &[
        Parameter { name: "puts", default: "5000", help: "Puts of each rank in one sample." },
        Parameter { name: "samples", default: "9", help: "Samples of each figure." },
    ],
    check: |_| Ok(()),
    run,
};

fn run(options: &Options) -> Result<Vec<Row>> {
    let (puts, samples): (u64, usize) = (options.get("puts")?, options.get("samples")?);
    if puts < 10 {
        return Err("puts are at least 10".into());
    }
    job::on_every_rank(Runtime::builder(), |runtime| {
        let bytes = runtime.client().page_bytes() as u64;
        let here = if runtime.rank().0 == 0 { bytes } else { 0 };
        // Every rank needs a pinned segment to be one of a plain GASNet.
        runtime.attach(&SegmentSpec { pinned_bytes: bytes, tiered_bytes: here, ..SegmentSpec::default() })?;
        let before = runtime.statistics()?;
        let mine = u64::from(runtime.rank().0);
        let places = [GlobalAddress::tiered(Rank(0), mine), GlobalAddress::pinned(Rank(0), mine)];
        let cases = [("at once", puts, false), ("with a barrier after each", puts / 10, true)];
        let mut times = [const { [const { Vec::new() }; 2] }; 2];
        for sample in 0..=samples {
            for (times, (_, puts, in_step)) in times.iter_mut().zip(cases) {
                for turn in 0..2 {
                    let way = (sample + turn) % 2;
                    runtime.barrier()?;
                    let start = Instant::now();
                    for put in 0..puts {
                        runtime.put_value(places[way], put as u8)?;
                        if in_step {
                            runtime.barrier()?;
                        }
                    }
                    runtime.barrier()?;
                    // The first round finds out that the page is shared.
                    if sample > 0 {
                        times[way].push(start.elapsed().as_secs_f64() * 1e6 / puts as f64);
                    }
                }
            }
        }
        let puts = puts / 10;
        for place in places {
            let last: u8 = runtime.get_value(place)?;
            if u64::from(last) != (puts - 1) & 0xff {
                return Err(format!("the byte at {place:?} is {last}: a put was lost").into());
            }
        }
        let counted = runtime.statistics()?.since(&before);
        let mut rows = Vec::new();
        if runtime.rank().0 == 0 {
            let mut report = Report::new("false-sharing")
                .under("nodes", runtime.nodes())
                .under("ranks", runtime.ranks())
                .under("page_bytes", bytes);
            for ((case, ..), [tiered, pinned]) in cases.iter().zip(&times) {
                report.compare(
                    ["time", "us"],
                    (&format!("put of each rank {case}, shared page"), tiered),
                    (&format!("put of each rank {case}, pinned segment"), pinned),
                );
            }
            let all = (cases.iter().map(|(_, puts, _)| puts).sum::<u64>()
                * (samples as u64 + 1)
                * u64::from(runtime.ranks())) as f64;
            for counter in [Counter::InPlaceServed, Counter::DataMessages] {
                let name = format!("{} for each put", counter.name());
                report.add(&name, "count", "", vec![counted.get(counter) as f64 / all]);
            }
            rows = report.into_rows();
        }
        Ok(rows)
    })
}
