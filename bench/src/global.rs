//! The runtime as the product's global memory.
//!
//! # Rule for the unsafe code in this file
//!
//! The bytes of a get in flight lie in a [`Buffer`] that its [`PendingGet`] owns beside the operation. The
//! buffer's heap memory does not move with it, has no other users, and the operation is dropped (which waits
//! for its end) before it.

use crate::gemm::{Buffer, GlobalMemory, MemoryResult, PendingGet};
use crate::raw::client;
use vgas::{GlobalAddress, Kind, NodeId, Rank, Runtime, Segment, SegmentOptions};
use vgas_cache::client::Pending;

/// A [`GlobalMemory`] of a tiered segment, or of a pinned one, which is held against it.
#[derive(Debug)]
pub struct TieredMemory<'r> {
    runtime: &'r Runtime,
    kind: Kind,
    /// Once it is attached.
    segment: Option<Segment>,
}

impl<'r> TieredMemory<'r> {
    /// Over a runtime that has attached nothing. Until [`TieredMemory::attach`], only sizes may be asked for.
    pub fn new(runtime: &'r Runtime) -> Self {
        Self { runtime, kind: Kind::Tiered, segment: None }
    }

    /// The same of pinned memory.
    pub fn pinned(runtime: &'r Runtime) -> Self {
        Self { kind: Kind::Pinned, ..Self::new(runtime) }
    }

    /// Attaches so many bytes of each rank. Nothing is read ahead in tiered ones: a product says which tiles it needs next, and what lies
    /// behind a tile is seldom one of them. Collective.
    ///
    /// # Errors
    /// Those of [`Runtime::attach`].
    pub fn attach(&mut self, bytes: u64) -> vgas::Result<()> {
        let options = match self.kind {
            Kind::Pinned => SegmentOptions::pinned(bytes),
            Kind::Tiered => SegmentOptions::tiered(bytes).read_ahead(false),
        };
        self.segment = Some(self.runtime.attach(&options)?);
        Ok(())
    }

    fn at(&self, rank: usize, offset: u64) -> GlobalAddress {
        let id = self.segment.as_ref().map(Segment::id).unwrap_or_default();
        GlobalAddress { rank: Rank(rank as u32), kind: self.kind, segment: id, offset }
    }

    fn nodes(&self) -> impl Iterator<Item = NodeId> {
        (0..self.runtime.nodes()).map(NodeId)
    }
}

/// A get of the cache's client with the buffer it writes to. The order of the fields is the order of dropping.
struct Get {
    pending: Option<Pending>,
    buffer: Buffer,
}

/// A get of pinned memory that was made at once.
struct CompletedGet(Buffer);

impl PendingGet for CompletedGet {
    fn wait(self: Box<Self>) -> MemoryResult<Buffer> {
        Ok(self.0)
    }
}

impl PendingGet for Get {
    fn wait(mut self: Box<Self>) -> MemoryResult<Buffer> {
        if let Some(pending) = self.pending.take() {
            pending.wait()?;
        }
        Ok(std::mem::take(&mut self.buffer))
    }
}

impl GlobalMemory for TieredMemory<'_> {
    fn rank(&self) -> usize {
        self.runtime.rank().0 as usize
    }

    fn ranks(&self) -> usize {
        self.runtime.ranks() as usize
    }

    fn ranks_on_node(&self) -> usize {
        self.nodes().map(|node| self.runtime.layout().ranks_of(node).len()).max().unwrap_or(1)
    }

    fn threads(&self) -> usize {
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        // Virtual nodes share this machine's cores; real ones have their own, and no more ranks than all together.
        let sharing = if self.runtime.shares_machine() { self.ranks() } else { self.ranks_on_node() };
        (cores / sharing).max(1)
    }

    fn page_bytes(&self) -> u64 {
        self.runtime.page_bytes() as u64
    }

    fn cache_bytes(&self) -> u64 {
        self.runtime.cache_layout().frames_bytes()
    }

    fn put(&self, rank: usize, offset: u64, bytes: &[u8]) -> MemoryResult<()> {
        Ok(self.runtime.put(self.at(rank, offset), bytes)?)
    }

    fn get(&self, rank: usize, offset: u64, into: &mut [u8]) -> MemoryResult<()> {
        Ok(self.runtime.get(self.at(rank, offset), into)?)
    }

    fn get_start(
        &self,
        rank: usize,
        offset: u64,
        mut buffer: Buffer,
        bytes: usize,
    ) -> MemoryResult<Box<dyn PendingGet + '_>> {
        let into = &mut buffer.bytes_mut()[..bytes];
        if self.kind == Kind::Pinned {
            self.runtime.get(self.at(rank, offset), into)?;
            return Ok(Box::new(CompletedGet(buffer)));
        }
        let (address, bytes) = (into.as_mut_ptr(), into.len());
        let of = (self.segment.as_ref().map(Segment::id).unwrap_or_default(), Rank(rank as u32));
        // SAFETY: this file's rule.
        let pending = unsafe { client(self.runtime).get_nb(of, offset, address, bytes) };
        Ok(Box::new(Get { pending: Some(pending.map_err(vgas::Error::from)?), buffer }))
    }

    fn prefetch(&self, rank: usize, offset: u64, bytes: u64) {
        if self.kind == Kind::Tiered {
            // Only a hint: an error will show when the bytes are needed.
            let _ = self.runtime.prefetch(self.at(rank, offset), bytes);
        }
    }

    fn barrier(&self) -> MemoryResult<()> {
        Ok(self.runtime.barrier()?)
    }

    fn all_reduce_max(&self, value: f64) -> MemoryResult<f64> {
        Ok(self.runtime.all_reduce(value, f64::max)?)
    }

    fn all_reduce_sum(&self, value: f64) -> MemoryResult<f64> {
        Ok(self.runtime.all_reduce(value, |a, b| a + b)?)
    }

    fn counters(&self) -> Vec<(String, u64)> {
        let mut own = client(self.runtime).counters();
        if self.runtime.layout().ranks_of(self.runtime.node()).start == self.runtime.rank().0 {
            own.add(&client(self.runtime).node_counters());
        }
        own.iter().map(|(counter, value)| (counter.name().to_owned(), value)).collect()
    }
}
