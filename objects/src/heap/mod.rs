//! The heap of a process: its partition, what it has of others', and how objects come and go.
//!
//! # Rules for the unsafe code in this folder
//!
//! 1. *Addresses.* Memory is touched only inside of this rank's own partition, which is mapped from [`Objects::attach`] on until the job ends,
//!    in a slot that the allocator has given and nobody has freed; words of slots and of lists as atomics.
//! 2. *One owner.* The word of an object is in one box. A box's object is written, moved, dropped and freed only by who has the box
//!    mutably borrowed or owns it; it is read only while the box is borrowed. A copy is never written once others can find it, except
//!    the extensions of links, which are atomics; it is freed only when its count of uses is 0, and each reference to it is counted.
//! 3. *Bytes are values.* A slot has a valid value of the type of its box from when the box exists until it is freed. Bytes that come from
//!    another rank are such a value: ranks of a job run one program, and [`crate::Portable`] says that they mean the same here. Extensions
//!    of links that have come are made 0 before anybody sees them.

mod borrow;
mod boxes;
mod copies;
mod error;
mod objects;
mod together;

pub use borrow::{MutRef, Ref};
pub use boxes::{DBox, Refused};
pub use error::ObjectError;
pub use objects::{HeapCounts, HeapOptions, Objects};

use crate::colour::{Event, Outcome, Slot, step};
use crate::portable::Portable;
use crate::slab::{Class, Full, Geometry, Memory, Place, SERVED, Slabs, Use};
use crate::word::{Colour, Link, Word};
use copies::{Copies, Copy, Links};
use rustc_hash::FxHashMap;
use std::ptr::{with_exposed_provenance, with_exposed_provenance_mut};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use vgas::{Change, GlobalAddress, Rank, Runtime};

/// The heap of this process. It stays when it has ended: references to it may, too.
static HEAP: OnceLock<Heap> = OnceLock::new();

/// What each look at an object needs: zeros where there is no heap.
static OWN: Own = Own { base: AtomicU64::new(0), bytes: AtomicU64::new(0), tag: AtomicU64::new(0) };

struct Own {
    base: AtomicU64,
    bytes: AtomicU64,
    /// This rank's number plus 1: in extensions.
    tag: AtomicU64,
}

impl Own {
    /// Where an address is in this rank's partition.
    #[inline]
    fn offset_of(&self, address: u64) -> Option<u64> {
        let offset = address.wrapping_sub(self.base.load(Ordering::Relaxed));
        (offset < self.bytes.load(Ordering::Relaxed)).then_some(offset)
    }
}

/// Objects of other ranks to be freed that travel together.
const FREES: usize = 64;
/// After so many new objects, a rank looks for what others have freed.
const LOOK_AFTER: u64 = 64;

/// The words of this rank's partition.
#[derive(Debug)]
struct Mapped {
    base: u64,
    bytes: u64,
}

impl Mapped {
    fn word(&self, offset: u64) -> &AtomicU32 {
        assert!(offset < self.bytes && offset.is_multiple_of(4), "offset {offset} of {}", self.bytes);
        // SAFETY: rule 1: inside of the partition, and used as an atomic.
        unsafe { AtomicU32::from_ptr(with_exposed_provenance_mut((self.base + offset) as usize)) }
    }
}

impl Memory for Mapped {
    fn load(&self, offset: u64) -> u32 {
        self.word(offset).load(Ordering::Relaxed)
    }

    fn store(&self, offset: u64, word: u32) {
        self.word(offset).store(word, Ordering::Relaxed);
    }
}

/// An object of another rank that is to be freed.
#[derive(Debug)]
struct Freed {
    word: Word,
    /// What its rank's extensions in it counted as: copies that it may drop.
    holds: Vec<Word>,
    /// Bytes of its slot that are known to be there.
    bytes: usize,
}

impl Freed {
    fn of<T>(word: Word, holds: Vec<Word>) -> Self {
        // As many as the smallest slot has.
        Self { word, holds, bytes: size_of::<T>().max(16) }
    }

    /// What is written into its slot: the next of the list, and what it held, up to a zero or the slot's end. A link takes 16 bytes, so that
    /// there is always room.
    fn note(&self, next: u64) -> Vec<u64> {
        let holds = self.holds.iter().map(|word| word.bits());
        [next].into_iter().chain(holds).chain([0]).take(self.bytes / 8).collect()
    }
}

