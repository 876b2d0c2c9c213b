//! Further segments: `vgasnet_segment_attach` and its like.

use crate::am;
use crate::code;
use crate::fatal::fail;
use crate::job::{self, Raw as _};
use crate::transfer::copied;
use libc::{c_char, c_int, c_void};
use std::ffi::CStr;
use std::sync::{Mutex, PoisonError};
use vgas::{GlobalAddress, Kind, LocalPart, Rank, Runtime, Segment, SegmentId, SegmentOptions, say};
use vgas_cache::CacheError;
use vgas_cache::partition::SEGMENTS_MAX;
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
        Some(
            SegmentOptions::of_kind(if self.pinned != 0 { Kind::Pinned } else { Kind::Tiered }, 0)
                .maybe_name(name)
                .page_size(self.page_bytes)
                .relaxed(self.relaxed != 0)
                .home_only(self.home_only != 0)
                .in_place(self.in_place != 0)
                .read_ahead(self.no_read_ahead == 0)
                .streamed(self.streamed != 0)
                .one_address(self.one_address != 0)
                .weight(u8::try_from(self.weight.max(1)).ok()?),
        )
    }
}

/// The kind of a segment, which its number says in C.
fn kind_of(segment: u16) -> Kind {
    if segment < SEGMENTS_MAX { Kind::Tiered } else { Kind::Pinned }
}

fn address(segment: u16, rank: u32, offset: u64) -> GlobalAddress {
    GlobalAddress { rank: Rank(rank), kind: kind_of(segment), segment: SegmentId(segment), offset }
}

/// A rank's part of a pinned segment, if it is one.
fn pinned(segment: u16, rank: u32) -> Option<PinnedPart> {
    (kind_of(segment) == Kind::Pinned).then_some(PinnedPart { region: RegionId(segment), owner: Rank(rank) })
}

/// A segment that this rank has attached by `vgasnet_segment_attach` or `vgasnet_segment_attach_own`.
fn attached(runtime: &Runtime, segment: u16, is_independent: bool) -> vgas::Result<Segment> {
    let found = runtime.segment(kind_of(segment), SegmentId(segment));
    found.filter(|found| segment != 0 && found.options().is_independent() == is_independent).ok_or_else(
        || {
            let how = if is_independent { "by itself" } else { "with all ranks" };
            vgas::Error::Usage(format!("segment {segment} is none that this rank has attached {how}"))
        },
    )
}

/// Returns a segment with a part of a rank of this node.
fn known(runtime: &Runtime, segment: u16, rank: u32) -> vgas::Result<Segment> {
    match runtime.segment(kind_of(segment), SegmentId(segment)) {
        Some(found) => Ok(found),
        None => runtime.open_remote(address(segment, rank, 0)),
    }
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
            runtime.attach(&options.sized(bytes as u64))
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
            runtime.attach(&options.sized(bytes as u64).independent())
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
        None => Some(SegmentOptions::tiered(0)),
        // SAFETY: as above.
        Some(options) => unsafe { options.read() },
    };
    let (Some(options), false) = (options, segment.is_null()) else { return code::BAD_ARG };
    if !am::is_attached() {
        say::line(format_args!(
            "{what}: attach the first segment before others (gasnet_attach; it may be empty)"
        ));
        return code::BAD_ARG;
    }
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
    match job.runtime.open_remote(address(segment, rank, 0)) {
        Ok(_) => code::OK,
        Err(error) => refused("vgasnet_segment_learn", &error),
    }
}

/// A part that a client has open, once at a time.
pub struct OpenPart {
    part: LocalPart,
    of: (u16, u32),
}

/// The parts that are open, by segment and owner.
static OPEN: Mutex<Vec<(u16, u32)>> = Mutex::new(Vec::new());

impl Drop for OpenPart {
    fn drop(&mut self) {
        OPEN.lock().unwrap_or_else(PoisonError::into_inner).retain(|open| *open != self.of);
    }
}

impl OpenPart {
    /// Opens a rank's part of a segment, unless it is open.
    fn open(
        segment: u16,
        rank: u32,
        open: impl FnOnce(Segment) -> vgas::Result<LocalPart>,
    ) -> vgas::Result<Self> {
        let runtime = &job::joined().runtime;
        let (of, mut all) = ((segment, rank), OPEN.lock().unwrap_or_else(PoisonError::into_inner));
        // That of the first segment has been open since it was attached.
        if all.contains(&of) || of == (0, runtime.rank().0) {
            return Err(vgas::Error::Usage(format!(
                "the part of rank {rank} of segment {segment} is open already"
            )));
        }
        let part = open(known(runtime, segment, rank)?)?;
        all.push(of);
        Ok(Self { part, of })
    }
}

/// `vgasnet_segment_local`: a box of the open part.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vgasi_segment_local(
    segment: u16,
    pages: u32,
    part: *mut *mut OpenPart,
    base: *mut *mut c_void,
) -> c_int {
    // SAFETY: as the caller promised.
    unsafe {
        open("vgasnet_segment_local", part, base, |runtime| {
            OpenPart::open(segment, runtime.rank().0, |known| known.local_pages(pages))
        })
    }
}

/// `vgasnet_segment_local_of_mate`: a box of the open part.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vgasi_segment_local_of_mate(
    segment: u16,
    rank: u32,
    pages: u32,
    part: *mut *mut OpenPart,
    base: *mut *const c_void,
) -> c_int {
    // SAFETY: as the caller promised; an address of what can only be read is stored like any.
    unsafe {
        open("vgasnet_segment_local_of_mate", part, base.cast(), |_| {
            OpenPart::open(segment, rank, |known| known.local_of_peer(Rank(rank), pages))
        })
    }
}

/// # Safety
/// Rule 1: a place for the part and one for its address, or null.
unsafe fn open(
    what: &str,
    part: *mut *mut OpenPart,
    base: *mut *mut c_void,
    open: impl FnOnce(&'static Runtime) -> vgas::Result<OpenPart>,
) -> c_int {
    let Some(job) = job::current() else { return code::NOT_INIT };
    if part.is_null() || base.is_null() {
        return code::BAD_ARG;
    }
    match open(&job.runtime) {
        Ok(open) => {
            // SAFETY: as the caller promised.
            unsafe {
                base.write(open.part.base().cast());
                part.write(Box::into_raw(Box::new(open)));
            }
            code::OK
        }
        Err(error) => refused(what, &error),
    }
}

/// `vgasnet_segment_close`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vgasi_segment_close(part: *mut OpenPart) {
    if !part.is_null() {
        // SAFETY: rule 2.
        drop(unsafe { Box::from_raw(part) });
    }
}

/// `vgasnet_segment_detach_own`.
#[unsafe(no_mangle)]
pub extern "C" fn vgasi_segment_detach_own(segment: u16) -> c_int {
    let Some(job) = job::current() else { return code::NOT_INIT };
    match attached(&job.runtime, segment, true).and_then(|segment| segment.detach()) {
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
    match attached(&job.runtime, segment, false).and_then(|segment| segment.detach()) {
        Ok(()) => code::OK,
        Err(error) => refused("vgasnet_segment_detach", &error),
    }
}

/// `vgasnet_segment_part_bytes`.
#[unsafe(no_mangle)]
pub extern "C" fn vgasi_segment_part_bytes(segment: u16, rank: u32) -> u64 {
    let Some(job) = job::current() else { return 0 };
    match pinned(segment, rank) {
        Some(part) => job.runtime.endpoint().part_bytes(part).unwrap_or(0),
        None => job.runtime.client().bytes_of((SegmentId(segment), Rank(rank))),
    }
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
