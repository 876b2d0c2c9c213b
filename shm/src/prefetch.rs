//! Asking for a cache line before it is written.
//!
//! # Unsafe rules
//!
//! 1. *Hint.* The instruction neither reads nor writes as far as the program can tell, and ignores addresses that are not
//!    mapped. It exists on every processor of the architecture, as a hint or as nothing.

/// Brings the cache line of a word here, and takes it from the other cores: for a word that is written soon and that another
/// core has read. Nothing where no such instruction is known.
#[inline(always)]
pub fn prefetch_for_write<T>(word: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: rule 1. (The intrinsic would become a prefetch for reading, unless compiled for newer processors.)
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) std::ptr::from_ref(word), options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = word;
}
