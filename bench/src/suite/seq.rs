//! All nodes read one rank's segment, in sequence or at random, with cooperative caching and without (vGASNet §IV.C, figures 8
//! and 9), by number of nodes: data that fits into one cache, and data that is larger than one and smaller than all together.
//!
//! In one virtual cluster: each node has a link and a drive of its own, one rank, and its own cache. The segment is on NVMe and in no
//! cache when its reading begins; each rank gets all of it, page by page, `passes` times. At random each in an order of its own,
//! another one each time; in sequence all from the first page on, or each from another (`from`). Beside the rate stands how many pages
//! came from NVMe for each page of the data: 1 is the least.
//!
//! Cooperation is a setting of a whole job; a sample of the ratio is a pair of jobs in turn.

use super::child;
use super::job::{Result, noise};
use super::report::Report;
use crate::figure::{Better, Claim, Figure, Form, Reference};
use crate::registry::{Benchmark, Options, Parameter, Row, Setup};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use std::collections::VecDeque;
use std::time::Instant;
use vgas::{Counter, GetHandle, GlobalAddress, Rank, Runtime, SegmentOptions, say};

const PARAMETERS: &[Parameter] = &[
    Parameter { name: "nodes", default: "8", help: "The most nodes, one rank each; halved down to one." },
    Parameter { name: "cache", default: "16", help: "MiB of cache of a node." },
    Parameter { name: "small", default: "8", help: "MiB of the data that fit into one cache." },
    Parameter { name: "large", default: "40", help: "MiB of the data that do not." },
    Parameter { name: "passes", default: "1", help: "How often each rank reads all of it." },
    Parameter { name: "in_flight", default: "1", help: "Gets that a rank has in flight at a time." },
    Parameter {
        name: "from",
        default: "start",
        help: "In sequence, all begin at the `start`, or each `elsewhere`.",
    },
    Parameter {
        name: "data",
        default: "stored",
        help: "Where the data is when all begin to read: `stored` on NVMe alone, or just `written`, in its owner's cache.",
    },
    Parameter { name: "samples", default: "3", help: "Jobs of each kind." },
];

const FULL: &[(&str, &str)] = &[("passes", "2"), ("samples", "5")];

pub(super) const ON: &str = "all together";
pub(super) const OFF: &str = "all together, without cooperation";
const PAGES_ON: &str = "pages from NVMe for each page";
const PAGES_OFF: &str = "pages from NVMe for each page, without cooperation";

const LINES: Form = Form::Lines { by: "nodes", label: "nodes, one rank each", panels: "data_bytes" };

const RATE: Figure = Figure {
    cases: &[ON, OFF],
    references: &[OFF],
    form: LINES,
    claims: &[Claim::new(ON, Reference::Case(OFF), 0.95)],
    expect: "More nodes read more, where they take pages from each other; without cooperation the owner's link and drive are shared by \
             all. The paper gained 1.34 to 1.92 with 32 nodes where the data is larger than a cache, and lost where it is smaller.",
    ..Figure::BASE
};

const GAIN: Figure = Figure {
    metric: "ratio",
    unit: "",
    cases: &["all together : all together, without cooperation"],
    marks: &[(1.0, "no gain")],
    form: LINES,
    claims: &[
        Claim::new("all together : all together, without cooperation", Reference::Value(1.0), 0.95),
        Claim::new("all together : all together, without cooperation", Reference::Value(1.34), 1.0)
            .within(8.0, f64::INFINITY),
    ],
    expect: "Cooperation gains more with every node, and never loses where a page can come from a node that is not its owner. The paper gained \
             1.34 to 1.92 with 32 nodes in sequence, where the data is larger than a cache.",
    ..Figure::BASE
};

const PAGES: Figure = Figure {
    metric: "count",
    unit: "",
    cases: &[PAGES_ON, PAGES_OFF],
    references: &[PAGES_OFF],
    marks: &[(1.0, "each page once")],
    form: LINES,
    claims: &[Claim::new(PAGES_ON, Reference::Value(1.5), 1.0)],
    better: Better::Lower,
    expect: "With cooperation each page is read from NVMe hardly more than once, as long as all caches together hold the data.",
    ..Figure::BASE
};

const DECIDES: Setup = Setup::OwnJobs { decides: &["ablation.cooperative", "cache.size", "run.label"] };

/// Links and drives of a small cluster, with pages that are small for them.
pub(super) const HARDWARE: &[(&str, &str)] =
    &[("cluster.link", "1gbit,50us"), ("cluster.nvm", "200MiB,50k"), ("cache.page", "64KiB")];

