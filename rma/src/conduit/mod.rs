//! The seam between endpoints and transports.
//!
//! A conduit moves active messages between the peers it reaches. That is all it must do: puts, gets, barriers
//! and collectives have reference versions on top of active messages ([`crate::endpoint`]); a conduit that
//! can do better declares that in its [`Capabilities`] and overrides them.
//!
//! Beside the conduits, a folder or file each: [`factory`] knows them by name; [`wire`] has the bytes that those over a
//! network speak, `oneside` registered memory for those that let a device read and write by itself, `owned` messages that
//! wait; [`hook`] puts something around any of them; [`conformance`] tests all of them.
//!
//! # Promises of every conduit (each has a test in `conformance`)
//!
//! * *Order.* Messages from one peer to another arrive in the order in which they were accepted, requests among
//!   requests and replies among replies and, for a single sending thread, all of them together unless
//!   [`Capabilities::ordered`] is false. The coherence protocol relies on it (`vgas-cache`).
//! * *Once.* An accepted message is delivered exactly once, or the peer is reported lost.
//! * *Payload first.* The bytes of a long message are in place before its handler runs.
//! * *Replies never wait for requests.* See [`crate::message::Direction::Reply`].
//! * *Source.* When `try_send` has returned [`Sent::Accepted`], the payload's source may be reused.

pub mod conformance;
pub mod factory;
pub mod hook;
pub mod ibv;
pub mod interfaces;
pub mod ofi;
mod oneside;
pub(crate) mod owned;
pub mod sim;
pub mod smp;
pub mod tcp;
mod trusted;
mod turn;
pub mod wire;

pub use trusted::Trusted;

use crate::address::{Peer, RegionId};
use crate::error::{Result, RmaError};
use crate::message::{Message, Sink, Source};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;
use vgas_shm::{Atomic, Mapping, Span};

/// Capabilities of a conduit, as data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Most payload bytes of a medium message.
    pub medium_bytes_max: usize,
    /// Most payload bytes of a long message.
    pub long_bytes_max: usize,
    /// True if a request and a reply to the same peer keep their order.
    pub ordered: bool,
    /// True if [`crate::message::Destination::Operation`] is supported; otherwise the endpoint answers gets
    /// in medium messages.
    pub long_to_operation: bool,
    /// True if regions of its peers can be mapped and then read and written by plain copies.
    pub load_store: bool,
    /// True if [`Conduit::start_put`] and [`Conduit::start_get`] reach the segments that a peer owns or
    /// serves.
    pub one_sided: bool,
    /// True if [`Conduit::start_atomic`] does. Then all atomic updates of the job must go this way (see
    /// `endpoint::atomic`).
    pub atomics: bool,
    /// True if a [`Conduit::poll`] that finds nothing has asked the kernel, as far as is known: waiting
    /// threads then poll less often.
    pub polls_through_kernel: bool,
}

/// A place in a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Owner of the region.
    pub owner: Peer,
    /// The region.
    pub region: RegionId,
    /// First byte.
    pub offset: u64,
}

/// A part of the memory of a get, on the side that asks.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// The get's number, for the [`Sink`].
    pub operation: u64,
    /// First byte of the part in the get's memory.
    pub at: u64,
    /// Length.
    pub bytes: usize,
    /// Address of the part. A conduit writes there only through memory that it was offered
    /// ([`Conduit::offer`]); otherwise it asks [`Sink::destination`] once the bytes have come.
    pub here: *mut u8,
}

/// Memory that was lent to a conduit with [`Conduit::try_send_lent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loan(pub(crate) u64);

impl Loan {
    /// Given back before it was taken: the bytes were copied.
    pub const NONE: Loan = Loan(0);
}

/// The answer to an attempt to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Sent {
    /// Taken; the source may be reused (a put whose source stays: when it is complete).
    Accepted,
    /// No room or credit now. Nothing was sent; poll (so that the peer's answers are taken in), then try again.
    Busy,
}

/// Messages that a poll may deliver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// Requests and replies.
    Everything,
    /// Only replies: inside a handler that waits for room, where running further requests could recurse for ever.
    RepliesOnly,
    /// Only what is for handlers below this index. If another message is the next of its source, it stays,
    /// and so may those behind it; it counts as not taken in, so that its sender feels the back-pressure.
    Below(u8),
}

impl Traffic {
    /// Returns true if requests are delivered at all.
    #[inline]
    pub fn has_requests(self) -> bool {
        !matches!(self, Self::RepliesOnly)
    }

    /// Returns true if messages for this handler are delivered.
    #[inline]
    pub fn admits(self, handler: u8) -> bool {
        match self {
            Self::Below(limit) => handler < limit,
            Self::Everything | Self::RepliesOnly => true,
        }
    }
}

/// A transport. All methods may be called from any thread.
pub trait Conduit: Trusted + Send + Sync {
    /// Its name, as written after `--conduit`.
    fn name(&self) -> &'static str;

    /// Returns the conduit's capabilities.
    fn capabilities(&self) -> &Capabilities;

    /// Returns true if it can carry messages to this peer.
    fn reaches(&self, to: Peer) -> bool;

