//! Conduits around a conduit: they watch, count, lose or delay what passes through another one, whatever that is.
//!
//! * [`Hooked`] is a conduit with a [`Hook`], which sees everything that is sent and everything that arrives, and may
//!   refuse it, or send otherwise what was to be sent: later, again, or not at all, as the saboteur of the cache's simulation does.
//!   [`Count`] counts messages and bytes per peer; [`Trace`] tells of each; [`Loss`] drops peers and fails sends.
//! * [`Delay`] delivers later, as a link of some latency and bandwidth would, or the [`Switch`] of a virtual cluster.
//!
//! They can be put around each other; [`Stack`] does it from a line of text, for the jobs of people. All
//! abilities of the inner conduit are passed on (one-sided access, loans, offers, mapped regions, atomic
//! updates); the compiler's lint refuses a wrapper that forgets one, which would otherwise answer with the
//! trait's "no". No hook has a thread: late messages are delivered by polls, and wake sleeping threads
//! through the descriptor.

#![forbid(unsafe_code)]

mod count;
pub(super) mod delay;
mod kept;
mod loss;
mod stack;
mod switch;
mod trace;
mod unit;

pub use count::{Count, PeerCounts};
pub use delay::{Delay, Link};
pub use kept::Kept;
pub use loss::Loss;
pub use stack::{Stack, StackError, Stacked};
pub use switch::{Cable, Switch};
pub use trace::Trace;

use super::{Capabilities, Conduit, Loan, Part, Place, Sent, Traffic};
use crate::address::{Peer, RegionId};
use crate::error::Result;
use crate::message::{Arrived, Delivery, Destination, Direction, Message, Payload, Sink, Source};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use vgas_shm::alarm::either;
use vgas_shm::{Atomic, Mapping, Span};

/// Kind of a passage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A message for this handler.
    Message(Direction, u8),
    /// A one-sided put, or a part of one.
    Put,
    /// A one-sided get, or a part of one.
    Get,
    /// An atomic update.
    Atomic,
}

/// Something that goes to a peer or has come from one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passage {
    /// The other side.
    pub peer: Peer,
    /// Its kind.
    pub kind: Kind,
    /// Bytes of its payload, without arguments.
    pub bytes: usize,
}

/// Sees what passes. Called by any thread; must not block.
pub trait Hook: Send + Sync {
    /// Before something goes to a peer, each time that is tried. [`Sent::Busy`]: not now; the inner conduit is not asked, and
    /// [`Hook::is_quiet`] must be false until the next poll.
    ///
    /// # Errors
    /// The error for the sender.
    fn admit(&self, _passage: &Passage) -> Result<Sent> {
        Ok(Sent::Accepted)
    }

    /// Sends an admitted message; `lent`: the memory of its payload, which stays until it is given back.
    /// None: no room now.
    ///
    /// # Errors
    /// The error for the sender.
    fn send(
        &self,
        inner: &dyn Conduit,
        to: Peer,
        message: &Message<'_>,
        lent: Option<&Span>,
    ) -> Result<Option<Loan>> {
        match lent {
            Some(lent) => inner.try_send_lent(to, message, lent),
            None => Ok((inner.try_send(to, message)? == Sent::Accepted).then_some(Loan::NONE)),
        }
    }

    /// The inner conduit, or [`Hook::send`], has accepted it.
    fn sent(&self, _passage: &Passage) {}

    /// A message has come. False: it is not delivered.
    fn arrives(&self, _passage: &Passage) -> bool {
        true
    }

    /// A part of a one-sided operation is complete.
    fn completed(&self, _server: Peer, _operation: u64) {}

    /// Before each poll of the inner conduit. Returns what the poll counts beside the messages: 1 when a message that was busy may have room now.
    ///
    /// # Errors
    /// The error of the poll.
    fn polls(&self, _inner: &dyn Conduit) -> Result<usize> {
        Ok(0)
    }

    /// Returns true if the hook permits sleeping.
    fn is_quiet(&self) -> bool {
        true
    }

    /// Returns a descriptor that becomes readable when [`Hook::is_quiet`] becomes false while a thread
    /// sleeps; always the same.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// A conduit whose traffic a hook sees.
pub struct Hooked<H> {
    inner: Arc<dyn Conduit>,
    hook: Arc<H>,
    /// Poll descriptor of the inner conduit and the hook, if the hook has a descriptor.
    both: Option<OwnedFd>,
}

impl<H: Hook> Hooked<H> {
    /// Puts a hook around a conduit.
    ///
    /// # Errors
    /// If the system refuses descriptors.
    pub fn new(inner: Arc<dyn Conduit>, hook: Arc<H>) -> Result<Self> {
        let both = hook.descriptor().map(|own| either([inner.wait_descriptor(), own])).transpose()?;
        Ok(Self { inner, hook, both })
    }

    /// One attempt: `send` does it, and says whether it was accepted.
    fn attempt<T>(&self, passage: Passage, busy: T, send: impl FnOnce() -> Result<(T, bool)>) -> Result<T> {
        if self.hook.admit(&passage)? == Sent::Busy {
            return Ok(busy);
        }
        let (answer, is_accepted) = send()?;
        if is_accepted {
            self.hook.sent(&passage);
        }
        Ok(answer)
    }

