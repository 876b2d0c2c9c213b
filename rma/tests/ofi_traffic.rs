//! Puts over libfabric: one that is complete is visible, always. Where libfabric is missing this is skipped, visibly.

mod ofi_support;

use ofi_support::{conduits, skipped};
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use vgas_rma::conduit::ofi::{OfiConduit, OfiOptions};
use vgas_rma::conduit::tcp::TcpSpec;
use vgas_rma::conduit::{Conduit, Place, Sent, Traffic};
use vgas_rma::error::Result;
use vgas_rma::key::JobKey;
use vgas_rma::message::{Delivery, Destination, Sink, Source};
use vgas_rma::{Layout, Peer, RegionId, RmaError};
use vgas_shm::{Mapping, Span};

const BOUND: Duration = Duration::from_secs(600);
const BYTES: usize = 1 << 16;

/// A sink with one region, and the number of the last operation that has ended.
struct Memory {
    region: Arc<Mapping>,
    ended: AtomicU64,
}

impl Memory {
    fn new() -> Self {
        Self { region: Mapping::anonymous("region", BYTES as u64).unwrap(), ended: AtomicU64::new(0) }
    }
}

// SAFETY: the range is checked; the region outlives the conduit.
unsafe impl vgas_rma::conduit::Trusted for Memory {}

impl Sink for Memory {
    fn destination(&self, _: Peer, destination: Destination, bytes: usize) -> Result<*mut u8> {
        match destination {
            Destination::Region { offset, .. } if offset as usize + bytes <= BYTES => {
                Ok(self.region.base().wrapping_add(offset as usize))
            }
            other => panic!("{other:?}"),
        }
    }

    fn region(&self, _: Peer, _: Peer, _: RegionId) -> Option<Span> {
        Some(self.region.span(0, BYTES))
    }

    fn completed(&self, _: Peer, operation: u64) -> Result<(), RmaError> {
        self.ended.store(operation, Ordering::Release);
        Ok(())
    }

    fn deliver(&self, delivery: Delivery<'_>) -> Result<(), RmaError> {
        panic!("{delivery:?}")
    }
}

/// Goal: a put whose completion was told is visible to whoever looks, at a target that takes part by nothing but the polls of its
/// agent. Method: one word of a page or all of it, of changing values, compared each time.
fn puts_are_visible(provider: &str, puts: u64) {
    if skipped("puts_are_visible", provider) {
        return;
    }
    let conduits = conduits(&Layout::blocks(2, 2), provider);
    let (origin, target) = (&conduits[0], &conduits[1]);
    let (mine, theirs) = (Memory::new(), Memory::new());
    let done = AtomicBool::new(false);
    let deadline = Instant::now() + BOUND;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                target.poll(&theirs, Traffic::Everything).unwrap();
            }
        });
        let _done = Done(&done);
        for operation in 1..=puts {
            let bytes = match operation % 64 {
                0 => BYTES,
                1..4 => 4096,
                _ => 8,
            };
            let offset = (operation as usize * 64) % (BYTES - bytes + 1) / 8 * 8;
            let value = operation.to_le_bytes().repeat(bytes / 8);
            let place = Place { owner: Peer(1), region: RegionId::SEGMENT, offset: offset as u64 };
            while origin.start_put(Peer(1), place, Source::of(&value), false, operation).unwrap()
                == Sent::Busy
            {
                origin.poll(&mine, Traffic::Everything).unwrap();
                assert!(Instant::now() < deadline, "no room for put {operation}");
            }
            while mine.ended.load(Ordering::Acquire) != operation {
                origin.poll(&mine, Traffic::Everything).unwrap();
                assert!(Instant::now() < deadline, "put {operation} does not end");
            }
            let mut found = vec![0; bytes];
            theirs.region.read(offset, &mut found);
            assert!(found == value, "put {operation} of {bytes} bytes is complete, and not visible");
        }
    });
}

struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn puts_are_visible_when_they_are_complete() {
    puts_are_visible("tcp;ofi_rxm", 5_000);
}

#[test]
#[ignore = "takes long; .ci/run runs it in its section on the ofi conduit, with libfabric installed"]
fn a_million_puts_are_visible() {
    for (provider, puts) in [("shm", 1_000_000), ("tcp;ofi_rxm", 1_000_000), ("net", 1_000_000)] {
        let begun = Instant::now();
        puts_are_visible(provider, puts);
        println!("{provider}: {puts} puts in {:?}", begun.elapsed());
    }
}

/// The other process of [`a_killed_peer_is_lost_soon`]: no test of its own.
#[test]
fn other_process() {
    let Ok(parent) = std::env::var("VGAS_TEST_OFI_PARENT") else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mine = listener.local_addr().unwrap();
    println!("\nlistens at {mine}");
    let conduit = pair_of(1, listener, [parent.parse().unwrap(), mine]);
    let memory = Memory::new();
    // Until it is killed.
    loop {
        conduit.poll(&memory, Traffic::Everything).unwrap();
    }
}

/// The conduit of a rank of two, each in a process.
fn pair_of(me: u32, listener: TcpListener, [first, second]: [SocketAddr; 2]) -> OfiConduit {
    let (layout, key) = (Layout::blocks(2, 2), JobKey::from_bytes([7; 32]));
    let addresses = vec![first, second, first, second];
    let spec = TcpSpec { layout, me: Peer(me), key, listener, addresses };
    OfiConduit::new(spec, OfiOptions { providers: vec!["tcp;ofi_rxm".into()] }).unwrap()
}

/// Goal: a process that is killed while puts to it are in flight is reported within two seconds, and stays lost.
#[test]
fn a_killed_peer_is_lost_soon() {
    if skipped("a_killed_peer_is_lost_soon", "tcp;ofi_rxm") {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mine = listener.local_addr().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "other_process", "--nocapture"])
        .env("VGAS_TEST_OFI_PARENT", mine.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(|line| line.unwrap());
    let theirs =
        lines.into_iter().find_map(|line| line.strip_prefix("listens at ").map(str::to_owned)).unwrap();
    let conduit = pair_of(0, listener, [mine, theirs.parse().unwrap()]);
    let memory = Memory::new();
    let (deadline, mut operation, mut killed) = (Instant::now() + BOUND, 0, None);
    let error = loop {
        let place = Place { owner: Peer(1), region: RegionId::SEGMENT, offset: 0 };
        let started = conduit.start_put(Peer(1), place, Source::of(&[1; 4096]), false, operation + 1);
        let result = started.and_then(|sent| {
            operation += u64::from(sent == Sent::Accepted);
            conduit.poll(&memory, Traffic::Everything)
        });
        match result {
            Err(error) => break error,
            Ok(_) if operation == 100 && killed.is_none() => {
                child.kill().unwrap();
                killed = Some(Instant::now());
            }
            Ok(_) => assert!(Instant::now() < deadline, "nobody misses the other process"),
        }
    };
    child.wait().unwrap();
    assert!(matches!(error, RmaError::PeerLost { peer: Peer(1), .. }), "{error}");
    let elapsed = killed.expect("it was killed").elapsed();
    assert!(elapsed < Duration::from_secs(2), "{elapsed:?}");
    let place = Place { owner: Peer(1), region: RegionId::SEGMENT, offset: 0 };
    let again = conduit.start_put(Peer(1), place, Source::of(&[1; 8]), false, operation + 1);
    assert!(matches!(again, Err(RmaError::PeerLost { peer: Peer(1), .. })), "{again:?}");
}
