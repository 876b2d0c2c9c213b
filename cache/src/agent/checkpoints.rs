//! Checkpoints of segments: the cached pages of one are brought to NVMe, wherever they are, and the volume makes it durable.
//!
//! The first shard conducts them. Each other shard cleans its pages, and counts as one page.

use super::controller::CacheController;
use super::items::{CheckpointPurpose, ShardMessage, StorageWork, Waiter};
use crate::error::{CacheError, Failure};
use crate::page::PageIndex;
use std::collections::VecDeque;
use std::ops::Range;
use vgas_nvm::Companion;

/// A checkpoint in progress.
#[derive(Debug)]
struct Checkpoint {
    segment: u32,
    /// None: the first shard.
    waiter: Option<Waiter>,
    purpose: CheckpointPurpose,
    /// Pages whose cached content is still to be stored.
    pages: u64,
    /// The first failure.
    failed: Option<Failure>,
}

/// The checkpoints in progress.
#[derive(Debug, Default)]
pub(super) struct Checkpoints {
    in_progress: Vec<Checkpoint>,
    /// Checkpoints of segments of which one is in progress: a page that is being stored for that one may have been
    /// written since.
    queued: VecDeque<(u32, Waiter, CheckpointPurpose)>,
    /// Steps of the job's checkpoint in progress at the volume.
    steps: usize,
}

impl Checkpoints {
    /// How many wait for the end of another, or for the volume.
    pub(super) fn waiting(&self) -> usize {
        self.queued.len() + self.steps
    }

    /// Makes durable what anybody has written to the rank's segment and told: first the cached pages reach NVMe, wherever
    /// they are, then the volume makes a checkpoint.
    pub(super) fn checkpoint(
        &mut self,
        cache: &mut CacheController,
        segment: u32,
        waiter: Waiter,
        purpose: CheckpointPurpose,
    ) -> Result<(), CacheError> {
        let Some(pages) = cache.ctx.partition_in(segment).map(|found| found.range()) else {
            return cache.ctx.complete(waiter, Ok(()));
        };
        if self.in_progress.iter().any(|one| one.segment == segment) {
            self.queued.push_back((segment, waiter, purpose));
            return Ok(());
        }
        // What fails from here on fails for a page, and says so by itself.
        cache.ctx.segments.complaints.remove(&segment);
        // The other shards each count as a page.
        let others = cache.ctx.shards.count() - 1;
        (1..=others).for_each(|shard| cache.ctx.shards.tell(shard, ShardMessage::Clean(segment)));
        let checkpoint =
            Checkpoint { segment, waiter: Some(waiter), purpose, pages: others.into(), failed: None };
        self.clean_pages(cache, checkpoint, pages)
    }

    /// Does this shard's part of a checkpoint for the first one.
    pub(super) fn clean_part(&mut self, cache: &mut CacheController, segment: u32) -> Result<(), CacheError> {
        let pages = cache.ctx.partition_in(segment).map(|found| found.range()).unwrap_or_default();
        let checkpoint =
            Checkpoint { segment, waiter: None, purpose: CheckpointPurpose::Part, pages: 0, failed: None };
        self.clean_pages(cache, checkpoint, pages)
    }

    fn clean_pages(
        &mut self,
        cache: &mut CacheController,
        checkpoint: Checkpoint,
        pages: Range<PageIndex>,
    ) -> Result<(), CacheError> {
        let segment = checkpoint.segment;
        let known = cache.known_pages(pages);
        // One more than there are pages, so that it does not end before the last one was asked for.
        self.in_progress.push(Checkpoint { pages: checkpoint.pages + 1, ..checkpoint });
        for page in known {
            if let Some(checkpoint) = self.in_progress.iter_mut().find(|one| one.segment == segment) {
                checkpoint.pages += 1;
            }
            if !cache.clean(page)? {
                self.part_cleaned(cache, segment, Ok(()))?;
            }
        }
        self.part_cleaned(cache, segment, Ok(()))
    }

    /// A page of a segment, or another shard's part of it, is on NVMe, or cannot be.
    pub(super) fn part_cleaned(
        &mut self,
        cache: &mut CacheController,
        segment: u32,
        result: Result<(), Failure>,
    ) -> Result<(), CacheError> {
        let Some(checkpoint) = self.in_progress.iter_mut().find(|one| one.segment == segment) else {
            return Ok(());
        };
        checkpoint.pages -= 1;
        checkpoint.failed = checkpoint.failed.or(result.err());
        if checkpoint.pages > 0 {
            return Ok(());
        }
        if let Some(failure) = checkpoint.failed {
            return self.flushed(cache, segment, Err(failure));
        }
        if checkpoint.purpose != CheckpointPurpose::Flush {
            return self.flushed(cache, segment, Ok(()));
        }
        let key = cache.ctx.storage.keys.insert(StorageWork::Flush(segment));
        // Writes that were collected in this turn come before the flush.
        cache.ctx.issue_storage()?;
        cache.ctx.storage.volume.flush(segment, key)?;
        Ok(())
    }

    pub(super) fn flushed(
        &mut self,
        cache: &mut CacheController,
        segment: u32,
        result: Result<(), Failure>,
    ) -> Result<(), CacheError> {
        let Some(at) = self.in_progress.iter().position(|one| one.segment == segment) else {
            return Ok(());
        };
        let checkpoint = self.in_progress.remove(at);
        match checkpoint.waiter {
            Some(waiter) => cache.ctx.complete(waiter, result)?,
            None => cache.ctx.shards.tell(0, ShardMessage::Cleaned(segment, result.err())),
        }
        let next = self.queued.iter().position(|(queued, ..)| *queued == segment);
        match next.and_then(|next| self.queued.remove(next)) {
            Some((segment, waiter, purpose)) => self.checkpoint(cache, segment, waiter, purpose),
            None => Ok(()),
        }
    }

    /// Makes what is on NVMe of the rank's segment a checkpoint beside the last one.
    pub(super) fn prepare(
        &mut self,
        cache: &mut CacheController,
        segment: u32,
        identity: u64,
        companions: Vec<Companion>,
        waiter: Waiter,
    ) -> Result<(), CacheError> {
        if cache.ctx.partition_in(segment).is_none() {
            return cache.ctx.complete(waiter, Ok(()));
        }
        self.steps += 1;
        let key = cache.ctx.storage.keys.insert(StorageWork::Step(segment, waiter));
        // Writes that were collected in this turn come before the checkpoint.
        cache.ctx.issue_storage()?;
        cache.ctx.storage.volume.prepare(segment, identity, companions, key)?;
        Ok(())
    }

    /// Makes the prepared checkpoint the last one, or gives it up.
    pub(super) fn conclude(
        &mut self,
        cache: &mut CacheController,
        segment: u32,
        commit: bool,
        waiter: Waiter,
    ) -> Result<(), CacheError> {
        if cache.ctx.partition_in(segment).is_none() {
            return cache.ctx.complete(waiter, Ok(()));
        }
        self.steps += 1;
        let key = cache.ctx.storage.keys.insert(StorageWork::Step(segment, waiter));
        cache.ctx.storage.volume.conclude(segment, commit, key)?;
        Ok(())
    }

    pub(super) fn step_done(
        &mut self,
        cache: &mut CacheController,
        waiter: Waiter,
        result: Result<(), Failure>,
    ) -> Result<(), CacheError> {
        self.steps -= 1;
        cache.ctx.complete(waiter, result)
    }
}
