//! Which pages of a segment are mapped, and bringing one in: the part that runs in the thread that faulted.
//!
//! Each page has a word: absent, busy (one thread changes its mapping, others wait for it), mapped for reading, or mapped
//! for writing; and how often it is pinned. A fixed number of *seats* bounds how many pages are mapped. A thread that
//! wants a page takes the next seat in turn, and hides the page that sits there (first in, first out).
//!
//! Hiding costs as much as asking the agent, so both are done at once: the thread asks for its page, gives back the page
//! that was hidden at the *last* fault, and hides its own victim while the agent works. That victim is then the *owed*
//! page: hidden, still granted, and busy, until the next fault gives it back, or wants it again. There is one owed page at
//! a time; a thread that finds another one at it hides its victim first and gives it back with its own request.

mod run;

use super::space::Space;
use super::{LocalSpec, Trouble};
use crate::error::{Failure, FailureKind};
use crate::page::{PageInSegment, PageIndex};
use crate::partition::PartitionId;
use crate::pool::{
    Claim, ClaimedSlot, Counter, Fault, FaultSlots, FrameId, MAPPED_PAGES_MIN, Own, PAGE_BYTES_MIN,
    PageState, PoolClient, Returned,
};
use run::Sweep;
use rustix::thread::futex;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::{Duration, Instant};
use vgas_shm::Mapping;
use vgas_shm::cores;

/// Looks at an answer before it is asked whether a core is free: about what an agent on another core needs.
const LOOKS: u32 = 100;
/// Looking on while a core is free: about what it costs to be woken (16 to 44 µs across cores).
const SPIN_SPARE: Duration = Duration::from_micros(40);
/// Longest sleep between two looks at whether the agent still lives.
const NAP: Duration = Duration::from_millis(100);
/// Faults in a row that found their page mapped. A few are threads that were late; so many are an access that no mapping
/// allows (executing the segment), or one frame that the machine cannot give.
const FUTILE_MAX: u32 = 100_000;

const KIND: u32 = 3;
pub(super) const ABSENT: u32 = 0;
pub(super) const BUSY: u32 = 1;
pub(super) const READABLE: u32 = 2;
pub(super) const WRITABLE: u32 = 3;
/// Somebody sleeps until the page is not busy any more.
const AWAITED: u32 = 1 << 2;
/// One pin; the upper bits count them.
const PIN: u32 = 1 << 8;

/// No page is owed, and the next fault may owe one.
const NOTHING_OWED: u64 = 0;
/// A thread is exchanging the owed page.
const IN_EXCHANGE: u64 = u64::MAX;

/// A seat that a thread has taken for a page.
pub(super) struct Seat<'w> {
    place: &'w AtomicU64,
    pub(super) index: u32,
    /// Who sat there, and what it was mapped for; busy now, and still shown.
    pub(super) victim: Option<(PageInSegment, u32)>,
}

/// A rank's own segment in its address space.
pub(super) struct Window {
    owner: PartitionId,
    is_own: bool,
    first_page: PageIndex,
    page_shift: u32,
    space: Space,
    /// The pages' words; memory only where pages were touched.
    words: Arc<Mapping>,
    /// Pages that are mapped (or about to be) plus one; 0 is free.
    seats: Box<[AtomicU64]>,
    next_seat: AtomicU64,
    /// The owed page plus one, or [`NOTHING_OWED`], or [`IN_EXCHANGE`].
    owed: AtomicU64,
    /// Pages that are pinned.
    pinned: AtomicU32,
    futile: AtomicU32,
    /// Faults on pages that are not mapped, and stores to pages that are mapped for reading.
    sweep: Sweep,
    stores: Sweep,
    /// Fills the frame of a claimed page.
    read: Box<dyn Fn(&Claim) -> bool + Send + Sync>,
    pool: Arc<PoolClient>,
    faults: FaultSlots,
    ring: Box<dyn Fn() + Send + Sync>,
}

