//! Channels: values go from ranks to one that receives them, as they are (DRust §4.1.2).

use super::outlet::{
    BATCH_BYTES, Kind, Name, SendQueue, Unsent, has_left, let_leave, outlet, settle_for, visited,
};
use super::wait;
use crate::bytes;
use crate::heap::{DBox, DVec, ObjectError, give, has_links, is_lost, job, lost_node, pass_on};
use crate::layout::Layout;
use crate::planted::{Fault, is_planted};
use crate::service::Bytes;
use crate::service::channels::{Answer, ChannelService, Request};
use crate::task::meet;
use crate::word::Link;
use crate::{Portable, Shareable};
use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;
use std::sync::Arc;
use std::time::{Duration, Instant};
use vgas::NodeId;

/// Values of more bytes travel as objects: only their box goes through the channel.
const INLINE_BYTES_MAX: usize = 1024;

/// Opens a channel with room for `room` values, at least one: as [`std::sync::mpsc::sync_channel`].
///
/// The channel's home is the node of this rank: its receiver is fastest there. Both ends may go to other
/// ranks, as arguments or results of tasks, in boxes and through channels. Values are not serialised; those
/// of more than 1 KiB become objects, which move to the receiver.
///
/// A channel ends with its job: an end that a heap with a name has kept is a closed one's in the next job.
///
/// At most `room` values wait at the home, at most 64 MiB of them; each sending rank may have as many in
/// flight, at most 8 KiB or one value, and so may the receiver. So many are sent together as there are when
/// the home has answered: a stream takes few messages, and a single value is sent at once. Values that a
/// thread has sent are at the home before objects that it passes on in another way are visible elsewhere:
/// tasks and their results, senders, locks.
///
/// ```no_run
/// use vgas_objects::sync::{Sender, channel};
/// use vgas_objects::{DString, spawn, task};
///
/// # fn lengths() -> Result<(), Box<dyn std::error::Error>> {
/// let (sender, receiver) = channel::<(u64, DString)>(100);
/// for number in 0..10 {
///     let _ = spawn(
///         task!(|(sender, number): (Sender<(u64, DString)>, u64)| -> () {
///             let _ = sender.send((number, DString::from("from a task")));
///         }),
///         (sender.clone(), number),
///     );
/// }
/// drop(sender);
/// // Until the last sender is gone.
/// assert_eq!(receiver.iter().map(|(number, _)| number).sum::<u64>(), 45);
/// # Ok(()) }
/// ```
///
/// Values that are not portable cannot be sent:
///
/// ```compile_fail,E0277
/// # use vgas_objects::sync::channel;
/// fn texts() { let _ = channel::<String>(1); }
/// ```
///
/// # Panics
/// If there is no heap, or a peer is lost; [`try_channel`] returns an error instead.
#[track_caller]
pub fn channel<T: Portable>(room: usize) -> (Sender<T>, Receiver<T>) {
    match try_channel(room) {
        Ok(both) => both,
        Err(error) => panic!("{error}"),
    }
}

/// [`channel`].
///
/// # Errors
/// If there is no heap, or a peer is lost.
pub fn try_channel<T: Portable>(room: usize) -> Result<(Sender<T>, Receiver<T>), ObjectError> {
    meet();
    let (node, bytes) = (job()?.node().0, bytes_of::<T>() as u32);
    let room = room.clamp(1, u32::MAX as usize) as u32;
    let opened = wait::call::<ChannelService>(NodeId(node), &Request::Open { bytes, room })?;
    let Answer::Opened(number) = opened else {
        return Err(misunderstood((node, 0)));
    };
    let end = End { node, room, number };
    let receiver = Receiver { end: End { ..end }, rest: RefCell::new(ReceiveBuffer::default()) };
    Ok((Sender { end, sends: PhantomData }, receiver))
}

fn misunderstood((node, number): Name) -> ObjectError {
    ObjectError::Usage(format!("the channel {number} of {} was not understood there", NodeId(node)))
}

const fn is_large<T>() -> bool {
    size_of::<T>() > INLINE_BYTES_MAX
}

