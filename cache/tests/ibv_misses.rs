//! What a miss costs over RDMA, exactly: two whole agents, each on a device of this machine, with a rank beside it; what is
//! counted are the requests to the devices. Without devices it is skipped, visibly; `rma/tests/guest/suite` runs it on
//! Soft-RoCE. (`misses` of `vgas/tests/jobs` counts the messages of more kinds of misses, over any conduit.)

#[path = "../../rma/tests/ibv_support/mod.rs"]
mod ibv_support;

use ibv_support::{BOUND, conduits, skipped};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;
use vgas_cache::agent::driver;
use vgas_cache::agent::{Agent, AgentOptions};
use vgas_cache::client::{Client, ClientOptions, SegmentPages};
use vgas_cache::parts::Limits;
use vgas_cache::pool::{Fences, MAPPED_PAGES_MIN, PoolAgent, PoolClient, PoolSpec, TableLayout};
use vgas_cache::protocol::home;
use vgas_cache::region;
use vgas_cache::replacement;
use vgas_nvm::Volume;
use vgas_nvm::device::memory::{MemoryDevice, MemoryDisk};
use vgas_rma::address::{Layout, NodeId, Peer, Rank};
use vgas_rma::conduit::conformance::node_domains;
use vgas_rma::conduit::ibv::{IbvConduit, IbvCounts, IbvOptions};
use vgas_rma::domain::Domain;
use vgas_rma::endpoint::{Endpoint, EndpointSpec, Token};
use vgas_rma::message::{Arrived, Payload};
use vgas_shm::Mapping;
use vgas_shm::cores;

const PAGE: usize = 16 << 10;
/// Misses that are counted together; fewer than credits that are worth a message of their own.
const MISSES: u64 = 12;
const PING: u8 = 128;
const PONG: u8 = 129;

/// A node with its rank.
struct Node {
    agent: Agent,
    agent_endpoint: Arc<Endpoint>,
    client: Client,
    rank_endpoint: Arc<Endpoint>,
    pongs: Arc<AtomicU64>,
}

impl Node {
    fn new(layout: &Layout, node: NodeId, domain: &Arc<Domain>, all: &[Arc<IbvConduit>]) -> Self {
        let spec = PoolSpec {
            page_bytes: PAGE as u32,
            frames: 64,
            page_bytes_max: 4 << 20,
            segment_pages_max: vec![1 + 2 * MISSES, 0],
            local_ranks: 1,
            wait_slots_per_rank: 8,
            hazard_slots_per_rank: 2,
            mapped_pages_per_rank: MAPPED_PAGES_MIN,
            agent_threads: 1,
            block_pages: 512,
        };
        let sizes = TableLayout::new(&spec).unwrap();
        let table = Mapping::anonymous("table", sizes.table_bytes()).unwrap();
        let frames = Mapping::anonymous("frames", sizes.frames_bytes()).unwrap();
        let pool = PoolAgent::create(&spec, table.clone(), frames.clone(), Fences::Symmetric).unwrap();
        let device = MemoryDevice::new(&MemoryDisk::new(), 8).unwrap();
        let volume = Volume::over(Box::new(device), PAGE as u32, true).unwrap();
        let endpoint = |me: Peer| {
            let (domain, network) = (Some(domain.clone()), Some(all[me.0 as usize].clone() as _));
            Endpoint::new(EndpointSpec { layout: layout.clone(), me, domain, network }).unwrap()
        };
        let agent_endpoint = endpoint(layout.agent_of(node));
        agent_endpoint.expose(region::FRAMES, frames.clone()).unwrap();
        // Nothing runs ahead, and nothing is served in place: each page is asked for when it is wanted.
        let options = AgentOptions {
            home: home::Parameters::of(node),
            replacement: replacement::NAMES[0],
            read_ahead: None,
            batch: true,
            parts: Limits::new(0),
            self_service: false,
            read_nearest: false,
        };
        let agent = Agent::new(layout.clone(), node, pool, volume, options).unwrap();
        driver::register(&agent, &agent_endpoint).unwrap();
        agent_endpoint.open();

        let pool = Arc::new(PoolClient::attach(&spec, table, frames, 0).unwrap());
        let rank_endpoint = endpoint(layout.peer_of_rank(Rank(node.0)));
        let handlers = Client::register(&rank_endpoint).unwrap();
        let pongs = Arc::new(AtomicU64::new(0));
        let count = pongs.clone();
        let ping = |token: &Token<'_>, _: &[u32], _: Arrived<'_>| {
            token.check(token.reply(PONG, &[], Payload::Short));
        };
        let pong = move |_: &Token<'_>, _: &[u32], _: Arrived<'_>| {
            count.fetch_add(1, Ordering::SeqCst);
        };
        rank_endpoint.register(PING, ping).unwrap();
        rank_endpoint.register(PONG, pong).unwrap();
        rank_endpoint.open();
        let options = ClientOptions {
            whole_page_put: false,
            window_pages_max: 1,
            parts: Limits::new(0),
            self_service: false,
            read_ahead: None,
        };
        let client = Client::new(rank_endpoint.clone(), handlers, pool, layout.clone(), options);
        Self { agent, agent_endpoint, client, rank_endpoint, pongs }
    }
}

fn get(client: &Client, page: u64) -> u64 {
    let mut word = [0; 8];
    // SAFETY: the word is this function's, and the call returns when it is filled.
    unsafe { client.get(Rank(0), page * PAGE as u64, word.as_mut_ptr(), 8) }.unwrap();
    u64::from_le_bytes(word)
}

