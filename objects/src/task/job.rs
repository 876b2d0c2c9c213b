//! A task that this process has spawned: its arguments until it begins, and its result afterwards.
//!
//! While a task stays in its process, its arguments and its result are the values themselves. They become bytes when it leaves, and only
//! then.

use super::entry::Task;
use super::lend::{self, Arguments, Back};
use super::{TaskError, rank};
use crate::heap::{Messages, cannot_go_on, goes_on};
use crate::portable::Portable;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use vgas::{NodeId, Rank, Runtime};

/// Ranks that a task may go to before it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Leaves {
    /// Nowhere.
    No = 0,
    /// To ranks of the node.
    Node = 1,
    /// To any rank.
    Anywhere = 2,
}

impl Leaves {
    pub fn of(word: u32) -> Option<Self> {
        [Self::No, Self::Node, Self::Anywhere].into_iter().find(|leaves| *leaves as u32 == word)
    }
}

/// A task as it travels.
#[derive(Debug)]
pub(super) struct Packed {
    /// The number of its code.
    pub entry: u32,
    pub arguments: Vec<u8>,
    /// True if these lead to objects.
    pub gives: bool,
    /// The spawning rank, and the task's number there; none: this process.
    pub origin: Option<(Rank, u64)>,
    /// Number of times it has left.
    pub hops: u8,
}

/// A task in a queue, or on another rank.
pub(super) trait Work: Send + Sync {
    /// Runs it here, unless it has begun; returns true if it did. With `is_over`, it ends without having run.
    fn run(&self, is_over: bool) -> bool;

    /// Returns true if it has not begun.
    fn waits(&self) -> bool;

    fn leaves(&self) -> Leaves;

    /// Returns its packed form for another rank, unless it has begun; it has begun then.
    fn pack(&self) -> Option<Packed>;

    /// Takes its result from another rank.
    fn came(self: Arc<Self>, from: Rank, outcome: Vec<u8>);

    /// As [`Work::came`] of a task that could not be sent.
    fn failed(&self, why: TaskError);

    /// As [`Work::came`] of a task whose node is lost, in a heap that continues without it: loans are
    /// unchanged, because values that were passed on are not written ([`crate::heap`]).
    fn lost(self: Arc<Self>, node: NodeId);

    /// The rank that has it passes something on, before it has ended. In handlers.
    fn gives(&self);

    /// Brings back what was lent and makes its result a value, after it has [`came`](Work::came). Not in handlers: it may touch memory
    /// that is not here.
    fn settle(&self);

    fn is_over(&self) -> bool;

    /// Returns true if it is over; else, its end will wake the threads that wait in the endpoint.
    fn announce(&self) -> bool;
}

/// A task whose result has this type.
pub(super) trait Returns<R>: Work {
    /// The result, once.
    fn take(&self) -> Option<Result<R, TaskError>>;

    /// Drops interest in its result: if it has failed, its scope is told.
    fn abandon(&self);

    /// Returns true if it is over; else, its end will wake this waker.
    fn wakes(&self, waker: &Waker) -> bool;
}

/// Tasks that a scope waits for.
#[derive(Default)]
pub(super) struct Running {
    pub count: AtomicUsize,
    pub is_waited_for: AtomicBool,
    /// Ended tasks whose loans are to be brought back.
    pub came: Mutex<Vec<Arc<dyn Work>>>,
    pub failures: Mutex<Failures>,
}

/// Failures of a scope's tasks.
#[derive(Default)]
pub(super) struct Failures {
    /// Error of the first failed task that was not joined.
    pub untold: Option<TaskError>,
    /// True if a join has returned an error. If that ends a scope early, it drops others that failed with it.
    pub is_told: bool,
}

impl Running {
    pub fn failures(&self) -> MutexGuard<'_, Failures> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ended(&self, runtime: &Runtime) {
        if self.count.fetch_sub(1, Ordering::SeqCst) == 1 && self.is_waited_for.load(Ordering::SeqCst) {
            runtime.messages().notify_local();
        }
    }
}

enum State<L, G, R> {
    Waits(L, G),
    Begun,
    /// On another rank.
    Away(Vec<Back>),
    Came(Rank, Vec<u8>, Vec<Back>),
    /// On a rank of this node, which is lost, and has passed on objects that may be of its loans.
    Gone(NodeId, Vec<Back>),
    Ended(Result<R, TaskError>),
    Taken,
}

enum Waiting {
    Nobody,
    InEndpoint,
    Wakes(Waker),
}

struct Inner<L, G, R> {
    state: State<L, G, R>,
    waiting: Waiting,
}

