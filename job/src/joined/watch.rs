//! Notice of the job's end in an externally started rank: a thread at its lifeline.

#![forbid(unsafe_code)]

use crate::control::{Arrival, Receiver};
use crate::lock::lock;
use crate::message::{ToRank, Why};
use crate::system;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{PidfdFlags, pidfd_open};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use vgas_rma::error::{Result, RmaError};
use vgas_rma::say;

/// Timeout at the job's end, for the rank's helpers to go, and for the line that gives the reason of the end.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The lifeline's end, as other threads see it.
#[derive(Debug)]
pub(crate) struct Watch {
    state: Mutex<State>,
    changed: Condvar,
    /// Descriptor of the leader's process, at the rank that has started it: it is silent, and closes when
    /// that is gone.
    leader: Option<OwnedFd>,
}

#[derive(Debug, Default)]
struct State {
    /// This rank is done: the end is no failure.
    leaving: bool,
    over: bool,
}

impl Watch {
    /// Starts the thread.
    pub(super) fn start(lifeline: OwnedFd, leader: Option<OwnedFd>, who: String) -> Result<Arc<Self>> {
        let watch = Arc::new(Self { state: Mutex::default(), changed: Condvar::new(), leader });
        let (watched, receiver) = (watch.clone(), Receiver::new(Arc::new(lifeline))?);
        std::thread::Builder::new()
            .name("vgas-lifeline".into())
            .spawn(move || watched.listen(receiver, &who))
            .map_err(|e| RmaError::io("start a thread", e))?;
        Ok(watch)
    }

    fn listen(&self, mut receiver: Receiver, who: &str) {
        // Some starters leave ranks behind when they are killed, and nothing else would end those.
        let starter = rustix::process::getppid().and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        loop {
            let mut files = vec![PollFd::from_borrowed_fd(receiver.file(), PollFlags::IN)];
            files.extend(starter.as_ref().map(|starter| PollFd::new(starter, PollFlags::IN)));
            let polled = poll(&mut files, None);
            let starter_is_gone = files.get(1).is_some_and(|starter| !starter.revents().is_empty());
            drop(files);
            if polled.is_ok() && starter_is_gone {
                return self.lost("who has started this rank has ended", who);
            }
            match receiver.read() {
                Ok(Arrival::Nothing) => {}
                Ok(Arrival::Bytes) => match receiver.next() {
                    Ok(Some((ToRank::Ended(why), _))) => end(&why),
                    Ok(None) => {}
                    // It says nothing else here.
                    Ok(Some(_)) | Err(_) => return self.lost("the daemon of this node talks nonsense", who),
                },
                Ok(Arrival::End) | Err(_) => return self.lost("the daemon of this node has ended", who),
            }
        }
    }

    /// Ends the process, unless this rank is leaving: no helper is left to report the end.
    fn lost(&self, what: &str, who: &str) {
        let mut state = lock(&self.state);
        if !state.leaving {
            end(&Why { line: Some(format!("{who}: {what}")), code: 1 });
        }
        state.over = true;
        self.changed.notify_all();
    }

    /// From now on the end of the daemon is no failure.
    pub(crate) fn is_leaving(&self) {
        lock(&self.state).leaving = true;
    }

    /// Waits until the helpers have gone. Not for ever: the starter ends what is left.
    pub(crate) fn wait_for_end(&self) {
        let until = Instant::now() + TIMEOUT;
        self.wait_over(TIMEOUT);
        if let Some(leader) = &self.leader {
            let left = until.saturating_duration_since(Instant::now());
            let _ = crate::control::wait_for(
                leader.as_fd(),
                PollFlags::IN,
                Some(&crate::control::timespec(left)),
            );
        }
    }

    /// Waits for the thread to end this process: the job ends, and the thread has the line with the reason.
    pub(crate) fn wait_for_reason(&self) {
        self.wait_over(TIMEOUT);
    }

    fn wait_over(&self, most: Duration) {
        let waits = |state: &mut State| !state.over;
        drop(
            self.changed
                .wait_timeout_while(lock(&self.state), most, waits)
                .unwrap_or_else(PoisonError::into_inner),
        );
    }
}

/// Ends this process for this reason.
fn end(why: &Why) -> ! {
    if let Some(line) = &why.line {
        say::line(format_args!("vgas: {line}"));
    }
    system::exit_now(why.code.max(u8::from(why.line.is_some())))
}
