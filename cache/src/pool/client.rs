//! A rank's view of the pool: reading and writing cached pages, staging frames, waiting for the agent.

use super::PoolError;
use super::counters::{Counter, CounterSnapshot};
use super::entry::{Entry, PageState};
use super::fence;
use super::hazard::{RECENT, SlotRange, ThreadSlot};
use super::layout::{PoolSpec, TableLayout, header};
use super::mirror::{HitPath, ThreadRecord};
use super::part::{Page, PagePart};
use super::pin::{PinMode, PinnedPage};
use super::queue::FilledStack;
use super::row::Row;
use super::shared::{FrameUse, IN_USE, Pins, Shared, UNKNOWN};
use super::size::{FrameId, PageSize};
use super::wait::{self, WaitId, WaitSlots, WaitStatus};
use crate::page::PageIndex;
use crate::partition::{PartitionId, SEGMENTS_MAX, SegmentId};
use crate::protocol::claim::{self, Act, Event};
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64, compiler_fence};
use vgas_nvm::{StoredPage, Whereabouts};
use vgas_shm::copy::copy;
use vgas_shm::{Mapping, Span, Update};

/// Bytes of frames that a transfer larger than the cache keeps on their way: several operations of a device, each as long as it likes.
const TRANSFER_BYTES: u32 = 4 << 20;

/// How an attempt to use a page without help ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Attempt {
    /// Done.
    Hit,
    /// Done, and this was the first use of a page read ahead: the agent wants to know.
    HitNotify,
    /// Nothing was done: ask the agent. The entry as found, for statistics and to see [`PageState::InPlace`].
    Miss(Entry),
}

/// A page that a rank brings in by itself. To be shown or given back: until then nobody else can have it.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Claim {
    /// Which.
    pub page: PageIndex,
    /// What NVMe has of it.
    pub stored: StoredPage,
    frame: FrameId,
}

/// What [`PoolClient::map_own`] has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Own {
    /// The page stays in this frame until [`PoolClient::unmap_own`].
    Mapped(FrameId),
    /// Nobody has it: claim it.
    Stored,
    /// Ask the agent.
    Agents,
}

/// A rank's view of its node's pool. Any thread may call anything.
pub struct PoolClient {
    /// What [`RECENT`] must name for its slot to be this client's.
    client: u64,
    pages: u64,
    rows: *const Row,
    ranks: u32,
    /// Of a page of the first segment: it has 2 to this power bytes, and one more than this.
    first_shift: u32,
    first_mask: u32,
    entries: *const AtomicU64,
    frames: *mut u8,
    stamps: *const AtomicU32,
    clock: *const AtomicU32,
    pool_bytes: u64,
    /// The agent's barriers reach this process: no fence is needed here.
    asymmetric: bool,
    slots: Arc<SlotRange>,
    waits: WaitSlots,
    local_rank: u32,
    pub(super) shared: Arc<Shared>,
}

// SAFETY: the raw addresses point into mappings that `shared` keeps (rule 1); what they point to are atomics and frame
// bytes, which any thread may use under rules 3 and 4.
unsafe impl Send for PoolClient {}
// SAFETY: as above; all methods take `&self` and synchronise through atomics and locks.
unsafe impl Sync for PoolClient {}

impl PoolClient {
    /// Attaches to the pool that the node's agent has created, as the `local_rank`-th rank of the node; one process at
    /// a time may be attached as a rank.
    pub fn attach(
        spec: &PoolSpec,
        table: Arc<Mapping>,
        frames: Arc<Mapping>,
        local_rank: u32,
    ) -> Result<Self, PoolError> {
        let shared = Arc::new(Shared::new(spec, table, frames)?);
        let asymmetric = shared.verify()? && fence::register();
        let slots = SlotRange::attach(shared.clone(), local_rank)?;
        let layout = &shared.layout;
        let at = |offset: u64| shared.table.base().wrapping_add(offset as usize).cast_const();
        Ok(Self {
            client: slots.client(),
            pages: layout.pages(),
            rows: at(layout.rows).cast(),
            ranks: layout.ranks(),
            first_shift: layout.page_size().shift(),
            first_mask: layout.page_size().bytes() - 1,
            entries: at(layout.entries).cast(),
            frames: shared.frames.base(),
            stamps: at(layout.stamps).cast(),
            clock: at(header::CLOCK as u64).cast(),
            pool_bytes: layout.pool_bytes,
            asymmetric,
            waits: WaitSlots::new(&shared, local_rank),
            slots,
            local_rank,
            shared,
        })
    }

    /// This client's part of the hit path, for code that follows it elsewhere ([`super::mirror`]).
    pub fn hit_path(&self) -> HitPath {
        HitPath {
            client: self.client,
            entries: self.entries,
            frames: self.frames,
            stamps: self.stamps,
            clock: self.clock,
            pool_bytes: self.pool_bytes,
            asymmetric: self.asymmetric,
        }
    }

    /// The record of the calling thread, which has a slot of this client afterwards if there is one left.
    pub fn thread_record(&self) -> *const ThreadRecord {
        let _ = self.slots.own_slot();
        RECENT.with(|recent| recent.as_ptr().cast_const().cast())
    }

