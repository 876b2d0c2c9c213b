//! The daemon of a node: starts its ranks and its service, stands between them and the launcher, and leaves nothing
//! behind. One event loop in the main thread; the service has a thread of its own.

#![forbid(unsafe_code)]

mod process_manager;

use super::bootstrap::{AgentBootstrap, AgentLine, AgentReport, End, Identity};
use super::cluster::Group;
use super::control::{Arrival, Channel, Receiver, Sender, check_sockets, timespec};
use super::membership::Membership;
use super::message::{
    DomainOrigin, FromNode, FromRank, Input, NodeDescription, Output, Stream, ToNode, ToRank, Welcome, Why,
};
use super::pmi::server::{Client, Space};
use super::rank_process::{Ending, OUTPUT_BYTES, RankProcess};
use super::service::{NodeService, ServiceError, Stop};
use super::{
    ALIVE_INTERVAL, ALIVE_TIMEOUT, KILL_TIMEOUT, OUT_OF_STEP, TERMINATION_GRACE, joined, listen, program,
    spec, system,
};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Resource, Rlimit, Signal, WaitOptions, getrlimit, kill_process, setrlimit, wait};
use rustix::thread::{CpuSet, sched_setaffinity};
use signal_hook::consts::{SIGCHLD, SIGXFSZ};
use std::fs::File;
use std::io::IsTerminal;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use vgas_rma::address::{Peer, Rank};
use vgas_rma::conduit::factory;
use vgas_rma::domain::Domain;
use vgas_rma::error::{Result, RmaError};

/// Output of ranks that may wait in the daemon for a launcher that does not take it; then the ranks wait.
const QUEUED_BYTES_MAX: usize = 1 << 20;

/// Time, after every rank has ended, that the daemon waits for the rest of their output and for processes
/// that left their group. Both are normally there at once.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// See [`crate::node_main`].
pub(crate) fn node_main(service: Box<dyn NodeService>) -> Result<u8> {
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        return Err(RmaError::Refused("a node's daemon is started by `vgas run`, not by hand".into()));
    }
    raise_file_limit();
    // Beyond the limit of the file size a write is to be an error, which the service can report, not the end of the
    // daemon. Programs that are started get the default again.
    let noticed = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGXFSZ, noticed).map_err(|e| RmaError::io("catch signals", e))?;
    let io = |e| RmaError::io("take over the control channel", e);
    let null: OwnedFd = File::open("/dev/null").map_err(io)?.into();
    let input = system::take_standard_stream(stdin.as_fd(), null.as_fd()).map_err(io)?;
    let input = Arc::new(input);
    let mut receiver = Receiver::new(input.clone())?;
    let (description, files) = match receiver.next_blocking()? {
        Some((ToNode::Describe(description), files)) => (description, files),
        Some((message @ (ToNode::Lead(_) | ToNode::Serve { .. }), files)) => {
            let channel = Channel { sender: Sender::new(input, true)?, receiver };
            return help(message, files, channel, service);
        }
        _ => {
            return Err(RmaError::Protocol {
                peer: None,
                what: "the launcher did not describe the job".into(),
            });
        }
    };
    let sender = if description.over_ssh {
        let (stdout, stderr) = (std::io::stdout(), std::io::stderr());
        Sender::new(
            Arc::new(system::take_standard_stream(stdout.as_fd(), stderr.as_fd()).map_err(io)?),
            false,
        )?
    } else {
        Sender::new(input, true)?
    };
    let mut channel = Channel { sender, receiver };
    match Node::prepare(*description, files, &mut channel) {
        Ok(prepared) => prepared.serve(channel, service),
        Err(error) => fail(&mut channel, &error.to_string(), 1),
    }
}

/// Serves as a helper of an externally started job.
fn help(
    message: ToNode,
    mut files: Vec<OwnedFd>,
    rank: Channel,
    service: Box<dyn NodeService>,
) -> Result<u8> {
    system::go_apart().map_err(|e| RmaError::io("begin as a helper of the job", e))?;
    widen_affinity();
    let listener = files.pop();
    let listener =
        listener.ok_or_else(|| RmaError::Protocol { peer: None, what: "no listener came".into() })?;
    match message {
        ToNode::Lead(lead) => joined::lead::lead(*lead, listener.into(), rank, &*service),
        ToNode::Serve { ranks, timeout } => {
            joined::daemon::serve(ranks, timeout, listener.into(), rank, service)
        }
        _ => Err(RmaError::Protocol { peer: None, what: "no helper is asked for".into() }),
    }
}

