//! The product of two matrices whose tiles are owned objects: tasks make tiles of the result, and read copies of those that they need.
//! Beside it, the same on std.
//!
//! Run it: `cargo build --release --examples && target/release/vgas run -n 4 --nodes 2 -- target/release/examples/matrix --verify`

#[path = "../common/mod.rs"]
mod common;
mod numbers;
mod objects;
mod plain;

use clap::{Parser, ValueEnum};
use common::figures::Figures;
use common::{Outcome, Program, Progress, Shared};
use numbers::{Number, Plan, differs};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Multiplies two square matrices of owned objects.
#[derive(Debug, Parser)]
#[command(
    name = "matrix",
    after_help = "Examples:
  vgas run -n 4 --nodes 2 -- matrix --verify                     a second, and compared with the version on std, and with faer
  vgas run -n 2 --nodes 2 -- matrix --size 4096 --tile 256
  vgas run -n 2 --nodes 2 -- matrix --size 2048 --numbers i32 --levels 2 --verify   by Strassen's seven products
  vgas run -n 2 --cache 128MiB -- matrix --size 6144 --tile 256 --heap 2GiB   more than the cache
  matrix --plain --threads 2                                     the version on std, by itself"
)]
struct Arguments {
    #[command(flatten)]
    shared: Shared,
    /// Rows and columns of the matrices: whole tiles.
    #[arg(long, value_name = "COUNT", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=1 << 16))]
    size: u32,
    /// Rows and columns of a tile.
    #[arg(long, value_name = "COUNT", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=4096))]
    tile: u32,
    /// Type of the elements.
    #[arg(long, value_enum, default_value = "f64")]
    numbers: Numbers,
    /// Number of Strassen levels: matrices are cut into four, and seven products are made instead of eight.
    #[arg(long, value_name = "COUNT", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=6))]
    levels: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Numbers {
    F64,
    I32,
}

impl Arguments {
    fn plan(&self, ranks: u32) -> Plan {
        let workers = ranks * self.shared.threads;
        Plan { size: self.size, tile: self.tile, levels: self.levels, seed: self.shared.seed, workers, ranks }
    }

    fn progress(&self) -> Progress {
        Progress::new("products", 7u64.pow(self.levels))
    }

    fn plain<T: Number>(&self, plan: &Plan) -> Outcome<(plain::Matrix<T>, Duration)> {
        let (a, b) = (plain::make(plan, plan.seed)?, plain::make(plan, plan.seed + 1)?);
        let began = Instant::now();
        let product = plain::multiply(plan, a, b, plan.levels, &mut self.progress())?;
        Ok((product, began.elapsed()))
    }

    fn objects<T: Number>(&self, ranks: u32, figures: &mut Figures) -> Outcome {
        let plan = self.plan(ranks);
        let (a, b) = (objects::make::<T>(&plan, plan.seed)?, objects::make(&plan, plan.seed + 1)?);
        let began = Instant::now();
        let product = objects::multiply(&plan, a, b, plan.levels, &mut self.progress())?;
        self.tell(began.elapsed(), figures)?;
        if self.shared.verify {
            if let Some(why) = differs(&plan, |row, column| product.at(plan.tile, row, column)) {
                return Err(format!("the product on objects is wrong: {why}").into());
            }
            let (plain, took) = self.plain::<T>(&plan)?;
            let wrong =
                product.tiles.iter().zip(&plain.tiles).position(|(found, right)| found[..] != right[..]);
            if let Some(at) = wrong {
                return Err(format!("tile {at} of the product differs from that on std").into());
            }
            vgas::print(format_args!(
                "verified; {:.3} s on std with {} threads\n",
                took.as_secs_f64(),
                plan.workers
            ))?;
        }
        Ok(())
    }

    fn tell(&self, took: Duration, figures: &mut Figures) -> Outcome {
        let Self { size, tile, levels, .. } = *self;
        let (seconds, numbers) = (took.as_secs_f64(), format!("{:?}", self.numbers).to_lowercase());
        // As many operations as the definition has, also where Strassen has fewer.
        let rate = 2.0 * f64::from(size).powi(3) / seconds / 1e9;
        vgas::print(format_args!(
            "product of {size} by {size} {numbers} in {seconds:.3} s: {rate:.1} billion operations a second\n"
        ))?;
        figures.hold("size", size).hold("tile", tile).hold("levels", levels).hold("numbers", numbers);
        figures.add("product", "time", "s", &[seconds]);
        figures.add("product", "rate", "1e9/s", &[rate]);
        Ok(())
    }
}

impl Program for Arguments {
    const NAME: &'static str = "matrix";

    fn shared(&self) -> &Shared {
        &self.shared
    }

    fn check(&self) -> Result<(), String> {
        let (size, tile) = (self.size, self.tile);
        if !size.is_multiple_of(tile) {
            return Err(format!("a matrix of {size} rows is not of whole tiles of {tile}"));
        }
        if !(size / tile).is_multiple_of(1 << self.levels) {
            return Err(format!(
                "a matrix of {} tiles in a row cannot be cut into halves {} times",
                size / tile,
                self.levels
            ));
        }
        Ok(())
    }

    fn on_objects(&self, ranks: u32, figures: &mut Figures) -> Outcome {
        match self.numbers {
            Numbers::F64 => self.objects::<f64>(ranks, figures),
            Numbers::I32 => self.objects::<i32>(ranks, figures),
        }
    }

    fn on_plain(&self, figures: &mut Figures) -> Outcome {
        let plan = self.plan(1);
        let took = match self.numbers {
            Numbers::F64 => self.plain::<f64>(&plan)?.1,
            Numbers::I32 => self.plain::<i32>(&plan)?.1,
        };
        self.tell(took, figures)
    }
}

/// The program.
pub fn main() -> ExitCode {
    common::main::<Arguments>()
}
