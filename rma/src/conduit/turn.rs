//! The turn to poll: one thread has it at a time, and may enter again from inside the handlers that its poll
//! runs.

#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use vgas_shm::biased::this_thread;

#[derive(Default)]
pub(in crate::conduit) struct Turn {
    /// The polling thread, 0 for none.
    owner: AtomicUsize,
    /// Number of its entries; touched by the owner only.
    depth: AtomicU32,
}

/// Ends the turn when dropped.
pub(in crate::conduit) struct TurnGuard<'a> {
    turn: &'a Turn,
    /// Taken from inside a handler.
    pub(in crate::conduit) nested: bool,
}

impl Turn {
    /// Takes the turn, unless another thread has it.
    #[inline]
    pub(in crate::conduit) fn take(&self) -> Option<TurnGuard<'_>> {
        let me = this_thread();
        let nested = self.owner.load(Ordering::Relaxed) == me;
        if !nested && self.owner.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return None;
        }
        self.depth.store(self.depth.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        Some(TurnGuard { turn: self, nested })
    }

    /// Returns true if this thread is inside a handler.
    pub(in crate::conduit) fn is_mine(&self) -> bool {
        self.owner.load(Ordering::Relaxed) == this_thread()
    }
}

impl Drop for TurnGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        let depth = self.turn.depth.load(Ordering::Relaxed) - 1;
        self.turn.depth.store(depth, Ordering::Relaxed);
        if depth == 0 {
            self.turn.owner.store(0, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_at_a_time_but_nested() {
        let turn = Turn::default();
        let outer = turn.take().unwrap();
        assert!(!outer.nested && turn.is_mine());
        let inner = turn.take().unwrap();
        assert!(inner.nested);
        drop(inner);
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(turn.take().is_none() && !turn.is_mine()));
        });
        drop(outer);
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(turn.take().is_some()));
        });
        assert!(!turn.is_mine());
    }
}
