//! Fetching before anybody asks: scans that were recognised, and prefetches that were asked for.

use super::Agent;
use super::shards::prefetched;
use crate::error::CacheError;
use crate::page::PageIndex;
use crate::pool::Counter;
use crate::read_ahead::{Missed, Run};
use std::ops::Range;

/// How large a part of a pool's pages may wait to be read ahead: as many as a window.
const LATER_PART: u32 = 8;

impl Agent {
    /// The pages in which a scan that comes to this one goes on; none where scans are not looked for.
    fn scanned_with(&self, page: PageIndex) -> Option<Range<PageIndex>> {
        let found = self.cache.ctx.segments.partitions.find(page)?;
        found.policy.read_ahead.then(|| found.range())
    }

    /// A rank has to wait for pages: fetch what is left of its operation, and what follows, if it looks like a scan.
    pub(super) fn missed(&mut self, missed: &Missed) -> Result<(), CacheError> {
        let first = missed.pages.start;
        let Some(segment) = self.scanned_with(first) else { return Ok(()) };
        let Some(detector) = self.cache.ctx.scans.of(self.cache.ctx.pages().size_of(first)) else {
            return Ok(());
        };
        if detector.is_outrun_by(missed.pages.end - first) {
            return Ok(());
        }
        detector.miss(missed, segment).map_or(Ok(()), |run| self.fetch_run(run))
    }

    /// A rank asks for these pages. Marks of those that are on their way count as used now: the reader is faster than
    /// what is read ahead for it, so that the next pages cannot be asked for too early.
    pub(super) fn reached(&mut self, pages: Range<PageIndex>) -> Result<(), CacheError> {
        for page in PageIndex::each(pages) {
            if self.cache.take_mark(page) {
                self.used_ahead(page)?;
            }
        }
        Ok(())
    }

    /// A rank has come to a page that was marked: fetch what follows.
    pub(super) fn used_ahead(&mut self, page: PageIndex) -> Result<(), CacheError> {
        self.cache.ctx.count(Counter::ReadAheadUsed, 1);
        let size = self.cache.ctx.size_of(page);
        let Some(detector) = self.cache.ctx.scans.of(size) else { return Ok(()) };
        match detector.used(page) {
            Some(run) => self.fetch_run(run),
            None => Ok(()),
        }
    }

    fn fetch_run(&mut self, run: Run) -> Result<(), CacheError> {
        // Room first: what is read ahead must not take the frames that are kept for those who wait.
        self.make_room_for(self.cache.ctx.size_of(run.first), run.count as u32)?;
        let mut fetched = 0;
        self.cache.ctx.take_at_hand(run.first, run.count as usize);
        // What lies behind the end of this shard's block is another's, which will see the scan when it comes there.
        for (page, marked) in run.pages() {
            if self.cache.ctx.is_mine(page) {
                fetched += u64::from(self.fetch_or_later(page, marked)?);
            }
        }
        self.cache.ctx.give_back_at_hand()?;
        self.cache.ctx.count(Counter::ReadAheadPages, fetched);
        tracing::debug!(?run, fetched, "read ahead");
        Ok(())
    }

    /// Fetches a page of a scan. Without a frame for it now, when there is one: were it left out, its reader would lose what is ahead of
    /// it, and with the mark what comes after.
    fn fetch_or_later(&mut self, page: PageIndex, marked: bool) -> Result<bool, CacheError> {
        let size = self.cache.ctx.size_of(page);
        if self.cache.ctx.free_frames(size) > 0 || !self.cache.ctx.frames.at_hand.is_empty() {
            return self.cache.fetch(page, marked);
        }
        if self.cache.ctx.frames.later.len() >= (self.cache.ctx.pages().frames_of(size) / LATER_PART) as usize
        {
            // Its reader has most likely gone past it.
            self.cache.ctx.frames.later.pop_front();
        }
        self.cache.ctx.frames.later.push_back((page, marked));
        Ok(false)
    }

    /// Fetches what there was no frame for, as far as there are some and nobody waits for them.
    pub(super) fn fetch_later(&mut self) -> Result<bool, CacheError> {
        let mut any = false;
        while self.cache.ctx.frames.starved.is_empty()
            && let Some(&(page, marked)) = self.cache.ctx.frames.later.front()
            && self.cache.ctx.free_frames(self.cache.ctx.size_of(page)) > 0
        {
            self.cache.ctx.frames.later.pop_front();
            let is_fetched = self.cache.fetch(page, marked)?;
            if is_fetched {
                self.cache.ctx.count(Counter::ReadAheadPages, 1);
            } else if marked && self.cache.quiet(page) {
                // Its reader was faster, and has not seen the mark.
                self.used_ahead(page)?;
            }
            any = true;
        }
        Ok(any)
    }

    /// A rank wants pages brought in, without waiting.
    pub(super) fn prefetch(&mut self, page: PageIndex, count: u32) -> Result<(), CacheError> {
        let count = prefetched(page, count, self.cache.ctx.pages());
        self.make_room_for(self.cache.ctx.size_of(page), count)?;
        self.cache.ctx.take_at_hand(page, count as usize);
        for page in PageIndex::each(page..page.saturating_add(u64::from(count))) {
            self.cache.fetch(page, false)?;
        }
        self.cache.ctx.give_back_at_hand()
    }
}
