//! Messages of a peer to itself: a queue in private memory, so that a handler that sends to its own peer does not run
//! another handler inside itself.

use super::wait::lock;
use crate::address::Peer;
use crate::conduit::owned::{OwnedArrival, OwnedDelivery, copy_of};
use crate::conduit::{Sent, Traffic};
use crate::error::Result;
use crate::message::{Delivery, Destination, Direction, Message, Payload, Source};
use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use vgas_shm::copy::copy;
use vgas_shm::spin::SpinLock;

/// Copies the payload of a message to its place.
///
/// # Safety
/// As many bytes are valid for writes at `to`.
pub(super) unsafe fn copy_within_process(source: Source<'_>, to: *mut u8) {
    let (from, bytes) = (source.address(), source.bytes());
    let overlap = from.addr().abs_diff(to.addr()) < bytes;
    // SAFETY: the destination is the caller's duty; the source is valid during the send. If the two share
    // bytes of a segment, they are copied as is allowed then.
    unsafe { if overlap { std::ptr::copy(from, to, bytes) } else { copy(from, to, bytes) } };
}

/// Requests that wait at most; a request beyond that is `Busy`, so that a peer that floods itself polls meanwhile.
const REQUESTS_MAX: usize = 1024;

pub(super) struct Loopback {
    queues: Mutex<Queues>,
    waiting: AtomicUsize,
    /// Held by the thread that delivers.
    delivering: SpinLock<()>,
}

#[derive(Default)]
struct Queues {
    requests: VecDeque<OwnedDelivery>,
    replies: VecDeque<OwnedDelivery>,
}

impl Default for Loopback {
    fn default() -> Self {
        Self { queues: Mutex::default(), waiting: AtomicUsize::new(0), delivering: SpinLock::new(()) }
    }
}

impl Loopback {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.load(Ordering::Acquire) == 0
    }

    /// Takes a message; `place` resolves the destination of a long one.
    pub(super) fn try_send(
        &self,
        me: Peer,
        message: &Message<'_>,
        place: impl FnOnce(Destination, usize) -> Result<*mut u8>,
    ) -> Result<Sent> {
        let mut queues = lock(&self.queues);
        if message.direction == Direction::Request && queues.requests.len() >= REQUESTS_MAX {
            return Ok(Sent::Busy);
        }
        let payload = match message.payload {
            Payload::Short => OwnedArrival::Short,
            Payload::Medium(source) => OwnedArrival::Medium(copy_of(source)),
            Payload::Long(source, destination) => {
                let to = place(destination, source.bytes())?;
                // SAFETY: `place` has checked the destination's range.
                unsafe { copy_within_process(source, to) };
                OwnedArrival::Long(to.expose_provenance(), source.bytes())
            }
        };
        let owned = OwnedDelivery {
            from: me,
            direction: message.direction,
            handler: message.handler,
            arguments: message.arguments.to_vec(),
            payload,
        };
        match message.direction {
            Direction::Request => queues.requests.push_back(owned),
            Direction::Reply => queues.replies.push_back(owned),
        }
        self.waiting.fetch_add(1, Ordering::AcqRel);
        Ok(Sent::Accepted)
    }

    /// Delivers what was waiting at the start of the call and may be delivered now, replies first; nothing while another
    /// thread does.
    pub(super) fn deliver(
        &self,
        traffic: Traffic,
        mut run: impl FnMut(Delivery<'_>) -> Result<()>,
    ) -> Result<usize> {
        let Some(_delivering) = self.delivering.try_lock() else { return Ok(0) };
        let batch: Vec<OwnedDelivery> = {
            let mut queues = lock(&self.queues);
            let Queues { requests, replies } = &mut *queues;
            let mut batch = Vec::with_capacity(replies.len() + requests.len());
            for queue in [replies, requests] {
                let (now, later) =
                    std::mem::take(queue).into_iter().partition(|owned| traffic.admits(owned.handler));
                let now: VecDeque<OwnedDelivery> = now;
                batch.extend(now);
                *queue = later;
            }
            batch
        };
        self.waiting.fetch_sub(batch.len(), Ordering::AcqRel);
        for owned in &batch {
            run(owned.delivery())?;
        }
        Ok(batch.len())
    }
}
