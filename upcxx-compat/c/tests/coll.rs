//! Collectives and teams.

mod support;

use support::{Bench, Conduit, Mode};

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
}
