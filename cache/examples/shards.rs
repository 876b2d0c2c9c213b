//! How many pages a second the shards of a home hand out to another node, over memory, a core each: `cargo run --release -p
//! vgas-cache --example shards [SECONDS]`.
//!
//! One agent of one, then of two shards, in turns, five times. The pages are in the home's DRAM. Another node's part is played:
//! it asks for 64 pages at a time and gives them back; its network takes everything and copies each page once. So what is
//! measured is what a shard does for a page: two protocol messages in, two out, a revocation, a copy of the page.

use std::error::Error;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};
use vgas_cache::agent::wire::{Beside, Coherence};
use vgas_cache::agent::{Agent, AgentOptions};
use vgas_cache::client::SegmentPages;
use vgas_cache::page::PageIndex;
use vgas_cache::parts::Limits;
use vgas_cache::pool::{Fences, FrameId, PoolAgent, PoolClient, PoolSpec, TableLayout, WaitId, WaitStatus};
use vgas_cache::protocol::{Message, home};
use vgas_cache::request::Request;
use vgas_nvm::Volume;
use vgas_nvm::device::memory::{MemoryDevice, MemoryDisk};
use vgas_rma::address::{Layout, NodeId, Peer, Rank};
use vgas_rma::conduit::{Capabilities, Conduit, Loan, Sent, Traffic};
use vgas_rma::endpoint::{Endpoint, EndpointSpec};
use vgas_rma::message::{Message as Sending, Sink};
use vgas_shm::{Mapping, Span};

const PAGE_BYTES: u32 = 4096;
const PAGES: u64 = 16 << 10;
const AT_ONCE: usize = 64;
const ROUNDS: usize = 5;

/// Takes everything, and copies what is long.
struct Swallow {
    capabilities: Capabilities,
    descriptor: OwnedFd,
}

thread_local! {
    static SINK: std::cell::RefCell<Vec<u8>> = std::cell::RefCell::new(vec![0; PAGE_BYTES as usize]);
}

// SAFETY: it brings nothing.
unsafe impl vgas_rma::conduit::Trusted for Swallow {}

impl Conduit for Swallow {
    fn name(&self) -> &'static str {
        "swallow"
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn reaches(&self, _: Peer) -> bool {
        true
    }

    fn try_send(&self, _: Peer, _: &Sending<'_>) -> vgas_rma::error::Result<Sent> {
        Ok(Sent::Accepted)
    }

    fn try_send_lent(&self, _: Peer, _: &Sending<'_>, lent: &Span) -> vgas_rma::error::Result<Option<Loan>> {
        SINK.with_borrow_mut(|sink| lent.read(sink));
        Ok(Some(Loan::NONE))
    }

    fn poll(&self, _: &dyn Sink, _: Traffic) -> vgas_rma::error::Result<usize> {
        Ok(0)
    }

    fn wait_descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    fn arm(&self) -> bool {
        false
    }

    fn disarm(&self) {}
}