/// Bytes of a value in a message.
const fn bytes_of<T: Portable>() -> usize {
    if is_large::<T>() { size_of::<DBox<T>>() } else { size_of::<T>() }
}

/// Identity of the channel.
#[derive(Portable, Shareable)]
struct End {
    node: u32,
    room: u32,
    number: u64,
}

impl End {
    fn name(&self) -> Name {
        (self.node, self.number)
    }

    /// Returns the number of values of a type that are in flight at once.
    fn most<T: Portable>(&self) -> usize {
        (BATCH_BYTES / bytes_of::<T>().max(1)).clamp(1, self.room as usize)
    }

    fn call(&self, request: &Request) -> Result<Answer, ObjectError> {
        wait::call::<ChannelService>(NodeId(self.node), request)
    }

    /// Makes the error for an end that cannot be used, or for the other one: the channel's place, and the
    /// call.
    fn is_lost<X>(&self, error: ObjectError, here: &'static Location<'static>) -> ObjectError {
        is_lost::<X>(error, self.number, NodeId(self.node), here)
    }
}

/// Makes bytes a value that has come, or was not sent.
fn take<T: Portable>(value: &[u8]) -> T {
    // SAFETY: the bytes of a value of the channel's type: it has one, and each value that was sent is taken once.
    unsafe { bytes::take(value) }
}

/// Drops values that were not received.
fn discard<T: Portable>(values: &[u8], count: usize) {
    let bytes = bytes_of::<T>();
    let count = if is_planted(Fault::ForgottenValue) { 0 } else { count };
    for at in 0..count {
        let value = &values[at * bytes..][..bytes];
        match is_large::<T>() {
            true => drop(take::<DBox<T>>(value)),
            false => drop(take::<T>(value)),
        }
    }
}

/// The end of a [`channel`] where values go in, as [`std::sync::mpsc::SyncSender`]: 16 bytes, portable and shareable. Ranks have clones
/// of their own, or send through one that is lent to them.
///
/// A rank's first clone costs a message and its answer; more cost none, until a sender of that rank is dropped, which is another.
/// One that is forgotten (`mem::forget`) counts as a sender for ever.
#[derive(Shareable)]
pub struct Sender<T: Portable> {
    end: End,
    sends: PhantomData<fn(T)>,
}

// SAFETY: its bytes are numbers. It has no links, but passing it on ensures that values sent through it have
// arrived before.
unsafe impl<T: Portable> Portable for Sender<T> {
    const HAS_LINKS: bool = true;

    fn links(&self, _: &mut dyn FnMut(&Link)) {
        meet();
        visited();
    }

    fn describe(layout: &mut Layout) {
        layout.begin::<Self>();
        T::describe(layout);
    }
}

/// The receiver is gone: the value that was to be sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SendError<T>(pub T);

/// Error of a [`Sender::try_send`].
pub enum TrySendError<T> {
    /// There is no room now.
    Full(T),
    /// The receiver is gone.
    Disconnected(T),
}

/// All senders are gone, and all that was sent is received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("receiving on a closed channel")]
pub struct RecvError;

/// Error of a [`Receiver::try_recv`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TryRecvError {
    /// There is nothing now.
    #[error("receiving on an empty channel")]
    Empty,
    /// As [`RecvError`].
    #[error("receiving on a closed channel")]
    Disconnected,
}

/// The timeout passed without a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecvTimeoutError {
    /// Nothing came.
    #[error("timed out waiting on a channel")]
    Timeout,
    /// As [`RecvError`].
    #[error("a channel is closed, and empty")]
    Disconnected,
}

impl<T> fmt::Debug for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendError").finish_non_exhaustive()
    }
}

impl<T> fmt::Display for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sending on a channel that nobody receives from")
    }
}

impl<T> std::error::Error for SendError<T> {}

impl<T> fmt::Debug for TrySendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full(_) => "Full(..)",
            Self::Disconnected(_) => "Disconnected(..)",
        })
    }
}

impl<T> fmt::Display for TrySendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full(_) => "sending on a full channel",
            Self::Disconnected(_) => "sending on a channel that nobody receives from",
        })
    }
}

