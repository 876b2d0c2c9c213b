//! Heat spreads on a torus whose rows are distributed over the ranks' tiered segments. Each step reads the neighbours'
//! rows at the borders (the halo) and writes the own rows of the next step; a barrier separates steps.
//!
//! Run it: `cargo build --release --examples && target/release/vgas run -n 4 --nodes 2 -- target/release/examples/stencil`

use vgas::{Rank, Runtime, SegmentOptions};

const COLUMNS: usize = 512;
const ROWS_EACH: usize = 64;
const STEPS: usize = 50;

fn main() -> vgas::Result<()> {
    let runtime = Runtime::init()?;
    let (me, ranks) = (runtime.rank(), runtime.ranks());
    let row_bytes = COLUMNS * size_of::<f64>();
    let grid = runtime.attach(&SegmentOptions::tiered((2 * ROWS_EACH * row_bytes) as u64))?;
    // A row of a rank in the grid of even or odd steps.
    let at = |rank: Rank, step: usize, row: usize| {
        grid.address(rank, (((step % 2) * ROWS_EACH + row) * row_bytes) as u64)
    };
    let (above, below) = (Rank((me.0 + ranks - 1) % ranks), Rank((me.0 + 1) % ranks));
    if me.0 == 0 {
        // One hot spot; everything else is cold.
        runtime.put_value(at(me, 0, ROWS_EACH / 2), 1_000_000.0f64)?;
    }
    runtime.barrier()?;
    let mut old = vec![0.0f64; (ROWS_EACH + 2) * COLUMNS];
    let mut new = vec![0.0f64; ROWS_EACH * COLUMNS];
    for step in 0..STEPS {
        let (top, rest) = old.split_at_mut(COLUMNS);
        let (own, bottom) = rest.split_at_mut(ROWS_EACH * COLUMNS);
        // All three at once: while one waits for a neighbour's row, the others arrive.
        runtime.batch(|batch| {
            batch.get(at(above, step, ROWS_EACH - 1), top)?;
            batch.get(at(below, step, 0), bottom)?;
            batch.get(at(me, step, 0), own)
        })?;
        for row in 1..=ROWS_EACH {
            for column in 0..COLUMNS {
                let cell = |row: usize, column: usize| old[row * COLUMNS + column % COLUMNS];
                let around = cell(row - 1, column)
                    + cell(row + 1, column)
                    + cell(row, column + 1)
                    + cell(row, column + COLUMNS - 1);
                new[(row - 1) * COLUMNS + column] = 0.5 * cell(row, column) + 0.125 * around;
            }
        }
        runtime.put(at(me, step + 1, 0), &new)?;
        runtime.barrier()?;
    }
    let heat = runtime.all_reduce(new.iter().sum::<f64>(), |a, b| a + b)?;
    if me.0 == 0 {
        vgas::print(format_args!("after {STEPS} steps the heat is {heat:.3} (it was 1000000)\n"))?;
    }
    runtime.finalize()
}
