//! The middle part: every rank's blocks of C, panel by panel, with the next panels on their way.

use super::error::Result;
use super::kernel::{Element, Factor, multiply};
use super::memory::{Buffer, GlobalMemory, PendingGet};
use super::plan::{Operand, Plan, Tile};
use std::time::{Duration, Instant};

/// Time by phase, and bytes moved.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Work {
    /// In the kernel.
    pub multiplying: Duration,
    /// In gets and puts.
    pub waiting: Duration,
    /// Bytes of panels asked for.
    pub fetched: u64,
    /// Bytes of blocks put.
    pub stored: u64,
}

/// One panel of one block, in a rank's order of work.
#[derive(Clone, Debug)]
struct Step {
    block: (u64, u64),
    first: bool,
    last: bool,
    a: Tile,
    b: Tile,
}

/// The order of work: `count` steps, each computed when asked for.
struct Steps<'a> {
    plan: &'a Plan,
    blocks: Vec<(u64, u64)>,
}

impl Steps<'_> {
    fn count(&self) -> u64 {
        self.blocks.len() as u64 * self.plan.tiles[2]
    }

    fn get(&self, step: u64) -> Option<Step> {
        if step >= self.count() {
            return None;
        }
        let panels = self.plan.tiles[2];
        let (turn, at) = (step / panels, step % panels);
        let (i, j) = self.blocks[turn as usize];
        let k = self.plan.panel(turn, at);
        Some(Step {
            block: (i, j),
            first: at == 0,
            last: at == panels - 1,
            a: self.plan.tile(Operand::A, i, k),
            b: self.plan.tile(Operand::B, k, j),
        })
    }
}

/// A panel here or on its way.
struct Panel {
    tile: Tile,
    buffer: Buffer,
}

enum Next<'m> {
    /// It is the panel that is being multiplied.
    Same,
    OnItsWay(Tile, Box<dyn PendingGet + 'm>),
}

/// Fetches panels into two buffers that take turns.
struct Fetcher<'m> {
    memory: &'m dyn GlobalMemory,
    now: Panel,
    spare: Option<Buffer>,
    next: Next<'m>,
}

impl<'m> Fetcher<'m> {
    fn new(memory: &'m dyn GlobalMemory, bytes: usize, first: Tile) -> Result<Self> {
        let pending = memory.get_start(first.owner, first.offset, Buffer::new(bytes), first.bytes)?;
        // Nothing is multiplied yet: the panel here is an empty one that is equal to no other.
        let nowhere = Tile { owner: usize::MAX, ..first.clone() };
        let now = Panel { tile: nowhere, buffer: Buffer::new(bytes) };
        Ok(Self { memory, now, spare: None, next: Next::OnItsWay(first, pending) })
    }

    /// Waits for the next panel, which becomes the present one.
    fn advance(&mut self) -> Result<()> {
        if let Next::OnItsWay(tile, pending) = std::mem::replace(&mut self.next, Next::Same) {
            let buffer = pending.wait()?;
            self.spare = Some(std::mem::replace(&mut self.now, Panel { tile, buffer }).buffer);
        }
        Ok(())
    }

    /// Starts to fetch what will be the next panel; returns the bytes that this moves.
    fn start(&mut self, tile: Tile) -> Result<u64> {
        if tile == self.now.tile {
            return Ok(0);
        }
        let buffer = self.spare.take().unwrap_or_default();
        let bytes = tile.bytes as u64;
        let pending = self.memory.get_start(tile.owner, tile.offset, buffer, tile.bytes)?;
        self.next = Next::OnItsWay(tile, pending);
        Ok(bytes)
    }
}

/// Computes the blocks of C that this rank owns and puts them into its segment. `done` is told of every step.
pub(super) fn compute<T: Element>(
    memory: &dyn GlobalMemory,
    plan: &Plan,
    done: &mut dyn FnMut(u64),
) -> Result<Work> {
    let steps = Steps { plan, blocks: plan.blocks(memory.rank()) };
    let mut work = Work::default();
    let Some(first) = steps.get(0) else {
        return zeros(memory, plan, &steps.blocks);
    };
    let began = Instant::now();
    let orders = plan.problem.tile_orders();
    let mut block = Buffer::new(plan.tile_bytes(Operand::C));
    work.fetched += (first.a.bytes + first.b.bytes) as u64;
    let mut a = Fetcher::new(memory, plan.tile_bytes(Operand::A), first.a)?;
    let mut b = Fetcher::new(memory, plan.tile_bytes(Operand::B), first.b)?;
    let mut announced = 1;
    for at in 0..steps.count() {
        let Some(step) = steps.get(at) else { break };
        a.advance()?;
        b.advance()?;
        if let Some(next) = steps.get(at + 1) {
            work.fetched += a.start(next.a)? + b.start(next.b)?;
        }
        while announced < at + 1 + plan.ahead {
            announced += 1;
            if let Some(later) = steps.get(announced) {
                memory.prefetch(later.a.owner, later.a.offset, later.a.bytes as u64);
                memory.prefetch(later.b.owner, later.b.offset, later.b.bytes as u64);
            }
        }
        let length = |range: &std::ops::Range<u64>| (range.end - range.start) as usize;
        let sizes = [
            length(&step.a.rectangle.rows),
            length(&step.b.rectangle.columns),
            length(&step.a.rectangle.columns),
        ];
        let [m, n, k] = sizes;
        let factors = [
            Factor { numbers: a.now.buffer.numbers::<T>(m * k), order: orders[0] },
            Factor { numbers: b.now.buffer.numbers::<T>(k * n), order: orders[1] },
        ];
        let start = Instant::now();
        multiply(block.numbers_mut::<T>(m * n), orders[2], factors, sizes, !step.first, memory.threads());
        work.multiplying += start.elapsed();
        if step.last {
            let tile = plan.tile(Operand::C, step.block.0, step.block.1);
            memory.put(tile.owner, tile.offset, &block.bytes()[..tile.bytes])?;
            work.stored += tile.bytes as u64;
        }
        done(1);
    }
    work.waiting = began.elapsed().saturating_sub(work.multiplying);
    Ok(work)
}

/// An empty sum (k = 0) is 0, and not what the segment happened to hold.
fn zeros(memory: &dyn GlobalMemory, plan: &Plan, blocks: &[(u64, u64)]) -> Result<Work> {
    let zeros = Buffer::new(plan.tile_bytes(Operand::C));
    let mut work = Work::default();
    for &(i, j) in blocks {
        let tile = plan.tile(Operand::C, i, j);
        memory.put(tile.owner, tile.offset, &zeros.bytes()[..tile.bytes])?;
        work.stored += tile.bytes as u64;
    }
    Ok(work)
}
