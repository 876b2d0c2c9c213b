//! Peers that go away under the ibv conduit: a clear error that names them, in bounded time.

mod ibv_support;

use ibv_support::*;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use vgas_rma::conduit::ibv::{IbvConduit, IbvOptions, Network};
use vgas_rma::conduit::tcp::TcpSpec;
use vgas_rma::conduit::{Conduit, Sent, Traffic};
use vgas_rma::key::JobKey;
use vgas_rma::message::{Delivery, Destination, Direction, Sink};
use vgas_rma::{Layout, Peer, RmaError};

fn conduit(me: u32, listener: TcpListener, peers: [&str; 2], network: Option<Network>) -> Arc<IbvConduit> {
    let layout = Layout::blocks(2, 2);
    let addresses = [0, 1, 0, 1].map(|i: usize| peers[i].parse().unwrap()).to_vec();
    let spec = TcpSpec { layout, me: Peer(me), key: JobKey::from_bytes([42; 32]), listener, addresses };
    Arc::new(IbvConduit::new(spec, IbvOptions { network, ..IbvOptions::default() }).unwrap())
}

fn assert_lost(error: &RmaError) {
    assert!(matches!(error, RmaError::PeerLost { peer: Peer(1), .. }), "{error}");
    assert!(error.to_string().contains("rank 1"), "{error}");
}

/// The other process of [`a_killed_process_is_lost`]; does nothing when run as a test.
#[test]
fn other_process() {
    let Ok(address) = std::env::var("RXE_TEST_PEER") else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mine = listener.local_addr().unwrap().to_string();
    let network = std::env::var("RXE_TEST_NETWORK").ok().map(|network| network.parse().unwrap());
    let conduit = conduit(1, listener, [&address, &mine], network);
    println!("\nlistening {mine}");
    std::io::stdout().flush().unwrap();
    let sink = Memory::new(Some(conduit.clone()));
    let start = Instant::now();
    while start.elapsed() < BOUND {
        conduit.poll(&sink, Traffic::Everything).unwrap();
    }
}

#[test]
fn a_killed_process_is_lost() {
    if skipped("a_killed_process_is_lost") {
        return;
    }
    kill_the_other(None);
}

#[test]
fn a_killed_process_is_lost_through_librdmacm() {
    let Some(network) = network("a_killed_process_is_lost_through_librdmacm") else { return };
    kill_the_other(Some(network));
}

fn kill_the_other(network: Option<Network>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mine = listener.local_addr().unwrap().to_string();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "other_process", "--nocapture"])
        .env("RXE_TEST_PEER", &mine)
        .envs(network.map(|network| ("RXE_TEST_NETWORK", network.to_string())))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let other = lines
        .map_while(Result::ok)
        .find_map(|line| line.strip_prefix("listening ").map(str::to_owned))
        .expect("the other process listens");
    let here = (conduit(0, listener, [&mine, &other], network), Memory::new(None));
    for round in 1..=10 {
        let request = short(Direction::Request, &[7]);
        poll_until(&[&here], "room", || here.0.try_send(Peer(1), &request).unwrap() == Sent::Accepted);
        poll_until(&[&here], "an answer", || here.1.delivered.load(Ordering::SeqCst) == round as usize);
    }
    child.kill().unwrap();
    let start = Instant::now();
    assert_lost(&poll_error(&here));
    assert!(start.elapsed() < Duration::from_secs(5), "noticed after {:?}", start.elapsed());
    child.wait().unwrap();
    let later = here.0.try_send(Peer(1), &short(Direction::Request, &[]));
    assert_lost(&later.expect_err("the peer is gone"));
    for _ in 0..1000 {
        here.0.poll(&here.1, Traffic::Everything).expect("the loss is reported once");
    }
}

/// A sink that takes messages which count upwards, each once.
struct Counting(AtomicU64);

// SAFETY: it has no memory.
unsafe impl vgas_rma::conduit::Trusted for Counting {}

impl Sink for Counting {
    fn destination(&self, _: Peer, _: Destination, _: usize) -> Result<*mut u8, RmaError> {
        panic!("no long message was sent")
    }

    fn deliver(&self, delivery: Delivery<'_>) -> Result<(), RmaError> {
        let number = self.0.fetch_add(1, Ordering::SeqCst);
        assert_eq!(delivery.arguments, [number as u32], "messages come once, and in order");
        Ok(())
    }
}

