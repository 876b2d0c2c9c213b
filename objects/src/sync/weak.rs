//! Weak handles of a value with several owners, which do not keep it.

use super::arc::{Counted, DArc, count_of, keep, one_less, one_more};
use super::count::{DRAWN, OWNER, WATCHER, has_room, owners, upgraded, watchers};
use crate::glue::Glue;
use crate::heap::{DBox, ObjectError, add, is_own, replace};
use crate::word::{Link, Word};
use crate::{Layout, Portable, Shareable};
use std::fmt;
use std::mem::ManuallyDrop;

/// A weak handle of a value of a [`DArc`], which does not keep it, as [`std::sync::Weak`]: for links from
/// children to parents, and for caches. 16 bytes, portable and shareable. The value's place in the heap stays
/// for it.
///
/// Cloning and dropping cost no message, as of a [`DArc`]. Becoming an owner is an update of the value's
/// count: of another node's value a rank's first takes two messages and their answers, and others none. It
/// cannot observe the end of the *handles*: units that ranks keep for future owners count as an owner, until
/// they are given back, at the latest at the next [`Objects::barrier`](crate::Objects::barrier). So an
/// upgrade may find a value without handles, and never one that is dropped.
///
/// ```
/// use vgas_objects::sync::{DArc, DMutex, DWeak};
/// use vgas_objects::{DVec, Portable, Shareable};
///
/// #[derive(Portable, Shareable)]
/// struct Folder { name: u64, parent: DWeak<Folder>, children: DMutex<DVec<DArc<Folder>>> }
///
/// /// The folders own each other downwards, so that all are dropped with the root.
/// fn add(parent: &DArc<Folder>, name: u64) -> Result<DArc<Folder>, vgas_objects::sync::LockError> {
///     let children = DMutex::new(DVec::new());
///     let child = DArc::new(Folder { name, parent: DArc::downgrade(parent), children });
///     parent.children.lock()?.push(child.clone());
///     Ok(child)
/// }
///
/// fn depth(folder: &Folder) -> usize {
///     folder.parent.upgrade().map_or(0, |parent| 1 + depth(&parent))
/// }
/// assert_eq!(size_of::<DWeak<Folder>>(), 16);
/// assert!(DWeak::<Folder>::new().upgrade().is_none());
/// ```
///
/// It is no owner, so it reads nothing:
///
/// ```compile_fail,E0614
/// # use vgas_objects::sync::DWeak;
/// fn read(number: DWeak<u64>) -> u64 { *number }
/// ```
/// ```compile_fail,E0277
/// # use vgas_objects::sync::DWeak;
/// fn text() -> DWeak<String> { DWeak::new() }
/// ```
pub struct DWeak<T: Shareable> {
    /// Never read through. None: of no value.
    of: Option<ManuallyDrop<DBox<Counted<T>>>>,
}

// SAFETY: its bytes are a box's, or zeros, and all its links are visited.
unsafe impl<T: Shareable> Portable for DWeak<T> {
    const HAS_LINKS: bool = true;

    fn links(&self, visit: &mut dyn FnMut(&Link)) {
        if let Some(of) = &self.of {
            of.links(visit);
        }
    }

    fn glue(glue: &mut Glue) {
        // As of an owner.
        glue.part::<T>();
    }

    fn describe(layout: &mut Layout) {
        if layout.begin::<Self>() {
            T::describe(layout);
        }
    }
}

// SAFETY: as of its box, which is shareable; becoming an owner changes nothing in it.
unsafe impl<T: Shareable> Shareable for DWeak<T> {}

impl<T: Shareable> DWeak<T> {
    /// Returns a handle of no value: an upgrade finds nothing.
    pub const fn new() -> Self {
        Self { of: None }
    }

    /// A watcher's handle, whose unit is the caller's.
    pub(super) fn of(word: Word) -> Self {
        Self { of: Some(ManuallyDrop::new(DBox::of(word))) }
    }

