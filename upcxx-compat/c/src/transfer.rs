//! Puts, gets and memsets, where the headers could not simply copy: to ranks on other nodes.

use crate::fatal::fail;
use crate::handle::{Operation, vgasi_wait};
use crate::job;
use crate::segment::checked_offset;
use libc::{c_int, c_void};
use vgas_rma::{Rank, RmaError};

fn started(result: Result<vgas_rma::endpoint::Handle, RmaError>) -> *mut Operation {
    match result {
        Ok(handle) => Operation::pinned(handle),
        Err(error) => fail(error),
    }
}

/// Starts a put. The source is reusable when it returns, or, when `source_stays`, when the put is complete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vgasi_put_nb(
    rank: u32,
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    _source_stays: c_int,
) -> *mut Operation {
    let offset = checked_offset(rank, to, bytes);
    // SAFETY: rule 1.
    started(unsafe { job::joined().runtime.endpoint().put_nb_bulk(Rank(rank), offset, from.cast(), bytes) })
}

/// Starts a get.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vgasi_get_nb(
    to: *mut c_void,
    rank: u32,
    from: *const c_void,
    bytes: usize,
) -> *mut Operation {
    let offset = checked_offset(rank, from, bytes);
    // SAFETY: rule 1.
    started(unsafe { job::joined().runtime.endpoint().get_nb(Rank(rank), offset, to.cast(), bytes) })
}

/// Starts to set bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vgasi_memset_nb(
    rank: u32,
    to: *mut c_void,
    value: c_int,
    bytes: usize,
) -> *mut Operation {
    let offset = checked_offset(rank, to, bytes);
    started(job::joined().runtime.endpoint().memset_nb(Rank(rank), offset, value as u8, bytes as u64))
}

/// Puts; complete when it returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vgasi_put(rank: u32, to: *mut c_void, from: *const c_void, bytes: usize) {
    // SAFETY: as the caller promised.
    unsafe { vgasi_wait(vgasi_put_nb(rank, to, from, bytes, 1)) }
}

/// Gets; the bytes are there when it returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vgasi_get(to: *mut c_void, rank: u32, from: *const c_void, bytes: usize) {
    // SAFETY: as the caller promised.
    unsafe { vgasi_wait(vgasi_get_nb(to, rank, from, bytes)) }
}

/// Sets bytes; complete when it returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vgasi_memset(rank: u32, to: *mut c_void, value: c_int, bytes: usize) {
    // SAFETY: as the caller promised.
    unsafe { vgasi_wait(vgasi_memset_nb(rank, to, value, bytes)) }
}
