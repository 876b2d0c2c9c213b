//! Locks at their homes: the queue of waiting ranks, and its order.
//!
//! A lock without waiters is its word alone, which ranks change by themselves if they have the page, and this
//! service for the others. When a rank has to wait, the service takes the word ([`SERVED`]): from then on
//! only the service changes it, and keeps the holders and the queue. When the queue is empty the word is
//! written back, and the service forgets the lock. Each lock has at most one update of its word in flight;
//! requests that come meanwhile wait.
//!
//! *Fair*: requests are served in the order of arrival; neighbouring readers in the queue, together. No later
//! rank passes a waiting one, because the word is the service's as long as there is one.
//!
//! *Cycles*: a rank that has waited for a second may be in a deadlock. Its home asks all nodes for the lock
//! that the holder waits for, goes on with that lock's holder, and so on, until one does not wait, or it
//! comes to where it began. A cycle that is found twice, unchanged, is one: the same waits and the same
//! grants were there at both times, so that all of them were there together in between.

#![forbid(unsafe_code)]

use super::word::{LockOwner, LockState, SERVED};
use crate::address::{GlobalAddress, Kind};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, VecDeque};
use vgas_cache::Failure;
use vgas_cache::partition::{PartitionId, SegmentId};
use vgas_cache::service::{Call, Home, Service, ServiceError};
use vgas_rma::{NodeId, Rank};
use vgas_shm::Change;

/// Time of waiting after which a cycle is suspected, in milliseconds.
const SUSPICIOUS_MS: u64 = 900;

/// Longest cycle that is looked for.
const CYCLE_MAX: usize = 64;

/// Place of a lock's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LockPlace {
    /// In which tiered segment.
    pub segment: u16,
    /// In whose part of it.
    pub owner: Rank,
    /// Its offset there.
    pub offset: u64,
}

impl LockPlace {
    /// Returns the partition that the word is in.
    pub fn partition(self) -> PartitionId {
        PartitionId { segment: SegmentId(self.segment), owner: self.owner }
    }

    /// Returns the address of the word.
    pub fn address(self) -> GlobalAddress {
        GlobalAddress {
            rank: self.owner,
            kind: Kind::Tiered,
            segment: SegmentId(self.segment),
            offset: self.offset,
        }
    }
}

/// Requests of ranks and of other nodes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Request {
    /// The lock, to write or to read.
    Lock(LockPlace, LockOwner, bool),
    /// The same, or [`Answer::Busy`] at once.
    TryLock(LockPlace, LockOwner, bool),
    /// Told: this one gives it back, from writing or reading, maybe because of a panic.
    Unlock(LockPlace, LockOwner, bool, bool),
    /// Clears the lock's poison.
    ClearPoison(LockPlace),
    /// The wait of this thread at that node, if it waits.
    WaitsFor(LockOwner),
}

/// Answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// It has the lock.
    Locked,
    /// It is held; only to [`Request::TryLock`].
    Busy,
    /// This one had it to write and panicked.
    Poisoned(LockOwner),
    /// It would wait for itself, by way of these.
    Cycle(Vec<Edge>),
    /// The word cannot be read or written: [`Failure::code`].
    Failed(u32),
    /// The word is no lock's: it was overwritten.
    NoLock(u64),
    /// Its wait.
    Waits(Option<Edge>),
}

/// A thread waits for a lock that another one holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Edge {
    /// The waiting thread.
    pub waiter: LockOwner,
    /// For which lock.
    pub place: LockPlace,
    /// The holder.
    pub holder: LockOwner,
    /// Numbers of the wait and of the grant at that node: neither comes again.
    pub wait: u64,
    /// See `wait`.
    pub grant: u64,
}

#[derive(Debug)]
struct Waiter {
    call: Call,
    who: LockOwner,
    write: bool,
    since_ms: u64,
    number: u64,
    /// The cycle that was found for it the last time.
    suspected: Option<Vec<Edge>>,
}

