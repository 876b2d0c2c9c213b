//! One range of addresses for all ranks' parts of a segment, the same in every process of the job, so that an address is a global
//! one (DRust §4.1.1; `objects` stands on it). A process reserves all of it: where its own segment is not, nothing is,
//! and a stray pointer ends in a sentence instead of in somebody's heap.

use super::Trouble;
use super::signal;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::ptr::without_provenance_mut;
use std::sync::OnceLock;

/// Where such a range may begin: addresses that neither programs nor their libraries, heaps and stacks use on 64-bit Linux, with and
/// without randomised layout. Sanitizers use some.
pub const BASES: [usize; 4] = [0x1000_0000_0000, 0x2000_0000_0000, 0x3000_0000_0000, 0x0800_0000_0000];

/// Most bytes of such ranges: from the first of [`BASES`] to where programs are loaded.
pub const BYTES_MAX: u64 = 64 << 40;

/// Most such ranges of a process.
pub const RANGES_MAX: usize = 64;

/// Where the segments of all ranks are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First address of rank 0's segment.
    pub base: usize,
    /// From the beginning of one rank's to that of the next one's; a multiple of the page size.
    pub stride: usize,
    /// How many ranks there are.
    pub ranks: u32,
}

impl Range {
    /// How far it reaches; none when that cannot be addressed.
    pub fn bytes(&self) -> Option<usize> {
        self.stride.checked_mul(self.ranks as usize).filter(|bytes| *bytes as u64 <= BYTES_MAX)
    }

    /// First address of a rank's segment.
    pub fn base_of(&self, rank: u32) -> usize {
        self.base + self.stride * rank as usize
    }

    /// Whose segment an address would be in, and where; none outside of the range.
    pub fn locate(&self, address: usize) -> Option<(u32, u64)> {
        let offset = address.checked_sub(self.base)?;
        let rank = offset.checked_div(self.stride)?;
        (rank < self.ranks as usize).then_some((rank as u32, (offset % self.stride) as u64))
    }
}

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
    /// The system's, or [`RANGES_MAX`] are watched.
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
