//! Work at the home of objects: one message brings another node an object's bytes, and one tells of many that are free.
//!
//! It knows no types and no allocator, only where the words are that both sides agree on: which slot was served, and the list of
//! what others have freed, through the slots themselves ([`crate::slab`], `heap/`).

use super::bytes::Bytes;
use crate::slab::SERVED;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, VecDeque};
use vgas::service::{Call, Failure, Home, Service};
use vgas::{Change, Rank};

/// Most words that are noted in one freed slot, and most slots that are freed by one message.
const NOTE_WORDS_MAX: usize = 4096;

/// What the home of objects is asked.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// The bytes of an object of this rank. With `served`, where the word of its slot is: that was given to others, its next writer must see.
    Read { owner: u32, offset: u64, bytes: u32, served: Option<u64> },
    /// Objects of this rank are free, those that come later in the list being linked to by those before. Answered when all
    /// that were freed by earlier messages are in its list, too.
    Free { owner: u32, all: Vec<Freed> },
}

/// An object that is free.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Freed {
    /// Its [`crate::Word`].
    pub word: u64,
    /// Where its slot is.
    pub offset: u64,
    /// What is written there: the word of the next one, and what this one held.
    pub note: Vec<u64>,
}

/// What it answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Answer {
    Bytes(Bytes),
    Freed,
    /// Not here, or it could not be done.
    Failed,
}

/// The service of a node's homes.
#[derive(Debug, Default)]
pub(crate) struct HeapService {
    next: u64,
    reads: HashMap<u64, Reading>,
    /// Lists that are being freed, the first of them now.
    free: VecDeque<Freeing>,
}

/// A read under way. Its slot is marked, and its bytes are read, in either order: the answer comes after both, and the object is not
/// written before whoever has asked has the answer.
#[derive(Debug)]
struct Reading {
    call: Call,
    /// Of the two.
    left: u32,
    /// Nothing as long as it is not there, or cannot be had.
    found: Option<Vec<u8>>,
    is_failed: bool,
}

/// What the ticket of a mark has beside that of its read.
const MARK: u64 = 1;

/// Objects that are being hung into the list of a rank.
#[derive(Debug)]
struct Freeing {
    /// The ticket of all that is done for it.
    ticket: u64,
    call: Call,
    owner: Rank,
    all: Vec<Freed>,
    step: Step,
}

/// What is done for the first of those that are being freed.
#[derive(Debug)]
enum Step {
    /// So many slots are not noted yet.
    Notes(usize),
    /// The list's beginning is being read.
    Head,
    /// The last one gets this to follow it.
    Link(u64),
    /// The list begins with the first one, if it still began with this.
    Swap(u64),
}

impl Service for HeapService {
    type Request = Request;
    type Answer = Answer;
    const NAME: &'static str = "objects.heap";

    fn called(&mut self, call: Call, request: Request, home: &mut Home<'_, Self>) {
        self.next += 2;
        match request {
            Request::Read { owner, offset, bytes, served } if is_here(owner, home) => {
                let owner = Rank(owner);
                if let Some(word) = served {
                    home.update(owner, word, Change::Or(SERVED), self.next | MARK);
                }
                home.read(owner, offset, bytes, self.next);
                let left = 1 + u32::from(served.is_some());
                self.reads.insert(self.next, Reading { call, left, found: None, is_failed: false });
            }
            Request::Free { owner, all } if is_here(owner, home) && is_sound(&all) => {
                let step = Step::Notes(all.len());
                self.free.push_back(Freeing { ticket: self.next, call, owner: Rank(owner), all, step });
                if self.free.len() == 1 {
                    self.begin(home);
                }
            }
            _ => home.answer(call, &Answer::Failed),
        }
    }

