//! Set-up of connections when they are first wanted, by either side, from the notices that peers exchange
//! ([`super::notice`]), and by librdmacm if that connects ([`super::cm`]).

#![forbid(unsafe_code)]

use super::IbvConduit;
use super::connection::{Connection, lock};
use super::notice::Notice;
use crate::address::Peer;
use crate::error::{Result, RmaError};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

impl IbvConduit {
    /// The connection to a peer, made and announced if there is none.
    pub(super) fn connection_to(&self, peer: Peer) -> Result<&Connection> {
        if let Some(connection) = self.connection(peer) {
            return Ok(connection);
        }
        let _making = lock(&self.making);
        let slot = &self.slots[peer.0 as usize];
        if slot.get().is_none() {
            let connection = Connection::new(&self.shared, peer)?;
            let place = connection.place;
            // Before any other thread finds the connection, since it may hear from the peer at this moment.
            let door = self.manager.as_ref().map(|manager| manager.door(peer)).transpose()?;
            self.by_number.write().unwrap_or_else(PoisonError::into_inner).insert(place.number, peer);
            self.known.write().unwrap_or_else(PoisonError::into_inner).push(peer);
            let _ = slot.set(connection);
            self.connecting.fetch_add(1, Ordering::AcqRel);
            if let Some(door) = door {
                self.notices.tell(peer, Notice::Door(door))?;
            }
            self.notices.tell(peer, Notice::Place(place))?;
        }
        slot.get().ok_or_else(|| RmaError::Usage("a connection vanished".into()))
    }

    fn hear(&self, from: Peer, notice: Notice) -> Result<()> {
        let connection = self.connection_to(from)?;
        let twice = |what: &str| RmaError::Protocol { peer: Some(from), what: format!("it {what} twice") };
        match notice {
            Notice::Door(door) => match &self.manager {
                Some(manager) if manager.heard_door(from, door) => Ok(()),
                Some(_) => Err(twice("named its address")),
                None => {
                    let what =
                        format!("{from} has ibv.network set and this side has not: set it for the whole job");
                    Err(RmaError::Refused(what))
                }
            },
            Notice::Failed => match &self.manager {
                Some(manager) => {
                    manager.failed(
                        from,
                        "it could not connect over the RDMA network, and says why itself".into(),
                    );
                    Ok(())
                }
                None => {
                    Err(RmaError::Protocol { peer: Some(from), what: "it failed without librdmacm".into() })
                }
            },
            Notice::Place(there) => {
                if let Some(manager) = &self.manager {
                    return self.heard_place(manager, connection, there);
                }
                if !connection.connect(&self.shared, &there)? {
                    return Err(twice("named its queue pair"));
                }
                self.notices.tell(from, Notice::Ready)
            }
            Notice::Ready => {
                let joined = match &self.manager {
                    Some(manager) => manager.heard_ready(from),
                    None => (!connection.is_open()).then_some(true),
                };
                if joined.ok_or_else(|| twice("was ready"))? {
                    self.open(connection);
                }
                Ok(())
            }
        }
    }

    /// Both sides receive: sending may begin.
    pub(super) fn open(&self, connection: &Connection) {
        connection.open();
        self.connecting.fetch_sub(1, Ordering::AcqRel);
        self.opened.store(true, Ordering::Release);
    }

    /// Hears what peers, and librdmacm, have to say about connections.
    pub(super) fn poll_connecting(&self) -> Result<()> {
        self.poll_notices().and_then(|()| self.poll_manager())
    }

    pub(super) fn poll_notices(&self) -> Result<()> {
        let result = self.notices.poll(&|from, notice| self.hear(from, notice));
        let Err(RmaError::PeerLost { peer, who, during, reason }) = result else { return result };
        match self.connection(peer) {
            Some(connection) if !connection.lose(reason.clone()) => Ok(()),
            _ => Err(RmaError::PeerLost { peer, who, during, reason }),
        }
    }
}
