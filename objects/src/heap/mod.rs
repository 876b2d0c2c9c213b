//! The heap of a process: its partition, its copies of remote objects, and the life of objects.
//!
//! # Rules for the unsafe code in this folder
//!
//! 1. *Addresses.* Memory is touched only inside of this rank's own partition, which is mapped from
//!    [`Objects::attach`] on until the job ends, in a slot that the allocator has given and that is not
//!    freed, or in a block of `overflow.rs`; words of slots and of lists as atomics.
//! 2. *One owner.* The word of an object is in one box. A box's object is written, moved, dropped and freed
//!    only by the thread that has the box mutably borrowed or owns it; it is read only while the box is
//!    borrowed. A copy is never written once others can find it, except the extensions of links, which are
//!    atomics; it is freed only when its count of uses is 0, and each reference to it is counted.
//! 3. *Bytes are values.* A slot has a valid value of the type of its box from when the box exists until it
//!    is freed. Bytes from another rank are such a value: ranks of a job run one program, and
//!    [`crate::Portable`] promises that they mean the same here. Extensions of links that have come are made
//!    0 before anybody sees them.

mod ahead;
mod borrow;
mod boxes;
mod bring_all;
mod copies;
mod drops;
mod elsewhere;
mod entry;
mod error;
mod extension;
mod fetch;
mod frees;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod group;
mod head;
mod helper;
mod hooks;
mod later;
mod left;
mod loans;
mod map;
mod mates;
mod messages;
mod objects;
mod overflow;
mod part;
mod period;
mod raw;
mod read_all;
mod replica;
mod report;
mod rest;
mod retired;
mod roots;
mod running;
mod seam;
mod shared;
mod text;
mod tied;
mod together;
mod usual;
mod vec;

pub use ahead::prefetch;
pub use borrow::{MutRef, Ref};
pub use boxes::DBox;
pub(crate) use drops::{drop_for_others, has_drops_to_do, is_dropping, tell_drops};
pub(crate) use elsewhere::{SlotAnswer, give_back, room_for};
pub use entry::{Entry, OccupiedEntry, VacantEntry};
pub use error::{LostObject, ObjectError, OtherLayout, Refused};
pub use later::Get;
pub(crate) use left::{discard_left, drop_value, take_out};
pub(crate) use loans::{OpenLoan, borrow, borrow_from, make_dead, note_given};
pub use map::{DMap, DMapEntries, DMapEntriesMut, DMapIter, MapRef};
pub(crate) use messages::{LIBRARY, Messages};
pub use objects::{HeapCounts, HeapOptions, Objects};
pub use part::Part;
pub use raw::{dalloc, dfree, dread, dwrite};
pub use read_all::NotRead;
pub use replica::Replicated;
pub use report::{NodeReport, RankReport, Report, TypeReport};
pub use rest::{HeapAtRest, LookError, PartitionAtRest, RootAtRest, SizeAtRest, heaps_at_rest};
pub(crate) use retired::{answer_questions, has_questions};
pub use running::{
    CopiesRunning, HeapRunning, HomeRunning, PartitionRunning, RunningError, SilentRank, SizeRunning,
    heaps_running,
};
pub(crate) use seam::{add, cannot_be_had, discard, is_lost, is_own, lost_node, place_of, replace, update};
pub use text::DString;
pub use tied::TBox;
pub use vec::DVec;

use crate::bytes::{self, assume_written, initialise};
use crate::colour::{Event, Outcome, Slot, step};
use crate::planted::{Fault, is_planted};
use crate::portable::Portable;
use crate::shape::Shape;
use crate::slab::{Class, Full, Geometry, Memory, SERVED, Slabs, SlotPlace, Use, word_address};
use crate::word::{ADDRESS_BITS, ADDRESS_MASK, Colour, Link, Word};
use copies::{Copies, Copy};
use mates::LocalPeers;
use rustc_hash::{FxHashMap, FxHashSet};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr::{with_exposed_provenance, with_exposed_provenance_mut};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use vgas::{GlobalAddress, Kind, LocalPart, Rank, Runtime, Segment, SegmentId};

