//! The largest eigenvalue of a matrix that is spread over a table of ranks, by power iteration: teams of rows add up what their
//! blocks make of the vector, teams of columns hand the result on.
//!
//! Run it: `cargo build --release --examples && target/release/vgas run -n 4 --nodes 2 -- target/release/examples/table`

use vgas::{Operator, Runtime};

/// Rows and columns of a rank's block.
const BLOCK: usize = 64;

const STEPS: u32 = 60;

/// An entry of the matrix. It is symmetric, with the largest values where row and column are near each other.
fn entry(row: usize, column: usize) -> f64 {
    1.0 / (1.0 + row.abs_diff(column) as f64)
}

fn main() -> vgas::Result<()> {
    let runtime = Runtime::init()?;
    let world = runtime.world()?;
    // As many rows of ranks as columns; ranks that are left over have no block.
    let side = world.size().isqrt();
    let at = world.rank();
    let table = world.split(u32::from(at >= side * side), at)?;
    if at < side * side {
        let (my_row, my_column) = (at / side, at % side);
        let row = table.split(my_row, my_column)?;
        let column = table.split(my_column, my_row)?;
        let place = |of: u32, index: usize| of as usize * BLOCK + index;
        let block: Vec<f64> = (0..BLOCK * BLOCK)
            .map(|cell| entry(place(my_row, cell / BLOCK), place(my_column, cell % BLOCK)))
            .collect();
        let mut vector = vec![1.0; BLOCK];
        let mut value = 0.0;
        for _ in 0..STEPS {
            let mut product: Vec<f64> = block
                .chunks(BLOCK)
                .map(|cells| cells.iter().zip(&vector).map(|(a, b)| a * b).sum())
                .collect();
            // The rank on the diagonal has what belongs to its column, too.
            row.reduce(my_row, &mut product, Operator::Sum)?;
            vector.copy_from_slice(&product);
            column.broadcast(my_column, &mut vector)?;
            let mut squares = [vector.iter().map(|x| x * x).sum::<f64>()];
            row.all_reduce(&mut squares, Operator::Sum)?;
            value = squares[0].sqrt();
            vector.iter_mut().for_each(|x| *x /= value);
        }
        if at == 0 {
            let size = side as usize * BLOCK;
            vgas::print(format_args!("the largest eigenvalue of {size} rows is {value:.9}\n"))?;
        }
    }
    runtime.finalize()
}
