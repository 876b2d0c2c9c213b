//! A simulated network inside one process: seeded delays, reordering if a class allows it, loss of peers.
//!
//! Time is a count of steps. A message that is sent becomes deliverable a seeded number of steps later, never
//! before one that was sent earlier on the same way. Messages in flight lie with their receiver, in the order
//! of delivery; an unused path takes no memory, so a thousand peers cost what they send. Driven by one thread
//! that calls [`SimNetwork::step`] and polls peers in an order of its own, a run is determined by the seed.
//! With [`SimOptions::steps_by_polling`] every poll is a step, so that ordinary threads can use it, too
//! (their schedule then counts as well).
//!
//! With a [`Timing`] a step is its unit, a nanosecond say, and messages arrive at its times: the driver of
//! the network then goes from one [`SimNetwork::next_due`] to the next, and learns what a real network of
//! that speed would take.

use super::owned::OwnedMessage;
use super::{Capabilities, Conduit, Sent, Traffic};
use crate::address::Peer;
use crate::error::{Result, RmaError};
use crate::message::{ARGUMENTS_MAX, Direction, Message, Payload, Sink};
use rustix::event::{EventfdFlags, eventfd};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use vgas_shm::bell;

/// Messages delivered by one poll at most.
const BATCH: usize = 64;

/// A model of time, in place of delays that a seed draws.
pub trait Timing: std::fmt::Debug + Send + Sync {
    /// A message is sent in step `now`: the step in which it is there. One that was sent before it on the same way and comes later keeps
    /// it back.
    fn sent(&self, now: u64, from: Peer, to: Peer, message: &Message<'_>) -> u64;

    /// A message is taken in, in step `now`: before its handler runs, with the bytes of its long payload.
    fn taken(&self, now: u64, from: Peer, to: Peer, long_bytes: usize);
}

/// Faults and delays of the network.
#[derive(Clone, Debug)]
pub struct SimOptions {
    /// Steps from sending to delivery.
    pub delay_steps: RangeInclusive<u64>,
    /// Decides that instead.
    pub timing: Option<Arc<dyn Timing>>,
    /// True if requests and replies between two peers may overtake each other.
    pub reorder_classes: bool,
    /// Peers that disappear, and the step at which they do: their undelivered messages are lost, too.
    pub losses: Vec<(u64, Peer)>,
    /// Requests on their way from one peer to another at most; more are `Busy`.
    pub requests_max: usize,
    /// Most bytes of a medium payload.
    pub medium_bytes_max: usize,
    /// Most bytes of a long payload.
    pub long_bytes_max: usize,
    /// See [`Capabilities::long_to_operation`].
    pub long_to_operation: bool,
    /// Every poll is a step; without it only [`SimNetwork::step`] is.
    pub steps_by_polling: bool,
}

impl Default for SimOptions {
    fn default() -> Self {
        Self {
            delay_steps: 1..=8,
            timing: None,
            reorder_classes: true,
            losses: Vec::new(),
            requests_max: 64,
            medium_bytes_max: 16 << 10,
            long_bytes_max: 1 << 20,
            long_to_operation: true,
            steps_by_polling: false,
        }
    }
}

impl SimOptions {
    fn draw_delay(&self, random: &mut SplitMix) -> u64 {
        let (low, high) = (*self.delay_steps.start(), *self.delay_steps.end());
        low + random.below(high.saturating_sub(low) + 1)
    }
}

/// A small generator of reproducible numbers (SplitMix64): no dependency, no state beyond a word.
#[derive(Clone, Debug)]
pub struct SplitMix(pub u64);

impl SplitMix {
    /// The next number.
    pub fn next_number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which is not 0; close enough to uniform for tests.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next_number() % end
    }
}

/// The network.
pub struct SimNetwork {
    seed: u64,
    peers: u32,
    options: SimOptions,
    capabilities: Capabilities,
    state: Mutex<State>,
    bells: Vec<Bell>,
}

struct Bell {
    word: AtomicU32,
    /// Made when its peer first wants to sleep.
    descriptor: OnceLock<OwnedFd>,
    pending: AtomicBool,
}

