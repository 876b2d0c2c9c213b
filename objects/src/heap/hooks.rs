//! Hooks: the calls that the heap makes into tasks, which stand above it.

#![forbid(unsafe_code)]

use super::elsewhere::SlotAnswer;
use super::error::ObjectError;
use crate::slab::Class;
use std::time::Instant;
use vgas::Rank;

/// Waits for a condition that messages bring about; false at the deadline.
type WaitUntil = fn(Option<Instant>, &mut dyn FnMut() -> bool) -> Result<bool, ObjectError>;

/// The calls, set when the heap is attached.
#[derive(Debug)]
pub(crate) struct Hooks {
    /// Wakes the thread that serves other ranks while this rank's workers compute: something is to be dropped for them, or to be answered. Also
    /// called in handlers.
    pub serve_others: fn(),
    /// Asks a rank for a slot, and waits for the answer; none if it cannot be asked now, or is lost.
    pub request_slot: fn(Rank, Class) -> Result<Option<SlotAnswer>, ObjectError>,
    /// Waits, while another worker runs tasks in place of this one.
    pub wait_until: WaitUntil,
}
