//! Beginning tasks, and waiting for them.

use super::entry::Task;
use super::lend::{self, Arguments, Back, Lent};
use super::{Place, TaskError, run};
use crate::heap::{cannot_go_on, job, rank_of};
use crate::portable::Portable;
use crate::service::Bytes;
use crate::service::tasks::{self, Answer, Request, TaskService, Work};
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use vgas::service::PendingCall;
use vgas::{NodeId, Rank};

/// A task that was begun.
struct Running {
    state: Mutex<State>,
}

enum State {
    Called {
        call: PendingCall<'static, Answer>,
        node: NodeId,
        back: Vec<Back>,
    },
    /// With the bytes of its result.
    Ended(Result<Vec<u8>, TaskError>),
    Taken,
}

impl Running {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a task.
    fn new<'s, A: Arguments<'s>, R: Portable>(
        place: Place,
        task: Task<A, R>,
        lent: A::Lent,
        given: A::Given,
    ) -> Self {
        let first = lend::first_link::<A>(&lent, &given);
        let mut back = Vec::new();
        let arguments = Bytes(lend::pack::<A, R>(lent, given, &mut back));
        let called = (|| {
            let runtime = job()?;
            let layout = runtime.layout();
            let (node, place) = match place {
                Place::Rank(rank) if rank.0 < layout.ranks() => {
                    (layout.node_of(rank), tasks::Place::Rank(rank.0))
                }
                Place::Rank(rank) => {
                    return Err(usage(format!("there is no {rank} in a job of {}", layout.ranks())));
                }
                Place::Node(node) => (node, tasks::Place::Node),
                Place::Anywhere => {
                    let rank = first.and_then(rank_of);
                    (rank.map_or(runtime.node(), |rank| layout.node_of(rank)), tasks::Place::Anywhere)
                }
            };
            let entry = task.number().ok_or(TaskError::Misread(runtime.rank()))?;
            let request = Request::Run { place, work: Work { entry, arguments } };
            Ok((runtime.start_call::<TaskService>(node, &request)?, node))
        })();
        let state = match called {
            Ok((call, node)) => State::Called { call, node, back },
            Err(error) => State::Ended(Err(error)),
        };
        Self { state: Mutex::new(state) }
    }

    /// Waits for its end; what was lent is back then.
    fn wait(&self) {
        let mut state = self.state();
        if let State::Called { call, node, back } = &mut *state {
            let (node, has_lent) = (*node, !back.is_empty());
            let ended = run::wait(call).and_then(|answer| end(answer, node, back));
            if let (true, Err(why @ (TaskError::Objects(_) | TaskError::Misread(_)))) = (has_lent, &ended) {
                // It may be anywhere: nobody may go on with it.
                cannot_go_on(&format!("what was lent to a task is lost: {why}"));
            }
            *state = State::Ended(ended);
        }
    }
}

fn usage(what: String) -> TaskError {
    crate::ObjectError::Usage(what).into()
}

/// What an answer says: the bytes of the result, after what was lent is back.
fn end(answer: Answer, node: NodeId, back: &[Back]) -> Result<Vec<u8>, TaskError> {
    let Answer::Outcome(Bytes(bytes)) = answer else {
        return Err(match answer {
            Answer::Stopped => TaskError::Stopped,
            _ => usage(format!("a task was begun on a rank that is not of {node}")),
        });
    };
    let misread = TaskError::Misread(Rank(u32::MAX));
    let Some((rank, [how, rest @ ..])) = bytes.split_first_chunk::<4>() else { return Err(misread) };
    let rank = Rank(u32::from_le_bytes(*rank));
    let mut rest = rest;
    if *how == lend::MISREAD {
        return Err(TaskError::Misread(rank));
    }
    // SAFETY: rule 3: of this task, whose lender waits.
    if !back.iter().all(|back| unsafe { back.restore(&mut rest) }) {
        return Err(TaskError::Misread(rank));
    }
    match *how {
        lend::RETURNED => Ok(rest.to_vec()),
        lend::PANICKED => {
            Err(TaskError::Panicked { rank, message: String::from_utf8_lossy(rest).into_owned() })
        }
        _ => Err(TaskError::Misread(rank)),
    }
}

