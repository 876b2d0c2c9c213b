//! Peers on the RDMA devices of this machine, for the tests of the ibv conduit.

#![allow(dead_code, reason = "each test file uses a part")]

use std::net::TcpListener;
use std::sync::Arc;
use vgas_rma::conduit::conformance::{Fabric, node_domains};
use vgas_rma::conduit::ibv::{IbvConduit, IbvOptions, available, devices};
use vgas_rma::conduit::tcp::TcpSpec;
use vgas_rma::endpoint::EndpointSpec;
use vgas_rma::key::JobKey;
use vgas_rma::{Layout, Peer};

/// Whether this machine has nothing to test on; says so. In the guest, where there are devices, that is a failure.
pub fn skipped(test: &str) -> bool {
    let reason = match available() {
        Err(reason) => reason,
        Ok(()) if !devices().iter().any(|device| device.active) => "no RDMA device with an active port".into(),
        Ok(()) => return false,
    };
    assert!(std::env::var_os("VGAS_GUEST").is_none(), "the guest must have what this tests: {reason}");
    println!("skipped: {test}: {reason}");
    true
}

/// Specifications of the bootstrap of all peers, on loopback.
pub fn bootstraps(layout: &Layout) -> Vec<TcpSpec> {
    let key = JobKey::generate().unwrap();
    let listeners: Vec<_> = (0..layout.peers()).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let addresses: Vec<_> = listeners.iter().map(|l| l.local_addr().unwrap()).collect();
    let spec = |(me, listener)| {
        let (layout, key, addresses) = (layout.clone(), key.clone(), addresses.clone());
        TcpSpec { layout, me, key, listener, addresses }
    };
    (0..layout.peers()).map(Peer).zip(listeners).map(spec).collect()
}

/// Conduits of all peers of a layout.
pub fn conduits(layout: &Layout, options: &IbvOptions) -> Vec<Arc<IbvConduit>> {
    let conduit = |spec| Arc::new(IbvConduit::new(spec, options.clone()).unwrap());
    bootstraps(layout).into_iter().map(conduit).collect()
}

/// Every peer has a conduit on the device that its node's number chooses.
#[derive(Default)]
pub struct IbvFabric {
    /// More than one mixes shared memory and network; 0 is 1.
    pub ranks_per_node: u32,
    pub options: IbvOptions,
}

impl Fabric for IbvFabric {
    fn name(&self) -> String {
        format!("ibv, {} ranks a node, queues of {}", self.ranks_per_node.max(1), self.options.depth)
    }

    fn layout(&self, ranks: u32) -> Layout {
        Layout::blocks(ranks, ranks.div_ceil(self.ranks_per_node.max(1)))
    }

    fn connect(&self, layout: &Layout, segment_bytes: u64) -> Vec<EndpointSpec> {
        let domains = node_domains(layout, segment_bytes);
        let conduits = conduits(layout, &self.options);
        let spec = |(me, conduit): (Peer, Arc<IbvConduit>)| {
            let domain = Some(domains[layout.node_of_peer(me).0 as usize].clone());
            EndpointSpec { layout: layout.clone(), me, domain, network: Some(conduit) }
        };
        (0..layout.peers()).map(Peer).zip(conduits).map(spec).collect()
    }
}