    /// The layout, with the numbering of pages.
    pub fn layout(&self) -> &TableLayout {
        &self.shared.layout
    }

    /// The memory of the frames.
    pub fn frames(&self) -> &Arc<Mapping> {
        &self.shared.frames
    }

    /// A page by its number.
    #[inline]
    pub fn page(&self, number: PageIndex) -> Page {
        Page { number, size: self.shared.layout.size_of(number) }
    }

    /// What the node's ranks have said of a partition; none of a segment or rank that cannot be.
    #[inline(always)]
    pub fn row(&self, of: PartitionId) -> Option<&Row> {
        if of.segment.0 >= SEGMENTS_MAX || of.owner.0 >= self.ranks {
            return None;
        }
        let index = of.segment.0 as usize * self.ranks as usize + of.owner.0 as usize;
        // SAFETY: rules 1 and 2: the layout has a row, of atomics alone, for each segment and rank below these limits.
        Some(unsafe { &*self.rows.add(index) })
    }

    /// Bytes of a partition, where plain hits may reach them and they are in one page; none otherwise. What may be there is for
    /// [`PoolClient::get_part`] and its like to say.
    #[inline(always)]
    pub fn locate(&self, of: PartitionId, offset: u64, bytes: usize) -> Option<PagePart> {
        // What most programs use, and use most, has pages of a size that is known.
        let (row, shift, mask) = match of.segment == SegmentId::FIRST {
            true => (self.row(of.owner.into())?, self.first_shift, self.first_mask),
            false => self.row(of).map(|row| (row, row.shift(), row.mask()))?,
        };
        let (plain, first) = (row.plain.load(Acquire), row.first.load(Relaxed));
        let in_page = offset as u32 & mask;
        if offset > plain
            || bytes as u64 > plain - offset
            // No memory has so many bytes that this goes around; none at all are for others to look at.
            || u64::from(in_page).wrapping_add((bytes as u64).wrapping_sub(1)) > u64::from(mask)
        {
            return None;
        }
        let page = PageIndex(first.wrapping_add(offset >> (shift & 63)));
        Some(PagePart { page, in_page, bytes: bytes as u32 })
    }

    /// This rank's number on its node.
    pub fn local_rank(&self) -> u32 {
        self.local_rank
    }

    /// Reads `bytes` bytes at `in_page` of a page, if the node has a copy. On a hit they are in `to` when it returns.
    /// Never blocks (except behind other threads when the rank has more of them than hazard slots).
    ///
    /// # Safety
    /// `to` is valid for writing `bytes` bytes, and writing there does not fault into tiered memory: a fault served in
    /// this thread while it uses a page would need that page's agent. Bounce through private memory instead.
    #[inline(always)]
    pub unsafe fn try_get(&self, page: Page, in_page: u32, to: *mut u8, bytes: u32) -> Attempt {
        match PagePart::new(page, in_page, bytes) {
            // SAFETY: as the caller promised.
            Some(part) => unsafe { self.get_part(part, to) },
            None => Attempt::Miss(Entry::INVALID),
        }
    }

    /// The same of bytes that are known to be in one page.
    ///
    /// # Safety
    /// As [`PoolClient::try_get`].
    #[inline(always)]
    pub unsafe fn get_part(&self, part: PagePart, to: *mut u8) -> Attempt {
        let recent = RECENT.get();
        if recent.client != self.client {
            // SAFETY: as the caller promised.
            return unsafe { self.get_with_other_slot(part.page, part.in_page, part.bytes, to) };
        }
        // SAFETY: rule 1: the slot was stored under this client's number; the rest as the caller promised.
        unsafe { self.get(&*recent.slot, part, to) }
    }

    /// Writes `bytes` bytes at `in_page` of a page, if this node may write it (M, or E, which becomes M). On a hit they
    /// are visible to every later get of this node and, through the protocol, anywhere.
    ///
    /// # Safety
    /// `from` is valid for reading `bytes` bytes, and reading there does not fault into tiered memory (see
    /// [`PoolClient::try_get`]).
    #[inline(always)]
    pub unsafe fn try_put(&self, page: Page, in_page: u32, from: *const u8, bytes: u32) -> Attempt {
        match PagePart::new(page, in_page, bytes) {
            // SAFETY: as the caller promised.
            Some(part) => unsafe { self.put_part(part, from) },
            None => Attempt::Miss(Entry::INVALID),
        }
    }

    /// The same of bytes that are known to be in one page.
    ///
    /// # Safety
    /// As [`PoolClient::try_put`].
    #[inline(always)]
    pub unsafe fn put_part(&self, part: PagePart, from: *const u8) -> Attempt {
        let recent = RECENT.get();
        if recent.client != self.client {
            // SAFETY: as the caller promised.
            return unsafe { self.put_with_other_slot(part.page, part.in_page, part.bytes, from) };
        }
        // SAFETY: as in `get_part`.
        unsafe { self.put(&*recent.slot, part, from) }
    }

