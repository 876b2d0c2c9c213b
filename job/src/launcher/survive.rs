//! Jobs that continue when a node is lost ([`RunSpec::survive`](crate::RunSpec::survive)).
//!
//! The launcher alone decides that a node is lost, once in a job, and tells the daemons of all others, which tell their agents
//! and these their ranks. It does so when
//!
//! * the node's daemon is gone, or was silent for too long;
//! * a rank of the node was ended by a signal that no process of the job has sent;
//! * a process of another node has lost its connection to one of the node, and nothing better is known a little later.
//!
//! The node's remaining processes are killed, and their messages are ignored from then on. A process that is
//! stopped is not lost. When a second node is lost, the job ends; with externally started ranks the first
//! loss ends it, for the leader of such a job is there. A node without which no rank would continue is not
//! lost, but has failed: one whose ranks are the last that run, and any once all ranks have left the job. A
//! rank that ends with a status of its own means that the program has failed, not the node.

use super::{JobStatus, Launcher, OneLine, ToNode};
use crate::message::{Exit, RankExit};
use crate::node_link::Phase;
use crate::verdict::Cause;
use std::cmp::Ordering;
use std::time::{Duration, Instant};
use vgas_rma::address::Peer;

/// Time that a process which has lost a connection waits for a report of the reason: that of the daemon, or
/// its end.
const SUSPICION: Duration = Duration::from_millis(50);

/// The same for a node that is not given up lightly: the first one, on which programs begin; and if the job
/// ends with it: its own report is to be the reason.
const CERTAINTY: Duration = Duration::from_secs(1);

/// The launcher's view of lost nodes.
#[derive(Debug, Default)]
pub(super) struct Losses {
    /// The node without which the job continues.
    lost: Option<usize>,
    /// Why, until the job ends for it after all.
    cause: Option<Cause>,
    /// Pairs of nodes that cannot reach each other.
    accusations: Vec<Accusation>,
}

/// A process of one node has lost its connection to one of another.
#[derive(Clone, Copy, Debug)]
struct Accusation {
    by: usize,
    of: usize,
    /// Time at which one of them counts as lost for that.
    due: Instant,
}

impl Accusation {
    fn names(&self, node: usize) -> bool {
        self.by == node || self.of == node
    }
}

impl Losses {
    /// Returns true if this node is lost, and is not waited for.
    pub(super) fn is_lost(&self, index: usize) -> bool {
        self.lost == Some(index)
    }

    /// When an accusation becomes a loss.
    pub(super) fn due(&self) -> Option<Instant> {
        self.accusations.iter().map(|accusation| accusation.due).min()
    }

    /// Returns which of two nodes that cannot reach each other is to blame: the one that fewer nodes can
    /// reach; else not the first one; else the accused one, for a dead node accuses no other.
    fn blamed(&self, accusation: Accusation) -> usize {
        // Both may have said it of each other.
        let is_same = |one: &Accusation, other: &Accusation| {
            (one.by, one.of) == (other.by, other.of) || (one.by, one.of) == (other.of, other.by)
        };
        let others = |node: usize| {
            let all = &self.accusations;
            let is_first = |at: usize| !all[..at].iter().any(|before| is_same(before, &all[at]));
            (0..all.len()).filter(|at| all[*at].names(node) && is_first(*at)).count()
        };
        let Accusation { by, of, .. } = accusation;
        match others(by).cmp(&others(of)) {
            Ordering::Greater => by,
            Ordering::Equal if of == 0 => by,
            _ => of,
        }
    }
}

