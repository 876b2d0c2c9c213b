//! Implementation of each command. One file a command; the small ones are here.

mod bench;
mod config;
mod gemm;
mod generate;
mod objects;
mod segments;

pub use bench::{figure, rows_of_file};

use crate::cli::{self, Command};
use crate::failure::Failure;
use crate::job::{self, Job};
use crate::{launch, neighbours, output};

/// Runs the command and returns the exit status.
pub fn dispatch(command: &Command) -> Result<u8, Failure> {
    match command {
        Command::Run(run) => start(run),
        Command::Node(_) => launch::node(),
        Command::Neighbour(neighbour) => neighbours::count(neighbour.parent),
        Command::Gemm(gemm) => gemm::gemm(gemm),
        Command::Demo(demo) => gemm::demo(demo),
        Command::Bench(bench) => bench::bench(bench),
        Command::Info(info) => survey(info),
        Command::Segments(segments) => segments::segments(&segments.action),
        Command::Objects(objects) => objects::objects(objects),
        Command::Config(config) => config::config(config),
        Command::Completions(completions) => generate::completions(completions.shell),
        Command::Man(man) => generate::man(man.directory.as_deref()),
    }
}

fn start(run: &cli::Run) -> Result<u8, Failure> {
    let Some((program, arguments)) = run.program.split_first() else {
        return Err(Failure::usage("no program to run"));
    };
    let config = job::config(&run.config)?;
    let place = job::place_or_allocation(&run.place, &run.config)?;
    let mut job = Job::new(program.clone(), arguments.into(), run.ranks, &place, config)?;
    if run.own_nodes {
        // Daemons need not begin in this folder.
        let path = std::path::absolute(program).ok().filter(|path| path.exists());
        let program = path.map_or_else(|| program.clone(), Into::into);
        job.daemon = vec![program, vgas::service::NODE_ARGUMENT.into()];
    }
    launch::run(job)
}

fn survey(info: &cli::Info) -> Result<u8, Failure> {
    let report = vgas::info::survey(job::config(&info.config)?.settings());
    if info.json { output::print_json(&report) } else { output::print(&report.to_string()) }
}
