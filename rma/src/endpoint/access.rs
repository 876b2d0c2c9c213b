//! Put and get into pinned segments, blocking and with explicit handles (GASNet's extended API; vGASNet §II.C).
//!
//! Between members of a domain each of them is a bounds check and an inlined copy, complete when the call returns.
//! Otherwise active messages to the agent of the target's node carry it.
//!
//! A rank alone means its part of the first segment, a [`PinnedPart`] its part of any. *Offsets* count bytes from the start of
//! the part. Out of range is [`RmaError::OutOfRange`], and nothing is
//! written. *Bulk* and *non-bulk* differ in when the source of a put may be reused: with the bulk forms, only when the
//! operation is complete; alignment never matters.

use super::Endpoint;
use super::operation::Handle;
use super::segment::Reach;
use crate::address::PinnedPart;
use crate::error::{Result, RmaError};
use crate::message::Source;
use vgas_shm::copy::{copy, fill};

/// A value that was asked for with [`Endpoint::get_value_nb`] or [`Endpoint::atomic_nb`].
#[must_use = "a started get must be waited for"]
#[derive(Debug)]
pub struct ValueHandle {
    pub(super) handle: Handle,
    pub(super) value: Box<[u8; 8]>,
}

impl Endpoint {
    /// Copies bytes into a rank's segment. When it returns the operation is complete: the source is reusable and the
    /// bytes are visible at the target.
    #[inline]
    pub fn put(&self, part: impl Into<PinnedPart>, offset: u64, from: &[u8]) -> Result<()> {
        // SAFETY: the slice is readable for the call.
        unsafe { self.put_raw(part, offset, from.as_ptr(), from.len()) }
    }

    /// [`Endpoint::put`] from a raw source, which may be shared memory.
    ///
    /// # Safety
    /// `from` is valid for reads of `bytes` bytes during the call, and does not overlap the destination.
    /// Bytes that are written elsewhere meanwhile may arrive as halves of words.
    #[inline]
    pub unsafe fn put_raw(
        &self,
        part: impl Into<PinnedPart>,
        offset: u64,
        from: *const u8,
        bytes: usize,
    ) -> Result<()> {
        let part = part.into();
        // SAFETY: the caller's promise.
        if unsafe { self.put_here(part, offset, from, bytes) } {
            return Ok(());
        }
        // SAFETY: as above.
        unsafe { self.put_elsewhere(part, offset, from, bytes) }
    }

    /// The part of [`Endpoint::put_raw`] that is a copy: true when the segment is mapped here and has the range; the put
    /// is complete then. For callers that are inlined themselves, so that a length they know becomes a constant here.
    ///
    /// # Safety
    /// As [`Endpoint::put_raw`].
    #[inline(always)]
    pub unsafe fn put_here(
        &self,
        part: impl Into<PinnedPart>,
        offset: u64,
        from: *const u8,
        bytes: usize,
    ) -> bool {
        let part = part.into();
        let Some(to) = self.segments.reach(part, offset, bytes) else { return false };
        // SAFETY: `reach` has checked the range of the mapped segment (rules 2, 3 of `shm`); the source is the
        // caller's promise.
        unsafe { copy(from, to, bytes) };
        true
    }

    /// # Safety
    /// As [`Endpoint::put_raw`].
    #[cold]
    #[inline(never)]
    unsafe fn put_elsewhere(
        &self,
        part: PinnedPart,
        offset: u64,
        from: *const u8,
        bytes: usize,
    ) -> Result<()> {
        self.check_may_wait(part, offset, bytes)?;
        // SAFETY: the caller's promise; the wait ends after the operation.
        unsafe { self.put_started(part, offset, from, bytes, true) }.and_then(|handle| self.wait_sync(handle))
    }

    /// Copies bytes from a rank's segment. When it returns the operation is complete: the bytes are here.
    #[inline]
    pub fn get(&self, part: impl Into<PinnedPart>, offset: u64, to: &mut [u8]) -> Result<()> {
        // SAFETY: the slice is writable for the call.
        unsafe { self.get_raw(part, offset, to.as_mut_ptr(), to.len()) }
    }

    /// [`Endpoint::get`] to a raw destination, which may be shared memory.
    ///
    /// # Safety
    /// `to` is valid for writes of `bytes` bytes during the call, and does not overlap the source.
    #[inline]
    pub unsafe fn get_raw(
        &self,
        part: impl Into<PinnedPart>,
        offset: u64,
        to: *mut u8,
        bytes: usize,
    ) -> Result<()> {
        let part = part.into();
        // SAFETY: the caller's promise.
        if unsafe { self.get_here(part, offset, to, bytes) } {
            return Ok(());
        }
        // SAFETY: as above.
        unsafe { self.get_elsewhere(part, offset, to, bytes) }
    }

