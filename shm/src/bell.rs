//! The handshake between a sleeper and its wakers: a word and an eventfd.
//!
//! The sleeper calls [`prepare`], checks its condition once more, sleeps until the descriptor is readable,
//! and calls [`finish`]. A thread that changes something calls [`ring`] afterwards, which is a load while
//! there is no sleeper. The two halves of an asymmetric fence make sure that the sleeper sees the change or
//! the ringer sees the sleeper.
//!
//! The sleeper's half interrupts every processor, which takes longer than most sleeps between processes that
//! work for each other. So a thread that may soon be woken calls [`prepare_briefly`], which does without, and
//! sleeps for a bounded time: a change of the very moment, which is still in the changer's store buffer while
//! the word is not yet seen by it, is found then. [`Sleeps`] gives the time, and a thread that timed out
//! twice prepares for good.

use super::fence;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{self, AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// Longest sleep after [`prepare_briefly`], the first time: long against the waits for answers, short for a
/// thread in the one case in which its wake-up is missed.
pub const BRIEF: Duration = Duration::from_millis(1);

/// Timeout of the second sleep, if the first one timed out. The longer a wait, the less likely that its end
/// falls into the moment of a preparation: the possible cost grows with the sleep, and the average one does
/// not.
pub const LONGER: Duration = Duration::from_millis(8);

/// Duration of a waiter's next sleep.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sleeps {
    /// Sleeps in a row that timed out.
    through: u8,
}

impl Sleeps {
    /// Longest sleep, after [`prepare_briefly`]; none: until it is woken, after [`prepare`].
    pub fn most(self) -> Option<Duration> {
        match self.through {
            0 => Some(BRIEF),
            1 => Some(LONGER),
            _ => None,
        }
    }

    /// Notes that it has slept, and whether it was woken.
    pub fn slept(&mut self, was_woken: bool) {
        self.through = if was_woken { 0 } else { self.through.saturating_add(1) };
    }
}

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

/// Announces that the caller is about to sleep. Its condition must be checked after this.
pub fn prepare(word: &AtomicU32) {
    prepare_before_fence(word);
    fence::heavy();
}

/// The same for a sleep as long as [`Sleeps`] says, after which the caller looks again.
pub fn prepare_briefly(word: &AtomicU32) {
    prepare_before_fence(word);
    atomic::fence(Ordering::SeqCst);
}

/// [`prepare`] by a caller that executes the heavy half itself before it looks: once for several words.
pub fn prepare_before_fence(word: &AtomicU32) {
    word.store(SLEEPING | word.load(Ordering::Relaxed) & SYMMETRIC, Ordering::Relaxed);
}

/// The light half toward the owner of a word: for a thread that changes something that the owner looks at
/// after [`prepare`].
#[inline(always)]
pub fn light_toward(word: &AtomicU32) {
    fence::light();
    if word.load(Ordering::Relaxed) & SYMMETRIC != 0 {
        atomic::fence(Ordering::SeqCst);
    }
}

/// Returns true if the owner of a word sleeps, or is about to, and was not woken yet: an estimate, which may
/// be stale at once.
#[inline]
pub fn is_asleep(word: &AtomicU32) -> bool {
    word.load(Ordering::Relaxed) & STATE == SLEEPING
}

/// Wakes the sleeper, if there is one. Call it after the change that the sleeper waits for.
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

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
    use std::os::fd::AsFd;
    use std::sync::atomic::AtomicU64;

    /// Goal: two threads that wake each other, and sleep briefly in between, make progress, and neither
    /// sleeps through a ring: its effect is readable.
    #[test]
    fn who_sleeps_briefly_is_woken() {
        const ROUNDS: u64 = 2000;
        let sides = [0, 1].map(|_| {
            let word = AtomicU32::new(0);
            introduce(&word);
            (word, AtomicU64::new(0), eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap())
        });
        let brief = Timespec { tv_sec: 0, tv_nsec: BRIEF.subsec_nanos().into() };
        let run = |mine: usize| {
            let ((word, come, bell), (other, theirs, their_bell)) = (&sides[mine], &sides[1 - mine]);
            let pending = AtomicBool::new(false);
            for round in 1..=ROUNDS {
                theirs.store(round, Ordering::Release);
                ring(other, their_bell.as_fd());
                while come.load(Ordering::Acquire) < round {
                    prepare_briefly(word);
                    if come.load(Ordering::Acquire) < round {
                        let mut descriptors = [PollFd::new(bell, PollFlags::IN)];
                        let readable = poll(&mut descriptors, Some(&brief)).unwrap() > 0;
                        let rung = word.load(Ordering::Acquire) & STATE == RUNG;
                        assert!(
                            rung || !readable || pending.load(Ordering::Relaxed),
                            "readable, and nobody has rung"
                        );
                    }
                    finish(word, bell.as_fd(), &pending);
                }
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| run(0));
            scope.spawn(|| run(1));
        });
    }
}
