//! Collectives of a team whose members share memory: each gives what it has on its [`Board`], and takes what others give there.
//!
//! An operation is a small machine that goes as far as the board allows: it enters, posts, takes, and waits for those who take.
//! Long blocks go in pieces, each with a number and a cell of its own. Short bytes are copied to the board, so that who gives need
//! not wait; long ones in a segment are copied once, by who takes them, and who gives waits for that.
//!
//! Every look at the operations in flight is bounded, however many they are: the oldest one, the one that is waited for, and one of the
//! others in turn; all of them only before the thread goes to sleep.

use super::board::{ARENA_BYTES, Board, CELLS, Header, INLINE_BYTES, Location};
use super::call::Call;
use super::standing::Standing;
use super::view::View;
use super::{Collectives, Team, operation};
use crate::Rank;
use crate::endpoint::Endpoint;
use crate::error::{Result, RmaError};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use vgas_shm::biased::BiasedLock;

/// Bytes that one member gives in one piece of an operation.
const PIECE_BYTES_MAX: usize = 64 << 10;

/// Longer pieces are taken from the segment that they are in, shorter ones are copied: then nobody waits for who takes them.
const COPIED_MAX: usize = 8 << 10;

/// Operations, and bytes given in them, after which a member tells that it has finished them.
const TOLD_OPERATIONS: u64 = CELLS / 8;
const TOLD_BYTES: usize = ARENA_BYTES / 8;

/// Looks at the board before a waiting thread starts to serve its endpoint, too.
const LOOKS_BEFORE_POLLING: u32 = 64;

/// Combines elements: of the first two arguments into the third, which may be the first.
pub trait Combiner: Send {
    /// Combines as many elements as the views hold.
    fn combine(&self, left: View, right: View, result: View);

    /// Bytes of an element, by which pieces are cut.
    fn element_bytes(&self) -> usize;

    /// Whether it must run in a thread of the program that has called the library.
    fn needs_caller(&self) -> bool;
}

/// The pattern of an operation.
pub enum Pattern {
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
    GatherAll,
    /// A block of each for each.
    Exchange,
    /// A block of each for the root, combined in the order of the members.
    Reduce {
        /// The root's position.
        root: u32,
        /// The function.
        combiner: Box<dyn Combiner>,
    },
}

/// One operation as a member calls it.
pub struct NearCall {
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
}

const IN_FLIGHT: u8 = 0;
const DONE: u8 = 1;
const GIVEN_UP: u8 = 2;

/// An operation that was not done when it was started.
pub struct NearOperation {
    near: Arc<Near>,
    number: u64,
    state: AtomicU8,
}

/// What an operation waits for.
struct Pending {
    operation: Arc<NearOperation>,
    /// None when it is done, until those before it are.
    machine: Option<Box<Machine>>,
}

/// The collectives of one team on this rank, of members that share memory.
pub(super) struct Near {
    /// Weak, because the engine has this.
    engine: Weak<Collectives>,
    endpoint: Arc<Endpoint>,
    /// Operations in flight, of all teams of the engine.
    in_flight: Arc<AtomicUsize>,
    standing: Arc<Standing>,
    board: Board,
    ranks: Arc<[Rank]>,
    me: u32,
    size: u32,
    state: BiasedLock<State>,
}

#[derive(Default)]
struct State {
    /// Pieces of operations begun.
    next: u64,
    pending: VecDeque<Pending>,
    /// The next of the pending ones to look at in turn.
    turn: usize,
    /// The least that others have said to have finished, when it was last looked at.
    others_finished: u64,
    /// What this member has said to have finished.
    told: u64,
    /// Bytes given by some member in operations finished since.
    untold_bytes: usize,
    /// The next byte of the arena, and what is in use: the number of the piece, and the end of its bytes.
    arena_head: u64,
    arena_used: VecDeque<(u64, u64)>,
    arena_tail: u64,
    /// Operations with bytes to copy to the arena, by their first pieces. They do so in order: bytes of a later one would wait for an
    /// earlier one to be finished, which would wait for their room.
    to_copy: VecDeque<u64>,
}

