//! Puts and gets of many pieces: vectors, indexed lists, strided sections (`gasnet_vis.h`).
//!
//! Both sides of a transfer are sequences of pieces. They are walked together: the next *run* is as long as
//! the shorter of the two current pieces, and runs that continue each other on both sides are joined
//! (`runs`). A section is reduced first, and is one loop of copies if this process can load and store all of
//! its remote side (`section`).
//!
//! A run whose remote bytes this process can load and store is a copy, even of own bytes outside of a
//! segment. Short runs of a pinned segment elsewhere are packed into messages, which the target's agent
//! unpacks; long ones are puts and gets of their own. Runs of a tiered segment are cut at page boundaries.
//! Those that follow each other in one page are copied together if the page is cached here; otherwise they
//! are one operation of the cache, and travel together if the page's home serves it in place. All operations
//! of a transfer complete as one, and a bounded number of them is in flight at a time.

use crate::fatal::{fail, fatal};
use crate::handle::{Operation, vgasi_accumulate, vgasi_wait};
use crate::job::{self, Raw as _};
use crate::runs::{self, Piece, Run, copy_run};
use crate::section::{Section, TooLarge};
use crate::segment::{self, Reach};
use crate::transfer::{vgasi_get_nb, vgasi_put_nb};
use libc::{c_int, c_void};
use vgas_rma::Rank;
use vgas_rma::endpoint::SegmentPiece;

/// `gasnet_memvec_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MemoryVector {
    address: *mut c_void,
    bytes: usize,
}

/// The pieces of a vector, which C gives as an array; one of no pieces may be null.
unsafe fn vectors<'a>(list: *const MemoryVector, count: usize) -> &'a [MemoryVector] {
    if count == 0 {
        return &[];
    }
    // SAFETY: rule 1: this many entries, which are not changed during the operation.
    unsafe { std::slice::from_raw_parts(list, count) }
}

/// The pieces of a vector that are not empty.
fn vector(list: &[MemoryVector]) -> impl Iterator<Item = Piece> {
    let pieces = list.iter().map(|entry| Piece { address: entry.address as usize, bytes: entry.bytes });
    pieces.filter(|piece| piece.bytes > 0)
}

/// The addresses of an indexed list; none if its pieces are empty.
unsafe fn addresses<'a>(count: usize, list: *const *mut c_void, bytes: usize) -> &'a [*mut c_void] {
    if count == 0 || bytes == 0 {
        return &[];
    }
    // SAFETY: rule 1: this many entries, which are not changed during the operation.
    unsafe { std::slice::from_raw_parts(list, count) }
}

/// The pieces of an indexed list.
fn indexed(list: &[*mut c_void], bytes: usize) -> impl Iterator<Item = Piece> {
    list.iter().map(move |&address| Piece { address: address as usize, bytes })
}

/// The counts and strides of a section, which C gives as arrays; strides of no levels may be null.
unsafe fn levels<'a>(array: *const usize, count: usize) -> &'a [usize] {
    if count == 0 {
        return &[];
    }
    // SAFETY: rule 1: this many numbers, which are not changed during the operation.
    unsafe { std::slice::from_raw_parts(array, count) }
}

fn total(pieces: impl Iterator<Item = Piece>) -> usize {
    pieces.map(|piece| piece.bytes).sum()
}

/// Side of a transfer that is in the segment of a rank.
#[derive(Clone, Copy)]
enum Remote {
    Destination(u32),
    Source(u32),
}

impl Remote {
    /// The remote and the local address of a run.
    #[inline(always)]
    fn sides(self, run: Run) -> (usize, usize) {
        match self {
            Self::Destination(_) => (run.to, run.from),
            Self::Source(_) => (run.from, run.to),
        }
    }

