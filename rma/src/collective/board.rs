//! The shared memory of a team whose members are in one domain.
//!
//! ```text
//! arrivals        a word a member: the operations that it has entered. Several share a line, as those of barriers
//! for each member
//!   finished      the operations of which it reads nothing any more
//!   wants room    whether it waits until others have finished
//!   core          the processor that it was last seen on
//!   cells         a ring: what it gives in an operation, and whether it has taken what others give
//!   arena         bytes that do not fit a cell, in the order of its operations
//! ```
//!
//! A cell is published by its first word, which is written last. A member writes the cell of operation n when
//! all others have finished operation n - [`CELLS`], and bytes of the arena when all others have finished the
//! operation that used them. Nothing that a member writes here is trusted: ranges are checked by their
//! readers.

use super::call::Call;
use super::view::View;
use crate::Peer;
use crate::conduit::smp::{BOARD_PART_BYTES, ControlLayout};
use crate::domain::Domain;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vgas_shm::Mapping;

/// Operations that a member may be ahead of another.
pub(super) const CELLS: u64 = 256;

const CELL_BYTES: usize = 128;

/// Bytes of a cell behind its words: shorter pieces need no other memory.
pub(super) const INLINE_BYTES: usize = CELL_BYTES - 32;

/// Bytes of an arena.
pub(super) const ARENA_BYTES: usize = 512 << 10;

/// Bytes of an arena begin at multiples of this.
pub(super) const ARENA_ALIGN: usize = 64;

const LINE_BYTES: usize = 64;

const ARENA: usize = LINE_BYTES + CELLS as usize * CELL_BYTES;

const _: () = assert!(ARENA + ARENA_BYTES == BOARD_PART_BYTES);

/// Place of a member's piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Location {
    /// In the cell.
    Inline,
    /// At an offset of the arena, block after block.
    Arena(usize),
    /// In its segment, where it stays until the receivers have taken it: the offset of its first block.
    Segment(u64),
}

/// The arguments in which members must agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub call: Call,
    /// Bytes of a block of the whole operation, below 2^43.
    pub bytes: usize,
    /// Bytes of a block in each piece but the last, below 2^18. They follow from the size of an element.
    pub piece_bytes: usize,
    /// Pieces come in pairs.
    pub is_split: bool,
}

impl Shape {
    fn encode(self, mode: u64) -> u64 {
        (self.bytes as u64) << 21 | u64::from(self.is_split) << 20 | (self.piece_bytes as u64) << 2 | mode
    }

    fn decode(call: Call, word: u64) -> Self {
        Self {
            call,
            bytes: (word >> 21) as usize,
            piece_bytes: (word >> 2) as usize & ((1 << 18) - 1),
            is_split: word >> 20 & 1 == 1,
        }
    }
}

/// The header of a cell.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub shape: Shape,
    pub location: Location,
}

/// A board as one member sees it.
pub(super) struct Board {
    control: Arc<Mapping>,
    arrivals: Box<[usize]>,
    parts: Box<[usize]>,
    /// Positions among the members of the domain.
    pub(super) members: Box<[usize]>,
}

impl Board {
    /// A board for these members, in their order; none if one of them is not in the domain.
    pub(super) fn new(domain: &Domain, board: usize, members: &[Peer]) -> Option<Self> {
        let (spec, control) = (domain.spec(), domain.control());
        let layout = ControlLayout::new(spec.members.len(), spec.ring_bytes, control.bytes() as u64).ok()?;
        let members: Box<[usize]> =
            members.iter().map(|&peer| domain.member_index(peer)).collect::<Option<_>>()?;
        Some(Self {
            control: control.clone(),
            arrivals: members.iter().map(|&member| layout.team_arrival(board, member)).collect(),
            parts: members.iter().map(|&member| layout.team_part(board, member)).collect(),
            members,
        })
    }

    /// The operations that a member has entered.
    #[inline]
    pub(super) fn arrival(&self, member: u32) -> &AtomicU64 {
        self.control.atomic_u64(self.arrivals[member as usize])
    }

