//! `--verify`: is the file C the product of the files A and B? Freivalds' test, then a closer look at the worst rows.
//!
//! **Random vectors.** With X a matrix of random signs, C·X and A·(B·X) must agree up to rounding: three passes over
//! files instead of a product. If a row of C is wrong in one element, every sign shows it; if it is wrong in many,
//! each of the [`ROUNDS`] columns of X misses it with probability at most 1/2.
//!
//! **Bound of rounding.** Let u be the rounding unit. A sum of k products, in any order that sums in blocks,
//! as all fast kernels do, deviates by at most g·(|A||B|)ᵢⱼ with g = u·min(k, 16√k + 64): a block's length
//! plus the number of blocks (Higham, *Accuracy and Stability*, 3.1). The deviations of a row are multiplied
//! by independent random signs, so (Hoeffding) their sum exceeds 8 times the root of the sum of their squares
//! with a probability below 2·10⁻¹⁴, and by Cauchy and Schwarz that root is at most g·‖Aᵢ‖·‖B‖. The test
//! itself sums in f64, which adds the same again with the f64 unit.
//!
//! **The closer look.** That bound covers a whole row, and for long rows of f32 one element could be wrong by less.
//! So the rows whose deviation is largest for their size, over all ranks, are computed again in f64 and compared
//! element by element with g·(|A||B|)ᵢⱼ. A single wrong element makes its row stand out, and is then judged alone.
//!
//! **Memory.** Rows are taken in bands and columns in strips of at most [`scan::STRIP`]: whatever the matrices' shape, a rank
//! has a few vectors of this length in memory, some 15 MB. Y lies in the tiered segments; X is computed where it is needed.
//!
//! **Range.** Sums of squares of very large or small f64 would leave the range although the product does not:
//! B as a whole and every row of A are scaled by powers of two, C by both (see [`scale`]). If the product
//! itself may leave the range of its type, infinities in C are right or wrong element by element: this cannot
//! be told from a sum over the row. If there are any, the first such row is looked at closely, and the user
//! is told that the product overflows.

mod scale;
mod scan;

use super::agree;
use super::error::{GemmError, Result};
use super::kernel::Element;
use super::memory::{Buffer, GlobalMemory};
use super::npy::{NpyMatrix, Rectangle};
use super::plan::{Plan, ROUNDS};
use scale::{Scale, exponent};
use scan::{Band, Lanes, Size, for_each, local, scan, strips};
use std::ops::Range;
use std::path::Path;

/// Rows that are looked at closely.
const SUSPECTS: usize = 4;
/// See the module's text: how many standard deviations a correct row may deviate.
const DEVIATIONS: f64 = 8.0;

/// A row of C that may be wrong: how much for its size, and which.
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Suspect {
    ratio: f64,
    row: u64,
}

const _: () = assert!(SUSPECTS * size_of::<Suspect>() <= 64, "the plan leaves 64 bytes for them");

/// A wrong row.
#[derive(Clone, Copy, Debug)]
struct Fault {
    row: u64,
    error: f64,
    allowed: f64,
}

/// A rank's findings in its rows.
#[derive(Debug, Default)]
struct Findings {
    /// A has a number that is none.
    not_finite: bool,
    /// The worst row.
    fault: Option<Fault>,
    /// The first row whose infinities may be right.
    overflow: Option<u64>,
    /// The rows whose deviation is largest for their size.
    suspects: Vec<Suspect>,
}

/// Checks C against A and B, all ranks together. `done` is told of the bytes read.
///
/// # Errors
/// [`GemmError::Wrong`] on every rank, [`GemmError::NotFinite`], [`GemmError::Overflow`]; or what reading the files gives.
pub(super) fn verify<T: Element>(
    memory: &dyn GlobalMemory,
    plan: &Plan,
    files: [&NpyMatrix; 3],
    path: &Path,
    seed: u64,
    done: &mut dyn FnMut(u64),
) -> Result<()> {
    let rank = memory.rank();
    let mut check = Check { memory, plan, files, seed, exponent_b: 0, norm_b: 0.0 };
    // Twice, if the first time says that the numbers have to be scaled.
    loop {
        let size = agree(memory, check.publish_vectors::<T>(done))?;
        let largest = memory.all_reduce_max(size.largest())?;
        if !largest.is_finite() {
            return Err(GemmError::NotFinite);
        }
        check.norm_b = memory.all_reduce_sum(size.squares)?.sqrt();
        if check.exponent_b == exponent(largest) {
            break;
        }
        check.exponent_b = exponent(largest);
    }

    let mut findings = Findings::default();
    let checked = strips(plan.share(rank, plan.problem.m))
        .try_for_each(|rows| check.judge_rows::<T>(rows, &mut findings, done));
    agree(memory, checked)?;
    if memory.all_reduce_max(f64::from(findings.not_finite))? > 0.0 {
        return Err(GemmError::NotFinite);
    }
    report(memory, path, findings.fault)?;

    // The closer look, each rank some columns.
    let mut look = |row| {
        let fault = agree(memory, check.examine::<T>(row, done))?;
        report(memory, path, fault)
    };
    let suspects = agree(memory, suspicious(memory, plan, findings.suspects))?;
    suspects.into_iter().try_for_each(&mut look)?;
    let first = memory.all_reduce_max(findings.overflow.map_or(f64::NEG_INFINITY, |row| -(row as f64)))?;
    if first.is_finite() {
        let row = -first as u64;
        look(row)?;
        return Err(GemmError::Overflow { dtype: T::DTYPE.name(), path: path.to_owned(), row });
    }
    Ok(())
}

