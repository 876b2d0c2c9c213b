//! Put and get with implicit handles (GASNet: `nbi`), per thread: start any number, then wait for all gets,
//! all puts, or both. An operation started between [`Endpoint::begin_access_region`] and
//! [`Endpoint::end_access_region`] gets a handle of its own instead.

use super::Endpoint;
use super::operation::Handle;
use crate::address::PinnedPart;
use crate::error::{Result, RmaError};
use std::cell::RefCell;
use std::collections::HashMap;

/// Accumulated operations after which completed ones are sorted out.
const PRUNE_AT: usize = 64;

/// Selects the implicit operations to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Implicit {
    /// Puts and memsets.
    Puts,
    /// Gets.
    Gets,
    /// Both.
    All,
}

#[derive(Default)]
struct Started {
    puts: Handle,
    gets: Handle,
    region: Option<Handle>,
}

thread_local! {
    /// By serial number of the endpoint.
    static STARTED: RefCell<HashMap<u64, Started>> = RefCell::default();
}

impl Endpoint {
    fn with_started<R>(&self, with: impl FnOnce(&mut Started) -> R) -> R {
        STARTED.with_borrow_mut(|started| with(started.entry(self.serial).or_default()))
    }

    fn accumulate(&self, handle: Handle, kind: Implicit) {
        if handle.is_empty() {
            return;
        }
        self.with_started(|started| {
            let into = match (&mut started.region, kind) {
                (Some(region), _) => region,
                (None, Implicit::Gets) => &mut started.gets,
                (None, _) => &mut started.puts,
            };
            into.join(handle);
            if into.len() % PRUNE_AT == 0 {
                into.prune();
            }
        });
    }

    /// Starts a put whose source is reusable when the call returns (non-bulk).
    #[inline]
    pub fn put_nbi(&self, part: impl Into<PinnedPart>, offset: u64, from: &[u8]) -> Result<()> {
        self.put_nb(part, offset, from).map(|handle| self.accumulate(handle, Implicit::Puts))
    }

    /// Starts a get.
    ///
    /// # Safety
    /// As [`Endpoint::get_nb`], until a wait for gets of this thread has returned; the thread must not end before.
    #[inline]
    pub unsafe fn get_nbi(
        &self,
        part: impl Into<PinnedPart>,
        offset: u64,
        to: *mut u8,
        bytes: usize,
    ) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.get_nb(part, offset, to, bytes) }.map(|handle| self.accumulate(handle, Implicit::Gets))
    }

    /// Starts to put a value of 1 to 8 bytes.
    #[inline]
    pub fn put_value_nbi(
        &self,
        part: impl Into<PinnedPart>,
        offset: u64,
        value: u64,
        bytes: usize,
    ) -> Result<()> {
        self.put_value_nb(part, offset, value, bytes).map(|handle| self.accumulate(handle, Implicit::Puts))
    }

    /// Starts to set bytes.
    pub fn memset_nbi(&self, part: impl Into<PinnedPart>, offset: u64, value: u8, bytes: u64) -> Result<()> {
        self.memset_nb(part, offset, value, bytes).map(|handle| self.accumulate(handle, Implicit::Puts))
    }

    /// Waits for the implicit operations of this thread, except those of access regions.
    pub fn wait_sync_nbi(&self, which: Implicit) -> Result<()> {
        let mut handle = self.take_started(which);
        self.wait_sync_ref(&mut handle)
    }

    /// Makes progress once; true when the implicit operations of this thread are complete.
    pub fn try_sync_nbi(&self, which: Implicit) -> Result<bool> {
        let mut result = Ok(true);
        for kind in [Implicit::Puts, Implicit::Gets] {
            if which != kind && which != Implicit::All {
                continue;
            }
            // Handlers run before the handle is taken: what a panic leaves is waited for by the next call.
            let is_complete = self.with_started(|started| match kind {
                Implicit::Gets => started.gets.is_complete(),
                _ => started.puts.is_complete(),
            });
            let polled = if is_complete { Ok(()) } else { self.poll().map(drop) };
            let mut handle = self.take_started(kind);
            let done = self.end_if_complete(&mut handle, polled);
            self.with_started(|started| match kind {
                Implicit::Gets => started.gets.join(handle),
                _ => started.puts.join(handle),
            });
            result = match (result, done) {
                (Ok(all), Ok(done)) => Ok(all && done),
                (Err(error), _) | (_, Err(error)) => Err(error),
            };
        }
        result
    }

    fn take_started(&self, which: Implicit) -> Handle {
        self.with_started(|started| {
            let mut handle = Handle::complete();
            if which != Implicit::Gets {
                handle.join(std::mem::take(&mut started.puts));
            }
            if which != Implicit::Puts {
                handle.join(std::mem::take(&mut started.gets));
            }
            handle
        })
    }

    /// From now on implicit operations of this thread belong to an access region. Regions do not nest.
    pub fn begin_access_region(&self) -> Result<()> {
        self.with_started(|started| {
            if started.region.is_some() {
                return Err(RmaError::Usage("access regions do not nest".into()));
            }
            started.region = Some(Handle::complete());
            Ok(())
        })
    }

    /// Ends the access region: the handle stands for all that was started in it.
    pub fn end_access_region(&self) -> Result<Handle> {
        let region = self.with_started(|started| started.region.take());
        region.ok_or_else(|| RmaError::Usage("no access region was begun".into()))
    }
}
