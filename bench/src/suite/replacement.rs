//! Compares choices of the page to evict, in terms of a cluster: a page that another node has costs a
//! message, a page without copies costs a read of NVMe. Traces are replayed through the policies that ship
//! (`ablation.replacement`), and through two that do not, on a model of nodes: so the counts are the same on
//! every machine, and in every run.
//!
//! Pages have 64 KiB. A miss costs a message there and a page back, and the read where no node has the page; hits cost nothing. Nodes
//! take turns, one access each. Nothing is written. Policies see every access; in the product they see them late
//! ([`vgas_cache::replacement`]).
//!
//! Time is computed for two clusters ([`CLUSTERS`]). The default policy keeps last copies, which saves reads of NVMe and costs hits. That
//! pays where a page comes sooner from another node's DRAM than from NVMe by more than the lost hits cost: on today's links and drives it
//! does, on links of 1 Gbit/s it does not.

use super::job::Result;
use super::policies::{self, Policy};
use super::report::Report;
use crate::figure::{Better, Claim, Figure, Form, Reference};
use crate::registry::{Benchmark, Options, Parameter, Row, Setup};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use vgas_cache::replacement::{Class, FrameId, FrameView};

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "replacement",
    help: "Pages read from NVMe, and time, of replacement policies on scans, loops, Zipf and mixed, in a model of a cluster.",
    setup: Setup::NoJob { takes: &[] },
    settings: &[],
    parameters: &[
        Parameter { name: "nodes", default: "4", help: "Nodes of the model." },
        Parameter { name: "frames", default: "640", help: "Pages that one node's cache holds." },
        Parameter { name: "pages", default: "2048", help: "Pages of the data." },
        Parameter { name: "accesses", default: "60000", help: "Accesses of each node." },
    ],
    full: &[("nodes", "16"), ("frames", "4096"), ("pages", "49152"), ("accesses", "400000")],
    figures: &[
        Figure {
            name: "replacement-nvm",
            question: "How often does an access read NVMe, by policy?",
            expect: "LRU by cost reads NVMe least: it keeps last copies, and all caches together hold the data. In loops over a part of it only \
                     S3-FIFO comes near, because it keeps a part of each loop.",
            metric: "share",
            unit: "%",
            form: Form::Dots { by: &["trace"] },
            better: Better::Lower,
            claims: &[
                Claim::new(DEFAULT, Reference::Case("LRU + FIFO (the paper's)"), 1.0),
                Claim::new(DEFAULT, Reference::Case("LRU"), 1.0),
                Claim::new(DEFAULT, Reference::Case("S3-FIFO"), 1.0),
                Claim::new(DEFAULT, Reference::Case("CLOCK"), 1.0),
            ],
            is_simulated: true,
            ..Figure::BASE
        },
        Figure {
            name: "replacement-time",
            question: "What does an access cost on 25 Gbit/s links and 2 GB/s drives, by policy?",
            expect: "LRU by cost is the cheapest wherever the caches together hold the data: a read of NVMe costs about three times a page from \
                     another node. In loops, S3-FIFO's hits outweigh that.",
            metric: CLUSTERS[0].0,
            unit: "us",
            form: Form::Dots { by: &["trace"] },
            better: Better::Lower,
            claims: &[
                Claim::new(DEFAULT, Reference::Case("LRU + FIFO (the paper's)"), 0.97),
                Claim::new(DEFAULT, Reference::Case("LRU"), 1.0),
                Claim::new(DEFAULT, Reference::Case("CLOCK"), 1.0),
            ],
            is_simulated: true,
            ..Figure::BASE
        },
        Figure {
            name: "replacement-time-slow",
            question: "What does an access cost on 1 Gbit/s links and 200 MiB/s drives, by policy?",
            expect: "S3-FIFO and LRU are cheaper than LRU by cost, except in scans: over such links a page costs nearly as much from another \
                     node as from NVMe, so hits count most. On such a cluster, set ablation.replacement to lru.",
            metric: CLUSTERS[1].0,
            unit: "us",
            form: Form::Dots { by: &["trace"] },
            better: Better::Lower,
            claims: &[Claim::new("S3-FIFO", Reference::Case(DEFAULT), 0.8)],
            is_simulated: true,
            ..Figure::BASE
        },
    ],
    check,
    run,
};

/// The two clusters of the model: metric, microseconds of a page from another node's DRAM (two latencies, and 64 KiB over the link), and
/// microseconds of reading the page from NVMe before (latency, and 64 KiB from the drive).
const CLUSTERS: [(&str, f64, f64); 2] = [
    ("time, 25 Gbit/s and 10 us, 2 GB/s and 80 us", 10.0 + 10.0 + 21.0, 80.0 + 32.8),
    ("time, 1 Gbit/s and 50 us, 200 MiB/s", 50.0 + 50.0 + 524.3, 312.5),
];

