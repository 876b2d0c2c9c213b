//! Vector, indexed and strided transfers, and what they refuse.

mod support;

use support::{Bench, Conduit, Mode, tiered};

/// Goal: random operations in every form leave exactly the bytes that a model says, between co-located ranks, between
/// nodes, and with oneself, in all thread modes, in pinned and in tiered segments.
#[test]
fn against_a_model() {
    let bench = Bench::new();
    for (mode, seed) in Mode::ALL.into_iter().zip(["1", "2", "3"]) {
        let program = bench.program("vis", Conduit::Smp, mode);
        for ranks in [1, 2, 5] {
            program.pass(ranks, &[], &[seed, "2000"]);
        }
    }
    let program = bench.program("vis", Conduit::Tcp, Mode::Par);
    program.pass(2, &[("VGASNET_NODES", "2")], &["4", "300"]);
    program.pass(8, &[("VGASNET_NODES", "3")], &["5", "100"]);
    program.pass(3, &tiered("1"), &["6", "300"]);
    program.pass(3, &tiered("2"), &["7", "300"]);
}
