//! The simulated nodes: each a whole agent, a whole rank, a pool, and nothing of its own but the machine's time.
//!
//! One thread lets them take turns. Time goes from one event to the next: a message that arrives, a drive
//! that is done, a processor that is free. So no thread waits, and the same seed gives the same run.

use super::drive::Drive;
use super::machine::{CONTENT, Machine, Rating};
use crate::suite::job::Result;
use rustix::event::{EventfdFlags, eventfd};
use std::sync::Arc;
use vgas_cache::agent::{Agent, AgentOptions, driver};
use vgas_cache::client::{Client, ClientOptions};
use vgas_cache::parts::Limits;
use vgas_cache::pool::{
    CounterSnapshot, Fences, MAPPED_PAGES_MIN, PoolAgent, PoolClient, PoolSpec, TableLayout,
};
use vgas_cache::protocol::{InPlaceService, home};
use vgas_cache::read_ahead::ReadAheadSettings;
use vgas_cache::{region, replacement};
use vgas_nvm::Volume;
use vgas_rma::conduit::sim::{SimNetwork, SimOptions, Timing};
use vgas_rma::endpoint::{Endpoint, EndpointSpec};
use vgas_rma::{Layout, NodeId, Peer, Rank, RmaError};
use vgas_shm::Mapping;

/// Messages on one way; more wait with their sender, as they do where a connection's buffers are full.
const REQUESTS_MAX: usize = 256;

/// Runs of pages of an NVMe operation, in bytes.
const RUN_BYTES_MAX: u64 = 1 << 20;

/// After so many polls in vain an endpoint looks at its network in every eighth.
const POLLS: usize = 8;

/// Longest idle time while a rank waits, in events of a millisecond.
const STALLED_MS: u32 = 2000;

/// Parameters of a simulation.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub seed: u64,
    pub nodes: u32,
    /// Pages that a node's cache holds.
    pub frames: u32,
    /// Pages of each partition, and of how many ranks, from the first on.
    pub pages: u64,
    pub owners: u32,
    pub cooperative: bool,
    pub in_place: bool,
    pub rating: Rating,
}

/// A rank: its client and what it stands on.
pub struct Member {
    pub client: Client,
    pub endpoint: Arc<Endpoint>,
    pub pool: Arc<PoolClient>,
    pub me: Peer,
    pub agent: Peer,
}

/// The agents, and the network between all.
pub struct Cluster {
    pub layout: Layout,
    pub machine: Arc<Machine>,
    network: Arc<SimNetwork>,
    agents: Vec<(Agent, Arc<Endpoint>)>,
}

/// Outcome of a rank's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It waits for others.
    Waits,
    /// It goes on then.
    Until(u64),
    /// It has ended.
    Over,
}

/// The ranks' program: each call advances one of them.
pub type Act<'a> = dyn FnMut(usize) -> Result<Turn> + 'a;

impl Cluster {
    /// Builds everything; nothing has happened yet.
    ///
    /// # Errors
    /// The system is short of descriptors or memory.
    pub fn new(plan: &Plan) -> Result<(Self, Vec<Member>)> {
        let layout = Layout::blocks(plan.nodes, plan.nodes);
        let machine = Arc::new(Machine::new(plan.rating, layout.clone()));
        let options = SimOptions {
            timing: Some(machine.clone() as Arc<dyn Timing>),
            reorder_classes: false,
            requests_max: REQUESTS_MAX,
            ..SimOptions::default()
        };
        let network = SimNetwork::new(plan.seed, layout.peers(), options)?;
        let descriptor = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let (mut agents, mut members) = (Vec::new(), Vec::new());
        for node in (0..plan.nodes).map(NodeId) {
            let spec = pool_spec(plan);
            let sizes = TableLayout::new(&spec)?;
            let table = Mapping::anonymous("table", sizes.table_bytes())?;
            let frames = Mapping::anonymous("frames", sizes.frames_bytes())?;
            let pool = PoolAgent::create(&spec, table.clone(), frames.clone(), Fences::Symmetric)?;
            let drive = Drive::new(&machine, node.0 as usize, &descriptor, scaled(plan, RUN_BYTES_MAX));
            agents.push(agent(plan, &layout, &network, node, pool, &frames, drive)?);
            let pool = Arc::new(PoolClient::attach(&spec, table, frames, 0)?);
            members.push(member(plan, &layout, &network, Rank(node.0), pool)?);
        }
        Ok((Self { layout, machine, network, agents }, members))
    }

