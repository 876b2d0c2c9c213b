//! Pinned pages: plain pointers into frames. What a pin keeps is defined in [`crate::pool`].

use super::entry::{Entry, PageState};
use super::shared::{Pins, Shared};
use super::size::FrameId;
use crate::page::PageIndex;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire};
use std::sync::atomic::{AtomicU64, fence};
use vgas_shm::copy::copy;

/// What a pin keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PinMode {
    /// The frame: the pointer stays valid and never shows another page. Other nodes may write the page meanwhile; then
    /// the pointer shows the page as it was before.
    Read,
    /// The page: this node alone has it and may write through the pointer; other nodes wait. Keep it short, and don't
    /// wait for another node while holding it. It counts as a write of the page, because stores through the pointer are not seen.
    Write,
}

/// A page that stays at its address until this is dropped. May be moved between threads.
pub struct PinnedPage {
    shared: Arc<Shared>,
    page: PageIndex,
    word: *const AtomicU64,
    frame: FrameId,
    address: *mut u8,
    bytes: u32,
    mode: PinMode,
}

// SAFETY: the addresses point into mappings that `shared` keeps (rule 1); the pin belongs to no thread.
unsafe impl Send for PinnedPage {}
// SAFETY: as above; shared use reads an atomic and copies bytes under rule 4.
unsafe impl Sync for PinnedPage {}

impl std::fmt::Debug for PinnedPage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PinnedPage({} in frame {}, {:?})", self.page, self.frame.0, self.mode)
    }
}

impl PinnedPage {
    /// A pin that was counted already; `word` is the page's entry, `memory` the address and the length of the frame's bytes.
    pub(super) fn new(
        shared: Arc<Shared>,
        page: PageIndex,
        word: &AtomicU64,
        frame: FrameId,
        (address, bytes): (*mut u8, u32),
        mode: PinMode,
    ) -> Self {
        Self { shared, page, word, frame, address, bytes, mode }
    }

    /// The page's number.
    pub fn page(&self) -> PageIndex {
        self.page
    }

    /// First byte of the page. May be read (with [`PinMode::Write`] also written) for [`PinnedPage::bytes`] bytes until
    /// the pin is dropped; other ranks of the node may use the same bytes, so races must be excluded by the program or
    /// tolerated.
    #[inline]
    pub fn address(&self) -> *mut u8 {
        self.address
    }

    /// Size of the page.
    #[inline]
    pub fn bytes(&self) -> u32 {
        self.bytes
    }

    /// Whether the frame is still the node's valid copy of the page. Bytes read *before* a call that returns true were
    /// the latest. False may be passing (the agent has just begun to look at the page): unpin, ask again, pin again.
    #[inline]
    pub fn is_current(&self) -> bool {
        // The reads that are to be judged come before this one.
        fence(Acquire);
        // SAFETY: rule 1: `shared` keeps the table; rule 2: the page was checked when it was pinned.
        let entry = Entry::from_word(unsafe { &*self.word }.load(Acquire)).with_ahead(false);
        entry.rights().wrapping_sub(PageState::Shared as u32) < PageState::Modified as u32
            && entry.frame() == self.frame
    }

    /// Reads bytes of the page. False when the range is not inside, or when the page is not current any more; then the
    /// bytes in `to` are of no use.
    ///
    /// # Safety
    /// `to` is valid for writing `bytes` bytes.
    #[inline]
    pub unsafe fn try_get(&self, in_page: u32, to: *mut u8, bytes: u32) -> bool {
        if u64::from(in_page) + u64::from(bytes) > u64::from(self.bytes) {
            return false;
        }
        // SAFETY: rule 3: pinned; rule 2: just checked; the destination is the caller's.
        unsafe { copy(self.address.add(in_page as usize), to, bytes as usize) };
        self.is_current()
    }

    /// Writes bytes of the page. False, and nothing written, when the range is not inside or the pin is a read pin.
    ///
    /// # Safety
    /// `from` is valid for reading `bytes` bytes.
    #[inline]
    pub unsafe fn try_put(&self, in_page: u32, from: *const u8, bytes: u32) -> bool {
        let inside = u64::from(in_page) + u64::from(bytes) <= u64::from(self.bytes);
        if !inside || self.mode != PinMode::Write {
            return false;
        }
        // SAFETY: as in `try_get`.
        unsafe { copy(from, self.address.add(in_page as usize), bytes as usize) };
        true
    }
}

impl Drop for PinnedPage {
    fn drop(&mut self) {
        let unit = match self.mode {
            PinMode::Read => Pins::READER,
            PinMode::Write => Pins::WRITER,
        };
        if let Ok(pins) = self.shared.pins(self.frame) {
            // Release: what was written through the pointer is visible to an agent that finds the pin gone.
            pins.fetch_sub(unit, AcqRel);
        }
    }
}
