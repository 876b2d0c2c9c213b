//! Peers on libfabric's providers of this machine, for the tests of the ofi conduit.

#![allow(dead_code, reason = "each test file uses a part")]

use std::net::TcpListener;
use std::sync::Arc;
use vgas_rma::conduit::conformance::{DIVIDED_WORDS, Fabric, WHOLE_WORDS, node_domains};
use vgas_rma::conduit::ofi::{OfiConduit, OfiOptions, available};
use vgas_rma::conduit::tcp::TcpSpec;
use vgas_rma::endpoint::EndpointSpec;
use vgas_rma::key::JobKey;
use vgas_rma::{Layout, Peer};

/// Whether this machine lacks libfabric or this provider; says so. Where `VGAS_TEST_OFI` is set, that is a failure.
pub fn skipped(test: &str, provider: &str) -> bool {
    let Err(reason) = available(provider) else { return false };
    assert!(std::env::var_os("VGAS_TEST_OFI").is_none(), "the machine is to have what this tests: {reason}");
    println!("skipped: {test}: {reason}");
    true
}

/// Conduits of all peers of a layout, on loopback.
pub fn conduits(layout: &Layout, provider: &str) -> Vec<Arc<OfiConduit>> {
    let key = JobKey::generate().unwrap();
    let listeners: Vec<_> = (0..layout.peers()).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let addresses: Vec<_> = listeners.iter().map(|l| l.local_addr().unwrap()).collect();
    let conduit = |(me, listener)| {
        let (layout, key, addresses) = (layout.clone(), key.clone(), addresses.clone());
        let spec = TcpSpec { layout, me, key, listener, addresses };
        let options = OfiOptions { providers: vec![provider.into()] };
        Arc::new(OfiConduit::new(spec, options).unwrap())
    };
    (0..layout.peers()).map(Peer).zip(listeners).map(conduit).collect()
}

/// Every peer has a conduit over the same provider.
pub struct OfiFabric {
    pub ranks_per_node: u32,
    pub provider: &'static str,
}

impl Fabric for OfiFabric {
    fn name(&self) -> String {
        format!("ofi over {}, {} ranks a node", self.provider, self.ranks_per_node)
    }

    fn layout(&self, ranks: u32) -> Layout {
        Layout::blocks(ranks, ranks.div_ceil(self.ranks_per_node))
    }

    fn connect(&self, layout: &Layout, segment_bytes: u64) -> Vec<EndpointSpec> {
        let domains = node_domains(layout, segment_bytes);
        let spec = |(me, conduit): (Peer, Arc<OfiConduit>)| {
            let domain = Some(domains[layout.node_of_peer(me).0 as usize].clone());
            EndpointSpec { layout: layout.clone(), me, domain, network: Some(conduit) }
        };
        (0..layout.peers()).map(Peer).zip(conduits(layout, self.provider)).map(spec).collect()
    }

    fn excluded(&self, case: &str) -> Option<&'static str> {
        (case == WHOLE_WORDS).then_some(DIVIDED_WORDS)
    }
}