impl<T> std::error::Error for TrySendError<T> {}

/// Panics with an error that std's signature cannot express: the job has failed, or there is no heap or no
/// room in it.
#[cold]
#[track_caller]
fn fail(error: &ObjectError) -> ! {
    panic!("{error}");
}

/// Makes the objects that a value leads to available to other ranks, before they have it.
fn pass_on_for<X: Portable>(value: &X) -> Result<(), ObjectError> {
    if X::HAS_LINKS { pass_on(has_links(value)) } else { Ok(()) }
}

impl<T: Portable> Sender<T> {
    fn outlet(&self) -> Arc<SendQueue> {
        outlet(
            self.end.name(),
            Kind { most: self.end.most::<T>(), bytes: bytes_of::<T>(), discard: discard::<T> },
        )
    }

    /// Sends a value, or the box of one; returns it if the receiver is gone.
    fn send_as<X: Portable>(
        &self,
        value: X,
        here: &'static Location<'static>,
    ) -> Result<Result<(), X>, ObjectError> {
        settle_for(&value).and_then(|()| pass_on_for(&value))?;
        let mut value = Some(value);
        let sent = self.outlet().send(|to| value.take().into_iter().for_each(|value| give(value, to)));
        match (sent, value) {
            (Err(unsent @ (Unsent::Lost(_) | Unsent::Gone(_))), _) => Err(self.unsent(unsent, here)),
            (Err(_), Some(value)) => Ok(Err(value)),
            _ => Ok(Ok(())),
        }
    }

    /// Why nothing could be sent, of a node that is lost.
    fn unsent(&self, unsent: Unsent, here: &'static Location<'static>) -> ObjectError {
        match unsent {
            Unsent::Gone(node) => self.end.is_lost::<Receiver<T>>(lost_node(node), here),
            Unsent::Lost(error) => self.end.is_lost::<Self>(*error, here),
            Unsent::Full | Unsent::Disconnected => misunderstood(self.end.name()),
        }
    }

