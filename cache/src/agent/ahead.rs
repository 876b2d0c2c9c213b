//! Fetching before anybody asks: scans that were recognised, and prefetches that were asked for.

use super::Agent;
use crate::error::CacheError;
use crate::page::PageIndex;
use crate::pool::{Counter, PageState, TableLayout};
use crate::read_ahead::{Missed, Run};
use std::ops::Range;

/// How large a part of a pool's pages may wait to be read ahead: as many as a window.
const LATER_PART: u32 = 8;

/// How many pages of a prefetch are brought in: more than a quarter of the pool would only push itself out.
pub(super) fn prefetched(first: PageIndex, count: u32, pages: &TableLayout) -> u32 {
    count.min(pages.frames_of(pages.size_of(first)) / 4)
}

impl Agent {
    /// The pages in which a scan that comes to this one goes on; none where scans are not looked for.
    fn scanned_with(&self, page: PageIndex) -> Option<Range<PageIndex>> {
        let found = self.segments.partitions.find(page)?;
        found.policy.read_ahead.then(|| found.range())
    }

    /// Whether a rank that asks for the page now has to wait for it. Pages on their way count: without them the first
    /// pages of a scan's requests would look like a reader in large steps.
    pub(super) fn is_miss(&self, page: PageIndex) -> bool {
        self.pool.entry(page).is_ok_and(|entry| {
            matches!(entry.state(), PageState::Invalid | PageState::Stored | PageState::Claimed)
        })
    }

    /// A rank has to wait for pages: fetch what is left of its operation, and what follows, if it looks like a scan.
    pub(super) fn missed(&mut self, missed: &Missed) -> Result<(), CacheError> {
        let first = missed.pages.start;
        let Some(segment) = self.scanned_with(first) else { return Ok(()) };
        let Some(detector) = self.scans.of(self.pool.layout().size_of(first)) else { return Ok(()) };
        if detector.is_outrun_by(missed.pages.end - first) {
            return Ok(());
        }
        detector.miss(missed, segment).map_or(Ok(()), |run| self.fetch_run(run))
    }

    /// A rank asks for these pages. Marks of those that are on their way count as used now: the reader is faster than
    /// what is read ahead for it, so that the next pages cannot be asked for too early.
    pub(super) fn reached(&mut self, pages: Range<PageIndex>) -> Result<(), CacheError> {
        for page in PageIndex::each(pages) {
            if self.take_mark(page) {
                self.used_ahead(page)?;
            }
        }
        Ok(())
    }

    /// A rank has come to a page that was marked: fetch what follows.
    pub(super) fn used_ahead(&mut self, page: PageIndex) -> Result<(), CacheError> {
        self.pool.count(Counter::ReadAheadUsed, 1);
        let size = self.size_of(page);
        let Some(detector) = self.scans.of(size) else { return Ok(()) };
        match detector.used(page) {
            Some(run) => self.fetch_run(run),
            None => Ok(()),
        }
    }

    /// A page leaves with the mark that a use would have taken: what was read ahead does not stay until it is read.
    pub(super) fn evicted_unused(&mut self, page: PageIndex) {
        tracing::debug!(page = page.0, "a page that was read ahead is evicted before its reader comes");
        self.pool.count(Counter::ReadAheadUnused, 1);
        let size = self.size_of(page);
        if let Some(detector) = self.scans.of(size) {
            detector.evicted_unused(page);
        }
    }

    fn fetch_run(&mut self, run: Run) -> Result<(), CacheError> {
        // Room first: what is read ahead must not take the frames that are kept for those who wait.
        self.make_room_for(self.size_of(run.first), run.count as u32)?;
        let mut fetched = 0;
        self.take_at_hand(run.first, run.count as usize);
        // What lies behind the end of this shard's block is another's, which will see the scan when it comes there.
        for (page, marked) in run.pages() {
            if self.is_mine(page) {
                fetched += u64::from(self.fetch_or_later(page, marked)?);
            }
        }
        self.give_back_at_hand()?;
        self.pool.count(Counter::ReadAheadPages, fetched);
        tracing::debug!(?run, fetched, "read ahead");
        Ok(())
    }

    /// Fetches a page of a scan. Without a frame for it now, when there is one: were it left out, its reader would lose what is ahead of
    /// it, and with the mark what comes after.
    fn fetch_or_later(&mut self, page: PageIndex, marked: bool) -> Result<bool, CacheError> {
        let size = self.size_of(page);
        if self.pool.free_frames(size) > 0 || !self.frames.at_hand.is_empty() {
            return self.fetch(page, marked);
        }
        if self.frames.later.len() >= (self.pool.layout().frames_of(size) / LATER_PART) as usize {
            // Its reader has most likely gone past it.
            self.frames.later.pop_front();
        }
        self.frames.later.push_back((page, marked));
        Ok(false)
    }

    /// Fetches what there was no frame for, as far as there are some and nobody waits for them.
    pub(super) fn fetch_later(&mut self) -> Result<bool, CacheError> {
        let mut any = false;
        while self.frames.starved.is_empty()
            && let Some(&(page, marked)) = self.frames.later.front()
            && self.pool.free_frames(self.size_of(page)) > 0
        {
            self.frames.later.pop_front();
            let is_fetched = self.fetch(page, marked)?;
            if is_fetched {
                self.pool.count(Counter::ReadAheadPages, 1);
            } else if marked && self.quiet(page) {
                // Its reader was faster, and has not seen the mark.
                self.used_ahead(page)?;
            }
            any = true;
        }
        Ok(any)
    }

    /// A rank wants pages brought in, without waiting.
    pub(super) fn prefetch(&mut self, page: PageIndex, count: u32) -> Result<(), CacheError> {
        let count = prefetched(page, count, self.pool.layout());
        self.make_room_for(self.size_of(page), count)?;
        self.take_at_hand(page, count as usize);
        for page in PageIndex::each(page..page.saturating_add(u64::from(count))) {
            self.fetch(page, false)?;
        }
        self.give_back_at_hand()
    }
}
