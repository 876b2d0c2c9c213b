//! Additions of `vgasnet.h` to `gasnet.h`: the kind and name of a segment, pins, prefetching, checkpoints,
//! statistics.

use crate::am::{self, HandlerEntry};
use crate::code;
use crate::job;
use crate::segment;
use libc::{c_char, c_int, c_void};
use std::ffi::CStr;
use std::fmt::Display;
use std::sync::OnceLock;
use vgas::{Counter, Kind, LocalPin, SegmentId, say};

/// `VGASNET_PINNED`; 0 leaves the choice to the settings.
const PINNED: c_int = 1;
/// `VGASNET_TIERED`.
const TIERED: c_int = 2;
/// `VGASNET_RELAXED`: tiered, too.
const RELAXED: c_int = 3;

fn kind_of(number: c_int) -> Option<Kind> {
    match number {
        0 => Some(segment::kind()),
        PINNED => Some(Kind::Pinned),
        TIERED | RELAXED => Some(Kind::Tiered),
        _ => None,
    }
}

/// Reports why something was refused; C gets only a code.
fn refused(what: &str, error: impl Display) -> c_int {
    say::line(format_args!("{what}: {error}"));
    code::RESOURCE
}

/// The most that this rank can attach of a kind; 0 for no kind, or before the job is joined.
#[unsafe(no_mangle)]
pub extern "C" fn vgasi_max_segment(kind: c_int) -> usize {
    match (job::current(), kind_of(kind)) {
        (Some(job), Some(kind)) => segment::max_local(&job.runtime, kind),
        _ => 0,
    }
}

/// `vgasnet_attach`. The kind and the name are the same on all ranks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vgasi_attach_kind(
    table: *mut HandlerEntry,
    count: c_int,
    bytes: usize,
    kind: c_int,
    name: *const c_char,
) -> c_int {
    let Some(job) = job::current() else { return code::NOT_INIT };
    let is_relaxed = kind == RELAXED;
    let Some(kind) = kind_of(kind) else { return code::BAD_ARG };
    let name = if name.is_null() {
        None
    } else {
        // SAFETY: rule 1: a string.
        match unsafe { CStr::from_ptr(name) }.to_str() {
            Ok(name) if kind == Kind::Tiered && !name.is_empty() => Some(name.to_owned()),
            _ => return code::BAD_ARG,
        }
    };
    segment::choose(kind, is_relaxed);
    // SAFETY: as the caller promised.
    unsafe { am::attach(table, count, bytes, segment::max_local(&job.runtime, kind), name) }
}

/// The kind of the segments, as `vgasnet.h` numbers it.
#[unsafe(no_mangle)]
pub extern "C" fn vgasi_segment_kind() -> c_int {
    match segment::kind() {
        Kind::Pinned => PINNED,
        Kind::Tiered if segment::is_relaxed() => RELAXED,
        Kind::Tiered => TIERED,
    }
}

/// `vgasnet_pin`: returns a box of the pin, or null if nothing needs to be done.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vgasi_pin(address: *const c_void, bytes: usize, pin: *mut *mut LocalPin) -> c_int {
    let Some(job) = job::current() else { return code::NOT_INIT };
    if pin.is_null() {
        return code::BAD_ARG;
    }
    let Some(offset) = segment::offset_of(job.runtime.rank().0, address, bytes) else { return code::BAD_ARG };
    let pinned = if segment::is_tiered() {
        match segment::local().map(|local| local.pin(offset, bytes as u64)) {
            Some(Ok(pinned)) => Box::into_raw(Box::new(pinned)),
            Some(Err(error)) => return refused("vgasnet_pin", error),
            None => return refused("vgasnet_pin", "this rank has attached no tiered segment"),
        }
    } else {
        std::ptr::null_mut()
    };
    // SAFETY: rule 1: a place for the pin.
    unsafe { pin.write(pinned) };
    code::OK
}

/// `vgasnet_unpin`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vgasi_unpin(pin: *mut LocalPin) {
    if !pin.is_null() {
        // SAFETY: rule 2.
        drop(unsafe { Box::from_raw(pin) });
    }
}

/// `vgasnet_prefetch`.
#[unsafe(no_mangle)]
pub extern "C" fn vgasi_prefetch(rank: u32, address: *const c_void, bytes: usize) -> c_int {
    let Some(job) = job::current() else { return code::NOT_INIT };
    let Some(offset) = segment::offset_of(rank, address, bytes) else { return code::BAD_ARG };
    let from = segment::address(rank, offset);
    match job.runtime.prefetch(from, bytes as u64) {
        Ok(()) => code::OK,
        Err(error) => refused("vgasnet_prefetch", error),
    }
}

/// `vgasnet_checkpoint`. It refuses a segment without a name, which no later job would find, like a pinned
/// one: a program that counts on its data must learn of it.
#[unsafe(no_mangle)]
pub extern "C" fn vgasi_checkpoint() -> c_int {
    let Some(job) = job::current() else { return code::NOT_INIT };
    if !job.runtime.has_named_segments() {
        return code::BAD_ARG;
    }
    match job.runtime.checkpoint() {
        Ok(()) => code::OK,
        Err(error) => refused("vgasnet_checkpoint", error),
    }
}

/// `vgasnet_reopened` and `vgasnet_segment_reopened`. The header refuses null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vgasi_reopened(
    segment: u16,
    checkpoint: *mut u64,
    newest: *mut u64,
    is_read_only: *mut c_int,
    is_together: *mut c_int,
) -> c_int {
    let Some(job) = job::current() else { return code::NOT_INIT };
    let found = job.runtime.segment(Kind::Tiered, SegmentId(segment)).and_then(|found| found.reopened());
    let (of_job, of_any) = found.map_or((0, 0), |found| (found.checkpoint, found.newest));
    // SAFETY: rule 1.
    unsafe {
        checkpoint.write(of_job);
        newest.write(of_any);
        is_read_only.write(c_int::from(found.is_some_and(|found| found.is_read_only)));
        is_together.write(c_int::from(found.is_some_and(|found| found.is_together)));
    }
    code::OK
}

/// `vgasnet_statistics`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vgasi_statistics(values: *mut u64, count: usize) -> c_int {
    let Some(job) = job::current() else { return code::NOT_INIT };
    let statistics = match job.runtime.statistics() {
        Ok(statistics) => statistics,
        Err(error) => return refused("vgasnet_statistics", error),
    };
    if values.is_null() {
        return code::BAD_ARG;
    }
    for (index, (_, value)) in statistics.iter().enumerate().take(count) {
        // SAFETY: rule 1: room for `count` values.
        unsafe { values.add(index).write(value) };
    }
    code::OK
}

/// Number of counters.
#[unsafe(no_mangle)]
pub extern "C" fn vgasi_statistics_count() -> usize {
    Counter::COUNT
}

/// The name of a counter; null for a number that is none's.
#[unsafe(no_mangle)]
pub extern "C" fn vgasi_statistic_name(index: usize) -> *const c_char {
    static NAMES: OnceLock<Vec<std::ffi::CString>> = OnceLock::new();
    let names = NAMES.get_or_init(|| {
        Counter::ALL.iter().filter_map(|counter| std::ffi::CString::new(counter.name()).ok()).collect()
    });
    names.get(index).map_or(std::ptr::null(), |name| name.as_ptr())
}
