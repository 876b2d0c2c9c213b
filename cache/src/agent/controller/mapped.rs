//! Pages that their owner, and ranks of its node that read them, use through plain pointers (vGASNet §III.D, promise 9).
//!
//! A rank asks for a page of a segment whose owner is on its node in a fault slot ([`crate::pool::FaultSlots`]) and gives back another one
//! in the same breath, so that it never has more mapped than it may. A mapped page is *served in place*: the home has
//! the only copy, in the frame that is mapped; other nodes' small operations travel to it, those of the node's own ranks
//! hit the same frame. A pin keeps the frame where it is. So nothing is ever taken from a rank: it gives back by itself.

use super::CacheController;
use crate::agent::context::LocalMessage;
use crate::agent::items::{MapRequest, ParkedRequest, ShardMessage, StagingRequest, StorageWork};
use crate::error::{CacheError, Failure, FailureKind};
use crate::page::PageIndex;
use crate::partition::Partition;
use crate::pool::{Fault, FaultId, FrameId, Returned};
use crate::protocol::home::HomeEvent;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// What the ranks of the node have mapped.
#[derive(Debug, Default)]
pub struct Mapped {
    /// In which frame a page is mapped, and by which of the node's ranks.
    frames: FxHashMap<PageIndex, (FrameId, SmallVec<[u32; 4]>)>,
    /// Pages that each rank has mapped or waits for.
    counts: Vec<u32>,
    /// [`crate::pool::PoolAgent::faults_posted`] at the last look.
    seen: u32,
    taken: Vec<(FaultId, Fault)>,
}

impl Mapped {
    fn add(&mut self, page: PageIndex, frame: FrameId, local_rank: u32) {
        let (_, ranks) = self.frames.entry(page).or_insert_with(|| (frame, SmallVec::new()));
        ranks.push(local_rank);
    }

    fn count(&mut self, local_rank: u32) -> &mut u32 {
        let index = local_rank as usize;
        if self.counts.len() <= index {
            self.counts.resize(index + 1, 0);
        }
        &mut self.counts[index]
    }
}

impl CacheController {
    /// Whether a rank has posted a fault that was not taken yet.
    pub fn faults_wait(&self) -> bool {
        self.ctx.pool.faults_posted() != self.mapped.seen
    }

    /// Takes the faults that were posted. Before the shard looks at what others have told it: they tell it of a page that was
    /// unmapped before its rank can want it again. True when there may be one.
    pub fn take_faults(&mut self) -> Result<bool, CacheError> {
        let posted = self.ctx.pool.faults_posted();
        if posted == self.mapped.seen {
            return Ok(false);
        }
        self.mapped.seen = posted;
        self.ctx.pool.take_faults(&mut self.mapped.taken)?;
        Ok(true)
    }

    /// Serves the faults that were taken. True when there was one.
    pub fn serve_faults(&mut self) -> Result<bool, CacheError> {
        if self.mapped.taken.is_empty() {
            return Ok(false);
        }
        let mut taken = std::mem::take(&mut self.mapped.taken);
        for (id, fault) in taken.drain(..) {
            self.serve_fault(id, fault)?;
        }
        self.mapped.taken = taken;
        Ok(true)
    }

    fn serve_fault(&mut self, id: FaultId, fault: Fault) -> Result<(), CacheError> {
        match fault.returned {
            Returned::Nothing => {}
            // Before the answer, after which the rank may want it again.
            Returned::Page(page) if !self.ctx.is_mine(page) => {
                self.ctx.shards.tell(self.ctx.pages().shard_of(page), ShardMessage::Unmapped(id, page));
            }
            Returned::Page(page) => self.unmapped(id, page)?,
            Returned::All(page) => {
                // Of a partition that is gone, nothing is mapped.
                let elsewhere = |found: &Partition| !self.ctx.is_here(found.owner);
                let is_none = page.0 >= self.ctx.pages().pages();
                if is_none || self.ctx.segments.partitions.find(page).is_some_and(elsewhere) {
                    let what = format!("gave all pages beside page {page} back, which is not of its node");
                    return Err(self.ctx.refuse_fault(id, what));
                }
                let others = 1..self.ctx.shards.count();
                others.for_each(|shard| self.ctx.shards.tell(shard, ShardMessage::UnmappedAll(id, page)));
                self.unmapped_all(id, page)?;
            }
        }
        match fault.wanted {
            Some(page) => self.want_mapped(id, page, fault.write),
            None => Ok(self.ctx.pool.answer_fault(id, Ok(FrameId(0)))?),
        }
    }

