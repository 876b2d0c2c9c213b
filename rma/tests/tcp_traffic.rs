//! The tcp conduit alone, between two or more peers of this process: what the promises of the `Conduit` trait mean on
//! a stream of bytes that breaks anywhere, with credits that run out and sockets that are full.

mod tcp_support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tcp_support::*;
use vgas_rma::conduit::tcp::TcpConduit;
use vgas_rma::conduit::wire::frame::{LONG_BYTES_MAX, MEDIUM_BYTES_MAX};
use vgas_rma::conduit::{Conduit, Loan, Sent, Traffic};
use vgas_rma::message::{Arrived, Destination, Direction, Message, Payload, Source};
use vgas_rma::{Peer, RmaError};
use vgas_shm::Mapping;

fn pattern(bytes: usize, seed: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i.wrapping_mul(31) ^ (i >> 8) ^ seed) as u8).collect()
}

#[test]
fn every_kind_of_message_arrives_whole_and_in_order() {
    let (a, b) = pair();
    let (sink_a, sink_b) = (Recorder::new(), Recorder::new());
    let arguments: Vec<u32> = (0..16).map(|i| u32::MAX - i).collect();
    let sizes = [0, 1, 7, 4096, 65_535, MEDIUM_BYTES_MAX];
    let long_sizes = [0, 1, 8191, 8192, 8193, 1 << 20, LONG_BYTES_MAX];
    let all = 17 + sizes.len() + 2 * long_sizes.len() + 1;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for count in 0..=16 {
                send(&a, &sink_a, Peer(1), &short(Direction::Request, count as u8, &arguments[..count]));
            }
            for (i, &bytes) in sizes.iter().enumerate() {
                send(&a, &sink_a, Peer(1), &medium(100 + i as u8, &arguments[..i], &pattern(bytes, i)));
            }
            for (i, &bytes) in long_sizes.iter().enumerate() {
                let payload = pattern(bytes, i);
                send(&a, &sink_a, Peer(1), &long(200, &payload, segment(3)));
                let operation = Destination::Operation { id: 7, offset: 5 };
                send(&a, &sink_a, Peer(1), &long(201, &payload, operation));
            }
            send(&a, &sink_a, Peer(1), &short(Direction::Request, 255, &[]));
            // What the socket did not take goes out with the sender's polls.
            poll_until(&a, &sink_a, "room for the rest", || sink_b.count() == all);
        });
        poll_until(&b, &sink_b, "all messages", || sink_b.count() == all);
    });
    let seen = sink_b.seen.into_inner().unwrap();
    let mut next = seen.iter();
    for count in 0..=16 {
        let message = next.next().unwrap();
        assert_eq!((message.handler, &message.arguments[..]), (count as u8, &arguments[..count]));
        assert_eq!((message.from, message.direction), (Peer(0), Direction::Request));
    }
    for (i, &bytes) in sizes.iter().enumerate() {
        let message = next.next().unwrap();
        assert_eq!((message.handler, &message.arguments[..]), (100 + i as u8, &arguments[..i]));
        assert!(message.payload == pattern(bytes, i), "medium payload of {bytes} bytes");
    }
    for (i, &bytes) in long_sizes.iter().enumerate() {
        for handler in [200, 201] {
            let message = next.next().unwrap();
            assert_eq!(message.handler, handler);
            assert!(message.payload == pattern(bytes, i), "long payload of {bytes} bytes");
        }
    }
    assert_eq!(next.next().unwrap().handler, 255);
}

