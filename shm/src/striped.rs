//! Counters that most threads add to without a locked instruction: each of the first threads of a process has a stripe of its own.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Stripes of a counter: of the first threads that count one each, and one that all others share.
pub const STRIPES: usize = 5;

/// Returns the stripe that this thread adds to, below [`STRIPES`].
#[inline]
pub fn stripe() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static MINE: usize = NEXT.fetch_add(1, Ordering::Relaxed).min(STRIPES - 1));
    MINE.with(|mine| *mine)
}

/// Adds to the counter that this thread's stripe has: `stripe` is what [`stripe`] has returned here, and the
/// threads of other stripes do not add to this counter. A reader of the sum, with acquire, sees the effects
/// of this thread before.
#[inline]
pub fn add(stripe: usize, counter: &AtomicU64, more: u64) {
    if stripe == STRIPES - 1 {
        counter.fetch_add(more, Ordering::Release);
    } else {
        counter.store(counter.load(Ordering::Relaxed) + more, Ordering::Release);
    }
}

#[derive(Default)]
#[repr(align(128))]
struct Line(AtomicU64);

/// A counter of events that any thread notes.
pub struct StripedCounter([Line; STRIPES]);

impl StripedCounter {
    /// A counter at 0.
    pub const fn new() -> Self {
        Self([const { Line(AtomicU64::new(0)) }; STRIPES])
    }

    /// Adds one.
    #[inline]
    pub fn note(&self) {
        let stripe = stripe();
        add(stripe, &self.0[stripe].0, 1);
    }

    /// Returns the number of events. A later call returns more if, and only if, some event has been noted since.
    #[inline]
    pub fn read(&self) -> u64 {
        self.0.iter().map(|line| line.0.load(Ordering::Acquire)).sum()
    }
}

impl Default for StripedCounter {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: more threads than there are stripes count at once, and no event is lost.
    #[test]
    fn threads_count_at_once() {
        const THREADS: u64 = 2 * STRIPES as u64;
        const EVENTS: u64 = 20_000;
        let counter = StripedCounter::new();
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| (0..EVENTS).for_each(|_| counter.note()));
            }
        });
        assert_eq!(counter.read(), THREADS * EVENTS);
    }
}
