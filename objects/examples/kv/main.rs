//! A store of keys and values on owned objects, under YCSB's workloads. Keys are spread over shards, one for each thread of each rank; clients
//! ask for any key, many requests at a time: what a client asks of a shard is a row of its own, which the shard's task reads, and so are
//! the answers. Beside it, the same on std; a store in shared pages, as page-grain coherence has it; and one with a message for
//! each access.
//!
//! Run it: `cargo build --release --examples && target/release/vgas run -n 4 --nodes 2 -- target/release/examples/kv --verify`

mod baselines;
#[path = "../common/mod.rs"]
mod common;
mod objects;
mod plain;
mod workload;

use clap::{Parser, ValueEnum};
use common::figures::{Figures, percentiles};
use common::random::Zipf;
use common::{Outcome, Program, Shared};
use std::process::ExitCode;
use vgas::Runtime;
use workload::{Mix, Plan, Report};

/// A store of keys and values on owned objects, under YCSB's workloads A to F.
#[derive(Debug, Parser)]
#[command(
    name = "kv",
    after_help = "Examples:
  vgas run -n 4 --nodes 2 -- kv --verify                      a second, and compared with the version on std
  vgas run -n 2 --nodes 2 -- kv --workload b --records 1000000 --operations 4000000
  vgas run -n 2 --nodes 2 --cache 64MiB -- kv --value 1024 --records 500000 --heap 2GiB   more than the cache
  vgas run -n 2 --nodes 2 --set cache.page=4KiB -- kv --store coherent
  kv --plain --threads 2                                      the version on std, by itself"
)]
struct Arguments {
    #[command(flatten)]
    shared: Shared,
    /// YCSB's letter.
    #[arg(long, value_enum, ignore_case = true, default_value = "a")]
    workload: Mix,
    /// Records that there are when it begins.
    #[arg(long, value_name = "COUNT", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    records: u64,
    /// Requests of all clients together.
    #[arg(long, value_name = "COUNT", default_value_t = 400_000, value_parser = clap::value_parser!(u64).range(1..))]
    operations: u64,
    /// Requests that a client has in flight at a time.
    #[arg(long, value_name = "COUNT", default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..=1 << 24))]
    batch: u64,
    /// Bytes of a value.
    #[arg(long, value_name = "BYTES", default_value = "32", value_parser = ["32", "1024"])]
    value: String,
    /// Skew of the keys: 0 for uniform, to less than 1.
    #[arg(long, default_value_t = 0.99)]
    theta: f64,
    /// Store of the records.
    #[arg(long, value_enum, default_value = "objects")]
    store: Store,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Store {
    /// Owned objects
    Objects,
    /// A tiered segment whose pages are kept coherent, under locks
    Coherent,
    /// Each access is a message to where the record is
    Delegated,
}

impl Arguments {
    fn plan(&self, clients: u32) -> (Plan, Zipf) {
        let plan = Plan {
            mix: self.workload,
            records: self.records,
            operations: self.operations,
            batch: self.batch,
            shards: u64::from(clients),
            seed: self.shared.seed,
        };
        (plan, Zipf::new(self.records, self.theta))
    }

    fn plain_report(&self, clients: u32) -> Outcome<Report> {
        let (plan, zipf) = self.plan(clients);
        match self.value.as_str() {
            "1024" => plain::run::<1024>(&plan, zipf),
            _ => plain::run::<32>(&plan, zipf),
        }
    }

