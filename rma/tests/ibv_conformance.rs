//! The conformance suite over ibverbs: on the devices that this machine has, otherwise skipped with the reason. In a guest
//! with Soft-RoCE devices (`rma/tests/guest/run`) it runs on any machine.

mod ibv_support;

use ibv_support::{IbvFabric, Loss, network, skipped};
use vgas_rma::conduit::conformance::{cases, run, run_those};

#[test]
fn ibv() {
    if skipped("ibv") {
        return;
    }
    run(&IbvFabric::default());
}

#[test]
fn ibv_with_several_ranks_a_node() {
    if skipped("ibv_with_several_ranks_a_node") {
        return;
    }
    run(&IbvFabric { ranks_per_node: 2, ..IbvFabric::default() });
}

/// Connected by librdmacm, over the addresses of the devices; two ranks a node, so that ranks and agents of a node connect beside
/// each other. A case of each kind: all of them see the same queue pairs once these are connected.
#[test]
fn ibv_through_librdmacm() {
    const CASES: [&str; 6] = [
        "once, in order",
        "many threads",
        "sleepers",
        "random puts and gets",
        "no atomic addition",
        "mismatch of barrier",
    ];
    let Some(network) = network("ibv_through_librdmacm") else { return };
    let mut fabric = IbvFabric { ranks_per_node: 2, ..IbvFabric::default() };
    fabric.options.network = Some(network);
    let chosen: Vec<_> =
        cases().into_iter().filter(|(name, _)| CASES.iter().any(|wanted| name.contains(wanted))).collect();
    assert_eq!(chosen.len(), CASES.len(), "a case was renamed");
    run_those(&fabric, chosen);
}

/// Queues of the smallest size are full all the time, and every message goes through staging memory. The cases that move
/// much; barriers and what comes after them do not fill anything.
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
    run_those(&fabric, cases().into_iter().take_while(|(name, _)| !name.contains("barrier")));
}

/// One packet in a hundred is lost on every wire, in both directions: the devices send it again, and nothing else may
/// change. A short timeout, because each loss costs one. In the guest only, where loss hurts nobody. Two ranks a node, so
/// that half of the traffic stays off the wire: all of it would take a quarter of an hour.
#[test]
fn ibv_over_a_lossy_wire() {
    if skipped("ibv_over_a_lossy_wire") {
        return;
    }
    let Some(_loss) = Loss::begin("ibv_over_a_lossy_wire") else { return };
    let mut fabric = IbvFabric { ranks_per_node: 2, ..IbvFabric::default() };
    fabric.options.timeout = 10;
    run(&fabric);
}
