//! A line for users that wait.

#![forbid(unsafe_code)]

use crate::lock::lock;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;
use vgas_rma::say;

/// Tells what this process waits for, once, unless it is dropped before. Standard error may be a pipe without
/// a reader: so a thread of its own writes it.
pub(crate) struct Reminder(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    is_running: bool,
    is_stopped: bool,
}

impl Reminder {
    /// Begins to wait. None if there is no thread for it: then nothing is told.
    ///
    /// The thread runs when this returns, and needs nothing of the dynamic linker any more: that may be busy
    /// with the awaited work.
    pub(crate) fn start(after: Duration, line: String) -> Option<Self> {
        let shared = Arc::<Shared>::default();
        let its = shared.clone();
        let wait = move || {
            let mut state = lock(&its.state);
            state.is_running = true;
            its.changed.notify_all();
            let waited = its.changed.wait_timeout_while(state, after, |state| !state.is_stopped);
            let is_late = waited.unwrap_or_else(PoisonError::into_inner).1.timed_out();
            if is_late {
                say::line(format_args!("vgas: {line}"));
            }
        };
        std::thread::Builder::new().name("vgas-start".into()).spawn(wait).ok()?;
        let state = shared.changed.wait_while(lock(&shared.state), |state| !state.is_running);
        drop(state.unwrap_or_else(PoisonError::into_inner));
        Some(Self(shared))
    }
}

impl Drop for Reminder {
    fn drop(&mut self) {
        lock(&self.0.state).is_stopped = true;
        self.0.changed.notify_all();
    }
}