/// One operation on its way.
struct Machine {
    call: NearCall,
    first: u64,
    pieces: u64,
    /// Bytes of a block in each piece but the last.
    piece_bytes: usize,
    /// The offset of `from` in this rank's segment.
    segment: Option<u64>,
    /// A copy of `from`, where what is taken would overwrite it.
    own: Option<Vec<u8>>,
    must_copy: bool,
    has_entered: bool,
    has_prepared: bool,
    posted: u64,
    taken: u64,
    /// The next member to take the current piece from.
    member: u32,
    /// What the first member gives of the current piece, until the second does.
    left: Option<View>,
    /// What was combined so far of the current piece, if it cannot be where the result goes.
    sum: Vec<u8>,
    /// Some piece is taken from this member's segment.
    is_lent: bool,
    /// Some piece was taken from another member's segment.
    has_borrowed: bool,
    has_told_taken: bool,
    /// Members that have taken all, counted from the next.
    acknowledged: u32,
}

impl Near {
    pub(super) fn new(
        engine: &Arc<Collectives>,
        standing: &Arc<Standing>,
        ranks: &Arc<[Rank]>,
        me: u32,
        board: usize,
    ) -> Option<Arc<Self>> {
        let endpoint = engine.endpoint().clone();
        let peers: Vec<_> = ranks.iter().map(|&rank| endpoint.layout().peer_of_rank(rank)).collect();
        let board = Board::new(endpoint.domain()?, board, &peers)?;
        Some(Arc::new(Self {
            engine: Arc::downgrade(engine),
            endpoint,
            in_flight: engine.near_in_flight.clone(),
            standing: standing.clone(),
            board,
            ranks: ranks.clone(),
            me,
            size: ranks.len() as u32,
            state: BiasedLock::new(State::default()),
        }))
    }

    fn others(&self) -> impl Iterator<Item = u32> + use<> {
        let (me, size) = (self.me, self.size);
        (1..size).map(move |step| if me + step < size { me + step } else { me + step - size })
    }

    #[inline]
    fn ring(&self, member: u32) {
        self.endpoint.ring_member(self.board.members[member as usize]);
    }

    fn ring_others(&self) {
        self.others().for_each(|member| self.ring(member));
    }

    /// Starts an operation; none if it is done at once.
    fn start(self: &Arc<Self>, call: NearCall) -> Option<Arc<NearOperation>> {
        let mut machine = Machine::new(self, call);
        let mut state = self.state.lock();
        machine.first = state.next;
        state.next += machine.pieces;
        if machine.copies(self) {
            state.to_copy.push_back(machine.first);
        }
        if machine.call.is_entered_together {
            self.board.arrival(self.me).store(machine.first + 1, Ordering::Release);
            self.ring_others();
        }
        if machine.go_on(self, &mut state) {
            if state.pending.is_empty() {
                self.tell_finished(&mut state, false);
                return None;
            }
            // It is finished when those before it are.
            let operation = self.operation(machine.first, DONE);
            state.pending.push_back(Pending { operation, machine: None });
            return None;
        }
        let operation = self.operation(machine.first, IN_FLIGHT);
        state.pending.push_back(Pending { operation: operation.clone(), machine: Some(Box::new(machine)) });
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        Some(operation)
    }

    fn operation(self: &Arc<Self>, number: u64, state: u8) -> Arc<NearOperation> {
        Arc::new(NearOperation { near: self.clone(), number, state: AtomicU8::new(state) })
    }

    /// Tells others how much this member has finished, if that is worth it, or `always`.
    #[inline]
    fn tell_finished(&self, state: &mut State, always: bool) {
        let finished = state.pending.front().map_or(state.next, |front| {
            // Of a long one, pieces are finished one by one.
            front.operation.number + front.machine.as_ref().map_or(0, |machine| machine.taken)
        });
        let news = finished.saturating_sub(state.told);
        if news >= TOLD_OPERATIONS || (news > 0 && (always || state.untold_bytes >= TOLD_BYTES)) {
            state.told = finished;
            state.untold_bytes = 0;
            self.board.finished(self.me).store(finished, Ordering::Release);
            self.ring_others();
        }
    }