/// Without the rule that the lower peer's connection wins, some of these rounds would lose messages, deliver them in
/// a wrong order, or end with no connection at all.
/// Goal: a large payload that comes after one like it begins with a cache line, and its handler may write there: also if it polls, and
/// whatever comes next is as it was sent.
#[test]
fn large_payloads_are_lent_to_their_handlers() {
    const LINE_BYTES: usize = 64;
    let (a, b) = pair();
    let b = Arc::new(b);
    let (lent, handled) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counts = (lent.clone(), handled.clone());
    let conduit = Arc::downgrade(&b);
    let sink_b = Recorder::with(move |delivery| {
        let Arrived::Medium(bytes) = delivery.payload else { return Ok(()) };
        assert!(*bytes == pattern(bytes.len(), delivery.arguments.len()));
        if let Some(conduit) = conduit.upgrade() {
            conduit.poll(&Recorder::new(), Traffic::RepliesOnly)?;
        }
        if let Some(address) = bytes.in_place() {
            let is_first_of_line = address.addr().is_multiple_of(LINE_BYTES);
            counts.0.fetch_add(usize::from(is_first_of_line), Ordering::SeqCst);
            // SAFETY: the handler may write there until it returns, and looks at the bytes in no other way.
            unsafe { address.write_bytes(0xff, bytes.len()) };
        }
        counts.1.fetch_add(1, Ordering::SeqCst);
        Ok(())
    });
    let sink_a = Recorder::new();
    let mut sent = 0;
    for bytes in [4096, 16 << 10, MEDIUM_BYTES_MAX] {
        for arguments in [0, 1, 2, 3] {
            let payload = pattern(bytes, arguments);
            let before = lent.load(Ordering::SeqCst);
            for _ in 0..3 {
                sent += 1;
                std::thread::scope(|scope| {
                    // A large one passes the socket in pieces.
                    let sending = scope.spawn(|| {
                        send(&a, &sink_a, Peer(1), &medium(1, &[7; 3][..arguments], &payload));
                        poll_until(&a, &sink_a, "room", || handled.load(Ordering::SeqCst) == sent);
                    });
                    poll_until(&b, &sink_b, "a message", || handled.load(Ordering::SeqCst) == sent);
                    sending.join().unwrap();
                });
            }
            assert!(lent.load(Ordering::SeqCst) >= before + 2, "{bytes} bytes, {arguments} arguments");
        }
    }
}

#[test]
fn both_sides_may_open_at_the_same_time() {
    for round in 0..40 {
        let (a, b) = pair();
        let start = std::sync::Barrier::new(2);
        let run = |conduit: &dyn Fn() -> (usize, Vec<u32>)| {
            start.wait();
            conduit()
        };
        const COUNT: u32 = 300;
        let side = |me: &TcpConduit, to: Peer| {
            let sink = Recorder::new();
            for i in 0..COUNT {
                send(me, &sink, to, &short(Direction::Request, 1, &[i]));
            }
            poll_until(me, &sink, "the other side's messages", || sink.count() == COUNT as usize);
            let seen = sink.seen.into_inner().unwrap();
            (seen.len(), seen.iter().map(|s| s.arguments[0]).collect())
        };
        std::thread::scope(|scope| {
            let left = scope.spawn(|| run(&|| side(&a, Peer(1))));
            let right = scope.spawn(|| run(&|| side(&b, Peer(0))));
            for result in [left.join().unwrap(), right.join().unwrap()] {
                assert_eq!(result.0, COUNT as usize, "round {round}");
                assert!(result.1.iter().copied().eq(0..COUNT), "round {round}: order");
            }
        });
    }
}

/// Goal: memory stays bounded when the target does not poll, and everything arrives once it does. Without credits and
/// the limit of the queue this sender would never be told to wait.
#[test]
fn a_target_that_does_not_poll_makes_the_sender_wait() {
    let (a, b) = pair();
    let (sink_a, sink_b) = (Recorder::new(), Recorder::new());
    send(&a, &sink_a, Peer(1), &short(Direction::Request, 0, &[]));
    for (handler, bytes) in [(1, 0), (2, MEDIUM_BYTES_MAX), (3, 1 << 20)] {
        let payload = pattern(bytes, 0);
        let message = match handler {
            1 => short(Direction::Request, 1, &[]),
            2 => medium(2, &[], &payload),
            _ => long(3, &payload, segment(0)),
        };
        let before = sink_b.count();
        let start = Instant::now();
        let mut sent = 1; // the first one, or nothing
        while a.try_send(Peer(1), &message).unwrap() == Sent::Accepted {
            sent += 1;
            assert!(start.elapsed() < BOUND && sent <= 257, "{sent} messages of {bytes} bytes were taken");
        }
        let already = usize::from(before > 0);
        poll_until(&b, &sink_b, "what was sent", || {
            a.flush().unwrap();
            sink_b.count() >= before + sent - already
        });
        poll_until(&a, &sink_a, "the credits", || a.try_send(Peer(1), &message).unwrap() == Sent::Accepted);
        poll_until(&b, &sink_b, "the last one", || {
            a.flush().unwrap();
            sink_b.count() > before + sent - already
        });
    }
}

