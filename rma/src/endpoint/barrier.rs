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
use crate::conduit::smp::CARRIED_BYTES_MAX;
use crate::domain::Domain;
use crate::error::{Result, RmaError};
use crate::message::{Arrived, Payload, Source};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{Ordering, fence};
use vgas_shm::biased::{BiasedGuard, BiasedLock};

const ARRIVED: u8 = 6;
const CARRIED: u8 = 12;

/// In place of a round: a leader hands its domain what all have brought.
const HANDED: u32 = ROUNDS_MAX as u32;

/// Rounds of dissemination at most: leaders are counted by 32 bits.
const ROUNDS_MAX: usize = 32;

/// Looks at the words of other ranks before a waiting rank starts to serve its endpoint, too.
const LOOKS_BEFORE_POLLING: u32 = 256;

/// A rank's name at a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BarrierName {
    /// Matches every name.
    Anonymous,
    /// Matches the same name, and anonymous arrivals.
    Named(u32),
    /// Matches nothing: reports a mismatch to every rank.
    Mismatch,
    /// Matches the same number alone: every rank brings something ([`Endpoint::barrier_with`]), for the caller with this number, 0
    /// of programs.
    Carrying(u32),
}

/// Outcome of a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum BarrierOutcome {
    /// All arrivals matched.
    Matched,
    /// They did not; all ranks are told so. The barrier has happened nevertheless.
    Mismatch,
}

impl BarrierName {
    /// Returns an arrival as one word: epoch in bits 34.., kind in 32..34, name in 0..32.
    pub(crate) fn encode(self, epoch: u64) -> u64 {
        let (kind, value) = match self {
            Self::Anonymous => (0, 0),
            Self::Named(value) => (1, value),
            Self::Mismatch => (2, 0),
            Self::Carrying(caller) => (3, caller),
        };
        epoch << 34 | kind << 32 | u64::from(value)
    }

    /// Returns the epoch and the name of an arrival.
    pub(crate) fn decode(word: u64) -> (u64, Self) {
        let name = match word >> 32 & 3 {
            0 => Self::Anonymous,
            1 => Self::Named(word as u32),
            2 => Self::Mismatch,
            _ => Self::Carrying(word as u32),
        };
        (word >> 34, name)
    }

    /// Returns the name of two arrivals together; the same in any order, and if an arrival is counted twice.
    pub fn with(self, other: Self) -> Self {
        match (self, other) {
            (Self::Carrying(a), Self::Carrying(b)) if a == b => self,
            // Even with anonymous arrivals: a carrying rank waits for payloads that they do not bring.
            (Self::Carrying(_), _) | (_, Self::Carrying(_)) => Self::Mismatch,
            (name, Self::Anonymous) | (Self::Anonymous, name) => name,
            (Self::Named(a), Self::Named(b)) if a == b => self,
            _ => Self::Mismatch,
        }
    }
}

pub(super) struct Barrier {
    shared: SharedWords,
    /// Member indices of the ranks that meet through shared words, this one included; empty without a domain.
    group: Vec<usize>,
    /// The rank of each member of the domain, if it is one.
    member_ranks: Vec<Option<Rank>>,
    /// Positions of this rank and of its group's first in `group`; agents have none.
    my_index: Option<usize>,
    /// The ranks that speak for their domains; one if there is one domain.
    leaders: Vec<Rank>,
    /// Position of this rank among the leaders.
    my_lead: Option<usize>,
    state: BiasedLock<State>,
    /// Other leaders' words, by parity and round.
    heard: Mutex<[[u64; ROUNDS_MAX]; 2]>,
    /// Payloads of other leaders, or handed to this domain's, by parity and round.
    carried: Mutex<FxHashMap<(u32, u32), Arriving>>,
}

/// Bytes whose pieces have come, in order.
#[derive(Default)]
struct Arriving {
    bytes: Vec<u8>,
    total: usize,
}

