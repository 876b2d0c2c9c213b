//! Start-up and end of a job.
//!
//! The layer above asks a [`Bootstrap`] for its identity and reports the end to it; [`bootstrap`] has the
//! implementations, and says how to add one. The rest of this crate is the one behind `vgas run`.
//!
//! Ranks that `srun`, `mpirun` or the like have started make their daemons themselves ([`join_started`]); otherwise there are
//! three kinds of processes: the *launcher* ([`run`], in `vgas run`), one *daemon* per node ([`node_main`], in
//! `vgas node`), and the *ranks*, which call [`join`]. The daemon also runs the node's agent as a [`NodeService`].
//!
//! ```text
//! launcher                daemon of a node                     rank
//!    │ start it, on this machine, over ssh or by srun
//!    │── Describe ───────────>│ make the domain, bind listeners
//!    │<──────────── Ready ────│
//!    │── Start ──────────────>│ start ranks and service
//!    │                        │<──────────────────── Join ─────│
//!    │                        │ when the service has started   │
//!    │                        │── Welcome ────────────────────>│  join() returns
//!    │<─ Gather, Finalise ────│<─ Gather, Finalise ────────────│
//!    │── Gathered, Finalised ─>── Gathered, Finalised ────────>│
//!    │<──────────── Exited ───│<─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─│  exits
//!    │── Stop ───────────────>│ stop the service
//!    │<─────────── Stopped ───│
//! ```
//!
//! # Promises
//!
//! * *All or nothing.* When a process of the job is killed (at any level, even with SIGKILL), exits with a
//!   status other than 0, or calls [`Bootstrap::abort`], every process of the job is ended within two
//!   seconds: SIGTERM, then SIGKILL after half a second. The launcher returns one line naming the first
//!   cause. A job that is to survive ([`RunSpec::survive`]) continues without the node of the first process
//!   that is killed, once, and tells all.
//! * *Nothing stays behind.* Each rank is the leader of a process group, which is ended with it. A daemon ends when its
//!   channel to the launcher closes. A rank's group is killed by the kernel when its daemon is gone (the lifeline, see
//!   `system.rs`). Processes that left their group are adopted by the daemon and killed at the end; only when the
//!   daemon itself is killed can such a process survive. Shared memory consists of anonymous files.
//! * *The key is never visible.* It travels over inherited sockets, or inside the ssh channel. If ranks are
//!   started externally, it passes through their starter, and is visible to the user's own processes.
//! * *Exit 0 without [`Bootstrap::finalize`]* is fine for programs without a joined rank (any command can be
//!   run). Once a rank has joined, others may wait for ever for one that leaves without finalising: they have
//!   one second to end as well, then the job fails.
//! * *An exit of one is the exit of all*, after [`Bootstrap::exit`]: the others have a second to follow, and are ended then.
//! * *Bounded end.* A process that waits within the kernel (for a disk that does not answer) cannot be ended.
//!   The launcher gives it up a second after SIGKILL, names it, and ends with a status that is not 0. A
//!   process that is ending and gives its memory back has no limit.
//! * *A stopped process is waited for*, because it may be under a debugger; after fifteen seconds the
//!   launcher reports, once, which rank or daemon it is.
//! * *Bounded start.* Every node is ready within [`RunSpec::connect_timeout`] or the job fails, saying which
//!   is not. After five seconds a line names the missing processes.
//!
//! Over ssh, both sides say every two seconds that they are alive, and give the other up after fifteen of silence.

mod access;
pub mod allocation;
pub mod bootstrap;
pub mod cluster;
mod control;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod joined;
mod launcher;
mod listen;
mod lock;
mod membership;
mod message;
mod node;
mod node_link;
mod output;
pub mod pmi;
mod pmix;
mod program;
mod rank_process;
mod reminder;
mod service;
mod spec;
mod surroundings;
mod system;
mod verdict;

pub use access::{join, join_started, node_main};
pub use bootstrap::{Bootstrap, in_job};
pub use joined::Joining;
pub use launcher::run;
pub use membership::Membership;
pub use service::{NoService, NodeService, ServiceError, Stop};
pub use spec::{JobStatus, Plan, RANKS_MAX, RANKS_PER_CORE_MAX, RunSpec, Starter};

use std::time::Duration;

/// Between the request to end and SIGKILL.
const TERMINATION_GRACE: Duration = Duration::from_millis(500);

/// Grace of the other ranks after one left without finalising.
const LEAVE_GRACE: Duration = Duration::from_secs(1);

/// Grace of the other ranks after one has called [`Bootstrap::exit`]: covers the time between the exits of
/// ranks that left a barrier together, on a busy machine, and some output.
const EXIT_GRACE: Duration = Duration::from_secs(1);

/// Time that an externally started job waits for a cause, while only complaints are known: the ranks are told
/// once why they end.
const COMPLAINT_TIMEOUT: Duration = Duration::from_millis(250);

/// Interval of the keep-alives on both sides of an ssh channel.
const ALIVE_INTERVAL: Duration = Duration::from_secs(2);

/// Silence on an ssh channel after which the other side is given up: several lost signs of life, and less than TCP's
/// own timeout by far.
const ALIVE_TIMEOUT: Duration = Duration::from_secs(15);

/// Duration of a job's start after which a line names the missing processes.
const WAIT_IS_TOLD_AFTER: Duration = Duration::from_secs(5);

/// The same of a conduit that is being opened.
const SLOW_CONDUIT_IS_TOLD_AFTER: Duration = Duration::from_secs(2);

/// Duration of a process's stop after which it is reported.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);

/// Time that a process may take to end after SIGKILL without using a processor. It frees its memory with one.
const KILL_TIMEOUT: Duration = Duration::from_secs(1);

/// Why ranks would wait for each other for ever.
const OUT_OF_STEP: &str = "the ranks called allgather and finalize in different orders";