/// Goal: of a payload that has come in part when nobody wants it any more, no further byte is written: who waited for it may have freed the
/// memory.
#[test]
fn what_nobody_waits_for_is_not_written() {
    let (a, b) = pair();
    let (sink_a, sink_b) = (Recorder::new(), Recorder::new());
    send(&a, &sink_a, Peer(1), &short(Direction::Request, 1, &[]));
    poll_until(&b, &sink_b, "the connection", || sink_b.count() == 1);
    // More than sockets take: what is there ends within one of them.
    let mut sent = 0;
    while a.try_send(Peer(1), &long(2, &vec![sent; LONG_BYTES_MAX], segment(0))).unwrap() == Sent::Accepted {
        sent += 1;
    }
    while b.poll(&sink_b, Traffic::Everything).unwrap() > 0 {}
    let came = sink_b.count();
    assert!(came < 1 + usize::from(sent), "all of it went into the socket at once");
    sink_b.wants_nothing.store(true, Ordering::SeqCst);
    let written = || {
        let mut bytes = vec![0; LONG_BYTES_MAX];
        sink_b.region.read(0, &mut bytes);
        bytes
    };
    let before = written();
    a.flush().unwrap();
    assert!(matches!(poll_error(&b, &sink_b), RmaError::Protocol { peer: Some(Peer(0)), .. }));
    assert!(written() == before && sink_b.count() == came);
}

