//! Segments: sizes before `gasnet_attach`, addresses after it.
//!
//! A client names a remote address as its owner sees it: the owner's base plus an offset. The headers turn it
//! into an address of this process with one entry of [`vgasi_windows`] and copy; if that is impossible,
//! `reach` is 0. In a tiered segment they use pages that the node has ([`crate::hit`]). For the rest they
//! call the library with the same address.
//!
//! Segments are pinned (DRAM) or tiered (NVMe behind the cache) as the job's setting `segment.kind` says,
//! since a GASNet client cannot. A tiered segment is memory to its owner (`vgas::LocalSegment`): pointers,
//! handlers of long messages and puts see the same bytes. All ranks' puts and gets of it, the owner's
//! included, go through the cache.

use crate::am;
use crate::code;
use crate::environment::is_on;
use crate::fatal::{fail, fatal};
use crate::hit;
use crate::job::{self, Raw as _};
use libc::{c_int, c_void};
use std::mem::offset_of;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use vgas::config::{Auto, DeviceChoice};
use vgas::info::Machine;
use vgas::{GlobalAddress, Kind, LocalPart, Runtime, Segment, SegmentOptions, say};
use vgas_rma::Rank;

/// Size of a page as the headers promise it (`GASNET_PAGESIZE`): segments are multiples of it.
pub const PAGE_BYTES: usize = 4096;

/// One rank's segment, as the headers read it.
#[repr(C, align(64))]
pub struct Window {
    /// Its first address in its owner's process.
    base: AtomicUsize,
    /// Its first address here; null when it is not mapped.
    here: AtomicPtr<u8>,
    /// Number of its bytes that loads and stores reach here.
    reach: AtomicUsize,
    /// Its size.
    bytes: AtomicUsize,
    /// Number of its bytes that the node's pool may have (`hit`); written last.
    cached: AtomicUsize,
    /// The number of the page at its beginning.
    first_page: AtomicUsize,
    /// Number of its offsets at which loads and stores reach 8 bytes here.
    words: AtomicUsize,
}

/// Layout of `gasnet_seginfo_t`.
#[repr(C)]
pub struct SegmentInfo {
    address: *mut c_void,
    bytes: usize,
}

impl Window {
    /// The offsets and the size of the data that the headers read, by C expression.
    pub const LAYOUT: &[(&str, usize)] = &[
        ("offsetof(vgasi_window_t, base)", offset_of!(Window, base)),
        ("offsetof(vgasi_window_t, here)", offset_of!(Window, here)),
        ("offsetof(vgasi_window_t, reach)", offset_of!(Window, reach)),
        ("offsetof(vgasi_window_t, bytes)", offset_of!(Window, bytes)),
        ("offsetof(vgasi_window_t, cached)", offset_of!(Window, cached)),
        ("offsetof(vgasi_window_t, first_page)", offset_of!(Window, first_page)),
        ("offsetof(vgasi_window_t, words)", offset_of!(Window, words)),
        ("sizeof(vgasi_window_t)", size_of::<Window>()),
    ];
}

/// The windows, by rank; null before `gasnet_init`. For the headers.
#[unsafe(no_mangle)]
pub static vgasi_windows: AtomicPtr<Window> = AtomicPtr::new(std::ptr::null_mut());

fn windows() -> &'static [Window] {
    let first = vgasi_windows.load(Ordering::Acquire);
    let count = job::vgasi_nodes.load(Ordering::Relaxed) as usize;
    if first.is_null() {
        return &[];
    }
    // SAFETY: rule 4: `prepare` made so many and never frees them.
    unsafe { std::slice::from_raw_parts(first, count) }
}

/// The most bytes that this rank, and that every rank, can attach. Known before the segments are.
static MAX_LOCAL: AtomicUsize = AtomicUsize::new(0);
static MAX_GLOBAL: AtomicUsize = AtomicUsize::new(0);

/// True if the segments are tiered: by the job's settings, unless the program says it when it attaches.
static TIERED: AtomicBool = AtomicBool::new(false);

/// True if tiered segments are relaxed; only the library's own interface offers it.
static RELAXED: AtomicBool = AtomicBool::new(false);

/// Returns true if the segments are tiered and relaxed.
pub(crate) fn is_relaxed() -> bool {
    is_tiered() && RELAXED.load(Ordering::Relaxed)
}

/// Returns true if the segments are tiered.
#[inline]
pub(crate) fn is_tiered() -> bool {
    TIERED.load(Ordering::Relaxed)
}

/// The kind of the segments.
pub(crate) fn kind() -> Kind {
    if is_tiered() { Kind::Tiered } else { Kind::Pinned }
}

