//! Selection of device, port and address, from the system's information and the settings.
//!
//! Addresses and their types are read from `/sys/class/infiniband`, which every version of the kernel and library has.

#![forbid(unsafe_code)]

use super::IbvOptions;
use super::verbs::types::{PortAttr, number};
use super::verbs::{Context, Reads, Route};
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
    /// True if it updates words, at least atomically with itself.
    pub(super) atomics: bool,
}

/// A device as the system shows it, whether or not libibverbs can be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceState {
    /// Its name.
    pub name: String,
    /// True if one of its ports is active.
    pub active: bool,
    /// True if it speaks iWARP, which has no WRITE with immediate data.
    is_iwarp: bool,
    ports: Vec<PortState>,
}

/// A port as the system shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PortState {
    number: u8,
    active: bool,
    is_infiniband: bool,
    /// In tenths of Gbit/s.
    rate: u32,
}

impl PortState {
    /// Ranks ports: networks made for RDMA first, then the faster ones.
    fn worth(&self) -> (bool, u32) {
        (self.is_infiniband, self.rate)
    }
}

/// The devices of this machine, by name.
pub fn devices() -> Vec<DeviceState> {
    devices_in(Path::new(DEVICES))
}

fn entries(folder: &Path) -> impl Iterator<Item = std::fs::DirEntry> {
    std::fs::read_dir(folder).into_iter().flatten().flatten()
}

fn devices_in(folder: &Path) -> Vec<DeviceState> {
    let text = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
    let port = |entry: std::fs::DirEntry| {
        let rate = text(&entry.path().join("rate"));
        // "2.5 Gb/sec (1X SDR)"
        let rate = rate.split(' ').next().and_then(|number| number.parse::<f32>().ok());
        Some(PortState {
            number: entry.file_name().to_str()?.parse().ok()?,
            active: text(&entry.path().join("state")).contains("ACTIVE"),
            is_infiniband: text(&entry.path().join("link_layer")).trim() == "InfiniBand",
            rate: rate.map_or(0, |rate| (rate * 10.0) as u32),
        })
    };
    let mut devices: Vec<_> = entries(folder)
        .map(|entry| {
            let mut ports: Vec<_> = entries(&entry.path().join("ports")).filter_map(port).collect();
            ports.sort_by_key(|port| port.number);
            DeviceState {
                name: entry.file_name().to_string_lossy().into_owned(),
                active: ports.iter().any(|port| port.active),
                is_iwarp: text(&entry.path().join("node_type")).contains("RNIC"),
                ports,
            }
        })
        .collect();
    devices.sort_by(|a, b| a.name.cmp(&b.name));
    devices
}

/// Selects device and port. `usable`: devices that libibverbs has a provider for. `index`: the number of
/// earlier endpoints' nodes on this machine; nodes of one machine spread over equally good devices.
fn select(
    devices: &[DeviceState],
    usable: &[String],
    device: Option<&str>,
    port: Option<u8>,
    index: usize,
) -> Result<(String, u8), String> {
    let best_port = |state: &DeviceState| {
        let ports = state.ports.iter().filter(|p| p.active && port.is_none_or(|number| p.number == number));
        // The first of the best.
        ports.rev().max_by_key(|port| port.worth()).copied()
    };
    if let Some(name) = device {
        let state = devices.iter().find(|state| state.name == name);
        let found = state.and_then(best_port).map(|port| port.number);
        // Opening it shows if there is such a device and port.
        return Ok((name.to_owned(), found.or(port).unwrap_or(1)));
    }
    let candidates: Vec<_> = devices
        .iter()
        .filter(|state| !state.is_iwarp && usable.contains(&state.name))
        .filter_map(|state| Some((state, best_port(state)?)))
        .collect();
    let best = candidates.iter().map(|(_, port)| port.worth()).max();
    let best: Vec<_> = candidates.iter().filter(|(_, port)| Some(port.worth()) == best).collect();
    match best.get(index % best.len().max(1)) {
        Some((state, port)) => Ok((state.name.clone(), port.number)),
        None => Err(why_none(devices, usable)),
    }
}