#[derive(Default)]
struct State {
    /// Barriers notified.
    epoch: u64,
    /// The name given to `notify`, until the wait has ended.
    notified: Option<BarrierName>,
    /// Combined name of all arrivals at the last barrier, once it was waited for.
    passed: Option<BarrierName>,
    /// Leaders: the combined name so far, the round it has reached, and whether that round's message is out.
    agreed: Option<BarrierName>,
    round: usize,
    round_sent: bool,
    /// At a barrier with payloads: those known, by rank.
    brought: BTreeMap<u32, Vec<u8>>,
    /// Payload being sent, its target among several, and its progress.
    sending: Vec<u8>,
    sent: usize,
    receiver: usize,
}

pub(super) fn handlers() -> [(u8, Handler); 1] {
    [(ARRIVED, Box::new(on_arrived))]
}

pub(super) fn carrying_handlers() -> [(u8, Handler); 1] {
    [(CARRIED, Box::new(on_carried))]
}

fn on_carried(token: &Token<'_>, arguments: &[u32], payload: Arrived<'_>) {
    let (&[low, high, round, total], Arrived::Medium(piece)) = (arguments, payload) else {
        return token.refuse("a malformed piece of what a barrier carries");
    };
    let word = u64::from(low) | u64::from(high) << 32;
    let parity = (BarrierName::decode(word).0 & 1) as u32;
    let barrier = &token.endpoint().barrier;
    let layout = &token.endpoint().layout;
    let expected = match round {
        HANDED => barrier.group.first().and_then(|&first| barrier.rank_of_member(first)),
        round => barrier.sender_of(round),
    };
    let most = layout.ranks() as usize * (ENTRY_BYTES + CARRIED_BYTES_MAX);
    if expected.is_none() || expected != layout.rank_of_peer(token.from()) || total as usize > most {
        return token.refuse(format!("{total} bytes of round {round} of a barrier"));
    }
    let mut carried = lock(&barrier.carried);
    let arriving = carried.entry((parity, round)).or_default();
    if arriving.bytes.len() == arriving.total {
        // The first piece; what is here is left from a barrier that did not match.
        arriving.bytes.clear();
    }
    arriving.total = total as usize;
    if arriving.bytes.len() + piece.len() > arriving.total {
        drop(carried);
        return token.refuse("more than was announced of what a barrier carries");
    }
    arriving.bytes.extend_from_slice(&piece);
    let is_whole = arriving.bytes.len() == arriving.total;
    drop(carried);
    // The last piece is the arrival.
    if is_whole && round != HANDED {
        lock(&barrier.heard)[parity as usize][round as usize] = word;
    }
}

/// Bytes before a rank's payload, if those of several are sent: its number and length.
const ENTRY_BYTES: usize = 8;

pub(super) fn pack(brought: &BTreeMap<u32, Vec<u8>>) -> Vec<u8> {
    let mut packed = Vec::new();
    for (rank, bytes) in brought {
        packed.extend_from_slice(&rank.to_le_bytes());
        packed.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        packed.extend_from_slice(bytes);
    }
    packed
}

/// None: a peer has sent something else.
pub(super) fn unpack(mut packed: &[u8], ranks: u32, into: &mut BTreeMap<u32, Vec<u8>>) -> Option<()> {
    while !packed.is_empty() {
        let (rank, rest) = packed.split_first_chunk()?;
        let (length, rest) = rest.split_first_chunk()?;
        let (rank, length) = (u32::from_le_bytes(*rank), u32::from_le_bytes(*length) as usize);
        let (bytes, rest) = rest.split_at_checked(length)?;
        if rank >= ranks || length > CARRIED_BYTES_MAX {
            return None;
        }
        into.insert(rank, bytes.to_vec());
        packed = rest;
    }
    Some(())
}

