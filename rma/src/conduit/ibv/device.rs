//! Which device, port and address are used, and how: from what the system tells and what the settings say.
//!
//! Addresses and their types are read from `/sys/class/infiniband`, which every version of the kernel and library has.

#![forbid(unsafe_code)]

use super::IbvOptions;
use super::verbs::types::{PortAttr, number};
use super::verbs::{Context, Route};
use crate::error::{Result, RmaError};
use std::net::Ipv6Addr;
use std::path::Path;
use std::sync::Arc;

const DEVICES: &str = "/sys/class/infiniband";

/// An open device, the way through it, and the limits that matter.
pub(super) struct Chosen {
    pub(super) context: Arc<Context>,
    pub(super) route: Route,
    pub(super) lid: u16,
    pub(super) gid: [u8; 16],
    /// Most requests in a queue pair.
    pub(super) depth_max: u32,
    /// Most entries of a completion queue.
    pub(super) completions_max: u32,
    /// Most slots of a shared receive queue.
    pub(super) slots_max: u32,
}

/// A device as the system shows it, whether or not libibverbs can be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceState {
    /// Its name.
    pub name: String,
    /// Whether one of its ports is active.
    pub active: bool,
}

/// The devices of this machine, by name.
pub fn devices() -> Vec<DeviceState> {
    let entries = std::fs::read_dir(DEVICES).into_iter().flatten().flatten();
    let mut devices: Vec<_> = entries
        .map(|entry| {
            let ports = std::fs::read_dir(entry.path().join("ports")).into_iter().flatten().flatten();
            let active = ports
                .filter_map(|port| std::fs::read_to_string(port.path().join("state")).ok())
                .any(|state| state.contains("ACTIVE"));
            DeviceState { name: entry.file_name().to_string_lossy().into_owned(), active }
        })
        .collect();
    devices.sort_by(|a, b| a.name.cmp(&b.name));
    devices
}

/// Opens what the options name. `index`: which of several active devices an endpoint without a named one takes (so the
/// nodes of a machine with several cards use them all).
pub(super) fn choose(options: &IbvOptions, index: usize) -> Result<Chosen> {
    let name = match &options.device {
        Some(name) => name.clone(),
        None => {
            let usable = Context::device_names()?;
            let active: Vec<_> = devices()
                .into_iter()
                .filter(|device| device.active && usable.contains(&device.name))
                .map(|device| device.name)
                .collect();
            let refused = || {
                RmaError::Refused(format!(
                    "the ibv conduit needs an RDMA device with an active port, and this machine has none (known to \
                     libibverbs: {}); tcp works over any network",
                    if usable.is_empty() { "none".into() } else { usable.join(", ") }
                ))
            };
            active.get(index % active.len().max(1)).ok_or_else(refused)?.clone()
        }
    };
    let context = Context::open(&name)?;
    let limits = context.limits()?;
    let port = context.port(options.port)?;
    if port.state != number::IBV_PORT_ACTIVE {
        let what =
            format!("port {} of {name} is not active: check the cable, or name another port", options.port);
        return Err(RmaError::Refused(what));
    }
    let gids = gids(&name, options.port);
    let gid = choose_gid(&gids, port.link_layer == number::IBV_LINK_LAYER_ETHERNET, options.gid)
        .map_err(|reason| RmaError::Refused(format!("{name}, port {}: {reason}", options.port)))?;
    let reads = limits.max_qp_rd_atom.clamp(1, 16) as u8;
    let route = Route {
        port: options.port,
        gid_index: gid.map(|gid| gid.index),
        mtu: mtu(&port, options.mtu).map_err(RmaError::Refused)?,
        timeout: options.timeout,
        retries: options.retries,
        reads,
    };
    Ok(Chosen {
        context,
        route,
        lid: port.lid,
        gid: gid.map_or([0; 16], |gid| gid.address.octets()),
        depth_max: limits.max_qp_wr.max(1) as u32,
        completions_max: limits.max_cqe.max(1) as u32,
        slots_max: limits.max_srq_wr.max(1) as u32,
    })
}

/// The code of the path's MTU: what the port has, or less if that is wished.
fn mtu(port: &PortAttr, wished: Option<u32>) -> Result<i32, String> {
    let Some(wished) = wished else { return Ok(port.active_mtu) };
    let code = match wished {
        256 => 1,
        512 => 2,
        1024 => 3,
        2048 => 4,
        4096 => 5,
        _ => return Err(format!("an MTU of {wished}: 256, 512, 1024, 2048 and 4096 exist")),
    };
    if code > port.active_mtu {
        return Err(format!("an MTU of {wished}: the port has {}", 128 << port.active_mtu));
    }
    Ok(code)
}

/// An address of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct GidEntry {
    index: u8,
    address: Ipv6Addr,
    is_v2: bool,
}

fn gids(device: &str, port: u8) -> Vec<GidEntry> {
    let folder = Path::new(DEVICES).join(device).join("ports").join(port.to_string());
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    (0..=u8::MAX)
        .filter_map(|index| {
            let address = read(&folder.join("gids").join(index.to_string()))?.trim().parse().ok()?;
            // Unreadable for entries that are not in use.
            let kind = read(&folder.join("gid_attrs/types").join(index.to_string()))?;
            Some(GidEntry { index, address, is_v2: kind.trim() == "RoCE v2" })
        })
        .filter(|entry| !entry.address.is_unspecified())
        .collect()
}

/// On Ethernet, RoCE v2 over IPv4 before RoCE v2 before v1; on InfiniBand none is needed.
fn choose_gid(gids: &[GidEntry], ethernet: bool, wished: Option<u8>) -> Result<Option<GidEntry>, String> {
    if let Some(index) = wished {
        let found = gids.iter().find(|entry| entry.index == index);
        return found.copied().map(Some).ok_or(format!("no address has the GID index {index}"));
    }
    if !ethernet {
        return Ok(None);
    }
    let worth = |entry: &&GidEntry| (entry.is_v2, entry.address.to_ipv4_mapped().is_some());
    // The first of the best.
    let best = gids.iter().rev().max_by_key(worth);
    best.copied().map(Some).ok_or("no address: give its network interface one (`ip addr add`)".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roce_v2_over_ipv4_is_preferred() {
        let entry =
            |index, address: &str, is_v2| GidEntry { index, address: address.parse().unwrap(), is_v2 };
        let all = [
            entry(0, "fe80::1", false),
            entry(1, "fe80::1", true),
            entry(2, "::ffff:10.0.0.1", false),
            entry(3, "::ffff:10.0.0.1", true),
            entry(4, "::ffff:10.0.0.2", true),
        ];
        let index = |gids: &[GidEntry], ethernet, wished| {
            choose_gid(gids, ethernet, wished).map(|gid| gid.map(|gid| gid.index))
        };
        assert_eq!(index(&all, true, None), Ok(Some(3)));
        assert_eq!(index(&all[..3], true, None), Ok(Some(1)));
        assert_eq!(index(&all[..1], true, None), Ok(Some(0)));
        assert_eq!(index(&all, true, Some(2)), Ok(Some(2)));
        assert_eq!(index(&all, false, None), Ok(None));
        assert!(index(&[], true, None).unwrap_err().contains("ip addr add"));
        assert!(index(&all, true, Some(9)).unwrap_err().contains('9'));
    }
}
