//! Locks whose values travel with them: a grant carries the value's bytes, and the release gives them back.
//!
//! A lock is in its value's place, and is known here only while it is held or waited for. Waiters are granted
//! it in the order of their requests; consecutive readers have it together. A holder may give it back to wait
//! for a condition: it then blocks no one, and requests the lock again when it is notified, or called back.

use super::bytes::Bytes;
use crate::heap::{LIBRARY, SEGMENT};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, VecDeque};
use vgas::service::{Call, Failure, Home, Library, Service};
use vgas::{NodeId, Peer, Rank};

/// First word of a lock's value after a writer failed to give it back properly
/// ([`crate::sync`]). If the writer was lost with its node, the node's number plus 1 is added.
pub(crate) const POISONED: u64 = 1;

/// Bit of a lock's first word, beside a lost node: a rank there passed on objects while it held the lock, which may have
/// come out of it.
pub(crate) const GIVEN: u64 = 1 << 40;

/// Place of a lock.
type LockPlace = (u32, u64);

/// Request to the locks of a node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// The bytes there, when the caller may have them: alone, or to read. `try_only`: now or not at all.
    Lock { owner: u32, offset: u64, bytes: u32, shared: bool, try_only: bool },
    /// Gives it back, with the changed bytes.
    Unlock { owner: u32, offset: u64, changed: Option<Bytes> },
    /// The bytes there, once no writer holds them.
    Copy { owner: u32, offset: u64, bytes: u32 },
    /// Gives it back with its bytes, and wants it again when this condition is notified.
    Wait { owner: u32, offset: u64, changed: Bytes, condition: u64, token: u64 },
    /// Wakes one waiter of a condition, or all.
    Notify { condition: u64, all: bool },
    /// The waiter for a condition under this token stops waiting.
    CallBack { condition: u64, token: u64 },
    /// Asks for the number of locks held or waited for, and of conditions.
    Count,
    /// The caller, which has it alone, is about to pass something on: if it is lost, the former value is not
    /// used again.
    Gives { owner: u32, offset: u64 },
    /// Answered when the values of all locks released before are written: a lock that the caller still holds for writing.
    Settle,
}

/// Their answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Answer {
    Granted(Bytes),
    /// To a waiter that was called back from a condition.
    Late(Bytes),
    /// To a waiter for a condition: this node is lost, which may have had the notifier. It has no lock.
    Lost(u32),
    /// Another thread holds it.
    Busy,
    Unlocked,
    Notified,
    Counted(u64),
    Noted,
    /// The owner and the offset of the first lock that the caller holds for writing.
    Settled(Option<(u32, u64)>),
    /// Not here, or the caller does not have it, or it could not be read or written.
    Failed,
}

#[derive(Debug)]
struct LockRequest {
    call: Call,
    bytes: u32,
    how: How,
}

/// Mode of a lock request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Alone,
    /// Exclusive, by a waiter that was called back from a condition.
    Late,
    Shared,
    /// Only for as long as its bytes are read.
    Copy,
}

impl How {
    fn is_shared(self) -> bool {
        matches!(self, Self::Shared | Self::Copy)
    }
}

/// A waiter for a condition, and the lock that it wants then.
#[derive(Debug)]
struct Sleeper {
    place: LockPlace,
    asked: LockRequest,
    token: u64,
}

/// A lock that is held or wanted.
#[derive(Debug, Default)]
struct LockState {
    writer: Option<Peer>,
    /// The writer has passed something on since.
    has_given: bool,
    /// Once for each time.
    readers: Vec<Peer>,
    waiting: VecDeque<LockRequest>,
    /// The writer's bytes are being written: it is not granted until then.
    is_written: bool,
}

impl LockState {
    fn is_free_for(&self, shared: bool) -> bool {
        !self.is_written && self.is_given_back_for(shared)
    }

    /// Returns true if it is not held, even if the last holder's bytes are not yet written: a `try_only`
    /// request is granted then.
    fn is_given_back_for(&self, shared: bool) -> bool {
        self.writer.is_none() && (shared || self.readers.is_empty())
    }

    fn is_idle(&self) -> bool {
        !self.is_written && self.writer.is_none() && self.readers.is_empty() && self.waiting.is_empty()
    }
}

