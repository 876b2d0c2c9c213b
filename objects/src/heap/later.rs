//! Borrowing without waiting: [`DBox::get`].

use super::borrow::Ref;
use super::boxes::DBox;
use super::error::ObjectError;
use super::fetch::Fetch;
use super::{Heap, OWN, heap};
use crate::portable::Shareable;
use crate::shape::Shape;
use crate::word::Word;
use std::fmt;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

impl<T: Shareable> DBox<T> {
    /// Borrows the object for reading without waiting for it: a future that any executor may poll. As [`DBox::try_read`] otherwise. Nothing
    /// is asked for before it is polled.
    ///
    /// It is woken when the bytes have come, by whatever thread takes them in: one that polls or waits in the job, a worker that has nothing to
    /// do, or else a thread of the endpoint, within a millisecond. Many may be awaited at a time: their messages travel together.
    ///
    /// ```no_run
    /// # use vgas_objects::{DBox, ObjectError};
    /// async fn both(first: &DBox<u64>, second: &DBox<u64>) -> Result<u64, ObjectError> {
    ///     Ok(*first.get().await? + *second.get().await?)
    /// }
    /// ```
    ///
    /// If dropped or forgotten before it is ready, it has borrowed nothing, and the bytes that arrive are
    /// discarded. Other threads find a copy only once a live borrow has it.
    #[track_caller]
    pub fn get(&self) -> Get<'_, T> {
        Get { of: self, state: State::Asked, at: Location::caller() }
    }
}

/// The future of [`DBox::get`].
#[must_use = "a future does nothing unless it is polled"]
pub struct Get<'b, T: Shareable> {
    of: &'b DBox<T>,
    state: State,
    /// The call that wants it.
    at: &'static Location<'static>,
}

enum State {
    /// Nothing was done yet.
    Asked,
    Coming(Box<PendingFetch>),
    Over,
}

/// A fetch that may be given up.
struct PendingFetch(&'static Heap, Fetch<'static>);

impl Drop for PendingFetch {
    fn drop(&mut self) {
        // In a heap with replicas nothing is dropped elsewhere.
        if !self.0.has_replicas() {
            self.0.drops.give_up(self.1.take_calls());
        }
    }
}

impl<T: Shareable> fmt::Debug for Get<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Get({:?})", self.of)
    }
}

impl<'b, T: Shareable> Future for Get<'b, T> {
    type Output = Result<Ref<'b, T>, ObjectError>;

    /// # Panics
    /// If it was ready already.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let at = self.at;
        self.go_on(context).map_err(|error| error.for_call(at))
    }
}

impl<'b, T: Shareable> Get<'b, T> {
    fn go_on(&mut self, context: &mut Context<'_>) -> Poll<Result<Ref<'b, T>, ObjectError>> {
        let (shape, word) = (const { &Shape::of::<T>() }, DBox::word(self.of));
        if let State::Asked = self.state {
            self.state = match PendingFetch::begin(word, shape) {
                Ok(Some(coming)) => State::Coming(Box::new(coming)),
                Ok(None) => State::Over,
                Err(why) => {
                    self.state = State::Over;
                    return Poll::Ready(Err(why));
                }
            };
            if let State::Over = self.state {
                // It is here.
                return Poll::Ready(Ref::of(word));
            }
        }
        let State::Coming(coming) = &mut self.state else {
            panic!("an object was borrowed, and is polled again")
        };
        let found = ready!(coming.1.poll(context));
        self.state = State::Over;
        Poll::Ready(found.and_then(|found| match found {
            Some(found) => Ref::of_bytes(word, &found),
            None => Ref::of(word),
        }))
    }
}

impl PendingFetch {
    /// Begins a fetch; none if the object is here, or is read at its backup.
    fn begin(word: Word, shape: &'static Shape) -> Result<Option<Self>, ObjectError> {
        let heap = heap()?;
        let is_here = OWN.offset_of(word.address()).is_some() || shape.bytes == 0 || heap.copies.has(word);
        if is_here || heap.is_backed_up(heap.locate(word.address()).rank) {
            return Ok(None);
        }
        let served = heap.served_word(word, shape)?;
        // No copy yet that other readers could be forwarded to.
        Ok(Some(Self(heap, Fetch::new(heap, word, shape, Some(served), None))))
    }
}
