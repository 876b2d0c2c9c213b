//! The line: what one node knows and does about its copy of one page (vGASNet §III.E).
//!
//! [`step`] names the event ([`classify`]: who sent it, are these all the acknowledgements), looks the cell up in
//! [`table`], and spells the row's actions out. All decisions are in the table.

pub mod table;
mod words;

use super::message::{Confirm, Message, Reason, Right};
use super::violation::Violation;
use arrayvec::ArrayVec;
use vgas_rma::address::NodeId;
pub use words::{Act, Event, State};

/// A node's copy of one page. `Line::default()` is "no copy".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Line {
    /// Where it is in the table.
    pub state: State,
    /// Acknowledgements still to come; negative as long as some came before their number was known.
    acks: i32,
}

impl Default for Line {
    fn default() -> Self {
        Self { state: State::I, acks: 0 }
    }
}

impl Line {
    /// Whether ranks of this node may read the copy now.
    pub fn readable(self) -> bool {
        use State::*;
        matches!(self.state, S | O | E | M | SmG | OmG | SwG | OwG)
    }

    /// Whether ranks of this node may write the copy now (the first write to E must be told: [`LineEvent::Write`]).
    pub fn writable(self) -> bool {
        matches!(self.state, State::E | State::M)
    }

    /// Whether the copy is current: it is readable, or waits to be given up.
    pub fn answers(self) -> bool {
        use State::*;
        self.readable() || matches!(self.state, SiE | OiE | EiE | MiE)
    }

    /// Whether nothing is outstanding, so that [`LineEvent::Replace`] and every request are allowed.
    pub fn stable(self) -> bool {
        use State::*;
        matches!(self.state, I | S | O | E | M)
    }
}

/// What can happen to a line.
///
/// The agent may hold a message back until the ranks of its node have left the page, as long as it keeps what the
/// same node sends later about the same page behind it: for the protocol that is a slow channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LineEvent {
    /// A local rank wants to read. While the line waits, the agent keeps further wants and asks again afterwards.
    Read,
    /// A local rank wants to write a part.
    Write,
    /// A local rank wants to overwrite the whole page; its content is ready.
    WriteWhole,
    /// Replacement has chosen the frame; no local rank uses it any more. Only on a [stable](Line::stable) copy.
    Replace,
    /// [`HomeAction::Apply`](super::home::HomeAction::Apply) of the home on the same node, in order with the
    /// messages which that home sends to its own node.
    Apply {
        /// A put.
        write: bool,
    },
    /// Another node (or the home on the same node) says something.
    Message {
        /// Who sent it.
        from: NodeId,
        /// What.
        message: Message,
    },
}

/// What the agent has to do, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send a message; if it [carries the page](Message::carries_page), from the line's frame, before it is dropped.
    Send {
        /// To whom; may be the own node.
        to: NodeId,
        /// What.
        message: Message,
    },
    /// The ranks that wait for this may go on.
    Complete(Outcome),
    /// Do the small operation on the frame and answer the rank that asked for it.
    Apply {
        /// A put.
        write: bool,
    },
    /// The copy is gone; its frame may be reused.
    Drop,
}

/// How a local want ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The page can be read.
    Readable,
    /// The page can be written.
    Writable,
    /// The home serves the page in place: send small operations there.
    InPlace,
    /// There is no copy, and why.
    Failed(Reason),
    /// The copy was not evicted, because the home could not store it.
    NotEvicted,
}

/// The actions of one step.
pub type Actions = ArrayVec<Action, 3>;

