//! The nodes of a simulated job, and letting them take turns.

use super::plan::{PAGE, PAGE_MAX, Plan};
use super::sabotage::Saboteur;
use super::{Finding, invariant};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use std::fmt::Write;
use std::sync::{Arc, Mutex};
use vgas_cache::agent::driver;
use vgas_cache::agent::{Agent, AgentOptions};
use vgas_cache::client::{Client, ClientOptions};
use vgas_cache::page::PageIndex;
use vgas_cache::pool::{Fences, MAPPED_PAGES_MIN, PoolAgent, PoolClient, PoolSpec, TableLayout};
use vgas_cache::protocol::home;
use vgas_cache::read_ahead::ReadAheadSettings;
use vgas_cache::{CacheError, region};
use vgas_nvm::Volume;
use vgas_nvm::device::Device;
use vgas_nvm::device::faulty::FaultyDevice;
use vgas_nvm::device::memory::{MemoryDevice, MemoryDisk};
use vgas_rma::RmaError;
use vgas_rma::address::{Layout, NodeId, Rank};
use vgas_rma::conduit::sim::{SimNetwork, SimOptions};
use vgas_rma::endpoint::{Endpoint, EndpointSpec};
use vgas_shm::Mapping;

/// A node: its agent and what it stands on.
pub struct Node {
    /// Its shards.
    pub agents: Vec<Agent>,
    pub endpoint: Arc<Endpoint>,
    pub disk: MemoryDisk,
}

/// A rank: its client and what it stands on.
pub struct Member {
    pub client: Client,
    pub endpoint: Arc<Endpoint>,
    pub pool: Arc<PoolClient>,
    /// The frames of its node, for what pointers show.
    pub frames: Arc<Mapping>,
    pub agent: vgas_rma::address::Peer,
}

/// All nodes, and the network between them.
pub struct Cluster {
    pub layout: Layout,
    pub network: Arc<SimNetwork>,
    pub nodes: Vec<Node>,
    /// Rows of the tables that were taken, for `protocol::trace::replay`.
    pub rows: Arc<Mutex<String>>,
    pub milliseconds: u64,
    pub turns: u64,
    /// The node that was cut off.
    pub lost: Option<NodeId>,
    /// Errors that name it, by node: an agent that has failed stands still.
    pub failed: Vec<Option<CacheError>>,
}

impl Cluster {
    /// Builds everything; nothing has happened yet.
    pub fn new(plan: &Plan) -> (Self, Vec<Member>) {
        let layout = Layout::blocks(plan.ranks, plan.nodes);
        let options = SimOptions {
            delay_steps: 1..=plan.delay_max,
            requests_max: plan.requests_max,
            ..SimOptions::default()
        };
        let network = SimNetwork::new(plan.seed, layout.peers(), options).expect("a network");
        let rows = Arc::new(Mutex::new(String::new()));
        let (mut nodes, mut members) = (Vec::new(), Vec::new());
        for node in (0..plan.nodes).map(NodeId) {
            let spec = PoolSpec {
                page_bytes: PAGE as u32,
                frames: plan.frames,
                page_bytes_max: PAGE_MAX,
                segment_pages_max: plan.pages_max(),
                local_ranks: layout.ranks_of(node).len() as u32,
                wait_slots_per_rank: 8,
                hazard_slots_per_rank: 2,
                mapped_pages_per_rank: MAPPED_PAGES_MIN,
                agent_threads: plan.agent_threads,
                block_pages: plan.block_pages,
            };
            let sizes = TableLayout::new(&spec).expect("a layout");
            let table = Mapping::anonymous("table", sizes.table_bytes()).expect("memory");
            let frames = Mapping::anonymous("frames", sizes.frames_bytes()).expect("memory");
            let pool = PoolAgent::create(&spec, table.clone(), frames.clone(), Fences::Symmetric);
            nodes.push(Node::new(plan, &layout, &network, node, pool.expect("a pool"), &frames, &rows));
            for local_rank in 0..spec.local_ranks {
                let pool = PoolClient::attach(&spec, table.clone(), frames.clone(), local_rank);
                let rank = Rank(layout.ranks_of(node).start + local_rank);
                let pool = Arc::new(pool.expect("a pool"));
                let disk = &nodes[node.0 as usize].disk;
                members.push(Member::new(plan, &layout, &network, rank, pool, frames.clone(), disk));
            }
        }
        let failed = nodes.iter().map(|_| None).collect();
        (Self { layout, network, nodes, rows, milliseconds: 0, turns: 0, lost: None, failed }, members)
    }

