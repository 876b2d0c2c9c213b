//! The conformance suite over ibverbs: on the devices that this machine has, otherwise skipped with the reason. In a guest
//! with Soft-RoCE devices (`rma/tests/guest/run`) it runs on any machine.

mod ibv_support;

use ibv_support::{IbvFabric, skipped};
use vgas_rma::conduit::conformance::run;

#[test]
fn ibv() {
    if skipped("ibv") {
        return;
    }
    run(&IbvFabric { ranks_per_node: 1, ..IbvFabric::default() });
}

#[test]
fn ibv_with_several_ranks_a_node() {
    if skipped("ibv_with_several_ranks_a_node") {
        return;
    }
    run(&IbvFabric { ranks_per_node: 2, ..IbvFabric::default() });
}

/// Queues of the smallest size are full all the time, and every message goes through staging memory.
#[test]
fn ibv_with_small_queues() {
    if skipped("ibv_with_small_queues") {
        return;
    }
    let mut fabric = IbvFabric::default();
    fabric.options.depth = 8;
    fabric.options.receive_slots = 16;
    fabric.options.inline = 0;
    fabric.options.signal_interval = 1;
    run(&fabric);
}
