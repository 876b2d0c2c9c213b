//! Counts messages and bytes per peer.

use super::{Hook, Kind, Passage};
use crate::address::Peer;
use std::sync::atomic::{AtomicU64, Ordering};

/// What has passed between this peer and another. Bytes are those of payloads.
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

#[derive(Default)]
struct Counters {
    sent: [AtomicU64; 2],
    received: [AtomicU64; 2],
    put: [AtomicU64; 2],
    got: [AtomicU64; 2],
    atomics: [AtomicU64; 2],
    completions: AtomicU64,
}

/// The hook. Looking at it disturbs nobody.
pub struct Count(Box<[Counters]>);

impl Count {
    /// For a job of so many peers.
    pub fn new(peers: u32) -> Self {
        Self((0..peers).map(|_| Counters::default()).collect())
    }

    /// What has passed between this peer and another; nothing if there is no such peer.
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
