//! The copies that ranks of a node share: which words have one, and where.
//!
//! A table in memory that the ranks of the node share, a bucket of a few entries for each hash of a word. The
//! first rank of a node that wants another node's object claims an entry, fetches the object into its own
//! partition, and publishes its place: it is the copy's *keeper*, and the only one that evicts it. A rank
//! that comes meanwhile sleeps on the entry; one that comes later takes the copy, which costs no message: `k`
//! ranks fetch once.
//!
//! ```text
//!  no word ──claim──▶ word, filling ──show──▶ word, ready, users ──withdraw (no users)──▶ no word
//!                          └── given up ──▶ no word
//! ```
//!
//! A rank that reads a copy in its keeper's partition has its bit among the entry's users while it does: an
//! entry with users is neither withdrawn nor displaced. That is a bit a rank, not a count, because a rank
//! counts its own uses ([`super::copies`]); the bits of a dead rank can be seen, and the job ends with it
//! anyway.
//!
//! The table may forget entries: a full bucket gives up an unused entry, whose copy then belongs to its
//! keeper alone, and the next reader fetches another. An entry found under a word is right by the word
//! ([`crate::colour`]).

use crate::word::Word;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

#[cfg(feature = "loom")]
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(not(feature = "loom"))]
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Ranks of a node that can share; others have copies of their own.
pub(super) const RANKS_MAX: u32 = 30;
/// Entries in which a word may be.
#[cfg(not(feature = "loom"))]
const WAYS: usize = 8;
#[cfg(feature = "loom")]
const WAYS: usize = 1;

/// The copy is where the entry says.
const READY: u32 = 1;
/// A thread sleeps until it is there, or until no rank fetches it any more.
const AWAITED: u32 = 2;
/// The first rank's bit.
const USER: u32 = 4;

/// Longest sleep between two looks at if the job still continues.
const NAP: Duration = Duration::from_millis(100);

/// Place of a word's copy. Zeros at first.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Entry {
    /// 0: none.
    word: AtomicU64,
    /// Its address, once it is ready.
    copy: AtomicU64,
    state: AtomicU32,
    /// In the first entry of a bucket: set while a rank claims an entry of it ([`Shared::claim`]).
    claims: AtomicU32,
}

/// Bytes of an entry.
pub(super) const ENTRY_BYTES: usize = 24;

#[cfg(not(feature = "loom"))]
const _: () = assert!(size_of::<Entry>() == ENTRY_BYTES);

/// A table that is private memory, for tests.
#[cfg(any(test, feature = "loom"))]
pub(super) struct Table(Vec<Entry>);

#[cfg(any(test, feature = "loom"))]
impl Table {
    /// Size of a table of `count` entries.
    pub fn of(count: usize) -> Self {
        let entry = |_| Entry {
            word: AtomicU64::new(0),
            copy: AtomicU64::new(0),
            state: AtomicU32::new(0),
            claims: AtomicU32::new(0),
        };
        Self((0..count).map(entry).collect())
    }

    pub fn entries(&self) -> &[Entry] {
        &self.0
    }
}

/// The table of a node, as one of its ranks sees it.
#[derive(Debug)]
pub(super) struct Shared<'m> {
    entries: &'m [Entry],
    /// This rank's bit.
    me: u32,
    /// Its threads change it one at a time: one that has the bit for a moment only must not take it from another.
    turn: Mutex<()>,
}

/// State of a word.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// A copy is at this address, and stays until [`Shared::release`] of this entry.
    Held(usize, u64),
    /// The caller is to fetch it, and to say [`Shared::show`] or [`Shared::give_up`] of this entry.
    Fetch(usize),
    /// The table has no room: the caller's copy is its own.
    Full,
}

impl<'m> Shared<'m> {
    /// For the rank with this number on its node; none for one too many, and without entries.
    pub fn new(entries: &'m [Entry], rank: u32) -> Option<Self> {
        let whole = entries.len() / WAYS * WAYS;
        (rank < RANKS_MAX && whole > 0).then(|| Self {
            entries: &entries[..whole],
            me: USER << rank,
            turn: Mutex::default(),
        })
    }

