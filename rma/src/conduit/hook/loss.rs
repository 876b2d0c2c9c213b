//! Drops peers, and fails sends, when it is told to, or a part of them by chance.

use super::{Hook, Kind, Passage};
use crate::address::Peer;
use crate::conduit::{Conduit, Sent};
use crate::error::{Result, RmaError};
use crate::message::Direction;
use rustix::event::{EventfdFlags, eventfd};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The hook. It loses peers for this side only; the other side notices nothing by itself.
#[derive(Debug)]
pub struct Loss {
    state: Mutex<State>,
    /// Readable while there is something to report, or an attempt to be made again.
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
    /// The bell has been rung since it was last silenced.
    rung: bool,
    /// Millionths of all attempts that are answered so by chance, and where chance stands.
    share: u32,
    chance: u64,
}

impl State {
    /// A number below a million, by chance (SplitMix64).
    fn draw(&mut self) -> u64 {
        self.chance = self.chance.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.chance ^ (self.chance >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % 1_000_000
    }
}

impl Loss {
    /// Loses nothing at first.
    ///
    /// # Errors
    /// If the system refuses a descriptor.
    pub fn new() -> Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| RmaError::system("create a descriptor (eventfd)", e))?;
        Ok(Self { state: Mutex::default(), bell })
    }

    /// Loses this many millionths of all attempts but those to reply, for which a conduit always has room:
    /// they are [`Sent::Busy`], and retried after the next poll, as over a lossy link. The losses follow from
    /// the seed and the number of the attempt.
    ///
    /// # Errors
    /// As of [`new`](Self::new).
    pub fn of_share(millionths: u32, seed: u64) -> Result<Self> {
        let loss = Self::new()?;
        {
            let mut state = loss.lock();
            (state.share, state.chance) = (millionths, seed);
        }
        Ok(loss)
    }

    /// From now on a peer is lost: a poll reports it once, sending to it fails, and its messages are dropped.
    /// Wakes sleeping threads.
    pub fn lose(&self, peer: Peer) {
        let mut state = self.lock();
        if state.lost.insert(peer) {
            state.unreported.push(peer);
            self.ring(&mut state);
        }
    }

    /// The next `attempts` attempts to send something to a peer are [`Sent::Busy`].
    pub fn refuse(&self, peer: Peer, attempts: u32) {
        self.lock().busy.insert(peer, attempts);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers `Busy`. Another thread may sleep already, and is the one that must poll before the attempt is made again.
    fn refused(&self, state: &mut State) -> Sent {
        state.refused = true;
        self.ring(state);
        Sent::Busy
    }

    fn ring(&self, state: &mut State) {
        if !std::mem::replace(&mut state.rung, true) {
            // A full counter (EAGAIN) means that it is readable already.
            let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
        }
    }

    /// Marks the loss as reported.
    fn silence(&self, state: &mut State) {
        if std::mem::take(&mut state.rung) {
            let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        }
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
        let is_reply = matches!(passage.kind, Kind::Message(Direction::Reply, _));
        if state.share > 0 && !is_reply && state.draw() < u64::from(state.share) {
            return Ok(self.refused(&mut state));
        }
        match state.busy.get_mut(&passage.peer) {
            Some(left @ 1..) => {
                *left -= 1;
                Ok(self.refused(&mut state))
            }
            _ => Ok(Sent::Accepted),
        }
    }

    fn arrives(&self, passage: &Passage) -> bool {
        !self.lock().lost.contains(&passage.peer)
    }

    fn polls(&self, _: &dyn Conduit) -> Result<usize> {
        let mut state = self.lock();
        match state.unreported.pop() {
            Some(peer) => {
                if state.unreported.is_empty() && !state.refused {
                    self.silence(&mut state);
                }
                Err(lost(peer, "waiting for messages"))
            }
            None => {
                self.silence(&mut state);
                Ok(usize::from(std::mem::take(&mut state.refused)))
            }
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
