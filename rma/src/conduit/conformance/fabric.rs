//! Connections between the peers of a test.

use super::super::Conduit;
use super::super::sim::{SimNetwork, SimOptions};
use super::super::smp::{self, SmpConduit};
use super::further;
use super::trouble::HOSTILE_DESTINATIONS;
use crate::address::{Layout, NodeId, Peer, RegionId};
use crate::domain::{Domain, DomainSpec, RegionSpec};
use crate::endpoint::EndpointSpec;
use std::sync::Arc;

/// Connects a set of peers in this process.
pub trait Fabric: Sync {
    /// For the output.
    fn name(&self) -> String;

    /// Returns a layout of this number of ranks. By default every rank is a node of its own, so that all of
    /// them talk through the network.
    fn layout(&self, ranks: u32) -> Layout {
        Layout::blocks(ranks, ranks)
    }

    /// Specifications of the endpoints of all peers, in order. Each rank has a pinned segment of `segment_bytes` bytes
    /// in its domain; [`node_domains`] makes them.
    ///
    /// # Panics
    /// If it cannot.
    fn connect(&self, layout: &Layout, segment_bytes: u64) -> Vec<EndpointSpec>;

    /// Why a case, by its name, does not apply; none: it does. It is printed.
    fn excluded(&self, _case: &str) -> Option<&'static str> {
        None
    }
}

fn domain(members: Vec<Peer>, layout: &Layout, segment_bytes: u64, ring_bytes: u64) -> Arc<Domain> {
    let ranks = members.iter().filter(|&&peer| layout.rank_of_peer(peer).is_some());
    let regions =
        ranks.map(|&owner| RegionSpec { owner, region: RegionId::SEGMENT, bytes: segment_bytes }).collect();
    let control_bytes = smp::control_bytes(members.len(), ring_bytes);
    let spec = DomainSpec { members, control_bytes, ring_bytes, regions, common_bytes: 0 };
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

/// Shared memory in the place of the network: every rank is a node of its own, whose domain has its segment, and all of them
/// are members of one more domain, over which they talk.
#[derive(Clone, Copy, Debug, Default)]
pub struct SmpNetworkFabric;

impl SmpNetworkFabric {
    /// A domain of one node whose regions are those of the domain of all.
    fn node_domain(layout: &Layout, node: NodeId, all: &Domain) -> Arc<Domain> {
        let members: Vec<_> = layout.ranks_of(node).map(Peer).chain([layout.agent_of(node)]).collect();
        let of_node = |region: &&RegionSpec| members.contains(&region.owner);
        let regions: Vec<_> = all.spec().regions.iter().filter(of_node).cloned().collect();
        let bare = domain(members, layout, 0, smp::RING_BYTES_DEFAULT);
        let own = bare.files().take(1 + bare.spec().members.len());
        let shared = regions.iter().filter_map(|region| all.region_file(region.owner, region.region));
        let files =
            own.chain(shared).map(|file| file.try_clone_to_owned().expect("a descriptor more")).collect();
        let spec = DomainSpec { regions, ..bare.spec().clone() };
        Arc::new(Domain::open(spec, files).expect("a shared-memory domain"))
    }
}

impl Fabric for SmpNetworkFabric {
    fn name(&self) -> String {
        "smp between nodes".into()
    }

    fn connect(&self, layout: &Layout, segment_bytes: u64) -> Vec<EndpointSpec> {
        let peers = || (0..layout.peers()).map(Peer);
        let all = domain(peers().collect(), layout, segment_bytes, smp::RING_BYTES_DEFAULT);
        let nodes: Vec<_> =
            (0..layout.nodes()).map(|node| Self::node_domain(layout, NodeId(node), &all)).collect();
        let spec = |me: Peer| EndpointSpec {
            layout: layout.clone(),
            me,
            domain: Some(nodes[layout.node_of_peer(me).0 as usize].clone()),
            network: Some(Arc::new(SmpConduit::new(all.clone(), me).expect("a member"))),
        };
        peers().map(spec).collect()
    }

    fn excluded(&self, case: &str) -> Option<&'static str> {
        let reason = "whoever shares the memory writes by itself; an endpoint holds destinations in its own domain against what \
                      is attached, and this is another domain";
        let of_parts =
            "where a part of a further segment lies is said in the domain of its owner, and this is another";
        let is_of_parts = further::CASES.iter().any(|(name, _)| *name == case);
        (case == HOSTILE_DESTINATIONS).then_some(reason).or_else(|| is_of_parts.then_some(of_parts))
    }
}

/// Puts something around the conduits between nodes of another fabric.
pub struct HookedFabric<F, W> {
    /// The wrapped fabric.
    pub inner: F,
    /// Its name, for the output.
    pub name: &'static str,
    /// Puts it around the conduit of a peer; in a job with this layout.
    pub wrap: W,
}

impl<F, W> Fabric for HookedFabric<F, W>
where
    F: Fabric,
    W: Fn(Arc<dyn Conduit>, Peer, &Layout) -> Arc<dyn Conduit> + Sync,
{
    fn name(&self) -> String {
        format!("{}, {}", self.inner.name(), self.name)
    }

    fn layout(&self, ranks: u32) -> Layout {
        self.inner.layout(ranks)
    }

    fn connect(&self, layout: &Layout, segment_bytes: u64) -> Vec<EndpointSpec> {
        let mut specs = self.inner.connect(layout, segment_bytes);
        for spec in &mut specs {
            spec.network = spec.network.take().map(|network| (self.wrap)(network, spec.me, layout));
        }
        specs
    }

    fn excluded(&self, case: &str) -> Option<&'static str> {
        self.inner.excluded(case)
    }
}
