//! Locks that contain a value: it travels with the lock, and is in the lock's place while the lock is free.
//!
//! # Rules for the unsafe code in this file
//!
//! The bytes behind a free lock are a value, with extensions that are 0. An exclusive holder has the value,
//! and gives it back as bytes; a reader has a copy, which is never dropped. No pointer reaches it in place.

use super::wait;
use crate::bytes::{self, take};
use crate::heap::{
    DBox, ObjectError, OpenLoan, Refused, borrow, cannot_be_had, cannot_go_on, discard, has_links, job,
    leave_behind, pass_on, place, place_of,
};
use crate::service::Bytes;
use crate::service::locks::{Answer, GIVEN, LockService, POISONED, Request};
use crate::task::Holds;
use crate::word::Link;
use crate::{Layout, Portable, Shareable};
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::panic::Location;
use vgas::{GlobalAddress, NodeId, Rank};

/// Most bytes of a value that travels with its lock: every network's messages hold them.
const BYTES_MAX: usize = 2048;

/// Content of the lock's place.
#[derive(Portable)]
#[repr(C)]
pub(super) struct Held<T: Portable> {
    /// Written by its home and by exclusive holders: see [`poison_of`].
    pub poison: u64,
    pub value: T,
}

/// A value that one thread at a time holds, as [`std::sync::Mutex`]: locking it yields the value, and other
/// threads wait for it, in the order of their requests. 16 bytes, shareable: ranks have it in loans and in
/// boxes.
///
/// To lock it is a message to its home and the answer, with the value; to give it back is another. A value of
/// up to 2 KiB; of more, lock a [`DBox`]. A waiting thread sleeps, and serves messages meanwhile. A rank that
/// ends while it has it ends the job. A forgotten guard (`mem::forget`) holds the lock for ever: a later lock
/// or drop of the mutex waits for ever. No checkpoint is taken while a guard exists
/// ([`Objects::checkpoint`](crate::Objects::checkpoint)).
///
/// ```no_run
/// # use vgas_objects::{DVec, TaskError, scope, task};
/// # use vgas_objects::sync::DMutex;
/// # fn count() -> Result<u64, Box<dyn std::error::Error>> {
/// let count = DMutex::new(0u64);
/// scope(|scope| {
///     for _ in 0..10 {
///         let _ = scope.spawn(task!(|count: &DMutex<u64>, _n: ()| -> () { *count.lock().unwrap() += 1; }), &count, ());
///     }
/// });
/// Ok(count.into_inner()?)
/// # }
/// ```
///
/// Its content leaves it only by its owner, or behind a guard:
///
/// ```compile_fail,E0277
/// # use vgas_objects::sync::DMutex;
/// fn text() -> DMutex<String> { DMutex::new(String::new()) }
/// ```
/// ```compile_fail,E0505
/// # use vgas_objects::sync::DMutex;
/// fn early(count: DMutex<u64>) { let guard = count.lock().unwrap(); drop(count); drop(guard); }
/// ```
pub struct DMutex<T: Portable> {
    of: ManuallyDrop<DBox<Held<T>>>,
}

/// Why a lock was not had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// A thread panicked while it held it exclusively: the value may be half changed.
    /// [`DMutex::clear_poison`] declares that it is not.
    #[error("who had the lock at {0:#x} has panicked: its value may be half changed")]
    Poisoned(u64),
    /// The closure ([`DMutex::with`]) has panicked: its value may be half changed, and is poisoned.
    #[error("what was done with a lock has panicked on {rank}: {message}")]
    Panicked {
        /// The rank where it ran.
        rank: Rank,
        /// The panic's message.
        message: String,
    },
    /// The exclusive holder was on a lost node: the value is as it was before. [`DMutex::clear_poison`]
    /// declares it usable.
    #[error("who had the lock at {at:#x} was on {node}, which is lost: its value is as it was before")]
    Left {
        /// Offset of the lock in its rank's part of the heap.
        at: u64,
        /// The lost node.
        node: NodeId,
    },
    /// The exclusive holder was on a lost node, and has passed on objects meanwhile, which may have come out
    /// of it: the value is gone, for they would have two owners. [`DMutex::clear_poison`] does not help.
    #[error(
        "who had the lock at {at:#x} was on {node}, which is lost, and has passed on objects, which may be of its value: that is gone"
    )]
    Given {
        /// Offset of the lock in its rank's part of the heap.
        at: u64,
        /// The lost node.
        node: NodeId,
    },
    /// Its home is lost, which is named with the type, the place and the call; or the heap has ended.
    #[error(transparent)]
    Objects(Box<ObjectError>),
}

