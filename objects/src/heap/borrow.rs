//! Borrowed objects.

use super::error::ObjectError;
use super::{OWN, heap};
use crate::portable::Shareable;
use crate::shape::Shape;
use crate::word::{Link, Word};
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::{NonNull, with_exposed_provenance, with_exposed_provenance_mut};

/// An object that is borrowed for reading (DRust, Algorithm 2): itself, or a copy that stays while this lives.
pub struct Ref<'b, T: Shareable> {
    value: NonNull<T>,
    /// For a copy: the word it is counted under.
    held: Option<Word>,
    borrows: PhantomData<&'b T>,
}

// SAFETY: rule 2: it is a shared reference, and the count of its copy is kept under a lock.
unsafe impl<T: Shareable> Send for Ref<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Shareable> Sync for Ref<'_, T> {}

impl<T: Shareable> Ref<'_, T> {
    /// Borrows an object for as long as the result may live.
    pub(super) fn of(word: Word) -> Result<Self, ObjectError> {
        let heap = heap()?;
        let (address, held) = match OWN.offset_of(word.address()) {
            Some(_) => (word.address(), None),
            None => match heap.in_place(word, const { &Shape::of::<T>() }) {
                Some(address) => (address, None),
                None => (heap.hold(word, const { &Shape::of::<T>() })?, Some(word)),
            },
        };
        Self::at(address, held)
    }

    /// Borrows an object of another rank, whose bytes have arrived.
    pub(super) fn of_bytes(word: Word, bytes: &[u8]) -> Result<Self, ObjectError> {
        let heap = heap()?;
        let address = heap.copies.hold(word, || heap.keep(word, const { &Shape::of::<T>() }, bytes))?;
        Self::at(address, Some(word))
    }

    /// Borrows an object that is local, or its copy, one use of which is the caller's.
    pub(super) fn at(address: u64, held: Option<Word>) -> Result<Self, ObjectError> {
        let value = NonNull::new(with_exposed_provenance_mut(address as usize)).ok_or(ObjectError::NoHeap)?;
        Ok(Self { value, held, borrows: PhantomData })
    }
}

impl<T: Shareable> Deref for Ref<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: rule 2: the object is borrowed, or its copy is counted.
        unsafe { self.value.as_ref() }
    }
}

impl<T: Shareable> Clone for Ref<'_, T> {
    fn clone(&self) -> Self {
        if let (Some(word), Ok(heap)) = (self.held, heap()) {
            heap.copies.hold_again(word);
        }
        Self { ..*self }
    }
}

impl<T: Shareable> Drop for Ref<'_, T> {
    fn drop(&mut self) {
        if let (Some(word), Ok(heap)) = (self.held, heap()) {
            heap.copies.release(word);
        }
    }
}

impl<T: Shareable + fmt::Debug> fmt::Debug for Ref<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        T::fmt(self, f)
    }
}

/// An object that is borrowed for writing (DRust, Algorithm 1): it is in this rank's partition, in a colour
/// that no other rank has seen.
pub struct MutRef<'b, T: Shareable> {
    /// The link of its owner.
    link: &'b mut Link,
    borrows: PhantomData<&'b mut T>,
}

impl<'b, T: Shareable> MutRef<'b, T> {
    /// Borrows the object of this link, which is in this rank's partition, in a colour that no other rank has seen.
    pub(super) fn of_own(link: &'b mut Link) -> Self {
        Self { link, borrows: PhantomData }
    }
}

impl<T: Shareable> Deref for MutRef<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: rules 1 and 2: it was brought here, and nothing else can have taken it since.
        unsafe { &*with_exposed_provenance(self.link.word.address() as usize) }
    }
}

impl<T: Shareable> DerefMut for MutRef<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above; the box is mutably borrowed, and no other rank is served meanwhile.
        unsafe { &mut *with_exposed_provenance_mut(self.link.word.address() as usize) }
    }
}

impl<T: Shareable + fmt::Debug> fmt::Debug for MutRef<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        T::fmt(self, f)
    }
}
