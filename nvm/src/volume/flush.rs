//! Making a checkpoint, one step at a time, while reads and writes go on.
//!
//! The steps, and why a crash after any of them leaves a complete checkpoint, are argued in `nvm/DESIGN.md`:
//!
//! 1. *Drain*: the segment's writes at the device finish; new ones are held.
//! 2. *Map*: the page-map blocks above changed pages are written to their other places.
//! 3. *Sync*: pages and map are durable. Nothing refers to them yet.
//! 4. *Superblock*: the new generation goes to the other superblock's place.
//! 5. *Sync*: the new checkpoint is the last one; the places of the one before may be overwritten.

use super::io::{Gather, Job};
use super::named::{Named, flush_error, private_memory};
use super::{Segment, Volume};
use crate::checksum;
use crate::device::{Kind, Spans};
use crate::error::{DeviceError, VolumeError};
use crate::few::Few;
use crate::format::{
    BLOCK_BYTES, BLOCK_ENTRIES, Entry, Place, Superblock, encode_block, superblock_at, superblock_place,
};
use crate::page_table::CHUNK_PAGES;
use std::collections::{BTreeSet, VecDeque};
use vgas_rma::shm::Span;

/// Map blocks written at once.
const BLOCKS_IN_FLIGHT_MAX: usize = 64;

/// A checkpoint being made.
pub(super) struct Flush {
    key: u64,
    step: Step,
    /// The chunks it covers.
    chunks: BTreeSet<usize>,
    /// Map blocks to write: level, block. A block stands behind all blocks that it describes.
    todo: VecDeque<(usize, usize)>,
    /// What the map said before: level, block, entry.
    undo: Vec<(usize, usize, Entry)>,
    /// The first chunk whose block has not been encoded: from there on, pages must stay as the checkpoint has them.
    encoded_up_to: usize,
    in_flight: usize,
    failed: Option<DeviceError>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Drain,
    Map,
    Sync,
    Superblock,
    SyncSuperblock,
}

impl Step {
    fn describe(self) -> &'static str {
        match self {
            Self::Drain => "waiting for writes",
            Self::Map => "writing the page map",
            Self::Sync => "syncing pages and page map",
            Self::Superblock => "writing the superblock",
            Self::SyncSuperblock => "syncing the superblock",
        }
    }
}

impl Flush {
    fn new(key: u64) -> Self {
        Self {
            key,
            step: Step::Drain,
            chunks: BTreeSet::new(),
            todo: VecDeque::new(),
            undo: Vec::new(),
            encoded_up_to: 0,
            in_flight: 0,
            failed: None,
        }
    }

    pub(super) fn must_hold(&self, page: u64) -> bool {
        let chunk = (page / CHUNK_PAGES as u64) as usize;
        self.step == Step::Drain || (chunk >= self.encoded_up_to && self.chunks.contains(&chunk))
    }
}

impl Volume {
    /// Begins a checkpoint, or queues it behind the one being made.
    pub(super) fn start_flush(&mut self, segment: u32, key: u64) {
        let Some(found) = self.segments.get_mut(&segment) else { return };
        match &mut found.named {
            // A scratch segment has no later life.
            None => self.io.finish(key, Ok(())),
            Some(named) if named.stopped => {
                let file = self.io.device.describe(found.file);
                self.io.finish(key, Err(VolumeError::WritesStopped { file, segment }));
            }
            Some(named) if named.flush.is_some() => named.flushes_queued.push_back(key),
            Some(named) => {
                named.flush = Some(Flush::new(key));
                self.flush_if_drained(segment);
            }
        }
    }

    /// Leaves the first step when nothing of the segment is being written any more.
    pub(super) fn flush_if_drained(&mut self, segment: u32) {
        let Some(found) = self.segments.get_mut(&segment) else { return };
        let Segment { table, named: Some(named), changes_in_flight: 0, .. } = found else { return };
        let Some(flush) = named.flush.as_mut().filter(|flush| flush.step == Step::Drain) else { return };
        if !table.has_changed() {
            return self.end_flush(segment, Ok(()));
        }
        flush.step = Step::Map;
        flush.chunks = table.begin_flush();
        let mut blocks = flush.chunks.clone();
        for level in 0..named.levels.len() {
            flush.todo.extend(blocks.iter().map(|&block| (level, block)));
            blocks = blocks.iter().map(|block| block / BLOCK_ENTRIES).collect();
        }
        let many = flush.todo.len().min(BLOCKS_IN_FLIGHT_MAX);
        match private_memory(many * BLOCK_BYTES) {
            Ok(memory) => (0..many).for_each(|index| {
                self.write_map_block(segment, memory.span(index * BLOCK_BYTES, BLOCK_BYTES))
            }),
            Err(error) => self.abandon_flush(segment, error),
        }
    }