    /// A rank has unmapped all of its pages of the partition of this one.
    pub fn unmapped_all(&mut self, id: FaultId, page: PageIndex) -> Result<(), CacheError> {
        let range = self.ctx.segments.partitions.find(page).map(Partition::range).unwrap_or_default();
        let all = self.mapped.frames.iter();
        let own = all.filter(|(page, (_, ranks))| range.contains(page) && ranks.contains(&id.local_rank));
        let pages: Vec<PageIndex> = own.map(|(page, _)| *page).collect();
        pages.into_iter().try_for_each(|page| self.unmapped(id, page))
    }

    /// A rank has unmapped a page: it may be evicted, and others may have it, again.
    pub fn unmapped(&mut self, id: FaultId, page: PageIndex) -> Result<(), CacheError> {
        let mapped = self.mapped.frames.get_mut(&page);
        let found = mapped.and_then(|(frame, ranks)| {
            let at = ranks.iter().position(|&rank| rank == id.local_rank)?;
            ranks.swap_remove(at);
            Some((*frame, ranks.is_empty()))
        });
        let Some((frame, was_last)) = found else {
            return Err(self.ctx.refuse_fault(id, format!("gave page {page} back, which it has not mapped")));
        };
        if was_last {
            self.mapped.frames.remove(&page);
        }
        self.ctx.pool.unkeep_mapped(frame)?;
        self.no_mapper(id, page)
    }

    /// A rank does not use the page through pointers any more; if it was the last one, the home need not serve it in place.
    fn no_mapper(&mut self, id: FaultId, page: PageIndex) -> Result<(), CacheError> {
        let count = self.mapped.count(id.local_rank);
        *count = count.saturating_sub(1);
        if self.mapped.frames.contains_key(&page) || self.waits_to_map(page) {
            return Ok(());
        }
        self.home_event(page, HomeEvent::Mapped(false))
    }

    fn want_mapped(&mut self, id: FaultId, page: PageIndex, write: bool) -> Result<(), CacheError> {
        let owner = self.ctx.pages().locate(page).map(|(owner, _)| owner);
        if !owner.is_some_and(|owner| owner == self.ctx.rank_of(id) || (self.ctx.is_here(owner) && !write)) {
            let what =
                format!("wants to map page {page}, which is not of its segment, nor to be read of its node");
            return Err(self.ctx.refuse_fault(id, what));
        }
        if self.ctx.is_gone(page) {
            return Ok(self.ctx.pool.answer_fault(id, Err(Failure::from(FailureKind::NoSuchPage).code()))?);
        }
        let layout = self.ctx.pages();
        let limit = layout.spec().mapped_pages_per_rank + layout.mapped_beside_first();
        let count = self.mapped.count(id.local_rank);
        if *count >= limit {
            return Err(self.ctx.refuse_fault(id, format!("maps more than {limit} pages")));
        }
        *count += 1;
        self.start_mapping(page, MapRequest { id, write })
    }

