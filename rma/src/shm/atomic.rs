//! Atomic updates of single words of segments, by the processor.

use std::sync::atomic::{AtomicU64, Ordering};

/// An atomic update of an aligned word of eight bytes, in the order of bytes of the machine. It yields what the word was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Atomic {
    /// Adds, and wraps around.
    FetchAdd(u64),
    /// Replaces the word if it is what was expected.
    CompareSwap {
        /// What the word must be.
        expected: u64,
        /// What it becomes then.
        desired: u64,
    },
}

impl Atomic {
    /// Updates a word of shared memory, sequentially consistent; yields what it was.
    ///
    /// # Safety
    /// `at` is a multiple of 8, and valid for reads and writes of 8 bytes during the call.
    pub unsafe fn apply(self, at: *mut u8) -> u64 {
        debug_assert!(at.addr().is_multiple_of(8), "a word at {at:p}");
        // SAFETY: the caller's promise; an atomic tolerates other writers (rule 1 of `shm`).
        let word = unsafe { AtomicU64::from_ptr(at.cast()) };
        match self {
            Self::FetchAdd(value) => word.fetch_add(value, Ordering::SeqCst),
            Self::CompareSwap { expected, desired } => word
                .compare_exchange(expected, desired, Ordering::SeqCst, Ordering::SeqCst)
                .unwrap_or_else(|was| was),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Atomic::{CompareSwap, FetchAdd};
    use crate::shm::Mapping;

    #[test]
    fn what_was_there_is_told() {
        let memory = Mapping::anonymous("words", 4096).unwrap();
        let at = memory.base().wrapping_add(16);
        let steps = [
            (FetchAdd(5), 0, 5),
            (FetchAdd(u64::MAX), 5, 4),
            (CompareSwap { expected: 5, desired: 9 }, 4, 4),
            (CompareSwap { expected: 4, desired: 9 }, 4, 9),
        ];
        for (atomic, was, is) in steps {
            // SAFETY: an aligned word inside of the mapping, which lives.
            assert_eq!(unsafe { atomic.apply(at) }, was, "{atomic:?}");
            let mut bytes = [0; 24];
            memory.read(8, &mut bytes);
            assert_eq!(bytes[..8], [0; 8]);
            assert_eq!(bytes[8..16], u64::to_ne_bytes(is), "{atomic:?}");
            assert_eq!(bytes[16..], [0; 8]);
        }
    }
}
