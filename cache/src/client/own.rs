//! Pages of this node's own NVMe that nobody has: the rank that wants one brings it in by itself.
//!
//! The agent has published such a page ([`PageState::Stored`]); this rank claims it, reads it into a free frame, verifies it and
//! shows it, so that a miss needs no other process to get a processor. One that waits for a single small page reads it in its
//! own thread; everything else is read many at a time through a ring of this process, whose completions are taken by whoever
//! polls, waits, or looks after operations that go on by themselves. So no claim lasts longer than the device takes, and a
//! millisecond.
//!
//! Scans are recognised here, too ([`crate::read_ahead`]), and run ahead by the same means.
//!
//! What cannot be claimed, or read, or verified, is asked of the agent, which says why.

use super::Core;
use crate::page::{PageInSegment, PageIndex};
use crate::partition::{Partition, PartitionId, SegmentId};
use crate::pool::{Claim, Counter, PageSize, PageState, PoolClient};
use crate::read_ahead::{Detectors, Missed, Run as Ahead};
use rustc_hash::FxHashMap;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};
use vgas_nvm::device::{Completion, Spans};
use vgas_nvm::{Reader, Run, SharedFile, StoredPage, read_now};
use vgas_rma::endpoint::Extent;

/// Reads in flight at the device, of this rank.
const QUEUE_DEPTH: u32 = 128;

/// How often a page that this rank has brought in may be gone before it is used, until the agent is asked.
pub(super) const OWN_TIMES: u8 = 4;

/// Reads that are told to the device at once, while it has others.
const BATCH: usize = 8;

/// Of so many looks at reads that have not ended, one asks the device: who waits for many looks at each of them.
const LOOKS: u32 = 8;

/// Of so many pages of a long put, one has the agent look whether there are frames for the others.
pub(super) const PAGES_TO_A_LOOK: u64 = 16;

/// Most bytes that are read in the thread that waits for them. More takes long enough for it to serve messages meanwhile.
const NOW_BYTES_MAX: u64 = 64 << 10;

/// Bytes whose checksums one poll takes: some 50 µs. The rest is for the next.
const VERIFIED_BYTES_MAX: usize = 512 << 10;

/// How long the end of a client waits for its last reads: far longer than a device that works.
const LAST_READS: Duration = Duration::from_secs(10);

/// Pages that are to carry the mark of a scan.
type Marks = SmallVec<[PageIndex; 4]>;

/// A read in flight, or one that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReadId {
    index: u32,
    /// How many had ended in its place when it began.
    number: u32,
}

/// What became of a wish for pages.
#[derive(Debug)]
pub(super) enum Brought {
    /// The first of them is here.
    Here,
    /// So many pages are on their way.
    Reading(ReadId, u64),
    /// Ask the agent.
    No,
}

/// Whether the caller waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IoMode {
    /// It waits for these pages and nothing else.
    Blocking,
    /// It has other work to do.
    NonBlocking,
}

/// What a rank knows of its node's own pages.
pub(super) struct OwnPages {
    enabled: bool,
    ranks: Range<u32>,
    /// By segment and rank of the node, when it was first needed; none where it cannot be read here. The first segment's are
    /// reached by handlers of signals, without a lock.
    files: Box<[OnceLock<Option<SharedFile>>]>,
    others: RwLock<FxHashMap<PartitionId, Option<SharedFile>>>,
    /// Readable when reads have ended.
    descriptor: OnceLock<OwnedFd>,
    /// For each read that may be in flight, how many have ended in its place: an end is seen without the lock.
    ended: Box<[AtomicU32]>,
    looks: AtomicU32,
    state: Mutex<State>,
}

struct State {
    reader: Option<Reader>,
    refused: bool,
    /// As many as may be in flight.
    reads: Vec<Option<Read>>,
    free: Vec<u32>,
    /// Reads that the device has not been told of.
    unsubmitted: usize,
    by_page: FxHashMap<PageIndex, ReadId>,
    ahead: Detectors,
    /// What is to be read ahead when frames are free again.
    to_fetch: VecDeque<ToFetch>,
    /// Done by the device, and not looked at; the oldest first.
    arrived: VecDeque<Completion>,
    /// Empty; kept for its allocation.
    done: Vec<Completion>,
}

/// Neighbouring pages that nobody waits for yet.
struct ToFetch {
    partition: Partition,
    pages: Range<PageIndex>,
    /// Those that are to carry the mark of a scan.
    marked: Marks,
}

