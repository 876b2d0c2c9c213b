//! One page, fetched from where it can be: its home's NVMe, its home's DRAM, a third node's DRAM, beside a plain get of as many bytes
//! of a pinned segment (vGASNet §IV.B, figure 7), by size of page.
//!
//! Three nodes, as in the paper: A asks, B is the home, C has a copy. Each page is fetched once, one after
//! the other, so that the rate is that of one page's way, into frames whose memory has been used before:
//! finding new memory may take the kernel, and the machine below it, longer than copying a page does. The
//! sources of the pages, by the counters, are a row of their own: a figure of one source that was partly
//! another one would be meaningless.

use super::child;
use super::job::{Result, noise};
use super::report::Report;
use crate::figure::{Claim, Figure, Form, Reference};
use crate::registry::{Benchmark, Options, Parameter, Row, Setup};
use std::time::Instant;
use vgas::{Counter, GlobalAddress, Rank, Runtime, SegmentOptions, say};

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "protocol",
    help: "A page from its home's NVMe, from its home's DRAM, from a third node's, and a plain get (figure 7).",
    setup: Setup::OwnJobs { decides: &["cache.page", "cache.size", "run.label", "ablation.read_ahead"] },
    settings: &[
        ("cluster.link", "1gbit,50us"),
        ("cluster.nvm", "200MiB,50k"),
        // A third node is to be asked, whatever is faster.
        ("ablation.read_nearest", "off"),
    ],
    parameters: &[
        Parameter { name: "pages", default: "8", help: "Pages of each sample." },
        Parameter { name: "samples", default: "4", help: "Samples of each figure." },
        Parameter { name: "least", default: "4096", help: "The smallest page, in bytes." },
        Parameter {
            name: "most",
            default: "4194304",
            help: "The largest page, in bytes; sizes in between are 4 times the one before.",
        },
    ],
    full: &[("pages", "64"), ("samples", "9")],
    figures: &[Figure {
        name: "protocol",
        question: "How fast does one page come from where it can be?",
        expect: "From DRAM, its home's or a third node's, about as fast as a plain get of as many bytes; the forward to a third node \
                     is hidden from 1 MiB on; from NVMe as fast as the drive. The paper saw the same, and took 4 MiB.",
        cases: &["from the home's DRAM", "from a third node's DRAM", "from the home's NVMe", "plain get"],
        references: &["plain get"],
        claims: &[
            Claim::new("from the home's DRAM", Reference::Case("plain get"), 0.9)
                .within(262_144.0, f64::INFINITY),
            Claim::new("from a third node's DRAM", Reference::Case("plain get"), 0.85)
                .within(1_048_576.0, f64::INFINITY),
        ],
        form: Form::Lines { by: "page_bytes", label: "size of a page", panels: "" },
        ..Figure::BASE
    }],
    check,
    run,
};

/// The word before rates of pages from their home's DRAM.
pub(super) const FROM_HOME: &str = "home ";

/// Sources of pages: the ranks' output, and the names of the rows.
const SOURCES: [(&str, &str); 4] = [
    ("nvm ", "from the home's NVMe"),
    (FROM_HOME, "from the home's DRAM"),
    ("peer ", "from a third node's DRAM"),
    ("get ", "plain get"),
];

/// For the first three: the share that did come from there.
const SHARES: [&str; 3] = ["nvm_share ", "home_share ", "peer_share "];

/// The asking node, the home, and the third one.
const A: u32 = 0;
const B: u32 = 1;
const C: u32 = 2;

fn check(options: &Options) -> Result<()> {
    let (least, most): (u64, u64) = (options.get("least")?, options.get("most")?);
    let is_page = |bytes: u64| bytes.is_power_of_two() && (4 << 10..=4 << 20).contains(&bytes);
    if !is_page(least) || !is_page(most) || least > most {
        return Err("`least` and `most` are powers of two from 4096 to 4194304, in this order".into());
    }
    if options.get::<u64>("pages")?.saturating_mul(options.get("samples")?) > 1 << 16 {
        return Err("more than 65536 pages in all: lower `pages` or `samples`".into());
    }
    Ok(())
}

fn run(options: &Options) -> Result<Vec<Row>> {
    let (pages, samples): (u64, u64) = (options.get("pages")?, options.get("samples")?);
    if child::in_job() {
        return rank(pages, samples);
    }
    let (least, most): (u64, u64) = (options.get("least")?, options.get("most")?);
    let texts = [format!("pages={pages}"), format!("samples={samples}")];
    let program = ["bench", "protocol", "--param", &texts[0], "--param", &texts[1]];
    let mut rows = Vec::new();
    let sizes = std::iter::successors(Some(least), |size| Some(size * 4)).take_while(|size| *size <= most);
    for page in sizes {
        // Pages that B and C must have stay there.
        let cache = (page * (4 * pages * samples + 64)).to_string();
        let page_text = page.to_string();
        let flags = [
            "-n",
            "3",
            "--nodes",
            "3",
            "--page",
            &page_text,
            "--cache",
            &cache,
            "--set",
            "ablation.read_ahead=off",
        ];
        let (_, printed) = child::run(options, &flags, &program)?;
        let mut report = Report::new("protocol").under("page_bytes", page);
        for (word, name) in SOURCES {
            report.add(name, "rate", "MB/s", numbers(&printed, word)?);
        }
        let plain = numbers(&printed, SOURCES[3].0)?;
        for (word, name) in &SOURCES[..3] {
            report.ratio((name, &numbers(&printed, word)?), (SOURCES[3].1, &plain));
        }
        for (word, (_, name)) in SHARES.iter().zip(SOURCES) {
            report.add(&format!("share that came {name}"), "share", "", numbers(&printed, word)?);
        }
        rows.extend(report.into_rows());
    }
    Ok(rows)
}

