//! Small operations that travel to a page which its home serves in place, as the asking rank keeps track of them.
//!
//! The answer to a get is kept here until its operation fetches it: the handler never writes into the program's
//! memory, so an operation that is forgotten cannot be written to later.

use crate::request::InPlaceAnswer;
use std::sync::Mutex;

/// How an operation stands.
#[derive(Debug, PartialEq, Eq)]
pub enum RemoteState {
    /// No answer yet.
    Pending,
    /// Done, with the bytes of a get.
    Done(Vec<u8>),
    /// The home does not serve the page in place any more.
    NotInPlace,
}

/// The operations of one rank that are under way.
#[derive(Debug, Default)]
pub struct RemoteOperations {
    /// Generation and state of each slot; a vacant slot is reused with the next generation, so that a late or
    /// repeated answer finds nothing.
    slots: Mutex<Vec<(u16, Option<(Peer, RemoteState)>)>>,
}

impl RemoteOperations {
    /// Starts one; returns its number. `None` when 65,536 are under way.
    pub fn begin(&self) -> Option<u32> {
        let mut slots = self.lock();
        let index = match slots.iter().position(|(_, state)| state.is_none()) {
            Some(index) => index,
            None if slots.len() <= usize::from(u16::MAX) => {
                slots.push((0, None));
                slots.len() - 1
            }
            None => return None,
        };
        let (generation, state) = &mut slots[index];
        *generation = generation.wrapping_add(1);
        *state = Some(RemoteState::Pending);
        Some(u32::from(*generation) << 16 | index as u32)
    }

    /// Takes the result, if there is one, and frees the number.
    pub fn finish(&self, number: u32) -> RemoteState {
        let mut slots = self.lock();
        match Self::find(&mut slots, number) {
            Some(state) if *state != Some(RemoteState::Pending) => {
                state.take().unwrap_or(RemoteState::Pending)
            }
            _ => RemoteState::Pending,
        }
    }

    /// Forgets an operation; its answer will find nothing.
    pub fn abandon(&self, number: u32) {
        if let Some(state) = Self::find(&mut self.lock(), number) {
            *state = None;
        }
    }

    /// Records an answer. False: no such operation is under way.
    pub fn answer(&self, number: u32, answer: InPlaceAnswer, bytes: &[u8]) -> bool {
        match Self::find(&mut self.lock(), number) {
            Some(state @ Some(RemoteState::Pending)) => {
                *state = Some(match answer {
                    InPlaceAnswer::Done => RemoteState::Done(bytes.to_vec()),
                    InPlaceAnswer::NotInPlace => RemoteState::NotInPlace,
                });
                true
            }
            _ => false,
        }
    }

    fn find(slots: &mut [(u16, Option<RemoteState>)], number: u32) -> Option<&mut Option<RemoteState>> {
        let (generation, state) = slots.get_mut(number as usize & 0xffff)?;
        (u32::from(*generation) == number >> 16).then_some(state)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<(u16, Option<RemoteState>)>> {
        self.slots.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_reaches_its_operation_once() {
        let operations = RemoteOperations::default();
        let number = operations.begin().unwrap();
        assert_eq!(operations.finish(number), RemoteState::Pending);
        assert!(operations.answer(number, InPlaceAnswer::Done, b"abc"));
        assert!(!operations.answer(number, InPlaceAnswer::Done, b"xyz"), "the second answer is refused");
        assert_eq!(operations.finish(number), RemoteState::Done(b"abc".to_vec()));
        assert!(!operations.answer(number, InPlaceAnswer::Done, b""), "it is over");
    }

    #[test]
    fn a_late_answer_does_not_reach_the_next_user_of_the_slot() {
        let operations = RemoteOperations::default();
        let old = operations.begin().unwrap();
        operations.abandon(old);
        let new = operations.begin().unwrap();
        assert_ne!(old, new);
        assert!(!operations.answer(old, InPlaceAnswer::Done, b""));
        assert!(operations.answer(new, InPlaceAnswer::NotInPlace, b""));
        assert_eq!(operations.finish(new), RemoteState::NotInPlace);
    }

    #[test]
    fn hostile_numbers_find_nothing() {
        let operations = RemoteOperations::default();
        assert!(!operations.answer(u32::MAX, InPlaceAnswer::Done, b""));
    }
}
