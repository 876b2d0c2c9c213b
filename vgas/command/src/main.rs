//! The `vgas` command: reads the command line, does what it says, and turns every failure into one line.
//!
//! Exit status: 0 done; 1 failed; 2 the command line or the configuration is wrong; `vgas run` and the other commands
//! that start a job end with the job's status.

mod cli;
mod commands;
mod failure;
mod hosts;
mod job;
mod launch;
mod output;

use clap::Parser;
use failure::Failure;
use std::process::ExitCode;

fn main() -> ExitCode {
    let result = cli::Cli::try_parse().map_err(Failure::from).and_then(|cli| {
        output::start_log()?;
        commands::dispatch(&cli.command)
    });
    match result {
        Ok(status) => ExitCode::from(status),
        Err(failure) => failure.report(),
    }
}
