//! The ibv conduit alone: how many verbs and completions each operation costs, exactly, and where its bytes go.

mod ibv_support;

use ibv_support::*;
use rustix::net::{AddressFamily, RecvFlags, SocketType, ipproto};
use std::sync::atomic::Ordering;
use std::time::Instant;
use vgas_rma::conduit::ibv::{IbvCounts, IbvOptions};
use vgas_rma::conduit::{Conduit, Part, Place, Sent, Traffic};
use vgas_rma::message::{Destination, Direction, Message, NOTE_HANDLER, Payload, Source};
use vgas_rma::{Peer, RegionId};
use vgas_shm::{Atomic, Mapping};

/// So many bytes for an operation's memory from `at` on, which the sink names.
fn part(operation: u64, at: u64, bytes: usize) -> Part {
    Part { operation, at, bytes, here: std::ptr::null_mut() }
}

/// Goal: the costs that the module's page promises. The first operation of each kind connects and asks for access; what
/// is counted comes after.
#[test]
fn verbs_are_counted() {
    if skipped("verbs_are_counted") {
        return;
    }
    const ROUND_TRIPS: usize = 160;
    let options = IbvOptions { signal_interval: 16, ..patient() };
    let both = pair(&options);
    let [a, b] = &both;
    let (to, all) = (Peer(1), [a, b]);
    let page = vec![7; 65_536];
    let long = Message {
        direction: Direction::Request,
        handler: 1,
        arguments: &[1, 2, 3, 4, 5, 6, 7],
        payload: Payload::Long(
            Source::of(&page),
            Destination::Region { region: RegionId::SEGMENT, owner: to, offset: 4096 },
        ),
    };
    let delivered = || a.1.delivered.load(Ordering::SeqCst);
    let send_long = |wanted: usize| {
        poll_until(&all, "room for a page", || a.0.try_send(to, &long).unwrap() == Sent::Accepted);
        poll_until(&all, "the answer to a page", || delivered() == wanted);
    };
    send_long(1);
    let settle = || {
        let quiet = || {
            let counts = [a.0.counts(), b.0.counts()];
            counts.iter().all(|counts| counts.signalled == counts.completions)
        };
        poll_until(&all, "every completion", quiet);
    };
    settle();

    // A page: one WRITE and one SEND, with one completion for both; the answer is one SEND.
    let before = a.0.counts();
    send_long(2);
    settle();
    let page_costs = a.0.counts() - before;
    assert_eq!((page_costs.writes, page_costs.sends, page_costs.reads), (1, 1, 0));
    assert_eq!((page_costs.signalled, page_costs.completions, page_costs.receives), (1, 1, 1));
    assert_eq!(page_costs.copied, 1, "it lies in private memory");
    let mut arrived = vec![0; page.len()];
    b.1.region.read(4096, &mut arrived);
    assert!(arrived == page, "the page is in the region");

    // A round trip of active messages: one SEND each way; one completion in sixteen on each side.
    let before = [a.0.counts(), b.0.counts()];
    for round in 0..ROUND_TRIPS {
        let request = short(Direction::Request, &[1, 2, 3]);
        poll_until(&all, "room", || a.0.try_send(to, &request).unwrap() == Sent::Accepted);
        poll_until(&all, "an answer", || delivered() == 3 + round);
    }
    settle();
    for (conduit, before) in [&a.0, &b.0].into_iter().zip(before) {
        let costs = conduit.counts() - before;
        assert_eq!((costs.sends, costs.writes, costs.reads), (ROUND_TRIPS as u64, 0, 0));
        assert_eq!(costs.completions, ROUND_TRIPS as u64 / 16);
        assert_eq!(costs.receives, ROUND_TRIPS as u64);
    }

    // A put is one WRITE, a get one READ, and the owner does nothing at all: it is not polled.
    let place = Place { owner: to, region: RegionId::SEGMENT, offset: 100 };
    let before = [a.0.counts(), b.0.counts()];
    assert_eq!(a.0.start_put(to, place, Source::of(&page[..8]), false, 1).unwrap(), Sent::Accepted);
    poll_until(&[a], "the put", || a.1.completed.load(Ordering::SeqCst) == 1);
    assert_eq!(a.0.start_get(to, place, part(2, 16, 8)).unwrap(), Sent::Accepted);
    poll_until(&[a], "the get", || a.1.completed.load(Ordering::SeqCst) == 2);
    let mut got = [0; 8];
    a.1.operation.read(16, &mut got);
    assert_eq!(got, [7; 8]);
    let costs = a.0.counts() - before[0];
    assert_eq!((costs.writes, costs.reads, costs.sends, costs.completions), (1, 1, 0, 2));

    // So is an atomic update one request, where the device offers them.
    if a.0.capabilities().atomics {
        let before = a.0.counts();
        let place = Place { offset: 4104, ..place };
        assert_eq!(a.0.start_atomic(to, place, Atomic::FetchAdd(1), 3).unwrap(), Sent::Accepted);
        poll_until(&[a], "the atomic update", || a.1.completed.load(Ordering::SeqCst) == 3);
        a.1.operation.read(0, &mut got);
        assert_eq!(got, [7; 8], "what the word was");
        b.1.region.read(4104, &mut got);
        assert_eq!(got, [8, 7, 7, 7, 7, 7, 7, 7], "what it is");
        let costs = a.0.counts() - before;
        assert_eq!((costs.atomics, costs.completions), (1, 1));
        assert_eq!((costs.writes, costs.reads, costs.sends), (0, 0, 0));
    } else {
        println!("skipped: the device has no atomic updates");
    }
    assert_eq!(b.0.counts() - before[1], IbvCounts::default());
}

