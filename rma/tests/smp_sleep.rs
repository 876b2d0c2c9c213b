//! Nobody goes to sleep on something that it has to do itself.

use std::sync::Arc;
use std::sync::Mutex;
use vgas_rma::RmaError;
use vgas_rma::address::{Peer, RegionId};
use vgas_rma::conduit::smp::{self, SmpConduit};
use vgas_rma::conduit::{Conduit, Sent, Traffic};
use vgas_rma::domain::{Domain, DomainSpec};
use vgas_rma::message::{Delivery, Destination, Direction, Message, Payload, Sink, Source};
use vgas_shm::Span;

/// Counts what is delivered.
#[derive(Default)]
struct Count(Mutex<usize>);

impl Count {
    fn so_far(&self) -> usize {
        *self.0.lock().unwrap()
    }
}

// SAFETY: it has no memory.
unsafe impl vgas_rma::conduit::Trusted for Count {}

impl Sink for Count {
    fn destination(&self, _: Peer, _: Destination, _: usize) -> Result<*mut u8, RmaError> {
        Err(RmaError::Usage("only mediums are sent".into()))
    }

    fn region(&self, _: Peer, _: Peer, _: RegionId) -> Option<Span> {
        None
    }

    fn completed(&self, _: Peer, _: u64) -> Result<(), RmaError> {
        Ok(())
    }

    fn deliver(&self, _: Delivery<'_>) -> Result<(), RmaError> {
        *self.0.lock().unwrap() += 1;
        Ok(())
    }
}

/// Goal: a rank whose replies wait for room does not go to sleep when the other side has made room before it could be rung:
/// that side may wait for these replies, or for the requests behind them to be taken, and nobody else would wake either.
#[test]
fn room_for_waiting_replies_keeps_a_rank_awake() {
    const REPLIES: usize = 4_000;
    let members: Vec<Peer> = (0..2).map(Peer).collect();
    let ring_bytes = smp::RING_BYTES_MIN;
    let control_bytes = smp::control_bytes(members.len(), ring_bytes);
    let spec = DomainSpec { control_bytes, members, ring_bytes, regions: Vec::new(), common_bytes: 0 };
    let domain = Arc::new(Domain::create(spec).unwrap());
    let [a, b] = [0, 1].map(|member| SmpConduit::new(domain.clone(), Peer(member)).unwrap());
    let payload = [7; 200];
    let reply = Message {
        direction: Direction::Reply,
        handler: 1,
        arguments: &[],
        payload: Payload::Medium(Source::of(&payload)),
    };
    for _ in 0..REPLIES {
        assert_eq!(a.try_send(Peer(1), &reply).unwrap(), Sent::Accepted);
    }
    let (at_a, at_b) = (Count::default(), Count::default());
    let mut rounds = 0;
    while at_b.so_far() < REPLIES {
        // All that is in the ring, so that its room is given back while nobody sleeps.
        while b.poll(&at_b, Traffic::Everything).unwrap() > 0 {}
        assert_eq!(a.poll(&at_a, Traffic::RepliesOnly).unwrap(), 0);
        rounds += 1;
        if at_b.so_far() < REPLIES {
            while b.poll(&at_b, Traffic::Everything).unwrap() > 0 {}
            let asleep = a.arm();
            assert!(!asleep || at_b.so_far() == REPLIES, "{} of {REPLIES} have come", at_b.so_far());
            if asleep {
                a.disarm();
            }
        }
    }
    assert!(rounds > 2, "the ring took all of them: nothing was tested");
}
