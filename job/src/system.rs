//! The few things of start-up that safe interfaces do not offer: the hook between fork and exec, and descriptors known by
//! number.
//!
//! # Rules
//!
//! 1. *Between fork and exec* only async-signal-safe calls are made: plain system calls on numbers that were computed
//!    before the fork. Nothing allocates, locks or panics.
//! 2. *A descriptor known by number* becomes an `OwnedFd` only if this process was told to own it (by its
//!    environment), at most once per process, and after a check that it is open and of the expected kind.
//! 3. *Pointers to the system* point to live local values for the time of the call.
//! 4. *A fork without exec* is made by a process that has one thread, as a helper has when it begins.
//! 5. *A function found by its name* is called with the type that the MPI standard gives it, in the ABI of
//!    the MPICH family (whose handles are numbers), after the library has identified itself as of that
//!    family.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use vgas_rma::error::{Result, RmaError};

/// The variable that names a rank's control socket. The only thing that the environment of a rank tells about its job.
pub(crate) const CONTROL_VARIABLE: &str = "VGAS_CONTROL_FD";

/// Starts the program of a rank, in a process group of its own, with its ends of the control socket and the lifeline, and of the line
/// of PMI-1 if it has one.
///
/// The *lifeline* is a socket that is never written to. The daemon holds the other end; when that closes
/// (however the daemon ends) the kernel sends SIGKILL to the whole group, including processes that the rank
/// started, and without a watching thread. The parent-death signal covers the moment before the lifeline is
/// armed.
///
/// Must be called by the daemon's main thread: the parent-death signal is tied to the thread that forks.
pub(crate) fn spawn_rank(
    command: &mut Command,
    control: BorrowedFd<'_>,
    lifeline: BorrowedFd<'_>,
    pmi: Option<BorrowedFd<'_>>,
) -> io::Result<Child> {
    let (control, lifeline) = (control.as_raw_fd(), lifeline.as_raw_fd());
    let pmi = pmi.map(|pmi| pmi.as_raw_fd());
    let daemon = rustix::process::getpid();
    command.env(CONTROL_VARIABLE, control.to_string()).process_group(0);
    let hook = move || {
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
        if rustix::process::getppid() != Some(daemon) {
            // An error has no receiver. SAFETY: async-signal-safe.
            unsafe { libc::_exit(1) };
        }
        let group = -rustix::process::getpid().as_raw_nonzero().get();
        control_file(lifeline, libc::F_SETOWN, group)?;
        control_file(lifeline, F_SETSIG, libc::SIGKILL)?;
        control_file(lifeline, libc::F_SETFL, libc::O_ASYNC | libc::O_NONBLOCK)?;
        control_file(lifeline, libc::F_SETFD, 0)?;
        control_file(control, libc::F_SETFD, 0)?;
        if let Some(pmi) = pmi {
            control_file(pmi, libc::F_SETFD, 0)?;
        }
        // The job asks a rank to end by it ([`super::Bootstrap::exit`]). A shell that starts jobs in the background lets them
        // ignore it, which is meant for the user's key.
        // SAFETY: async-signal-safe, and no handler of anybody is replaced: exec leaves none.
        match unsafe { libc::signal(libc::SIGQUIT, libc::SIG_DFL) } {
            libc::SIG_ERR => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    };
    // SAFETY: rule 1: the hook makes system calls only, on numbers it captured.
    unsafe { command.pre_exec(hook) };
    command.spawn()
}

/// Linux: the signal to send instead of SIGIO. The `libc` crate lacks it; it is in `<asm-generic/fcntl.h>`.
const F_SETSIG: libc::c_int = 10;

/// `fcntl` with a number. Async-signal-safe.
fn control_file(file: RawFd, operation: libc::c_int, value: libc::c_int) -> io::Result<()> {
    // SAFETY: these operations take a number and touch no memory (rule 3 has nothing to hold).
    match unsafe { libc::fcntl(file, operation, value) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// The control socket that this process was started with.
pub(crate) fn take_control_socket() -> Result<OwnedFd> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    let Some(number) = control_socket() else {
        let taken = std::env::var_os(CONTROL_VARIABLE).is_some() && TAKEN.load(Ordering::Relaxed);
        return Err(if taken { joined_before() } else { RmaError::NotInJob });
    };
    if TAKEN.swap(true, Ordering::Relaxed) {
        return Err(joined_before());
    }
    // SAFETY: rule 2: the environment names it, it is a socket, and `TAKEN` lets no other caller take it.
    let socket = unsafe { OwnedFd::from_raw_fd(number) };
    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)
        .map_err(|e| RmaError::system("use the control socket", e))?;
    Ok(socket)
}

/// Returns the number of the control socket that this process was started with, while it has it. A process
/// that inherited the variable but not the socket (its parent has joined) is no rank.
pub(crate) fn control_socket() -> Option<RawFd> {
    let number = std::env::var(CONTROL_VARIABLE).ok()?.parse().ok()?;
    (socket_option(number, libc::SO_DOMAIN) == Some(libc::AF_UNIX)).then_some(number)
}

fn joined_before() -> RmaError {
    RmaError::Usage("this process has already joined its job".into())
}

fn socket_option(socket: RawFd, option: libc::c_int) -> Option<libc::c_int> {
    let mut value: libc::c_int = 0;
    let mut bytes = size_of_val(&value) as libc::socklen_t;
    // SAFETY: rule 3: both pointers are to locals of the announced size. A number that is no socket is an error.
    let result = unsafe {
        libc::getsockopt(socket, libc::SOL_SOCKET, option, (&raw mut value).cast(), &raw mut bytes)
    };
    (result == 0).then_some(value)
}

/// Takes a standard stream of this process away and leaves `replacement` in its place, so that nothing that reads or
/// prints disturbs what it is now used for. For the daemon, before it has other threads.
pub(crate) fn take_standard_stream(
    stream: BorrowedFd<'_>,
    replacement: BorrowedFd<'_>,
) -> io::Result<OwnedFd> {
    let taken = rustix::io::fcntl_dupfd_cloexec(stream, 3)?;
    // SAFETY: both numbers are open descriptors (they are borrowed); no memory is touched. That the number of a
    // standard stream now means another file is the purpose.
    if unsafe { libc::dup2(replacement.as_raw_fd(), stream.as_raw_fd()) } == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(taken)
}

/// Returns true if this process may read its terminal, which only the foreground job may.
pub(crate) fn in_foreground(terminal: BorrowedFd<'_>) -> bool {
    // SAFETY: no memory is touched.
    unsafe { libc::tcgetpgrp(terminal.as_raw_fd()) == libc::getpgrp() }
}

/// A duplicate of a socket that this process has inherited by number, as its environment says. Other users of
/// the number keep it.
pub(crate) fn inherited_socket(number: u32) -> Option<OwnedFd> {
    let number = RawFd::try_from(number).ok()?;
    socket_option(number, libc::SO_TYPE).filter(|&kind| kind == libc::SOCK_STREAM)?;
    // SAFETY: a number (rule 3 has nothing to hold); that it is open was seen, and when it is not any more, this fails.
    let copy = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) };
    // SAFETY: rule 2: made by the line above, for this owner.
    (copy >= 0).then(|| unsafe { OwnedFd::from_raw_fd(copy) })
}

