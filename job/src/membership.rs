//! What a process of a job knows about it, and its line to the node's daemon.

#![forbid(unsafe_code)]

use super::control::{Channel, FRAME_BYTES_MAX, Receiver, Sender};
use super::message::{FromRank, ToRank, Welcome};
use super::system;
use rustix::event::{EventfdFlags, eventfd};
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use vgas_rma::address::{Layout, NodeId, Peer, Rank};
use vgas_rma::conduit::Conduit;
use vgas_rma::conduit::factory::{self, Options};
use vgas_rma::conduit::tcp::TcpSpec;
use vgas_rma::domain::Domain;
use vgas_rma::error::{Result, RmaError};
use vgas_rma::key::JobKey;

/// What a rank, or the agent of a node, knows about its job.
#[derive(Debug)]
pub struct Membership {
    /// Which rank runs where.
    pub layout: Layout,
    /// This endpoint.
    pub me: Peer,
    /// What proves to other processes that this one belongs to the job.
    pub key: JobKey,
    /// The conduit between nodes, by name.
    pub conduit: String,
    /// The settings of the job, as its starter gave them.
    pub settings: BTreeMap<String, String>,
    /// The memory shared with the other processes of the node, or of the job.
    pub domain: Arc<Domain>,
    /// Where the conduit between nodes accepts connections; absent when none does: one domain holds
    /// all processes of the job.
    pub listener: Option<TcpListener>,
    /// Where each peer listens, by peer; empty when none does.
    pub addresses: Vec<SocketAddr>,
    /// The line to the daemon.
    pub control: Control,
}

impl Membership {
    /// The rank, unless this is an agent.
    pub fn rank(&self) -> Option<Rank> {
        self.layout.rank_of_peer(self.me)
    }

    /// The node this process is on.
    pub fn node(&self) -> NodeId {
        self.layout.node_of_peer(self.me)
    }

    /// Opens the conduit to other nodes, once; none when one domain holds all processes of the job.
    ///
    /// # Errors
    /// Those of the conduit; [`RmaError::Refused`] when this build has none of that name.
    pub fn open_network(&mut self, options: &dyn Options) -> Result<Option<Arc<dyn Conduit>>> {
        let Some(listener) = self.listener.take() else { return Ok(None) };
        let (layout, key, addresses) = (self.layout.clone(), self.key.clone(), self.addresses.clone());
        let spec = TcpSpec { layout, me: self.me, key, listener, addresses };
        factory::find(&self.conduit)?.open(spec, options).map(Some)
    }

    /// A member from its parts: the files of the domain come in the order of [`Domain::files`], after the listener.
    fn from_welcome(welcome: Welcome, mut files: Vec<OwnedFd>, control: Control) -> Result<Self> {
        let Welcome { job, me, domain, addresses, listens } = welcome;
        if !job.layout.contains(me) {
            let what = format!("{me} was welcomed to a job of {} peers", job.layout.peers());
            return Err(RmaError::Protocol { peer: None, what });
        }
        job.layout.name_peers();
        if listens && files.is_empty() {
            return Err(RmaError::Protocol { peer: None, what: "the listener did not come".into() });
        }
        let listener = listens.then(|| TcpListener::from(files.remove(0)));
        Ok(Self {
            layout: job.layout,
            me,
            key: job.key,
            conduit: job.conduit,
            settings: job.settings,
            domain: Arc::new(Domain::open(domain, files)?),
            listener,
            addresses,
            control,
        })
    }
}

/// Joins the job that this process was started in, as a rank. Once per process.
///
/// # Errors
/// [`RmaError::NotInJob`] when the process was not started by a launcher: a caller may start a job of one process
/// instead. [`RmaError::Usage`] when it has joined before.
pub fn join() -> Result<Membership> {
    let mut channel = Channel::over_socket(system::take_control_socket()?, true)?;
    channel.sender.send(&FromRank::Join)?;
    channel.sender.flush_blocking()?;
    match channel.receiver.next_blocking()? {
        Some((ToRank::Welcome(welcome), files)) => {
            let ranks = welcome.job.layout.ranks();
            let control = Control(Arc::new(Line::Rank(RankLine::new(channel, ranks))));
            Membership::from_welcome(*welcome, files, control)
        }
        Some(_) => {
            Err(RmaError::Protocol { peer: None, what: "the daemon did not begin with a welcome".into() })
        }
        None => Err(daemon_lost()),
    }
}

