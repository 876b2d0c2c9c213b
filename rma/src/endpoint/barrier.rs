//! The split-phase barrier of all ranks (GASNet extended API): notify, then wait or try; named or anonymous.
//!
//! Ranks of one domain meet through shared words: each writes its arrival (epoch, name) to a word of its own and reads
//! the others', which lie in the same line or few. A rank can be at most one barrier ahead of another, so two words by
//! parity of the epoch are enough.
//! With several domains the first rank of each leads: leaders agree by dissemination (in round k to the leader 2^k
//! further), and each writes the result to a word that its domain waits for.

use super::shared::SharedWords;
use super::wait::lock;
use super::{Endpoint, Handler, Token};
use crate::address::{Layout, NodeId, Peer, Rank};
use crate::conduit::Sent;
use crate::error::{Result, RmaError};
use crate::message::{Arrived, Payload};
use crate::shm::Domain;
use crate::shm::biased::{BiasedGuard, BiasedLock};
use std::sync::Mutex;
use std::sync::atomic::{Ordering, fence};

const ARRIVED: u8 = 6;

/// Rounds of dissemination at most: leaders are counted by 32 bits.
const ROUNDS_MAX: usize = 32;

/// Looks at the words of other ranks before a waiting rank starts to serve its endpoint, too.
const LOOKS_BEFORE_POLLING: u32 = 256;

/// What a rank says when it arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BarrierName {
    /// Matches every name.
    Anonymous,
    /// Matches the same name, and anonymous arrivals.
    Named(u32),
    /// Matches nothing: reports a mismatch to every rank.
    Mismatch,
}

/// How a barrier ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum BarrierOutcome {
    /// All arrivals matched.
    Matched,
    /// They did not; all ranks are told so. The barrier has happened nevertheless.
    Mismatch,
}

/// An arrival as one word: epoch in bits 34.., kind in 32..34, name in 0..32.
fn encode(epoch: u64, name: BarrierName) -> u64 {
    let (kind, value) = match name {
        BarrierName::Anonymous => (0, 0),
        BarrierName::Named(value) => (1, value),
        BarrierName::Mismatch => (2, 0),
    };
    epoch << 34 | kind << 32 | u64::from(value)
}

fn decode(word: u64) -> (u64, BarrierName) {
    let name = match word >> 32 & 3 {
        0 => BarrierName::Anonymous,
        1 => BarrierName::Named(word as u32),
        _ => BarrierName::Mismatch,
    };
    (word >> 34, name)
}

impl BarrierName {
    /// What two arrivals say together.
    fn with(self, other: BarrierName) -> BarrierName {
        match (self, other) {
            (name, BarrierName::Anonymous) | (BarrierName::Anonymous, name) => name,
            (BarrierName::Named(a), BarrierName::Named(b)) if a == b => self,
            _ => BarrierName::Mismatch,
        }
    }
}

pub(super) struct Barrier {
    shared: SharedWords,
    /// Member indices of the ranks that meet through shared words, this one included; empty without a domain.
    group: Vec<usize>,
    /// Positions of this rank and of its group's first in `group`; agents have none.
    my_index: Option<usize>,
    /// The ranks that speak for their domains; one if there is one domain.
    leaders: Vec<Rank>,
    /// Position of this rank among the leaders.
    my_lead: Option<usize>,
    state: BiasedLock<State>,
    /// What other leaders have said, by parity and round.
    heard: Mutex<[[u64; ROUNDS_MAX]; 2]>,
}

#[derive(Default)]
struct State {
    /// Barriers notified.
    epoch: u64,
    /// The name given to `notify`, until the wait has ended.
    notified: Option<BarrierName>,
    /// What all arrivals at the last barrier said together, once it was waited for.
    passed: Option<BarrierName>,
    /// Leaders: what is known so far, the round it has reached, and whether that round's message is out.
    agreed: Option<BarrierName>,
    round: usize,
    round_sent: bool,
}

pub(super) fn handlers() -> [(u8, Handler); 1] {
    [(ARRIVED, Box::new(on_arrived))]
}

fn on_arrived(token: &Token<'_>, arguments: &[u32], _: Arrived<'_>) {
    let &[low, high, round] = arguments else { return token.refuse("a malformed barrier message") };
    let barrier = &token.endpoint().barrier;
    let word = u64::from(low) | u64::from(high) << 32;
    let expected = barrier.my_lead.filter(|_| (round as usize) < ROUNDS_MAX).map(|me| {
        let count = barrier.leaders.len();
        barrier.leaders[(me + count - (1usize << round) % count) % count]
    });
    let from = token.endpoint().layout.rank_of_peer(token.from());
    if expected.is_none() || expected != from {
        return token.refuse(format!("a message of round {round} of a barrier"));
    }
    lock(&barrier.heard)[(decode(word).0 & 1) as usize][round as usize] = word;
}

