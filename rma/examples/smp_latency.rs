//! Measures endpoints over shared memory between two processes: short active messages (round trip and one-way flood), mediums
//! of 4 KiB, the barrier, and 8-byte puts and gets, beside a bare ping-pong on one shared line, a bare exchange of 4 KiB and a
//! plain copy.
//!
//! ```text
//! cargo run --release -p vgas-rma --example smp_latency [-- one-core]
//! ```
//!
//! The program starts itself once more as rank 1; each rank is pinned to a core of its own, or both to one core. Each
//! figure is the median of alternated repetitions.

#![allow(missing_docs)]

use std::error::Error;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use vgas_rma::conduit::smp;
use vgas_rma::domain::{Domain, DomainSpec, RegionSpec};
use vgas_rma::endpoint::{Endpoint, EndpointSpec, Token};
use vgas_rma::message::{Arrived, Payload, Source};
use vgas_rma::{Layout, Peer, Rank, RegionId};

type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

const REPETITIONS: usize = 15;
const SEGMENT_BYTES: u64 = 1 << 20;
const PING: u8 = 128;
const PONG: u8 = 129;
const FLOOD: u8 = 130;
const FLOOD_END: u8 = 131;
const PING_MEDIUM: u8 = 132;
const PONG_MEDIUM: u8 = 133;
const MEDIUM_BYTES: usize = 4096;

fn spec() -> DomainSpec {
    let members: Vec<Peer> = (0..2).map(Peer).collect();
    let ring_bytes = smp::RING_BYTES_DEFAULT;
    let regions = members
        .iter()
        .map(|&owner| RegionSpec { owner, region: RegionId::SEGMENT, bytes: SEGMENT_BYTES })
        .collect();
    DomainSpec {
        control_bytes: smp::control_bytes(members.len(), ring_bytes),
        members,
        ring_bytes,
        regions,
        common_bytes: 0,
    }
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let one_core = arguments.iter().any(|a| a == "one-core");
    if let Some(files) = arguments.iter().find_map(|a| a.strip_prefix("files=")) {
        let files = files.split(',').map(|fd| {
            let fd: RawFd = fd.parse().expect("a descriptor");
            // SAFETY: the parent passed these descriptors on for this process alone.
            unsafe { OwnedFd::from_raw_fd(fd) }
        });
        return measure(Rank(1), Arc::new(Domain::open(spec(), files.collect())?), one_core);
    }
    let domain = Arc::new(Domain::create(spec())?);
    // Copies without the close-on-exec flag survive into the child.
    let inherited: Vec<OwnedFd> = domain.files().map(rustix::io::dup).collect::<Result<_, _>>()?;
    let list: Vec<String> =
        inherited.iter().map(|fd| std::os::fd::AsRawFd::as_raw_fd(fd).to_string()).collect();
    let mut child = Command::new(std::env::current_exe()?)
        .arg(format!("files={}", list.join(",")))
        .args(one_core.then_some("one-core"))
        .stdin(Stdio::null())
        .spawn()?;
    drop(inherited);
    let measured = measure(Rank(0), domain, one_core);
    if measured.is_err() {
        child.kill()?;
    }
    child.wait()?;
    measured
}

fn pin(core: usize) -> Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

