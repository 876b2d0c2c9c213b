//! Puts, gets and updates by address, complete when they return.

use crate::address::{GlobalAddress, Kind};
use crate::error::{Error, Result};
use crate::runtime::Runtime;
use bytemuck::Pod;
use vgas_cache::client::SegmentUpdate;
use vgas_shm::{AtomicWord, Change};

impl Runtime {
    /// Reads plain values. Complete when it returns.
    #[inline(always)]
    pub fn get<T: Pod>(&self, from: GlobalAddress, to: &mut [T]) -> Result<()> {
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(to);
        let (address, length) = (bytes.as_mut_ptr(), bytes.len());
        // SAFETY: the slice is exclusively borrowed for the call.
        let done = unsafe {
            match from.kind {
                Kind::Tiered => self.client().get_cached(from.partition(), from.offset, address, length),
                Kind::Pinned => {
                    !self.client().is_local(address)
                        && self.endpoint().get_here(from.pinned_part(), from.offset, address, length)
                }
            }
        };
        if done { Ok(()) } else { self.get_slow(from, bytes) }
    }

    /// Out-of-line slow path.
    #[cold]
    #[inline(never)]
    fn get_slow(&self, from: GlobalAddress, to: &mut [u8]) -> Result<()> {
        match from.kind {
            Kind::Tiered => {
                // SAFETY: the slice is exclusively borrowed for the call.
                unsafe { self.client().get_slow(from.partition(), from.offset, to.as_mut_ptr(), to.len()) }?;
            }
            Kind::Pinned if self.client().is_local(to.as_ptr()) => {
                let mut private = vec![0; to.len()];
                self.endpoint().get(from.pinned_part(), from.offset, &mut private)?;
                to.copy_from_slice(&private);
            }
            Kind::Pinned => self.endpoint().get(from.pinned_part(), from.offset, to)?,
        }
        Ok(())
    }

    /// Reads one plain value.
    #[inline]
    pub fn get_value<T: Pod>(&self, from: GlobalAddress) -> Result<T> {
        let mut value = [T::zeroed()];
        self.get(from, &mut value)?;
        Ok(value[0])
    }

    /// Writes plain values. When it returns, `from` is reusable and every later get anywhere sees them.
    ///
    /// # Errors
    /// For an address outside of every segment, and one in a segment that belongs to a library
    /// ([`Runtime::attach_owned`]); for a page that cannot be read, and a segment that can only be read; if a peer is lost.
    #[inline(always)]
    pub fn put<T: Pod>(&self, to: GlobalAddress, from: &[T]) -> Result<()> {
        if to.is_of_library() {
            return Err(not_yours(to));
        }
        self.put_anywhere(to, from)
    }

    /// [`Runtime::put`], even into segments of libraries.
    #[inline(always)]
    pub(crate) fn put_anywhere<T: Pod>(&self, to: GlobalAddress, from: &[T]) -> Result<()> {
        let bytes: &[u8] = bytemuck::cast_slice(from);
        let (address, length) = (bytes.as_ptr(), bytes.len());
        // SAFETY: the slice is borrowed for the call.
        let done = unsafe {
            match to.kind {
                Kind::Tiered => self.client().put_cached(to.partition(), to.offset, address, length),
                Kind::Pinned => {
                    !self.client().is_local(address)
                        && self.endpoint().put_here(to.pinned_part(), to.offset, address, length)
                }
            }
        };
        if done { Ok(()) } else { self.put_slow(to, bytes) }
    }

    /// As [`Runtime::get_slow`].
    #[cold]
    #[inline(never)]
    fn put_slow(&self, to: GlobalAddress, from: &[u8]) -> Result<()> {
        match to.kind {
            Kind::Tiered => {
                // SAFETY: the slice is borrowed for the call.
                unsafe { self.client().put_slow(to.partition(), to.offset, from.as_ptr(), from.len()) }?;
            }
            Kind::Pinned => self.endpoint().put(to.pinned_part(), to.offset, &self.private(from))?,
        }
        Ok(())
    }

    /// Writes one plain value.
    #[inline]
    pub fn put_value<T: Pod>(&self, to: GlobalAddress, value: T) -> Result<()> {
        self.put(to, &[value])
    }

    /// Updates a word atomically, and yields what it was; the word is an `u32`, `i32`, `u64` or `i64`, in the order of bytes of
    /// the machine, and the offset a multiple of its length. When it returns every rank sees the change. Any thread may call it;
    /// no rank need do anything for it.
    ///
    /// A word of a *tiered* segment is updated in its page's place: in this node's DRAM if this node may
    /// write the page, otherwise by the agent of its home, in one message there and one back. It is atomic
    /// with every other update of the word, with puts and gets of the whole word by whatever rank, and with
    /// atomic instructions of its owner through pointers. In a relaxed segment, the puts of this rank that
    /// wait for its barrier travel first.
    ///
    /// A word of a *pinned* segment is changed in no other way between two barriers (see `vgas_rma::endpoint`, "Atomic
    /// updates").
    ///
    /// # Errors
    /// For an offset that is not a multiple of the word's length or lies behind the end, for a page that cannot be read or a
    /// segment that can only be read, and when a peer is lost.
    ///
    /// # Examples
    /// ```no_run
    /// # fn example(runtime: &vgas::Runtime, best: vgas::GlobalAddress) -> vgas::Result<()> {
    /// use vgas::Change;
    /// let before: i64 = runtime.update(best, Change::Max(42))?;
    /// # Ok(()) }
    /// ```
    #[inline]
    pub fn update<T: AtomicWord>(&self, at: GlobalAddress, change: Change<T>) -> Result<T> {
        if at.is_of_library() {
            return Err(not_yours(at));
        }
        self.update_anywhere(at, change)
    }

