//! `vgas bench --memory`: a benchmark, with all of its processes, in a control group of its own whose memory is limited. The group is made
//! before, and removed however the benchmark ends.
//!
//! This process stays outside: a copy of it joins the group and measures. Caches of files count, shared memory counts; swap is not taken.

use crate::cli::Bench;
use crate::failure::Failure;
use crate::output;
use crate::report::watched::{self, End, Signals};
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use vgas::config::{Size, Value};
use vgas::launch::Group;
use vgas::say;
use vgas_bench::registry::CannotRun;

/// A size, as settings have them.
pub fn size(text: &str) -> Result<u64, String> {
    Size::parse(text).map(Size::bytes).map_err(|error| format!("it {error}: write {}", Size::forms()))
}

/// Until a benchmark has taken too long.
const LIMIT: Duration = Duration::from_secs(14_400);

/// Measures in a group with this limit, otherwise as the command line asks.
pub fn run(bench: &Bench, bytes: u64) -> Result<u8, Failure> {
    let name = bench.name.as_deref().unwrap_or_default();
    let signals = Signals::catch()?;
    let group = Group::create("bench", bytes)
        .map_err(|why| Failure::of_benchmark(name, &CannotRun(why.to_string()).into()))?;
    let failed = |error| Failure::new(format!("cannot start a benchmark: {error}"));
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    command.args(std::env::args_os().skip(1)).arg("--join").arg(group.path());
    match watched::run(command, LIMIT, &signals)? {
        End::Told => Ok(watched::STATUS_TOLD),
        End::Late => Err(Failure::new(format!("{name}: not done after {} s", LIMIT.as_secs()))),
        End::Done { status, output, said } => {
            output::print_bytes(&output)?;
            if !said.is_empty() {
                say::text(said);
            }
            status.and_then(|status| u8::try_from(status).ok()).ok_or_else(|| {
                Failure::new(format!(
                    "{name}: it was killed, as when {} are too little for it",
                    Size::of_bytes(bytes)
                ))
                .hint("give more --memory, or less --cache")
            })
        }
    }
}

/// Puts this process into the group, and its later children with it.
pub fn join(group: &Path) -> Result<(), Failure> {
    Group::join(group).map_err(Failure::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_a_size() {
        assert_eq!(size("320MiB"), Ok(320 << 20));
        assert!(size("1GB").unwrap_err().starts_with("it has the unit `GB`"));
    }
}
