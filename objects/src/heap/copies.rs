//! Copies of other ranks' objects that this rank has: under their words, counted, and evicted when nobody uses them.
//!
//! A copy is found as long as it is there, whether used or not: its word is only ever borrowed while it means these bytes
//! ([`crate::colour`]). Who comes while it is being fetched waits for it.

use super::error::ObjectError;
use super::shape::Links;
use crate::slab::Class;
use crate::word::Word;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// A copy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copy {
    pub address: u64,
    pub class: Class,
    /// Bytes of its values.
    pub bytes: usize,
    /// None where its type has none.
    pub links: Option<Links>,
}

#[derive(Debug)]
struct Entry {
    /// None while it is fetched.
    copy: Option<Copy>,
    /// 64 bits: borrows that were forgotten count for ever, and must not come round to none.
    uses: u64,
    /// Whether its word is among those that are idle, and whether it was used since it came there.
    is_idle: bool,
    was_used: bool,
}

#[derive(Debug, Default)]
struct Table {
    entries: FxHashMap<Word, Entry>,
    /// Words of copies that nobody used when they were put here, each once, oldest first; some have been used since.
    idle: VecDeque<Word>,
}

#[derive(Debug, Default)]
pub(super) struct Copies {
    table: Mutex<Table>,
    filled: Condvar,
}

/// Takes the entry back if fetching ends by a panic or an error, so that nobody waits for it.
struct Filling<'c> {
    copies: &'c Copies,
    word: Word,
}

impl Drop for Filling<'_> {
    fn drop(&mut self) {
        let mut table = self.copies.table();
        if table.entries.get(&self.word).is_some_and(|entry| entry.copy.is_none()) {
            table.entries.remove(&self.word);
        }
        drop(table);
        self.copies.filled.notify_all();
    }
}

impl Copies {
    fn table(&self) -> MutexGuard<'_, Table> {
        // Changed in steps that cannot panic.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds a copy, or has it fetched by whoever comes first, and counts one more use of it.
    pub fn hold(
        &self,
        word: Word,
        fetch: impl FnOnce() -> Result<Copy, ObjectError>,
    ) -> Result<u64, ObjectError> {
        let mut table = self.table();
        loop {
            match table.entries.get_mut(&word) {
                None => break,
                Some(Entry { copy: Some(copy), uses, was_used, .. }) => {
                    (*uses, *was_used) = (*uses + 1, true);
                    return Ok(copy.address);
                }
                Some(_) => table = self.filled.wait(table).unwrap_or_else(PoisonError::into_inner),
            }
        }
        table.entries.insert(word, Entry { copy: None, uses: 0, is_idle: false, was_used: false });
        drop(table);
        let filling = Filling { copies: self, word };
        let copy = fetch()?;
        self.table()
            .entries
            .insert(word, Entry { copy: Some(copy), uses: 1, is_idle: false, was_used: false });
        drop(filling);
        Ok(copy.address)
    }

    /// Whether a copy is here, so that [`Copies::hold`] would hardly wait.
    pub fn has(&self, word: Word) -> bool {
        self.table().entries.get(&word).is_some_and(|entry| entry.copy.is_some())
    }

    /// Counts one more use of a copy that is in use.
    pub fn hold_again(&self, word: Word) {
        if let Some(entry) = self.table().entries.get_mut(&word) {
            entry.uses += 1;
        }
    }

    /// One use has ended.
    pub fn release(&self, word: Word) {
        let Table { entries, idle } = &mut *self.table();
        if let Some(entry) = entries.get_mut(&word) {
            entry.uses = entry.uses.saturating_sub(1);
            if entry.uses == 0 && !entry.is_idle {
                (entry.is_idle, entry.was_used) = (true, false);
                idle.push_back(word);
            }
        }
    }

    /// Removes a copy that has not been used for long, if any is not in use: one that was used since it was idle first has a second
    /// chance. Its memory is the caller's then, and the uses that its
    /// links stand for.
    pub fn evict(&self) -> Option<Copy> {
        let Table { entries, idle } = &mut *self.table();
        while let Some(word) = idle.pop_front() {
            let Some(entry) = entries.get_mut(&word).filter(|entry| entry.is_idle) else { continue };
            if entry.uses > 0 {
                entry.is_idle = false;
            } else if std::mem::take(&mut entry.was_used) {
                idle.push_back(word);
            } else {
                return entries.remove(&word)?.copy;
            }
        }
        None
    }

    /// Removes what nobody uses of copies from these addresses, and says from which of them none is left.
    pub fn drop_from(&self, addresses: &[u64]) -> (Vec<Copy>, Vec<bool>) {
        let mut table = self.table();
        let mut gone = Vec::new();
        let mut is_free = vec![true; addresses.len()];
        table.entries.retain(|word, entry| {
            let Some(at) = addresses.iter().position(|address| *address == word.address()) else {
                return true;
            };
            match entry.copy.filter(|_| entry.uses == 0) {
                Some(copy) => gone.push(copy),
                None => is_free[at] = false,
            }
            entry.copy.is_none() || entry.uses > 0
        });
        (gone, is_free)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.table().entries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::word::Colour;
    use std::sync::atomic::{AtomicU32, Ordering};

    fn word(address: u64) -> Word {
        Word::new(address, Colour(0)).unwrap()
    }

    fn copy(address: u64) -> Copy {
        Copy { address, class: Class::Small(0), bytes: 16, links: None }
    }

    /// Goal: many threads that want a copy get one, which is fetched once, and is evicted when the last has gone.
    #[test]
    fn a_copy_is_fetched_once() {
        let (copies, fetches) = (Copies::default(), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let fetch = || {
                        fetches.fetch_add(1, Ordering::Relaxed);
                        Ok(copy(7))
                    };
                    assert_eq!(copies.hold(word(16), fetch).unwrap(), 7);
                });
            }
        });
        assert_eq!(fetches.load(Ordering::Relaxed), 1);
        for left in (0..8).rev() {
            assert!(copies.evict().is_none());
            copies.release(word(16));
            assert_eq!(copies.count(), 1, "{left}");
        }
        assert_eq!(copies.evict().unwrap().address, 7);
        assert_eq!(copies.count(), 0);
    }

    #[test]
    fn who_fails_to_fetch_is_in_nobodys_way() {
        let copies = Copies::default();
        assert!(copies.hold(word(16), || Err(ObjectError::NoHeap)).is_err());
        assert_eq!(copies.hold(word(16), || Ok(copy(9))).unwrap(), 9);
        assert_eq!(copies.drop_from(&[16, 32]).1, [false, true]);
        copies.release(word(16));
        assert_eq!((copies.drop_from(&[16, 32]).1, copies.count()), (vec![true, true], 0));
    }
}
