//! What the daemons of nodes log where no `vgas` command has started them: what `VGAS_LOG` asks for, to standard error. Errors of
//! a rank point there ("see the log of that node").

use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

/// What is to be logged.
///
/// # Errors
/// When `VGAS_LOG` is no such thing.
pub(crate) fn wanted() -> Result<EnvFilter, String> {
    let wanted = std::env::var("VGAS_LOG").unwrap_or_else(|_| "off".into());
    EnvFilter::try_new(&wanted).map_err(|error| {
        format!("VGAS_LOG is {wanted:?}: {error}; write a level such as info, or vgas_cache=debug")
    })
}

/// Begins to log, in a process that is not the client's. What cannot be read was refused by the launcher ([`wanted`]).
pub(crate) fn start() {
    let Ok(filter) = wanted() else { return };
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .without_time()
        .with_target(false)
        // It would panic where standard error cannot be written.
        .log_internal_errors(false)
        .init();
}
