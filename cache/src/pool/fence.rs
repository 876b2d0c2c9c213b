//! Who pays for the order between users and the agent: the agent, by `membarrier`, or both, by fences.

use super::PoolError;
use rustix::thread::{MembarrierCommand, MembarrierQuery, membarrier, membarrier_query};
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