    /// [`Runtime::update`], even in segments of libraries.
    #[inline]
    pub(crate) fn update_anywhere<T: AtomicWord>(&self, at: GlobalAddress, change: Change<T>) -> Result<T> {
        let was = match at.kind {
            Kind::Tiered => self.client().update(at.partition(), at.offset, change.into())?,
            Kind::Pinned => self.endpoint().update(at.pinned_part(), at.offset, change)?,
        };
        Ok(T::of_bits(was))
    }

    /// Makes many updates, each atomic by itself, and yields what the words were, in the same order. Those of tiered words
    /// travel together, one message for each home; those of one word are made in this order. Otherwise as
    /// [`Runtime::update`].
    ///
    /// # Errors
    /// As [`Runtime::update`], for one that failed; others may have been made.
    pub fn update_many<T: AtomicWord>(&self, updates: &[(GlobalAddress, Change<T>)]) -> Result<Vec<T>> {
        match updates.iter().find(|(at, _)| at.is_of_library()) {
            Some((at, _)) => Err(not_yours(*at)),
            None => self.update_many_anywhere(updates),
        }
    }

    /// [`Runtime::update_many`], even in segments of libraries.
    pub(crate) fn update_many_anywhere<T: AtomicWord>(
        &self,
        updates: &[(GlobalAddress, Change<T>)],
    ) -> Result<Vec<T>> {
        let mut found = Vec::with_capacity(updates.len());
        // Hits are made here; nothing is made of a list with a wrong offset.
        let is_plain = |at: &GlobalAddress| {
            at.kind == Kind::Tiered && self.client().has_plain_word(at.partition(), at.offset, T::WORD)
        };
        if updates.iter().all(|(at, _)| is_plain(at)) {
            for (at, change) in updates {
                match self.client().update_cached(at.partition(), at.offset, (*change).into()) {
                    Some(was) => found.push(T::of_bits(was)),
                    None => break,
                }
            }
        }
        if found.len() < updates.len() {
            found.extend(self.update_others(&updates[found.len()..])?);
        }
        Ok(found)
    }

    /// [`Runtime::update_many`], of any words.
    #[cold]
    #[inline(never)]
    fn update_others<T: AtomicWord>(&self, updates: &[(GlobalAddress, Change<T>)]) -> Result<Vec<T>> {
        let tiered = |(at, _): &&(GlobalAddress, _)| at.kind == Kind::Tiered;
        let to_home = |&(at, change): &(GlobalAddress, Change<T>)| SegmentUpdate {
            of: at.partition(),
            offset: at.offset,
            update: change.into(),
        };
        let segments: Vec<SegmentUpdate> = updates.iter().filter(tiered).map(to_home).collect();
        let mut were = vec![0; segments.len()];
        self.client().update_many(&segments, &mut were)?;
        let mut were = were.into_iter();
        updates
            .iter()
            .map(|&(at, change)| match at.kind {
                Kind::Tiered => Ok(T::of_bits(were.next().unwrap_or_default())),
                Kind::Pinned => self.update_anywhere(at, change),
            })
            .collect()
    }

    /// [`Runtime::update`] that adds to a word of eight bytes; sums wrap around.
    ///
    /// # Errors
    /// As [`Runtime::update`].
    #[inline]
    pub fn fetch_add(&self, at: GlobalAddress, value: u64) -> Result<u64> {
        self.update(at, Change::Add(value))
    }

    /// [`Runtime::update`] that replaces a word of eight bytes if it is `expected`; it has if the old value
    /// equals `expected`.
    ///
    /// # Errors
    /// As [`Runtime::update`].
    #[inline]
    pub fn compare_swap(&self, at: GlobalAddress, expected: u64, desired: u64) -> Result<u64> {
        self.update(at, Change::CompareSwap { expected, desired })
    }

    /// Asks for tiered bytes to be brought to this node when convenient: a hint.
    pub fn prefetch(&self, from: GlobalAddress, bytes: u64) -> Result<()> {
        match from.kind {
            Kind::Tiered => Ok(self.client().prefetch(from.partition(), from.offset, bytes)?),
            Kind::Pinned => Ok(()),
        }
    }
}

/// The error of a write into a segment of a library.
#[cold]
pub(crate) fn not_yours(at: GlobalAddress) -> Error {
    Error::Usage(format!(
        "offset {} of {} belongs to a library, which alone may write there",
        at.offset,
        at.partition()
    ))
}
