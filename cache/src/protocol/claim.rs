//! Who may bring in a page whose home is here and that nobody has: the third table.
//!
//! The home's agent and the ranks of its node share one word for such a page. While the agent knows something of it (a copy, a
//! directory entry, anything in flight), the page is the agent's. When it knows nothing any more it publishes the page; from then
//! on a rank may claim it, bring it in from NVMe, and show it as the only copy. What the line and the home would have done,
//! they have done then, at once: from I and Nowhere to E (or M, of a page that was written as a whole) and Exclusive.
//!
//! Every step is one compare-and-swap of the word, so that two who want it are told apart by it.

/// What the word says of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum State {
    /// The agent knows something of it.
    #[default]
    Agents,
    /// The agent knows nothing of it: NVMe has it, and nobody has a copy.
    Stored,
    /// A rank brings it in.
    Claimed,
    /// A rank brings it in, and the agent waits for that.
    Awaited,
}

/// What happens to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The agent knows nothing of the page any more.
    Publish,
    /// The agent is asked something about the page.
    Withdraw,
    /// A rank wants it.
    Claim,
    /// The rank has brought it in.
    Show,
    /// The rank does not want it any more.
    GiveBack,
    /// The rank could not bring it in.
    Fail,
}

/// What follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Act {
    /// Nothing: whoever has taken the step has the page now, or not any more.
    Nothing,
    /// The agent waits, with everything that concerns the page, in its order.
    Wait,
    /// The rank rings the agent.
    Ring,
}

impl State {
    /// All, in the order in which they are printed.
    pub const ALL: &'static [State] = &[State::Agents, State::Stored, State::Claimed, State::Awaited];

    /// As printed.
    pub fn name(self) -> &'static str {
        match self {
            State::Agents => "Agents",
            State::Stored => "Stored",
            State::Claimed => "Claimed",
            State::Awaited => "Awaited",
        }
    }

    /// As printed.
    pub fn meaning(self) -> &'static str {
        match self {
            State::Agents => "The agent knows something of the page.",
            State::Stored => "The agent knows nothing of it: NVMe has it, and nobody has a copy.",
            State::Claimed => "A rank brings it in.",
            State::Awaited => "A rank brings it in, and the agent waits for that.",
        }
    }
}

impl Event {
    /// All, in the order in which they are printed.
    pub const ALL: &'static [Event] =
        &[Event::Publish, Event::Withdraw, Event::Claim, Event::Show, Event::GiveBack, Event::Fail];

    /// As printed.
    pub fn name(self) -> &'static str {
        match self {
            Event::Publish => "Publish",
            Event::Withdraw => "Withdraw",
            Event::Claim => "Claim",
            Event::Show => "Show",
            Event::GiveBack => "GiveBack",
            Event::Fail => "Fail",
        }
    }

    /// As printed.
    pub fn meaning(self) -> &'static str {
        match self {
            Event::Publish => "The agent knows nothing of the page any more.",
            Event::Withdraw => "The agent is asked something about the page.",
            Event::Claim => "A rank wants it.",
            Event::Show => "The rank has brought it in, as the only copy.",
            Event::GiveBack => "The rank does not want it any more.",
            Event::Fail => "The rank could not bring it in; the agent is to say why.",
        }
    }
}

impl Act {
    /// All, in the order in which they are printed.
    pub const ALL: &'static [Act] = &[Act::Nothing, Act::Wait, Act::Ring];

    /// As printed.
    pub fn name(self) -> &'static str {
        match self {
            Act::Nothing => "Nothing",
            Act::Wait => "Wait",
            Act::Ring => "Ring",
        }
    }

    /// As printed.
    pub fn meaning(self) -> &'static str {
        match self {
            Act::Nothing => "Whoever has taken the step goes on.",
            Act::Wait => "What has come for the page waits, in its order, until the claim has ended.",
            Act::Ring => "The rank rings the agent.",
        }
    }
}

/// The table. None: never; of a rank's event, that the page is not its to take.
#[inline]
pub const fn cell(state: State, event: Event) -> Option<(State, Act)> {
    use Act::{Nothing, Ring, Wait};
    use State::{Agents, Awaited, Claimed, Stored};
    Some(match (state, event) {
        (Agents, Event::Publish) => (Stored, Nothing),
        (Agents | Stored, Event::Withdraw) => (Agents, Nothing),
        (Claimed | Awaited, Event::Withdraw) => (Awaited, Wait),
        (Stored, Event::Claim) => (Claimed, Nothing),
        (Claimed, Event::Show | Event::Fail) => (Agents, Nothing),
        (Awaited, Event::Show | Event::Fail) => (Agents, Ring),
        (Claimed, Event::GiveBack) => (Stored, Nothing),
        (Awaited, Event::GiveBack) => (Stored, Ring),
        _ => return None,
    })
}
