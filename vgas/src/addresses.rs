//! Segments that are at one address in every process of the job ([`SegmentOptions::one_address`]): where, as all ranks agree.
//!
//! Ranges of addresses are kept by all ranks alike, because segments come and go on all of them together. So they find the same
//! places for one more, try them, and take the first that is free in all processes.
//!
//! [`SegmentOptions::one_address`]: crate::SegmentOptions::one_address

use crate::address::{GlobalAddress, Kind};
use crate::config::Size;
use crate::error::{Error, Result};
use crate::runtime::Runtime;
use crate::segments::Segment;
use std::sync::{Arc, PoisonError, RwLock};
use vgas_cache::local::{BASES, BYTES_MAX, Everywhere, RANGES_MAX, Range};
use vgas_cache::partition::{PartitionId, SegmentId};
use vgas_cache::pool::PAGE_BYTES_MAX;
use vgas_rma::Rank;

/// Most places that are tried for a range.
const PLACES: usize = 2 * BASES.len();

/// Most such segments of a job: all places are watched while one is chosen.
const SEGMENTS: usize = RANGES_MAX - PLACES;

/// The ranges of this process, each with its segment.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    ranges: RwLock<Vec<(SegmentId, Arc<Everywhere>)>>,
}

impl Addresses {
    fn with<T>(&self, look: impl FnOnce(&[(SegmentId, Arc<Everywhere>)]) -> T) -> T {
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

    /// Where so many bytes would fit beside the ranges that there are: the same on all ranks, the first [`BASES`] first.
    fn places(&self, bytes: usize) -> Vec<usize> {
        let mut taken: Vec<(usize, usize)> = self.with(|ranges| {
            let ends = |range: Range| (range.base, range.base + range.bytes().unwrap_or(0));
            ranges.iter().map(|(_, everywhere)| ends(everywhere.range())).collect()
        });
        taken.sort_unstable();
        places(&taken, bytes)
    }
}

/// The first place from each of [`BASES`] on, and the one behind that, that is free of what is taken and of the places before it: all are
/// tried at once.
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

impl Runtime {
    /// Reserves the addresses of all ranks' parts of a segment where all processes have room for them: `parts` says how large these
    /// are, `page_bytes` how large its pages, and `exchange` tells all ranks a word and hears theirs. The error is the same on all.
    pub(crate) fn agree_on_addresses(
        &self,
        parts: impl IntoIterator<Item = u64>,
        page_bytes: u64,
        exchange: impl FnOnce(u32) -> Result<Vec<u32>>,
    ) -> Result<Everywhere> {
        let largest = parts.into_iter().max().unwrap_or(0).max(1);
        // A page that is nobody's lies between two parts.
        let stride =
            largest.checked_next_multiple_of(page_bytes).and_then(|bytes| bytes.checked_add(page_bytes));
        let range = |base| Range { base, stride: stride.unwrap_or(u64::MAX) as usize, ranks: self.ranks() };
        let bytes = range(0).bytes();
        let places = bytes.map(|bytes| self.addresses.places(bytes)).unwrap_or_default();
        if places.is_empty() {
            let (ranks, most) = (self.ranks(), Size::of_bytes(BYTES_MAX));
            return Err(Error::Usage(format!(
                "{ranks} segments of up to {largest} bytes at one address each: all together have at most {most} of addresses; \
                 attach less, or without one_address"
            )));
        }
        if self.addresses.with(|ranges| ranges.len() >= SEGMENTS) {
            return Err(Error::Usage(format!(
                "a job has at most {SEGMENTS} segments at one address: detach some, or attach without one_address"
            )));
        }
        // Ready to be used before the others are told: afterwards nothing can fail here that they do not know of.
        let reserve = |base| {
            let everywhere = Everywhere::reserve(range(base)).ok()?;
            everywhere.watch(self.rank().0).ok().map(|()| everywhere)
        };
        let reserved: Vec<Option<Everywhere>> = places.into_iter().map(reserve).collect();
        let own = reserved
            .iter()
            .enumerate()
            .fold(0u32, |own, (bit, found)| own | u32::from(found.is_some()) << bit);
        let common = exchange(own)?.into_iter().fold(u32::MAX, |common, one| common & one);
        let mut common = reserved
            .into_iter()
            .enumerate()
            .filter(|(bit, _)| common >> bit & 1 == 1)
            .filter_map(|(_, one)| one);
        common.next().ok_or_else(|| {
            Error::Usage(format!(
                "no range of {} bytes of addresses is free in all processes of the job: attach without one_address",
                bytes.unwrap_or(0)
            ))
        })
    }

    /// The address of a place in a tiered segment, the same in every process; none without
    /// [`SegmentSpec::one_address`](crate::SegmentSpec::one_address) or [`SegmentOptions::one_address`](crate::SegmentOptions::one_address),
    /// and outside of the segment. Its owner reaches memory there once it has called [`Runtime::local`] or, of a further one,
    /// [`Runtime::local_of`], other ranks of its node to read it with [`Runtime::local_of_mate`].
    ///
    /// Of a place in any pinned segment of a rank of this node, its address in this process, good for loads and stores until the segment
    /// is detached; none outside of the segment, and of other nodes.
    pub fn pointer_to(&self, at: GlobalAddress) -> Option<*mut u8> {
        if at.kind == Kind::Pinned {
            return self.endpoint().part_address(at.pinned_part(), at.offset);
        }
        let range = self.addresses.of(at.segment)?.range();
        let is_there = at.offset < self.client().bytes_of(at.partition());
        is_there.then(|| std::ptr::with_exposed_provenance_mut(range.base_of(at.rank.0) + at.offset as usize))
    }

    /// The place of an address that some rank's [`Runtime::pointer_to`] has given for a tiered segment; none for any other.
    pub fn address_of(&self, pointer: *const u8) -> Option<GlobalAddress> {
        let (segment, (owner, offset)) = self.addresses.with(|ranges| {
            ranges.iter().find_map(|(segment, everywhere)| {
                Some((*segment, everywhere.range().locate(pointer.addr())?))
            })
        })?;
        let owner = Rank(owner);
        let is_there = offset < self.client().bytes_of(PartitionId { segment, owner });
        is_there.then(|| Segment::numbered(segment).address(owner, offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIB: usize = 1 << 40;

    /// Goal: places are free, inside of what is promised, and found for as long as there is room, whatever is taken.
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
