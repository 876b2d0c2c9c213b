//! Values as bytes, and bytes as values.
//!
//! # Rules for the unsafe code in this file
//!
//! 1. *Padding.* The bytes of a value include padding, which may be uninitialised: they are `MaybeUninit<u8>` until [`initialise`] has seen
//!    them.
//! 2. *Values.* Bytes become a value only of the type of the value that they were, once: ranks of a job run one program. Extensions of their
//!    links are zeros before the value is seen.
//! 3. *Sharing.* Only extensions of its links change behind a shared reference to a lent value; they are atomics and are not
//!    read as bytes.

use crate::portable::Portable;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering};

/// Makes the compiler assume that the bytes behind a pointer were written, with the memory's present content.
/// No instruction. Miri has no assembly, and reports reads of padding.
#[inline(always)]
pub(crate) fn assume_written(first: *mut MaybeUninit<u8>) {
    #[cfg(not(miri))]
    // SAFETY: it does nothing. To the compiler it may write whatever the pointer may.
    unsafe {
        std::arch::asm!("/* {0} */", in(reg) first, options(nostack, preserves_flags));
    }
    #[cfg(miri)]
    let _ = first;
}

/// Returns bytes, some of which may be padding, as numbers: padding has the memory's present content.
pub(crate) fn initialise(bytes: &mut [MaybeUninit<u8>]) -> &mut [u8] {
    assume_written(bytes.as_mut_ptr());
    // SAFETY: rule 1: of the same layout, and initialised, as far as the compiler may assume.
    unsafe { &mut *(std::ptr::from_mut(bytes) as *mut [u8]) }
}

/// Returns the bytes of a value.
pub(crate) fn of<T: Portable>(value: &mut T) -> &[u8] {
    let first = std::ptr::from_mut(value).cast::<MaybeUninit<u8>>();
    // SAFETY: rule 1: the bytes of the value, which is borrowed as long as they are, and is not written
    // meanwhile.
    initialise(unsafe { std::slice::from_raw_parts_mut(first, size_of::<T>()) })
}

/// Appends the bytes of a value that other threads may read at the same time. Extensions of its links are zeros.
pub(crate) fn append_shared<T: Portable>(value: &T, to: &mut Vec<u8>) {
    let bytes = size_of::<T>();
    let first = std::ptr::from_ref(value).cast::<MaybeUninit<u8>>();
    let mut extensions = Vec::new();
    if T::HAS_LINKS {
        value.links(&mut |link| {
            extensions.push((&raw const link.extension).addr().wrapping_sub(first.addr()))
        });
        extensions.sort_unstable();
    }
    to.reserve(bytes);
    let room = &mut to.spare_capacity_mut()[..bytes];
    let mut done = 0;
    for (extension, length) in
        extensions.into_iter().map(|at| (at, size_of::<AtomicU64>())).chain([(bytes, 0)])
    {
        // A link that is not in the value itself is none of its bytes.
        if extension > bytes - length {
            continue;
        }
        let between = &mut room[done..extension];
        // SAFETY: rules 1 and 3: bytes of the value between two extensions, which are not written.
        between.copy_from_slice(unsafe { std::slice::from_raw_parts(first.add(done), extension - done) });
        room[extension..extension + length].fill(MaybeUninit::new(0));
        done = extension + length;
    }
    initialise(room);
    // SAFETY: rule 1: as many bytes have been written.
    unsafe { to.set_len(to.len() + bytes) };
}

/// Decodes bytes into a value, in memory that only the caller uses.
///
/// # Safety
/// They are the bytes of a value of this type.
///
/// # Panics
/// If they are not as many as the type has, of which the callers see to it.
pub(crate) unsafe fn place<T: Portable>(bytes: &[u8], to: &mut MaybeUninit<T>) {
    assert_eq!(bytes.len(), size_of::<T>(), "bytes of a {}", std::any::type_name::<T>());
    // SAFETY: rule 2: memory of as many bytes, and the caller's promise.
    unsafe {
        to.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        // Another rank's extensions mean nothing here.
        (*to.as_ptr()).links(&mut |link| link.extension.store(0, Ordering::Relaxed));
    }
}

/// Makes bytes a value of this process.
///
/// # Safety
/// As of [`place`], and no other value was or will be made of them.
///
/// # Panics
/// As [`place`].
pub(crate) unsafe fn take<T: Portable>(bytes: &[u8]) -> T {
    let mut value = MaybeUninit::uninit();
    // SAFETY: rule 2: the caller's promise.
    unsafe {
        place(bytes, &mut value);
        value.assume_init()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::word::{Colour, Link, Word};

    /// Padding before, between and behind two links, the second of them in an option.
    #[repr(C)]
    struct Padded {
        small: u8,
        first: Link,
        middle: (u16, u8),
        second: Option<Link>,
        last: u8,
    }

    // SAFETY: links, which are visited, and numbers.
    unsafe impl Portable for Padded {
        const HAS_LINKS: bool = true;

        fn links(&self, visit: &mut dyn FnMut(&Link)) {
            // Not in the order in which they lie.
            self.second.iter().for_each(&mut *visit);
            visit(&self.first);
        }
    }

    fn link(number: u64) -> Link {
        let link = Link::new(Word::new(number * 16, Colour(3)).unwrap());
        link.extension.store(u64::MAX, Ordering::Relaxed);
        link
    }

    fn padded(second: Option<Link>) -> Padded {
        Padded { small: 1, first: link(2), middle: (3, 4), second, last: 5 }
    }

    fn is_whole(value: &Padded, second: Option<u64>) -> bool {
        let of = |link: &Link| (link.extension.load(Ordering::Relaxed), link.word().address() / 16);
        (value.small, value.middle, value.last) == (1, (3, 4), 5)
            && of(&value.first) == (0, 2)
            && value.second.as_ref().map(of) == second.map(|second| (0, second))
    }

    /// Goal: a value with padding is unchanged after a round trip as bytes, lent or given, and its links'
    /// notes are gone. Under Miri: nothing looks at padding.
    #[test]
    fn values_with_padding_are_bytes() {
        for second in [None, Some(6)] {
            let mut value = padded(second.map(link));
            let mut bytes = vec![7; 3];
            append_shared(&value, &mut bytes);
            assert_eq!(bytes.len(), 3 + size_of::<Padded>());
            // SAFETY: the bytes of a value.
            assert!(is_whole(&unsafe { take::<Padded>(&bytes[3..]) }, second));
            // SAFETY: as above.
            assert!(is_whole(&unsafe { take::<Padded>(of(&mut value)) }, second));
        }
        let mut tagged = [Some(7u32), None];
        let mut again = MaybeUninit::<[Option<u32>; 2]>::uninit();
        // SAFETY: the bytes of a value.
        let again = unsafe {
            place(of(&mut tagged), &mut again);
            again.assume_init()
        };
        assert_eq!(again, tagged);
        let mut nothing = Vec::new();
        append_shared(&(), &mut nothing);
        assert!(nothing.is_empty() && of(&mut ()).is_empty());
    }
}
