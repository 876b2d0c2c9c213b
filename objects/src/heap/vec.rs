//! [`DVec`]: many values in a row in the global heap.

use super::drops::Level;
use super::error::ObjectError;
use super::part::{Part, Values};
use super::period::PERIOD;
use super::{Freed, Heap, OWN, drops, heap};
use crate::glue::Glue;
use crate::layout::Layout;
use crate::portable::{Portable, Shareable};
use crate::shape::Shape;
use crate::slab::{Class, Use};
use crate::word::{Link, Word};
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, offset_of};
use std::ops::{Bound, Deref, DerefMut, Range, RangeBounds};
use std::panic::Location;
use std::ptr::{with_exposed_provenance, with_exposed_provenance_mut};
use std::sync::atomic::AtomicU64;
use vgas::Rank;

/// An owned, growable row of values in the global heap: like a `Vec`. It is a slice wherever it is read or
/// written; a rank that does not have it reads a copy of all of it, or only [some of it](DVec::range), and a
/// rank that writes it brings it.
///
/// It may lie in boxes and other rows, and these in it, and may be larger than memory: the used part is
/// brought in by pages.
///
/// Each use as a slice asks once for its address, and if others have been given it: a comparison, mostly. A
/// loop that is to be made one of vector instructions needs the slice itself (`let row = &mut row[..];`).
///
/// ```no_run
/// # use vgas_objects::{DVec, ObjectError};
/// # fn sums() -> Result<(), ObjectError> {
/// let mut rows: DVec<DVec<f64>> = DVec::new();
/// rows.push((0..1000).map(f64::from).collect());
/// rows[0].iter_mut().for_each(|number| *number *= 2.0);
/// assert_eq!(rows[0].range(10..12)?[..], [20.0, 22.0]);
/// # Ok(()) }
/// ```
///
/// Values without bytes, as `()` is, it does not hold: to ask for their room panics.
///
/// Its values must be portable; and it is borrowed as a `Vec` is:
///
/// ```compile_fail,E0277
/// # use vgas_objects::DVec;
/// fn texts() -> DVec<String> { DVec::new() }
/// ```
/// ```compile_fail,E0277
/// # use vgas_objects::DVec;
/// fn borrowed(text: &'static str) -> DVec<&'static str> { [text].into_iter().collect() }
/// ```
/// ```compile_fail,E0502
/// # use vgas_objects::DVec;
/// fn grow(mut row: DVec<u64>) { let first = &row[0]; row.push(*first); let _ = first; drop(*first); }
/// ```
/// ```compile_fail,E0502
/// # use vgas_objects::DVec;
/// fn part(mut row: DVec<u64>) { let part = row.range(..).unwrap(); row.clear(); drop(part); }
/// ```
#[repr(C)]
pub struct DVec<T: Portable> {
    /// Class of its slot.
    class: Class,
    /// With `extension`, its link: see [`DVec::link`]. None while it holds nothing.
    word: Option<Word>,
    /// 0 if there is no word, so that a check of the period needs no check for it.
    extension: AtomicU64,
    length: u64,
    owns: PhantomData<T>,
}

/// Kept heaps have rows as they are here.
const _: () = assert!(size_of::<DVec<u8>>() == 32);
const _: () =
    assert!(offset_of!(DVec<u8>, word) == 8 && offset_of!(DVec<u8>, length) == 8 + size_of::<Link>());
const _: () = assert!(offset_of!(Link, word) == 0 && offset_of!(Link, extension) == size_of::<Word>());

// SAFETY: its bytes are a link, which is visited, and numbers.
unsafe impl<T: Portable> Portable for DVec<T> {
    const HAS_LINKS: bool = true;

    fn links(&self, visit: &mut dyn FnMut(&Link)) {
        self.link().into_iter().for_each(visit);
    }

