//! The home: the directory entry of one page at the node whose NVMe holds its original (vGASNet §III.B, III.C).
//!
//! The home serves one request per page at a time; later ones wait in the entry, at most one per node. It treats its
//! own node's line like everybody's: it talks to it with the same messages, on an ordered channel to itself.
//! [`step`] names what a request finds when its turn comes ([`Event`]), looks the cell up in [`table`], and
//! spells the row's actions out. When to serve a page in place is decided in [`place`](super::place).

pub mod table;

use super::array::ForwardArray;
use super::line::words;
use super::message::{Confirm, Message, Reason, Right};
use super::place::{InPlaceService, Place};
use super::violation::Violation;
use std::collections::VecDeque;
use vgas_rma::address::NodeId;

words! {
    /// State of a directory entry. The first four are stable, in the others a request is being served; the first
    /// part of their names says what the entry was.
    State {
        /// Nobody has a copy; NVMe holds the page.
        Nowhere,
        /// Copies exist, all equal to NVMe. The forward array chooses who answers.
        Shared,
        /// Copies exist and NVMe is out of date. The owner answers.
        Owned,
        /// One node has the only copy and may have changed it.
        Exclusive,
        /// One of the holders sends the page to a reader.
        SharedSupplying,
        /// The owner sends the page to a reader.
        OwnedSupplying,
        /// The only holder sends the page to a reader; whether it has changed the page is not known yet.
        ExclusiveSupplying,
        /// A writer collects the page and the acknowledgements.
        Transferring,
        /// NVMe is being read; nobody has a copy.
        NowhereReading,
        /// NVMe is being read, although there are copies: cooperative caching is off.
        SharedReading,
        /// The owner has been asked for the page, to store it.
        OwnedPulling,
        /// The only holder has been asked for the page, to store it if it changed.
        ExclusivePulling,
        /// NVMe is being written; all copies equal what is written.
        Writing,
    }
}

words! {
    /// A classified event: what a request finds when its turn comes, or what the served one has been waiting for.
    Event {
        /// A node without a copy wants to read, and may get the page from a holder if there is one.
        Get,
        /// The same, but only the home may supply, and its node has no copy that answers (cooperation is off).
        GetAtHome,
        /// A node without a copy wants to write, and may get the page from a holder if there is one.
        Put,
        /// The same, but only the home may supply, and its node has no copy that answers (cooperation is off).
        PutAtHome,
        /// A writer that needs no content (it has a copy, or overwrites all); others have copies.
        Claim,
        /// A writer that needs no content; nobody else has a copy.
        ClaimAlone,
        /// A request for a page that is being served in place.
        Refer,
        /// An eviction by a node that has lost its copy meanwhile.
        EvictGone,
        /// An eviction by a node that is not the owner; other copies stay.
        EvictSharer,
        /// An eviction by the owner; other copies stay.
        EvictOwner,
        /// An eviction of the last copy, which equals NVMe.
        EvictLast,
        /// An eviction of the last copy, which differs from NVMe.
        EvictLastDirty,
        /// The own agent wants NVMe to be up to date.
        Clean,
        /// A small operation, and the page is served in place.
        ServeInPlace,
        /// A small operation, but the page is not served in place (any more).
        DeclineInPlace,
        /// The page has changed hands and equals NVMe.
        DoneClean,
        /// The page has changed hands and differs from NVMe.
        DoneDirty,
        /// The pulled copy equals NVMe.
        PulledClean,
        /// The pulled copy differs from NVMe; here it is.
        PulledDirty,
        /// NVMe has been read for a reader.
        ReadForReader,
        /// NVMe has been read for a writer.
        ReadForWriter,
        /// NVMe cannot be read.
        ReadFailed,
        /// NVMe has been written.
        Written,
        /// NVMe cannot be written.
        WriteFailed,
    }
}

words! {
    /// What a row does, in the words of the table. "The requester" is the node whose request is being served.
    Act {
        /// Start reading the page.
        ReadNvm,
        /// Start writing the page that was pulled.
        WriteNvm,
        /// Send ForwardShared to who answers.
        ForwardToReader,
        /// Send ForwardModified to who answers.
        ForwardToWriter,
        /// Send Invalidate to all holders but the requester and who answers a forward.
        InvalidateOthers,
        /// Send Grant to the requester.
        Grant,
        /// Send Data{S}, as read from NVMe, to the requester.
        GiveShared,
        /// Send Data{E}, as read from NVMe, to the requester.
        GiveExclusive,
        /// Send Data{M}, as read from NVMe, to the requester.
        GiveModified,
        /// Push the requester on top of the forward array.
        Admit,
        /// The requester is the only holder now.
        TakeAll,
        /// Remove the evicting node from the forward array.
        Leave,
        /// Send Own to the top of the forward array.
        PassOn,
        /// Send Own to the owner, which thought its copy had been stored.
        KeepOwner,
        /// Send EvictAck to the evicting node.
        LetGo,
        /// Send Pull to the owner.
        Pull,
        /// Tell the requester (Failed, EvictRefused) or the own agent that it could not be done.
        Fail,
        /// Send InPlace to the requester.
        ReferInPlace,
        /// Hand the small operation to the own node's line.
        Apply,
        /// Refuse the small operation.
        Decline,
        /// Tell the own agent that NVMe is up to date.
        Cleaned,
        /// Classify the same request once more.
        Again,
    }
}

