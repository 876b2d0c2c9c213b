//! The conformance suite over libfabric, on the providers that every machine can have: `tcp;ofi_rxm`, `net` (of libfabric 1.x), and
//! shared memory, which cannot wake a sleeper. Over a network that does what a bad one may it runs beside the conduit. Where libfabric is missing this is
//! skipped, visibly. The slower ones run in `.ci/run`.

mod ofi_support;

use ofi_support::{OfiFabric, skipped};
use vgas_rma::conduit::conformance::run;

fn suite(provider: &'static str, ranks_per_node: u32) {
    if !skipped("the conformance suite", provider) {
        run(&OfiFabric { ranks_per_node, provider });
    }
}

#[test]
fn over_sockets_with_writes() {
    suite("tcp;ofi_rxm", 1);
}

#[test]
#[ignore = "takes long; .ci/run runs it in its section on the ofi conduit, with libfabric installed"]
fn over_sockets_with_writes_and_several_ranks_a_node() {
    suite("tcp;ofi_rxm", 2);
}

#[test]
#[ignore = "takes long; .ci/run runs it in its section on the ofi conduit, with libfabric installed"]
fn over_sockets_without_rxm() {
    suite("net", 1);
}

#[test]
#[ignore = "takes long; .ci/run runs it in its section on the ofi conduit, with libfabric installed"]
fn over_shared_memory() {
    suite("shm", 1);
}
