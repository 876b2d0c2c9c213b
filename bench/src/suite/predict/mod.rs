//! Predicts figures 8 to 11 of vGASNet on 2 to 4,096 nodes, and the limit there: the home's link, its agent
//! with the directory, or the barrier.
//!
//! Everything but time is the shipped code: agents with their directories, replacement and read-ahead, ranks
//! with their clients, endpoints with their barriers, on the simulated network of `rma`. Time is a simulated
//! clock ([`machine`]): links and drives have the rates of `--link` and `--nvm`, a processor those for a
//! message and for a page, as measured here before, or as given. The same seed gives the same rows.
//!
//! # What is scaled
//!
//! * Pages carry 4 KiB, and links, drives and processors charge for the size that they stand for: no agent looks at content.
//! * Data and caches are a quarter of those that `seq` and `random` measure, in the same ratio, so that 4,096
//!   caches fit one memory. Results that follow from ratios are unaffected; read-ahead, which is an eighth of
//!   a cache at most, is shorter. Both sizes stand beside each other where the whole one is held against this
//!   machine.
//! * In a product each rank multiplies some panels of many: each costs as much as the one before. Its pages
//!   are larger, as are the paper's.
//!
//! # Its error
//!
//! For 2, 4 and 8 nodes the virtual cluster measures the same point, in the whole size; the simulation of it has as many processors as this
//! machine, which all processes share. Their quotient is a row. The other rows are of nodes that have processors of their own.

mod cluster;
mod costs;
mod drive;
mod figures;
mod growth;
mod machine;
mod measured;
mod programs;
mod rank;
mod simulate;
#[cfg(test)]
mod tests;

use super::job::Result;
use super::report::Report;
use crate::registry::{Benchmark, Options, Parameter, Row, Setup};
use costs::Costs;
use machine::Rating;
use vgas::config::Config;

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "predict",
    help: "Figures 8 to 11 for 2 to 4096 nodes: the shipped protocol, simulated; its error, and what becomes the limit.",
    setup: Setup::OwnJobs {
        decides: &["ablation.cooperative", "ablation.in_place", "cache.size", "run.label"],
    },
    settings: super::seq::HARDWARE,
    parameters: &[
        Parameter {
            name: "nodes",
            default: "128",
            help: "The most nodes, one rank each; halved down to two.",
        },
        Parameter { name: "gemm_nodes", default: "32", help: "The same of products." },
        Parameter { name: "pages", default: "160", help: "Pages of the data that all read." },
        Parameter { name: "cache", default: "64", help: "Pages that a node's cache holds." },
        Parameter { name: "panels", default: "12", help: "Panels of a product that each rank multiplies." },
        Parameter {
            name: "message_ns",
            default: "measured",
            help: "Nanoseconds of a processor for a message; `measured`: here, before.",
        },
        Parameter {
            name: "page_ns",
            default: "measured",
            help: "The same for the bytes of a page, both ends together.",
        },
        Parameter {
            name: "gflops",
            default: "measured",
            help: "Rate of a node's product in memory, in GFLOP/s.",
        },
        Parameter {
            name: "against",
            default: "seq,random,false-sharing",
            help: "What is measured for 2, 4 and 8 nodes, too: some of these and `gemm`, or `nothing`.",
        },
        Parameter { name: "seed", default: "1", help: "Of the order of what comes at the same time." },
    ],
    full: &[("nodes", "4096"), ("gemm_nodes", "256"), ("against", "seq,random,false-sharing,gemm")],
    figures: figures::ALL,
    check,
    run,
};

/// The most nodes: beyond, endpoints that know all peers take more memory than one machine has.
const NODES_MAX: u32 = 4096;

fn check(options: &Options) -> Result<()> {
    for name in ["nodes", "gemm_nodes"] {
        let nodes: u32 = options.get(name)?;
        if !(2..=NODES_MAX).contains(&nodes) || !nodes.is_power_of_two() {
            return Err(format!("`{name}` is a power of two from 2 to {NODES_MAX}").into());
        }
    }
    let (pages, cache): (u64, u32) = (options.get("pages")?, options.get("cache")?);
    if !(16..=1 << 16).contains(&cache) || pages > 1 << 20 {
        return Err("`cache` is from 16 to 65536, `pages` at most 1048576".into());
    }
    if options.get::<u64>("panels")? > 1 << 16 {
        return Err("`panels` is at most 65536".into());
    }
    for name in ["message_ns", "page_ns"] {
        told::<u64>(options, name)?;
    }
    if told::<f64>(options, "gflops")?.is_some_and(|rate| !(1e-3..=1e9).contains(&rate)) {
        return Err("`gflops` is a rate from 0.001 to 10^9".into());
    }
    measured::BenchmarkSet::of(options.text("against")).map(drop)
}

/// A parameter that may be `measured`.
fn told<T: std::str::FromStr>(options: &Options, name: &str) -> Result<Option<T>> {
    if options.text(name) == "measured" { Ok(None) } else { options.get(name).map(Some) }
}

/// The machine that is simulated; how many processors all share, if they do.
fn rating(config: &Config, costs: &Costs, page_bytes: u64, cores: u32) -> Rating {
    let settings = config.settings();
    Rating {
        link: settings.cluster.link.value(),
        drive: settings.cluster.nvm.value(),
        message_ns: costs.message_ns,
        page_ns: (costs.byte_ns * page_bytes as f64) as u64,
        page_bytes,
        cores,
    }
}

fn run(options: &Options) -> Result<Vec<Row>> {
    let costs = Costs::find(options)?;
    let mut report = Report::new("predict");
    costs.say(&mut report, "a node", options);
    let mut rows = report.into_rows();
    rows.extend(growth::scans(options, &costs)?);
    rows.extend(growth::sharing(options, &costs)?);
    rows.extend(growth::barriers(options, &costs)?);
    rows.extend(growth::products(options, &costs)?);
    rows.extend(measured::rows(options, costs)?);
    Ok(rows)
}
