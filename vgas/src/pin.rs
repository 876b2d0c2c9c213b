//! Pages of tiered segments that are kept in this node's DRAM, for the fastest access there is.

use crate::address::{GlobalAddress, Kind};
use crate::error::{Error, Result};
use crate::memory::not_yours;
use crate::runtime::Runtime;
use bytemuck::Pod;
use std::ops::Range;
use vgas_cache::pool::{self, PinMode};

/// A page that stays in this node's DRAM until this is dropped; made by [`Runtime::pin`].
///
/// Values read are always the latest, as those of [`Runtime::get`]: when another node has written the page since it was
/// pinned for reading, it is read again. That costs as much as a get, every time; [`PinnedPage::refresh`] pins the page as
/// it is now.
pub struct PinnedPage<'r> {
    runtime: &'r Runtime,
    page: pool::PinnedPage,
    start: GlobalAddress,
    mode: PinMode,
}

impl std::fmt::Debug for PinnedPage<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PinnedPage({:?} of {}, {:?})", self.range(), self.start.rank, self.mode)
    }
}

impl Runtime {
    /// Pins the page that holds `at`, an address in a tiered segment. Waits until it is here.
    ///
    /// [`PinMode::Read`]: other nodes are not affected. [`PinMode::Write`]: other nodes that want the page
    /// wait until it is unpinned, so keep it short, and do not wait for another rank meanwhile: it may wait
    /// for the page.
    ///
    /// # Errors
    /// As of a get; and for pages that cannot be kept because several nodes write them in turn, so that they
    /// are served in place at their home. Pinned segments are always here or never: they have no pages to
    /// pin.
    pub fn pin(&self, at: GlobalAddress, mode: PinMode) -> Result<PinnedPage<'_>> {
        if at.kind != Kind::Tiered {
            return Err(Error::Usage("only pages of tiered segments are pinned".into()));
        }
        if mode == PinMode::Write && at.is_of_library() {
            return Err(not_yours(at));
        }
        let page = self.client().pin(at.partition(), at.offset, mode)?;
        let start = GlobalAddress { offset: at.offset - at.offset % u64::from(page.bytes()), ..at };
        Ok(PinnedPage { runtime: self, page, start, mode })
    }
}

impl PinnedPage<'_> {
    /// The bytes of the segment that the page holds.
    pub fn range(&self) -> Range<u64> {
        self.start.offset..self.start.offset + u64::from(self.page.bytes())
    }

    /// Returns true if the next read will be served by the pinned page itself.
    pub fn is_current(&self) -> bool {
        self.page.is_current()
    }

    /// Reads plain values `offset` bytes behind the start of the page.
    ///
    /// # Errors
    /// If the values are not all inside of the page; and as of a get, for a page that is not current any
    /// more.
    #[inline]
    pub fn get<T: Pod>(&self, offset: u32, to: &mut [T]) -> Result<()> {
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(to);
        let fits = bytes.len() <= self.page.bytes() as usize;
        // SAFETY: the slice is exclusively borrowed for the call.
        let done = fits && unsafe { self.page.try_get(offset, bytes.as_mut_ptr(), bytes.len() as u32) };
        if done {
            return Ok(());
        }
        self.check(offset, bytes.len())?;
        self.runtime.get(self.at(offset), bytes)
    }

    /// Reads one plain value.
    #[inline]
    pub fn get_value<T: Pod>(&self, offset: u32) -> Result<T> {
        let mut value = [T::zeroed()];
        self.get(offset, &mut value)?;
        Ok(value[0])
    }

    /// Writes plain values `offset` bytes behind the start of the page. Visible everywhere when it returns:
    /// no other node has a copy of a page that is pinned for writing; they wait for it.
    ///
    /// # Errors
    /// If the page is pinned for reading, or the values are not all inside of it.
    #[inline]
    pub fn put<T: Pod>(&self, offset: u32, from: &[T]) -> Result<()> {
        let bytes: &[u8] = bytemuck::cast_slice(from);
        let fits = bytes.len() <= self.page.bytes() as usize;
        // SAFETY: the slice is borrowed for the call.
        let done = fits && unsafe { self.page.try_put(offset, bytes.as_ptr(), bytes.len() as u32) };
        if done {
            return Ok(());
        }
        self.check(offset, bytes.len())?;
        Err(Error::Usage("the page is pinned for reading; pin it with PinMode::Write".into()))
    }

    /// Writes one plain value.
    #[inline]
    pub fn put_value<T: Pod>(&self, offset: u32, value: T) -> Result<()> {
        self.put(offset, &[value])
    }

    /// Pins the page as it is now, if another node has written it.
    ///
    /// # Errors
    /// As of [`Runtime::pin`]; then the page stays pinned as it was.
    pub fn refresh(&mut self) -> Result<()> {
        if !self.page.is_current() {
            self.page = self.runtime.client().pin(self.start.partition(), self.start.offset, self.mode)?;
        }
        Ok(())
    }

    fn at(&self, offset: u32) -> GlobalAddress {
        GlobalAddress { offset: self.start.offset + u64::from(offset), ..self.start }
    }

    fn check(&self, offset: u32, bytes: usize) -> Result<()> {
        if u64::from(offset) + bytes as u64 <= u64::from(self.page.bytes()) {
            return Ok(());
        }
        let page = self.page.bytes();
        Err(Error::Usage(format!("{bytes} bytes at {offset} are outside of a pinned page of {page}")))
    }
}
