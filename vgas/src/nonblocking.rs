//! Puts and gets that progress while the program does something else, and other forms of put and get.
//!
//! | form | source or destination | *source reusable* | *operation complete* |
//! |---|---|---|---|
//! | [`Runtime::put`], [`Runtime::get`] | borrowed | when it returns | when it returns |
//! | [`Runtime::put_nb`], [`Runtime::get_nb`] (bulk) | given away, and back | when waited for | when waited for |
//! | [`Runtime::put_nb_copy`] (non-bulk) | borrowed for the call | when it returns | when waited for |
//! | [`Runtime::put_value_nb`], [`Runtime::get_value_nb`] | a value | when it returns | when waited for |
//! | [`Runtime::batch`] (implicit handles) | borrowed for the batch | after the batch | after the batch |
//!
//! *Operations in flight progress by themselves*, waited for or not: at once when some thread of the rank
//! polls or waits for anything, and within a millisecond when the rank computes and calls nothing. So a put
//! arrives although its rank never tests its handle, and while one operation is waited for, the others
//! travel. No handler of an active message runs by that.
//!
//! A put that is complete is *visible* to every later get anywhere; for relaxed segments
//! ([`SegmentOptions::relaxed`](crate::SegmentOptions::relaxed)), after the next barrier.

use crate::address::{GlobalAddress, Kind};
use crate::error::{Error, Result};
use crate::memory::not_yours;
use crate::runtime::Runtime;
use bytemuck::Pod;
use std::sync::Arc;
use vgas_cache::client::Pending;
use vgas_rma::endpoint::{Endpoint, Handle};

/// Most bytes of a memset in flight at once; whole pages of any size divide it.
const MEMSET_BYTES: u64 = 4 << 20;

/// An operation of either kind.
enum InFlight {
    Tiered(Pending),
    Pinned(Arc<Endpoint>, Handle),
}

impl InFlight {
    fn test(&mut self) -> Result<bool> {
        match self {
            Self::Tiered(pending) => Ok(pending.test()?),
            Self::Pinned(endpoint, handle) => Ok(endpoint.try_sync(handle)?),
        }
    }

    fn wait(self) -> Result<()> {
        match self {
            Self::Tiered(pending) => Ok(pending.wait()?),
            Self::Pinned(endpoint, handle) => Ok(endpoint.wait_sync(handle)?),
        }
    }
}

impl Runtime {
    /// Starts to write plain values, which the returned operation keeps until [`PutHandle::wait`].
    ///
    /// # Errors
    /// As [`Runtime::put`].
    pub fn put_nb<T: Pod>(&self, to: GlobalAddress, from: Vec<T>) -> Result<PutHandle<T>> {
        match to.is_of_library() {
            true => Err(not_yours(to)),
            false => self.put_anywhere_nb(to, from),
        }
    }

    /// [`Runtime::put_nb`], even into segments of libraries.
    pub(crate) fn put_anywhere_nb<T: Pod>(&self, to: GlobalAddress, from: Vec<T>) -> Result<PutHandle<T>> {
        let bytes: &[u8] = bytemuck::cast_slice(&from);
        let (address, length) = (bytes.as_ptr(), bytes.len());
        // SAFETY: the handle owns the values until the operation has ended; a vector's content does not move with it,
        // and a handle that is forgotten forgets to free the values, too.
        let in_flight = unsafe {
            match to.kind {
                Kind::Tiered => {
                    InFlight::Tiered(self.client().put_nb(to.partition(), to.offset, address, length)?)
                }
                Kind::Pinned => {
                    let handle = self.endpoint().put_nb_bulk(to.pinned_part(), to.offset, address, length)?;
                    InFlight::Pinned(self.endpoint().clone(), handle)
                }
            }
        };
        Ok(PutHandle { in_flight: Some(in_flight), values: from })
    }

    /// Starts to write plain values; `from` is reusable when this returns.
    pub fn put_nb_copy<T: Pod>(&self, to: GlobalAddress, from: &[T]) -> Result<PutHandle<T>> {
        self.put_nb(to, from.to_vec())
    }

    /// Starts to write one plain value.
    pub fn put_value_nb<T: Pod>(&self, to: GlobalAddress, value: T) -> Result<PutHandle<T>> {
        self.put_nb(to, vec![value])
    }

