//! Out-of-core C = A·B on NumPy files: SUMMA over tiles in tiered segments (vGASNet §IV.D).
//!
//! ```text
//! A.npy ─┐ load: every rank its tiles      compute: C(i,j) = Σₖ A(i,k)·B(k,j)      write: rank 0
//! B.npy ─┴───────────────▶ global memory ◀───────────────▶ private blocks ──▶ … ──▶ C.npy
//! ```
//!
//! * [`npy`], [`output`]: the files. Never a whole matrix in memory, never half a file under its name.
//! * [`plan`]: tiles, owners, places and order of work, as pure arithmetic.
//! * [`memory`]: the seam to the runtime; [`threads`] is its simple implementation.
//! * `load`, `compute`, [`verify`](GemmJob::verify): the phases. After each, the ranks agree whether it succeeded, so
//!   that a failure of one ends all.
//!
//! The order of calls: [`inspect`] (by the launcher too, before it starts anything), [`Plan::new`] for the size of
//! the segments, attach, [`run`].
//!
//! It is no linear algebra library: one product, no scaling, no transposition, f32 and f64.

mod compute;
pub mod demo;
pub mod error;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod header;
mod kernel;
mod load;
pub mod memory;
pub mod npy;
pub mod output;
pub mod plan;
pub mod progress;
pub mod reference;
pub mod summary;
#[cfg(test)]
mod tests;
pub mod threads;
mod verify;

pub use error::{GemmError, Result};
pub use kernel::Element;
pub use memory::{Buffer, GlobalMemory, MemoryResult, PendingGet};
pub use plan::{Limits, Plan, Problem};
pub use progress::{Phase, TerminalProgress};
pub use summary::Summary;

use npy::{Dtype, NpyMatrix, Order};
use output::NpyOutput;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::time::Instant;

/// Private memory of a rank for tiles, in bytes, unless told otherwise: the job may use 64 MiB a rank beyond the cache,
/// and the program, its threads' stacks and the runtime need the rest.
pub const MEMORY_BYTES: u64 = 48 << 20;

/// A product to make.
#[derive(Clone, Debug)]
pub struct GemmJob {
    /// The left factor, a .npy file that every rank can open.
    pub a: PathBuf,
    /// The right factor, likewise.
    pub b: PathBuf,
    /// The product's file, written by rank 0.
    pub output: PathBuf,
    /// Replace the output if it exists.
    pub force: bool,
    /// Throw the product away in the end: `output` is a folder of rank 0's, which takes it as a file without a name.
    /// With `verify`, all ranks must be on one machine.
    pub discard: bool,
    /// Order of the output; `None` for Fortran order if both factors have it, C order otherwise.
    pub order: Option<Order>,
    /// Check the output against the inputs afterwards.
    pub verify: bool,
    /// Private memory of a rank for tiles, in bytes; see [`MEMORY_BYTES`].
    pub memory_bytes: u64,
    /// Seed of the verification's random vectors. All ranks must have the same one.
    pub seed: u64,
}

impl GemmJob {
    /// A job with the defaults: nothing is overwritten, nothing verified.
    pub fn new(a: impl Into<PathBuf>, b: impl Into<PathBuf>, output: impl Into<PathBuf>) -> Self {
        Self {
            a: a.into(),
            b: b.into(),
            output: output.into(),
            force: false,
            discard: false,
            order: None,
            verify: false,
            memory_bytes: MEMORY_BYTES,
            seed: 0,
        }
    }

    /// Returns the job's resources on this global memory.
    pub fn limits(&self, memory: &dyn GlobalMemory) -> Limits {
        Limits {
            ranks: memory.ranks(),
            ranks_on_node: memory.ranks_on_node(),
            page_bytes: memory.page_bytes(),
            cache_bytes: memory.cache_bytes(),
            memory_bytes: self.memory_bytes,
        }
    }
}

