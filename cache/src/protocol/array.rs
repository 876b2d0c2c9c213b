//! The stack-based forward array (vGASNet §III.E): the nodes that hold a page, in the order in which they answer.

use smallvec::SmallVec;
use vgas_rma::address::NodeId;

/// Holders of one page. Push puts a node on top; access returns the top and re-inserts it at the bottom, so that
/// the newest copy answers first and the load then goes round, among those that cost the same; remove erases.
///
/// Up to four holders need no memory of their own. Its operations cost time in proportion to the number of holders.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ForwardArray {
    /// Bottom first.
    nodes: SmallVec<[NodeId; 4]>,
}

impl ForwardArray {
    /// Puts a node on top. A node is in the array at most once: pushing it again moves it to the top.
    pub fn push(&mut self, node: NodeId) {
        self.remove(node);
        self.nodes.push(node);
    }

    /// The node that answers now, of those for which `cost` is least; it goes to the bottom. `None` when nobody holds the page.
    pub fn access<C: Ord>(&mut self, cost: impl Fn(NodeId) -> C) -> Option<NodeId> {
        let from_top = self.nodes.iter().copied().enumerate().rev();
        let (position, node) = from_top.min_by_key(|(_, node)| cost(*node))?;
        self.nodes.remove(position);
        self.nodes.insert(0, node);
        Some(node)
    }

    /// The node that would answer now.
    pub fn top(&self) -> Option<NodeId> {
        self.nodes.last().copied()
    }

    /// Erases a node; whether it was there.
    pub fn remove(&mut self, node: NodeId) -> bool {
        let found = self.nodes.iter().position(|&other| other == node);
        if let Some(position) = found {
            self.nodes.remove(position);
        }
        found.is_some()
    }

    /// Erases all but one node, which is pushed if it was not there.
    pub fn reduce_to(&mut self, node: NodeId) {
        self.nodes.clear();
        self.nodes.push(node);
    }

    /// Whether the node holds the page.
    pub fn contains(&self, node: NodeId) -> bool {
        self.nodes.contains(&node)
    }

    /// Number of holders.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Bytes beside the array itself: none while it has few holders.
    pub fn heap_bytes(&self) -> usize {
        if self.nodes.spilled() { self.nodes.capacity() * size_of::<NodeId>() } else { 0 }
    }

    /// Whether nobody holds the page.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The holders, bottom first.
    pub fn iter(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.nodes.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array(nodes: &[u32]) -> ForwardArray {
        let mut array = ForwardArray::default();
        nodes.iter().for_each(|&node| array.push(NodeId(node)));
        array
    }

    #[test]
    fn the_newest_answers_first_then_the_load_goes_round() {
        let mut holders = array(&[1, 2, 3]);
        let answers: Vec<u32> = (0..6).map(|_| holders.access(|_| ()).unwrap().0).collect();
        assert_eq!(answers, [3, 2, 1, 3, 2, 1]);
    }

    #[test]
    fn who_costs_less_answers_before_its_turn() {
        let mut holders = array(&[1, 2, 3, 4]);
        let answers: Vec<u32> = (0..4).map(|_| holders.access(|node| node.0 % 2).unwrap().0).collect();
        assert_eq!(answers, [4, 2, 4, 2]);
        assert_eq!(holders.iter().map(|node| node.0).collect::<Vec<_>>(), [2, 4, 1, 3]);
    }

    #[test]
    fn a_push_after_an_access_goes_above_everybody() {
        let mut holders = array(&[1, 2]);
        assert_eq!(holders.access(|_| ()), Some(NodeId(2)));
        holders.push(NodeId(3));
        assert_eq!(holders.iter().collect::<Vec<_>>(), [NodeId(2), NodeId(1), NodeId(3)]);
        assert_eq!(holders.top(), Some(NodeId(3)));
    }

    #[test]
    fn a_node_is_held_once() {
        let mut holders = array(&[1, 2, 1]);
        assert_eq!(holders.iter().collect::<Vec<_>>(), [NodeId(2), NodeId(1)]);
        assert!(holders.remove(NodeId(1)));
        assert!(!holders.remove(NodeId(1)));
        assert_eq!(holders.len(), 1);
    }

    #[test]
    fn the_empty_array_answers_nothing() {
        let mut holders = ForwardArray::default();
        assert_eq!(holders.access(|_| ()), None);
        assert_eq!(holders.top(), None);
        assert!(holders.is_empty());
        holders.reduce_to(NodeId(4));
        assert_eq!((holders.len(), holders.contains(NodeId(4))), (1, true));
    }
}
