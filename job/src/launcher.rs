//! The launcher: starts a daemon per node, relays between them, and decides when and how the job has ended.

#![forbid(unsafe_code)]

mod survive;

use super::cluster::{OuterGroups, Parts};
use super::control::Channel;
use super::joined;
use super::message::{
    DomainOrigin, FromNode, Input, JobDescription, NodeDescription, Output, Stream, ToNode,
};
use super::message::{Exit, RankExit, Why};
use super::node_link::{EXIT_TIMEOUT, NodeLink, Phase};
use super::output::Outputs;
use super::spec::{JobStatus, RunSpec, Starter};
use super::verdict::{Cause, Verdict};
use super::{
    ALIVE_INTERVAL, COMPLAINT_TIMEOUT, EXIT_GRACE, KILL_TIMEOUT, LEAVE_GRACE, OUT_OF_STEP, STOP_TIMEOUT,
    TERMINATION_GRACE, WAIT_IS_TOLD_AFTER, control, listen, node, system,
};
use rustix::event::{PollFd, PollFlags, poll};
use signal_hook::consts::{SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;
use std::io::IsTerminal;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use vgas_rma::address::{Layout, NodeId, Peer};
use vgas_rma::domain::Domain;
use vgas_rma::error::{Result, RmaError};
use vgas_rma::key::JobKey;
use vgas_rma::say::OneLine;

/// Signals that the launcher passes on to every rank.
const PASSED_ON: [i32; 8] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT];

/// The signals among these that ask for the end: the second ends the job at once.
const INTERRUPTS: [i32; 4] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];

/// Output that may wait for a slow reader; then daemons are not listened to until it has taken some.
const OUTPUT_BYTES_MAX: usize = 1 << 20;

/// Standard input that may be on its way to rank 0.
const INPUT_BYTES_MAX: usize = 64 << 10;

/// Interval at which a launcher in the background of a terminal checks if it has come to the foreground, of
/// which a shell does not notify it.
const FOREGROUND_INTERVAL: Duration = Duration::from_millis(250);

/// Grace of a daemon beyond the end of its ranks, gentle or not, before it is killed.
const END_TIMEOUT: Duration = KILL_TIMEOUT.saturating_add(Duration::from_millis(500));

/// Runs a job and returns how it ended, when nothing of it is left. Signals that arrive meanwhile are passed on (see
/// [`super`]); afterwards they are ignored, as the caller is expected to end with [`JobStatus::code`].
///
/// The ranks' output goes to this process's standard output and error. Nothing else is printed but a line
/// about a process of the job that is stopped for long.
///
/// # Errors
/// [`RmaError::Refused`] when the specification makes no sense, and when this process itself lacks something (files,
/// processes). Everything that happens to the job is in the status.
pub fn run(spec: &RunSpec) -> Result<JobStatus> {
    let layout = spec.check()?;
    node::raise_file_limit();
    control::check_sockets()?;
    let mut signals = passed_on_signals()?;
    Launcher::start(spec, layout)?.run_to_end(&mut signals)
}

/// Leads a job with externally started ranks, with a channel to each node's daemon, by node.
pub(crate) fn lead(spec: &RunSpec, layout: Layout, key: JobKey, channels: Vec<Channel>) -> Result<JobStatus> {
    node::raise_file_limit();
    let mut signals = passed_on_signals()?;
    let mut launcher = Launcher::new(spec, layout);
    launcher.is_joined = true;
    launcher.begin_joined(key, channels)?;
    launcher.run_to_end(&mut signals)
}

type Signals = SignalDelivery<UnixStream, SignalOnly>;

/// Catches the signals to pass on, except those that the caller has ignored (`nohup`, a shell's `&`).
fn passed_on_signals() -> Result<Signals> {
    let io = |e| RmaError::io("catch signals", e);
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    let (read, write) = UnixStream::pair().map_err(io)?;
    let wanted = PASSED_ON.iter().filter(|&&signal| ignored >> (signal - 1) & 1 == 0);
    // Signals of stopped daemons; daemons that end close their channels.
    SignalDelivery::with_pipe(read, write, SignalOnly, wanted.chain(&[SIGCHLD])).map_err(io)
}

