//! Many puts and gets whose end is awaited together: GASNet's implicit handles and access regions, as a scope.

use crate::address::{GlobalAddress, Kind};
use crate::error::{Error, Result};
use crate::memory::not_yours;
use crate::runtime::Runtime;
use crate::segment::Segment;
use bytemuck::Pod;
use std::marker::PhantomData;
use vgas_cache::client::Pending;
use vgas_rma::endpoint::Handle;

/// Operations in flight after which completed ones are sorted out.
const PRUNE_AT: usize = 64;

/// Selects operations of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchKind {
    /// Puts and memsets.
    Puts,
    /// Gets.
    Gets,
    /// Both.
    All,
}

/// Collects the operations started in [`Runtime::batch`], which progress by themselves from then on. Buffers
/// are borrowed for longer than the batch lasts, so they need not be given away, copied, or waited for one by
/// one (GASNet's bulk forms).
pub struct Batch<'env> {
    runtime: &'env Runtime,
    /// The segment into which it may put although it belongs to a library.
    allowed: Option<&'env Segment>,
    puts: Started,
    gets: Started,
    buffers: PhantomData<&'env mut [u8]>,
}

#[derive(Default)]
struct Started {
    tiered: Vec<InFlight>,
    pinned: Handle,
    joined: usize,
}

/// An operation, and its source if it owns that. Dropped, it waits for its end first: fields are dropped in
/// this order.
struct InFlight {
    pending: Pending,
    copy: Vec<u8>,
}

impl Runtime {
    /// Runs `work`, in which puts and gets can be started without waiting for each, and waits for all that it
    /// has started: when this returns, the puts are visible everywhere, the gets have arrived, and every
    /// buffer is free again; even if `work` failed or panicked.
    ///
    /// ```no_run
    /// # use vgas::{Rank, Runtime, Segment};
    /// # fn example(runtime: &Runtime, store: &Segment, table: &Segment) -> vgas::Result<()> {
    /// let (low, mut high) = ([1u64; 100], [0u64; 100]);
    /// runtime.batch(|batch| {
    ///     batch.put(store.address(Rank(0), 0), &low)?;
    ///     batch.get(table.address(Rank(1), 800), &mut high)
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The first error of `work`; otherwise the first of an operation.
    pub fn batch<'env, R>(&'env self, work: impl FnOnce(&mut Batch<'env>) -> Result<R>) -> Result<R> {
        self.batch_in(None, work)
    }

    /// [`Runtime::batch`] that may also put into one segment of a library.
    pub(crate) fn batch_in<'env, R>(
        &'env self,
        allowed: Option<&'env Segment>,
        work: impl FnOnce(&mut Batch<'env>) -> Result<R>,
    ) -> Result<R> {
        let (puts, gets) = (Started::default(), Started::default());
        let mut batch = Batch { runtime: self, allowed, puts, gets, buffers: PhantomData };
        let result = work(&mut batch);
        // Dropping it waits as well, but cannot return an error.
        let ended = batch.wait(BatchKind::All);
        let result = result?;
        ended.map(|()| result)
    }
}

impl<'env> Batch<'env> {
    /// Starts to write plain values. `from` is not copied: it may be reused after the batch, or after
    /// [`Batch::wait`].
    pub fn put<T: Pod>(&mut self, to: GlobalAddress, from: &'env [T]) -> Result<()> {
        self.start_put(to, bytemuck::cast_slice(from))
    }

    /// Starts to write plain values. `from` is reusable when this returns (GASNet's non-bulk form).
    pub fn put_copy<T: Pod>(&mut self, to: GlobalAddress, from: &[T]) -> Result<()> {
        let bytes: &[u8] = bytemuck::cast_slice(from);
        self.check_put(to)?;
        if to.kind == Kind::Pinned {
            let bytes = self.runtime.private(bytes);
            let handle = self.runtime.endpoint().put_nb(to.pinned_part(), to.offset, &bytes)?;
            self.puts.join(handle);
            return Ok(());
        }
        let copy = bytes.to_vec();
        // SAFETY: the copy is kept beside the operation, longer than it; a vector's content does not move with it.
        let put =
            unsafe { self.runtime.client().put_nb(to.partition(), to.offset, copy.as_ptr(), copy.len()) }?;
        self.puts.add(InFlight { pending: put, copy })
    }

    /// Starts to write one plain value.
    pub fn put_value<T: Pod>(&mut self, to: GlobalAddress, value: T) -> Result<()> {
        self.put_copy(to, &[value])
    }

    /// Starts to set bytes.
    pub fn memset(&mut self, to: GlobalAddress, value: u8, bytes: u64) -> Result<()> {
        self.check_put(to)?;
        match to.kind {
            Kind::Pinned => {
                let handle = self.runtime.endpoint().memset_nb(to.pinned_part(), to.offset, value, bytes)?;
                self.puts.join(handle);
                Ok(())
            }
            // Waits: one buffer serves all pages, and most of a memset is whole pages, which read nothing.
            Kind::Tiered => self.runtime.memset_anywhere(to, value, bytes),
        }
    }

