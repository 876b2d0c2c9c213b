//! The conduit between nodes, by name.

use crate::config::{Auto, IbvSettings, Settings};
use crate::error::{Error, Result};
use std::sync::Arc;
use std::time::Duration;
use vgas_rma::conduit::Conduit;
use vgas_rma::conduit::ibv::{IbvConduit, IbvOptions};
use vgas_rma::conduit::tcp::{TcpConduit, TcpSpec};
use vgas_rma::job::Membership;

/// For how long the end of a job waits for what was sent to arrive.
const PATIENCE: Duration = Duration::from_secs(2);

/// The way of a process to other nodes, and how to end it well.
pub(crate) enum Network {
    /// One domain holds everybody.
    None,
    Tcp(Arc<TcpConduit>),
    Ibv(Arc<IbvConduit>),
}

impl Network {
    /// Opens what the membership names; nothing when one domain holds everybody.
    pub fn open(membership: &mut Membership, settings: &Settings) -> Result<Self> {
        let Some(listener) = membership.listener.take() else { return Ok(Self::None) };
        let tcp = TcpSpec {
            layout: membership.layout.clone(),
            me: membership.me,
            key: membership.key.clone(),
            listener,
            addresses: membership.addresses.clone(),
        };
        match membership.conduit.as_str() {
            "tcp" => Ok(Self::Tcp(Arc::new(TcpConduit::new(tcp)?))),
            "ibv" => Ok(Self::Ibv(Arc::new(IbvConduit::new(tcp, ibv_options(&settings.ibv))?))),
            other => Err(Error::Usage(format!("this build has no conduit {other}"))),
        }
    }

    /// For the endpoint.
    pub fn conduit(&self) -> Option<Arc<dyn Conduit>> {
        match self {
            Self::None => None,
            Self::Tcp(tcp) => Some(tcp.clone()),
            Self::Ibv(ibv) => Some(ibv.clone()),
        }
    }

    /// Ends the connections so that the other side does not take it for a loss.
    pub fn close(&self) {
        match self {
            Self::None => {}
            Self::Tcp(tcp) => tcp.close(PATIENCE),
            Self::Ibv(ibv) => ibv.close(PATIENCE),
        }
    }
}

/// The limits of the table keep every number within its type.
fn ibv_options(settings: &IbvSettings) -> IbvOptions {
    let number = |value: &Auto<u32>| match value {
        Auto::Auto => None,
        Auto::Is(number) => Some(*number),
    };
    IbvOptions {
        device: match &settings.device {
            Auto::Auto => None,
            Auto::Is(name) => Some(name.0.clone()),
        },
        port: number(&settings.port).map(|port| port as u8),
        gid: number(&settings.gid).map(|index| index as u8),
        network: match &settings.network {
            Auto::Auto => None,
            Auto::Is(network) => Some(*network),
        },
        mtu: match &settings.mtu {
            Auto::Auto => None,
            Auto::Is(bytes) => Some(bytes.bytes() as u32),
        },
        depth: settings.depth,
        receive_slots: settings.receive_slots,
        inline: settings.inline,
        signal_interval: settings.signal_interval,
        timeout: settings.timeout as u8,
        retries: settings.retries as u8,
        service_level: number(&settings.service_level).map(|level| level as u8),
        traffic_class: number(&settings.traffic_class).map(|class| class as u8),
        atomics: settings.atomics,
        staging_bytes: settings.staging.bytes() as usize,
    }
}
