//! Atomic updates of words of pinned segments: fetch-add and compare-and-swap of eight bytes.
//!
//! What they are atomic with is on the page of [`super`].
//!
//! ```text
//! ATOMIC (operation, where, which, operands)      → FETCHED (operation, what was there)
//! ```

use super::access::ValueHandle;
use super::operation::Handle;
use super::segment::Reach;
use super::serve::{low_high, number};
use super::{Endpoint, Handler, Token};
use crate::address::{Peer, Rank, RegionId};
use crate::conduit::{Conduit, Place};
use crate::error::{Result, RmaError};
use crate::message::{Arrived, Payload};
use crate::shm::Atomic;
use crate::shm::copy::copy;

const ATOMIC: u8 = 8;
const FETCHED: u8 = 9;

const WORD_BYTES: u64 = 8;

pub(super) fn handlers() -> [(u8, Handler); 2] {
    [(ATOMIC, Box::new(on_atomic)), (FETCHED, Box::new(on_fetched))]
}

/// As words of a message.
fn encode(atomic: Atomic) -> [u32; 5] {
    let (kind, first, second) = match atomic {
        Atomic::FetchAdd(value) => (0, value, 0),
        Atomic::CompareSwap { expected, desired } => (1, expected, desired),
    };
    let ([a, b], [c, d]) = (low_high(first), low_high(second));
    [kind, a, b, c, d]
}

fn decode(words: [u32; 5]) -> Option<Atomic> {
    let [kind, a, b, c, d] = words;
    match (kind, number(a, b), number(c, d)) {
        (0, value, 0) => Some(Atomic::FetchAdd(value)),
        (1, expected, desired) => Some(Atomic::CompareSwap { expected, desired }),
        _ => None,
    }
}

fn on_atomic(token: &Token<'_>, arguments: &[u32], _: Arrived<'_>) {
    let &[low, high, owner, offset_low, offset_high, ref operation @ ..] = arguments else {
        return token.refuse("a malformed atomic update");
    };
    let Some(atomic) = operation.try_into().ok().and_then(decode) else {
        return token.refuse("an unknown atomic update");
    };
    let (endpoint, offset) = (token.endpoint(), number(offset_low, offset_high));
    if endpoint.card_with_atomics().is_some() {
        return endpoint.fail(differing(&token.from().to_string()));
    }
    if !offset.is_multiple_of(WORD_BYTES) {
        return token.refuse(format!("an atomic update at offset {offset}"));
    }
    let was = match endpoint.segment_address(token.from(), Peer(owner), offset, WORD_BYTES) {
        // SAFETY: the range lies in a mapped segment (rule 2 of `shm`), which the endpoint's domain keeps; segments begin
        // at pages, so the word is aligned.
        Ok(address) => unsafe { atomic.apply(address) },
        Err(error) => return endpoint.fail(error),
    };
    let [was_low, was_high] = low_high(was);
    token.check(token.reply(FETCHED, &[low, high, was_low, was_high], Payload::Short));
}

fn on_fetched(token: &Token<'_>, arguments: &[u32], _: Arrived<'_>) {
    let &[low, high, was_low, was_high] = arguments else {
        return token.refuse("a malformed answer to an atomic update");
    };
    let operations = &token.endpoint().operations;
    let (id, was) = (number(low, high), number(was_low, was_high).to_le_bytes());
    match operations.destination(token.from(), id, 0, was.len()) {
        // SAFETY: as for the answer to a get: the range was checked against a buffer whose owner keeps it until the
        // operation is complete.
        Ok(to) => unsafe { copy(was.as_ptr(), to, was.len()) },
        Err(error) => return token.endpoint().fail(error),
    }
    token.check(operations.answered(token.from(), id, None));
}

fn differing(who: &str) -> RmaError {
    RmaError::Refused(format!(
        "the network cards of this job differ: this one makes atomic updates, that of {who} does not; set ibv.atomics=off"
    ))
}

