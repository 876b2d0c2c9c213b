//! All nodes put one byte each into the same page, again and again (vGASNet §IV.C, figure 10), by number of nodes: with all that
//! vgas does, without cooperative caching, without the service in place that vgas adds to the paper, and without both, which is the
//! paper's "w/o CC". Beside them the same puts into a pinned segment, which the paper's vGASNet loses a factor of 138 against.
//!
//! In one virtual cluster, a job for each number of nodes and each kind. Ranks put all at once, when a node may finish many puts while
//! it has the page, and once more with a barrier after every put, when it may not.

use super::child;
use super::job::Result;
use super::report::Report;
use crate::figure::{Better, Claim, Figure, Form, Reference};
use crate::registry::{Benchmark, Options, Parameter, Row, Setup};
use std::time::Instant;
use vgas::{Counter, GlobalAddress, Rank, Runtime, SegmentOptions, say};

const LINES: Form = Form::Lines { by: "nodes", label: "nodes, one rank each", panels: "" };

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "false-sharing",
    help: "1 to 8 virtual nodes put one byte each into one page, against a pinned segment (figure 10).",
    setup: Setup::OwnJobs {
        decides: &["ablation.cooperative", "ablation.in_place", "cache.size", "run.label"],
    },
    settings: super::seq::HARDWARE,
    parameters: &[
        Parameter { name: "nodes", default: "8", help: "The most nodes, one rank each; halved down to one." },
        Parameter { name: "puts", default: "400", help: "Puts of each rank in one sample." },
        Parameter {
            name: "migrating",
            default: "12",
            help: "The same where the page goes from node to node for each.",
        },
        Parameter { name: "samples", default: "3", help: "Samples of each figure." },
    ],
    full: &[("puts", "5000"), ("migrating", "100"), ("samples", "9")],
    figures: &[
        Figure {
            name: "false-sharing",
            question: "What does a put of one byte cost when all nodes put into the same page?",
            expect: "With the service in place a put costs about what one into pinned memory does. The paper's vGASNet, whose page goes \
                     from node to node, was 138 times slower than GASNet, and 23.5 to 33.7 times slower again without cooperation. On one node it is a hit, of \
                     nanoseconds.",
            metric: "time",
            unit: "us",
            cases: &[
                "put of each rank, all that vgas does",
                "put of each rank, without cooperation",
                "put of each rank, without service in place",
                "put of each rank, without both",
                "put of each rank, pinned segment",
            ],
            references: &["put of each rank, pinned segment"],
            claims: &[
                Claim::new(
                    "put of each rank, all that vgas does",
                    Reference::Case("put of each rank, pinned segment"),
                    0.25,
                ),
                Claim::new(
                    "put of each rank, all that vgas does",
                    Reference::Case("put of each rank, without both"),
                    2.0,
                ),
            ],
            from: 2.0,
            form: LINES,
            better: Better::Lower,
            ..Figure::BASE
        },
        Figure {
            name: "false-sharing-in-step",
            question: "And when all nodes wait for each other after every put?",
            expect: "A barrier after each put keeps a node from finishing many while it has the page; most of the time is the barrier's.",
            metric: "time",
            unit: "us",
            cases: &[
                "put and barrier, all that vgas does",
                "put and barrier, without cooperation",
                "put and barrier, without service in place",
                "put and barrier, without both",
                "put and barrier, pinned segment",
            ],
            references: &["put and barrier, pinned segment"],
            claims: &[Claim::new(
                "put and barrier, all that vgas does",
                Reference::Case("put and barrier, pinned segment"),
                0.25,
            )],
            from: 2.0,
            form: LINES,
            better: Better::Lower,
            ..Figure::BASE
        },
    ],
    check,
    run,
};

/// Jobs: words of the rows, settings, and if the page goes from node to node.
const WAYS: [(&str, &[&str], bool); 4] = [
    ("all that vgas does", &[], false),
    ("without cooperation", &["--set", "ablation.cooperative=off"], false),
    ("without service in place", &["--set", "ablation.in_place=off"], true),
    ("without both", &["--set", "ablation.in_place=off", "--set", "ablation.cooperative=off"], true),
];

/// Prefixes of rank 0's output: microseconds of a put into the page and into a pinned segment, at once and in
/// step; counts for each put.
const WORDS: [&str; 4] = ["tiered ", "pinned ", "tiered_in_step ", "pinned_in_step "];
const SERVED: &str = "served ";

