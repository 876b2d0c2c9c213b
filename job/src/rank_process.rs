//! A rank as its node's daemon sees it: the process, the control socket, its streams.

#![forbid(unsafe_code)]

use super::control::{Arrival, Channel, Sender};
use super::message::{Exit, FromRank, Input, NodeDescription, Output, RankExit, Stream, ToRank, Why};
use super::pmi::{self, server::Client};
use super::surroundings::tells_of_a_rank;
use super::{STOP_TIMEOUT, system};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitOptions, kill_process_group, pidfd_open,
    pidfd_send_signal, waitid, waitpid,
};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Instant;
use vgas_rma::address::Rank;
use vgas_rma::error::{Result, RmaError};

/// Read at once from a stream of a rank.
pub(crate) const OUTPUT_BYTES: usize = 64 << 10;

/// One rank of this node.
pub(crate) struct RankProcess {
    /// For a guest, before the job has begun, the starter's number.
    pub(crate) rank: Rank,
    pid: Option<Pid>,
    /// `None` once the rank has closed it.
    pub(crate) channel: Option<Channel>,
    hold: Hold,
    /// Its PMI-1 client, if it has one.
    pub(crate) pmi: Option<Client>,
    /// Standard output and error, when they are forwarded and not at their end.
    pub(crate) outputs: [Option<OwnedFd>; 2],
    pub(crate) input: Option<RankInput>,
    pub(crate) progress: Progress,
    pub(crate) end_progress: EndProgress,
    /// Stopped by a signal, and not continued.
    pub(crate) stop: Suspension,
    /// `None` while it runs.
    pub(crate) exit: Option<RankExit>,
}

/// The daemon's handle of a rank's process.
enum Hold {
    /// Its child. The lifeline's closing kills the rank's group, see [`system::spawn_rank`].
    Child { _lifeline: OwnedFd },
    /// Others have started it.
    Guest {
        /// The process, if it is in sight.
        process: Option<OwnedFd>,
        /// By which it hears of the end, once it is welcomed.
        lifeline: Option<Sender>,
        /// It has finalised, as all have, and is not watched any more.
        finished: bool,
    },
}

/// Since when a child is stopped, as by SIGSTOP, and whether that has been said.
#[derive(Debug, Default)]
pub(crate) struct Suspension {
    since: Option<Instant>,
    told: bool,
}

/// Processor use of an ending process. It frees its memory then, which takes long for a large one on a busy
/// machine, and must not be taken for a process that waits within the kernel.
#[derive(Debug, Default)]
pub(crate) struct EndProgress {
    ticks: u64,
}

impl EndProgress {
    /// Returns true if the process is ending, and has used a processor, or was ready to, since the last call.
    pub(crate) fn advances(&mut self, pid: u32) -> bool {
        let stat = |path: String| std::fs::read_to_string(path).ok().and_then(|text| Stat::parse(&text));
        let Some(process) = stat(format!("/proc/{pid}/stat")).filter(|stat| stat.is_exiting) else {
            return false;
        };
        // The first thread may be over, and the last one frees the memory.
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let runs = threads
            .filter_map(|thread| stat(format!("{}/stat", thread.path().display())))
            .any(|thread| thread.is_running);
        let before = std::mem::replace(&mut self.ticks, process.ticks);
        runs || process.ticks > before
    }
}

/// Contents of `/proc/PID/stat` of a process or a thread.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    is_running: bool,
    is_exiting: bool,
    /// Time on processors.
    ticks: u64,
}

impl Stat {
    fn parse(text: &str) -> Option<Self> {
        const PF_EXITING: u64 = 4;
        // "pid (name) state parent …", where the name may contain anything.
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
        Some(Self {
            is_running: *fields.first()? == "R",
            is_exiting: number(6)? & PF_EXITING != 0,
            ticks: number(11)? + number(12)?,
        })
    }
}

/// Progress of a rank.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    pub(crate) joined: bool,
    pub(crate) welcomed: bool,
    /// Its contribution to the allgather in flight.
    pub(crate) contribution: Option<Vec<u8>>,
    /// It waits for the contributions of all.
    pub(crate) gathers: bool,
    pub(crate) finalised: bool,
    /// It has announced its exit.
    pub(crate) exits: bool,
}

/// Forwarded standard input.
pub(crate) struct RankInput {
    /// The pipe; `None` when the rank has closed it, and further bytes are dropped.
    pub(crate) pipe: Option<OwnedFd>,
    waiting: VecDeque<u8>,
    at_end: bool,
}

/// The daemon's way of ending its ranks: tells if an end was the rank's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Nothing.
    No,
    /// SIGTERM was sent.
    Terminated,
    /// SIGKILL was sent.
    Killed,
}