/// Reads the inputs' headers and checks everything that can be checked before any work is done: the files, that they
/// can be multiplied, and that the output can be written.
///
/// # Errors
/// The first thing that is wrong, in one line.
pub fn inspect(job: &GemmJob) -> Result<Problem> {
    let (problem, a, b) = open(job)?;
    if !job.discard {
        check_output(job, [&a, &b])?;
    }
    Ok(problem)
}

/// Checks that the output can be written, and is none of the inputs.
fn check_output(job: &GemmJob, inputs: [&NpyMatrix; 2]) -> Result<()> {
    output::check(&job.output, job.force)?;
    match inputs.into_iter().find(|input| input.is(&job.output)) {
        None => Ok(()),
        Some(input) => {
            let (output, input) = (job.output.clone(), input.path().to_owned());
            Err(GemmError::OutputIsInput { output, input })
        }
    }
}

/// Opens the inputs.
fn open(job: &GemmJob) -> Result<(Problem, NpyMatrix, NpyMatrix)> {
    let (a, b) = (NpyMatrix::open(&job.a)?, NpyMatrix::open(&job.b)?);
    if a.dtype != b.dtype {
        return Err(GemmError::DtypeMismatch { a: a.dtype.name(), b: b.dtype.name() });
    }
    if a.shape.columns != b.shape.rows {
        return Err(GemmError::ShapesDoNotMultiply { a: a.shape, b: b.shape });
    }
    let order = job.order.unwrap_or(match (a.order, b.order) {
        (Order::Fortran, Order::Fortran) => Order::Fortran,
        _ => Order::C,
    });
    let problem = Problem {
        m: a.shape.rows,
        n: b.shape.columns,
        k: a.shape.columns,
        dtype: a.dtype,
        orders: [a.order, b.order, order],
    };
    // Half of the address range is left for tiles' padding. The vectors of `--verify` count, because nothing else grows with the
    // inner dimension of matrices without elements.
    if problem.bytes().saturating_add(problem.vector_bytes()) > i64::MAX as u64 / 2 {
        return Err(GemmError::TooLarge { a: a.shape, b: b.shape });
    }
    Ok((problem, a, b))
}

/// Makes the product. Every rank of the job must call it with the same job; every rank's segment must be as large as
/// the plan for [`GemmJob::limits`] says. When it returns, the output is complete under its name (or gone, as asked).
///
/// `report` is called often, on every rank.
///
/// # Errors
/// The rank that fails says why; the others give [`GemmError::Elsewhere`], or what the global memory says when a rank
/// is gone. No output appears then, except that one found wrong by `verify` stays to be looked at.
pub fn run(memory: &dyn GlobalMemory, job: &GemmJob, report: &progress::Report<'_>) -> Result<Summary> {
    let opened = open(job).and_then(|(problem, a, b)| {
        let plan = Plan::new(&problem, &job.limits(memory))?;
        let output = match memory.rank() {
            0 => {
                let [.., order] = problem.orders;
                let shape = problem.product_shape();
                Some(match job.discard {
                    true => NpyOutput::scratch(&job.output, problem.dtype, order, shape)?,
                    false => {
                        check_output(job, [&a, &b])?;
                        NpyOutput::create(&job.output, job.force, problem.dtype, order, shape)?
                    }
                })
            }
            _ => None,
        };
        Ok((plan, a, b, output))
    });
    let (plan, a, b, output) = agree(memory, opened)?;
    let run = Run { memory, job, plan: &plan, a: &a, b: &b, report };
    match plan.problem.dtype {
        Dtype::Float32 => run.all::<f32>(output),
        Dtype::Float64 => run.all::<f64>(output),
    }
}

/// State shared by all phases.
struct Run<'a> {
    memory: &'a dyn GlobalMemory,
    job: &'a GemmJob,
    plan: &'a Plan,
    a: &'a NpyMatrix,
    b: &'a NpyMatrix,
    report: &'a progress::Report<'a>,
}

