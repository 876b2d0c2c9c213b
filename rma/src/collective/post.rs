//! The messages of collectives: their words, and their handling.

use super::arrival::{Next, Piece};
use super::call::Call;
use super::{Collectives, MessageTarget, SpoiltNotice, sequence};
use crate::Rank;
use crate::conduit::Sent;
use crate::endpoint::{Token, lock};
use crate::error::RmaError;
use crate::message::{Arrived, Payload, Source};

/// The index of the handler of all messages of collectives: one of the endpoint's, which also run while the program computes.
pub const HANDLER: u8 = 7;

/// Most bytes of a sentence with the reason for a spoilt team.
const REASON_BYTES_MAX: usize = 512;

/// Bits of the sequence in a word that it shares with the call.
const SEQUENCE_BITS: u32 = u32::BITS - Call::BITS;

/// Identity of an operation: team, sequence, and number within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    /// Number of the team (see `team`).
    pub team: u64,
    /// See [`sequence`].
    pub sequence: u32,
    /// Wraps around.
    pub number: u32,
}

/// Tells the strings of an operation between two members apart.
pub(super) type Tag = u32;

/// Kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum PostKind {
    /// A string, unasked. Number: its length.
    Whole = 0,
    /// There is a string. Number: its length.
    Offer = 1,
    /// The answer to an offer. Number: 0, or one more than the offset in the asker's segment at which to write it.
    Ask = 2,
    /// A piece of a requested string.
    Piece = 3,
    /// Strings that came unasked were taken. Number: their bytes of credit.
    Credit = 4,
    /// Not about a string: an arrival at a barrier of the team (see `barrier`). Tag: the round.
    Barrier = 5,
    /// The team is spoilt. Tag: the rank of the member that called something else; payload: its call.
    Spoilt = 6,
}

impl PostKind {
    fn of(word: u32) -> Option<Self> {
        [Self::Whole, Self::Offer, Self::Ask, Self::Piece, Self::Credit, Self::Barrier, Self::Spoilt]
            .into_iter()
            .find(|what| *what as u32 == word)
    }
}

impl Key {
    /// The name of a message about a team, not one of its operations.
    pub(super) fn of_team(team: u64) -> Self {
        Self { team, sequence: 0, number: 0 }
    }

    /// The arguments of a message.
    pub(super) fn words(self, call: Call, tag: Tag, what: PostKind, number: u64) -> [u32; 8] {
        let Key { team, sequence, number: operation } = self;
        let halves = |word: u64| (word as u32, (word >> 32) as u32);
        let ((team_low, team_high), (low, high)) = (halves(team), halves(number));
        let sequence = sequence | call.encode() << SEQUENCE_BITS;
        [team_low, team_high, sequence, operation, tag, what as u32, low, high]
    }
}