/// Neighbouring pages that are being read.
struct Read {
    claims: SmallVec<[Claim; 1]>,
    /// Those of the pages that are to carry the mark of a scan.
    marked: Marks,
}

impl ReadId {
    /// As a number that is not 0.
    pub(super) fn pack(self) -> u64 {
        1 << 63 | u64::from(self.index) << 32 | u64::from(self.number)
    }

    /// From [`ReadId::pack`]; none from 0.
    pub(super) fn unpack(number: u64) -> Option<Self> {
        (number != 0)
            .then_some(Self { index: (number >> 32) as u32 & (u32::MAX >> 1), number: number as u32 })
    }
}

impl OwnPages {
    pub(super) fn new(enabled: bool, ranks: Range<u32>, ahead: Detectors) -> Self {
        Self {
            enabled,
            files: ranks.clone().map(|_| OnceLock::new()).collect(),
            others: RwLock::default(),
            ranks,
            descriptor: OnceLock::new(),
            ended: (0..QUEUE_DEPTH).map(|_| AtomicU32::new(0)).collect(),
            looks: AtomicU32::new(0),
            state: Mutex::new(State {
                ahead,
                reads: (0..QUEUE_DEPTH).map(|_| None).collect(),
                free: (0..QUEUE_DEPTH).rev().collect(),
                reader: None,
                refused: false,
                unsubmitted: 0,
                by_page: FxHashMap::default(),
                to_fetch: VecDeque::new(),
                arrived: VecDeque::new(),
                done: Vec::new(),
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // What it protects is consistent at every step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Readable when reads may have ended.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.descriptor.get().map(AsFd::as_fd)
    }

    /// Reads with this from now on; before the first page.
    pub(super) fn set_reader(&self, reader: Reader) {
        self.read_with(&mut self.lock(), reader);
    }

    fn read_with(&self, state: &mut State, reader: Reader) {
        // Without the descriptor nobody could sleep until a read has ended.
        if let Ok(descriptor) = rustix::io::dup(reader.wait_descriptor()) {
            let _ = self.descriptor.set(descriptor);
            state.reader = Some(reader);
        }
    }

    fn file(&self, core: &Core, of: PartitionId) -> Option<SharedFile> {
        let local_rank = of.owner.0.checked_sub(self.ranks.start).filter(|_| self.enabled)?;
        let place = self.files.get(local_rank as usize)?;
        if of.segment == SegmentId::FIRST {
            return place.get_or_init(|| self.open(core, of.segment, local_rank)).clone();
        }
        let known = self.others.read().unwrap_or_else(PoisonError::into_inner).get(&of).cloned();
        known.unwrap_or_else(|| {
            let opened = self.open(core, of.segment, local_rank);
            let mut others = self.others.write().unwrap_or_else(PoisonError::into_inner);
            others.entry(of).or_insert(opened).clone()
        })
    }

    /// Opens a partition's file, and the ring with the first of them.
    fn open(&self, core: &Core, segment: SegmentId, local_rank: u32) -> Option<SharedFile> {
        let at = core.pool.file(segment, local_rank)?;
        let mut state = self.lock();
        if state.reader.is_none() && !state.refused {
            match Reader::new(QUEUE_DEPTH, core.pool.frames().clone()) {
                Ok(reader) => {
                    self.read_with(&mut state, reader);
                    // Another thread may sleep for this one, and does not know the descriptor.
                    core.endpoint.notify_local();
                }
                Err(error) => {
                    tracing::debug!(%error, "pages of this node are asked of its agent");
                    state.refused = true;
                }
            }
        }
        let opened = state.reader.as_mut()?.open(&at);
        opened.inspect_err(|error| tracing::debug!(%error, "pages of this node are asked of its agent")).ok()
    }

    /// Brings in up to `count` pages from this one on, as many as stand next to each other, if they can be claimed. `end`: as far as
    /// this the operation goes that wants them.
    pub(super) fn bring(
        &self,
        core: &Core,
        partition: &Partition,
        first: PageIndex,
        count: u64,
        end: PageIndex,
        io_mode: IoMode,
    ) -> Brought {
        let Some(file) = self.file(core, partition.id()) else { return Brought::No };
        let page_bytes = u64::from(partition.size.bytes());
        let may_block = io_mode == IoMode::Blocking && file.is_readable_now();
        let mut state = self.lock();
        if let Some(&id) = state.by_page.get(&first) {
            let pages = state.joined(core, self, partition, first);
            return Brought::Reading(id, pages);
        }
        let most = if may_block && count * page_bytes <= NOW_BYTES_MAX {
            count
        } else {
            let run_max =
                state.reader.as_ref().map_or(1, |reader| reader.run_pages_max(partition.size.bytes()));
            count.min(run_max as u64)
        };
        let claims = core.pool.claim_run(first, most as usize);
        let Some(claim) = claims.first() else { return Brought::No };
        core.look_after_frames(partition.size, (end - first - claims.len() as u64).min(most));
        let claim_stored = claim.stored;
        if claim_stored == StoredPage::Zeros {
            drop(state);
            for claim in claims {
                StoredPage::zeros(&core.pool.claimed_span(&claim));
                core.pool.count(Counter::WithoutData, 1);
                self.end(core, core.pool.show(claim, PageState::Exclusive, false));
            }
            return Brought::Here;
        }
        count_reads(core, partition.size, claims.len());
        let pages = first..first + claims.len() as u64;
        // Who stands in the way has the next page: from there on, another look says what is missing.
        let end = if claims.len() as u64 == most { end } else { pages.end };
        if !state.ahead.of(partition.size).is_some_and(|ahead| ahead.is_outrun_by(most)) {
            state.missed(core, self, partition, pages, end);
        }
        if may_block && claims.len() as u64 * page_bytes <= NOW_BYTES_MAX {
            drop(state);
            let read = match (&claims[..], claim_stored) {
                ([one], StoredPage::At { place, .. }) => {
                    file.fill(partition.number_of(first).0, place, &core.pool.claimed_span(one))
                }
                _ => read_now(&file, run_of(&core.pool, partition.number_of(first), &claims)),
            };
            if let Err(error) = &read {
                tracing::debug!(%error, %first, "a page could not be read");
            }
            self.finish(core, claims, &[], read.is_ok());
            return Brought::Here;
        }
        let pages = claims.len() as u64;
        match state.start(core, &file, partition.number_of(first), claims, SmallVec::new()) {
            Ok(id) => {
                // While the device has work, the next poll is soon enough, and submits several at once.
                if state.unsubmitted >= BATCH || state.in_flight() <= state.unsubmitted {
                    state.submit();
                }
                core.endpoint.work_started();
                Brought::Reading(id, pages)
            }
            Err(claims) => {
                drop(state);
                self.give_back(core, claims);
                Brought::No
            }
        }
    }

    /// Opens what [`OwnPages::read_claimed`] needs.
    pub(super) fn prepare(&self, core: &Core, of: PartitionId) -> Option<SharedFile> {
        let file = self.file(core, of)?;
        // What is done once in the life of a mapping is done now.
        drop(core.pool.stage(core.pool.layout().page_size()));
        Some(file)
    }

    /// Fills the frame of a claimed page. Neither locks nor allocates.
    pub(super) fn read_claimed(core: &Core, file: &SharedFile, partition: &Partition, claim: &Claim) -> bool {
        let page = claim.page.0.wrapping_sub(partition.first.0);
        let is_good = file.read_page(page, claim.stored, &core.pool.claimed_span(claim));
        match claim.stored {
            StoredPage::Zeros => core.pool.count(Counter::WithoutData, 1),
            StoredPage::At { .. } => count_reads(core, partition.size, 1),
        }
        is_good.unwrap_or(false)
    }

    /// Writes a page that nobody has as a whole, of an operation that has so many pages left. False: it cannot be claimed.
    ///
    /// # Safety
    /// As [`PoolClient::fill`].
    pub(super) unsafe fn put_page(
        &self,
        core: &Core,
        partition: &Partition,
        page: PageIndex,
        from: *const u8,
        left: u64,
    ) -> bool {
        if self.file(core, partition.id()).is_none() {
            return false;
        }
        let claim = core.pool.claim(page);
        if claim.is_none() || left.is_multiple_of(PAGES_TO_A_LOOK) {
            core.look_after_frames(partition.size, left);
        }
        let Some(claim) = claim else { return false };
        // SAFETY: passed on.
        unsafe { core.pool.fill(&claim, from) };
        core.pool.count(Counter::WholePagePuts, 1);
        core.pool.count(Counter::WithoutData, 1);
        self.end(core, core.pool.show(claim, PageState::Modified, false));
        true
    }

    /// Whether a read has ended, as far as that was noticed.
    #[inline]
    pub(super) fn has_seen_end(&self, id: ReadId) -> bool {
        self.ended[id.index as usize].load(Acquire) != id.number
    }

    /// Whether a read has ended; takes what the device has done, now and then.
    #[inline]
    pub(super) fn has_ended(&self, core: &Core, id: ReadId) -> bool {
        if self.has_seen_end(id) {
            return true;
        }
        // Not exact, and need not be.
        let looks = self.looks.load(Relaxed);
        self.looks.store(looks.wrapping_add(1), Relaxed);
        if !looks.is_multiple_of(LOOKS) {
            return false;
        }
        let count = self.poll(core, Extent::Some);
        if count > 0 {
            core.endpoint.work_ended(count);
            core.endpoint.notify_local();
        }
        self.has_seen_end(id)
    }

    /// Takes what the device has done, and shows the pages, as many as `extent` says; how many reads have ended, which the
    /// caller reports to the endpoint.
    pub(super) fn poll(&self, core: &Core, extent: Extent) -> usize {
        let mut state = self.lock();
        if state.in_flight() == 0 && state.to_fetch.is_empty() {
            return 0;
        }
        state.unsubmitted = 0;
        let State { reader, done, arrived, .. } = &mut *state;
        if let Some(reader) = reader
            && let Err(error) = reader.poll(done)
        {
            tracing::debug!(%error, "reads of this rank");
        }
        arrived.extend(done.drain(..));
        // Before checksums are taken, so that the device has something to do meanwhile.
        if !state.to_fetch.is_empty() {
            state.fetch_ahead(core, self);
        }
        let (mut count, mut bytes) = (0, 0);
        while (extent == Extent::All || bytes < VERIFIED_BYTES_MAX)
            && let Some(Completion { key, result, .. }) = state.arrived.pop_front()
        {
            let Some(read) = state.take(key) else { continue };
            count += 1;
            bytes += read.claims.iter().map(|claim| core.pool.claimed_span(claim).bytes()).sum::<usize>();
            self.finish(core, read.claims, &read.marked, result.is_ok());
            // Only now, so that who sees it finds the pages.
            if let Some(ended) = self.ended.get(key as usize) {
                ended.fetch_add(1, Release);
            }
        }
        count
    }

    /// Waits for the reads in flight, at the end of the client: nobody else would end its claims.
    pub(super) fn finish_all(&self, core: &Core) {
        let began = Instant::now();
        while self.lock().in_flight() > 0 && began.elapsed() < LAST_READS {
            core.endpoint.work_ended(self.poll(core, Extent::All));
            if let Some(descriptor) = self.descriptor() {
                let look_again = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
                // Whatever ends it, there is another look.
                let _ = poll(&mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)], Some(&look_again));
            }
        }
    }

    /// A use has come to a page with a mark. False: it is not one of this rank's.
    pub(super) fn used_ahead(&self, core: &Core, page: PageIndex) -> bool {
        let mut state = self.lock();
        let size = core.pool.layout().size_of(page);
        let Some(ahead) = state.ahead.of(size).filter(|ahead| ahead.follows(page)) else { return false };
        core.pool.count(Counter::ReadAheadUsed, 1);
        if let Some(run) = ahead.used(page)
            && let Some(partition) = self.partition_of(core, page)
        {
            state.run_ahead(core, self, &partition, run);
        }
        true
    }

    /// The partition of a page of this node.
    fn partition_of(&self, core: &Core, page: PageIndex) -> Option<Partition> {
        let (owner, _) = core.pool.layout().locate(page)?;
        core.segments.find_page(owner, page)
    }

    /// Forgets a segment; what is being read of it ends first.
    pub(super) fn leave(&self, core: &Core, segment: SegmentId) {
        self.lock().to_fetch.retain(|one| one.partition.segment != segment);
        self.finish_all(core);
        let mut others = self.others.write().unwrap_or_else(PoisonError::into_inner);
        let left = others.extract_if(|id, _| id.segment == segment);
        let mut state = self.lock();
        for (_, file) in left {
            if let (Some(file), Some(reader)) = (file, &mut state.reader) {
                reader.close(&file);
            }
        }
    }

    /// Shows pages that were read, or leaves them to the agent.
    fn finish(
        &self,
        core: &Core,
        claims: impl IntoIterator<Item = Claim>,
        marked: &[PageIndex],
        is_read: bool,
    ) {
        for claim in claims {
            let is_good = is_read && claim.stored.matches(&core.pool.claimed_span(&claim));
            let is_awaited = if is_good {
                core.pool.show(claim, PageState::Exclusive, marked.contains(&claim.page))
            } else {
                core.pool.give_back(claim, true)
            };
            self.end(core, is_awaited);
        }
    }

    fn give_back(&self, core: &Core, claims: impl IntoIterator<Item = Claim>) {
        for claim in claims {
            let is_awaited = core.pool.give_back(claim, false);
            self.end(core, is_awaited);
        }
    }

    fn end(&self, core: &Core, is_awaited: bool) {
        if is_awaited {
            core.endpoint.ring(core.agent);
        }
    }
}

impl State {
    fn start(
        &mut self,
        core: &Core,
        file: &SharedFile,
        in_segment: PageInSegment,
        claims: SmallVec<[Claim; 1]>,
        marked: Marks,
    ) -> Result<ReadId, SmallVec<[Claim; 1]>> {
        let Some(reader) = &mut self.reader else { return Err(claims) };
        let Some(index) = self.free.pop() else { return Err(claims) };
        let run = run_of(&core.pool, in_segment, &claims);
        if reader.start(u64::from(index), file, run).is_err() {
            self.free.push(index);
            return Err(claims);
        }
        let id = ReadId { index, number: core.own.ended[index as usize].load(Relaxed) };
        self.unsubmitted += 1;
        self.by_page.extend(claims.iter().map(|claim| (claim.page, id)));
        self.reads[index as usize] = Some(Read { claims, marked });
        Ok(id)
    }

