//! The out-of-core product over 1 to 4 virtual nodes (vGASNet §IV.D, figure 11): weak scaling, where the matrices grow with the nodes,
//! and strong, where they do not; matrices that the caches hold, and four times larger ones; with cooperative caching and without; over
//! pinned memory, which is the paper's "GASNet"; and the library's product in memory, with all cores.
//!
//! The nodes of a virtual cluster share this machine's cores: more of them do not compute faster. More nodes
//! make more traffic, so that a node that waits for its link shows. In each job the first product warms up.
//!
//! `product` has the product of two nodes whose links and drives are the machine's.

use super::child;
use super::job::Result;
use super::product::scratch_job;
use super::report::Report;
use crate::figure::{Figure, Form};
use crate::gemm::npy::Dtype;
use crate::gemm::reference::Reference;
use crate::gemm::{self, Plan};
use crate::global::TieredMemory;
use crate::registry::{Benchmark, Options, Parameter, Row, Setup};
use vgas::{Runtime, say};

const BY_NODES: Form = Form::Lines { by: "nodes", label: "nodes, one rank each", panels: "scaling" };

const CASES: &[&str] = &[
    "in memory",
    "in memory, without cooperation",
    "out of core",
    "out of core, without cooperation",
    "pinned",
    LIBRARY,
];

const LIBRARY: &str = "the library, in memory";

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "gemm",
    help: "Matrix product over 1 to 4 virtual nodes: weak and strong scaling, in memory, out of core, pinned (figure 11).",
    setup: Setup::OwnJobs { decides: &["ablation.cooperative", "cache.size", "run.label"] },
    settings: super::seq::HARDWARE,
    parameters: &[
        Parameter { name: "order", default: "1280", help: "Rows and columns of the matrices on one node." },
        Parameter { name: "nodes", default: "4", help: "The most nodes, one rank each; halved down to one." },
        Parameter { name: "samples", default: "2", help: "Products of each kind." },
        Parameter {
            name: "private",
            default: "48",
            help: "MiB beside the cache for the tiles of a rank: the more, the less is fetched.",
        },
        Parameter { name: "memory", default: "tiered", help: "What a job uses; of the command's own." },
    ],
    full: &[("order", "4096"), ("samples", "5")],
    figures: &[
        Figure {
            name: "gemm",
            question: "How fast are products, all nodes together?",
            expect: "Out of core is little slower than in memory, since a tile is used many times; cooperation gains where nodes need the same \
                     tiles (the paper: 1.12 to 1.59 in memory, 1.25 to 1.53 out of core). Nodes here share the cores of one machine.",
            unit: "GFLOP/s",
            cases: CASES,
            references: &["pinned", LIBRARY],
            form: BY_NODES,
            ..Figure::BASE
        },
        Figure {
            name: "gemm-node",
            question: "How fast are products, each node?",
            expect: "In a cluster a level line is ideal for weak scaling, as in the paper's figure 11; here, where nodes share cores, a line that \
                     halves when nodes double.",
            metric: "rate of a node",
            unit: "GFLOP/s",
            cases: CASES,
            references: &["pinned", LIBRARY],
            form: BY_NODES,
            ..Figure::BASE
        },
    ],
    check,
    run,
};

/// Prefix of rank 0's output.
const RATE: &str = "rate ";
const REFERENCE: &str = "reference ";

fn check(options: &Options) -> Result<()> {
    let (order, nodes): (u64, u32) = (options.get("order")?, options.get("nodes")?);
    if order > 100_000 {
        return Err("parameter `order` is at most 100000".into());
    }
    if nodes > 64 || !nodes.is_power_of_two() {
        return Err("`nodes` is a power of two, at most 64".into());
    }
    match options.text("memory") {
        "tiered" | "pinned" => Ok(()),
        other => Err(format!("`memory` is `tiered` or `pinned`, not `{other}`").into()),
    }
}

/// A kind of job: its words, whether its caches hold the matrices, its memory and whether it cooperates.
const WAYS: [(&str, bool, &str, bool); 5] = [
    ("in memory", true, "tiered", true),
    ("in memory, without cooperation", true, "tiered", false),
    ("out of core", false, "tiered", true),
    ("out of core, without cooperation", false, "tiered", false),
    ("pinned", true, "pinned", true),
];

