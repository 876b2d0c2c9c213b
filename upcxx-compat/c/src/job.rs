//! The job of this process: joined by `gasnet_init`, and extended by `gasnet_attach`.

use crate::am;
use crate::code;
use crate::coll;
use crate::crash;
use crate::exit;
use crate::fatal::fatal;
use crate::launch;
use crate::long;
use crate::segment;
use libc::{c_char, c_int};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use vgas::{Runtime, say};
use vgas_cache::client::Client;
use vgas_rma::collective::Collectives;
use vgas_rma::endpoint::{Endpoint, handler_index};

/// A C function of any type; its message tells which (rule 3).
pub type RawHandler = unsafe extern "C" fn();

/// Calls beside the safe functions of a [`Runtime`], which the interface needs: its promises to C programs are those of unsafe code.
pub(crate) trait Raw {
    fn endpoint(&self) -> &Arc<Endpoint>;
    fn client(&self) -> &Client;
    fn collectives(&self) -> &Arc<Collectives>;
}

impl Raw for Runtime {
    #[inline]
    fn endpoint(&self) -> &Arc<Endpoint> {
        // SAFETY: segments, and handlers from 127 on, are this interface's and its client's: no other library is in the process.
        unsafe { self.raw_endpoint() }
    }

    #[inline]
    fn client(&self) -> &Client {
        // SAFETY: as above.
        unsafe { self.raw_client() }
    }

    #[inline]
    fn collectives(&self) -> &Arc<Collectives> {
        // SAFETY: as above.
        unsafe { self.raw_collectives() }
    }
}

/// This process's state of its job.
pub(crate) struct Job {
    pub(crate) runtime: Runtime,
    /// The process that has joined; children that it forks have not.
    pub(crate) process: u32,
    /// Most bytes of a medium message.
    pub(crate) medium_max: usize,
}

static JOB: OnceLock<Job> = OnceLock::new();

/// This rank's number. For the headers.
#[unsafe(no_mangle)]
pub static vgasi_mynode: AtomicU32 = AtomicU32::new(0);

/// Number of ranks; 0 before `gasnet_init`. For the headers.
#[unsafe(no_mangle)]
pub static vgasi_nodes: AtomicU32 = AtomicU32::new(0);

/// The job, once joined.
#[inline]
pub(crate) fn current() -> Option<&'static Job> {
    JOB.get()
}

/// The job, in functions that make no sense before `gasnet_init`.
#[inline]
pub(crate) fn joined() -> &'static Job {
    match JOB.get() {
        Some(job) => job,
        None => fatal("a function of GASNet was called before gasnet_init"),
    }
}

/// Joins the job, or starts one when this process is not part of any: then it does not return.
///
/// `conduit` is the conduit of the headers (see `launch`); `argc` and `argv` may be null. `segment_max` are the bytes of a
/// segment that the program has been compiled for; 0 for none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vgasi_init(
    argc: *mut c_int,
    argv: *mut *mut *mut c_char,
    conduit: c_int,
    segment_max: u64,
) -> c_int {
    if current().is_some() {
        return code::NOT_INIT;
    }
    launch::serve_node_late();
    let mut builder = Runtime::builder();
    if !vgas_job::in_job() {
        match launch::started_by_others(conduit, segment_max) {
            Ok(Some(starting)) => builder = builder.starting(starting),
            // SAFETY: rule 1: what `main` was given.
            Ok(None) => unsafe { launch::start_job(argc, argv, conduit, segment_max) },
            Err(reason) => {
                say::line(format_args!("*** FATAL ERROR: cannot join the job: {reason}"));
                std::process::exit(1)
            }
        }
    }
    builder = builder.library_handler(long::CARRIED, am::deliver_carried);
    for index in handler_index::USER..=u8::MAX {
        builder = builder.handler(index, move |token, words, arrived| {
            am::deliver(index, token, words, arrived);
        });
    }
    let runtime = match builder.init() {
        Ok(runtime) => runtime,
        Err(error) => {
            say::line(format_args!("*** FATAL ERROR: cannot join the job: {error}"));
            std::process::exit(1)
        }
    };
    // Until it has attached: see `am::attach`.
    runtime.endpoint().withhold(true);
    launch::forget_job();
    vgasi_mynode.store(runtime.rank().0, Ordering::Relaxed);
    vgasi_nodes.store(runtime.ranks(), Ordering::Release);
    crash::tell_panics();
    segment::prepare(&runtime);
    let medium_max = am::medium_max(conduit, &runtime);
    if JOB.set(Job { runtime, process: std::process::id(), medium_max }).is_err() {
        return code::NOT_INIT;
    }
    coll::prepare();
    exit::watch();
    crash::watch();
    code::OK
}