/// A task that was begun, whose result can be had. Dropped, it waits for the task's end: what a program has begun is over with it.
///
/// Whoever waits within a task runs others meanwhile, so that no number of workers is too small.
#[must_use = "dropped, it waits for its task"]
pub struct JoinHandle<'s, R: Portable> {
    running: Arc<Running>,
    returns: PhantomData<(&'s (), R)>,
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
    /// When it has panicked, was not run, or a peer is lost.
    pub fn join(self) -> Result<R, TaskError> {
        self.running.wait();
        let state = std::mem::replace(&mut *self.running.state(), State::Taken);
        let State::Ended(ended) = state else { return Err(TaskError::Stopped) };
        let bytes = ended?;
        lend::result_of(&bytes).ok_or(TaskError::Misread(Rank(u32::MAX)))
    }
}

impl<R: Portable> Drop for JoinHandle<'_, R> {
    fn drop(&mut self) {
        self.running.wait();
        let state = std::mem::replace(&mut *self.running.state(), State::Taken);
        if let State::Ended(Ok(bytes)) = state {
            // The result is dropped here.
            drop(lend::result_of::<R>(&bytes));
        }
    }
}

/// Begins a task [anywhere](Place::Anywhere): where its arguments are, or where nothing else is done.
///
/// ```no_run
/// use vgas::Runtime;
/// use vgas_objects::{DVec, HeapOptions, ObjectError, Objects, RunOptions, spawn, task};
///
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let objects = Objects::attach(Runtime::init()?, &HeapOptions::default())?;
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
pub fn spawn<A: Portable, R: Portable>(task: Task<((), A), R>, given: A) -> JoinHandle<'static, R> {
    spawn_to(Place::Anywhere, task, given)
}

/// Begins a task in a place: a rank, a node, or where an object is.
pub fn spawn_to<A: Portable, R: Portable>(
    place: impl Into<Place>,
    task: Task<((), A), R>,
    given: A,
) -> JoinHandle<'static, R> {
    let running = Arc::new(Running::new(place.into(), task, (), given));
    JoinHandle { running, returns: PhantomData }
}

/// Where tasks may be lent something: as [`std::thread::Scope`].
pub struct Scope<'scope, 'env: 'scope> {
    running: Mutex<Vec<Arc<Running>>>,
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

impl fmt::Debug for Scope<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").finish_non_exhaustive()
    }
}

impl<'scope> Scope<'scope, '_> {
    /// Begins a task [anywhere](Place::Anywhere), to which something is lent until the scope ends.
    pub fn spawn<L: Lent<'scope> + 'scope, A: Portable, R: Portable>(
        &'scope self,
        task: Task<(L, A), R>,
        lent: L,
        given: A,
    ) -> JoinHandle<'scope, R> {
        self.spawn_to(Place::Anywhere, task, lent, given)
    }

    /// Begins a task in a place, to which something is lent until the scope ends.
    pub fn spawn_to<L: Lent<'scope> + 'scope, A: Portable, R: Portable>(
        &'scope self,
        place: impl Into<Place>,
        task: Task<(L, A), R>,
        lent: L,
        given: A,
    ) -> JoinHandle<'scope, R> {
        let running = Arc::new(Running::new(place.into(), task, lent, given));
        self.running.lock().unwrap_or_else(PoisonError::into_inner).push(running.clone());
        JoinHandle { running, returns: PhantomData }
    }

    fn wait(&self) {
        let all = std::mem::take(&mut *self.running.lock().unwrap_or_else(PoisonError::into_inner));
        all.iter().for_each(|running| running.wait());
    }
}

/// Lends to tasks: returns when all tasks that were begun in it have ended, whether they were joined or not, and also when it unwinds.
/// As [`std::thread::scope`].
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
/// What is lent is lent:
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
pub fn scope<'env, R>(within: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> R) -> R {
    let scope = Scope { running: Mutex::default(), scope: PhantomData, env: PhantomData };
    struct End<'r, 'scope, 'env>(&'r Scope<'scope, 'env>);
    impl Drop for End<'_, '_, '_> {
        fn drop(&mut self) {
            self.0.wait();
        }
    }
    let end = End(&scope);
    let result = within(&scope);
    drop(end);
    result
}
