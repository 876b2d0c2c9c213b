//! Measures the tcp conduit against bare sockets on the same loopback: the round trip of a short message against a
//! spinning ping-pong of 8 bytes, and a stream of 1 MiB long messages against a bare stream of the same bytes.
//!
//! ```text
//! cargo run --release -p vgas-rma --example tcp_latency [ROUNDS]
//! ```
//!
//! Two processes, each on its own core; bare and conduit runs alternate, figures are medians, ratios are taken in one
//! run. For bare figures both ends spin on a non-blocking socket with `TCP_NODELAY`, as the conduit's do.

#![allow(missing_docs)]

use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use vgas_rma::conduit::tcp::{TcpConduit, TcpSpec};
use vgas_rma::conduit::{Conduit, Sent, Traffic};
use vgas_rma::key::JobKey;
use vgas_rma::message::{Delivery, Destination, Direction, Message, Payload, Sink, Source};
use vgas_rma::{Layout, Peer, RegionId, RmaError};
use vgas_shm::Mapping;

type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

const ROUND_TRIPS: u64 = 10_000;
const STREAM_MESSAGES: u64 = 1500;
const MIB: usize = 1 << 20;

/// Counts what arrives, and echoes when told to.
struct Counter<'a> {
    arrived: AtomicU64,
    segment: std::sync::Arc<Mapping>,
    echo: Option<&'a TcpConduit>,
}

// SAFETY: the segment outlives the conduit.
unsafe impl vgas_rma::conduit::Trusted for Counter<'_> {}

