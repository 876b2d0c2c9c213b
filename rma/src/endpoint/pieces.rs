//! Puts and gets of many small pieces of one rank's pinned segment, packed into few messages (the initiator's side of what
//! GASNet calls vector, indexed and strided transfers).
//!
//! ```text
//! put     PUT_PIECES (list of places, then the bytes of all)   → DONE
//! get     GET_PIECES (list of places, operation)               → DATA or DATA_MEDIUM: the bytes of all
//! ```
//!
//! A list has an entry of 16 bytes for each piece: its offset in the segment, and its length. As with single puts and gets,
//! the agent of the target's node serves them; the target need not do anything.

use super::operation::{Handle, Operation, Unsent};
use super::serve::{DATA, DATA_MEDIUM, DONE, low_high, number};
use super::{Endpoint, Handler, Token};
use crate::address::{Peer, PinnedPart};
use crate::error::{Result, RmaError};
use crate::message::{Arrived, Destination, Payload, Source};
use std::sync::Arc;
use vgas_shm::copy::copy;

const PUT_PIECES: u8 = 10;
const GET_PIECES: u8 = 11;

/// Bytes of an entry of a list.
const ENTRY_BYTES: usize = 16;

pub(super) fn handlers() -> [(u8, Handler); 2] {
    [(PUT_PIECES, Box::new(on_put_pieces)), (GET_PIECES, Box::new(on_get_pieces))]
}

/// A piece of a rank's pinned segment, and the memory here that it is put from or got to.
#[derive(Clone, Copy, Debug)]
pub struct SegmentPiece {
    /// First byte in the segment.
    pub offset: u64,
    /// First byte here.
    pub here: *mut u8,
    /// Length.
    pub bytes: usize,
}

pub(super) fn write_entry(list: &mut Vec<u8>, offset: u64, bytes: usize) {
    list.extend_from_slice(&offset.to_le_bytes());
    list.extend_from_slice(&(bytes as u64).to_le_bytes());
}

/// A list of pieces as it arrives.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct List<'a> {
    /// Offset and length of each.
    pub(super) entries: Vec<(u64, usize)>,
    /// Bytes of all together.
    pub(super) total: usize,
    /// The bytes after the list.
    pub(super) rest: &'a [u8],
}

impl<'a> List<'a> {
    /// Reads a list of `count` entries. None: it is not whole, or its sum is more than there can be.
    pub(super) fn read(payload: &'a [u8], count: u32) -> Option<Self> {
        let (list, rest) = payload.split_at_checked((count as usize).checked_mul(ENTRY_BYTES)?)?;
        let word = |bytes: &[u8]| bytes.try_into().ok().map(u64::from_le_bytes);
        let mut total = 0usize;
        let mut entries = Vec::with_capacity(count as usize);
        for entry in list.chunks_exact(ENTRY_BYTES) {
            let bytes = usize::try_from(word(&entry[8..])?).ok()?;
            total = total.checked_add(bytes)?;
            entries.push((word(&entry[..8])?, bytes));
        }
        Some(Self { entries, total, rest })
    }
}

fn on_put_pieces(token: &Token<'_>, arguments: &[u32], payload: Arrived<'_>) {
    let (&[low, high, owner, region, count], Arrived::Medium(payload)) = (arguments, payload) else {
        return token.refuse("a malformed put of pieces");
    };
    let Some(List { entries, total, mut rest }) = List::read(payload.as_slice(), count) else {
        return token.refuse("a malformed list of pieces");
    };
    if total != rest.len() {
        return token.refuse(format!("a put of pieces of {total} bytes with {}", rest.len()));
    }
    let endpoint = token.endpoint();
    for (offset, bytes) in entries {
        let (piece, after) = rest.split_at(bytes);
        match endpoint.named_address(token.from(), [owner, region], offset, bytes as u64) {
            // SAFETY: the range lies in a mapped segment (rule 2 of `shm`), which the endpoint's domain keeps.
            Ok(to) => unsafe { copy(piece.as_ptr(), to, bytes) },
            Err(error) => return endpoint.fail(error),
        }
        rest = after;
    }
    token.check(token.answer(DONE, &[low, high], Payload::Short));
}

