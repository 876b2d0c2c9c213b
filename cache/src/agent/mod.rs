//! The agent of a node: it runs the protocol, NVMe input and output, and replacement for all ranks of the node.
//!
//! The [`Agent`] itself owns no thread and no socket, and tests set its clock. It is told what happened ([`Agent::on_request`],
//! [`Agent::on_message`], [`Agent::on_in_place`]), goes on ([`Agent::advance`]), and leaves what it wants to say in an
//! outbox ([`Agent::flush`]). [`driver`] is the event loop around it in a real job; the simulation tests drive the same
//! agent by hand.
//!
//! An agent has three floors, and code sees only those below its own:
//!
//! | floor | holds |
//! |---|---|
//! | [`Agent`], here and in the files beside | what comes in is handed to its part, and what ends is handed on |
//! | `controller/` | the cache controller: lines, directory, claims and mappings, by the protocol's tables |
//! | `context/` | what all parts use: pool, frames, NVMe operations, messages, answers |
//!
//! Parts beside the controller own what they know, and are handed the controller for what they need of it:
//!
//! | file | holds |
//! |---|---|
//! | `requests.rs` | requests of the ranks of the node |
//! | `ahead.rs`, `eviction.rs` | read-ahead and prefetch; evicting ahead of need |
//! | `balance.rs` | sharing the pool out among sizes of pages |
//! | `checkpoints.rs`, `withdrawal.rs` | making segments durable; taking back the pages of one that goes |
//! | `fetches.rs` | large gets of pages that stay at home |
//! | `services.rs`, `survive.rs` | services of libraries; going on when a node is lost |
//! | `items.rs`, `wire.rs` | what parts, and agents, hand to each other |
//! | `shards.rs`, `expected.rs` | sharing the pages out among threads; which frames wait for a peer's bytes |
//! | `driver.rs` | the event loop in a real job |
//!
//! No unsafe code: bytes are moved by spans.

#![forbid(unsafe_code)]

mod ahead;
mod balance;
mod checkpoints;
mod context;
mod controller;
pub mod driver;
mod eviction;
mod expected;
mod fetches;
mod items;
mod requests;
mod services;
mod shards;
mod survive;
pub mod wire;
mod withdrawal;

use crate::error::CacheError;
use crate::page::PageIndex;
use crate::partition::Partition;
use crate::pool::{Counter, CounterSnapshot, PoolAgent};
use crate::protocol::trace::Row;
use crate::protocol::{LineEvent, Message, home};
use crate::read_ahead::{Missed, ReadAheadSettings};
use crate::request::{InPlace, InPlaceAnswer};
use balance::Balance;
use checkpoints::Checkpoints;
pub use context::volume_name;
use context::{Clock, LocalMessage, NodeContext, failure};
use controller::{CacheController, Claims, CostModel, Deferred, HomePage, Lines, Mapped};
pub use expected::Expected;
use fetches::Fetches;
use items::{FetchRequest, ShardMessage, StorageWork};
use rustc_hash::FxHashMap;
use services::Services;
pub use shards::Shards;
use std::sync::Arc;
use std::time::Duration;
use vgas_nvm::{PageDone, Volume};
use vgas_rma::address::{Layout, NodeId, Peer};
use vgas_rma::endpoint::Endpoint;
use wire::{Beside, Coherence, Content};
use withdrawal::Withdrawals;

/// How an agent behaves; from the job's settings, each switchable for comparison.
pub struct AgentOptions {
    /// What the directory does: cooperative caching, in-place service and their thresholds.
    pub home: home::Parameters,
    /// Who leaves when the pool is full: one of [`crate::replacement::NAMES`].
    pub replacement: &'static str,
    /// Scan detection; none switches it off.
    pub read_ahead: Option<ReadAheadSettings>,
    /// Say the same about several pages in one message.
    pub batch: bool,
    /// How long gets may be that read parts of pages; the same for all ranks and agents.
    pub parts: crate::parts::Limits,
    /// Let ranks bring in pages of their own node by themselves.
    pub self_service: bool,
    /// Ask for NVMe where that was measured to be faster than other nodes' DRAM.
    pub read_nearest: bool,
}

