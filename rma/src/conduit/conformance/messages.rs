//! Active messages: order, exactly once, payload first, sizes, back-pressure, threads.

use super::super::Sent;
use super::super::sim::SplitMix;
use super::{Case, Fabric, Job, pattern};
use crate::address::{Peer, Rank, RegionId};
use crate::endpoint::{Endpoint, Token};
use crate::error::RmaError;
use crate::message::{ARGUMENTS_MAX, Arrived, Destination, Direction, Payload, Source};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use vgas_shm::bell::{BRIEF, LONGER};
use vgas_shm::cores;

pub(super) const CASES: &[Case] = &[
    ("messages arrive once, in order, payload first", order_and_payload),
    ("short and long answers keep their order in bursts and pauses", order_of_answers),
    ("every number of arguments arrives unchanged", arguments),
    ("payloads of every size up to the maximum arrive, larger ones are refused", sizes),
    ("floods in both directions end", floods),
    ("replies arrive while requests find no room", replies_pass_requests),
    ("many threads of a rank ask at once", threads),
    ("a peer can talk to itself", loopback),
    ("a request to oneself is handled inside the call, unless it waits in a handler", inline),
    ("sleepers are woken", sleepers),
    ("what is withheld stays, and comes in order", withheld),
    ("handlers are held to the rules of replies", reply_rules),
];

const REQUEST: u8 = 128;
const REPLY: u8 = 129;
const OTHER: u8 = 130;

/// Record of the calls of one endpoint's handlers.
#[derive(Default)]
struct Seen {
    requests: AtomicU64,
    replies: AtomicU64,
    wrong: Mutex<Vec<String>>,
    /// The number that the next message of a sender should have.
    next: Mutex<HashMap<Peer, u32>>,
}

impl Seen {
    fn check(&self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.wrong.lock().unwrap().push(what());
        }
    }

    fn check_number(&self, from: Peer, number: u32) {
        let mut next = self.next.lock().unwrap();
        let expected = std::mem::replace(next.entry(from).or_default(), number + 1);
        self.check(number == expected, || format!("message {number} from {from} instead of {expected}"));
    }

    fn requests(&self) -> u64 {
        self.requests.load(Ordering::SeqCst)
    }

    fn replies(&self) -> u64 {
        self.replies.load(Ordering::SeqCst)
    }
}

/// A job whose endpoints count into a [`Seen`] each: `on_request` handles [`REQUEST`], replies are counted.
fn job(
    fabric: &dyn Fabric,
    ranks: u32,
    on_request: impl Fn(&Seen, &Token<'_>, &[u32], Arrived<'_>) + Send + Sync + 'static,
) -> (Job, Vec<Arc<Seen>>) {
    let seen: Vec<Arc<Seen>> = (0..fabric.layout(ranks).peers()).map(|_| Arc::default()).collect();
    let on_request = Arc::new(on_request);
    let job = Job::new(fabric, ranks, |endpoint| {
        let mine = &seen[endpoint.me().0 as usize];
        let (requests, on_request) = (mine.clone(), on_request.clone());
        let count_request = move |token: &Token<'_>, arguments: &[u32], payload: Arrived<'_>| {
            on_request(&requests, token, arguments, payload);
            requests.requests.fetch_add(1, Ordering::SeqCst);
        };
        endpoint.register(REQUEST, count_request).unwrap();
        let replies = mine.clone();
        let count_reply = move |_: &Token<'_>, _: &[u32], _: Arrived<'_>| {
            replies.replies.fetch_add(1, Ordering::SeqCst);
        };
        endpoint.register(REPLY, count_reply).unwrap();
    });
    (job, seen)
}

fn end(seen: &[Arc<Seen>]) {
    for seen in seen {
        let wrong = seen.wrong.lock().unwrap();
        assert!(wrong.is_empty(), "{} violations, first: {}", wrong.len(), wrong[0]);
    }
}

fn next_peer(rank: Rank, endpoint: &Endpoint) -> Peer {
    Peer((rank.0 + 1) % endpoint.layout().ranks())
}

