//! The conformance suite over the conduits that need no set-up of their own: shared memory and the simulated network.

use vgas_rma::conduit::conformance::{SimFabric, SmpFabric, run};
use vgas_rma::conduit::sim::SimOptions;
use vgas_rma::conduit::smp::RING_BYTES_MIN;

#[test]
fn smp() {
    run(&SmpFabric::default());
}

/// Rings of the smallest size are full, and wrap, all the time.
#[test]
fn smp_with_small_rings() {
    run(&SmpFabric { ring_bytes: RING_BYTES_MIN });
}

#[test]
fn sim() {
    run(&SimFabric { seed: 1, ranks_per_node: 1, options: SimOptions::default() });
}

/// Shared memory within nodes and a network between them: barriers have leaders, gets are answered in mediums.
#[test]
fn sim_with_several_ranks_a_node() {
    let options = SimOptions { long_to_operation: false, reorder_classes: false, ..SimOptions::default() };
    run(&SimFabric { seed: 2, ranks_per_node: 2, options });
}
