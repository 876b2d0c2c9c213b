//! Tries conduits, devices and kernel features, one small experiment each.
//!
//! Contains one unsafe call, under one rule: *a userfaultfd is only opened and closed*. No range is registered with it,
//! so it can touch no memory.

use super::{Fact, Group};
use crate::config::{AllocationChoice, DeviceChoice, Settings};
use crate::started::{Seen, seen};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::UserfaultfdFlags;
use rustix::thread::{MembarrierQuery, membarrier_query};
use std::fs::read_to_string;
use std::os::fd::OwnedFd;
use std::path::Path;
use vgas_job::allocation::{Allocation, Around};
use vgas_job::cluster::{Group as LimitedGroup, holds_back};
use vgas_job::pmi::{pmix_library, remedy};
use vgas_rma::conduit::factory::{self, Availability, Provider};
use vgas_rma::say::rounded;

/// Finds the starters of jobs, and the one of this process.
pub(super) fn starters(settings: &Settings) -> Vec<Fact> {
    let group = Group::Starters;
    let pmix = match pmix_library() {
        Ok(name) => Fact::available(group, "pmix", format!("{name}, for mpirun and `srun --mpi=pmix`")),
        Err(reason) => {
            let remedy =
                "the site's libpmix (Debian: libpmix2); mpiexec.hydra and `srun --mpi=pmi2` need none";
            Fact::missing(group, "pmix", reason.replace('\n', " "), remedy)
        }
    };
    let wire = "by vgas itself, for mpiexec.hydra and `srun --mpi=pmi2`";
    let here = match seen(settings) {
        Seen::Nothing => {
            Fact::available(group, "this process", "was started by none of them; `vgas run` makes jobs")
        }
        Seen::Pmix => Fact::available(group, "this process", "was started by one that speaks PMIx"),
        Seen::Pmi1 => Fact::available(group, "this process", "was started by one that speaks PMI-1"),
        Seen::Unreachable { variable, ranks } => {
            let detail = format!("is one of {ranks} ({variable}), and no process manager answers them");
            Fact::missing(group, "this process", detail, remedy(variable))
        }
    };
    vec![pmix, Fact::available(group, "pmi-1", wire), here, allocation(settings)]
}

/// Finds the hosts given by a batch system, and their use.
fn allocation(settings: &Settings) -> Fact {
    let (group, name) = (Group::Starters, "allocation");
    match Allocation::around() {
        Err(why) => Fact::missing(
            group,
            name,
            why.to_string(),
            "`--set run.allocation=none` starts ranks on this machine",
        ),
        Ok(Around::Nothing) => {
            Fact::available(group, name, "none of Slurm, PBS, LSF: `vgas run` starts ranks here")
        }
        Ok(Around::Task) => {
            let detail = "this is one of srun's tasks: `vgas run` starts ranks here";
            Fact::limited(group, name, detail, "`vgas run` in the shell of salloc or sbatch, without srun")
        }
        Ok(Around::Allocation(found)) if settings.run.allocation == AllocationChoice::None => {
            let detail = format!("{found}, but run.allocation is none");
            Fact::limited(group, name, detail, "`--set run.allocation=auto`")
        }
        Ok(Around::Allocation(found)) => {
            let starter = found.starter((&settings.run.ssh).into(), (&settings.run.srun).into());
            let (program, is_there) = starter.program().unwrap_or_default();
            let program = program.display();
            if found.place(u32::MAX).is_some() && !is_there {
                let detail = format!("{found}, but there is no {program} to start ranks on them");
                return Fact::missing(group, name, detail, format!("a PATH with {program}, or `--nodes 1`"));
            }
            Fact::available(group, name, format!("{found}; `vgas run` starts ranks on them by {program}"))
        }
    }
}

/// The transports: those of the table of conduits.
pub(super) fn conduits() -> Vec<Fact> {
    factory::PROVIDERS.iter().map(|provider| conduit(provider)).collect()
}

fn conduit(provider: &Provider) -> Fact {
    let (group, name) = (Group::Conduits, provider.name);
    match provider.probe() {
        Availability::Available { detail } => Fact::available(group, name, detail),
        Availability::Limited { detail, remedy } => Fact::limited(group, name, detail, remedy),
        Availability::Missing { detail, remedy } => Fact::missing(group, name, detail, remedy),
    }
}

/// The ways to the segment files in the folder of the settings.
pub(super) fn devices(settings: &Settings) -> Vec<Fact> {
    devices_in(&settings.nvm.directory_path(), settings.nvm.device)
}

fn devices_in(directory: &Path, device: DeviceChoice) -> Vec<Fact> {
    let fallback = "plain reads and writes by threads, where io_uring or O_DIRECT is refused";
    vec![
        match device.may_use_uring() {
            true => io_uring(),
            false => Fact::limited(
                Group::Devices,
                "io_uring",
                "not tried, because nvm.device names another device",
                "`--set nvm.device=auto`",
            ),
        },
        direct_io(directory),
        Fact::available(Group::Devices, "fallback", fallback),
        folder(directory),
    ]
}