impl Bell {
    /// # Panics
    /// If the system refuses a descriptor: this is a test's network.
    fn descriptor(&self) -> BorrowedFd<'_> {
        let make =
            || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("a descriptor (eventfd)");
        self.descriptor.get_or_init(make).as_fd()
    }
}

struct State {
    step: u64,
    random: SplitMix,
    /// By sender and receiver, those that were used.
    ways: BTreeMap<(Peer, Peer), SimPath>,
    /// Messages in flight, by receiver.
    inboxes: Vec<Inbox>,
    /// Messages that were sent.
    sent: u64,
    /// Future due times of messages, with the receiver.
    due: BTreeSet<(u64, Peer)>,
    lost: Vec<bool>,
    /// Losses in order, and the number of them that each peer was told.
    losses: Vec<Peer>,
    told: Vec<usize>,
}

/// The messages to one peer in an order in which they may be delivered.
type Inbox = BTreeMap<Key, InFlight>;

/// The step in which a message is due; a seeded number, the same for all that are due from one peer in this
/// step, so that the order of arrival does not follow from that of sending; the order of sending.
type Key = (u64, u64, u64);

#[derive(Default)]
struct SimPath {
    requests: usize,
    latest_due: [u64; 2],
    room_wanted: bool,
}

struct InFlight {
    from: Peer,
    direction: Direction,
    message: OwnedMessage,
}

impl SimNetwork {
    /// Makes a network of `peers` peers, whose behaviour follows from the seed.
    pub fn new(seed: u64, peers: u32, options: SimOptions) -> Result<Arc<Self>> {
        let bell = |_| Bell {
            word: AtomicU32::new(0),
            descriptor: OnceLock::new(),
            pending: AtomicBool::new(false),
        };
        Ok(Arc::new(Self {
            seed,
            peers,
            capabilities: Capabilities {
                medium_bytes_max: options.medium_bytes_max,
                long_bytes_max: options.long_bytes_max,
                ordered: !options.reorder_classes,
                long_to_operation: options.long_to_operation,
                load_store: false,
                one_sided: false,
                atomics: false,
                polls_through_kernel: false,
            },
            state: Mutex::new(State {
                step: 0,
                random: SplitMix(seed),
                ways: BTreeMap::new(),
                inboxes: (0..peers).map(|_| Inbox::new()).collect(),
                sent: 0,
                due: BTreeSet::new(),
                lost: vec![false; peers as usize],
                losses: Vec::new(),
                told: vec![0; peers as usize],
            }),
            bells: (0..peers).map(bell).collect(),
            options,
        }))
    }

    /// The conduit of one peer.
    ///
    /// # Panics
    /// If there is no such peer: tests choose it.
    pub fn conduit(self: &Arc<Self>, me: Peer) -> Arc<dyn Conduit> {
        assert!(me.0 < self.peers, "{me} is not in a network of {}", self.peers);
        Arc::new(SimConduit { network: self.clone(), me, is_polled: AtomicBool::new(false) })
    }

    /// Lets one step pass; returns the number of the step.
    pub fn step(&self) -> u64 {
        let mut state = self.lock();
        self.pass_step(&mut state);
        let step = state.step;
        let later = state.due.split_off(&(step + 1, Peer(0)));
        let due = std::mem::replace(&mut state.due, later);
        drop(state);
        for (_, to) in due {
            self.ring(to);
        }
        step
    }

    /// Returns the step of the first message whose receiver was not told yet.
    pub fn next_due(&self) -> Option<u64> {
        self.lock().due.first().map(|(step, _)| *step)
    }

    /// Lets time pass to this step, unless it is past; returns the receivers of messages that have come
    /// since.
    pub fn pass_to(&self, step: u64) -> Vec<Peer> {
        let mut state = self.lock();
        while state.step < step {
            // A loss has a step of its own.
            let losses = self.options.losses.iter().map(|(lost_in, _)| *lost_in);
            let next = losses.filter(|lost_in| (state.step + 1..=step).contains(lost_in)).min();
            state.step = next.unwrap_or(step) - 1;
            self.pass_step(&mut state);
        }
        let now = state.step;
        let later = state.due.split_off(&(now + 1, Peer(0)));
        let due = std::mem::replace(&mut state.due, later);
        drop(state);
        due.into_iter().map(|(_, to)| to).collect()
    }

