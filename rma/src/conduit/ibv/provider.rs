//! The row of `ibv` in the table of conduits.

#![forbid(unsafe_code)]

use super::{
    CM_REMEDY, DeviceState, IbvConduit, IbvOptions, NAME, REMEDY, available, cm_available, devices,
    locked_memory_limit,
};
use crate::conduit::factory::{Availability, OpenMode, Provider, Reach};
use crate::say::rounded;
use std::sync::Arc;

/// RDMA. Its settings are those of [`IbvOptions::read`].
pub(in crate::conduit) static PROVIDER: Provider = Provider {
    name: NAME,
    reach: Reach::SeveralHosts,
    way: OpenMode::Opened(|spec, options| Ok(Arc::new(IbvConduit::new(spec, IbvOptions::read(options)?)?))),
    probe,
    slow: None,
};

fn probe() -> Availability {
    let (active, idle): (Vec<_>, Vec<_>) = devices().into_iter().partition(|device| device.active);
    let hardware = match (active.is_empty(), idle.is_empty()) {
        (false, _) => format!("RDMA over {}", names(&active)),
        (true, false) => format!("no port of {} is active", names(&idle)),
        (true, true) => "this machine has no RDMA device".into(),
    };
    if let Err(reason) = available() {
        let reason = reason.split(';').next().unwrap_or_default().to_owned();
        return Availability::missing(format!("{hardware}, and libibverbs is missing ({reason})"), REMEDY);
    }
    if active.is_empty() {
        let remedy = "an InfiniBand or RoCE card, or `rdma link add rxe0 type rxe netdev eth0` (software); tcp works \
                      over the same network";
        return Availability::missing(hardware, remedy);
    }
    let detail = match cm_available() {
        Ok(()) => format!("{hardware}; librdmacm connects where ibv.network says so"),
        Err(_) => format!("{hardware}; ibv.network cannot be used: {CM_REMEDY}"),
    };
    match locked_memory_limit() {
        // Root is not held to the limit.
        Some(limit) if !rustix::process::geteuid().is_root() => Availability::Limited {
            detail: format!(
                "{detail}, but only {} of memory may be locked, and the cache is",
                rounded(limit)
            ),
            remedy: "`ulimit -l unlimited` before the job".into(),
        },
        _ => Availability::Available { detail },
    }
}

fn names(devices: &[DeviceState]) -> String {
    devices.iter().map(|device| device.name.as_str()).collect::<Vec<_>>().join(", ")
}
