//! Reads from the other ranks of this node, and the making of a copy: fetched, found at another rank, or not
//! needed.
//!
//! Ranks of a node have the frames of its cache in common, so that one can map pages of another's partition to read
//! ([`vgas::Segment::local_of_peer`]). A mapped page takes a seat of few, and a fault of tens of microseconds the first time. So:
//!
//! * A *large* object without links is read in place: the original, if its rank is of this node (no copy, no
//!   mark: it is not written while borrowed, and no copy outlives the borrow), or the copy of the rank of
//!   this node that keeps one.
//! * Anything else gets a copy in the own partition, whose bytes come from a rank of this node that has one, without a message, else from
//!   its home. A copy with links must be this rank's own: it notes in them what it has found.

use super::copies::Copy;
use super::error::ObjectError;
use super::loans::is_dead;
use super::replica::PASSED_ON;
use super::shared::{ENTRY_BYTES, Entry, Look, Shared};
use super::{Heap, Messages, OWN, heap};
use crate::shape::Shape;
use crate::slab::{Class, Geometry, Use, label_offset};
use crate::word::Word;
use std::ptr::with_exposed_provenance_mut;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Mutex, PoisonError};
use vgas::{LocalPart, Rank, Runtime, SegmentOptions, SegmentOwner};

/// Most bytes of a node's table of copies: some hundred thousand entries.
const TABLE_BYTES_MAX: u64 = 8 << 20;
/// Entries for each copy that a rank is to keep: so that a bucket is rarely full.
const ENTRIES_PER_COPY: u64 = 2;
/// Fewer pages than this cannot be mapped.
const PAGES_MIN: u32 = 5;

/// The partition of another rank of this node.
#[derive(Debug)]
enum LocalPeer {
    Open {
        /// Kept for its mapping.
        _part: LocalPart,
    },
    /// More partitions are open than a process can have, or than the cache has pages for: objects of this one
    /// are copied.
    Refused,
}

/// Partition of each other rank of this node, opened on first use.
#[derive(Debug, Default)]
pub(super) struct LocalPeers {
    all: Mutex<Vec<(Rank, LocalPeer)>>,
    in_place: AtomicU64,
    /// Copies of bytes sent by homes, and of copies of the node's ranks.
    fetched: AtomicU64,
    from_mates: AtomicU64,
    pub evicted: AtomicU64,
}

impl LocalPeers {
    /// Returns true if the partition of a rank of this node can be read here.
    fn can_read(&self, of: Rank) -> bool {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, mate)) = all.iter().find(|(rank, _)| *rank == of) {
            return matches!(mate, LocalPeer::Open { .. });
        }
        let mate = match heap().map(|heap| open(heap, of)) {
            Ok(Some(part)) => LocalPeer::Open { _part: part },
            _ => LocalPeer::Refused,
        };
        let is_open = matches!(mate, LocalPeer::Open { .. });
        all.push((of, mate));
        is_open
    }

    /// Closes all; a thread that still reads one faults.
    pub fn close(&self) {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Returns the number of objects read in place, of copies of bytes from homes, of copies of bytes from
    /// ranks of the node, and of copies evicted.
    pub fn counts(&self) -> [u64; 4] {
        [&self.in_place, &self.fetched, &self.from_mates, &self.evicted]
            .map(|count| count.load(Ordering::Relaxed))
    }
}

fn open(heap: &'static Heap, of: Rank) -> Option<LocalPart> {
    let runtime = &heap.runtime;
    let mates = runtime.layout().ranks_of(runtime.node()).len().saturating_sub(1).max(1);
    let pages = runtime.cache_layout().mapped_beside_first() / mates as u32;
    let part = heap.segment.local_of_peer(of, pages.max(PAGES_MIN)).ok()?;
    // Addresses mean the same in all processes, or nothing is read there.
    let base = runtime.pointer_to(heap.segment.address(of, 0));
    (base == Some(part.base())).then_some(part)
}

