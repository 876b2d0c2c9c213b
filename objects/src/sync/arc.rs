//! Values with several owners (DRust §4.1.2).
//!
//! # Rules for the unsafe code in this file
//!
//! A handle's box is one of many boxes of the same word, each of which stands for a unit of its count
//! ([`super::count`]). It is only read through, and only by owners, until its handle is known to have the
//! last unit, or the returned units are reported as the last: then the caller owns the value, or its place,
//! or both as a box does.

use super::count::{DRAWN, FIRST, OWNER, Over, WATCHER, has_room, is_alone, over, owners, watchers};
use super::units::Units;
use super::weak::DWeak;
use crate::glue::Glue;
use crate::heap::{
    DBox, NotRead, ObjectError, Refused, add, discard_left, drop_value, is_dropping, is_own, replace,
    take_out,
};
use crate::planted::{Fault, is_planted};
use crate::word::{Link, Word};
use crate::{Layout, Portable, Shareable};
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Number of units: updated at the value, by [`add`]; in a copy it means nothing.
#[repr(transparent)]
struct Count(AtomicU64);

// SAFETY: a number, without links.
unsafe impl Portable for Count {
    const HAS_LINKS: bool = false;
    fn links(&self, _: &mut dyn FnMut(&Link)) {}
}

// SAFETY: it is never read in a copy, or at all but by `add`.
unsafe impl Shareable for Count {}

#[derive(Portable, Shareable)]
#[repr(C)]
pub(super) struct Counted<T: Shareable> {
    /// First: where [`add`] finds it.
    count: Count,
    value: T,
}

impl<T: Shareable> Counted<T> {
    fn new(value: T) -> Self {
        Self { count: Count(AtomicU64::new(FIRST)), value }
    }
}

/// A value with several owners, as [`std::sync::Arc`]: it is immutable, all read it as they read a [`DBox`],
/// through copies of their own, and the last owner drops it, once. 16 bytes, even in an `Option`.
///
/// Cloning and dropping cost no message: at the value's rank they are an update of its count; elsewhere a
/// rank's first clone draws many units of the count at once, and units left by its drops are given back with
/// those of 63 other values, or at the next [`Objects::barrier`](crate::Objects::barrier). Until then the
/// value may outlive its last owner; a handle in an object of another rank is dropped there. Units held by a
/// lost node are never given back: if the heap continues
/// ([`HeapOptions::replicas`](crate::HeapOptions::replicas)), such a value stays until the heap's end.
///
/// Values that lead back to their owners do so by [`DArc::downgrade`], which owns nothing.
///
/// Types with interior mutability cannot be in it, except the types of this module:
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
    pub(super) of: ManuallyDrop<DBox<Counted<T>>>,
}

// SAFETY: its bytes are a box's, and all its links are visited.
unsafe impl<T: Shareable> Portable for DArc<T> {
    const HAS_LINKS: bool = true;

    fn links(&self, visit: &mut dyn FnMut(&Link)) {
        self.of.links(visit);
    }

    fn weigh(&self, visit: &mut dyn FnMut(&Link, u64)) {
        self.of.weigh(visit);
    }

    fn glue(glue: &mut Glue) {
        // A unit of its count is kept, by whichever rank; what the value itself does may be done where its last unit is.
        glue.part::<T>();
    }

    fn describe(layout: &mut Layout) {
        layout.begin::<Self>();
        T::describe(layout);
    }
}

// SAFETY: as of its box, which is shareable; cloning changes nothing in it.
unsafe impl<T: Shareable> Shareable for DArc<T> {}

static UNITS: Mutex<Option<Units>> = Mutex::new(None);

pub(super) fn units<R>(work: impl FnOnce(&mut Units) -> R) -> R {
    let mut units: MutexGuard<'_, Option<Units>> = UNITS.lock().unwrap_or_else(PoisonError::into_inner);
    work(units.get_or_insert_default())
}

/// Gives units of a value back, and returns what is over by that.
fn give_back(word: Word, units: u64) -> Result<Over, ObjectError> {
    Ok(over(add::<Count>(word, units.wrapping_neg())?, units))
}

/// Does what is over for a value of this type.
pub(super) fn end<T: Shareable>(word: Word, what: Over) {
    // Values that cannot be had, or given back, are lost with their rank, and the job.
    match what {
        Over::Nothing => {}
        Over::All => drop(DBox::<Counted<T>>::of(word)),
        Over::Value => {
            // SAFETY: the rule of this file: it was told.
            let _ = unsafe { drop_value::<Counted<T>>(word) };
            end_watch::<T>(word);
        }
        Over::Place => {
            // SAFETY: the rule of this file: it was told, and the value was dropped before.
            let _ = unsafe { discard_left::<Counted<T>>(word) };
        }
    }
}

/// Gives the owners' watcher back, of a value that is gone.
fn end_watch<T: Shareable>(word: Word) {
    if is_planted(Fault::KeptWatcher) {
        return;
    }
    if let Ok(what) = give_back(word, WATCHER) {
        end::<T>(word, what);
    }
}

