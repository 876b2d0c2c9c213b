//! Fair locks that are words of tiered memory: for many readers or one writer, anywhere in the job.
//!
//! Any aligned eight bytes of a tiered segment are a lock, free while they are zeros; the program decides
//! what they protect. A rank whose node may write the lock's page takes and releases it by an instruction,
//! and brings the page in first if its node stores it and no node has it; other ranks ask the agent of its
//! home, in one message there and one back, and release in one. Waiting ranks stand in a queue at the home
//! and sleep: nothing spins, no rank is overtaken, and it does not matter if ranks compute.
//!
//! A guard that a panic drops leaves the lock *poisoned*, as std's locks are: later holders get an error that
//! names the rank. Ranks that wait for each other in a circle are found within some seconds, and one of them
//! gets an error that names all of them. A rank that dies ends the job, whether or not others wait for it.
//!
//! A lock is a thing of the running job: in a named segment, one that was held at a checkpoint is held for ever when it is reopened;
//! put zeros there first.

mod error;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod service;
mod word;

use crate::address::{GlobalAddress, Kind};
use crate::error::{Error, Result};
use crate::memory::not_yours;
use crate::runtime::Runtime;
pub use error::LockError;
pub(crate) use service::Locks;
use service::{Answer, LockPlace, Request, describe};
use std::sync::atomic::{AtomicU32, Ordering};
use vgas_cache::page::PageInSegment;
use vgas_cache::{CacheError, Failure};
use vgas_shm::Change;
pub use word::LockOwner;
use word::{LockState, SERVED};

/// A lock, held to write. Dropping it releases the lock; earlier puts are visible to the next holder, even in
/// relaxed segments, whose puts travel then. If its home is another node, the release message is not waited
/// for: another rank that learns of the release otherwise, by a barrier, say, may find it taken for a moment
/// ([`Runtime::try_lock`]).
#[must_use = "a lock that is not kept is given back at once"]
pub struct WriteGuard<'r>(Guard<'r>);

/// A lock, held to read. Dropped, it is given back.
#[must_use = "a lock that is not kept is given back at once"]
pub struct ReadGuard<'r>(Guard<'r>);

struct Guard<'r> {
    runtime: &'r Runtime,
    place: LockPlace,
    who: LockOwner,
    write: bool,
    panicking: bool,
}

impl WriteGuard<'_> {
    /// Returns the lock's address.
    pub fn address(&self) -> GlobalAddress {
        self.0.address()
    }
}

impl ReadGuard<'_> {
    /// Returns the lock's address.
    pub fn address(&self) -> GlobalAddress {
        self.0.address()
    }
}

impl Guard<'_> {
    fn address(&self) -> GlobalAddress {
        self.place.address()
    }
}

/// This thread.
fn me(runtime: &Runtime) -> LockOwner {
    static THREADS: AtomicU32 = AtomicU32::new(1);
    thread_local! {
        static NUMBER: u32 = THREADS.fetch_add(1, Ordering::Relaxed);
    }
    LockOwner::new(runtime.rank(), NUMBER.with(|number| *number))
}