    /// Sends a value; waits while there is no room for it and the receiver exists (see
    /// [`JoinHandle`](crate::JoinHandle) for a deadlock to avoid). A value that was sent may still not be
    /// received: if the receiver is dropped first, the value is dropped, on some rank.
    ///
    /// # Errors
    /// With the value, if the receiver is known to be gone: the home reports it in its next answer;
    /// [`Sender::try_send`] and [`Sender::flush`] wait for that.
    ///
    /// # Panics
    /// If the job has failed, and where [`Sender::send_checked`] has an error; and for a value of more than 1
    /// KiB, when there is no room in the heap.
    #[track_caller]
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        let here = Location::caller();
        let sent = match is_large::<T>() {
            true => self
                .send_as(DBox::new(value), here)
                .map(|sent| sent.map_err(|boxed| SendError(boxed.into_inner()))),
            false => self.send_as(value, here).map(|sent| sent.map_err(SendError)),
        };
        match sent {
            Ok(sent) => sent,
            Err(error) => fail(&error),
        }
    }

    /// [`Sender::send`], for jobs that continue without a lost node: returns true if the receiver exists;
    /// else the value is dropped.
    ///
    /// # Errors
    /// [`ObjectError::Lost`], with the type of the lost end and this call: if the channel's node is lost, or
    /// if the receiver was last on a lost node and there is no room. Values sent by this rank that have found
    /// no room are dropped then; a later send succeeds if another rank receives by then.
    ///
    /// # Panics
    /// For a value of more than 1 KiB, when there is no room in the heap.
    #[track_caller]
    pub fn send_checked(&self, value: T) -> Result<bool, ObjectError> {
        let here = Location::caller();
        Ok(match is_large::<T>() {
            true => self.send_as(DBox::new(value), here)?.is_ok(),
            false => self.send_as(value, here)?.is_ok(),
        })
    }

    #[track_caller]
    fn try_send_as<X: Portable>(&self, value: X) -> Result<(), TrySendError<X>> {
        if let Err(error) = settle_for(&value).and_then(|()| pass_on_for(&value)) {
            fail(&error);
        }
        let mut bytes = Vec::new();
        give(value, &mut bytes);
        match self.outlet().try_send(&bytes) {
            Ok(()) => Ok(()),
            Err(unsent @ (Unsent::Lost(_) | Unsent::Gone(_))) => {
                // It is not received.
                drop(take::<X>(&bytes));
                fail(&self.unsent(unsent, Location::caller()))
            }
            Err(Unsent::Full) => Err(TrySendError::Full(take(&bytes))),
            Err(Unsent::Disconnected) => Err(TrySendError::Disconnected(take(&bytes))),
        }
    }

    /// Sends a value if there is room now: a message and its answer.
    ///
    /// # Errors
    /// With the value, if there is no room, for it or for values that this rank has sent before; or if the
    /// receiver is gone.
    ///
    /// # Panics
    /// As [`Sender::send`].
    #[track_caller]
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        if !is_large::<T>() {
            return self.try_send_as(value);
        }
        self.try_send_as(DBox::new(value)).map_err(|refused| match refused {
            TrySendError::Full(boxed) => TrySendError::Full(boxed.into_inner()),
            TrySendError::Disconnected(boxed) => TrySendError::Disconnected(boxed.into_inner()),
        })
    }

    /// Waits until all values that this rank has sent are at the channel's home; false: the receiver is known
    /// to be gone, and some of them may have been dropped.
    ///
    /// # Errors
    /// As [`Sender::send_checked`].
    #[track_caller]
    pub fn flush(&self) -> Result<bool, ObjectError> {
        let here = Location::caller();
        self.outlet().flush().map_err(|unsent| self.unsent(unsent, here))
    }

    /// Another sender.
    ///
    /// # Errors
    /// If the job has failed, or the channel's node is lost.
    #[track_caller]
    pub fn try_clone(&self) -> Result<Self, ObjectError> {
        let here = Location::caller();
        self.outlet().join().map_err(|error| self.end.is_lost::<Self>(error, here))?;
        Ok(Self { end: End { ..self.end }, sends: PhantomData })
    }
}

impl<T: Portable> Clone for Sender<T> {
    /// # Panics
    /// If [`Sender::try_clone`] fails.
    #[track_caller]
    fn clone(&self) -> Self {
        match self.try_clone() {
            Ok(clone) => clone,
            Err(error) => fail(&error),
        }
    }
}

impl<T: Portable> Drop for Sender<T> {
    fn drop(&mut self) {
        // Values left when the heap has ended are gone with it.
        if job().is_ok() {
            let _ = self.outlet().leave();
        }
    }
}

impl<T: Portable> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sender({})", self.end.number)
    }
}

/// Values that have arrived and were not taken yet: the last is the next.
#[derive(Portable)]
struct ReceiveBuffer<T: Portable> {
    values: DVec<T>,
    boxes: DVec<DBox<T>>,
    /// For values without bytes: their number.
    count: u64,
}

impl<T: Portable> Default for ReceiveBuffer<T> {
    fn default() -> Self {
        Self { values: DVec::new(), boxes: DVec::new(), count: 0 }
    }
}

impl<T: Portable> ReceiveBuffer<T> {
    fn reserve(&mut self, count: usize) -> Result<(), ObjectError> {
        match (is_large::<T>(), size_of::<T>()) {
            (true, _) => self.boxes.try_reserve(count),
            (false, 0) => Ok(()),
            _ => self.values.try_reserve(count),
        }
    }

    fn put(&mut self, bytes: &[u8], count: usize) {
        let each = bytes_of::<T>();
        if each == 0 {
            self.count += count as u64;
        } else if is_large::<T>() {
            bytes.rchunks_exact(each).for_each(|boxed| self.boxes.push(take(boxed)));
        } else {
            bytes.rchunks_exact(each).for_each(|value| self.values.push(take(value)));
        }
    }

