//! Reads of parts of pages for small gets, and memory for them ([`controller::work`](crate::agent::controller) serves the gets).

use crate::agent::items::PartGet;
use crate::error::CacheError;
use crate::page::PageIndex;
use crate::parts::Limits;
use crate::pool::PageSize;
use std::sync::Arc;
pub use vgas_nvm::PAGE_BYTES_MIN as BLOCK_BYTES;
use vgas_rma::address::Peer;
use vgas_shm::{Mapping, Span};

/// Most parts in flight at the device or in its queue. Who comes then goes the normal way, which has bounds of its own.
const READING_MAX: usize = 1024;
/// Memory is got for so many at a time.
const GROWTH: usize = 16;

/// A part that waits for NVMe.
#[derive(Debug)]
pub struct PartReading {
    pub from: Peer,
    pub get: PartGet,
    pub into: Span,
    /// The page has begun to be written since.
    pub overtaken: bool,
}

/// The parts in flight, and memory for them.
#[derive(Debug)]
pub struct PartReads {
    pub limits: Limits,
    /// Bytes of a piece of memory: the blocks that such a get may touch.
    piece_bytes: usize,
    free: Vec<Span>,
    /// By the number in [`StorageWork::Part`](crate::agent::items::StorageWork::Part).
    reading: Vec<Option<PartReading>>,
    vacant: Vec<u32>,
}

impl PartReads {
    pub fn new(limits: Limits) -> Self {
        let most = PageSize::all().map(|size| limits.of(size)).max().unwrap_or(0);
        // One more than the bytes need: they may begin anywhere.
        let piece = most.next_multiple_of(BLOCK_BYTES) + BLOCK_BYTES;
        let (free, reading, vacant) = (Vec::new(), Vec::new(), Vec::new());
        Self { limits, piece_bytes: piece as usize, free, reading, vacant }
    }

    /// Whether as many are in flight as may be.
    pub fn is_full(&self) -> bool {
        self.reading.len() - self.vacant.len() >= READING_MAX
    }

    /// Returns memory for the blocks of a part.
    pub fn memory(&mut self) -> Result<Span, CacheError> {
        if self.free.is_empty() {
            let memory: Arc<Mapping> = Mapping::anonymous("vgas-parts", (GROWTH * self.piece_bytes) as u64)
                .map_err(vgas_rma::RmaError::from)?;
            self.free
                .extend((0..GROWTH).map(|piece| memory.span(piece * self.piece_bytes, self.piece_bytes)));
        }
        Ok(self.free.pop().expect("just filled"))
    }

    /// Returns the number of a read that begins.
    pub fn insert(&mut self, reading: PartReading) -> u32 {
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

    /// Ends a read.
    pub fn remove(&mut self, number: u32) -> Option<PartReading> {
        let reading = self.reading.get_mut(number as usize)?.take()?;
        self.vacant.push(number);
        Some(reading)
    }

    /// Takes memory back.
    pub fn give_back(&mut self, piece: Span) {
        self.free.push(piece);
    }

    /// Marks the reads of a page that is about to be written to NVMe.
    pub fn overtake(&mut self, page: PageIndex) {
        if self.vacant.len() < self.reading.len() {
            let of_page = self.reading.iter_mut().flatten().filter(|reading| reading.get.page == page);
            of_page.for_each(|reading| reading.overtaken = true);
        }
    }
}
