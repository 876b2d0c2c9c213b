//! Counts messages and bytes per peer.

use super::{Hook, Kind, Passage};
use crate::address::Peer;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Traffic between this peer and another. Bytes are those of payloads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerCounts {
    /// Messages that were accepted.
    pub messages_sent: u64,
    /// Their payloads.
    pub bytes_sent: u64,
    /// Messages that came.
    pub messages_received: u64,
    /// Their payloads.
    pub bytes_received: u64,
    /// One-sided puts that were started, each part for itself.
    pub puts: u64,
    /// Their bytes.
    pub bytes_put: u64,
    /// One-sided gets that were started, each part for itself.
    pub gets: u64,
    /// Their bytes.
    pub bytes_got: u64,
    /// Atomic updates that were started.
    pub atomics: u64,
    /// Parts of one-sided operations that are complete.
    pub completions: u64,
}

impl fmt::Display for PeerCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} messages sent ({} bytes), {} received ({} bytes), {} puts ({} bytes), {} gets ({} bytes), {} atomic updates",
            self.messages_sent,
            self.bytes_sent,
            self.messages_received,
            self.bytes_received,
            self.puts,
            self.bytes_put,
            self.gets,
            self.bytes_got,
            self.atomics
        )
    }
}

#[derive(Default)]
struct Counters {
    sent: [AtomicU64; 2],
    received: [AtomicU64; 2],
    put: [AtomicU64; 2],
    got: [AtomicU64; 2],
    atomics: [AtomicU64; 2],
    completions: AtomicU64,
}

/// The hook. Reading it does not disturb senders.
pub struct Count(Box<[Counters]>);

impl Count {
    /// Counts for a job of this many peers.
    pub fn new(peers: u32) -> Self {
        Self((0..peers).map(|_| Counters::default()).collect())
    }

    /// Returns the traffic between this peer and all others.
    pub fn total(&self) -> PeerCounts {
        let each = (0..self.0.len() as u32).map(|peer| self.of(Peer(peer)));
        each.fold(PeerCounts::default(), |sum, of| PeerCounts {
            messages_sent: sum.messages_sent + of.messages_sent,
            bytes_sent: sum.bytes_sent + of.bytes_sent,
            messages_received: sum.messages_received + of.messages_received,
            bytes_received: sum.bytes_received + of.bytes_received,
            puts: sum.puts + of.puts,
            bytes_put: sum.bytes_put + of.bytes_put,
            gets: sum.gets + of.gets,
            bytes_got: sum.bytes_got + of.bytes_got,
            atomics: sum.atomics + of.atomics,
            completions: sum.completions + of.completions,
        })
    }

    /// Returns the traffic between this peer and another; zeros if there is no such peer.
    pub fn of(&self, peer: Peer) -> PeerCounts {
        let Some(counters) = self.0.get(peer.0 as usize) else { return PeerCounts::default() };
        let read = |pair: &[AtomicU64; 2]| pair.each_ref().map(|count| count.load(Ordering::Relaxed));
        let ([messages_sent, bytes_sent], [messages_received, bytes_received]) =
            (read(&counters.sent), read(&counters.received));
        let ([puts, bytes_put], [gets, bytes_got]) = (read(&counters.put), read(&counters.got));
        PeerCounts {
            messages_sent,
            bytes_sent,
            messages_received,
            bytes_received,
            puts,
            bytes_put,
            gets,
            bytes_got,
            atomics: read(&counters.atomics)[0],
            completions: counters.completions.load(Ordering::Relaxed),
        }
    }

    fn count(&self, passage: &Passage, pair: fn(&Counters) -> &[AtomicU64; 2]) {
        if let Some(counters) = self.0.get(passage.peer.0 as usize) {
            let [number, bytes] = pair(counters);
            number.fetch_add(1, Ordering::Relaxed);
            bytes.fetch_add(passage.bytes as u64, Ordering::Relaxed);
        }
    }
}

impl Hook for Count {
    fn sent(&self, passage: &Passage) {
        self.count(
            passage,
            match passage.kind {
                Kind::Message(..) => |counters| &counters.sent,
                Kind::Put => |counters| &counters.put,
                Kind::Get => |counters| &counters.got,
                Kind::Atomic => |counters| &counters.atomics,
            },
        );
    }

    fn arrives(&self, passage: &Passage) -> bool {
        self.count(passage, |counters| &counters.received);
        true
    }

    fn completed(&self, server: Peer, _operation: u64) {
        if let Some(counters) = self.0.get(server.0 as usize) {
            counters.completions.fetch_add(1, Ordering::Relaxed);
        }
    }
}
