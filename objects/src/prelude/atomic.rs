//! Std's `sync::atomic`: numbers that all ranks update where they are ([`crate::sync::DAtomic`]).

use crate::sync::DAtomic;
use crate::{ObjectError, Portable, Shareable};
pub use std::sync::atomic::Ordering;

/// What was had, or the end.
#[track_caller]
fn had<V>(result: Result<V, ObjectError>) -> V {
    match result {
        Ok(value) => value,
        Err(error) => panic!("{error}"),
    }
}

macro_rules! atomics {
    ($($atomic:ident $number:ty),*) => { $(
        /// As std's, for all ranks. All updates of one have an order, and what a thread did before one is visible to who sees it: what is
        /// asked for as an [`Ordering`] is always the strongest.
        ///
        /// Its methods panic where a peer is lost.
        #[derive(Debug, Portable, Shareable)]
        pub struct $atomic(DAtomic<$number>);

        impl $atomic {
            /// Places a number in this rank's partition.
            #[track_caller]
            pub fn new(number: $number) -> Self {
                Self(DAtomic::new(number))
            }

            /// The number.
            #[track_caller]
            pub fn load(&self, _: Ordering) -> $number {
                had(self.0.load())
            }

            /// Replaces the number.
            #[track_caller]
            pub fn store(&self, number: $number, _: Ordering) {
                had(self.0.store(number));
            }

            /// Replaces the number; what it was.
            #[track_caller]
            pub fn swap(&self, number: $number, _: Ordering) -> $number {
                had(self.0.swap(number))
            }

            /// Replaces the number if it is `current`: what it was, as `Err` if that was another.
            ///
            /// # Errors
            /// With the number, if it is another.
            #[track_caller]
            pub fn compare_exchange(
                &self,
                current: $number,
                new: $number,
                _: Ordering,
                _: Ordering,
            ) -> Result<$number, $number> {
                had(self.0.compare_exchange(current, new))
            }

            /// Adds, and wraps around; what it was.
            #[track_caller]
            pub fn fetch_add(&self, number: $number, _: Ordering) -> $number {
                had(self.0.fetch_add(number))
            }

            /// Subtracts, and wraps around; what it was.
            #[track_caller]
            pub fn fetch_sub(&self, number: $number, _: Ordering) -> $number {
                had(self.0.fetch_sub(number))
            }

            /// The greater of both; what it was.
            #[track_caller]
            pub fn fetch_max(&self, number: $number, _: Ordering) -> $number {
                had(self.0.update(vgas::Change::Max(number)))
            }

            /// The lesser of both; what it was.
            #[track_caller]
            pub fn fetch_min(&self, number: $number, _: Ordering) -> $number {
                had(self.0.update(vgas::Change::Min(number)))
            }
        }
    )* };
}

atomics!(AtomicU32 u32, AtomicI32 i32, AtomicU64 u64, AtomicI64 i64);
