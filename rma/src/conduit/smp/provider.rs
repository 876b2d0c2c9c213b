//! The row of `smp` in the table of conduits.

#![forbid(unsafe_code)]

use super::NAME;
use crate::conduit::factory::{Availability, OpenMode, Provider, Reach};

/// Shared memory. Nothing is opened: the domain carries it.
pub(in crate::conduit) static PROVIDER: Provider =
    Provider { name: NAME, reach: Reach::OneHost, way: OpenMode::Domain, probe, slow: None };

fn probe() -> Availability {
    let memory = rustix::fs::memfd_create("vgas-info", rustix::fs::MemfdFlags::CLOEXEC);
    let bell = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC);
    match (memory, bell) {
        (Ok(_), Ok(_)) => {
            Availability::Available { detail: "shared memory between the processes of this machine".into() }
        }
        (Err(error), _) | (_, Err(error)) => Availability::missing(
            format!("memfd or eventfd is refused ({error})"),
            "Linux 3.17 or later, and a container that allows memfd_create",
        ),
    }
}
