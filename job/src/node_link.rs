//! A node's daemon as the launcher sees it: the process (or the ssh that leads to it) and the channel.

#![forbid(unsafe_code)]

use super::ALIVE_TIMEOUT;
use super::cluster::Parts;
use super::control::{Arrival, Channel, timespec};
use super::message::{Exit, FromNode, NodeDescription, ToNode};
use super::rank_process::{EndProgress, Suspension, exit_of};
use super::spec::{RunSpec, Starter};
use super::verdict::{signal_code, signal_name};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, shutdown, socketpair};
use rustix::process::{Pid, PidfdFlags, WaitOptions, pidfd_open, waitpid};
use std::ffi::{OsStr, OsString};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use vgas_rma::address::NodeId;
use vgas_rma::error::{Result, RmaError};

/// Bytes of ssh's messages kept for the error if it fails.
const STDERR_BYTES_MAX: usize = 8 << 10;

/// Time that a process that has sent its last message, or was killed, may take to end.
pub(super) const EXIT_TIMEOUT: Duration = Duration::from_secs(1);

/// Progress of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Not ready yet.
    Preparing,
    /// Its daemon is ready, or runs ranks.
    Ready,
    /// Nothing of the node runs any more, as far as can be known.
    Over,
}

/// One node.
pub(super) struct NodeLink {
    pub(super) node: NodeId,
    pub(super) host: String,
    pub(super) phase: Phase,
    pub(super) channel: Channel,
    pub(super) addresses: Vec<SocketAddr>,
    /// Its ranks' contributions to the allgather in flight.
    pub(super) contributions: Option<Vec<Vec<u8>>>,
    /// Values put by its ranks, when all of them wait in a barrier of PMI-1.
    pub(super) fence: Option<Vec<(String, String)>>,
    pub(super) finalised: bool,
    /// The process that was started for it, here; none if it was started externally.
    child: Option<Child>,
    over_ssh: bool,
    /// The command that started it, if it was not this process.
    starter: &'static str,
    /// True if the child has been waited for.
    reaped: bool,
    /// Standard error of the command over which it was reached, if it is ssh or srun.
    stderr: Option<OwnedFd>,
    /// Text received before the node was ready.
    stderr_text: Vec<u8>,
    heard: Instant,
    pub(super) stop: Suspension,
    end_progress: EndProgress,
}

impl NodeLink {
    /// Starts the daemon of a node.
    pub(super) fn start(spec: &RunSpec, parts: &Parts, node: NodeId) -> Result<Self> {
        let (ours, its) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .map_err(|e| RmaError::system("create a control channel", e))?;
        let host = spec.hosts.get(node.0 as usize);
        let mut command = match host {
            None => command(&spec.daemon),
            Some(host) => {
                let mut command = command(spec.starter.words());
                let its = its.try_clone().map_err(|e| RmaError::io("create a control channel", e))?;
                match spec.starter {
                    Starter::Srun(_) => on_node_of_step(&mut command, host).args(&spec.daemon),
                    _ => command.arg(host).arg(shell_words(&spec.daemon)),
                };
                command.stdout(its).stderr(Stdio::piped());
                command
            }
        };
        // A group of its own: what the terminal sends to this one is passed on through the channel instead.
        command.stdin(its).process_group(0);
        let mut child = parts
            .spawn(&mut command, node)
            .map_err(|e| RmaError::io(format!("start {}", command.get_program().to_string_lossy()), e))?;
        let stderr = child.stderr.take().map(OwnedFd::from);
        if let Some(stderr) = &stderr {
            rustix::io::ioctl_fionbio(stderr, true)
                .map_err(|e| RmaError::system("listen to what starts a node", e))?;
        }
        Ok(Self {
            node,
            host: host.cloned().unwrap_or_default(),
            phase: Phase::Preparing,
            channel: Channel::over_socket(ours, host.is_none())?,
            addresses: Vec::new(),
            contributions: None,
            fence: None,
            finalised: false,
            child: Some(child),
            over_ssh: host.is_some(),
            starter: spec.starter.name(),
            reaped: false,
            stderr,
            stderr_text: Vec::new(),
            heard: Instant::now(),
            stop: Suspension::default(),
            end_progress: EndProgress::default(),
        })
    }

