//! One range of addresses for all ranks' parts of a segment, the same in every process of the job, so that an address is a global
//! one (DRust §4.1.1; `objects` stands on it). A process reserves all of it: where its own segment is not, nothing is,
//! and a stray pointer ends in a sentence instead of in somebody's heap.

use super::range::Range;
use super::{Trouble, signal};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::ptr::without_provenance_mut;
use std::sync::OnceLock;

/// The range, reserved in this process until this is dropped.
#[derive(Debug)]
pub struct Everywhere {
    range: Range,
    bytes: usize,
    /// Where the handlers have it.
    watched: OnceLock<usize>,
}

impl Everywhere {
    /// Reserves it, if nothing is there: other processes may be asked first, which have to find the same.
    ///
    /// # Errors
    /// Something is there, or the system refuses so many addresses.
    pub fn reserve(range: Range) -> Result<Self, Trouble> {
        let bytes = range.bytes().ok_or(Trouble::System(Errno::NOMEM))?;
        let at: *mut c_void = without_provenance_mut(range.base);
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
        // SAFETY: rule 1: fresh addresses, without access: where anything is, the kernel refuses.
        let reserved =
            unsafe { mmap_anonymous(at, bytes, ProtFlags::empty(), flags) }.map_err(Trouble::System)?;
        if reserved.addr() != range.base {
            // A kernel before 4.17, which takes the address for a hint.
            // SAFETY: rule 1: just reserved.
            let _ = unsafe { munmap(reserved, bytes) };
            return Err(Trouble::System(Errno::EXIST));
        }
        Ok(Self { range, bytes, watched: OnceLock::new() })
    }

    /// From now on an access to another rank's part ends the process with a line that says so.
    ///
    /// # Errors
    /// The system's, or [`RANGES_MAX`](super::RANGES_MAX) are watched.
    pub fn watch(&self, own: u32) -> Result<(), Trouble> {
        if self.watched.get().is_none() {
            let _ = self.watched.set(signal::watch_strays(self.range, own)?);
        }
        Ok(())
    }

    /// Where everything is.
    pub fn range(&self) -> Range {
        self.range
    }
}

impl Drop for Everywhere {
    fn drop(&mut self) {
        self.watched.get().copied().into_iter().for_each(signal::forget_strays);
        // SAFETY: rule 1: reserved by this value; the segment that was opened in it has ended.
        let _ = unsafe { munmap(without_provenance_mut(self.range.base), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::BASES;

    #[test]
    fn addresses_are_found_again() {
        let range = Range { base: BASES[0], stride: 3 << 20, ranks: 5 };
        for rank in 0..5 {
            for offset in [0, 1, (3 << 20) - 1] {
                let address = range.base_of(rank) + offset;
                assert_eq!(range.locate(address), Some((rank, offset as u64)));
            }
        }
        assert_eq!((range.locate(range.base - 1), range.locate(range.base + (15 << 20))), (None, None));
        assert_eq!(Range { stride: 1 << 40, ranks: 65, ..range }.bytes(), None);
        assert_eq!(Range { stride: usize::MAX, ranks: 2, ..range }.bytes(), None);
    }

    /// Goal: as much as is promised can be reserved, unless something is there (as where a sanitizer watches), which is left alone.
    #[test]
    fn all_of_it_can_be_reserved_once() {
        let range = Range { base: BASES[0], stride: 1 << 40, ranks: 64 };
        let end = range.base + range.bytes().unwrap();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let is_taken = maps.lines().any(|line| {
            let number = |text: &str| usize::from_str_radix(text, 16).unwrap();
            let (from, to) = line.split(' ').next().unwrap().split_once('-').unwrap();
            number(from) < end && number(to) > range.base
        });
        let reserved = Everywhere::reserve(range);
        assert_eq!(reserved.is_err(), is_taken, "{maps}");
        let Ok(reserved) = reserved else { return };
        assert!(Everywhere::reserve(Range { base: BASES[1], stride: 1 << 20, ranks: 1 }).is_err());
        drop(reserved);
        drop(Everywhere::reserve(range).unwrap());
    }
}
