//! Work on words and bytes of pages whose home is here: atomic updates for ranks anywhere, and what services ask for (promise
//! 14).
//!
//! The protocol does not know of it: the home brings a page to its own node as if one of its ranks wanted to put, and then
//! works on the frame like a rank of the node that has the page, an update with the same instruction
//! ([`crate::pool::PoolClient::try_update`]). Who has a page to write has it alone, so that all updates of a word meet in one
//! frame at a time; whoever else writes there does so in whole words.
//!
//! What one message brings, or one order of a service, is a *batch*, which ends when all of it is done. A batch belongs to one
//! shard; pages of others are worked on there.

use super::lines::Put;
use super::shards::Aside;
use super::{ANSWERS_MAX, Agent, Outgoing};
use crate::error::{CacheError, Failure, FailureKind};
use crate::page::PageIndex;
use crate::partition::{Partition, PartitionId};
use crate::pool::{Counter, PageState};
use crate::request::{InPlaceAnswer, WordUpdate};
use slotmap::SlotMap;
use smallvec::SmallVec;
use vgas_rma::address::Peer;
use vgas_shm::{Span, Update};

slotmap::new_key_type! {
    /// Work that ends together.
    pub(super) struct BatchKey;
}

/// Most bytes of one order of a service: a large page.
const ORDER_BYTES_MAX: u32 = 4 << 20;

/// Work on a piece of a page.
#[derive(Clone, Debug)]
pub(super) enum FrameWork {
    /// Says what the word was, eight bytes.
    Update(Update),
    /// Says these bytes.
    Read(u32),
    /// The same, if this node has the page now.
    ReadInMemory(u32),
    /// Copies the bytes there, and says none.
    Stage(Span),
    Write(Box<[u8]>),
}

impl FrameWork {
    /// Whether it leaves the page as it is, whatever the page holds.
    pub fn only_reads(&self) -> bool {
        matches!(self, Self::Read(_) | Self::ReadInMemory(_) | Self::Stage(_))
    }

    /// Does work that leaves the page as it is: reads, and an update whose result is what the word is already, such as a compare
    /// and swap that fails. None: the work changes the page, and nothing was done.
    pub fn apply_unchanging(&self, frame: &Span, offset: u32) -> Option<SmallVec<[u8; 8]>> {
        match self {
            Self::Update(update) => {
                let was = frame.mapping().word(frame.offset() + offset as usize, update.word);
                (update.of(was) == was).then(|| SmallVec::from_buf(was.to_le_bytes()))
            }
            _ => self.only_reads().then(|| self.apply(frame, offset)),
        }
    }

    fn apply(&self, frame: &Span, offset: u32) -> SmallVec<[u8; 8]> {
        let at = frame.offset() + offset as usize;
        match self {
            Self::Update(update) => SmallVec::from_buf(frame.mapping().update(at, *update).to_le_bytes()),
            Self::Read(bytes) | Self::ReadInMemory(bytes) => {
                let mut read = SmallVec::from_elem(0, *bytes as usize);
                frame.mapping().read(at, &mut read);
                read
            }
            Self::Stage(to) => {
                to.copy_from(&frame.mapping().span(at, to.bytes()));
                SmallVec::new()
            }
            Self::Write(data) => {
                frame.mapping().write(at, data);
                SmallVec::new()
            }
        }
    }
}

/// Who hears of a batch.
#[derive(Debug)]
pub(super) enum Asker {
    /// Under this number of its own.
    Rank(Peer, u32),
    /// The same, and these bytes go to this landing of its.
    Landing(Peer, u32, u64, Span),
    /// The same, and these bytes are copied to memory of its.
    Filled(Peer, u32),
    /// Under this ticket.
    Service(usize, u64),
}

#[derive(Debug)]
struct Batch {
    asker: Asker,
    left: u32,
    /// Bytes of what is found in all.
    bytes: usize,
    /// What was read, and what words were; empty until something is found.
    found: Vec<u8>,
    failed: Option<(u32, Failure)>,
}

