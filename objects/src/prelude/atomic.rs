//! Std's `sync::atomic`: numbers that all ranks update in place ([`crate::sync::DAtomic`]).

use crate::sync::DAtomic;
use crate::{ObjectError, Portable, Shareable};
pub use std::sync::atomic::Ordering;
use vgas::Change;

/// Returns the value, or panics.
#[track_caller]
fn had<V>(result: Result<V, ObjectError>) -> V {
    match result {
        Ok(value) => value,
        Err(error) => panic!("{error}"),
    }
}

macro_rules! atomics {
    ($($atomic:ident $number:ty as $word:ty),*) => { $(
        /// As std's, for all ranks. All updates of one have an order, and effects of a thread before its
        /// update are visible to readers of the update: any [`Ordering`] acts as the strongest.
        ///
        /// Its methods panic where a peer is lost.
        #[derive(Debug, Portable, Shareable)]
        pub struct $atomic(DAtomic<$word>);

        impl $atomic {
            /// Places a number in this rank's partition.
            #[track_caller]
            pub fn new(number: $number) -> Self {
                Self(DAtomic::new(number as $word))
            }

            /// The number.
            #[track_caller]
            pub fn load(&self, _: Ordering) -> $number {
                had(self.0.load()) as $number
            }

            /// Replaces the number.
            #[track_caller]
            pub fn store(&self, number: $number, _: Ordering) {
                had(self.0.store(number as $word));
            }

            /// Replaces the number; returns the old value.
            #[track_caller]
            pub fn swap(&self, number: $number, _: Ordering) -> $number {
                had(self.0.swap(number as $word)) as $number
            }

            /// Replaces the number if it is `current`; returns the old value, as `Err` if it was another.
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
                let was = had(self.0.compare_exchange(current as $word, new as $word));
                was.map(|was| was as $number).map_err(|was| was as $number)
            }

            /// Adds, and wraps around; returns the old value.
            #[track_caller]
            pub fn fetch_add(&self, number: $number, _: Ordering) -> $number {
                had(self.0.fetch_add(number as $word)) as $number
            }

            /// Subtracts, and wraps around; returns the old value.
            #[track_caller]
            pub fn fetch_sub(&self, number: $number, _: Ordering) -> $number {
                had(self.0.fetch_sub(number as $word)) as $number
            }

            /// As [`compare_exchange`](Self::compare_exchange), which never fails for nothing.
            ///
            /// # Errors
            /// With the number, if it is another.
            #[track_caller]
            pub fn compare_exchange_weak(
                &self,
                current: $number,
                new: $number,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$number, $number> {
                self.compare_exchange(current, new, success, failure)
            }

            /// Replaces the number by what `change` makes of it, as often as it is another meanwhile; returns
            /// the old value.
            ///
            /// # Errors
            /// With the number, if `change` makes none of it.
            #[track_caller]
            pub fn fetch_update(
                &self,
                set: Ordering,
                fetch: Ordering,
                mut change: impl FnMut($number) -> Option<$number>,
            ) -> Result<$number, $number> {
                let mut was = self.load(fetch);
                while let Some(new) = change(was) {
                    match self.compare_exchange(was, new, set, fetch) {
                        Ok(was) => return Ok(was),
                        Err(other) => was = other,
                    }
                }
                Err(was)
            }

            /// Keeps the bits that are set in both; returns the old value.
            #[track_caller]
            pub fn fetch_and(&self, number: $number, _: Ordering) -> $number {
                had(self.0.fetch_and(number as $word)) as $number
            }

            /// Sets the bits that are set in either; returns the old value.
            #[track_caller]
            pub fn fetch_or(&self, number: $number, _: Ordering) -> $number {
                had(self.0.fetch_or(number as $word)) as $number
            }

            /// Sets the bits that are set in one of both; returns the old value.
            #[track_caller]
            pub fn fetch_xor(&self, number: $number, _: Ordering) -> $number {
                had(self.0.update(Change::Xor(number as $word))) as $number
            }

            /// The greater of both; returns the old value.
            #[track_caller]
            pub fn fetch_max(&self, number: $number, _: Ordering) -> $number {
                had(self.0.update(Change::Max(number as $word))) as $number
            }

            /// The lesser of both; returns the old value.
            #[track_caller]
            pub fn fetch_min(&self, number: $number, _: Ordering) -> $number {
                had(self.0.update(Change::Min(number as $word))) as $number
            }
        }
    )* };
}

// Std's pointer-sized types have 64 bits on all machines of a job.
atomics!(
    AtomicU32 u32 as u32,
    AtomicI32 i32 as i32,
    AtomicU64 u64 as u64,
    AtomicI64 i64 as i64,
    AtomicUsize usize as u64,
    AtomicIsize isize as i64
);

/// As std's, for all ranks; see [`AtomicU32`].
#[derive(Debug, Portable, Shareable)]
pub struct AtomicBool(DAtomic<u32>);

impl AtomicBool {
    /// Places a yes or no in this rank's partition.
    #[track_caller]
    pub fn new(is_set: bool) -> Self {
        Self(DAtomic::new(is_set.into()))
    }

    /// Returns true if it is set.
    #[track_caller]
    pub fn load(&self, _: Ordering) -> bool {
        had(self.0.load()) != 0
    }

    /// Sets it, or not.
    #[track_caller]
    pub fn store(&self, is_set: bool, _: Ordering) {
        had(self.0.store(is_set.into()));
    }

    /// Sets it, or not; returns the old value.
    #[track_caller]
    pub fn swap(&self, is_set: bool, _: Ordering) -> bool {
        had(self.0.swap(is_set.into())) != 0
    }

    /// Replaces it if it is `current`; returns the old value, as `Err` if it was the other.
    ///
    /// # Errors
    /// With what it is, if that is the other.
    #[track_caller]
    pub fn compare_exchange(&self, current: bool, new: bool, _: Ordering, _: Ordering) -> Result<bool, bool> {
        let was = had(self.0.compare_exchange(current.into(), new.into()));
        was.map(|was| was != 0).map_err(|was| was != 0)
    }

    /// Stores true if both are set; returns the old value.
    #[track_caller]
    pub fn fetch_and(&self, is_set: bool, _: Ordering) -> bool {
        had(self.0.fetch_and(is_set.into())) != 0
    }

    /// Stores true if either is set; returns the old value.
    #[track_caller]
    pub fn fetch_or(&self, is_set: bool, _: Ordering) -> bool {
        had(self.0.fetch_or(is_set.into())) != 0
    }

    /// Stores true if exactly one is set; returns the old value.
    #[track_caller]
    pub fn fetch_xor(&self, is_set: bool, _: Ordering) -> bool {
        had(self.0.update(Change::Xor(is_set.into()))) != 0
    }
}
