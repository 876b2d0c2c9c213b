//! Puts and gets of many pieces: vectors, indexed lists, strided sections (`gasnet_vis.h`).
//!
//! Both sides of a transfer are sequences of pieces. They are walked together: the next *run* is as long as the shorter
//! of the two current pieces, and runs that continue each other on both sides are joined. A run whose remote bytes this
//! process can load and store is a copy, also of own bytes outside of a segment, and so is one of a tiered segment whose page
//! is cached here. Short runs of a pinned segment elsewhere are packed into messages, of which the target's agent makes runs
//! again; long ones are puts and gets of their own. Runs of a tiered segment that follow each other in one page are one
//! operation of the cache, and travel together where the page's home serves it in place. All of them are one operation. What
//! is under way at a time is bounded.

use crate::fatal::{fail, fatal};
use crate::handle::{Operation, vgasi_accumulate, vgasi_wait};
use crate::job;
use crate::segment;
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

/// Bytes at an address of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    address: usize,
    bytes: usize,
}

/// Bytes at two addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    to: usize,
    from: usize,
    bytes: usize,
}

/// The pieces of a vector, without those that are empty.
unsafe fn vector(count: usize, list: *const MemoryVector) -> impl Iterator<Item = Piece> + Clone {
    // SAFETY: rule 1: so many entries, which nobody changes during the operation.
    let list = if count == 0 { &[] } else { unsafe { std::slice::from_raw_parts(list, count) } };
    let pieces = list.iter().map(|entry| Piece { address: entry.address as usize, bytes: entry.bytes });
    pieces.filter(|piece| piece.bytes > 0)
}

/// The pieces of an indexed list.
unsafe fn indexed(
    count: usize,
    list: *const *mut c_void,
    bytes: usize,
) -> impl Iterator<Item = Piece> + Clone {
    let is_empty = count == 0 || bytes == 0;
    // SAFETY: rule 1: so many entries, which nobody changes during the operation.
    let list = if is_empty { &[] } else { unsafe { std::slice::from_raw_parts(list, count) } };
    list.iter().map(move |&address| Piece { address: address as usize, bytes })
}

/// The pieces of a strided section, the first dimension fastest.
#[derive(Clone)]
struct Strided<'a> {
    address: usize,
    strides: &'a [usize],
    counts: &'a [usize],
    /// How often each dimension but the first has been stepped in; none when all is done.
    steps: Option<Vec<usize>>,
}

impl<'a> Strided<'a> {
    /// `counts` is one longer than `strides`.
    fn new(address: usize, strides: &'a [usize], counts: &'a [usize]) -> Self {
        let is_empty = counts.contains(&0);
        Self { address, strides, counts, steps: (!is_empty).then(|| vec![0; strides.len()]) }
    }
}

impl Iterator for Strided<'_> {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        let steps = self.steps.as_mut()?;
        let piece = Piece { address: self.address, bytes: self.counts[0] };
        for (level, step) in steps.iter_mut().enumerate() {
            *step += 1;
            if *step < self.counts[level + 1] {
                self.address = self.address.wrapping_add(self.strides[level]);
                return Some(piece);
            }
            let back = self.strides[level].wrapping_mul(*step - 1);
            self.address = self.address.wrapping_sub(back);
            *step = 0;
        }
        self.steps = None;
        Some(piece)
    }
}

/// The counts and strides of a section, which C gives as arrays; strides of no levels may be null.
unsafe fn levels<'a>(array: *const usize, count: usize) -> &'a [usize] {
    if count == 0 {
        return &[];
    }
    // SAFETY: rule 1: so many numbers, which nobody changes during the operation.
    unsafe { std::slice::from_raw_parts(array, count) }
}

/// Walks two sequences of pieces together, joining runs that continue each other. Both have the same number of bytes.
struct Runs<D, S> {
    to: D,
    from: S,
    rest_to: Piece,
    rest_from: Piece,
}

impl<D: Iterator<Item = Piece>, S: Iterator<Item = Piece>> Runs<D, S> {
    fn new(to: D, from: S) -> Self {
        let nothing = Piece { address: 0, bytes: 0 };
        Self { to, from, rest_to: nothing, rest_from: nothing }
    }

    /// The next run, not joined with what follows.
    fn step(&mut self) -> Option<Run> {
        if self.rest_to.bytes == 0 {
            self.rest_to = self.to.next()?;
        }
        if self.rest_from.bytes == 0 {
            self.rest_from = self.from.next()?;
        }
        let bytes = self.rest_to.bytes.min(self.rest_from.bytes);
        let run = Run { to: self.rest_to.address, from: self.rest_from.address, bytes };
        for rest in [&mut self.rest_to, &mut self.rest_from] {
            rest.address = rest.address.wrapping_add(bytes);
            rest.bytes -= bytes;
        }
        Some(run)
    }

