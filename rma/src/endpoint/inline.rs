//! Requests of a peer to itself whose handlers run inside the call, as clients of GASNet expect: no queue, no poll.

use super::loopback::copy_within_process;
use super::{Endpoint, Handler, Token};
use crate::address::RegionId;
use crate::error::Result;
use crate::message::{
    ARGUMENTS_MAX, Arrived, Destination, Direction, MediumPayload, Message, Payload, Source,
};
use std::cell::RefCell;
use std::sync::atomic::Ordering;
use vgas_shm::copy::copy;

/// A buffer for a medium payload. Copies into it are fastest where cache lines begin with it.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct Line {
    _bytes: [u64; 8],
}

thread_local! {
    /// Buffers for the medium payloads of a request and of the reply to it, by [`Direction`]. A handler may write to them.
    static BUFFERS: [RefCell<Vec<Line>>; 2] = const { [const { RefCell::new(Vec::new()) }; 2] };
}

impl Endpoint {
    /// Sends a request to this peer itself. Its handler has run when this returns, and so has that of its reply: both run in this
    /// thread. In contrast, [`Endpoint::request`] to the own peer leaves the message to the next poll. Messages that were left so before
    /// are delivered first, unless another thread delivers them at this moment.
    ///
    /// Any number of threads may call it at once: handlers that are reached this way may run in several threads at a time. In a
    /// handler, and while [messages are withheld](Endpoint::withhold), it is [`Endpoint::request`]. The source is reusable when it returns.
    ///
    /// # Errors
    /// [`RmaError::Usage`](crate::RmaError::Usage) for a message that exceeds a limit; errors of a long
    /// payload's destination, and of an unregistered handler; the endpoint's error once it has failed.
    #[inline]
    pub fn request_inline(&self, handler: u8, arguments: &[u32], payload: &Payload<'_>) -> Result<()> {
        if self.is_inline_now()
            && let Payload::Short = payload
            && let Some(run) = self.short_handler(handler, arguments)
        {
            let running = self.wait.enter_handlers();
            self.counters.handled_inline(Direction::Request, 0);
            run(&Token::inline(self, Direction::Request), arguments, Arrived::Short);
            drop(running);
            self.notify_local();
            return Ok(());
        }
        self.request_inline_any(handler, arguments, payload)
    }

    /// Returns true if handlers may run in this thread now, and nothing is to be delivered before.
    #[inline]
    fn is_inline_now(&self) -> bool {
        !self.wait.in_handler()
            && !self.withholds.load(Ordering::Relaxed)
            && !self.failed.load(Ordering::Relaxed)
            && self.loopback.is_empty()
    }

    #[inline]
    fn short_handler(&self, handler: u8, arguments: &[u32]) -> Option<&Handler> {
        if arguments.len() > ARGUMENTS_MAX { None } else { self.handlers[usize::from(handler)].get() }
    }

    fn request_inline_any(&self, handler: u8, arguments: &[u32], payload: &Payload<'_>) -> Result<()> {
        if self.wait.in_handler() || self.withholds.load(Ordering::Relaxed) {
            return self.request(self.me, handler, arguments, *payload);
        }
        self.check_failure()?;
        if !self.loopback.is_empty() {
            self.poll()?;
        }
        let running = self.wait.enter_handlers();
        self.handle_inline(Direction::Request, handler, arguments, payload)?;
        drop(running);
        self.notify_local();
        Ok(())
    }

    /// Runs the handler of a reply of this peer to itself, inside that of the request.
    #[inline]
    pub(super) fn reply_inline(&self, handler: u8, arguments: &[u32], payload: &Payload<'_>) -> Result<()> {
        if let Payload::Short = payload
            && let Some(run) = self.short_handler(handler, arguments)
        {
            self.counters.handled_inline(Direction::Reply, 0);
            run(&Token::inline(self, Direction::Reply), arguments, Arrived::Short);
            return Ok(());
        }
        self.handle_inline(Direction::Reply, handler, arguments, payload)
    }

    /// Runs the handler of a message of this peer to itself.
    fn handle_inline(
        &self,
        direction: Direction,
        handler: u8,
        arguments: &[u32],
        payload: &Payload<'_>,
    ) -> Result<()> {
        // References, because a payload that was just written and is copied as a whole makes the processor wait.
        let (bytes, limit) = match payload {
            Payload::Short => (0, 0),
            Payload::Medium(source) => (source.bytes(), self.medium_bytes_max),
            Payload::Long(source, _) => (source.bytes(), self.long_bytes_max),
        };
        if bytes > limit || arguments.len() > ARGUMENTS_MAX {
            return self.check_size(&Message { direction, handler, arguments, payload: *payload });
        }
        let run = self.handler_of(self.me, handler)?;
        let token = Token::inline(self, direction);
        let arrived = match payload {
            Payload::Short => Arrived::Short,
            Payload::Medium(source) => {
                self.counters.handled_inline(direction, bytes);
                with_copy(direction, source, |bytes| run(&token, arguments, Arrived::Medium(bytes)));
                return Ok(());
            }
            Payload::Long(source, destination) => {
                let to = self.inline_destination(destination, bytes)?;
                // SAFETY: the range was checked (rule 2).
                unsafe { copy_within_process(*source, to) };
                Arrived::Long(to, bytes)
            }
        };
        self.counters.handled_inline(direction, bytes);
        run(&token, arguments, arrived);
        Ok(())
    }

    #[inline]
    fn inline_destination(&self, destination: &Destination, bytes: usize) -> Result<*mut u8> {
        if let &Destination::Region { region: RegionId::SEGMENT, owner, offset } = destination
            && owner == self.me
            && let Some(rank) = self.rank()
            && let Some(address) = self.segments.reach(rank.into(), offset, bytes)
        {
            return Ok(address);
        }
        self.destination(self.me, *destination, bytes)
    }
}

/// Runs `handle` on a copy of the payload of a medium message.
#[inline]
fn with_copy(direction: Direction, source: &Source<'_>, handle: impl Fn(MediumPayload<'_>)) {
    let handle_in = |buffer: &mut Vec<Line>| {
        let lines = source.bytes().div_ceil(size_of::<Line>()).max(1);
        if buffer.len() < lines {
            buffer.resize(lines, Line::default());
        }
        let address = buffer.as_mut_ptr().cast::<u8>();
        // SAFETY: the buffer is long enough, and this call's alone; the source is valid during the send. If
        // whole words are not required, the C library's copy may be used, which is faster from 16 KiB on.
        let bytes = unsafe {
            if source.is_contended() {
                copy(source.address(), address, source.bytes());
            } else if source.bytes() > 0 {
                std::ptr::copy_nonoverlapping(source.address(), address, source.bytes());
            }
            std::slice::from_raw_parts_mut(address, source.bytes())
        };
        handle(bytes.into());
    };
    let in_kept = |buffers: &[RefCell<Vec<Line>>; 2]| {
        let buffer = buffers[direction as usize].try_borrow_mut();
        buffer.map(|mut buffer| handle_in(&mut buffer)).is_ok()
    };
    // Another endpoint's message may be handled around this one; and a thread that ends has given its buffers up when destructors of
    // the program still send.
    if !BUFFERS.try_with(in_kept).unwrap_or_default() {
        handle_in(&mut Vec::new());
    }
}