/// An update of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// From its possible value to its new one, for the first waiter.
    Exchange(LockState, LockState),
    /// The service takes it.
    Take,
    /// It is written back.
    Return,
}

/// Something that waits for its turn at a lock that the service does not have.
#[derive(Debug)]
enum LockEvent {
    Lock(Waiter, bool),
    Unlock(LockOwner, bool, bool),
    Clear(Call),
}

#[derive(Debug, Default)]
struct Lock {
    /// The update in flight at the word.
    step: Option<Step>,
    /// The service has the word; this is the lock's state.
    served: Option<LockState>,
    /// Number of the last grant to write; new for each.
    grant: u64,
    queue: VecDeque<Waiter>,
    /// Requests that have come and were not handled.
    wanted: VecDeque<LockEvent>,
    /// The word could not be written back: not before something comes is it tried again.
    is_stuck: bool,
}

/// A search for a cycle.
#[derive(Debug)]
struct Search {
    place: LockPlace,
    wait: u64,
    chain: Vec<Edge>,
    /// Nodes that have not answered about the last in the chain.
    left: u32,
    found: Option<Edge>,
}

/// The locks whose home is a node.
#[derive(Default)]
pub struct Locks {
    locks: HashMap<LockPlace, Lock>,
    /// By ticket: which lock's word is worked on.
    working: HashMap<u64, LockPlace>,
    searches: HashMap<u64, Search>,
    next: u64,
}

type At<'a, 'b> = &'a mut Home<'b, Locks>;

impl Service for Locks {
    type Request = Request;
    type Answer = Answer;
    const NAME: &'static str = "vgas.locks";

    fn called(&mut self, call: Call, request: Request, home: &mut Home<'_, Self>) {
        let (now_ms, number) = (home.now_ms(), self.number());
        let waiter =
            |call, who, write| Waiter { call, who, write, since_ms: now_ms, number, suspected: None };
        let (place, wanted) = match request {
            Request::Lock(place, who, write) => (place, LockEvent::Lock(waiter(call, who, write), true)),
            Request::TryLock(place, who, write) => (place, LockEvent::Lock(waiter(call, who, write), false)),
            Request::Unlock(place, who, write, poison) => (place, LockEvent::Unlock(who, write, poison)),
            Request::ClearPoison(place) => (place, LockEvent::Clear(call)),
            Request::WaitsFor(who) => return home.answer(call, &Answer::Waits(self.edge_of(who))),
        };
        let lock = self.locks.entry(place).or_default();
        lock.wanted.push_back(wanted);
        lock.is_stuck = false;
        self.go_on(place, home);
    }

    fn done(&mut self, ticket: u64, result: Result<Vec<u8>, Failure>, home: &mut Home<'_, Self>) {
        let Some(place) = self.working.remove(&ticket) else { return };
        let Some(lock) = self.locks.get_mut(&place) else { return };
        let Some(step) = lock.step.take() else { return };
        let was = result.map(|bytes| bytes.first_chunk().map_or(0, |word| u64::from_le_bytes(*word)));
        match was {
            Ok(was) => self.stepped(place, step, was, home),
            Err(failure) => lock.fail(&Answer::Failed(failure.code()), home),
        }
        self.go_on(place, home);
    }

    fn answered(&mut self, ticket: u64, answer: Result<Answer, ServiceError>, home: &mut Home<'_, Self>) {
        let Some(search) = self.searches.get_mut(&ticket) else { return };
        search.left -= 1;
        if let Ok(Answer::Waits(Some(edge))) = answer {
            search.found.get_or_insert(edge);
        }
        if search.left == 0
            && let Some(search) = self.searches.remove(&ticket)
        {
            self.search_on(search, home);
        }
    }

