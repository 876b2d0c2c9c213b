//! Benchmarks that start jobs of their own, because what they vary or measure is a whole job: `vgas run` of this very
//! command, whose ranks come back to the same benchmark.

use super::job::Result;
use crate::registry::{CANNOT_RUN, CannotRun, Options};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use vgas::say;

/// Returns true if this process is a rank of such a job.
pub(super) fn in_job() -> bool {
    std::env::var_os("VGAS_CONTROL_FD").is_some()
}

/// Runs `vgas run FLAGS -- PROGRAM` with the user's settings to its end, and gives the time that took and what was printed.
/// If it fails, its first line is the error.
pub(super) fn run(options: &Options, flags: &[&str], program: &[&str]) -> Result<(Duration, String)> {
    let this = std::env::current_exe()?;
    let mut command = Command::new(&this);
    // The output is parsed, so no rank's number may stand before it.
    command.arg("run").args(flags).args(["--set", "run.label=off"]);
    command.args(options.given_settings().map(|(name, value)| format!("--set={name}={value}"))).arg("--");
    match program {
        // This benchmark, by the name of it.
        ["bench", ..] => command.arg(&this).args(program),
        _ => command.args(program),
    };
    command.stdin(Stdio::null());
    let start = Instant::now();
    let output = command.output()?;
    let time = start.elapsed();
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let reason =
            said.lines().find_map(|line| line.strip_prefix("vgas: ")).unwrap_or("it does not say why");
        if output.status.code() == Some(i32::from(CANNOT_RUN)) {
            return Err(CannotRun(reason.to_owned()).into());
        }
        return Err(format!("a job of its own failed: {reason}").into());
    }
    say::text(said);
    Ok((time, String::from_utf8_lossy(&output.stdout).into_owned()))
}

/// The numbers that the ranks printed behind this word.
pub(super) fn numbers(printed: &str, word: &str) -> Vec<f64> {
    let lines = printed.lines().filter_map(|line| line.strip_prefix(word));
    lines.filter_map(|number| number.trim().parse().ok()).collect()
}

/// Those numbers, of which there must be some.
pub(super) fn told(numbers: Vec<f64>) -> Result<Vec<f64>> {
    if numbers.is_empty() { Err("a job told nothing".into()) } else { Ok(numbers) }
}
