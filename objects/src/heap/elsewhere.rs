//! Room on other ranks, for values of a rank whose partition is full: local first, else on the rank with the
//! most room.
//!
//! A rank knows the others' free room from their last answers, and asks the rank with the most: a value costs
//! a message and its answer, and the put of its bytes. The watch of the other rank answers ([`crate::task`]),
//! even while its workers compute.
//!
//! Values may take a little less than the whole partition while there is room elsewhere: the rest is for
//! copies, without which remote objects could not be read.

use super::error::ObjectError;
use super::{Freed, Heap, OWN, heap};
use crate::shape::Shape;
use crate::slab::{Class, Full, SLAB_BYTES, SlotPlace, Use};
use crate::word::Word;
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::sync::{Mutex, PoisonError};
use vgas::Rank;

/// One part in this number of a partition is for copies.
const SPARE_SHARE: u64 = 8;

/// A rank's view of the other ranks' room.
#[derive(Debug)]
pub(super) struct RemoteRoom {
    /// Slabs that values leave to copies; 0: values go nowhere else.
    spare: u32,
    /// Free slabs of those that have said it.
    known: Mutex<FxHashMap<Rank, u32>>,
}

impl RemoteRoom {
    /// `leaves`: values of a rank without room go to other ranks, whose partitions have `bytes` each.
    pub(super) fn new(leaves: bool, bytes: u64) -> Self {
        let spare = if leaves { bytes / SPARE_SHARE / SLAB_BYTES } else { 0 };
        Self { spare: u32::try_from(spare).unwrap_or(u32::MAX), known: Mutex::default() }
    }
}

/// A rank's answer to a request for a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotAnswer {
    /// The word of the slot; none: it has none.
    pub word: Option<Word>,
    /// Slabs that are free there.
    pub free: u32,
}

/// A slot of this rank's for a value of another one, if more is free than copies need.
pub(crate) fn room_for(class: Class) -> SlotAnswer {
    let Ok(heap) = heap() else { return SlotAnswer { word: None, free: 0 } };
    // Wrong words freed by other ranks are reported by this rank's own calls.
    let _ = heap.collect();
    super::drop_for_others();
    let mut slabs = heap.slabs();
    let place = slabs.allocate_leaving(class, Use::Values, heap.elsewhere.spare);
    let free = slabs.free_slabs();
    drop(slabs);
    let word = place.ok().and_then(|SlotPlace { offset, colour }| Word::new(heap.address_of(offset), colour));
    SlotAnswer { word, free }
}

/// Frees a slot whose requester has gone, together with others. Handlers may call it.
pub(crate) fn give_back(from: Rank, word: Word) {
    let Ok(heap) = heap() else { return };
    if heap.locate(word.address()).rank == from {
        let freed = Freed { word, holds: Vec::new(), bytes: 16 };
        heap.frees.lock().unwrap_or_else(PoisonError::into_inner).entry(from).or_default().push(freed);
    }
}

impl Heap {
    /// A slot for a new value.
    pub(super) fn place(&self, class: Class) -> Result<Word, ObjectError> {
        self.look(class, Use::Values)?;
        let placed = self.slabs().allocate_leaving(class, Use::Values, self.elsewhere.spare);
        match placed {
            Ok(place) => self.word_of(place),
            Err(_) => self.place_anywhere(class),
        }
    }

    fn word_of(&self, SlotPlace { offset, colour }: SlotPlace) -> Result<Word, ObjectError> {
        Word::new(self.address_of(offset), colour).ok_or(ObjectError::NoHeap)
    }

    #[cold]
    #[inline(never)]
    fn place_anywhere(&self, class: Class) -> Result<Word, ObjectError> {
        let mut others = 0;
        if self.elsewhere.spare > 0 {
            self.collect()?;
            self.drop_come(usize::MAX)?;
            // Copies have some of what is theirs already.
            let kept = u32::try_from(self.copies.kept().1 / SLAB_BYTES).unwrap_or(u32::MAX);
            let spare = self.elsewhere.spare.saturating_sub(kept);
            let placed = self.slabs().allocate_leaving(class, Use::Values, spare);
            if let Ok(place) = placed {
                return self.word_of(place);
            }
            others = match self.place_elsewhere(class)? {
                Ok(word) => return Ok(word),
                Err(asked) => asked,
            };
            // Slots of others that this rank has freed, without having told them, are room.
            if others > 0 && self.has_frees() {
                self.flush()?;
                if let Ok(word) = self.place_elsewhere(class)? {
                    return Ok(word);
                }
            }
        }
        match self.allocate_all(class, Use::Values) {
            Ok((address, colour)) => Word::new(address, colour).ok_or(ObjectError::NoHeap),
            Err(ObjectError::Full(full)) => Err(Full { others, ..full }.into()),
            Err(other) => Err(other),
        }
    }

    /// Allocates a slot of the rank with the most room; or returns the number of ranks asked in vain.
    fn place_elsewhere(&self, class: Class) -> Result<Result<Word, u32>, ObjectError> {
        let (me, ranks) = (self.runtime.rank(), self.runtime.ranks());
        let mut order: Vec<(Reverse<u32>, Rank)> = {
            let known = self.known();
            // Neighbours in the order of ranks, which begins with those of this node.
            let others = (1..ranks).map(|step| Rank((me.0 + step) % ranks));
            others.map(|rank| (Reverse(known.get(&rank).copied().unwrap_or(u32::MAX)), rank)).collect()
        };
        order.sort_by_key(|(free, _)| *free);
        let mut asked = 0;
        for (_, rank) in order {
            let Some(room) = (self.hooks.request_slot)(rank, class)? else { continue };
            asked += 1;
            self.known().insert(rank, room.free);
            let Some(word) = room.word else { continue };
            let at = self.locate(word.address());
            if at.rank != rank || at.offset + class.bytes() > self.bytes {
                return Err(ObjectError::Usage(format!("{rank} has offered {word:?}, which is not there")));
            }
            return Ok(Ok(word));
        }
        Ok(Err(asked))
    }

    fn has_frees(&self) -> bool {
        let frees = self.frees.lock().unwrap_or_else(PoisonError::into_inner);
        frees.values().any(|freed| !freed.is_empty()) || self.has_drops()
    }

    fn known(&self) -> std::sync::MutexGuard<'_, FxHashMap<Rank, u32>> {
        self.elsewhere.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a value into a slot of another rank, or frees that.
    pub(super) fn put_elsewhere(&self, word: Word, shape: &Shape, bytes: &[u8]) -> Result<(), ObjectError> {
        debug_assert!(OWN.offset_of(word.address()).is_none());
        if bytes.is_empty() {
            return Ok(());
        }
        self.put(word.address(), bytes).map_err(|why| {
            let _ = self.free_there(Freed::of(word, Vec::new(), shape));
            self.lost(word, shape, why)
        })
    }
}