impl Collectives {
    /// A message of a collective has come. A wrong one fails the endpoint with an error that names its
    /// sender, or spoils the team that it is about.
    pub(super) fn on_message(&self, token: &Token<'_>, words: &[u32], arrived: Arrived<'_>) {
        let &[team_low, team_high, sequence, operation, tag, what, low, high] = words else {
            return token.refuse("a malformed message of a collective");
        };
        let wide = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let call = Call::decode(sequence >> SEQUENCE_BITS);
        let sequence = sequence & ((1 << SEQUENCE_BITS) - 1);
        let key = Key { team: wide(team_low, team_high), sequence, number: operation };
        let (from, number) = (token.from(), wide(low, high));
        let what = match (PostKind::of(what), arrived) {
            (Some(PostKind::Barrier), Arrived::Short) => {
                return self.on_barrier(token, key.team, tag, number);
            }
            (Some(PostKind::Spoilt), Arrived::Medium(reason)) => {
                return self.on_spoilt(token, key.team, Rank(tag), &reason);
            }
            (Some(PostKind::Credit), Arrived::Short) => {
                if !self.credit.returned(from, number as usize) {
                    token.refuse("more credit of collectives than strings were sent");
                }
                return;
            }
            (Some(PostKind::Whole), Arrived::Medium(bytes)) => {
                if !self.credit.arrived(from, bytes.len()) {
                    return token.refuse("more strings of collectives than there is credit for");
                }
                PostKind::Whole
            }
            (Some(PostKind::Offer | PostKind::Ask), Arrived::Short)
            | (Some(PostKind::Piece), Arrived::Medium(_) | Arrived::Long(..)) => {
                // One of those above, or it would not be here.
                PostKind::of(what).unwrap_or(PostKind::Piece)
            }
            _ => return token.refuse("a malformed message of a collective"),
        };
        if sequence as usize >= sequence::COUNT {
            return token.refuse(format!("a message of a collective of sequence {sequence}"));
        }
        let found = match self.operation_of(key, from) {
            MessageTarget::Operation(operation) => operation,
            MessageTarget::Stranger => {
                return token.refuse("a string of a collective of a team that it is not in");
            }
            MessageTarget::Ended(standing) => {
                let layout = self.endpoint.layout();
                let (who, here) = (layout.describe(from), layout.describe(self.endpoint.me()));
                let what = format!(
                    "{who} calls {call} as operation {operation}, which has ended without it on {here}"
                );
                return self.spoil(&standing, from, what);
            }
            MessageTarget::Spoilt => {
                if what == PostKind::Whole {
                    let bytes = if let Arrived::Medium(bytes) = arrived { bytes.len() } else { 0 };
                    self.taken(key, from, bytes);
                }
                return;
            }
        };
        let next = {
            let mut arrivals = lock(&found.arrivals);
            let other = if what == PostKind::Ask { None } else { arrivals.hear(from, call) };
            match (other, what, arrived) {
                (Some(other), ..) => other,
                (None, PostKind::Whole, Arrived::Medium(bytes)) => arrivals.whole(from, tag, &bytes),
                (None, PostKind::Offer, _) => arrivals.offered(from, tag, number as usize),
                (None, PostKind::Piece, Arrived::Medium(bytes)) => {
                    arrivals.piece(from, tag, Piece::Bytes(&bytes))
                }
                (None, PostKind::Piece, Arrived::Long(address, bytes)) => {
                    arrivals.piece(from, tag, Piece::Placed(address, bytes))
                }
                (None, ..) => {
                    drop(arrivals);
                    match lock(&found.departures).asked(from, tag, number.checked_sub(1)) {
                        true => Next::Nothing,
                        false => Next::Refuse,
                    }
                }
            }
        };
        if let Err(what) = found.go_on(self, from, tag, next) {
            // Nothing fits an operation that was just given up.
            if !found.is_spoilt() {
                token.refuse(what);
            }
            return;
        }
        found.step(self, super::operation::StepContext::Handler);
    }

    /// A string that came unasked was taken: its sender gets its credit back, now or with the next message.
    pub(super) fn taken(&self, key: Key, from: crate::Peer, bytes: usize) {
        let Some(amount) = self.credit.taken(from, bytes) else { return };
        let words = key.words(Call::decode(0), 0, PostKind::Credit, amount as u64);
        match self.endpoint.try_request(from, HANDLER, &words, Payload::Short) {
            Ok(Sent::Accepted) => {}
            Ok(Sent::Busy) => self.credit.not_told(from, amount),
            Err(error) => self.endpoint.fail_of(from, error),
        }
    }

    /// A member has found that its team is spoilt.
    fn on_spoilt(&self, token: &Token<'_>, team: u64, member: Rank, reason: &[u8]) {
        if member.0 >= self.endpoint.layout().ranks() || reason.len() > REASON_BYTES_MAX {
            return token.refuse("a malformed reason why a team is of no use any more");
        }
        let standing = self.standing(team);
        let is_member = |rank| standing.members().is_none_or(|members| members.contains(&rank));
        if !self.endpoint.layout().rank_of_peer(token.from()).is_some_and(is_member) {
            return token.refuse("word of a team that it is not in");
        }
        let what = String::from_utf8_lossy(reason).into_owned();
        if standing.spoil(RmaError::Collective { member, what }) {
            self.give_up(&standing);
        }
    }

    /// Tells one member that its team is spoilt. False: there is no room now.
    pub(super) fn tell_one(&self, untold: &SpoiltNotice) -> bool {
        let words = Key::of_team(untold.team).words(Call::decode(0), untold.member.0, PostKind::Spoilt, 0);
        let reason = untold.what.as_bytes();
        let reason = &reason[..reason.len().min(REASON_BYTES_MAX)];
        match self.endpoint.try_request(untold.to, HANDLER, &words, Payload::Medium(Source::of(reason))) {
            Ok(sent) => sent == Sent::Accepted,
            Err(error) => {
                self.endpoint.fail_of(untold.to, error);
                true
            }
        }
    }
}
