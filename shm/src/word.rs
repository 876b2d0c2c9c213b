//! Atomic words of a mapping, found once and then used without a bounds check.

use super::Mapping;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// An atomic word in shared memory that keeps its mapping alive.
pub struct Word<A> {
    at: NonNull<A>,
    mapping: Arc<Mapping>,
}

// SAFETY: an atomic may be used from any thread (rule 1 of `shm`), and the mapping is `Send + Sync` itself.
unsafe impl<A: Sync> Send for Word<A> {}
// SAFETY: as above.
unsafe impl<A: Sync> Sync for Word<A> {}

impl<A> Clone for Word<A> {
    fn clone(&self) -> Self {
        Self { at: self.at, mapping: self.mapping.clone() }
    }
}

impl<A> Deref for Word<A> {
    type Target = A;

    #[inline(always)]
    fn deref(&self) -> &A {
        // SAFETY: rules 2 and 3: the place was checked when the word was made, and `mapping` keeps it mapped.
        unsafe { self.at.as_ref() }
    }
}

impl Mapping {
    /// The 32-bit word at a multiple of 4. Panics when it is misaligned or outside.
    pub fn word_u32(self: &Arc<Self>, offset: usize) -> Word<AtomicU32> {
        Word { at: NonNull::from(self.atomic_u32(offset)), mapping: self.clone() }
    }

    /// The 64-bit word at a multiple of 8. Panics when it is misaligned or outside.
    pub fn word_u64(self: &Arc<Self>, offset: usize) -> Word<AtomicU64> {
        Word { at: NonNull::from(self.atomic_u64(offset)), mapping: self.clone() }
    }
}
