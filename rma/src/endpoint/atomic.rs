//! Atomic updates of words of pinned segments: of four or eight bytes, by the processor or by network cards.
//!
//! See [`super`] for the accesses with which they are atomic.
//!
//! ```text
//! ATOMIC (operation, where, update)      → FETCHED (operation, what was there)
//! ```

use super::access::ValueHandle;
use super::operation::Handle;
use super::segment::Reach;
use super::serve::{low_high, number};
use super::{Endpoint, Handler, Token};
use crate::address::{Peer, PinnedPart};
use crate::conduit::{Conduit, Place};
use crate::error::{Result, RmaError};
use crate::message::{Arrived, Payload};
use vgas_shm::copy::copy;
use vgas_shm::{Atomic, Update};

const ATOMIC: u8 = 8;
pub(super) const FETCHED: u8 = 9;

/// Bytes of a word as cards update it, and of the answer.
const WORD_BYTES: u64 = 8;

pub(super) fn handlers() -> [(u8, Handler); 2] {
    [(ATOMIC, Box::new(on_atomic)), (FETCHED, Box::new(on_fetched))]
}

fn on_atomic(token: &Token<'_>, arguments: &[u32], _: Arrived<'_>) {
    let &[low, high, owner, region, offset_low, offset_high, ref operation @ ..] = arguments else {
        return token.refuse("a malformed atomic update");
    };
    let Some(update) = operation.try_into().ok().and_then(Update::decode) else {
        return token.refuse("an unknown atomic update");
    };
    let (endpoint, offset) = (token.endpoint(), number(offset_low, offset_high));
    if endpoint.card_with_atomics().is_some() {
        return endpoint.fail(differing(&token.from().to_string()));
    }
    let bytes = u64::from(update.word.bytes());
    if !offset.is_multiple_of(bytes) {
        return token.refuse(format!("an atomic update at offset {offset}"));
    }
    let was = match endpoint.named_address(token.from(), [owner, region], offset, bytes) {
        // SAFETY: the range lies in a mapped segment (rule 2 of `shm`), which the endpoint's domain keeps; segments begin
        // at pages, so the word is aligned.
        Ok(address) => unsafe { update.apply(address) },
        Err(error) => return endpoint.fail(error),
    };
    let [was_low, was_high] = low_high(was);
    token.check(token.answer(FETCHED, &[low, high, was_low, was_high], Payload::Short));
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
    /// Updates a word at `offset` of a rank's pinned segment; yields what it was. When it returns the change
    /// is visible at the target. `offset` is a multiple of the word's length. See the module's page for the
    /// accesses with which it is atomic. Updates that the network's card lacks, where cards make those of the
    /// job, are made of its compare-and-swap.
    ///
    /// # Errors
    /// [`RmaError::Usage`] for another offset, [`RmaError::OutOfRange`] behind the end, and the endpoint's own.
    pub fn update(&self, part: impl Into<PinnedPart>, offset: u64, update: impl Into<Update>) -> Result<u64> {
        let part = part.into();
        let update = update.into();
        if self.card_with_atomics().is_some() && update.as_atomic().is_none() {
            return self.update_by_swaps(part, offset, update);
        }
        self.atomic_started(part, offset, update).and_then(|was| self.wait_value(was))
    }

    /// [`Endpoint::update`] that adds to a word of eight bytes.
    ///
    /// # Errors
    /// As [`Endpoint::update`].
    pub fn fetch_add(&self, part: impl Into<PinnedPart>, offset: u64, value: u64) -> Result<u64> {
        self.update(part, offset, Atomic::FetchAdd(value))
    }

    /// [`Endpoint::update`] that replaces a word of eight bytes by `desired` if it is `expected`; it has if
    /// the old value equals `expected`.
    ///
    /// # Errors
    /// As [`Endpoint::update`].
    pub fn compare_swap(
        &self,
        part: impl Into<PinnedPart>,
        offset: u64,
        expected: u64,
        desired: u64,
    ) -> Result<u64> {
        self.update(part, offset, Atomic::CompareSwap { expected, desired })
    }

    /// Starts an atomic update; [`Endpoint::wait_value`] ends it with the old value. Otherwise as
    /// [`Endpoint::update`].
    ///
    /// # Errors
    /// As [`Endpoint::update`].
    pub fn atomic_nb(&self, part: impl Into<PinnedPart>, offset: u64, atomic: Atomic) -> Result<ValueHandle> {
        let part = part.into();
        let value = self.atomic_started(part, offset, atomic.into())?;
        if !value.handle.is_empty() {
            self.look_after_it();
        }
        Ok(value)
    }

    /// For a card that lacks the update: repeats until the eight bytes that contain the word were unchanged
    /// in between.
    fn update_by_swaps(&self, part: PinnedPart, offset: u64, update: Update) -> Result<u64> {
        check_offset(offset, update)?;
        let (first, shift) = (offset & !(WORD_BYTES - 1), 8 * (offset % WORD_BYTES));
        let mask = u64::MAX >> (64 - 8 * update.word.bytes()) << shift;
        let mut seen = self.fetch_add(part, first, 0)?;
        loop {
            let was = (seen & mask) >> shift;
            let desired = seen & !mask | update.of(was) << shift;
            let found = self.compare_swap(part, first, seen, desired)?;
            if found == seen {
                return Ok(was);
            }
            seen = found;
        }
    }

    fn atomic_started(&self, part: PinnedPart, offset: u64, update: Update) -> Result<ValueHandle> {
        check_offset(offset, update)?;
        let bytes = u64::from(update.word.bytes());
        let reach = match self.segments.reach(part, offset, bytes as usize) {
            Some(at) => Reach::Here(at),
            None => self.reach_slow(part, offset, bytes)?,
        };
        let card = self.card_with_atomics();
        let server = match (reach, card) {
            (Reach::Here(at), None) => {
                // SAFETY: `reach` has checked the range of the mapped segment, which begins at a page (rules 2, 3 of `shm`).
                let was = unsafe { update.apply(at) };
                return Ok(ValueHandle { handle: Handle::complete(), value: Box::new(was.to_le_bytes()) });
            }
            (Reach::Here(_), Some(_)) => self.layout.agent_of(self.layout.node_of(part.owner)),
            (Reach::Through(server), _) => server,
        };
        let [owner, region] = self.name_of(part);
        let mut value = Box::new([0; WORD_BYTES as usize]);
        let buffer = Some(value.as_mut_ptr());
        let handle = self.send_parts(server, buffer, 0, WORD_BYTES, WORD_BYTES, |id, _, _| {
            match card.zip(update.as_atomic()) {
                Some((card, atomic)) => {
                    let place = Place { owner: Peer(owner), region: part.region, offset };
                    self.until_accepted(|| card.start_atomic(server, place, atomic, id))
                }
                None => {
                    let ([low, high], [at_low, at_high]) = (low_high(id), low_high(offset));
                    let [a, b, c, d, e] = update.encode();
                    let arguments = [low, high, owner, region, at_low, at_high, a, b, c, d, e];
                    self.request_part(server, ATOMIC, &arguments, Payload::Short)
                }
            }
        })?;
        Ok(ValueHandle { handle, value })
    }

    /// The network, if it makes the atomic updates of this job.
    fn card_with_atomics(&self) -> Option<&dyn Conduit> {
        self.network.as_deref().filter(|network| network.capabilities().atomics)
    }
}

fn check_offset(offset: u64, update: Update) -> Result<()> {
    let bytes = update.word.bytes();
    if offset.is_multiple_of(u64::from(bytes)) {
        Ok(())
    } else {
        Err(RmaError::Usage(format!("an atomic update at offset {offset}, not a multiple of {bytes}")))
    }
}
