//! Puts and gets in flight: the operations behind a [`Handle`], and the destinations of answers to gets.
//!
//! Numbers of operations travel to the agent that serves them and back, so they are looked up, not trusted: an answer
//! is accepted only from the peer that was asked, for an operation that still waits, inside its buffer.

use super::Endpoint;
use super::wait::lock;
use crate::address::Peer;
use crate::error::{Result, RmaError};
use slotmap::{DefaultKey, Key, KeyData, SlotMap};
use smallvec::SmallVec;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Puts or gets that were started. It must be waited for, or tried until it is complete; dropping it forgets the
/// operations, which is allowed only for puts.
#[must_use = "a started operation must be waited for"]
#[derive(Debug, Default)]
pub struct Handle {
    /// Empty: complete. Several after an access region.
    pending: SmallVec<[Arc<Operation>; 1]>,
}

impl Handle {
    /// The handle of an operation that is complete already.
    #[inline]
    pub const fn complete() -> Self {
        Self { pending: SmallVec::new_const() }
    }

    /// Returns true if everything has completed; makes no progress.
    pub fn is_complete(&self) -> bool {
        self.pending.iter().all(|operation| operation.is_done())
    }

    /// Returns true if it stands for nothing: complete, without a result to be taken.
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Makes this handle stand for the other's operations, too.
    pub fn join(&mut self, mut other: Handle) {
        self.pending.append(&mut other.pending);
    }

    /// Forgets what has completed without an error; keeps long accumulations short.
    pub fn prune(&mut self) {
        self.pending.retain(|operation| !operation.is_done() || operation.has_error.load(Ordering::Acquire));
    }

    pub(super) fn len(&self) -> usize {
        self.pending.len()
    }

    /// The result of completed operations.
    fn take_result(&mut self) -> Result<()> {
        // One, nearly always.
        if let [operation] = &self.pending[..] {
            let result = operation.result();
            self.pending.clear();
            return result;
        }
        let mut result = Ok(());
        for operation in self.pending.drain(..) {
            result = result.and(operation.result());
        }
        result
    }
}

impl From<Arc<Operation>> for Handle {
    fn from(operation: Arc<Operation>) -> Self {
        Self { pending: SmallVec::from_buf([operation]) }
    }
}

/// Progress of one operation.
#[derive(Debug)]
pub(super) struct Operation {
    id: u64,
    /// Parts that have not been answered; where their number is found out while they are sent, one more until then.
    parts: AtomicU64,
    has_error: AtomicBool,
    error: Mutex<Option<RmaError>>,
}

impl Operation {
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    fn is_done(&self) -> bool {
        self.parts.load(Ordering::Acquire) == 0
    }

    fn result(&self) -> Result<()> {
        if !self.has_error.load(Ordering::Acquire) {
            return Ok(());
        }
        lock(&self.error).as_ref().map_or(Ok(()), |error| Err(error.duplicate()))
    }

    pub(super) fn add_part(&self) {
        self.parts.fetch_add(1, Ordering::Relaxed);
    }

    /// True: it was the last.
    fn finish_part(&self) -> bool {
        // None is left where its server was lost.
        let less = |parts: u64| parts.checked_sub(1);
        self.parts.fetch_update(Ordering::AcqRel, Ordering::Acquire, less) == Ok(1)
    }
}

/// The memory that a get fills; empty for a put.
struct Waiting {
    operation: Arc<Operation>,
    server: Peer,
    /// Address (exposed) and length of the initiator's buffer.
    address: usize,
    bytes: u64,
}

/// The operations of an endpoint that wait for answers. A number says where in the table its operation is, and how often
/// the place was used: it comes again after two billion uses of the place.
#[derive(Default)]
pub(super) struct Operations {
    waiting: Mutex<SlotMap<DefaultKey, Waiting>>,
}

fn key(id: u64) -> DefaultKey {
    KeyData::from_ffi(id).into()
}

impl Operations {
    /// Starts an operation of `parts` parts, each of which will be answered, at least one.
    pub(super) fn start(&self, server: Peer, buffer: *mut u8, bytes: u64, parts: u64) -> Arc<Operation> {
        let address = buffer.expose_provenance();
        let mut waiting = lock(&self.waiting);
        let key = waiting.insert_with_key(|key| {
            let operation = Arc::new(Operation {
                id: key.data().as_ffi(),
                parts: AtomicU64::new(parts),
                has_error: AtomicBool::new(false),
                error: Mutex::new(None),
            });
            Waiting { operation, server, address, bytes }
        });
        waiting[key].operation.clone()
    }

