//! libfabric's providers and the signals of the process. In a program of its own: they are loaded once. Where libfabric is missing this
//! is skipped, visibly.

mod ofi_support;

/// What the process does with a fault.
fn action() -> usize {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: it only asks; all zeros are an action.
    unsafe {
        libc::sigaction(libc::SIGSEGV, std::ptr::null(), action.as_mut_ptr());
        action.assume_init().sa_sigaction
    }
}

/// Goal: what the process does with a fault stays its own matter, also when providers were loaded that would like to print it.
#[test]
fn signals_stay_as_they_were() {
    let before = action();
    if !ofi_support::skipped("signals_stay_as_they_were", "tcp;ofi_rxm") {
        assert_eq!(action(), before);
    }
}
