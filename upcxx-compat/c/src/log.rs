//! Logging of nodes' daemons without a `vgas` command that has started them: by `VGAS_LOG`, to standard
//! error. Errors of a rank point there ("see the log of that node").

use std::io::IsTerminal;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Returns the targets to log.
///
/// # Errors
/// When `VGAS_LOG` is no such thing.
pub(crate) fn wanted() -> Result<Targets, String> {
    let wanted = std::env::var("VGAS_LOG").unwrap_or_else(|_| "off".into());
    wanted.parse::<Targets>().map_err(|error| {
        format!("VGAS_LOG is {wanted:?}: {error}; write a level such as info, or vgas_cache=debug")
    })
}

/// Begins to log, in a process that is not the client's. Invalid values were refused by the launcher
/// ([`wanted`]).
pub(crate) fn start() {
    let Ok(filter) = wanted() else { return };
    let lines = fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .without_time()
        .with_target(false)
        // It would panic where standard error cannot be written.
        .log_internal_errors(false);
    tracing_subscriber::registry().with(filter).with(lines).init();
}
