//! The `vgas` command: reads the command line, runs it, and turns every failure into one line.
//!
//! Exit status: 0 done; 1 failed; 2 the command line or the configuration is wrong; `vgas run` and the other commands
//! that start a job end with the job's status; 77 a benchmark cannot run here.

#![deny(clippy::print_stdout, clippy::print_stderr)] // See `vgas_rma::say`.

mod cli;
mod commands;
mod failure;
mod hosts;
mod job;
mod launch;
mod limit;
mod neighbours;
mod output;
mod picture;
mod report;

use clap::Parser;
use failure::Failure;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

fn main() -> ExitCode {
    let result = cli::Cli::try_parse().map_err(Failure::from).and_then(|cli| {
        output::start_log()?;
        report_file_limits()?;
        commands::dispatch(&cli.command)
    });
    match result {
        Ok(status) => ExitCode::from(status),
        Err(failure) => failure.report(),
    }
}

/// Makes a file that grows beyond the limit of its size (`ulimit -f`) an error with a line that names it, where SIGXFSZ
/// would end the process without a word.
fn report_file_limits() -> Result<(), Failure> {
    let noticed = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGXFSZ, noticed)
        .map(drop)
        .map_err(|error| Failure::new(format!("cannot catch signals: {error}")))
}