impl LockError {
    /// An answer that a home never gives to a waiter.
    pub(super) fn busy() -> Self {
        ObjectError::Usage("a lock that was waited for is busy".into()).into()
    }
}

impl<E: Into<ObjectError>> From<E> for LockError {
    fn from(error: E) -> Self {
        Self::Objects(Box::new(error.into()))
    }
}

// SAFETY: its bytes are a box's, and all its links are visited.
unsafe impl<T: Portable> Portable for DMutex<T> {
    const HAS_LINKS: bool = true;

    fn links(&self, visit: &mut dyn FnMut(&Link)) {
        self.of.links(visit);
    }

    fn weigh(&self, visit: &mut dyn FnMut(&Link, u64)) {
        self.of.weigh(visit);
    }

    fn describe(layout: &mut Layout) {
        layout.begin::<Self>();
        T::describe(layout);
    }
}

// SAFETY: one thread at a time has the value, which may go from one to another.
unsafe impl<T: Portable> Sync for DMutex<T> {}

// SAFETY: what changes lies behind the lock, and is never read through a copy.
unsafe impl<T: Portable> Shareable for DMutex<T> {}

/// Checks that a lock's value is whole, by its first word.
pub(super) fn poison_of(poison: u64, at: u64) -> Result<(), LockError> {
    match poison {
        0 => Ok(()),
        POISONED => Err(LockError::Poisoned(at)),
        left => {
            let node = NodeId(((left & !GIVEN) - POISONED - 1) as u32);
            Err(if left & GIVEN == 0 { LockError::Left { at, node } } else { LockError::Given { at, node } })
        }
    }
}

/// A lock at its home.
#[derive(Clone, Copy, Debug)]
pub(super) struct At {
    pub owner: u32,
    pub offset: u64,
    pub node: NodeId,
}

impl At {
    fn of<T: Portable>(of: &DBox<Held<T>>) -> Result<Self, ObjectError> {
        let at = place_of(DBox::word(of))?;
        Ok(Self { owner: at.rank.0, offset: at.offset, node: job()?.layout().node_of(at.rank) })
    }

    /// Asks its home, for this call of the program.
    #[track_caller]
    fn ask<T: Portable>(self, request: &Request) -> Result<Answer, ObjectError> {
        let here = Location::caller();
        wait::call::<LockService>(self.node, request).map_err(|error| self.cannot_be_had::<T>(error, here))
    }

    /// Makes the error for the caller.
    pub fn cannot_be_had<T: Portable>(
        self,
        error: ObjectError,
        here: &'static Location<'static>,
    ) -> ObjectError {
        let at = place(Rank(self.owner), self.offset);
        cannot_be_had::<DMutex<T>>(error, at, here)
    }

    /// Takes the lock and returns the value's bytes; none if it is held, with `try_only`.
    #[track_caller]
    pub fn lock<T: Portable>(self, shared: bool, try_only: bool) -> Result<Option<Vec<u8>>, LockError> {
        const {
            assert!(
                size_of::<Held<T>>() <= BYTES_MAX,
                "what a lock has is at most 2 KiB: put more into a DBox"
            )
        };
        let Self { owner, offset, .. } = self;
        let bytes = size_of::<Held<T>>() as u32;
        match self.ask::<T>(&Request::Lock { owner, offset, bytes, shared, try_only })? {
            Answer::Granted(Bytes(found)) if found.len() == bytes as usize => Ok(Some(found)),
            Answer::Busy => Ok(None),
            _ => {
                Err(ObjectError::Usage(format!("there is no lock at offset {offset} of {}", Rank(owner)))
                    .into())
            }
        }
    }

    /// Returns the value's bytes, once there is no exclusive holder.
    #[track_caller]
    pub fn copy<T: Portable>(self) -> Result<Vec<u8>, LockError> {
        let Self { owner, offset, .. } = self;
        let bytes = size_of::<Held<T>>() as u32;
        match self.ask::<T>(&Request::Copy { owner, offset, bytes })? {
            Answer::Granted(Bytes(found)) if found.len() == bytes as usize => Ok(found),
            _ => Err(LockError::busy()),
        }
    }

    /// Gives it back; `gives`: with a value that leads to objects. It fails only if the home is lost, and
    /// with it the job.
    pub fn unlock(self, changed: Option<Vec<u8>>, gives: bool) {
        let Self { owner, offset, node } = self;
        if changed.is_some()
            && let Err(why) = pass_on(gives)
        {
            cannot_go_on(&format!("what a lock leads to cannot be replicated: {why}"));
        }
        if let Ok(job) = job() {
            let changed = changed.map(Bytes);
            let _ = job.tell::<LockService>(node, &Request::Unlock { owner, offset, changed });
        }
    }
}

