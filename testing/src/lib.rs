//! Processes that tests of several crates start, watch from outside, and kill. For tests only.
//!
//! A test marks what it starts with a variable in its environment, which children inherit: [`marked`] finds everything that
//! belongs to a job, however it came to be, and so also what a job leaves behind.
//!
//! [`replay`] runs what fuzz targets check.

pub mod pmi;
mod replay;

pub use replay::replay;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The variable that marks every process of one job.
const MARK: &str = "TEST_MARK_OF_JOB";

/// Marks a command, and so all processes that will come of it. The mark is unique on this machine while this process lives.
///
/// They answer interrupts as programs do, also when the tests were started by `nohup`, or by a shell that lets programs in the
/// background ignore some, which children inherit.
pub fn mark(command: &mut Command) -> String {
    // SAFETY: between fork and exec, only calls that are async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            let reset = |signal| libc::signal(signal, libc::SIG_DFL) != libc::SIG_ERR;
            let all = reset(libc::SIGINT) && reset(libc::SIGHUP) && reset(libc::SIGQUIT);
            if all { Ok(()) } else { Err(std::io::Error::last_os_error()) }
        });
    }
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let mark = format!("{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    command.env(MARK, &mark);
    mark
}

/// The processes that have a mark: pid and command line, its words separated by NUL. Zombies have none, and neither has a
/// process for a moment while it executes another program, also when [`Command::spawn`] has returned it already.
///
/// # Panics
/// Without /proc.
pub fn marked(mark: &str) -> BTreeMap<i32, String> {
    let wanted = format!("{MARK}={mark}");
    let processes = fs::read_dir("/proc").expect("/proc is there").flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(|pid| {
        let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
        let marked = environment.split(|&byte| byte == 0).any(|variable| variable == wanted.as_bytes());
        let command = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        marked.then(|| (pid, String::from_utf8_lossy(&command).into_owned()))
    })
    .collect()
}

/// The state of a process as `ps` shows it: `T` when it is stopped, `Z` when it has ended and was not waited for. None for
/// one that is gone.
pub fn state(pid: i32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Sends a signal to a process that may be gone.
///
/// # Panics
/// With a pid that none can have.
pub fn kill(pid: i32, signal: Signal) {
    let _ = kill_process(Pid::from_raw(pid).expect("a pid"), signal);
}

/// The exit status, or 128 + signal, as shells say it.
///
/// # Panics
/// With the status of a process that has not ended.
pub fn code_of(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().expect("it has ended"))
}

/// Scales a duration on an idle machine to the present load: by the number of runnable threads for each
/// processor, now or in the last minute on average. For tests of what must not wait for a timeout, which is
/// longer still.
pub fn at_most(alone: Duration) -> Duration {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let mut fields = load.split(' ');
    let average = fields.next().and_then(|field| field.parse().ok()).unwrap_or(0.0);
    let now = fields.nth(2).and_then(|field| field.split('/').next()?.parse().ok()).unwrap_or(0.0);
    let processors = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    alone.mul_f64(1.0 + 2.0 * f64::max(average, now) / processors)
}

/// Waits for a condition, so long at most; none if it did not come true.
pub fn until<T>(at_most: Duration, mut condition: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + at_most;
    loop {
        match condition() {
            Some(found) => return Some(found),
            None if Instant::now() >= deadline => return None,
            // Conditions of other processes cannot be waited for, only looked at again.
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}

/// The longest that a job may take: some fifty times what the slowest does, as a guest that is emulated may need.
const JOB_MAX: Duration = Duration::from_secs(600);

/// Runs a job that ends by itself or ends this program, which takes the job with it: a job that waits for ever is a failure of its
/// own, with a name and a seed, not one of whatever runs this program.
pub fn job_within_bound<T>(title: &str, seed: u64, job: impl FnOnce() -> T) -> T {
    std::thread::scope(|scope| {
        let (ended, watched) = mpsc::channel::<()>();
        scope.spawn(move || {
            if watched.recv_timeout(JOB_MAX) == Err(mpsc::RecvTimeoutError::Timeout) {
                println!(
                    "FAILED  {title}: has not ended after {JOB_MAX:?}; replay with VGAS_TEST_SEED={seed}"
                );
                std::process::exit(1);
            }
        });
        let result = job();
        drop(ended);
        result
    })
}

/// Output of a process, kept as it arrives.
#[derive(Debug)]
pub struct Capture {
    text: Arc<Mutex<String>>,
    reader: JoinHandle<()>,
}

impl Capture {
    /// Reads one end of a pipe in a thread of its own.
    pub fn new(mut from: impl Read + Send + 'static) -> Self {
        let text = Arc::new(Mutex::new(String::new()));
        let shared = text.clone();
        let reader = std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(count @ 1..) = from.read(&mut piece) {
                let mut text = shared.lock().unwrap_or_else(PoisonError::into_inner);
                text.push_str(&String::from_utf8_lossy(&piece[..count]));
            }
        });
        Self { text, reader }
    }

    /// Returns the output so far.
    pub fn text(&self) -> String {
        self.text.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Everything, when all writers have closed their ends.
    ///
    /// # Panics
    /// When the reader has panicked.
    pub fn finish(self) -> String {
        self.reader.join().expect("reading does not panic");
        self.text.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
