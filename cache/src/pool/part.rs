//! Pages, and bytes of one, as users of the pool name them.

#![forbid(unsafe_code)]

use super::size::PageSize;
use crate::page::PageIndex;

/// A page, as users of the pool name it. Whoever says the wrong size finds other bytes, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// Its number.
    pub number: PageIndex,
    /// How large it is ([`size_of`](super::TableLayout::size_of)).
    pub size: PageSize,
}

/// Some bytes of one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PagePart {
    pub(super) page: PageIndex,
    pub(super) in_page: u32,
    /// So many that they end in the page.
    pub(super) bytes: u32,
}

impl PagePart {
    /// None: they do not end in the page.
    #[inline(always)]
    pub fn new(page: Page, in_page: u32, bytes: u32) -> Option<Self> {
        let is_inside = u64::from(in_page) + u64::from(bytes) <= u64::from(page.size.bytes());
        is_inside.then_some(Self { page: page.number, in_page, bytes })
    }

    /// The page's number.
    #[inline(always)]
    pub fn page(self) -> PageIndex {
        self.page
    }

    #[inline(always)]
    pub(super) fn end(self) -> u32 {
        self.in_page + self.bytes
    }
}