    /// Whether all others have finished the operations below a number.
    #[inline]
    fn have_finished(&self, state: &mut State, number: u64) -> bool {
        if state.others_finished >= number {
            return true;
        }
        let finished = |member| self.board.finished(member).load(Ordering::Acquire);
        state.others_finished = self.others().map(finished).min().unwrap_or(u64::MAX);
        state.others_finished >= number
    }

    /// Reserves bytes of the arena for a piece; none while there is no room.
    fn reserve(&self, state: &mut State, number: u64, bytes: usize) -> Option<usize> {
        let bytes = bytes.next_multiple_of(64) as u64;
        loop {
            let rest = ARENA_BYTES as u64 - state.arena_head % ARENA_BYTES as u64;
            let start = if bytes <= rest { state.arena_head } else { state.arena_head + rest };
            if start + bytes - state.arena_tail <= ARENA_BYTES as u64 {
                state.arena_head = start + bytes;
                state.arena_used.push_back((number, state.arena_head));
                return Some((start % ARENA_BYTES as u64) as usize);
            }
            let &(oldest, end) = state.arena_used.front()?;
            if !self.have_finished(state, oldest + 1) {
                return None;
            }
            state.arena_used.pop_front();
            state.arena_tail = end;
            if state.arena_used.is_empty() {
                state.arena_tail = state.arena_head;
            }
        }
    }

    /// Goes on with the operations in flight: the oldest, one in turn, and `wanted`.
    fn look(&self, wanted: Option<&NearOperation>, may_call: bool) {
        let mut state = self.state.lock();
        let state = &mut *state;
        self.look_at_oldest(state, may_call);
        if let Some(wanted) = wanted.filter(|wanted| !wanted.is_done()) {
            let at = state.pending.partition_point(|pending| pending.operation.number < wanted.number);
            self.look_at(state, at, may_call);
        }
        if state.pending.len() > 1 {
            if self.endpoint.is_about_to_sleep() {
                (0..state.pending.len()).for_each(|at| self.look_at(state, at, may_call));
            } else {
                state.turn = if state.turn + 1 < state.pending.len() { state.turn + 1 } else { 0 };
                self.look_at(state, state.turn, may_call);
            }
        }
    }

    #[inline]
    fn look_at_oldest(&self, state: &mut State, may_call: bool) {
        while !state.pending.is_empty() {
            self.look_at(state, 0, may_call);
            if state.pending[0].machine.is_some() {
                break;
            }
            state.pending.pop_front();
        }
        self.tell_finished(state, false);
    }

    #[inline]
    fn look_at(&self, state: &mut State, at: usize, may_call: bool) {
        let Some(mut machine) = state.pending.get_mut(at).and_then(|pending| pending.machine.take()) else {
            return;
        };
        let is_done = (may_call || !machine.needs_caller()) && machine.go_on(self, state);
        if is_done {
            self.end(&state.pending[at].operation, DONE);
        } else {
            state.pending[at].machine = Some(machine);
        }
    }

    fn end(&self, operation: &NearOperation, how: u8) {
        operation.state.store(how, Ordering::Release);
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
        self.endpoint.notify_local();
    }

    /// Gives up what is in flight, because the team is spoilt or a node is lost: no view is used any more.
    fn give_up(&self) {
        let mut state = self.state.lock();
        state.to_copy.clear();
        for pending in std::mem::take(&mut state.pending) {
            if pending.machine.is_some() {
                self.end(&pending.operation, GIVEN_UP);
            }
        }
    }

    /// Goes on with what is in flight, from a thread that polls or waits for something else.
    pub(super) fn progress(&self, may_call: bool) {
        if self.standing.spoilt().is_some() {
            return self.give_up();
        }
        self.look(None, may_call);
    }

    fn spoil(&self, member: u32, what: String) {
        let peer = self.endpoint.layout().peer_of_rank(self.ranks[member as usize]);
        if let Some(engine) = self.engine.upgrade() {
            engine.spoil(&self.standing, peer, what);
        }
    }

    fn describe(&self, member: u32) -> String {
        let layout = self.endpoint.layout();
        layout.describe(layout.peer_of_rank(self.ranks[member as usize]))
    }
}

impl NearOperation {
    /// Whether it is done here, well or not: no view that it was given is used any more.
    #[inline]
    pub fn is_done(&self) -> bool {
        self.state.load(Ordering::Acquire) != IN_FLIGHT
    }