/// Replies must find room even when the requester does not read them, and must not use unbounded memory: the
/// responder stops serving instead.
#[test]
fn replies_fit_and_serving_stops_when_they_pile_up() {
    let (a, b) = pair();
    let payload = pattern(1 << 20, 5);
    let answered = Arc::new(AtomicUsize::new(0));
    let b = Arc::new(b);
    let responder = Recorder::with({
        let (answered, b, payload) = (answered.clone(), b.clone(), payload.clone());
        move |_| {
            let destination = Destination::Operation { id: 7, offset: 0 };
            let payload = Payload::Long(Source::of(&payload), destination);
            let reply = Message { direction: Direction::Reply, handler: 2, arguments: &[], payload };
            assert_eq!(b.try_send(Peer(0), &reply)?, Sent::Accepted, "a reply always finds room");
            answered.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
    });
    let sink_a = Recorder::new();
    const REQUESTS: usize = 100;
    for _ in 0..REQUESTS {
        send(&a, &sink_a, Peer(1), &short(Direction::Request, 1, &[]));
    }
    // Serve until nothing moves any more: the requests are here (they are tiny), but most are left alone.
    let mut last = (0, Instant::now());
    while last.1.elapsed() < Duration::from_millis(300) {
        b.poll(&responder, Traffic::Everything).unwrap();
        let now = answered.load(Ordering::Relaxed);
        if now != last.0 {
            last = (now, Instant::now());
        }
    }
    assert!((1..REQUESTS).contains(&last.0), "{} of {REQUESTS} served while nobody reads", last.0);
    std::thread::scope(|scope| {
        scope
            .spawn(|| poll_until(&b, &responder, "serving", || answered.load(Ordering::Relaxed) == REQUESTS));
        let start = Instant::now();
        while sink_a.count() < REQUESTS {
            a.poll(&sink_a, Traffic::Everything).unwrap();
            b.flush().unwrap();
            assert!(start.elapsed() < BOUND);
        }
    });
    assert!(sink_a.seen.lock().unwrap().iter().all(|seen| seen.payload == payload));
}

/// However many peers are slow to read, what is copied for them stays bounded: another large request waits where it is, small
/// ones and those that are lent nothing go on, and room anywhere lets it go on.
#[test]
fn copies_for_many_slow_peers_are_bounded() {
    let all = conduits(3, |limits| limits.unsent_bytes_max = 0);
    let sinks: Vec<_> = (0..3).map(|_| Recorder::new()).collect();
    let payload = pattern(4 << 20, 1);
    for to in 1..3 {
        send(&all[0], &sinks[0], Peer(to), &short(Direction::Request, 1, &[]));
    }
    let large = long(2, &payload, segment(0));
    let mut sent = 0;
    while all[0].try_send(Peer(1), &large).unwrap() == Sent::Accepted {
        sent += 1;
        assert!(sent < 100, "a socket that takes {sent} times 4 MiB");
    }
    assert!(all[0].has_unsent());
    assert_eq!(all[0].try_send(Peer(2), &large).unwrap(), Sent::Busy, "so much waits for another peer");
    assert_eq!(all[0].try_send(Peer(2), &medium(3, &[], &payload[..100])).unwrap(), Sent::Accepted);
    std::thread::scope(|scope| {
        scope.spawn(|| poll_until(&all[1], &sinks[1], "large ones", || sinks[1].count() == 1 + sent));
        let start = Instant::now();
        while all[0].try_send(Peer(2), &large).unwrap() == Sent::Busy {
            all[0].poll(&sinks[0], Traffic::Everything).unwrap();
            assert!(start.elapsed() < BOUND, "there is room again");
        }
        scope.spawn(|| poll_until(&all[2], &sinks[2], "the other peer's", || sinks[2].count() == 3));
        while all[0].has_unsent() {
            all[0].flush().unwrap();
            assert!(start.elapsed() < BOUND);
        }
    });
    assert!(sinks[1].seen.lock().unwrap().iter().skip(1).all(|seen| seen.payload == payload));
    assert!(sinks[2].seen.lock().unwrap()[2].payload == payload);
}

/// A handler that waits for room polls for replies only. Requests that arrive meanwhile must be delivered later, in
/// order; replies at once, although they come behind the requests in the stream.
#[test]
fn requests_are_parked_while_only_replies_are_wanted() {
    let (a, b) = pair();
    let (sink_a, sink_b) = (Recorder::new(), Recorder::new());
    send(&a, &sink_a, Peer(1), &short(Direction::Request, 0, &[]));
    poll_until(&b, &sink_b, "the first", || sink_b.count() == 1);
    let payload = pattern(5000, 1);
    for i in 0..50 {
        send(&a, &sink_a, Peer(1), &medium(1, &[i], &payload));
        send(&a, &sink_a, Peer(1), &long(2, &payload, segment(u64::from(i) * 5000)));
    }
    send(&a, &sink_a, Peer(1), &short(Direction::Reply, 3, &[]));
    let start = Instant::now();
    while sink_b.count() == 1 {
        b.poll(&sink_b, Traffic::RepliesOnly).unwrap();
        assert!(start.elapsed() < BOUND);
    }
    assert_eq!(sink_b.seen.lock().unwrap()[1].handler, 3, "only the reply");
    assert!(!b.arm(), "parked requests are something to poll for");
    poll_until(&b, &sink_b, "the parked ones", || sink_b.count() == 102);
    let seen = sink_b.seen.lock().unwrap();
    for i in 0..50 {
        assert_eq!((seen[2 + 2 * i].handler, seen[2 + 2 * i].arguments[0]), (1, i as u32));
        assert_eq!(seen[3 + 2 * i].handler, 2);
        assert!(seen[2 + 2 * i].payload == payload && seen[3 + 2 * i].payload == payload);
    }
}

/// The same from inside a handler, whose own payload must stay as it is while the nested poll reads on.
#[test]
fn a_handler_may_poll_for_replies() {
    let (a, b) = pair();
    let b = Arc::new(b);
    let inner = Arc::new(Recorder::new());
    let order = Arc::new(std::sync::Mutex::new(Vec::new()));
    let outer = Recorder::with({
        let (b, inner, order) = (b.clone(), inner.clone(), order.clone());
        move |delivery| {
            let Arrived::Medium(bytes) = delivery.payload else { panic!("only medium requests are sent") };
            let number = delivery.arguments[0];
            order.lock().unwrap().push(number);
            if number == 0 {
                let start = Instant::now();
                while inner.count() < 1 {
                    // "Everything" means replies here, too: requests would recurse.
                    b.poll(&*inner, Traffic::Everything)?;
                    assert!(start.elapsed() < BOUND);
                }
            }
            assert!(*bytes == pattern(3000, number as usize), "payload {number} changed under its handler");
            Ok(())
        }
    });
    let sink_a = Recorder::new();
    for i in 0..100 {
        send(&a, &sink_a, Peer(1), &medium(1, &[i], &pattern(3000, i as usize)));
    }
    send(&a, &sink_a, Peer(1), &short(Direction::Reply, 9, &[]));
    poll_until(&b, &outer, "all requests", || order.lock().unwrap().len() == 100);
    assert!(order.lock().unwrap().iter().copied().eq(0..100));
    assert_eq!(inner.seen.lock().unwrap()[0].handler, 9);
}

/// Several threads of each side send and poll at once; each thread's messages keep their order, and each request gets
/// its reply.
#[test]
fn threads_share_a_conduit() {
    const THREADS: u32 = 3;
    const EACH: u32 = 3000;
    let (a, b) = pair();
    let (a, b) = (Arc::new(a), Arc::new(b));
    let next: Arc<Vec<AtomicU32>> = Arc::new((0..THREADS).map(|_| AtomicU32::new(0)).collect());
    let responder = Recorder::with({
        let (b, next) = (b.clone(), next.clone());
        move |delivery| {
            let [thread, number] = delivery.arguments.try_into().expect("two arguments");
            assert_eq!(
                next[thread as usize].fetch_add(1, Ordering::Relaxed),
                number,
                "order of thread {thread}"
            );
            assert_eq!(b.try_send(Peer(0), &short(Direction::Reply, 2, delivery.arguments))?, Sent::Accepted);
            Ok(())
        }
    });
    let replies = Arc::new(AtomicU32::new(0));
    let requester = Recorder::with({
        let replies = replies.clone();
        move |_| {
            replies.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
    });
    let all = || replies.load(Ordering::Relaxed) == THREADS * EACH;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (a, requester) = (&a, &requester);
            scope.spawn(move || {
                for number in 0..EACH {
                    send(a, requester, Peer(1), &short(Direction::Request, 1, &[thread, number]));
                }
            });
        }
        scope.spawn(|| poll_until(&b, &responder, "requests", all));
        scope.spawn(|| poll_until(&b, &responder, "requests", all));
        poll_until(&a, &requester, "replies", all);
    });
}

