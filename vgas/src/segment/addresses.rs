//! Segments that are at one address in every process of the job ([`SegmentOptions::one_address`]): where, as all ranks agree.
//!
//! All ranks keep the same ranges of addresses, because segments come and go on all of them together. So they
//! find the same places for one more, try them, and take the first that is free in all processes.
//!
//! [`SegmentOptions::one_address`]: crate::SegmentOptions::one_address

use super::ranges::SEGMENTS;
use crate::address::{GlobalAddress, Kind};
use crate::config::Size;
use crate::error::{Error, Result};
use crate::runtime::Runtime;
use vgas_cache::local::{BYTES_MAX, Everywhere, Range};
use vgas_cache::partition::PartitionId;
use vgas_rma::Rank;

impl Runtime {
    /// Reserves the addresses of all ranks' parts of a segment where all processes have room for them:
    /// `parts` gives their sizes, `page_bytes` that of its pages, and `exchange` tells all ranks a word and
    /// hears theirs. The error is the same on all.
    pub(super) fn agree_on_addresses(
        &self,
        parts: impl IntoIterator<Item = u64>,
        page_bytes: u64,
        exchange: impl FnOnce(u32) -> Result<Vec<u32>>,
    ) -> Result<Everywhere> {
        let largest = parts.into_iter().max().unwrap_or(0).max(1);
        // An unused page lies between two parts.
        let stride =
            largest.checked_next_multiple_of(page_bytes).and_then(|bytes| bytes.checked_add(page_bytes));
        let range = |base| Range { base, stride: stride.unwrap_or(u64::MAX) as usize, ranks: self.ranks() };
        let bytes = range(0).bytes();
        let places = bytes.map(|bytes| self.addresses().places(bytes)).unwrap_or_default();
        if places.is_empty() {
            let (ranks, most) = (self.ranks(), Size::of_bytes(BYTES_MAX));
            return Err(Error::Usage(format!(
                "{ranks} segments of up to {largest} bytes at one address each: all together have at most {most} of addresses; \
                 attach less, or without one_address"
            )));
        }
        if self.addresses().with(|ranges| ranges.len() >= SEGMENTS) {
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
    /// [`SegmentOptions::one_address`](crate::SegmentOptions::one_address), and outside of the segment. Its owner reaches memory there
    /// while it has [`Segment::local`](crate::Segment::local), other ranks of its node, to read, while they have
    /// [`Segment::local_of_peer`](crate::Segment::local_of_peer).
    ///
    /// Returns the local address of a place in any pinned segment of a rank of this node, good for loads and
    /// stores until the segment is detached; none outside of the segment, and for other nodes.
    pub fn pointer_to(&self, at: GlobalAddress) -> Option<*mut u8> {
        if at.kind == Kind::Pinned {
            return self.endpoint().part_address(at.pinned_part(), at.offset);
        }
        let range = self.addresses().of(at.segment)?.range();
        let is_there = at.offset < self.client().bytes_of(at.partition());
        is_there.then(|| std::ptr::with_exposed_provenance_mut(range.base_of(at.rank.0) + at.offset as usize))
    }

    /// The place of an address that some rank's [`Runtime::pointer_to`] has given for a tiered segment; none for any other.
    pub fn address_of(&self, pointer: *const u8) -> Option<GlobalAddress> {
        let (segment, (owner, offset)) = self.addresses().with(|ranges| {
            ranges.iter().find_map(|(segment, everywhere)| {
                Some((*segment, everywhere.range().locate(pointer.addr())?))
            })
        })?;
        let owner = Rank(owner);
        let is_there = offset < self.client().bytes_of(PartitionId { segment, owner });
        is_there.then_some(GlobalAddress { rank: owner, kind: Kind::Tiered, segment, offset })
    }
}