/// State shared by the steps of a verification.
struct Check<'a> {
    memory: &'a dyn GlobalMemory,
    plan: &'a Plan,
    /// A, B and C.
    files: [&'a NpyMatrix; 3],
    seed: u64,
    /// B is scaled down by this power of two.
    exponent_b: i32,
    /// The root of the sum of the squares of B's numbers, scaled.
    norm_b: f64,
}

impl Check<'_> {
    /// Y = B·X, this rank's rows, into its segment; and what there is in these rows.
    fn publish_vectors<T: Element>(&self, done: &mut dyn FnMut(u64)) -> Result<Size> {
        let [_, b, _] = self.files;
        let (rank, mut all) = (self.memory.rank(), Size::default());
        let mine = self.plan.share(rank, self.plan.problem.k);
        for rows in strips(mine.clone()) {
            let mut band = Band::new(rows.clone());
            band.scales.fill(Scale::down(self.exponent_b));
            let mut sizes = vec![Size::default(); band.sums.len()];
            let mut signs = |columns: &Range<u64>| Ok(self.signs(columns, 1.0));
            band.multiply_add::<T>(b, Some(&mut sizes), &mut signs, done)?;
            let offset = (rows.start - mine.start) * size_of::<Lanes>() as u64;
            self.memory.put(rank, self.plan.vectors_start() + offset, bytemuck::cast_slice(&band.sums))?;
            for size in &sizes {
                all.squares += size.squares;
                all.largest = all.largest.max(size.largest);
            }
        }
        Ok(all)
    }

    /// Some rows of X, times a number.
    fn signs(&self, rows: &Range<u64>, by: f64) -> Vec<Lanes> {
        rows.clone().map(|row| signs(self.seed, row).map(|sign| sign * by)).collect()
    }

    /// R = A·Y − C·X for some rows, and what follows from it.
    fn judge_rows<T: Element>(
        &self,
        rows: Range<u64>,
        findings: &mut Findings,
        done: &mut dyn FnMut(u64),
    ) -> Result<()> {
        let [a, _, c] = self.files;
        let mut band = Band::new(rows.clone());
        let mut sizes = vec![Size::default(); band.sums.len()];
        let mut exponents = vec![0; band.sums.len()];
        // Twice, if the first time says that the numbers of some row have to be scaled.
        loop {
            for (scale, &exponent) in band.scales.iter_mut().zip(&exponents) {
                *scale = Scale::down(scale::of_product(exponent, self.exponent_b) - self.exponent_b);
            }
            let mut published = |rows: &Range<u64>| self.published(rows);
            band.multiply_add::<T>(a, Some(&mut sizes), &mut published, done)?;
            if sizes.iter().any(|size| !size.largest().is_finite()) {
                findings.not_finite = true;
                return Ok(());
            }
            if sizes.iter().map(|size| exponent(size.largest())).eq(exponents.iter().copied()) {
                break;
            }
            exponents = sizes.iter().map(|size| exponent(size.largest())).collect();
            sizes.fill(Size::default());
            band.sums.fill([0.0; ROUNDS]);
        }
        for (scale, exponent) in band.scales.iter_mut().zip(&mut exponents) {
            *exponent = scale::of_product(*exponent, self.exponent_b);
            *scale = Scale::down(*exponent);
        }
        let mut signs = |columns: &Range<u64>| Ok(self.signs(columns, -1.0));
        band.multiply_add::<T>(c, None, &mut signs, done)?;
        for (index, row) in rows.enumerate() {
            let size = sizes[index].squares.sqrt() * self.norm_b;
            self.judge_row::<T>(row, &band.sums[index], size, exponents[index], findings);
        }
        Ok(())
    }

    /// Judges a row by its sums, given ‖Aᵢ‖·‖B‖. Both are scaled by the exponent.
    fn judge_row<T: Element>(
        &self,
        row: u64,
        sums: &Lanes,
        size: f64,
        exponent: i32,
        findings: &mut Findings,
    ) {
        let problem = &self.plan.problem;
        let growth =
            growth(problem.k) * T::ROUNDING + (growth(problem.k) + growth(problem.n)) * f64::ROUNDING;
        // A maximum that keeps NaN: a C that is not finite is wrong.
        let error = sums.iter().fold(0.0, |max: f64, sum| if sum.abs() <= max { max } else { sum.abs() });
        if !error.is_finite() && may_overflow::<T>(size * (1.0 + growth), exponent) {
            findings.overflow = findings.overflow.or(Some(row)); // rows come in their order
            return;
        }
        let tiny = tiny::<T>(problem.k, exponent) * (problem.n as f64).sqrt();
        let allowed = DEVIATIONS * (growth * size + tiny);
        if error.is_nan() || error > allowed {
            findings.fault = worse(findings.fault, fault(row, error, allowed, exponent));
        }
        let ratio = if error == 0.0 { 0.0 } else { error / size };
        let at = findings.suspects.partition_point(|suspect| suspect.ratio >= ratio);
        findings.suspects.insert(at, Suspect { ratio, row });
        findings.suspects.truncate(SUSPECTS);
    }

    /// Rows of Y, from the segments of the ranks that computed them.
    fn published(&self, rows: &Range<u64>) -> Result<Vec<Lanes>> {
        let mut y = vec![[0.0; ROUNDS]; (rows.end - rows.start) as usize];
        for rank in 0..self.memory.ranks() {
            let theirs = self.plan.share(rank, self.plan.problem.k);
            let (start, end) = (rows.start.max(theirs.start), rows.end.min(theirs.end));
            if start < end {
                let offset = self.plan.vectors_start() + (start - theirs.start) * size_of::<Lanes>() as u64;
                let part = &mut y[local(&(start..end), rows.start)];
                self.memory.get(rank, offset, bytemuck::cast_slice_mut(part))?;
            }
        }
        Ok(y)
    }

    /// Computes this rank's elements of a row of C again and compares each.
    fn examine<T: Element>(&self, row: u64, done: &mut dyn FnMut(u64)) -> Result<Option<Fault>> {
        let [a, b, c] = self.files;
        let terms = b.shape.rows;
        let mut largest: f64 = 0.0;
        for columns in strips(0..terms) {
            let numbers = part_of_row::<T>(a, row, columns, Scale::down(0))?;
            largest = numbers.iter().fold(largest, |largest, number| largest.max(number.abs()));
        }
        let product = scale::of_product(exponent(largest), self.exponent_b);
        let [scale_a, scale_b] = [product - self.exponent_b, self.exponent_b].map(Scale::down);
        let growth = growth(terms) * T::ROUNDING + terms as f64 * f64::ROUNDING;
        let mut worst = None;
        for columns in strips(self.plan.share(self.memory.rank(), self.plan.problem.n)) {
            let found = part_of_row::<T>(c, row, columns.clone(), Scale::down(product))?;
            let (mut sums, mut sizes) = (vec![0.0; found.len()], vec![0.0; found.len()]);
            for rows in strips(0..terms) {
                let left = part_of_row::<T>(a, row, rows.clone(), scale_a)?;
                let block = Rectangle { rows: rows.clone(), columns: columns.clone() };
                scan::<T>(b, &block, done, &mut |rectangle, numbers| {
                    let left = &left[local(&rectangle.rows, rows.start)];
                    let columns = local(&rectangle.columns, columns.start);
                    let (sums, sizes) = (&mut sums[columns.clone()], &mut sizes[columns]);
                    for_each(b.order, rectangle, numbers, |row, column, number| {
                        let product: f64 = left[row] * scale_b.of(number.into());
                        sums[column] += product;
                        sizes[column] += product.abs();
                    });
                })?;
            }
            for ((found, sum), size) in found.iter().zip(&sums).zip(&sizes) {
                let error: f64 = found - sum;
                let (error, allowed) = (error.abs(), growth * size + tiny::<T>(terms, product));
                let infinite = !found.is_finite() && may_overflow::<T>(size * (1.0 + growth), product);
                if !infinite && (error.is_nan() || error > allowed) {
                    worst = worse(worst, fault(row, error, allowed, product));
                }
            }
        }
        Ok(worst)
    }
}