/// A request to the home that is not done yet.
#[derive(Debug)]
enum InFlight {
    Read(Call, LockPlace, How),
    /// None: the last holder waits for a condition, or is lost.
    Written(Option<Call>, LockPlace),
}

/// The service of a node's locks.
#[derive(Debug, Default)]
pub(crate) struct LockService {
    next: u64,
    held: HashMap<LockPlace, LockState>,
    in_flight: HashMap<u64, InFlight>,
    conditions: HashMap<u64, VecDeque<Sleeper>>,
    /// Calls of [`Request::Settle`], each with the last ticket before it.
    settling: VecDeque<(u64, Call)>,
}

impl Service for LockService {
    type Request = Request;
    type Answer = Answer;
    const NAME: &'static str = "objects.locks";
    const LIBRARY: Library = LIBRARY;

    fn called(&mut self, call: Call, request: Request, home: &mut Home<'_, Self>) {
        match request {
            Request::Lock { owner, offset, bytes, shared, try_only } => {
                let how = if shared { How::Shared } else { How::Alone };
                self.lock((owner, offset), LockRequest { call, bytes, how }, try_only, home);
            }
            Request::Copy { owner, offset, bytes } => {
                self.lock((owner, offset), LockRequest { call, bytes, how: How::Copy }, false, home);
            }
            Request::Unlock { owner, offset, changed } => self.unlock(call, (owner, offset), changed, home),
            Request::Wait { owner, offset, changed, condition, token } => {
                if !call.is_awaited() || !self.leave((owner, offset), call.from(), false) {
                    return home.answer(call, &Answer::Failed);
                }
                let (place, bytes) = ((owner, offset), changed.0.len() as u32);
                // Before anybody else can have the lock, and notify.
                let sleeper = Sleeper { place, asked: LockRequest { call, bytes, how: How::Alone }, token };
                self.conditions.entry(condition).or_default().push_back(sleeper);
                self.write(None, place, changed.0, home);
            }
            Request::Notify { condition, all } => {
                home.answer(call, &Answer::Notified);
                while let Some(sleeper) = self.sleeper(condition, |_| true) {
                    self.wake(sleeper, home);
                    if !all {
                        break;
                    }
                }
            }
            Request::CallBack { condition, token } => {
                let from = call.from();
                home.answer(call, &Answer::Notified);
                let is_it = |one: &Sleeper| (one.asked.call.from(), one.token) == (from, token);
                if let Some(mut sleeper) = self.sleeper(condition, is_it) {
                    sleeper.asked.how = How::Late;
                    self.wake(sleeper, home);
                }
            }
            Request::Count => {
                let count = self.held.len() + self.conditions.len();
                home.answer(call, &Answer::Counted(count as u64));
            }
            Request::Gives { owner, offset } => {
                if let Some(held) = self.held.get_mut(&(owner, offset)) {
                    held.has_given |= held.writer == Some(call.from());
                }
                home.answer(call, &Answer::Noted);
            }
            Request::Settle if !call.is_awaited() => home.answer(call, &Answer::Failed),
            Request::Settle => {
                self.settling.push_back((self.next, call));
                self.answer_settled(home);
            }
        }
    }

    fn done(&mut self, ticket: u64, result: Result<Vec<u8>, Failure>, home: &mut Home<'_, Self>) {
        match self.in_flight.remove(&ticket) {
            Some(InFlight::Read(call, place, how)) => {
                let is_kept = result.is_ok() && how != How::Copy;
                if !is_kept {
                    self.leave(place, call.from(), how.is_shared());
                }
                let answer = match (result, how) {
                    (Ok(found), How::Late) => Answer::Late(Bytes(found)),
                    (Ok(found), _) => Answer::Granted(Bytes(found)),
                    (Err(_), _) => Answer::Failed,
                };
                home.answer(call, &answer);
                if !is_kept {
                    self.grant(place, home);
                }
            }
            Some(InFlight::Written(call, place)) => {
                if let Some(held) = self.held.get_mut(&place) {
                    held.is_written = false;
                }
                if let Some(call) = call {
                    home.answer(call, if result.is_ok() { &Answer::Unlocked } else { &Answer::Failed });
                }
                self.grant(place, home);
                self.answer_settled(home);
            }
            None => {}
        }
    }