    fn next(&mut self) -> Option<T> {
        if is_large::<T>() {
            self.boxes.pop().map(DBox::into_inner)
        } else if size_of::<T>() > 0 {
            self.values.pop()
        } else {
            self.count = self.count.checked_sub(1)?;
            Some(take(&[]))
        }
    }
}

/// The end of a [`channel`] where values come out, as [`std::sync::mpsc::Receiver`]: there is one. It is
/// portable, with its arrived values: it may be given to a task, sent, or lie in a box.
///
/// ```compile_fail,E0599
/// # use vgas_objects::sync::Receiver;
/// fn two(receiver: Receiver<u64>) -> Receiver<u64> { receiver.clone() }
/// ```
/// ```compile_fail,E0277
/// # use vgas_objects::{DBox, sync::Receiver};
/// fn read(receiver: &DBox<Receiver<u64>>) -> u64 { receiver.recv().unwrap() }
/// ```
pub struct Receiver<T: Portable> {
    end: End,
    rest: RefCell<ReceiveBuffer<T>>,
}

// SAFETY: its bytes are numbers, and received values, whose links are all visited: these are borrowed only
// while a method of this file runs.
unsafe impl<T: Portable> Portable for Receiver<T> {
    const HAS_LINKS: bool = true;

    fn links(&self, visit: &mut dyn FnMut(&Link)) {
        meet();
        if let Ok(rest) = self.rest.try_borrow() {
            rest.links(visit);
        }
    }

    fn describe(layout: &mut Layout) {
        layout.begin::<Self>();
        T::describe(layout);
    }
}

impl<T: Portable> Receiver<T> {
    fn take(&self) -> Option<T> {
        self.rest.borrow_mut().next()
    }

    /// Requests more, until some time, or without waiting; returns true if some came; none if all senders are
    /// gone.
    fn more_checked(
        &self,
        deadline: Option<Instant>,
        try_only: bool,
        here: &'static Location<'static>,
    ) -> Result<Option<bool>, ObjectError> {
        let answer = self.ask(deadline, try_only).map_err(|error| self.end.is_lost::<Self>(error, here))?;
        if !answer.is_whole(bytes_of::<T>(), self.end.most::<T>()) {
            return Err(misunderstood(self.end.name()));
        }
        match answer {
            Answer::Values(count, Bytes(values)) => {
                self.rest.borrow_mut().put(&values, count as usize);
                Ok(Some(true))
            }
            Answer::Nothing => Ok(Some(false)),
            Answer::Ended => Ok(None),
            Answer::Lost(node, ..) => Err(self.end.is_lost::<Sender<T>>(lost_node(NodeId(node)), here)),
            _ => Err(misunderstood(self.end.name())),
        }
    }

    /// As [`Receiver::more_checked`], where an error has no other way.
    #[track_caller]
    fn more(&self, deadline: Option<Instant>, try_only: bool) -> Result<bool, RecvError> {
        match self.more_checked(deadline, try_only, Location::caller()) {
            Ok(Some(came)) => Ok(came),
            Ok(None) => Err(RecvError),
            Err(error) => fail(&error),
        }
    }

    fn ask(&self, deadline: Option<Instant>, try_only: bool) -> Result<Answer, ObjectError> {
        let (job, node, channel) = (job()?, NodeId(self.end.node), self.end.number);
        if node.0 >= job.nodes() {
            // A channel of an earlier job, which had more nodes.
            return Ok(Answer::Ended);
        }
        let most = self.end.most::<T>();
        // Before anything is on its way here.
        self.rest.borrow_mut().reserve(most)?;
        let request = Request::Receive { channel, most: most as u32, try_only };
        let mut call = job.start_call::<ChannelService>(node, &request)?;
        if deadline.is_some() {
            if let Some(answer) = wait::answered(&mut call, deadline)? {
                return Ok(answer);
            }
            // Answered in any case now, with what may have come meanwhile.
            self.end.call(&Request::Cancel { channel })?;
        }
        wait::answer(call)
    }