fn numbers(printed: &str, word: &str) -> Result<Vec<f64>> {
    child::told(child::numbers(printed, word))
}

fn rank(pages: u64, samples: u64) -> Result<Vec<Row>> {
    let runtime = Runtime::init()?;
    let page = runtime.page_bytes();
    let me = runtime.rank().0;
    let bytes = |pages: u64| pages * page as u64;
    // For each source its own pages; what B writes to push its pages to NVMe comes behind them.
    let of_source = bytes(pages * samples);
    let spare = 2 * runtime.cache_layout().frames_bytes();
    runtime.attach(&SegmentOptions::tiered(if me == B { 3 * of_source + spare } else { 0 }))?;
    runtime.attach(&SegmentOptions::pinned(if me == B { bytes(pages) } else { 0 }))?;
    let at = |offset: u64| GlobalAddress::tiered(Rank(B), offset);
    let mut buffer = noise(page, 7);
    if me == B {
        for offset in (0..3 * of_source).step_by(page) {
            runtime.put(at(offset), &buffer)?;
        }
        for offset in (3 * of_source..3 * of_source + spare).step_by(page) {
            runtime.put(at(offset), &buffer)?;
        }
        // All that the home is to have in DRAM.
        for offset in (of_source..2 * of_source).step_by(page) {
            runtime.get(at(offset), &mut buffer)?;
        }
    }
    runtime.barrier()?;
    if me == C {
        for offset in (2 * of_source..3 * of_source).step_by(page) {
            runtime.get(at(offset), &mut buffer)?;
        }
    }
    if me == A {
        use_all_frames(&runtime, &mut buffer)?;
    }
    let counters = [Counter::FromNvm, Counter::FromHome, Counter::FromPeer];
    // Collective, and so before and after all samples of a source.
    let mut shares = [0.0; 3];
    for (source, (counter, share)) in counters.iter().zip(&mut shares).enumerate() {
        let before = runtime.statistics()?;
        for sample in 0..samples {
            runtime.barrier()?;
            if me == A {
                let first = of_source * source as u64 + bytes(pages) * sample;
                let time = fetch(&runtime, at(first), pages, &mut buffer)?;
                say_rate(SOURCES[source].0, bytes(pages), time)?;
            }
        }
        let since = runtime.statistics()?.since(&before);
        let all: u64 = counters.iter().map(|counter| since.get(*counter)).sum();
        *share = since.get(*counter) as f64 / all.max(1) as f64;
    }
    for _ in 0..samples {
        runtime.barrier()?;
        if me == A {
            let time = fetch(&runtime, GlobalAddress::pinned(Rank(B), 0), pages, &mut buffer)?;
            say_rate(SOURCES[3].0, bytes(pages), time)?;
        }
    }
    runtime.barrier()?;
    if me == A {
        for (word, share) in SHARES.iter().zip(shares) {
            say::print(format_args!("{word}{share}\n"))?;
        }
    }
    runtime.finalize()?;
    Ok(Vec::new())
}

/// Gets never-written pages, as many as there are frames, and forgets them: without a message, or a look at
/// the drive.
fn use_all_frames(runtime: &Runtime, buffer: &mut [u8]) -> Result<()> {
    let bytes = runtime.cache_layout().frames_bytes();
    let segment = runtime.attach(&SegmentOptions::tiered(bytes).independent())?;
    for offset in (0..bytes).step_by(buffer.len()) {
        runtime.get(segment.address(runtime.rank(), offset), buffer)?;
    }
    Ok(segment.detach()?)
}

/// Gets so many blocks of the buffer's size, one after the other; seconds.
fn fetch(runtime: &Runtime, from: GlobalAddress, blocks: u64, buffer: &mut [u8]) -> Result<f64> {
    let start = Instant::now();
    for block in 0..blocks {
        let from = from.checked_add(block * buffer.len() as u64).ok_or("an address beyond all")?;
        runtime.get(from, buffer)?;
    }
    Ok(start.elapsed().as_secs_f64())
}

fn say_rate(word: &str, bytes: u64, seconds: f64) -> Result<()> {
    Ok(say::print(format_args!("{word}{}\n", bytes as f64 / seconds / 1e6))?)
}
