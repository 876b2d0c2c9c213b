//! What is simulated. Everything follows from the seed, so that a number replays a run.

use super::sabotage::Sabotage;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use vgas_cache::client::SegmentPages;
use vgas_cache::partition::{PartitionId, Policy, SegmentId};
use vgas_cache::parts::Limits;
use vgas_cache::pool::PageSize;
use vgas_cache::protocol::InPlaceService;
use vgas_nvm::device::faulty::Script;
use vgas_rma::address::Rank;

pub const PAGE: usize = 4096;

/// Sizes, settings and misfortune of one run.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub nodes: u32,
    pub ranks: u32,
    /// Frames of each node.
    pub frames: u32,
    /// What the pages of each segment are like; of the first, as everywhere.
    pub kinds: Vec<SegmentPages>,
    /// Bytes of each partition, in units of [`PAGE`]: first those of all ranks of the first segment, then of the next.
    pub partitions: Vec<u64>,
    pub cooperative: bool,
    pub in_place: Option<InPlaceService>,
    pub read_ahead: bool,
    pub batch: bool,
    pub whole_page_put: bool,
    pub window_pages_max: u64,
    pub replacement: &'static str,
    /// Gets of at most so many bytes read parts of pages.
    pub part_bytes_max: u64,
    /// Threads of each agent, here taking turns like everything else, and pages that have the same.
    pub agent_threads: u32,
    pub block_pages: u64,
    /// Ranks read pages of their own node by themselves.
    pub self_service: bool,
    /// Nodes ask for NVMe where it was faster.
    pub read_nearest: bool,
    pub delay_max: u64,
    /// Most messages on one way; few of them make the agents keep what they say.
    pub requests_max: usize,
    /// Gets and puts in total, and how many of them a rank may have in flight.
    pub operations: u32,
    pub operations_at_once: usize,
    /// The segments have names; ranks make checkpoints, and the disk is looked at in the end.
    pub named: bool,
    /// Turns until everything must have ended.
    pub turns_max: u64,
    /// Owners use their segments through pointers, too.
    pub pointers: bool,
    /// Every fourth page begins with a word that ranks count in, and do not put.
    pub tallies: bool,
    /// Each partition is written by its owner alone.
    pub owners_write: bool,
    pub sabotage: Option<Sabotage>,
    /// Misfortune of the disk of node 0.
    pub disk: Option<Script>,
    /// Bytes that the disk of each node has.
    pub disk_bytes_max: Option<u64>,
}

/// The largest pages that any segment may have.
pub const PAGE_MAX: u32 = 4 * PAGE as u32;

/// One segment, or up to three of different sizes and kinds.
fn draw_kinds(seed: u64) -> Vec<SegmentPages> {
    let mut random = ChaCha8Rng::seed_from_u64(seed ^ 0x6b69_6e64);
    let count = [1, 1, 2, 3][random.random_range(0..4)];
    let kind = |number: u16| {
        let bytes = if number == 0 {
            PAGE as u32
        } else {
            [PAGE as u32, 2 * PAGE as u32, PAGE_MAX][random.random_range(0..3)]
        };
        let policy = match number {
            0 => Policy::default(),
            _ => Policy {
                home_only: random.random_range(0..3) == 0,
                in_place: random.random(),
                read_ahead: random.random(),
                streamed: random.random_range(0..3) == 0,
                owned: false,
                weight: random.random_range(1..=3),
            },
        };
        let size = PageSize::of_bytes(bytes).expect("a size");
        SegmentPages { segment: SegmentId(number), size, policy }
    };
    (0..count).map(kind).collect()
}

impl Plan {
    /// Which partition a number of the plan is.
    pub fn partition(&self, number: u32) -> PartitionId {
        (SegmentId((number / self.ranks) as u16), Rank(number % self.ranks)).into()
    }

    /// The most pages that each rank can have in all.
    pub fn pages_max(&self) -> Vec<u64> {
        let largest = u64::from(PAGE_MAX) / PAGE as u64;
        let of_rank = |rank: usize| self.partitions.iter().skip(rank).step_by(self.ranks as usize);
        (0..self.ranks as usize)
            .map(|rank| of_rank(rank).map(|pages| pages.next_multiple_of(largest)).sum())
            .collect()
    }

    /// Gets of parts, of pages of any size.
    pub fn parts(&self) -> Limits {
        Limits { bytes_max: self.part_bytes_max, page_bytes_min: 0, page_parts_min: 1 }
    }

    /// Draws a plan without misfortune.
    pub fn draw(seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let nodes = random.random_range(2..=4);
        let per_node = random.random_range(1..=2);
        let ranks = nodes * per_node;
        let agent_threads = [1, 1, 2, 3][(seed % 4) as usize];
        // The smallest pool that a job may have, or a little more; each shard keeps a frame back.
        let smallest = 8 + 4 * per_node + (agent_threads - 1);
        let mut frames = if random.random() { smallest } else { random.random_range(smallest..=32) };
        let kinds = draw_kinds(seed);
        if kinds.len() > 1 {
            // Each size of pages needs blocks of its own.
            frames = 4 * frames.max(24) + random.random_range(0..16);
        }
        let in_place = random.random::<bool>().then(|| InPlaceService {
            enter_after: random.random_range(1..=3),
            leave_after: random.random_range(1..=4),
        });
        let replacements = vgas_cache::replacement::NAMES;
        Self {
            seed,
            nodes,
            ranks,
            frames,
            // Few pages are fought for; many do not fit.
            partitions: (0..ranks * kinds.len() as u32)
                .map(|number| random.random_range(u64::from(number == 0)..=16 * kinds.len() as u64))
                .collect(),
            kinds,
            cooperative: random.random(),
            in_place,
            read_ahead: random.random(),
            batch: random.random(),
            whole_page_put: random.random_range(0..4) > 0,
            window_pages_max: if random.random() { 64 } else { random.random_range(1..=4) },
            replacement: replacements[random.random_range(0..replacements.len())],
            delay_max: random.random_range(1..=20),
            requests_max: if random.random() { 64 } else { random.random_range(1..=4) },
            operations: random.random_range(50..=150),
            operations_at_once: random.random_range(1..=3),
            named: random.random(),
            turns_max: 2_000_000,
            pointers: random.random(),
            tallies: [false, true, true][(seed % 3) as usize],
            owners_write: false,
            part_bytes_max: [0, 64, PAGE as u64][random.random_range(0..3)],
            self_service: random.random_range(0..4) > 0,
            read_nearest: seed.is_multiple_of(2),
            agent_threads,
            block_pages: [1, 4][(seed / 4 % 2) as usize],
            sabotage: None,
            disk: None,
            disk_bytes_max: None,
        }
    }
}
