//! Disks that are full, limits, kernels that refuse, numbers that make no sense.

use super::harness::{Job, Place, matrix};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch, apply_filter};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

fn with_matrices(order: usize) -> Place {
    let place = Place::new();
    matrix(&place.path("a.npy"), order, order);
    matrix(&place.path("b.npy"), order, order);
    place
}

#[test]
fn numbers_that_make_no_sense_are_refused() {
    let place = with_matrices(300);
    for (flags, code, words) in [
        ("--page 48KiB", 2, &["not a power of two", "`64KiB`"][..]),
        ("--page 2KiB", 2, &["less than 4KiB"]),
        ("--page 8MiB", 2, &["more than 4MiB"]),
        ("--cache 1MiB --page 1MiB", 2, &["room for 1 pages", "cache.size to 16MiB"]),
        ("--cache 1MiB -n 8", 1, &["8 ranks on a node need at least", "--cache"]),
        ("--cache 63TiB", 2, &["do not fit into", "of memory", "less than"]),
        ("-n 0", 2, &["0 ranks cannot be spread"]),
        ("-n -1", 2, &["invalid value '-1'", "a whole number from 1 on"]),
        ("-n 2 --nodes 3", 2, &["2 ranks cannot be spread over 3 nodes"]),
        ("-n 4000 --cache 2GiB", 1, &["4000 ranks are too many for one machine", "make sense"]),
        ("-n 100000 --cache 1GiB", 1, &["100000 ranks"]),
    ] {
        place.refused(&format!("gemm a.npy b.npy -o c.npy {flags}"), code, words);
    }
    // No number is quietly replaced by another one.
    place.refused("bench hit -n 0", 2, &["0 ranks cannot be spread"]);
    place.refused("bench cold-seq -n 1 --nodes 2", 2, &["1 ranks cannot be spread over 2 nodes"]);
}

/// The smallest cache that the settings allow multiplies; tiles that do not fit into a cache are refused with the size
/// that would do.
#[test]
fn a_cache_too_small_for_the_tiles_says_what_would_do() {
    let place = with_matrices(300);
    let line = |cache: &str| format!("gemm a.npy b.npy -o c.npy -n 6 --page 64KiB --cache {cache} --force");
    let ended = place.start(&line("2MiB")).end();
    let Some(rest) = ended.stderr.split("--cache").nth(1) else { panic!("{ended:?}") };
    let enough = rest.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit()));
    ended.refused(1, &["--cache", "--page"]);
    let ended = place.start(&line(enough.unwrap())).end();
    assert_eq!(ended.code, 0, "{enough:?} is not enough: {ended:?}");
}

/// `ulimit -f`, for those who may not mount: the segment files, then the output, meet the limit of a file's size.
#[test]
fn a_limit_of_the_file_size_is_an_error_not_a_death() {
    let place = with_matrices(900);
    let limited = |blocks: u32, rest: &str| {
        let line = format!(
            "ulimit -f {blocks}; exec {} gemm a.npy b.npy -o c.npy --cache 1MiB --page 4KiB \
             --set segment.pinned_max=0 --set segment.tiered_max=32MiB {rest}",
            env!("CARGO_BIN_EXE_vgas")
        );
        let mut command = place.shell(Path::new("/bin/sh"), "-c");
        command.arg(line);
        Job::of(command, place.path("nvm")).end()
    };
    // Blocks of 512 bytes: 512 kB are too few for shared memory, 4 MiB for the segment of 13 MB; that out of the way,
    // for the product of 6 MB.
    limited(1000, "").refused(1, &["shared memory", "ulimit -f"]);
    let ended = limited(8192, "");
    ended.refused(1, &["the segment of rank ", "File too large", "ulimit -f"]);
    limited(8192, "--set nvm.device=memory").refused(1, &["no space for the 6480128 bytes of c.npy"]);
    assert_eq!(place.names(), ["a.npy", "b.npy"]);
}

/// `ulimit -u`: processes, the threads of a job, and those that the kernel makes for io_uring. However few are allowed, the
/// product is right, be it made slowly, or a line names the limit. Nobody panics.
#[test]
fn a_limit_of_processes_is_named_or_lived_with() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can become a user without other processes, which the limit counts");
        return;
    }
    let mut without_uring = 0;
    for (shape, most) in [("-n 1", 9), ("-n 2 --nodes 2 --conduit tcp", 16)] {
        for limit in 1..=most {
            let place = with_matrices(300);
            let user = 100_000 + std::process::id() % 100_000 * 20 + limit;
            for path in ["", "a.npy", "b.npy", "nvm"] {
                std::os::unix::fs::chown(place.path(path), Some(user), Some(user)).unwrap();
            }
            let line = format!(
                "--nproc={limit} {} gemm a.npy b.npy -o c.npy --cache 1MiB --page 4KiB --verify {shape}",
                env!("CARGO_BIN_EXE_vgas")
            );
            let mut command = place.shell(Path::new("prlimit"), &line);
            command.uid(user).gid(user);
            let ended = Job::of(command, place.path("nvm")).end();
            assert!(!ended.stderr.contains("panicked"), "{limit}: {ended:?}");
            match ended.code {
                0 => assert!(place.names().contains(&"c.npy".into())),
                _ => assert!(ended.stderr.contains("ulimit -u"), "{limit}: {ended:?}"),
            }
            without_uring +=
                u32::from(ended.code == 0 && ended.stderr.contains("io_uring may start no threads"));
        }
    }
    assert!(without_uring > 0, "no limit hit io_uring alone");
}