const DEFAULT: &str = "LRU by cost (default)";

const POLICIES: [(&str, &str); 5] = [
    (DEFAULT, "lru-by-cost"),
    ("LRU + FIFO (the paper's)", "lru-second-chance"),
    ("LRU", "lru"),
    ("S3-FIFO", "s3-fifo"),
    ("CLOCK", "clock"),
];

fn check(options: &Options) -> Result<()> {
    let (nodes, frames): (u32, u32) = (options.get("nodes")?, options.get("frames")?);
    let (pages, accesses): (u64, u64) = (options.get("pages")?, options.get("accesses")?);
    if nodes > 1024 || frames > 1 << 20 || pages > 1 << 24 || accesses > 1 << 30 || frames < 16 {
        return Err("at most 1024 nodes, 16 to 1048576 frames, 16777216 pages, 1073741824 accesses".into());
    }
    // A trace of all is made before it is replayed.
    if u64::from(nodes).saturating_mul(accesses) > 1 << 30 {
        return Err("at most 1073741824 accesses of all nodes together".into());
    }
    Ok(())
}

/// Pattern of accesses: by node and the number of the access.
#[derive(Clone, Copy)]
enum Trace {
    Scan,
    Loop,
    Zipf,
    Mixed,
}

impl Trace {
    const ALL: [(Trace, &'static str); 4] = [
        (Trace::Scan, "scan by all, one close behind the other"),
        (Trace::Loop, "loop of each, over 1.3 caches"),
        (Trace::Zipf, "Zipf 0.9"),
        (Trace::Mixed, "Zipf with a scan of one node"),
    ];

    fn of_node(self, node: u32, options: &Numbers) -> Vec<u32> {
        let Numbers { nodes, frames, pages, accesses } = *options;
        let mut random = ChaCha8Rng::seed_from_u64(u64::from(node) + 1);
        let zipf = Zipf::new(pages);
        (0..accesses)
            .map(|at| match self {
                Trace::Scan => ((at + u64::from(nodes - node) * 16) % u64::from(pages)) as u32,
                // Each its own part of the data, which overlaps with the next one's.
                Trace::Loop => {
                    let round = u64::from(frames) * 13 / 10;
                    let first = u64::from(node) * round / 2;
                    ((first + at % round) % u64::from(pages)) as u32
                }
                Trace::Mixed if node == 0 => (at % u64::from(pages)) as u32,
                Trace::Zipf | Trace::Mixed => zipf.draw(&mut random),
            })
            .collect()
    }
}

/// Ranks of pages by use, scattered over the data.
struct Zipf {
    upto: Vec<f64>,
}

impl Zipf {
    fn new(pages: u32) -> Self {
        let mut sum = 0.0;
        let weights = (1..=pages).map(|rank| {
            sum += f64::from(rank).powf(-0.9);
            sum
        });
        Self { upto: weights.collect() }
    }

    fn draw(&self, random: &mut ChaCha8Rng) -> u32 {
        let all = self.upto.last().copied().unwrap_or(1.0);
        let at = random.random::<f64>() * all;
        let rank = self.upto.partition_point(|upto| *upto < at).min(self.upto.len() - 1);
        // An odd number has an inverse for every power of two, and most others.
        ((rank as u64 * 2_654_435_761) % self.upto.len() as u64) as u32
    }
}

#[derive(Clone, Copy)]
struct Numbers {
    nodes: u32,
    frames: u32,
    pages: u32,
    accesses: u64,
}

fn run(options: &Options) -> Result<Vec<Row>> {
    let numbers = Numbers {
        nodes: options.get("nodes")?,
        frames: options.get("frames")?,
        pages: options.get("pages")?,
        accesses: options.get("accesses")?,
    };
    let mut rows = Vec::new();
    for (trace, trace_name) in Trace::ALL {
        let traces: Vec<Vec<u32>> = (0..numbers.nodes).map(|node| trace.of_node(node, &numbers)).collect();
        for (name, policy) in POLICIES {
            let counted = replay(&traces, &numbers, policy)?;
            let mut report =
                Report::new("replacement").under("trace", trace_name).under("nodes", numbers.nodes);
            let all = counted.accesses as f64;
            let percent = |count: u64| vec![count as f64 / all * 100.0];
            report.add(name, "count", "", vec![counted.from_nvm as f64]);
            report.add(name, "share", "%", percent(counted.from_nvm));
            report.add(&format!("{name}, hits"), "hit ratio", "%", percent(counted.hits));
            let misses = (counted.accesses - counted.hits) as f64;
            for (metric, from_dram, from_nvm) in CLUSTERS {
                let time = (misses * from_dram + counted.from_nvm as f64 * from_nvm) / all;
                report.add(name, metric, "us", vec![time]);
            }
            rows.extend(report.into_rows());
        }
    }
    Ok(rows)
}

#[derive(Debug, Default, PartialEq)]
struct Counted {
    accesses: u64,
    hits: u64,
    from_nvm: u64,
}

/// A node: the page in each frame, its last use, and the policy that chooses victims.
struct Node {
    policy: Box<dyn Policy>,
    page_of: Vec<Option<u32>>,
    stamps: Vec<u32>,
    /// By page.
    frame_of: Vec<Option<u32>>,
    free: Vec<u32>,
}

struct View<'a> {
    page_of: &'a [Option<u32>],
    stamps: &'a [u32],
    holders: &'a [u32],
    now: u32,
}