impl Window {
    /// # Safety
    /// As [`LocalSegment::open`](super::LocalSegment::open).
    pub unsafe fn new(spec: LocalSpec) -> Result<Self, Trouble> {
        let LocalSpec { pool, frames, partition, is_own, bytes, pages_max, at, mechanism, ring, read } = spec;
        let layout = pool.layout();
        let page_bytes = u64::from(partition.size.bytes());
        let pages = bytes.div_ceil(page_bytes);
        if pages == 0 || pages > partition.pages || !partition.fits(layout) {
            return Err(Trouble::Refused(FailureKind::NoSuchPage.into()));
        }
        let granted = pages_max.min(layout.spec().mapped_pages_per_rank + layout.mapped_beside_first());
        if granted < MAPPED_PAGES_MIN {
            return Err(Trouble::SwitchedOff);
        }
        // All but the owed one.
        let seats = granted - 1;
        let bytes =
            usize::try_from(pages * page_bytes).map_err(|_| Trouble::System(rustix::io::Errno::NOMEM))?;
        let words = Mapping::anonymous("vgas-local", pages * 4)
            .map_err(|_| Trouble::System(rustix::io::Errno::NOMEM))?;
        // SAFETY: passed on.
        let space = unsafe { Space::reserve(bytes, at, page_bytes as usize, frames, mechanism) }?;
        Ok(Self {
            owner: partition.id(),
            is_own,
            first_page: partition.first,
            page_shift: page_bytes.trailing_zeros(),
            space,
            words,
            seats: (0..seats).map(|_| AtomicU64::new(0)).collect(),
            next_seat: AtomicU64::new(0),
            owed: AtomicU64::new(NOTHING_OWED),
            pinned: AtomicU32::new(0),
            futile: AtomicU32::new(0),
            sweep: Sweep::default(),
            stores: Sweep::default(),
            read,
            faults: pool.fault_slots(),
            pool,
            ring,
        })
    }

    pub fn is_own(&self) -> bool {
        self.is_own
    }

    pub fn owner(&self) -> PartitionId {
        self.owner
    }

    pub fn space(&self) -> &Space {
        &self.space
    }

    /// Most pages that may be pinned: enough seats stay for whatever else one instruction touches.
    pub fn pins_max(&self) -> u32 {
        self.seats.len() as u32 + 1 - MAPPED_PAGES_MIN
    }

    /// The page of the segment at an address of it.
    pub fn page_at(&self, address: usize) -> Option<PageInSegment> {
        let offset = address.wrapping_sub(self.space.base());
        (offset < self.space.bytes()).then_some(PageInSegment((offset >> self.page_shift) as u64))
    }

    pub(super) fn page_shift(&self) -> u32 {
        self.page_shift
    }

    /// By how much the numbers of neighbouring frames differ.
    pub(super) fn units_of_page(&self) -> u32 {
        1 << (self.page_shift - PAGE_BYTES_MIN.trailing_zeros())
    }

    /// Pages of the segment.
    pub(super) fn page_count(&self) -> u64 {
        (self.space.bytes() >> self.page_shift) as u64
    }

    pub(super) fn seat_count(&self) -> usize {
        self.seats.len()
    }

    pub(super) fn word(&self, page: PageInSegment) -> &AtomicU32 {
        self.words.atomic_u32(page.0 as usize * 4)
    }

    /// Serves a fault: `Ok(true)`, try again; `Ok(false)`, nothing that this segment could do about it. `write` as far as
    /// it is known.
    pub fn serve(&self, page: PageInSegment, write: Option<bool>) -> Result<bool, Trouble> {
        // A fault on a page that may be read must be a store, if the machine does not say.
        let write = write.unwrap_or_else(|| self.is_own && self.word(page).load(Acquire) & KIND == READABLE);
        if write && !self.is_own {
            return Err(Trouble::NotTheOwner);
        }
        if self.bring_in(page, write)? {
            self.futile.store(0, Relaxed);
            self.count_fault();
            return Ok(true);
        }
        Ok(self.futile.fetch_add(1, Relaxed) < FUTILE_MAX)
    }

    pub fn count_fault(&self) {
        self.pool.count(Counter::Faults, 1);
    }

