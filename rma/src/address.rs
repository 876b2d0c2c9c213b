//! Names of ranks, nodes, peers and regions. Types, not bare numbers, so that a rank is never taken for a
//! node.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

/// One SPMD process of the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Rank(pub u32);

/// One machine, or one virtual node of this machine: the unit of caching and of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeId(pub u32);

/// Anything that has an endpoint: a rank, or the agent of a node. Ranks come first (`0..ranks`), agents follow
/// (`ranks..ranks + nodes`); [`Layout`] converts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Peer(pub u32);

/// A region of a peer's memory. Regions have the same number on every peer that has them, and their number
/// tells their role for peers; their content is the matter of the layer above.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RegionId(pub u16);

impl RegionId {
    /// A rank's part of the first pinned segment: DRAM only, plain GASNet.
    pub const SEGMENT: RegionId = RegionId(0);
    /// Memory of an agent's into which other agents write *blocks*: pieces of some length at multiples of it,
    /// which a [note](crate::message::NOTE_HANDLER) may announce. All of it is in use from the beginning, and
    /// the layer above may [guard](crate::endpoint::Endpoint::guard) it.
    pub const BLOCKS: RegionId = RegionId(1);
    /// The first of those that an agent shares with the ranks of its node only. Never the target of a peer's message.
    pub const PRIVATE: RegionId = RegionId(2);
    /// The first of those that are a rank's parts of further pinned segments, [`RegionId::FURTHER_MAX`] of them. They come and go
    /// while the job runs ([`Endpoint::attach_part`](crate::endpoint::Endpoint::attach_part)).
    pub const FURTHER: RegionId = RegionId(1024);
    /// Number of further pinned segments of which a rank can have a part at the same time.
    pub const FURTHER_MAX: u16 = 512;

    /// Index of the further pinned segment; none for any other region.
    #[inline]
    pub fn further_index(self) -> Option<usize> {
        let index = self.0.wrapping_sub(Self::FURTHER.0);
        (index < Self::FURTHER_MAX).then_some(usize::from(index))
    }

    /// Returns true if it is a rank's part of a pinned segment, the first or a further one.
    #[inline]
    pub fn is_segment(self) -> bool {
        self == Self::SEGMENT || self.further_index().is_some()
    }
}

/// A rank's part of a pinned segment, by name. A rank alone means its part of the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PinnedPart {
    /// The segment: [`RegionId::SEGMENT`], or one of the further ones.
    pub region: RegionId,
    /// The owner.
    pub owner: Rank,
}

impl From<Rank> for PinnedPart {
    #[inline(always)]
    fn from(owner: Rank) -> Self {
        Self { region: RegionId::SEGMENT, owner }
    }
}

impl From<(RegionId, Rank)> for PinnedPart {
    #[inline(always)]
    fn from((region, owner): (RegionId, Rank)) -> Self {
        Self { region, owner }
    }
}

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {}", self.0)
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}", self.0)
    }
}

/// Number of ranks of this process's job; 0 while it belongs to none.
static RANKS_OF_JOB: AtomicU32 = AtomicU32::new(0);

impl fmt::Display for Peer {
    /// For users, who know ranks and nodes: as [`Layout::describe`], once this process belongs to a job.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match RANKS_OF_JOB.load(Ordering::Relaxed) {
            0 => write!(f, "peer {}", self.0),
            ranks if self.0 < ranks => Rank(self.0).fmt(f),
            ranks => write!(f, "the agent of {}", NodeId(self.0 - ranks)),
        }
    }
}

/// Assignment of ranks to nodes. Ranks of a node are consecutive; every process of a job holds the same
/// layout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Bounds")]
pub struct Layout {
    /// `first_rank[n]..first_rank[n + 1]` are the ranks of node `n`.
    first_rank: Vec<u32>,
}

/// A [`Layout`] as it arrives.
#[derive(Deserialize)]
struct Bounds {
    first_rank: Vec<u32>,
}

impl TryFrom<Bounds> for Layout {
    type Error = &'static str;

    /// Everything that is asked of a layout stands on these: at least one node, each with a rank, and numbers for all peers.
    fn try_from(Bounds { first_rank }: Bounds) -> Result<Self, Self::Error> {
        let ascends = first_rank.first() == Some(&0) && first_rank.is_sorted_by(|one, next| one < next);
        let nodes = u32::try_from(first_rank.len()).ok().and_then(|bounds| bounds.checked_sub(1));
        let peers = nodes.filter(|&nodes| nodes > 0).and_then(|nodes| first_rank.last()?.checked_add(nodes));
        match ascends && peers.is_some() {
            true => Ok(Self { first_rank }),
            false => Err("a layout without nodes, with a node without ranks, or with too many peers"),
        }
    }
}

impl Layout {
    /// Spreads `ranks` over `nodes` in consecutive blocks whose sizes differ by at most one, larger blocks first.
    ///
    /// # Panics
    /// When `nodes` is 0 or exceeds `ranks`: the caller has checked the user's numbers.
    pub fn blocks(ranks: u32, nodes: u32) -> Self {
        assert!(nodes > 0 && nodes <= ranks, "a node needs at least one rank");
        let (each, more) = (ranks / nodes, ranks % nodes);
        let first_rank = (0..=nodes).map(|node| node * each + node.min(more)).collect();
        Self { first_rank }
    }