fn on_arrived(token: &Token<'_>, arguments: &[u32], _: Arrived<'_>) {
    let &[low, high, round] = arguments else { return token.refuse("a malformed barrier message") };
    let barrier = &token.endpoint().barrier;
    let word = u64::from(low) | u64::from(high) << 32;
    let expected = barrier.sender_of(round);
    let from = token.endpoint().layout.rank_of_peer(token.from());
    if expected.is_none() || expected != from {
        return token.refuse(format!("a message of round {round} of a barrier"));
    }
    lock(&barrier.heard)[(BarrierName::decode(word).0 & 1) as usize][round as usize] = word;
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
            carried: Mutex::default(),
            member_ranks: domain
                .iter()
                .flat_map(|d| d.spec().members.iter())
                .map(|&peer| layout.rank_of_peer(peer))
                .collect(),
        })
    }

    fn rank_of_member(&self, member: usize) -> Option<Rank> {
        self.member_ranks.get(member).copied().flatten()
    }

    /// Returns the rank whose message of a round this rank waits for, if it leads.
    fn sender_of(&self, round: u32) -> Option<Rank> {
        self.my_lead.filter(|_| (round as usize) < ROUNDS_MAX).map(|me| {
            let count = self.leaders.len();
            self.leaders[(me + count - (1usize << round) % count) % count]
        })
    }

    /// Returns the payloads of the ranks of the group, all of which have arrived.
    fn group_brought(&self, epoch: u64) -> impl Iterator<Item = (u32, Vec<u8>)> + '_ {
        let of_member = move |&member: &usize| {
            Some((self.rank_of_member(member)?.0, self.shared.read_board(member, epoch)))
        };
        self.group.iter().filter_map(of_member)
    }

    /// Takes the complete payload of a round, received or handed to this domain.
    fn take_carried(&self, epoch: u64, round: u32) -> Option<Vec<u8>> {
        let mut carried = lock(&self.carried);
        let key = ((epoch & 1) as u32, round);
        let is_whole = carried.get(&key).is_some_and(|arriving| arriving.bytes.len() == arriving.total);
        if is_whole { carried.remove(&key).map(|arriving| arriving.bytes) } else { None }
    }

    /// Returns the combined name of all arrivals of the group, once all are there.
    #[inline]
    fn group_arrived(&self, epoch: u64) -> Option<BarrierName> {
        // If none has arrived nothing is known: a barrier that carries something does not go with anonymous
        // ones.
        let mut together = None;
        for &member in &self.group {
            let word = self.shared.member(member).arrived[(epoch & 1) as usize].load(Ordering::Acquire);
            let (there, name) = BarrierName::decode(word);
            if there != epoch {
                return None;
            }
            together = Some(together.map_or(name, |together: BarrierName| together.with(name)));
        }
        Some(together.unwrap_or(BarrierName::Anonymous))
    }
}

impl Endpoint {
    /// Arrives at the next barrier, without waiting. Every rank does it, in turn with a wait or successful try; one
    /// thread of a rank at a time.
    pub fn barrier_notify(&self, name: BarrierName) -> Result<()> {
        self.check_failure()?;
        self.check_all("at a barrier")?;
        if self.rank().is_none() {
            return Err(RmaError::Usage("barriers are for ranks".into()));
        }
        // Another thread of this rank that is at the barrier at this moment makes it one notified already.
        let state = self.barrier.state.try_lock().filter(|state| state.notified.is_none());
        let Some(mut state) = state else {
            return Err(RmaError::Usage("a barrier was notified and not waited for".into()));
        };
        if matches!(name, BarrierName::Carrying(_)) {
            return Err(RmaError::Usage("what a barrier carries is given to `barrier_with`".into()));
        }
        self.notify(&mut state, name, &[])
    }