    /// Maps a page with at least this right. False: it had it already, and nothing was done.
    pub fn bring_in(&self, page: PageInSegment, write: bool) -> Result<bool, Trouble> {
        let word = self.word(page);
        loop {
            let now = word.load(Acquire);
            match now & KIND {
                ABSENT => {
                    if word.compare_exchange(now, BUSY, AcqRel, Relaxed).is_ok() {
                        return self.fetch(page, write).map(|()| true);
                    }
                }
                BUSY if self.reclaim(page) => return self.fetch_owed(page, write).map(|()| true),
                BUSY => self.wait_while_busy(page),
                READABLE if write => {
                    if word.compare_exchange(now, BUSY, AcqRel, Relaxed).is_ok() {
                        return self.make_writable(page).map(|()| true);
                    }
                }
                _ => return Ok(false),
            }
        }
    }

    /// An absent page, which this thread has made busy.
    fn fetch(&self, page: PageInSegment, write: bool) -> Result<(), Trouble> {
        let wanted = self.run_wanted(page, write);
        if wanted > 1
            && let Some(result) = self.fetch_run(page, write, wanted)
        {
            return result;
        }
        self.fetch_alone(page, write)
    }

    /// The same without what follows it.
    #[inline(never)]
    fn fetch_alone(&self, page: PageInSegment, write: bool) -> Result<(), Trouble> {
        let seat = self.take_seat(page);
        if seat.victim.is_none() {
            return self.fetch_into(seat, page, write, None);
        }
        match self.owed.swap(IN_EXCHANGE, AcqRel) {
            IN_EXCHANGE => self.fetch_after_hiding(seat, page, write),
            NOTHING_OWED => self.exchange(seat, page, write, None),
            owed => self.exchange(seat, page, write, page_of(owed)),
        }
    }

    /// The owed page itself is wanted again, and this thread has reclaimed it.
    #[inline(never)]
    fn fetch_owed(&self, page: PageInSegment, write: bool) -> Result<(), Trouble> {
        let seat = self.take_seat(page);
        self.exchange(seat, page, write, Some(page))
    }

    /// Has the page fetched in exchange for the owed one, and hides the victim meanwhile, which is the owed one then.
    fn exchange(
        &self,
        seat: Seat<'_>,
        page: PageInSegment,
        write: bool,
        owed: Option<PageInSegment>,
    ) -> Result<(), Trouble> {
        let victim = seat.victim;
        let result = self.fetch_into(seat, page, write, owed);
        // Not before the agent has taken it back: the next fault on it must find it unmapped there, too.
        if let Some(back) = owed.filter(|&owed| owed != page) {
            self.settle(back, ABSENT);
        }
        let owes = victim.filter(|_| result.is_ok());
        self.owed.store(owes.map_or(NOTHING_OWED, |(old, _)| word_of(old)), Release);
        if let Some((old, _)) = owes {
            // Still busy; whoever waits for it may reclaim it now.
            self.settle(old, BUSY);
        }
        result
    }

    /// Gives the victim back with the request for the page.
    fn fetch_after_hiding(&self, seat: Seat<'_>, page: PageInSegment, write: bool) -> Result<(), Trouble> {
        let Some((old, _)) = seat.victim else { return self.fetch_into(seat, page, write, None) };
        if let Err(trouble) = self.space.hide(old, 1) {
            self.leave(seat);
            self.settle(page, ABSENT);
            return Err(trouble);
        }
        let result = self.fetch_into(Seat { victim: None, ..seat }, page, write, Some(old));
        self.settle(old, ABSENT);
        result
    }

