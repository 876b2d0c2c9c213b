//! The simulated machine: links, drives and processors, each of which does one thing after the other, in
//! nanoseconds of a simulated clock.
//!
//! * A *link* has a rate each way and a delay, as [`vgas_rma::conduit::hook::Switch`] has in a virtual cluster: a message takes the sender's
//!   way up and the receiver's way down for as long as its bytes take; what fits into a packet passes what does not.
//! * A *drive* takes each operation for as long as its bytes take, and at least for one operation's share of a second.
//! * A *processor* takes so long for each message that a process takes in, or for being woken, and half of a page's time for each page at
//!   either end. Each process has its own, or all of them share a few, as those of a virtual cluster do.
//!
//! Pages carry [`CONTENT`] bytes, whatever their size: links, drives and processors charge for all of it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use vgas_nvm::device::paced::Rates;
use vgas_rma::conduit::hook::Cable;
use vgas_rma::conduit::sim::Timing;
use vgas_rma::message::{Message, Payload};
use vgas_rma::{Layout, Peer};

/// Bytes that a simulated page has.
pub const CONTENT: usize = 4096;

/// As in a virtual cluster: bytes of a message beside its payload, and what fits into a packet.
const OVERHEAD_BYTES: u64 = 64;
const PACKET_BYTES: u64 = 1500;

/// A rank's copy of a page that it has, in nanoseconds for each byte: 10 GB/s, a memcpy that misses the processor's caches.
const COPY_NS: f64 = 0.1;

/// Rates of the machine.
#[derive(Clone, Copy, Debug)]
pub struct Rating {
    /// Link of each node; none: messages arrive at once.
    pub link: Option<Cable>,
    /// Drive of each node; none: pages arrive at once.
    pub drive: Option<Rates>,
    /// Nanoseconds of a processor for each message.
    pub message_ns: u64,
    /// The same for the bytes of a page, at both of its ends together.
    pub page_ns: u64,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Processors that all processes share; 0: each has its own.
    pub cores: u32,
}

/// Use of a node's parts since the last [`Machine::reset`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Used {
    /// Nanoseconds for which its link was taken, up and down.
    pub link_ns: [u64; 2],
    /// The same of its drive.
    pub drive_ns: u64,
    /// The same of its agent's time on a processor.
    pub agent_ns: u64,
}

#[derive(Debug)]
struct State {
    processors: Vec<u64>,
    /// Processor of each process.
    runs_on: Vec<u32>,
    /// When each process has done what it took in.
    done_at: Vec<u64>,
    links: Vec<[u64; 2]>,
    drives: Vec<u64>,
    alarms: BinaryHeap<Reverse<(u64, u32)>>,
    used: Vec<Used>,
    messages: u64,
}

/// The machine, shared by the network, the drives and the driver of time.
#[derive(Debug)]
pub struct Machine {
    rating: Rating,
    layout: Layout,
    now: AtomicU64,
    state: Mutex<State>,
}