pub(super) struct Job<'s, A: Arguments<'s>, R: Portable> {
    inner: Mutex<Inner<A::Lent, A::Values, R>>,
    task: Task<A, R>,
    leaves: Leaves,
    /// True if the rank that has it has passed something on.
    has_given: AtomicBool,
    /// None: there is no heap, and it has ended.
    runtime: Option<&'static Runtime>,
    scope: Option<Arc<Running>>,
}

impl<'s, A: Arguments<'s>, R: Portable> Job<'s, A, R> {
    pub fn new(
        runtime: &'static Runtime,
        task: Task<A, R>,
        lent: A::Lent,
        given: A::Values,
        leaves: Leaves,
        scope: Option<Arc<Running>>,
    ) -> Self {
        if let Some(scope) = &scope {
            scope.count.fetch_add(1, Ordering::SeqCst);
        }
        let inner = Inner { state: State::Waits(lent, given), waiting: Waiting::Nobody };
        let has_given = AtomicBool::new(false);
        Self { inner: Mutex::new(inner), task, leaves, has_given, runtime: Some(runtime), scope }
    }

    /// One that has ended already.
    pub fn refused(task: Task<A, R>, why: TaskError, scope: Option<Arc<Running>>) -> Self {
        let inner = Inner { state: State::Ended(Err(why)), waiting: Waiting::Nobody };
        let has_given = AtomicBool::new(false);
        Self { inner: Mutex::new(inner), task, leaves: Leaves::No, has_given, runtime: None, scope }
    }

    /// Takes its result, once.
    fn result(&self) -> Option<Result<R, TaskError>> {
        self.settle();
        let mut inner = self.inner();
        match std::mem::replace(&mut inner.state, State::Taken) {
            State::Ended(ended) => Some(ended),
            other => {
                inner.state = other;
                None
            }
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner<A::Lent, A::Values, R>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes its arguments, if it has not begun: it has then.
    fn begin(&self) -> Option<(A::Lent, A::Values)> {
        let mut inner = self.inner();
        match std::mem::replace(&mut inner.state, State::Begun) {
            State::Waits(lent, given) => Some((lent, given)),
            other => {
                inner.state = other;
                None
            }
        }
    }

    /// Has its scope settle it at its end, if it had loans.
    fn is_to_settle(self: Arc<Self>, back: &[Back]) {
        if let Some(scope) = self.scope.clone().filter(|_| !back.is_empty()) {
            scope.came.lock().unwrap_or_else(PoisonError::into_inner).push(super::pool::erase(self));
        }
    }

    /// Returns the reason why it is not run here.
    fn stopped(&self) -> TaskError {
        let lost = self.runtime.and_then(|runtime| Some((runtime.rank(), *runtime.lost_nodes().first()?)));
        lost.map_or(TaskError::Stopped, |(rank, lost)| TaskError::Abandoned { rank, lost })
    }

    fn end(&self, state: impl FnOnce(State<A::Lent, A::Values, R>) -> State<A::Lent, A::Values, R>) {
        let waiting = {
            let mut inner = self.inner();
            let before = std::mem::replace(&mut inner.state, State::Begun);
            inner.state = state(before);
            std::mem::replace(&mut inner.waiting, Waiting::Nobody)
        };
        match (waiting, self.runtime) {
            (Waiting::InEndpoint, Some(runtime)) => runtime.messages().notify_local(),
            (Waiting::Wakes(waker), _) => waker.wake(),
            _ => {}
        }
        if let (Some(scope), Some(runtime)) = (&self.scope, self.runtime) {
            scope.ended(runtime);
        }
    }
}

impl<L, G, R> Inner<L, G, R> {
    fn is_over(&self) -> bool {
        matches!(self.state, State::Came(..) | State::Gone(..) | State::Ended(_) | State::Taken)
    }
}

impl<'s, A: Arguments<'s>, R: Portable> Work for Job<'s, A, R> {
    fn run(&self, is_over: bool) -> bool {
        let Some((lent, given)) = self.begin() else { return false };
        let call = self.task.call;
        let ended = catch_unwind(AssertUnwindSafe(|| match is_over {
            false => Ok(call(A::of(lent, given))),
            true => Err(self.stopped()),
        }));
        let ended = ended.unwrap_or_else(|panic| {
            let rank = rank().unwrap_or(Rank(u32::MAX));
            Err(TaskError::Panicked { rank, message: lend::message_of(panic) })
        });
        // Before its result is seen, what it has sent is there.
        let ended = super::settle().map_err(TaskError::from).and(ended);
        self.end(|_| State::Ended(ended));
        true
    }

    fn waits(&self) -> bool {
        matches!(self.inner().state, State::Waits(..))
    }

    fn leaves(&self) -> Leaves {
        self.leaves
    }

    fn pack(&self) -> Option<Packed> {
        let entry = self.task.number();
        let (lent, given) = self.begin()?;
        let Some(entry) = entry else {
            self.failed(TaskError::Misread(rank().unwrap_or(Rank(u32::MAX))));
            return None;
        };
        let mut back = Vec::new();
        let gives = lend::lead_to_objects::<A>(&lent, &given);
        let arguments = lend::pack::<A, R>(lent, given, &mut back);
        self.inner().state = State::Away(back);
        Some(Packed { entry, arguments, gives, origin: None, hops: 0 })
    }

    fn came(self: Arc<Self>, from: Rank, outcome: Vec<u8>) {
        self.end(|before| match before {
            State::Away(back) => {
                self.clone().is_to_settle(&back);
                State::Came(from, outcome, back)
            }
            other => other,
        });
    }

    fn failed(&self, why: TaskError) {
        if self.scope.is_some() {
            // The loans may be anywhere: no code may go on with them.
            cannot_go_on(&format!("what was lent to a task is lost: {why}"));
        }
        self.end(|_| State::Ended(Err(why)));
    }

    fn lost(self: Arc<Self>, node: NodeId) {
        // Without backups it may have been moved there.
        let is_lent = matches!(&self.inner().state, State::Away(back) if !back.is_empty());
        if is_lent && !goes_on() {
            cannot_go_on(&format!("what was lent to a task is lost with {node}"));
        }
        self.end(|before| match before {
            State::Away(back) if self.has_given.load(Ordering::SeqCst) => {
                self.clone().is_to_settle(&back);
                State::Gone(node, back)
            }
            State::Away(_) => State::Ended(Err(TaskError::Lost(node))),
            other => other,
        });
    }

    fn gives(&self) {
        self.has_given.store(true, Ordering::SeqCst);
    }

    fn settle(&self) {
        let mut inner = self.inner();
        let (from, outcome, back) = match std::mem::replace(&mut inner.state, State::Begun) {
            State::Came(from, outcome, back) => (from, outcome, back),
            State::Gone(node, back) => {
                // SAFETY: rule 3: of this task, whose lender waits.
                back.iter().for_each(|back| unsafe { back.make_dead(node) });
                inner.state = State::Ended(Err(TaskError::Lost(node)));
                return;
            }
            other => {
                inner.state = other;
                return;
            }
        };
        let ended = settled(from, &outcome, &back);
        if let (false, Err(why @ TaskError::Misread(_))) = (back.is_empty(), &ended) {
            cannot_go_on(&format!("what was lent to a task is lost: {why}"));
        }
        inner.state = State::Ended(ended);
    }

    fn is_over(&self) -> bool {
        self.inner().is_over()
    }

    fn announce(&self) -> bool {
        let mut inner = self.inner();
        inner.waiting = Waiting::InEndpoint;
        inner.is_over()
    }
}