    fn word(&self) -> Option<Word> {
        self.of.as_ref().map(|of| DBox::word(of))
    }

    /// An owner, if the value has one; it stays then.
    ///
    /// # Panics
    /// If the count cannot be changed: a peer is lost, or there is no heap. [`DWeak::try_upgrade`] returns
    /// the error instead.
    #[track_caller]
    pub fn upgrade(&self) -> Option<DArc<T>> {
        match self.try_upgrade() {
            Ok(owner) => owner,
            Err(error) => panic!("{error}"),
        }
    }

    /// [`DWeak::upgrade`].
    ///
    /// # Errors
    /// If the count cannot be changed.
    #[track_caller]
    pub fn try_upgrade(&self) -> Result<Option<DArc<T>>, ObjectError> {
        let Some(word) = self.word() else { return Ok(None) };
        let is_own = is_own(word);
        if !is_own && super::arc::units(|units| units.take(word, OWNER)) {
            // The kept unit is an owner's, which is this one now.
            return Ok(Some(DArc::of(word)));
        }
        let drawn = if is_own { 1 } else { DRAWN };
        let mut seen = add::<DArc<T>>(word, 0)?;
        // Each iteration means that another rank has changed the count.
        while let Some(count) = upgraded(seen, drawn) {
            if !has_room(seen) {
                return Err(ObjectError::Usage(format!(
                    "{seen:#x} is the count of a value: no more can have it"
                )));
            }
            let was = replace::<DArc<T>>(word, seen, count)?;
            if was == seen {
                keep::<T>(word, (drawn - 1) * OWNER);
                return Ok(Some(DArc::of(word)));
            }
            seen = was;
        }
        Ok(None)
    }

    /// Another one.
    ///
    /// # Errors
    /// If the count cannot be changed.
    #[track_caller]
    pub fn try_clone(this: &Self) -> Result<Self, ObjectError> {
        let Some(word) = this.word() else { return Ok(Self::new()) };
        one_more::<T>(word, WATCHER)?;
        Ok(Self::of(word))
    }

    /// Returns true if two are of one value, or both of none.
    pub fn is_same(this: &Self, other: &Self) -> bool {
        this.word() == other.word()
    }

    /// Returns the number of owners of the value, as [`DArc::strong_count`] counts. The units that this rank
    /// keeps are given back for it, and the value dropped if they were the last.
    ///
    /// # Errors
    /// If the count cannot be read.
    #[track_caller]
    pub fn strong_count(&self) -> Result<usize, ObjectError> {
        self.word().map_or(Ok(0), |word| Ok(owners(count_of::<T>(word)?) as usize))
    }

    /// Returns the number of weak handles of the value, with this one, as [`DArc::weak_count`] counts; as
    /// std's, 0 if the value is gone.
    ///
    /// # Errors
    /// If the count cannot be read.
    #[track_caller]
    pub fn weak_count(&self) -> Result<usize, ObjectError> {
        let Some(word) = self.word() else { return Ok(0) };
        let count = count_of::<T>(word)?;
        Ok(if owners(count) > 0 { watchers(count) as usize - 1 } else { 0 })
    }
}

impl<T: Shareable> Default for DWeak<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Shareable> Clone for DWeak<T> {
    /// # Panics
    /// If [`DWeak::try_clone`] fails.
    #[track_caller]
    fn clone(&self) -> Self {
        match Self::try_clone(self) {
            Ok(other) => other,
            Err(error) => panic!("{error}"),
        }
    }
}

impl<T: Shareable> Drop for DWeak<T> {
    fn drop(&mut self) {
        // Nothing is dropped with the box: it stands for the unit.
        if let Some(of) = self.of.take() {
            one_less::<T>(ManuallyDrop::into_inner(of).into_word(), WATCHER);
        }
    }
}

impl<T: Shareable> fmt::Debug for DWeak<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(DWeak)")
    }
}
