//! Objects without a box, for programs that keep their words themselves (DRust §4.1.1).
//!
//! [`dalloc`], [`dread`], [`dwrite`] and [`dfree`] need none: the object stays in place, and the heap keeps
//! no record of it. For another node's object, reading and writing cost a message and its answer each time.
//!
//! The caller orders the accesses: the bytes are touched as a [`crate::DBox`]'s owner touches them (rules 1
//! to 3 of this folder).

use super::error::ObjectError;
use super::period::PERIOD;
use super::{DBox, OWN, Refused, discard, heap};
use crate::bytes;
use crate::portable::Portable;
use crate::shape::Shape;
use crate::word::Word;
use std::mem::MaybeUninit;
use std::panic::Location;
use std::ptr::{with_exposed_provenance, with_exposed_provenance_mut};

impl<T: Portable> DBox<T> {
    /// Gives the object up to the holder of its word, as [`Box::into_raw`]: it is dropped when
    /// [`DBox::from_raw`] makes it a box again, and else never.
    pub fn into_raw(this: Self) -> Word {
        // The word may reach its receiver by ways outside of this crate.
        PERIOD.next();
        this.into_word()
    }

    /// Makes an object a box again, on any rank.
    ///
    /// # Safety
    /// The word was returned by [`DBox::into_raw`] of a box of the same type, in this job, and no box was
    /// made of it since.
    pub unsafe fn from_raw(word: Word) -> Self {
        Self::of(word)
    }
}

/// Places a value as [`DBox::new`] does, and yields its word, which any rank may use. The object stays in
/// place until [`dfree`].
///
/// # Errors
/// With the value, when no room is left, or there is no heap.
pub fn dalloc<T: Portable + Copy>(value: T) -> Result<Word, Refused<T>> {
    DBox::try_new(value).map(DBox::into_raw)
}

/// Reads an object in place, on any rank. No copy is kept: the next read asks again, and sees what was
/// written before it.
///
/// # Safety
/// The word was returned by [`dalloc`] of this type, in this job. It is not freed, no box is made of it, and
/// it is not written meanwhile.
///
/// # Errors
/// If the object cannot be reached.
#[track_caller]
pub unsafe fn dread<T: Portable + Copy>(word: Word) -> Result<T, ObjectError> {
    let (heap, here) = (heap()?, Location::caller());
    if OWN.offset_of(word.address()).is_some() {
        // SAFETY: rules 1 and 3: the caller's promise: an object of this type, which is not written.
        return Ok(unsafe { with_exposed_provenance::<T>(word.address() as usize).read() });
    }
    let shape = const { &Shape::of::<T>() };
    let mut value = MaybeUninit::<T>::zeroed();
    // SAFETY: rule 1: memory of this size, zeros, on this stack. It is not marked as served: the bytes are
    // not found again.
    let read = unsafe { heap.read(word, shape, value.as_mut_ptr().expose_provenance(), None) };
    read.map_err(|error| error.for_call(here))?;
    // SAFETY: rule 3: the bytes of the object; a type that is `Copy` has no links in it.
    Ok(unsafe { value.assume_init() })
}

/// Writes an object in place, on any rank: it does not move, and its word stays. When this returns, all reads
/// see it. A node's backup ([`HeapOptions::replicas`](crate::HeapOptions::replicas)) is not updated.
///
/// # Safety
/// As of [`dread`]; and it is not read meanwhile.
///
/// # Errors
/// If the object cannot be reached.
#[track_caller]
pub unsafe fn dwrite<T: Portable + Copy>(word: Word, value: T) -> Result<(), ObjectError> {
    let (heap, here) = (heap()?, Location::caller());
    if OWN.offset_of(word.address()).is_some() {
        // SAFETY: rules 1 and 2: the caller's promise: an object of this type, which has no other users.
        unsafe { with_exposed_provenance_mut::<T>(word.address() as usize).write(value) };
        return Ok(());
    }
    let shape = const { &Shape::of::<T>() };
    if shape.bytes == 0 {
        return Ok(());
    }
    let mut value = value;
    let written = heap.put(word.address(), bytes::of(&mut value));
    written.map_err(|why| heap.lost(word, shape, why).for_call(here))
}

/// Frees an object, on any rank.
///
/// # Safety
/// The word was returned by [`dalloc`] of this type, in this job, and is not used again.
///
/// # Errors
/// If its rank cannot be told; the slot is lost then.
pub unsafe fn dfree<T: Portable + Copy>(word: Word) -> Result<(), ObjectError> {
    discard(DBox::<T>::of(word))
}
