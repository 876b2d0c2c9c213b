//! Further pinned segments: memory of a rank's beside its first pinned segment, for libraries that want some of their own.
//!
//! ```no_run
//! # fn example(runtime: &vgas::Runtime) -> vgas::Result<()> {
//! use vgas::{Rank, SegmentOptions};
//! // A word for each rank, in the memory of rank 0.
//! let bytes = if runtime.rank() == Rank(0) { 8 * u64::from(runtime.ranks()) } else { 0 };
//! let words = runtime.attach_segment(bytes, &SegmentOptions::pinned())?;
//! runtime.put_value(words.address(Rank(0), 8 * u64::from(runtime.rank().0)), 7u64)?;
//! runtime.detach_segment(words)
//! # }
//! ```
//!
//! [`vgas_rma::endpoint::Endpoint::attach_part`] makes them; here ranks agree on their numbers, which are those of their regions.

use crate::address::GlobalAddress;
use crate::error::{Error, Result};
use crate::runtime::Runtime;
use crate::segments::{Segment, SegmentOptions};
use std::ops::Range;
use vgas_cache::partition::{SEGMENTS_MAX, SegmentId};
use vgas_rma::{PinnedPart, Rank, RegionId, RmaError};

/// The numbers of pinned segments that all ranks attach together.
pub(crate) const OF_ALL: Range<u16> = RegionId::FURTHER.0..RegionId::FURTHER.0 + RegionId::FURTHER_MAX / 2;

/// The numbers of those that ranks attach by themselves, each rank its own.
const OWN: Range<u16> = OF_ALL.end..RegionId::FURTHER.0 + RegionId::FURTHER_MAX;

// A number says which kind of segment it is of.
const _: () = assert!(OF_ALL.start >= SEGMENTS_MAX);

fn region(segment: Segment) -> RegionId {
    RegionId(segment.id().0)
}

impl Runtime {
    /// [`Runtime::attach_segment`] of a pinned one.
    pub(crate) fn attach_pinned(&self, bytes: u64, options: &SegmentOptions) -> Result<Segment> {
        let vacant = self.segments.vacant(OF_ALL);
        let created = self.create_pinned(vacant, bytes, options);
        let wanted = (vacant.unwrap_or_default().0, 0, 0, [false; 2], None);
        let undo = |segment: &Segment| Ok(self.endpoint().detach_part(region(*segment))?);
        let (segment, parts) = self.all_or_none(wanted, bytes, created, |_| Default::default(), undo)?;
        for (owner, part) in (0..).map(Rank).zip(parts) {
            self.endpoint().know_part(PinnedPart { region: region(segment), owner }, part.bytes);
        }
        self.segments.begin(segment.id());
        Ok(segment)
    }

    /// [`Runtime::attach_own`] of a pinned one.
    pub(crate) fn attach_own_pinned(&self, bytes: u64, options: &SegmentOptions) -> Result<Segment> {
        let segment = self.create_pinned(self.segments.vacant(OWN), bytes, options)?;
        self.segments.begin(segment.id());
        Ok(segment)
    }

    /// Makes this rank's part.
    fn create_pinned(
        &self,
        vacant: Option<SegmentId>,
        bytes: u64,
        options: &SegmentOptions,
    ) -> Result<Segment> {
        self.check_first()?;
        if *options != SegmentOptions::pinned() {
            let what = "a pinned segment has neither name nor pages nor policy: say nothing but SegmentOptions::pinned()";
            return Err(Error::Usage(what.into()));
        }
        let id = vacant.ok_or_else(|| Error::Usage("no number for another pinned segment is left".into()))?;
        let segment = Segment::numbered(id);
        self.endpoint().attach_part(region(segment), bytes).map_err(|error| match error {
            RmaError::OutOfRange { limit, .. } => Error::Usage(format!(
                "a pinned segment of {bytes} bytes: of the {limit} bytes of each rank no piece as large is left; raise \
                 segment.pinned_max"
            )),
            error => error.into(),
        })?;
        Ok(segment)
    }

    /// [`Runtime::detach_segment`] of a pinned one that all have.
    pub(crate) fn detach_pinned(&self, segment: Segment) -> Result<()> {
        // From then on nobody uses it.
        self.barrier()?;
        for owner in (0..self.ranks()).map(Rank) {
            self.endpoint().forget_part(PinnedPart { region: region(segment), owner });
        }
        self.give_back(segment)?;
        self.segments.end(segment.id());
        self.barrier()
    }

    /// Gives this rank's part of it back to the system.
    pub(crate) fn give_back(&self, segment: Segment) -> Result<()> {
        Ok(self.endpoint().detach_part(region(segment))?)
    }

    /// [`Runtime::learn`] of an address in a pinned one.
    pub(crate) fn learn_pinned(&self, at: GlobalAddress) -> Result<()> {
        if at.segment != SegmentId::FIRST {
            self.endpoint().learn_part(at.pinned_part())?;
        }
        Ok(())
    }
}
