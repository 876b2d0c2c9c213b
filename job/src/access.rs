//! Access to a job: the calls by which a process becomes a part of one. They give access to all memory of the
//! job.

use crate::joined::{self, Joining};
use crate::service::NodeService;
use crate::{Membership, bootstrap, node};
use vgas_rma::error::Result;

/// Joins the job that this process was started in, as a rank. Once per process.
///
/// ```compile_fail,E0133
/// let memory = vgas_job::join().map(|membership| membership.domain.control().clone());
/// ```
///
/// # Safety
/// The memory of the domain, and the network with the job's key, belong to the library that the ranks of the job run, and to those over it.
/// The caller writes there only what is its own, and sends no message to a handler that is not.
///
/// # Errors
/// [`RmaError::NotInJob`](vgas_rma::RmaError::NotInJob) when the process was not started by a launcher: a caller may start a job, or ask to
/// be one ([`bootstrap::alone`]). [`RmaError::Usage`](vgas_rma::RmaError::Usage) when it has joined before.
pub unsafe fn join() -> Result<Membership> {
    bootstrap::join()
}

/// Joins the job in which a process manager has started this process. Once per process.
///
/// # Safety
/// As of [`join`].
///
/// # Errors
/// [`RmaError::NotInJob`](vgas_rma::RmaError::NotInJob) when none has. [`RmaError::Refused`](vgas_rma::RmaError::Refused) when one has and
/// cannot be reached, or cannot bring this rank and the others together; the text says what to do.
pub unsafe fn join_started(joining: &Joining) -> Result<Membership> {
    joined::join_started(joining)
}

/// Runs the daemon of a node until its part of the job has ended, and returns its exit status. `vgas run` starts it
/// with a channel on standard input (and output, over ssh). Call it from the main thread, before any other thread
/// exists.
///
/// # Safety
/// The service uses its membership as the caller of [`join`] does.
///
/// # Errors
/// If the process was not started by a launcher. Everything later is reported to the launcher.
pub unsafe fn node_main(service: Box<dyn NodeService>) -> Result<u8> {
    node::node_main(service)
}
