//! What the agent of a node spends on a page that it reads from its own NVMe: `cargo run --release -p vgas-cache --example
//! miss_path [FRAMES PAGES]`.
//!
//! The agent alone, with a device in memory: no other process, no system call, no sleep. `valgrind --tool=callgrind
//! --toggle-collect='*Agent::advance' --toggle-collect='*Agent::on_request'` counts its instructions.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use std::error::Error;
use std::time::{Duration, Instant};
use vgas_cache::agent::{Agent, AgentOptions};
use vgas_cache::client::SegmentPages;
use vgas_cache::page::PageIndex;
use vgas_cache::parts::Limits;
use vgas_cache::pool::{Attempt, Fences, PoolAgent, PoolClient, PoolSpec, TableLayout, WaitId, WaitStatus};
use vgas_cache::protocol::home;
use vgas_cache::read_ahead::ReadAheadSettings;
use vgas_cache::request::Request;
use vgas_nvm::Volume;
use vgas_nvm::device::memory::{MemoryDevice, MemoryDisk};
use vgas_rma::address::{Layout, NodeId, Peer, Rank};
use vgas_shm::Mapping;

const PAGE_BYTES: u32 = 4096;

struct Node {
    agent: Agent,
    pool: PoolClient,
    rank: Peer,
    /// Time in the agent.
    spent: Duration,
}

impl Node {
    fn new(frames: u32, pages: u64) -> Result<Self, Box<dyn Error>> {
        let layout = Layout::blocks(1, 1);
        let spec = PoolSpec {
            page_bytes: PAGE_BYTES,
            frames,
            page_bytes_max: 4 << 20,
            segment_pages_max: vec![pages],
            local_ranks: 1,
            wait_slots_per_rank: 256,
            hazard_slots_per_rank: 2,
            mapped_pages_per_rank: 0,
            agent_threads: 1,
            block_pages: 512,
        };
        let sizes = TableLayout::new(&spec)?;
        let table = Mapping::anonymous("table", sizes.table_bytes())?;
        let memory = Mapping::anonymous("frames", sizes.frames_bytes())?;
        let pool = PoolAgent::create(&spec, table.clone(), memory.clone(), Fences::Symmetric)?;
        let device = MemoryDevice::new(&MemoryDisk::new(), 32)?;
        let volume = Volume::over(Box::new(device), PAGE_BYTES, true)?;
        let node = NodeId(0);
        let read_ahead =
            ReadAheadSettings { page_bytes: PAGE_BYTES, pool_frames: frames, window_bytes_max: 16 << 20 };
        let options = AgentOptions {
            home: home::Parameters::of(node),
            replacement: vgas_cache::replacement::NAMES[0],
            read_ahead: Some(read_ahead),
            batch: true,
            parts: Limits::new(0),
            self_service: false,
            read_nearest: true,
        };
        let rank = layout.peer_of_rank(Rank(0));
        let agent = Agent::new(layout, node, pool, volume, options)?;
        let pool = PoolClient::attach(&spec, table, memory, 0)?;
        let SegmentPages { segment, size, policy } = SegmentPages::first(&pool);
        let mut node = Self { agent, pool, rank, spent: Duration::ZERO };
        node.whole(|wait| Request::Attach { pages, segment, size, policy, wait }, &[])?;
        Ok(node)
    }

    fn ask(&mut self, request: Request, data: &[u8]) -> Result<(), Box<dyn Error>> {
        let start = Instant::now();
        self.agent.on_request(self.rank, request, data)?;
        self.spent += start.elapsed();
        Ok(())
    }

    fn turn(&mut self) -> Result<(), Box<dyn Error>> {
        let start = Instant::now();
        self.agent.advance()?;
        self.spent += start.elapsed();
        Ok(())
    }

    fn done(&self, wait: WaitId) -> Result<bool, Box<dyn Error>> {
        match self.pool.wait_status(wait) {
            WaitStatus::Pending(_) => Ok(false),
            WaitStatus::Done => Ok(true),
            WaitStatus::Failed { code, .. } => Err(format!("failed with code {code}").into()),
        }
    }

    fn whole(&mut self, request: impl Fn(WaitId) -> Request, data: &[u8]) -> Result<(), Box<dyn Error>> {
        let wait = self.pool.begin_wait(1).ok_or("no wait slot")?;
        self.ask(request(wait), data)?;
        while !self.done(wait)? {
            self.turn()?;
        }
        self.pool.end_wait(wait);
        Ok(())
    }

    /// Reads runs of so many pages, with so many requests in flight; nanoseconds of the agent for each page.
    fn read(&mut self, firsts: &[PageIndex], count: u32, depth: usize) -> Result<f64, Box<dyn Error>> {
        let mut firsts = firsts.iter();
        let mut waits: Vec<(PageIndex, WaitId)> = Vec::new();
        let mut block = vec![0; PAGE_BYTES as usize];
        self.spent = Duration::ZERO;
        let mut pages = 0;
        loop {
            while waits.len() < depth
                && let Some(&page) = firsts.next()
            {
                let wait = self.pool.begin_wait(count).ok_or("no wait slot")?;
                waits.push((page, wait));
                self.ask(Request::Read { page, count, more: 0, wait }, &[])?;
            }
            if waits.is_empty() {
                return Ok(self.spent.as_nanos() as f64 / f64::from(pages));
            }
            self.turn()?;
            for index in (0..waits.len()).rev() {
                let (page, wait) = waits[index];
                if self.done(wait)? {
                    waits.swap_remove(index);
                    self.pool.end_wait(wait);
                    for page in PageIndex::each(page..page + u64::from(count)) {
                        // SAFETY: the block has room for a page, and is plain memory.
                        let attempt = unsafe {
                            self.pool.try_get(self.pool.page(page), 0, block.as_mut_ptr(), PAGE_BYTES)
                        };
                        if let Attempt::HitNotify = attempt {
                            self.ask(Request::Ahead { page }, &[])?;
                        }
                        self.pool.taken(page);
                    }
                    pages += count;
                }
            }
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1).map(|word| word.parse::<u64>());
    let frames = arguments.next().transpose()?.unwrap_or(16 << 10);
    let pages = arguments.next().transpose()?.unwrap_or(4 * frames);
    let mut node = Node::new(u32::try_from(frames)?, pages)?;
    let data: Vec<u8> = (0..PAGE_BYTES).map(|byte| (byte * 31) as u8).collect();
    for page in (0..pages).map(PageIndex) {
        node.whole(|wait| Request::Put { page, offset: 0, wait }, &data)?;
    }
    // What was written leaves the cache.
    let all: Vec<PageIndex> = (0..pages).map(PageIndex).collect();
    node.read(&all, 1, 1)?;
    let mut random = all.clone();
    random.shuffle(&mut rand_chacha::ChaCha8Rng::seed_from_u64(1));
    let runs: Vec<PageIndex> = (0..pages).step_by(256).map(PageIndex).collect();
    for _ in 0..3 {
        println!("random reads of a page, 32 at a time: {:.0} ns a page", node.read(&random, 1, 32)?);
        println!("a scan, 256 pages a request, 2 at a time: {:.0} ns a page", node.read(&runs, 256, 2)?);
    }
    Ok(())
}