/// The agent of one node, or one of its shards ([`Agent::in_shards`]).
pub struct Agent {
    cache: CacheController,
    balance: Balance,
    checkpoints: Checkpoints,
    withdrawals: Withdrawals,
    fetches: Fetches,
    services: Services,
}

impl Agent {
    /// An agent over a fresh pool and an opened volume, which does everything itself.
    ///
    /// # Errors
    /// The pool is made for several shards.
    pub fn new(
        layout: Layout,
        node: NodeId,
        pool: PoolAgent,
        volume: Volume,
        options: AgentOptions,
    ) -> Result<Self, CacheError> {
        let mut options = Some(options);
        let mut shards = Self::in_shards(layout, node, pool, vec![volume], || options.take())?;
        shards.pop().ok_or_else(too_few)
    }

    /// The shards of an agent over a fresh pool: as many as the pool is made for, with a handle of one volume each, the first
    /// one's first. `options` are asked for by each of them, and are the same but for what has a state.
    ///
    /// # Errors
    /// Too few handles or options, or the system is short of descriptors.
    pub fn in_shards(
        layout: Layout,
        node: NodeId,
        pool: PoolAgent,
        volumes: Vec<Volume>,
        mut options: impl FnMut() -> Option<AgentOptions>,
    ) -> Result<Vec<Self>, CacheError> {
        let shards = Arc::new(Shards::new(pool.layout(), &layout)?);
        let pools: Vec<PoolAgent> = (1..shards.count()).map(|shard| pool.another(shard)).collect();
        let agents = std::iter::once(pool).chain(pools).zip(volumes).map(|(pool, mut volume)| {
            let (shards, number) = (shards.clone(), pool.shard());
            if shards.count() > 1 {
                let shards = shards.clone();
                volume.set_bell(Arc::new(move || shards.ring(number)));
            }
            let options = options().ok_or_else(too_few)?;
            Ok(Self::with(layout.clone(), node, pool, volume, options, shards))
        });
        let agents: Vec<Self> = agents.collect::<Result<_, CacheError>>()?;
        if agents.len() == shards.count() as usize { Ok(agents) } else { Err(too_few()) }
    }

    fn with(
        layout: Layout,
        node: NodeId,
        pool: PoolAgent,
        volume: Volume,
        options: AgentOptions,
        shards: Arc<Shards>,
    ) -> Self {
        Self {
            cache: CacheController {
                costs: CostModel::new(layout.nodes()),
                lines: Lines::default(),
                homes: FxHashMap::default(),
                sending: home::Sending::default(),
                claims: Claims::default(),
                mapped: Mapped::default(),
                ctx: NodeContext::new(layout, node, pool, volume, options, shards),
            },
            balance: Balance::default(),
            checkpoints: Checkpoints::default(),
            withdrawals: Withdrawals::default(),
            fetches: Fetches::default(),
            services: Services::default(),
        }
    }

    /// The node this agent serves.
    pub fn node(&self) -> NodeId {
        self.cache.ctx.node
    }

    /// The pool, for counters and tests.
    pub fn pool(&self) -> &PoolAgent {
        self.cache.ctx.pool()
    }

    /// The volume, to sleep on its descriptor.
    pub fn volume(&mut self) -> &mut Volume {
        &mut self.cache.ctx.storage.volume
    }

    /// From now on the agent's time is what this says, in nanoseconds, and stands still in between: a simulation that
    /// is to be repeatable must not see the clock of the machine.
    pub fn simulate_time(&mut self, nanoseconds: u64) {
        self.cache.ctx.time.clock = Clock::Simulated(nanoseconds);
    }

    /// Shows every row of the protocol's tables that the agent takes, in order, to be held against the tables by
    /// [`crate::protocol::trace::replay`].
    pub fn observe(&mut self, observer: impl FnMut(Row) + Send + 'static) {
        self.cache.ctx.observer = Some(Box::new(observer));
    }

    /// What the shards of the agent share.
    pub fn shards(&self) -> &Arc<Shards> {
        &self.cache.ctx.shards
    }

    /// Which of them this is.
    pub fn shard(&self) -> u32 {
        self.cache.ctx.shard
    }

    /// The partitions that this shard knows.
    pub fn partitions(&self) -> impl Iterator<Item = &Partition> {
        self.cache.ctx.segments.partitions.all()
    }

