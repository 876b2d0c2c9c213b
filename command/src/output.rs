//! Standard output and the log.

use crate::failure::Failure;
use serde::Serialize;
use std::io::IsTerminal;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use vgas::say;

/// Prints to standard output. A reader that has gone away (`vgas info | head`) is no failure.
pub fn print(text: &str) -> Result<u8, Failure> {
    print_bytes(text.as_bytes())
}

/// As [`print()`], for bytes.
pub fn print_bytes(bytes: &[u8]) -> Result<u8, Failure> {
    say::print_bytes(bytes).map(|()| 0).map_err(|error| Failure::unprinted(&error))
}

/// Prints a value as JSON, for machines.
pub fn print_json(value: &impl Serialize) -> Result<u8, Failure> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Failure::new(format!("JSON: {error}")))?;
    print(&format!("{text}\n"))
}

/// Sends warnings, or the targets of `VGAS_LOG`, to standard error.
pub fn start_log() -> Result<(), Failure> {
    let wanted = std::env::var("VGAS_LOG").unwrap_or_else(|_| "warn".into());
    let filter = wanted.parse::<Targets>().map_err(|error| {
        Failure::usage(format!("`VGAS_LOG={wanted}` is refused: {error}"))
            .hint("write a level such as `info`, or `vgas_cache=debug`")
    })?;
    let lines = fmt::layer()
        .with_writer(std::io::stderr)
        // Colours are for terminals, not for files and pipes.
        .with_ansi(std::io::stderr().is_terminal())
        .without_time()
        .with_target(false)
        // It would panic where standard error cannot be written.
        .log_internal_errors(false);
    tracing_subscriber::registry().with(filter).with(lines).init();
    Ok(())
}
