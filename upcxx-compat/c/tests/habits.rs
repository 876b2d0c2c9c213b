//! What existing GASNet clients rely on without being promised it, each found with one of them.

mod support;

use std::process::Command;
use support::{Bench, Conduit, Mode, tiered};

/// Goal: clients that wait without polling, tell threads apart by their thread data, or send pointers by the macros for
/// them, work in every configuration and with segments of both kinds.
#[test]
fn habits() {
    let bench = Bench::new();
    for (conduit, nodes) in [(Conduit::Smp, "1"), (Conduit::Tcp, "2")] {
        for mode in Mode::ALL {
            let program = bench.program("habits", conduit, mode);
            program.pass(1, &[], &[]);
            program.pass(3, &[("VGASNET_NODES", nodes)], &[]);
            program.pass(3, &tiered(nodes), &[]);
        }
    }
}

/// Goal: a runtime in C++ may include gasnet.h inside of `extern "C"`.
#[test]
fn habits_of_runtimes_in_cpp() {
    let bench = Bench::new();
    let source = support::crate_folder().join("tests/c/habits.c");
    for compiler in support::compilers("c++") {
        for standard in ["-std=c++98", "-std=c++17"] {
            let program = bench.path().join(format!("{compiler}{standard}"));
            bench.compile(compiler, &[standard, "-x", "c++"], &source, Conduit::Smp, Mode::Seq, &program);
        }
    }
}

/// Goal: a client that catches SIGQUIT decides how an interrupted job ends, but not how one ends that a rank has left.
#[test]
fn interruption() {
    let bench = Bench::new();
    for (conduit, nodes) in [(Conduit::Smp, "1"), (Conduit::Tcp, "2")] {
        let program = bench.program("interruption", conduit, Mode::Par);
        for (how, whether, status) in [
            ("interrupt", "catch", 4),
            ("interrupt", "ignore", 130),
            ("exit", "catch", 0),
            ("exit", "ignore", 0),
        ] {
            let output = program.run(3, &[("VGASNET_NODES", nodes)], &[how, whether]);
            assert_eq!(output.status.code(), Some(status), "{conduit:?} {how} {whether}: {output:?}");
        }
    }
}

/// Goal: a pointer to a function or to a global variable means the same in all ranks, also of position-independent programs.
#[test]
fn addresses() {
    if !Command::new("setarch").args(["-R", "true"]).status().is_ok_and(|status| status.success()) {
        eprintln!("skipped: this system refuses to load programs at addresses that are not random");
        return;
    }
    let bench = Bench::new();
    for (conduit, nodes) in [(Conduit::Smp, "1"), (Conduit::Tcp, "2")] {
        let program = bench.program("addresses", conduit, Mode::Seq);
        program.pass(4, &[("VGASNET_NODES", nodes)], &[]);
    }
}

/// Goal: ranks agree on the names of barriers as the specification wants it since 1.8, which existing clients check; all
/// threads may take part in those of teams.
#[test]
fn barriers() {
    let bench = Bench::new();
    for (conduit, nodes) in [(Conduit::Smp, "1"), (Conduit::Tcp, "2")] {
        for mode in [Mode::Seq, Mode::Par] {
            let program = bench.program("barriers", conduit, mode);
            program.pass(1, &[], &[]);
            program.pass(4, &[("VGASNET_NODES", nodes)], &[]);
        }
    }
}
