//! A process's start-up in its job: its identity, communication with the other ranks before there are
//! endpoints, and notice of the end.
//!
//! Everything above goes through [`Bootstrap`]; a [`Membership`](crate::Membership) holds one, with the data
//! of the start.
//!
//! | implementation | for |
//! |---|---|
//! | launched | ranks and agents: over the socket to the node's daemon, and within it. [`join`](crate::join) finds it in a job of [`run`](crate::run), [`join_started`](crate::join_started) in one of `srun`, `mpirun` or the like |
//! | [`alone`] | a program started by hand that wants to be a job of one rank. Nobody gets it without having asked for it: a job whose start went wrong must not become many jobs of one |
//! | [`Simulated`] | a whole job in one process, a thread a rank, for tests |
//!
//! [`conformance`] is the suite for all of them.
//!
//! # Adding one
//!
//! *A process manager* that can hand one text of rank 0 to all needs no more than a session in [`pmi`](crate::pmi), found in a fixed order:
//! ranks meet by it, make the daemons, and are as launched ones from there ([joined](../joined/mod.rs)). Otherwise:
//!
//! 1. A file here whose type implements the five calls of [`Bootstrap`] that have no body.
//! 2. A function that makes the rank's [`Membership`](crate::Membership).
//! 3. A test that has a job of it run every case of [`conformance`], as `job/tests` does for those above.
//!
//! Ranks of a node must be consecutive ([`Layout`]): if a starter deals them out otherwise, they are
//! renumbered.

mod agent;
pub mod conformance;
mod in_process;
mod launched;

pub(crate) use agent::{AgentBootstrap, AgentLine, AgentReport};
pub use in_process::{Simulated, alone};
pub use launched::in_job;
pub(crate) use launched::{Launched, join, welcome};

use crate::OUT_OF_STEP;
use crate::control::FRAME_BYTES_MAX;
use std::fmt;
use std::ops::Range;
use vgas_rma::address::{Layout, NodeId, Peer, Rank};
use vgas_rma::error::{Result, RmaError};

/// Identity of a process, or of a thread that stands for one, in its job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Assignment of ranks to nodes.
    pub layout: Layout,
    /// This endpoint.
    pub me: Peer,
}

impl Identity {
    /// The rank, unless this is an agent.
    pub fn rank(&self) -> Option<Rank> {
        self.layout.rank_of_peer(self.me)
    }

    /// The node this process is on.
    pub fn node(&self) -> NodeId {
        self.layout.node_of_peer(self.me)
    }

    /// The ranks of this node, its own included.
    pub fn mates(&self) -> Range<u32> {
        self.layout.ranks_of(self.node())
    }

    /// Returns true if this rank speaks for its node.
    pub fn is_first_of_node(&self) -> bool {
        self.rank().is_some_and(|rank| rank.0 == self.mates().start)
    }
}

/// Why a rank or an agent ends the whole job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// The line that users read.
    pub message: String,
    /// The job's exit status, not 0.
    pub code: u8,
    /// It only reports an observation of other processes, such as a lost connection: an end with a
    /// better-known cause takes precedence, even if heard later.
    pub is_complaint: bool,
}

/// A process's line to the starter of its job. Any thread may call it.
///
/// [`all_gather`](Bootstrap::all_gather), [`barrier`](Bootstrap::barrier) and
/// [`finalize`](Bootstrap::finalize) are collective: all ranks call them in the same order, one at a time.
/// They are for start-up and end, and slow; endpoints have faster ones. Once the job is being ended, they
/// fail or the process is ended: no call waits for ever for a rank that is gone.
pub trait Bootstrap: fmt::Debug + Send + Sync {
    /// Returns this process's identity. The same during its life.
    fn place(&self) -> &Identity;

    /// Exchanges a few bytes among all ranks: returns every rank's contribution, by rank. Blocks until all
    /// have called it. The first rank of each node can speak for its node. In a job that continues without a
    /// lost node, it does not wait, and all contributions are empty.
    ///
    /// # Errors
    /// [`RmaError::Usage`] when called by an agent, when all contributions of this size would exceed 16 MiB, and when another
    /// rank finalises. [`RmaError::JobAborted`] when the job is being ended.
    fn all_gather(&self, contribution: &[u8]) -> Result<Vec<Vec<u8>>>;

