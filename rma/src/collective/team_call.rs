//! One collective as a member calls it, and the only choice between its algorithms: over the board if the
//! members share memory, by messages otherwise.
//!
//! | a caller | gives | and the operation |
//! |---|---|---|
//! | [`Team::start`] | views of its memory | proceeds in polls and waits; reduction functions run where they may |
//! | [`Team::run`] | slices | has ended when the call returns; reduction functions run in the calling thread |
//! | [`Team::start_owned`] | vectors | proceeds also while the program calls nothing |

use super::algorithm::{self, Meeting, Part};
use super::arrival::Landing;
use super::call::{Call, Kind};
use super::departure::Text;
use super::operation::Exchange;
use super::started::{InFlight, Started};
use super::view::{BorrowedCombiner, Combiner, SharedCombiner, View};
use super::{Team, sequence};
use crate::error::{Result, RmaError};
use std::sync::{Arc, Mutex};
use vgas_shm::biased::this_thread;

/// The pattern in which blocks travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// No blocks.
    Barrier,
    /// The root's block for all.
    Broadcast {
        /// The root's position.
        root: u32,
    },
    /// A block of the root's for each.
    Scatter {
        /// The root's position.
        root: u32,
    },
    /// A block of each for the root.
    Gather {
        /// The root's position.
        root: u32,
    },
    /// A block of each for all.
    AllGather,
    /// A block of each for each.
    AllToAll,
    /// A block of each for the root, combined in the order of the members.
    Reduce {
        /// The root's position.
        root: u32,
    },
    /// A block of each for all, combined in the order of the members.
    AllReduce,
    /// A block of each for those behind it, combined in the order of the members.
    Scan {
        /// Without the receiver's own block; the first member takes nothing.
        is_exclusive: bool,
    },
}

impl Pattern {
    /// Returns the root's position, if there is a root.
    pub fn root(self) -> Option<u32> {
        match self {
            Self::Broadcast { root }
            | Self::Scatter { root }
            | Self::Gather { root }
            | Self::Reduce { root } => Some(root),
            _ => None,
        }
    }

    /// Returns the collective and its root as members tell each other.
    pub fn call(self) -> Call {
        let kind = match self {
            Self::Barrier => Kind::Barrier,
            Self::Broadcast { .. } => Kind::Broadcast,
            Self::Scatter { .. } => Kind::Scatter,
            Self::Gather { .. } => Kind::Gather,
            Self::AllGather => Kind::AllGather,
            Self::AllToAll => Kind::AllToAll,
            Self::Reduce { .. } => Kind::Reduce,
            Self::AllReduce => Kind::AllReduce,
            Self::Scan { is_exclusive: false } => Kind::Scan,
            Self::Scan { is_exclusive: true } => Kind::ExclusiveScan,
        };
        self.root().map_or(Call::of_all(kind), |root| Call::with_root(kind, root))
    }

    /// Returns the number of blocks that a member of a team gives, and the number that it takes.
    fn blocks(self, me: u32, size: u32) -> (usize, usize) {
        let all = size as usize;
        let at = |root: u32, blocks: usize| if root == me { blocks } else { 0 };
        match self {
            Self::Barrier => (0, 0),
            Self::Broadcast { root } => (at(root, 1), 1 - at(root, 1)),
            Self::Scatter { root } => (at(root, all), 1),
            Self::Gather { root } => (1, at(root, all)),
            Self::AllGather => (1, all),
            Self::AllToAll => (all, all),
            Self::Reduce { root } => (1, at(root, 1)),
            Self::AllReduce | Self::Scan { .. } => (1, 1),
        }
    }
}

/// One operation as a member calls it.
pub struct TeamCall {
    /// The pattern.
    pub pattern: Pattern,
    /// The collective and its root, as members tell each other.
    pub call: Call,
    /// Bytes of a block.
    pub bytes: usize,
    /// Nothing is read or written before all members have called.
    pub is_entered_together: bool,
    /// It is not done before all members have taken all.
    pub is_left_together: bool,
    /// The blocks that this member gives, if it does.
    pub from: Option<View>,
    /// The place of the blocks that this member takes, if it does.
    pub to: Option<View>,
    /// The function of a pattern that combines.
    pub combiner: Option<SharedCombiner>,
}