    /// How it has ended; none while it has not.
    ///
    /// # Errors
    /// [`RmaError::Collective`] when its team is spoilt, [`RmaError::PeerLost`] when a node is lost.
    pub fn outcome(&self) -> Option<Result<()>> {
        match self.state.load(Ordering::Acquire) {
            IN_FLIGHT => None,
            DONE => Some(Ok(())),
            _ => Some(self.near.standing.check().and_then(|()| {
                self.near.endpoint.check_all(operation::WHERE)?;
                Err(RmaError::Usage("a collective was given up".into()))
            })),
        }
    }

    /// Waits until it is done; messages are delivered meanwhile. Not in handlers. When this returns, with an error too, no view
    /// that the operation was given is used any more.
    ///
    /// # Errors
    /// As [`NearOperation::outcome`], and the error with which the endpoint has failed.
    pub fn wait(&self) -> Result<()> {
        let near = &self.near;
        for _ in 0..LOOKS_BEFORE_POLLING {
            near.look(Some(self), true);
            if self.is_done() {
                return self.outcome().unwrap_or(Ok(()));
            }
        }
        {
            let mut state = near.state.lock();
            near.tell_finished(&mut state, true);
        }
        let endpoint = &near.endpoint;
        let waited = endpoint.wait_until(None, || {
            near.look(Some(self), true);
            self.is_done()
                || near.standing.spoilt().is_some()
                || endpoint.check_all(operation::WHERE).is_err()
        });
        if !self.is_done() {
            near.give_up();
        }
        waited?;
        let outcome = self.outcome().unwrap_or(Ok(()));
        if outcome.is_err() {
            // This rank may never wait again where others hear why.
            let engine = near.engine.upgrade();
            endpoint.wait_until(None, || engine.as_ref().is_none_or(|engine| engine.tell()))?;
        }
        outcome
    }
}

impl Machine {
    fn new(near: &Near, call: NearCall) -> Self {
        let blocks = match call.pattern {
            Pattern::Scatter { .. } | Pattern::Exchange => near.size as usize,
            _ => 1,
        };
        let element = match &call.pattern {
            Pattern::Reduce { combiner, .. } => combiner.element_bytes().max(1),
            _ => 64,
        };
        let most = (PIECE_BYTES_MAX / blocks / element * element).max(element);
        let piece_bytes = call.bytes.clamp(1, most);
        let must_copy = match (call.from, call.to, &call.pattern) {
            (Some(from), Some(to), Pattern::GatherAll | Pattern::Gather { .. }) => {
                let own = to.part(near.me as usize * call.bytes, call.bytes);
                from != own && from.overlaps(to)
            }
            (Some(from), Some(to), Pattern::Scatter { .. }) => {
                let own = from.part(near.me as usize * call.bytes, call.bytes);
                to != own && from.overlaps(to)
            }
            (Some(from), Some(to), Pattern::Exchange | Pattern::Reduce { .. }) => from.overlaps(to),
            (Some(from), Some(to), Pattern::Broadcast { .. }) => from != to && from.overlaps(to),
            _ => false,
        };
        let gives_long = blocks * piece_bytes > COPIED_MAX;
        let segment = call
            .from
            .filter(|_| gives_long && !must_copy)
            .and_then(|from| near.endpoint.offset_in_segment(from.address(), from.bytes()));
        Self {
            pieces: call.bytes.div_ceil(piece_bytes).max(1) as u64,
            piece_bytes,
            segment,
            own: None,
            must_copy,
            has_entered: !call.is_entered_together,
            has_prepared: false,
            posted: 0,
            taken: 0,
            member: 0,
            left: None,
            sum: Vec::new(),
            is_lent: false,
            has_borrowed: false,
            has_told_taken: false,
            acknowledged: 0,
            first: 0,
            call,
        }
    }

    fn needs_caller(&self) -> bool {
        match &self.call.pattern {
            Pattern::Reduce { combiner, .. } => combiner.needs_caller(),
            _ => false,
        }
    }

    /// Blocks that a member gives at once.
    #[inline]
    fn blocks(&self, near: &Near) -> usize {
        match self.call.pattern {
            Pattern::Scatter { .. } | Pattern::Exchange => near.size as usize,
            _ => 1,
        }
    }

