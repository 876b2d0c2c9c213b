//! Atomic updates of words of tiered segments (promise 14).
//!
//! A word of a page that this node may write is updated where it is, by the processor. A page of this node's own NVMe of which no
//! node has a copy is claimed and brought in by the rank ([`super::own`]), as for puts. All other updates travel to the agents of their
//! homes, which make them whether ranks there compute or not: one message there and one back for as many as fit. The agents own
//! what is in flight; here only the answers are awaited.

use super::own::{Brought, IoMode, OWN_TIMES, ReadId};
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
use vgas_shm::{Update, WordKind};

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

/// Updates in flight. They are made even if this is dropped, which waits for reads of this node's NVMe that they need.
#[must_use = "updates are complete only after `test` says so"]
pub struct PendingUpdates<'c> {
    core: &'c Core,
    updates: SmallVec<[SegmentUpdate; 1]>,
    were: SmallVec<[u64; 1]>,
    parts: SmallVec<[Part; 1]>,
    /// Of pages that this rank brings in, the numbers of updates and the reads that they wait for.
    claimed: SmallVec<[usize; 4]>,
    reads: SmallVec<[ReadId; 4]>,
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

    /// Updates a word as [`Client::update_cached`] does, or of a page that it claims and reads from this node's own NVMe, where no
    /// node has a copy: one read of the device at most, and no other process. None: nothing was done, and another process has to be
    /// asked ([`Client::update`]). May be called by any thread.
    #[inline]
    pub fn update_here(&self, of: impl Into<PartitionId>, offset: u64, update: Update) -> Option<u64> {
        let of = of.into();
        self.update_cached(of, offset, update).or_else(|| self.update_claimed(of, offset, update))
    }

    #[cold]
    #[inline(never)]
    fn update_claimed(&self, of: PartitionId, offset: u64, update: Update) -> Option<u64> {
        let bytes = update.word.bytes();
        let page = self.pool.locate(of, offset, bytes as usize)?.page();
        if !offset.is_multiple_of(bytes.into()) {
            return None;
        }
        let partition = self.segments.find(of)?.partition;
        for _ in 0..OWN_TIMES {
            if !self.core.is_claimable(page) {
                return None;
            }
            match self.core.own.bring(&self.core, &partition, page, 1, page + 1, IoMode::Blocking) {
                Brought::Here => {}
                Brought::Reading(read, _) => {
                    self.core.wait_for(|| Ok(self.core.own.has_ended(&self.core, read))).ok()?;
                }
                Brought::No => return None,
            }
            if let Some(was) = self.update_cached(of, offset, update) {
                return Some(was);
            }
        }
        None
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
        if let Some(was) = self.update_claimed(update.of, update.offset, update.update) {
            return Ok(was);
        }
        let mut was = 0;
        self.update_in_parts(&[update], std::slice::from_mut(&mut was))?;
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
        // Nothing is made of a list with a wrong offset.
        let is_plain = |one: &SegmentUpdate| self.has_plain_word(one.of, one.offset, one.update.word);
        let mut hits = 0;
        if updates.iter().all(is_plain) {
            for (one, was) in updates.iter().zip(were.iter_mut()) {
                let Some(found) = self.update_cached(one.of, one.offset, one.update) else { break };
                *was = found;
                hits += 1;
            }
        }
        match hits == updates.len() {
            true => Ok(()),
            false => self.update_in_parts(&updates[hits..], &mut were[hits..]),
        }
    }

    /// Whether a word lies, aligned, in a partition whose words ranks may update by themselves, where its page is here: one that is
    /// neither relaxed nor read-only.
    #[inline]
    pub fn has_plain_word(&self, of: impl Into<PartitionId>, offset: u64, word: WordKind) -> bool {
        let bytes = word.bytes();
        offset.is_multiple_of(bytes.into()) && self.pool.locate(of.into(), offset, bytes as usize).is_some()
    }

    #[cold]
    #[inline(never)]
    fn update_in_parts(&self, updates: &[SegmentUpdate], were: &mut [u64]) -> Result<(), CacheError> {
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
            claimed: SmallVec::new(),
            reads: SmallVec::new(),
        };
        let hits = pending.sort(self);
        self.pool.count(Counter::PutMisses, (updates.len() - hits) as u64);
        if !pending.parts.is_empty() || !pending.claimed.is_empty() {
            pending.test()?;
        }
        Ok(pending)
    }
}