/// Opens this rank's view of its node's table of copies, for this number of copies a rank; none on a node of
/// one rank, or if pinned memory has no room for one. Collective.
pub(super) fn table(
    runtime: &Runtime,
    copies: usize,
    owner: &SegmentOwner,
) -> Result<Option<Shared<'static>>, ObjectError> {
    // Decided from what is the same on all ranks.
    let (layout, most) = (runtime.layout(), runtime.settings().segment.pinned_max.bytes());
    let nodes = (0..layout.nodes()).map(|node| layout.ranks_of(vgas::NodeId(node)).len()).max();
    let largest = nodes.unwrap_or(1) as u64;
    let wanted = copies as u64 * largest * ENTRIES_PER_COPY * ENTRY_BYTES as u64;
    let bytes = wanted.clamp(4096, TABLE_BYTES_MAX).min(most / 4);
    if largest < 2 || bytes < 4096 || runtime.nodes() < 2 {
        return Ok(None);
    }
    let ranks = layout.ranks_of(runtime.node());
    let (first, me) = (Rank(ranks.start), runtime.rank());
    let own = if me == first && ranks.len() > 1 { bytes } else { 0 };
    // A program may have taken what there was: all ranks hear of it, and go on without.
    // SAFETY: only the ranks' tables have the segment.
    let Ok(segment) = (unsafe { runtime.attach_owned(&SegmentOptions::pinned(own), owner) }) else {
        return Ok(None);
    };
    let Some(base) = runtime.pointer_to(segment.address(first, 0)).filter(|_| ranks.len() > 1) else {
        return Ok(None);
    };
    let count = bytes as usize / ENTRY_BYTES;
    // SAFETY: rule 1: pinned memory of this node, zeros, which is aligned to a page, attached until the job ends, and used as these
    // entries of atomics only, by the ranks of the node.
    let entries = unsafe { std::slice::from_raw_parts(base.cast::<Entry>().cast_const(), count) };
    Ok(Shared::new(entries, me.0 - first.0))
}

impl Heap {
    /// Returns the address of an object of a rank of this node, if this rank reads it in place.
    pub(super) fn in_place(&self, word: Word, shape: &Shape) -> Option<u64> {
        let rank = self.locate(word.address()).rank;
        if !shape.is_read_in_place() || self.far(rank).is_some() || !self.mates.can_read(rank) {
            return None;
        }
        self.mates.in_place.fetch_add(1, Ordering::Relaxed);
        Some(word.address())
    }

    /// A copy of another rank's object: one that a rank of this node keeps, or its own.
    pub(super) fn fetch(&self, word: Word, shape: &Shape) -> Result<Copy, ObjectError> {
        let is_far = self.far(self.locate(word.address()).rank).is_some();
        let Some(shared) = self.copies.shared().filter(|_| is_far) else {
            return self.copy(word, shape, Bytes::OfHome);
        };
        let go_on = || self.runtime.messages().check_failure();
        let look = shared.look(word, go_on).map_err(|why| self.lost(word, shape, vgas::Error::from(why)))?;
        match look {
            Look::Full => self.copy(word, shape, Bytes::OfHome),
            Look::Held(entry, address) => self.copy_kept(word, shape, shared, (entry, address)),
            Look::Fetch(entry) => {
                let unshown = Unshown { shared, entry };
                let copy = self.copy(word, shape, Bytes::OfHome)?;
                unshown.show(&copy);
                Ok(copy)
            }
        }
    }

    /// The copy that a rank of this node keeps, which is held through this entry of the node's table: that itself, or a copy of it.
    fn copy_kept(
        &self,
        word: Word,
        shape: &Shape,
        shared: &Shared<'static>,
        (entry, address): (usize, u64),
    ) -> Result<Copy, ObjectError> {
        let keeper = self.locate(address).rank;
        if shape.is_read_in_place() && self.mates.can_read(keeper) {
            let class = shape.copy_class().unwrap_or(shape.class);
            let (bytes, links, name) = (shape.bytes, shape.links, shape.name);
            return Ok(Copy { address, class, bytes, links, name, entry: Some(entry), is_overflow: false });
        }
        let copied = self.copy(word, shape, Bytes::OfMate(address));
        shared.release(entry);
        copied
    }

