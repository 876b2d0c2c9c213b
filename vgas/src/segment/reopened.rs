//! The state in which a job has found its named segments.

use vgas_cache::request::Named;
use vgas_nvm::{CheckpointId, Companion};

/// The last checkpoint of a named segment that the job has open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AtCheckpoint {
    pub name: String,
    pub checkpoint: CheckpointId,
    /// The other segments that took part in it.
    pub companions: Vec<Companion>,
}

/// The ranks' common view of a named segment.
#[derive(Clone, Debug)]
pub(super) struct Common {
    /// The checkpoint that it is opened at; none when no rank can have any.
    pub checkpoint: Option<CheckpointId>,
    pub companions: Vec<Companion>,
    pub newest: u64,
    pub relation: Relation,
    /// This rank reports it, if a newer one is given up.
    pub tells: bool,
}

impl Common {
    /// Returns the checkpoint for this rank's agent to open.
    pub fn named(&self, name: Option<&String>) -> Option<Named> {
        let &Self { checkpoint, tells, .. } = self;
        name.map(|name| Named { name: name.clone(), checkpoint, tells })
    }

    /// The checkpoint that the segment is at from now on.
    pub fn at(&self, name: &str) -> AtCheckpoint {
        let checkpoint = self.checkpoint.unwrap_or_default();
        AtCheckpoint { name: name.to_owned(), checkpoint, companions: self.companions.clone() }
    }

    /// Returns the report for the program; none if it is created now, and nothing is missing.
    pub fn reopened(&self, is_read_only: bool) -> Option<Reopened> {
        let checkpoint = self.checkpoint?.generation;
        let is_together = self.relation == Relation::Together;
        let is_found = self.newest > 0 || self.relation == Relation::Mixed;
        is_found.then_some(Reopened { checkpoint, newest: self.newest, is_read_only, is_together })
    }
}

/// Relation of a segment's checkpoint to those of the named segments that were attached before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Relation {
    /// They were made together, or the segment is younger than all of them.
    Together,
    /// Jobs have made checkpoints of some without the others. None is known to have had more in common.
    Apart,
    /// One of them was made together with a newer checkpoint of another than that one has now.
    Mixed,
}

/// The state in which a job has found its named segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reopened {
    /// The checkpoint that the segment was opened at: the newest that is whole on all ranks. They are counted from 1; 0 is
    /// the segment as it was created, all zeros.
    pub checkpoint: u64,
    /// The newest checkpoint that any rank has found whole in its file. It is newer than the other when the job that made it
    /// was ended before all ranks had it; it is given up then, and its number used again.
    pub newest: u64,
    /// Nothing can be written to some rank's part: gets work there, puts and checkpoints fail with the
    /// reason. If the disk is full, puts succeed as long as the cache has room for them.
    pub is_read_only: bool,
    /// The segment is of one checkpoint with all named segments that were attached before it, or was created after theirs. False
    /// if a job has made checkpoints of some without the others, and, with `segment.mixed_checkpoints`, if some were removed
    /// or replaced by an older copy; `checkpoint` and `newest` are 0 then of one that was removed.
    pub is_together: bool,
}

impl Reopened {
    /// Returns true if nothing newer was found anywhere.
    pub fn is_newest(&self) -> bool {
        self.checkpoint == self.newest
    }
}
