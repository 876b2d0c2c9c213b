//! Cooperative caching on against off (vGASNet §III.B), with data that fits into one cache: what the home could answer
//! as well must not become slower because others answer it.
//!
//! Three nodes read what the first one owns. Each round takes new data, which was never written (so that it
//! is the same as on NVMe without any output), through three situations that exercise different parts:
//!
//! * *The owner's node has read it*, the others have nothing: they may get it from there, or (only with cooperation) from each
//!   other.
//! * *All have it*: only hits, in both cases.
//! * *The owner has changed an eighth*, which the others have to get again. It differs from NVMe, so that the owner's node
//!   answers in both cases, with the same messages: what is left of a difference is noise.
//!
//! In the end the owner writes all of it, which frees the others' frames for the next round: no cache ever gets full.
//!
//! Cooperation is a setting of a whole job. Each job gives the median of its rounds for each situation; a sample of the
//! ratio is a pair of jobs in turn.

use super::child;
use super::job::{Result, noise};
use super::report::Report;
use crate::registry::{Benchmark, Options, Parameter, Row, Setup, median};
use std::time::Instant;
use vgas::{Counter, GlobalAddress, Rank, Runtime, SegmentOptions, say};

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "cooperative",
    help: "Cooperative caching on against off, with data that fits into one cache, jobs in turn.",
    setup: Setup::OwnJobs { decides: &["ablation.cooperative", "cache.size", "run.label"] },
    settings: &[],
    parameters: &[
        Parameter { name: "nodes", default: "3", help: "Nodes, one rank each." },
        Parameter { name: "bytes", default: "16777216", help: "Size of the data, in bytes." },
        Parameter { name: "rounds", default: "7", help: "Rounds of all situations in a job." },
        Parameter { name: "samples", default: "7", help: "Jobs of each kind." },
    ],
    full: &[],
    figures: &[],
    check,
    run,
};

/// The situations: what is printed by the ranks, and what it is called in the rows.
const SITUATIONS: [(&str, &str); 3] = [
    ("fetched ", "others read what the owner's node has read"),
    ("again ", "all read what all have"),
    ("changed ", "all read, an eighth changed"),
];

/// The share of pages that came from another node than the home, as printed.
const SHARE: &str = "forwarded ";

/// The cache of each node: the owner's keeps the data of all rounds, one of which warms up; some room is left.
fn cache_bytes(bytes: u64, rounds: usize) -> Result<u64> {
    let bytes = (rounds as u64).checked_add(3).and_then(|rounds| rounds.checked_mul(bytes));
    bytes.ok_or_else(|| "the data of all rounds is more than any cache holds".into())
}

fn check(options: &Options) -> Result<()> {
    cache_bytes(options.get("bytes")?, options.get("rounds")?).map(drop)
}

fn run(options: &Options) -> Result<Vec<Row>> {
    let (bytes, rounds): (u64, usize) = (options.get("bytes")?, options.get("rounds")?);
    if child::in_job() {
        return rank(bytes, rounds);
    }
    let (nodes, samples): (u32, usize) = (options.get("nodes")?, options.get("samples")?);
    let (cache, nodes_text) = (cache_bytes(bytes, rounds)?.to_string(), nodes.to_string());
    let program = [format!("bytes={bytes}"), format!("rounds={rounds}")];
    let program = ["bench", "cooperative", "--param", &program[0], "--param", &program[1]];
    let mut rates = [const { [const { Vec::new() }; SITUATIONS.len()] }; 2];
    let mut shares = [const { Vec::new() }; 2];
    for sample in 0..samples {
        for turn in 0..2 {
            let way = (sample + turn) % 2;
            let setting = ["ablation.cooperative=on", "ablation.cooperative=off"][way];
            let flags = ["-n", &nodes_text, "--nodes", &nodes_text, "--cache", &cache, "--set", setting];
            let (_, printed) = child::run(options, &flags, &program)?;
            let number = |word| child::numbers(&printed, word).first().copied().ok_or("a job told nothing");
            for ((word, _), rates) in SITUATIONS.iter().zip(&mut rates[way]) {
                rates.push(number(word)?);
            }
            shares[way].push(number(SHARE)?);
        }
    }
    let mut report = Report::new("cooperative").under("nodes", nodes).under("bytes", bytes);
    let [on, off] = rates;
    for ((_, name), (on, off)) in SITUATIONS.iter().zip(on.iter().zip(&off)) {
        report.compare(["rate", "GB/s"], (name, on), (&format!("{name}, without cooperation"), off));
    }
    let [on, off] = shares;
    report.add("share of pages that a forwarder sent", "share", "", on);
    report.add("the same without cooperation", "share", "", off);
    Ok(report.into_rows())
}

/// Rank 0 owns the data.
fn rank(bytes: u64, rounds: usize) -> Result<Vec<Row>> {
    let runtime = Runtime::init()?;
    let owner = runtime.rank().0 == 0;
    let tiered_bytes = if owner { (rounds as u64 + 1) * bytes } else { 0 };
    runtime.attach(&SegmentOptions::tiered(tiered_bytes))?;
    let changes = noise((bytes / 8) as usize, 1);
    let mut read = vec![1u8; bytes as usize];
    let mut seconds = [const { Vec::new() }; SITUATIONS.len()];
    let (mut forwarded, mut answered) = (0, 0);
    // The first round only warms up.
    for round in 0..=rounds {
        let data = GlobalAddress::tiered(Rank(0), round as u64 * bytes);
        let timed = |read: &mut [u8]| -> Result<f64> {
            runtime.barrier()?;
            let start = Instant::now();
            runtime.get(data, read)?;
            runtime.barrier()?;
            Ok(start.elapsed().as_secs_f64())
        };
        if owner {
            runtime.get(data, &mut read)?;
        }
        let before = runtime.statistics()?;
        let fetched = timed(&mut read)?;
        let since = runtime.statistics()?.since(&before);
        forwarded += since.get(Counter::FromPeer);
        answered += since.get(Counter::FromPeer) + since.get(Counter::FromHome);
        let again = timed(&mut read)?;
        if owner {
            runtime.put(data, &changes)?;
        }
        let changed = timed(&mut read)?;
        if read[..changes.len()] != changes || read[changes.len()..].iter().any(|&byte| byte != 0) {
            return Err("read something else than what was written".into());
        }
        runtime.barrier()?;
        if owner {
            runtime.put(data, &read)?;
        }
        if round > 0 {
            [fetched, again, changed]
                .into_iter()
                .zip(&mut seconds)
                .for_each(|(time, times)| times.push(time));
        }
    }
    // The last rank is one of those that fetch.
    if runtime.rank().0 + 1 == runtime.ranks() {
        let moved = bytes as f64 * f64::from(runtime.ranks());
        for ((word, _), seconds) in SITUATIONS.iter().zip(&seconds) {
            say::print(format_args!("{word}{}\n", moved / median(seconds) / 1e9))?;
        }
        say::print(format_args!("{SHARE}{}\n", forwarded as f64 / answered.max(1) as f64))?;
    }
    runtime.finalize()?;
    Ok(Vec::new())
}
