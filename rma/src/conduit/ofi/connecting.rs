//! Set-up of connections when they are first wanted, by either side, from the notices that peers exchange
//! ([`super::notice`]).

#![forbid(unsafe_code)]

use super::OfiConduit;
use super::connection::{Connection, PeerRoute};
use super::notice::{Hello, Notice};
use super::shared::lock;
use crate::address::Peer;
use crate::error::{Result, RmaError};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

impl OfiConduit {
    /// The connection to a peer, made and announced if there is none.
    pub(super) fn connection_to(&self, peer: Peer) -> Result<&Connection> {
        if let Some(connection) = self.connection(peer) {
            return Ok(connection);
        }
        let _making = lock(&self.making);
        let slot = &self.slots[peer.0 as usize];
        if slot.get().is_none() {
            let connection = Connection::new(peer)?;
            let wire = &self.shared.wire;
            let hello = Hello {
                token: connection.token,
                provider: wire.offer().provider.clone(),
                name: wire.name.clone(),
            };
            self.known.write().unwrap_or_else(PoisonError::into_inner).push(peer);
            let _ = slot.set(connection);
            self.connecting.fetch_add(1, Ordering::AcqRel);
            for part in hello.parts() {
                self.notices.tell(peer, part)?;
            }
        }
        slot.get().ok_or_else(|| RmaError::Usage("a connection vanished".into()))
    }

    fn hear(&self, from: Peer, notice: Notice) -> Result<()> {
        let connection = self.connection_to(from)?;
        let wrong = |what: String| RmaError::Protocol { peer: Some(from), what };
        match notice {
            Notice::Hello { total, at, part } => {
                let mut hellos = lock(&self.hellos);
                let so_far = hellos.entry(from).or_default();
                if !Notice::join(so_far, total, at, &part).map_err(wrong)? {
                    return Ok(());
                }
                let hello = Hello::decode(so_far);
                hellos.remove(&from);
                drop(hellos);
                let hello = hello.ok_or_else(|| wrong("a malformed hello".into()))?;
                self.greeted(connection, &hello)
            }
            Notice::Ready if connection.open() => {
                self.connecting.fetch_sub(1, Ordering::AcqRel);
                self.opened.store(true, Ordering::Release);
                Ok(())
            }
            Notice::Ready => Err(wrong("it was ready twice".into())),
        }
    }

    fn greeted(&self, connection: &Connection, hello: &Hello) -> Result<()> {
        let mine = &self.shared.wire.offer().provider;
        let peer = connection.peer;
        if hello.provider != *mine {
            return Err(RmaError::Refused(format!(
                "libfabric's {mine} here and {} on the side of {peer} do not speak with each other; name one that all \
                 nodes have with ofi.provider",
                hello.provider
            )));
        }
        let way = PeerRoute { peer: self.shared.wire.insert(&hello.name)?, token: hello.token };
        if connection.way.set(way).is_err() {
            return Err(RmaError::Protocol { peer: Some(peer), what: "it said hello twice".into() });
        }
        self.notices.tell(peer, Notice::Ready)
    }

    /// Hears what peers have to say about connections, and which of them have ended.
    pub(super) fn poll_connecting(&self) -> Result<()> {
        let result = self.notices.poll(&|from, notice| self.hear(from, notice));
        let Err(RmaError::PeerLost { peer, who, during, reason }) = result else { return result };
        match self.connection(peer) {
            Some(connection) if !connection.lose(reason.clone()) => Ok(()),
            _ => Err(RmaError::PeerLost { peer, who, during, reason }),
        }
    }
}
