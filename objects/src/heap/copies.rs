//! Copies of other ranks' objects that this rank uses: under their words, counted, and evicted when unused.
//!
//! A copy is found as long as it is there, whether used or not: its word is only ever borrowed while it means
//! these bytes ([`crate::colour`]). A thread that arrives while a copy is being fetched waits for it.
//!
//! Most copies lie in this rank's own partition; if that is full, in memory beside it ([`super::overflow`]).
//! A large one may lie in that of another rank of the node, which keeps it ([`super::shared`]): then this
//! rank is one of its users as long as it counts uses itself, and forgets it with the last.

use super::error::ObjectError;
use super::shared::Shared;
use crate::shape::Links;
use crate::slab::Class;
use crate::word::Word;
#[cfg(feature = "loom")]
use loom::sync::{Condvar, Mutex, MutexGuard};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::sync::PoisonError;
#[cfg(not(feature = "loom"))]
use std::sync::{Condvar, Mutex, MutexGuard};

/// A copy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copy {
    pub address: u64,
    pub class: Class,
    /// Bytes of its values.
    pub bytes: usize,
    /// None if its type has none.
    pub links: Option<Links>,
    /// The name of its type.
    pub name: fn() -> &'static str,
    /// The entry of the node's table through which this rank uses it, if another rank keeps it.
    pub entry: Option<usize>,
    /// It lies outside of the partition ([`super::overflow`]).
    pub is_overflow: bool,
}

impl Copy {
    /// Returns true if it lies in this rank's partition.
    fn is_kept(&self) -> bool {
        self.entry.is_none() && !self.is_overflow
    }
}

#[derive(Debug)]
struct Entry {
    /// None while it is fetched.
    copy: Option<Copy>,
    /// 64 bits: borrows that were forgotten count for ever, and must not come round to none.
    uses: u64,
    /// True if its word is in the idle list, and whether it was used since it was added.
    is_idle: bool,
    was_used: bool,
}

/// Number by which the words of evicted copies in the idle list may exceed the copies.
const IDLE_SPARE: usize = 1024;

#[derive(Debug, Default)]
struct Table {
    entries: FxHashMap<Word, Entry>,
    /// Words of copies that were unused when added, oldest first; some have been used since, and some copies
    /// are gone.
    idle: VecDeque<Word>,
    /// Number of copies in this rank's partition, and their bytes.
    kept: usize,
    kept_bytes: u64,
}

#[derive(Debug)]
pub(super) struct Copies {
    table: Mutex<Table>,
    filled: Condvar,
    /// The node's table, if this rank shares.
    shared: Option<Shared<'static>>,
}

/// State of a word for a caller that must not wait ([`Copies::claim`]).
#[derive(Debug)]
pub(super) enum Claim<'c> {
    /// Its copy is at this address; one more use of it.
    Held(u64),
    /// The caller fetches it.
    Mine(Filling<'c>),
    /// Another thread fetches it.
    Others,
}

/// An entry whose copy is being fetched. Withdraws the claim if that ends by a panic or an error, so that no
/// thread waits for it.
#[derive(Debug)]
pub(super) struct Filling<'c> {
    copies: &'c Copies,
    word: Word,
}

