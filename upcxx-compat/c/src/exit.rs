//! The end of the job: `gasnet_exit`, and what stands for it when a client ends otherwise (GASNet 1.8, 2.1.5).

use crate::job;
use libc::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether this process is on its way out.
static LEAVING: AtomicBool = AtomicBool::new(false);

/// `gasnet_exit`.
#[unsafe(no_mangle)]
pub extern "C" fn vgasi_exit(status: c_int) -> ! {
    if LEAVING.swap(true, Ordering::SeqCst) {
        // Another thread ends the process.
        loop {
            std::thread::park();
        }
    }
    if let Some(job) = job::current() {
        if status == 0 {
            let _ = job.runtime.leave();
        } else {
            let _ = job.runtime.abort("gasnet_exit", (status & 0xff) as u8);
        }
    }
    // SAFETY: it ends the process; streams are flushed.
    unsafe { libc::exit(status) }
}

/// Ends the job because of an error.
pub(crate) fn abort_job(reason: &str, status: u8) -> ! {
    LEAVING.store(true, Ordering::SeqCst);
    if let Some(job) = job::current() {
        let _ = job.runtime.abort(reason, status);
    }
    // SAFETY: it ends the process, at once: this may be a handler, or a thread that holds locks.
    unsafe { libc::_exit(i32::from(status)) }
}

/// Called once the job is joined.
pub(crate) fn watch() {}
