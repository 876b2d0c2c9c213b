//! Collectives and teams: operations of several ranks together, on active messages. C and Rust have them from
//! here.
//!
//! | file | has |
//! |---|---|
//! | `team` | who takes part: a list of ranks that its members know by a number; splitting |
//! | `standing` | what this rank knows of a team by its number, also before it has made the team |
//! | `operation` | one collective on this rank, and what an algorithm may do in it |
//! | `team_call` | one collective as a member calls it, and the choice between board and messages |
//! | `started` | operations in flight, as their callers have them |
//! | `call` | the kind of a collective, as members tell each other |
//! | `algorithm` | the patterns in which strings travel |
//! | `near`, `machine`, `board` | collectives of members that share memory, one of them, and that memory |
//! | `barrier` | barriers of teams, split in two and with names |
//! | `post`, `arrival`, `departure`, `credit` | strings of bytes between members, and their messages |
//! | `view` | a caller's bytes, where they lie; the only unsafe code |
//!
//! A *string* is one member's bytes for another in an operation under a *tag*. Short ones may arrive before
//! their receiver has begun the operation, within its credit; others are offered, and sent to their place
//! when it has. An operation is a future over the strings that have come. It runs in the thread that waits
//! for it ([`Exchange::run`]), or belongs to the engine ([`Exchange::begin`]) and proceeds whenever something
//! arrives for it; one that owns its memory ([`Team::start_owned`]) proceeds even while no thread of the
//! program polls or waits.
//!
//! Members begin the collectives of a team in the same order; they are numbered by team and sequence, so that
//! any number may be in flight, and teams may overlap. An operation waits only for the data that it needs:
//! the root of a broadcast does not wait. Members that disagree are told: strings name the collective they
//! belong to, and a member that finds another one, another length, or a string of an operation that has ended
//! without it, *spoils* the team and tells all its members why ([`RmaError::Collective`]).

pub mod algorithm;
mod arrival;
mod barrier;
mod board;
mod call;
mod credit;
mod departure;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod machine;
mod near;
mod operation;
mod post;
mod standing;
mod started;
mod team;
mod team_call;
mod view;

pub use arrival::Landing;
pub use call::{Call, Kind};
pub use departure::Text;
pub use near::NearOperation;
pub use operation::{Exchange, Operation, Run};
pub use post::HANDLER;
pub use started::{InFlight, Started};
pub use team::{SplitWish, Team};
pub use team_call::{Blocks, Pattern, TeamCall};
pub use view::{Combiner, SharedCombiner, View};

use crate::endpoint::{Endpoint, Extent, Token, Work, in_own_thread, lock};
use crate::error::{Result, RmaError};
use crate::message::Arrived;
use crate::{Peer, Rank};
use credit::Credit;
use near::Near;
use post::Key;
use standing::Standing;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

/// Operations that are counted apart, so that they need no common order.
pub mod sequence {
    /// Teams whose members are several threads of a rank.
    pub const IMAGES: u32 = 0;
    /// Teams of ranks.
    pub const RANKS: u32 = 1;
    /// Number of kinds.
    pub(super) const COUNT: usize = 2;
}

/// All collectives of a rank: one for each endpoint. Any thread may call anything.
pub struct Collectives {
    endpoint: Arc<Endpoint>,
    credit: Credit,
    /// The operations that were begun here, or for which strings have come, and are not done.
    operations: Mutex<HashMap<Key, Arc<Operation>>>,
    /// Operations that need a step in a thread that calls the library: they call the program's functions, or
    /// wait for room to send. All others are stepped by their arriving messages, so that a look costs the
    /// same however many are in flight.
    to_step: Mutex<StepQueue>,
    to_step_count: AtomicUsize,
    /// Operations that progress by themselves.
    going_on: AtomicUsize,
    standings: Mutex<HashMap<u64, Arc<Standing>>>,
    /// The engine over shared memory of the team of all, if its members share memory.
    near_world: OnceLock<Option<Arc<Near>>>,
    /// Numbers of teams that this rank has had for those that it might lead.
    led: AtomicU32,
    /// Number of teams made of each list of ranks.
    created: Mutex<HashMap<Vec<Rank>, u32>>,
    /// Members that were not told yet that their team is spoilt.
    untold: Mutex<Vec<SpoiltNotice>>,
    untold_count: AtomicUsize,
}

/// Operations that need a step.
#[derive(Default)]
struct StepQueue {
    keys: Vec<Key>,
    /// They are counted as work of the endpoint, so that every poll and wait in it steps them.
    is_counted: bool,
}

struct SpoiltNotice {
    to: Peer,
    team: u64,
    member: Rank,
    what: Arc<str>,
}

/// State of the operation that a message belongs to.
enum MessageTarget {
    /// The operation, made now if nothing of it was seen before.
    Operation(Arc<Operation>),
    /// It has ended.
    Ended(Arc<Standing>),
    /// Nothing counts any more in its team.
    Spoilt,
    /// Its sender is not a member.
    Stranger,
}

