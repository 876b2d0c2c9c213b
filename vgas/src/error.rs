//! Errors, as users of the crate see them.

use crate::address::GlobalAddress;
use crate::lock::LockError;
use vgas_cache::CacheError;
use vgas_rma::RmaError;

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong in a job.
///
/// Its debug form is its text, because Rust prints that for an error that `main` returns.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Endpoints, conduits, start-up.
    #[error(transparent)]
    Rma(#[from] RmaError),
    /// Tiered segments.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// The configuration.
    #[error(transparent)]
    Config(#[from] crate::config::ConfigError),
    /// A lock.
    #[error("the lock at {} of {}: {why}", at.offset, at.partition())]
    Lock {
        /// The address.
        at: GlobalAddress,
        /// Why it cannot be reached.
        why: LockError,
    },
    /// A call that the interface forbids, or numbers that make no job.
    #[error("{0}")]
    Usage(String),
}

impl Error {
    /// Returns true if this is about another process, which may know more: see [`RmaError::is_complaint`].
    pub fn is_complaint(&self) -> bool {
        matches!(self, Self::Rma(error) | Self::Cache(CacheError::Rma(error)) if error.is_complaint())
    }
}

impl std::fmt::Debug for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // In one piece, which is one write where it is printed: ranks often fail together.
        f.write_str(&self.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_main_prints_of_an_error_is_a_sentence() {
        let error = Error::from(CacheError::from(RmaError::NotInJob));
        let sentence =
            "this program is not part of a job; start it with `vgas run -n 2 -- PROGRAM` (or srun, mpirun)";
        assert_eq!((format!("{error}"), format!("{error:?}")), (sentence.into(), sentence.into()));
    }
}
