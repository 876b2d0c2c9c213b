//! Jobs with externally started ranks: `srun`, `mpirun`, `mpiexec.hydra`, Flux.
//!
//! There is no launcher of ours then, and no daemon. The ranks make both, agree on them by the [process manager](crate::pmi), and
//! from there all is as in a job of `vgas run`: the same messages, the same daemon, the same agent.
//!
//! ```text
//! rank 0           starts who leads the job (the launcher's part), which listens for daemons
//! a rank a node    has got the node's name for itself, and starts the daemon, which listens for ranks
//! all ranks        agree by PMI: rank 0 tells the leader's address, and a key
//! all ranks        come to the daemon of their node, and prove the key
//! daemons          come to the leader, prove the key, and tell who has come
//! leader           knows who is where when all have come: Describe, Ready, Start as ever
//! ```
//!
//! * *A node is a set of ranks that share a daemon*: the ranks that can reach the same abstract socket,
//!   unless the starter gives their machine several names (`SLURMD_NODENAME`). So ranks in network namespaces
//!   of their own are nodes of their own.
//! * *Ranks are numbered node by node* ([`Layout`](vgas_rma::address::Layout)), in the starter's order within
//!   a node and by each node's lowest. If the starter has placed them in blocks, as all do unless told
//!   otherwise, both numbers are the same.
//! * *Helpers*, the leader and the daemons, are this program once more, or the `vgas` command, started before
//!   it comes to its own code: with exec, since the program may have threads, and after a fork without exec
//!   nothing could be called. They are in sessions of their own without its streams, so that a starter does
//!   not wait for them; they have no child and end by themselves.
//! * *The end.* The daemon is not the ranks' parent: it hears of their end by their sockets, and cannot know
//!   how they ended. Each rank has a thread that listens to its *lifeline*: for the line with the reason of
//!   the job's end, which it writes before it ends the process, or for the end of the daemon. Exit statuses
//!   are the starter's to see. Ranks return from [`Bootstrap::finalize`] when their daemon has gone, so that
//!   a starter that checks for leftovers finds nothing.
//! * *The key* passes through the starter, and lies in files of the user or in its memory: it keeps other users out, not the user's
//!   own processes. The socket of a node takes this user's processes alone.
//!
//! [`Bootstrap::finalize`]: crate::Bootstrap::finalize

#![forbid(unsafe_code)]

pub(crate) mod daemon;
mod door;
pub(crate) mod lead;
mod proof;
pub(crate) mod rank;
mod watch;

pub use rank::Joining;
pub(crate) use rank::join_started;
pub(crate) use watch::Watch;