/// Starters bind a rank to its cores, and with it what it starts; a node's daemon serves all ranks of the node. The kernel gives no
/// more than the cores of the step.
fn widen_affinity() {
    let mut all = CpuSet::new();
    (0..CpuSet::MAX_CPU).for_each(|core| all.set(core));
    // Refusal leaves what is there.
    let _ = sched_setaffinity(None, &all);
}

/// Tells the launcher why this node cannot continue.
pub(crate) fn fail(channel: &mut Channel, message: &str, code: u8) -> Result<u8> {
    channel.sender.send(&FromNode::Failed { message: message.into(), code })?;
    channel.sender.flush_blocking()?;
    Ok(1)
}

/// A domain has a file a member and a file a region: many ranks need more than the usual 1024.
pub(super) fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    // Refusal shows later, as "too many open files".
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

/// Everything of the node but the channel to the launcher.
pub(crate) struct Node {
    description: NodeDescription,
    domain: Arc<Domain>,
    /// By local peer (ranks, then the agent), until it is handed over.
    listeners: Vec<Option<TcpListener>>,
    inherited_input: Option<OwnedFd>,
    addresses: Vec<SocketAddr>,
    /// Externally started ranks, until the start.
    guests: Vec<RankProcess>,
    ranks: Vec<RankProcess>,
    agent: Arc<AgentLine>,
    /// The job continues without a node.
    goes_on: bool,
    stop: Stop,
    service: ServiceState,
    ending: Ending,
    /// When to kill, after having terminated.
    kill_at: Option<Instant>,
    /// Deadline after which killed processes that still run are given up.
    give_up_at: Option<Instant>,
    /// Some processes cannot be ended.
    gave_up: bool,
    /// The launcher, and with it the ranks, were stopped from a terminal.
    suspended: bool,
    joined_reported: bool,
    /// The launcher was killed.
    is_orphan: bool,
    /// Values that ranks have exchanged by PMI-1.
    space: Space,
    output_buffer: Vec<u8>,
    /// Since when no rank runs.
    idle_since: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ServiceState {
    NotStarted,
    Starting,
    Running,
    Stopped,
}

/// Next action of the event loop.
enum Next {
    Continue,
    Leave(u8),
}

impl Node {
    /// As [`Node::prepare`], for externally started ranks, in their order. Gives them back when it fails.
    pub(crate) fn prepare_with(
        description: NodeDescription,
        files: Vec<OwnedFd>,
        channel: &mut Channel,
        mut guests: Vec<RankProcess>,
    ) -> std::result::Result<Self, (RmaError, Vec<RankProcess>)> {
        let (node, layout) = (description.node, &description.job.layout);
        let numbers = if node.0 < layout.nodes() { layout.ranks_of(node) } else { 0..0 };
        if numbers.len() != guests.len() {
            let what = format!("{} ranks are here, and others were described", guests.len());
            return Err((RmaError::Protocol { peer: None, what }, guests));
        }
        guests.iter_mut().zip(numbers).for_each(|(guest, number)| guest.rank = Rank(number));
        match Self::prepare(description, files, channel) {
            Ok(node) => Ok(Self { guests, ..node }),
            Err(error) => Err((error, guests)),
        }
    }

