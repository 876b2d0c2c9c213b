//! The signal handlers: finding the segment that a fault belongs to, and leaving everything else to others.

use super::range::{RANGES_MAX, Range};
use super::uffd::Announcing;
use super::window::Window;
use super::{Mechanism, Trouble};
use crate::page::PageInSegment;
use libc::{c_int, c_void, siginfo_t};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::cell::Cell;
use std::fmt::Write;
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use vgas_shm::cores;

/// Local segments that a process may have at a time. A rank needs one, and one for each that it reads of its node's other ranks.
pub const WINDOWS_MAX: usize = 32;

/// `si_code` of a fault on memory that is there but may not be accessed so (SIGSEGV).
const SEGV_ACCERR: c_int = 2;
/// `si_code` of a fault on memory that is not there (SIGBUS): what a userfaultfd makes of it.
const BUS_ADRERR: c_int = 2;

/// How long the end of a segment waits for handlers that are still serving it; they wait for a device at most.
const TIMEOUT: Duration = Duration::from_secs(10);

static WINDOWS: [AtomicPtr<Window>; WINDOWS_MAX] = [const { AtomicPtr::new(null_mut()) }; WINDOWS_MAX];
/// Handlers that may have taken an address out of [`WINDOWS`].
static RUNNING: AtomicU32 = AtomicU32::new(0);
/// Of each range of addresses that all processes share: base, stride, ranks, and the own rank; no ranks: there is none.
static STRAYS: [[AtomicUsize; 4]; RANGES_MAX] = [const { [const { AtomicUsize::new(0) }; 4] }; RANGES_MAX];
/// In a child of `fork`: the addresses and sizes of its parent's segments, which it may not use.
static SEALED: [[AtomicUsize; 2]; WINDOWS_MAX] = [const { [const { AtomicUsize::new(0) }; 2] }; WINDOWS_MAX];
static HANDLERS: [Handler; 2] = [Handler::new(libc::SIGSEGV), Handler::new(libc::SIGBUS)];
static CHANGING: Mutex<()> = Mutex::new(());

/// One signal of ours.
struct Handler {
    signal: c_int,
    /// What handled it before; set before ours is installed, which it then is for good.
    before: OnceLock<libc::sigaction>,
    /// The earlier handler wanted to be called once, and was.
    spent: AtomicBool,
}

impl Handler {
    const fn new(signal: c_int) -> Self {
        Self { signal, before: OnceLock::new(), spent: AtomicBool::new(false) }
    }

    fn install(&self) -> Result<(), Trouble> {
        if self.before.get().is_some() {
            return Ok(());
        }
        // SAFETY: rule 4: all zeros is a valid structure, and is filled by the call.
        let mut before: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
        // SAFETY: rule 4.
        checked(unsafe { libc::sigaction(self.signal, null(), &mut before) })?;
        self.before.get_or_init(|| before);
        let mut ours = before;
        ours.sa_sigaction = on_fault as extern "C" fn(c_int, *mut siginfo_t, *mut c_void) as usize;
        // On the alternate stack, because the fault may be an overflow of the normal one, which another handler reports.
        ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: rule 4. All other signals wait, so that no other handler finds this thread half-way through a fault.
        unsafe { libc::sigfillset(&mut ours.sa_mask) };
        // SAFETY: rule 4; the handler keeps rule 5.
        checked(unsafe { libc::sigaction(self.signal, &ours, null_mut()) })
    }
}

fn checked(result: c_int) -> Result<(), Trouble> {
    if result == 0 {
        return Ok(());
    }
    let error = rustix::io::Errno::from_io_error(&std::io::Error::last_os_error());
    Err(Trouble::System(error.unwrap_or(rustix::io::Errno::INVAL)))
}

/// Bytes of an alternate stack on which a handler may do more than the least: two times as many as the kernel, the dynamic
/// linker and a handler have been seen to take, of which the first two save a processor's registers.
const ROOMY_BYTES: usize = 32 << 10;

/// The calling thread's alternate stack, and whether it stands on it.
fn alternate_stack() -> Option<libc::stack_t> {
    // SAFETY: rule 4: all zeros is a valid structure, and is filled by the call.
    let mut stack: libc::stack_t = unsafe { MaybeUninit::zeroed().assume_init() };
    // SAFETY: rule 4: nothing is changed.
    (unsafe { libc::sigaltstack(null(), &mut stack) } == 0).then_some(stack)
}

/// Whether there is room for more than one page's work on the stack that this thread stands on.
pub(super) fn has_room() -> bool {
    let roomy = |stack: libc::stack_t| stack.ss_flags & libc::SS_ONSTACK == 0 || stack.ss_size >= ROOMY_BYTES;
    alternate_stack().is_some_and(roomy)
}