struct Launcher<'a> {
    spec: &'a RunSpec,
    layout: Layout,
    /// Resources of the nodes, until they are gone.
    parts: Parts,
    /// The control groups in which the job runs, as far as it runs on this machine.
    surroundings: OuterGroups,
    nodes: Vec<NodeLink>,
    verdict: Verdict,
    outputs: Outputs,
    input: ForwardedInput,
    begun: Instant,
    said_alive: Instant,
    started: bool,
    /// It was told what the start waits for.
    wait_is_told: bool,
    ranks_running: u32,
    /// By node: number of its ranks that have ended.
    ranks_ended: Vec<u32>,
    losses: survive::Losses,
    /// Others have started the ranks: these are told why the job ends.
    is_joined: bool,
    /// Deadline for a better cause, while only a complaint is known.
    hesitates: Option<Instant>,
    any_joined: bool,
    /// The first rank that ended with 0 without finalising, and when that became a problem.
    left: Option<(Instant, RankExit)>,
    /// Ranks have called [`super::Bootstrap::exit`].
    exiting: Option<Exiting>,
    stopping: bool,
    /// Time at which the daemons were told to end their processes.
    ended: Option<Instant>,
    /// Last time that one of them reported that its processes are ending.
    end_heard: Option<Instant>,
    interrupts: u32,
}

/// The job is ending because ranks have said so.
#[derive(Clone, Copy, Debug)]
struct Exiting {
    since: Instant,
    /// The status of the job: the first that is not 0, of ranks that exit of themselves.
    code: u8,
    /// Number of ranks that have reported it.
    ranks: u32,
    /// The others were asked to end.
    asked: bool,
}

/// Standard input that the launcher reads for rank 0.
#[derive(Debug, Default)]
struct ForwardedInput {
    open: bool,
    terminal: bool,
    /// Sent and not yet taken by the rank.
    on_its_way: usize,
}

impl<'a> Launcher<'a> {
    fn new(spec: &'a RunSpec, layout: Layout) -> Self {
        Self {
            spec,
            verdict: Verdict::new(layout.clone()),
            parts: Parts::default(),
            surroundings: OuterGroups::note(),
            nodes: Vec::new(),
            outputs: Outputs::new(spec.label),
            input: ForwardedInput::default(),
            begun: Instant::now(),
            said_alive: Instant::now(),
            started: false,
            wait_is_told: false,
            ranks_running: layout.ranks(),
            ranks_ended: vec![0; layout.nodes() as usize],
            losses: survive::Losses::default(),
            is_joined: false,
            hesitates: None,
            any_joined: false,
            left: None,
            exiting: None,
            stopping: false,
            ended: None,
            end_heard: None,
            interrupts: 0,
            layout,
        }
    }

    /// Runs until nothing of the job is left, and says how it ended.
    fn run_to_end(mut self, signals: &mut Signals) -> Result<JobStatus> {
        self.event_loop(signals)?;
        self.end_daemons();
        let status = self.status();
        Ok(self.verdict.with_unending(status))
    }

    /// Returns the job's status, as far as is known.
    fn status(&self) -> JobStatus {
        match self.exiting {
            Some(exiting) if !self.verdict.failed() => JobStatus { code: exiting.code, message: None },
            _ => {
                let status = self.verdict.status().with_exhausted(self.parts.exhausted());
                self.with_first_loss(status.with_exhausted_surroundings(self.surroundings.exhausted()))
            }
        }
    }

