//! Services of libraries as the agent runs them ([`crate::service`]): in its first shard, between the messages.
//!
//! What a service says is carried out when it has returned; what ends of that, it hears in the next turn, so that no call of it
//! happens inside of another.

use super::context::Outgoing;
use super::controller::CacheController;
use super::items::{ANSWERS_MAX, FrameWork};
use super::shards::Incoming;
use crate::error::CacheError;
use crate::pool::Counter;
use crate::request::service_words::{CALL, COUNTS, PASSED, TELL, WHAT_BITS};
use crate::service::{Bare, Call, Order, Registered, ServiceCounts, ServiceError, encode, number_of};
use rustc_hash::FxHashMap;
use vgas_rma::address::{NodeId, Peer};

/// How soon [`crate::service::Service::again`] follows, in milliseconds.
const AGAIN_MS: u64 = 1000;

/// A service of this node.
struct Running {
    number: u32,
    service: Box<dyn Registered>,
    counts: ServiceCounts,
    /// When it is to be called again, in milliseconds.
    again_ms: Option<u64>,
}

/// A question of a service to its like.
#[derive(Debug)]
struct Asked {
    service: usize,
    node: NodeId,
    ticket: u64,
}

/// The services, and what is in flight for them.
#[derive(Default)]
pub(super) struct Services {
    running: Vec<Running>,
    /// By the number in their answer.
    asked: FxHashMap<u32, Asked>,
    next: u32,
    /// Calls that each peer waits for.
    calling: FxHashMap<Peer, usize>,
    /// Kept for its allocation.
    orders: Vec<Order>,
    /// Nodes without which the job goes on.
    lost: Vec<NodeId>,
}

impl Services {
    pub fn new(services: crate::service::Services) -> Self {
        let running = services.all.into_iter().map(|service| Running {
            number: number_of(service.name(), service.library()),
            service,
            counts: ServiceCounts::default(),
            again_ms: None,
        });
        Self { running: running.collect(), ..Self::default() }
    }

    /// Returns whether a service may read and write the segments of its library.
    pub fn is_owner(&self, service: usize) -> bool {
        self.running.get(service).is_some_and(|running| running.service.library().is_owner())
    }

    /// In how many milliseconds something is to be done, if nothing comes before.
    pub fn max_sleep_ms(&self, now_ms: u64) -> Option<u64> {
        let again = self.running.iter().filter_map(|running| running.again_ms).min();
        again.map(|at| at.saturating_sub(now_ms).max(1))
    }

    /// The nodes whose loss was heard of here.
    pub fn lost(&self) -> &[NodeId] {
        &self.lost
    }
}

impl Services {
    /// Somebody calls a service.
    pub(super) fn on_service(
        &mut self,
        cache: &mut CacheController,
        from: Peer,
        [slot, number, what]: [u32; 3],
        bytes: &[u8],
    ) -> Result<(), CacheError> {
        if what & ((1 << WHAT_BITS) - 1) == PASSED {
            return self.on_passed(cache, from, Peer(what >> WHAT_BITS), [slot, number], bytes);
        }
        let is_awaited = what != TELL;
        let calling = self.calling.entry(from).or_default();
        if is_awaited && (*calling >= ANSWERS_MAX || cache.ctx.outbox.waiting_for(from) >= ANSWERS_MAX) {
            return Err(CacheError::Protocol {
                who: cache.ctx.layout.describe(from),
                what: "calls services and does not take their answers".into(),
            });
        }
        *calling += usize::from(is_awaited);
        self.call_service(cache, Call { from, slot: is_awaited.then_some(slot) }, number, what, bytes)
    }

    /// The agent of another node leaves the call of a rank to this one.
    fn on_passed(
        &mut self,
        cache: &mut CacheController,
        from: Peer,
        caller: Peer,
        [slot, number]: [u32; 2],
        bytes: &[u8],
    ) -> Result<(), CacheError> {
        let refuse = |what: String| Err(CacheError::Protocol { who: cache.ctx.layout.describe(from), what });
        if cache.ctx.layout.rank_of_peer(from).is_some() || cache.ctx.layout.rank_of_peer(caller).is_none() {
            return refuse(format!("passes on a call that {caller} is to have made"));
        }
        let calling = self.calling.entry(caller).or_default();
        if *calling >= ANSWERS_MAX || cache.ctx.outbox.waiting_for(caller) >= ANSWERS_MAX {
            return refuse("passes on more calls than are answered".into());
        }
        *calling += 1;
        self.call_service(cache, Call { from: caller, slot: Some(slot) }, number, CALL, bytes)
    }

