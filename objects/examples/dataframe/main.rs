//! Tables of owned objects: the ten group-by questions of the h2oai benchmark, on files of comma-separated values or generated rows,
//! and its five joins. A table is a row of boxes of chunks, a chunk has a row for each column; tasks look at chunks where they are, and
//! what they gather travels by parts. All of it may be larger than memory. Beside it, the same on std.
//!
//! Run it: `cargo build --release --examples && target/release/vgas run -n 4 --nodes 2 -- target/release/examples/dataframe --verify`

#[path = "../common/mod.rs"]
mod common;
mod csv;
mod joins;
mod objects;
mod plain;
mod queries;
mod rows;

use clap::Parser;
use common::figures::Figures;
use common::{Outcome, Program, Progress, Shared};
use joins::{J1, J2, J3, J4, J5, Join, Paired};
use queries::{Answered, Q1, Q2, Q3, Q4, Q5, Q6, Q7, Q8, Q9, Q10, Query};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;
use vgas::Rank;
use vgas_objects::{Portable, Shareable};

/// Rows of a chunk that is generated.
const CHUNK_ROWS: u64 = 1 << 16;

/// The group-by questions and joins of the h2oai benchmark on tables of owned objects.
#[derive(Debug, Parser)]
#[command(
    name = "dataframe",
    after_help = "Examples:
  vgas run -n 4 --nodes 2 -- dataframe --verify                     a second, and compared with the version on std
  vgas run -n 2 --nodes 2 -- dataframe --rows 10000000 --groups 100
  vgas run -n 2 --nodes 2 -- dataframe --joins --rows 1000000
  vgas run -n 2 --cache 128MiB -- dataframe --rows 8000000 --heap 4GiB   more than the cache
  dataframe --write-csv G1_1e6_1e2.csv --rows 1000000 --groups 100
  vgas run -n 2 --nodes 2 -- dataframe --csv G1_1e6_1e2.csv --verify
  dataframe --plain --threads 2                                     the version on std, by itself

A file has the columns id1,id2,id3,id4,id5,id6,v1,v2,v3, as those that the benchmark's generator writes (G1). All nodes must see it."
)]
struct Arguments {
    #[command(flatten)]
    shared: Shared,
    /// Rows that are generated.
    #[arg(long, value_name = "COUNT", default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(1..=1 << 31))]
    rows: u64,
    /// Different values of id1, id2, id4 and id5; of id3 and id6, there are rows / groups.
    #[arg(long, value_name = "COUNT", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1 << 31))]
    groups: u64,
    /// Read the table from this file instead.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["rows", "groups", "joins"])]
    csv: Option<PathBuf>,
    /// Write the generated table to this file, and do nothing else; by itself, without `vgas run`.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["csv", "joins", "verify"])]
    write_csv: Option<PathBuf>,
    /// Ask only these questions, such as 1,3,10.
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=10))]
    questions: Vec<u32>,
    /// Join tables instead, of --rows rows on the left.
    #[arg(long, conflicts_with = "questions")]
    joins: bool,
    /// Ask each question so often.
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
}

/// Parameters of the generated rows.
#[derive(Clone, Copy, Debug, Portable, Shareable)]
struct Source {
    seed: u64,
    rows: u64,
    groups: u64,
    /// Rows of the table that is made now.
    of_table: u64,
}

impl Source {
    /// The source of another table: the left one of the joins is the first, the right ones follow.
    pub fn of_table(&self, table: usize) -> Self {
        let right = table.checked_sub(1).map(|right| rows::right_rows(self.rows)[right]);
        Self { of_table: right.unwrap_or(self.rows), ..*self }
    }

    /// From which row to which each chunk is.
    pub fn chunks(&self) -> impl Iterator<Item = (u64, u64)> + use<> {
        let rows = self.of_table;
        (0..rows).step_by(CHUNK_ROWS as usize).map(move |from| (from, (from + CHUNK_ROWS).min(rows)))
    }
}

/// The worker threads, of all ranks in turn.
#[derive(Clone, Copy, Debug, Portable, Shareable)]
struct Workers {
    count: usize,
    /// Parts that groups are cut into by their keys, so that each part's fit into memory.
    parts: usize,
    ranks: u32,
}