impl Collectives {
    /// The collectives of an endpoint of a rank that is not open yet. Their messages go to the handler [`HANDLER`].
    ///
    /// # Errors
    /// [`RmaError::Usage`] for an endpoint that is open, that has a handler with this index, or that is an agent's.
    pub fn register(endpoint: &Arc<Endpoint>) -> Result<Arc<Self>> {
        if endpoint.rank().is_none() {
            return Err(RmaError::Usage("collectives are for ranks".into()));
        }
        let engine = Arc::new(Self {
            endpoint: endpoint.clone(),
            credit: Credit::default(),
            operations: Mutex::default(),
            to_step: Mutex::default(),
            to_step_count: AtomicUsize::new(0),
            going_on: AtomicUsize::new(0),
            standings: Mutex::default(),
            near_world: OnceLock::new(),
            led: AtomicU32::new(0),
            created: Mutex::default(),
            untold: Mutex::default(),
            untold_count: AtomicUsize::new(0),
        });
        // Weak, because the endpoint has the handler, and the engine the endpoint.
        let handled = Arc::downgrade(&engine);
        let on_message = move |token: &Token<'_>, words: &[u32], arrived: Arrived<'_>| {
            if let Some(engine) = handled.upgrade() {
                engine.on_message(token, words, arrived);
            }
        };
        endpoint.register_any(HANDLER, Box::new(on_message))?;
        let hears = Arc::downgrade(&engine);
        endpoint.on_lost_node(move |_, _| {
            if let Some(engine) = hears.upgrade() {
                engine.lose();
            }
        });
        let work: Weak<Self> = Arc::downgrade(&engine);
        endpoint.set_work(work);
        Ok(engine)
    }

    /// The endpoint underneath.
    pub fn endpoint(&self) -> &Arc<Endpoint> {
        &self.endpoint
    }

    /// This rank. Engines are of ranks only.
    fn rank(&self) -> Rank {
        Rank(self.endpoint.me().0)
    }

    /// Steps the operations that cannot progress in handlers. Call it wherever a program polls or waits.
    /// Costs a load while there are none, however many operations are in flight.
    pub fn progress(&self) {
        self.tell();
        self.step_queued(|_| true);
        if let Some(near) = self.near() {
            near.progress(true, Extent::Some);
        }
    }

    /// Steps the queued operations that `may_step` admits; the others stay queued.
    fn step_queued(&self, may_step: impl Fn(&Operation) -> bool) {
        if self.to_step_count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let keys = std::mem::take(&mut lock(&self.to_step).keys);
        let mut stay = Vec::new();
        for key in keys {
            let operation = lock(&self.operations).get(&key).cloned();
            match operation {
                Some(operation) if may_step(&operation) => {
                    operation.dequeue();
                    operation.step(self, operation::StepContext::Caller);
                }
                Some(_) => stay.push(key),
                None => {}
            }
        }
        let mut to_step = lock(&self.to_step);
        to_step.keys.append(&mut stay);
        self.to_step_count.store(to_step.keys.len(), Ordering::Relaxed);
        if to_step.keys.is_empty() && std::mem::take(&mut to_step.is_counted) {
            self.endpoint.work_ended(1);
        }
    }

    /// Has an operation stepped by the next poll or wait in the endpoint.
    fn queue_step(&self, operation: &Operation) {
        if operation.enqueue() {
            let mut to_step = lock(&self.to_step);
            to_step.keys.push(operation.key());
            self.to_step_count.store(to_step.keys.len(), Ordering::Relaxed);
            if !std::mem::replace(&mut to_step.is_counted, true) {
                self.endpoint.work_for_polls();
            }
        }
    }

    /// An operation was started that proceeds by itself.
    fn proceeds(&self) {
        self.going_on.fetch_add(1, Ordering::Relaxed);
        self.endpoint.work_started();
    }

    /// It has ended.
    fn has_proceeded(&self) {
        self.going_on.fetch_sub(1, Ordering::Relaxed);
        self.endpoint.work_ended(1);
    }

    /// The collectives over shared memory, if there are any.
    fn near(&self) -> Option<&Arc<Near>> {
        self.near_world.get()?.as_ref()
    }

    /// Returns the state of the team with this number.
    fn standing(&self, number: u64) -> Arc<Standing> {
        lock(&self.standings).entry(number).or_insert_with(|| Arc::new(Standing::new(number))).clone()
    }

    /// Begins the next operation of a sequence; of one caller, if several take part on their own.
    fn next_operation(&self, standing: &Arc<Standing>, sequence: u32, caller: u32) -> Arc<Operation> {
        // Counted and entered as one, so that a message finds it if it was counted.
        let mut operations = lock(&self.operations);
        let key = standing.next_key(sequence, caller);
        operations.entry(key).or_insert_with(|| Arc::new(Operation::new(key, standing.clone()))).clone()
    }

