//! An operation that goes on by itself, as who waits for it has it.

use super::Collectives;
use super::operation::Operation;
use crate::endpoint::lock;
use crate::error::{Result, RmaError};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

/// The operation's result, when it is there; also a future, which any executor may poll. Dropped, the operation goes on, and its
/// result is nobody's: it owns what it needs.
#[must_use = "its result is there only after a wait"]
pub struct Started<T> {
    engine: Arc<Collectives>,
    operation: Arc<Operation>,
    result: Arc<Mutex<Option<T>>>,
}

impl<T> Started<T> {
    pub(super) fn new(
        engine: Arc<Collectives>,
        operation: Arc<Operation>,
        result: Arc<Mutex<Option<T>>>,
    ) -> Self {
        Self { engine, operation, result }
    }

    /// The result, once: None while it is not there. Goes on as far as possible without waiting.
    ///
    /// # Errors
    /// [`RmaError::Collective`] when the team is spoilt; [`RmaError::PeerLost`] when a node is lost; the error with which the endpoint
    /// has failed; [`RmaError::Usage`] for a result that was taken before.
    pub fn test(&mut self) -> Result<Option<T>> {
        if !self.operation.is_done() {
            self.engine.endpoint.poll()?;
            self.engine.progress();
        }
        self.take().transpose()
    }

    /// Waits for the result; messages are delivered meanwhile. Not in handlers.
    ///
    /// # Errors
    /// As [`Started::test`].
    pub fn wait(self) -> Result<T> {
        self.engine.endpoint.wait_until(None, || {
            self.engine.progress();
            self.operation.is_done()
        })?;
        self.take().unwrap_or_else(|| Err(taken()))
    }

    fn take(&self) -> Option<Result<T>> {
        let ended = self.operation.outcome()?;
        Some(ended.and_then(|()| lock(&self.result).take().ok_or_else(taken)))
    }
}

fn taken() -> RmaError {
    RmaError::Usage("the result of a collective was taken before".into())
}

impl<T> Future for Started<T> {
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // First, so that whoever ends it, or fails, finds whom to wake, or is found to have done so.
        self.operation.set_waker(context.waker());
        match (self.take(), self.engine.endpoint.check_failure()) {
            (Some(result), _) => Poll::Ready(result),
            (None, Err(error)) => Poll::Ready(Err(error)),
            (None, Ok(())) => Poll::Pending,
        }
    }
}

impl<T> std::fmt::Debug for Started<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Started").field("is_done", &self.operation.is_done()).finish_non_exhaustive()
    }
}
