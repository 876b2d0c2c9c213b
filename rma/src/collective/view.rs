//! Bytes of a caller, read and written while an operation is in flight.
//!
//! The only unsafe code of this folder. Its rule: *the maker of a view is responsible for the bytes* until
//! the operation that it is given to is done. The engine keeps no view longer than that.

use crate::message::Source;
use vgas_shm::Mapping;

/// An address of a caller's and a number of bytes there, from which parts are taken. Copied freely, used by any thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    address: *mut u8,
    bytes: usize,
}

// SAFETY: the view's maker has promised that the bytes are valid for any thread of the process.
unsafe impl Send for View {}
// SAFETY: as above; the address itself is never changed.
unsafe impl Sync for View {}

impl View {
    /// A view of memory.
    ///
    /// # Safety
    /// `bytes` bytes at `address` are valid for reads, and for writes where the operation writes, by any thread of this
    /// process, until the operations that the view is given to are done
    /// ([`Operation::outcome`](super::Operation::outcome)). Others may read and write them meanwhile only as
    /// memory that processes share is read and written ([`vgas_shm`]).
    pub unsafe fn new(address: *mut u8, bytes: usize) -> Self {
        Self { address, bytes }
    }

    /// Its first byte.
    pub fn address(self) -> *mut u8 {
        self.address
    }

    /// Returns its number of bytes.
    pub fn bytes(self) -> usize {
        self.bytes
    }

    /// So many of its bytes, from an offset on.
    ///
    /// # Panics
    /// If they are not all in it.
    pub fn part(self, offset: usize, bytes: usize) -> Self {
        let rest = self.bytes.checked_sub(offset);
        assert!(rest.is_some_and(|rest| bytes <= rest), "{bytes} bytes at {offset} of {}", self.bytes);
        Self { address: self.address.wrapping_add(offset), bytes }
    }

    /// A copy of its bytes.
    pub fn read(self) -> Vec<u8> {
        let mut copy = vec![0; self.bytes];
        self.read_into(&mut copy);
        copy
    }

    /// Copies its first bytes.
    ///
    /// # Panics
    /// If it has fewer.
    pub fn read_into(self, into: &mut [u8]) {
        assert!(into.len() <= self.bytes, "{} bytes of {}", into.len(), self.bytes);
        if !into.is_empty() {
            // SAFETY: the view is valid (`View::new`), and as long; a slice of the library's does not overlap it. The copy tolerates
            // writers.
            unsafe { vgas_shm::copy::copy(self.address, into.as_mut_ptr(), into.len()) };
        }
    }

    /// Writes its first bytes.
    ///
    /// # Panics
    /// If it has fewer.
    pub fn write(self, bytes: &[u8]) {
        assert!(bytes.len() <= self.bytes, "{} bytes into {}", bytes.len(), self.bytes);
        if !bytes.is_empty() {
            // SAFETY: as in `read_into`.
            unsafe { vgas_shm::copy::copy(bytes.as_ptr(), self.address, bytes.len()) };
        }
    }

    /// Takes over the bytes of another of the same length, which may overlap it.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn copy_from(self, from: View) {
        assert_eq!(self.bytes, from.bytes, "views of different lengths");
        if self.bytes > 0 && self.address != from.address {
            // SAFETY: both are valid (`View::new`), and of this length.
            unsafe { std::ptr::copy(from.address, self.address, self.bytes) };
        }
    }

    /// A view of the engine's own memory, which is neither moved nor used otherwise while the view is.
    pub(super) fn of_own(own: &mut [u8]) -> Self {
        Self { address: own.as_mut_ptr(), bytes: own.len() }
    }

    /// A view of bytes that are only read while the view is used.
    pub(super) fn of_shared(bytes: &[u8]) -> Self {
        Self { address: bytes.as_ptr().cast_mut(), bytes: bytes.len() }
    }

    /// A view of a range of a mapping that lives as long as the endpoint; none if the range is not inside.
    pub(super) fn of_mapping(mapping: &Mapping, offset: usize, bytes: usize) -> Option<Self> {
        let is_inside = mapping.contains(offset as u64, bytes as u64);
        is_inside.then(|| Self { address: mapping.base().wrapping_add(offset), bytes })
    }

    /// A view of a range of a member's segment, as the endpoint has checked it; segments stay mapped as long as the endpoint lives.
    pub(super) fn of_segment(address: *mut u8, bytes: usize) -> Self {
        Self { address, bytes }
    }

    /// Copies the bytes of a view of the same length. One of the two may be memory that another process writes; they do not overlap.
    ///
    /// # Panics
    /// If the lengths differ.
    #[inline]
    pub(super) fn copy_shared(self, from: View) {
        assert_eq!(self.bytes, from.bytes, "views of different lengths");
        // SAFETY: both are valid (`View::new`, `of_mapping`, `of_segment`), and of this length. The copy tolerates writers.
        unsafe { vgas_shm::copy::copy(from.address, self.address, self.bytes) };
    }

    /// Returns true if both have a byte in common.
    pub fn overlaps(self, other: View) -> bool {
        let (here, there) = (self.address.addr(), other.address.addr());
        here < there.saturating_add(other.bytes) && there < here.saturating_add(self.bytes)
    }

    /// Its bytes, to be sent.
    pub(super) fn source(self) -> Source<'static> {
        // SAFETY: valid until the operation is done (`View::new`), and it is not done before all has been sent.
        unsafe { Source::raw(self.address, self.bytes) }
    }
}

