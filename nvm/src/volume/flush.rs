//! Making a checkpoint, one step at a time, while reads and writes continue.
//!
//! The steps, and why a crash after any of them leaves a complete checkpoint, are argued in `nvm/DESIGN.md`:
//!
//! 1. *Drain*: the segment's writes at the device finish; new ones are held.
//! 2. *Map*: the page-map blocks above changed pages are written to their other places.
//! 3. *Sync*: pages and map are durable. Nothing refers to them yet.
//! 4. *Superblock*: the new generation goes to the other superblock's place.
//! 5. *Sync*: the new checkpoint is *prepared*: it is there beside the one before.
//! 6. *Mark*: when all segments of the job are prepared, the mark records that.
//! 7. *Sync*: the new checkpoint is the last one; the places of the one before may be overwritten.
//!
//! Or instead of 6, if another segment could not be prepared: *void*: the new superblock is made none,
//! synced, and the segment continues from the checkpoint before.

use super::flush_state::{Flush, FlushRequest, Step};
use super::io::{Gather, Job};
use super::named::{Named, Stopped, flush_error, private_memory};
use super::{Locked, Segment};
use crate::checksum;
use crate::device::{Kind, Spans};
use crate::error::{DeviceError, VolumeError};
use crate::few::SmallList;
use crate::format::{
    BLOCK_BYTES, BLOCK_ENTRIES, Entry, MARK_AT, Place, Superblock, encode_block, encode_mark, superblock_at,
    superblock_place,
};
use vgas_shm::Span;

/// Map blocks written at once.
const BLOCKS_IN_FLIGHT_MAX: usize = 64;