    #[inline]
    fn notify(&self, state: &mut State, name: BarrierName, brought: &[u8]) -> Result<()> {
        let barrier = &self.barrier;
        let epoch = state.epoch + 1;
        *state = State { epoch, notified: Some(name), ..State::default() };
        match barrier.my_index {
            Some(index) => {
                if matches!(name, BarrierName::Carrying(_)) {
                    barrier.shared.write_board(index, epoch, brought);
                }
                let word = &barrier.shared.member(index).arrived[(epoch & 1) as usize];
                word.store(name.encode(epoch), Ordering::Release);
                // The last to arrive wakes the sleeping ranks. With three and more, two that arrive at the
                // same time must not both miss the other. With two, one that sleeps misses only this rank,
                // and has looked after it said that it would sleep: no fence is needed beyond the one in
                // ringing.
                let is_last = barrier.group.len() <= 2 || {
                    fence(Ordering::SeqCst);
                    barrier.group_arrived(epoch).is_some()
                };
                if is_last {
                    self.ring_group();
                }
            }
            None => {
                state.agreed = Some(name);
                if matches!(name, BarrierName::Carrying(_)) {
                    state.brought.insert(self.me.0, brought.to_vec());
                }
            }
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
            if matches!(state.agreed, Some(BarrierName::Carrying(_))) {
                state.brought.extend(barrier.group_brought(epoch));
            }
        }
        let Some(mut agreed) = state.agreed else { return Ok(None) };
        while 1usize << state.round < count {
            if !state.round_sent {
                let word = agreed.encode(epoch);
                let to = self.layout.peer_of_rank(barrier.leaders[(me + (1 << state.round)) % count]);
                let arguments = [word as u32, (word >> 32) as u32, state.round as u32];
                let sent = match agreed {
                    BarrierName::Carrying(_) => self.send_brought(state, to, state.round as u32)?,
                    _ => self.try_request(to, ARRIVED, &arguments, Payload::Short)?,
                };
                if sent == Sent::Busy {
                    return Ok(None);
                }
                state.round_sent = true;
            }
            let (there, name) = BarrierName::decode(lock(&barrier.heard)[(epoch & 1) as usize][state.round]);
            if there != epoch {
                return Ok(None);
            }
            agreed = agreed.with(name);
            state.agreed = Some(agreed);
            if matches!(name, BarrierName::Carrying(_)) {
                let from = barrier.sender_of(state.round as u32);
                let packed = barrier.take_carried(epoch, state.round as u32);
                if packed
                    .and_then(|packed| unpack(&packed, self.layout.ranks(), &mut state.brought))
                    .is_none()
                {
                    let what = "a barrier carries something that cannot be read".into();
                    return Err(RmaError::Protocol {
                        peer: from.map(|rank| self.layout.peer_of_rank(rank)),
                        what,
                    });
                }
            }
            (state.sending, state.sent) = (Vec::new(), 0);
            state.round += 1;
            state.round_sent = false;
        }
        if let Some(index) = barrier.my_index {
            // Those of the domain are handed what all have brought before they are released.
            while matches!(agreed, BarrierName::Carrying(_)) && state.receiver < barrier.group.len() {
                let receiver = barrier.rank_of_member(barrier.group[state.receiver]);
                let to = receiver.map(|rank| self.layout.peer_of_rank(rank)).filter(|to| *to != self.me);
                if let Some(to) = to
                    && self.send_brought(state, to, HANDED)? == Sent::Busy
                {
                    return Ok(None);
                }
                (state.sent, state.receiver) = (0, state.receiver + 1);
            }
            let word = &barrier.shared.member(index).released[(epoch & 1) as usize];
            word.store(agreed.encode(epoch), Ordering::Release);
            self.ring_group();
        }
        Ok(Some(agreed))
    }

    /// Sends the known payloads, in pieces, the last of which is the arrival.
    fn send_brought(&self, state: &mut State, to: Peer, round: u32) -> Result<Sent> {
        if state.sending.is_empty() {
            state.sending = pack(&state.brought);
        }
        let total = state.sending.len();
        let word = state.agreed.unwrap_or(BarrierName::Mismatch).encode(state.epoch);
        while state.sent < total {
            let end = total.min(state.sent + self.medium_bytes_max);
            let piece = Payload::Medium(Source::of(&state.sending[state.sent..end]));
            let arguments = [word as u32, (word >> 32) as u32, round, total as u32];
            if self.try_request(to, CARRIED, &arguments, piece)? == Sent::Busy {
                return Ok(Sent::Busy);
            }
            state.sent = end;
        }
        Ok(Sent::Accepted)
    }

    /// Returns the combined name once all ranks have arrived.
    #[inline]
    fn barrier_look(&self, state: &mut State) -> Result<Option<BarrierName>> {
        let barrier = &self.barrier;
        if barrier.leaders.len() == 1 {
            return Ok(barrier.group_arrived(state.epoch));
        }
        self.check_all("at a barrier")?;
        if barrier.my_lead.is_some() {
            return self.advance(state);
        }
        let Some(&leader) = barrier.group.first() else { return Ok(None) };
        let word = barrier.shared.member(leader).released[(state.epoch & 1) as usize].load(Ordering::Acquire);
        let (there, name) = BarrierName::decode(word);
        if there == state.epoch && matches!(name, BarrierName::Carrying(_)) && state.brought.is_empty() {
            let Some(packed) = barrier.take_carried(state.epoch, HANDED) else { return Ok(None) };
            if unpack(&packed, self.layout.ranks(), &mut state.brought).is_none() {
                let peer = barrier.rank_of_member(leader).map(|rank| self.layout.peer_of_rank(rank));
                let what = "a barrier carries something that cannot be read".into();
                return Err(RmaError::Protocol { peer, what });
            }
        }
        Ok((there == state.epoch).then_some(name))
    }

