//! Objects that are elsewhere: their bytes, and that they are free.
//!
//! A rank of the same node is reached through the memory that both share; the home of any other by one message and its answer
//! ([`crate::service`]).

use super::error::{Lost, ObjectError};
use super::{Freed, Heap, OWN};
use crate::service::{self, Answer, Bytes, CopyAt, HeapService, NOTE_WORDS_MAX, Read, Request};
use crate::shape::Shape;
use crate::slab::SERVED;
use crate::word::Word;
use std::sync::PoisonError;
use vgas::{Change, GlobalAddress, NodeId, Rank};

/// What a message has beside an object's bytes, at most.
pub(super) const REST_BYTES: usize = 64;

impl Heap {
    /// The node of a rank, if it is another one.
    pub(super) fn far(&self, rank: Rank) -> Option<NodeId> {
        let node = self.runtime.layout().node_of(rank);
        (node != self.runtime.node()).then_some(node)
    }

    /// Reads the bytes of another rank's object, after `served`, the word of its slot, was marked: its next writer must see it.
    ///
    /// # Safety
    /// At `to` are as many bytes as its shape has, which only the caller has.
    pub(super) unsafe fn read(
        &self,
        word: Word,
        shape: &Shape,
        to: usize,
        served: Option<u64>,
    ) -> Result<(), ObjectError> {
        let at = self.locate(word.address());
        if shape.bytes == 0 {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        let bytes = unsafe { super::room(to as u64, shape.bytes) };
        if self.is_backed_up(at.rank) {
            return self.read_backup(word, shape, bytes);
        }
        // What stays here as a copy, others may be handed on to; not where the node that they are handed on to may be lost.
        let to = OWN.offset_of(to as u64).filter(|_| served.is_some() && self.may_hand_on());
        let copy = to.map(|offset| CopyAt { word: word.bits(), rank: self.runtime.rank().0, offset });
        match self.read_bytes(at, bytes, served, copy) {
            // It was lost meanwhile.
            Err(_) if self.is_backed_up(at.rank) => self.read_backup(word, shape, bytes),
            read => read.map_err(|why| self.lost(word, shape, why)),
        }
    }

    /// What is said of an object that cannot be had.
    pub(super) fn lost(&self, word: Word, shape: &Shape, why: vgas::Error) -> ObjectError {
        let rank = self.locate(word.address()).rank;
        let node = self.runtime.layout().node_of(rank);
        let (type_name, address) = ((shape.name)(), word.address());
        ObjectError::Lost(Box::new(Lost { type_name, address, rank, node, at: None, why }))
    }

    fn read_bytes(
        &self,
        at: GlobalAddress,
        to: &mut [u8],
        served: Option<u64>,
        copy: Option<CopyAt>,
    ) -> Result<(), vgas::Error> {
        let far = self.far(at.rank).filter(|_| to.len() + REST_BYTES <= self.runtime.medium_bytes_max());
        if let Some(node) = far {
            let (owner, offset, bytes) = (at.rank.0, at.offset, to.len() as u32);
            let request = Request::Read(Read { owner, offset, bytes, served, copy });
            if let Answer::Bytes(found) = self.runtime.call::<HeapService>(node, &request)?
                && found.0.len() == to.len()
            {
                to.copy_from_slice(&found.0);
                return Ok(());
            }
            // The other way says why not.
        }
        if let Some(offset) = served {
            self.runtime.update(GlobalAddress { offset, ..at }, Change::Or(SERVED))?;
        }
        self.runtime.get(at, to)
    }

    /// Tells a rank what has been freed of its objects. `all`: and waits until it can find those of earlier calls, too.
    pub(super) fn send_frees(&self, rank: Rank, freed: &[Freed], all: bool) -> Result<(), ObjectError> {
        match self.send_frees_to(rank, freed, all) {
            // What a lost rank had is never used for something else.
            Err(_) if self.is_backed_up(rank) => Ok(()),
            sent => sent,
        }
    }

    fn send_frees_to(&self, rank: Rank, freed: &[Freed], all: bool) -> Result<(), ObjectError> {
        // A number takes at most ten bytes.
        let bytes: usize = freed.iter().map(|freed| 20 + 10 * (2 + freed.holds.len())).sum();
        let is_short = bytes + REST_BYTES <= self.runtime.medium_bytes_max();
        let notes_are_short = freed.iter().all(|freed| freed.note_words() <= NOTE_WORDS_MAX);
        let far = self.far(rank).filter(|_| is_short && notes_are_short);
        let Some(node) = far else { return self.hang(freed) };
        let next = freed.iter().skip(1).map(|next| next.word.bits()).chain([0]);
        let noted = freed.iter().zip(next).map(|(freed, next)| service::Freed {
            word: freed.word.bits(),
            offset: self.locate(freed.word.address()).offset,
            note: freed.note(next),
        });
        let request = Request::Free { owner: rank.0, all: noted.collect() };
        if !all {
            self.told.lock().unwrap_or_else(PoisonError::into_inner).insert(rank);
            return Ok(self.runtime.tell::<HeapService>(node, &request)?);
        }
        match self.runtime.call::<HeapService>(node, &request)? {
            Answer::Freed => Ok(()),
            // The other way says why not.
            _ => self.hang(freed),
        }
    }

    /// Chains objects of one rank, and hangs them before what that rank has not yet collected.
    fn hang(&self, all: &[Freed]) -> Result<(), ObjectError> {
        let (Some(first), Some(last)) = (all.first(), all.last()) else { return Ok(()) };
        for (at, freed) in all.iter().enumerate() {
            let next = all.get(at + 1).map_or(0, |next| next.word.bits());
            self.runtime.put(self.locate(freed.word.address()), &freed.note(next))?;
        }
        let (first, last) = (first.word, self.locate(last.word.address()));
        let head = GlobalAddress { offset: 0, ..last };
        let mut before: u64 = self.runtime.get_value(head)?;
        loop {
            self.runtime.put_value(last, before)?;
            let was = self.runtime.compare_swap(head, before, first.bits())?;
            if was == before {
                return Ok(());
            }
            before = was;
        }
    }
}

/// What a home has given of objects of these sizes. Nothing of an answer to something else, or of an object with other bytes than it has: that is
/// asked for by itself, and said of it then.
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
