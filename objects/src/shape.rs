//! Shapes: the properties of a type by which the heap moves its values as bytes.

#![cfg_attr(not(feature = "runtime"), expect(dead_code, reason = "without a runtime nothing is moved"))]

use crate::portable::Portable;
use crate::slab::{Class, LABEL_BYTES, label_offset};
use crate::tie::{Tied, tied_to};
use crate::word::{ADDRESS_MASK, Link, Word};
use std::ptr::with_exposed_provenance;
use std::sync::atomic::Ordering;

/// Visits the links of the values in a number of bytes at an address; see [`crate::Portable::links`].
pub(crate) type Links = fn(u64, usize, &mut dyn FnMut(&Link));

/// The shape of one value, or of several in a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// The class of its slot.
    pub class: Class,
    /// Alignment of the address in bytes.
    pub align: usize,
    /// Bytes of the values; the rest of the slot means nothing.
    pub bytes: usize,
    /// None if the type has no links.
    pub links: Option<Links>,
    /// The types of the objects that are tied to its values, its own first; none if nothing can be tied to them.
    pub tied: Option<fn() -> &'static [Tied]>,
    /// The type's name.
    pub name: fn() -> &'static str,
}

impl Shape {
    /// The shape of one value.
    pub const fn of<T: Portable>() -> Self {
        let Some(class) = Class::of(size_of::<T>() as u64, align_of::<T>() as u64) else {
            panic!("no object is aligned to more than 64 KiB");
        };
        Self::of_some::<T>(class, 1)
    }

    /// The shape of `count` values in a slot of this class.
    pub const fn of_some<T: Portable>(class: Class, count: usize) -> Self {
        let links: Option<Links> = if T::HAS_LINKS { Some(links_of::<T>) } else { None };
        let tied: Option<fn() -> &'static [Tied]> = if T::HAS_TIES { Some(tied_to::<T>) } else { None };
        let (align, bytes) = (align_of::<T>(), size_of::<T>() * count);
        Self { class, align, bytes, links, tied, name: std::any::type_name::<T> }
    }

    /// Returns the class of a copy's slot: the values, and a label behind them.
    pub fn copy_class(&self) -> Option<Class> {
        Class::of(label_offset(self.bytes as u64) + LABEL_BYTES, self.align.max(8) as u64)
    }

    /// Returns whether ranks of a node may read it in each other's memory: it must have no links, because a reader writes to their
    /// extensions, and slabs of its own, because mapping pages of another rank takes as long as copying some ten thousand bytes.
    pub fn is_read_in_place(&self) -> bool {
        self.links.is_none() && matches!(self.class, Class::Large(_))
    }

    /// Clears the extensions of links whose bytes have come from another rank. Returns the words of the copies that the sender counts for them:
    /// of extensions with its tag.
    pub fn scrub(&self, address: u64, tag: u64) -> Vec<Word> {
        let mut holds = Vec::new();
        if let Some(links) = self.links {
            links(address, self.bytes, &mut |link| {
                let extension = link.extension.swap(0, Ordering::Relaxed);
                if extension >> 48 == tag && extension & ADDRESS_MASK != link.word.address() {
                    holds.push(link.word);
                }
            });
        }
        holds
    }
}

/// Visits the links of values of this type; see [`Links`].
pub(crate) fn links_of<T: Portable>(address: u64, bytes: usize, visit: &mut dyn FnMut(&Link)) {
    // A type of size 0 has no links, and does not come here.
    for at in 0..bytes / size_of::<T>().max(1) {
        // SAFETY: the heap's rule 3: called with the address of values of this type that are this rank's, or not shared yet.
        unsafe { &*with_exposed_provenance::<T>(address as usize).add(at) }.links(visit);
    }
}
