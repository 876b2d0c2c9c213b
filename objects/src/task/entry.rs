//! The code of tasks, by number: a table that the linker makes, of an entry for each task in the program.

use super::lend::Arguments;
use crate::linked::{self, Entry};
use crate::portable::Portable;
use rustc_hash::FxHashMap;
use std::sync::OnceLock;

/// A task without what it captures, which is nothing: made by [`task!`](crate::task).
pub struct Task<A, R> {
    code: Code,
    /// The same for arguments that have not become bytes.
    pub(super) call: fn(A) -> R,
}

impl<A, R> Clone for Task<A, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A, R> Copy for Task<A, R> {}

impl<A, R> std::fmt::Debug for Task<A, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Task({})", std::any::type_name::<fn(A) -> R>())
    }
}

/// Runs a task of some type on the bytes of its arguments; yields those of its outcome, or nothing if they are not its arguments.
pub(super) type Code = fn(&[u8]) -> Option<Vec<u8>>;

unsafe extern "C" {
    #[link_name = "__start_vgas_tasks"]
    static FIRST: Entry;
    #[link_name = "__stop_vgas_tasks"]
    static END: Entry;
}

/// Makes a task of a function without captures: `task!` does. It accepts what is lent for every lifetime: references end with the frame
/// of the task, whatever the lifetime for which they were lent.
///
/// # Safety
/// `F` captures nothing, not even values without bytes: other processes make one from nothing. It coerces to a function pointer, which
/// [`a_task_gets_what_it_uses_as_arguments`] checks.
#[doc(hidden)]
pub unsafe fn task_of<'s, A, R, F>(_: F) -> Task<A, R>
where
    A: Arguments<'s>,
    R: Portable,
    F: Fn(A) -> R + for<'a> Fn(A::For<'a>) -> R + Copy + 'static,
{
    const { assert!(size_of::<F>() == 0, "a task captures nothing: what it needs are its arguments") };
    linked::entry!("vgas_tasks", sym code::<A, R, F>);
    Task { code: code::<A, R, F>, call: call::<A, R, F> }
}

/// For `task!`: only what captures nothing is such a function. The compiler names this one where something is captured.
#[doc(hidden)]
#[inline(always)]
pub fn a_task_gets_what_it_uses_as_arguments<A, R>(_: fn(A) -> R) {}

fn call<A, R, F: Fn(A) -> R + Copy + 'static>(arguments: A) -> R {
    // SAFETY: a function without captures: the task's maker has promised it.
    let function = unsafe { std::ptr::NonNull::<F>::dangling().read() };
    function(arguments)
}

fn code<'s, A: Arguments<'s>, R: Portable, F: Fn(A) -> R + Copy + 'static>(bytes: &[u8]) -> Option<Vec<u8>> {
    super::lend::run::<A, R>(bytes, call::<A, R, F>)
}

/// The entries, in their order.
pub(super) fn table() -> &'static [Entry] {
    // A program without tasks has a table, too, with an unused number.
    linked::entry!("vgas_tasks");
    // SAFETY: rule 1: the linker gives the section's beginning and end.
    unsafe { linked::entries(&raw const FIRST, &raw const END) }
}

impl<A, R> Task<A, R> {
    /// Its number.
    pub(super) fn number(self) -> Option<u32> {
        static NUMBERS: OnceLock<FxHashMap<usize, u32>> = OnceLock::new();
        let numbers = NUMBERS.get_or_init(|| {
            (0..).zip(table()).filter_map(|(number, entry)| Some((linked::address(entry)?, number))).collect()
        });
        numbers.get(&(self.code as usize)).copied()
    }
}

/// The code of a number; none that the program does not have.
pub(super) fn code_of(number: u32) -> Option<Code> {
    let address = linked::address(table().get(number as usize)?)?;
    // SAFETY: rule 1: each other entry was made of such a function.
    Some(unsafe { std::mem::transmute::<*const (), Code>(std::ptr::with_exposed_provenance(address)) })
}

