//! The row of `tcp` in the table of conduits.

#![forbid(unsafe_code)]

use super::{NAME, TcpConduit};
use crate::conduit::factory::{Availability, OpenMode, Provider, Reach};
use std::net::{TcpListener, UdpSocket};
use std::sync::Arc;

/// Sockets. It has no settings of its own: its listening address is decided before it is opened (`job`).
pub(in crate::conduit) static PROVIDER: Provider = Provider {
    name: NAME,
    reach: Reach::SeveralHosts,
    way: OpenMode::Opened(|spec, _options| Ok(Arc::new(TcpConduit::new(spec)?))),
    probe,
    slow: None,
};

fn probe() -> Availability {
    match loopback() {
        Ok(()) => {
            let others = interfaces_to_others();
            let to_others = if others.is_empty() { "no other interface".into() } else { others.join(", ") };
            Availability::Available { detail: format!("loopback and {to_others}") }
        }
        Err(error) => Availability::missing(
            format!("cannot use 127.0.0.1 ({error})"),
            "`ip link set lo up`, or a container with a network",
        ),
    }
}

/// Checks that this machine reaches itself. Listening works even if the loopback interface is down;
/// connecting a datagram socket sends nothing, and looks for a route.
fn loopback() -> std::io::Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    UdpSocket::bind(("127.0.0.1", 0))?.connect(listener.local_addr()?)
}

/// The names of the network interfaces that may lead to other machines, in order.
fn interfaces_to_others() -> Vec<String> {
    let entries = std::fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.retain(|name| name != "lo");
    names.sort();
    names
}