impl Run<'_> {
    fn all<T: Element>(&self, output: Option<NpyOutput>) -> Result<Summary> {
        let Self { memory, plan, .. } = *self;
        let element = plan.problem.dtype.bytes();
        let owned: u64 = [plan::Operand::A, plan::Operand::B]
            .iter()
            .flat_map(|&operand| plan.groups(operand, memory.rank()))
            .map(|group| group.rectangle.len() * element)
            .sum();
        let (_, seconds_loading) = self.phase(Phase::Load, owned, |done| {
            let a = load::load(memory, plan, plan::Operand::A, self.a, done);
            agree(memory, a.and_then(|()| load::load(memory, plan, plan::Operand::B, self.b, done)))
        })?;
        let steps = plan.blocks(memory.rank()).len() as u64 * plan.tiles[2];
        let (work, seconds_computing) = self
            .phase(Phase::Compute, steps, |done| agree(memory, compute::compute::<T>(memory, plan, done)))?;
        let written = plan.problem.m * plan.problem.n * element;
        let (kept, seconds_writing) = self.phase(Phase::Write, written, |done| {
            let result = output.map_or(Ok(None), |output| {
                load::write_out(memory, plan, &output, done)?;
                match self.job.discard {
                    true => output.into_file().map(Some),
                    false => output.commit().map(|()| None),
                }
            });
            agree(memory, result)
        })?;
        let mut seconds_verifying = None;
        if self.job.verify {
            // Three passes in shares, and the closer look.
            let read = plan.problem.bytes() / memory.ranks() as u64;
            let (_, seconds) = self.phase(Phase::Verify, read, |done| {
                let path = &self.written(kept.as_ref())?;
                let c = agree(memory, NpyMatrix::open(path))?;
                verify::verify::<T>(memory, plan, [self.a, self.b, &c], path, self.job.seed, done)
            })?;
            seconds_verifying = Some(seconds);
        }
        let summary = Summary::gather(memory, plan, &work)?;
        let gflops = plan.problem.flops() / seconds_computing.max(1e-9) / 1e9;
        Ok(Summary {
            gflops,
            seconds_loading,
            seconds_computing,
            seconds_writing,
            seconds_verifying,
            ..summary
        })
    }

    /// Returns the path of the product: its name, or, without one, that of the descriptor that rank 0 keeps.
    fn written(&self, kept: Option<&File>) -> Result<PathBuf> {
        if !self.job.discard {
            return Ok(self.job.output.clone());
        }
        let own = kept.map(|file| [f64::from(std::process::id()), f64::from(file.as_raw_fd())]);
        let [process, descriptor] = own.unwrap_or([-1.0; 2]);
        let process = self.memory.all_reduce_max(process)?;
        let descriptor = self.memory.all_reduce_max(descriptor)?;
        Ok(format!("/proc/{process}/fd/{descriptor}").into())
    }

    /// Runs one phase, reporting its progress. `work` ends by agreeing with the other ranks. Gives the seconds until
    /// the last of them had finished.
    fn phase<R>(
        &self,
        phase: Phase,
        total: u64,
        work: impl FnOnce(&mut dyn FnMut(u64)) -> Result<R>,
    ) -> Result<(R, f64)> {
        let start = Instant::now();
        let mut sum = 0;
        (self.report)(phase, 0, total);
        let result = work(&mut |more| {
            sum += more;
            (self.report)(phase, sum.min(total), total);
        })?;
        let seconds = self.memory.all_reduce_max(start.elapsed().as_secs_f64())?;
        Ok((result, seconds))
    }
}

/// Ends a part of the work: an error of one rank becomes one of every rank. The rank that failed keeps its own.
fn agree<R>(memory: &dyn GlobalMemory, result: Result<R>) -> Result<R> {
    match result {
        Err(error) => {
            // If this fails too, the others are being told by the global memory.
            let _ = memory.all_reduce_max(memory.rank() as f64);
            Err(error)
        }
        Ok(value) => match memory.all_reduce_max(-1.0)? {
            failed if failed >= 0.0 => Err(GemmError::Elsewhere(failed as usize)),
            _ => Ok(value),
        },
    }
}