    /// The next value; waits until there is one.
    ///
    /// # Errors
    /// If there is none, and all senders are gone.
    ///
    /// # Panics
    /// If the job has failed, or there is no room in the heap for what comes together; and if
    /// [`Receiver::recv_checked`] has an error.
    #[track_caller]
    pub fn recv(&self) -> Result<T, RecvError> {
        loop {
            if let Some(value) = self.take() {
                return Ok(value);
            }
            self.more(None, false)?;
        }
    }

    /// [`Receiver::recv`], for jobs that continue without a lost node; none if all senders are gone.
    ///
    /// # Errors
    /// [`ObjectError::Lost`], with the type of the end that is lost and this call: when the channel's node
    /// is; and once for each other node that is lost, when all that had come is taken, because senders may
    /// have been there. A later call waits for the remaining senders.
    #[track_caller]
    pub fn recv_checked(&self) -> Result<Option<T>, ObjectError> {
        let here = Location::caller();
        loop {
            if let Some(value) = self.take() {
                return Ok(Some(value));
            }
            if self.more_checked(None, false, here)?.is_none() {
                return Ok(None);
            }
        }
    }

    /// The next value, if there is one: without messages if it came with others, else by a message and its answer.
    ///
    /// # Errors
    /// If there is none.
    ///
    /// # Panics
    /// As [`Receiver::recv`].
    #[track_caller]
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        if let Some(value) = self.take() {
            return Ok(value);
        }
        loop {
            let has_left = has_left(self.end.name());
            match self.more(None, true) {
                Ok(_) => match self.take() {
                    Some(value) => return Ok(value),
                    None if has_left => return Err(TryRecvError::Empty),
                    None => {}
                },
                Err(RecvError) => return Err(TryRecvError::Disconnected),
            }
            // Earlier sends of this rank arrive first, as in std. There is room for it, and where there is no
            // home, the next try says so.
            let _ = let_leave(self.end.name());
        }
    }

    /// Returns the next value; waits for `timeout`, and some messages' time.
    ///
    /// # Errors
    /// When none has come.
    ///
    /// # Panics
    /// As [`Receiver::recv`].
    #[track_caller]
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvTimeoutError> {
        if let Some(value) = self.take() {
            return Ok(value);
        }
        let Some(deadline) = Instant::now().checked_add(timeout) else {
            return self.recv().map_err(|RecvError| RecvTimeoutError::Disconnected);
        };
        match self.more(Some(deadline), false) {
            Ok(_) => self.take().ok_or(RecvTimeoutError::Timeout),
            Err(RecvError) => Err(RecvTimeoutError::Disconnected),
        }
    }

    /// Returns the values, as they arrive, until all senders are gone.
    pub fn iter(&self) -> impl Iterator<Item = T> {
        std::iter::from_fn(|| self.recv().ok())
    }

    /// The values that are there, as they come; ends when there is none.
    pub fn try_iter(&self) -> impl Iterator<Item = T> {
        std::iter::from_fn(|| self.try_recv().ok())
    }
}

/// The values of a channel, as they come.
#[derive(Debug)]
pub struct IntoIter<T: Portable>(Receiver<T>);

impl<T: Portable> Iterator for IntoIter<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.0.recv().ok()
    }
}

impl<T: Portable> IntoIterator for Receiver<T> {
    type Item = T;
    type IntoIter = IntoIter<T>;

    fn into_iter(self) -> IntoIter<T> {
        IntoIter(self)
    }
}

impl<T: Portable> Drop for Receiver<T> {
    fn drop(&mut self) {
        if size_of::<T>() == 0 {
            // These are only counted.
            while self.take().is_some() {}
        }
        // Values left when the heap has ended are gone with it.
        if job().is_err() || self.end.call(&Request::Close { channel: self.end.number }).is_err() {
            return;
        }
        let most = self.end.most::<T>();
        let request = Request::Receive { channel: self.end.number, most: most as u32, try_only: true };
        while let Ok(answer) = self.end.call(&request)
            && answer.is_whole(bytes_of::<T>(), most)
            && let Answer::Values(count @ 1.., Bytes(values)) = answer
        {
            discard::<T>(&values, count as usize);
        }
    }
}

impl<T: Portable> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Receiver({})", self.end.number)
    }
}
