//! Data that `vgasi_hit.h` needs to use cached pages of tiered segments without a call: the addresses of the
//! node's pool in this process, and each thread's record (`vgas_cache::pool::mirror`).

use crate::job::{self, Raw as _};
use std::mem::offset_of;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use vgas_cache::client::Client;
use vgas_cache::pool::mirror::{ThreadRecord, layout};
use vgas_rma::Rank;

/// The node's pool, as the headers read it.
#[repr(C)]
pub struct Pool {
    client: AtomicU64,
    entries: AtomicPtr<AtomicU64>,
    frames: AtomicPtr<u8>,
    stamps: AtomicPtr<AtomicU32>,
    clock: AtomicPtr<AtomicU32>,
    /// Local address of this rank's own segment.
    local_base: AtomicUsize,
    local_bytes: AtomicUsize,
    /// Size of a page less one.
    page_mask: AtomicUsize,
    /// Bytes of all frames.
    pool_bytes: AtomicUsize,
    page_shift: AtomicU32,
    /// Not 0: a barrier of the compiler is enough.
    asymmetric: AtomicU32,
}

/// The pool; all zeros before segments are attached. For the headers, which look at it only if a window
/// allows cached pages.
#[unsafe(no_mangle)]
pub static vgasi_pool: Pool = Pool {
    client: AtomicU64::new(0),
    entries: AtomicPtr::new(std::ptr::null_mut()),
    frames: AtomicPtr::new(std::ptr::null_mut()),
    stamps: AtomicPtr::new(std::ptr::null_mut()),
    clock: AtomicPtr::new(std::ptr::null_mut()),
    local_base: AtomicUsize::new(0),
    local_bytes: AtomicUsize::new(0),
    page_mask: AtomicUsize::new(0),
    pool_bytes: AtomicUsize::new(0),
    page_shift: AtomicU32::new(0),
    asymmetric: AtomicU32::new(0),
};

/// Layout that the headers have compiled in, by C expression: for the test that compares them.
pub const LAYOUT: &[(&str, usize)] = &[
    ("offsetof(vgasi_record_t, client)", layout::RECORD_CLIENT),
    ("offsetof(vgasi_record_t, slot)", layout::RECORD_SLOT),
    ("sizeof(vgasi_record_t)", size_of::<ThreadRecord>()),
    ("offsetof(vgasi_slot_t, hazard)", layout::SLOT_HAZARD),
    ("offsetof(vgasi_slot_t, get_hits)", layout::SLOT_GET_HITS),
    ("offsetof(vgasi_slot_t, put_hits)", layout::SLOT_PUT_HITS),
    ("VGASI_STATE_SHIFT", layout::STATE_SHIFT as usize),
    ("VGASI_SHARED", layout::SHARED as usize),
    ("VGASI_MODIFIED", layout::MODIFIED as usize),
    ("VGASI_UNIT_SHIFT", layout::UNIT_SHIFT as usize),
    ("offsetof(vgasi_pool_t, client)", offset_of!(Pool, client)),
    ("offsetof(vgasi_pool_t, entries)", offset_of!(Pool, entries)),
    ("offsetof(vgasi_pool_t, frames)", offset_of!(Pool, frames)),
    ("offsetof(vgasi_pool_t, stamps)", offset_of!(Pool, stamps)),
    ("offsetof(vgasi_pool_t, clock)", offset_of!(Pool, clock)),
    ("offsetof(vgasi_pool_t, local_base)", offset_of!(Pool, local_base)),
    ("offsetof(vgasi_pool_t, local_bytes)", offset_of!(Pool, local_bytes)),
    ("offsetof(vgasi_pool_t, page_mask)", offset_of!(Pool, page_mask)),
    ("offsetof(vgasi_pool_t, pool_bytes)", offset_of!(Pool, pool_bytes)),
    ("offsetof(vgasi_pool_t, page_shift)", offset_of!(Pool, page_shift)),
    ("offsetof(vgasi_pool_t, asymmetric)", offset_of!(Pool, asymmetric)),
    ("sizeof(vgasi_pool_t)", size_of::<Pool>()),
];

/// Fills [`vgasi_pool`], once segments are attached and before windows tell of cached pages. The client is never dropped
/// ([`job`]), so the addresses stay good.
pub(crate) fn prepare(client: &Client) {
    let path = client.pool().hit_path();
    let (local_base, local_bytes) = client.local();
    let pool = &vgasi_pool;
    pool.client.store(path.client, Ordering::Relaxed);
    pool.entries.store(path.entries.cast_mut(), Ordering::Relaxed);
    pool.frames.store(path.frames, Ordering::Relaxed);
    pool.stamps.store(path.stamps.cast_mut(), Ordering::Relaxed);
    pool.clock.store(path.clock.cast_mut(), Ordering::Relaxed);
    pool.local_base.store(local_base, Ordering::Relaxed);
    pool.local_bytes.store(local_bytes, Ordering::Relaxed);
    pool.page_mask.store(client.page_bytes() - 1, Ordering::Relaxed);
    pool.pool_bytes.store(path.pool_bytes as usize, Ordering::Relaxed);
    pool.page_shift.store(client.page_bytes().trailing_zeros(), Ordering::Relaxed);
    pool.asymmetric.store(u32::from(path.asymmetric), Ordering::Relaxed);
}

/// The first page of a rank's segment, and the bytes that hits may reach, whose pages are all in the table.
pub(crate) fn pages(client: &Client, rank: Rank) -> Option<(usize, usize)> {
    let (first_page, bytes) = client.plain_pages(rank)?;
    let end = first_page.checked_add(bytes.div_ceil(client.page_bytes() as u64))?;
    let is_there = bytes > 0 && end.0 <= client.pool().layout().pages();
    is_there.then_some((first_page.0 as usize, bytes as usize))
}

/// The record of the calling thread.
#[unsafe(no_mangle)]
pub extern "C" fn vgasi_thread_record() -> *const ThreadRecord {
    job::joined().runtime.client().pool().thread_record()
}
