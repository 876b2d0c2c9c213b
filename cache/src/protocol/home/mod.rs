//! The home: the directory entry of one page at the node whose NVMe holds its original (vGASNet §III.B, III.C).
//!
//! The home serves one request per page at a time; later ones wait in the entry, at most one per node. Only readers of a page that
//! several nodes may have are supplied side by side, if the home likes, so that a page that all read spreads like a tree: whoever has
//! got it supplies the next. It treats its own node's line like everybody's: it talks to it with the same messages, on an ordered channel to itself.
//! [`step`] names what a request finds when its turn comes ([`Event`]), looks the cell up in [`table`], and
//! spells the row's actions out. When to serve a page in place is decided in [`place`](super::place).

mod sending;
pub mod table;
mod words;

pub use sending::Sending;
pub use words::{Act, Event, State};

use super::array::ForwardArray;
use super::message::{Confirm, Message, Reason, Right};
use super::place::{InPlaceService, Place};
use super::violation::Violation;
use smallvec::SmallVec;
use std::collections::VecDeque;
use vgas_rma::address::NodeId;

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
    /// Whether readers of a page are supplied side by side, two by each holder at a time: the page is with all of them soonest. Otherwise
    /// one after the other, each by the one before, and by the home's own node only if nobody else has the page: then no node sends it
    /// more than once, which is soonest for many pages. May change from step to step.
    pub side_by_side: bool,
    /// Of several holders, the one that sends least is asked. Changes from step to step.
    pub sending: Sending,
}

impl Parameters {
    /// Of a home that does all that it can but serve pages in place, while nobody sends anything.
    pub const fn of(node: NodeId) -> Self {
        Self { node, cooperative: true, in_place: None, side_by_side: true, sending: Sending::NOTHING }
    }
}

/// A request that has come or waits for its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Request {
    from: NodeId,
    want: Want,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Want {
    Read {
        /// See [`Message::GetShared`].
        nvm: bool,
    },
    Write {
        whole: bool,
        has_copy: bool,
    },
    Evict {
        dirty: bool,
    },
    Clean,
}

/// A reader that is being supplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Supplied {
    requester: NodeId,
    /// Who sends it.
    from: NodeId,
    /// Whose Done says that it has the page.
    awaited: NodeId,
}

/// How many readers each holder of a page sends it to at a time, where they are supplied side by side: with one, a link would be idle for
/// as long as it takes until it is known that the page has come; with many, the first holder would send them all.
const SUPPLIED_BY_EACH: usize = 2;

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
    /// Readers that holders supply (SharedSupplying; one: OwnedSupplying), in the order of their turns, which do not last until they have
    /// the page.
    supplied: SmallVec<[Supplied; 2]>,
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
            supplied: SmallVec::new(),
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

/// The actions of one step. More than a few, as when many copies are invalidated, are rare.
pub type HomeActions = SmallVec<[HomeAction; 4]>;

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
    let mut stepping = Stepping { home, parameters, actions: HomeActions::new(), supplier: None };
    stepping.take(event, observe)?;
    Ok(stepping.actions)
}