    /// Asks for a page, and gives another one back; hides the victim until the answer comes; and shows the page. Without
    /// success, the seat is as it was before.
    fn fetch_into(
        &self,
        seat: Seat<'_>,
        page: PageInSegment,
        write: bool,
        back: Option<PageInSegment>,
    ) -> Result<(), Trouble> {
        let back = back.filter(|&back| !self.unmap_own(back));
        let returned = back.map_or(Returned::Nothing, |back| Returned::Page(self.first_page + back));
        let (hidden, answer) = match self.map_own(page, write) {
            Some(frame) => {
                let told = match returned {
                    Returned::Nothing => Ok(()),
                    returned => self.ask(Fault { wanted: None, write: false, returned }).map(drop),
                };
                let hidden = seat.victim.map_or(Ok(()), |(old, _)| self.space.hide(old, 1));
                (hidden.and(told), Ok(frame))
            }
            None => {
                let slot = self.post(Fault { wanted: Some(self.first_page + page), write, returned });
                let hidden = seat.victim.map_or(Ok(()), |(old, _)| self.space.hide(old, 1));
                (hidden, self.answer(slot))
            }
        };
        let shown = match (&hidden, answer) {
            (Ok(()), Ok(frame)) => {
                self.space.show(page, frame, 1, write).inspect_err(|_| self.give_back(page))
            }
            (Ok(()), Err(trouble)) => Err(trouble),
            (&Err(trouble), answer) => {
                if answer.is_ok() {
                    self.give_back(page);
                }
                Err(trouble)
            }
        };
        if shown.is_err() {
            if let (Ok(()), Some((old, _))) = (&hidden, seat.victim) {
                // Hidden for nothing: it is given back, and its seat is free.
                self.give_back(old);
                self.settle(old, ABSENT);
                seat.place.store(0, Release);
            } else {
                self.leave(seat);
            }
        }
        let kind = match (&shown, write) {
            (Err(_), _) => ABSENT,
            (Ok(()), true) => WRITABLE,
            (Ok(()), false) => READABLE,
        };
        self.settle(page, kind);
        shown
    }

    /// Has a page that nobody but this node knows of mapped without the agent, brought in first if need be.
    #[inline(never)]
    fn map_own(&self, page: PageInSegment, write: bool) -> Option<FrameId> {
        if !self.is_own {
            return None;
        }
        let index = self.first_page + page;
        match self.pool.map_own(index) {
            Own::Mapped(frame) => {
                if !write || self.pool.mark_modified(index) {
                    return Some(frame);
                }
                self.give_back(page);
                None
            }
            // Of a scan the agent recognises more than one page at a time.
            Own::Stored if self.sweep.is_in_order(page) => None,
            Own::Stored => {
                let claim = self.pool.claim(index)?;
                if self.pool.is_short_of_frames(self.pool.layout().size_of(index)) {
                    (self.ring)();
                }
                if !(self.read)(&claim) {
                    if self.pool.give_back(claim, true) {
                        (self.ring)();
                    }
                    return None;
                }
                let state = if write { PageState::Modified } else { PageState::Exclusive };
                let (frame, is_awaited) = self.pool.show_mapped(claim, state);
                if is_awaited {
                    (self.ring)();
                }
                Some(frame)
            }
            Own::Agents => None,
        }
    }

    /// Takes a page back that was mapped without the agent. False: the agent knows of it.
    fn unmap_own(&self, page: PageInSegment) -> bool {
        self.is_own && self.pool.unmap_own(self.first_page + page)
    }

    /// A page is not mapped after all; tells the agent, if it knows. A failure of this says no more than the one that led to it.
    #[inline(never)]
    pub(super) fn give_back(&self, page: PageInSegment) {
        let returned = Returned::Page(self.first_page + page);
        if !self.unmap_own(page) {
            let _ = self.ask(Fault { wanted: None, write: false, returned });
        }
    }

    /// Whether a busy page was the owed one and is now this thread's.
    fn reclaim(&self, page: PageInSegment) -> bool {
        self.owed.load(Acquire) == word_of(page)
            && self.owed.compare_exchange(word_of(page), IN_EXCHANGE, AcqRel, Relaxed).is_ok()
    }

    pub(super) fn mark_modified(&self, page: PageInSegment) -> bool {
        self.pool.mark_modified(self.first_page + page)
    }

    pub(super) fn refused_write() -> Trouble {
        Trouble::Refused(FailureKind::Unknown.into())
    }

    /// Keeps a page in DRAM where it is that nobody but this node knows of.
    pub(super) fn map_known_to_nobody(&self, page: PageInSegment) -> Own {
        if !self.is_own {
            return Own::Agents;
        }
        self.pool.map_own(self.first_page + page)
    }