/// Goal: what a get miss, and a put miss with the page, cost on the wire. The node that misses asks by one SEND; the home
/// answers by one WRITE with immediate data, out of its frame into the other's. Two messages between two agents are what
/// `vgas bench messages` counts for a miss that the home answers.
#[test]
fn a_page_that_is_asked_for() {
    if skipped("a_page_that_is_asked_for") {
        return;
    }
    const MISSES: u64 = 32;
    let both = pair(&patient());
    let [a, b] = &both;
    let frame = b.1.region.span(0, 65_536);
    b.1.region.write(0, &vec![5; frame.bytes()]);
    let destination = Destination::Region { region: RegionId::BLOCKS, owner: Peer(0), offset: 65_536 };
    let page = Message {
        direction: Direction::Request,
        handler: NOTE_HANDLER,
        arguments: &[1, 200],
        payload: Payload::Long(Source::of_span(&frame), destination),
    };
    let miss = |misses: usize| {
        let ask = short(Direction::Reply, &[9; 6]);
        poll_until(&[a, b], "room to ask", || a.0.try_send(Peer(1), &ask).unwrap() == Sent::Accepted);
        poll_until(&[a, b], "the request", || b.1.delivered.load(Ordering::SeqCst) == misses);
        let mut loan = None;
        poll_until(&[a, b], "room to answer", || {
            loan = b.0.try_send_lent(Peer(0), &page, &frame).unwrap();
            loan.is_some()
        });
        poll_until(&[a, b], "the page", || a.1.delivered.load(Ordering::SeqCst) == misses);
        poll_until(&[a, b], "the return of the frame", || b.0.is_returned(Peer(0), loan.unwrap()));
    };
    miss(1);
    let before = [a.0.counts(), b.0.counts()];
    for misses in 2..=1 + MISSES as usize {
        miss(misses);
    }
    let asking = a.0.counts() - before[0];
    // Credits for what was taken in go back with other messages, or alone for sixteen at once.
    assert_eq!((asking.sends, asking.writes, asking.reads), (MISSES, 0, 0));
    assert_eq!(asking.receives, MISSES);
    let home = b.0.counts() - before[1];
    assert_eq!((home.sends, home.writes, home.reads), (0, MISSES, 0));
    assert_eq!((home.signalled, home.completions, home.receives), (MISSES, MISSES, MISSES));
    assert_eq!(home.copied, 0, "the page goes out of the home's own frame, which nobody else writes into");
    assert_eq!(*a.1.arguments.lock().unwrap(), [1, 200]);
    let mut arrived = vec![0; frame.bytes()];
    a.1.region.read(65_536, &mut arrived);
    assert!(arrived.iter().all(|&byte| byte == 5), "the page is in the frame");
}

