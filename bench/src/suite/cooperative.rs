//! Cooperative caching on against off (vgasnet.txt III.B), with data that fits into one cache: what the home could answer
//! as well must not become slower because others answer it.

use super::child;
use super::job::{Result, noise};
use super::report::Report;
use crate::registry::{Benchmark, Options, Parameter, Row};
use std::time::Instant;
use vgas::{GlobalAddress, Rank, Runtime, SegmentSpec};

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "cooperative",
    help: "Cooperative caching on against off, with data that fits into one cache, jobs in turn.",
    job: None,
    settings: &[],
    parameters: &[
        Parameter { name: "nodes", default: "3", help: "Nodes, one rank each." },
        Parameter { name: "bytes", default: "16777216", help: "Size of the data, in bytes." },
        Parameter { name: "rounds", default: "8", help: "Times that everybody reads everything in a job." },
        Parameter { name: "samples", default: "7", help: "Jobs of each kind." },
    ],
    run,
};

fn run(options: &Options) -> Result<Vec<Row>> {
    let (bytes, rounds): (u64, u32) = (options.get("bytes")?, options.get("rounds")?);
    if child::in_job() {
        return rank(bytes, rounds);
    }
    let (nodes, samples): (u32, usize) = (options.get("nodes")?, options.get("samples")?);
    let (cache, nodes_text) = ((4 * bytes).to_string(), nodes.to_string());
    let program = [format!("bytes={bytes}"), format!("rounds={rounds}")];
    let program = ["bench", "cooperative", "--param", &program[0], "--param", &program[1]];
    let mut rates = [Vec::new(), Vec::new()];
    for sample in 0..samples {
        for turn in 0..2 {
            let way = (sample + turn) % 2;
            let setting = ["cache.cooperative=on", "cache.cooperative=off"][way];
            let flags = ["-n", &nodes_text, "--nodes", &nodes_text, "--cache", &cache, "--set", setting];
            let (_, printed) = child::run(&flags, &program)?;
            let rate = child::numbers(&printed, "rate ").first().copied().ok_or("the ranks told no rate")?;
            rates[way].push(rate);
        }
    }
    let mut report = Report::new("cooperative").under("nodes", nodes).under("bytes", bytes);
    let [on, off] = rates;
    report.compare(["rate", "GB/s"], ("all read all, cooperative", &on), ("the home answers", &off));
    Ok(report.into_rows())
}

/// Rank 0 owns the data and changes an eighth of it each round; everybody reads all of it.
fn rank(bytes: u64, rounds: u32) -> Result<Vec<Row>> {
    let runtime = Runtime::init()?;
    let owner = runtime.rank().0 == 0;
    let tiered_bytes = if owner { bytes } else { 0 };
    runtime.attach(&SegmentSpec { tiered_bytes, ..SegmentSpec::default() })?;
    let mut data = noise(bytes as usize, 1);
    let at = |offset: u64| GlobalAddress::tiered(Rank(0), offset);
    if owner {
        runtime.put(at(0), &data)?;
    }
    runtime.barrier()?;
    let mut seconds = 0.0;
    for round in 0..rounds {
        let eighth = (bytes / 8) as usize;
        let changed = round as usize % 8 * eighth..(round as usize % 8 + 1) * eighth;
        if owner {
            let first = changed.start as u64;
            data[changed].fill(round as u8);
            runtime.put(at(first), &data[first as usize..first as usize + eighth])?;
        }
        runtime.barrier()?;
        let start = Instant::now();
        let mut read = vec![0u8; bytes as usize];
        runtime.get(at(0), &mut read)?;
        runtime.barrier()?;
        seconds += start.elapsed().as_secs_f64();
    }
    if owner {
        println!("rate {}", f64::from(rounds) * bytes as f64 * f64::from(runtime.ranks()) / seconds / 1e9);
    }
    runtime.finalize()?;
    Ok(Vec::new())
}