impl FrameView for View<'_> {
    fn stamp(&self, frame: FrameId) -> u32 {
        self.stamps[frame.0 as usize]
    }

    fn clock(&self) -> u32 {
        self.now
    }

    fn class(&self, frame: FrameId) -> Class {
        let holders = self.page_of[frame.0 as usize].map_or(0, |page| self.holders[page as usize]);
        if holders > 1 { Class::Other } else { Class::Exclusive }
    }

    fn evictable(&self, _: FrameId) -> bool {
        true
    }

    fn frames(&self) -> usize {
        self.page_of.len()
    }
}

impl Node {
    fn new(policy: &str, numbers: &Numbers) -> Result<Self> {
        let (frames, pages) = (numbers.frames as usize, numbers.pages as usize);
        Ok(Self {
            policy: policies::named(policy, numbers.frames).ok_or("no such policy")?,
            page_of: vec![None; frames],
            stamps: vec![0; frames],
            frame_of: vec![None; pages],
            free: (0..numbers.frames).rev().collect(),
        })
    }

    /// Returns true if the page was here. `holders` has the number of nodes with a copy, for all pages.
    fn access(&mut self, page: u32, now: u32, holders: &mut [u32]) -> Result<bool> {
        if let Some(frame) = self.frame_of[page as usize] {
            self.stamps[frame as usize] = now;
            self.policy.used(frame, now);
            return Ok(true);
        }
        let frame = match self.free.pop() {
            Some(frame) => frame,
            None => {
                let view = View { page_of: &self.page_of, stamps: &self.stamps, holders, now };
                let frame = self.policy.victim(&view).ok_or("a policy gives up nothing")?;
                if let Some(old) = self.page_of[frame as usize].take() {
                    self.frame_of[old as usize] = None;
                    holders[old as usize] -= 1;
                }
                frame
            }
        };
        self.page_of[frame as usize] = Some(page);
        self.stamps[frame as usize] = now;
        self.frame_of[page as usize] = Some(frame);
        holders[page as usize] += 1;
        self.policy.filled(frame, page, now);
        Ok(false)
    }
}

fn replay(traces: &[Vec<u32>], numbers: &Numbers, policy: &str) -> Result<Counted> {
    let mut nodes: Vec<Node> = traces.iter().map(|_| Node::new(policy, numbers)).collect::<Result<_>>()?;
    let mut holders = vec![0u32; numbers.pages as usize];
    let mut counted = Counted::default();
    for turn in 0..numbers.accesses as usize {
        for (node, trace) in nodes.iter_mut().zip(traces) {
            let page = trace[turn];
            let nobody_has_it = holders[page as usize] == 0;
            counted.accesses += 1;
            match node.access(page, turn as u32 + 1, &mut holders)? {
                true => counted.hits += 1,
                false => counted.from_nvm += u64::from(nobody_has_it),
            }
        }
    }
    Ok(counted)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the counts are what they must be where that is plain. Two nodes read four pages in turn, from different places: with room
    /// for all, each page comes from NVMe once; where there is none, LRU gives up a last copy that others keep.
    #[test]
    fn counts_are_those_of_small_cases() {
        let traces = [[0, 1, 2, 3].repeat(50), [2, 3, 0, 1].repeat(50)];
        let numbers = |frames| Numbers { nodes: 2, frames, pages: 4, accesses: 200 };
        for policy in POLICIES {
            let counted = replay(&traces, &numbers(4), policy.1).unwrap();
            assert_eq!(counted, Counted { accesses: 400, hits: 392, from_nvm: 4 }, "{}", policy.0);
        }
        // The first node's page 1 is the only copy, its page 0 is not.
        let traces = [vec![1, 0, 2, 1], vec![0; 4]];
        let numbers = Numbers { nodes: 2, frames: 2, pages: 4, accesses: 4 };
        let replayed = |policy| replay(&traces, &numbers, policy).unwrap();
        assert_eq!(replayed("lru"), Counted { accesses: 8, hits: 3, from_nvm: 4 });
        for policy in ["lru-second-chance", "lru-by-cost"] {
            assert_eq!(replayed(policy), Counted { accesses: 8, hits: 4, from_nvm: 3 }, "{policy}");
        }
    }
}
