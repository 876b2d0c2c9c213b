//! Classifies the drop of a value: either pure *drop glue*, the compiler's drops of its parts, which any rank
//! can run; or code of the program, which runs on the owner's rank.

#![forbid(unsafe_code)]
#![cfg_attr(
    not(any(feature = "runtime", test)),
    expect(dead_code, reason = "without a runtime nothing is dropped elsewhere")
)]

use crate::portable::Portable;
use std::any::TypeId;
use std::collections::HashSet;
use std::marker::PhantomData;

/// Searches a type, and all that its values own, for drop implementations of the program.
#[derive(Debug, Default)]
pub struct Glue {
    /// Types that were looked at, or are being: some own themselves.
    seen: HashSet<TypeId>,
    has_own: bool,
}

impl Glue {
    /// Returns true if dropping a value of a type, and all that it owns, runs no code of the program.
    pub(crate) fn is_all_of<T: Portable>() -> bool {
        let mut glue = Self::default();
        glue.part::<T>();
        !glue.has_own
    }

    /// A part of the value, or an object that it owns, has this type.
    pub fn part<T: Portable>(&mut self) {
        if std::mem::needs_drop::<T>() && !self.has_own && self.seen.insert(TypeId::of::<T>()) {
            T::glue(self);
        }
    }

    /// The type has a drop of its own, which must run on the owner's rank.
    pub fn own(&mut self) {
        self.has_own = true;
    }
}

/// For the derive: whether a type implements [`Drop`] itself. The inherent constant of such types shadows the
/// trait's, which holds for all.
#[doc(hidden)]
#[derive(Debug)]
pub struct DropOf<T>(PhantomData<T>);

#[expect(drop_bounds, reason = "it is to be known who implements it, not who has something to drop")]
impl<T: Drop> DropOf<T> {
    /// It does.
    pub const IS_OWN: bool = true;
}

/// The default, for types without a [`Drop`] of their own.
#[doc(hidden)]
pub trait NoDrop {
    /// It does not.
    const IS_OWN: bool = false;
}

impl<T> NoDrop for DropOf<T> {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Portable, Shareable};

    #[derive(Portable, Shareable)]
    struct WithDrop(u64);

    impl Drop for WithDrop {
        fn drop(&mut self) {
            self.0 = 0;
        }
    }

    #[derive(Portable)]
    struct Pair<T>(T, [Option<T>; 2]);

    #[derive(Portable)]
    struct OwnPair<T: Portable>(T);

    impl<T: Portable> Drop for OwnPair<T> {
        fn drop(&mut self) {}
    }

    #[derive(Portable)]
    #[expect(dead_code, reason = "the type matters")]
    enum Either<T> {
        Neither,
        One(T),
        Other { of: Result<u8, (T, u32)> },
    }

    /// Goal: a drop implementation of the program is found in each part of a type, and nowhere else, generic
    /// types included.
    #[test]
    fn own_drops_are_found() {
        let is = [
            Glue::is_all_of::<u64>(),
            Glue::is_all_of::<Pair<u64>>(),
            Glue::is_all_of::<Either<Pair<(u8, char)>>>(),
        ];
        assert_eq!(is, [true; 3]);
        let is = [
            Glue::is_all_of::<WithDrop>(),
            Glue::is_all_of::<Pair<WithDrop>>(),
            Glue::is_all_of::<Pair<Pair<WithDrop>>>(),
            Glue::is_all_of::<Either<WithDrop>>(),
            Glue::is_all_of::<Option<(u8, WithDrop)>>(),
            Glue::is_all_of::<OwnPair<u64>>(),
            Glue::is_all_of::<Result<u8, OwnPair<u64>>>(),
        ];
        assert_eq!(is, [false; 7]);
    }

    #[cfg(feature = "runtime")]
    #[derive(Portable)]
    struct Node<T: Portable> {
        value: T,
        next: Option<crate::DBox<Node<T>>>,
        rows: crate::DVec<crate::DMap<u64, crate::TBox<Option<Node<T>>>>>,
    }

    /// Goal: owned objects are searched, even if types own themselves; a type that declares its drop as more
    /// than glue is believed.
    #[cfg(feature = "runtime")]
    #[test]
    fn own_drops_are_found_behind_boxes() {
        use crate::sync::{DArc, DMutex, DWeak, Receiver, Sender};
        use crate::{DBox, DString, DVec};
        let is = [
            Glue::is_all_of::<DBox<u64>>(),
            Glue::is_all_of::<Node<u64>>(),
            Glue::is_all_of::<DVec<DString>>(),
            Glue::is_all_of::<(DArc<DBox<u8>>, DWeak<u64>)>(),
        ];
        assert_eq!(is, [true; 4]);
        let is = [
            Glue::is_all_of::<Node<WithDrop>>(),
            Glue::is_all_of::<DBox<DVec<WithDrop>>>(),
            Glue::is_all_of::<DArc<DVec<WithDrop>>>(),
            Glue::is_all_of::<Node<DMutex<u64>>>(),
            Glue::is_all_of::<Sender<u64>>(),
            Glue::is_all_of::<Receiver<u64>>(),
        ];
        assert_eq!(is, [false; 6]);
    }
}