impl Filling<'_> {
    /// The copy has come: its address, with one use.
    pub fn fill(self, copy: Copy) -> u64 {
        let mut table = self.copies.table();
        let entry = Entry { copy: Some(copy), uses: 1, is_idle: false, was_used: false };
        table.entries.insert(self.word, entry);
        if copy.is_kept() {
            table.kept += 1;
            table.kept_bytes += copy.class.bytes();
        }
        drop(table);
        copy.address
    }
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
    /// Copies of a rank that shares them through its node's table.
    pub fn sharing(shared: Option<Shared<'static>>) -> Self {
        Self { shared, table: Mutex::new(Table::default()), filled: Condvar::new() }
    }

    /// The node's table.
    pub fn shared(&self) -> Option<&Shared<'static>> {
        self.shared.as_ref()
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // Changed in steps that cannot panic.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds a copy, or has the first caller fetch it, and counts one more use of it.
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
        let filling = self.begin(&mut table, word);
        drop(table);
        Ok(filling.fill(fetch()?))
    }

    fn begin(&self, table: &mut Table, word: Word) -> Filling<'_> {
        table.entries.insert(word, Entry { copy: None, uses: 0, is_idle: false, was_used: false });
        Filling { copies: self, word }
    }

    /// As [`Copies::hold`], without waiting: a caller that fetches several must not wait for another's fetch,
    /// which may wait for one of these.
    pub fn claim(&self, word: Word) -> Claim<'_> {
        let mut table = self.table();
        match table.entries.get_mut(&word) {
            None => Claim::Mine(self.begin(&mut table, word)),
            Some(Entry { copy: Some(copy), uses, was_used, .. }) => {
                (*uses, *was_used) = (*uses + 1, true);
                Claim::Held(copy.address)
            }
            Some(_) => Claim::Others,
        }
    }

    /// Returns true if a copy is here, so that [`Copies::hold`] would hardly wait.
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
        let Table { entries, idle, .. } = &mut *self.table();
        let Some(entry) = entries.get_mut(&word) else { return };
        entry.uses = entry.uses.saturating_sub(1);
        if entry.uses > 0 {
            return;
        }
        match (entry.copy.and_then(|copy| copy.entry), self.shared()) {
            (Some(at), Some(shared)) => {
                // While the table is locked: the next reader must not find this rank among the users.
                shared.release(at);
                entries.remove(&word);
            }
            _ if !entry.is_idle => {
                (entry.is_idle, entry.was_used) = (true, false);
                idle.push_back(word);
            }
            _ => {}
        }
    }

    /// Returns true if a copy of this rank's can go: no rank of the node uses it, and none will.
    fn withdraw(&self, word: Word, copy: Option<Copy>) -> bool {
        match (copy, self.shared()) {
            (Some(copy), Some(shared)) if copy.entry.is_none() => shared.withdraw(word, copy.address),
            (copy, _) => copy.is_some_and(|copy| copy.entry.is_none()),
        }
    }

    /// Removes a copy that has not been used for long, if any is not in use: one that was used since it was idle first has a second
    /// chance, and so has one that another rank of the node uses. Its memory is the caller's then, and the uses that its
    /// links stand for.
    pub fn evict(&self) -> Option<Copy> {
        let mut table = self.table();
        // Twice around: what others use stays for ever.
        for _ in 0..2 * table.idle.len() {
            let word = table.idle.pop_front()?;
            let Some(entry) = table.entries.get_mut(&word).filter(|entry| entry.is_idle) else { continue };
            if entry.uses > 0 {
                entry.is_idle = false;
                continue;
            }
            let copy = entry.copy;
            if !std::mem::take(&mut entry.was_used) && self.withdraw(word, copy) {
                table.forget(word);
                return copy;
            }
            table.idle.push_back(word);
        }
        None
    }

    /// Removes the unused copy of a dropped object: it will not be used again. Its memory, and the uses that
    /// its links stand for, are the caller's then, as of [`Copies::evict`].
    pub fn take_of_dropped(&self, word: Word) -> Option<Copy> {
        let mut table = self.table();
        let unused = table.entries.get(&word).filter(|entry| entry.uses == 0)?.copy;
        if !self.withdraw(word, unused) {
            return None;
        }
        table.forget(word);
        // Its word is among the idle ones still: not for ever, where nothing is evicted.
        let Table { entries, idle, .. } = &mut *table;
        if idle.len() > IDLE_SPARE + 2 * entries.len() {
            idle.retain(|word| entries.get(word).is_some_and(|entry| entry.is_idle));
        }
        unused
    }

    /// Removes unused copies of these addresses, and returns which addresses have no copy left.
    pub fn drop_from(&self, addresses: &[u64]) -> (Vec<Copy>, Vec<bool>) {
        let mut table = self.table();
        let mut gone = Vec::new();
        let mut is_free = vec![true; addresses.len()];
        let places: FxHashMap<u64, usize> =
            (0..).zip(addresses).map(|(at, address)| (*address, at)).collect();
        let place_of = |word: &Word| places.get(&word.address()).copied();
        let asked: Vec<(Word, usize)> =
            table.entries.keys().filter_map(|word| Some((*word, place_of(word)?))).collect();
        for (word, at) in asked {
            let unused =
                table.entries.get(&word).filter(|entry| entry.uses == 0).and_then(|entry| entry.copy);
            match unused.filter(|copy| self.withdraw(word, Some(*copy))) {
                Some(copy) => {
                    table.forget(word);
                    gone.push(copy);
                }
                None => is_free[at] = false,
            }
        }
        (gone, is_free)
    }

    /// Returns the number of copies in this rank's partition, and their bytes.
    pub fn kept(&self) -> (usize, u64) {
        let table = self.table();
        (table.kept, table.kept_bytes)
    }

    /// Shows all that are here: their words, themselves, and how often each is used.
    pub fn each(&self, mut show: impl FnMut(Word, &Copy, u64)) {
        for (word, entry) in &self.table().entries {
            entry.copy.iter().for_each(|copy| show(*word, copy, entry.uses));
        }
    }
}

