//! Ties: the places in a value at which other objects are tied to it ([`crate::TBox`]), by which a home finds the objects to send with it.

#![forbid(unsafe_code)]
#![cfg_attr(not(feature = "runtime"), expect(dead_code, reason = "without a runtime nothing is fetched"))]

use crate::portable::Portable;
use crate::shape::Shape;
use rustc_hash::FxHashMap;
use std::any::TypeId;
use std::sync::{OnceLock, PoisonError, RwLock};

/// Most types of a group that are followed; objects of other types are fetched alone.
pub(crate) const TYPES_MAX: usize = 64;
/// Ties of a value that are followed.
const TIES_MAX: usize = 256;

/// The types of the objects that are tied to a value of some type, directly or not. The first is that of the value.
#[derive(Debug)]
pub struct Ties {
    types: Vec<Tied>,
    /// Index of the type whose ties are being found, and the offset in its values.
    of: usize,
    base: usize,
}

/// A type of a group.
#[derive(Debug)]
pub(crate) struct Tied {
    id: TypeId,
    pub shape: Shape,
    /// Offsets in a value of the words of tied objects, each with the number of its type in the group.
    pub ties: Vec<(u32, u16)>,
}

impl Tied {
    fn of<T: Portable>() -> Self {
        Self { id: TypeId::of::<T>(), shape: Shape::of::<T>(), ties: Vec::new() }
    }
}

/// Returns the types of a group, of a type that has ties. They are found once per process, and kept.
pub(crate) fn tied_to<T: Portable>() -> &'static [Tied] {
    static ALL: OnceLock<RwLock<FxHashMap<TypeId, &'static [Tied]>>> = OnceLock::new();
    let (all, id) = (ALL.get_or_init(RwLock::default), TypeId::of::<T>());
    if let Some(known) = all.read().unwrap_or_else(PoisonError::into_inner).get(&id) {
        return known;
    }
    let types = Ties::of::<T>();
    all.write().unwrap_or_else(PoisonError::into_inner).entry(id).or_insert_with(|| types.leak())
}

impl Ties {
    /// Finds the ties of a type.
    pub(crate) fn of<T: Portable>() -> Vec<Tied> {
        let mut ties = Self { types: vec![Tied::of::<T>()], of: 0, base: 0 };
        T::ties(&mut ties);
        ties.types
    }

    /// For the derive: a part of the value, which begins there.
    #[doc(hidden)]
    pub fn part<T: Portable>(&mut self, offset: usize) {
        if T::HAS_TIES {
            self.base += offset;
            T::ties(self);
            self.base -= offset;
        }
    }

    /// The value is the word of an object of this type.
    pub(crate) fn tie<T: Portable>(&mut self) {
        let known = self.types.iter().position(|tied| tied.id == TypeId::of::<T>());
        if known.is_none() && self.types.len() == TYPES_MAX || self.types[self.of].ties.len() == TIES_MAX {
            return;
        }
        let at = known.unwrap_or(self.types.len());
        if let (Ok(offset), Ok(number)) = (u32::try_from(self.base), u16::try_from(at)) {
            self.types[self.of].ties.push((offset, number));
        }
        if known.is_none() {
            self.types.push(Tied::of::<T>());
            let (of, base) = (std::mem::replace(&mut self.of, at), std::mem::take(&mut self.base));
            T::ties(self);
            (self.of, self.base) = (of, base);
        }
    }
}

#[cfg(all(test, feature = "runtime"))]
mod tests {
    use super::*;
    use crate::{Portable, Shareable, TBox};

    #[derive(Portable, Shareable)]
    struct Leaf {
        number: u64,
    }

    #[derive(Portable, Shareable)]
    #[expect(dead_code, reason = "the type matters")]
    enum Either {
        Neither,
        One(TBox<Leaf>),
    }

    #[derive(Portable, Shareable)]
    struct Node<T: Portable> {
        value: T,
        next: Option<TBox<Node<T>>>,
        leaves: [(u64, Option<TBox<Leaf>>); 2],
        either: Either,
        maybe: Option<(bool, TBox<Leaf>)>,
    }

    /// Goal: ties in fields, tuples, arrays and options are where their words are, recursive types are one
    /// type, and values whose ties depend on their content are left out.
    #[test]
    fn ties_are_where_words_are() {
        let types = Ties::of::<Node<u32>>();
        assert_eq!(types.len(), 2);
        let next = std::mem::offset_of!(Node<u32>, next);
        let leaves = std::mem::offset_of!(Node<u32>, leaves);
        let (step, within) =
            (size_of::<(u64, Option<TBox<Leaf>>)>(), std::mem::offset_of!((u64, Option<TBox<Leaf>>), 1));
        let mut ties = types[0].ties.clone();
        ties.sort_unstable();
        let mut right =
            [(next, 0), (leaves + within, 1), (leaves + step + within, 1)].map(|(at, of)| (at as u32, of));
        right.sort_unstable();
        assert_eq!(ties, right);
        assert!(types[1].ties.is_empty() && types[1].shape.bytes == size_of::<Leaf>());
        assert_eq!(
            (Either::HAS_TIES, Option::<(bool, TBox<Leaf>)>::HAS_TIES, u64::HAS_TIES),
            (false, false, false)
        );
    }

    /// Goal: more types and more ties than are followed do no harm.
    #[test]
    fn ties_have_a_bound() {
        let types = Ties::of::<[TBox<Leaf>; 1000]>();
        assert_eq!((types.len(), types[0].ties.len()), (2, TIES_MAX));
        assert!(types[0].ties.iter().zip(0..).all(|(tie, at)| *tie == (16 * at, 1)));
    }
}