    /// Says what a report has, and whether answers were right.
    fn tell(&self, report: &mut Report, figures: &mut Figures) -> Outcome {
        if report.wrong > 0 || report.answered != self.operations {
            let Report { answered, wrong, .. } = report;
            return Err(format!(
                "{wrong} of {answered} answers are wrong; {} were asked for",
                self.operations
            )
            .into());
        }
        let seconds = report.total_seconds();
        let rate = report.answered as f64 / seconds;
        let [half, most, nearly] = percentiles(&mut report.seconds).map(|seconds| seconds * 1e3);
        vgas::print(format_args!(
            "workload {:?}: {} requests in {seconds:.2} s, {:.0} thousand a second; answered after {half:.2} ms (99 of 100: {most:.2}, 999 of 1000: {nearly:.2})\n",
            self.workload,
            report.answered,
            rate / 1e3
        ))?;
        let case = format!("workload {:?}", self.workload);
        figures.hold("records", self.records).hold("operations", self.operations).hold("batch", self.batch);
        figures
            .hold("value_bytes", self.value.as_str())
            .hold("theta", self.theta)
            .hold("seed", self.shared.seed);
        figures.add(&case, "rate", "1/s", &[rate]);
        for (metric, value) in [("latency p50", half), ("latency p99", most), ("latency p99.9", nearly)] {
            figures.add(&case, metric, "ms", &[value]);
        }
        Ok(())
    }
}

impl Program for Arguments {
    const NAME: &'static str = "kv";

    fn shared(&self) -> &Shared {
        &self.shared
    }

    fn check(&self) -> Result<(), String> {
        if !(0.0..1.0).contains(&self.theta) {
            return Err(format!("--theta is from 0 to less than 1, not {}", self.theta));
        }
        if self.store != Store::Objects {
            if matches!(self.workload, Mix::D | Mix::E) {
                return Err(
                    "only --store objects inserts and scans: the others have the workloads a, b, c and f"
                        .into(),
                );
            }
            if self.shared.verify || self.shared.plain || self.shared.threads != 1 {
                return Err("--verify, --plain and --threads are of --store objects".into());
            }
        }
        Ok(())
    }

    fn on_objects(&self, ranks: u32, figures: &mut Figures) -> Outcome {
        let clients = ranks * self.shared.threads;
        let (plan, zipf) = self.plan(clients);
        let mut report = match self.value.as_str() {
            "1024" => objects::run::<1024>(&plan, zipf, ranks)?,
            _ => objects::run::<32>(&plan, zipf, ranks)?,
        };
        self.tell(&mut report, figures)?;
        if self.shared.verify {
            let plain = self.plain_report(clients)?;
            for (what, found, right) in [
                ("what clients have read", report.read, plain.read),
                ("the store's contents", report.contents, plain.contents),
            ] {
                if found != right {
                    return Err(format!("{what} differ: {found:#x} on objects, {right:#x} on std").into());
                }
            }
            vgas::print(format_args!(
                "verified; {:.2} s on std with {clients} threads\n",
                plain.total_seconds()
            ))?;
        }
        Ok(())
    }

    fn on_plain(&self, figures: &mut Figures) -> Outcome {
        let mut report = self.plain_report(self.shared.threads)?;
        self.tell(&mut report, figures)
    }

    fn join(&self) -> vgas::Result<Runtime> {
        baselines::join(self.store == Store::Delegated)
    }

    fn on_other(&self, runtime: &Runtime, figures: &mut Figures) -> Option<Outcome> {
        let (plan, zipf) = self.plan(runtime.ranks());
        let report = match (self.store, self.value.as_str()) {
            (Store::Objects, _) => return None,
            (Store::Coherent, "1024") => baselines::coherent::<1024>(runtime, &plan, zipf),
            (Store::Coherent, _) => baselines::coherent::<32>(runtime, &plan, zipf),
            (Store::Delegated, "1024") => baselines::delegated::<1024>(runtime, &plan, zipf),
            (Store::Delegated, _) => baselines::delegated::<32>(runtime, &plan, zipf),
        };
        figures.hold("version", format!("{:?}", self.store).to_lowercase());
        Some(report.and_then(|report| report.map_or(Ok(()), |mut report| self.tell(&mut report, figures))))
    }
}

/// The program.
pub fn main() -> ExitCode {
    common::main::<Arguments>()
}
