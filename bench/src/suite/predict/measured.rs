//! The points that a virtual cluster can measure on this machine, beside what the simulation of that cluster says.

use super::cluster::Plan;
use super::costs::Costs;
use super::growth::{self, OFF, ON, PRODUCTS, SHARED};
use super::programs::Product;
use super::{rating, simulate, told};
use crate::registry::{Benchmark, Options, Row};
use crate::suite::job::Result;
use crate::suite::report::Report;
use crate::suite::{false_sharing, gemm, seq};

/// Nodes of the virtual clusters.
const NODES_MAX: u32 = 8;

/// Most nodes of a product, which share the processors of this machine.
const PRODUCT_NODES_MAX: u32 = 4;

/// The benchmarks to measure.
pub struct BenchmarkSet(Vec<&'static Benchmark>);

impl BenchmarkSet {
    const ALL: [&'static Benchmark; 4] =
        [&seq::SEQUENTIAL, &seq::RANDOM, &false_sharing::BENCHMARK, &gemm::BENCHMARK];

    /// Names with commas between, or `nothing`.
    ///
    /// # Errors
    /// There is no such benchmark among those that are predicted.
    pub fn of(text: &str) -> Result<Self> {
        let names = text.split(',').map(str::trim).filter(|name| *name != "nothing");
        let find = |name: &str| Self::ALL.into_iter().find(|one| one.name == name);
        let unknown =
            |name| format!("`against` is some of seq,random,false-sharing,gemm, or nothing; not `{name}`");
        Ok(Self(names.map(|name| find(name).ok_or_else(|| unknown(name).into())).collect::<Result<_>>()?))
    }
}

/// Returns the prediction for this machine, the measurement on it, and their quotient; `costs` are those
/// without links.
///
/// # Errors
/// Those of the benchmarks, and of the simulation.
pub fn rows(options: &Options, costs: Costs) -> Result<Vec<Row>> {
    let BenchmarkSet(benchmarks) = BenchmarkSet::of(options.text("against"))?;
    if benchmarks.is_empty() {
        return Ok(Vec::new());
    }
    let costs = &costs.over(options, options.config().settings().cluster.link.value())?;
    let cores = std::thread::available_parallelism()?.get() as u32;
    let here = LocalCluster { options, costs, cores };
    let mut rows = Vec::new();
    for benchmark in benchmarks {
        rows.extend(match benchmark.name {
            "false-sharing" => here.sharing()?,
            "gemm" => here.products()?,
            _ => here.scans(benchmark)?,
        });
    }
    // Assumed costs of the processors.
    let mut report = Report::new("predict");
    costs.say(&mut report, "a virtual node", options);
    rows.extend(report.into_rows());
    Ok(rows)
}

/// This machine as a virtual cluster.
struct LocalCluster<'o> {
    options: &'o Options,
    costs: &'o Costs,
    cores: u32,
}

impl LocalCluster<'_> {
    fn plan(&self, nodes: u32, page_bytes: u64) -> Result<Plan> {
        let rating = rating(self.options.config(), self.costs, page_bytes, self.cores);
        Ok(Plan { rating, ..growth::plan(self.options, self.costs, nodes, page_bytes)? })
    }

    fn measure(&self, benchmark: &'static Benchmark, changes: &[&str]) -> Result<(Options, Vec<Row>)> {
        let changes: Vec<String> = changes.iter().map(|change| (*change).to_owned()).collect();
        let options = Options::new(benchmark, false, &changes, self.options.config().clone())?;
        let rows = (benchmark.run)(&options)?;
        Ok((options, rows))
    }

    fn page_bytes(&self) -> u64 {
        self.options.config().settings().cache.page.bytes()
    }

    fn scans(&self, benchmark: &'static Benchmark) -> Result<Vec<Row>> {
        let nodes = format!("nodes={NODES_MAX}");
        let (options, measured) = self.measure(benchmark, &[&nodes, "small=1", "samples=1"])?;
        let (data, page_bytes) = (options.mebibytes("large")?, self.page_bytes());
        let (pages, at_random) = (data / page_bytes, benchmark.name == "random");
        let mut rows = Vec::new();
        for nodes in growth::counts(NODES_MAX) {
            let frames = (options.mebibytes("cache")? / page_bytes) as u32;
            let plan = Plan { frames, ..self.plan(nodes, page_bytes)? };
            let mut report = Report::new("predict").under("figure", benchmark.name).under("nodes", nodes);
            for (case, cooperative, theirs) in [(ON, true, seq::ON), (OFF, false, seq::OFF)] {
                let plan = Plan { cooperative, ..plan };
                let seen = simulate::scan(&plan, pages, 1, at_random)?;
                let theirs = find(&measured, nodes, theirs, &[("data_bytes", data)])?;
                beside(&mut report, case, ["rate", "MB/s"], growth::rate(&plan, &seen, pages), theirs);
            }
            rows.extend(report.into_rows());
        }
        Ok(rows)
    }

    fn sharing(&self) -> Result<Vec<Row>> {
        let (puts, migrating) = (100, 6);
        let texts = [format!("nodes={NODES_MAX}"), format!("puts={puts}"), format!("migrating={migrating}")];
        let (_, measured) =
            self.measure(&false_sharing::BENCHMARK, &[&texts[0], &texts[1], &texts[2], "samples=1"])?;
        let mut rows = Vec::new();
        for nodes in growth::counts(NODES_MAX) {
            let mut report = Report::new("predict").under("figure", "false-sharing").under("nodes", nodes);
            for (case, cooperative, in_place) in SHARED {
                let puts = if in_place { puts } else { migrating };
                let plan = Plan { cooperative, in_place, ..self.plan(nodes, self.page_bytes())? };
                let time = simulate::share(&plan, puts)?.ns as f64 / 1e3 / puts as f64;
                let theirs = find(&measured, nodes, &format!("put of each rank, {case}"), &[])?;
                beside(&mut report, case, ["time of a put", "us"], time, theirs);
            }
            rows.extend(report.into_rows());
        }
        Ok(rows)
    }

    fn products(&self) -> Result<Vec<Row>> {
        let nodes = format!("nodes={PRODUCT_NODES_MAX}");
        let (options, measured) = self.measure(&gemm::BENCHMARK, &[&nodes, "samples=1"])?;
        let (first, page_bytes): (u64, u64) = (options.get("order")?, self.page_bytes());
        let mut rows = Vec::new();
        for nodes in growth::counts(PRODUCT_NODES_MAX) {
            let order = growth::grown(first, nodes);
            let mut report = Report::new("predict").under("figure", "gemm").under("nodes", nodes);
            for (case, fits, cooperative) in PRODUCTS {
                let cache_bytes = gemm::cache_mebibytes(order, nodes, fits) << 20;
                let product = growth::product_plan(order, nodes, page_bytes, cache_bytes)?;
                let gflops = told(self.options, "gflops")?.unwrap_or(self.costs.gflops);
                let product = Product { plan: &product, page_bytes, panels: u64::MAX, gflops };
                let frames = (cache_bytes / page_bytes) as u32;
                let plan = Plan { frames, cooperative, ..self.plan(nodes, page_bytes)? };
                let rate = growth::multiply(&plan, &product)?;
                let theirs = measured.iter().filter(|row| row.metric == "rate of a node");
                let theirs: Vec<Row> =
                    theirs.filter(|row| row.params["scaling"] == "weak").cloned().collect();
                let theirs = find(&theirs, nodes, case, &[])?;
                beside(&mut report, case, ["rate of a node", "GFLOP/s"], rate, theirs);
            }
            rows.extend(report.into_rows());
        }
        Ok(rows)
    }
}

/// The row of a case that was measured.
fn find(rows: &[Row], nodes: u32, case: &str, params: &[(&str, u64)]) -> Result<f64> {
    let has = |row: &&Row| {
        row.case == case
            && row.params.get("nodes").is_some_and(|there| *there == nodes)
            && params.iter().all(|(name, value)| row.params.get(*name).is_some_and(|there| there == value))
    };
    let row = rows.iter().find(has).ok_or_else(|| format!("nothing was measured of `{case}`"))?;
    Ok(row.value)
}

/// Words before what was simulated for this machine, and what was measured on it.
pub const PREDICTED: &str = "predicted, ";
pub const MEASURED: &str = "measured, ";

fn beside(report: &mut Report, case: &str, [metric, unit]: [&str; 2], predicted: f64, measured: f64) {
    report.add(&format!("{PREDICTED}{case}"), metric, unit, vec![predicted]);
    report.add(&format!("{MEASURED}{case}"), metric, unit, vec![measured]);
    report.add(case, "predicted : measured", "", vec![predicted / measured]);
    report.add(case, "error", "%", vec![(predicted / measured - 1.0).abs() * 100.0]);
}