    /// A part was answered, possibly with an error. An answer that fits no operation is the peer's fault.
    pub(super) fn answered(&self, from: Peer, id: u64, error: Option<RmaError>) -> Result<()> {
        let mut waiting = lock(&self.waiting);
        let Some(Waiting { operation, .. }) = waiting.get(key(id)).filter(|entry| entry.server == from)
        else {
            return Err(unknown(from, id));
        };
        if let Some(error) = error {
            lock(&operation.error).get_or_insert(error);
            operation.has_error.store(true, Ordering::Release);
        }
        if operation.finish_part() {
            waiting.remove(key(id));
        }
        Ok(())
    }

    /// One that waits.
    pub(super) fn find(&self, id: u64) -> Option<Arc<Operation>> {
        lock(&self.waiting).get(key(id)).map(|waiting| waiting.operation.clone())
    }

    /// Ends, with an error, what waits for servers that are lost.
    pub(super) fn lose(&self, is_lost: impl Fn(Peer) -> bool, why: impl Fn(Peer) -> RmaError) {
        lock(&self.waiting).retain(|_, Waiting { operation, server, .. }| {
            if !is_lost(*server) {
                return true;
            }
            lock(&operation.error).get_or_insert_with(|| why(*server));
            operation.has_error.store(true, Ordering::Release);
            operation.parts.store(0, Ordering::Release);
            false
        });
    }

    /// Returns true if none waits.
    pub(super) fn is_empty(&self) -> bool {
        lock(&self.waiting).is_empty()
    }

    /// The initiator has sent all parts.
    pub(super) fn part_done(&self, operation: &Operation) {
        if operation.finish_part() {
            self.forget(operation);
        }
    }

    /// Returns the address for the bytes of an answer.
    pub(super) fn destination(&self, from: Peer, id: u64, offset: u64, bytes: usize) -> Result<*mut u8> {
        let waiting = lock(&self.waiting);
        let entry = waiting.get(key(id)).filter(|entry| entry.server == from);
        let entry = entry.ok_or_else(|| unknown(from, id))?;
        if offset.checked_add(bytes as u64).is_none_or(|end| end > entry.bytes) {
            let what = format!("{bytes} bytes at {offset} answer a get of {}", entry.bytes);
            return Err(RmaError::Protocol { peer: Some(from), what });
        }
        Ok(std::ptr::with_exposed_provenance_mut(entry.address + offset as usize))
    }

    /// Forgets an operation of this endpoint. One of another endpoint may have the same number.
    fn forget(&self, operation: &Operation) {
        let mut waiting = lock(&self.waiting);
        if waiting.get(key(operation.id)).is_some_and(|entry| std::ptr::eq(&*entry.operation, operation)) {
            waiting.remove(key(operation.id));
        }
    }

    /// Returns the server whose answers are still awaited, and whether they are written into the memory of the caller.
    fn awaited(&self, operation: &Operation) -> Option<(Peer, bool)> {
        let waiting = lock(&self.waiting);
        let entry = waiting.get(key(operation.id)).filter(|entry| std::ptr::eq(&*entry.operation, operation));
        entry.map(|entry| (entry.server, entry.bytes > 0))
    }
}

fn unknown(from: Peer, id: u64) -> RmaError {
    RmaError::Protocol {
        peer: Some(from),
        what: format!("an answer to operation {id}, which it was not asked for"),
    }
}

/// Operations that a thread waits for. If a handler panics in this thread meanwhile, the caller's memory may be freed by the unwinding:
/// the operations end before.
struct Awaited<'a> {
    endpoint: &'a Endpoint,
    handle: &'a mut Handle,
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        if !self.handle.is_complete()
            && std::thread::panicking()
            && self.endpoint.wait_until(None, || self.handle.is_complete()).is_err()
        {
            self.endpoint.give_up(self.handle);
        }
    }
}

/// Parts of an operation that were not sent yet. If a handler panics while they are sent, they are forgotten, and the others are
/// waited for.
pub(super) struct Unsent<'a> {
    endpoint: &'a Endpoint,
    operation: Arc<Operation>,
    /// Number of parts left.
    pub(super) parts: u64,
}

impl<'a> Unsent<'a> {
    pub(super) fn new(endpoint: &'a Endpoint, operation: Arc<Operation>, parts: u64) -> Self {
        Self { endpoint, operation, parts }
    }
}

impl Drop for Unsent<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            (0..self.parts).for_each(|_| self.endpoint.operations.part_done(&self.operation));
            drop(Awaited { endpoint: self.endpoint, handle: &mut self.operation.clone().into() });
        }
    }
}

impl Endpoint {
    /// Makes progress once; true when the operation is complete (then, and only then, its error is reported).
    pub fn try_sync(&self, handle: &mut Handle) -> Result<bool> {
        let polled = if handle.is_complete() { Ok(()) } else { self.poll().map(drop) };
        self.end_if_complete(handle, polled)
    }

