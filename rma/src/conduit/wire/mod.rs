//! Bytes of messages of conduits over a network: pure encoding and checked decoding, shared by those with the
//! same format.
//!
//! * [`frame`]: an active message on a stream or in a packet.
//! * `handshake`: comes before the first of them on a stream, and proves the job's key both ways.
//!
//! No sockets, devices or clocks here: those are the conduits' matter.

#![forbid(unsafe_code)]

pub mod frame;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
pub(super) mod handshake;