/// The heap of this process. It stays when it has ended: references to it may, too.
static HEAP: OnceLock<Heap> = OnceLock::new();

/// Addresses that each look at an object needs: zeros if there is no heap.
static OWN: OwnPartition = OwnPartition {
    base: AtomicU64::new(0),
    bytes: AtomicU64::new(0),
    large_words: AtomicU64::new(0),
    tag: AtomicU64::new(0),
};

struct OwnPartition {
    base: AtomicU64,
    bytes: AtomicU64,
    /// Address of the table of the words of large objects ([`Geometry::large_words`]).
    large_words: AtomicU64,
    /// This rank's number plus 1, and more after earlier jobs ([`head::tag_of`]): in extensions.
    tag: AtomicU64,
}

impl OwnPartition {
    /// Returns the offset of an address in this rank's partition.
    #[inline]
    fn offset_of(&self, address: u64) -> Option<u64> {
        let offset = address.wrapping_sub(self.base.load(Ordering::Relaxed));
        (offset < self.bytes.load(Ordering::Relaxed)).then_some(offset)
    }

    /// Returns true if an object of this rank, in a slot of this class, has been given to other ranks in its
    /// colour.
    #[inline]
    fn is_served(&self, address: u64, class: Class) -> bool {
        let at = match class {
            Class::Small(number) => word_address(number, address),
            Class::Large(_) => self.large_words.load(Ordering::Relaxed).wrapping_add(address >> 12),
        };
        // SAFETY: rule 1: the word of a slot of the own partition, used as an atomic; rule 3: the box of an object knows its class.
        let word = unsafe { AtomicU32::from_ptr(with_exposed_provenance_mut(at as usize)) };
        word.load(Ordering::Acquire) & SERVED != 0
    }

    /// Returns the local address of a link's object or its copy, if known without a lookup.
    #[inline]
    fn known(&self, link: &Link) -> Option<u64> {
        let address = link.word.address();
        if self.offset_of(address).is_some() {
            return Some(address);
        }
        let (extension, tag) = (link.extension.load(Ordering::Acquire), self.tag.load(Ordering::Relaxed));
        (tag != 0 && extension >> ADDRESS_BITS == tag).then_some(extension & ADDRESS_MASK)
    }
}

/// Objects of other ranks to be freed that travel together.
const FREES: usize = 64;
/// The same of their bytes: large objects are not to wait for many others before their memory is used again.
const FREES_BYTES: usize = 1 << 20;
/// Number of new objects after which a rank collects slots freed by others.
const LOOK_AFTER: u64 = 64;
/// A new object of more bytes counts as several.
const LOOK_BYTES: u64 = 16 << 10;

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

    /// Reads words as they are at some moment, each by itself: other threads may be writing there.
    fn read(&self, offset: u64, to: &mut [u64]) {
        let bytes = 8 * to.len() as u64;
        assert!(offset.is_multiple_of(8) && offset + bytes <= self.bytes, "{bytes} bytes at {offset}");
        let first = (self.base + offset) as usize;
        // Values there may have padding.
        assume_written(with_exposed_provenance_mut(first));
        for (at, word) in to.iter_mut().enumerate() {
            // SAFETY: rule 1: inside of the partition, and used as an atomic. No other rank has been told of
            // values that a thread writes there meanwhile, and the bytes read are not taken for a value
            // before they were read again.
            let here = unsafe { AtomicU64::from_ptr(with_exposed_provenance_mut(first + 8 * at)) };
            *word = here.load(Ordering::Relaxed);
        }
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
    /// Copies that its rank's extensions in it counted, which may be dropped.
    holds: Vec<Word>,
    /// Bytes of its slot that are known to be there.
    bytes: usize,
}

impl Freed {
    fn of(word: Word, holds: Vec<Word>, shape: &Shape) -> Self {
        // As many as the smallest slot has.
        Self { word, holds, bytes: shape.bytes.max(16) }
    }

    /// Returns the words to write into its slot: the next of the list, and the copies it held, up to a zero
    /// or the slot's end. A link takes 16 bytes, so that there is always room.
    fn note(&self, next: u64) -> Vec<u64> {
        let holds = self.holds.iter().map(|word| word.bits());
        [next].into_iter().chain(holds).chain([0]).take(self.bytes / 8).collect()
    }