    fn again(&mut self, home: &mut Home<'_, Self>) {
        let late = home.now_ms().saturating_sub(SUSPICIOUS_MS);
        let mut begun = Vec::new();
        for (&place, lock) in &self.locks {
            let Some(holder) = lock.served.and_then(|held| held.writer) else { continue };
            for waiter in lock.queue.iter().filter(|waiter| waiter.since_ms <= late) {
                let Waiter { who, number, .. } = *waiter;
                let edge = Edge { waiter: who, place, holder, wait: number, grant: lock.grant };
                begun.push(Search { place, wait: number, chain: vec![edge], left: 0, found: None });
            }
        }
        if self.locks.values().any(|lock| !lock.queue.is_empty()) {
            home.call_again();
        }
        let running: Vec<u64> = self.searches.values().map(|search| search.wait).collect();
        for search in begun.into_iter().filter(|search| !running.contains(&search.wait)) {
            self.search(search, home);
        }
    }
}

impl Lock {
    /// Handles a word that cannot be updated: tells the waiting ranks, and forgets the lock, whose state is
    /// its word, whatever that is.
    fn fail(&mut self, answer: &Answer, home: At<'_, '_>) {
        self.is_stuck = true;
        let wanted = self.wanted.drain(..).filter_map(|wanted| match wanted {
            LockEvent::Lock(waiter, _) => Some(waiter.call),
            LockEvent::Clear(call) => Some(call),
            LockEvent::Unlock(..) => None,
        });
        let calls: Vec<Call> = self.queue.drain(..).map(|waiter| waiter.call).chain(wanted).collect();
        calls.into_iter().for_each(|call| home.answer(call, answer));
    }

    /// Returns the next update of a word with this value, for the first request.
    fn next_step(&self, held: LockState) -> Step {
        let next = match self.wanted.front() {
            Some(LockEvent::Lock(waiter, _)) => held.taken(waiter.who, waiter.write),
            Some(LockEvent::Unlock(who, write, poison)) => held.given_back(*who, *write, *poison),
            Some(LockEvent::Clear(_)) => Some(LockState { poisoned: None, ..held }),
            None => None,
        };
        next.map_or(Step::Take, |next| Step::Exchange(held, next))
    }

    /// Grants the lock to the first waiters that may have it now, when the service has it. Returns their
    /// number.
    fn grant(&mut self, numbers: &mut u64, home: At<'_, '_>) {
        while let (Some(held), Some(first)) = (self.served, self.queue.front()) {
            if let Some(poisoned) = held.poisoned {
                let Some(first) = self.queue.pop_front() else { return };
                home.answer(first.call, &Answer::Poisoned(poisoned));
                continue;
            }
            let Some(held) = held.taken(first.who, first.write) else { return };
            let Some(first) = self.queue.pop_front() else { return };
            *numbers += 1;
            self.grant = *numbers;
            self.served = Some(held);
            home.answer(first.call, &Answer::Locked);
        }
    }
}

impl Locks {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Handles a lock's pending requests, as far as possible now.
    fn go_on(&mut self, place: LockPlace, home: At<'_, '_>) {
        while let Some(lock) = self.locks.get_mut(&place).filter(|lock| lock.step.is_none()) {
            if lock.served.is_none() {
                // The word decides. Most often it is what one would think.
                let guess = match lock.wanted.front() {
                    Some(LockEvent::Unlock(who, true, _)) => {
                        LockState { writer: Some(*who), ..LockState::default() }
                    }
                    Some(LockEvent::Unlock(_, false, _)) => LockState { readers: 1, ..LockState::default() },
                    Some(_) => LockState::default(),
                    None => {
                        self.locks.remove(&place);
                        return;
                    }
                };
                let step = lock.next_step(guess);
                return self.begin(place, step, home);
            }
            match lock.wanted.pop_front() {
                Some(wanted) => self.serve(place, wanted, home),
                None if lock.queue.is_empty() && !lock.is_stuck => {
                    return self.begin(place, Step::Return, home);
                }
                None => return,
            }
        }
    }