/// Decodes bytes from another rank: the result, after loans are back.
pub(super) fn settled<R: Portable>(from: Rank, outcome: &[u8], back: &[Back]) -> Result<R, TaskError> {
    let misread = TaskError::Misread(from);
    let Some((how, mut rest)) = outcome.split_first() else { return Err(misread) };
    match *how {
        lend::STOPPED if rest.is_empty() => return Err(TaskError::Stopped),
        lend::STOPPED => {
            let node = rest.try_into().map(u32::from_le_bytes);
            return Err(node.map_or(misread, |node| TaskError::Abandoned { rank: from, lost: NodeId(node) }));
        }
        lend::RETURNED | lend::PANICKED => {}
        _ => return Err(misread),
    }
    // SAFETY: rule 3: of this task, whose lender waits.
    if !back.iter().all(|back| unsafe { back.restore(&mut rest) }) {
        return Err(misread);
    }
    match *how {
        lend::RETURNED => lend::result_of(rest).ok_or(misread),
        _ => Err(TaskError::Panicked { rank: from, message: String::from_utf8_lossy(rest).into_owned() }),
    }
}

impl<'s, A: Arguments<'s>, R: Portable> Returns<R> for Job<'s, A, R> {
    fn take(&self) -> Option<Result<R, TaskError>> {
        let ended = self.result();
        if let (Some(Err(_)), Some(scope)) = (&ended, &self.scope) {
            scope.failures().is_told = true;
        }
        ended
    }

    fn abandon(&self) {
        if let (Some(Err(why)), Some(scope)) = (self.result(), &self.scope) {
            scope.failures().untold.get_or_insert(why);
        }
    }

    fn wakes(&self, waker: &Waker) -> bool {
        let mut inner = self.inner();
        let is_over = inner.is_over();
        if !is_over {
            inner.waiting = Waiting::Wakes(waker.clone());
        }
        is_over
    }
}