    /// An externally started daemon, at the other end of this channel.
    pub(super) fn reached(node: NodeId, host: String, channel: Channel) -> Self {
        Self {
            node,
            host,
            phase: Phase::Preparing,
            channel,
            addresses: Vec::new(),
            contributions: None,
            fence: None,
            finalised: false,
            child: None,
            over_ssh: true,
            starter: Starter::Others.name(),
            reaped: true,
            stderr: None,
            stderr_text: Vec::new(),
            heard: Instant::now(),
            stop: Suspension::default(),
            end_progress: EndProgress::default(),
        }
    }

    /// Tells the daemon what to prepare.
    pub(super) fn describe(&mut self, description: NodeDescription, files: Vec<OwnedFd>) -> Result<()> {
        self.channel.sender.send_with_files(&ToNode::Describe(Box::new(description)), files)
    }

    /// Adds the files to poll.
    pub(super) fn poll_files<'a>(&'a self, listening: bool, files: &mut Vec<(BorrowedFd<'a>, PollFlags)>) {
        if let Some(stderr) = &self.stderr {
            files.push((stderr.as_fd(), PollFlags::IN));
        }
        if self.phase == Phase::Over {
            return;
        }
        if listening {
            files.push((self.channel.receiver.file(), PollFlags::IN));
        }
        if self.channel.sender.queued_bytes() > 0 {
            files.push((self.channel.sender.file(), PollFlags::OUT));
        }
    }

    /// Messages that have come, and whether more may. Sends what there was no room for.
    pub(super) fn receive(&mut self) -> Result<(Vec<FromNode>, bool)> {
        // A daemon that is gone is noticed by the read: it may have said why.
        let _ = self.channel.sender.flush();
        let arrival = self.channel.receiver.read()?;
        let mut messages = Vec::new();
        while let Some((message, _)) = self.channel.receiver.next()? {
            messages.push(message);
        }
        if arrival == Arrival::Bytes {
            self.heard = Instant::now();
        }
        Ok((messages, arrival != Arrival::End))
    }

    /// Takes the text of ssh, or of the daemon at its other end, on standard error that is to be shown. Text
    /// from before the node is ready is kept for [`NodeLink::lose`], and shown when it is.
    pub(super) fn take_stderr(&mut self) -> Vec<u8> {
        let mut piece = [0; 4096];
        while let Some(stderr) = &self.stderr {
            match rustix::io::read(stderr, &mut piece) {
                Ok(count @ 1..) => {
                    let room = STDERR_BYTES_MAX.saturating_sub(self.stderr_text.len());
                    self.stderr_text.extend(&piece[..count.min(room)]);
                    if self.phase == Phase::Ready {
                        break;
                    }
                }
                Err(Errno::AGAIN | Errno::INTR) => break,
                Ok(0) | Err(_) => self.stderr = None,
            }
        }
        match self.phase {
            Phase::Ready => without_remarks(&std::mem::take(&mut self.stderr_text)),
            _ => Vec::new(),
        }
    }

    /// Returns true if nothing has been heard over ssh for too long.
    pub(super) fn is_silent(&self) -> bool {
        self.phase == Phase::Ready && self.heard.elapsed() > ALIVE_TIMEOUT
    }

    /// This process was stopped: the other side is not to blame for the silence.
    pub(super) fn excuse_silence(&mut self) {
        self.heard = Instant::now();
        self.stop.restart();
    }

    /// Notices that the daemon's process was stopped or continued. Behind an ssh, silence tells.
    pub(super) fn notice_stop(&mut self) {
        if let (false, false, Some(child)) = (self.reaped, self.over_ssh, &self.child) {
            self.stop.notice(Pid::from_child(child));
        }
    }

