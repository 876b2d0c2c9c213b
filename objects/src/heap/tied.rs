//! [`TBox`]: a box whose object comes with its parent.

use super::borrow::{MutRef, Ref};
use super::boxes::DBox;
use super::error::{ObjectError, Refused};
use crate::glue::Glue;
use crate::layout::Layout;
use crate::portable::{Portable, Shareable};
use crate::tie::Ties;
use crate::word::Link;
use std::fmt;
use std::ops::{Deref, DerefMut};

/// A [`DBox`] whose object is *tied* to the object that the box is in (DRust §4.1.3): another node that reads
/// or moves the latter gets this with it, in one answer, and so on to objects tied to this. A list or a tree
/// of them is fetched at once, where boxes would be fetched one by one.
///
/// ```
/// use vgas_objects::{Portable, Shareable, TBox};
///
/// #[derive(Portable, Shareable)]
/// struct Node { value: u64, next: Option<TBox<Node>> }
///
/// fn sum(first: &Node) -> u64 {
///     std::iter::successors(Some(first), |node| node.next.as_deref()).map(|node| node.value).sum()
/// }
/// assert_eq!(size_of::<Option<TBox<Node>>>(), 16);
/// ```
///
/// It is used as a [`DBox`], and is one where nothing can come with it: what is on another rank than what it is tied to, in an enum other than
/// `Option`, larger than 32 KiB, or does not fit into the message (64 KiB at most) is fetched when it is used. So is all of a group
/// whose heap has replicas. Ranks of one node need no messages, and fetch no groups.
///
/// In the paper a variable of this type pins its object to the server of the variable; here it is a box like any other as long as it is in no
/// object.
#[repr(transparent)]
pub struct TBox<T: Portable>(pub(super) DBox<T>);

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

impl<T: Portable> TBox<T> {
    /// Places a value as [`DBox::new`] does.
    ///
    /// # Panics
    /// As [`DBox::new`].
    #[track_caller]
    pub fn new(value: T) -> Self {
        Self(DBox::new(value))
    }

    /// Places a value as [`DBox::new`] does.
    ///
    /// # Errors
    /// As [`DBox::try_new`].
    pub fn try_new(value: T) -> Result<Self, Refused<T>> {
        DBox::try_new(value).map(Self)
    }

    /// The value, for writing, also of types that others cannot read. As [`DerefMut`].
    ///
    /// # Panics
    /// If the object cannot be reached.
    #[inline]
    #[track_caller]
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }

    /// Takes the value out of the heap.
    ///
    /// # Panics
    /// As [`DBox::into_inner`].
    #[track_caller]
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }

    /// Ties an object to the value that the result will be in.
    pub fn tie(of: DBox<T>) -> Self {
        Self(of)
    }

    /// The object, tied to nothing.
    pub fn into_box(this: Self) -> DBox<T> {
        this.0
    }
}

impl<T: Shareable> TBox<T> {
    /// Borrows the object for reading: a copy, if another rank has it.
    ///
    /// # Panics
    /// If the object cannot be reached.
    #[track_caller]
    pub fn read(&self) -> Ref<'_, T> {
        self.0.read()
    }

    /// [`TBox::read`].
    ///
    /// # Errors
    /// If the object cannot be reached, or there is no room for a copy.
    #[track_caller]
    pub fn try_read(&self) -> Result<Ref<'_, T>, ObjectError> {
        self.0.try_read()
    }

    /// Borrows the object for writing: it is this rank's then.
    ///
    /// # Panics
    /// If the object cannot be reached.
    #[track_caller]
    pub fn write(&mut self) -> MutRef<'_, T> {
        self.0.write()
    }

    /// [`TBox::write`].
    ///
    /// # Errors
    /// If the object cannot be reached, or there is no room for it.
    #[track_caller]
    pub fn try_write(&mut self) -> Result<MutRef<'_, T>, ObjectError> {
        self.0.try_write()
    }
}

impl<T: Shareable> Deref for TBox<T> {
    type Target = T;

    #[inline]
    #[track_caller]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Shareable> DerefMut for TBox<T> {
    #[inline]
    #[track_caller]
    fn deref_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
}

impl<T: Portable> fmt::Debug for TBox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TBox({:?})", DBox::word(&self.0))
    }
}