    /// Starts to read `values.len()` plain values into a buffer that the returned operation keeps until
    /// [`GetHandle::wait`] gives it back.
    pub fn get_nb<T: Pod>(&self, from: GlobalAddress, mut values: Vec<T>) -> Result<GetHandle<T>> {
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut values);
        let (address, length) = (bytes.as_mut_ptr(), bytes.len());
        // SAFETY: as in `put_nb`; dropping the handle waits.
        let in_flight = unsafe {
            match from.kind {
                Kind::Tiered => {
                    InFlight::Tiered(self.client().get_nb(from.partition(), from.offset, address, length)?)
                }
                Kind::Pinned => {
                    let handle = self.endpoint().get_nb(from.pinned_part(), from.offset, address, length)?;
                    InFlight::Pinned(self.endpoint().clone(), handle)
                }
            }
        };
        Ok(GetHandle { in_flight: Some(in_flight), values })
    }

    /// Starts to read one plain value; [`GetHandle::wait_value`] gives it.
    pub fn get_value_nb<T: Pod>(&self, from: GlobalAddress) -> Result<GetHandle<T>> {
        self.get_nb(from, vec![T::zeroed()])
    }

    /// Sets bytes. Visible everywhere when it returns. Whole pages of tiered segments are not read for it.
    ///
    /// # Errors
    /// As [`Runtime::put`].
    pub fn memset(&self, to: GlobalAddress, value: u8, bytes: u64) -> Result<()> {
        match to.is_of_library() {
            true => Err(not_yours(to)),
            false => self.memset_anywhere(to, value, bytes),
        }
    }

    /// [`Runtime::memset`], even in segments of libraries.
    pub(crate) fn memset_anywhere(&self, to: GlobalAddress, value: u8, bytes: u64) -> Result<()> {
        if to.kind == Kind::Pinned {
            return Ok(self.endpoint().memset(to.pinned_part(), to.offset, value, bytes)?);
        }
        let filled = vec![value; bytes.min(MEMSET_BYTES) as usize];
        let mut done = 0;
        while done < bytes {
            // An address that overflows is out of every segment.
            let at = to.checked_add(done).unwrap_or(GlobalAddress { offset: u64::MAX, ..to });
            // The first piece ends where pages do.
            let piece = (MEMSET_BYTES - at.offset % MEMSET_BYTES).min(bytes - done);
            self.put_anywhere(at, &filled[..piece as usize])?;
            done += piece;
        }
        Ok(())
    }
}

/// A put in flight, with its values. Dropping it waits, too.
#[must_use = "a put is complete only after `wait`"]
pub struct PutHandle<T> {
    in_flight: Option<InFlight>,
    values: Vec<T>,
}

impl<T> PutHandle<T> {
    /// Goes on as far as possible without waiting. True: complete.
    pub fn test(&mut self) -> Result<bool> {
        test(&mut self.in_flight)
    }

    /// Waits until the put is complete, and gives the buffer back.
    pub fn wait(mut self) -> Result<Vec<T>> {
        self.in_flight.take().map_or(Ok(()), InFlight::wait)?;
        Ok(std::mem::take(&mut self.values))
    }
}

impl<T> Drop for PutHandle<T> {
    fn drop(&mut self) {
        if let Err(error) = self.in_flight.take().map_or(Ok(()), InFlight::wait) {
            tracing::error!(%error, "a put whose handle was dropped has failed");
        }
    }
}

/// A get in flight, with its buffer. Dropping it waits, too.
#[must_use = "a get is complete only after `wait`"]
pub struct GetHandle<T> {
    in_flight: Option<InFlight>,
    values: Vec<T>,
}

impl<T> GetHandle<T> {
    /// Goes on as far as possible without waiting. True: complete.
    pub fn test(&mut self) -> Result<bool> {
        test(&mut self.in_flight)
    }

    /// Waits for the values.
    pub fn wait(mut self) -> Result<Vec<T>> {
        self.in_flight.take().map_or(Ok(()), InFlight::wait)?;
        Ok(std::mem::take(&mut self.values))
    }
}

impl<T: Copy> GetHandle<T> {
    /// Waits for the only value of a [`Runtime::get_value_nb`], or the first of several.
    ///
    /// # Errors
    /// Besides those of the get: when no value was asked for.
    pub fn wait_value(self) -> Result<T> {
        let values = self.wait()?;
        values.first().copied().ok_or_else(|| Error::Usage("no value was asked for".into()))
    }
}

impl<T> Drop for GetHandle<T> {
    fn drop(&mut self) {
        // The buffer must not go before the operation that writes there has ended. Its values are not wanted
        // any more.
        if let Err(error) = self.in_flight.take().map_or(Ok(()), InFlight::wait) {
            tracing::debug!(%error, "a get whose handle was dropped has failed");
        }
    }
}

/// After an error, too, the operation has ended.
fn test(in_flight: &mut Option<InFlight>) -> Result<bool> {
    let Some(operation) = in_flight else { return Ok(true) };
    let done = operation.test();
    if !matches!(done, Ok(false)) {
        *in_flight = None;
    }
    done
}
