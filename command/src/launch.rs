//! The only place of the command that touches the runtime: starting a job, being a node of one, being a rank of one.

use crate::cli::{Demo, Gemm};
use crate::failure::Failure;
use crate::job::Job;
use crate::output;
use std::ffi::OsString;
use std::fs::File;
use std::path::Path;
use vgas::config::{Auto, Size};
use vgas::info::Machine;
use vgas::launch::{self, JobRequest};
use vgas::service::node_main_with;
use vgas::{Runtime, say};
use vgas_bench::gemm::npy::{Dtype, Order, Shape2};
use vgas_bench::gemm::output::path_of;
use vgas_bench::gemm::{self, GemmError, GemmJob, Plan, Summary, TerminalProgress};
use vgas_bench::global::TieredMemory;

/// Returns true if this process was started as a rank of a job: by `vgas run` or another command of ours, or
/// as one of several by `srun`, `mpirun` or the like.
pub fn in_job() -> bool {
    std::env::var_os("VGAS_CONTROL_FD").is_some() || vgas::started::is_one_of_several()
}

/// Runs a job to its end and gives its status. The cache gets its size here, from the memory of this machine, since
/// all processes of the job must agree on it.
pub fn run(job: Job) -> Result<u8, Failure> {
    let mut settings = job.config.settings().clone();
    let nodes_here = if job.hosts.is_empty() { job.nodes } else { 1 };
    let of_nodes =
        settings.cluster.memory.value().map_or(u64::MAX, Size::bytes).saturating_mul(nodes_here.into());
    let memory_bytes = Machine::find().usable_memory_bytes().min(of_nodes);
    let cache_bytes = settings.cache.size_bytes(memory_bytes, nodes_here);
    if job.hosts.is_empty() {
        check_memory(cache_bytes, nodes_here, memory_bytes)?;
    }
    settings.cache.size = Auto::Is(Size::of_bytes(cache_bytes));
    let own_nodes = !job.daemon.is_empty();
    let request = JobRequest {
        program: job.program,
        name: None,
        arguments: job.arguments,
        ranks: job.ranks,
        nodes: job.nodes,
        hosts: job.hosts,
        allocation: job.allocation,
        environment: Vec::new(),
        daemon: job.daemon,
        settings,
    };
    let status = launch::run(request).map_err(Failure::new)?;
    if let Some(message) = &status.message {
        say::line(format_args!("vgas: {message}"));
        if own_nodes && message.starts_with("the daemon of ") {
            say::line("vgas: with --own-nodes the program must begin with vgas::service::serve_node");
        }
    }
    Ok(status.code)
}

/// Refuses caches that this machine has no memory for: a frame that was used stays in memory, so that the job would not run
/// slowly but be killed, and others with it.
fn check_memory(cache_bytes: u64, nodes: u32, memory_bytes: u64) -> Result<(), Failure> {
    if cache_bytes.saturating_mul(u64::from(nodes)) <= memory_bytes {
        return Ok(());
    }
    let hint = match (memory_bytes / u64::from(nodes)) >> 20 {
        // With less, caching is for tests.
        0 | 1 => "start fewer nodes".into(),
        most => {
            let most = Size::of_bytes(most << 20);
            format!("set cache.size to less than {most}: the rest is needed, too")
        }
    };
    let caches = if nodes == 1 { "a cache".into() } else { format!("{nodes} caches") };
    let what = format!(
        "{caches} of {} do not fit into the {} of memory that this job may use",
        Size::of_bytes(cache_bytes),
        Size::of_bytes(memory_bytes >> 20 << 20),
    );
    Err(Failure::usage(what).hint(hint))
}

/// Is the daemon of a node, until the job ends.
pub fn node() -> Result<u8, Failure> {
    node_main_with(vgas_objects::services()).map_err(Failure::new)
}

/// Returns the job of `vgas gemm`.
fn product(gemm: &Gemm) -> GemmJob {
    let mut job = GemmJob::new(&gemm.a, &gemm.b, &gemm.output);
    job.force = gemm.force;
    job.verify = gemm.verify;
    job.discard = gemm.discard;
    job
}

/// Refuses a product that cannot be made, before a job is started for it.
pub fn check_gemm(gemm: &Gemm) -> Result<(), Failure> {
    gemm::inspect(&product(gemm)).map(drop).map_err(Failure::new)
}

