//! Periods: the times between two moments at which this rank passes something on.
//!
//! Another rank is given an object's bytes only if it has the object's word, as an owner or a borrower. An
//! object that was mutably borrowed here can have become known only since this rank passed something on
//! afterwards: a task or its end, a loan or a hand-over, a box in a channel, the value of a lock
//! ([`super::pass_on`], which backups rely on in the same way). So what was found unserved, and mutably
//! borrowed, stays so until then, and a link may note the period in which it was found so: to compare that is
//! less than to find and look at the word of a slot.
//!
//! Reachability is unknown, so passing anything on ends the period for all links. A late request, of a borrow
//! that has ended, may serve an object within a period: its copy is never found ([`crate::colour`]), and the
//! mark is seen in the next one.

#![forbid(unsafe_code)]

use crate::planted::{Fault, is_planted};
use std::sync::atomic::{AtomicU64, Ordering};

/// No period: without a heap, or if a backup may be given local objects at any time.
const NONE: u64 = 1;
/// Prefix of extensions that note a period. No rank has this tag, so the rest is never taken for an address.
const MARK: u64 = 0xffff << 48;

/// The period of this process.
pub(super) static PERIOD: Period = Period(AtomicU64::new(NONE));

/// Three parts of 16 bits: [`MARK`], the rank's tag, which tells its periods from those of other ranks and of
/// earlier jobs, and a number.
pub(super) struct Period(AtomicU64);

impl Period {
    /// The first period of a rank with this tag.
    pub fn begin(&self, tag: u64) {
        self.0.store(MARK | tag << 32 | 1, Ordering::Relaxed);
    }

    /// There are none any more.
    pub fn end(&self) {
        self.0.store(NONE, Ordering::Relaxed);
    }

    /// Something is about to be passed on: the notes of links mean nothing from here on.
    pub fn next(&self) {
        if is_planted(Fault::EndlessPeriod) {
            return;
        }
        let next = |now: u64| match now as u32 {
            _ if now == NONE => None,
            // Its successor would be noted somewhere already.
            u32::MAX => Some(NONE),
            _ => Some(now + 1),
        };
        // A writer of a passed-on value has heard, through its holders, that they are done: that puts this
        // before.
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }

    /// Returns true if `noted` is the note of this period.
    #[inline]
    pub fn is_now(&self, noted: u64) -> bool {
        noted == self.0.load(Ordering::Relaxed)
    }

    /// Returns the value for a link to note, if its object is found to be unserved afterwards.
    #[inline]
    pub fn now(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Relaxed)).filter(|now| *now != NONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a note means nothing in any later period, of another rank or job, when numbers are used up, and
    /// without a heap.
    #[test]
    fn no_period_comes_again() {
        let period = Period(AtomicU64::new(NONE));
        assert_eq!(period.now(), None);
        period.next();
        assert!(period.now().is_none() && !period.is_now(0));
        period.begin(7);
        let mut noted: Vec<u64> = period.now().into_iter().collect();
        for _ in 0..100 {
            period.next();
            let now = period.now().unwrap();
            assert!(period.is_now(now) && !noted.contains(&now) && now >> 48 == 0xffff);
            noted.push(now);
        }
        period.begin(8);
        assert!(!noted.iter().any(|noted| period.is_now(*noted)));
        period.0.store(MARK | 8 << 32 | u64::from(u32::MAX), Ordering::Relaxed);
        let last = period.now().unwrap();
        for _ in 0..3 {
            period.next();
            assert!(period.now().is_none() && !period.is_now(last) && !period.is_now(0));
        }
        period.begin(9);
        period.end();
        assert_eq!(period.now(), None);
    }
}
