//! A simulated network inside one process: seeded delays, reordering where a class allows it, loss of peers.
//!
//! Time is a count of steps. A message that is sent becomes deliverable a seeded number of steps later, never before
//! one that was sent earlier on the same way. Driven by one thread that calls [`SimNetwork::step`] and polls peers in an
//! order of its own, a run is determined by the seed. With [`SimOptions::steps_by_polling`] every poll is a step, so
//! that ordinary threads can use it, too (their schedule then counts as well).

use super::owned::OwnedMessage;
use super::{Capabilities, Conduit, Sent, Traffic};
use crate::address::Peer;
use crate::error::{Result, RmaError};
use crate::message::{ARGUMENTS_MAX, Direction, Message, Payload, Sink};
use crate::shm::bell;
use rustix::event::{EventfdFlags, eventfd};
use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Messages delivered by one poll at most.
const BATCH: usize = 64;

/// What the network does to messages.
#[derive(Clone, Debug)]
pub struct SimOptions {
    /// Steps from sending to delivery.
    pub delay_steps: RangeInclusive<u64>,
    /// Whether requests and replies between two peers may overtake each other.
    pub reorder_classes: bool,
    /// Peers that disappear, and the step at which they do: what they sent and was not delivered is lost, too.
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
    peers: u32,
    options: SimOptions,
    capabilities: Capabilities,
    state: Mutex<State>,
    bells: Vec<Bell>,
}

struct Bell {
    word: AtomicU32,
    descriptor: OwnedFd,
    pending: AtomicBool,
}

struct State {
    step: u64,
    random: SplitMix,
    /// By sender and receiver.
    ways: Vec<Way>,
    lost: Vec<bool>,
    /// Losses that a peer has not been told of, by peer.
    unreported: Vec<Vec<Peer>>,
}

#[derive(Default)]
struct Way {
    /// Requests and replies, each in order of sending.
    classes: [VecDeque<InFlight>; 2],
    sent: u64,
    latest_due: [u64; 2],
    room_wanted: bool,
}

struct InFlight {
    due: u64,
    number: u64,
    message: OwnedMessage,
}

impl SimNetwork {
    /// A network of so many peers, whose behaviour follows from the seed.
    pub fn new(seed: u64, peers: u32, options: SimOptions) -> Result<Arc<Self>> {
        let bell = || {
            let descriptor = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
                .map_err(|e| RmaError::system("create a descriptor (eventfd)", e))?;
            Ok(Bell { word: AtomicU32::new(0), descriptor, pending: AtomicBool::new(false) })
        };
        Ok(Arc::new(Self {
            peers,
            capabilities: Capabilities {
                medium_bytes_max: options.medium_bytes_max,
                long_bytes_max: options.long_bytes_max,
                ordered: !options.reorder_classes,
                long_to_operation: options.long_to_operation,
                load_store: false,
                one_sided: false,
                atomics: false,
            },
            state: Mutex::new(State {
                step: 0,
                random: SplitMix(seed),
                ways: (0..peers * peers).map(|_| Way::default()).collect(),
                lost: vec![false; peers as usize],
                unreported: vec![Vec::new(); peers as usize],
            }),
            bells: (0..peers).map(|_| bell()).collect::<Result<_>>()?,
            options,
        }))
    }

    /// The conduit of one peer.
    ///
    /// # Panics
    /// When there is no such peer: tests choose it.
    pub fn conduit(self: &Arc<Self>, me: Peer) -> Arc<dyn Conduit> {
        assert!(me.0 < self.peers, "{me} is not in a network of {}", self.peers);
        Arc::new(SimConduit { network: self.clone(), me, is_polled: AtomicBool::new(false) })
    }

    /// Lets one step pass; returns the number of the step.
    pub fn step(&self) -> u64 {
        let mut state = self.lock();
        self.pass_step(&mut state);
        let (step, peers) = (state.step, self.peers);
        let due: Vec<u32> =
            (0..peers).filter(|&to| state.next_due(peers, Peer(to), Traffic::Everything)).collect();
        drop(state);
        for to in due {
            self.ring(Peer(to));
        }
        step
    }

    /// Messages that are on their way.
    pub fn in_flight(&self) -> usize {
        self.lock().ways.iter().flat_map(|way| &way.classes).map(VecDeque::len).sum()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self, peer: Peer) {
        let bell = &self.bells[peer.0 as usize];
        bell::ring(&bell.word, bell.descriptor.as_fd());
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
        state.unreported.iter_mut().for_each(|unreported| unreported.push(peer));
        for other in (0..self.peers).map(Peer) {
            state.way(self.peers, peer, other).classes = Default::default();
            state.way(self.peers, other, peer).classes = Default::default();
            self.ring(other);
        }
    }
}