/// Waits until the values of all locks that this rank has released are written. Returns a lock that the rank still holds for writing.
pub(crate) fn settle_locks() -> Result<Option<GlobalAddress>, ObjectError> {
    let job = job()?;
    let calls =
        (0..job.nodes()).map(|node| Ok(job.start_call::<LockService>(NodeId(node), &Request::Settle)?));
    let calls: Vec<_> = calls.collect::<Result<_, ObjectError>>()?;
    let mut held = None;
    for call in calls {
        match wait::answer(call)? {
            Answer::Settled(None) => {}
            Answer::Settled(Some((owner, offset))) => {
                held = held.or(Some(place(Rank(owner), offset)));
            }
            _ => return Err(ObjectError::Usage("locks could not be settled".into())),
        }
    }
    Ok(held)
}

/// Gives the value up that is behind a lock, as bytes. It is not used again, and not dropped.
fn bytes_of<T: Portable>(held: &mut Held<T>) -> Vec<u8> {
    // A home that is lost ends the job.
    let _ = super::outlet::settle_for(held);
    // The notes of its links count no more.
    leave_behind(held);
    bytes::of(held).to_vec()
}

impl<T: Portable> DMutex<T> {
    /// A lock in this rank's partition.
    ///
    /// # Panics
    /// As [`DBox::new`].
    #[track_caller]
    pub fn new(value: T) -> Self {
        match Self::try_new(value) {
            Ok(new) => new,
            Err(refused) => panic!("{}", refused.why),
        }
    }

    /// A lock in this rank's partition.
    ///
    /// # Errors
    /// As [`DBox::try_new`].
    pub fn try_new(value: T) -> Result<Self, Refused<T>> {
        leave_behind(&value);
        match DBox::try_new(Held { poison: 0, value }) {
            Ok(of) => Ok(Self { of: ManuallyDrop::new(of) }),
            Err(Refused { value, why }) => Err(Refused { value: value.value, why }),
        }
    }

    /// Waits until it is free and takes it: the guard has its value.
    ///
    /// # Errors
    /// If it is poisoned, or its holder or its home is lost.
    #[track_caller]
    pub fn lock(&self) -> Result<Guard<'_, T>, LockError> {
        match self.have(false)? {
            Some(guard) => guard.unless_poisoned(),
            None => Err(LockError::busy()),
        }
    }

    /// [`DMutex::lock`], if it is free and has no waiters.
    ///
    /// # Errors
    /// As there.
    #[track_caller]
    pub fn try_lock(&self) -> Result<Option<Guard<'_, T>>, LockError> {
        self.have(true)?.map(Guard::unless_poisoned).transpose()
    }

    /// Declares a value whole, although a holder has panicked or is lost.
    ///
    /// # Errors
    /// If its home is lost; and [`LockError::Given`].
    #[track_caller]
    pub fn clear_poison(&self) -> Result<(), LockError> {
        let Some(mut guard) = self.have(false)? else { return Ok(()) };
        if let given @ Err(LockError::Given { .. }) = poison_of(guard.held.poison, guard.at.offset) {
            return given;
        }
        guard.held.poison = 0;
        Ok(())
    }

    pub(super) fn at(&self) -> Result<At, LockError> {
        Ok(At::of(&self.of)?)
    }

    #[track_caller]
    fn have(&self, try_only: bool) -> Result<Option<Guard<'_, T>>, LockError> {
        let at = self.at()?;
        let found = at.lock::<T>(false, try_only)?;
        Ok(found.and_then(|bytes| Guard::of(at, &bytes)))
    }

    /// Returns the value, once all holders have released it.
    ///
    /// # Errors
    /// If its home is lost.
    #[track_caller]
    pub fn into_inner(self) -> Result<T, LockError> {
        let mut this = ManuallyDrop::new(self);
        this.take()
    }

    /// Takes the value out, and frees its place: the lock has no other holder, but their releases may be in
    /// flight.
    #[track_caller]
    fn take(&mut self) -> Result<T, LockError> {
        let at = self.at()?;
        let bytes = at.lock::<T>(false, false)?.ok_or_else(LockError::busy)?;
        // SAFETY: it is the owner's.
        let held = ManuallyDrop::new(unsafe { take::<Held<T>>(&bytes) });
        let given =
            poison_of(held.poison, at.offset).err().filter(|why| matches!(why, LockError::Given { .. }));
        let Self { of } = self;
        let (owner, offset) = (at.owner, at.offset);
        // Before the place is another's, the home has forgotten the lock.
        job()?.call::<LockService>(at.node, &Request::Unlock { owner, offset, changed: None })?;
        // SAFETY: not used again.
        discard(unsafe { ManuallyDrop::take(of) })?;
        match given {
            // Another rank may own what is in it.
            Some(given) => Err(given),
            None => Ok(ManuallyDrop::into_inner(held).value),
        }
    }
}