    /// Begins a copy of another node's object, for a caller that must not wait for other ranks that do the
    /// same.
    pub(super) fn begin_copy<'h>(&'h self, word: Word, shape: &Shape) -> Result<Begun<'h>, ObjectError> {
        let Some(shared) = self.copies.shared() else {
            return Ok(Begun::Fetch(None, self.room_for_copy(word, shape)?));
        };
        let go_on = || self.runtime.messages().check_failure();
        let look = shared.try_look(word, go_on).map_err(|why| self.lost(word, shape, why.into()))?;
        Ok(match look {
            None => Begun::Others,
            Some(Look::Held(entry, address)) => {
                Begun::Copied(self.copy_kept(word, shape, shared, (entry, address))?)
            }
            Some(Look::Full) => Begun::Fetch(None, self.room_for_copy(word, shape)?),
            Some(Look::Fetch(entry)) => {
                let unshown = Unshown { shared, entry };
                Begun::Fetch(Some(unshown), self.room_for_copy(word, shape)?)
            }
        })
    }

    /// A copy of another rank's object, of bytes that have come. Its slot was marked before they were read.
    pub(super) fn keep(&self, word: Word, shape: &Shape, bytes: &[u8]) -> Result<Copy, ObjectError> {
        self.copy(word, shape, Bytes::Here(bytes))
    }

    /// Returns the offset of the slot's word of another rank's object.
    pub(super) fn served_word(&self, word: Word, shape: &Shape) -> Result<u64, ObjectError> {
        let at = self.locate(word.address());
        let theirs = Geometry::new(word.address() - at.offset, self.bytes);
        theirs.word_of(at.offset, shape.class).ok_or_else(|| match is_dead(at.offset) {
            true => self.lost(word, shape, vgas::Error::Usage(PASSED_ON.into())),
            false => nowhere(word, shape),
        })
    }

    /// Allocates a slot for a copy in this rank's partition; if that is full, memory beside it.
    fn room_for_copy(&self, word: Word, shape: &Shape) -> Result<CopySlot<'_>, ObjectError> {
        let class = shape.copy_class().ok_or_else(|| nowhere(word, shape))?;
        while self.copies_exceed(class.bytes()) && self.evict()? {}
        let (address, slot) = match self.allocate(class, Use::Copies) {
            Ok((address, colour)) => (address, Some(Word::new(address, colour).ok_or(ObjectError::NoHeap)?)),
            Err(ObjectError::Full(full)) => match self.allocate_overflow(class.bytes(), shape.align) {
                Some(address) => (address, None),
                None => return Err(full.into()),
            },
            Err(other) => return Err(other),
        };
        Ok(CopySlot { heap: self, address, slot, class })
    }

    /// A copy in this rank's partition.
    fn copy(&self, word: Word, shape: &Shape, of: Bytes<'_>) -> Result<Copy, ObjectError> {
        let room = self.room_for_copy(word, shape)?;
        let address = room.address();
        match of {
            Bytes::OfMate(other) => self.read_from_mate(word, shape, other, address)?,
            Bytes::OfHome => {
                let served = self.served_word(word, shape)?;
                if let Some(found) = self.read_group(word, shape, Some(served))? {
                    self.keep_tied(&found);
                    return Ok(self.keep_in(room, word, shape, found.one()));
                }
                // SAFETY: rule 1: a slot for these bytes, which only this code uses.
                unsafe { self.read(word, shape, address as usize, Some(served)) }?;
            }
            Bytes::Here(bytes) => return Ok(self.keep_in(room, word, shape, bytes)),
        }
        let is_of_mate = matches!(of, Bytes::OfMate(_));
        Ok(self.is_copied(room, word, shape, is_of_mate))
    }

    /// A copy of bytes that have come, in this slot.
    pub(super) fn keep_in(&self, room: CopySlot<'_>, word: Word, shape: &Shape, bytes: &[u8]) -> Copy {
        let length = bytes.len().min(shape.bytes);
        let to = with_exposed_provenance_mut::<u8>(room.address() as usize);
        // SAFETY: rule 1: a slot for these bytes, which only this code uses.
        unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), length) };
        self.is_copied(room, word, shape, false)
    }

    /// All bytes are in the slot: it is a copy.
    pub(super) fn is_copied(&self, room: CopySlot<'_>, word: Word, shape: &Shape, is_of_mate: bool) -> Copy {
        let (address, class, is_overflow) = (room.address(), room.class, room.slot.is_none());
        std::mem::forget(room);
        let counted = if is_of_mate { &self.mates.from_mates } else { &self.mates.fetched };
        counted.fetch_add(1, Ordering::Relaxed);
        // Its rank's notes there still count for that rank.
        shape.scrub(address, 0);
        if !is_overflow {
            self.label(word, address, shape.bytes);
        }
        let (bytes, links, name) = (shape.bytes, shape.links, shape.name);
        Copy { address, class, bytes, links, name, entry: None, is_overflow }
    }

    fn read_from_mate(&self, word: Word, shape: &Shape, from: u64, to: u64) -> Result<(), ObjectError> {
        // SAFETY: rule 1: a slot for these bytes, which only this code uses.
        let bytes = unsafe { super::room(to, shape.bytes) };
        self.runtime.get(self.locate(from), bytes).map_err(|why| self.lost(word, shape, why))
    }

    fn copies_exceed(&self, more: u64) -> bool {
        let (count, bytes) = self.copies.kept();
        count >= self.copies_max || bytes + more > self.copy_bytes_max
    }

    /// Writes the word of a copy behind its bytes: readers may then be forwarded to it ([`crate::service`]).
    fn label(&self, word: Word, address: u64, bytes: usize) {
        let at = OWN.offset_of(address).unwrap_or_default() + label_offset(bytes as u64);
        self.list_word(at + 8).store(self.serial.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        self.list_word(at).store(word.bits(), Ordering::Release);
    }

    /// Call it before the bytes change, so that a rank that copies them notices.
    pub(super) fn unlabel(&self, offset: u64, bytes: usize) {
        self.list_word(offset + label_offset(bytes as u64)).store(0, Ordering::Relaxed);
        fence(Ordering::Release);
    }
}