fn run(options: &Options) -> Result<Vec<Row>> {
    let (order, samples): (u64, usize) = (options.get("order")?, options.get("samples")?);
    if child::in_job() {
        return rank(order, samples, private_bytes(options)?, options.text("memory") == "pinned");
    }
    let most: u32 = options.get("nodes")?;
    private_bytes(options)?;
    let samples = format!("samples={samples}");
    let private = format!("private={}", options.text("private"));
    let mut rows: Vec<Row> = Vec::new();
    for scaling in ["strong", "weak"] {
        for nodes in
            std::iter::successors(Some(1), |nodes| Some(nodes * 2)).take_while(|&nodes| nodes <= most)
        {
            if scaling == "weak" && nodes == 1 {
                // It is the same on one node.
                let of_one = rows.iter().filter(|row| row.params["nodes"] == 1).cloned();
                let of_one: Vec<Row> = of_one.map(|row| row.with("scaling", scaling)).collect();
                rows.extend(of_one);
                continue;
            }
            let grown = (order as f64 * f64::from(nodes).sqrt()) as u64 / 64 * 64;
            let order = if scaling == "weak" { grown.max(order) } else { order };
            let count = nodes.to_string();
            let order_text = format!("order={order}");
            let mut report =
                Report::new("gemm").under("scaling", scaling).under("nodes", nodes).under("order", order);
            let mut library = Vec::new();
            for (name, fits, memory, cooperative) in WAYS {
                let cache = cache_mebibytes(order, nodes, fits);
                let cache = format!("{cache}MiB");
                let memory = format!("memory={memory}");
                let switch = if cooperative { "on" } else { "off" };
                let switch = format!("ablation.cooperative={switch}");
                let flags = ["-n", &count, "--nodes", &count, "--cache", &cache, "--set", &switch];
                let given = [&order_text, &samples, &private, &memory].map(|given| ["--param", given]);
                let program = [&["bench", "gemm"], given.as_flattened()].concat();
                let (_, printed) = child::run(options, &flags, &program)?;
                let rates = child::told(child::numbers(&printed, RATE))?;
                library.extend(child::numbers(&printed, REFERENCE));
                let each = rates.iter().map(|rate| rate / f64::from(nodes)).collect();
                report.add(name, "rate", "GFLOP/s", rates);
                report.add(name, "rate of a node", "GFLOP/s", each);
            }
            let each = library.iter().map(|rate| rate / f64::from(nodes)).collect();
            report.add(LIBRARY, "rate", "GFLOP/s", library);
            report.add(LIBRARY, "rate of a node", "GFLOP/s", each);
            rows.extend(report.into_rows());
        }
    }
    Ok(rows)
}

/// Cache of a node: it holds all three matrices, or such that all caches together hold a quarter of them.
pub(super) fn cache_mebibytes(order: u64, nodes: u32, fits: bool) -> u64 {
    let matrices = (3 * order * order * 8).div_ceil(1 << 20);
    if fits { matrices + 64 } else { (matrices / 4 / u64::from(nodes)).max(16) }
}

fn private_bytes(options: &Options) -> Result<u64> {
    let mebibytes: u64 = options.get("private")?;
    let bytes = mebibytes.checked_mul(1 << 20).filter(|bytes| *bytes > 0);
    bytes.ok_or_else(|| "a rank's tiles need some memory, and less than all that there is".into())
}

fn rank(order: u64, samples: usize, private: u64, pinned: bool) -> Result<Vec<Row>> {
    let runtime = Runtime::init()?;
    let first = runtime.rank().0 == 0;
    let (mut job, _files) = scratch_job(&runtime, order, Dtype::Float64)?;
    job.memory_bytes = private;
    let mut memory = if pinned { TieredMemory::pinned(&runtime) } else { TieredMemory::new(&runtime) };
    let bytes = Plan::new(&gemm::inspect(&job)?, &job.limits(&memory))?.segment_bytes();
    memory.attach(bytes)?;
    let threads = std::thread::available_parallelism()?.get();
    let mut reference = (first && pinned).then(|| Reference::new(order as usize, Dtype::Float64, threads));
    for sample in 0..=samples {
        runtime.barrier()?;
        let in_memory = reference.as_mut().map(Reference::gflops);
        runtime.barrier()?;
        let summary = gemm::run(&memory, &job, &|_, _, _| {})?;
        if sample > 0 && first {
            say::print(format_args!("{RATE}{}\n", summary.gflops))?;
            if let Some(rate) = in_memory {
                say::print(format_args!("{REFERENCE}{rate}\n"))?;
            }
        }
    }
    runtime.barrier()?;
    runtime.finalize()?;
    Ok(Vec::new())
}
