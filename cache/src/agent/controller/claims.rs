//! Pages that ranks bring in by themselves: what the agent has to do with them.
//!
//! A page whose home is here, of which nobody has a copy, and for which nothing is in flight is *published*
//! ([`PageState::Stored`]): its word says what NVMe has. A rank that wants it *claims* it, fills a frame, and shows it as the only
//! copy, all without the agent. In the tables that is [`CacheController::start_own`] and [`CacheController::own_read_done`] at once. So that there
//! is nothing to keep in step:
//!
//! * *Published means nothing is known.* Before the agent makes a control or a directory entry for a page it takes the page back
//!   ([`CacheController::meets_claim`]); when it has neither any more, it publishes the page again ([`CacheController::settle`]).
//! * *A claim is a page in use.* What comes for a claimed page waits, in its order, until the claim has ended; the rank is
//!   told by HOLD to ring then.
//! * *So may its owner map it.* While the agent knows nothing of a page that this node alone has, its owner may keep it, by a
//!   pin and a mark, for its pointers ([`crate::pool::PoolClient::map_own`]); the agent finds out when it has to
//!   ([`CacheController::know`]).
//! * *Replacement hears of it later*, before the agent does anything else ([`CacheController::hear_of_filled`]). Until then the frame
//!   cannot be evicted, which nobody minds.
//!
//! Pages are published a neighbourhood at a time, when the first of it is asked for: a table as large as the NVMe must not be
//! filled before it is used.

use super::CacheController;
use crate::agent::items::{ParkedRequest, ShardMessage};
use crate::error::CacheError;
use crate::page::PageIndex;
use crate::partition::Partition;
use crate::pool::{FrameId, PageState};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::VecDeque;
use std::ops::Range;

/// Pages that are published together: their words are 4 KiB of the table.
const NEIGHBOURHOOD: u64 = 512;

/// What the agent knows about claims.
#[derive(Debug, Default)]
pub struct Claims {
    /// By page; never empty.
    parked: FxHashMap<PageIndex, VecDeque<ParkedRequest>>,
    /// Neighbourhoods that were published as a whole, and those of which some page was, by their first page.
    published: FxHashSet<PageIndex>,
    touched: FxHashSet<PageIndex>,
    filled: Vec<(FrameId, PageIndex)>,
}

impl Claims {
    /// Whether something waits for any claim to end.
    pub fn has_any_parked(&self) -> bool {
        !self.parked.is_empty()
    }

    /// Whether something waits for a claim of this page to end.
    pub fn has_parked(&self, page: PageIndex) -> bool {
        !self.parked.is_empty() && self.parked.contains_key(&page)
    }
}

impl CacheController {
    /// Whether a rank has claimed the page, or something waits since one had: then what has come waits behind it
    /// ([`CacheController::park`]). Otherwise the page is the agent's, and not published any more.
    pub fn meets_claim(&mut self, page: PageIndex) -> Result<bool, CacheError> {
        if self.claims.has_parked(page) {
            return Ok(true);
        }
        match self.ctx.entry(page)?.state() {
            PageState::Stored | PageState::Claimed => Ok(!self.ctx.pool.withdraw(page)?),
            PageState::Exclusive | PageState::Modified => {
                self.know(page)?;
                Ok(false)
            }
            _ => Ok(false),
        }
    }

    /// From here on the agent knows something of a page that this node alone has. If its owner has mapped it by itself, it is
    /// as if it had asked.
    pub fn know(&mut self, page: PageIndex) -> Result<(), CacheError> {
        match self.ctx.pool.know(page)? {
            Some(frame) => self.was_mapped(page, frame),
            None => Ok(()),
        }
    }

    pub fn park(&mut self, page: PageIndex, parked: ParkedRequest) {
        self.claims.parked.entry(page).or_default().push_back(parked);
    }

    /// Whether a claim has ended that something waits for.
    pub fn claims_ended(&self) -> bool {
        let ended = |page: &PageIndex| !self.ctx.pool.is_claimed(*page).unwrap_or(false);
        !self.claims.parked.is_empty() && self.claims.parked.keys().any(ended)
    }

    /// Goes on with what has waited for claims.
    pub fn serve_parked(&mut self) -> Result<bool, CacheError> {
        if self.claims.parked.is_empty() {
            return Ok(false);
        }
        let pages: Vec<PageIndex> = self.claims.parked.keys().copied().collect();
        let mut any = false;
        for page in pages {
            if self.ctx.pool.is_claimed(page)? {
                continue;
            }
            any = true;
            self.hear_of_filled()?;
            for parked in self.claims.parked.remove(&page).unwrap_or_default() {
                // Should the page be claimed once more meanwhile, all of it waits again, in its order.
                match parked {
                    ParkedRequest::Read(waiter) => self.want_read(page, waiter)?,
                    ParkedRequest::Put(put) => self.want_put(page, put)?,
                    ParkedRequest::Own(waiter) => self.want_own(page, waiter)?,
                    ParkedRequest::Map(mapper) => self.start_mapping(page, mapper)?,
                    ParkedRequest::Home(from, coherence) => self.receive(from, coherence)?,
                    ParkedRequest::InPlace(from, operation, data) => {
                        self.serve_in_place(from, page, operation, &data)?;
                    }
                }
            }
        }
        Ok(any)
    }