    /// Starts to read plain values, which are in `to` after the batch, or after [`Batch::wait`].
    pub fn get<T: Pod>(&mut self, from: GlobalAddress, to: &'env mut [T]) -> Result<()> {
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(to);
        if from.kind == Kind::Pinned && self.runtime.client().is_local(bytes.as_ptr()) {
            // A buffer in the own tiered segment: its pages may have to be brought here, which handlers cannot wait for.
            return self.runtime.get(from, bytes);
        }
        let (address, length) = (bytes.as_mut_ptr(), bytes.len());
        // SAFETY: the slice is exclusively borrowed for longer than the batch lasts, which ends with waiting.
        unsafe {
            match from.kind {
                Kind::Pinned => {
                    let handle =
                        self.runtime.endpoint().get_nb(from.pinned_part(), from.offset, address, length)?;
                    self.gets.join(handle);
                    Ok(())
                }
                Kind::Tiered => {
                    let get = self.runtime.client().get_nb(from.partition(), from.offset, address, length)?;
                    self.gets.add(InFlight { pending: get, copy: Vec::new() })
                }
            }
        }
    }

    /// Goes on as far as possible without waiting. True: those operations are complete.
    pub fn test(&mut self, which: BatchKind) -> Result<bool> {
        let (runtime, mut done) = (self.runtime, true);
        for started in self.of(which) {
            done &= started.test(runtime)?;
        }
        Ok(done)
    }

    /// Waits for the operations that were started so far.
    ///
    /// # Errors
    /// The first error among them; all have ended then.
    pub fn wait(&mut self, which: BatchKind) -> Result<()> {
        let runtime = self.runtime;
        let mut result = Ok(());
        for started in self.of(which) {
            result = result.and(started.wait(runtime));
        }
        result
    }

    fn of(&mut self, which: BatchKind) -> impl Iterator<Item = &mut Started> {
        let puts = (which != BatchKind::Gets).then_some(&mut self.puts);
        let gets = (which != BatchKind::Puts).then_some(&mut self.gets);
        puts.into_iter().chain(gets)
    }

    fn check_put(&self, to: GlobalAddress) -> Result<()> {
        let is_allowed = |segment: &Segment| (segment.kind(), segment.id()) == (to.kind, to.segment);
        match to.is_of_library() && !self.allowed.is_some_and(is_allowed) {
            true => Err(not_yours(to)),
            false => Ok(()),
        }
    }

    fn start_put(&mut self, to: GlobalAddress, bytes: &'env [u8]) -> Result<()> {
        self.check_put(to)?;
        if to.kind == Kind::Pinned && self.runtime.client().is_local(bytes.as_ptr()) {
            // As in `get`.
            return self.runtime.put_anywhere(to, bytes);
        }
        // SAFETY: the slice is borrowed for longer than the batch lasts, which ends with waiting.
        unsafe {
            match to.kind {
                Kind::Pinned => {
                    let endpoint = self.runtime.endpoint();
                    let handle =
                        endpoint.put_nb_bulk(to.pinned_part(), to.offset, bytes.as_ptr(), bytes.len())?;
                    self.puts.join(handle);
                    Ok(())
                }
                Kind::Tiered => {
                    let client = self.runtime.client();
                    let put = client.put_nb(to.partition(), to.offset, bytes.as_ptr(), bytes.len())?;
                    self.puts.add(InFlight { pending: put, copy: Vec::new() })
                }
            }
        }
    }
}

impl Started {
    /// Keeps an operation until it ends. The error may be that of another one.
    fn add(&mut self, mut operation: InFlight) -> Result<()> {
        if operation.pending.test()? {
            return Ok(());
        }
        self.tiered.push(operation);
        if self.tiered.len().is_multiple_of(PRUNE_AT) { self.advance() } else { Ok(()) }
    }

    fn join(&mut self, handle: Handle) {
        self.pinned.join(handle);
        self.joined += 1;
        if self.joined.is_multiple_of(PRUNE_AT) {
            self.pinned.prune();
        }
    }

    /// Goes on with everything, and keeps what has not ended.
    fn advance(&mut self) -> Result<()> {
        let mut result = Ok(());
        self.tiered.retain_mut(|operation| match operation.pending.test() {
            Ok(done) => !done,
            Err(error) => {
                if result.is_ok() {
                    result = Err(error.into());
                }
                false
            }
        });
        result
    }

    fn test(&mut self, runtime: &Runtime) -> Result<bool> {
        self.advance()?;
        let pinned = self.pinned.is_complete() || runtime.endpoint().try_sync(&mut self.pinned)?;
        if pinned {
            runtime.endpoint().wait_sync(std::mem::take(&mut self.pinned))?;
        }
        Ok(pinned && self.tiered.is_empty())
    }

    fn wait(&mut self, runtime: &Runtime) -> Result<()> {
        let mut result = Ok(());
        for InFlight { pending, copy } in self.tiered.drain(..) {
            result = result.and(pending.wait().map_err(Error::from));
            drop(copy);
        }
        result.and(runtime.endpoint().wait_sync(std::mem::take(&mut self.pinned)).map_err(Error::from))
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.wait(BatchKind::All) {
            tracing::error!(%error, "an operation of a batch that was given up has failed");
        }
    }
}
