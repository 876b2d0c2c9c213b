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
//!
//! Small gets that bring no page in read a *part* of one (promise 8; [`crate::parts`]). The protocol does not know of them, either: a part is read where the page is, and nobody has a copy afterwards.
//!
//! * This node has a copy that its ranks may read: that copy is the latest (the protocol's one invariant), and the part is
//!   read as one of its ranks would.
//! * The directory has no entry for the page, and nothing is in flight for it here: nobody has a copy, and NVMe holds the
//!   latest. It did when the read was begun, during the get; what somebody writes meanwhile is concurrent with the get. Only a
//!   *write-back* of that may meet the read at the device, so a part whose page begins to be written is not believed.
//! * Else somebody else has the page, or it is on its way: the rank is told to go the normal way. So it is when the part
//!   cannot be read or verified; the read of the page will say why.

use super::CacheController;
use crate::agent::context::{BLOCK_BYTES, Outgoing, PartReading};
use crate::agent::items::{
    ANSWERS_MAX, FrameWork, PartGet, PostedPut, ShardMessage, StorageWork, WorkPiece, WorkRequester,
};
use crate::error::{CacheError, FailureKind};
use crate::page::PageIndex;
use crate::partition::{Partition, PartitionId};
use crate::pool::{Counter, PageState};
use crate::request::{InPlaceAnswer, WordUpdate};
use vgas_nvm::VolumeError;
use vgas_rma::address::Peer;
use vgas_shm::Span;

/// Most bytes of one order of a service: a large page.
const ORDER_BYTES_MAX: u32 = 4 << 20;

impl CacheController {
    /// Somebody asks for updates of words of pages whose home should be here.
    pub fn serve_updates(
        &mut self,
        from: Peer,
        operation: u32,
        count: u32,
        data: &[u8],
    ) -> Result<(), CacheError> {
        let refuse = |what: String| Err(CacheError::Protocol { who: self.ctx.layout.describe(from), what });
        let bytes_of = |page| self.ctx.size_of(page).bytes();
        let list = WordUpdate::read_list(data, count, bytes_of).filter(|list| !list.is_empty());
        let Some(updates) = list else {
            return refuse(format!("sent a malformed list of {count} updates"));
        };
        let elsewhere = |update: &&WordUpdate| {
            self.ctx.home_of(update.page) != Some(self.ctx.node) || !self.ctx.is_mine(update.page)
        };
        if let Some(update) = updates.iter().find(elsewhere) {
            return refuse(format!("asked for an update of page {} at another's agent", update.page));
        }
        if self.ctx.outbox.waiting_for(from) >= ANSWERS_MAX || self.ctx.works.is_full() {
            return refuse("asks and does not take its answers".into());
        }
        self.ctx.count(Counter::InPlaceServed, u64::from(count));
        let batch = self.ctx.begin_batch(WorkRequester::Rank(from, operation), count, 8 * updates.len());
        for (number, WordUpdate { page, offset, update }) in (0..).zip(updates) {
            let piece = WorkPiece { shard: self.ctx.shard, batch, number, at: 8 * number };
            self.work_on(page, offset, FrameWork::Update(update), piece)?;
        }
        Ok(())
    }

    /// Somebody asks for a piece of a page whose home should be here to be read or written.
    pub fn serve_work(
        &mut self,
        from: Peer,
        operation: u32,
        page: PageIndex,
        offset: u32,
        bytes: u32,
        work: FrameWork,
    ) -> Result<(), CacheError> {
        let refuse = |what: String| Err(CacheError::Protocol { who: self.ctx.layout.describe(from), what });
        let page_bytes = self.ctx.size_of(page).bytes();
        let inside = offset.checked_add(bytes).is_some_and(|end| end <= page_bytes);
        // What is answered is a message.
        let most = self.ctx.message_bytes_max as u32;
        if self.ctx.home_of(page) != Some(self.ctx.node) || !inside || bytes == 0 || bytes > most {
            return refuse(format!("asked for {bytes} bytes at {offset} of page {page} at its home"));
        }
        if self.ctx.outbox.waiting_for(from) >= ANSWERS_MAX || self.ctx.works.is_full() {
            return refuse("asks and does not take its answers".into());
        }
        self.ctx.count(Counter::InPlaceServed, 1);
        let found = if matches!(work, FrameWork::Read(_)) { bytes as usize } else { 0 };
        let batch = self.ctx.begin_batch(WorkRequester::Rank(from, operation), 1, found);
        self.work_on(page, offset, work, WorkPiece { shard: self.ctx.shard, batch, number: 0, at: 0 })
    }