/// The caller of an operation.
pub(super) enum Caller {
    /// It answers for its views, and lets the operation proceed by polls.
    Polls,
    /// This thread waits for the operation, and alone runs its combiner.
    Waits(usize),
    /// The operation keeps its memory, and proceeds by itself.
    Owned(Arc<OwnedBlocks>),
}

/// Memory of an operation that was started with vectors: its source, and its destination.
pub(super) struct OwnedBlocks(Mutex<(Vec<u8>, Vec<u8>)>);

impl OwnedBlocks {
    /// Takes the result, once the operation is done: the received bytes, or a root's own.
    pub(super) fn take(&self) -> Vec<u8> {
        let mut blocks = crate::endpoint::lock(&self.0);
        let (from, to) = &mut *blocks;
        std::mem::take(if to.is_empty() { from } else { to })
    }
}

/// A caller's memory of a collective.
pub enum Blocks<'a> {
    /// Source and destination.
    Apart(&'a [u8], &'a mut [u8]),
    /// The result replaces the source.
    InPlace(&'a mut [u8]),
}

impl Team {
    /// Starts a collective; none if it is done at once. Members start those of a team in the same order. It proceeds whenever some
    /// thread of this rank polls or waits.
    ///
    /// # Errors
    /// [`RmaError::Collective`] when the team is spoilt; [`RmaError::PeerLost`] when a node is lost; [`RmaError::Usage`] in a handler
    /// or a function that combines.
    pub fn start(self: &Arc<Self>, call: TeamCall) -> Result<Option<InFlight>> {
        self.start_for(call, Caller::Polls)
    }

    fn start_for(self: &Arc<Self>, call: TeamCall, caller: Caller) -> Result<Option<InFlight>> {
        if let Some(near) = self.near()? {
            return Ok(near.start(call, caller).map(InFlight::Board));
        }
        let exchange = self.exchange(sequence::RANKS, call.call)?;
        let needs_caller = call.combiner.as_ref().is_some_and(|combiner| combiner.needs_caller());
        let owned = if let Caller::Owned(owned) = caller { Some(owned) } else { None };
        let run = exchange.clone();
        let proceed = async move { run_by_messages(&run, &call).await };
        exchange.begin_for(Box::pin(proceed), needs_caller, owned);
        Ok(Some(InFlight::Messages(exchange.operation().clone())))
    }

    /// Runs a collective to its end: when this returns, this member's results are there, and its own bytes
    /// have left. `combiner` runs in this thread only. Messages are delivered meanwhile. Not in handlers.
    ///
    /// # Errors
    /// As [`Team::start`]; the error with which the endpoint has failed; [`RmaError::Usage`] for memory that does not have the size of
    /// the blocks.
    pub fn run(
        self: &Arc<Self>,
        pattern: Pattern,
        call: Call,
        bytes: usize,
        blocks: Blocks<'_>,
        combiner: Option<&dyn Combiner>,
    ) -> Result<()> {
        let (gives, takes) = pattern.blocks(self.me(), self.size());
        let (from, to) = match blocks {
            Blocks::Apart(from, to) => (View::of_shared(from), View::of_own(to)),
            Blocks::InPlace(both) => {
                let both = View::of_own(both);
                (both, both)
            }
        };
        let fitting = |view: View, blocks: usize| match blocks {
            0 => Ok(None),
            _ if bytes.checked_mul(blocks) == Some(view.bytes()) => Ok(Some(view)),
            _ => Err(RmaError::Usage(format!("{} bytes for {blocks} blocks of {bytes}", view.bytes()))),
        };
        let call = TeamCall {
            pattern,
            call,
            bytes,
            is_entered_together: false,
            is_left_together: false,
            from: fitting(from, gives)?,
            to: fitting(to, takes)?,
            combiner: combiner.map(BorrowedCombiner::boxed),
        };
        match self.near()? {
            Some(near) => match near.start(call, Caller::Waits(this_thread())) {
                Some(operation) => operation.wait_to_the_end(),
                None => Ok(()),
            },
            None => {
                let exchange = self.exchange(sequence::RANKS, call.call)?;
                exchange.run(run_by_messages(&exchange, &call))
            }
        }
    }