fn on_get_pieces(token: &Token<'_>, arguments: &[u32], payload: Arrived<'_>) {
    let &[low, high, owner, region, count, to_low, to_high] = arguments else {
        return token.refuse("a malformed get of pieces");
    };
    let Arrived::Medium(payload) = payload else { return token.refuse("a get of pieces without a list") };
    let endpoint = token.endpoint();
    let Some(List { entries, total, rest: [] }) = List::read(payload.as_slice(), count) else {
        return token.refuse("a malformed list of pieces");
    };
    if total > endpoint.medium_bytes_max() {
        return token.refuse(format!("a get of pieces of {total} bytes in one message"));
    }
    let mut packed = vec![0; total];
    let mut rest = packed.as_mut_slice();
    for (offset, bytes) in entries {
        let (piece, after) = rest.split_at_mut(bytes);
        match endpoint.named_address(token.from(), [owner, region], offset, bytes as u64) {
            // SAFETY: as in `on_put_pieces`.
            Ok(from) => unsafe { copy(from, piece.as_mut_ptr(), bytes) },
            Err(error) => return endpoint.fail(error),
        }
        rest = after;
    }
    let source = Source::of(&packed);
    token.check(if endpoint.answers_gets_directly(token.from()) {
        let destination = Destination::Operation { id: number(low, high), offset: number(to_low, to_high) };
        token.answer(DATA, &[low, high], Payload::Long(source, destination))
    } else {
        token.answer(DATA_MEDIUM, &[low, high, to_low, to_high], Payload::Medium(source))
    });
}

impl Endpoint {
    /// Most bytes of a piece for which packing pays: a larger one travels better by itself.
    pub fn packed_piece_bytes_max(&self) -> usize {
        self.medium_bytes_max / 4
    }

    /// Starts a put of many pieces into a rank's pinned segment, each of at most [`Endpoint::packed_piece_bytes_max`] bytes;
    /// they do not overlap there. The sources are reusable when it returns; all is visible at the target when the handle is
    /// complete.
    ///
    /// # Errors
    /// As [`Endpoint::put`]; [`RmaError::Usage`] for a piece that is too large.
    ///
    /// # Safety
    /// Each source is valid for reads during the call.
    pub unsafe fn put_pieces_nb(
        &self,
        part: impl Into<PinnedPart>,
        pieces: &[SegmentPiece],
    ) -> Result<Handle> {
        let part = part.into();
        let Some(server) = self.server_of_pieces(part, pieces)? else {
            for piece in pieces {
                // SAFETY: the caller's promise.
                let put = unsafe { self.put_nb_bulk(part, piece.offset, piece.here, piece.bytes) }?;
                debug_assert!(put.is_complete());
            }
            return Ok(Handle::complete());
        };
        let [owner, region] = self.name_of(part);
        let operation = self.operations.start(server, std::ptr::null_mut(), 0, 1);
        let [low, high] = low_high(operation.id());
        let mut rest = pieces;
        // One part more than messages, until all are sent.
        let mut unsent = Unsent::new(self, operation.clone(), 1);
        let mut send = || -> Result<()> {
            while !rest.is_empty() {
                let count = self.fitting(rest, |piece| ENTRY_BYTES + piece.bytes);
                let (now, later) = rest.split_at(count);
                let mut message = Vec::new();
                for piece in now {
                    write_entry(&mut message, piece.offset, piece.bytes);
                }
                for piece in now {
                    let at = message.len();
                    message.resize(at + piece.bytes, 0);
                    // SAFETY: the caller's promise; the message was made long enough.
                    unsafe { copy(piece.here, message[at..].as_mut_ptr(), piece.bytes) };
                }
                operation.add_part();
                unsent.parts = 2;
                let arguments = [low, high, owner, region, count as u32];
                self.request_part(server, PUT_PIECES, &arguments, Payload::Medium(Source::of(&message)))?;
                rest = later;
                unsent.parts = 1;
            }
            Ok(())
        };
        let sent = send();
        self.sent_pieces(server, operation, sent)
    }