    /// A seat for a page. Whoever sits there is busy from now on.
    #[inline(never)]
    pub(super) fn take_seat(&self, page: PageInSegment) -> Seat<'_> {
        let (mut naps, mut tries) = (0, 0);
        loop {
            if let Some(seat) = self.try_seat(page) {
                return seat;
            }
            tries += 1;
            if tries % self.seats.len() == 0 {
                cores::nap(&mut naps);
            }
        }
    }

    /// A seat that this thread has taken.
    pub(super) fn seat_of(&self, index: u32, victim: Option<(PageInSegment, u32)>) -> Seat<'_> {
        Seat { place: &self.seats[index as usize], index, victim }
    }

    /// The next seat, if whoever sits there can leave.
    pub(super) fn try_seat(&self, page: PageInSegment) -> Option<Seat<'_>> {
        let turn = self.next_seat.fetch_add(1, Relaxed);
        let index = (turn % self.seats.len() as u64) as u32;
        let place = &self.seats[index as usize];
        let sitting = place.load(Acquire);
        let Some(old) = page_of(sitting) else {
            let taken = place.compare_exchange(0, word_of(page), AcqRel, Relaxed).is_ok();
            return taken.then_some(Seat { place, index, victim: None });
        };
        let word = self.word(old);
        let now = word.load(Acquire);
        // Neither pinned nor busy. (A page that is busy already is somebody else's victim, or just coming.)
        let free = matches!(now, READABLE | WRITABLE);
        if free && word.compare_exchange(now, BUSY, AcqRel, Relaxed).is_ok() {
            if place.compare_exchange(sitting, word_of(page), AcqRel, Relaxed).is_ok() {
                return Some(Seat { place, index, victim: Some((old, now)) });
            }
            // It has got another seat since; here sits somebody else.
            self.settle(old, now);
        }
        None
    }

    /// Leaves a seat to its victim, which is still shown, or free.
    pub(super) fn leave(&self, seat: Seat<'_>) {
        seat.place.store(seat.victim.map_or(0, |(old, _)| word_of(old)), Release);
        if let Some((old, kind)) = seat.victim {
            self.settle(old, kind);
        }
    }

    /// Ends a page's being busy.
    pub(super) fn settle(&self, page: PageInSegment, kind: u32) {
        let word = self.word(page);
        if word.swap(kind, AcqRel) & AWAITED != 0 {
            // Who is not woken looks again after a while.
            let _ = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
        }
    }

    /// Waits until a page is not busy, or owed.
    fn wait_while_busy(&self, page: PageInSegment) {
        let word = self.word(page);
        for _ in 0..LOOKS {
            if word.load(Acquire) & KIND != BUSY {
                return;
            }
            std::hint::spin_loop();
        }
        let awaited = BUSY | AWAITED;
        let marked =
            word.load(Acquire) == awaited || word.compare_exchange(BUSY, awaited, AcqRel, Acquire).is_ok();
        // Who makes a page owed takes the mark away after that: either it finds the mark, or this finds the page owed.
        if marked && self.owed.load(Acquire) != word_of(page) {
            let _ = futex::wait(word, futex::Flags::empty(), awaited, Some(&timeout(NAP)));
        }
    }

    /// Asks the agent, and waits for its answer.
    fn ask(&self, fault: Fault) -> Result<FrameId, Trouble> {
        self.answer(self.post(fault))
    }

    /// Asks the agent; [`Window::answer`] has to follow.
    fn post(&self, fault: Fault) -> ClaimedSlot {
        let mut naps = 0;
        let slot = loop {
            match self.faults.claim() {
                Some(slot) => break slot,
                None => cores::nap(&mut naps),
            }
        };
        self.faults.post(&slot, fault);
        (self.ring)();
        slot
    }

    fn answer(&self, slot: ClaimedSlot) -> Result<FrameId, Trouble> {
        let answer = self.wait_for(&slot);
        self.faults.give_back(slot);
        answer
    }

    fn wait_for(&self, slot: &ClaimedSlot) -> Result<FrameId, Trouble> {
        for _ in 0..LOOKS {
            if let Some(answer) = self.faults.answer(slot) {
                return answer.map_err(refused);
            }
            std::hint::spin_loop();
        }
        let began = Instant::now();
        loop {
            if let Some(answer) = self.faults.answer(slot) {
                return answer.map_err(refused);
            }
            if self.faults.agent_has_ended() {
                return Err(Trouble::AgentEnded);
            }
            if cores::spare() && began.elapsed() < SPIN_SPARE {
                std::hint::spin_loop();
            } else {
                self.faults.sleep(slot, NAP);
            }
        }
    }

    /// Brings a page in, for all that may be done with it, and keeps it mapped until as many [`Window::unpin`].
    pub fn pin(&self, page: PageInSegment) -> Result<(), Trouble> {
        let limit = self.pins_max();
        let one_more = |count| (count < limit).then_some(count + 1);
        if self.pinned.fetch_update(AcqRel, Relaxed, one_more).is_err() {
            return Err(Trouble::TooManyPinned { limit });
        }
        let word = self.word(page);
        loop {
            if let Err(trouble) = self.bring_in(page, self.is_own) {
                self.pinned.fetch_sub(1, AcqRel);
                return Err(trouble);
            }
            let wanted = if self.is_own { WRITABLE } else { READABLE };
            let pin = |now: u32| (now & KIND == wanted && now < u32::MAX - PIN).then(|| now + PIN);
            match word.fetch_update(AcqRel, Acquire, pin) {
                Ok(before) => {
                    if before >= PIN {
                        // It was pinned, and counted, before.
                        self.pinned.fetch_sub(1, AcqRel);
                    }
                    return Ok(());
                }
                Err(now) if now >= u32::MAX - PIN => {
                    self.pinned.fetch_sub(1, AcqRel);
                    return Err(Trouble::TooManyPinned { limit: u32::MAX / PIN });
                }
                // Hidden again before it was pinned.
                Err(_) => {}
            }
        }
    }

    /// Takes a pin back.
    pub fn unpin(&self, page: PageInSegment) {
        if self.word(page).fetch_sub(PIN, AcqRel) < 2 * PIN {
            self.pinned.fetch_sub(1, AcqRel);
        }
    }

    /// Gives back what is mapped of a block of the pool that is to be emptied, as far as it is not pinned or just changing.
    pub fn leave_block(&self, block: u32) {
        let is_there = |page: PageInSegment| self.pool.block_of_page(self.first_page + page) == Some(block);
        for seat in &self.seats {
            let sitting = seat.load(Acquire);
            let Some(page) = page_of(sitting).filter(|&page| is_there(page)) else { continue };
            let word = self.word(page);
            let now = word.load(Acquire);
            let free = matches!(now, READABLE | WRITABLE);
            if !free || word.compare_exchange(now, BUSY, AcqRel, Relaxed).is_err() {
                continue;
            }
            // From here on nobody else takes its seat, if it sits there still.
            if seat.load(Acquire) != sitting || self.space.hide(page, 1).is_err() {
                self.settle(page, now);
                continue;
            }
            self.give_back(page);
            seat.store(0, Release);
            self.settle(page, ABSENT);
        }
        let owed = self.owed.load(Acquire);
        if let Some(page) = page_of(owed).filter(|&page| owed != IN_EXCHANGE && is_there(page))
            && self.reclaim(page)
        {
            self.give_back(page);
            self.settle(page, ABSENT);
            self.owed.store(NOTHING_OWED, Release);
        }
    }

    pub(super) fn pool(&self) -> &PoolClient {
        &self.pool
    }

    /// Gives all pages back to the agent, at the end of the segment: nobody may use its addresses any more.
    pub fn give_back_all(&self) -> Result<(), Trouble> {
        let sitting = self.seats.iter().map(|seat| seat.load(Acquire));
        for page in sitting.chain([self.owed.load(Acquire)]).filter_map(page_of) {
            // What the agent knows of comes next.
            let _ = self.unmap_own(page);
        }
        self.ask(Fault { wanted: None, write: false, returned: Returned::All(self.first_page) }).map(drop)
    }
}

/// A page in a word in which 0 is none.
fn word_of(page: PageInSegment) -> u64 {
    page.0 + 1
}

/// The page in such a word.
fn page_of(word: u64) -> Option<PageInSegment> {
    word.checked_sub(1).map(PageInSegment)
}

fn refused(reason: u32) -> Trouble {
    Trouble::Refused(Failure::from_code(reason))
}

fn timeout(duration: Duration) -> futex::Timespec {
    futex::Timespec { tv_sec: duration.as_secs() as i64, tv_nsec: i64::from(duration.subsec_nanos()) }
}
