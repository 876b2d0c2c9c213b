//! The end of the job: `gasnet_exit`, and its substitutes when a client ends otherwise (GASNet 1.8, 2.1.5).
//!
//! A rank that exits announces its status and waits until all others have, so that no rank sees a connection
//! break; the launcher ends those that do not follow (`vgas_job::Bootstrap::exit`). A client that returns
//! from `main` or calls `exit` announces that status.
//!
//! `gasnet_exit` may be called in a handler of a signal, above anything that takes locks: in the middle of `malloc`, a thread
//! that allocates waits for itself for ever. So a thread of its own, which waits from the start, makes the announcement, and
//! ends the process if the other one does not come to its end afterwards. It also tells of errors that end the job.

use crate::job::{self, Raw as _};
use libc::{c_int, c_void};
use rustix::io::Errno;
use rustix::thread::futex;
use std::fmt::{Display, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU32, AtomicUsize, Ordering};
use std::thread::Thread;
use std::time::Duration;
use vgas::say;

/// The thread that ends this process, once there is one.
static LEAVING: AtomicI32 = AtomicI32::new(0);

/// The status with which it does.
static STATUS: AtomicI32 = AtomicI32::new(0);

/// The thread that announces it.
static ANNOUNCER: OnceLock<Thread> = OnceLock::new();

/// Progress of the announcement.
static STAGE: AtomicU32 = AtomicU32::new(NOTHING_ASKED);
const NOTHING_ASKED: u32 = 0;
/// The exit is to be announced.
const ASKED: u32 = 1;
/// The end of the job for [`REASON`] is to be announced.
const ASKED_TO_ABORT: u32 = 2;
const ANNOUNCED: u32 = 3;

/// Why the job ends.
static REASON: Reason =
    Reason { bytes: [const { AtomicU8::new(0) }; REASON_BYTES_MAX], used: AtomicUsize::new(0) };

/// True if [`REASON`] is about another rank.
static IS_COMPLAINT: AtomicBool = AtomicBool::new(false);

/// Room for a sentence with a path.
const REASON_BYTES_MAX: usize = 512;

/// A text that is put together without memory from elsewhere. One thread writes it, before the stage tells the announcer.
struct Reason {
    bytes: [AtomicU8; REASON_BYTES_MAX],
    used: AtomicUsize,
}

impl Write for &Reason {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let used = self.used.load(Ordering::Relaxed);
        let mut count = 0;
        for (place, byte) in self.bytes[used..].iter().zip(text.bytes()) {
            place.store(byte, Ordering::Relaxed);
            count += 1;
        }
        self.used.store(used + count, Ordering::Relaxed);
        Ok(())
    }
}