impl Home {
    /// Bytes of the entry, with its holders and with who waits.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.holders.heap_bytes() + self.queue.capacity() * size_of::<Request>()
    }

    /// What [`step`] makes of a new entry whose only request so far is a reader's: NVMe is being read for this node.
    pub fn reading_for(node: NodeId) -> Self {
        let turn = Some(Request { from: node, want: Want::Read { nvm: false } });
        Self { state: State::NowhereReading, turn, ..Self::default() }
    }

    /// What [`step`] makes of [`Home::reading_for`] when NVMe has been read: this node has the only copy.
    pub fn held_by(node: NodeId) -> Self {
        let mut holders = ForwardArray::default();
        holders.push(node);
        Self { state: State::Exclusive, owner: Some(node), holders, ..Self::default() }
    }

    /// Where the entry is in the table.
    pub fn state(&self) -> State {
        self.state
    }

    /// The node whose request is being served, the longest if several are, unless it is the own agent's [`HomeEvent::Clean`].
    pub fn requester(&self) -> Option<NodeId> {
        let supplied = self.supplied.first().map(|first| first.requester);
        supplied.or_else(|| self.turn.filter(|turn| turn.want != Want::Clean).map(|turn| turn.from))
    }

    /// Who is sending the page to a reader, as often as they are.
    pub fn suppliers(&self) -> impl Iterator<Item = NodeId> + '_ {
        let one = self.state == State::ExclusiveSupplying;
        self.supplied.iter().map(|one| one.from).chain(self.owner.filter(|_| one))
    }

    /// Whether holders send the page to readers, whose turns do not last until they have it.
    fn is_supplying(&self) -> bool {
        matches!(self.state, State::SharedSupplying | State::OwnedSupplying)
    }

    /// Whether a reader may say now that it has the page, which differs from NVMe or does not.
    fn awaits_readers(&self, dirty: bool) -> bool {
        self.state == State::OwnedSupplying || (self.state == State::SharedSupplying && !dirty)
    }

    /// Whether the next waiting request may have its turn.
    fn may_begin(&self, parameters: &Parameters) -> bool {
        match self.state {
            State::Nowhere | State::Shared | State::Owned | State::Exclusive => true,
            State::SharedSupplying => {
                parameters.side_by_side
                    && self.queue.front().is_some_and(|next| matches!(next.want, Want::Read { .. }))
                    && self.supplied.len() < SUPPLIED_BY_EACH * self.holders.len()
            }
            _ => false,
        }
    }

    /// Who has a copy, the next to answer last.
    pub fn holders(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.holders.iter()
    }

    /// How many requests wait for their turn; at most one per node and one [`HomeEvent::Clean`].
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Whether small operations are served in place now.
    pub fn serves_in_place(&self, node: NodeId) -> bool {
        self.state == State::Exclusive && self.owner == Some(node) && self.place.wanted()
    }

    /// Whether the entry says no more than that this node, and nobody else, has the page, and has been the last to write it:
    /// [`Home::held_by`] can take its place.
    pub fn is_only_held_by(&self, node: NodeId) -> bool {
        self.state == State::Exclusive
            && self.owner == Some(node)
            && self.turn.is_none()
            && self.queue.is_empty()
            && self.holders.iter().eq([node])
            && self.place.is_settled(node)
    }

    /// Whether the entry says no more than a new one would, so that the agent may forget it. (The history of
    /// writers is then forgotten, too: a page that nobody holds is not being fought for.)
    pub fn is_idle(&self) -> bool {
        self.state == State::Nowhere && !self.place.is_mapped()
    }
}

/// Who supplies the page, how many other copies have to go, and who reports the end.
struct Supply {
    from: NodeId,
    acks: u32,
    confirm: Confirm,
}

/// One step in flight.
struct Stepping<'a> {
    home: &'a mut Home,
    parameters: &'a Parameters,
    actions: HomeActions,
    /// Who was asked last to send the page to a reader.
    supplier: Option<NodeId>,
}

