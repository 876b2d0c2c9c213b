//! One-sided access to pinned memory and active messages between two ranks, by size and by conduit: how long one takes, how much goes
//! through, one way and both; then barriers and collectives by number of ranks. `pair` has the figures of small sizes against the bare
//! channel below. With an installation of the C library, and one of GASNet, also payloads, array sections, collectives and threads
//! through both ([`gasnet`]).

use super::arrivals::{Arrivals, FLOOD, FLOOD_END, PING};
use super::child;
use super::gasnet;
use super::job::{self, Result};
use super::report::Report;
use crate::figure::{Better, Figure, Form};
use crate::registry::{Benchmark, Options, Parameter, Row, Setup};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;
use vgas::{GlobalAddress, Rank, Runtime, SegmentOptions, say};

const BY_SIZE: Form = Form::Lines { by: "bytes", label: "size", panels: "conduit" };

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "rma",
    help: "Puts, gets and messages by size, one way and both, and collectives by ranks, for each conduit.",
    setup: Setup::OwnJobs { decides: &["conduit", "cluster.link", "cluster.nvm", "cache.size", "run.label"] },
    settings: &[],
    parameters: &[
        Parameter {
            name: "conduits",
            default: "smp,tcp",
            help: "Of smp, tcp, ibv and ofi, with commas between.",
        },
        Parameter { name: "samples", default: "5", help: "Samples of each figure." },
        Parameter {
            name: "ranks",
            default: "8",
            help: "The most ranks of a collective; halved down to two.",
        },
        Parameter {
            name: "library",
            default: "",
            help: "Prefix of an installed C library: its figures, too. Some minutes.",
        },
        Parameter {
            name: "gasnet",
            default: "",
            help: "Prefix of an installed GASNet-1 with the smp conduit: its figures beside ours.",
        },
        Parameter { name: "part", default: "all", help: "What a job does; of the command's own." },
    ],
    full: &[("samples", "15"), ("ranks", "16")],
    figures: &[
        Figure {
            name: "rma-latency",
            question: "How long does one access to a rank's pinned memory take?",
            expect: "Within a node as long as copying the bytes; over TCP as long as the message and its answer, until the bytes count.",
            metric: "latency",
            unit: "us",
            cases: &["put", "get", "message and back", "message and back, to itself", "memcpy"],
            references: &["memcpy"],
            form: BY_SIZE,
            better: Better::Lower,
            ..Figure::BASE
        },
        Figure {
            name: "rma-rate",
            question: "How much goes through when many are in flight?",
            expect: "As much as memory, or the channel, carries, from some 64 KiB on; both ways together no less than one way.",
            metric: "rate",
            unit: "GB/s",
            cases: &[
                "puts, 16 in flight",
                "gets, 16 in flight",
                "puts of both, 16 in flight each",
                "puts, one by one",
                "memcpy",
            ],
            references: &["memcpy"],
            form: BY_SIZE,
            ..Figure::BASE
        },
        Figure {
            name: "rma-messages",
            question: "How many messages does one rank send another in a second?",
            expect: "Millions within a node; over TCP as many as small writes to a socket that is never idle carry.",
            metric: "message rate",
            unit: "M/s",
            form: BY_SIZE,
            ..Figure::BASE
        },
        Figure {
            name: "rma-collectives",
            question: "How long do all ranks take together, by their number?",
            expect: "Steps double the ranks that are reached; on a machine with fewer cores than ranks each step waits for a core.",
            metric: "time",
            unit: "us",
            form: Form::Lines { by: "ranks", label: "ranks", panels: "conduit" },
            better: Better::Lower,
            ..Figure::BASE
        },
        Figure {
            name: "rma-gasnet",
            question: "How long does a message through C take, beside GASNet itself?",
            expect: "No longer than over GASNet's own shared memory, at each size; tiered segments are no part of messages.",
            metric: "time of a call",
            unit: "us",
            cases: &[
                "medium round trip, C",
                "medium round trip, GASNet",
                "long round trip, C",
                "long round trip, GASNet",
                "medium flood, C",
                "medium flood, GASNet",
            ],
            form: Form::Lines { by: "bytes", label: "size", panels: "load" },
            better: Better::Lower,
            ..Figure::BASE
        },
    ],
    check,
    run,
};