    /// Makes the domain and the listeners, and reports them.
    fn prepare(description: NodeDescription, mut files: Vec<OwnedFd>, channel: &mut Channel) -> Result<Self> {
        let (node, layout) = (description.node, &description.job.layout);
        if node.0 >= layout.nodes() {
            let what = format!("the daemon of {node} was started in a job of {} nodes", layout.nodes());
            return Err(RmaError::Protocol { peer: None, what });
        }
        layout.name_peers();
        let local_ranks = layout.ranks_of(node);
        spec::check_cores(local_ranks.len() as u32)?;
        check_sockets()?;
        if !description.directory.as_os_str().is_empty() && !description.directory.is_dir() {
            let directory = description.directory.display();
            return Err(RmaError::Refused(format!(
                "the folder {directory} does not exist on {}",
                listen::host()
            )));
        }
        let inherited_input = match description.input {
            Input::Inherit => files.pop(),
            Input::Null | Input::Forward => None,
        };
        let domain = match description.domain_origin {
            DomainOrigin::Daemon => Domain::create(description.domain.clone())?,
            DomainOrigin::Launcher => Domain::open(description.domain.clone(), files)?,
        };
        let listeners = match &description.listen {
            Some(listen) => listen::bind(listen, local_ranks.len() + 1)?,
            None => Vec::new(),
        };
        let addresses = listeners.iter().map(TcpListener::local_addr).collect::<Result<_, _>>();
        let addresses = addresses.map_err(|e| RmaError::io("learn the address of a listener", e))?;
        channel.sender.send(&FromNode::Ready { host: listen::host(), addresses })?;
        let space = Space::new(&description.job.layout, description.job.key.job_id());
        Ok(Self {
            description,
            domain: Arc::new(domain),
            listeners: listeners.into_iter().map(Some).collect(),
            inherited_input,
            addresses: Vec::new(),
            guests: Vec::new(),
            ranks: Vec::new(),
            agent: Arc::new(AgentLine::new()?),
            goes_on: false,
            stop: Stop::new()?,
            service: ServiceState::NotStarted,
            ending: Ending::No,
            kill_at: None,
            give_up_at: None,
            gave_up: false,
            suspended: false,
            joined_reported: false,
            is_orphan: false,
            space,
            output_buffer: vec![0; OUTPUT_BYTES],
            idle_since: None,
        })
    }

    /// The event loop. Whatever goes wrong in it ends the node's processes.
    pub(crate) fn serve(mut self, mut channel: Channel, service: Box<dyn NodeService>) -> Result<u8> {
        let result = self.event_loop(&mut channel, service);
        let line = result.as_ref().err().map(RmaError::to_string);
        let line = line.unwrap_or_else(|| "the process that leads the job has ended".into());
        // The launcher says why. It may be gone itself: then there is no receiver.
        let result = result.or_else(|error| fail(&mut channel, &error.to_string(), 1).or(Ok(1)));
        self.dismiss_guests(&Why { line: Some(line), code: 1 });
        self.end(true, &Why::default());
        self.kill_strays();
        if let (true, Some(group)) = (self.is_orphan, &self.description.group) {
            Group::leave_and_remove(group);
        }
        result
    }

    fn event_loop(&mut self, channel: &mut Channel, service: Box<dyn NodeService>) -> Result<u8> {
        let children = children_pipe()?;
        // Processes whose parent, a rank or one of its children, has ended become ours instead of init's.
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
            .map_err(|e| RmaError::system("adopt orphans", e))?;
        let mut service = Some(service);
        let (mut heard, mut said) = (Instant::now(), Instant::now());
        loop {
            self.wait(channel, &children)?;
            if channel.receiver.read()? == Arrival::End {
                // The launcher has ended without a word. So do we, at once.
                self.is_orphan = true;
                return Ok(1);
            }
            while let Some((message, _)) = channel.receiver.next::<ToNode>()? {
                heard = Instant::now();
                if let ToNode::Signal(signal) = message {
                    // A suspended launcher is silent.
                    self.suspended = signal == libc::SIGTSTP || (self.suspended && signal != libc::SIGCONT);
                    self.ranks.iter_mut().for_each(|rank| rank.stop.restart());
                }
                if let Next::Leave(code) = self.on_launcher(message, channel, &mut service)? {
                    return Ok(code);
                }
            }
            channel.sender.flush()?;
            self.take_agent_reports(channel)?;
            self.serve_ranks(channel)?;
            self.manage_processes(channel)?;
            self.forward_output(channel)?;
            if drain(&children) {
                self.ranks.iter_mut().for_each(RankProcess::notice_stop);
            }
            self.tell_stops(channel)?;
            self.take_exits(channel)?;
            self.kill_when_due();
            if let Next::Leave(code) = self.leave_when_done(channel)? {
                return Ok(code);
            }
            if !channel.sender.carries_files() {
                if said.elapsed() >= ALIVE_INTERVAL {
                    channel.sender.send(&FromNode::Alive)?;
                    said = Instant::now();
                }
                if heard.elapsed() > ALIVE_TIMEOUT && !self.suspended {
                    return Ok(1);
                }
            }
        }
    }

