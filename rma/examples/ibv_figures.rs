//! Measures the ibv conduit between two ranks on two nodes, each with its own RDMA device: latencies and
//! rates, one line each, `NAME BYTES VALUE UNIT`, under the names of the corresponding perftest programs.
//!
//! ```sh
//! cargo build --release -p vgas-rma --example ibv_figures
//! rma/tests/guest/figures        # in a guest with Soft-RoCE devices, in turn with perftest, as a table
//! ```
//!
//! | name | here | perftest |
//! |---|---|---|
//! | write_lat | half of a ping-pong of puts, each seen by looking at memory | the same with WRITEs |
//! | read_lat | a get | a READ |
//! | send_lat | half of a request and its reply | half of a ping-pong of SENDs |
//! | write_bw, read_bw | puts and gets, several in flight | WRITEs and READs |
//!
//! Both sides poll as often as they can, as perftest does. `put` and `wait` lines measure the blocking calls:
//! a put that is complete at the target, and a request whose sender waits for the reply.

#[path = "../tests/ibv_support/mod.rs"]
mod ibv_support;

use ibv_support::IbvFabric;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;
use vgas_rma::conduit::conformance::Fabric;
use vgas_rma::endpoint::{Endpoint, Handle, Token};
use vgas_rma::error::Result;
use vgas_rma::message::{Arrived, Payload};
use vgas_rma::{Peer, Rank, RmaError};

/// Default list of measurements.
const NAMES: &str = "write_lat,send_lat,wait,read_lat,put,write_bw,read_bw";

const PING: u8 = 128;
const PONG: u8 = 129;
const SEGMENT: u64 = 16 << 20;
const RATE_BYTES: usize = 64 << 20;
/// Most requests that are waited for: each may put both sides to sleep.
const WAITS: u64 = 300;
/// As many as perftest is told to have.
const IN_FLIGHT: usize = 4;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let rounds: u64 = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(300);
    let names = arguments.next().unwrap_or_else(|| NAMES.into());
    let names: Vec<&str> = names.split(',').collect();
    let fabric = IbvFabric::default();
    let specs = fabric.connect(&fabric.layout(2), SEGMENT);
    let endpoints = specs.into_iter().map(Endpoint::new).collect::<Result<Vec<_>>>()?;
    let [pings, pongs] = [(); 2].map(|()| Arc::new(AtomicU64::new(0)));
    for endpoint in &endpoints {
        let (pings, pongs) = (pings.clone(), pongs.clone());
        endpoint.register(PING, move |token: &Token<'_>, _: &[u32], _: Arrived<'_>| {
            pings.fetch_add(1, Ordering::Relaxed);
            token.check(token.reply(PONG, &[], Payload::Short));
        })?;
        endpoint.register(PONG, move |_: &Token<'_>, _: &[u32], _: Arrived<'_>| {
            pongs.fetch_add(1, Ordering::Relaxed);
        })?;
        if endpoint.rank().is_none() {
            endpoint.serve_segments()?;
        }
        endpoint.open();
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for agent in &endpoints[2..] {
            scope.spawn(|| agent.wait_until(None, || done.load(Ordering::SeqCst)).expect("the agents serve"));
        }
        let other = scope.spawn(|| serve(&endpoints[1], rounds, &names, &pings));
        measure(&endpoints[0], rounds, &names, &pongs).expect("rank 0 measures");
        other.join().expect("rank 1 serves").expect("rank 1 serves");
        done.store(true, Ordering::SeqCst);
        endpoints[2..].iter().for_each(|agent| agent.notify_local());
    });
    Ok(())
}

/// Looks at the own segment until its word at 0 is this.
fn see(endpoint: &Endpoint, me: Rank, value: u64) -> Result<()> {
    while endpoint.get_value(me, 0, 8)? != value {
        std::hint::spin_loop();
    }
    Ok(())
}

fn finish(endpoint: &Endpoint, handle: &mut Handle) -> Result<()> {
    while !endpoint.try_sync(handle)? {}
    Ok(())
}

/// One side of a ping-pong of puts, in the order of perftest: the completion of a put is looked for before the answer to it.
fn ping_pong(endpoint: &Endpoint, rounds: u64, first: bool) -> Result<()> {
    let (me, other) = if first { (Rank(0), Rank(1)) } else { (Rank(1), Rank(0)) };
    for round in 1..=rounds {
        if !first {
            see(endpoint, me, round)?;
        }
        let mut put = endpoint.put_nb(other, 0, &round.to_le_bytes())?;
        finish(endpoint, &mut put)?;
        if first {
            see(endpoint, me, round)?;
        }
    }
    Ok(())
}

