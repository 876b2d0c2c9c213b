//! The split-phase barrier (GASNet 1.8, 3.5).

use crate::am;
use crate::code;
use crate::fatal::fail;
use crate::job;
use libc::c_int;
use vgas_rma::endpoint::{BarrierName, BarrierOutcome};

/// `GASNET_BARRIERFLAG_ANONYMOUS`.
const ANONYMOUS: c_int = 1;
/// `GASNET_BARRIERFLAG_MISMATCH`.
const MISMATCH: c_int = 2;

fn name(id: c_int, flags: c_int) -> BarrierName {
    if flags & MISMATCH != 0 {
        BarrierName::Mismatch
    } else if flags & ANONYMOUS != 0 {
        BarrierName::Anonymous
    } else {
        BarrierName::Named(id as u32)
    }
}

fn code_of(outcome: BarrierOutcome) -> c_int {
    match outcome {
        BarrierOutcome::Matched => code::OK,
        BarrierOutcome::Mismatch => code::BARRIER_MISMATCH,
    }
}

/// `gasnet_barrier_notify`. What was put into relaxed segments before is visible everywhere after the barrier.
#[unsafe(no_mangle)]
pub extern "C" fn vgasi_barrier_notify(id: c_int, flags: c_int) {
    let runtime = &job::joined().runtime;
    if let Err(error) = runtime.client().flush_relaxed() {
        fail(error);
    }
    if let Err(error) = runtime.endpoint().barrier_notify(name(id, flags)) {
        fail(error);
    }
}

/// `gasnet_barrier_wait`.
#[unsafe(no_mangle)]
pub extern "C" fn vgasi_barrier_wait(id: c_int, flags: c_int) -> c_int {
    match job::joined().runtime.endpoint().barrier_wait(name(id, flags)) {
        Ok(outcome) => code_of(outcome),
        Err(error) => fail(error),
    }
}

/// `gasnet_barrier_try`.
#[unsafe(no_mangle)]
pub extern "C" fn vgasi_barrier_try(id: c_int, flags: c_int) -> c_int {
    match job::joined().runtime.endpoint().barrier_try(name(id, flags)) {
        Ok(Some(outcome)) => code_of(outcome),
        Ok(None) => {
            // Clients try in loops: the rank that is missing may need this core.
            am::vgasi_poll();
            code::NOT_READY
        }
        Err(error) => fail(error),
    }
}

/// `gasnet_barrier_result`: 0, and its name, if the last barrier had one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vgasi_barrier_result(id: *mut c_int) -> c_int {
    let Some(BarrierName::Named(name)) = job::joined().runtime.endpoint().barrier_result() else { return 1 };
    if !id.is_null() {
        // SAFETY: rule 1: the client's variable.
        unsafe { id.write(name as c_int) };
    }
    0
}
