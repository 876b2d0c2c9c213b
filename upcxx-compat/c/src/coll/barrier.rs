//! Barriers of teams: split in two, with names that must match, as those of all ranks are (GASNet 1.8, 3.5).

use super::algorithm;
use super::operation::{self, Exchange, Operation, Where};
use super::post::lock;
use super::team::{Team, sequence};
use crate::code;
use crate::fatal::{fail, fatal};
use crate::job;
use libc::c_int;
use std::sync::{Arc, Mutex};

/// `GASNET_BARRIERFLAG_ANONYMOUS`; `GASNET_BARRIERFLAG_UNNAMED` promises that everybody gives it.
const ANONYMOUS: c_int = 1;
/// `GASNET_BARRIERFLAG_MISMATCH`.
const MISMATCH: c_int = 2;
/// `GASNET_BARRIERFLAG_UNNAMED`.
const UNNAMED: c_int = 4;

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
        } else if flags & (ANONYMOUS | UNNAMED) != 0 {
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
        /// The name given to `notify`.
        name: Name,
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
    *phase = Phase::Notified { operation: operation.clone(), name, outcome: outcome.clone() };
    drop(phase);
    let exchange = Exchange { team: team.clone(), operation: operation.clone() };
    let run = async move {
        let agreed =
            algorithm::agree(&exchange, name, Name::with, |name| name.to_bytes(), Name::from_bytes).await;
        *lock(&outcome) = agreed;
    };
    operation.begin(Box::pin(run), false);
}

/// The outcome of a barrier that is complete; none while it is not.
fn passed(team: &Team, name: Name) -> Option<c_int> {
    let mut phase = lock(&team.barrier);
    let Phase::Notified { operation, name: notified, outcome } = &*phase else {
        fatal("gasnet_coll_barrier_wait or _try was called without a notify");
    };
    operation.step(Where::Client);
    if !operation.is_done() {
        return None;
    }
    let agreed = *lock(outcome);
    let is_same = name == *notified;
    *phase = Phase::Passed(agreed);
    let is_match = is_same && agreed != Name::Mismatch;
    Some(if is_match { code::OK } else { code::BARRIER_MISMATCH })
}

fn wait(team: &Team, name: Name) -> c_int {
    let mut outcome = None;
    super::export::wait_until(|| {
        outcome = outcome.or_else(|| passed(team, name));
        outcome.is_some()
    });
    outcome.unwrap_or(code::OK)
}

/// `gasnet_coll_barrier_notify`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasnete_coll_barrier_notify(team: *const Team, id: c_int, flags: c_int) {
    // SAFETY: as the caller promised.
    notify(&unsafe { Team::of(team) }, Name::of(id, flags));
}

/// `gasnet_coll_barrier_wait`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasnete_coll_barrier_wait(team: *const Team, id: c_int, flags: c_int) -> c_int {
    // SAFETY: as the caller promised.
    let team = unsafe { Team::of(team) };
    wait(&team, Name::of(id, flags))
}

/// `gasnet_coll_barrier_try`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasnete_coll_barrier_try(team: *const Team, id: c_int, flags: c_int) -> c_int {
    if let Err(error) = job::joined().runtime.endpoint().poll() {
        fail(error);
    }
    // SAFETY: as the caller promised.
    let team = unsafe { Team::of(team) };
    passed(&team, Name::of(id, flags)).unwrap_or(code::NOT_READY)
}

/// `gasnet_coll_barrier`: notify and wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasnete_coll_barrier(team: *const Team, id: c_int, flags: c_int) -> c_int {
    // SAFETY: as the caller promised.
    let team = unsafe { Team::of(team) };
    notify(&team, Name::of(id, flags));
    wait(&team, Name::of(id, flags))
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
