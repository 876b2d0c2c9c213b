//! Resources of virtual nodes, where the system provides them: a network namespace with a cable to a switch
//! (`network.rs`), and a bound of memory (`group.rs`).
//!
//! The node's daemon has both from its first instruction on, and so have all its children. Namespaces have no
//! name: they are gone with the last process in them. Groups are folders: the launcher removes them, a daemon
//! whose launcher was killed removes its own, and those left when both were killed go when the next group is
//! made.

#![forbid(unsafe_code)]

mod group;
mod network;

pub use group::Group;
pub(crate) use group::OuterGroups;
pub use network::holds_back;

use super::system;
use network::Networks;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Child, Command};
use vgas_rma::address::NodeId;
use vgas_rma::error::Result;

/// The interface of a node in its own namespace.
pub(crate) const INTERFACE: &str = "vgas0";

/// Resources of each virtual node of a job. The default is nothing: virtual nodes differ by their processes
/// only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Own {
    /// A network namespace. Needs root, `ip`, and a conduit over TCP if there are several nodes.
    pub network: Option<Cable>,
    /// Limit of memory in bytes, caches of files and shared memory included; a process beyond it is killed.
    /// Needs root and control groups.
    pub memory_bytes: Option<u64>,
}

/// The cable of a namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cable {
    /// Bits a second each way; as fast as the machine goes when none. Needs `tc`, and tbf of the kernel.
    pub bits_per_second: Option<u64>,
}

/// Resources of a job's nodes.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    networks: Option<Networks>,
    groups: Vec<Group>,
}

impl Parts {
    /// Makes them.
    pub(crate) fn create(own: &Own, nodes: u32) -> Result<Self> {
        let networks = own.network.map(|cable| Networks::create(nodes, cable)).transpose()?;
        let bytes = own.memory_bytes.into_iter();
        let groups = bytes.flat_map(|bytes| (0..nodes).map(move |node| (node, bytes)));
        let groups = groups.map(|(node, bytes)| Group::create(&format!("node{node}"), bytes));
        Ok(Self { networks, groups: groups.collect::<Result<_>>()? })
    }

    /// Starts the daemon of a node with the node's resources.
    pub(crate) fn spawn(&self, command: &mut Command, node: NodeId) -> std::io::Result<Child> {
        let namespace = self.networks.as_ref().map(|networks| networks.of(node).as_fd());
        let members = self.groups.get(node.0 as usize).map(Group::members).transpose()?;
        system::spawn_within(command, namespace, members.as_ref().map(|file| file.as_fd()))
    }

    /// The folder of a node's group.
    pub(crate) fn group(&self, node: NodeId) -> Option<PathBuf> {
        self.groups.get(node.0 as usize).map(|group| group.path().to_owned())
    }

    /// Returns the nodes with a process killed for want of memory.
    pub(crate) fn exhausted(&self) -> impl Iterator<Item = NodeId> {
        (0..).map(NodeId).zip(&self.groups).filter(|(_, group)| group.has_killed()).map(|(node, _)| node)
    }
}