    /// Waits until the operation is complete. After an error, this one's or that of a call that was to start it, its memory is
    /// no longer touched, unless it lies in this rank's own segment: a device that has begun to move those bytes by itself
    /// may still do so as long as the endpoint lives. If a handler panics meanwhile, the panic goes on when the operation is complete.
    #[inline]
    pub fn wait_sync(&self, mut handle: Handle) -> Result<()> {
        if handle.pending.is_empty() { Ok(()) } else { self.wait_sync_ref(&mut handle) }
    }

    pub(super) fn wait_sync_ref(&self, handle: &mut Handle) -> Result<()> {
        let awaited = Awaited { endpoint: self, handle };
        if let Err(error) = self.wait_until(None, || awaited.handle.is_complete()) {
            self.give_up(awaited.handle);
            return Err(error);
        }
        awaited.handle.take_result()
    }

    /// Ends a handle without its operations: when this returns, no thread writes to their memory any more. If
    /// bytes may still come for a get, the endpoint fails: only a failure keeps conduits from completing a
    /// write that they have begun.
    pub(super) fn give_up(&self, handle: &mut Handle) {
        let awaited = |operation: &Arc<Operation>| self.operations.awaited(operation);
        let may_come = |(server, fills): (Peer, bool)| fills && !self.is_gone(server);
        if handle.pending.iter().filter_map(awaited).any(may_come) && self.check_failure().is_ok() {
            let what = "a get was given up while its bytes came: a handler must not wait, nor drop what it has started";
            self.fail(RmaError::Usage(what.into()));
        }
        if handle.pending.iter().filter_map(awaited).any(|(_, fills)| fills) {
            self.await_delivery();
        }
        for operation in handle.pending.drain(..) {
            // The answer to a put comes all the same, unless nothing comes any more.
            let is_put = |(server, fills): (Peer, bool)| !fills && !self.is_gone(server);
            if self.check_failure().is_err() || !self.operations.awaited(&operation).is_some_and(is_put) {
                self.operations.forget(&operation);
            }
        }
    }

    /// Ends an operation in the handler of its answer, or when the endpoint has failed.
    pub(super) fn end_operation(&self, operation: &Operation) {
        if !self.wait.in_handler() {
            self.await_delivery();
        }
        self.operations.forget(operation);
    }

    /// Waits for the end of the delivery of another thread. No delivery begins after a failure.
    fn await_delivery(&self) {
        if !self.delivers_here() {
            drop(lock(&self.delivering));
        }
    }

    /// Makes no progress; true when the operation is complete. Reports its error, or that of a poll that was made for it.
    pub(super) fn end_if_complete(&self, handle: &mut Handle, polled: Result<()>) -> Result<bool> {
        match polled {
            _ if handle.is_complete() => handle.take_result().map(|()| true),
            Ok(()) => Ok(false),
            Err(error) => {
                self.give_up(handle);
                Err(error)
            }
        }
    }

    /// Makes progress once; true when all are complete.
    pub fn try_sync_all(&self, handles: &mut [Handle]) -> Result<bool> {
        let mut all = true;
        for handle in handles {
            all &= self.try_sync(handle)?;
        }
        Ok(all)
    }

    /// Waits until all are complete. All are waited for, also when one fails; the first error is returned.
    pub fn wait_sync_all(&self, handles: impl IntoIterator<Item = Handle>) -> Result<()> {
        let mut all = Handle::complete();
        handles.into_iter().for_each(|handle| all.join(handle));
        self.wait_sync(all)
    }

