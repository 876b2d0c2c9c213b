//! Programs on vgas: benchmarks, and out-of-core matrix multiplication.

pub mod gemm;
pub mod global;
pub mod plot;
pub mod registry;
mod suite;