    /// Something has come for a lock that the service has.
    fn serve(&mut self, place: LockPlace, wanted: LockEvent, home: At<'_, '_>) {
        let Self { locks, next, .. } = self;
        let Some(lock) = locks.get_mut(&place) else { return };
        let Some(held) = lock.served else { return };
        match wanted {
            LockEvent::Lock(waiter, waits) => {
                if waits && held.writer.is_some_and(|writer| writer.is_surely(waiter.who)) {
                    let Waiter { who, number, .. } = waiter;
                    let edge = Edge { waiter: who, place, holder: who, wait: number, grant: lock.grant };
                    return home.answer(waiter.call, &Answer::Cycle(vec![edge]));
                }
                let is_free = lock.queue.is_empty() && held.taken(waiter.who, waiter.write).is_some();
                if !waits && !is_free && held.poisoned.is_none() {
                    return home.answer(waiter.call, &Answer::Busy);
                }
                lock.queue.push_back(waiter);
                home.call_again();
            }
            LockEvent::Unlock(who, write, poison) => match held.given_back(who, write, poison) {
                Some(held) => lock.served = Some(held),
                None => tracing::warn!(%who, ?place, "gave a lock back that it does not have"),
            },
            LockEvent::Clear(call) => {
                lock.served = Some(LockState { poisoned: None, ..held });
                home.answer(call, &Answer::Locked);
            }
        }
        lock.grant(next, home);
    }

    /// Works on a lock's word.
    fn begin(&mut self, place: LockPlace, step: Step, home: At<'_, '_>) {
        let ticket = self.number();
        let Some(lock) = self.locks.get_mut(&place) else { return };
        lock.step = Some(step);
        self.working.insert(ticket, place);
        let change = match step {
            Step::Exchange(from, to) => Change::CompareSwap { expected: from.word(), desired: to.word() },
            Step::Take => Change::Or(SERVED),
            Step::Return => Change::Swap(lock.served.unwrap_or_default().word()),
        };
        home.update(place.partition(), place.offset, change, ticket);
    }

    /// A lock's word was this before the step.
    fn stepped(&mut self, place: LockPlace, step: Step, was: u64, home: At<'_, '_>) {
        let Some(lock) = self.locks.get_mut(&place) else { return };
        let held = LockState::from_word(was);
        if step != Step::Return && held.word() != was {
            return lock.fail(&Answer::NoLock(was), home);
        }
        match step {
            // It is something else than was thought.
            Step::Exchange(expected, _) if expected.word() != was => {
                let step = lock.next_step(held);
                self.begin(place, step, home);
            }
            Step::Exchange(..) => match lock.wanted.pop_front() {
                Some(LockEvent::Lock(waiter, _)) => home.answer(waiter.call, &Answer::Locked),
                Some(LockEvent::Clear(call)) => home.answer(call, &Answer::Locked),
                Some(LockEvent::Unlock(..)) | None => {}
            },
            Step::Take => {
                lock.served = Some(held);
                self.next += 1;
                lock.grant = self.next;
            }
            Step::Return => lock.served = None,
        }
    }

    /// Returns a thread's wait here.
    fn edge_of(&self, who: LockOwner) -> Option<Edge> {
        self.locks.iter().find_map(|(&place, lock)| {
            let holder = lock.served.and_then(|held| held.writer)?;
            let waiter = lock.queue.iter().find(|waiter| waiter.who.is_surely(who))?;
            Some(Edge { waiter: who, place, holder, wait: waiter.number, grant: lock.grant })
        })
    }

    /// Asks all nodes for the wait of a chain's last holder.
    fn search(&mut self, search: Search, home: At<'_, '_>) {
        let Some(last) = search.chain.last() else { return };
        let (who, nodes, ticket) = (last.holder, home.layout().nodes(), self.number());
        self.searches.insert(ticket, Search { left: nodes, found: None, ..search });
        (0..nodes).for_each(|node| home.ask(NodeId(node), &Request::WaitsFor(who), ticket));
    }

