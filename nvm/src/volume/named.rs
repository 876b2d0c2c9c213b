//! Named segments: creating their files, and finding the last checkpoint again.

use super::flush_state::{Flush, FlushRequest};
use super::io::Job;
use super::{Change, NamedFile, Segment, Volume};
use crate::checksum;
use crate::device::{FileId, Kind, Naming, Spans};
use crate::error::{DeviceError, FileError, PageOperation, Result, Untrusted, Unusable, VolumeError};
use crate::few::SmallList;
use crate::format::{
    BLOCK_BYTES, BLOCK_ENTRIES, CheckpointId, Companion, Entry, Geometry, MARK_AT, NoSuperblock, Offer,
    Place, Superblock, decode_block, decode_mark, encode_mark, superblock_at, superblock_place,
};
use crate::page_table::PageTable;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use vgas_shm::{Mapping, Span};

/// Longest name of a named segment, in bytes: leaves room for its number and the ending in a file name of 255.
pub const NAME_BYTES_MAX: usize = 200;
/// Memory for reading at opening, in bytes: enough reads in flight to keep a device busy.
const OPENING_BYTES: usize = 1 << 20;
/// Report of opening a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenReport {
    /// New or found.
    pub opened: Opened,
    /// Pages whose content is lost, ascending: reading them fails until they are written whole. Pages whose own bytes
    /// are damaged are found when they are read, except after a fallback, when all pages have been checked.
    pub damaged_pages: Vec<Range<u64>>,
    /// One of the two superblocks is damaged, so the other one was used. After a crash during a flush this is
    /// harmless: the flush before is complete. Otherwise a later flush is lost; this reports that in one
    /// line.
    pub fallback: Option<String>,
    /// The generation of a newer checkpoint that was whole in this file, and that was given up because the caller has asked
    /// for the one before: the other ranks do not have it.
    pub given_up: Option<u64>,
    /// Nothing can be written to the file, for this reason: writes and flushes fail, and an abandoned
    /// checkpoint may be found again by a job that can write. If the disk is full, writes are tried all the
    /// same: space may have been freed.
    pub read_only: Option<DeviceError>,
}

/// Tells if a named segment existed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opened {
    /// It was created: all zeros.
    Fresh,
    /// It holds an earlier checkpoint.
    Reopened {
        /// Number of checkpoints made since it was created.
        generation: u64,
    },
}

/// Additional state of a named segment.
pub(super) struct Named {
    /// Number in the file's name.
    pub(super) number: u32,
    pub(super) geometry: Geometry,
    /// Generation of the last complete checkpoint.
    pub(super) generation: u64,
    /// Per level of the page map, the entries of its blocks.
    pub(super) levels: Vec<Vec<Entry>>,
    /// The checkpoint being made.
    pub(super) flush: Option<Flush>,
    /// Checkpoints asked for meanwhile.
    pub(super) flushes_queued: VecDeque<FlushRequest>,
    /// Changes that wait for the checkpoint, oldest first.
    pub(super) held: VecDeque<Change>,
    /// Why it takes no writes.
    pub(super) stopped: Option<Stopped>,
}

/// Why a segment takes no writes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stopped {
    /// A checkpoint failed when it may or may not have become the last one.
    Flush(DeviceError),
    /// It was opened where nothing can be written.
    ReadOnly(DeviceError),
}

impl Stopped {
    /// Returns the error for an attempt to write.
    pub(super) fn error(self, file: String, segment: u32) -> VolumeError {
        match self {
            Self::Flush(source) => VolumeError::WritesStopped { file, segment, source },
            Self::ReadOnly(source) => VolumeError::ReadOnly { file, segment, source },
        }
    }
}

