//! Jobs that go on when a node is lost ([`RunSpec::survive`](crate::RunSpec::survive)).
//!
//! The launcher alone decides that a node is lost, once in a job, and tells the daemons of all others, which tell their agents
//! and these their ranks. It does so when
//!
//! * the node's daemon is gone, or was silent for too long;
//! * a rank of the node was ended by a signal that nobody of the job has sent;
//! * a process of another node has lost its connection to one of the node, and nothing better is known [`SUSPICION`] later.
//!
//! Whatever of the node still runs is killed, and what it says from then on is not listened to. A process that is stopped is not
//! lost. When a second node is lost, the job ends; and so it does with the first one where others have started the ranks, for who
//! leads such a job is there. A rank that ends with a status of its own says that the program has failed, not the node.

use super::{Launcher, OneLine, ToNode};
use crate::message::{Exit, RankExit};
use crate::node_link::Phase;
use crate::verdict::Cause;
use std::time::{Duration, Instant};
use vgas_rma::address::Peer;

/// How long who has lost a connection waits for a report that says why: that of the daemon, or its end.
const SUSPICION: Duration = Duration::from_millis(50);

/// The same where the job ends for it: what it ends with is to be the reason.
const CERTAINTY: Duration = Duration::from_secs(1);

/// What the launcher knows of lost nodes.
#[derive(Debug, Default)]
pub(super) struct Losses {
    /// The node without which the job goes on.
    lost: Option<usize>,
    /// Why, until the job ends for it after all.
    cause: Option<Cause>,
    /// A node that others cannot reach, and when it counts as lost for that.
    suspected: Option<(usize, Instant)>,
}

impl Losses {
    /// Whether this node is lost, and nobody waits for it.
    pub(super) fn is_lost(&self, index: usize) -> bool {
        self.lost == Some(index)
    }

    /// When a suspicion becomes a loss.
    pub(super) fn due(&self) -> Option<Instant> {
        self.suspected.map(|(_, due)| due)
    }
}

impl Launcher<'_> {
    /// Whether the job can go on without this node.
    fn can_lose(&self, index: usize) -> bool {
        self.spec.survive
            && (index > 0 || !self.is_joined)
            && self.started
            && self.losses.lost.is_none()
            && self.ended.is_none()
            && self.exiting.is_none()
            && !self.stopping
            && !self.verdict.failed()
    }

    /// A node is gone, or is to be, for the end of one of its ranks, or of its daemon: true if the job goes on without it.
    pub(super) fn goes_on_without(
        &mut self,
        index: usize,
        end: Option<RankExit>,
        reason: Option<String>,
    ) -> bool {
        if !self.can_lose(index) {
            return false;
        }
        let (node, pid) = (self.nodes[index].node, self.nodes[index].pid());
        let cause = match end {
            Some(exit) => {
                self.nodes[index].lose(Some(String::new()));
                Cause::Rank(exit)
            }
            None => {
                let (how, code) = self.nodes[index].lose(reason);
                Cause::DaemonLost { node, pid, how, code }
            }
        };
        self.nodes[index].fence = None;
        let how = self.verdict.describe(&cause);
        let line = OneLine(format!("warning: {node} is lost: {how}; the job goes on without it"));
        self.outputs.end_line();
        self.outputs.push_plain(format!("{line}\n").as_bytes());
        self.losses = Losses { lost: Some(index), cause: Some(cause), suspected: None };
        let ranks = self.layout.ranks_of(node).len() as u32;
        self.ranks_running = self.ranks_running.saturating_sub(ranks - self.ranks_ended[index].min(ranks));
        self.tell_all(&ToNode::Lost(node));
        // Others may have waited for it alone.
        self.fence_if_all();
        self.finalise_if_all();
        true
    }

    /// Whether the job goes on without a node.
    pub(super) fn goes_on(&self) -> bool {
        self.losses.lost.is_some()
    }

    /// How many ranks the job goes on without.
    pub(super) fn lost_ranks(&self) -> u32 {
        self.losses.lost.map_or(0, |index| self.layout.ranks_of(self.nodes[index].node).len() as u32)
    }

    /// A rank has ended: true if its node is lost by that, or was before.
    pub(super) fn is_end_of_node(&mut self, index: usize, exit: &RankExit) -> bool {
        if self.losses.is_lost(index) {
            return true;
        }
        let Exit::Signal(signal) = exit.exit else { return false };
        exit.by_itself
            && !self.verdict.has_passed_on(signal)
            && self.goes_on_without(index, Some(*exit), None)
    }

    /// A process complains of what happened to others: the loss is why, if there was one.
    pub(super) fn blame_loss(&mut self) {
        if let Some(cause) = self.losses.cause.take() {
            self.verdict.add(cause);
        }
    }

    /// A process of a node has lost its connection to a peer.
    pub(super) fn on_broken(&mut self, index: usize, peer: Peer) {
        if !self.layout.contains(peer) {
            return;
        }
        // Whoever is gone says nothing: it is the other one that cannot be reached.
        let suspected = self.layout.node_of_peer(peer).0 as usize;
        let is_over =
            (0..self.nodes.len()).all(|node| self.losses.is_lost(node) || self.nodes[node].finalised);
        let is_known = self.losses.is_lost(suspected) || self.nodes[suspected].phase != Phase::Ready;
        if self.spec.survive && !is_known && !is_over && self.exiting.is_none() && !self.stopping {
            // Nobody begins a program but rank 0, whose node is to be given up last.
            let is_dear = suspected == 0 || !self.can_lose(suspected);
            let due = Instant::now() + if is_dear { CERTAINTY } else { SUSPICION };
            // Where the first node says that of who says it of that, both live, and cannot reach each other.
            let is_blamed = index == 0 && matches!(self.losses.suspected, Some((0, _)));
            if self.losses.suspected.is_none() || is_blamed {
                self.losses.suspected = Some((suspected, due));
            }
        }
    }

    /// A suspicion that nothing has cleared up is a loss.
    pub(super) fn lose_suspected(&mut self) {
        if let Some((index, due)) = self.losses.suspected
            && Instant::now() >= due
        {
            self.losses.suspected = None;
            // Those who cannot reach it wait for an answer: without it, or for the end.
            if self.nodes[index].phase == Phase::Ready {
                self.lose(index, Some("cannot be reached by others".into()));
            }
        }
    }
}
