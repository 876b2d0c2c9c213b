//! Errors that C has no way to be told of: the job ends, saying why.

use crate::crash;
use crate::exit;
use std::fmt::Display;
use vgas::Error;

/// Ends the job with a line that names this rank and the reason: a mistake of the client. The launcher
/// reports it.
#[cold]
pub(crate) fn fatal(reason: impl Display) -> ! {
    crash::trace();
    exit::abort_job(reason, 1, false)
}

/// Ends the job because of an error of the library. The loss of a peer is reported to the launcher only, which knows
/// what happened there, and whether the job is ending anyway.
#[cold]
pub(crate) fn fail(error: impl Into<Error>) -> ! {
    let error = error.into();
    match error.is_complaint() {
        true => exit::abort_job(&error, 1, true),
        false => fatal(error),
    }
}