impl RankProcess {
    /// Starts the program. `inherited_input` is the launcher's standard input, for rank 0.
    pub(crate) fn spawn(
        node: &NodeDescription,
        rank: Rank,
        inherited_input: Option<OwnedFd>,
    ) -> io::Result<Self> {
        let pair = || socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
        let (control, its_control) = pair()?;
        let (lifeline, its_lifeline) = pair()?;
        let mut command = Command::new(&node.program);
        if let Some(name) = &node.name {
            command.arg0(name);
        }
        command.args(&node.arguments);
        for (name, _) in std::env::vars_os().filter(|(name, _)| tells_of_a_rank(name)) {
            command.env_remove(name);
        }
        command.envs(node.environment.iter().map(|(name, value)| (name, value)));
        let pmi = if node.pmi { Some(Client::pair()?) } else { None };
        let (pmi, its_pmi) = pmi.unzip();
        if let Some(its) = &its_pmi {
            tell_of_pmi(&mut command, node, rank, its.as_raw_fd());
        }
        if !node.directory.as_os_str().is_empty() {
            command.current_dir(&node.directory);
        }
        command.stdin(Stdio::null());
        if rank == Rank(0) {
            match (node.input, inherited_input) {
                (Input::Inherit, Some(input)) => command.stdin(input),
                (Input::Forward, _) => command.stdin(Stdio::piped()),
                _ => &mut command,
            };
        }
        if node.output == Output::Forward {
            command.stdout(Stdio::piped());
        }
        if node.output != Output::Inherit {
            command.stderr(Stdio::piped());
        }
        let mut child = system::spawn_rank(
            &mut command,
            its_control.as_fd(),
            its_lifeline.as_fd(),
            its_pmi.as_ref().map(AsFd::as_fd),
        )?;
        let outputs = [child.stdout.take().map(OwnedFd::from), child.stderr.take().map(OwnedFd::from)];
        let input = child.stdin.take().map(OwnedFd::from);
        for pipe in outputs.iter().flatten().chain(&input) {
            rustix::io::ioctl_fionbio(pipe, true)?;
        }
        let channel = Channel::over_socket(control, true).map_err(io::Error::other)?;
        Ok(Self {
            rank,
            pid: Some(Pid::from_child(&child)),
            channel: Some(channel),
            hold: Hold::Child { _lifeline: lifeline },
            pmi,
            outputs,
            input: input.map(|pipe| RankInput { pipe: Some(pipe), waiting: VecDeque::new(), at_end: false }),
            progress: Progress::default(),
            end_progress: EndProgress::default(),
            stop: Suspension::default(),
            exit: None,
        })
    }

    /// Makes an externally started rank, which has come over this socket.
    pub(crate) fn guest(rank: Rank, socket: OwnedFd) -> Result<Self> {
        let pid = system::peer_of(socket.as_fd()).ok().and_then(|(pid, _)| Pid::from_raw(pid));
        let process = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        Ok(Self {
            rank,
            pid,
            channel: Some(Channel::over_socket(socket, true)?),
            hold: Hold::Guest { process, lifeline: None, finished: false },
            pmi: None,
            outputs: [None, None],
            input: None,
            progress: Progress::default(),
            end_progress: EndProgress::default(),
            stop: Suspension::default(),
            exit: None,
        })
    }

    /// 0 when it is in a namespace of its own.
    pub(crate) fn pid(&self) -> u32 {
        self.pid.map_or(0, |pid| pid.as_raw_nonzero().get() as u32)
    }

    pub(crate) fn is_guest(&self) -> bool {
        matches!(self.hold, Hold::Guest { .. })
    }

    /// A guest's end of a fresh lifeline; none for a child, which has one.
    pub(crate) fn make_lifeline(&mut self) -> Result<Option<OwnedFd>> {
        let Hold::Guest { lifeline, .. } = &mut self.hold else { return Ok(None) };
        let (ours, its) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .map_err(|e| RmaError::system("create a lifeline", e))?;
        *lifeline = Some(Channel::over_socket(ours, true)?.sender);
        Ok(Some(its))
    }

    /// Tells a guest why the job ends; it ends by itself then. A child is asked to end.
    pub(crate) fn tell_end(&mut self, why: &Why) {
        let message = ToRank::Ended(why.clone());
        match &mut self.hold {
            Hold::Child { .. } => self.signal(Signal::TERM),
            // A rank that is gone needs no telling.
            Hold::Guest { lifeline: Some(lifeline), .. } => drop(lifeline.send(&message)),
            Hold::Guest { lifeline: None, .. } => self.send(&message, Vec::new()),
        }
        // A stopped process could not end.
        self.signal(Signal::CONT);
    }