impl Named {
    fn new(geometry: Geometry, generation: u64, number: u32) -> Self {
        let levels = (0..geometry.levels()).map(|level| vec![Entry::Zeros; geometry.blocks(level) as usize]);
        Self {
            number,
            levels: levels.collect(),
            geometry,
            generation,
            flush: None,
            flushes_queued: VecDeque::new(),
            held: VecDeque::new(),
            stopped: None,
        }
    }

    pub(super) fn is_busy(&self) -> bool {
        self.requests_held() > 0
    }

    /// Returns true if no checkpoint of it can be found again: none was made, and none may have become the
    /// last one.
    pub(super) fn has_no_checkpoint(&self) -> bool {
        self.generation == 0 && self.flush.is_none() && self.stopped.is_none()
    }

    /// Requests that wait here and not at the device.
    pub(super) fn requests_held(&self) -> usize {
        let flushing = self.flush.as_ref().is_some_and(Flush::is_asked_for);
        self.held.len() + self.flushes_queued.len() + usize::from(flushing)
    }

    /// Returns true if a change of this page must wait although the page itself could take it.
    pub(super) fn must_hold(&self, page: u64) -> bool {
        self.flush.as_ref().is_some_and(|flush| flush.must_hold(page))
    }
}

/// The result of one read at opening.
type Block = std::result::Result<Box<[u8; BLOCK_BYTES]>, DeviceError>;

/// Returns true for a valid segment name: 1 to [`NAME_BYTES_MAX`] letters, digits, '_', '-' and '.', not
/// starting with '.'.
pub fn is_segment_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.starts_with('.') && name.chars().all(plain)
}

/// The file of a named segment in its volume's folder.
pub fn segment_file_name(name: &str, segment: u32) -> String {
    format!("{name}.{segment}.vgas")
}

/// State of a segment's file, as a read-only observer sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileState {
    /// There is none.
    Missing,
    /// It can be opened at any of these checkpoints, the newest first, each with the other segments that took
    /// part in it. Generation 0 is a segment that was created and never flushed: nothing in it was promised
    /// to survive.
    Holds(Vec<(CheckpointId, Vec<Companion>)>),
    /// It is something else, which opening it will name.
    Unclear,
}

impl FileState {
    /// Returns true if it may hold data worth finding again.
    pub fn is_kept(&self) -> bool {
        match self {
            Self::Missing => false,
            Self::Holds(checkpoints) => checkpoints.iter().any(|(one, _)| one.generation > 0),
            Self::Unclear => true,
        }
    }
}

/// Looks at a segment's file without locking or changing anything. Blocks briefly.
///
/// # Errors
/// The system's error, if the file exists and cannot be read.
pub fn segment_file_state(path: &Path) -> std::io::Result<FileState> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(FileState::Missing),
        Err(Errno::LOOP) => return Err(std::io::Error::other(Untrusted::IsLink)),
        opened => std::fs::File::from(opened?),
    };
    let read = |offset| {
        let mut block = Box::new([0; BLOCK_BYTES]);
        let read = file.read_exact_at(&mut block[..], offset);
        read.map(|()| block).map_err(|_| NoSuperblock::Unreadable)
    };
    let superblock = |place| read(superblock_at(place)).and_then(|block| Superblock::decode(&block, place));
    let mark = read(MARK_AT).and_then(|block| decode_mark(&block));
    Ok(match Superblock::offer(superblock(Place::A), superblock(Place::B), mark) {
        Ok(offer) => FileState::Holds(
            offer.checkpoints().map(|one| (one.checkpoint, one.companions.clone())).collect(),
        ),
        Err(_) => FileState::Unclear,
    })
}