impl State {
    fn way(&mut self, peers: u32, from: Peer, to: Peer) -> &mut Way {
        &mut self.ways[(from.0 * peers + to.0) as usize]
    }

    /// The class whose first message is next on a way, if it is due.
    fn class_due(way: &Way, step: u64, traffic: Traffic, keep_order: bool) -> Option<usize> {
        let first = |class: usize| way.classes[class].front();
        let is_due = |class: &usize| first(*class).is_some_and(|message| message.due <= step);
        let reply = Direction::Reply as usize;
        let is_due = |class: &usize| {
            is_due(class) && first(*class).is_some_and(|message| traffic.admits(message.message.handler()))
        };
        if !traffic.has_requests() {
            return Some(reply).filter(is_due);
        }
        let by_number = || (0..2).filter(|&c| first(c).is_some()).min_by_key(|&c| first(c).map(|m| m.number));
        if keep_order { by_number().filter(is_due) } else { (0..2).rev().find(is_due) }
    }

    fn next_due(&self, peers: u32, to: Peer, traffic: Traffic) -> bool {
        let ways = (0..peers).map(|from| &self.ways[(from * peers + to.0) as usize]);
        ways.into_iter().any(|way| Self::class_due(way, self.step, traffic, false).is_some())
    }
}

struct SimConduit {
    network: Arc<SimNetwork>,
    me: Peer,
    is_polled: AtomicBool,
}

/// Marks a conduit as polled until dropped, also by a panic in a handler.
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

    /// The next message that is due, and its sender; rotates over senders by number of the step.
    fn take_due(&self, traffic: Traffic) -> Option<(Peer, OwnedMessage)> {
        let network = &*self.network;
        let mut state = network.lock();
        let (step, peers) = (state.step, network.peers);
        for turn in 0..peers {
            let from = Peer((turn + step as u32) % peers);
            let way = state.way(peers, from, self.me);
            let Some(class) = State::class_due(way, step, traffic, network.capabilities.ordered) else {
                continue;
            };
            let message = way.classes[class].pop_front()?;
            let wake = std::mem::take(&mut way.room_wanted);
            drop(state);
            if wake {
                network.ring(from);
            }
            return Some((from, message.message));
        }
        None
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
        let (low, high) = (*network.options.delay_steps.start(), *network.options.delay_steps.end());
        let delay = low + state.random.below(high.saturating_sub(low) + 1);
        let step = state.step;
        let way = state.way(network.peers, self.me, to);
        let class = message.direction as usize;
        if message.direction == Direction::Request && way.classes[class].len() >= network.options.requests_max
        {
            way.room_wanted = true;
            return Ok(Sent::Busy);
        }
        let earlier = if network.options.reorder_classes {
            way.latest_due[class]
        } else {
            way.latest_due[0].max(way.latest_due[1])
        };
        let due = (step + delay).max(earlier);
        way.latest_due[class] = due;
        way.sent += 1;
        way.classes[class].push_back(InFlight { due, number: way.sent, message: OwnedMessage::of(message) });
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
        if let Some(peer) = state.unreported[self.me.0 as usize].pop() {
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
        self.network.bells[self.me.0 as usize].descriptor.as_fd()
    }

    fn arm(&self) -> bool {
        let network = &*self.network;
        let bell = &network.bells[self.me.0 as usize];
        if self.is_polled.load(Ordering::Acquire) {
            return false;
        }
        bell::prepare(&bell.word);
        let state = network.lock();
        let peers = network.peers;
        let waiting = if network.options.steps_by_polling {
            // Somebody must let the steps pass that these messages wait for.
            (0..peers).any(|from| {
                state.ways[(from * peers + self.me.0) as usize].classes.iter().any(|class| !class.is_empty())
            })
        } else {
            state.next_due(peers, self.me, Traffic::Everything)
        };
        let waiting = waiting || !state.unreported[self.me.0 as usize].is_empty();
        drop(state);
        if waiting {
            self.disarm();
        }
        !waiting
    }

    fn disarm(&self) {
        let bell = &self.network.bells[self.me.0 as usize];
        bell::finish(&bell.word, bell.descriptor.as_fd(), &bell.pending);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Delivery, Destination};
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
