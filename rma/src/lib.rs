//! Endpoints with active messages, put/get, barriers and collectives over interchangeable conduits, and the
//! start-up of a job. (being written)

#![deny(clippy::print_stdout, clippy::print_stderr)] // See `vgas_rma::say`.

pub mod address;
pub mod conduit;
pub mod cores;
pub mod endpoint;
pub mod error;
pub mod job;
pub mod key;
pub mod message;
pub mod say;
pub mod shm;

pub use address::{Layout, NodeId, Peer, Rank, RegionId};
pub use error::{Result, RmaError};
