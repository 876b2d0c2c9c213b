//! Nodes with copies, as their home last heard: a home that would have to read NVMe can forward a reader.
//!
//! A hint may be wrong: its copy may be gone, or may never have been. The node that gets a forwarded read
//! checks the word at the copy itself, before and after copying it, and else sends the reader back to the
//! home.

use serde::{Deserialize, Serialize};
use vgas::NodeId;

/// Hints about objects: in sets, by their places. In a set, those that were read last stay. In all, less than
/// 2 MiB.
const SETS: usize = 4096;
const WAYS: usize = 4;
/// Nodes known for each object: of two, at least one is not the requester.
const NODES: usize = 2;

/// Place where a rank has, or is about to have, the copy of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CopyAt {
    pub word: u64,
    pub rank: u32,
    pub offset: u64,
}

/// Hints for one object.
#[derive(Clone, Copy, Debug, Default)]
struct HintEntry {
    /// The bytes it is about: a reader may claim any word.
    of: Option<Of>,
    /// The newest first, all of one word.
    copies: [Option<(NodeId, CopyAt)>; NODES],
}

/// An object's bytes: owner, offset, and number.
type Of = (u32, u64, u32);

/// A home's hints.
#[derive(Debug, Default)]
pub(super) struct Hints {
    /// Each set has the newest first. Empty until the first read.
    sets: Vec<[HintEntry; WAYS]>,
}

fn set_of((owner, offset, _): Of) -> usize {
    ((offset ^ u64::from(owner) << 48).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as usize % SETS
}

impl Hints {
    /// Notes that a node will have a copy of this object: of these bytes at this offset of a rank.
    pub fn note(&mut self, of: Of, node: NodeId, copy: CopyAt) {
        if self.sets.is_empty() {
            self.sets = vec![Default::default(); SETS];
        }
        let Some(set) = self.sets.get_mut(set_of(of)) else { return };
        let way = set.iter().position(|known| known.of == Some(of));
        set[..=way.unwrap_or(WAYS - 1)].rotate_right(1);
        let [known, ..] = set;
        let is_same = way.is_some() && known.copies[0].is_some_and(|(_, known)| known.word == copy.word);
        if !is_same {
            *known = HintEntry { of: Some(of), ..HintEntry::default() };
        }
        if known.copies[0].is_none_or(|(first, _)| first != node) {
            known.copies[1] = known.copies[0];
        }
        known.copies[0] = Some((node, copy));
    }

    /// Returns a node, other than the requester's, that may have a copy of this object under this word.
    pub fn find(&self, of: Of, word: u64, asks: NodeId) -> Option<(NodeId, CopyAt)> {
        let known = self.sets.get(set_of(of))?.iter().find(|known| known.of == Some(of))?;
        let is_good = |found: &&(NodeId, CopyAt)| found.0 != asks && found.1.word == word;
        known.copies.iter().flatten().find(is_good).copied()
    }

    /// Returns the number of objects with hints.
    pub fn count(&self) -> u64 {
        self.sets.iter().flatten().filter(|known| known.of.is_some()).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the newest copy is found, of exactly this object under exactly this word, and never at the
    /// requester; and their memory is bounded however many are noted.
    #[test]
    fn the_newest_copy_elsewhere_is_found() {
        let (mut hints, of) = (Hints::default(), (1, 64, 8));
        let copy = |word, rank| CopyAt { word, rank, offset: 16 };
        assert_eq!(hints.find(of, 7, NodeId(0)), None);
        hints.note(of, NodeId(1), copy(7, 1));
        hints.note(of, NodeId(2), copy(7, 2));
        assert_eq!(hints.find(of, 7, NodeId(0)), Some((NodeId(2), copy(7, 2))));
        assert_eq!(hints.find(of, 7, NodeId(2)), Some((NodeId(1), copy(7, 1))));
        for other in [(2, 64, 8), (1, 80, 8), (1, 64, 16)] {
            assert_eq!(hints.find(other, 7, NodeId(0)), None, "{other:?}");
        }
        assert_eq!(hints.find(of, 8, NodeId(0)), None);
        // Written, and read again: copies of what it was are of no use.
        hints.note(of, NodeId(1), copy(8, 1));
        assert_eq!(hints.find(of, 7, NodeId(0)), None);
        assert_eq!(hints.find(of, 8, NodeId(1)), None);
        // Others of its set, until it is the oldest of too many.
        let mut others = (2..).map(|at| (1, 64 * at, 8)).filter(|other| set_of(*other) == set_of(of));
        for is_found in [true, true, true, false] {
            hints.note(others.next().unwrap(), NodeId(1), copy(9, 1));
            assert_eq!(hints.find(of, 8, NodeId(0)).is_some(), is_found);
        }
        for at in 0..100_000 {
            hints.note((1, 64 * at, 8), NodeId(1), copy(at, 1));
        }
        assert_eq!((hints.sets.len(), hints.count()), (SETS, (SETS * WAYS) as u64));
        assert!(size_of_val(&hints.sets[..]) < 2 << 20);
    }
}
