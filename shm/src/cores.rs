//! Spin or sleep? Estimates if a core is free for the thread that is waited for.
//!
//! Spinning saves the cost of a wake-up, but only while no other thread needs the core: otherwise the other
//! side, or a program that computes, waits for it in turn. The number of ranks does not tell, because what
//! else runs on the machine counts as much. So a waiter asks the kernel how many threads want to run at this
//! moment, and spins only if each of them, the caller included, has a core ([`spare`]).
//!
//! A waiter never yields its core: the scheduler takes that for a request to be left alone for a whole time
//! slice, which beside a program that computes is milliseconds. A thread that has to wait for something
//! without a wake-up takes a [`nap`].
//!
//! After [`prepare`] everything here is a few system calls and words of this process, takes no lock and allocates nothing:
//! it may be called in signal handlers.
//!
//! Unsafe code: one system call that fills a structure of the caller's own.

use rustix::time::{ClockId, Timespec, clock_gettime};
use std::cell::Cell;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::time::Duration;

/// Time that an answer is valid while there are enough cores: long against the 1 to 3 µs of a query, short
/// against a time slice.
const SPARE_FOR: u64 = 100_000;

/// The same in nanoseconds, too, while there are not: computing threads do so for longer, and a query in vain
/// makes the caller late.
const CROWDED_FOR: u64 = 1_000_000;

/// Times of being one too many in a row before it is believed: a thread of the kernel that does a few microseconds' work (for
/// the device that is waited for, say) is no neighbour. More are believed at once.
const TIMES: u32 = 2;

/// Answers between two looks at the number of processors.
const ANSWERS_PER_COUNT: u32 = 1024;

/// `/proc/loadavg`; none if it cannot be opened.
static LOAD: OnceLock<Option<File>> = OnceLock::new();
static ANSWERED_NS: AtomicU64 = AtomicU64::new(0);
static IS_CROWDED: AtomicBool = AtomicBool::new(false);
static ANSWERS: AtomicU32 = AtomicU32::new(0);
static PROCESSORS: AtomicU32 = AtomicU32::new(0);
/// True if this process may use fewer processors than there are: then the kernel's number says too little.
static IS_CONFINED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Number of times that this thread had to leave its core to others.
    static SWITCHES: Cell<u64> = const { Cell::new(0) };
}

/// Opens what [`spare`] reads. Call it at the start of a job; before it, the kernel's number is unknown.
pub fn prepare() {
    LOAD.get_or_init(|| File::open("/proc/loadavg").ok());
}

/// Returns true if every thread of this machine that wants to run now has a core, the caller included: then
/// spinning costs no other thread anything. A system call at most every 0.1 ms of all threads of the process,
/// otherwise a look at the clock.
///
/// False if the kernel does not tell (without `/proc`) and this thread has lately been made to wait for its
/// core.
pub fn spare() -> bool {
    let now_ns = now_ns();
    let is_crowded = IS_CROWDED.load(Relaxed);
    let fresh = if is_crowded { CROWDED_FOR } else { SPARE_FOR };
    if now_ns.wrapping_sub(ANSWERED_NS.load(Relaxed)) < fresh {
        return !is_crowded;
    }
    // Whoever comes meanwhile takes the old answer.
    ANSWERED_NS.store(now_ns, Relaxed);
    let is_crowded = look();
    IS_CROWDED.store(is_crowded, Relaxed);
    !is_crowded
}

#[cold]
fn look() -> bool {
    if ANSWERS.fetch_add(1, Relaxed).is_multiple_of(ANSWERS_PER_COUNT) {
        count_processors();
    }
    let processors = PROCESSORS.load(Relaxed);
    for _ in 0..TIMES {
        match runnable() {
            Some(runnable) if runnable > processors + 1 => return true,
            Some(runnable) if runnable > processors => {}
            Some(_) if IS_CONFINED.load(Relaxed) => return was_displaced(),
            Some(_) => return false,
            None => return was_displaced(),
        }
    }
    true
}

/// Returns true if this thread has had to leave its core since the last call.
fn was_displaced() -> bool {
    let now = switches();
    SWITCHES.replace(now) != now
}