/// The kind as settings name it.
fn kind_name() -> &'static str {
    if is_tiered() { "tiered" } else { "pinned" }
}

/// Names the setting that limits a segment that is too large.
pub(crate) fn tell_limit(bytes: usize, bytes_max: usize) {
    let limit = bytes_max as u64;
    let (kind, settings) = (kind_name(), job::joined().runtime.settings());
    let configured = if is_tiered() { &settings.segment.tiered_max } else { &settings.segment.pinned_max };
    let advice = match limit >= configured.bytes() / PAGE_BYTES as u64 * PAGE_BYTES as u64 {
        true => format!(
            "set segment.{kind}_max (VGAS_SEGMENT_{}_MAX) or GASNET_MAX_SEGSIZE to more",
            kind.to_uppercase()
        ),
        false => "which is this rank's share of what the machine has".into(),
    };
    let other = if is_tiered() { "" } else { ", or segment.kind (VGAS_SEGMENT_KIND) to tiered" };
    say::line(format_args!(
        "gasnet_attach: a {kind} segment of {bytes} bytes is larger than the {limit} bytes that this rank may have; {advice}{other}"
    ));
}

/// Another kind than the settings say; before anything is attached, on every rank.
pub(crate) fn choose(kind: Kind, is_relaxed: bool) {
    TIERED.store(kind == Kind::Tiered, Ordering::Relaxed);
    RELAXED.store(is_relaxed, Ordering::Relaxed);
}

/// Returns the most bytes that this rank can attach: within the settings, and no more than its share of the
/// memory or, for a file, of the free space in its folder.
pub(crate) fn max_local(runtime: &Runtime, kind: Kind) -> usize {
    let settings = runtime.settings();
    let ranks_here = runtime.layout().ranks_of(runtime.node()).len() as u64;
    let nodes_here = if runtime.shares_machine() { u64::from(runtime.nodes()) } else { 1 };
    let share_of = |all: u64| all / ranks_here.max(1) / nodes_here.max(1);
    let bytes = match kind {
        Kind::Pinned => {
            let memory = Machine::find().usable_memory_bytes();
            settings.segment.pinned_max.bytes().min(share_of(memory))
        }
        Kind::Tiered => {
            let free = match settings.nvm.device {
                DeviceChoice::Memory => None,
                _ => rustix::fs::statvfs(settings.nvm.directory_path()).ok(),
            };
            let share = free.map_or(u64::MAX, |free| share_of(free.f_bavail.saturating_mul(free.f_frsize)));
            settings.segment.tiered_max.bytes().min(share)
        }
    };
    usize::try_from(bytes).unwrap_or(usize::MAX) / PAGE_BYTES * PAGE_BYTES
}

/// Makes the table, of segments without bytes, and agrees on sizes. Collective.
pub(crate) fn prepare(runtime: &Runtime) {
    // GASNet's clients expect memory, whatever launcher has started them.
    let wanted = match runtime.settings().segment.kind {
        Auto::Is(wanted) => wanted,
        Auto::Auto => Kind::Pinned,
    };
    choose(wanted, false);
    if runtime.rank().0 == 0 && is_on("GASNET_VERBOSEENV") {
        say::line(format_args!("ENV parameter: VGAS_SEGMENT_KIND = {}", kind_name()));
    }
    let own = max_local(runtime, kind());
    MAX_LOCAL.store(own, Ordering::Relaxed);
    match runtime.endpoint().barrier_with(&(own as u64).to_le_bytes()) {
        Ok(all) => {
            let sizes = all.iter().map(|bytes| bytes.as_slice().try_into().map_or(0, u64::from_le_bytes));
            MAX_GLOBAL.store(sizes.min().unwrap_or(0) as usize, Ordering::Relaxed);
        }
        Err(error) => fail(error),
    }
    let empty = || Window {
        base: AtomicUsize::new(0),
        here: AtomicPtr::default(),
        reach: AtomicUsize::new(0),
        bytes: AtomicUsize::new(0),
        cached: AtomicUsize::new(0),
        first_page: AtomicUsize::new(0),
        words: AtomicUsize::new(0),
    };
    let windows: Box<[Window]> = (0..runtime.ranks()).map(|_| empty()).collect();
    vgasi_windows.store(Box::leak(windows).as_mut_ptr(), Ordering::Release);
}

/// The offset of an address in a rank's segment, if all the bytes lie inside.
#[inline]
pub(crate) fn offset_of(rank: u32, address: *const c_void, bytes: usize) -> Option<u64> {
    let window = windows().get(rank as usize)?;
    let offset = (address as usize).wrapping_sub(window.base.load(Ordering::Relaxed));
    let limit = window.bytes.load(Ordering::Relaxed);
    (offset <= limit && bytes <= limit - offset).then_some(offset as u64)
}

