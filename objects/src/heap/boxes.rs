//! [`DBox`]: an owned object in the global heap.

use super::borrow::{MutRef, Ref};
use super::drops::Level;
use super::error::{ObjectError, Refused};
use super::{Freed, Heap, OWN, drops, heap, leave_behind};
use crate::bytes;
use crate::glue::Glue;
use crate::layout::Layout;
use crate::portable::{Portable, Shareable};
use crate::shape::Shape;
use crate::slab::Use;
use crate::word::{Link, Word};
use std::fmt;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::ptr::{with_exposed_provenance, with_exposed_provenance_mut};
use vgas::Rank;

/// An owned object of the global heap (DRust §4.1.1): like a `Box`, unique, moved by moving the box, and
/// freed with it. 16 bytes, even in an `Option`.
///
/// Reading brings a copy to this rank if the object is remote; the copy is found again until the object is
/// written. Writing brings the object itself. Neither sends a message if what it wants is here.
///
/// `Deref` and `DerefMut` panic where an object cannot be reached: [`DBox::try_read`] and [`DBox::try_write`]
/// say why instead. Not from handlers of active messages, which must not wait.
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
/// The compiler rejects the same programs as for a `Box`:
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

/// Panics with an error that cannot be returned.
#[cold]
#[track_caller]
pub(super) fn fail(error: &ObjectError) -> ! {
    panic!("{error}");
}

/// [`fail`], out of line, which names the program's call.
#[cold]
#[inline(never)]
#[track_caller]
pub(super) fn fail_for(error: ObjectError) -> ! {
    fail(&error.for_call(Location::caller()))
}

