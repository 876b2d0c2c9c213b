//! Collectives and teams.

mod support;

use support::{Bench, Conduit, Mode, tiered};

/// Goal: random collectives, many at once and on teams that overlap, do what a model says, with every choice of
/// synchronisation and addressing; on one node and several, in all thread modes, with one and several images a rank.
#[test]
fn against_a_model() {
    let bench = Bench::new();
    for (mode, seed) in Mode::ALL.into_iter().zip(["1", "2", "3"]) {
        let program = bench.program("coll", Conduit::Smp, mode);
        for ranks in [1, 2, 3, 8] {
            program.pass(ranks, &[], &[seed, "60"]);
        }
        if mode != Mode::Seq {
            program.pass(3, &[], &[seed, "40", "3"]);
        }
    }
    let program = bench.program("coll", Conduit::Tcp, Mode::Par);
    program.pass(2, &[("VGASNET_NODES", "2")], &["4", "60"]);
    program.pass(5, &[("VGASNET_NODES", "3")], &["5", "40", "2"]);
    program.pass(3, &tiered("1"), &["6", "30", "2"]);
    program.pass(3, &tiered("2"), &["7", "30", "2"]);
}

/// Goal: the synchronisation flags hold, operations go on while a rank only polls, barriers tell mismatches.
#[test]
fn promises() {
    let bench = Bench::new();
    let program = bench.program("collrules", Conduit::Smp, Mode::Seq);
    for ranks in [1, 2, 5] {
        program.pass(ranks, &[], &["promises"]);
        program.pass(ranks, &[], &["barriers"]);
    }
    let program = bench.program("collrules", Conduit::Tcp, Mode::Par);
    for what in [&["promises"][..], &["barriers"], &["images", "3"]] {
        program.pass(4, &[("VGASNET_NODES", "2")], what);
    }
    program.pass(3, &tiered("2"), &["promises"]);
}

/// Goal: a mistake ends the job on every rank, with a line that says what is wrong.
#[test]
fn mistakes() {
    let bench = Bench::new();
    let program = bench.program("collrules", Conduit::Smp, Mode::Par);
    let cases = [
        ("bytes", "gave 8 bytes in a broadcast with root 0, of which rank 1 expects 9"),
        ("kinds", " calls a gather with root 0"),
        ("elements", "with elements of another size"),
        ("nested", "a reduction function must not begin"),
        ("function", "reduction function 9 of the 3"),
        ("rank", "a team of 2 has no member 2"),
        ("split", "is not a member of the team"),
        ("vector", "whose source has 8 bytes and whose destination has 9"),
        ("outside", "outside of the segment of node 0"),
        ("twice", "notify was called twice"),
    ];
    for (what, text) in cases {
        let output = program.run(2, &[], &[what]);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{what}: {output:?}");
        assert!(errors.contains(text), "{what}: {errors}");
    }
}

/// Goal: a rank that is killed while others wait for its part of collectives ends the job, with a line.
#[test]
fn a_killed_rank_ends_the_waits_of_others() {
    let bench = Bench::new();
    let program = bench.program("collrules", Conduit::Smp, Mode::Seq);
    for ranks in [2, 4] {
        let output = program.run(ranks, &[], &["killed"]);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{output:?}");
        assert!(errors.contains("rank 1") && errors.contains("SIGKILL"), "{errors}");
    }
}
