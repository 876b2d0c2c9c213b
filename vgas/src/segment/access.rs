//! Access to a segment by rank and offset: the functions that [`Runtime`](crate::Runtime) has by address,
//! even for segments that belong to libraries, whose [`Segment`] only the library has.

use super::Segment;
use crate::batch::Batch;
use crate::error::Result;
use crate::nonblocking::{GetHandle, PutHandle};
use bytemuck::Pod;
use vgas_rma::Rank;
use vgas_shm::{AtomicWord, Change};

/// # Access
///
/// Each of these does what the function of [`Runtime`](crate::Runtime) with the same name does, with the same errors. `offset` counts
/// bytes from the beginning of the part of `rank`.
impl Segment {
    /// Reads plain values. Complete when it returns.
    #[inline(always)]
    pub fn get<T: Pod>(&self, rank: Rank, offset: u64, to: &mut [T]) -> Result<()> {
        self.runtime().get(self.address(rank, offset), to)
    }

    /// Reads one plain value.
    #[inline(always)]
    pub fn get_value<T: Pod>(&self, rank: Rank, offset: u64) -> Result<T> {
        self.runtime().get_value(self.address(rank, offset))
    }

    /// Writes plain values. When it returns, `from` is reusable and every later get anywhere sees them.
    #[inline(always)]
    pub fn put<T: Pod>(&self, rank: Rank, offset: u64, from: &[T]) -> Result<()> {
        self.runtime().put_anywhere(self.address(rank, offset), from)
    }

    /// Writes one plain value.
    #[inline(always)]
    pub fn put_value<T: Pod>(&self, rank: Rank, offset: u64, value: T) -> Result<()> {
        self.put(rank, offset, &[value])
    }

    /// Starts to read `values.len()` plain values.
    pub fn get_nb<T: Pod>(&self, rank: Rank, offset: u64, values: Vec<T>) -> Result<GetHandle<T>> {
        self.runtime().get_nb(self.address(rank, offset), values)
    }

    /// Starts to write plain values.
    pub fn put_nb<T: Pod>(&self, rank: Rank, offset: u64, from: Vec<T>) -> Result<PutHandle<T>> {
        self.runtime().put_anywhere_nb(self.address(rank, offset), from)
    }

    /// Sets bytes.
    pub fn memset(&self, rank: Rank, offset: u64, value: u8, bytes: u64) -> Result<()> {
        self.runtime().memset_anywhere(self.address(rank, offset), value, bytes)
    }

    /// Updates a word atomically, and returns what it was.
    #[inline]
    pub fn update<T: AtomicWord>(&self, rank: Rank, offset: u64, change: Change<T>) -> Result<T> {
        self.runtime().update_anywhere(self.address(rank, offset), change)
    }

    /// Makes many updates, each atomic by itself, and returns what the words were, in the same order.
    pub fn update_many<T: AtomicWord>(&self, updates: &[(Rank, u64, Change<T>)]) -> Result<Vec<T>> {
        let at = |&(rank, offset, change): &(Rank, u64, Change<T>)| (self.address(rank, offset), change);
        self.runtime().update_many_anywhere(&updates.iter().map(at).collect::<Vec<_>>())
    }

    /// Runs `work`, in which puts and gets by address can be started without waiting for each, and waits for all of them.
    pub fn batch<'env, R>(&'env self, work: impl FnOnce(&mut Batch<'env>) -> Result<R>) -> Result<R> {
        self.runtime().batch_in(Some(self), work)
    }

    /// Asks for bytes of a tiered segment to be brought to this node when convenient: a hint.
    pub fn prefetch(&self, rank: Rank, offset: u64, bytes: u64) -> Result<()> {
        self.runtime().prefetch(self.address(rank, offset), bytes)
    }

    /// Makes all named segments of the job durable as one ([`Runtime::checkpoint`](crate::Runtime::checkpoint)). Collective.
    pub fn checkpoint(&self) -> Result<()> {
        match self.address(Rank(0), 0).is_of_library() {
            true => self.runtime().checkpoint_all(),
            false => self.runtime().checkpoint(),
        }
    }
}
