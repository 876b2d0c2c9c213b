//! Borrowing without waiting: [`DBox::get`].

use super::borrow::Ref;
use super::boxes::DBox;
use super::error::ObjectError;
use super::{Heap, OWN, heap};
use crate::portable::Shareable;
use crate::service::{Answer, HeapService, Read, Request};
use crate::shape::Shape;
use crate::word::Word;
use std::collections::VecDeque;
use std::fmt;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll};
use vgas::service::PendingCall;

/// What a message has beside an object's bytes, at most.
const REST_BYTES: usize = 64;

/// Parts of a large object that are in flight at a time.
const PARTS: usize = 8;

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
    /// Dropped, or forgotten, before it is ready, it has borrowed nothing: the bytes that come find nobody, and are nowhere kept. A copy
    /// is found by others only from when a live borrow has it.
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
    Coming(Coming),
    Over,
}

/// The bytes of an object that are on their way.
struct Coming {
    heap: &'static Heap,
    word: Word,
    found: Vec<u8>,
    bytes: usize,
    served: Option<u64>,
    /// Of what is in flight: the beginning; and the calls.
    parts: VecDeque<PendingCall<'static, Answer>>,
    asked: usize,
}

impl Drop for Coming {
    fn drop(&mut self) {
        // Where there are replicas nothing is dropped elsewhere.
        if !self.parts.is_empty() && !self.heap.has_replicas() {
            self.heap.drops.give_up(self.parts.drain(..));
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
    /// When it was ready already.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let at = self.at;
        self.go_on(context).map_err(|error| error.for_call(at))
    }
}

impl<'b, T: Shareable> Get<'b, T> {
    fn go_on(&mut self, context: &mut Context<'_>) -> Poll<Result<Ref<'b, T>, ObjectError>> {
        let (shape, word) = (const { &Shape::of::<T>() }, DBox::word(self.of));
        if let State::Asked = self.state {
            self.state = match Coming::begin(word, shape) {
                Ok(Some(coming)) => State::Coming(coming),
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
        let Poll::Ready(ended) = coming.poll(shape, context) else { return Poll::Pending };
        let State::Coming(coming) = std::mem::replace(&mut self.state, State::Over) else {
            return Poll::Pending;
        };
        Poll::Ready(ended.and_then(|is_whole| match is_whole {
            true => Ref::of_bytes(word, &coming.found),
            // The other way says why not.
            false => Ref::of(word),
        }))
    }
}

impl Coming {
    /// None: what is wanted is here.
    fn begin(word: Word, shape: &Shape) -> Result<Option<Self>, ObjectError> {
        let heap = heap()?;
        if OWN.offset_of(word.address()).is_some() || shape.bytes == 0 || heap.copies.has(word) {
            return Ok(None);
        }
        if heap.is_backed_up(heap.locate(word.address()).rank) {
            return Ok(None);
        }
        let served = heap.served_word(word, shape)?;
        let found = Vec::with_capacity(shape.bytes);
        let parts = VecDeque::new();
        Ok(Some(Self { heap, word, found, bytes: shape.bytes, served: Some(served), parts, asked: 0 }))
    }

    /// Ready when nothing is to come any more: whether all has come.
    fn poll(&mut self, shape: &Shape, context: &mut Context<'_>) -> Poll<Result<bool, ObjectError>> {
        let runtime = &self.heap.runtime;
        let at = self.heap.locate(self.word.address());
        let node = runtime.layout().node_of(at.rank);
        let most = runtime.medium_bytes_max().saturating_sub(REST_BYTES).max(1);
        loop {
            while self.parts.len() < PARTS && self.asked < self.bytes {
                let bytes = most.min(self.bytes - self.asked);
                let (owner, offset) = (at.rank.0, at.offset + self.asked as u64);
                // It has no place yet to which others could be handed on.
                let (bytes_asked, served) = (bytes as u32, self.served.take());
                let request = Request::Read(Read { owner, offset, bytes: bytes_asked, served, copy: None });
                match runtime.start_call::<HeapService>(node, &request) {
                    Err(_) if self.heap.is_backed_up(at.rank) => return Poll::Ready(Ok(false)),
                    Err(why) => return Poll::Ready(Err(self.heap.lost(self.word, shape, why))),
                    Ok(begun) => self.parts.push_back(begun),
                }
                self.asked += bytes;
            }
            let Some(first) = self.parts.front_mut() else { return Poll::Ready(Ok(true)) };
            let Poll::Ready(answer) = Pin::new(first).poll(context) else { return Poll::Pending };
            let expected = most.min(self.bytes - self.found.len());
            match answer {
                Ok(Answer::Bytes(bytes)) if bytes.0.len() == expected => self.found.extend(bytes.0),
                // The other way finds it at its backup.
                Err(_) if self.heap.is_backed_up(at.rank) => return Poll::Ready(Ok(false)),
                Ok(_) => return Poll::Ready(Ok(false)),
                Err(why) => return Poll::Ready(Err(self.heap.lost(self.word, shape, why.into()))),
            }
            self.parts.pop_front();
        }
    }
}
