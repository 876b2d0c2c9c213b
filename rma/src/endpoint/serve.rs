//! Puts and gets between nodes as active messages (GASNet's extended reference), both sides.
//!
//! The initiator splits an operation into parts and sends them to the agent of the target's node, which maps the
//! segments of its ranks: the target itself need not do anything.
//!
//! ```text
//! put     PUT (long, into the segment)            → DONE
//! get     GET (where, how much, operation)        → DATA (long, into the operation), or DATA_MEDIUM
//! memset  MEMSET (where, how much, value)         → DONE
//! ```
//!
//! A conduit with one-sided access carries puts and gets without the agent; the parts and their ends are the same.

use super::operation::{Handle, Unsent};
use super::{Endpoint, Handler, Token};
use crate::address::{Peer, PinnedPart};
use crate::conduit::{Conduit, Part, Place};
use crate::error::{Result, RmaError};
use crate::message::{Arrived, Destination, Payload, Source};
use std::sync::atomic::Ordering;
use vgas_shm::copy::{copy, fill};

const PUT: u8 = 0;
pub(super) const DONE: u8 = 1;
const GET: u8 = 2;
pub(super) const DATA: u8 = 3;
pub(super) const DATA_MEDIUM: u8 = 4;
const MEMSET: u8 = 5;

/// Bytes of one part of a large operation: large enough that a message costs nothing beside its bytes, small enough
/// that parts overlap on their way and that an agent serves others in between.
const PART_BYTES_MAX: u64 = 1 << 20;

/// Unit that is not divided.
const WORD_BYTES: u64 = 8;

pub(super) fn handlers() -> [(u8, Handler); 6] {
    [
        (PUT, Box::new(on_put)),
        (DONE, Box::new(on_done)),
        (GET, Box::new(on_get)),
        (DATA, Box::new(on_data)),
        (DATA_MEDIUM, Box::new(on_data_medium)),
        (MEMSET, Box::new(on_memset)),
    ]
}

pub(super) fn low_high(number: u64) -> [u32; 2] {
    [number as u32, (number >> 32) as u32]
}