    /// Returns the number of these words.
    fn note_words(&self) -> usize {
        (self.holds.len() + 2).min(self.bytes / 8)
    }
}

/// The number of the heap's segment.
pub(crate) const SEGMENT: SegmentId = vgas::library_segment(0);

/// The slot of the segment of backups.
const BACKUP_SLOT: u16 = 1;

/// A place in a rank's partition of the heap.
pub(crate) fn place(rank: Rank, offset: u64) -> GlobalAddress {
    GlobalAddress { rank, kind: Kind::Tiered, segment: SEGMENT, offset }
}

#[derive(Debug)]
struct Heap {
    runtime: Runtime,
    segment: Segment,
    /// This rank's partition, by pointers, until the process ends.
    _local: LocalPart,
    base: u64,
    stride: u64,
    /// Size of each rank's partition.
    bytes: u64,
    /// Layout of this rank's partition.
    geometry: Geometry,
    last: Colour,
    /// Number of earlier jobs of this heap.
    jobs: u32,
    /// The tag of the first rank.
    first_tag: u64,
    copies_max: usize,
    /// Bytes of its partition that copies may take, beyond which unused ones go.
    copy_bytes_max: u64,
    /// The other ranks of the node: their partitions, if open.
    mates: LocalPeers,
    /// Number of copies made by this rank: each has its serial number.
    serial: AtomicU64,
    slabs: Mutex<Slabs<Mapped>>,
    copies: Copies,
    overflow: overflow::Overflow,
    /// By rank: the objects to free there.
    frees: Mutex<FxHashMap<Rank, Vec<Freed>>>,
    /// Ranks of other nodes whose home was told of objects, and has not answered.
    told: Mutex<FxHashSet<Rank>>,
    drops: drops::Drops,
    questions: retired::Questions,
    allocated: AtomicU64,
    elsewhere: elsewhere::RemoteRoom,
    hooks: &'static hooks::Hooks,
    /// Objects that are found by name.
    roots: Mutex<Option<DBox<roots::Root>>>,
    replicas: Option<replica::Replicas>,
    /// Entry for observers of the job.
    door: running::Door,
}

/// A value leaves this process as bytes, or is forgotten: the notes of its links count no more.
pub(crate) fn leave_behind<T: Portable>(value: &T) {
    value.links(&mut |link| match heap() {
        Ok(heap) => heap.release(link),
        Err(_) => link.extension.store(0, Ordering::Relaxed),
    });
}

/// Gives a value up, and appends its bytes.
pub(crate) fn give<T: Portable>(value: T, to: &mut Vec<u8>) {
    let mut value = ManuallyDrop::new(value);
    // The notes of its links count no more.
    leave_behind(&*value);
    to.extend_from_slice(bytes::of(&mut *value));
}

/// The job of the heap of this process.
pub(crate) fn job() -> Result<&'static Runtime, ObjectError> {
    heap().map(|heap| &heap.runtime)
}

/// Returns the number of earlier jobs on this heap.
pub(crate) fn jobs_before() -> Result<u32, ObjectError> {
    heap().map(|heap| heap.jobs)
}

/// Ends the job: memory that another process may still use would otherwise be reused here. Mostly a rank was
/// killed, which should be reported as the job's end: so it is a complaint, and no signal.
pub(crate) fn cannot_go_on(why: &str) -> ! {
    complain(why);
    std::process::exit(1)
}

/// Reports a failure that another process caused: the job's end names the cause, or this if nothing better is
/// known. If the job takes no complaint, this process prints it.
pub(crate) fn complain(why: &str) {
    if job().map(|job| job.complain(why, 1).is_ok()).unwrap_or(false) {
        return;
    }
    vgas::say::line(format_args!("vgas: {why}"));
}

/// Returns true if a value has links to objects: not every value of a type with links does.
pub(crate) fn has_links<T: Portable>(value: &T) -> bool {
    let mut has_links = false;
    if T::HAS_LINKS {
        value.links(&mut |_| has_links = true);
    }
    has_links
}

