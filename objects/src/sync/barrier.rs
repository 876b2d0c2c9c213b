//! Barriers of tasks and ranks.

use super::wait::{self, Meets};
use crate::heap::{DBox, ObjectError, cannot_be_had, job, lost_node, place_of};
use crate::service::barriers::{Answer, BarrierService, Request};
use crate::task::meet;
use crate::{Portable, Shareable};
use std::panic::Location;
use vgas::NodeId;

/// A barrier for a fixed number of parties, reusable: as [`std::sync::Barrier`]. 32 bytes, shareable. To come
/// to it is a message and its answer, when all have come. A waiting thread sleeps, and serves messages
/// meanwhile.
///
/// ```no_run
/// # use vgas_objects::{scope, task, sync::DBarrier};
/// let barrier = DBarrier::new(3);
/// scope(|scope| {
///     for _ in 0..3 {
///         let _ = scope.spawn(task!(|barrier: &DBarrier, _n: ()| -> bool { barrier.wait().is_leader() }), &barrier, ());
///     }
/// });
/// ```
#[derive(Debug, Portable, Shareable)]
pub struct DBarrier {
    /// Its address is the barrier's name.
    name: DBox<u64>,
    parties: u32,
    meets: Meets,
}

/// That all have come to a [`DBarrier`].
#[derive(Clone, Copy, Debug)]
pub struct DBarrierWaitResult(bool);

impl DBarrierWaitResult {
    /// True for one of those that waited: the last that came.
    pub fn is_leader(&self) -> bool {
        self.0
    }
}

impl DBarrier {
    /// Makes a barrier of `parties`, on this rank's node.
    ///
    /// # Panics
    /// As [`DBox::new`].
    #[track_caller]
    pub fn new(parties: usize) -> Self {
        meet();
        Self { name: DBox::new(0), parties: parties.min(u32::MAX as usize) as u32, meets: Meets }
    }

    /// Waits until all parties have come.
    ///
    /// # Panics
    /// If the job has failed; [`DBarrier::try_wait`] returns the error instead.
    #[track_caller]
    pub fn wait(&self) -> DBarrierWaitResult {
        match self.try_wait() {
            Ok(passed) => passed,
            Err(error) => panic!("{error}"),
        }
    }

    /// [`DBarrier::wait`].
    ///
    /// # Errors
    /// If the job has failed, or there is no heap; in a job that continues without a lost node, from then on
    /// ([`ObjectError::Lost`]): parties still to come may have been there.
    #[track_caller]
    pub fn try_wait(&self) -> Result<DBarrierWaitResult, ObjectError> {
        let word = DBox::word(&self.name);
        let (at, here) = (place_of(word)?, Location::caller());
        let node = job()?.layout().node_of(at.rank);
        let request = Request::Come { name: word.address(), parties: self.parties };
        let lost = |error| cannot_be_had::<Self>(error, at, here);
        match wait::call::<BarrierService>(node, &request).map_err(lost)? {
            Answer::Passed(is_leader) => Ok(DBarrierWaitResult(is_leader)),
            Answer::Lost(node) => Err(lost(lost_node(NodeId(node)))),
            Answer::Failed => Err(ObjectError::Usage(format!(
                "there is no barrier at {word:?} of {} parties",
                self.parties
            ))),
        }
    }
}