/// Returns the value, or panics with the location of the program's call.
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

    /// Gives the object up to the holder of its word.
    pub(crate) fn into_word(self) -> Word {
        let this = ManuallyDrop::new(self);
        if let Ok(heap) = heap() {
            heap.release(&this.link);
        }
        this.link.word
    }

    /// Places a value in this rank's partition; if that is full, and tasks are run
    /// ([`Objects::run`](crate::Objects::run)), in that of the rank with the most room: a message and its
    /// answer, and a put. An eighth of each partition is for copies as long as there is room elsewhere. With
    /// [`HeapOptions::replicas`](crate::HeapOptions::replicas), values stay on their rank.
    ///
    /// # Panics
    /// If no room is left, as [`Box::new`] ends then; [`DBox::try_new`] gives the value back instead. And if
    /// there is no heap.
    #[track_caller]
    pub fn new(mut value: T) -> Self {
        // Not by way of `try_new`: a value may be large, and each result that has it is another copy on the stack of a debug build.
        match slot_for::<T>() {
            Ok((word, true)) => Self::put_here(word, value),
            Ok((word, false)) => match put_there(word, &mut value) {
                Ok(()) => {
                    std::mem::forget(value);
                    Self::of(word)
                }
                Err(why) => fail(&why),
            },
            Err(why) => fail(&why),
        }
    }

    /// Places a value as [`DBox::new`] does.
    ///
    /// # Errors
    /// With the value, if no room is left or there is no heap: [`ObjectError::Full`] gives the bytes
    /// requested and the ranks asked.
    pub fn try_new(mut value: T) -> Result<Self, Refused<T>> {
        let placed = slot_for::<T>().and_then(|(word, is_here)| match is_here {
            true => Ok((word, true)),
            false => put_there(word, &mut value).map(|()| (word, false)),
        });
        match placed {
            Ok((word, true)) => Ok(Self::put_here(word, value)),
            Ok((word, false)) => {
                std::mem::forget(value);
                Ok(Self::of(word))
            }
            Err(why) => Err(Refused { value, why: Box::new(why) }),
        }
    }

    /// Places the value of a std box as [`DBox::new`] does. It goes from there to its place, and never onto
    /// the stack: for values of megabytes. As `From`, but there may be no room.
    ///
    /// ```no_run
    /// # use vgas_objects::{DBox, ObjectError};
    /// fn zeros() -> Result<DBox<[u8; 16 << 20]>, ObjectError> {
    ///     // SAFETY: zeros are bytes.
    ///     let zeros = unsafe { Box::<[u8; 16 << 20]>::new_zeroed().assume_init() };
    ///     Ok(DBox::try_from_box(zeros)?)
    /// }
    /// ```
    ///
    /// # Errors
    /// With the box, as [`DBox::try_new`].
    pub fn try_from_box(mut value: Box<T>) -> Result<Self, Refused<Box<T>>> {
        let placed = slot_for::<T>().and_then(|(word, is_here)| match is_here {
            true => {
                let to = with_exposed_provenance_mut::<T>(word.address() as usize);
                // SAFETY: rule 1: a slot for such a value, which only this code uses; the value is given up
                // below.
                unsafe { to.copy_from_nonoverlapping(&raw const *value, 1) };
                Ok(word)
            }
            false => put_there(word, &mut *value).map(|()| word),
        });
        match placed {
            Ok(word) => {
                let value = Box::into_raw(value).cast::<ManuallyDrop<T>>();
                // SAFETY: the memory of that box, whose value has been moved out: only the memory is freed.
                drop(unsafe { Box::from_raw(value) });
                Ok(Self::of(word))
            }
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
        // SAFETY: rule 1: a slot for such a value, which only this code uses.
        unsafe { with_exposed_provenance_mut::<T>(word.address() as usize).write(value) };
        Self::of(word)
    }

    /// Returns its word: the object's address and colour.
    pub fn word(this: &Self) -> Word {
        this.link.word
    }

    /// Returns the rank that has the object; none if there is no heap.
    pub fn rank(this: &Self) -> Option<Rank> {
        heap().ok().map(|heap| heap.locate(this.link.word.address()).rank)
    }

    /// Returns the value, for writing, even of types that other ranks cannot read. As [`DerefMut`].
    ///
    /// # Panics
    /// If the object cannot be reached.
    #[inline]
    #[track_caller]
    pub fn get_mut(&mut self) -> &mut T {
        if !self.is_mine() {
            self.bring();
        }
        // SAFETY: rules 1 and 2: it is in the own partition now, and the box is mutably borrowed.
        unsafe { &mut *with_exposed_provenance_mut(self.link.word.address() as usize) }
    }

    /// Takes the value out of the heap. A value of megabytes does better with [`DBox::into_std_box`].
    ///
    /// # Panics
    /// If the object cannot be reached; it then stays in place without an owner.
    #[track_caller]
    pub fn into_inner(self) -> T {
        let word = self.into_word();
        let mut value = MaybeUninit::<T>::uninit();
        had(heap().and_then(|heap| take(heap, word, &mut value)));
        // SAFETY: rule 3: the bytes of the object.
        unsafe { value.assume_init() }
    }

    /// Takes the value out of the heap, into a std box, without the stack.
    ///
    /// # Panics
    /// As [`DBox::into_inner`].
    #[track_caller]
    pub fn into_std_box(self) -> Box<T> {
        let word = self.into_word();
        had(heap().and_then(|heap| take_boxed(heap, word)))
    }

    /// Brings the object here, in a colour under which no rank has an old value.
    #[inline]
    pub(super) fn make_own(&mut self) -> Result<(), ObjectError> {
        match self.is_mine() {
            true => Ok(()),
            false => heap()?.own(&mut self.link, const { &Shape::of::<T>() }),
        }
    }

    /// Returns true if the object is here, in a colour that no other rank has seen.
    #[inline]
    pub(super) fn is_mine(&self) -> bool {
        let address = self.link.word.address();
        OWN.offset_of(address).is_some() && !OWN.is_served(address, const { Shape::of::<T>() }.class)
    }

    /// Makes the object this rank's, or ends.
    #[cold]
    #[inline(never)]
    #[track_caller]
    fn bring(&mut self) {
        had(self.make_own());
    }

    /// Returns the address of a copy of a remote object, or panics.
    #[cold]
    #[inline(never)]
    #[track_caller]
    fn find(&self) -> u64 {
        had(heap().and_then(|heap| heap.find(&self.link, const { &Shape::of::<T>() })))
    }
}