#[derive(Debug)]
struct Heap {
    runtime: Runtime,
    base: u64,
    stride: u64,
    /// Of each rank's partition.
    bytes: u64,
    /// Of this rank's partition.
    geometry: Geometry,
    last: Colour,
    copies_max: usize,
    slabs: Mutex<Slabs<Mapped>>,
    copies: Copies,
    /// By rank: what is to be freed there.
    frees: Mutex<FxHashMap<Rank, Vec<Freed>>>,
    allocated: AtomicU64,
}

fn heap() -> Result<&'static Heap, ObjectError> {
    HEAP.get().filter(|_| OWN.tag.load(Ordering::Relaxed) != 0).ok_or(ObjectError::NoHeap)
}

/// The class of a type's slots.
const fn class_of<T>() -> Class {
    match Class::of(size_of::<T>() as u64, align_of::<T>() as u64) {
        Some(class) => class,
        None => panic!("no object is aligned to more than 64 KiB"),
    }
}

fn links_of<T: Portable>(address: u64, visit: &mut dyn FnMut(&Link)) {
    // SAFETY: rule 3: called with the address of a copy of a `T` that is this rank's to free.
    unsafe { &*with_exposed_provenance::<T>(address as usize) }.links(visit);
}

/// Other ranks' extensions mean nothing here. Yields what those were about that counted where the value comes from.
fn scrub(value: &impl Portable) -> Vec<Word> {
    let mut holds = Vec::new();
    value.links(&mut |link| {
        if link.extension.swap(0, Ordering::Relaxed) != 0 {
            holds.push(link.word);
        }
    });
    holds
}

impl Heap {
    fn slabs(&self) -> MutexGuard<'_, Slabs<Mapped>> {
        // A panic inside would be a mistake of this crate; what it has left is no worse for the next.
        self.slabs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Who has an address, and where.
    fn locate(&self, address: u64) -> GlobalAddress {
        let offset = address.wrapping_sub(self.base);
        GlobalAddress::tiered(Rank((offset / self.stride) as u32), offset % self.stride)
    }

    fn address_of(&self, offset: u64) -> u64 {
        OWN.base.load(Ordering::Relaxed) + offset
    }

    /// Room in this rank's partition: copies that nobody uses give way.
    fn allocate(&self, class: Class, of: Use) -> Result<(u64, Colour), ObjectError> {
        if self.allocated.fetch_add(1, Ordering::Relaxed).is_multiple_of(LOOK_AFTER) {
            self.collect()?;
        }
        let mut is_collected = false;
        loop {
            let full: Full = match self.slabs().allocate(class, of) {
                Ok(Place { offset, colour }) => return Ok((self.address_of(offset), colour)),
                Err(full) => full,
            };
            if !std::mem::replace(&mut is_collected, true) {
                self.collect()?;
            } else if !self.evict()? {
                return Err(full.into());
            }
        }
    }

    /// Drops the oldest copy that nobody uses; false: there is none.
    fn evict(&self) -> Result<bool, ObjectError> {
        match self.copies.evict() {
            Some(copy) => self.forget(copy).map(|()| true),
            None => Ok(false),
        }
    }

    /// Frees a copy that cannot be found any more.
    fn forget(&self, copy: Copy) -> Result<(), ObjectError> {
        if let Some(links) = copy.links {
            links(copy.address, &mut |link| self.release(link));
        }
        let offset = OWN.offset_of(copy.address).ok_or(ObjectError::NoHeap)?;
        let colour = {
            let slabs = self.slabs();
            let at = slabs.geometry().word_of(offset, copy.class).unwrap_or_default();
            Colour((slabs.memory().load(at) >> 16) as u16)
        };
        Ok(self.slabs().free(offset, colour)?)
    }

    /// Ends the use that a link stands for, if any.
    fn release(&self, link: &Link) {
        let extension = link.extension.swap(0, Ordering::AcqRel);
        if extension >> 48 == OWN.tag.load(Ordering::Relaxed) && extension != 0 {
            self.copies.release(link.word);
        }
    }

