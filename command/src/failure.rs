//! Failure of a command: one line for the error, one hint for the remedy, one exit status.

use crate::cli::Cli;
use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::fmt::Display;
use std::process::ExitCode;
use vgas::config::ConfigError;
use vgas::say;
use vgas_bench::registry::{BenchmarkError, CANNOT_RUN, CannotRun};

/// A failed command.
#[derive(Debug)]
pub struct Failure {
    /// The error, in one line.
    message: String,
    /// The remedy.
    hint: Option<String>,
    /// The exit status.
    status: u8,
    /// Not a failure but something to print: help, version.
    answer: Option<clap::Error>,
}

impl Failure {
    /// Something did not work.
    pub fn new(message: impl Display) -> Self {
        Self { message: message.to_string(), hint: None, status: 1, answer: None }
    }

    /// A failure for wrong input of the user.
    pub fn usage(message: impl Display) -> Self {
        Self { status: 2, ..Self::new(message) }
    }

    /// A benchmark did not come to its figures. That it lacks something here has a status of its own.
    pub fn of_benchmark(name: &str, error: &BenchmarkError) -> Self {
        let status = if error.is::<CannotRun>() { CANNOT_RUN } else { 1 };
        Self { status, ..Self::new(format!("{name}: {error}")) }
    }

    /// Standard output could not be written.
    pub fn unprinted(error: &std::io::Error) -> Self {
        Self::new(format!("cannot write to standard output: {error}"))
    }

    /// Returns the error, in one line.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// With a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Display) -> Self {
        self.hint = Some(hint.to_string());
        self
    }

    /// Prints it and gives the exit status.
    pub fn report(self) -> ExitCode {
        if let Some(answer) = self.answer {
            return match answer.print() {
                // A reader that has gone away (`vgas --help | head`) is no failure.
                Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
                    Self::unprinted(&error).report()
                }
                _ => ExitCode::SUCCESS,
            };
        }
        say::line(format_args!("vgas: {}", self.message));
        if let Some(hint) = self.hint {
            say::line(format_args!("hint: {hint}"));
        }
        ExitCode::from(self.status)
    }

    #[cfg(test)]
    pub fn text(&self) -> String {
        format!("{} | {} | {}", self.message, self.hint.as_deref().unwrap_or("-"), self.status)
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        let failure = Self::usage(&error);
        match error.hint() {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

impl From<clap::Error> for Failure {
    fn from(error: clap::Error) -> Self {
        match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
                Self { answer: Some(error), ..Self::new("") }
            }
            ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
                Self::usage("no command").hint("`vgas --help` lists the commands")
            }
            _ => {
                let (message, hint) = condense(&without_hidden(error).render().to_string());
                let failure = Self::usage(message);
                match hint {
                    Some(hint) => failure.hint(hint),
                    None => failure,
                }
            }
        }
    }
}

/// The error, without suggestions of commands that are not for users.
fn without_hidden(mut error: clap::Error) -> clap::Error {
    let command = Cli::command();
    let is_hidden = |name: &String| command.find_subcommand(name).is_some_and(clap::Command::is_hide_set);
    let suggested = match error.get(ContextKind::SuggestedSubcommand) {
        Some(ContextValue::Strings(names)) => names.clone(),
        Some(ContextValue::String(name)) => vec![name.clone()],
        _ => return error,
    };
    let left: Vec<String> = suggested.into_iter().filter(|name| !is_hidden(name)).collect();
    let value = if left.is_empty() { ContextValue::None } else { ContextValue::Strings(left) };
    error.insert(ContextKind::SuggestedSubcommand, value);
    error
}

/// The first paragraph of clap's message in one line; its tip, or the usage, as the hint.
fn condense(rendered: &str) -> (String, Option<String>) {
    let mut paragraphs = rendered.split("\n\n");
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let first = words(paragraphs.next().unwrap_or_default());
    let message = first.strip_prefix("error: ").unwrap_or(&first).to_owned();
    let rest: Vec<String> = paragraphs.map(words).collect();
    let tip = rest.iter().find_map(|text| text.strip_prefix("tip: "));
    let usage =
        rest.iter().find_map(|text| text.strip_prefix("Usage: ").map(|usage| format!("usage: {usage}")));
    (message, tip.map(str::to_owned).or(usage))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn refused(words: &[&str]) -> String {
        Failure::from(Cli::try_parse_from(words).expect_err("must be refused")).text()
    }

    #[test]
    fn what_cannot_run_here_has_a_status_of_its_own() {
        let lacking: BenchmarkError = CannotRun("no io_uring".into()).into();
        assert_eq!(Failure::of_benchmark("b", &lacking).text(), "b: cannot run here: no io_uring | - | 77");
        assert_eq!(Failure::of_benchmark("b", &"why".into()).text(), "b: why | - | 1");
    }

    #[test]
    fn a_wrong_command_line_is_one_line_and_a_hint() {
        let text = refused(&["vgas", "rum", "-n", "2"]);
        assert!(
            text.starts_with("unrecognized subcommand 'rum' | a similar subcommand exists: 'run'"),
            "{text}"
        );
        for near_hidden in ["nope", "nod", "neighbor"] {
            let text = refused(&["vgas", near_hidden]);
            assert!(!text.contains("node") && !text.contains("neighbour"), "{text}");
        }
        let text = refused(&["vgas", "run", "-n", "two", "--", "prog"]);
        assert!(text.starts_with("invalid value 'two' for '--ranks <RANKS>'"), "{text}");
        assert!(text.ends_with("| 2") && !text.contains('\n'), "{text}");
        for wrong in ["-1", "1.5", "", "99999999999"] {
            for flag in ["-n", "--ranks", "--nodes"] {
                let text = refused(&["vgas", "run", flag, wrong, "--", "prog"]);
                assert!(text.starts_with("invalid value '"), "{text}");
                assert!(text.contains("write a whole number from 1 on | - | 2"), "{text}");
            }
        }
        let text = refused(&["vgas", "run", "prog"]);
        assert!(
            text.starts_with("the following required arguments were not provided: --ranks <RANKS>"),
            "{text}"
        );
        assert!(text.contains("usage: vgas run"), "{text}");
    }
}