/// Shared bytes that a conduit has just filled, copied out.
fn bytes_at(address: *mut u8, bytes: usize) -> Vec<u8> {
    let mut copied = vec![0; bytes];
    // SAFETY: a long payload is at its destination during the delivery (promise "payload first").
    unsafe { vgas_shm::copy::copy(address, copied.as_mut_ptr(), bytes) };
    copied
}

fn into_segment(owner: Peer, offset: u64) -> Destination {
    Destination::Region { region: RegionId::SEGMENT, owner, offset }
}

fn order_and_payload(fabric: &dyn Fabric) {
    const MESSAGES: u32 = 2000;
    let (job, seen) = job(fabric, 2, |seen, token, arguments, payload| {
        let number = arguments[0];
        seen.check_number(token.from(), number);
        let salt = u64::from(number);
        let right = match payload {
            Arrived::Short => number % 3 == 0,
            Arrived::Medium(bytes) => number % 3 == 1 && *bytes == pattern(salt, bytes.len()),
            Arrived::Long(at, bytes) => number % 3 == 2 && bytes_at(at, bytes) == pattern(salt, bytes),
        };
        seen.check(right, || format!("wrong payload of message {number}"));
        token.check(token.reply(REPLY, &[number], Payload::Short));
    });
    job.run(|endpoint, rank| {
        endpoint.attach_segment(super::SEGMENT_BYTES).unwrap();
        let to = next_peer(rank, endpoint);
        for number in 0..MESSAGES {
            let longest = if number % 3 == 1 { endpoint.medium_bytes_max().min(4096) } else { 4096 };
            let bytes = pattern(u64::from(number), (number as usize * 37) % longest);
            let payload = match number % 3 {
                0 => Payload::Short,
                1 => Payload::Medium(Source::of(&bytes)),
                // Every message has a place of its own, so that a later one cannot repair an earlier one.
                _ => Payload::Long(Source::of(&bytes), into_segment(to, u64::from(number % 1900) * 4096)),
            };
            endpoint.request(to, REQUEST, &[number], payload).unwrap();
        }
        let mine = &seen[rank.0 as usize];
        endpoint.wait_until(None, || mine.replies() == u64::from(MESSAGES)).unwrap();
    });
    end(&seen);
    for rank in &seen[..2] {
        assert_eq!(rank.requests(), u64::from(MESSAGES));
    }
}

/// Bursts and pauses of all lengths, so that a conduit with several ways for messages changes between them all the time:
/// by how busy they are, by the number of arguments, by the payload. Requests and replies each stay in order.
fn order_of_answers(fabric: &dyn Fabric) {
    const MESSAGES: u32 = 6000;
    let seen: Vec<[Arc<Seen>; 2]> = (0..fabric.layout(2).peers()).map(|_| Default::default()).collect();
    let words = |number: u32| -> Vec<u32> { (0..1 + number % 13).map(|index| number + index).collect() };
    let bytes = |number: u32| pattern(u64::from(number), if number.is_multiple_of(7) { 100 } else { 0 });
    let job = Job::new(fabric, 2, |endpoint| {
        for (index, seen) in [REQUEST, REPLY].into_iter().zip(seen[endpoint.me().0 as usize].clone()) {
            let handler = move |token: &Token<'_>, arguments: &[u32], payload: Arrived<'_>| {
                let number = arguments[0];
                seen.check_number(token.from(), number);
                let came = if let Arrived::Medium(bytes) = payload { bytes.as_slice() } else { &[] };
                let is_right = arguments == words(number) && came == bytes(number);
                seen.check(is_right, || format!("message {number} came as {arguments:?}, {came:?}"));
                if index == REQUEST {
                    let (words, bytes) = (words(number), bytes(number));
                    token.check(token.reply(REPLY, &words, payload_of(&bytes)));
                }
                seen.requests.fetch_add(1, Ordering::SeqCst);
            };
            endpoint.register(index, handler).unwrap();
        }
    });
    job.run(|endpoint, rank| {
        let mut random = SplitMix(u64::from(rank.0) + 1);
        let replies = &seen[rank.0 as usize][1];
        let mut number = 0;
        while number < MESSAGES {
            let burst = 1u32 << random.below(7);
            for number in number..(number + burst).min(MESSAGES) {
                let bytes = bytes(number);
                endpoint
                    .request(next_peer(rank, endpoint), REQUEST, &words(number), payload_of(&bytes))
                    .unwrap();
            }
            number = (number + burst).min(MESSAGES);
            // All, some or none of the answers.
            let enough = u64::from(number).saturating_sub([0, 3, u64::MAX][random.below(3) as usize]);
            endpoint.wait_until(None, || replies.requests() >= enough).unwrap();
        }
        endpoint.wait_until(None, || replies.requests() == u64::from(MESSAGES)).unwrap();
    });
    seen.iter().for_each(|seen| end(seen));
}

