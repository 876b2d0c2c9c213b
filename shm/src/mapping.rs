//! One mapped file, and checked access to its bytes.

use super::copy::{copy, fill};
use crate::error::{Result, ShmError};
use rustix::fs::{MemfdFlags, fstat, memfd_create};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// A shared, writable mapping of a whole file, usually an anonymous one.
pub struct Mapping {
    base: *mut u8,
    bytes: usize,
    /// What is mapped: `bytes`, and the rest of their last page.
    reserved_bytes: usize,
    /// One bit for each block that [`Mapping::prepare`] has seen.
    prepared: OnceLock<Box<[AtomicU64]>>,
}

/// Bytes that [`Mapping::prepare`] maps at a time: a huge page of the common machines. Clearing it takes some 100 µs.
const BLOCK_BYTES: usize = 2 << 20;

/// Smallest page of any system.
const PAGE_BYTES_MIN: usize = 4096;

impl std::fmt::Debug for Mapping {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mapping({:p}, {} bytes)", self.base, self.bytes)
    }
}

// SAFETY: the address belongs to the mapping, which any thread may use: rules 1 and 2 say how.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `of_file`; rule 3: whoever uses the bytes keeps the mapping.
        let _ = unsafe { munmap(self.base.cast(), self.reserved_bytes) };
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
    let file = memfd_create(name, MemfdFlags::CLOEXEC).map_err(|e| ShmError::new(what(e), e))?;
    rustix::fs::ftruncate(&file, bytes).map_err(|e| ShmError::new(what(e), e))?;
    Ok(file)
}

/// Largest mapping that becomes part of a core file. Rings and tables of control do; what is reserved for segments, and caches of
/// pages, do not: the kernel would allocate each of their pages to write it.
const DUMPED_BYTES_MAX: usize = 16 << 20;