    /// Tells guests that are still there why the job ends, and gives them a moment to say so before they are killed.
    fn dismiss_guests(&mut self, why: &Why) {
        let guests = self.guests.iter_mut().chain(&mut self.ranks);
        let mut guests: Vec<&mut RankProcess> =
            guests.filter(|rank| rank.is_guest() && rank.runs()).collect();
        if self.ending == Ending::No {
            guests.iter_mut().for_each(|guest| guest.tell_end(why));
        }
        let until = Instant::now() + TERMINATION_GRACE;
        loop {
            // Their messages are too late now.
            guests.retain_mut(|guest| guest.receive().is_ok() && guest.channel.is_some());
            let left = until.saturating_duration_since(Instant::now());
            if guests.is_empty() || left.is_zero() {
                return guests.iter().for_each(|guest| guest.signal(Signal::KILL));
            }
            let files = guests.iter().filter_map(|guest| guest.channel.as_ref());
            let files: Vec<BorrowedFd<'_>> = files.map(|channel| channel.receiver.file()).collect();
            let mut files: Vec<PollFd<'_>> =
                files.iter().map(|file| PollFd::new(file, PollFlags::IN)).collect();
            let _ = poll(&mut files, Some(&timespec(left)));
        }
    }

    /// Sleeps until there is something to do.
    fn wait(&self, channel: &Channel, children: &UnixStream) -> Result<()> {
        let (input, output) = (PollFlags::IN, PollFlags::OUT);
        let mut files: Vec<(BorrowedFd<'_>, PollFlags)> = vec![
            (channel.receiver.file(), input),
            (children.as_fd(), input),
            (self.agent.descriptor(), input),
        ];
        if channel.sender.queued_bytes() > 0 {
            files.push((channel.sender.file(), output));
        }
        for rank in &self.ranks {
            if let Some(channel) = &rank.channel {
                let more = if channel.sender.queued_bytes() > 0 { output } else { PollFlags::empty() };
                files.push((channel.receiver.file(), input | more));
            }
            files.extend(rank.pmi.as_ref().and_then(Client::poll_file));
            if channel.sender.queued_bytes() < QUEUED_BYTES_MAX {
                files.extend(rank.outputs.iter().flatten().map(|pipe| (pipe.as_fd(), input)));
            }
            if let Some(rank_input) = &rank.input
                && let (true, Some(pipe)) = (rank_input.waits(), &rank_input.pipe)
            {
                files.push((pipe.as_fd(), output));
            }
        }
        let mut files: Vec<PollFd<'_>> =
            files.iter().map(|(file, flags)| PollFd::new(file, *flags)).collect();
        let timeout = self.timeout(channel).map(timespec);
        match poll(&mut files, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(RmaError::system("wait for events", e)),
        }
    }

    /// Returns the longest time to sleep.
    fn timeout(&self, channel: &Channel) -> Option<Duration> {
        let now = Instant::now();
        let alive = (!channel.sender.carries_files()).then_some(ALIVE_INTERVAL);
        let kill = self.kill_at.map(|at| at.saturating_duration_since(now));
        let give_up = self.give_up_at.map(|at| at.saturating_duration_since(now));
        let stops = self.ranks.iter().filter(|rank| !self.suspended && rank.runs());
        let stop = stops.filter_map(|rank| rank.stop.due()).min().map(|at| at.saturating_duration_since(now));
        let drain = self.idle_since.map(|since| (since + DRAIN_TIMEOUT).saturating_duration_since(now));
        // After the drain time is over, only events count.
        let drain = drain.filter(|time| !time.is_zero());
        [alive, kill, give_up, stop, drain].into_iter().flatten().min()
    }

