//! Groups: an object and all that is tied to it, which come by one message and its answer (DRust §4.1.3).
//!
//! A reader of an object tells its home the offsets of tied words in values of its type, and of the types
//! tied to it. The home follows them as far as the answer has room ([`crate::service`]), and sends their
//! words and bytes. A reader keeps them as copies, which it then finds without a message; a move of the
//! object here moves them as well. An object that did not come (it is on another rank, larger than a slot of
//! a slab, or there was no room) is fetched when used, as any box's object.

use super::copies::Claim;
use super::error::ObjectError;
use super::mates::Begun;
use super::{Freed, Heap};
use crate::planted::{Fault, is_planted};
use crate::service::{Answer, Bytes, HeapService, Kind, Read, Request};
use crate::shape::Shape;
use crate::slab::{Class, Use};
use crate::tie::Tied;
use crate::word::{Link, Word};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::ptr::with_exposed_provenance_mut;

/// Describes a type of a group to a home.
fn kind_of(tied: &Tied) -> Kind {
    Kind {
        bytes: tied.shape.bytes as u32,
        slot: match tied.shape.class {
            Class::Small(number) => Some(number),
            Class::Large(_) => None,
        },
        ties: tied.ties.clone(),
    }
}

/// The objects of a group that have arrived.
#[derive(Debug)]
pub(super) struct FoundGroup {
    types: &'static [Tied],
    /// The bytes of the objects that were asked for, where they could be had.
    pub first: Vec<Option<Vec<u8>>>,
    /// Bytes of the tied objects, by their words.
    tied: FxHashMap<u64, Vec<u8>>,
}

impl Heap {
    /// Returns the request for objects of one node whose group has these types.
    pub(super) fn group_request(&self, types: &[Tied], mut first: Vec<Read>) -> Request {
        if is_planted(Fault::UnmarkedTies) {
            first.iter_mut().for_each(|read| read.served = None);
        }
        let most = self.message_bytes() as u32;
        Request::Group {
            first,
            base: self.base,
            stride: self.stride,
            most,
            kinds: types.iter().map(kind_of).collect(),
        }
    }

    /// Reads an object of another node, with its ties, after they were marked if they stay (`served` is the
    /// offset of the word of the object's slot). None if it does not come in this way.
    pub(super) fn read_group(
        &self,
        word: Word,
        shape: &Shape,
        served: Option<u64>,
    ) -> Result<Option<FoundGroup>, ObjectError> {
        let (Some(types), at) = (shape.tied.map(|of| of()), self.locate(word.address())) else {
            return Ok(None);
        };
        let fits = (1..=self.message_bytes()).contains(&shape.bytes);
        let Some(node) = self.far(at.rank).filter(|_| fits) else {
            return Ok(None);
        };
        if self.has_replicas() {
            return Ok(None);
        }
        let request = self.group_request(types, vec![self.read_of(word, shape, served, None)]);
        let answer = self.runtime.call::<HeapService>(node, &request);
        let answer = answer.map_err(|why| self.lost(word, shape, why))?;
        // The other way says why not.
        let found = FoundGroup::of(types, answer, [shape.bytes].into_iter());
        Ok(found.filter(|found| found.first.iter().all(Option::is_some)))
    }

    /// Keeps copies of the objects that have come with others. A later use finds them; no caller waits.
    pub(super) fn keep_tied(&self, found: &FoundGroup) {
        let first = found.first.iter().flatten().map(|bytes| ((), &bytes[..])).collect();
        found.follow(first, |(), _, tied, word, bytes| {
            let filling = match self.copies.claim(word) {
                Claim::Mine(filling) => filling,
                Claim::Held(_) => {
                    self.copies.release(word);
                    return Some(());
                }
                Claim::Others => return None,
            };
            match self.begin_copy(word, &tied.shape) {
                Ok(Begun::Fetch(unshown, room)) => {
                    let copy = self.keep_in(room, word, &tied.shape, bytes);
                    filling.fill(copy);
                    unshown.into_iter().for_each(|unshown| unshown.show(&copy));
                }
                Ok(Begun::Copied(copy)) => {
                    filling.fill(copy);
                }
                // Another rank of the node fetches it, or there is no room.
                Ok(Begun::Others) | Err(_) => return None,
            }
            self.copies.release(word);
            Some(())
        });
    }

    /// Writes an object that has moved here, and its ties, into slots of this rank; returns the notes that
    /// [`Shape::scrub`] has found in the object itself. The old slots of the others are freed.
    pub(super) fn settle(
        &self,
        word: Word,
        shape: &Shape,
        address: u64,
        found: &FoundGroup,
    ) -> Result<Vec<Word>, ObjectError> {
        let first = found.one();
        // SAFETY: rule 1: a slot for these bytes, which only this code uses.
        unsafe { write(address, first) };
        let holds = shape.scrub(address, self.tag_of(word));
        let mut ended = Ok(());
        found.follow(vec![(address, first)], |parent, offset, tied, word, bytes| {
            let (shape, here) = (&tied.shape, parent + offset as u64);
            let (address, colour) = self.allocate(shape.class, Use::Values).ok()?;
            let new = Word::new(address, colour)?;
            // SAFETY: rule 1: a slot for these bytes, which only this code uses.
            unsafe { write(address, bytes) };
            let holds = shape.scrub(address, self.tag_of(word));
            // SAFETY: rules 1 and 2: a link of a value that was written above, and is not shared yet. The
            // thread that has its parent mutably borrowed has this mutably borrowed.
            unsafe { (*with_exposed_provenance_mut::<Link>(here as usize)).word = new };
            if let Err(error) = self.free_there(Freed::of(word, holds, shape)) {
                ended = Err(error);
            }
            Some(address)
        });
        ended.map(|()| holds)
    }
}

