//! Tiered segments: the DRAM of all nodes as one cooperative cache over the segment files on their NVMe
//! (vgasnet III).
//!
//! | module | is | may not |
//! |---|---|---|
//! | [`protocol`] | the coherence protocol as a table: pure steps | do anything |
//! | [`page`] | numbers of pages, as types | |
//! | [`partition`] | segments' names, the numbers of their pages, their policies | |
//! | [`pool`] | frames and page table shared by a node; the lock-free hit path | decide |
//! | [`replacement`], [`read_ahead`] | policies: pure | touch shared memory |
//! | [`parts`] | when small gets bring no page in; a rank's threads share what it remembers | touch shared memory |
//! | [`agent`] | one event loop a node: runs the protocol, NVMe, replacement | be waited for by another agent |
//! | [`client`] | a rank's puts and gets | give itself a right to a page that anybody has; it may claim one that nobody has, and use up a right ([`pool::Entry`]) |
//! | [`local`] | plain loads and stores on one's own segment | speak to other nodes |
//! | [`region`] | the numbers of an agent's regions | |
//! | [`request`] | what ranks ask of agents | |
//! | [`service`] | work of libraries at the agents | know of pages |
//! | [`error`] | what can go wrong, and how it travels | |

#![deny(clippy::print_stdout, clippy::print_stderr)] // See `vgas_rma::say`.

pub mod agent;
pub mod client;
pub mod error;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
pub mod local;
pub mod page;
pub mod partition;
pub mod parts;
pub mod pool;
pub mod protocol;
pub mod read_ahead;
pub mod region;
pub mod replacement;
pub mod request;
pub mod service;

pub use error::{CacheError, Failure, FailureKind};