    /// Waits until at least one of the handles becomes complete; returns how many did. 0 if all were before.
    pub fn wait_sync_some(&self, handles: &mut [Handle]) -> Result<usize> {
        if handles.iter().all(|handle| handle.pending.is_empty()) {
            return Ok(0);
        }
        let some = || handles.iter().any(|handle| !handle.pending.is_empty() && handle.is_complete());
        if let Err(error) = self.wait_until(None, some) {
            handles.iter_mut().for_each(|handle| self.give_up(handle));
            return Err(error);
        }
        let mut done = 0;
        for handle in handles.iter_mut().filter(|h| !h.pending.is_empty() && h.is_complete()) {
            handle.take_result()?;
            done += 1;
        }
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Layout;
    use crate::conduit::Sent;
    use crate::conduit::sim::{SimNetwork, SimOptions};
    use crate::endpoint::{EndpointSpec, handler_index::USER};
    use crate::message::Payload;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::time::{Duration, Instant};

    /// The endpoint of a rank, and of the agent of another node.
    fn endpoints() -> (Arc<SimNetwork>, [Arc<Endpoint>; 2]) {
        let layout = Layout::blocks(2, 2);
        let network = SimNetwork::new(1, layout.peers(), SimOptions::default()).expect("a network");
        let endpoints = [0, 3].map(Peer).map(|me| {
            let spec =
                EndpointSpec { layout: layout.clone(), me, domain: None, network: Some(network.conduit(me)) };
            Endpoint::new(spec).expect("an endpoint")
        });
        (network, endpoints)
    }

    /// Goal: a panic of a handler while a thread waits for a get does not end the wait before the memory of the get is free of writers.
    #[test]
    fn a_panic_waits_for_the_bytes_that_come() {
        let (_network, [rank, _agent]) = endpoints();
        let (tell, has_run) = std::sync::mpsc::channel();
        let panics = move |_: &crate::endpoint::Token<'_>, _: &[u32], _: crate::message::Arrived<'_>| {
            tell.send(()).expect("a listener");
            std::panic::resume_unwind(Box::new("on purpose"))
        };
        rank.register(USER, panics).expect("a free index");
        rank.open();
        let mut memory = [7u8; 8];
        let get = rank.operations.start(Peer(3), memory.as_mut_ptr(), 8, 1);
        let id = get.id();
        assert_eq!(rank.try_request(Peer(0), USER, &[], Payload::Short).expect("a way"), Sent::Accepted);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (rank, is_over) = (&rank, &is_over);
            scope.spawn(move || {
                has_run.recv_timeout(Duration::from_secs(60)).expect("the handler has run");
                // A wait that ends too early does so within this time.
                let begun = Instant::now();
                while begun.elapsed() < Duration::from_millis(50) && !is_over.load(Ordering::SeqCst) {
                    std::thread::park_timeout(Duration::from_millis(1));
                }
                let is_early = is_over.load(Ordering::SeqCst);
                rank.operations.answered(Peer(3), id, None).expect("it waits");
                rank.notify_local();
                assert!(!is_early, "the memory is free, and an answer may come");
            });
            let waited = catch_unwind(AssertUnwindSafe(|| rank.wait_sync(get.into())));
            is_over.store(true, Ordering::SeqCst);
            assert!(waited.is_err(), "the panic goes on");
        });
        assert!(rank.operations.is_empty() && rank.check_failure().is_ok());
    }

    /// Goal: a panic while the parts of a get are sent waits for those that were, and for no other.
    #[test]
    fn a_panic_between_parts_waits_for_those_that_were_sent() {
        let (_network, [rank, _agent]) = endpoints();
        rank.open();
        let mut memory = [7u8; 24];
        let mut sent = Vec::new();
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            rank.send_parts(Peer(3), Some(memory.as_mut_ptr()), 0, 24, 8, |id, at, _| {
                if at == 16 {
                    std::panic::resume_unwind(Box::new("on purpose"));
                }
                sent.push(id);
                // The answer has come before the next part is sent.
                rank.operations.answered(Peer(3), id, None)
            })
        }));
        assert!(unwound.is_err() && sent.len() == 2);
        assert!(rank.operations.is_empty(), "nothing is waited for any more");
    }

    /// Goal: where a handler waits for a get all the same, nothing is written into its memory after it was told that it must not.
    #[test]
    fn a_get_that_a_handler_gives_up_writes_nothing_later() {
        let (_network, [rank, _agent]) = endpoints();
        rank.open();
        let mut memory = [7u8; 8];
        let get = rank.operations.start(Peer(3), memory.as_mut_ptr(), 8, 1);
        let id = get.id();
        let in_handler = rank.wait.enter_handlers();
        assert!(rank.wait_sync(get.into()).is_err(), "a handler must not wait");
        drop(in_handler);
        assert!(rank.operations.destination(Peer(3), id, 0, 8).is_err(), "its memory may be free");
        assert!(matches!(rank.poll(), Err(RmaError::Usage(_))), "what comes finds nobody");
        // A put has no memory that is written.
        let (_network, [rank, _agent]) = endpoints();
        rank.open();
        let put = rank.operations.start(Peer(3), std::ptr::null_mut(), 0, 1);
        let id = put.id();
        let in_handler = rank.wait.enter_handlers();
        assert!(rank.wait_sync(put.into()).is_err());
        drop(in_handler);
        assert!(rank.operations.answered(Peer(3), id, None).is_ok() && rank.check_failure().is_ok());
    }

    /// Goal: an operation is ended by its own endpoint, although others number theirs alike.
    #[test]
    fn endpoints_end_operations_of_their_own() {
        let (_network, [rank, agent]) = endpoints();
        rank.open();
        agent.open();
        let (mut one, mut other) = ([0u8; 8], [0u8; 8]);
        let of_rank = rank.operations.start(Peer(3), one.as_mut_ptr(), 8, 1);
        let of_agent = agent.operations.start(Peer(0), other.as_mut_ptr(), 8, 1);
        assert_eq!(of_rank.id(), of_agent.id());
        agent.give_up(&mut of_rank.into());
        assert!(agent.operations.destination(Peer(0), of_agent.id(), 0, 8).is_ok());
    }
}