#[derive(Default)]
struct Arrivals {
    pongs: AtomicU64,
    floods: AtomicU64,
    flood_ends: AtomicU64,
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

fn nanoseconds(elapsed: Duration, times: u64) -> f64 {
    elapsed.as_nanos() as f64 / times as f64
}

fn measure(rank: Rank, domain: Arc<Domain>, one_core: bool) -> Result<()> {
    pin(if one_core { 0 } else { rank.0 as usize })?;
    let layout = Layout::blocks(2, 1);
    let me = layout.peer_of_rank(rank);
    let endpoint = Endpoint::new(EndpointSpec { layout, me, domain: Some(domain.clone()), network: None })?;
    let arrivals = Arc::new(Arrivals::default());
    endpoint.register(PING, |token: &Token<'_>, arguments: &[u32], _: Arrived<'_>| {
        token.check(token.reply(PONG, arguments, Payload::Short));
    })?;
    let seen = arrivals.clone();
    endpoint.register(PONG, move |_, _, _| {
        let _ = seen.pongs.fetch_add(1, Ordering::Relaxed);
    })?;
    endpoint.register(PING_MEDIUM, |token: &Token<'_>, arguments: &[u32], payload: Arrived<'_>| {
        let Arrived::Medium(bytes) = payload else { return token.refuse("no medium") };
        token.check(token.reply(PONG_MEDIUM, arguments, Payload::Medium(bytes.source())));
    })?;
    let seen = arrivals.clone();
    endpoint.register(PONG_MEDIUM, move |_, _, payload| {
        assert!(matches!(payload, Arrived::Medium(bytes) if bytes.len() == MEDIUM_BYTES));
        let _ = seen.pongs.fetch_add(1, Ordering::Relaxed);
    })?;
    let seen = arrivals.clone();
    endpoint.register(FLOOD, move |_, _, _| {
        seen.floods.store(seen.floods.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    })?;
    let seen = arrivals.clone();
    endpoint.register(FLOOD_END, move |_, _, _| {
        let _ = seen.flood_ends.fetch_add(1, Ordering::Relaxed);
    })?;
    endpoint.open();
    endpoint.attach_segment(SEGMENT_BYTES)?;

    let rounds = if one_core { 2_000 } else { 50_000 };
    let mut samples: [Vec<f64>; 9] = Default::default();
    for repetition in 0..REPETITIONS {
        samples[0].push(bare_ping_pong(&endpoint, rank, &domain, if one_core { 1 } else { rounds })?);
        samples[1].push(round_trips(&endpoint, rank, &arrivals, rounds, None)?);
        samples[2].push(flood(&endpoint, rank, &arrivals, rounds * 4, repetition as u64 + 1)?);
        samples[3].push(barriers(&endpoint, rounds)?);
        let [put, get, plain] = puts_and_gets(&endpoint, rank)?;
        samples[4].push(put);
        samples[5].push(get);
        samples[6].push(plain);
        samples[7].push(bare_exchange(&endpoint, rank, &domain, if one_core { 1 } else { rounds / 20 })?);
        samples[8].push(round_trips(&endpoint, rank, &arrivals, rounds / 20, Some(&[7; MEDIUM_BYTES]))?);
    }
    endpoint.barrier()?;
    if rank.0 == 0 {
        let names = [
            "bare ping-pong on one line, round trip",
            "short active message, round trip",
            "short active messages, one way, each",
            "barrier of 2 ranks",
            "put of 8 bytes, co-located",
            "get of 8 bytes, co-located",
            "8 bytes through a call that is not inlined",
            "bare exchange of 4 KiB, round trip",
            "medium active message of 4 KiB, round trip",
        ];
        println!("{}", if one_core { "both ranks on one core" } else { "each rank on its own core" });
        // The bare ping-pong never yields: on one core it would measure the scheduler's time slice.
        for (name, samples) in names.into_iter().zip(samples) {
            if one_core && name.starts_with("bare") {
                continue;
            }
            let (least, most) = (
                samples.iter().copied().fold(f64::MAX, f64::min),
                samples.iter().copied().fold(0.0, f64::max),
            );
            println!("{name:45} {:9.1} ns   ({least:.1} to {most:.1})", median(samples));
        }
        println!("{:?}", endpoint.counts());
    }
    Ok(())
}

/// Two words of the segments, each written by one rank, answered at once.
fn bare_ping_pong(endpoint: &Endpoint, rank: Rank, domain: &Domain, rounds: u64) -> Result<f64> {
    let mapping = domain.map(Peer(0), RegionId::SEGMENT)?;
    let word = mapping.word_u64(4096);
    endpoint.barrier()?;
    let before = Instant::now();
    for round in 1..=rounds {
        let (wait_for, then) =
            if rank.0 == 0 { (2 * round, 2 * round - 1) } else { (2 * round - 1, 2 * round) };
        if rank.0 == 0 {
            word.store(then, Ordering::Release);
        }
        while word.load(Ordering::Acquire) != wait_for {}
        if rank.0 == 1 {
            word.store(then, Ordering::Release);
        }
    }
    let elapsed = before.elapsed();
    endpoint.barrier()?;
    if rank.0 == 0 {
        word.store(0, Ordering::Release);
    }
    endpoint.barrier()?;
    Ok(nanoseconds(elapsed, rounds.max(1)))
}

/// 4 KiB copied into the other's segment and, once they are there, copied out of it, and the same back.
fn bare_exchange(endpoint: &Endpoint, rank: Rank, domain: &Domain, rounds: u64) -> Result<f64> {
    let segments = [Peer(0), Peer(1)].map(|owner| domain.map(owner, RegionId::SEGMENT));
    let [zero, one] = segments;
    let (mine, theirs) = if rank.0 == 0 { (zero?, one?) } else { (one?, zero?) };
    let (arrived, there) = (mine.word_u64(8192), theirs.word_u64(8192));
    let mut private = [9; MEDIUM_BYTES];
    endpoint.barrier()?;
    let before = Instant::now();
    for round in 1..=rounds {
        for turn in 0..2 {
            if turn == rank.0 {
                theirs.write(8192 + 64, &private);
                there.store(round, Ordering::Release);
            } else {
                while arrived.load(Ordering::Acquire) != round {}
                mine.read(8192 + 64, &mut private);
            }
        }
    }
    let elapsed = before.elapsed();
    endpoint.barrier()?;
    arrived.store(0, Ordering::Release);
    endpoint.barrier()?;
    Ok(nanoseconds(elapsed, rounds.max(1)))
}

/// With a payload, or short.
fn round_trips(
    endpoint: &Endpoint,
    rank: Rank,
    arrivals: &Arrivals,
    rounds: u64,
    bytes: Option<&[u8]>,
) -> Result<f64> {
    let (handler, payload) = match bytes {
        Some(bytes) => (PING_MEDIUM, Payload::Medium(Source::of(bytes))),
        None => (PING, Payload::Short),
    };
    endpoint.barrier()?;
    let before = Instant::now();
    if rank.0 == 0 {
        for _ in 0..rounds {
            let expected = arrivals.pongs.load(Ordering::Relaxed) + 1;
            endpoint.request(Peer(1), handler, &[1, 2], payload)?;
            endpoint.wait_until(None, || arrivals.pongs.load(Ordering::Relaxed) == expected)?;
        }
    }
    let elapsed = before.elapsed();
    endpoint.barrier()?;
    Ok(nanoseconds(elapsed, rounds))
}

fn flood(
    endpoint: &Endpoint,
    rank: Rank,
    arrivals: &Arrivals,
    messages: u64,
    repetition: u64,
) -> Result<f64> {
    endpoint.barrier()?;
    let before = Instant::now();
    if rank.0 == 0 {
        for _ in 0..messages {
            endpoint.request(Peer(1), FLOOD, &[1, 2], Payload::Short)?;
        }
        endpoint.wait_until(None, || arrivals.flood_ends.load(Ordering::Relaxed) == repetition)?;
    } else {
        let expected = messages * repetition;
        endpoint.wait_until(None, || arrivals.floods.load(Ordering::Relaxed) == expected)?;
        endpoint.request(Peer(0), FLOOD_END, &[], Payload::Short)?;
    }
    let elapsed = before.elapsed();
    endpoint.barrier()?;
    Ok(nanoseconds(elapsed, messages))
}

fn barriers(endpoint: &Endpoint, rounds: u64) -> Result<f64> {
    endpoint.barrier()?;
    let before = Instant::now();
    for _ in 0..rounds {
        endpoint.barrier()?;
    }
    Ok(nanoseconds(before.elapsed(), rounds))
}

#[inline(never)]
fn plain_read(array: &[u64], index: usize) -> u64 {
    array[std::hint::black_box(index)]
}

fn puts_and_gets(endpoint: &Endpoint, rank: Rank) -> Result<[f64; 3]> {
    const TIMES: u64 = 200_000;
    endpoint.barrier()?;
    let mut results = [0.0; 3];
    if rank.0 == 0 {
        let mut bytes = [1u8; 8];
        let before = Instant::now();
        for time in 0..TIMES {
            endpoint.put(Rank(1), (time % 512) * 8, &bytes)?;
        }
        results[0] = nanoseconds(before.elapsed(), TIMES);
        let before = Instant::now();
        for time in 0..TIMES {
            endpoint.get(Rank(1), (time % 512) * 8, &mut bytes)?;
            std::hint::black_box(&bytes);
        }
        results[1] = nanoseconds(before.elapsed(), TIMES);
        let array = vec![1u64; 512];
        let before = Instant::now();
        for time in 0..TIMES {
            std::hint::black_box(plain_read(&array, (time % 512) as usize));
        }
        results[2] = nanoseconds(before.elapsed(), TIMES);
    }
    endpoint.barrier()?;
    Ok(results)
}
