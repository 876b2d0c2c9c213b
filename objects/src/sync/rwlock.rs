//! Locks that several have at once, to read.

use super::mutex::{At, DMutex, Guard, Held, LockError, poison_of};
use crate::bytes::take;
use crate::heap::leave_behind;
use crate::task::Holds;
use crate::{Portable, Shareable};
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;

/// A value that one at a time has to write, or several to read, as [`std::sync::RwLock`]; otherwise as a
/// [`DMutex`], and as many messages. Later readers do not pass a waiting writer: a thread that holds it for
/// reading must not lock it again.
#[derive(Portable, Shareable)]
pub struct DRwLock<T: Shareable> {
    lock: DMutex<T>,
}

impl<T: Shareable> DRwLock<T> {
    /// A lock in this rank's partition.
    ///
    /// # Panics
    /// As [`DMutex::new`].
    #[track_caller]
    pub fn new(value: T) -> Self {
        Self { lock: DMutex::new(value) }
    }

    /// Waits until it is free, and takes it for writing.
    ///
    /// # Errors
    /// As [`DMutex::lock`].
    #[track_caller]
    pub fn write(&self) -> Result<Guard<'_, T>, LockError> {
        self.lock.lock()
    }

    /// [`DRwLock::write`], if it is free and has no waiters.
    ///
    /// # Errors
    /// As there.
    #[track_caller]
    pub fn try_write(&self) -> Result<Option<Guard<'_, T>>, LockError> {
        self.lock.try_lock()
    }

    /// Waits until there is no writer, and takes it for reading, with a copy of the value.
    ///
    /// # Errors
    /// As [`DMutex::lock`].
    #[track_caller]
    pub fn read(&self) -> Result<ReadGuard<'_, T>, LockError> {
        self.have_to_read(false)?.ok_or_else(LockError::busy)
    }

    /// [`DRwLock::read`], if there is no writer and no waiters.
    ///
    /// # Errors
    /// As there.
    #[track_caller]
    pub fn try_read(&self) -> Result<Option<ReadGuard<'_, T>>, LockError> {
        self.have_to_read(true)
    }

    #[track_caller]
    fn have_to_read(&self, try_only: bool) -> Result<Option<ReadGuard<'_, T>>, LockError> {
        let at = self.lock.at()?;
        let Some(bytes) = at.lock::<T>(true, try_only)? else { return Ok(None) };
        // SAFETY: a copy of a value that is not written while this guard has it, and is never dropped.
        let held = unsafe { take::<Held<T>>(&bytes) };
        let guard =
            ReadGuard { held: Box::new(ManuallyDrop::new(held)), at, _holds: Holds::one(), of: PhantomData };
        poison_of(guard.held.poison, at.offset).map(|()| Some(guard))
    }

    /// Returns the value, once there is no writer: a message and its answer, without holding the lock.
    ///
    /// # Errors
    /// As [`DMutex::lock`].
    #[track_caller]
    pub fn get(&self) -> Result<T, LockError>
    where
        T: Copy,
    {
        let at = self.lock.at()?;
        let bytes = at.copy::<T>()?;
        // SAFETY: a copy of a value that can be copied.
        let held = unsafe { take::<Held<T>>(&bytes) };
        poison_of(held.poison, at.offset).map(|()| held.value)
    }

    /// As [`DMutex::clear_poison`].
    ///
    /// # Errors
    /// If its home is lost.
    #[track_caller]
    pub fn clear_poison(&self) -> Result<(), LockError> {
        self.lock.clear_poison()
    }

    /// Returns the value, once all holders have released it.
    ///
    /// # Errors
    /// If its home is lost.
    #[track_caller]
    pub fn into_inner(self) -> Result<T, LockError> {
        self.lock.into_inner()
    }
}

impl<T: Shareable> fmt::Debug for DRwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DRwLock({:?})", self.lock)
    }
}

/// The value of a [`DRwLock`] that this thread may read.
pub struct ReadGuard<'l, T: Shareable> {
    held: Box<ManuallyDrop<Held<T>>>,
    at: At,
    _holds: Holds,
    of: PhantomData<&'l DRwLock<T>>,
}

impl<T: Shareable> Deref for ReadGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.held.value
    }
}

impl<T: Shareable> Drop for ReadGuard<'_, T> {
    fn drop(&mut self) {
        leave_behind(&**self.held);
        self.at.unlock(None, false);
    }
}

impl<T: Shareable + fmt::Debug> fmt::Debug for ReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        T::fmt(self, f)
    }
}
