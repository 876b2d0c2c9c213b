//! What existing GASNet clients rely on without being promised it, each found with one of them.

mod support;

use support::{Bench, Conduit, Mode};

/// Goal: clients that wait without polling, or tell threads apart by their thread data, work in every configuration.
#[test]
fn habits() {
    let bench = Bench::new();
    for (conduit, nodes) in [(Conduit::Smp, "1"), (Conduit::Tcp, "2")] {
        for mode in Mode::ALL {
            let program = bench.program("habits", conduit, mode);
            program.pass(1, &[], &[]);
            program.pass(3, &[("VGASNET_NODES", nodes)], &[]);
        }
    }
}
