//! Drops peers, and fails sends, when it is told to.

use super::{Hook, Passage};
use crate::address::Peer;
use crate::conduit::Sent;
use crate::error::{Result, RmaError};
use rustix::event::{EventfdFlags, eventfd};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The hook. What it loses is lost for this side; the other one notices nothing by itself.
#[derive(Debug)]
pub struct Loss {
    state: Mutex<State>,
    /// Readable while there is something to report.
    bell: OwnedFd,
}

#[derive(Debug, Default)]
struct State {
    lost: BTreeSet<Peer>,
    /// Those of whose loss no poll has told.
    unreported: Vec<Peer>,
    /// Attempts that are still to be answered with `Busy`, by peer.
    busy: BTreeMap<Peer, u32>,
    /// An attempt was answered so since the last poll.
    refused: bool,
}

impl Loss {
    /// Loses nothing at first.
    ///
    /// # Errors
    /// When the system refuses a descriptor.
    pub fn new() -> Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| RmaError::system("create a descriptor (eventfd)", e))?;
        Ok(Self { state: Mutex::default(), bell })
    }

    /// From now on a peer is lost: a poll says so once, sending to it fails, what comes from it is dropped. Wakes who
    /// sleeps.
    pub fn lose(&self, peer: Peer) {
        let mut state = self.lock();
        if state.lost.insert(peer) {
            state.unreported.push(peer);
            // A full counter (EAGAIN) means that it is readable already.
            let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
        }
    }

    /// The next `attempts` attempts to send something to a peer are [`Sent::Busy`].
    pub fn refuse(&self, peer: Peer, attempts: u32) {
        self.lock().busy.insert(peer, attempts);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn lost(peer: Peer, during: &str) -> RmaError {
    let (who, during) = (peer.to_string(), during.into());
    RmaError::PeerLost { peer, who, during, reason: "it was dropped on purpose".into() }
}

impl Hook for Loss {
    fn admit(&self, passage: &Passage) -> Result<Sent> {
        let mut state = self.lock();
        if state.lost.contains(&passage.peer) {
            return Err(lost(passage.peer, "sending"));
        }
        match state.busy.get_mut(&passage.peer) {
            Some(left @ 1..) => {
                *left -= 1;
                state.refused = true;
                Ok(Sent::Busy)
            }
            _ => Ok(Sent::Accepted),
        }
    }

    fn arrives(&self, passage: &Passage) -> bool {
        !self.lock().lost.contains(&passage.peer)
    }

    fn polls(&self) -> Result<usize> {
        let mut state = self.lock();
        match state.unreported.pop() {
            Some(peer) => {
                if state.unreported.is_empty() {
                    let _ = rustix::io::read(&self.bell, &mut [0; 8]);
                }
                Err(lost(peer, "waiting for messages"))
            }
            None => Ok(usize::from(std::mem::take(&mut state.refused))),
        }
    }

    fn is_quiet(&self) -> bool {
        let state = self.lock();
        state.unreported.is_empty() && !state.refused
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.bell.as_fd())
    }
}
