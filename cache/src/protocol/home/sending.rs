//! How busy nodes are with sending pages, as a home knows it.

use vgas_rma::address::NodeId;

/// How many pages nodes have been asked to send to readers, which have not said yet that these have come: of all pages of a home. A
/// hint: nodes whose numbers are alike, but for a multiple of [`Sending::TOLD_APART`], count as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sending {
    by_node: [u32; Sending::TOLD_APART],
    all: usize,
}

impl Default for Sending {
    fn default() -> Self {
        Self::NOTHING
    }
}

impl Sending {
    /// Nobody sends anything.
    pub const NOTHING: Self = Self { by_node: [0; Self::TOLD_APART], all: 0 };

    /// Of so many nodes each is known by itself.
    pub const TOLD_APART: usize = 64;

    /// These nodes send a page each.
    pub fn begin(&mut self, nodes: impl Iterator<Item = NodeId>) {
        for node in nodes {
            self.by_node[node.0 as usize % Self::TOLD_APART] += 1;
            self.all += 1;
        }
    }

    /// They have sent it.
    pub fn end(&mut self, nodes: impl Iterator<Item = NodeId>) {
        for node in nodes {
            self.by_node[node.0 as usize % Self::TOLD_APART] -= 1;
            self.all -= 1;
        }
    }

    /// What this node sends, and maybe others.
    pub fn of(&self, node: NodeId) -> u32 {
        self.by_node[node.0 as usize % Self::TOLD_APART]
    }

    /// What all send.
    pub fn all(&self) -> usize {
        self.all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what has begun and ended leaves nothing, and nodes are told apart as far as there is room.
    #[test]
    fn what_ends_is_as_if_it_had_never_begun() {
        let [a, b, as_a] = [1, 2, 1 + Sending::TOLD_APART as u32].map(NodeId);
        let mut sending = Sending::NOTHING;
        sending.begin([a, b, a].into_iter());
        assert_eq!((sending.of(a), sending.of(b), sending.of(as_a), sending.all()), (2, 1, 2, 3));
        sending.end([a, a, b].into_iter());
        assert_eq!(sending, Sending::NOTHING);
    }
}
