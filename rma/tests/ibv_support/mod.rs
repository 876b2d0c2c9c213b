//! Peers on the RDMA devices of this machine, for the tests of the ibv conduit.

#![allow(dead_code, reason = "each test file uses a part")]

use std::net::TcpListener;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use vgas_rma::conduit::conformance::{Fabric, WHOLE_WORDS, node_domains};
use vgas_rma::conduit::ibv::{IbvConduit, IbvOptions, Network, available, cm_available, devices};
use vgas_rma::conduit::tcp::TcpSpec;
use vgas_rma::conduit::{Conduit, Sent, Traffic};
use vgas_rma::endpoint::EndpointSpec;
use vgas_rma::error::Result;
use vgas_rma::key::JobKey;
use vgas_rma::message::{Delivery, Destination, Direction, Message, Payload, Sink};
use vgas_rma::{Layout, Peer, RegionId, RmaError};
use vgas_shm::{Mapping, Span};

/// Whether this machine has nothing to test on; says so. In the guest, where there are devices, that is a failure.
pub fn skipped(test: &str) -> bool {
    let reason = match available() {
        Err(reason) => reason,
        Ok(()) if !devices().iter().any(|device| device.active) => {
            "no RDMA device with an active port".into()
        }
        Ok(()) => return false,
    };
    assert!(std::env::var_os("RXE_GUEST").is_none(), "the guest must have what this tests: {reason}");
    println!("skipped: {test}: {reason}");
    true
}

