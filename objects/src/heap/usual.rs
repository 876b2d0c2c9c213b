//! Implementations of std's traits for boxes, rows and text: conversion, comparison, cloning, and changes in
//! the middle.

use super::boxes::had;
use super::vec::bounds;
use super::{DBox, DString, DVec, TBox};
use crate::portable::{Portable, Shareable};
use std::fmt;
use std::ops::{Range, RangeBounds};
use std::str::FromStr;

macro_rules! as_std_box {
    ($($of:ident)*) => { $(
        impl<T: Portable> From<T> for $of<T> {
            /// # Panics
            /// As [`DBox::new`].
            #[track_caller]
            fn from(value: T) -> Self {
                Self::new(value)
            }
        }

        impl<T: Portable + Default> Default for $of<T> {
            /// # Panics
            /// As [`DBox::new`].
            #[track_caller]
            fn default() -> Self {
                Self::new(T::default())
            }
        }

        impl<T: Shareable + Clone> Clone for $of<T> {
            /// In this rank's partition.
            ///
            /// # Panics
            /// If the object cannot be reached, or there is no room.
            #[track_caller]
            fn clone(&self) -> Self {
                Self::new(T::clone(self))
            }
        }

        impl<T: Shareable + PartialEq> PartialEq for $of<T> {
            #[track_caller]
            fn eq(&self, other: &Self) -> bool {
                **self == **other
            }
        }

        impl<T: Shareable + Eq> Eq for $of<T> {}
    )* };
}

as_std_box!(DBox TBox);

impl<T: Portable> FromIterator<T> for DVec<T> {
    /// # Panics
    /// If there is no room.
    #[track_caller]
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        let mut row = Self::new();
        row.extend(values);
        row
    }
}

impl<T: Portable> IntoIterator for DVec<T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    /// # Panics
    /// If its values cannot be reached; [`DVec::into_vec`] returns the error instead.
    #[track_caller]
    fn into_iter(self) -> Self::IntoIter {
        had(self.into_vec()).into_iter()
    }
}

impl<'v, T: Shareable> IntoIterator for &'v DVec<T> {
    type Item = &'v T;
    type IntoIter = std::slice::Iter<'v, T>;

    #[track_caller]
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'v, T: Shareable> IntoIterator for &'v mut DVec<T> {
    type Item = &'v mut T;
    type IntoIter = std::slice::IterMut<'v, T>;

    #[track_caller]
    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}

impl<T: Shareable + PartialEq> PartialEq for DVec<T> {
    #[track_caller]
    fn eq(&self, other: &Self) -> bool {
        self[..] == other[..]
    }
}

impl<T: Shareable + fmt::Debug> fmt::Debug for DVec<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<T: Portable> DVec<T> {
    /// Puts a value before the one at `at`, or behind the last; the row comes here.
    ///
    /// # Panics
    /// If there are not so many, the row cannot be reached, or there is no room.
    #[track_caller]
    pub fn insert(&mut self, at: usize, value: T) {
        assert!(at <= self.len(), "insert at {at} of {}", self.len());
        self.push(value);
        self.as_mut_slice()[at..].rotate_right(1);
    }

    /// Takes the value at `at`; those behind it follow, and the row comes here.
    ///
    /// # Panics
    /// If there are not so many, or the row cannot be reached.
    #[track_caller]
    pub fn remove(&mut self, at: usize) -> T {
        assert!(at < self.len(), "remove at {at} of {}", self.len());
        self.as_mut_slice()[at..].rotate_left(1);
        let Some(value) = self.pop() else { panic!("remove of a row without values") };
        value
    }

    /// Takes the value at `at`, and puts the last one there; the row comes here.
    ///
    /// # Panics
    /// If there are not so many, or the row cannot be reached.
    #[track_caller]
    pub fn swap_remove(&mut self, at: usize) -> T {
        let last = self.len().saturating_sub(1);
        self.as_mut_slice().swap(at, last);
        let Some(value) = self.pop() else { panic!("remove of a row without values") };
        value
    }

    /// Moves all values of another row to the end; both come here.
    ///
    /// # Panics
    /// If they cannot be reached, or there is no room.
    #[track_caller]
    pub fn append(&mut self, other: &mut Self) {
        self.extend(std::mem::take(other));
    }

    /// Drops all values for which this is not so, in no order of theirs; the others stay in theirs. The row comes here.
    ///
    /// # Panics
    /// If it cannot be reached.
    #[track_caller]
    pub fn retain(&mut self, mut is_kept: impl FnMut(&T) -> bool) {
        let values = self.as_mut_slice();
        let mut kept = 0;
        for at in 0..values.len() {
            if is_kept(&values[at]) {
                values.swap(kept, at);
                kept += 1;
            }
        }
        self.truncate(kept);
    }

    /// Takes the values of a range, which are no longer the row's at once, whatever becomes of the iterator; those behind it follow. The row
    /// comes here.
    ///
    /// # Panics
    /// If there are not so many, or the row cannot be reached.
    #[track_caller]
    pub fn drain(&mut self, range: impl RangeBounds<usize>) -> std::vec::IntoIter<T> {
        let Range { start, end } = bounds(range, self.len());
        assert!(start <= end && end <= self.len(), "drain of {start}..{end} of {}", self.len());
        self.as_mut_slice()[start..].rotate_left(end - start);
        let mut taken = Vec::with_capacity(end - start);
        taken.extend((start..end).map_while(|_| self.pop()));
        taken.reverse();
        taken.into_iter()
    }

