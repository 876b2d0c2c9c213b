//! Further segments: `vgasnet_segment_attach` and its like.

use crate::code;
use crate::fatal::fail;
use crate::job::{self, Raw as _};
use crate::transfer::copied;
use libc::{c_char, c_int, c_void};
use std::ffi::CStr;
use vgas::{GlobalAddress, Kind, LocalPart, Rank, Runtime, Segment, SegmentId, SegmentOptions, say};
use vgas_cache::CacheError;
use vgas_rma::{PinnedPart, RegionId, RmaError};

/// `vgasnet_segment_options_t`.
#[repr(C)]
pub struct Options {
    page_bytes: u32,
    relaxed: c_int,
    home_only: c_int,
    in_place: c_int,
    no_read_ahead: c_int,
    streamed: c_int,
    weight: u32,
    name: *const c_char,
    pinned: c_int,
    one_address: c_int,
}

impl Options {
    /// # Safety
    /// Rule 1: the name is null, or a string.
    unsafe fn read(&self) -> Option<SegmentOptions> {
        let name = match self.name.is_null() {
            true => None,
            // SAFETY: as the caller promised.
            false => Some(unsafe { CStr::from_ptr(self.name) }.to_str().ok()?.to_owned()),
        };
        Some(SegmentOptions {
            kind: if self.pinned != 0 { Kind::Pinned } else { Kind::Tiered },
            name,
            page_bytes: self.page_bytes,
            relaxed: self.relaxed != 0,
            home_only: self.home_only != 0,
            in_place: self.in_place != 0,
            read_ahead: self.no_read_ahead == 0,
            streamed: self.streamed != 0,
            one_address: self.one_address != 0,
            weight: u8::try_from(self.weight.max(1)).ok()?,
        })
    }
}

fn address(segment: u16, rank: u32, offset: u64) -> GlobalAddress {
    Segment::numbered(SegmentId(segment)).address(Rank(rank), offset)
}

/// A rank's part of a pinned segment, if it is one.
fn pinned(segment: u16, rank: u32) -> Option<PinnedPart> {
    let kind = Segment::numbered(SegmentId(segment)).kind();
    (kind == Kind::Pinned).then_some(PinnedPart { region: RegionId(segment), owner: Rank(rank) })
}

/// `vgasnet_segment_attach`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vgasi_segment_attach(
    bytes: usize,
    options: *const Options,
    segment: *mut u16,
) -> c_int {
    // SAFETY: as the caller promised.
    unsafe {
        attach("vgasnet_segment_attach", options, segment, |runtime, options| {
            runtime.attach_segment(bytes as u64, options)
        })
    }
}

/// `vgasnet_segment_attach_own`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vgasi_segment_attach_own(
    bytes: usize,
    options: *const Options,
    segment: *mut u16,
) -> c_int {
    // SAFETY: as the caller promised.
    unsafe {
        attach("vgasnet_segment_attach_own", options, segment, |runtime, options| {
            runtime.attach_own(bytes as u64, options)
        })
    }
}

/// # Safety
/// Rule 1: options or null, and a place for the number or null.
unsafe fn attach(
    what: &str,
    options: *const Options,
    segment: *mut u16,
    make: impl FnOnce(&Runtime, &SegmentOptions) -> vgas::Result<Segment>,
) -> c_int {
    let Some(job) = job::current() else { return code::NOT_INIT };
    // SAFETY: as the caller promised.
    let options = match unsafe { options.as_ref() } {
        None => Some(SegmentOptions::default()),
        // SAFETY: as above.
        Some(options) => unsafe { options.read() },
    };
    let (Some(options), false) = (options, segment.is_null()) else { return code::BAD_ARG };
    match make(&job.runtime, &options) {
        Ok(attached) => {
            // SAFETY: as the caller promised.
            unsafe { segment.write(attached.id().0) };
            code::OK
        }
        Err(error) => refused(what, &error),
    }
}