    /// Tells externally started daemons what to prepare.
    fn begin_joined(&mut self, key: JobKey, channels: Vec<Channel>) -> Result<()> {
        // They know the key: it does not travel in the open.
        drop(key);
        let (spec, layout) = (self.spec, self.layout.clone());
        for ((node, channel), host) in (0..).map(NodeId).zip(channels).zip(&spec.hosts) {
            let description = NodeDescription {
                job: JobDescription {
                    layout: layout.clone(),
                    key: joined::lead::no_key(),
                    conduit: spec.conduit.clone(),
                    settings: spec.settings.clone(),
                },
                node,
                over_ssh: true,
                domain: spec.domain(&layout, Some(node)),
                domain_origin: DomainOrigin::Daemon,
                listen: spec.listen(),
                program: spec.program.clone(),
                name: None,
                arguments: Vec::new(),
                environment: Vec::new(),
                directory: Default::default(),
                output: Output::Inherit,
                input: Input::Null,
                pmi: false,
                group: None,
            };
            self.verdict.set_host(node, host.clone());
            let mut link = NodeLink::reached(node, host.clone(), channel);
            match link.describe(description, Vec::new()) {
                Ok(()) | Err(RmaError::Io { .. }) => self.nodes.push(link),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Starts the daemons and tells them what to prepare.
    fn start(spec: &'a RunSpec, layout: Layout) -> Result<Self> {
        let job = JobDescription {
            layout: layout.clone(),
            key: JobKey::generate()?,
            conduit: spec.conduit.clone(),
            settings: spec.settings.clone(),
        };
        let remote = !spec.hosts.is_empty();
        let shared = if spec.one_domain() && layout.nodes() > 1 {
            Some(Domain::create(spec.domain(&layout, None))?)
        } else {
            None
        };
        // If domains have something in common, one process must make them.
        let mut first: Option<Domain> = None;
        let terminal = std::io::stdin().is_terminal();
        let input = match spec.input {
            false => Input::Null,
            // Only the terminal's foreground group may read it, and ranks have groups of their own.
            true if remote || terminal => Input::Forward,
            true => Input::Inherit,
        };
        let mut launcher = Self::new(spec, layout);
        launcher.parts = Parts::create(&spec.own, launcher.layout.nodes())?;
        launcher.input = ForwardedInput { open: input == Input::Forward, terminal, on_its_way: 0 };
        // It may have been deleted, or be out of sight; programs on this machine start there nevertheless.
        let directory = std::env::current_dir().unwrap_or_default();
        for node in (0..launcher.layout.nodes()).map(NodeId) {
            let input = if node.0 == 0 { input } else { Input::Null };
            let made = match (&shared, &first) {
                (Some(_), _) => None,
                _ if spec.common_bytes == 0 => None,
                (None, None) => Some(Domain::create(spec.domain(&launcher.layout, Some(node)))?),
                (None, Some(first)) => {
                    Some(Domain::create_beside(spec.domain(&launcher.layout, Some(node)), first)?)
                }
            };
            let here = shared.as_ref().or(made.as_ref());
            let domain = match here {
                Some(domain) => domain.spec().clone(),
                None => spec.domain(&launcher.layout, Some(node)),
            };
            let description = NodeDescription {
                job: job.clone(),
                node,
                over_ssh: remote,
                domain,
                domain_origin: if here.is_some() { DomainOrigin::Launcher } else { DomainOrigin::Daemon },
                listen: spec.listen(),
                program: spec.program.clone(),
                name: spec.name.clone(),
                arguments: spec.arguments.clone(),
                environment: spec.environment.clone(),
                directory: directory.clone(),
                output: match remote || spec.label {
                    true => Output::Forward,
                    // Users at a terminal see progress bars there, which programs draw on terminals alone.
                    false if std::io::stderr().is_terminal() => Output::Inherit,
                    false => Output::ForwardErrors,
                },
                input,
                pmi: spec.pmi,
                group: launcher.parts.group(node),
            };
            launcher.start_node(description, here)?;
            first = first.or(made);
        }
        Ok(launcher)
    }

    fn start_node(&mut self, description: NodeDescription, shared: Option<&Domain>) -> Result<()> {
        let node = description.node;
        let host = self.spec.hosts.get(node.0 as usize);
        self.verdict.set_host(node, host.cloned().unwrap_or_else(listen::host));
        let mut files = Vec::new();
        let inherited = (description.input == Input::Inherit).then(std::io::stdin);
        let inherited = inherited.as_ref().map(|stdin| stdin.as_fd());
        for file in shared.iter().flat_map(|domain| domain.files()).chain(inherited) {
            let copy = file.try_clone_to_owned();
            files.push(copy.map_err(|e| RmaError::io("pass open files to a node", e))?);
        }
        match NodeLink::start(self.spec, &self.parts, node) {
            Ok(mut link) => {
                match link.describe(description, files) {
                    // A daemon, or an ssh, that is gone already may have said why: found out when listening to it.
                    Ok(()) | Err(RmaError::Io { .. }) => {}
                    Err(error) => {
                        let (message, code) = link.lose(Some(error.to_string()));
                        self.fail(Cause::Failed { node, message, code });
                    }
                }
                self.nodes.push(link);
            }
            Err(error) => self.fail(Cause::Failed { node, message: error.to_string(), code: 1 }),
        }
        Ok(())
    }

    fn event_loop(&mut self, signals: &mut Signals) -> Result<()> {
        loop {
            let all_over = self.nodes.iter().all(|node| node.phase == Phase::Over);
            if all_over && (self.outputs.waiting_bytes() == 0 || self.interrupts > 1) {
                return Ok(());
            }
            self.wait(signals)?;
            for signal in signals.pending() {
                self.on_signal(signal);
            }
            for index in 0..self.nodes.len() {
                self.serve_node(index);
            }
            if self.nodes.iter().all(|node| node.phase == Phase::Over) {
                self.outputs.finish();
                if self.verdict.failed() {
                    // The caller says why, on the same terminal.
                    self.outputs.end_line();
                }
            }
            self.advance();
        }
    }

    /// Sleeps until there is something to do, and does the reading and writing of this process's own streams.
    fn wait(&mut self, signals: &Signals) -> Result<()> {
        let (stdin, stdout, stderr) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
        let mut files: Vec<(BorrowedFd<'_>, PollFlags)> = vec![(signals.get_read().as_fd(), PollFlags::IN)];
        let listening = self.listens();
        let reads_input = self.reads_input(stdin.as_fd());
        if reads_input {
            files.push((stdin.as_fd(), PollFlags::IN));
        }
        for (stream, file) in [(Stream::Output, stdout.as_fd()), (Stream::Error, stderr.as_fd())] {
            if self.outputs.waits(stream) {
                files.push((file, PollFlags::OUT));
            }
        }
        for node in &self.nodes {
            node.poll_files(listening, &mut files);
        }
        let mut files: Vec<PollFd<'_>> =
            files.iter().map(|(file, flags)| PollFd::new(file, *flags)).collect();
        match poll(&mut files, self.timeout().map(control::timespec).as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(RmaError::system("wait for events", e)),
        }
        let mut ready =
            files.iter().skip(1).map(|file| !file.revents().is_empty()).collect::<Vec<_>>().into_iter();
        let input_ready = reads_input && ready.next().unwrap_or(false);
        for (stream, file) in [(Stream::Output, stdout.as_fd()), (Stream::Error, stderr.as_fd())] {
            if self.outputs.waits(stream) && ready.next().unwrap_or(false) {
                self.outputs.write(stream, file);
            }
        }
        if input_ready {
            self.read_input(stdin.as_fd());
        }
        Ok(())
    }

    /// Daemons are not listened to while their output has nowhere to go, unless it is thrown away soon.
    fn listens(&self) -> bool {
        self.outputs.waiting_bytes() < OUTPUT_BYTES_MAX || self.ended.is_some()
    }

    fn reads_input(&self, stdin: BorrowedFd<'_>) -> bool {
        self.input.open
            && self.started
            && self.input.on_its_way < INPUT_BYTES_MAX
            && (!self.input.terminal || system::in_foreground(stdin))
    }

    fn read_input(&mut self, stdin: BorrowedFd<'_>) {
        let mut bytes = vec![0; 4096];
        // A terminal that has hung up reads as an error: the end, too.
        let count = match rustix::io::read(stdin, &mut bytes) {
            Ok(count) => count,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return,
            Err(_) => 0,
        };
        bytes.truncate(count);
        self.input.open = count > 0;
        self.input.on_its_way += count;
        self.tell(0, &ToNode::Input(bytes));
    }

    /// The next moment at which something is due without an event.
    fn timeout(&self) -> Option<Duration> {
        let ready = (!self.started && self.ended.is_none()).then(|| {
            let first = if self.wait_is_told { self.spec.connect_timeout } else { WAIT_IS_TOLD_AFTER };
            self.begun + first.min(self.spec.connect_timeout)
        });
        let left = self
            .left
            .filter(|_| self.any_joined && self.ended.is_none() && self.exiting.is_none())
            .map(|(since, _)| since + LEAVE_GRACE);
        let end = self.ended.map(|since| self.end_heard.unwrap_or(since) + TERMINATION_GRACE + END_TIMEOUT);
        let alive = (!self.spec.hosts.is_empty()).then(|| self.said_alive + ALIVE_INTERVAL);
        let exit = self.exiting.filter(|_| self.ranks_running > 0 && self.ended.is_none());
        let exit = exit.map(|exiting| {
            exiting.since + EXIT_GRACE + if exiting.asked { TERMINATION_GRACE } else { Duration::ZERO }
        });
        let stop =
            self.nodes.iter().filter(|node| node.phase != Phase::Over).filter_map(|node| node.stop.due());
        let waits_for_foreground =
            self.input.open && self.input.terminal && self.started && self.ended.is_none();
        let foreground = (waits_for_foreground && !system::in_foreground(std::io::stdin().as_fd()))
            .then(|| Instant::now() + FOREGROUND_INTERVAL);
        let next = [ready, left, end, alive, exit, stop.min(), self.losses.due(), self.hesitates, foreground]
            .into_iter()
            .flatten()
            .min()?;
        Some(next.saturating_duration_since(Instant::now()))
    }

    fn on_signal(&mut self, signal: i32) {
        if signal == SIGCHLD {
            return self.nodes.iter_mut().for_each(NodeLink::notice_stop);
        }
        if INTERRUPTS.contains(&signal) {
            self.interrupts += 1;
            let nobody_to_tell = !self.started || self.stopping || self.ended.is_some();
            if nobody_to_tell || self.interrupts > 1 {
                self.verdict.add(Cause::Interrupted { signal });
                self.end(self.started);
                return;
            }
        }
        self.verdict.passed_on(signal);
        self.tell_all(&ToNode::Signal(signal));
        if signal == SIGTSTP {
            // Returns when this process is continued.
            let _ = signal_hook::low_level::emulate_default_handler(SIGTSTP);
            self.nodes.iter_mut().for_each(NodeLink::excuse_silence);
        }
    }

    /// Handles a daemon's messages, and notices its end.
    fn serve_node(&mut self, index: usize) {
        let (ssh_text, listening) = (self.nodes[index].take_stderr(), self.listens());
        self.outputs.push_plain(&ssh_text);
        if !listening || self.nodes[index].phase == Phase::Over {
            return;
        }
        match self.nodes[index].receive() {
            Ok((messages, open)) => {
                for message in messages {
                    self.on_node(index, message);
                }
                if !open && self.nodes[index].phase != Phase::Over {
                    self.lose(index, None);
                }
            }
            Err(error) => self.lose(index, Some(error.to_string())),
        }
    }

    /// A daemon is gone, or talks nonsense.
    fn lose(&mut self, index: usize, reason: Option<String>) {
        if self.goes_on_without(index, None, reason.clone()) {
            return;
        }
        let link = &mut self.nodes[index];
        let (node, was_ready) = (link.node, link.phase == Phase::Ready);
        let pid = link.pid();
        let (how, code) = link.lose(reason);
        // A daemon that never was ready has not died, it could not be started.
        let cause = if was_ready || self.spec.hosts.is_empty() {
            Cause::DaemonLost { node, pid, how, code }
        } else {
            Cause::Failed { node, message: how, code: 1 }
        };
        if self.ended.is_none() || self.verdict.is_complaint() {
            self.verdict.add(cause);
        }
        self.end(false);
    }

    fn on_node(&mut self, index: usize, message: FromNode) {
        let node = self.nodes[index].node;
        if self.losses.is_lost(index) {
            return;
        }
        match message {
            // Said before the job was described.
            FromNode::Arrived { .. } => {}
            FromNode::Ready { host, addresses } => {
                self.verdict.set_host(node, host.clone());
                let link = &mut self.nodes[index];
                (link.host, link.addresses, link.phase) = (host, addresses, Phase::Ready);
            }
            FromNode::Failed { message, code } => {
                self.nodes[index].phase = Phase::Over;
                self.fail(Cause::Failed { node, message, code });
            }
            FromNode::Joined => {
                if !std::mem::replace(&mut self.any_joined, true)
                    && let Some((since, _)) = &mut self.left
                {
                    *since = Instant::now();
                }
            }
            FromNode::Gather(contributions) => {
                self.nodes[index].contributions = Some(contributions);
                self.check_step();
                self.gather_if_all();
            }
            FromNode::Fence(put) => {
                self.nodes[index].fence = Some(put);
                self.fence_if_all();
            }
            FromNode::Finalise => {
                self.nodes[index].finalised = true;
                self.check_step();
                self.finalise_if_all();
            }
            FromNode::Exited(exit) => self.on_exit(index, exit),
            // Ranks that are left behind may complain before they are ended.
            FromNode::Abort { .. } if self.exiting.is_some() => {}
            // All ranks have ended well, and the agents leave one after the other: what one sees of another's end is no failure. An
            // end that is one shows by itself.
            FromNode::Abort { is_complaint: true, .. } if self.stopping && self.ended.is_none() => {}
            FromNode::Abort { from, message, code, is_complaint } => {
                if is_complaint {
                    self.blame_loss();
                }
                self.fail(Cause::Abort { from, message, code, is_complaint });
            }
            FromNode::Exit { code } => self.on_announcement(code),
            FromNode::Output { rank, stream, bytes } => self.outputs.push(rank, stream, &bytes),
            FromNode::Suspended { rank, pid } => {
                let who = self.verdict.describe_rank(rank, pid);
                self.tell_stop(&who, pid);
            }
            FromNode::Unending(ranks) => ranks.into_iter().for_each(|(rank, pid)| {
                let who = self.verdict.describe_rank(rank, pid);
                self.verdict.add_unending(who);
            }),
            FromNode::InputTaken(count) => {
                self.input.on_its_way = self.input.on_its_way.saturating_sub(count as usize);
            }
            FromNode::Stopped => self.nodes[index].phase = Phase::Over,
            FromNode::Alive => self.end_heard = self.ended.map(|_| Instant::now()),
            FromNode::Broken(peer) => self.on_broken(index, peer),
        }
    }

    /// Hands on the contributions of all ranks, once they are complete. If a node is lost, nothing is:
    /// daemons tell their ranks.
    fn gather_if_all(&mut self) {
        if self.goes_on() || !self.nodes.iter().all(|node| node.contributions.is_some()) {
            return;
        }
        let all = self.nodes.iter_mut().filter_map(|node| node.contributions.take()).flatten();
        let all = all.collect();
        self.tell_all(&ToNode::Gathered(all));
    }

    /// Announces that all ranks wait in a barrier of PMI-1, once they do, with the values that they have put.
    fn fence_if_all(&mut self) {
        let is_any = self.nodes.iter().any(|node| node.fence.is_some());
        let mut all = self.nodes.iter().enumerate();
        if is_any && all.all(|(index, node)| self.losses.is_lost(index) || node.fence.is_some()) {
            let all = self.nodes.iter_mut().filter_map(|node| node.fence.take()).flatten().collect();
            self.tell_all(&ToNode::Fenced(all));
        }
    }

    /// Says that all ranks have finalised, once they have.
    fn finalise_if_all(&mut self) {
        let is_any = self.nodes.iter().any(|node| node.finalised);
        let mut all = self.nodes.iter().enumerate();
        if is_any && all.all(|(index, node)| self.losses.is_lost(index) || node.finalised) {
            self.tell_all(&ToNode::Finalised);
        }
    }

    /// Says that a process has been stopped for long. Only users know if that was on purpose.
    fn tell_stop(&mut self, who: &str, pid: u32) {
        let line = OneLine(format!(
            "warning: {who} has been stopped for {} s, and the job waits for it; to go on: kill -CONT {pid}; to end the \
             job: kill -KILL {pid}, or Ctrl-C twice",
            STOP_TIMEOUT.as_secs()
        ));
        self.outputs.end_line();
        self.outputs.push_plain(format!("{line}\n").as_bytes());
    }

    /// Waits for the daemons' processes, which have nothing to do any more; kills those that do not end, and notes which
    /// do not end even then.
    fn end_daemons(&mut self) {
        if self.daemons_end() {
            return;
        }
        self.nodes.iter_mut().for_each(NodeLink::kill);
        if self.daemons_end() {
            return;
        }
        for node in &mut self.nodes {
            if !node.ends_by(Instant::now())
                && let Some(pid) = node.pid()
            {
                self.verdict.add_unending(self.verdict.describe_daemon(node.node, Some(pid)));
            }
        }
    }

    /// Waits until all daemons have ended, or one does not get on with it. One that gives its memory back is waited for, however
    /// long it takes.
    fn daemons_end(&mut self) -> bool {
        loop {
            let deadline = Instant::now() + EXIT_TIMEOUT;
            let late = self.nodes.iter_mut().map(|node| !node.ends_by(deadline) && !node.is_ending());
            // All of them are asked: each remembers how far it was.
            if late.fold(false, |any, is_late| any | is_late) {
                return false;
            }
            if self.nodes.iter_mut().all(|node| node.ends_by(Instant::now())) {
                return true;
            }
        }
    }

    /// A rank exits, and wants the job to.
    fn on_announcement(&mut self, code: u8) {
        let new = Exiting { since: Instant::now(), code, ranks: 0, asked: false };
        let all = self.layout.ranks() - self.lost_ranks();
        let exiting = self.exiting.get_or_insert(new);
        exiting.ranks += 1;
        // Reports of ranks that were asked to follow are about this exit, not about the job.
        if exiting.code == 0 && !exiting.asked {
            exiting.code = code;
        }
        if exiting.ranks == all {
            self.tell_all(&ToNode::Finalised);
        }
    }

    /// Ends the ranks that do not exit although the job was ended: SIGQUIT, which they may catch (GASNet
    /// specification 1.8, 2.1.5), and then as in a failed job.
    fn end_the_others(&mut self) {
        let Some(exiting) = &mut self.exiting else { return };
        if self.ranks_running == 0 || self.ended.is_some() {
            return;
        }
        if exiting.since.elapsed() >= EXIT_GRACE + TERMINATION_GRACE {
            self.end(false);
        } else if exiting.since.elapsed() >= EXIT_GRACE && !exiting.asked {
            exiting.asked = true;
            self.tell_all(&ToNode::Signal(SIGQUIT));
        }
    }

    fn on_exit(&mut self, index: usize, exit: RankExit) {
        if self.is_end_of_node(index, &exit) {
            return;
        }
        self.ranks_running = self.ranks_running.saturating_sub(1);
        self.ranks_ended[index] += 1;
        // A job that is exiting has its status; only what was killed is news.
        let is_news =
            self.exiting.is_none() || matches!(exit.exit, Exit::Signal(signal) if signal != SIGQUIT);
        if is_news {
            self.verdict.add_exit(exit);
        }
        if exit.exit == Exit::Code(0) && !exit.finalised && self.left.is_none() {
            self.left = Some((Instant::now(), exit));
        }
        if self.verdict.failed() {
            self.end(false);
        }
    }

    /// Takes due actions: the start, the end, and timeouts.
    fn advance(&mut self) {
        if !self.started && self.ended.is_none() {
            if self.nodes.iter().all(|node| node.phase == Phase::Ready) {
                self.start_ranks();
            } else if self.begun.elapsed() >= self.spec.connect_timeout {
                self.give_up_waiting();
            } else if self.begun.elapsed() >= WAIT_IS_TOLD_AFTER {
                self.tell_wait();
            }
        }
        self.lose_suspected();
        if self.ranks_running == 0 && !self.stopping && self.ended.is_none() {
            self.stopping = true;
            self.tell_all(&ToNode::Stop);
        }
        self.end_the_others();
        if self.hesitates.is_some_and(|until| until <= Instant::now()) {
            self.end(false);
        }
        if let Some((since, exit)) = self.left
            && (self.any_joined
                && self.ranks_running > 0
                && since.elapsed() >= LEAVE_GRACE
                && self.exiting.is_none()
                && self.ended.is_none())
        {
            self.fail(Cause::Left(exit));
        }
        let end_heard = self.ended.map(|since| self.end_heard.unwrap_or(since));
        if end_heard.is_some_and(|since| since.elapsed() >= TERMINATION_GRACE + END_TIMEOUT) {
            for node in self.nodes.iter_mut().filter(|node| node.phase != Phase::Over) {
                node.lose(None);
            }
        }
        for index in 0..self.nodes.len() {
            let node = &mut self.nodes[index];
            if node.phase != Phase::Over
                && node.stop.take_due()
                && let Some(pid) = node.pid()
            {
                let who = self.verdict.describe_daemon(node.node, Some(pid));
                self.tell_stop(&who, pid);
            }
        }
        if !self.spec.hosts.is_empty() {
            if self.said_alive.elapsed() >= ALIVE_INTERVAL {
                self.said_alive = Instant::now();
                self.tell_all(&ToNode::Alive);
            }
            for index in 0..self.nodes.len() {
                if self.nodes[index].is_silent() {
                    self.lose(index, Some("has not answered for 15 s".into()));
                }
            }
        }
    }

    /// Tells all nodes, once they are ready, the addresses of the listeners.
    fn start_ranks(&mut self) {
        let several_hosts = self.nodes.iter().any(|node| node.host != self.nodes[0].host);
        let unreachable = |node: &&NodeLink| node.addresses.iter().any(|address| address.ip().is_loopback());
        if let Some(node) = self.nodes.iter().filter(|_| several_hosts).find(unreachable) {
            let message =
                "listens on a loopback address, which other hosts cannot reach; name an interface".into();
            self.fail(Cause::Failed { node: node.node, message, code: 1 });
            return;
        }
        // By peer: the ranks of all nodes in order, then the agents.
        let ranks =
            self.nodes.iter().flat_map(|node| node.addresses.split_last().map_or(&[][..], |split| split.1));
        let agents = self.nodes.iter().filter_map(|node| node.addresses.last());
        let addresses = ranks.chain(agents).copied().collect();
        self.started = true;
        self.tell_all(&ToNode::Start { addresses });
    }

    /// Says once which nodes the start waits for.
    fn tell_wait(&mut self) {
        if std::mem::replace(&mut self.wait_is_told, true) {
            return;
        }
        let missing = self.nodes.iter().filter(|node| node.phase == Phase::Preparing);
        let missing: Vec<String> = missing
            .map(|node| match self.spec.hosts.get(node.node.0 as usize) {
                Some(host) => format!("{} (host {host})", node.node),
                None => node.node.to_string(),
            })
            .collect();
        let more = if missing.len() > 8 { ", …" } else { "" };
        let line = OneLine(format!(
            "vgas: the start has waited {} s for {}{more}; it waits for {} s (run.start_timeout_ms)",
            WAIT_IS_TOLD_AFTER.as_secs(),
            missing[..missing.len().min(8)].join(", "),
            self.spec.connect_timeout.as_secs_f32()
        ));
        self.outputs.end_line();
        self.outputs.push_plain(format!("{line}\n").as_bytes());
    }

    fn give_up_waiting(&mut self) {
        let seconds = self.spec.connect_timeout.as_secs_f32();
        // None of them has started anything: there is nothing whose end would have to be waited for.
        let mut silent = Vec::new();
        for node in self.nodes.iter_mut().filter(|node| node.phase == Phase::Preparing) {
            node.lose(Some("not ready in time".into()));
            silent.push(node.node);
        }
        let Some((&node, others)) = silent.split_first() else { return };
        let others = match others.len() {
            0 => String::new(),
            count => format!(" (nor from {count} other nodes)"),
        };
        let message = match self.spec.hosts.get(node.0 as usize) {
            Some(host) => {
                let works = match self.spec.starter {
                    Starter::Srun(_) => {
                        format!("does `srun --overlap -N1 -n1 -w {host} true` work, and soon?")
                    }
                    _ => format!("does `ssh {host} true` work without a password?"),
                };
                format!("no answer within {seconds} s{others}; {works}")
            }
            None => format!("the daemon was not ready within {seconds} s{others}"),
        };
        self.fail(Cause::Failed { node, message, code: 1 });
    }

    /// Ranks that wait in allgather for ranks that wait in finalize would wait for ever, unless that is due to a loss.
    fn check_step(&mut self) {
        if !self.goes_on() && self.nodes.iter().any(|node| node.contributions.is_some()) {
            let finalised = self.nodes.iter().find(|node| node.finalised).map(|node| node.node);
            if let Some(node) = finalised {
                let from = Peer(self.layout.ranks_of(node).start);
                self.fail(Cause::Abort { from, message: OUT_OF_STEP.into(), code: 1, is_complaint: false });
            }
        }
    }

    fn fail(&mut self, cause: Cause) {
        self.verdict.add(cause);
        self.end(false);
    }

    /// Has every process ended, gently or at once.
    fn end(&mut self, at_once: bool) {
        if self.ended.is_some() && !at_once {
            return;
        }
        if self.is_joined && !at_once && self.verdict.is_mere_complaint() {
            let until = *self.hesitates.get_or_insert_with(|| Instant::now() + COMPLAINT_TIMEOUT);
            if until > Instant::now() {
                return;
            }
        }
        self.hesitates = None;
        self.ended.get_or_insert_with(Instant::now);
        let JobStatus { code, message: line } = self.status();
        self.tell_all(&ToNode::End { at_once, why: Why { line, code } });
    }

    fn tell_all(&mut self, message: &ToNode) {
        for index in 0..self.nodes.len() {
            self.tell(index, message);
        }
    }

    /// Says something to a daemon; that it is gone is noticed when listening to it.
    fn tell(&mut self, index: usize, message: &ToNode) {
        if let Some(node) = self.nodes.get_mut(index)
            && node.phase != Phase::Over
        {
            let _ = node.channel.sender.send(message);
        }
    }
}
