//! One mapped file, and checked access to its bytes.

use super::copy::copy;
use crate::error::{Result, RmaError};
use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::mm::{Advice, madvise};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// A shared, writable mapping of a whole file, usually an anonymous one.
pub struct Mapping {
    raw: MmapRaw,
    /// One bit for each block that [`Mapping::prepare`] has seen.
    prepared: OnceLock<Box<[AtomicU64]>>,
}

/// Bytes that [`Mapping::prepare`] maps at a time: enough that the call costs little beside the memory it clears, some
/// tens of microseconds.
const BLOCK_BYTES: usize = 256 << 10;

impl std::fmt::Debug for Mapping {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mapping({:p}, {} bytes)", self.raw.as_ptr(), self.raw.len())
    }
}

/// A checked piece of a [`Mapping`] that keeps it mapped: what an operation in flight owns.
#[derive(Clone, Debug)]
pub struct Span {
    mapping: Arc<Mapping>,
    offset: usize,
    bytes: usize,
}

/// Creates an anonymous file of `bytes` bytes that costs memory only where it is touched and vanishes with the last
/// process that holds it, however that process ends.
pub fn anonymous_file(name: &str, bytes: u64) -> Result<OwnedFd> {
    // Files in memory are subject to the limit of the file size, which surprises.
    let advice = |errno| if errno == Errno::FBIG { "; raise `ulimit -f`" } else { "" };
    let what = |errno| format!("create {bytes} bytes of shared memory ({name}){}", advice(errno));
    let file = memfd_create(name, MemfdFlags::CLOEXEC).map_err(|e| RmaError::system(what(e), e))?;
    rustix::fs::ftruncate(&file, bytes).map_err(|e| RmaError::system(what(e), e))?;
    Ok(file)
}

impl Mapping {
    /// Maps the whole of `file`, shared and writable.
    pub fn of_file(file: impl AsFd) -> Result<Arc<Self>> {
        let file: File = file
            .as_fd()
            .try_clone_to_owned()
            .map_err(|e| RmaError::io("duplicate a shared memory descriptor", e))?
            .into();
        let raw = MmapOptions::new()
            .no_reserve_swap()
            .map_raw(&file)
            .map_err(|e| RmaError::io("map shared memory", e))?;
        Ok(Arc::new(Self { raw, prepared: OnceLock::new() }))
    }

    /// Maps fresh anonymous memory of `bytes` bytes.
    pub fn anonymous(name: &str, bytes: u64) -> Result<Arc<Self>> {
        Self::of_file(anonymous_file(name, bytes)?)
    }

