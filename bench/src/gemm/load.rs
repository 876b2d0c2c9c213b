//! The first and the last part: tiles from the inputs' files into global memory, blocks from there into the output.

use super::error::Result;
use super::memory::{Buffer, GlobalMemory};
use super::npy::{NpyMatrix, Order, Rectangle};
use super::output::NpyOutput;
use super::plan::{Group, Operand, Plan};

/// A scan of rows that are cut into tiles reads this many bytes of them at a time.
const STAGE_BYTES: usize = 1 << 20;

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
        read_group(file, &group, &mut tiles.bytes_mut()[..bytes], stage.bytes_mut())?;
        memory.put(first.owner, first.offset, &tiles.bytes()[..bytes])?;
        done(group.rectangle.len() * file.dtype.bytes());
    }
    Ok(())
}

/// Reads a group so that its tiles lie in `into` as in the segment.
fn read_group(file: &NpyMatrix, group: &Group, into: &mut [u8], stage: &mut [u8]) -> Result<()> {
    let start = group.tiles[0].offset;
    let place = |tile: &super::plan::Tile| {
        let at = (tile.offset - start) as usize;
        at..at + tile.bytes
    };
    let (slow, fast) = group.rectangle.slow_fast(file.order);
    let side_by_side = group.tiles.len() > 1 && group.tiles[0].rectangle.slow_fast(file.order).0 == slow;
    let width = (fast.end - fast.start) as usize * file.dtype.bytes() as usize;
    if !side_by_side || width > stage.len() {
        for tile in &group.tiles {
            file.read(&tile.rectangle, &mut into[place(tile)])?;
        }
        return Ok(());
    }
    // The tiles lie side by side in the file's lines: read whole lines of the group and deal their parts out.
    let lines_at_once = (stage.len() / width) as u64;
    let mut line = slow.start;
    while line < slow.end {
        let lines = line..(line + lines_at_once).min(slow.end);
        let rectangle = match file.order {
            Order::C => Rectangle { rows: lines.clone(), columns: fast.clone() },
            Order::Fortran => Rectangle { rows: fast.clone(), columns: lines.clone() },
        };
        let stage = &mut stage[..width * (lines.end - lines.start) as usize];
        file.read(&rectangle, stage)?;
        for (at, source) in stage.chunks_exact(width).enumerate() {
            let mut source = source;
            for tile in &group.tiles {
                let part = tile.bytes / (slow.end - slow.start) as usize;
                let first = ((line - slow.start) as usize + at) * part;
                let (from, rest) = source.split_at(part);
                into[place(tile)][first..first + part].copy_from_slice(from);
                source = rest;
            }
        }
        line = lines.end;
    }
    Ok(())
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
    let start = |tile: super::plan::Tile, buffer| {
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
