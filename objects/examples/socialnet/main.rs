//! A social network on owned objects: the services of DeathStarBench's (posts with text, mentioned users,
//! short addresses and pictures; timelines of users and of the users they follow; the graph) as tasks over
//! shards of users, and a load of clients with requests for any user. Posts composed at a time form a page of
//! posts, which all ranks read through copies; pictures are shared references. Beside it, the same on std.
//!
//! Run it: `cargo build --release --examples && target/release/vgas run -n 4 --nodes 2 -- target/release/examples/socialnet --verify`

mod baselines;
#[path = "../common/mod.rs"]
mod common;
mod load;
mod objects;
mod plain;

use clap::{Parser, ValueEnum};
use common::figures::Figures;
use common::random::Zipf;
use common::{Outcome, Program, Shared};
use load::{Edge, Plan, Report};
use std::path::PathBuf;
use std::process::ExitCode;
use vgas::Runtime;

/// A social network on owned objects, with its load: 60 of 100 requests read a home timeline, 30 a user's,
/// and 10 compose a post (of these, one in twenty follows or unfollows a user instead).
#[derive(Debug, Parser)]
#[command(
    name = "socialnet",
    after_help = "Examples:
  vgas run -n 4 --nodes 2 -- socialnet --verify                     a second, and compared with the version on std
  vgas run -n 2 --nodes 2 -- socialnet --penn94 --operations 1000000
  vgas run -n 2 --nodes 2 -- socialnet --graph edges.txt            users and their friends from a file, two numbers a line
  vgas run -n 2 --nodes 2 -- socialnet --rate 50000 --operations 200000   requests come whether others are answered or not
  vgas run -n 2 --nodes 2 --set cache.page=4KiB -- socialnet --store coherent --operations 20000
  socialnet --plain --threads 2                                     the version on std, by itself"
)]
struct Arguments {
    #[command(flatten)]
    shared: Shared,
    /// Users of the graph that is generated.
    #[arg(long, value_name = "COUNT", default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(2..=1 << 28))]
    users: u32,
    /// Pairs of friends in it.
    #[arg(long, value_name = "COUNT", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    edges: u64,
    /// As large as Facebook's of Penn State in 2005: 41,536 users, 1,362,220 pairs.
    #[arg(long, conflicts_with_all = ["users", "edges", "graph"])]
    penn94: bool,
    /// Read the graph from this file.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["users", "edges"])]
    graph: Option<PathBuf>,
    /// Requests of all clients together.
    #[arg(long, value_name = "COUNT", default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(1..))]
    operations: u64,
    /// Requests that a client has in flight at a time, at most.
    #[arg(long, value_name = "COUNT", default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..=1 << 24))]
    batch: u64,
    /// Requests a second, of all clients; without it, each asks when it was answered.
    #[arg(long, value_name = "COUNT", default_value_t = 0, conflicts_with = "verify")]
    rate: u64,
    /// Skew of the requested users: 0 for uniform, to less than 1.
    #[arg(long, default_value_t = 0.0)]
    theta: f64,
    /// Store of users and posts.
    #[arg(long, value_enum, default_value = "objects")]
    store: Store,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Store {
    /// Owned objects
    Objects,
    /// A tiered segment whose pages are kept coherent, under locks
    Coherent,
    /// Each access is a message to where the user or post is
    Delegated,
}

impl Arguments {
    fn graph(&self) -> Outcome<(u32, Vec<Edge>)> {
        let (users, edges) = match (&self.graph, self.penn94) {
            (Some(path), _) => return load::read(path),
            (None, true) => (41_536, 1_362_220),
            (None, false) => (self.users, self.edges),
        };
        Ok((users, load::generate(self.shared.seed, users, edges)))
    }

    fn plan(&self, users: u32, clients: u32) -> (Plan, Zipf) {
        let Self { operations, batch, rate, .. } = *self;
        let plan = Plan { users, operations, batch, shards: clients, rate, seed: self.shared.seed };
        (plan, Zipf::new(u64::from(users), self.theta))
    }

