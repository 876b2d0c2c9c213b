//! A service by itself, for its library's tests: its memory is bytes here, and the test says what happens when.

use super::{Bare, Call, Order, Registered, Service, ServiceError, decode, encode};
use crate::error::{Failure, FailureKind};
use std::collections::{BTreeMap, VecDeque};
use vgas_rma::address::{Layout, NodeId, Rank};

/// A service without a job. Calls reach it at once; what it orders is done when the test says so, in any order; time passes when the
/// test says so. Other nodes do not have it: what it asks them is answered with [`ServiceError::Unknown`].
pub struct Trial<S: Service> {
    service: S,
    layout: Layout,
    node: NodeId,
    now_ms: u64,
    again: bool,
    memory: BTreeMap<Rank, Vec<u8>>,
    /// Not done yet.
    orders: Vec<Order>,
    next: u32,
    answers: BTreeMap<u32, Result<Vec<u8>, ServiceError>>,
    /// Questions to itself, by the number of their call.
    asked: BTreeMap<u32, u64>,
    answered: VecDeque<(u64, Result<Vec<u8>, ServiceError>)>,
    /// Calls that it has left to other nodes, by number: to which, and what that is asked.
    passed: BTreeMap<u32, (NodeId, Vec<u8>)>,
    /// Nothing is in the node's memory without being brought there.
    pub is_cold: bool,
}

impl<S: Service> Trial<S> {
    /// The service of a node, where each rank has a segment of so many bytes, all zeros.
    pub fn new(service: S, layout: Layout, node: NodeId, bytes: usize) -> Self {
        let memory = layout.ranks_of(node).map(|rank| (Rank(rank), vec![0; bytes])).collect();
        Self {
            service,
            layout,
            node,
            now_ms: 0,
            again: false,
            memory,
            orders: Vec::new(),
            next: 0,
            answers: BTreeMap::new(),
            asked: BTreeMap::new(),
            answered: VecDeque::new(),
            passed: BTreeMap::new(),
            is_cold: false,
        }
    }

    /// The segment of a rank of the node; empty for another one.
    pub fn memory(&mut self, owner: Rank) -> &mut [u8] {
        self.memory.get_mut(&owner).map_or(&mut [], |bytes| bytes)
    }

    /// A rank calls; the number of the call.
    pub fn call(&mut self, from: Rank, request: &S::Request) -> u32 {
        self.next += 1;
        let from = self.layout.peer_of_rank(from);
        self.arrives(Call { from, slot: Some(self.next) }, encode(request));
        self.next
    }

    /// A rank calls with bytes that may be no request; the number of the call.
    pub fn call_with(&mut self, from: Rank, bytes: Vec<u8>) -> u32 {
        self.next += 1;
        let from = self.layout.peer_of_rank(from);
        self.arrives(Call { from, slot: Some(self.next) }, Ok(bytes));
        self.next
    }

    /// A rank tells something.
    pub fn tell(&mut self, from: Rank, request: &S::Request) {
        let from = self.layout.peer_of_rank(from);
        self.arrives(Call { from, slot: None }, encode(request));
    }

    /// The answer to a call, once.
    pub fn answer(&mut self, call: u32) -> Option<Result<S::Answer, ServiceError>> {
        let answer = self.answers.remove(&call)?;
        Some(answer.and_then(|bytes| decode(&bytes).ok_or(ServiceError::Answer)))
    }

    /// A call that it has left to another node ([`Home::pass_on`](super::Home::pass_on)): to which, and what that is asked; once.
    pub fn passed(&mut self, call: u32) -> Option<(NodeId, S::Request)> {
        let (node, request) = self.passed.remove(&call)?;
        Some((node, decode(&request)?))
    }

    /// How many of its orders are not done yet.
    pub fn pending(&self) -> usize {
        self.orders.len()
    }

