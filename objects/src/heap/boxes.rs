//! [`DBox`]: an owned object in the global heap.

use super::borrow::{MutRef, Ref};
use super::error::ObjectError;
use super::shape::Shape;
use super::tied::TBox;
use super::{Freed, Heap, OWN, drops, heap, leave_behind};
use crate::glue::Glue;
use crate::layout::Layout;
use crate::portable::{Portable, Shareable};
use crate::slab::Use;
use crate::tie::Ties;
use crate::word::{Link, Word};
use std::fmt;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::ptr::{with_exposed_provenance, with_exposed_provenance_mut};
use vgas::Rank;

/// An owned object of the global heap (drust-osdi24.txt §4.1.1): like a `Box`, unique, moved by moving the box, and freed with it. 16 bytes,
/// also in an `Option`.
///
/// Reading brings a copy to this rank if the object is another's; the copy is found again as long as nobody has written. Writing
/// brings the object itself. Neither sends a message if what it wants is here.
///
/// `Deref` and `DerefMut` panic where an object cannot be had: [`DBox::try_read`] and [`DBox::try_write`] say why instead. Not from
/// handlers of active messages, which must not wait.
///
/// ```
/// use vgas_objects::{DBox, Portable, Shareable};
///
/// #[derive(Portable, Shareable)]
/// struct Node { key: u64, left: Option<DBox<Node>>, right: Option<DBox<Node>> }
///
/// fn sum(node: &Node) -> u64 {
///     node.key + node.left.as_deref().map_or(0, sum) + node.right.as_deref().map_or(0, sum)
/// }
/// assert_eq!((size_of::<DBox<Node>>(), size_of::<Option<DBox<Node>>>()), (16, 16));
/// ```
///
/// What Rust forbids of a `Box`, it forbids here:
///
/// ```compile_fail,E0502
/// # use vgas_objects::DBox;
/// fn both(mut number: DBox<u64>) { let read = number.read(); *number.write() = 1; drop(read); }
/// ```
/// ```compile_fail,E0505
/// # use vgas_objects::DBox;
/// fn late(number: DBox<u64>) -> DBox<u64> { let read = number.read(); let moved = number; drop(read); moved }
/// ```
/// ```compile_fail,E0382
/// # use vgas_objects::DBox;
/// fn twice(number: DBox<u64>) { drop(number); drop(number); }
/// ```
/// ```compile_fail,E0277
/// # use vgas_objects::DBox;
/// fn text() -> DBox<String> { DBox::new(String::new()) }
/// ```
/// ```compile_fail,E0599
/// # use vgas_objects::DBox;
/// fn cell(cell: DBox<std::cell::Cell<u64>>) -> u64 { cell.read().get() }
/// ```
/// ```compile_fail,E0277
/// # use vgas_objects::{DBox, Ref};
/// # use vgas_objects::Portable;
/// #[derive(Portable)] struct Keeps { of: Ref<'static, u64> }
/// ```
#[repr(transparent)]
pub struct DBox<T: Portable> {
    pub(super) link: Link,
    owns: PhantomData<T>,
}

/// A value for which there was no room.
#[derive(Debug)]
pub struct Refused<T> {
    /// The value.
    pub value: T,
    /// Why it was not placed.
    pub why: Box<ObjectError>,
}

impl<T> fmt::Display for Refused<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.why.fmt(f)
    }
}

impl<T: fmt::Debug> std::error::Error for Refused<T> {}

// SAFETY: rule 3: its bytes are a word, which means the same everywhere, and an extension, which is 0 where it arrives.
unsafe impl<T: Portable> Portable for DBox<T> {
    const HAS_LINKS: bool = true;

    fn links(&self, visit: &mut dyn FnMut(&Link)) {
        visit(&self.link);
    }

    fn weigh(&self, visit: &mut dyn FnMut(&Link, u64)) {
        visit(&self.link, size_of::<T>() as u64);
    }

    fn glue(glue: &mut Glue) {
        glue.part::<T>();
    }

