//! A rank's state of a team, by its number: a member may send before this rank has made the team.

use super::barrier::Barrier;
use super::post::Key;
use super::sequence;
use crate::Rank;
use crate::endpoint::lock;
use crate::error::{Result, RmaError};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};

pub(super) struct Standing {
    number: u64,
    /// Known when this rank has made the team.
    members: OnceLock<Arc<[Rank]>>,
    /// Operations begun so far, by sequence and caller.
    counts: Mutex<[HashMap<u32, u32>; sequence::COUNT]>,
    pub(super) barrier: Barrier,
    /// Why the team is of no use any more.
    spoilt: OnceLock<RmaError>,
}

impl Standing {
    pub(super) fn new(number: u64) -> Self {
        Self {
            number,
            members: OnceLock::new(),
            counts: Mutex::default(),
            barrier: Barrier::default(),
            spoilt: OnceLock::new(),
        }
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn members(&self) -> Option<&Arc<[Rank]>> {
        self.members.get()
    }

    /// Sets the members of the team; returns the team's list. None: it is another one.
    pub(super) fn set_members(&self, members: Vec<Rank>) -> Option<Arc<[Rank]>> {
        let known = self.members.get_or_init(|| members.as_slice().into());
        (**known == *members).then(|| known.clone())
    }

    /// The name of the next operation of a sequence.
    pub(super) fn next_key(&self, sequence: u32, caller: u32) -> Key {
        let mut counts = lock(&self.counts);
        let count = counts[sequence as usize].entry(caller).or_default();
        let number = *count;
        *count = count.wrapping_add(1);
        Key { team: self.number, sequence, number }
    }

    /// Returns true if a caller of this rank has begun the operation, now or earlier.
    pub(super) fn has_begun(&self, key: Key) -> bool {
        let is_behind = |count: &u32| count.wrapping_sub(key.number).cast_signed() > 0;
        lock(&self.counts)[key.sequence as usize].values().any(is_behind)
    }

    /// Why the team is of no use any more, if it is not.
    pub(super) fn spoilt(&self) -> Option<&RmaError> {
        self.spoilt.get()
    }

    /// An error if the team is of no use any more.
    pub(super) fn check(&self) -> Result<()> {
        self.spoilt.get().map_or(Ok(()), |error| Err(error.duplicate()))
    }

    /// Notes why the team is of no use any more; false: that is known, of this or another reason.
    pub(super) fn spoil(&self, why: RmaError) -> bool {
        self.spoilt.set(why).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: begun operations are told from coming ones, even when the numbers wrap around.
    #[test]
    fn begun_is_what_was_counted() {
        let standing = Standing::new(1);
        let key = |number| Key { team: 1, sequence: sequence::RANKS, number };
        assert!(!standing.has_begun(key(0)));
        assert_eq!(standing.next_key(sequence::RANKS, 0), key(0));
        assert!(standing.has_begun(key(0)) && !standing.has_begun(key(1)));
        lock(&standing.counts)[sequence::RANKS as usize].insert(0, u32::MAX);
        assert_eq!(standing.next_key(sequence::RANKS, 0), key(u32::MAX));
        assert!(standing.has_begun(key(u32::MAX)) && !standing.has_begun(key(0)));
    }
}
