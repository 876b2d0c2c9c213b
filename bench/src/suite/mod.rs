//! The benchmarks themselves, one file each. Every figure is taken together with what it is held against, in turn and in
//! the same run, so that a busy machine is busy for both; see [`report`] for what is made of the samples.

mod atomics;
mod child;
mod cooperative;
mod deref;
mod device;
mod false_sharing;
mod fetch;
mod files;
mod gemm;
mod handon;
mod hit;
mod job;
mod line;
mod local;
mod messages;
mod nodes;
mod objects;
mod protocol;
mod random;
mod raw;
mod report;
mod rma;
mod segments;
mod seq;
mod start;

use crate::registry::Benchmark;

/// All of them, in the order in which they are listed.
pub(crate) static ALL: &[Benchmark] = &[
    hit::BENCHMARK,
    rma::BENCHMARK,
    fetch::BENCHMARK,
    device::BENCHMARK,
    segments::BENCHMARK,
    seq::BENCHMARK,
    random::BENCHMARK,
    false_sharing::BENCHMARK,
    local::BENCHMARK,
    atomics::BENCHMARK,
    objects::BENCHMARK,
    handon::BENCHMARK,
    deref::BENCHMARK,
    messages::BENCHMARK,
    gemm::BENCHMARK,
    cooperative::BENCHMARK,
    protocol::BENCHMARK,
    nodes::SEQUENTIAL,
    nodes::RANDOM,
    start::BENCHMARK,
];