    fn start(
        &self,
        peer: Peer,
        kind: Kind,
        bytes: usize,
        start: impl FnOnce() -> Result<Sent>,
    ) -> Result<Sent> {
        let start = || start().map(|sent| (sent, sent == Sent::Accepted));
        self.attempt(Passage { peer, kind, bytes }, Sent::Busy, start)
    }

    /// Returns true if the hook permits sleeping, once the inner conduit is armed.
    fn stays_armed(&self) -> bool {
        let is_quiet = self.hook.is_quiet();
        if !is_quiet {
            self.inner.disarm();
        }
        is_quiet
    }
}

/// A message as it passes.
fn passage_of(to: Peer, message: &Message<'_>) -> Passage {
    let bytes = match message.payload {
        Payload::Short => 0,
        Payload::Medium(source) | Payload::Long(source, _) => source.bytes(),
    };
    Passage { peer: to, kind: Kind::Message(message.direction, message.handler), bytes }
}

#[deny(clippy::missing_trait_methods)]
impl<H: Hook> Conduit for Hooked<H> {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn reaches(&self, to: Peer) -> bool {
        self.inner.reaches(to)
    }

    fn try_send(&self, to: Peer, message: &Message<'_>) -> Result<Sent> {
        self.attempt(passage_of(to, message), Sent::Busy, || {
            let loan = self.hook.send(&*self.inner, to, message, None)?;
            Ok(loan.map_or((Sent::Busy, false), |_| (Sent::Accepted, true)))
        })
    }

    fn try_send_lent(&self, to: Peer, message: &Message<'_>, lent: &Span) -> Result<Option<Loan>> {
        self.attempt(passage_of(to, message), None, || {
            self.hook.send(&*self.inner, to, message, Some(lent)).map(|loan| (loan, loan.is_some()))
        })
    }

    fn is_returned(&self, to: Peer, loan: Loan) -> bool {
        self.inner.is_returned(to, loan)
    }

    fn offer(&self, region: RegionId, memory: Span) {
        self.inner.offer(region, memory);
    }

    fn forget(&self, owner: Peer, region: RegionId) {
        self.inner.forget(owner, region);
    }

    fn start_put(
        &self,
        server: Peer,
        place: Place,
        from: Source<'_>,
        stays: bool,
        operation: u64,
    ) -> Result<Sent> {
        let start = || self.inner.start_put(server, place, from, stays, operation);
        self.start(server, Kind::Put, from.bytes(), start)
    }

    fn start_get(&self, server: Peer, place: Place, part: Part) -> Result<Sent> {
        self.start(server, Kind::Get, part.bytes, || self.inner.start_get(server, place, part))
    }

    fn start_atomic(&self, server: Peer, place: Place, atomic: Atomic, operation: u64) -> Result<Sent> {
        let start = || self.inner.start_atomic(server, place, atomic, operation);
        self.start(server, Kind::Atomic, size_of::<u64>(), start)
    }

    fn poll(&self, sink: &dyn Sink, traffic: Traffic) -> Result<usize> {
        let more = self.hook.polls(&*self.inner)?;
        Ok(more + self.inner.poll(&Watching { sink, hook: &*self.hook }, traffic)?)
    }

    fn flush(&self) -> Result<()> {
        self.inner.flush()
    }

    fn has_unsent(&self) -> bool {
        self.inner.has_unsent()
    }

    fn wait_descriptor(&self) -> BorrowedFd<'_> {
        self.both.as_ref().map_or_else(|| self.inner.wait_descriptor(), AsFd::as_fd)
    }

    fn arm(&self) -> bool {
        self.inner.arm() && self.stays_armed()
    }

    fn arm_briefly(&self) -> bool {
        self.inner.arm_briefly() && self.stays_armed()
    }

    fn disarm(&self) {
        self.inner.disarm();
    }

    fn map(&self, owner: Peer, region: RegionId) -> Result<Option<Arc<Mapping>>> {
        self.inner.map(owner, region)
    }

    fn close(&self, timeout: Duration) {
        self.inner.close(timeout);
    }
}

/// The endpoint, with a hook before it.
pub(super) struct Watching<'a> {
    sink: &'a dyn Sink,
    hook: &'a dyn Hook,
}

#[deny(clippy::missing_trait_methods)]
impl Sink for Watching<'_> {
    fn destination(&self, from: Peer, destination: Destination, bytes: usize) -> Result<*mut u8> {
        self.sink.destination(from, destination, bytes)
    }

    fn is_gone(&self, peer: Peer) -> bool {
        self.sink.is_gone(peer)
    }

    fn region(&self, from: Peer, owner: Peer, region: RegionId) -> Option<Span> {
        self.sink.region(from, owner, region)
    }

    fn completed(&self, server: Peer, operation: u64) -> Result<()> {
        self.hook.completed(server, operation);
        self.sink.completed(server, operation)
    }

    fn deliver(&self, delivery: Delivery<'_>) -> Result<()> {
        let bytes = match delivery.payload {
            Arrived::Short => 0,
            Arrived::Medium(bytes) => bytes.len(),
            Arrived::Long(_, bytes) => bytes,
        };
        let kind = Kind::Message(delivery.direction, delivery.handler);
        let passes = self.hook.arrives(&Passage { peer: delivery.from, kind, bytes });
        if passes { self.sink.deliver(delivery) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests;
