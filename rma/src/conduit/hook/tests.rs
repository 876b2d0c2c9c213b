//! Hooks around the simulated network, and around a conduit that has every ability there is.

use super::delay::Holding;
use super::*;
use crate::address::Peer;
use crate::conduit::sim::{SimNetwork, SimOptions};
use crate::error::RmaError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::sync::Mutex;
use std::time::Instant;

/// Notes what is delivered: sender and first argument.
#[derive(Default)]
struct Notes(Mutex<Vec<(Peer, u32)>>);

impl Notes {
    fn numbers(&self) -> Vec<u32> {
        self.0.lock().unwrap().iter().map(|note| note.1).collect()
    }
}

impl Sink for Notes {
    fn destination(&self, from: Peer, _: Destination, _: usize) -> Result<*mut u8> {
        Err(RmaError::Protocol { peer: Some(from), what: "no destination".into() })
    }

    fn deliver(&self, delivery: Delivery<'_>) -> Result<()> {
        if delivery.handler == 255 {
            return Err(RmaError::Usage("no such handler".into()));
        }
        self.0.lock().unwrap().push((delivery.from, delivery.arguments[0]));
        Ok(())
    }
}

fn message(handler: u8, arguments: &[u32]) -> Message<'_> {
    Message { direction: Direction::Request, handler, arguments, payload: Payload::Short }
}

fn send(conduit: &dyn Conduit, to: Peer, number: u32) -> Result<Sent> {
    conduit.try_send(to, &message(200, &[number]))
}

/// Sends to peer 1, which has room.
fn pass(conduit: &dyn Conduit, message: &Message<'_>) {
    assert_eq!(conduit.try_send(Peer(1), message).unwrap(), Sent::Accepted);
}

/// A network whose messages come with the next poll.
fn network() -> (Arc<dyn Conduit>, Arc<dyn Conduit>) {
    let options = SimOptions { delay_steps: 0..=0, steps_by_polling: true, ..SimOptions::default() };
    let network = SimNetwork::new(1, 2, options).unwrap();
    (network.conduit(Peer(0)), network.conduit(Peer(1)))
}

/// Returns true if a descriptor becomes readable within a time.
fn is_readable(descriptor: BorrowedFd<'_>, within: Duration) -> bool {
    let timeout = Timespec { tv_sec: within.as_secs() as i64, tv_nsec: i64::from(within.subsec_nanos()) };
    poll(&mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)], Some(&timeout)).unwrap() > 0
}

#[test]
fn messages_and_bytes_are_counted_on_both_sides() {
    let (zero, one) = network();
    let counts = [Arc::new(Count::new(2)), Arc::new(Count::new(2))];
    let zero = Hooked::new(zero, counts[0].clone()).unwrap();
    let one = Hooked::new(one, counts[1].clone()).unwrap();
    let payload = Payload::Medium(Source::of(&[7; 100]));
    for _ in 0..3 {
        let message = Message { payload, ..message(200, &[1]) };
        assert_eq!(zero.try_send(Peer(1), &message).unwrap(), Sent::Accepted);
    }
    assert_eq!(one.poll(&Notes::default(), Traffic::Everything).unwrap(), 3);
    let sent = PeerCounts { messages_sent: 3, bytes_sent: 300, ..PeerCounts::default() };
    let received = PeerCounts { messages_received: 3, bytes_received: 300, ..PeerCounts::default() };
    assert_eq!((counts[0].of(Peer(1)), counts[0].of(Peer(0))), (sent, PeerCounts::default()));
    assert_eq!(counts[1].of(Peer(0)), received);
    assert_eq!(counts[1].of(Peer(77)), PeerCounts::default());
}

/// Goal: a dropped peer is reported once by polls, always by sends, and its messages are not delivered; a
/// thread that sleeps meanwhile is woken.
#[test]
fn a_peer_is_dropped_when_told() {
    let (zero, one) = network();
    let loss = Arc::new(Loss::new().unwrap());
    let zero = Hooked::new(zero, loss.clone()).unwrap();
    let notes = Notes::default();
    assert_eq!(send(&zero, Peer(1), 1).unwrap(), Sent::Accepted);
    assert!(zero.arm());
    assert!(!is_readable(zero.wait_descriptor(), Duration::ZERO));
    assert_eq!(send(&*one, Peer(0), 2).unwrap(), Sent::Accepted);
    zero.disarm();
    loss.lose(Peer(1));
    loss.lose(Peer(1));
    assert!(is_readable(zero.wait_descriptor(), Duration::ZERO) && !zero.arm());
    let lost = |result: &Result<_>| matches!(result, Err(RmaError::PeerLost { peer: Peer(1), .. }));
    assert!(lost(&zero.poll(&notes, Traffic::Everything)));
    assert_eq!(zero.poll(&notes, Traffic::Everything).unwrap(), 1, "taken from the network, and dropped");
    assert!(notes.numbers().is_empty());
    for _ in 0..2 {
        assert!(lost(&send(&zero, Peer(1), 3).map(|_| 0)));
    }
    assert!(zero.arm() && !is_readable(zero.wait_descriptor(), Duration::ZERO));
    zero.disarm();
}

