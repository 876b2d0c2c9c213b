//! Reading matrices in bands of rows and strips of columns, and multiplying them by vectors on the way.

use super::super::error::Result;
use super::super::kernel::Element;
use super::super::memory::Buffer;
use super::super::npy::{NpyMatrix, Order, Rectangle};
use super::super::plan::ROUNDS;
use super::scale::Scale;
use std::ops::Range;

/// Bytes of a file in memory at a time.
const CHUNK_BYTES: u64 = 2 << 20;

/// Rows or columns whose vectors are in memory at a time, at most: 4 MiB of [`Lanes`].
pub const STRIP: u64 = 64 << 10;

/// A number for every random vector.
pub type Lanes = [f64; ROUNDS];

/// Size of the numbers of a row.
#[derive(Clone, Copy, Debug, Default)]
pub struct Size {
    /// The sum of their squares, scaled.
    pub squares: f64,
    /// The bits of the largest magnitude, not scaled: infinity exceeds all numbers, and NaN infinity.
    pub largest: u64,
}

impl Size {
    /// The largest magnitude; infinity if there is a NaN.
    pub fn largest(&self) -> f64 {
        f64::from_bits(self.largest.min(f64::INFINITY.to_bits()))
    }

    fn add(&mut self, number: f64, scale: Scale) {
        let scaled = scale.of(number);
        self.squares += scaled * scaled;
        self.largest = self.largest.max(number.abs().to_bits());
    }
}

/// The fewest pieces of at most [`STRIP`], none much smaller than the others: pieces of a line are reads of their own.
pub fn strips(range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let length = range.end - range.start;
    let step = length.div_ceil(length.div_ceil(STRIP).max(1)).max(1);
    range.clone().step_by(step as usize).map(move |start| start..(start + step).min(range.end))
}

/// A range as indices from `start` on.
pub fn local(range: &Range<u64>, start: u64) -> Range<usize> {
    (range.start - start) as usize..(range.end - start) as usize
}

/// A band of rows that is being multiplied by vectors.
pub struct Band {
    /// Its rows, at most [`STRIP`].
    pub rows: Range<u64>,
    /// Scale of the numbers of each.
    pub scales: Vec<Scale>,
    /// The products so far.
    pub sums: Vec<Lanes>,
}

impl Band {
    /// A band whose numbers are not scaled.
    pub fn new(rows: Range<u64>) -> Self {
        let count = (rows.end - rows.start) as usize;
        Self { rows, scales: vec![Scale::down(0); count], sums: vec![[0.0; ROUNDS]; count] }
    }

    /// Adds the product of the file's rows with vectors, which are asked for strip by strip, and what is found of the rows
    /// to `sizes`, if wanted.
    pub fn multiply_add<T: Element>(
        &mut self,
        file: &NpyMatrix,
        mut sizes: Option<&mut [Size]>,
        vectors: &mut dyn FnMut(&Range<u64>) -> Result<Vec<Lanes>>,
        done: &mut dyn FnMut(u64),
    ) -> Result<()> {
        for columns in strips(0..file.shape.columns) {
            let vectors = vectors(&columns)?;
            let block = Rectangle { rows: self.rows.clone(), columns: columns.clone() };
            scan::<T>(file, &block, done, &mut |rectangle, numbers| {
                let rows = local(&rectangle.rows, self.rows.start);
                let (scales, sums) = (&self.scales[rows.clone()], &mut self.sums[rows.clone()]);
                let vectors = &vectors[local(&rectangle.columns, columns.start)];
                multiply_add(sums, scales, file.order, numbers, vectors);
                if let Some(sizes) = &mut sizes {
                    let sizes = &mut sizes[rows];
                    for_each(file.order, rectangle, numbers, |row, _, number: T| {
                        sizes[row].add(number.into(), scales[row]);
                    });
                }
            })?;
        }
        Ok(())
    }
}

/// Hands every number of a part of a matrix to `visit`, in rectangles of at most 2 MiB in the file's order.
pub fn scan<T: Element>(
    file: &NpyMatrix,
    part: &Rectangle,
    done: &mut dyn FnMut(u64),
    visit: &mut dyn FnMut(&Rectangle, &[T]),
) -> Result<()> {
    let (slow, fast) = part.slow_fast(file.order);
    let chunk = CHUNK_BYTES / size_of::<T>() as u64;
    let fast_step = (fast.end - fast.start).clamp(1, chunk);
    let slow_step = (chunk / fast_step).max(1);
    let mut buffer = Buffer::new(CHUNK_BYTES.min(part.len() * size_of::<T>() as u64) as usize);
    for s in slow.clone().step_by(slow_step as usize) {
        for f in fast.clone().step_by(fast_step as usize) {
            let (s, f) = (s..(s + slow_step).min(slow.end), f..(f + fast_step).min(fast.end));
            let rectangle = Rectangle::from_slow_fast(file.order, s, f);
            let count = rectangle.len() as usize;
            file.read(&rectangle, &mut buffer.bytes_mut()[..count * size_of::<T>()])?;
            done((count * size_of::<T>()) as u64);
            visit(&rectangle, buffer.numbers::<T>(count));
        }
    }
    Ok(())
}

/// `into[row] += Σ scaled numbers[row, column]·x[column]`.
fn multiply_add<T: Element>(into: &mut [Lanes], scales: &[Scale], order: Order, numbers: &[T], x: &[Lanes]) {
    let add = |sum: &mut Lanes, scale: Scale, number: T, x: &Lanes| {
        let number = scale.of(number.into());
        for (sum, x) in sum.iter_mut().zip(x) {
            *sum += number * x;
        }
    };
    match order {
        Order::C => {
            for ((sum, scale), row) in into.iter_mut().zip(scales).zip(numbers.chunks_exact(x.len().max(1))) {
                for (number, x) in row.iter().zip(x) {
                    add(sum, *scale, *number, x);
                }
            }
        }
        Order::Fortran => {
            for (x, column) in x.iter().zip(numbers.chunks_exact(into.len().max(1))) {
                for ((sum, scale), number) in into.iter_mut().zip(scales).zip(column) {
                    add(sum, *scale, *number, x);
                }
            }
        }
    }
}

/// Calls `visit` with the row, the column (both counted from the rectangle's first) and every number.
pub fn for_each<T: Copy>(
    order: Order,
    rectangle: &Rectangle,
    numbers: &[T],
    mut visit: impl FnMut(usize, usize, T),
) {
    let (_, fast) = rectangle.slow_fast(order);
    let lines = numbers.chunks_exact(((fast.end - fast.start) as usize).max(1));
    for (slow, line) in lines.enumerate() {
        for (fast, &number) in line.iter().enumerate() {
            match order {
                Order::C => visit(slow, fast, number),
                Order::Fortran => visit(fast, slow, number),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strips_cover_the_range_and_are_of_about_one_size() {
        for length in [0, 1, STRIP - 1, STRIP, STRIP + 1, 2 * STRIP + 1, 20_000_000] {
            let strips: Vec<_> = strips(7..7 + length).collect();
            assert_eq!(strips.len() as u64, length.div_ceil(STRIP));
            let mut next = 7;
            for strip in &strips {
                assert_eq!(strip.start, next);
                next = strip.end;
                assert!((1..=STRIP).contains(&(strip.end - strip.start)));
            }
            assert_eq!(next, 7 + length);
            if let [first, .., last] = strips.as_slice() {
                assert!((last.end - last.start) * 2 > first.end - first.start, "{length}: {last:?}");
            }
        }
    }
}