/// What is in flight.
#[derive(Debug, Default)]
pub(super) struct Works {
    batches: SlotMap<BatchKey, Batch>,
}

impl Works {
    /// Whether so much is in flight that somebody asks and does not wait for answers.
    pub(super) fn is_full(&self) -> bool {
        self.batches.len() >= ANSWERS_MAX
    }
}

/// A piece of a batch, until it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OneOf {
    /// Whose batch.
    shard: u32,
    batch: BatchKey,
    number: u32,
    /// Where what it finds belongs in [`Batch::found`].
    at: u32,
}

impl Agent {
    /// Somebody asks for updates of words of pages whose home should be here.
    pub(super) fn serve_updates(
        &mut self,
        from: Peer,
        operation: u32,
        count: u32,
        data: &[u8],
    ) -> Result<(), CacheError> {
        let refuse = |what: String| Err(CacheError::Protocol { who: self.layout.describe(from), what });
        let bytes_of = |page| self.size_of(page).bytes();
        let list = WordUpdate::read_list(data, count, bytes_of).filter(|list| !list.is_empty());
        let Some(updates) = list else {
            return refuse(format!("sent a malformed list of {count} updates"));
        };
        let elsewhere =
            |update: &&WordUpdate| self.home_of(update.page) != Some(self.node) || !self.is_mine(update.page);
        if let Some(update) = updates.iter().find(elsewhere) {
            return refuse(format!("asked for an update of page {} at another's agent", update.page));
        }
        if self.outbox.waiting_for(from) >= ANSWERS_MAX || self.works.is_full() {
            return refuse("asks and does not take its answers".into());
        }
        self.pool.count(Counter::InPlaceServed, u64::from(count));
        let batch = self.begin_batch(Asker::Rank(from, operation), count, 8 * updates.len());
        for (number, WordUpdate { page, offset, update }) in (0..).zip(updates) {
            let one = OneOf { shard: self.shard, batch, number, at: 8 * number };
            self.work_on(page, offset, FrameWork::Update(update), one)?;
        }
        Ok(())
    }

    /// Somebody asks for a piece of a page whose home should be here to be read or written.
    pub(super) fn serve_work(
        &mut self,
        from: Peer,
        operation: u32,
        page: PageIndex,
        offset: u32,
        bytes: u32,
        work: FrameWork,
    ) -> Result<(), CacheError> {
        let refuse = |what: String| Err(CacheError::Protocol { who: self.layout.describe(from), what });
        let page_bytes = self.size_of(page).bytes();
        let inside = offset.checked_add(bytes).is_some_and(|end| end <= page_bytes);
        // What is answered is a message.
        let most = self.message_bytes_max as u32;
        if self.home_of(page) != Some(self.node) || !inside || bytes == 0 || bytes > most {
            return refuse(format!("asked for {bytes} bytes at {offset} of page {page} at its home"));
        }
        if self.outbox.waiting_for(from) >= ANSWERS_MAX || self.works.is_full() {
            return refuse("asks and does not take its answers".into());
        }
        self.pool.count(Counter::InPlaceServed, 1);
        let found = if matches!(work, FrameWork::Read(_)) { bytes as usize } else { 0 };
        let batch = self.begin_batch(Asker::Rank(from, operation), 1, found);
        self.work_on(page, offset, work, OneOf { shard: self.shard, batch, number: 0, at: 0 })
    }

