//! Misbehaving peers and failing endpoints: typed errors, nothing written, no thread left waiting.

use super::{Case, Fabric, Job, SEGMENT_BYTES};
use crate::address::{Peer, RegionId};
use crate::endpoint::Endpoint;
use crate::error::{Result, RmaError};
use crate::message::{Arrived, Destination, Payload, Source};
use std::sync::atomic::{AtomicBool, Ordering};
use vgas_shm::cores;

/// The name of a case that some fabrics leave out.
pub(super) const HOSTILE_DESTINATIONS: &str =
    "payloads that belong nowhere are refused, and nothing is written";

pub(super) const CASES: &[Case] = &[
    (HOSTILE_DESTINATIONS, hostile_destinations),
    ("a message for nobody is the fault of its sender", unknown_handler),
    ("requests about parts that are none are the fault of their sender", hostile_requests),
    ("a failed endpoint ends every wait", failure_ends_waits),
];

const LONG: u8 = 128;

/// Sends `hostile` from rank 0; expects that rank 0 is refused at once, or that `victim` names it.
fn expect_refusal(
    fabric: &dyn Fabric,
    victim: impl Fn(&Endpoint) -> Peer,
    hostile: impl Fn(&Endpoint, Peer) -> Result<()> + Sync,
) {
    let job = Job::new(fabric, 2, |endpoint| {
        endpoint
            .register(LONG, |token: &crate::endpoint::Token<'_>, _: &[u32], _: Arrived<'_>| {
                token.refuse("the hostile message was delivered");
            })
            .unwrap();
    });
    let victim = victim(&job.endpoints[0]);
    let accused = AtomicBool::new(false);
    job.run_until_done(|endpoint, rank| {
        endpoint.attach_segment(4096).unwrap();
        let met = endpoint.barrier();
        let victim = &job.endpoints[victim.0 as usize];
        if rank.0 == 0 {
            met.unwrap();
            match hostile(endpoint, victim.me()) {
                Err(RmaError::OutOfRange { .. } | RmaError::NoSuchRegion { .. } | RmaError::Usage(_)) => {
                    accused.store(true, Ordering::SeqCst);
                    job.endpoints.iter().for_each(|endpoint| endpoint.notify_local());
                }
                Err(other) => panic!("{other:?}"),
                Ok(()) => {
                    // Until the victim has seen it: it fails, or (it closed the connection) this endpoint does. No wait,
                    // because nothing tells this endpoint what happens to that one; the case has its time limit.
                    let mut naps = 0;
                    while victim.check_failure().is_ok() && endpoint.poll().is_ok() {
                        cores::nap(&mut naps);
                    }
                    accused.store(true, Ordering::SeqCst);
                    job.endpoints.iter().for_each(|endpoint| endpoint.notify_local());
                    if let Err(error) = victim.check_failure() {
                        let names_us = matches!(&error, RmaError::Protocol { peer: Some(Peer(0)), what }
                            if !what.contains("was delivered"));
                        assert!(names_us, "the victim accuses the wrong one: {error:?}");
                    }
                }
            }
        } else {
            // An endpoint that fails stops the wait, or already the barrier when rank 0 was fast; that is what the case
            // is about.
            let _ = endpoint.wait_until(None, || accused.load(Ordering::SeqCst));
        }
    });
    // Every segment is as it was: zeros.
    for endpoint in &job.endpoints[..2] {
        let Some(address) = endpoint.segment_info()[endpoint.me().0 as usize].address else { continue };
        let domain = endpoint.domain().expect("a domain, as there is an address");
        let mapping = domain.map(endpoint.me(), RegionId::SEGMENT).unwrap();
        assert_eq!(mapping.base(), address);
        let mut bytes = vec![1; SEGMENT_BYTES as usize];
        mapping.read(0, &mut bytes);
        assert!(
            bytes.iter().all(|&byte| byte == 0),
            "something was written into the segment of {endpoint:?}"
        );
    }
}