    fn describe(layout: &mut Layout) {
        T::describe(layout);
    }
}

// SAFETY: what it owns does not change behind a shared reference, and its extension is an atomic that means nothing to others.
unsafe impl<T: Shareable> Shareable for DBox<T> {}

// SAFETY: rule 3: it is a box.
unsafe impl<T: Portable> Portable for TBox<T> {
    const HAS_LINKS: bool = true;
    const HAS_TIES: bool = true;
    const IS_TIE: bool = true;

    fn links(&self, visit: &mut dyn FnMut(&Link)) {
        self.0.links(visit);
    }

    fn weigh(&self, visit: &mut dyn FnMut(&Link, u64)) {
        self.0.weigh(visit);
    }

    fn ties(ties: &mut Ties) {
        ties.tie::<T>();
    }

    fn glue(glue: &mut Glue) {
        glue.part::<DBox<T>>();
    }

    fn describe(layout: &mut Layout) {
        T::describe(layout);
    }
}

// SAFETY: as of a box.
unsafe impl<T: Shareable> Shareable for TBox<T> {}

const _: () = assert!(size_of::<Option<TBox<u64>>>() == size_of::<Link>());

/// What no error can be returned for.
#[cold]
#[track_caller]
pub(super) fn fail(error: &ObjectError) -> ! {
    panic!("{error}");
}

/// [`fail`], which names the program's call.
#[cold]
#[inline(never)]
pub(super) fn fail_for(error: ObjectError, here: &'static Location<'static>) -> ! {
    let error = error.for_call(here);
    // Where a program's call is the caller's, the panic says so itself; this is for what has been called for it.
    panic!("{error}");
}

/// What was had, or the end, which names the program's call.
#[inline]
#[track_caller]
pub(super) fn had<V>(result: Result<V, ObjectError>) -> V {
    let here = Location::caller();
    match result {
        Ok(value) => value,
        Err(error) => fail(&error.for_call(here)),
    }
}

impl<T: Portable> DBox<T> {
    /// The box of an object that has none.
    pub(crate) fn of(word: Word) -> Self {
        Self { link: Link::new(word), owns: PhantomData }
    }

    /// Gives the object up to whoever is told of its word.
    pub(crate) fn into_word(self) -> Word {
        let this = ManuallyDrop::new(self);
        if let Ok(heap) = heap() {
            heap.release(&this.link);
        }
        this.link.word
    }

    /// Places a value in this rank's partition; where that is full, and tasks are run ([`Objects::run`](crate::Objects::run)), in that of the
    /// rank that has most room: a message and its answer, and a put. An eighth of each partition is for copies as long as there is room elsewhere.
    /// With [`HeapOptions::replicas`](crate::HeapOptions::replicas), values stay on their rank.
    ///
    /// # Panics
    /// When no room is left, as [`Box::new`] ends then; [`DBox::try_new`] gives the value back instead. And where there is no heap.
    #[track_caller]
    pub fn new(value: T) -> Self {
        match Self::try_new(value) {
            Ok(new) => new,
            Err(refused) => fail(&refused.why),
        }
    }

    /// Places a value as [`DBox::new`] does.
    ///
    /// # Errors
    /// With the value, when no room is left, or there is no heap: [`ObjectError::Full`] says how much was wanted, and who was asked.
    pub fn try_new(value: T) -> Result<Self, Refused<T>> {
        let placed = heap().and_then(|heap| heap.place(const { Shape::of::<T>() }.class));
        match placed {
            Ok(word) if OWN.offset_of(word.address()).is_some() => Ok(Self::put_here(word, value)),
            Ok(word) => Self::put_there(word, value),
            Err(why) => Err(Refused { value, why: Box::new(why) }),
        }
    }

    /// Places a value in this rank's partition, and nowhere else.
    pub(super) fn try_new_here(value: T) -> Result<Self, Refused<T>> {
        let placed = heap().and_then(|heap| {
            let (address, colour) = heap.allocate(const { Shape::of::<T>() }.class, Use::Values)?;
            Word::new(address, colour).ok_or(ObjectError::NoHeap)
        });
        match placed {
            Ok(word) => Ok(Self::put_here(word, value)),
            Err(why) => Err(Refused { value, why: Box::new(why) }),
        }
    }

