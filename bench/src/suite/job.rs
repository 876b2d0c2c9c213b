//! A benchmark as part of a job: joining, failing together, taking turns.

use crate::registry::{BenchmarkError, CANNOT_RUN, CannotRun, Row};
use vgas::{Builder, Runtime};
use vgas_objects::{HeapOptions, Objects};

pub(super) type Result<T> = std::result::Result<T, BenchmarkError>;

/// Joins the job, measures on every rank, leaves. An error of one rank ends the job with its text.
pub(super) fn on_every_rank(
    builder: Builder,
    measure: impl FnOnce(&Runtime) -> Result<Vec<Row>>,
) -> Result<Vec<Row>> {
    let runtime = builder.init()?;
    match measure(&runtime) {
        Ok(rows) => {
            runtime.finalize()?;
            // All ranks may have measured; one speaks.
            Ok(rows)
        }
        Err(error) => {
            let status = if error.is::<CannotRun>() { CANNOT_RUN } else { 1 };
            runtime.abort(&error.to_string(), status)?;
            Ok(Vec::new())
        }
    }
}

/// The same with a heap of objects, of a job that was joined.
pub(super) fn with_objects(
    runtime: Runtime,
    heap: &HeapOptions,
    measure: impl FnOnce(&Objects) -> Result<Vec<Row>>,
) -> Result<Vec<Row>> {
    let objects = Objects::attach(&runtime, heap)?;
    match measure(&objects) {
        Ok(rows) => {
            objects.finalize()?;
            Ok(rows)
        }
        Err(error) => {
            objects.runtime().abort(&error.to_string(), 1)?;
            Ok(Vec::new())
        }
    }
}

/// Refuses a job that is too small for the benchmark.
pub(super) fn need(runtime: &Runtime, ranks: u32, nodes: u32) -> Result<()> {
    if runtime.ranks() < ranks || runtime.nodes() < nodes {
        return Err(
            format!("needs at least {ranks} ranks on {nodes} nodes (-n {ranks} --nodes {nodes})").into()
        );
    }
    Ok(())
}

/// Runs this thread on one core from now on.
pub(super) fn bind_to_core(core: usize) -> Result<()> {
    let cores = std::thread::available_parallelism()?.get();
    let mut set = rustix::thread::CpuSet::new();
    set.set(core % cores);
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

/// Bytes that no device can compress, the same in every run.
pub(super) fn noise(bytes: usize, seed: u64) -> Vec<u8> {
    use rand_chacha::rand_core::{Rng, SeedableRng};
    let mut noise = vec![0; bytes];
    rand_chacha::ChaCha8Rng::seed_from_u64(seed).fill_bytes(&mut noise);
    noise
}