/// Is one rank of `vgas gemm`.
pub fn gemm(gemm: &Gemm) -> Result<u8, Failure> {
    let runtime = Runtime::init().map_err(Failure::new)?;
    let multiplied = multiply(&runtime, &product(gemm));
    end(runtime, multiplied, gemm.json)
}

/// Runs one rank of a demo on several hosts: makes the matrices, as all others do, in files of its own.
pub fn demo_rank(demo: &Demo) -> Result<u8, Failure> {
    let runtime = Runtime::init().map_err(Failure::new)?;
    let folder = runtime.settings().nvm.directory_path();
    let multiplied = matrices(demo, &folder).and_then(|held| {
        let [a, b] = held.each_ref().map(path_of);
        let mut job = GemmJob::new(a, b, &folder);
        (job.verify, job.discard) = (true, true);
        multiply(&runtime, &job)
    });
    end(runtime, multiplied, demo.json)
}

/// Says how a product has ended, and ends.
fn end(runtime: Runtime, multiplied: Result<Summary, GemmError>, json: bool) -> Result<u8, Failure> {
    match multiplied {
        Ok(summary) => {
            if runtime.rank().0 == 0 {
                let printed = match json {
                    true => output::print_json(&summary),
                    false => output::print(&format!("{summary}\n")),
                };
                if let Err(failure) = printed {
                    let _ = runtime.abort(failure.message(), 1); // says it, once for the job
                    return Ok(1);
                }
            }
            runtime.finalize().map_err(Failure::new)?;
            Ok(0)
        }
        // Another rank says why.
        Err(GemmError::Elsewhere(_)) => Ok(1),
        Err(error) => {
            // One line from one process, then the end of all.
            let _ = runtime.abort(&error.to_string(), 1);
            Ok(1)
        }
    }
}

fn multiply(runtime: &Runtime, job: &GemmJob) -> Result<Summary, GemmError> {
    let mut memory = TieredMemory::new(runtime);
    let problem = gemm::inspect(job)?;
    let plan = Plan::new(&problem, &job.limits(&memory))?;
    memory.attach(plan.segment_bytes()).map_err(|error| GemmError::Memory(error.into()))?;
    let progress = TerminalProgress::new(runtime.rank().0 as usize);
    gemm::run(&memory, job, &|phase, done, total| progress.report(phase, done, total))
}

/// The matrices of a demo, in files without a name, which vanish with this process however it ends.
fn matrices(demo: &Demo, folder: &Path) -> Result<[File; 2], GemmError> {
    let shape = Shape2 { rows: u64::from(demo.order), columns: u64::from(demo.order) };
    let random = |seed| gemm::demo::scratch_random(folder, Dtype::Float64, Order::C, shape, seed);
    Ok([random(1)?, random(2)?])
}

/// Runs the job of `vgas demo`.
///
/// On this machine, the ranks open its matrices through this process's descriptors, and the product through that of the rank that writes
/// it. On other hosts each rank makes them.
pub fn demo(demo: &Demo, job: Job) -> Result<u8, Failure> {
    if !job.hosts.is_empty() {
        return run(job);
    }
    let folder = job.config.settings().nvm.directory_path();
    let held = matrices(demo, &folder).map_err(Failure::new)?;
    let mut arguments: Vec<OsString> = vec!["gemm".into()];
    arguments.extend(held.iter().map(|file| path_of(file).into()));
    arguments.extend(["--verify".into(), "--discard".into(), "-o".into(), folder.into()]);
    if demo.json {
        arguments.push("--json".into());
    }
    run(Job { arguments, ..job })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fitting caches pass, one byte more is refused; the numbers are readable.
    #[test]
    fn caches_beyond_the_memory_are_refused() {
        assert!(check_memory(4 << 30, 2, 8 << 30).is_ok());
        let error = check_memory((4 << 30) + 1, 2, 8 << 30).unwrap_err().text();
        assert!(error.starts_with("2 caches of ") && error.contains("less than 4GiB"), "{error}");
        assert!(check_memory(u64::MAX, 4, 8 << 30).is_err());
        let error = check_memory(1 << 20, 99_999, 8 << 30).unwrap_err().text();
        assert!(error.starts_with("99999 caches of 1MiB ") && error.contains("fewer nodes"), "{error}");
    }
}