fn payload_of(bytes: &[u8]) -> Payload<'_> {
    if bytes.is_empty() { Payload::Short } else { Payload::Medium(Source::of(bytes)) }
}

fn arguments(fabric: &dyn Fabric) {
    let (job, seen) = job(fabric, 2, |seen, token, arguments, _| {
        let count = arguments.len() as u32;
        let expected: Vec<u32> = (0..count).map(|index| index * 0x0101_0101 + count).collect();
        seen.check(arguments == expected, || format!("arguments {arguments:?}"));
        token.check(token.reply(REPLY, arguments, Payload::Short));
    });
    job.run(|endpoint, rank| {
        let to = next_peer(rank, endpoint);
        for count in 0..=ARGUMENTS_MAX as u32 {
            let arguments: Vec<u32> = (0..count).map(|index| index * 0x0101_0101 + count).collect();
            endpoint.request(to, REQUEST, &arguments, Payload::Short).unwrap();
            let odd = pattern(u64::from(count), count as usize);
            endpoint.request(to, REQUEST, &arguments, Payload::Medium(Source::of(&odd))).unwrap();
        }
        let refused = endpoint.request(to, REQUEST, &[0; ARGUMENTS_MAX + 1], Payload::Short);
        assert!(matches!(refused, Err(RmaError::Usage(_))), "{refused:?}");
        let mine = &seen[rank.0 as usize];
        endpoint.wait_until(None, || mine.replies() == 2 * (ARGUMENTS_MAX as u64 + 1)).unwrap();
    });
    end(&seen);
}

fn sizes(fabric: &dyn Fabric) {
    let (job, seen) = job(fabric, 2, |seen, token, arguments, payload| {
        let (bytes, right) = match payload {
            Arrived::Short => (0, false),
            Arrived::Medium(bytes) => (bytes.len(), *bytes == pattern(bytes.len() as u64, bytes.len())),
            Arrived::Long(at, bytes) => (bytes, bytes_at(at, bytes) == pattern(bytes as u64, bytes)),
        };
        seen.check(right && arguments[0] as usize == bytes, || format!("a payload of {bytes} bytes"));
        // The same bytes come back, as a medium where they fit.
        let answer = pattern(bytes as u64, bytes.min(token.endpoint().medium_bytes_max()));
        token.check(token.reply(REPLY, arguments, Payload::Medium(Source::of(&answer))));
    });
    job.run(|endpoint, rank| {
        endpoint.attach_segment(super::SEGMENT_BYTES).unwrap();
        let to = next_peer(rank, endpoint);
        let (medium_max, long_max) = (endpoint.medium_bytes_max(), endpoint.long_bytes_max());
        assert!(medium_max >= 512, "GASNet guarantees 512 bytes; {medium_max} are offered");
        let mut sent = 0;
        for bytes in [0, 1, 7, 8, 9, 47, 48, 49, 63, 64, 65, 511, medium_max - 1, medium_max] {
            let payload = pattern(bytes as u64, bytes);
            endpoint.request(to, REQUEST, &[bytes as u32], Payload::Medium(Source::of(&payload))).unwrap();
            sent += 1;
        }
        let too_long = vec![0; medium_max + 1];
        let refused = endpoint.request(to, REQUEST, &[0], Payload::Medium(Source::of(&too_long)));
        assert!(matches!(refused, Err(RmaError::Usage(_))), "{refused:?}");
        let long_sizes = [0, 1, 4095, 4096, 65537, long_max - 1, long_max];
        for bytes in long_sizes.into_iter().filter(|&bytes| bytes as u64 <= super::SEGMENT_BYTES) {
            let payload = pattern(bytes as u64, bytes);
            let offset = super::SEGMENT_BYTES - bytes as u64;
            let long = Payload::Long(Source::of(&payload), into_segment(to, offset));
            endpoint.request(to, REQUEST, &[bytes as u32], long).unwrap();
            sent += 1;
            // The next one overwrites it.
            let mine = &seen[rank.0 as usize];
            endpoint.wait_until(None, || mine.replies() == sent).unwrap();
        }
        if (long_max as u64) < super::SEGMENT_BYTES {
            let too_long = vec![0; long_max + 1];
            let long = Payload::Long(Source::of(&too_long), into_segment(to, 0));
            let refused = endpoint.request(to, REQUEST, &[0], long);
            assert!(matches!(refused, Err(RmaError::Usage(_))), "{refused:?}");
        }
    });
    end(&seen);
}