/// More connections than are polled one by one.
#[test]
fn many_peers_talk_to_one() {
    let all = conduits(9, |_| {});
    let sinks: Vec<_> = all.iter().map(|_| Recorder::new()).collect();
    std::thread::scope(|scope| {
        for (conduit, sink) in all.iter().zip(&sinks).skip(1) {
            scope.spawn(move || {
                for i in 0..1000 {
                    send(conduit, sink, Peer(0), &short(Direction::Request, 1, &[i]));
                }
            });
        }
        // Sometimes replies only, so that parked requests have to be found without help from epoll.
        let start = Instant::now();
        while sinks[0].count() < 8000 {
            all[0].poll(&sinks[0], Traffic::RepliesOnly).unwrap();
            all[0].poll(&sinks[0], Traffic::Everything).unwrap();
            assert!(start.elapsed() < BOUND, "{} of 8000", sinks[0].count());
        }
    });
    let seen = sinks[0].seen.lock().unwrap();
    for peer in (1..9).map(Peer) {
        assert!(
            seen.iter().filter(|s| s.from == peer).map(|s| s.arguments[0]).eq(0..1000),
            "order from {peer}"
        );
    }
}

/// Sleeping is announced by `arm`; whatever would make a poll useful must then wake the sleeper: a message, a new
/// connection, a credit, room in a socket.
#[test]
fn sleepers_are_woken() {
    let (a, b) = pair();
    let (sink_a, sink_b) = (Recorder::new(), Recorder::new());
    let payload = pattern(1 << 20, 3);
    const COUNT: usize = 60;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for i in 0..COUNT {
                let message = match i % 2 {
                    0 => long(1, &payload, segment(0)),
                    _ => short(Direction::Request, 2, &[]),
                };
                while a.try_send(Peer(1), &message).unwrap() == Sent::Busy {
                    if a.poll(&sink_a, Traffic::Everything).unwrap() == 0 {
                        assert!(is_woken(&a, BOUND), "the sender slept through");
                    }
                }
            }
            // What is still queued has to go out although nobody sends any more.
            while !a.arm() || sink_b.count() < COUNT {
                a.poll(&sink_a, Traffic::Everything).unwrap();
                is_woken(&a, Duration::from_millis(10));
            }
        });
        while sink_b.count() < COUNT {
            if b.poll(&sink_b, Traffic::Everything).unwrap() == 0 {
                assert!(is_woken(&b, BOUND), "the receiver slept through after {}", sink_b.count());
            }
        }
    });
    // And nothing keeps waking them afterwards.
    for (conduit, sink) in [(&a, &sink_a), (&b, &sink_b)] {
        let start = Instant::now();
        while is_woken(conduit, Duration::from_millis(50)) {
            conduit.poll(sink, Traffic::Everything).unwrap();
            assert!(start.elapsed() < BOUND, "something keeps waking");
        }
    }
}

