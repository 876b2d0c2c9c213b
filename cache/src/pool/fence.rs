//! Who pays for the order between users and the agent: the agent, by `membarrier`, or both, by fences.

use super::PoolError;
use rustix::thread::{
    CpuSet, MembarrierCommand, MembarrierQuery, membarrier, membarrier_query, sched_getaffinity,
    sched_setaffinity,
};
use std::sync::atomic::{Ordering, fence};

/// How the handshake of [`crate::pool`] is ordered; the creator of a pool chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fences {
    /// `membarrier` where the kernel offers it, else fences.
    Detect,
    /// Fences on both sides, always: for tests, and to measure what the other way saves.
    Symmetric,
}

/// Whether the agent can run barriers on all processors. Tried, not only asked: a filter may allow the question alone.
pub(super) fn asymmetric_available() -> bool {
    membarrier_query()
        .contains(MembarrierQuery::GLOBAL_EXPEDITED | MembarrierQuery::REGISTER_GLOBAL_EXPEDITED)
        && membarrier(MembarrierCommand::GlobalExpedited).is_ok()
}

/// Asks the kernel to include this process in the agent's barriers. False: its threads must use fences themselves.
pub(super) fn register() -> bool {
    membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok()
}

/// The agent's step between setting HOLD and reading the slots.
pub(super) fn agent_barrier(asymmetric: bool) -> Result<(), PoolError> {
    // For clients that could not register and use fences: theirs needs a partner.
    fence(Ordering::SeqCst);
    if asymmetric {
        membarrier(MembarrierCommand::GlobalExpedited)
            .map_err(|e| PoolError::System { what: "order memory with membarrier", source: e.into() })?;
    }
    Ok(())
}

/// Runs the calling thread once on every processor it may use.
///
/// The kernel knows for each processor whether what runs there takes part in the barriers, and learns it again when
/// another address space begins to run. A processor that has run a process *before* it registered and idles since keeps
/// the old answer when the same process comes back, because the address space did not change: the barrier would pass it
/// by. So after a process has registered, a thread of *another* process visits every processor.
pub(super) fn visit_processors() -> Result<(), PoolError> {
    let failed = |e: rustix::io::Errno| PoolError::System { what: "visit every processor", source: e.into() };
    let all = sched_getaffinity(None).map_err(failed)?;
    for processor in (0..CpuSet::MAX_CPU).filter(|&processor| all.is_set(processor)) {
        let mut one = CpuSet::new();
        one.set(processor);
        // A processor that has been taken away meanwhile cannot run the process either.
        let _ = sched_setaffinity(None, &one);
    }
    sched_setaffinity(None, &all).map_err(failed)
}