    /// Lets all ranks act until each of them has ended; returns how long that took, in nanoseconds.
    ///
    /// # Errors
    /// Whatever an agent or a rank says, and that nothing goes on.
    pub fn run(&mut self, members: &[Member], act: &mut Act<'_>) -> Result<u64> {
        let begins = self.machine.now();
        let (mut is_over, mut left, mut stalled) = (vec![false; members.len()], members.len(), 0);
        for member in members {
            self.machine.alarm(begins, member.me);
        }
        while left > 0 {
            let next = [self.network.next_due(), self.machine.next_alarm()].into_iter().flatten().min();
            let now = next.unwrap_or(self.machine.now() + 1_000_000).max(self.machine.now());
            self.machine.set_now(now);
            if next.is_none() {
                // Frames that are reserved become free without anybody saying so.
                stalled += 1;
                if stalled > STALLED_MS {
                    return Err(format!("the simulation stands still: {left} ranks wait").into());
                }
                (0..self.layout.peers()).for_each(|peer| self.machine.alarm(now, Peer(peer)));
            }
            let mut peers = self.network.pass_to(now);
            peers.extend(self.machine.alarmed());
            peers.sort();
            peers.dedup();
            for peer in peers {
                let begin = self.machine.begin(peer);
                if begin > now {
                    self.machine.alarm(begin, peer);
                    continue;
                }
                match self.layout.rank_of_peer(peer) {
                    None => stalled = if self.turn_of_agent(peer)? { 0 } else { stalled },
                    Some(rank) if !is_over[rank.0 as usize] => {
                        let member = &members[rank.0 as usize];
                        poll(&member.endpoint)?;
                        match act(rank.0 as usize)? {
                            Turn::Waits => {}
                            Turn::Until(at) => {
                                stalled = 0;
                                self.machine.alarm(at, peer);
                                // A page that was copied may leave.
                                self.machine.alarm(at, member.agent);
                            }
                            Turn::Over => {
                                is_over[rank.0 as usize] = true;
                                left -= 1;
                            }
                        }
                    }
                    // Pending messages of others to it.
                    Some(rank) => drop(poll(&members[rank.0 as usize].endpoint)?),
                }
            }
        }
        Ok(self.machine.now() - begins)
    }

    /// An agent does what it can, and its rank looks when it has.
    fn turn_of_agent(&mut self, peer: Peer) -> Result<bool> {
        let node = self.layout.node_of_peer(peer);
        let (agent, endpoint) = &mut self.agents[node.0 as usize];
        agent.simulate_time(self.machine.now());
        let (mut any, mut idle) = (false, 0);
        while idle < POLLS {
            let went_on = driver::turn(agent, endpoint)?;
            any |= went_on;
            idle = if went_on { 0 } else { idle + 1 };
        }
        if any {
            let rank = self.layout.peer_of_rank(Rank(self.layout.ranks_of(node).start));
            self.machine.alarm(self.machine.spend(peer, 0), rank);
        }
        if agent.max_sleep().as_millis() <= 1 {
            self.machine.alarm(self.machine.now() + 1_000_000, peer);
        }
        Ok(any)
    }

    /// Returns the counters of all agents and ranks.
    pub fn counters(&self) -> CounterSnapshot {
        let mut sum = CounterSnapshot::default();
        self.agents.iter().for_each(|(agent, _)| sum.add(&agent.counters()));
        sum
    }

    /// The directory of a node: entries, and their bytes.
    pub fn directory(&self, node: usize) -> (usize, usize) {
        self.agents[node].0.directory_bytes()
    }
}