fn floods(fabric: &dyn Fabric) {
    const MESSAGES: u32 = 400;
    let (job, seen) = job(fabric, 3, |seen, token, arguments, payload| {
        seen.check_number(token.from(), arguments[0]);
        let Arrived::Medium(bytes) = payload else { return token.refuse("no medium") };
        // Answers as large as questions: every way fills up.
        token.check(token.reply(REPLY, arguments, Payload::Medium(bytes.source())));
    });
    job.run(|endpoint, rank| {
        let payload = pattern(1, endpoint.medium_bytes_max());
        for number in 0..MESSAGES {
            for to in (0..3).filter(|&to| to != rank.0) {
                let medium = Payload::Medium(Source::of(&payload));
                endpoint.request(Peer(to), REQUEST, &[number], medium).unwrap();
            }
        }
        let mine = &seen[rank.0 as usize];
        endpoint.wait_until(None, || mine.replies() == 2 * u64::from(MESSAGES)).unwrap();
    });
    end(&seen);
}

fn replies_pass_requests(fabric: &dyn Fabric) {
    // Rank 1 fills the way to rank 0, which does not poll; then rank 0 asks, and its answer must come through while
    // rank 1 still has requests that find no room.
    let (job, seen) = job(fabric, 2, |_, token, arguments, _| {
        token.check(token.reply(REPLY, arguments, Payload::Short));
    });
    let (full, asked) = (AtomicU32::new(0), AtomicU32::new(0));
    job.run(|endpoint, rank| {
        let payload = pattern(2, endpoint.medium_bytes_max());
        let medium = Payload::Medium(Source::of(&payload));
        let mine = &seen[rank.0 as usize];
        let deadline = Instant::now() + Duration::from_secs(20);
        if rank.0 == 1 {
            let mut sent = 0;
            // One request each way first: before it a conduit that connects lazily has no room, which is not the point.
            endpoint.request(Peer(0), REQUEST, &[3], Payload::Short).unwrap();
            endpoint.wait_until(None, || mine.replies() == 1 && mine.requests() >= 1).unwrap();
            // A conduit with room for everything never says so: then there is nothing to show.
            while sent < 100_000
                && endpoint.try_request(Peer(0), REQUEST, &[0], medium).unwrap() == Sent::Accepted
            {
                sent += 1;
            }
            full.store(1, Ordering::SeqCst);
            let mut naps = 0;
            while asked.load(Ordering::SeqCst) == 0 && Instant::now() < deadline {
                cores::nap(&mut naps);
            }
            endpoint.request(Peer(0), REQUEST, &[1], medium).unwrap();
            endpoint.wait_until(None, || mine.replies() == sent + 2).unwrap();
        } else {
            endpoint.request(Peer(1), REQUEST, &[3], Payload::Short).unwrap();
            endpoint.wait_until(None, || mine.replies() == 1 && mine.requests() >= 1).unwrap();
            let mut naps = 0;
            while full.load(Ordering::SeqCst) == 0 && Instant::now() < deadline {
                cores::nap(&mut naps);
            }
            endpoint.request(Peer(1), REQUEST, &[2], medium).unwrap();
            asked.store(1, Ordering::SeqCst);
            endpoint.wait_until(None, || mine.replies() == 2).unwrap();
        }
    });
    end(&seen);
}

