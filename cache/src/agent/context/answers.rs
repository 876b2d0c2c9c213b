//! Telling ranks that their operations have ended.

use super::NodeContext;
use crate::agent::items::Waiter;
use crate::error::{CacheError, Failure, PAGE_UNKNOWN};
use crate::page::PageIndex;
use crate::pool::{Completed, FrameId, PoolError};
use smallvec::SmallVec;
use std::time::Duration;
use vgas_rma::address::{Peer, Rank};

/// How long a waiter has to copy a page that was fetched for it before the page may be taken away again. Long against
/// a wake-up, short against a person.
const RESERVATION: Duration = Duration::from_millis(4);

/// What ranks are to be told.
#[derive(Debug, Default)]
pub struct Answers {
    /// Ranks whose operations ended in this turn.
    pub rings: Vec<Peer>,
    /// Parts of a rank's operation that have ended well, and that it has not been told of yet: it looks at its word while it
    /// waits, so that each time it is told costs both sides a transfer between their processors.
    untold: Option<(Waiter, u32)>,
}

impl NodeContext {
    /// Tells a waiter which page failed, and why.
    pub fn fail(&mut self, waiter: Waiter, page: PageIndex, failure: Failure) -> Result<(), CacheError> {
        let found = self.segments.partitions.find(page);
        let in_segment = found.and_then(|found| u32::try_from(page - found.first).ok());
        self.end(waiter, Err((failure, in_segment.unwrap_or(PAGE_UNKNOWN))))
    }

    pub fn complete(&mut self, waiter: Waiter, result: Result<(), Failure>) -> Result<(), CacheError> {
        self.end(waiter, result.map_err(|failure| (failure, PAGE_UNKNOWN)))
    }

    fn end(&mut self, waiter: Waiter, result: Result<(), (Failure, u32)>) -> Result<(), CacheError> {
        match (result, &mut self.answers.untold) {
            (Ok(()), Some((untold, parts))) if *untold == waiter => {
                *parts += 1;
                Ok(())
            }
            (Ok(()), _) => {
                self.tell()?;
                self.answers.untold = Some((waiter, 1));
                Ok(())
            }
            (Err((failure, detail)), _) => {
                self.tell()?;
                let Waiter { local_rank, wait } = waiter;
                let completed = self.pool.fail(local_rank, wait, 1, failure.code(), detail)?;
                self.told(local_rank, completed);
                Ok(())
            }
        }
    }

    /// Ends a waiter's operation well, with these bytes.
    pub fn answer(&mut self, waiter: Waiter, bytes: &[u8]) -> Result<(), CacheError> {
        self.pool.answer(waiter.local_rank, waiter.wait, bytes)?;
        self.complete(waiter, Ok(()))
    }

    /// From now on a waiter waits for so many pieces in place of one.
    pub fn split(&self, waiter: Waiter, pieces: u32) -> Result<(), PoolError> {
        self.pool.split_part(waiter.local_rank, waiter.wait, pieces)
    }

    /// Tells a rank what has ended well since it was told last. Nothing stays untold at the end of [`Agent::flush`](crate::agent::Agent::flush).
    pub fn tell(&mut self) -> Result<(), CacheError> {
        if let Some((Waiter { local_rank, wait }, parts)) = self.answers.untold.take() {
            let completed = self.pool.complete(local_rank, wait, parts)?;
            self.told(local_rank, completed);
        }
        Ok(())
    }

    fn told(&mut self, local_rank: u32, completed: Completed) {
        if let Completed::Entirely { .. } = completed {
            let rank = self.layout.ranks_of(self.node).start + local_rank;
            let peer = self.layout.peer_of_rank(Rank(rank));
            if !self.answers.rings.contains(&peer) {
                self.answers.rings.push(peer);
            }
        }
    }

    /// Tells those who wait for a page that they can use it, and keeps its frame for them.
    pub fn now_readable(&mut self, frame: FrameId, waiters: SmallVec<[Waiter; 2]>) -> Result<(), CacheError> {
        let deadline = self.time.now_ms + RESERVATION.as_millis() as u64;
        for waiter in waiters {
            self.pool.reserve(frame, deadline)?;
            self.complete(waiter, Ok(()))?;
        }
        Ok(())
    }
}