    /// Does several copies from (least right: [`PageState::Shared`]) or to ([`PageState::Modified`]) a part of a page within one
    /// handshake. On a hit, `copy` has been called with the address of the part's first byte, and counts as `copies` hits.
    ///
    /// # Safety
    /// `copy` does nothing but to copy between these bytes and memory that does not fault into tiered memory, and writes them only
    /// with the right to.
    pub unsafe fn with_part(
        &self,
        part: PagePart,
        least: PageState,
        copies: u64,
        copy: impl FnOnce(*mut u8),
    ) -> Attempt {
        let recent = RECENT.get();
        let (_turn, slot) = if recent.client == self.client {
            (None, recent.slot)
        } else if let Some(slot) = self.slots.own_slot() {
            (None, slot)
        } else {
            self.count(Counter::SlowPaths, 1);
            let (turn, slot) = self.slots.shared_slot();
            (Some(turn), slot)
        };
        // SAFETY: rule 1: a slot of this client, of this thread or under its guard.
        let slot = unsafe { &*slot };
        if !self.enter(slot, part.page) {
            return Attempt::Miss(Entry::INVALID);
        }
        // SAFETY: rules 1 and 2: `enter` checked the page, `shared` keeps the table.
        let word = unsafe { &*self.entries.add(part.page.0 as usize) };
        let (attempt, entry) = self.settle(word, Entry::from_word(word.load(Acquire)), least, part.end());
        if !matches!(attempt, Attempt::Miss(_)) {
            let hits = if least == PageState::Modified { &slot.put_hits } else { &slot.get_hits };
            hits.store(hits.load(Relaxed).wrapping_add(copies), Relaxed);
            copy(self.bytes_of(entry, part));
        }
        slot.hazard.store(0, Release);
        attempt
    }

    /// Updates a word at `in_page` of a page, a multiple of the word's length, if this node may write it; yields what it was.
    /// Atomic with every other update, and with puts and loads of the whole word. None: a miss.
    #[inline(always)]
    pub fn try_update(&self, page: Page, in_page: u32, update: Update) -> Option<u64> {
        self.update_part(PagePart::new(page, in_page, update.word.bytes())?, update)
    }

    /// The same of a word that is known to be in one page: of as many bytes as the update's.
    #[inline(always)]
    pub fn update_part(&self, part: PagePart, update: Update) -> Option<u64> {
        let recent = RECENT.get();
        if recent.client != self.client {
            return self.update_with_other_slot(part, update);
        }
        // SAFETY: as in `get_part`.
        self.update(unsafe { &*recent.slot }, part, update)
    }

    #[inline(always)]
    fn update(&self, slot: &ThreadSlot, part: PagePart, update: Update) -> Option<u64> {
        let PagePart { page, in_page, bytes } = part;
        if bytes != update.word.bytes() || !in_page.is_multiple_of(bytes) || !self.enter(slot, page) {
            return None;
        }
        // SAFETY: rules 1 and 2: `enter` checked the page, `shared` keeps the table.
        let word = unsafe { &*self.entries.add(page.0 as usize) };
        let mut entry = Entry::from_word(word.load(Acquire));
        if !self.plainly(entry, PageState::Modified, part) {
            if let Some(was) = self.unchanged(entry, part, update) {
                slot.put_hits.store(slot.put_hits.load(Relaxed).wrapping_add(1), Relaxed);
                slot.hazard.store(0, Release);
                return Some(was);
            }
            let attempt;
            (attempt, entry) = self.settle(word, entry, PageState::Modified, part.end());
            if let Attempt::Miss(_) = attempt {
                slot.hazard.store(0, Release);
                return None;
            }
        }
        slot.put_hits.store(slot.put_hits.load(Relaxed).wrapping_add(1), Relaxed);
        // SAFETY: rules 2 and 3: as in `put`; frames begin at pages, and the offset was checked above.
        let was = unsafe { update.apply(self.bytes_of(entry, part)) };
        slot.hazard.store(0, Release);
        Some(was)
    }

    /// Reads the word that an update leaves as it is, such as a compare-and-swap that fails, on a page that is clean: the page
    /// stays clean. None: the update changes the word, or the page cannot be read as it is.
    #[cold]
    fn unchanged(&self, entry: Entry, part: PagePart, update: Update) -> Option<u64> {
        let rights = entry.with_ahead(false).rights();
        if rights != PageState::Exclusive as u32 || !self.has_room(entry.frame(), part.end()) {
            return None;
        }
        // SAFETY: rules 2 and 3: as in `PoolClient::update`; the page stands in the slot, and its state grants reading.
        let was = unsafe { update.word.load(self.bytes_of(entry, part)) };
        (update.of(was) == was).then_some(was)
    }