fn threads(fabric: &dyn Fabric) {
    const THREADS: usize = 4;
    const QUESTIONS: u32 = 150;
    let answers: Arc<Vec<Vec<AtomicU32>>> =
        Arc::new((0..2).map(|_| (0..THREADS).map(|_| AtomicU32::new(0)).collect()).collect());
    let job = Job::new(fabric, 2, |endpoint| {
        let answer = |token: &Token<'_>, arguments: &[u32], _: Arrived<'_>| {
            token.check(token.reply(REPLY, arguments, Payload::Short));
        };
        endpoint.register(REQUEST, answer).unwrap();
        let (me, answers) = (endpoint.me().0 as usize, answers.clone());
        let note = move |_: &Token<'_>, arguments: &[u32], _: Arrived<'_>| {
            answers[me][arguments[0] as usize].store(arguments[1], Ordering::SeqCst);
        };
        endpoint.register(REPLY, note).unwrap();
    });
    job.run(|endpoint, rank| {
        let answers = &answers[rank.0 as usize];
        std::thread::scope(|scope| {
            for (thread, answer) in (0..).zip(answers) {
                scope.spawn(move || {
                    for question in 1..=QUESTIONS {
                        let to = next_peer(rank, endpoint);
                        endpoint.request(to, REQUEST, &[thread, question], Payload::Short).unwrap();
                        endpoint.wait_until(None, || answer.load(Ordering::SeqCst) == question).unwrap();
                    }
                });
            }
        });
    });
}

fn loopback(fabric: &dyn Fabric) {
    const MESSAGES: u32 = 3000;
    let (job, seen) = job(fabric, 1, |seen, token, arguments, payload| {
        seen.check_number(token.from(), arguments[0]);
        let right = match payload {
            Arrived::Short => true,
            Arrived::Medium(bytes) => *bytes == pattern(3, bytes.len()),
            Arrived::Long(at, bytes) => bytes_at(at, bytes) == pattern(4, bytes),
        };
        seen.check(right, || "a payload to oneself".into());
        token.check(token.reply(REPLY, arguments, Payload::Short));
    });
    job.run(|endpoint, rank| {
        endpoint.attach_segment(super::SEGMENT_BYTES).unwrap();
        let me = endpoint.me();
        let (medium, long) = (pattern(3, 100), pattern(4, 5000));
        for number in 0..MESSAGES {
            let payload = match number % 3 {
                0 => Payload::Short,
                1 => Payload::Medium(Source::of(&medium)),
                _ => Payload::Long(Source::of(&long), into_segment(me, 8)),
            };
            endpoint.request(me, REQUEST, &[number], payload).unwrap();
        }
        let mine = &seen[rank.0 as usize];
        endpoint.wait_until(None, || mine.replies() == u64::from(MESSAGES)).unwrap();
        assert_eq!(endpoint.counts().loopback.requests, u64::from(MESSAGES));
    });
    end(&seen);
}

