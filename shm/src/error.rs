//! Refusals of the system, with remedies.

#![forbid(unsafe_code)]

use rustix::io::Errno;
use std::io;

/// Result of this crate.
pub type Result<T, E = ShmError> = std::result::Result<T, E>;

/// The system refuses shared memory.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what}: {source}{}", advice(.source))]
pub struct ShmError {
    /// The attempted operation.
    pub what: String,
    /// The system's reason.
    pub source: io::Error,
}

impl ShmError {
    pub(crate) fn new(what: impl Into<String>, errno: Errno) -> Self {
        Self { what: what.into(), source: errno.into() }
    }
}

/// Returns the remedy for a limit of the system: the end of a sentence, or nothing. For errors of every layer
/// that carry the system's reason.
pub fn advice(error: &io::Error) -> &'static str {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::MFILE) => "; raise the limit of open files (`ulimit -n`)",
        Some(Errno::NFILE) => "; raise the machine's limit of open files (fs.file-max)",
        Some(Errno::NOMEM) => {
            "; free memory, raise the limit (`ulimit -v`), or ask for less (cache.size, segment.pinned_max)"
        }
        Some(Errno::AGAIN) => "; raise the limit of processes (`ulimit -u`)",
        _ => "",
    }
}
