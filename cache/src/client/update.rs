//! Atomic updates of words of tiered segments (DESIGN, property 14).
//!
//! A word of a page that this node may write is updated where it is, by the processor. All others travel to the agents of their
//! homes, which make them whether ranks there compute or not: one message there and one back for as many as fit. The agents own
//! what is under way; here only the answers are awaited.

use super::remote::RemoteState;
use super::{CacheError, Client, Core, Known};
use crate::error::PAGE_UNKNOWN;
use crate::page::{PageInSegment, PageIndex};
use crate::partition::PartitionId;
use crate::pool::Counter;
use crate::request::{InPlace, WordUpdate};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use vgas_rma::address::NodeId;
use vgas_shm::Update;

/// An update of a word of a rank's segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentUpdate {
    /// In which partition.
    pub of: PartitionId,
    /// The word's first byte in it, a multiple of its length.
    pub offset: u64,
    /// What is to be done.
    pub update: Update,
}

/// Updates for one thread of the agent of one home.
#[derive(Debug, Default)]
struct Part {
    first: PageIndex,
    list: Vec<u8>,
    /// Their places in the list of all.
    numbers: SmallVec<[usize; 1]>,
    /// Of the message that asks for it, once it was sent.
    asked: Option<u32>,
    made: bool,
}

/// Updates under way. What was sent is made even if this is dropped.
#[must_use = "updates are complete only after `test` says so"]
pub struct PendingUpdates<'c> {
    core: &'c Core,
    updates: SmallVec<[SegmentUpdate; 1]>,
    were: SmallVec<[u64; 1]>,
    parts: SmallVec<[Part; 1]>,
}

impl Client {
    /// Updates a word of a rank's segment atomically, and yields what it was. When it returns every later get anywhere sees the
    /// change. Atomic with all other updates of the word, with puts and gets of all of it by whomever, and with atomic
    /// instructions of its owner through pointers; exact whatever becomes of the page meanwhile.
    ///
    /// On a relaxed segment, all puts of this rank that wait for its barrier travel first.
    ///
    /// # Errors
    /// [`CacheError::Usage`] for an offset that is not a multiple of the word's length, [`CacheError::OutOfRange`] behind the end,
    /// [`CacheError::ReadOnly`], and [`CacheError::Page`] when the page cannot be read; the word is as it was then.
    #[inline]
    pub fn update(&self, of: impl Into<PartitionId>, offset: u64, update: Update) -> Result<u64, CacheError> {
        let of = of.into();
        match self.update_cached(of, offset, update) {
            Some(was) => Ok(was),
            None => self.update_slowly(SegmentUpdate { of, offset, update }),
        }
    }

    /// The part of [`Client::update`] that a hit needs: none when the page is not here to be written, and nothing was done. Never
    /// waits.
    #[inline]
    pub fn update_cached(&self, of: impl Into<PartitionId>, offset: u64, update: Update) -> Option<u64> {
        let bytes = update.word.bytes() as usize;
        self.pool.update_part(self.pool.locate(of.into(), offset, bytes)?, update)
    }

    #[cold]
    #[inline(never)]
    fn update_slowly(&self, update: SegmentUpdate) -> Result<u64, CacheError> {
        let mut was = 0;
        self.update_many(&[update], std::slice::from_mut(&mut was))?;
        Ok(was)
    }

    /// Makes many updates, each atomic by itself, and says what the words were, in the same order; those of one word are made
    /// in this order. One message for each home, or for each few thousand updates there. Otherwise as [`Client::update`].
    ///
    /// # Errors
    /// As [`Client::update`], of the first that failed; others may have been made. Nothing has when an offset is wrong.
    ///
    /// # Panics
    /// When the slices differ in length.
    pub fn update_many(&self, updates: &[SegmentUpdate], were: &mut [u64]) -> Result<(), CacheError> {
        assert_eq!(updates.len(), were.len(), "as many results as updates");
        let mut pending = self.start_updates(updates)?;
        self.core.wait_for(|| pending.test())?;
        were.copy_from_slice(&pending.were);
        Ok(())
    }

    /// Starts updates, for who must not wait: [`PendingUpdates::test`] lets them go on. Otherwise as [`Client::update_many`].
    ///
    /// # Errors
    /// As [`Client::update_many`].
    pub fn start_updates(&self, updates: &[SegmentUpdate]) -> Result<PendingUpdates<'_>, CacheError> {
        let mut is_relaxed = false;
        for &SegmentUpdate { of, offset, update } in updates {
            let bytes = update.word.bytes();
            if !offset.is_multiple_of(u64::from(bytes)) {
                let what = format!(
                    "an atomic update at offset {offset} of the segment of {of}, not a multiple of {bytes}"
                );
                return Err(CacheError::Usage(what));
            }
            let known = self.check(of, offset, u64::from(bytes))?;
            self.check_writable(of)?;
            is_relaxed |= known.is_some_and(|known| known.relaxed);
        }
        if is_relaxed {
            self.flush_relaxed()?;
        }
        let mut pending = PendingUpdates {
            core: &self.core,
            updates: SmallVec::from_slice(updates),
            were: SmallVec::from_elem(0, updates.len()),
            parts: SmallVec::new(),
        };
        let hits = pending.sort(self);
        self.pool.count(Counter::PutMisses, (updates.len() - hits) as u64);
        if !pending.parts.is_empty() {
            pending.test()?;
        }
        Ok(pending)
    }
}