    /// Gives the node up: kills the command that leads to it, and returns its end: in words, and as the exit
    /// status.
    pub(super) fn lose(&mut self, reason: Option<String>) -> (String, u8) {
        let (was_ready, starter) = (self.phase == Phase::Ready, self.starter);
        let exit = if reason.is_none() { self.exit_within(EXIT_TIMEOUT / 4) } else { None };
        let text = self.last_words();
        self.phase = Phase::Over;
        // A node that was never ready is not known by its number yet, in a job of one.
        let it = if was_ready { String::new() } else { format!("the daemon on {} ", self.host) };
        // Behind an ssh that is killed, the daemon sees the end of its channel, and ends soon after.
        let _ = shutdown(self.channel.sender.file(), Shutdown::Both);
        self.kill();
        match (reason, exit) {
            (Some(reason), _) => (reason, 1),
            (None, _) if !was_ready && !text.is_empty() => (text, 1),
            (None, exit) if self.over_ssh => match exit {
                // A shell on the other side says so when it was a signal.
                Some(Exit::Code(code @ 129..165)) => {
                    (format!("{it}is gone: {starter} ended with exit status {code}"), code as u8)
                }
                Some(Exit::Code(code)) => {
                    (format!("{it}is gone: {starter} ended with exit status {code}"), 1)
                }
                Some(Exit::Signal(signal)) => (
                    format!("{it}is gone: {starter} was killed by signal {signal}{}", signal_name(signal)),
                    1,
                ),
                None | Some(Exit::Unseen) => (format!("{it}is gone: it closed its connection"), 1),
            },
            (None, Some(Exit::Signal(signal))) => {
                (format!("was killed by signal {signal}{}", signal_name(signal)), signal_code(signal))
            }
            (None, Some(Exit::Code(code))) => (format!("ended with exit status {code}"), 1),
            (None, None | Some(Exit::Unseen)) => ("closed its channel".into(), 1),
        }
    }

    /// The daemon's process, when it is one of this machine.
    pub(super) fn pid(&self) -> Option<u32> {
        self.child.as_ref().filter(|_| !self.over_ssh).map(Child::id)
    }

    fn last_words(&mut self) -> String {
        if self.phase == Phase::Ready {
            return String::new();
        }
        self.take_stderr();
        String::from_utf8_lossy(&without_remarks(&self.stderr_text)).trim().to_owned()
    }

    /// Waits for the daemon's process, which has nothing to do any more, until a moment. Returns true if it
    /// has ended.
    pub(super) fn ends_by(&mut self, deadline: Instant) -> bool {
        self.exit_within(deadline.saturating_duration_since(Instant::now()));
        self.reaped
    }

    /// Returns true if the daemon's process, which has not ended, is freeing its memory.
    pub(super) fn is_ending(&mut self) -> bool {
        let child = self.child.as_ref().filter(|_| !self.reaped).map(Child::id);
        child.is_some_and(|pid| self.end_progress.advances(pid))
    }

    /// Kills the daemon's process, if there is one.
    pub(super) fn kill(&mut self) {
        if let (false, Some(child)) = (self.reaped, &mut self.child) {
            let _ = child.kill();
        }
    }

