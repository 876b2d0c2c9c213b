//! `--verify`: is the file C the product of the files A and B? Freivalds' test, then a closer look at the worst rows.
//!
//! **Random vectors.** With X a matrix of random signs, C·X and A·(B·X) must agree up to rounding: three passes over
//! files instead of a product. If a row of C is wrong in one element, every sign shows it; if it is wrong in many,
//! each of the [`ROUNDS`] columns of X misses it with probability at most 1/2.
//!
//! **What rounding may do.** Let u be the rounding unit. A sum of k products, in any order that sums in blocks, as all
//! fast kernels do, deviates by at most g·(|A||B|)ᵢⱼ with g = u·min(k, 16√k + 64): a block's length plus the number
//! of blocks (Higham, *Accuracy and Stability*, 3.1). The deviations of a row are multiplied by independent random
//! signs, so (Hoeffding) their sum exceeds 8 times the root of the sum of their squares with a probability below
//! 2·10⁻¹⁴, and by Cauchy and Schwarz that root is at most g·‖Aᵢ‖·‖B‖. The test itself sums in f64, which adds the
//! same again with the f64 unit.
//!
//! **The closer look.** That bound covers a whole row, and for long rows of f32 one element could be wrong by less.
//! So the rows whose deviation is largest for their size, over all ranks, are computed anew in f64 and compared
//! element by element with g·(|A||B|)ᵢⱼ. A single wrong element makes its row stand out, and is then judged alone.

use super::agree;
use super::error::{GemmError, Result};
use super::kernel::Element;
use super::memory::{Buffer, GlobalMemory};
use super::npy::{NpyMatrix, Order, Rectangle};
use super::plan::{Plan, ROUNDS};
use std::ops::Range;
use std::path::Path;

/// Bytes of a file in memory at a time.
const CHUNK_BYTES: u64 = 2 << 20;
/// Rows that are looked at closely.
const SUSPECTS: usize = 4;
/// See the module's text: how many standard deviations a correct row may deviate.
const DEVIATIONS: f64 = 8.0;

/// A number for every random vector.
type Lanes = [f64; ROUNDS];

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

/// Checks C against A and B, all ranks together. `done` is told of the bytes read.
///
/// # Errors
/// [`GemmError::Wrong`] on every rank, [`GemmError::NotFinite`]; or what reading the files gives.
pub(super) fn verify<T: Element>(
    memory: &dyn GlobalMemory,
    plan: &Plan,
    [a, b, c]: [&NpyMatrix; 3],
    path: &Path,
    seed: u64,
    done: &mut dyn FnMut(u64),
) -> Result<()> {
    let rank = memory.rank();
    let problem = plan.problem;

    // Y = B·X, each rank its rows, published in the segments.
    let mine = plan.share(rank, problem.k);
    let mut y = vec![[0.0; ROUNDS]; (mine.end - mine.start) as usize];
    let mut squares = 0.0;
    let scanned = scan::<T>(b, mine.clone(), done, &mut |rectangle, order, numbers| {
        let x: Vec<Lanes> = rectangle.columns.clone().map(|column| signs(seed, column)).collect();
        let rows = local(&rectangle.rows, mine.start);
        multiply_add(&mut y[rows], order, numbers, &x);
        squares += numbers.iter().map(|&number| square(number)).sum::<f64>();
        Ok(())
    });
    let publish = |()| Ok(memory.put(rank, plan.vectors_start(), bytemuck::cast_slice(&y))?);
    agree(memory, scanned.and_then(publish))?;
    drop(y);
    let norm_b = memory.all_reduce_sum(squares)?.sqrt();

    // R = A·Y − C·X, each rank its rows.
    let mine = plan.share(rank, problem.m);
    let count = (mine.end - mine.start) as usize;
    let mut residual = vec![[0.0; ROUNDS]; count];
    let mut norms = vec![0.0; count];
    let mut y = (0..0, Vec::new());
    let scanned = scan::<T>(a, mine.clone(), done, &mut |rectangle, order, numbers| {
        if y.0 != rectangle.columns {
            y = (rectangle.columns.clone(), published(memory, plan, &rectangle.columns)?);
        }
        let rows = local(&rectangle.rows, mine.start);
        multiply_add(&mut residual[rows.clone()], order, numbers, &y.1);
        for_rows(order, numbers, rows.len(), |row, number: T| norms[rows.start + row] += square(number));
        Ok(())
    });
    agree(memory, scanned)?;
    drop(y);
    let finite = norm_b.is_finite() && norms.iter().all(|norm: &f64| norm.is_finite());
    if memory.all_reduce_max(f64::from(!finite))? > 0.0 {
        return Err(GemmError::NotFinite);
    }
    let scanned = scan::<T>(c, mine.clone(), done, &mut |rectangle, order, numbers| {
        let x: Vec<Lanes> =
            rectangle.columns.clone().map(|column| signs(seed, column).map(|sign| -sign)).collect();
        multiply_add(&mut residual[local(&rectangle.rows, mine.start)], order, numbers, &x);
        Ok(())
    });
    agree(memory, scanned)?;
    let growth = growth(problem.k) * T::ROUNDING + (growth(problem.k) + growth(problem.n)) * f64::ROUNDING;
    let tiny = problem.k as f64 * T::TINY;
    let mut fault = None;
    let mut suspects = Vec::with_capacity(SUSPECTS + 1);
    for (row, (residual, norm)) in (mine.start..).zip(residual.iter().zip(&norms)) {
        // A maximum that keeps NaN: a C that is not finite is wrong.
        let error = residual.iter().fold(0.0, |max: f64, r| if r.abs() <= max { max } else { r.abs() });
        let size = norm.sqrt() * norm_b;
        let allowed = DEVIATIONS * (growth * size + tiny * (problem.n as f64).sqrt());
        if error.is_nan() || error > allowed {
            fault = worse(fault, Fault { row, error, allowed });
        }
        let ratio = if error == 0.0 { 0.0 } else { error / size };
        let at = suspects.partition_point(|suspect: &Suspect| suspect.ratio >= ratio);
        suspects.insert(at, Suspect { ratio, row });
        suspects.truncate(SUSPECTS);
    }
    report(memory, path, fault)?;

    // The closer look, each rank some columns.
    let suspects = agree(memory, suspicious(memory, plan, suspects))?;
    for row in suspects {
        let columns = plan.share(rank, problem.n);
        let fault = agree(memory, examine::<T>([a, b, c], row, columns, done))?;
        report(memory, path, fault)?;
    }
    Ok(())
}

