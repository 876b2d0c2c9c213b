//! Going on when a node is lost ([`vgas_rma::endpoint::Endpoint::survive`]).
//!
//! What has its home on this node stays as it is where all segments are *home-only*: no other node has copies of their pages, none
//! is asked for one, and what ranks do with pages of the lost node they ask its agent for themselves. A page of any other segment
//! may have been in the lost node's cache alone, and the protocol would wait for it: then the job ends, as without surviving.

use super::Agent;
use super::context::Outgoing;
use crate::error::CacheError;
use vgas_rma::address::Rank;
use vgas_rma::endpoint::Endpoint;

impl Agent {
    /// Looks whether nodes were lost, and goes on without them. For the first shard.
    pub(super) fn hear_of_losses(&mut self, endpoint: &Endpoint) -> Result<bool, CacheError> {
        let nodes = endpoint.lost_nodes();
        let Some(&node) = nodes.get(self.services.lost().len()) else { return Ok(false) };
        self.cache.ctx.hear_of_segments();
        if let Some(shared) = self.partitions().find(|found| !found.policy.home_only) {
            tracing::error!(%node, segment = %shared.id(), "the job cannot go on without it: pages may be there alone");
            endpoint.check_peer(
                self.cache.ctx.layout.agent_of(node),
                "sharing the pages of a segment that is not home-only",
            )?;
        }
        // The launcher tells the user, once for the job.
        tracing::info!(%node, "is lost; going on without it");
        let ranks = self.cache.ctx.layout.ranks_of(self.cache.ctx.node).map(Rank);
        for rank in ranks.map(|rank| self.cache.ctx.layout.peer_of_rank(rank)) {
            self.cache.ctx.outbox.push(rank, Outgoing::NodeLost(node));
        }
        self.services.lose_node(&mut self.cache, node)?;
        Ok(true)
    }
}
