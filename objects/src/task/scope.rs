//! Beginning tasks, and waiting for them.

use super::entry::Task;
use super::job::{Failures, Job, Leaves, Returns, Running};
use super::lend::{self, Arguments, Lent};
use super::pool::{Pool, erase, pool};
use super::spare::{Blocked, poll_in_place};
use super::{TaskError, TaskPlace};
use crate::heap::{cannot_go_on, rank_of};
use crate::portable::Portable;
use crate::word::Link;
use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, PoisonError};
use std::task::{Context, Poll};
use vgas::Rank;

/// Queue of a new task.
enum To {
    Here(Leaves),
    There(Rank, Leaves),
}

/// Begins a task.
pub(super) fn begin<'s, A: Arguments<'s, Lent: 's> + 's, R: Portable>(
    place: TaskPlace,
    task: Task<A, R>,
    lent: A::Lent,
    given: A::Values,
    scope: Option<Arc<Running>>,
) -> JoinHandle<'s, R> {
    // Values that this thread has sent arrive before others go on with objects that it passes to them.
    let to = crate::sync::settle().and_then(|()| pool()).map_err(TaskError::from);
    let to = to.and_then(|pool| Ok((pool, choose::<A>(pool, place, &lent, &given)?)));
    let (pool, to) = match to {
        Ok(to) => to,
        Err(why) => {
            let task = Arc::new(Job::<A, R>::refused(task, why, scope));
            return JoinHandle { task, is_lent: false, polled: OnceLock::new() };
        }
    };
    let leaves = match to {
        To::Here(leaves) | To::There(_, leaves) => leaves,
    };
    let is_lent = scope.is_some();
    let job = Arc::new(Job::<A, R>::new(pool.runtime, task, lent, given, leaves, scope));
    let work = erase(job.clone());
    match to {
        _ if pool.is_over() => {
            work.run(true);
        }
        To::Here(_) => pool.push(work),
        To::There(rank, _) => {
            if let Some(packed) = work.pack() {
                pool.send_away(work, packed, rank, false);
            }
        }
    }
    JoinHandle { task: job, is_lent, polled: OnceLock::new() }
}

fn choose<'s, A: Arguments<'s>>(
    pool: &Pool,
    place: TaskPlace,
    lent: &A::Lent,
    given: &A::Values,
) -> Result<To, TaskError> {
    let (layout, me) = (pool.runtime.layout(), pool.runtime.rank());
    let to = |rank, leaves| if rank == me { To::Here(leaves) } else { To::There(rank, leaves) };
    Ok(match place {
        TaskPlace::Rank(rank) if rank.0 < layout.ranks() => to(rank, Leaves::No),
        TaskPlace::Rank(rank) => {
            return Err(usage(format!("there is no {rank} in a job of {}", layout.ranks())));
        }
        TaskPlace::Node(node) if node == pool.runtime.node() => To::Here(Leaves::Node),
        TaskPlace::Node(node) if node.0 < layout.nodes() => {
            // One after the other; an idle rank there takes it from the others.
            let ranks = layout.ranks_of(node);
            let turn = pool.turn() % (ranks.end - ranks.start).max(1);
            to(Rank(ranks.start + turn), Leaves::Node)
        }
        TaskPlace::Node(node) => {
            return Err(usage(format!("there is no {node} in a job of {}", layout.nodes())));
        }
        TaskPlace::Anywhere => {
            let weigh = |note: &mut dyn FnMut(&Link, u64)| {
                lent.weigh(note);
                given.weigh(note);
            };
            let rank = lend::rank_of_most(weigh, rank_of).filter(|rank| !pool.runtime.is_lost(*rank));
            to(rank.unwrap_or(me), Leaves::Anywhere)
        }
    })
}

fn usage(what: String) -> TaskError {
    crate::ObjectError::Usage(what).into()
}

/// Handle of a spawned task, for its result: by [`JoinHandle::join`], or by awaiting it. Dropping it waits
/// for the task's end: no task outlives its handle. Its failure is not reported then, as by std's handles; in
/// a [`scope`], the scope reports it.
///
/// A thread that waits for a task runs it, if it has not begun, and others meanwhile, so that no number of
/// workers is too small. So do not wait while holding a lock that other tasks need; nor drop the handles of
/// tasks that wait for the dropping thread: if `?` leaves a function with a
/// [`Receiver`](crate::sync::Receiver) in one variable and its senders' handles in a later one, the handles
/// go first, and wait for ever. Have the receiver declared after them. Awaiting runs nothing, and keeps no
/// thread: an executor of the program's choice is woken when the task has ended. While a worker polls a
/// handle, also by [`JoinHandle::is_over`], another worker takes its place: a `block_on` within a task ends,
/// with one worker, too.
///
/// ```no_run
/// # use vgas_objects::{TaskError, spawn, task};
/// # async fn both() -> Result<u64, TaskError> {
/// let square = task!(|number: u64| -> u64 { number * number });
/// let (first, second) = (spawn(square, 3), spawn(square, 4));
/// Ok(first.await? + second.await?)
/// # }
/// ```
#[must_use = "dropped, it waits for its task"]
pub struct JoinHandle<'s, R: Portable> {
    task: Arc<dyn Returns<R> + 's>,
    is_lent: bool,
    /// Another worker in the place of the one that polls.
    polled: OnceLock<Arc<Blocked>>,
}

