//! Numbers of pages, as types, so that one is not taken for another. Pure.
//!
//! A page has two numbers: one among all pages of the job ([`PageIndex`]), by which agents, messages and the page table know it,
//! and one in the partition that it belongs to ([`PageInSegment`]), by which its file, its owner's pointers and people know it.
//! A page's index is the [index of its partition's first page](crate::partition::Partition::first) plus its number there. Bare numbers are counts, or
//! distances between pages.

#![forbid(unsafe_code)]

use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::{Add, AddAssign, Range, Sub};

/// Most tiered segments of a job at the same time.
pub const SEGMENTS_MAX: u16 = 1024;

macro_rules! page_numbers {
    ($($(#[$about:meta])* $name:ident;)*) => {$(
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[repr(transparent)]
        pub struct $name(pub u64);

        impl $name {
            /// The page so many behind it; the last that there can be if there are not as many.
            #[inline]
            pub const fn saturating_add(self, pages: u64) -> Self {
                Self(self.0.saturating_add(pages))
            }

            /// The page so many behind it; none if no page can have that number.
            #[inline]
            pub fn checked_add(self, pages: u64) -> Option<Self> {
                self.0.checked_add(pages).map(Self)
            }

            /// All pages of a range, in order.
            #[inline]
            pub fn each(range: Range<Self>) -> impl DoubleEndedIterator<Item = Self> + use<> {
                (range.start.0..range.end.0).map(Self)
            }
        }

        impl Add<u64> for $name {
            type Output = Self;

            #[inline(always)]
            fn add(self, pages: u64) -> Self {
                Self(self.0 + pages)
            }
        }

        impl AddAssign<u64> for $name {
            #[inline(always)]
            fn add_assign(&mut self, pages: u64) {
                self.0 += pages;
            }
        }

        impl Sub for $name {
            /// How many pages lie from the other one up to this one.
            type Output = u64;

            #[inline(always)]
            fn sub(self, other: Self) -> u64 {
                self.0 - other.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}

page_numbers! {
    /// A page, by its number among all pages of the job ([`TableLayout`](crate::pool::TableLayout)): equal on all nodes.
    PageIndex;
    /// A page, by its number in its partition of a segment: 0 is the one with the partition's first byte.
    ///
    /// It is not an index, and does not become one by itself:
    ///
    /// ```compile_fail
    /// # use vgas_cache::page::{PageIndex, PageInSegment};
    /// let page: PageIndex = PageInSegment(3);
    /// ```
    ///
    /// but from its partition's first page on:
    ///
    /// ```
    /// # use vgas_cache::page::{PageIndex, PageInSegment};
    /// assert_eq!(PageIndex(100) + PageInSegment(3), PageIndex(103));
    /// ```
    PageInSegment;
}

impl PageIndex {
    /// No page has this one.
    pub const MAX: Self = Self(u64::MAX);

    /// The page so many steps on, backwards if negative; none if no page can have that number.
    #[inline]
    pub fn step(self, pages: i64) -> Option<Self> {
        self.0.checked_add_signed(pages).map(Self)
    }

    /// The last page up to this one whose index is a multiple of so many.
    #[inline]
    pub fn floor(self, multiple: u64) -> Self {
        Self(self.0 - self.0 % multiple)
    }

    /// How many pages it lies behind another one; negative if before it.
    #[inline]
    pub fn distance(self, other: Self) -> i64 {
        self.0.wrapping_sub(other.0) as i64
    }

    /// Which page it is of a partition that begins at `first`.
    #[inline(always)]
    pub fn within(self, first: Self) -> PageInSegment {
        PageInSegment(self.0 - first.0)
    }
}

impl Add<PageInSegment> for PageIndex {
    type Output = Self;

    #[inline(always)]
    fn add(self, page: PageInSegment) -> Self {
        Self(self.0 + page.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_counted_and_numbered() {
        let (first, last) = (PageIndex(100), PageIndex(103));
        assert_eq!((last - first, first.distance(last), first + 3), (3, -3, last));
        assert_eq!((last.within(first), first + PageInSegment(3)), (PageInSegment(3), last));
        let between: Vec<u64> = PageIndex::each(first..last).map(|page| page.0).collect();
        assert_eq!((between, PageIndex::each(last..first).count()), (vec![100, 101, 102], 0));
        assert_eq!(
            (first.step(-100), first.step(-101), PageIndex::MAX.step(1)),
            (Some(PageIndex(0)), None, None)
        );
        assert_eq!((last.floor(64), first.floor(100)), (PageIndex(64), first));
        assert_eq!((PageIndex::MAX.saturating_add(1), PageIndex::MAX.checked_add(1)), (PageIndex::MAX, None));
    }
}
