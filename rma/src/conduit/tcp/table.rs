//! State shared by the pollers, the senders and the door thread of one conduit: peers that are connected,
//! wanted or lost, and the descriptors to sleep on.
//!
//! Entries only ever go forward (not wanted, wanted, open or failed; never back), so the hot paths read them without
//! locks. Only the door thread opens and fails.

#![forbid(unsafe_code)]

use super::connection::{Connection, lock};
use crate::address::{Layout, Peer};
use crate::error::{Result, RmaError};
use rustix::event::{EventfdFlags, epoll, eventfd};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

/// Up to this many connections are read from directly when polling; beyond, epoll names those with something
/// to read: asking it is a system call of its own before each read, and watching costs at each arrival.
const DIRECT_CONNECTIONS: usize = 3;

/// The event data of the bell in the wait descriptor; connections carry their peer's number.
const BELL: u64 = u64::MAX;

#[derive(Default)]
struct Slot {
    connection: OnceLock<Connection>,
    wanted: AtomicBool,
    failure: OnceLock<String>,
}

pub(super) struct Table {
    pub(super) layout: Layout,
    pub(super) me: Peer,
    slots: Box<[Slot]>,
    /// The peers with a connection, in the order in which it was opened; the first `open_count` count.
    open: Box<[AtomicU32]>,
    open_count: AtomicUsize,
    /// There are more than [`DIRECT_CONNECTIONS`], or about to be.
    many: AtomicBool,
    /// Threads between [`Table::watch_all`] and [`Table::woke`].
    sleepers: AtomicUsize,
    /// Connection requests for the door.
    wanted: Mutex<Vec<Peer>>,
    /// Failed attempts that no poll has reported.
    failed: Mutex<Vec<Peer>>,
    failed_count: AtomicUsize,
    closing: AtomicBool,
    stopping: AtomicBool,
    /// The wait descriptor: all connections and the bell.
    poller: OwnedFd,
    /// Wakes threads that sleep on the wait descriptor.
    bell: OwnedFd,
    /// Wakes the door thread.
    door_bell: OwnedFd,
}

