//! A task with its arguments: [`call!`](crate::call) makes it, and `thread::spawn` of the
//! [prelude](crate::prelude) begins it.

use super::TaskPlace;
use super::entry::{Task, task_of};
use super::lend::{Lent, Moved};
use super::scope::{JoinHandle, Scope, begin};
use crate::portable::Portable;

/// A task with its arguments: made by [`call!`](crate::call).
#[must_use = "it does nothing unless it is begun"]
pub struct Call<L, R> {
    task: Task<(L, ()), R>,
    with: L,
}

impl<L, R> std::fmt::Debug for Call<L, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.task.fmt(f)
    }
}

/// Owned arguments of a [`Call`]: nothing in them is borrowed.
pub trait Owned: Lent<'static> + 'static {}

impl Owned for () {}

macro_rules! owned {
    ($($($part:ident)+;)*) => { $(
        impl<$($part: Portable),+> Owned for ($(Moved<$part>,)+) {}
    )* };
}

owned! { A; A B; A B C; A B C D; A B C D E; A B C D E F; A B C D E F G; A B C D E F G H; }

/// A thread of the [prelude](crate::prelude) that borrows nothing: a [`Call`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not made by `call!`: what a closure has captured cannot be taken to another process",
    label = "not a call",
    note = "name what it uses instead of capturing it: `thread::spawn(call!(|what, it, uses| …))`"
)]
pub trait OwnedCall {
    /// Its result.
    type Output: Portable;

    #[doc(hidden)]
    fn begin(self, place: TaskPlace) -> JoinHandle<'static, Self::Output>;
}

impl<L: Owned, R: Portable> OwnedCall for Call<L, R> {
    type Output = R;

    fn begin(self, place: TaskPlace) -> JoinHandle<'static, R> {
        begin(place, self.task, self.with, (), None)
    }
}

impl<'lent, L: Lent<'lent> + 'lent, R: Portable> Call<L, R> {
    /// Begins it in a place, within a scope, which is over before what is lent is.
    pub(crate) fn begin_in<'scope>(
        self,
        scope: &'scope Scope<'scope, '_>,
        place: TaskPlace,
    ) -> JoinHandle<'lent, R>
    where
        'lent: 'scope,
    {
        begin(place, self.task, self.with, (), Some(scope.running.clone()))
    }
}

/// Makes a [`Call`] for `call!`, of a closure without captures.
///
/// # Safety
/// As of [`task_of`].
#[doc(hidden)]
pub unsafe fn call_of<'s, L, R, F>(with: L, function: F) -> Call<L, R>
where
    L: Lent<'s>,
    R: Portable,
    F: Fn((L, ())) -> R + for<'a> Fn((L::For<'a>, ())) -> R + Copy + 'static,
{
    // SAFETY: the caller's promise.
    Call { task: unsafe { task_of::<(L, ()), R, F>(function) }, with }
}

/// Infers the arguments of a closure, for every lifetime.
#[doc(hidden)]
pub fn called_with<'s, L: Lent<'s>, R, F: for<'a> Fn((L::For<'a>, ())) -> R>(_: &L, function: F) -> F {
    function
}

/// An argument that `call!` classifies as lent or given.
#[doc(hidden)]
#[derive(Debug)]
pub struct Is<'a, X>(pub &'a X);

#[doc(hidden)]
#[derive(Debug)]
pub struct ByReference;

#[doc(hidden)]
#[derive(Debug)]
pub struct ByValue;

#[doc(hidden)]
pub trait IsLent {
    fn kind(&self) -> ByReference {
        ByReference
    }
}

#[doc(hidden)]
pub trait IsGiven {
    fn kind(&self) -> ByValue {
        ByValue
    }
}

impl<X> IsLent for Is<'_, &X> {}
impl<X> IsLent for Is<'_, &mut X> {}
// Behind one reference more, so that it is looked for after the others; of any type, so that `wrap` says what is wrong with it.
impl<X> IsGiven for &Is<'_, X> {}

impl ByReference {
    #[doc(hidden)]
    pub fn wrap<X>(self, value: X) -> X {
        value
    }
}

impl ByValue {
    #[doc(hidden)]
    pub fn wrap<X: Portable>(self, value: X) -> Moved<X> {
        Moved(value)
    }
}

/// The type of an argument inside the task.
#[doc(hidden)]
pub trait Argument {
    type Value;
    fn open(self) -> Self::Value;
}

impl<'s, X> Argument for &'s X {
    type Value = &'s X;
    fn open(self) -> &'s X {
        self
    }
}

impl<'s, X> Argument for &'s mut X {
    type Value = &'s mut X;
    fn open(self) -> &'s mut X {
        self
    }
}

impl<X> Argument for Moved<X> {
    type Value = X;
    fn open(self) -> X {
        self.0
    }
}

/// A closure that names what it uses, up to eight variables: for `thread::spawn` and `scope.spawn` of the [prelude](crate::prelude), where
/// std has `move || …`. Variables that are references are lent, all others are moved.
///
/// ```no_run
/// use vgas_objects::prelude::*;
///
/// fn sums(numbers: &Vec<u64>, parts: u64) -> u64 {
///     thread::scope(|scope| {
///         let sum = |part: u64| scope.spawn(call!(|numbers, part, parts| {
///             numbers.iter().filter(|number| **number % parts == part).sum::<u64>()
///         }));
///         (0..parts).map(sum).map(|sum| sum.join().unwrap()).sum()
///     })
/// }
///
/// fn nothing() -> u64 {
///     thread::spawn(call!(|| 7u64)).join().unwrap()
/// }
/// ```
///
/// Variables that are not named are unavailable, and only portable ones can be named:
///
/// ```compile_fail,E0308
/// # use vgas_objects::call;
/// fn captured(factor: u64, number: u64) { let _ = call!(|number| number * factor); }
/// ```
/// ```compile_fail,E0277
/// # use vgas_objects::call;
/// fn text(text: String) { let _ = call!(|text| text.len() as u64); }
/// ```
/// ```compile_fail,E0277
/// # use vgas_objects::call;
/// fn cell(cell: &std::cell::Cell<u64>) { let _ = call!(|cell| cell.get()); }
/// ```
/// ```compile_fail,E0277
/// # use vgas_objects::call;
/// fn returned(number: u64) { let _ = call!(|number| number.to_string()); }
/// ```
/// ```compile_fail,E0382
/// # use vgas_objects::{DBox, call};
/// fn moved(number: DBox<u64>) -> u64 { let _ = call!(|number| *number); *number }
/// ```
/// ```compile_fail,E0277
/// # use vgas_objects::{DBox, call, prelude::thread};
/// fn lent(number: &'static DBox<u64>) { let _ = thread::spawn(call!(|number| **number)); }
/// ```
#[macro_export]
macro_rules! call {
    (|| $body:expr) => {
        $crate::call!(| | $body)
    };
    (|$($name:ident),* $(,)?| $body:expr) => {{
        #[allow(unused_imports)]
        use $crate::called::{IsGiven as _, IsLent as _};
        let with = ($({
            #[allow(clippy::needless_borrow)]
            let kind = (&$crate::called::Is(&$name)).kind();
            kind.wrap($name)
        },)*);
        #[allow(unused_mut, unused_parens, clippy::unused_unit, clippy::double_parens)]
        let function = $crate::called::called_with(&with, |(($($name,)*), ())| {
            $(let mut $name = $crate::called::Argument::open($name);)*
            $body
        });
        $crate::a_task_gets_what_it_uses_as_arguments(function);
        // SAFETY: it coerces to a function pointer.
        unsafe { $crate::called::call_of(with, function) }
    }};
}
