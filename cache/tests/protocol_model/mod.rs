//! A small world around the shipped step functions: nodes, ordered channels, an NVMe that completes when it likes,
//! and page contents modelled as version numbers. The walk, the planted faults and the stories run it.
//!
//! The world does what the agent does with actions, and nothing that the protocol ought to do: every decision is
//! taken by `line::step` and `home::step`.
#![allow(dead_code, reason = "each test binary uses its part")]

pub mod fault;
pub mod invariant;
pub mod walk;
pub mod world;