impl Launcher<'_> {
    /// Returns true if the job can continue without this node.
    fn can_lose(&self, index: usize) -> bool {
        self.spec.survive
            && (index > 0 || !self.is_joined)
            && self.started
            && self.others_go_on(index)
            && self.losses.lost.is_none()
            && self.ended.is_none()
            && self.exiting.is_none()
            && !self.stopping
            && !self.verdict.failed()
    }

    /// Returns true if a rank of another node still runs, and not all have left the job.
    fn others_go_on(&self, index: usize) -> bool {
        let ranks = |other: usize| self.layout.ranks_of(self.nodes[other].node).len() as u32;
        let runs = |other: usize| other != index && self.ranks_ended[other] < ranks(other);
        (0..self.nodes.len()).any(runs) && !self.all_have_left()
    }

    fn all_have_left(&self) -> bool {
        (0..self.nodes.len()).all(|node| self.losses.is_lost(node) || self.nodes[node].finalised)
    }

    /// A node is gone, or is to be, for the end of one of its ranks, or of its daemon: true if the job
    /// continues without it.
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
        self.losses.accusations.retain(|accusation| !accusation.names(index));
        (self.losses.lost, self.losses.cause) = (Some(index), Some(cause));
        // It read what is typed, or comes in.
        self.input.open &= index > 0;
        let ranks = self.layout.ranks_of(node).len() as u32;
        self.ranks_running = self.ranks_running.saturating_sub(ranks - self.ranks_ended[index].min(ranks));
        self.tell_all(&ToNode::Lost(node));
        // Others may have waited for it alone.
        self.fence_if_all();
        self.finalise_if_all();
        true
    }

    /// Adds, if the job ends for the loss of a second node, that it would have survived one only.
    pub(super) fn with_first_loss(&self, mut status: JobStatus) -> JobStatus {
        if let (Some(lost), true, Some(message)) =
            (self.losses.lost, self.verdict.is_loss(), status.message.as_mut())
        {
            let node = self.nodes[lost].node;
            message.push_str(&format!("; {node} was lost before, and a job goes on without one node only"));
        }
        status
    }

    /// Returns true if the job continues without a node.
    pub(super) fn goes_on(&self) -> bool {
        self.losses.lost.is_some()
    }

    /// Returns the number of ranks lost.
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

    /// A process complains about others: the loss is the reason, if there was one.
    pub(super) fn blame_loss(&mut self) {
        if let Some(cause) = self.losses.cause.take() {
            self.verdict.add(cause);
        }
    }

    /// Returns true if accusations matter.
    fn hears_accusations(&self) -> bool {
        self.spec.survive
            && !self.all_have_left()
            && self.ended.is_none()
            && self.exiting.is_none()
            && !self.stopping
    }

    /// A process of a node has lost its connection to a peer.
    pub(super) fn on_broken(&mut self, by: usize, peer: Peer) {
        if !self.layout.contains(peer) || !self.hears_accusations() {
            return;
        }
        let of = self.layout.node_of_peer(peer).0 as usize;
        let is_known = self.losses.is_lost(of) || self.nodes[of].phase != Phase::Ready;
        let is_said = self.losses.accusations.iter().any(|said| (said.by, said.of) == (by, of));
        if of != by && !is_known && !is_said {
            let timeout = if of > 0 && self.can_lose(of) { SUSPICION } else { CERTAINTY };
            self.losses.accusations.push(Accusation { by, of, due: Instant::now() + timeout });
        }
    }

    /// An accusation that nothing has cleared up is a loss.
    pub(super) fn lose_suspected(&mut self) {
        let now = Instant::now();
        while let Some(at) = self.losses.accusations.iter().position(|one| one.due <= now) {
            let accusation = self.losses.accusations[at];
            let blamed = self.losses.blamed(accusation);
            self.losses.accusations.remove(at);
            // Ranks that cannot reach it wait for an answer: without it, or for the end.
            if self.hears_accusations() && self.nodes[blamed].phase == Phase::Ready {
                self.lose(blamed, Some("cannot be reached by others".into()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: of nodes that cannot reach each other, the one is lost that others cannot reach either, then not
    /// the first one, then the silent one. Method: accusations, and the node to blame for the first of them.
    #[test]
    fn who_cannot_be_reached_by_most_is_to_blame() {
        let blamed = |said: &[(usize, usize)]| {
            let due = Instant::now();
            let accusations: Vec<_> = said.iter().map(|&(by, of)| Accusation { by, of, due }).collect();
            let first = accusations[0];
            Losses { accusations, ..Losses::default() }.blamed(first)
        };
        for (said, expected) in [
            (&[(0, 1)][..], 1),
            (&[(1, 0)], 1),
            (&[(1, 2)], 2),
            (&[(2, 1)], 1),
            (&[(1, 2), (2, 1)], 2),
            (&[(0, 1), (1, 0)], 1),
            // The first one is gone, or its network.
            (&[(1, 0), (2, 0)], 0),
            (&[(0, 1), (2, 0)], 0),
            (&[(0, 1), (0, 2), (1, 0)], 0),
            // The third.
            (&[(0, 2), (1, 2)], 2),
            (&[(2, 1), (0, 2)], 2),
        ] {
            assert_eq!(blamed(said), expected, "{said:?}");
        }
    }
}
