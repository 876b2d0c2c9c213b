//! Slots whose colours are used up: how they come to be used again.
//!
//! A slot that has had all of its colours begins with the first one again, under which some rank may still
//! have a copy of a former value. So its rank asks all others first, and each drops its copies from there and
//! confirms that, or says that it cannot ([`crate::colour`]). It asks about many slots by one message to each
//! rank: where ranks meet anyway ([`Objects::barrier`](super::Objects::barrier)), and otherwise when it
//! allocates, which may be within [`Objects::run`](super::Objects::run). The asked rank answers when it
//! allocates, and within a run also while it computes (`task/watch.rs`).
//!
//! One question of a rank is in flight at a time, and none while it is at a barrier, which asks about the
//! same slots; a question is over, its slots begin again, and the next is chosen, under one lock. So a slot
//! stays retired until its question is over, and each confirmation was given since it was asked. An answer to
//! a question that is over means nothing. A slot still in use is asked about again after a while, after all
//! others.
//!
//! In a heap with replicas, no questions are sent within a run: there, values passed on keep their place
//! until all ranks have met ([`super::replica`]).

#![forbid(unsafe_code)]

use super::error::ObjectError;
use super::{Heap, Messages, OWN, heap};
use crate::planted::{Fault, is_planted};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use vgas::{Arrived, Rank, Runtime, Token};

/// The handler's index among libraries' (CONTRIBUTING.md).
const HANDLER: u8 = 114;

/// Slots that a rank asks about at a time: a barrier carries 1024 bytes.
pub(super) const ASKED_MAX: usize = 100;

/// Delay before asking again about slots still in use.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Content of a message.
#[derive(Debug, PartialEq, Eq)]
enum RetireMessage {
    /// Asks for which of these slots of the sender's the receiver has copies.
    Ask { number: u32, addresses: Vec<u64> },
    /// The answer to the receiver's question of this number: a bit for each slot, set if the sender has none.
    Free { number: u32, bits: Vec<u8> },
}

impl RetireMessage {
    fn words(&self) -> [u32; 2] {
        match self {
            Self::Ask { number, .. } => [0, *number],
            Self::Free { number, .. } => [1, *number],
        }
    }

    fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Ask { addresses, .. } => {
                addresses.iter().flat_map(|address| address.to_le_bytes()).collect()
            }
            Self::Free { bits, .. } => bits.clone(),
        }
    }

    fn decode(words: &[u32], bytes: &[u8]) -> Option<Self> {
        match *words {
            [0, number] => {
                let (addresses, []) = bytes.as_chunks::<8>() else { return None };
                let addresses: Vec<u64> = addresses.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
                (1..=ASKED_MAX).contains(&addresses.len()).then_some(Self::Ask { number, addresses })
            }
            [1, number] => {
                let is_some = (1..=ASKED_MAX.div_ceil(8)).contains(&bytes.len());
                is_some.then(|| Self::Free { number, bits: bytes.to_vec() })
            }
            _ => None,
        }
    }
}

/// A bit for each.
pub(super) fn bits_of(all: &[bool]) -> Vec<u8> {
    let byte = |eight: &[bool]| eight.iter().rev().fold(0, |byte, bit| (byte << 1) | u8::from(*bit));
    all.chunks(8).map(byte).collect()
}

/// One of them; false if there is none.
pub(super) fn bit(bits: &[u8], at: usize) -> bool {
    bits.get(at / 8).is_some_and(|byte| (byte >> (at % 8)) & 1 == 1)
}

/// A question that is in flight.
#[derive(Debug)]
struct Question {
    addresses: Vec<u64>,
    /// For each slot, true if all answers so far confirm that it has no copies.
    is_free: Vec<bool>,
    /// Ranks that have not answered.
    missing: FxHashSet<Rank>,
}