impl PendingUpdates<'_> {
    /// Makes those that hit, begins to bring in pages that this rank may claim, and puts the others into messages. How many have hit.
    fn sort(&mut self, client: &Client) -> usize {
        let numbers = 0..self.updates.len();
        // Pages of which one has missed, and whether this rank brings it in: what follows in the same word must not overtake it.
        let mut missed: FxHashMap<PageIndex, bool> = FxHashMap::default();
        let mut asked: SmallVec<[usize; 4]> = SmallVec::new();
        for number in numbers.clone() {
            let SegmentUpdate { of, offset, update } = self.updates[number];
            // It was found when they were checked.
            let Some(page) = self.page_of(number) else { continue };
            let before = if missed.is_empty() { None } else { missed.get(&page).copied() };
            let is_claimed = match before {
                Some(is_claimed) => is_claimed,
                None => {
                    let place = client.pool.locate(of, offset, update.word.bytes() as usize);
                    if let Some(was) = place.and_then(|part| client.pool.update_part(part, update)) {
                        self.were[number] = was;
                        continue;
                    }
                    let is_claimed = place.is_some() && self.claim(of, page);
                    missed.insert(page, is_claimed);
                    is_claimed
                }
            };
            if is_claimed { self.claimed.push(number) } else { asked.push(number) }
        }
        let hits = numbers.len() - asked.len() - self.claimed.len();
        self.put_into_parts(&asked);
        hits
    }

    fn page_of(&self, number: usize) -> Option<PageIndex> {
        let SegmentUpdate { of, offset, .. } = self.updates[number];
        self.core.segments.find(of).map(|known| known.partition.page_at(offset))
    }

    /// Begins to bring a page in. False: it is not this rank's to claim.
    fn claim(&mut self, of: PartitionId, page: PageIndex) -> bool {
        let core = self.core;
        let Some(Known { partition, .. }) = core.segments.find(of).filter(|_| core.is_claimable(page)) else {
            return false;
        };
        match core.own.bring(core, &partition, page, 1, page + 1, IoMode::NonBlocking) {
            Brought::Here => true,
            Brought::Reading(read, _) => {
                self.reads.push(read);
                true
            }
            Brought::No => false,
        }
    }

    /// Puts updates into messages, one for each thread of the agent of each home, or for as many as fit.
    fn put_into_parts(&mut self, numbers: &[usize]) {
        let core = self.core;
        let most = (core.medium_max / WordUpdate::BYTES).max(1);
        // The part that is being filled, by home and thread.
        let mut filling: FxHashMap<(NodeId, u32), usize> = FxHashMap::default();
        for &number in numbers {
            let SegmentUpdate { of, offset, update } = self.updates[number];
            let Some(Known { partition, .. }) = core.segments.find(of) else { continue };
            let page = partition.page_at(offset);
            let in_page = offset as u32 & (partition.size.bytes() - 1);
            let key = (core.home(of.owner), core.pool.layout().shard_of(page));
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
    }

    /// Makes the updates of pages that this rank has brought in, if their reads have ended; the agent is asked for those whose page
    /// is gone again. False: a read has not ended.
    fn make_claimed(&mut self) -> bool {
        let core = self.core;
        self.reads.retain(|read| !core.own.has_ended(core, *read));
        if !self.reads.is_empty() {
            return false;
        }
        let mut gone: SmallVec<[usize; 4]> = SmallVec::new();
        let mut missed: FxHashSet<PageIndex> = FxHashSet::default();
        for number in std::mem::take(&mut self.claimed) {
            let SegmentUpdate { of, offset, update } = self.updates[number];
            let Some(part) = core.pool.locate(of, offset, update.word.bytes() as usize) else {
                gone.push(number);
                continue;
            };
            let is_next = missed.is_empty() || !missed.contains(&part.page());
            let made = if is_next { core.pool.update_part(part, update) } else { None };
            match made {
                Some(was) => self.were[number] = was,
                None => {
                    missed.insert(part.page());
                    gone.push(number);
                }
            }
        }
        self.put_into_parts(&gone);
        true
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
        let mut all = self.claimed.is_empty() || self.make_claimed();
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
        if !self.claimed.is_empty() {
            // These were started, and nobody else would make them: it takes as long as the device does.
            let core = self.core;
            if let Err(error) = core.wait_for(|| Ok(self.make_claimed())).and_then(|()| self.test().map(drop))
            {
                tracing::debug!(%error, "updates whose handle was dropped");
            }
        }
        for part in self.parts.iter().filter(|part| !part.made) {
            if let Some(number) = part.asked {
                self.core.remote.abandon(number);
            }
        }
    }
}