impl<R: Portable> fmt::Debug for JoinHandle<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle").finish_non_exhaustive()
    }
}

impl<R: Portable> JoinHandle<'_, R> {
    /// Waits for the task's end; its result.
    ///
    /// # Errors
    /// If it has panicked, was not run, or a peer is lost.
    pub fn join(self) -> Result<R, TaskError> {
        self.wait()?;
        self.task.take().unwrap_or(Err(TaskError::Stopped))
    }

    /// Returns true if it has ended, so that [`JoinHandle::join`] does not wait.
    pub fn is_over(&self) -> bool {
        let is_over = self.task.is_over();
        if !is_over {
            self.polls();
        }
        is_over
    }

    /// The program looks again later, and may keep this thread meanwhile.
    fn polls(&self) {
        if self.polled.get().is_none()
            && let Some(blocked) = poll_in_place()
        {
            let _ = self.polled.set(blocked);
        }
    }

    fn wait(&self) -> Result<(), crate::ObjectError> {
        if self.task.is_over() {
            return Ok(());
        }
        let waited = pool().and_then(|pool| {
            pool.run_first(&erase(self.task.clone()));
            pool.wait(|| self.task.is_over(), || self.task.announce())
        });
        if let (true, Err(why)) = (self.is_lent, &waited) {
            // It may go on with it anywhere: no other code may.
            cannot_go_on(&format!("what was lent to a task is lost: {why}"));
        }
        waited
    }
}

impl<R: Portable> Future for JoinHandle<'_, R> {
    type Output = Result<R, TaskError>;

    /// # Panics
    /// If it has said its result already.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if !self.task.wakes(context.waker()) {
            self.polls();
            return Poll::Pending;
        }
        match self.task.take() {
            Some(ended) => Poll::Ready(ended),
            None => panic!("a task has said its result, and is polled again"),
        }
    }
}

impl<R: Portable> Drop for JoinHandle<'_, R> {
    fn drop(&mut self) {
        if self.wait().is_ok() {
            self.task.abandon();
        }
    }
}

/// Begins a task [anywhere](TaskPlace::Anywhere): on the rank of its arguments, or on an idle one.
///
/// Memory is bounded: when 65,536 tasks of a thread wait already, it runs the next one at once; when as many of a rank are on others, it
/// waits until some have ended, and runs what waits here meanwhile.
///
/// ```no_run
/// use vgas::Runtime;
/// use vgas_objects::{DVec, HeapOptions, ObjectError, Objects, RunOptions, spawn, task};
///
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let objects = Objects::attach(&Runtime::init()?, &HeapOptions::default())?;
///     let sum = objects.run(&RunOptions::default(), || {
///         let parts = (0..8).map(|part| spawn(task!(|part: u64| -> DVec<u64> { (part..part + 10).collect() }), part));
///         let parts: Vec<_> = parts.collect();
///         parts.into_iter().map(|part| part.join().map_or(0, |numbers| numbers.iter().sum::<u64>())).sum::<u64>()
///     })?;
///     assert!(sum.is_none_or(|sum| sum == 640));
///     Ok(objects.finalize()?)
/// }
/// ```
///
/// Nothing of this process can be an argument:
///
/// ```compile_fail
/// # use vgas_objects::{spawn, task};
/// fn text(text: &'static str) { let _ = spawn(task!(|text: &'static str| -> u64 { text.len() as u64 }), text); }
/// ```
pub fn spawn<L: LendsNothing, A: Portable, R: Portable>(
    task: Task<(L, A), R>,
    given: A,
) -> JoinHandle<'static, R> {
    spawn_to(TaskPlace::Anywhere, task, given)
}

/// Begins a task in a place: a rank, a node, or where an object is.
pub fn spawn_to<L: LendsNothing, A: Portable, R: Portable>(
    place: impl Into<TaskPlace>,
    task: Task<(L, A), R>,
    given: A,
) -> JoinHandle<'static, R> {
    begin(place.into(), task, L::NOTHING, given, None)
}

/// A task to which nothing is lent: `()`.
#[diagnostic::on_unimplemented(
    message = "this task is lent a `{Self}`, which `spawn` cannot lend: nothing waits for the task before the reference ends",
    label = "lends nothing",
    note = "begin it in a scope, which waits for it: `scope(|scope| scope.spawn(task!(|list: &Node, depth: u64| …), &list, 3).join())`"
)]
pub trait LendsNothing: Lent<'static> + 'static {
    #[doc(hidden)]
    const NOTHING: Self;
}