    /// Copies a run whose remote side is at `mapped` in this process.
    ///
    /// # Safety
    /// As [`copy_run`].
    #[inline(always)]
    unsafe fn copy(self, run: Run, mapped: *mut u8) {
        // SAFETY: as the caller promised.
        unsafe {
            match self {
                Self::Destination(_) => copy_run(mapped, pointer(run.from).cast(), run.bytes),
                Self::Source(_) => copy_run(pointer(run.to).cast(), mapped, run.bytes),
            }
        }
    }
}

/// Ways to complete; the numbers are those of `gasnet_vis.h`.
const BLOCKING: c_int = 0;
const EXPLICIT: c_int = 1;

fn pointer(address: usize) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(address)
}

/// Runs of one transfer that have a put or get of their own at a time.
const OWN_MAX: usize = 128;

/// Short runs that are packed at a time: some messages' worth.
const PACKED_MAX: usize = 4096;

/// Runs of a page of a tiered segment that are copied at a time: the page is in use for as long.
const PAGE_RUNS_MAX: usize = 1024;

/// The longest run that is packed: above it, a message of its own costs less than copying its bytes twice.
const PACKED_BYTES_MAX: usize = 2048;

/// The runs of a transfer that are not all copies through the mapped segment: copies them, or starts operations for them.
struct Operations {
    remote: Remote,
    is_tiered: bool,
    /// Runs of a pinned segment that will travel together, or of a tiered segment's page.
    short: Vec<SegmentPiece>,
    started: Vec<*mut Operation>,
    /// Gets of packed pieces. Each holds as many bytes as it gets, so `OWN_MAX` does not count them.
    packed: Vec<*mut Operation>,
}

impl Operations {
    fn new(remote: Remote) -> Self {
        let is_tiered = segment::is_tiered();
        Self { remote, is_tiered, short: Vec::new(), started: Vec::new(), packed: Vec::new() }
    }

    /// Copies a run of this rank's own memory outside of its segment, or starts an operation.
    fn run(&mut self, run: Run) {
        let (Remote::Destination(rank) | Remote::Source(rank)) = self.remote;
        let (there, here) = self.remote.sides(run);
        if let Some(own) = segment::own(rank, pointer(there), run.bytes) {
            // SAFETY: rules 1 and 5: both are memory of this process.
            return unsafe { self.remote.copy(run, own) };
        }
        let offset = segment::checked_offset(rank, pointer(there), run.bytes);
        if self.is_tiered {
            return self.run_tiered(offset, here, run.bytes);
        }
        if run.bytes <= PACKED_BYTES_MAX {
            self.short.push(SegmentPiece { offset, here: pointer(here).cast(), bytes: run.bytes });
            if self.short.len() == PACKED_MAX {
                self.start_short();
            }
            return;
        }
        self.limit_started();
        // SAFETY: rule 1. The source of a put stays until the operation is complete.
        let operation = unsafe {
            match self.remote {
                Remote::Destination(_) => vgasi_put_nb(rank, pointer(there), pointer(here), run.bytes, 1),
                Remote::Source(_) => vgasi_get_nb(pointer(here), rank, pointer(there), run.bytes),
            }
        };
        if !operation.is_null() {
            self.started.push(operation);
        }
    }

    /// Keeps a run of a tiered segment, cut where pages end, until the runs of each page are complete.
    fn run_tiered(&mut self, mut offset: u64, mut here: usize, mut bytes: usize) {
        let page_bytes = job::joined().runtime.client().page_bytes() as u64;
        while bytes > 0 {
            let page = offset / page_bytes;
            let now = bytes.min(((page + 1) * page_bytes - offset) as usize);
            let is_next = self.short.last().is_none_or(|last| last.offset / page_bytes == page);
            if !is_next || self.short.len() == PAGE_RUNS_MAX {
                self.start_short();
            }
            self.short.push(SegmentPiece { offset, here: pointer(here).cast(), bytes: now });
            offset += now as u64;
            here = here.wrapping_add(now);
            bytes -= now;
        }
    }

