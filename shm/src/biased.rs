//! A lock that costs its usual user no locked instruction: it leans to one thread, which then takes it with plain stores.
//!
//! A locked instruction waits until all earlier stores have left the processor. On the way of a message that is the
//! message before it, whose line comes from another core: about 100 ns, many times what the message costs otherwise.
//!
//! The lock leans to a thread that has taken it many times in a row. Such a thread announces that it is
//! inside, then looks whether the lock still leans to it. Any other thread takes the ordinary lock first,
//! ends the leaning, and executes the heavy half of the asymmetric fence ([`super::fence`]): either it then
//! sees the thread inside and waits, or the thread sees that the leaning has ended. The lock leans again
//! after a longer row, eight times at most, each time with a flag of its own: a thread that is late in
//! noticing can only touch a flag that is not used any more.
//!
//! # Unsafe rules
//!
//! 1. *Exclusive.* The value is reached only through a guard. A guard exists between taking the ordinary lock
//!    and releasing it, while the lock does not lean; or between setting a flag and clearing it, by the
//!    thread to which the lock leans, confirmed after the flag was set.
//! 2. *Row.* `row` is touched only by the thread that has taken the ordinary lock.

use super::fence;
use super::spin::pause;
use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, compiler_fence};

/// Number of times that a lock may lean: the low bits of a thread's number count them.
const LIVES: usize = THREAD_ALIGN;

/// Numbers of threads are multiples of this.
const THREAD_ALIGN: usize = 8;

/// Times that a thread takes the lock in a row before it leans to it for the first time; eight times as many each time
/// after: ending it takes some microseconds, which must stay little beside what leaning saves.
const ROW: u64 = 64;

/// A number that no other living thread has, never 0: the address of a thread-local.
#[inline]
pub fn this_thread() -> usize {
    thread_local!(static PLACE: u64 = const { 0 });
    const { assert!(align_of::<u64>() >= THREAD_ALIGN) };
    PLACE.with(|place| std::ptr::from_ref(place).addr())
}

/// The lock. A panic of its holder releases it; values are kept consistent by their users.
pub struct BiasedLock<T> {
    /// The thread to which the lock leans, with the count of leanings in the low bits; 0: none.
    leans_to: AtomicUsize,
    /// The thread to which it leans, or leant, in each life, has taken it.
    inside: [AtomicBool; LIVES],
    is_taken: AtomicBool,
    row: UnsafeCell<Row>,
    value: UnsafeCell<T>,
}

/// Recent takers of the ordinary lock.
struct Row {
    thread: usize,
    times: u64,
    lives: usize,
}

// SAFETY: rule 1: the value is used by one thread at a time, as with a mutex.
unsafe impl<T: Send> Send for BiasedLock<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for BiasedLock<T> {}

/// The right to use the value.
pub struct BiasedGuard<'a, T> {
    /// Cleared when the guard is dropped.
    taken: &'a AtomicBool,
    lock: &'a BiasedLock<T>,
    /// As a unique reference to the value: shared between threads only if the value may be.
    value: PhantomData<&'a mut T>,
}

impl<T> BiasedLock<T> {
    /// An untaken lock that does not lean.
    pub const fn new(value: T) -> Self {
        Self {
            leans_to: AtomicUsize::new(0),
            inside: [const { AtomicBool::new(false) }; LIVES],
            is_taken: AtomicBool::new(false),
            row: UnsafeCell::new(Row { thread: 0, times: 0, lives: 0 }),
            value: UnsafeCell::new(value),
        }
    }

    /// Takes the lock if no thread holds it, this one included.
    #[inline]
    pub fn try_lock(&self) -> Option<BiasedGuard<'_, T>> {
        let leans_to = self.leans_to.load(Ordering::Relaxed);
        if leans_to & !(LIVES - 1) != this_thread() {
            return self.try_ordinary(false);
        }
        let inside = &self.inside[leans_to % LIVES];
        // Acquires what another thread has written that was sent the guard.
        if inside.load(Ordering::Acquire) {
            return None;
        }
        inside.store(true, Ordering::Relaxed);
        // The light half; the lock leans only where the heavy one works.
        compiler_fence(Ordering::SeqCst);
        if self.leans_to.load(Ordering::Relaxed) == leans_to {
            return Some(self.guard(inside));
        }
        inside.store(false, Ordering::Release);
        self.try_ordinary(false)
    }

    /// Takes the lock; while other threads hold it for longer, this thread naps. Not by a thread that has it
    /// already.
    #[inline]
    pub fn lock(&self) -> BiasedGuard<'_, T> {
        match self.try_lock() {
            Some(guard) => guard,
            None => self.wait(),
        }
    }

    #[cold]
    fn wait(&self) -> BiasedGuard<'_, T> {
        let mut looks = 0;
        loop {
            if let Some(guard) = self.try_ordinary(true) {
                return guard;
            }
            while self.is_taken.load(Ordering::Relaxed) {
                pause(&mut looks);
            }
        }
    }

    #[inline]
    fn guard<'a>(&'a self, taken: &'a AtomicBool) -> BiasedGuard<'a, T> {
        BiasedGuard { taken, lock: self, value: PhantomData }
    }

    /// Takes the ordinary lock, and ends the leaning to another thread: `insisting`, it waits for that thread to leave.
    #[cold]
    fn try_ordinary(&self, insisting: bool) -> Option<BiasedGuard<'_, T>> {
        if self.is_taken.swap(true, Ordering::Acquire) {
            return None;
        }
        // From here on the ordinary lock is released when the guard is dropped.
        let ordinary = self.guard(&self.is_taken);
        let leans_to = self.leans_to.load(Ordering::Relaxed);
        if leans_to != 0 {
            let inside = &self.inside[leans_to % LIVES];
            // Seen from outside, a thread that is inside now is as good as any holder: nothing is ended for it.
            if !insisting && inside.load(Ordering::Relaxed) {
                return None;
            }
            self.leans_to.store(0, Ordering::Relaxed);
            fence::heavy();
            let mut looks = 0;
            while inside.load(Ordering::Acquire) {
                if !insisting && looks > 0 {
                    // As if nothing had been: whoever comes next must look at the flag, too.
                    self.leans_to.store(leans_to, Ordering::Relaxed);
                    return None;
                }
                pause(&mut looks);
            }
        }
        // SAFETY: rule 2.
        let row = unsafe { &mut *self.row.get() };
        match self.lean(row) {
            Some(inside) => Some(self.guard(inside)),
            None => Some(ordinary),
        }
    }

    /// Counts the row; when it is long enough the lock leans to this thread, which from then on holds it by the flag that
    /// is returned.
    fn lean(&self, row: &mut Row) -> Option<&AtomicBool> {
        let me = this_thread();
        if row.thread != me {
            (row.thread, row.times) = (me, 0);
        }
        row.times += 1;
        if row.lives == LIVES || row.times < ROW << (3 * row.lives) || !fence::is_asymmetric() {
            return None;
        }
        let inside = &self.inside[row.lives];
        inside.store(true, Ordering::Relaxed);
        // With release, as is the drop of the ordinary guard that follows: who ends this leaning sees the flag.
        self.leans_to.store(me | row.lives, Ordering::Release);
        (row.times, row.lives) = (0, row.lives + 1);
        Some(inside)
    }
}

