//! Listeners of a node's processes: one each, bound by the daemon before any rank runs, so that every address
//! is known and answering when the first rank connects.

#![forbid(unsafe_code)]

use super::spec::Listen;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, TcpListener, ToSocketAddrs};
use vgas_rma::conduit::interfaces::{interface_address, interface_addresses};
use vgas_rma::error::{Result, RmaError};

/// Binds one for the daemons of an externally started job. `SSH_CONNECTION` is of a login elsewhere there.
pub(crate) fn bind_here(listen: &Listen) -> Result<TcpListener> {
    let address = match &listen.interface {
        Some(_) => address(listen)?,
        None => own_name_address().unwrap_or(Ipv4Addr::LOCALHOST.into()),
    };
    TcpListener::bind((address, 0)).map_err(|e| RmaError::io(format!("listen on {address}"), e))
}

/// Binds `count` listeners and returns them in order.
pub(crate) fn bind(listen: &Listen, count: usize) -> Result<Vec<TcpListener>> {
    let address = address(listen)?;
    let mut ports = listen.ports.map(|(first, last)| first..=last);
    let mut listeners = Vec::with_capacity(count);
    while listeners.len() < count {
        let port = match &mut ports {
            None => 0,
            Some(ports) => ports.next().ok_or_else(|| no_port_left(listen, address, count))?,
        };
        match TcpListener::bind((address, port)) {
            Ok(listener) => listeners.push(listener),
            // In a range, others may have some: jobs on the same machine share it.
            Err(error) if error.kind() == ErrorKind::AddrInUse && ports.is_some() => {}
            Err(error) => return Err(RmaError::io(format!("listen on {address} port {port}"), error)),
        }
    }
    Ok(listeners)
}

fn no_port_left(listen: &Listen, address: IpAddr, count: usize) -> RmaError {
    let (first, last) = listen.ports.unwrap_or_default();
    let what = format!(
        "listen on {address}: {count} free ports are needed (one a rank, one for the agent), and too many of \
         {first}-{last} are in use; choose a larger or another range"
    );
    RmaError::io(what, ErrorKind::AddrInUse.into())
}

/// The address under which the other nodes reach this one.
fn address(listen: &Listen) -> Result<IpAddr> {
    if let Some(interface) = &listen.interface {
        let parsed = interface.parse().ok();
        return parsed.or_else(|| interface_address(interface)).ok_or_else(|| {
            RmaError::Refused(format!(
                "{interface:?} is no address and no interface with an address on {}",
                host()
            ))
        });
    }
    if listen.loopback {
        return Ok(Ipv4Addr::LOCALHOST.into());
    }
    // "client-address client-port server-address server-port": the third is where ssh reached this host.
    let ssh = std::env::var("SSH_CONNECTION").ok().filter(|_| listen.by_ssh).unwrap_or_default();
    let reached = ssh.split_whitespace().nth(2).and_then(|address| address.parse().ok());
    Ok(reached.or_else(own_name_address).unwrap_or(Ipv4Addr::LOCALHOST.into()))
}

/// Resolves this host's name; if that is loopback, or nothing, returns the address of an interface that leads
/// elsewhere.
fn own_name_address() -> Option<IpAddr> {
    let named = (host(), 0).to_socket_addrs().into_iter().flatten().map(|address| address.ip());
    let others = interface_addresses().into_iter().map(|(_, address)| address).filter(|ip| ip.is_ipv4());
    // The last of several that are as good.
    others.chain(named).max_by_key(|ip| (!ip.is_loopback(), ip.is_ipv4()))
}

/// The name of this machine, for people.
pub(crate) fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loopback(ports: Option<(u16, u16)>) -> Listen {
        Listen { loopback: true, by_ssh: false, interface: None, ports }
    }

    #[test]
    fn a_range_skips_ports_in_use_and_says_when_it_is_too_small() {
        // A port that the system chose, kept open: the range of just that port has none left.
        let taken = bind(&loopback(None), 1).unwrap();
        let port = taken[0].local_addr().unwrap().port();
        let error = bind(&loopback(Some((port, port))), 1).unwrap_err().to_string();
        assert!(error.contains(&format!("{port}-{port} are in use")), "{error}");
        drop(taken);
        assert!(bind(&loopback(Some((port, port))), 1).is_ok());
    }

    #[test]
    fn an_interface_is_an_address_or_a_name() {
        for (interface, good) in [("127.0.0.1", true), ("lo", true), ("nonsense0", false)] {
            let listen =
                Listen { loopback: false, by_ssh: false, interface: Some(interface.into()), ports: None };
            assert_eq!(bind(&listen, 2).is_ok(), good, "{interface}");
        }
    }
}