fn hostile_destinations(fabric: &dyn Fabric) {
    let one = Peer(1);
    let region = |region, owner, offset| Destination::Region { region, owner, offset };
    let destinations = [
        region(RegionId::SEGMENT, one, 4090),
        region(RegionId::SEGMENT, one, SEGMENT_BYTES),
        region(RegionId::SEGMENT, one, u64::MAX - 3),
        region(RegionId::SEGMENT, Peer(77), 0),
        region(RegionId::PRIVATE, one, 0),
        region(RegionId(9), one, 0),
        region(RegionId::FURTHER, one, 0),
        region(RegionId(RegionId::FURTHER.0 + RegionId::FURTHER_MAX), one, 0),
        Destination::Operation { id: 12345, offset: 0 },
    ];
    for destination in destinations {
        for to_agent in [false, true] {
            let victim = |endpoint: &Endpoint| {
                let layout = endpoint.layout();
                if to_agent { layout.agent_of(layout.node_of_peer(one)) } else { one }
            };
            expect_refusal(fabric, victim, |endpoint, victim| {
                endpoint.request(victim, LONG, &[], Payload::Long(Source::of(&[0xFF; 16]), destination))
            });
        }
    }
}

fn unknown_handler(fabric: &dyn Fabric) {
    expect_refusal(
        fabric,
        |_| Peer(1),
        |endpoint, victim| endpoint.request(victim, 255, &[], Payload::Short),
    );
}

/// Requests of a get, a memset, a question and an end to the agent of rank 1's node, about a part that it
/// does not have.
fn hostile_requests(fabric: &dyn Fabric) {
    let agent = |endpoint: &Endpoint| endpoint.layout().agent_of(endpoint.layout().node_of_peer(Peer(1)));
    let (further, large) = (u32::from(RegionId::FURTHER.0), 1 << 16 | u32::from(RegionId::FURTHER.0));
    let requests: [(u8, &[u32]); 8] = [
        (2, &[0, 0, 1, further, 0, 0, 8, 0, 0]),
        (2, &[0, 0, 1, 1, 0, 0, 8, 0, 0]),
        (2, &[0, 0, 1, large, 0, 0, 8, 0, 0]),
        (2, &[0, 0, 77, 0, 0, 0, 8, 0, 0]),
        (2, &[0, 0, 1, 0, 4090, 0, 8, 0, 0]),
        (5, &[0, 0, 1, further, 0, 0, 8, 1]),
        (13, &[0, 0, 1, large]),
        (14, &[0, 0, 0]),
    ];
    for (handler, arguments) in requests {
        expect_refusal(fabric, agent, |endpoint, victim| {
            endpoint.request(victim, handler, arguments, Payload::Short)
        });
    }
}

fn failure_ends_waits(fabric: &dyn Fabric) {
    let job = Job::new(fabric, 2, |_| ());
    job.run_until_done(|endpoint, rank| {
        endpoint.attach_segment(4096).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let waited = endpoint.wait_until(None, || false);
                    assert!(matches!(waited, Err(RmaError::JobAborted(_))), "{waited:?}");
                });
            }
            // Most of the threads are asleep or parked when it fails; whenever it is, all must end.
            let (begin, mut naps) = (std::time::Instant::now(), 0);
            while begin.elapsed() < std::time::Duration::from_millis(2 * u64::from(rank.0)) {
                cores::nap(&mut naps);
            }
            endpoint.fail(RmaError::JobAborted("on purpose".into()));
            endpoint.fail(RmaError::Usage("a later error does not count".into()));
        });
        assert!(matches!(endpoint.poll(), Err(RmaError::JobAborted(_))));
        assert!(endpoint.request(Peer(1 - rank.0), LONG, &[], Payload::Short).is_err());
        assert!(endpoint.barrier().is_err());
    });
}