impl Workers {
    /// The rank of a worker.
    pub fn place(&self, number: usize) -> Rank {
        Rank(number as u32 % self.ranks)
    }

    /// Returns a worker's share of the items.
    pub fn share<I: Iterator>(&self, number: usize, of: I) -> impl Iterator<Item = I::Item> + use<I> {
        of.skip(number).step_by(self.count)
    }
}

/// A version of the program.
trait Version {
    type Frame;
    type JoinFrame;

    fn frame(&self, of: &Arguments, workers: &Workers) -> Outcome<Self::Frame>;
    fn group_by<Q: Query>(&self, frame: &Self::Frame, workers: &Workers) -> Outcome<Answered>;
    fn table(&self, source: &Source, workers: &Workers, table: usize) -> Outcome<Self::JoinFrame>;
    fn join<J: Join>(
        &self,
        left: &Self::JoinFrame,
        right: &Self::JoinFrame,
        workers: &Workers,
    ) -> Outcome<Paired>;
}

macro_rules! version {
    ($name:ident, $module:ident) => {
        struct $name;
        impl Version for $name {
            type Frame = $module::Frame;
            type JoinFrame = $module::JoinFrame;

            fn frame(&self, of: &Arguments, workers: &Workers) -> Outcome<Self::Frame> {
                match &of.csv {
                    Some(path) => $module::read(path, workers),
                    None => $module::generate(&of.source(), workers),
                }
            }

            fn group_by<Q: Query>(&self, frame: &Self::Frame, workers: &Workers) -> Outcome<Answered> {
                $module::group_by::<Q>(frame, workers)
            }

            fn table(&self, source: &Source, workers: &Workers, table: usize) -> Outcome<Self::JoinFrame> {
                $module::generate_table(source, workers, table)
            }

            fn join<J: Join>(
                &self,
                left: &Self::JoinFrame,
                right: &Self::JoinFrame,
                workers: &Workers,
            ) -> Outcome<Paired> {
                $module::join::<J>(left, right, workers)
            }
        }
    };
}

version!(OnObjects, objects);
version!(OnStd, plain);

/// Summary of a query's or a join's result, for comparison and output.
#[derive(Clone, Debug, PartialEq)]
struct Summary {
    name: String,
    count: u64,
    digest: u64,
    sums: Vec<f64>,
}

/// An answer, and the seconds that it took, each time.
type Timed = (Summary, Vec<f64>);

impl Arguments {
    fn source(&self) -> Source {
        Source { seed: self.shared.seed, rows: self.rows, groups: self.groups, of_table: self.rows }
    }

    fn workers(&self, ranks: u32) -> Outcome<Workers> {
        let count = (ranks * self.shared.threads) as usize;
        // For a file: as many rows as lines of 50 bytes.
        let rows = match &self.csv {
            Some(path) => std::fs::metadata(path).map_or(0, |file| file.len() / 50),
            None => self.rows,
        };
        Ok(Workers { count, parts: count * rows.div_ceil(1 << 22).max(1) as usize, ranks })
    }

    /// The same, so often.
    fn repeated(&self, name: &str, mut once: impl FnMut() -> Outcome<Summary>) -> Outcome<Timed> {
        let mut seconds = Vec::new();
        loop {
            let began = Instant::now();
            let told = once()?;
            seconds.push(began.elapsed().as_secs_f64());
            if seconds.len() == self.repeat as usize {
                return Ok((Summary { name: name.into(), ..told }, seconds));
            }
        }
    }

    fn all<V: Version>(&self, version: &V, workers: &Workers) -> Outcome<Vec<Timed>> {
        if self.joins { self.all_joins(version, workers) } else { self.all_questions(version, workers) }
    }

