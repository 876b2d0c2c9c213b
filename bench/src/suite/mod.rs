//! The benchmarks themselves, one file each. Every figure is taken together with what it is held against, in turn and in
//! the same run, so that a busy machine is busy for both; see [`report`] for what is made of the samples.

mod arrivals;
mod atomics;
mod child;
mod cold_random;
mod cold_seq;
mod cooperative;
mod deref;
mod device;
mod false_sharing;
mod fetch;
mod files;
mod gasnet;
mod gemm;
mod gemm_files;
mod gups;
mod handon;
mod heap_scan;
mod hit;
mod increments;
mod job;
mod line;
mod local;
mod messages;
mod objects;
mod pair;
mod policies;
mod predict;
mod product;
mod protocol;
mod raw;
mod replacement;
mod report;
mod rma;
mod segments;
mod seq;
mod start;
mod transfer;

use crate::registry::Benchmark;

/// All of them, in the order in which they are listed: those of a report (`vgas bench all`) first.
pub(crate) static ALL: &[Benchmark] = &[
    protocol::BENCHMARK,
    seq::SEQUENTIAL,
    seq::RANDOM,
    false_sharing::BENCHMARK,
    gemm::BENCHMARK,
    predict::BENCHMARK,
    rma::BENCHMARK,
    device::BENCHMARK,
    hit::BENCHMARK,
    replacement::BENCHMARK,
    gups::BENCHMARK,
    pair::BENCHMARK,
    fetch::BENCHMARK,
    cold_seq::BENCHMARK,
    cold_random::BENCHMARK,
    transfer::BENCHMARK,
    product::BENCHMARK,
    gemm_files::BENCHMARK,
    segments::BENCHMARK,
    local::BENCHMARK,
    atomics::BENCHMARK,
    objects::BENCHMARK,
    handon::BENCHMARK,
    deref::BENCHMARK,
    heap_scan::BENCHMARK,
    increments::BENCHMARK,
    messages::BENCHMARK,
    cooperative::BENCHMARK,
    start::BENCHMARK,
];

/// Number of benchmarks, from the first on, in a report.
pub(crate) const REPORTED: usize = 11;