    /// Starts a collective that owns its memory and proceeds by itself. `from` has the blocks that this member gives, and for a scan
    /// those that the first keeps; the result is the blocks that it takes, and the root's own of a broadcast.
    ///
    /// # Errors
    /// As [`Team::start`], and [`RmaError::Usage`] for memory that does not have the size of the blocks.
    pub fn start_owned(
        self: &Arc<Self>,
        pattern: Pattern,
        call: Call,
        bytes: usize,
        mut from: Vec<u8>,
        combiner: Option<SharedCombiner>,
    ) -> Result<Started> {
        let (gives, takes) = pattern.blocks(self.me(), self.size());
        let lengths = (bytes.checked_mul(gives), bytes.checked_mul(takes));
        let (Some(given), Some(taken)) = lengths else {
            return Err(RmaError::Usage(format!(
                "a collective over {} blocks of {bytes} bytes",
                self.size()
            )));
        };
        if given != from.len() {
            return Err(RmaError::Usage(format!("{} bytes for {gives} blocks of {bytes}", from.len())));
        }
        let mut to = if matches!(pattern, Pattern::Scan { .. }) { from.clone() } else { vec![0; taken] };
        let call = TeamCall {
            pattern,
            call,
            bytes,
            is_entered_together: false,
            is_left_together: false,
            from: (gives > 0).then(|| View::of_own(&mut from)),
            to: (takes > 0).then(|| View::of_own(&mut to)),
            combiner,
        };
        let owned = Arc::new(OwnedBlocks(Mutex::new((from, to))));
        let in_flight = self.start_for(call, Caller::Owned(owned.clone()))?;
        Ok(Started::new(self.engine.clone(), in_flight, owned))
    }

    /// Gives all members the strings of all, by position, whose lengths may differ.
    ///
    /// # Errors
    /// As [`Team::run`].
    pub fn all_gatherv(self: &Arc<Self>, own: &[u8]) -> Result<Vec<Vec<u8>>> {
        let call = Call::of_all(Kind::AllGatherV);
        if self.near()?.is_none() {
            let exchange = self.exchange(sequence::RANKS, call)?;
            let all = exchange.run(algorithm::all_gatherv(&exchange, own))?;
            return all.ok_or_else(|| RmaError::Protocol {
                peer: self.rank_of(0).map(|rank| self.engine.endpoint.layout().peer_of_rank(rank)),
                what: "the result of an all-gather does not hold one string a member".into(),
            });
        }
        let gather = |own: &[u8]| {
            let mut all = vec![0; own.len() * self.size() as usize];
            self.run(Pattern::AllGather, call, own.len(), Blocks::Apart(own, &mut all), None).map(|()| all)
        };
        let lengths = gather(&(own.len() as u64).to_le_bytes())?;
        let lengths: Vec<usize> =
            lengths.as_chunks().0.iter().map(|length| u64::from_le_bytes(*length) as usize).collect();
        let longest = lengths.iter().copied().max().unwrap_or(0);
        let mut padded = own.to_vec();
        padded.resize(longest, 0);
        let all = gather(&padded)?;
        let string = |(member, &length): (usize, &usize)| all[member * longest..][..length].to_vec();
        Ok(lengths.iter().enumerate().map(string).collect())
    }
}

