//! Errors that C has no way to be told of: the job ends, saying why.

use crate::exit;
use std::fmt::Display;

/// Ends the job with a line that names this rank and the reason.
#[cold]
pub(crate) fn fatal(reason: impl Display) -> ! {
    let who = crate::job::current().map_or_else(String::new, |job| format!("{}: ", job.runtime.rank()));
    eprintln!("*** FATAL ERROR: {who}{reason}");
    exit::abort_job(&reason.to_string(), 1)
}
