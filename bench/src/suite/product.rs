//! The out-of-core product against the same library's kernel in memory with all cores, in turn. The path is that of
//! `vgas gemm`: real files, loaded into tiered segments, multiplied, written. None of them has a name, so that they
//! vanish with the job however it ends.

use super::job::{self, Result};
use super::report::Report;
use crate::gemm::npy::{Dtype, Order, Shape2};
use crate::gemm::output::path_of;
use crate::gemm::reference::Reference;
use crate::gemm::{self, GemmJob, Plan, demo};
use crate::global::TieredMemory;
use crate::registry::{Benchmark, Options, Parameter, Row, Setup};
use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use vgas::Runtime;

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "product",
    help: "Out-of-core matrix product of two nodes without limits, against the kernel in memory.",
    setup: Setup::Job { ranks: 2, nodes: 2 },
    // The three matrices of order 4096 are four times larger than two such caches.
    settings: &[("cache.size", "48MiB")],
    parameters: &[
        Parameter { name: "order", default: "4096", help: "Rows and columns of the matrices." },
        Parameter { name: "dtype", default: "f64", help: "`f64` or `f32`." },
        Parameter { name: "samples", default: "5", help: "Samples of each figure." },
    ],
    full: &[],
    figures: &[],
    check,
    run,
};

/// Larger matrices than those of `vgas demo` are not for comparing with memory.
const ORDER_MAX: u64 = 1_000_000;

fn check(options: &Options) -> Result<()> {
    if options.get::<u64>("order")? > ORDER_MAX {
        return Err(format!("parameter `order` is at most {ORDER_MAX}").into());
    }
    dtype(options).map(drop)
}

fn dtype(options: &Options) -> Result<Dtype> {
    match options.text("dtype") {
        "f64" => Ok(Dtype::Float64),
        "f32" => Ok(Dtype::Float32),
        other => Err(format!("parameter `dtype` is `f64` or `f32`, not `{other}`").into()),
    }
}

fn run(options: &Options) -> Result<Vec<Row>> {
    let (order, samples): (u64, usize) = (options.get("order")?, options.get("samples")?);
    let dtype = dtype(options)?;
    job::on_every_rank(Runtime::builder(), |runtime| {
        if !runtime.shares_machine() {
            return Err("its ranks open each other's files: give --nodes instead of hosts".into());
        }
        let (job, _files) = scratch_job(runtime, order, dtype)?;
        let rows = measure(runtime, &job, order as usize, dtype, samples);
        runtime.barrier()?;
        rows
    })
}

/// A product of two random matrices whose files have no names. All ranks use those of rank 0's making, which it keeps open until all have
/// finished.
pub(super) fn scratch_job(runtime: &Runtime, order: u64, dtype: Dtype) -> Result<(GemmJob, Vec<File>)> {
    let folder = runtime.settings().nvm.directory_path();
    let shape = Shape2 { rows: order, columns: order };
    let seeds: &[u64] = if runtime.rank().0 == 0 { &[1, 2] } else { &[] };
    let random = |&seed: &u64| demo::scratch_random(&folder, dtype, Order::C, shape, seed);
    let files: Vec<File> = seeds.iter().map(random).collect::<std::result::Result<_, _>>()?;
    let paths: Vec<_> = files.iter().map(|file| path_of(file).display().to_string()).collect();
    let all = runtime.all_gatherv(paths.join("\n").as_bytes())?;
    let paths = String::from_utf8(all.concat())?;
    let (a, b) = paths.split_once('\n').ok_or("rank 0 made too few files")?;
    let mut job = GemmJob::new(a, b, folder);
    job.discard = true;
    Ok((job, files))
}

fn measure(runtime: &Runtime, job: &GemmJob, order: usize, dtype: Dtype, samples: usize) -> Result<Vec<Row>> {
    let mut memory = TieredMemory::new(runtime);
    let plan = Plan::new(&gemm::inspect(job)?, &job.limits(&memory))?;
    memory.attach(plan.segment_bytes())?;
    let first = runtime.rank().0 == 0;
    let threads = std::thread::available_parallelism()?.get();
    let mut reference = first.then(|| Reference::new(order, dtype, threads));
    let private = AtomicU64::new(0);
    let [mut rates, mut in_memory, mut multiplying, mut load, mut write] = [const { Vec::new() }; 5];
    // The first round only warms up.
    for sample in 0..=samples {
        runtime.barrier()?;
        let in_memory_rate = reference.as_mut().map(Reference::gflops);
        runtime.barrier()?;
        let summary = gemm::run(&memory, job, &|_, _, _| {
            private.fetch_max(private_bytes(), Ordering::Relaxed);
        })?;
        if sample > 0 {
            rates.push(summary.gflops);
            in_memory.extend(in_memory_rate);
            multiplying.push(summary.seconds_multiplying / summary.seconds_computing);
            load.push(summary.seconds_loading);
            write.push(summary.seconds_writing);
        }
    }
    // Rank 0 has the reference's matrices, too.
    let mine = if first { 0 } else { private.into_inner() };
    let largest = runtime.all_reduce(mine, u64::max)?;
    if !first {
        return Ok(Vec::new());
    }
    let mut report = Report::new("product")
        .under("order", order)
        .under("dtype", dtype.name())
        .under("ranks", runtime.ranks())
        .under("nodes", runtime.nodes())
        .under("cache_bytes", runtime.cache_layout().frames_bytes());
    let in_memory_name = format!("in memory, {threads} threads");
    report.compare(["rate", "GFLOP/s"], ("out of core", &rates), (&in_memory_name, &in_memory));
    report.add("share of the compute phase in the kernel", "share", "", multiplying);
    report.add("load", "time", "s", load);
    report.add("write", "time", "s", write);
    if largest > 0 {
        report.add(
            "private memory of a rank, most",
            "size",
            "MiB",
            vec![largest as f64 / f64::from(1 << 20)],
        );
    }
    Ok(report.into_rows())
}

/// Resident memory of this process that is its own: neither a file's nor shared with others.
fn private_bytes() -> u64 {
    let status = std::fs::read_to_string(Path::new("/proc/self/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").trim().parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}