    /// Sends one message, if there is room for it.
    fn try_send(&self, to: Peer, message: &Message<'_>) -> Result<Sent>;

    /// As [`Conduit::try_send`] of a long payload, which is all of `lent`, except that its bytes stay
    /// unchanged until [`Conduit::is_returned`] returns true: the conduit may keep them mapped and send them
    /// without a copy. None: no room, as [`Sent::Busy`].
    fn try_send_lent(&self, to: Peer, message: &Message<'_>, _lent: &Span) -> Result<Option<Loan>> {
        Ok((self.try_send(to, message)? == Sent::Accepted).then_some(Loan::NONE))
    }

    /// Returns true if the loan of a message to this peer is returned. Polling makes it so, or the peer's
    /// loss.
    fn is_returned(&self, _to: Peer, loan: Loan) -> bool {
        loan == Loan::NONE
    }

    /// Tells of memory that puts are likely to come from and gets to go to: the process's own part of a segment, which is this
    /// region. The conduit may keep it mapped and let the bytes pass without a copy, until it is told to
    /// [forget](Self::forget) it.
    fn offer(&self, _region: RegionId, _memory: Span) {}

    /// A region no longer exists: this side does not use it, and no operation on it is in flight. Its
    /// registration is released, so that its keys are refused from now on, and grants by its server are
    /// forgotten, because another region may have the name next.
    fn forget(&self, _owner: Peer, _region: RegionId) {}

    /// Starts to write into a region that `server` owns or serves, without its help, when [`Capabilities::one_sided`]
    /// holds; [`Sink::completed`] tells when the bytes are visible there. Until then the source stays as it is if
    /// `stays`; otherwise it is reusable when this returns.
    fn start_put(
        &self,
        _server: Peer,
        _place: Place,
        _from: Source<'_>,
        _stays: bool,
        _operation: u64,
    ) -> Result<Sent> {
        Err(RmaError::Usage(format!("the {} conduit has no one-sided puts", self.name())))
    }

    /// Starts to read from a region that `server` owns or serves, without its help, when [`Capabilities::one_sided`]
    /// holds. [`Sink::completed`] is told when the bytes are here.
    fn start_get(&self, _server: Peer, _place: Place, _part: Part) -> Result<Sent> {
        Err(RmaError::Usage(format!("the {} conduit has no one-sided gets", self.name())))
    }

    /// Starts an atomic update of a word of a segment that `server` owns or serves, without its help, when
    /// [`Capabilities::atomics`] holds; `place.offset` is a multiple of 8. The old value becomes the first
    /// eight bytes of the operation's memory, for which [`Sink::destination`] is asked before
    /// [`Sink::completed`] is told.
    fn start_atomic(&self, _server: Peer, _place: Place, _atomic: Atomic, _operation: u64) -> Result<Sent> {
        Err(RmaError::Usage(format!("the {} conduit has no atomic updates", self.name())))
    }

    /// Delivers arrived messages, in bounded batches; returns their number, or more if other threads that
    /// were refused have to be told that there is room. Also pushes out what is buffered. Another thread that
    /// is polling already makes this return 0 at once. Loss of a peer is an error the first time it is seen,
    /// and on every later attempt to send to that peer.
    fn poll(&self, sink: &dyn Sink, traffic: Traffic) -> Result<usize>;

    /// Pushes out what `try_send` may have buffered, without delivering anything.
    fn flush(&self) -> Result<()> {
        Ok(())
    }

    /// Returns true if something is buffered that [`Conduit::flush`] or a poll has to push out. Cheap if
    /// nothing is.
    fn has_unsent(&self) -> bool {
        false
    }

    /// A descriptor that becomes readable when a poll would find something, provided that [`Conduit::arm`] was called
    /// after the last poll and returned true.
    fn wait_descriptor(&self) -> BorrowedFd<'_>;

    /// Prepares to sleep. False: something has arrived already, or a message that was [`Sent::Busy`] may have room since
    /// the last poll; look again instead.
    fn arm(&self) -> bool;

    /// The same for a sleep as long as [`Sleeps`](vgas_shm::bell::Sleeps) says, after which the caller polls:
    /// a message that comes in the moment of the preparation need not wake it. A conduit for which that saves
    /// nothing uses [`Conduit::arm`].
    fn arm_briefly(&self) -> bool {
        self.arm()
    }

    /// Ends the preparation; called after every successful [`Conduit::arm`] and [`Conduit::arm_briefly`], slept or not.
    fn disarm(&self);

    /// The peer's region, mapped into this process, when [`Capabilities::load_store`] holds.
    fn map(&self, _owner: Peer, _region: RegionId) -> Result<Option<Arc<Mapping>>> {
        Ok(None)
    }

    /// Ends the use of the conduit at the end of a job, for at most about `timeout`: accepted messages
    /// arrive, if the peers live, and every connected peer is told that nothing more will come, so that it
    /// does not take the end of this process for a loss. Afterwards sending is an error, polling still
    /// delivers what comes, and a peer that goes away is no loss. Called when all ranks have agreed to end
    /// (after a barrier); a second call does nothing. The default is that of a conduit whose peers notice
    /// nothing.
    fn close(&self, _timeout: Duration) {}
}