    fn on_launcher(
        &mut self,
        message: ToNode,
        channel: &mut Channel,
        service: &mut Option<Box<dyn NodeService>>,
    ) -> Result<Next> {
        match message {
            ToNode::Start { addresses } => {
                self.addresses = addresses;
                if let Some(service) = service.take() {
                    return self.start(channel, service);
                }
            }
            ToNode::Signal(number) => {
                if let Some(signal) = Signal::from_named_raw(number) {
                    self.ranks.iter().for_each(|rank| rank.signal(signal));
                }
            }
            ToNode::Input(bytes) => {
                let taken = self
                    .ranks
                    .first_mut()
                    .and_then(|rank| rank.input.as_mut())
                    .map(|input| input.push(&bytes));
                // Without anybody to read it, it is done with, too.
                acknowledge_input(channel, taken.unwrap_or(bytes.len()))?;
            }
            ToNode::Gathered(all) => {
                let message = ToRank::Gathered(all);
                for rank in &mut self.ranks {
                    rank.progress.gathers = false;
                    rank.send(&message, Vec::new());
                }
            }
            ToNode::Fenced(all) => self.leave_barrier(all),
            ToNode::Finalised => {
                self.ranks.iter_mut().for_each(|rank| {
                    rank.send(&ToRank::Finalised, Vec::new());
                    rank.finish();
                });
            }
            ToNode::End { at_once, why } => {
                // Earlier exits are not our doing.
                self.take_exits(channel)?;
                self.end(at_once, &why);
            }
            ToNode::Stop => {
                self.stop.request();
                if self.service == ServiceState::NotStarted {
                    self.service = ServiceState::Stopped;
                }
            }
            ToNode::Describe(_) | ToNode::Lead(_) | ToNode::Serve { .. } | ToNode::Reach { .. } => {
                return Err(RmaError::Protocol { peer: None, what: "a second description came".into() });
            }
            ToNode::Alive => {}
            ToNode::Lost(node) => {
                self.goes_on = true;
                self.answer_gatherers();
                self.agent.hear(node);
            }
        }
        Ok(Next::Continue)
    }

    /// Starts the ranks and, meanwhile, the service.
    fn start(&mut self, channel: &mut Channel, service: Box<dyn NodeService>) -> Result<Next> {
        self.ranks = std::mem::take(&mut self.guests);
        let here = self.description.job.layout.ranks_of(self.description.node);
        let to_start = if self.ranks.is_empty() { here } else { 0..0 };
        // Ranks first: a fork is cheapest while this process is small and has one thread.
        for rank in to_start.map(Rank) {
            match RankProcess::spawn(
                &self.description,
                rank,
                self.inherited_input.take_if(|_| rank == Rank(0)),
            ) {
                Ok(process) => self.ranks.push(process),
                Err(error) => {
                    let code = if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 };
                    let NodeDescription { program, directory, .. } = &self.description;
                    let reason = program::start_reason(program, directory, &error);
                    return fail(
                        channel,
                        &format!("cannot start {}: {reason}", program.to_string_lossy()),
                        code,
                    )
                    .map(Next::Leave);
                }
            }
        }
        // While there is one thread: the kernel makes a process with several wait for all processors, some 10 ms.
        vgas_shm::fence::is_asymmetric();
        let agent = self.description.job.layout.agent_of(self.description.node);
        let job = &self.description.job;
        let membership = Membership {
            bootstrap: Arc::new(AgentBootstrap {
                place: Identity { layout: job.layout.clone(), me: agent },
                line: self.agent.clone(),
            }),
            key: job.key.clone(),
            conduit: job.conduit.clone(),
            settings: job.settings.clone(),
            domain: self.domain.clone(),
            listener: self.listeners.last_mut().and_then(Option::take),
            addresses: self.addresses.clone(),
        };
        self.service = ServiceState::Starting;
        let (line, stop) = (self.agent.clone(), self.stop.clone());
        std::thread::Builder::new()
            .name("vgas-agent".into())
            .spawn(move || run_service(service, membership, &line, &stop))
            .map_err(|e| RmaError::io("start the agent's thread", e))?;
        Ok(Next::Continue)
    }

    fn take_agent_reports(&mut self, channel: &mut Channel) -> Result<()> {
        for report in self.agent.take() {
            match report {
                AgentReport::Started => {
                    self.service = ServiceState::Running;
                    for index in 0..self.ranks.len() {
                        self.welcome(index)?;
                    }
                }
                AgentReport::End(End { message, code, is_complaint }) => {
                    let from = self.description.job.layout.agent_of(self.description.node);
                    channel.sender.send(&FromNode::Abort { from, message, code, is_complaint })?;
                }
                AgentReport::Stopped => self.service = ServiceState::Stopped,
                AgentReport::Broken(peer) => channel.sender.send(&FromNode::Broken(peer))?,
            }
        }
        Ok(())
    }

