//! Values sent by a rank that the channel's home has not taken yet.
//!
//! One message is in flight at a time; values sent meanwhile follow together in the next one, so that a
//! stream takes fewer messages the faster it comes. Waiting threads drive it, and without one, a thread that
//! sleeps unless something is left behind (the *driver*). Units of senders are kept here, as in `units.rs`,
//! until a sender of this rank is dropped.

use super::wait;
use crate::Portable;
use crate::heap::{Messages, ObjectError, job};
use crate::service::Bytes;
use crate::service::channels::{Answer, ChannelService, Request};
use rustc_hash::FxHashMap;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use vgas::NodeId;
use vgas::service::PendingCall;

/// Senders that a rank draws at once.
const DRAWN: u64 = 1 << 20;

/// Most bytes of values in a message.
pub(super) const BATCH_BYTES: usize = 8 << 10;
/// Time that `try_send` waits for values that this rank has sent before.
const TRIED_FOR: Duration = Duration::from_millis(1);

/// Identity of a channel: its node and its number there.
pub(super) type Name = (u32, u64);

/// Drops `count` values in their bytes.
pub(super) type Discard = fn(&[u8], usize);

/// Parameters of a channel's values.
#[derive(Clone, Copy)]
pub(super) struct Kind {
    /// Values that this rank may have on their way.
    pub most: usize,
    /// Bytes of a value.
    pub bytes: usize,
    pub discard: Discard,
}

/// Why values are not sent.
#[derive(Debug)]
pub(super) enum Unsent {
    Full,
    Disconnected,
    /// The receiver was on this node, which is lost.
    Gone(NodeId),
    Lost(Box<ObjectError>),
}

impl From<ObjectError> for Unsent {
    fn from(error: ObjectError) -> Self {
        Self::Lost(Box::new(error))
    }
}

/// A rank's end of a channel, for all of its senders.
pub(super) struct SendQueue {
    name: Name,
    kind: Kind,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Units of senders that are kept, and that are to be given back when all is sent.
    units: u64,
    left: u64,
    /// Values for the message after the one in flight.
    values: Vec<u8>,
    count: usize,
    in_flight: Option<PendingCall<Answer>>,
    /// Values in it.
    flying: usize,
    /// Values that were sent, and that the home has taken, or refused.
    sent: u64,
    taken: u64,
    is_closed: bool,
    /// Its home cannot be reached: what was sent is gone.
    is_broken: bool,
    /// A lost node of the receiver that no sender was told of: values were refused for it.
    lost: Option<NodeId>,
    /// Values without a receiver, to be dropped where a program's `Drop` may do anything.
    refused: Refused,
    /// True if the driver knows of it.
    is_driven: bool,
}

/// Waits until the homes have all values that this thread has sent: before others use the objects that it
/// passes to them, senders among them, which they may send through, or drop, at once. If the channels have
/// room for all, that takes one answer's time; otherwise the thread would have had to wait earlier anyway.
pub(crate) fn settle() -> Result<(), ObjectError> {
    let all = SENT.take();
    all.into_iter()
        .try_for_each(|(outlet, number)| outlet.until(None, |state| state.taken >= number).map(drop))
}

thread_local! {
    /// Queues that this thread has sent to, and the number of the last value there.
    static SENT: RefCell<Vec<(Arc<SendQueue>, u64)>> = const { RefCell::new(Vec::new()) };
    /// True if a sender was visited.
    static IS_SENDER_THERE: Cell<bool> = const { Cell::new(false) };
}

/// A sender is visited.
pub(super) fn visited() {
    IS_SENDER_THERE.set(true);
}

/// [`settle`], if senders are among what is passed on.
pub(super) fn settle_for<T: Portable>(passed_on: &T) -> Result<(), ObjectError> {
    if !T::HAS_LINKS {
        return Ok(());
    }
    IS_SENDER_THERE.set(false);
    passed_on.links(&mut |_| {});
    if IS_SENDER_THERE.get() { settle() } else { Ok(()) }
}

/// Values without a receiver.
#[derive(Default)]
struct Refused {
    values: Vec<u8>,
    count: usize,
}

impl State {
    fn is_idle(&self) -> bool {
        self.count == 0 && self.in_flight.is_none() && self.left == 0 && self.refused.count == 0
    }

    fn has_room(&self, most: usize) -> bool {
        self.flying + self.count < most
    }

