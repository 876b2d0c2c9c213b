//! The handshake between a sleeper and those who wake it: a word and an eventfd.
//!
//! The sleeper calls [`prepare`], looks once more at what it waits for, sleeps until the descriptor is readable, and
//! calls [`finish`]. Whoever changes something calls [`ring`] afterwards, which costs a fence and a load while nobody
//! sleeps. The two fences make sure that the sleeper sees the change or the ringer sees the sleeper.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};

const AWAKE: u32 = 0;
const SLEEPING: u32 = 1;
const RUNG: u32 = 2;

/// Announces that the caller is about to sleep. What it waits for must be checked after this.
pub fn prepare(word: &AtomicU32) {
    word.store(SLEEPING, Ordering::Relaxed);
    fence(Ordering::SeqCst);
}

/// Wakes the sleeper, if there is one. What was changed for it must be changed before this.
#[inline]
pub fn ring(word: &AtomicU32, descriptor: BorrowedFd<'_>) {
    fence(Ordering::SeqCst);
    ring_after_fence(word, descriptor);
}

/// [`ring`] by a caller that has executed a sequentially consistent fence since its change.
#[inline]
pub fn ring_after_fence(word: &AtomicU32, descriptor: BorrowedFd<'_>) {
    if word.load(Ordering::Relaxed) == SLEEPING {
        write_bell(word, descriptor);
    }
}

#[cold]
fn write_bell(word: &AtomicU32, descriptor: BorrowedFd<'_>) {
    if word.compare_exchange(SLEEPING, RUNG, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
        // A full counter (EAGAIN) means that the bell rings already.
        let _ = rustix::io::write(descriptor, &1u64.to_ne_bytes());
    }
}

/// Ends the preparation, slept or not. `pending` remembers a ringer that had not written yet when it was looked for.
pub fn finish(word: &AtomicU32, descriptor: BorrowedFd<'_>, pending: &AtomicBool) {
    let rung = word.swap(AWAKE, Ordering::AcqRel) == RUNG;
    if rung || pending.load(Ordering::Relaxed) {
        let empty = rustix::io::read(descriptor, &mut [0; 8]).is_err();
        pending.store(empty, Ordering::Relaxed);
    }
}
