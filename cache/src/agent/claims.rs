//! Pages that ranks bring in by themselves: what the agent has to do with them.
//!
//! A page whose home is here, of which nobody has a copy, and for which nothing is in flight is *published*
//! ([`PageState::Stored`]): its word says what NVMe has. A rank that wants it *claims* it, fills a frame, and shows it as the only
//! copy, all without the agent. In the tables that is [`Agent::start_own`] and [`Agent::own_read_done`] at once. So that there
//! is nothing to keep in step:
//!
//! * *Published means nothing is known.* Before the agent makes a control or a directory entry for a page it takes the page back
//!   ([`Agent::meets_claim`]); when it has neither any more, it publishes the page again ([`Agent::settle`]).
//! * *A claim is a page in use.* What comes for a claimed page waits, in its order, until the claim has ended; the rank is
//!   told by HOLD to ring then.
//! * *So may its owner map it.* While the agent knows nothing of a page that this node alone has, its owner may keep it, by a
//!   pin and a mark, for its pointers ([`crate::pool::PoolClient::map_own`]); the agent finds out when it has to
//!   ([`Agent::know`]).
//! * *Replacement hears of it later*, before the agent does anything else ([`Agent::hear_of_filled`]). Until then the frame
//!   cannot be evicted, which nobody minds.
//!
//! Pages are published a neighbourhood at a time, when the first of it is asked for: a table as large as the NVMe must not be
//! filled before it is used.

use super::Agent;
use super::answers::Waiter;
use super::lines::Put;
use super::mapped::Mapper;
use super::shards::Aside;
use super::wire::Coherence;
use crate::error::CacheError;
use crate::page::PageIndex;
use crate::partition::Partition;
use crate::pool::{FrameId, PageState};
use crate::request::InPlace;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::VecDeque;
use std::ops::Range;
use vgas_rma::address::{NodeId, Peer};

/// Pages that are published together: their words are 4 KiB of the table.
const NEIGHBOURHOOD: u64 = 512;

/// What waits for the end of a claim.
#[derive(Debug)]
pub(super) enum Parked {
    Read(Waiter),
    Put(Put),
    Own(Waiter),
    Map(PageIndex, Mapper),
    Home(NodeId, Coherence),
    InPlace(Peer, InPlace, Box<[u8]>),
}

/// What the agent knows about claims.
#[derive(Debug, Default)]
pub(super) struct Claims {
    /// By page; never empty.
    parked: FxHashMap<PageIndex, VecDeque<Parked>>,
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

impl Agent {
    /// Whether a rank has claimed the page, or something waits since one had: then what has come waits behind it
    /// ([`Agent::park`]). Otherwise the page is the agent's, and not published any more.
    pub(super) fn meets_claim(&mut self, page: PageIndex) -> Result<bool, CacheError> {
        if self.claims.has_parked(page) {
            return Ok(true);
        }
        match self.pool.entry(page)?.state() {
            PageState::Stored | PageState::Claimed => Ok(!self.pool.withdraw(page)?),
            PageState::Exclusive | PageState::Modified => {
                self.know(page)?;
                Ok(false)
            }
            _ => Ok(false),
        }
    }

    /// From here on the agent knows something of a page that this node alone has. If its owner has mapped it by itself, it is
    /// as if it had asked.
    pub(super) fn know(&mut self, page: PageIndex) -> Result<(), CacheError> {
        match self.pool.know(page)? {
            Some(frame) => self.was_mapped(page, frame),
            None => Ok(()),
        }
    }

    pub(super) fn park(&mut self, page: PageIndex, parked: Parked) {
        self.claims.parked.entry(page).or_default().push_back(parked);
    }

    /// Whether a claim has ended that something waits for.
    pub(super) fn claims_ended(&self) -> bool {
        let ended = |page: &PageIndex| !self.pool.is_claimed(*page).unwrap_or(false);
        !self.claims.parked.is_empty() && self.claims.parked.keys().any(ended)
    }