/// Moves a collective's blocks as messages. Reductions travel up a tree of partial results.
async fn run_by_messages(exchange: &Exchange, call: &TeamCall) {
    let (me, bytes) = (exchange.team().me(), call.bytes);
    let block = |view: View, member: u32| view.part(member as usize * bytes, bytes);
    if call.is_entered_together {
        algorithm::meet(exchange, Meeting::Before).await;
    }
    let combine = |left: &[u8], right: &[u8]| {
        let mut result = vec![0; left.len()];
        if let Some(combiner) = &call.combiner {
            combiner.combine(View::of_shared(left), View::of_shared(right), View::of_own(&mut result));
        }
        result
    };
    match (call.pattern, call.from, call.to) {
        (Pattern::Barrier, ..) => algorithm::meet(exchange, Meeting::Before).await,
        (Pattern::Broadcast { root }, Some(from), to) if root == me => {
            if let Some(to) = to {
                to.copy_from(from);
            }
            let part = Part::Give(Text::View(to.unwrap_or(from)));
            algorithm::broadcast(exchange, root, part).await;
        }
        (Pattern::Broadcast { root }, _, Some(to)) => {
            algorithm::broadcast(exchange, root, Part::Take(Landing::View(to), bytes)).await;
        }
        (Pattern::Scatter { root }, Some(from), Some(to)) if root == me => {
            give_blocks(exchange, from, to == block(from, me) || !to.overlaps(from), bytes);
            to.copy_from(block(from, me));
        }
        (Pattern::Scatter { root }, _, Some(to)) => algorithm::take(exchange, root, to).await,
        (Pattern::Gather { root }, Some(from), Some(to)) if root == me => {
            block(to, me).copy_from(from);
            algorithm::collect(exchange, |member| block(to, member)).await;
        }
        (Pattern::Gather { root }, Some(from), _) => algorithm::give(exchange, root, Text::View(from)),
        (Pattern::AllGather, Some(from), Some(to)) => {
            // Bytes written here while a block has not left must not be part of it.
            let is_safe = from == block(to, me) || !from.overlaps(to);
            let text = if is_safe { Text::View(from) } else { from.read().into() };
            algorithm::give_all(exchange, |_| text.clone());
            block(to, me).copy_from(from);
            algorithm::collect(exchange, |member| block(to, member)).await;
        }
        (Pattern::AllToAll, Some(from), Some(to)) => {
            let own = block(from, me).read();
            give_blocks(exchange, from, !from.overlaps(to), bytes);
            block(to, me).write(&own);
            algorithm::collect(exchange, |member| block(to, member)).await;
        }
        (Pattern::Reduce { root }, Some(from), to) => {
            let result = algorithm::reduce(exchange, root, from.read(), combine).await;
            if let (Some(result), Some(to)) = (result, to) {
                to.write(&result);
            }
        }
        (Pattern::AllReduce, Some(from), Some(to)) => {
            let part = match algorithm::reduce(exchange, 0, from.read(), combine).await {
                Some(result) => {
                    to.write(&result);
                    Part::Give(Text::View(to))
                }
                None => Part::Take(Landing::View(to), bytes),
            };
            algorithm::broadcast(exchange, 0, part).await;
        }
        (Pattern::Scan { is_exclusive }, Some(from), Some(to)) => {
            let mine = from.read();
            let before = algorithm::prefix(exchange, mine.clone(), combine).await;
            match before {
                Some(before) if is_exclusive => to.write(&before),
                Some(before) => to.write(&combine(&before, &mine)),
                None if is_exclusive => {}
                None => to.write(&mine),
            }
        }
        // A caller that gives or takes nothing of what its pattern has.
        _ => {}
    }
    if call.is_left_together {
        algorithm::meet(exchange, Meeting::After).await;
    }
}

/// Gives each other member its block: from its place, if nothing is written there meanwhile.
fn give_blocks(exchange: &Exchange, from: View, is_safe: bool, bytes: usize) {
    algorithm::give_all(exchange, |member| {
        let block = from.part(member as usize * bytes, bytes);
        if is_safe { Text::View(block) } else { block.read().into() }
    });
}