/// This rank's questions to other ranks, and theirs to it.
#[derive(Debug, Default)]
pub(super) struct Questions {
    state: Mutex<State>,
    /// True if a question is to be answered.
    has_come: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    /// Number of the last question.
    number: u32,
    asked: Option<Question>,
    /// Slots that were asked about in vain, since then.
    refused: FxHashSet<u64>,
    refused_since: Option<Instant>,
    is_at_barrier: bool,
    /// Other ranks' questions, and their numbers: one question each.
    come: FxHashMap<Rank, (u32, Vec<u64>)>,
}

/// While there is one, nothing is asked.
pub(super) struct AtBarrier<'q>(&'q Questions);

impl Drop for AtBarrier<'_> {
    fn drop(&mut self) {
        self.0.state().is_at_barrier = false;
    }
}

impl Questions {
    fn state(&self) -> MutexGuard<'_, State> {
        // Changed in steps that leave it whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Voids the question in flight; no question is sent until the result is dropped.
    pub fn at_barrier(&self) -> AtBarrier<'_> {
        let mut state = self.state();
        (state.is_at_barrier, state.asked) = (true, None);
        AtBarrier(self)
    }

    /// Returns true if other ranks wait for an answer.
    pub fn have_come(&self) -> bool {
        self.has_come.load(Ordering::SeqCst)
    }

    /// In handlers.
    fn on_message(&self, from: Rank, said: RetireMessage) -> Result<(), &'static str> {
        let mut state = self.state();
        match said {
            RetireMessage::Ask { number, addresses } => {
                state.come.insert(from, (number, addresses));
                self.has_come.store(true, Ordering::SeqCst);
            }
            RetireMessage::Free { number, bits } if number == state.number => {
                let Some(question) = &mut state.asked else { return Ok(()) };
                if bits.len() != question.addresses.len().div_ceil(8) || !question.missing.remove(&from) {
                    return Err("it has copies from other slots than it was asked about");
                }
                for (at, is_free) in question.is_free.iter_mut().enumerate() {
                    *is_free &= bit(&bits, at);
                }
            }
            RetireMessage::Free { .. } => {}
        }
        Ok(())
    }

    /// Notes that copies from there are still in use.
    pub fn refuse(&self, addresses: impl Iterator<Item = u64>) {
        self.state().refused.extend(addresses);
    }

    /// Chooses the slots to ask about next, at most as many as one question holds: first those not yet asked
    /// about in vain.
    pub fn next_of(&self, retired: &[u64], now: Instant) -> Vec<u64> {
        let mut state = self.state();
        let mut next = state.next_of(retired, now);
        let refused = retired.iter().filter(|address| state.refused.contains(address)).copied();
        next.extend(refused.take(ASKED_MAX - next.len()));
        next
    }
}

impl State {
    /// Ends a question that all have answered: returns the slots without copies.
    fn end_answered(&mut self) -> Option<Vec<u64>> {
        let question = self.asked.take_if(|question| question.missing.is_empty())?;
        let all = question.addresses.into_iter().zip(question.is_free);
        let (free, used): (Vec<_>, Vec<_>) = all.partition(|(_, is_free)| *is_free);
        self.refused.extend(used.into_iter().map(|(address, _)| address));
        Some(free.into_iter().map(|(address, _)| address).collect())
    }

    /// Returns those of these slots that were not asked about in vain, at most as many as one question holds.
    fn next_of(&mut self, retired: &[u64], now: Instant) -> Vec<u64> {
        if self.refused.is_empty()
            || self.refused_since.is_none_or(|then| now.duration_since(then) > ASK_AGAIN)
        {
            self.refused.clear();
            self.refused_since = Some(now);
        }
        let new = retired.iter().filter(|address| !self.refused.contains(address));
        new.take(ASKED_MAX).copied().collect()
    }

