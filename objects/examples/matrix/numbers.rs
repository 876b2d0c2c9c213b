//! Elements of matrices, and what is computed with tiles of them: the same in both versions.

use std::ops::Range;
use vgas_objects::{Portable, Shareable};

/// A number that matrices are of.
pub trait Number: Copy + Default + PartialEq + Send + Sync + Portable + Shareable {
    fn of(number: u32) -> Self;
    fn plus(self, other: Self) -> Self;
    fn minus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    fn to_f64(self) -> f64;
}

impl Number for f64 {
    fn of(number: u32) -> Self {
        Self::from(number % 64) / 64.0 - 0.5
    }
    fn plus(self, other: Self) -> Self {
        self + other
    }
    fn minus(self, other: Self) -> Self {
        self - other
    }
    fn times(self, other: Self) -> Self {
        self * other
    }
    fn to_f64(self) -> f64 {
        self
    }
}

/// Sums and products wrap around: they are exact, whatever the order.
impl Number for i32 {
    fn of(number: u32) -> Self {
        (number % 2001) as i32 - 1000
    }
    fn plus(self, other: Self) -> Self {
        self.wrapping_add(other)
    }
    fn minus(self, other: Self) -> Self {
        self.wrapping_sub(other)
    }
    fn times(self, other: Self) -> Self {
        self.wrapping_mul(other)
    }
    fn to_f64(self) -> f64 {
        Self::into(self)
    }
}

/// Parameters of a product.
#[derive(Clone, Copy, Debug, Portable, Shareable)]
pub struct Plan {
    /// Rows and columns of the matrices.
    pub size: u32,
    /// Rows and columns of a tile.
    pub tile: u32,
    /// Number of Strassen levels: matrices are cut into four, and seven products are made.
    pub levels: u32,
    pub seed: u64,
    /// Threads, of all ranks in turn.
    pub workers: u32,
    pub ranks: u32,
}

impl Plan {
    /// Returns the tiles that a worker computes, of `across` in a row.
    pub fn share(&self, across: u32, worker: u32) -> impl Iterator<Item = u32> + use<> {
        (worker..across * across).step_by(self.workers as usize)
    }
}

/// Computes an element of a matrix that is not stored.
pub fn element<T: Number>(seed: u64, row: u32, column: u32) -> T {
    let number = (u64::from(row) << 32 | u64::from(column)) ^ seed.rotate_left(17);
    T::of((super::common::random::mix(number) >> 32) as u32)
}

/// The elements of a tile, row by row.
pub fn tile_of<T: Number>(seed: u64, across: u32, tile: u32, at: u32) -> Vec<T> {
    let rows = |at: u32| -> Range<u32> { at * tile..(at + 1) * tile };
    let elements =
        rows(at / across).flat_map(|row| rows(at % across).map(move |column| element(seed, row, column)));
    elements.collect()
}

/// Adds the product of two tiles to a third: four rows at a time, so that a row of the second is loaded once for them.
pub fn add_product<T: Number>(tile: usize, a: &[T], b: &[T], c: &mut [T]) {
    let (fours, rest) = c.split_at_mut(tile / 4 * 4 * tile);
    for (a, c) in a.chunks_exact(4 * tile).zip(fours.chunks_exact_mut(4 * tile)) {
        let (first, others) = c.split_at_mut(tile);
        let (second, others) = others.split_at_mut(tile);
        let (third, fourth) = others.split_at_mut(tile);
        for (at, b) in b.chunks_exact(tile).enumerate() {
            let factors = [a[at], a[tile + at], a[2 * tile + at], a[3 * tile + at]];
            let rows = first.iter_mut().zip(&mut *second).zip(&mut *third).zip(&mut *fourth).zip(b);
            for ((((first, second), third), fourth), b) in rows {
                *first = first.plus(factors[0].times(*b));
                *second = second.plus(factors[1].times(*b));
                *third = third.plus(factors[2].times(*b));
                *fourth = fourth.plus(factors[3].times(*b));
            }
        }
    }
    let done = tile / 4 * 4 * tile;
    for (a, c) in a[done..].chunks_exact(tile).zip(rest.chunks_exact_mut(tile)) {
        for (a, b) in a.iter().zip(b.chunks_exact(tile)) {
            c.iter_mut().zip(b).for_each(|(c, b)| *c = c.plus(a.times(*b)));
        }
    }
}

/// The sum of two tiles, or their difference.
pub fn combined<T: Number>(a: &[T], b: &[T], is_sum: bool) -> Vec<T> {
    let both = a.iter().zip(b);
    match is_sum {
        true => both.map(|(a, b)| a.plus(*b)).collect(),
        false => both.map(|(a, b)| a.minus(*b)).collect(),
    }
}

/// Compares with the product of another library, or with the definition; returns the first difference, if
/// any.
pub fn differs<T: Number>(plan: &Plan, product: impl Fn(u32, u32) -> T) -> Option<String> {
    let size = plan.size as usize;
    if std::any::TypeId::of::<T>() != std::any::TypeId::of::<f64>() {
        // Exact: some rows tell whether tiles are where they belong.
        let rows = (0..plan.size).step_by((size / 8).max(1));
        let right = |row, column| {
            let terms = (0..plan.size)
                .map(|at| element::<T>(plan.seed, row, at).times(element(plan.seed + 1, at, column)));
            terms.fold(T::default(), T::plus)
        };
        let mut places = rows.flat_map(|row| (0..plan.size).map(move |column| (row, column)));
        let wrong = places.find(|(row, column)| product(*row, *column) != right(*row, *column));
        return wrong
            .map(|(row, column)| format!("row {row}, column {column} is not what the definition says"));
    }
    let matrix = |seed| {
        faer::Mat::from_fn(size, size, |row, column| element::<T>(seed, row as u32, column as u32).to_f64())
    };
    let right = matrix(plan.seed) * matrix(plan.seed + 1);
    // For products of numbers below 1, rounding is below this; Strassen's adds some.
    let most = size as f64 * 1e-13 * 16f64.powi(plan.levels as i32);
    let mut places = (0..plan.size).flat_map(|row| (0..plan.size).map(move |column| (row, column)));
    let wrong = places.find(|(row, column)| {
        let found = product(*row, *column).to_f64();
        let off = (found - right[(*row as usize, *column as usize)]).abs();
        off.is_nan() || off > most
    });
    wrong.map(|(row, column)| format!("row {row}, column {column} differs from that of faer"))
}
