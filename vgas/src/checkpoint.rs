//! Checkpoints: the state that a later job finds.

use crate::error::{Error, Result};
use crate::runtime::Runtime;
use crate::segment::in_short;
use vgas_cache::CacheError;
use vgas_cache::partition::SegmentId;
use vgas_rma::Rank;

impl Runtime {
    /// Makes all named segments durable, as one: everything put before is found by a later job when it returns. Collective.
    ///
    /// A job that is killed meanwhile, in whole or in part, is reopened at this checkpoint on all ranks, or
    /// at the one before on all ranks ([`Segment::reopened`](crate::Segment::reopened) tells): each rank
    /// first makes its part durable beside the checkpoint before, which is given up only when all have done
    /// so. Other threads may put meanwhile; a put to a page that has changed since the checkpoint before may
    /// then wait for the end of this one.
    ///
    /// # Errors
    /// The same on all ranks, with the cause of the first that has one. The segments then continue from the
    /// checkpoint before, unless the error says that one of them takes no more writes.
    pub fn checkpoint(&self) -> Result<()> {
        match self.segments().named_of_library() {
            None => self.checkpoint_all(),
            Some(name) => Err(Error::Usage(format!(
                "the segment {name:?} belongs to a library, which takes the checkpoints of this job (Objects::checkpoint)"
            ))),
        }
    }

    /// [`Runtime::checkpoint`] for the library that has a named segment.
    pub(crate) fn checkpoint_all(&self) -> Result<()> {
        self.barrier()?;
        // Pages first, on all ranks: later steps may make a write wait for the last one, so that no page may have to
        // move for a checkpoint any more.
        let all = self.segments().tiered();
        let each = |all: &[SegmentId], step: &dyn Fn(SegmentId) -> std::result::Result<(), CacheError>| {
            // All of them, also after one has failed.
            let results: Vec<_> = all.iter().map(|&segment| step(segment)).collect();
            results.into_iter().collect()
        };
        let identity = self.agreed(each(&all, &|segment| self.client().clean(segment)))?;
        // The one that is opened first comes last: if it has this checkpoint everywhere, then all others have.
        let (last, others): (Vec<_>, Vec<_>) =
            all.iter().partition(|&&segment| self.segments().opened_first() == Some(segment));
        let prepare = |some: &[SegmentId]| {
            self.agreed(each(some, &|segment| {
                self.client().prepare(segment, identity, &self.segments().companions_of(segment))
            }))
        };
        let prepared = match self.segments().named_count() {
            0 | 1 => prepare(&all),
            _ => prepare(&others).and_then(|_| prepare(&last)),
        };
        if let Err(error) = prepared {
            // A rank that could prepare must not keep a checkpoint that not all have.
            self.agreed(each(&all, &|segment| self.client().conclude(segment, false)))?;
            return Err(error);
        }
        self.agreed(each(&all, &|segment| self.client().conclude(segment, true)))?;
        self.segments().end_checkpoint(identity);
        Ok(())
    }

    /// Ends a step that each rank has taken by itself: an error when it has failed anywhere, otherwise a number that rank 0
    /// has drawn. Collective.
    fn agreed(&self, own: Result<(), CacheError>) -> Result<u64> {
        let drawn = vgas_rma::key::fresh_random()?;
        let said = own.as_ref().err().map(in_short).unwrap_or_default();
        let mut bytes = drawn[..8].to_vec();
        bytes.extend(said.as_bytes());
        let all = self.internal_world().all_gatherv(&bytes)?;
        own?;
        let failed = all.iter().position(|said| said.len() != 8);
        if let Some((rank, said)) = failed.and_then(|rank| Some((rank, all[rank].get(8..)?))) {
            return Err(Error::Usage(format!("{}: {}", Rank(rank as u32), String::from_utf8_lossy(said))));
        }
        let number = all.first().and_then(|said| said.first_chunk::<8>());
        // 0 is the identity of checkpoints of one segment alone.
        Ok(number.map_or(1, |bytes| u64::from_le_bytes(*bytes).max(1)))
    }
}
