//! The functions of `gasnet_coll.h`.

use super::call::{Call, Kind, Places, Rule, start};
use super::flag;
use super::reduction::{self, FunctionEntry};
use super::team::{self, Team};
use crate::am;
use crate::code;
use crate::fatal::{fail, fatal};
use crate::job::{self, Raw as _};
use libc::{c_int, c_void};
use std::cell::RefCell;
use std::sync::Arc;
use vgas_rma::Rank;
use vgas_rma::collective::InFlight;

/// Returns whether an operation is done. If members disagree the job ends.
fn is_done(operation: &InFlight) -> bool {
    operation.outcome().is_some_and(|outcome| outcome.map_err(|error| fail(error)).is_ok())
}

/// An operation that the client has not synchronised, with those that were aggregated with it.
pub struct Started(Vec<InFlight>);

impl Started {
    fn is_done(&self) -> bool {
        self.0.iter().all(is_done)
    }
}

thread_local! {
    /// Operations begun with GASNET_COLL_AGGREGATE, for the handle of the next one that is not. Leaked, so that it is there
    /// until the last destructor of a thread that ends.
    static AGGREGATED: &'static RefCell<Vec<InFlight>> = Box::leak(Box::default());
}

/// A handle of the client: null, or a box.
type CollectiveHandle = *mut Started;

/// The handle of an operation and of those that were aggregated before it; null when they are done, and for one that is to be
/// aggregated.
fn handle_of(begun: Option<InFlight>, flags: c_int) -> CollectiveHandle {
    let part = match begun {
        Some(InFlight::Messages(operation)) => {
            Some(InFlight::Messages(operation)).filter(|part| !is_done(part))
        }
        board => board,
    };
    if flags & flag::AGGREGATE != 0 {
        AGGREGATED.with(|aggregated| aggregated.borrow_mut().extend(part));
        return std::ptr::null_mut();
    }
    let mut parts = AGGREGATED.with(|aggregated| aggregated.take());
    parts.extend(part);
    parts.retain(|part| !is_done(part));
    if parts.is_empty() { std::ptr::null_mut() } else { Box::into_raw(Box::new(Started(parts))) }
}

/// Waits for something that operations bring about.
pub(super) fn wait_until(mut condition: impl FnMut() -> bool) {
    let waited = job::joined().runtime.endpoint().wait_until(None, || {
        super::progress();
        condition()
    });
    if let Err(error) = waited {
        fail(error);
    }
}

unsafe fn finish(handle: CollectiveHandle) {
    if handle.is_null() {
        return;
    }
    // SAFETY: rule 2: made by `start`, synchronised once.
    let started = unsafe { Box::from_raw(handle) };
    let runtime = &job::joined().runtime;
    for part in &started.0 {
        part.wait(runtime.collectives()).unwrap_or_else(|error| fail(error));
    }
}

/// Takes the handle back if its operation is done.
unsafe fn is_finished(handle: *mut CollectiveHandle) -> bool {
    // SAFETY: rules 1 and 2.
    unsafe {
        let Some(started) = (*handle).as_ref() else { return true };
        let is_done = started.is_done();
        if is_done {
            drop(Box::from_raw(std::mem::replace(&mut *handle, std::ptr::null_mut())));
        }
        is_done
    }
}

/// `gasnet_coll_try_sync`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasnete_coll_try_sync(mut handle: CollectiveHandle) -> c_int {
    am::vgasi_poll();
    // SAFETY: as the caller promised.
    if unsafe { is_finished(&mut handle) } { code::OK } else { code::NOT_READY }
}

/// `gasnet_coll_wait_sync`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasnete_coll_wait_sync(handle: CollectiveHandle) {
    // SAFETY: as the caller promised.
    unsafe { finish(handle) }
}

/// Returns the numbers of a table's operations that were not synchronised before, and that are not now.
unsafe fn sweep(handles: *mut CollectiveHandle, count: usize) -> (usize, usize) {
    let (mut before, mut left) = (0, 0);
    for index in 0..count {
        // SAFETY: rule 1: so many handles.
        unsafe {
            let handle = handles.add(index);
            before += usize::from(!(*handle).is_null());
            left += usize::from(!is_finished(handle));
        }
    }
    (before, left)
}

/// `gasnet_coll_try_sync_some`: one was done, or there was none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasnete_coll_try_sync_some(handles: *mut CollectiveHandle, count: usize) -> c_int {
    am::vgasi_poll();
    // SAFETY: as the caller promised.
    let (before, left) = unsafe { sweep(handles, count) };
    if left < before || before == 0 { code::OK } else { code::NOT_READY }
}

/// `gasnet_coll_try_sync_all`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasnete_coll_try_sync_all(handles: *mut CollectiveHandle, count: usize) -> c_int {
    am::vgasi_poll();
    // SAFETY: as the caller promised.
    if unsafe { sweep(handles, count) }.1 == 0 { code::OK } else { code::NOT_READY }
}

/// `gasnet_coll_wait_sync_some`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasnete_coll_wait_sync_some(handles: *mut CollectiveHandle, count: usize) {
    wait_until(|| {
        // SAFETY: as the caller promised.
        let (before, left) = unsafe { sweep(handles, count) };
        left < before || before == 0
    });
}

/// `gasnet_coll_wait_sync_all`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasnete_coll_wait_sync_all(handles: *mut CollectiveHandle, count: usize) {
    // SAFETY: as the caller promised.
    wait_until(|| unsafe { sweep(handles, count) }.1 == 0);
}

