//! Parts of pages whose home is here, for small gets that bring no page in (promise 8; [`crate::parts`]).
//!
//! The protocol does not know of them: a part is read where the page is, and nobody has a copy afterwards.
//!
//! * This node has a copy that its ranks may read: that copy is the latest (the protocol's one invariant), and the part is
//!   read as one of its ranks would.
//! * The directory has no entry for the page, and nothing is in flight for it here: nobody has a copy, and NVMe holds the
//!   latest. It did when the read was begun, during the get; what somebody writes meanwhile is concurrent with the get. Only a
//!   *write-back* of that may meet the read at the device, so a part whose page begins to be written is not believed.
//! * Else somebody else has the page, or it is on its way: the rank is told to go the normal way. So it is when the part
//!   cannot be read or verified; the read of the page will say why.

use super::storage::StorageWork;
use super::{ANSWERS_MAX, Agent, Outgoing};
use crate::error::CacheError;
use crate::page::PageIndex;
use crate::parts::Limits;
use crate::pool::{Counter, PageSize};
use crate::request::InPlaceAnswer;
use std::sync::Arc;
use vgas_nvm::{PAGE_BYTES_MIN as BLOCK_BYTES, VolumeError};
use vgas_rma::address::Peer;
use vgas_shm::{Mapping, Span};

/// Most parts in flight at the device or in its queue. Who comes then goes the normal way, which has bounds of its own.
const READING_MAX: usize = 1024;
/// Memory is got for so many at a time.
const GROWTH: usize = 16;

/// A small get of a page whose home is here.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartGet {
    pub page: PageIndex,
    pub offset: u32,
    pub bytes: u32,
    /// The asking rank's number.
    pub number: u32,
}

/// One that waits for NVMe.
#[derive(Debug)]
struct Reading {
    from: Peer,
    get: PartGet,
    into: Span,
    /// The page has begun to be written since.
    overtaken: bool,
}

/// What is in flight, and memory for it.
#[derive(Debug)]
pub(super) struct Parts {
    limits: Limits,
    /// Bytes of a piece of memory: the blocks that such a get may touch.
    piece_bytes: usize,
    free: Vec<Span>,
    /// By the number in [`StorageWork::Part`].
    reading: Vec<Option<Reading>>,
    vacant: Vec<u32>,
}

impl Parts {
    pub fn new(limits: Limits) -> Self {
        let most = PageSize::all().map(|size| limits.of(size)).max().unwrap_or(0);
        // One more than the bytes need: they may begin anywhere.
        let piece = most.next_multiple_of(BLOCK_BYTES) + BLOCK_BYTES;
        let (free, reading, vacant) = (Vec::new(), Vec::new(), Vec::new());
        Self { limits, piece_bytes: piece as usize, free, reading, vacant }
    }

    fn is_full(&self) -> bool {
        self.reading.len() - self.vacant.len() >= READING_MAX
    }

    fn memory(&mut self) -> Result<Span, CacheError> {
        if self.free.is_empty() {
            let memory: Arc<Mapping> = Mapping::anonymous("vgas-parts", (GROWTH * self.piece_bytes) as u64)
                .map_err(vgas_rma::RmaError::from)?;
            self.free
                .extend((0..GROWTH).map(|piece| memory.span(piece * self.piece_bytes, self.piece_bytes)));
        }
        Ok(self.free.pop().expect("just filled"))
    }

    fn insert(&mut self, reading: Reading) -> u32 {
        match self.vacant.pop() {
            Some(number) => {
                self.reading[number as usize] = Some(reading);
                number
            }
            None => {
                self.reading.push(Some(reading));
                self.reading.len() as u32 - 1
            }
        }
    }

    fn remove(&mut self, number: u32) -> Option<Reading> {
        let reading = self.reading.get_mut(number as usize)?.take()?;
        self.vacant.push(number);
        Some(reading)
    }