fn put(client: &Client, page: u64, value: u64) {
    let word = value.to_le_bytes();
    // SAFETY: as in `get`.
    unsafe { client.put(Rank(0), page * PAGE as u64, word.as_ptr(), 8) }.unwrap();
}

/// What the conduits of the two agents, or of the two ranks, do during `action`, until every completion has come. `poll`:
/// for those who wait in nobody's call.
fn during(both: [&IbvConduit; 2], poll: impl Fn(), action: impl FnOnce()) -> [IbvCounts; 2] {
    let settle = || {
        let (start, mut naps) = (Instant::now(), 0);
        while both.iter().any(|conduit| conduit.counts().signalled != conduit.counts().completions) {
            assert!(start.elapsed() < BOUND, "a completion is missing");
            poll();
            cores::nap(&mut naps);
        }
    };
    settle();
    let before = both.map(IbvConduit::counts);
    action();
    settle();
    [0, 1].map(|index| both[index].counts() - before[index])
}

#[test]
fn verbs_of_a_miss() {
    if skipped("verbs_of_a_miss") {
        return;
    }
    let layout = Layout::blocks(2, 2);
    let options = IbvOptions { retries: 7, ..IbvOptions::default() };
    let all = conduits(&layout, &options);
    let domains = node_domains(&layout, 4096);
    let nodes: Vec<_> =
        (0..2).map(|node| Node::new(&layout, NodeId(node), &domains[node as usize], &all)).collect();
    let (mut agents, mut ranks) = (Vec::new(), Vec::new());
    for Node { agent, agent_endpoint, client, rank_endpoint, pongs } in nodes {
        agents.push((agent, agent_endpoint));
        ranks.push((client, rank_endpoint, pongs));
    }
    let done = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (agent, endpoint) in &mut agents {
            scope.spawn(move || {
                let mut naps = 0;
                while !done.load(Ordering::SeqCst) {
                    if driver::turn(agent, endpoint).unwrap() {
                        naps = 0;
                    } else {
                        cores::nap(&mut naps);
                    }
                }
            });
        }
        // Ends the agents also when something below fails.
        let _end = End(done);
        let [(home, home_endpoint, _), (other, other_endpoint, pongs)] = &ranks[..] else { unreachable!() };
        let pages = SegmentPages::first(home.pool());
        let created = [(home, (1 + 2 * MISSES) * PAGE as u64), (other, 0)].map(|(client, bytes)| {
            client.announce().unwrap();
            client.attach(pages, bytes, None).unwrap()
        });
        for client in [home, other] {
            client.know(pages, Rank(0), &created).unwrap();
        }
        (0..=2 * MISSES).for_each(|page| put(home, page, 100 + page));
        // The first connects, and asks for access to frames.
        assert_eq!(get(other, 0), 100);

        let agents_of = [0, 1].map(|node| &*all[layout.agent_of(NodeId(node)).0 as usize]);
        let counts = during(
            agents_of,
            || {},
            || {
                (1..=MISSES).for_each(|page| assert_eq!(get(other, page), 100 + page));
            },
        );
        assert_miss("a get", counts);
        let counts = during(
            agents_of,
            || {},
            || {
                (MISSES + 1..=2 * MISSES).for_each(|page| put(other, page, 1));
            },
        );
        assert_miss("a put", counts);
        // A hit asks nobody.
        let counts = during(
            agents_of,
            || {},
            || {
                (1..=MISSES).for_each(|page| assert_eq!(get(other, page), 100 + page));
                (MISSES + 1..=2 * MISSES).for_each(|page| put(other, page, 2));
            },
        );
        assert_eq!(counts, [IbvCounts::default(); 2], "a hit asks nobody");

        // An active message and its reply between ranks: one SEND each.
        let round_trips = |from: u64, count: u64| {
            for trip in 1..=count {
                other_endpoint.request(Peer(0), PING, &[1], Payload::Short).unwrap();
                let deadline = Some(Instant::now() + BOUND);
                let back = || pongs.load(Ordering::SeqCst) == from + trip;
                assert!(other_endpoint.wait_until(deadline, back).unwrap(), "no reply");
            }
        };
        let serves = Some(Instant::now() + BOUND);
        scope.spawn(move || home_endpoint.wait_until(serves, || done.load(Ordering::SeqCst)).unwrap());
        round_trips(0, 1);
        // A request is counted after it was posted, so that its answer may be here before: each has to have counted as many
        // as the other has received.
        let settle = || {
            let (start, mut naps) = (Instant::now(), 0);
            while all[0].counts().sends != all[1].counts().receives {
                assert!(start.elapsed() < BOUND, "a SEND is missing");
                cores::nap(&mut naps);
            }
        };
        settle();
        let poll = || assert!(other_endpoint.poll().is_ok());
        let counts = during([&all[0], &all[1]], poll, || {
            round_trips(1, MISSES);
            settle();
        });
        for counts in counts {
            assert_eq!((counts.sends, counts.writes, counts.reads), (MISSES, 0, 0));
            assert_eq!(counts.receives, MISSES);
        }
        done.store(true, Ordering::SeqCst);
        home_endpoint.notify_local();
    });
}

struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Who misses asks by one SEND; the home answers by one WRITE with immediate data into the frame, out of its own.
fn assert_miss(what: &str, [home, other]: [IbvCounts; 2]) {
    assert_eq!((other.sends, other.writes, other.reads), (MISSES, 0, 0), "{what}: who misses");
    assert_eq!((home.sends, home.writes, home.reads), (0, MISSES, 0), "{what}: the home");
    assert_eq!((home.signalled, home.completions, home.receives), (MISSES, MISSES, MISSES), "{what}");
    assert_eq!((other.receives, home.copied, other.copied), (MISSES, 0, 0), "{what}");
}
