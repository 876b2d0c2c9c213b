//! The tcp conduit on loopback, for the conformance suite.

use std::net::TcpListener;
use std::sync::Arc;
use vgas_rma::conduit::conformance::{Fabric, node_domains};
use vgas_rma::conduit::tcp::{TcpConduit, TcpSpec};
use vgas_rma::endpoint::EndpointSpec;
use vgas_rma::key::JobKey;
use vgas_rma::{Layout, Peer};

pub struct TcpFabric {
    pub ranks_per_node: u32,
}

impl Fabric for TcpFabric {
    fn name(&self) -> String {
        format!("tcp, {} ranks a node", self.ranks_per_node)
    }

    fn layout(&self, ranks: u32) -> Layout {
        Layout::blocks(ranks, ranks.div_ceil(self.ranks_per_node))
    }

    fn connect(&self, layout: &Layout, segment_bytes: u64) -> Vec<EndpointSpec> {
        let key = JobKey::generate().unwrap();
        let listeners: Vec<_> =
            (0..layout.peers()).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let addresses: Vec<_> = listeners.iter().map(|l| l.local_addr().unwrap()).collect();
        let domains = node_domains(layout, segment_bytes);
        let spec = |(me, listener)| {
            let (layout, key, addresses) = (layout.clone(), key.clone(), addresses.clone());
            let domain = Some(domains[layout.node_of_peer(me).0 as usize].clone());
            let conduit = TcpSpec { layout: layout.clone(), me, key, listener, addresses };
            EndpointSpec { layout, me, domain, network: Some(Arc::new(TcpConduit::new(conduit).unwrap())) }
        };
        (0..layout.peers()).map(Peer).zip(listeners).map(spec).collect()
    }
}