pub(super) fn number(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

fn on_put(token: &Token<'_>, arguments: &[u32], payload: Arrived<'_>) {
    let (&[low, high], Arrived::Long(..)) = (arguments, payload) else {
        return token.refuse("a malformed put");
    };
    token.check(token.answer(DONE, &[low, high], Payload::Short));
}

fn on_done(token: &Token<'_>, arguments: &[u32], _: Arrived<'_>) {
    let &[low, high] = arguments else { return token.refuse("a malformed answer to a put") };
    token.check(token.endpoint().operations.answered(token.from(), number(low, high), None));
}

fn on_get(token: &Token<'_>, arguments: &[u32], _: Arrived<'_>) {
    let &[low, high, owner, region, offset_low, offset_high, bytes, to_low, to_high] = arguments else {
        return token.refuse("a malformed get");
    };
    let endpoint = token.endpoint();
    let offset = number(offset_low, offset_high);
    let address = match endpoint.named_address(token.from(), [owner, region], offset, u64::from(bytes)) {
        Ok(address) => address,
        Err(error) => return endpoint.fail(error),
    };
    // SAFETY: the range was checked against a segment, which stays mapped as long as the endpoint lives.
    let source = unsafe { Source::contended(address, bytes as usize) };
    let result = if endpoint.answers_gets_directly(token.from())
        && source.bytes() <= endpoint.long_bytes_max()
    {
        let destination = Destination::Operation { id: number(low, high), offset: number(to_low, to_high) };
        token.answer(DATA, &[low, high], Payload::Long(source, destination))
    } else if source.bytes() <= endpoint.medium_bytes_max() {
        token.answer(DATA_MEDIUM, &[low, high, to_low, to_high], Payload::Medium(source))
    } else {
        return token.refuse(format!("a get of {bytes} bytes in one message"));
    };
    token.check(result);
}

fn on_data(token: &Token<'_>, arguments: &[u32], _: Arrived<'_>) {
    let &[low, high] = arguments else { return token.refuse("a malformed answer to a get") };
    token.check(token.endpoint().operations.answered(token.from(), number(low, high), None));
}

fn on_data_medium(token: &Token<'_>, arguments: &[u32], payload: Arrived<'_>) {
    let (&[low, high, to_low, to_high], Arrived::Medium(bytes)) = (arguments, payload) else {
        return token.refuse("a malformed answer to a get");
    };
    let operations = &token.endpoint().operations;
    let id = number(low, high);
    match operations.destination(token.from(), id, number(to_low, to_high), bytes.len()) {
        // SAFETY: `destination` has checked the range against the buffer of an operation that still waits, whose owner
        // keeps it until the operation is complete (contract of the unsafe get functions).
        Ok(to) => unsafe { copy(bytes.as_ptr(), to, bytes.len()) },
        Err(error) => return token.endpoint().fail(error),
    }
    token.check(operations.answered(token.from(), id, None));
}

fn on_memset(token: &Token<'_>, arguments: &[u32], _: Arrived<'_>) {
    let &[low, high, owner, region, offset_low, offset_high, bytes, value] = arguments else {
        return token.refuse("a malformed memset");
    };
    let offset = number(offset_low, offset_high);
    match token.endpoint().named_address(token.from(), [owner, region], offset, u64::from(bytes)) {
        // SAFETY: the range lies in a mapped segment (rule 2 of `shm`), which the endpoint's domain keeps.
        Ok(address) => unsafe { fill(address, value as u8, bytes as usize) },
        Err(error) => return token.endpoint().fail(error),
    }
    token.check(token.answer(DONE, &[low, high], Payload::Short));
}

impl Endpoint {
    /// Makes this endpoint serve the pinned segments of the ranks of its domain to peers on other nodes. Called by an
    /// agent before [`Endpoint::open`]; from then on its polls serve.
    pub fn serve_segments(&self) -> Result<()> {
        if self.domain.is_none() {
            return Err(RmaError::Usage("an endpoint without shared memory has no segments to serve".into()));
        }
        self.segments.serves.store(true, Ordering::Release);
        Ok(())
    }

    /// Returns true if a long message to this peer may go to an operation.
    pub(super) fn answers_gets_directly(&self, to: Peer) -> bool {
        match self.carrier_of(to) {
            Some(conduit) => conduit.capabilities().long_to_operation,
            None => true,
        }
    }

    /// The conduit to this peer if it reaches its memory by itself.
    fn one_sided(&self, server: Peer) -> Option<&dyn Conduit> {
        self.carrier_of(server).filter(|conduit| conduit.capabilities().one_sided)
    }

    /// Starts a put through `server`. The source is reusable when it returns, or, if it `stays`, when the put is complete.
    pub(super) fn start_put(
        &self,
        server: Peer,
        part: PinnedPart,
        offset: u64,
        source: Source<'_>,
        stays: bool,
    ) -> Result<Handle> {
        let part_bytes = PART_BYTES_MAX.min(self.long_bytes_max as u64);
        let (owner, region) = (self.layout.peer_of_rank(part.owner), part.region);
        self.send_parts(server, None, offset, source.bytes() as u64, part_bytes, |id, at, bytes| {
            let source = source.part(at as usize, bytes as usize);
            let offset = offset + at;
            if let Some(conduit) = self.one_sided(server) {
                let place = Place { owner, region, offset };
                return self.until_accepted(|| conduit.start_put(server, place, source, stays, id));
            }
            let [low, high] = low_high(id);
            let to = Destination::Region { region, owner, offset };
            self.request_part(server, PUT, &[low, high], Payload::Long(source, to))
        })
    }

    /// Starts a get through `server`.
    ///
    /// # Safety
    /// `to` is valid for writes of `bytes` bytes until the handle was seen complete or an error was returned for it.
    pub(super) unsafe fn start_get(
        &self,
        server: Peer,
        part: PinnedPart,
        offset: u64,
        to: *mut u8,
        bytes: u64,
    ) -> Result<Handle> {
        let one_sided = self.one_sided(server);
        let part_bytes = if one_sided.is_some() || self.answers_gets_directly(server) {
            PART_BYTES_MAX.min(self.long_bytes_max as u64)
        } else {
            self.medium_bytes_max as u64
        };
        let (owner, region) = (self.layout.peer_of_rank(part.owner), part.region);
        self.send_parts(server, Some(to), offset, bytes, part_bytes, |id, at, bytes| {
            if let Some(conduit) = one_sided {
                let place = Place { owner, region, offset: offset + at };
                let here = to.wrapping_add(at as usize);
                let part = Part { operation: id, at, bytes: bytes as usize, here };
                return self.until_accepted(|| conduit.start_get(server, place, part));
            }
            let ([low, high], [from_low, from_high], [to_low, to_high]) =
                (low_high(id), low_high(offset + at), low_high(at));
            let region = region.0.into();
            let arguments = [low, high, owner.0, region, from_low, from_high, bytes as u32, to_low, to_high];
            self.request_part(server, GET, &arguments, Payload::Short)
        })
    }

    /// Starts a memset through `server`.
    pub(super) fn start_memset(
        &self,
        server: Peer,
        part: PinnedPart,
        offset: u64,
        value: u8,
        bytes: u64,
    ) -> Result<Handle> {
        let [owner, region] = self.name_of(part);
        self.send_parts(server, None, offset, bytes, PART_BYTES_MAX, |id, at, bytes| {
            let ([low, high], [at_low, at_high]) = (low_high(id), low_high(offset + at));
            let arguments = [low, high, owner, region, at_low, at_high, bytes as u32, u32::from(value)];
            self.request_part(server, MEMSET, &arguments, Payload::Short)
        })
    }

    /// Starts an operation on `bytes` bytes through `server`: sends its parts by `send`, which is told the operation's
    /// number, and first byte and length of the part. No aligned word of the memory at `offset` is divided. `buffer`: the memory that
    /// the answers fill.
    #[inline]
    pub(super) fn send_parts(
        &self,
        server: Peer,
        buffer: Option<*mut u8>,
        offset: u64,
        bytes: u64,
        part_bytes: u64,
        mut send: impl FnMut(u64, u64, u64) -> Result<()>,
    ) -> Result<Handle> {
        if bytes == 0 {
            return Ok(Handle::complete());
        }
        let buffer_bytes = if buffer.is_some() { bytes } else { 0 };
        let (first, further) = if bytes <= part_bytes {
            (bytes, bytes)
        } else {
            let whole = (part_bytes - part_bytes % WORD_BYTES).max(WORD_BYTES);
            (whole - offset % WORD_BYTES, whole)
        };
        let parts = 1 + (bytes - first).div_ceil(further);
        let operation =
            self.operations.start(server, buffer.unwrap_or(std::ptr::null_mut()), buffer_bytes, parts);
        let mut unsent = Unsent::new(self, operation.clone(), parts);
        let mut at = 0;
        while at < bytes {
            let part = if at == 0 { first } else { further }.min(bytes - at);
            if let Err(error) = send(operation.id(), at, part) {
                // The parts on their way have nowhere to go any more: what is left of this operation ends the endpoint, unless nothing
                // of it is delivered any more.
                self.fail_of(server, error.duplicate());
                self.give_up(&mut Handle::from(operation));
                return Err(error);
            }
            at += part;
            unsent.parts -= 1;
        }
        Ok(Handle::from(operation))
    }
}
