//! Messages between nodes for one miss: counts, which do not vary with the machine.

use super::job::{self, Result};
use super::report::Report;
use crate::registry::{Benchmark, Options, Row, Setup};
use vgas::{Counter, GlobalAddress, Rank, Runtime, SegmentOptions, Statistics};

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "messages",
    help: "Messages for a get miss from the home and from a forwarder, and for a put miss.",
    setup: Setup::Job { ranks: 4, nodes: 4 },
    // Nothing may run ahead, or its messages would be counted, too.
    settings: &[
        ("ablation.read_ahead", "off"),
        ("ablation.in_place", "off"),
        ("ablation.read_nearest", "off"),
    ],
    parameters: &[],
    full: &[],
    figures: &[],
    check: |_| Ok(()),
    run,
};

/// Messages of the protocol.
const KINDS: [Counter; 4] =
    [Counter::RequestMessages, Counter::ReplyMessages, Counter::DataMessages, Counter::InvalidationMessages];

/// Looks in a row that find no further message, before the count is taken for complete.
const LOOKS: u32 = 4;

fn run(_: &Options) -> Result<Vec<Row>> {
    job::on_every_rank(Runtime::builder(), |runtime| {
        job::need(runtime, 4, 4)?;
        let page = runtime.page_bytes() as u64;
        let tiered_bytes = if runtime.rank().0 == 0 { 8 * page } else { 0 };
        runtime.attach(&SegmentOptions::tiered(tiered_bytes))?;
        let at = |index: u64| GlobalAddress::tiered(Rank(0), index * page);
        let put = |rank: u32, index| -> Result<()> {
            if runtime.rank().0 == rank {
                runtime.put_value(at(index), rank)?;
            }
            Ok(())
        };
        let get = |rank: u32, index| -> Result<()> {
            if runtime.rank().0 == rank {
                runtime.get_value::<u32>(at(index))?;
            }
            Ok(())
        };
        let messages = |counted: &Statistics| -> u64 { KINDS.iter().map(|&kind| counted.get(kind)).sum() };
        // A rank has its answer before the last message about it has been sent.
        let settled = || -> Result<Statistics> {
            let (mut last, mut alike) = (runtime.statistics()?, 0);
            while alike < LOOKS {
                runtime.barrier()?;
                let next = runtime.statistics()?;
                alike = if messages(&next) == messages(&last) { alike + 1 } else { 0 };
                last = next;
            }
            Ok(last)
        };
        let count = |of: &dyn Fn() -> Result<()>| -> Result<Statistics> {
            let before = settled()?;
            of()?;
            runtime.barrier()?;
            Ok(settled()?.since(&before))
        };
        let mut report = Report::new("messages").under("nodes", runtime.nodes());
        let mut tell = |case: &str, counted: &Statistics| {
            report.add(case, "messages", "", vec![messages(counted) as f64]);
        };
        put(0, 0)?;
        runtime.barrier()?;
        tell("get miss, answered by the home", &count(&|| get(1, 0))?);
        put(1, 1)?;
        runtime.barrier()?;
        tell("get miss, answered by a forwarder", &count(&|| get(2, 1))?);
        tell("put miss, no copies", &count(&|| put(1, 2))?);
        for sharers in 1..=2u32 {
            let index = 2 + u64::from(sharers);
            put(0, index)?;
            runtime.barrier()?;
            for rank in 2..2 + sharers {
                get(rank, index)?;
                runtime.barrier()?;
            }
            // The home itself is one of those that have the page.
            let case = format!("put miss, {sharers} other sharers and the home");
            tell(&case, &count(&|| put(1, index))?);
        }
        Ok(if runtime.rank().0 == 0 { report.into_rows() } else { Vec::new() })
    })
}
