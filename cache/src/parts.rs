//! Which small gets read a part of a page instead of bringing all of it in (promise 8). No I/O and no
//! clock; what a rank's threads remember together is in atomics.
//!
//! A get of a few bytes that misses a page of a mebibyte is answered sooner, and costs NVMe, network and the pool's other
//! pages less, by a read of only the blocks that it names. But bytes that are read like that stay nowhere, and whoever
//! comes back to the page would have been better off with all of it. So a rank that misses a page for the second time in a
//! short while gets it whole, and so does one that has just got a neighbour whole: a scan in small steps is a scan of pages
//! after its first small read, and a set of pages that fits the pool is soon in it.
//!
//! "A short while" is a quarter as many misses as the pool has frames. Reads at random over many more pages than that hardly
//! ever meet, and a page that is needed again so soon will still be there.

use crate::page::PageIndex;
use crate::pool::PageSize;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Smaller pages are always read whole: they cost no more than about two reads of a block.
const PARTED_BYTES_MIN: u32 = 256 << 10;
/// A part is at most one of so many parts of a page.
const PAGE_PARTS_MIN: u32 = 16;
/// A page so close to the last one that came whole is the next one of a scan, those between them having been read ahead.
const NEAR: u64 = 4;

/// How long gets may be that read parts of pages; the same for all ranks and agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes, as far as pages are large enough; 0: none does.
    pub bytes_max: u64,
    /// Smaller pages are read whole.
    pub page_bytes_min: u32,
    /// A part is at most one of so many parts of a page.
    pub page_parts_min: u32,
}

impl Limits {
    /// Where a user wants up to so many bytes.
    pub fn new(bytes_max: u64) -> Self {
        Self { bytes_max, page_bytes_min: PARTED_BYTES_MIN, page_parts_min: PAGE_PARTS_MIN }
    }

    /// Most bytes of a get that reads a part of a page of this size; 0: none does.
    pub fn of(&self, size: PageSize) -> u32 {
        match size.bytes() >= self.page_bytes_min {
            true => self.bytes_max.min(u64::from(size.bytes() / self.page_parts_min)) as u32,
            false => 0,
        }
    }
}

/// The pages of which a rank has read parts of late. Any thread may use it; threads that do at the same time may undo each
/// other's remarks, which costs a read of a part more.
#[derive(Debug)]
pub struct History {
    /// A page is remembered in the slot that its number names, until another one is: its number plus one.
    slots: Box<[AtomicU64]>,
    /// The last page that came whole.
    whole: AtomicU64,
}

impl History {
    /// For a pool of so many frames.
    pub fn new(pool_frames: u32) -> Self {
        let slots = (pool_frames / 4).clamp(8, 4096).next_power_of_two();
        Self { slots: (0..slots).map(|_| AtomicU64::new(0)).collect(), whole: AtomicU64::new(u64::MAX / 2) }
    }

    /// Whether a part of this page was read of late, or a neighbour came whole, so that it should come whole, too.
    pub fn knows(&self, page: PageIndex) -> bool {
        self.slot(page).load(Relaxed) == page.0.wrapping_add(1)
            || self.whole.load(Relaxed).abs_diff(page.0) <= NEAR
    }

    /// Remarks that this page comes whole.
    pub fn comes_whole(&self, page: PageIndex) {
        self.whole.store(page.0, Relaxed);
    }

    /// Remarks that a part of this page is being read.
    pub fn remark(&self, page: PageIndex) {
        self.slot(page).store(page.0.wrapping_add(1), Relaxed);
    }

    fn slot(&self, page: PageIndex) -> &AtomicU64 {
        &self.slots[page.0 as usize & (self.slots.len() - 1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_pages_have_no_parts_and_large_ones_small_parts() {
        let bytes_max =
            |page_bytes, wanted| Limits::new(wanted).of(PageSize::of_bytes(page_bytes).expect("a size"));
        assert_eq!(bytes_max(64 << 10, 16 << 10), 0);
        assert_eq!(bytes_max(256 << 10, 64 << 10), 16 << 10);
        assert_eq!(bytes_max(4 << 20, 16 << 10), 16 << 10);
        assert_eq!(bytes_max(4 << 20, 0), 0, "switched off");
        assert_eq!(bytes_max(4 << 20, u64::MAX), 256 << 10);
    }

    /// How many of these misses bring a page whole.
    fn whole(history: &History, misses: impl Iterator<Item = u64>) -> usize {
        let mut whole = 0;
        for page in misses.map(PageIndex) {
            if history.knows(page) {
                history.comes_whole(page);
                whole += 1;
            } else {
                history.remark(page);
            }
        }
        whole
    }

    #[test]
    fn who_comes_back_soon_gets_the_page_and_who_comes_back_late_does_not() {
        let history = History::new(64);
        assert_eq!(whole(&history, [0, 0, 7, 7].into_iter()), 2);
        // Twice over as many pages as it remembers, and over many more.
        assert_eq!(whole(&History::new(64), (0..16).chain(0..16)), 16);
        assert_eq!(whole(&History::new(64), (0..64).chain(0..64)), 0);
    }

    #[test]
    fn a_scan_in_small_steps_reads_one_part() {
        // Some of its pages have been read ahead and do not miss.
        let missed = [10, 10, 11, 12, 13, 16, 17, 21, 22];
        assert_eq!(whole(&History::new(64), missed.into_iter()), missed.len() - 1);
    }

    #[test]
    fn reads_at_random_hardly_meet() {
        let mut random = 1u64;
        let pages = std::iter::repeat_with(|| {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (random >> 33) % 1024
        });
        let whole = whole(&History::new(64), pages.take(10_000));
        assert!(whole < 400, "{whole} of 10000 came whole");
    }
}
