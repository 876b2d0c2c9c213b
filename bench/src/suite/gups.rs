//! Random updates of words of eight bytes: RandomAccess of the HPC Challenge, over a tiered table that is larger than the caches, one
//! that they hold, and a pinned one.
//!
//! Rank r makes its part of one sequence of random numbers, each of which is exclusive-ored into the word that its low bits name. Up to
//! 1,024 updates may be in flight in a rank, as the rules allow. The check is theirs, too: the same updates once more must give back
//! what was there at first. They allow 1 % of wrong words, because most programs lose updates; here each is atomic, and none may be
//! wrong.

use super::job::{self, Result};
use super::report::Report;
use crate::figure::{Claim, Figure, Form, Reference};
use crate::registry::{Benchmark, Options, Parameter, Row, Setup};
use std::time::Instant;
use vgas::{Change, GlobalAddress, Rank, Runtime, Segment, SegmentOptions};

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "gups",
    help: "Random updates of 8 bytes (HPC Challenge RandomAccess), verified, over tiered and pinned memory.",
    setup: Setup::Job { ranks: 4, nodes: 2 },
    settings: &[("cache.size", "16MiB"), ("cache.page", "4KiB")],
    parameters: &[
        Parameter { name: "mebibytes", default: "64", help: "MiB of the table that no cache holds." },
        Parameter { name: "updates", default: "32768", help: "Updates of each rank in one sample." },
        Parameter { name: "samples", default: "3", help: "Samples of each figure." },
    ],
    full: &[("mebibytes", "512"), ("updates", "1048576"), ("samples", "5")],
    figures: &[Figure {
        name: "gups",
        question: "How many random words are updated in a second?",
        expect: "Updates of a tiered table travel many in a message, and those that caches hold are made at once; where they hold it not, a \
                 page comes from NVMe for each. Updates of a pinned table go one by one, each a message and its answer.",
        unit: "M/s",
        cases: &["tiered, in the caches", "tiered, larger than the caches", "pinned"],
        references: &["pinned"],
        claims: &[Claim::new("tiered, in the caches", Reference::Case("pinned"), 1.0)],
        form: Form::Dots { by: &[] },
        ..Figure::BASE
    }],
    check,
    run,
};

/// Updates that a rank may have in flight, by the rules.
const AHEAD: usize = 1024;

/// Bytes of the tables that fit: half of what two caches of the usual size hold.
const SMALL: u64 = 16 << 20;

fn check(options: &Options) -> Result<()> {
    if !options.mebibytes("mebibytes")?.is_power_of_two() {
        return Err("`mebibytes` is a power of two: the low bits of a number name a word".into());
    }
    Ok(())
}

/// x⁶⁴ in the field of the numbers: x² + x + 1.
const POLYNOMIAL: u64 = 0b111;

/// The number after this one: times x.
fn after(number: u64) -> u64 {
    (number << 1) ^ if number >> 63 == 1 { POLYNOMIAL } else { 0 }
}

fn product(mut a: u64, mut b: u64) -> u64 {
    let mut sum = 0;
    while b != 0 {
        if b & 1 == 1 {
            sum ^= a;
        }
        a = after(a);
        b >>= 1;
    }
    sum
}

/// The number at this place of the sequence: x to that power.
fn number_at(mut place: u64) -> u64 {
    let (mut power, mut square) = (1, 2);
    while place != 0 {
        if place & 1 == 1 {
            power = product(power, square);
        }
        square = product(square, square);
        place >>= 1;
    }
    power
}

/// A table of words that all ranks have equal parts of.
struct Table<'r> {
    runtime: &'r Runtime,
    segment: Segment,
    words: u64,
}

impl<'r> Table<'r> {
    /// Each word is its place. Collective.
    fn create(runtime: &'r Runtime, bytes: u64, options: &SegmentOptions) -> Result<Self> {
        let words = bytes / 8;
        let part = words.div_ceil(u64::from(runtime.ranks()));
        let segment = runtime.attach(&options.sized(part * 8))?;
        let table = Self { runtime, segment: segment.clone(), words };
        let mine: Vec<u64> = table.part().collect();
        for (at, piece) in mine.chunks(1 << 16).enumerate() {
            let offset = (at << 16) as u64 * 8;
            runtime.put(segment.address(runtime.rank(), offset), piece)?;
        }
        runtime.barrier()?;
        Ok(table)
    }

