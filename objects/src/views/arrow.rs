//! A row of numbers as a buffer of Arrow's arrays: the bytes stay where they are, in DRAM or on NVMe, and every library that computes on
//! Arrow's memory computes on a heap that is larger than memory.
//!
//! ```no_run
//! # fn sum(_: arrow_buffer::ScalarBuffer<i64>) {}
//! use vgas_objects::{DVec, ObjectError, views::arrow};
//!
//! fn total(prices: DVec<i64>) -> Result<(), ObjectError> {
//!     // With the crate arrow-array: PrimitiveArray::<Int64Type>::new(arrow::buffer(prices)?, None).
//!     sum(arrow::buffer(prices)?);
//!     Ok(())
//! }
//! ```
//!
//! # Rules for the unsafe code in this file
//!
//! 1. The bytes that a buffer names are those of a row that the buffer owns, and are not written: they stay
//!    at their address as long as the row does (rule 2 of the folder `heap`), even when their pages are
//!    evicted.

use crate::{DVec, ObjectError, Shareable};
use arrow_buffer::alloc::Allocation;
use arrow_buffer::{ArrowNativeType, Buffer, ScalarBuffer};
use std::panic::RefUnwindSafe;
use std::ptr::NonNull;
use std::sync::Arc;

/// A row that a buffer owns: it is not reachable otherwise.
struct OwnedRow<T: Shareable>(#[expect(dead_code, reason = "it is held, and dropped")] DVec<T>);

impl<T: Shareable> RefUnwindSafe for OwnedRow<T> {}

/// A row as a buffer of Arrow. A row of another rank is read once, and the buffer has the copy; the row itself goes when the last array that
/// shares the buffer is dropped, which must be before the [end of the heap](crate::Objects::finalize), as for references.
///
/// The inverse: [`DVec::try_extend_from`] of the buffer's slice.
///
/// # Errors
/// If the row cannot be reached, or there is no room for a copy.
pub fn buffer<T: ArrowNativeType + Shareable>(row: DVec<T>) -> Result<ScalarBuffer<T>, ObjectError> {
    let bytes = size_of_val(row.try_as_slice()?);
    let at = NonNull::from(row.try_as_slice()?).cast::<u8>();
    let owner: Arc<dyn Allocation> = Arc::new(OwnedRow(row));
    // SAFETY: rule 1: so many bytes are there, which are numbers, and the owner is the row.
    let buffer = unsafe { Buffer::from_custom_allocation(at, bytes, owner) };
    Ok(ScalarBuffer::from(buffer))
}
