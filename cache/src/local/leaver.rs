//! The thread that gives pages back when their memory is wanted for pages of another size.
//!
//! What a rank has mapped stays where it is until the rank itself gives it back, and a rank that computes may touch nothing else
//! for hours. When the agent empties a block of the pool ([`crate::pool::Leaving`]), this thread hides what its segment shows of
//! it; the next access to such a page is a fault like any other. It sleeps as long as no block is being emptied.

use super::signal;
use super::window::Window;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::thread::JoinHandle;
use vgas_shm::cores;

/// The thread. Dropped, it ends.
pub(super) struct Leaver {
    window: Arc<Window>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Leaver {
    /// Starts it; none where the system has no thread for it, which is said: then pages of other sizes may find no room here.
    pub fn start(window: &Arc<Window>) -> Option<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (own, stopped) = (window.clone(), stop.clone());
        // With all signals waiting, which it inherits: they are the program's.
        let thread = signal::undisturbed(|| {
            let builder = std::thread::Builder::new().name("vgas-leaver".into());
            builder.spawn(move || leave(&own, &stopped))
        });
        let thread = thread.inspect_err(|error| {
            tracing::warn!(%error, "no thread gives mapped pages back to pages of other sizes");
        });
        Some(Self { window: window.clone(), stop, thread: Some(thread.ok()?) })
    }
}

impl Drop for Leaver {
    fn drop(&mut self) {
        self.stop.store(true, SeqCst);
        let Some(thread) = self.thread.take() else { return };
        let mut naps = 0;
        while !thread.is_finished() {
            // Again, because it may just have been about to sleep.
            self.window.pool().wake_leaving();
            cores::nap(&mut naps);
        }
        let _ = thread.join();
    }
}

fn leave(window: &Window, stop: &AtomicBool) {
    while !stop.load(SeqCst) {
        let leaving = window.pool().leaving();
        if let Some(block) = leaving.block() {
            window.leave_block(block);
        }
        if !stop.load(SeqCst) {
            window.pool().sleep_while_leaving(leaving);
        }
    }
}