/// Goal: sends refused on purpose are tried again: no thread sleeps before the next poll.
#[test]
fn sends_are_refused_for_a_while() {
    let (zero, one) = network();
    let loss = Arc::new(Loss::new().unwrap());
    let zero = Hooked::new(zero, loss.clone()).unwrap();
    let notes = Notes::default();
    loss.refuse(Peer(1), 2);
    for _ in 0..2 {
        assert_eq!(send(&zero, Peer(1), 1).unwrap(), Sent::Busy);
        assert!(!zero.arm());
        assert_eq!(zero.poll(&notes, Traffic::Everything).unwrap(), 1, "there may be room");
    }
    assert_eq!(send(&zero, Peer(1), 1).unwrap(), Sent::Accepted);
    assert!(zero.arm());
    zero.disarm();
    one.poll(&notes, Traffic::Everything).unwrap();
    assert_eq!(notes.numbers(), [1]);
}

/// Goal: a send that is refused while another thread sleeps already wakes that thread, which has to poll first; once told, the
/// descriptor is quiet.
#[test]
fn a_send_that_is_refused_wakes_who_sleeps() {
    let (zero, _one) = network();
    let loss = Arc::new(Loss::new().unwrap());
    let zero = Hooked::new(zero, loss.clone()).unwrap();
    let notes = Notes::default();
    loss.refuse(Peer(1), 2);
    assert!(zero.arm());
    for _ in 0..2 {
        assert_eq!(send(&zero, Peer(1), 1).unwrap(), Sent::Busy);
    }
    assert!(is_readable(zero.wait_descriptor(), Duration::ZERO), "nobody wakes who sleeps");
    zero.disarm();
    assert_eq!(zero.poll(&notes, Traffic::Everything).unwrap(), 1);
    assert!(zero.arm() && !is_readable(zero.wait_descriptor(), Duration::ZERO));
    zero.disarm();
}

/// Goal: nothing is delivered before the link's time, everything afterwards and in order; the descriptor wakes a sleeper
/// then, which polls nothing meanwhile.
#[test]
fn messages_come_after_their_time_and_wake_who_sleeps() {
    let (zero, one) = network();
    let latency = Duration::from_millis(20);
    let one = Delay::new(one, Link { latency, bytes_per_second: None }).unwrap();
    let notes = Notes::default();
    let begin = Instant::now();
    for number in 0..200 {
        if send(&*zero, Peer(1), number).unwrap() == Sent::Busy {
            one.poll(&notes, Traffic::Everything).unwrap();
            assert_eq!(send(&*zero, Peer(1), number).unwrap(), Sent::Accepted);
        }
    }
    while notes.numbers().len() < 200 {
        assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", notes.numbers());
        one.poll(&notes, Traffic::Everything).unwrap();
        assert!(notes.numbers().is_empty() || begin.elapsed() >= latency);
        if one.arm() {
            let wakes = notes.numbers().len() == 200 || is_readable(one.wait_descriptor(), 100 * latency);
            one.disarm();
            assert!(wakes, "nothing has woken a sleeper");
        }
    }
    assert_eq!(notes.numbers(), (0..200).collect::<Vec<_>>());
    assert!(one.arm() && !is_readable(one.wait_descriptor(), Duration::ZERO), "nothing is held any more");
    one.disarm();
}

/// Goal: a message behind many bytes waits for them, as long as the link takes.
#[test]
fn bytes_take_their_time() {
    let link = Link { latency: Duration::ZERO, bytes_per_second: Some(1 << 20) };
    assert_eq!(link.transfer(1 << 19), Duration::from_millis(500));
    let (zero, one) = network();
    let one = Delay::new(one, Link { latency: Duration::ZERO, bytes_per_second: Some(100_000) }).unwrap();
    let notes = Notes::default();
    let begin = Instant::now();
    for number in 0..2 {
        let payload = Payload::Medium(Source::of(&[7; 1000]));
        let arguments = [number];
        let message = Message { payload, ..message(200, &arguments) };
        assert_eq!(zero.try_send(Peer(1), &message).unwrap(), Sent::Accepted);
    }
    while notes.numbers().len() < 2 {
        one.poll(&notes, Traffic::Everything).unwrap();
        assert!(begin.elapsed() < Duration::from_secs(20));
    }
    assert!(begin.elapsed() >= Duration::from_millis(20), "{:?}", begin.elapsed());
}

