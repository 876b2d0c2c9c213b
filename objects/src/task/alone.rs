//! Conditions under which a thread that waits for a task must not run others meanwhile: they would lie above it on its stack, and
//! what they wait for might be done by it only afterwards.
//!
//! * *It holds a lock.* Another thread that wants it would wait for one that cannot continue before this one
//!   has ended.
//! * *Channels, conditions or barriers are used in this process.* The dependencies between tasks are then
//!   unknown.
//!
//! It still runs the task that it waits for, if that has not begun: it waits for its end in any case. For others a worker takes its place
//! ([`super::spare`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

thread_local! {
    /// Locks that were taken by this thread and not given back, by whatever thread.
    static HELD: Arc<AtomicU32> = Arc::default();
}

/// True if tasks of this process may wait for each other.
static MEET: AtomicBool = AtomicBool::new(false);

/// That a thread has a lock, until dropped, wherever that is.
#[derive(Debug)]
pub(crate) struct Holds(Arc<AtomicU32>);

impl Holds {
    pub fn one() -> Self {
        HELD.with(|held| {
            held.fetch_add(1, Ordering::Relaxed);
            Self(held.clone())
        })
    }
}

impl Drop for Holds {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A means by which tasks wait for each other has come into this process, or a task of a process that has
/// one: a task may find such a thing only when it is in flight.
pub(crate) fn meet() {
    if !MEET.load(Ordering::Relaxed) {
        MEET.store(true, Ordering::Relaxed);
    }
}

/// Returns true if tasks of this process may wait for each other.
pub(super) fn do_meet() -> bool {
    MEET.load(Ordering::Relaxed)
}

/// Returns true if this thread runs no task but the one that it waits for.
pub(super) fn is_alone() -> bool {
    do_meet() || HELD.with(|held| held.load(Ordering::Relaxed) > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a lock counts for the thread that has taken it, until it is given back, even by another.
    #[test]
    fn locks_count_where_they_were_taken() {
        let held = || HELD.with(|held| held.load(Ordering::Relaxed));
        let (one, other) = (Holds::one(), Holds::one());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(held(), 0);
                drop(one);
            });
        });
        assert_eq!(held(), 1);
        drop(other);
        assert_eq!(held(), 0);
    }
}
