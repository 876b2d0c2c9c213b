//! Long operations whose local bytes lie in a segment that this process reaches through pointers.
//!
//! Such bytes are pages, too, and need not be mapped to be moved: a fault brings a page or a few, and a store to an absent page would
//! read it first. So the bytes go through private memory in pieces, each got from one partition and put into the other, with the next
//! piece on its way meanwhile.

use super::Core;
use super::operation::{Operation, Piece, Way};
use super::own::{IoMode, ReadId};
use crate::error::CacheError;
use crate::partition::Partition;
use std::collections::VecDeque;
use std::mem::ManuallyDrop;

/// Most bytes of a piece.
const PIECE_BYTES_MAX: u64 = 256 << 10;

/// Pieces on their way at a time.
const PIECES_MAX: usize = 3;

/// A get or put, whatever its local bytes are.
#[expect(clippy::large_enum_variant, reason = "a box would cost each miss an allocation")]
#[derive(Debug)]
pub(super) enum Transfer {
    /// To or from memory that nothing is moved into by a fault, or through a page of private memory.
    Plain(Operation),
    /// Between two partitions.
    Local(Box<LocalTransfer>),
}

impl Transfer {
    /// As [`Operation::advance`].
    ///
    /// # Safety
    /// As [`Operation::advance`].
    pub(super) unsafe fn advance(&mut self, client: &Core) -> Result<bool, CacheError> {
        match self {
            // SAFETY: passed on.
            Self::Plain(operation) => unsafe { operation.advance(client) },
            Self::Local(local) => local.advance(client),
        }
    }

    /// As [`Operation::awaited_read`].
    pub(super) fn awaited_read(&self) -> Option<ReadId> {
        match self {
            Self::Plain(operation) => operation.awaited_read(),
            Self::Local(_) => None,
        }
    }

    /// As [`Operation::abandon`].
    pub(super) fn abandon(&mut self, client: &Core) {
        match self {
            Self::Plain(operation) => operation.abandon(client),
            Self::Local(local) => local.pieces.iter_mut().for_each(|piece| piece.operation.abandon(client)),
        }
    }

    pub(super) fn is_put(&self) -> bool {
        match self {
            Self::Plain(operation) => operation.is_put(),
            Self::Local(local) => local.is_put,
        }
    }
}

/// Where bytes are in a partition.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch {
    pub(super) partition: Partition,
    pub(super) offset: u64,
}

/// A copy from one partition into another.
#[derive(Debug)]
pub(super) struct LocalTransfer {
    from: Stretch,
    to: Stretch,
    /// Bytes that no piece has been begun for.
    left: u64,
    /// Most bytes of a piece: a multiple of the size of a page.
    piece_bytes: u64,
    is_put: bool,
    /// The oldest first.
    pieces: VecDeque<MovingPiece>,
    /// Memory of pieces that have ended.
    free: Vec<Box<[u8]>>,
}

/// A piece on its way.
#[derive(Debug)]
struct MovingPiece {
    /// Brings the bytes into `memory`, or takes them from there.
    operation: Operation,
    is_here: bool,
    to: Stretch,
    bytes: usize,
    /// Valid until the operation has ended (rule 1 of [`super`]), hence freed by hand. What is dropped before stays: its bytes may still land.
    memory: ManuallyDrop<Box<[u8]>>,
}

impl LocalTransfer {
    /// Of so many bytes. `is_put`: the source is what the caller has named by its address.
    pub(super) fn new(client: &Core, from: Stretch, to: Stretch, bytes: u64, is_put: bool) -> Self {
        let size = to.partition.size;
        let (page_bytes, frames) = (u64::from(size.bytes()), u64::from(client.pool.transfer_frames(size)));
        let piece_bytes = PIECE_BYTES_MAX.min(frames / 4 * page_bytes).max(page_bytes);
        Self { from, to, left: bytes, piece_bytes, is_put, pieces: VecDeque::new(), free: Vec::new() }
    }

    /// Goes on as far as possible without waiting. True: all bytes are where they belong.
    fn advance(&mut self, client: &Core) -> Result<bool, CacheError> {
        loop {
            let mut has_moved = false;
            if self.left > 0 && self.pieces.len() < PIECES_MAX {
                self.begin();
                has_moved = true;
            }
            let mut index = 0;
            while let Some(piece) = self.pieces.get_mut(index) {
                index += 1;
                // SAFETY: rule 1: the memory is the piece's, and freed after the end of its last operation.
                if !unsafe { piece.operation.advance(client)? } {
                    continue;
                }
                has_moved = true;
                if !piece.is_here {
                    piece.is_here = true;
                    let way = Way::Put(piece.memory.as_ptr());
                    let bytes = Piece { offset: piece.to.offset, bytes: piece.bytes, way };
                    piece.operation = Operation::new(piece.to.partition, bytes, None, IoMode::NonBlocking);
                    index -= 1;
                } else if let Some(ended) = self.pieces.remove(index - 1) {
                    self.free.push(ManuallyDrop::into_inner(ended.memory));
                    index -= 1;
                }
            }
            if self.left == 0 && self.pieces.is_empty() {
                return Ok(true);
            }
            if !has_moved {
                return Ok(false);
            }
        }
    }

    /// Begins the next piece: up to an end of a page where it goes, so that whole pages are put.
    fn begin(&mut self) {
        let most = self.piece_bytes;
        let up_to_page_end = most - (self.to.offset + most) % u64::from(self.to.partition.size.bytes());
        let bytes = if self.left <= most { self.left } else { up_to_page_end };
        let memory =
            self.free.pop().unwrap_or_else(|| vec![0; most.min(self.left) as usize].into_boxed_slice());
        let mut memory = ManuallyDrop::new(memory);
        let way = Way::Get(memory.as_mut_ptr());
        let piece = Piece { offset: self.from.offset, bytes: bytes as usize, way };
        let operation = Operation::new(self.from.partition, piece, None, IoMode::NonBlocking);
        let piece = MovingPiece { operation, is_here: false, to: self.to, bytes: bytes as usize, memory };
        self.pieces.push_back(piece);
        self.from.offset += bytes;
        self.to.offset += bytes;
        self.left -= bytes;
    }
}
