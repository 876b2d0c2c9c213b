//! Locks: `vgasnet_lock` and its like.

use crate::{code, job, segment};
use libc::{c_int, c_void};
use vgas::{GlobalAddress, say};

fn place(rank: u32, word: *const c_void) -> GlobalAddress {
    let offset = segment::checked_offset(rank, word, 8);
    segment::address(rank, offset)
}

/// `vgasnet_lock` and `vgasnet_try_lock`.
#[unsafe(no_mangle)]
pub extern "C" fn vgasi_lock(rank: u32, word: *const c_void, write: c_int, waits: c_int) -> c_int {
    let runtime = &job::joined().runtime;
    let at = place(rank, word);
    // Guards are for languages that drop them; `vgasi_unlock` takes their place.
    let taken = match (write != 0, waits != 0) {
        (true, true) => runtime.lock(at).map(std::mem::forget).map(Some),
        (false, true) => runtime.lock_shared(at).map(std::mem::forget).map(Some),
        (true, false) => runtime.try_lock(at).map(|guard| guard.map(std::mem::forget)),
        (false, false) => runtime.try_lock_shared(at).map(|guard| guard.map(std::mem::forget)),
    };
    match taken {
        Ok(Some(())) => code::OK,
        Ok(None) => code::NOT_READY,
        Err(error) => {
            say::line(format_args!("vgasnet_lock: {error}"));
            match error {
                vgas::Error::Lock { .. } => code::RESOURCE,
                _ => code::BAD_ARG,
            }
        }
    }
}

/// `vgasnet_unlock`.
#[unsafe(no_mangle)]
pub extern "C" fn vgasi_unlock(rank: u32, word: *const c_void, write: c_int) -> c_int {
    match job::joined().runtime.unlock(place(rank, word), write != 0) {
        Ok(()) => code::OK,
        Err(error) => {
            say::line(format_args!("vgasnet_unlock: {error}"));
            code::BAD_ARG
        }
    }
}