impl<T> Drop for BiasedGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.taken.store(false, Ordering::Release);
    }
}

impl<T> Deref for BiasedGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: rule 1: the guard is the right.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for BiasedGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: rule 1, and the guard is borrowed exclusively.
        unsafe { &mut *self.lock.value.get() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leans_here<T>(lock: &BiasedLock<T>) -> bool {
        lock.leans_to.load(Ordering::Relaxed) & !(LIVES - 1) == this_thread()
    }

    /// Takes the lock until it leans to this thread, if the kernel allows it.
    fn make_lean(lock: &BiasedLock<u64>) {
        for _ in 0..ROW << 3 {
            *lock.lock() += 1;
        }
        assert_eq!(leans_here(lock), fence::is_asymmetric());
    }

    /// Threads that take turns of all lengths, so that the lock leans and is taken away again, many times: an addition
    /// that is not atomic loses none.
    #[test]
    fn one_thread_at_a_time_however_the_lock_leans() {
        const THREADS: u64 = 4;
        const ROUNDS: u64 = 400;
        let lock = BiasedLock::new(0u64);
        let expected: u64 = THREADS * (0..ROUNDS).map(|round| round % 37 * 8).sum::<u64>();
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for round in 0..ROUNDS {
                        let mut left = round % 37 * 8;
                        while left > 0 {
                            // Both ways in.
                            match if left % 2 == 0 { lock.try_lock() } else { Some(lock.lock()) } {
                                Some(mut value) => *value += 1,
                                None => *lock.lock() += 1,
                            }
                            left -= 1;
                        }
                        // Not a wait: the others are to come in between, on one core as well.
                        std::thread::yield_now();
                    }
                });
            }
        });
        assert_eq!(*lock.lock(), expected);
    }

    #[test]
    fn a_thread_that_has_it_does_not_get_it_again() {
        let lock = BiasedLock::new(0);
        {
            let _held = lock.lock();
            assert!(lock.try_lock().is_none());
        }
        make_lean(&lock);
        let held = lock.lock();
        assert!(lock.try_lock().is_none());
        assert!(lock.try_lock().is_none(), "an attempt that failed must leave the lock taken");
        drop(held);
        assert!(lock.try_lock().is_some());
    }

    /// The moment in which the lock begins to lean is inside a guard, too.
    #[test]
    fn it_is_held_while_it_begins_to_lean() {
        let lock = BiasedLock::new(0u64);
        for _ in 0..ROW << 3 {
            let held = lock.lock();
            assert!(lock.try_lock().is_none());
            drop(held);
        }
    }

    #[test]
    fn another_thread_gets_it_when_it_is_left_and_not_before() {
        let lock = BiasedLock::new(0);
        make_lean(&lock);
        let held = lock.lock();
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(lock.try_lock().is_none()));
        });
        assert_eq!(leans_here(&lock), fence::is_asymmetric(), "a mere attempt must not end the leaning");
        std::thread::scope(|scope| {
            let other = scope.spawn(|| *lock.lock() = 1);
            let mut naps = 0;
            while fence::is_asymmetric() && leans_here(&lock) {
                crate::cores::nap(&mut naps);
            }
            assert_ne!(*held, 1);
            drop(held);
            other.join().unwrap();
        });
        assert_eq!(*lock.lock(), 1);
    }

    #[test]
    fn a_panic_releases_it() {
        let lock = BiasedLock::new(0);
        let panicked = std::thread::scope(|scope| {
            scope
                .spawn(|| {
                    make_lean(&lock);
                    let _held = lock.lock();
                    std::panic::resume_unwind(Box::new("on purpose"));
                })
                .join()
        });
        assert!(panicked.is_err());
        assert!(lock.try_lock().is_some());
    }

    #[test]
    fn it_leans_a_bounded_number_of_times() {
        let lock = BiasedLock::new(0u64);
        for life in 0..3 {
            for _ in 0..ROW << (3 * life) {
                *lock.lock() += 1;
            }
            assert_eq!(leans_here(&lock), fence::is_asymmetric());
            std::thread::scope(|scope| {
                scope.spawn(|| *lock.lock() += 1);
            });
            assert!(!leans_here(&lock));
        }
    }
}