    /// Files the frames that ranks have filled.
    pub fn hear_of_filled(&mut self) -> Result<bool, CacheError> {
        self.ctx.hear_of_segments();
        if !self.ctx.pool.has_filled() {
            return Ok(false);
        }
        let mut filled = std::mem::take(&mut self.claims.filled);
        self.ctx.pool.take_filled(&mut filled)?;
        for (frame, page) in filled.drain(..) {
            match self.ctx.is_mine(page) {
                true => self.file(frame, page)?,
                // The frame was in this stack already, for another page, when it was filled with this one.
                false => {
                    self.ctx.shards.tell(self.ctx.pages().shard_of(page), ShardMessage::Filled(frame, page));
                }
            }
        }
        self.claims.filled = filled;
        Ok(true)
    }

    /// Another shard has found that a rank has filled a frame with a page: unless the page has gone its way meanwhile.
    pub fn file_if_there(&mut self, frame: FrameId, page: PageIndex) -> Result<(), CacheError> {
        if self.ctx.pool.page_in(frame)? == Some(page) { self.file(frame, page) } else { Ok(()) }
    }

    /// A rank has filled this frame with this page.
    pub fn file(&mut self, frame: FrameId, page: PageIndex) -> Result<(), CacheError> {
        self.ctx.may_be_evicted(frame)?;
        self.ctx.shards.somebody_got_a_frame();
        self.show_claimed(page);
        Ok(())
    }

    /// Leaves a page to the ranks, if nothing is known of it: to be brought in, or to be mapped.
    pub fn settle(&mut self, page: PageIndex) -> Result<(), CacheError> {
        let Some((file, in_file)) = self.open_to_claims(page).map(|open| open.stored_in(page)) else {
            return Ok(());
        };
        let entry = self.ctx.entry(page)?;
        if entry.held() || !self.quiet(page) || self.homes.contains_key(&page) || self.claims.has_parked(page)
        {
            return Ok(());
        }
        match entry.state() {
            PageState::Invalid => match self.ctx.storage.volume.stored(file, in_file.0) {
                Some(stored) => {
                    self.claims.touched.insert(page.floor(NEIGHBOURHOOD));
                    Ok(self.ctx.pool.publish(page, stored)?)
                }
                None => Ok(()),
            },
            PageState::Exclusive | PageState::Modified => Ok(self.ctx.pool.know_nothing(entry.frame())?),
            _ => Ok(()),
        }
    }

    /// Publishes the neighbours of a page that was asked for, once.
    pub fn publish_neighbours(&mut self, page: PageIndex) -> Result<(), CacheError> {
        let Some(segment) = self.open_to_claims(page).map(Partition::range) else { return Ok(()) };
        // Of this shard alone.
        let size = NEIGHBOURHOOD.min(self.ctx.pages().spec().block_pages);
        let first_page = page.floor(size);
        if !self.claims.published.insert(first_page) {
            return Ok(());
        }
        for page in PageIndex::each(first_page.max(segment.start)..(first_page + size).min(segment.end)) {
            self.settle(page)?;
        }
        Ok(())
    }

    /// The partition of a page, if ranks may bring in its pages by themselves.
    fn open_to_claims(&self, page: PageIndex) -> Option<&Partition> {
        let found = self.ctx.segments.partitions.find(page)?;
        (found.shared && !self.ctx.is_withdrawn(page)).then_some(found)
    }

    /// Nothing of these pages is published any more.
    pub fn unpublish(&mut self, pages: Range<PageIndex>) -> Result<(), CacheError> {
        let around = pages.start.floor(NEIGHBOURHOOD)..pages.end;
        self.claims.published.retain(|first| !around.contains(first));
        let touched: Vec<PageIndex> =
            self.claims.touched.iter().copied().filter(|first| around.contains(first)).collect();
        for first in touched {
            for page in PageIndex::each(first.max(pages.start)..(first + NEIGHBOURHOOD).min(pages.end)) {
                if self.ctx.is_mine(page) && self.ctx.entry(page)?.state() == PageState::Stored {
                    self.ctx.pool.withdraw(page)?;
                }
            }
        }
        Ok(())
    }
}