/// Goal: a connection that opens counts as a message, so that a thread that sleeps because there was none is told by the
/// thread whose poll has opened it.
#[test]
fn the_opening_of_a_connection_is_told() {
    if skipped("the_opening_of_a_connection_is_told") {
        return;
    }
    let both = pair(&patient());
    let [a, b] = &both;
    let request = short(Direction::Request, &[]);
    assert_eq!(a.0.try_send(Peer(1), &request).unwrap(), Sent::Busy);
    let mut told = 0;
    let start = Instant::now();
    while told == 0 {
        told = a.0.poll(&a.1, Traffic::Everything).unwrap();
        b.0.poll(&b.1, Traffic::Everything).unwrap();
        assert!(start.elapsed() < BOUND, "nobody was told");
    }
    assert_eq!((told, a.1.delivered.load(Ordering::SeqCst)), (1, 0));
    assert_eq!(a.0.try_send(Peer(1), &request).unwrap(), Sent::Accepted);
}

/// Goal: packets about regions wait for staging memory, as payloads do, where nothing is sent inline. Method: a peer's first
/// region is written until the memory is full of what is in flight, then the second is asked for.
#[test]
fn full_staging_memory_is_no_error() {
    if skipped("full_staging_memory_is_no_error") {
        return;
    }
    let both = pair(&IbvOptions { inline: 0, ..patient() });
    let [a, b] = &both;
    let to = Peer(1);
    let put = |region, bytes: &[u8]| {
        a.0.start_put(to, Place { owner: to, region, offset: 0 }, Source::of(bytes), false, 1).unwrap()
    };
    poll_until(&[a, b], "access", || put(RegionId::SEGMENT, &[1; 8]) == Sent::Accepted);
    poll_until(&[a, b], "the first put", || a.1.completed.load(Ordering::SeqCst) == 1);
    let part = vec![2; 1 << 20];
    let mut in_flight = 0;
    // The last hole is as small as anything that is taken.
    for bytes in [1 << 20, 1 << 17, 1 << 14, 8] {
        while put(RegionId::SEGMENT, &part[..bytes]) == Sent::Accepted {
            in_flight += 1;
        }
    }
    assert_eq!(put(RegionId::BLOCKS, &[3; 8]), Sent::Busy);
    poll_until(&[a, b], "access to the other", || put(RegionId::BLOCKS, &[3; 8]) == Sent::Accepted);
    poll_until(&[a, b], "all puts", || a.1.completed.load(Ordering::SeqCst) == in_flight + 2);
}

/// Goal: bytes of the own segment pass without a copy, out of it if they stay as they are and into it always; others do not.
/// Seen by the count of copies, by the bytes, and by a memory of the operation that nobody has written.
#[test]
fn the_own_segment_is_not_copied() {
    if skipped("the_own_segment_is_not_copied") {
        return;
    }
    const BYTES: usize = 40_000;
    let both = pair(&patient());
    let [a, b] = &both;
    let own = Mapping::anonymous("own", 1 << 20).unwrap();
    a.0.offer(RegionId::SEGMENT, own.span(0, 1 << 19));
    let place = |offset| Place { owner: Peer(1), region: RegionId::SEGMENT, offset };
    let mut ended = 0;
    let mut copies = |what: &str, start: &dyn Fn() -> Sent| {
        let before = a.0.counts().copied;
        poll_until(&[a, b], what, || start() == Sent::Accepted);
        ended += 1;
        poll_until(&[a], what, || a.1.completed.load(Ordering::SeqCst) == ended);
        a.0.counts().copied - before
    };
    let put = |from: usize, to: u64, stays| {
        own.write(from, &[from as u8; BYTES]);
        let source = own.span(from, BYTES);
        a.0.start_put(Peer(1), place(to), Source::of_span(&source), stays, 1).unwrap()
    };
    let there = |at| {
        let mut bytes = [0; BYTES];
        b.1.region.read(at, &mut bytes);
        bytes
    };
    assert_eq!(copies("a put that stays", &|| put(101, 3, true)), 0);
    assert_eq!(there(3), [101; BYTES]);
    assert_eq!(copies("a put that does not", &|| put(102, 100_003, false)), 1);
    assert_eq!(there(100_003), [102; BYTES]);
    let end = (1 << 19) - BYTES + 1;
    assert_eq!(copies("a put from behind the segment", &|| put(end, 3, true)), 1);
    assert_eq!(there(3), [end as u8; BYTES]);

    b.1.region.write(200_000, &[9; BYTES]);
    let get = |here: *mut u8| {
        let part = Part { operation: 2, at: 0, bytes: BYTES, here };
        a.0.start_get(Peer(1), place(200_000), part).unwrap()
    };
    let mut got = [0; BYTES];
    assert_eq!(copies("a get to the segment", &|| get(own.base().wrapping_add(300_001))), 0);
    own.read(300_001, &mut got);
    assert_eq!(got, [9; BYTES]);
    a.1.operation.read(0, &mut got);
    assert_eq!(got, [0; BYTES], "no other memory was asked for");
    assert_eq!(copies("a get to other memory", &|| get(a.1.operation.base())), 1);
    a.1.operation.read(0, &mut got);
    assert_eq!(got, [9; BYTES]);
}

