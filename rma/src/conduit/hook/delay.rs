//! Delivers later, as a link of some latency and bandwidth would.
//!
//! Everything is sent at once and held by its receiver: the inner conduit's promises about order, room and
//! loans hold unchanged. The time counts from the poll that takes a message in. The bytes of a long message
//! are in place when it is taken in, and so may be seen before its handler runs, as those of a put may. The
//! end of a one-sided operation is reported later.

use super::switch::Switch;
use crate::address::{Peer, RegionId};
use crate::conduit::owned::OwnedDelivery;
use crate::conduit::sim::SplitMix;
use crate::conduit::turn::Turn;
use crate::conduit::{Capabilities, Conduit, Loan, Part, Place, Sent, Traffic};
use crate::error::{Result, RmaError};
use crate::message::{Delivery, Destination, Direction, Message, Sink, Source};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use vgas_shm::alarm::{Alarm, either};
use vgas_shm::{Atomic, Mapping, Span};

/// Most messages that one poll delivers, so that other conduits get their turn.
const POLL_MESSAGES: usize = 64;

/// Requests that are held at most; more stay in the inner conduit, so that their senders feel it.
const REQUESTS_MAX: usize = 4096;

/// The links from every other peer to this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// From sending the last byte to its delivery.
    pub latency: Duration,
    /// Bandwidth of one peer's link, in bytes a second; none: unlimited.
    pub bytes_per_second: Option<u64>,
}

impl Link {
    /// Time that a transfer keeps the link busy.
    pub(super) fn transfer(&self, bytes: usize) -> Duration {
        let seconds = |rate: u64| Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
        self.bytes_per_second.map_or(Duration::ZERO, seconds)
    }
}

/// Path of a message.
enum DelayPath {
    /// A link from each peer, and until when it is busy.
    Links(Link, BTreeMap<Peer, Instant>),
    /// The cables of nodes.
    Switch(Switch),
    /// Times that are drawn, up to this one.
    Drawn(Duration, SplitMix),
}

impl DelayPath {
    /// Returns the start of the transfer of bytes that a peer has sent, and that have been taken in now.
    fn begin(&mut self, from: Peer, bytes: usize) -> Instant {
        match self {
            Self::Switch(switch) => switch.up(from, bytes),
            Self::Links(..) | Self::Drawn(..) => Instant::now(),
        }
    }

    /// Time of its delivery: asked when it begins.
    fn due(&mut self, from: Peer, bytes: usize, begin: Instant) -> Instant {
        match self {
            Self::Switch(switch) => switch.down(bytes, begin),
            Self::Links(link, busy_until) => {
                let busy_until = busy_until.entry(from).or_insert(begin);
                *busy_until = begin.max(*busy_until) + link.transfer(bytes);
                *busy_until + link.latency
            }
            Self::Drawn(most, random) => {
                begin + Duration::from_nanos(random.below(most.as_nanos() as u64 + 1))
            }
        }
    }
}

/// A conduit whose messages take time.
pub struct Delay {
    pub(super) inner: Arc<dyn Conduit>,
    turn: Turn,
    state: Mutex<State>,
    alarm: Alarm,
    /// Poll descriptor of the inner conduit and the alarm.
    both: OwnedFd,
}

struct State {
    way: DelayPath,
    /// Messages still to be transferred, by start time, then in the order of arrival; with their bytes.
    waiting: BTreeMap<(Instant, u64), (Peer, usize, HeldMessage)>,
    /// When what has come last of a peer begins its way.
    last_begin: BTreeMap<Peer, Instant>,
    /// When what has come last of a peer is to be delivered.
    last_due: BTreeMap<Peer, Instant>,
    /// By the time of delivery, and among equals in the order of arrival.
    held: BTreeMap<(Instant, u64), HeldMessage>,
    arrivals: u64,
    /// Requests among those held.
    requests: usize,
    /// Current time of the alarm.
    alarm: Option<Instant>,
    /// Peers that broke the protocol by a message that was delivered late: the inner conduit does not know.
    ended: BTreeSet<Peer>,
}

enum HeldMessage {
    Message(OwnedDelivery),
    Completed(Peer, u64),
}

impl HeldMessage {
    fn is_request(&self) -> bool {
        matches!(self, Self::Message(message) if message.direction == Direction::Request)
    }
}