impl Mapping {
    /// Maps the whole of `file`, shared and writable. Core files omit it if it is larger than 16 MiB, except for what
    /// [`Mapping::include_in_dumps`] names.
    pub fn of_file(file: impl AsFd) -> Result<Arc<Self>> {
        let size = fstat(&file).map_err(|e| ShmError::new("ask for the size of shared memory", e))?.st_size;
        let failed = |errno| ShmError::new(format!("map {size} bytes of shared memory"), errno);
        let bytes = usize::try_from(size).map_err(|_| failed(Errno::OVERFLOW))?;
        let reserved_bytes = bytes.max(1).next_multiple_of(rustix::param::page_size());
        // Huge pages need addresses of their own kind, which the system does not choose by itself for shared memory: a
        // range that is larger by one huge page contains a place.
        let slack = if bytes < BLOCK_BYTES { 0 } else { BLOCK_BYTES };
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::NORESERVE);
        // SAFETY: a new range of addresses; nothing else can be there. The file is then mapped inside of it, and what is
        // left of it on both sides is given back.
        unsafe {
            let all = mmap_anonymous(
                null_mut(),
                reserved_bytes + slack,
                ProtFlags::empty(),
                flags | MapFlags::PRIVATE,
            )
            .map_err(failed)?
            .cast::<u8>();
            let before = if slack == 0 { 0 } else { all.align_offset(BLOCK_BYTES) };
            let base = all.add(before);
            let mapped = mmap(
                base.cast(),
                reserved_bytes,
                access,
                flags | MapFlags::SHARED | MapFlags::FIXED,
                file,
                0,
            );
            if let Err(errno) = mapped {
                let _ = munmap(all.cast(), reserved_bytes + slack);
                return Err(failed(errno));
            }
            if reserved_bytes > DUMPED_BYTES_MAX {
                // The advice changes no byte; refused, it costs a large core file.
                let _ = madvise(base.cast(), reserved_bytes, Advice::LinuxDontDump);
            }
            for (from, bytes) in [(all, before), (base.add(reserved_bytes), slack - before)] {
                if bytes > 0 {
                    munmap(from.cast(), bytes).map_err(failed)?;
                }
            }
            Ok(Arc::new(Self { base, bytes, reserved_bytes, prepared: OnceLock::new() }))
        }
    }

    /// Maps fresh anonymous memory of `bytes` bytes.
    pub fn anonymous(name: &str, bytes: u64) -> Result<Arc<Self>> {
        Self::of_file(anonymous_file(name, bytes)?)
    }

    /// Size of the mapping in bytes.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// First address of the mapping in this process. Dereference it only under the rules of [this crate](crate).
    #[inline]
    pub fn base(&self) -> *mut u8 {
        self.base
    }

    /// Whether `bytes` bytes at `offset` lie inside.
    #[inline]
    pub fn contains(&self, offset: u64, bytes: u64) -> bool {
        offset.checked_add(bytes).is_some_and(|end| end <= self.bytes as u64)
    }

    /// Has the system map these bytes into this process now, with memory behind them, instead of a page fault for each 4 KiB
    /// when they are first touched. Works in blocks, each once in the life of the mapping, and costs a few loads
    /// afterwards. A block that nobody has touched becomes one huge page if the system has one: copies then run at twice
    /// the speed, and a device is told of one piece of memory instead of 512 (its queue has room for a few hundred).
    /// Only a hint: where the system refuses, first touches fault as ever.
    #[inline]
    pub fn prepare(&self, offset: usize, bytes: usize) {
        let blocks = self.bytes.div_ceil(BLOCK_BYTES);
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

    /// Makes the bytes a part of core files of this process, also where the mapping is not: what the program keeps there helps
    /// to find out why it crashed.
    pub fn include_in_dumps(&self, offset: usize, bytes: usize) {
        let from = offset.min(self.bytes) / PAGE_BYTES_MIN * PAGE_BYTES_MIN;
        let end = offset.saturating_add(bytes).min(self.bytes);
        if end > from {
            // SAFETY: rule 2: the range is inside; the advice changes no byte.
            let _ = unsafe { madvise(self.base.add(from).cast(), end - from, Advice::LinuxDoDump) };
        }
    }

    /// [`Mapping::prepare`] of all of it, by as many threads as this process may use cores.
    pub fn prepare_all(&self) {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let part = self.bytes.div_ceil(threads).next_multiple_of(BLOCK_BYTES).max(BLOCK_BYTES);
        std::thread::scope(|scope| {
            for from in (0..self.bytes).step_by(part) {
                let prepare = move || self.prepare(from, part.min(self.bytes - from));
                // A system without room for a thread has its memory found where it is used.
                let _ = std::thread::Builder::new().spawn_scoped(scope, prepare);
            }
        });
    }

    #[cold]
    fn populate(&self, offset: usize) {
        let bytes = BLOCK_BYTES.min(self.bytes - offset);
        if bytes == BLOCK_BYTES && self.is_untouched(offset) {
            // One page must be there to be made part of a huge one.
            self.populate_small(offset, PAGE_BYTES_MIN);
            // SAFETY: rule 2: the range is inside; the advice changes no byte. It needs Linux 6.1 and no setting of the
            // system; refused, it leaves small pages.
            let _ = unsafe { libc::madvise(self.base.add(offset).cast(), bytes, libc::MADV_COLLAPSE) };
        }
        self.populate_small(offset, bytes);
    }

    fn populate_small(&self, offset: usize, bytes: usize) {
        // SAFETY: rule 2: the range is inside; the advice changes no byte. A refusal (an old kernel, a limit of memory)
        // leaves everything as it was.
        let _ = unsafe { madvise(self.base.add(offset).cast(), bytes, Advice::LinuxPopulateWrite) };
    }

    /// Whether no process has touched the block yet. Pages in use are left as they are: moving them into a huge page would
    /// take them out of everybody's mappings for a moment, which a process that serves its own faults would notice.
    fn is_untouched(&self, offset: usize) -> bool {
        let mut present = [0u8; BLOCK_BYTES / PAGE_BYTES_MIN];
        // SAFETY: rule 2: the range is inside; the answer has a byte for each page of at least 4 KiB.
        let asked = unsafe {
            libc::mincore(self.base().add(offset).cast(), BLOCK_BYTES, present.as_mut_ptr().cast())
        };
        asked == 0 && present.iter().all(|page| page & 1 == 0)
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

    /// First address. Valid while the span lives; dereference only under the rules of [this crate](crate).
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

    /// Copies all bytes of another span. If the two overlap, each word of the result is one of the source's, or one that was copied
    /// before. Panics when the lengths differ.
    pub fn copy_from(&self, from: &Span) {
        assert_eq!(from.bytes, self.bytes);
        // SAFETY: rules 2 and 3: both ranges were checked when the spans were made and live as long as they do.
        unsafe { copy(from.address(), self.address(), self.bytes) }
    }

    /// Makes all bytes zero.
    pub fn fill_zero(&self) {
        // SAFETY: as in `copy_from`. The fill tolerates other users of the bytes.
        unsafe { fill(self.address(), 0, self.bytes) }
    }

    /// Copies all its bytes in. Panics when the lengths differ.
    pub fn write(&self, from: &[u8]) {
        assert_eq!(from.len(), self.bytes);
        self.mapping.write(self.offset, from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Preparing is about speed alone: what was written before stays, in every mapping, to the odd end of the file.
    #[test]
    fn preparing_changes_no_byte() {
        let file = anonymous_file("prepare", (2 * BLOCK_BYTES + 100) as u64).unwrap();
        let [one, other] = [(); 2].map(|()| Mapping::of_file(&file).unwrap());
        assert!((one.base() as usize).is_multiple_of(BLOCK_BYTES), "no place for a huge page");
        one.write(BLOCK_BYTES + 5, b"before");
        assert!(one.is_untouched(0) && !one.is_untouched(BLOCK_BYTES));
        one.prepare(0, one.bytes());
        assert!(!one.is_untouched(0));
        other.prepare(0, other.bytes());
        one.write(BLOCK_BYTES - 2, b"edge");
        one.write(2 * BLOCK_BYTES + 97, b"end");
        for (at, bytes) in
            [(BLOCK_BYTES + 5, &b"before"[..]), (BLOCK_BYTES - 2, b"edge"), (2 * BLOCK_BYTES + 97, b"end")]
        {
            let mut read = vec![0; bytes.len()];
            other.read(at, &mut read);
            assert_eq!(read, bytes, "at {at}");
        }
        assert_eq!(other.atomic_u64(0).load(Ordering::Relaxed), 0);
    }

    /// Goal: all of a mapping has memory after it, also where its size is none of blocks, and where there is nothing of it.
    #[test]
    fn all_is_prepared() {
        for bytes in [5 * BLOCK_BYTES, 3 * BLOCK_BYTES + 100, 100, 0] {
            let all = Mapping::anonymous("all", bytes as u64).unwrap();
            all.prepare_all();
            assert!((0..bytes / BLOCK_BYTES).all(|block| !all.is_untouched(block * BLOCK_BYTES)), "{bytes}");
        }
    }

    #[test]
    fn an_empty_file_is_an_empty_mapping() {
        assert_eq!(Mapping::anonymous("empty", 0).unwrap().bytes(), 0);
    }
}