    /// Copies the kept runs of a page that is cached here, or starts them as one operation.
    fn start_tiered(&mut self) {
        let client = job::joined().runtime.client();
        // SAFETY: rule 1.
        let is_done = unsafe {
            match self.remote {
                Remote::Destination(rank) => client.put_pieces_cached(Rank(rank), &self.short),
                Remote::Source(rank) => client.get_pieces_cached(Rank(rank), &self.short),
            }
        };
        if is_done {
            return;
        }
        self.limit_started();
        // SAFETY: rule 1. The operation's memory stays until it is complete.
        let started = unsafe {
            match self.remote {
                Remote::Destination(rank) => client.put_pieces_nb(Rank(rank), &self.short),
                Remote::Source(rank) => client.get_pieces_nb(Rank(rank), &self.short),
            }
        };
        match started.map(|pending| Operation::tiered(pending, None)) {
            Ok(operation) if operation.is_null() => {}
            Ok(operation) => self.started.push(operation),
            Err(error) => fail(error),
        }
    }

    /// Waits until there is room for one more operation.
    fn limit_started(&mut self) {
        if self.started.len() == OWN_MAX {
            // SAFETY: rule 2: made here, and not given on.
            unsafe { Operation::thin_out(&mut self.started, OWN_MAX / 2) };
        }
    }

    /// Starts packed runs of a pinned segment.
    fn start_packed(&mut self) {
        let endpoint = job::joined().runtime.endpoint();
        let started = match self.remote {
            Remote::Destination(rank) => {
                // SAFETY: rule 1: valid sources.
                let put = unsafe { endpoint.put_pieces_nb(Rank(rank), &self.short) };
                put.map(Operation::pinned)
            }
            Remote::Source(rank) => {
                let bytes = self.short.iter().map(|piece| piece.bytes).sum();
                let mut packed = vec![0; bytes].into_boxed_slice();
                // SAFETY: the operation keeps the box until it is complete, and it is not touched before.
                let got = unsafe { endpoint.get_pieces_nb(Rank(rank), &self.short, packed.as_mut_ptr()) };
                let places = self.short.iter().map(|piece| (piece.here, piece.bytes)).collect();
                got.map(|handle| Operation::packed(handle, packed, places))
            }
        };
        match started {
            Ok(operation) if operation.is_null() => {}
            Ok(operation) => self.packed.push(operation),
            Err(error) => fail(error),
        }
    }

    /// Starts the runs that have been kept.
    fn start_short(&mut self) {
        if self.short.is_empty() {
            return;
        }
        if self.is_tiered {
            self.start_tiered();
        } else {
            self.start_packed();
        }
        self.short.clear();
    }

    /// Completes the transfer as asked, when all runs have been passed to it.
    fn finish(mut self, completion: c_int) -> *mut Operation {
        self.start_short();
        self.started.append(&mut self.packed);
        let kind = match self.remote {
            Remote::Destination(_) => crate::handle::PUTS,
            Remote::Source(_) => crate::handle::GETS,
        };
        // SAFETY: rule 2: made here, and given on.
        unsafe {
            let all = Operation::group(self.started);
            match completion {
                BLOCKING => vgasi_wait(all),
                EXPLICIT => return all,
                _ => vgasi_accumulate(all, kind),
            }
        }
        std::ptr::null_mut()
    }
}

/// Ends the job: the two sides have different numbers of bytes.
#[cold]
fn unequal(remote: Remote, to_bytes: usize, from_bytes: usize) -> ! {
    let (what, rank) = match remote {
        Remote::Destination(rank) => ("put to", rank),
        Remote::Source(rank) => ("get from", rank),
    };
    fatal(format_args!(
        "a {what} node {rank} whose source has {from_bytes} bytes and whose destination has {to_bytes}"
    ));
}

/// One transfer. Most have nothing but copies.
struct Transfer {
    remote: Remote,
    operations: Option<Box<Operations>>,
}

impl Transfer {
    #[inline(always)]
    fn new(remote: Remote) -> Self {
        Self { remote, operations: None }
    }

