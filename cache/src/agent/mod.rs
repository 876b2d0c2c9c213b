//! The agent of a node: it runs the protocol, NVMe input and output, and replacement for all ranks of the node.
//!
//! The [`Agent`] itself owns no thread and no socket, and tests set its clock. It is told what happened ([`Agent::on_request`],
//! [`Agent::on_message`], [`Agent::on_in_place`]), goes on ([`Agent::advance`]), and leaves what it wants to say in an
//! outbox ([`Agent::flush`]). [`driver`] is the event loop around it in a real job; the simulation tests drive the same
//! agent by hand.
//!
//! | file | holds |
//! |---|---|
//! | `requests.rs` | what the ranks of the node ask for |
//! | `lines/` | this node's copies: what ranks want, what messages do to them |
//! | `homes.rs` | the directory of pages whose home is here |
//! | `own.rs` | the short way of pages whose home is here and that nobody else has |
//! | `claims.rs` | such pages that ranks bring in by themselves |
//! | `mapped.rs` | pages that their owner uses through plain pointers |
//! | `expected.rs` | which frames wait for a peer's bytes |
//! | `parts.rs` | small gets that bring no page in |
//! | `work.rs` | atomic updates, and other work on bytes of pages whose home is here |
//! | `fetches.rs` | large gets of pages that stay at home |
//! | `services.rs` | services of libraries |
//! | `survive.rs` | going on when a node is lost |
//! | `answers.rs` | telling ranks what has ended |
//! | `room.rs` | frames: finding, evicting, giving back |
//! | `victims.rs`, `balance.rs` | whom replacement chooses among; sharing the pool out among sizes of pages |
//! | `prices.rs` | how long pages take, by where they come from |
//! | `storage.rs` | NVMe operations in flight |
//! | `segments.rs`, `withdrawal.rs` | segments of ranks: made, opened, made durable; taking back the pages of one that goes |
//! | `ahead.rs` | read-ahead and prefetch |
//! | `outbox.rs`, `wire.rs` | what is said to other agents |
//! | `shards.rs` | sharing the pages out among threads, and what these tell each other |
//!
//! No unsafe code: bytes are moved by spans.

#![forbid(unsafe_code)]

mod ahead;
mod answers;
mod balance;
mod claims;
pub mod driver;
mod expected;
mod fetches;
mod homes;
mod lines;
mod mapped;
mod outbox;
mod own;
mod parts;
mod prices;
mod requests;
mod room;
mod segments;
mod services;
mod shards;
mod storage;
mod survive;
mod victims;
pub mod wire;
mod withdrawal;
mod work;

use crate::error::CacheError;
use crate::page::{PageInSegment, PageIndex};
use crate::pool::{Counter, CounterSnapshot, FrameId, PoolAgent};
use crate::protocol::trace::{Row, Taken};
use crate::protocol::{InPlaceService, LineEvent, Message, home};
use crate::read_ahead::{Detectors, ReadAheadSettings};
use crate::request::{InPlace, InPlaceAnswer};
pub use expected::Expected;
use homes::HomePage;
use lines::InPlaceWork;
use outbox::{Outbox, Outgoing};
use rustc_hash::FxHashMap;
use segments::Segments;
pub use segments::volume_name;
use shards::Aside;
pub use shards::Shards;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use vgas_nvm::Volume;
use vgas_rma::address::{Layout, NodeId, Peer};
use vgas_rma::endpoint::Endpoint;
use wire::{Beside, Coherence, Content};

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

/// For segments that are always served in place once a second node puts.
const IN_PLACE_AT_ONCE: InPlaceService = InPlaceService { enter_after: 1, leave_after: u16::MAX };
/// While so many readers of other pages are being sent theirs, readers of a page are supplied one after the other: links have enough to
/// do, and the node that is the first to have each page must not send it to all.
const SUPPLIED_BESIDE: usize = 4;

/// What the agent decided to tell a rank or another agent's page, in its own queue: messages to oneself.
#[derive(Debug)]
enum Local {
    /// A coherence message of this node to itself.
    Coherence(Coherence),
    /// The home applies a small operation to the home node's own copy.
    Apply { page: PageIndex, write: bool, work: InPlaceWork },
}

/// Where the agent's time comes from.
#[derive(Debug)]
enum Clock {
    Real(Instant),
    /// Nanoseconds, as a simulation says.
    Simulated(u64),
}

/// The agent's time.
#[derive(Debug)]
struct Time {
    clock: Clock,
    /// Milliseconds at the last look at the clock: once a turn, because a look costs as much as finding a page.
    now_ms: u64,
}