fn daemon_lost() -> RmaError {
    RmaError::JobAborted("the daemon of this node has ended".into())
}

/// The line of a process to its node's daemon, and through it to the launcher. May be used by any thread.
#[derive(Clone, Debug)]
pub struct Control(Arc<Line>);

#[derive(Debug)]
enum Line {
    /// Over the control socket.
    Rank(RankLine),
    /// Within the daemon.
    Agent(Arc<AgentLine>),
    /// There is no daemon: a job of one process.
    Alone,
}

struct RankLine {
    ranks: u32,
    sender: Mutex<Sender>,
    receiver: Mutex<Receiver>,
}

impl std::fmt::Debug for RankLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RankLine").field("ranks", &self.ranks).finish_non_exhaustive()
    }
}

impl Control {
    /// The line of a process that is a job by itself.
    pub fn alone() -> Self {
        Self(Arc::new(Line::Alone))
    }

    /// The line of an agent inside its daemon.
    pub(crate) fn of_agent(line: Arc<AgentLine>) -> Self {
        Self(Arc::new(Line::Agent(line)))
    }

    /// Exchanges a few bytes among all ranks, before there are endpoints to do it: returns every rank's contribution,
    /// by rank. Collective: all ranks call it the same number of times. Blocks until all have; slow (through daemons
    /// and launcher), meant for start-up.
    ///
    /// # Errors
    /// [`RmaError::Usage`] when called by an agent, or when all contributions of this size would exceed 16 MiB.
    /// [`RmaError::JobAborted`] when the daemon is gone.
    pub fn allgather(&self, contribution: &[u8]) -> Result<Vec<Vec<u8>>> {
        let line = match &*self.0 {
            Line::Rank(line) => line,
            Line::Alone => return Ok(vec![contribution.to_vec()]),
            Line::Agent(_) => return Err(RmaError::Usage("only ranks take part in an allgather".into())),
        };
        let share = FRAME_BYTES_MAX / 2 / line.ranks as usize;
        if contribution.len() > share {
            let what = format!(
                "{} bytes in an allgather of {} ranks: at most {share}",
                contribution.len(),
                line.ranks
            );
            return Err(RmaError::Usage(what));
        }
        match line.exchange(&FromRank::Gather(contribution.to_vec()))? {
            ToRank::Gathered(all) if all.len() == line.ranks as usize => Ok(all),
            _ => Err(out_of_step()),
        }
    }

    /// Ends the whole job with this line and this exit status (0 becomes 1). Returns as soon as the report is on its
    /// way; the caller's process is ended shortly after, and had better end itself.
    ///
    /// # Errors
    /// When the daemon cannot be told: it is gone, and this process is being ended anyway.
    pub fn abort(&self, message: &str, code: u8) -> Result<()> {
        self.end_job(message, code, false)
    }

    /// Like [`Control::abort`], for what was only seen of others, such as a lost connection: whoever knows more, and ends the
    /// job for it, is believed instead, also when heard later.
    ///
    /// # Errors
    /// As [`Control::abort`].
    pub fn complain(&self, message: &str, code: u8) -> Result<()> {
        self.end_job(message, code, true)
    }

    fn end_job(&self, message: &str, code: u8, is_complaint: bool) -> Result<()> {
        let (message, code) = (message.to_owned(), code.max(1));
        match &*self.0 {
            Line::Rank(line) => line.tell(&FromRank::Abort { message, code, is_complaint }),
            Line::Agent(line) => {
                line.report(AgentReport::Abort { message, code, is_complaint });
                Ok(())
            }
            Line::Alone => Ok(()),
        }
    }