fn inline(fabric: &dyn Fabric) {
    const THREADS: u32 = 6;
    const MESSAGES: u32 = 300;
    let (job, seen) = job(fabric, 1, |seen, token, arguments, payload| {
        let right = match payload {
            Arrived::Short => true,
            Arrived::Medium(bytes) => *bytes == pattern(3, bytes.len()) && bytes.in_place().is_some(),
            Arrived::Long(at, bytes) => bytes_at(at, bytes) == pattern(4, bytes),
        };
        seen.check(right, || "a payload to oneself".into());
        if arguments == [0] {
            // SAFETY: a handler of this test.
            let endpoint = unsafe { token.raw_endpoint() };
            let before = seen.requests();
            token.check(endpoint.request_inline(REQUEST, &[1], &Payload::Short));
            seen.check(seen.requests() == before, || "a handler inside a handler".into());
        }
        let before = seen.replies();
        token.check(token.reply(REPLY, arguments, Payload::Short));
        seen.check(arguments == [1] || seen.replies() > before, || "a reply that waits".into());
        token.check(match token.reply(REPLY, arguments, Payload::Short) {
            Err(RmaError::Usage(_)) => Ok(()),
            other => other,
        });
    });
    job.run(|endpoint, rank| {
        endpoint.attach_segment(super::SEGMENT_BYTES).unwrap();
        let (me, mine) = (endpoint.me(), &seen[rank.0 as usize]);
        // The waiting message comes first.
        endpoint.request(me, REQUEST, &[1], Payload::Short).unwrap();
        assert_eq!(mine.requests(), 0);
        endpoint.request_inline(REQUEST, &[2], &Payload::Short).unwrap();
        assert_eq!(mine.requests(), 2);
        endpoint.wait_until(None, || mine.replies() == 2).unwrap();
        // From inside a handler it waits for a poll.
        endpoint.request_inline(REQUEST, &[0], &Payload::Short).unwrap();
        assert_eq!(mine.requests(), 3);
        endpoint.wait_until(None, || mine.replies() == 4).unwrap();
        let (medium, long) = (pattern(3, 100), pattern(4, 5000));
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for number in 0..MESSAGES {
                        let before = mine.replies();
                        let payload = match number % 3 {
                            0 => Payload::Short,
                            1 => Payload::Medium(Source::of(&medium)),
                            _ => Payload::Long(Source::of(&long), into_segment(me, 8)),
                        };
                        endpoint.request_inline(REQUEST, &[2], &payload).unwrap();
                        assert!(mine.replies() > before);
                    }
                });
            }
        });
        let all = u64::from(4 + THREADS * MESSAGES);
        assert_eq!((mine.requests(), mine.replies()), (all, all));
        let counts = endpoint.counts();
        assert_eq!((counts.loopback.requests, counts.loopback.replies), (all, all));
        assert_eq!((counts.requests_delivered, counts.replies_delivered), (all, all));
        let too_long = vec![0; endpoint.medium_bytes_max() + 1];
        let payload = Payload::Medium(Source::of(&too_long));
        assert!(matches!(endpoint.request_inline(REQUEST, &[2], &payload), Err(RmaError::Usage(_))));
        assert!(matches!(
            endpoint.request_inline(REQUEST, &[2; ARGUMENTS_MAX + 1], &Payload::Short),
            Err(RmaError::Usage(_))
        ));
    });
    end(&seen);
}

fn sleepers(fabric: &dyn Fabric) {
    // Rank 0 asks after pauses around the time that rank 1 needs to fall asleep, and then after pauses around that after which its sleep is for
    // longer, and then until it is woken: there a lost wake-up ends the case by its time limit.
    const ROUNDS: u32 = 340;
    let pause_before = |round: u32| match round {
        0..200 => Duration::from_micros(u64::from(round) * 2),
        200..300 => BRIEF / 2 + BRIEF * (round - 200) / 100,
        _ => LONGER + BRIEF * (round - 300) / 10,
    };
    let (job, seen) = job(fabric, 2, |_, token, arguments, _| {
        token.check(token.reply(REPLY, arguments, Payload::Short));
    });
    job.run(|endpoint, rank| {
        let mine = &seen[rank.0 as usize];
        if rank.0 == 1 {
            endpoint.wait_until(None, || mine.requests() == u64::from(ROUNDS)).unwrap();
            return;
        }
        for round in 0..ROUNDS {
            let begin = Instant::now();
            while begin.elapsed() < pause_before(round) {
                std::hint::spin_loop();
            }
            endpoint.request(Peer(1), REQUEST, &[round], Payload::Short).unwrap();
            endpoint.wait_until(None, || mine.replies() == u64::from(round) + 1).unwrap();
        }
    });
}

