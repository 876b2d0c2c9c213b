//! Slots on other ranks: asked for by a message, and given by the watch of the other rank, which may touch memory that is not there.

use super::pool::{self, Pool};
use super::travel::{self, TaskMessage};
use crate::heap::{Messages, ObjectError, SlotAnswer, give_back, room_for};
use crate::slab::Class;
use crate::word::Word;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};
use vgas::Rank;

/// Most questions that wait in a rank. Each thread asks one at a time.
const WAITING_MAX: usize = 1 << 16;

#[derive(Default)]
pub(super) struct Rooms {
    /// Requests for slots: the rank, the request's number, and the class.
    wanted: Mutex<VecDeque<(Rank, u64, Class)>>,
    /// This rank's requests, by number: the rank asked, and the answer.
    asked: Mutex<FxHashMap<u64, (Rank, Option<SlotAnswer>)>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Changed in steps that cannot panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Asks a rank for a slot, and waits for the answer; none if it cannot be asked: outside of
/// [`crate::Objects::run`], in handlers, or if it is lost.
pub(crate) fn ask_for_room(rank: Rank, class: Class) -> Result<Option<SlotAnswer>, ObjectError> {
    let pool = pool::pool()?;
    if pool.is_over() || pool.runtime.is_lost(rank) || pool.runtime.messages().in_handler() {
        return Ok(None);
    }
    let number = pool.next.fetch_add(1, Ordering::Relaxed);
    let asked = &pool.rooms.asked;
    lock(asked).insert(number, (rank, None));
    let is_answered = || lock(asked).get(&number).is_none_or(|(_, room)| room.is_some());
    let waited = travel::tell(pool, rank, &TaskMessage::Wanted { number, class }, &[]).and_then(|()| {
        crate::sync::until(None, || is_answered() || pool.is_closed() || pool.runtime.is_lost(rank))
    });
    let found = lock(asked).remove(&number);
    match (waited, found) {
        (_, Some((_, Some(room)))) => Ok(Some(room)),
        (Err(_), _) if pool.runtime.is_lost(rank) => Ok(None),
        (waited, _) => waited.map(|_| None),
    }
}

impl Rooms {
    /// A rank wants a slot; false: more than any asks for. In handlers.
    pub fn want(&self, from: Rank, number: u64, class: Class) -> bool {
        let mut wanted = lock(&self.wanted);
        wanted.push_back((from, number, class));
        wanted.len() <= WAITING_MAX
    }

    /// Returns true if a rank waits for an answer.
    pub fn are_wanted(&self) -> bool {
        !lock(&self.wanted).is_empty()
    }

    /// A rank has answered; false: it was not asked. In handlers.
    pub fn has_answered(&self, from: Rank, number: u64, room: SlotAnswer) -> bool {
        match lock(&self.asked).get_mut(&number) {
            Some((rank, answer)) if *rank == from && answer.is_none() => *answer = Some(room),
            Some(_) => return false,
            // The requester has ended meanwhile.
            None => room.word.into_iter().for_each(|word| give_back(from, word)),
        }
        true
    }
}

impl Pool {
    /// Answers all requests for slots.
    pub fn give_room(&self) {
        loop {
            let Some((rank, number, class)) = lock(&self.rooms.wanted).pop_front() else { return };
            let room = room_for(class);
            let word = room.word.map_or(0, Word::bits);
            if travel::tell(self, rank, &TaskMessage::Room { number, word, free: room.free }, &[]).is_err() {
                // The requester is lost, and mostly the job with it.
                return;
            }
        }
    }
}
