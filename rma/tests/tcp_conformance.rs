//! The conformance suite over tcp on loopback: one rank a node, where everything between ranks travels on sockets, and
//! two, where shared memory and sockets meet.

#[path = "tcp_support/fabric.rs"]
mod fabric;

use fabric::TcpFabric;
use vgas_rma::conduit::conformance::run;

#[test]
fn tcp() {
    run(&TcpFabric { ranks_per_node: 1 });
}

#[test]
fn tcp_with_several_ranks_a_node() {
    run(&TcpFabric { ranks_per_node: 2 });
}
