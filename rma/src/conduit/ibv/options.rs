//! Options of the conduit.

use super::LONG_BYTES_MAX;
use super::network::Network;
use crate::conduit::factory::{Options, number};
use crate::error::{Result, RmaError};

/// The choices of an [`IbvConduit`](super::IbvConduit). The defaults suit every device; the settings `ibv.*`
/// of a job override those that the user may know better: the route, and the network's treatment of packets.
/// The size of packets follows the ports, and is set if a network's paths take less; the lengths of queues
/// and the inline bytes are for tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IbvOptions {
    /// The device by name (`ibv_devinfo -l` prints them); none: an active one, InfiniBand before Ethernet and the faster
    /// before the slower. Nodes of one machine take turns among equal ones.
    pub device: Option<String>,
    /// Its port; none: an active one.
    pub port: Option<u8>,
    /// Index of its own address, without a network; none: RoCE v2 over IPv4 if there is one, none at all on InfiniBand.
    pub gid: Option<u8>,
    /// Network of the addresses among which librdmacm connects; none: without librdmacm. Its device and port
    /// are those of the address that this node has in it, and `gid` does not count. The same for all nodes.
    pub network: Option<Network>,
    /// Bytes of a packet on the wire; none: the ports' common maximum.
    pub mtu: Option<u32>,
    /// Most requests in flight on a connection.
    pub depth: u32,
    /// Receive slots, of 8 KiB each, for all connections together.
    pub receive_slots: u32,
    /// Most bytes sent inline, as far as the device allows; at most 512.
    pub inline: u32,
    /// Inline messages that go without a completion of their own before one has one.
    pub signal_interval: u32,
    /// The wait for an acknowledgement is 4.096 µs times 2 to this power (0 to 31).
    pub timeout: u8,
    /// Number of times an unacknowledged packet is sent again before the peer is lost (0 to 7).
    pub retries: u8,
    /// The service level of every packet (0 to 15; on Ethernet its priority), by which switches keep kinds of
    /// traffic apart; none: librdmacm's choice, or 0.
    pub service_level: Option<u8>,
    /// The traffic class of every packet that has a global route (RoCE v2: the type of service in its IP header); none: as
    /// above.
    pub traffic_class: Option<u8>,
    /// True if words of segments are updated by the device if it can; the same for all peers.
    pub atomics: bool,
    /// Registered memory for payloads that lie in private memory; at least twice [`LONG_BYTES_MAX`].
    pub staging_bytes: usize,
}

impl IbvOptions {
    /// Reads the settings `ibv.*` of a job; the rest is as in the default.
    ///
    /// # Errors
    /// [`RmaError::Usage`] for a value out of range or an invalid network: a table of settings with limits
    /// does not let it pass.
    pub fn read(options: &dyn Options) -> Result<Self> {
        let usual = Self::default();
        let network = options.text("ibv.network").map(|text| {
            text.parse().map_err(|reason| RmaError::Usage(format!("ibv.network={text:?} {reason}")))
        });
        Ok(Self {
            device: options.text("ibv.device"),
            port: number(options, "ibv.port")?,
            gid: number(options, "ibv.gid")?,
            network: network.transpose()?,
            timeout: number(options, "ibv.timeout")?.unwrap_or(usual.timeout),
            retries: number(options, "ibv.retries")?.unwrap_or(usual.retries),
            service_level: number(options, "ibv.service_level")?,
            traffic_class: number(options, "ibv.traffic_class")?,
            atomics: options.is_on("ibv.atomics").unwrap_or(usual.atomics),
            ..usual
        })
    }
}

impl Default for IbvOptions {
    fn default() -> Self {
        Self {
            device: None,
            port: None,
            gid: None,
            network: None,
            mtu: None,
            depth: 128,
            receive_slots: 256,
            inline: 256,
            signal_interval: 16,
            // 67 ms. A lost packet costs this once; a silent peer is lost after a quarter of a second.
            timeout: 14,
            retries: 3,
            service_level: None,
            traffic_class: None,
            atomics: true,
            staging_bytes: 2 * LONG_BYTES_MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: without settings, the options are the default.
    #[test]
    fn open_settings_are_the_default() {
        assert_eq!(IbvOptions::read(&()).unwrap(), IbvOptions::default());
    }
}