    fn call_service(
        &mut self,
        cache: &mut CacheController,
        call: Call,
        number: u32,
        what: u32,
        bytes: &[u8],
    ) -> Result<(), CacheError> {
        let from = call.from;
        let Some(index) = self.running.iter().position(|running| running.number == number) else {
            self.answer_call(cache, call, Err(ServiceError::Unknown));
            return Ok(());
        };
        if what == COUNTS {
            let counts = encode(&self.running[index].counts);
            self.answer_call(cache, call, counts);
            return Ok(());
        }
        tracing::trace!(service = self.running[index].service.name(), %from, "called");
        cache.ctx.count(Counter::ServiceCalls, 1);
        let mut refused = None;
        self.with_service(cache, index, |service, home| refused = service.called(call, bytes, home).err())?;
        let counts = &mut self.running[index].counts;
        match refused {
            None => counts.calls += 1,
            Some(call) => {
                counts.refused += 1;
                self.answer_call(cache, call, Err(ServiceError::Request));
            }
        }
        Ok(())
    }

    /// A service of another node, or of this one, answers one of this node.
    pub(super) fn on_service_answer(
        &mut self,
        cache: &mut CacheController,
        from: Peer,
        slot: u32,
        answer: Result<&[u8], ServiceError>,
    ) -> Result<(), CacheError> {
        let asked = self.asked.get(&slot).filter(|asked| cache.ctx.layout.agent_of(asked.node) == from);
        if asked.is_none() && self.lost.contains(&cache.ctx.layout.node_of_peer(from)) {
            // It came before the loss was heard of.
            return Ok(());
        }
        if asked.is_none() {
            return Err(CacheError::Protocol {
                who: cache.ctx.layout.describe(from),
                what: format!("answered question {slot}, which it was not asked"),
            });
        }
        let Some(Asked { service, ticket, .. }) = self.asked.remove(&slot) else { return Ok(()) };
        self.with_service(cache, service, |service, home| service.answered(ticket, answer, home))
    }

    /// A node is lost: nobody there answers, or waits for an answer.
    pub(super) fn lose_node(&mut self, cache: &mut CacheController, node: NodeId) -> Result<(), CacheError> {
        self.lost.push(node);
        let layout = &cache.ctx.layout;
        self.calling.retain(|from, _| layout.node_of_peer(*from) != node);
        let mut asked: Vec<Asked> =
            self.asked.extract_if(|_, asked| asked.node == node).map(|(_, asked)| asked).collect();
        asked.sort_by_key(|asked| asked.ticket);
        for Asked { service, ticket, .. } in asked {
            self.with_service(cache, service, |service, home| {
                service.answered(ticket, Err(ServiceError::Lost), home);
            })?;
        }
        for index in 0..self.running.len() {
            self.with_service(cache, index, |service, home| service.lost(node, home))?;
        }
        Ok(())
    }

    /// Tells services what has ended, and what time it is.
    pub(super) fn run(&mut self, cache: &mut CacheController) -> Result<bool, CacheError> {
        let mut any = false;
        while let Some((index, ticket, result)) = cache.ctx.works.ended.pop_front() {
            any = true;
            self.with_service(cache, index, |service, home| service.done(ticket, result, home))?;
        }
        for index in 0..self.running.len() {
            let again = &mut self.running[index].again_ms;
            if again.take_if(|at| *at <= cache.ctx.time.now_ms).is_some() {
                any = true;
                self.with_service(cache, index, |service, home| service.again(home))?;
            }
        }
        Ok(any)
    }