    fn for_each(mut self, mut act: impl FnMut(Run)) {
        let Some(mut run) = self.step() else { return };
        while let Some(next) = self.step() {
            let continues =
                run.to.wrapping_add(run.bytes) == next.to && run.from.wrapping_add(run.bytes) == next.from;
            if continues {
                run.bytes += next.bytes;
            } else {
                act(std::mem::replace(&mut run, next));
            }
        }
        act(run);
    }
}

fn total(pieces: impl Iterator<Item = Piece>) -> usize {
    pieces.map(|piece| piece.bytes).sum()
}

/// Which side of a transfer is in the segment of a rank.
#[derive(Clone, Copy)]
enum Remote {
    Destination(u32),
    Source(u32),
}

/// How it completes; the numbers are those of `gasnet_vis.h`.
const BLOCKING: c_int = 0;
const EXPLICIT: c_int = 1;

fn pointer(address: usize) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(address)
}

/// Runs of one transfer that have a put or get of their own at a time.
const OWN_MAX: usize = 128;

/// Short runs that are packed at a time: some messages' worth.
const PACKED_MAX: usize = 4096;

/// The longest run that is packed: above it, a message of its own costs less than copying its bytes twice.
const PACKED_BYTES_MAX: usize = 2048;

/// The runs of one transfer that are not copies.
struct Runner {
    remote: Remote,
    is_tiered: bool,
    short: Vec<SegmentPiece>,
    started: Vec<*mut Operation>,
    /// Those that are gets of packed pieces; each holds as many bytes as it gets, which no bound makes less.
    packed: Vec<*mut Operation>,
}

impl Runner {
    fn new(remote: Remote) -> Self {
        let is_tiered = segment::is_tiered();
        Self { remote, is_tiered, short: Vec::new(), started: Vec::new(), packed: Vec::new() }
    }

