//! The context of an agent's parts: what each of them uses, and none of them is.
//!
//! It knows nothing of lines, homes and services: code in this folder cannot reach them. It says what other agents are to hear
//! ([`outbox`]), tells ranks of the end of their operations, finds and frees frames, and collects what NVMe is to do.
//!
//! | file | holds |
//! |---|---|
//! | `answers.rs` | the ends of operations, for ranks |
//! | `frames.rs`, `victims.rs` | frames, and the requests that wait for one; the order of eviction |
//! | `outbox.rs` | messages to other agents |
//! | `segments.rs` | the segments of the job, and the files of those whose home is here |
//! | `storage.rs` | NVMe operations in flight |
//! | `part_reads.rs` | reads of parts of pages, for small gets |
//! | `batches.rs` | batches of work on bytes of pages |

mod answers;
mod batches;
mod frames;
mod outbox;
mod part_reads;
mod segments;
mod storage;
mod victims;

use super::AgentOptions;
use super::items::InPlaceWork;
use super::shards::Shards;
use super::wire::{Coherence, SEVERAL_MAX};
use crate::error::{CacheError, Failure};
use crate::page::{PageInSegment, PageIndex};
use crate::partition::{Partition, Which};
use crate::pool::{
    Counter, CounterSnapshot, Entry, FaultId, FrameId, PageSize, PageState, PoolAgent, PoolError, TableLayout,
};
use crate::protocol::trace::Row;
use crate::protocol::{InPlaceService, home};
use crate::read_ahead::Detectors;
use answers::Answers;
use batches::WorkBatches;
use frames::Frames;
use outbox::Outbox;
pub use outbox::Outgoing;
use part_reads::PartReads;
pub use part_reads::{BLOCK_BYTES, PartReading};
use segments::Segments;
pub use segments::volume_name;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;
use storage::Storage;
pub use storage::failure;
use vgas_nvm::{Volume, Whereabouts};
use vgas_rma::address::{Layout, NodeId, Peer, Rank};
use vgas_shm::Span;
use victims::Victims;

/// For segments that are always served in place once a second node puts.
const IN_PLACE_AT_ONCE: InPlaceService = InPlaceService { enter_after: 1, leave_after: u16::MAX };

/// A message of this node to itself.
#[derive(Debug)]
pub enum LocalMessage {
    /// A coherence message.
    Coherence(Coherence),
    /// The home applies a small operation to the home node's own copy.
    Apply { page: PageIndex, write: bool, work: InPlaceWork },
    /// A page of a partition, by its number in the volume, agrees with NVMe for a checkpoint, or cannot.
    Cleaned(u32, Result<(), Failure>),
    /// A thread waits for this page to be mapped, which a rank had to ask for: a scan may follow.
    MapMissed(PageIndex),
    /// A rank has come to a page that was read ahead, and marked.
    AheadUsed(PageIndex),
}

/// The source of the agent's time.
#[derive(Debug)]
pub enum Clock {
    Real(Instant),
    /// Nanoseconds, as a simulation says.
    Simulated(u64),
}

/// The agent's time.
#[derive(Debug)]
pub struct Time {
    pub clock: Clock,
    /// Milliseconds at the last look at the clock: once a turn, because a look costs as much as finding a page.
    pub now_ms: u64,
}

impl Time {
    /// Nanoseconds since the agent began.
    pub fn nanoseconds(&self) -> u64 {
        match self.clock {
            Clock::Real(began) => began.elapsed().as_nanos() as u64,
            Clock::Simulated(nanoseconds) => nanoseconds,
        }
    }
}

/// An observer of the rows of the protocol's tables that an agent takes.
type Observer = Box<dyn FnMut(Row) + Send>;

/// What all parts of an agent use.
pub struct NodeContext {
    pub node: NodeId,
    /// The number of this shard, and what it shares with the others.
    pub shard: u32,
    pub shards: Arc<Shards>,
    pub layout: Layout,
    pub pool: PoolAgent,
    pub options: AgentOptions,
    pub segments: Segments,
    pub frames: Frames,
    pub victims: Victims,
    pub scans: Detectors,
    pub storage: Storage,
    pub works: WorkBatches,
    pub answers: Answers,
    pub outbox: Outbox,
    /// Messages of this node to itself.
    pub local: VecDeque<LocalMessage>,
    /// Most bytes of a message.
    pub message_bytes_max: usize,
    pub time: Time,
    pub observer: Option<Observer>,
}

