//! What connects the peers of a test.

use super::super::sim::{SimNetwork, SimOptions};
use super::super::smp;
use crate::address::{Layout, NodeId, Peer, RegionId};
use crate::endpoint::EndpointSpec;
use crate::shm::{Domain, DomainSpec, RegionSpec};
use std::sync::Arc;

/// Connects a set of peers in this process.
pub trait Fabric: Sync {
    /// For the output.
    fn name(&self) -> String;

    /// How so many ranks are spread. By default every rank is a node of its own, so that all of them talk through the
    /// network.
    fn layout(&self, ranks: u32) -> Layout {
        Layout::blocks(ranks, ranks)
    }

    /// Specifications of the endpoints of all peers, in order. Each rank has a pinned segment of `segment_bytes` bytes
    /// in its domain; [`node_domains`] makes them.
    ///
    /// # Panics
    /// When it cannot.
    fn connect(&self, layout: &Layout, segment_bytes: u64) -> Vec<EndpointSpec>;
}

fn domain(members: Vec<Peer>, layout: &Layout, segment_bytes: u64, ring_bytes: u64) -> Arc<Domain> {
    let ranks = members.iter().filter(|&&peer| layout.rank_of_peer(peer).is_some());
    let regions =
        ranks.map(|&owner| RegionSpec { owner, region: RegionId::SEGMENT, bytes: segment_bytes }).collect();
    let control_bytes = smp::control_bytes(members.len(), ring_bytes);
    let spec = DomainSpec { members, control_bytes, ring_bytes, regions };
    Arc::new(Domain::create(spec).expect("a shared-memory domain"))
}

/// One domain a node, by node: its ranks, each with a segment, and its agent.
///
/// # Panics
/// When shared memory is refused.
pub fn node_domains(layout: &Layout, segment_bytes: u64) -> Vec<Arc<Domain>> {
    let nodes = (0..layout.nodes()).map(NodeId);
    let domain_of = |node: NodeId| {
        let members = layout.ranks_of(node).map(Peer).chain([layout.agent_of(node)]).collect();
        domain(members, layout, segment_bytes, smp::RING_BYTES_DEFAULT)
    };
    nodes.map(domain_of).collect()
}

/// All peers in one domain.
#[derive(Clone, Copy, Debug)]
pub struct SmpFabric {
    /// Bytes of a ring: small ones are full more often.
    pub ring_bytes: u64,
}

impl Default for SmpFabric {
    fn default() -> Self {
        Self { ring_bytes: smp::RING_BYTES_DEFAULT }
    }
}

impl Fabric for SmpFabric {
    fn name(&self) -> String {
        format!("smp, rings of {} KiB", self.ring_bytes >> 10)
    }

    fn connect(&self, layout: &Layout, segment_bytes: u64) -> Vec<EndpointSpec> {
        let members = (0..layout.peers()).map(Peer).collect();
        let domain = domain(members, layout, segment_bytes, self.ring_bytes);
        let peers = (0..layout.peers()).map(Peer);
        peers
            .map(|me| EndpointSpec {
                layout: layout.clone(),
                me,
                domain: Some(domain.clone()),
                network: None,
            })
            .collect()
    }
}

/// The simulated network between nodes.
#[derive(Clone, Debug)]
pub struct SimFabric {
    /// Determines delays.
    pub seed: u64,
    /// Ranks on each node: more than one mixes shared memory and network.
    pub ranks_per_node: u32,
    /// Behaviour; it steps by polling.
    pub options: SimOptions,
}

impl Fabric for SimFabric {
    fn name(&self) -> String {
        format!("sim, seed {}, {} ranks a node", self.seed, self.ranks_per_node)
    }

    fn layout(&self, ranks: u32) -> Layout {
        Layout::blocks(ranks, ranks.div_ceil(self.ranks_per_node))
    }

    fn connect(&self, layout: &Layout, segment_bytes: u64) -> Vec<EndpointSpec> {
        let options = SimOptions { steps_by_polling: true, ..self.options.clone() };
        let network = SimNetwork::new(self.seed, layout.peers(), options).expect("a simulated network");
        let domains = node_domains(layout, segment_bytes);
        let spec = |me: Peer| EndpointSpec {
            layout: layout.clone(),
            me,
            domain: Some(domains[layout.node_of_peer(me).0 as usize].clone()),
            network: Some(network.conduit(me)),
        };
        (0..layout.peers()).map(Peer).map(spec).collect()
    }
}
