//! Active messages, barriers, and one-sided access to pinned segments between ranks 0 and 1, against the bare channel below.
//! `--nodes 1`: shared memory; `--nodes 2`: what `--conduit` says.
//!
//! # Rule for the unsafe code in this file
//!
//! The buffer of [`Pair::bulk`] has no other users until all its operations have been waited for, even after
//! an error.

use super::arrivals::{Arrivals, FLOOD, FLOOD_END, PING};
use super::job::{self, Result};
use super::line::Line;
use super::report::Report;
use crate::raw::endpoint;
use crate::registry::{Benchmark, Options, Parameter, Row, Setup};
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};
use vgas::{GlobalAddress, Rank, Runtime, SegmentOptions};

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "pair",
    help: "Active messages, barriers, pinned and remote puts and gets of two ranks.",
    setup: Setup::Job { ranks: 2, nodes: 1 },
    settings: &[],
    parameters: &[
        Parameter {
            name: "cores",
            default: "apart",
            help: "The two ranks' cores: `apart`, `together` or `any`.",
        },
        Parameter { name: "samples", default: "9", help: "Samples of each figure." },
        Parameter { name: "rounds", default: "5000", help: "Operations of one sample of something small." },
    ],
    full: &[],
    figures: &[],
    check,
    run,
};

const MIB: usize = 1 << 20;
/// Large puts and gets of one sample, and how many are in flight.
const LARGE_TIMES: u64 = 64;
const LARGE_DEPTH: usize = 4;
/// Gets of 2 MiB from a target that computes (the 32 copies), and for how long it does at least.
const BUSY_GETS: u64 = 32;
const BUSY: Duration = Duration::from_millis(400);

fn check(options: &Options) -> Result<()> {
    match options.text("cores") {
        "apart" | "together" | "any" => Ok(()),
        other => Err(format!("parameter `cores` is `apart`, `together` or `any`, not `{other}`").into()),
    }
}

fn run(options: &Options) -> Result<Vec<Row>> {
    let (samples, rounds): (usize, u64) = (options.get("samples")?, options.get("rounds")?);
    let cores = options.text("cores").to_owned();
    let (builder, arrivals) = Arrivals::counted(Runtime::builder());
    job::on_every_rank(builder, |runtime| {
        job::need(runtime, 2, 1)?;
        if runtime.ranks() > 2 {
            return Err("measures two ranks: use -n 2".into());
        }
        match (cores.as_str(), runtime.rank().0) {
            ("apart", rank) => job::bind_to_core(rank as usize)?,
            ("together", _) => job::bind_to_core(0)?,
            _ => {}
        }
        runtime.attach(&SegmentOptions::pinned(4 * MIB as u64))?;
        let line = Line::between(runtime)?;
        let together = cores == "together";
        let mut pair = Pair { runtime, rank: runtime.rank().0, arrivals, line, rounds, floods: 0 };
        let mut report = Report::new("pair").under("conduit", pair.line.name()).under("cores", cores);
        pair.small(&mut report, samples, together)?;
        if !together {
            pair.large(&mut report, samples)?;
            pair.busy_target(&mut report, samples.min(3))?;
        }
        pair.together()?;
        let rows = if pair.rank == 0 { report.into_rows() } else { Vec::new() };
        Ok(rows)
    })
}

struct Pair<'r> {
    runtime: &'r Runtime,
    rank: u32,
    arrivals: Arc<Arrivals>,
    line: Line,
    rounds: u64,
    /// Floods so far.
    floods: u64,
}

fn each(start: Instant, times: u64) -> f64 {
    start.elapsed().as_nanos() as f64 / times as f64
}

#[inline(never)]
fn plain_read(array: &[u64], index: usize) -> u64 {
    array[black_box(index)]
}