const SIZES: [usize; 7] = [8, 64, 512, 4 << 10, 32 << 10, 256 << 10, 2 << 20];
const MOST: usize = 2 << 20;
/// Accesses in flight at most.
const DEPTH: usize = 16;
/// Bytes of one sample at most, and accesses.
const SAMPLE_BYTES: usize = 16 << 20;
const SAMPLE_TIMES: usize = 2000;

fn check(options: &Options) -> Result<()> {
    let ranks: u32 = options.get("ranks")?;
    if !(2..=256).contains(&ranks) {
        return Err("`ranks` are 2 to 256".into());
    }
    let known = |name: &str| ["smp", "tcp", "ibv", "ofi"].contains(&name);
    match options.text("conduits").split(',').find(|name| !known(name)) {
        Some(other) => Err(format!("no conduit is named `{other}`: smp, tcp, ibv, ofi").into()),
        None => Ok(()),
    }
}

fn run(options: &Options) -> Result<Vec<Row>> {
    let samples = options.text("samples");
    if child::in_job() {
        return match options.text("part") {
            "pair" => pair(options.get("samples")?),
            _ => collectives(options.get("samples")?),
        };
    }
    let (most, samples) = (options.get("ranks")?, format!("samples={samples}"));
    let mut rows = Vec::new();
    for conduit in options.text("conduits").split(',') {
        // Within a node, or between two.
        let nodes = |ranks: u32| if conduit == "smp" { "1".to_owned() } else { ranks.to_string() };
        let mut job = |ranks: u32, part: &str| -> Result<()> {
            let (count, nodes, part) = (ranks.to_string(), nodes(ranks), format!("part={part}"));
            let mut flags = vec!["-n", &count, "--nodes", &nodes, "--cache", "16MiB"];
            if conduit != "smp" {
                flags.extend(["--conduit", conduit]);
            }
            let program = ["bench", "rma", "--param", &samples, "--param", &part];
            let (_, printed) = child::run(options, &flags, &program)?;
            rows.extend(told(&printed, conduit, (part == "part=collectives").then_some(ranks))?);
            Ok(())
        };
        job(2, "pair")?;
        for ranks in
            std::iter::successors(Some(2), |ranks| Some(ranks * 2)).take_while(|&ranks| ranks <= most)
        {
            job(ranks, "collectives")?;
        }
    }
    rows.extend(gasnet::rows(options, options.get("samples")?)?);
    Ok(rows)
}

/// The rows of what a job printed: lines of metric, unit, size, samples, and the case behind them, with `|` between.
fn told(printed: &str, conduit: &str, ranks: Option<u32>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for line in printed.lines() {
        let fields: Vec<_> = line.split('|').collect();
        let [metric, unit, bytes, samples, case] = fields[..] else { continue };
        let samples: Vec<f64> = samples.split(' ').map(str::parse).collect::<std::result::Result<_, _>>()?;
        let mut report = Report::new("rma").under("conduit", conduit).under("bytes", bytes.parse::<u64>()?);
        if let Some(ranks) = ranks {
            report = report.under("ranks", ranks);
        }
        report.add(case, metric, unit, samples);
        rows.extend(report.into_rows());
    }
    if rows.is_empty() { Err("a job told nothing".into()) } else { Ok(rows) }
}

/// Prints what [`told`] reads.
fn tell(case: &str, metric: &str, unit: &str, bytes: usize, samples: &[f64]) -> Result<()> {
    let samples: Vec<_> = samples.iter().map(f64::to_string).collect();
    Ok(say::print(format_args!("{metric}|{unit}|{bytes}|{}|{case}\n", samples.join(" ")))?)
}

struct Pair {
    runtime: Runtime,
    arrivals: Arc<Arrivals>,
    floods: std::cell::Cell<u64>,
    /// In which the gets of a sample arrive side by side; puts come from there, too.
    memory: std::cell::RefCell<Vec<u8>>,
}

/// Measures one sample of a size: seconds for this many accesses.
type Sample = fn(&Pair, usize, usize) -> Result<f64>;

/// A case, its metric, what it measures, and for which sizes.
type Measured<'a> = (&'a str, &'a str, Sample, &'a dyn Fn(usize) -> bool);

