//! Threads of the endpoint's own leave signals to the program's.

/// Runs something with the signals of this thread blocked, but for those that a fault of its own raises: threads that it
/// starts keep it so, and the program's handlers run in the program's threads.
pub(super) fn with_signals_blocked<R>(work: impl FnOnce() -> R) -> R {
    // SAFETY: the sets are local, plain numbers, and filled before they are read.
    let before = unsafe {
        let (mut most, mut before): (libc::sigset_t, libc::sigset_t) =
            (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&raw mut most);
        for fault in [libc::SIGSEGV, libc::SIGBUS] {
            libc::sigdelset(&raw mut most, fault);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const most, &raw mut before);
        before
    };
    let result = work();
    // SAFETY: the set is local, and was filled above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    result
}