    /// The directory of this node's pages: how many entries it has, and their bytes ([`home::Home::bytes`]) with what the agent keeps beside
    /// each.
    pub fn directory_bytes(&self) -> (usize, usize) {
        let beside = size_of::<PageIndex>() + size_of::<HomePage>() - size_of::<home::Home>();
        (self.cache.homes.len(), self.cache.homes.values().map(|page| page.home.bytes() + beside).sum())
    }

    /// What the node has counted: this shard of its agent and all its ranks.
    pub fn counters(&self) -> CounterSnapshot {
        self.cache.ctx.counters()
    }

    /// Whether a rank has posted a fault that was not taken yet.
    pub fn faults_wait(&self) -> bool {
        self.cache.faults_wait()
    }

    /// Whether ranks are to leave pages, which no descriptor reports: look again soon.
    pub fn revoking(&self) -> bool {
        self.cache.ctx.revoking()
    }

    /// Another agent says something about a page; content has arrived in the frame that was named to it.
    pub fn on_message(&mut self, from: Peer, coherence: Coherence) -> Result<(), CacheError> {
        let node = self.cache.ctx.agent_node(from)?;
        self.cache.ctx.check_page(from, coherence.page)?;
        self.cache.ctx.hear_of_segments();
        if coherence.message.is_for_home() && !self.cache.ctx.attached(coherence.page) {
            return Err(self
                .cache
                .ctx
                .violation(node, format!("asked for page {}, which no segment has", coherence.page)));
        }
        self.cache.hear_of_filled()?;
        self.cache.receive(node, coherence)
    }

    /// Another agent has filled a frame; which page it is, this one knows.
    pub fn on_content(&mut self, from: Peer, content: Content) -> Result<(), CacheError> {
        let Content { frame, message, origin } = content;
        let Some(page) = self.cache.ctx.shards.expected().page(frame) else {
            let node = self.cache.ctx.agent_node(from)?;
            return Err(self.cache.ctx.violation(node, format!("sent a page to frame {}, unasked", frame.0)));
        };
        self.on_message(from, Coherence { page, message, beside: Beside::Frame(frame), origin })
    }

    /// Another agent says the same, which needs no content, about each of several pages.
    pub fn on_several(
        &mut self,
        from: Peer,
        message: Message,
        pages: &[(PageIndex, Beside)],
    ) -> Result<(), CacheError> {
        for &(page, beside) in pages {
            self.on_message(from, Coherence::new(page, message, beside))?;
        }
        Ok(())
    }

    /// A rank (or another agent, for a put posted to it) asks for a small operation on a page whose home is here.
    pub fn on_in_place(&mut self, from: Peer, operation: InPlace, data: &[u8]) -> Result<(), CacheError> {
        self.cache.hear_of_filled()?;
        if let InPlace::Partition { of, what, number } = operation {
            return self.withdrawals.about_partition(&mut self.cache, from, of, what, number);
        }
        let page = operation.page();
        self.cache.ctx.check_page(from, page)?;
        if let InPlace::Fetch { page, offset, bytes, number } = operation
            && !self.cache.ctx.is_gone_here(page)
        {
            let fetch = FetchRequest { page, offset, bytes, number };
            return self.fetches.serve_fetch(&mut self.cache, from, fetch, data);
        }
        self.cache.serve_in_place(from, page, operation, data)
    }

    /// A home answers an in-place put of this agent.
    pub fn on_in_place_answer(
        &mut self,
        from: Peer,
        number: u32,
        answer: InPlaceAnswer,
    ) -> Result<(), CacheError> {
        let page = self.cache.lines.remote_puts.get(&number).map(|put| put.page());
        if page.and_then(|page| self.cache.ctx.home_of(page)).map(|home| self.cache.ctx.layout.agent_of(home))
            != Some(from)
        {
            return Err(CacheError::Protocol {
                who: self.cache.ctx.layout.describe(from),
                what: format!("answered in-place put {number}, which it was not asked for"),
            });
        }
        self.cache.remote_put_ended(number, answer)
    }

