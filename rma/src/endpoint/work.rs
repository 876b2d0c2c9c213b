//! Operations of layers above the endpoint, which it advances.

#![forbid(unsafe_code)]

#[cfg(doc)]
use super::Endpoint;
use std::os::fd::BorrowedFd;

/// Operations of a layer above the endpoint that were started, and go on by steps.
pub trait Work: Send + Sync {
    /// Goes on with what is in flight, without waiting or polling; returns how many operations have ended: the endpoint counts
    /// them. Called by any thread, also by several at a time.
    fn advance(&self, extent: Extent) -> usize;

    /// Returns true if some operation waits for a message, not only for shared memory.
    fn awaits_messages(&self) -> bool;

    /// A descriptor that is readable when something can go on without any message; the same from when there is one, which is to be
    /// told by [`Endpoint::notify_local`].
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// The endpoint has failed: what is in flight will not go on. Tells threads that wait elsewhere than in
    /// the endpoint; may be called in a handler.
    fn failed(&self) {}
}

/// Share of the [`Work`] that a call is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Some operations, others at the next call; none where another thread is at it.
    Some,
    /// Each of them: the caller sleeps next, and must have looked after all.
    All,
}