impl Pair<'_> {
    fn together(&self) -> Result<()> {
        Ok(self.runtime.barrier()?)
    }

    fn small(&mut self, report: &mut Report, samples: usize, together: bool) -> Result<()> {
        let smp = matches!(self.line, Line::Shared(_));
        let rounds = if together { self.rounds / 5 } else { self.rounds };
        let [mut bare, mut sleeping, mut trips, mut floods, mut barriers] = [const { Vec::new() }; 5];
        let [mut puts, mut gets, mut reads] = [const { Vec::new() }; 3];
        // The first round only warms up.
        for sample in 0..=samples {
            self.together()?;
            // On one core a bare ping-pong that spins would measure the scheduler's time slices.
            let figures = [
                if together { 1.0 } else { self.line.ping_pong(self.rank, rounds)? },
                self.line.sleeping_ping_pong(self.rank, rounds / 10)?,
                self.round_trips(rounds)?,
                self.flood(rounds * 10)?,
                self.barriers(rounds)?,
                if together { 1.0 } else { self.puts(rounds)? },
                if together { 1.0 } else { self.gets(rounds)? },
                plain_reads(rounds * 20),
            ];
            if sample > 0 {
                let all = [
                    &mut bare,
                    &mut sleeping,
                    &mut trips,
                    &mut floods,
                    &mut barriers,
                    &mut puts,
                    &mut gets,
                    &mut reads,
                ];
                all.into_iter().zip(figures).for_each(|(samples, figure)| samples.push(figure));
            }
        }
        let latency = ["latency", "ns"];
        let base = ("bare ping-pong 8 B", bare.as_slice());
        let asleep = ("bare exchange 8 B, asleep meanwhile", sleeping.as_slice());
        if together {
            report.compare(latency, ("short AM round trip", &trips), asleep);
            report.add("short AM flood, each", "latency", "ns", floods);
            report.add("barrier", "latency", "ns", barriers);
            return Ok(());
        }
        report.compare(latency, ("short AM round trip", &trips), base);
        report.add(asleep.0, "latency", "ns", sleeping.clone());
        report.ratio(("short AM round trip", &trips), asleep);
        report.add("short AM flood, each", "latency", "ns", floods);
        report.add("barrier", "latency", "ns", barriers);
        report.add("pinned put 8 B", "latency", "ns", puts.clone());
        report.add("pinned get 8 B", "latency", "ns", gets.clone());
        if smp {
            report.add("array read 8 B, not inlined", "latency", "ns", reads);
        } else {
            report.ratio(("pinned put 8 B", &puts), base);
            report.ratio(("pinned get 8 B", &gets), base);
        }
        Ok(())
    }

    fn round_trips(&self, rounds: u64) -> Result<f64> {
        self.together()?;
        let start = Instant::now();
        if self.rank == 0 {
            for _ in 0..rounds {
                let expected = self.arrivals.pongs() + 1;
                self.runtime.request(Rank(1), PING, &[1, 2], &[])?;
                self.runtime.wait_until(|| self.arrivals.pongs() == expected)?;
            }
        }
        let each = each(start, rounds);
        self.together()?;
        Ok(each)
    }

    fn flood(&mut self, messages: u64) -> Result<f64> {
        self.together()?;
        self.floods += 1;
        let start = Instant::now();
        if self.rank == 0 {
            for _ in 0..messages {
                self.runtime.request(Rank(1), FLOOD, &[1, 2], &[])?;
            }
            self.runtime.wait_until(|| self.arrivals.flood_ends() == self.floods)?;
        } else {
            let all = messages * self.floods;
            self.runtime.wait_until(|| self.arrivals.floods() == all)?;
            self.runtime.request(Rank(0), FLOOD_END, &[], &[])?;
        }
        Ok(each(start, messages))
    }

    fn barriers(&self, rounds: u64) -> Result<f64> {
        self.together()?;
        let start = Instant::now();
        for _ in 0..rounds {
            self.together()?;
        }
        Ok(each(start, rounds))
    }

    fn puts(&self, rounds: u64) -> Result<f64> {
        let times = if matches!(self.line, Line::Shared(_)) { rounds * 20 } else { rounds };
        let start = Instant::now();
        if self.rank == 0 {
            for time in 0..times {
                let place = GlobalAddress::pinned(Rank(1), (time % 512) * 8);
                self.runtime.put(place, black_box(&[time]))?;
            }
        }
        let each = each(start, times);
        self.together()?;
        Ok(each)
    }

    fn gets(&self, rounds: u64) -> Result<f64> {
        let times = if matches!(self.line, Line::Shared(_)) { rounds * 20 } else { rounds };
        let start = Instant::now();
        if self.rank == 0 {
            let mut value = [0u64];
            for time in 0..times {
                self.runtime.get(GlobalAddress::pinned(Rank(1), (time % 512) * 8), &mut value)?;
                black_box(&value);
            }
        }
        let each = each(start, times);
        self.together()?;
        Ok(each)
    }

    fn large(&mut self, report: &mut Report, samples: usize) -> Result<()> {
        let mut rates = [const { Vec::new() }; 6];
        let mut buffer = vec![1u8; MIB];
        for sample in 0..=samples {
            for turn in 0..6 {
                let way = (sample + turn) % 6;
                self.together()?;
                let time = match way {
                    0 | 1 => self.line.stream(self.rank, &mut buffer, LARGE_TIMES, way == 0)?,
                    2 | 3 if self.rank == 0 => self.bulk(&mut buffer, way == 2)?,
                    4 | 5 if self.rank == 0 => self.blocking(&mut buffer, way == 4)?,
                    _ => Duration::from_secs(1),
                };
                self.together()?;
                if sample > 0 {
                    rates[way].push(LARGE_TIMES as f64 * MIB as f64 / time.as_secs_f64() / 1e9);
                }
            }
        }
        let rate = ["rate", "GB/s"];
        let [out, into, puts, gets, blocking_puts, blocking_gets] = &rates;
        report.compare(rate, ("pinned put 1 MiB, 4 in flight", puts), ("bare stream from rank 0", out));
        report.compare(rate, ("pinned get 1 MiB, 4 in flight", gets), ("bare stream to rank 0", into));
        report.add("pinned put 1 MiB, blocking", rate[0], rate[1], blocking_puts.clone());
        report.ratio(("pinned put 1 MiB, blocking", blocking_puts), ("bare stream from rank 0", out));
        report.add("pinned get 1 MiB, blocking", rate[0], rate[1], blocking_gets.clone());
        report.ratio(("pinned get 1 MiB, blocking", blocking_gets), ("bare stream to rank 0", into));
        Ok(())
    }

    /// Puts or gets of the whole buffer, some in flight; gets write the same bytes again and again.
    fn bulk(&self, buffer: &mut [u8], puts: bool) -> Result<Duration> {
        let endpoint = endpoint(self.runtime);
        let start = Instant::now();
        let mut in_flight = std::collections::VecDeque::with_capacity(LARGE_DEPTH);
        let mut outcome = Ok(());
        for _ in 0..LARGE_TIMES {
            if in_flight.len() == LARGE_DEPTH {
                let oldest = in_flight.pop_front().unwrap_or_else(vgas_rma::endpoint::Handle::complete);
                outcome = outcome.and(endpoint.wait_sync(oldest));
            }
            // SAFETY: this file's rule.
            let started = unsafe {
                match puts {
                    true => endpoint.put_nb_bulk(Rank(1), 8192, buffer.as_ptr(), buffer.len()),
                    false => endpoint.get_nb(Rank(1), 8192, buffer.as_mut_ptr(), buffer.len()),
                }
            };
            match started {
                Ok(handle) => in_flight.push_back(handle),
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        outcome = outcome.and(endpoint.wait_sync_all(in_flight));
        Ok(outcome.map(|()| start.elapsed())?)
    }

    fn blocking(&self, buffer: &mut [u8], puts: bool) -> Result<Duration> {
        let start = Instant::now();
        let place = GlobalAddress::pinned(Rank(1), 8192);
        for _ in 0..LARGE_TIMES {
            match puts {
                true => self.runtime.put(place, buffer)?,
                false => self.runtime.get(place, buffer)?,
            }
        }
        Ok(start.elapsed())
    }

    /// Rank 1 computes for a while without calling the library; rank 0 gets from it meanwhile.
    fn busy_target(&self, report: &mut Report, samples: usize) -> Result<()> {
        let mut times = [const { Vec::new() }; 2];
        let mut buffer = vec![0u8; 2 * MIB];
        for sample in 0..samples {
            for turn in 0..2 {
                let busy = (sample + turn) % 2;
                self.together()?;
                let start = Instant::now();
                if self.rank == 0 {
                    // The computation begins first.
                    while start.elapsed() < BUSY / 8 {
                        std::hint::spin_loop();
                    }
                    let start = Instant::now();
                    for _ in 0..BUSY_GETS {
                        self.runtime.get(GlobalAddress::pinned(Rank(1), 0), &mut buffer)?;
                    }
                    times[busy].push(start.elapsed().as_secs_f64() * 1e3);
                } else if busy == 1 {
                    while start.elapsed() < BUSY {
                        black_box(plain_reads(1000));
                    }
                }
                self.together()?;
            }
        }
        if self.rank == 0 {
            let [idle, busy] = &times;
            report.compare(
                ["time", "ms"],
                ("32 gets of 2 MiB from a rank that computes", busy),
                ("from an idle rank", idle),
            );
        }
        Ok(())
    }
}

/// Nanoseconds of a plain read behind a call.
fn plain_reads(times: u64) -> f64 {
    let array = vec![1u64; 512];
    let start = Instant::now();
    for time in 0..times {
        black_box(plain_read(&array, (time % 512) as usize));
    }
    each(start, times)
}
