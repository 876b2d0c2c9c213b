//! Network namespaces without names: one for each node, and one for the switch between them.
//!
//! A cable is a pair of interfaces, `INTERFACE` in the node's namespace and one of a bridge in the switch's. Both hold back what they
//! send (tbf), so that a node's cable has its rate each way. The programs `ip` and `tc` make and join them.

use super::{Cable, INTERFACE};
use crate::{program, system};
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};
use vgas_rma::address::NodeId;
use vgas_rma::error::{Result, RmaError};

/// Folders of administrators' programs, which need not be in `PATH`.
const FOLDERS: [&str; 3] = ["/usr/sbin", "/sbin", "/usr/bin"];

/// The least that a cable lets pass at once: a packet as long as the kernel hands on in one piece.
const BURST_BYTES_MIN: u64 = 64 << 10;

/// The least room of a queue before a cable.
const QUEUE_BYTES_MIN: u64 = 256 << 10;

/// The namespaces of a job, while the launcher has them open or a process is in them.
#[derive(Debug)]
pub(super) struct Networks {
    nodes: Vec<OwnedFd>,
    /// Bridges forward as long as they are.
    _switch: OwnedFd,
}

impl Networks {
    /// Makes them, with their addresses and cables.
    pub(super) fn create(nodes: u32, cable: Cable) -> Result<Self> {
        let switch = new()?;
        let nodes: Vec<OwnedFd> = (0..nodes).map(|_| new()).collect::<Result<_>>()?;
        let mut lines = String::from("link add bridge0 type bridge\nlink set bridge0 up\n");
        for (node, namespace) in nodes.iter().enumerate() {
            let file = format!("/proc/{}/fd/{}", std::process::id(), namespace.as_raw_fd());
            let _ = writeln!(lines, "link add node{node} type veth peer name {INTERFACE} netns {file}");
            let _ = writeln!(lines, "link set node{node} master bridge0 up");
        }
        tell("ip", switch.as_fd(), &lines)?;
        for (node, namespace) in (0..).zip(&nodes) {
            let address = address(node);
            let lines =
                format!("addr add {address}/16 dev {INTERFACE}\nlink set {INTERFACE} up\nlink set lo up\n");
            tell("ip", namespace.as_fd(), &lines)?;
        }
        if let Some(rate) = cable.bits_per_second {
            let ports = (0..nodes.len()).map(|node| held_back(&format!("node{node}"), rate));
            tell("tc", switch.as_fd(), &ports.collect::<String>())?;
            for namespace in &nodes {
                tell("tc", namespace.as_fd(), &held_back(INTERFACE, rate))?;
            }
        }
        Ok(Self { nodes, _switch: switch })
    }

    /// That of a node.
    pub(super) fn of(&self, node: NodeId) -> &OwnedFd {
        &self.nodes[node.0 as usize]
    }
}

/// The address of a node's interface: of those that are for measuring networks (RFC 2544).
fn address(node: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(198, 18, 0, 0)) + node + 1)
}

/// The line for `tc` that holds back an interface to this rate.
fn held_back(interface: &str, bits_per_second: u64) -> String {
    let bytes_per_second = bits_per_second / 8;
    let burst = (bytes_per_second / 1000).max(BURST_BYTES_MIN);
    let queue = (bytes_per_second / 50).max(QUEUE_BYTES_MIN);
    format!("qdisc add dev {interface} root tbf rate {bits_per_second}bit burst {burst} limit {queue}\n")
}

/// Checks that the kernel, and the installed programs, can limit the rate of an interface. Makes a namespace,
/// in which it tries.
///
/// # Errors
/// If namespaces cannot be made.
pub fn holds_back() -> Result<bool> {
    let scratch = new()?;
    Ok(tell("tc", scratch.as_fd(), &held_back("lo", 1_000_000)).is_ok())
}

fn new() -> Result<OwnedFd> {
    system::new_network().map_err(|error| {
        let advice =
            if error.kind() == std::io::ErrorKind::PermissionDenied { ": they need root" } else { "" };
        RmaError::Refused(format!("network namespaces cannot be made here: {error}{advice}"))
    })
}

/// Has `ip` or `tc` do what these lines say, in a namespace.
fn tell(program: &str, namespace: BorrowedFd<'_>, lines: &str) -> Result<()> {
    let folders = || FOLDERS.map(|folder| Path::new(folder).join(program)).into_iter();
    let found = program::find(program.as_ref(), Path::new("")).or_else(|| folders().find(|it| it.is_file()));
    let Some(path) = found else {
        let why = "is not installed (Debian: iproute2); network namespaces of nodes need it";
        return Err(RmaError::Refused(format!("{program} {why}")));
    };
    let io = |error| RmaError::io(format!("run {program}"), error);
    let mut command = Command::new(path);
    command.args(["-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = system::spawn_within(&mut command, Some(namespace), None).map_err(io)?;
    // It may end before it has read all: then it says why.
    let _ = child.stdin.take().map(|mut stdin| stdin.write_all(lines.as_bytes()));
    let output = child.wait_with_output().map_err(io)?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("it does not say why");
    Err(RmaError::Refused(format!("{program} cannot make the network of the nodes: {said}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: every node has an address of its own, and slow cables let a whole packet pass.
    #[test]
    fn addresses_and_cables() {
        assert_eq!(address(0).to_string(), "198.18.0.1");
        assert_eq!(address(255).to_string(), "198.18.1.0");
        assert_eq!(
            held_back("x", 8_000_000),
            "qdisc add dev x root tbf rate 8000000bit burst 65536 limit 262144\n"
        );
        assert_eq!(
            held_back("x", 10_000_000_000),
            "qdisc add dev x root tbf rate 10000000000bit burst 1250000 limit 25000000\n"
        );
    }
}