    /// A barrier to which every rank brings up to [`CARRIED_BYTES_MAX`] bytes, and from which all take what all have brought, by
    /// rank. All ranks call it, like any barrier; it costs little more.
    ///
    /// # Errors
    /// [`RmaError::Usage`] for more bytes, and if others are at a barrier of another kind.
    pub fn barrier_with(&self, brought: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.barrier_for(0, brought)
    }

    /// [`Endpoint::barrier_with`] for a caller of its own, such as a library: ranks at the barrier of another
    /// caller are refused, so that no library takes the payload of another.
    ///
    /// # Errors
    /// As [`Endpoint::barrier_with`].
    pub fn barrier_for(&self, caller: u32, brought: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.check_failure()?;
        self.check_all("at a barrier")?;
        if self.rank().is_none() {
            return Err(RmaError::Usage("barriers are for ranks".into()));
        }
        if brought.len() > CARRIED_BYTES_MAX {
            let what = format!(
                "{} bytes brought to a barrier, which carries {CARRIED_BYTES_MAX} of each rank",
                brought.len()
            );
            return Err(RmaError::Usage(what));
        }
        let state = self.barrier.state.try_lock().filter(|state| state.notified.is_none());
        let Some(mut state) = state else {
            return Err(RmaError::Usage("a barrier was notified and not waited for".into()));
        };
        let name = BarrierName::Carrying(caller);
        self.notify(&mut state, name, brought)?;
        if self.await_others(&mut state, name)? == BarrierOutcome::Mismatch {
            return Err(RmaError::Usage(
                "other ranks are at a barrier that carries nothing, or for another caller".into(),
            ));
        }
        let mut all = std::mem::take(&mut state.brought);
        if self.barrier.leaders.len() == 1 {
            all.extend(self.barrier.group_brought(state.epoch));
        }
        Ok((0..self.layout.ranks()).map(|rank| all.remove(&rank).unwrap_or_default()).collect())
    }

    /// Waits for the barrier that was notified. When it returns all ranks have notified it, and their earlier
    /// puts are visible here.
    ///
    /// `name` is the caller's name of the barrier: another one than that under which the ranks have met is a
    /// mismatch, of this rank alone; [`BarrierName::Anonymous`] goes with any.
    pub fn barrier_wait(&self, name: BarrierName) -> Result<BarrierOutcome> {
        self.check_all("at a barrier")?;
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
        self.check_all("at a barrier")?;
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
            BarrierName::Carrying(0),
            BarrierName::Carrying(u32::MAX),
        ] {
            for epoch in [1, 2, 1 << 29] {
                assert_eq!(BarrierName::decode(name.encode(epoch)), (epoch, name));
            }
        }
    }

    #[test]
    fn only_equal_or_anonymous_names_match() {
        use BarrierName::{Anonymous, Carrying, Mismatch, Named};
        assert_eq!(Named(3).with(Named(3)), Named(3));
        assert_eq!(Named(3).with(Anonymous), Named(3));
        assert_eq!(Anonymous.with(Anonymous), Anonymous);
        assert_eq!(Named(3).with(Named(4)), Mismatch);
        assert_eq!(Mismatch.with(Anonymous), Mismatch);
        assert_eq!(Named(3).with(Mismatch), Mismatch);
        assert_eq!(Carrying(3).with(Carrying(3)), Carrying(3));
        assert_eq!(Carrying(3).with(Carrying(0)), Mismatch);
        assert_eq!((Carrying(3).with(Anonymous), Named(3).with(Carrying(3))), (Mismatch, Mismatch));
    }
}