impl Table {
    pub(super) fn new(layout: Layout, me: Peer) -> Result<Self> {
        let peers = layout.peers();
        let system = |e| RmaError::system("create the descriptors of the tcp conduit", e);
        let new_bell = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(system);
        let poller = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system)?;
        let bell = new_bell()?;
        epoll::add(&poller, &bell, epoll::EventData::new_u64(BELL), epoll::EventFlags::IN).map_err(system)?;
        Ok(Self {
            slots: (0..peers).map(|_| Slot::default()).collect(),
            open: (0..peers).map(|_| AtomicU32::new(0)).collect(),
            open_count: AtomicUsize::new(0),
            many: AtomicBool::new(false),
            sleepers: AtomicUsize::new(0),
            wanted: Mutex::default(),
            failed: Mutex::default(),
            failed_count: AtomicUsize::new(0),
            closing: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            poller,
            bell,
            door_bell: new_bell()?,
            layout,
            me,
        })
    }

    /// The connection to a peer of this layout, if it is open.
    #[inline]
    pub(super) fn connection(&self, peer: Peer) -> Option<&Connection> {
        self.slots[peer.0 as usize].connection.get()
    }

    /// The open connections from the `first` on, in the order of their opening.
    #[inline]
    pub(super) fn open_from(&self, first: usize) -> impl Iterator<Item = &Connection> {
        let count = self.open_count.load(Ordering::Acquire);
        let peers = &self.open[..count];
        peers[first.min(count)..].iter().filter_map(|p| self.connection(Peer(p.load(Ordering::Relaxed))))
    }

    /// Returns the number of open connections.
    #[inline]
    pub(super) fn open_count(&self) -> usize {
        self.open_count.load(Ordering::Acquire)
    }

    /// Asks the door for a connection, once.
    pub(super) fn want(&self, peer: Peer) {
        if !self.slots[peer.0 as usize].wanted.swap(true, Ordering::AcqRel) {
            lock(&self.wanted).push(peer);
            ring(&self.door_bell);
        }
    }

    /// Takes the connections requested from the door since the last call.
    pub(super) fn take_wanted(&self) -> Vec<Peer> {
        std::mem::take(&mut *lock(&self.wanted))
    }

    /// Door: a proven connection is there. False when the pair has one already.
    pub(super) fn open(&self, peer: Peer, socket: OwnedFd) -> Result<bool> {
        let slot = &self.slots[peer.0 as usize];
        if slot.connection.set(Connection::new(peer, socket)).is_err() {
            return Ok(false);
        }
        let count = self.open_count.load(Ordering::Relaxed);
        self.open[count].store(peer.0, Ordering::Relaxed);
        if count + 1 > DIRECT_CONNECTIONS {
            // From now on pollers ask epoll. Announced first: see `unwatch_if_awake`.
            self.many.store(true, Ordering::SeqCst);
            for peer in &self.open[..count + 1] {
                if let Some(connection) = self.connection(Peer(peer.load(Ordering::Relaxed))) {
                    connection.watch(self.poller()).map_err(|e| RmaError::io("watch a connection", e))?;
                }
            }
        }
        self.open_count.store(count + 1, Ordering::Release);
        ring(&self.bell);
        Ok(true)
    }

    /// Door: the peer cannot be reached.
    pub(super) fn fail(&self, peer: Peer, reason: String) {
        if self.slots[peer.0 as usize].failure.set(reason).is_ok() {
            lock(&self.failed).push(peer);
            self.failed_count.fetch_add(1, Ordering::Release);
            ring(&self.bell);
        }
    }

    /// Returns the reason why the peer cannot be reached, if that was tried.
    pub(super) fn failure(&self, peer: Peer) -> Option<&str> {
        self.slots[peer.0 as usize].failure.get().map(String::as_str)
    }

    /// A failed attempt that was not reported yet.
    #[inline]
    pub(super) fn take_failed(&self) -> Option<Peer> {
        if self.failed_count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let peer = lock(&self.failed).pop()?;
        self.failed_count.fetch_sub(1, Ordering::AcqRel);
        Some(peer)
    }

    /// A thread prepares to sleep: makes the wait descriptor report everything. False when that is impossible.
    pub(super) fn watch_all(&self) -> bool {
        // Before any connection's lock is taken, for `unwatch_if_awake`.
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let watched = self.open_from(0).all(|connection| connection.watch(self.poller()).is_ok());
        if !watched {
            self.woke();
        }
        watched
    }

    /// Ends what [`Table::watch_all`] began.
    pub(super) fn woke(&self) {
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }

    /// Stops watching a connection whose pollers spin. Under the connection's lock the answer is reliable: a
    /// thread that wants the watch announces that before it takes that lock to find or renew it.
    pub(super) fn unwatch_if_awake(&self, connection: &Connection) {
        let unneeded = || self.sleepers.load(Ordering::SeqCst) == 0 && !self.many.load(Ordering::SeqCst);
        // An error is the end of the connection, which a read reports.
        let _ = connection.unwatch(self.poller(), unneeded);
    }

    /// Returns true if pollers ask epoll instead of every connection.
    #[inline]
    pub(super) fn is_many(&self) -> bool {
        self.open_count() > DIRECT_CONNECTIONS
    }

    /// The wait descriptor.
    pub(super) fn poller(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }

    /// Returns the descriptor that the door sleeps on.
    pub(super) fn door_bell(&self) -> BorrowedFd<'_> {
        self.door_bell.as_fd()
    }

    /// Returns true if threads sleep, or are about to.
    pub(super) fn has_sleepers(&self) -> bool {
        self.sleepers.load(Ordering::SeqCst) > 0
    }

    /// Wakes threads that sleep on the wait descriptor, or are about to.
    pub(super) fn ring_bell(&self) {
        ring(&self.bell);
    }

    /// Clears the bell of the wait descriptor; whether it had been rung.
    pub(super) fn clear_bell(&self) -> bool {
        clear(&self.bell)
    }

    /// Clears the door's bell.
    pub(super) fn clear_door_bell(&self) {
        clear(&self.door_bell);
    }

    /// The job ends: from now on a peer that goes away is no loss. Returns true for the first call.
    pub(super) fn start_closing(&self) -> bool {
        !self.closing.swap(true, Ordering::AcqRel)
    }

    /// Returns true if the job ends.
    pub(super) fn closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Ends the door thread.
    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        ring(&self.door_bell);
    }

    /// Returns true if the door thread shall end.
    pub(super) fn stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// The error for a peer that is gone.
    pub(super) fn lost(&self, peer: Peer, during: &str, reason: &str) -> RmaError {
        let who = self.layout.describe(peer);
        RmaError::PeerLost { peer, who, during: during.into(), reason: reason.into() }
    }
}

fn ring(bell: &OwnedFd) {
    // The only possible failure is a counter at its maximum, which is a bell that rings.
    let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
}

fn clear(bell: &OwnedFd) -> bool {
    let mut count = [0; 8];
    rustix::io::read(bell, &mut count).is_ok()
}