/// Combines elements: of the first two arguments into the third, which may be the first.
///
/// # Safety
/// An implementation uses the views that [`Combiner::combine`] gets only until it returns: they may outlive their memory.
pub unsafe trait Combiner {
    /// Combines as many elements as the views hold. The first two may be memory of another process, which may write it. Must not
    /// begin a collective of the same team, nor wait for one.
    fn combine(&self, left: View, right: View, result: View);

    /// Returns the bytes of an element, by which pieces are cut.
    fn element_bytes(&self) -> usize;

    /// Returns whether it must run outside of message handlers, in a thread of the program that has called the library.
    fn needs_caller(&self) -> bool;
}

/// A combiner that any thread may use.
pub type SharedCombiner = Box<dyn Combiner + Send + Sync>;

/// A function of a caller that waits for the operation.
pub(super) struct BorrowedCombiner {
    combiner: *const dyn Combiner,
    element_bytes: usize,
}

// SAFETY: the function is called by its own thread only, which waits for the operation (`BorrowedCombiner::boxed`); another thread may
// drop the pointer.
unsafe impl Send for BorrowedCombiner {}
// SAFETY: as above.
unsafe impl Sync for BorrowedCombiner {}

impl BorrowedCombiner {
    /// A function for [`Team::run`](super::Team::run), which calls it in its own thread only (`Machine::may_proceed`, `Exchange::run`) and
    /// returns, or unwinds, when the operation has ended.
    pub(super) fn boxed(combiner: &dyn Combiner) -> SharedCombiner {
        let element_bytes = combiner.element_bytes();
        // SAFETY: only the lifetime changes; the pointer is not used after the operation has ended, which is within that lifetime.
        let combiner = unsafe { std::mem::transmute::<&dyn Combiner, &'static dyn Combiner>(combiner) };
        Box::new(Self { combiner, element_bytes })
    }
}

// SAFETY: the views are handed on only.
unsafe impl Combiner for BorrowedCombiner {
    fn combine(&self, left: View, right: View, result: View) {
        // SAFETY: the operation is in flight, so that its caller waits (`BorrowedCombiner::boxed`).
        unsafe { &*self.combiner }.combine(left, right, result);
    }

    fn element_bytes(&self) -> usize {
        self.element_bytes
    }

    fn needs_caller(&self) -> bool {
        true
    }
}

#[cfg(test)]
impl View {
    /// Makes a view of memory that a test keeps longer than the view.
    pub(super) fn of_test(place: &mut [u8]) -> Self {
        // SAFETY: as the tests that call promise.
        unsafe { Self::new(place.as_mut_ptr(), place.len()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_do_not_overlap() {
        let mut place = [0u8; 8];
        let view = View::of_test(&mut place);
        let part = |offset, bytes| view.part(offset, bytes);
        assert!(part(0, 4).overlaps(part(3, 1)));
        assert!(!part(0, 4).overlaps(part(4, 4)));
        assert!(!part(4, 4).overlaps(part(0, 4)));
        assert!(!part(0, 0).overlaps(part(0, 4)));
    }

    #[test]
    #[should_panic(expected = "3 bytes at 6 of 8")]
    fn a_part_lies_inside() {
        let mut place = [0u8; 8];
        let _ = View::of_test(&mut place).part(6, 3);
    }
}
