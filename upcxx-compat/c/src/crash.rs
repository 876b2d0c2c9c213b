//! Output of a crashing rank: one line about a panic of this library, which in a client mostly means that the
//! client has overwritten its memory; and backtraces on request: of crashes and of errors that end the job
//! (`GASNET_BACKTRACE=1`), and of a rank at work (`GASNET_BACKTRACE_SIGNAL=USR1`).
//!
//! The handler of crashes is installed when the job is joined, so before the local view of a tiered segment
//! takes over the signals of faults: that one serves its faults first, and hands on all others
//! (`vgas_cache::local`). A client that handles a signal itself keeps it.

use crate::environment::{is_on, variable};
use crate::exit::{disposition, this_thread};
use libc::{c_int, c_void, siginfo_t};
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

/// The signals of crashes.
const CRASHES: [c_int; 5] = [libc::SIGABRT, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGSEGV];

/// Signals by name: for requests and for output.
const NAMES: [(&str, c_int); 20] = [
    ("ABRT", libc::SIGABRT),
    ("ALRM", libc::SIGALRM),
    ("BUS", libc::SIGBUS),
    ("CONT", libc::SIGCONT),
    ("FPE", libc::SIGFPE),
    ("HUP", libc::SIGHUP),
    ("ILL", libc::SIGILL),
    ("INT", libc::SIGINT),
    ("IO", libc::SIGIO),
    ("PROF", libc::SIGPROF),
    ("QUIT", libc::SIGQUIT),
    ("SEGV", libc::SIGSEGV),
    ("TERM", libc::SIGTERM),
    ("TRAP", libc::SIGTRAP),
    ("TSTP", libc::SIGTSTP),
    ("URG", libc::SIGURG),
    ("USR1", libc::SIGUSR1),
    ("USR2", libc::SIGUSR2),
    ("VTALRM", libc::SIGVTALRM),
    ("WINCH", libc::SIGWINCH),
];

/// Bytes of the stack on which a crash is told, which may be an overflow of the other one.
const STACK_BYTES: usize = 64 << 10;

/// The first thread that crashed.
static CRASHED: AtomicI32 = AtomicI32::new(0);

/// The signal that GASNET_BACKTRACE_SIGNAL names, `USR1` or `SIGUSR1`; none when it is not set.
///
/// # Errors
/// If it names none, or one of a crash.
pub(crate) fn asked_for() -> Result<Option<c_int>, String> {
    let Some(text) = variable("GASNET_BACKTRACE_SIGNAL") else { return Ok(None) };
    let upper = text.trim().to_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let signal = NAMES.iter().find(|(known, _)| *known == name).map(|(_, signal)| *signal);
    match signal.filter(|signal| !CRASHES.contains(signal)) {
        Some(signal) => Ok(Some(signal)),
        None => Err(format!("GASNET_BACKTRACE_SIGNAL is {text:?}; name a signal such as USR1")),
    }
}

/// True if backtraces are wanted, once this rank has joined. Looked up before there is a handler that may
/// not.
static WANTED: AtomicBool = AtomicBool::new(false);

/// Writes this thread's backtrace, if users want it. May be called in handlers.
pub(crate) fn trace() {
    if WANTED.load(Ordering::Relaxed) {
        say(format_args!("backtrace"));
        write_frames(Some(libc::STDERR_FILENO));
    }
}

/// Installs what the environment asks for, in a rank that has joined.
pub(crate) fn watch() {
    let on_demand = asked_for().ok().flatten();
    let crashes = is_on("GASNET_BACKTRACE");
    if on_demand.is_none() && !crashes {
        return;
    }
    // The first call loads a library, which a handler must not do.
    write_frames(None);
    WANTED.store(crashes, Ordering::Relaxed);
    if let Some(signal) = on_demand {
        install(signal, on_request, libc::SA_RESTART);
    }
    if crashes {
        make_stack();
        for signal in CRASHES {
            if disposition(signal) == Some(libc::SIG_DFL) {
                install(signal, on_crash, libc::SA_ONSTACK);
            }
        }
    }
}

type Handler = extern "C" fn(c_int, *mut siginfo_t, *mut c_void);

fn install(signal: c_int, handler: Handler, flags: c_int) {
    // SAFETY: all fields of the structure are plain numbers; the handlers keep to what handlers may do.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as libc::sighandler_t;
        action.sa_flags = libc::SA_SIGINFO | flags;
        libc::sigaction(signal, &raw const action, std::ptr::null_mut());
    }
}

/// Gives this thread a stack for signals, unless the client has.
fn make_stack() {
    // SAFETY: all fields of the structure are plain numbers or addresses; the new stack lives as long as the process.
    unsafe {
        let mut now: libc::stack_t = std::mem::zeroed();
        if libc::sigaltstack(std::ptr::null(), &raw mut now) == 0 && now.ss_flags & libc::SS_DISABLE != 0 {
            let stack: &'static mut [u8] = Box::leak(vec![0; STACK_BYTES].into_boxed_slice());
            now = libc::stack_t { ss_sp: stack.as_mut_ptr().cast(), ss_flags: 0, ss_size: STACK_BYTES };
            libc::sigaltstack(&raw const now, std::ptr::null_mut());
        }
    }
}