/// A lent block goes out of the region that it lies in, without a copy, and is given back when it has left. Nobody ever asks
/// for access to it.
#[test]
fn lent_pages_return() {
    if skipped("lent_pages_return") {
        return;
    }
    let both = pair(&patient());
    let [a, b] = &both;
    let to = Peer(1);
    a.1.region.write(0, &[9; 16_384]);
    let source = a.1.region.span(0, 16_384);
    let destination = Destination::Region { region: RegionId::BLOCKS, owner: to, offset: 0 };
    let message = Message {
        direction: Direction::Request,
        handler: 1,
        arguments: &[],
        payload: Payload::Long(Source::of_span(&source), destination),
    };
    for round in 1..=100 {
        let mut loan = None;
        poll_until(&[a, b], "room", || {
            loan = a.0.try_send_lent(to, &message, &source).unwrap();
            loan.is_some()
        });
        poll_until(&[a, b], "the return of the page", || a.0.is_returned(to, loan.unwrap()));
        poll_until(&[a, b], "the message", || b.1.delivered.load(Ordering::SeqCst) == round);
    }
    assert_eq!(a.0.counts().copied, 0);
    let mut arrived = vec![0; 16_384];
    b.1.region.read(0, &mut arrived);
    assert_eq!(arrived, [9; 16_384]);
}

/// Goal: switches can tell this traffic from others: every packet has the class that the options say, however the connection
/// was made. Seen on the wire, by a socket that is given a copy of each packet of UDP, the carrier of RoCE v2.
#[test]
fn packets_have_the_traffic_class() {
    if skipped("packets_have_the_traffic_class") {
        return;
    }
    if std::env::var_os("RXE_GUEST").is_none() {
        return println!("skipped: packets_have_the_traffic_class: looks at all packets of this machine");
    }
    const CLASS: u8 = 104;
    for network in [None, Some("10.9.0.0/24".parse().unwrap())] {
        let wire = rustix::net::socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::UDP)).unwrap();
        let options = IbvOptions { traffic_class: Some(CLASS), network, ..patient() };
        let both = pair(&options);
        let [a, b] = &both;
        let request = short(Direction::Request, &[]);
        poll_until(&[a, b], "room", || a.0.try_send(Peer(1), &request).unwrap() == Sent::Accepted);
        poll_until(&[a, b], "an answer", || a.1.delivered.load(Ordering::SeqCst) == 1);
        let (mut seen, mut packet) = (0, [0; 256]);
        while let Ok((bytes, _)) = rustix::net::recv(&wire, &mut packet[..], RecvFlags::DONTWAIT) {
            // Headers of IP, UDP and RoCE, whose destination is a queue pair, the first two being librdmacm's.
            let [.., port_high, port_low] = packet[..24] else { unreachable!() };
            let to = u32::from_be_bytes([0, packet[33], packet[34], packet[35]]);
            if bytes >= 40 && u16::from_be_bytes([port_high, port_low]) == 4791 && to > 1 {
                seen += 1;
                assert_eq!(packet[1], CLASS, "network {network:?}, queue pair {to}");
            }
        }
        assert!(seen >= 2, "{seen} packets with network {network:?}");
    }
}
