//! Locks that outlive a panic.

#![forbid(unsafe_code)]

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex. Data behind the mutexes of this crate is consistent wherever a panic could leave it, so a
/// poisoned one is as good as any.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