    fn in_flight(&self) -> usize {
        QUEUE_DEPTH as usize - self.free.len()
    }

    fn submit(&mut self) {
        self.unsubmitted = 0;
        if let Some(reader) = &mut self.reader
            && let Err(error) = reader.submit()
        {
            tracing::debug!(%error, "reads of this rank");
        }
    }

    fn take(&mut self, index: u64) -> Option<Read> {
        let read = self.reads.get_mut(index as usize)?.take()?;
        self.free.push(index as u32);
        for claim in &read.claims {
            self.by_page.remove(&claim.page);
        }
        Some(read)
    }

    /// The caller wants a page that is on its way; how many pages it gets from there on with the same read.
    fn joined(&mut self, core: &Core, own: &OwnPages, partition: &Partition, page: PageIndex) -> u64 {
        let Some(id) = self.by_page.get(&page).copied() else { return 1 };
        let Some(Some(read)) = self.reads.get_mut(id.index as usize) else { return 1 };
        let last = read.claims.last().map_or(page, |claim| claim.page);
        // Marks of pages that are on their way count as used now: the reader is faster than what is read ahead for it.
        let behind = |marked: &PageIndex| *marked >= page && *marked <= last;
        let used: Marks = read.marked.iter().copied().filter(behind).collect();
        read.marked.retain(|marked| !used.contains(marked));
        for marked in used {
            core.pool.count(Counter::ReadAheadUsed, 1);
            if let Some(run) = self.ahead.of(partition.size).and_then(|ahead| ahead.used(marked)) {
                self.run_ahead(core, own, partition, run);
            }
        }
        last - page + 1
    }

