//! A thread that sleeps without a clock as long as nothing is to be done, and is called when something is.
//!
//! A thread that brings something notes it first, and calls then. A call before the thread has announced its
//! sleep is ignored, so it looks once more after the announcement, at everything for which it may be called:
//! an earlier note is found, and a later one finds that it sleeps.

#[cfg(feature = "loom")]
use loom::{
    sync::Mutex,
    sync::atomic::{AtomicBool, Ordering, fence},
    thread::{Thread, current, park},
};
use std::sync::PoisonError;
#[cfg(not(feature = "loom"))]
use std::{
    sync::Mutex,
    sync::atomic::{AtomicBool, Ordering, fence},
    thread::{Thread, current, park},
};

#[derive(Default)]
pub(super) struct Sleeper {
    sleeps: AtomicBool,
    thread: Mutex<Option<Thread>>,
}

impl Sleeper {
    /// From here on this is the thread, until [`Sleeper::end`].
    pub fn begin(&self) {
        self.sleeps.store(false, Ordering::SeqCst);
        self.set(Some(current()));
    }

    /// There is no thread any more.
    pub fn end(&self) {
        self.set(None);
    }

    fn set(&self, thread: Option<Thread>) {
        *self.thread.lock().unwrap_or_else(PoisonError::into_inner) = thread;
    }

    /// There is something to be done, which was noted before a fence of the caller's. Cheap while the thread is awake.
    #[inline]
    pub fn see(&self) {
        if self.sleeps.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    /// There is something to be done.
    #[cold]
    pub fn wake(&self) {
        self.sleeps.store(false, Ordering::SeqCst);
        if let Some(thread) = &*self.thread.lock().unwrap_or_else(PoisonError::into_inner) {
            thread.unpark();
        }
    }

    /// Sleeps until called, unless there is work: `is_needed` must look at all causes of a call.
    pub fn sleep_unless(&self, is_needed: impl Fn() -> bool) {
        self.sleeps.store(true, Ordering::SeqCst);
        // Pairs with threads that note something and then call `see`.
        fence(Ordering::SeqCst);
        if !is_needed() {
            while self.sleeps.load(Ordering::SeqCst) {
                park();
            }
        }
        self.sleeps.store(false, Ordering::SeqCst);
    }
}