    /// Whether this member copies bytes to its arena.
    #[inline]
    fn copies(&self, near: &Near) -> bool {
        self.blocks(near) * self.piece_bytes.min(self.call.bytes) > INLINE_BYTES
            && self.segment.is_none()
            && self.gives(near)
    }

    /// The range of a block that a piece is about.
    #[inline]
    fn range(&self, piece: u64) -> (usize, usize) {
        let offset = piece as usize * self.piece_bytes;
        (offset, self.piece_bytes.min(self.call.bytes - offset))
    }

    fn gives(&self, near: &Near) -> bool {
        match self.call.pattern {
            Pattern::Broadcast { root } | Pattern::Scatter { root } => root == near.me,
            Pattern::Gather { root } | Pattern::Reduce { root, .. } => root != near.me,
            Pattern::GatherAll | Pattern::Exchange => near.size > 1,
        }
    }

    /// The members that this one takes from: a range, of which this one may be a part.
    fn sources(&self, near: &Near) -> std::ops::Range<u32> {
        match self.call.pattern {
            Pattern::Broadcast { root } | Pattern::Scatter { root } if root == near.me => 0..0,
            Pattern::Broadcast { root } | Pattern::Scatter { root } => root..root + 1,
            Pattern::Gather { root } | Pattern::Reduce { root, .. } if root != near.me => 0..0,
            _ => 0..near.size,
        }
    }

    /// Goes as far as the board allows. True: done.
    #[inline]
    fn go_on(&mut self, near: &Near, state: &mut State) -> bool {
        if !self.has_entered {
            if !self.all_have_entered(near) {
                return false;
            }
            self.has_entered = true;
        }
        if !self.has_prepared {
            self.prepare(near);
        }
        while self.posted < self.pieces && self.post(near, state) {}
        // What is taken may overwrite what a piece that was not posted has.
        if self.must_copy && self.posted < self.pieces {
            return false;
        }
        let before = self.taken;
        while self.taken < self.pieces && self.take(near) {}
        let bytes = self.blocks(near) * self.piece_bytes;
        if bytes > INLINE_BYTES {
            state.untold_bytes += (self.taken - before) as usize * bytes;
        }
        self.taken == self.pieces && self.posted == self.pieces && self.has_left(near)
    }

    fn all_have_entered(&mut self, near: &Near) -> bool {
        let others = near.size - 1;
        while self.acknowledged < others {
            let member = (near.me + 1 + self.acknowledged) % near.size;
            if near.board.arrival(member).load(Ordering::Acquire) <= self.first {
                return false;
            }
            self.acknowledged += 1;
        }
        self.acknowledged = 0;
        true
    }

    /// Moves what this member gives itself.
    fn prepare(&mut self, near: &Near) {
        self.has_prepared = true;
        let (me, bytes) = (near.me as usize, self.call.bytes);
        if !self.gives(near) {
            self.posted = self.pieces;
        }
        let (Some(from), Some(to)) = (self.call.from, self.call.to) else { return };
        if self.must_copy {
            self.own = Some(from.read());
        }
        match self.call.pattern {
            Pattern::Broadcast { root } if root as usize == me => to.copy_from(from),
            Pattern::Scatter { root } if root as usize == me && !self.must_copy => {
                to.copy_from(from.part(me * bytes, bytes));
            }
            Pattern::Gather { .. } | Pattern::GatherAll => to.part(me * bytes, bytes).copy_from(from),
            Pattern::Exchange if !self.must_copy => {
                to.part(me * bytes, bytes).copy_from(from.part(me * bytes, bytes));
            }
            _ => {}
        }
    }

    /// Writes a part of what this member gives.
    fn copy_own(&self, offset: usize, to: View) {
        match (&self.own, self.call.from) {
            (Some(own), _) => to.write(&own[offset..offset + to.bytes()]),
            (None, Some(from)) => to.copy_shared(from.part(offset, to.bytes())),
            (None, None) => {}
        }
    }

