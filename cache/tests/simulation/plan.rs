//! What is simulated. Everything follows from the seed, so that a number replays a run.

use super::sabotage::Sabotage;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use vgas_cache::protocol::InPlaceService;
use vgas_nvm::device::faulty::Script;

pub const PAGE: usize = 4096;

/// Sizes, settings and misfortune of one run.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub nodes: u32,
    pub ranks: u32,
    /// Frames of each node.
    pub frames: u32,
    /// Pages of each rank's segment.
    pub segments: Vec<u64>,
    pub cooperative: bool,
    pub in_place: Option<InPlaceService>,
    pub read_ahead: bool,
    pub batch: bool,
    pub whole_page_put: bool,
    pub window_pages_max: u64,
    pub replacement: &'static str,
    /// Gets of at most so many bytes read parts of pages.
    pub part_bytes_max: u32,
    /// Threads of each agent, here taking turns like everything else, and pages that have the same.
    pub agent_threads: u32,
    pub block_pages: u64,
    /// Ranks read pages of their own node by themselves.
    pub self_service: bool,
    pub delay_max: u64,
    /// Most messages on one way; few of them make the agents keep what they say.
    pub requests_max: usize,
    /// Gets and puts in total, and how many of them a rank may have under way.
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
    pub sabotage: Option<Sabotage>,
    /// Misfortune of the disk of node 0.
    pub disk: Option<Script>,
    /// Bytes that the disk of each node has.
    pub disk_bytes_max: Option<u64>,
}

impl Plan {
    /// Draws a plan without misfortune.
    pub fn draw(seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let nodes = random.random_range(2..=4);
        let per_node = random.random_range(1..=2);
        let ranks = nodes * per_node;
        let agent_threads = [1, 1, 2, 3][(seed % 4) as usize];
        // The smallest pool that a job may have, or a little more; each shard keeps a frame back.
        let smallest = 8 + 4 * per_node + (agent_threads - 1);
        let frames = if random.random() { smallest } else { random.random_range(smallest..=32) };
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
            segments: (0..ranks).map(|rank| random.random_range(u64::from(rank == 0)..=16)).collect(),
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
            part_bytes_max: [0, 64, PAGE as u32][random.random_range(0..3)],
            self_service: random.random_range(0..4) > 0,
            agent_threads,
            block_pages: [1, 4][(seed / 4 % 2) as usize],
            sabotage: None,
            disk: None,
            disk_bytes_max: None,
        }
    }
}