/// The network of this machine's RDMA devices, for librdmacm: that of the guest, or as `VGAS_TEST_IBV_NETWORK` says. None: the test
/// is skipped, which was said; in the guest that is a failure.
pub fn network(test: &str) -> Option<Network> {
    if skipped(test) {
        return None;
    }
    let is_guest = std::env::var_os("RXE_GUEST").is_some();
    let guest = is_guest.then(|| "10.9.0.0/24".to_owned());
    match (cm_available(), std::env::var("VGAS_TEST_IBV_NETWORK").ok().or(guest)) {
        (Ok(()), Some(network)) => Some(network.parse().unwrap()),
        (missing, _) => {
            assert!(!is_guest, "the guest must have what this tests: {missing:?}");
            println!(
                "skipped: {test}: no librdmacm, or nobody says with VGAS_TEST_IBV_NETWORK where the devices are"
            );
            None
        }
    }
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
pub struct IbvFabric {
    /// More than one mixes shared memory and network; 0 is 1.
    pub ranks_per_node: u32,
    pub options: IbvOptions,
}

/// Settings under which nobody is taken for lost who answers within some two seconds: a device whose processor is emulated, beside others
/// that want its cores, may answer late.
pub fn patient() -> IbvOptions {
    IbvOptions { timeout: 16, retries: 7, ..IbvOptions::default() }
}

impl Default for IbvFabric {
    /// One rank a node; [`patient`].
    fn default() -> Self {
        Self { ranks_per_node: 1, options: patient() }
    }
}

impl Fabric for IbvFabric {
    fn name(&self) -> String {
        let through = if self.options.network.is_some() { ", through librdmacm" } else { "" };
        format!("ibv{through}, {} ranks a node, queues of {}", self.ranks_per_node.max(1), self.options.depth)
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

    fn excluded(&self, case: &str) -> Option<&'static str> {
        let reason = "packets of a transfer that begins within a word divide words (seen on Soft-RoCE)";
        (case == WHOLE_WORDS).then_some(reason)
    }
}

/// Every wait of a test ends after this; the guest emulates its processor.
pub const BOUND: Duration = Duration::from_secs(40);

/// A sink with a region of its own, memory for one operation, and counts of what came.
pub struct Memory {
    pub region: Arc<Mapping>,
    pub operation: Arc<Mapping>,
    pub delivered: AtomicUsize,
    /// Of the last message.
    pub arguments: Mutex<Vec<u32>>,
    pub completed: AtomicUsize,
    /// Who is asked to answer requests, by a reply of the same handler.
    pub answers: Option<Arc<IbvConduit>>,
}

impl Memory {
    pub fn new(answers: Option<Arc<IbvConduit>>) -> Self {
        let memory = |name| Mapping::anonymous(name, 1 << 20).unwrap();
        let (region, operation) = (memory("region"), memory("operation"));
        let (delivered, completed) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { region, operation, delivered, arguments: Mutex::default(), completed, answers }
    }
}

// SAFETY: the range is checked; the memory outlives the conduit.
unsafe impl vgas_rma::conduit::Trusted for Memory {}

impl Sink for Memory {
    fn destination(&self, _: Peer, destination: Destination, bytes: usize) -> Result<*mut u8> {
        let (memory, offset) = match destination {
            Destination::Region { offset, .. } => (&self.region, offset),
            Destination::Operation { offset, .. } => (&self.operation, offset),
        };
        assert!(memory.contains(offset, bytes as u64), "the conduit has checked the range");
        Ok(memory.base().wrapping_add(offset as usize))
    }

    fn region(&self, _: Peer, _: Peer, region: RegionId) -> Option<Span> {
        [RegionId::SEGMENT, RegionId::BLOCKS].contains(&region).then(|| self.region.span(0, 1 << 20))
    }

    fn completed(&self, _: Peer, _: u64) -> Result<()> {
        self.completed.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn deliver(&self, delivery: Delivery<'_>) -> Result<()> {
        *self.arguments.lock().unwrap() = delivery.arguments.to_vec();
        self.delivered.fetch_add(1, Ordering::SeqCst);
        if let (Some(conduit), Direction::Request) = (&self.answers, delivery.direction) {
            let answer = short(Direction::Reply, delivery.arguments);
            assert_eq!(conduit.try_send(delivery.from, &answer)?, Sent::Accepted, "a reply finds room");
        }
        Ok(())
    }
}

/// A message without a payload.
pub fn short(direction: Direction, arguments: &[u32]) -> Message<'_> {
    Message { direction, handler: 1, arguments, payload: Payload::Short }
}

/// Conduits of two ranks on two nodes, with their sinks; the second answers requests.
pub fn pair(options: &IbvOptions) -> [(Arc<IbvConduit>, Memory); 2] {
    let mut conduits = conduits(&Layout::blocks(2, 2), options).into_iter();
    let (a, b) = (conduits.next().unwrap(), conduits.next().unwrap());
    [(a, Memory::new(None)), (b.clone(), Memory::new(Some(b)))]
}

/// Polls all until the condition holds.
pub fn poll_until(peers: &[&(Arc<IbvConduit>, Memory)], what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        for (conduit, sink) in peers {
            conduit.poll(sink, Traffic::Everything).unwrap_or_else(|e| panic!("waiting for {what}: {e}"));
        }
        assert!(start.elapsed() < BOUND, "waited too long for {what}");
    }
}

/// Polls until there is an error.
pub fn poll_error((conduit, sink): &(Arc<IbvConduit>, Memory)) -> RmaError {
    let start = Instant::now();
    loop {
        if let Err(error) = conduit.poll(sink, Traffic::Everything) {
            return error;
        }
        assert!(start.elapsed() < BOUND, "no error came");
    }
}

/// Loss of one packet in a hundred on every wire, as long as it lives: also a case that fails leaves good wires to the next test.
pub struct Loss;

impl Loss {
    fn wires(action: &str) -> bool {
        let tc = |index| {
            let wire = format!("eth{index}");
            let words = ["qdisc", action, "dev", &wire, "root", "netem", "loss", "1%"];
            Command::new("tc").args(words).status().is_ok_and(|status| status.success())
        };
        (0..devices().len()).all(tc)
    }

    /// In the guest only, where it hurts nobody; elsewhere it says that the test is skipped.
    pub fn begin(test: &str) -> Option<Self> {
        if std::env::var_os("RXE_GUEST").is_none() {
            println!("skipped: {test}: would disturb this machine's network");
            return None;
        }
        assert!(Self::wires("add"), "tc qdisc add");
        Some(Self)
    }
}

impl Drop for Loss {
    fn drop(&mut self) {
        assert!(Self::wires("delete") || std::thread::panicking(), "tc qdisc delete");
    }
}
