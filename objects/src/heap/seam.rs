//! What the sharing types need of the heap ([`crate::sync`]).

use super::shape::Shape;
use super::{DBox, Freed, OWN, ObjectError, heap, job};
use crate::portable::Portable;
use crate::word::Word;
use vgas::{AtomicWord, Change, GlobalAddress};

/// Where an object is.
pub(crate) fn place_of(word: Word) -> Result<GlobalAddress, ObjectError> {
    Ok(heap()?.locate(word.address()))
}

/// Updates the number that an object is, or begins with, where it is: yields what it was.
pub(crate) fn update<N: AtomicWord>(word: Word, change: Change<N>) -> Result<N, ObjectError> {
    Ok(job()?.update(place_of(word)?, change)?)
}

/// Whether an object lies in this rank's partition.
#[inline]
pub(crate) fn is_own(word: Word) -> bool {
    OWN.offset_of(word.address()).is_some()
}

/// Frees an object's slot, whose value is not there any more.
pub(crate) fn discard<T: Portable>(of: DBox<T>) -> Result<(), ObjectError> {
    let (heap, word) = (heap()?, of.into_word());
    match is_own(word) {
        true => heap.free_own(word),
        false => heap.free_there(Freed::of(word, Vec::new(), const { &Shape::of::<T>() })),
    }
}