/// Something is passed on to another rank: the objects that it leads to must be found, even when this node is
/// lost by then (see [`replica`]), and are not written before a check if others have been given them (see
/// [`period`]). `gives`: it has links, which may be of loans to this rank (see [`loans`]).
pub(crate) fn pass_on(gives: bool) -> Result<(), ObjectError> {
    if gives {
        loans::tell_lenders()?;
    }
    heap()?.replicate().map(drop)
}

/// Returns true if a node is lost, and the heap continues without it.
pub(crate) fn goes_on() -> bool {
    heap().is_ok_and(Heap::goes_on)
}

/// Returns the rank of an address, if any.
pub(crate) fn rank_of(address: u64) -> Option<Rank> {
    let heap = heap().ok()?;
    let rank = heap.locate(address).rank;
    (rank.0 < heap.runtime.ranks()).then_some(rank)
}

/// Returns the memory of a slot, into which bytes come: a value that it had may have left padding.
///
/// # Safety
/// Rule 1: this many bytes, which only the caller uses.
unsafe fn room<'r>(address: u64, bytes: usize) -> &'r mut [u8] {
    let first = with_exposed_provenance_mut::<MaybeUninit<u8>>(address as usize);
    // SAFETY: the caller's promise.
    initialise(unsafe { std::slice::from_raw_parts_mut(first, bytes) })
}

#[inline]
fn heap() -> Result<&'static Heap, ObjectError> {
    HEAP.get().filter(|_| OWN.tag.load(Ordering::Relaxed) != 0).ok_or(ObjectError::NoHeap)
}

impl Heap {
    fn slabs(&self) -> MutexGuard<'_, Slabs<Mapped>> {
        // A panic inside would be a mistake of this crate; what it has left is no worse for the next.
        self.slabs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes into an object's slot, on whichever rank.
    fn put(&self, address: u64, from: &[u8]) -> vgas::Result<()> {
        let at = self.locate(address);
        self.segment.put(at.rank, at.offset, from)
    }

    /// Returns the rank and offset of an address.
    fn locate(&self, address: u64) -> GlobalAddress {
        let offset = address.wrapping_sub(self.base);
        place(Rank((offset / self.stride) as u32), offset % self.stride)
    }

    /// Returns the tag of the extensions of the rank that has a word's object.
    fn tag_of(&self, word: Word) -> u64 {
        self.first_tag + u64::from(self.locate(word.address()).rank.0)
    }

    /// Returns the header of this rank's partition, as if it ended now.
    fn head(&self, roots: Option<Word>) -> head::Head {
        let slabs = self.slabs();
        head::Head {
            base: self.base,
            stride: self.stride,
            jobs: self.jobs,
            last_colour: self.last.0,
            roots,
            live: slabs.live() - self.copies.kept().0 as u64,
            used: slabs.used(),
            slack: head::Head::slack_of(self.bytes),
        }
    }

    fn address_of(&self, offset: u64) -> u64 {
        OWN.base.load(Ordering::Relaxed) + offset
    }

    /// Called before an allocation, now and then: collects slots freed and values let go of by others, and
    /// tells them the same.
    fn look(&self, class: Class, of: Use) -> Result<(), ObjectError> {
        let counts = 1 + class.bytes() / LOOK_BYTES;
        let before = self.allocated.fetch_add(counts, Ordering::Relaxed);
        if before == 0 || before / LOOK_AFTER != before.wrapping_add(counts) / LOOK_AFTER {
            self.collect()?;
            self.tend_retired()?;
            // Not while others wait for a copy.
            if of == Use::Values {
                self.send_all_drops()?;
                self.drop_come(drops::DROPS_MOST)?;
            }
        }
        Ok(())
    }

    /// Allocates in this rank's partition: unused copies give way.
    fn allocate(&self, class: Class, of: Use) -> Result<(u64, Colour), ObjectError> {
        self.look(class, of)?;
        self.allocate_all(class, of)
    }