/// Rank 1: its side of each measurement, where it has one.
fn serve(endpoint: &Endpoint, rounds: u64, names: &[&str], pings: &AtomicU64) -> Result<()> {
    endpoint.attach_segment(SEGMENT)?;
    endpoint.put(Rank(0), 8, &[0; 8])?;
    endpoint.barrier()?;
    let mut requests = 0;
    for name in names {
        match *name {
            "write_lat" => ping_pong(endpoint, rounds, false)?,
            "send_lat" => {
                requests += rounds;
                while pings.load(Ordering::Relaxed) < requests {
                    endpoint.poll()?;
                }
            }
            "wait" => {
                requests += rounds.min(WAITS);
                endpoint.wait_until(None, || pings.load(Ordering::Relaxed) == requests)?;
            }
            _ => {}
        }
        endpoint.barrier()?;
    }
    Ok(())
}

// Functions of their own, so that their instructions can be counted (rma/tests/guest/instructions).
#[inline(never)]
fn messages(endpoint: &Endpoint, rounds: u64, pongs: &AtomicU64) -> Result<()> {
    let before = pongs.load(Ordering::Relaxed);
    for round in 1..=rounds {
        endpoint.request(Peer(1), PING, &[], Payload::Short)?;
        while pongs.load(Ordering::Relaxed) < before + round {
            endpoint.poll()?;
        }
    }
    Ok(())
}

fn waits(endpoint: &Endpoint, rounds: u64, pongs: &AtomicU64) -> Result<()> {
    let before = pongs.load(Ordering::Relaxed);
    for round in 1..=rounds {
        endpoint.request(Peer(1), PING, &[], Payload::Short)?;
        endpoint.wait_until(None, || pongs.load(Ordering::Relaxed) == before + round)?;
    }
    Ok(())
}

#[inline(never)]
fn gets(endpoint: &Endpoint, rounds: u64) -> Result<()> {
    let mut word = [0; 8];
    for _ in 0..rounds {
        // SAFETY: the word is not touched until the get is complete.
        let mut get = unsafe { endpoint.get_nb(Rank(1), 0, word.as_mut_ptr(), 8) }?;
        finish(endpoint, &mut get)?;
    }
    Ok(())
}

#[inline(never)]
fn puts(endpoint: &Endpoint, rounds: u64) -> Result<()> {
    for round in 0..rounds {
        endpoint.put(Rank(1), 0, &round.to_le_bytes())?;
    }
    Ok(())
}

/// Rank 0.
fn measure(endpoint: &Endpoint, rounds: u64, names: &[&str], pongs: &AtomicU64) -> Result<()> {
    endpoint.attach_segment(SEGMENT)?;
    // Connects, and asks for access.
    endpoint.put(Rank(1), 8, &[0; 8])?;
    endpoint.barrier()?;
    for &name in names {
        let began = Instant::now();
        // Operations, and ways of a message in each.
        let (count, ways) = match name {
            "write_lat" => ping_pong(endpoint, rounds, true).map(|()| (rounds, 2))?,
            "send_lat" => messages(endpoint, rounds, pongs).map(|()| (rounds, 2))?,
            "wait" => waits(endpoint, rounds.min(WAITS), pongs).map(|()| (rounds.min(WAITS), 2))?,
            "read_lat" => gets(endpoint, rounds).map(|()| (rounds, 1))?,
            "put" => puts(endpoint, rounds).map(|()| (rounds, 1))?,
            "write_bw" | "read_bw" => {
                for bytes in [64 << 10, 256 << 10, 1 << 20] {
                    rate(endpoint, name, bytes)?;
                }
                (0, 0)
            }
            other => return Err(RmaError::Usage(format!("there is no {other}; there are: {NAMES}"))),
        };
        if count > 0 {
            println!("{name} 8 {:.2} us", began.elapsed().as_secs_f64() * 1e6 / (count * ways) as f64);
        }
        endpoint.barrier()?;
    }
    Ok(())
}

/// Puts and gets of this size, several in flight, of [`RATE_BYTES`] altogether, out of and into the own segment: registered
/// memory, as perftest's.
fn rate(endpoint: &Endpoint, name: &str, bytes: usize) -> Result<()> {
    let other = Rank(1);
    let count = RATE_BYTES / bytes;
    let own = endpoint.segment_info()[0].address.expect("the own segment is mapped");
    let began = Instant::now();
    let mut in_flight: Vec<Handle> = (0..IN_FLIGHT).map(|_| Handle::complete()).collect();
    for index in 0..count {
        let (slot, offset) = (index % IN_FLIGHT, (index * bytes) as u64 % SEGMENT);
        finish(endpoint, &mut in_flight[slot])?;
        let here = own.wrapping_add(slot * bytes);
        // SAFETY: a part of the segment is used by one operation at a time, which is waited for before the next and at
        // the end.
        in_flight[slot] = unsafe {
            match name {
                "write_bw" => endpoint.put_nb_bulk(other, offset, here, bytes)?,
                _ => endpoint.get_nb(other, offset, here, bytes)?,
            }
        };
    }
    for handle in &mut in_flight {
        finish(endpoint, handle)?;
    }
    println!("{name} {bytes} {:.2} MB/s", (count * bytes) as f64 / 1e6 / began.elapsed().as_secs_f64());
    Ok(())
}