    /// Somebody does something.
    pub fn turn(&mut self, random: &mut ChaCha8Rng) -> Result<(), Finding> {
        self.turns += 1;
        match random.random_range(0..8) {
            0 | 1 => {
                self.network.step();
            }
            2 if random.random_range(0..8) == 0 => {
                self.milliseconds += 1;
                for node in &mut self.nodes {
                    node.simulate_time(self.milliseconds * 1_000_000);
                }
            }
            _ => {
                let node = random.random_range(0..self.nodes.len());
                let shards = self.nodes[node].agents.len();
                let shard = if shards > 1 { random.random_range(0..shards) } else { 0 };
                // What an agent did shows at once. In turns without work only ranks change something, and what they
                // do wrong stays: the look at every page, which is most of this suite's work, can wait for a few of them.
                if self.turn_of(node, shard)? || self.turns.is_multiple_of(16) {
                    invariant::check(self)?;
                }
            }
        }
        Ok(())
    }

    /// For people: where the pages are, and the last rows that were taken.
    pub fn describe(&self) -> String {
        let mut text = String::new();
        for (number, node) in self.nodes.iter().enumerate() {
            let pool = node.pool();
            let entries: Vec<_> = (0..pool.layout().pages())
                .filter_map(|page| pool.entry(PageIndex(page)).ok().map(|entry| (page, entry)))
                .filter(|(_, entry)| entry.word() != 0)
                .collect();
            writeln!(text, "node {number}: {pool:?}, {entries:?}").expect("memory");
        }
        let rows = self.rows.lock().expect("one thread");
        let last: Vec<&str> = rows.lines().rev().take(40).collect();
        last.iter().rev().for_each(|row| writeln!(text, "{row}").expect("memory"));
        text
    }

    /// A shard of one node's agent does what it can.
    pub fn turn_of(&mut self, node: usize, shard: usize) -> Result<bool, Finding> {
        if self.failed[node].is_some() {
            return Ok(false);
        }
        let Node { agents, endpoint, .. } = &mut self.nodes[node];
        match driver::turn(&mut agents[shard], endpoint) {
            Err(error) if self.is_the_loss(&error) => {
                self.failed[node] = Some(error);
                Ok(true)
            }
            other => {
                other.map_err(|error| Finding::new("an agent has failed", format!("node {node}: {error}")))
            }
        }
    }

    /// One node's agent does what it can, all of its shards; the first error.
    pub fn turn_of_all(&mut self, node: usize) -> Result<bool, Finding> {
        let mut any = false;
        for shard in 0..self.nodes[node].agents.len() {
            any |= self.turn_of(node, shard)?;
        }
        Ok(any)
    }

    /// Cuts a node off, its ranks with it.
    pub fn lose(&mut self, node: NodeId) {
        self.lost = Some(node);
        let ranks = self.layout.ranks_of(node).map(|rank| self.layout.peer_of_rank(Rank(rank)));
        ranks.chain([self.layout.agent_of(node)]).for_each(|peer| self.network.lose(peer));
    }

    /// Whether an error says that the node that was cut off is lost.
    pub fn is_the_loss(&self, error: &CacheError) -> bool {
        match error {
            CacheError::Rma(RmaError::PeerLost { peer, .. }) => {
                Some(self.layout.node_of_peer(*peer)) == self.lost
            }
            _ => false,
        }
    }

    /// Lets everybody go on until nobody has anything to do. The clock goes on, too: reservations end.
    pub fn settle(&mut self, members: &[Member], turns_max: u64) -> Result<(), Finding> {
        let mut idle = 0;
        let end = self.turns + turns_max;
        while idle < 40 {
            self.network.step();
            self.milliseconds += 1;
            let mut any = self.network.in_flight() > 0;
            // What still comes for an operation that has failed.
            for member in members {
                member.poll().map_err(|e| Finding::new("a rank has failed", e.to_string()))?;
            }
            for node in 0..self.nodes.len() {
                self.nodes[node].simulate_time(self.milliseconds * 1_000_000);
                any |= self.turn_of_all(node)?;
                for agent in &mut self.nodes[node].agents {
                    any |= agent.busy() || agent.volume().in_flight() > 0;
                }
            }
            invariant::check(self)?;
            self.turns += 1;
            idle = if any { 0 } else { idle + 1 };
            if self.turns > end {
                return Err(Finding::new("the agents do not come to rest", format!("{turns_max} turns")));
            }
        }
        Ok(())
    }
}