/// Goal: replies pass requests that may not be delivered now; of messages that are withheld, nothing of the same peer passes.
#[test]
fn what_may_not_be_delivered_stays_in_order() {
    let (zero, one) = network();
    let one = Delay::new(one, Link { latency: Duration::ZERO, bytes_per_second: None }).unwrap();
    let notes = Notes::default();
    // Taken in, and not due to be delivered below 100.
    pass(&*zero, &message(200, &[0]));
    one.inner.poll(&Holding { sink: &notes, delay: &one }, Traffic::Everything).unwrap();
    for (handler, number) in [(50, 1), (200, 2)] {
        pass(&*zero, &message(handler, &[number]));
    }
    pass(&*zero, &Message { direction: Direction::Reply, ..message(200, &[3]) });
    one.inner.poll(&Holding { sink: &notes, delay: &one }, Traffic::Everything).unwrap();
    assert_eq!(one.poll(&notes, Traffic::Below(100)).unwrap(), 0);
    one.poll(&notes, Traffic::RepliesOnly).unwrap();
    assert_eq!(notes.numbers(), [3]);
    one.poll(&notes, Traffic::Everything).unwrap();
    assert_eq!(notes.numbers(), [3, 0, 1, 2]);
}

/// Goal: a peer whose message is refused when it is delivered late is named, and nothing more of it is delivered.
#[test]
fn a_peer_that_breaks_the_protocol_is_cut_off() {
    let (zero, one) = network();
    let one = Delay::new(one, Link { latency: Duration::ZERO, bytes_per_second: None }).unwrap();
    let notes = Notes::default();
    pass(&*zero, &message(255, &[0]));
    pass(&*zero, &message(200, &[1]));
    let begin = Instant::now();
    let error = loop {
        if let Err(error) = one.poll(&notes, Traffic::Everything) {
            break error;
        }
        assert!(begin.elapsed() < Duration::from_secs(20));
    };
    assert!(matches!(error, RmaError::Protocol { peer: Some(Peer(0)), .. }), "{error:?}");
    one.poll(&notes, Traffic::Everything).unwrap();
    assert!(notes.numbers().is_empty());
    assert!(matches!(send(&one, Peer(0), 2), Err(RmaError::PeerLost { peer: Peer(0), .. })));
}

/// Goal: chance never refuses a reply, for which a handler cannot wait.
#[test]
fn replies_are_not_lost_by_chance() {
    let (zero, _one) = network();
    let zero = Hooked::new(zero, Arc::new(Loss::of_share(1_000_000, 1).unwrap())).unwrap();
    assert_eq!(send(&zero, Peer(1), 1).unwrap(), Sent::Busy);
    let reply = Message { direction: Direction::Reply, ..message(200, &[2]) };
    assert_eq!(zero.try_send(Peer(1), &reply).unwrap(), Sent::Accepted);
}

/// A conduit that can do everything, and notes what it is asked.
struct Able {
    asked: Mutex<Vec<&'static str>>,
    capabilities: Capabilities,
    descriptor: OwnedFd,
}

impl Able {
    fn new() -> Arc<Self> {
        let flags = rustix::event::EventfdFlags::CLOEXEC;
        Arc::new(Self {
            asked: Mutex::default(),
            capabilities: Capabilities {
                medium_bytes_max: 1,
                long_bytes_max: 1,
                ordered: true,
                long_to_operation: true,
                load_store: true,
                one_sided: true,
                atomics: true,
                polls_through_kernel: false,
            },
            descriptor: rustix::event::eventfd(0, flags).unwrap(),
        })
    }

    fn note(&self, what: &'static str) {
        self.asked.lock().unwrap().push(what);
    }
}

impl Conduit for Able {
    fn name(&self) -> &'static str {
        "able"
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn reaches(&self, _: Peer) -> bool {
        true
    }

    fn try_send(&self, _: Peer, _: &Message<'_>) -> Result<Sent> {
        self.note("send");
        Ok(Sent::Accepted)
    }

    fn try_send_lent(&self, _: Peer, _: &Message<'_>, _: &Span) -> Result<Option<Loan>> {
        self.note("lent");
        Ok(Some(Loan(9)))
    }