/// Gives back all units that this rank keeps, and drops the values whose last ones they are, with all that
/// those own.
pub(crate) fn flush() -> Result<(), ObjectError> {
    loop {
        let all = units(Units::give_all);
        if all.is_empty() {
            return Ok(());
        }
        for (word, units, end) in all {
            end(word, give_back(word, units)?);
        }
    }
}

/// One more handle of a value: an owner or a watcher, as the unit says. The caller has another one.
#[track_caller]
pub(super) fn one_more<T: Shareable>(word: Word, unit: u64) -> Result<(), ObjectError> {
    if !is_own(word) && units(|units| units.take(word, unit)) {
        return Ok(());
    }
    // The count is not over meanwhile: what the caller has is one of it.
    let drawn = if is_own(word) { unit } else { unit * DRAWN };
    let was = add::<DArc<T>>(word, drawn)?;
    if !has_room(was) {
        add::<DArc<T>>(word, drawn.wrapping_neg())?;
        return Err(ObjectError::Usage(format!("{was:#x} is the count of a value: no more can have it")));
    }
    keep::<T>(word, drawn - unit);
    Ok(())
}

/// Keeps what was drawn beyond what is used.
pub(super) fn keep<T: Shareable>(word: Word, drawn: u64) {
    if drawn > 0 {
        let lost = if is_planted(Fault::LostUnit) { owners(drawn).min(OWNER) } else { 0 };
        units(|units| units.keep(word, drawn - lost, end::<T>));
    }
}

/// A handle is dropped.
pub(super) fn one_less<T: Shareable>(word: Word, unit: u64) {
    // Units that cannot be given back are lost with their rank, and the job.
    if is_own(word) {
        if let Ok(what) = give_back(word, unit) {
            end::<T>(word, what);
        }
    } else if units(|units| units.keep(word, unit, end::<T>)) && !is_dropping() {
        // While a rank drops values for others, it keeps more: a full give-back could run the program's
        // drops, which expect no call now.
        let _ = flush();
    }
}

/// Returns the count of a value, after giving back the units that this rank keeps, which may have been the
/// last.
#[track_caller]
pub(super) fn count_of<T: Shareable>(word: Word) -> Result<u64, ObjectError> {
    let kept = units(|units| units.give(word));
    let was = add::<DArc<T>>(word, kept.wrapping_neg())?;
    if kept > 0 {
        end::<T>(word, over(was, kept));
    }
    Ok(was.wrapping_sub(kept))
}

impl<T: Shareable> DArc<T> {
    /// Places a value as [`DBox::new`] does.
    ///
    /// # Panics
    /// As [`DBox::new`].
    #[track_caller]
    pub fn new(value: T) -> Self {
        Self { of: ManuallyDrop::new(DBox::new(Counted::new(value))) }
    }

    /// Places a value as [`DBox::new`] does.
    ///
    /// # Errors
    /// As [`DBox::try_new`].
    pub fn try_new(value: T) -> Result<Self, Refused<T>> {
        match DBox::try_new(Counted::new(value)) {
            Ok(new) => Ok(Self { of: ManuallyDrop::new(new) }),
            Err(Refused { value, why }) => Err(Refused { value: value.value, why }),
        }
    }

    fn word(&self) -> Word {
        DBox::word(&self.of)
    }

    /// Returns true if two are owners of one value.
    pub fn is_same(this: &Self, other: &Self) -> bool {
        this.word() == other.word()
    }

    /// Another owner.
    ///
    /// # Errors
    /// If the count cannot be changed: a peer is lost, or there is no heap.
    #[track_caller]
    pub fn try_clone(this: &Self) -> Result<Self, ObjectError> {
        let word = this.word();
        one_more::<T>(word, OWNER)?;
        Ok(Self::of(word))
    }

