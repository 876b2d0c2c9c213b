//! Copies without room in a full partition: memory of this process, so that remote objects can be read while
//! the heap is full.
//!
//! They are found and evicted as other copies. Only this rank reads them: no rank of the node is shown one, and no home hands a reader on to one.

use super::Heap;
use rustc_hash::FxHashMap;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::with_exposed_provenance_mut;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The blocks of a rank's overflow copies.
#[derive(Debug, Default)]
pub(super) struct Overflow(Mutex<Blocks>);

#[derive(Debug, Default)]
struct Blocks {
    /// By address.
    all: FxHashMap<u64, Layout>,
    bytes: u64,
}

impl Overflow {
    fn blocks(&self) -> MutexGuard<'_, Blocks> {
        // Changed in steps that cannot panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if a block of this size may be allocated: one always, more while all together are not
    /// larger than `most` bytes.
    pub fn has_room(&self, bytes: u64, most: u64) -> bool {
        let blocks = self.blocks();
        blocks.bytes == 0 || blocks.bytes.saturating_add(bytes) <= most
    }

    /// Allocates a block of zeros; none if [`Overflow::has_room`] refuses it, or there is no memory.
    pub fn allocate(&self, bytes: u64, align: usize, most: u64) -> Option<u64> {
        let layout = Layout::from_size_align(usize::try_from(bytes).ok()?, align).ok()?;
        let mut blocks = self.blocks();
        if layout.size() == 0 || (blocks.bytes > 0 && blocks.bytes.saturating_add(bytes) > most) {
            return None;
        }
        // SAFETY: rule 1: of more than no bytes.
        let address = unsafe { alloc_zeroed(layout) }.expose_provenance() as u64;
        if address == 0 {
            return None;
        }
        blocks.all.insert(address, layout);
        blocks.bytes += bytes;
        Some(address)
    }

    /// Frees a block; false: it is none.
    pub fn free(&self, address: u64) -> bool {
        let mut blocks = self.blocks();
        let Some(layout) = blocks.all.remove(&address) else { return false };
        blocks.bytes -= layout.size() as u64;
        // SAFETY: rule 1: it was allocated with this layout, and is freed once.
        unsafe { dealloc(with_exposed_provenance_mut(address as usize), layout) };
        true
    }
}

impl Heap {
    /// A block for a copy that the partition has no room for: as many bytes as copies may have anyway, beyond which those go that are not used.
    pub(super) fn allocate_overflow(&self, bytes: u64, align: usize) -> Option<u64> {
        let most = self.copy_bytes_max;
        while !self.overflow.has_room(bytes, most) && matches!(self.evict(), Ok(true)) {}
        self.overflow.allocate(bytes, align.max(16), most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: one block of any size is allocated, more up to the bound, and each is freed once.
    #[test]
    fn blocks_are_bounded() {
        let overflow = Overflow::default();
        let first = overflow.allocate(1 << 20, 1 << 16, 100).expect("the first");
        assert!(first.is_multiple_of(1 << 16) && overflow.allocate(16, 16, 100).is_none());
        assert!(overflow.free(first) && !overflow.free(first) && !overflow.free(7));
        let small: Vec<u64> = (0..6).map_while(|_| overflow.allocate(16, 16, 100)).collect();
        assert!(small.len() == 6 && !overflow.has_room(16, 100) && overflow.has_room(4, 100));
        assert!(
            overflow.allocate(u64::MAX, 16, u64::MAX).is_none() && overflow.allocate(0, 16, 100).is_none()
        );
        assert!(small.iter().all(|block| overflow.free(*block)) && overflow.blocks().bytes == 0);
    }
}