    /// A page is about to be written to NVMe.
    pub fn overtake(&mut self, page: PageIndex) {
        if self.vacant.len() < self.reading.len() {
            let of_page = self.reading.iter_mut().flatten().filter(|reading| reading.get.page == page);
            of_page.for_each(|reading| reading.overtaken = true);
        }
    }
}

impl Agent {
    /// A rank asks for a few bytes of a page whose home should be here, and not for the page.
    pub(super) fn serve_part(&mut self, from: Peer, get: PartGet) -> Result<(), CacheError> {
        let PartGet { page, offset, bytes, .. } = get;
        let size = self.size_of(page);
        let inside = offset.checked_add(bytes).is_some_and(|end| end <= size.bytes());
        let most = self.parts.limits.of(size);
        if self.home_of(page) != Some(self.node) || !inside || bytes == 0 || bytes > most {
            return Err(CacheError::Protocol {
                who: self.layout.describe(from),
                what: format!("asked for {bytes} bytes at {offset} of page {page} alone"),
            });
        }
        if self.outbox.waiting_for(from) >= ANSWERS_MAX {
            return Err(CacheError::Protocol {
                who: self.layout.describe(from),
                what: "asks and does not take its answers".into(),
            });
        }
        let entry = self.pool.entry(page)?;
        if entry.state().readable() {
            let span = self.pool.frame_span(entry.frame())?;
            self.pool.count(Counter::InPlaceServed, 1);
            self.answer_part(from, get, &span, offset as usize);
            return Ok(());
        }
        let in_flight = self.homes.contains_key(&page) || !self.quiet(page) || self.parts.is_full();
        if in_flight || !self.attached(page) {
            self.decline_part(from, get);
            return Ok(());
        }
        self.read_part(from, get)
    }

    /// Reads the blocks in which the bytes lie.
    fn read_part(&mut self, from: Peer, get: PartGet) -> Result<(), CacheError> {
        let Some((file, in_file)) = self.stored_in(get.page) else { return Ok(()) };
        let first = get.offset / BLOCK_BYTES * BLOCK_BYTES;
        let bytes = ((get.offset + get.bytes).next_multiple_of(BLOCK_BYTES) - first) as usize;
        let piece = self.parts.memory()?;
        let into = piece.mapping().span(piece.offset(), bytes);
        let number = self.parts.insert(Reading { from, get, into: piece, overtaken: false });
        let key = self.storage.keys.insert(StorageWork::Part(number));
        let written = self.storage.volume.is_written(file, in_file.0);
        if !self.storage.volume.read_part(file, in_file.0, first, into, key)? {
            self.storage.keys.remove(key);
            return self.part_read(number, None);
        }
        if written {
            self.pool.count(Counter::NvmPartReads, 1);
            self.pool.count(Counter::NvmReadBytes, bytes as u64);
        }
        Ok(())
    }

    /// NVMe has brought a part, or has not; `None`: it cannot be read by itself.
    pub(super) fn part_read(
        &mut self,
        number: u32,
        result: Option<Result<(), Box<VolumeError>>>,
    ) -> Result<(), CacheError> {
        let Some(Reading { from, get, into, overtaken }) = self.parts.remove(number) else {
            return Err(self.violation(self.node, "has read a part that nobody asked for"));
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
        self.parts.free.push(into);
        Ok(())
    }

    fn answer_part(&mut self, to: Peer, get: PartGet, span: &Span, at: usize) {
        let mut bytes = vec![0; get.bytes as usize];
        span.mapping().read(span.offset() + at, &mut bytes);
        self.outbox.push(to, Outgoing::Answer { words: InPlaceAnswer::Done.encode(get.number), bytes });
    }

    fn decline_part(&mut self, to: Peer, get: PartGet) {
        let words = InPlaceAnswer::NotInPlace.encode(get.number);
        self.outbox.push(to, Outgoing::Answer { words, bytes: Vec::new() });
    }
}