    /// Returns true if all values are at the home, or in flight to it.
    fn is_sent(&self) -> bool {
        self.count == 0 && self.in_flight.as_ref().is_none_or(PendingCall::is_sent)
    }

    /// The same, and so are senders that are gone.
    fn has_left(&self) -> bool {
        self.left == 0 && self.is_sent()
    }

    /// The home cannot be reached: nothing is in flight any more, and nothing follows. Releases its waiters.
    fn give_up(&mut self) {
        self.is_broken = true;
        (self.in_flight, self.left) = (None, 0);
        self.taken += (std::mem::take(&mut self.flying) + self.count) as u64;
        self.refuse();
    }

    /// Moves the queued values to the refused ones.
    fn refuse(&mut self) {
        self.refused.count += std::mem::take(&mut self.count);
        self.refused.values.append(&mut self.values);
    }
}

static OUTLETS: Mutex<Option<FxHashMap<Name, Arc<SendQueue>>>> = Mutex::new(None);

fn outlets<R>(work: impl FnOnce(&mut FxHashMap<Name, Arc<SendQueue>>) -> R) -> R {
    work(OUTLETS.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default())
}

/// Returns true if the node of a channel exists: an earlier job, which has left the name in a heap, may have
/// had more nodes.
fn has_node((node, _): Name) -> bool {
    job().is_ok_and(|job| node < job.nodes())
}

/// The outlet of a channel.
pub(super) fn outlet(name: Name, kind: Kind) -> Arc<SendQueue> {
    let new = || {
        let state = State { is_closed: !has_node(name), ..State::default() };
        Arc::new(SendQueue { name, kind, state: Mutex::new(state) })
    };
    outlets(|all| all.entry(name).or_insert_with(new).clone())
}

/// Returns true if all that this rank has sent into a channel, or is to report to it, has left: its next
/// request comes after.
pub(super) fn has_left(name: Name) -> bool {
    let outlet = outlets(|all| all.get(&name).cloned());
    outlet.is_none_or(|outlet| outlet.state().has_left())
}

/// Waits for that, if the home has room.
pub(super) fn let_leave(name: Name) -> Result<(), ObjectError> {
    let outlet = outlets(|all| all.get(&name).cloned());
    outlet.map_or(Ok(()), |outlet| outlet.until(None, State::has_left).map(drop))
}

/// Makes progress on messages in flight, without waiting.
pub(crate) fn look() {
    let all: Vec<_> = outlets(|all| all.values().cloned().collect());
    for outlet in all {
        // Users of the channel learn of errors.
        let _ = outlet.go_on();
        outlet.discard();
        outlet.forget();
    }
}

impl SendQueue {
    fn state(&self) -> MutexGuard<'_, State> {
        // Changed in steps that cannot panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets it, if it has no state and is unused.
    fn forget(self: Arc<Self>) {
        outlets(|all| {
            // The table's, and this one.
            if Arc::strong_count(&self) == 2 && self.state().is_idle() && self.state().units == 0 {
                all.remove(&self.name);
            }
        });
    }

    /// Takes in answers, and sends the next values; never waits.
    fn go_on(&self) -> Result<(), ObjectError> {
        let state = &mut *self.state();
        if let Some(call) = &mut state.in_flight {
            let answer = match call.test() {
                Ok(Some(answer)) => answer,
                Ok(None) => return Ok(()),
                Err(why) => {
                    state.give_up();
                    return Err(vgas::Error::from(why).into());
                }
            };
            state.in_flight = None;
            let flown = std::mem::take(&mut state.flying);
            state.taken += flown as u64;
            if !answer.is_whole(self.kind.bytes, flown) {
                return Err(misunderstood(self.name));
            }
            match answer {
                Answer::Done => {}
                Answer::Closed(count, Bytes(values)) => {
                    state.is_closed = true;
                    state.refused.count += count as usize;
                    state.refused.values.extend(values);
                }
                Answer::Lost(node, count, Bytes(values)) => {
                    state.lost = Some(NodeId(node));
                    state.refused.count += count as usize;
                    state.refused.values.extend(values);
                }
                _ => return Err(misunderstood(self.name)),
            }
        }
        if state.is_closed {
            state.taken += state.count as u64;
            state.refuse();
        }
        self.begin(state)
    }

    /// Drops values without a receiver.
    fn discard(&self) {
        let Refused { values, count } = std::mem::take(&mut self.state().refused);
        if count > 0 {
            (self.kind.discard)(&values, count);
        }
    }