impl State {
    /// Nothing is held yet.
    fn of(way: DelayPath) -> Self {
        Self {
            way,
            waiting: BTreeMap::new(),
            last_begin: BTreeMap::new(),
            last_due: BTreeMap::new(),
            held: BTreeMap::new(),
            arrivals: 0,
            requests: 0,
            alarm: None,
            ended: BTreeSet::new(),
        }
    }

    /// Holds something of a peer's that has come now. It is not delivered before what has come of that peer earlier.
    fn hold(&mut self, from: Peer, bytes: usize, held: HeldMessage) {
        let begin = self.way.begin(from, bytes);
        let last = self.last_begin.entry(from).or_insert(begin);
        *last = begin.max(*last);
        let begin = *last;
        self.arrivals += 1;
        self.requests += usize::from(held.is_request());
        self.waiting.insert((begin, self.arrivals), (from, bytes, held));
        self.begin_due();
    }

    /// Lets begin their way what is to begin it by now.
    fn begin_due(&mut self) {
        let now = Instant::now();
        while let Some(first) = self.waiting.first_entry().filter(|first| first.key().0 <= now) {
            let ((begin, number), (from, bytes, held)) = first.remove_entry();
            let due = self.way.due(from, bytes, begin);
            let last = self.last_due.entry(from).or_insert(due);
            *last = due.max(*last);
            self.held.insert((*last, number), held);
        }
    }

    /// The first that is due and may be delivered. A held message of a peer keeps its later ones behind it,
    /// except replies where only these may pass.
    fn next_due(&self, traffic: Traffic) -> Option<(Instant, u64)> {
        let now = Instant::now();
        let mut kept = BTreeSet::new();
        self.held.iter().take_while(|((due, _), _)| *due <= now).find_map(|(key, held)| {
            let HeldMessage::Message(message) = held else { return Some(*key) };
            let is_reply = message.direction == Direction::Reply;
            let passes = match traffic {
                Traffic::RepliesOnly => is_reply,
                _ => traffic.admits(message.handler) && !kept.contains(&message.from),
            };
            if !passes {
                kept.insert(message.from);
            }
            passes.then_some(*key)
        })
    }

    fn take_due(&mut self, traffic: Traffic) -> Option<HeldMessage> {
        self.begin_due();
        let held = self.held.remove(&self.next_due(traffic)?)?;
        self.requests -= usize::from(held.is_request());
        Some(held)
    }
}

impl Delay {
    /// Puts such links between this peer and all others.
    ///
    /// # Errors
    /// If the system refuses descriptors.
    pub fn new(inner: Arc<dyn Conduit>, link: Link) -> Result<Self> {
        Self::over(inner, DelayPath::Links(link, BTreeMap::new()))
    }

    /// Puts a switch between this peer's node and all others.
    ///
    /// # Errors
    /// If the system refuses descriptors.
    pub fn switched(inner: Arc<dyn Conduit>, switch: Switch) -> Result<Self> {
        Self::over(inner, DelayPath::Switch(switch))
    }

    /// Delivers each message up to this much later, by random times of this seed: messages of different peers
    /// overtake each other. The same number of messages has the same times; their assignment depends on the
    /// system.
    ///
    /// # Errors
    /// If the system refuses descriptors.
    pub fn drawn(inner: Arc<dyn Conduit>, most: Duration, seed: u64) -> Result<Self> {
        Self::over(inner, DelayPath::Drawn(most, SplitMix(seed)))
    }