    /// The caller has to wait for pages: fetch what follows, if that looks like a scan.
    fn missed(
        &mut self,
        core: &Core,
        own: &OwnPages,
        partition: &Partition,
        pages: Range<PageIndex>,
        end: PageIndex,
    ) {
        if !partition.policy.read_ahead {
            return;
        }
        let mut missed: Option<Range<PageIndex>> = None;
        let mut reached = Marks::new();
        for page in PageIndex::each(pages) {
            if let Some(is_marked) = self.take_to_fetch(page) {
                reached.extend(is_marked.then_some(page));
                continue;
            }
            let Some(ahead) = self.ahead.of(partition.size) else { return };
            if ahead.follows(page) {
                // It was fetched for its reader, and lost again.
                ahead.evicted_unused(page);
            }
            missed = Some(missed.map_or(page, |missed| missed.start)..page + 1);
        }
        // Its reader was faster than what is read ahead for it, and goes on.
        for page in reached {
            let run = self.ahead.of(partition.size).and_then(|ahead| ahead.used(page));
            run.into_iter().for_each(|run| self.run_ahead(core, own, partition, run));
        }
        let Some(pages) = missed else { return };
        let Some(ahead) = self.ahead.of(partition.size) else { return };
        if let Some(run) = ahead.miss(&Missed { pages, end }, partition.range()) {
            self.run_ahead(core, own, partition, run);
        }
    }

