//! What was started goes on by itself, and what has not begun does not.

mod support;

use support::{Bench, Conduit, Mode, tiered};

/// Bytes of the largest put: more than sockets and messages take at once.
const LARGEST: &str = "6000000";
/// The same for segments whose pages go through a small cache.
const LARGEST_TIERED: &str = "1500000";

/// Goal: whatever was started arrives without being synchronised, while its rank only polls, waits for a message, or
/// computes without any call; every kind of operation, over every conduit, within and between nodes.
#[test]
fn what_was_started_goes_on() {
    let bench = Bench::new();
    for (conduit, nodes, ranks) in
        [(Conduit::Smp, "1", 2), (Conduit::Smp, "2", 2), (Conduit::Tcp, "1", 2), (Conduit::Tcp, "2", 4)]
    {
        let modes = if nodes == "2" { &[Mode::Seq, Mode::Par][..] } else { &[Mode::Seq][..] };
        for &mode in modes {
            let program = bench.program("progress", conduit, mode);
            for how in ["poll", "block", "compute"] {
                program.pass(ranks, &[("VGASNET_NODES", nodes)], &[how, LARGEST, "1"]);
                program.pass(ranks, &tiered(nodes), &[how, LARGEST_TIERED, "2"]);
            }
        }
    }
}

/// Goal: no handler of a client runs before `gasnet_attach` has returned to it. Many ranks send as soon as they can, so that
/// most of them have messages while they are still inside.
#[test]
fn no_handler_before_attach_returns() {
    let bench = Bench::new();
    for (conduit, nodes) in [(Conduit::Smp, "1"), (Conduit::Tcp, "2"), (Conduit::Tcp, "4")] {
        let program = bench.program("attach", conduit, Mode::Seq);
        for _ in 0..5 {
            program.pass(8, &[("VGASNET_NODES", nodes)], &[]);
            program.pass(4, &tiered(nodes), &[]);
        }
    }
}
