//! Barriers of teams: split in two, with names that must match, as those of all ranks are (GASNet 1.8, 3.5).

use super::algorithm;
use super::operation::{self, Exchange, Operation, Where};
use super::post::lock;
use super::team::{Team, sequence};
use crate::code;
use crate::fatal::{fail, fatal};
use crate::job;
use libc::c_int;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

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

    fn to_bytes(self) -> Vec<u8> {
        let (kind, id) = match self {
            Self::Anonymous => (0, 0),
            Self::Is(id) => (1, id),
            Self::Mismatch => (2, 0),
        };
        let mut bytes = vec![kind];
        bytes.extend_from_slice(&i32::to_le_bytes(id));
        bytes
    }

    /// What no member would send is a mismatch.
    fn from_bytes(bytes: &[u8]) -> Self {
        match *bytes {
            [0, _, _, _, _] => Self::Anonymous,
            [1, a, b, c, d] => Self::Is(i32::from_le_bytes([a, b, c, d])),
            _ => Self::Mismatch,
        }
    }
}

/// Where a team's barrier is, at this rank.
#[derive(Default)]
pub(super) enum Phase {
    /// Not begun since the last one, of which the outcome is kept.
    #[default]
    Never,
    /// `notify` was called, `wait` was not.
    Notified {
        /// The meeting of the members.
        operation: Arc<Operation>,
        /// The name of all, when the operation is done.
        outcome: Arc<Mutex<Name>>,
    },
    /// The last one's name.
    Passed(Name),
}

fn notify(team: &Arc<Team>, name: Name) {
    let mut phase = lock(&team.barrier);
    if matches!(*phase, Phase::Notified { .. }) {
        fatal("gasnet_coll_barrier_notify was called twice without a wait");
    }
    let operation = operation::find(team.next_key(sequence::BARRIERS, 0));
    let outcome = Arc::new(Mutex::new(name));
    *phase = Phase::Notified { operation: operation.clone(), outcome: outcome.clone() };
    drop(phase);
    let exchange = Exchange { team: team.clone(), operation: operation.clone() };
    let run = async move {
        let agreed =
            algorithm::agree(&exchange, name, Name::with, |name| name.to_bytes(), Name::from_bytes).await;
        *lock(&outcome) = agreed;
    };
    operation.begin(Box::pin(run), false);
}

/// The name of a barrier that is complete; none while it is not.
fn passed(team: &Team) -> Option<Name> {
    let mut phase = lock(&team.barrier);
    let Phase::Notified { operation, outcome } = &*phase else {
        fatal("gasnet_coll_barrier_wait or _try was called without a notify");
    };
    operation.step(Where::Client);
    if !operation.is_done() {
        return None;
    }
    let agreed = *lock(outcome);
    *phase = Phase::Passed(agreed);
    Some(agreed)
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
    if let Err(error) = job::joined().runtime.endpoint().poll() {
        fail(error);
    }
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
    let phase = lock(&team.barrier);
    match *phase {
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
        let names = [Name::Anonymous, Name::Is(1), Name::Is(2), Name::Mismatch];
        for one in names {
            assert_eq!(one.with(one), one);
            assert_eq!(Name::from_bytes(&one.to_bytes()), one);
            for other in names {
                assert_eq!(one.with(other), other.with(one));
                for third in names {
                    assert_eq!(one.with(other).with(third), one.with(other.with(third)));
                }
            }
        }
        assert_eq!(Name::Is(1).with(Name::Is(2)), Name::Mismatch);
        assert_eq!(Name::Is(1).with(Name::Anonymous), Name::Is(1));
    }
}
