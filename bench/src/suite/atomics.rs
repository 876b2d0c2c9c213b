//! Atomic updates of tiered words: where this node has the page, at a home elsewhere beside a message and its answer, and many in
//! one call; locks in the same places, and handed over among all ranks; a service's call; barriers that carry something.

use super::job::{self, Result};
use super::report::Report;
use crate::registry::{Benchmark, Options, Parameter, Row, Setup};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use vgas::service::Ping;
use vgas::{Change, GlobalAddress, Rank, Runtime, SegmentOptions};
use vgas_rma::message::Payload;

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "atomics",
    help: "Atomic updates of tiered words, locks, calls of services, here and at a home elsewhere; barriers that carry something.",
    setup: Setup::Job { ranks: 2, nodes: 2 },
    settings: &[("cache.size", "64MiB")],
    parameters: &[
        Parameter { name: "samples", default: "15", help: "Samples of each figure." },
        Parameter { name: "rounds", default: "1000", help: "Updates of one sample, alone and together." },
    ],
    full: &[],
    figures: &[],
    check: |_| Ok(()),
    run,
};

const PING: u8 = 128;
const PONG: u8 = 129;

/// Words that are updated, in as many pages as there are in the segment.
const BYTES: u64 = 4 << 20;

fn run(options: &Options) -> Result<Vec<Row>> {
    let (samples, rounds): (usize, u64) = (options.get("samples")?, options.get("rounds")?);
    let pongs = Arc::new(AtomicU64::new(0));
    let counted = pongs.clone();
    let builder = Runtime::builder()
        .handler(PING, |token, arguments, _| token.check(token.reply(PONG, arguments, Payload::Short)))
        .handler(PONG, move |_, _, _| {
            counted.fetch_add(1, Ordering::Relaxed);
        });
    job::on_every_rank(builder, |runtime| {
        job::need(runtime, 2, 2)?;
        runtime.attach(&SegmentOptions::tiered(BYTES))?;
        let mut report = Report::new("atomics");
        let there = runtime.layout().node_of(Rank(1));
        let mut times = [const { Vec::new() }; 14];
        let mut made = 0;
        // The first round only warms up.
        for sample in 0..=samples {
            runtime.barrier()?;
            if runtime.rank() == Rank(0) {
                let here =
                    each(rounds * 100, |_| Ok(runtime.fetch_add(GlobalAddress::tiered(Rank(0), 0), 1)?))?;
                let word = |number: u64| GlobalAddress::tiered(Rank(0), number * 8 * 61 % BYTES);
                let list: Vec<_> = (0..rounds).map(|number| (word(number), Change::Add(1u64))).collect();
                let here_together = each(100, |_| Ok(runtime.update_many(&list)?))? / rounds as f64;
                let here_in_turn = each(100, |_| {
                    Ok(list.iter().try_for_each(|(at, _)| runtime.fetch_add(*at, 1).map(drop))?)
                })? / rounds as f64;
                let trips = each(rounds, |_| {
                    let expected = pongs.load(Ordering::Relaxed) + 1;
                    runtime.request(Rank(1), PING, &[1, 2], &[])?;
                    Ok(runtime.wait_until(|| pongs.load(Ordering::Relaxed) == expected)?)
                })?;
                let alone = each(rounds, |_| Ok(runtime.fetch_add(GlobalAddress::tiered(Rank(1), 0), 1)?))?;
                let word = |number: u64| GlobalAddress::tiered(Rank(1), number * 8 * 61 % BYTES);
                let list: Vec<_> = (0..rounds).map(|number| (word(number), Change::Add(1u64))).collect();
                let together = each(1, |_| Ok(runtime.update_many(&list)?))? / rounds as f64;
                made += rounds;
                let locks_here = each(rounds * 100, |_| {
                    Ok(runtime.lock(GlobalAddress::tiered(Rank(0), 64)).map(drop)?)
                })?;
                let locks =
                    each(rounds, |_| Ok(runtime.lock(GlobalAddress::tiered(Rank(1), 64)).map(drop)?))?;
                let calls = each(rounds, |_| Ok(runtime.call::<Ping>(there, &())?))?;
                let [takes, gives] = taken_and_given(runtime, rounds / 10)?;
                if sample > 0 {
                    let found = [
                        here,
                        here_in_turn,
                        here_together,
                        trips,
                        alone,
                        together,
                        locks_here,
                        locks,
                        calls,
                        takes,
                        gives,
                    ];
                    times.iter_mut().zip(found).for_each(|(all, time)| all.push(time));
                }
            }
            runtime.barrier()?;
            // All ranks want the same lock, whose home is the last rank's.
            let lock = GlobalAddress::tiered(Rank(runtime.ranks() - 1), 4096);
            let turns = rounds / u64::from(runtime.ranks());
            let start = Instant::now();
            (0..turns).try_for_each(|_| runtime.lock(lock).map(drop))?;
            runtime.barrier()?;
            let turn = start.elapsed().as_nanos() as f64 / (turns * u64::from(runtime.ranks())) as f64;
            let barriers = each(rounds / 4, |_| Ok(runtime.barrier()?))?;
            let brought = [7; 256];
            let carrying = each(rounds / 4, |_| Ok(runtime.barrier_with(&brought)?))?;
            if sample > 0 {
                times[11..].iter_mut().zip([turn, barriers, carrying]).for_each(|(all, time)| all.push(time));
            }
        }
        if runtime.rank() != Rank(0) {
            return Ok(Vec::new());
        }
        let sum: u64 = runtime.get_value(GlobalAddress::tiered(Rank(1), 0))?;
        if sum < made {
            return Err(format!("{sum} instead of at least {made}").into());
        }
        let [
            here,
            here_in_turn,
            here_together,
            trips,
            alone,
            together,
            locks_here,
            locks,
            calls,
            takes,
            gives,
            turns,
            barriers,
            carrying,
        ] = &times;
        let latency = ["latency", "ns"];
        report.add("fetch-add of a word whose page is here", "latency", "ns", here.clone());
        let singles = ("fetch-add of words whose pages are here, in turn", here_in_turn.as_slice());
        report.compare(latency, ("one of many in a call, whose pages are here", here_together), singles);
        let base = ("short message and back", trips.as_slice());
        report.compare(latency, ("fetch-add of a word whose page is elsewhere", alone), base);
        report.compare(latency, ("one of many in a call", together), ("alone", alone));
        report.add("lock whose page is here, taken and given back", "latency", "ns", locks_here.clone());
        report.add("lock whose page is here, taken", "latency", "ns", takes.clone());
        report.add("lock whose page is here, given back", "latency", "ns", gives.clone());
        report.add("lock elsewhere, taken and given back", "latency", "ns", locks.clone());
        report.ratio(("lock elsewhere, taken and given back", locks), base);
        report.add("call of a service elsewhere", "latency", "ns", calls.clone());
        report.ratio(("call of a service elsewhere", calls), base);
        report.add("lock that all ranks want, each turn", "latency", "ns", turns.clone());
        report.ratio(("lock that all ranks want, each turn", turns), base);
        let base = ("barrier", barriers.as_slice());
        report.compare(latency, ("barrier with 256 bytes from each rank", carrying), base);
        Ok(report.into_rows())
    })
}

/// Nanoseconds of taking a lock whose page is here, and of giving one back: all of some locks are taken, then all are given back.
fn taken_and_given(runtime: &Runtime, rounds: u64) -> Result<[f64; 2]> {
    const LOCKS: u64 = 1000;
    let mut guards = Vec::with_capacity(LOCKS as usize);
    let mut times = [0.0; 2];
    for _ in 0..rounds {
        times[0] += each(LOCKS, |number| {
            guards.push(runtime.lock(GlobalAddress::tiered(Rank(0), 8192 + 8 * number))?);
            Ok(())
        })?;
        times[1] += each(LOCKS, |_| Ok(guards.pop().map(drop)))?;
    }
    Ok(times.map(|time| time / rounds.max(1) as f64))
}

/// Nanoseconds of each call.
fn each<T>(times: u64, mut call: impl FnMut(u64) -> Result<T>) -> Result<f64> {
    let start = Instant::now();
    for time in 0..times {
        std::hint::black_box(call(time)?);
    }
    Ok(start.elapsed().as_nanos() as f64 / times as f64)
}