    /// Sends what is to be sent, when nothing is in flight; never waits.
    fn begin(&self, state: &mut State) -> Result<(), ObjectError> {
        let (node, channel) = (NodeId(self.name.0), self.name.1);
        let request = if state.in_flight.is_some() {
            return Ok(());
        } else if state.count > 0 {
            state.flying = std::mem::take(&mut state.count);
            let values = Bytes(std::mem::take(&mut state.values));
            Request::Send { channel, count: state.flying as u32, values, try_only: false }
        } else if state.left > 0 {
            Request::Leave { channel, units: std::mem::take(&mut state.left) }
        } else {
            return Ok(());
        };
        let called = job().and_then(|job| Ok(job.start_call::<ChannelService>(node, &request)?));
        match called {
            Ok(call) => {
                state.in_flight = Some(call);
                Ok(())
            }
            Err(why) => {
                if let Request::Send { values: Bytes(values), count, .. } = request {
                    state.refused.count += count as usize;
                    state.refused.values.extend(values);
                }
                state.give_up();
                Err(why)
            }
        }
    }

    /// Makes the error for users of a channel whose home cannot be reached.
    fn broken(&self) -> ObjectError {
        let home = NodeId(self.name.0);
        let asked = job().and_then(|job| {
            let agent = job.layout().agent_of(home);
            Ok(job.messages().check_peer(agent, "sending into a channel").map_err(vgas::Error::from)?)
        });
        asked.err().unwrap_or_else(|| misunderstood(self.name))
    }

    /// Sends a value, which `give` appends to others; waits while there is no room.
    pub fn send(self: &Arc<Self>, give: impl FnOnce(&mut Vec<u8>)) -> Result<(), Unsent> {
        loop {
            {
                let mut state = self.state();
                if let Some(node) = state.lost.take() {
                    return Err(Unsent::Gone(node));
                }
                if state.is_closed {
                    return Err(Unsent::Disconnected);
                }
                if state.has_room(self.kind.most) {
                    give(&mut state.values);
                    state.count += 1;
                    state.sent += 1;
                    self.note(state.sent);
                    self.begin(&mut state)?;
                    if !state.is_sent() {
                        self.have_driven(&mut state);
                    }
                    return Ok(());
                }
            }
            self.until(None, |state| {
                state.has_room(self.kind.most) || state.is_closed || state.lost.is_some()
            })?;
        }
    }

    /// This thread has sent the value of this number.
    fn note(self: &Arc<Self>, number: u64) {
        SENT.with_borrow_mut(|sent| match sent.iter_mut().find(|(outlet, _)| Arc::ptr_eq(outlet, self)) {
            Some((_, last)) => *last = number,
            None => sent.push((self.clone(), number)),
        });
    }

    /// Sends a value if there is room at its home; returns once it has answered.
    pub fn try_send(&self, value: &[u8]) -> Result<(), Unsent> {
        if !self.until(Some(Instant::now() + TRIED_FOR), State::is_sent)? {
            return Err(Unsent::Full);
        }
        if self.state().is_closed {
            return Err(Unsent::Disconnected);
        }
        let values = Bytes(value.to_vec());
        let request = Request::Send { channel: self.name.1, count: 1, values, try_only: true };
        match wait::call::<ChannelService>(NodeId(self.name.0), &request)? {
            Answer::Done => Ok(()),
            Answer::Full => Err(Unsent::Full),
            Answer::Closed(..) => {
                self.state().is_closed = true;
                Err(Unsent::Disconnected)
            }
            Answer::Lost(node, ..) => Err(Unsent::Gone(NodeId(node))),
            _ => Err(misunderstood(self.name).into()),
        }
    }

    /// Waits until the home has taken all; false: the receiver is gone.
    pub fn flush(&self) -> Result<bool, Unsent> {
        self.until(None, |state| state.count == 0 && state.in_flight.is_none())?;
        let mut state = self.state();
        if state.is_broken {
            return Err(self.broken().into());
        }
        match state.lost.take() {
            Some(node) => Err(Unsent::Gone(node)),
            None => Ok(!state.is_closed),
        }
    }

    /// Waits for a state, and drives it meanwhile.
    fn until(&self, deadline: Option<Instant>, is_so: impl Fn(&State) -> bool) -> Result<bool, ObjectError> {
        let mut failed = Ok(());
        let found = wait::until(deadline, || {
            failed = self.go_on();
            failed.is_err() || is_so(&self.state())
        })?;
        self.discard();
        failed.map(|()| found)
    }