/// An alternate stack of a thread that had a small one, until the thread ends.
struct RoomyStack(*mut c_void);

impl Drop for RoomyStack {
    fn drop(&mut self) {
        if alternate_stack().is_some_and(|stack| stack.ss_sp == self.0) {
            let none = libc::stack_t { ss_sp: null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
            // SAFETY: rule 4; a thread that ends stands on its own stack.
            unsafe { libc::sigaltstack(&none, null_mut()) };
        }
        // SAFETY: rule 1: mapped for this thread, and not its alternate stack any more.
        let _ = unsafe { munmap(self.0, ROOMY_BYTES) };
    }
}

thread_local! {
    static ROOMY: Cell<Option<RoomyStack>> = const { Cell::new(None) };
}

/// Prepares the calling thread for loads and stores through pointers into segments: gives it a larger alternate signal stack, until
/// it ends, where it has a small one, as every thread of a Rust program has. Without it, its faults are served one page at a
/// time, also where they come in order. Whoever attaches is prepared.
pub fn prepare_thread() {
    let is_small = |stack: &libc::stack_t| {
        stack.ss_flags & (libc::SS_DISABLE | libc::SS_ONSTACK) == 0 && stack.ss_size < ROOMY_BYTES
    };
    if alternate_stack().filter(is_small).is_none() {
        return;
    }
    let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: rule 1: fresh addresses, chosen by the kernel, and given to nobody else. What lies below is not ours to guard.
    if let Ok(memory) = unsafe { mmap_anonymous(null_mut(), ROOMY_BYTES, access, flags) } {
        let stack = RoomyStack(memory);
        let larger = libc::stack_t { ss_sp: memory, ss_flags: 0, ss_size: ROOMY_BYTES };
        // SAFETY: rule 4; the memory stays as long as the thread. Where it fails, the old one is as it was.
        if unsafe { libc::sigaltstack(&larger, null_mut()) } == 0 {
            // A thread that is ending already keeps its memory until the process ends.
            let mut stack = Some(stack);
            let kept = ROOMY.try_with(|roomy| roomy.set(stack.take()));
            if kept.is_err() {
                std::mem::forget(stack);
            }
        }
    }
}

/// A segment that handlers know. Dropped, they do not know it any more, and none of them still uses it.
pub(super) struct Registered {
    window: Arc<Window>,
    index: usize,
}

/// Makes a segment known to the handlers, which are installed with the first one.
pub(super) fn register(window: &Arc<Window>, mechanism: Mechanism) -> Result<Registered, Trouble> {
    let _changing = CHANGING.lock().unwrap_or_else(PoisonError::into_inner);
    static CHILDREN: OnceLock<Result<(), Trouble>> = OnceLock::new();
    // SAFETY: rule 4; `in_child` does what a child may do.
    let children =
        CHILDREN.get_or_init(|| checked(unsafe { libc::pthread_atfork(None, None, Some(in_child)) }));
    (*children)?;
    let [segv, bus] = &HANDLERS;
    segv.install()?;
    if mechanism == Mechanism::Userfaultfd(Announcing::BySignal) {
        bus.install()?;
    }
    let free = WINDOWS.iter().position(|place| place.load(SeqCst).is_null());
    let index = free.ok_or(Trouble::TooManySegments)?;
    WINDOWS[index].store(Arc::as_ptr(window).cast_mut(), SeqCst);
    Ok(Registered { window: window.clone(), index })
}

/// From now on a fault in another rank's part of the range is told of. Returns where that is kept.
pub(super) fn watch_strays(range: Range, own: u32) -> Result<usize, Trouble> {
    let _changing = CHANGING.lock().unwrap_or_else(PoisonError::into_inner);
    HANDLERS[0].install()?;
    let is_free = |places: &[AtomicUsize; 4]| places[2].load(SeqCst) == 0;
    let index = STRAYS.iter().position(is_free).ok_or(Trouble::TooManyRanges)?;
    for (place, value) in STRAYS[index].iter().zip([range.base, range.stride, 0, own as usize]) {
        place.store(value, SeqCst);
    }
    // Last: without ranks there is no range.
    STRAYS[index][2].store(range.ranks as usize, SeqCst);
    Ok(index)
}

/// There is no such range any more.
pub(super) fn forget_strays(index: usize) {
    let _changing = CHANGING.lock().unwrap_or_else(PoisonError::into_inner);
    STRAYS[index][2].store(0, SeqCst);
}

impl Drop for Registered {
    fn drop(&mut self) {
        WINDOWS[self.index].store(null_mut(), SeqCst);
        let began = Instant::now();
        let mut naps = 0;
        while RUNNING.load(SeqCst) != 0 {
            if began.elapsed() > TIMEOUT {
                // Rule 5: rather never freed than too early.
                std::mem::forget(self.window.clone());
                return;
            }
            cores::nap(&mut naps);
        }
    }
}

/// After `fork`, in the child: it shares the frames and has no right to them.
extern "C" fn in_child() {
    for (place, sealed) in WINDOWS.iter().zip(&SEALED) {
        let window = place.swap(null_mut(), SeqCst);
        if !window.is_null() {
            // SAFETY: rule 5: only this thread exists, and what the parent had registered was alive when it forked.
            let space = unsafe { &*window }.space();
            space.seal();
            sealed[0].store(space.base(), SeqCst);
            sealed[1].store(space.bytes(), SeqCst);
        }
    }
    RUNNING.store(0, SeqCst);
}

/// Runs something with all signals of this thread waiting.
pub(super) fn undisturbed<T>(work: impl FnOnce() -> T) -> T {
    let mut all = MaybeUninit::<libc::sigset_t>::zeroed();
    let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: rule 4: sets are filled before they are read.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    let result = work();
    // SAFETY: as above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), null_mut()) };
    result
}

extern "C" fn on_fault(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: rule 5: this thread's own `errno`.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    RUNNING.fetch_add(1, SeqCst);
    // SAFETY: the kernel gives a handler valid structures.
    let served = unsafe { serve(signal, info, context) };
    RUNNING.fetch_sub(1, SeqCst);
    // SAFETY: as above.
    unsafe { *errno = before };
    if !served {
        // SAFETY: as above.
        unsafe { hand_on(signal, info, context) };
    }
}

/// Whether it was a fault on a segment, and has been served: then the access is to be made again.
///
/// # Safety
/// In a handler of this signal, with what the kernel has given it.
unsafe fn serve(signal: c_int, info: *mut siginfo_t, context: *mut c_void) -> bool {
    // SAFETY: as the caller promised; the address is there for these signals.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr().addr()) };
    let expected = if signal == libc::SIGBUS { BUS_ADRERR } else { SEGV_ACCERR };
    if code != expected {
        return false;
    }
    for place in &WINDOWS {
        let window = place.load(SeqCst);
        if window.is_null() {
            continue;
        }
        // SAFETY: rule 5: who registered it keeps it until no handler runs that may have found it.
        let window = unsafe { &*window };
        if let Some(page) = window.page_at(address) {
            // SAFETY: as the caller promised.
            return match window.serve(page, unsafe { is_store(context) }) {
                Ok(served) => served,
                Err(trouble) => die(window, page, trouble),
            };
        }
    }
    if !tell_sealed(address) {
        tell_stray(address);
    }
    false
}

/// An access of a child of `fork` to a segment of its parent: says so, and leaves the rest to the signal.
fn tell_sealed(address: usize) -> bool {
    let is_inside =
        |[base, bytes]: &[AtomicUsize; 2]| address.wrapping_sub(base.load(SeqCst)) < bytes.load(SeqCst);
    let is_sealed = SEALED.iter().any(is_inside);
    if is_sealed {
        let mut line = Line::default();
        // SAFETY: a number.
        let child = unsafe { libc::getpid() };
        let _ = writeln!(
            line,
            "vgas: process {child} touched a segment of the rank that forked it, and ends by SIGSEGV: only the rank may; start \
             workers with exec (Python: the start method \"spawn\")"
        );
        line.write();
    }
    is_sealed
}

/// An access to another rank's part of the addresses that all share: says so, and leaves the rest to the signal.
fn tell_stray(address: usize) {
    let found = STRAYS.iter().find_map(|places| {
        let [base, stride, ranks, own] = places.each_ref().map(|place| place.load(SeqCst));
        Some((Range { base, stride, ranks: ranks as u32 }.locate(address)?, own))
    });
    let Some(((rank, offset), own)) = found else { return };
    let mut line = Line::default();
    let _ = match rank as usize == own {
        true => writeln!(
            line,
            "vgas: rank {own}: {address:#x} is byte {offset} of its own segment, which ends before, or is not open"
        ),
        false => writeln!(
            line,
            "vgas: rank {own}: {address:#x} is byte {offset} of rank {rank}'s segment, whose memory is not here: put and get it, or have \
             that rank use it"
        ),
    };
    line.write();
}

/// Whether the access was a store, where the machine says so.
///
/// # Safety
/// The context of a handler.
#[cfg(target_arch = "x86_64")]
unsafe fn is_store(context: *mut c_void) -> Option<bool> {
    /// Bit of the page fault's error code.
    const STORE: i64 = 2;
    // SAFETY: as the caller promised.
    let registers = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    Some(registers[libc::REG_ERR as usize] & STORE != 0)
}

/// # Safety
/// None.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn is_store(_context: *mut c_void) -> Option<bool> {
    None
}

