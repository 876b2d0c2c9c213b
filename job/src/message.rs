//! Messages of launcher, node daemons and ranks. See [`super`] for the order, [`super::control`] for the
//! frames. A change here is a change of the protocol: raise the version in `control.rs`.

#![forbid(unsafe_code)]

use super::spec::{Listen, Plan};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use vgas_rma::address::{Layout, NodeId, Peer, Rank};
use vgas_rma::domain::DomainSpec;
use vgas_rma::key::JobKey;

/// Description of the job for each of its processes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct JobDescription {
    pub(crate) layout: Layout,
    pub(crate) key: JobKey,
    pub(crate) conduit: String,
    pub(crate) settings: BTreeMap<String, String>,
}

/// Description of a node for its daemon.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct NodeDescription {
    pub(crate) job: JobDescription,
    pub(crate) node: NodeId,
    /// Answers go to standard output, no files can travel, and both sides give signs of life.
    pub(crate) over_ssh: bool,
    pub(crate) domain: DomainSpec,
    pub(crate) domain_origin: DomainOrigin,
    pub(crate) listen: Option<Listen>,
    pub(crate) program: OsString,
    pub(crate) name: Option<OsString>,
    pub(crate) arguments: Vec<OsString>,
    pub(crate) environment: Vec<(OsString, OsString)>,
    /// The folder in which ranks start; empty for that of the daemon.
    pub(crate) directory: PathBuf,
    pub(crate) output: Output,
    pub(crate) input: Input,
    /// Ranks are served PMI-1.
    pub(crate) pmi: bool,
    /// The control group that the daemon was started in, if the launcher has made it one.
    pub(crate) group: Option<PathBuf>,
}

/// Maker of the files of the node's domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum DomainOrigin {
    /// The node's daemon.
    Daemon,
    /// The launcher, because several nodes share it; they come with the description.
    Launcher,
}

/// Destination of the ranks' output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Output {
    /// To the daemon's own standard output and error, which are the launcher's.
    Inherit,
    /// Standard error to the launcher, in [`FromNode::Output`], so that lines of ranks that fail together stay whole: programs
    /// write a line in several pieces. Standard output as in [`Output::Inherit`].
    ForwardErrors,
    /// Both to the launcher.
    Forward,
}

/// Source of rank 0's input; the other ranks read nothing, even those with number 0 on other nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Input {
    /// Nothing.
    Null,
    /// The daemon's own standard input, which is the launcher's.
    Inherit,
    /// The bytes of [`ToNode::Input`].
    Forward,
}

/// From the launcher to a node's daemon.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToNode {
    /// First: prepare, answer with `Ready` or `Failed`.
    Describe(Box<NodeDescription>),
    /// Every node is ready: start the ranks. Addresses of all peers, or none when no conduit listens.
    Start { addresses: Vec<SocketAddr> },
    /// Pass this signal to every rank.
    Signal(i32),
    /// Standard input for rank 0; empty at its end.
    Input(Vec<u8>),
    /// The contributions of all ranks, by rank.
    Gathered(Vec<Vec<u8>>),
    /// All ranks wait in a barrier of PMI-1: the values put since the last one.
    Fenced(Vec<(String, String)>),
    /// Every rank has finalised, or every rank exits.
    Finalised,
    /// The job failed: end every process of the node, gently or at once. Externally started ranks are told
    /// the reason.
    End { at_once: bool, why: Why },
    /// Every rank has ended well: stop the service and leave.
    Stop,
    /// I am still here.
    Alive,
    /// A node is lost; the job continues without it.
    Lost(NodeId),
    /// From a rank, first: lead this job. The listener for its daemons travels with it.
    Lead(Box<Lead>),
    /// From a rank, first: be the daemon of this node. The listener for its ranks travels with it.
    Serve { ranks: u32, timeout: Duration },
    /// From a rank, after `Serve`: the leader's address, and the job's key.
    Reach { address: SocketAddr, key: JobKey },
}

/// Why a job ends: the line that people read, and its exit status. No line if a rank's exit says all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Why {
    pub(crate) line: Option<String>,
    pub(crate) code: u8,
}

