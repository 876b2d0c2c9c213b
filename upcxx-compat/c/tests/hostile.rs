//! Clients that end badly or ask for what cannot be: each job ends soon, with the right status, says once why when it ends
//! against the client's will, and leaves no process, no shared memory and no file.

mod support;

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use support::{Bench, Conduit, Mode, Program, finish, tiered};

/// The status with which the program ends itself.
const STATUS: i32 = 3;

/// How long what a job has left may take to go; its processes are ended, not waited for.
const TIMEOUT: Duration = Duration::from_secs(10);

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Waits until no process runs a program of this bench, and no file of a segment is left.
fn nothing_is_left(bench: &Bench, scratch: &Path, what: &str) {
    let deadline = Instant::now() + TIMEOUT;
    let mut naps = 0;
    loop {
        let processes = std::fs::read_dir("/proc").expect("processes can be listed").flatten();
        let running: Vec<_> = processes
            .filter(|process| {
                std::fs::read_link(process.path().join("exe")).is_ok_and(|exe| exe.starts_with(bench.path()))
            })
            .map(|process| process.file_name())
            .collect();
        let files: Vec<_> = std::fs::read_dir(scratch).expect("the folder is there").flatten().collect();
        if running.is_empty() && files.is_empty() {
            break;
        }
        assert!(Instant::now() < deadline, "{what} leaves processes {running:?}, files {files:?}");
        vgas_shm::cores::nap(&mut naps);
    }
    let shared = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    let shared: Vec<_> =
        shared.filter(|entry| entry.file_name().to_string_lossy().contains("vgas")).collect();
    assert!(shared.is_empty(), "{what} leaves {shared:?}");
}

/// Runs a program on one node with pinned segments, and on two with tiered ones; hands each output to the check.
fn everywhere(
    bench: &Bench,
    arguments: &[&str],
    environment: &[(&str, &str)],
    check: impl Fn(&str, &Output),
) {
    let scratch = bench.path().join("scratch");
    std::fs::create_dir_all(&scratch).expect("the folder is writable");
    let folder = scratch.to_str().expect("a path that is text").to_owned();
    let pinned = [("VGASNET_NODES", "1")];
    for (conduit, kind) in [(Conduit::Smp, &pinned[..]), (Conduit::Tcp, &tiered("2"))] {
        let mut settings = vec![("VGAS_NVM_DIRECTORY", folder.as_str())];
        settings.extend_from_slice(kind);
        settings.extend_from_slice(environment);
        let output = hostile(bench, conduit).run(3, &settings, arguments);
        let what = format!("{arguments:?} {environment:?} {conduit:?}: {output:?}");
        check(&what, &output);
        nothing_is_left(bench, &scratch, &what);
    }
}

fn hostile(bench: &Bench, conduit: Conduit) -> Program {
    bench.program("hostile", conduit, Mode::Par)
}

/// Goal: whatever place `gasnet_exit` is called from, that status is the job's, and nothing is said.
#[test]
fn exits_from_every_place() {
    let bench = Bench::new();
    for (what, who, others) in [
        ("exit", "1", "barrier"),
        ("return", "2", "compute"),
        ("atexit", "0", "poll"),
        ("atexit", "-1", "poll"),
        ("handler", "1", "compute"),
        ("thread", "2", "barrier"),
        ("threads", "-1", "compute"),
        ("unattached", "1", "compute"),
        ("unattached", "-1", "compute"),
        ("uneven", "1", "compute"),
        ("signal", "1", "poll"),
        ("signal", "-1", "poll"),
    ] {
        everywhere(&bench, &[what, who, others], &[], |what, output| {
            assert_eq!(output.status.code(), Some(STATUS), "{what}");
            assert!(output.stderr.is_empty(), "{what}");
        });
    }
    let output = hostile(&bench, Conduit::Tcp).run(2, &[("HOSTILE_BEFORE_INIT", "1")], &[]);
    assert_eq!(output.status.code(), Some(STATUS), "{output:?}");
}

/// Goal: every status that a process can have is the job's.
#[test]
fn statuses() {
    let bench = Bench::new();
    for status in [0, 1, 77, 127, 137, 255] {
        everywhere(&bench, &[&format!("exit-{status}"), "-1", "poll"], &[], |what, output| {
            assert_eq!(output.status.code(), Some(status), "{what}");
            assert!(output.stderr.is_empty(), "{what}");
        });
    }
}