/// Leaves the signal to whatever handled it before.
///
/// # Safety
/// In a handler of this signal, with what the kernel has given it.
unsafe fn hand_on(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let handler = HANDLERS.iter().find(|handler| handler.signal == signal);
    // SAFETY: as the caller promised. What a process sent, and no access caused, has no positive code.
    let sent = unsafe { (*info).si_code } <= 0;
    let before = handler.and_then(|handler| {
        let before = handler.before.get()?;
        let once = before.sa_flags & libc::SA_RESETHAND != 0;
        (!(once && handler.spent.swap(true, SeqCst))).then_some(before)
    });
    match before {
        Some(before) if before.sa_sigaction == libc::SIG_IGN && sent => {}
        Some(before) if before.sa_sigaction != libc::SIG_DFL && before.sa_sigaction != libc::SIG_IGN => {
            // SAFETY: rule 4; as the caller promised.
            unsafe {
                wait_with(before, signal, context);
                if before.sa_flags & libc::SA_SIGINFO != 0 {
                    type Full = extern "C" fn(c_int, *mut siginfo_t, *mut c_void);
                    std::mem::transmute::<usize, Full>(before.sa_sigaction)(signal, info, context);
                } else {
                    std::mem::transmute::<usize, extern "C" fn(c_int)>(before.sa_sigaction)(signal);
                }
            }
        }
        // The same access, made again, then ends the program; a signal that was sent is sent again.
        _ => {
            restore_default(signal);
            if sent {
                // SAFETY: no memory is involved.
                unsafe { libc::raise(signal) };
            }
        }
    }
}