pub(super) const SEQUENTIAL: Benchmark = Benchmark {
    name: "seq",
    help: "1 to 8 virtual nodes read one rank's segment in sequence, with cooperation and without (figure 8).",
    setup: DECIDES,
    settings: HARDWARE,
    parameters: PARAMETERS,
    full: FULL,
    figures: &[
        Figure {
            name: "seq",
            question: "What do all nodes together read of one rank's segment, in sequence?",
            ..RATE
        },
        Figure {
            name: "seq-gain",
            question: "How much faster do all nodes read with cooperation, in sequence?",
            marks: &[(1.0, "no gain"), (1.34, "the paper's least, 32 nodes"), (1.92, "the paper's most")],
            ..GAIN
        },
        Figure {
            name: "seq-nvm",
            question: "How often does a page come from NVMe when all nodes read it, in sequence?",
            ..PAGES
        },
    ],
    check,
    run: |options| run(options, "seq"),
};

pub(super) const RANDOM: Benchmark = Benchmark {
    name: "random",
    help: "1 to 8 virtual nodes read one rank's segment at random, with cooperation and without (figure 9).",
    setup: DECIDES,
    settings: HARDWARE,
    parameters: PARAMETERS,
    full: FULL,
    figures: &[
        Figure {
            name: "random",
            question: "What do all nodes together read of one rank's segment, at random?",
            ..RATE
        },
        Figure {
            name: "random-gain",
            question: "How much faster do all nodes read with cooperation, at random?",
            ..GAIN
        },
        Figure {
            name: "random-nvm",
            question: "How often does a page come from NVMe when all nodes read it, at random?",
            ..PAGES
        },
    ],
    check,
    run: |options| run(options, "random"),
};

/// Prefixes of rank 0's output: the rate of all together, and pages from NVMe for each page.
const WORDS: [&str; 2] = ["rate ", "pages "];

fn check(options: &Options) -> Result<()> {
    let nodes: u32 = options.get("nodes")?;
    if nodes > 64 || !nodes.is_power_of_two() {
        return Err("`nodes` is a power of two, at most 64".into());
    }
    for name in ["small", "large", "cache"] {
        options.mebibytes(name)?;
    }
    if !(1..=1024).contains(&options.get::<usize>("in_flight")?) {
        return Err("`in_flight` is from 1 to 1024".into());
    }
    if !["start", "elsewhere"].contains(&options.text("from")) {
        return Err("`from` is `start` or `elsewhere`".into());
    }
    if !["stored", "written"].contains(&options.text("data")) {
        return Err("`data` is `stored` or `written`".into());
    }
    Ok(())
}

fn run(options: &Options, name: &'static str) -> Result<Vec<Row>> {
    let (passes, in_flight): (u64, usize) = (options.get("passes")?, options.get("in_flight")?);
    let (from, data) = (options.text("from"), options.text("data"));
    if child::in_job() {
        let order = match (name == RANDOM.name, from) {
            (true, _) => Order::Random,
            (false, "start") => Order::Together,
            (false, _) => Order::Apart,
        };
        return rank(options.mebibytes("large")?, passes, in_flight, order, data == "stored");
    }
    let (most, samples): (u32, usize) = (options.get("nodes")?, options.get("samples")?);
    let cache = format!("{}MiB", options.text("cache"));
    let given = [
        format!("passes={passes}"),
        format!("in_flight={in_flight}"),
        format!("from={from}"),
        format!("data={data}"),
    ];
    let given: Vec<&str> = given.iter().flat_map(|given| ["--param", given]).collect();
    let mut rows = Vec::new();
    for size in ["small", "large"] {
        // In a job there is one size.
        let size_text = format!("large={}", options.text(size));
        let program = [&["bench", name, "--param", &size_text], &given[..]].concat();
        let counts = std::iter::successors(Some(1u32), |nodes| Some(nodes * 2));
        for nodes in counts.take_while(|nodes| *nodes <= most) {
            let nodes_text = nodes.to_string();
            let mut found = [const { [const { Vec::new() }; 2] }; 2];
            for sample in 0..samples {
                for turn in 0..2 {
                    let way = (sample + turn) % 2;
                    let setting = ["ablation.cooperative=on", "ablation.cooperative=off"][way];
                    let flags =
                        ["-n", &nodes_text, "--nodes", &nodes_text, "--cache", &cache, "--set", setting];
                    let (_, printed) = child::run(options, &flags, &program)?;
                    for (word, found) in WORDS.iter().zip(&mut found[way]) {
                        let number = child::numbers(&printed, word).first().copied();
                        found.push(number.ok_or("a job told nothing")?);
                    }
                }
            }
            let [[on, on_pages], [off, off_pages]] = found;
            let mut report = Report::new(name)
                .under("nodes", nodes)
                .under("data_bytes", options.mebibytes(size)?)
                .under("cache_bytes", options.mebibytes("cache")?)
                .under("passes", passes)
                .under("in_flight", in_flight as u64)
                .under("data", data);
            if name == SEQUENTIAL.name {
                report = report.under("from", from);
            }
            report.compare(["rate", "MB/s"], (ON, &on), (OFF, &off));
            let each = |all: &[f64]| all.iter().map(|rate| rate / f64::from(nodes)).collect();
            report.add("each node", "rate", "MB/s", each(&on));
            report.add("each node, without cooperation", "rate", "MB/s", each(&off));
            report.add(PAGES_ON, "count", "", on_pages);
            report.add(PAGES_OFF, "count", "", off_pages);
            rows.extend(report.into_rows());
        }
    }
    Ok(rows)
}