impl Barrier {
    pub(super) fn new(
        layout: &Layout,
        me: Peer,
        domain: Option<&Domain>,
        shared: SharedWords,
    ) -> Result<Self> {
        let my_node = layout.node_of_peer(me);
        let members = || domain.iter().flat_map(|d| d.spec().members.iter().enumerate());
        let group: Vec<usize> = members()
            .filter(|&(_, &peer)| layout.rank_of_peer(peer).is_some())
            .map(|(index, _)| index)
            .collect();
        let ranks_here: Vec<u32> =
            members().filter_map(|(_, &peer)| layout.rank_of_peer(peer)).map(|rank| rank.0).collect();
        let leaders = if domain.is_none() {
            (0..layout.ranks()).map(Rank).collect()
        } else if ranks_here.len() == layout.ranks() as usize {
            vec![Rank(0)]
        } else if ranks_here.iter().copied().eq(layout.ranks_of(my_node)) {
            (0..layout.nodes()).map(|node| Rank(layout.ranks_of(NodeId(node)).start)).collect()
        } else {
            let what = "a shared-memory domain holds the ranks of one node or of the whole job".into();
            return Err(RmaError::Usage(what));
        };
        let my_rank = layout.rank_of_peer(me);
        Ok(Self {
            shared,
            group,
            my_index: my_rank.and(domain).and_then(|domain| domain.member_index(me)),
            my_lead: leaders.iter().position(|&leader| Some(leader) == my_rank),
            leaders,
            state: BiasedLock::new(State::default()),
            heard: Mutex::new([[0; ROUNDS_MAX]; 2]),
        })
    }

    /// What all arrivals of the group say together, once all are there.
    #[inline]
    fn group_arrived(&self, epoch: u64) -> Option<BarrierName> {
        let mut together = BarrierName::Anonymous;
        for &member in &self.group {
            let word = self.shared.member(member).arrived[(epoch & 1) as usize].load(Ordering::Acquire);
            let (there, name) = decode(word);
            if there != epoch {
                return None;
            }
            together = together.with(name);
        }
        Some(together)
    }
}

impl Endpoint {
    /// Arrives at the next barrier, without waiting. Every rank does it, in turn with a wait or successful try; one
    /// thread of a rank at a time.
    pub fn barrier_notify(&self, name: BarrierName) -> Result<()> {
        self.check_failure()?;
        if self.rank().is_none() {
            return Err(RmaError::Usage("barriers are for ranks".into()));
        }
        // Another thread of this rank that is at the barrier at this moment makes it one notified already.
        let state = self.barrier.state.try_lock().filter(|state| state.notified.is_none());
        let Some(mut state) = state else {
            return Err(RmaError::Usage("a barrier was notified and not waited for".into()));
        };
        self.notify(&mut state, name)
    }

    #[inline]
    fn notify(&self, state: &mut State, name: BarrierName) -> Result<()> {
        let barrier = &self.barrier;
        let epoch = state.epoch + 1;
        *state = State { epoch, notified: Some(name), ..State::default() };
        match barrier.my_index {
            Some(index) => {
                let word = &barrier.shared.member(index).arrived[(epoch & 1) as usize];
                word.store(encode(epoch, name), Ordering::Release);
                // The last to arrive wakes those who sleep. Of three and more, two that arrive at the same time must not
                // both miss the other. Of two, one that sleeps misses only this rank, and has looked after it said that
                // it would sleep: no fence is needed beyond the one in ringing.
                let is_last = barrier.group.len() <= 2 || {
                    fence(Ordering::SeqCst);
                    barrier.group_arrived(epoch).is_some()
                };
                if is_last {
                    self.ring_group();
                }
            }
            None => state.agreed = Some(name),
        }
        if barrier.leaders.len() > 1 && barrier.my_lead.is_some() {
            self.advance(state)?;
        }
        Ok(())
    }

    #[inline]
    fn ring_group(&self) {
        let (Some(smp), Some(me)) = (&self.smp, self.barrier.my_index) else { return };
        for &member in self.barrier.group.iter().filter(|&&member| member != me) {
            smp.ring_index(member);
        }
    }

    /// The part of a leader: combines what the group and other leaders have said. Some: all have arrived.
    fn advance(&self, state: &mut State) -> Result<Option<BarrierName>> {
        let barrier = &self.barrier;
        let (epoch, count) = (state.epoch, barrier.leaders.len());
        let Some(me) = barrier.my_lead else { return Ok(None) };
        if state.agreed.is_none() {
            state.agreed = barrier.group_arrived(epoch);
        }
        let Some(mut agreed) = state.agreed else { return Ok(None) };
        while 1usize << state.round < count {
            if !state.round_sent {
                let word = encode(epoch, agreed);
                let to = self.layout.peer_of_rank(barrier.leaders[(me + (1 << state.round)) % count]);
                let arguments = [word as u32, (word >> 32) as u32, state.round as u32];
                if self.try_request(to, ARRIVED, &arguments, Payload::Short)? == Sent::Busy {
                    return Ok(None);
                }
                state.round_sent = true;
            }
            let (there, name) = decode(lock(&barrier.heard)[(epoch & 1) as usize][state.round]);
            if there != epoch {
                return Ok(None);
            }
            agreed = agreed.with(name);
            state.agreed = Some(agreed);
            state.round += 1;
            state.round_sent = false;
        }
        if let Some(index) = barrier.my_index {
            let word = &barrier.shared.member(index).released[(epoch & 1) as usize];
            word.store(encode(epoch, agreed), Ordering::Release);
            self.ring_group();
        }
        Ok(Some(agreed))
    }