impl Table {
    /// Removes a copy of this rank's.
    fn forget(&mut self, word: Word) {
        let copy = self.entries.remove(&word).and_then(|entry| entry.copy);
        if let Some(copy) = copy.filter(Copy::is_kept) {
            self.kept -= 1;
            self.kept_bytes -= copy.class.bytes();
        }
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;
    use crate::word::Colour;
    use std::sync::atomic::{AtomicU32, Ordering};

    fn word(address: u64) -> Word {
        Word::new(address, Colour(0)).unwrap()
    }

    fn copy(address: u64) -> Copy {
        Copy {
            address,
            class: Class::Small(0),
            bytes: 16,
            links: None,
            name: || "",
            entry: None,
            is_overflow: false,
        }
    }

    /// Goal: many threads that want a copy get one, which is fetched once, and is evicted when the last has gone.
    #[test]
    fn a_copy_is_fetched_once() {
        let (copies, fetches) = (Copies::sharing(None), AtomicU32::new(0));
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
            assert_eq!(copies.kept().0, 1, "{left}");
        }
        assert_eq!(copies.evict().unwrap().address, 7);
        assert_eq!(copies.kept().0, 0);
    }

    /// Goal: copies of a dropped object go with it once they are unused, and leave nothing behind, however
    /// often.
    #[test]
    fn copies_go_with_what_they_are_of() {
        let copies = Copies::sharing(None);
        let rounds = if cfg!(miri) { 64 } else { 5 * IDLE_SPARE as u64 };
        for round in 1..=rounds {
            let word = word(16 * round);
            copies.hold(word, || Ok(copy(round))).unwrap();
            assert!(copies.take_of_dropped(word).is_none(), "it is in use");
            copies.release(word);
            assert_eq!(copies.take_of_dropped(word).map(|copy| copy.address), Some(round));
            assert!(copies.take_of_dropped(word).is_none() && !copies.has(word));
        }
        assert_eq!(copies.kept(), (0, 0));
        assert!(copies.table().idle.len() <= IDLE_SPARE + 1);
        assert!(copies.evict().is_none());
    }

    #[test]
    fn who_fails_to_fetch_is_in_nobodys_way() {
        let copies = Copies::sharing(None);
        assert!(copies.hold(word(16), || Err(ObjectError::NoHeap)).is_err());
        assert_eq!(copies.hold(word(16), || Ok(copy(9))).unwrap(), 9);
        assert_eq!(copies.drop_from(&[16, 32]).1, [false, true]);
        copies.release(word(16));
        assert_eq!((copies.drop_from(&[16, 32]).1, copies.kept().0), (vec![true, true], 0));
    }
}
