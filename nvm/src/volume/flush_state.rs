//! The state of a checkpoint that is being made. [`flush`](super::flush) takes its steps.

use crate::error::DeviceError;
use crate::format::{CheckpointId, Companion, Entry};
use crate::page_table::CHUNK_PAGES;
use std::collections::{BTreeSet, VecDeque};

/// A checkpoint asked for.
#[derive(Clone, Debug)]
pub(super) struct FlushRequest {
    pub(super) key: u64,
    /// Identity of the job's checkpoint, to be prepared; none for a flush of this segment alone, which
    /// concludes itself.
    pub(super) identity: Option<u64>,
    /// The other named segments that take part in it.
    pub(super) companions: Vec<Companion>,
}

/// A checkpoint being made.
pub(super) struct Flush {
    /// Key of the waiting request; none while it is prepared.
    pub(super) key: Option<u64>,
    /// The checkpoint being made.
    pub(super) checkpoint: CheckpointId,
    /// True if it is of this segment alone.
    pub(super) alone: bool,
    pub(super) companions: Vec<Companion>,
    pub(super) step: Step,
    /// The chunks it covers.
    pub(super) chunks: BTreeSet<usize>,
    /// Map blocks to write: level, block. A block stands behind all blocks that it describes.
    pub(super) todo: VecDeque<(usize, usize)>,
    /// Earlier entries of the map: level, block, entry.
    pub(super) undo: Vec<(usize, usize, Entry)>,
    /// The first chunk whose block has not been encoded: from there on, pages must stay as the checkpoint has them.
    pub(super) encoded_up_to: usize,
    pub(super) in_flight: usize,
    pub(super) failed: Option<DeviceError>,
}

/// The step that a checkpoint has come to; [`flush`](super::flush) has their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Drain,
    Map,
    Sync,
    Superblock,
    SyncSuperblock,
    Prepared,
    Mark,
    SyncMark,
    Void,
    SyncVoid,
}

impl Step {
    /// Returns the step in the words of an error.
    pub(super) fn describe(self) -> &'static str {
        match self {
            Self::Drain => "waiting for writes",
            Self::Map => "writing the page map",
            Self::Sync => "syncing pages and page map",
            Self::Superblock => "writing the superblock",
            Self::SyncSuperblock => "syncing the superblock",
            Self::Prepared => "waiting for the other ranks",
            Self::Mark => "marking the checkpoint as complete",
            Self::SyncMark => "syncing the mark of the checkpoint",
            Self::Void | Self::SyncVoid => "giving the checkpoint up",
        }
    }
}

impl Flush {
    /// The first step of a checkpoint of this generation.
    pub(super) fn new(wanted: FlushRequest, generation: u64) -> Self {
        Self {
            key: Some(wanted.key),
            checkpoint: CheckpointId { generation, identity: wanted.identity.unwrap_or(0) },
            alone: wanted.identity.is_none(),
            companions: wanted.companions,
            step: Step::Drain,
            chunks: BTreeSet::new(),
            todo: VecDeque::new(),
            undo: Vec::new(),
            encoded_up_to: 0,
            in_flight: 0,
            failed: None,
        }
    }

    /// Returns true if a request waits for its next step.
    pub(super) fn is_asked_for(&self) -> bool {
        self.key.is_some()
    }

    /// Returns true if a write of this page must wait for the checkpoint.
    pub(super) fn must_hold(&self, page: u64) -> bool {
        let chunk = (page / CHUNK_PAGES as u64) as usize;
        self.step == Step::Drain || (chunk >= self.encoded_up_to && self.chunks.contains(&chunk))
    }
}
