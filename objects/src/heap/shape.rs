//! What of a type matters to who moves its values as bytes.

use super::group::{Group, group_of};
use crate::portable::Portable;
use crate::slab::{Class, LABEL_BYTES, label_offset};
use crate::word::{ADDRESS_MASK, Link, Word};
use std::ptr::with_exposed_provenance;
use std::sync::atomic::Ordering;

/// Shows the links of the values that are in so many bytes at an address; see [`crate::Portable::links`].
pub(crate) type Links = fn(u64, usize, &mut dyn FnMut(&Link));

/// Of one value, or of several in a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// What holds it.
    pub class: Class,
    /// What its address is a multiple of.
    pub align: usize,
    /// Bytes of the values; those behind them mean nothing.
    pub bytes: usize,
    /// None where the type has none.
    pub links: Option<Links>,
    /// What is tied to its values; none where nothing can be.
    pub group: Option<fn() -> &'static Group>,
    /// The type's name.
    pub name: fn() -> &'static str,
}

impl Shape {
    /// Of one value.
    pub const fn of<T: Portable>() -> Self {
        let Some(class) = Class::of(size_of::<T>() as u64, align_of::<T>() as u64) else {
            panic!("no object is aligned to more than 64 KiB");
        };
        Self::of_some::<T>(class, 1)
    }

    /// Of so many values in a slot of this class.
    pub const fn of_some<T: Portable>(class: Class, count: usize) -> Self {
        let links: Option<Links> = if T::HAS_LINKS { Some(links_of::<T>) } else { None };
        let group: Option<fn() -> &'static Group> = if T::HAS_TIES { Some(group_of::<T>) } else { None };
        let (align, bytes) = (align_of::<T>(), size_of::<T>() * count);
        Self { class, align, bytes, links, group, name: std::any::type_name::<T> }
    }

    /// What holds a copy: the values, and a label behind them.
    pub fn copy_class(&self) -> Option<Class> {
        Class::of(label_offset(self.bytes as u64) + LABEL_BYTES, self.align.max(8) as u64)
    }

    /// Whether ranks of a node may read it in each other's memory: it has no links, in which who reads notes what it has found, and slabs
    /// of its own. To map pages of another rank takes as long as to copy some ten thousand bytes.
    pub fn is_read_in_place(&self) -> bool {
        self.links.is_none() && matches!(self.class, Class::Large(_))
    }

    /// Other ranks' extensions mean nothing here. Yields what those were about that counted where the values come from, whose have this
    /// tag.
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

pub(crate) fn links_of<T: Portable>(address: u64, bytes: usize, visit: &mut dyn FnMut(&Link)) {
    // One of a size of 0 has no links, and does not come here.
    for at in 0..bytes / size_of::<T>().max(1) {
        // SAFETY: rule 3: called with the address of values of this type that are this rank's, or of nobody else yet.
        unsafe { &*with_exposed_provenance::<T>(address as usize).add(at) }.links(visit);
    }
}
