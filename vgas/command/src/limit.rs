//! `vgas bench --memory`: a benchmark, with all of its processes, in a control group of its own whose memory is limited. The group is made
//! before, and removed however the benchmark ends.
//!
//! This process stays outside: a copy of it joins the group and measures. Caches of files count, shared memory counts; swap is not taken.

use crate::cli::Bench;
use crate::failure::Failure;
use crate::output;
use crate::report::watched::{self, End, Signals};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use vgas::config::{Size, Value};
use vgas::say;
use vgas_bench::registry::CannotRun;

/// A size, as settings have them.
pub fn size(text: &str) -> Result<u64, String> {
    Size::parse(text).map(Size::bytes).map_err(|error| format!("it {error}: write {}", Size::forms()))
}

/// Until a benchmark has taken too long.
const LIMIT: Duration = Duration::from_secs(14_400);

/// Measures in a group with this limit, as the command line says otherwise.
pub fn run(bench: &Bench, bytes: u64) -> Result<u8, Failure> {
    let name = bench.name.as_deref().unwrap_or_default();
    let signals = Signals::catch()?;
    let group = Group::create(bytes).map_err(|why| Failure::of_benchmark(name, &CannotRun(why).into()))?;
    let failed = |error| Failure::new(format!("cannot start a benchmark: {error}"));
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    command.args(std::env::args_os().skip(1)).arg("--join").arg(&group.path);
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

/// Puts this process into the group: what it starts is there, too.
pub fn join(group: &Path) -> Result<(), Failure> {
    let file = group.join("cgroup.procs");
    std::fs::write(&file, std::process::id().to_string())
        .map_err(|error| Failure::new(format!("cannot join the group {}: {error}", group.display())))
}

/// A control group that is there until this is dropped.
struct Group {
    path: PathBuf,
}

impl Group {
    /// Where this machine has such groups, of either version. The error says why it is not possible.
    fn create(bytes: u64) -> Result<Self, String> {
        let name = format!("vgas-bench-{}", std::process::id());
        let (root, limits) = if Path::new("/sys/fs/cgroup/cgroup.controllers").exists() {
            ("/sys/fs/cgroup", ["memory.max", "memory.swap.max"])
        } else {
            ("/sys/fs/cgroup/memory", ["memory.limit_in_bytes", "memory.swappiness"])
        };
        let path = Path::new(root).join(name);
        std::fs::create_dir(&path).map_err(|error| {
            format!("a limit of memory needs a control group in {root}, which refuses: {error}")
        })?;
        // From now on there is one to be removed.
        let group = Self { path };
        std::fs::write(group.path.join(limits[0]), bytes.to_string())
            .map_err(|error| format!("the control groups in {root} limit no memory: {error}"))?;
        // Kernels without swap do not have it.
        let _ = std::fs::write(group.path.join(limits[1]), "0");
        Ok(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let members = std::fs::read_to_string(self.path.join("cgroup.procs")).unwrap_or_default();
        let members = members.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?));
        for member in members {
            // It is gone only when it has ended, and nobody waits for it but the system.
            let Ok(process) = pidfd_open(member, PidfdFlags::empty()) else { continue };
            let _ = kill_process(member, Signal::KILL);
            let bound = Timespec { tv_sec: 10, tv_nsec: 0 };
            let _ = poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&bound));
        }
        if let Err(error) = std::fs::remove_dir(&self.path) {
            say::line(format_args!("vgas: the control group {} is left: {error}", self.path.display()));
        }
    }
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
