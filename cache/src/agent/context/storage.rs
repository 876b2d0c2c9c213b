//! NVMe operations in flight: collected during a turn of the agent, issued in runs of neighbouring pages.

use super::NodeContext;
use super::part_reads::PartReads;
use crate::agent::items::StorageWork;
use crate::error::{CacheError, Failure, FailureKind};
use crate::page::PageIndex;
use crate::pool::{Counter, FrameId};
use rustix::io::Errno;
use smallvec::SmallVec;
use vgas_nvm::{PageDone, Volume, VolumeError};
use vgas_rma::address::NodeId;

/// Numbers for things in flight; freed numbers are used again.
#[derive(Debug)]
pub struct Keys<T> {
    slots: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Default for Keys<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Keys<T> {
    pub fn insert(&mut self, value: T) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[index] = Some(value);
        index as u64
    }

    /// Whether nothing is in flight.
    pub fn is_empty(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    pub fn remove(&mut self, key: u64) -> Option<T> {
        let value = self.slots.get_mut(key as usize)?.take()?;
        self.free.push(key as usize);
        Some(value)
    }
}

/// Writes the first failure of each kind to the log: a full disk fails every write-back and every attempt to repeat
/// one. What the errors of the ranks that need such a page say as well is not written.
#[derive(Debug, Default)]
pub struct FailureLog {
    told: Vec<FailureKind>,
}

impl FailureLog {
    pub fn tell(&mut self, failure: Failure, error: &VolumeError) {
        if failure.kind == FailureKind::NoSpace || self.told.contains(&failure.kind) {
            tracing::debug!(%error, "the NVMe has failed");
        } else {
            tracing::error!(%error, "the NVMe has failed");
            self.told.push(failure.kind);
        }
    }
}

/// An operation that waits for the end of the turn.
#[derive(Clone, Copy, Debug)]
pub struct Collected {
    page: PageIndex,
    frame: FrameId,
    work: StorageWork,
}

impl Collected {
    fn is_write(&self) -> bool {
        !matches!(self.work, StorageWork::Read(_))
    }
}

/// The node's NVMe and what is in flight at it.
pub struct Storage {
    pub volume: Volume,
    /// Parts of pages, for small gets.
    pub parts: PartReads,
    /// Work in flight; keys of the volume are indices.
    pub keys: Keys<StorageWork>,
    /// Reads and writes collected in this turn, to be issued in runs.
    collected: Vec<Collected>,
    pub done: Vec<PageDone>,
    pub failures: FailureLog,
}

impl Storage {
    pub fn new(volume: Volume, parts: PartReads) -> Self {
        let (keys, failures) = (Keys::default(), FailureLog::default());
        Self { volume, parts, keys, collected: Vec::new(), done: Vec::new(), failures }
    }
}

impl NodeContext {
    pub fn collect_read(&mut self, page: PageIndex, frame: FrameId) {
        self.collect(page, frame, StorageWork::Read(page));
    }

    pub fn collect_write(&mut self, page: PageIndex, frame: FrameId) {
        self.collect(page, frame, StorageWork::Write(page));
    }

    pub fn collect(&mut self, page: PageIndex, frame: FrameId, work: StorageWork) {
        let collected = Collected { page, frame, work };
        if collected.is_write() {
            self.storage.parts.overtake(page);
        }
        self.storage.collected.push(collected);
    }

    /// Issues what was collected; neighbouring pages become one operation of the device.
    pub fn issue_storage(&mut self) -> Result<(), CacheError> {
        if self.storage.collected.is_empty() {
            return Ok(());
        }
        let mut collected = std::mem::take(&mut self.storage.collected);
        collected.sort_unstable_by_key(|one| (one.is_write(), one.page));
        let mut rest = &collected[..];
        while let Some(first) = rest.first() {
            let Some(&partition) = self.segments.partitions.find(first.page) else {
                return Err(self.violation(self.node, format!("stores page {} of no segment", first.page)));
            };
            let neighbours = rest
                .iter()
                .zip(PageIndex::each(first.page..partition.range().end))
                .take_while(|(one, page)| one.is_write() == first.is_write() && one.page == *page)
                .count();
            let (run, others) = rest.split_at(neighbours);
            rest = others;
            let mut spans = SmallVec::<[_; 1]>::with_capacity(run.len());
            for one in run {
                spans.push((self.frame_span(one.frame)?, self.storage.keys.insert(one.work)));
            }
            let (file, in_file) = partition.stored_in(first.page);
            let (count, page_bytes) = (spans.len() as u64, u64::from(partition.size.bytes()));
            if first.is_write() {
                self.count(Counter::NvmWrites, count);
                self.count(Counter::NvmWriteBytes, count * page_bytes);
                self.storage.volume.write_run(file, in_file.0, spans)?;
            } else {
                self.count(Counter::NvmReads, count);
                self.count(Counter::NvmReadBytes, count * page_bytes);
                self.storage.volume.read_run(file, in_file.0, spans)?;
            }
        }
        collected.clear();
        self.storage.collected = collected;
        self.storage.volume.submit()?;
        Ok(())
    }
}

/// What a rank is told.
pub fn failure(error: &VolumeError, node: NodeId) -> Failure {
    match error {
        VolumeError::Corrupt { .. } | VolumeError::Lost { .. } => {
            Failure { kind: FailureKind::Corrupt, errno: None, node: Some(node) }
        }
        _ => failure_of(error.errno(), node),
    }
}

/// The same, of the system's number.
pub fn failure_of(errno: Option<Errno>, node: NodeId) -> Failure {
    let kind = match errno {
        Some(Errno::NOSPC | Errno::DQUOT) => FailureKind::NoSpace,
        _ => FailureKind::Device,
    };
    Failure { kind, errno, node: Some(node) }
}
