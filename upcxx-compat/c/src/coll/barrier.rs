//! Barriers of teams: split in two, with names that must match, as those of all ranks are (GASNet 1.8, 3.5).
//!
//! Members agree by dissemination: in round k each tells the one 2^k further, in one short message, what it knows of the
//! name. A member can be at most one barrier ahead of another, so a place by parity and round is enough for what is heard.

use super::post::{Key, What, lock};
use super::team::Team;
use crate::am;
use crate::code;
use crate::fatal::{fail, fatal};
use crate::job;
use libc::c_int;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use vgas_rma::conduit::Sent;
use vgas_rma::endpoint::Token;
use vgas_rma::message::Payload;
use vgas_rma::{Peer, RmaError};

/// Rounds at most: members are counted by 32 bits.
const ROUNDS_MAX: usize = 32;

/// `GASNET_BARRIERFLAG_ANONYMOUS`, which is also in `GASNET_BARRIERFLAG_UNNAMED`.
const ANONYMOUS: c_int = 1;
/// `GASNET_BARRIERFLAG_MISMATCH`.
const MISMATCH: c_int = 2;
/// `GASNET_BARRIERFLAG_IMAGES`.
const IMAGES: c_int = 4;

/// What is known of a barrier's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name {
    /// Goes with any.
    Anonymous,
    /// Goes with the same.
    Is(i32),
    /// Goes with none.
    Mismatch,
}

impl Name {
    fn of(id: c_int, flags: c_int) -> Self {
        if flags & MISMATCH != 0 {
            Self::Mismatch
        } else if flags & ANONYMOUS != 0 {
            Self::Anonymous
        } else {
            Self::Is(id)
        }
    }

    /// What two members' names are together; the same in any order, and if a name is counted twice.
    fn with(self, other: Self) -> Self {
        match (self, other) {
            (Self::Anonymous, name) | (name, Self::Anonymous) => name,
            (Self::Is(one), Self::Is(other)) if one == other => self,
            _ => Self::Mismatch,
        }
    }

    /// An arrival as one word: epoch in bits 34.., kind in 32..34, name below.
    fn encode(self, epoch: u64) -> u64 {
        let (kind, id) = match self {
            Self::Anonymous => (0, 0),
            Self::Is(id) => (1, id),
            Self::Mismatch => (2, 0),
        };
        epoch << 34 | kind << 32 | u64::from(id as u32)
    }

    /// What no member would send is a mismatch.
    fn decode(word: u64) -> (u64, Self) {
        let name = match word >> 32 & 3 {
            0 => Self::Anonymous,
            1 => Self::Is(word as u32 as i32),
            _ => Self::Mismatch,
        };
        (word >> 34, name)
    }
}

/// What a member said in a round: who it was, and its word.
type Heard = Option<(Peer, u64)>;

/// A team's barrier at this rank.
#[derive(Default)]
pub(super) struct Barrier {
    state: Mutex<State>,
    /// What was heard, and of whom, by parity of the epoch and by round.
    heard: Mutex<[[Heard; ROUNDS_MAX]; 2]>,
}

#[derive(Default)]
struct State {
    /// Barriers notified.
    epoch: u64,
    phase: Phase,
}

/// Where a barrier is, at this rank.
#[derive(Default)]
enum Phase {
    /// There was none.
    #[default]
    Never,
    /// `notify` was called, and not all members have come.
    Notified {
        team: Arc<Team>,
        /// What is known of the name.
        known: Name,
        round: usize,
        is_round_sent: bool,
    },
    /// All have come; `wait` was not called.
    Complete(Name),
    /// The last one's name.
    Passed(Name),
}

/// Barriers by the number of their team: a message may come before this rank knows of the team.
static BARRIERS: Mutex<Option<HashMap<u64, Arc<Barrier>>>> = Mutex::new(None);

/// The barrier of the team with this number.
pub(super) fn of_team(number: u64) -> Arc<Barrier> {
    lock(&BARRIERS).get_or_insert_default().entry(number).or_default().clone()
}

/// Nobody uses the team any more.
pub(super) fn forget(number: u64) {
    lock(&BARRIERS).get_or_insert_default().remove(&number);
}