    fn bucket(&self, word: Word) -> std::ops::Range<usize> {
        let buckets = (self.entries.len() / WAYS) as u64;
        // Addresses are multiples of 16: the upper half of the product depends on all of their bits.
        let mixed = word.bits().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let first = ((mixed * buckets) >> 32) as usize * WAYS;
        first..first + WAYS
    }

    /// Finds the copy of a word, sleeping while a rank of the node fetches it. `go_on` is asked now and then
    /// meanwhile, if the job still continues.
    pub fn look<E>(&self, word: Word, mut go_on: impl FnMut() -> Result<(), E>) -> Result<Look, E> {
        loop {
            if let Some(look) = self.try_look(word, &mut go_on)? {
                return Ok(look);
            }
            if let Some(at) = self.find(word) {
                self.sleep(at, word);
            }
            go_on()?;
        }
    }

    /// [`Shared::look`], without waiting for the copy: none while a rank of the node fetches it.
    pub fn try_look<E>(
        &self,
        word: Word,
        mut go_on: impl FnMut() -> Result<(), E>,
    ) -> Result<Option<Look>, E> {
        loop {
            if let Some(at) = self.find(word) {
                return Ok(self.hold(at, word).map(|address| Look::Held(at, address)));
            }
            let bucket = self.bucket(word);
            self.lock(bucket.start, &mut go_on)?;
            let claimed = self.claim(bucket.clone(), word);
            self.unlock(bucket.start);
            // Else it came in between.
            if claimed.is_some() {
                return Ok(claimed);
            }
        }
    }

    /// The entry that has a word.
    fn find(&self, word: Word) -> Option<usize> {
        self.bucket(word).find(|at| self.entries[*at].word.load(Ordering::SeqCst) == word.bits())
    }

    /// Takes an entry for a word that none has; by one rank at a time, so that no two fetch the same.
    fn claim(&self, bucket: std::ops::Range<usize>, word: Word) -> Option<Look> {
        let word_of = |at: usize| self.entries[at].word.load(Ordering::SeqCst);
        if bucket.clone().any(|at| word_of(at) == word.bits()) {
            return None;
        }
        let vacant = bucket
            .clone()
            .find(|at| word_of(*at) == 0)
            .or_else(|| bucket.clone().find(|at| self.displace(*at)));
        let Some(at) = vacant else { return Some(Look::Full) };
        self.entries[at].word.store(word.bits(), Ordering::SeqCst);
        Some(Look::Fetch(at))
    }