impl Sink for Counter<'_> {
    fn destination(&self, _: Peer, _: Destination, bytes: usize) -> Result<*mut u8, RmaError> {
        assert!(bytes <= self.segment.bytes());
        Ok(self.segment.base())
    }

    fn deliver(&self, delivery: Delivery<'_>) -> Result<(), RmaError> {
        self.arrived.fetch_add(1, Ordering::Relaxed);
        if let Some(conduit) = self.echo
            && delivery.handler == 1
        {
            let payload = Payload::Short;
            let reply = Message { direction: Direction::Reply, handler: 2, arguments: &[7], payload };
            assert_eq!(conduit.try_send(delivery.from, &reply)?, Sent::Accepted);
        }
        Ok(())
    }
}

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    match args.next().as_deref() {
        Some("--other-side") => other_side(),
        rounds => measure(rounds.map_or(Ok(15), str::parse)?),
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

fn spinning(stream: TcpStream) -> Result<TcpStream> {
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    Ok(stream)
}

fn read_spinning(stream: &mut TcpStream, mut to: &mut [u8]) -> Result<()> {
    while !to.is_empty() {
        match stream.read(to) {
            Ok(0) => return Err("the other side closed".into()),
            Ok(bytes) => to = &mut to[bytes..],
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => std::hint::spin_loop(),
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

fn write_spinning(stream: &mut TcpStream, mut from: &[u8]) -> Result<()> {
    while !from.is_empty() {
        match stream.write(from) {
            Ok(bytes) => from = &from[bytes..],
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => std::hint::spin_loop(),
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

fn conduit(me: u32, key: JobKey, listener: TcpListener, addresses: Vec<SocketAddr>) -> Result<TcpConduit> {
    let layout = Layout::blocks(2, 2);
    let me = layout.peer_of_rank(vgas_rma::Rank(me));
    Ok(TcpConduit::new(TcpSpec { layout, me, key, listener, addresses })?)
}

/// Four peers, of which only the two ranks exist.
fn addresses(rank_0: SocketAddr, rank_1: SocketAddr) -> Vec<SocketAddr> {
    vec![rank_0, rank_1, rank_0, rank_1]
}

/// The process that answers. Learns the key and the addresses on its standard input.
fn other_side() -> Result<()> {
    bind_to_core(1);
    let mut input = BufReader::new(std::io::stdin());
    let mut line = String::new();
    input.read_line(&mut line)?;
    let mut words = line.split_whitespace();
    let mut next = || words.next().ok_or("an incomplete line");
    let key: Vec<u8> = next()?
        .as_bytes()
        .chunks(2)
        .map(|hex| u8::from_str_radix(std::str::from_utf8(hex)?, 16).map_err(Box::<dyn Error>::from))
        .collect::<Result<_>>()?;
    let key = JobKey::from_bytes(key.try_into().map_err(|_| "a key of another length")?);
    let (bare, rank_0) = (next()?.parse::<SocketAddr>()?, next()?.parse::<SocketAddr>()?);
    let mut stream = spinning(TcpStream::connect(bare)?)?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mine = listener.local_addr()?;
    println!("{mine}");
    let conduit = conduit(1, key, listener, addresses(rank_0, mine))?;
    let segment = Mapping::anonymous("segment", MIB as u64)?;
    let sink = Counter { arrived: AtomicU64::new(0), segment, echo: Some(&conduit) };
    let mut buffer = vec![0; MIB];
    loop {
        line.clear();
        if input.read_line(&mut line)? == 0 {
            return Ok(());
        }
        match line.trim() {
            "bare round trips" => {
                for _ in 0..ROUND_TRIPS {
                    read_spinning(&mut stream, &mut buffer[..8])?;
                    write_spinning(&mut stream, &[1; 8])?;
                }
            }
            "bare stream" => {
                for _ in 0..STREAM_MESSAGES {
                    read_spinning(&mut stream, &mut buffer)?;
                }
                write_spinning(&mut stream, &[1; 8])?;
            }
            count => {
                // The conduit: so many messages, the last of which is a request that is echoed.
                let until = sink.arrived.load(Ordering::Relaxed) + count.parse::<u64>()?;
                while sink.arrived.load(Ordering::Relaxed) < until {
                    conduit.poll(&sink, Traffic::Everything)?;
                }
            }
        }
    }
}

struct Bench {
    child: Child,
    orders: ChildStdin,
    stream: TcpStream,
    conduit: TcpConduit,
    sink: Counter<'static>,
    payload: std::sync::Arc<Mapping>,
}

impl Bench {
    fn order(&mut self, what: &str) -> Result<()> {
        writeln!(self.orders, "{what}")?;
        // Reading the order is not part of what is measured.
        std::thread::sleep(Duration::from_millis(2));
        Ok(())
    }

    fn send(&self, message: &Message<'_>) -> Result<()> {
        while self.conduit.try_send(Peer(1), message)? == Sent::Busy {
            self.conduit.poll(&self.sink, Traffic::Everything)?;
        }
        Ok(())
    }

    fn await_replies(&self, count: u64) -> Result<()> {
        while self.sink.arrived.load(Ordering::Relaxed) < count {
            self.conduit.poll(&self.sink, Traffic::Everything)?;
        }
        Ok(())
    }

    /// Microseconds of one round trip.
    fn bare_round_trip(&mut self) -> Result<f64> {
        self.order("bare round trips")?;
        let mut buffer = [0; 8];
        let start = Instant::now();
        for _ in 0..ROUND_TRIPS {
            write_spinning(&mut self.stream, &[1; 8])?;
            read_spinning(&mut self.stream, &mut buffer)?;
        }
        Ok(start.elapsed().as_secs_f64() * 1e6 / ROUND_TRIPS as f64)
    }

    fn conduit_round_trip(&mut self) -> Result<f64> {
        self.order(&ROUND_TRIPS.to_string())?;
        let request =
            Message { direction: Direction::Request, handler: 1, arguments: &[7], payload: Payload::Short };
        let start = Instant::now();
        for _ in 0..ROUND_TRIPS {
            let count = self.sink.arrived.load(Ordering::Relaxed);
            self.send(&request)?;
            self.await_replies(count + 1)?;
        }
        Ok(start.elapsed().as_secs_f64() * 1e6 / ROUND_TRIPS as f64)
    }

    /// GB/s.
    fn bare_stream(&mut self) -> Result<f64> {
        let mut buffer = vec![0; MIB];
        self.payload.read(0, &mut buffer);
        self.order("bare stream")?;
        let start = Instant::now();
        for _ in 0..STREAM_MESSAGES {
            write_spinning(&mut self.stream, &buffer)?;
        }
        read_spinning(&mut self.stream, &mut buffer[..8])?;
        Ok((STREAM_MESSAGES as usize * MIB) as f64 / start.elapsed().as_secs_f64() / 1e9)
    }

    fn conduit_stream(&mut self) -> Result<f64> {
        self.order(&(STREAM_MESSAGES + 1).to_string())?;
        // SAFETY: the mapping is as long, and lives as long as this.
        let source = unsafe { Source::raw(self.payload.base(), MIB) };
        let destination = Destination::Region { region: RegionId::SEGMENT, owner: Peer(1), offset: 0 };
        let payload = Payload::Long(source, destination);
        let long = Message { direction: Direction::Request, handler: 3, arguments: &[], payload };
        let last =
            Message { direction: Direction::Request, handler: 1, arguments: &[], payload: Payload::Short };
        let count = self.sink.arrived.load(Ordering::Relaxed);
        let start = Instant::now();
        for _ in 0..STREAM_MESSAGES {
            self.send(&long)?;
        }
        self.send(&last)?;
        self.await_replies(count + 1)?;
        Ok((STREAM_MESSAGES as usize * MIB) as f64 / start.elapsed().as_secs_f64() / 1e9)
    }
}

fn measure(rounds: usize) -> Result<()> {
    let mut child = Command::new(std::env::current_exe()?)
        .arg("--other-side")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    bind_to_core(0);
    let key = JobKey::generate()?;
    let (bare, listener) = (TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.1:0")?);
    let mine = listener.local_addr()?;
    let mut orders = child.stdin.take().ok_or("no standard input")?;
    let hex: String = key.expose().iter().map(|byte| format!("{byte:02x}")).collect();
    writeln!(orders, "{hex} {} {mine}", bare.local_addr()?)?;
    let mut answer = String::new();
    BufReader::new(child.stdout.take().ok_or("no standard output")?).read_line(&mut answer)?;
    let stream = spinning(bare.accept()?.0)?;
    let segment = Mapping::anonymous("segment", MIB as u64)?;
    let payload = Mapping::anonymous("payload", MIB as u64)?;
    payload.write(0, &vec![5; MIB]);
    let sink = Counter { arrived: AtomicU64::new(0), segment, echo: None };
    let conduit = conduit(0, key, listener, addresses(mine, answer.trim().parse()?))?;
    let mut bench = Bench { child, orders, stream, conduit, sink, payload };

    let mut samples: [Vec<f64>; 4] = Default::default();
    for round in 0..rounds + 1 {
        let figures = [
            bench.bare_round_trip()?,
            bench.conduit_round_trip()?,
            bench.bare_stream()?,
            bench.conduit_stream()?,
        ];
        // The first round warms up.
        if round > 0 {
            for (samples, figure) in samples.iter_mut().zip(figures) {
                samples.push(figure);
            }
        }
    }
    drop(bench.orders);
    bench.child.wait()?;
    let ratio = |a: &[f64], b: &[f64]| median(a.iter().zip(b).map(|(a, b)| a / b).collect());
    let latency = ratio(&samples[1], &samples[0]);
    let stream = ratio(&samples[3], &samples[2]);
    let [bare_trip, trip, bare_rate, rate] = samples.map(median);
    println!("8-byte round trip: bare {bare_trip:.2} µs, conduit {trip:.2} µs, ratio {latency:.3}");
    println!("1 MiB messages: bare {bare_rate:.2} GB/s, conduit {rate:.2} GB/s, ratio {stream:.3}");
    Ok(())
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
