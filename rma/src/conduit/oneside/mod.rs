//! Support for conduits with one-sided access by a device. The device registers memory first; the meaning of
//! a registration is the conduit's.
//!
//! * `regions`: the registrations of regions, by name. `own`: those of the process's own segments, made when they are needed.
//! * `access`: access to each other's regions, and one side's view of the other's. `notices`: set-up, over a
//!   connection that proves the job's key.
//! * `staging`: room in registered memory for bytes that lie in none.

#![forbid(unsafe_code)]

mod access;
pub(super) mod notices;
mod own;
mod regions;
mod staging;

pub(super) use access::{Access, AccessNotice, AccessState, Granted};
pub(super) use notices::{Notice, Notices, bytes_of, words_of};
pub(super) use own::OfferedRegions;
pub(super) use regions::{Name, Regions, Registered};
pub(super) use staging::{SLOT_BYTES, Slots, Staging};