    fn all_questions<V: Version>(&self, version: &V, workers: &Workers) -> Outcome<Vec<Timed>> {
        let mut progress = Progress::new("questions", 11);
        let frame = version.frame(self, workers)?;
        progress.step();
        let mut all = Vec::new();
        macro_rules! ask {
            ($($number:literal: $query:ident, $name:literal;)*) => { $(
                if self.questions.is_empty() || self.questions.contains(&$number) {
                    all.push(self.repeated(concat!("Q", $number, ": ", $name), || {
                        let Answered { groups, digest, sums } = version.group_by::<$query>(&frame, workers)?;
                        Ok(Summary { name: String::new(), count: groups, digest, sums: sums.to_vec() })
                    })?);
                    progress.step();
                }
            )* };
        }
        ask! {
            1: Q1, "sum v1 by id1";
            2: Q2, "sum v1 by id1:id2";
            3: Q3, "sum v1, mean v3 by id3";
            4: Q4, "mean v1:v3 by id4";
            5: Q5, "sum v1:v3 by id6";
            6: Q6, "median v3, sd v3 by id4:id5";
            7: Q7, "max v1 - min v2 by id3";
            8: Q8, "largest two v3 by id6";
            9: Q9, "regression v1 v2 by id2:id4";
            10: Q10, "sum v3, count by id1:id6";
        }
        Ok(all)
    }

    fn all_joins<V: Version>(&self, version: &V, workers: &Workers) -> Outcome<Vec<Timed>> {
        let mut progress = Progress::new("joins", 9);
        let source = self.source();
        let mut tables = Vec::new();
        for table in 0..4 {
            tables.push(version.table(&source, workers, table)?);
            progress.step();
        }
        let mut all = Vec::new();
        macro_rules! join {
            ($($join:ident, $name:literal;)*) => { $(
                all.push(self.repeated(concat!(stringify!($join), ": ", $name), || {
                    let Paired { rows, digest, sums } = version.join::<$join>(&tables[0], &tables[$join::RIGHT], workers)?;
                    Ok(Summary { name: String::new(), count: rows, digest, sums: sums.to_vec() })
                })?);
                progress.step();
            )* };
        }
        join! {
            J1, "small inner on int";
            J2, "medium inner on int";
            J3, "medium left on int";
            J4, "medium inner on text";
            J5, "big inner on int";
        }
        Ok(all)
    }

    fn tell(&self, all: &[Timed], figures: &mut Figures) -> Outcome {
        match &self.csv {
            Some(path) => figures.hold("csv", path.display().to_string()),
            None => {
                figures.hold("rows", self.rows).hold("groups", self.groups).hold("seed", self.shared.seed)
            }
        };
        for (told, seconds) in all {
            let least = seconds.iter().copied().fold(f64::INFINITY, f64::min);
            let sums = told.sums.iter().map(|sum| format!("{sum:.3}")).collect::<Vec<_>>().join(", ");
            vgas::print(format_args!(
                "{:32} {least:8.3} s {:>10} rows; sums {sums}\n",
                told.name, told.count
            ))?;
            figures.add(&told.name, "time", "s", seconds);
        }
        let total: f64 = all.iter().flat_map(|(_, seconds)| seconds).sum();
        figures.add(if self.joins { "all joins" } else { "all questions" }, "time", "s", &[total]);
        vgas::print(format_args!("{:32} {total:8.3} s\n", "all")).map_err(Into::into)
    }
}

impl Program for Arguments {
    const NAME: &'static str = "dataframe";

    fn shared(&self) -> &Shared {
        &self.shared
    }

    fn check(&self) -> Result<(), String> {
        if self.groups > self.rows {
            return Err(format!("{} rows have no {} groups", self.rows, self.groups));
        }
        Ok(())
    }

    fn alone(&self) -> Option<Outcome> {
        let path = self.write_csv.as_ref()?;
        Some(csv::write(path, self.shared.seed, self.rows, self.groups))
    }

    fn on_objects(&self, ranks: u32, figures: &mut Figures) -> Outcome {
        let workers = self.workers(ranks)?;
        let found = self.all(&OnObjects, &workers)?;
        self.tell(&found, figures)?;
        if self.shared.verify {
            let plain = self.all(&OnStd, &workers)?;
            for ((found, _), (right, _)) in found.iter().zip(&plain) {
                if found != right {
                    return Err(
                        format!("{} differs: {found:?} on objects, {right:?} on std", found.name).into()
                    );
                }
            }
            let total: f64 = plain.iter().flat_map(|(_, seconds)| seconds).sum();
            vgas::print(format_args!("verified; {total:.3} s on std with {} threads\n", workers.count))?;
        }
        Ok(())
    }

    fn on_plain(&self, figures: &mut Figures) -> Outcome {
        let found = self.all(&OnStd, &self.workers(1)?)?;
        self.tell(&found, figures)
    }
}

/// The program.
pub fn main() -> ExitCode {
    common::main::<Arguments>()
}