/// Takes in what has come for a rank.
fn poll(endpoint: &Endpoint) -> Result<()> {
    let mut idle = 0;
    while idle < POLLS {
        idle = if endpoint.poll()? > 0 { 0 } else { idle + 1 };
    }
    Ok(())
}

/// Bytes of pages as they are simulated.
fn scaled(plan: &Plan, bytes: u64) -> u64 {
    (bytes * CONTENT as u64 / plan.rating.page_bytes).max(CONTENT as u64)
}

fn pool_spec(plan: &Plan) -> PoolSpec {
    let pages = (0..plan.nodes).map(|rank| if rank < plan.owners { plan.pages } else { 0 });
    PoolSpec {
        page_bytes: CONTENT as u32,
        frames: plan.frames,
        page_bytes_max: CONTENT as u32,
        segment_pages_max: pages.collect(),
        local_ranks: 1,
        wait_slots_per_rank: 64,
        hazard_slots_per_rank: 1,
        mapped_pages_per_rank: MAPPED_PAGES_MIN,
        agent_threads: 1,
        block_pages: 1 << 20,
    }
}

fn read_ahead(plan: &Plan) -> Option<ReadAheadSettings> {
    Some(ReadAheadSettings {
        page_bytes: CONTENT as u32,
        pool_frames: plan.frames,
        window_bytes_max: scaled(plan, ReadAheadSettings::WINDOW_BYTES_MAX),
    })
}

fn agent(
    plan: &Plan,
    layout: &Layout,
    network: &Arc<SimNetwork>,
    node: NodeId,
    pool: PoolAgent,
    frames: &Arc<Mapping>,
    drive: Drive,
) -> Result<(Agent, Arc<Endpoint>)> {
    let me = layout.agent_of(node);
    let network = Some(network.conduit(me));
    let endpoint = Endpoint::new(EndpointSpec { layout: layout.clone(), me, domain: None, network })?;
    endpoint.stop_background();
    endpoint.expose(region::FRAMES, frames.clone())?;
    let options = AgentOptions {
        home: home::Parameters {
            cooperative: plan.cooperative,
            in_place: plan.in_place.then_some(InPlaceService::USUAL),
            ..home::Parameters::of(node)
        },
        replacement: replacement::NAMES[0],
        read_ahead: read_ahead(plan),
        batch: true,
        parts: Limits::new(0),
        // Drives that have a pace are their agent's, as in a virtual cluster.
        self_service: false,
        read_nearest: true,
    };
    let volume = Volume::over(Box::new(drive), CONTENT as u32, true)?;
    let mut agent = Agent::new(layout.clone(), node, pool, volume, options)?;
    driver::register(&agent, &endpoint)?;
    endpoint.open();
    agent.simulate_time(0);
    Ok((agent, endpoint))
}

fn member(
    plan: &Plan,
    layout: &Layout,
    network: &Arc<SimNetwork>,
    rank: Rank,
    pool: Arc<PoolClient>,
) -> Result<Member> {
    let me = layout.peer_of_rank(rank);
    let network = Some(network.conduit(me));
    let endpoint = Endpoint::new(EndpointSpec { layout: layout.clone(), me, domain: None, network })?;
    // Only events make things go on.
    endpoint.stop_background();
    let handlers = Client::register(&endpoint)?;
    endpoint.open();
    let options = ClientOptions {
        whole_page_put: true,
        window_pages_max: u64::from(plan.frames / 8).max(1),
        parts: Limits::new(0),
        self_service: false,
        read_ahead: None,
    };
    let client = Client::new(endpoint.clone(), handlers, pool.clone(), layout.clone(), options);
    let agent = layout.agent_of(layout.node_of(rank));
    Ok(Member { client, endpoint, pool, me, agent })
}

/// Ends what ranks still wait for, so that dropping it does not wait: the simulation has failed.
pub fn give_up(members: &[Member]) {
    for member in members {
        member.endpoint.fail(RmaError::Usage("the simulation has ended".into()));
    }
}