/// Goal: rank 0 reads what the user types and all of what it prints arrives, more than any pipe holds; who is started without
/// a standard stream finds it empty, and none of the job's own files in its place.
#[test]
fn standard_streams() {
    let bench = Bench::new();
    let bytes: Vec<u8> = (0..1_000_000u32).map(|number| (number % 251) as u8).collect();
    let input = bench.path().join("input");
    std::fs::write(&input, &bytes).expect("the folder is writable");
    let streams = [("", true), ("<&-", false), (">&-", false), ("2>&-", true), ("<&- >&- 2>&-", false)];
    for (closed, arrives) in streams {
        for nodes in ["1", "2"] {
            let program = hostile(&bench, Conduit::Tcp);
            let mut command = Command::new("sh");
            command.arg("-c").arg(format!("exec \"$0\" \"$@\" {closed}")).arg(program.path());
            command.args(["2", "echo", "0", "poll"]).env("VGASNET_NODES", nodes);
            command.stdin(std::fs::File::open(&input).expect("it was written"));
            let child =
                command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a shell starts");
            let output = finish(child, closed);
            assert_eq!(output.status.code(), Some(STATUS), "{closed} {nodes}: {output:?}");
            assert_eq!(output.stdout == bytes, arrives, "{closed} {nodes}: {} bytes", output.stdout.len());
        }
    }
}