/// The part of a rank's segment that loads and stores of this process reach; empty if there is none.
#[derive(Clone, Copy)]
pub(crate) struct Reach {
    /// First address in the owner's process.
    base: usize,
    /// First address here.
    here: *mut u8,
    bytes: usize,
}

impl Reach {
    pub(crate) fn of(rank: u32) -> Self {
        let Some(window) = windows().get(rank as usize) else {
            return Self { base: 0, here: std::ptr::null_mut(), bytes: 0 };
        };
        let bytes = window.reach.load(Ordering::Acquire);
        let (base, here) = (window.base.load(Ordering::Relaxed), window.here.load(Ordering::Relaxed));
        Self { base, here, bytes }
    }

    /// The address here of some bytes at an address of their owner, if all of them are reached.
    #[inline(always)]
    pub(crate) fn find(&self, there: usize, bytes: usize) -> Option<*mut u8> {
        let offset = there.wrapping_sub(self.base);
        let is_reached = offset <= self.bytes && bytes <= self.bytes - offset;
        is_reached.then(|| self.here.wrapping_add(offset))
    }
}

/// The address itself, where bytes of this rank that do not all lie in its segment are named: to itself a rank may name all
/// of its memory, as with GASNet's ordinary builds.
pub(crate) fn own(rank: u32, address: *const c_void, bytes: usize) -> Option<*mut u8> {
    let is_own = rank == job::vgasi_mynode.load(Ordering::Relaxed) && job::current().is_some();
    (is_own && bytes > 0 && offset_of(rank, address, bytes).is_none()).then(|| address.cast_mut().cast())
}

/// [`offset_of`], or the end of the job with a line that gives the fault. If no bytes are moved, the address
/// means nothing (GASNet 1.8, 3.1).
#[inline]
pub(crate) fn checked_offset(rank: u32, address: *const c_void, bytes: usize) -> u64 {
    if bytes == 0 && (rank as usize) < windows().len() {
        return 0;
    }
    match offset_of(rank, address, bytes) {
        Some(offset) => offset,
        None => outside(rank, address, bytes),
    }
}

#[cold]
fn outside(rank: u32, address: *const c_void, bytes: usize) -> ! {
    match windows().get(rank as usize) {
        Some(window) => fatal(format_args!(
            "{bytes} bytes at {address:p} are outside of the segment of node {rank}, which has {} bytes at {:#x}",
            window.bytes.load(Ordering::Relaxed),
            window.base.load(Ordering::Relaxed),
        )),
        None => fatal(format_args!("there is no node {rank}; the job has {}", windows().len())),
    }
}

/// The most that this rank can attach; 0 before the job is joined.
#[unsafe(no_mangle)]
pub extern "C" fn vgasi_max_local_segment() -> usize {
    MAX_LOCAL.load(Ordering::Relaxed)
}

/// The most that every rank can attach.
#[unsafe(no_mangle)]
pub extern "C" fn vgasi_max_global_segment() -> usize {
    MAX_GLOBAL.load(Ordering::Relaxed)
}

/// A place in the segment of a rank.
pub(crate) fn address(rank: u32, offset: u64) -> GlobalAddress {
    GlobalAddress::of_kind(kind(), Rank(rank), offset)
}

/// This rank's tiered segment by pointers, until the job ends.
static LOCAL: OnceLock<LocalPart> = OnceLock::new();

pub(crate) fn local() -> Option<&'static LocalPart> {
    LOCAL.get()
}

/// Returns the local address of this rank's segment.
fn first_address(segment: &Segment, bytes: usize) -> Result<usize, vgas::Error> {
    if bytes == 0 {
        return Ok(0);
    }
    let runtime = segment.runtime();
    if is_tiered() {
        let local = segment.local()?;
        return Ok(LOCAL.get_or_init(|| local).base() as usize);
    }
    let info = runtime.endpoint().segment_info();
    let own = info.get(runtime.rank().0 as usize).and_then(|own| own.address);
    Ok(own.map_or(0, |address| address as usize))
}

/// A client's callback for when its own segment is there, before other ranks may use it: address and size.
/// Runtimes set it before `gasnet_attach`; a C function pointer, null when there is none.
#[unsafe(no_mangle)]
pub static gasnet_client_attach_hook: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

fn tell_client(base: usize, bytes: usize) {
    type Hook = unsafe extern "C" fn(*mut c_void, usize);
    let hook = gasnet_client_attach_hook.load(Ordering::Acquire);
    if !hook.is_null() {
        // SAFETY: rule 3: the client has set it to a function of this type.
        unsafe {
            std::mem::transmute::<*mut c_void, Hook>(hook)(std::ptr::with_exposed_provenance_mut(base), bytes)
        };
    }
}