/// Goal: whoever was refused does not sleep when a poll has made room, its own or another thread's.
///
/// Method: send until there is no room, let everything be taken in, then prepare to sleep.
#[test]
fn room_is_told_before_sleep() {
    let (a, b) = pair();
    let (sink_a, sink_b) = (Recorder::new(), Recorder::new());
    let payload = pattern(1 << 20, 3);
    let message = long(1, &payload, segment(0));
    // Connected, and nothing of that left to be told.
    send(&a, &sink_a, Peer(1), &short(Direction::Request, 2, &[]));
    while !a.arm() {}
    a.disarm();
    let mut sent = 1;
    while a.try_send(Peer(1), &message).unwrap() == Sent::Accepted {
        sent += 1;
    }
    let start = Instant::now();
    while sink_b.count() < sent {
        a.poll(&sink_a, Traffic::Everything).unwrap();
        b.poll(&sink_b, Traffic::Everything).unwrap();
        assert!(start.elapsed() < BOUND, "what was sent does not arrive");
    }
    a.poll(&sink_a, Traffic::Everything).unwrap();
    assert!(!a.arm(), "sleeps although there is room");
    assert!(a.arm(), "says so twice");
    a.disarm();
    assert_eq!(a.try_send(Peer(1), &message).unwrap(), Sent::Accepted);
}

/// Lends 4 MiB to messages to a peer that does not read, until the socket has no room for all of one. Returns how many
/// messages that took.
fn lend_until_full(a: &TcpConduit, memory: &Arc<Mapping>) -> (usize, Loan) {
    let sink = Recorder::new();
    send(a, &sink, Peer(1), &short(Direction::Request, 0, &[]));
    let page = memory.span(0, memory.bytes());
    let payload = Payload::Long(Source::of_span(&page), segment(0));
    let message = Message { direction: Direction::Request, handler: 1, arguments: &[], payload };
    let lend = || a.try_send_lent(Peer(1), &message, &page).unwrap();
    for sent in 2..100 {
        let loan = lend().expect("room, or a loan of the first without");
        if loan != Loan::NONE {
            assert!(!a.is_returned(Peer(1), loan));
            assert_eq!(lend(), None, "one loan at a time");
            return (sent, loan);
        }
        assert!(a.is_returned(Peer(1), loan));
    }
    panic!("a socket without end")
}

