//! The rows of nodes that have processors of their own, by how many they are.

use super::cluster::Plan;
use super::costs::Costs;
use super::programs::Product;
use super::simulate::{self, Seen};
use super::{rating, told};
use crate::gemm::npy::{Dtype, Order};
use crate::gemm::{self, Limits, Problem};
use crate::registry::{Options, Row};
use crate::suite::job::Result;
use crate::suite::report::Report;

/// Pages of a product, in bytes: the paper's have 4 MiB.
const PRODUCT_PAGE: u64 = 256 << 10;

/// Rows and columns of the matrices on one node; with more nodes they grow, so that each has as much to do.
const ORDER: u64 = 1280;

/// Puts of a rank into the page that all share, and where the page goes from node to node for each.
const PUTS: u64 = 32;
const PUTS_MIGRATING: u64 = 2;

/// From so many nodes on, a page that goes from node to node for each put is not shown: each takes all nodes' turns.
const MIGRATING_NODES_MAX: u32 = 512;

/// Barriers that are timed.
const BARRIERS: usize = 16;

pub const ON: &str = "with cooperation";
pub const OFF: &str = "without cooperation";
pub const HOME_UP: &str = "the home's link, up";
pub const HOME_AGENT: &str = "the home's agent";
pub const HOME_DRIVE: &str = "the home's drive";

/// Prefix of the cases without cooperation.
pub const LINK_OFF: &str = "the home's link, up, without cooperation";

/// Nodes from 2 to so many.
pub fn counts(most: u32) -> impl Iterator<Item = u32> {
    std::iter::successors(Some(2), |nodes| Some(nodes * 2)).take_while(move |nodes| *nodes <= most)
}

/// A plan of so many nodes with the caches that the parameters say.
pub fn plan(options: &Options, costs: &Costs, nodes: u32, page_bytes: u64) -> Result<Plan> {
    Ok(Plan {
        seed: options.get("seed")?,
        nodes,
        frames: options.get("cache")?,
        pages: 0,
        owners: 1,
        cooperative: true,
        in_place: true,
        rating: rating(options.config(), costs, page_bytes, 0),
    })
}

/// MB/s of all nodes together, of so many pages that each has read.
pub fn rate(plan: &Plan, seen: &Seen, pages: u64) -> f64 {
    (u64::from(plan.nodes) * pages * plan.rating.page_bytes) as f64 * 1e3 / seen.ns as f64
}

/// Figures 8 and 9.
pub fn scans(options: &Options, costs: &Costs) -> Result<Vec<Row>> {
    let (most, pages): (u32, u64) = (options.get("nodes")?, options.get("pages")?);
    let page_bytes = options.config().settings().cache.page.bytes();
    let mut rows = Vec::new();
    for (access, at_random) in [("in sequence", false), ("at random", true)] {
        for nodes in counts(most) {
            let on = plan(options, costs, nodes, page_bytes)?;
            let off = Plan { cooperative: false, ..on };
            let seen = simulate::scan(&on, pages, 1, at_random)?;
            let without = simulate::scan(&off, pages, 1, at_random)?;
            let mut report = Report::new("predict").under("access", access).under("nodes", nodes);
            let rates = [rate(&on, &seen, pages), rate(&off, &without, pages)].map(|rate| [rate]);
            report.compare(["rate", "MB/s"], (ON, &rates[0]), (OFF, &rates[1]));
            let of_miss = |seen: &Seen| vec![seen.messages as f64 / seen.misses().max(1) as f64];
            report.add(ON, "messages of a miss", "", of_miss(&seen));
            report.add(OFF, "messages of a miss", "", of_miss(&without));
            let mut share = |case: &str, seen: &Seen, of| {
                report.add(case, "busy", "%", vec![seen.share_of_home(of) * 100.0])
            };
            share(HOME_UP, &seen, |used| used.link_ns[0]);
            share(HOME_AGENT, &seen, |used| used.agent_ns);
            share(HOME_DRIVE, &seen, |used| used.drive_ns);
            share(LINK_OFF, &without, |used| used.link_ns[0]);
            report.add(ON, "directory entry", "bytes", vec![seen.entry_bytes()]);
            report.add(OFF, "directory entry", "bytes", vec![without.entry_bytes()]);
            rows.extend(report.into_rows());
        }
    }
    Ok(rows)
}

/// References for false sharing, as in `false-sharing`.
pub const SHARED: [(&str, bool, bool); 3] = [
    ("all that vgas does", true, true),
    ("without service in place", true, false),
    ("without both", false, false),
];