    pub fn start_mapping(&mut self, page: PageIndex, mapper: MapRequest) -> Result<(), CacheError> {
        if self.meets_claim(page)? {
            self.park(page, ParkedRequest::Map(mapper));
            return Ok(());
        }
        let id = mapper.id;
        let has_mapped = |(_, ranks): &(FrameId, SmallVec<[u32; 4]>)| ranks.contains(&id.local_rank);
        let waits = |mapper: &MapRequest| mapper.id.local_rank == id.local_rank;
        if self.mapped.frames.get(&page).is_some_and(has_mapped)
            || self.control(page)?.mappers.iter().any(waits)
        {
            return Err(self.ctx.refuse_fault(id, format!("maps page {page} twice")));
        }
        self.leave_block(page)?;
        let (missed, ahead) = (self.ctx.is_miss(page), self.ctx.pool.clear_ahead(page)?);
        // Now, so that requests of other nodes that come meanwhile are referred to this page's place.
        self.home_event(page, HomeEvent::Mapped(true))?;
        self.control(page)?.mappers.push(mapper);
        self.pump(page)?;
        if missed {
            self.publish_neighbours(page)?;
            self.ctx.local.push_back(LocalMessage::MapMissed(page));
        } else if ahead {
            self.ctx.local.push_back(LocalMessage::AheadUsed(page));
        }
        Ok(())
    }

    /// A rank has mapped a page by itself, of which nothing was known.
    pub fn was_mapped(&mut self, page: PageIndex, frame: FrameId) -> Result<(), CacheError> {
        let Some((owner, _)) = self.ctx.pages().locate(page) else { return Ok(()) };
        let local_rank = owner.0.saturating_sub(self.ctx.layout.ranks_of(self.ctx.node).start);
        *self.mapped.count(local_rank) += 1;
        self.mapped.add(page, frame, local_rank);
        self.home_event(page, HomeEvent::Mapped(true))
    }

    /// The directory entry has taken a step, which a thread may have been waiting for.
    pub fn home_has_stepped(&mut self, page: PageIndex) -> Result<(), CacheError> {
        match self.waits_to_map(page) {
            true => self.pump(page),
            false => Ok(()),
        }
    }

    /// The page is the only copy: its frame may be mapped.
    pub fn map(&mut self, page: PageIndex, frame: FrameId, id: FaultId) -> Result<(), CacheError> {
        self.ctx.pool.keep_mapped(frame)?;
        self.mapped.add(page, frame, id.local_rank);
        Ok(self.ctx.pool.answer_fault(id, Ok(frame))?)
    }

    /// The page cannot be had.
    pub fn map_failed(&mut self, page: PageIndex, id: FaultId, failure: Failure) -> Result<(), CacheError> {
        self.ctx.pool.answer_fault(id, Err(failure.code()))?;
        self.no_mapper(id, page)
    }

    /// Whether a rank of the node has the page mapped.
    pub fn is_mapped(&self, page: PageIndex) -> bool {
        self.mapped.frames.contains_key(&page)
    }

    /// Stores a page that its owner has mapped, for a checkpoint. False: it is not mapped.
    ///
    /// The owner may be writing to it, so that its bytes cannot be handed to a device whose checksum must hold: a copy
    /// is stored. The page itself stays what it is, changed. It is kept until the copy has been stored, because two
    /// writes of one page that are in flight together would end in any order.
    pub fn store_copy(&mut self, page: PageIndex) -> Result<bool, CacheError> {
        let Some(&(frame, _)) = self.mapped.frames.get(&page) else { return Ok(false) };
        let Some(copy) = self.ctx.take_reserve(page) else {
            self.ctx.frames.unstaged.push_back(StagingRequest::Copy(page));
            return Ok(true);
        };
        self.ctx.frame_span(copy)?.copy_from(&self.ctx.frame_span(frame)?);
        self.ctx.pool.keep_mapped(frame)?;
        self.ctx.collect(page, copy, StorageWork::Copy { page, original: frame, copy });
        Ok(true)
    }

    /// The copy of a mapped page has been stored, or not.
    pub fn copy_stored(
        &mut self,
        page: PageIndex,
        original: FrameId,
        copy: FrameId,
        result: Result<(), Failure>,
    ) -> Result<(), CacheError> {
        self.ctx.pool.unkeep_mapped(original)?;
        self.ctx.release(copy)?;
        self.ctx.page_cleaned(page, result);
        Ok(())
    }

    /// No fault will be answered any more.
    pub fn close(&self) {
        self.ctx.pool.close();
    }
}