    /// Publishes the next piece. False: there is no room.
    fn post(&mut self, near: &Near, state: &mut State) -> bool {
        let number = self.first + self.posted;
        if number >= CELLS && !near.have_finished(state, number + 1 - CELLS) {
            return false;
        }
        let (offset, bytes) = self.range(self.posted);
        let blocks = self.blocks(near);
        let location = if blocks * bytes <= INLINE_BYTES {
            if let Some(room) = near.board.inline(near.me, number, blocks * bytes) {
                self.copy_blocks(near, blocks, offset, bytes, room);
            }
            Location::Inline
        } else if let Some(segment) = self.segment {
            self.is_lent = true;
            Location::Segment(segment)
        } else {
            if state.to_copy.front() != Some(&self.first) {
                return false;
            }
            let Some(at) = near.reserve(state, number, blocks * bytes) else { return false };
            if let Some(room) = near.board.arena(near.me, at, blocks * bytes) {
                self.copy_blocks(near, blocks, offset, bytes, room);
            }
            Location::Arena(at)
        };
        near.board.post(near.me, number, Header { call: self.call.call, bytes: self.call.bytes, location });
        self.posted += 1;
        if self.posted == self.pieces && state.to_copy.front() == Some(&self.first) {
            state.to_copy.pop_front();
        }
        match self.call.pattern {
            Pattern::Gather { root } | Pattern::Reduce { root, .. } => near.ring(root),
            _ => near.ring_others(),
        }
        if self.posted == self.pieces && self.must_copy {
            self.take_own(near);
        }
        true
    }

    /// The block of this member's own, where that had to wait until all was posted.
    fn take_own(&self, near: &Near) {
        let (Some(own), Some(to)) = (&self.own, self.call.to) else { return };
        let (me, bytes) = (near.me as usize, self.call.bytes);
        match self.call.pattern {
            Pattern::Scatter { .. } => to.write(&own[me * bytes..][..bytes]),
            Pattern::Exchange => to.part(me * bytes, bytes).write(&own[me * bytes..][..bytes]),
            _ => {}
        }
    }

    fn copy_blocks(&self, near: &Near, blocks: usize, offset: usize, bytes: usize, room: View) {
        if blocks == 1 {
            return self.copy_own(offset, room);
        }
        for member in near.others() {
            let to = room.part(member as usize * bytes, bytes);
            self.copy_own(member as usize * self.call.bytes + offset, to);
        }
    }

    /// Takes the current piece from all members. False: one of them has not posted it.
    fn take(&mut self, near: &Near) -> bool {
        let sources = self.sources(near);
        let number = self.first + self.taken;
        let (offset, bytes) = self.range(self.taken);
        self.member = self.member.max(sources.start);
        while self.member < sources.end {
            let member = self.member;
            let source = if member == near.me {
                match (&self.call.pattern, self.call.from) {
                    (Pattern::Reduce { .. }, Some(from)) => Some(from.part(offset, bytes)),
                    _ => None,
                }
            } else {
                match self.find(near, member, number, offset, bytes) {
                    Some(source) => Some(source),
                    None => return false,
                }
            };
            if let (Some(source), Some(to)) = (source, self.call.to) {
                match &self.call.pattern {
                    Pattern::Reduce { .. } => self.combine(near, member, source, offset, bytes),
                    Pattern::Broadcast { .. } | Pattern::Scatter { .. } => {
                        to.part(offset, bytes).copy_shared(source);
                    }
                    _ => to.part(member as usize * self.call.bytes + offset, bytes).copy_shared(source),
                }
            }
            self.member += 1;
        }
        self.member = 0;
        self.taken += 1;
        true
    }