/// Runs a line of shell in a mount namespace with a file system of `megabytes` at `small`, or says why that cannot be.
fn with_small_disk(place: &Place, megabytes: u32, words: &str) -> Option<Job> {
    let mount = format!("mount -t tmpfs -o size={megabytes}m none small");
    let _ = std::fs::create_dir(place.path("small"));
    let may = |command: &mut Command| command.output().is_ok_and(|output| output.status.success());
    if !may(place.shell(Path::new("unshare"), "-rm sh -c").arg(&mount)) {
        eprintln!("skipped: no file system may be mounted here (unshare -rm, mount -t tmpfs)");
        return None;
    }
    let line = format!("{mount} && exec {} {words}", env!("CARGO_BIN_EXE_vgas"));
    let mut command = place.shell(Path::new("unshare"), "-rm sh -c");
    command.arg(line);
    Some(Job::of(command, place.path("nvm")))
}

/// Goal: a full NVMe folder ends the job with the folder's name, whether the space runs out while segments are made or
/// while pages are written back, on one node or two.
#[test]
fn a_full_nvme_folder_is_named() {
    let place = with_matrices(600);
    for (megabytes, more) in [(3, ""), (3, "-n 2 --nodes 2"), (1, "-n 2")] {
        let line = format!("gemm a.npy b.npy -o c.npy --cache 2MiB --set nvm.directory=small {more}");
        let line = line.replace("=small", &format!("={}", place.path("small").display()));
        let Some(job) = with_small_disk(&place, megabytes, &line) else { return };
        let folder = place.path("small").display().to_string();
        job.end().refused(1, &["full", "nvm.directory", "node ", "host ", &folder]);
    }
    assert_eq!(place.names(), ["a.npy", "b.npy", "small"]);
}

#[test]
fn a_full_output_folder_is_named_at_once() {
    let place = with_matrices(600);
    let Some(job) = with_small_disk(&place, 1, "gemm a.npy b.npy -o small/c.npy --cache 2MiB") else {
        return;
    };
    job.end().refused(1, &["no space for the 2880128 bytes of small/c.npy", "choose another disk"]);
}

/// Goal: where the system has no /proc, or no loopback interface that is up, a line names the command that brings it.
#[test]
fn a_missing_proc_or_loopback_is_named() {
    let place = Place::new();
    let vgas = env!("CARGO_BIN_EXE_vgas");
    let start = |flags: &str, before: &str, words: &str| {
        let may = place.shell(Path::new("unshare"), flags).arg(before).output();
        if !may.is_ok_and(|output| output.status.success()) {
            eprintln!("skipped: no namespace may be made here (unshare {flags} {before:?})");
            return None;
        }
        let mut command = place.shell(Path::new("unshare"), flags);
        command.arg(format!("{before} && exec {vgas} {words}"));
        Some(Job::of(command, place.path("nvm")).end())
    };
    if let Some(ended) = start("-rm sh -c", "mount -t tmpfs none /proc", "run -n 2 --nodes 2 -- true") {
        ended.refused(1, &["/proc", "mount -t proc"]);
    }
    if let Some(ended) = start("-rn sh -c", "true", "info") {
        assert!(ended.code == 0 && ended.stdout.contains("ip link set lo up"), "{ended:?}");
    }
}

/// Starts a command whose system calls of these numbers fail with this error, and those of its children. None where the kernel
/// takes no filter.
fn without_calls(place: &Place, words: &str, refused: &[i64], errno: i32) -> Option<Job> {
    let filter = SeccompFilter::new(
        refused.iter().map(|&call| (call, Vec::new())).collect(),
        SeccompAction::Allow,
        SeccompAction::Errno(errno as u32),
        TargetArch::try_from(std::env::consts::ARCH).ok()?,
    );
    let probe: BpfProgram = filter.ok()?.try_into().ok()?;
    // A filter concerns the thread that installs it, and what it starts.
    if std::thread::spawn(move || apply_filter(&probe).is_err()).join().unwrap() {
        eprintln!("skipped: this kernel takes no system-call filter");
        return None;
    }
    let this = std::env::current_exe().unwrap();
    let mut command = place.shell(&this, "--exact limits::command_under_a_filter --nocapture");
    let calls: Vec<String> = refused.iter().map(i64::to_string).collect();
    command.env(FILTERED, format!("{errno} {}", calls.join(","))).env(FILTERED_LINE, words);
    Some(Job::of(command, place.path("nvm")))
}

