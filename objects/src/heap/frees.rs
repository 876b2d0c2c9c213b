//! Frees of other ranks' objects: a rank of this node learns of them through the memory that both share, any other by a message to its home
//! ([`crate::service`]).

use super::error::ObjectError;
use super::{Freed, Heap};
use crate::service::{self, Answer, HeapService, NOTE_WORDS_MAX, Request};
use std::sync::PoisonError;
use vgas::{Change, Rank};

impl Heap {
    /// Tells a rank what has been freed of its objects. `all`: and waits until it can find those of earlier calls, too.
    pub(super) fn send_frees(&self, rank: Rank, freed: &[Freed], all: bool) -> Result<(), ObjectError> {
        match self.send_frees_to(rank, freed, all) {
            // A lost rank's slots are never reused.
            Err(_) if self.is_backed_up(rank) => Ok(()),
            sent => sent,
        }
    }

    fn send_frees_to(&self, rank: Rank, freed: &[Freed], all: bool) -> Result<(), ObjectError> {
        // A number takes at most ten bytes.
        let bytes: usize = freed.iter().map(|freed| 20 + 10 * (2 + freed.holds.len())).sum();
        let is_short = bytes <= self.message_bytes();
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
            let at = self.locate(freed.word.address());
            self.segment.put(at.rank, at.offset, &freed.note(next))?;
        }
        let (first, last) = (first.word, self.locate(last.word.address()));
        let mut before: u64 = self.segment.get_value(last.rank, 0)?;
        loop {
            self.segment.put_value(last.rank, last.offset, before)?;
            let change = Change::CompareSwap { expected: before, desired: first.bits() };
            let was = self.segment.update(last.rank, 0, change)?;
            if was == before {
                return Ok(());
            }
            before = was;
        }
    }
}