    /// Another shard of this agent says something.
    fn on_shard_message(&mut self, message: ShardMessage) -> Result<(), CacheError> {
        self.cache.hear_of_filled()?;
        match message {
            ShardMessage::Unmapped(id, page) => self.cache.unmapped(id, page),
            ShardMessage::UnmappedAll(id, page) => self.cache.unmapped_all(id, page),
            ShardMessage::Filled(frame, page) => self.cache.file_if_there(frame, page),
            ShardMessage::Clean(segment) => self.checkpoints.clean_part(&mut self.cache, segment),
            ShardMessage::Cleaned(segment, failure) => {
                self.checkpoints.part_cleaned(&mut self.cache, segment, failure.map_or(Ok(()), Err))
            }
            ShardMessage::MakeRoom(size, frames) => {
                self.cache.ctx.was_asked_for_room(size, frames);
                Ok(())
            }
            ShardMessage::Vacate(block) => self.cache.vacate(block),
            ShardMessage::Withdraw(which) => self.withdrawals.withdraw_part(&mut self.cache, which),
            ShardMessage::Withdrawn(which) => self.withdrawals.part_withdrawn(&mut self.cache, which),
            ShardMessage::Forget(which) => {
                self.withdrawals.forget_part(&mut self.cache, which);
                Ok(())
            }
            ShardMessage::Work(page, offset, work, piece) => self.cache.work_on(page, offset, work, piece),
            ShardMessage::Worked(piece, result) => {
                self.cache.ctx.worked(piece, result);
                Ok(())
            }
        }
    }

    /// Goes on with everything that can go on; true when something did. Never blocks.
    pub fn advance(&mut self) -> Result<bool, CacheError> {
        let mut progress = false;
        self.cache.ctx.look_at_clock();
        progress |= self.cache.hear_of_filled()?;
        progress |= self.cache.serve_parked()?;
        if self.cache.ctx.shards.count() == 1 {
            self.cache.take_faults()?;
        }
        progress |= self.cache.serve_faults()?;
        // First of all, so that the NVMe works while checksums are taken.
        self.cache.ctx.issue_storage()?;
        progress |= self.poll_storage()?;
        progress |= self.cache.poll_revocations()?;
        progress |= self.run_local()?;
        progress |= self.fetches.advance(&mut self.cache)?;
        progress |= self.services.run(&mut self.cache)?;
        progress |= self.withdrawals.advance(&mut self.cache)?;
        self.cache.ctx.refill_reserve()?;
        self.cache.feed_unstaged()?;
        progress |= self.cache.feed_starved()?;
        progress |= self.fetch_later()?;
        self.make_room()?;
        // Evictions of clean pages of this node's own end here, so that their frames are there for the next turn.
        progress |= self.run_local()?;
        progress |= self.cache.poll_revocations()?;
        self.cache.ctx.issue_storage()?;
        if !self.cache.ctx.frames.hungry.is_empty() {
            self.cache.ctx.feed_hungry()?;
        }
        self.cache.ctx.tell()?;
        Ok(progress)
    }

    /// Takes what the NVMe has done.
    pub(super) fn poll_storage(&mut self) -> Result<bool, CacheError> {
        let mut done = std::mem::take(&mut self.cache.ctx.storage.done);
        self.cache.ctx.storage.volume.poll(&mut done)?;
        let any = !done.is_empty();
        for PageDone { key, result } in done.drain(..) {
            let Some(work) = self.cache.ctx.storage.keys.remove(key) else { continue };
            if let StorageWork::Part(number) = work {
                self.cache.part_read(number, Some(result))?;
                continue;
            }
            let result = result.map_err(|error| {
                let failure = failure(&error, self.cache.ctx.node);
                if let StorageWork::Flush(segment) = work {
                    self.cache.ctx.segments.complain(segment, &error);
                } else if let StorageWork::Step(segment, _) = work {
                    self.cache.ctx.segments.complain(segment, &error);
                }
                self.cache.ctx.storage.failures.tell(failure, &error);
                failure
            });
            match work {
                StorageWork::Read(page) | StorageWork::Write(page) => {
                    self.cache.stored(page, work, result)?
                }
                StorageWork::Copy { page, original, copy } => {
                    self.cache.copy_stored(page, original, copy, result)?;
                }
                StorageWork::Flush(segment) => self.checkpoints.flushed(&mut self.cache, segment, result)?,
                StorageWork::Step(_, waiter) => {
                    self.checkpoints.step_done(&mut self.cache, waiter, result)?
                }
                StorageWork::Part(_) => {}
            }
        }
        self.cache.ctx.storage.done = done;
        // Before room is made: ranks copy meanwhile.
        self.cache.ctx.tell()?;
        Ok(any)
    }