    /// Begins a question about some of these to those ranks; none while one is in flight, or at a barrier.
    fn begin(
        &mut self,
        retired: &[u64],
        ranks: impl Iterator<Item = Rank>,
        now: Instant,
    ) -> Option<RetireMessage> {
        if self.asked.is_some() || self.is_at_barrier || retired.is_empty() {
            return None;
        }
        let addresses = self.next_of(retired, now);
        if addresses.is_empty() {
            return None;
        }
        self.number = self.number.wrapping_add(1);
        let is_free = vec![true; addresses.len()];
        self.asked = Some(Question { addresses: addresses.clone(), is_free, missing: ranks.collect() });
        Some(RetireMessage::Ask { number: self.number, addresses })
    }
}

/// Takes messages of retired slots in; before other ranks can send some.
pub(super) fn register(runtime: &'static Runtime) -> Result<(), ObjectError> {
    let take_in = move |token: &Token<'_>, words: &[u32], arrived: Arrived<'_>| {
        let bytes = arrived.medium_bytes();
        let from = runtime.layout().rank_of_peer(token.from());
        let (Some(said), Some(from)) = (RetireMessage::decode(words, bytes), from) else {
            return token.refuse(format!("words {words:?} mean nothing to retired slots"));
        };
        // Messages after the heap's end are gone with it.
        let Ok(heap) = heap() else { return };
        match heap.questions.on_message(from, said) {
            Ok(()) => (heap.hooks.serve_others)(),
            Err(why) => token.refuse(why),
        }
    };
    Ok(runtime.messages().register_library(HANDLER, take_in).map_err(vgas::Error::from)?)
}

impl Heap {
    /// This rank's slots that are retired.
    fn retired(&self) -> Vec<u64> {
        let slabs = self.slabs();
        slabs.retired().iter().map(|offset| self.address_of(*offset)).collect()
    }

    /// Those of them that are asked about at a barrier.
    pub(super) fn retired_to_ask(&self) -> Vec<u64> {
        self.questions.next_of(&self.retired(), Instant::now())
    }

    /// Answers other ranks' questions about their retired slots, and asks about this rank's.
    pub(super) fn tend_retired(&self) -> Result<(), ObjectError> {
        // Handlers must not wait, as for room in a message.
        if self.runtime.messages().in_handler() {
            return Ok(());
        }
        self.answer_questions()?;
        let (me, ranks) = (self.runtime.rank(), self.runtime.ranks());
        let others = || (0..ranks).map(Rank).filter(|rank| *rank != me);
        let question = {
            let mut state = self.questions.state();
            self.revive(&state.end_answered().unwrap_or_default())?;
            let retired = if self.has_replicas() { Vec::new() } else { self.retired() };
            state.begin(&retired, others(), Instant::now())
        };
        let Some(question) = question else { return Ok(()) };
        let (words, bytes) = (question.words(), question.bytes());
        let asked = others().try_for_each(|rank| Ok(self.runtime.send(rank, HANDLER, &words, &bytes)?));
        if asked.is_err() {
            // A rank that has not received it never answers.
            self.questions.state().asked = None;
        }
        asked
    }

    /// Answers other ranks' questions.
    pub(super) fn answer_questions(&self) -> Result<(), ObjectError> {
        if !self.questions.have_come() {
            return Ok(());
        }
        let come = {
            let mut state = self.questions.state();
            self.questions.has_come.store(false, Ordering::SeqCst);
            std::mem::take(&mut state.come)
        };
        let answer = |(rank, (number, addresses)): (Rank, (u32, Vec<u64>))| {
            let is_free = self.drop_copies_from(&addresses)?;
            let said = RetireMessage::Free { number, bits: bits_of(&is_free) };
            Ok(self.runtime.send(rank, HANDLER, &said.words(), &said.bytes())?)
        };
        // One that cannot be told does not delay the others.
        come.into_iter().map(answer).fold(Ok(()), Result::and)
    }