    /// A service asks for work on bytes of a segment of this node; `data`: what is to be written.
    pub fn work_for_service(
        &mut self,
        (service, is_owner): (usize, bool),
        ticket: u64,
        (of, offset, bytes): (PartitionId, u64, u32),
        work: impl Fn(std::ops::Range<usize>) -> FrameWork,
        found_bytes: usize,
    ) -> Result<(), CacheError> {
        let end = offset.checked_add(u64::from(bytes)).filter(|_| (1..=ORDER_BYTES_MAX).contains(&bytes));
        let fits = |found: &&Partition| {
            let is_allowed = !found.policy.owned || is_owner;
            let is_here = self.ctx.layout.node_of(of.owner) == self.ctx.node;
            is_allowed && is_here && end.is_some_and(|end| end <= found.bytes())
        };
        let found = self.ctx.segments.partitions.of(of.segment, of.owner).filter(fits);
        let Some(&Partition { first, size, .. }) = found else {
            self.ctx.works.ended.push_back((service, ticket, Err(FailureKind::NoSuchPage.into())));
            return Ok(());
        };
        let page_bytes = u64::from(size.bytes());
        let pieces = ((offset + u64::from(bytes) - 1) / page_bytes - offset / page_bytes + 1) as u32;
        let batch = self.ctx.begin_batch(WorkRequester::Service(service, ticket), pieces, found_bytes);
        let mut done = 0u64;
        for number in 0..pieces {
            let at = offset + done;
            let here = (page_bytes - at % page_bytes).min(u64::from(bytes) - done);
            let piece = WorkPiece { shard: self.ctx.shard, batch, number, at: done as u32 };
            let (page, in_page) = (first + at / page_bytes, (at % page_bytes) as u32);
            let work = work(done as usize..(done + here) as usize);
            done += here;
            self.work_somewhere(page, in_page, work, piece)?;
        }
        Ok(())
    }