    /// Blocks until all ranks have called it. Writes before it are visible to all afterwards. In a job that
    /// continues without a lost node, it has no effect, as [`Bootstrap::all_gather`] says.
    ///
    /// # Errors
    /// As [`Bootstrap::all_gather`].
    fn barrier(&self) -> Result<()> {
        self.all_gather(&[]).map(drop)
    }

    /// Declares that this rank needs no other any more, and blocks until all have: after it, a rank may close its
    /// connections and exit without being missed. Collective. A rank that exits with 0 but never calls it
    /// is reported, and the job ended: the other ranks would wait for ever (they have a second to end as well, if they are
    /// processes). Agents need not call it.
    ///
    /// # Errors
    /// [`RmaError::Usage`] when another rank is in [`Bootstrap::all_gather`]. [`RmaError::JobAborted`] when the job is being ended.
    fn finalize(&self) -> Result<()> {
        self.declare_end()?;
        self.depart();
        Ok(())
    }

    /// The first part of [`Bootstrap::finalize`]: blocks until all have called it. For callers with work
    /// between the parts; other threads may use their endpoint meanwhile.
    ///
    /// # Errors
    /// As [`Bootstrap::finalize`].
    fn declare_end(&self) -> Result<()>;

    /// The second part: waits for helpers that must be gone before this process, if there are any.
    fn depart(&self) {}

    /// Ends the job with this exit status: every rank, whether it calls this or not. Returns when all ranks have called
    /// it, and the caller then exits with the same status. Ranks that have not called it after a second are asked to
    /// end by SIGQUIT, and are then killed, if they are processes. When several ranks give different statuses, one that is not 0
    /// counts. Agents need not call it.
    ///
    /// # Errors
    /// [`RmaError::JobAborted`] when the job is being ended otherwise. [`RmaError::Usage`] if another thread
    /// waits in a collective call: the exit is in flight, and other ranks are not waited for.
    fn exit(&self, code: u8) -> Result<()>;

    /// Ends the whole job. Returns as soon as the report is on its way; the caller's process is ended shortly after, and had
    /// better end itself.
    ///
    /// # Errors
    /// If it cannot be reported: the starter of this process is gone, and it is being ended anyway.
    fn end(&self, why: End) -> Result<()>;

    /// Reports that the connection to a peer broke, in a job that continues without lost nodes: the launcher
    /// decides about that peer's node, or ends the job. Does nothing if no job continues so.
    ///
    /// # Errors
    /// If it cannot be reported.
    fn report_broken(&self, _peer: Peer) -> Result<()> {
        Ok(())
    }

    /// Sets the callback for lost nodes, called once for each, even for earlier ones. It must not wait. For
    /// agents, which tell their ranks; the others' are never called.
    fn on_lost(&self, _hear: Box<dyn Fn(NodeId) + Send + Sync>) {}

    /// [`Bootstrap::end`] with this line and this exit status (0 becomes 1).
    ///
    /// # Errors
    /// As [`Bootstrap::end`].
    fn abort(&self, message: &str, code: u8) -> Result<()> {
        self.end(End { message: message.into(), code: code.max(1), is_complaint: false })
    }

    /// [`Bootstrap::end`] for an observation of other processes: see [`End::is_complaint`].
    ///
    /// # Errors
    /// As [`Bootstrap::end`].
    fn complain(&self, message: &str, code: u8) -> Result<()> {
        self.end(End { message: message.into(), code: code.max(1), is_complaint: true })
    }
}

/// Refuses a contribution that would make the result of an all-gather larger than a frame carries.
fn check_share(contribution: &[u8], ranks: u32) -> Result<()> {
    let share = FRAME_BYTES_MAX / 2 / ranks as usize;
    if contribution.len() > share {
        let what = format!("{} bytes in an allgather of {ranks} ranks: at most {share}", contribution.len());
        return Err(RmaError::Usage(what));
    }
    Ok(())
}

fn out_of_step() -> RmaError {
    RmaError::Usage(OUT_OF_STEP.into())
}

fn for_ranks_only() -> RmaError {
    RmaError::Usage("only ranks take part in an allgather".into())
}
