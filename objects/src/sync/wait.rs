//! Waiting for others: the thread sleeps, messages are served meanwhile, and a worker that waits for long has another in its place.

use crate::heap::{Messages, ObjectError, job};
use crate::task::{BRIEFLY, meet, while_blocked};
use crate::word::Link;
use crate::{Portable, Shareable};
use serde::de::DeserializeOwned;
use std::time::Instant;
use vgas::NodeId;
use vgas::service::{PendingCall, Service};

/// Waits for a condition that messages bring about; false when the time is over before.
pub(crate) fn until(
    deadline: Option<Instant>,
    mut condition: impl FnMut() -> bool,
) -> Result<bool, ObjectError> {
    if condition() {
        return Ok(true);
    }
    let endpoint = job()?.messages();
    let brief = Instant::now() + BRIEFLY;
    let first = deadline.map_or(brief, |deadline| deadline.min(brief));
    let is_so = endpoint.wait_until(Some(first), &mut condition).map_err(vgas::Error::from)?;
    if is_so || deadline == Some(first) {
        return Ok(is_so);
    }
    Ok(while_blocked(|| endpoint.wait_until(deadline, condition)).map_err(vgas::Error::from)?)
}

/// Waits for the answer of a service; none when the time is over before.
pub(super) fn answered<A: DeserializeOwned>(
    call: &mut PendingCall<A>,
    deadline: Option<Instant>,
) -> Result<Option<A>, ObjectError> {
    let mut found = Ok(None);
    until(deadline, || {
        found = call.test();
        !matches!(found, Ok(None))
    })?;
    Ok(found.map_err(vgas::Error::from)?)
}

/// Waits for the answer of a service.
pub(super) fn answer<A: DeserializeOwned>(mut call: PendingCall<A>) -> Result<A, ObjectError> {
    let answer = answered(&mut call, None)?;
    answer.ok_or_else(|| ObjectError::Usage("a call was waited for that has no answer".into()))
}

/// Calls a service of a node, and waits for its answer.
pub(super) fn call<S: Service>(node: NodeId, request: &S::Request) -> Result<S::Answer, ObjectError> {
    answer(job()?.start_call::<S>(node, request)?)
}

/// A value of types by which tasks wait for each other: receiving one is noted.
#[derive(Debug)]
pub(super) struct Meets;

// SAFETY: without bytes. It has no links, but processes where it arrives are to know.
unsafe impl Portable for Meets {
    const HAS_LINKS: bool = true;

    fn links(&self, _: &mut dyn FnMut(&Link)) {
        meet();
    }
}

// SAFETY: without bytes.
unsafe impl Shareable for Meets {}