fn pair(samples: usize) -> Result<Vec<Row>> {
    let (builder, arrivals) = Arrivals::counted(Runtime::builder());
    let runtime = builder.init()?;
    job::bind_to_core(runtime.rank().0 as usize)?;
    runtime.attach(&SegmentOptions::pinned(2 * MOST as u64))?;
    let medium = runtime.medium_bytes_max();
    let memory = std::cell::RefCell::new(vec![1; DEPTH * MOST]);
    let pair = Pair { runtime, arrivals, floods: std::cell::Cell::new(0), memory };
    let any = |_: usize| true;
    let as_message = |bytes: usize| bytes <= medium;
    let in_pieces = |bytes: usize| bytes >= 512;
    let figures: [Measured<'_>; 10] = [
        ("put", "latency", |pair, bytes, times| pair.one_by_one(bytes, times, true), &any),
        ("get", "latency", |pair, bytes, times| pair.one_by_one(bytes, times, false), &any),
        (
            "message and back",
            "latency",
            |pair, bytes, times| pair.round_trips(Rank(1), bytes, times),
            &as_message,
        ),
        (
            "message and back, to itself",
            "latency",
            |pair, bytes, times| pair.round_trips(Rank(0), bytes, times),
            &as_message,
        ),
        ("memcpy", "latency", Pair::copies, &any),
        (
            "puts, 16 in flight",
            "rate",
            |pair, bytes, times| pair.in_flight(bytes, times, [true, false]),
            &in_pieces,
        ),
        ("gets, 16 in flight", "rate", |pair, bytes, times| pair.gets_in_flight(bytes, times), &in_pieces),
        (
            "puts of both, 16 in flight each",
            "rate of both",
            |pair, bytes, times| pair.in_flight(bytes, times, [true; 2]),
            &in_pieces,
        ),
        ("messages", "message rate", Pair::flood, &as_message),
        ("memcpy", "rate", Pair::copies, &in_pieces),
    ];
    for bytes in SIZES {
        let times = (SAMPLE_BYTES / bytes).clamp(4, SAMPLE_TIMES);
        let mut found = vec![Vec::new(); figures.len()];
        // The first round only warms up.
        for sample in 0..=samples {
            for ((_, _, measure, fits), found) in figures.iter().zip(&mut found) {
                if fits(bytes) {
                    pair.runtime.barrier()?;
                    let seconds = measure(&pair, bytes, times)?;
                    pair.runtime.barrier()?;
                    if sample > 0 {
                        found.push(seconds / times as f64);
                    }
                }
            }
        }
        if pair.runtime.rank().0 == 0 {
            for ((case, metric, _, _), each) in
                figures.iter().zip(&found).filter(|(_, each)| !each.is_empty())
            {
                let each =
                    |of: &dyn Fn(f64) -> f64| each.iter().map(|&seconds| of(seconds)).collect::<Vec<_>>();
                let rate = |ways: f64| each(&|seconds| ways * bytes as f64 / seconds / 1e9);
                match *metric {
                    "latency" => tell(case, metric, "us", bytes, &each(&|seconds| seconds * 1e6))?,
                    "message rate" => tell(case, metric, "M/s", bytes, &each(&|seconds| 1e-6 / seconds))?,
                    "rate of both" => tell(case, "rate", "GB/s", bytes, &rate(2.0))?,
                    _ => tell(case, metric, "GB/s", bytes, &rate(1.0))?,
                }
                if *case == "put" && bytes >= 512 {
                    tell("puts, one by one", "rate", "GB/s", bytes, &rate(1.0))?;
                }
            }
        }
    }
    pair.runtime.finalize()?;
    Ok(Vec::new())
}

impl Pair {
    fn first(&self) -> bool {
        self.runtime.rank().0 == 0
    }

    fn one_by_one(&self, bytes: usize, times: usize, puts: bool) -> Result<f64> {
        let memory = &mut self.memory.borrow_mut()[..bytes];
        let place = GlobalAddress::pinned(Rank(1), 0);
        let start = Instant::now();
        if self.first() {
            for _ in 0..times {
                match puts {
                    true => self.runtime.put(place, black_box(&*memory))?,
                    false => self.runtime.get(place, black_box(&mut *memory))?,
                }
            }
        }
        Ok(start.elapsed().as_secs_f64())
    }