    /// Into a slot of this rank, which the allocator has just given.
    #[inline]
    fn put_here(word: Word, value: T) -> Self {
        // SAFETY: rule 1: a slot for such a value, which is nobody else's.
        unsafe { with_exposed_provenance_mut::<T>(word.address() as usize).write(value) };
        Self::of(word)
    }

    /// Into a slot of another rank, which that has just given.
    #[cold]
    #[inline(never)]
    fn put_there(word: Word, value: T) -> Result<Self, Refused<T>> {
        leave_behind(&value);
        let value = ManuallyDrop::new(value);
        let from = std::ptr::from_ref(&*value).cast::<u8>();
        // SAFETY: the bytes of the value, which is this function's; padding is never looked at.
        let bytes = unsafe { std::slice::from_raw_parts(from, size_of::<T>()) };
        let put = heap().and_then(|heap| heap.put_elsewhere(word, const { &Shape::of::<T>() }, bytes));
        match put {
            Ok(()) => Ok(Self::of(word)),
            Err(why) => Err(Refused { value: ManuallyDrop::into_inner(value), why: Box::new(why) }),
        }
    }

    /// Its word: where the object is, and in which colour.
    pub fn word(this: &Self) -> Word {
        this.link.word
    }

    /// Which rank has the object; none where there is no heap.
    pub fn rank(this: &Self) -> Option<Rank> {
        heap().ok().map(|heap| heap.locate(this.link.word.address()).rank)
    }

    /// The value, for writing, also of types that others cannot read. As [`DerefMut`].
    ///
    /// # Panics
    /// When the object cannot be had.
    #[inline]
    #[track_caller]
    pub fn get_mut(&mut self) -> &mut T {
        if !self.is_mine() {
            self.bring(Location::caller());
        }
        // SAFETY: rules 1 and 2: it is in the own partition now, and the box is mutably borrowed.
        unsafe { &mut *with_exposed_provenance_mut(self.link.word.address() as usize) }
    }

    /// Takes the value out of the heap.
    ///
    /// # Panics
    /// When the object cannot be had; it stays where it is then, and is nobody's.
    #[track_caller]
    pub fn into_inner(self) -> T {
        let word = self.into_word();
        had(heap().and_then(|heap| take(heap, word)))
    }

    /// Sees to it that the object is here, and that nobody finds what it was.
    #[inline]
    pub(super) fn make_own(&mut self) -> Result<(), ObjectError> {
        match self.is_mine() {
            true => Ok(()),
            false => heap()?.own(&mut self.link, const { &Shape::of::<T>() }),
        }
    }

    /// Whether the object is here, in a colour that nobody has seen.
    #[inline]
    fn is_mine(&self) -> bool {
        let address = self.link.word.address();
        OWN.offset_of(address).is_some() && !OWN.is_served(address, const { Shape::of::<T>() }.class)
    }

    /// Makes the object this rank's, or ends.
    #[cold]
    #[inline(never)]
    fn bring(&mut self, here: &'static Location<'static>) {
        if let Err(error) = self.make_own() {
            fail_for(error, here);
        }
    }

    /// Where a copy of the object is, which is elsewhere, or the end.
    #[cold]
    #[inline(never)]
    fn find(&self, here: &'static Location<'static>) -> u64 {
        let found = heap().and_then(|heap| heap.find(&self.link, const { &Shape::of::<T>() }));
        found.unwrap_or_else(|error| fail_for(error, here))
    }
}

