//! The service beside the ranks in a node's daemon: in a whole vgas job, the agent of the node.

#![forbid(unsafe_code)]

use super::membership::Membership;
use rustix::event::{EventfdFlags, Timespec, eventfd};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use vgas_rma::address::Layout;
use vgas_rma::domain::RegionSpec;
use vgas_rma::error::{Result, RmaError};

/// Reason why a service cannot start or continue. Its text ends the job: "the agent of node 1: …". An
/// [`RmaError`] that [is a complaint](RmaError::is_complaint) gives way to other processes' reports.
pub type ServiceError = Box<dyn std::error::Error + Send + Sync>;

/// A service of a node, run in a thread of its own inside the daemon.
///
/// It must not write to standard output (on another host that is the channel to the launcher), and needs to handle
/// no signal: the daemon does.
pub trait NodeService: Send {
    /// Makes everything ready that ranks may rely on when their [`super::join`] returns: no rank's does before this
    /// has. `membership.me` is the agent's peer. An error ends the job before it has begun.
    fn start(&mut self, membership: Membership) -> Result<(), ServiceError>;

    /// Returns the shared regions of all peers of a job with these settings:
    /// [`RunSpec::regions`](super::RunSpec::regions) of a launched job, for an externally started one. None
    /// unless it is said.
    fn regions(
        &self,
        _settings: &BTreeMap<String, String>,
        _layout: &Layout,
    ) -> Result<Vec<RegionSpec>, ServiceError> {
        Ok(Vec::new())
    }

    /// Serves until [`Stop::requested`], which comes when *every* rank of the *job* has ended well. An error ends the
    /// job. When the job fails otherwise, the daemon ends without waiting for this to return.
    fn run(&mut self, stop: &Stop) -> Result<(), ServiceError>;
}

/// Tells a service to end.
#[derive(Clone, Debug)]
pub struct Stop(Arc<StopState>);

#[derive(Debug)]
struct StopState {
    requested: AtomicBool,
    bell: OwnedFd,
}

impl Stop {
    /// A new one, not requested.
    pub fn new() -> Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| RmaError::system("create an eventfd", e))?;
        Ok(Self(Arc::new(StopState { requested: AtomicBool::new(false), bell })))
    }

    /// Asks the service to end. For the daemon, and for tests of services.
    pub fn request(&self) {
        self.0.requested.store(true, Ordering::Release);
        // An eventfd refuses a write only when its counter is full: then it is readable anyway.
        let _ = rustix::io::write(&self.0.bell, &1u64.to_ne_bytes());
    }

    /// Returns true if the service is to end.
    pub fn requested(&self) -> bool {
        self.0.requested.load(Ordering::Acquire)
    }

    /// Readable from the request on: for the service's event loop. It is never read empty.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.bell.as_fd()
    }

    /// Sleeps until the request, for at most `most`; returns true if it has come.
    pub fn requested_within(&self, most: Duration) -> Result<bool> {
        let end = Instant::now() + most;
        while !self.requested() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
            super::control::wait_for(self.descriptor(), rustix::event::PollFlags::IN, Some(&left))?;
        }
        Ok(true)
    }

    /// Sleeps until the request: for services without an event loop.
    pub fn wait(&self) -> Result<()> {
        while !self.requested() {
            super::control::wait_for(self.descriptor(), rustix::event::PollFlags::IN, None)?;
        }
        Ok(())
    }
}

/// A service that does nothing: for jobs with pinned segments and `smp` only, and for tests.
#[derive(Debug, Default)]
pub struct NoService;

impl NodeService for NoService {
    fn start(&mut self, _: Membership) -> Result<(), ServiceError> {
        Ok(())
    }

    fn run(&mut self, stop: &Stop) -> Result<(), ServiceError> {
        Ok(stop.wait()?)
    }
}