fn check(options: &Options) -> Result<()> {
    let nodes: u32 = options.get("nodes")?;
    if nodes > 64 || !nodes.is_power_of_two() {
        return Err("`nodes` is a power of two, at most 64".into());
    }
    if options.get::<u64>("puts")? == 0 {
        return Err("`puts` is at least 1".into());
    }
    Ok(())
}

fn run(options: &Options) -> Result<Vec<Row>> {
    if child::in_job() {
        return rank(options.get("puts")?, options.get("samples")?);
    }
    let most: u32 = options.get("nodes")?;
    let samples = format!("samples={}", options.text("samples"));
    let mut rows = Vec::new();
    for nodes in std::iter::successors(Some(1), |nodes| Some(nodes * 2)).take_while(|&nodes| nodes <= most) {
        let count = nodes.to_string();
        let mut report = Report::new("false-sharing").under("nodes", nodes);
        let mut pinned = [Vec::new(), Vec::new()];
        for (name, settings, migrates) in WAYS {
            let puts = options.text(if migrates && nodes > 1 { "migrating" } else { "puts" });
            let puts = format!("puts={puts}");
            let program = ["bench", "false-sharing", "--param", &puts, "--param", &samples];
            let flags = [&["-n", &count, "--nodes", &count, "--cache", "16MiB"], settings].concat();
            let (_, printed) = child::run(options, &flags, &program)?;
            let [at_once, bare, in_step, bare_in_step] = WORDS.map(|word| child::numbers(&printed, word));
            report.add(&format!("put of each rank, {name}"), "time", "us", child::told(at_once)?);
            report.add(&format!("put and barrier, {name}"), "time", "us", child::told(in_step)?);
            let served = child::told(child::numbers(&printed, SERVED))?;
            report.add(&format!("served in place for each put, {name}"), "count", "", served);
            if !migrates {
                pinned[0].extend(child::told(bare)?);
                pinned[1].extend(child::told(bare_in_step)?);
            }
        }
        let [at_once, in_step] = pinned;
        report.add("put of each rank, pinned segment", "time", "us", at_once);
        report.add("put and barrier, pinned segment", "time", "us", in_step);
        rows.extend(report.into_rows());
    }
    Ok(rows)
}

fn rank(puts: u64, samples: usize) -> Result<Vec<Row>> {
    let runtime = Runtime::init()?;
    let bytes = runtime.page_bytes() as u64;
    let here = if runtime.rank().0 == 0 { bytes } else { 0 };
    // Every rank needs a pinned segment to be one of a plain GASNet.
    runtime.attach(&SegmentOptions::tiered(here))?;
    runtime.attach(&SegmentOptions::pinned(bytes))?;
    let before = runtime.statistics()?;
    let mine = u64::from(runtime.rank().0);
    let places = [GlobalAddress::tiered(Rank(0), mine), GlobalAddress::pinned(Rank(0), mine)];
    let in_step_puts = puts.div_ceil(10);
    // The first round finds out that the page is shared.
    for sample in 0..=samples {
        for (way, word) in WORDS.iter().enumerate() {
            let (place, in_step) = (places[way % 2], way >= 2);
            let puts = if in_step { in_step_puts } else { puts };
            runtime.barrier()?;
            let start = Instant::now();
            for put in 0..puts {
                runtime.put_value(place, put as u8)?;
                if in_step {
                    runtime.barrier()?;
                }
            }
            runtime.barrier()?;
            let time = start.elapsed().as_secs_f64() * 1e6 / puts as f64;
            if sample > 0 && runtime.rank().0 == 0 {
                say::print(format_args!("{word}{time}\n"))?;
            }
        }
    }
    for place in places {
        let last: u8 = runtime.get_value(place)?;
        if u64::from(last) != (in_step_puts - 1) & 0xff {
            return Err(format!("the byte at {place:?} is {last}: a put was lost").into());
        }
    }
    let served = runtime.statistics()?.since(&before).get(Counter::InPlaceServed) as f64;
    if runtime.rank().0 == 0 {
        let all = (puts + in_step_puts) * (samples as u64 + 1) * u64::from(runtime.ranks());
        say::print(format_args!("{SERVED}{}\n", served / all as f64))?;
    }
    runtime.finalize()?;
    Ok(Vec::new())
}