/// Writes bytes into a slot.
///
/// # Safety
/// The slot has at least `bytes.len()` bytes, and only the caller uses it.
unsafe fn write(address: u64, bytes: &[u8]) {
    let to = with_exposed_provenance_mut::<u8>(address as usize);
    // SAFETY: the caller's promise.
    unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
}

impl FoundGroup {
    /// Decodes a node's answer, if it is about this number of objects of these sizes.
    pub fn of(
        types: &'static [Tied],
        answer: Answer,
        sizes: impl ExactSizeIterator<Item = usize>,
    ) -> Option<Self> {
        let Answer::Group { first, tied } = answer else { return None };
        let first = given(Answer::All(first), sizes);
        Some(Self { types, first, tied: tied.into_iter().map(|(word, bytes)| (word, bytes.0)).collect() })
    }

    /// The bytes of the first object that was asked for; of the only one, where it has come.
    pub fn one(&self) -> &[u8] {
        self.first.iter().flatten().next().map_or(&[], |bytes| bytes)
    }

    /// Visits the objects that have come with these: `each` gets the parent (the place of one of these, or
    /// the value returned for it), the offset in it, the type, the word and the bytes. An object for which it
    /// returns `None` is not followed further.
    pub(super) fn follow<'f, P>(
        &'f self,
        first: Vec<(P, &'f [u8])>,
        mut each: impl FnMut(&P, usize, &'static Tied, Word, &'f [u8]) -> Option<P>,
    ) {
        let types = self.types;
        let Some(of) = types.first() else { return };
        // A row has many of the first.
        let mut open: VecDeque<_> =
            first.into_iter().map(|(place, bytes)| (place, bytes, of, of.shape.bytes)).collect();
        let mut left: FxHashMap<u64, &'f [u8]> =
            self.tied.iter().map(|(word, bytes)| (*word, &bytes[..])).collect();
        while let Some((place, bytes, of, step)) = open.pop_front() {
            for begin in (0..bytes.len()).step_by(step.max(1)) {
                for (offset, number) in &of.ties {
                    let at = begin + *offset as usize;
                    let tied = types.get(usize::from(*number));
                    let (Some(word), Some(tied)) = (word_at(bytes, at), tied) else { continue };
                    // Once: a word is in one place.
                    let Some(came) = left.remove(&word.bits()).filter(|came| came.len() == tied.shape.bytes)
                    else {
                        continue;
                    };
                    if let Some(place) = each(&place, at, tied, word, came) {
                        open.push_back((place, came, tied, tied.shape.bytes));
                    }
                }
            }
        }
    }
}

/// The word that is there in a value.
fn word_at(bytes: &[u8], at: usize) -> Option<Word> {
    let bits = bytes.get(at..)?.first_chunk::<8>()?;
    Word::from_bits(u64::from_le_bytes(*bits))
}

/// Returns the bytes that a home has sent of objects of these sizes: none of an object with another size, or of an answer to something else.
pub(super) fn given(answer: Answer, sizes: impl ExactSizeIterator<Item = usize>) -> Vec<Option<Vec<u8>>> {
    let all = match answer {
        Answer::All(all) if all.len() == sizes.len() => all,
        _ => return vec![None; sizes.len()],
    };
    let whole = |(bytes, size): (Option<Bytes>, usize)| Some(bytes?.0).filter(|bytes| bytes.len() == size);
    all.into_iter().zip(sizes).map(whole).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: whatever a home answers, an object has as many bytes as it asked for, or is asked for again.
    #[test]
    fn answers_give_what_was_asked_for() {
        let bytes = |count: usize| Some(Bytes(vec![7; count]));
        let sizes = || [3usize, 5, 0].into_iter();
        let nothing = vec![None; 3];
        let right = Answer::All(vec![bytes(3), bytes(5), bytes(0)]);
        assert_eq!(given(right, sizes()), [Some(vec![7; 3]), Some(vec![7; 5]), Some(Vec::new())]);
        let some = Answer::All(vec![bytes(4), bytes(5), None]);
        assert_eq!(given(some, sizes()), [None, Some(vec![7; 5]), None]);
        for wrong in [
            Answer::All(vec![bytes(3), bytes(5)]),
            Answer::All(vec![bytes(3), bytes(5), bytes(0), bytes(0)]),
            Answer::All(Vec::new()),
            Answer::Bytes(Bytes(vec![7; 8])),
            Answer::Failed,
            Answer::Freed,
        ] {
            assert_eq!(given(wrong, sizes()), nothing);
        }
    }
}