/// A member has come: message of a round, with what it knows.
pub(super) fn on_arrived(token: &Token<'_>, team: u64, round: u32, word: u64) {
    if round as usize >= ROUNDS_MAX {
        return token.refuse(format!("a message of round {round} of a barrier"));
    }
    let barrier = of_team(team);
    lock(&barrier.heard)[(Name::decode(word).0 & 1) as usize][round as usize] = Some((token.from(), word));
    // Whoever has the state looks again once this message was delivered.
    if let Ok(mut state) = barrier.state.try_lock() {
        barrier.advance(&mut state);
    }
}

impl Barrier {
    /// Goes as far as what was heard allows.
    fn advance(&self, state: &mut State) {
        let epoch = state.epoch;
        let Phase::Notified { team, known, round, is_round_sent } = &mut state.phase else { return };
        let (members, me) = (team.size(), team.me());
        let endpoint = job::joined().runtime.endpoint();
        let peer_of = |member: u32| job::joined().runtime.layout().peer_of_rank(team.rank_of(member));
        while 1u64 << *round < u64::from(members) {
            let step = 1u32 << *round;
            if !*is_round_sent {
                let key = Key { team: team.number(), sequence: 0, number: 0 };
                let words = key.words(*round as u32, What::Barrier, known.encode(epoch));
                let to = peer_of(((u64::from(me) + u64::from(step)) % u64::from(members)) as u32);
                match endpoint.try_request(to, super::HANDLER, &words, Payload::Short) {
                    Ok(Sent::Accepted) => *is_round_sent = true,
                    Ok(Sent::Busy) => return,
                    Err(error) => fail(error),
                }
            }
            let heard = lock(&self.heard)[(epoch & 1) as usize][*round];
            let Some((from, word)) = heard.filter(|(_, word)| Name::decode(*word).0 == epoch) else { return };
            if from != peer_of((me + (members - step)) % members) {
                let what = format!("a message of round {round} of a barrier, which another member sends");
                endpoint.fail(RmaError::Protocol { peer: Some(from), what });
                return;
            }
            *known = known.with(Name::decode(word).1);
            *round += 1;
            *is_round_sent = false;
        }
        state.phase = Phase::Complete(*known);
        // Other images of this rank may wait for it while it was this thread, not a message, that completed it.
        endpoint.notify_local();
    }
}

fn notify(team: &Arc<Team>, name: Name) {
    let mut state = lock(&team.barrier.state);
    if matches!(state.phase, Phase::Notified { .. } | Phase::Complete(_)) {
        fatal("gasnet_coll_barrier_notify was called twice without a wait");
    }
    state.epoch += 1;
    state.phase = Phase::Notified { team: team.clone(), known: name, round: 0, is_round_sent: false };
    team.barrier.advance(&mut state);
}

/// The name of a barrier that is complete; none while it is not.
fn passed(team: &Team) -> Option<Name> {
    let mut state = lock(&team.barrier.state);
    team.barrier.advance(&mut state);
    match state.phase {
        Phase::Complete(name) => {
            state.phase = Phase::Passed(name);
            Some(name)
        }
        Phase::Notified { .. } => None,
        Phase::Never | Phase::Passed(_) => {
            fatal("gasnet_coll_barrier_wait or _try was called without a notify");
        }
    }
}

/// What a rank is told that takes the barrier for `name`.
fn code_of(agreed: Name, name: Name) -> c_int {
    if agreed.with(name) == Name::Mismatch { code::BARRIER_MISMATCH } else { code::OK }
}

/// Where the images of this rank are in barriers of images. The last of them to come notifies for all; the name under which
/// they passed is kept until the last has left. An image can be one barrier ahead of another, so two rounds are enough.
#[derive(Default)]
pub(super) struct ImageBarrier {
    rounds: [Round; 2],
    /// Barriers that each image has notified, by local image.
    notified: HashMap<u32, u64>,
}

#[derive(Default)]
struct Round {
    arrived: u32,
    left: u32,
    /// What those who have come say together; in the end, what all ranks do.
    name: Option<Name>,
    is_passed: bool,
}

