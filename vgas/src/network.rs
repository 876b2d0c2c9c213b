//! The conduit between nodes, by name.

use crate::error::{Error, Result};
use std::sync::Arc;
use vgas_rma::conduit::Conduit;
use vgas_rma::conduit::tcp::{TcpConduit, TcpSpec};
use vgas_rma::job::Membership;

/// The way of a process to other nodes, and how to end it well.
pub(crate) struct Network {
    tcp: Option<Arc<TcpConduit>>,
}

impl Network {
    /// Opens what the membership names; nothing when one domain holds everybody.
    pub fn open(membership: &mut Membership) -> Result<Self> {
        let Some(listener) = membership.listener.take() else { return Ok(Self { tcp: None }) };
        match membership.conduit.as_str() {
            "tcp" => {
                let tcp = TcpConduit::new(TcpSpec {
                    layout: membership.layout.clone(),
                    me: membership.me,
                    key: membership.key.clone(),
                    listener,
                    addresses: membership.addresses.clone(),
                })?;
                Ok(Self { tcp: Some(Arc::new(tcp)) })
            }
            other => Err(Error::Usage(format!("this build has no conduit {other}"))),
        }
    }

    /// For the endpoint.
    pub fn conduit(&self) -> Option<Arc<dyn Conduit>> {
        self.tcp.clone().map(|tcp| tcp as Arc<dyn Conduit>)
    }

    /// Ends the connections so that the other side does not take it for a loss.
    pub fn close(&self) {
        if let Some(tcp) = &self.tcp {
            tcp.close(std::time::Duration::from_secs(2));
        }
    }
}
