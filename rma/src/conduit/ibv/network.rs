//! Selection of a machine's addresses on the network that connects a job's RDMA devices. Pure.

#![forbid(unsafe_code)]

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A network by its addresses, such as `10.9.0.0/24`; a single address is a network of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    /// Bits that all its addresses have in common.
    prefix: u8,
}

/// An address as a number, with its bits.
fn number(address: IpAddr) -> (u128, u8) {
    match address {
        IpAddr::V4(address) => (u128::from(u32::from(address)) << 96, 32),
        IpAddr::V6(address) => (u128::from(address), 128),
    }
}

impl Network {
    /// Returns true if it contains an address.
    pub fn contains(&self, address: IpAddr) -> bool {
        let ((network, bits), (other, other_bits)) = (number(self.address), number(address));
        // No shift by all bits: a network of prefix 0 has all addresses.
        let differ = (network ^ other).leading_zeros() < u32::from(self.prefix);
        bits == other_bits && !differ
    }

    /// Those of a machine's addresses that are in it and can be told to other machines, each once; in an order that does
    /// not depend on the system's.
    pub(super) fn of(&self, interfaces: &[(String, IpAddr)]) -> Vec<IpAddr> {
        let mut mine: Vec<_> = interfaces.iter().map(|(_, address)| *address).collect();
        mine.retain(|&address| self.contains(address) && !is_link_local(address));
        mine.sort_unstable();
        mine.dedup();
        mine
    }

    /// Describes that none of a machine's addresses is in it, and lists them.
    pub(super) fn why_none(&self, interfaces: &[(String, IpAddr)]) -> String {
        let there = interfaces.iter().filter(|(_, address)| !is_link_local(*address));
        let there: Vec<_> = there.map(|(name, address)| format!("{address} ({name})")).collect();
        format!(
            "no network interface of this machine has an address in ibv.network={self}; there are: {}",
            if there.is_empty() { "none".into() } else { there.join(", ") }
        )
    }
}

/// Such an address means nothing without the interface, which has other names on other machines.
fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (address, prefix) =
            text.split_once('/').map_or((text, None), |(address, prefix)| (address, Some(prefix)));
        let address: IpAddr = address.parse().map_err(|_| "is no address and no network".to_owned())?;
        let bits = number(address).1;
        let prefix = match prefix {
            None => bits,
            Some(prefix) => prefix
                .parse()
                .ok()
                .filter(|prefix| *prefix <= bits)
                .ok_or_else(|| format!("has a prefix that is no number up to {bits}"))?,
        };
        Ok(Self { address, prefix })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn network(text: &str) -> Network {
        text.parse().unwrap()
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_network_has_the_addresses_with_its_prefix() {
        let is_in = |text, other| network(text).contains(address(other));
        assert!(is_in("10.9.0.0/24", "10.9.0.255") && !is_in("10.9.0.0/24", "10.9.1.0"));
        assert!(is_in("10.9.0.7/24", "10.9.0.1"), "an address and the length of its network will do");
        assert!(is_in("10.9.0.7", "10.9.0.7") && !is_in("10.9.0.7", "10.9.0.6"));
        assert!(is_in("0.0.0.0/0", "255.1.2.3") && !is_in("0.0.0.0/0", "fd00::1"));
        assert!(is_in("fd00:1::/32", "fd00:1:2::3") && !is_in("fd00:1::/32", "fd00:2::3"));
        assert!(is_in("::/0", "fd00::1"));
        for wrong in
            ["", "10.9.0", "10.9.0.0/33", "10.9.0.0/", "10.9.0.0/-1", "10.9.0.0/24/24", "fd00::/129", "eth0"]
        {
            assert!(wrong.parse::<Network>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn addresses_are_taken_in_one_order_and_named_when_none_fits() {
        let interfaces: Vec<_> = [
            ("lo", "127.0.0.1"),
            ("ib1", "10.9.0.2"),
            ("ib0", "10.9.0.1"),
            ("ib0", "fe80::1"),
            ("ib2", "10.9.0.2"),
        ]
        .map(|(name, text)| (name.to_owned(), address(text)))
        .into();
        assert_eq!(network("10.9.0.0/24").of(&interfaces), ["10.9.0.1", "10.9.0.2"].map(address));
        assert!(network("::/0").of(&interfaces).is_empty(), "link-local addresses are of no use to others");
        let why = network("10.8.0.0/24").why_none(&interfaces);
        assert!(why.contains("10.8.0.0/24") && why.contains("10.9.0.1 (ib0)"), "{why}");
        assert!(!why.contains("fe80"), "{why}");
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read(bytes: [u8; 16], short: bool, prefix in 0u8..=128) {
            let address: IpAddr =
                if short { <[u8; 4]>::try_from(&bytes[..4]).unwrap().into() } else { bytes.into() };
            let text = format!("{address}/{}", prefix.min(number(address).1));
            let network: Network = text.parse().unwrap();
            prop_assert_eq!(network.to_string(), text);
            prop_assert!(network.contains(address));
        }
    }
}
