//! Two peers on loopback with a sink that records, for the tests of the tcp conduit alone.

#![allow(dead_code, reason = "each test file uses a part")]

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use vgas_rma::conduit::tcp::{TcpConduit, TcpLimits, TcpSpec};
use vgas_rma::conduit::{Conduit, Sent, Traffic};
use vgas_rma::error::Result;
use vgas_rma::key::JobKey;
use vgas_rma::message::{Arrived, Delivery, Destination, Direction, Message, Payload, Sink, Source};
use vgas_rma::{Layout, Peer, RegionId, RmaError};
use vgas_shm::Mapping;
use vgas_shm::cores;

/// Every wait of a test ends after this.
pub const BOUND: Duration = Duration::from_secs(20);

/// A message as it was delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub from: Peer,
    pub direction: Direction,
    pub handler: u8,
    pub arguments: Vec<u32>,
    pub payload: Vec<u8>,
}

type Handler = Box<dyn Fn(&Delivery<'_>) -> Result<(), RmaError> + Send + Sync>;

/// Records what arrives, or hands it to a closure. Has one region and one operation, of `memory` each.
pub struct Recorder {
    pub region: Arc<Mapping>,
    pub operation: Arc<Mapping>,
    pub seen: Mutex<Vec<Seen>>,
    /// Nothing of anybody is wanted any more.
    pub wants_nothing: AtomicBool,
    handler: Option<Handler>,
}

impl Recorder {
    pub fn new() -> Self {
        let memory = |name| Mapping::anonymous(name, 8 << 20).expect("shared memory");
        Self {
            region: memory("region"),
            operation: memory("operation"),
            seen: Mutex::default(),
            wants_nothing: AtomicBool::new(false),
            handler: None,
        }
    }

    pub fn with(handler: impl Fn(&Delivery<'_>) -> Result<(), RmaError> + Send + Sync + 'static) -> Self {
        Self { handler: Some(Box::new(handler)), ..Self::new() }
    }

    pub fn count(&self) -> usize {
        self.seen.lock().unwrap().len()
    }
}

// SAFETY: the range is checked; the memory outlives the conduit.
unsafe impl vgas_rma::conduit::Trusted for Recorder {}

impl Sink for Recorder {
    fn destination(&self, from: Peer, destination: Destination, bytes: usize) -> Result<*mut u8, RmaError> {
        if self.is_gone(from) {
            return Err(RmaError::Protocol { peer: Some(from), what: "nothing of it is wanted".into() });
        }
        let (memory, offset) = match destination {
            Destination::Region { region, owner, offset } => {
                if region != RegionId::SEGMENT {
                    return Err(RmaError::NoSuchRegion { owner, region });
                }
                (&self.region, offset)
            }
            Destination::Operation { id: 7, offset } => (&self.operation, offset),
            Destination::Operation { id, .. } => {
                return Err(RmaError::Protocol { peer: None, what: format!("no operation {id}") });
            }
        };
        if !memory.contains(offset, bytes as u64) {
            let (owner, region) = (Peer(0), RegionId::SEGMENT);
            let limit = memory.bytes() as u64;
            return Err(RmaError::OutOfRange { owner, region, offset, bytes: bytes as u64, limit });
        }
        Ok(memory.base().wrapping_add(offset as usize))
    }

    fn is_gone(&self, _: Peer) -> bool {
        self.wants_nothing.load(Ordering::SeqCst)
    }

    fn deliver(&self, delivery: Delivery<'_>) -> Result<(), RmaError> {
        if let Some(handler) = &self.handler {
            return handler(&delivery);
        }
        let payload = match delivery.payload {
            Arrived::Short => vec![],
            Arrived::Medium(bytes) => bytes.to_vec(),
            Arrived::Long(at, bytes) => {
                let memory = [&self.region, &self.operation]
                    .into_iter()
                    .find(|m| (m.base() as usize..=m.base() as usize + m.bytes()).contains(&(at as usize)))
                    .expect("a long payload lies where the sink said");
                let mut payload = vec![0; bytes];
                memory.read(at as usize - memory.base() as usize, &mut payload);
                payload
            }
        };
        self.seen.lock().unwrap().push(Seen {
            from: delivery.from,
            direction: delivery.direction,
            handler: delivery.handler,
            arguments: delivery.arguments.to_vec(),
            payload,
        });
        Ok(())
    }
}

/// Conduits of the first `count` ranks of a job of `count` nodes.
pub fn conduits(count: u32, limits: impl Fn(&mut TcpLimits)) -> Vec<TcpConduit> {
    let layout = Layout::blocks(count, count);
    let key = JobKey::generate().unwrap();
    let listeners: Vec<_> = (0..layout.peers()).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let addresses: Vec<_> = listeners.iter().map(|l| l.local_addr().unwrap()).collect();
    let mut bounds = TcpLimits::for_peers(layout.peers());
    limits(&mut bounds);
    listeners
        .into_iter()
        .take(count as usize)
        .enumerate()
        .map(|(me, listener)| {
            let (layout, key, addresses) = (layout.clone(), key.clone(), addresses.clone());
            let spec = TcpSpec { layout, me: Peer(me as u32), key, listener, addresses };
            TcpConduit::with_limits(spec, bounds.clone()).unwrap()
        })
        .collect()
}

/// Two connected peers.
pub fn pair() -> (TcpConduit, TcpConduit) {
    let mut both = conduits(2, |_| {});
    let b = both.pop().unwrap();
    (both.pop().unwrap(), b)
}

pub fn short(direction: Direction, handler: u8, arguments: &[u32]) -> Message<'_> {
    Message { direction, handler, arguments, payload: Payload::Short }
}

pub fn medium<'a>(handler: u8, arguments: &'a [u32], payload: &'a [u8]) -> Message<'a> {
    let payload = Payload::Medium(Source::of(payload));
    Message { direction: Direction::Request, handler, arguments, payload }
}

pub fn long<'a>(handler: u8, payload: &'a [u8], destination: Destination) -> Message<'a> {
    let payload = Payload::Long(Source::of(payload), destination);
    Message { direction: Direction::Request, handler, arguments: &[], payload }
}