impl<T: Portable> Drop for DMutex<T> {
    fn drop(&mut self) {
        // A value that cannot be had is lost with its home, and the job.
        drop(self.take());
    }
}

impl<T: Portable> fmt::Debug for DMutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DMutex({:?})", DBox::word(&self.of))
    }
}

/// The value of a [`DMutex`] that this thread has locked. Dropped, it is given back.
pub struct Guard<'m, T: Portable> {
    /// Given back as bytes, and so never dropped here.
    held: Box<ManuallyDrop<Held<T>>>,
    at: At,
    was_panicking: bool,
    holds: Holds,
    loan: Option<OpenLoan>,
    of: PhantomData<&'m DMutex<T>>,
}

/// Tells a lock's home that its holder is about to pass on objects. Returns when the home has noted that, or is lost.
fn notify_home(home: NodeId, owner: u32, offset: u64) -> Result<(), ObjectError> {
    let runtime = job()?;
    match runtime.call::<LockService>(home, &Request::Gives { owner, offset }) {
        Ok(Answer::Noted) => Ok(()),
        Ok(_) => Err(ObjectError::Usage("a lock's home does not note what is passed on".into())),
        // The lock is not used again.
        Err(_) if runtime.lost_nodes().contains(&home) => Ok(()),
        Err(why) => Err(why.into()),
    }
}

impl<T: Portable> Guard<'_, T> {
    /// Makes a guard from bytes that a home has given to this thread alone; none if their number is wrong.
    pub(super) fn of(at: At, bytes: &[u8]) -> Option<Self> {
        (bytes.len() == size_of::<Held<T>>()).then(|| {
            // SAFETY: it is this guard's alone.
            let held = unsafe { take::<Held<T>>(bytes) };
            let was_panicking = std::thread::panicking();
            let held = Box::new(ManuallyDrop::new(held));
            let At { owner, offset, node: home } = at;
            let notify = move || notify_home(home, owner, offset);
            let loan = if T::HAS_LINKS { borrow(home, notify) } else { None };
            Self { held, at, was_panicking, holds: Holds::one(), loan, of: PhantomData }
        })
    }

    pub(super) fn at(&self) -> At {
        self.at
    }

    /// Returns the bytes of its value, for a caller that gives it back in another way.
    pub(super) fn leave(self) -> (At, Vec<u8>) {
        let mut this = ManuallyDrop::new(self);
        let (at, bytes) = (this.at, bytes_of(&mut **this.held));
        drop(this.loan.take());
        // SAFETY: not used again; only the box is freed, whose value is never dropped here.
        drop(unsafe { (std::ptr::read(&raw mut this.held), std::ptr::read(&raw mut this.holds)) });
        (at, bytes)
    }

    pub(super) fn poison(&mut self) {
        self.held.poison = POISONED;
    }

    pub(super) fn unless_poisoned(self) -> Result<Self, LockError> {
        poison_of(self.held.poison, self.at.offset).map(|()| self)
    }
}

impl<T: Portable> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.held.value
    }
}

impl<T: Portable> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.held.value
    }
}

impl<T: Portable> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        if std::thread::panicking() && !self.was_panicking {
            self.held.poison = POISONED;
        }
        let bytes = bytes_of(&mut **self.held);
        // From here on its home has the value.
        drop(self.loan.take());
        self.at.unlock(Some(bytes), has_links(&self.held.value));
    }
}

impl<T: Portable + fmt::Debug> fmt::Debug for Guard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        T::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a value with padding is the same after it was given back and taken again, changed or not. Under Miri: nothing looks at padding.
    #[test]
    fn values_with_padding_are_given_back() {
        type Value = (u8, Option<u32>, [(u16, u8); 2]);
        let value: Value = (1, None, [(2, 3), (4, 5)]);
        let at = At { owner: 0, offset: 64, node: NodeId(0) };
        let bytes = bytes_of(&mut Held { poison: 0, value });
        let mut guard = Guard::<Value>::of(at, &bytes).unwrap();
        assert_eq!(*guard, value);
        guard.1 = Some(6);
        let (_, bytes) = guard.leave();
        let guard = Guard::<Value>::of(at, &bytes).unwrap();
        assert_eq!(*guard, (1, Some(6), value.2));
        // Without a job, there is no home to take it back.
        guard.leave();
        assert!(Guard::<Value>::of(at, &bytes[1..]).is_none());
    }
}