    /// Nodes with these numbers of ranks, one after the other; none if there is no node, one without a rank,
    /// or more peers than numbers.
    pub fn of_nodes(ranks: impl IntoIterator<Item = u32>) -> Option<Self> {
        let mut first_rank = vec![0u32];
        for count in ranks {
            first_rank.push(first_rank.last()?.checked_add(count)?);
        }
        Self::try_from(Bounds { first_rank }).ok()
    }

    /// Number of ranks of the job.
    #[inline]
    pub fn ranks(&self) -> u32 {
        *self.first_rank.last().expect("a layout has at least one bound")
    }

    /// Number of nodes of the job.
    pub fn nodes(&self) -> u32 {
        self.first_rank.len() as u32 - 1
    }

    /// Number of endpoints: one a rank, one an agent.
    #[inline]
    pub fn peers(&self) -> u32 {
        self.ranks() + self.nodes()
    }

    /// The ranks of one node.
    pub fn ranks_of(&self, node: NodeId) -> Range<u32> {
        self.first_rank[node.0 as usize]..self.first_rank[node.0 as usize + 1]
    }

    /// The node a rank runs on.
    pub fn node_of(&self, rank: Rank) -> NodeId {
        NodeId(self.first_rank.partition_point(|&first| first <= rank.0) as u32 - 1)
    }

    /// The endpoint of a rank.
    #[inline]
    pub fn peer_of_rank(&self, rank: Rank) -> Peer {
        Peer(rank.0)
    }

    /// The endpoint of a node's agent.
    pub fn agent_of(&self, node: NodeId) -> Peer {
        Peer(self.ranks() + node.0)
    }

    /// The rank behind an endpoint, unless it is an agent's.
    pub fn rank_of_peer(&self, peer: Peer) -> Option<Rank> {
        (peer.0 < self.ranks()).then_some(Rank(peer.0))
    }

    /// The node an endpoint lives on.
    pub fn node_of_peer(&self, peer: Peer) -> NodeId {
        match self.rank_of_peer(peer) {
            Some(rank) => self.node_of(rank),
            None => NodeId(peer.0 - self.ranks()),
        }
    }

    /// Returns true if the number names an endpoint of this job: the check for numbers from the wire.
    #[inline]
    pub fn contains(&self, peer: Peer) -> bool {
        peer.0 < self.peers()
    }

    /// Makes this the layout of this process's job: from now on peers are called by their ranks and nodes in
    /// it. Call it at start-up, once the job is known.
    pub fn name_peers(&self) {
        RANKS_OF_JOB.store(self.ranks(), Ordering::Relaxed);
    }

    /// "rank 3" or "the agent of node 1": for people.
    pub fn describe(&self, peer: Peer) -> String {
        match self.rank_of_peer(peer) {
            Some(rank) => rank.to_string(),
            None => format!("the agent of {}", self.node_of_peer(peer)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A received layout is consistent, or refused.
    #[test]
    fn only_layouts_arrive() {
        let arrived = |bounds: &[u32]| {
            let bytes = postcard::to_allocvec(bounds).unwrap();
            postcard::from_bytes::<Layout>(&bytes).ok()
        };
        let sent = Layout::blocks(7, 3);
        let bytes = postcard::to_allocvec(&sent).unwrap();
        assert_eq!(postcard::from_bytes::<Layout>(&bytes).unwrap(), sent);
        assert_eq!(arrived(&sent.first_rank), Some(sent));
        assert!(arrived(&[0, u32::MAX - 1]).is_some());
        for bounds in [&[][..], &[0], &[1, 2], &[0, 2, 2], &[0, 3, 2], &[0, u32::MAX]] {
            assert_eq!(arrived(bounds), None, "{bounds:?}");
        }
    }

    #[test]
    fn nodes_may_differ() {
        let uneven = Layout::of_nodes([3, 1]).unwrap();
        assert_eq!((uneven.ranks(), uneven.ranks_of(NodeId(1))), (4, 3..4));
        assert_eq!(Layout::of_nodes([2, 1]), Some(Layout::blocks(3, 2)));
        for wrong in [&[][..], &[1, 0], &[u32::MAX, 1]] {
            assert_eq!(Layout::of_nodes(wrong.iter().copied()), None);
        }
    }

    #[test]
    fn blocks_cover_every_rank_once_and_agree_with_node_of() {
        for ranks in 1..20 {
            for nodes in 1..=ranks {
                let layout = Layout::blocks(ranks, nodes);
                assert_eq!(layout.ranks(), ranks);
                assert_eq!(layout.nodes(), nodes);
                for node in (0..nodes).map(NodeId) {
                    assert!(!layout.ranks_of(node).is_empty());
                    for rank in layout.ranks_of(node).map(Rank) {
                        assert_eq!(layout.node_of(rank), node);
                    }
                    assert_eq!(layout.node_of_peer(layout.agent_of(node)), node);
                }
            }
        }
    }
}
