//! The first and the last part: tiles from the inputs' files into global memory, blocks from there into the output.

use super::error::Result;
use super::memory::{Buffer, GlobalMemory};
use super::npy::{Dtype, NpyMatrix, Order, Rectangle};
use super::output::NpyOutput;
use super::plan::{Group, Operand, Plan, Tile};
use bytemuck::Pod;
use std::ops::Range;

/// Lines of a file that must be dealt out or turned are read this many bytes at a time.
const STAGE_BYTES: usize = 1 << 20;
/// Side of the squares in which numbers are transposed: two such squares of f64 fit the fastest cache.
const SQUARE: usize = 32;

/// Reads the tiles of A or B that this rank owns and puts them into its segment. Every rank opens the file itself:
/// on several machines, the inputs must be in a folder that all of them share, or be copied to each.
///
/// `done` is told of the bytes loaded since it was last called.
pub(super) fn load(
    memory: &dyn GlobalMemory,
    plan: &Plan,
    operand: Operand,
    file: &NpyMatrix,
    done: &mut dyn FnMut(u64),
) -> Result<()> {
    let (mut tiles, mut stage) = (Buffer::default(), Buffer::new(STAGE_BYTES));
    let order = plan.problem.tile_orders()[operand as usize];
    let mut stripe = None;
    for group in plan.groups(operand, memory.rank()) {
        // The groups of a stripe share its pages in the file: have them read in one sequential go.
        let (slow, _) = group.rectangle.slow_fast(file.order);
        if stripe.replace(slow.clone()) != Some(slow) {
            file.advise(&group.rectangle);
        }
        let (first, last) = (&group.tiles[0], &group.tiles[group.tiles.len() - 1]);
        let bytes = (last.offset - first.offset) as usize + last.bytes;
        if tiles.bytes().len() < bytes {
            tiles = Buffer::new(bytes);
        }
        read_group(file, &group, order, &mut tiles.bytes_mut()[..bytes], &mut stage)?;
        memory.put(first.owner, first.offset, &tiles.bytes()[..bytes])?;
        done(group.rectangle.len() * file.dtype.bytes());
    }
    Ok(())
}

/// Reads a group so that its tiles lie in `into` as in the segment.
fn read_group(
    file: &NpyMatrix,
    group: &Group,
    order: Order,
    into: &mut [u8],
    stage: &mut Buffer,
) -> Result<()> {
    let (slow, _) = group.rectangle.slow_fast(file.order);
    let lines = (slow.end - slow.start) as usize;
    let side_by_side = group.tiles[0].rectangle.slow_fast(file.order).0 == slow;
    if order == file.order && (!side_by_side || group.tiles.len() == 1) {
        for tile in &group.tiles {
            file.read(&tile.rectangle, &mut into[place(tile, group)])?;
        }
    } else if order == file.order {
        // The tiles lie side by side in the file's lines: read whole lines and deal their parts out.
        for_lines(file, &group.rectangle, stage, &mut |line, source| {
            let mut source = source;
            for tile in &group.tiles {
                let (part, rest) = source.split_at(tile.bytes / lines);
                let first = line * part.len();
                into[place(tile, group)][first..first + part.len()].copy_from_slice(part);
                source = rest;
            }
        })?;
    } else {
        for tile in &group.tiles {
            let turned = &mut into[place(tile, group)];
            match file.dtype {
                Dtype::Float32 => read_turned::<u32>(file, &tile.rectangle, turned, stage)?,
                Dtype::Float64 => read_turned::<u64>(file, &tile.rectangle, turned, stage)?,
            }
        }
    }
    Ok(())
}

/// Range of a tile among its group's bytes.
fn place(tile: &Tile, group: &Group) -> Range<usize> {
    let at = (tile.offset - group.tiles[0].offset) as usize;
    at..at + tile.bytes
}

/// Reads a rectangle, many lines at a time, and hands over each line with its number, counted from 0.
fn for_lines(
    file: &NpyMatrix,
    rectangle: &Rectangle,
    stage: &mut Buffer,
    visit: &mut dyn FnMut(usize, &[u8]),
) -> Result<()> {
    let (slow, fast) = rectangle.slow_fast(file.order);
    let width = ((fast.end - fast.start) * file.dtype.bytes()) as usize;
    if stage.bytes().len() < width {
        *stage = Buffer::new(width);
    }
    let at_once = stage.bytes().len() / width.max(1);
    for start in slow.clone().step_by(at_once) {
        let lines = start..(start + at_once as u64).min(slow.end);
        let stage = &mut stage.bytes_mut()[..width * (lines.end - lines.start) as usize];
        file.read(&Rectangle::from_slow_fast(file.order, lines, fast.clone()), stage)?;
        for (line, bytes) in stage.chunks_exact(width).enumerate() {
            visit((start - slow.start) as usize + line, bytes);
        }
    }
    Ok(())
}

/// Reads a rectangle into the order that the file does not have. `T` is any type of the numbers' size.
fn read_turned<T: Pod>(
    file: &NpyMatrix,
    rectangle: &Rectangle,
    into: &mut [u8],
    stage: &mut Buffer,
) -> Result<()> {
    let (slow, fast) = rectangle.slow_fast(file.order);
    let (lines, length) = ((slow.end - slow.start) as usize, (fast.end - fast.start) as usize);
    let into: &mut [T] = bytemuck::cast_slice_mut(into);
    // A few lines at a time: their numbers that follow one another go to places one below the other.
    let mut few = vec![T::zeroed(); SQUARE * length];
    let mut turn = |few: &[T], first: usize, count: usize| {
        for start in (0..length).step_by(SQUARE) {
            for at in start..(start + SQUARE).min(length) {
                for line in 0..count {
                    into[at * lines + first + line] = few[line * length + at];
                }
            }
        }
    };
    for_lines(file, rectangle, stage, &mut |line, bytes| {
        let within = line % SQUARE;
        few[within * length..(within + 1) * length].copy_from_slice(bytemuck::cast_slice(bytes));
        if within == SQUARE - 1 || line == lines - 1 {
            turn(&few, line - within, within + 1);
        }
    })
}

/// Streams C from global memory into the output, one block being written while the next is on its way. Only rank 0
/// does this: the output need not be in a shared folder, and is one process's to name or to drop.
pub(super) fn write_out(
    memory: &dyn GlobalMemory,
    plan: &Plan,
    output: &NpyOutput,
    done: &mut dyn FnMut(u64),
) -> Result<()> {
    let [rows, columns, _] = plan.tiles;
    let mut tiles =
        (0..rows).flat_map(|i| (0..columns).map(move |j| (i, j))).map(|(i, j)| plan.tile(Operand::C, i, j));
    let start = |tile: Tile, buffer| {
        let pending = memory.get_start(tile.owner, tile.offset, buffer, tile.bytes)?;
        Ok::<_, super::error::GemmError>((tile, pending))
    };
    let mut spare = Buffer::new(plan.tile_bytes(Operand::C));
    let mut next = match tiles.next() {
        Some(tile) => Some(start(tile, Buffer::new(plan.tile_bytes(Operand::C)))?),
        None => None,
    };
    while let Some((tile, pending)) = next {
        let buffer = pending.wait()?;
        next = match tiles.next() {
            Some(following) => Some(start(following, std::mem::take(&mut spare))?),
            None => None,
        };
        output.write(&tile.rectangle, &buffer.bytes()[..tile.bytes])?;
        done(tile.bytes as u64);
        spare = buffer;
    }
    Ok(())
}
