//! Progress of a long product: what is reported, and a bar for a terminal.

use indicatif::{ProgressBar, ProgressStyle};
use std::cell::RefCell;

/// Phase of the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Reading the inputs; counted in bytes.
    Load,
    /// Multiplying; counted in panels.
    Compute,
    /// Writing the output; counted in bytes.
    Write,
    /// Checking the output; counted in bytes.
    Verify,
}

impl Phase {
    /// As a word of a fixed width.
    fn word(self) -> &'static str {
        match self {
            Phase::Load => "load   ",
            Phase::Compute => "compute",
            Phase::Write => "write  ",
            Phase::Verify => "verify ",
        }
    }
}

/// Takes reports of progress: the phase, how much of it this rank has done, and how much it has to do.
pub type Report<'a> = dyn Fn(Phase, u64, u64) + 'a;

/// A progress bar on standard error, if that is a terminal; silent otherwise. It shows rank 0's part, which is as
/// large as the others', and vanishes when dropped.
pub struct TerminalProgress {
    bar: ProgressBar,
    phase: RefCell<Option<Phase>>,
}

impl TerminalProgress {
    /// A bar for this rank, which only rank 0 shows.
    pub fn new(rank: usize) -> Self {
        let bar = if rank == 0 { ProgressBar::new(0) } else { ProgressBar::hidden() };
        // A wrong template would be this file's mistake; then the default looks will do.
        if let Ok(style) =
            ProgressStyle::with_template("{msg} {bar:40} {percent:>3} %  {elapsed} (left: {eta})")
        {
            bar.set_style(style);
        }
        Self { bar, phase: RefCell::new(None) }
    }

    /// Shows a report.
    pub fn report(&self, phase: Phase, done: u64, total: u64) {
        if self.phase.replace(Some(phase)) != Some(phase) {
            self.bar.reset();
            self.bar.set_message(phase.word());
        }
        self.bar.set_length(total);
        self.bar.set_position(done);
    }
}

impl Drop for TerminalProgress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
