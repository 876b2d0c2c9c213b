//! Small operations that travel to a page which its home serves in place, as the asking rank keeps track of them.
//!
//! The answer to a small get is kept here until its operation fetches it: the handler never writes into the program's
//! memory, so an operation that is forgotten cannot be written to later. Many bytes land where the operation says
//! ([`Landing`]), which ends with any answer, before anything else can come from that peer.

use crate::request::InPlaceAnswer;
use std::sync::Mutex;
use std::task::Waker;
use vgas_rma::address::Peer;
use vgas_rma::endpoint::{Endpoint, Landing};
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
    /// Who may answer; any agent, if none.
    asked: Option<Peer>,
    /// Where the answer is to land, until there is one.
    expected: Option<Expected>,
    state: Option<RemoteState>,
    /// Who is woken by the answer; counted as work of the endpoint.
    waker: Option<Waker>,
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

/// What is left to do when an operation is over.
#[derive(Debug, Default)]
pub struct Over {
    /// What was to land, which is to be ended.
    pub landing: Option<Landing>,
    /// Whom to wake; the endpoint counts it as work.
    pub waker: Option<Waker>,
}

impl Over {
    /// Does it, where the answer came.
    pub fn settle(self, endpoint: &Endpoint) {
        self.landing.into_iter().for_each(|landing| endpoint.end_landing(landing));
        if let Some(waker) = self.waker {
            endpoint.work_ended(1);
            waker.wake();
        }
    }
}

impl Slot {
    fn over(&mut self) -> Over {
        let landing = self.expected.take().map(|expected| expected.landing);
        Over { landing, waker: self.waker.take() }
    }
}

/// What became of an answer.
#[derive(Debug)]
pub enum Heard {
    /// Its operation has it.
    By(Over),
    /// No such operation is in flight, or somebody else was asked.
    ByNobody,
}

/// The operations of one rank that are in flight.
#[derive(Debug, Default)]
pub struct RemoteOperations {
    /// Generation and state of each slot; a vacant slot is reused with the next generation, so that a late or
    /// repeated answer finds nothing.
    slots: Mutex<Vec<Slot>>,
}

impl RemoteOperations {
    /// Starts one that this peer is asked to do; returns its number. `None` when 65,536 are in flight.
    pub fn begin(&self, asked: Peer) -> Option<u32> {
        self.begin_for(Some(asked))
    }

    /// [`RemoteOperations::begin`], of what whoever is asked may pass on to another agent.
    pub fn begin_for_any_agent(&self) -> Option<u32> {
        self.begin_for(None)
    }

