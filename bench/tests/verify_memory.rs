//! Goal: `--verify` never has a whole matrix in memory, nor vectors as long as one of its sides.
//!
//! Method: products of a row and a column (and the other way round) with a side of 800 000, in a process of its own,
//! whose anonymous memory is looked at whenever a phase reports. The global memory is a file, so that it does not count.
//! With vectors as long as the side, 8 of f64, they would take 51 MB each.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use vgas_bench::gemm::npy::{Dtype, Order, Shape2};
use vgas_bench::gemm::output::path_of;
use vgas_bench::gemm::{GemmJob, GlobalMemory, MemoryResult, Phase, Plan, demo, inspect, run};

const SIDE: u64 = 800_000;

/// What a rank may have is 64 MiB beyond the cache and communication buffers; this is less than one such vector.
const BYTES_MAX: u64 = 40 << 20;

/// One rank, whose segment is a file.
struct FileMemory(File);

impl GlobalMemory for FileMemory {
    fn rank(&self) -> usize {
        0
    }

    fn ranks(&self) -> usize {
        1
    }

    fn ranks_on_node(&self) -> usize {
        1
    }

    fn threads(&self) -> usize {
        1
    }

    fn page_bytes(&self) -> u64 {
        64 << 10
    }

    fn cache_bytes(&self) -> u64 {
        256 << 20
    }

    fn put(&self, _: usize, offset: u64, bytes: &[u8]) -> MemoryResult<()> {
        Ok(self.0.write_all_at(bytes, offset)?)
    }

    fn get(&self, _: usize, offset: u64, into: &mut [u8]) -> MemoryResult<()> {
        Ok(self.0.read_exact_at(into, offset)?)
    }

    fn barrier(&self) -> MemoryResult<()> {
        Ok(())
    }

    fn all_reduce_max(&self, value: f64) -> MemoryResult<f64> {
        Ok(value)
    }

    fn all_reduce_sum(&self, value: f64) -> MemoryResult<f64> {
        Ok(value)
    }
}

#[test]
fn verification_needs_little_memory_whatever_the_shape() {
    let folder = tempfile::tempdir().unwrap();
    let short = 2;
    for (m, n, k) in [(short, short, SIDE), (SIDE, short, short), (short, SIDE, short)] {
        for order in [Order::C, Order::Fortran] {
            let random = |rows, columns, seed| {
                let shape = Shape2 { rows, columns };
                demo::scratch_random(folder.path(), Dtype::Float64, order, shape, seed).unwrap()
            };
            let (a, b) = (random(m, k, 1), random(k, n, 2));
            let job = GemmJob {
                discard: true,
                verify: true,
                // So that what the tiles leave behind does not hide the rest.
                memory_bytes: 8 << 20,
                ..GemmJob::new(path_of(&a), path_of(&b), folder.path())
            };
            let segment = tempfile::tempfile_in(folder.path()).unwrap();
            let memory = FileMemory(segment);
            let plan = Plan::new(&inspect(&job).unwrap(), &job.limits(&memory)).unwrap();
            memory.0.set_len(plan.segment_bytes()).unwrap();
            let (most, reports) = (AtomicU64::new(0), AtomicU64::new(0));
            let summary = run(&memory, &job, &|phase, _, _| {
                if phase == Phase::Verify {
                    most.fetch_max(anonymous_bytes(), Ordering::Relaxed);
                    reports.fetch_add(1, Ordering::Relaxed);
                }
            });
            assert!(summary.unwrap().seconds_verifying.is_some());
            let most = most.into_inner();
            assert!(reports.into_inner() > 10, "looked at in every part of it");
            assert!((1..BYTES_MAX).contains(&most), "{m}×{k} by {k}×{n}, {order:?}: {most} bytes");
        }
    }
}

/// Memory of this process that is no file's.
fn anonymous_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("the kernel counts it");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}