/// `vgasnet_segment_learn`.
#[unsafe(no_mangle)]
pub extern "C" fn vgasi_segment_learn(segment: u16, rank: u32) -> c_int {
    let Some(job) = job::current() else { return code::NOT_INIT };
    if rank >= job.runtime.ranks() {
        return code::BAD_ARG;
    }
    match job.runtime.learn(address(segment, rank, 0)) {
        Ok(()) => code::OK,
        Err(error) => refused("vgasnet_segment_learn", &error),
    }
}

/// `vgasnet_segment_local`: a box of the open part.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vgasi_segment_local(
    segment: u16,
    pages: u32,
    part: *mut *mut LocalPart<'static>,
    base: *mut *mut c_void,
) -> c_int {
    // SAFETY: as the caller promised.
    unsafe {
        open("vgasnet_segment_local", part, base, |runtime| {
            runtime.local_of(Segment::numbered(SegmentId(segment)), pages)
        })
    }
}

/// `vgasnet_segment_local_of_mate`: a box of the open part.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vgasi_segment_local_of_mate(
    segment: u16,
    rank: u32,
    pages: u32,
    part: *mut *mut LocalPart<'static>,
    base: *mut *const c_void,
) -> c_int {
    // SAFETY: as the caller promised; an address of what can only be read is stored like any.
    unsafe {
        open("vgasnet_segment_local_of_mate", part, base.cast(), |runtime| {
            runtime.local_of_mate(Segment::numbered(SegmentId(segment)), Rank(rank), pages)
        })
    }
}

/// # Safety
/// Rule 1: a place for the part and one for its address, or null.
unsafe fn open(
    what: &str,
    part: *mut *mut LocalPart<'static>,
    base: *mut *mut c_void,
    open: impl FnOnce(&'static Runtime) -> vgas::Result<LocalPart<'static>>,
) -> c_int {
    let Some(job) = job::current() else { return code::NOT_INIT };
    if part.is_null() || base.is_null() {
        return code::BAD_ARG;
    }
    match open(&job.runtime) {
        Ok(open) => {
            // SAFETY: as the caller promised.
            unsafe {
                base.write(open.base().cast());
                part.write(Box::into_raw(Box::new(open)));
            }
            code::OK
        }
        Err(error) => refused(what, &error),
    }
}

/// `vgasnet_segment_close`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vgasi_segment_close(part: *mut LocalPart<'static>) {
    if !part.is_null() {
        // SAFETY: rule 2.
        drop(unsafe { Box::from_raw(part) });
    }
}

/// `vgasnet_segment_detach_own`.
#[unsafe(no_mangle)]
pub extern "C" fn vgasi_segment_detach_own(segment: u16) -> c_int {
    let Some(job) = job::current() else { return code::NOT_INIT };
    match job.runtime.detach_own(Segment::numbered(SegmentId(segment))) {
        Ok(()) => code::OK,
        Err(error) => refused("vgasnet_segment_detach_own", &error),
    }
}

fn refused(what: &str, error: &vgas::Error) -> c_int {
    say::line(format_args!("{what}: {error}"));
    match error {
        vgas::Error::Usage(_)
        | vgas::Error::Cache(CacheError::OutOfRange { .. })
        | vgas::Error::Rma(RmaError::NoSuchRegion { .. } | RmaError::Usage(_)) => code::BAD_ARG,
        _ => code::RESOURCE,
    }
}

/// `vgasnet_segment_detach`.
#[unsafe(no_mangle)]
pub extern "C" fn vgasi_segment_detach(segment: u16) -> c_int {
    let Some(job) = job::current() else { return code::NOT_INIT };
    let detached = Segment::numbered(SegmentId(segment));
    match job.runtime.detach_segment(detached) {
        Ok(()) => code::OK,
        Err(error) => refused("vgasnet_segment_detach", &error),
    }
}