/// What is the same for all pages of a home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// The home's own node.
    pub node: NodeId,
    /// Cooperative caching: holders supply other nodes. Off: holders store a changed page, and the home supplies
    /// (figures 2 and 4 instead of 3 and 5).
    pub cooperative: bool,
    /// When to serve a page in place because nodes write it in turn; `None`: never.
    pub in_place: Option<InPlaceService>,
}

/// A request that has come or waits for its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Request {
    from: NodeId,
    want: Want,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Want {
    Read,
    Write { whole: bool, has_copy: bool },
    Evict { dirty: bool },
    Clean,
}

/// A page's directory entry at its home. `Home::default()` is a page that nobody has ever asked for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Home {
    state: State,
    /// Everybody who has a copy; the requester of the turn only after its end.
    holders: ForwardArray,
    /// The owner (Owned) or only holder (Exclusive), also while a turn that began so lasts.
    owner: Option<NodeId>,
    /// The request being served.
    turn: Option<Request>,
    /// Whose Done or PulledData ends the wait.
    awaited: Option<NodeId>,
    /// Requests that wait; at most one per node, and one Clean.
    queue: VecDeque<Request>,
    place: Place,
}

impl Default for Home {
    fn default() -> Self {
        Self {
            state: State::Nowhere,
            holders: ForwardArray::default(),
            owner: None,
            turn: None,
            awaited: None,
            queue: VecDeque::new(),
            place: Place::default(),
        }
    }
}

/// What can happen to a directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HomeEvent {
    /// A node (maybe the home's own) says something.
    Message {
        /// Who sent it.
        from: NodeId,
        /// What.
        message: Message,
    },
    /// A rank of node `from` asks for a small operation. Answered at once with exactly one
    /// [`HomeAction::Apply`] or [`HomeAction::Decline`].
    InPlace {
        /// The asking rank's node.
        from: NodeId,
        /// A put.
        write: bool,
    },
    /// The owner uses the page through plain pointers (vGASNet §III.D), or no longer does: as long as its node has
    /// the only copy, the page is served in place.
    Mapped(bool),
    /// The own agent wants NVMe to be up to date. Ends with [`HomeAction::Cleaned`] or [`HomeAction::NotCleaned`];
    /// copies stay. One at a time per page.
    Clean,
    /// [`HomeAction::ReadNvm`] succeeded.
    NvmRead,
    /// [`HomeAction::ReadNvm`] failed.
    NvmReadFailed,
    /// [`HomeAction::WriteNvm`] succeeded.
    NvmWritten,
    /// [`HomeAction::WriteNvm`] failed.
    NvmWriteFailed,
}

/// What the agent has to do, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HomeAction {
    /// Send a message; [`Message::Data`] with what [`HomeAction::ReadNvm`] has brought.
    Send {
        /// To whom; may be the own node.
        to: NodeId,
        /// What.
        message: Message,
    },
    /// Read the page, then say [`HomeEvent::NvmRead`] or [`HomeEvent::NvmReadFailed`]. The agent may take the bytes
    /// from a [`HomeAction::WriteNvm`] of the same page that it still has, or zeros if the page was never written.
    ReadNvm,
    /// Write what [`Message::PulledData`] brought, then say [`HomeEvent::NvmWritten`] or
    /// [`HomeEvent::NvmWriteFailed`].
    WriteNvm,
    /// Pass [`LineEvent::Apply`](super::line::LineEvent::Apply) to the own node's line, in order with the messages
    /// that this home has sent to it.
    Apply {
        /// A put.
        write: bool,
    },
    /// Answer the small operation with "not in place".
    Decline,
    /// The page would be better served in place: the own node should ask for it as for a local
    /// [`Write`](super::line::LineEvent::Write), when it can. Advice: ignoring it is allowed.
    Recall,
    /// The [`HomeEvent::Clean`] has ended well.
    Cleaned,
    /// The [`HomeEvent::Clean`] has failed; the owner keeps what it has.
    NotCleaned,
}

/// The actions of one step; empty ones own no memory.
pub type HomeActions = Vec<HomeAction>;

/// One step of a directory entry.
///
/// # Errors
/// When the event cannot happen here, see [`Violation`].
pub fn step(home: &mut Home, parameters: &Parameters, event: HomeEvent) -> Result<HomeActions, Violation> {
    step_observed(home, parameters, event, &mut |_, _, _| ())
}

/// [`step`] that also shows each row of the table it took: state, event, next. One step may take several, because
/// the end of a turn begins the next one.
///
/// # Errors
/// As [`step`].
pub fn step_observed(
    home: &mut Home,
    parameters: &Parameters,
    event: HomeEvent,
    observe: &mut dyn FnMut(State, Event, State),
) -> Result<HomeActions, Violation> {
    let _ = (home, parameters, event, observe);
    Ok(HomeActions::new())
}