    /// Claims are a few instructions; a rank that finds one in flight sleeps all the same, because the
    /// claiming rank may not have a core.
    fn lock<E>(&self, at: usize, go_on: &mut impl FnMut() -> Result<(), E>) -> Result<(), E> {
        let claims = &self.entries[at].claims;
        if claims.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return Ok(());
        }
        while claims.swap(2, Ordering::Acquire) != 0 {
            wait(claims, 2, NAP);
            go_on()?;
        }
        Ok(())
    }

    fn unlock(&self, at: usize) {
        let claims = &self.entries[at].claims;
        if claims.swap(0, Ordering::Release) == 2 {
            wake(claims);
        }
    }

    /// Gives an entry up, if its copy is unused.
    fn displace(&self, at: usize) -> bool {
        let state = &self.entries[at].state;
        let is_unused = state.compare_exchange(READY, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if is_unused {
            self.give_up(at);
        }
        is_unused
    }

    /// Becomes a user of a copy that is ready: returns its address.
    fn hold(&self, at: usize, word: Word) -> Option<u64> {
        let entry = &self.entries[at];
        let take = |state: u32| (state & READY != 0).then_some(state | self.me);
        let _turn = self.turn();
        let before = entry.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, take).ok()?;
        // From here on it stays what it is; it may have become another since it was looked for.
        if entry.word.load(Ordering::SeqCst) == word.bits() {
            return Some(entry.copy.load(Ordering::Acquire));
        }
        if before & self.me == 0 {
            entry.state.fetch_and(!self.me, Ordering::AcqRel);
        }
        None
    }

    fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Uses the copy no more.
    pub fn release(&self, at: usize) {
        let _turn = self.turn();
        self.entries[at].state.fetch_and(!self.me, Ordering::AcqRel);
    }

    /// The copy that the caller has fetched is at this address.
    pub fn show(&self, at: usize, address: u64) {
        let entry = &self.entries[at];
        entry.copy.store(address, Ordering::Release);
        if entry.state.swap(READY, Ordering::AcqRel) & AWAITED != 0 {
            wake(&entry.state);
        }
    }

    /// Clears an entry whose fetch was abandoned, or whose copy is gone.
    pub fn give_up(&self, at: usize) {
        let entry = &self.entries[at];
        // A waiter that sets the bit after this sees that the word is gone; one that has set it is woken.
        entry.word.store(0, Ordering::SeqCst);
        if entry.state.fetch_and(!AWAITED, Ordering::SeqCst) & AWAITED != 0 {
            wake(&entry.state);
        }
    }

    /// The keeper of a copy takes it away. False: a rank of the node uses it.
    pub fn withdraw(&self, word: Word, address: u64) -> bool {
        let is_it = |at: &usize| {
            let entry = &self.entries[*at];
            entry.word.load(Ordering::SeqCst) == word.bits() && entry.copy.load(Ordering::Acquire) == address
        };
        // If it was displaced, it is not found.
        let Some(at) = self.bucket(word).find(is_it) else { return true };
        let state = &self.entries[at].state;
        if state.compare_exchange(READY, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            self.give_up(at);
            return true;
        }
        // Displaced meanwhile; else a user.
        !is_it(&at)
    }

    /// Returns the numbers of entries with a word, and of all entries.
    #[cfg(test)]
    pub fn count(&self) -> (usize, usize) {
        let known = |entry: &&Entry| entry.word.load(Ordering::Relaxed) != 0;
        (self.entries.iter().filter(known).count(), self.entries.len())
    }

    /// Sleeps while another rank fetches it; may return early.
    fn sleep(&self, at: usize, word: Word) {
        let entry = &self.entries[at];
        let set = |state: u32| (state & READY == 0).then_some(state | AWAITED);
        let Ok(state) = entry.state.fetch_update(Ordering::SeqCst, Ordering::SeqCst, set) else { return };
        if entry.word.load(Ordering::SeqCst) == word.bits() {
            wait(&entry.state, state | AWAITED, NAP);
        }
    }
}

#[cfg(not(feature = "loom"))]
fn wait(state: &AtomicU32, expected: u32, nap: Duration) {
    use rustix::thread::futex;
    let nap = futex::Timespec { tv_sec: nap.as_secs() as _, tv_nsec: nap.subsec_nanos().into() };
    // Woken, late, disturbed, or changed already: the caller looks again.
    let _ = futex::wait(state, futex::Flags::empty(), expected, Some(&nap));
}

#[cfg(not(feature = "loom"))]
fn wake(state: &AtomicU32) {
    // Fails only for addresses that are none.
    let _ = rustix::thread::futex::wake(state, rustix::thread::futex::Flags::empty(), i32::MAX as u32);
}

#[cfg(feature = "loom")]
fn wait(_: &AtomicU32, _: u32, _: Duration) {
    loom::thread::yield_now();
}