impl Machine {
    /// Nothing has happened.
    pub fn new(rating: Rating, layout: Layout) -> Self {
        let (peers, nodes) = (layout.peers() as usize, layout.nodes() as usize);
        let processors = if rating.cores == 0 { peers } else { rating.cores as usize };
        Self {
            now: AtomicU64::new(0),
            state: Mutex::new(State {
                processors: vec![0; processors],
                runs_on: (0..peers).map(|peer| (peer % processors) as u32).collect(),
                done_at: vec![0; peers],
                links: vec![[0; 2]; nodes],
                drives: vec![0; nodes],
                alarms: BinaryHeap::new(),
                used: vec![Used::default(); nodes],
                messages: 0,
            }),
            rating,
            layout,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time.
    pub fn now(&self) -> u64 {
        self.now.load(Relaxed)
    }

    /// It is later.
    pub fn set_now(&self, now: u64) {
        self.now.store(now, Relaxed);
    }

    /// A process wants to run: since when it does, now or later.
    pub fn begin(&self, peer: Peer) -> u64 {
        let (now, mut state) = (self.now(), self.lock());
        if self.rating.cores > 0 {
            // The one that is free first; the same one as before if it is as good.
            let before = state.runs_on[peer.0 as usize] as usize;
            let free = |processor: usize| state.processors[processor].max(now);
            let best = (0..state.processors.len()).min_by_key(|&one| (free(one), one != before)).unwrap_or(0);
            state.runs_on[peer.0 as usize] = best as u32;
        }
        let free = state.processors[state.runs_on[peer.0 as usize] as usize];
        free.max(state.done_at[peer.0 as usize]).max(now)
    }

    /// A process computes for so long; when it has.
    pub fn spend(&self, peer: Peer, ns: u64) -> u64 {
        let now = self.now();
        self.lock().spend(&self.layout, peer, now, ns)
    }

    /// A rank that slept hears from its agent, through shared memory, what it has waited for: as long as a message.
    pub fn wake(&self, peer: Peer) {
        self.spend(peer, self.rating.message_ns);
    }

    /// A rank copies so many bytes of pages, as they are simulated.
    pub fn copy(&self, peer: Peer, content: usize) -> u64 {
        self.spend(peer, (self.whole(content) as f64 * COPY_NS) as u64)
    }

    /// Bytes of pages that so many simulated ones stand for.
    fn whole(&self, content: usize) -> u64 {
        content as u64 * self.rating.page_bytes / CONTENT as u64
    }

    /// A node's drive moves so many simulated bytes for its agent: when it has.
    pub fn drive(&self, node: usize, content: u64) -> u64 {
        let (now, bytes) = (self.now(), self.whole(content as usize));
        let Some(rates) = self.rating.drive else { return now };
        let share = |part: u64, rate: u64| (u128::from(part) * 1_000_000_000 / u128::from(rate)) as u64;
        let ns = share(bytes, rates.bytes).max(rates.operations.map_or(0, |operations| share(1, operations)));
        let mut state = self.lock();
        let done = state.drives[node].max(now) + ns;
        state.drives[node] = done;
        state.used[node].drive_ns += ns;
        let agent = self.layout.agent_of(vgas_rma::NodeId(node as u32));
        state.alarms.push(Reverse((done, agent.0)));
        done
    }

    /// A process is to look again then.
    pub fn alarm(&self, at: u64, peer: Peer) {
        self.lock().alarms.push(Reverse((at, peer.0)));
    }

    /// The first alarm.
    pub fn next_alarm(&self) -> Option<u64> {
        self.lock().alarms.peek().map(|Reverse((at, _))| *at)
    }

    /// Those whose alarms are over.
    pub fn alarmed(&self) -> Vec<Peer> {
        let (now, mut state, mut peers) = (self.now(), self.lock(), Vec::new());
        while let Some(Reverse((at, peer))) = state.alarms.peek().copied()
            && at <= now
        {
            state.alarms.pop();
            peers.push(Peer(peer));
        }
        peers
    }

    /// Counts from here on.
    pub fn reset(&self) {
        let mut state = self.lock();
        state.used.fill(Used::default());
        state.messages = 0;
    }

    /// Returns the use of each node's parts.
    pub fn used(&self) -> Vec<Used> {
        self.lock().used.clone()
    }

    /// Messages from one node to another.
    pub fn messages(&self) -> u64 {
        self.lock().messages
    }
}

impl State {
    fn spend(&mut self, layout: &Layout, peer: Peer, now: u64, ns: u64) -> u64 {
        let processor = self.runs_on[peer.0 as usize] as usize;
        let done = self.processors[processor].max(self.done_at[peer.0 as usize]).max(now) + ns;
        self.processors[processor] = done;
        self.done_at[peer.0 as usize] = done;
        if layout.rank_of_peer(peer).is_none() {
            self.used[layout.node_of_peer(peer).0 as usize].agent_ns += ns;
        }
        done
    }
}

impl Timing for Machine {
    fn sent(&self, now: u64, from: Peer, to: Peer, message: &Message<'_>) -> u64 {
        let (long, bytes) = match message.payload {
            Payload::Short => (0, 0),
            Payload::Medium(source) => (0, source.bytes() as u64),
            Payload::Long(source, _) => (source.bytes(), self.whole(source.bytes())),
        };
        let bytes = bytes + 4 * message.arguments.len() as u64 + OVERHEAD_BYTES;
        let mut state = self.lock();
        let half = self.half_of_pages(long);
        let leaves = state.spend(&self.layout, from, now, half);
        let [here, there] = [from, to].map(|peer| self.layout.node_of_peer(peer).0 as usize);
        if here == there {
            return leaves;
        }
        state.messages += 1;
        let Some(cable) = self.rating.link else { return leaves };
        let ns = cable.transfer(bytes).as_nanos() as u64;
        let passes = bytes <= PACKET_BYTES;
        let mut take = |node: usize, way: usize, earliest: u64| {
            state.used[node].link_ns[way] += ns;
            let begins = state.links[node][way].max(earliest);
            state.links[node][way] = begins + ns;
            if passes { earliest } else { begins }
        };
        let up = take(here, 0, leaves);
        let down = take(there, 1, up);
        down + ns + cable.delay_micros * 1000
    }

    fn taken(&self, now: u64, _: Peer, to: Peer, long_bytes: usize) {
        let ns = self.rating.message_ns + self.half_of_pages(long_bytes);
        self.lock().spend(&self.layout, to, now, ns);
    }
}

impl Machine {
    /// A processor's time for these bytes of pages, at one end.
    fn half_of_pages(&self, content: usize) -> u64 {
        self.rating.page_ns * content as u64 / CONTENT as u64 / 2
    }
}