    /// Reads pages that nobody waits for, now or when frames are free.
    fn run_ahead(&mut self, core: &Core, own: &OwnPages, partition: &Partition, run: Ahead) {
        let partition = *partition;
        let marks: Marks = run.pages().filter(|(_, marked)| *marked).map(|(page, _)| page).collect();
        let here =
            |pages: &Range<PageIndex>| marks.iter().copied().filter(|page| pages.contains(page)).collect();
        if run.step == 1 {
            let pages = run.first..run.first + run.count;
            self.to_fetch.push_back(ToFetch { partition, marked: here(&pages), pages });
        } else {
            let each = run.pages().map(|(page, _)| page..page + 1);
            self.to_fetch.extend(each.map(|pages| ToFetch { partition, marked: here(&pages), pages }));
        }
        // What is read ahead must not take the frames that are kept for those who wait.
        let (size, pool) = (partition.size, &core.pool);
        let kept = pool.free_target(size);
        if u64::from(pool.free_frames(size)) < run.count + u64::from(kept) {
            pool.wish_for_frames(size, u32::try_from(run.count).unwrap_or(u32::MAX).saturating_add(kept));
            core.endpoint.ring(core.agent);
        }
        tracing::debug!(?run, "read ahead");
        self.fetch_ahead(core, own);
    }