    /// Releases the locks of a lost node's ranks; those held exclusively are poisoned, and have the value of
    /// before the lock. Waiters for a condition are told.
    fn lost(&mut self, node: NodeId, home: &mut Home<'_, Self>) {
        let layout = home.layout().clone();
        let is_there = |peer: Peer| layout.node_of_peer(peer) == node;
        self.settling.retain(|(_, call)| !is_there(call.from()));
        // Other possible notifiers are unknown.
        for sleeper in self.conditions.drain().flat_map(|(_, waiting)| waiting) {
            if !is_there(sleeper.asked.call.from()) {
                home.answer(sleeper.asked.call, &Answer::Lost(node.0));
            }
        }
        let mut places: Vec<LockPlace> = self.held.keys().copied().collect();
        places.sort_unstable();
        for place in places {
            let Some(held) = self.held.get_mut(&place) else { continue };
            held.waiting.retain(|asked| !is_there(asked.call.from()));
            held.readers.retain(|reader| !is_there(*reader));
            if held.writer.take_if(|writer| is_there(*writer)).is_some() {
                // The first word of what lies there.
                let given = if held.has_given { GIVEN } else { 0 };
                let left = (POISONED + 1 + u64::from(node.0)) | given;
                self.write(None, place, left.to_le_bytes().to_vec(), home);
            }
            self.grant(place, home);
        }
    }
}

impl LockService {
    /// Handles a request for a lock.
    fn lock(&mut self, place: LockPlace, asked: LockRequest, try_only: bool, home: &mut Home<'_, Self>) {
        let layout = home.layout();
        let is_here = place.0 < layout.ranks() && layout.node_of(Rank(place.0)) == home.node();
        // A message without an answer could not be told that it has it.
        if !is_here || !asked.call.is_awaited() {
            return home.answer(asked.call, &Answer::Failed);
        }
        let held = self.held.entry(place).or_default();
        let is_free = held.is_given_back_for(asked.how.is_shared()) && held.waiting.is_empty();
        if try_only && !is_free {
            return home.answer(asked.call, &Answer::Busy);
        }
        held.waiting.push_back(asked);
        self.grant(place, home);
    }

    /// Answers each [`Request::Settle`] before which no write is in flight.
    fn answer_settled(&mut self, home: &mut Home<'_, Self>) {
        while let Some(&(last, _)) = self.settling.front() {
            let is_write =
                |(ticket, what): (&u64, &InFlight)| *ticket <= last && matches!(what, InFlight::Written(..));
            if self.in_flight.iter().any(is_write) {
                return;
            }
            let Some((_, call)) = self.settling.pop_front() else { return };
            let who = call.from();
            let held = self.held.iter().filter(|(_, held)| held.writer == Some(who));
            home.answer(call, &Answer::Settled(held.map(|(place, _)| *place).min()));
        }
    }

    /// Takes away the first of those that wait for a condition.
    fn sleeper(&mut self, condition: u64, is_it: impl Fn(&Sleeper) -> bool) -> Option<Sleeper> {
        let waiting = self.conditions.get_mut(&condition)?;
        let found = waiting.iter().position(is_it).and_then(|at| waiting.remove(at));
        if waiting.is_empty() {
            self.conditions.remove(&condition);
        }
        found
    }

    /// Requests the lock again for a waiter of a condition.
    fn wake(&mut self, sleeper: Sleeper, home: &mut Home<'_, Self>) {
        self.held.entry(sleeper.place).or_default().waiting.push_back(sleeper.asked);
        self.grant(sleeper.place, home);
    }

    /// Gives a lock to those whose turn it is.
    fn grant(&mut self, place: LockPlace, home: &mut Home<'_, Self>) {
        let Some(held) = self.held.get_mut(&place) else { return };
        while held.waiting.front().is_some_and(|first| held.is_free_for(first.how.is_shared())) {
            let Some(first) = held.waiting.pop_front() else { break };
            match first.how.is_shared() {
                true => held.readers.push(first.call.from()),
                false => (held.writer, held.has_given) = (Some(first.call.from()), false),
            }
            self.next += 1;
            home.read((SEGMENT, Rank(place.0)), place.1, first.bytes, self.next);
            self.in_flight.insert(self.next, InFlight::Read(first.call, place, first.how));
        }
        if held.is_idle() {
            self.held.remove(&place);
        }
    }

