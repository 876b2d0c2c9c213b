//! The agent of a node: a thread of the daemon, which hears from it by a list and a descriptor.

#![forbid(unsafe_code)]

use super::{Bootstrap, End, Place, for_ranks_only};
use crate::membership::lock;
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};
use vgas_rma::error::{Result, RmaError};

/// The line of an agent to the daemon that it is part of.
#[derive(Debug)]
pub(crate) struct AgentBootstrap {
    pub(crate) place: Place,
    pub(crate) line: Arc<AgentLine>,
}

impl Bootstrap for AgentBootstrap {
    fn place(&self) -> &Place {
        &self.place
    }

    fn all_gather(&self, _contribution: &[u8]) -> Result<Vec<Vec<u8>>> {
        Err(for_ranks_only())
    }

    fn finalize(&self) -> Result<()> {
        Ok(())
    }

    fn exit(&self, _code: u8) -> Result<()> {
        Ok(())
    }

    fn end(&self, why: End) -> Result<()> {
        self.line.report(AgentReport::End(why));
        Ok(())
    }
}

/// What the service's thread tells the daemon's event loop.
#[derive(Debug)]
pub(crate) enum AgentReport {
    /// [`crate::NodeService::start`] has returned.
    Started,
    /// The job must end.
    End(End),
    /// [`crate::NodeService::run`] has returned.
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