    /// A service asks for work on bytes of a segment of this node; `data`: what is to be written.
    pub(super) fn work_for_service(
        &mut self,
        service: usize,
        ticket: u64,
        (of, offset, bytes): (PartitionId, u64, u32),
        work: impl Fn(std::ops::Range<usize>) -> FrameWork,
        found_bytes: usize,
    ) -> Result<(), CacheError> {
        let end = offset.checked_add(u64::from(bytes)).filter(|_| (1..=ORDER_BYTES_MAX).contains(&bytes));
        let fits = |found: &&Partition| {
            let is_allowed = !found.policy.owned || self.services.is_owner(service);
            let is_here = self.layout.node_of(of.owner) == self.node;
            is_allowed && is_here && end.is_some_and(|end| end <= found.bytes())
        };
        let found = self.segments.partitions.of(of.segment, of.owner).filter(fits);
        let Some(&Partition { first, size, .. }) = found else {
            self.services.ended(service, ticket, Err(FailureKind::NoSuchPage.into()));
            return Ok(());
        };
        let page_bytes = u64::from(size.bytes());
        let pieces = ((offset + u64::from(bytes) - 1) / page_bytes - offset / page_bytes + 1) as u32;
        let batch = self.begin_batch(Asker::Service(service, ticket), pieces, found_bytes);
        let mut done = 0u64;
        for number in 0..pieces {
            let at = offset + done;
            let here = (page_bytes - at % page_bytes).min(u64::from(bytes) - done);
            let one = OneOf { shard: self.shard, batch, number, at: done as u32 };
            let (page, in_page) = (first + at / page_bytes, (at % page_bytes) as u32);
            let work = work(done as usize..(done + here) as usize);
            done += here;
            self.work_somewhere(page, in_page, work, one)?;
        }
        Ok(())
    }

    /// Of neighbouring pages from this byte of the first on, copies so many bytes into `to`, for one who hears of all of them together.
    pub(super) fn stage(
        &mut self,
        asker: Asker,
        first: PageIndex,
        offset: u32,
        to: &Span,
    ) -> Result<(), CacheError> {
        let (page_bytes, bytes) = (self.size_of(first).bytes(), to.bytes() as u32);
        let pieces = (offset + bytes).div_ceil(page_bytes);
        let batch = self.begin_batch(asker, pieces, 0);
        let mut done = 0;
        for number in 0..pieces {
            let in_page = if number == 0 { offset } else { 0 };
            let here = (page_bytes - in_page).min(bytes - done);
            let piece = to.mapping().span(to.offset() + done as usize, here as usize);
            let one = OneOf { shard: self.shard, batch, number, at: 0 };
            self.work_somewhere(first + u64::from(number), in_page, FrameWork::Stage(piece), one)?;
            done += here;
        }
        Ok(())
    }

    /// In the page's shard.
    fn work_somewhere(
        &mut self,
        page: PageIndex,
        offset: u32,
        work: FrameWork,
        one: OneOf,
    ) -> Result<(), CacheError> {
        match self.pool.layout().shard_of(page) {
            shard if shard == self.shard => self.work_on(page, offset, work, one),
            shard => {
                self.shards.tell(shard, Aside::Work(page, offset, work, one));
                Ok(())
            }
        }
    }

    fn begin_batch(&mut self, asker: Asker, left: u32, found: usize) -> BatchKey {
        self.works.batches.insert(Batch { asker, left, bytes: found, found: Vec::new(), failed: None })
    }

    /// Does it now, if this node has the page as it is needed, or when it has.
    pub(super) fn work_on(
        &mut self,
        page: PageIndex,
        offset: u32,
        work: FrameWork,
        one: OneOf,
    ) -> Result<(), CacheError> {
        let entry = self.pool.entry(page)?;
        // As a rank that hits.
        if entry.state().readable() && !entry.held() && self.quiet(page) {
            let frame = self.pool.frame_span(entry.frame())?;
            let found = match entry.state() {
                PageState::Modified => Some(work.apply(&frame, offset)),
                _ => work.apply_unchanging(&frame, offset),
            };
            if let Some(found) = found {
                self.worked(one, Ok(found));
                return Ok(());
            }
        }
        if matches!(work, FrameWork::ReadInMemory(_)) {
            self.worked(one, Err(FailureKind::NotInMemory.into()));
            return Ok(());
        }
        self.want_put(page, Put::Work { offset, work, one })
    }