/// An externally started job, for its leader.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Lead {
    pub(crate) ranks: u32,
    pub(crate) key: JobKey,
    pub(crate) plan: Plan,
}

/// From a node's daemon to the launcher.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum FromNode {
    /// An externally started rank has come to this node, by its number there. Before `Describe`.
    Arrived { rank: u32, host: String },
    /// Prepared. Addresses of the node's ranks and then its agent, or none when no conduit listens.
    Ready { host: String, addresses: Vec<SocketAddr> },
    /// Could not prepare, start a rank, or continue; the daemon ends.
    Failed { message: String, code: u8 },
    /// The first rank of this node has joined.
    Joined,
    /// The contributions of the node's ranks, by rank.
    Gather(Vec<Vec<u8>>),
    /// All ranks of the node wait in a barrier of PMI-1, and have put this.
    Fence(Vec<(String, String)>),
    /// All ranks of the node have finalised.
    Finalise,
    /// A rank has ended.
    Exited(RankExit),
    /// A rank or the agent ends the job, perhaps for the failure of another process.
    Abort { from: Peer, message: String, code: u8, is_complaint: bool },
    /// A rank exits, and the job with it.
    Exit { code: u8 },
    /// Output of a rank; empty at the end of the stream.
    Output { rank: Rank, stream: Stream, bytes: Vec<u8> },
    /// A rank has been stopped for a while, as by SIGSTOP; the job waits for it.
    Suspended { rank: Rank, pid: u32 },
    /// These ranks have been killed and do not end: the kernel does not let them.
    Unending(Vec<(Rank, u32)>),
    /// So many bytes of standard input have been taken.
    InputTaken(u32),
    /// Every process of the node has ended and the service has stopped; the daemon ends.
    Stopped,
    /// I am still here.
    Alive,
    /// A process of the node has lost its connection to this peer, and waits for the decision.
    Broken(Peer),
}

/// Output stream of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Stream {
    /// Standard output.
    Output,
    /// Standard error.
    Error,
}

/// End of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Exit {
    /// By itself.
    Code(i32),
    /// By a signal.
    Signal(i32),
    /// Unobserved, before it had finalised: its starter knows more.
    Unseen,
}

/// End of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RankExit {
    pub(crate) rank: Rank,
    pub(crate) pid: u32,
    pub(crate) exit: Exit,
    /// It had called [`super::join`].
    pub(crate) joined: bool,
    /// It had called [`super::Bootstrap::finalize`] or [`super::Bootstrap::exit`].
    pub(crate) finalised: bool,
    /// The daemon had not begun to end it: it ended for a reason of its own.
    pub(crate) by_itself: bool,
}

/// From a node's daemon to a rank.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToRank {
    /// The answer to [`FromRank::Join`]. With it travel the listener, if any, and then the domain's files.
    Welcome(Box<Welcome>),
    /// The contributions of all ranks, by rank.
    Gathered(Vec<Vec<u8>>),
    /// Every rank has finalised, or every rank exits.
    Finalised,
    /// The job ends. To externally started ranks, over their lifeline, or in place of the welcome.
    Ended(Why),
    /// The welcome comes later, when the node's service runs. Meanwhile the rank prepares this conduit, which takes long to open.
    Prepare { conduit: String },
}

/// Message to a rank that joins.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Welcome {
    pub(crate) job: JobDescription,
    pub(crate) me: Peer,
    pub(crate) domain: DomainSpec,
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) listens: bool,
    /// A lifeline comes, first of all files: its end is the end of the job.
    pub(crate) lifeline: bool,
}

/// From a rank to the daemon of its node.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum FromRank {
    /// Send me my welcome.
    Join,
    /// My contribution to an allgather.
    Gather(Vec<u8>),
    /// The rank is done.
    Finalise,
    /// End the job.
    Abort { message: String, code: u8, is_complaint: bool },
    /// The rank is about to exit with this status, which is to be the job's; the daemon answers (`Finalised`)
    /// when every rank is.
    Exit { code: u8 },
    /// The rank has lost its connection to this peer, and waits for the decision.
    Broken(Peer),
}