    fn over(inner: Arc<dyn Conduit>, way: DelayPath) -> Result<Self> {
        let state = State::of(way);
        let alarm = Alarm::new()?;
        let both = either([inner.wait_descriptor(), alarm.as_fd()])?;
        Ok(Self { inner, turn: Turn::default(), state: Mutex::new(state), alarm, both })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the alarm to the first held message, so that a sleeping thread wakes for it, whichever thread
    /// took it in.
    fn set_alarm(&self) -> Result<()> {
        let mut state = self.lock();
        let (waiting, held) = (state.waiting.keys().next(), state.held.keys().next());
        let first = waiting.into_iter().chain(held).map(|(when, _)| *when).min();
        if first != state.alarm {
            self.alarm.set(first)?;
            state.alarm = first;
        }
        Ok(())
    }

    /// Delivers due messages; returns their number.
    fn deliver_due(&self, sink: &dyn Sink, traffic: Traffic) -> Result<usize> {
        let mut count = 0;
        while count < POLL_MESSAGES {
            // No lock is held while a handler runs: it sends.
            let Some(held) = self.lock().take_due(traffic) else { break };
            count += 1;
            match held {
                HeldMessage::Completed(server, operation) => sink.completed(server, operation)?,
                HeldMessage::Message(message) if self.lock().ended.contains(&message.from) => {}
                HeldMessage::Message(message) => {
                    sink.deliver(message.delivery()).map_err(|error| self.end(message.from, error))?;
                }
            }
        }
        Ok(count)
    }

    /// A peer has sent what its receiver refuses: nothing more of it is delivered, and the error names it.
    fn end(&self, peer: Peer, error: RmaError) -> RmaError {
        self.lock().ended.insert(peer);
        match error {
            error @ RmaError::Protocol { peer: Some(_), .. } => error,
            other => RmaError::Protocol { peer: Some(peer), what: other.to_string() },
        }
    }

    fn arm_by(&self, arm: impl FnOnce(&dyn Conduit) -> bool) -> bool {
        // Another thread is polling: it may find the message that the caller waits for.
        let Some(turn) = self.turn.take() else { return false };
        let traffic = if turn.nested { Traffic::RepliesOnly } else { Traffic::Everything };
        // Messages that begin their way, or become due, from now on ring the alarm.
        self.lock().next_due(traffic).is_none() && arm(&*self.inner)
    }

    /// That a peer is still served.
    fn check(&self, peer: Peer) -> Result<()> {
        if !self.lock().ended.contains(&peer) {
            return Ok(());
        }
        let (who, reason) = (peer.to_string(), "it broke the protocol".into());
        Err(RmaError::PeerLost { peer, who, during: "sending".into(), reason })
    }
}

#[deny(clippy::missing_trait_methods)]
impl Conduit for Delay {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn reaches(&self, to: Peer) -> bool {
        self.inner.reaches(to)
    }

    fn try_send(&self, to: Peer, message: &Message<'_>) -> Result<Sent> {
        self.check(to)?;
        self.inner.try_send(to, message)
    }

    fn try_send_lent(&self, to: Peer, message: &Message<'_>, lent: &Span) -> Result<Option<Loan>> {
        self.check(to)?;
        self.inner.try_send_lent(to, message, lent)
    }

    fn is_returned(&self, to: Peer, loan: Loan) -> bool {
        self.inner.is_returned(to, loan)
    }

    fn offer(&self, region: RegionId, memory: Span) {
        self.inner.offer(region, memory);
    }

    fn forget(&self, owner: Peer, region: RegionId) {
        self.inner.forget(owner, region);
    }

    fn start_put(
        &self,
        server: Peer,
        place: Place,
        from: Source<'_>,
        stays: bool,
        operation: u64,
    ) -> Result<Sent> {
        self.check(server)?;
        self.inner.start_put(server, place, from, stays, operation)
    }

    fn start_get(&self, server: Peer, place: Place, part: Part) -> Result<Sent> {
        self.check(server)?;
        self.inner.start_get(server, place, part)
    }

    fn start_atomic(&self, server: Peer, place: Place, atomic: Atomic, operation: u64) -> Result<Sent> {
        self.check(server)?;
        self.inner.start_atomic(server, place, atomic, operation)
    }

    fn poll(&self, sink: &dyn Sink, traffic: Traffic) -> Result<usize> {
        let Some(turn) = self.turn.take() else { return Ok(0) };
        // From inside a handler, running further requests could recurse for ever.
        let traffic = if turn.nested { Traffic::RepliesOnly } else { traffic };
        let is_full = self.lock().requests >= REQUESTS_MAX;
        let takes = if is_full { Traffic::RepliesOnly } else { traffic };
        let brought = self.inner.poll(&Holding { sink, delay: self }, takes);
        let delivered = brought.and_then(|brought| Ok(brought + self.deliver_due(sink, traffic)?));
        self.set_alarm()?;
        delivered
    }

    fn flush(&self) -> Result<()> {
        self.inner.flush()
    }

