//! Tells of everything that passes, as events of `tracing` at the level `trace`.

use super::{Hook, Passage};
use crate::address::Peer;

/// The hook. Its events carry `me`, so that those of several peers in one log are told apart.
#[derive(Debug)]
pub struct Trace {
    me: Peer,
}

impl Trace {
    /// For the conduit of this peer.
    pub fn new(me: Peer) -> Self {
        Self { me }
    }
}

impl Hook for Trace {
    fn sent(&self, passage: &Passage) {
        let Passage { peer, kind, bytes } = passage;
        tracing::trace!(me = self.me.0, to = peer.0, ?kind, bytes, "sent");
    }

    fn arrives(&self, passage: &Passage) -> bool {
        let Passage { peer, kind, bytes } = passage;
        tracing::trace!(me = self.me.0, from = peer.0, ?kind, bytes, "arrived");
        true
    }

    fn completed(&self, server: Peer, operation: u64) {
        tracing::trace!(me = self.me.0, server = server.0, operation, "completed");
    }
}
