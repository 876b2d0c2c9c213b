//! Programs on vgas: benchmarks, and out-of-core matrix multiplication.

#![deny(clippy::print_stdout, clippy::print_stderr)] // See `vgas_rma::say`.

pub mod figure;
pub mod gemm;
pub mod global;
mod raw;
pub mod registry;
mod row;
mod suite;