    /// Hands what was said to the conduits, and wakes the ranks whose operations ended.
    pub fn flush(&mut self, endpoint: &Endpoint) -> Result<bool, CacheError> {
        let ctx = &mut self.cache.ctx;
        let flushed = ctx.outbox.flush(endpoint)?;
        if flushed.messages > 0 {
            let counters = [
                Counter::RequestMessages,
                Counter::DataMessages,
                Counter::InvalidationMessages,
                Counter::ReplyMessages,
            ];
            for (counter, count) in counters.into_iter().zip(flushed.kinds) {
                if count > 0 {
                    ctx.count(counter, count);
                }
            }
            ctx.count(Counter::DataBytes, flushed.data_bytes);
            ctx.count(Counter::ControlBytes, flushed.control_bytes);
        }
        let any = flushed.messages > 0 || !flushed.frames.is_empty() || !flushed.staged.is_empty();
        for frame in flushed.frames {
            ctx.sent(frame)?;
        }
        for (to, staged) in flushed.staged {
            self.fetches.answer_left(to, &staged);
        }
        ctx.tell()?;
        for peer in ctx.answers.rings.drain(..) {
            endpoint.ring(peer);
        }
        Ok(any)
    }

    /// Whether something is in flight that another turn may go on with.
    pub fn busy(&self) -> bool {
        let ctx = &self.cache.ctx;
        ctx.revoking()
            || !ctx.outbox.is_empty()
            || !ctx.local.is_empty()
            || !ctx.works.ended.is_empty()
            || self.balance.is_vacating()
            || self.withdrawals.is_withdrawing()
    }

    /// Whether the NVMe has something to do for it: answers come in less time than it takes to be woken twice.
    fn awaits_storage(&self) -> bool {
        !self.cache.ctx.storage.keys.is_empty()
    }

    /// How long it may sleep when nothing arrives.
    pub fn max_sleep(&self) -> Duration {
        let ctx = &self.cache.ctx;
        // Frames that are reserved become evictable without anybody saying so.
        let waiting = !ctx.frames.starved.is_empty()
            || !ctx.frames.unstaged.is_empty()
            || self.balance.is_vacating()
            || self.withdrawals.is_withdrawing();
        // What others ring for wakes the first shard alone.
        let rung_elsewhere = ctx.shards.count() > 1
            && (self.cache.claims.has_any_parked()
                || !ctx.frames.hungry.is_empty()
                || ctx.outbox.has_unsent());
        let milliseconds = match self.services.max_sleep_ms(ctx.time.now_ms) {
            _ if !ctx.works.ended.is_empty() => 0,
            _ if waiting || rung_elsewhere => 1,
            again => again.unwrap_or(1000).min(1000),
        };
        Duration::from_millis(milliseconds)
    }

    fn run_local(&mut self) -> Result<bool, CacheError> {
        let mut any = false;
        while let Some(local) = self.cache.ctx.local.pop_front() {
            any = true;
            match local {
                LocalMessage::Coherence(coherence) => self.cache.receive(self.cache.ctx.node, coherence)?,
                LocalMessage::Cleaned(file, result) => {
                    self.checkpoints.part_cleaned(&mut self.cache, file, result)?
                }
                LocalMessage::MapMissed(page) => {
                    self.missed(&Missed::all(page..page + 1))?;
                    self.reached(page..page + 1)?;
                }
                LocalMessage::AheadUsed(page) => self.used_ahead(page)?,
                LocalMessage::Apply { page, write, work } => {
                    self.cache.line_event(page, Deferred::apply(LineEvent::Apply { write }, work))?;
                }
            }
        }
        Ok(any)
    }

    /// Gives this node its services; before the first message.
    pub fn set_services(&mut self, services: crate::service::Services) {
        self.services = Services::new(services);
    }
}

fn too_few() -> CacheError {
    CacheError::Rma(vgas_rma::RmaError::Usage("each shard of an agent needs a volume and options".into()))
}