    /// The remote segment, as far as loads and stores reach it.
    #[inline(always)]
    fn reach(&self) -> Reach {
        let (Remote::Destination(rank) | Remote::Source(rank)) = self.remote;
        Reach::of(rank)
    }

    /// Copies a run, or passes it on. Its callers have a closure each, so that each is compiled into its loop.
    #[inline(always)]
    fn run(&mut self, reach: Reach, run: Run) {
        let (there, _) = self.remote.sides(run);
        match reach.find(there, run.bytes) {
            // SAFETY: rules 1 and 5: the local side is valid, the remote side is mapped here.
            Some(mapped) => unsafe { self.remote.copy(run, mapped) },
            None => self.run_apart(run),
        }
    }

    #[inline(never)]
    fn run_apart(&mut self, run: Run) {
        let remote = self.remote;
        self.operations.get_or_insert_with(|| Box::new(Operations::new(remote))).run(run);
    }

    #[inline(always)]
    fn finish(self, completion: c_int) -> *mut Operation {
        match self.operations {
            None => std::ptr::null_mut(),
            Some(operations) => operations.finish(completion),
        }
    }
}

fn transfer_vectors(
    completion: c_int,
    remote: Remote,
    to: &[MemoryVector],
    from: &[MemoryVector],
) -> *mut Operation {
    let mut transfer = Transfer::new(remote);
    let reach = transfer.reach();
    let pair = |index: usize| {
        let (to, from) = (to.get(index)?, from.get(index)?);
        let run = Run { to: to.address as usize, from: from.address as usize, bytes: to.bytes };
        (to.bytes == from.bytes && to.bytes > 0).then_some(run)
    };
    let done = runs::for_each_pair(pair, |run| transfer.run(reach, run));
    if done < to.len().max(from.len())
        && !runs::for_each_run(vector(&to[done..]), vector(&from[done..]), |run| transfer.run(reach, run))
    {
        unequal(remote, total(vector(to)), total(vector(from)));
    }
    transfer.finish(completion)
}

fn transfer_indexed(
    completion: c_int,
    remote: Remote,
    (to, to_bytes): (&[*mut c_void], usize),
    (from, from_bytes): (&[*mut c_void], usize),
) -> *mut Operation {
    let mut transfer = Transfer::new(remote);
    let reach = transfer.reach();
    if to_bytes == from_bytes && to.len() == from.len() {
        let pair = |index: usize| {
            let (&to, &from) = (to.get(index)?, from.get(index)?);
            Some(Run { to: to as usize, from: from as usize, bytes: to_bytes })
        };
        runs::for_each_pair(pair, |run| transfer.run(reach, run));
    } else if !runs::for_each_run(indexed(to, to_bytes), indexed(from, from_bytes), |run| {
        transfer.run(reach, run)
    }) {
        unequal(remote, to.len() * to_bytes, from.len() * from_bytes);
    }
    transfer.finish(completion)
}

fn transfer_section(
    completion: c_int,
    remote: Remote,
    to: (*mut c_void, &[usize]),
    from: (*mut c_void, &[usize]),
    counts: &[usize],
) -> *mut Operation {
    let ((to, to_strides), (from, from_strides)) = (to, from);
    let mut section = Section::at(to as usize, from as usize);
    match section.shape(to_strides, from_strides, counts) {
        Ok(true) => {}
        Ok(false) => return std::ptr::null_mut(),
        Err(TooLarge) => fatal(format_args!(
            "a section of {counts:?} bytes and steps with strides of {to_strides:?} and {from_strides:?} goes beyond the \
             highest address; strides cannot be negative"
        )),
    }
    let (rank, (there, extent)) = match remote {
        Remote::Destination(rank) => (rank, section.destination_range()),
        Remote::Source(rank) => (rank, section.source_range()),
    };
    let mapped = match Reach::of(rank).find(there, extent) {
        None if !segment::is_tiered() => segment::own(rank, pointer(there), extent),
        mapped => mapped,
    };
    if let Some(mapped) = mapped {
        // SAFETY: rules 1 and 5: the local side is valid, the remote side is mapped here or this rank's own memory.
        unsafe {
            match remote {
                Remote::Destination(_) => section.copy(mapped, from.cast()),
                Remote::Source(_) => section.copy(to.cast(), mapped),
            }
        }
        return std::ptr::null_mut();
    }
    if segment::own(rank, pointer(there), extent).is_none() {
        segment::checked_offset(rank, pointer(there), extent);
    }
    let mut transfer = Transfer::new(remote);
    let reach = transfer.reach();
    section.for_each(|run| transfer.run(reach, run));
    transfer.finish(completion)
}

