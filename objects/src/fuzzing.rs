//! Fuzz targets: decode arbitrary bytes as requests to the services of owned objects, as their answers, as
//! messages of tasks, and as a heap at rest. Built only for tests and fuzzing (`fuzz/README.md`); not a
//! public interface.

pub use crate::service::fuzzing::objects_services;
pub use crate::task::fuzzing::objects_tasks;

use crate::heap::fuzzing as heap;
use crate::service::fuzzing::answer;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The first byte selects the decoder: a home's answer to a reader, or a lock's, a channel's or a barrier's
/// home's; a rank's report, to other ranks or to an observer, or its drops; or the end of a task.
pub fn objects_answers(bytes: &[u8]) {
    let Some((what, rest)) = bytes.split_first() else { return };
    match what {
        0 => heap::found(rest),
        1..=3 => answer(*what, rest),
        4 => heap::report(rest),
        6 => heap::running(rest),
        7 => heap::dropped(rest),
        _ => crate::task::fuzzing::outcome(rest),
    }
}

/// A partition of a heap that no job uses.
pub fn objects_at_rest(bytes: &[u8]) {
    heap::at_rest(bytes);
}

/// Checks that a value decoded from the beginning of these bytes round-trips.
pub(crate) fn travelled<T: Serialize + DeserializeOwned>(bytes: &[u8]) -> Option<(T, &[u8])> {
    let (found, rest) = postcard::take_from_bytes::<T>(bytes).ok()?;
    let sent = postcard::to_allocvec(&found).expect("what was decoded");
    let again: T = postcard::from_bytes(&sent).expect("what was encoded");
    assert!(postcard::to_allocvec(&again).is_ok_and(|again| again == sent));
    Some((found, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use vgas_testing::replay;

    #[test]
    fn any_answer_is_taken_or_refused() {
        let mut seeds = crate::service::fuzzing::answers();
        seeds.extend(heap::answers());
        seeds.extend(crate::task::fuzzing::outcomes());
        replay("objects_answers", objects_answers, &seeds);
    }

    #[test]
    fn any_heap_at_rest_is_looked_at_or_refused() {
        replay("objects_at_rest", objects_at_rest, &heap::partitions());
    }
}