impl Volume {
    pub(super) fn open_or_create(
        &mut self,
        segment: u32,
        NamedFile { name, number, checkpoint }: NamedFile<'_>,
        pages: u64,
        page_bytes: u32,
    ) -> Result<OpenReport> {
        if !is_segment_name(name) {
            return Err(VolumeError::Usage(format!(
                "{name:?} is no name for a segment: 1 to {NAME_BYTES_MAX} letters, digits, '_', '-' and '.', \
                 not starting with '.'"
            )));
        }
        let too_large =
            || VolumeError::Usage(format!("no file can hold the {pages} pages of segment {segment}"));
        let geometry = Geometry::new(page_bytes, pages).ok_or_else(too_large)?;
        let file_name = segment_file_name(name, number);
        let expected = Superblock {
            segment: number,
            page_bytes,
            pages,
            checkpoint: CheckpointId::default(),
            root: Entry::Zeros,
            companions: Vec::new(),
        };
        if let Some(file) = self.io.device.open(&file_name)? {
            return self.closing_on_error(file, |volume| {
                volume.load(segment, file, &expected, geometry, checkpoint)
            });
        }
        if let Some(asked) = checkpoint.filter(|checkpoint| checkpoint.generation > 0) {
            let reason = Unusable::Checkpoint { asked: asked.generation, found: Vec::new() };
            return Err(VolumeError::Unusable { file: file_name, reason });
        }
        let file = self.io.device.create(geometry.file_bytes(), Naming::Later)?;
        self.closing_on_error(file, |volume| {
            volume.create_named(segment, file, &file_name, &expected, geometry)
        })
    }

    fn closing_on_error<T>(&mut self, file: FileId, open: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let opened = open(self);
        if opened.is_err() {
            self.io.device.close(file);
        }
        opened
    }

    fn create_named(
        &mut self,
        segment: u32,
        file: FileId,
        name: &str,
        superblock: &Superblock,
        geometry: Geometry,
    ) -> Result<OpenReport> {
        let span = opening_memory(BLOCK_BYTES)?.span(0, BLOCK_BYTES);
        span.write(&superblock.encode()[..]);
        let written = self.direct(file, Kind::Write, superblock_at(Place::A), span.into());
        let synced = written.and_then(|_| self.direct(file, Kind::SyncData, 0, SmallList::None));
        if let Err(source) = synced {
            let file = format!("{name} of {}", self.io.device.describe(file));
            return Err(VolumeError::Flush { file, segment, step: "writing the first superblock", source });
        }
        // The file gets its name only now, so that a file without a superblock is never found.
        self.io.device.publish(file, name).map_err(|error| match error {
            FileError::Exists { path } => FileError::InUse { path },
            error => error,
        })?;
        let Superblock { pages, page_bytes, .. } = *superblock;
        let table = PageTable::new(pages, true);
        let named = Some(Named::new(geometry, 0, superblock.segment));
        self.insert(segment, Segment::new(file, page_bytes, table, named));
        Ok(OpenReport {
            opened: Opened::Fresh,
            damaged_pages: Vec::new(),
            fallback: None,
            given_up: None,
            read_only: None,
        })
    }