    /// Copies a run, or starts it.
    fn run(&mut self, run: Run) {
        let (rank, there, here) = match self.remote {
            Remote::Destination(rank) => (rank, run.to, run.from),
            Remote::Source(rank) => (rank, run.from, run.to),
        };
        let mapped = segment::mapped(rank, pointer(there), run.bytes);
        if let Some(mapped) = mapped.or_else(|| segment::own(rank, pointer(there), run.bytes)) {
            let (to, from) = match self.remote {
                Remote::Destination(_) => (mapped, pointer(here).cast::<u8>()),
                Remote::Source(_) => (pointer(here).cast::<u8>(), mapped),
            };
            // SAFETY: rules 1 and 5: the local side is valid, the remote side is mapped here; they may overlap.
            return unsafe { std::ptr::copy(from, to, run.bytes) };
        }
        if self.is_tiered {
            return self.run_tiered(rank, there, here, run.bytes);
        }
        if run.bytes <= PACKED_BYTES_MAX {
            let offset = segment::checked_offset(rank, pointer(there), run.bytes);
            self.short.push(SegmentPiece { offset, here: pointer(here).cast(), bytes: run.bytes });
            if self.short.len() == PACKED_MAX {
                self.pack();
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

    /// Copies a run of a tiered segment whose page is here, or keeps it until the runs of its page are complete.
    fn run_tiered(&mut self, rank: u32, there: usize, here: usize, bytes: usize) {
        let offset = segment::checked_offset(rank, pointer(there), bytes);
        let client = job::joined().runtime.client();
        let here = pointer(here).cast::<u8>();
        // SAFETY: rule 1.
        let is_done = unsafe {
            match self.remote {
                Remote::Destination(_) => client.put_cached(Rank(rank), offset, here, bytes),
                Remote::Source(_) => client.get_cached(Rank(rank), offset, here, bytes),
            }
        };
        if is_done {
            return;
        }
        let page_of = |offset: u64| offset / client.page_bytes() as u64;
        let is_next = self.short.last().is_some_and(|last| page_of(last.offset) == page_of(offset));
        if !is_next || self.short.len() == PACKED_MAX {
            self.start_tiered();
        }
        self.short.push(SegmentPiece { offset, here, bytes });
    }

    /// Starts the runs of a page as one operation.
    fn start_tiered(&mut self) {
        if self.short.is_empty() {
            return;
        }
        self.limit_started();
        let client = job::joined().runtime.client();
        // SAFETY: rule 1. What the operation reads and writes stays until it is complete.
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
        self.short.clear();
    }

    /// Waits until there is room for one more operation.
    fn limit_started(&mut self) {
        if self.started.len() == OWN_MAX {
            // SAFETY: rule 2: made here, and not given on.
            unsafe { Operation::thin_out(&mut self.started, OWN_MAX / 2) };
        }
    }

    /// Starts the short runs.
    fn pack(&mut self) {
        if self.is_tiered {
            return self.start_tiered();
        }
        if self.short.is_empty() {
            return;
        }
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
                // SAFETY: the operation keeps the box until it is complete, and nobody touches it before.
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
        self.short.clear();
    }

    /// What is left of all runs; null when they are complete.
    fn finish(mut self) -> *mut Operation {
        self.pack();
        self.started.append(&mut self.packed);
        // SAFETY: rule 2: made here, and given on.
        unsafe { Operation::group(self.started) }
    }
}

fn transfer(
    completion: c_int,
    remote: Remote,
    to: impl Iterator<Item = Piece> + Clone,
    from: impl Iterator<Item = Piece> + Clone,
) -> *mut Operation {
    let (to_bytes, from_bytes) = (total(to.clone()), total(from.clone()));
    if to_bytes != from_bytes {
        let (what, rank) = match remote {
            Remote::Destination(rank) => ("put to", rank),
            Remote::Source(rank) => ("get from", rank),
        };
        fatal(format_args!(
            "a {what} node {rank} whose source has {from_bytes} bytes and whose destination has {to_bytes}"
        ));
    }
    let mut runner = Runner::new(remote);
    Runs::new(to, from).for_each(|run| runner.run(run));
    let kind = match remote {
        Remote::Destination(_) => crate::handle::PUTS,
        Remote::Source(_) => crate::handle::GETS,
    };
    // SAFETY: rule 2: just made, and given on.
    unsafe {
        let all = runner.finish();
        match completion {
            BLOCKING => vgasi_wait(all),
            EXPLICIT => return all,
            _ => vgasi_accumulate(all, kind),
        }
    }
    std::ptr::null_mut()
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
    let (to, from) = unsafe { (vector(to_count, to), vector(from_count, from)) };
    transfer(completion, Remote::Destination(rank), to, from)
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
    let (to, from) = unsafe { (vector(to_count, to), vector(from_count, from)) };
    transfer(completion, Remote::Source(rank), to, from)
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
    let (to, from) = unsafe { (indexed(to_count, to, to_bytes), indexed(from_count, from, from_bytes)) };
    transfer(completion, Remote::Destination(rank), to, from)
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
    let (to, from) = unsafe { (indexed(to_count, to, to_bytes), indexed(from_count, from, from_bytes)) };
    transfer(completion, Remote::Source(rank), to, from)
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
    let to = Strided::new(to as usize, to_strides, counts);
    let from = Strided::new(from as usize, from_strides, counts);
    transfer(completion, Remote::Destination(rank), to, from)
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
    let to = Strided::new(to as usize, to_strides, counts);
    let from = Strided::new(from as usize, from_strides, counts);
    transfer(completion, Remote::Source(rank), to, from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(list: &[(usize, usize)]) -> Vec<Piece> {
        list.iter().map(|&(address, bytes)| Piece { address, bytes }).collect()
    }

    fn runs(to: &[(usize, usize)], from: &[(usize, usize)]) -> Vec<(usize, usize, usize)> {
        let mut found = Vec::new();
        Runs::new(pieces(to).into_iter(), pieces(from).into_iter())
            .for_each(|run| found.push((run.to, run.from, run.bytes)));
        found
    }

    #[test]
    fn runs_are_as_long_as_both_sides_allow() {
        assert_eq!(runs(&[], &[]), []);
        assert_eq!(runs(&[(100, 8)], &[(200, 8)]), [(100, 200, 8)]);
        assert_eq!(runs(&[(100, 6)], &[(200, 2), (300, 4)]), [(100, 200, 2), (102, 300, 4)]);
        assert_eq!(
            runs(&[(100, 3), (110, 3)], &[(200, 4), (300, 2)]),
            [(100, 200, 3), (110, 203, 1), (111, 300, 2)]
        );
        // What continues on both sides is one run, however it was cut.
        assert_eq!(runs(&[(100, 1), (101, 5)], &[(200, 4), (204, 2)]), [(100, 200, 6)]);
    }

    #[test]
    fn a_section_is_walked_first_dimension_first() {
        let walk = |strides: &[usize], counts: &[usize]| {
            Strided::new(1000, strides, counts).map(|piece| (piece.address, piece.bytes)).collect::<Vec<_>>()
        };
        assert_eq!(walk(&[], &[5]), [(1000, 5)]);
        assert_eq!(walk(&[], &[0]), []);
        assert_eq!(walk(&[10], &[4, 3]), [(1000, 4), (1010, 4), (1020, 4)]);
        assert_eq!(walk(&[10], &[4, 0]), []);
        assert_eq!(walk(&[10, 100], &[1, 2, 2]), [(1000, 1), (1010, 1), (1100, 1), (1110, 1)]);
        assert_eq!(walk(&[10, 100, 7], &[1, 1, 2, 2]), [(1000, 1), (1100, 1), (1007, 1), (1107, 1)]);
    }
}
