//! Rate of pages from another node's DRAM, against a bare copy of as much memory over the same channel.
//!
//! Bare copy and pages move the same bytes between the same places: out of 32 MiB that the other process has just written,
//! into 32 MiB that were not touched meanwhile. (A copy from and into the same MiB again and again stays in the caches of
//! one core and is three times as fast, which says nothing about pages.) Two things are measured:
//!
//! * the fetch itself: pages are asked for ahead, and waited for until they are in this node's pool;
//! * gets, in which this rank also copies them from there to its own memory.
//!
//! Beside these, gets of the same bytes of a segment whose pages stay at their home, and of a pinned one: they bring no page here.

use super::job::{self, Result};
use super::line::Line;
use super::report::Report;
use crate::registry::{Benchmark, Options, Parameter, Row, Setup};
use std::time::Instant;
use vgas::{GlobalAddress, PinMode, Rank, Runtime, Segment, SegmentOptions};

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "fetch",
    help: "Pages from another node's DRAM, against a bare copy over the same channel.",
    setup: Setup::Job { ranks: 2, nodes: 2 },
    settings: &[("cache.page", "1MiB"), ("cache.size", "256MiB"), ("ablation.read_nearest", "off")],
    parameters: &[Parameter { name: "samples", default: "9", help: "Samples of each figure." }],
    full: &[],
    figures: &[],
    check: |_| Ok(()),
    run,
};

/// Bytes of one sample.
const BYTES: usize = 32 << 20;
/// Bytes that are written, got or asked for at a time.
const STEP: usize = 1 << 20;
/// Bytes that one prefetch asks for.
const AHEAD: u64 = 8 << 20;

/// Candidates, in turn.
const WAYS: [&str; 7] = [
    "bare copy",
    "fetch into the pool, asked for ahead",
    "gets of 1 MiB, blocking",
    "get of 32 MiB",
    "gets of 1 MiB, home only",
    "get of 32 MiB, home only",
    "gets of 1 MiB, pinned",
];

fn run(options: &Options) -> Result<Vec<Row>> {
    let samples: usize = options.get("samples")?;
    job::on_every_rank(Runtime::builder(), |runtime| {
        job::need(runtime, 2, 2)?;
        if runtime.ranks() > 2 {
            return Err("measures two ranks: use -n 2".into());
        }
        job::bind_to_core(runtime.rank().0 as usize)?;
        let bytes = BYTES as u64;
        runtime.attach(&SegmentOptions::tiered(bytes))?;
        runtime.attach(&SegmentOptions::pinned(bytes))?;
        let home_only = SegmentOptions::tiered(0).home_only(true);
        let mut nodes = Nodes {
            runtime,
            home_only: runtime.attach(&home_only.sized(bytes))?,
            rank: runtime.rank().0,
            line: Line::between(runtime)?,
            piece: vec![1; STEP],
            large: vec![2; BYTES],
        };
        nodes.line.prepare(BYTES);
        let mut rates = [const { Vec::new() }; WAYS.len()];
        // The first round only warms up.
        for sample in 0..=samples {
            for turn in 0..WAYS.len() {
                let way = (sample + turn) % WAYS.len();
                let rate = nodes.measure(way)?;
                if sample > 0 {
                    rates[way].push(rate);
                }
            }
        }
        if nodes.rank != 0 {
            return Ok(Vec::new());
        }
        let page_bytes = runtime.page_bytes();
        let mut report =
            Report::new("fetch").under("conduit", nodes.line.name()).under("page_bytes", page_bytes);
        for (name, rates) in WAYS.iter().zip(&rates) {
            report.add(name, "rate", "GB/s", rates.clone());
        }
        for (name, fetched) in WAYS.iter().zip(&rates).skip(1) {
            report.ratio((name, fetched), (WAYS[0], &rates[0]));
        }
        Ok(report.into_rows())
    })
}

struct Nodes<'r> {
    runtime: &'r Runtime,
    home_only: Segment,
    rank: u32,
    line: Line,
    /// A step, and all bytes of a sample.
    piece: Vec<u8>,
    large: Vec<u8>,
}

impl Nodes<'_> {
    /// Rank 1 writes everything, which takes all pages away from rank 0's node; rank 0 has them come, and knows the rate.
    fn measure(&mut self, way: usize) -> Result<f64> {
        let (owner, home_only) = (Rank(1), self.home_only.clone());
        let at = |offset: usize| match way {
            4 | 5 => home_only.address(owner, offset as u64),
            6 => GlobalAddress::pinned(owner, offset as u64),
            _ => GlobalAddress::tiered(owner, offset as u64),
        };
        let steps = || (0..BYTES).step_by(STEP);
        if self.rank == 1 {
            for offset in steps() {
                match way {
                    0 => self.line.fill(offset, &self.piece, &mut self.large),
                    _ => self.runtime.put(at(offset), &self.piece)?,
                }
            }
        }
        self.runtime.barrier()?;
        let start = Instant::now();
        match (way, self.rank) {
            (0, rank) => self.line.take(rank, &mut self.large, STEP)?,
            (1, 0) => {
                for offset in steps().step_by(AHEAD as usize / STEP) {
                    self.runtime.prefetch(at(offset), AHEAD)?;
                }
                // A pin waits until the page is here.
                for offset in (0..BYTES).step_by(self.runtime.page_bytes()) {
                    drop(self.runtime.pin(at(offset), PinMode::Read)?);
                }
            }
            (2 | 4 | 6, 0) => {
                for offset in steps() {
                    self.runtime.get(at(offset), &mut self.piece)?;
                }
            }
            (_, 0) => self.runtime.get(at(0), &mut self.large)?,
            _ => {}
        }
        let rate = BYTES as f64 / start.elapsed().as_secs_f64() / 1e9;
        self.runtime.barrier()?;
        Ok(rate)
    }
}