    /// Messages that are on their way.
    pub fn in_flight(&self) -> usize {
        self.lock().inboxes.iter().map(Inbox::len).sum()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self, peer: Peer) {
        let bell = &self.bells[peer.0 as usize];
        // Without a descriptor no thread has ever slept.
        if let Some(descriptor) = bell.descriptor.get() {
            bell::ring(&bell.word, descriptor.as_fd());
        }
    }

    fn pass_step(&self, state: &mut State) {
        state.step += 1;
        for &(step, peer) in &self.options.losses {
            if step == state.step {
                self.cut_off(state, peer);
            }
        }
    }

    /// A peer disappears now, as those of [`SimOptions::losses`] do.
    pub fn lose(&self, peer: Peer) {
        self.cut_off(&mut self.lock(), peer);
    }

    fn cut_off(&self, state: &mut State, peer: Peer) {
        if std::mem::replace(&mut state.lost[peer.0 as usize], true) {
            return;
        }
        state.losses.push(peer);
        state.ways.retain(|&(from, to), _| from != peer && to != peer);
        state.inboxes[peer.0 as usize].clear();
        for inbox in &mut state.inboxes {
            inbox.retain(|_, message| message.from != peer);
        }
        for other in (0..self.peers).map(Peer) {
            self.ring(other);
        }
    }
}

impl State {
    /// The first message to a peer that is due and may be delivered. One that may not keeps those behind it that keep their
    /// order with it: of its sender, and unless classes overtake each other, of both.
    fn next_due(&self, to: Peer, traffic: Traffic, keep_order: bool) -> Option<Key> {
        let mut kept = BTreeSet::new();
        let due = self.inboxes[to.0 as usize].range(..=(self.step, u64::MAX, u64::MAX));
        due.into_iter().find_map(|(key, message)| {
            let class = if keep_order { 0 } else { message.direction as u32 };
            let passes = match traffic {
                Traffic::RepliesOnly => message.direction == Direction::Reply,
                _ => {
                    let may =
                        traffic.admits(message.message.handler()) && !kept.contains(&(message.from, class));
                    if !may {
                        kept.insert((message.from, class));
                    }
                    may
                }
            };
            passes.then_some(*key)
        })
    }

    fn is_told(&self, peer: Peer) -> bool {
        self.told[peer.0 as usize] == self.losses.len()
    }
}

pub(super) struct SimConduit {
    network: Arc<SimNetwork>,
    me: Peer,
    is_polled: AtomicBool,
}

/// Marks a conduit as polled until dropped, even by a panic in a handler.
struct Polling<'a>(&'a AtomicBool);

impl Drop for Polling<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl SimConduit {
    fn lost(&self, peer: Peer, during: &str) -> RmaError {
        RmaError::PeerLost {
            peer,
            who: peer.to_string(),
            during: during.into(),
            reason: "the simulated network has dropped it".into(),
        }
    }

    /// The next message that is due, and its sender.
    fn take_due(&self, traffic: Traffic) -> Option<(Peer, OwnedMessage)> {
        let network = &*self.network;
        let mut state = network.lock();
        let key = state.next_due(self.me, traffic, network.capabilities.ordered)?;
        let InFlight { from, direction, message } = state.inboxes[self.me.0 as usize].remove(&key)?;
        let way = state.ways.entry((from, self.me)).or_default();
        way.requests -= usize::from(direction == Direction::Request);
        let wake = std::mem::take(&mut way.room_wanted);
        if wake && network.options.timing.is_some() {
            // No thread sleeps: the driver of the network is told.
            let now = state.step;
            state.due.insert((now, from));
        }
        let now = state.step;
        drop(state);
        if let Some(timing) = &network.options.timing {
            timing.taken(now, from, self.me, message.long_bytes());
        }
        if wake {
            network.ring(from);
        }
        Some((from, message))
    }
}