    /// Waits for the process's end; none if it does not come within `time`.
    fn exit_within(&mut self, time: Duration) -> Option<Exit> {
        // Without pidfds (before Linux 5.3) there is nothing to wait for with a bound.
        let child = self.child.as_ref().map(Pid::from_child);
        let pidfd = child.and_then(|child| pidfd_open(child, PidfdFlags::empty()).ok());
        let deadline = Instant::now() + time;
        loop {
            let exit = self.reap();
            let left = deadline.saturating_duration_since(Instant::now());
            if self.reaped || left.is_zero() {
                return exit;
            }
            match &pidfd {
                // Also ended by the signals that this process catches.
                Some(pidfd) => {
                    let _ = poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&timespec(left)));
                }
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    fn reap(&mut self) -> Option<Exit> {
        let child = self.child.as_ref().filter(|_| !self.reaped)?;
        match waitpid(Some(Pid::from_child(child)), WaitOptions::NOHANG) {
            Ok(Some((_, status))) => {
                self.reaped = true;
                Some(exit_of(status))
            }
            Ok(None) => None,
            // It was reaped elsewhere.
            Err(_) => {
                self.reaped = true;
                None
            }
        }
    }
}

impl Drop for NodeLink {
    /// Only an error of the launcher itself leaves a daemon running until here.
    fn drop(&mut self) {
        self.kill();
        self.exit_within(EXIT_TIMEOUT);
    }
}

/// Builds the command of these words; there is at least one (checked with the specification).
fn command(words: &[OsString]) -> Command {
    let mut words = words.iter();
    let mut command = Command::new(words.next().map_or(OsStr::new("vgas"), OsString::as_os_str));
    command.args(words);
    command
}

/// Environment that would make something else of one task on one node: options of srun that an allocation, or
/// its user, has given to all steps, and those that would change the bytes of the channel.
const OPTIONS_OF_STEPS: [&str; 23] = [
    "SLURM_CPUS_PER_TASK",
    "SLURM_CPU_BIND",
    "SLURM_DISTRIBUTION",
    "SLURM_EXACT",
    "SLURM_LABELIO",
    "SLURM_MEM_PER_CPU",
    "SLURM_MEM_PER_GPU",
    "SLURM_MEM_PER_NODE",
    "SLURM_NNODES",
    "SLURM_NPROCS",
    "SLURM_NTASKS",
    "SLURM_NTASKS_PER_CORE",
    "SLURM_NTASKS_PER_GPU",
    "SLURM_NTASKS_PER_NODE",
    "SLURM_NTASKS_PER_SOCKET",
    "SLURM_NTASKS_PER_TRES",
    "SLURM_STDERRMODE",
    "SLURM_STDINMODE",
    "SLURM_STDOUTMODE",
    "SLURM_TASKS_PER_NODE",
    "SLURM_TRES_PER_TASK",
    "SLURM_WHOLE",
    "SRUN_CPUS_PER_TASK",
];

/// Remark of srun on an option for sites that bind tasks to cores, on a site that does not.
const REMARK: &str = "cluster configuration lacks support for cpu binding";

/// Returns the text without meaningless lines.
fn without_remarks(text: &[u8]) -> Vec<u8> {
    let lines = text.split_inclusive(|byte| *byte == b'\n');
    lines.filter(|line| !line.trim_ascii_end().ends_with(REMARK.as_bytes())).flatten().copied().collect()
}

/// Has srun start one task on this node.
fn on_node_of_step<'a>(command: &'a mut Command, host: &str) -> &'a mut Command {
    for name in OPTIONS_OF_STEPS {
        command.env_remove(name);
    }
    command.args(["--nodes=1", "--ntasks=1", "--input=0", "--unbuffered"]).arg(format!("--nodelist={host}"))
}

/// The words quoted for a shell: ssh joins its arguments with spaces and has the other side's shell read the result.
fn shell_words(words: &[OsString]) -> OsString {
    let mut line = Vec::new();
    for word in words {
        if !line.is_empty() {
            line.push(b' ');
        }
        line.push(b'\'');
        for &byte in word.as_bytes() {
            match byte {
                b'\'' => line.extend(b"'\\''"),
                byte => line.push(byte),
            }
        }
        line.push(b'\'');
    }
    OsString::from_vec(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_a_shell() {
        let words: Vec<OsString> =
            ["printf", "%s|", "two words", "it's", "$HOME `x` \\", ""].map(Into::into).into();
        let output = Command::new("sh").arg("-c").arg(shell_words(&words)).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "two words|it's|$HOME `x` \\||");
    }

    #[test]
    fn remarks_of_srun_are_not_shown() {
        let said = format!("srun: error: a\nsrun: {REMARK}\nb");
        assert_eq!(without_remarks(said.as_bytes()), b"srun: error: a\nb");
        assert!(without_remarks(format!("srun: {REMARK}").as_bytes()).is_empty());
    }
}