impl Locked<'_> {
    /// Begins a checkpoint, or queues it behind the one being made.
    pub(super) fn start_flush(&mut self, segment: u32, wanted: FlushRequest) {
        let key = wanted.key;
        let Some(found) = self.segments.get_mut(&segment) else { return };
        match found.named.as_deref_mut() {
            // A scratch segment has no later life.
            None => self.io.finish(key, Ok(())),
            Some(Named { stopped: Some(stopped), .. }) => {
                let error = stopped.error(self.io.device.describe(found.file), segment);
                self.io.finish(key, Err(error));
            }
            Some(named) if named.flush.is_some() => named.flushes_queued.push_back(wanted),
            Some(named) => {
                named.flush = Some(Flush::new(wanted, named.generation + 1));
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
            if flush.alone {
                return self.end_flush(segment, Ok(()));
            }
            // The checkpoint that the file has, under the name that the other ranks give to theirs.
            return self.write_superblock(segment);
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
        let Named { geometry, levels, flush: Some(flush), .. } = &mut **named else { return };
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
        let Some(Segment { file, named: Some(named), .. }) = self.segments.get_mut(&segment) else { return };
        let file = *file;
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
                let Some(_) = self.flush_of(segment).filter(|flush| flush.in_flight == 0) else { return };
                match failed {
                    Some(error) => self.abandon_flush(segment, error),
                    None => self.sync_flush(segment, Step::Sync),
                }
            }
            (Step::Sync, Ok(_)) => self.write_superblock(segment),
            (Step::Superblock, Ok(_)) => self.sync_flush(segment, Step::SyncSuperblock),
            (Step::SyncSuperblock, Ok(_)) if flush.alone => self.write_mark(segment),
            (Step::SyncSuperblock, Ok(_)) => {
                flush.step = Step::Prepared;
                if let Some(key) = flush.key.take() {
                    self.io.finish(key, Ok(()));
                }
            }
            (Step::Prepared, _) => debug_assert!(false, "who is prepared issues nothing"),
            (Step::Mark, Ok(_)) => self.sync_flush(segment, Step::SyncMark),
            (Step::SyncMark, Ok(_)) => {
                named.generation = flush.checkpoint.generation;
                self.end_flush(segment, Ok(()));
            }
            (Step::Void, Ok(_)) => self.sync_flush(segment, Step::SyncVoid),
            (Step::SyncVoid, Ok(_)) => self.undo_flush(segment, Ok(())),
            // A failed sync may have dropped any write, and a second one would succeed all the same; a failed
            // superblock may be there or not. So the file is left exactly as it is.
            (_, Err(error)) => {
                let step = flush.step.describe();
                named.stopped = Some(Stopped::Flush(error));
                let file = self.io.device.describe(file);
                self.end_flush(segment, Err(flush_error(file, segment, step, error)));
            }
        }
    }

    /// Ends a prepared checkpoint, for `conclude`.
    pub(super) fn end_prepared(&mut self, segment: u32, commit: bool, key: u64) {
        let Some(found) = self.segments.get_mut(&segment) else { return };
        let is_scratch = found.named.is_none();
        let prepared = found.named.as_mut().and_then(|named| named.flush.as_mut());
        match (prepared, commit) {
            (Some(flush), _) if flush.step == Step::Prepared => {
                flush.key = Some(key);
                if commit { self.write_mark(segment) } else { self.write_void(segment) }
            }
            (None, false) => self.io.finish(key, Ok(())),
            // A scratch segment has no later life.
            (None, true) if is_scratch => self.io.finish(key, Ok(())),
            _ => {
                let what = format!("no checkpoint of segment {segment} waits to be concluded");
                self.io.finish(key, Err(VolumeError::Usage(what)));
            }
        }
    }

    fn write_superblock(&mut self, segment: u32) {
        let Some(superblock) = self.superblock_of_flush(segment) else { return };
        let place = superblock_place(superblock.checkpoint.generation);
        self.write_block(segment, Step::Superblock, superblock_at(place), &superblock.encode());
    }

    fn write_mark(&mut self, segment: u32) {
        let Some(flush) = self.flush_of(segment) else { return };
        let mark = encode_mark(flush.checkpoint);
        self.write_block(segment, Step::Mark, MARK_AT, &mark);
    }

    fn write_void(&mut self, segment: u32) {
        let Some(superblock) = self.superblock_of_flush(segment) else { return };
        let place = superblock_place(superblock.checkpoint.generation);
        self.write_block(segment, Step::Void, superblock_at(place), &superblock.encode_void());
    }

    fn superblock_of_flush(&self, segment: u32) -> Option<Superblock> {
        let Segment { table, page_bytes, named: Some(named), .. } = self.segments.get(&segment)? else {
            return None;
        };
        let root = named.levels.last().map_or(Entry::Lost, |top| top[0]);
        let Flush { checkpoint, companions, .. } = named.flush.as_ref()?;
        let (segment, page_bytes, pages) = (named.number, *page_bytes, table.pages());
        let (checkpoint, companions) = (*checkpoint, companions.clone());
        Some(Superblock { segment, page_bytes, pages, checkpoint, root, companions })
    }

    /// Enters a step that writes one block of the head of the file.
    fn write_block(&mut self, segment: u32, step: Step, offset: u64, block: &[u8; BLOCK_BYTES]) {
        let Some(Segment { file, named: Some(named), .. }) = self.segments.get_mut(&segment) else { return };
        let Some(flush) = &mut named.flush else { return };
        match private_memory(BLOCK_BYTES) {
            Ok(memory) => {
                (flush.step, flush.in_flight) = (step, 1);
                let span = memory.span(0, BLOCK_BYTES);
                span.write(&block[..]);
                self.io.issue(Job::Flush { segment }, *file, Kind::Write, offset, span.into());
            }
            Err(error) if step == Step::Superblock => self.abandon_flush(segment, error),
            Err(error) => {
                named.stopped = Some(Stopped::Flush(error));
                let file = self.io.device.describe(*file);
                self.end_flush(segment, Err(flush_error(file, segment, step.describe(), error)));
            }
        }
    }

    fn sync_flush(&mut self, segment: u32, step: Step) {
        let Some(file) = self.segments.get(&segment).map(|segment| segment.file) else { return };
        let Some(flush) = self.flush_of(segment) else { return };
        (flush.step, flush.in_flight) = (step, 1);
        self.io.issue(Job::Flush { segment }, file, Kind::SyncData, 0, SmallList::None);
    }

    fn flush_of(&mut self, segment: u32) -> Option<&mut Flush> {
        self.segments.get_mut(&segment)?.named.as_mut()?.flush.as_mut()
    }

    /// Gives a checkpoint up before anything refers to it; the next one starts from the same state.
    fn abandon_flush(&mut self, segment: u32, error: DeviceError) {
        let Some(Segment { file, named: Some(named), .. }) = self.segments.get_mut(&segment) else { return };
        let Some(flush) = &mut named.flush else { return };
        let (file, step) = (self.io.device.describe(*file), flush.step.describe());
        self.undo_flush(segment, Err(flush_error(file, segment, step, error)));
    }

    /// Goes back to the checkpoint before, to which nothing on the device is newer.
    fn undo_flush(&mut self, segment: u32, result: Result<(), VolumeError>) {
        let Some(Segment { table, named: Some(named), .. }) = self.segments.get_mut(&segment) else { return };
        let Named { levels, flush: Some(flush), .. } = &mut **named else { return };
        for (level, block, before) in flush.undo.drain(..).rev() {
            levels[level][block] = before;
        }
        table.end_flush(&std::mem::take(&mut flush.chunks), true);
        self.end_flush(segment, result);
    }

    /// Reports a checkpoint and starts the requests that waited for it.
    fn end_flush(&mut self, segment: u32, result: Result<(), VolumeError>) {
        let Some(Segment { table, named: Some(named), .. }) = self.segments.get_mut(&segment) else { return };
        let Some(flush) = named.flush.take() else { return };
        if named.stopped.is_none() {
            table.end_flush(&flush.chunks, false);
        }
        let next = named.flushes_queued.pop_front();
        if let Some(key) = flush.key {
            self.io.finish(key, result);
        }
        self.release_held(segment);
        if let Some(wanted) = next {
            self.start_flush(segment, wanted);
        }
    }

    /// Starts the held changes that need no longer wait; the others are held again, in the same order.
    fn release_held(&mut self, segment: u32) {
        let Some(Segment { file, named: Some(named), .. }) = self.segments.get_mut(&segment) else { return };
        let mut gather = Gather::new(segment, *file, Kind::Write, true);
        for change in std::mem::take(&mut named.held) {
            self.change(segment, change, &mut gather);
        }
        gather.issue(self.io);
    }
}