/// A slot for a value of this type, and whether it is in this rank's partition.
fn slot_for<T: Portable>() -> Result<(Word, bool), ObjectError> {
    let word = heap()?.place(const { Shape::of::<T>() }.class)?;
    Ok((word, OWN.offset_of(word.address()).is_some()))
}

/// Writes a value into a slot of another rank, which that has just given. The caller gives the value up.
#[cold]
#[inline(never)]
fn put_there<T: Portable>(word: Word, value: &mut T) -> Result<(), ObjectError> {
    leave_behind(value);
    heap()?.put_elsewhere(word, const { &Shape::of::<T>() }, bytes::of(value))
}

/// Moves a value out of the heap, and frees its slot.
fn take<T: Portable>(heap: &Heap, word: Word, value: &mut MaybeUninit<T>) -> Result<(), ObjectError> {
    let shape = const { &Shape::of::<T>() };
    let is_own = OWN.offset_of(word.address()).is_some();
    let to = value.as_mut_ptr();
    if is_own {
        // SAFETY: rule 2: the caller owns the object, and its slot is freed.
        unsafe { to.copy_from_nonoverlapping(with_exposed_provenance(word.address() as usize), 1) };
    } else {
        // SAFETY: memory of this size, zeros, that only this has.
        unsafe {
            to.write_bytes(0, 1);
            heap.read(word, shape, to.expose_provenance(), None)
        }?;
    }
    // A slot that cannot be freed is lost with its rank, and the job.
    let _ = match is_own {
        true => heap.free_own(word),
        false => {
            let holds = shape.scrub(to.expose_provenance() as u64, heap.tag_of(word));
            heap.free_there(Freed::of(word, holds, shape))
        }
    };
    Ok(())
}

/// As [`take`], into memory of the process: values may be larger than a stack.
fn take_boxed<T: Portable>(heap: &Heap, word: Word) -> Result<Box<T>, ObjectError> {
    let mut value = Box::<T>::new_uninit();
    take(heap, word, &mut value)?;
    // SAFETY: rule 3: the bytes of the object.
    Ok(unsafe { value.assume_init() })
}

/// Drops an object that is to be dropped as a copy of its bytes: another rank has it, or a backup must find
/// it as it is. Lost with its rank, and the job, if it cannot be reached.
#[cold]
#[inline(never)]
fn drop_moved<T: Portable>(heap: &Heap, word: Word) {
    drop(take_boxed::<T>(heap, word));
}

/// Frees an object of this rank's whose value was dropped. A slot that cannot be freed is lost with its rank, and the job.
#[inline(never)]
fn free_dropped(heap: &Heap, word: Word) {
    let _ = heap.free_own(word);
}

impl<T: Shareable> DBox<T> {
    /// Borrows the object for reading: a copy, if another rank has it.
    ///
    /// # Panics
    /// If the object cannot be reached.
    #[track_caller]
    pub fn read(&self) -> Ref<'_, T> {
        had(self.try_read())
    }

    /// [`DBox::read`].
    ///
    /// # Errors
    /// If the object cannot be reached, or there is no room for a copy.
    #[track_caller]
    pub fn try_read(&self) -> Result<Ref<'_, T>, ObjectError> {
        let here = Location::caller();
        Ref::of(self.link.word).map_err(|error| error.for_call(here))
    }

    /// Borrows the object for writing: it is this rank's then.
    ///
    /// # Panics
    /// If the object cannot be reached.
    #[track_caller]
    pub fn write(&mut self) -> MutRef<'_, T> {
        had(self.try_write())
    }

    /// [`DBox::write`].
    ///
    /// # Errors
    /// If the object cannot be reached, or there is no room for it.
    #[track_caller]
    pub fn try_write(&mut self) -> Result<MutRef<'_, T>, ObjectError> {
        let here = Location::caller();
        self.make_own().map_err(|error| error.for_call(here))?;
        Ok(MutRef::of_own(&mut self.link))
    }
}

impl<T: Shareable> Deref for DBox<T> {
    type Target = T;

