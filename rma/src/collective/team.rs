//! Teams and their members.
//!
//! A team is identified by a number that its members agree on: that of all ranks is 0; a split gives each new
//! team the rank of its first member and a number of that rank's own; a team made of a list has a number made
//! of the list and of how often that list was used, since only its members call.

use super::Collectives;
use super::call::{Call, Kind};
use super::near::Near;
use super::operation::{Exchange, Operation};
use super::standing::Standing;
use super::started::Started;
use super::team_call::{Blocks, Pattern};
use crate::Rank;
use crate::endpoint::{BarrierName, lock};
use crate::error::{Result, RmaError};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The number of the team of all ranks.
const ALL: u64 = 0;

/// The number of the team of all ranks that the layers above have for their own collectives.
const INTERNAL: u64 = 1;

/// Marks the numbers of teams made of lists, which the numbers of splits do not reach.
const FROM_LIST: u64 = 1 << 63;

/// One team, as this rank sees it. Given up by being dropped, when its operations are done.
pub struct Team {
    pub(super) engine: Arc<Collectives>,
    pub(super) standing: Arc<Standing>,
    members: Arc<[Rank]>,
    /// This rank's position in `members`.
    me: u32,
    /// The collectives over shared memory, if the members share it.
    pub(super) near: Option<Arc<Near>>,
}

impl Collectives {
    /// The team of all ranks. Every call returns the same one, in parts that are used as one.
    ///
    /// # Errors
    /// None that a job can have.
    pub fn world(self: &Arc<Self>) -> Result<Arc<Team>> {
        let ranks = self.endpoint.layout().ranks();
        Team::new(self, ALL, (0..ranks).map(Rank).collect())
    }

    /// A team of all ranks beside [`Collectives::world`], for the layer above: its collectives have an order of their own, and stay of
    /// use where those of a program have spoilt its teams.
    ///
    /// # Errors
    /// None that a job can have.
    pub fn internal_world(self: &Arc<Self>) -> Result<Arc<Team>> {
        let ranks = self.endpoint.layout().ranks();
        Team::new(self, INTERNAL, (0..ranks).map(Rank).collect())
    }

    /// Makes a team of a list of ranks, this one among them. Collective over them, with the same list; does not wait.
    ///
    /// # Errors
    /// [`RmaError::Usage`] for a list without this rank, or with one that the job does not have.
    pub fn team_of(self: &Arc<Self>, members: Vec<Rank>) -> Result<Arc<Team>> {
        let ranks = self.endpoint.layout().ranks();
        if let Some(rank) = members.iter().find(|rank| rank.0 >= ranks) {
            return Err(RmaError::Usage(format!("a team with {rank} in a job of {ranks} ranks")));
        }
        let number = {
            let mut created = lock(&self.created);
            let count = created.entry(members.clone()).or_default();
            // The hasher's keys are the same in every process.
            let mut hasher = DefaultHasher::new();
            (&members, *count).hash(&mut hasher);
            *count += 1;
            hasher.finish() | FROM_LIST
        };
        Team::new(self, number, members)
    }
}

impl Team {
    fn new(engine: &Arc<Collectives>, number: u64, members: Vec<Rank>) -> Result<Arc<Self>> {
        let me = engine.rank();
        let Some(position) = members.iter().position(|&rank| rank == me) else {
            return Err(RmaError::Usage(format!("a team was made by {me}, which is not a member of it")));
        };
        let standing = engine.standing(number);
        let Some(members) = standing.set_members(members) else {
            let what = format!("a team with the number {number}, which another team has");
            return Err(RmaError::Protocol { peer: None, what });
        };
        let me = position as u32;
        let near = match number {
            ALL => engine.near_world.get_or_init(|| Near::new(engine, &standing, &members, me, 0)).clone(),
            _ => None,
        };
        Ok(Arc::new(Self { engine: engine.clone(), standing, members, me, near }))
    }

    /// The collectives that the team belongs to.
    pub fn collectives(&self) -> &Arc<Collectives> {
        &self.engine
    }

    /// Returns its number, which its members agree on.
    pub fn number(&self) -> u64 {
        self.standing.number()
    }

    /// Number of members.
    pub fn size(&self) -> u32 {
        self.members.len() as u32
    }

    /// This rank's position.
    pub fn me(&self) -> u32 {
        self.me
    }

    /// The ranks of the members, by position.
    pub fn members(&self) -> &[Rank] {
        &self.members
    }

    /// The rank at a position; none behind the last.
    pub fn rank_of(&self, member: u32) -> Option<Rank> {
        self.members.get(member as usize).copied()
    }

    /// The position of a rank; none if it is not a member.
    pub fn member_of(&self, rank: Rank) -> Option<u32> {
        self.members.iter().position(|&member| member == rank).map(|member| member as u32)
    }

    /// The next operation of a [`sequence`](super::sequence), which callers that take part on their own each count from 0.
    ///
    /// # Errors
    /// [`RmaError::Collective`] when the team is spoilt; [`RmaError::Usage`] in a handler.
    ///
    /// # Panics
    /// If there is no such sequence.
    pub fn next_operation(&self, sequence: u32, caller: u32) -> Result<Arc<Operation>> {
        self.check_may_begin()?;
        Ok(self.engine.next_operation(&self.standing, sequence, caller))
    }

    /// Begins an operation of this rank, as one caller.
    ///
    /// # Errors
    /// As [`Team::next_operation`].
    pub fn exchange(self: &Arc<Self>, sequence: u32, call: Call) -> Result<Exchange> {
        let operation = self.next_operation(sequence, 0)?;
        Ok(Exchange::new(self.clone(), operation, call))
    }