impl Stepping<'_> {
    fn take(
        &mut self,
        event: HomeEvent,
        observe: &mut dyn FnMut(State, Event, State),
    ) -> Result<(), Violation> {
        let own = self.parameters.node;
        let (from, named) = match event {
            HomeEvent::Mapped(mapped) => {
                self.home.place.map(mapped);
                return Ok(());
            }
            HomeEvent::Clean => return self.queue(Request { from: own, want: Want::Clean }, observe),
            HomeEvent::InPlace { from, write } => {
                let serving = self.home.serves_in_place(own);
                let named = if serving { Event::ServeInPlace } else { Event::DeclineInPlace };
                self.row(Some(from), named, observe)?;
                if serving {
                    self.actions.push(HomeAction::Apply { write });
                    self.home.place.serve(from, write, self.parameters.in_place);
                } else {
                    self.actions.push(HomeAction::Decline);
                }
                return Ok(());
            }
            HomeEvent::Message { from, message } => match message {
                Message::GetShared { nvm } => {
                    return self.queue(Request { from, want: Want::Read { nvm } }, observe);
                }
                Message::GetModified { whole, has_copy } => {
                    return self.queue(Request { from, want: Want::Write { whole, has_copy } }, observe);
                }
                Message::Evict { dirty } => {
                    return self.queue(Request { from, want: Want::Evict { dirty } }, observe);
                }
                Message::Done { dirty } if self.home.awaits_readers(dirty) => {
                    return self.supplied(from, dirty, observe);
                }
                Message::Done { dirty: false } => (Some(from), Event::DoneClean),
                Message::Done { dirty: true } => (Some(from), Event::DoneDirty),
                Message::PulledData { dirty: false } => (Some(from), Event::PulledClean),
                Message::PulledData { dirty: true } => (Some(from), Event::PulledDirty),
                _ => return Err(Violation::WrongSender { from, what: message.name() }),
            },
            HomeEvent::NvmRead
                if self.home.turn.is_some_and(|turn| matches!(turn.want, Want::Read { .. })) =>
            {
                (None, Event::ReadForReader)
            }
            HomeEvent::NvmRead => (None, Event::ReadForWriter),
            HomeEvent::NvmReadFailed if self.turn_to_holders(State::SharedReading) => {
                (None, Event::ReadFailedBeside)
            }
            HomeEvent::NvmReadFailed => (None, Event::ReadFailed),
            HomeEvent::NvmWritten => (None, Event::Written),
            HomeEvent::NvmWriteFailed if self.turn_to_holders(State::Writing) => {
                (None, Event::WriteFailedBeside)
            }
            HomeEvent::NvmWriteFailed => (None, Event::WriteFailed),
        };
        if let Some(from) = from
            && self.home.awaited.take_if(|awaited| *awaited == from).is_none()
        {
            return Err(Violation::Home { from: Some(from), state: self.home.state, event: named });
        }
        self.advance(from, named, observe)
    }

    /// Whether the reader whose turn it is in this state can as well be supplied by who has the page: then it asks for that from here on.
    fn turn_to_holders(&mut self, state: State) -> bool {
        match &mut self.home.turn {
            Some(Request { want: Want::Read { nvm: nvm @ true }, .. })
                if self.home.state == state && self.parameters.cooperative =>
            {
                *nvm = false;
                true
            }
            _ => false,
        }
    }

    /// A reader that was being supplied has the page, says this node.
    fn supplied(
        &mut self,
        from: NodeId,
        dirty: bool,
        observe: &mut dyn FnMut(State, Event, State),
    ) -> Result<(), Violation> {
        let supplied = &mut self.home.supplied;
        let found = supplied.iter().position(|one| one.awaited == from);
        let named = match (supplied.len() > 1, dirty) {
            (true, _) => Event::DoneBeside,
            (false, false) => Event::DoneClean,
            (false, true) => Event::DoneDirty,
        };
        let Some(at) = found else {
            return Err(Violation::Home { from: Some(from), state: self.home.state, event: named });
        };
        let from = supplied.remove(at).requester;
        self.home.turn = Some(Request { from, want: Want::Read { nvm: false } });
        self.advance(Some(from), named, observe)
    }

    /// A request has come: its turn begins at once if nobody else's lasts.
    fn queue(
        &mut self,
        request: Request,
        observe: &mut dyn FnMut(State, Event, State),
    ) -> Result<(), Violation> {
        let from = request.from;
        let clean = request.want == Want::Clean;
        if self.home.queue.iter().any(|other| other.from == from && (other.want == Want::Clean) == clean) {
            return Err(Violation::AskedTwice { from });
        }
        self.home.queue.push_back(request);
        self.begin(observe)
    }

    /// Serves waiting requests as long as no turn lasts.
    fn begin(&mut self, observe: &mut dyn FnMut(State, Event, State)) -> Result<(), Violation> {
        if self.home.turn.is_none()
            && self.home.may_begin(self.parameters)
            && let Some(request) = self.home.queue.pop_front()
        {
            self.home.turn = Some(request);
            let named = self.classify(request)?;
            return self.advance(Some(request.from), named, observe);
        }
        Ok(())
    }

    /// Takes a row, and whatever it allows to go on: the same request again, or the next ones.
    fn advance(
        &mut self,
        from: Option<NodeId>,
        named: Event,
        observe: &mut dyn FnMut(State, Event, State),
    ) -> Result<(), Violation> {
        let (mut from, mut named) = (from, named);
        loop {
            let again = self.row(from, named, observe)?;
            if self.home.is_supplying()
                && let Some(turn) = self.home.turn.take()
                && let Some(awaited) = self.home.awaited.take()
                && let Some(from) = self.supplier.take()
            {
                self.home.supplied.push(Supplied { requester: turn.from, from, awaited });
            }
            let request = match self.home.turn {
                Some(request) if again => request,
                _ if !self.home.may_begin(self.parameters) => return Ok(()),
                _ => {
                    self.home.turn = self.home.queue.pop_front();
                    match self.home.turn {
                        Some(request) => request,
                        None => return Ok(()),
                    }
                }
            };
            from = Some(request.from);
            named = self.classify(request)?;
        }
    }

    /// Looks one cell up and does what it says; whether the request is to be classified again.
    fn row(
        &mut self,
        from: Option<NodeId>,
        named: Event,
        observe: &mut dyn FnMut(State, Event, State),
    ) -> Result<bool, Violation> {
        let state = self.home.state;
        let Some((next, acts)) = table::cell(state, named) else {
            return Err(Violation::Home { from, state, event: named });
        };
        observe(state, named, next);
        let mut again = false;
        // Who answers is chosen once per row: choosing turns the forward array.
        let mut supply = None;
        for &act in acts {
            again |= act == Act::Again;
            self.perform(act, &mut supply);
        }
        self.home.state = next;
        if next != State::Exclusive {
            self.home.place.left();
        }
        if matches!(next, State::Nowhere | State::Shared) {
            self.home.owner = None;
        }
        Ok(again)
    }

    /// What a request finds, now that it is its turn.
    fn classify(&mut self, request: Request) -> Result<Event, Violation> {
        let Request { from, want } = request;
        let own = self.parameters.node;
        let holds = self.home.holders.contains(from);
        let others = self.home.holders.len() - usize::from(holds);
        let contradiction = |what| Violation::Contradiction { from, what, knows: "says that it has a copy" };
        Ok(match want {
            Want::Clean => Event::Clean,
            Want::Read { .. } if holds || self.home.supplied.iter().any(|one| one.requester == from) => {
                return Err(contradiction("GetShared"));
            }
            Want::Read { .. } if self.home.serves_in_place(own) => Event::Refer,
            Want::Read { nvm } if self.holder_may_supply() && !(nvm && self.nvm_may_supply(from)) => {
                Event::Get
            }
            Want::Read { .. } => Event::GetAtHome,
            Want::Write { has_copy: false, .. } if holds => return Err(contradiction("GetModified")),
            Want::Write { whole, .. } => {
                if self.home.serves_in_place(own) && !(whole && self.home.place.give_way()) {
                    Event::Refer
                } else if holds || whole {
                    if others == 0 { Event::ClaimAlone } else { Event::Claim }
                } else if self.holder_may_supply() {
                    Event::Put
                } else {
                    Event::PutAtHome
                }
            }
            Want::Evict { .. } if !holds => Event::EvictGone,
            Want::Evict { dirty } => match self.home.state {
                State::Exclusive if dirty || (from == own && self.home.place.is_written()) => {
                    Event::EvictLastDirty
                }
                State::Exclusive => Event::EvictLast,
                State::Owned if others == 0 => Event::EvictLastDirty,
                State::Owned => {
                    match (self.home.owner == Some(from), others == 1 && self.parameters.cooperative) {
                        (false, false) => Event::EvictSharer,
                        (false, true) => Event::EvictLastButOne,
                        (true, false) => Event::EvictOwner,
                        (true, true) => Event::EvictOwnerLastButOne,
                    }
                }
                // Whatever the holder thought when it asked: the page has been stored since.
                _ if others == 0 => Event::EvictLast,
                // Without cooperation nobody would get it from there.
                State::Shared if others == 1 && self.parameters.cooperative => Event::EvictLastButOne,
                _ => Event::EvictSharer,
            },
        })
    }

    /// Whether a holder may send the page to a requester: always with cooperative caching; without, only the home's
    /// own node, if its copy is one that answers.
    fn holder_may_supply(&self) -> bool {
        let own = self.parameters.node;
        self.parameters.cooperative
            || match self.home.owner {
                Some(owner) => owner == own,
                None => self.home.holders.contains(own),
            }
    }

    /// Whether NVMe has the page as its holders do, none of which is the home's own node, whose DRAM is nearer. For that node an only
    /// holder is asked, who may have changed it: such an answer is as far away as the page, but short.
    fn nvm_may_supply(&self, requester: NodeId) -> bool {
        let own = self.parameters.node;
        match self.home.state {
            State::Shared => !self.home.holders.contains(own),
            State::Exclusive => requester == own,
            _ => false,
        }
    }

    /// Chooses who answers for the page, and counts the copies that a writer has to wait for.
    fn supply(&mut self, chosen: &mut Option<NodeId>, writer: bool) -> Option<Supply> {
        let own = self.parameters.node;
        let from = if writer { self.answerer(chosen)? } else { self.answerer_to_reader(chosen)? };
        let acks = if writer { self.home.holders.len() as u32 - 1 } else { 0 };
        let confirm = if from == own && acks == 0 { Confirm::Supplier } else { Confirm::Requester };
        Some(Supply { from, acks, confirm })
    }

    fn answerer(&mut self, chosen: &mut Option<NodeId>) -> Option<NodeId> {
        if chosen.is_none() {
            *chosen = match self.home.owner {
                Some(owner) => Some(owner),
                None if !self.parameters.cooperative => Some(self.parameters.node),
                None => self.some_holder(),
            };
        }
        *chosen
    }

    /// Who reads may have the page of any holder: what the owner alone has is what NVMe has not, and that it keeps.
    fn answerer_to_reader(&mut self, chosen: &mut Option<NodeId>) -> Option<NodeId> {
        if chosen.is_none() && self.parameters.cooperative && self.home.holders.len() > 1 {
            *chosen = self.some_holder();
        }
        self.answerer(chosen)
    }

    fn some_holder(&mut self) -> Option<NodeId> {
        let Parameters { node: own, side_by_side, sending, .. } = *self.parameters;
        // Every first copy passes the home's own link: others have more room on theirs.
        let spared = |node| node == own && !side_by_side;
        self.home.holders.access(|node| (spared(node), sending.of(node)))
    }

    fn send(&mut self, to: NodeId, message: Message) {
        self.actions.push(HomeAction::Send { to, message });
    }

    /// Does one action of a row. Every row that needs a requester, an owner or a holder has one: requests set the
    /// turn before their row is looked up, and states are named after who exists.
    fn perform(&mut self, act: Act, chosen: &mut Option<NodeId>) {
        let Some(turn) = self.home.turn else {
            // Only the rows of small operations have no turn; `take` answers them.
            debug_assert!(matches!(act, Act::Apply | Act::Decline));
            return;
        };
        let requester = turn.from;
        let others = self.home.holders.len() - usize::from(self.home.holders.contains(requester));
        match act {
            Act::ReadNvm => self.actions.push(HomeAction::ReadNvm),
            Act::WriteNvm => self.actions.push(HomeAction::WriteNvm),
            Act::ForwardToReader => {
                if let Some(Supply { from, confirm, .. }) = self.supply(chosen, false) {
                    self.supplier = Some(from);
                    self.home.awaited = Some(if confirm == Confirm::Supplier { from } else { requester });
                    self.send(from, Message::ForwardShared { requester, confirm });
                }
            }
            Act::ForwardToWriter => {
                if let Some(Supply { from, acks, confirm }) = self.supply(chosen, true) {
                    self.home.awaited = Some(if confirm == Confirm::Supplier { from } else { requester });
                    self.send(from, Message::ForwardModified { requester, acks, confirm });
                }
            }
            Act::InvalidateOthers => {
                // Of a forward, the supplier's own copy goes with the forward.
                let needs_content = matches!(turn.want, Want::Write { whole: false, .. })
                    && !self.home.holders.contains(requester)
                    && self.home.state != State::SharedReading;
                let supplier = if needs_content { self.answerer(chosen) } else { None };
                let others: Vec<NodeId> = self.home.holders.iter().collect();
                for holder in
                    others.into_iter().filter(|&holder| holder != requester && Some(holder) != supplier)
                {
                    self.send(holder, Message::Invalidate { requester });
                }
            }
            Act::Grant => {
                let confirm = others > 0;
                self.home.awaited = confirm.then_some(requester);
                let is_whole = matches!(turn.want, Want::Write { whole: true, .. });
                let clean = self.home.state == State::Shared && !is_whole;
                self.send(requester, Message::Grant { acks: others as u32, confirm, clean });
            }
            Act::GiveShared => self.give(Right::Shared, 0),
            Act::GiveExclusive => self.give(Right::Exclusive, 0),
            Act::GiveModified => {
                self.home.awaited = (others > 0).then_some(requester);
                self.give(Right::Modified, others as u32);
            }
            Act::Admit => self.home.holders.push(requester),
            Act::TakeAll => self.take_all(requester, turn.want),
            Act::Leave => {
                self.home.holders.remove(requester);
                if self.home.owner == Some(requester) {
                    self.home.owner = None;
                }
            }
            Act::PassOn => {
                self.home.owner = self.home.holders.top();
                if let Some(owner) = self.home.owner {
                    self.send(owner, Message::Own);
                }
            }
            Act::TellLast => {
                if let Some(holder) = self.home.holders.top() {
                    self.send(holder, Message::Last);
                }
            }
            Act::KeepOwner => {
                if let Some(owner) = self.home.owner {
                    self.send(owner, Message::Own);
                }
            }
            Act::LetGo => self.send(requester, Message::EvictAck),
            Act::Pull => {
                self.home.awaited = self.home.owner;
                if let Some(owner) = self.home.owner {
                    self.send(owner, Message::Pull);
                }
            }
            Act::Fail => {
                let reason = if self.home.state == State::Writing { Reason::Write } else { Reason::Read };
                match turn.want {
                    Want::Read { .. } | Want::Write { .. } => {
                        self.send(requester, Message::Failed { reason })
                    }
                    Want::Evict { .. } => self.send(requester, Message::EvictRefused),
                    Want::Clean => self.actions.push(HomeAction::NotCleaned),
                }
            }
            Act::ReferInPlace => self.send(requester, Message::InPlace),
            Act::Cleaned => self.actions.push(HomeAction::Cleaned),
            Act::Apply | Act::Decline | Act::Again => {}
        }
    }

    fn give(&mut self, right: Right, acks: u32) {
        if let Some(requester) = self.home.requester() {
            let dirty = right == Right::Modified;
            self.send(requester, Message::Data { right, dirty, acks, confirm: acks > 0 });
        }
    }

    /// The requester is the only holder now; a writer may be one of several that write in turn.
    fn take_all(&mut self, requester: NodeId, want: Want) {
        self.home.holders.reduce_to(requester);
        self.home.owner = Some(requester);
        let own = requester == self.parameters.node;
        if matches!(want, Want::Write { .. })
            && self.home.place.wrote(requester, own, self.parameters.in_place)
        {
            self.actions.push(HomeAction::Recall);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use smallvec::smallvec;

    const HOME: NodeId = NodeId(0);
    const A: NodeId = NodeId(1);
    const B: NodeId = NodeId(2);
    const PARAMETERS: Parameters = Parameters::of(HOME);

    fn says(home: &mut Home, from: NodeId, message: Message) -> Result<HomeActions, Violation> {
        step(home, &PARAMETERS, HomeEvent::Message { from, message })
    }

    /// An entry whose page node A has alone.
    fn held_by_a() -> Home {
        let mut home = Home::default();
        assert_eq!(says(&mut home, A, Message::GetShared { nvm: false }), Ok(smallvec![HomeAction::ReadNvm]));
        let message = Message::Data { right: Right::Exclusive, dirty: false, acks: 0, confirm: false };
        let given = step(&mut home, &PARAMETERS, HomeEvent::NvmRead);
        assert_eq!(given, Ok(smallvec![HomeAction::Send { to: A, message }]));
        assert_eq!(home.state(), State::Exclusive);
        home
    }

    #[test]
    fn entries_that_are_made_at_once_are_those_that_steps_lead_to() {
        let mut home = Home::default();
        says(&mut home, A, Message::GetShared { nvm: false }).unwrap();
        assert_eq!(home, Home::reading_for(A));
        step(&mut home, &PARAMETERS, HomeEvent::NvmRead).unwrap();
        assert_eq!(home, Home::held_by(A));
        says(&mut home, A, Message::Evict { dirty: false }).unwrap();
        assert_eq!(home, Home::default());
    }

    #[test]
    fn a_second_request_of_a_node_is_refused_while_its_first_waits() {
        let mut home = held_by_a();
        says(&mut home, B, Message::GetShared { nvm: false }).unwrap();
        says(&mut home, A, Message::Evict { dirty: false }).unwrap();
        assert_eq!(home.waiting(), 1);
        let again = says(&mut home, A, Message::Evict { dirty: false });
        assert_eq!(again, Err(Violation::AskedTwice { from: A }));
    }

    #[test]
    fn a_holder_that_asks_for_what_it_has_is_named() {
        let asked = says(&mut held_by_a(), A, Message::GetShared { nvm: false });
        assert!(
            matches!(asked, Err(Violation::Contradiction { from: A, what: "GetShared", .. })),
            "{asked:?}"
        );
    }

    /// Goal: of several holders the one answers that sends least, at the same load the newest, and the home's own node only where readers are
    /// supplied side by side; the counts are as before when all has come.
    #[test]
    fn the_holder_that_sends_least_answers() {
        let asked = |busy: &[NodeId], side_by_side: bool| {
            let mut home = Home { state: State::Shared, ..Home::default() };
            [HOME, A, B].into_iter().for_each(|node| home.holders.push(node));
            let mut sending = Sending::default();
            sending.begin(busy.iter().copied());
            let parameters = Parameters { sending, side_by_side, ..PARAMETERS };
            let event = HomeEvent::Message { from: NodeId(3), message: Message::GetShared { nvm: false } };
            let actions = step(&mut home, &parameters, event).unwrap();
            let [HomeAction::Send { to, .. }] = actions[..] else { panic!("{actions:?}") };
            assert_eq!(home.suppliers().collect::<Vec<_>>(), [to]);
            let event = HomeEvent::Message {
                from: home.supplied[0].awaited,
                message: Message::Done { dirty: false },
            };
            step(&mut home, &parameters, event).unwrap();
            assert_eq!(home.suppliers().count(), 0);
            to
        };
        assert_eq!(asked(&[], false), B);
        assert_eq!(asked(&[B], false), A);
        assert_eq!(asked(&[B, A, A], false), B);
        assert_eq!(asked(&[B, A], false), B);
        assert_eq!(asked(&[B, A], true), HOME);
    }

    #[test]
    fn only_who_is_waited_for_ends_a_turn() {
        let mut home = held_by_a();
        says(&mut home, B, Message::GetShared { nvm: false }).unwrap();
        let done = Message::Done { dirty: false };
        assert!(matches!(says(&mut home, A, done), Err(Violation::Home { from: Some(A), .. })));
        assert_eq!(says(&mut home, B, done), Ok(smallvec![]));
        assert_eq!(home.state(), State::Shared);
        assert!(matches!(says(&mut home, B, done), Err(Violation::Home { from: Some(B), .. })));
    }

    #[test]
    fn an_entry_is_idle_when_everybody_has_left() {
        let mut home = held_by_a();
        assert!(!home.is_idle());
        says(&mut home, A, Message::Evict { dirty: false }).unwrap();
        assert!(home.is_idle());
        step(&mut home, &PARAMETERS, HomeEvent::Mapped(true)).unwrap();
        assert!(!home.is_idle());
    }

    /// Whatever is said by whoever, in whatever order: a step or a typed error. Random walks of liars, because an
    /// entry's state is more than its name.
    #[test]
    fn no_event_panics() {
        let mut events = vec![
            HomeEvent::Clean,
            HomeEvent::NvmRead,
            HomeEvent::NvmReadFailed,
            HomeEvent::NvmWritten,
            HomeEvent::NvmWriteFailed,
            HomeEvent::Mapped(true),
            HomeEvent::Mapped(false),
        ];
        for from in [HOME, A, B] {
            events.extend([false, true].map(|write| HomeEvent::InPlace { from, write }));
            for kind in 0..=16 {
                for b in 0..2 {
                    let message = Message::decode(&[kind, b, b], 3);
                    events.extend(message.map(|message| HomeEvent::Message { from, message }));
                }
            }
        }
        let in_place = Some(InPlaceService { enter_after: 1, leave_after: 2 });
        let mut random = 1u64;
        for cooperative in [false, true] {
            let parameters = Parameters { cooperative, in_place, ..PARAMETERS };
            let mut home = Home::default();
            for _ in 0..50_000 {
                random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let event = events[(random >> 33) as usize % events.len()];
                let mut next = home.clone();
                if step(&mut next, &parameters, event).is_ok() {
                    home = next;
                }
                assert!(home.waiting() <= 4);
            }
        }
    }
}
