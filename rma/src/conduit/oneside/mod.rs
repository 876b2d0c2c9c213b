//! What conduits need that let a device read and write memory by itself. The device registers memory first, and what a
//! registration is only the conduit knows.
//!
//! * `regions`: the registrations of regions, by name. `own`: those of the process's own segments, made when they are needed.
//! * `staging`: room in registered memory for bytes that lie in none.

#![forbid(unsafe_code)]

mod own;
mod regions;
mod staging;

pub(super) use own::Own;
pub(super) use regions::{Name, Regions, Registered};
pub(super) use staging::{SLOT_BYTES, Slots, Staging};