    /// The part of [`Endpoint::get_raw`] that is a copy: true when the segment is mapped here and has the range; the
    /// bytes are at `to` then. See [`Endpoint::put_here`].
    ///
    /// # Safety
    /// As [`Endpoint::get_raw`].
    #[inline(always)]
    pub unsafe fn get_here(
        &self,
        part: impl Into<PinnedPart>,
        offset: u64,
        to: *mut u8,
        bytes: usize,
    ) -> bool {
        let part = part.into();
        let Some(from) = self.segments.reach(part, offset, bytes) else { return false };
        // SAFETY: as in `put_here`.
        unsafe { copy(from, to, bytes) };
        true
    }

    /// # Safety
    /// As [`Endpoint::get_raw`].
    #[cold]
    #[inline(never)]
    unsafe fn get_elsewhere(&self, part: PinnedPart, offset: u64, to: *mut u8, bytes: usize) -> Result<()> {
        self.check_may_wait(part, offset, bytes)?;
        // SAFETY: the caller's promise; the wait ends after the operation, or `to` is not used any more.
        unsafe { self.get_started(part, offset, to, bytes) }.and_then(|handle| self.wait_sync(handle))
    }

    /// Refuses in a handler what would have to wait, before it is started.
    fn check_may_wait(&self, part: PinnedPart, offset: u64, bytes: usize) -> Result<()> {
        match self.wait.in_handler()
            && matches!(self.reach_slow(part, offset, bytes as u64)?, Reach::Through(_))
        {
            true => Err(RmaError::Usage("a handler must not wait for another node".into())),
            false => Ok(()),
        }
    }

    /// Starts a put whose source is reusable when the call returns (non-bulk). Complete, and visible at the target,
    /// when the handle is.
    #[inline]
    pub fn put_nb(&self, part: impl Into<PinnedPart>, offset: u64, from: &[u8]) -> Result<Handle> {
        // SAFETY: the slice is readable for the call.
        unsafe { self.put_nb_raw(part, offset, from.as_ptr(), from.len()) }
    }

    /// [`Endpoint::put_nb`] from a raw source, which may be shared memory.
    ///
    /// # Safety
    /// `from` is valid for reads of `bytes` bytes during the call, and does not overlap the destination.
    #[inline]
    pub unsafe fn put_nb_raw(
        &self,
        part: impl Into<PinnedPart>,
        offset: u64,
        from: *const u8,
        bytes: usize,
    ) -> Result<Handle> {
        let part = part.into();
        // SAFETY: a source that does not stay is not read any more when `try_send` or `start_put` of a conduit has accepted
        // it, and our `start_put` returns after the last part was.
        unsafe { self.put_started(part, offset, from, bytes, false) }.map(|handle| self.let_go_on(handle))
    }

    /// Starts a put whose source is reusable when the handle is complete (bulk).
    ///
    /// # Safety
    /// `from` is valid for reads of `bytes` bytes until the handle was seen complete, and does not overlap the
    /// destination.
    #[inline]
    pub unsafe fn put_nb_bulk(
        &self,
        part: impl Into<PinnedPart>,
        offset: u64,
        from: *const u8,
        bytes: usize,
    ) -> Result<Handle> {
        let part = part.into();
        // SAFETY: the caller's promise.
        unsafe { self.put_started(part, offset, from, bytes, true) }.map(|handle| self.let_go_on(handle))
    }

    /// # Safety
    /// As [`Endpoint::put_nb_bulk`] if the source `stays`, otherwise as [`Endpoint::put_nb_raw`].
    #[inline(always)]
    unsafe fn put_started(
        &self,
        part: PinnedPart,
        offset: u64,
        from: *const u8,
        bytes: usize,
        stays: bool,
    ) -> Result<Handle> {
        let to = match self.segments.reach(part, offset, bytes) {
            Some(to) => to,
            None => match self.reach_slow(part, offset, bytes as u64)? {
                Reach::Here(to) => to,
                Reach::Through(server) => {
                    // SAFETY: the caller's promise, which lasts longer than the call.
                    let source = unsafe { Source::raw(from, bytes) };
                    return self.start_put(server, part, offset, source, stays);
                }
            },
        };
        // SAFETY: as in `put_here`.
        unsafe { copy(from, to, bytes) };
        Ok(Handle::complete())
    }

    /// Starts a get, bulk or not. The bytes are at `to` when the handle is complete.
    ///
    /// # Safety
    /// `to` is valid for writes of `bytes` bytes, not otherwise accessed, and does not overlap the source, until the
    /// handle was seen complete or an error was returned for it (but see [`Endpoint::wait_sync`] for memory in the own
    /// segment). The handle must not be dropped before.
    #[inline]
    pub unsafe fn get_nb(
        &self,
        part: impl Into<PinnedPart>,
        offset: u64,
        to: *mut u8,
        bytes: usize,
    ) -> Result<Handle> {
        let part = part.into();
        // SAFETY: the caller's promise.
        unsafe { self.get_started(part, offset, to, bytes) }.map(|handle| self.let_go_on(handle))
    }

