//! Prefetch of values that may be on NVMe.

#![forbid(unsafe_code)]

use super::{OWN, heap};

/// Asks for values that lie in the heap to be brought from NVMe into memory: a hint, which does not wait, and
/// costs a message to the node's daemon. Values outside of the heap are ignored, so code that does not know
/// about the heap can call it.
///
/// When you read large objects one after the other, prefetch the next before reading one: a scan notices that
/// its parts lie in sequence on NVMe only after some of them. More than a quarter of the cache is not brought
/// in ahead.
///
/// ```no_run
/// # use vgas_objects::{DVec, prefetch};
/// fn sum(rows: &DVec<DVec<u64>>) -> u64 {
///     let next = rows.iter().skip(1).map(Some).chain([None]);
///     rows.iter().zip(next).map(|(row, next)| {
///         next.into_iter().for_each(|next| next.prefetch());
///         row.iter().sum::<u64>()
///     }).sum()
/// }
/// ```
pub fn prefetch<T>(values: &[T]) {
    ask(values.as_ptr().addr() as u64, size_of_val(values) as u64);
}

pub(super) fn ask(address: u64, bytes: u64) {
    let Ok(heap) = heap() else { return };
    if OWN.offset_of(address).is_some() && bytes > 0 {
        // Errors are reported to the users of the values.
        let _ = heap.runtime.prefetch(heap.locate(address), bytes);
    }
}