/// Names the event, and counts acknowledgements: the column of the table, and the line's count afterwards.
pub fn classify(line: Line, home: NodeId, event: LineEvent) -> Result<(Event, i32), Violation> {
    let (from, message) = match event {
        LineEvent::Read => return Ok((Event::Read, line.acks)),
        LineEvent::Write => return Ok((Event::Write, line.acks)),
        LineEvent::WriteWhole => return Ok((Event::WriteWhole, line.acks)),
        LineEvent::Replace => return Ok((Event::Replace, line.acks)),
        LineEvent::Apply { write: false } => return Ok((Event::ApplyGet, line.acks)),
        LineEvent::Apply { write: true } => return Ok((Event::ApplyPut, line.acks)),
        LineEvent::Message { from, message } => (from, message),
    };
    let from_anybody = matches!(message, Message::Data { .. } | Message::InvalidateAck);
    if message.is_for_home() || (from != home && !from_anybody) {
        return Err(Violation::WrongSender { from, what: message.name() });
    }
    // What is left to wait for, now that the number is known.
    let left = |acks: u32| match i32::try_from(acks).ok().and_then(|acks| acks.checked_add(line.acks)) {
        Some(left) if left >= 0 => Ok(left),
        _ => Err(Violation::TooManyAcks { from }),
    };
    let named = match message {
        Message::ForwardShared { .. } => Event::ForwardShared,
        Message::ForwardModified { .. } => Event::ForwardModified,
        Message::Invalidate { .. } => Event::Invalidate,
        Message::Pull => Event::Pull,
        Message::Own => Event::Own,
        Message::Last => Event::Last,
        Message::EvictAck => Event::EvictAck,
        Message::EvictRefused => Event::EvictRefused,
        Message::InPlace => Event::InPlace,
        Message::Failed { .. } => Event::Failed,
        Message::Data { right: Right::Shared, .. } => Event::DataShared,
        Message::Data { right: Right::Exclusive, .. } => Event::DataExclusive,
        Message::Data { right: Right::Modified, acks, .. } => match left(acks)? {
            0 => return Ok((Event::DataModified, 0)),
            left => return Ok((Event::DataModifiedAcks, left)),
        },
        Message::Grant { acks, clean, .. } => match (left(acks)?, clean) {
            (0, false) => return Ok((Event::Grant, 0)),
            (0, true) => return Ok((Event::GrantClean, 0)),
            (left, false) => return Ok((Event::GrantAcks, left)),
            (left, true) => return Ok((Event::GrantCleanAcks, left)),
        },
        Message::InvalidateAck => match line.acks.wrapping_sub(1) {
            0 => return Ok((Event::LastAck, 0)),
            left => return Ok((Event::Ack, left)),
        },
        Message::GetShared { .. }
        | Message::GetModified { .. }
        | Message::Evict { .. }
        | Message::Done { .. }
        | Message::PulledData { .. } => unreachable!("refused above: for the home"),
    };
    Ok((named, line.acks))
}

/// One step of a line whose page lives at `home`: the next line and what is to be done.
///
/// # Errors
/// When the event cannot happen here; the line is unchanged.
pub fn step(line: Line, home: NodeId, event: LineEvent) -> Result<(Line, Actions), Violation> {
    let (named, acks) = classify(line, home, event)?;
    let from = match event {
        LineEvent::Message { from, .. } => Some(from),
        _ => None,
    };
    let Some((next, acts)) = table::cell(line.state, named) else {
        return Err(Violation::Line { from, state: line.state, event: named });
    };
    let mut actions = Actions::new();
    for &act in acts {
        perform(act, home, event, &mut actions);
    }
    let next = Line { state: next, acks };
    // A count belongs to one request. Only a lying peer leaves one behind; it must not spoil the next request.
    Ok((Line { acks: if next.stable() { 0 } else { acks }, ..next }, actions))
}

/// Spells one action of a row out.
fn perform(act: Act, home: NodeId, event: LineEvent, actions: &mut Actions) {
    let to_home = |message| Action::Send { to: home, message };
    let action = match act {
        Act::AskShared => to_home(Message::GetShared { nvm: false }),
        Act::AskModified => to_home(Message::GetModified { whole: false, has_copy: false }),
        Act::AskWhole => to_home(Message::GetModified { whole: true, has_copy: false }),
        Act::AskUpgrade => to_home(Message::GetModified { whole: false, has_copy: true }),
        Act::AskWholeUpgrade => to_home(Message::GetModified { whole: true, has_copy: true }),
        Act::EvictClean => to_home(Message::Evict { dirty: false }),
        Act::EvictDirty => to_home(Message::Evict { dirty: true }),
        Act::SupplyShared => return supply(Right::Shared, false, home, event, actions),
        Act::SupplySharedDirty => return supply(Right::Shared, true, home, event, actions),
        Act::SupplyModified => return supply(Right::Modified, true, home, event, actions),
        Act::Acknowledge => match event {
            LineEvent::Message { message: Message::Invalidate { requester }, .. } => {
                Action::Send { to: requester, message: Message::InvalidateAck }
            }
            _ => unreachable!("only rows of Invalidate acknowledge"),
        },
        Act::PulledClean => to_home(Message::PulledData { dirty: false }),
        Act::PulledDirty => to_home(Message::PulledData { dirty: true }),
        Act::Confirm => match event {
            LineEvent::Message { message: Message::Data { confirm: true, dirty, .. }, .. } => {
                to_home(Message::Done { dirty })
            }
            LineEvent::Message { message: Message::Grant { confirm: true, .. }, .. } => {
                to_home(Message::Done { dirty: true })
            }
            _ => return,
        },
        Act::Finish => to_home(Message::Done { dirty: true }),
        Act::Readable => Action::Complete(Outcome::Readable),
        Act::Writable => Action::Complete(Outcome::Writable),
        Act::ServedInPlace => Action::Complete(Outcome::InPlace),
        Act::Failed => match event {
            LineEvent::Message { message: Message::Failed { reason }, .. } => {
                Action::Complete(Outcome::Failed(reason))
            }
            _ => unreachable!("only rows of Failed fail"),
        },
        Act::Refused => Action::Complete(Outcome::NotEvicted),
        Act::Apply => Action::Apply { write: matches!(event, LineEvent::Apply { write: true }) },
        Act::Drop => Action::Drop,
    };
    actions.push(action);
}