/// Source of a copy's bytes.
#[derive(Clone, Copy)]
enum Bytes<'b> {
    OfHome,
    /// The copy that a rank of this node has there.
    OfMate(u64),
    /// They have come already.
    Here(&'b [u8]),
}

fn nowhere(word: Word, shape: &Shape) -> ObjectError {
    ObjectError::Usage(format!("no {} can be at {word:?}", (shape.name)()))
}

/// Outcome of beginning a copy.
pub(super) enum Begun<'h> {
    /// It is here: the node has one.
    Copied(Copy),
    /// Its bytes are to come into this slot, and others of the node wait for them.
    Fetch(Option<Unshown<'h>>, CopySlot<'h>),
    /// Another rank of the node fetches it.
    Others,
}

/// A slot for a copy that is not there yet: freed again, if none comes, even by a panic.
pub(super) struct CopySlot<'h> {
    heap: &'h Heap,
    address: u64,
    /// None if it is outside of the partition.
    slot: Option<Word>,
    class: Class,
}

impl CopySlot<'_> {
    pub fn address(&self) -> u64 {
        self.address
    }
}

impl Drop for CopySlot<'_> {
    fn drop(&mut self) {
        // It was this rank's, without an owner.
        match self.slot {
            Some(slot) => drop(self.heap.free_own(slot)),
            None => drop(self.heap.overflow.free(self.address)),
        }
    }
}

/// Gives up an entry whose copy could not be fetched, even by a panic.
pub(super) struct Unshown<'s> {
    shared: &'s Shared<'static>,
    entry: usize,
}

impl Unshown<'_> {
    /// The copy is there. One outside of the partition is not shown: other ranks of the node could not read it.
    pub fn show(self, copy: &Copy) {
        if copy.is_overflow {
            return;
        }
        self.shared.show(self.entry, copy.address);
        std::mem::forget(self);
    }
}

impl Drop for Unshown<'_> {
    fn drop(&mut self) {
        self.shared.give_up(self.entry);
    }
}
