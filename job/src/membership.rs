//! Membership of a process in its job.

#![forbid(unsafe_code)]

use super::SLOW_CONDUIT_IS_TOLD_AFTER;
use super::bootstrap::{Bootstrap, Identity};
use super::message::Welcome;
use super::reminder::Reminder;
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use vgas_rma::address::{Layout, NodeId, Peer, Rank};
use vgas_rma::conduit::Conduit;
use vgas_rma::conduit::factory::{self, Options};
use vgas_rma::conduit::tcp::TcpSpec;
use vgas_rma::domain::Domain;
use vgas_rma::error::{Result, RmaError};
use vgas_rma::key::JobKey;

/// Membership of a rank, or of a node's agent, in its job.
#[derive(Debug)]
pub struct Membership {
    /// Its identity, and the line to its starter.
    pub bootstrap: Arc<dyn Bootstrap>,
    /// Proves to other processes that this one belongs to the job.
    pub key: JobKey,
    /// The conduit between nodes, by name.
    pub conduit: String,
    /// The settings of the job, as its starter gave them.
    pub settings: BTreeMap<String, String>,
    /// The memory shared with the other processes of the node, or of the job.
    pub domain: Arc<Domain>,
    /// Listener of the conduit between nodes; absent if there is none: one domain holds all processes of the
    /// job.
    pub listener: Option<TcpListener>,
    /// Address of each peer's listener, by peer; empty if there are none.
    pub addresses: Vec<SocketAddr>,
}

impl Membership {
    /// Returns its identity.
    pub fn place(&self) -> &Identity {
        self.bootstrap.place()
    }

    /// Returns the assignment of ranks to nodes.
    pub fn layout(&self) -> &Layout {
        &self.place().layout
    }

    /// This endpoint.
    pub fn me(&self) -> Peer {
        self.place().me
    }

    /// The rank, unless this is an agent.
    pub fn rank(&self) -> Option<Rank> {
        self.place().rank()
    }

    /// The node this process is on.
    pub fn node(&self) -> NodeId {
        self.place().node()
    }

    /// Opens the conduit to other nodes, once; none when one domain holds all processes of the job.
    ///
    /// # Errors
    /// Those of the conduit; [`RmaError::Refused`] when this build has none of that name.
    pub fn open_network(&mut self, options: &dyn Options) -> Result<Option<Arc<dyn Conduit>>> {
        let Some(listener) = self.listener.take() else { return Ok(None) };
        let Identity { layout, me } = self.place().clone();
        let spec = TcpSpec { layout, me, key: self.key.clone(), listener, addresses: self.addresses.clone() };
        let provider = factory::find(&self.conduit)?;
        // One line a job, or two: of the first agent, and of the first rank.
        let is_first = self.me() == Peer(0) || self.me() == self.layout().agent_of(NodeId(0));
        let _told = provider.slow().filter(|_| is_first).map(|what| {
            let after = SLOW_CONDUIT_IS_TOLD_AFTER;
            let who = self.layout().describe(self.me());
            let opens =
                format!("{who} has been opening the conduit {} for {} s", self.conduit, after.as_secs());
            Reminder::start(after, format!("{opens}: {what}"))
        });
        provider.open(spec, options).map(Some)
    }

    /// A member from its parts: the files of the domain come in the order of [`Domain::files`], after the listener.
    pub(crate) fn from_welcome(
        welcome: Welcome,
        mut files: Vec<OwnedFd>,
        bootstrap: impl FnOnce(Identity) -> Arc<dyn Bootstrap>,
    ) -> Result<Self> {
        let Welcome { job, me, domain, addresses, listens, lifeline: _ } = welcome;
        if !job.layout.contains(me) {
            let what = format!("{me} was welcomed to a job of {} peers", job.layout.peers());
            return Err(RmaError::Protocol { peer: None, what });
        }
        job.layout.name_peers();
        if listens && files.is_empty() {
            return Err(RmaError::Protocol { peer: None, what: "the listener did not come".into() });
        }
        let listener = listens.then(|| TcpListener::from(files.remove(0)));
        Ok(Self {
            bootstrap: bootstrap(Identity { layout: job.layout, me }),
            key: job.key,
            conduit: job.conduit,
            settings: job.settings,
            domain: Arc::new(Domain::open(domain, files)?),
            listener,
            addresses,
        })
    }
}