impl Runtime {
    /// Takes a lock for writing, once it is free; waits until then, serving active messages. The address is a
    /// multiple of 8 in a tiered segment.
    ///
    /// # Errors
    /// [`Error::Lock`] when it is poisoned, when waiting would never end, and when the word is no lock's; for another address; when
    /// the page cannot be read; and when a peer is lost.
    ///
    /// # Examples
    /// ```no_run
    /// # fn example(runtime: &vgas::Runtime, lock: vgas::GlobalAddress, sum: vgas::GlobalAddress) -> vgas::Result<()> {
    /// let guard = runtime.lock(lock)?;
    /// let before: f64 = runtime.get_value(sum)?;
    /// runtime.put_value(sum, before + 0.5)?;
    /// drop(guard);
    /// # Ok(()) }
    /// ```
    #[inline]
    pub fn lock(&self, at: GlobalAddress) -> Result<WriteGuard<'_>> {
        let guard = self.taken(at, true, true)?;
        guard.map(WriteGuard).ok_or_else(|| wrong(at, "was not waited for"))
    }

    /// Takes a lock for reading, once it has no writer and no writer waits that came before. Otherwise as
    /// [`Runtime::lock`].
    ///
    /// # Errors
    /// As [`Runtime::lock`].
    #[inline]
    pub fn lock_shared(&self, at: GlobalAddress) -> Result<ReadGuard<'_>> {
        let guard = self.taken(at, false, true)?;
        guard.map(ReadGuard).ok_or_else(|| wrong(at, "was not waited for"))
    }

    /// Takes a lock to write if it is free, and does not wait for it; none if it is not. Otherwise as [`Runtime::lock`].
    ///
    /// # Errors
    /// As [`Runtime::lock`].
    pub fn try_lock(&self, at: GlobalAddress) -> Result<Option<WriteGuard<'_>>> {
        Ok(self.taken(at, true, false)?.map(WriteGuard))
    }

    /// Takes a lock to read as [`Runtime::try_lock`] does to write.
    ///
    /// # Errors
    /// As [`Runtime::lock`].
    pub fn try_lock_shared(&self, at: GlobalAddress) -> Result<Option<ReadGuard<'_>>> {
        Ok(self.taken(at, false, false)?.map(ReadGuard))
    }

    /// Makes a poisoned lock usable again: the protected data is whole.
    ///
    /// # Errors
    /// As [`Runtime::lock`].
    pub fn clear_poison(&self, at: GlobalAddress) -> Result<()> {
        let place = place(at)?;
        self.ask_for_lock(at, &Request::ClearPoison(place)).map(drop)
    }

    /// Releases a lock whose guard was forgotten ([`std::mem::forget`]), for programs that cannot keep
    /// guards; by the thread that has it. One that it does not have stays as it is.
    ///
    /// # Errors
    /// For an address that is no lock's.
    pub fn unlock(&self, at: GlobalAddress, write: bool) -> Result<()> {
        let (place, who) = (place(at)?, me(self));
        drop(Guard { runtime: self, place, who, write, panicking: std::thread::panicking() });
        Ok(())
    }

    #[inline]
    fn taken(&self, at: GlobalAddress, write: bool, waits: bool) -> Result<Option<Guard<'_>>> {
        let (place, who) = (place(at)?, me(self));
        let guard = || Guard { runtime: self, place, who, write, panicking: std::thread::panicking() };
        let mut held = LockState::default();
        while let Some(next) = held.taken(who, write) {
            match self.exchange_word(place, held, next) {
                Some(was) if was == held.word() => return Ok(Some(guard())),
                // Other readers have it.
                Some(was) if !write && was & SERVED == 0 => held = LockState::from_word(was),
                _ => break,
            }
        }
        let request = match waits {
            true => Request::Lock(place, who, write),
            false => Request::TryLock(place, who, write),
        };
        Ok(self.ask_for_lock(at, &request)?.then(guard))
    }

    /// Changes the word if its page is here, or if it is this node's and no node has it, and returns the old
    /// value.
    #[inline]
    fn exchange_word(&self, place: LockPlace, from: LockState, to: LockState) -> Option<u64> {
        let change = Change::CompareSwap { expected: from.word(), desired: to.word() };
        self.client().update_here(place.partition(), place.offset, change.into())
    }

    #[cold]
    fn ask_for_lock(&self, at: GlobalAddress, request: &Request) -> Result<bool> {
        let home = self.home_of(at)?;
        self.client().check_writable(at.partition())?;
        let why = match self.call::<Locks>(home, request)? {
            Answer::Locked => return Ok(true),
            Answer::Busy => return Ok(false),
            Answer::Poisoned(by) => LockError::Poisoned { by },
            Answer::Cycle(cycle) => LockError::Cycle(describe(&cycle)),
            Answer::NoLock(word) => LockError::NoLock(word),
            Answer::Failed(code) => {
                let reason = Failure::from_code(code);
                let owner = at.partition();
                let page = PageInSegment(at.offset >> self.client().page_size_of(owner).shift());
                return Err(CacheError::Page { owner, page, reason, place: home.to_string() }.into());
            }
            Answer::Waits(_) => return Err(wrong(at, "was answered like a question")),
        };
        Err(Error::Lock { at, why })
    }

    fn home_of(&self, at: GlobalAddress) -> Result<vgas_rma::NodeId> {
        let end = at.offset.checked_add(8);
        if end.is_none_or(|end| end > self.client().bytes_of(at.partition())) {
            return Err(Error::Usage(format!("a lock at {at:?}, outside of the segment")));
        }
        Ok(self.layout().node_of(at.rank))
    }
}

fn place(at: GlobalAddress) -> Result<LockPlace> {
    match at.kind {
        _ if at.is_of_library() => Err(not_yours(at)),
        Kind::Tiered if at.offset.is_multiple_of(8) => {
            Ok(LockPlace { segment: at.segment.0, owner: at.rank, offset: at.offset })
        }
        Kind::Tiered => Err(Error::Usage(format!("a lock at offset {}, not a multiple of 8", at.offset))),
        Kind::Pinned => Err(Error::Usage(format!("a lock at {at:?}: locks are words of tiered segments"))),
    }
}

fn wrong(at: GlobalAddress, what: &str) -> Error {
    Error::Usage(format!("the lock at {} of {} {what}", at.offset, at.partition()))
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        let Self { runtime, place, who, write, panicking } = *self;
        let poison = write && !panicking && std::thread::panicking();
        // Puts under the lock are visible to the next holder, even in relaxed segments.
        if let Err(error) = runtime.client().flush_relaxed() {
            tracing::error!(%error, ?place, "puts under a lock have failed");
        }
        let mut held = match write {
            true => LockState { writer: Some(who), ..LockState::default() },
            false => LockState { readers: 1, ..LockState::default() },
        };
        while let Some(next) = held.given_back(who, write, poison) {
            match runtime.exchange_word(place, held, next) {
                Some(was) if was == held.word() => return,
                // Other readers have it, too.
                Some(was) if !write && was & SERVED == 0 => held = LockState::from_word(was),
                _ => break,
            }
        }
        let home = runtime.layout().node_of(place.owner);
        let told = runtime.client().tell::<Locks>(home, &Request::Unlock(place, who, write, poison));
        if let Err(error) = told {
            // The job is ending.
            tracing::debug!(%error, ?place, "a lock could not be given back");
        }
    }
}