/// Involuntary context switches of this thread.
fn switches() -> u64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the structure is the caller's own, of the size that the call fills; all zeros are a value of it.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init()
    };
    usage.ru_nivcsw as u64
}

fn count_processors() {
    // SAFETY: a plain question, without memory.
    let all = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }.max(1) as u32;
    // More processors than the set has room for: not confined, as far as can be told.
    let own = rustix::thread::sched_getaffinity(None).map_or(all, |set| set.count());
    PROCESSORS.store(all, Relaxed);
    IS_CONFINED.store(own < all, Relaxed);
}

/// Returns the number of threads of the machine that run or want to, this one included; none if the kernel
/// does not say.
fn runnable() -> Option<u32> {
    let mut text = [0; 64];
    let load = LOAD.get()?.as_ref()?;
    // A program that closes descriptors which are not its own has something else read here, or nothing.
    let bytes = load.read_at(&mut text, 0).ok()?;
    parse(&text[..bytes])
}

/// The number before the slash in `0.20 0.18 0.12 1/80 11206`.
fn parse(text: &[u8]) -> Option<u32> {
    let field = text.split(|&byte| byte == b' ').nth(3)?;
    let digits = field.split(|&byte| byte == b'/').next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn now_ns() -> u64 {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::Monotonic);
    (tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(tv_nsec as u64)
}

/// Shortest [`nap`]; the kernel adds the thread's timer slack, 50 µs as a rule.
const NAP_MIN: Duration = Duration::from_micros(20);

/// Longest [`nap`].
const NAP_MAX: Duration = Duration::from_millis(1);

/// Sleeps for a short time that grows with `naps`, which it counts: between looks at something that another thread changes
/// without telling anybody, because telling would cost it more than the wait. Such waits are rare: that thread was
/// interrupted in the middle of a few instructions. A signal ends it early.
pub fn nap(naps: &mut u32) {
    let time = NAP_MAX.min(NAP_MIN * (1 << (*naps).min(10)));
    *naps = naps.saturating_add(1);
    let time = Timespec { tv_sec: 0, tv_nsec: time.subsec_nanos().into() };
    let _ = rustix::thread::nanosleep(&time);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_threads_that_want_to_run_is_read() {
        assert_eq!(parse(b"0.20 0.18 0.12 3/80 11206\n"), Some(3));
        assert_eq!(parse(b"12.00 1.18 0.12 4294967295/80 1\n"), Some(u32::MAX));
        for nonsense in [
            &b""[..],
            b"0.1 0.2",
            b"0.1 0.2 0.3 ",
            b"0.1 0.2 0.3 x/1 1",
            b"a b c -1/2 3",
            b"\xff \xff \xff \xff",
        ] {
            assert_eq!(parse(nonsense), None, "{nonsense:?}");
        }
    }

    /// More threads that compute than there are processors leave no core, which is noticed while they run. (That cores are
    /// free again afterwards depends on what else this machine does.)
    #[test]
    fn threads_that_compute_leave_no_core() {
        use std::sync::Arc;
        prepare();
        if runnable().is_none() {
            println!("skipped: the kernel does not say how many threads want to run");
            return;
        }
        let stop = Arc::new(AtomicBool::new(false));
        let threads = 1 + std::thread::available_parallelism().map_or(1, usize::from);
        let computing: Vec<_> = (0..threads)
            .map(|_| {
                let stop = stop.clone();
                std::thread::spawn(move || while !stop.load(Relaxed) {})
            })
            .collect();
        let began = std::time::Instant::now();
        while spare() && began.elapsed() < Duration::from_secs(20) {}
        let crowded = !spare();
        stop.store(true, Relaxed);
        for thread in computing {
            thread.join().unwrap();
        }
        assert!(crowded, "{threads} threads compute, and there seems to be a core for everybody");
    }

    #[test]
    fn naps_grow_up_to_a_millisecond_and_end() {
        let mut naps = 0;
        for _ in 0..12 {
            nap(&mut naps);
        }
        assert_eq!(naps, 12);
        naps = u32::MAX;
        nap(&mut naps);
        assert_eq!(naps, u32::MAX);
    }
}