    /// # Safety
    /// As [`PoolClient::try_get`]; `slot` is a slot of this client that nobody else uses meanwhile.
    #[inline(always)]
    unsafe fn get(&self, slot: &ThreadSlot, part: PagePart, to: *mut u8) -> Attempt {
        if !self.enter(slot, part.page) {
            return Attempt::Miss(Entry::INVALID);
        }
        // SAFETY: rules 1 and 2: `enter` checked the page, `shared` keeps the table.
        let word = unsafe { &*self.entries.add(part.page.0 as usize) };
        let mut entry = Entry::from_word(word.load(Acquire));
        let mut attempt = Attempt::Hit;
        if !self.plainly(entry, PageState::Shared, part) {
            (attempt, entry) = self.settle(word, entry, PageState::Shared, part.end());
            if let Attempt::Miss(_) = attempt {
                slot.hazard.store(0, Release);
                return attempt;
            }
        }
        slot.get_hits.store(slot.get_hits.load(Relaxed).wrapping_add(1), Relaxed);
        // SAFETY: rules 2 and 3: the part is in the page, `plainly` or `settle` checked the frame and the right; the page
        // stands in the slot. The other side is the caller's.
        unsafe { copy(self.bytes_of(entry, part), to, part.bytes as usize) };
        slot.hazard.store(0, Release);
        attempt
    }

    /// # Safety
    /// As [`PoolClient::try_put`]; `slot` is a slot of this client that nobody else uses meanwhile.
    #[inline(always)]
    unsafe fn put(&self, slot: &ThreadSlot, part: PagePart, from: *const u8) -> Attempt {
        if !self.enter(slot, part.page) {
            return Attempt::Miss(Entry::INVALID);
        }
        // SAFETY: rules 1 and 2: `enter` checked the page, `shared` keeps the table.
        let word = unsafe { &*self.entries.add(part.page.0 as usize) };
        let mut entry = Entry::from_word(word.load(Acquire));
        let mut attempt = Attempt::Hit;
        if !self.plainly(entry, PageState::Modified, part) {
            (attempt, entry) = self.settle(word, entry, PageState::Modified, part.end());
            if let Attempt::Miss(_) = attempt {
                slot.hazard.store(0, Release);
                return attempt;
            }
        }
        slot.put_hits.store(slot.put_hits.load(Relaxed).wrapping_add(1), Relaxed);
        // SAFETY: as in `get`, with the right to write.
        unsafe { copy(from, self.bytes_of(entry, part), part.bytes as usize) };
        slot.hazard.store(0, Release);
        attempt
    }

    /// Step 1 of the handshake. False (and no announcement) when it is no page of the job, or when the slot is in use already: a
    /// signal handler has interrupted this thread in the middle of a use.
    #[inline(always)]
    fn enter(&self, slot: &ThreadSlot, page: PageIndex) -> bool {
        if page.0 >= self.pages || slot.hazard.load(Relaxed) != 0 {
            return false;
        }
        slot.hazard.store(page.0 + 1, Relaxed);
        if self.asymmetric {
            compiler_fence(SeqCst);
        } else {
            std::sync::atomic::fence(SeqCst);
        }
        true
    }

    /// Whether the entry grants at least this right (S to read, M to write) to a part of its page without anything to be done first.
    #[inline(always)]
    fn plainly(&self, entry: Entry, least: PageState, part: PagePart) -> bool {
        let least = least as u32;
        entry.rights().wrapping_sub(least) <= PageState::Modified as u32 - least
            && Self::offset(entry, part) + u64::from(part.bytes) <= self.pool_bytes
    }

    /// Where in the pool a part of an entry's page is.
    #[inline(always)]
    fn offset(entry: Entry, part: PagePart) -> u64 {
        entry.frame().offset() + u64::from(part.in_page)
    }

    /// Whether so many bytes from the frame on are in the pool.
    #[inline(always)]
    fn has_room(&self, frame: FrameId, end: u32) -> bool {
        frame.offset() + u64::from(end) <= self.pool_bytes
    }

    /// The rarer ways to a hit: AHEAD is cleared, E becomes M. The entry returned with a hit is in force.
    #[cold]
    fn settle(&self, word: &AtomicU64, mut entry: Entry, least: PageState, end: u32) -> (Attempt, Entry) {
        loop {
            let state = entry.state();
            let granted = if least == PageState::Modified { state.writable() } else { state.readable() };
            if entry.held() || !granted || !self.has_room(entry.frame(), end) {
                return (Attempt::Miss(entry), entry);
            }
            let next = entry.with_ahead(false).with_state(state.max(least));
            if next == entry {
                return (Attempt::Hit, entry);
            }
            // Fails when HOLD came first; then this thread has no right to the page any more.
            match word.compare_exchange(entry.word(), next.word(), AcqRel, Acquire) {
                Ok(_) if entry.ahead() => return (Attempt::HitNotify, next),
                Ok(_) => return (Attempt::Hit, next),
                Err(now) => entry = Entry::from_word(now),
            }
        }
    }

    /// The bytes of a frame whose number was checked; tells replacement about the use.
    #[inline(always)]
    fn bytes_of(&self, entry: Entry, part: PagePart) -> *mut u8 {
        let stamp = entry.frame().0 as usize;
        // SAFETY: rules 1 and 2: callers have checked that the frame begins in the pool; the clock is in the header.
        let (now, stamp) = unsafe { ((*self.clock).load(Relaxed), &*self.stamps.add(stamp)) };
        // Written once per tick of the clock, so that a page in use by several ranks does not bounce.
        if stamp.load(Relaxed) != now {
            stamp.store(now, Relaxed);
        }
        self.frames.wrapping_add(Self::offset(entry, part) as usize)
    }

