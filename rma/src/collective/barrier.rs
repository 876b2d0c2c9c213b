//! Barriers of teams: split in two, with names that must match, as those of all ranks are (GASNet 1.8, 3.5).
//!
//! Members agree by dissemination: in round k each sends its combined name to the one 2^k further, in one
//! short message. A member can be at most one barrier ahead of another, so a place by parity and round is
//! enough for the messages.

use super::call::{Call, Kind};
use super::post::{HANDLER, Key, PostKind};
use super::{Collectives, Team};
use crate::Peer;
use crate::conduit::Sent;
use crate::endpoint::{BarrierName, Token, lock};
use crate::error::{Result, RmaError};
use crate::message::Payload;
use std::sync::{Arc, Mutex};

/// Rounds at most: members are counted by 32 bits.
const ROUNDS_MAX: usize = 32;

/// A message of a round: its sender, and its word.
type RoundMessage = Option<(Peer, u64)>;

/// A team's barrier at this rank.
#[derive(Default)]
pub(super) struct Barrier {
    state: Mutex<State>,
    /// Messages, by parity of the epoch and by round.
    heard: Mutex<[[RoundMessage; ROUNDS_MAX]; 2]>,
}

#[derive(Default)]
struct State {
    /// Barriers notified.
    epoch: u64,
    phase: Phase,
}

/// Progress of a barrier at this rank.
#[derive(Default)]
enum Phase {
    /// There was none.
    #[default]
    Never,
    /// `notify` was called, and not all members have come.
    Notified {
        team: Arc<Team>,
        /// Combined name so far.
        known: BarrierName,
        round: usize,
        is_round_sent: bool,
    },
    /// All have come; `wait` was not called.
    Complete(BarrierName),
    /// The last one's name.
    Passed(BarrierName),
}

impl Collectives {
    /// Handles a member's arrival at a barrier: message of a round, with its combined name.
    pub(super) fn on_barrier(&self, token: &Token<'_>, team: u64, round: u32, word: u64) {
        if round as usize >= ROUNDS_MAX {
            return token.refuse(format!("a message of round {round} of a barrier"));
        }
        let standing = self.standing(team);
        let barrier = &standing.barrier;
        lock(&barrier.heard)[(BarrierName::decode(word).0 & 1) as usize][round as usize] =
            Some((token.from(), word));
        // The thread that has the state looks again once this message was delivered.
        if let Ok(mut state) = barrier.state.try_lock() {
            barrier.advance(self, &mut state);
        }
    }
}

impl Barrier {
    /// Makes progress as far as the messages allow.
    fn advance(&self, engine: &Collectives, state: &mut State) {
        let epoch = state.epoch;
        let Phase::Notified { team, known, round, is_round_sent } = &mut state.phase else { return };
        let (members, me) = (team.size(), team.me());
        let endpoint = &engine.endpoint;
        // Members are counted by the size of the team.
        let peer_of =
            |member: u32| endpoint.layout().peer_of_rank(team.rank_of(member).unwrap_or(engine.rank()));
        while 1u64 << *round < u64::from(members) {
            let step = 1u32 << *round;
            if !*is_round_sent {
                let call = Call::of_all(Kind::Barrier);
                let word = known.encode(epoch);
                let words = Key::of_team(team.number()).words(call, *round as u32, PostKind::Barrier, word);
                let to = peer_of(((u64::from(me) + u64::from(step)) % u64::from(members)) as u32);
                match endpoint.try_request(to, HANDLER, &words, Payload::Short) {
                    Ok(Sent::Accepted) => *is_round_sent = true,
                    Ok(Sent::Busy) => return,
                    Err(error) => return endpoint.fail_of(to, error),
                }
            }
            let heard = lock(&self.heard)[(epoch & 1) as usize][*round];
            let Some((from, word)) = heard.filter(|(_, word)| BarrierName::decode(*word).0 == epoch) else {
                return;
            };
            if from != peer_of((me + (members - step)) % members) {
                let what = format!("a message of round {round} of a barrier, which another member sends");
                endpoint.fail(RmaError::Protocol { peer: Some(from), what });
                return;
            }
            *known = known.with(BarrierName::decode(word).1);
            *round += 1;
            *is_round_sent = false;
        }
        state.phase = Phase::Complete(*known);
        // Other images of this rank may wait for it while it was this thread, not a message, that completed it.
        endpoint.notify_local();
    }

    pub(super) fn notify(&self, team: &Arc<Team>, name: BarrierName) -> Result<()> {
        let mut state = lock(&self.state);
        if matches!(state.phase, Phase::Notified { .. } | Phase::Complete(_)) {
            let what = "the barrier of a team: notify was called twice without a wait";
            return Err(RmaError::Usage(what.into()));
        }
        state.epoch += 1;
        state.phase = Phase::Notified { team: team.clone(), known: name, round: 0, is_round_sent: false };
        self.advance(&team.engine, &mut state);
        Ok(())
    }

    /// The name of a barrier that is complete; none while it is not.
    pub(super) fn passed(&self, engine: &Collectives) -> Result<Option<BarrierName>> {
        let mut state = lock(&self.state);
        self.advance(engine, &mut state);
        match state.phase {
            Phase::Complete(name) => {
                state.phase = Phase::Passed(name);
                Ok(Some(name))
            }
            Phase::Notified { .. } => Ok(None),
            Phase::Never | Phase::Passed(_) => {
                let what = "the barrier of a team: wait or try was called without a notify";
                Err(RmaError::Usage(what.into()))
            }
        }
    }

    /// The name of the last one, if it was passed.
    pub(super) fn result(&self) -> Option<BarrierName> {
        match lock(&self.state).phase {
            Phase::Passed(name) => Some(name),
            _ => None,
        }
    }
}
