//! A device with scripted misfortune, around any other device. For tests.
//!
//! The [`Script`] is shared: a test keeps a clone, plans faults while the device is in use, and reads the
//! counters. Not for a disk's changes between crash and restart; that is [`super::memory`]'s.

use super::Whereabouts;
use super::memory::Random;
use super::{Completion, Device, FileId, Kind, Lent, Limits, Naming, Operation, Spans, Submitted};
use crate::error::{DeviceError, FileError};
use rustix::io::Errno;
use std::collections::HashMap;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use vgas_shm::{Mapping, Span};

/// The failure of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing is moved; the operation fails with this error ([`Errno::NOSPC`] becomes [`DeviceError::NoSpace`]).
    Error(Errno),
    /// Only this many bytes are moved, and the operation reports it.
    ShortTransfer(u64),
    /// Only this many bytes are moved, and the operation reports all.
    Torn(u64),
    /// All bytes are moved, with this bit of them the other way round.
    FlipBit(u64),
    /// From this operation on nothing happens any more: everything in flight or submitted later fails with
    /// [`DeviceError::Closed`], as if the process had been killed.
    Stop,
}

/// Selects the operation that a fault hits. Operations are counted from 1 as they are submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// The n-th of any kind.
    Operation(u64),
    /// The n-th read.
    Read(u64),
    /// The n-th write.
    Write(u64),
    /// The n-th sync.
    Sync(u64),
}

/// Counts of submitted operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Operations of any kind.
    pub operations: u64,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Syncs.
    pub syncs: u64,
}

/// Faults and their times; shared between the device and the test.
#[derive(Clone, Debug, Default)]
pub struct Script {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    planned: Vec<(When, Fault)>,
    /// Chance of EIO or a short transfer, per thousand operations.
    random: Option<(Random, u64)>,
    counts: Counts,
}

impl Script {
    /// Nothing goes wrong.
    pub fn new() -> Self {
        Self::default()
    }

    /// Plans one fault.
    pub fn plan(&self, when: When, fault: Fault) -> &Self {
        self.lock().planned.push((when, fault));
        self
    }

    /// Lets reads and writes fail or fall short at random, `per_mille` of them, as the seed decides.
    pub fn random(&self, seed: u64, per_mille: u64) -> &Self {
        self.lock().random = Some((Random(seed), per_mille));
        self
    }

    /// Returns the counts of submitted operations.
    pub fn counts(&self) -> Counts {
        self.lock().counts
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts an operation and returns its fault.
    fn next(&self, operation: &Operation) -> Option<Fault> {
        let state = &mut *self.lock();
        let counts = &mut state.counts;
        counts.operations += 1;
        match operation.kind {
            Kind::Read => counts.reads += 1,
            Kind::Write => counts.writes += 1,
            Kind::SyncData => counts.syncs += 1,
            Kind::PunchHole { .. } => {}
        }
        let hit = |when: When| match (when, operation.kind) {
            (When::Operation(n), _) => n == counts.operations,
            (When::Read(n), Kind::Read) => n == counts.reads,
            (When::Write(n), Kind::Write) => n == counts.writes,
            (When::Sync(n), Kind::SyncData) => n == counts.syncs,
            _ => false,
        };
        if let Some(at) = state.planned.iter().position(|&(when, _)| hit(when)) {
            return Some(state.planned.remove(at).1);
        }
        let (random, per_mille) = state.random.as_mut()?;
        if matches!(operation.kind, Kind::SyncData | Kind::PunchHole { .. })
            || random.below(1000) >= *per_mille
        {
            return None;
        }
        Some(match random.below(2) {
            0 => Fault::Error(Errno::IO),
            _ => Fault::ShortTransfer(random.below(operation.bytes())),
        })
    }
}

/// A device whose operations fail as a [`Script`] says.
pub struct FaultyDevice {
    device: Box<dyn Device>,
    script: Script,
    name: String,
    /// By the key that the inner device sees.
    in_flight: HashMap<u64, InFlight>,
    next_key: u64,
    /// Failed without reaching the inner device.
    failed: Vec<Completion>,
    stopped: bool,
}

struct InFlight {
    key: u64,
    kind: Kind,
    /// The memory that the owner of the operation gets back.
    spans: Spans,
    bytes: u64,
    fault: Option<Fault>,
}

impl FaultyDevice {
    /// Wraps a device.
    pub fn new(device: Box<dyn Device>, script: &Script) -> Self {
        let name = format!("faulty {}", device.name());
        let in_flight = HashMap::new();
        Self {
            device,
            script: script.clone(),
            name,
            in_flight,
            next_key: 0,
            failed: Vec::new(),
            stopped: false,
        }
    }

    fn fail(&mut self, operation: Operation, error: DeviceError) -> Submitted {
        self.failed.push(Completion { key: operation.key, spans: operation.spans, result: Err(error) });
        Submitted::Accepted
    }

