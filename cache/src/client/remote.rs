//! Small operations that travel to a page which its home serves in place, as the asking rank keeps track of them.
//!
//! The answer to a small get is kept here until its operation fetches it: the handler never writes into the program's
//! memory, so an operation that is forgotten cannot be written to later. Many bytes land where the operation says
//! ([`Landing`]), which ends with any answer, before anything else can come from that peer.

use crate::request::InPlaceAnswer;
use std::sync::Mutex;
use vgas_rma::address::Peer;
use vgas_rma::endpoint::Landing;
use vgas_rma::message::Arrived;

/// How an operation stands.
#[derive(Debug, PartialEq, Eq)]
pub enum RemoteState {
    /// No answer yet.
    Pending,
    /// Done, with the bytes of a get.
    Done(Vec<u8>),
    /// All bytes of a large get are where they were to land.
    Landed,
    /// The home does not serve the page in place any more.
    NotInPlace,
    /// The page of one of several updates cannot be had: which one, and the number of the reason.
    Failed(u32, u32),
}

#[derive(Debug)]
struct Slot {
    generation: u16,
    /// Who may answer.
    asked: Peer,
    /// Where the answer is to land, until there is one.
    expected: Option<Expected>,
    state: Option<RemoteState>,
}

/// Memory that waits for an answer.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    /// As the endpoint knows it.
    pub landing: Landing,
    /// The same as an address.
    pub address: usize,
    /// How many bytes are wanted.
    pub bytes: usize,
}

/// What became of an answer.
#[derive(Debug, PartialEq, Eq)]
pub enum Heard {
    /// Its operation has it; what was to land there is to be ended.
    By(Option<Landing>),
    /// No such operation is under way, or somebody else was asked.
    ByNobody,
}

/// The operations of one rank that are under way.
#[derive(Debug, Default)]
pub struct RemoteOperations {
    /// Generation and state of each slot; a vacant slot is reused with the next generation, so that a late or
    /// repeated answer finds nothing.
    slots: Mutex<Vec<Slot>>,
}

impl RemoteOperations {
    /// Starts one that this peer is asked to do; returns its number. `None` when 65,536 are under way.
    pub fn begin(&self, asked: Peer) -> Option<u32> {
        let mut slots = self.lock();
        let index = match slots.iter().position(|slot| slot.state.is_none()) {
            Some(index) => index,
            None if slots.len() <= usize::from(u16::MAX) => {
                slots.push(Slot { generation: 0, asked, expected: None, state: None });
                slots.len() - 1
            }
            None => return None,
        };
        let generation = slots[index].generation.wrapping_add(1);
        slots[index] = Slot { generation, asked, expected: None, state: Some(RemoteState::Pending) };
        Some(u32::from(generation) << 16 | index as u32)
    }

    /// The answer to one that was begun is to land there.
    pub fn expect(&self, number: u32, expected: Expected) {
        if let Some(slot) = Self::find(&mut self.lock(), number) {
            slot.expected = Some(expected);
        }
    }

    /// Whether an answer is awaited.
    pub fn has_pending(&self) -> bool {
        self.lock().iter().any(|slot| slot.state == Some(RemoteState::Pending))
    }

    /// Takes the result, if there is one, and frees the number.
    pub fn finish(&self, number: u32) -> RemoteState {
        let mut slots = self.lock();
        match Self::find(&mut slots, number) {
            Some(slot) if slot.state != Some(RemoteState::Pending) => {
                slot.state.take().unwrap_or(RemoteState::Pending)
            }
            _ => RemoteState::Pending,
        }
    }

    /// Forgets an operation; its answer will find nothing. Returned: what is still to land.
    pub fn abandon(&self, number: u32) -> Option<Landing> {
        let mut slots = self.lock();
        let slot = Self::find(&mut slots, number)?;
        slot.state = None;
        slot.expected.take().map(|expected| expected.landing)
    }

    /// Records an answer.
    pub fn answer(&self, from: Peer, number: u32, answer: InPlaceAnswer, payload: Arrived<'_>) -> Heard {
        match Self::find(&mut self.lock(), number) {
            Some(slot) if slot.asked == from && slot.state == Some(RemoteState::Pending) => {
                let expected = slot.expected.take();
                let bytes = match payload {
                    Arrived::Medium(bytes) => bytes,
                    _ => &[],
                };
                let has_landed = match (expected, payload) {
                    (Some(Expected { address, bytes, .. }), Arrived::Long(at, length)) => {
                        at.addr() == address && length == bytes
                    }
                    _ => false,
                };
                slot.state = Some(match answer {
                    InPlaceAnswer::Done if has_landed => RemoteState::Landed,
                    InPlaceAnswer::Done => RemoteState::Done(bytes.to_vec()),
                    InPlaceAnswer::NotInPlace => RemoteState::NotInPlace,
                    InPlaceAnswer::Failed => {
                        let word = |at: usize| bytes.get(at..).and_then(<[u8]>::first_chunk).copied();
                        let word = |at| u32::from_le_bytes(word(at).unwrap_or_default());
                        RemoteState::Failed(word(0), word(4))
                    }
                });
                Heard::By(expected.map(|expected| expected.landing))
            }
            _ => Heard::ByNobody,
        }
    }

    fn find(slots: &mut [Slot], number: u32) -> Option<&mut Slot> {
        let slot = slots.get_mut(number as usize & 0xffff)?;
        (u32::from(slot.generation) == number >> 16).then_some(slot)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Slot>> {
        self.slots.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: Peer = Peer(4);

    fn answer(operations: &RemoteOperations, from: Peer, number: u32, bytes: &[u8]) -> Heard {
        operations.answer(from, number, InPlaceAnswer::Done, Arrived::Medium(bytes))
    }

    #[test]
    fn an_answer_reaches_its_operation_once() {
        let operations = RemoteOperations::default();
        let number = operations.begin(HOME).unwrap();
        assert_eq!(operations.finish(number), RemoteState::Pending);
        assert_eq!(answer(&operations, Peer(5), number, b"xyz"), Heard::ByNobody, "somebody else was asked");
        assert_eq!(answer(&operations, HOME, number, b"abc"), Heard::By(None));
        assert_eq!(
            answer(&operations, HOME, number, b"xyz"),
            Heard::ByNobody,
            "the second answer is refused"
        );
        assert_eq!(operations.finish(number), RemoteState::Done(b"abc".to_vec()));
        assert_eq!(answer(&operations, HOME, number, b""), Heard::ByNobody, "it is over");
    }

    #[test]
    fn a_late_answer_does_not_reach_the_next_user_of_the_slot() {
        let operations = RemoteOperations::default();
        let old = operations.begin(HOME).unwrap();
        assert_eq!(operations.abandon(old), None);
        let new = operations.begin(HOME).unwrap();
        assert_ne!(old, new);
        assert_eq!(answer(&operations, HOME, old, b""), Heard::ByNobody);
        let declined = operations.answer(HOME, new, InPlaceAnswer::NotInPlace, Arrived::Short);
        assert_eq!(declined, Heard::By(None));
        assert_eq!(operations.finish(new), RemoteState::NotInPlace);
    }

    #[test]
    fn hostile_numbers_find_nothing() {
        let operations = RemoteOperations::default();
        assert_eq!(answer(&operations, HOME, u32::MAX, b""), Heard::ByNobody);
    }
}
