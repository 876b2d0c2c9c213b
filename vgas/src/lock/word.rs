//! A lock as its word in memory shows it.
//!
//! | bits | mean |
//! |---|---|
//! | 0 to 31 | who has it to write, or has left it poisoned; 0: nobody |
//! | 32 to 55 | how many have it to read |
//! | 62 | the service at its home has it: nothing else in the word means anything |
//! | 63 | poisoned |
//!
//! All zeros is a free lock, so that fresh memory is full of them.

#![forbid(unsafe_code)]

use serde::{Deserialize, Serialize};
use vgas_rma::Rank;

const READER: u64 = 1 << 32;
const READERS: u64 = 0xff_ffff << 32;
pub(super) const SERVED: u64 = 1 << 62;
pub(super) const POISONED: u64 = 1 << 63;

/// Threads of a rank that are told apart; the others of a rank are one.
const THREADS: u32 = 1 << 10;

/// A thread of a rank. At most 2²² ranks exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LockOwner(u32);

impl LockOwner {
    /// Identity of a rank's thread with this number; 0 for one that is not told apart.
    pub(super) fn new(rank: Rank, thread: u32) -> Self {
        let thread = if thread < THREADS { thread } else { 0 };
        Self(rank.0.wrapping_mul(THREADS).wrapping_add(thread).wrapping_add(1))
    }

    /// The rank.
    pub fn rank(self) -> Rank {
        Rank(self.0.wrapping_sub(1) / THREADS)
    }

    /// The number of its thread, from 1 on, if it is told apart.
    pub fn thread(self) -> Option<u32> {
        Some(self.0.wrapping_sub(1) % THREADS).filter(|thread| *thread > 0)
    }

    /// Returns true if two are the same thread for certain.
    pub(super) fn is_surely(self, other: LockOwner) -> bool {
        self == other && self.thread().is_some()
    }
}

impl std::fmt::Display for LockOwner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.thread() {
            Some(thread) => write!(f, "{} (thread {thread})", self.rank()),
            None => write!(f, "{}", self.rank()),
        }
    }
}

/// State that a word encodes, unless the service has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LockState {
    pub writer: Option<LockOwner>,
    pub readers: u32,
    /// The writer whose hold ended by a panic.
    pub poisoned: Option<LockOwner>,
}

impl LockState {
    pub fn from_word(word: u64) -> Self {
        let who = Some(LockOwner(word as u32)).filter(|who| who.0 != 0);
        let readers = ((word & READERS) >> 32) as u32;
        if word & POISONED == 0 {
            Self { writer: who, readers, poisoned: None }
        } else {
            Self { writer: None, readers: 0, poisoned: Some(who.unwrap_or(LockOwner(1))) }
        }
    }

    pub fn word(self) -> u64 {
        match self.poisoned {
            Some(who) => u64::from(who.0) | POISONED,
            None => {
                self.writer.map_or(0, |who| u64::from(who.0)) | ((u64::from(self.readers) * READER) & READERS)
            }
        }
    }

    /// Returns the state after it is taken, if it can be.
    pub fn taken(self, who: LockOwner, write: bool) -> Option<Self> {
        match (self.writer, self.poisoned, write) {
            (None, None, true) if self.readers == 0 => Some(Self { writer: Some(who), ..self }),
            (None, None, false) if self.readers < (READERS >> 32) as u32 => {
                Some(Self { readers: self.readers + 1, ..self })
            }
            _ => None,
        }
    }

    /// Returns the state after it is given back, if `who` had it.
    pub fn given_back(self, who: LockOwner, write: bool, poison: bool) -> Option<Self> {
        match (write, self.readers) {
            (true, _) if self.writer == Some(who) => {
                Some(Self { writer: None, poisoned: poison.then_some(who), ..self })
            }
            (false, 1..) => Some(Self { readers: self.readers - 1, ..self }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_say_what_they_were_made_of() {
        let who = LockOwner::new(Rank(7), 3);
        assert_eq!(
            (who.rank(), who.thread(), who.to_string()),
            (Rank(7), Some(3), "rank 7 (thread 3)".into())
        );
        assert_eq!(LockOwner::new(Rank(7), THREADS).thread(), None);
        for held in [
            LockState::default(),
            LockState { writer: Some(who), ..LockState::default() },
            LockState { readers: 5, ..LockState::default() },
            LockState { poisoned: Some(who), ..LockState::default() },
        ] {
            assert_eq!(LockState::from_word(held.word()), held);
            assert_eq!(held.word() & SERVED, 0);
        }
        assert_eq!(LockState::default().word(), 0);
    }

    #[test]
    fn many_read_or_one_writes() {
        let (a, b) = (LockOwner::new(Rank(0), 1), LockOwner::new(Rank(1), 1));
        let written = LockState::default().taken(a, true).unwrap();
        assert_eq!((written.taken(b, true), written.taken(b, false)), (None, None));
        assert_eq!((written.given_back(b, true, false), written.given_back(a, false, false)), (None, None));
        assert_eq!(written.given_back(a, true, false), Some(LockState::default()));
        let read = LockState::default().taken(a, false).unwrap().taken(b, false).unwrap();
        assert_eq!((read.readers, read.taken(a, true)), (2, None));
        let poisoned = written.given_back(a, true, true).unwrap();
        assert_eq!((poisoned.poisoned, poisoned.taken(b, false)), (Some(a), None));
    }
}
