//! A device in memory, for tests and simulation: every file has a live image (what reads see) and a durable one
//! (what a crash leaves), and the writes between the two are lost, kept or torn as the test decides.
//!
//! It is stricter than real devices: a sync saves only the writes that the promise of [`Kind::SyncData`] names, and
//! with a seed, operations take effect and complete late and in any order. Not for storing anything: it is slow and
//! holds each byte up to three times.

use super::whereabouts::Whereabouts;
use super::{Completion, Device, FileId, Kind, Limits, Naming, Operation, Submitted};
use crate::error::{DeviceError, FileError};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const BLOCK_BYTES: u64 = 4096;
/// Unit of atomic writes: a crash tears larger writes at multiples of it.
const SECTOR_BYTES: usize = 512;

/// Fate of unsynced writes at a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// All are lost.
    LoseUnsynced,
    /// All have reached the medium.
    KeepUnsynced,
    /// Each is lost, kept or torn into sectors, as this seed says.
    Random(u64),
}

/// The files behind one or more [`MemoryDevice`]s. Clones are the same disk; it outlives the devices, as a disk
/// outlives a process.
#[derive(Clone, Debug, Default)]
pub struct MemoryDisk {
    disk: Arc<Mutex<Disk>>,
}

#[derive(Debug, Default)]
struct Disk {
    files: BTreeMap<u32, Image>,
    names: BTreeMap<String, u32>,
    next_file: u32,
    next_write: u64,
    space_bytes: Option<u64>,
}

#[derive(Debug, Default)]
struct Image {
    bytes: u64,
    live: Blocks,
    durable: Blocks,
    unsynced: Vec<Unsynced>,
    open: bool,
}

#[derive(Debug)]
struct Unsynced {
    number: u64,
    offset: u64,
    change: Change,
    /// Its completion has been handed out, so that a sync submitted from now on saves it.
    taken: bool,
}

#[derive(Debug)]
enum Change {
    Bytes(Vec<u8>),
    Hole(u64),
}

/// Sparse bytes.
#[derive(Clone, Debug, Default)]
struct Blocks(BTreeMap<u64, Box<[u8; BLOCK_BYTES as usize]>>);

impl Blocks {
    /// Calls `visit(block, start in block, range in buffer)` for the blocks that the range touches.
    fn each(offset: u64, bytes: usize, mut visit: impl FnMut(u64, usize, std::ops::Range<usize>)) {
        let mut done = 0;
        while done < bytes {
            let (block, start) = ((offset + done as u64) / BLOCK_BYTES, (offset + done as u64) % BLOCK_BYTES);
            let some = (bytes - done).min((BLOCK_BYTES - start) as usize);
            visit(block, start as usize, done..done + some);
            done += some;
        }
    }

    fn read(&self, offset: u64, to: &mut [u8]) {
        Self::each(offset, to.len(), |block, start, range| match self.0.get(&block) {
            Some(bytes) => to[range.clone()].copy_from_slice(&bytes[start..start + range.len()]),
            None => to[range].fill(0),
        });
    }

    fn write(&mut self, offset: u64, from: &[u8]) {
        Self::each(offset, from.len(), |block, start, range| {
            let bytes = self.0.entry(block).or_insert_with(|| Box::new([0; BLOCK_BYTES as usize]));
            bytes[start..start + range.len()].copy_from_slice(&from[range]);
        });
    }

    fn punch(&mut self, offset: u64, bytes: u64) {
        Self::each(offset, bytes as usize, |block, start, range| {
            if range.len() == BLOCK_BYTES as usize {
                self.0.remove(&block);
            } else if let Some(bytes) = self.0.get_mut(&block) {
                bytes[start..start + range.len()].fill(0);
            }
        });
    }

    fn apply(&mut self, offset: u64, change: &Change) {
        match change {
            Change::Bytes(bytes) => self.write(offset, bytes),
            Change::Hole(bytes) => self.punch(offset, *bytes),
        }
    }
}

impl MemoryDisk {
    /// An empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// Limits the bytes that all files together may occupy; writes beyond fail with [`DeviceError::NoSpace`].
    pub fn limit_space(&self, bytes: u64) {
        self.lock().space_bytes = Some(bytes);
    }

    /// Bytes that the files occupy; holes count nothing.
    pub fn used_bytes(&self) -> u64 {
        self.lock().used_bytes()
    }

