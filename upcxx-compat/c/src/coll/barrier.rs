//! Barriers of teams as C calls them: with numbers and flags, by ranks or by images (see [`BarrierName`]).

use super::lock;
use super::team::Team;
use crate::am;
use crate::code;
use crate::fatal::fail;
use libc::c_int;
use std::collections::HashMap;
use vgas_rma::endpoint::BarrierName;

/// `GASNET_BARRIERFLAG_ANONYMOUS`, which is also in `GASNET_BARRIERFLAG_UNNAMED`.
const ANONYMOUS: c_int = 1;
/// `GASNET_BARRIERFLAG_MISMATCH`.
const MISMATCH: c_int = 2;
/// `GASNET_BARRIERFLAG_IMAGES`.
const IMAGES: c_int = 4;

/// The name that a caller gives a barrier.
fn name_of(id: c_int, flags: c_int) -> BarrierName {
    if flags & MISMATCH != 0 {
        BarrierName::Mismatch
    } else if flags & ANONYMOUS != 0 {
        BarrierName::Anonymous
    } else {
        BarrierName::Named(id as u32)
    }
}

fn notify(team: &Team, name: BarrierName) {
    team.ranks().barrier_notify(name).unwrap_or_else(|error| fail(error));
}

/// The name of a barrier that is complete; none while it is not.
fn passed(team: &Team) -> Option<BarrierName> {
    team.ranks().barrier_try().unwrap_or_else(|error| fail(error))
}

/// Returns the code for a rank that passes the barrier as `name`.
fn code_of(agreed: BarrierName, name: BarrierName) -> c_int {
    if agreed.with(name) == BarrierName::Mismatch { code::BARRIER_MISMATCH } else { code::OK }
}

/// Progress of this rank's images in barriers of images. The last of them to come notifies for all; the name
/// under which they passed is kept until the last has left. An image can be one barrier ahead of another, so
/// two rounds are enough.
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
    /// Combined name of the images that have come; in the end, of all ranks.
    name: Option<BarrierName>,
    is_passed: bool,
}

fn notify_as_image(team: &Team, name: BarrierName) {
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

fn passed_as_image(team: &Team) -> Option<BarrierName> {
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

fn notify_with(team: &Team, id: c_int, flags: c_int) {
    let name = name_of(id, flags);
    if flags & IMAGES != 0 { notify_as_image(team, name) } else { notify(team, name) }
}

fn try_with(team: &Team, id: c_int, flags: c_int) -> Option<c_int> {
    let agreed = if flags & IMAGES != 0 { passed_as_image(team) } else { passed(team) };
    agreed.map(|agreed| code_of(agreed, name_of(id, flags)))
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
    let team = unsafe { Team::of(team) };
    notify_with(&team, id, flags);
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
    match team.ranks().barrier_result() {
        Some(BarrierName::Named(name)) => {
            if !id.is_null() {
                // SAFETY: rule 1.
                unsafe { id.write(name as c_int) };
            }
            0
        }
        _ => 1,
    }
}