    fn has_unsent(&self) -> bool {
        self.inner.has_unsent()
    }

    fn wait_descriptor(&self) -> BorrowedFd<'_> {
        self.both.as_fd()
    }

    fn arm(&self) -> bool {
        self.arm_by(|inner| inner.arm())
    }

    fn arm_briefly(&self) -> bool {
        self.arm_by(|inner| inner.arm_briefly())
    }

    fn disarm(&self) {
        self.inner.disarm();
    }

    fn map(&self, owner: Peer, region: RegionId) -> Result<Option<Arc<Mapping>>> {
        self.inner.map(owner, region)
    }

    fn close(&self, timeout: Duration) {
        self.inner.close(timeout);
    }
}

/// Takes the endpoint's place while the inner conduit is polled.
pub(in crate::conduit) struct Holding<'a> {
    pub(super) sink: &'a dyn Sink,
    pub(super) delay: &'a Delay,
}

#[deny(clippy::missing_trait_methods)]
impl Sink for Holding<'_> {
    fn destination(&self, from: Peer, destination: Destination, bytes: usize) -> Result<*mut u8> {
        self.sink.destination(from, destination, bytes)
    }

    fn is_gone(&self, peer: Peer) -> bool {
        self.sink.is_gone(peer)
    }

    fn region(&self, from: Peer, owner: Peer, region: RegionId) -> Option<Span> {
        self.sink.region(from, owner, region)
    }

    fn completed(&self, server: Peer, operation: u64) -> Result<()> {
        self.delay.lock().hold(server, 0, HeldMessage::Completed(server, operation));
        Ok(())
    }

    fn deliver(&self, delivery: Delivery<'_>) -> Result<()> {
        let message = OwnedDelivery::of(&delivery);
        let (from, bytes) = (message.from, message.bytes());
        self.delay.lock().hold(from, bytes, HeldMessage::Message(message));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Layout;

    /// Goal: whatever overtakes it, messages of one peer are delivered in the order of arrival: a short
    /// message behind a long one of the same peer waits for it, one of another peer does not.
    #[test]
    fn what_comes_of_one_peer_stays_in_order() {
        let layout = Layout::blocks(3, 3);
        let common = Mapping::anonymous("switch", Switch::common_bytes(3)).unwrap();
        let switch = Switch::new("1mbit,1ms".parse().unwrap(), layout, Peer(0), common).unwrap();
        let mut state = State::of(DelayPath::Switch(switch));
        // The first takes 13 minutes: longer than this thread waits for a processor.
        let sent = [(Peer(1), 100_000_000), (Peer(1), 8), (Peer(2), 8), (Peer(1), 8)];
        for (number, (from, bytes)) in (0..).zip(sent) {
            state.hold(from, bytes, HeldMessage::Completed(from, number));
        }
        let told = state.held.values().map(|held| match held {
            HeldMessage::Completed(from, number) => (*from, *number),
            HeldMessage::Message(_) => unreachable!("none was held"),
        });
        assert_eq!(told.collect::<Vec<_>>(), [(Peer(2), 2), (Peer(1), 0), (Peer(1), 1), (Peer(1), 3)]);
    }

    /// Goal: drawn times change the order in which what comes of several peers is delivered, never that of one, and another seed gives another.
    #[test]
    fn drawn_times_reorder_peers_only() {
        let order_of = |seed: u64| {
            let mut state = State::of(DelayPath::Drawn(Duration::from_secs(1), SplitMix(seed)));
            (0..60).for_each(|number| {
                let from = Peer(number as u32 % 3);
                state.hold(from, 0, HeldMessage::Completed(from, number));
            });
            let told = state.held.values().map(|held| match held {
                HeldMessage::Completed(_, number) => *number,
                HeldMessage::Message(_) => unreachable!("none was held"),
            });
            told.collect::<Vec<_>>()
        };
        let (one, other) = (order_of(1), order_of(2));
        for order in [&one, &other] {
            for peer in 0..3 {
                let of_peer: Vec<u64> = order.iter().copied().filter(|number| number % 3 == peer).collect();
                assert!(of_peer.is_sorted() && of_peer.len() == 20, "{order:?}");
            }
            assert!(!order.is_sorted(), "{order:?}");
        }
        assert_ne!(one, other);
    }
}