pub fn segment(offset: u64) -> Destination {
    Destination::Region { region: RegionId::SEGMENT, owner: Peer(1), offset }
}

/// Sends, polling for room; panics after [`BOUND`].
pub fn send(conduit: &TcpConduit, sink: &dyn Sink, to: Peer, message: &Message<'_>) {
    let (start, mut naps) = (Instant::now(), 0);
    while conduit.try_send(to, message).expect("sending") == Sent::Busy {
        conduit.poll(sink, Traffic::Everything).expect("polling for room");
        assert!(start.elapsed() < BOUND, "no room for a message to {to}");
        cores::nap(&mut naps);
    }
}

/// Polls until the condition holds; panics after [`BOUND`].
pub fn poll_until(conduit: &TcpConduit, sink: &dyn Sink, what: &str, done: impl Fn() -> bool) {
    let (start, mut naps) = (Instant::now(), 0);
    while !done() {
        if conduit.poll(sink, Traffic::Everything).unwrap_or_else(|e| panic!("waiting for {what}: {e}")) == 0
        {
            cores::nap(&mut naps);
        }
        assert!(start.elapsed() < BOUND, "waited too long for {what}");
    }
}

/// Polls until there is an error, and returns it.
pub fn poll_error(conduit: &TcpConduit, sink: &dyn Sink) -> RmaError {
    let (start, mut naps) = (Instant::now(), 0);
    loop {
        match conduit.poll(sink, Traffic::Everything) {
            Err(error) => return error,
            Ok(_) => cores::nap(&mut naps),
        }
        assert!(start.elapsed() < BOUND, "no error came");
    }
}

/// Sleeps on the wait descriptor as an endpoint does; false when there was nothing within the bound.
pub fn is_woken(conduit: &TcpConduit, bound: Duration) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    if !conduit.arm() {
        return true;
    }
    let timeout = Timespec { tv_sec: bound.as_secs() as i64, tv_nsec: i64::from(bound.subsec_nanos()) };
    let mut fds = [PollFd::from_borrowed_fd(conduit.wait_descriptor(), PollFlags::IN)];
    let ready = poll(&mut fds, Some(&timeout)).expect("poll");
    conduit.disarm();
    ready > 0
}