#[cfg(feature = "loom")]
fn wake(_: &AtomicU32) {}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;
    use crate::word::Colour;
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicBool, AtomicUsize};

    fn word(number: u64) -> Word {
        Word::new(16 * (number + 1), Colour(0)).unwrap()
    }

    fn go_on() -> Result<(), Infallible> {
        Ok(())
    }

    /// Goal: many ranks that want a word fetch it once, all but one having slept or found it; it can be withdrawn when none uses it, and not
    /// before.
    #[test]
    fn ranks_fetch_once() {
        let table = Table::of(WAYS);
        let entries = table.entries();
        let (fetches, is_slow) = (AtomicUsize::new(0), AtomicBool::new(true));
        for round in 0..200 {
            let left = AtomicUsize::new(6);
            std::thread::scope(|scope| {
                for rank in 0..6 {
                    let (fetches, left, is_slow) = (&fetches, &left, &is_slow);
                    scope.spawn(move || {
                        let shared = Shared::new(entries, rank).unwrap();
                        match shared.look(word(round), go_on).unwrap() {
                            Look::Fetch(at) => {
                                fetches.fetch_add(1, Ordering::Relaxed);
                                // In some rounds the others come first.
                                while is_slow.load(Ordering::Relaxed) && round % 50 == 0 {
                                    std::thread::park_timeout(Duration::from_millis(1));
                                }
                                shared.show(at, 1000 + round);
                                while left.load(Ordering::Acquire) > 1 {
                                    std::thread::park_timeout(Duration::from_micros(10));
                                }
                                assert!(shared.withdraw(word(round), 1000 + round));
                            }
                            Look::Held(at, address) => {
                                assert_eq!(address, 1000 + round);
                                assert!(!shared.withdraw(word(round), address), "it is in use");
                                shared.release(at);
                                left.fetch_sub(1, Ordering::Release);
                            }
                            Look::Full => unreachable!("a bucket for one word"),
                        }
                    });
                }
                if round % 50 == 0 {
                    std::thread::park_timeout(Duration::from_millis(20));
                }
                is_slow.store(false, Ordering::Relaxed);
            });
            is_slow.store(true, Ordering::Relaxed);
        }
        assert_eq!(fetches.load(Ordering::Relaxed), 200);
        assert!(entries.iter().all(|entry| entry.word.load(Ordering::Relaxed) == 0));
    }

    /// Goal: if a fetch fails, a waiter fetches itself.
    #[test]
    fn who_gives_up_leaves_it_to_another() {
        let table = Table::of(WAYS);
        let entries = table.entries();
        std::thread::scope(|scope| {
            let first = Shared::new(entries, 0).unwrap();
            let Look::Fetch(at) = first.look(word(1), go_on).unwrap() else { unreachable!("it is empty") };
            let second = scope.spawn(|| Shared::new(entries, 1).unwrap().look(word(1), go_on).unwrap());
            first.give_up(at);
            assert_eq!(second.join().unwrap(), Look::Fetch(at));
        });
    }

    /// Goal: a full bucket gives up unused copies, and only those; their keeper notices nothing.
    #[test]
    fn a_full_bucket_forgets_what_nobody_uses() {
        let table = Table::of(WAYS);
        let entries = table.entries();
        let [keeper, other] = [0, 1].map(|rank| Shared::new(entries, rank).unwrap());
        for number in 0..WAYS as u64 {
            let Look::Fetch(at) = keeper.look(word(number), go_on).unwrap() else { unreachable!("new") };
            keeper.show(at, number);
        }
        let Look::Held(held, 3) = other.look(word(3), go_on).unwrap() else { unreachable!("known") };
        for number in 100..200 {
            let Look::Fetch(at) = other.look(word(number), go_on).unwrap() else {
                unreachable!("there is room")
            };
            assert_ne!(at, held);
            other.show(at, number);
        }
        assert!(keeper.withdraw(word(0), 0), "displaced, nobody finds it");
        assert!(!keeper.withdraw(word(3), 3), "it is in use");
        other.release(held);
        assert!(keeper.withdraw(word(3), 3));
        // All are being fetched: no room.
        let all = (300..).filter_map(|number| match other.look(word(number), go_on).unwrap() {
            Look::Fetch(_) => Some(true),
            Look::Full => None,
            Look::Held(..) => Some(false),
        });
        assert_eq!(all.take(WAYS).filter(|fetches| *fetches).count(), WAYS);
        assert_eq!(keeper.look(word(900), go_on).unwrap(), Look::Full);
        assert_eq!(keeper.count(), (WAYS, WAYS));
        assert!(Shared::new(entries, RANKS_MAX).is_none() && Shared::new(&entries[1..], 0).is_none());
    }

    /// Goal: a waiter for a rank that does not come back ends when the job does.
    #[test]
    fn who_waits_ends_with_the_job() {
        let table = Table::of(WAYS);
        let entries = table.entries();
        let [first, second] = [0, 1].map(|rank| Shared::new(entries, rank).unwrap());
        assert!(matches!(first.look(word(1), go_on), Ok(Look::Fetch(_))));
        let mut naps = 0;
        let ended = second.look(word(1), || {
            naps += 1;
            if naps < 3 { Ok(()) } else { Err("the job has failed") }
        });
        assert_eq!(ended, Err("the job has failed"));
    }
}
