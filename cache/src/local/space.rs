//! The addresses of a local segment: reserved for as long as it lives, backed by frames page by page.

use super::uffd::{Announcing, Userfaultfd};
use super::{Mechanism, Trouble};
use crate::page::PageInSegment;
use crate::pool::FrameId;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mmap_anonymous, mprotect, munmap};
use std::ffi::c_void;
use std::os::fd::OwnedFd;
use std::ptr::null_mut;

/// Up to this size a page's translations are all made when it is mapped (16 of them cost less than one more fault);
/// those of larger pages are made by the kernel when they are touched.
const POPULATED_BYTES_MAX: usize = 64 << 10;

/// A range of addresses with nothing but guards around it. Its pages are hidden (every access faults) or show a frame.
pub(super) struct Space {
    /// What was reserved: the range and its guards; or the range alone, in what somebody else has reserved.
    reserved: *mut c_void,
    reserved_bytes: usize,
    is_lent: bool,
    base: usize,
    bytes: usize,
    page_bytes: usize,
    frames: OwnedFd,
    userfaultfd: Option<Userfaultfd>,
}

// SAFETY: the addresses are numbers here; the kernel orders changes of mappings (rule 2 of the folder says who makes
// them).
unsafe impl Send for Space {}
// SAFETY: as above.
unsafe impl Sync for Space {}

impl Space {
    /// Reserves addresses for `bytes` bytes, a whole number of pages, all hidden; or takes those from `at` on.
    ///
    /// # Safety
    /// The addresses from `at` on belong to an [`Everywhere`](super::Everywhere) that lives longer, and nothing else is there.
    pub unsafe fn reserve(
        bytes: usize,
        at: Option<usize>,
        page_bytes: usize,
        frames: OwnedFd,
        mechanism: Mechanism,
    ) -> Result<Self, Trouble> {
        if let Some(base) = at {
            let reserved = std::ptr::with_exposed_provenance_mut(base);
            let mut space = Self {
                reserved,
                reserved_bytes: bytes,
                is_lent: true,
                base,
                bytes,
                page_bytes,
                frames,
                userfaultfd: None,
            };
            space.announce(mechanism)?;
            return Ok(space);
        }
        // A guard on each side, and room to align the range to its pages.
        let reserved_bytes =
            bytes.checked_add(3 * page_bytes).ok_or(Trouble::System(rustix::io::Errno::NOMEM))?;
        // SAFETY: rule 1: fresh addresses, chosen by the kernel, without access.
        let reserved = unsafe {
            mmap_anonymous(
                null_mut(),
                reserved_bytes,
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }
        .map_err(Trouble::System)?;
        let base = (reserved.addr() + page_bytes).next_multiple_of(page_bytes);
        let (userfaultfd, is_lent) = (None, false);
        let mut space =
            Self { reserved, reserved_bytes, is_lent, base, bytes, page_bytes, frames, userfaultfd };
        space.announce(mechanism)?;
        Ok(space)
    }

    /// Has faults announced as the mechanism says.
    fn announce(&mut self, mechanism: Mechanism) -> Result<(), Trouble> {
        if let Mechanism::Userfaultfd(announcing) = mechanism {
            self.userfaultfd = Some(Userfaultfd::open(announcing).map_err(Trouble::System)?);
            self.hide_bytes(self.base, self.bytes)?;
        }
        Ok(())
    }

    /// First address.
    pub fn base(&self) -> usize {
        self.base
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The userfaultfd that announces faults to threads of ours.
    pub fn announcing(&self) -> Option<&Userfaultfd> {
        self.userfaultfd.as_ref().filter(|one| one.announcing() == Announcing::ToThread)
    }

    fn address_of(&self, page: PageInSegment) -> usize {
        let offset = page.0 as usize * self.page_bytes;
        assert!(offset < self.bytes, "page {page} is not of this segment");
        self.base + offset
    }

    /// Takes the frames of so many pages out of sight. When it has returned, no store of any thread reaches them by these
    /// pages' addresses any more. By whoever has the pages busy.
    pub fn hide(&self, page: PageInSegment, count: usize) -> Result<(), Trouble> {
        self.hide_bytes(self.address_of(page), self.bytes_of(page, count))
    }

    /// Of so many pages from one on, all of the segment.
    fn bytes_of(&self, page: PageInSegment, count: usize) -> usize {
        let last = self.address_of(page + (count as u64 - 1));
        last + self.page_bytes - self.address_of(page)
    }

    fn hide_bytes(&self, address: usize, bytes: usize) -> Result<(), Trouble> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        let at = self.reserved.with_addr(address);
        // SAFETY: rules 1 and 2: replaces addresses of this range, which the caller may change.
        unsafe { mmap_anonymous(at, bytes, ProtFlags::empty(), flags) }.map_err(Trouble::System)?;
        if let Some(userfaultfd) = &self.userfaultfd {
            // Accessible only when it is watched: no access may find the empty memory. Until then an access ends in
            // SIGSEGV, and is served as one.
            userfaultfd.watch(address, bytes).map_err(Trouble::System)?;
            // SAFETY: as above; there is no memory behind it, and an access is announced.
            unsafe { mprotect(at, bytes, MprotectFlags::READ | MprotectFlags::WRITE) }
                .map_err(Trouble::System)?;
        }
        Ok(())
    }

    /// Makes so many frames, from one on, visible at the addresses of as many pages. By whoever has the pages busy and the
    /// frames granted by the agent, or kept by itself.
    pub fn show(
        &self,
        page: PageInSegment,
        frame: FrameId,
        count: usize,
        write: bool,
    ) -> Result<(), Trouble> {
        let bytes = self.bytes_of(page, count);
        let at = self.reserved.with_addr(self.address_of(page));
        let offset = frame.offset();
        let access = if write { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        let populate =
            if self.page_bytes <= POPULATED_BYTES_MAX { MapFlags::POPULATE } else { MapFlags::empty() };
        let flags = MapFlags::SHARED | MapFlags::FIXED | populate;
        // SAFETY: rules 1 and 2; rule 3 for the frame.
        unsafe { mmap(at, bytes, access, flags, &self.frames, offset) }.map_err(Trouble::System)?;
        Ok(())
    }

    /// Lets threads go on that sleep because a page was absent.
    pub fn wake(&self, page: PageInSegment) {
        if let Some(userfaultfd) = self.announcing() {
            userfaultfd.wake(self.address_of(page), self.page_bytes);
        }
    }

    /// Lets so many pages that are shown for reading be written, too. By whoever has the pages busy.
    pub fn allow_writing(&self, page: PageInSegment, count: usize) -> Result<(), Trouble> {
        let at = self.reserved.with_addr(self.address_of(page));
        // SAFETY: rules 1 and 2: more access to frames that the pages show already.
        unsafe { mprotect(at, self.bytes_of(page, count), MprotectFlags::READ | MprotectFlags::WRITE) }
            .map_err(Trouble::System)
    }

    /// Takes all frames out of sight, for good, in a process that has no right to them (a child).
    pub fn seal(&self) {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: rule 1: replaces what was reserved. A failure leaves the child with mappings it should not have; it can
        // do nothing about it.
        let _ = unsafe { mmap_anonymous(self.reserved, self.reserved_bytes, ProtFlags::empty(), flags) };
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        if self.is_lent {
            // It stays reserved.
            return self.seal();
        }
        // SAFETY: rule 1: reserved by this value, and nobody may use the segment's pointers after its end.
        let _ = unsafe { munmap(self.reserved, self.reserved_bytes) };
    }
}