    /// Puts of the ranks that are to, each to the other; until all are there.
    fn in_flight(&self, bytes: usize, times: usize, who: [bool; 2]) -> Result<f64> {
        let memory = self.memory.borrow();
        let me = self.runtime.rank().0;
        let place = GlobalAddress::pinned(Rank(1 - me), 0);
        let start = Instant::now();
        if who[me as usize] {
            for first in (0..times).step_by(DEPTH) {
                self.runtime.batch(|batch| {
                    (first..times.min(first + DEPTH)).try_for_each(|_| batch.put(place, &memory[..bytes]))
                })?;
            }
        }
        if who == [true; 2] {
            self.runtime.barrier()?;
        }
        Ok(start.elapsed().as_secs_f64())
    }

    fn gets_in_flight(&self, bytes: usize, times: usize) -> Result<f64> {
        let mut memory = self.memory.borrow_mut();
        let place = GlobalAddress::pinned(Rank(1), 0);
        let start = Instant::now();
        if self.first() {
            for first in (0..times).step_by(DEPTH) {
                let pieces = memory.chunks_exact_mut(bytes).take(DEPTH.min(times - first));
                self.runtime
                    .batch(|batch| pieces.into_iter().try_for_each(|piece| batch.get(place, piece)))?;
            }
        }
        Ok(start.elapsed().as_secs_f64())
    }

    fn copies(&self, bytes: usize, times: usize) -> Result<f64> {
        let memory = &mut self.memory.borrow_mut()[..2 * bytes];
        let (from, to) = memory.split_at_mut(bytes);
        let start = Instant::now();
        if self.first() {
            for _ in 0..times {
                black_box(&mut *to).copy_from_slice(black_box(from));
            }
        }
        Ok(start.elapsed().as_secs_f64())
    }

    fn round_trips(&self, to: Rank, bytes: usize, times: usize) -> Result<f64> {
        let memory = self.memory.borrow();
        let start = Instant::now();
        if self.first() {
            for _ in 0..times {
                let expected = self.arrivals.pongs() + 1;
                self.runtime.request(to, PING, &[1, 2], &memory[..bytes])?;
                self.runtime.wait_until(|| self.arrivals.pongs() == expected)?;
            }
        }
        Ok(start.elapsed().as_secs_f64())
    }

    fn flood(&self, bytes: usize, times: usize) -> Result<f64> {
        let memory = self.memory.borrow();
        let floods = self.floods.get() + times as u64;
        self.floods.set(floods);
        let ends = self.arrivals.flood_ends() + 1;
        let start = Instant::now();
        if self.first() {
            for _ in 0..times {
                self.runtime.request(Rank(1), FLOOD, &[1, 2], &memory[..bytes])?;
            }
            self.runtime.wait_until(|| self.arrivals.flood_ends() == ends)?;
        } else {
            self.runtime.wait_until(|| self.arrivals.floods() == floods)?;
            self.runtime.request(Rank(0), FLOOD_END, &[], &[])?;
        }
        Ok(start.elapsed().as_secs_f64())
    }
}

/// Times of each collective in one sample.
const ROUNDS: u32 = 100;

fn collectives(samples: usize) -> Result<Vec<Row>> {
    let runtime = Runtime::init()?;
    let team = runtime.world()?;
    let ranks = team.size() as usize;
    let long = std::cell::RefCell::new(vec![1u64; 4 << 10]);
    let figures: [(&str, &dyn Fn() -> vgas::Result<()>); 6] = [
        ("barrier", &|| runtime.barrier()),
        ("broadcast of 8 B", &|| team.broadcast(0, &mut [1u64])),
        ("broadcast of 32 KiB", &|| team.broadcast(0, &mut long.borrow_mut())),
        ("broadcast of 1 KiB", &|| team.broadcast(0, &mut [1u64; 128])),
        ("sum of 8 B, to all", &|| team.all_reduce(&mut [1u64], |a: u64, b: u64| a + b)),
        ("64 B from all, to all", &|| team.all_gather(&[1u64; 8], &mut vec![0u64; 8 * ranks])),
    ];
    for (case, collective) in figures {
        let mut times = Vec::new();
        for sample in 0..=samples {
            runtime.barrier()?;
            let start = Instant::now();
            for _ in 0..ROUNDS {
                collective()?;
            }
            // Some are done when they have given what they have.
            runtime.barrier()?;
            if sample > 0 {
                times.push(start.elapsed().as_secs_f64() * 1e6 / f64::from(ROUNDS));
            }
        }
        if runtime.rank().0 == 0 {
            tell(case, "time", "us", 0, &times)?;
        }
    }
    drop(team);
    runtime.finalize()?;
    Ok(Vec::new())
}