    /// Welcomes a rank that has joined, when the service is ready for it.
    fn welcome(&mut self, index: usize) -> Result<()> {
        let rank = &mut self.ranks[index];
        if !rank.progress.joined || rank.progress.welcomed || self.service != ServiceState::Running {
            return Ok(());
        }
        rank.progress.welcomed = true;
        let listener = self.listeners.get_mut(index).and_then(Option::take);
        let welcome = Welcome {
            job: self.description.job.clone(),
            me: Peer(rank.rank.0),
            domain: self.domain.spec().clone(),
            addresses: self.addresses.clone(),
            listens: listener.is_some(),
            lifeline: rank.is_guest(),
        };
        let mut files: Vec<OwnedFd> = rank.make_lifeline()?.into_iter().collect();
        files.extend(listener.map(OwnedFd::from));
        for file in self.domain.files() {
            let copy = file.try_clone_to_owned();
            files.push(copy.map_err(|e| RmaError::io("pass shared memory to a rank", e))?);
        }
        rank.send(&ToRank::Welcome(Box::new(welcome)), files);
        Ok(())
    }

    /// Handles the ranks' messages, and sends messages that waited for room.
    fn serve_ranks(&mut self, channel: &mut Channel) -> Result<()> {
        for index in 0..self.ranks.len() {
            let rank = &mut self.ranks[index];
            if let Some(input) = &mut rank.input {
                acknowledge_input(channel, input.flush())?;
            }
            rank.flush();
            match rank.receive() {
                Ok(messages) => {
                    for message in messages {
                        self.on_rank(index, message, channel)?;
                    }
                }
                Err(error) => {
                    rank.channel = None;
                    let from = Peer(rank.rank.0);
                    let message = format!("broke the start-up protocol: {error}");
                    channel.sender.send(&FromNode::Abort { from, message, code: 1, is_complaint: false })?;
                }
            }
        }
        Ok(())
    }

    fn on_rank(&mut self, index: usize, message: FromRank, channel: &mut Channel) -> Result<()> {
        let rank = &mut self.ranks[index];
        match message {
            FromRank::Join => {
                rank.progress.joined = true;
                let conduit = &self.description.job.conduit;
                let is_slow = factory::find(conduit).is_ok_and(|provider| provider.slow().is_some());
                if is_slow && self.service != ServiceState::Running {
                    rank.send(&ToRank::Prepare { conduit: conduit.clone() }, Vec::new());
                }
                self.report_joined(channel)?;
                self.welcome(index)?;
            }
            FromRank::Gather(bytes) => {
                (rank.progress.contribution, rank.progress.gathers) = (Some(bytes), true);
                self.check_step(index, channel)?;
                self.gather_if_all(channel)?;
            }
            FromRank::Finalise => {
                let before = std::mem::replace(&mut rank.progress.finalised, true);
                self.check_step(index, channel)?;
                if !before && self.ranks.iter().all(|rank| rank.progress.finalised) {
                    channel.sender.send(&FromNode::Finalise)?;
                }
            }
            FromRank::Abort { message, code, is_complaint } => {
                let from = Peer(rank.rank.0);
                channel.sender.send(&FromNode::Abort { from, message, code, is_complaint })?;
            }
            FromRank::Exit { code } => {
                if !std::mem::replace(&mut rank.progress.exits, true) {
                    channel.sender.send(&FromNode::Exit { code })?;
                }
            }
            FromRank::Broken(peer) => channel.sender.send(&FromNode::Broken(peer))?,
        }
        Ok(())
    }

    /// Says once that ranks of this node may be waited for.
    fn report_joined(&mut self, channel: &mut Channel) -> Result<()> {
        match std::mem::replace(&mut self.joined_reported, true) {
            true => Ok(()),
            false => channel.sender.send(&FromNode::Joined),
        }
    }

    /// Passes on the contributions of all ranks of the node, once they are complete.
    fn gather_if_all(&mut self, channel: &mut Channel) -> Result<()> {
        if self.goes_on {
            self.answer_gatherers();
        } else if self.ranks.iter().all(|rank| rank.progress.contribution.is_some()) {
            let all = self.ranks.iter_mut().filter_map(|rank| rank.progress.contribution.take()).collect();
            channel.sender.send(&FromNode::Gather(all))?;
        }
        Ok(())
    }

    /// Ends gathering if a node is lost: waiting ranks are answered at once, with empty shares. The other
    /// ranks may have heard of the loss before, and not come.
    fn answer_gatherers(&mut self) {
        let nothing = ToRank::Gathered(vec![Vec::new(); self.description.job.layout.ranks() as usize]);
        for rank in &mut self.ranks {
            rank.progress.contribution = None;
            if std::mem::take(&mut rank.progress.gathers) {
                rank.send(&nothing, Vec::new());
            }
        }
    }

