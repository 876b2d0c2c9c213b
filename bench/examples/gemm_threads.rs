//! The out-of-core algorithm without a runtime under it: ranks are threads of one process, global memory is
//! plain memory. Its loss against faer on whole matrices is the cost of panels and copies; the further loss
//! of `vgas gemm`, that of the runtime and the disk.
//!
//! `cargo run --release -p vgas-bench --example gemm_threads FOLDER [n] [ranks] [rounds]`

use std::path::PathBuf;
use vgas::say::print;
use vgas_bench::gemm::npy::{Dtype, Order, Shape2};
use vgas_bench::gemm::reference::Reference;
use vgas_bench::gemm::threads::{self, ThreadsSpec};
use vgas_bench::gemm::{GemmJob, Limits, Plan, demo, inspect, run};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().ok_or("give a folder for the matrices")?);
    let mut number = |default| arguments.next().map_or(Ok(default), |text| text.parse::<usize>());
    let (n, ranks, rounds) = (number(4096)?, number(2)?, number(3)?);
    let [a, b, c] = ["a.npy", "b.npy", "c.npy"].map(|name| folder.join(name));
    let shape = Shape2 { rows: n as u64, columns: n as u64 };
    demo::write_random(&a, true, Dtype::Float64, Order::C, shape, 1)?;
    demo::write_random(&b, true, Dtype::Float64, Order::C, shape, 2)?;

    let job = GemmJob { force: true, verify: true, ..GemmJob::new(&a, &b, &c) };
    let (page_bytes, cache_bytes) = (1 << 20, 256 << 20);
    let limits =
        Limits { ranks, ranks_on_node: ranks, page_bytes, cache_bytes, memory_bytes: job.memory_bytes };
    let segment_bytes = Plan::new(&inspect(&job)?, &limits)?.segment_bytes();
    let cores = std::thread::available_parallelism()?.get();
    let spec = ThreadsSpec { ranks, segment_bytes, page_bytes, cache_bytes, threads: (cores / ranks).max(1) };
    threads::run(spec, |memory| run(memory, &job, &|_, _, _| ())).swap_remove(0)?;
    let beyond = peak_bytes()?.saturating_sub(segment_bytes * ranks as u64) / ranks as u64;
    print(format_args!(
        "private memory: {:.1} MiB a rank beyond the segments\n",
        beyond as f64 / f64::from(1 << 20)
    ))?;
    let mut reference = Reference::new(n.min(4096), Dtype::Float64, cores);
    let mut ratios = Vec::new();
    for _ in 0..rounds {
        let whole = reference.gflops();
        let summary = threads::run(spec, |memory| run(memory, &job, &|_, _, _| ())).swap_remove(0)?;
        let ratio = summary.gflops / whole;
        print(format_args!(
            "{summary}\n  in memory  {whole:.1} GFLOP/s with {cores} threads: ratio {ratio:.3}\n"
        ))?;
        ratios.push(ratio);
    }
    ratios.sort_by(f64::total_cmp);
    print(format_args!("median ratio {:.3}\n", ratios[rounds / 2]))?;
    Ok(())
}

/// The most memory this process has had, in bytes.
fn peak_bytes() -> Result<u64, Box<dyn std::error::Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line =
        status.lines().find(|line| line.starts_with("VmHWM:")).ok_or("no VmHWM in /proc/self/status")?;
    let kib = line.split_whitespace().nth(1).ok_or("no figure after VmHWM")?;
    Ok(kib.parse::<u64>()? * 1024)
}