    fn forward(&mut self, operation: Operation, fault: Option<Fault>) -> Submitted {
        let Operation { key, kind, ref spans, .. } = operation;
        let entry = InFlight { key, kind, spans: spans.clone(), bytes: operation.bytes(), fault };
        let mut inner = Operation { key: self.next_key, ..operation };
        match fault {
            Some(Fault::ShortTransfer(bytes) | Fault::Torn(bytes)) => {
                inner.spans = beginning(&inner.spans, bytes, self.device.limits().alignment);
            }
            Some(Fault::FlipBit(bit)) if inner.kind == Kind::Write => match flipped(&inner.spans, bit) {
                Some(spans) => inner.spans = spans,
                None => return self.fail(inner, DeviceError::of(Errno::NOMEM, 0)),
            },
            _ => {}
        }
        match self.device.submit(inner) {
            Submitted::Accepted => {
                self.in_flight.insert(self.next_key, entry);
                self.next_key += 1;
                Submitted::Accepted
            }
            Submitted::Busy(operation) => {
                Submitted::Busy(Operation { key: entry.key, spans: entry.spans, ..operation })
            }
        }
    }
}

/// Returns the first bytes of the memory, rounded down to a multiple of the device's unit.
fn beginning(spans: &Spans, bytes: u64, alignment: u64) -> Spans {
    let mut left = bytes / alignment * alignment;
    let part = |span: &Span| {
        let some = left.min(span.bytes() as u64);
        left -= some;
        (some > 0).then(|| span.mapping().span(span.offset(), some as usize))
    };
    spans.as_slice().iter().filter_map(part).collect()
}

/// A copy of the memory with one bit the other way round.
fn flipped(spans: &Spans, bit: u64) -> Option<Spans> {
    let bytes = spans.as_slice().iter().map(Span::bytes).sum::<usize>();
    let copy = Mapping::anonymous("flipped", bytes as u64).ok()?;
    let mut at = 0;
    for span in spans.as_slice() {
        let mut bytes = vec![0; span.bytes()];
        span.read(&mut bytes);
        copy.write(at, &bytes);
        at += bytes.len();
    }
    flip(&copy.span(0, bytes), bit);
    Some(copy.span(0, bytes).into())
}

fn flip(span: &Span, bit: u64) {
    let at = span.offset() + (bit / 8) as usize % span.bytes();
    let mut byte = [0];
    span.mapping().read(at, &mut byte);
    span.mapping().write(at, &[byte[0] ^ 1 << (bit % 8)]);
}

impl Device for FaultyDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn limits(&self) -> Limits {
        self.device.limits()
    }

    fn capacity(&self) -> usize {
        self.device.capacity()
    }

    fn in_flight(&self) -> usize {
        self.in_flight.len() + self.failed.len()
    }

    fn create(&mut self, bytes: u64, naming: Naming) -> Result<FileId, FileError> {
        self.device.create(bytes, naming)
    }

    fn publish(&mut self, file: FileId, name: &str) -> Result<(), FileError> {
        if self.stopped {
            return Err(FileError::System { what: "create", path: name.into(), errno: Errno::IO });
        }
        self.device.publish(file, name)
    }

    fn open(&mut self, name: &str) -> Result<Option<FileId>, FileError> {
        self.device.open(name)
    }

    fn file_bytes(&self, file: FileId) -> Result<u64, FileError> {
        self.device.file_bytes(file)
    }

    fn read_only(&self, file: FileId) -> Option<Errno> {
        self.device.read_only(file)
    }

    fn share(&self, file: FileId) -> Option<Whereabouts> {
        self.device.share(file)
    }

    fn lend(&self, file: FileId) -> Option<Lent> {
        self.device.lend(file)
    }

    fn join(&mut self, file: FileId, lent: Lent) -> Result<(), FileError> {
        self.device.join(file, lent)
    }

    fn adopt(&mut self, at: &Whereabouts) -> io::Result<(FileId, Option<Arc<OwnedFd>>)> {
        self.device.adopt(at)
    }

    fn full(&self) -> Option<Errno> {
        self.device.full()
    }

    fn clear(&mut self, file: FileId, from: u64) {
        self.device.clear(file, from);
    }

    fn describe(&self, file: FileId) -> String {
        self.device.describe(file)
    }

    fn close(&mut self, file: FileId) {
        self.device.close(file);
    }

    fn submit(&mut self, operation: Operation) -> Submitted {
        if self.in_flight() >= self.capacity() {
            return Submitted::Busy(operation);
        }
        if self.stopped {
            return self.fail(operation, DeviceError::Closed);
        }
        match self.script.next(&operation) {
            Some(Fault::Stop) => {
                self.stopped = true;
                for (_, InFlight { key, spans, .. }) in self.in_flight.drain() {
                    self.failed.push(Completion { key, spans, result: Err(DeviceError::Closed) });
                }
                self.fail(operation, DeviceError::Closed)
            }
            Some(Fault::Error(errno)) => self.fail(operation, DeviceError::of(errno, 0)),
            fault => self.forward(operation, fault),
        }
    }

    fn flush_submissions(&mut self) -> Result<(), DeviceError> {
        if self.stopped { Ok(()) } else { self.device.flush_submissions() }
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) -> Result<usize, DeviceError> {
        let before = completions.len();
        completions.append(&mut self.failed);
        if self.stopped {
            return Ok(completions.len() - before);
        }
        let mut inner = Vec::new();
        self.device.poll(&mut inner)?;
        for Completion { key, result, .. } in inner {
            let Some(InFlight { key, kind, spans, bytes: bytes_asked, fault }) = self.in_flight.remove(&key)
            else {
                continue;
            };
            let result = match (fault, result) {
                (Some(Fault::ShortTransfer(_)), Ok(bytes_done)) => {
                    Err(DeviceError::Short { bytes_done, bytes_asked })
                }
                (Some(Fault::Torn(_)), Ok(_)) => Ok(bytes_asked),
                (Some(Fault::FlipBit(bit)), Ok(bytes)) => {
                    // For a write, the copy had the flipped bit.
                    if let (Kind::Read, [span, ..]) = (kind, spans.as_slice()) {
                        flip(span, bit);
                    }
                    Ok(bytes)
                }
                (_, result) => result,
            };
            completions.push(Completion { key, spans, result });
        }
        Ok(completions.len() - before)
    }

    fn wait_descriptor(&self) -> BorrowedFd<'_> {
        self.device.wait_descriptor()
    }

    fn arm(&mut self) -> bool {
        self.failed.is_empty() && !self.stopped && self.device.arm()
    }

    fn disarm(&mut self) {
        self.device.disarm();
    }
}