    /// One more sender.
    pub fn join(&self) -> Result<(), ObjectError> {
        if !has_node(self.name) {
            return Ok(());
        }
        {
            let mut state = self.state();
            if let Some(units) = state.units.checked_sub(1) {
                state.units = units;
                return Ok(());
            }
        }
        let request = Request::Draw { channel: self.name.1, units: DRAWN };
        match wait::call::<ChannelService>(NodeId(self.name.0), &request)? {
            Answer::Done => {
                self.state().units += DRAWN - 1;
                Ok(())
            }
            _ => Err(misunderstood(self.name)),
        }
    }

    /// Removes one sender; gives back the kept units of others with it: the receiver must learn when there
    /// are no senders left.
    pub fn leave(self: &Arc<Self>) -> Result<(), ObjectError> {
        if has_node(self.name) {
            let mut state = self.state();
            state.left += 1 + std::mem::take(&mut state.units);
            self.begin(&mut state)?;
            // Until it is known, and this is forgotten.
            self.have_driven(&mut state);
        }
        Ok(())
    }

    /// Ensures that what follows is sent, whatever this thread does next.
    fn have_driven(self: &Arc<Self>, state: &mut State) {
        if !std::mem::replace(&mut state.is_driven, true) {
            drive(self.clone());
        }
    }

    /// Returns true if the driver is done with it.
    fn is_over(&self) -> bool {
        let is_lost = self.go_on().is_err();
        let mut state = self.state();
        let is_over = is_lost && state.refused.count == 0 || state.is_idle();
        state.is_driven &= !is_over;
        is_over
    }
}

fn misunderstood((node, channel): Name) -> ObjectError {
    ObjectError::Usage(format!("the channel {channel} of {} was not understood there", NodeId(node)))
}

/// The thread that drives queues without a waiting thread.
struct Driver {
    outlets: Mutex<(bool, Vec<Arc<SendQueue>>)>,
    more: Condvar,
}

static DRIVER: Driver = Driver { outlets: Mutex::new((false, Vec::new())), more: Condvar::new() };

fn drive(outlet: Arc<SendQueue>) {
    let mut outlets = DRIVER.outlets.lock().unwrap_or_else(PoisonError::into_inner);
    outlets.1.push(outlet);
    if !outlets.0 {
        // Without it, the channel's next user drives it.
        outlets.0 = std::thread::Builder::new().name("channels".into()).spawn(run).is_ok();
    } else if outlets.1.len() == 1 {
        DRIVER.more.notify_one();
    } else if let Ok(job) = job() {
        drop(outlets);
        // It may have looked at the others last before this one was answered.
        job.messages().notify_local();
    }
}

fn run() {
    loop {
        let outlets = DRIVER.outlets.lock().unwrap_or_else(PoisonError::into_inner);
        drop(DRIVER.more.wait_while(outlets, |outlets| outlets.1.is_empty()));
        let is_lost = job().map_or(true, |job| job.wait_until(are_over).is_err());
        let mut outlets = DRIVER.outlets.lock().unwrap_or_else(PoisonError::into_inner);
        let refused = outlets.1.clone();
        if is_lost {
            // The job has ended, and with it all channels.
            outlets.1.clear();
        }
        drop(outlets);
        for outlet in refused {
            // A program's `Drop` may panic, which is reported by then, and not handled here.
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| outlet.discard())) {
                crate::task::drop_payload(panic);
            }
        }
    }
}

/// Drives all outlets that are to be driven; whether none is left, or one has values to be dropped.
fn are_over() -> bool {
    let all = DRIVER.outlets.lock().unwrap_or_else(PoisonError::into_inner).1.clone();
    let mut has_refused = false;
    let over: Vec<_> = all
        .into_iter()
        .filter(|outlet| {
            let is_over = outlet.is_over();
            has_refused |= outlet.state().refused.count > 0;
            is_over
        })
        .collect();
    let mut outlets = DRIVER.outlets.lock().unwrap_or_else(PoisonError::into_inner);
    for gone in &over {
        // Once: it may have come again.
        if let Some(at) = outlets.1.iter().position(|outlet| Arc::ptr_eq(outlet, gone)) {
            outlets.1.swap_remove(at);
        }
    }
    let is_empty = outlets.1.is_empty();
    drop(outlets);
    over.into_iter().for_each(SendQueue::forget);
    is_empty || has_refused
}
