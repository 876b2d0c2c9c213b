//! Std's `thread`: threads are [tasks](crate::Task), on any rank.

use crate::task::called::OwnedCall;
use crate::{Call, JoinHandle, Lent, Portable, TaskPlace};
pub use std::thread::{available_parallelism, sleep, yield_now};

/// Begins a thread [anywhere](TaskPlace::Anywhere): on the rank with most of its data, or on an idle one.
pub fn spawn<C: OwnedCall>(call: C) -> JoinHandle<'static, C::Output> {
    call.begin(TaskPlace::Anywhere)
}

/// Begins a thread in a place: a rank, a node, or where an object is (the paper's `spawn_to`).
pub fn spawn_to<C: OwnedCall>(place: impl Into<TaskPlace>, call: C) -> JoinHandle<'static, C::Output> {
    call.begin(place.into())
}

/// A scope for threads that borrow: as [`std::thread::Scope`].
#[derive(Clone, Copy, Debug)]
pub struct Scope<'scope, 'env: 'scope>(&'scope crate::Scope<'scope, 'env>);

impl<'scope> Scope<'scope, '_> {
    /// Begins a thread [anywhere](TaskPlace::Anywhere), to which something is lent until the scope ends.
    pub fn spawn<'lent: 'scope, L: Lent<'lent> + 'lent, R: Portable>(
        &self,
        call: Call<L, R>,
    ) -> JoinHandle<'lent, R> {
        call.begin_in(self.0, TaskPlace::Anywhere)
    }

    /// Begins a thread in a place, to which something is lent until the scope ends.
    pub fn spawn_to<'lent: 'scope, L: Lent<'lent> + 'lent, R: Portable>(
        &self,
        place: impl Into<TaskPlace>,
        call: Call<L, R>,
    ) -> JoinHandle<'lent, R> {
        call.begin_in(self.0, place.into())
    }
}

/// Lends to threads: as [`std::thread::scope`], by [`scope`](crate::scope).
///
/// # Panics
/// If a thread has failed and its error was not taken, as [`scope`](crate::scope).
///
/// ```compile_fail,E0502
/// # use vgas_objects::prelude::*;
/// fn both(mut number: Box<u64>) {
///     thread::scope(|scope| {
///         let lent = &mut number;
///         let _ = scope.spawn(call!(|lent| **lent += 1));
///         println!("{}", *number);
///     });
/// }
/// ```
#[track_caller]
pub fn scope<'env, R>(within: impl for<'scope> FnOnce(Scope<'scope, 'env>) -> R) -> R {
    crate::scope(|scope| within(Scope(scope)))
}
