//! Threads that serve the faults which a userfaultfd announces by messages.

use super::Trouble;
use super::signal;
use super::window::Window;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;

/// How many: a thread that waits for a device must not keep all others waiting.
const THREADS: usize = 4;

/// The threads. Dropped, they end.
pub(super) struct Server {
    stop: Arc<OwnedFd>,
    threads: Vec<JoinHandle<()>>,
}

impl Server {
    /// Starts the threads, if the segment's faults are announced to some.
    pub fn start(window: &Arc<Window>) -> Result<Option<Self>, Trouble> {
        if window.space().announcing().is_none() {
            return Ok(None);
        }
        let stop =
            Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(Trouble::System)?);
        let mut server = Self { stop, threads: Vec::new() };
        for _ in 0..THREADS {
            let (window, stop) = (window.clone(), server.stop.clone());
            // With all signals waiting, which it inherits: they are the program's.
            let thread = signal::undisturbed(|| {
                let builder = std::thread::Builder::new().name("vgas-faults".into());
                builder.spawn(move || serve(&window, &stop))
            });
            server.threads.push(thread.map_err(|error| Trouble::System(errno_of(&error)))?);
        }
        Ok(Some(server))
    }
}

fn errno_of(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::AGAIN)
}

impl Drop for Server {
    fn drop(&mut self) {
        // It never fills up: nobody else writes.
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn serve(window: &Window, stop: &OwnedFd) {
    let Some(userfaultfd) = window.space().announcing() else { return };
    loop {
        let mut both = [PollFd::new(userfaultfd, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
        // An interruption is looked at like an event.
        let _ = poll(&mut both, None);
        if !both[1].revents().is_empty() {
            return;
        }
        while let Some(access) = userfaultfd.next_access() {
            let Some(page) = window.page_at(access.address) else { continue };
            // For writing at once: a system call could not be served a second time.
            if let Err(trouble) = window.bring_in(page, window.is_own()) {
                signal::die(window, page, trouble);
            }
            window.count_fault();
            window.space().wake(page);
        }
    }
}
