//! A lock for short sections on the way of every message: taking it is one atomic exchange, releasing it one store.
//!
//! # Unsafe rules
//!
//! 1. *Exclusive.* The value is reached only through a guard, and a guard exists only between a successful exchange
//!    (acquire) and the store that its drop does (release).

use crate::cores;
use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};

/// Looks at a taken lock before a nap: its holder has been interrupted, then, and may need this core.
const LOOKS: u32 = 1024;

/// The lock. A panic of its holder releases it; values are kept consistent by their users.
pub struct SpinLock<T> {
    is_taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: rule 1: the value is used by one thread at a time, as with a mutex.
unsafe impl<T: Send> Send for SpinLock<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for SpinLock<T> {}

/// The right to use the value.
pub struct SpinGuard<'a, T> {
    lock: &'a SpinLock<T>,
    /// As a unique reference to the value: shared between threads only if the value may be.
    value: PhantomData<&'a mut T>,
}

impl<T> SpinLock<T> {
    /// An untaken lock.
    pub const fn new(value: T) -> Self {
        Self { is_taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<SpinGuard<'_, T>> {
        if self.is_taken.swap(true, Ordering::Acquire) {
            return None;
        }
        Some(SpinGuard { lock: self, value: PhantomData })
    }

    /// Takes the lock; while others have it for longer, this thread naps.
    #[inline]
    pub fn lock(&self) -> SpinGuard<'_, T> {
        loop {
            if let Some(guard) = self.try_lock() {
                return guard;
            }
            self.wait();
        }
    }

    #[cold]
    fn wait(&self) {
        let mut looks = 0;
        while self.is_taken.load(Ordering::Relaxed) {
            pause(&mut looks);
        }
    }
}

/// Pauses after one more look in vain at a lock.
pub(super) fn pause(looks: &mut u32) {
    *looks = looks.saturating_add(1);
    match looks.checked_sub(LOOKS) {
        None => std::hint::spin_loop(),
        Some(mut naps) => cores::nap(&mut naps),
    }
}

impl<T> Drop for SpinGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.is_taken.store(false, Ordering::Release);
    }
}

impl<T> Deref for SpinGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: rule 1: the guard is the right.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for SpinGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: rule 1, and the guard is borrowed exclusively.
        unsafe { &mut *self.lock.value.get() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_at_a_time_and_released_by_a_panic() {
        let lock = SpinLock::new(0u64);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..20_000).for_each(|_| *lock.lock() += 1));
            }
        });
        assert_eq!(*lock.lock(), 80_000);
        let held = lock.lock();
        assert!(lock.try_lock().is_none());
        assert!(lock.try_lock().is_none(), "an attempt that failed must leave the lock taken");
        drop(held);
        let panicked = std::thread::scope(|scope| {
            scope
                .spawn(|| {
                    let _held = lock.lock();
                    std::panic::resume_unwind(Box::new("on purpose"));
                })
                .join()
        });
        assert!(panicked.is_err());
        assert!(lock.try_lock().is_some());
    }
}
