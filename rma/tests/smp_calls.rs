//! System calls of active messages through shared memory: none while both sides are awake, one to wake who sleeps.
//!
//! The kernel counts the reads and writes of a process, and a doorbell is rung and silenced by these. One test, so that
//! nothing else in this process is counted. Skipped, and said so, where the kernel does not count.

use std::sync::Arc;
use vgas_rma::conduit::smp;
use vgas_rma::domain::{Domain, DomainSpec};
use vgas_rma::endpoint::{Endpoint, EndpointSpec, Token};
use vgas_rma::message::Payload;
use vgas_rma::{Layout, Peer};

const PING: u8 = 128;
const PONG: u8 = 129;

/// Reads and writes so far.
fn calls() -> Option<[u64; 2]> {
    let counts = std::fs::read_to_string("/proc/self/io").ok()?;
    let count = |name: &str| counts.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    Some([count("syscr:")?, count("syscw:")?])
}

/// Reads and writes of `work`, less those of counting.
fn calls_of(work: impl FnOnce()) -> Option<[u64; 2]> {
    let [before, between] = [calls()?, calls()?];
    work();
    let after = calls()?;
    Some([0, 1].map(|kind| after[kind] - between[kind] - (between[kind] - before[kind])))
}

fn endpoints() -> [Arc<Endpoint>; 2] {
    let members: Vec<Peer> = (0..2).map(Peer).collect();
    let ring_bytes = smp::RING_BYTES_DEFAULT;
    let control_bytes = smp::control_bytes(members.len(), ring_bytes);
    let spec = DomainSpec { control_bytes, members, ring_bytes, regions: Vec::new(), common_bytes: 0 };
    let domain = Arc::new(Domain::create(spec).expect("a shared-memory domain"));
    [0, 1].map(|rank| {
        let layout = Layout::blocks(2, 1);
        let spec = EndpointSpec { layout, me: Peer(rank), domain: Some(domain.clone()), network: None };
        let endpoint = Endpoint::new(spec).expect("an endpoint");
        let ping = |token: &Token<'_>, words: &[u32], _: vgas_rma::message::Arrived<'_>| {
            token.check(token.reply(PONG, words, Payload::Short));
        };
        endpoint.register(PING, ping).expect("a free index");
        endpoint.register(PONG, |_, _, _| {}).expect("a free index");
        endpoint.open();
        endpoint
    })
}

#[test]
fn messages_between_ranks_that_are_awake_need_no_system_call() {
    const ROUNDS: u64 = 10_000;
    let [a, b] = endpoints();
    let payload = [7; 100];
    let round = |round: u64| {
        // By the hot line, and through the rings.
        let payload = if round.is_multiple_of(2) {
            Payload::Short
        } else {
            Payload::Medium(vgas_rma::message::Source::of(&payload))
        };
        a.request(Peer(1), PING, &[1, 2], payload).expect("room");
        while b.poll().expect("no failure") == 0 {}
        while a.poll().expect("no failure") == 0 {}
    };
    let Some(awake) = calls_of(|| (0..ROUNDS).for_each(round)) else {
        println!("skipped: this kernel does not count system calls (/proc/self/io)");
        return;
    };
    assert_eq!(awake, [0, 0], "reads and writes of {ROUNDS} round trips");
    // The count does see a doorbell: rung once, silenced once, however many messages come meanwhile.
    let asleep = calls_of(|| {
        assert!(b.arm());
        for _ in 0..3 {
            a.request(Peer(1), PING, &[1, 2], Payload::Short).expect("room");
        }
        b.disarm();
        while b.poll().expect("no failure") == 0 {}
    });
    assert_eq!(asleep, Some([1, 1]), "reads and writes of waking a sleeper");
}