    /// Drops the unused copies from these slots of other ranks, and returns which of them have no copy left.
    pub(super) fn drop_copies_from(&self, addresses: &[u64]) -> Result<Vec<bool>, ObjectError> {
        if is_planted(Fault::ConfirmedWithCopies) {
            return Ok(vec![true; addresses.len()]);
        }
        // Copies whose links are dropped with others may become idle by that, and are asked about the next time.
        let (gone, is_free) = self.copies.drop_from(addresses);
        gone.into_iter().try_for_each(|copy| self.forget(copy))?;
        Ok(is_free)
    }

    /// Begins again the slots that all others have confirmed.
    pub(super) fn revive_answered(&self) -> Result<(), ObjectError> {
        let mut state = self.questions.state();
        self.revive(&state.end_answered().unwrap_or_default())
    }

    /// These slots of this rank's begin again.
    pub(super) fn revive(&self, addresses: &[u64]) -> Result<(), ObjectError> {
        let mut slabs = self.slabs();
        for offset in addresses.iter().filter_map(|address| OWN.offset_of(*address)) {
            slabs.confirmed(offset)?;
        }
        Ok(())
    }
}

/// Returns true if other ranks wait for an answer about their retired slots.
pub(crate) fn has_questions() -> bool {
    heap().is_ok_and(|heap| heap.questions.have_come())
}

/// Answers them. Not in handlers.
pub(crate) fn answer_questions() {
    let Ok(heap) = heap() else { return };
    // A rank that cannot be told is lost, and mostly the job with it.
    if let Err(why) = heap.answer_questions() {
        super::complain(&why.to_string());
    }
}