/// Goal: what the socket does not take of a lent payload is neither copied nor waited for, keeps its place in the stream, and
/// wakes its owner when there is room for it.
///
/// Method: write to the last byte after it was lent (which its owner must not): the receiver sees that.
#[test]
fn the_rest_of_a_lent_payload_is_sent_from_where_it_lies() {
    let (a, b) = pair();
    let (sink_a, sink_b) = (Recorder::new(), Recorder::new());
    let memory = Mapping::anonymous("lent", LONG_BYTES_MAX as u64).expect("shared memory");
    let mut expected = pattern(LONG_BYTES_MAX, 1);
    memory.write(0, &expected);
    let (sent, loan) = lend_until_full(&a, &memory);
    // Nobody polls: at least this byte is still here.
    expected[LONG_BYTES_MAX - 1] ^= 0xff;
    memory.write(LONG_BYTES_MAX - 1, &expected[LONG_BYTES_MAX - 1..]);
    assert_eq!(a.try_send(Peer(1), &short(Direction::Reply, 2, &[])).unwrap(), Sent::Accepted);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !a.is_returned(Peer(1), loan) {
                assert!(is_woken(&a, BOUND), "the lender slept through");
                a.poll(&sink_a, Traffic::Everything).unwrap();
            }
            poll_until(&a, &sink_a, "room for the reply", || sink_b.count() == sent + 1);
        });
        poll_until(&b, &sink_b, "all", || sink_b.count() == sent + 1);
    });
    let seen = sink_b.seen.lock().unwrap();
    assert_eq!(seen[sent].handler, 2, "the reply comes last");
    let last = &seen[sent - 1];
    assert_eq!(last.handler, 1);
    assert!(last.payload == expected, "it was copied, or is damaged");
}

/// Whoever waits for a loan does not wait for ever.
#[test]
fn a_lost_peer_gives_a_loan_back() {
    let (a, b) = pair();
    let memory = Mapping::anonymous("lent", LONG_BYTES_MAX as u64).expect("shared memory");
    let (_, loan) = lend_until_full(&a, &memory);
    drop(b);
    let sink = Recorder::new();
    let start = Instant::now();
    while !a.is_returned(Peer(1), loan) {
        // The loss of the peer, once; or its goodbye.
        let _ = a.poll(&sink, Traffic::Everything);
        assert!(start.elapsed() < BOUND, "the loan is not given back");
    }
}

#[test]
fn the_end_of_a_job_is_no_loss() {
    let (a, b) = pair();
    let (sink_a, sink_b) = (Recorder::new(), Recorder::new());
    for i in 0..100 {
        send(&a, &sink_a, Peer(1), &short(Direction::Request, 1, &[i]));
    }
    a.close(BOUND);
    assert!(matches!(a.try_send(Peer(1), &short(Direction::Request, 1, &[])), Err(RmaError::Usage(_))));
    drop(a);
    poll_until(&b, &sink_b, "what was sent before the end", || sink_b.count() == 100);
    let start = Instant::now();
    loop {
        b.poll(&sink_b, Traffic::Everything).expect("a peer that said goodbye is not lost");
        match b.try_send(Peer(0), &short(Direction::Request, 1, &[])) {
            Err(RmaError::PeerLost { peer: Peer(0), .. }) => break,
            Err(other) => panic!("{other}"),
            Ok(_) => assert!(start.elapsed() < BOUND),
        }
    }
}

#[test]
fn wrong_use_is_refused() {
    let (a, _b) = pair();
    let too_long = vec![0; MEDIUM_BYTES_MAX + 1];
    let too_many = [0; 17];
    for (to, message) in [
        (Peer(1), medium(1, &[], &too_long)),
        (Peer(1), short(Direction::Request, 1, &too_many)),
        (Peer(0), short(Direction::Request, 1, &[])),
        (Peer(99), short(Direction::Request, 1, &[])),
    ] {
        assert!(matches!(a.try_send(to, &message), Err(RmaError::Usage(_))), "to {to}");
    }
}
