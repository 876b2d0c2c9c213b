//! The agent of a node: a thread of the daemon, which hears from it by a list and a descriptor.

#![forbid(unsafe_code)]

use super::{Bootstrap, End, Identity, for_ranks_only};
use crate::lock::lock;
use rustix::event::{EventfdFlags, eventfd};
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};
use vgas_rma::address::{NodeId, Peer};
use vgas_rma::error::{Result, RmaError};

/// The line of an agent to the daemon that it is part of.
#[derive(Debug)]
pub(crate) struct AgentBootstrap {
    pub(crate) place: Identity,
    pub(crate) line: Arc<AgentLine>,
}

impl Bootstrap for AgentBootstrap {
    fn place(&self) -> &Identity {
        &self.place
    }

    fn all_gather(&self, _contribution: &[u8]) -> Result<Vec<Vec<u8>>> {
        Err(for_ranks_only())
    }

    fn declare_end(&self) -> Result<()> {
        Ok(())
    }

    fn exit(&self, _code: u8) -> Result<()> {
        Ok(())
    }

    fn end(&self, why: End) -> Result<()> {
        self.line.report(AgentReport::End(why));
        Ok(())
    }

    fn report_broken(&self, peer: Peer) -> Result<()> {
        self.line.report(AgentReport::Broken(peer));
        Ok(())
    }

    fn on_lost(&self, hear: Box<dyn Fn(NodeId) + Send + Sync>) {
        self.line.on_lost(hear);
    }
}

/// Reports of the service's thread to the daemon's event loop.
#[derive(Debug)]
pub(crate) enum AgentReport {
    /// [`crate::NodeService::start`] has returned.
    Started,
    /// The job must end.
    End(End),
    /// [`crate::NodeService::run`] has returned.
    Stopped,
    /// A connection broke.
    Broken(Peer),
}

/// From the service's thread to the daemon's event loop.
#[derive(Debug)]
pub(crate) struct AgentLine {
    reports: Mutex<Vec<AgentReport>>,
    bell: OwnedFd,
    lost: Mutex<LossNotices>,
}

/// Reports to the service: lost nodes, and the callbacks for them.
#[derive(Default)]
struct LossNotices {
    nodes: Vec<NodeId>,
    hear: Option<Box<dyn Fn(NodeId) + Send + Sync>>,
}

impl fmt::Debug for LossNotices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.nodes).finish()
    }
}

impl AgentLine {
    pub(crate) fn new() -> Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| RmaError::system("create an eventfd", e))?;
        Ok(Self { reports: Mutex::new(Vec::new()), bell, lost: Mutex::default() })
    }

    pub(crate) fn report(&self, report: AgentReport) {
        lock(&self.reports).push(report);
        // An eventfd refuses a write only when its counter is full: then it is readable anyway.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    /// A node is lost: tells the agent, now or when it asks to be told.
    pub(crate) fn hear(&self, node: NodeId) {
        let mut lost = lock(&self.lost);
        lost.nodes.push(node);
        if let Some(hear) = &lost.hear {
            hear(node);
        }
    }

    fn on_lost(&self, hear: Box<dyn Fn(NodeId) + Send + Sync>) {
        let mut lost = lock(&self.lost);
        lost.nodes.iter().for_each(|&node| hear(node));
        lost.hear = Some(hear);
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