    /// The places of this rank's words.
    fn part(&self) -> std::ops::Range<u64> {
        let ranks = u64::from(self.runtime.ranks());
        let part = self.words.div_ceil(ranks);
        let first = u64::from(self.runtime.rank().0) * part;
        first.min(self.words)..(first + part).min(self.words)
    }

    fn address(&self, word: u64) -> GlobalAddress {
        let part = self.words.div_ceil(u64::from(self.runtime.ranks()));
        self.segment.address(Rank((word / part) as u32), word % part * 8)
    }

    /// This rank's part of the sequence, from `first` on. All ranks, together; seconds.
    fn update(&self, first: u64, updates: u64) -> Result<f64> {
        let mut number = number_at(first + u64::from(self.runtime.rank().0) * updates);
        let mut list = Vec::with_capacity(AHEAD);
        self.runtime.barrier()?;
        let start = Instant::now();
        let mut left = updates;
        while left > 0 {
            list.clear();
            for _ in 0..left.min(AHEAD as u64) {
                number = after(number);
                list.push((self.address(number & (self.words - 1)), Change::Xor(number)));
            }
            left -= list.len() as u64;
            self.runtime.update_many(&list)?;
        }
        self.runtime.barrier()?;
        Ok(start.elapsed().as_secs_f64())
    }

    /// Returns the number of this rank's words that differ from their initial value.
    fn wrong(&self) -> Result<u64> {
        let mut wrong = 0;
        let part = self.part();
        let mut piece = vec![0u64; 1 << 13];
        let mut at = part.start;
        while at < part.end {
            let words = piece.len().min((part.end - at) as usize);
            self.runtime.get(self.address(at), &mut piece[..words])?;
            wrong += piece[..words].iter().zip(at..).filter(|(word, place)| **word != *place).count() as u64;
            at += words as u64;
        }
        Ok(wrong)
    }
}

fn run(options: &Options) -> Result<Vec<Row>> {
    let (updates, samples): (u64, u64) = (options.get("updates")?, options.get("samples")?);
    let large = options.mebibytes("mebibytes")?;
    job::on_every_rank(Runtime::builder(), |runtime| {
        runtime.attach(&SegmentOptions::tiered(0))?;
        let tables = [
            ("tiered, in the caches", SMALL, SegmentOptions::tiered(0)),
            ("tiered, larger than the caches", large, SegmentOptions::tiered(0)),
            ("pinned", SMALL, SegmentOptions::pinned(0)),
        ];
        let mut report = Report::new("gups")
            .under("ranks", runtime.ranks())
            .under("nodes", runtime.nodes())
            .under("page_bytes", runtime.page_bytes())
            .under("cache_bytes", runtime.cache_layout().frames_bytes());
        for (name, bytes, of) in tables {
            // An update of a pinned word is a message and its answer.
            let updates = if name == "pinned" { updates.div_ceil(8) } else { updates };
            let all = updates * u64::from(runtime.ranks());
            let table = Table::create(runtime, bytes, &of)?;
            let mut rates = Vec::new();
            // The first round warms up. All are made once more, for the check.
            let rounds: Vec<u64> = (0..=samples).map(|sample| sample * all).collect();
            for (sample, first) in rounds.iter().enumerate() {
                let seconds = table.update(*first, updates)?;
                if sample > 0 {
                    rates.push(all as f64 / seconds / 1e6);
                }
            }
            for first in &rounds {
                table.update(*first, updates)?;
            }
            let wrong = runtime.all_reduce(table.wrong()?, |a, b| a + b)?;
            if wrong > 0 {
                return Err(format!("{wrong} of {} words are wrong: updates were lost", table.words).into());
            }
            report.add(name, "rate", "M/s", rates);
            report.add(&format!("wrong words, {name}"), "count", "", vec![wrong as f64]);
            table.segment.detach()?;
        }
        Ok(if runtime.rank().0 == 0 { report.into_rows() } else { Vec::new() })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: each rank begins where its part of the sequence does: by powers as by single steps.
    #[test]
    fn powers_are_many_steps() {
        let mut number = 1;
        for place in 0..1000 {
            assert_eq!(number, number_at(place));
            number = after(number);
        }
        // In a field: the order of all numbers but zero divides 2^64 - 1.
        assert_eq!(product(number_at(1 << 40), number_at(5)), number_at((1 << 40) + 5));
        assert_eq!(number_at(63), 1 << 63);
    }
}
