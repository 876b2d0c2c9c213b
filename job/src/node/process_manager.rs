//! The daemon as the process manager of the ranks that it has started: PMI-1 between them and the launcher.

use super::Node;
use crate::control::Channel;
use crate::message::FromNode;
use crate::pmi::server::{Client, RankRequest};
use vgas_rma::address::Peer;
use vgas_rma::error::Result;

impl Node {
    /// Answers what ranks ask by PMI-1.
    pub(super) fn manage_processes(&mut self, channel: &mut Channel) -> Result<()> {
        (0..self.ranks.len()).try_for_each(|index| self.manage_process(index, channel))
    }

    /// Answers what one rank asks by PMI-1. A wrong request ends the job: others would wait for the rank.
    pub(super) fn manage_process(&mut self, index: usize, channel: &mut Channel) -> Result<()> {
        let rank = &mut self.ranks[index];
        let Some(client) = &mut rank.pmi else { return Ok(()) };
        let from = Peer(rank.rank.0);
        match client.serve(&mut self.space) {
            Ok(asked) => {
                for asked in asked {
                    match asked {
                        RankRequest::Begun => self.report_joined(channel)?,
                        RankRequest::Barrier => self.fence_if_all(channel)?,
                        RankRequest::Abort { code, message } => {
                            let message = match message.is_empty() {
                                true => format!("ended the job with status {code}, by PMI-1"),
                                false => message,
                            };
                            let abort = FromNode::Abort { from, message, code, is_complaint: false };
                            channel.sender.send(&abort)?;
                        }
                    }
                }
                Ok(())
            }
            Err(what) => {
                rank.pmi = None;
                let message = format!("broke the protocol PMI-1: {what}");
                channel.sender.send(&FromNode::Abort { from, message, code: 1, is_complaint: false })
            }
        }
    }

    /// Announces that all ranks of this node wait in a barrier, once they do, with the values that they have
    /// put.
    fn fence_if_all(&mut self, channel: &mut Channel) -> Result<()> {
        let waits = |client: &Option<Client>| client.as_ref().is_some_and(Client::waits);
        match self.ranks.iter().all(|rank| waits(&rank.pmi)) {
            true => channel.sender.send(&FromNode::Fence(self.space.take_fresh())),
            false => Ok(()),
        }
    }

    /// All ranks of the job wait in a barrier, and have put this.
    pub(super) fn leave_barrier(&mut self, all: Vec<(String, String)>) {
        self.space.extend(all);
        self.ranks.iter_mut().filter_map(|rank| rank.pmi.as_mut()).for_each(Client::leave_barrier);
    }
}
