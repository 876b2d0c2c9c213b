//! Small operations that travel to a page which its home serves in place, as the asking rank keeps track of them.
//!
//! The answer to a get is kept here until its operation fetches it: the handler never writes into the program's
//! memory, so an operation that is forgotten cannot be written to later.

use crate::request::InPlaceAnswer;
use std::sync::Mutex;
use vgas_rma::address::Peer;

/// How an operation stands.
#[derive(Debug, PartialEq, Eq)]
pub enum RemoteState {
    /// No answer yet.
    Pending,
    /// Done, with the bytes of a get.
    Done(Vec<u8>),
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
    state: Option<RemoteState>,
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
                slots.push(Slot { generation: 0, asked, state: None });
                slots.len() - 1
            }
            None => return None,
        };
        let generation = slots[index].generation.wrapping_add(1);
        slots[index] = Slot { generation, asked, state: Some(RemoteState::Pending) };
        Some(u32::from(generation) << 16 | index as u32)
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

    /// Forgets an operation; its answer will find nothing.
    pub fn abandon(&self, number: u32) {
        if let Some(slot) = Self::find(&mut self.lock(), number) {
            slot.state = None;
        }
    }

    /// Records an answer. False: no such operation is under way, or somebody else was asked.
    pub fn answer(&self, from: Peer, number: u32, answer: InPlaceAnswer, bytes: &[u8]) -> bool {
        match Self::find(&mut self.lock(), number) {
            Some(slot) if slot.asked == from && slot.state == Some(RemoteState::Pending) => {
                slot.state = Some(match answer {
                    InPlaceAnswer::Done => RemoteState::Done(bytes.to_vec()),
                    InPlaceAnswer::NotInPlace => RemoteState::NotInPlace,
                    InPlaceAnswer::Failed => {
                        let word = |at: usize| bytes.get(at..).and_then(<[u8]>::first_chunk).copied();
                        let word = |at| u32::from_le_bytes(word(at).unwrap_or_default());
                        RemoteState::Failed(word(0), word(4))
                    }
                });
                true
            }
            _ => false,
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

    #[test]
    fn an_answer_reaches_its_operation_once() {
        let operations = RemoteOperations::default();
        let number = operations.begin(HOME).unwrap();
        assert_eq!(operations.finish(number), RemoteState::Pending);
        assert!(!operations.answer(Peer(5), number, InPlaceAnswer::Done, b"xyz"), "somebody else was asked");
        assert!(operations.answer(HOME, number, InPlaceAnswer::Done, b"abc"));
        assert!(
            !operations.answer(HOME, number, InPlaceAnswer::Done, b"xyz"),
            "the second answer is refused"
        );
        assert_eq!(operations.finish(number), RemoteState::Done(b"abc".to_vec()));
        assert!(!operations.answer(HOME, number, InPlaceAnswer::Done, b""), "it is over");
    }

    #[test]
    fn a_late_answer_does_not_reach_the_next_user_of_the_slot() {
        let operations = RemoteOperations::default();
        let old = operations.begin(HOME).unwrap();
        operations.abandon(old);
        let new = operations.begin(HOME).unwrap();
        assert_ne!(old, new);
        assert!(!operations.answer(HOME, old, InPlaceAnswer::Done, b""));
        assert!(operations.answer(HOME, new, InPlaceAnswer::NotInPlace, b""));
        assert_eq!(operations.finish(new), RemoteState::NotInPlace);
    }

    #[test]
    fn hostile_numbers_find_nothing() {
        let operations = RemoteOperations::default();
        assert!(!operations.answer(HOME, u32::MAX, InPlaceAnswer::Done, b""));
    }
}