    fn weigh(&self, visit: &mut dyn FnMut(&Link, u64)) {
        if let Some(link) = self.link() {
            visit(link, self.length.saturating_mul(size_of::<T>() as u64));
        }
    }

    fn glue(glue: &mut Glue) {
        glue.part::<T>();
    }

    fn describe(layout: &mut Layout) {
        layout.begin::<Self>();
        T::describe(layout);
    }
}

// SAFETY: as of a box: what it owns does not change behind a shared reference.
unsafe impl<T: Shareable> Shareable for DVec<T> {}

impl<T: Portable> Default for DVec<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// Values are never less than this, so that rows of nothing need no case of their own.
const fn size<T>() -> u64 {
    assert!(
        size_of::<T>() > 0,
        "a `DVec` was asked for room for values without bytes, as `()` is: keep their number instead"
    );
    size_of::<T>() as u64
}

/// Resolves a range for this length; the result may be out of bounds.
pub(super) fn bounds(range: impl RangeBounds<usize>, length: usize) -> Range<usize> {
    let first = match range.start_bound() {
        Bound::Included(&first) => first,
        Bound::Excluded(&before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(&last) => last.saturating_add(1),
        Bound::Excluded(&end) => end,
        Bound::Unbounded => length,
    };
    first..end
}

/// Returns the class of a slot for at least `count` values.
fn room_for<T>(count: u64) -> Result<Class, ObjectError> {
    let bytes = count.checked_mul(size::<T>());
    let class = bytes.and_then(|bytes| Class::of(bytes, align_of::<T>() as u64));
    class.ok_or_else(|| {
        let name = std::any::type_name::<T>();
        ObjectError::Usage(format!("no partition has room for {count} values of {name} in a row"))
    })
}

/// Returns true if a word's object is here, in a slot of this class, and has not been given to another rank
/// in this colour. A call, since what is read in it by an atomic instruction would be in the way of all that
/// a loop around it has in registers.
#[cold]
#[inline(never)]
fn is_unseen(word: Word, class: Class) -> bool {
    OWN.offset_of(word.address()).is_some() && !OWN.is_served(word.address(), class)
}

impl<T: Portable> DVec<T> {
    /// An empty row, which takes no room.
    pub const fn new() -> Self {
        Self {
            class: Class::Small(0),
            word: None,
            extension: AtomicU64::new(0),
            length: 0,
            owns: PhantomData,
        }
    }

    /// Makes an empty row with room for `count` values in this rank's partition.
    ///
    /// # Panics
    /// If this much room is not left in one piece, or there is no heap; [`DVec::try_with_capacity`] returns
    /// the error instead.
    #[track_caller]
    pub fn with_capacity(count: usize) -> Self {
        super::boxes::had(Self::try_with_capacity(count))
    }

    /// [`DVec::with_capacity`].
    ///
    /// # Errors
    /// If this much room is not left in one piece, or there is no heap.
    #[track_caller]
    pub fn try_with_capacity(count: usize) -> Result<Self, ObjectError> {
        let mut row = Self::new();
        row.try_reserve(count)?;
        Ok(row)
    }

    /// A row of copies of these values, in this rank's partition: as `From`, but there may be no room.
    ///
    /// # Errors
    /// If this much room is not left in one piece, or there is no heap.
    #[track_caller]
    pub fn try_from_slice(values: &[T]) -> Result<Self, ObjectError>
    where
        T: Copy,
    {
        let mut row = Self::new();
        row.try_extend_from(values)?;
        Ok(row)
    }

    /// Adds values at the end, as far as there is room: as `Extend`, but there may be none. The row comes
    /// here.
    ///
    /// # Errors
    /// With the first value that has no room, those before being in the row; or when the row cannot be
    /// reached.
    #[track_caller]
    pub fn try_extend(&mut self, values: impl IntoIterator<Item = T>) -> Result<(), super::Refused<T>> {
        let values = values.into_iter();
        // Only a hint, as where it extends.
        let _ = self.try_reserve(values.size_hint().0);
        values.into_iter().try_for_each(|value| self.try_push(value))
    }

    /// Returns the link to its values.
    #[inline]
    fn link(&self) -> Option<&Link> {
        let all = &raw const *self;
        // SAFETY: rule 3: where there is a word, it and the extension are a link, as the assertions above say, borrowed with the row.
        self.word.is_some().then(|| unsafe { &*(&raw const (*all).word).cast::<Link>() })
    }

    /// As [`DVec::link`], to change it.
    #[inline]
    pub(super) fn link_mut(&mut self) -> Option<&mut Link> {
        let is_some = self.word.is_some();
        let all = &raw mut *self;
        // SAFETY: as above; mutably borrowed. The caller writes a link there.
        is_some.then(|| unsafe { &mut *(&raw mut (*all).word).cast::<Link>() })
    }

    /// Returns the number of values; sends no message.
    #[inline]
    pub fn len(&self) -> usize {
        self.length as usize
    }

    /// Returns true if it is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the number of values that its slot has room for.
    pub fn capacity(&self) -> usize {
        self.room() as usize
    }

    /// Asks for its values to be in memory soon, as [`prefetch`](crate::prefetch) of its slice does; another
    /// rank's row is left where it is.
    pub fn prefetch(&self) {
        if let Some(link) = self.link() {
            super::ahead::ask(link.word.address(), self.length * size::<T>());
        }
    }

    /// Returns the rank that has its values; none if it has no slot, or if there is no heap.
    pub fn rank(&self) -> Option<Rank> {
        let word = self.word?;
        heap().ok().map(|heap| heap.locate(word.address()).rank)
    }

    fn room(&self) -> u64 {
        self.word.map_or(0, |_| self.class.bytes() / size::<T>())
    }

    /// Returns true if its slot has room for one more.
    #[inline]
    fn has_room(&self) -> bool {
        self.word.is_some() && (self.length + 1) * size::<T>() <= self.class.bytes()
    }

    pub(super) fn shape(&self) -> Shape {
        Shape::of_some::<T>(self.class, self.length as usize)
    }

    /// Address of a row without bytes.
    #[inline]
    const fn nowhere() -> u64 {
        align_of::<T>() as u64
    }

    /// Returns its local address, for reading.
    fn locate(&self) -> Result<u64, ObjectError> {
        match self.here() {
            Some(address) => Ok(address),
            None => self.find(),
        }
    }

    #[cold]
    #[inline(never)]
    fn find(&self) -> Result<u64, ObjectError> {
        match self.link().filter(|_| self.length > 0) {
            Some(link) => heap()?.find(link, &self.shape()),
            None => Ok(Self::nowhere()),
        }
    }

    /// Returns the word and shape to look up for reading, if its address is not known.
    pub(super) fn sought(&self) -> Option<(Word, Shape)> {
        let link = self.link().filter(|_| self.length > 0 && self.here().is_none())?;
        Some((link.word, self.shape()))
    }

    /// Notes that it was found there, or a copy of it, one use of which is this row's.
    pub(super) fn note(&self, heap: &Heap, (address, copy_of): (u64, Option<Word>)) {
        if let Some(link) = self.link() {
            heap.note(link, address, copy_of.is_some());
        }
    }

    /// Returns the address of it or of a copy, if known without a lookup.
    #[inline]
    fn here(&self) -> Option<u64> {
        self.link().map_or(Some(Self::nowhere()), |link| OWN.known(link))
    }

    /// Returns its address in this rank's partition, in a colour that no other rank has seen.
    #[inline]
    fn make_own(&mut self) -> Result<u64, ObjectError> {
        match self.mine() {
            Some(address) => Ok(address),
            None => self.bring().map_err(|error| *error),
        }
    }

    /// Returns its address, if it is this rank's, and in a colour that no other rank has seen.
    #[inline]
    fn mine(&mut self) -> Option<u64> {
        // Only the link of a row that has a word notes a period.
        match PERIOD.is_now(*self.extension.get_mut()) {
            true => Some(self.word.map_or(0, Word::address)),
            false => self.look(),
        }
    }

    /// As [`DVec::mine`], for the first time in a period.
    #[inline]
    fn look(&mut self) -> Option<u64> {
        let (word, now) = (self.word?, PERIOD.now());
        if !is_unseen(word, self.class) {
            return None;
        }
        if let Some(now) = now {
            // The link of what is here has found nothing else.
            *self.extension.get_mut() = now;
        }
        Some(word.address())
    }

    /// [`DVec::brought`]; returns its address then.
    ///
    /// The row is given away meanwhile, field by field, and comes back so: where a compiler sees that its address is known elsewhere, or
    /// that its bytes are written as something else than its fields, each use of a row in a loop loads all of them again. Should what is called
    /// panic, which would be a mistake of this crate, this row is empty, and its values are dropped.
    #[inline(always)]
    fn bring(&mut self) -> Result<u64, Box<ObjectError>> {
        let extension = AtomicU64::new(*self.extension.get_mut());
        let (word, length) = (self.word.take(), std::mem::take(&mut self.length));
        let row = Self { class: self.class, word, extension, length, owns: PhantomData };
        let (row, ended) = row.brought();
        let mut row = ManuallyDrop::new(row);
        *self.extension.get_mut() = *row.extension.get_mut();
        (self.word, self.length) = (row.word, row.length);
        match ended {
            None => Ok(row.word.map_or(Self::nowhere(), Word::address)),
            Some(error) => Err(error),
        }
    }

    /// The row, in this rank's partition, in a colour that no other rank has seen; or unchanged, with the
    /// error.
    #[cold]
    #[inline(never)]
    fn brought(mut self) -> (Self, Option<Box<ObjectError>>) {
        let ended = self.make_unseen();
        (self, ended.err().map(Box::new))
    }

    fn make_unseen(&mut self) -> Result<(), ObjectError> {
        let (shape, is_empty) = (self.shape(), self.length == 0);
        let Some(link) = self.link_mut() else { return Ok(()) };
        let heap = heap()?;
        // No rank can have seen any of its values; nor has a backup, if there may be one, from when it had
        // some.
        let has_nothing = is_empty && !heap.has_replicas();
        match has_nothing && OWN.offset_of(link.word.address()).is_some() {
            true => Ok(()),
            false => heap.own(link, &shape),
        }
    }

    /// [`DVec::find`], or the end.
    #[cold]
    #[inline(never)]
    #[track_caller]
    fn find_for(&self) -> u64 {
        super::boxes::had(self.find())
    }

    /// [`DVec::bring`], or the end.
    #[inline(always)]
    #[track_caller]
    fn bring_for(&mut self) -> u64 {
        match self.bring() {
            Ok(address) => address,
            Err(error) => super::boxes::fail_for(*error),
        }
    }

    /// # Safety
    /// It is the address of the values, or of a copy that this row has counted.
    #[inline]
    unsafe fn slice_at(&self, address: u64) -> &[T] {
        // SAFETY: rules 1 and 2, by the caller's promise; it is borrowed.
        unsafe { std::slice::from_raw_parts(with_exposed_provenance(address as usize), self.len()) }
    }

    /// # Safety
    /// It is the address of the values, in this rank's partition, in a colour that no other rank has seen.
    #[inline]
    unsafe fn mut_slice_at(&mut self, address: u64) -> &mut [T] {
        let length = self.len();
        // SAFETY: rules 1 and 2, by the caller's promise; the row is mutably borrowed.
        unsafe { std::slice::from_raw_parts_mut(with_exposed_provenance_mut(address as usize), length) }
    }

    /// Returns all values, for reading: local, or in a copy, which stays until they are written.
    ///
    /// # Errors
    /// If they cannot be reached, or there is no room for a copy.
    #[track_caller]
    pub fn try_as_slice(&self) -> Result<&[T], ObjectError>
    where
        T: Shareable,
    {
        let here = Location::caller();
        let address = self.locate().map_err(|error| error.for_call(here))?;
        // SAFETY: there it is.
        Ok(unsafe { self.slice_at(address) })
    }

    /// All values, to write: they come here.
    ///
    /// # Errors
    /// If they cannot be reached, or there is no room for them.
    #[track_caller]
    pub fn try_as_mut_slice(&mut self) -> Result<&mut [T], ObjectError> {
        let here = Location::caller();
        let address = self.make_own().map_err(|error| error.for_call(here))?;
        // SAFETY: there it is.
        Ok(unsafe { self.mut_slice_at(address) })
    }

    /// [`DVec::try_as_mut_slice`], even of values that other ranks cannot read.
    ///
    /// # Panics
    /// If that fails.
    #[inline]
    #[track_caller]
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        let address = match self.mine() {
            Some(address) => address,
            None => self.bring_for(),
        };
        // SAFETY: there it is.
        unsafe { self.mut_slice_at(address) }
    }

    /// Some of the values, to read: only they travel, and no copy of them stays.
    ///
    /// # Errors
    /// If they cannot be reached; and if there are fewer.
    #[track_caller]
    pub fn range(&self, range: impl RangeBounds<usize>) -> Result<Part<'_, T>, ObjectError>
    where
        T: Shareable,
    {
        self.range_for(range, Location::caller())
    }

    /// [`DVec::range`], for a call of the program.
    fn range_for(
        &self,
        range: impl RangeBounds<usize>,
        here: &'static Location<'static>,
    ) -> Result<Part<'_, T>, ObjectError>
    where
        T: Shareable,
    {
        let Range { start: first, end } = bounds(range, self.len());
        if first > end || end > self.len() {
            let length = self.len();
            return Err(ObjectError::Usage(format!("{first}..{end} of a row of {length} values")));
        }
        if let (Some(link), None) = (self.link().filter(|_| first < end), self.here()) {
            let word = link.word;
            let read = Values::read(heap()?, word, first, end - first);
            return Ok(Part::of(read.map_err(|error| error.for_call(here))?));
        }
        let address = self.locate().map_err(|error| error.for_call(here))?;
        // SAFETY: there it is.
        let all = unsafe { self.slice_at(address) };
        Ok(Part::of(Values::Here(all[first..end].as_ptr(), end - first)))
    }

    /// Returns all values, `count` at a time, as [`DVec::range`].
    ///
    /// # Panics
    /// If it is to be none at a time.
    #[track_caller]
    pub fn chunks_of(&self, count: usize) -> impl Iterator<Item = Result<Part<'_, T>, ObjectError>>
    where
        T: Shareable,
    {
        let here = Location::caller();
        let part = move |first: usize| self.range_for(first..(first + count).min(self.len()), here);
        (0..self.len()).step_by(count).map(part)
    }

    /// Ensures that so many more values have room.
    ///
    /// # Panics
    /// If there is not this much room in one piece; [`DVec::try_reserve`] returns the error instead.
    #[track_caller]
    pub fn reserve(&mut self, count: usize) {
        super::boxes::had(self.try_reserve(count));
    }

    /// [`DVec::reserve`].
    ///
    /// # Errors
    /// If there is not this much room in one piece.
    #[track_caller]
    pub fn try_reserve(&mut self, count: usize) -> Result<(), ObjectError> {
        let here = Location::caller();
        self.grow(count).map_err(|error| error.for_call(here))
    }

    fn grow(&mut self, count: usize) -> Result<(), ObjectError> {
        let wanted = self.length.saturating_add(count as u64);
        if wanted <= self.room() {
            return Ok(());
        }
        let class = room_for::<T>(wanted.max(2 * self.room()).max(4))?;
        // If twice as much is too much, the requested size may do.
        let (heap, exact) = (heap()?, room_for::<T>(wanted)?);
        let ((address, colour), class) = match heap.allocate(class, Use::Values) {
            Err(ObjectError::Full(_)) => (heap.allocate(exact, Use::Values)?, exact),
            placed => (placed?, class),
        };
        let new = Word::new(address, colour).ok_or(ObjectError::NoHeap)?;
        let shape = self.shape();
        let Some(link) = self.link_mut() else {
            (self.word, self.class) = (Some(new), class);
            return Ok(());
        };
        let word = link.word;
        let freed = if OWN.offset_of(word.address()).is_some() {
            // SAFETY: rules 1 and 2: the row is mutably borrowed, and the new slot is unowned and has more
            // room.
            unsafe {
                with_exposed_provenance_mut::<u8>(address as usize)
                    .copy_from_nonoverlapping(with_exposed_provenance(word.address() as usize), shape.bytes);
            }
            None
        } else {
            // SAFETY: rule 1: a slot with more room, which only this code uses.
            if let Err(error) = unsafe { heap.read(word, &shape, address as usize, None) } {
                heap.free_own(new)?;
                return Err(error);
            }
            Some(Freed::of(word, shape.scrub(address, heap.tag_of(word)), &shape))
        };
        heap.release(link);
        *link = Link::new(new);
        self.class = class;
        match freed {
            Some(freed) => heap.free_there(freed),
            None => heap.free_own(word),
        }
    }

    /// Adds a value at the end; the row comes here.
    ///
    /// # Panics
    /// If there is no room; [`DVec::try_push`] gives the value back instead.
    #[inline]
    #[track_caller]
    pub fn push(&mut self, value: T) {
        if let Err(refused) = self.try_push(value) {
            super::boxes::fail(&refused.why);
        }
    }

    /// Adds a value at the end; the row comes here.
    ///
    /// # Errors
    /// With the value, when there is no room, or the row cannot be reached.
    #[inline]
    #[track_caller]
    pub fn try_push(&mut self, value: T) -> Result<(), super::Refused<T>> {
        let address = match self.mine() {
            Some(address) if self.has_room() => address,
            _ => match self.make_ready() {
                Ok(address) => address,
                Err(why) => {
                    let why = Box::new(why.for_call(Location::caller()));
                    return Err(super::Refused { value, why });
                }
            },
        };
        // SAFETY: rule 1: a place of the row's slot behind its values.
        unsafe { with_exposed_provenance_mut::<T>(address as usize).add(self.len()).write(value) };
        self.length += 1;
        Ok(())
    }

    /// Returns the address for one more value.
    #[cold]
    #[inline(never)]
    fn make_ready(&mut self) -> Result<u64, ObjectError> {
        self.grow(1)?;
        self.make_own()
    }

    /// Adds copies of values at the end, all or none; the row comes here.
    ///
    /// # Errors
    /// If there is no room for all, or the row cannot be reached.
    #[track_caller]
    pub fn try_extend_from(&mut self, values: &[T]) -> Result<(), ObjectError>
    where
        T: Copy,
    {
        let here = Location::caller();
        self.try_reserve(values.len())?;
        let address = self.make_own().map_err(|error| error.for_call(here))?;
        let behind = with_exposed_provenance_mut::<T>(address as usize).wrapping_add(self.len());
        // SAFETY: rule 1: places of the row's slot behind its values, which are not borrowed.
        unsafe { behind.copy_from_nonoverlapping(values.as_ptr(), values.len()) };
        self.length += values.len() as u64;
        Ok(())
    }

    /// Takes the last value; the row comes here.
    ///
    /// # Panics
    /// If the row cannot be reached.
    #[inline]
    #[track_caller]
    pub fn pop(&mut self) -> Option<T> {
        let last = self.length.checked_sub(1)?;
        let address = match self.mine() {
            Some(address) => address,
            None => self.bring_for(),
        };
        self.length = last;
        // SAFETY: rule 2: a value of the row, which does not have it any more.
        Some(unsafe { with_exposed_provenance::<T>(address as usize).add(last as usize).read() })
    }

    /// Drops all values but the first `count`; the row comes here, if there are more.
    ///
    /// # Panics
    /// If it cannot be reached.
    #[track_caller]
    pub fn truncate(&mut self, count: usize) {
        if self.len() <= count {
            return;
        }
        let gone = self.as_mut_slice()[count..].as_mut_ptr();
        let many = self.len() - count;
        self.length = count as u64;
        // SAFETY: rule 2: values of the row, which does not have them any more; if one panics, the rest are leaked.
        unsafe { std::ptr::slice_from_raw_parts_mut(gone, many).drop_in_place() };
    }

    /// Takes all values from one on, into a row of their own; both are here then.
    ///
    /// # Panics
    /// If there are not so many, they cannot be reached, or there is no room.
    #[track_caller]
    pub fn split_off(&mut self, at: usize) -> Self {
        let from = self.as_mut_slice()[at..].as_mut_ptr();
        let count = self.len() - at;
        let mut other = Self::with_capacity(count);
        // SAFETY: rules 1 and 2: a new row with so much room; the values are moved there, and this row does not have them any more.
        unsafe { other.as_mut_slice().as_mut_ptr().copy_from_nonoverlapping(from, count) };
        (self.length, other.length) = (at as u64, count as u64);
        other
    }

    /// Drops all values.
    pub fn clear(&mut self) {
        *self = Self::new();
    }

    /// All values, in memory of this process.
    ///
    /// # Errors
    /// If they cannot be reached; they are leaked then.
    #[track_caller]
    pub fn into_vec(self) -> Result<Vec<T>, ObjectError> {
        let (this, here) = (ManuallyDrop::new(self), Location::caller());
        let (Some(link), length) = (this.link(), this.len()) else { return Ok(Vec::new()) };
        let (heap, word, shape) = (heap()?, link.word, this.shape());
        heap.release(link);
        let mut all = Vec::<T>::with_capacity(length);
        let to = all.as_mut_ptr().expose_provenance();
        let is_own = OWN.offset_of(word.address()).is_some();
        // SAFETY: as many bytes as the row has, which are this function's; zeros, before anybody calls them bytes. Rule 2: it owns the
        // values, whose slot is freed.
        unsafe {
            if is_own {
                all.as_mut_ptr()
                    .copy_from_nonoverlapping(with_exposed_provenance(word.address() as usize), length);
            } else {
                all.as_mut_ptr().write_bytes(0, length);
                heap.read(word, &shape, to, None).map_err(|error| error.for_call(here))?;
            }
            all.set_len(length);
        }
        if is_own {
            heap.free_own(word)?;
        } else {
            heap.free_there(Freed::of(word, shape.scrub(to as u64, heap.tag_of(word)), &shape))?;
        }
        Ok(all)
    }
}