/// Makes a [`Task`] of a closure that captures nothing, with one argument, or with two, the first of which is
/// [lent](crate::Lent): in `scope.spawn(task!(|list: &Node, depth: u64| -> u64 { … }), &list, 3)`.
///
/// ```
/// use vgas_objects::{DBox, Task, task};
/// let double: Task<((), u64), u64> = task!(|number: u64| -> u64 { number * 2 });
/// // The same; one without an argument; and one with several.
/// let _: [Task<((), u64), u64>; 2] = [double, task!(|number: u64| number * 2)];
/// let _: Task<((), ()), u64> = task!(|| 7);
/// let _ = task!(|(first, second): (u64, u64)| first + second);
/// let _ = task!(|list: &DBox<u64>, more: u64| **list + more);
/// // What is lent may be all: `scope.spawn(of, &list, ())`.
/// let of: Task<(_, ()), u64> = task!(|list: &DBox<u64>| **list);
/// # fn is_lent(_: Task<(&DBox<u64>, ()), u64>) {} is_lent(of);
/// ```
///
/// It captures nothing: its arguments are all that it has where it runs.
///
/// ```compile_fail,E0308
/// # use vgas_objects::task;
/// fn captured(factor: u64) { let _ = task!(|number: u64| -> u64 { number * factor }); }
/// ```
/// ```compile_fail,E0277
/// # use vgas_objects::task;
/// fn text() { let _ = task!(|text: String| -> u64 { text.len() as u64 }); }
/// ```
/// ```compile_fail,E0277
/// # use vgas_objects::task;
/// fn returned() { let _ = task!(|number: u64| -> String { number.to_string() }); }
/// ```
/// ```compile_fail,E0277
/// # use vgas_objects::task;
/// fn cell() { let _ = task!(|cell: &std::cell::Cell<u64>, _n: u64| -> u64 { cell.get() }); }
/// ```
#[macro_export]
macro_rules! task {
    // A function that never returns has no result that could travel.
    (|$($argument:tt : $type:ty),+ $(,)?| -> ! $body:block) => {
        ::core::compile_error!("a task that never returns is written with the result `()`: `task!(|number: u64| -> () { … })`")
    };
    (|| -> ! $body:block) => { $crate::task!(|_nothing: ()| -> ! $body) };
    // With one reference, nothing is given.
    (|$lent:tt : & $lifetime:lifetime mut $type:ty $(,)?| $($rest:tt)+) => {
        $crate::task!(|$lent: &$lifetime mut $type, _nothing: ()| $($rest)+)
    };
    (|$lent:tt : & $lifetime:lifetime $type:ty $(,)?| $($rest:tt)+) => {
        $crate::task!(|$lent: &$lifetime $type, _nothing: ()| $($rest)+)
    };
    (|$lent:tt : &mut $type:ty $(,)?| $($rest:tt)+) => { $crate::task!(|$lent: &mut $type, _nothing: ()| $($rest)+) };
    (|$lent:tt : & $type:ty $(,)?| $($rest:tt)+) => { $crate::task!(|$lent: &$type, _nothing: ()| $($rest)+) };
    (|$lent:tt : $lent_type:ty, $argument:tt : $type:ty $(,)?| -> $result:ty $body:block) => {{
        let task = |($lent, $argument): ($lent_type, $type)| -> $result { $body };
        $crate::a_task_gets_what_it_uses_as_arguments(task);
        // SAFETY: it coerces to a function pointer.
        unsafe { $crate::task_of(task) }
    }};
    (|$argument:tt : $type:ty $(,)?| -> $result:ty $body:block) => {{
        let task = |((), $argument): ((), $type)| -> $result { $body };
        $crate::a_task_gets_what_it_uses_as_arguments(task);
        // SAFETY: it coerces to a function pointer.
        unsafe { $crate::task_of(task) }
    }};
    (|| -> $result:ty $body:block) => { $crate::task!(|_nothing: ()| -> $result $body) };
    // The compiler infers the result.
    (|$lent:tt : $lent_type:ty, $argument:tt : $type:ty $(,)?| $body:expr) => {{
        let task = |($lent, $argument): ($lent_type, $type)| $body;
        $crate::a_task_gets_what_it_uses_as_arguments(task);
        // SAFETY: it coerces to a function pointer.
        unsafe { $crate::task_of(task) }
    }};
    (|$argument:tt : $type:ty $(,)?| $body:expr) => {{
        let task = |((), $argument): ((), $type)| $body;
        $crate::a_task_gets_what_it_uses_as_arguments(task);
        // SAFETY: it coerces to a function pointer.
        unsafe { $crate::task_of(task) }
    }};
    (|| $body:expr) => { $crate::task!(|_nothing: ()| $body) };
    (move $($rest:tt)*) => { ::core::compile_error!("a task captures nothing, so that there is nothing to move: what it needs are its arguments") };
    ($($rest:tt)*) => {
        ::core::compile_error!(
            "a task is a closure with the type of its argument, `task!(|number: u64| number + 1)`, or with two arguments of which the first is \
             lent, `task!(|list: &Node, depth: u64| …)`; several are a tuple, `task!(|(a, b): (u64, u64)| a + b)`"
        )
    };
}
