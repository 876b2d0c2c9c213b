//! Measures the ofi conduit against bare calls of libfabric (`ofi_bare.c` beside this) and against the tcp conduit: the round trip of a
//! short message, a get of 8 bytes, and puts of 1 MiB out of the process's own segment, eight in flight.
//!
//! ```text
//! cargo run --release -p vgas-rma --example ofi_figures 'tcp;ofi_rxm' [ROUNDS]
//! ```
//!
//! Two processes, each on its own core, both polling; the three are measured in turn, once a round. For each: the best of all rounds,
//! the median, and what the median of the ratios of one round is. The program in C is compiled with `cc`, and needs libfabric's headers.

#![allow(missing_docs)]

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use vgas_rma::conduit::ofi::{OfiConduit, OfiOptions};
use vgas_rma::conduit::tcp::{TcpConduit, TcpSpec};
use vgas_rma::conduit::{Conduit, Part, Place, Sent, Traffic};
use vgas_rma::key::JobKey;
use vgas_rma::message::{Delivery, Destination, Direction, Message, Payload, Sink, Source};
use vgas_rma::{Layout, Peer, RegionId, RmaError};
use vgas_shm::{Mapping, Span};

type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

const TRIPS: u64 = 5000;
const READS: u64 = 5000;
const WRITES: u64 = 500;
const IN_FLIGHT: u64 = 8;
const MIB: usize = 1 << 20;

/// Counts what arrives and what ends, and echoes when told to. Over tcp, which has neither, it answers gets and puts.
struct Side {
    arrived: AtomicU64,
    ended: AtomicU64,
    segment: Arc<Mapping>,
    operation: Arc<Mapping>,
    conduit: Arc<dyn Conduit>,
}

impl Side {
    fn new(conduit: Arc<dyn Conduit>) -> Result<Self> {
        let segment = Mapping::anonymous("segment", 2 * MIB as u64)?;
        segment.write(0, &vec![5; 2 * MIB]);
        let operation = Mapping::anonymous("operation", 4096)?;
        conduit.offer(RegionId::SEGMENT, segment.span(0, 2 * MIB));
        Ok(Self { arrived: AtomicU64::new(0), ended: AtomicU64::new(0), segment, operation, conduit })
    }

    fn poll(&self) -> Result<()> {
        self.conduit.poll(self, Traffic::Everything)?;
        Ok(())
    }

    fn send(&self, message: &Message<'_>) -> Result<()> {
        while self.conduit.try_send(Peer(1), message)? == Sent::Busy {
            self.poll()?;
        }
        Ok(())
    }

    fn round_trip(&self) -> Result<f64> {
        let request =
            Message { direction: Direction::Request, handler: 1, arguments: &[7], payload: Payload::Short };
        let mut begun = Instant::now();
        for trip in 0..TRIPS + 100 {
            if trip == 100 {
                begun = Instant::now();
            }
            let before = self.arrived.load(Ordering::Relaxed);
            self.send(&request)?;
            while self.arrived.load(Ordering::Relaxed) == before {
                self.poll()?;
            }
        }
        Ok(begun.elapsed().as_secs_f64() * 1e6 / TRIPS as f64)
    }

    fn get(&self) -> Result<f64> {
        let place = Place { owner: Peer(1), region: RegionId::SEGMENT, offset: 0 };
        let mut begun = Instant::now();
        for get in 0..READS + 100 {
            if get == 100 {
                begun = Instant::now();
            }
            let before = self.ended.load(Ordering::Relaxed) + self.arrived.load(Ordering::Relaxed);
            if self.conduit.capabilities().one_sided {
                let part = Part { operation: 1, at: 0, bytes: 8, here: self.operation.base() };
                while self.conduit.start_get(Peer(1), place, part)? == Sent::Busy {
                    self.poll()?;
                }
            } else {
                let payload = Payload::Short;
                self.send(&Message { direction: Direction::Request, handler: 3, arguments: &[7], payload })?;
            }
            while self.ended.load(Ordering::Relaxed) + self.arrived.load(Ordering::Relaxed) == before {
                self.poll()?;
            }
        }
        Ok(begun.elapsed().as_secs_f64() * 1e6 / READS as f64)
    }

    /// GB/s.
    fn put(&self) -> Result<f64> {
        let place = Place { owner: Peer(1), region: RegionId::SEGMENT, offset: 0 };
        let mut begun = Instant::now();
        let ended = || self.ended.load(Ordering::Relaxed) + self.arrived.load(Ordering::Relaxed);
        let before = ended();
        // SAFETY: the mapping is as long, and lives as long as this.
        let source = unsafe { Source::raw(self.segment.base(), MIB) };
        let destination = Destination::Region { region: RegionId::SEGMENT, owner: Peer(1), offset: 0 };
        let long = Payload::Long(source, destination);
        let long = Message { direction: Direction::Request, handler: 1, arguments: &[], payload: long };
        let mut started = 0;
        while ended() - before < WRITES + 20 {
            if started < WRITES + 20 && started - (ended() - before) < IN_FLIGHT {
                let sent = if self.conduit.capabilities().one_sided {
                    self.conduit.start_put(Peer(1), place, source, true, started + 1)?
                } else {
                    self.conduit.try_send(Peer(1), &long)?
                };
                started += u64::from(sent == Sent::Accepted);
                if started == 20 {
                    begun = Instant::now();
                }
            }
            self.poll()?;
        }
        Ok((WRITES as usize * MIB) as f64 / begun.elapsed().as_secs_f64() / 1e9)
    }
}

