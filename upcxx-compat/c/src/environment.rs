//! The environment of the job: that of whoever started it (GASNet 1.8, 2.2.4).

use libc::c_char;

/// `gasnet_getenv`: ranks inherit the environment of the launcher, so their own is the job's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vgasi_getenv(name: *const c_char) -> *mut c_char {
    if name.is_null() {
        return std::ptr::null_mut();
    }
    // SAFETY: rule 1: a string.
    unsafe { libc::getenv(name) }
}