impl NodeContext {
    /// A context over a fresh pool.
    pub fn new(
        layout: Layout,
        node: NodeId,
        pool: PoolAgent,
        volume: Volume,
        options: AgentOptions,
        shards: Arc<Shards>,
    ) -> Self {
        Self {
            outbox: Outbox::new(layout.peers(), options.batch, SEVERAL_MAX),
            segments: Segments::default(),
            frames: Frames::new(),
            victims: Victims::new(options.replacement),
            scans: Detectors::new(options.read_ahead),
            shard: pool.shard(),
            shards,
            storage: Storage::new(volume, PartReads::new(options.parts)),
            node,
            layout,
            pool,
            options,
            works: WorkBatches::default(),
            answers: Answers::default(),
            local: VecDeque::new(),
            message_bytes_max: 0,
            time: Time { clock: Clock::Real(Instant::now()), now_ms: 0 },
            observer: None,
        }
    }

    /// The table's pages, and their numbering.
    #[inline]
    pub fn pages(&self) -> &TableLayout {
        self.pool.layout()
    }

    /// The table's entry of a page.
    #[inline]
    pub fn entry(&self, page: PageIndex) -> Result<Entry, PoolError> {
        self.pool.entry(page)
    }

    /// The bytes of a frame.
    #[inline]
    pub fn frame_span(&self, frame: FrameId) -> Result<Span, PoolError> {
        self.pool.frame_span(frame)
    }

    /// Shows the ranks of this node where the file of one's partition lies, or hides it.
    pub fn show_file(&self, of: &Partition, at: Option<&Whereabouts>) -> Result<(), PoolError> {
        let local_rank = of.owner.0.saturating_sub(self.layout.ranks_of(self.node).start);
        self.pool.show_file(of.segment, local_rank, at)
    }

    /// Ends the rows of the table that segments without pages had.
    pub fn end_rows(&self, which: Which) {
        self.pool.end_rows(which.segment, which.owner);
    }

    /// Shows ranks whether the home serves a page in place.
    pub fn mark_in_place(&self, page: PageIndex, on: bool) -> Result<(), PoolError> {
        self.pool.mark_in_place(page, on)
    }

    /// Lets the barriers of the pool reach a rank that has attached to it.
    pub fn reach_new_client(&self) -> Result<(), PoolError> {
        self.pool.reach_new_client()
    }

    /// The pool, for counters and tests.
    pub fn pool(&self) -> &PoolAgent {
        &self.pool
    }

    /// Adds to a counter of this shard.
    #[inline]
    pub fn count(&self, counter: Counter, n: u64) {
        self.pool.count(counter, n);
    }

    /// Whether a page is this shard's.
    #[inline]
    pub fn is_mine(&self, page: PageIndex) -> bool {
        self.pages().shard_of(page) == self.shard
    }

    /// Whether a rank is on this node.
    pub fn is_here(&self, rank: Rank) -> bool {
        self.layout.ranks_of(self.node).contains(&rank.0)
    }

    /// What the node has counted: this shard of its agent and all its ranks.
    pub fn counters(&self) -> CounterSnapshot {
        let mut sum = self.pool.counters();
        for local_rank in 0..self.pages().spec().local_ranks {
            if let Ok(rank) = self.pool.rank_counters(local_rank) {
                sum.add(&rank);
            }
        }
        sum
    }

    pub fn look_at_clock(&mut self) {
        let now_ms = self.time.nanoseconds() / 1_000_000;
        if now_ms != self.time.now_ms {
            self.time.now_ms = now_ms;
            if self.shard == 0 {
                self.pool.tick();
            }
        }
    }

    /// How large a page is.
    #[inline]
    pub fn size_of(&self, page: PageIndex) -> PageSize {
        self.pages().size_of(page)
    }

    #[inline]
    pub fn home_of(&self, page: PageIndex) -> Option<NodeId> {
        let (owner, _) = self.pages().locate(page)?;
        Some(self.layout.node_of(owner))
    }

    /// Where a page is in this node's volume; none of a page whose home is elsewhere, or that no segment has.
    pub fn stored_in(&self, page: PageIndex) -> Option<(u32, PageInSegment)> {
        let found = self.segments.partitions.find(page)?;
        (self.layout.node_of(found.owner) == self.node).then(|| found.stored_in(page))
    }

