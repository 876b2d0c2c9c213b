//! Endpoints with active messages, put/get, barriers and collectives over interchangeable conduits (GASNet
//! specification 1.8; vGASNet §II). Start-up, and the addresses of peers, are the matter of the layer above.
//!
//! | module | is |
//! |---|---|
//! | [`collective`] | teams of ranks, and what all members of one do together |
//! | [`endpoint`] | what ranks and agents speak through: active messages, put and get of pinned segments, barriers |
//! | [`conduit`] | the ways between processes, one folder each, and the suite that holds all of them to their promises |
//! | [`domain`] | what the processes of a node share: regions, and the memory of `smp` |
//! | [`say`] | what people read |
//! | [`address`], [`message`], [`key`], [`error`] | the words all of them use |

#![deny(clippy::print_stdout, clippy::print_stderr)] // See `vgas_rma::say`.

pub mod address;
pub mod collective;
pub mod conduit;
pub mod domain;
pub mod endpoint;
pub mod error;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
pub mod key;
pub mod message;
pub mod say;

pub use address::{Layout, NodeId, Peer, PinnedPart, Rank, RegionId};
pub use error::{Result, RmaError};