/// Lets those signals wait that would have waited had the earlier handler been called by the kernel.
///
/// # Safety
/// The context of a handler.
unsafe fn wait_with(before: &libc::sigaction, signal: c_int, context: *mut c_void) {
    let mut waiting = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: as the caller promised; rule 4.
    unsafe {
        libc::sigemptyset(waiting.as_mut_ptr());
        let interrupted = &raw const (*context.cast::<libc::ucontext_t>()).uc_sigmask;
        for one in 1..=libc::SIGRTMAX() {
            let own = one == signal && before.sa_flags & libc::SA_NODEFER == 0;
            if own || libc::sigismember(interrupted, one) == 1 || libc::sigismember(&before.sa_mask, one) == 1
            {
                libc::sigaddset(waiting.as_mut_ptr(), one);
            }
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, waiting.as_ptr(), null_mut());
    }
}

fn restore_default(signal: c_int) {
    // SAFETY: rule 4: all zeros is the default action with an empty mask.
    unsafe {
        let default: libc::sigaction = MaybeUninit::zeroed().assume_init();
        libc::sigaction(signal, &default, null_mut());
    }
}

/// Ends the process because a page cannot be had: one line, then SIGBUS.
pub(super) fn die(window: &Window, page: PageInSegment, trouble: Trouble) -> ! {
    let mut line = Line::default();
    let _ = writeln!(
        line,
        "vgas: page {page} of the tiered segment of {} was loaded or stored by pointer and cannot be had: {trouble}; \
         the process ends by SIGBUS",
        window.owner()
    );
    // SAFETY: rules 4 and 5.
    unsafe {
        line.write();
        restore_default(libc::SIGBUS);
        let mut bus = MaybeUninit::<libc::sigset_t>::zeroed();
        libc::sigemptyset(bus.as_mut_ptr());
        libc::sigaddset(bus.as_mut_ptr(), libc::SIGBUS);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, bus.as_ptr(), null_mut());
        libc::raise(libc::SIGBUS);
        libc::_exit(128 + libc::SIGBUS)
    }
}

/// A line of text on the stack; what does not fit is cut off.
struct Line {
    bytes: [u8; 256],
    used: usize,
}

impl Default for Line {
    fn default() -> Self {
        Self { bytes: [0; 256], used: 0 }
    }
}

impl Line {
    /// Writes it to standard error, in one piece.
    fn write(&self) {
        // SAFETY: rule 5: a system call that a handler may make, with bytes of this value.
        unsafe { libc::write(libc::STDERR_FILENO, self.bytes.as_ptr().cast(), self.used) };
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        // The last byte is kept for the end of the line.
        let room = self.bytes.len() - 1 - self.used;
        let fits = text.len().min(room);
        self.bytes[self.used..self.used + fits].copy_from_slice(&text.as_bytes()[..fits]);
        self.used += fits;
        if fits < text.len() {
            self.bytes[self.used] = b'\n';
            self.used = self.bytes.len();
            return Err(std::fmt::Error);
        }
        Ok(())
    }
}