impl Endpoint {
    /// Adds to the word at `offset` of a rank's pinned segment; yields what it was. When it returns the sum is visible at
    /// the target. `offset` is a multiple of 8. What it is atomic with is on the module's page.
    ///
    /// # Errors
    /// [`RmaError::Usage`] for another offset, [`RmaError::OutOfRange`] behind the end, and the endpoint's own.
    pub fn fetch_add(&self, rank: Rank, offset: u64, value: u64) -> Result<u64> {
        self.atomic_started(rank, offset, Atomic::FetchAdd(value)).and_then(|was| self.wait_value(was))
    }

    /// Replaces the word at `offset` of a rank's pinned segment by `desired` if it is `expected`; yields what it was, so
    /// that `expected` means success. Otherwise as [`Endpoint::fetch_add`].
    ///
    /// # Errors
    /// As [`Endpoint::fetch_add`].
    pub fn compare_swap(&self, rank: Rank, offset: u64, expected: u64, desired: u64) -> Result<u64> {
        let atomic = Atomic::CompareSwap { expected, desired };
        self.atomic_started(rank, offset, atomic).and_then(|was| self.wait_value(was))
    }

    /// Starts an atomic update; [`Endpoint::wait_value`] ends it with what the word was. Otherwise as
    /// [`Endpoint::fetch_add`].
    ///
    /// # Errors
    /// As [`Endpoint::fetch_add`].
    pub fn atomic_nb(&self, rank: Rank, offset: u64, atomic: Atomic) -> Result<ValueHandle> {
        let value = self.atomic_started(rank, offset, atomic)?;
        if !value.handle.is_empty() {
            self.look_after_it();
        }
        Ok(value)
    }

    fn atomic_started(&self, rank: Rank, offset: u64, atomic: Atomic) -> Result<ValueHandle> {
        if !offset.is_multiple_of(WORD_BYTES) {
            return Err(RmaError::Usage(format!("an atomic update at offset {offset}, not a multiple of 8")));
        }
        let reach = match self.segments.reach(rank, offset, WORD_BYTES as usize) {
            Some(at) => Reach::Here(at),
            None => self.reach_slow(rank, offset, WORD_BYTES)?,
        };
        let card = self.card_with_atomics();
        let server = match (reach, card) {
            (Reach::Here(at), None) => {
                // SAFETY: `reach` has checked the range of the mapped segment, which begins at a page (rules 2, 3 of `shm`).
                let was = unsafe { atomic.apply(at) };
                return Ok(ValueHandle { handle: Handle::complete(), value: Box::new(was.to_le_bytes()) });
            }
            (Reach::Here(_), Some(_)) => self.layout.agent_of(self.layout.node_of(rank)),
            (Reach::Through(server), _) => server,
        };
        let owner = self.layout.peer_of_rank(rank);
        let mut value = Box::new([0; WORD_BYTES as usize]);
        let buffer = Some(value.as_mut_ptr());
        let handle = self.send_parts(server, buffer, WORD_BYTES, WORD_BYTES, |id, _, _| match card {
            Some(card) => {
                let place = Place { owner, region: RegionId::SEGMENT, offset };
                self.until_accepted(|| card.start_atomic(server, place, atomic, id))
            }
            None => {
                let ([low, high], [at_low, at_high]) = (low_high(id), low_high(offset));
                let [a, b, c, d, e] = encode(atomic);
                let arguments = [low, high, owner.0, at_low, at_high, a, b, c, d, e];
                self.request_part(server, ATOMIC, &arguments, Payload::Short)
            }
        })?;
        Ok(ValueHandle { handle, value })
    }

    /// The network, if it makes the atomic updates of this job.
    fn card_with_atomics(&self) -> Option<&dyn Conduit> {
        self.network.as_deref().filter(|network| network.capabilities().atomics)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(first: u64, second: u64, kind in 2u32..) {
            for atomic in [Atomic::FetchAdd(first), Atomic::CompareSwap { expected: first, desired: second }] {
                prop_assert_eq!(decode(encode(atomic)), Some(atomic));
            }
            prop_assert_eq!(decode([kind, 1, 2, 0, 0]), None);
        }
    }
}
