//! Peers that know the job's key and use access that they were not given. The device of the victim refuses;
//! nothing is read or written, and the connection is gone. Skipped, visibly, if there is no device.

use super::{IbvConduit, IbvOptions, available, devices};
use crate::address::{Layout, Peer, RegionId};
use crate::conduit::oneside::Access;
use crate::conduit::tcp::TcpSpec;
use crate::conduit::{Conduit, Part, Place, Sent, Traffic};
use crate::error::{Result, RmaError};
use crate::key::JobKey;
use crate::message::{Delivery, Destination, Sink, Source};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use vgas_shm::{Atomic, Mapping, Span};

pub(super) const BOUND: Duration = Duration::from_secs(40);
const REGION_BYTES: u64 = 1 << 16;

/// An attacker's change to the access that it was given.
type Forgery = fn(Access) -> Access;

/// The first half of `memory` is the region; the bytes behind it are used by nothing else.
pub(super) struct Victim {
    memory: Arc<Mapping>,
    completed: AtomicUsize,
}

impl Victim {
    pub(super) fn new(fill: u8) -> Self {
        let memory = Mapping::anonymous("victim", 2 * REGION_BYTES).unwrap();
        memory.write(0, &vec![fill; 2 * REGION_BYTES as usize]);
        Self { memory, completed: AtomicUsize::new(0) }
    }

    fn is_all(&self, fill: u8) -> bool {
        let mut bytes = vec![0; 2 * REGION_BYTES as usize];
        self.memory.read(0, &mut bytes);
        bytes.iter().all(|&byte| byte == fill)
    }
}

impl Sink for Victim {
    fn destination(&self, _: Peer, destination: Destination, _: usize) -> Result<*mut u8, RmaError> {
        match destination {
            Destination::Operation { .. } => Ok(self.memory.base()),
            Destination::Region { .. } => panic!("no long message was sent"),
        }
    }

    fn region(&self, _: Peer, owner: Peer, region: RegionId) -> Option<Span> {
        (owner == Peer(1) && region == RegionId::SEGMENT).then(|| self.memory.span(0, REGION_BYTES as usize))
    }

