//! Choice of libfabric's provider for a job. Pure.
//!
//! By itself a job takes only providers that drive a network card, because that is where libfabric is better
//! than sockets: [`AUTOMATIC`]. Providers over sockets or shared memory are taken when named. Some are never
//! taken ([`is_never`]): `sockets` is given up by its authors, and `ofi_rxd` makes messages of datagrams,
//! which loses to tcp in every way.

#![forbid(unsafe_code)]

use std::net::IpAddr;

/// Providers that are taken without being named, the preferred first.
pub(super) const AUTOMATIC: [&str; 5] = ["cxi", "efa", "opx", "psm3", "verbs"];

/// Properties of an offer that the choice depends on.
pub(super) trait Offered {
    /// The provider, such as `verbs;ofi_rxm`.
    fn provider(&self) -> &str;
    /// Its own address, if it has one of the kind that nodes have.
    fn address(&self) -> Option<IpAddr>;
}

/// Returns true if a provider is of no use here, and is not taken even when it is named.
pub(super) fn is_never(provider: &str) -> bool {
    provider.split(';').any(|layer| matches!(layer, "sockets" | "ofi_rxd" | "UDP" | "udp"))
}

/// Returns true if this name means a provider: itself, or its lowest layer if messages are made by `ofi_rxm`.
fn is_called(provider: &str, name: &str) -> bool {
    provider == name || provider.split_once(';') == Some((name, "ofi_rxm"))
}

/// Returns the first available of the wished providers (or of the automatic ones, if none is wished), at this
/// address if it has several.
pub(super) fn choose<'a, O: Offered>(offers: &'a [O], wished: &[String], address: IpAddr) -> Option<&'a O> {
    let of = |name: &str| {
        let exact = offers.iter().filter(move |offer| offer.provider() == name);
        let layered = offers.iter().filter(move |offer| is_called(offer.provider(), name));
        exact.chain(layered).filter(|offer| !is_never(offer.provider())).collect::<Vec<_>>()
    };
    let names: Vec<&str> =
        if wished.is_empty() { AUTOMATIC.into() } else { wished.iter().map(String::as_str).collect() };
    names.into_iter().find_map(|name| {
        let found = of(name);
        let here = found.iter().find(|offer| offer.address() == Some(address));
        here.or(found.first()).copied()
    })
}

/// The providers of some offers, each once, in order, without those that are never taken.
pub(super) fn names<O: Offered>(offers: &[O]) -> Vec<&str> {
    let mut names: Vec<_> = offers.iter().map(O::provider).filter(|name| !is_never(name)).collect();
    names.sort_unstable();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fake(&'static str, Option<[u8; 4]>);

    impl Offered for Fake {
        fn provider(&self) -> &str {
            self.0
        }
        fn address(&self) -> Option<IpAddr> {
            self.1.map(IpAddr::from)
        }
    }

    fn chosen(offers: &[Fake], wished: &[&str], address: [u8; 4]) -> Option<usize> {
        let wished: Vec<_> = wished.iter().map(|name| (*name).to_owned()).collect();
        let found = choose(offers, &wished, address.into())?;
        offers.iter().position(|offer| std::ptr::eq(offer, found))
    }

    const HOST: [u8; 4] = [10, 0, 0, 1];

    /// Goal: without a wish only cards are taken, the better first; sockets and shared memory only when they are named.
    #[test]
    fn cards_are_taken_by_themselves_and_others_when_named() {
        let offers = [
            Fake("sockets", Some(HOST)),
            Fake("tcp;ofi_rxm", Some([127, 0, 0, 1])),
            Fake("tcp;ofi_rxm", Some(HOST)),
            Fake("net;ofi_rxm", Some(HOST)),
            Fake("net", Some(HOST)),
            Fake("shm", None),
            Fake("udp;ofi_rxd", Some(HOST)),
        ];
        assert_eq!(chosen(&offers, &[], HOST), None);
        assert_eq!(chosen(&offers, &["tcp"], HOST), Some(2), "at the node's own address");
        assert_eq!(chosen(&offers, &["tcp;ofi_rxm"], [127, 0, 0, 1]), Some(1));
        assert_eq!(chosen(&offers, &["tcp"], [9, 9, 9, 9]), Some(1), "or at any");
        assert_eq!(chosen(&offers, &["net"], HOST), Some(4), "itself before what stands on it");
        assert_eq!(chosen(&offers, &["cxi", "shm"], HOST), Some(5), "the first that there is");
        assert_eq!(chosen(&offers, &["sockets"], HOST), None);
        assert_eq!(chosen(&offers, &["udp;ofi_rxd"], HOST), None);
        let cards = [Fake("verbs;ofi_rxd", None), Fake("verbs;ofi_rxm", None), Fake("psm3", None)];
        assert_eq!(chosen(&cards, &[], HOST), Some(2));
        assert_eq!(chosen(&cards[..2], &[], HOST), Some(1));
        assert_eq!(names(&offers), ["net", "net;ofi_rxm", "shm", "tcp;ofi_rxm"]);
    }
}
