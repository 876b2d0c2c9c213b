//! Some values of a row, borrowed.

use super::error::ObjectError;
use super::{Heap, heap};
use crate::portable::{Portable, Shareable};
use crate::shape::Shape;
use crate::slab::Class;
use crate::word::Word;
use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Deref;

/// Some values of a [`DVec`](super::DVec), borrowed: in place, or for this borrow only.
pub struct Part<'v, T: Shareable> {
    values: Values<T>,
    of: PhantomData<&'v T>,
}

impl<T: Shareable> Part<'_, T> {
    /// Values that are borrowed for as long as the result may live.
    pub(super) fn of(values: Values<T>) -> Self {
        Self { values, of: PhantomData }
    }
}

/// Location of the values.
pub(super) enum Values<T> {
    /// In the row, or in its copy.
    Here(*const T, usize),
    /// Read for this part: never dropped, as copies are not.
    Read(Box<[MaybeUninit<T>]>),
}

// SAFETY: rule 2: it is a shared reference to values, or has them.
unsafe impl<T: Shareable> Send for Part<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Shareable> Sync for Part<'_, T> {}

impl<T: Portable> Values<T> {
    /// Reads `count` values of a row from `first` on.
    pub(super) fn read(heap: &Heap, word: Word, first: usize, count: usize) -> Result<Self, ObjectError> {
        let mut values: Box<[MaybeUninit<T>]> = (0..count).map(|_| MaybeUninit::zeroed()).collect();
        let shape = Shape::of_some::<T>(Class::Small(0), count);
        // In the colour of the row: its address is only where to read.
        let from = Word::new(word.address() + (size_of::<T>() * first) as u64, word.colour());
        let to = values.as_mut_ptr().expose_provenance();
        // SAFETY: memory of this size, zeros, which only this code uses.
        unsafe { heap.read(from.ok_or(ObjectError::NoHeap)?, &shape, to, None) }?;
        // Its rank's notes there still count for that rank.
        shape.scrub(to as u64, 0);
        Ok(Self::Read(values))
    }
}

impl<T: Shareable> Deref for Part<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        let (values, count) = match &self.values {
            Values::Here(values, count) => (*values, *count),
            Values::Read(values) => (values.as_ptr().cast(), values.len()),
        };
        // SAFETY: rules 2 and 3: values of the row, which is borrowed, or their bytes.
        unsafe { std::slice::from_raw_parts(values, count) }
    }
}

impl<T: Shareable> Drop for Part<'_, T> {
    fn drop(&mut self) {
        let (Values::Read(values), true, Ok(heap)) = (&self.values, T::HAS_LINKS, heap()) else { return };
        let shape = Shape::of_some::<T>(Class::Small(0), values.len());
        if let Some(links) = shape.links {
            // Copies that were found through it are counted no more.
            let at = values.as_ptr().expose_provenance() as u64;
            links(at, shape.bytes, &mut |link| heap.release(link));
        }
    }
}

impl<T: Shareable + fmt::Debug> fmt::Debug for Part<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
