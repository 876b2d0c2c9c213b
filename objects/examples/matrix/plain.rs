//! The product on std: tiles in vectors, and threads.

use super::common::{Outcome, Progress};
use super::numbers::{Number, Plan, add_product, combined, tile_of};
use std::thread;

/// A square of tiles, row by row, each of them row by row, too.
pub struct Matrix<T: Number> {
    pub tiles: Vec<Vec<T>>,
    /// Tiles in a row.
    pub across: u32,
}

/// Runs `make` on every worker and returns its tiles, every n-th.
fn each<T: Number>(plan: &Plan, across: u32, make: impl Fn(u32) -> Vec<Vec<T>> + Sync) -> Outcome<Matrix<T>> {
    let make = &make;
    let made: Vec<Vec<Vec<T>>> = thread::scope(|scope| {
        let all: Vec<_> = (0..plan.workers).map(|worker| scope.spawn(move || make(worker))).collect();
        all.into_iter().map(|one| one.join().map_err(|_| "a thread has panicked")).collect::<Result<_, _>>()
    })?;
    let mut each: Vec<_> = made.into_iter().map(|tiles| tiles.into_iter()).collect();
    let workers = each.len();
    let tiles = (0..(across * across) as usize).map_while(|at| each[at % workers].next()).collect();
    Ok(Matrix { tiles, across })
}

fn make_some<T: Number>(plan: &Plan, seed: u64, across: u32, worker: u32) -> Vec<Vec<T>> {
    plan.share(across, worker).map(|at| tile_of(seed, across, plan.tile, at)).collect()
}

/// A matrix of a seed.
pub fn make<T: Number>(plan: &Plan, seed: u64) -> Outcome<Matrix<T>> {
    let across = plan.size / plan.tile;
    each(plan, across, |worker| make_some(plan, seed, across, worker))
}

fn multiply_some<T: Number>(plan: &Plan, a: &Matrix<T>, b: &Matrix<T>, worker: u32) -> Vec<Vec<T>> {
    let (across, tile) = (a.across, plan.tile as usize);
    let products = plan.share(across, worker).map(|at| {
        let mut c = vec![T::default(); tile * tile];
        for step in 0..across {
            let a = &a.tiles[(at / across * across + step) as usize];
            let b = &b.tiles[(step * across + at % across) as usize];
            add_product(tile, a, b, &mut c);
        }
        c
    });
    products.collect()
}

fn combine_some<T: Number>(
    plan: &Plan,
    a: &Matrix<T>,
    b: &Matrix<T>,
    (is_sum, worker): (bool, u32),
) -> Vec<Vec<T>> {
    let tiles =
        plan.share(a.across, worker).map(|at| combined(&a.tiles[at as usize], &b.tiles[at as usize], is_sum));
    tiles.collect()
}

/// The sum of two matrices, or their difference.
fn combine<T: Number>(plan: &Plan, a: &Matrix<T>, b: &Matrix<T>, is_sum: bool) -> Outcome<Matrix<T>> {
    each(plan, a.across, |worker| combine_some(plan, a, b, (is_sum, worker)))
}

impl<T: Number> Matrix<T> {
    /// Its upper left, upper right, lower left and lower right: only names of tiles move.
    fn quarters(self) -> [Self; 4] {
        let half = self.across / 2;
        let mut four = [(); 4].map(|()| Self { tiles: Vec::new(), across: half });
        for (at, tile) in (0..).zip(self.tiles) {
            let (row, column) = (at / self.across, at % self.across);
            four[(row / half * 2 + column / half) as usize].tiles.push(tile);
        }
        four
    }

    /// The matrix of these quarters.
    fn of_quarters(four: [Self; 4]) -> Self {
        let half = four[0].across;
        let mut each = four.map(|quarter| quarter.tiles.into_iter());
        let places =
            (0..half * 2).flat_map(|row| (0..half * 2).map(move |column| row / half * 2 + column / half));
        Self { tiles: places.filter_map(|quarter| each[quarter as usize].next()).collect(), across: half * 2 }
    }
}

/// The product of two matrices: tile by tile, or by seven products of quarters (Strassen, *Gaussian elimination is not optimal*).
pub fn multiply<T: Number>(
    plan: &Plan,
    a: Matrix<T>,
    b: Matrix<T>,
    levels: u32,
    progress: &mut Progress,
) -> Outcome<Matrix<T>> {
    if levels == 0 {
        progress.step();
        return each(plan, a.across, |worker| multiply_some(plan, &a, &b, worker));
    }
    let ([a11, a12, a21, a22], [b11, b12, b21, b22]) = (a.quarters(), b.quarters());
    let (sum, less) = (|a: &_, b: &_| combine(plan, a, b, true), |a: &_, b: &_| combine(plan, a, b, false));
    let mut times = |a, b| multiply(plan, a, b, levels - 1, progress);
    let m1 = times(sum(&a11, &a22)?, sum(&b11, &b22)?)?;
    let m6 = times(less(&a21, &a11)?, sum(&b11, &b12)?)?;
    let m7 = times(less(&a12, &a22)?, sum(&b21, &b22)?)?;
    let (b12_less_b22, b21_less_b11) = (less(&b12, &b22)?, less(&b21, &b11)?);
    let (a21_and_a22, a11_and_a12) = (sum(&a21, &a22)?, sum(&a11, &a12)?);
    let m2 = times(a21_and_a22, b11)?;
    let m3 = times(a11, b12_less_b22)?;
    let m4 = times(a22, b21_less_b11)?;
    let m5 = times(a11_and_a12, b22)?;
    let c11 = sum(&less(&sum(&m1, &m4)?, &m5)?, &m7)?;
    let c22 = sum(&less(&sum(&m1, &m3)?, &m2)?, &m6)?;
    Ok(Matrix::of_quarters([c11, sum(&m3, &m5)?, sum(&m2, &m4)?, c22]))
}