    /// A page has come for a piece of work.
    pub(super) fn work_now(&mut self, frame: &Span, offset: u32, work: &FrameWork, one: OneOf) {
        let found = work.apply(frame, offset);
        self.worked(one, Ok(found));
    }

    /// A piece of a batch is done, or cannot be.
    pub(super) fn worked(&mut self, one: OneOf, result: Result<SmallVec<[u8; 8]>, Failure>) {
        if one.shard != self.shard {
            return self.shards.tell(one.shard, Aside::Worked(one, result));
        }
        let OneOf { batch: key, number, at, .. } = one;
        let Some(batch) = self.works.batches.get_mut(key) else { return };
        match result {
            // Mostly there is one piece, which need not be copied.
            Ok(found) if found.len() == batch.bytes => batch.found = found.into_vec(),
            Ok(found) => {
                batch.found.resize(batch.bytes, 0);
                if let Some(place) = batch.found.get_mut(at as usize..at as usize + found.len()) {
                    place.copy_from_slice(&found);
                }
            }
            Err(failure) => {
                if batch.failed.is_none_or(|(first, _)| number < first) {
                    batch.failed = Some((number, failure));
                }
            }
        }
        batch.left -= 1;
        if batch.left == 0
            && let Some(Batch { asker, found, failed, .. }) = self.works.batches.remove(key)
        {
            self.batch_ended(asker, found, failed);
        }
    }

    fn batch_ended(&mut self, asker: Asker, found: Vec<u8>, failed: Option<(u32, Failure)>) {
        match asker {
            Asker::Rank(from, operation) => match failed {
                None => {
                    let words = InPlaceAnswer::Done.encode(operation);
                    self.outbox.push(from, Outgoing::Answer { words, bytes: found });
                }
                Some((number, failure)) => self.answer_failed(from, operation, number, failure),
            },
            Asker::Landing(from, operation, landing, bytes) => match failed {
                None => {
                    let words = InPlaceAnswer::Done.encode(operation);
                    self.outbox.push(from, Outgoing::Landing { words, from: bytes, landing });
                }
                Some((number, failure)) => {
                    self.answer_failed(from, operation, number, failure);
                    self.answer_left(from, &bytes);
                }
            },
            Asker::Filled(from, operation) => {
                match failed {
                    None => {
                        let words = InPlaceAnswer::Done.encode(operation);
                        self.outbox.push(from, Outgoing::Answer { words, bytes: Vec::new() });
                    }
                    Some((number, failure)) => self.answer_failed(from, operation, number, failure),
                }
                self.answer_filled(from);
            }
            Asker::Service(service, ticket) => {
                self.services.ended(service, ticket, failed.map_or(Ok(found), |(_, failure)| Err(failure)));
            }
        }
    }

    /// Of what a rank asked for under this number of its own, this piece cannot be had.
    pub(super) fn answer_failed(&mut self, to: Peer, operation: u32, number: u32, failure: Failure) {
        let bytes = [number.to_le_bytes(), failure.code().to_le_bytes()].concat();
        self.outbox.push(to, Outgoing::Answer { words: InPlaceAnswer::Failed.encode(operation), bytes });
    }

    /// A put that cannot be made.
    pub(super) fn put_failed(
        &mut self,
        page: PageIndex,
        put: Put,
        failure: Failure,
    ) -> Result<(), CacheError> {
        match put {
            Put::Part { waiter, .. } => waiter.map_or(Ok(()), |waiter| self.fail(waiter, page, failure)),
            Put::Whole { frame, waiter } => {
                frame.map_or(Ok(()), |frame| self.release(frame))?;
                self.fail(waiter, page, failure)
            }
            Put::Work { one, .. } => {
                self.worked(one, Err(failure));
                Ok(())
            }
        }
    }
}