    /// Frees what others have freed of this rank's: a list through the slots themselves, whose head is the partition's first word.
    fn collect(&self) -> Result<(), ObjectError> {
        let first = self.list_word(0).swap(0, Ordering::AcqRel);
        let mut next = Word::from_bits(first);
        while let Some(word) = next {
            let offset = OWN.offset_of(word.address()).filter(|offset| offset.is_multiple_of(16));
            let Some(offset) = offset else {
                return Err(ObjectError::Usage(format!(
                    "another rank has freed {word:?}, which is not here"
                )));
            };
            next = Word::from_bits(self.list_word(offset).load(Ordering::Relaxed));
            let words = self.slabs().bytes_at(offset)? / 8;
            let noted = (1..words).map(|at| self.list_word(offset + 8 * at).load(Ordering::Relaxed));
            noted.map_while(Word::from_bits).for_each(|held| self.copies.release(held));
            self.slabs().free(offset, word.colour())?;
        }
        Ok(())
    }

    fn list_word(&self, offset: u64) -> &AtomicU64 {
        let address = self.address_of(offset);
        // SAFETY: rule 1: the head of the partition, or a word of a slot that is nobody's; an atomic.
        unsafe { AtomicU64::from_ptr(with_exposed_provenance_mut(address as usize)) }
    }

    /// Frees an object of this rank's, whose value has been dropped or moved.
    fn free_own(&self, word: Word) -> Result<(), ObjectError> {
        let offset = OWN.offset_of(word.address()).ok_or(ObjectError::NoHeap)?;
        Ok(self.slabs().free(offset, word.colour())?)
    }

    /// Frees an object of another rank, whose value has been dropped or moved.
    fn free_there(&self, freed: Freed) -> Result<(), ObjectError> {
        let rank = self.locate(freed.word.address()).rank;
        let full = {
            let mut frees = self.frees.lock().unwrap_or_else(PoisonError::into_inner);
            let list = frees.entry(rank).or_default();
            list.push(freed);
            if list.len() < FREES {
                return Ok(());
            }
            std::mem::take(list)
        };
        self.send_frees(&full)
    }

    /// Tells all ranks what has been freed of theirs.
    fn flush(&self) -> Result<(), ObjectError> {
        let all = std::mem::take(&mut *self.frees.lock().unwrap_or_else(PoisonError::into_inner));
        all.values().try_for_each(|freed| self.send_frees(freed))
    }

    /// Chains objects of one rank, and hangs them before what that rank has not yet collected.
    fn send_frees(&self, all: &[Freed]) -> Result<(), ObjectError> {
        let (Some(first), Some(last)) = (all.first(), all.last()) else { return Ok(()) };
        for (at, freed) in all.iter().enumerate() {
            let next = all.get(at + 1).map_or(0, |next| next.word.bits());
            self.runtime.put(self.locate(freed.word.address()), &freed.note(next))?;
        }
        let (first, last) = (first.word, self.locate(last.word.address()));
        let head = GlobalAddress { offset: 0, ..last };
        let mut before: u64 = self.runtime.get_value(head)?;
        loop {
            self.runtime.put_value(last, before)?;
            let was = self.runtime.compare_swap(head, before, first.bits())?;
            if was == before {
                return Ok(());
            }
            before = was;
        }
    }

    /// Reads the bytes of another rank's object.
    fn read<T: Portable>(&self, word: Word, to: *mut T) -> Result<(), ObjectError> {
        let at = self.locate(word.address());
        // SAFETY: the callers': memory of that size, which only they have; any bytes may be there before.
        let bytes = unsafe {
            to.cast::<u8>().write_bytes(0, size_of::<T>());
            std::slice::from_raw_parts_mut(to.cast::<u8>(), size_of::<T>())
        };
        self.runtime.get(at, bytes).map_err(|why| Self::lost::<T>(word, at.rank, why))
    }

    fn lost<T>(word: Word, rank: Rank, why: vgas::Error) -> ObjectError {
        ObjectError::Lost { type_name: std::any::type_name::<T>(), address: word.address(), rank, why }
    }

    /// A copy of another rank's object, in memory of this one.
    fn fetch<T: Portable>(&self, word: Word) -> Result<Copy, ObjectError> {
        let class = const { class_of::<T>() };
        while self.copies.count() > self.copies_max && self.evict()? {}
        let at = self.locate(word.address());
        let theirs = Geometry::new(word.address() - at.offset, self.bytes);
        let served = theirs.word_of(at.offset, class).ok_or_else(|| {
            ObjectError::Usage(format!("no {} can be at {word:?}", std::any::type_name::<T>()))
        })?;
        // Before its bytes are read: its next writer must see it.
        self.runtime
            .update(GlobalAddress { offset: served, ..at }, Change::Or(SERVED))
            .map_err(|why| Self::lost::<T>(word, at.rank, why))?;
        // What its rank has counted there, that rank counts on.
        let address = self.bring::<T>(word, Use::Copies)?.0.address();
        let links: Option<Links> = T::HAS_LINKS.then_some(links_of::<T>);
        Ok(Copy { address, class, links })
    }

