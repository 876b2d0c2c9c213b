//! Operations in flight, as their callers have them.

use super::Collectives;
use super::near::NearOperation;
use super::operation::Operation;
use super::team_call::OwnedBlocks;
use crate::error::{Result, RmaError};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// An operation that was not done when it was started.
pub enum InFlight {
    /// On the board.
    Board(Arc<NearOperation>),
    /// By messages.
    Messages(Arc<Operation>),
}

impl InFlight {
    /// Returns how it has ended on this rank; none while it has not. Complete means that this rank's results
    /// are there, and its own bytes have left; other members may not have all of theirs. No view that it was
    /// given is used any more.
    ///
    /// # Errors
    /// [`RmaError::Collective`] when its team is spoilt, [`RmaError::PeerLost`] when a node is lost.
    pub fn outcome(&self) -> Option<Result<()>> {
        match self {
            Self::Board(operation) => operation.outcome(),
            Self::Messages(operation) => operation.outcome(),
        }
    }

    /// Waits until it is done; messages are delivered meanwhile. Not in handlers.
    ///
    /// # Errors
    /// As [`InFlight::outcome`], the error with which the endpoint has failed, and [`RmaError::Usage`] in a function that combines.
    pub fn wait(&self, engine: &Collectives) -> Result<()> {
        match self {
            Self::Board(operation) => operation.wait(),
            Self::Messages(operation) => {
                engine.endpoint.wait_until(None, || {
                    engine.progress();
                    operation.is_done()
                })?;
                operation.outcome().unwrap_or(Ok(()))
            }
        }
    }
}

/// An operation that owns its memory; also a future of its result, for any executor. Dropped, the operation
/// proceeds.
#[must_use = "its result is there only after a wait"]
pub struct Started {
    engine: Arc<Collectives>,
    /// None: it was done at once.
    in_flight: Option<InFlight>,
    owned: Arc<OwnedBlocks>,
    is_taken: bool,
}

impl Started {
    pub(super) fn new(
        engine: Arc<Collectives>,
        in_flight: Option<InFlight>,
        owned: Arc<OwnedBlocks>,
    ) -> Self {
        Self { engine, in_flight, owned, is_taken: false }
    }

    fn outcome(&self) -> Option<Result<()>> {
        self.in_flight.as_ref().map_or(Some(Ok(())), InFlight::outcome)
    }

    /// Returns the result, once: none while it is not there. Proceeds as far as possible without waiting.
    ///
    /// # Errors
    /// [`RmaError::Collective`] when the team is spoilt; [`RmaError::PeerLost`] when a node is lost; the error with which the endpoint
    /// has failed; [`RmaError::Usage`] for a result that was taken before.
    pub fn test(&mut self) -> Result<Option<Vec<u8>>> {
        if self.outcome().is_none() {
            self.engine.endpoint.poll()?;
            self.engine.progress();
        }
        self.take().transpose()
    }

    /// Waits for the result; messages are delivered meanwhile. Not in handlers.
    ///
    /// # Errors
    /// As [`Started::test`].
    pub fn wait(mut self) -> Result<Vec<u8>> {
        if let Some(in_flight) = &self.in_flight {
            in_flight.wait(&self.engine)?;
        }
        self.take().unwrap_or_else(|| Err(RmaError::Usage("a collective has ended without a result".into())))
    }

    fn take(&mut self) -> Option<Result<Vec<u8>>> {
        let ended = self.outcome()?;
        Some(ended.and_then(|()| match std::mem::replace(&mut self.is_taken, true) {
            false => Ok(self.owned.take()),
            true => Err(RmaError::Usage("the result of a collective was taken before".into())),
        }))
    }
}

impl Future for Started {
    type Output = Result<Vec<u8>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // First, so that an end or a failure finds the waker, or is found here.
        match &self.in_flight {
            Some(InFlight::Board(operation)) => operation.set_waker(context.waker()),
            Some(InFlight::Messages(operation)) => operation.set_waker(context.waker()),
            None => {}
        }
        match (self.take(), self.engine.endpoint.check_failure()) {
            (Some(result), _) => Poll::Ready(result),
            (None, Err(error)) => Poll::Ready(Err(error)),
            (None, Ok(())) => Poll::Pending,
        }
    }
}

impl std::fmt::Debug for Started {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Started").field("is_done", &self.outcome().is_some()).finish_non_exhaustive()
    }
}