    /// Many values, to read: of another node, by one message to it, as of [`DBox::read_all`](crate::DBox::read_all), and not by one for each.
    ///
    /// ```no_run
    /// # use vgas_objects::sync::DArc;
    /// fn sum(pictures: &[DArc<[u8; 4096]>]) -> u64 {
    ///     DArc::read_all(pictures).into_iter().flatten().map(|byte| u64::from(*byte)).sum()
    /// }
    /// ```
    ///
    /// # Panics
    /// If one of them cannot be reached, or there is no room for its copy; [`DArc::try_read_all`] returns the
    /// error instead.
    #[track_caller]
    pub fn read_all<'a>(all: impl IntoIterator<Item = &'a Self>) -> Vec<&'a T> {
        match Self::try_read_all(all) {
            Ok(all) => all,
            Err(why) => panic!("{why}"),
        }
    }

    /// [`DArc::read_all`].
    ///
    /// # Errors
    /// If one of them cannot be reached, or there is no room for its copy: the error names it, and the cause.
    #[track_caller]
    pub fn try_read_all<'a>(all: impl IntoIterator<Item = &'a Self>) -> Result<Vec<&'a T>, NotRead> {
        let found = DBox::find_all(all.into_iter().map(|one| &*one.of))?;
        Ok(found.into_iter().map(|counted| &counted.value).collect())
    }

    /// An owner's handle, whose unit is the caller's.
    pub(super) fn of(word: Word) -> Self {
        Self { of: ManuallyDrop::new(DBox::of(word)) }
    }

    /// Returns a weak handle, which does not keep the value: [`DWeak::upgrade`] makes it an owner while there
    /// is one. A rank's first of a value of another node takes a message and its answer; others none.
    ///
    /// # Panics
    /// If the count cannot be changed: a peer is lost, or there is no heap. [`DArc::try_downgrade`] returns
    /// the error instead.
    #[track_caller]
    pub fn downgrade(this: &Self) -> DWeak<T> {
        match Self::try_downgrade(this) {
            Ok(weak) => weak,
            Err(error) => panic!("{error}"),
        }
    }

    /// [`DArc::downgrade`].
    ///
    /// # Errors
    /// If the count cannot be changed.
    #[track_caller]
    pub fn try_downgrade(this: &Self) -> Result<DWeak<T>, ObjectError> {
        let word = this.word();
        one_more::<T>(word, WATCHER)?;
        Ok(DWeak::of(word))
    }

    /// Returns the number of owners, at some moment, after giving back the units that this rank keeps. Units
    /// kept by other ranks count, so that there may be fewer; after
    /// [`Objects::barrier`](crate::Objects::barrier) they keep none.
    ///
    /// # Errors
    /// If the count cannot be read.
    #[track_caller]
    pub fn strong_count(this: &Self) -> Result<usize, ObjectError> {
        Ok(owners(count_of::<T>(this.word())?) as usize)
    }

    /// Returns the number of [`DWeak`]s of the value, as [`DArc::strong_count`] counts.
    ///
    /// # Errors
    /// If the count cannot be read.
    #[track_caller]
    pub fn weak_count(this: &Self) -> Result<usize, ObjectError> {
        // Without that of all owners together.
        Ok(watchers(count_of::<T>(this.word())?) as usize - 1)
    }

    /// Returns the value, for writing, if this is its only owner, it has no weak handles ([`DWeak`]), and no
    /// other rank keeps units of it ([`DArc`]). Copies of the old value are never found again.
    ///
    /// # Errors
    /// If the value cannot be reached.
    #[track_caller]
    pub fn get_mut(this: &mut Self) -> Result<Option<&mut T>, ObjectError> {
        let is_alone = is_alone(count_of::<T>(this.word())?);
        Ok(if is_alone { Some(&mut this.of.get_mut().value) } else { None })
    }

    /// Returns the value, for writing: a clone, in this rank's partition, unless [`DArc::get_mut`] returns
    /// it. Other owners, and weak handles, keep the value as it was.
    ///
    /// # Errors
    /// If the value cannot be reached, or there is no room for a clone.
    #[track_caller]
    pub fn make_mut(this: &mut Self) -> Result<&mut T, ObjectError>
    where
        T: Clone,
    {
        if !is_alone(count_of::<T>(this.word())?) {
            *this = Self::try_new(T::clone(this)).map_err(|refused| *refused.why)?;
        }
        Ok(&mut this.of.get_mut().value)
    }

    /// Takes the value out of the heap, if this is its only owner and no other rank keeps units of it; else
    /// the owner stays one. Weak handles find nothing from then on.
    ///
    /// # Errors
    /// If the value cannot be reached; the owner is dropped then.
    #[track_caller]
    pub fn try_unwrap(this: Self) -> Result<Result<T, Self>, ObjectError> {
        let word = this.word();
        let mut seen = count_of::<T>(word)?;
        while !is_alone(seen) {
            if owners(seen) != 1 {
                return Ok(Err(this));
            }
            // Watched: from here on upgrades find nothing.
            let was = replace::<Self>(word, seen, seen - OWNER)?;
            if was == seen {
                this.into_word();
                // SAFETY: the rule of this file: it has given the last unit of an owner back.
                let value = unsafe { take_out::<Counted<T>>(word) }?;
                end_watch::<T>(word);
                return Ok(Ok(value.value));
            }
            seen = was;
        }
        let mut this = ManuallyDrop::new(this);
        // SAFETY: the rule of this file: it has the last unit, and is not used again.
        let owned = unsafe { ManuallyDrop::take(&mut this.of) };
        Ok(Ok(owned.into_inner().value))
    }

    /// Its word, when its unit is the caller's.
    fn into_word(self) -> Word {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: the rule of this file: not used again, and nothing is dropped with it but the use of its copy.
        unsafe { ManuallyDrop::take(&mut this.of) }.into_word()
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
    /// If [`DArc::try_clone`] fails.
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
        // SAFETY: the rule of this file: not used again, and nothing is dropped with it but the use of its copy.
        let word = unsafe { ManuallyDrop::take(&mut self.of) }.into_word();
        one_less::<T>(word, OWNER);
    }
}

impl<T: Shareable + fmt::Debug> fmt::Debug for DArc<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        T::fmt(self, f)
    }
}
