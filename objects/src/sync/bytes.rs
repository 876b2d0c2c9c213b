//! Values as bytes, there and back.
//!
//! # Rules for the unsafe code in this file
//!
//! What is given is a value of a type that means the same in every process, and is nobody's any more here. What is taken is bytes that
//! were given of a value of the same type, once: ranks of a job run one program.

use crate::Portable;
use crate::heap::leave_behind;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::sync::atomic::Ordering;

/// Gives a value up, as bytes at the end of others.
pub(super) fn give<T: Portable>(value: T, to: &mut Vec<u8>) {
    let value = ManuallyDrop::new(value);
    // What its links have found here counts no more.
    leave_behind(&*value);
    to.reserve(size_of::<T>());
    // SAFETY: room for its bytes behind those that are there; padding is never looked at.
    unsafe {
        let from = std::ptr::from_ref(&*value).cast::<u8>();
        to.as_mut_ptr().add(to.len()).copy_from_nonoverlapping(from, size_of::<T>());
        to.set_len(to.len() + size_of::<T>());
    }
}

/// Makes bytes a value of this process.
///
/// # Panics
/// When they are not as many as the type has, of which the callers see to it.
pub(super) fn take<T: Portable>(bytes: &[u8]) -> T {
    assert_eq!(bytes.len(), size_of::<T>(), "bytes of a {}", std::any::type_name::<T>());
    let mut value = MaybeUninit::<T>::uninit();
    // SAFETY: the rule of this file: the bytes of a value.
    let value = unsafe {
        value.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        value.assume_init()
    };
    // Another rank's extensions mean nothing here.
    value.links(&mut |link| link.extension.store(0, Ordering::Relaxed));
    value
}
