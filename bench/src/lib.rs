//! Programs on vgas: benchmarks, and out-of-core matrix multiplication.

pub mod gemm;