    /// Calls a service, and carries out what it says.
    fn with_service(
        &mut self,
        cache: &mut CacheController,
        index: usize,
        call: impl FnOnce(&mut dyn Registered, Bare<'_>),
    ) -> Result<(), CacheError> {
        let mut orders = std::mem::take(&mut self.orders);
        if let Some(running) = self.running.get_mut(index) {
            let (layout, node, now_ms) = (&cache.ctx.layout, cache.ctx.node, cache.ctx.time.now_ms);
            call(&mut *running.service, Bare { layout, node, now_ms, orders: &mut orders });
        }
        for order in orders.drain(..) {
            self.carry_out(cache, index, order)?;
        }
        self.orders = orders;
        Ok(())
    }

    fn carry_out(
        &mut self,
        cache: &mut CacheController,
        index: usize,
        order: Order,
    ) -> Result<(), CacheError> {
        let Running { number, counts, again_ms, .. } = &mut self.running[index];
        let number = *number;
        match order {
            Order::Answer(call, answer) => {
                counts.answers += 1;
                self.answer_call(cache, call, answer);
            }
            Order::CallAgain => {
                again_ms.get_or_insert(cache.ctx.time.now_ms + AGAIN_MS);
            }
            Order::Ask(node, question, ticket) => {
                counts.asked += 1;
                self.ask_service(cache, index, number, node, question, ticket)?;
            }
            Order::PassOn(node, request, call) => {
                counts.asked += 1;
                self.pass_on(cache, number, node, request, call);
            }
            Order::Read { of, offset, bytes, ticket, only_here } => {
                counts.pages += 1;
                let kind = if only_here { FrameWork::ReadInMemory } else { FrameWork::Read };
                let work = |piece: std::ops::Range<usize>| kind(piece.len() as u32);
                cache.work_for_service(
                    (index, self.is_owner(index)),
                    ticket,
                    (of, offset, bytes),
                    work,
                    bytes as usize,
                )?;
            }
            Order::Write { of, offset, data, ticket } => {
                counts.pages += 1;
                let work = |piece: std::ops::Range<usize>| FrameWork::Write(data[piece].into());
                let bytes = u32::try_from(data.len()).unwrap_or(0);
                cache.work_for_service(
                    (index, self.is_owner(index)),
                    ticket,
                    (of, offset, bytes),
                    work,
                    0,
                )?;
            }
            Order::Update { of, offset, update, ticket } => {
                counts.pages += 1;
                // A word that is not aligned might cross a page.
                let bytes = update.word.bytes();
                let bytes = if offset.is_multiple_of(u64::from(bytes)) { bytes } else { 0 };
                let work = |_| FrameWork::Update(update);
                cache.work_for_service(
                    (index, self.is_owner(index)),
                    ticket,
                    (of, offset, bytes),
                    work,
                    8,
                )?;
            }
        }
        Ok(())
    }

    fn ask_service(
        &mut self,
        cache: &mut CacheController,
        service: usize,
        number: u32,
        node: NodeId,
        question: Result<Vec<u8>, ServiceError>,
        ticket: u64,
    ) -> Result<(), CacheError> {
        let question = question.and_then(|bytes| self.fitting(cache, bytes));
        let bytes = match question {
            Ok(_) if self.lost.contains(&node) => {
                return self.with_service(cache, service, |service, home| {
                    service.answered(ticket, Err(ServiceError::Lost), home);
                });
            }
            Ok(bytes) if node.0 < cache.ctx.layout.nodes() => bytes,
            refused => {
                let error = refused.err().unwrap_or(ServiceError::Unknown);
                return self.with_service(cache, service, |service, home| {
                    service.answered(ticket, Err(error), home)
                });
            }
        };
        while self.asked.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let slot = self.next;
        self.next = slot.wrapping_add(1);
        self.asked.insert(slot, Asked { service, node, ticket });
        let (to, words) = (cache.ctx.layout.agent_of(node), [slot, number, CALL]);
        if node == cache.ctx.node {
            cache.ctx.shards.route(Incoming::Service(to, words, bytes.into()));
        } else {
            cache.ctx.outbox.push(to, Outgoing::Service { words, bytes });
        }
        Ok(())
    }

    fn pass_on(
        &mut self,
        cache: &mut CacheController,
        number: u32,
        node: NodeId,
        request: Result<Vec<u8>, ServiceError>,
        call: Call,
    ) {
        let is_ranks =
            cache.ctx.layout.rank_of_peer(call.from).is_some() && node.0 < cache.ctx.layout.nodes();
        let (bytes, slot) = match (request.and_then(|bytes| self.fitting(cache, bytes)), call.slot) {
            (Ok(bytes), Some(slot)) if is_ranks => (bytes, slot),
            (refused, _) => {
                return self.answer_call(cache, call, Err(refused.err().unwrap_or(ServiceError::Unknown)));
            }
        };
        if let Some(calling) = self.calling.get_mut(&call.from) {
            *calling = calling.saturating_sub(1);
        }
        let words = [slot, number, PASSED | call.from.0 << WHAT_BITS];
        let to = cache.ctx.layout.agent_of(node);
        if node == cache.ctx.node {
            cache.ctx.shards.route(Incoming::Service(to, words, bytes.into()));
        } else {
            cache.ctx.outbox.push(to, Outgoing::Service { words, bytes });
        }
    }

    fn fitting(&self, cache: &CacheController, bytes: Vec<u8>) -> Result<Vec<u8>, ServiceError> {
        if bytes.len() <= cache.ctx.message_bytes_max { Ok(bytes) } else { Err(ServiceError::TooLong) }
    }

    fn answer_call(
        &mut self,
        cache: &mut CacheController,
        Call { from, slot }: Call,
        answer: Result<Vec<u8>, ServiceError>,
    ) {
        let Some(slot) = slot else { return };
        if let Some(calling) = self.calling.get_mut(&from) {
            *calling = calling.saturating_sub(1);
        }
        let answer = answer.and_then(|bytes| self.fitting(cache, bytes));
        let (status, bytes) = match answer {
            Ok(bytes) => (0, bytes),
            Err(error) => (error as u32, Vec::new()),
        };
        if from == cache.ctx.layout.agent_of(cache.ctx.node) {
            cache.ctx.shards.route(Incoming::ServiceAnswer(from, [slot, status], bytes.into()));
        } else {
            cache.ctx.outbox.push(from, Outgoing::ServiceAnswer { words: [slot, status], bytes });
        }
    }
}
