//! The ranks' programs of figures 8 to 11, as steps.

use super::machine::CONTENT;
use super::rank::{Range, Step, Steps};
use crate::gemm::plan::{Operand, Plan, Tile};
use rand::SeedableRng;
use rand::seq::SliceRandom;

const PAGE: u64 = CONTENT as u64;

fn page(owner: u32, number: u64) -> Range {
    Range { owner, offset: number * PAGE, bytes: CONTENT }
}

/// Rank 0 writes so many pages of its partition, the others wait.
pub fn write(rank: usize, pages: u64) -> Steps<'static> {
    let pages = if rank == 0 { pages } else { 0 };
    let puts = (0..pages).flat_map(|number| [Step::Put(0, page(0, number), 0), Step::Await(0)]);
    Box::new(puts.chain([Step::Barrier]))
}

/// Every rank reads rank 0's first pages, in sequence or each in an order of its own, page by page, `passes` times.
pub fn scan(rank: usize, pages: u64, passes: u64, at_random: bool) -> Steps<'static> {
    let mut order: Vec<u64> = (0..pages).collect();
    if at_random {
        order.shuffle(&mut rand_chacha::ChaCha8Rng::seed_from_u64(rank as u64));
    }
    let count = order.len() * passes as usize;
    let gets = order.into_iter().cycle().take(count);
    Box::new(gets.flat_map(|number| [Step::Get(0, page(0, number)), Step::Await(0)]).chain([Step::Barrier]))
}

/// Every rank puts a byte of its own into rank 0's first page, so often; all meet after each put, or after the last.
pub fn share(rank: usize, puts: u64, in_step: bool) -> Steps<'static> {
    let mine = Range { owner: 0, offset: rank as u64 % PAGE, bytes: 1 };
    Box::new((0..puts).flat_map(move |put| {
        let meet = (in_step || put + 1 == puts).then_some(Step::Barrier);
        [Step::Put(0, mine, put as u8), Step::Await(0)].into_iter().chain(meet)
    }))
}

/// All ranks meet so often.
pub fn meet(times: usize) -> Steps<'static> {
    Box::new(std::iter::repeat_n(Step::Barrier, times))
}

/// A product as it is simulated: its plan, and how far the simulation goes.
#[derive(Clone, Copy, Debug)]
pub struct Product<'p> {
    pub plan: &'p Plan,
    /// Bytes of a page that a simulated one stands for.
    pub page_bytes: u64,
    /// Panels of each rank that are simulated, from the first on.
    pub panels: u64,
    /// Floating point operations of a rank in a nanosecond.
    pub gflops: f64,
}

impl Product<'_> {
    fn range(&self, tile: &Tile) -> Range {
        let scale = self.page_bytes / PAGE;
        let end = (tile.offset + tile.bytes as u64).div_ceil(scale);
        let offset = tile.offset / scale;
        Range { owner: tile.owner as u32, offset, bytes: (end - offset) as usize }
    }

    /// Pages that each partition has.
    pub fn pages(&self) -> u64 {
        self.plan.segment_bytes().div_ceil(self.page_bytes)
    }

    /// A rank puts its part of both factors, as when they are loaded.
    pub fn load(&self, rank: usize) -> Steps<'static> {
        let groups = [Operand::A, Operand::B].into_iter().flat_map(|operand| self.plan.groups(operand, rank));
        let tiles: Vec<Range> = groups.flat_map(|group| group.tiles).map(|tile| self.range(&tile)).collect();
        let puts = tiles.into_iter().flat_map(|range| [Step::Put(0, range, 1), Step::Await(0)]);
        Box::new(puts.chain([Step::Barrier]))
    }

    /// Panels of a rank in all, and those that are simulated.
    pub fn panels(&self, rank: usize) -> (u64, u64) {
        let all = self.plan.blocks(rank).len() as u64 * self.plan.tiles[2];
        (all, all.min(self.panels))
    }

    /// A rank multiplies, panel by panel, with the next ones on their way: the order of [`crate::gemm`].
    pub fn multiply(&self, rank: usize) -> Steps<'static> {
        let plan = self.plan;
        let (blocks, (_, count)) = (plan.blocks(rank), self.panels(rank));
        let tiles = |step: u64| {
            let (turn, at) = (step / plan.tiles[2], step % plan.tiles[2]);
            let &(i, j) = blocks.get(turn as usize)?;
            let k = plan.panel(turn, at);
            Some([plan.tile(Operand::A, i, k), plan.tile(Operand::B, k, j)])
        };
        let mut steps = Vec::new();
        // For A and for B: the slot of the panel in flight, and the panel.
        let mut on_its_way: [Option<(usize, Tile)>; 2] = [None, None];
        let mut fetch = |steps: &mut Vec<Step>, which: usize, tile: Tile, now: usize| {
            if on_its_way[which].as_ref().is_some_and(|(_, here)| *here == tile) {
                return;
            }
            let slot = which * 2 + now;
            steps.push(Step::Get(slot, self.range(&tile)));
            on_its_way[which] = Some((slot, tile));
        };
        let mut awaited = 1;
        for step in 0..count {
            let Some(now) = tiles(step) else { break };
            let parity = (step % 2) as usize;
            if step == 0 {
                now.iter()
                    .cloned()
                    .enumerate()
                    .for_each(|(which, tile)| fetch(&mut steps, which, tile, parity));
            }
            steps.extend([Step::Await(parity), Step::Await(2 + parity)]);
            if let Some(next) = tiles(step + 1).filter(|_| step + 1 < count) {
                next.into_iter()
                    .enumerate()
                    .for_each(|(which, tile)| fetch(&mut steps, which, tile, 1 - parity));
            }
            while awaited < step + 1 + plan.ahead {
                awaited += 1;
                for tile in tiles(awaited).filter(|_| awaited < count).iter().flatten() {
                    steps.push(Step::Prefetch(self.range(tile)));
                }
            }
            let [a, b] = &now;
            let length = |range: &std::ops::Range<u64>| (range.end - range.start) as f64;
            let flops =
                2.0 * length(&a.rectangle.rows) * length(&a.rectangle.columns) * length(&b.rectangle.columns);
            steps.push(Step::Compute((flops / self.gflops) as u64));
        }
        steps.push(Step::Barrier);
        Box::new(steps.into_iter())
    }

    /// Floating point operations of the simulated panels of all ranks.
    pub fn flops(&self, ranks: usize) -> f64 {
        let of_rank = |rank: usize| {
            let (all, simulated) = self.panels(rank);
            if all == 0 {
                0.0
            } else {
                self.plan.problem.flops() / ranks as f64 * simulated as f64 / all as f64
            }
        };
        (0..ranks).map(of_rank).sum()
    }
}
