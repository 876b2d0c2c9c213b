//! Pinned segments.
//!
//! ```no_run
//! # fn example(runtime: &vgas::Runtime) -> vgas::Result<()> {
//! use vgas::{Rank, SegmentOptions};
//! // A word for each rank, in the memory of rank 0.
//! let bytes = if runtime.rank() == Rank(0) { 8 * u64::from(runtime.ranks()) } else { 0 };
//! let words = runtime.attach(&SegmentOptions::pinned(bytes))?;
//! words.put_value(Rank(0), 8 * u64::from(runtime.rank().0), 7u64)?;
//! words.detach()
//! # }
//! ```
//!
//! [`vgas_rma::endpoint::Endpoint::attach_part`] makes them; here ranks agree on their numbers, which are those of their regions.

use super::table::Attacher;
use super::wanted::{AttachRequest, SegmentOwner};
use super::{Segment, SegmentOptions};
use crate::address::{GlobalAddress, Kind};
use crate::error::{Error, Result};
use crate::runtime::Runtime;
use vgas_cache::partition::SegmentId;
use vgas_rma::{PinnedPart, Rank, RegionId, RmaError};

fn region(id: SegmentId) -> RegionId {
    RegionId(id.0)
}

impl Runtime {
    pub(super) fn attach_pinned(
        &self,
        options: &SegmentOptions,
        attacher: Attacher,
        owner: Option<&SegmentOwner>,
    ) -> Result<Segment> {
        let number = self.segments().vacant(Kind::Pinned, attacher, true);
        let created = self.create_pinned(number, options);
        let wanted = AttachRequest::new(options, number, owner);
        let undo = |id: &SegmentId| Ok(self.endpoint().detach_part(region(*id))?);
        let (id, parts) = self.all_or_none(wanted, options.bytes, created, |_| Default::default(), undo)?;
        for (owner, part) in (0..).map(Rank).zip(parts) {
            self.endpoint().know_part(PinnedPart { region: region(id), owner }, part.bytes);
        }
        self.segments().begin(id, options);
        Ok(Segment::new(self, id, options))
    }

    pub(super) fn attach_pinned_independent(&self, options: &SegmentOptions) -> Result<Segment> {
        let number = self.segments().vacant(Kind::Pinned, Attacher::Independent, false);
        let id = self.create_pinned(number, options)?;
        self.segments().begin(id, options);
        Ok(Segment::new(self, id, options))
    }

    /// Makes this rank's part.
    fn create_pinned(&self, number: Option<SegmentId>, options: &SegmentOptions) -> Result<SegmentId> {
        if !options.suits_pinned() {
            return Err(Error::Usage(
                "a pinned segment has neither a name nor pages nor a policy: give SegmentOptions::pinned alone".into(),
            ));
        }
        let bytes = options.bytes;
        let id = number.ok_or_else(|| Error::Usage("no number for another pinned segment is left".into()))?;
        self.endpoint().attach_part(region(id), bytes).map_err(|error| match error {
            RmaError::OutOfRange { limit, .. } => Error::Usage(format!(
                "a pinned segment of {bytes} bytes: of the {limit} bytes of each rank no piece as large is left; raise \
                 segment.pinned_max"
            )),
            error => error.into(),
        })?;
        Ok(id)
    }

    /// [`Runtime::open_remote`] of an address in a pinned segment.
    pub(super) fn learn_pinned(&self, at: GlobalAddress) -> Result<()> {
        if at.segment != SegmentId::FIRST {
            self.endpoint().learn_part(at.pinned_part())?;
        }
        Ok(())
    }
}

impl Segment {
    pub(super) fn detach_pinned(&self) -> Result<()> {
        let runtime = self.runtime();
        // No rank uses it after this.
        runtime.barrier()?;
        for owner in (0..runtime.ranks()).map(Rank) {
            runtime.endpoint().forget_part(PinnedPart { region: region(self.id()), owner });
        }
        self.give_back()?;
        runtime.segments().end(Kind::Pinned, self.id());
        runtime.barrier()
    }

    /// Gives this rank's part back to the system.
    pub(super) fn give_back(&self) -> Result<()> {
        Ok(self.runtime().endpoint().detach_part(region(self.id()))?)
    }
}