/// Attaches the segment of this rank; collective. The caller has checked the size.
pub(crate) fn attach(bytes: usize, name: Option<String>) -> c_int {
    let runtime = &job::joined().runtime;
    let endpoint = runtime.endpoint();
    let own = |of| if kind() == of { bytes as u64 } else { 0 };
    // Both kinds, because number 0 of each is what `gasnet.h` sees.
    let tiered = SegmentOptions::tiered(own(Kind::Tiered)).maybe_name(name).relaxed(is_relaxed());
    let pinned = SegmentOptions::pinned(own(Kind::Pinned));
    let attached = runtime.attach(&tiered).and_then(|tiered| {
        runtime.attach(&pinned)?;
        first_address(&tiered, bytes)
    });
    let base = match attached {
        Ok(base) => base,
        Err(error) => {
            say::line(format_args!("gasnet_attach: {error}"));
            return code::RESOURCE;
        }
    };
    tell_client(base, bytes);
    let words: Vec<u8> = [base as u64, bytes as u64].iter().flat_map(|word| word.to_le_bytes()).collect();
    let all = match endpoint.barrier_with(&words) {
        Ok(all) => all,
        Err(error) => fail(error),
    };
    let info = endpoint.segment_info();
    hit::prepare(runtime.client());
    for ((rank, window), words) in (0..).map(Rank).zip(windows()).zip(all) {
        let number = |at: usize| {
            let bytes = words.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
            bytes.map_or(0, u64::from_le_bytes) as usize
        };
        let (base, bytes) = (number(0), number(8));
        window.base.store(base, Ordering::Relaxed);
        window.bytes.store(bytes, Ordering::Relaxed);
        let here = info.iter().find(|info| info.rank == rank && info.bytes > 0).and_then(|info| info.address);
        if let Some(here) = here {
            window.here.store(here, Ordering::Relaxed);
            window.reach.store(bytes, Ordering::Release);
            window.words.store(bytes.saturating_sub(7), Ordering::Release);
        }
        if let Some((first_page, cached)) = hit::pages(runtime.client(), rank) {
            window.first_page.store(first_page, Ordering::Relaxed);
            window.cached.store(cached.min(bytes), Ordering::Release);
        }
    }
    match runtime.barrier() {
        Ok(()) => code::OK,
        Err(error) => fail(error),
    }
}

/// Fills the first `count` entries of a table of segments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vgasi_segment_info(table: *mut SegmentInfo, count: c_int) -> c_int {
    if !am::is_attached() {
        return code::NOT_INIT;
    }
    if table.is_null() || count < 0 {
        return code::BAD_ARG;
    }
    for (index, window) in windows().iter().enumerate().take(count as usize) {
        let bytes = window.bytes.load(Ordering::Relaxed);
        let address = std::ptr::with_exposed_provenance_mut(window.base.load(Ordering::Relaxed));
        // SAFETY: rule 1: the table has `count` entries.
        unsafe { table.add(index).write(SegmentInfo { address, bytes }) };
    }
    code::OK
}

/// Layout of `gasnet_nodeinfo_t`.
#[repr(C)]
pub struct NodeInfo {
    host: u32,
    supernode: u32,
    offset: usize,
}

/// Fills the first `count` entries of a table of nodes. Those whose segments are mapped here are of one supernode.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vgasi_node_info(table: *mut NodeInfo, count: c_int) -> c_int {
    let Some(job) = job::current() else { return code::NOT_INIT };
    if table.is_null() || count < 0 {
        return code::BAD_ARG;
    }
    let (layout, endpoint) = (job.runtime.layout(), job.runtime.endpoint());
    let shares = |rank| {
        endpoint.domain().is_some_and(|domain| domain.member_index(layout.peer_of_rank(rank)).is_some())
    };
    let all_share = (0..layout.ranks()).map(Rank).all(shares);
    for (rank, window) in (0..).map(Rank).zip(windows()).take(count as usize) {
        let node = layout.node_of(rank).0;
        let reach = window.reach.load(Ordering::Acquire);
        let here = window.here.load(Ordering::Relaxed) as usize;
        let offset = if reach > 0 { here.wrapping_sub(window.base.load(Ordering::Relaxed)) } else { 0 };
        // Pointers do not reach another rank's tiered segment.
        let supernode = match kind() {
            Kind::Tiered => rank.0,
            Kind::Pinned if all_share => 0,
            Kind::Pinned => node,
        };
        let info = NodeInfo { host: node, supernode, offset };
        // SAFETY: rule 1: the table has `count` entries.
        unsafe { table.add(rank.0 as usize).write(info) };
    }
    code::OK
}