    /// Drops each value that is as the one before it; the row comes here.
    ///
    /// # Panics
    /// If it cannot be reached.
    #[track_caller]
    pub fn dedup(&mut self)
    where
        T: PartialEq,
    {
        self.dedup_by(|value, before| value == before);
    }

    /// Drops each value for which the closure returns true of it and the last kept value; the row comes here.
    ///
    /// # Panics
    /// If it cannot be reached.
    #[track_caller]
    pub fn dedup_by(&mut self, mut is_same: impl FnMut(&mut T, &mut T) -> bool) {
        let values = self.as_mut_slice();
        let mut kept = values.len().min(1);
        for at in 1..values.len() {
            let (before, rest) = values.split_at_mut(at);
            if !is_same(&mut rest[0], &mut before[kept - 1]) {
                values.swap(kept, at);
                kept += 1;
            }
        }
        self.truncate(kept);
    }

    /// Adds clones of values at the end; the row comes here.
    ///
    /// # Panics
    /// If it cannot be reached, or there is no room; [`DVec::try_extend_from`] returns the error instead.
    #[track_caller]
    pub fn extend_from_slice(&mut self, values: &[T])
    where
        T: Clone,
    {
        self.extend(values.iter().cloned());
    }

    /// Makes the row `count` values long, with clones of a value for new ones; it comes here.
    ///
    /// # Panics
    /// If it cannot be reached, or there is no room.
    #[track_caller]
    pub fn resize(&mut self, count: usize, value: T)
    where
        T: Clone,
    {
        self.truncate(count);
        let more = count - self.len();
        self.extend(std::iter::repeat_n(value, more));
    }
}

impl<T: Shareable> DVec<T> {
    /// All values, to read. As `Deref`.
    ///
    /// # Panics
    /// If they cannot be reached; [`DVec::try_as_slice`] returns the error instead.
    #[inline]
    #[track_caller]
    pub fn as_slice(&self) -> &[T] {
        self
    }
}

impl<T: Shareable + Clone> Clone for DVec<T> {
    /// In this rank's partition.
    ///
    /// # Panics
    /// If the values cannot be reached, or there is no room.
    #[track_caller]
    fn clone(&self) -> Self {
        self.iter().cloned().collect()
    }
}

impl<T: Shareable + Eq> Eq for DVec<T> {}

impl<T: Shareable + PartialEq> PartialEq<[T]> for DVec<T> {
    #[track_caller]
    fn eq(&self, other: &[T]) -> bool {
        self[..] == *other
    }
}

impl<T: Shareable + PartialEq, const N: usize> PartialEq<[T; N]> for DVec<T> {
    #[track_caller]
    fn eq(&self, other: &[T; N]) -> bool {
        self[..] == *other
    }
}

impl<T: Portable + Clone> From<&[T]> for DVec<T> {
    /// # Panics
    /// If there is no room.
    #[track_caller]
    fn from(values: &[T]) -> Self {
        values.iter().cloned().collect()
    }
}

impl<T: Portable, const N: usize> From<[T; N]> for DVec<T> {
    /// # Panics
    /// If there is no room.
    #[track_caller]
    fn from(values: [T; N]) -> Self {
        values.into_iter().collect()
    }
}

impl<'v, T: Portable + Copy> Extend<&'v T> for DVec<T> {
    /// # Panics
    /// If there is no room.
    #[track_caller]
    fn extend<I: IntoIterator<Item = &'v T>>(&mut self, values: I) {
        self.extend(values.into_iter().copied());
    }
}

impl<T: Shareable> AsRef<[T]> for DVec<T> {
    #[track_caller]
    fn as_ref(&self) -> &[T] {
        self
    }
}

impl DString {
    /// Adds a character at the end; all of it comes here.
    ///
    /// # Panics
    /// If there is no room.
    #[track_caller]
    pub fn push(&mut self, character: char) {
        self.push_str(character.encode_utf8(&mut [0; 4]));
    }

    /// All of it, to read. As `Deref`.
    ///
    /// # Panics
    /// If it cannot be reached; [`DString::try_as_str`] returns the error instead.
    #[track_caller]
    pub fn as_str(&self) -> &str {
        self
    }
}

impl Clone for DString {
    /// In this rank's partition.
    ///
    /// # Panics
    /// If it cannot be reached, or there is no room.
    #[track_caller]
    fn clone(&self) -> Self {
        self.as_str().into()
    }
}

impl From<String> for DString {
    /// # Panics
    /// If there is no room.
    #[track_caller]
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

impl From<char> for DString {
    /// # Panics
    /// If there is no room.
    #[track_caller]
    fn from(character: char) -> Self {
        (&*character.encode_utf8(&mut [0; 4])).into()
    }
}

impl FromStr for DString {
    type Err = std::convert::Infallible;

    /// # Panics
    /// If there is no room.
    #[track_caller]
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(text.into())
    }
}