impl Reason {
    fn text(&self) -> String {
        let used = &self.bytes[..self.used.load(Ordering::Relaxed)];
        let bytes: Vec<u8> = used.iter().map(|byte| byte.load(Ordering::Relaxed)).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// Timeout of the announcement, which the launcher bounds below that; then that of the client's own work at
/// its exit.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Bytes of the announcer's stack.
const STACK_BYTES: usize = 256 << 10;

/// The status of a process that was ended externally, as if it had died of SIGQUIT.
const ENDED_BY_OTHERS: c_int = 128 + libc::SIGQUIT;

/// Signals by which users and systems ask a process to end.
const INTERRUPTIONS: [c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

unsafe extern "C" {
    /// A function of glibc; the `libc` crate lacks it.
    fn on_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}

/// The number of the calling thread. May be called in handlers.
pub(crate) fn this_thread() -> i32 {
    // SAFETY: a system call without arguments.
    unsafe { libc::gettid() }
}

/// `gasnet_exit`.
#[unsafe(no_mangle)]
pub extern "C" fn vgasi_exit(status: c_int) -> ! {
    announce(status);
    // SAFETY: ends the process.
    unsafe { libc::exit(status) }
}

/// Announces the exit, once. Does not return to a second caller.
fn announce(status: c_int) {
    match LEAVING.compare_exchange(0, this_thread(), Ordering::SeqCst, Ordering::SeqCst) {
        Ok(_) => {}
        // A handler of a signal or of the exit itself, above what it would wait for.
        // SAFETY: ends the process.
        Err(leaving) if leaving == this_thread() => unsafe { libc::_exit(status) },
        Err(_) => loop {
            // The other thread ends the process.
            std::thread::park();
        },
    }
    STATUS.store(status, Ordering::SeqCst);
    let job = job::current().filter(|job| job.process == std::process::id());
    // Memory of operations that the client has not synchronised goes with its destructors.
    if let Some(job) = job {
        job.runtime.endpoint().stop_background();
    }
    let is_asked = ask(ASKED);
    // Printed text must not be lost if this process is ended with the others. In the middle of a function
    // that prints this may wait for ever, too: the announcer is at work already.
    flush();
    match job {
        _ if is_asked => wait_for_announcer(),
        Some(job) => tell(job),
        None => {}
    }
}

/// Writes what was printed. SIGQUIT waits meanwhile: in the middle of a write, `on_quit` would write the same
/// again.
fn flush() {
    // SAFETY: the sets are plain numbers, filled before they are used; null means all streams.
    unsafe {
        let (mut quit, mut before): (libc::sigset_t, libc::sigset_t) =
            (std::mem::zeroed(), std::mem::zeroed());
        libc::sigemptyset(&raw mut quit);
        libc::sigaddset(&raw mut quit, libc::SIGQUIT);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const quit, &raw mut before);
        libc::fflush(std::ptr::null_mut());
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
    }
}

/// Has the announcer do its work. False if there is none: a child that the client has forked has no such
/// thread, and is no rank.
fn ask(stage: u32) -> bool {
    let is_rank = job::current().is_some_and(|job| job.process == std::process::id());
    match ANNOUNCER.get().filter(|_| is_rank) {
        Some(announcer) => {
            STAGE.store(stage, Ordering::SeqCst);
            announcer.unpark();
            true
        }
        None => false,
    }
}

fn wait_for_announcer() {
    let timeout = futex::Timespec { tv_sec: TIMEOUT.as_secs() as i64, tv_nsec: 0 };
    loop {
        let stage = STAGE.load(Ordering::SeqCst);
        // Otherwise it was woken, interrupted, or too late to wait.
        if stage == ANNOUNCED
            || futex::wait(&STAGE, futex::Flags::PRIVATE, stage, Some(&timeout)) == Err(Errno::TIMEDOUT)
        {
            return;
        }
    }
}

/// Tells the launcher, and waits for the others.
fn tell(job: &job::Job) {
    // Without a daemon there is no one to tell: the job is over.
    let _ = job.runtime.exit((STATUS.load(Ordering::SeqCst) & 0xff) as u8);
}

/// Tells the launcher why the job ends, or the user if there is none.
fn tell_reason() {
    let (reason, status) = (REASON.text(), (STATUS.load(Ordering::SeqCst) & 0xff) as u8);
    let told = job::current().map(|job| match IS_COMPLAINT.load(Ordering::SeqCst) {
        true => job.runtime.complain(&reason, status),
        false => job.runtime.abort(&reason, status),
    });
    if !matches!(told, Some(Ok(()))) {
        say::line(format_args!("*** FATAL ERROR: {reason}"));
    }
}

/// Runs the announcer.
fn announce_when_asked() {
    // Threads allocate from places of their own; this one gets its place now.
    drop(std::hint::black_box(vec![0u8; 1]));
    let stage = loop {
        match STAGE.load(Ordering::SeqCst) {
            NOTHING_ASKED => std::thread::park(),
            asked => break asked,
        }
    };
    match job::current() {
        _ if stage == ASKED_TO_ABORT => tell_reason(),
        Some(job) => tell(job),
        None => {}
    }
    STAGE.store(ANNOUNCED, Ordering::SeqCst);
    let _ = futex::wake(&STAGE, futex::Flags::PRIVATE, 1);
    std::thread::sleep(TIMEOUT);
    // SAFETY: ends the process.
    unsafe { libc::_exit(STATUS.load(Ordering::SeqCst)) }
}

/// Starts the announcer. Without it, the exiting thread makes the announcement itself.
fn start_announcer() {
    // SAFETY: the sets are plain numbers, filled before they are used; this thread's own mask is put back.
    unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) =
            (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&raw mut all);
        // The client's handlers run in its own threads.
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let builder = std::thread::Builder::new().name("vgas-exit".into()).stack_size(STACK_BYTES);
        if let Ok(handle) = builder.spawn(announce_when_asked) {
            let _ = ANNOUNCER.set(handle.thread().clone());
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
    }
}

/// Ends the job because of an error, which the launcher reports, or this process if there is none. A job that
/// is ending anyway is told nothing.
pub(crate) fn abort_job(reason: impl Display, status: u8, is_complaint: bool) -> ! {
    if LEAVING.compare_exchange(0, this_thread(), Ordering::SeqCst, Ordering::SeqCst).is_ok() {
        STATUS.store(status.into(), Ordering::SeqCst);
        IS_COMPLAINT.store(is_complaint, Ordering::SeqCst);
        // Never fails; what is too long is cut.
        let _ = write!(&REASON, "{reason}");
        if ask(ASKED_TO_ABORT) {
            // Meanwhile: processes that learn of it end this one.
            flush();
            wait_for_announcer();
        } else {
            tell_reason();
        }
    }
    flush();
    // SAFETY: ends the process, at once: this may be a handler, or a thread that holds locks. If a stream is
    // locked, the announcer does it.
    unsafe { libc::_exit(i32::from(status)) }
}

/// Called once the job is joined: from now on any way out is an exit of the job.
pub(crate) fn watch() {
    start_announcer();
    // SAFETY: the function lives as long as the process. Failure means no memory: then only `gasnet_exit` announces.
    unsafe { on_exit(at_exit, std::ptr::null_mut()) };
    catch(libc::SIGQUIT, on_quit);
    for signal in INTERRUPTIONS {
        catch(signal, on_interruption);
    }
}

/// Handles a signal, unless the client already does.
fn catch(signal: c_int, handler: extern "C" fn(c_int)) {
    if disposition(signal) == Some(libc::SIG_DFL) {
        // SAFETY: all fields of the structure are plain numbers; the handlers only end the process.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as libc::sighandler_t;
            libc::sigaction(signal, &raw const action, std::ptr::null_mut());
        }
    }
}

