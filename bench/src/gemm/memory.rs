//! The product's interface to a global address space: the seam between the algorithm and the runtime that
//! carries it.

use bytemuck::{Pod, Zeroable};

/// Result of a [`GlobalMemory`]: its errors are shown to the user as they are.
pub type MemoryResult<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// A rank's view of a global address space. Every rank has one segment, of at least the bytes that
/// [`super::Plan::segment_bytes`] asks for, zeroed at the start.
///
/// Offsets are in bytes from the start of the owner's segment. A put is visible to every get that starts after a
/// [`barrier`](Self::barrier) both have passed; nothing more is asked for.
pub trait GlobalMemory: Sync {
    /// This rank.
    fn rank(&self) -> usize;

    /// Ranks of the job.
    fn ranks(&self) -> usize;

    /// The most ranks that any one node has: they share a cache. The same on every rank.
    fn ranks_on_node(&self) -> usize;

    /// Threads this rank may compute with: the node's cores shared out among its ranks, at least 1.
    fn threads(&self) -> usize;

    /// Page size of the tiered segments, in bytes.
    fn page_bytes(&self) -> u64;

    /// Cache of the smallest node, in bytes. The same on every rank.
    fn cache_bytes(&self) -> u64;

    /// Writes into a rank's segment. `bytes` may be reused when it returns.
    fn put(&self, rank: usize, offset: u64, bytes: &[u8]) -> MemoryResult<()>;

    /// Reads from a rank's segment; `into` is complete when it returns.
    fn get(&self, rank: usize, offset: u64, into: &mut [u8]) -> MemoryResult<()>;

    /// Starts to read `bytes` bytes into the front of `buffer`, which the pending operation owns until
    /// [`PendingGet::wait`] gives it back. The default reads at once.
    ///
    /// # Panics
    /// May panic if `bytes` exceeds the buffer.
    fn get_start(
        &self,
        rank: usize,
        offset: u64,
        mut buffer: Buffer,
        bytes: usize,
    ) -> MemoryResult<Box<dyn PendingGet + '_>> {
        self.get(rank, offset, &mut buffer.bytes_mut()[..bytes])?;
        Ok(Box::new(Done(buffer)))
    }

    /// A hint that these bytes will be read soon. The default does nothing.
    fn prefetch(&self, rank: usize, offset: u64, bytes: u64) {
        let _ = (rank, offset, bytes);
    }

    /// Waits until every rank has called it.
    fn barrier(&self) -> MemoryResult<()>;

    /// The largest of the ranks' values, on every rank. Also a barrier.
    fn all_reduce_max(&self, value: f64) -> MemoryResult<f64>;

    /// The sum of the ranks' values, on every rank. Also a barrier.
    fn all_reduce_sum(&self, value: f64) -> MemoryResult<f64>;

    /// Counters of this rank (and, on the first rank of a node, of the node), for the summary: name and value.
    fn counters(&self) -> Vec<(String, u64)> {
        Vec::new()
    }
}

/// A get on its way. Dropping it waits for or cancels the operation: the buffer is never written afterwards.
pub trait PendingGet {
    /// Waits until the bytes are there and gives the buffer back.
    fn wait(self: Box<Self>) -> MemoryResult<Buffer>;
}

/// A get that was finished when it began.
struct Done(Buffer);

impl PendingGet for Done {
    fn wait(self: Box<Self>) -> MemoryResult<Buffer> {
        Ok(self.0)
    }
}

/// One line of the processor's cache: the unit in which buffers are aligned.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// Private memory for tiles: zeroed at first, aligned to 64 bytes, readable as numbers.
#[derive(Default)]
pub struct Buffer {
    lines: Vec<Line>,
}

impl Buffer {
    /// A buffer of at least `bytes` bytes.
    pub fn new(bytes: usize) -> Self {
        Self { lines: vec![Line::zeroed(); bytes.div_ceil(64)] }
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(&self.lines)
    }

    /// Its bytes, to be written.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(&mut self.lines)
    }

    /// Its front, as numbers.
    ///
    /// # Panics
    /// If it is shorter than `len` numbers.
    pub fn numbers<T: Pod>(&self, len: usize) -> &[T] {
        bytemuck::cast_slice(&self.bytes()[..len * size_of::<T>()])
    }

    /// Its front, as numbers, to be written.
    ///
    /// # Panics
    /// If it is shorter than `len` numbers.
    pub fn numbers_mut<T: Pod>(&mut self, len: usize) -> &mut [T] {
        bytemuck::cast_slice_mut(&mut self.bytes_mut()[..len * size_of::<T>()])
    }
}