/// Figure 10.
pub fn sharing(options: &Options, costs: &Costs) -> Result<Vec<Row>> {
    let page_bytes = options.config().settings().cache.page.bytes();
    let mut rows = Vec::new();
    for nodes in counts(options.get("nodes")?) {
        let mut report = Report::new("predict").under("nodes", nodes);
        for (case, cooperative, in_place) in SHARED {
            let puts = if in_place { PUTS } else { PUTS_MIGRATING };
            if !in_place && nodes > MIGRATING_NODES_MAX {
                continue;
            }
            let plan = Plan { cooperative, in_place, ..plan(options, costs, nodes, page_bytes)? };
            let seen = simulate::share(&plan, puts)?;
            report.add(case, "time of a put", "us", vec![seen.ns as f64 / 1e3 / puts as f64]);
            let all = (u64::from(nodes) * puts) as f64;
            report.add(case, "messages of a put", "", vec![seen.messages as f64 / all]);
        }
        rows.extend(report.into_rows());
    }
    Ok(rows)
}

/// Cost of a barrier, and the messages that each rank sends for it: one in each of its steps.
pub fn barriers(options: &Options, costs: &Costs) -> Result<Vec<Row>> {
    let page_bytes = options.config().settings().cache.page.bytes();
    let mut rows = Vec::new();
    for nodes in counts(options.get("nodes")?) {
        let plan = plan(options, costs, nodes, page_bytes)?;
        let seen = simulate::meet(&plan, BARRIERS)?;
        let mut report = Report::new("predict").under("nodes", nodes);
        let steps = seen.messages as f64 / f64::from(nodes) / BARRIERS as f64;
        report.add("barrier", "steps", "", vec![steps]);
        report.add("barrier", "time of a barrier", "us", vec![seen.ns as f64 / 1e3 / BARRIERS as f64]);
        rows.extend(report.into_rows());
    }
    Ok(rows)
}

/// A product's variants: its words, whether caches hold the matrices, whether they cooperate.
pub const PRODUCTS: [(&str, bool, bool); 4] = [
    ("in memory", true, true),
    ("in memory, without cooperation", true, false),
    ("out of core", false, true),
    ("out of core, without cooperation", false, false),
];

/// Side of the matrices on so many nodes, each of which has as much to do as one.
pub fn grown(order: u64, nodes: u32) -> u64 {
    ((order as f64 * f64::from(nodes).sqrt()) as u64 / 64 * 64).max(order)
}

/// A product of matrices of this side over so many nodes, whose caches have so many bytes each.
///
/// # Errors
/// The caches are too small.
pub fn product_plan(order: u64, nodes: u32, page_bytes: u64, cache_bytes: u64) -> Result<gemm::Plan> {
    let problem = Problem { m: order, n: order, k: order, dtype: Dtype::Float64, orders: [Order::C; 3] };
    let limits = Limits {
        ranks: nodes as usize,
        ranks_on_node: 1,
        page_bytes,
        cache_bytes,
        memory_bytes: gemm::MEMORY_BYTES,
    };
    Ok(gemm::Plan::new(&problem, &limits)?)
}

/// GFLOP/s of each node.
///
/// # Errors
/// Those of the cluster.
pub fn multiply(plan: &Plan, product: &Product<'_>) -> Result<f64> {
    let seen = simulate::multiply(plan, product)?;
    Ok(product.flops(plan.nodes as usize) / seen.ns as f64 / f64::from(plan.nodes))
}

/// Figure 11: weak scaling.
pub fn products(options: &Options, costs: &Costs) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let gflops = told(options, "gflops")?.unwrap_or(costs.gflops);
    for nodes in counts(options.get("gemm_nodes")?) {
        let order = grown(ORDER, nodes);
        let mut report = Report::new("predict").under("nodes", nodes).under("order", order);
        // A node's part of all three matrices, and room for its work.
        let share = 3 * order * order * 8 / u64::from(nodes);
        for (case, fits, cooperative) in PRODUCTS {
            let cache_bytes = if fits { 2 * share + (16 << 20) } else { (share / 4).max(16 << 20) };
            let gemm = product_plan(order, nodes, PRODUCT_PAGE, cache_bytes)?;
            let frames = (cache_bytes / PRODUCT_PAGE) as u32;
            let plan = Plan { frames, cooperative, ..plan(options, costs, nodes, PRODUCT_PAGE)? };
            let product =
                Product { plan: &gemm, page_bytes: PRODUCT_PAGE, panels: options.get("panels")?, gflops };
            let rate = multiply(&plan, &product)?;
            report.add(case, "rate of a node", "GFLOP/s", vec![rate]);
        }
        report.add("a node by itself, in memory", "rate of a node", "GFLOP/s", vec![gflops]);
        rows.extend(report.into_rows());
    }
    Ok(rows)
}
