//! Which nodes have copies, as their home last heard: so that a home which would have to read NVMe can hand a reader on.
//!
//! A hint may be wrong: its copy may be gone, or may never have been. Who is handed on looks for the word at the copy itself, before and
//! after it is copied, and comes back to the home otherwise.

use serde::{Deserialize, Serialize};
use vgas::NodeId;

/// Words of which something is known. A word's number decides where, and the newest stays.
const WORDS: usize = 2048;
/// Nodes that are known for each: of two, at least one is not who asks.
const NODES: usize = 2;

/// Where a rank has, or is about to have, the copy of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CopyAt {
    pub word: u64,
    pub rank: u32,
    pub offset: u64,
}

/// Of one word.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// Of which object's bytes: a reader may claim any word.
    of: Option<(u32, u64, u32)>,
    /// The newest first.
    copies: [Option<(NodeId, CopyAt)>; NODES],
}

/// What a home knows.
#[derive(Debug, Default)]
pub(super) struct Hints {
    /// Empty until somebody reads.
    words: Vec<Known>,
}

fn place(word: u64) -> usize {
    (word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as usize % WORDS
}

impl Hints {
    /// A node will have a copy of this object: of so many bytes at this offset of a rank.
    pub fn note(&mut self, of: (u32, u64, u32), node: NodeId, copy: CopyAt) {
        if self.words.is_empty() {
            self.words = vec![Known::default(); WORDS];
        }
        let Some(known) = self.words.get_mut(place(copy.word)) else { return };
        let is_same =
            known.of == Some(of) && known.copies[0].is_some_and(|(_, known)| known.word == copy.word);
        if !is_same {
            *known = Known { of: Some(of), ..Known::default() };
        }
        if known.copies[0].is_none_or(|(first, _)| first != node) {
            known.copies[1] = known.copies[0];
        }
        known.copies[0] = Some((node, copy));
    }

    /// A node, other than who asks, that may have a copy of this object under this word.
    pub fn find(&self, of: (u32, u64, u32), word: u64, asks: NodeId) -> Option<(NodeId, CopyAt)> {
        let known = self.words.get(place(word)).filter(|known| known.of == Some(of))?;
        let is_good = |found: &&(NodeId, CopyAt)| found.0 != asks && found.1.word == word;
        known.copies.iter().flatten().find(is_good).copied()
    }

    /// Words of which something is known.
    pub fn count(&self) -> u64 {
        self.words.iter().filter(|known| known.copies[0].is_some()).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the newest copy is found, of exactly this object under exactly this word, and never with who asks; and however many are
    /// noted, their room is bounded.
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
        let same_place = (8..).find(|word| place(*word) == place(7)).unwrap();
        hints.note(of, NodeId(1), copy(same_place, 1));
        assert_eq!(hints.find(of, 7, NodeId(0)), None);
        assert_eq!(hints.find(of, same_place, NodeId(1)), None);
        for word in 0..100_000 {
            hints.note(of, NodeId(1), copy(word, 1));
        }
        assert_eq!((hints.words.len(), hints.count()), (WORDS, WORDS as u64));
    }
}