fn io_uring() -> Fact {
    let name = "io_uring";
    let Err(error) = io_uring::IoUring::new(2) else {
        return Fact::available(Group::Devices, name, "a ring could be set up");
    };
    let disabled = read_to_string("/proc/sys/kernel/io_uring_disabled").is_ok_and(|text| text.trim() != "0");
    let remedy = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::PERM) if disabled => "`sysctl kernel.io_uring_disabled=0`",
        Some(Errno::PERM) => {
            "a container profile that allows io_uring, such as `--security-opt seccomp=unconfined`"
        }
        Some(Errno::NOMEM) => "`ulimit -l unlimited`",
        _ => "Linux 5.6 or later with CONFIG_IO_URING",
    };
    Fact::missing(Group::Devices, name, format!("the kernel refuses a ring ({error})"), remedy)
}

/// Direct I/O needs addresses, offsets and lengths that are multiples of the device's block; 4 KiB is one everywhere.
const BLOCK_BYTES: usize = 4096;

fn direct_io(directory: &Path) -> Fact {
    let name = "O_DIRECT";
    let shown = directory.display();
    let remedy = "set nvm.directory to a folder on ext4 or XFS on an NVMe drive";
    let file = match unnamed_file(directory, OFlags::DIRECT) {
        Ok(file) => file,
        Err(error) => {
            return Fact::missing(Group::Devices, name, format!("refused in {shown} ({error})"), remedy);
        }
    };
    let memory = vec![0u8; 2 * BLOCK_BYTES];
    let skip = memory.as_ptr().align_offset(BLOCK_BYTES);
    match rustix::io::pwrite(&file, &memory[skip..skip + BLOCK_BYTES], 0) {
        Ok(BLOCK_BYTES) if is_in_memory(directory) => {
            let detail = format!("works in {shown}, but that is memory, not a disk");
            Fact::limited(Group::Devices, name, detail, remedy)
        }
        Ok(BLOCK_BYTES) => Fact::available(Group::Devices, name, format!("works in {shown}")),
        Ok(bytes) => {
            let detail = format!("only {bytes} bytes of {BLOCK_BYTES} were written in {shown}");
            Fact::limited(Group::Devices, name, detail, "free some space there")
        }
        Err(error) => {
            Fact::missing(Group::Devices, name, format!("a write in {shown} failed ({error})"), remedy)
        }
    }
}

/// A file without a name in `directory`; it is gone when it is closed.
fn unnamed_file(directory: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC | flags;
    rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR)
}

/// Returns true if a file system keeps its files in memory: tmpfs and ramfs by their magic numbers
/// (statfs(2)).
pub(crate) fn is_in_memory(directory: &Path) -> bool {
    const TMPFS: u64 = 0x0102_1994;
    const RAMFS: u64 = 0x8584_58f6;
    rustix::fs::statfs(directory).is_ok_and(|found| [TMPFS, RAMFS].contains(&(found.f_type as u64)))
}

fn folder(directory: &Path) -> Fact {
    let name = "nvm.directory";
    let shown = directory.display();
    let remedy = "set nvm.directory to a folder that you may write";
    let space = match rustix::fs::statvfs(directory) {
        Ok(found) => found.f_bavail.saturating_mul(found.f_frsize),
        Err(error) => return Fact::missing(Group::Devices, name, format!("{shown}: {error}"), remedy),
    };
    // Some file systems have no unnamed files, which only costs a name for a moment.
    match unnamed_file(directory, OFlags::empty()) {
        Err(error) if error != Errno::OPNOTSUPP && error != Errno::ISDIR => {
            Fact::missing(Group::Devices, name, format!("{shown} cannot be written ({error})"), remedy)
        }
        _ if space == 0 => {
            Fact::missing(Group::Devices, name, format!("{shown} is full"), "free some space there")
        }
        _ => Fact::available(Group::Devices, name, format!("{shown}, {} free", rounded(space))),
    }
}

/// Features of the kernel that vgas can use. `release` is its version.
pub(super) fn kernel_features(release: &str) -> Vec<Fact> {
    vec![userfaultfd(release), membarrier(), huge_pages(), namespaces(), memory_groups()]
}

/// Checks that virtual nodes can have networks of their own.
fn namespaces() -> Fact {
    let (group, name) = (Group::Kernel, "network namespaces");
    match holds_back() {
        Ok(true) => Fact::available(group, name, "`--netns`, with links that the kernel holds back (tbf)"),
        Ok(false) => Fact::limited(
            group,
            name,
            "`--netns`, with links that vgas holds back",
            "ip and tc (Debian: iproute2), and a kernel with CONFIG_NET_SCH_TBF",
        ),
        Err(error) => {
            Fact::missing(group, name, error.to_string(), "`--netns` needs root; `--link` does not")
        }
    }
}

/// Checks that the memory of virtual nodes can be bounded.
fn memory_groups() -> Fact {
    let (group, name) = (Group::Kernel, "memory limits");
    match LimitedGroup::create("probe", 1 << 30) {
        Ok(_) => {
            Fact::available(group, name, "`--node-memory`, and `--memory` of benchmarks, by control groups")
        }
        Err(error) => {
            Fact::missing(group, name, error.to_string(), "root, and control groups that may be written")
        }
    }
}

