//! A benchmark as a process group, with a bound on its time, that ends when this process is told to.

use crate::failure::Failure;
use rustix::process::{Pid, Signal, kill_process_group};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Handle;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// The status of a command that was told to end, as shells have it for Ctrl-C.
pub const STATUS_TOLD: u8 = 130;

/// Until a group that was told to end has to have ended.
const GRACE: Duration = Duration::from_secs(10);

/// How it ended.
pub enum End {
    /// By itself: its status, if it has one, and what it wrote.
    Done { status: Option<i32>, output: Vec<u8>, said: String },
    /// It was ended, because it had taken too long.
    Late,
    /// It was ended, because this process was told to end.
    Told,
}

enum Event {
    Ended(std::io::Result<Output>),
    Told,
}

/// Ctrl-C and its like, from now on until it is dropped.
pub struct Signals {
    sender: Sender<Event>,
    events: Receiver<Event>,
    handle: Handle,
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
        Ok(Self { sender, events, handle })
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
    let sender = signals.sender.clone();
    let reader = std::thread::Builder::new().name("rows".into()).spawn(move || {
        let _ = sender.send(Event::Ended(child.wait_with_output()));
    });
    let reader = reader.map_err(|error| {
        let _ = kill_process_group(group, Signal::KILL);
        failed(error)
    })?;
    let end = match signals.events.recv_timeout(limit) {
        Ok(Event::Ended(output)) => output.map(done).map_err(failed),
        Ok(Event::Told) => Ok(ended(group, signals, End::Told)),
        Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
            Ok(ended(group, signals, End::Late))
        }
    };
    // It has sent what it has.
    let _ = reader.join();
    end
}

fn done(output: Output) -> End {
    End::Done {
        status: output.status.code(),
        output: output.stdout,
        said: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Ends the group: asks first, so that jobs end their ranks; and does not ask again.
fn ended(group: Pid, signals: &Signals, end: End) -> End {
    let _ = kill_process_group(group, Signal::TERM);
    let deadline = std::time::Instant::now() + GRACE;
    loop {
        let left = deadline.saturating_duration_since(std::time::Instant::now());
        match signals.events.recv_timeout(left) {
            Ok(Event::Ended(_)) => break,
            // Again, of someone who is in a hurry.
            Ok(Event::Told) => {
                let _ = kill_process_group(group, Signal::KILL);
            }
            Err(_) => {
                let _ = kill_process_group(group, Signal::KILL);
                break;
            }
        }
    }
    // What has left its parent is of the group still.
    let _ = kill_process_group(group, Signal::KILL);
    end
}