    /// Ranks that wait in allgather for ranks that wait in finalize would wait for ever, unless that is due to a loss.
    fn check_step(&self, index: usize, channel: &mut Channel) -> Result<()> {
        if self.goes_on {
            return Ok(());
        }
        let gathering = self.ranks.iter().any(|rank| rank.progress.contribution.is_some());
        if gathering && self.ranks.iter().any(|rank| rank.progress.finalised) {
            let from = Peer(self.ranks[index].rank.0);
            channel.sender.send(&FromNode::Abort {
                from,
                message: OUT_OF_STEP.into(),
                code: 1,
                is_complaint: false,
            })?;
        }
        Ok(())
    }

    /// Passes on the ranks' output, as far as the launcher takes it.
    fn forward_output(&mut self, channel: &mut Channel) -> Result<()> {
        for rank in self.ranks.iter_mut().filter(|_| self.description.output != Output::Inherit) {
            for stream in [Stream::Output, Stream::Error] {
                if channel.sender.queued_bytes() < QUEUED_BYTES_MAX
                    && let Some(bytes) = rank.read_output(stream, &mut self.output_buffer)
                {
                    let bytes = bytes.to_vec();
                    channel.sender.send(&FromNode::Output { rank: rank.rank, stream, bytes })?;
                }
            }
        }
        Ok(())
    }

    /// Says which ranks have been stopped for long.
    fn tell_stops(&mut self, channel: &mut Channel) -> Result<()> {
        for rank in self.ranks.iter_mut().filter(|rank| !self.suspended && rank.runs()) {
            if rank.stop.take_due() {
                channel.sender.send(&FromNode::Suspended { rank: rank.rank, pid: rank.pid() })?;
            }
        }
        Ok(())
    }

    /// Notices ranks that have ended.
    fn take_exits(&mut self, channel: &mut Channel) -> Result<()> {
        for index in 0..self.ranks.len() {
            if !self.ranks[index].take_exit(self.ending)? {
                continue;
            }
            // Messages before its end (a reason) come before the report that it has ended.
            if let Ok(messages) = self.ranks[index].receive() {
                for message in messages {
                    self.on_rank(index, message, channel)?;
                }
            }
            self.manage_process(index, channel)?;
            let (joined, finalised) = self.ranks[index].has_joined_and_finalised();
            if let Some(exit) = &mut self.ranks[index].exit {
                (exit.joined, exit.finalised) = (joined, finalised);
                channel.sender.send(&FromNode::Exited(*exit))?;
            }
        }
        if self.idle_since.is_none() && !self.ranks.is_empty() && !self.ranks.iter().any(RankProcess::runs) {
            self.idle_since = Some(Instant::now());
        }
        Ok(())
    }

    /// Ends all ranks: gently first, unless at once. Guests are told why.
    fn end(&mut self, at_once: bool, why: &Why) {
        if at_once && self.ending != Ending::Killed {
            self.ranks.iter().for_each(|rank| rank.signal(Signal::KILL));
            self.ending = Ending::Killed;
            self.kill_at = None;
            self.give_up_at = Some(Instant::now() + KILL_TIMEOUT);
        } else if self.ending == Ending::No {
            self.ranks.iter_mut().chain(&mut self.guests).for_each(|rank| rank.tell_end(why));
            self.ending = Ending::Terminated;
            self.kill_at = Some(Instant::now() + TERMINATION_GRACE);
        }
        self.stop.request();
    }

    fn kill_when_due(&mut self) {
        if self.kill_at.is_some_and(|at| Instant::now() >= at) {
            self.end(true, &Why::default());
        }
    }

