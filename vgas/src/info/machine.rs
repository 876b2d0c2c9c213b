//! Cores, memory and the limits on them.

use super::{Fact, Group};
use crate::config::Settings;
use rustix::process::{Resource, getrlimit};
use std::fs::read_to_string;
use std::path::{Path, PathBuf};
use vgas_rma::say::rounded;

/// The part of this machine that this process may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Cores, after affinity and control groups.
    pub cores: u32,
    /// DRAM of the machine in bytes.
    pub memory_bytes: u64,
    /// DRAM that is free or could be freed now, in bytes.
    pub memory_available_bytes: u64,
    /// The least memory limit of the control groups that this process is in, in bytes.
    pub memory_limit_bytes: Option<u64>,
    /// Bytes that this process may lock; `None` when there is no limit.
    pub locked_limit_bytes: Option<u64>,
}

impl Machine {
    /// Surveys this machine, even without /proc. If the number of cores is unknown, it is taken as 1.
    pub fn find() -> Self {
        let (memory_bytes, memory_available_bytes) = match read_to_string("/proc/meminfo") {
            Ok(meminfo) => (meminfo_bytes(&meminfo, "MemTotal"), meminfo_bytes(&meminfo, "MemAvailable")),
            Err(_) => memory_of_system(),
        };
        let privileged = rustix::process::geteuid().is_root();
        Self {
            cores: std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32),
            memory_bytes,
            memory_available_bytes,
            memory_limit_bytes: memory_limit_of_groups(),
            locked_limit_bytes: getrlimit(Resource::Memlock).current.filter(|_| !privileged),
        }
    }

    /// The memory that this process may use, in bytes: the machine's, or less in a limited control group.
    pub fn usable_memory_bytes(&self) -> u64 {
        self.memory_limit_bytes.unwrap_or(u64::MAX).min(self.memory_bytes)
    }

    pub(super) fn facts(&self, settings: &Settings) -> Vec<Fact> {
        let group = Group::Machine;
        let cache = settings.cache.size_bytes(self.usable_memory_bytes(), 1);
        let memory = format!(
            "{} in all, {} available; the cache of a single node would be {}",
            rounded(self.memory_bytes),
            rounded(self.memory_available_bytes),
            rounded(cache)
        );
        let enough = cache <= self.usable_memory_bytes() / 2;
        let too_much = "set cache.size to less than half of the memory";
        vec![
            Fact::available(group, "cores", format!("{} usable by this process", self.cores)),
            if enough {
                Fact::available(group, "memory", memory)
            } else {
                Fact::limited(group, "memory", memory, too_much)
            },
            match self.memory_limit_bytes.filter(|limit| *limit < self.memory_bytes) {
                None => Fact::available(group, "memory limit", "none from control groups"),
                Some(limit) => Fact::limited(
                    group,
                    "memory limit",
                    format!("control groups allow {} of {}", rounded(limit), rounded(self.memory_bytes)),
                    "raise memory.max (version 1: memory.limit_in_bytes) of the group",
                ),
            },
            match self.locked_limit_bytes {
                None => Fact::available(group, "locked memory", "no limit"),
                Some(limit) if limit >= cache => {
                    Fact::available(group, "locked memory", format!("{} may be locked", rounded(limit)))
                }
                Some(limit) => Fact::limited(
                    group,
                    "locked memory",
                    format!("{} may be locked, the cache cannot be registered with devices", rounded(limit)),
                    "`ulimit -l unlimited`, or a memlock line in /etc/security/limits.conf",
                ),
            },
        ]
    }
}

/// A line of /proc/meminfo in bytes, 0 when it is not there.
fn meminfo_bytes(meminfo: &str, name: &str) -> u64 {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    kibibytes.map_or(0, |kibibytes| kibibytes.saturating_mul(1024))
}

/// The bytes of DRAM in all, and free, without /proc. Memory that could be freed is unknown there, and not
/// counted.
fn memory_of_system() -> (u64, u64) {
    let system = rustix::system::sysinfo();
    let bytes = |units: u64| units.saturating_mul(u64::from(system.mem_unit));
    (bytes(system.totalram), bytes(system.freeram))
}

fn memory_limit_of_groups() -> Option<u64> {
    let groups = read_to_string("/proc/self/cgroup").unwrap_or_default();
    limit_files(&groups).iter().filter_map(|path| parse_limit(&read_to_string(path).ok()?)).min()
}

/// The files that may hold a memory limit: of the groups that /proc/self/cgroup names and of all groups above, since
/// the least limit counts.
fn limit_files(groups: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(number), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        let (root, file) = if number == "0" && controllers.is_empty() {
            ("/sys/fs/cgroup", "memory.max")
        } else if controllers.split(',').any(|name| name == "memory") {
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
        } else {
            continue;
        };
        for folder in Path::new(path.trim_start_matches('/')).ancestors() {
            files.push(Path::new(root).join(folder).join(file));
        }
    }
    files
}

/// A limit in bytes. `max`, and the huge number that version 1 writes for it, are none.
fn parse_limit(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|bytes| *bytes < 1 << 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::GIB;

    #[test]
    fn meminfo_lines_are_kibibytes() {
        let text = "MemTotal:       24684096 kB\nMemTotalish: 1 kB\nHugePages_Total:       0\n";
        assert_eq!(meminfo_bytes(text, "MemTotal"), 24684096 * 1024);
        assert_eq!(meminfo_bytes(text, "MemAvailable"), 0);
        assert_eq!(meminfo_bytes(text, "HugePages_Total"), 0);
    }

    #[test]
    fn memory_is_found_without_proc() {
        let (all, free) = memory_of_system();
        assert!(free < all && all.abs_diff(Machine::find().memory_bytes) < all / 4, "{all}");
    }

    #[test]
    fn limits_are_sought_in_the_group_and_above() {
        let found = limit_files("4:cpu,memory:/a/b\n2:cpuset:/c\n0::/d\nnonsense\n");
        let found: Vec<_> = found.iter().map(|path| path.to_str().unwrap()).collect();
        assert_eq!(
            found,
            [
                "/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes",
                "/sys/fs/cgroup/memory/a/memory.limit_in_bytes",
                "/sys/fs/cgroup/memory/memory.limit_in_bytes",
                "/sys/fs/cgroup/d/memory.max",
                "/sys/fs/cgroup/memory.max",
            ]
        );
        assert_eq!(parse_limit("max\n"), None);
        assert_eq!(parse_limit("9223372036854771712\n"), None);
        assert_eq!(parse_limit("1073741824\n"), Some(GIB));
    }

    #[test]
    fn a_limited_group_leaves_less_memory() {
        let machine = Machine { memory_limit_bytes: Some(GIB), memory_bytes: 8 * GIB, ..Machine::find() };
        assert_eq!(machine.usable_memory_bytes(), GIB);
        let machine = Machine { memory_limit_bytes: None, ..machine };
        assert_eq!(machine.usable_memory_bytes(), 8 * GIB);
    }
}