/// Goal: where packets are lost, every message still comes once and in order. Method: as many as possible are in flight in
/// both directions, of one packet each, so that losses hit messages at all places of the queues.
#[test]
fn lost_packets_are_sent_again_once() {
    if skipped("lost_packets_are_sent_again_once") {
        return;
    }
    let messages: u64 =
        std::env::var("VGAS_TEST_MESSAGES").ok().and_then(|n| n.parse().ok()).unwrap_or(5_000);
    let Some(_loss) = Loss::begin("lost_packets_are_sent_again_once") else { return };
    let options = IbvOptions { timeout: 10, retries: 7, ..IbvOptions::default() };
    let both = conduits(&Layout::blocks(2, 2), &options);
    let [a, b] = [Counting(AtomicU64::new(0)), Counting(AtomicU64::new(0))];
    let (mut sent, mut progress) = ([0; 2], (0, Instant::now()));
    loop {
        for (me, sink) in [&a, &b].into_iter().enumerate() {
            both[me].poll(sink, Traffic::Everything).unwrap();
            let to = Peer(1 - me as u32);
            while sent[me] < messages {
                let arguments = [sent[me] as u32];
                match both[me].try_send(to, &short(Direction::Request, &arguments)).unwrap() {
                    Sent::Accepted => sent[me] += 1,
                    Sent::Busy => break,
                }
            }
        }
        let came = [&a, &b].map(|sink| sink.0.load(Ordering::SeqCst));
        if came == [messages; 2] {
            break;
        }
        if came[0] + came[1] > progress.0 {
            progress = (came[0] + came[1], Instant::now());
        }
        assert!(progress.1.elapsed() < BOUND, "{came:?} of {messages} messages have come");
    }
    let repeated: Vec<_> = both.iter().map(|conduit| conduit.counts().repeated).collect();
    println!("{messages} messages each way; dropped because the device delivered them twice: {repeated:?}");
}

/// The wire is cut under something that is on its way, while the process and its tcp connection live: only the device
/// can notice. In the guest only, where cutting it hurts nobody.
#[test]
fn a_cut_wire_is_a_lost_peer() {
    if skipped("a_cut_wire_is_a_lost_peer") {
        return;
    }
    if std::env::var_os("RXE_GUEST").is_none() {
        println!("skipped: a_cut_wire_is_a_lost_peer: would cut this machine's network");
        return;
    }
    cut("port1", |_, _| {});
}

/// The same at the own end of the wire: the error names the port that is down, which the device has told.
#[test]
fn a_port_that_is_down_is_named() {
    if skipped("a_port_that_is_down_is_named") {
        return;
    }
    if std::env::var_os("RXE_GUEST").is_none() {
        println!("skipped: a_port_that_is_down_is_named: would cut this machine's network");
        return;
    }
    cut("port0", |a, error| {
        let device = a.device();
        assert!(
            error.to_string().contains(&format!("port 1 of the RDMA device {device} is down")),
            "{error}"
        );
        assert!(a.counts().events > 0);
    });
}

/// Takes the interface down that device 0 or 1 is plugged into, while a message is on its way.
fn cut(interface: &str, also: impl FnOnce(&IbvConduit, &RmaError)) {
    let wire = |state: &str| {
        let status = Command::new("ip").args(["link", "set", interface, state]).status().unwrap();
        assert!(status.success(), "ip link set {interface} {state}");
    };
    let both = pair(&IbvOptions::default());
    let [a, b] = &both;
    let request = short(Direction::Request, &[1]);
    poll_until(&[a, b], "room", || a.0.try_send(Peer(1), &request).unwrap() == Sent::Accepted);
    poll_until(&[a, b], "an answer", || a.1.delivered.load(Ordering::SeqCst) == 1);
    wire("down");
    let sent = a.0.try_send(Peer(1), &request);
    let start = Instant::now();
    let error = poll_error(a);
    wire("up");
    assert_eq!(sent.unwrap(), Sent::Accepted);
    assert_lost(&error);
    assert!(error.to_string().contains("retry"), "{error}");
    also(&a.0, &error);
    assert!(start.elapsed() < Duration::from_secs(10), "noticed after {:?}", start.elapsed());
}