    /// Power off, power on: unsynced data suffers `crash`, unnamed files are gone, locks are dropped. Devices
    /// that were open before must not be used any more.
    pub fn crash(&self, crash: Crash) {
        let mut random = match crash {
            Crash::Random(seed) => Random(seed),
            _ => Random(0),
        };
        let disk = &mut *self.lock();
        let named: BTreeSet<u32> = disk.names.values().copied().collect();
        disk.files.retain(|file, _| named.contains(file));
        for image in disk.files.values_mut() {
            for write in std::mem::take(&mut image.unsynced) {
                let fate = match crash {
                    Crash::LoseUnsynced => 0,
                    Crash::KeepUnsynced => 1,
                    Crash::Random(_) => random.below(3),
                };
                match (fate, &write.change) {
                    (0, _) => {}
                    (2, Change::Bytes(bytes)) => {
                        for (index, sector) in bytes.chunks(SECTOR_BYTES).enumerate() {
                            if random.below(2) == 0 {
                                image.durable.write(write.offset + (index * SECTOR_BYTES) as u64, sector);
                            }
                        }
                    }
                    (_, change) => image.durable.apply(write.offset, change),
                }
            }
            image.live = image.durable.clone();
            image.open = false;
        }
    }

    /// A copy of the disk as it is now, to crash one and keep the other.
    pub fn fork(&self) -> Self {
        let disk = self.lock();
        let files = disk.files.iter().map(|(&file, image)| (file, image.fork())).collect();
        let copy =
            Disk { files, names: disk.names.clone(), space_bytes: disk.space_bytes, ..Disk::default() };
        let copy = Disk { next_file: disk.next_file, next_write: disk.next_write, ..copy };
        Self { disk: Arc::new(Mutex::new(copy)) }
    }

    /// Changes the bytes of a named file behind everyone's back. Returns false when there is no such file.
    pub fn tamper(&self, name: &str, offset: u64, change: impl FnOnce(&mut [u8; SECTOR_BYTES])) -> bool {
        let disk = &mut *self.lock();
        let Some(image) = disk.names.get(name).and_then(|file| disk.files.get_mut(file)) else {
            return false;
        };
        let mut sector = [0; SECTOR_BYTES];
        image.live.read(offset, &mut sector);
        change(&mut sector);
        image.live.write(offset, &sector);
        image.durable.write(offset, &sector);
        true
    }

    /// Cuts or lengthens a named file behind everyone's back. Returns false when there is no such file.
    pub fn set_file_bytes(&self, name: &str, bytes: u64) -> bool {
        let disk = &mut *self.lock();
        let Some(image) = disk.names.get(name).and_then(|file| disk.files.get_mut(file)) else {
            return false;
        };
        image.bytes = bytes;
        true
    }

    /// Puts a file of these bytes there, as a stranger would.
    pub fn plant(&self, name: &str, bytes: &[u8]) {
        let disk = &mut *self.lock();
        let mut image = Image { bytes: bytes.len() as u64, ..Image::default() };
        image.live.write(0, bytes);
        image.durable.write(0, bytes);
        disk.next_file += 1;
        disk.files.insert(disk.next_file, image);
        disk.names.insert(name.to_owned(), disk.next_file);
    }