    /// Releases it; false: the peer did not hold it.
    fn leave(&mut self, place: LockPlace, who: Peer, shared: bool) -> bool {
        let Some(held) = self.held.get_mut(&place) else { return false };
        if shared {
            let at = held.readers.iter().position(|reader| *reader == who);
            return at.map(|at| held.readers.swap_remove(at)).is_some();
        }
        held.writer.take_if(|writer| *writer == who).is_some()
    }

    /// Writes a released lock's bytes; the lock is not granted until then.
    fn write(&mut self, call: Option<Call>, place: LockPlace, data: Vec<u8>, home: &mut Home<'_, Self>) {
        if let Some(held) = self.held.get_mut(&place) {
            held.is_written = true;
        }
        self.next += 1;
        home.write((SEGMENT, Rank(place.0)), place.1, data, self.next);
        self.in_flight.insert(self.next, InFlight::Written(call, place));
    }

    fn unlock(&mut self, call: Call, place: LockPlace, changed: Option<Bytes>, home: &mut Home<'_, Self>) {
        let who = call.from();
        let is_writer = self.leave(place, who, false);
        if !is_writer && (changed.is_some() || !self.leave(place, who, true)) {
            return home.answer(call, &Answer::Failed);
        }
        match changed {
            Some(Bytes(data)) => self.write(Some(call), place, data, home),
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

    /// Goal: the locks of a lost node's ranks go to the waiters, poisoned if they were held exclusively; no
    /// rank there is granted one.
    #[test]
    fn locks_of_a_lost_node_are_given_on() {
        let mut trial = trial();
        trial.memory(Rank(1))[64..66].copy_from_slice(&[0, 7]);
        let writer = trial.call(Rank(2), &lock(false, false));
        trial.finish();
        assert_eq!(trial.answer(writer), granted(&[0, 7]));
        let (gone, here) =
            (trial.call(Rank(3), &lock(false, false)), trial.call(Rank(0), &lock(false, false)));
        trial.lose(NodeId(1));
        trial.finish();
        assert_eq!(trial.memory(Rank(1))[64..72], (POISONED + 2).to_le_bytes());
        assert_eq!((trial.answer(gone), trial.answer(here)), (None, granted(&[3, 0])));
        trial.call(Rank(0), &unlock(None));
        trial.finish();
        let reader = trial.call(Rank(0), &lock(true, false));
        trial.finish();
        assert!(trial.answer(reader).is_some(), "somebody still has it");
    }

    /// Goal: a waiter for a condition on a lost node is not granted its lock again; one that waits for it
    /// elsewhere is told of the loss.
    #[test]
    fn nobody_on_a_lost_node_waits_for_a_condition() {
        let mut trial = trial();
        trial.call(Rank(2), &lock(false, false));
        trial.finish();
        let (owner, offset, changed) = (1, 64, Bytes(vec![0, 7]));
        trial.call(Rank(2), &Request::Wait { owner, offset, changed, condition: 5, token: 1 });
        trial.finish();
        trial.call(Rank(0), &lock(false, false));
        trial.finish();
        let (owner, offset, changed) = (1, 64, Bytes(vec![0, 7]));
        let waits = trial.call(Rank(0), &Request::Wait { owner, offset, changed, condition: 5, token: 2 });
        trial.finish();
        trial.lose(NodeId(1));
        trial.finish();
        assert_eq!(trial.answer(waits), Some(Ok(Answer::Lost(1))));
        trial.call(Rank(0), &Request::Notify { condition: 5, all: true });
        let next = trial.call(Rank(0), &lock(false, false));
        trial.finish();
        assert_eq!(trial.answer(next), granted(&[0, 7]));
    }

    /// Goal: one holds it at a time, in the order of requests, and each sees the previous holder's value;
    /// readers have it together, and do not pass a waiting writer.
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
        assert!(trial.service().held.is_empty() && trial.service().in_flight.is_empty());
    }

    /// Goal: a peer that does not hold it cannot give it back or change it; a `try_only` request does not
    /// wait; invalid places are refused, without effect.
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

    /// Goal: `Settle` is answered once the values released before it are written, and names a lock of the caller's only.
    #[test]
    fn released_values_are_written_before_locks_are_settled() {
        let mut trial = trial();
        trial.call(Rank(2), &lock(false, false));
        trial.finish();
        let settle = |trial: &mut Trial<LockService>, rank| trial.call(Rank(rank), &Request::Settle);
        let settled = |place| Some(Ok(Answer::Settled(place)));
        let (held, other) = (settle(&mut trial, 2), settle(&mut trial, 3));
        assert_eq!((trial.answer(held), trial.answer(other)), (settled(Some((1, 64))), settled(None)));
        trial.tell(Rank(2), &unlock(Some(&[7, 8])));
        let all = [settle(&mut trial, 2), settle(&mut trial, 3)];
        assert!(all.iter().all(|call| trial.answer(*call).is_none()), "before it is written");
        trial.finish();
        assert!(all.iter().all(|call| trial.answer(*call) == settled(None)));
        assert_eq!(trial.memory(Rank(1))[64..66], [7, 8]);
        let reader = trial.call(Rank(0), &lock(true, false));
        let reads = settle(&mut trial, 0);
        trial.finish();
        assert!(trial.answer(reader).is_some() && trial.answer(reads) == settled(None), "it changes nothing");
        trial.tell(Rank(0), &Request::Settle);
        assert!(trial.service().settling.is_empty());
    }

    fn wait(changed: &[u8], token: u64) -> Request {
        Request::Wait { owner: 1, offset: 64, changed: Bytes(changed.to_vec()), condition: 9, token }
    }

    /// Goal: a waiter for a condition blocks no one, has the lock again when it is notified and it is its
    /// turn, in the order of waiting, or when it is called back; a peer that does not hold the lock cannot
    /// wait.
    #[test]
    fn conditions_are_waited_for() {
        let mut trial = trial();
        let stranger = trial.call(Rank(0), &wait(&[1, 1], 1));
        assert_eq!(trial.answer(stranger), Some(Ok(Answer::Failed)));
        let mut waits = Vec::new();
        for rank in 0..3 {
            let call = trial.call(Rank(rank), &lock(false, false));
            trial.finish();
            assert_eq!(trial.answer(call), granted(&[rank as u8; 2]));
            waits.push(trial.call(Rank(rank), &wait(&[rank as u8 + 1; 2], 5)));
        }
        trial.finish();
        let holder = trial.call(Rank(3), &lock(false, false));
        trial.finish();
        assert_eq!(trial.answer(holder), granted(&[3, 3]));
        trial.tell(Rank(3), &Request::Notify { condition: 9, all: false });
        trial.tell(Rank(3), &Request::Notify { condition: 8, all: true });
        trial.tell(Rank(2), &Request::CallBack { condition: 9, token: 4 });
        trial.tell(Rank(2), &Request::CallBack { condition: 9, token: 5 });
        trial.finish();
        assert!(waits.iter().all(|call| trial.answer(*call).is_none()), "somebody has the lock");
        trial.tell(Rank(3), &unlock(Some(&[7, 7])));
        trial.finish();
        assert_eq!((trial.answer(waits[0]), trial.answer(waits[2])), (granted(&[7, 7]), None));
        trial.tell(Rank(0), &unlock(None));
        trial.finish();
        assert_eq!(trial.answer(waits[2]), Some(Ok(Answer::Late(Bytes(vec![7, 7])))));
        trial.tell(Rank(2), &unlock(None));
        trial.tell(Rank(0), &Request::Notify { condition: 9, all: true });
        trial.finish();
        assert_eq!(trial.answer(waits[1]), granted(&[7, 7]));
        let copy = trial.call(Rank(0), &Request::Copy { owner: 1, offset: 64, bytes: 2 });
        trial.finish();
        assert_eq!(trial.answer(copy), None, "somebody has it alone");
        trial.tell(Rank(1), &unlock(None));
        trial.finish();
        assert_eq!(trial.answer(copy), granted(&[7, 7]));
        let service = trial.service();
        assert!(service.held.is_empty() && service.conditions.is_empty());
    }
}
