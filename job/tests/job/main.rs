//! Start-up and end of jobs, with real processes.
//!
//! Goal: every promise of `vgas_job`, above all that whatever is killed, nothing stays behind, and the launcher
//! says in one line what happened. Method: this binary starts itself as launcher, node daemon and rank (so it has no
//! libtest harness); every process of a test carries a unique variable in its environment, by which `/proc` tells
//! afterwards whether one is left. Without the lifeline, for example, `a_killed_daemon_takes_everything_with_it` finds
//! the `sleep` that a rank had started.

mod bad_luck;
mod good_jobs;
mod harness;
mod managed;
mod programs;
mod remote;
mod started;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.split_first() {
        Some((role, rest)) if role == "launch" => harness::launch(rest),
        Some((role, _)) if role == "node" => harness::node(),
        Some((role, rest)) if role == "rank" => programs::rank(rest),
        _ => harness::run_tests(
            &arguments,
            &[good_jobs::TESTS, bad_luck::TESTS, remote::TESTS, started::TESTS, managed::TESTS].concat(),
        ),
    }
}