    fn is_returned(&self, _: Peer, loan: Loan) -> bool {
        self.note("returned");
        loan == Loan(9)
    }

    fn offer(&self, _: RegionId, _: Span) {
        self.note("offer");
    }

    fn forget(&self, _: Peer, _: RegionId) {
        self.note("forget");
    }

    fn start_put(&self, _: Peer, _: Place, _: Source<'_>, _: bool, _: u64) -> Result<Sent> {
        self.note("put");
        Ok(Sent::Accepted)
    }

    fn start_get(&self, _: Peer, _: Place, _: Part) -> Result<Sent> {
        self.note("get");
        Ok(Sent::Accepted)
    }

    fn start_atomic(&self, _: Peer, _: Place, _: Atomic, _: u64) -> Result<Sent> {
        self.note("atomic");
        Ok(Sent::Accepted)
    }

    fn poll(&self, _: &dyn Sink, _: Traffic) -> Result<usize> {
        self.note("poll");
        Ok(0)
    }

    fn flush(&self) -> Result<()> {
        self.note("flush");
        Ok(())
    }

    fn has_unsent(&self) -> bool {
        self.note("unsent");
        true
    }

    fn wait_descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    fn arm(&self) -> bool {
        self.note("arm");
        true
    }

    fn disarm(&self) {
        self.note("disarm");
    }

    fn map(&self, _: Peer, _: RegionId) -> Result<Option<Arc<Mapping>>> {
        self.note("map");
        Ok(Some(Mapping::anonymous("vgas-hook-test", 4096)?))
    }

    fn close(&self, _: Duration) {
        self.note("close");
    }
}

/// Goal: no ability of the inner conduit is lost by wrapping it, however often.
#[test]
fn every_ability_is_passed_on() {
    let able = Able::new();
    let counts = Arc::new(Count::new(2));
    let link = Link { latency: Duration::ZERO, bytes_per_second: None };
    let inner: Arc<dyn Conduit> = Arc::new(Delay::new(able.clone(), link).unwrap());
    let inner: Arc<dyn Conduit> = Arc::new(Hooked::new(inner, Arc::new(Loss::new().unwrap())).unwrap());
    let inner: Arc<dyn Conduit> = Arc::new(Hooked::new(inner, Arc::new(Trace::new(Peer(0)))).unwrap());
    let outer = Hooked::new(inner, counts.clone()).unwrap();
    assert_eq!(
        (outer.name(), outer.capabilities(), outer.reaches(Peer(1))),
        ("able", &able.capabilities, true)
    );
    let (to, sent) = (Peer(1), Sent::Accepted);
    let place = Place { owner: to, region: RegionId::SEGMENT, offset: 0 };
    let mut word = 0u64;
    let part = Part { operation: 1, at: 0, bytes: 8, here: (&raw mut word).cast() };
    let memory = Mapping::anonymous("vgas-hook-test", 4096).unwrap();
    assert_eq!(outer.try_send(to, &message(200, &[])).unwrap(), sent);
    assert_eq!(outer.start_put(to, place, Source::of(&[1; 5]), false, 1).unwrap(), sent);
    assert_eq!(outer.start_get(to, place, part).unwrap(), sent);
    assert_eq!(outer.start_atomic(to, place, Atomic::FetchAdd(1), 1).unwrap(), sent);
    let lent = memory.span(0, 8);
    let loan = outer.try_send_lent(to, &message(200, &[]), &lent).unwrap().unwrap();
    assert!(loan == Loan(9) && outer.is_returned(to, loan));
    outer.offer(RegionId::SEGMENT, memory.span(0, 8));
    outer.forget(to, RegionId::FURTHER);
    assert!(outer.map(to, RegionId::SEGMENT).unwrap().is_some());
    outer.poll(&Notes::default(), Traffic::Everything).unwrap();
    outer.flush().unwrap();
    assert!(outer.has_unsent() && outer.arm());
    outer.disarm();
    outer.close(Duration::ZERO);
    let asked = able.asked.lock().unwrap().clone();
    let expected = [
        "send", "put", "get", "atomic", "lent", "returned", "offer", "forget", "map", "poll", "flush",
        "unsent", "arm", "disarm", "close",
    ];
    assert_eq!(asked, expected);
    let counted = PeerCounts {
        messages_sent: 2,
        puts: 1,
        bytes_put: 5,
        gets: 1,
        bytes_got: 8,
        atomics: 1,
        ..PeerCounts::default()
    };
    assert_eq!(counts.of(to), counted);
}