    fn completed(&self, _: Peer, _: u64) -> Result<(), RmaError> {
        self.completed.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn deliver(&self, _: Delivery<'_>) -> Result<(), RmaError> {
        panic!("nothing was sent")
    }
}

fn pair() -> [IbvConduit; 2] {
    pair_of([IbvOptions::default(), IbvOptions::default()])
}

/// Conduits of two nodes, with their options.
pub(super) fn pair_of(options: [IbvOptions; 2]) -> [IbvConduit; 2] {
    let layout = Layout::blocks(2, 2);
    let key = JobKey::generate().unwrap();
    let listeners: Vec<_> = (0..4).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let addresses: Vec<_> = listeners.iter().map(|l| l.local_addr().unwrap()).collect();
    let mut listeners = listeners.into_iter();
    let mut options = options.into_iter();
    [0, 1].map(|me| {
        let options = options.next().unwrap();
        let (listener, addresses) = (listeners.next().unwrap(), addresses.clone());
        let spec = TcpSpec { layout: layout.clone(), me: Peer(me), key: key.clone(), listener, addresses };
        IbvConduit::new(spec, options).unwrap()
    })
}

/// A word of the operation's memory.
pub(super) fn part(operation: u64) -> Part {
    Part { operation, at: 0, bytes: 8, here: std::ptr::null_mut() }
}

/// Polls until a fair get has been done, so that later events are about something else.
pub(super) fn fair_get(name: &str, [a, b]: [&IbvConduit; 2], [attacker, victim]: [&Victim; 2]) {
    let place = Place { owner: Peer(1), region: RegionId::SEGMENT, offset: 0 };
    let begun = Instant::now();
    let before = attacker.completed.load(Ordering::SeqCst);
    while a.start_get(Peer(1), place, part(0)).unwrap() == Sent::Busy {
        a.poll(attacker, Traffic::Everything).unwrap();
        b.poll(victim, Traffic::Everything).unwrap();
        assert!(begun.elapsed() < BOUND, "{name}: no access was given");
    }
    while attacker.completed.load(Ordering::SeqCst) == before {
        a.poll(attacker, Traffic::Everything).unwrap();
        assert!(begun.elapsed() < BOUND, "{name}: the fair get did not end");
    }
    attacker.memory.write(0, &[1; 8]);
}

/// Goal: a rank never updates words by the card of a peer that does it by its processor: such updates would
/// not be atomic with each other.
#[test]
fn devices_that_differ_in_atomic_updates_are_told() {
    if available().is_err() || !devices().iter().any(|device| device.active) {
        return println!("skipped: no RDMA device with an active port");
    }
    let [a, b] = pair();
    if !a.capabilities().atomics {
        return println!("skipped: the device has no atomic updates");
    }
    let (here, there) = (Victim::new(1), Victim::new(2));
    fair_get("devices that differ", [&a, &b], [&here, &there]);
    let place = Place { owner: Peer(1), region: RegionId::SEGMENT, offset: 8 };
    a.connection(Peer(1))
        .unwrap()
        .forge((Peer(1), RegionId::SEGMENT), |good| Access { atomics: false, ..good });
    let refused = a.start_atomic(Peer(1), place, Atomic::FetchAdd(1), 1).unwrap_err();
    assert!(matches!(refused, RmaError::Refused(_)), "{refused}");
    assert!(refused.to_string().contains("ibv.atomics=off"), "{refused}");
    assert!(there.is_all(2));
}

#[test]
fn access_that_was_not_given_is_refused_by_the_device() {
    if let Err(reason) = available() {
        return println!("skipped: {reason}");
    }
    if !devices().iter().any(|device| device.active) {
        return println!("skipped: no RDMA device with an active port");
    }
    let cases: [(&str, Option<Forgery>); 5] = [
        ("a wrong key", Some(|good| Access { key: good.key ^ 0x55, ..good })),
        ("behind the end", Some(|good| Access { address: good.address + good.bytes - 4, ..good })),
        ("before the beginning", Some(|good| Access { address: good.address - 4096, ..good })),
        ("far away", Some(|good| Access { address: 4096, ..good })),
        ("a region that was given up", None),
    ];
    for (name, forge) in cases {
        for write in [true, false] {
            let [a, b] = pair();
            let (attacker, victim) = (Victim::new(1), Victim::new(2));
            let place = Place { owner: Peer(1), region: RegionId::SEGMENT, offset: 0 };
            let start = |conduit: &IbvConduit| {
                if write {
                    conduit.start_put(Peer(1), place, Source::of(&[9; 8]), false, 1)
                } else {
                    conduit.start_get(Peer(1), place, part(1))
                }
            };
            // Once as it should be, so that the refusal below is about the access.
            fair_get(name, [&a, &b], [&attacker, &victim]);
            let begun = Instant::now();

            match forge {
                Some(forge) => a.connection(Peer(1)).unwrap().forge((Peer(1), RegionId::SEGMENT), forge),
                None => b.forget(Peer(1), RegionId::SEGMENT),
            }
            assert_eq!(start(&a).unwrap(), Sent::Accepted);
            let error = loop {
                match a.poll(&attacker, Traffic::Everything) {
                    Err(error) => break error,
                    Ok(_) => assert!(begun.elapsed() < BOUND, "{name}: nobody refused"),
                }
            };
            assert!(matches!(error, RmaError::PeerLost { peer: Peer(1), .. }), "{name}: {error}");
            let during = if write { "writing its memory" } else { "reading its memory" };
            assert!(error.to_string().contains(during), "{name}: {error}");
            assert!(victim.is_all(2), "{name}: something was written");
            assert!(attacker.is_all(1), "{name}: something was read");
            assert_eq!(attacker.completed.load(Ordering::SeqCst), 1, "{name}: a completion without access");
        }
    }
}
