//! Endpoints with active messages, put/get, barriers and collectives over interchangeable conduits, and the
//! start-up of a job. (being written)

pub mod address;
pub mod conduit;
pub mod cores;
pub mod endpoint;
pub mod error;
pub mod job;
pub mod key;
pub mod message;
pub mod shm;

pub use address::{Layout, NodeId, Peer, Rank, RegionId};
pub use error::{Result, RmaError};
