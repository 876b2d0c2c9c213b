//! The two halves of an asymmetric fence: one side is free and runs often, the other is a system call and runs rarely.
//!
//! Two parties each write a word and then read the other's; at least one must see the other's write. Usually
//! both execute a fence between the two, which makes a sender wait until its message has left the store
//! buffer: most of a message's cost. With [`heavy`] on the rare side (`membarrier(2)` makes every registered
//! process of the machine execute a fence now) the [`light`] side only keeps the compiler from reordering.
//!
//! If the kernel refuses, both are ordinary fences. A process that is refused must tell the processes that it
//! shares words with, so that their light side does more: see [`super::bell`].

use rustix::thread::{MembarrierCommand, membarrier};
use std::sync::OnceLock;
use std::sync::atomic::{Ordering, compiler_fence, fence};

/// Returns true if this process takes part in asymmetric fences. The first call registers it.
#[inline]
pub fn is_asymmetric() -> bool {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    *REGISTERED.get_or_init(|| {
        membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok()
            && membarrier(MembarrierCommand::GlobalExpedited).is_ok()
    })
}

/// The side that runs often.
#[inline(always)]
pub fn light() {
    if is_asymmetric() { compiler_fence(Ordering::SeqCst) } else { fence(Ordering::SeqCst) }
}

/// The side that runs rarely: some microseconds.
pub fn heavy() {
    fence(Ordering::SeqCst);
    if is_asymmetric() {
        // It worked when this process was registered, and fails for no other reason than not being offered.
        let _ = membarrier(MembarrierCommand::GlobalExpedited);
    }
}
