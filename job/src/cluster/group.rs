//! A control group whose memory is bounded: caches of files and shared memory count, swap is not taken.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use vgas_rma::error::{Result, RmaError};
use vgas_rma::say;

/// Prefix of the folders' names; the process that made them follows.
const PREFIX: &str = "vgas-";

/// The processes of a group, one a line; a process that is written there joins, 0 being the writer.
const MEMBERS: &str = "cgroup.procs";

/// A control group that exists until this is dropped: its remaining processes are then killed.
#[derive(Debug)]
pub struct Group {
    path: PathBuf,
}

/// The files of a version of control groups.
struct Version {
    root: &'static str,
    limit: &'static str,
    swap: &'static str,
    /// File with a line of `oom_kill` and a number.
    events: &'static str,
}

const FIRST: Version = Version {
    root: "/sys/fs/cgroup/memory",
    limit: "memory.limit_in_bytes",
    swap: "memory.swappiness",
    events: "memory.oom_control",
};

const SECOND: Version =
    Version { root: "/sys/fs/cgroup", limit: "memory.max", swap: "memory.swap.max", events: "memory.events" };

/// Returns the version of this machine's control groups.
fn version() -> &'static Version {
    if Path::new("/sys/fs/cgroup/cgroup.controllers").exists() { &SECOND } else { &FIRST }
}

impl Group {
    /// Makes one with a limit in bytes, of either version of control groups. `name` tells this process's apart.
    ///
    /// # Errors
    /// [`RmaError::Refused`] with the reason if it is impossible.
    pub fn create(name: &str, bytes: u64) -> Result<Self> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let version = version();
        Self::remove_stale();
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = Path::new(version.root).join(format!("{PREFIX}{}-{number}-{name}", std::process::id()));
        std::fs::create_dir(&path).map_err(|error| {
            let root = version.root;
            let why = format!("a limit of memory needs a control group in {root}, which refuses: {error}");
            RmaError::Refused(why)
        })?;
        // From now on there is one to be removed.
        let group = Self { path };
        std::fs::write(group.path.join(version.limit), bytes.to_string()).map_err(|error| {
            let root = version.root;
            RmaError::Refused(format!("the control groups in {root} limit no memory: {error}"))
        })?;
        // Kernels without swap do not have it.
        let _ = std::fs::write(group.path.join(version.swap), "0");
        Ok(group)
    }

    /// Removes groups whose makers are gone and in which nothing runs any more.
    pub fn remove_stale() {
        for folder in std::fs::read_dir(version().root).into_iter().flatten().flatten() {
            let name = folder.file_name();
            let maker = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split_once('-'));
            if maker.is_some_and(|(maker, _)| !Path::new("/proc").join(maker).exists()) {
                // One in which something still runs is not removed.
                let _ = std::fs::remove_dir(folder.path());
            }
        }
    }

    /// Its folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the file of the members.
    pub(super) fn members(&self) -> std::io::Result<File> {
        OpenOptions::new().write(true).open(self.path.join(MEMBERS))
    }

    /// Returns true if the kernel killed a process in it for want of memory.
    pub(super) fn has_killed(&self) -> bool {
        killed_in(&self.path).is_some_and(|count| count > 0)
    }

    /// Puts this process into the group of that folder, and its later children with it.
    ///
    /// # Errors
    /// Those of the system.
    pub fn join(path: &Path) -> Result<()> {
        std::fs::write(path.join(MEMBERS), "0")
            .map_err(|error| RmaError::io(format!("join the group {}", path.display()), error))
    }

    /// Takes this process, the last one there, out of the group of that folder and removes it: for a process
    /// that was started in it and has outlived its maker.
    pub fn leave_and_remove(path: &Path) {
        let above = path.parent().is_some_and(|above| Self::join(above).is_ok());
        // The next that is made removes it otherwise.
        let _ = above && std::fs::remove_dir(path).is_ok();
    }
}

/// Counts the processes of a group that were killed because its memory was used up; none if the kernel does
/// not count them.
fn killed_in(path: &Path) -> Option<u64> {
    let events = std::fs::read_to_string(path.join(version().events)).ok()?;
    events.lines().find_map(|line| line.strip_prefix("oom_kill "))?.trim().parse().ok()
}

/// The control groups around this process, made by a batch system, a container or a service.
#[derive(Debug, Default)]
pub(crate) struct OuterGroups(Vec<(PathBuf, u64)>);

impl OuterGroups {
    /// Notes the groups of this process, and the number of processes killed in each so far.
    pub(crate) fn note() -> Self {
        let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let own = groups.lines().find_map(|line| match *line.splitn(3, ':').collect::<Vec<_>>() {
            ["0", "", path] if version().root == SECOND.root => Some(path),
            [_, controllers, path] if controllers.split(',').any(|name| name == "memory") => Some(path),
            _ => None,
        });
        let Some(own) = own else { return Self::default() };
        let own = Path::new(version().root).join(own.trim_start_matches('/'));
        let groups = own.ancestors().take_while(|path| path.starts_with(version().root));
        Self(groups.filter_map(|path| Some((path.to_owned(), killed_in(path)?))).collect())
    }

    /// The innermost group in which something was killed since then because its memory was used up.
    pub(crate) fn exhausted(&self) -> Option<&Path> {
        let has_killed = |(path, before): &&(PathBuf, u64)| killed_in(path).is_some_and(|now| now > *before);
        self.0.iter().find(has_killed).map(|(path, _)| path.as_path())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let members = std::fs::read_to_string(self.path.join(MEMBERS)).unwrap_or_default();
        let members = members.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?));
        for member in members {
            // It is gone only when it has ended; only the system reaps it.
            let Ok(process) = pidfd_open(member, PidfdFlags::empty()) else { continue };
            let _ = kill_process(member, Signal::KILL);
            let bound = Timespec { tv_sec: 10, tv_nsec: 0 };
            let _ = poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&bound));
        }
        match std::fs::remove_dir(&self.path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                say::line(format_args!("vgas: the control group {} is left: {error}", self.path.display()));
            }
            _ => {}
        }
    }
}