    /// Whether all ranks have arrived, and what they said.
    #[inline]
    fn barrier_look(&self, state: &mut State) -> Result<Option<BarrierName>> {
        let barrier = &self.barrier;
        if barrier.leaders.len() == 1 {
            return Ok(barrier.group_arrived(state.epoch));
        }
        if barrier.my_lead.is_some() {
            return self.advance(state);
        }
        let Some(&leader) = barrier.group.first() else { return Ok(None) };
        let word = barrier.shared.member(leader).released[(state.epoch & 1) as usize].load(Ordering::Acquire);
        let (there, name) = decode(word);
        Ok((there == state.epoch).then_some(name))
    }

    /// Waits for the barrier that was notified. When it returns all ranks have notified it, and what they put before is
    /// visible here.
    ///
    /// `name` is what the caller takes the barrier for: another name than that under which the ranks have met is a
    /// mismatch, of this rank alone; [`BarrierName::Anonymous`] goes with any.
    pub fn barrier_wait(&self, name: BarrierName) -> Result<BarrierOutcome> {
        let mut state = self.notified_barrier()?;
        self.await_others(&mut state, name)
    }

    /// The state of a barrier that was notified.
    fn notified_barrier(&self) -> Result<BiasedGuard<'_, State>> {
        self.barrier.state.try_lock().filter(|state| state.notified.is_some()).ok_or_else(|| {
            RmaError::Usage("a barrier is waited for after it was notified, by one thread".into())
        })
    }

    #[inline]
    fn await_others(&self, state: &mut State, name: BarrierName) -> Result<BarrierOutcome> {
        let mut together = None;
        for _ in 0..LOOKS_BEFORE_POLLING {
            together = self.barrier_look(state)?;
            if together.is_some() {
                break;
            }
        }
        if together.is_none() {
            let mut outcome = Ok(None);
            self.wait_until(None, || {
                outcome = self.barrier_look(state);
                !matches!(outcome, Ok(None))
            })?;
            together = outcome?;
        }
        Ok(finish(state, name, together.unwrap_or(BarrierName::Mismatch)))
    }

    /// [`Endpoint::barrier_wait`] without waiting: makes progress once; `None` while ranks are missing.
    pub fn barrier_try(&self, name: BarrierName) -> Result<Option<BarrierOutcome>> {
        self.poll()?;
        let mut state = self.notified_barrier()?;
        let together = self.barrier_look(&mut state)?;
        Ok(together.map(|together| finish(&mut state, name, together)))
    }

    /// The name under which the ranks met at the last barrier that this rank has waited for; none before the first.
    pub fn barrier_result(&self) -> Option<BarrierName> {
        self.barrier.state.lock().passed
    }

    /// An anonymous barrier, notify and wait in one.
    pub fn barrier(&self) -> Result<()> {
        self.barrier_notify(BarrierName::Anonymous)?;
        match self.barrier_wait(BarrierName::Anonymous)? {
            BarrierOutcome::Matched => Ok(()),
            BarrierOutcome::Mismatch => {
                Err(RmaError::Usage("other ranks are at a named barrier that does not match".into()))
            }
        }
    }
}

fn finish(state: &mut State, name: BarrierName, together: BarrierName) -> BarrierOutcome {
    state.notified = None;
    state.passed = Some(together);
    match name.with(together) {
        BarrierName::Mismatch => BarrierOutcome::Mismatch,
        _ => BarrierOutcome::Matched,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_keep_epoch_and_name() {
        for name in [
            BarrierName::Anonymous,
            BarrierName::Named(0),
            BarrierName::Named(u32::MAX),
            BarrierName::Mismatch,
        ] {
            for epoch in [1, 2, 1 << 29] {
                assert_eq!(decode(encode(epoch, name)), (epoch, name));
            }
        }
    }

    #[test]
    fn only_equal_or_anonymous_names_match() {
        use BarrierName::{Anonymous, Mismatch, Named};
        assert_eq!(Named(3).with(Named(3)), Named(3));
        assert_eq!(Named(3).with(Anonymous), Named(3));
        assert_eq!(Anonymous.with(Anonymous), Anonymous);
        assert_eq!(Named(3).with(Named(4)), Mismatch);
        assert_eq!(Mismatch.with(Anonymous), Mismatch);
        assert_eq!(Named(3).with(Mismatch), Mismatch);
    }
}