impl PendingUpdates<'_> {
    /// Makes those that hit, and puts the others into messages. How many have hit.
    fn sort(&mut self, client: &Client) -> usize {
        let core = self.core;
        let most = (core.medium_max / WordUpdate::BYTES).max(1);
        // The part that is being filled, by home and thread; and the pages of which one has missed, because what follows in the
        // same word must not overtake it.
        let mut filling: FxHashMap<(NodeId, u32), usize> = FxHashMap::default();
        let mut missed: FxHashSet<PageIndex> = FxHashSet::default();
        let mut hits = 0;
        let is_one = self.updates.len() == 1;
        for (number, &SegmentUpdate { of, offset, update }) in self.updates.iter().enumerate() {
            // It was found when they were checked.
            let Some(Known { partition, .. }) = core.segments.find(of) else { continue };
            let page = partition.page_at(offset);
            let in_page = offset as u32 & (partition.size.bytes() - 1);
            // One alone has been tried.
            if !is_one && !missed.contains(&page) {
                let place = client.pool.locate(of, offset, update.word.bytes() as usize);
                if let Some(was) = place.and_then(|part| client.pool.update_part(part, update)) {
                    self.were[number] = was;
                    hits += 1;
                    continue;
                }
                missed.insert(page);
            }
            let key = (core.home(of.owner), client.pool.layout().shard_of(page));
            let part = match filling.get(&key) {
                Some(&part) if self.parts[part].numbers.len() < most => part,
                _ => {
                    self.parts.push(Part { first: page, ..Part::default() });
                    filling.insert(key, self.parts.len() - 1);
                    self.parts.len() - 1
                }
            };
            let part = &mut self.parts[part];
            WordUpdate { page, offset: in_page, update }.write(&mut part.list);
            part.numbers.push(number);
        }
        hits
    }

    /// What the words were, when [`PendingUpdates::test`] has said that all are made.
    pub fn were(&self) -> &[u64] {
        &self.were
    }

    /// Goes on as far as possible without waiting. True: all are made.
    ///
    /// # Errors
    /// As [`Client::update_many`].
    pub fn test(&mut self) -> Result<bool, CacheError> {
        let mut all = true;
        for part in 0..self.parts.len() {
            all &= self.parts[part].made || self.advance(part)?;
            if self.parts[part].asked.is_none() {
                // No room to ask now. Later ones may be of the same words, and wait, too.
                break;
            }
        }
        if !all {
            self.core.endpoint.check_failure()?;
        }
        Ok(all)
    }

    fn advance(&mut self, part: usize) -> Result<bool, CacheError> {
        let (core, part) = (self.core, &mut self.parts[part]);
        let Some(&first) = part.numbers.first() else { return Ok(true) };
        let owner = self.updates[first].of.owner;
        let Some(number) = part.asked else {
            let Some(number) = core.remote.begin(core.layout.agent_of(core.home(owner))) else {
                return Ok(false);
            };
            let count = part.numbers.len() as u32;
            let page = part.first;
            if core.try_in_place(owner, InPlace::Update { page, count, number }, &part.list)? {
                part.asked = Some(number);
            } else {
                core.remote.abandon(number);
            }
            return Ok(false);
        };
        match core.remote.finish(number) {
            RemoteState::Pending => return core.check_awaited(number).map(|()| false),
            RemoteState::Done(bytes) if bytes.len() == 8 * part.numbers.len() => {
                for (&number, was) in part.numbers.iter().zip(bytes.as_chunks().0) {
                    self.were[number] = u64::from_le_bytes(*was);
                }
            }
            RemoteState::Failed(which, code) => {
                let failed = part.numbers.get(which as usize).unwrap_or(&first);
                let SegmentUpdate { of, offset, .. } = self.updates[*failed];
                let size = core.segments.find(of).map_or(0, |known| known.partition.size.shift());
                return Err(core.failed(of, PageInSegment(offset >> size), code, PAGE_UNKNOWN));
            }
            RemoteState::Done(bytes) => {
                return Err(core.short_answer(owner, 8 * part.numbers.len(), bytes.len()));
            }
            RemoteState::NotInPlace | RemoteState::Landed => {
                return Err(core.short_answer(owner, 8 * part.numbers.len(), 0));
            }
        }
        part.made = true;
        Ok(true)
    }
}

impl Drop for PendingUpdates<'_> {
    fn drop(&mut self) {
        for part in self.parts.iter().filter(|part| !part.made) {
            if let Some(number) = part.asked {
                self.core.remote.abandon(number);
            }
        }
    }
}
