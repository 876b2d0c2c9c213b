//! Start and stop of an empty job whose ranks join, and what its processes keep in memory.

use super::child;
use super::job::Result;
use super::report::Report;
use crate::registry::{Benchmark, Options, Parameter, Row, Setup};
use vgas::{Runtime, SegmentOptions, say};

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "start",
    help: "Start and stop of an empty job, ranks that join and ranks that do not; memory of its processes.",
    setup: Setup::OwnJobs { decides: &["cache.size", "run.label"] },
    settings: &[],
    parameters: &[
        Parameter { name: "ranks", default: "4", help: "Ranks of the job." },
        Parameter { name: "nodes", default: "1", help: "Virtual nodes of the job." },
        Parameter { name: "cache", default: "64MiB", help: "Its cache, per node." },
        Parameter { name: "samples", default: "15", help: "Jobs of each kind." },
    ],
    full: &[],
    figures: &[],
    check: |_| Ok(()),
    run,
};

fn run(options: &Options) -> Result<Vec<Row>> {
    if child::in_job() {
        return rank();
    }
    let (ranks, nodes, cache) = (options.text("ranks"), options.text("nodes"), options.text("cache"));
    let samples: usize = options.get("samples")?;
    let flags = ["-n", ranks, "--nodes", nodes, "--cache", cache];
    let (mut joined, mut bare) = (Vec::new(), Vec::new());
    let (mut rank_memory, mut daemon_memory) = (Vec::new(), Vec::new());
    for sample in 0..=samples {
        let (time, printed) = child::run(options, &flags, &["bench", "start"])?;
        let (bare_time, _) = child::run(options, &flags, &["/bin/true"])?;
        // The first pages the program in.
        if sample > 0 {
            joined.push(time.as_secs_f64() * 1e3);
            bare.push(bare_time.as_secs_f64() * 1e3);
            let most = |word| child::numbers(&printed, word).into_iter().fold(0.0, f64::max);
            rank_memory.push(most("rank_kib ") / 1024.0);
            daemon_memory.push(most("daemon_kib ") / 1024.0);
        }
    }
    let mut report = Report::new("start").under("ranks", ranks).under("nodes", nodes).under("cache", cache);
    report.compare(["time", "ms"], ("ranks that join", &joined), ("ranks that do not (/bin/true)", &bare));
    report.add("private memory of a rank, at most", "memory", "MiB", rank_memory);
    report.add("private memory of a daemon, at most", "memory", "MiB", daemon_memory);
    Ok(report.into_rows())
}

/// Joins, attaches the smallest segments, leaves; says what memory it and its daemon had of their own. Shared memory
/// (cache, rings) is not counted: the settings say how large that is.
fn rank() -> Result<Vec<Row>> {
    let runtime = Runtime::init()?;
    runtime.attach(&SegmentOptions::tiered(4096))?;
    runtime.attach(&SegmentOptions::pinned(4096))?;
    runtime.barrier()?;
    say::print(format_args!("rank_kib {}\n", private_kib("self")?))?;
    let daemon = rustix::process::getppid().ok_or("a rank without a daemon")?;
    say::print(format_args!("daemon_kib {}\n", private_kib(&daemon.as_raw_nonzero().to_string())?))?;
    runtime.finalize()?;
    Ok(Vec::new())
}

/// Anonymous resident memory of a process.
fn private_kib(process: &str) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let number =
        line.and_then(|line| line.split_whitespace().next()).ok_or("the kernel counts no RssAnon")?;
    Ok(number.parse()?)
}
