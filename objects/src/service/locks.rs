//! Locks whose values travel with them: who is given one gets the value's bytes, and gives them back with it.
//!
//! A lock is where its value is, and is known here only while somebody has it or waits for it. Who waits is given it in the order of
//! asking; readers that ask one after the other have it together.

use super::bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, VecDeque};
use vgas::service::{Call, Failure, Home, Service};
use vgas::{Peer, Rank};

/// Where a lock is.
type Place = (u32, u64);

/// What the locks of a node are asked.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// The bytes there, when the caller may have them: alone, or to read. `try_only`: now or not at all.
    Lock { owner: u32, offset: u64, bytes: u32, shared: bool, try_only: bool },
    /// Gives it back, with what was changed.
    Unlock { owner: u32, offset: u64, changed: Option<Bytes> },
}

/// What they answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Answer {
    Granted(Bytes),
    /// Somebody else has it.
    Busy,
    Unlocked,
    /// Not here, or the caller does not have it, or it could not be read or written.
    Failed,
}

#[derive(Debug)]
struct Asked {
    call: Call,
    bytes: u32,
    shared: bool,
}

/// A lock that somebody has or wants.
#[derive(Debug, Default)]
struct Held {
    writer: Option<Peer>,
    /// Once for each time.
    readers: Vec<Peer>,
    waiting: VecDeque<Asked>,
    /// What the writer has left is being written: nobody has it until then.
    is_written: bool,
}

impl Held {
    fn is_free_for(&self, shared: bool) -> bool {
        !self.is_written && self.writer.is_none() && (shared || self.readers.is_empty())
    }

    fn is_idle(&self) -> bool {
        !self.is_written && self.writer.is_none() && self.readers.is_empty() && self.waiting.is_empty()
    }
}

/// What was said to the home and is not done yet.
#[derive(Debug)]
enum UnderWay {
    Read(Call, Place, bool),
    Written(Call, Place),
}

/// The service of a node's locks.
#[derive(Debug, Default)]
pub(crate) struct LockService {
    next: u64,
    held: HashMap<Place, Held>,
    under_way: HashMap<u64, UnderWay>,
}

impl Service for LockService {
    type Request = Request;
    type Answer = Answer;
    const NAME: &'static str = "objects.locks";

    fn called(&mut self, call: Call, request: Request, home: &mut Home<'_, Self>) {
        match request {
            Request::Lock { owner, offset, bytes, shared, try_only } => {
                let layout = home.layout();
                // Who only tells could not be told that it has it.
                if owner >= layout.ranks() || layout.node_of(Rank(owner)) != home.node() || !call.is_awaited()
                {
                    return home.answer(call, &Answer::Failed);
                }
                let held = self.held.entry((owner, offset)).or_default();
                let is_free = held.is_free_for(shared) && held.waiting.is_empty();
                if try_only && !is_free {
                    return home.answer(call, &Answer::Busy);
                }
                held.waiting.push_back(Asked { call, bytes, shared });
                self.grant((owner, offset), home);
            }
            Request::Unlock { owner, offset, changed } => self.unlock(call, (owner, offset), changed, home),
        }
    }

    fn done(&mut self, ticket: u64, result: Result<Vec<u8>, Failure>, home: &mut Home<'_, Self>) {
        match self.under_way.remove(&ticket) {
            Some(UnderWay::Read(call, place, shared)) => match result {
                Ok(found) => home.answer(call, &Answer::Granted(Bytes(found))),
                Err(_) => {
                    self.leave(place, call.from(), shared);
                    home.answer(call, &Answer::Failed);
                    self.grant(place, home);
                }
            },
            Some(UnderWay::Written(call, place)) => {
                if let Some(held) = self.held.get_mut(&place) {
                    held.is_written = false;
                }
                home.answer(call, if result.is_ok() { &Answer::Unlocked } else { &Answer::Failed });
                self.grant(place, home);
            }
            None => {}
        }
    }
}

impl LockService {
    /// Gives a lock to those whose turn it is.
    fn grant(&mut self, place: Place, home: &mut Home<'_, Self>) {
        let Some(held) = self.held.get_mut(&place) else { return };
        while held.waiting.front().is_some_and(|first| held.is_free_for(first.shared)) {
            let Some(first) = held.waiting.pop_front() else { break };
            match first.shared {
                true => held.readers.push(first.call.from()),
                false => held.writer = Some(first.call.from()),
            }
            self.next += 1;
            home.read(Rank(place.0), place.1, first.bytes, self.next);
            self.under_way.insert(self.next, UnderWay::Read(first.call, place, first.shared));
        }
        if held.is_idle() {
            self.held.remove(&place);
        }
    }

    /// Somebody does not have it any more; false: it did not.
    fn leave(&mut self, place: Place, who: Peer, shared: bool) -> bool {
        let Some(held) = self.held.get_mut(&place) else { return false };
        if shared {
            let at = held.readers.iter().position(|reader| *reader == who);
            return at.map(|at| held.readers.swap_remove(at)).is_some();
        }
        held.writer.take_if(|writer| *writer == who).is_some()
    }