    /// Says what a report has, and whether answers were right.
    fn tell(&self, users: u32, edges: usize, report: &Report, figures: &mut Figures) -> Outcome {
        let Report { seconds, answered, wrong, posts, waits, .. } = report;
        if *wrong > 0 || *answered != self.operations {
            return Err(format!(
                "{wrong} of the posts that {answered} answers have shown are none; {} were asked for",
                self.operations
            )
            .into());
        }
        let rate = *answered as f64 / seconds;
        let [half, most, nearly] = [0.5, 0.99, 0.999].map(|part| waits.within(part));
        vgas::print(format_args!(
            "{users} users, {edges} pairs: {answered} requests, {posts} posts in {seconds:.2} s, {:.0} thousand a second; answered after {half:.2} ms (99 of 100: {most:.2}, 999 of 1000: {nearly:.2})\n",
            rate / 1e3
        ))?;
        figures
            .hold("users", users)
            .hold("edges", edges)
            .hold("operations", self.operations)
            .hold("batch", self.batch);
        figures.hold("rate", self.rate).hold("theta", self.theta).hold("seed", self.shared.seed);
        figures.add("mixed", "rate", "1/s", &[rate]);
        for (metric, value) in [("latency p50", half), ("latency p99", most), ("latency p99.9", nearly)] {
            figures.add("mixed", metric, "ms", &[value]);
        }
        Ok(())
    }
}

impl Program for Arguments {
    const NAME: &'static str = "socialnet";

    fn shared(&self) -> &Shared {
        &self.shared
    }

    fn check(&self) -> Result<(), String> {
        if !(0.0..1.0).contains(&self.theta) {
            return Err(format!("--theta is from 0 to less than 1, not {}", self.theta));
        }
        if self.store != Store::Objects
            && (self.shared.verify || self.shared.plain || self.shared.threads != 1 || self.rate > 0)
        {
            return Err("--verify, --plain, --threads and --rate are of --store objects".into());
        }
        Ok(())
    }

    fn join(&self) -> vgas::Result<Runtime> {
        baselines::join(self.store == Store::Delegated)
    }

    fn on_other(&self, runtime: &Runtime, figures: &mut Figures) -> Option<Outcome> {
        let run = match self.store {
            Store::Objects => return None,
            Store::Coherent => baselines::coherent,
            Store::Delegated => baselines::delegated,
        };
        figures.hold("version", format!("{:?}", self.store).to_lowercase());
        Some(self.graph().and_then(|(users, edges)| {
            let (plan, zipf) = self.plan(users, runtime.ranks());
            let report = run(runtime, &plan, &edges, zipf)?;
            report.map_or(Ok(()), |report| self.tell(users, edges.len(), &report, figures))
        }))
    }

    fn on_objects(&self, ranks: u32, figures: &mut Figures) -> Outcome {
        let clients = ranks * self.shared.threads;
        let (users, edges) = self.graph()?;
        let (plan, zipf) = self.plan(users, clients);
        let report = objects::run(&plan, &edges, zipf, ranks)?;
        self.tell(users, edges.len(), &report, figures)?;
        if self.shared.verify {
            let plain = plain::run(&plan, &edges, zipf)?;
            for (what, found, right) in [
                ("what clients were shown", report.read, plain.read),
                ("what users have", report.contents, plain.contents),
            ] {
                if found != right {
                    return Err(format!("{what} differs: {found:#x} on objects, {right:#x} on std").into());
                }
            }
            vgas::print(format_args!("verified; {:.2} s on std with {clients} threads\n", plain.seconds))?;
        }
        Ok(())
    }

    fn on_plain(&self, figures: &mut Figures) -> Outcome {
        let (users, edges) = self.graph()?;
        let (plan, zipf) = self.plan(users, self.shared.threads);
        let report = plain::run(&plan, &edges, zipf)?;
        self.tell(users, edges.len(), &report, figures)
    }
}

/// The program.
pub fn main() -> ExitCode {
    common::main::<Arguments>()
}