    fn allocate_all(&self, class: Class, of: Use) -> Result<(u64, Colour), ObjectError> {
        let mut is_collected = false;
        loop {
            let full: Full = match self.slabs().allocate(class, of) {
                Ok(SlotPlace { offset, colour }) => return Ok((self.address_of(offset), colour)),
                Err(full) => full,
            };
            if !std::mem::replace(&mut is_collected, true) {
                self.collect()?;
                self.drop_come(usize::MAX)?;
                self.revive_answered()?;
            } else if !self.evict()? {
                return Err(Full { rank: Some(self.runtime.rank().0), ..full }.into());
            }
        }
    }

    /// Drops the oldest unused copy; false: there is none.
    fn evict(&self) -> Result<bool, ObjectError> {
        match self.copies.evict() {
            Some(copy) => {
                self.mates.evicted.fetch_add(1, Ordering::Relaxed);
                self.forget(copy).map(|()| true)
            }
            None => Ok(false),
        }
    }

    /// Frees a copy that is not found any more.
    fn forget(&self, copy: Copy) -> Result<(), ObjectError> {
        if let Some(links) = copy.links {
            links(copy.address, copy.bytes, &mut |link| self.release(link));
        }
        if copy.is_overflow {
            self.overflow.free(copy.address);
            return Ok(());
        }
        let offset = OWN.offset_of(copy.address).ok_or(ObjectError::NoHeap)?;
        self.unlabel(offset, copy.bytes);
        let colour = {
            let slabs = self.slabs();
            let at = slabs.geometry().word_of(offset, copy.class).unwrap_or_default();
            Colour((slabs.memory().load(at) >> 16) as u16)
        };
        Ok(self.slabs().free(offset, colour)?)
    }

    /// Ends the use that a link stands for, if any.
    fn release(&self, link: &Link) {
        let (tag, may_release) = (OWN.tag.load(Ordering::Relaxed), !is_planted(Fault::ForgottenUse));
        extension::take(&self.copies, &link.extension, link.word, tag, may_release);
    }