    fn done(&mut self, ticket: u64, result: Result<Vec<u8>, Failure>, home: &mut Home<'_, Self>) {
        let read = ticket & !MARK;
        if let Some(reading) = self.reads.get_mut(&read) {
            reading.left -= 1;
            match result {
                Ok(found) if ticket == read => reading.found = Some(found),
                Ok(_) => {}
                Err(_) => reading.is_failed = true,
            }
            if reading.left == 0
                && let Some(Reading { call, found, is_failed, .. }) = self.reads.remove(&read)
            {
                let found = found.filter(|_| !is_failed);
                home.answer(call, &found.map_or(Answer::Failed, |found| Answer::Bytes(Bytes(found))));
            }
        } else if self.free.front().is_some_and(|first| first.ticket == ticket) {
            self.go_on(result, home);
        }
    }
}

/// Whether a rank is of this node.
fn is_here(owner: u32, home: &Home<'_, HeapService>) -> bool {
    let layout = home.layout();
    owner < layout.ranks() && layout.node_of(Rank(owner)) == home.node()
}

/// Whether what was freed can be a list.
fn is_sound(all: &[Freed]) -> bool {
    all.len() <= NOTE_WORDS_MAX && all.iter().all(|freed| (1..=NOTE_WORDS_MAX).contains(&freed.note.len()))
}