/// In which order a rank reads all pages.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    /// From the first on.
    Together,
    /// In sequence, each rank from another one on.
    Apart,
    Random,
}

/// Rank 0 owns the data.
fn rank(bytes: u64, passes: u64, in_flight: usize, order: Order, stored: bool) -> Result<Vec<Row>> {
    let runtime = Runtime::init()?;
    let me = runtime.rank().0;
    let page = runtime.page_bytes();
    let bytes = bytes.next_multiple_of(page as u64);
    // Rank 0's later writes push that out of its cache.
    let spare = if stored { 2 * runtime.cache_layout().frames_bytes() } else { 0 };
    runtime.attach(&SegmentOptions::tiered(if me == 0 { bytes + spare } else { 0 }))?;
    let at = |offset: u64| GlobalAddress::tiered(Rank(0), offset);
    // A page begins with its place.
    let mut block = noise(page, 5);
    if me == 0 {
        for offset in (0..bytes + spare).step_by(page) {
            block[..8].copy_from_slice(&offset.to_le_bytes());
            runtime.put(at(offset), &block)?;
        }
    }
    // The drive is to be idle: what it still wrote was taken for time of reading.
    if stored {
        runtime.checkpoint()?;
    } else {
        runtime.barrier()?;
    }
    let mut offsets: Vec<u64> = (0..bytes).step_by(page).collect();
    if order == Order::Apart {
        let first = offsets.len() * me as usize / runtime.ranks() as usize;
        offsets.rotate_left(first);
    }
    let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(u64::from(me));
    let before = runtime.statistics()?;
    let start = Instant::now();
    let is_right = |block: &[u8], offset: u64| match block[..8] == offset.to_le_bytes() {
        true => Ok(()),
        false => Err(format!("page at {offset} is another")),
    };
    let mut gets: VecDeque<(u64, GetHandle<u8>)> = VecDeque::with_capacity(in_flight);
    for _ in 0..passes {
        if order == Order::Random {
            // A new order: repeating the same one would be a loop, the worst case for LRU.
            offsets.shuffle(&mut random);
        }
        for &offset in &offsets {
            if in_flight == 1 {
                runtime.get(at(offset), &mut block)?;
                is_right(&block, offset)?;
                continue;
            }
            let oldest = if gets.len() < in_flight { None } else { gets.pop_front() };
            let buffer = match oldest {
                None => vec![0; page],
                Some((before, get)) => {
                    let buffer = get.wait()?;
                    is_right(&buffer, before)?;
                    buffer
                }
            };
            gets.push_back((offset, runtime.get_nb(at(offset), buffer)?));
        }
    }
    for (offset, get) in gets {
        is_right(&get.wait()?, offset)?;
    }
    runtime.barrier()?;
    let seconds = start.elapsed().as_secs_f64();
    let since = runtime.statistics()?.since(&before);
    if me == 0 {
        let read = bytes as f64 * passes as f64 * f64::from(runtime.ranks());
        say::print(format_args!("{}{}\n", WORDS[0], read / seconds / 1e6))?;
        let from_nvm = since.get(Counter::NvmReadBytes) as f64 / bytes as f64;
        say::print(format_args!("{}{from_nvm}\n", WORDS[1]))?;
    }
    runtime.finalize()?;
    Ok(Vec::new())
}
