//! C programs as whole jobs, each over the conduits, thread modes and numbers of ranks that matter to it.

mod support;

use support::{Bench, Conduit, Mode};

/// Goal: the smallest client works in every configuration: it starts itself, attaches, puts, and is answered.
#[test]
fn ring() {
    let bench = Bench::new();
    for conduit in [Conduit::Smp, Conduit::Tcp] {
        for mode in Mode::ALL {
            let program = bench.program("ring", conduit, mode);
            program.pass(1, &[], &[]);
            program.pass(3, &[], &[]);
        }
    }
    let program = bench.program("ring", Conduit::Tcp, Mode::Par);
    program.pass(4, &[("VGASNET_NODES", "2")], &[]);
    program.pass(4, &[("VGASNET_NODES", "3"), ("VGAS_CONDUIT", "smp")], &[]);
}