impl Conduit for SimConduit {
    fn name(&self) -> &'static str {
        "sim"
    }

    fn capabilities(&self) -> &Capabilities {
        &self.network.capabilities
    }

    fn reaches(&self, to: Peer) -> bool {
        to.0 < self.network.peers && to != self.me
    }

    fn try_send(&self, to: Peer, message: &Message<'_>) -> Result<Sent> {
        let network = &*self.network;
        if !self.reaches(to) || message.arguments.len() > ARGUMENTS_MAX {
            let what = format!("{} arguments to {to} on the simulated network", message.arguments.len());
            return Err(RmaError::Usage(what));
        }
        let (bytes, limit) = match message.payload {
            Payload::Short => (0, 0),
            Payload::Medium(source) => (source.bytes(), network.options.medium_bytes_max),
            Payload::Long(source, _) => (source.bytes(), network.options.long_bytes_max),
        };
        if bytes > limit {
            return Err(RmaError::Usage(format!("{bytes} bytes in a message; {limit} are the most")));
        }
        let mut state = network.lock();
        for peer in [self.me, to] {
            if state.lost[peer.0 as usize] {
                return Err(self.lost(peer, "sending a message"));
            }
        }
        let step = state.step;
        let drawn = network.options.draw_delay(&mut state.random);
        let way = state.ways.entry((self.me, to)).or_default();
        let (class, is_request) = (message.direction as usize, message.direction == Direction::Request);
        if is_request && way.requests >= network.options.requests_max {
            way.room_wanted = true;
            return Ok(Sent::Busy);
        }
        let sent = match &network.options.timing {
            Some(timing) => timing.sent(step, self.me, to, message),
            None => step + drawn,
        };
        let earlier = if network.options.reorder_classes {
            way.latest_due[class]
        } else {
            way.latest_due[0].max(way.latest_due[1])
        };
        let due = sent.max(earlier);
        way.latest_due[class] = due;
        way.requests += usize::from(is_request);
        state.sent += 1;
        let turn = SplitMix(network.seed ^ due ^ u64::from(self.me.0) << 32).next_number();
        let key = (due, turn, state.sent);
        let (from, direction, message) = (self.me, message.direction, OwnedMessage::of(message));
        state.inboxes[to.0 as usize].insert(key, InFlight { from, direction, message });
        if !network.options.steps_by_polling {
            state.due.insert((due, to));
        }
        drop(state);
        if network.options.steps_by_polling {
            network.ring(to);
        }
        Ok(Sent::Accepted)
    }

    fn poll(&self, sink: &dyn Sink, traffic: Traffic) -> Result<usize> {
        if self.is_polled.swap(true, Ordering::Acquire) {
            return Ok(0);
        }
        let _polling = Polling(&self.is_polled);
        let mut state = self.network.lock();
        if self.network.options.steps_by_polling {
            self.network.pass_step(&mut state);
        }
        let told = state.told[self.me.0 as usize];
        if let Some(&peer) = state.losses.get(told) {
            state.told[self.me.0 as usize] += 1;
            return Err(self.lost(peer, "waiting for messages"));
        }
        drop(state);
        let mut delivered = 0;
        while delivered < BATCH {
            let Some((from, message)) = self.take_due(traffic) else { break };
            message.deliver(from, sink)?;
            delivered += 1;
        }
        Ok(delivered)
    }

    fn wait_descriptor(&self) -> BorrowedFd<'_> {
        self.network.bells[self.me.0 as usize].descriptor()
    }

    fn arm(&self) -> bool {
        let network = &*self.network;
        let bell = &network.bells[self.me.0 as usize];
        if self.is_polled.load(Ordering::Acquire) {
            return false;
        }
        bell.descriptor();
        bell::prepare(&bell.word);
        let state = network.lock();
        let waiting = if network.options.steps_by_polling {
            // The steps that these messages wait for must pass.
            !state.inboxes[self.me.0 as usize].is_empty()
        } else {
            state.next_due(self.me, Traffic::Everything, network.capabilities.ordered).is_some()
        };
        let waiting = waiting || !state.is_told(self.me);
        drop(state);
        if waiting {
            self.disarm();
        }
        !waiting
    }

    fn disarm(&self) {
        let bell = &self.network.bells[self.me.0 as usize];
        bell::finish(&bell.word, bell.descriptor(), &bell.pending);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Delivery, Destination};
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use std::sync::Mutex;

    /// Notes what is delivered: sender, direction, first argument.
    #[derive(Default)]
    struct Notes(Mutex<Vec<(Peer, Direction, u32)>>);

    impl Sink for Notes {
        fn destination(&self, from: Peer, _: Destination, _: usize) -> Result<*mut u8> {
            Err(RmaError::Protocol { peer: Some(from), what: "no destination".into() })
        }

        fn deliver(&self, delivery: Delivery<'_>) -> Result<()> {
            self.0.lock().unwrap().push((delivery.from, delivery.direction, delivery.arguments[0]));
            Ok(())
        }
    }

    fn send(conduit: &dyn Conduit, to: Peer, direction: Direction, number: u32) -> Result<Sent> {
        conduit
            .try_send(to, &Message { direction, handler: 200, arguments: &[number], payload: Payload::Short })
    }

    fn run(seed: u64, reorder_classes: bool) -> Vec<(Peer, Direction, u32)> {
        let options = SimOptions { reorder_classes, ..SimOptions::default() };
        let network = SimNetwork::new(seed, 3, options).unwrap();
        let conduits: Vec<_> = (0..3).map(|peer| network.conduit(Peer(peer))).collect();
        let notes = Notes::default();
        for number in 0..40 {
            for from in [0, 1] {
                let direction = if number % 3 == 0 { Direction::Reply } else { Direction::Request };
                assert_eq!(send(&*conduits[from], Peer(2), direction, number).unwrap(), Sent::Accepted);
            }
            network.step();
            conduits[2].poll(&notes, Traffic::Everything).unwrap();
        }
        while network.in_flight() > 0 {
            network.step();
            conduits[2].poll(&notes, Traffic::Everything).unwrap();
        }
        notes.0.into_inner().unwrap()
    }

    #[test]
    fn a_seed_determines_the_run_and_order_holds_per_class() {
        for seed in 0..50 {
            let notes = run(seed, true);
            assert_eq!(notes, run(seed, true));
            assert_eq!(notes.len(), 80);
            for from in [Peer(0), Peer(1)] {
                for class in [Direction::Request, Direction::Reply] {
                    let numbers = notes.iter().filter(|n| n.0 == from && n.1 == class).map(|n| n.2);
                    assert!(numbers.is_sorted());
                }
                let all = |notes: &[(Peer, Direction, u32)]| {
                    notes.iter().filter(|n| n.0 == from).map(|n| n.2).collect::<Vec<_>>()
                };
                assert!(all(&run(seed, false)).is_sorted(), "without reordering both classes keep one order");
            }
        }
        assert!(
            (0..50).any(|seed| !run(seed, true).iter().filter(|n| n.0 == Peer(0)).map(|n| n.2).is_sorted())
        );
    }

    /// Sends messages of the peers of a large network to their neighbours and to one hot peer; returns each
    /// peer's arrivals.
    fn crowd(seed: u64, peers: u32) -> Vec<Vec<(Peer, Direction, u32)>> {
        const ROUNDS: u32 = 10;
        let network = SimNetwork::new(seed, peers, SimOptions::default()).unwrap();
        let conduits: Vec<_> = (0..peers).map(|peer| network.conduit(Peer(peer))).collect();
        let notes: Vec<_> = (0..peers).map(|_| Notes::default()).collect();
        let poll_all = || {
            network.step();
            for (conduit, notes) in conduits.iter().zip(&notes) {
                conduit.poll(notes, Traffic::Everything).unwrap();
            }
        };
        for round in 0..ROUNDS {
            for (me, conduit) in (0..peers).zip(&conduits) {
                let others = [me + 1, me + 7, me + peers / 2].map(|other| other % peers).into_iter();
                for to in others.chain([0]).filter(|&to| to != me) {
                    assert_eq!(
                        send(&**conduit, Peer(to), Direction::Request, round).unwrap(),
                        Sent::Accepted
                    );
                }
            }
            poll_all();
        }
        while network.in_flight() > 0 {
            poll_all();
        }
        let ways = network.lock().ways.len();
        assert!(ways <= 4 * peers as usize, "{ways} ways are known");
        notes.into_iter().map(|notes| notes.0.into_inner().unwrap()).collect()
    }

    /// Goal: a thousand peers cost what they say: of the million ways between them, those that are used.
    #[test]
    fn a_thousand_peers_talk_in_order_and_a_seed_determines_how() {
        let crowds = [crowd(1, 1000), crowd(1, 1000)];
        assert!(crowds[0] == crowds[1], "the same seed, another run");
        assert_eq!(crowds[0].iter().map(Vec::len).sum::<usize>(), 10 * (4 * 1000 - 1));
        for from in [1, 500, 999].map(Peer) {
            let rounds = crowds[0][0].iter().filter(|note| note.0 == from).map(|note| note.2);
            assert!(rounds.is_sorted());
        }
    }

    /// Goal: a refused sender is woken when there is room.
    #[test]
    fn a_full_way_wakes_its_sender_when_it_has_room() {
        let options = SimOptions { requests_max: 1, ..SimOptions::default() };
        let network = SimNetwork::new(1, 2, options).unwrap();
        let (zero, one) = (network.conduit(Peer(0)), network.conduit(Peer(1)));
        let request = |number| send(&*zero, Peer(1), Direction::Request, number).unwrap();
        assert_eq!((request(0), request(1)), (Sent::Accepted, Sent::Busy));
        assert!(zero.arm());
        let notes = Notes::default();
        while one.poll(&notes, Traffic::Everything).unwrap() == 0 {
            network.step();
        }
        let mut descriptors = [PollFd::from_borrowed_fd(zero.wait_descriptor(), PollFlags::IN)];
        assert_eq!(poll(&mut descriptors, Some(&Timespec::default())).unwrap(), 1);
        zero.disarm();
        assert_eq!(request(1), Sent::Accepted);
    }

    /// Messages of peer 0 take long, those of others short.
    #[derive(Debug, Default)]
    struct Slow(Mutex<Vec<(u64, Peer)>>);

    impl Timing for Slow {
        fn sent(&self, now: u64, from: Peer, _: Peer, _: &Message<'_>) -> u64 {
            now + if from == Peer(0) { 1000 } else { 10 }
        }

        fn taken(&self, now: u64, from: Peer, _: Peer, _: usize) {
            self.0.lock().unwrap().push((now, from));
        }
    }

    /// Goal: with a model of time messages come at its times, time goes from one to the next, and losses
    /// happen in between.
    #[test]
    fn a_model_of_time_says_when_messages_come() {
        let slow = Arc::new(Slow::default());
        let timing = Some(slow.clone() as Arc<dyn Timing>);
        let network = SimNetwork::new(
            1,
            3,
            SimOptions { timing, losses: vec![(2000, Peer(0))], ..SimOptions::default() },
        )
        .unwrap();
        let conduits: Vec<_> = (0..3).map(|peer| network.conduit(Peer(peer))).collect();
        for from in [0, 1] {
            assert_eq!(send(&*conduits[from], Peer(2), Direction::Request, 0).unwrap(), Sent::Accepted);
        }
        let notes = Notes::default();
        while let Some(due) = network.next_due() {
            assert_eq!(network.pass_to(due), [Peer(2)]);
            assert_eq!(conduits[2].poll(&notes, Traffic::Everything).unwrap(), 1);
        }
        assert_eq!(*slow.0.lock().unwrap(), [(10, Peer(1)), (1000, Peer(0))]);
        assert!(
            network.pass_to(1999).is_empty() && send(&*conduits[0], Peer(1), Direction::Request, 0).is_ok()
        );
        network.pass_to(3000);
        assert!(send(&*conduits[0], Peer(1), Direction::Request, 0).is_err());
    }

    #[test]
    fn a_lost_peer_is_reported_once_by_poll_and_always_by_sends() {
        let options = SimOptions { losses: vec![(3, Peer(1))], ..SimOptions::default() };
        let network = SimNetwork::new(1, 2, options).unwrap();
        let (zero, notes) = (network.conduit(Peer(0)), Notes::default());
        assert!(send(&*zero, Peer(1), Direction::Request, 0).is_ok());
        assert_eq!((0..3).map(|_| network.step()).max(), Some(3));
        assert_eq!(network.in_flight(), 0);
        let lost = zero.poll(&notes, Traffic::Everything);
        assert!(matches!(lost, Err(RmaError::PeerLost { peer: Peer(1), .. })));
        assert_eq!(zero.poll(&notes, Traffic::Everything).unwrap(), 0);
        for _ in 0..2 {
            assert!(matches!(
                send(&*zero, Peer(1), Direction::Request, 0),
                Err(RmaError::PeerLost { peer: Peer(1), .. })
            ));
        }
    }
}
