//! Small print of the specification.

mod support;

use support::{Bench, Conduit, Mode, tiered};

/// Goal: what the specification says in passing holds: transfers of nothing, arrays of handles, arguments of macros, outcomes
/// of barriers, wait modes, aggregated collectives, and how little a rank holds that calls late.
#[test]
fn clauses() {
    let bench = Bench::new();
    for mode in Mode::ALL {
        let program = bench.program("clauses", Conduit::Smp, mode);
        program.pass(1, &[], &[]);
        program.pass(2, &[], &[]);
    }
    let program = bench.program("clauses", Conduit::Smp, Mode::Seq);
    program.pass(5, &[], &[]);
    program.pass(2, &tiered("1"), &[]);
    let program = bench.program("clauses", Conduit::Tcp, Mode::Par);
    program.pass(2, &[("VGASNET_NODES", "2")], &[]);
    program.pass(4, &[("VGASNET_NODES", "2")], &[]);
    program.pass(3, &tiered("2"), &[]);
}

/// Goal: what is compiled into clients leaves them as they were written, however they are optimised.
#[test]
fn clauses_optimised() {
    let bench = Bench::new();
    let source = support::crate_folder().join("tests/c/clauses.c");
    for compiler in support::compilers("c") {
        let program = bench.program_with(compiler, &["-O3"], &source, Conduit::Smp, Mode::Seq);
        program.pass(2, &[], &[]);
    }
}

/// Goal: what the specification forbids, and this library can see, ends the job with a line that says so.
#[test]
fn mistakes() {
    let bench = Bench::new();
    let program = bench.program("clauses", Conduit::Smp, Mode::Seq);
    let cases = [
        ("nested", "access regions do not nest"),
        ("inside", "not synchronised inside of an access region"),
        ("unbegun", "an access region was ended that was not begun"),
        ("unnotified", "waited for after it was notified"),
        ("notified", "was notified and not waited for"),
    ];
    for (what, text) in cases {
        let output = program.run(1, &[], &[what]);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{what}: {output:?}");
        assert!(errors.contains(text), "{what}: {errors}");
    }
}