    /// Goes on with what has waited for claims.
    pub(super) fn serve_parked(&mut self) -> Result<bool, CacheError> {
        if self.claims.parked.is_empty() {
            return Ok(false);
        }
        let pages: Vec<PageIndex> = self.claims.parked.keys().copied().collect();
        let mut any = false;
        for page in pages {
            if self.pool.is_claimed(page)? {
                continue;
            }
            any = true;
            self.hear_of_filled()?;
            for parked in self.claims.parked.remove(&page).unwrap_or_default() {
                // Should the page be claimed once more meanwhile, all of it waits again, in its order.
                match parked {
                    Parked::Read(waiter) => self.want_read(page, waiter)?,
                    Parked::Put(put) => self.want_put(page, put)?,
                    Parked::Own(waiter) => self.want_own(page, waiter)?,
                    Parked::Map(page, mapper) => self.start_mapping(page, mapper)?,
                    Parked::Home(from, coherence) => self.receive(from, coherence)?,
                    Parked::InPlace(from, operation, data) => {
                        self.serve_in_place(from, page, operation, &data)?;
                    }
                }
            }
        }
        Ok(any)
    }

    /// Files the frames that ranks have filled.
    pub(super) fn hear_of_filled(&mut self) -> Result<bool, CacheError> {
        self.hear_of_segments();
        if !self.pool.has_filled() {
            return Ok(false);
        }
        let mut filled = std::mem::take(&mut self.claims.filled);
        self.pool.take_filled(&mut filled)?;
        for (frame, page) in filled.drain(..) {
            match self.is_mine(page) {
                true => self.file(frame, page)?,
                // The frame was in this stack already, for another page, when it was filled with this one.
                false => {
                    self.shards.tell(self.pool.layout().shard_of(page), Aside::Filled(frame, page));
                }
            }
        }
        self.claims.filled = filled;
        Ok(true)
    }

    /// A rank has filled this frame with this page.
    pub(super) fn file(&mut self, frame: FrameId, page: PageIndex) -> Result<(), CacheError> {
        self.may_be_evicted(frame)?;
        self.shards.somebody_got_a_frame();
        self.show_claimed(page);
        Ok(())
    }

    /// Leaves a page to the ranks, if nothing is known of it: to be brought in, or to be mapped.
    pub(super) fn settle(&mut self, page: PageIndex) -> Result<(), CacheError> {
        let Some((file, in_file)) = self.open_to_claims(page).map(|open| open.stored_in(page)) else {
            return Ok(());
        };
        let entry = self.pool.entry(page)?;
        if entry.held() || !self.quiet(page) || self.homes.contains_key(&page) || self.claims.has_parked(page)
        {
            return Ok(());
        }
        match entry.state() {
            PageState::Invalid => match self.storage.volume.stored(file, in_file.0) {
                Some(stored) => {
                    self.claims.touched.insert(page.floor(NEIGHBOURHOOD));
                    Ok(self.pool.publish(page, stored)?)
                }
                None => Ok(()),
            },
            PageState::Exclusive | PageState::Modified => Ok(self.pool.know_nothing(entry.frame())?),
            _ => Ok(()),
        }
    }

    /// Publishes the neighbours of a page that was asked for, once.
    pub(super) fn publish_neighbours(&mut self, page: PageIndex) -> Result<(), CacheError> {
        let Some(segment) = self.open_to_claims(page).map(Partition::range) else { return Ok(()) };
        // Of this shard alone.
        let size = NEIGHBOURHOOD.min(self.pool.layout().spec().block_pages);
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
        let found = self.segments.partitions.find(page)?;
        (found.shared && !self.is_withdrawn(page)).then_some(found)
    }

    /// Nothing of these pages is published any more.
    pub(super) fn unpublish(&mut self, pages: Range<PageIndex>) -> Result<(), CacheError> {
        let around = pages.start.floor(NEIGHBOURHOOD)..pages.end;
        self.claims.published.retain(|first| !around.contains(first));
        let touched: Vec<PageIndex> =
            self.claims.touched.iter().copied().filter(|first| around.contains(first)).collect();
        for first in touched {
            for page in PageIndex::each(first.max(pages.start)..(first + NEIGHBOURHOOD).min(pages.end)) {
                if self.is_mine(page) && self.pool.entry(page)?.state() == PageState::Stored {
                    self.pool.withdraw(page)?;
                }
            }
        }
        Ok(())
    }
}
