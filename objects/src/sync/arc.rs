//! Values with several owners (drust-osdi24.txt §4.1.2).
//!
//! # Rules for the unsafe code in this file
//!
//! A handle's box is one of many boxes of the same word, each of which stands for a unit of its count. It is only read through, until
//! its handle is known to have the last unit, or the count has become 0: then it owns the value as a box does.

use super::units::{DRAWN, Units};
use crate::heap::{DBox, ObjectError, Refused, add, is_own};
use crate::planted::{Fault, is_planted};
use crate::word::{Link, Word};
use crate::{Layout, Portable, Shareable};
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many units there are: changed where the value is, by [`add`]; of a copy it means nothing.
#[repr(transparent)]
struct Count(AtomicU64);

// SAFETY: a number, without links.
unsafe impl Portable for Count {
    const HAS_LINKS: bool = false;
    fn links(&self, _: &mut dyn FnMut(&Link)) {}
}

// SAFETY: nobody reads it of a copy, or at all but by `add`.
unsafe impl Shareable for Count {}

#[derive(Portable, Shareable)]
#[repr(C)]
struct Counted<T: Shareable> {
    /// First: where [`add`] finds it.
    count: Count,
    value: T,
}

/// A value with several owners, as [`std::sync::Arc`]: nobody changes it, all read it as they read a [`DBox`], through copies of their
/// own, and the last owner drops it, once. 16 bytes, also in an `Option`.
///
/// Cloning and dropping cost no message: at the value's rank they are an update of its count; elsewhere a rank's first clone draws many
/// units of the count at once, and what its drops leave is given back with that of 63 other values, or at the next
/// [`Objects::barrier`](crate::Objects::barrier). Until then the value may outlive its last owner.
///
/// What can change behind a shared reference cannot be in it, except the types of this module:
///
/// ```compile_fail,E0277
/// # use vgas_objects::sync::DArc;
/// fn cell() -> DArc<std::cell::Cell<u64>> { DArc::new(std::cell::Cell::new(1)) }
/// ```
/// ```compile_fail,E0596
/// # use vgas_objects::sync::DArc;
/// fn change(mut number: DArc<u64>) { *number += 1; }
/// ```
pub struct DArc<T: Shareable> {
    of: ManuallyDrop<DBox<Counted<T>>>,
}

// SAFETY: its bytes are a box's, and all its links are visited.
unsafe impl<T: Shareable> Portable for DArc<T> {
    const HAS_LINKS: bool = true;

    fn links(&self, visit: &mut dyn FnMut(&Link)) {
        self.of.links(visit);
    }

    fn describe(layout: &mut Layout) {
        layout.begin::<Self>();
        T::describe(layout);
    }
}

// SAFETY: as of its box, which is shareable; cloning changes nothing in it.
unsafe impl<T: Shareable> Shareable for DArc<T> {}

static UNITS: Mutex<Option<Units>> = Mutex::new(None);

fn units<R>(work: impl FnOnce(&mut Units) -> R) -> R {
    let mut units: MutexGuard<'_, Option<Units>> = UNITS.lock().unwrap_or_else(PoisonError::into_inner);
    work(units.get_or_insert_default())
}

/// Gives units of a value back, and says whether they were its last.
fn give_back(word: Word, units: u64) -> Result<bool, ObjectError> {
    Ok(add::<Count>(word, units.wrapping_neg())? == units)
}

/// Gives back all units that this rank keeps, and drops the values whose last ones they are, with what those own.
pub(crate) fn flush() -> Result<(), ObjectError> {
    loop {
        let all = units(Units::give_all);
        if all.is_empty() {
            return Ok(());
        }
        for (word, units, end) in all {
            if give_back(word, units)? {
                end(word);
            }
        }
    }
}

impl<T: Shareable> DArc<T> {
    /// Places a value in this rank's partition.
    ///
    /// # Panics
    /// As [`DBox::new`].
    #[track_caller]
    pub fn new(value: T) -> Self {
        Self { of: ManuallyDrop::new(DBox::new(Counted { count: Count(AtomicU64::new(1)), value })) }
    }