impl Node {
    fn new(
        plan: &Plan,
        layout: &Layout,
        network: &Arc<SimNetwork>,
        node: NodeId,
        pool: PoolAgent,
        frames: &Arc<Mapping>,
        rows: &Arc<Mutex<String>>,
    ) -> Self {
        let me = layout.agent_of(node);
        let disk = MemoryDisk::new();
        if let Some(bytes) = plan.disk_bytes_max {
            disk.limit_space(bytes);
        }
        let device = |shard: u32| -> Box<dyn Device> {
            let seed = plan.seed ^ u64::from(node.0) ^ u64::from(shard) << 32;
            let device = MemoryDevice::disordered(&disk, 8, seed).expect("a device");
            match &plan.disk {
                Some(script) if node.0 == 0 => Box::new(FaultyDevice::new(Box::new(device), script)),
                _ => Box::new(device),
            }
        };
        let first = Volume::over(device(0), PAGE as u32, true).expect("a volume");
        let others: Vec<Volume> =
            (1..plan.agent_threads).map(|shard| first.another_over(device(shard))).collect();
        let volumes = std::iter::once(first).chain(others).collect();
        let conduit = match plan.sabotage {
            Some(sabotage) => Saboteur::wrap(network.conduit(me), layout.peers(), sabotage),
            None => network.conduit(me),
        };
        let spec = EndpointSpec { layout: layout.clone(), me, domain: None, network: Some(conduit) };
        let endpoint = Endpoint::new(spec).expect("an endpoint");
        endpoint.expose(region::FRAMES, frames.clone()).expect("exposed once");
        let options = || {
            Some(AgentOptions {
                home: home::Parameters {
                    cooperative: plan.cooperative,
                    in_place: plan.in_place,
                    ..home::Parameters::of(node)
                },
                replacement: plan.replacement,
                read_ahead: plan.read_ahead.then(|| read_ahead(plan)),
                batch: plan.batch,
                parts: plan.parts(),
                self_service: plan.self_service,
                read_nearest: plan.read_nearest,
            })
        };
        let mut agents = Agent::in_shards(layout.clone(), node, pool, volumes, options).expect("shards");
        driver::register(&agents[0], &endpoint).expect("handlers");
        endpoint.open();
        for agent in &mut agents {
            agent.simulate_time(0);
            let rows = rows.clone();
            agent.observe(move |row| {
                let mut rows = rows.lock().expect("one thread");
                writeln!(rows, "{row}").expect("memory");
            });
        }
        Self { agents, endpoint, disk }
    }

    /// The node's pool, as its first shard sees it.
    pub fn pool(&self) -> &PoolAgent {
        self.agents[0].pool()
    }

    pub fn simulate_time(&mut self, nanoseconds: u64) {
        self.agents.iter_mut().for_each(|agent| agent.simulate_time(nanoseconds));
    }
}

fn read_ahead(plan: &Plan) -> ReadAheadSettings {
    ReadAheadSettings { page_bytes: PAGE as u32, pool_frames: plan.frames, window_bytes_max: 1 << 20 }
}

impl Member {
    fn new(
        plan: &Plan,
        layout: &Layout,
        network: &Arc<SimNetwork>,
        rank: Rank,
        pool: Arc<PoolClient>,
        frames: Arc<Mapping>,
        disk: &MemoryDisk,
    ) -> Self {
        let me = layout.peer_of_rank(rank);
        let spec =
            EndpointSpec { layout: layout.clone(), me, domain: None, network: Some(network.conduit(me)) };
        let endpoint = Endpoint::new(spec).expect("an endpoint");
        // A seed replays what it did: only the plan makes things go on.
        endpoint.stop_background();
        let handlers = Client::register(&endpoint).expect("handlers");
        endpoint.open();
        let options = ClientOptions {
            whole_page_put: plan.whole_page_put,
            window_pages_max: plan.window_pages_max,
            parts: plan.parts(),
            self_service: plan.self_service,
            read_ahead: plan.read_ahead.then(|| read_ahead(plan)),
        };
        let client = Client::new(endpoint.clone(), handlers, pool.clone(), layout.clone(), options);
        let device = MemoryDevice::disordered(disk, 8, plan.seed ^ u64::from(rank.0)).expect("a device");
        client.set_reader(vgas_nvm::Reader::over(Box::new(device)));
        let agent = layout.agent_of(layout.node_of(rank));
        Self { client, endpoint, pool, frames, agent }
    }

    /// Takes in what has arrived.
    pub fn poll(&self) -> Result<(), CacheError> {
        self.endpoint.poll()?;
        Ok(())
    }
}
