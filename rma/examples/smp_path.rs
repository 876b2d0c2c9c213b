//! The instructions of a message, and of a put and a get of a rank of the same node: both ends in one thread, so that nothing
//! but the code is measured.
//!
//! ```text
//! cargo build --release -p vgas-rma --example smp_path
//! valgrind --tool=callgrind target/release/examples/smp_path      (or alone, for times)
//! ```

#![allow(missing_docs)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use vgas_rma::conduit::smp;
use vgas_rma::domain::{Domain, DomainSpec, RegionSpec};
use vgas_rma::endpoint::{Endpoint, EndpointSpec, Token};
use vgas_rma::message::Payload;
use vgas_rma::{Layout, Peer, Rank, RegionId};

const ROUNDS: u64 = 100_000;

const SEGMENT_BYTES: u64 = 1 << 20;

#[inline(never)]
fn round_trips(a: &Endpoint, b: &Endpoint) {
    for _ in 0..ROUNDS {
        a.request(Peer(1), 128, &[1, 2], Payload::Short).unwrap();
        b.poll().unwrap();
        a.poll().unwrap();
    }
}

#[inline(never)]
fn floods(a: &Endpoint, b: &Endpoint) {
    for _ in 0..ROUNDS / 32 {
        for _ in 0..32 {
            a.request(Peer(1), 130, &[1, 2], Payload::Short).unwrap();
        }
        b.poll().unwrap();
    }
}

#[inline(never)]
fn requests(a: &Endpoint) {
    for _ in 0..32 {
        a.request(Peer(1), 130, &[1, 2], Payload::Short).unwrap();
    }
}

#[inline(never)]
fn empty_polls(a: &Endpoint) {
    for _ in 0..ROUNDS {
        a.poll().unwrap();
    }
}

#[inline(never)]
fn puts(a: &Endpoint) {
    for round in 0..ROUNDS {
        a.put(Rank(1), round * 8, &round.to_le_bytes()).unwrap();
    }
}

#[inline(never)]
fn gets(a: &Endpoint) {
    let mut word = [0; 8];
    for round in 0..ROUNDS {
        a.get(Rank(1), round * 8, &mut word).unwrap();
        assert_eq!(word, round.to_le_bytes());
    }
}

fn main() {
    let members: Vec<Peer> = (0..2).map(Peer).collect();
    let ring_bytes = smp::RING_BYTES_DEFAULT;
    let control_bytes = smp::control_bytes(members.len(), ring_bytes);
    let region = |&owner: &Peer| RegionSpec { owner, region: RegionId::SEGMENT, bytes: SEGMENT_BYTES };
    let regions = members.iter().map(region).collect();
    let spec = DomainSpec { control_bytes, members, ring_bytes, regions, common_bytes: 0 };
    let domain = Arc::new(Domain::create(spec).unwrap());
    let layout = Layout::blocks(2, 1);
    let seen = Arc::new(AtomicU64::new(0));
    let endpoints: Vec<_> = (0..2)
        .map(|rank| {
            let (layout, domain) = (layout.clone(), Some(domain.clone()));
            let spec = EndpointSpec { layout, me: Peer(rank), domain, network: None };
            let endpoint = Endpoint::new(spec).unwrap();
            endpoint
                .register(128, |token: &Token<'_>, arguments: &[u32], _| {
                    token.check(token.reply(129, arguments, Payload::Short));
                })
                .unwrap();
            for index in [129, 130] {
                let seen = seen.clone();
                endpoint
                    .register(index, move |_, _, _| {
                        seen.store(seen.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                    })
                    .unwrap();
            }
            endpoint.open();
            endpoint
        })
        .collect();
    let (a, b) = (&endpoints[0], &endpoints[1]);
    std::thread::scope(|scope| {
        for endpoint in [a, b] {
            scope.spawn(|| endpoint.attach_segment(SEGMENT_BYTES).unwrap());
        }
    });
    for _ in 0..3 {
        let start = Instant::now();
        round_trips(a, b);
        let trips = start.elapsed().as_nanos() as f64 / ROUNDS as f64;
        let start = Instant::now();
        floods(a, b);
        let flood = start.elapsed().as_nanos() as f64 / ROUNDS as f64;
        requests(a);
        b.poll().unwrap();
        let start = Instant::now();
        empty_polls(a);
        let empty = start.elapsed().as_nanos() as f64 / ROUNDS as f64;
        let start = Instant::now();
        puts(a);
        gets(a);
        let copies = start.elapsed().as_nanos() as f64 / (2 * ROUNDS) as f64;
        println!("put or get {copies:.1} ns");
        println!("round trip {trips:.1} ns, flood {flood:.1} ns, poll in vain {empty:.1} ns");
    }
    println!("{} handlers ran", seen.load(Ordering::Relaxed));
}
