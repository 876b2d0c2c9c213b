//! Cost of following a pointer of the object heap beside one of `Box`: chains of nodes in a random order, of
//! this rank, and copies of another's, small enough for the first cache, and larger.

use super::job::{self, Result};
use super::report::Report;
use crate::registry::{Benchmark, Options, Parameter, Row, Setup};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use std::time::Instant;
use vgas::{Rank, Runtime};
use vgas_objects::{DBox, HeapOptions, Objects, Portable, Shareable};

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "deref",
    help: "Following pointers of the object heap, to own objects and to copies of another rank's, beside Box.",
    setup: Setup::Job { ranks: 2, nodes: 2 },
    settings: &[("cache.size", "256MiB")],
    parameters: &[
        Parameter { name: "samples", default: "31", help: "Samples of each figure." },
        Parameter { name: "small", default: "256", help: "Nodes of a chain that fits the first cache." },
        Parameter { name: "large", default: "200000", help: "Nodes of a chain that does not." },
        Parameter { name: "steps", default: "1000000", help: "Nodes that a sample visits, at least." },
    ],
    full: &[],
    figures: &[],
    check: |_| Ok(()),
    run,
};

#[derive(Portable, Shareable)]
struct Node {
    number: u64,
    next: Option<DBox<Node>>,
}

struct Plain {
    number: u64,
    // As large as the other.
    _rest: u64,
    next: Option<Box<Plain>>,
}

/// A chain through `count` pointers that were made one after the other.
fn chain<B>(count: usize, make: impl Fn(u64) -> B, link: impl Fn(&mut B, Option<B>)) -> Option<B> {
    let mut nodes: Vec<B> = (0..count as u64).map(make).collect();
    nodes.shuffle(&mut rand_chacha::ChaCha8Rng::seed_from_u64(7));
    nodes.into_iter().fold(None, |next, mut node| {
        link(&mut node, next);
        Some(node)
    })
}

fn owned(count: usize) -> Option<DBox<Node>> {
    let make = |number| DBox::new(Node { number, next: None });
    chain(count, make, |node, next| node.next = next)
}

fn plain(count: usize) -> Option<Box<Plain>> {
    let make = |number| Box::new(Plain { number, _rest: 0, next: None });
    chain(count, make, |node, next| node.next = next)
}

/// Takes a chain apart from its beginning: dropped as a whole, it would need a stack as long.
fn take_apart<B>(mut chain: Option<B>, next: impl Fn(&mut B) -> Option<B>) {
    while let Some(mut node) = chain {
        chain = next(&mut node);
    }
}

#[inline(never)]
fn sum_owned(mut chain: &Option<DBox<Node>>) -> u64 {
    let mut sum = 0;
    while let Some(node) = chain {
        let node: &Node = node;
        sum += node.number;
        chain = &node.next;
    }
    sum
}

#[inline(never)]
fn sum_plain(mut chain: &Option<Box<Plain>>) -> u64 {
    let mut sum = 0;
    while let Some(node) = chain {
        sum += node.number;
        chain = &node.next;
    }
    sum
}

fn run(options: &Options) -> Result<Vec<Row>> {
    let heap = HeapOptions { bytes: 1 << 28, copies: 1 << 22, ..HeapOptions::default() };
    job::with_objects(Runtime::init()?, &heap, |objects| measure(options, objects).map(Report::into_rows))
}

fn measure(options: &Options, objects: &Objects) -> Result<Report> {
    let mut report = Report::new("deref");
    let (samples, steps): (usize, usize) = (options.get("samples")?, options.get("steps")?);
    for (size, where_) in [("small", "in the first cache"), ("large", "beyond it")] {
        let nodes: usize = options.get(size)?;
        let (here, last) = (Rank(0), Rank(objects.ranks() - 1));
        let made = (objects.rank() == last).then(|| owned(nodes)).flatten();
        let times = objects.lend(last, made.as_ref(), |first| -> Result<_> {
            if objects.rank() != here {
                return Ok(None);
            }
            let (own, boxed) = (owned(nodes), plain(nodes));
            let wanted = (0..nodes as u64).sum::<u64>();
            let rounds = steps.div_ceil(nodes);
            let mut times = [const { Vec::new() }; 3];
            // The first round brings the copies.
            for sample in 0..=samples {
                let found = [
                    timed(nodes, rounds, wanted, || sum_plain(&boxed))?,
                    timed(nodes, rounds, wanted, || sum_owned(&own))?,
                    timed(nodes, rounds, wanted, || first.number + sum_owned(&first.next))?,
                ];
                if sample > 0 {
                    times.iter_mut().zip(found).for_each(|(all, time)| all.push(time));
                }
            }
            take_apart(own, |node| node.next.take());
            take_apart(boxed, |node| node.next.take());
            Ok(Some(times))
        })??;
        take_apart(made, |node| node.next.take());
        let Some([boxed, own, copies]) = times else { continue };
        let (latency, base) = (["latency", "ns"], format!("Box, {where_}"));
        report.compare(latency, (&format!("own object, {where_}"), &own), (&base, &boxed));
        let case = format!("copy of another rank's, {where_}");
        report.add(&case, "latency", "ns", copies.clone());
        report.ratio((&case, &copies), (&base, &boxed));
    }
    Ok(report)
}

/// Nanoseconds of each node that is visited.
fn timed(nodes: usize, rounds: usize, wanted: u64, sum: impl Fn() -> u64) -> Result<f64> {
    let began = Instant::now();
    for _ in 0..rounds {
        let found = std::hint::black_box(sum());
        if found != wanted {
            return Err(format!("the chain has {found} instead of {wanted}").into());
        }
    }
    Ok(began.elapsed().as_nanos() as f64 / (rounds * nodes) as f64)
}