    fn load(
        &mut self,
        segment: u32,
        file: FileId,
        wanted: &Superblock,
        geometry: Geometry,
        checkpoint: Option<CheckpointId>,
    ) -> Result<OpenReport> {
        let Superblock { pages, page_bytes, segment: number, .. } = *wanted;
        let path = self.io.device.describe(file);
        let unusable = |reason| VolumeError::Unusable { file: path.clone(), reason };
        let offer = self.find_superblocks(file, &path)?;
        let asked = checkpoint.unwrap_or(offer.newest.checkpoint);
        let Some(superblock) = offer.checkpoints().find(|one| one.checkpoint == asked).cloned() else {
            let found = offer.checkpoints().map(|one| one.checkpoint.generation).collect();
            return Err(unusable(Unusable::Checkpoint { asked: asked.generation, found }));
        };
        let generation = superblock.checkpoint.generation;
        if superblock.segment != number {
            return Err(unusable(Unusable::Segment { found: superblock.segment, expected: number }));
        }
        if superblock.page_bytes != page_bytes {
            let (found, expected) = (superblock.page_bytes, page_bytes);
            return Err(unusable(Unusable::PageBytes { found, expected }));
        }
        if superblock.pages != pages {
            return Err(unusable(Unusable::Pages { found: superblock.pages, expected: pages, page_bytes }));
        }
        let (found, expected) = (self.io.device.file_bytes(file)?, geometry.file_bytes());
        if found < expected {
            return Err(unusable(Unusable::Truncated { found, expected }));
        }

        let mut table = PageTable::new(pages, true);
        let mut named = Named::new(geometry, generation, number);
        let mut damaged_pages = self.load_map(file, pages, superblock.root, &mut named, &mut table)?;
        let given_up = (superblock != offer.newest).then_some(offer.newest.checkpoint.generation);
        let fallback = offer.damage.map(|reason| {
            format!(
                "{path}: one superblock is {reason}; went back to flush {generation}, a later one may be lost"
            )
        });
        if fallback.is_some() || given_up.is_some() && offer.doubtful {
            // If the other checkpoint had been complete, pages of this one may have been overwritten since.
            damaged_pages.extend(self.check_pages(file, wanted, &named, &mut table)?);
            damaged_pages = merge(damaged_pages);
        }
        let refused = self.io.device.read_only(file).map(|errno| DeviceError::of(errno, 0));
        let read_only = match refused {
            Some(refused) => Some(refused),
            None => self.settle(file, &offer, &superblock)?.err(),
        };
        named.stopped = read_only.map(Stopped::ReadOnly);
        let read_only = read_only.or(self.io.device.full().map(|errno| DeviceError::of(errno, 0)));
        let named = Some(named);
        self.insert(segment, Segment::new(file, page_bytes, table, named));
        Ok(OpenReport {
            opened: Opened::Reopened { generation },
            damaged_pages,
            fallback,
            given_up,
            read_only,
        })
    }

    /// Before anything is overwritten: the checkpoint that was chosen is the only one that the file offers
    /// from now on. A later crash must not find the other one, whose pages may have been overwritten by then.
    /// The inner error: that could not be written, so that nothing may be.
    fn settle(
        &mut self,
        file: FileId,
        offer: &Offer,
        chosen: &Superblock,
    ) -> Result<Result<(), DeviceError>> {
        let checkpoint = chosen.checkpoint;
        let (offset, block) = if *chosen != offer.newest || offer.damage.is_some() {
            let next = CheckpointId { generation: checkpoint.generation + 1, identity: 0 };
            let void = Superblock { checkpoint: next, ..chosen.clone() };
            (superblock_at(superblock_place(next.generation)), void.encode_void())
        } else if offer.before.is_some() {
            (MARK_AT, encode_mark(checkpoint))
        } else {
            return Ok(Ok(()));
        };
        let span = opening_memory(BLOCK_BYTES)?.span(0, BLOCK_BYTES);
        span.write(&block[..]);
        let written = self.direct(file, Kind::Write, offset, span.into());
        Ok(written.and_then(|_| self.direct(file, Kind::SyncData, 0, SmallList::None)).map(drop))
    }

    fn find_superblocks(&mut self, file: FileId, path: &str) -> Result<Offer> {
        let places = [Place::A, Place::B];
        let mut blocks =
            self.read_blocks(file, &[superblock_at(Place::A), superblock_at(Place::B), MARK_AT])?;
        let mark = blocks.pop().and_then(Result::ok);
        let mark = mark.map_or(Err(NoSuperblock::Unreadable), |block| decode_mark(&block));
        let short = |block: &Block| matches!(block, Err(DeviceError::Short { .. }));
        let unusable = |reason| VolumeError::Unusable { file: path.to_owned(), reason };
        if blocks.iter().all(short) {
            return Err(unusable(Unusable::NotASegment));
        }
        let mut found = blocks.iter().zip(places).map(|(block, place)| match block {
            Ok(block) => Superblock::decode(block, place),
            Err(_) => Err(NoSuperblock::Unreadable),
        });
        let mut next = || found.next().unwrap_or(Err(NoSuperblock::Absent));
        Superblock::offer(next(), next(), mark).map_err(unusable)
    }