    /// Writes the next block of the page map from this memory, if any is left.
    fn write_map_block(&mut self, segment: u32, memory: Span) {
        let Some(Segment { file, table, named: Some(named), .. }) = self.segments.get_mut(&segment) else {
            return;
        };
        let Named { geometry, levels, flush: Some(flush), .. } = named else { return };
        let Some((level, block)) = flush.todo.pop_front() else { return };
        let bytes = if level == 0 {
            flush.encoded_up_to = block + 1;
            encode_block(table.chunk_entries(block))
        } else {
            encode_block(levels[level - 1].iter().skip(block * BLOCK_ENTRIES).copied())
        };
        memory.write(&bytes[..]);
        let before = levels[level][block];
        let place = match before {
            Entry::Stored { place, .. } => place.other(),
            Entry::Zeros | Entry::Lost => Place::A,
        };
        flush.undo.push((level, block, before));
        levels[level][block] = Entry::Stored { place, checksum: checksum::of_bytes(&bytes[..]) };
        flush.in_flight += 1;
        let offset = geometry.block_at(level, block as u64, place);
        self.io.issue(Job::Flush { segment }, *file, Kind::Write, offset, memory.into());
    }

    /// An operation of the checkpoint has completed.
    pub(super) fn continue_flush(&mut self, segment: u32, spans: Spans, result: Result<u64, DeviceError>) {
        let Some(Segment { file, pages, named: Some(named), .. }) = self.segments.get_mut(&segment) else {
            return;
        };
        let (file, pages) = (*file, *pages);
        let Some(flush) = &mut named.flush else { return };
        flush.in_flight -= 1;
        match (flush.step, result) {
            (Step::Drain, _) => debug_assert!(false, "draining issues nothing"),
            (Step::Map, result) => {
                if let Err(error) = result {
                    flush.failed.get_or_insert(error);
                    flush.todo.clear();
                }
                let (failed, all_encoded) =
                    (flush.failed, flush.todo.front().is_none_or(|&(level, _)| level > 0));
                if let Some(memory) = spans.as_slice().first() {
                    self.write_map_block(segment, memory.clone());
                }
                if all_encoded {
                    self.release_held(segment);
                }
                let Some(flush) = self.flush_of(segment).filter(|flush| flush.in_flight == 0) else { return };
                match failed {
                    Some(error) => self.abandon_flush(segment, error),
                    None => {
                        (flush.step, flush.in_flight) = (Step::Sync, 1);
                        self.io.issue(Job::Flush { segment }, file, Kind::SyncData, 0, Few::None);
                    }
                }
            }
            (Step::Sync, Ok(_)) => {
                let generation = named.generation + 1;
                let root = named.levels.last().map_or(Entry::Lost, |top| top[0]);
                let superblock = Superblock { segment, page_bytes: self.page_bytes, pages, generation, root };
                match private_memory(BLOCK_BYTES) {
                    Ok(memory) => {
                        (flush.step, flush.in_flight) = (Step::Superblock, 1);
                        let span = memory.span(0, BLOCK_BYTES);
                        span.write(&superblock.encode()[..]);
                        let offset = superblock_at(superblock_place(generation));
                        self.io.issue(Job::Flush { segment }, file, Kind::Write, offset, span.into());
                    }
                    Err(error) => self.abandon_flush(segment, error),
                }
            }
            (Step::Superblock, Ok(_)) => {
                (flush.step, flush.in_flight) = (Step::SyncSuperblock, 1);
                self.io.issue(Job::Flush { segment }, file, Kind::SyncData, 0, Few::None);
            }
            (Step::SyncSuperblock, Ok(_)) => {
                named.generation += 1;
                self.end_flush(segment, Ok(()));
            }
            // A failed sync may have dropped any write, and a second one would succeed all the same; a failed
            // superblock may be there or not. So the file is left exactly as it is.
            (Step::Sync | Step::Superblock | Step::SyncSuperblock, Err(error)) => {
                let step = flush.step.describe();
                named.stopped = true;
                let file = self.io.device.describe(file);
                self.end_flush(segment, Err(flush_error(file, segment, step, error)));
            }
        }
    }

    fn flush_of(&mut self, segment: u32) -> Option<&mut Flush> {
        self.segments.get_mut(&segment)?.named.as_mut()?.flush.as_mut()
    }

    /// Gives a checkpoint up before anything refers to it; the next one starts from the same state.
    fn abandon_flush(&mut self, segment: u32, error: DeviceError) {
        let Some(Segment { file, named: Some(named), .. }) = self.segments.get_mut(&segment) else { return };
        let Named { levels, flush: Some(flush), .. } = named else { return };
        for (level, block, before) in flush.undo.drain(..).rev() {
            levels[level][block] = before;
        }
        let (file, step) = (self.io.device.describe(*file), flush.step.describe());
        self.end_flush(segment, Err(flush_error(file, segment, step, error)));
    }

    /// Reports a checkpoint and goes on with what waited for it.
    fn end_flush(&mut self, segment: u32, result: Result<(), VolumeError>) {
        let Some(Segment { table, named: Some(named), .. }) = self.segments.get_mut(&segment) else { return };
        let Some(flush) = named.flush.take() else { return };
        if !named.stopped {
            table.end_flush(&flush.chunks, result.is_err());
        }
        let next = named.flushes_queued.pop_front();
        self.io.finish(flush.key, result);
        self.release_held(segment);
        if let Some(key) = next {
            self.start_flush(segment, key);
        }
    }

    /// Starts the held changes that need no longer wait; the others are held again, in the same order.
    fn release_held(&mut self, segment: u32) {
        let Some(Segment { file, named: Some(named), .. }) = self.segments.get_mut(&segment) else { return };
        let mut gather = Gather::new(segment, *file, Kind::Write);
        for change in std::mem::take(&mut named.held) {
            self.change(segment, change, &mut gather);
        }
        gather.issue(&mut self.io);
    }
}
