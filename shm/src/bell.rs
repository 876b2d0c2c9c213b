//! The handshake between a sleeper and those who wake it: a word and an eventfd.
//!
//! The sleeper calls [`prepare`], looks once more at what it waits for, sleeps until the descriptor is readable, and
//! calls [`finish`]. Whoever changes something calls [`ring`] afterwards, which is a load while nobody sleeps. The two
//! halves of an asymmetric fence make sure that the sleeper sees the change or the ringer sees the sleeper.

use super::fence;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{self, AtomicBool, AtomicU32, Ordering};

// The state of the sleeper; 0 is awake.
const SLEEPING: u32 = 1;
const RUNG: u32 = 2;
const STATE: u32 = 3;

/// Set for good in the word of a process that can't execute the heavy half: ringers then execute a whole fence.
const SYMMETRIC: u32 = 4;

/// Makes a word ready, once, by the process that sleeps on it and before anybody rings.
pub fn introduce(word: &AtomicU32) {
    if !fence::is_asymmetric() {
        word.fetch_or(SYMMETRIC, Ordering::SeqCst);
    }
}

/// Announces that the caller is about to sleep. What it waits for must be checked after this.
pub fn prepare(word: &AtomicU32) {
    prepare_before_fence(word);
    fence::heavy();
}

/// [`prepare`] by a caller that executes the heavy half itself before it looks: once for several words.
pub fn prepare_before_fence(word: &AtomicU32) {
    word.store(SLEEPING | word.load(Ordering::Relaxed) & SYMMETRIC, Ordering::Relaxed);
}

/// The light half toward the owner of a word: for whoever changes something that the owner looks at after [`prepare`].
#[inline(always)]
pub fn light_toward(word: &AtomicU32) {
    fence::light();
    if word.load(Ordering::Relaxed) & SYMMETRIC != 0 {
        atomic::fence(Ordering::SeqCst);
    }
}

/// Wakes the sleeper, if there is one. What was changed for it must be changed before this.
#[inline]
pub fn ring(word: &AtomicU32, descriptor: BorrowedFd<'_>) {
    light_toward(word);
    if word.load(Ordering::Relaxed) & STATE == SLEEPING {
        write_bell(word, descriptor);
    }
}

#[cold]
fn write_bell(word: &AtomicU32, descriptor: BorrowedFd<'_>) {
    let kept = word.load(Ordering::Relaxed) & SYMMETRIC;
    let (sleeping, rung) = (kept | SLEEPING, kept | RUNG);
    if word.compare_exchange(sleeping, rung, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
        // A full counter (EAGAIN) means that the bell rings already.
        let _ = rustix::io::write(descriptor, &1u64.to_ne_bytes());
    }
}

/// Ends the preparation, slept or not. `pending` remembers a ringer that had not written yet when it was looked for.
pub fn finish(word: &AtomicU32, descriptor: BorrowedFd<'_>, pending: &AtomicBool) {
    let rung = word.fetch_and(SYMMETRIC, Ordering::AcqRel) & STATE == RUNG;
    if rung || pending.load(Ordering::Relaxed) {
        let empty = rustix::io::read(descriptor, &mut [0; 8]).is_err();
        pending.store(empty, Ordering::Relaxed);
    }
}
