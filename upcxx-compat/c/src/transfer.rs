//! Puts, gets and memsets that the headers could not do by copying: of ranks on other nodes, and of tiered
//! segments.

use crate::fatal::fail;
use crate::handle::Operation;
use crate::job::{self, Raw as _};
use crate::segment::{checked_offset, is_tiered, own};
use libc::{c_int, c_void};
use vgas_rma::{Rank, RmaError};

/// Bytes of a tiered segment that a memset sets at once.
const PATTERN_BYTES: usize = 64 << 10;

fn started(result: Result<vgas_rma::endpoint::Handle, RmaError>) -> *mut Operation {
    match result {
        Ok(handle) => Operation::pinned(handle),
        Err(error) => fail(error),
    }
}

/// Copies between two places of this process, which may overlap.
unsafe fn copy_here(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: rule 1: both are memory of the client.
    unsafe { std::ptr::copy(from, to, bytes) };
}

/// Starts a put. The source is reusable when it returns, or, when `source_stays`, when the put is complete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vgasi_put_nb(
    rank: u32,
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    source_stays: c_int,
) -> *mut Operation {
    if let Some(here) = own(rank, to, bytes) {
        // SAFETY: as the caller promised.
        unsafe { copy_here(from.cast(), here, bytes) };
        return std::ptr::null_mut();
    }
    let offset = checked_offset(rank, to, bytes);
    let runtime = &job::joined().runtime;
    if !is_tiered() {
        let (endpoint, rank, from) = (runtime.endpoint(), Rank(rank), from.cast());
        // SAFETY: rule 1.
        return started(unsafe {
            match source_stays {
                0 => endpoint.put_nb_raw(rank, offset, from, bytes),
                _ => endpoint.put_nb_bulk(rank, offset, from, bytes),
            }
        });
    }
    let mut source = from.cast::<u8>();
    let mut copy = None;
    if source_stays == 0 && bytes > 0 {
        // SAFETY: rules 1 and 5: a copy, because the client may write to the source meanwhile.
        let own: Box<[u8]> = unsafe { copied(source, bytes) };
        source = own.as_ptr();
        copy = Some(own);
    }
    // SAFETY: rule 1, or the operation keeps the copy.
    match unsafe { runtime.client().put_nb(Rank(rank), offset, source, bytes) } {
        Ok(pending) => Operation::tiered(pending, copy),
        Err(error) => fail(error),
    }
}

/// A copy of bytes that may be shared memory.
pub(crate) unsafe fn copied(from: *const u8, bytes: usize) -> Box<[u8]> {
    let mut own = vec![0; bytes];
    // SAFETY: as the caller promised; the copy is new and as long.
    unsafe { vgas_shm::copy::copy(from, own.as_mut_ptr(), bytes) };
    own.into_boxed_slice()
}

/// Starts a get.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vgasi_get_nb(
    to: *mut c_void,
    rank: u32,
    from: *const c_void,
    bytes: usize,
) -> *mut Operation {
    if let Some(here) = own(rank, from, bytes) {
        // SAFETY: as the caller promised.
        unsafe { copy_here(here, to.cast(), bytes) };
        return std::ptr::null_mut();
    }
    let offset = checked_offset(rank, from, bytes);
    let runtime = &job::joined().runtime;
    if !is_tiered() {
        // SAFETY: rule 1.
        return started(unsafe { runtime.endpoint().get_nb(Rank(rank), offset, to.cast(), bytes) });
    }
    // SAFETY: rule 1.
    match unsafe { runtime.client().get_nb(Rank(rank), offset, to.cast(), bytes) } {
        Ok(pending) => Operation::tiered(pending, None),
        Err(error) => fail(error),
    }
}

/// Sets bytes of this rank outside of its segment; whether they are that.
unsafe fn set_own(rank: u32, to: *mut c_void, value: c_int, bytes: usize) -> bool {
    let Some(here) = own(rank, to, bytes) else { return false };
    // SAFETY: as the caller promised.
    unsafe { here.write_bytes(value as u8, bytes) };
    true
}

/// Starts to set bytes. In a tiered segment it is complete when it returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vgasi_memset_nb(
    rank: u32,
    to: *mut c_void,
    value: c_int,
    bytes: usize,
) -> *mut Operation {
    if is_tiered() {
        // SAFETY: as the caller promised.
        unsafe { vgasi_memset(rank, to, value, bytes) };
        return std::ptr::null_mut();
    }
    // SAFETY: as the caller promised.
    if unsafe { set_own(rank, to, value, bytes) } {
        return std::ptr::null_mut();
    }
    let offset = checked_offset(rank, to, bytes);
    started(job::joined().runtime.endpoint().memset_nb(Rank(rank), offset, value as u8, bytes as u64))
}

/// Puts; complete when it returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vgasi_put(rank: u32, to: *mut c_void, from: *const c_void, bytes: usize) {
    if let Some(here) = own(rank, to, bytes) {
        // SAFETY: as the caller promised.
        return unsafe { copy_here(from.cast(), here, bytes) };
    }
    let offset = checked_offset(rank, to, bytes);
    let runtime = &job::joined().runtime;
    if is_tiered() {
        // SAFETY: rule 1.
        let put = unsafe { runtime.client().put(Rank(rank), offset, from.cast(), bytes) };
        return put.unwrap_or_else(|error| fail(error));
    }
    // SAFETY: rule 1.
    let put = unsafe { runtime.endpoint().put_raw(Rank(rank), offset, from.cast(), bytes) };
    put.unwrap_or_else(|error| fail(error));
}

/// Gets; the bytes are there when it returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vgasi_get(to: *mut c_void, rank: u32, from: *const c_void, bytes: usize) {
    if let Some(here) = own(rank, from, bytes) {
        // SAFETY: as the caller promised.
        return unsafe { copy_here(here, to.cast(), bytes) };
    }
    let offset = checked_offset(rank, from, bytes);
    let runtime = &job::joined().runtime;
    if is_tiered() {
        // SAFETY: rule 1.
        let get = unsafe { runtime.client().get(Rank(rank), offset, to.cast(), bytes) };
        return get.unwrap_or_else(|error| fail(error));
    }
    // SAFETY: rule 1.
    let get = unsafe { runtime.endpoint().get_raw(Rank(rank), offset, to.cast(), bytes) };
    get.unwrap_or_else(|error| fail(error));
}

/// Sets bytes; complete when it returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vgasi_memset(rank: u32, to: *mut c_void, value: c_int, bytes: usize) {
    // SAFETY: as the caller promised.
    if unsafe { set_own(rank, to, value, bytes) } {
        return;
    }
    let offset = checked_offset(rank, to, bytes);
    let runtime = &job::joined().runtime;
    if !is_tiered() {
        let set = runtime.endpoint().memset(Rank(rank), offset, value as u8, bytes as u64);
        return set.unwrap_or_else(|error| fail(error));
    }
    let pattern = vec![value as u8; bytes.min(PATTERN_BYTES)];
    for at in (0..bytes).step_by(PATTERN_BYTES) {
        let piece = PATTERN_BYTES.min(bytes - at);
        // SAFETY: the pattern is as long.
        let put = unsafe { runtime.client().put(Rank(rank), offset + at as u64, pattern.as_ptr(), piece) };
        if let Err(error) = put {
            fail(error);
        }
    }
}