    /// All nodes have answered.
    fn search_on(&mut self, mut search: Search, home: At<'_, '_>) {
        let Some(edge) = search.found.take() else { return };
        let first = search.chain[0].waiter;
        search.chain.push(edge);
        let last = &search.chain[search.chain.len() - 1];
        if !last.holder.is_surely(first) {
            let is_new = search.chain.iter().all(|edge| edge.waiter != last.holder);
            if is_new && search.chain.len() < CYCLE_MAX {
                self.search(search, home);
            }
            return;
        }
        // One of them is told, so that the others go on.
        if search.chain.iter().any(|edge| edge.waiter < first) {
            return;
        }
        let Some(lock) = self.locks.get_mut(&search.place) else { return };
        let Some(at) = lock.queue.iter().position(|waiter| waiter.number == search.wait) else { return };
        if lock.queue[at].suspected.as_ref() != Some(&search.chain) {
            lock.queue[at].suspected = Some(search.chain);
            return;
        }
        if let Some(waiter) = lock.queue.remove(at) {
            home.answer(waiter.call, &Answer::Cycle(search.chain));
        }
        lock.grant(&mut self.next, home);
        self.go_on(search.place, home);
    }
}

/// A cycle in words.
pub(super) fn describe(cycle: &[Edge]) -> String {
    let steps = cycle.iter().map(|Edge { waiter, place, holder, .. }| {
        format!(
            "{waiter} waits for the lock at {} of {}, which {holder} has",
            place.offset,
            place.partition()
        )
    });
    steps.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use vgas_cache::service::Trial;
    use vgas_rma::Layout;

    const LOCKS: u64 = 2;
    const RANKS: u32 = 4;

    /// An action of a rank, or an event.
    #[derive(Clone, Copy, Debug)]
    enum Act {
        /// Rank, lock, to write, by way of the word if possible.
        Lock(u32, u64, bool, bool),
        Try(u32, u64, bool),
        /// Rank, whether by way of the word if possible.
        Unlock(u32, bool),
        /// One of the service's orders is done.
        Order(usize),
    }

    fn act() -> impl Strategy<Value = Act> {
        prop_oneof![
            4 => (0..RANKS, 0..LOCKS, any::<bool>(), any::<bool>()).prop_map(|(a, b, c, d)| Act::Lock(a, b, c, d)),
            1 => (0..RANKS, 0..LOCKS, any::<bool>()).prop_map(|(a, b, c)| Act::Try(a, b, c)),
            4 => (0..RANKS, any::<bool>()).prop_map(|(a, b)| Act::Unlock(a, b)),
            8 => (0usize..4).prop_map(Act::Order),
        ]
    }

    /// State of a rank.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Doing {
        Nothing,
        Waits { call: u32, lock: u64, write: bool },
        Has { lock: u64, write: bool },
    }

    /// Ranks that lock by the words, as clients do, and by the service.
    struct World {
        trial: Trial<Locks>,
        ranks: Vec<Doing>,
        /// Waiters at the service for each lock, in the order of arrival.
        order: Vec<Vec<u32>>,
    }

    fn who(rank: u32) -> LockOwner {
        LockOwner::new(Rank(rank), 1)
    }

    fn place(lock: u64) -> LockPlace {
        LockPlace { segment: 0, owner: Rank(0), offset: 8 * lock }
    }

    impl World {
        fn new() -> Self {
            let layout = Layout::blocks(RANKS, 1);
            let trial = Trial::new(Locks::default(), layout, NodeId(0), 64);
            Self {
                trial,
                ranks: vec![Doing::Nothing; RANKS as usize],
                order: vec![Vec::new(); LOCKS as usize],
            }
        }

        fn word(&mut self, lock: u64) -> u64 {
            let at = 8 * lock as usize;
            u64::from_le_bytes(self.trial.memory(Rank(0))[at..at + 8].try_into().unwrap())
        }

        fn exchange(&mut self, lock: u64, from: LockState, to: LockState) -> bool {
            let is_so = self.word(lock) == from.word();
            if is_so {
                let at = 8 * lock as usize;
                self.trial.memory(Rank(0))[at..at + 8].copy_from_slice(&to.word().to_le_bytes());
            }
            is_so
        }

        /// As the client does it.
        fn take_by_word(&mut self, rank: u32, lock: u64, write: bool) -> bool {
            let word = self.word(lock);
            let held = if word & SERVED == 0 { LockState::from_word(word) } else { return false };
            held.taken(who(rank), write).is_some_and(|next| self.exchange(lock, held, next))
        }

        fn give_back_by_word(&mut self, rank: u32, lock: u64, write: bool) -> bool {
            let word = self.word(lock);
            let held = if word & SERVED == 0 { LockState::from_word(word) } else { return false };
            held.given_back(who(rank), write, false).is_some_and(|next| self.exchange(lock, held, next))
        }

        fn act(&mut self, act: Act) -> Result<(), TestCaseError> {
            match act {
                Act::Lock(rank, lock, write, by_word) if self.ranks[rank as usize] == Doing::Nothing => {
                    if by_word && self.take_by_word(rank, lock, write) {
                        self.ranks[rank as usize] = Doing::Has { lock, write };
                    } else {
                        let call = self.trial.call(Rank(rank), &Request::Lock(place(lock), who(rank), write));
                        self.ranks[rank as usize] = Doing::Waits { call, lock, write };
                        self.order[lock as usize].push(rank);
                    }
                }
                Act::Try(rank, lock, write) if self.ranks[rank as usize] == Doing::Nothing => {
                    let call = self.trial.call(Rank(rank), &Request::TryLock(place(lock), who(rank), write));
                    self.ranks[rank as usize] = Doing::Waits { call, lock, write };
                }
                Act::Unlock(rank, by_word) => {
                    if let Doing::Has { lock, write } = self.ranks[rank as usize] {
                        self.ranks[rank as usize] = Doing::Nothing;
                        if !(by_word && self.give_back_by_word(rank, lock, write)) {
                            self.trial
                                .tell(Rank(rank), &Request::Unlock(place(lock), who(rank), write, false));
                        }
                    }
                }
                Act::Order(index) if self.trial.pending() > 0 => {
                    self.trial.carry_out(index % self.trial.pending());
                }
                _ => {}
            }
            self.hear()
        }

        /// Takes the answers; those of one lock come in the order of the calls.
        fn hear(&mut self) -> Result<(), TestCaseError> {
            let mut granted = [const { BTreeSet::new() }; LOCKS as usize];
            for rank in 0..RANKS {
                let Doing::Waits { call, lock, write } = self.ranks[rank as usize] else { continue };
                match self.trial.answer(call) {
                    None => {}
                    Some(Ok(Answer::Locked)) => {
                        self.ranks[rank as usize] = Doing::Has { lock, write };
                        granted[lock as usize].insert(rank);
                    }
                    Some(Ok(Answer::Busy)) => self.ranks[rank as usize] = Doing::Nothing,
                    other => return Err(TestCaseError::fail(format!("{other:?}"))),
                }
            }
            for (lock, granted) in granted.into_iter().enumerate() {
                // No waiter has come before the present holder.
                let order = &mut self.order[lock];
                let first = order.iter().take_while(|rank| granted.contains(rank)).count();
                let all = order.iter().filter(|rank| granted.contains(rank)).count();
                prop_assert_eq!(first, all, "lock {}: {:?} got it, {:?} had come", lock, granted, order);
                order.drain(..first);
                let has = |write| move |doing: &&Doing| **doing == Doing::Has { lock: lock as u64, write };
                let writers = self.ranks.iter().filter(has(true)).count();
                let readers = self.ranks.iter().filter(has(false)).count();
                prop_assert!(writers + usize::from(readers > 0) <= 1, "{} write, {} read", writers, readers);
            }
            Ok(())
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3000))]

        /// One writes or many read, in the order in which they came, whether they go by the word or by the
        /// service, and in any order of events; in the end every rank has held it and the words are zeros.
        #[test]
        fn locks_are_exclusive_and_fair(acts in proptest::collection::vec(act(), 1..120)) {
            let mut world = World::new();
            for act in acts {
                world.act(act)?;
            }
            for _ in 0..100 {
                (0..RANKS).try_for_each(|rank| world.act(Act::Unlock(rank, false)))?;
                world.act(Act::Order(0))?;
            }
            prop_assert!(world.ranks.iter().all(|doing| *doing == Doing::Nothing), "{:?}", world.ranks);
            prop_assert_eq!((world.word(0), world.word(1)), (0, 0));
            prop_assert_eq!(world.trial.pending(), 0);
            prop_assert!(world.trial.service().locks.is_empty());
        }
    }

    /// Goal: a word that cannot be reached ends in answers, not in a service that tries for ever.
    #[test]
    fn what_is_not_there_is_answered() {
        let mut world = World::new();
        for offset in [1 << 20, u64::MAX - 7] {
            let place = LockPlace { segment: 0, owner: Rank(0), offset };
            for request in [
                Request::Lock(place, who(1), true),
                Request::TryLock(place, who(1), false),
                Request::ClearPoison(place),
            ] {
                let call = world.trial.call(Rank(1), &request);
                world.trial.finish();
                assert!(matches!(world.trial.answer(call), Some(Ok(Answer::Failed(_)))), "{request:?}");
            }
            world.trial.tell(Rank(1), &Request::Unlock(place, who(1), true, false));
            world.trial.finish();
        }
        assert!(world.trial.service().locks.is_empty());
    }

    /// Goal: a hand-over of a lock from one node to the next takes two messages, the release to the home and
    /// the home's answer to the first waiter: a round trip, however many wait.
    #[test]
    fn a_lock_is_handed_over_in_two_messages() {
        let mut world = World::new();
        let calls: Vec<u32> = (0..RANKS)
            .map(|rank| world.trial.call(Rank(rank), &Request::Lock(place(0), who(rank), true)))
            .collect();
        world.trial.finish();
        for holder in 0..RANKS {
            let answered: Vec<_> = calls.iter().map(|&call| world.trial.answer(call)).collect();
            for (rank, answer) in (0..).zip(answered) {
                assert_eq!(
                    answer,
                    (rank == holder).then_some(Ok(Answer::Locked)),
                    "{holder} has it now, {rank}"
                );
            }
            world.trial.tell(Rank(holder), &Request::Unlock(place(0), who(holder), true, false));
            world.trial.finish();
        }
        assert_eq!((world.word(0), world.trial.pending()), (0, 0));
    }

    /// Goal: a circle is found when it lasts, and one is told, the first of them; a wait that is only long is none.
    #[test]
    fn a_circle_is_told_to_one() {
        let mut world = World::new();
        let lock = |world: &mut World, rank: u32, lock: u64| {
            let call = world.trial.call(Rank(rank), &Request::Lock(place(lock), who(rank), true));
            world.trial.finish();
            call
        };
        for rank in [0, 1] {
            let call = lock(&mut world, rank, rank.into());
            assert_eq!(world.trial.answer(call), Some(Ok(Answer::Locked)));
        }
        let first = lock(&mut world, 0, 1);
        for _ in 0..5 {
            world.trial.pass(1000);
        }
        assert_eq!(world.trial.answer(first), None, "the other one does not wait");
        let second = lock(&mut world, 1, 0);
        for _ in 0..5 {
            world.trial.pass(1000);
        }
        let told = world.trial.answer(first);
        let Some(Ok(Answer::Cycle(cycle))) = &told else { panic!("{told:?}") };
        assert_eq!(cycle.len(), 2);
        let text = describe(cycle);
        assert!(
            text.contains("rank 0 (thread 1) waits for the lock at 8 of rank 0, which rank 1 (thread 1) has"),
            "{text}"
        );
        assert_eq!(world.trial.answer(second), None);
        // It gives back what it has, as it should.
        world.trial.tell(Rank(0), &Request::Unlock(place(0), who(0), true, false));
        world.trial.finish();
        assert_eq!(world.trial.answer(second), Some(Ok(Answer::Locked)));
    }
}
