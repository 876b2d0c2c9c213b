//! Goal: a job of a thousand simulated nodes runs in one process and one thread: collectives among all of them end as they should and in as
//! many rounds as they say, the loss of one is told to all others, and none of it costs memory that grows with the square of the
//! nodes. What happens follows from a seed.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::sync::{Arc, Mutex};
use vgas_rma::collective::algorithm::{self, Meeting, Part};
use vgas_rma::collective::{Call, Collectives, Exchange, Kind, Landing, Team, sequence};
use vgas_rma::conduit::sim::{SimNetwork, SimOptions};
use vgas_rma::endpoint::{Endpoint, EndpointSpec};
use vgas_rma::{Layout, Peer, Rank, RmaError};

const NODES: u32 = 1000;

/// Far below a thousand times a thousand of anything.
const BYTES_A_NODE_MAX: usize = 256 << 10;

struct Job {
    network: Arc<SimNetwork>,
    endpoints: Vec<Arc<Endpoint>>,
    engines: Vec<Arc<Collectives>>,
    worlds: Vec<Arc<Team>>,
}

impl Job {
    fn new(seed: u64) -> Self {
        let layout = Layout::blocks(NODES, NODES);
        let network = SimNetwork::new(seed, layout.peers(), SimOptions::default()).expect("a network");
        let (mut endpoints, mut engines, mut worlds) = (Vec::new(), Vec::new(), Vec::new());
        for rank in (0..NODES).map(Rank) {
            let me = layout.peer_of_rank(rank);
            let conduit = Some(network.conduit(me));
            let spec = EndpointSpec { layout: layout.clone(), me, domain: None, network: conduit };
            let endpoint = Endpoint::new(spec).expect("an endpoint");
            // Everything happens in this thread.
            endpoint.stop_background();
            let engine = Collectives::register(&endpoint).expect("it is not open");
            endpoint.open();
            worlds.push(engine.world().expect("all ranks"));
            engines.push(engine);
            endpoints.push(endpoint);
        }
        Self { network, endpoints, engines, worlds }
    }

    /// Lets all of them begin a collective, and steps until each has ended; how many steps that took.
    fn all(&self, call: Call, run: impl Fn(Exchange, u32) -> vgas_rma::collective::Run) -> u32 {
        let begun: Vec<Exchange> = self
            .worlds
            .iter()
            .map(|world| {
                let exchange = world.exchange(sequence::RANKS, call).expect("nothing is spoilt");
                exchange.begin(run(exchange.clone(), world.me()), false);
                exchange
            })
            .collect();
        for steps in 0..5000 {
            if begun.iter().all(|exchange| exchange.operation().is_done()) {
                for exchange in &begun {
                    exchange.operation().outcome().expect("it is done").expect("all call the same");
                }
                return steps;
            }
            self.network.step();
            for (endpoint, engine) in self.endpoints.iter().zip(&self.engines) {
                endpoint.poll().expect("nobody is lost");
                engine.progress();
            }
        }
        panic!("a collective of {NODES} does not end");
    }
}

/// Bytes of this process that lie in memory.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").expect("Linux has it");
    let pages: usize = text.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a number");
    pages * 4096
}

/// Each endpoint has a descriptor. False: there cannot be so many.
fn may_open_enough() -> bool {
    let wanted = Some(u64::from(2 * NODES));
    let now = getrlimit(Resource::Nofile);
    if now.current.is_none_or(|current| Some(current) >= wanted) {
        return true;
    }
    setrlimit(Resource::Nofile, Rlimit { current: wanted, maximum: now.maximum }).is_ok()
}

#[test]
fn a_thousand_nodes_agree_and_hear_of_a_loss() {
    if !may_open_enough() {
        return eprintln!("skipped: {NODES} endpoints need as many open files (`ulimit -Hn`)");
    }
    let seed = 14;
    let before = resident();
    let job = Job::new(seed);

    // Ten rounds of at most eight steps each, and some for messages that found no room.
    let met = job.all(Call::of_all(Kind::Barrier), |exchange, _| {
        Box::pin(async move { algorithm::meet(&exchange, Meeting::Before).await })
    });
    assert!(met <= 200, "a barrier took {met} steps");

    let sums: Arc<Mutex<Vec<u64>>> = Arc::default();
    job.all(Call::of_all(Kind::AllReduce), |exchange, member| {
        let sums = sums.clone();
        Box::pin(async move {
            let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
            let add = |left: &[u8], right: &[u8]| (number(left) + number(right)).to_le_bytes().to_vec();
            let mine = u64::from(member).to_le_bytes().to_vec();
            let part = match algorithm::reduce(&exchange, 0, mine, add).await {
                Some(sum) => Part::Give(sum.into()),
                None => Part::Take(Landing::Own(Vec::new()), 8),
            };
            let all = algorithm::broadcast(&exchange, 0, part).await;
            sums.lock().expect("nobody panics").push(number(&all.into_bytes()));
        })
    });
    let expected = u64::from(NODES) * u64::from(NODES - 1) / 2;
    assert_eq!(*sums.lock().expect("nobody panics"), vec![expected; NODES as usize]);

    let each = resident().saturating_sub(before) / NODES as usize;
    assert!(each <= BYTES_A_NODE_MAX, "{each} bytes a node");

    let lost = Peer(NODES / 2);
    job.network.lose(lost);
    for endpoint in job.endpoints.iter().filter(|endpoint| endpoint.me() != lost) {
        // A silent network is looked at a few times less often than polled.
        let error = (0..100).find_map(|_| endpoint.poll().err()).expect("everybody hears of it");
        assert!(matches!(error, RmaError::PeerLost { peer, .. } if peer == lost), "{error}");
    }
}