/// The page goes to whom the forward names, and the report to the home if the forward asks the supplier for it.
fn supply(right: Right, dirty: bool, home: NodeId, event: LineEvent, actions: &mut Actions) {
    let (requester, acks, confirm) = match event {
        LineEvent::Message { message: Message::ForwardShared { requester, confirm }, .. } => {
            (requester, 0, confirm)
        }
        LineEvent::Message { message: Message::ForwardModified { requester, acks, confirm }, .. } => {
            (requester, acks, confirm)
        }
        _ => unreachable!("only rows of forwards supply"),
    };
    let by_requester = confirm == Confirm::Requester;
    actions.push(Action::Send {
        to: requester,
        message: Message::Data { right, dirty, acks, confirm: by_requester },
    });
    if !by_requester {
        actions.push(Action::Send { to: home, message: Message::Done { dirty } });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: NodeId = NodeId(0);
    const PEER: NodeId = NodeId(2);

    fn every_message() -> Vec<Message> {
        let mut messages = Vec::new();
        for kind in 0..=16 {
            for a in 0..4 {
                for b in 0..16 {
                    messages.extend(Message::decode(&[kind, a, b], 4));
                }
            }
        }
        messages
    }

    /// Whatever a peer sends, in whatever state: a step or a typed error, and counts stay with their request.
    #[test]
    fn no_event_panics_in_any_state() {
        let mut events = vec![LineEvent::Read, LineEvent::Write, LineEvent::WriteWhole, LineEvent::Replace];
        events.extend([false, true].map(|write| LineEvent::Apply { write }));
        for message in every_message() {
            events.extend([HOME, PEER].map(|from| LineEvent::Message { from, message }));
        }
        for &state in State::ALL {
            for acks in [i32::MIN, -1, 0, 1, 2, i32::MAX] {
                for &event in &events {
                    if let Ok((next, _)) = step(Line { state, acks }, HOME, event) {
                        assert!(!next.stable() || next.acks == 0, "{state:?} {event:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_peer_that_plays_the_home_is_named() {
        let line = Line { state: State::S, acks: 0 };
        let message = Message::Invalidate { requester: PEER };
        let refused = step(line, HOME, LineEvent::Message { from: PEER, message });
        assert_eq!(refused, Err(Violation::WrongSender { from: PEER, what: "Invalidate" }));
        assert!(step(line, HOME, LineEvent::Message { from: HOME, message }).is_ok());
    }

    #[test]
    fn acknowledgements_may_come_before_their_number() {
        let ack = LineEvent::Message { from: PEER, message: Message::InvalidateAck };
        let data = |acks| LineEvent::Message {
            from: PEER,
            message: Message::Data { right: Right::Modified, dirty: true, acks, confirm: true },
        };
        let (asked, _) = step(Line::default(), HOME, LineEvent::Write).unwrap();
        let (early, actions) = step(asked, HOME, ack).unwrap();
        assert!(actions.is_empty());
        // One too many is a lie, exactly enough completes, one too few waits.
        assert_eq!(step(early, HOME, data(0)), Err(Violation::TooManyAcks { from: PEER }));
        assert_eq!(step(early, HOME, data(1)).unwrap().0, Line { state: State::M, acks: 0 });
        let (waits, _) = step(early, HOME, data(2)).unwrap();
        assert_eq!(waits.state, State::ImA);
        let (complete, actions) = step(waits, HOME, ack).unwrap();
        assert_eq!(complete, Line { state: State::M, acks: 0 });
        assert!(actions.contains(&Action::Send { to: HOME, message: Message::Done { dirty: true } }));
    }

    #[test]
    fn a_line_is_two_words() {
        assert_eq!(size_of::<Line>(), 8);
    }
}