    /// Starts a get of many pieces of a rank's pinned segment, each of at most [`Endpoint::packed_piece_bytes_max`] bytes.
    /// They are at `packed`, one after the other, when the handle is complete; the pieces' own `here` is not looked at.
    ///
    /// # Errors
    /// As [`Endpoint::put_pieces_nb`].
    ///
    /// # Safety
    /// `packed` is valid for writes of the sum of all bytes, and not otherwise accessed, until the handle was seen complete or
    /// an error was returned for it. The handle must not be dropped before.
    pub unsafe fn get_pieces_nb(
        &self,
        part: impl Into<PinnedPart>,
        pieces: &[SegmentPiece],
        packed: *mut u8,
    ) -> Result<Handle> {
        let part = part.into();
        let Some(server) = self.server_of_pieces(part, pieces)? else {
            let mut at = 0;
            for piece in pieces {
                // SAFETY: the caller's promise.
                let get = unsafe { self.get_nb(part, piece.offset, packed.wrapping_add(at), piece.bytes) }?;
                debug_assert!(get.is_complete());
                at += piece.bytes;
            }
            return Ok(Handle::complete());
        };
        let [owner, region] = self.name_of(part);
        let total: usize = pieces.iter().map(|piece| piece.bytes).sum();
        let operation = self.operations.start(server, packed, total as u64, 1);
        let [low, high] = low_high(operation.id());
        let (mut rest, mut at) = (pieces, 0);
        let mut unsent = Unsent::new(self, operation.clone(), 1);
        let mut send = || -> Result<()> {
            while !rest.is_empty() {
                // Both the list and the answer must fit.
                let count = self.fitting(rest, |piece| ENTRY_BYTES.max(piece.bytes));
                let (now, later) = rest.split_at(count);
                let mut list = Vec::with_capacity(count * ENTRY_BYTES);
                for piece in now {
                    write_entry(&mut list, piece.offset, piece.bytes);
                }
                operation.add_part();
                unsent.parts = 2;
                let [to_low, to_high] = low_high(at as u64);
                let arguments = [low, high, owner, region, count as u32, to_low, to_high];
                self.request_part(server, GET_PIECES, &arguments, Payload::Medium(Source::of(&list)))?;
                at += now.iter().map(|piece| piece.bytes).sum::<usize>();
                rest = later;
                unsent.parts = 1;
            }
            Ok(())
        };
        let sent = send();
        self.sent_pieces(server, operation, sent)
    }

    /// Returns the server of a rank's segment, which must contain all the pieces; none if it is mapped here.
    fn server_of_pieces(&self, part: PinnedPart, pieces: &[SegmentPiece]) -> Result<Option<Peer>> {
        let limit = self.packed_piece_bytes_max();
        let mut server = None;
        for piece in pieces {
            if piece.bytes > limit {
                let bytes = piece.bytes;
                return Err(RmaError::Usage(format!("a piece of {bytes} bytes; {limit} are the most")));
            }
            match self.reach_slow(part, piece.offset, piece.bytes as u64)? {
                super::segment::Reach::Here(_) => return Ok(None),
                super::segment::Reach::Through(agent) => server = Some(agent),
            }
        }
        Ok(server)
    }

    /// Returns the number of first pieces that fit one message, by their sizes; at least one.
    fn fitting(&self, pieces: &[SegmentPiece], size: impl Fn(&SegmentPiece) -> usize) -> usize {
        let mut left = self.medium_bytes_max;
        let fits = |piece: &&SegmentPiece| {
            let after = left.checked_sub(size(piece));
            left = after.unwrap_or(0);
            after.is_some()
        };
        pieces.iter().take_while(fits).count().max(1)
    }

    /// The handle of an operation of which all messages, or not all, were sent.
    fn sent_pieces(&self, server: Peer, operation: Arc<Operation>, sent: Result<()>) -> Result<Handle> {
        if let Err(error) = sent {
            // As in `send_parts`.
            self.fail_of(server, error.duplicate());
            self.give_up(&mut Handle::from(operation));
            return Err(error);
        }
        self.operations.part_done(&operation);
        Ok(self.let_go_on(Handle::from(operation)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_as_it_was_written() {
        let mut payload = Vec::new();
        write_entry(&mut payload, 1 << 40, 3);
        write_entry(&mut payload, 0, 0);
        payload.extend_from_slice(b"abc");
        let list = List { entries: vec![(1 << 40, 3), (0, 0)], total: 3, rest: b"abc" };
        assert_eq!(List::read(&payload, 2), Some(list));
    }

    #[test]
    fn a_list_that_is_not_whole_or_overflows_is_refused() {
        let mut payload = Vec::new();
        write_entry(&mut payload, 0, usize::MAX);
        assert!(List::read(&payload, 1).is_some());
        assert!(List::read(&payload, 2).is_none());
        assert!(List::read(&payload, u32::MAX).is_none());
        write_entry(&mut payload, 0, 1);
        assert!(List::read(&payload, 2).is_none());
        assert!(List::read(&[], 0).is_some());
    }
}