    /// Ends the job with this exit status: every rank, whether it calls this or not. Returns when all ranks have called
    /// it, and the caller then exits with the same status. Ranks that have not called it after a second are asked to
    /// end by SIGQUIT, and are then killed. When several ranks give different statuses, one that is not 0 counts.
    ///
    /// # Errors
    /// [`RmaError::JobAborted`] when the daemon is gone. [`RmaError::Usage`] when another thread waits in
    /// [`Control::allgather`] or [`Control::finalize`]: the exit is on its way, nobody else is waited for.
    pub fn exit(&self, code: u8) -> Result<()> {
        let Line::Rank(line) = &*self.0 else { return Ok(()) };
        line.tell(&FromRank::Exit { code })?;
        let Ok(mut receiver) = line.receiver.try_lock() else { return Err(out_of_step()) };
        loop {
            match receiver.next_blocking()? {
                Some((ToRank::Finalised, _)) => return Ok(()),
                Some(_) => {}
                None => return Err(daemon_lost()),
            }
        }
    }

    /// Declares that this rank needs no other any more, and blocks until all have: after it, a rank may close its
    /// connections and exit without being missed. Collective. A rank that joins and exits with 0 but never calls it
    /// is reported, and the job ended, when the other ranks do not end within a second: they would wait for ever.
    /// Agents need not call it.
    ///
    /// # Errors
    /// [`RmaError::JobAborted`] when the daemon is gone.
    pub fn finalize(&self) -> Result<()> {
        match &*self.0 {
            Line::Rank(line) => match line.exchange(&FromRank::Finalise)? {
                ToRank::Finalised => Ok(()),
                _ => Err(out_of_step()),
            },
            Line::Agent(_) | Line::Alone => Ok(()),
        }
    }
}

fn out_of_step() -> RmaError {
    RmaError::Usage(super::OUT_OF_STEP.into())
}

impl RankLine {
    fn new(channel: Channel, ranks: u32) -> Self {
        Self { ranks, sender: Mutex::new(channel.sender), receiver: Mutex::new(channel.receiver) }
    }

    fn tell(&self, message: &FromRank) -> Result<()> {
        let mut sender = lock(&self.sender);
        sender.send(message)?;
        sender.flush_blocking()
    }

    /// Says something and waits for the answer. The lock on the receiver keeps exchanges of several threads apart;
    /// the sender is free meanwhile, so that another thread can abort.
    fn exchange(&self, message: &FromRank) -> Result<ToRank> {
        let mut receiver = lock(&self.receiver);
        self.tell(message)?;
        receiver.next_blocking()?.map(|(answer, _)| answer).ok_or_else(daemon_lost)
    }
}

/// What these locks guard is consistent whenever a panic could leave them, so a poisoned one is as good as any.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the service's thread tells the daemon's event loop.
#[derive(Debug)]
pub(crate) enum AgentReport {
    /// [`super::NodeService::start`] has returned.
    Started,
    /// The job must end.
    Abort { message: String, code: u8, is_complaint: bool },
    /// [`super::NodeService::run`] has returned.
    Stopped,
}

/// From the service's thread to the daemon's event loop.
#[derive(Debug)]
pub(crate) struct AgentLine {
    reports: Mutex<Vec<AgentReport>>,
    bell: OwnedFd,
}

impl AgentLine {
    pub(crate) fn new() -> Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| RmaError::system("create an eventfd", e))?;
        Ok(Self { reports: Mutex::new(Vec::new()), bell })
    }

    pub(crate) fn report(&self, report: AgentReport) {
        lock(&self.reports).push(report);
        // An eventfd refuses a write only when its counter is full: then it is readable anyway.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    /// Takes the reports and makes the descriptor unreadable until the next.
    pub(crate) fn take(&self) -> Vec<AgentReport> {
        let _ = rustix::io::read(&self.bell, &mut [0u8; 8]);
        std::mem::take(&mut *lock(&self.reports))
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}
