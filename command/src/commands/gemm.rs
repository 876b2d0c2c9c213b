//! `vgas gemm` and `vgas demo`, as seen from outside of the job. The ranks' work is in vgas-bench.

use crate::cli::{Demo, Gemm};
use crate::failure::Failure;
use crate::job::{self, Job};
use crate::launch;
use vgas::config::{FlagValue, Size};

/// Multiplies two files: starts a job of this command, whose ranks come here again.
pub fn gemm(gemm: &Gemm) -> Result<u8, Failure> {
    if launch::in_job() {
        return launch::gemm(gemm);
    }
    launch::check_gemm(gemm)?;
    let config = job::config(&gemm.config)?;
    let place = job::place_or_allocation(&gemm.place, &gemm.config)?;
    let ranks = gemm.ranks.map_or_else(|| job::nodes(&place), Ok)?;
    launch::run(Job::of_this_command(ranks, &place, config)?)
}

/// Nodes of a demo unless the user says otherwise: the fewest that exchange pages.
const DEMO_NODES: u32 = 2;

/// Ratio of the three matrices of a demo to all its caches together.
const DEMO_EXCESS: u64 = 4;

/// Multiplies two matrices that it makes.
pub fn demo(demo: &Demo) -> Result<u8, Failure> {
    if launch::in_job() {
        return launch::demo_rank(demo);
    }
    let mut place = job::place_or_allocation(&demo.place, &demo.config)?;
    if place.host.is_empty() && place.allocation.is_none() {
        place.nodes.get_or_insert(DEMO_NODES);
    }
    let nodes = job::nodes(&place)?;
    let cache = FlagValue {
        flag: "vgas demo".into(),
        name: "cache.size".into(),
        text: demo_cache_bytes(demo.order, nodes).to_string(),
    };
    let config = job::config_with_defaults(&demo.config, &[cache])?;
    let job = Job::of_this_command(demo.ranks.unwrap_or(nodes), &place, config)?;
    launch::demo(demo, job)
}

/// The cache of each node such that three square matrices of f64 are [`DEMO_EXCESS`] times larger than all caches.
fn demo_cache_bytes(order: u32, nodes: u32) -> Size {
    /// Room for the tiles that are in use at once, below which a demo would show nothing but waiting.
    const LEAST: u64 = 16 << 20;
    let matrices = 3 * 8 * u64::from(order) * u64::from(order);
    let each = matrices / DEMO_EXCESS / u64::from(nodes.max(1));
    Size::of_bytes((each >> 20 << 20).max(LEAST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_matrices_of_a_demo_exceed_its_caches() {
        assert_eq!(demo_cache_bytes(4096, 2).to_string(), "48MiB");
        assert_eq!(demo_cache_bytes(1, 2).to_string(), "16MiB");
        assert_eq!(demo_cache_bytes(1_000_000, 1).bytes() * 4 / 1_000_000_000_000, 23);
    }
}