fn bytes_of(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

impl HeapService {
    /// Begins with the first list that is to be freed, and answers those that need nothing done.
    fn begin(&mut self, home: &mut Home<'_, Self>) {
        while let Some(first) = self.free.front() {
            for freed in &first.all {
                home.write(first.owner, freed.offset, bytes_of(&freed.note), first.ticket);
            }
            if !first.all.is_empty() {
                return;
            }
            self.end(&Answer::Freed, home);
        }
    }

    /// A step of the first list is done.
    fn go_on(&mut self, result: Result<Vec<u8>, Failure>, home: &mut Home<'_, Self>) {
        let Some(Freeing { ticket, owner, all, step, .. }) = self.free.front_mut() else { return };
        let (Some(first), Some(last), Ok(found)) = (all.first(), all.last(), result) else {
            // Its slots are lost with what could not be written.
            self.end(&Answer::Failed, home);
            return self.begin(home);
        };
        let was = found.first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let mut link = |before: u64| {
            home.write(*owner, last.offset, bytes_of(&[before]), *ticket);
            Step::Link(before)
        };
        *step = match *step {
            Step::Notes(1) => {
                home.read(*owner, 0, 8, *ticket);
                Step::Head
            }
            Step::Notes(left) => Step::Notes(left - 1),
            Step::Head => link(was),
            Step::Link(expected) => {
                let change = Change::CompareSwap { expected, desired: first.word };
                home.update(*owner, 0, change, *ticket);
                Step::Swap(expected)
            }
            Step::Swap(before) if before != was => link(was),
            Step::Swap(_) => {
                self.end(&Answer::Freed, home);
                return self.begin(home);
            }
        };
    }

    fn end(&mut self, answer: &Answer, home: &mut Home<'_, Self>) {
        if let Some(Freeing { call, .. }) = self.free.pop_front() {
            home.answer(call, answer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vgas::service::Trial;
    use vgas::{Layout, NodeId};

    fn trial() -> Trial<HeapService> {
        Trial::new(HeapService::default(), Layout::blocks(4, 2), NodeId(1), 4096)
    }

    fn word(trial: &mut Trial<HeapService>, offset: usize) -> u64 {
        u64::from_le_bytes(*trial.memory(Rank(2))[offset..].first_chunk().unwrap())
    }

    fn freed(offset: u64, next: u64) -> Freed {
        Freed { word: 0x1000 + offset, offset, note: vec![next, 5, 0] }
    }

    /// Goal: who reads gets the bytes when the slot is marked, too, in whatever order; what is not here is refused, whatever the numbers are.
    #[test]
    fn reads_mark_what_they_give() {
        for first in [0, 1] {
            let mut trial = trial();
            trial.memory(Rank(2))[64..68].copy_from_slice(b"here");
            let read = Request::Read { owner: 2, offset: 64, bytes: 4, served: Some(128) };
            let call = trial.call(Rank(0), &read);
            assert_eq!(trial.pending(), 2, "it waits for one before the other");
            trial.carry_out(first);
            assert_eq!(trial.answer(call), None);
            trial.finish();
            assert_eq!(trial.answer(call), Some(Ok(Answer::Bytes(Bytes(b"here".to_vec())))));
            assert_eq!(word(&mut trial, 128), SERVED.into());
        }
        let mut trial = trial();
        for (owner, offset, bytes, served) in [
            (0, 0, 8, None),
            (9, 0, 8, None),
            (u32::MAX, 0, 8, Some(0)),
            (2, u64::MAX, 8, None),
            (3, 4090, u32::MAX, None),
            (2, 0, 8, Some(u64::MAX)),
        ] {
            let call = trial.call(Rank(0), &Request::Read { owner, offset, bytes, served });
            trial.finish();
            assert_eq!(trial.answer(call), Some(Ok(Answer::Failed)), "{owner} {offset} {bytes} {served:?}");
        }
    }

    /// Goal: what is freed is a list, before what was there, in whatever order its notes are written, and while its owner takes it away.
    #[test]
    fn what_is_freed_becomes_a_list() {
        let mut trial = trial();
        let list = |from: u64| vec![freed(from, 0x1000 + from + 64), freed(from + 64, 0)];
        let first = trial.call(Rank(0), &Request::Free { owner: 2, all: list(64) });
        let second = trial.call(Rank(1), &Request::Free { owner: 2, all: list(256) });
        trial.tell(Rank(1), &Request::Free { owner: 2, all: vec![freed(512, 0)] });
        assert_eq!(trial.pending(), 2, "one list at a time");
        trial.carry_out(1);
        trial.carry_out(0);
        trial.finish();
        assert_eq!(
            (trial.answer(first), trial.answer(second)),
            (Some(Ok(Answer::Freed)), Some(Ok(Answer::Freed)))
        );
        let mut found = vec![word(&mut trial, 0)];
        while let Some(&last @ 1..) = found.last() {
            found.push(word(&mut trial, last as usize - 0x1000));
        }
        assert_eq!(
            found,
            [512, 256, 320, 64, 128].map(|at| 0x1000 + at).into_iter().chain([0]).collect::<Vec<_>>()
        );
        assert_eq!(word(&mut trial, 64 + 8), 5, "what it held");
        // The owner takes the list away when the next one is about to be hung before it.
        let third = trial.call(Rank(0), &Request::Free { owner: 2, all: vec![freed(64, 0)] });
        for _ in 0..3 {
            trial.carry_out(0);
        }
        trial.memory(Rank(2))[..8].fill(0);
        trial.finish();
        assert_eq!(trial.answer(third), Some(Ok(Answer::Freed)));
        assert_eq!((word(&mut trial, 0), word(&mut trial, 64)), (0x1040, 0));
    }

    /// Goal: what cannot be freed is answered, and is in nobody's way.
    #[test]
    fn what_cannot_be_freed_is_refused() {
        let mut trial = trial();
        let nowhere = Freed { offset: 1 << 40, ..freed(64, 0) };
        let lists = [
            (2, vec![freed(64, 0x1080), nowhere, freed(128, 0)], Answer::Failed),
            (0, vec![freed(64, 0)], Answer::Failed),
            (2, vec![Freed { note: Vec::new(), ..freed(64, 0) }], Answer::Failed),
            (2, Vec::new(), Answer::Freed),
            (3, vec![freed(64, 0)], Answer::Freed),
        ];
        let calls: Vec<_> = lists
            .into_iter()
            .map(|(owner, all, answer)| (trial.call(Rank(1), &Request::Free { owner, all }), answer))
            .collect();
        trial.finish();
        for (call, answer) in calls {
            assert_eq!(trial.answer(call), Some(Ok(answer)), "{call}");
        }
    }
}