/// `gasnet_putv_bulk` and its likes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vgasi_putv(
    completion: c_int,
    rank: u32,
    to_count: usize,
    to: *const MemoryVector,
    from_count: usize,
    from: *const MemoryVector,
) -> *mut Operation {
    // SAFETY: as the caller promised.
    let (to, from) = unsafe { (vectors(to, to_count), vectors(from, from_count)) };
    transfer_vectors(completion, Remote::Destination(rank), to, from)
}

/// `gasnet_getv_bulk` and its likes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vgasi_getv(
    completion: c_int,
    to_count: usize,
    to: *const MemoryVector,
    rank: u32,
    from_count: usize,
    from: *const MemoryVector,
) -> *mut Operation {
    // SAFETY: as the caller promised.
    let (to, from) = unsafe { (vectors(to, to_count), vectors(from, from_count)) };
    transfer_vectors(completion, Remote::Source(rank), to, from)
}

/// `gasnet_puti_bulk` and its likes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vgasi_puti(
    completion: c_int,
    rank: u32,
    to_count: usize,
    to: *const *mut c_void,
    to_bytes: usize,
    from_count: usize,
    from: *const *mut c_void,
    from_bytes: usize,
) -> *mut Operation {
    // SAFETY: as the caller promised.
    let (to, from) = unsafe { (addresses(to_count, to, to_bytes), addresses(from_count, from, from_bytes)) };
    transfer_indexed(completion, Remote::Destination(rank), (to, to_bytes), (from, from_bytes))
}

/// `gasnet_geti_bulk` and its likes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vgasi_geti(
    completion: c_int,
    to_count: usize,
    to: *const *mut c_void,
    to_bytes: usize,
    rank: u32,
    from_count: usize,
    from: *const *mut c_void,
    from_bytes: usize,
) -> *mut Operation {
    // SAFETY: as the caller promised.
    let (to, from) = unsafe { (addresses(to_count, to, to_bytes), addresses(from_count, from, from_bytes)) };
    transfer_indexed(completion, Remote::Source(rank), (to, to_bytes), (from, from_bytes))
}

/// `gasnet_puts_bulk` and its likes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vgasi_puts(
    completion: c_int,
    rank: u32,
    to: *mut c_void,
    to_strides: *const usize,
    from: *mut c_void,
    from_strides: *const usize,
    counts: *const usize,
    stride_levels: usize,
) -> *mut Operation {
    // SAFETY: as the caller promised.
    let (to_strides, from_strides, counts) = unsafe {
        (
            levels(to_strides, stride_levels),
            levels(from_strides, stride_levels),
            levels(counts, stride_levels + 1),
        )
    };
    transfer_section(completion, Remote::Destination(rank), (to, to_strides), (from, from_strides), counts)
}

/// `gasnet_gets_bulk` and its likes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vgasi_gets(
    completion: c_int,
    to: *mut c_void,
    to_strides: *const usize,
    rank: u32,
    from: *mut c_void,
    from_strides: *const usize,
    counts: *const usize,
    stride_levels: usize,
) -> *mut Operation {
    // SAFETY: as the caller promised.
    let (to_strides, from_strides, counts) = unsafe {
        (
            levels(to_strides, stride_levels),
            levels(from_strides, stride_levels),
            levels(counts, stride_levels + 1),
        )
    };
    transfer_section(completion, Remote::Source(rank), (to, to_strides), (from, from_strides), counts)
}