/// Rounding errors that a sum of `terms` terms can pile up, in units of rounding.
fn growth(terms: u64) -> f64 {
    let terms = terms as f64;
    terms.min(16.0 * terms.sqrt() + 64.0) + 1.0
}

fn square<T: Element>(number: T) -> f64 {
    let number: f64 = number.into();
    number * number
}

/// The signs of a row of X: every bit of a hash of its number and the seed (splitmix64, Steele and others 2014).
fn signs(seed: u64, row: u64) -> Lanes {
    let mut hash = seed.wrapping_add((row + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^= hash >> 31;
    std::array::from_fn(|lane| if hash >> lane & 1 == 0 { 1.0 } else { -1.0 })
}

fn local(range: &Range<u64>, start: u64) -> Range<usize> {
    (range.start - start) as usize..(range.end - start) as usize
}

/// Takes a rectangle of a matrix, the order of its numbers, and the numbers.
type Visit<'a, T> = dyn FnMut(Rectangle, Order, &[T]) -> Result<()> + 'a;

/// Hands every number of some rows of a matrix to `visit`, in rectangles of [`CHUNK_BYTES`] in the file's order.
fn scan<T: Element>(
    file: &NpyMatrix,
    rows: Range<u64>,
    done: &mut dyn FnMut(u64),
    visit: &mut Visit<'_, T>,
) -> Result<()> {
    let all = Rectangle { rows, columns: 0..file.shape.columns };
    let (slow, fast) = all.slow_fast(file.order);
    let chunk = CHUNK_BYTES / size_of::<T>() as u64;
    let fast_step = (fast.end - fast.start).clamp(1, chunk);
    let slow_step = (chunk / fast_step).max(1);
    let mut buffer = Buffer::new(CHUNK_BYTES as usize);
    for s in slow.clone().step_by(slow_step as usize) {
        for f in fast.clone().step_by(fast_step as usize) {
            let (s, f) = (s..(s + slow_step).min(slow.end), f..(f + fast_step).min(fast.end));
            let rectangle = Rectangle::from_slow_fast(file.order, s, f);
            let count = rectangle.len() as usize;
            file.read(&rectangle, &mut buffer.bytes_mut()[..count * size_of::<T>()])?;
            done((count * size_of::<T>()) as u64);
            visit(rectangle, file.order, buffer.numbers::<T>(count))?;
        }
    }
    Ok(())
}

/// `into[row] += Σ numbers[row, column]·x[column]`.
fn multiply_add<T: Element>(into: &mut [Lanes], order: Order, numbers: &[T], x: &[Lanes]) {
    let add = |sum: &mut Lanes, number: T, x: &Lanes| {
        let number: f64 = number.into();
        for (sum, x) in sum.iter_mut().zip(x) {
            *sum += number * x;
        }
    };
    match order {
        Order::C => {
            for (sum, row) in into.iter_mut().zip(numbers.chunks_exact(x.len().max(1))) {
                for (number, x) in row.iter().zip(x) {
                    add(sum, *number, x);
                }
            }
        }
        Order::Fortran => {
            for (x, column) in x.iter().zip(numbers.chunks_exact(into.len().max(1))) {
                for (sum, number) in into.iter_mut().zip(column) {
                    add(sum, *number, x);
                }
            }
        }
    }
}

/// Calls `visit` with the row (counted from 0) of every number.
fn for_rows<T: Element>(order: Order, numbers: &[T], rows: usize, mut visit: impl FnMut(usize, T)) {
    match (order, rows) {
        (_, 0) => {}
        (Order::C, _) => {
            for (row, numbers) in numbers.chunks_exact((numbers.len() / rows).max(1)).enumerate() {
                numbers.iter().for_each(|number| visit(row, *number));
            }
        }
        (Order::Fortran, _) => {
            for column in numbers.chunks_exact(rows) {
                column.iter().enumerate().for_each(|(row, number)| visit(row, *number));
            }
        }
    }
}

/// Rows of Y, from the segments of the ranks that computed them.
fn published(memory: &dyn GlobalMemory, plan: &Plan, rows: &Range<u64>) -> Result<Vec<Lanes>> {
    let mut y = vec![[0.0; ROUNDS]; (rows.end - rows.start) as usize];
    for rank in 0..memory.ranks() {
        let theirs = plan.share(rank, plan.problem.k);
        let (start, end) = (rows.start.max(theirs.start), rows.end.min(theirs.end));
        if start < end {
            let offset = plan.vectors_start() + (start - theirs.start) * size_of::<Lanes>() as u64;
            let part = &mut y[local(&(start..end), rows.start)];
            memory.get(rank, offset, bytemuck::cast_slice_mut(part))?;
        }
    }
    Ok(y)
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

/// Computes some elements of a row of C anew and compares each.
fn examine<T: Element>(
    [a, b, c]: [&NpyMatrix; 3],
    row: u64,
    columns: Range<u64>,
    done: &mut dyn FnMut(u64),
) -> Result<Option<Fault>> {
    let one = |file: &NpyMatrix, columns: Range<u64>| -> Result<Vec<f64>> {
        let rectangle = Rectangle { rows: row..row + 1, columns };
        let count = rectangle.len() as usize;
        let mut buffer = Buffer::new(count * size_of::<T>());
        file.read(&rectangle, &mut buffer.bytes_mut()[..count * size_of::<T>()])?;
        Ok(buffer.numbers::<T>(count).iter().map(|&number| number.into()).collect())
    };
    let left = one(a, 0..a.shape.columns)?;
    let found = one(c, columns.clone())?;
    let (mut sums, mut sizes) = (vec![0.0; found.len()], vec![0.0; found.len()]);
    let all = Rectangle { rows: 0..b.shape.rows, columns };
    let (slow, fast) = all.slow_fast(b.order);
    let lines = (CHUNK_BYTES / ((fast.end - fast.start).max(1) * size_of::<T>() as u64)).max(1);
    let mut buffer = Buffer::default();
    for start in slow.clone().step_by(lines as usize) {
        let lines = start..(start + lines).min(slow.end);
        let rectangle = Rectangle::from_slow_fast(b.order, lines, fast.clone());
        let count = rectangle.len() as usize;
        if buffer.bytes().len() < count * size_of::<T>() {
            buffer = Buffer::new(count * size_of::<T>());
        }
        b.read(&rectangle, &mut buffer.bytes_mut()[..count * size_of::<T>()])?;
        done((count * size_of::<T>()) as u64);
        let [rows, columns] = [local(&rectangle.rows, 0), local(&rectangle.columns, all.columns.start)];
        let numbers = buffer.numbers::<T>(count);
        let mut add = |k: usize, column: usize, number: T| {
            let product = left[k] * number.into();
            sums[column] += product;
            sizes[column] += product.abs();
        };
        match b.order {
            Order::C => {
                for (k, line) in rows.zip(numbers.chunks_exact(columns.len().max(1))) {
                    columns.clone().zip(line).for_each(|(column, number)| add(k, column, *number));
                }
            }
            Order::Fortran => {
                for (column, line) in columns.zip(numbers.chunks_exact(rows.len().max(1))) {
                    rows.clone().zip(line).for_each(|(k, number)| add(k, column, *number));
                }
            }
        }
    }
    let growth = growth(b.shape.rows) * T::ROUNDING + b.shape.rows as f64 * f64::ROUNDING;
    let mut fault = None;
    for ((found, sum), size) in found.iter().zip(&sums).zip(&sizes) {
        let (error, allowed) = ((found - sum).abs(), growth * size + b.shape.rows as f64 * T::TINY);
        if error.is_nan() || error > allowed {
            fault = worse(fault, Fault { row, error, allowed });
        }
    }
    Ok(fault)
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