impl Time {
    /// Nanoseconds since the agent began.
    fn nanoseconds(&self) -> u64 {
        match self.clock {
            Clock::Real(began) => began.elapsed().as_nanos() as u64,
            Clock::Simulated(nanoseconds) => nanoseconds,
        }
    }
}

/// Who wants to see the rows of the protocol's tables that an agent takes.
type Observer = Box<dyn FnMut(Row) + Send>;

/// Answers that may wait for a peer: as many as a rank can wait for.
const ANSWERS_MAX: usize = 1 << 16;

/// How long a waiter has to copy a page that was fetched for it before the page may be taken away again. Long against
/// a wake-up, short against a person.
const RESERVATION: Duration = Duration::from_millis(4);

/// The agent of one node, or one of its shards ([`Agent::in_shards`]).
pub struct Agent {
    node: NodeId,
    /// Which shard this is, and what it shares with the others.
    shard: u32,
    shards: Arc<Shards>,
    layout: Layout,
    pool: PoolAgent,
    options: AgentOptions,
    lines: lines::Lines,
    homes: FxHashMap<PageIndex, HomePage>,
    /// Who is sending pages of these homes to readers.
    sending: home::Sending,
    prices: prices::Prices,
    frames: room::Frames,
    victims: victims::Victims,
    balance: balance::Balance,
    scans: Detectors,
    answers: answers::Answers,
    storage: storage::Storage,
    segments: Segments,
    mapped: mapped::Mapped,
    parts: parts::Parts,
    works: work::Works,
    staging: fetches::Staging,
    services: services::Services,
    /// Most bytes of a message.
    message_bytes_max: usize,
    claims: claims::Claims,
    /// What this node has said to itself.
    local: VecDeque<Local>,
    outbox: Outbox,
    time: Time,
    observer: Option<Observer>,
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
        let parts = parts::Parts::new(options.parts);
        Self {
            outbox: Outbox::new(layout.peers(), options.batch, wire::SEVERAL_MAX),
            segments: Segments::default(),
            frames: room::Frames::new(),
            victims: victims::Victims::new(options.replacement),
            balance: balance::Balance::default(),
            scans: Detectors::new(options.read_ahead),
            shard: pool.shard(),
            shards,
            storage: storage::Storage::new(volume),
            node,
            prices: prices::Prices::new(layout.nodes()),
            layout,
            pool,
            options,
            lines: lines::Lines::default(),
            homes: FxHashMap::default(),
            sending: home::Sending::default(),
            answers: answers::Answers::default(),
            mapped: mapped::Mapped::default(),
            parts,
            works: work::Works::default(),
            staging: fetches::Staging::default(),
            services: services::Services::default(),
            message_bytes_max: 0,
            claims: claims::Claims::default(),
            local: VecDeque::new(),
            time: Time { clock: Clock::Real(Instant::now()), now_ms: 0 },
            observer: None,
        }
    }

    /// The node this agent serves.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// The pool, for counters and tests.
    pub fn pool(&self) -> &PoolAgent {
        &self.pool
    }

    /// The volume, to sleep on its descriptor.
    pub fn volume(&mut self) -> &mut Volume {
        &mut self.storage.volume
    }

    /// From now on the agent's time is what this says, in nanoseconds, and stands still in between: a simulation that
    /// is to be repeatable must not see the clock of the machine.
    pub fn simulate_time(&mut self, nanoseconds: u64) {
        self.time.clock = Clock::Simulated(nanoseconds);
    }

    /// Shows every row of the protocol's tables that the agent takes, in order, to be held against the tables by
    /// [`crate::protocol::trace::replay`].
    pub fn observe(&mut self, observer: impl FnMut(Row) + Send + 'static) {
        self.observer = Some(Box::new(observer));
    }

    /// What the shards of the agent share.
    pub fn shards(&self) -> &Arc<Shards> {
        &self.shards
    }

    /// Which of them this is.
    pub fn shard(&self) -> u32 {
        self.shard
    }

    /// Whether a page is this shard's.
    fn is_mine(&self, page: PageIndex) -> bool {
        self.pool.layout().shard_of(page) == self.shard
    }

    /// What the node has counted: this shard of its agent and all its ranks.
    pub fn counters(&self) -> CounterSnapshot {
        let mut sum = self.pool.counters();
        for local_rank in 0..self.pool.layout().spec().local_ranks {
            if let Ok(rank) = self.pool.rank_counters(local_rank) {
                sum.add(&rank);
            }
        }
        sum
    }

    /// The directory of this node's pages: how many entries it has, and their bytes ([`home::Home::bytes`]) with what the agent keeps beside
    /// each.
    pub fn directory_bytes(&self) -> (usize, usize) {
        let beside = size_of::<PageIndex>() + size_of::<HomePage>() - size_of::<home::Home>();
        (self.homes.len(), self.homes.values().map(|page| page.home.bytes() + beside).sum())
    }

    /// Another agent says something about a page; content has arrived in the frame that was named to it.
    pub fn on_message(&mut self, from: Peer, coherence: Coherence) -> Result<(), CacheError> {
        let node = self.agent_node(from)?;
        self.check_page(from, coherence.page)?;
        self.hear_of_segments();
        if coherence.message.is_for_home() && !self.attached(coherence.page) {
            return Err(
                self.violation(node, format!("asked for page {}, which no segment has", coherence.page))
            );
        }
        self.hear_of_filled()?;
        self.receive(node, coherence)
    }

    /// Another agent has filled a frame; which page it is, this one knows.
    pub fn on_content(&mut self, from: Peer, content: Content) -> Result<(), CacheError> {
        let Content { frame, message, origin } = content;
        let Some(page) = self.shards.expected().page(frame) else {
            let node = self.agent_node(from)?;
            return Err(self.violation(node, format!("sent a page to frame {}, unasked", frame.0)));
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
        self.hear_of_filled()?;
        if let InPlace::Partition { of, what, number } = operation {
            return self.about_partition(from, of, what, number);
        }
        let page = operation.page();
        self.check_page(from, page)?;
        self.serve_in_place(from, page, operation, data)
    }

    /// A home answers an in-place put of this agent.
    pub fn on_in_place_answer(
        &mut self,
        from: Peer,
        number: u32,
        answer: InPlaceAnswer,
    ) -> Result<(), CacheError> {
        let page = self.lines.remote_puts.get(&number).map(|put| put.page());
        if page.and_then(|page| self.home_of(page)).map(|home| self.layout.agent_of(home)) != Some(from) {
            return Err(CacheError::Protocol {
                who: self.layout.describe(from),
                what: format!("answered in-place put {number}, which it was not asked for"),
            });
        }
        self.remote_put_ended(number, answer)
    }

    /// Another shard of this agent says something.
    fn on_aside(&mut self, aside: Aside) -> Result<(), CacheError> {
        self.hear_of_filled()?;
        match aside {
            Aside::Unmapped(id, page) => self.unmapped(id, page),
            Aside::UnmappedAll(id, page) => self.unmapped_all(id, page),
            // Unless the page has gone its way meanwhile.
            Aside::Filled(frame, page) if self.pool.page_in(frame)? == Some(page) => self.file(frame, page),
            Aside::Filled(..) => Ok(()),
            Aside::Clean(segment) => self.clean_part(segment),
            Aside::Cleaned(segment, failure) => self.part_cleaned(segment, failure.map_or(Ok(()), Err)),
            Aside::MakeRoom(size, frames) => {
                self.was_asked_for_room(size, frames);
                Ok(())
            }
            Aside::Vacate(block) => self.vacate(block),
            Aside::Withdraw(which) => self.withdraw_part(which),
            Aside::Withdrawn(which) => self.part_withdrawn(which),
            Aside::Forget(which) => {
                self.forget_part(which);
                Ok(())
            }
            Aside::Work(page, offset, work, one) => self.work_on(page, offset, work, one),
            Aside::Worked(one, result) => {
                self.worked(one, result);
                Ok(())
            }
        }
    }

    /// Goes on with everything that can go on; true when something did. Never blocks.
    pub fn advance(&mut self) -> Result<bool, CacheError> {
        let mut progress = false;
        self.look_at_clock();
        progress |= self.hear_of_filled()?;
        progress |= self.serve_parked()?;
        if self.shards.count() == 1 {
            self.take_faults()?;
        }
        progress |= self.serve_faults()?;
        // First of all, so that the NVMe works while checksums are taken.
        self.issue_storage()?;
        progress |= self.poll_storage()?;
        progress |= self.poll_revocations()?;
        progress |= self.run_local()?;
        progress |= self.go_on_fetching()?;
        progress |= self.run_services()?;
        progress |= !self.segments.withdrawals.is_empty() && self.go_on_withdrawing()?;
        self.refill_reserve()?;
        progress |= self.feed_starved()?;
        progress |= self.fetch_later()?;
        self.make_room()?;
        // Evictions of clean pages of this node's own end here, so that their frames are there for the next turn.
        progress |= self.run_local()?;
        progress |= self.poll_revocations()?;
        self.issue_storage()?;
        if !self.frames.hungry.is_empty() {
            self.feed_hungry()?;
        }
        self.tell()?;
        Ok(progress)
    }

    /// Hands what was said to the conduits, and wakes the ranks whose operations ended.
    pub fn flush(&mut self, endpoint: &Endpoint) -> Result<bool, CacheError> {
        let flushed = self.outbox.flush(endpoint)?;
        if flushed.messages > 0 {
            let counters = [
                Counter::RequestMessages,
                Counter::DataMessages,
                Counter::InvalidationMessages,
                Counter::ReplyMessages,
            ];
            for (counter, count) in counters.into_iter().zip(flushed.kinds) {
                if count > 0 {
                    self.pool.count(counter, count);
                }
            }
            self.pool.count(Counter::DataBytes, flushed.data_bytes);
            self.pool.count(Counter::ControlBytes, flushed.control_bytes);
        }
        let any = flushed.messages > 0 || !flushed.frames.is_empty() || !flushed.staged.is_empty();
        for frame in flushed.frames {
            self.sent(frame)?;
        }
        for (to, staged) in flushed.staged {
            self.answer_left(to, &staged);
        }
        self.tell()?;
        for peer in self.answers.rings.drain(..) {
            endpoint.ring(peer);
        }
        Ok(any)
    }

    /// Whether something is in flight that another turn may go on with.
    pub fn busy(&self) -> bool {
        self.revoking()
            || !self.outbox.is_empty()
            || !self.local.is_empty()
            || self.services.is_behind()
            || self.is_vacating()
            || self.is_withdrawing()
    }

    /// Whether ranks are to leave pages, which no descriptor reports: look again soon.
    pub fn revoking(&self) -> bool {
        self.pool.revoking()
    }

    /// Whether the NVMe has something to do for it: answers come in less time than it takes to be woken twice.
    fn awaits_storage(&self) -> bool {
        !self.storage.keys.is_empty()
    }

    /// How long it may sleep when nothing arrives.
    pub fn max_sleep(&self) -> Duration {
        // Frames that are reserved become evictable without anybody saying so.
        let waiting = !self.frames.starved.is_empty()
            || !self.frames.unstaged.is_empty()
            || self.is_vacating()
            || self.is_withdrawing();
        // What others ring for wakes the first shard alone.
        let rung_elsewhere = self.shards.count() > 1
            && (self.claims.has_any_parked() || !self.frames.hungry.is_empty() || self.outbox.has_unsent());
        let milliseconds = match self.services.max_sleep_ms(self.time.now_ms) {
            _ if self.services.is_behind() => 0,
            _ if waiting || rung_elsewhere => 1,
            again => again.unwrap_or(1000).min(1000),
        };
        Duration::from_millis(milliseconds)
    }

    fn look_at_clock(&mut self) {
        let now_ms = self.time.nanoseconds() / 1_000_000;
        if now_ms != self.time.now_ms {
            self.time.now_ms = now_ms;
            if self.shard == 0 {
                self.pool.tick();
            }
        }
    }

    /// One step of the directory entry of a page whose home is here.
    fn step_home(
        &mut self,
        page: PageIndex,
        event: home::HomeEvent,
    ) -> Result<home::HomeActions, crate::protocol::Violation> {
        let mut parameters = self.home_parameters(page);
        let (node, pool, pages, observer) =
            (self.node, &self.pool, &mut self.lines.pages, &mut self.observer);
        let entry = self.homes.entry(page).or_insert_with(|| own::implied(node, pool, pages, page));
        let home = entry.directory();
        let mut sending = self.sending;
        sending.end(home.suppliers());
        parameters.side_by_side &= sending.all() < SUPPLIED_BESIDE;
        parameters.sending = sending;
        let stepped = home::step_observed(home, &parameters, event, &mut |state, event, next| {
            if let Some(observe) = observer {
                observe(Row { page: page.0, node, taken: Taken::Home(state, event, next) });
            }
        });
        sending.begin(home.suppliers());
        self.sending = sending;
        stepped
    }

    /// What the home of a page goes by: the job's settings, and the policy of the page's segment.
    fn home_parameters(&self, page: PageIndex) -> home::Parameters {
        let job = self.options.home;
        match self.segments.partitions.find(page) {
            Some(partition) if partition.policy.in_place => {
                home::Parameters { in_place: Some(IN_PLACE_AT_ONCE), ..job }
            }
            _ => job,
        }
    }

    fn run_local(&mut self) -> Result<bool, CacheError> {
        let mut any = false;
        while let Some(local) = self.local.pop_front() {
            any = true;
            match local {
                Local::Coherence(coherence) => self.receive(self.node, coherence)?,
                Local::Apply { page, write, work } => {
                    self.line_event(page, lines::Deferred::apply(LineEvent::Apply { write }, work))?;
                }
            }
        }
        Ok(any)
    }

    /// A message of this protocol, from this node or another, to the home or the line here.
    fn receive(&mut self, from: NodeId, coherence: Coherence) -> Result<(), CacheError> {
        if coherence.message.is_for_home() {
            if self.home_of(coherence.page) != Some(self.node) {
                return Err(self.violation(from, "spoke to the wrong home"));
            }
            if self.meets_claim(coherence.page)? {
                self.park(coherence.page, claims::Parked::Home(from, coherence));
                return Ok(());
            }
            self.home_message(from, coherence)
        } else {
            // The answer would seem to be this node's own mistake.
            if from != self.node && coherence.message.requester() == Some(self.node) {
                return Err(self.violation(from, "asks this node to answer itself"));
            }
            let event = LineEvent::Message { from, message: coherence.message };
            self.line_event(
                coherence.page,
                lines::Deferred::message(event, coherence.beside, coherence.origin),
            )
        }
    }

    /// Says something to a node, this one included.
    fn say(&mut self, to: NodeId, coherence: Coherence) {
        if to == self.node {
            self.local.push_back(Local::Coherence(coherence));
        } else {
            self.outbox.push(self.layout.agent_of(to), Outgoing::Coherence(coherence));
        }
    }

    /// Sends a page to a node's frame, which is not this node's.
    fn say_with_page(&mut self, to: NodeId, coherence: Coherence, frame: FrameId) -> Result<(), CacheError> {
        let from = self.pool.frame_span(frame)?;
        self.frames.sending.entry(frame).or_insert((0, false)).0 += 1;
        let Some(into) = coherence.beside.frame() else {
            return Err(self.violation(to, "wants a page, and named no frame for it"));
        };
        self.outbox.push(self.layout.agent_of(to), Outgoing::Data { coherence, from, frame, into });
        Ok(())
    }

    fn home_of(&self, page: PageIndex) -> Option<NodeId> {
        let (owner, _) = self.pool.layout().locate(page)?;
        Some(self.layout.node_of(owner))
    }

    /// Where a page is in this node's volume; none of a page whose home is elsewhere, or that no segment has.
    fn stored_in(&self, page: PageIndex) -> Option<(u32, PageInSegment)> {
        let found = self.segments.partitions.find(page)?;
        (self.layout.node_of(found.owner) == self.node).then(|| found.stored_in(page))
    }

    fn check_page(&self, from: Peer, page: PageIndex) -> Result<(), CacheError> {
        if page.0 < self.pool.layout().pages() {
            return Ok(());
        }
        Err(CacheError::Protocol {
            who: self.layout.describe(from),
            what: format!("page {page} of {}", self.pool.layout().pages()),
        })
    }

    fn local_rank(&self, from: Peer) -> Result<u32, CacheError> {
        let ranks = self.layout.ranks_of(self.node);
        match self.layout.rank_of_peer(from) {
            Some(rank) if ranks.contains(&rank.0) => Ok(rank.0 - ranks.start),
            _ => Err(CacheError::Protocol {
                who: self.layout.describe(from),
                what: format!("asked the agent of {}, which is not its own", self.node),
            }),
        }
    }

    fn agent_node(&self, from: Peer) -> Result<NodeId, CacheError> {
        match self.layout.rank_of_peer(from) {
            None if self.layout.contains(from) => Ok(self.layout.node_of_peer(from)),
            _ => Err(CacheError::Protocol {
                who: self.layout.describe(from),
                what: "sent a coherence message, which only agents do".into(),
            }),
        }
    }

    fn violation(&self, from: NodeId, what: impl Into<String>) -> CacheError {
        CacheError::Protocol { who: self.layout.describe(self.layout.agent_of(from)), what: what.into() }
    }

    /// A message that names nothing beside its page.
    fn plain(page: PageIndex, message: Message) -> Coherence {
        Coherence::new(page, message, Beside::Nothing)
    }
}

fn too_few() -> CacheError {
    CacheError::Rma(vgas_rma::RmaError::Usage("each shard of an agent needs a volume and options".into()))
}