/// Decodes any bytes as a message, and checks that it round-trips.
#[cfg(any(test, fuzzing))]
pub(super) fn any_message(bytes: &[u8]) {
    let Some((&[what, number], bytes)) = bytes.split_first_chunk() else { return };
    let words = [u32::from(what), u32::from(number)];
    if let Some(said) = RetireMessage::decode(&words, bytes) {
        assert_eq!((said.words(), &said.bytes()[..]), (words, bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::LazyLock;

    const OTHERS: [Rank; 2] = [Rank(1), Rank(2)];

    /// All happens at one moment, however slow the machine is.
    static NOW: LazyLock<Instant> = LazyLock::new(Instant::now);

    fn begin(questions: &Questions, retired: &[u64]) -> Option<(u32, Vec<u64>)> {
        begin_at(questions, retired, *NOW)
    }

    fn begin_at(questions: &Questions, retired: &[u64], now: Instant) -> Option<(u32, Vec<u64>)> {
        match questions.state().begin(retired, OTHERS.into_iter(), now) {
            Some(RetireMessage::Ask { number, addresses }) => Some((number, addresses)),
            _ => None,
        }
    }

    fn ask(questions: &Questions, retired: &[u64]) -> u32 {
        let (number, addresses) = begin(questions, retired).expect("a question");
        assert_eq!(addresses, retired);
        number
    }

    fn answered(questions: &Questions) -> Option<Vec<u64>> {
        questions.state().end_answered()
    }

    fn free(number: u32, all: &[bool]) -> RetireMessage {
        RetireMessage::Free { number, bits: bits_of(all) }
    }

    /// Goal: a slot that all have confirmed is free, one that was refused is asked about after all others,
    /// and none is asked about twice at a time.
    #[test]
    fn slots_are_free_that_all_confirm() {
        let questions = Questions::default();
        let number = ask(&questions, &[16, 32, 48]);
        assert_eq!(begin(&questions, &[64]), None);
        questions.on_message(Rank(1), free(number, &[true, true, false])).unwrap();
        assert_eq!(answered(&questions), None);
        // Twice, too many, and from a rank that was not asked.
        assert!(questions.on_message(Rank(1), free(number, &[true; 3])).is_err());
        assert!(questions.on_message(Rank(2), free(number, &[true; 9])).is_err());
        assert!(questions.on_message(Rank(3), free(number, &[true; 3])).is_err());
        questions.on_message(Rank(2), free(number, &[true, false, true])).unwrap();
        assert_eq!(answered(&questions), Some(vec![16]));
        assert_eq!(answered(&questions), None);
        assert_eq!(begin(&questions, &[32, 48]), None, "both were refused just now");
        assert_eq!(questions.next_of(&[32, 64], *NOW), [64, 32], "where all meet, they come last");
        assert_eq!(begin(&questions, &[32, 48, 64]).map(|(_, asked)| asked), Some(vec![64]));
    }

    /// Goal: however many are in use, those behind them are asked about.
    #[test]
    fn what_is_in_use_is_in_nobodys_way() {
        let questions = Questions::default();
        let retired: Vec<u64> = (1..=250).map(|at| 16 * at).collect();
        let mut asked = FxHashSet::default();
        for round in 1..=3 {
            let (number, addresses) = begin(&questions, &retired).expect("a question");
            let bits = vec![false; addresses.len()];
            asked.extend(addresses);
            assert_eq!(asked.len(), (100 * round).min(250));
            OTHERS.into_iter().for_each(|rank| questions.on_message(rank, free(number, &bits)).unwrap());
            assert_eq!(answered(&questions), Some(Vec::new()));
        }
        assert_eq!(begin_at(&questions, &retired, *NOW + ASK_AGAIN), None);
        let again = begin_at(&questions, &retired, *NOW + 2 * ASK_AGAIN).expect("a question");
        assert_eq!(again.1, retired[..ASKED_MAX]);
    }

    /// Goal: a confirmation before a barrier means nothing after it.
    #[test]
    fn answers_to_what_is_over_mean_nothing() {
        let questions = Questions::default();
        let before = ask(&questions, &[16]);
        questions.on_message(Rank(1), free(before, &[true])).unwrap();
        {
            let _barrier = questions.at_barrier();
            assert_eq!(begin(&questions, &[16]), None);
        }
        assert_eq!(answered(&questions), None);
        questions.on_message(Rank(2), free(before, &[true])).unwrap();
        let after = ask(&questions, &[16]);
        assert_ne!(before, after);
        questions.on_message(Rank(1), free(after, &[true])).unwrap();
        questions.on_message(Rank(2), free(before, &[true])).unwrap();
        assert_eq!(answered(&questions), None, "one has not answered this");
        questions.on_message(Rank(2), free(after, &[true])).unwrap();
        assert_eq!(answered(&questions), Some(vec![16]));
    }

    #[test]
    fn what_others_ask_waits_once() {
        let questions = Questions::default();
        for number in 1..=3 {
            questions
                .on_message(Rank(1), RetireMessage::Ask { number, addresses: vec![u64::from(number)] })
                .unwrap();
        }
        assert!(questions.have_come());
        assert_eq!(questions.state().come.get(&Rank(1)), Some(&(3, vec![3])));
    }

    #[test]
    fn malformed_messages_mean_nothing() {
        let addresses: Vec<u64> = (1..=ASKED_MAX as u64 + 1).collect();
        let ask = |count: usize| RetireMessage::Ask { number: 7, addresses: addresses[..count].to_vec() };
        for (said, is_some) in [(ask(ASKED_MAX), true), (ask(ASKED_MAX + 1), false), (ask(0), false)] {
            assert_eq!(RetireMessage::decode(&said.words(), &said.bytes()) == Some(said), is_some);
        }
        assert_eq!(RetireMessage::decode(&[0, 7], &[1; 9]), None);
        assert_eq!(RetireMessage::decode(&[1, 7], &[]), None);
        assert_eq!(RetireMessage::decode(&[1, 7], &[0; 14]), None);
        assert_eq!(RetireMessage::decode(&[2, 7], &[0; 8]), None);
        assert_eq!(RetireMessage::decode(&[0], &[0; 8]), None);
    }
}