    /// Number of operations that a member has finished reading.
    #[inline]
    pub(super) fn finished(&self, member: u32) -> &AtomicU64 {
        self.control.atomic_u64(self.parts[member as usize])
    }

    /// Returns the flag by which a member tells that it waits until others have finished.
    #[inline]
    pub(super) fn wants_room(&self, member: u32) -> &AtomicU64 {
        self.control.atomic_u64(self.parts[member as usize] + 8)
    }

    /// The processor, counted from 1, on which a member has waited last; 0: it has not waited.
    #[inline]
    pub(super) fn core(&self, member: u32) -> &AtomicU64 {
        self.control.atomic_u64(self.parts[member as usize] + 16)
    }

    #[inline]
    fn cell(&self, member: u32, number: u64) -> usize {
        self.parts[member as usize] + LINE_BYTES + (number % CELLS) as usize * CELL_BYTES
    }

    #[inline]
    fn word(&self, member: u32, number: u64, word: usize) -> &AtomicU64 {
        self.control.atomic_u64(self.cell(member, number) + 8 * word)
    }

    /// Notes that a member has taken what others give it in an operation and those before it that use the cell.
    #[inline]
    pub(super) fn set_taken(&self, member: u32, number: u64) {
        self.word(member, number, 3).store(number + 1, Ordering::Release);
    }

    /// Returns whether a member has taken what others give it in an operation.
    #[inline]
    pub(super) fn has_taken(&self, member: u32, number: u64) -> bool {
        self.word(member, number, 3).load(Ordering::Acquire) > number
    }

    /// The bytes of a cell of this member's own, or of another's.
    pub(super) fn inline(&self, member: u32, number: u64, bytes: usize) -> Option<View> {
        let at = self.cell(member, number) + 32;
        if bytes > INLINE_BYTES { None } else { View::of_mapping(&self.control, at, bytes) }
    }

    /// A range of a member's arena; none if it is not inside.
    pub(super) fn arena(&self, member: u32, offset: usize, bytes: usize) -> Option<View> {
        let is_inside = offset.checked_add(bytes).is_some_and(|end| end <= ARENA_BYTES);
        let at = self.parts[member as usize] + ARENA + offset;
        if is_inside { View::of_mapping(&self.control, at, bytes) } else { None }
    }

    /// Publishes what this member gives in an operation; its bytes are written.
    #[inline]
    pub(super) fn post(&self, me: u32, number: u64, header: Header) {
        let (mode, offset) = match header.location {
            Location::Inline => (0, 0),
            Location::Arena(offset) => (1, offset as u64),
            Location::Segment(offset) => (2, offset),
        };
        self.word(me, number, 1).store(header.shape.encode(mode), Ordering::Relaxed);
        self.word(me, number, 2).store(offset, Ordering::Relaxed);
        self.word(me, number, 0).store(published(number, header.shape.call), Ordering::Release);
    }

    /// Returns the header of a member's piece of an operation, once it is published.
    #[inline]
    pub(super) fn header(&self, member: u32, number: u64) -> Option<Header> {
        let first = self.word(member, number, 0).load(Ordering::Acquire);
        if first & 1 == 0 || (first >> 32) as u32 != number as u32 {
            return None;
        }
        let second = self.word(member, number, 1).load(Ordering::Relaxed);
        let offset = self.word(member, number, 2).load(Ordering::Relaxed);
        let location = match second & 3 {
            0 => Location::Inline,
            1 => Location::Arena(usize::try_from(offset).unwrap_or(usize::MAX)),
            _ => Location::Segment(offset),
        };
        Some(Header { shape: Shape::decode(Call::decode(first as u32 >> 1), second), location })
    }
}

/// The first word of a cell: number of the operation, call, and a bit that tells it from a fresh one.
fn published(number: u64, call: Call) -> u64 {
    number << 32 | u64::from(call.encode()) << 1 | 1
}