/// Puts another socket in the place of one that this process has inherited by number: the program's
/// libraries, and programs that it runs, find it under the number from now on.
pub(crate) fn replace_inherited(number: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
    let number = RawFd::try_from(number).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: rule 2: the environment gives this number to the user of the process manager, and
    // [`inherited_socket`] has seen that it is open; no memory is touched.
    match unsafe { libc::dup2(socket.as_raw_fd(), number) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Returns the process at the other end of a local socket (0 if it is out of sight) and its user.
pub(crate) fn peer_of(socket: BorrowedFd<'_>) -> io::Result<(i32, u32)> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut bytes = size_of_val(&peer) as libc::socklen_t;
    // SAFETY: rule 3: both pointers are to locals of the announced size.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut bytes,
        )
    };
    match result {
        0 => Ok((peer.pid, peer.uid)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns true if the program, or a library that it was started with, has a symbol of this name.
pub(crate) fn has_symbol(name: &std::ffi::CStr) -> bool {
    // SAFETY: rule 3: a string that lives as long as the call; what is found is not used.
    unsafe { !libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()).is_null() }
}

/// An MPI of the MPICH family in this process (MPICH, Intel MPI, MVAPICH, Cray MPICH), which speaks PMI on `PMI_FD`.
pub(crate) struct Mpich {
    /// `MPI_Init` has returned.
    pub(crate) has_begun: bool,
    /// Ranks of `MPI_COMM_WORLD`, while the MPI is initialised.
    pub(crate) ranks: Option<u32>,
}

/// Looks for an MPI of the MPICH family, also one that was loaded for a plug-in alone. May be called at any time.
pub(crate) fn mpich() -> Option<Mpich> {
    type Flag = unsafe extern "C" fn(*mut libc::c_int) -> libc::c_int;
    type Version = unsafe extern "C" fn(*mut libc::c_char, *mut libc::c_int) -> libc::c_int;
    type Size = unsafe extern "C" fn(libc::c_int, *mut libc::c_int) -> libc::c_int;
    /// `MPI_COMM_WORLD` in the common ABI of this family.
    const WORLD: libc::c_int = 0x4400_0000;
    /// `MPI_MAX_LIBRARY_VERSION_STRING` is 8192 in that ABI.
    const VERSION_BYTES: usize = 8192;
    // SAFETY: rules 3 and 5; a library that is loaded already, which is not unloaded by asking for it.
    unsafe {
        let mut libraries = vec![libc::RTLD_DEFAULT];
        for name in [c"libmpich.so.12", c"libmpi.so.12", c"libmpi_intel.so.12", c"libmpi_cray.so.12"] {
            libraries.push(libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD));
        }
        let library = libraries.into_iter().enumerate().find(|&(index, library)| {
            (index == 0 || !library.is_null()) && !libc::dlsym(library, c"MPI_Initialized".as_ptr()).is_null()
        });
        let (_, library) = library?;
        let find = |name: &std::ffi::CStr| {
            let found = libc::dlsym(library, name.as_ptr());
            (!found.is_null()).then_some(found)
        };
        let initialized = std::mem::transmute::<*mut libc::c_void, Flag>(find(c"MPI_Initialized")?);
        let finalized = std::mem::transmute::<*mut libc::c_void, Flag>(find(c"MPI_Finalized")?);
        let version = std::mem::transmute::<*mut libc::c_void, Version>(find(c"MPI_Get_library_version")?);
        let size = std::mem::transmute::<*mut libc::c_void, Size>(find(c"MPI_Comm_size")?);
        let (mut text, mut length) = (vec![0u8; VERSION_BYTES + 1], 0);
        version(text.as_mut_ptr().cast(), &raw mut length);
        let text = String::from_utf8_lossy(&text);
        if !["MPICH", "MVAPICH", "Intel(R) MPI"].iter().any(|name| text.contains(name)) {
            return None;
        }
        let (mut has_begun, mut has_ended, mut ranks) = (0, 0, 0);
        initialized(&raw mut has_begun);
        finalized(&raw mut has_ended);
        let ranks = (has_begun != 0 && has_ended == 0 && size(WORLD, &raw mut ranks) == 0).then_some(ranks);
        Some(Mpich { has_begun: has_begun != 0, ranks: ranks.and_then(|ranks| u32::try_from(ranks).ok()) })
    }
}

/// Has this called when the process exits by itself.
pub(crate) fn at_exit(function: extern "C" fn()) {
    // SAFETY: a function of this program, which is not unloaded before its end. Without room for it, it is not called.
    let _ = unsafe { libc::atexit(function) };
}

/// Ends this process now, whatever its other threads do: nothing of them is waited for.
pub(crate) fn exit_now(code: u8) -> ! {
    // SAFETY: does not return.
    unsafe { libc::_exit(code.into()) }
}

/// Starts a process that is to live beside this one: in a session of its own, with nothing open but its standard streams.
pub(crate) fn spawn_apart(command: &mut Command) -> io::Result<Child> {
    let hook = || {
        // SAFETY: async-signal-safe, and a number.
        unsafe {
            libc::setsid();
            // The program's open files (an MPI's sockets, the starter's pipes) must not stay open. Before
            // Linux 5.11: some stays.
            libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, CLOSE_RANGE_CLOEXEC);
        }
        Ok(())
    };
    // SAFETY: rule 1: the hook makes system calls only.
    unsafe { command.pre_exec(hook) };
    command.spawn()
}