    /// The bytes of the current piece that a member gives this one, once they are posted.
    fn find(&mut self, near: &Near, member: u32, number: u64, offset: usize, bytes: usize) -> Option<View> {
        let header = near.board.header(member, number)?;
        if header.call != self.call.call || header.bytes != self.call.bytes {
            self.disagree(near, member, header);
            return None;
        }
        let blocks = self.blocks(near);
        let is_for_each = matches!(self.call.pattern, Pattern::Scatter { .. } | Pattern::Exchange);
        let index = if is_for_each { near.me as usize } else { 0 };
        let found = match header.location {
            Location::Inline => {
                near.board.inline(member, number, blocks * bytes).map(|room| room.part(index * bytes, bytes))
            }
            Location::Arena(at) => {
                let at = at.checked_add(index * bytes);
                at.and_then(|at| near.board.arena(member, at, bytes))
            }
            Location::Segment(at) => {
                self.has_borrowed = true;
                let at = at.checked_add((index * self.call.bytes + offset) as u64);
                let rank = near.ranks[member as usize];
                at.and_then(|at| near.endpoint.near_address(rank, at, bytes))
                    .map(|address| View::of_segment(address, bytes))
            }
        };
        if found.is_none() {
            let peer = near.endpoint.layout().peer_of_rank(near.ranks[member as usize]);
            let what = "a place of a collective's bytes that there is not".into();
            near.endpoint.fail(RmaError::Protocol { peer: Some(peer), what });
        }
        found
    }

    #[cold]
    fn disagree(&self, near: &Near, member: u32, header: Header) {
        let (who, here) = (near.describe(member), near.describe(near.me));
        let (theirs, own) = (header.call, self.call.call);
        let (given, expected) = (header.bytes, self.call.bytes);
        let what = if theirs == own {
            format!("{who} gave {given} bytes in {own}, of which {here} expects {expected}")
        } else {
            format!("{who} calls {theirs} where {here} calls {own}")
        };
        near.spoil(member, what);
    }

    /// Combines what a member gives with what those before it gave.
    fn combine(&mut self, near: &Near, member: u32, source: View, offset: usize, bytes: usize) {
        let (Pattern::Reduce { combiner, .. }, Some(to)) = (&self.call.pattern, self.call.to) else { return };
        let is_aside = self.must_copy;
        let place = if is_aside {
            self.sum.resize(bytes, 0);
            View::of_own(&mut self.sum)
        } else {
            to.part(offset, bytes)
        };
        match (member, self.left.take()) {
            (0, _) if near.size > 1 => self.left = Some(source),
            (0, _) => place.copy_shared(source),
            (_, Some(left)) => combiner.combine(left, source, place),
            (_, None) => combiner.combine(place, source, place),
        }
        if is_aside && member == near.size - 1 {
            to.part(offset, bytes).copy_from(place);
        }
    }

    /// Whether all have taken what they must have before this member may go.
    fn has_left(&mut self, near: &Near) -> bool {
        let last = self.first + self.pieces - 1;
        if !self.has_told_taken {
            self.has_told_taken = true;
            if self.has_borrowed || self.call.is_left_together {
                near.board.set_taken(near.me, last);
                near.ring_others();
            }
        }
        if !self.is_lent && !self.call.is_left_together {
            return true;
        }
        let receiver = match self.call.pattern {
            Pattern::Gather { root } | Pattern::Reduce { root, .. } if !self.call.is_left_together => {
                Some(root)
            }
            _ => None,
        };
        if let Some(root) = receiver {
            return near.board.has_taken(root, last);
        }
        while self.acknowledged < near.size - 1 {
            let member = (near.me + 1 + self.acknowledged) % near.size;
            if !near.board.has_taken(member, last) {
                return false;
            }
            self.acknowledged += 1;
        }
        true
    }
}

impl Team {
    /// Whether its members share memory, so that [`Team::start_near`] may be called.
    pub fn is_near(&self) -> bool {
        self.near.is_some()
    }

    /// Starts a collective over shared memory; none if it is done at once. Members start those of a team in the same order. It goes on
    /// whenever some thread of this rank waits for a collective of the team, or calls [`Collectives::progress`].
    ///
    /// # Errors
    /// [`RmaError::Collective`] when the team is spoilt; [`RmaError::PeerLost`] when a node is lost; [`RmaError::Usage`] in a handler,
    /// and where the members share no memory.
    pub fn start_near(&self, call: NearCall) -> Result<Option<Arc<NearOperation>>> {
        self.standing.check()?;
        let endpoint = self.engine.endpoint();
        endpoint.check_all(operation::WHERE)?;
        if endpoint.in_handler() {
            return Err(RmaError::Usage("a handler must not begin a collective".into()));
        }
        match &self.near {
            Some(near) => Ok(near.start(call)),
            None => Err(RmaError::Usage("the members of the team share no memory".into())),
        }
    }
}