    fn begin_for(&self, asked: Option<Peer>) -> Option<u32> {
        let mut slots = self.lock();
        let index = match slots.iter().position(|slot| slot.state.is_none()) {
            Some(index) => index,
            None if slots.len() <= usize::from(u16::MAX) => {
                slots.push(Slot { generation: 0, asked, expected: None, state: None, waker: None });
                slots.len() - 1
            }
            None => return None,
        };
        let generation = slots[index].generation.wrapping_add(1);
        let state = Some(RemoteState::Pending);
        slots[index] = Slot { generation, asked, expected: None, state, waker: None };
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

    /// Who is asked, of an operation that waits for the answer of one peer.
    pub fn awaited(&self, number: u32) -> Option<Peer> {
        let mut slots = self.lock();
        Self::find(&mut slots, number)
            .filter(|slot| slot.state == Some(RemoteState::Pending))
            .and_then(|slot| slot.asked)
    }

    /// Forgets an operation; its answer will find nothing.
    pub fn abandon(&self, number: u32) -> Over {
        let mut slots = self.lock();
        let Some(slot) = Self::find(&mut slots, number) else { return Over::default() };
        slot.state = None;
        slot.over()
    }

    /// Has the answer wake somebody, in the place of whom it would have woken; false: it is there already.
    pub fn wakes(&self, number: u32, waker: &Waker) -> bool {
        match Self::find(&mut self.lock(), number) {
            Some(slot) if slot.state == Some(RemoteState::Pending) => {
                slot.waker = Some(waker.clone());
                true
            }
            _ => false,
        }
    }

    /// Those who would be woken by answers, some of which may not come any more.
    pub fn wakers(&self) -> Vec<Waker> {
        self.lock().iter().filter_map(|slot| slot.waker.clone()).collect()
    }

    /// Records an answer, which is an agent's.
    pub fn answer(&self, from: Peer, number: u32, answer: InPlaceAnswer, payload: Arrived<'_>) -> Heard {
        match Self::find(&mut self.lock(), number) {
            Some(slot)
                if slot.asked.is_none_or(|asked| asked == from)
                    && slot.state == Some(RemoteState::Pending) =>
            {
                let expected = slot.expected;
                let bytes = payload.medium_bytes();
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
                Heard::By(slot.over())
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

    fn heard(operations: &RemoteOperations, from: Peer, number: u32, bytes: &[u8]) -> bool {
        let heard = operations.answer(from, number, InPlaceAnswer::Done, Arrived::Medium(bytes.into()));
        matches!(heard, Heard::By(_))
    }

    #[test]
    fn an_answer_reaches_its_operation_once() {
        let operations = RemoteOperations::default();
        let number = operations.begin(HOME).unwrap();
        assert_eq!(operations.finish(number), RemoteState::Pending);
        assert!(!heard(&operations, Peer(5), number, b"xyz"), "somebody else was asked");
        assert!(heard(&operations, HOME, number, b"abc"));
        assert!(!heard(&operations, HOME, number, b"xyz"), "the second answer is refused");
        assert_eq!(operations.finish(number), RemoteState::Done(b"abc".to_vec()));
        assert!(!heard(&operations, HOME, number, b""), "it is over");
    }

    #[test]
    fn a_late_answer_does_not_reach_the_next_user_of_the_slot() {
        let operations = RemoteOperations::default();
        let old = operations.begin(HOME).unwrap();
        assert!(operations.abandon(old).landing.is_none());
        let new = operations.begin(HOME).unwrap();
        assert_ne!(old, new);
        assert!(!heard(&operations, HOME, old, b""));
        let declined = operations.answer(HOME, new, InPlaceAnswer::NotInPlace, Arrived::Short);
        assert!(matches!(declined, Heard::By(_)));
        assert_eq!(operations.finish(new), RemoteState::NotInPlace);
    }

    /// Goal: the answer wakes whoever has asked for it last, once; and nobody who has gone.
    #[test]
    fn an_answer_wakes_who_waits() {
        struct Count(std::sync::atomic::AtomicU32);
        impl std::task::Wake for Count {
            fn wake(self: std::sync::Arc<Self>) {
                self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
        }
        let counts = [0, 1].map(|_| std::sync::Arc::new(Count(0.into())));
        let [first, second] = counts.clone().map(Waker::from);
        let operations = RemoteOperations::default();
        let [one, two] = [0, 1].map(|_| operations.begin(HOME).unwrap());
        assert!(
            operations.wakes(one, &first) && operations.wakes(one, &second) && operations.wakes(two, &first)
        );
        let Heard::By(Over { waker: Some(woken), .. }) =
            operations.answer(HOME, one, InPlaceAnswer::Done, Arrived::Medium(b"".as_slice().into()))
        else {
            panic!("nobody is woken")
        };
        woken.wake();
        assert!(!operations.wakes(one, &first), "it is there");
        assert!(operations.abandon(one).waker.is_none() && operations.abandon(two).waker.is_some());
        assert!(!heard(&operations, HOME, two, b""));
        assert_eq!(counts.map(|count| count.0.load(std::sync::atomic::Ordering::Relaxed)), [0, 1]);
    }

    #[test]
    fn hostile_numbers_find_nothing() {
        let operations = RemoteOperations::default();
        assert!(!heard(&operations, HOME, u32::MAX, b""));
    }
}