/// Starts a process in a network namespace, and as a member of the control group whose file of members is given.
pub(crate) fn spawn_within(
    command: &mut Command,
    namespace: Option<BorrowedFd<'_>>,
    members: Option<BorrowedFd<'_>>,
) -> io::Result<Child> {
    let (namespace, members) = (namespace.map(|file| file.as_raw_fd()), members.map(|file| file.as_raw_fd()));
    if namespace.is_none() && members.is_none() {
        return command.spawn();
    }
    let hook = move || {
        let failed =
            |result: libc::ssize_t| if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) };
        if let Some(namespace) = namespace {
            // SAFETY: async-signal-safe, and numbers.
            failed(unsafe { libc::setns(namespace, libc::CLONE_NEWNET) } as libc::ssize_t)?;
        }
        if let Some(members) = members {
            let oneself = b"0";
            // SAFETY: async-signal-safe; rule 3: bytes of the program.
            failed(unsafe { libc::write(members, oneself.as_ptr().cast(), oneself.len()) })?;
        }
        Ok(())
    };
    // SAFETY: rule 1: the hook makes system calls only, on numbers it captured; their lender keeps them open.
    unsafe { command.pre_exec(hook) };
    command.spawn()
}

/// Makes a network namespace, which exists while it is open or a process is in it.
pub(crate) fn new_network() -> io::Result<OwnedFd> {
    let made = std::thread::spawn(|| {
        // SAFETY: a number. It concerns this thread alone, which ends.
        match unsafe { libc::unshare(libc::CLONE_NEWNET) } {
            -1 => Err(io::Error::last_os_error()),
            _ => File::open("/proc/thread-self/ns/net").map(OwnedFd::from),
        }
    });
    made.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
}

/// `<linux/close_range.h>`: at exec.
const CLOSE_RANGE_CLOEXEC: libc::c_uint = 1 << 2;

/// Continues in a child and ends this process, so that its parent has no child left to wait for. For a
/// process with one thread.
pub(crate) fn go_apart() -> io::Result<()> {
    // SAFETY: rule 4: this process has one thread (its caller's duty), so that no lock is held in the child.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(()),
        _ => exit_now(0),
    }
}