/// Returns the reason why no device can be used, and the remedy, in one line.
fn why_none(devices: &[DeviceState], usable: &[String]) -> String {
    let each = devices.iter().map(|state| {
        let reason = if !usable.contains(&state.name) {
            "has no provider in libibverbs (Debian: `apt install ibverbs-providers`)"
        } else if state.is_iwarp {
            "speaks iWARP, which lacks what this conduit sends blocks with (WRITE with immediate data)"
        } else if !state.active {
            "has no active port (check the cable, the interface, the subnet manager)"
        } else {
            "has another active port than ibv.port"
        };
        format!("{} {reason}", state.name)
    });
    let reasons: Vec<_> = each.collect();
    format!(
        "the ibv conduit needs an RDMA device with an active port: {}; tcp works over any network",
        if reasons.is_empty() { "this machine has no RDMA device".into() } else { reasons.join(", ") }
    )
}

/// Opens what the options name, or the best there is (see [`select`]).
pub(super) fn choose(options: &IbvOptions, index: usize) -> Result<Chosen> {
    let (device, port) = (options.device.as_deref(), options.port);
    let (name, port_number) =
        select(&devices(), &Context::device_names()?, device, port, index).map_err(RmaError::Refused)?;
    let context = Context::open(&name)?;
    let limits = context.limits()?;
    let port = context.port(port_number)?;
    if port.state != number::IBV_PORT_ACTIVE {
        let what = format!(
            "port {port_number} of {name} is not active: check the cable, or name another with ibv.port"
        );
        return Err(RmaError::Refused(what));
    }
    let gids = gids_in(Path::new(DEVICES), &name, port_number);
    let gid = choose_gid(&gids, port.link_layer == number::IBV_LINK_LAYER_ETHERNET, options.gid)
        .map_err(|reason| RmaError::Refused(format!("{name}, port {port_number}: {reason}")))?;
    let reads = Reads { asked: reads(limits.max_qp_init_rd_atom), answered: reads(limits.max_qp_rd_atom) };
    let route = Route {
        port: port_number,
        gid_index: gid.map(|gid| gid.index),
        mtu: mtu(&port, options.mtu).map_err(RmaError::Refused)?,
        timeout: options.timeout,
        retries: options.retries,
        service_level: options.service_level,
        traffic_class: options.traffic_class,
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
        atomics: limits.atomic_cap != number::IBV_ATOMIC_NONE,
    })
}

/// READs and atomic updates that a connection has room for, if the device has as many: the usual number of
/// cards, which hides the round trip. More would cost every queue pair memory.
fn reads(limit: i32) -> u8 {
    limit.clamp(1, 16) as u8
}

/// Returns the code of the path's MTU: the port's, or less on request.
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