/// `vgasnet_segment_part_bytes`.
#[unsafe(no_mangle)]
pub extern "C" fn vgasi_segment_part_bytes(segment: u16, rank: u32) -> u64 {
    let of = Segment::numbered(SegmentId(segment));
    job::current().map_or(0, |job| job.runtime.segment_bytes(of, Rank(rank)))
}

/// `vgasnet_segment_pointer`.
#[unsafe(no_mangle)]
pub extern "C" fn vgasi_segment_pointer(segment: u16, rank: u32, offset: u64) -> *mut c_void {
    let pointer = job::current().and_then(|job| job.runtime.pointer_to(address(segment, rank, offset)));
    pointer.map_or(std::ptr::null_mut(), <*mut u8>::cast)
}

/// `vgasnet_segment_put`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vgasi_segment_put(
    segment: u16,
    rank: u32,
    offset: u64,
    from: *const c_void,
    bytes: usize,
) {
    let runtime = &job::joined().runtime;
    let Some(part) = pinned(segment, rank) else {
        // SAFETY: rule 1: the source has as many bytes.
        let put =
            unsafe { runtime.client().put((SegmentId(segment), Rank(rank)), offset, from.cast(), bytes) };
        return put.unwrap_or_else(|error| fail(error));
    };
    // SAFETY: rule 1. A conduit may hand the source to a system call, which cannot wait for a page of a tiered segment.
    let put = unsafe {
        match runtime.client().is_local(from.cast()) {
            true => runtime.endpoint().put(part, offset, &copied(from.cast(), bytes)),
            false => runtime.endpoint().put_raw(part, offset, from.cast(), bytes),
        }
    };
    put.unwrap_or_else(|error| fail(error));
}

/// `vgasnet_segment_get`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vgasi_segment_get(
    to: *mut c_void,
    segment: u16,
    rank: u32,
    offset: u64,
    bytes: usize,
) {
    let runtime = &job::joined().runtime;
    let Some(part) = pinned(segment, rank) else {
        // SAFETY: rule 1: the destination has as many bytes.
        let got = unsafe { runtime.client().get((SegmentId(segment), Rank(rank)), offset, to.cast(), bytes) };
        return got.unwrap_or_else(|error| fail(error));
    };
    let endpoint = runtime.endpoint();
    if !runtime.client().is_local(to.cast()) {
        // SAFETY: rule 1.
        let got = unsafe { endpoint.get_raw(part, offset, to.cast(), bytes) };
        return got.unwrap_or_else(|error| fail(error));
    }
    // As for the source of a put.
    let mut own = vec![0; bytes];
    endpoint.get(part, offset, &mut own).unwrap_or_else(|error| fail(error));
    // SAFETY: rule 1; the copy is as long.
    unsafe { vgas_shm::copy::copy(own.as_ptr(), to.cast(), bytes) };
}

/// `vgasnet_segment_prefetch`.
#[unsafe(no_mangle)]
pub extern "C" fn vgasi_segment_prefetch(segment: u16, rank: u32, offset: u64, bytes: u64) -> c_int {
    let Some(job) = job::current() else { return code::NOT_INIT };
    match job.runtime.prefetch(address(segment, rank, offset), bytes) {
        Ok(()) => code::OK,
        Err(error) => refused("vgasnet_segment_prefetch", &error),
    }
}

/// `vgasnet_segment_update_u64`.
#[unsafe(no_mangle)]
pub extern "C" fn vgasi_segment_update(
    segment: u16,
    rank: u32,
    offset: u64,
    change: c_int,
    operand: u64,
    expected: u64,
) -> u64 {
    let update = crate::update::of_word(change, 2, operand, expected);
    let runtime = &job::joined().runtime;
    let was = match pinned(segment, rank) {
        Some(part) => runtime.endpoint().update(part, offset, update).map_err(vgas::Error::from),
        None => runtime
            .client()
            .update((SegmentId(segment), Rank(rank)), offset, update)
            .map_err(vgas::Error::from),
    };
    was.unwrap_or_else(|error| fail(error))
}