/// The variables that say what [`command_under_a_filter`] is to do.
const FILTERED: &str = "TEST_FILTERED_CALLS";
const FILTERED_LINE: &str = "TEST_FILTERED_LINE";

/// A test as far as the test runner is concerned; does something only where [`without_calls`] has started it: becomes the
/// command. Were it started from a process with the filter, the standard library would want what that refuses.
#[test]
fn command_under_a_filter() {
    let (Ok(calls), Ok(line)) = (std::env::var(FILTERED), std::env::var(FILTERED_LINE)) else { return };
    let (errno, calls) = calls.split_once(' ').unwrap();
    let filter = SeccompFilter::new(
        calls.split(',').map(|call| (call.parse().unwrap(), Vec::new())).collect(),
        SeccompAction::Allow,
        match errno.parse().unwrap() {
            0 => SeccompAction::KillProcess,
            errno => SeccompAction::Errno(errno),
        },
        TargetArch::try_from(std::env::consts::ARCH).unwrap(),
    );
    let program: BpfProgram = filter.unwrap().try_into().unwrap();
    apply_filter(&program).unwrap();
    let error = Command::new(env!("CARGO_BIN_EXE_vgas")).args(line.split_whitespace()).exec();
    panic!("{error}");
}

/// A filter that refuses what sockets need is named, in a few lines, and nobody waits for ever.
#[test]
fn a_filter_of_sockets_is_named() {
    let place = with_matrices(300);
    for shape in ["-n 1", "-n 2 --nodes 2 --conduit tcp"] {
        let line = format!("gemm a.npy b.npy -o c.npy --cache 1MiB --page 4KiB {shape}");
        let Some(job) = without_calls(&place, &line, &[libc::SYS_recvfrom], libc::EPERM) else { return };
        job.end().refused(1, &["recvfrom", "Operation not permitted"]);
    }
    let line = "gemm a.npy b.npy -o c.npy --cache 1MiB --page 4KiB -n 2 --nodes 2 --conduit tcp";
    let Some(mut job) = without_calls(&place, line, &[libc::SYS_accept, libc::SYS_accept4], libc::EPERM)
    else {
        return;
    };
    job.mishap(|_| {});
    let ended = job.end();
    assert_eq!(ended.code, 1, "{ended:?}");
    let said = ended.stderr.lines().filter(|line| line.contains("cannot accept connections")).count();
    assert!((1..=4).contains(&said), "once by each process: {ended:?}");
    assert!(ended.stderr.lines().count() <= 6, "a flood: {ended:?}");
}

/// A kernel, or a container, that refuses io_uring in either way: the job runs, and says once that it is slower. Who
/// insists is refused.
#[test]
fn without_io_uring_jobs_run_and_say_so() {
    for errno in [libc::ENOSYS, libc::EPERM] {
        let place = with_matrices(300);
        let calls = [libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];
        let without_uring = |words: &str| without_calls(&place, words, &calls, errno).map(Job::end);
        let Some(ended) = without_uring("gemm a.npy b.npy -o c.npy --cache 1MiB --page 4KiB --verify") else {
            return;
        };
        assert_eq!(ended.code, 0, "{ended:?}");
        let said = ended.stderr.lines().filter(|line| line.contains("io_uring")).count();
        assert_eq!(said, 1, "once, not never and not for every page: {ended:?}");
        let insisting = "gemm a.npy b.npy -o d.npy --cache 1MiB --page 4KiB --set nvm.device=uring";
        without_uring(insisting).unwrap().refused(1, &["agent of node 0", "io_uring"]);
    }
}

/// Sandboxes may kill whatever process calls io_uring. With a device that does not need it no process of the job does, whether it
/// is a rank that reads pages itself, or its agent; nor does the command that says what the machine offers.
#[test]
fn other_devices_call_no_io_uring() {
    let place = with_matrices(300);
    let calls = [libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];
    for device in ["blocking", "memory"] {
        let lines = [
            format!(
                "gemm a.npy b.npy -o {device}.npy --cache 1MiB --page 4KiB --set nvm.device={device} -n 2"
            ),
            format!("info --set nvm.device={device}"),
        ];
        for line in lines {
            // Errno 0: the filter kills.
            let Some(job) = without_calls(&place, &line, &calls, 0) else { return };
            let ended = job.end();
            assert_eq!(ended.code, 0, "{line}: {ended:?}");
        }
    }
}