    /// Size of the mapping in bytes.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.raw.len()
    }

    /// First address of the mapping in this process. Dereference it only under the rules of [`crate::shm`].
    #[inline]
    pub fn base(&self) -> *mut u8 {
        self.raw.as_mut_ptr()
    }

    /// Whether `bytes` bytes at `offset` lie inside.
    #[inline]
    pub fn contains(&self, offset: u64, bytes: u64) -> bool {
        offset.checked_add(bytes).is_some_and(|end| end <= self.raw.len() as u64)
    }

    /// Has the system map these bytes into this process now, with memory behind them, instead of a page fault for each 4 KiB
    /// when they are first touched. Works in blocks, each once in the life of the mapping, and costs a few loads
    /// afterwards. Only a hint: where the system refuses, first touches fault as ever.
    #[inline]
    pub fn prepare(&self, offset: usize, bytes: usize) {
        let blocks = self.raw.len().div_ceil(BLOCK_BYTES);
        let words =
            self.prepared.get_or_init(|| (0..blocks.div_ceil(64)).map(|_| AtomicU64::new(0)).collect());
        let end = offset.saturating_add(bytes).div_ceil(BLOCK_BYTES).min(blocks);
        for block in offset / BLOCK_BYTES..end {
            let (word, bit) = (&words[block / 64], 1 << (block % 64));
            if word.load(Ordering::Relaxed) & bit == 0 {
                word.fetch_or(bit, Ordering::Relaxed);
                self.populate(block * BLOCK_BYTES);
            }
        }
    }

    #[cold]
    fn populate(&self, offset: usize) {
        let bytes = BLOCK_BYTES.min(self.raw.len() - offset);
        // SAFETY: rule 2: the range is inside; the advice changes no byte. A refusal (an old kernel, a limit of memory)
        // leaves everything as it was.
        let _ = unsafe { madvise(self.base().add(offset).cast(), bytes, Advice::LinuxPopulateWrite) };
    }

    /// A piece of this mapping.
    ///
    /// # Panics
    /// When the range is not inside; ranges from a peer are checked with [`Mapping::contains`] first.
    pub fn span(self: &Arc<Self>, offset: usize, bytes: usize) -> Span {
        assert!(self.contains(offset as u64, bytes as u64), "span {offset}+{bytes} outside {self:?}");
        Span { mapping: self.clone(), offset, bytes }
    }

    /// Copies bytes out. Panics when the range is not inside.
    pub fn read(&self, offset: usize, to: &mut [u8]) {
        assert!(self.contains(offset as u64, to.len() as u64), "read outside {self:?}");
        // SAFETY: rule 2 was just checked; `to` is private and cannot overlap a shared mapping it does not alias.
        unsafe { copy(self.base().add(offset), to.as_mut_ptr(), to.len()) }
    }

    /// Copies bytes in. Panics when the range is not inside.
    pub fn write(&self, offset: usize, from: &[u8]) {
        assert!(self.contains(offset as u64, from.len() as u64), "write outside {self:?}");
        // SAFETY: as in `read`.
        unsafe { copy(from.as_ptr(), self.base().add(offset), from.len()) }
    }

    /// The atomic word at a multiple of 4. Panics when it is misaligned or outside.
    #[inline]
    pub fn atomic_u32(&self, offset: usize) -> &AtomicU32 {
        assert!(
            offset.is_multiple_of(4) && self.contains(offset as u64, 4),
            "no word at {offset} of {self:?}"
        );
        // SAFETY: rule 2 checked; atomics tolerate concurrent writers (rule 1); the borrow keeps the mapping (rule 3).
        unsafe { AtomicU32::from_ptr(self.base().add(offset).cast()) }
    }

    /// The atomic word at a multiple of 8. Panics when it is misaligned or outside.
    #[inline]
    pub fn atomic_u64(&self, offset: usize) -> &AtomicU64 {
        assert!(
            offset.is_multiple_of(8) && self.contains(offset as u64, 8),
            "no word at {offset} of {self:?}"
        );
        // SAFETY: as in `atomic_u32`.
        unsafe { AtomicU64::from_ptr(self.base().add(offset).cast()) }
    }
}

impl Span {
    /// Length in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Offset in its mapping.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// First address. Valid while the span lives; dereference only under the rules of [`crate::shm`].
    pub fn address(&self) -> *mut u8 {
        // SAFETY: the range was checked when the span was made.
        unsafe { self.mapping.base().add(self.offset) }
    }

    /// The mapping this is a piece of.
    pub fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }

    /// Copies all its bytes out. Panics when the lengths differ.
    pub fn read(&self, to: &mut [u8]) {
        assert_eq!(to.len(), self.bytes);
        self.mapping.read(self.offset, to);
    }

    /// Copies all bytes of another span, which does not overlap this one. Panics when the lengths differ.
    pub fn copy_from(&self, from: &Span) {
        assert_eq!(from.bytes, self.bytes);
        // SAFETY: rules 2 and 3: both ranges were checked when the spans were made and live as long as they do.
        unsafe { copy(from.address(), self.address(), self.bytes) }
    }

    /// Makes all bytes zero.
    pub fn fill_zero(&self) {
        // SAFETY: as in `copy_from`.
        unsafe { self.address().write_bytes(0, self.bytes) }
    }

    /// Copies all its bytes in. Panics when the lengths differ.
    pub fn write(&self, from: &[u8]) {
        assert_eq!(from.len(), self.bytes);
        self.mapping.write(self.offset, from);
    }
}