impl LendsNothing for () {
    const NOTHING: Self = ();
}

/// A scope for tasks that borrow: as [`std::thread::Scope`].
pub struct Scope<'scope, 'env: 'scope> {
    pub(super) running: Arc<Running>,
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

impl fmt::Debug for Scope<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").finish_non_exhaustive()
    }
}

impl<'scope> Scope<'scope, '_> {
    /// Begins a task [anywhere](TaskPlace::Anywhere), to which something is lent until the scope ends.
    pub fn spawn<L: Lent<'scope> + 'scope, A: Portable, R: Portable>(
        &'scope self,
        task: Task<(L, A), R>,
        lent: L,
        given: A,
    ) -> JoinHandle<'scope, R> {
        self.spawn_to(TaskPlace::Anywhere, task, lent, given)
    }

    /// Begins a task in a place, to which something is lent until the scope ends.
    pub fn spawn_to<L: Lent<'scope> + 'scope, A: Portable, R: Portable>(
        &'scope self,
        place: impl Into<TaskPlace>,
        task: Task<(L, A), R>,
        lent: L,
        given: A,
    ) -> JoinHandle<'scope, R> {
        begin(place.into(), task, lent, given, Some(self.running.clone()))
    }

    /// Waits until all tasks have ended, and their loans are back.
    fn wait(&self) {
        let running = &self.running;
        let is_over = || running.count.load(Ordering::SeqCst) == 0;
        if !is_over() {
            let announce = || {
                running.is_waited_for.store(true, Ordering::SeqCst);
                is_over()
            };
            if let Err(why) = pool().and_then(|pool| pool.wait(is_over, announce)) {
                // Tasks may go on with it anywhere: no other code may.
                cannot_go_on(&format!("what was lent to tasks is lost: {why}"));
            }
        }
        let came = std::mem::take(&mut *running.came.lock().unwrap_or_else(PoisonError::into_inner));
        came.iter().for_each(|task| task.settle());
    }
}

/// Lends to tasks: returns when all tasks begun in it have ended, joined or not, even when it unwinds. As
/// [`std::thread::scope`].
///
/// # Panics
/// If a task has failed unnoticed: it has panicked, was refused, or was lost with its rank, its handle was
/// dropped, and no [`join`](JoinHandle::join) in this scope has returned another failure. So where `?`
/// returns the first failure out of the scope, the scope returns it. The failure of a forgotten handle is not
/// reported. A scope that unwinds continues with its own panic.
///
/// ```no_run
/// # use vgas_objects::{DBox, DVec, TaskError, scope, task};
/// # fn both() -> Result<(), TaskError> {
/// let numbers: DVec<u64> = (0..1000).collect();
/// let mut largest = DBox::new(0u64);
/// let sum = scope(|scope| {
///     let sum = scope.spawn(task!(|numbers: &DVec<u64>, _n: ()| -> u64 { numbers.iter().sum() }), &numbers, ());
///     let _ = scope.spawn(task!(|(numbers, largest): (&DVec<u64>, &mut DBox<u64>), _n: ()| -> () {
///         **largest = numbers.iter().copied().max().unwrap_or(0);
///     }), (&numbers, &mut largest), ());
///     sum.join()
/// })?;
/// assert_eq!((sum, *largest), (499_500, 999));
/// # Ok(()) }
/// ```
///
/// Loans follow the rules of borrowing:
///
/// ```compile_fail,E0502
/// # use vgas_objects::{DBox, scope, task};
/// fn both(mut number: DBox<u64>) {
///     scope(|scope| {
///         let _ = scope.spawn(task!(|number: &mut DBox<u64>, _n: ()| -> () { **number += 1; }), &mut number, ());
///         println!("{}", *number);
///     });
/// }
/// ```
/// ```compile_fail,E0597
/// # use vgas_objects::{DBox, scope, task};
/// fn inner() {
///     scope(|scope| {
///         let number = DBox::new(1u64);
///         let _ = scope.spawn(task!(|number: &DBox<u64>, _n: ()| -> u64 { **number }), &number, ());
///     });
/// }
/// ```
#[track_caller]
pub fn scope<'env, R>(within: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> R) -> R {
    let scope = Scope { running: Arc::default(), scope: PhantomData, env: PhantomData };
    struct End<'r, 'scope, 'env>(&'r Scope<'scope, 'env>);
    impl Drop for End<'_, '_, '_> {
        fn drop(&mut self) {
            self.0.wait();
        }
    }
    let end = End(&scope);
    let result = within(&scope);
    drop(end);
    let Failures { untold, is_told } = std::mem::take(&mut *scope.running.failures());
    if let (Some(why), false) = (untold, is_told) {
        panic!("a task that nobody has joined has failed: {why}");
    }
    result
}
