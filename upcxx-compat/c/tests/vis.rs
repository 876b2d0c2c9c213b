//! Vector, indexed and strided transfers, and what they refuse.

mod support;

use support::{Bench, Conduit, Mode, tiered};

/// Goal: pieces of a page that its owner uses, and that so stays where it is, travel together: homes do one operation for many of
/// them, not one each.
#[test]
fn pieces_of_a_page_at_its_home_travel_together() {
    let bench = Bench::new();
    let program = bench.program("pieces", Conduit::Tcp, Mode::Par);
    for ranks in [2, 4] {
        let text = program.pass(ranks, &tiered("2"), &["10"]);
        let for_each_hundred: u32 = text.trim().parse().expect("a number");
        assert!(for_each_hundred < 40, "{for_each_hundred} operations for 100 pieces");
    }
}

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