fn withheld(fabric: &dyn Fabric) {
    // Fewer than any conduit takes of a peer that does not answer.
    const MESSAGES: u32 = 48;
    let (job, seen) = job(fabric, 2, |seen, token, arguments, payload| {
        let number = arguments[0];
        seen.check_number(token.from(), number);
        let bytes = pattern(u64::from(number), 64);
        let right = match payload {
            Arrived::Short => number % 3 == 0,
            Arrived::Medium(arrived) => *arrived == *bytes,
            Arrived::Long(at, arrived) => bytes_at(at, arrived) == bytes,
        };
        seen.check(right, || format!("wrong payload of message {number}"));
        token.check(token.reply(REPLY, &[number], Payload::Short));
    });
    job.run(|endpoint, rank| {
        endpoint.attach_segment(super::SEGMENT_BYTES).unwrap();
        let (to, mine) = (next_peer(rank, endpoint), &seen[rank.0 as usize]);
        endpoint.withhold(true);
        endpoint.barrier().unwrap();
        for number in 0..MESSAGES {
            let bytes = pattern(u64::from(number), 64);
            let payload = match number % 3 {
                0 => Payload::Short,
                1 => Payload::Medium(Source::of(&bytes)),
                _ => Payload::Long(Source::of(&bytes), into_segment(to, u64::from(number) * 64)),
            };
            endpoint.request(to, REQUEST, &[number], payload).unwrap();
        }
        // The endpoint's own messages go on.
        let (other, place) = (Rank(to.0), u64::from(MESSAGES) * 64);
        for round in 0..20 {
            let (bytes, mut found) = (pattern(round, 5000), vec![0; 5000]);
            endpoint.put(other, place, &bytes).unwrap();
            endpoint.get(other, place, &mut found).unwrap();
            mine.check(found == bytes, || "another get than the put".into());
        }
        mine.check(mine.requests() == 0 && mine.replies() == 0, || "a handler ran".into());
        endpoint.withhold(false);
        endpoint.wait_until(None, || mine.replies() == u64::from(MESSAGES)).unwrap();
    });
    end(&seen);
    for rank in &seen[..2] {
        assert_eq!(rank.requests(), u64::from(MESSAGES));
    }
}

fn reply_rules(fabric: &dyn Fabric) {
    let refusals = Arc::new(AtomicU32::new(0));
    let answered = Arc::new(AtomicBool::new(false));
    let count = |refusals: &AtomicU32, result: Result<(), RmaError>| {
        assert!(matches!(result, Err(RmaError::Usage(_))), "{result:?}");
        refusals.fetch_add(1, Ordering::SeqCst);
    };
    let job = Job::new(fabric, 2, |endpoint| {
        let seen = refusals.clone();
        let on_request = move |token: &Token<'_>, _: &[u32], _: Arrived<'_>| {
            assert_eq!(token.direction(), Direction::Request);
            token.reply(REPLY, &[], Payload::Short).unwrap();
            count(&seen, token.reply(REPLY, &[], Payload::Short));
            count(&seen, token.endpoint().wait_until(None, || false).map(drop));
        };
        endpoint.register(REQUEST, on_request).unwrap();
        let (seen, answered) = (refusals.clone(), answered.clone());
        let on_reply = move |token: &Token<'_>, _: &[u32], _: Arrived<'_>| {
            count(&seen, token.reply(REPLY, &[], Payload::Short));
            answered.store(true, Ordering::SeqCst);
        };
        endpoint.register(REPLY, on_reply).unwrap();
        assert!(endpoint.register(REPLY, |_, _, _| ()).is_err(), "an index is taken once");
        assert!(endpoint.register(3, |_, _, _| ()).is_err(), "low indices are the endpoint's");
    });
    job.run(|endpoint, rank| {
        assert!(endpoint.register(OTHER, |_, _, _| ()).is_err(), "too late");
        if rank.0 == 0 {
            endpoint.request(Peer(1), REQUEST, &[], Payload::Short).unwrap();
            // Counts of the other rank after its reply wake no thread here; they are checked when all have
            // met.
            endpoint.wait_until(None, || answered.load(Ordering::SeqCst)).unwrap();
        }
    });
    assert_eq!(refusals.load(Ordering::SeqCst), 3);
}
