//! Clients that use GASNet as published runtimes over it do, all of its parts at once: the habits of a runtime for symmetric
//! memory, and of one for tasks.

mod support;

use support::{Bench, Conduit, Mode, tiered};

/// Runs a client on pinned segments, and on tiered ones with a cache that holds a part of what is in use; on one node and on two.
fn everywhere(name: &str) {
    let bench = Bench::new();
    for conduit in [Conduit::Smp, Conduit::Tcp] {
        let program = bench.program(name, conduit, Mode::Par);
        for (ranks, nodes) in [(1, "1"), (2, "1"), (2, "2"), (4, "2")] {
            program.pass(ranks, &[("VGASNET_NODES", nodes)], &[]);
            program.pass(ranks, &tiered(nodes), &[]);
        }
    }
}

/// Goal: a thread that polls all the time beside those that compute disturbs nothing; waits end when memory changes that
/// others put into; an update by messages under a lock is never lost; the way out may still communicate.
#[test]
fn symmetric_memory() {
    everywhere("shmem");
}

/// Goal: handlers, the tasks that they queue, and threads that compute may all communicate at once; buffers may be written again
/// as soon as their reader says so; any thread may end the job.
#[test]
fn tasks() {
    everywhere("tasks");
}