    /// All ranks have finalised, or exit: a guest that has, too, counts as ended.
    pub(crate) fn finish(&mut self) {
        let has = self.progress.finalised || self.progress.exits;
        if let Hold::Guest { finished, .. } = &mut self.hold {
            *finished |= has;
        }
    }

    /// Notices that it was stopped or continued.
    pub(crate) fn notice_stop(&mut self) {
        if let (true, false, Some(pid)) = (self.runs(), self.is_guest(), self.pid) {
            self.stop.notice(pid);
        }
    }

    /// Handles the rank's messages. An error is the rank's fault.
    pub(crate) fn receive(&mut self) -> Result<Vec<FromRank>> {
        let mut messages = Vec::new();
        while let Some(channel) = &mut self.channel {
            while let Some((message, _)) = channel.receiver.next()? {
                messages.push(message);
            }
            match channel.receiver.read()? {
                Arrival::Bytes => {}
                Arrival::Nothing => break,
                Arrival::End => self.channel = None,
            }
        }
        Ok(messages)
    }

    /// Sends to the rank; a rank that is gone is found out by its exit.
    pub(crate) fn send(&mut self, message: &ToRank, files: Vec<OwnedFd>) {
        if let Some(channel) = &mut self.channel
            && channel.sender.send_with_files(message, files).is_err()
        {
            self.channel = None;
        }
    }

    /// Sends what the rank had no room for.
    pub(crate) fn flush(&mut self) {
        if let Some(channel) = &mut self.channel
            && channel.sender.flush().is_err()
        {
            self.channel = None;
        }
    }

    /// One read from a stream into `buffer`. `None` when there is nothing now; empty at its end.
    pub(crate) fn read_output<'a>(&mut self, stream: Stream, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
        let pipe = &mut self.outputs[stream as usize];
        match rustix::io::read(pipe.as_ref()?, &mut *buffer) {
            Ok(count @ 1..) => Some(&buffer[..count]),
            Err(Errno::AGAIN | Errno::INTR) => None,
            Ok(0) | Err(_) => {
                *pipe = None;
                Some(&[])
            }
        }
    }

    /// Returns true if the process runs.
    pub(crate) fn runs(&self) -> bool {
        self.exit.is_none()
    }

    /// Sends a signal to the rank and everything in its group. For a guest, to the process alone: its group
    /// is the starter's.
    pub(crate) fn signal(&self, signal: Signal) {
        match (&self.hold, self.pid) {
            _ if !self.runs() => {}
            // The group exists as long as its leader is not waited for.
            (Hold::Child { .. }, Some(pid)) => drop(kill_process_group(pid, signal)),
            (Hold::Guest { process: Some(process), .. }, _) => drop(pidfd_send_signal(process, signal)),
            _ => {}
        }
    }

    /// Notices that the process has ended, ends the rest of its group, and takes its status. Returns true once.
    pub(crate) fn take_exit(&mut self, ending: Ending) -> Result<bool> {
        if !self.runs() {
            return Ok(false);
        }
        let pid = match (&self.hold, self.pid) {
            (Hold::Child { .. }, Some(pid)) => pid,
            (Hold::Guest { finished, .. }, _) => {
                let (finished, gone) = (*finished, self.channel.is_none());
                // A rank that has announced it is not missed.
                let well = finished || self.progress.finalised || self.progress.exits;
                let exit = if well { Exit::Code(0) } else { Exit::Unseen };
                let ended = finished || gone;
                self.exit = ended.then(|| self.exit_with(exit, ending == Ending::No));
                return Ok(ended);
            }
            (Hold::Child { .. }, None) => return Ok(false),
        };
        let wait = |e| RmaError::system("wait for a rank", e);
        // First only look: the number of the group is certain until the leader has been waited for.
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if waitid(WaitId::Pid(pid), look).map_err(wait)?.is_none() {
            return Ok(false);
        }
        let _ = kill_process_group(pid, Signal::KILL);
        let Some((_, status)) = waitpid(Some(pid), WaitOptions::empty()).map_err(wait)? else {
            return Ok(false);
        };
        let exit = exit_of(status);
        let by_itself = match ending {
            Ending::No => true,
            // It was dying of something else already.
            Ending::Terminated => matches!(exit, Exit::Signal(signal) if signal != Signal::TERM.as_raw()),
            Ending::Killed => false,
        };
        self.exit = Some(self.exit_with(exit, by_itself));
        Ok(true)
    }

    fn exit_with(&self, exit: Exit, by_itself: bool) -> RankExit {
        let (joined, finalised) = self.has_joined_and_finalised();
        RankExit { rank: self.rank, pid: self.pid(), exit, joined, finalised, by_itself }
    }

    /// Returns whether others may wait for it, and whether it has released them: in the job, or in PMI-1.
    pub(crate) fn has_joined_and_finalised(&self) -> (bool, bool) {
        match &self.pmi {
            _ if self.progress.joined => (true, self.progress.finalised || self.progress.exits),
            Some(client) if client.has_begun() => (true, client.has_finished()),
            _ => (false, self.progress.finalised || self.progress.exits),
        }
    }
}