fn notify_as_image(team: &Arc<Team>, name: Name) {
    let mut images = lock(&team.image_barrier);
    let count = images.notified.entry(team.local_image()).or_default();
    *count += 1;
    let parity = (*count & 1) as usize;
    let round = &mut images.rounds[parity];
    round.arrived += 1;
    let together = round.name.map_or(name, |others| others.with(name));
    round.name = Some(together);
    if round.arrived == team.local_images() {
        notify(team, together);
    }
}

fn passed_as_image(team: &Team) -> Option<Name> {
    let mut images = lock(&team.image_barrier);
    let parity = (images.notified.get(&team.local_image())? & 1) as usize;
    let round = &mut images.rounds[parity];
    if !round.is_passed {
        if round.arrived < team.local_images() {
            return None;
        }
        round.name = Some(passed(team)?);
        round.is_passed = true;
    }
    let name = round.name;
    round.left += 1;
    if round.left == team.local_images() {
        *round = Round::default();
    }
    name
}

fn notify_with(team: &Arc<Team>, id: c_int, flags: c_int) {
    let name = Name::of(id, flags);
    if flags & IMAGES != 0 { notify_as_image(team, name) } else { notify(team, name) }
}

fn try_with(team: &Team, id: c_int, flags: c_int) -> Option<c_int> {
    let agreed = if flags & IMAGES != 0 { passed_as_image(team) } else { passed(team) };
    agreed.map(|agreed| code_of(agreed, Name::of(id, flags)))
}

fn wait_with(team: &Team, id: c_int, flags: c_int) -> c_int {
    let mut outcome = None;
    super::export::wait_until(|| {
        outcome = outcome.or_else(|| try_with(team, id, flags));
        outcome.is_some()
    });
    outcome.unwrap_or(code::OK)
}

/// `gasnet_coll_barrier_notify`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasnete_coll_barrier_notify(team: *const Team, id: c_int, flags: c_int) {
    // SAFETY: as the caller promised.
    notify_with(&unsafe { Team::of(team) }, id, flags);
}

/// `gasnet_coll_barrier_wait`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasnete_coll_barrier_wait(team: *const Team, id: c_int, flags: c_int) -> c_int {
    // SAFETY: as the caller promised.
    let team = unsafe { Team::of(team) };
    wait_with(&team, id, flags)
}

/// `gasnet_coll_barrier_try`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasnete_coll_barrier_try(team: *const Team, id: c_int, flags: c_int) -> c_int {
    am::vgasi_poll();
    // SAFETY: as the caller promised.
    let team = unsafe { Team::of(team) };
    try_with(&team, id, flags).unwrap_or(code::NOT_READY)
}

/// `gasnet_coll_barrier`: notify and wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasnete_coll_barrier(team: *const Team, id: c_int, flags: c_int) -> c_int {
    // SAFETY: as the caller promised.
    let team = unsafe { Team::of(team) };
    notify_with(&team, id, flags);
    wait_with(&team, id, flags)
}

/// `gasnet_coll_barrier_result`: whether the last barrier was anonymous, and its name if it was not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasnete_coll_barrier_result(team: *const Team, id: *mut c_int) -> c_int {
    // SAFETY: as the caller promised.
    let team = unsafe { Team::of(team) };
    let state = lock(&team.barrier.state);
    match state.phase {
        Phase::Passed(Name::Is(name)) => {
            if !id.is_null() {
                // SAFETY: rule 1.
                unsafe { id.write(name) };
            }
            0
        }
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_combine_in_any_order() {
        let names = [Name::Anonymous, Name::Is(1), Name::Is(-2), Name::Mismatch];
        for one in names {
            assert_eq!(one.with(one), one);
            for epoch in [1, 2, 1 << 29] {
                assert_eq!(Name::decode(one.encode(epoch)), (epoch, one));
            }
            for other in names {
                assert_eq!(one.with(other), other.with(one));
                for third in names {
                    assert_eq!(one.with(other).with(third), one.with(other.with(third)));
                }
            }
        }
        assert_eq!(Name::Is(1).with(Name::Is(-2)), Name::Mismatch);
        assert_eq!(Name::Is(1).with(Name::Anonymous), Name::Is(1));
    }
}