    /// An operation returns to the caller, complete or not.
    #[inline]
    pub(super) fn let_go_on(&self, handle: Handle) -> Handle {
        if !handle.is_empty() {
            self.look_after_it();
        }
        handle
    }

    /// # Safety
    /// As [`Endpoint::get_nb`].
    #[inline(always)]
    unsafe fn get_started(&self, part: PinnedPart, offset: u64, to: *mut u8, bytes: usize) -> Result<Handle> {
        let from = match self.segments.reach(part, offset, bytes) {
            Some(from) => from,
            None => match self.reach_slow(part, offset, bytes as u64)? {
                Reach::Here(from) => from,
                Reach::Through(server) => {
                    // SAFETY: the caller's promise.
                    return unsafe { self.start_get(server, part, offset, to, bytes as u64) };
                }
            },
        };
        // SAFETY: as in `put_here`.
        unsafe { copy(from, to, bytes) };
        Ok(Handle::complete())
    }

    /// Puts the low `bytes` (1 to 8) bytes of a value, little-endian. Completion as [`Endpoint::put`].
    #[inline]
    pub fn put_value(
        &self,
        part: impl Into<PinnedPart>,
        offset: u64,
        value: u64,
        bytes: usize,
    ) -> Result<()> {
        check_value_bytes(bytes)?;
        self.put(part, offset, &value.to_le_bytes()[..bytes])
    }

    /// Starts to put a value. Completion as [`Endpoint::put_nb`].
    #[inline]
    pub fn put_value_nb(
        &self,
        part: impl Into<PinnedPart>,
        offset: u64,
        value: u64,
        bytes: usize,
    ) -> Result<Handle> {
        check_value_bytes(bytes)?;
        self.put_nb(part, offset, &value.to_le_bytes()[..bytes])
    }

    /// Gets a value of `bytes` (1 to 8) bytes, little-endian, extended with zeros.
    #[inline]
    pub fn get_value(&self, part: impl Into<PinnedPart>, offset: u64, bytes: usize) -> Result<u64> {
        check_value_bytes(bytes)?;
        let mut value = [0; 8];
        self.get(part, offset, &mut value[..bytes])?;
        Ok(u64::from_le_bytes(value))
    }

    /// Starts to get a value; [`Endpoint::wait_value`] ends it.
    pub fn get_value_nb(
        &self,
        part: impl Into<PinnedPart>,
        offset: u64,
        bytes: usize,
    ) -> Result<ValueHandle> {
        check_value_bytes(bytes)?;
        let mut value = Box::new([0; 8]);
        // SAFETY: the box lives in the handle; if that is dropped before its end it leaks (see `Drop`).
        let handle = unsafe { self.get_nb(part, offset, value.as_mut_ptr(), bytes) }?;
        Ok(ValueHandle { handle, value })
    }

    /// Waits for a value.
    pub fn wait_value(&self, mut value: ValueHandle) -> Result<u64> {
        if let Err(error) = self.wait_sync_ref(&mut value.handle) {
            // The answer may still come, if another endpoint has asked.
            value.leak();
            return Err(error);
        }
        Ok(u64::from_le_bytes(*value.value))
    }

    /// Sets bytes of a rank's segment to a value. Completion as [`Endpoint::put`].
    pub fn memset(&self, part: impl Into<PinnedPart>, offset: u64, value: u8, bytes: u64) -> Result<()> {
        let part = part.into();
        self.memset_started(part, offset, value, bytes).and_then(|handle| self.wait_sync(handle))
    }

    /// Starts to set bytes of a rank's segment. Visible at the target when the handle is complete.
    pub fn memset_nb(
        &self,
        part: impl Into<PinnedPart>,
        offset: u64,
        value: u8,
        bytes: u64,
    ) -> Result<Handle> {
        let part = part.into();
        self.memset_started(part, offset, value, bytes).map(|handle| self.let_go_on(handle))
    }

    fn memset_started(&self, part: PinnedPart, offset: u64, value: u8, bytes: u64) -> Result<Handle> {
        match self.reach_slow(part, offset, bytes)? {
            Reach::Here(to) => {
                // SAFETY: `reach_slow` has checked the range of the mapped segment.
                unsafe { fill(to, value, bytes as usize) };
                Ok(Handle::complete())
            }
            Reach::Through(server) => self.start_memset(server, part, offset, value, bytes),
        }
    }
}

impl ValueHandle {
    /// Keeps the place of the answer for good.
    fn leak(&mut self) {
        std::mem::forget(std::mem::replace(&mut self.value, Box::new([0; 8])));
    }
}

impl Drop for ValueHandle {
    fn drop(&mut self) {
        if !self.handle.is_complete() {
            // The answer may still come: its place must stay.
            self.leak();
        }
    }
}

#[inline]
fn check_value_bytes(bytes: usize) -> Result<()> {
    if (1..=8).contains(&bytes) {
        return Ok(());
    }
    Err(RmaError::Usage(format!("a value has 1 to 8 bytes, not {bytes}")))
}
