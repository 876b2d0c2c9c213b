//! Clients that overwrite their own heap, and with it what this library keeps there.

mod support;

use support::{Bench, Conduit, Mode};

/// The threads of a rank that allocate while it works: the client's, and those that serve its conduit and its segment.
const THREADS: usize = 3;

/// Goal: however a client has spoilt its heap, the job ends soon, with the death of that rank: the C library's line about it, or one
/// of this library, and the launcher's; never in pages of panics, and never in a wait for ever. What happens to be left whole may
/// also end well. Where two threads of the rank meet the spoilt heap before either has ended the process, each has its line.
#[test]
fn a_spoilt_heap_ends_the_job_in_a_line() {
    let bench = Bench::new();
    let program = bench.program("heap", Conduit::Tcp, Mode::Par);
    for kind in ["pinned", "tiered"] {
        for (how, reach) in [
            ("free", "8"),
            ("ones", "300"),
            ("ones", "5000"),
            ("zeros", "2000"),
            ("zeros", "20000"),
            ("some", "3000"),
            ("some", "30000"),
            ("some", "100000"),
        ] {
            let settings = [("VGASNET_NODES", "2"), ("VGAS_SEGMENT_KIND", kind)];
            let output = program.run(2, &settings, &[how, reach]);
            let error = String::from_utf8_lossy(&output.stderr);
            let what = format!("{kind} {how} {reach}: {}\n{error}", output.status);
            let lines: Vec<&str> = error.lines().collect();
            assert!(!error.contains("panicked") && lines.len() <= 1 + THREADS, "{what}");
            if !output.status.success() {
                // By the launcher, or by the rank itself, whose line is the only one then.
                assert!(lines.last().is_some_and(|line| line.starts_with("vgas: rank 0")), "{what}");
            }
        }
    }
}