    /// Returns the board's collectives, if the members share memory and this thread may begin one.
    ///
    /// # Errors
    /// As [`Team::next_operation`], and [`RmaError::Usage`] in a function that combines.
    pub(super) fn near(&self) -> Result<Option<&Arc<Near>>> {
        let Some(near) = &self.near else { return Ok(None) };
        self.check_may_begin()?;
        near.check_not_combining()?;
        Ok(Some(near))
    }

    fn check_may_begin(&self) -> Result<()> {
        self.standing.check()?;
        // No message is sent to lost members.
        self.engine.endpoint.check_all(super::operation::WHERE)?;
        match self.engine.endpoint.in_handler() {
            true => Err(RmaError::Usage("a handler must not begin a collective".into())),
            false => Ok(()),
        }
    }

    /// Splits the team by colour: members are ordered by the position they ask for, and by their old one. Collective; returns when
    /// all members have said what they want.
    ///
    /// # Errors
    /// As [`Team::run`].
    pub fn split(self: &Arc<Self>, colour: u32, position: u32) -> Result<Arc<Team>> {
        let wish = self.wish(colour, position);
        let mut gathered = vec![0; Wish::BYTES * self.members.len()];
        let blocks = Blocks::Apart(&wish.wish.to_bytes(), &mut gathered);
        self.run(Pattern::AllGather, Call::of_all(Kind::Split), Wish::BYTES, blocks, None)?;
        wish.team(&gathered)
    }

    /// [`Team::split`] that proceeds by itself; its result makes the team.
    ///
    /// # Errors
    /// As [`Team::start`].
    pub fn start_split(self: &Arc<Self>, colour: u32, position: u32) -> Result<(Started, SplitWish)> {
        let (wish, call) = (self.wish(colour, position), Call::of_all(Kind::Split));
        let own = wish.wish.to_bytes();
        Ok((self.start_owned(Pattern::AllGather, call, Wish::BYTES, own, None)?, wish))
    }

    fn wish(self: &Arc<Self>, colour: u32, position: u32) -> SplitWish {
        // Drawn by all, used of the one that leads.
        let led = self.engine.led.fetch_add(1, Ordering::Relaxed);
        SplitWish { parent: self.clone(), wish: Wish { colour, position, led } }
    }

    /// Arrives at the next barrier of the team, without waiting. In turn with [`Team::barrier_try`] that yields a name.
    ///
    /// # Errors
    /// [`RmaError::Usage`] when the barrier before was not passed.
    pub fn barrier_notify(self: &Arc<Self>, name: BarrierName) -> Result<()> {
        self.engine.endpoint.check_all("at a barrier")?;
        self.standing.barrier.notify(self, name)
    }

    /// Returns the combined name of the notified barrier, once all members have come.
    ///
    /// # Errors
    /// [`RmaError::Usage`] when none was notified; while it is not passed, [`RmaError::Collective`] when the team is spoilt, and
    /// [`RmaError::PeerLost`] when a node is lost.
    pub fn barrier_try(&self) -> Result<Option<BarrierName>> {
        match self.standing.barrier.passed(&self.engine)? {
            // It does not come any more where the team is of no use.
            None => self.standing.check().map(|()| None),
            passed => Ok(passed),
        }
    }

    /// Returns the combined name of the last barrier that was passed here; none before the first, and while
    /// one is in flight.
    pub fn barrier_result(&self) -> Option<BarrierName> {
        self.standing.barrier.result()
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        // Messages still in flight to a spoilt team would make an operation of an unknown one.
        if self.number() != ALL && self.standing.spoilt().is_none() {
            lock(&self.engine.standings).remove(&self.number());
        }
    }
}

impl std::fmt::Debug for Team {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Team {:#x} of {:?}", self.number(), self.members)
    }
}

/// This member's arguments of a split.
pub struct SplitWish {
    parent: Arc<Team>,
    wish: Wish,
}

impl SplitWish {
    /// Makes the team of the members with this colour, from the requests of all.
    ///
    /// # Errors
    /// [`RmaError::Protocol`] when members disagree.
    pub fn team(&self, gathered: &[u8]) -> Result<Arc<Team>> {
        let Self { parent, wish } = self;
        let mut chosen: Vec<(u32, u32, u32)> = (0..parent.size())
            .zip(gathered.chunks_exact(Wish::BYTES).map(Wish::from_bytes))
            .filter(|(_, other)| other.colour == wish.colour)
            .map(|(member, other)| (other.position, member, other.led))
            .collect();
        chosen.sort_unstable();
        let members: Vec<Rank> =
            chosen.iter().map(|&(_, member, _)| parent.members[member as usize]).collect();
        let Some((&leader, &(.., led))) = members.first().zip(chosen.first()) else {
            return Err(RmaError::Protocol { peer: None, what: "a split without its own member".into() });
        };
        // Never 0: the high half is a rank plus one.
        let number = (u64::from(leader.0) + 1) << 32 | u64::from(led);
        Team::new(&parent.engine, number, members)
    }
}

/// A member's arguments of a split of its parent.
#[derive(Clone, Copy)]
struct Wish {
    colour: u32,
    position: u32,
    /// The low half of the number of a team that it leads.
    led: u32,
}

impl Wish {
    const BYTES: usize = 12;

    fn to_bytes(self) -> Vec<u8> {
        [self.colour, self.position, self.led].iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn from_bytes(bytes: &[u8]) -> Self {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        Self { colour: word(0), position: word(4), led: word(8) }
    }
}
