//! What the system gives to the ibv conduit, and what it takes of it: memory that may be locked, and the processor.

mod ibv_support;

use ibv_support::*;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use vgas_rma::conduit::conformance::Fabric;
use vgas_rma::conduit::ibv::{IbvConduit, IbvOptions};
use vgas_rma::conduit::{Conduit, Place, Sent};
use vgas_rma::endpoint::Endpoint;
use vgas_rma::message::Source;
use vgas_rma::{Layout, Peer, RegionId, RmaError};
use vgas_shm::Mapping;

/// The process whose memory is limited; says how making a conduit ended. Does nothing when run as a test.
#[test]
fn limited_process() {
    if std::env::var_os("IBV_TEST_LIMITED").is_none() {
        return;
    }
    let bootstrap = bootstraps(&Layout::blocks(2, 2)).remove(0);
    match IbvConduit::new(bootstrap, IbvOptions::default()) {
        Ok(_) => println!("\nmade"),
        Err(error @ RmaError::LockedMemory { .. }) => println!("\nrefused: {error}"),
        Err(other) => println!("\nfailed: {other}"),
    }
}

/// The process whose own segment is so large; says how many copies a put out of it took. Does nothing when run as a test.
#[test]
fn limited_segment() {
    let Ok(bytes) = std::env::var("IBV_TEST_SEGMENT") else { return };
    let bytes = bytes.parse().unwrap();
    let both = pair(&IbvOptions::default());
    let [a, b] = &both;
    let own = Mapping::anonymous("own", bytes).unwrap();
    a.0.offer(RegionId::SEGMENT, own.span(0, bytes as usize));
    let (place, source) = (Place { owner: Peer(1), region: RegionId::SEGMENT, offset: 0 }, own.span(0, 8192));
    let put = || a.0.start_put(Peer(1), place, Source::of_span(&source), true, 1).unwrap() == Sent::Accepted;
    poll_until(&[a, b], "the put", put);
    poll_until(&[a], "its end", || a.1.completed.load(Ordering::SeqCst) == 1);
    println!("\ncopies: {}", a.0.counts().copied);
}

/// A process of this program with this limit of locked memory, without the privilege to ignore it; what it says.
fn limited(bytes: u64, test: &str, (variable, value): (&str, &str)) -> Option<String> {
    let mut command = Command::new("prlimit");
    command.args([&format!("--memlock={bytes}:{bytes}"), "setpriv", "--bounding-set", "-ipc_lock"]);
    command.arg(std::env::current_exe().unwrap()).args(["--exact", test, "--nocapture"]);
    match command.env(variable, value).output() {
        Ok(output) => Some(String::from_utf8_lossy(&output.stdout).into_owned()),
        Err(error) => {
            println!("skipped: no prlimit ({error})");
            None
        }
    }
}

/// Goal: the own segment is used where it lies as long as that leaves others at least as much memory to be locked;
/// otherwise its bytes are copied, and nothing fails.
#[test]
fn a_segment_that_is_too_large_to_lock_is_copied() {
    if skipped("a_segment_that_is_too_large_to_lock_is_copied") {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: a_segment_that_is_too_large...: only root can choose the limit");
    }
    for (segment, copies) in [("67108864", 0), ("201326592", 1)] {
        let Some(said) = limited(256 << 20, "limited_segment", ("IBV_TEST_SEGMENT", segment)) else { return };
        assert!(said.contains(&format!("\ncopies: {copies}\n")), "a segment of {segment} bytes: {said}");
    }
}

/// Goal: where the system does not let a process lock what a card needs, the error names the limit and the command that
/// raises it. Method: a process of root's without the privilege to ignore the limit; with enough of it, all is well.
#[test]
fn memory_that_may_not_be_locked_is_refused_with_the_remedy() {
    if skipped("memory_that_may_not_be_locked_is_refused_with_the_remedy") {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        println!("skipped: memory_that_may_not_be_locked...: only root can choose the limit");
        return;
    }
    let made_with = |bytes| limited(bytes, "limited_process", ("IBV_TEST_LIMITED", "1"));
    let Some(little) = made_with(1 << 20) else { return };
    assert!(little.contains("refused: "), "{little}");
    assert!(little.contains("this process may lock 1048576"), "{little}");
    assert!(little.contains("ulimit -l unlimited"), "{little}");
    let Some(enough) = made_with(256 << 20) else { return };
    assert!(enough.contains("\nmade"), "{enough}");
}

/// What this thread has had of the processor.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Goal: who waits for something that takes long sleeps (the card wakes it by an event) instead of looking again and
/// again. What it may take is far more than falling asleep costs, and far less than looking would.
#[test]
fn waiting_leaves_the_processor_to_others() {
    if skipped("waiting_leaves_the_processor_to_others") {
        return;
    }
    const WAIT: Duration = Duration::from_secs(2);
    let fabric = IbvFabric::default();
    let layout = fabric.layout(2);
    let endpoints: Vec<_> =
        fabric.connect(&layout, 1 << 20).into_iter().map(|spec| Endpoint::new(spec).unwrap()).collect();
    for endpoint in &endpoints {
        if endpoint.rank().is_none() {
            endpoint.serve_segments().unwrap();
        }
        endpoint.open();
    }
    std::thread::scope(|scope| {
        for endpoint in &endpoints {
            scope.spawn(move || {
                if endpoint.rank().is_some() {
                    // Afterwards there are connections, over which nothing comes.
                    endpoint.attach_segment(4096).unwrap();
                }
                let (began, before) = (Instant::now(), processor_time());
                assert!(!endpoint.wait_until(Some(began + WAIT), || false).unwrap());
                let used = processor_time() - before;
                assert!(used < WAIT / 4, "{endpoint:?} used {used:?} of {WAIT:?} to wait");
            });
        }
    });
}
