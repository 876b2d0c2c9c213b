//! The split-phase barrier (GASNet 1.8, 3.5).

use crate::am;
use crate::code;
use crate::fatal::fail;
use crate::job::{self, Raw as _};
use libc::c_int;
use vgas_rma::conduit::smp::CARRIED_BYTES_MAX;
use vgas_rma::endpoint::{BarrierName, BarrierOutcome};
use vgas_shm::copy::copy;

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

/// `gasnet_barrier_notify`. Earlier puts into relaxed segments are visible everywhere after the barrier.
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

/// `vgasnet_barrier_exchange`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vgasi_barrier_exchange(from: *const u8, bytes: usize, to: *mut u8) -> c_int {
    let runtime = &job::joined().runtime;
    if bytes > CARRIED_BYTES_MAX || (bytes > 0 && (from.is_null() || to.is_null())) {
        return code::BAD_ARG;
    }
    let mut own = vec![0; bytes];
    // SAFETY: rule 1, and rule 5: copied, not borrowed.
    unsafe { copy(from, own.as_mut_ptr(), bytes) };
    match runtime.barrier_with(&own) {
        Ok(all) if all.iter().any(|other| other.len() != bytes) => code::BAD_ARG,
        Ok(all) => {
            for (rank, other) in all.iter().enumerate() {
                // SAFETY: rule 1: room for as many bytes of each rank.
                unsafe { copy(other.as_ptr(), to.add(rank * bytes), bytes) };
            }
            code::OK
        }
        Err(vgas::Error::Rma(vgas_rma::RmaError::Usage(_))) => code::BARRIER_MISMATCH,
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