    /// # Safety
    /// As [`PoolClient::try_get`].
    #[cold]
    #[inline(never)]
    unsafe fn get_with_other_slot(&self, page: PageIndex, in_page: u32, bytes: u32, to: *mut u8) -> Attempt {
        // In words: a part that is handed over is written to memory by every hit.
        let part = PagePart { page, in_page, bytes };
        if let Some(slot) = self.slots.own_slot() {
            // SAFETY: rule 1: just claimed from a range that `self` holds, for this thread.
            return unsafe { self.get(&*slot, part, to) };
        }
        let (_turn, slot) = self.slots.shared_slot();
        self.count(Counter::SlowPaths, 1);
        // SAFETY: as above; the guard keeps others away.
        unsafe { self.get(&*slot, part, to) }
    }

    /// # Safety
    /// As [`PoolClient::try_put`].
    #[cold]
    #[inline(never)]
    unsafe fn put_with_other_slot(
        &self,
        page: PageIndex,
        in_page: u32,
        bytes: u32,
        from: *const u8,
    ) -> Attempt {
        let part = PagePart { page, in_page, bytes };
        if let Some(slot) = self.slots.own_slot() {
            // SAFETY: as in `get_with_other_slot`.
            return unsafe { self.put(&*slot, part, from) };
        }
        let (_turn, slot) = self.slots.shared_slot();
        self.count(Counter::SlowPaths, 1);
        // SAFETY: as above.
        unsafe { self.put(&*slot, part, from) }
    }

    #[cold]
    #[inline(never)]
    fn update_with_other_slot(&self, part: PagePart, update: Update) -> Option<u64> {
        if let Some(slot) = self.slots.own_slot() {
            // SAFETY: as in `get_with_other_slot`.
            return self.update(unsafe { &*slot }, part, update);
        }
        let (_turn, slot) = self.slots.shared_slot();
        self.count(Counter::SlowPaths, 1);
        // SAFETY: as above; the guard keeps others away.
        self.update(unsafe { &*slot }, part, update)
    }

    /// Pins a page that the node has with at least that right; none otherwise (ask the agent, then try again), or when
    /// it is pinned 65 535 times already. [`PinMode`] says what stays as it is.
    pub fn try_pin(&self, page: Page, mode: PinMode) -> Option<PinnedPage> {
        match self.slots.own_slot() {
            // SAFETY: rule 1: this thread's slot of a range that `self` holds.
            Some(slot) => self.pin(unsafe { &*slot }, page, mode),
            None => {
                let (_turn, slot) = self.slots.shared_slot();
                // SAFETY: as above; the guard keeps others away.
                self.pin(unsafe { &*slot }, page, mode)
            }
        }
    }

    fn pin(&self, slot: &ThreadSlot, page: Page, mode: PinMode) -> Option<PinnedPage> {
        let (least, unit) = match mode {
            PinMode::Read => (PageState::Shared, Pins::READER),
            PinMode::Write => (PageState::Modified, Pins::WRITER),
        };
        if !self.enter(slot, page.number) {
            return None;
        }
        // Of the page as it is, whatever the caller says.
        let bytes = self.shared.layout.size_of(page.number).bytes();
        let word = self.shared.entry(page.number).expect("enter checked the page");
        let (attempt, entry) = self.settle(word, Entry::from_word(word.load(Acquire)), least, bytes);
        let pinned = if let Attempt::Miss(_) = attempt {
            None
        } else {
            let full = |word: u32| match mode {
                PinMode::Read => word as u16 == u16::MAX,
                PinMode::Write => (word >> 16) as u16 == u16::MAX,
            };
            // While the page stands in the slot: an agent that finds the slot cleared also finds the pin.
            let pin = |word: u32| (!full(word)).then(|| word + unit);
            let pins = self.shared.pins(entry.frame()).ok();
            pins.and_then(|pins| pins.fetch_update(AcqRel, Acquire, pin).ok()).map(|_| {
                let address = self.bytes_of(entry, PagePart { page: page.number, in_page: 0, bytes });
                PinnedPage::new(self.shared.clone(), page.number, word, entry.frame(), (address, bytes), mode)
            })
        };
        slot.hazard.store(0, Release);
        if pinned.is_some() {
            self.count(Counter::Pins, 1);
        }
        pinned
    }

    /// The page's entry now; it may change at once. [`Entry::INVALID`] for a page that no segment has.
    pub fn peek(&self, page: PageIndex) -> Entry {
        self.shared.entry(page).map_or(Entry::INVALID, |word| Entry::from_word(word.load(Acquire)))
    }

    /// Forgets that the home serves a page in place: it has just declined. The next use asks the agent.
    pub fn forget_in_place(&self, page: PageIndex) {
        let old = self.peek(page);
        if old.state() == PageState::InPlace
            && let Ok(word) = self.shared.entry(page)
        {
            // Fails when the agent was quicker.
            let _ = word.compare_exchange(old.word(), Entry::INVALID.word(), AcqRel, Relaxed);
        }
    }