/// Writes the frames of this thread to standard error, or nowhere.
#[cfg(target_env = "gnu")]
fn write_frames(to: Option<c_int>) {
    const FRAMES_MAX: usize = 128;
    let mut frames = [std::ptr::null_mut::<c_void>(); FRAMES_MAX];
    // SAFETY: so many places; the second function allocates nothing.
    unsafe {
        let count = libc::backtrace(frames.as_mut_ptr(), FRAMES_MAX as c_int);
        if let Some(to) = to {
            libc::backtrace_symbols_fd(frames.as_ptr(), count, to);
        }
    }
}

#[cfg(not(target_env = "gnu"))]
fn write_frames(to: Option<c_int>) {
    if let Some(to) = to {
        say(format_args!("no backtrace: this C library offers none"));
        let _ = to;
    }
}

/// Makes a panic end this process at once, after one line: it could not leave the function that C has called
/// anyway, and its usual report takes several lines. Nothing is allocated here; if memory is in no state to
/// format the reason, the C library ends the process instead, with a reason.
pub(crate) fn tell_panics() {
    std::panic::set_hook(Box::new(|info| {
        let reason = info.payload();
        let reason =
            reason.downcast_ref::<&str>().copied().or(reason.downcast_ref::<String>().map(String::as_str));
        let reason = reason.unwrap_or("no reason").lines().next().unwrap_or_default();
        match info.location() {
            Some(place) => say(format_args!(
                "{}:{} of vgas failed ({reason}): a bug of vgas, or this program has overwritten memory that is not its own",
                place.file(),
                place.line()
            )),
            None => say(format_args!("vgas failed: {reason}")),
        }
        // SAFETY: ends the process.
        unsafe { libc::abort() }
    }));
}

/// Writes a line to standard error, without memory other than the stack's.
fn say(text: std::fmt::Arguments<'_>) {
    /// Room for a path and a reason; the end of the line is kept free.
    const LINE_BYTES: usize = 400;
    struct Line {
        bytes: [u8; LINE_BYTES],
        used: usize,
    }
    impl Write for Line {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            let fits = text.len().min(LINE_BYTES - 1 - self.used);
            self.bytes[self.used..self.used + fits].copy_from_slice(&text.as_bytes()[..fits]);
            self.used += fits;
            Ok(())
        }
    }
    let mut line = Line { bytes: [0; LINE_BYTES], used: 0 };
    // Never fails; what is too long is cut.
    let _ = write!(line, "*** {}: {text}", CurrentRank);
    line.bytes[line.used] = b'\n';
    line.used += 1;
    // SAFETY: so many bytes of the line.
    unsafe { libc::write(libc::STDERR_FILENO, line.bytes.as_ptr().cast(), line.used) };
}

/// This rank, as far as handlers may look at it.
struct CurrentRank;

impl std::fmt::Display for CurrentRank {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (rank, ranks) = (&crate::job::vgasi_mynode, &crate::job::vgasi_nodes);
        write!(f, "node {}/{}", rank.load(Ordering::Relaxed), ranks.load(Ordering::Relaxed))
    }
}

fn name_of(signal: c_int) -> &'static str {
    NAMES.iter().find(|(_, known)| *known == signal).map_or("?", |(name, _)| name)
}

extern "C" fn on_request(signal: c_int, _: *mut siginfo_t, _: *mut c_void) {
    // SAFETY: this thread's own `errno`.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    say(format_args!("backtrace on SIG{}", name_of(signal)));
    write_frames(Some(libc::STDERR_FILENO));
    // SAFETY: as above.
    unsafe { *errno = before };
}

extern "C" fn on_crash(signal: c_int, info: *mut siginfo_t, _: *mut c_void) {
    match CRASHED.compare_exchange(0, this_thread(), Ordering::SeqCst, Ordering::SeqCst) {
        Ok(_) => {
            // SAFETY: the kernel gives a handler a valid structure; a signal that a process sent has no positive code, and
            // no address then.
            let address = unsafe { ((*info).si_code > 0).then(|| (*info).si_addr()) };
            match address {
                Some(address) => say(format_args!("died of SIG{} at {address:p}", name_of(signal))),
                None => say(format_args!("died of SIG{}", name_of(signal))),
            }
            write_frames(Some(libc::STDERR_FILENO));
        }
        // While telling of the first one.
        Err(crashed) if crashed == this_thread() => {}
        Err(_) => loop {
            // The other thread ends the process.
            // SAFETY: waits for a signal.
            unsafe { libc::pause() };
        },
    }
    // SAFETY: all of them may be called in handlers; the signal is let through, and ends the process as it would have.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        let mut one: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut one);
        libc::sigaddset(&raw mut one, signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const one, std::ptr::null_mut());
        libc::raise(signal);
        libc::_exit(128 + signal)
    }
}
