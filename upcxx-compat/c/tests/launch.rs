//! How many ranks and nodes a program gets, and with how small a cache.

mod support;

use std::process::{Command, Output, Stdio};
use std::time::Duration;
use support::{Bench, Conduit, Mode, Program, finish};
use vgas_testing::pmi;

/// Runs a program with just these arguments.
fn run(program: &Program, environment: &[(&str, &str)], arguments: &[&str]) -> Output {
    let mut command = Command::new(program.path());
    command.args(arguments).envs(environment.iter().copied());
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    finish(child.expect("the program starts"), &format!("{arguments:?} {environment:?}"))
}

/// Goal: the number of ranks may be written as other spawners have it; where it is missing, what to write is said, with the
/// program's name. With VGASNET_RANKS all arguments are the program's.
#[test]
fn the_first_argument_is_the_number_of_ranks() {
    let bench = Bench::new();
    let program = bench.program("flush", Conduit::Tcp, Mode::Seq);
    let ring = bench.program("ring", Conduit::Tcp, Mode::Seq);
    for arguments in [&["2"][..], &["-n", "2"], &["-n2"], &["-np", "2"]] {
        let output = run(&ring, &[], arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    }
    let output = run(&ring, &[("VGASNET_RANKS", "2")], &["-n", "7"]);
    assert!(output.status.success(), "{output:?}");
    for arguments in [&[][..], &["-n"], &["--ranks=2"], &["few"]] {
        let output = run(&program, &[], arguments);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), error.lines().count()), (Some(1), 1), "{arguments:?}: {error}");
        assert!(error.contains(&format!("`{} 4 ...`", program.path().display())), "{error}");
        assert!(error.contains("VGASNET_RANKS=4"), "{error}");
    }
}

/// Goal: more nodes than ranks are as many nodes as ranks.
#[test]
fn no_node_is_without_a_rank() {
    let bench = Bench::new();
    for conduit in [Conduit::Smp, Conduit::Tcp] {
        let program = bench.program("ring", conduit, Mode::Par);
        program.pass(2, &[("VGASNET_NODES", "5")], &[]);
        program.pass(1, &[("VGASNET_NODES", "2"), ("VGAS_SEGMENT_KIND", "tiered")], &[]);
    }
}

/// Goal: small tests evict. The least cache, with one and two ranks a node, carries traffic of every kind over segments many times
/// as large; a page for which it is too small is told once, with what would do.
#[test]
fn the_least_cache_is_64_kib() {
    let bench = Bench::new();
    let settings = |page: &'static str, nodes: &'static str| {
        [
            ("VGAS_SEGMENT_KIND", "tiered"),
            ("VGAS_CACHE_SIZE", "64KiB"),
            ("VGAS_CACHE_PAGE", page),
            ("VGAS_SEGMENT_TIERED_MAX", "64MiB"),
            ("VGASNET_NODES", nodes),
        ]
    };
    for conduit in [Conduit::Smp, Conduit::Tcp] {
        let program = bench.program("traffic", conduit, Mode::Par);
        program.pass(2, &settings("4KiB", "2"), &["1000", "1", "1048576"]);
        program.pass(4, &settings("4KiB", "2"), &["500", "2", "1048576"]);
        let program = bench.program("extended", conduit, Mode::Par);
        program.pass(2, &settings("4KiB", "1"), &["100", "1"]);
    }
    let program = bench.program("ring", Conduit::Tcp, Mode::Par);
    for (ranks, page, size, said) in [
        (2, "64KiB", "64KiB", "set cache.size to 1MiB or more, or cache.page to less"),
        (2, "4KiB", "32KiB", "less than 64KiB"),
        (8, "4KiB", "64KiB", "set cache.size (--cache) to 184KiB or more, or cache.page (--page) to less"),
    ] {
        let mut settings = settings(page, "1");
        settings[1].1 = size;
        let output = program.run(ranks, &settings, &[]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), error.lines().count()), (Some(1), 1), "{page} {size}: {error}");
        assert!(error.contains(said), "{page} {size}: {error}");
    }
}

