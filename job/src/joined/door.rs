//! Entrance for the processes of a job whose ranks are started externally: accepts them, has each prove the
//! key, and never waits for one.

#![forbid(unsafe_code)]

use super::proof::{AdmittedPeer, Doorkeeper, Progress};
use rustix::event::PollFlags;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};
use vgas_rma::error::{Result, RmaError};
use vgas_rma::key::JobKey;

/// Timeout of a visitor's proof. An open port may be found by strangers.
const PROOF_TIMEOUT: Duration = Duration::from_secs(4);

/// Most visitors that are about to prove themselves; more wait in the system's queue.
const VISITORS_MAX: usize = 512;

/// A listener, and the visitors that are being checked.
pub(super) struct Door {
    listener: Listener,
    key: JobKey,
    visitors: Vec<Waiting>,
}

/// Address of the visitors.
pub(super) enum Listener {
    /// Daemons, from other machines.
    Tcp(TcpListener),
    /// Ranks, of this one.
    Unix(UnixListener),
}

struct Waiting {
    socket: OwnedFd,
    keeper: Doorkeeper,
    since: Instant,
}

/// An event at the door.
pub(super) struct Event {
    /// The other end, proven.
    pub(super) socket: OwnedFd,
    pub(super) who: AdmittedPeer,
}

impl Door {
    pub(super) fn new(listener: Listener, key: JobKey) -> Result<Self> {
        let result = match &listener {
            Listener::Tcp(listener) => listener.set_nonblocking(true),
            Listener::Unix(listener) => listener.set_nonblocking(true),
        };
        result.map_err(|e| RmaError::io("listen for the processes of the job", e))?;
        Ok(Self { listener, key, visitors: Vec::new() })
    }

    /// Adds the files to poll.
    pub(super) fn poll_files<'a>(&'a self, files: &mut Vec<(BorrowedFd<'a>, PollFlags)>) {
        if self.visitors.len() < VISITORS_MAX {
            let listener = match &self.listener {
                Listener::Tcp(listener) => listener.as_fd(),
                Listener::Unix(listener) => listener.as_fd(),
            };
            files.push((listener, PollFlags::IN));
        }
        files.extend(self.visitors.iter().map(|visitor| (visitor.socket.as_fd(), PollFlags::IN)));
    }

    /// Accepts and checks visitors; returns those that are in.
    pub(super) fn serve(&mut self) -> Result<Vec<Event>> {
        while self.visitors.len() < VISITORS_MAX {
            match self.accept() {
                Ok(Some(socket)) => {
                    let keeper = Doorkeeper::new();
                    self.visitors.push(Waiting { socket, keeper, since: Instant::now() });
                }
                Ok(None) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // A visitor that has gone already.
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(error) => return Err(RmaError::io("accept a process of the job", error)),
            }
        }
        let mut events = Vec::new();
        let mut index = 0;
        while let Some(visitor) = self.visitors.get_mut(index) {
            let progress = visitor.keeper.advance(&visitor.socket, &self.key);
            match progress {
                Progress::Waits if visitor.since.elapsed() < PROOF_TIMEOUT => index += 1,
                Progress::Proven(who) => {
                    let visitor = self.visitors.swap_remove(index);
                    events.push(Event { socket: visitor.socket, who });
                }
                // It was told by the answer, or is a stranger.
                Progress::Waits | Progress::Refused => drop(self.visitors.swap_remove(index)),
            }
        }
        Ok(events)
    }

    /// A connection; none when it is another user's.
    fn accept(&self) -> std::io::Result<Option<OwnedFd>> {
        match &self.listener {
            Listener::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                Ok(Some(stream.into()))
            }
            Listener::Unix(listener) => {
                let (stream, _) = listener.accept()?;
                let (_, user) = crate::system::peer_of(stream.as_fd())?;
                let own = user == rustix::process::geteuid().as_raw() || user == super::rank::OVERFLOW_USER;
                Ok(own.then(|| stream.into()))
            }
        }
    }
}
