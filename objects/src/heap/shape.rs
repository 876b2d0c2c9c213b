//! What of a type matters to who moves its values as bytes.

use crate::portable::Portable;
use crate::slab::Class;
use crate::word::{Link, Word};
use std::ptr::with_exposed_provenance;
use std::sync::atomic::Ordering;

/// Shows the links of the values that are in so many bytes at an address; see [`crate::Portable::links`].
pub(super) type Links = fn(u64, usize, &mut dyn FnMut(&Link));

/// Of one value, or of several in a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// What holds it.
    pub class: Class,
    /// Bytes of the values; those behind them mean nothing.
    pub bytes: usize,
    /// None where the type has none.
    pub links: Option<Links>,
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
        Self { class, bytes: size_of::<T>() * count, links, name: std::any::type_name::<T> }
    }

    /// Other ranks' extensions mean nothing here. Yields what those were about that counted where the values come from, whose have this
    /// tag.
    pub fn scrub(&self, address: u64, tag: u64) -> Vec<Word> {
        let mut holds = Vec::new();
        if let Some(links) = self.links {
            links(address, self.bytes, &mut |link| {
                if link.extension.swap(0, Ordering::Relaxed) >> 48 == tag {
                    holds.push(link.word);
                }
            });
        }
        holds
    }
}

fn links_of<T: Portable>(address: u64, bytes: usize, visit: &mut dyn FnMut(&Link)) {
    // One of a size of 0 has no links, and does not come here.
    for at in 0..bytes / size_of::<T>().max(1) {
        // SAFETY: rule 3: called with the address of values of this type that are this rank's, or of nobody else yet.
        unsafe { &*with_exposed_provenance::<T>(address as usize).add(at) }.links(visit);
    }
}