impl Suspension {
    /// Handles a change of this child.
    pub(crate) fn notice(&mut self, child: Pid) {
        let changes = WaitIdOptions::STOPPED | WaitIdOptions::CONTINUED | WaitIdOptions::NOHANG;
        while let Ok(Some(change)) = waitid(WaitId::Pid(child), changes) {
            *self = Self { since: change.stopped().then(Instant::now), told: false };
        }
    }

    /// The time since it was stopped counts from now.
    pub(crate) fn restart(&mut self) {
        self.since = self.since.map(|_| Instant::now());
    }

    /// Time for the report that the child is stopped.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.since.filter(|_| !self.told).map(|since| since + STOP_TIMEOUT)
    }

    /// Returns true if it is to be told now: once.
    pub(crate) fn take_due(&mut self) -> bool {
        let due = self.due().is_some_and(|due| due <= Instant::now());
        self.told |= due;
        due
    }
}

/// Sets a rank's variables for its line of PMI-1, and for its number, as Hydra does.
fn tell_of_pmi(command: &mut Command, node: &NodeDescription, rank: Rank, file: RawFd) {
    let layout = &node.job.layout;
    let here = layout.ranks_of(node.node);
    command.env("PMI_FD", file.to_string()).env("PMI_RANK", rank.0.to_string());
    command.env("PMI_SIZE", layout.ranks().to_string()).env("MPI_LOCALNRANKS", here.len().to_string());
    command.env("MPI_LOCALRANKID", (rank.0 - here.start).to_string());
    if let Some(line) = pmi::line(file) {
        command.env(pmi::LINE_VARIABLE, line);
    }
}

/// Converts the system's exit status.
pub(crate) fn exit_of(status: rustix::process::WaitStatus) -> Exit {
    match (status.exit_status(), status.terminating_signal()) {
        (_, Some(signal)) => Exit::Signal(signal),
        (code, None) => Exit::Code(code.unwrap_or(1)),
    }
}

impl RankInput {
    /// Takes bytes for the rank; none: the end. Returns the number of bytes that are done with.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> usize {
        self.at_end |= bytes.is_empty();
        self.waiting.extend(bytes);
        self.flush()
    }

    /// Returns true if it waits until the pipe has room.
    pub(crate) fn waits(&self) -> bool {
        self.pipe.is_some() && !self.waiting.is_empty()
    }

    /// Writes as far as there is room; returns the number of bytes that are done with.
    pub(crate) fn flush(&mut self) -> usize {
        let before = self.waiting.len();
        while let Some(pipe) = &self.pipe
            && !self.waiting.is_empty()
        {
            match rustix::io::write(pipe, self.waiting.as_slices().0) {
                Ok(count) => drop(self.waiting.drain(..count)),
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(_) => self.pipe = None,
            }
        }
        if self.pipe.is_none() {
            self.waiting.clear();
        } else if self.at_end && self.waiting.is_empty() {
            self.pipe = None;
        }
        before - self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a process that ends and gets on with it is told from one that ends and waits, and from one that does not end.
    #[test]
    fn ends_that_advance() {
        let stat = |state: &str, flags: u32, ticks: u32| {
            Stat::parse(&format!("7 (a) b) {state} 1 7 7 0 -1 {flags} 0 0 0 0 {ticks} 2 0 0 20 0 1 0 5 0 0"))
        };
        let is = |is_running, is_exiting, ticks| Some(Stat { is_running, is_exiting, ticks });
        assert_eq!(stat("R", 4_194_308, 40), is(true, true, 42));
        assert_eq!(stat("D", 4, 0), is(false, true, 2));
        assert_eq!(stat("S", 4_194_304, 1), is(false, false, 3));
        assert_eq!(Stat::parse("7 (a"), None);
        // This one runs, and does not end.
        assert!(!EndProgress::default().advances(std::process::id()));
        // A process that has ended and is not waited for uses no processor.
        let mut child = Command::new("true").spawn().unwrap();
        let pid = Pid::from_child(&child);
        waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).unwrap();
        let mut end = EndProgress::default();
        end.advances(child.id());
        assert!(!end.advances(child.id()));
        child.wait().unwrap();
    }
}
