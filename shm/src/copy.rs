//! Copies between private memory and shared memory, and between two pieces of shared memory.
//!
//! A machine word that is aligned at *both* ends is moved by one load and one store, so it is never torn
//! (DESIGN: "bytes of one aligned 8-byte word are never torn"). Small copies are inlined; large ones use the
//! C library's `memcpy`, which on the supported machines moves aligned words at least 8 bytes at a time.

use std::ptr;

/// Copies `bytes` bytes from `from` to `to`; the two do not overlap.
///
/// # Safety
/// Both ranges are valid for the access for as long as the call lasts. Other processes may write either of them
/// meanwhile (rule 4 of [this crate](crate)).
#[inline(always)]
pub unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: the caller vouches for both ranges; unaligned word accesses are done as unaligned.
    unsafe {
        match bytes {
            // Not as `Word`: the compiler takes a volatile structure through the stack, which costs a small get a
            // third of its time.
            8 if (from.addr() | to.addr()).is_multiple_of(8) => {
                ptr::write_volatile(to.cast::<u64>(), ptr::read_volatile(from.cast::<u64>()));
            }
            8 => ptr::write_volatile(to.cast::<Word>(), ptr::read_volatile(from.cast::<Word>())),
            4 => ptr::write_volatile(to.cast::<Half>(), ptr::read_volatile(from.cast::<Half>())),
            1 => ptr::write_volatile(to, ptr::read_volatile(from)),
            _ => libc_copy(from, to, bytes),
        }
    }
}

#[derive(Clone, Copy)]
#[repr(C, packed)]
struct Word(#[allow(dead_code, reason = "moved as a whole")] u64);
#[derive(Clone, Copy)]
#[repr(C, packed)]
struct Half(#[allow(dead_code, reason = "moved as a whole")] u32);

/// # Safety
/// As [`copy`].
#[inline(always)]
unsafe fn libc_copy(from: *const u8, to: *mut u8, bytes: usize) {
    // A call across the language boundary, which the compiler neither splits nor reorders with other accesses to
    // the same bytes.
    // SAFETY: as the caller promised; libc's memcpy has the same contract.
    unsafe {
        libc::memcpy(to.cast(), from.cast(), bytes);
    }
}
