//! What can go wrong, as users of the crate see it.

use vgas_cache::CacheError;
use vgas_rma::RmaError;

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong in a job.
#[derive(Debug, thiserror::Error)]
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
    /// A call that the interface forbids, or numbers that make no job.
    #[error("{0}")]
    Usage(String),
}
