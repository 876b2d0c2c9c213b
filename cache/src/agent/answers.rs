//! Telling ranks that their operations have ended.

use super::Agent;
use crate::error::{CacheError, Failure, PAGE_UNKNOWN};
use crate::page::PageIndex;
use crate::pool::{Completed, WaitId};
use vgas_rma::address::{Peer, Rank};

/// A rank's operation that waits for something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waiter {
    pub local_rank: u32,
    pub wait: WaitId,
}

/// What ranks are to be told.
#[derive(Debug, Default)]
pub(super) struct Answers {
    /// Ranks whose operations ended in this turn.
    pub rings: Vec<Peer>,
    /// Parts of a rank's operation that have ended well, and that it has not been told of yet: it looks at its word while it
    /// waits, so that each time it is told costs both sides a transfer between their processors.
    untold: Option<(Waiter, u32)>,
}

impl Agent {
    /// Tells a waiter which page failed, and why.
    pub(super) fn fail(
        &mut self,
        waiter: Waiter,
        page: PageIndex,
        failure: Failure,
    ) -> Result<(), CacheError> {
        let found = self.segments.partitions.find(page);
        let in_segment = found.and_then(|found| u32::try_from(page - found.first).ok());
        self.end(waiter, Err((failure, in_segment.unwrap_or(PAGE_UNKNOWN))))
    }

    pub(super) fn complete(&mut self, waiter: Waiter, result: Result<(), Failure>) -> Result<(), CacheError> {
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

    /// Tells a rank what has ended well since it was told last. Nothing stays untold at the end of [`Agent::flush`].
    pub(super) fn tell(&mut self) -> Result<(), CacheError> {
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
}