/// `gasnet_coll_init`: the images of each rank and which of them this thread is; the functions of reductions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasnete_coll_init(
    images: *const u32,
    my_image: u32,
    functions: *const FunctionEntry,
    function_count: usize,
    _flags: c_int,
) {
    let ranks = job::joined().runtime.ranks() as usize;
    // SAFETY: rule 1: a number for each rank; so many functions.
    let (images, functions) = unsafe {
        let images = (!images.is_null()).then(|| std::slice::from_raw_parts(images, ranks).to_vec());
        let functions = match functions.is_null() || function_count == 0 {
            true => &[],
            false => std::slice::from_raw_parts(functions, function_count),
        };
        (images, functions)
    };
    if images.as_ref().is_some_and(|images| images.contains(&0)) {
        fatal("gasnet_coll_init: every node has at least one image");
    }
    // Images may leave the table to one of them.
    if !functions.is_empty() {
        reduction::register(functions);
    }
    if let Some(images) = images {
        team::set_images(&images, my_image);
    }
}

/// `gasnet_coll_team_split`. Collective over the parent; blocks. The scratch space is not needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasnete_coll_team_split(
    parent: *const Team,
    color: u32,
    position: u32,
    _scratch: *mut c_void,
) -> *const Team {
    // SAFETY: as the caller promised.
    let parent = unsafe { Team::of(parent) };
    Arc::into_raw(team::split(&parent, color, position))
}

/// Makes a team of ranks; this one is at `position`. Collective over them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasnete_coll_team_create(
    count: u32,
    position: u32,
    ranks: *const u32,
    _scratch: *const c_void,
) -> *const Team {
    if count == 0 {
        fatal("gasnete_coll_team_create: a team without members");
    }
    // SAFETY: rule 1: so many ranks.
    let members = unsafe { std::slice::from_raw_parts(ranks, count as usize) };
    let members: Vec<Rank> = members.iter().copied().map(Rank).collect();
    let me = job::joined().runtime.rank();
    if members.get(position as usize) != Some(&me) {
        fatal(format_args!("gasnete_coll_team_create: node {} is not at position {position}", me.0));
    }
    Arc::into_raw(team::create(members))
}

/// Ends the use of a team by this rank, when its operations are done. The team of all stays.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasnete_coll_team_free(team: *const Team) {
    let all = team::gasnete_coll_team_all.load(std::sync::atomic::Ordering::Acquire);
    if !team.is_null() && team != all {
        // SAFETY: rule 2: made by `Arc::into_raw`, freed once.
        drop(unsafe { Arc::from_raw(team) });
    }
}

/// `gasnet_coll_team_rank2node`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasnete_coll_team_rank2node(team: *const Team, position: c_int) -> u32 {
    // SAFETY: as the caller promised.
    unsafe { Team::of(team) }.rank_of(position as u32).0
}

/// `gasnet_coll_team_node2rank`; the job ends if the node is not a member.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasnete_coll_team_node2rank(team: *const Team, node: u32) -> u32 {
    // SAFETY: as the caller promised.
    match unsafe { Team::of(team) }.ranks().member_of(Rank(node)) {
        Some(position) => position,
        None => fatal(format_args!("gasnet_coll_team_node2rank: node {node} is not a member of the team")),
    }
}

/// `gasnet_coll_team_size`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasnete_coll_team_size(team: *const Team) -> u32 {
    // SAFETY: as the caller promised.
    unsafe { Team::of(team) }.size()
}

/// `gasnete_coll_team_mynode`: this rank's position.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasnete_coll_team_myrank(team: *const Team) -> u32 {
    // SAFETY: as the caller promised.
    unsafe { Team::of(team) }.me()
}

/// The collectives that move blocks. The numbers are those of `gasnet_coll.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vgasi_coll_move(
    operation: c_int,
    team: *const Team,
    root: u32,
    to: *mut c_void,
    to_is_list: c_int,
    from: *mut c_void,
    from_is_list: c_int,
    bytes: usize,
    flags: c_int,
) -> CollectiveHandle {
    let kind = match operation {
        0 => Kind::Broadcast { root },
        1 => Kind::Scatter { root },
        2 => Kind::Gather { root },
        3 => Kind::AllGather,
        4 => Kind::AllToAll,
        other => fatal(format_args!("there is no collective {other}")),
    };
    let to = Places::new(to, to_is_list);
    let from = Places::new(from, from_is_list);
    // SAFETY: as the caller promised.
    handle_of(unsafe { start(team, Call { kind, bytes, flags, to, from }) }, flags)
}

/// Reductions (`is_scan` 0) and scans.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vgasi_coll_combine(
    is_scan: c_int,
    team: *const Team,
    root: u32,
    to: *mut c_void,
    to_is_list: c_int,
    from: *mut c_void,
    from_is_list: c_int,
    element_bytes: usize,
    element_count: usize,
    function: i32,
    argument: c_int,
    flags: c_int,
) -> CollectiveHandle {
    let Some(bytes) = element_bytes.checked_mul(element_count) else {
        fatal(format_args!("a reduction over {element_count} elements of {element_bytes} bytes"));
    };
    let rule = Rule { element_bytes, function, argument };
    let kind = if is_scan == 0 { Kind::Reduce { root, rule } } else { Kind::Scan { rule } };
    let to = Places::new(to, to_is_list);
    let from = Places::new(from, from_is_list);
    // SAFETY: as the caller promised.
    handle_of(unsafe { start(team, Call { kind, bytes, flags, to, from }) }, flags)
}