/// Returns this process's disposition of a signal. May be called in handlers.
pub(crate) fn disposition(signal: c_int) -> Option<libc::sighandler_t> {
    // SAFETY: all fields of the structure are plain numbers.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        (libc::sigaction(signal, std::ptr::null(), &raw mut now) == 0).then_some(now.sa_sigaction)
    }
}

/// Handles a request to end this process. A client that catches SIGQUIT, the one signal that the
/// specification leaves to it, decides how and with which status (2.1.5); without one, the process dies of
/// the signal.
extern "C" fn on_interruption(signal: c_int) {
    let is_left_to_client = disposition(libc::SIGQUIT).is_some_and(|now| {
        now != libc::SIG_DFL && now != libc::SIG_IGN && now != on_quit as *const () as libc::sighandler_t
    });
    // SAFETY: all of them may be called in handlers; the signal is blocked until this one returns, and comes then.
    unsafe {
        if is_left_to_client {
            libc::raise(libc::SIGQUIT);
        } else {
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
        }
    }
}

extern "C" fn at_exit(status: c_int, _: *mut c_void) {
    // A child that the client has forked is no rank; one that is leaving has announced it.
    if LEAVING.load(Ordering::SeqCst) == 0
        && job::current().is_some_and(|job| job.process == std::process::id())
    {
        announce(status);
    }
}

/// Others have ended the job, and the client has not asked to be told.
extern "C" fn on_quit(_: c_int) {
    let leaving = LEAVING.load(Ordering::SeqCst) != 0;
    // SAFETY: ends the process. Not async-signal-safe: should the signal have come in the middle of a write to a stream,
    // the worst is that this process waits to be killed, which it is half a second later (`vgas_job`); in all
    // other cases what was printed is kept.
    unsafe {
        libc::fflush(std::ptr::null_mut());
        libc::_exit(if leaving { STATUS.load(Ordering::SeqCst) } else { ENDED_BY_OTHERS })
    }
}