    /// Brings another rank's value here, into a slot of its own; with what [`scrub`] has found.
    fn bring<T: Portable>(&self, word: Word, of: Use) -> Result<(Word, Vec<Word>), ObjectError> {
        let (address, colour) = self.allocate(const { class_of::<T>() }, of)?;
        let new = Word::new(address, colour).ok_or(ObjectError::NoHeap)?;
        let to: *mut T = with_exposed_provenance_mut(address as usize);
        if let Err(error) = self.read(word, to) {
            self.free_own(new)?;
            return Err(error);
        }
        // SAFETY: rule 3: the slot has the bytes of a `T` now, and nobody else knows of it.
        let holds = if T::HAS_LINKS { scrub(unsafe { &*to }) } else { Vec::new() };
        Ok((new, holds))
    }

    /// Where a borrowed object of another rank is here; one more use of its copy.
    fn hold<T: Portable>(&self, word: Word) -> Result<u64, ObjectError> {
        self.copies.hold(word, || self.fetch::<T>(word))
    }

    /// As [`Heap::hold`], once for a link: it remembers.
    #[cold]
    fn find<T: Portable>(&self, link: &Link) -> Result<u64, ObjectError> {
        let address = self.hold::<T>(link.word)?;
        let tag = OWN.tag.load(Ordering::Relaxed);
        let mine = (tag << 48) | address;
        // Another thread may have come first.
        match link.extension.compare_exchange(0, mine, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {}
            Err(other) if other == mine => self.copies.release(link.word),
            Err(_) => return Err(ObjectError::Usage("a link of another rank's was not scrubbed".into())),
        }
        Ok(address)
    }

    /// Makes an object this rank's, in a colour under which nobody has its bytes.
    #[cold]
    fn own<T: Portable>(&self, link: &mut Link) -> Result<(), ObjectError> {
        let word = link.word;
        let Some(offset) = OWN.offset_of(word.address()) else {
            let (new, holds) = self.bring::<T>(word, Use::Values)?;
            self.release(link);
            link.word = new;
            return self.free_there(Freed::of::<T>(word, holds));
        };
        let class = const { class_of::<T>() };
        let at = self.geometry.word_of(offset, class).ok_or(ObjectError::NoHeap)?;
        let slabs = self.slabs();
        let slot = Slot::Live { served: slabs.memory().load(at) & SERVED != 0 };
        match step(slot, Event::Write(word.colour()), self.last) {
            Some((_, Outcome::Takes(colour))) => {
                let live = slabs.memory().load(at) & 0xffff & !SERVED;
                slabs.memory().store(at, (u32::from(colour.0) << 16) | live);
                link.word = word.coloured(colour);
                Ok(())
            }
            Some((_, Outcome::Move)) => {
                drop(slabs);
                let (address, colour) = self.allocate(class, Use::Values)?;
                let from = with_exposed_provenance::<u8>(word.address() as usize);
                // SAFETY: rule 2: the caller has the box mutably borrowed; the new slot is of the same class and nobody's.
                unsafe {
                    with_exposed_provenance_mut::<u8>(address as usize)
                        .copy_from_nonoverlapping(from, size_of::<T>());
                }
                link.word = Word::new(address, colour).ok_or(ObjectError::NoHeap)?;
                self.free_own(word)
            }
            _ => Ok(()),
        }
    }

    /// Whether an object of this rank has been given to others in its colour.
    #[inline]
    fn is_served<T>(&self, offset: u64) -> bool {
        let Some(at) = self.geometry.word_of(offset, const { class_of::<T>() }) else { return true };
        let address = OWN.base.load(Ordering::Relaxed) + at;
        // SAFETY: rule 1: the word of a slot of the own partition, used as an atomic.
        let word = unsafe { AtomicU32::from_ptr(with_exposed_provenance_mut(address as usize)) };
        word.load(Ordering::Acquire) & SERVED != 0
    }
}
