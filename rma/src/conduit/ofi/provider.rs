//! The row of `ofi` in the table of conduits.

#![forbid(unsafe_code)]

use super::choice::{AUTOMATIC, choose, names};
use super::{NAME, OfiConduit, OfiOptions, REMEDY, fabric};
use crate::conduit::factory::{Availability, OpenMode, Provider, Reach, Slow};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// Any network that libfabric knows. Its settings are those of [`OfiOptions::read`].
pub(in crate::conduit) static PROVIDER: Provider = Provider {
    name: NAME,
    reach: Reach::SeveralHosts,
    way: OpenMode::Opened(|spec, options| Ok(Arc::new(OfiConduit::new(spec, OfiOptions::read(options)?)?))),
    probe,
    slow: Some(Slow {
        what: "libfabric looks for network cards, which takes 0.4 s on an idle machine",
        begin: || drop(fabric::offers()),
    }),
};

fn probe() -> Availability {
    let (major, minor) = match fabric::version() {
        Ok(version) => version,
        Err(reason) => {
            let reason = reason.split(';').next().unwrap_or_default();
            return Availability::missing(format!("libfabric is missing ({reason})"), REMEDY);
        }
    };
    let library = format!("libfabric {major}.{minor}");
    let offers = match fabric::offers() {
        Ok(offers) => offers,
        Err(reason) => return Availability::missing(format!("{library}: {reason}"), "see `fi_info`"),
    };
    let named = names(offers);
    match (choose(offers, &[], IpAddr::V4(Ipv4Addr::LOCALHOST)), named.as_slice()) {
        (Some(offer), _) => Availability::Available {
            detail: format!("{library} with {} on {} ({})", offer.provider, offer.domain, named.join(", ")),
        },
        (None, []) => Availability::missing(
            format!("{library} has no provider that is of use here"),
            "see `fi_info -l`; tcp works over any network",
        ),
        (None, _) => Availability::Limited {
            detail: format!(
                "{library} with {}, and none of those for network cards ({})",
                named.join(", "),
                AUTOMATIC.join(", ")
            ),
            remedy: format!("ofi.provider={} takes one of them", usual(&named)),
        },
    }
}

/// Returns the most tested of the providers without a card.
fn usual<'a>(named: &[&'a str]) -> &'a str {
    named.iter().copied().find(|name| *name == "tcp;ofi_rxm").or(named.first().copied()).unwrap_or("NAME")
}
