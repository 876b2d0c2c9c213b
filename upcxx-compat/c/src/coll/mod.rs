//! Collectives and teams of C (`gasnet_coll.h`), on those of [`vgas_rma::collective`].
//!
//! * `team`: the members: ranks, of which those of the team of all may have several *images* (threads that
//!   take part on their own).
//! * `call`: the arguments of all images of this rank become one operation, which begins when all have come.
//! * `reduction`: the client's functions; `barrier`: barriers with numbers and flags; `export`: the functions of the header.
//!
//! A thread that waits for one operation moves them all. Data stays in the client's memory, and is copied
//! aside only if it must change before it has left: in reductions, for several images, in place. Nothing is
//! awaited but what the synchronisation flags and the data ask for: the root of a broadcast does not wait for
//! anybody without `GASNET_COLL_OUT_ALLSYNC`.

pub mod barrier;
mod call;
pub mod export;
mod reduction;
pub mod team;

pub(crate) use team::prepare;

use crate::job::Raw as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, even after a panic elsewhere (which ends the job).
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes progress on all operations: called when the client polls or waits.
pub(crate) fn progress() {
    crate::job::joined().runtime.collectives().progress();
}

/// Flags of `gasnet_coll.h`.
mod flag {
    pub const AGGREGATE: i32 = 1 << 8;
    pub const IN_ALLSYNC: i32 = 1 << 2;
    pub const OUT_ALLSYNC: i32 = 1 << 5;
    pub const SINGLE: i32 = 1 << 6;
    pub const EXCLUSIVE_SCAN: i32 = 1 << 17;
    pub const NO_IMAGES: i32 = 1 << 19;
}
