//! Segments as runtimes use them, larger than the cache, under traffic that is checked put by put.

mod support;

use support::{Bench, Conduit, Mode, tiered};

/// A failure shows the seed; VGAS_TEST_SEED replays it.
fn seed() -> String {
    std::env::var("VGAS_TEST_SEED").unwrap_or_else(|_| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(1, |now| now.subsec_nanos()).to_string()
    })
}

/// Segments of this many bytes are eight times as large as the cache of [`tiered`].
const SEGMENT_BYTES: &str = "8388608";

/// Runs random puts of all forms; each is read again, after evictions or from them.
fn traffic(ranks: u32, nodes: &'static str, puts: &str) {
    let (bench, seed) = (Bench::new(), seed());
    let program = bench.program("traffic", Conduit::Tcp, Mode::Par);
    let text = program.pass(ranks, &tiered(nodes), &[puts, &seed, SEGMENT_BYTES]);
    assert!(text.contains("puts, each read again"), "{text}");
}

/// Goal: of all puts of several ranks into the same small cache none is lost: on one node, and between two whose caches
/// take pages from each other.
#[test]
fn every_put_is_found() {
    traffic(2, "1", "300000");
    traffic(4, "2", "100000");
}

/// Goal: the same for millions.
#[test]
#[ignore = "takes a minute; .ci/run runs it among the slower tests (cargo test -- --ignored)"]
fn every_one_of_millions_of_puts_is_found() {
    traffic(2, "1", "1000000");
    traffic(2, "2", "1000000");
}

/// Goal: an allocator with its metadata in a segment far larger than the cache, whose objects others fill by their addresses
/// while the owner allocates, computes in place and frees.
#[test]
fn allocator() {
    let (bench, seed) = (Bench::new(), seed());
    let program = bench.program("allocator", Conduit::Smp, Mode::Seq);
    program.pass(2, &[], &["30", &seed, SEGMENT_BYTES]);
    program.pass(2, &tiered("1"), &["12", &seed, SEGMENT_BYTES]);
    let program = bench.program("allocator", Conduit::Tcp, Mode::Par);
    program.pass(3, &tiered("3"), &["8", &seed, SEGMENT_BYTES]);
}