fn gids_in(folder: &Path, device: &str, port: u8) -> Vec<GidEntry> {
    let folder = folder.join(device).join("ports").join(port.to_string());
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    (0..=u8::MAX)
        .filter_map(|index| {
            // Most entries are not in use: their address is nothing, their type unreadable.
            let address: Ipv6Addr =
                read(&folder.join("gids").join(index.to_string()))?.trim().parse().ok()?;
            if address.is_unspecified() {
                return None;
            }
            let kind = read(&folder.join("gid_attrs/types").join(index.to_string()))?;
            Some(GidEntry { index, address, is_v2: kind.trim() == "RoCE v2" })
        })
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
    use proptest::prelude::*;
    use std::fs;

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
        assert_eq!(index(&all, false, None), Ok(None), "InfiniBand needs no address within a subnet");
        assert!(index(&[], true, None).unwrap_err().contains("ip addr add"));
        assert!(index(&all, true, Some(9)).unwrap_err().contains('9'));
    }

    /// Ports as (number, active, link layer, rate), as `/sys/class/infiniband` has them.
    type Port<'a> = (u8, bool, &'a str, &'a str);

    fn machine(devices: &[(&str, &str, &[Port<'_>])]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, node_type, ports) in devices {
            let device = folder.path().join(name);
            fs::create_dir(&device).unwrap();
            fs::write(device.join("node_type"), format!("{node_type}\n")).unwrap();
            for (number, active, link_layer, rate) in *ports {
                let port = device.join("ports").join(number.to_string());
                fs::create_dir_all(&port).unwrap();
                fs::write(port.join("state"), if *active { "4: ACTIVE\n" } else { "1: DOWN\n" }).unwrap();
                fs::write(port.join("link_layer"), format!("{link_layer}\n")).unwrap();
                fs::write(port.join("rate"), format!("{rate}\n")).unwrap();
            }
        }
        folder
    }

    const CARD: &str = "1: CA";
    const EDR: &str = "100 Gb/sec (4X EDR)";
    const ROCE: &str = "25 Gb/sec (1X EDR)";

    fn selected(
        devices: &[(&str, &str, &[Port<'_>])],
        wish: (Option<&str>, Option<u8>),
        index: usize,
    ) -> Result<(String, u8), String> {
        let folder = machine(devices);
        let usable: Vec<_> = devices.iter().map(|(name, ..)| (*name).to_owned()).collect();
        select(&devices_in(folder.path()), &usable, wish.0, wish.1, index)
    }

    /// Goal: the usual devices of a cluster's machines are used without a setting, and the same on all of
    /// them.
    #[test]
    fn the_fabric_is_taken_before_the_storage_network() {
        let any = (None, None);
        let up = |layer, rate| (1, true, layer, rate);
        let both: [(_, _, &[Port<'_>]); 2] =
            [("mlx5_0", CARD, &[up("Ethernet", ROCE)]), ("mlx5_1", CARD, &[up("InfiniBand", EDR)])];
        for index in 0..3 {
            assert_eq!(selected(&both, any, index), Ok(("mlx5_1".into(), 1)));
        }
        let rails: [(_, _, &[Port<'_>]); 3] = [
            ("mlx5_0", CARD, &[up("InfiniBand", EDR)]),
            ("mlx5_1", CARD, &[up("Ethernet", EDR)]),
            ("mlx5_2", CARD, &[up("InfiniBand", EDR)]),
        ];
        let names: Vec<_> = (0..3).map(|index| selected(&rails, any, index).unwrap().0).collect();
        assert_eq!(names, ["mlx5_0", "mlx5_2", "mlx5_0"], "nodes of one machine spread over equal devices");
        let speeds: [(_, _, &[Port<'_>]); 2] =
            [("bnxt_re0", CARD, &[up("Ethernet", ROCE)]), ("mlx5_0", CARD, &[up("Ethernet", EDR)])];
        assert_eq!(selected(&speeds, any, 0), Ok(("mlx5_0".into(), 1)), "the faster one");
        assert_eq!(
            selected(&speeds, (Some("bnxt_re0"), None), 0),
            Ok(("bnxt_re0".into(), 1)),
            "the named one"
        );
    }

    #[test]
    fn a_port_that_is_up_is_taken() {
        let ports = [(1, false, "InfiniBand", EDR), (2, true, "InfiniBand", EDR)];
        let one: [(_, _, &[Port<'_>]); 1] = [("mlx4_0", CARD, &ports)];
        assert_eq!(selected(&one, (None, None), 0), Ok(("mlx4_0".into(), 2)));
        assert_eq!(selected(&one, (Some("mlx4_0"), None), 0), Ok(("mlx4_0".into(), 2)));
        assert_eq!(selected(&one, (Some("mlx4_0"), Some(1)), 0), Ok(("mlx4_0".into(), 1)), "as it was told");
        assert_eq!(selected(&one, (None, Some(2)), 0), Ok(("mlx4_0".into(), 2)));
        assert!(selected(&one, (None, Some(1)), 0).unwrap_err().contains("ibv.port"));
    }

    /// Goal: without a usable device, one line gives the reason and the remedy.
    #[test]
    fn what_is_missing_is_said() {
        let any = (None, None);
        assert!(selected(&[], any, 0).unwrap_err().contains("no RDMA device"));
        let down: [(_, _, &[Port<'_>]); 1] = [("mlx5_0", CARD, &[(1, false, "InfiniBand", EDR)])];
        assert!(selected(&down, any, 0).unwrap_err().contains("mlx5_0 has no active port"));
        let iwarp: [(_, _, &[Port<'_>]); 1] = [("iwl0", "4: RNIC", &[(1, true, "Ethernet", ROCE)])];
        assert!(selected(&iwarp, any, 0).unwrap_err().contains("iWARP"));
        let folder = machine(&[("mlx5_0", CARD, &[(1, true, "InfiniBand", EDR)])]);
        let unusable = select(&devices_in(folder.path()), &[], None, None, 0).unwrap_err();
        assert!(unusable.contains("ibverbs-providers"), "{unusable}");
        assert!(!unusable.contains('\n'));
        assert_eq!(devices_in(&folder.path().join("nothing")), []);
    }

    #[test]
    fn addresses_are_read_from_the_system() {
        let folder = machine(&[("rxe0", CARD, &[(1, true, "Ethernet", ROCE)])]);
        let port = folder.path().join("rxe0/ports/1");
        fs::create_dir_all(port.join("gids")).unwrap();
        fs::create_dir_all(port.join("gid_attrs/types")).unwrap();
        let entries = [
            (0, "fe80:0000:0000:0000:0000:00ff:fe00:0001", Some("RoCE v2\n")),
            (1, "0000:0000:0000:0000:0000:ffff:0a09:0001", Some("RoCE v2\n")),
            (2, "0000:0000:0000:0000:0000:0000:0000:0000", Some("RoCE v2\n")),
            (3, "0000:0000:0000:0000:0000:ffff:0a09:0002", None),
        ];
        for (index, address, kind) in entries {
            fs::write(port.join(format!("gids/{index}")), format!("{address}\n")).unwrap();
            if let Some(kind) = kind {
                fs::write(port.join(format!("gid_attrs/types/{index}")), kind).unwrap();
            }
        }
        let gids = gids_in(folder.path(), "rxe0", 1);
        assert_eq!(gids.iter().map(|gid| gid.index).collect::<Vec<_>>(), [0, 1], "only what is in use");
        assert_eq!(choose_gid(&gids, true, None).unwrap().unwrap().index, 1);
    }

    #[test]
    fn reads_in_flight_are_what_both_sides_can() {
        let card = |asked, answered| Reads { asked: reads(asked), answered: reads(answered) };
        let (large, small) = (card(128, 128), card(4, 1));
        assert_eq!(large.with(large), Reads { asked: 16, answered: 16 });
        assert_eq!(large.with(small), Reads { asked: 1, answered: 4 });
        assert_eq!(small.with(large), Reads { asked: 4, answered: 1 });
    }

    #[test]
    fn the_mtu_is_the_ports_unless_less_is_wished() {
        let port = |active_mtu| PortAttr { active_mtu, ..PortAttr::default() };
        assert_eq!(mtu(&port(5), None), Ok(5));
        assert_eq!(mtu(&port(5), Some(1024)), Ok(3));
        assert_eq!(mtu(&port(3), Some(1024)), Ok(3));
        assert!(mtu(&port(3), Some(2048)).unwrap_err().contains("the port has 1024"));
        assert!(mtu(&port(3), Some(1500)).unwrap_err().contains("exist"));
    }

    proptest! {
        /// Whatever the files say, reading them does not fail.
        #[test]
        fn odd_files_are_survived(rate in ".{0,20}", state in ".{0,20}") {
            let folder = machine(&[("odd0", CARD, &[(1, true, &state, &rate)])]);
            prop_assert_eq!(devices_in(folder.path()).len(), 1);
        }
    }
}