    #[inline]
    #[track_caller]
    fn deref(&self) -> &T {
        let address = match OWN.known(&self.link) {
            Some(address) => address,
            None => self.find(),
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
        // Objects left when the heap has ended are gone with it.
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
            return;
        }
        let is_moved = !is_here || heap.has_replicas();
        if (!is_moved && drops::leave::<T>(word, 1)) || (!is_here && heap.let_go::<T>(word, 1)) {
            return;
        }
        let Some(_level) = Level::enter::<T>(word, 1, |word, _| drop(Self::of(word))) else { return };
        if is_moved {
            return drop_moved::<T>(heap, word);
        }
        // SAFETY: rule 2: its owner drops it, where it is.
        unsafe { with_exposed_provenance_mut::<T>(word.address() as usize).drop_in_place() };
        free_dropped(heap, word);
    }
}

impl<T: Portable> From<Box<T>> for DBox<T> {
    /// Places the value of a std box, without the stack.
    ///
    /// # Panics
    /// If [`DBox::try_from_box`] fails.
    #[track_caller]
    fn from(value: Box<T>) -> Self {
        match Self::try_from_box(value) {
            Ok(new) => new,
            Err(refused) => fail(&refused.why),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::{DArc, DAtomicU64, DBarrier, DCondvar, DMutex, DRwLock, channel};
    use crate::{DMap, DString, DVec, TBox};
    use std::cell::Cell;
    use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};

    thread_local! {
        /// True if this thread's last panic was raised in this file; none: its panics are not inspected.
        static IS_HERE: Cell<Option<bool>> = const { Cell::new(None) };
    }

    fn see<T>(of: T) {
        std::hint::black_box(of);
    }

    /// Goal: a panic for a reason of the caller's names the caller's line, as those of std do. Method: there is no heap.
    #[test]
    fn panics_name_the_call() {
        let hook = take_hook();
        set_hook(Box::new(move |info| match IS_HERE.get() {
            Some(_) => IS_HERE.set(Some(info.location().is_some_and(|at| at.file() == file!()))),
            None => hook(info),
        }));
        let far = || DBox::<u64>::of(Word::new(1 << 40, crate::word::Colour(0)).expect("an address"));
        let calls: &[(&str, &dyn Fn())] = &[
            ("deref", &|| see(*far())),
            ("deref_mut", &|| *far() = 1),
            ("get_mut", &|| *far().get_mut() = 1),
            ("read", &|| drop(far().read())),
            ("write", &|| see(far().write())),
            ("into_inner", &|| see(far().into_inner())),
            ("into_std_box", &|| drop(far().into_std_box())),
            ("clone", &|| drop(far().clone())),
            ("eq", &|| see(far() == far())),
            ("tied", &|| see(*TBox::tie(far()))),
            ("read_all", &|| drop(DBox::read_all(&[far()]))),
            ("new", &|| drop(DBox::new(1u64))),
            ("from", &|| drop(DBox::from(Box::new(1u64)))),
            ("with_capacity", &|| drop(DVec::<u64>::with_capacity(1))),
            ("push", &|| DVec::new().push(1u64)),
            ("extend", &|| DVec::new().extend([1u64])),
            ("from_iter", &|| drop(DVec::from_iter([1u64]))),
            ("remove", &|| see(DVec::<u64>::new().remove(0))),
            ("text", &|| drop(DString::from("text"))),
            ("characters", &|| DString::new().extend(['c'])),
            ("insert", &|| see(DMap::new().insert(1u64, 1u64))),
            ("mutex", &|| drop(DMutex::new(1u64))),
            ("rwlock", &|| drop(DRwLock::new(1u64))),
            ("arc", &|| drop(DArc::new(1u64))),
            ("atomic", &|| drop(DAtomicU64::new(1))),
            ("barrier", &|| drop(DBarrier::new(1))),
            ("condvar", &|| drop(DCondvar::default())),
            ("channel", &|| drop(channel::<u64>(1))),
        ];
        for (name, call) in calls {
            IS_HERE.set(Some(false));
            let has_panicked = catch_unwind(AssertUnwindSafe(call)).is_err();
            assert!(has_panicked && IS_HERE.replace(None) == Some(true), "{name}");
        }
    }
}