    /// Places a value in this rank's partition.
    ///
    /// # Errors
    /// As [`DBox::try_new`].
    pub fn try_new(value: T) -> Result<Self, Refused<T>> {
        match DBox::try_new(Counted { count: Count(AtomicU64::new(1)), value }) {
            Ok(new) => Ok(Self { of: ManuallyDrop::new(new) }),
            Err(Refused { value, why }) => Err(Refused { value: value.value, why }),
        }
    }

    fn word(&self) -> Word {
        DBox::word(&self.of)
    }

    /// Drops a value without owners.
    fn end(word: Word) {
        drop(DBox::<Counted<T>>::of(word));
    }

    /// Whether two are owners of one value.
    pub fn is_same(this: &Self, other: &Self) -> bool {
        this.word() == other.word()
    }

    /// Another owner.
    ///
    /// # Errors
    /// When the count cannot be changed: a peer is lost, or there is no heap.
    #[track_caller]
    pub fn try_clone(this: &Self) -> Result<Self, ObjectError> {
        let word = this.word();
        if is_own(word) {
            add::<Self>(word, 1)?;
        } else if !units(|units| units.take(word)) {
            // The count is not 0 meanwhile: `this` is one of it.
            add::<Self>(word, DRAWN)?;
            let lost = u64::from(is_planted(Fault::LostUnit));
            units(|units| units.keep(word, DRAWN - 1 - lost, Self::end));
        }
        Ok(Self { of: ManuallyDrop::new(DBox::of(word)) })
    }

    /// Whether this is the only owner, after what this rank keeps was given back. What others have not given back counts.
    #[track_caller]
    fn is_alone(&self) -> Result<bool, ObjectError> {
        let kept = units(|units| units.give(self.word()));
        // Not the last: `self` has one.
        Ok(add::<Self>(self.word(), kept.wrapping_neg())? == kept + 1)
    }

    /// The value, to change it, if this is its only owner, and no other rank keeps units of it ([`DArc`]). What others have of it is
    /// never found again.
    ///
    /// # Errors
    /// When the value cannot be had.
    #[track_caller]
    pub fn get_mut(this: &mut Self) -> Result<Option<&mut T>, ObjectError> {
        Ok(if this.is_alone()? { Some(&mut this.of.get_mut().value) } else { None })
    }

    /// Takes the value out of the heap, as [`DArc::get_mut`] changes it; else the owner stays one.
    ///
    /// # Errors
    /// When the value cannot be had; the owner is dropped then.
    #[track_caller]
    pub fn try_unwrap(this: Self) -> Result<Result<T, Self>, ObjectError> {
        if !this.is_alone()? {
            return Ok(Err(this));
        }
        let mut this = ManuallyDrop::new(this);
        // SAFETY: the rule of this file: it has the last unit, and is not used again.
        let owned = unsafe { ManuallyDrop::take(&mut this.of) };
        Ok(Ok(owned.into_inner().value))
    }
}

impl<T: Shareable> Deref for DArc<T> {
    type Target = T;

    #[inline]
    #[track_caller]
    fn deref(&self) -> &T {
        &self.of.value
    }
}

impl<T: Shareable> Clone for DArc<T> {
    /// # Panics
    /// Where [`DArc::try_clone`] has an error.
    #[track_caller]
    fn clone(&self) -> Self {
        match Self::try_clone(self) {
            Ok(other) => other,
            Err(error) => panic!("{error}"),
        }
    }
}

impl<T: Shareable> Drop for DArc<T> {
    fn drop(&mut self) {
        let word = self.word();
        // SAFETY: the rule of this file: not used again, and nothing is dropped with it but the use of its copy.
        unsafe { ManuallyDrop::take(&mut self.of) }.into_word();
        // What cannot be given back is lost with its rank, and the job.
        if is_own(word) {
            if let Ok(true) = give_back(word, 1) {
                Self::end(word);
            }
        } else if units(|units| units.keep(word, 1, Self::end)) {
            let _ = flush();
        }
    }
}

impl<T: Shareable + fmt::Debug> fmt::Debug for DArc<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        T::fmt(self, f)
    }
}