/// Goal: a client that `mpiexec` or `srun` has started joins their job, whatever conduit it is compiled for, takes no argument for the
/// number of ranks, and can announce its exit. The test is the starter.
#[test]
fn a_client_joins_the_job_of_another_starter() {
    let bench = Bench::new();
    for conduit in [Conduit::Smp, Conduit::Tcp] {
        let ring = bench.program("ring", conduit, Mode::Par);
        let exit = bench.program("exit", conduit, Mode::Seq);
        for nodes in [1, 2].into_iter().filter(|&nodes| nodes == 1 || conduit == Conduit::Tcp) {
            let start = |program: &Program, arguments: &[&'static str]| {
                let job = pmi::start(4, pmi::Manners::Good, |rank| {
                    let mut command = Command::new(program.path());
                    command.args(arguments).env("SLURMD_NODENAME", format!("n{}", rank % nodes));
                    command.env("VGAS_TCP_INTERFACE", "lo").env("VGAS_CACHE_SIZE", "32MiB");
                    command
                });
                job.end(Duration::from_secs(2))
            };
            let ended = start(&ring, &[]);
            assert!(ended.iter().all(|rank| rank.code == 0), "{conduit:?} {nodes}: {ended:?}");
            let all: &[&str] = &["call", "7", "-1", "barrier"];
            for ways in [all, &["signal", "7", "-1", "poll"], &["stdlib", "7", "1", "compute"]] {
                let ended = start(&exit, ways);
                // Who does not follow is ended by SIGQUIT.
                let code = |rank: &pmi::RankEnded| rank.code == 7 || (ways[2] != "-1" && rank.code != 0);
                assert!(ended.iter().all(code), "{conduit:?} {nodes} {ways:?}: {ended:?}");
                assert!(ended.iter().any(|rank| rank.code == 7), "{conduit:?} {nodes} {ways:?}: {ended:?}");
            }
        }
    }
}

/// Goal: a client's segments are pinned by whatever launcher it was started, unless its user says otherwise, and which they are is
/// printed; one that is too large names the setting to change.
#[test]
fn segments_are_pinned_unless_asked() {
    let bench = Bench::new();
    let program = bench.program("ring", Conduit::Tcp, Mode::Par);
    let told = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let verbose = ("GASNET_VERBOSEENV", "1");
    let pinned = "ENV parameter: VGAS_SEGMENT_KIND = pinned\n";
    let output = program.run(2, &[verbose], &[]);
    assert!(output.status.success() && told(&output).contains(pinned), "{output:?}");
    let output = program.run(2, &[verbose, ("VGAS_SEGMENT_KIND", "tiered")], &[]);
    assert!(told(&output).contains("VGAS_SEGMENT_KIND = tiered\n"), "{output:?}");
    let job = pmi::start(2, pmi::Manners::Good, |_| {
        let mut command = Command::new(program.path());
        command.env("VGAS_TCP_INTERFACE", "lo").env("VGAS_CACHE_SIZE", "32MiB").envs([verbose]);
        command
    });
    let ended = job.end(Duration::from_secs(2));
    assert!(ended.iter().any(|rank| rank.stderr.contains(pinned)), "{ended:?}");
    // Of the same build as the library.
    let vgas = support::library_folder().join("../vgas");
    match vgas.exists() {
        true => {
            let mut command = Command::new(vgas);
            command.args(["run", "-n", "2", "--cache", "32MiB", "--"]).arg(program.path()).envs([verbose]);
            let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
            let output = finish(child.expect("the command starts"), "vgas run");
            assert!(output.status.success() && told(&output).contains(pinned), "{output:?}");
        }
        false => eprintln!("skipped: no vgas command beside the library"),
    }
    let attach = bench.program("toolarge", Conduit::Tcp, Mode::Par);
    let output = attach.run(1, &[("VGAS_SEGMENT_PINNED_MAX", "1MiB")], &[]);
    let said = told(&output);
    assert!(said.contains("segment.pinned_max") && said.lines().count() == 1, "{output:?}");
}
