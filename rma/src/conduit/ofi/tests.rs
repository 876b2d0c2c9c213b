//! The conduit over a bad network: `shim` does all that a provider may do. Skipped, visibly, if libfabric is
//! missing.

#![allow(clippy::print_stdout)]

use super::shim::Faults;
use super::{OfiConduit, OfiOptions, available, offer_of, truth};
use crate::address::{Layout, Peer};
use crate::conduit::conformance::{DIVIDED_WORDS, Fabric, WHOLE_WORDS, cases, node_domains, run};
use crate::conduit::tcp::TcpSpec;
use crate::endpoint::EndpointSpec;
use crate::key::JobKey;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::sync::Arc;

const PROVIDER: &str = "tcp;ofi_rxm";

fn skipped(test: &str, provider: &str) -> bool {
    let Err(reason) = available(provider) else { return false };
    assert!(std::env::var_os("VGAS_TEST_OFI").is_none(), "the machine is to have what this tests: {reason}");
    println!("skipped: {test}: {reason}");
    true
}

struct BadFabric(Faults);

impl Fabric for BadFabric {
    fn name(&self) -> String {
        format!("ofi over a network with {:?}", self.0)
    }

    fn connect(&self, layout: &Layout, segment_bytes: u64) -> Vec<EndpointSpec> {
        let key = JobKey::generate().unwrap();
        let listeners: Vec<_> =
            (0..layout.peers()).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let addresses: Vec<_> = listeners.iter().map(|l| l.local_addr().unwrap()).collect();
        let domains = node_domains(layout, segment_bytes);
        let spec = |(me, listener): (Peer, TcpListener)| {
            let (key, addresses) = (key.clone(), addresses.clone());
            let spec = TcpSpec { layout: layout.clone(), me, key, listener, addresses };
            let faults = Faults { seed: self.0.seed + u64::from(me.0), ..self.0.clone() };
            let options = OfiOptions { providers: vec![PROVIDER.into()], faults: Some(faults) };
            let conduit = OfiConduit::new(spec, options).unwrap();
            assert_eq!(conduit.writes(), !self.0.lies, "who lies is found out, and nobody else");
            let domain = Some(domains[layout.node_of_peer(me).0 as usize].clone());
            EndpointSpec { layout: layout.clone(), me, domain, network: Some(Arc::new(conduit)) }
        };
        (0..layout.peers()).map(Peer).zip(listeners).map(spec).collect()
    }

    fn excluded(&self, case: &str) -> Option<&'static str> {
        (case == WHOLE_WORDS).then_some(DIVIDED_WORDS)
    }
}

fn seed() -> u64 {
    let given = std::env::var("VGAS_TEST_SEED").ok().and_then(|text| text.parse().ok());
    let seed = given.unwrap_or_else(|| rand::random::<u32>().into());
    println!("VGAS_TEST_SEED={seed}");
    seed
}

/// Goal: a provider whose writes complete before they are visible is found out; one that tells the truth is believed.
#[test]
fn early_completions_are_found_out() {
    if skipped("early_completions_are_found_out", PROVIDER) {
        return;
    }
    let offer = |provider: &str| offer_of(&[provider.into()], IpAddr::V4(Ipv4Addr::LOCALHOST)).unwrap();
    let liar = Faults { seed: 1, lies: true, ..Faults::default() };
    assert!(truth::delivers(offer(PROVIDER), None).unwrap());
    assert!(!truth::delivers(offer(PROVIDER), Some(&liar)).unwrap());
}

#[test]
#[ignore = "takes long; .ci/run runs it in its section on the ofi conduit, with libfabric installed"]
fn order_and_room_are_ours() {
    if !skipped("order_and_room_are_ours", PROVIDER) {
        run(&BadFabric(Faults { seed: seed(), refused: 20, reorders: true, ..Faults::default() }));
    }
}

#[test]
#[ignore = "takes long; .ci/run runs it in its section on the ofi conduit, with libfabric installed"]
fn completion_is_ours() {
    if !skipped("completion_is_ours", PROVIDER) {
        run(&BadFabric(Faults {
            seed: seed(),
            refused: 20,
            reorders: true,
            lies: true,
            ..Faults::default()
        }));
    }
}

/// Goal: it is the numbers that keep the order: without them a case of the suite fails on the same network.
#[test]
fn without_numbers_the_order_is_lost() {
    if skipped("without_numbers_the_order_is_lost", PROVIDER) {
        return;
    }
    let (name, case) = cases()[0];
    assert!(name.contains("in order"), "{name}");
    let faults = Faults { seed: 7, reorders: true, ..Faults::default() };
    case(&BadFabric(faults.clone()));
    let broken = BadFabric(Faults { numbering_is_off: true, ..faults });
    let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| case(&broken)));
    assert!(failed.is_err(), "nothing was out of order");
}