    /// Of neighbouring pages from this byte of the first on, copies so many bytes into `to`, for one who hears of all of them together.
    pub fn stage(
        &mut self,
        requester: WorkRequester,
        first: PageIndex,
        offset: u32,
        to: &Span,
    ) -> Result<(), CacheError> {
        let (page_bytes, bytes) = (self.ctx.size_of(first).bytes(), to.bytes() as u32);
        let pieces = (offset + bytes).div_ceil(page_bytes);
        let batch = self.ctx.begin_batch(requester, pieces, 0);
        let mut done = 0;
        for number in 0..pieces {
            let in_page = if number == 0 { offset } else { 0 };
            let here = (page_bytes - in_page).min(bytes - done);
            let into = to.mapping().span(to.offset() + done as usize, here as usize);
            let piece = WorkPiece { shard: self.ctx.shard, batch, number, at: 0 };
            self.work_somewhere(first + u64::from(number), in_page, FrameWork::Stage(into), piece)?;
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
        piece: WorkPiece,
    ) -> Result<(), CacheError> {
        match self.ctx.pages().shard_of(page) {
            shard if shard == self.ctx.shard => self.work_on(page, offset, work, piece),
            shard => {
                self.ctx.shards.tell(shard, ShardMessage::Work(page, offset, work, piece));
                Ok(())
            }
        }
    }

    /// Does it now, if this node has the page as it is needed, or when it has.
    pub fn work_on(
        &mut self,
        page: PageIndex,
        offset: u32,
        work: FrameWork,
        piece: WorkPiece,
    ) -> Result<(), CacheError> {
        let entry = self.ctx.entry(page)?;
        // As a rank that hits.
        if entry.state().readable() && !entry.held() && self.quiet(page) {
            let frame = self.ctx.frame_span(entry.frame())?;
            let found = match entry.state() {
                PageState::Modified => Some(work.apply(&frame, offset)),
                _ => work.apply_unchanging(&frame, offset),
            };
            if let Some(found) = found {
                self.ctx.worked(piece, Ok(found));
                return Ok(());
            }
        }
        if matches!(work, FrameWork::ReadInMemory(_)) {
            self.ctx.worked(piece, Err(FailureKind::NotInMemory.into()));
            return Ok(());
        }
        self.want_put(page, PostedPut::Work { offset, work, piece })
    }

    /// A page has come for a piece of work.
    pub fn work_now(&mut self, frame: &Span, offset: u32, work: &FrameWork, piece: WorkPiece) {
        let found = work.apply(frame, offset);
        self.ctx.worked(piece, Ok(found));
    }

    /// A rank asks for a few bytes of a page whose home should be here, and not for the page.
    pub fn serve_part(&mut self, from: Peer, get: PartGet) -> Result<(), CacheError> {
        let PartGet { page, offset, bytes, .. } = get;
        let size = self.ctx.size_of(page);
        let inside = offset.checked_add(bytes).is_some_and(|end| end <= size.bytes());
        let most = self.ctx.storage.parts.limits.of(size);
        if self.ctx.home_of(page) != Some(self.ctx.node) || !inside || bytes == 0 || bytes > most {
            return Err(CacheError::Protocol {
                who: self.ctx.layout.describe(from),
                what: format!("asked for {bytes} bytes at {offset} of page {page} alone"),
            });
        }
        if self.ctx.outbox.waiting_for(from) >= ANSWERS_MAX {
            return Err(CacheError::Protocol {
                who: self.ctx.layout.describe(from),
                what: "asks and does not take its answers".into(),
            });
        }
        let entry = self.ctx.entry(page)?;
        if entry.state().readable() {
            let span = self.ctx.frame_span(entry.frame())?;
            self.ctx.count(Counter::InPlaceServed, 1);
            self.answer_part(from, get, &span, offset as usize);
            return Ok(());
        }
        let in_flight =
            self.homes.contains_key(&page) || !self.quiet(page) || self.ctx.storage.parts.is_full();
        if in_flight || !self.ctx.attached(page) {
            self.decline_part(from, get);
            return Ok(());
        }
        self.read_part(from, get)
    }

    /// Reads the blocks in which the bytes lie.
    fn read_part(&mut self, from: Peer, get: PartGet) -> Result<(), CacheError> {
        let Some((file, in_file)) = self.ctx.stored_in(get.page) else { return Ok(()) };
        let first = get.offset / BLOCK_BYTES * BLOCK_BYTES;
        let bytes = ((get.offset + get.bytes).next_multiple_of(BLOCK_BYTES) - first) as usize;
        let piece = self.ctx.storage.parts.memory()?;
        let into = piece.mapping().span(piece.offset(), bytes);
        let number = self.ctx.storage.parts.insert(PartReading { from, get, into: piece, overtaken: false });
        let key = self.ctx.storage.keys.insert(StorageWork::Part(number));
        let written = self.ctx.storage.volume.is_written(file, in_file.0);
        if !self.ctx.storage.volume.read_part(file, in_file.0, first, into, key)? {
            self.ctx.storage.keys.remove(key);
            return self.part_read(number, None);
        }
        if written {
            self.ctx.count(Counter::NvmPartReads, 1);
            self.ctx.count(Counter::NvmReadBytes, bytes as u64);
        }
        Ok(())
    }

    /// NVMe has brought a part, or has not; `None`: it cannot be read by itself.
    pub fn part_read(
        &mut self,
        number: u32,
        result: Option<Result<(), Box<VolumeError>>>,
    ) -> Result<(), CacheError> {
        let Some(PartReading { from, get, into, overtaken }) = self.ctx.storage.parts.remove(number) else {
            return Err(self.ctx.violation(self.ctx.node, "has read a part that nobody asked for"));
        };
        match result {
            Some(Ok(())) if !overtaken => {
                self.answer_part(from, get, &into, (get.offset % BLOCK_BYTES) as usize);
            }
            result => {
                tracing::debug!(page = get.page.0, overtaken, ?result, "a part could not be read");
                self.decline_part(from, get);
            }
        }
        self.ctx.storage.parts.give_back(into);
        Ok(())
    }

    fn answer_part(&mut self, to: Peer, get: PartGet, span: &Span, at: usize) {
        let mut bytes = vec![0; get.bytes as usize];
        span.mapping().read(span.offset() + at, &mut bytes);
        self.ctx.outbox.push(to, Outgoing::Answer { words: InPlaceAnswer::Done.encode(get.number), bytes });
    }

    fn decline_part(&mut self, to: Peer, get: PartGet) {
        let words = InPlaceAnswer::NotInPlace.encode(get.number);
        self.ctx.outbox.push(to, Outgoing::Answer { words, bytes: Vec::new() });
    }
}
