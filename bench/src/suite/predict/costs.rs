//! The costs of a message and a page on this machine, as measured or as the user states them.

use super::told;
use crate::gemm::npy::Dtype;
use crate::gemm::reference::Reference;
use crate::registry::{Options, median};
use crate::suite::job::Result;
use crate::suite::report::Report;
use crate::suite::{child, protocol};
use std::time::Duration;
use vgas::config::Config;
use vgas_rma::conduit::hook::Cable;

/// Hops of a page from its home's DRAM: from the rank to its agent, to the home, back with the page, to the rank.
const HOPS: f64 = 4.0;

/// Sizes of page whose times give the cost of a message, which is the same for both, and of a byte.
const PAGES: [u64; 2] = [4 << 10, 256 << 10];

/// Side of the matrices that a node's rate is measured with.
const SIDE: usize = 768;

/// Costs on a processor.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// For a message, in nanoseconds.
    pub message_ns: u64,
    /// For a byte of a page, at both of its ends together.
    pub byte_ns: f64,
    /// For products: 10⁹ operations a second, of one thread.
    pub gflops: f64,
}

impl Costs {
    /// As the parameters say, or measured, without limits on links.
    ///
    /// # Errors
    /// Those of the job that measures.
    pub fn find(options: &Options) -> Result<Self> {
        let gflops = match told(options, "gflops")? {
            Some(rate) => rate,
            None => rate_of_a_node(),
        };
        Self::between(options, None, gflops)
    }

    /// The same over links such as this one, whose own time is left out. A virtual node that waits for its link is woken once more for
    /// each message.
    ///
    /// # Errors
    /// Those of the job that measures.
    pub fn over(self, options: &Options, link: Option<Cable>) -> Result<Self> {
        if link.is_none() { Ok(self) } else { Self::between(options, link, self.gflops) }
    }

    fn between(options: &Options, link: Option<Cable>, gflops: f64) -> Result<Self> {
        let page_bytes = options.config().settings().cache.page.bytes() as f64;
        let [message, page] = [told(options, "message_ns")?, told(options, "page_ns")?];
        let (message_ns, byte_ns) = match (message, page) {
            (Some(message), Some(page)) => (message, page as f64 / page_bytes),
            (message, page) => {
                let times = [fetch_ns(PAGES[0], link)?, fetch_ns(PAGES[1], link)?];
                let byte_ns = ((times[1] - times[0]) / (PAGES[1] - PAGES[0]) as f64).max(0.0);
                let measured = ((times[0] - byte_ns * PAGES[0] as f64) / HOPS).max(0.0) as u64;
                let told = page.map(|page: u64| page as f64 / page_bytes);
                (message.unwrap_or(measured), told.unwrap_or(byte_ns))
            }
        };
        Ok(Self { message_ns, byte_ns, gflops })
    }

    /// Rows that say what the processors of these were taken to need.
    pub fn say(&self, report: &mut Report, whose: &str, options: &Options) {
        let page_bytes = options.config().settings().cache.page.bytes() as f64;
        report.add(&format!("a message of {whose}"), "processor", "ns", vec![self.message_ns as f64]);
        report.add(
            &format!("bytes of a page of {whose}"),
            "processor",
            "ns",
            vec![self.byte_ns * page_bytes],
        );
    }
}

/// Nanoseconds of a page of this size from its home's DRAM, as `protocol` measures it, less those that it and the request are on the
/// link.
fn fetch_ns(page_bytes: u64, link: Option<Cable>) -> Result<f64> {
    let (pages, samples) = (16, 5);
    let options = Options::new(&protocol::BENCHMARK, false, &[], Config::defaults())?;
    let cache = (page_bytes * (4 * pages * samples + 64)).to_string();
    let page = page_bytes.to_string();
    let mut flags = vec![
        "-n",
        "3",
        "--nodes",
        "3",
        "--page",
        &page,
        "--cache",
        &cache,
        "--set",
        "ablation.read_ahead=off",
    ];
    let told = link.map(|link| link.to_string());
    flags.extend(told.iter().flat_map(|link| ["--link", link]));
    let texts = [format!("pages={pages}"), format!("samples={samples}")];
    let program = ["bench", protocol::BENCHMARK.name, "--param", &texts[0], "--param", &texts[1]];
    let (_, printed) = child::run(&options, &flags, &program)?;
    let rates = child::told(child::numbers(&printed, protocol::FROM_HOME))?;
    let on_the_link = link.map_or(0.0, |link| {
        (link.transfer(page_bytes) + 2 * Duration::from_micros(link.delay_micros)).as_nanos() as f64
    });
    Ok(page_bytes as f64 * 1e3 / median(&rates) - on_the_link)
}

fn rate_of_a_node() -> f64 {
    let mut reference = Reference::new(SIDE, Dtype::Float64, 1);
    median(&[(); 5].map(|()| reference.gflops()))
}