/// Rounding errors that a sum of `terms` terms can pile up, in units of rounding.
fn growth(terms: u64) -> f64 {
    let terms = terms as f64;
    terms.min(16.0 * terms.sqrt() + 64.0) + 1.0
}

/// Returns the loss of this many terms near 0: in the product, and here. Scaled.
fn tiny<T: Element>(terms: u64, exponent: i32) -> f64 {
    terms as f64 * Scale::down(exponent).of(T::TINY) + (terms as f64 + 1.0) * f64::MIN_POSITIVE
}

/// Returns true if a sum of products whose sizes sum up to this, scaled, may be infinite in the type of the
/// product.
fn may_overflow<T: Element>(size: f64, exponent: i32) -> bool {
    size >= Scale::down(exponent).of(T::LARGEST)
}

/// The signs of a row of X: every bit of a hash of its number and the seed (splitmix64, Steele and others 2014).
fn signs(seed: u64, row: u64) -> Lanes {
    let mut hash = seed.wrapping_add((row + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^= hash >> 31;
    std::array::from_fn(|lane| if hash >> lane & 1 == 0 { 1.0 } else { -1.0 })
}

/// Some numbers of a row, scaled.
fn part_of_row<T: Element>(
    file: &NpyMatrix,
    row: u64,
    columns: Range<u64>,
    scale: Scale,
) -> Result<Vec<f64>> {
    let rectangle = Rectangle { rows: row..row + 1, columns };
    let count = rectangle.len() as usize;
    let mut buffer = Buffer::new(count * size_of::<T>());
    file.read(&rectangle, &mut buffer.bytes_mut()[..count * size_of::<T>()])?;
    Ok(buffer.numbers::<T>(count).iter().map(|&number| scale.of(number.into())).collect())
}

/// The most suspicious rows of all ranks, the same on every rank.
fn suspicious(memory: &dyn GlobalMemory, plan: &Plan, mut mine: Vec<Suspect>) -> Result<Vec<u64>> {
    const NOBODY: Suspect = Suspect { ratio: -1.0, row: u64::MAX };
    mine.resize(SUSPECTS, NOBODY);
    memory.put(memory.rank(), plan.suspects_start(), bytemuck::cast_slice(&mine))?;
    memory.barrier()?;
    let mut all = Vec::new();
    for rank in 0..memory.ranks() {
        let mut theirs = [NOBODY; SUSPECTS];
        memory.get(rank, plan.suspects_start(), bytemuck::cast_slice_mut(&mut theirs))?;
        all.extend(theirs.into_iter().filter(|suspect| suspect.row < plan.problem.m));
    }
    all.sort_by(|x, y| y.ratio.total_cmp(&x.ratio).then(x.row.cmp(&y.row)));
    Ok(all.into_iter().take(SUSPECTS).map(|suspect| suspect.row).collect())
}

/// A wrong row, in numbers that are not scaled any more.
fn fault(row: u64, error: f64, allowed: f64, exponent: i32) -> Fault {
    let scale = Scale::down(-exponent);
    Fault { row, error: scale.of(error), allowed: scale.of(allowed) }
}

/// The worse of two faults.
fn worse(one: Option<Fault>, other: Fault) -> Option<Fault> {
    match one {
        Some(one) if one.error.is_nan() || one.error >= other.error => Some(one),
        _ => Some(other),
    }
}

/// The worst of the ranks' faults becomes every rank's error: largest row wins, so that all name the same one.
fn report(memory: &dyn GlobalMemory, path: &Path, fault: Option<Fault>) -> Result<()> {
    let row = memory.all_reduce_max(fault.map_or(-1.0, |fault| fault.row as f64))?;
    if row < 0.0 {
        return Ok(());
    }
    let mine = fault.filter(|fault| fault.row as f64 == row);
    // NaN does not survive a maximum.
    let error = mine.map_or(0.0, |fault| if fault.error.is_nan() { f64::INFINITY } else { fault.error });
    let error = memory.all_reduce_max(error)?;
    let allowed = memory.all_reduce_max(mine.map_or(0.0, |fault| fault.allowed))?;
    Err(GemmError::Wrong { path: path.to_owned(), row: row as u64, error, allowed })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_are_signs_and_differ() {
        let mut sum = [0.0; ROUNDS];
        for row in 0..10_000 {
            for (sum, sign) in sum.iter_mut().zip(signs(7, row)) {
                assert!(sign == 1.0 || sign == -1.0);
                *sum += sign;
            }
        }
        assert!(sum.iter().all(|sum: &f64| sum.abs() < 500.0), "{sum:?}");
        assert_ne!(signs(1, 5), signs(2, 5));
    }
}