impl<T: Shareable> Deref for DVec<T> {
    type Target = [T];

    #[inline]
    #[track_caller]
    fn deref(&self) -> &[T] {
        let address = match self.here() {
            Some(address) => address,
            None => self.find_for(),
        };
        // SAFETY: there it is.
        unsafe { self.slice_at(address) }
    }
}

impl<T: Shareable> DerefMut for DVec<T> {
    #[inline]
    #[track_caller]
    fn deref_mut(&mut self) -> &mut [T] {
        self.as_mut_slice()
    }
}

/// Drops own values in a row, and frees their slot.
///
/// # Safety
/// They are the caller's, and are not used again.
unsafe fn drop_row<T: Portable>(word: Word, count: u64) {
    let values = with_exposed_provenance_mut::<T>(word.address() as usize);
    // SAFETY: the caller's promise.
    unsafe { std::ptr::slice_from_raw_parts_mut(values, count as usize).drop_in_place() };
    // A slot that cannot be freed is lost with its rank, and the job.
    let _ = heap().and_then(|heap| heap.free_own(word));
}

impl<T: Portable> Drop for DVec<T> {
    fn drop(&mut self) {
        // Rows left when the heap has ended are gone with it.
        let (Some(link), Ok(heap)) = (self.link(), heap()) else { return };
        let word = link.word;
        let stays = heap.has_replicas() && std::mem::needs_drop::<T>() && self.length > 0;
        if OWN.offset_of(word.address()).is_some() && !stays {
            heap.release(link);
            if std::mem::needs_drop::<T>() && self.length > 0 {
                if drops::leave::<T>(word, self.length) {
                    return;
                }
                // SAFETY: rule 2: its owner drops them, where they are.
                let drops: fn(Word, u64) = |word, count| unsafe { drop_row::<T>(word, count) };
                if let Some(_level) = Level::enter::<T>(word, self.length, drops) {
                    drops(word, self.length);
                }
                return;
            }
            // A slot that cannot be freed, and values that cannot be had, are lost with their rank, and the job.
            let _ = heap.free_own(word);
        } else if std::mem::needs_drop::<T>() && self.length > 0 {
            if OWN.offset_of(word.address()).is_none() && heap.may_let_go::<T>(self.length) {
                heap.release(link);
                heap.let_go::<T>(word, self.length);
                return;
            }
            drop(std::mem::take(self).into_vec());
        } else {
            heap.release(link);
            let _ = heap.free_there(Freed::of(word, Vec::new(), &Shape { links: None, ..self.shape() }));
        }
    }
}