/// Pages a second of an agent with so many shards.
fn measure(threads: u32, time: Duration) -> Result<f64, Box<dyn Error>> {
    let layout = Layout::blocks(2, 2);
    let node = NodeId(0);
    let frames = PAGES as u32 + (PAGES / 8) as u32;
    let spec = PoolSpec {
        page_bytes: PAGE_BYTES,
        frames,
        page_bytes_max: 4 << 20,
        segment_pages_max: vec![PAGES, 0],
        local_ranks: 1,
        wait_slots_per_rank: 16,
        hazard_slots_per_rank: 2,
        mapped_pages_per_rank: 0,
        agent_threads: threads,
        block_pages: 64,
    };
    let sizes = TableLayout::new(&spec)?;
    let table = Mapping::anonymous("table", sizes.table_bytes())?;
    let memory = Mapping::anonymous("frames", sizes.frames_bytes())?;
    let pool = PoolAgent::create(&spec, table.clone(), memory.clone(), Fences::Detect)?;
    let disk = MemoryDisk::new();
    let first = Volume::over(Box::new(MemoryDevice::new(&disk, 32)?), PAGE_BYTES, true)?;
    let mut volumes = Vec::new();
    for _ in 1..threads {
        volumes.push(first.another_over(Box::new(MemoryDevice::new(&disk, 32)?)));
    }
    volumes.insert(0, first);
    let options = || {
        Some(AgentOptions {
            home: home::Parameters::of(node),
            replacement: vgas_cache::replacement::NAMES[0],
            read_ahead: None,
            batch: true,
            parts: Limits::new(0),
            self_service: false,
            read_nearest: true,
        })
    };
    let mut agents = Agent::in_shards(layout.clone(), node, pool, volumes, options)?;
    let me = layout.agent_of(node);
    let conduit = Arc::new(Swallow {
        capabilities: Capabilities {
            medium_bytes_max: 8 << 10,
            long_bytes_max: PAGE_BYTES as usize,
            ordered: true,
            long_to_operation: false,
            load_store: false,
            one_sided: false,
            atomics: false,
            polls_through_kernel: false,
        },
        descriptor: rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)?,
    });
    let endpoint =
        Endpoint::new(EndpointSpec { layout: layout.clone(), me, domain: None, network: Some(conduit) })?;
    endpoint.open();

    // The rank of this node writes all pages, so that they are in its DRAM.
    let client = PoolClient::attach(&spec, table, memory, 0)?;
    let rank = layout.peer_of_rank(Rank(0));
    let whole = |agents: &mut [Agent], shard: u32, request: &dyn Fn(WaitId) -> Request, data: &[u8]| {
        let wait = client.begin_wait(1).ok_or("no wait slot")?;
        agents[shard as usize].on_request(rank, request(wait), data)?;
        while let WaitStatus::Pending(_) = client.wait_status(wait) {
            for agent in agents.iter_mut() {
                agent.advance()?;
                agent.flush(&endpoint)?;
            }
        }
        client.end_wait(wait);
        Ok::<(), Box<dyn Error>>(())
    };
    let SegmentPages { segment, size, policy } = SegmentPages::first(&client);
    whole(&mut agents, 0, &|wait| Request::Attach { pages: PAGES, segment, size, policy, wait }, &[])?;
    let data = vec![7; PAGE_BYTES as usize];
    for page in (0..PAGES).map(PageIndex) {
        whole(&mut agents, sizes.shard_of(page), &|wait| Request::Put { page, offset: 0, wait }, &data)?;
    }

    let other = layout.agent_of(NodeId(1));
    let (served, over, start) =
        (AtomicU64::new(0), AtomicBool::new(false), Barrier::new(threads as usize + 1));
    let mut took = Duration::ZERO;
    std::thread::scope(|scope| {
        for (core, agent) in agents.iter_mut().enumerate() {
            let (served, over, start, endpoint, sizes) = (&served, &over, &start, &endpoint, &sizes);
            scope.spawn(move || {
                let mut cores = rustix::thread::CpuSet::new();
                cores.set(core);
                // Without it the figure is worse, not wrong.
                let _ = rustix::thread::sched_setaffinity(None, &cores);
                let mine: Vec<PageIndex> =
                    (0..PAGES).map(PageIndex).filter(|&page| sizes.shard_of(page) == agent.shard()).collect();
                let say = |agent: &mut Agent, page: PageIndex, message: Message| {
                    let frame = Beside::Frame(FrameId((page.0 % u64::from(frames)) as u32));
                    agent.on_message(other, Coherence::new(page, message, frame))
                };
                start.wait();
                for some in mine.chunks(AT_ONCE).cycle() {
                    if over.load(Ordering::Relaxed) {
                        return;
                    }
                    for message in [Message::GetShared { nvm: false }, Message::Evict { dirty: false }] {
                        for &page in some {
                            say(agent, page, message).expect("an agent that takes it");
                        }
                        while agent.advance().expect("an agent that goes on")
                            | agent.flush(endpoint).expect("a network that takes all")
                            || agent.busy()
                        {}
                    }
                    served.fetch_add(some.len() as u64, Ordering::Relaxed);
                }
            });
        }
        start.wait();
        let began = Instant::now();
        std::thread::sleep(time);
        over.store(true, Ordering::Relaxed);
        took = began.elapsed();
    });
    Ok(served.load(Ordering::Relaxed) as f64 / took.as_secs_f64())
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

fn main() -> Result<(), Box<dyn Error>> {
    let seconds = std::env::args().nth(1).map_or(Ok(1.0), |word| word.parse())?;
    let time = Duration::from_secs_f64(seconds);
    let (mut one, mut two, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        one.push(measure(1, time)?);
        two.push(measure(2, time)?);
        ratios.push(two[two.len() - 1] / one[one.len() - 1]);
    }
    println!(
        "pages of 4 KiB from a home's DRAM: one shard {:.0} k/s, two {:.0} k/s, ratio {:.2}",
        median(one) / 1e3,
        median(two) / 1e3,
        median(ratios)
    );
    Ok(())
}