    /// Reads the page map from the root down; returns the pages it no longer describes.
    fn load_map(
        &mut self,
        file: FileId,
        pages: u64,
        root: Entry,
        named: &mut Named,
        table: &mut PageTable,
    ) -> Result<Vec<Range<u64>>> {
        let mut damaged = Vec::new();
        if let Some(top) = named.levels.last_mut() {
            top[0] = root;
        }
        for level in (0..named.levels.len()).rev() {
            let stored = |(block, entry): (usize, &Entry)| match *entry {
                Entry::Stored { place, checksum } => Some((block, place, checksum)),
                Entry::Zeros | Entry::Lost => None,
            };
            let blocks: Vec<_> = named.levels[level].iter().enumerate().filter_map(stored).collect();
            for some in blocks.chunks(OPENING_BYTES / BLOCK_BYTES) {
                let at = |&(block, place, _): &_| named.geometry.block_at(level, block as u64, place);
                let offsets: Vec<u64> = some.iter().map(at).collect();
                for (&(block, _, checksum), bytes) in some.iter().zip(self.read_blocks(file, &offsets)?) {
                    match bytes {
                        Ok(bytes) if checksum::of_bytes(&bytes[..]) == checksum => {
                            load_block(named, table, level, block, &bytes);
                        }
                        _ => named.levels[level][block] = Entry::Lost,
                    }
                }
            }
            for block in 0..named.levels[level].len() {
                if named.levels[level][block] != Entry::Lost {
                    continue;
                }
                if level == 0 {
                    table.lose_chunk(block);
                    let first = block as u64 * BLOCK_ENTRIES as u64;
                    damaged.push(first..pages.min(first + BLOCK_ENTRIES as u64));
                } else {
                    children(&mut named.levels[level - 1], block).fill(Entry::Lost);
                }
            }
        }
        // Pages that an earlier checkpoint has recorded as lost.
        let lost = |&page: &u64| table.entry(page) == Entry::Lost;
        damaged.extend(table.written_pages(pages).filter(lost).map(|page| page..page + 1));
        Ok(merge(damaged))
    }

    /// Reads every stored page, and marks those lost that do not match their checksum. For the rare fallback.
    fn check_pages(
        &mut self,
        file: FileId,
        &Superblock { pages, page_bytes, .. }: &Superblock,
        named: &Named,
        table: &mut PageTable,
    ) -> Result<Vec<Range<u64>>> {
        let page_bytes = page_bytes as usize;
        let many = (OPENING_BYTES / page_bytes).max(1);
        let memory = opening_memory(many * page_bytes)?;
        let mut stored = table.written_pages(pages).collect::<Vec<_>>();
        stored.retain(|&page| matches!(table.entry(page), Entry::Stored { .. }));
        let mut damaged = Vec::new();
        for some in stored.chunks(many) {
            let reads = some.iter().enumerate().filter_map(|(index, &page)| match table.entry(page) {
                Entry::Stored { place, .. } => {
                    Some((named.geometry.page_at(page, place), memory.span(index * page_bytes, page_bytes)))
                }
                _ => None,
            });
            let results = self.direct_all(file, Kind::Read, reads.collect())?;
            for (&page, (span, result)) in some.iter().zip(results) {
                let found = result.map(|_| checksum::of_span(&span));
                if !matches!((table.entry(page), found), (Entry::Stored { checksum, .. }, Ok(found)) if checksum == found)
                {
                    table.lose(page);
                    damaged.push(page..page + 1);
                }
            }
        }
        Ok(damaged)
    }

