//! The C interface: support for the inline functions of `vgasnet.h` and `gasnet.h` (in `include/`) when
//! something must be looked up or awaited.
//!
//! The headers hold the fast paths: a put or get of a co-located pinned segment is a comparison and a copy, compiled
//! into the client. The functions here have the prefix `vgasi_`, are internal to the headers of the same version, and
//! assume what the headers have checked. One process has one job ([`job`]); C has no place for a second.
//!
//! # Rules for the unsafe code of this crate
//!
//! 1. *C promises what the specification demands of it*: a pointer with a length is valid for that length until the
//!    operation has ended, a string ends with a zero, a token is used in the handler it was given to, and a handle is
//!    synchronised once. A pointer that the specification allows to be null is checked.
//! 2. *Handles and tables cross the border as raw boxes*: made by `Box::into_raw`, taken back exactly once, by the
//!    function that ends them.
//! 3. *Handlers are C functions of the registered number of arguments.* The category and the count of the message choose
//!    the type they are called with; that the client registered such a function is its promise (GASNet 1.8, 2.3.5).
//! 4. *Exported statics are atomics*, written before any reader may call, and never shrunk or freed.
//! 5. *Segment memory is shared*: only copied to and from (rules of `vgas_shm`).
//!
//! A panic must not cross the border: functions exported with the C ABI abort on one, which ends the job (`crash::tell_panics`).

#![deny(clippy::print_stdout, clippy::print_stderr)] // See `vgas_rma::say`.
#![allow(clippy::missing_safety_doc)] // Rule 1 holds for every exported function.

pub mod am;
pub mod barrier;
mod call;
pub mod coll;
mod crash;
pub mod environment;
pub mod exit;
mod fatal;
pub mod further;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
pub mod handle;
pub mod hit;
pub mod job;
mod launch;
pub mod lock;
mod log;
mod long;
mod object;
mod runs;
mod section;
pub mod segment;
pub mod tiered;
pub mod transfer;
pub mod update;
pub mod vis;

/// Codes of `gasnet.h`, as functions return them.
pub mod code {
    /// Success.
    pub const OK: i32 = 0;
    /// Used before `gasnet_init`.
    pub const NOT_INIT: i32 = 10001;
    /// A problem with a resource.
    pub const RESOURCE: i32 = 10002;
    /// An argument that the specification forbids.
    pub const BAD_ARG: i32 = 10003;
    /// Not complete yet.
    pub const NOT_READY: i32 = 10004;
    /// The names given to a barrier did not match.
    pub const BARRIER_MISMATCH: i32 = 10005;
}
