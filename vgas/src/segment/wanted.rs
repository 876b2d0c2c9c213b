//! A rank's request to attach a segment, as the other ranks are told.

use super::SegmentOptions;
use crate::address::LIBRARY_TIERED;
use serde::{Deserialize, Serialize};
use vgas_cache::page::PageIndex;
use vgas_cache::partition::{Policy, SegmentId};
use vgas_nvm::{NAME_BYTES_MAX, name_hash};

/// The library that a segment belongs to: it keeps objects there, so that nothing else may write into the segment.
///
/// Ranks whose owners differ are not given one segment ([`Runtime::attach_owned`](crate::Runtime::attach_owned)).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentOwner {
    /// The segment's place among those of libraries, of each kind, below 16: its number is [`library_segment`] of this.
    pub slot: u16,
    /// The library, and the call by which it attaches: `the heap of Objects::attach`.
    pub library: String,
    /// A number of the rank's program, for a library whose bytes mean the same only in the same program.
    pub program: u64,
    /// All else in which the ranks must agree, as users are told of it.
    pub options: String,
}

/// Returns the number of a tiered segment that a library attaches with this [`SegmentOwner::slot`], for the library's services.
///
/// # Panics
/// For a slot that is not below 16.
pub const fn library_segment(slot: u16) -> SegmentId {
    assert!(slot < LIBRARY_TIERED.end - LIBRARY_TIERED.start, "slots of libraries are below 16");
    SegmentId(LIBRARY_TIERED.start + slot)
}

/// A rank's request, as far as all ranks must make the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AttachRequest {
    kind: u8,
    number: u16,
    page_bytes: u32,
    policy: u32,
    is_relaxed: bool,
    has_one_address: bool,
    name: Option<String>,
    /// A hash of the [`SegmentOwner`]; 0 of none.
    pub owner: u64,
}

/// A rank's part of a new segment, as told to the others: small, because a barrier carries it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Part {
    pub wanted: AttachRequest,
    pub bytes: u64,
    /// The first page, and the code of why the part can only be read, or 0; none if the rank has no part.
    pub created: Option<(PageIndex, u32)>,
}

impl AttachRequest {
    pub(super) fn new(
        options: &SegmentOptions,
        number: Option<SegmentId>,
        owner: Option<&SegmentOwner>,
    ) -> Self {
        let ascii = |name: &String| name.chars().filter(char::is_ascii).take(NAME_BYTES_MAX).collect();
        let hash = |owner: &SegmentOwner| name_hash(&format!("{owner:?}")).max(1);
        Self {
            kind: options.kind as u8,
            number: number.unwrap_or_default().0,
            page_bytes: options.page_bytes,
            policy: options.policy(owner.is_some()).encode(),
            is_relaxed: options.is_relaxed,
            has_one_address: options.has_one_address,
            name: options.name.as_ref().map(ascii),
            owner: owner.map_or(0, hash),
        }
    }

    /// Names the first option that differs.
    pub(super) fn difference(&self, other: &Self) -> &'static str {
        let policy = |one: &Self| Policy::decode(one.policy).unwrap_or_default();
        let (own_policy, other_policy) = (policy(self), policy(other));
        let pairs = [
            (self.owner != other.owner, "for different libraries, or one of them plainly"),
            (self.kind != other.kind, "of different kinds"),
            (self.name != other.name, "with different names"),
            (self.page_bytes != other.page_bytes, "with different page sizes"),
            (self.is_relaxed != other.is_relaxed, "one relaxed and one not"),
            (self.has_one_address != other.has_one_address, "one with one_address and one without"),
            (own_policy.home_only != other_policy.home_only, "one with home_only and one without"),
            (own_policy != other_policy, "with different options"),
        ];
        pairs.into_iter().find_map(|(differs, how)| differs.then_some(how)).unwrap_or("in different order")
    }
}