    fn read_blocks(&mut self, file: FileId, offsets: &[u64]) -> Result<Vec<Block>> {
        let memory = opening_memory(offsets.len() * BLOCK_BYTES)?;
        let span = |index| memory.span(index * BLOCK_BYTES, BLOCK_BYTES);
        let reads = offsets.iter().enumerate().map(|(index, &offset)| (offset, span(index))).collect();
        let copy = |(span, result): (Span, Result<u64, DeviceError>)| {
            let mut block = Box::new([0; BLOCK_BYTES]);
            span.read(&mut block[..]);
            result.map(|_| block)
        };
        Ok(self.direct_all(file, Kind::Read, reads)?.into_iter().map(copy).collect())
    }

    /// Does operations now, waiting for all of them; the results are in the order of the operations.
    fn direct_all(
        &mut self,
        file: FileId,
        kind: Kind,
        operations: Vec<(u64, Span)>,
    ) -> Result<Vec<(Span, Result<u64, DeviceError>)>> {
        let mut missing = std::collections::HashMap::new();
        let mut results = Vec::with_capacity(operations.len());
        for (index, (offset, span)) in operations.into_iter().enumerate() {
            let key = self.io.issue(Job::Direct, file, kind, offset, span.clone().into());
            missing.insert(key, index);
            results.push((span, Err(DeviceError::Closed)));
        }
        while !missing.is_empty() {
            self.advance()?;
            for (key, _, result) in std::mem::take(&mut self.io.direct) {
                if let Some(index) = missing.remove(&key) {
                    results[index].1 = result;
                }
            }
            if !missing.is_empty() {
                self.sleep()?;
            }
        }
        Ok(results)
    }

    /// Does one operation now.
    fn direct(&mut self, file: FileId, kind: Kind, offset: u64, spans: Spans) -> Result<u64, DeviceError> {
        let key = self.io.issue(Job::Direct, file, kind, offset, spans);
        loop {
            self.advance().map_err(|error| match error {
                VolumeError::Device(error) => error,
                _ => DeviceError::Closed,
            })?;
            if let Some(at) = self.io.direct.iter().position(|&(done, ..)| done == key) {
                return self.io.direct.swap_remove(at).2;
            }
            self.sleep()?;
        }
    }
}

fn load_block(
    named: &mut Named,
    table: &mut PageTable,
    level: usize,
    block: usize,
    bytes: &[u8; BLOCK_BYTES],
) {
    if level == 0 {
        table.load_chunk(block, decode_block(bytes));
    } else {
        let below = children(&mut named.levels[level - 1], block);
        below.iter_mut().zip(decode_block(bytes)).for_each(|(entry, found)| *entry = found);
    }
}

/// The entries of the level below that one block describes.
fn children(below: &mut [Entry], block: usize) -> &mut [Entry] {
    let (from, end) = (block * BLOCK_ENTRIES, below.len());
    &mut below[from..end.min(from + BLOCK_ENTRIES)]
}

/// Sorted, without overlaps, neighbours joined.
fn merge(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_by_key(|range| range.start);
    let mut merged: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

fn opening_memory(bytes: usize) -> Result<Arc<Mapping>> {
    private_memory(bytes).map_err(VolumeError::Device)
}

/// Memory for metadata on its way, aligned as direct I/O wants it.
pub(super) fn private_memory(bytes: usize) -> Result<Arc<Mapping>, DeviceError> {
    Mapping::anonymous("vgas-page-map", bytes as u64).map_err(|_| DeviceError::of(Errno::NOMEM, 0))
}

/// The error of a failed checkpoint.
pub(super) fn flush_error(
    file: String,
    segment: u32,
    step: &'static str,
    source: DeviceError,
) -> VolumeError {
    match source {
        DeviceError::NoSpace { .. } => {
            let what = "the page map".to_owned();
            VolumeError::NoSpace { file, segment, what, operation: PageOperation::Flush, source }
        }
        source => VolumeError::Flush { file, segment, step, source },
    }
}
