//! Benchmarks that start jobs of their own, because what they vary or measure is a whole job: `vgas run` of this very
//! command, whose ranks come back to the same benchmark.

use super::job::Result;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Whether this process is a rank of such a job.
pub(super) fn in_job() -> bool {
    std::env::var_os("VGAS_CONTROL_FD").is_some()
}

/// Runs `vgas run FLAGS -- PROGRAM` to its end and gives the time that took and what was printed.
pub(super) fn run(flags: &[&str], program: &[&str]) -> Result<(Duration, String)> {
    let this = std::env::current_exe()?;
    let mut command = Command::new(&this);
    command.arg("run").args(flags).arg("--");
    match program {
        // This benchmark, by the name of it.
        ["bench", ..] => command.arg(&this).args(program),
        _ => command.args(program),
    };
    command.stdin(Stdio::null()).stderr(Stdio::inherit());
    let start = Instant::now();
    let output = command.output()?;
    let time = start.elapsed();
    if !output.status.success() {
        return Err(format!("a job of {program:?} ended with {}", output.status).into());
    }
    Ok((time, String::from_utf8_lossy(&output.stdout).into_owned()))
}

/// The numbers that the ranks printed behind this word.
pub(super) fn numbers(printed: &str, word: &str) -> Vec<f64> {
    let lines = printed.lines().filter_map(|line| line.strip_prefix(word));
    lines.filter_map(|number| number.trim().parse().ok()).collect()
}
