//! A benchmark as a process group, with a bound on its time, that ends when this process is told to.

use crate::failure::Failure;
use rustix::process::{Pid, Signal, kill_process_group};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Handle;
use std::cell::Cell;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// The status of a command that was told to end, as shells have it for Ctrl-C.
pub const STATUS_TOLD: u8 = 130;

/// Its end.
pub enum End {
    /// By itself: its status, if it has one, and its output.
    Done { status: Option<i32>, output: Vec<u8>, said: String },
    /// It was ended, because it had taken too long.
    Late,
    /// It was ended, because this process was told to end.
    Told,
}

enum Event {
    /// The command of this number.
    Ended(u64, std::io::Result<Output>),
    Told,
}

/// Ctrl-C and its like, from now on until it is dropped.
pub struct Signals {
    sender: Sender<Event>,
    events: Receiver<Event>,
    handle: Handle,
    /// Until a group that was told to end has to have ended.
    grace: Duration,
    /// Commands so far.
    commands: Cell<u64>,
}

impl Signals {
    pub fn catch() -> Result<Self, Failure> {
        let failed = |error| Failure::new(format!("cannot catch signals: {error}"));
        let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(failed)?;
        let (sender, events) = channel();
        let handle = signals.handle();
        let told = sender.clone();
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(move || {
                for _ in signals.forever() {
                    if told.send(Event::Told).is_err() {
                        return;
                    }
                }
            })
            .map_err(failed)?;
        Ok(Self { sender, events, handle, grace: Duration::from_secs(10), commands: Cell::new(0) })
    }

    /// Returns the next event, by then, of a command or for this process: not of earlier commands, which were
    /// given up.
    fn next(&self, command: u64, deadline: Instant) -> Option<Event> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.events.recv_timeout(left).ok()? {
                Event::Ended(other, _) if other != command => {}
                event => return Some(event),
            }
        }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.handle.close();
    }
}

/// Runs a command to the end or the limit, in a process group of its own, and takes what it writes.
pub fn run(mut command: Command, limit: Duration, signals: &Signals) -> Result<End, Failure> {
    let failed = |error| Failure::new(format!("cannot start a benchmark: {error}"));
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().map_err(failed)?;
    let group = Pid::from_child(&child);
    let number = signals.commands.get() + 1;
    signals.commands.set(number);
    let sender = signals.sender.clone();
    let reader = std::thread::Builder::new().name("rows".into()).spawn(move || {
        let _ = sender.send(Event::Ended(number, child.wait_with_output()));
    });
    if let Err(error) = reader {
        let _ = kill_process_group(group, Signal::KILL);
        return Err(failed(error));
    }
    match signals.next(number, Instant::now() + limit) {
        Some(Event::Ended(_, output)) => output.map(done).map_err(failed),
        Some(Event::Told) => Ok(ended(group, number, signals, End::Told)),
        None => Ok(ended(group, number, signals, End::Late)),
    }
}

fn done(output: Output) -> End {
    End::Done {
        status: output.status.code(),
        output: output.stdout,
        said: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Ends the group: asks first, so that jobs end their ranks; and does not ask again.
fn ended(group: Pid, number: u64, signals: &Signals, end: End) -> End {
    let _ = kill_process_group(group, Signal::TERM);
    let deadline = Instant::now() + signals.grace;
    // Told again, by an impatient user.
    while let Some(Event::Told) = signals.next(number, deadline) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    // Processes that have left their parent are still of the group.
    let _ = kill_process_group(group, Signal::KILL);
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a command that is given up, and ends only afterwards, is not taken for the end of the next one.
    #[test]
    fn each_command_ends_by_itself() {
        let mut signals = Signals::catch().unwrap();
        signals.grace = Duration::ZERO;
        let shell = |what: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", what]);
            command
        };
        let stubborn = shell("trap '' TERM; echo late; sleep 30");
        assert!(matches!(run(stubborn, Duration::from_millis(200), &signals), Ok(End::Late)));
        for text in ["one", "two"] {
            let end = run(shell(&format!("echo {text}")), Duration::from_secs(60), &signals);
            let Ok(End::Done { output, .. }) = end else { panic!("{text} did not end") };
            assert_eq!(String::from_utf8_lossy(&output).trim(), text);
        }
    }
}
