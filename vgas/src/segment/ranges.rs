//! Ranges of addresses that segments have in every process of the job.

use std::sync::{Arc, PoisonError, RwLock};
use vgas_cache::local::{BASES, BYTES_MAX, Everywhere, RANGES_MAX, Range};
use vgas_cache::partition::SegmentId;
use vgas_cache::pool::PAGE_BYTES_MAX;

/// Most places that are tried for a range.
const PLACES: usize = 2 * BASES.len();

/// Most such segments of a job: all places are watched while one is chosen.
pub(super) const SEGMENTS: usize = RANGES_MAX - PLACES;

/// The ranges of this process, each with its segment.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    ranges: RwLock<Vec<(SegmentId, Arc<Everywhere>)>>,
}

impl Addresses {
    pub(super) fn with<T>(&self, look: impl FnOnce(&[(SegmentId, Arc<Everywhere>)]) -> T) -> T {
        // It is changed in single steps.
        look(&self.ranges.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// That of a segment.
    pub fn of(&self, segment: SegmentId) -> Option<Arc<Everywhere>> {
        self.with(|ranges| {
            ranges.iter().find(|(other, _)| *other == segment).map(|(_, everywhere)| everywhere.clone())
        })
    }

    /// A segment has been attached there.
    pub fn begin(&self, segment: SegmentId, everywhere: Everywhere) {
        let mut ranges = self.ranges.write().unwrap_or_else(PoisonError::into_inner);
        ranges.push((segment, Arc::new(everywhere)));
    }

    /// A segment is no more.
    pub fn end(&self, segment: SegmentId) {
        self.ranges.write().unwrap_or_else(PoisonError::into_inner).retain(|(other, _)| *other != segment);
    }

    /// Returns the places for this many bytes beside the existing ranges: the same on all ranks, the first
    /// [`BASES`] first.
    pub(super) fn places(&self, bytes: usize) -> Vec<usize> {
        let mut taken: Vec<(usize, usize)> = self.with(|ranges| {
            let ends = |range: Range| (range.base, range.base + range.bytes().unwrap_or(0));
            ranges.iter().map(|(_, everywhere)| ends(everywhere.range())).collect()
        });
        taken.sort_unstable();
        places(&taken, bytes)
    }
}

/// The first place from each of [`BASES`] on, and the one behind that, that is free of the taken ranges and
/// of the places before it: all are tried at once.
fn places(taken: &[(usize, usize)], bytes: usize) -> Vec<usize> {
    let end_of_all = BASES[0] + BYTES_MAX as usize;
    let free_from = |from: usize| {
        let mut at = from;
        for &(base, end) in taken {
            if at.checked_add(bytes).is_some_and(|behind| behind <= base) {
                break;
            }
            at = at.max(end.next_multiple_of(PAGE_BYTES_MAX as usize));
        }
        at.checked_add(bytes).is_some_and(|behind| behind <= end_of_all).then_some(at)
    };
    let mut found: Vec<usize> = Vec::new();
    for from in BASES {
        for from in [from, from + (BASES[0] >> 4)] {
            let is_apart = |at: &usize| found.iter().all(|other| at.abs_diff(*other) >= bytes.max(1));
            found.extend(free_from(from).filter(is_apart));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIB: usize = 1 << 40;

    /// Goal: places are free, inside of the promised range, and found for as long as there is room, whatever
    /// is taken.
    #[test]
    fn places_are_free() {
        assert_eq!(places(&[], 64 * TIB)[0], BASES[0]);
        assert!(places(&[], 65 * TIB).iter().all(|&at| at + 65 * TIB <= BASES[0] + 64 * TIB));
        let mut taken: Vec<(usize, usize)> = Vec::new();
        for bytes in (1..200).map(|n: usize| (n * 7919 % 97 + 1) << 32) {
            let found = places(&taken, bytes);
            assert!(
                found
                    .iter()
                    .enumerate()
                    .all(|(n, at)| { found[..n].iter().all(|other| at.abs_diff(*other) >= bytes) })
            );
            for &at in &found {
                assert!(at.is_multiple_of(PAGE_BYTES_MAX as usize) && at + bytes <= BASES[0] + 64 * TIB);
                assert!(
                    taken.iter().all(|&(base, end)| at + bytes <= base || end <= at),
                    "{at:#x} {taken:x?}"
                );
            }
            taken.push((found[0], found[0] + bytes));
            taken.sort_unstable();
        }
        assert_eq!(places(&[(BASES[3], BASES[0] + 64 * TIB)], 1), []);
        assert_eq!(places(&[(BASES[0] + TIB, BASES[0] + 64 * TIB)], TIB)[0], BASES[0], "a gap");
    }
}
