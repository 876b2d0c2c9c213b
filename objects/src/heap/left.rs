//! Objects whose value is gone, and whose slot stays for weak holders of its word ([`crate::sync::DWeak`]).
//!
//! The bytes stay unchanged, so the slot is handled as any other: a backup has them, and copies that its
//! rank's links in them count are released when the slot is freed. They are just no longer a value.

use super::{Freed, OWN, ObjectError, heap};
use crate::portable::Portable;
use crate::shape::Shape;
use crate::word::Word;
use std::mem::MaybeUninit;
use std::ptr::{with_exposed_provenance, with_exposed_provenance_mut};
use std::sync::atomic::Ordering;

/// Memory for a value, in which something was written.
fn zeros<T>() -> Box<MaybeUninit<T>> {
    let mut memory = Box::<T>::new_uninit();
    // SAFETY: as much memory as a value has, which only this has.
    unsafe { memory.as_mut_ptr().write_bytes(0, 1) };
    memory
}

/// Moves the value of an object out of it, to be dropped or used; [`discard_left`] frees its slot.
///
/// # Safety
/// The object is the caller's, it is not being read, and its value is not used again in place.
pub(crate) unsafe fn take_out<T: Portable>(word: Word) -> Result<Box<T>, ObjectError> {
    let (heap, shape) = (heap()?, const { &Shape::of::<T>() });
    // Not on the stack: it may be large.
    let mut value = zeros::<T>();
    let to = value.as_mut_ptr();
    if OWN.offset_of(word.address()).is_some() {
        let from = with_exposed_provenance::<T>(word.address() as usize);
        // SAFETY: rule 2: the caller's promise; the bytes of a value in the own partition.
        unsafe { to.copy_from_nonoverlapping(from, 1) };
        if let Some(links) = shape.links {
            // Their notes go with the value.
            links(word.address(), shape.bytes, &mut |link| link.extension.store(0, Ordering::Relaxed));
        }
    } else {
        // SAFETY: memory of this size, zeros, that only this has.
        unsafe { heap.read(word, shape, to.expose_provenance(), None) }?;
        // Its rank's notes in links count until the slot is freed, which looks at them again.
        let _ = shape.scrub(to.expose_provenance() as u64, heap.tag_of(word));
    }
    // SAFETY: rule 3: the bytes of the object.
    Ok(unsafe { value.assume_init() })
}

/// Frees the slot of an object whose value was taken out.
///
/// # Safety
/// No rank has its word any more.
pub(crate) unsafe fn discard_left<T: Portable>(word: Word) -> Result<(), ObjectError> {
    let (heap, shape) = (heap()?, const { &Shape::of::<T>() });
    if OWN.offset_of(word.address()).is_some() {
        if let Some(links) = shape.links {
            links(word.address(), shape.bytes, &mut |link| heap.release(link));
        }
        return heap.free_own(word);
    }
    let mut holds = Vec::new();
    if shape.links.is_some() {
        let mut bytes = zeros::<T>();
        let to = bytes.as_mut_ptr().expose_provenance();
        // SAFETY: memory of this size, zeros, that only this has.
        unsafe { heap.read(word, shape, to, None) }?;
        holds = shape.scrub(to as u64, heap.tag_of(word));
    }
    heap.free_there(Freed::of(word, holds, shape))
}

/// Drops the value of an object, and leaves its slot.
///
/// # Safety
/// As of [`take_out`].
pub(crate) unsafe fn drop_value<T: Portable>(word: Word) -> Result<(), ObjectError> {
    let is_here = OWN.offset_of(word.address()).is_some();
    if !std::mem::needs_drop::<T>() && !T::HAS_LINKS {
        return Ok(());
    }
    if is_here && !T::HAS_LINKS && !heap()?.has_replicas() {
        // SAFETY: rule 2: the caller's promise: it drops it where it is; no link in it is ever looked at again.
        unsafe { with_exposed_provenance_mut::<T>(word.address() as usize).drop_in_place() };
        return Ok(());
    }
    // SAFETY: the caller's promise.
    unsafe { take_out::<T>(word) }.map(drop)
}
