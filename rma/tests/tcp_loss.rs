//! Peers that go away, or never were there: a clear error that names them, in bounded time.

mod tcp_support;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tcp_support::*;
use vgas_rma::conduit::tcp::{TcpConduit, TcpLimits, TcpSpec};
use vgas_rma::conduit::{Conduit, Sent, Traffic};
use vgas_rma::key::JobKey;
use vgas_rma::message::Direction;
use vgas_rma::{Layout, Peer, RmaError};
use vgas_testing::at_most;

const KEY: [u8; 32] = [42; 32];

fn conduit(me: u32, listener: TcpListener, peers: [&str; 2], limits: TcpLimits) -> TcpConduit {
    let layout = Layout::blocks(2, 2);
    let addresses = [0, 1, 0, 1].map(|i: usize| peers[i].parse().unwrap()).to_vec();
    let key = JobKey::from_bytes(KEY);
    TcpConduit::with_limits(TcpSpec { layout, me: Peer(me), key, listener, addresses }, limits).unwrap()
}

fn assert_lost(error: &RmaError) {
    assert!(matches!(error, RmaError::PeerLost { peer: Peer(1), .. }), "{error}");
    assert!(error.to_string().contains("rank 1"), "{error}");
}

/// The other process of [`a_killed_process_is_lost_at_once`]; does nothing when run as a test.
#[test]
fn other_process() {
    let Ok(address) = std::env::var("VGAS_TEST_PEER") else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mine = listener.local_addr().unwrap().to_string();
    let conduit = conduit(1, listener, [&address, &mine], TcpLimits::for_peers(4));
    println!("\nlistening {mine}");
    std::io::stdout().flush().unwrap();
    let sink = Recorder::new();
    let start = Instant::now();
    while start.elapsed() < BOUND {
        conduit.poll(&sink, Traffic::Everything).unwrap();
    }
}

#[test]
fn a_killed_process_is_lost_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mine = listener.local_addr().unwrap().to_string();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "other_process", "--nocapture"])
        .env("VGAS_TEST_PEER", &mine)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let other = lines
        .map_while(Result::ok)
        .find_map(|line| line.strip_prefix("listening ").map(str::to_owned))
        .expect("the other process listens");
    let conduit = conduit(0, listener, [&mine, &other], TcpLimits::for_peers(4));
    let sink = Recorder::new();
    for _ in 0..10 {
        send(&conduit, &sink, Peer(1), &short(Direction::Request, 1, &[]));
    }
    child.kill().unwrap();
    let start = Instant::now();
    let error = poll_error(&conduit, &sink);
    assert_lost(&error);
    assert!(start.elapsed() < at_most(Duration::from_secs(2)), "noticed after {:?}", start.elapsed());
    child.wait().unwrap();
    let later = conduit.try_send(Peer(1), &short(Direction::Request, 1, &[]));
    assert_lost(&later.expect_err("the peer is gone"));
    assert_eq!(conduit.poll(&sink, Traffic::Everything).unwrap(), 0, "reported once");
    // The news of its opening and of its end wake a sleeper, but not for ever.
    let start = Instant::now();
    while is_woken(&conduit, Duration::from_millis(50)) {
        conduit.poll(&sink, Traffic::Everything).unwrap();
        assert!(start.elapsed() < BOUND, "a lost connection keeps waking");
    }
}

#[test]
fn nobody_listens() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mine = listener.local_addr().unwrap().to_string();
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let conduit = conduit(0, listener, [&mine, &nobody], TcpLimits::for_peers(4));
    let sink = Recorder::new();
    assert_eq!(conduit.try_send(Peer(1), &short(Direction::Request, 1, &[])).unwrap(), Sent::Busy);
    assert!(is_woken(&conduit, BOUND), "a failure wakes sleepers");
    let error = poll_error(&conduit, &sink);
    assert_lost(&error);
    assert!(error.to_string().contains(&nobody), "{error} does not say where");
}

/// Somebody accepts and never says anything.
#[test]
fn a_silent_listener_is_given_up() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (mine, other) =
        (listener.local_addr().unwrap().to_string(), silent.local_addr().unwrap().to_string());
    let limits = TcpLimits { connect_timeout: Duration::from_millis(200), ..TcpLimits::for_peers(4) };
    let conduit = conduit(0, listener, [&mine, &other], limits);
    let sink = Recorder::new();
    assert_eq!(conduit.try_send(Peer(1), &short(Direction::Request, 1, &[])).unwrap(), Sent::Busy);
    let error = poll_error(&conduit, &sink);
    assert_lost(&error);
    assert!(error.to_string().contains("did not answer"), "{error}");
}
