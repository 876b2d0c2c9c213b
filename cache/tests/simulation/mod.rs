//! Whole agents on the simulated network: real `Agent`s, real pools, real clients; simulated wires, disks and time, and
//! one thread that lets them take turns in an order drawn from a seed.
//!
//! | file | holds |
//! |---|---|
//! | `plan.rs` | what is simulated: sizes, settings, faults; all drawn from the seed |
//! | `cluster.rs` | the nodes, and letting them take turns |
//! | `model.rs` | what every byte may be at every moment |
//! | `traffic.rs` | what the ranks do |
//! | `pointers.rs` | what they do to their own segments by plain loads and stores |
//! | `invariant.rs` | what must hold between two turns, and at rest |
//! | `sabotage.rs` | what a wrong conduit would do |
//! | `run.rs` | one run from its seed to its findings |
//!
//! Not here: the protocol by itself, which `protocol_walk.rs` explores without gaps. Here is found what the tables do not
//! say: frames, revocations, storage, batching, the client.

// Each test binary uses its own part of this folder.
#![allow(dead_code)]

pub mod cluster;
pub mod invariant;
pub mod model;
pub mod plan;
pub mod pointers;
pub mod run;
pub mod sabotage;
pub mod traffic;

/// Something that must not happen.
#[derive(Debug)]
pub struct Finding {
    /// In a few words, the same for the same kind of finding.
    pub what: &'static str,
    pub detail: String,
}

impl Finding {
    pub fn new(what: &'static str, detail: impl Into<String>) -> Self {
        Self { what, detail: detail.into() }
    }
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.what, self.detail)
    }
}