    fn unlock(&mut self, call: Call, place: Place, changed: Option<Bytes>, home: &mut Home<'_, Self>) {
        let who = call.from();
        let is_writer = self.leave(place, who, false);
        if !is_writer && (changed.is_some() || !self.leave(place, who, true)) {
            return home.answer(call, &Answer::Failed);
        }
        match changed {
            Some(Bytes(data)) => {
                if let Some(held) = self.held.get_mut(&place) {
                    held.is_written = true;
                }
                self.next += 1;
                home.write(Rank(place.0), place.1, data, self.next);
                self.under_way.insert(self.next, UnderWay::Written(call, place));
            }
            None => {
                home.answer(call, &Answer::Unlocked);
                self.grant(place, home);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vgas::service::Trial;
    use vgas::{Layout, NodeId};

    fn trial() -> Trial<LockService> {
        Trial::new(LockService::default(), Layout::blocks(4, 2), NodeId(0), 4096)
    }

    fn lock(shared: bool, try_only: bool) -> Request {
        Request::Lock { owner: 1, offset: 64, bytes: 2, shared, try_only }
    }

    fn unlock(changed: Option<&[u8]>) -> Request {
        Request::Unlock { owner: 1, offset: 64, changed: changed.map(|bytes| Bytes(bytes.to_vec())) }
    }

    fn granted(bytes: &[u8]) -> Option<Result<Answer, vgas::service::ServiceError>> {
        Some(Ok(Answer::Granted(Bytes(bytes.to_vec()))))
    }

    /// Goal: one has it at a time, in the order of asking, and each sees what the one before has left; readers have it together, and do not
    /// pass who waits to write.
    #[test]
    fn turns_are_taken() {
        let mut trial = trial();
        let calls: Vec<u32> = [false, true, true, false, true]
            .into_iter()
            .zip([0, 1, 2, 3, 0])
            .map(|(shared, rank)| trial.call(Rank(rank), &lock(shared, false)))
            .collect();
        trial.finish();
        assert_eq!(trial.answer(calls[0]), granted(&[0, 0]));
        assert!(calls[1..].iter().all(|call| trial.answer(*call).is_none()));
        trial.tell(Rank(0), &unlock(Some(&[7, 8])));
        assert_eq!(trial.answer(calls[1]), None, "before it is written");
        trial.finish();
        assert_eq!((trial.answer(calls[1]), trial.answer(calls[2])), (granted(&[7, 8]), granted(&[7, 8])));
        trial.tell(Rank(1), &unlock(None));
        trial.finish();
        assert_eq!(trial.answer(calls[3]), None, "a reader has it");
        trial.tell(Rank(2), &unlock(None));
        trial.finish();
        assert_eq!((trial.answer(calls[3]), trial.answer(calls[4])), (granted(&[7, 8]), None));
        trial.tell(Rank(3), &unlock(None));
        trial.finish();
        assert_eq!(trial.answer(calls[4]), granted(&[7, 8]));
        trial.tell(Rank(0), &unlock(None));
        trial.finish();
        assert!(trial.service().held.is_empty() && trial.service().under_way.is_empty());
    }

    /// Goal: who does not have it cannot give it back or change it; who only tries does not wait; what is nowhere is refused, and in
    /// nobody's way.
    #[test]
    fn strangers_are_refused() {
        let mut trial = trial();
        let first = trial.call(Rank(0), &lock(false, true));
        trial.finish();
        assert_eq!(trial.answer(first), granted(&[0, 0]));
        for (rank, request, answer) in [
            (1, lock(false, true), Answer::Busy),
            (1, lock(true, true), Answer::Busy),
            (1, unlock(None), Answer::Failed),
            (1, unlock(Some(&[1])), Answer::Failed),
            (1, Request::Unlock { owner: 9, offset: u64::MAX, changed: None }, Answer::Failed),
            (
                1,
                Request::Lock { owner: 1, offset: u64::MAX, bytes: 8, shared: false, try_only: false },
                Answer::Failed,
            ),
            (
                1,
                Request::Lock { owner: 2, offset: 0, bytes: 8, shared: false, try_only: false },
                Answer::Failed,
            ),
            (
                1,
                Request::Lock { owner: 1, offset: 0, bytes: u32::MAX, shared: true, try_only: false },
                Answer::Failed,
            ),
            (0, unlock(Some(&[1, 2])), Answer::Unlocked),
        ] {
            let call = trial.call(Rank(rank), &request);
            trial.finish();
            assert_eq!(trial.answer(call), Some(Ok(answer)), "{request:?}");
        }
        trial.tell(Rank(1), &lock(false, false));
        trial.finish();
        assert!(trial.service().held.is_empty());
    }
}
