//! Cost of a product, as text and as JSON.

use super::compute::Work;
use super::error::Result;
use super::memory::GlobalMemory;
use super::plan::Plan;
use serde::{Deserialize, Serialize};
use std::fmt;
use vgas::Counter;

/// The account of one product. Rates and times are of the whole job; every rank has the same.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Rows of A and C.
    pub m: u64,
    /// Columns of B and C.
    pub n: u64,
    /// Columns of A, rows of B.
    pub k: u64,
    /// "float32" or "float64".
    pub dtype: String,
    /// Number of ranks.
    pub ranks: usize,
    /// Rows and columns of the grid of ranks.
    pub grid: [u64; 2],
    /// Rows and columns of a block of C, width of a panel.
    pub tile: [u64; 3],
    /// Bytes of A, B and C.
    pub matrix_bytes: u64,
    /// Cache of a node, in bytes.
    pub cache_bytes: u64,
    /// 2·m·n·k over [`seconds_computing`](Self::seconds_computing), in 10⁹ a second.
    pub gflops: f64,
    /// From the files into global memory.
    pub seconds_loading: f64,
    /// From the first panel to the last block, all ranks.
    pub seconds_computing: f64,
    /// In the kernel, the ranks' mean.
    pub seconds_multiplying: f64,
    /// In computing but not in the kernel (panels that came late, copies), the ranks' mean.
    pub seconds_waiting: f64,
    /// From global memory into the output.
    pub seconds_writing: f64,
    /// In the verification; absent when there was none.
    pub seconds_verifying: Option<f64>,
    /// Panels that ranks read from global memory, in bytes.
    pub bytes_fetched: u64,
    /// Blocks that ranks wrote to global memory, in bytes.
    pub bytes_stored: u64,
    /// Counters of the global memory, of all ranks and nodes.
    pub counters: Vec<(String, u64)>,
}

impl Summary {
    /// Gathers the ranks' work. Every rank must call it.
    pub(super) fn gather(memory: &dyn GlobalMemory, plan: &Plan, work: &Work) -> Result<Self> {
        let ranks = memory.ranks();
        let mean = |seconds: f64| memory.all_reduce_sum(seconds / ranks as f64);
        let mut counters = Vec::new();
        for (name, value) in memory.counters() {
            counters.push((name, memory.all_reduce_sum(value as f64)? as u64));
        }
        Ok(Self {
            m: plan.problem.m,
            n: plan.problem.n,
            k: plan.problem.k,
            dtype: plan.problem.dtype.name().to_owned(),
            ranks,
            grid: plan.grid,
            tile: plan.tile,
            matrix_bytes: plan.problem.bytes(),
            cache_bytes: memory.cache_bytes(),
            seconds_multiplying: mean(work.multiplying.as_secs_f64())?,
            seconds_waiting: mean(work.waiting.as_secs_f64())?,
            bytes_fetched: memory.all_reduce_sum(work.fetched as f64)? as u64,
            bytes_stored: memory.all_reduce_sum(work.stored as f64)? as u64,
            counters,
            ..Self::default()
        })
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { m, n, k, dtype, ranks, grid: [p, q], tile: [mb, nb, kb], .. } = self;
        writeln!(f, "C ({m}×{n}) = A ({m}×{k}) · B ({k}×{n}), {dtype}")?;
        let times = self.matrix_bytes as f64 / self.cache_bytes.max(1) as f64;
        writeln!(
            f,
            "  matrices   {} together, {times:.1} times the cache of {}",
            size(self.matrix_bytes),
            size(self.cache_bytes)
        )?;
        writeln!(f, "  ranks      {ranks} as {p}×{q}, blocks of {mb}×{nb}, panels of {kb}")?;
        writeln!(f, "  rate       {:.1} GFLOP/s", self.gflops)?;
        writeln!(f, "  load       {:.2} s", self.seconds_loading)?;
        writeln!(
            f,
            "  compute    {:.2} s: {:.2} s multiplying, {:.2} s waiting and copying",
            self.seconds_computing, self.seconds_multiplying, self.seconds_waiting
        )?;
        writeln!(f, "  write      {:.2} s", self.seconds_writing)?;
        if let Some(seconds) = self.seconds_verifying {
            writeln!(f, "  verify     {seconds:.2} s: the product is right")?;
        }
        write!(f, "  traffic    {} fetched, {} stored", size(self.bytes_fetched), size(self.bytes_stored))?;
        for (name, value) in self.counters.iter().filter(|(_, value)| *value > 0) {
            let explained = Counter::ALL.iter().find(|counter| counter.name() == name);
            let explained = explained.map_or("", |counter| counter.describe());
            write!(f, "\n  {name:<24} {value:>16}  {explained}")?;
        }
        Ok(())
    }
}

/// Bytes for people.
fn size(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", units[unit]) }
}
