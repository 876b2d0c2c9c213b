//! Why a lock cannot be reached.

use super::word::LockOwner;

/// Why a lock cannot be reached.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// Its writer has panicked: the protected data may be half changed.
    /// [`Runtime::clear_poison`](crate::Runtime::clear_poison) makes it usable again.
    #[error("{by} has panicked while it had it")]
    Poisoned {
        /// The writer.
        by: LockOwner,
    },
    /// This thread would wait for itself, for ever. The locks that it has should be given back, and taken in one order by all.
    #[error("waiting for it would never end: {0}")]
    Cycle(String),
    /// The eight bytes are no lock.
    #[error("its word is {0:#x}, which is no lock's: something else was written there")]
    NoLock(u64),
}
