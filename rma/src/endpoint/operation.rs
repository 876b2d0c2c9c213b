//! Puts and gets on their way: what a [`Handle`] stands for, and where the answers to gets belong.
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

    /// Whether everything has completed; no progress is made.
    pub fn is_complete(&self) -> bool {
        self.pending.iter().all(|operation| operation.is_done())
    }

    /// Whether it stands for nothing: complete, without a result to be taken.
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
    /// Starts an operation of so many parts, each of which will be answered, at least one.
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

    /// Whether none waits.
    pub(super) fn is_empty(&self) -> bool {
        lock(&self.waiting).is_empty()
    }

    /// The initiator has sent all parts.
    pub(super) fn part_done(&self, operation: &Operation) {
        if operation.finish_part() {
            self.forget(operation);
        }
    }

    /// Where the bytes of an answer belong.
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

    fn forget(&self, operation: &Operation) {
        lock(&self.waiting).remove(key(operation.id));
    }
}

fn unknown(from: Peer, id: u64) -> RmaError {
    RmaError::Protocol {
        peer: Some(from),
        what: format!("an answer to operation {id}, which it was not asked for"),
    }
}

impl Endpoint {
    /// Makes progress once; true when the operation is complete (then, and only then, its error is reported).
    pub fn try_sync(&self, handle: &mut Handle) -> Result<bool> {
        if !handle.is_complete() {
            if let Err(error) = self.poll() {
                self.give_up(handle);
                return Err(error);
            }
            if !handle.is_complete() {
                return Ok(false);
            }
        }
        handle.take_result()?;
        Ok(true)
    }

    /// Waits until the operation is complete. After an error, this one's or that of a call that was to start it, its memory is
    /// no longer touched, unless it lies in this rank's own segment: a device that has begun to move those bytes by itself
    /// may still do so as long as the endpoint lives.
    #[inline]
    pub fn wait_sync(&self, mut handle: Handle) -> Result<()> {
        if handle.pending.is_empty() { Ok(()) } else { self.wait_sync_ref(&mut handle) }
    }

    pub(super) fn wait_sync_ref(&self, handle: &mut Handle) -> Result<()> {
        if let Err(error) = self.wait_until(None, || handle.is_complete()) {
            self.give_up(handle);
            return Err(error);
        }
        handle.take_result()
    }

    /// The endpoint has failed: from now on no thread writes to the operations' memory.
    pub(super) fn give_up(&self, handle: &mut Handle) {
        if !handle.is_complete() && !self.wait.in_handler() {
            // No delivery begins after the failure; wait for one that has begun.
            drop(lock(&self.delivering));
        }
        for operation in handle.pending.drain(..) {
            self.operations.forget(&operation);
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
        let mut result = Ok(());
        for handle in handles {
            result = result.and(self.wait_sync(handle));
        }
        result
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