    /// Takes a free frame for a page of this size, to be filled and handed to the agent with a request. None when there is
    /// none: the agent, asked for a page in the usual way, makes room.
    pub fn stage(&self, size: PageSize) -> Option<StagedFrame<'_>> {
        let used = FrameUse::Staged { local_rank: self.local_rank };
        self.shared.take_free(size, used).map(|frame| StagedFrame { client: self, frame })
    }

    /// Claims a page that nobody has, and takes a free frame for it: the calling rank brings it in, and nobody else does.
    /// None: it is not stored (any more), or no frame is free.
    pub fn claim(&self, page: PageIndex) -> Option<Claim> {
        // Before a frame is taken for nothing.
        self.peek(page).stored()?;
        let size = self.shared.layout.size_of(page);
        let frame = self.shared.take_free(size, FrameUse::Staged { local_rank: self.local_rank })?;
        let claim = self.claim_into(page, frame, |_| true);
        if claim.is_none() {
            self.shared.put_free(frame);
        }
        claim
    }

    /// Claims neighbouring pages that one operation can read, or that are all zeros: up to `count` from this one on, and as
    /// many as frames are free. Neighbours get neighbouring frames as far as possible: a device then moves them in one piece.
    pub fn claim_run(&self, first: PageIndex, count: usize) -> SmallVec<[Claim; 1]> {
        let mut claims: SmallVec<[Claim; 1]> = SmallVec::new();
        if count <= 1 || self.peek(first).stored().is_none() {
            claims.extend(self.claim(first));
            return claims;
        }
        let mut frames = Vec::with_capacity(count);
        let size = self.shared.layout.size_of(first);
        let used = FrameUse::Staged { local_rank: self.local_rank };
        self.shared.take_free_many(size, count, used, &mut frames);
        frames.sort_unstable();
        let mut frames = frames.into_iter();
        for page in PageIndex::each(first..first.saturating_add(frames.len() as u64)) {
            let before = claims.first().map(|claim: &Claim| claim.stored);
            let alike = |stored| before.is_none_or(|before| before.is_beside(stored));
            let Some(&frame) = frames.as_slice().first() else { break };
            let Some(claim) = self.claim_into(page, frame, alike) else { break };
            frames.next();
            claims.push(claim);
        }
        frames.for_each(|frame| self.shared.put_free(frame));
        claims
    }

    fn claim_into(
        &self,
        page: PageIndex,
        frame: FrameId,
        wanted: impl FnOnce(StoredPage) -> bool,
    ) -> Option<Claim> {
        let word = self.shared.entry(page).ok()?;
        let now = Entry::from_word(word.load(Acquire));
        claim::cell(now.claim_state(), Event::Claim)?;
        let stored = now.stored().filter(|stored| wanted(*stored))?;
        let claimed = Entry::new(PageState::Claimed, FrameId(self.local_rank));
        let taken = word.compare_exchange(now.word(), claimed.word(), AcqRel, Relaxed);
        taken.is_ok().then_some(Claim { page, frame, stored })
    }

    /// The memory of a claimed page, to be filled.
    pub fn claimed_span(&self, claim: &Claim) -> Span {
        self.shared.frame_span(claim.frame).expect("checked when it was taken")
    }

    /// Fills a claimed page.
    ///
    /// # Safety
    /// `from` is valid for reading a page, and reading there does not fault into tiered memory.
    pub unsafe fn fill(&self, claim: &Claim, from: *const u8) {
        let span = self.claimed_span(claim);
        // SAFETY: rule 3: the frame is this process's; the source is the caller's.
        unsafe { copy(from, span.address(), span.bytes()) };
    }

    /// Shows a claimed page, which has been filled. True: the agent waits for the end of the claim; ring it.
    #[must_use]
    pub fn show(&self, claim: Claim, state: PageState, ahead: bool) -> bool {
        self.show_as(claim, state, ahead, 0)
    }

    /// Shows a claimed page, which has been filled, and maps it as [`PoolClient::map_own`] does. Its frame, and whether the
    /// agent waits for the end of the claim; ring it.
    pub fn show_mapped(&self, claim: Claim, state: PageState) -> (FrameId, bool) {
        let frame = claim.frame;
        if let Ok(pins) = self.shared.pins(frame) {
            pins.fetch_add(Pins::WRITER, SeqCst);
        }
        (frame, self.show_as(claim, state, false, IN_USE))
    }

    /// Keeps a page of this rank's own segment where it is, to be used through pointers, without asking the agent: if this
    /// node alone has it, and the agent knows nothing of it. Safe in a handler of a signal.
    pub fn map_own(&self, page: PageIndex) -> Own {
        let Ok(word) = self.shared.entry(page) else { return Own::Agents };
        let now = Entry::from_word(word.load(Acquire));
        if now.state() == PageState::Stored {
            return Own::Stored;
        }
        let frame = now.frame();
        let is_free = |entry: Entry| {
            entry.state().writable() && !entry.held() && !entry.ahead() && entry.frame() == frame
        };
        let (Ok(pins), Ok(used)) = (self.shared.pins(frame), self.shared.frame_use(frame)) else {
            return Own::Agents;
        };
        // The agent has what is wanted of a block that is to be emptied brought elsewhere.
        if !is_free(now) || self.shared.is_vacating(self.shared.layout.frame_blocks.of_frame(frame)) {
            return Own::Agents;
        }
        // The pin first, then another look: either the agent, which holds the page first, finds the pin, or this finds HOLD.
        pins.fetch_add(Pins::WRITER, SeqCst);
        let unknown = FrameUse::Page(page).word() | UNKNOWN;
        if is_free(Entry::from_word(word.load(SeqCst)))
            && used.compare_exchange(unknown, unknown | IN_USE, AcqRel, Relaxed).is_ok()
        {
            return Own::Mapped(frame);
        }
        pins.fetch_sub(Pins::WRITER, AcqRel);
        Own::Agents
    }

    /// Ends [`PoolClient::map_own`] or [`PoolClient::show_mapped`]. False: the agent knows of it now, and must be told. Safe in
    /// a handler of a signal.
    pub fn unmap_own(&self, page: PageIndex) -> bool {
        let unmap = || -> Result<bool, PoolError> {
            let frame = Entry::from_word(self.shared.entry(page)?.load(Acquire)).frame();
            let (pins, used) = (self.shared.pins(frame)?, self.shared.frame_use(frame)?);
            let unknown = FrameUse::Page(page).word() | UNKNOWN;
            // Nobody sees the uses through pointers: it counts as used just now.
            self.shared.stamp(frame)?.store(self.shared.clock().load(Relaxed), Relaxed);
            let unmapped = used.compare_exchange(unknown | IN_USE, unknown, AcqRel, Relaxed).is_ok();
            if unmapped {
                pins.fetch_sub(Pins::WRITER, AcqRel);
            }
            Ok(unmapped)
        };
        unmap().unwrap_or(false)
    }

    fn show_as(&self, claim: Claim, state: PageState, ahead: bool, in_use: u64) -> bool {
        let Claim { page, frame, .. } = claim;
        debug_assert!(state.writable());
        if let (Ok(used), Ok(stamp)) = (self.shared.frame_use(frame), self.shared.stamp(frame)) {
            used.store(FrameUse::Page(page).word() | UNKNOWN | in_use, Relaxed);
            stamp.store(self.shared.clock().load(Relaxed), Relaxed);
        }
        let is_awaited = self.end_claim(page, Event::Show, Entry::new(state, frame).with_ahead(ahead));
        FilledStack::of(&self.shared, self.shared.layout.shard_of(page)).push(frame);
        is_awaited
    }

    /// Gives a claimed page back: as it was, or, where it could not be brought in, for the agent to try. True: the agent waits
    /// for the end of the claim; ring it.
    #[must_use]
    pub fn give_back(&self, claim: Claim, failed: bool) -> bool {
        self.shared.put_free(claim.frame);
        let (event, entry) = match failed {
            true => (Event::Fail, Entry::INVALID),
            false => (Event::GiveBack, Entry::of_stored(claim.stored)),
        };
        self.end_claim(claim.page, event, entry)
    }

    fn end_claim(&self, page: PageIndex, event: Event, entry: Entry) -> bool {
        let word = self.shared.entry(page).expect("checked when it was claimed");
        // Only this rank, and the agent's HOLD, change a claimed page.
        let before = Entry::from_word(word.swap(entry.word(), AcqRel));
        claim::cell(before.claim_state(), event).is_some_and(|(_, act)| act == Act::Ring)
    }

    /// Whether so few frames for pages of this size are free that the agent had better make room now.
    pub fn is_short_of_frames(&self, size: PageSize) -> bool {
        self.free_frames(size) < self.shared.free_target(size).div_ceil(2)
    }

    /// How many are to be free: so many that a miss or a staged put finds one at once.
    pub fn free_target(&self, size: PageSize) -> u32 {
        self.shared.free_target(size)
    }

    /// The most frames that one transfer larger than the cache keeps free or in write-back: as many as give the device long runs, and half
    /// of those that there are.
    pub fn transfer_frames(&self, size: PageSize) -> u32 {
        let wanted = (TRANSFER_BYTES / size.bytes()).max(1);
        wanted.min(self.shared.frames_now(size) / 2)
    }

    /// How many frames for pages of this size are free, about.
    pub fn free_frames(&self, size: PageSize) -> u32 {
        self.shared.free_frames(size)
    }

    /// Asks the agent to have so many frames for pages of this size free, if it can. Afterwards ring it.
    pub fn wish_for_frames(&self, size: PageSize, count: u32) {
        self.shared.wish(size).fetch_max(count, Relaxed);
    }

    /// Where the file of the partition of a rank of this node is; none before it is attached, or when it is none.
    pub fn file(&self, segment: SegmentId, local_rank: u32) -> Option<Whereabouts> {
        let mut words = [0; Whereabouts::FILE_WORDS];
        for (index, word) in words.iter_mut().enumerate() {
            *word = self.shared.file_word(segment, local_rank, index).ok()?.load(Acquire);
        }
        let mut volume = [0; Whereabouts::VOLUME_WORDS];
        for (index, word) in volume.iter_mut().enumerate() {
            *word = self.shared.volume_word(index).load(Relaxed);
        }
        Whereabouts::decode(volume, words)
    }

    /// Says that this rank has used a page that the agent fetched for it, so that it may be evicted again.
    pub fn taken(&self, page: PageIndex) {
        let entry = self.peek(page);
        if entry.state().readable()
            && let Ok(word) = self.shared.reservation(entry.frame())
        {
            // Never below 0: the agent may have dropped a reservation that took too long.
            let _ = word.fetch_update(AcqRel, Relaxed, |word| (word & 0xffff != 0).then(|| word - 1));
        }
    }

    /// The frame of a page of this node's, and when it was used last; none when the node has no copy.
    pub fn last_use(&self, page: PageIndex) -> Option<(FrameId, u32)> {
        let entry = self.peek(page);
        let frame = entry.state().readable().then(|| entry.frame())?;
        Some((frame, self.shared.stamp(frame).ok()?.load(Relaxed)))
    }

    /// Has replacement see a frame as used at an earlier time: what is used once, in the order in which it came, is to leave in that order.
    /// Only a hint: the frame may have another page by now.
    pub fn set_last_use(&self, (frame, stamp): (FrameId, u32)) {
        if let Ok(word) = self.shared.stamp(frame) {
            word.store(stamp, Relaxed);
        }
    }

    /// Reserves a wait slot for an operation of `parts` parts. None when all are in use: finish one first.
    pub fn begin_wait(&self, parts: u32) -> Option<WaitId> {
        self.waits.begin(&self.shared, parts)
    }

    /// Adds parts, before the requests for them are sent.
    pub fn add_parts(&self, id: WaitId, parts: u32) {
        wait::add_parts(&self.shared, self.local_rank, id, parts);
    }

    /// Takes parts back whose requests were not sent after all.
    pub fn take_back_parts(&self, id: WaitId, parts: u32) {
        wait::take_back_parts(&self.shared, self.local_rank, id, parts);
    }

    /// How far an operation is.
    #[inline]
    pub fn wait_status(&self, id: WaitId) -> WaitStatus {
        wait::status(&self.shared, self.local_rank, id)
    }

    /// Announces that the calling thread is about to sleep until the operation is finished. False: it is finished,
    /// don't sleep. After true the agent rings this rank's doorbell when it finishes the last part.
    pub fn prepare_sleep(&self, id: WaitId) -> bool {
        wait::prepare_sleep(&self.shared, self.local_rank, id)
    }

    /// Takes the announcement back.
    pub fn cancel_sleep(&self, id: WaitId) {
        wait::cancel_sleep(&self.shared, self.local_rank, id);
    }

    /// Copies a small answer out of the slot, after [`WaitStatus::Done`]; at most [`super::INLINE_BYTES`] bytes.
    pub fn read_answer(&self, id: WaitId, to: &mut [u8]) {
        wait::read_answer(&self.shared, self.local_rank, id, to);
    }

    /// Gives the slot back. A slot with pending parts is used again only when these are finished.
    pub fn end_wait(&self, id: WaitId) {
        self.waits.end(&self.shared, id);
    }

    /// Adds to one of this rank's counters. Several threads may; hits are counted by themselves.
    pub fn count(&self, counter: Counter, n: u64) {
        self.shared.counter(self.local_rank, counter).fetch_add(n, Relaxed);
    }

    /// What this rank has counted so far.
    pub fn counters(&self) -> CounterSnapshot {
        self.shared.counters(self.local_rank)
    }

    /// What the node's agent has counted so far.
    pub fn agent_counters(&self) -> CounterSnapshot {
        let spec = &self.shared.layout.spec;
        let mut sum = CounterSnapshot::default();
        for shard in 0..spec.agent_threads {
            sum.add(&self.shared.counters(spec.local_ranks + shard));
        }
        sum
    }
}