    /// Goes on with what is to be read ahead, as far as frames are to be had.
    fn fetch_ahead(&mut self, core: &Core, own: &OwnPages) {
        let mut fetched = 0;
        while let Some(ToFetch { partition, mut pages, marked }) = self.to_fetch.pop_front() {
            let Some(file) = own.file(core, partition.id()) else { continue };
            let size = partition.size;
            let kept = core.pool.free_target(size) / 4;
            let most = self.reader.as_ref().map_or(1, |reader| reader.run_pages_max(size.bytes())) as u64;
            let free = u64::from(core.pool.free_frames(size).saturating_sub(kept));
            // In pieces that are worth an operation, unless they are the last.
            let wanted = (pages.end - pages.start).min(most);
            let count = wanted.min(free);
            if 2 * count < wanted || self.free.is_empty() {
                self.to_fetch.push_front(ToFetch { partition, pages, marked });
                break;
            }
            let claims = core.pool.claim_run(pages.start, count as usize);
            let begin = pages.start;
            pages.start += (claims.len() as u64).max(1);
            let (part, rest) = marked.into_iter().partition(|page| *page < pages.start);
            if !pages.is_empty() {
                self.to_fetch.push_front(ToFetch { partition, pages, marked: rest });
            }
            let Some(claim) = claims.first() else { continue };
            fetched += claims.len() as u64;
            if claim.stored == StoredPage::Zeros {
                for claim in claims {
                    StoredPage::zeros(&core.pool.claimed_span(&claim));
                    let is_marked = part.contains(&claim.page);
                    own.end(core, core.pool.show(claim, PageState::Exclusive, is_marked));
                }
                continue;
            }
            count_reads(core, size, claims.len());
            match self.start(core, &file, partition.number_of(begin), claims, part) {
                Ok(_) => core.endpoint.work_started(),
                Err(claims) => {
                    own.give_back(core, claims);
                    break;
                }
            }
        }
        if fetched > 0 {
            self.submit();
            core.pool.count(Counter::ReadAheadPages, fetched);
        }
    }

    /// Of a page that is among those that are to be read ahead, whether it was to be marked; it is not among them any more.
    fn take_to_fetch(&mut self, page: PageIndex) -> Option<bool> {
        let index = self.to_fetch.iter().position(|one| one.pages.contains(&page))?;
        // Who reads it has come to it: what lies before it is not read ahead any more.
        let one = &mut self.to_fetch[index];
        let is_marked = one.marked.contains(&page);
        one.pages.start = page + 1;
        if one.pages.is_empty() {
            self.to_fetch.remove(index);
        }
        Some(is_marked)
    }
}

fn count_reads(core: &Core, size: PageSize, pages: usize) {
    core.pool.count(Counter::FromNvm, pages as u64);
    core.pool.count(Counter::NvmReads, pages as u64);
    core.pool.count(Counter::NvmReadBytes, pages as u64 * u64::from(size.bytes()));
}

fn run_of(pool: &PoolClient, first: PageInSegment, claims: &[Claim]) -> Run {
    let place = match claims.first().map(|claim| claim.stored) {
        Some(StoredPage::At { place, .. }) => place,
        _ => vgas_nvm::Place::A,
    };
    let into: Spans = claims.iter().map(|claim| pool.claimed_span(claim)).collect();
    Run { first_page: first.0, place, into }
}