    /// Collects this rank's slots that others have freed: a list through the slots themselves, whose head is
    /// the partition's first word.
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
        // SAFETY: rule 1: the head of the partition, or a word of an unowned slot; an atomic.
        unsafe { AtomicU64::from_ptr(with_exposed_provenance_mut(address as usize)) }
    }

    /// Frees an object of this rank's, whose value has been dropped or moved; deferred if a late request may
    /// still read it.
    fn free_own(&self, word: Word) -> Result<(), ObjectError> {
        let offset = OWN.offset_of(word.address()).ok_or(ObjectError::NoHeap)?;
        if self.park_own(word, offset) {
            return Ok(());
        }
        Ok(self.slabs().free(offset, word.colour())?)
    }

    fn free_own_now(&self, word: Word) -> Result<(), ObjectError> {
        let offset = OWN.offset_of(word.address()).ok_or(ObjectError::NoHeap)?;
        Ok(self.slabs().free(offset, word.colour())?)
    }

    /// Frees an object of another rank, whose value has been dropped or moved; as [`Heap::free_own`].
    fn free_there(&self, freed: Freed) -> Result<(), ObjectError> {
        if is_planted(Fault::ForgottenFree) {
            return Ok(());
        }
        // This rank's copy of it is memory for the next.
        if let Some(copy) = self.copies.take_of_dropped(freed.word) {
            self.forget(copy)?;
        }
        self.park_there(freed).map_or(Ok(()), |freed| self.free_there_now(freed))
    }

    fn free_there_now(&self, freed: Freed) -> Result<(), ObjectError> {
        let rank = self.locate(freed.word.address()).rank;
        let full = {
            let mut frees = self.frees.lock().unwrap_or_else(PoisonError::into_inner);
            let list = frees.entry(rank).or_default();
            list.push(freed);
            let bytes: usize = list.iter().map(|freed| freed.bytes).sum();
            if list.len() < FREES && bytes < FREES_BYTES {
                return Ok(());
            }
            std::mem::take(list)
        };
        self.send_frees(rank, &full, false)
    }

    /// Tells all ranks what has been freed of theirs.
    fn flush(&self) -> Result<(), ObjectError> {
        self.send_all_drops()?;
        let all = std::mem::take(&mut *self.frees.lock().unwrap_or_else(PoisonError::into_inner));
        let told = std::mem::take(&mut *self.told.lock().unwrap_or_else(PoisonError::into_inner));
        let ranks: FxHashSet<Rank> = all.keys().copied().chain(told).collect();
        ranks
            .into_iter()
            .try_for_each(|rank| self.send_frees(rank, all.get(&rank).map_or(&[], Vec::as_slice), true))
    }

    /// Brings another rank's values here, into a slot of its own; returns the notes that [`Shape::scrub`] has
    /// found.
    fn bring(&self, word: Word, shape: &Shape) -> Result<(Word, Vec<Word>), ObjectError> {
        let (address, colour) = self.allocate(shape.class, Use::Values)?;
        let new = Word::new(address, colour).ok_or(ObjectError::NoHeap)?;
        let read = self.read_group(word, shape, None).and_then(|found| match found {
            Some(found) => self.settle(word, shape, address, &found),
            None => {
                // SAFETY: rule 1: a slot for these bytes, which only this code uses.
                unsafe { self.read(word, shape, address as usize, None) }?;
                Ok(shape.scrub(address, self.tag_of(word)))
            }
        });
        match read {
            Ok(holds) => Ok((new, holds)),
            Err(error) => {
                self.free_own(new)?;
                Err(error)
            }
        }
    }

    /// Returns the local address of a borrowed remote object; counts one more use of its copy.
    fn hold(&self, word: Word, shape: &Shape) -> Result<u64, ObjectError> {
        self.copies.hold(word, || self.fetch(word, shape))
    }

    /// As [`Heap::hold`], once for a link: it remembers.
    #[cold]
    fn find(&self, link: &Link, shape: &Shape) -> Result<u64, ObjectError> {
        if let Some(address) = self.in_place(link.word, shape) {
            self.note(link, address, false);
            return Ok(address);
        }
        let address = self.hold(link.word, shape)?;
        self.note(link, address, true);
        Ok(address)
    }

    /// Notes in a link the place of its object, or of a copy, one use of which it is from now on.
    fn note(&self, link: &Link, address: u64, is_copy: bool) {
        let tag = OWN.tag.load(Ordering::Relaxed);
        if is_copy {
            extension::note(&self.copies, &link.extension, link.word, tag, address);
        } else {
            // The address of the object itself: no copy, and nothing that counts.
            link.extension.store(tag << 48 | address, Ordering::Release);
        }
    }

    /// Makes an object this rank's, in a colour under which no other rank has its bytes.
    #[cold]
    fn own(&self, link: &mut Link, shape: &Shape) -> Result<(), ObjectError> {
        let word = link.word;
        let Some(offset) = OWN.offset_of(word.address()) else {
            let (new, holds) = self.bring(word, shape)?;
            self.release(link);
            link.word = new;
            return self.free_there(Freed::of(word, holds, shape));
        };
        let at = self.geometry.word_of(offset, shape.class).ok_or(ObjectError::NoHeap)?;
        let slabs = self.slabs();
        let served = slabs.memory().load(at) & SERVED != 0 && !is_planted(Fault::KeptColour);
        let slot = Slot::Live { served };
        match step(slot, Event::Write(word.colour()), self.last) {
            Some((_, Outcome::Takes(colour))) if !self.has_replicas() => {
                let live = slabs.memory().load(at) & 0xffff & !SERVED;
                slabs.memory().store(at, (u32::from(colour.0) << 16) | live);
                link.word = word.coloured(colour);
                Ok(())
            }
            // A replicated value stays unchanged.
            Some((_, Outcome::Takes(_) | Outcome::Move)) => {
                drop(slabs);
                let (address, colour) = self.allocate(shape.class, Use::Values)?;
                let from = with_exposed_provenance::<u8>(word.address() as usize);
                // SAFETY: rule 2: the caller has the box mutably borrowed; the new slot is of the same class
                // and unowned.
                unsafe {
                    with_exposed_provenance_mut::<u8>(address as usize)
                        .copy_from_nonoverlapping(from, shape.bytes);
                }
                link.word = Word::new(address, colour).ok_or(ObjectError::NoHeap)?;
                self.free_own(word)
            }
            _ => Ok(()),
        }
    }
}