/// Moves a value to the stack, and frees its slot.
fn take<T: Portable>(heap: &Heap, word: Word) -> Result<T, ObjectError> {
    let shape = const { &Shape::of::<T>() };
    let mut value = MaybeUninit::<T>::zeroed();
    let is_own = OWN.offset_of(word.address()).is_some();
    if is_own {
        // SAFETY: rule 2: the caller owns the object, and its slot is freed.
        unsafe {
            value.as_mut_ptr().copy_from_nonoverlapping(with_exposed_provenance(word.address() as usize), 1)
        };
    } else {
        // SAFETY: memory of this size, zeros, on this stack.
        unsafe { heap.read(word, shape, value.as_mut_ptr().expose_provenance(), None) }?;
    }
    // SAFETY: rule 3: the bytes of the object.
    let value = unsafe { value.assume_init() };
    // A slot that cannot be freed is lost with its rank, and the job.
    let _ = match is_own {
        true => heap.free_own(word),
        false => {
            let holds = shape.scrub((&raw const value).expose_provenance() as u64, heap.tag_of(word));
            heap.free_there(Freed::of(word, holds, shape))
        }
    };
    Ok(value)
}

impl<T: Shareable> DBox<T> {
    /// Borrows the object for reading: a copy, if another rank has it.
    ///
    /// # Panics
    /// When the object cannot be had.
    #[track_caller]
    pub fn read(&self) -> Ref<'_, T> {
        had(self.try_read())
    }

    /// [`DBox::read`].
    ///
    /// # Errors
    /// When the object cannot be had, or there is no room for a copy.
    #[track_caller]
    pub fn try_read(&self) -> Result<Ref<'_, T>, ObjectError> {
        let here = Location::caller();
        Ref::of(self.link.word).map_err(|error| error.for_call(here))
    }

    /// Borrows the object for writing: it is this rank's then.
    ///
    /// # Panics
    /// When the object cannot be had.
    #[track_caller]
    pub fn write(&mut self) -> MutRef<'_, T> {
        had(self.try_write())
    }

    /// [`DBox::write`].
    ///
    /// # Errors
    /// When the object cannot be had, or there is no room for it.
    #[track_caller]
    pub fn try_write(&mut self) -> Result<MutRef<'_, T>, ObjectError> {
        let here = Location::caller();
        MutRef::of(self).map_err(|error| error.for_call(here))
    }
}

impl<T: Shareable> Deref for DBox<T> {
    type Target = T;

    #[inline]
    #[track_caller]
    fn deref(&self) -> &T {
        let address = match OWN.known(&self.link) {
            Some(address) => address,
            None => self.find(Location::caller()),
        };
        // SAFETY: rules 1 and 2: the object itself, or a copy that this box has counted; the box is borrowed.
        unsafe { &*with_exposed_provenance(address as usize) }
    }
}

impl<T: Shareable> DerefMut for DBox<T> {
    #[inline]
    #[track_caller]
    fn deref_mut(&mut self) -> &mut T {
        self.get_mut()
    }
}

impl<T: Portable> Drop for DBox<T> {
    fn drop(&mut self) {
        // What is left when the heap has ended is gone with it.
        let Ok(heap) = heap() else { return };
        heap.release(&self.link);
        let word = self.link.word;
        // A slot that cannot be freed, and a value that cannot be had, are lost with their rank, and the job.
        let is_here = OWN.offset_of(word.address()).is_some();
        if !std::mem::needs_drop::<T>() {
            let _ = match is_here {
                true => heap.free_own(word),
                false => heap.free_there(Freed::of(word, Vec::new(), const { &Shape::of::<T>() })),
            };
        } else if is_here && !heap.has_replicas() {
            if drops::leave::<T>(word, 1) {
                return;
            }
            // SAFETY: rule 2: its owner drops it, where it is.
            unsafe { with_exposed_provenance_mut::<T>(word.address() as usize).drop_in_place() };
            let _ = heap.free_own(word);
        } else if is_here || !heap.let_go::<T>(word, 1) {
            drop(take::<T>(heap, word));
        }
    }
}

impl<T: Shareable + fmt::Display> fmt::Display for DBox<T> {
    /// The value, which is brought for it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        T::fmt(self, f)
    }
}

impl<T: Portable> fmt::Debug for DBox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DBox({:?})", self.link.word)
    }
}