/// Makes a [`DVec`] of values, or of clones of one, as std's `vec!` makes a `Vec`.
///
/// ```no_run
/// use vgas_objects::*;
/// let numbers: DVec<u64> = dvec![1, 2, 3];
/// assert_eq!((dvec![7u8; 3].len(), numbers[1], vec![1, 2].len()), (3, 2, 2));
/// ```
#[macro_export]
macro_rules! dvec {
    () => { $crate::DVec::new() };
    ($value:expr; $count:expr) => { $crate::DVec::from_iter(::core::iter::repeat_n($value, $count)) };
    ($($value:expr),+ $(,)?) => { $crate::DVec::from([$($value),+]) };
}

impl<T: Portable> From<Vec<T>> for DVec<T> {
    /// The values move, as bytes.
    ///
    /// # Panics
    /// If there is no room.
    #[track_caller]
    fn from(mut values: Vec<T>) -> Self {
        let (mut row, count) = (Self::with_capacity(values.len()), values.len());
        // SAFETY: rule 1: a new row with so much room. The vector has no values from here on, so that they are the row's alone.
        unsafe {
            values.set_len(0);
            row.as_mut_slice().as_mut_ptr().copy_from_nonoverlapping(values.as_ptr(), count);
        }
        row.length = count as u64;
        row
    }
}

impl<T: Portable> Extend<T> for DVec<T> {
    /// # Panics
    /// If there is no room.
    #[track_caller]
    fn extend<I: IntoIterator<Item = T>>(&mut self, values: I) {
        let mut values = values.into_iter();
        // Only a hint: the later call that needs the room reports an error.
        let _ = self.try_reserve(values.size_hint().0);
        while let Some(value) = values.next() {
            self.push(value);
            // As many as have room; where, is asked once.
            let (address, room) = (self.as_mut_slice().as_mut_ptr(), self.room());
            while self.length < room {
                let Some(value) = values.next() else { return };
                // SAFETY: rule 1: a place of the row's slot behind its values; the row is mutably borrowed all the time.
                unsafe { address.add(self.len()).write(value) };
                self.length += 1;
            }
        }
    }
}