fn userfaultfd(release: &str) -> Fact {
    let name = "userfaultfd";
    /// UFFD_USER_MODE_ONLY of linux/userfaultfd.h.
    const USER_MODE_ONLY: u32 = 1;
    let open = |flags| {
        // SAFETY: the rule at the top: it is closed at once, nothing was registered.
        unsafe { rustix::mm::userfaultfd(flags) }.map(drop)
    };
    // SIGBUS mode, in which the thread that faults serves itself.
    if kernel_is_before(release, (4, 14)) {
        return Fact::missing(
            Group::Kernel,
            name,
            "local access uses SIGSEGV",
            "Linux 4.14 or later, whose userfaultfd can signal",
        );
    }
    let all = open(UserfaultfdFlags::CLOEXEC);
    let own = open(UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::from_bits_retain(USER_MODE_ONLY));
    match (all, own) {
        (Ok(()), _) => Fact::available(
            Group::Kernel,
            name,
            "local access, with local.mechanism=system-calls also by system calls",
        ),
        (Err(_), Ok(())) => Fact::limited(
            Group::Kernel,
            name,
            "local access; not for system calls (local.mechanism=system-calls), which fail with EFAULT on absent pages",
            "`sysctl vm.unprivileged_userfaultfd=1`",
        ),
        (Err(_), Err(error)) => Fact::missing(
            Group::Kernel,
            name,
            format!("refused ({error}); local access uses SIGSEGV"),
            "a kernel with CONFIG_USERFAULTFD and a container profile that allows it",
        ),
    }
}

/// Returns true if a release such as `6.18.5-amd64` is older than a version. An unreadable one is not.
fn kernel_is_before(release: &str, version: (u32, u32)) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().ok());
    match (numbers.next().flatten(), numbers.next().flatten()) {
        (Some(major), Some(minor)) => (major, minor) < version,
        _ => false,
    }
}

fn membarrier() -> Fact {
    let needed = MembarrierQuery::GLOBAL_EXPEDITED | MembarrierQuery::REGISTER_GLOBAL_EXPEDITED;
    if membarrier_query().contains(needed) {
        Fact::available(Group::Kernel, "membarrier", "cache hits need no fence")
    } else {
        let detail = "cache hits pay for a fence of their own";
        Fact::limited(Group::Kernel, "membarrier", detail, "Linux 4.16 or later with CONFIG_MEMBARRIER")
    }
}

fn huge_pages() -> Fact {
    let name = "huge pages";
    let number = |file: &str| {
        let path = format!("/sys/kernel/mm/hugepages/hugepages-2048kB/{file}");
        read_to_string(path).ok().and_then(|text| text.trim().parse::<u64>().ok()).unwrap_or(0)
    };
    let (free, all) = (number("free_hugepages"), number("nr_hugepages"));
    let shared = read_to_string("/sys/kernel/mm/transparent_hugepage/shmem_enabled").unwrap_or_default();
    let shared = chosen(&shared);
    if free > 0 {
        Fact::available(Group::Kernel, name, format!("{free} of {all} reserved pages of 2MiB are free"))
    } else if ["always", "within_size", "advise", "force"].contains(&shared) {
        Fact::available(Group::Kernel, name, format!("transparent ones for shared memory ({shared})"))
    } else {
        Fact::missing(
            Group::Kernel,
            name,
            format!("{all} reserved, {free} free; transparent ones are off for shared memory"),
            "`echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled`, or `sysctl vm.nr_hugepages=N`",
        )
    }
}

/// The word in brackets: how the kernel shows which of several it has chosen.
fn chosen(text: &str) -> &str {
    text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map_or("", |(word, _)| word)
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    #[test]
    fn a_folder_that_is_not_there_is_missing_and_says_what_to_set() {
        let facts = devices_in(Path::new("/no/such/folder"), DeviceChoice::Auto);
        for name in ["O_DIRECT", "nvm.directory"] {
            let fact = facts.iter().find(|fact| fact.name == name).unwrap();
            assert_eq!(fact.state, State::Missing, "{fact:?}");
            assert!(fact.remedy.as_ref().unwrap().contains("set nvm.directory"), "{fact:?}");
        }
    }

    #[test]
    fn nothing_is_left_in_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        devices_in(folder.path(), DeviceChoice::Auto);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn kernel_releases_are_compared_by_number() {
        assert!(kernel_is_before("5.13.19-generic", (5, 14)));
        assert!(!kernel_is_before("5.14.0", (5, 14)));
        assert!(!kernel_is_before("6.1-rc1", (5, 14)));
        assert!(!kernel_is_before("unreadable", (5, 14)));
    }

    #[test]
    fn the_chosen_word_is_in_brackets() {
        assert_eq!(chosen("always within_size [never] deny"), "never");
        assert_eq!(chosen(""), "");
    }
}