    /// Does one of its orders; it hears of it. Those of one page are done in their order in a job.
    ///
    /// # Panics
    /// When there is none of this number.
    pub fn carry_out(&mut self, index: usize) {
        match self.orders.remove(index) {
            Order::Read { ticket, only_here: true, .. } if self.is_cold => {
                self.done(ticket, Err(FailureKind::NotInMemory.into()));
            }
            Order::Read { of, offset, bytes, ticket, .. } => {
                let found = self.piece(of.owner, offset, bytes as usize).map(|piece| piece.to_vec());
                self.done(ticket, found);
            }
            Order::Write { of, offset, data, ticket } => {
                let done = self.piece(of.owner, offset, data.len()).map(|piece| piece.copy_from_slice(&data));
                self.done(ticket, done.map(|()| Vec::new()));
            }
            Order::Update { of, offset, update, ticket } => {
                let bytes = update.word.bytes() as usize;
                let was = self.piece(of.owner, offset, bytes).map(|piece| {
                    let mut word = [0; 8];
                    word[..bytes].copy_from_slice(piece);
                    piece.copy_from_slice(&update.of(u64::from_le_bytes(word)).to_le_bytes()[..bytes]);
                    word.to_vec()
                });
                self.done(ticket, was);
            }
            Order::Answer(..) | Order::Ask(..) | Order::PassOn(..) | Order::CallAgain => {}
        }
    }

    /// Does all of its orders, and those that follow from them, in their order.
    pub fn finish(&mut self) {
        while !self.orders.is_empty() {
            self.carry_out(0);
        }
    }

    /// Time passes; it is called again if it wanted to.
    pub fn pass(&mut self, milliseconds: u64) {
        self.now_ms += milliseconds;
        if std::mem::take(&mut self.again) {
            self.with(&mut |service, home| Registered::again(service, home));
        }
    }

    /// A node is lost.
    pub fn lose(&mut self, node: NodeId) {
        self.with(&mut |service, home| Registered::lost(service, node, home));
    }

    /// The service.
    pub fn service(&self) -> &S {
        &self.service
    }

    fn piece(&mut self, owner: Rank, offset: u64, bytes: usize) -> Result<&mut [u8], Failure> {
        let from = usize::try_from(offset).ok();
        let range = from.and_then(|from| Some(from..from.checked_add(bytes)?));
        let piece = range.and_then(|range| self.memory.get_mut(&owner)?.get_mut(range));
        piece.ok_or(FailureKind::NoSuchPage.into())
    }

    fn arrives(&mut self, call: Call, request: Result<Vec<u8>, ServiceError>) {
        let slot = call.slot;
        let mut refused = request.as_ref().err().copied();
        if let Ok(bytes) = &request {
            let mut call = Some(call);
            self.with(&mut |service, home| {
                if let Some(call) = call.take() {
                    let told = Registered::called(service, call, bytes, home);
                    refused = told.err().map(|_| ServiceError::Request);
                }
            });
        }
        if let (Some(slot), Some(error)) = (slot, refused) {
            self.answers.insert(slot, Err(error));
        }
    }

    fn done(&mut self, ticket: u64, result: Result<Vec<u8>, Failure>) {
        let mut result = Some(result);
        self.with(&mut |service, home| {
            if let Some(result) = result.take() {
                Registered::done(service, ticket, result, home);
            }
        });
    }

    fn with(&mut self, work: &mut dyn FnMut(&mut S, Bare<'_>)) {
        let mut said = Vec::new();
        let (layout, node, now_ms) = (&self.layout, self.node, self.now_ms);
        work(&mut self.service, Bare { layout, node, now_ms, orders: &mut said });
        for order in said {
            match order {
                Order::Answer(Call { slot: Some(slot), .. }, answer) => match self.asked.remove(&slot) {
                    Some(ticket) => self.answered.push_back((ticket, answer)),
                    None => drop(self.answers.insert(slot, answer)),
                },
                Order::Answer(..) => {}
                Order::CallAgain => self.again = true,
                Order::Ask(node, question, ticket) if node == self.node => {
                    self.next += 1;
                    self.asked.insert(self.next, ticket);
                    let from = self.layout.agent_of(node);
                    self.arrives(Call { from, slot: Some(self.next) }, question);
                }
                Order::Ask(_, _, ticket) => self.answered.push_back((ticket, Err(ServiceError::Unknown))),
                Order::PassOn(node, request, Call { slot: Some(slot), .. }) => match request {
                    Ok(request) if node.0 < self.layout.nodes() => {
                        drop(self.passed.insert(slot, (node, request)))
                    }
                    refused => {
                        self.answers.insert(slot, Err(refused.err().unwrap_or(ServiceError::Unknown)));
                    }
                },
                Order::PassOn(..) => {}
                order => self.orders.push(order),
            }
        }
        while let Some((ticket, answer)) = self.answered.pop_front() {
            let answer = answer.as_ref().map(Vec::as_slice).map_err(|error| *error);
            self.with(&mut |service, home| Registered::answered(service, ticket, answer, home));
        }
    }
}