    /// The operation that a message of a peer is about.
    fn operation_of(&self, key: Key, from: Peer) -> MessageTarget {
        let mut operations = lock(&self.operations);
        if let Some(operation) = operations.get(&key) {
            return MessageTarget::Operation(operation.clone());
        }
        let standing = self.standing(key.team);
        if standing.spoilt().is_some() {
            return MessageTarget::Spoilt;
        }
        let is_member = |rank| standing.members().is_none_or(|members| members.contains(&rank));
        if !self.endpoint.layout().rank_of_peer(from).is_some_and(is_member) {
            return MessageTarget::Stranger;
        }
        if standing.has_begun(key) {
            return MessageTarget::Ended(standing);
        }
        let operation = Arc::new(Operation::new(key, standing));
        operations.insert(key, operation.clone());
        MessageTarget::Operation(operation)
    }

    /// Spoils a team whose members have called different collectives, and tells all members.
    fn spoil(&self, standing: &Standing, by: Peer, what: String) {
        let layout = self.endpoint.layout();
        let member = layout.rank_of_peer(by).unwrap_or(self.rank());
        if !standing.spoil(RmaError::Collective { member, what: what.clone() }) {
            return;
        }
        let what: Arc<str> = what.into();
        let others = standing
            .members()
            .into_iter()
            .flat_map(|members| members.iter())
            .filter(|&&rank| rank != self.rank());
        let others = others.map(|&rank| SpoiltNotice {
            to: layout.peer_of_rank(rank),
            team: standing.number(),
            member,
            what: what.clone(),
        });
        let mut untold = lock(&self.untold);
        untold.extend(others);
        self.untold_count.store(untold.len(), Ordering::Relaxed);
        drop(untold);
        self.tell();
        self.give_up(standing);
    }

    /// A node is lost: operations in flight end, in all teams, as all collectives of all ranks do. No message
    /// is sent: each rank learns of it by itself.
    fn lose(&self) {
        let standings: Vec<_> = lock(&self.standings).values().cloned().collect();
        for standing in standings {
            if let Err(lost) = self.endpoint.check_all(operation::WHERE)
                && standing.spoil(lost)
            {
                self.give_up(&standing);
            }
        }
        let operations: Vec<_> = lock(&self.operations).values().cloned().collect();
        operations.iter().for_each(|operation| operation.step(self, operation::StepContext::Handler));
    }

    /// Forgets what has come for operations of a spoilt team that were not begun here, and has those look
    /// that were. The credit of forgotten strings is not given back; the offered path suffices for the little
    /// that is left.
    fn give_up(&self, standing: &Standing) {
        lock(&self.operations).retain(|key, operation| {
            let is_of_team = key.team == standing.number();
            if is_of_team && operation.is_begun() {
                self.queue_step(operation);
            }
            !is_of_team || operation.is_begun()
        });
        self.endpoint.notify_local();
    }

    /// Tells members that their team is spoilt, as far as there is room. True: no member is left to tell.
    fn tell(&self) -> bool {
        if self.untold_count.load(Ordering::Relaxed) == 0 {
            return true;
        }
        let mut untold = lock(&self.untold);
        untold.retain(|untold| !self.tell_one(untold));
        self.untold_count.store(untold.len(), Ordering::Relaxed);
        untold.is_empty()
    }
}

impl Work for Collectives {
    fn advance(&self, extent: Extent) -> usize {
        self.tell();
        let may_call = !in_own_thread();
        self.step_queued(|operation| may_call || operation.goes_on() || !operation.needs_caller());
        if let Some(near) = self.near() {
            near.progress(may_call, extent);
        }
        // Each is counted where it ends.
        0
    }

    fn awaits_messages(&self) -> bool {
        self.going_on.load(Ordering::Relaxed) > 0
    }

    fn failed(&self) {
        let all: Vec<_> = lock(&self.operations).values().cloned().collect();
        all.iter().for_each(|operation| operation.wake());
        if let Some(near) = self.near() {
            near.wake_all();
        }
    }
}

impl std::fmt::Debug for Collectives {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Collectives of {:?}", self.endpoint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Poll;

    /// Goal: a look costs the same however many operations are in flight: those that wait for messages are not stepped.
    #[test]
    fn progress_steps_no_operation_that_waits_for_a_message() {
        const IN_FLIGHT: usize = 500;
        let engine = fuzzing::engine();
        let world = engine.world().unwrap();
        let polls = Arc::new(AtomicUsize::new(0));
        for _ in 0..IN_FLIGHT {
            let exchange = world.exchange(sequence::RANKS, Call::with_root(Kind::Broadcast, 1)).unwrap();
            let polls = polls.clone();
            let run = std::future::poll_fn(move |_| {
                polls.fetch_add(1, Ordering::Relaxed);
                Poll::Pending
            });
            exchange.begin(Box::pin(run), false);
        }
        (0..100).for_each(|_| engine.progress());
        assert_eq!(polls.load(Ordering::Relaxed), IN_FLIGHT);
    }
}