    /// Leaves when the job is over here: every rank has ended and all was said.
    fn leave_when_done(&mut self, channel: &mut Channel) -> Result<Next> {
        let failed = self.ending != Ending::No;
        let is_late = self.give_up_at.is_some_and(|at| at <= Instant::now());
        if is_late && self.ranks_are_ending() {
            self.give_up_at = Some(Instant::now() + KILL_TIMEOUT);
            channel.sender.send(&FromNode::Alive)?;
        } else if is_late {
            self.give_up_at = None;
            let left = self.ranks.iter().filter(|rank| rank.runs());
            let left: Vec<_> = left.map(|rank| (rank.rank, rank.pid())).collect();
            self.gave_up = !left.is_empty();
            if self.gave_up {
                channel.sender.send(&FromNode::Unending(left))?;
            }
        }
        let quiet = match self.idle_since {
            _ if self.gave_up => true,
            None => failed && self.ranks.is_empty(),
            Some(since) => {
                let drained = self.ranks.iter().all(|rank| rank.outputs.iter().all(Option::is_none));
                drained || since.elapsed() >= DRAIN_TIMEOUT
            }
        };
        // A failed job does not wait for its agents: they may be what hangs.
        if !quiet || !(failed || self.service == ServiceState::Stopped) {
            return Ok(Next::Continue);
        }
        self.kill_strays();
        channel.sender.send(&FromNode::Stopped)?;
        channel.sender.flush_blocking()?;
        Ok(Next::Leave(0))
    }

    /// Returns true if a killed rank is freeing its memory, which may take long.
    fn ranks_are_ending(&mut self) -> bool {
        let left = self.ranks.iter_mut().filter(|rank| rank.runs());
        left.map(|rank| rank.end_progress.advances(rank.pid())).fold(false, |any, advances| any | advances)
    }

    /// Kills and waits for every process that is still a child: ranks, and orphans that left their group.
    fn kill_strays(&mut self) {
        let deadline = Instant::now() + DRAIN_TIMEOUT;
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some(_)) => continue,
                // No children at all: done.
                Err(_) => return,
                Ok(None) => {}
            }
            // Rarely needed: something outlived its rank.
            for child in children_of_this_process() {
                let _ = kill_process(child, Signal::KILL);
            }
            if Instant::now() > deadline {
                return;
            }
            // They die soon, and are reaped above; there is nothing else to do but wait for them.
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// The service's thread.
fn run_service(mut service: Box<dyn NodeService>, membership: Membership, line: &AgentLine, stop: &Stop) {
    let result = catch_unwind(AssertUnwindSafe(|| {
        service.start(membership)?;
        line.report(AgentReport::Started);
        service.run(stop)
    }));
    let result = result.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(ToString::to_string);
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        Err(ServiceError::from(format!("panicked: {text}")))
    });
    match result {
        Err(error) => {
            let is_complaint = error.downcast_ref::<RmaError>().is_some_and(RmaError::is_complaint);
            line.report(AgentReport::End(End { message: error.to_string(), code: 1, is_complaint }));
        }
        Ok(()) if !stop.requested() => line.report(AgentReport::End(End {
            message: "stopped before the job did".into(),
            code: 1,
            is_complaint: false,
        })),
        Ok(()) => {}
    }
    // In every case: a job whose ranks are exiting is not ended for a complaint, and the daemon waits for this.
    line.report(AgentReport::Stopped);
}

fn acknowledge_input(channel: &mut Channel, bytes: usize) -> Result<()> {
    match bytes {
        0 => Ok(()),
        bytes => channel.sender.send(&FromNode::InputTaken(bytes as u32)),
    }
}

/// A pipe that becomes readable when a child has ended.
fn children_pipe() -> Result<UnixStream> {
    let io = |e| RmaError::io("watch for children that end", e);
    let (read, write) = UnixStream::pair().map_err(io)?;
    read.set_nonblocking(true).map_err(io)?;
    signal_hook::low_level::pipe::register(SIGCHLD, write).map_err(io)?;
    Ok(read)
}

/// Empties a pipe, and says whether there was something in it.
fn drain(pipe: &UnixStream) -> bool {
    let mut any = false;
    while let Ok(1..) = rustix::io::read(pipe, &mut [0u8; 64]) {
        any = true;
    }
    any
}

/// The children of this process, found by their parent: few kernels list them (`CONFIG_PROC_CHILDREN`).
fn children_of_this_process() -> Vec<Pid> {
    let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(Pid::from_raw).filter(|&pid| parent_of(pid) == Some(rustix::process::getpid())).collect()
}

fn parent_of(pid: Pid) -> Option<Pid> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    // "pid (name) state parent …", where the name may contain anything.
    let after_name = stat.rsplit_once(')')?.1;
    Pid::from_raw(after_name.split_whitespace().nth(1)?.parse().ok()?)
}
