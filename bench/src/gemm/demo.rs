//! Matrices to try things with: random, reproducible, written without ever being in memory.

use super::error::Result;
use super::npy::{Dtype, Order, Rectangle, Shape2};
use super::output::NpyOutput;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::fs::File;
use std::path::Path;

/// Bytes made at a time.
const CHUNK_BYTES: u64 = 1 << 20;

/// Writes a matrix of numbers between −1 and 1. The same arguments give the same file, everywhere.
///
/// # Errors
/// As of [`NpyOutput::create`]; an existing file is replaced if `force`.
pub fn write_random(
    path: &Path,
    force: bool,
    dtype: Dtype,
    order: Order,
    shape: Shape2,
    seed: u64,
) -> Result<()> {
    let output = NpyOutput::create(path, force, dtype, order, shape)?;
    fill(&output, dtype, order, shape, seed)?;
    output.commit()
}

/// The same matrix in a file without a name, as of [`NpyOutput::scratch`].
///
/// # Errors
/// As of [`NpyOutput::scratch`].
pub fn scratch_random(folder: &Path, dtype: Dtype, order: Order, shape: Shape2, seed: u64) -> Result<File> {
    let output = NpyOutput::scratch(folder, dtype, order, shape)?;
    fill(&output, dtype, order, shape, seed)?;
    output.into_file()
}

fn fill(output: &NpyOutput, dtype: Dtype, order: Order, shape: Shape2, seed: u64) -> Result<()> {
    let all = Rectangle { rows: 0..shape.rows, columns: 0..shape.columns };
    let (slow, fast) = all.slow_fast(order);
    let line = (fast.end - fast.start) * dtype.bytes();
    let step = (CHUNK_BYTES / line.max(1)).max(1);
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut bytes = Vec::new();
    for start in slow.clone().step_by(step as usize) {
        let lines = start..(start + step).min(slow.end);
        bytes.resize((line * (lines.end - lines.start)) as usize, 0);
        random.fill_bytes(&mut bytes);
        match dtype {
            Dtype::Float64 => bytes.chunks_exact_mut(8).for_each(|bytes| {
                let bits = u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
                bytes.copy_from_slice(&((bits >> 11) as f64 * 2f64.powi(-52) - 1.0).to_le_bytes());
            }),
            Dtype::Float32 => bytes.chunks_exact_mut(4).for_each(|bytes| {
                let bits = u32::from_le_bytes(bytes.try_into().expect("4 bytes"));
                bytes.copy_from_slice(&((bits >> 8) as f32 * 2f32.powi(-23) - 1.0).to_le_bytes());
            }),
        }
        let rectangle = Rectangle::from_slow_fast(order, lines, fast.clone());
        output.write(&rectangle, &bytes)?;
    }
    Ok(())
}