impl std::fmt::Debug for PoolClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let spec = &self.shared.layout.spec;
        write!(f, "PoolClient(rank {} of the node, {spec:?})", self.local_rank)
    }
}

/// A free frame in the hands of a rank. Dropped, it is free again.
#[derive(Debug)]
pub struct StagedFrame<'a> {
    client: &'a PoolClient,
    frame: FrameId,
}

impl StagedFrame<'_> {
    /// Copies `bytes` bytes to offset `in_page` of the frame.
    ///
    /// # Panics
    /// When they don't fit.
    ///
    /// # Safety
    /// `from` is valid for reading `bytes` bytes.
    pub unsafe fn write(&mut self, in_page: u32, from: *const u8, bytes: u32) {
        let span = self.client.shared.frame_span(self.frame).expect("checked when it was taken");
        assert!(u64::from(in_page) + u64::from(bytes) <= span.bytes() as u64);
        // SAFETY: rule 3: the frame is this process's; the range was just checked; the source is the caller's.
        unsafe { copy(from, span.address().add(in_page as usize), bytes as usize) };
    }

    /// Its number.
    pub fn id(&self) -> FrameId {
        self.frame
    }

    /// Its number, for the request that hands it to the agent ([`super::PoolAgent::adopt`]).
    pub fn into_id(self) -> FrameId {
        let frame = self.frame;
        std::mem::forget(self);
        frame
    }
}

impl Drop for StagedFrame<'_> {
    fn drop(&mut self) {
        self.client.shared.put_free(self.frame);
    }
}