    fn lock(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Image {
    fn fork(&self) -> Self {
        let unsynced = self.unsynced.iter().map(|write| Unsynced {
            change: match &write.change {
                Change::Bytes(bytes) => Change::Bytes(bytes.clone()),
                Change::Hole(bytes) => Change::Hole(*bytes),
            },
            ..*write
        });
        let unsynced = unsynced.collect();
        Self {
            bytes: self.bytes,
            live: self.live.clone(),
            durable: self.durable.clone(),
            unsynced,
            open: self.open,
        }
    }
}

impl Disk {
    fn used_bytes(&self) -> u64 {
        self.files.values().map(|image| image.live.0.len() as u64 * BLOCK_BYTES).sum()
    }

    /// Does one operation; the numbers name the writes that a sync must save, or the write that was done.
    fn execute(&mut self, waiting: &Waiting) -> (Result<u64, DeviceError>, Option<u64>) {
        let Operation { file, kind, offset, spans, .. } = &waiting.operation;
        let (number, space, used) = (self.next_write, self.space_bytes, self.used_bytes());
        let Some(image) = self.files.get_mut(&file.0) else { return (Err(DeviceError::Closed), None) };
        let change = match kind {
            Kind::Read => {
                let mut at = *offset;
                for span in spans.as_slice() {
                    let mut bytes = vec![0; span.bytes().min(image.bytes.saturating_sub(at) as usize)];
                    image.live.read(at, &mut bytes);
                    span.mapping().write(span.offset(), &bytes);
                    at += bytes.len() as u64;
                }
                let (bytes_done, bytes_asked) = (at - offset, waiting.operation.bytes());
                let whole = bytes_done == bytes_asked;
                let result =
                    if whole { Ok(bytes_done) } else { Err(DeviceError::Short { bytes_done, bytes_asked }) };
                return (result, None);
            }
            Kind::SyncData => {
                let Image { durable, unsynced, .. } = image;
                unsynced.retain(|write| {
                    let saved = waiting.saves.contains(&write.number);
                    if saved {
                        durable.apply(write.offset, &write.change);
                    }
                    !saved
                });
                return (Ok(0), None);
            }
            Kind::Write => {
                let mut bytes = vec![0; waiting.operation.bytes() as usize];
                let mut at = 0;
                for span in spans.as_slice() {
                    span.read(&mut bytes[at..at + span.bytes()]);
                    at += span.bytes();
                }
                let (first, last) =
                    (*offset / BLOCK_BYTES, (*offset + bytes.len() as u64).div_ceil(BLOCK_BYTES));
                let present = image.live.0.range(first..last).count() as u64;
                if space.is_some_and(|space| used + (last - first - present) * BLOCK_BYTES > space) {
                    return (Err(DeviceError::of(Errno::NOSPC, 0)), None);
                }
                Change::Bytes(bytes)
            }
            Kind::PunchHole { bytes } => Change::Hole(*bytes),
        };
        image.live.apply(*offset, &change);
        let bytes = match &change {
            Change::Bytes(bytes) => bytes.len() as u64,
            Change::Hole(bytes) => *bytes,
        };
        image.bytes = image.bytes.max(if *kind == Kind::Write { offset + bytes } else { 0 });
        image.unsynced.push(Unsynced { number, offset: *offset, change, taken: false });
        self.next_write += 1;
        (Ok(bytes), Some(number))
    }
}

/// A device over a [`MemoryDisk`].
pub struct MemoryDevice {
    disk: MemoryDisk,
    pending: Vec<Waiting>,
    capacity: usize,
    /// With it, operations take effect and complete late and out of order.
    disorder: Option<Random>,
    /// Never readable: work happens in `poll` only, and `arm` refuses while there is some.
    descriptor: OwnedFd,
    opened: BTreeSet<u32>,
}

struct Waiting {
    operation: Operation,
    /// For a sync: the writes it must save.
    saves: BTreeSet<u64>,
}

impl MemoryDevice {
    /// Opens the disk; with `capacity` operations in flight at most, done in order.
    pub fn new(disk: &MemoryDisk, capacity: usize) -> Result<Self, DeviceError> {
        let descriptor = eventfd(0, EventfdFlags::CLOEXEC).map_err(|errno| DeviceError::of(errno, 0))?;
        let (pending, opened) = (Vec::new(), BTreeSet::new());
        Ok(Self {
            disk: disk.clone(),
            pending,
            capacity: capacity.max(1),
            disorder: None,
            descriptor,
            opened,
        })
    }

    /// The same, but operations take effect and complete late and in an order drawn from the seed.
    pub fn disordered(disk: &MemoryDisk, capacity: usize, seed: u64) -> Result<Self, DeviceError> {
        let mut device = Self::new(disk, capacity)?;
        device.disorder = Some(Random(seed));
        Ok(device)
    }

    fn complete(&mut self, index: usize, completions: &mut Vec<Completion>) {
        let waiting = self.pending.remove(index);
        let mut disk = self.disk.lock();
        let (result, written) = disk.execute(&waiting);
        let Operation { key, file, spans, .. } = waiting.operation;
        if let (Some(number), Some(image)) = (written, disk.files.get_mut(&file.0)) {
            image
                .unsynced
                .iter_mut()
                .filter(|write| write.number == number)
                .for_each(|write| write.taken = true);
        }
        completions.push(Completion { key, spans, result });
    }
}

impl Drop for MemoryDevice {
    fn drop(&mut self) {
        for file in std::mem::take(&mut self.opened) {
            self.close(FileId(file));
        }
    }
}

impl Device for MemoryDevice {
    fn name(&self) -> &str {
        "memory"
    }

    fn limits(&self) -> Limits {
        Limits { alignment: SECTOR_BYTES as u64, spans_max: 64, run_bytes_max: 1 << 20 }
    }

    fn capacity(&self) -> usize {
        self.capacity
    }

    fn in_flight(&self) -> usize {
        self.pending.len()
    }

    fn create(&mut self, bytes: u64, _naming: Naming) -> Result<FileId, FileError> {
        let disk = &mut *self.disk.lock();
        disk.next_file += 1;
        disk.files.insert(disk.next_file, Image { bytes, open: true, ..Image::default() });
        self.opened.insert(disk.next_file);
        Ok(FileId(disk.next_file))
    }

    fn publish(&mut self, file: FileId, name: &str) -> Result<(), FileError> {
        let disk = &mut *self.disk.lock();
        if disk.names.contains_key(name) {
            return Err(FileError::Exists { path: name.into() });
        }
        disk.names.insert(name.to_owned(), file.0);
        Ok(())
    }

    fn open(&mut self, name: &str) -> Result<Option<FileId>, FileError> {
        let disk = &mut *self.disk.lock();
        let Some(&file) = disk.names.get(name) else { return Ok(None) };
        match disk.files.get_mut(&file) {
            Some(image) if !image.open => image.open = true,
            _ => return Err(FileError::InUse { path: name.into() }),
        }
        self.opened.insert(file);
        Ok(Some(FileId(file)))
    }

    fn file_bytes(&self, file: FileId) -> Result<u64, FileError> {
        let error = || FileError::System { what: "measure", path: PathBuf::new(), errno: Errno::BADF };
        self.disk.lock().files.get(&file.0).map(|image| image.bytes).ok_or_else(error)
    }

    fn share(&self, file: FileId) -> Option<Whereabouts> {
        Some(Whereabouts { process: 0, descriptor: file.0, device: 0, inode: 0, places: [0; 2] })
    }

    fn adopt(&mut self, at: &Whereabouts) -> io::Result<(FileId, Option<Arc<OwnedFd>>)> {
        Ok((FileId(at.descriptor), None))
    }

    fn describe(&self, file: FileId) -> String {
        let disk = self.disk.lock();
        let name = disk.names.iter().find(|&(_, &named)| named == file.0);
        name.map_or_else(|| "memory".to_owned(), |(name, _)| name.clone())
    }

    fn close(&mut self, file: FileId) {
        self.opened.remove(&file.0);
        let disk = &mut *self.disk.lock();
        if disk.names.values().any(|&named| named == file.0) {
            disk.files.entry(file.0).and_modify(|image| image.open = false);
        } else {
            disk.files.remove(&file.0);
        }
    }

    fn submit(&mut self, operation: Operation) -> Submitted {
        if self.pending.len() == self.capacity {
            return Submitted::Busy(operation);
        }
        let mut saves = BTreeSet::new();
        if let (Kind::SyncData, Some(image)) = (operation.kind, self.disk.lock().files.get(&operation.file.0))
        {
            saves.extend(image.unsynced.iter().filter(|write| write.taken).map(|write| write.number));
        }
        self.pending.push(Waiting { operation, saves });
        Submitted::Accepted
    }

    fn flush_submissions(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) -> Result<usize, DeviceError> {
        let before = completions.len();
        let alignment = self.limits().alignment;
        if let Some(index) = self.pending.iter().position(|waiting| !waiting.operation.aligned_to(alignment))
        {
            let Operation { key, spans, .. } = self.pending.remove(index).operation;
            completions.push(Completion { key, spans, result: Err(DeviceError::Misaligned { alignment }) });
        }
        let some = match &mut self.disorder {
            None => self.pending.len(),
            Some(random) => random.below(self.pending.len() as u64 + 1) as usize,
        };
        for _ in 0..some {
            let index = match &mut self.disorder {
                None => 0,
                Some(random) => random.below(self.pending.len() as u64) as usize,
            };
            self.complete(index, completions);
        }
        Ok(completions.len() - before)
    }

    fn wait_descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    fn arm(&mut self) -> bool {
        self.pending.is_empty()
    }

    fn disarm(&mut self) {}
}

/// A small generator (SplitMix64): the same sequence for the same seed on every machine.
#[derive(Clone, Debug)]
pub(super) struct Random(pub(super) u64);

impl Random {
    /// A number below `bound`, or 0 when the bound is 0.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound.max(1)
    }
}