/// Goal: what makes no sense is refused before anything is started, with one line that names it.
#[test]
fn nonsense_is_refused() {
    let bench = Bench::new();
    let program = hostile(&bench, Conduit::Tcp);
    let refused = |command: &mut Command, name: &str| {
        let output = command.output().expect("the program starts");
        let errors = text_of(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{command:?}: {output:?}");
        assert!(errors.contains(name) && errors.lines().count() == 1, "{command:?}: {errors}");
    };
    for ranks in ["0", "-1", "two", "2x", "1e3", "", "99999999999", "5000"] {
        refused(Command::new(program.path()).args([ranks, "exit", "0", "poll"]), "");
    }
    refused(&mut Command::new(program.path()), "how many processes");
    for name in [
        "VGASNET_RANKS",
        "VGASNET_NODES",
        "GASNET_SUPERNODE_MAXSIZE",
        "GASNET_SPAWNFN",
        "VGAS_CONDUIT",
        "VGAS_CACHE_SIZE",
        "VGAS_CACHE_PAGE",
        "VGAS_SEGMENT_KIND",
        "VGAS_SMP_RING",
        "VGAS_NO_SUCH_SETTING",
        "VGAS_LOG",
    ] {
        refused(program.command(2, &["exit", "0", "poll"]).env(name, "no/such=thing !"), name);
    }
}

/// Goal: a rank that dies, or makes a mistake that has no code, ends the job with one line that names it.
#[test]
fn deaths_are_told_once() {
    let bench = Bench::new();
    for (what, others, said) in [
        ("abort", "compute", "SIGABRT"),
        ("kill", "barrier", "SIGKILL"),
        ("crash", "poll", "SIGSEGV"),
        ("crash-in-segment-twice", "compute", "SIGSEGV"),
        ("put-outside", "poll", "outside of the segment of node 2"),
        ("get-outside", "barrier", "outside of the segment of node 2"),
        ("section-back", "poll", "strides cannot be negative"),
        ("section-huge", "compute", "goes beyond the highest address"),
        ("section-outside", "barrier", "outside of the segment of node 2"),
        ("put-nowhere", "compute", "there is no node 3"),
        ("fail-in-signal", "poll", "there is no node 3"),
    ] {
        everywhere(&bench, &[what, "1", others], &[], |what, output| {
            let errors = text_of(&output.stderr);
            assert!(!output.status.success() && output.status.code() != Some(STATUS), "{what}");
            assert!(errors.contains(said) && errors.contains("rank 1"), "{what}");
            assert_eq!(errors.lines().count(), 1, "{what}");
        });
    }
}

/// Goal: what the specification gives a code for is refused with it, on every rank, and the job goes on.
#[test]
fn refusals_have_codes() {
    let bench = Bench::new();
    everywhere(&bench, &["refusals", "-1", "compute"], &[], |what, output| {
        assert_eq!(output.status.code(), Some(STATUS), "{what}");
        // A segment that is too large names the setting to change.
        let said = text_of(&output.stderr);
        assert!(said.lines().all(|line| line.contains("VGAS_SEGMENT_")), "{what}");
    });
}

/// Goal: a size that makes no sense ends the job before it starts, with one line; one that is too large offers what there is.
#[test]
fn sizes_of_segments() {
    let bench = Bench::new();
    for size in ["zero", "0", "-1", "1X", "12MB/Q", "1e9", "0x", "4095"] {
        let arguments = ["all", "-1", "compute"];
        let output = hostile(&bench, Conduit::Tcp).run(2, &[("GASNET_MAX_SEGSIZE", size)], &arguments);
        let errors = text_of(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(errors.contains("GASNET_MAX_SEGSIZE") && errors.lines().count() == 1, "{output:?}");
    }
    // All of what is offered can be attached, by all at once. Tiered, the test's own limit is taken away.
    let huge = [("GASNET_MAX_SEGSIZE", "900TB"), ("VGAS_SEGMENT_TIERED_MAX", "64TiB")];
    everywhere(&bench, &["all", "-1", "compute"], &huge, |what, output| {
        assert_eq!(output.status.code(), Some(STATUS), "{what}");
        assert!(output.stderr.is_empty(), "{what}");
    });
}

/// Goal: with GASNET_BACKTRACE a crash is told with a line a frame, also beside the fault handler of the local view and on a
/// stack that overflows, and the rank still dies of its signal; on demand a rank tells where it is and goes on.
#[test]
fn backtraces() {
    let bench = Bench::new();
    let asked = [("GASNET_BACKTRACE", "1")];
    for (what, signal) in [
        ("crash", "SIGSEGV"),
        ("crash-in-segment-twice", "SIGSEGV"),
        ("overflow", "SIGSEGV"),
        ("abort", "SIGABRT"),
    ] {
        everywhere(&bench, &[what, "1", "poll"], &asked, |what, output| {
            let errors = text_of(&output.stderr);
            assert!(!output.status.success(), "{what}");
            assert!(errors.contains(&format!("*** node 1/3: died of {signal}")), "{what}");
            assert!(errors.matches("hostile-").count() >= 2, "frames of the program: {what}");
            // The launcher's own line.
            assert!(errors.lines().any(|line| line.contains("rank 1") && line.contains(signal)), "{what}");
        });
    }
    for name in ["USR1", "sigusr1"] {
        let on_demand = [("GASNET_BACKTRACE_SIGNAL", name)];
        everywhere(&bench, &["ask-signal", "1", "poll"], &on_demand, |what, output| {
            let errors = text_of(&output.stderr);
            assert_eq!(output.status.code(), Some(STATUS), "{what}");
            assert!(errors.contains("*** node 1/3: backtrace on SIGUSR1"), "{what}");
            assert!(errors.contains("hostile-"), "{what}");
        });
    }
    let wrong = [("GASNET_BACKTRACE_SIGNAL", "SEGV")];
    everywhere(&bench, &["exit", "1", "poll"], &wrong, |what, output| {
        assert_eq!(output.status.code(), Some(1), "{what}");
        assert!(text_of(&output.stderr).contains("GASNET_BACKTRACE_SIGNAL is \"SEGV\""), "{what}");
    });
}

/// Goal: a client of the conduit ibv, on a machine that has no RDMA, says what to install, once, instead of starting a job.
#[test]
fn rdma_that_is_not_there() {
    if std::fs::read_dir("/sys/class/infiniband").is_ok_and(|mut devices| devices.next().is_some()) {
        eprintln!("skipped: this machine has RDMA devices");
        return;
    }
    let bench = Bench::new();
    let program = hostile(&bench, Conduit::Ibv);
    let arguments = ["exit", "1", "poll"];
    for nodes in ["1", "2"] {
        let output = program.run(3, &[("VGASNET_NODES", nodes)], &arguments);
        let errors = text_of(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(errors.contains("conduit ibv") && errors.contains("to get it: "), "{errors}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
    }
    // The same program runs over another conduit.
    let output = program.run(3, &[("VGASNET_NODES", "2"), ("VGAS_CONDUIT", "tcp")], &arguments);
    assert_eq!((output.status.code(), output.stderr.is_empty()), (Some(STATUS), true), "{output:?}");
}
