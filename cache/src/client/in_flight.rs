//! Operations that were started and go on by themselves: a handle refers to one, whoever polls lets all of them go on.
//!
//! An operation that is waited for where it is started never comes here. Of the others the list owns the state, so that any
//! thread of the process may let them go on: those that poll or wait, and the endpoint's own while none does
//! ([`vgas_rma::endpoint::Work`]).

use super::Core;
use super::local_transfer::Transfer;
use super::own::ReadId;
use crate::error::CacheError;
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use vgas_rma::endpoint::{Extent, Work};

/// Operations that one poll lets go on: more would make it slow for what else it is for.
const SOME: usize = 64;

/// An operation of the list.
pub(super) struct Started {
    state: Mutex<State>,
    has_ended: AtomicBool,
    /// The read that it waits for and nothing else, packed; 0: something else. Looked at before the lock is taken: of many
    /// operations that wait for the device most wait on.
    awaited: AtomicU64,
    is_put: bool,
}

enum State {
    Running(Transfer),
    Ended(Result<(), CacheError>),
    /// Its end was reported, or nobody wants to hear of it.
    Over,
}

/// The operations of a client.
#[derive(Default)]
pub(super) struct InFlight {
    list: Mutex<VecDeque<Arc<Started>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What these locks protect is consistent at every step.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The lock; none when another thread has it and this one had better not wait.
fn lock_as<T>(mutex: &Mutex<T>, extent: Extent) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) if extent == Extent::Some => None,
        Err(TryLockError::WouldBlock) => Some(lock(mutex)),
    }
}

impl Started {
    pub(super) fn is_put(&self) -> bool {
        self.is_put
    }

    /// Lets it go on, unless another thread does. True: it has ended.
    fn advance(&self, core: &Core, extent: Extent) -> bool {
        if self.has_ended.load(Ordering::Acquire) {
            return true;
        }
        if let Some(read) = ReadId::unpack(self.awaited.load(Ordering::Acquire))
            && !core.own.has_ended(core, read)
        {
            return false;
        }
        let Some(mut state) = lock_as(&self.state, extent) else { return false };
        let State::Running(operation) = &mut *state else { return true };
        // SAFETY: rule 1: whoever started the operation keeps the bytes valid until it has ended, and hears of the end from
        // here; the lock is held, so that no other thread touches them.
        let ended = match unsafe { operation.advance(core) } {
            Ok(false) => {
                let awaited = operation.awaited_read().map_or(0, ReadId::pack);
                self.awaited.store(awaited, Ordering::Release);
                return false;
            }
            Ok(true) => Ok(()),
            Err(error) => {
                operation.abandon(core);
                Err(error)
            }
        };
        *state = State::Ended(ended);
        self.has_ended.store(true, Ordering::Release);
        true
    }

    /// Lets it go on. None: it has not ended.
    pub(super) fn test(&self, core: &Core) -> Option<Result<(), CacheError>> {
        if !self.advance(core, Extent::Some) {
            return None;
        }
        match std::mem::replace(&mut *lock(&self.state), State::Over) {
            State::Ended(result) => Some(result),
            State::Running(_) | State::Over => Some(Ok(())),
        }
    }

    /// Ends it where it stands: when this returns, nobody touches its bytes any more.
    pub(super) fn give_up(&self, core: &Core) {
        if let State::Running(mut operation) = std::mem::replace(&mut *lock(&self.state), State::Over) {
            operation.abandon(core);
        }
        self.has_ended.store(true, Ordering::Release);
    }
}

impl InFlight {
    /// Takes an operation that has not ended.
    pub(super) fn add(&self, operation: Transfer) -> Arc<Started> {
        let is_put = operation.is_put();
        let state = Mutex::new(State::Running(operation));
        let (has_ended, awaited) = (AtomicBool::new(false), AtomicU64::new(0));
        let started = Arc::new(Started { state, has_ended, awaited, is_put });
        lock(&self.list).push_back(started.clone());
        started
    }

    /// Forgets all; how many they were.
    pub(super) fn clear(&self) -> usize {
        std::mem::take(&mut *lock(&self.list)).len()
    }
}

impl Work for Core {
    fn advance(&self, extent: Extent) -> usize {
        let read = self.own.poll(self, extent);
        let Some(mut list) = lock_as(&self.in_flight.list, extent) else { return read };
        let count = match extent {
            Extent::Some => list.len().min(SOME),
            Extent::All => list.len(),
        };
        let mut ended = read;
        for _ in 0..count {
            let Some(started) = list.pop_front() else { break };
            if started.advance(self, extent) {
                ended += 1;
            } else {
                list.push_back(started);
            }
        }
        ended
    }

    fn awaits_messages(&self) -> bool {
        self.remote.has_pending()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.own.descriptor()
    }
}