    /// Whether a rank that asks for the page now has to wait for it. Pages on their way count: without them the first
    /// pages of a scan's requests would look like a reader in large steps.
    #[inline]
    pub fn is_miss(&self, page: PageIndex) -> bool {
        self.entry(page).is_ok_and(|entry| {
            matches!(entry.state(), PageState::Invalid | PageState::Stored | PageState::Claimed)
        })
    }

    /// A page leaves with the mark that a use would have taken: what was read ahead does not stay until it is read.
    pub fn evicted_unused(&mut self, page: PageIndex) {
        tracing::debug!(page = page.0, "a page that was read ahead is evicted before its reader comes");
        self.count(Counter::ReadAheadUnused, 1);
        let size = self.size_of(page);
        if let Some(detector) = self.scans.of(size) {
            detector.evicted_unused(page);
        }
    }

    /// Whether the rows of the fast path are asked for: where somebody observes them, and in every build with assertions.
    #[inline]
    pub fn asks_tables(&self) -> bool {
        cfg!(debug_assertions) || self.observer.is_some()
    }

    /// Whether ranks are to leave pages, which no descriptor reports: look again soon.
    pub fn revoking(&self) -> bool {
        self.pool.revoking()
    }

    /// Says something to a node, this one included.
    pub fn say(&mut self, to: NodeId, coherence: Coherence) {
        if to == self.node {
            self.local.push_back(LocalMessage::Coherence(coherence));
        } else {
            self.outbox.push(self.layout.agent_of(to), Outgoing::Coherence(coherence));
        }
    }

    /// Sends a page to a node's frame, which is not this node's.
    pub fn say_with_page(
        &mut self,
        to: NodeId,
        coherence: Coherence,
        frame: FrameId,
    ) -> Result<(), CacheError> {
        let from = self.frame_span(frame)?;
        self.frames.sending.entry(frame).or_insert((0, false)).0 += 1;
        let Some(into) = coherence.beside.frame() else {
            return Err(self.violation(to, "wants a page, and named no frame for it"));
        };
        self.outbox.push(self.layout.agent_of(to), Outgoing::Data { coherence, from, frame, into });
        Ok(())
    }

    pub fn check_page(&self, from: Peer, page: PageIndex) -> Result<(), CacheError> {
        if page.0 < self.pages().pages() {
            return Ok(());
        }
        Err(CacheError::Protocol {
            who: self.layout.describe(from),
            what: format!("page {page} of {}", self.pages().pages()),
        })
    }

    pub fn local_rank(&self, from: Peer) -> Result<u32, CacheError> {
        let ranks = self.layout.ranks_of(self.node);
        match self.layout.rank_of_peer(from) {
            Some(rank) if ranks.contains(&rank.0) => Ok(rank.0 - ranks.start),
            _ => Err(CacheError::Protocol {
                who: self.layout.describe(from),
                what: format!("asked the agent of {}, which is not its own", self.node),
            }),
        }
    }

    pub fn agent_node(&self, from: Peer) -> Result<NodeId, CacheError> {
        match self.layout.rank_of_peer(from) {
            None if self.layout.contains(from) => Ok(self.layout.node_of_peer(from)),
            _ => Err(CacheError::Protocol {
                who: self.layout.describe(from),
                what: "sent a coherence message, which only agents do".into(),
            }),
        }
    }

    pub fn rank_of(&self, id: FaultId) -> Rank {
        Rank(self.layout.ranks_of(self.node).start + id.local_rank)
    }

    pub fn violation(&self, from: NodeId, what: impl Into<String>) -> CacheError {
        CacheError::Protocol { who: self.layout.describe(self.layout.agent_of(from)), what: what.into() }
    }

    pub fn refuse_fault(&self, id: FaultId, what: String) -> CacheError {
        let who = self.layout.describe(self.layout.peer_of_rank(self.rank_of(id)));
        CacheError::Protocol { who, what }
    }

    /// What the home of a page goes by: the job's settings, and the policy of the page's segment.
    pub fn home_parameters(&self, page: PageIndex) -> home::Parameters {
        let job = self.options.home;
        match self.segments.partitions.find(page) {
            Some(partition) if partition.policy.in_place => {
                home::Parameters { in_place: Some(IN_PLACE_AT_ONCE), ..job }
            }
            _ => job,
        }
    }
}