// SAFETY: the memory is the process's own, and as long.
unsafe impl vgas_rma::conduit::Trusted for Side {}

impl Sink for Side {
    fn destination(&self, _: Peer, destination: Destination, _: usize) -> Result<*mut u8, RmaError> {
        Ok(match destination {
            Destination::Region { .. } => self.segment.base(),
            Destination::Operation { .. } => self.operation.base(),
        })
    }

    fn region(&self, _: Peer, _: Peer, _: RegionId) -> Option<Span> {
        Some(self.segment.span(0, 2 * MIB))
    }

    fn completed(&self, _: Peer, _: u64) -> Result<(), RmaError> {
        self.ended.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn deliver(&self, delivery: Delivery<'_>) -> Result<(), RmaError> {
        self.arrived.fetch_add(1, Ordering::Relaxed);
        let payload = match delivery.handler {
            1 => Payload::Short,
            3 => Payload::Long(Source::of(&[5; 8]), Destination::Operation { id: 1, offset: 0 }),
            _ => return Ok(()),
        };
        let reply = Message { direction: Direction::Reply, handler: 2, arguments: &[7], payload };
        assert_eq!(self.conduit.try_send(delivery.from, &reply)?, Sent::Accepted);
        Ok(())
    }
}

/// Binds this process to one core.
fn bind_to_core(core: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    if let Err(error) = rustix::thread::sched_setaffinity(None, &set) {
        eprintln!("cannot bind to core {core}: {error}");
    }
}

fn open(
    provider: &str,
    me: u32,
    listener: TcpListener,
    [zero, one]: [SocketAddr; 2],
) -> Result<Arc<dyn Conduit>> {
    let (layout, key) = (Layout::blocks(2, 2), JobKey::from_bytes([3; 32]));
    let spec = TcpSpec { layout, me: Peer(me), key, listener, addresses: vec![zero, one, zero, one] };
    Ok(match provider {
        "tcp conduit" => Arc::new(TcpConduit::new(spec)?),
        _ => Arc::new(OfiConduit::new(spec, OfiOptions { providers: vec![provider.into()] })?),
    })
}

/// The process that answers, until its input ends.
fn other_side(provider: &str, zero: &str) -> Result<()> {
    bind_to_core(1);
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mine = listener.local_addr()?;
    println!("{mine}");
    let side = Side::new(open(provider, 1, listener, [zero.parse()?, mine])?)?;
    // The parent kills it.
    loop {
        side.poll()?;
    }
}

struct PeerProcess(Child);

impl Drop for PeerProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Trip, get and put.
fn round(provider: &str) -> Result<[f64; 3]> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mine = listener.local_addr()?;
    let mut child = Command::new(std::env::current_exe()?)
        .args(["--other-side", provider, &mine.to_string()])
        .stdout(Stdio::piped())
        .spawn()?;
    let mut answer = String::new();
    BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut answer)?;
    let _other = PeerProcess(child);
    let side = Side::new(open(provider, 0, listener, [mine, answer.trim().parse()?])?)?;
    Ok([side.round_trip()?, side.get()?, side.put()?])
}

fn bare(program: &std::path::Path, provider: &str) -> Result<[f64; 3]> {
    let output = Command::new(program).arg(provider).output()?;
    std::io::stderr().write_all(&output.stderr)?;
    let text = String::from_utf8(output.stdout)?;
    let figures: Vec<f64> = text.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    figures.try_into().map_err(|_| format!("the bare program says {text:?}").into())
}

fn main() -> Result<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (provider, rounds) = match words.as_slice() {
        ["--other-side", provider, zero] => return other_side(provider, zero),
        [provider] => (*provider, 10),
        [provider, rounds] => (*provider, rounds.parse()?),
        _ => return Err("a provider, such as 'tcp;ofi_rxm'".into()),
    };
    bind_to_core(0);
    let program = std::env::temp_dir().join(format!("vgas-ofi-bare-{}", std::process::id()));
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/ofi_bare.c");
    let compiled = Command::new("cc").args(["-O2", source, "-lfabric", "-o"]).arg(&program).status()?;
    if !compiled.success() {
        return Err("the bare program needs libfabric's headers (Debian: libfabric-dev)".into());
    }
    let mut samples: [[Vec<f64>; 3]; 3] = Default::default();
    for _ in 0..rounds {
        let figures = [bare(&program, provider)?, round(provider)?, round("tcp conduit")?];
        for (samples, figures) in samples.iter_mut().zip(figures) {
            samples.iter_mut().zip(figures).for_each(|(samples, figure)| samples.push(figure));
        }
    }
    std::fs::remove_file(&program)?;
    let [bare, ofi, tcp] = samples;
    for (index, what) in
        ["round trip, µs", "get of 8 bytes, µs", "puts of 1 MiB, GB/s"].into_iter().enumerate()
    {
        let is_rate = index == 2;
        let describe = |name: &str, samples: &[f64]| {
            let order = if is_rate { f64::max } else { f64::min };
            let best = samples.iter().copied().reduce(order).unwrap_or_default();
            let ratio = median(ofi[index].iter().zip(samples).map(|(ofi, other)| ofi / other).collect());
            println!(
                "{what}: {name}: best {best:.2}, median {:.2}; ofi is {ratio:.2} of it",
                median(samples.to_vec())
            );
        };
        describe("bare", &bare[index]);
        describe("ofi", &ofi[index]);
        describe("tcp conduit", &tcp[index]);
    }
    Ok(())
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
