//! One collective of a team whose members share memory, as a machine that goes as far as the board allows.
//!
//! It enters, posts its pieces, takes those of others, and leaves. A piece has a number and a cell of its
//! own. Every member publishes a header of each operation, even one that gives nothing, so that members that
//! call different collectives find out.
//!
//! Long reductions are *split*: each member combines a slice of the elements of all members, and gives the root the result. Pieces of
//! such an operation come in pairs: operands, then results. Elements that are longer than a piece are gathered first, and combined when
//! all of them have come.

use super::board::{ARENA_ALIGN, Header, INLINE_BYTES, Location, Shape};
use super::near::{Near, State};
use super::team_call::{Caller, Pattern, TeamCall};
use super::view::View;
use crate::error::RmaError;
use std::ops::Range;
use std::sync::atomic::{Ordering, fence};
use vgas_shm::biased::this_thread;

/// Bytes that one member gives in one piece of an operation.
pub(super) const PIECE_BYTES_MAX: usize = 128 << 10;

/// Longer pieces are taken from the segment that they are in; shorter ones are copied to the board, so that
/// their giver need not wait until they are taken. If members share cores, each such wait is a sleep and a
/// wake: then all pieces of a broadcast, scatter, gather or reduction are copied, if nothing else is in
/// flight.
const COPIED_MAX: usize = 8 << 10;

/// Bytes from which the members share the work of a reduction. It then takes a round more, which costs two ranks on cores of their own
/// more than the root's work on 64 KiB, and four ranks on two cores much more.
const SPLIT_MIN: usize = 128 << 10;

/// One operation on its way.
pub(super) struct Machine {
    call: TeamCall,
    caller: Caller,
    pub(super) first: u64,
    pub(super) pieces: u64,
    /// Bytes of a block in each piece but the last.
    piece_bytes: usize,
    is_split: bool,
    /// Elements are longer than a piece.
    is_gathered: bool,
    /// The offset of `from` in this rank's segment.
    segment: Option<u64>,
    /// A copy of `from`, where what is taken would overwrite it.
    own: Option<Vec<u8>>,
    must_copy: bool,
    has_entered: bool,
    has_prepared: bool,
    posted: u64,
    pub(super) taken: u64,
    /// The next member to take the current piece from.
    member: u32,
    /// The first member's part of the current piece, until that of the second is there.
    left: Option<View>,
    /// The elements of the current piece combined so far, if they cannot lie in the result's place.
    sum: Vec<u8>,
    /// The blocks that this member combines, if elements are longer than a piece.
    gathered: Vec<u8>,
    /// Some piece is taken from this member's segment.
    is_lent: bool,
    /// Some piece was taken from another member's segment.
    has_borrowed: bool,
    has_told_taken: bool,
    /// Members that have taken all, counted from the next.
    acknowledged: u32,
}

/// A part of the bytes that a member gives in a piece.
struct PieceRange {
    /// Bytes of the whole piece.
    given: usize,
    /// The part's offset in it, and its bytes.
    skip: usize,
    bytes: usize,
    /// The part's offset in the member's memory, if the piece is taken from there.
    at: usize,
}

impl Machine {
    /// `may_lend`: long pieces may be taken from the segment that they are in.
    pub(super) fn new(near: &Near, call: TeamCall, caller: Caller, may_lend: bool) -> Self {
        let blocks = match call.pattern {
            Pattern::Scatter { .. } | Pattern::AllToAll => near.size as usize,
            _ => 1,
        };
        let element = call.combiner.as_ref().map_or(1, |combiner| combiner.element_bytes().max(1));
        let is_gathered = element > PIECE_BYTES_MAX;
        let most = (PIECE_BYTES_MAX / blocks).max(1);
        let unit = if element == 1 || is_gathered { ARENA_ALIGN.min(most) } else { element };
        let piece_bytes = call.bytes.clamp(1, most / unit * unit);
        let is_reduction = matches!(call.pattern, Pattern::Reduce { .. } | Pattern::AllReduce);
        let is_split = is_reduction && !is_gathered && near.size > 1 && call.bytes >= SPLIT_MIN;
        let must_copy = match (call.from, call.to, &call.pattern) {
            (Some(from), Some(to), Pattern::AllGather | Pattern::Gather { .. }) => {
                let own = to.part(near.me as usize * call.bytes, call.bytes);
                from != own && from.overlaps(to)
            }
            (Some(from), Some(to), Pattern::Scatter { .. }) => {
                let own = from.part(near.me as usize * call.bytes, call.bytes);
                to != own && from.overlaps(to)
            }
            (Some(from), Some(to), Pattern::Broadcast { .. }) => from != to && from.overlaps(to),
            (Some(from), Some(to), _) => near.size > 1 && from.overlaps(to),
            _ => false,
        };
        let gives_long = blocks * piece_bytes > COPIED_MAX;
        let segment = call
            .from
            .filter(|_| gives_long && !must_copy && may_lend)
            .and_then(|from| near.endpoint.offset_in_segment(from.address(), from.bytes()));
        let rounds = call.bytes.div_ceil(piece_bytes).max(1) as u64;
        Self {
            pieces: if is_split { 2 * rounds } else { rounds },
            piece_bytes,
            is_split,
            is_gathered,
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
            gathered: Vec::new(),
            is_lent: false,
            has_borrowed: false,
            has_told_taken: false,
            acknowledged: 0,
            first: 0,
            call,
            caller,
        }
    }

    pub(super) fn is_entered_together(&self) -> bool {
        self.call.is_entered_together
    }

    /// The arguments in which members must agree.
    pub(super) fn shape(&self) -> Shape {
        let Self { piece_bytes, is_split, .. } = *self;
        Shape { call: self.call.call, bytes: self.call.bytes, piece_bytes, is_split }
    }

    /// Returns true if this thread may make progress on it. `may_call`: it is one of the program, outside of
    /// handlers.
    pub(super) fn may_proceed(&self, may_call: bool) -> bool {
        match (&self.call.combiner, &self.caller) {
            (None, _) | (_, Caller::Owned(_)) => true,
            (Some(combiner), Caller::Polls) => may_call || !combiner.needs_caller(),
            (Some(_), Caller::Waits(thread)) => *thread == this_thread(),
        }
    }

    /// Number of blocks that a member gives at once.
    #[inline]
    fn blocks(&self, near: &Near) -> usize {
        match self.call.pattern {
            Pattern::Scatter { .. } | Pattern::AllToAll => near.size as usize,
            _ => 1,
        }
    }

    /// Returns whether this member copies bytes to its arena.
    #[inline]
    pub(super) fn copies(&self, near: &Near) -> bool {
        if self.is_split {
            return self.segment.is_none() || !self.is_root(near.me);
        }
        self.blocks(near) * self.piece_bytes.min(self.call.bytes) > INLINE_BYTES
            && self.segment.is_none()
            && self.gives(near, 0)
    }

    /// Bytes of the arena that a member may use for `pieces` pieces.
    #[inline]
    pub(super) fn arena_bytes(&self, near: &Near, pieces: u64) -> u64 {
        let bytes = self.blocks(near) * self.piece_bytes.min(self.call.bytes);
        if bytes > INLINE_BYTES { pieces * bytes.next_multiple_of(ARENA_ALIGN) as u64 } else { 0 }
    }

    fn is_root(&self, member: u32) -> bool {
        match self.call.pattern {
            Pattern::Broadcast { root }
            | Pattern::Scatter { root }
            | Pattern::Gather { root }
            | Pattern::Reduce { root } => root == member,
            _ => false,
        }
    }

    /// Returns whether a piece has results of a split reduction.
    #[inline]
    fn is_result(&self, piece: u64) -> bool {
        self.is_split && piece % 2 == 1
    }

    /// The range of a block that a piece is about.
    #[inline]
    fn range(&self, piece: u64) -> (usize, usize) {
        let round = if self.is_split { piece / 2 } else { piece };
        let offset = round as usize * self.piece_bytes;
        (offset, self.piece_bytes.min(self.call.bytes - offset))
    }

    /// Returns the slice of a split reduction that a member combines: its offset and length.
    fn slice(&self, near: &Near, member: u32, bytes: usize) -> (usize, usize) {
        let element = self.call.combiner.as_deref().map_or(1, |combiner| combiner.element_bytes().max(1));
        let elements = bytes / element;
        let start = |member: u32| elements * member as usize / near.size as usize * element;
        (start(member), start(member + 1) - start(member))
    }

    /// Returns whether this member gives bytes in a piece.
    #[inline]
    fn gives(&self, near: &Near, piece: u64) -> bool {
        match self.call.pattern {
            Pattern::Broadcast { root } | Pattern::Scatter { root } => root == near.me,
            Pattern::Reduce { .. } if self.is_split && !self.is_result(piece) => true,
            Pattern::Barrier | Pattern::AllReduce => near.size > 1,
            Pattern::Gather { root } | Pattern::Reduce { root } => root != near.me,
            Pattern::AllGather | Pattern::AllToAll => near.size > 1,
            Pattern::Scan { .. } => near.me + 1 < near.size,
        }
    }

    /// Returns the members that this one takes a piece from: a range, which may include this one.
    fn sources(&self, near: &Near, piece: u64) -> Range<u32> {
        match self.call.pattern {
            Pattern::Broadcast { root } | Pattern::Scatter { root } if root == near.me => 0..0,
            Pattern::Broadcast { root } | Pattern::Scatter { root } => root..root + 1,
            Pattern::Reduce { .. } if self.is_split && !self.is_result(piece) => 0..near.size,
            Pattern::Gather { root } | Pattern::Reduce { root } if root != near.me => 0..0,
            Pattern::Scan { is_exclusive } => 0..near.me + u32::from(!is_exclusive),
            _ => 0..near.size,
        }
    }

    /// Goes as far as the board allows. True: done.
    #[inline]
    pub(super) fn go_on(&mut self, near: &Near, state: &mut State) -> bool {
        if !self.has_entered {
            if !self.all_have_entered(near) {
                return false;
            }
            self.has_entered = true;
        }
        if !self.has_prepared {
            self.prepare(near);
        }
        loop {
            let steps = self.posted + self.taken;
            while self.posted < self.pieces && self.post(near, state) {}
            while self.taken < self.pieces && self.take(near) {}
            // Results follow from operands, and operands from results of the round before.
            if !self.is_split || self.posted + self.taken == steps {
                break;
            }
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
        let (Some(from), Some(to)) = (self.call.from, self.call.to) else { return };
        if self.must_copy {
            self.own = Some(from.read());
        }
        match self.call.pattern {
            Pattern::Broadcast { root } if root as usize == me => to.copy_from(from),
            Pattern::Scatter { root } if root as usize == me && !self.must_copy => {
                to.copy_from(from.part(me * bytes, bytes));
            }
            Pattern::Gather { .. } | Pattern::AllGather => to.part(me * bytes, bytes).copy_from(from),
            Pattern::AllToAll if !self.must_copy => {
                to.part(me * bytes, bytes).copy_from(from.part(me * bytes, bytes));
            }
            _ => {}
        }
    }

    /// Writes a part of this member's own bytes.
    fn copy_own(&self, offset: usize, to: View) {
        match (&self.own, self.call.from) {
            (Some(own), _) => to.write(&own[offset..offset + to.bytes()]),
            (None, Some(from)) => to.copy_shared(from.part(offset, to.bytes())),
            (None, None) => {}
        }
    }

    /// Publishes the next piece. False: it has to wait.
    fn post(&mut self, near: &Near, state: &mut State) -> bool {
        let piece = self.posted;
        let number = self.first + piece;
        let gives = self.gives(near, piece);
        if !gives && piece > 0 {
            self.posted += 1;
            return true;
        }
        if !near.has_cell(state, number) || (gives && self.is_result(piece) && self.taken < piece) {
            return false;
        }
        let location = if gives {
            match self.give(near, state, piece) {
                Some(location) => location,
                None => return false,
            }
        } else {
            Location::Inline
        };
        near.board.post(near.me, number, Header { shape: self.shape(), location });
        self.posted += 1;
        // The root of a split reduction gives no results.
        let copied = self.pieces - u64::from(self.is_split && self.is_root(near.me));
        if self.posted == copied {
            self.finish_posting(near, state);
        }
        if gives {
            self.ring_receivers(near, piece);
        }
        true
    }

    /// Publishes the bytes of a piece for the receivers. None: there is no room.
    fn give(&mut self, near: &Near, state: &mut State, piece: u64) -> Option<Location> {
        let (offset, bytes) = self.range(piece);
        let is_result = self.is_result(piece);
        let blocks = self.blocks(near);
        let total = if is_result { self.slice(near, near.me, bytes).1 } else { blocks * bytes };
        let number = self.first + piece;
        let (room, location) = if total <= INLINE_BYTES {
            (near.board.inline(near.me, number, total), Location::Inline)
        } else if let Some(segment) = self.segment.filter(|_| !is_result) {
            self.is_lent = true;
            return Some(Location::Segment(segment));
        } else {
            if state.to_copy.front() != Some(&self.first) {
                return None;
            }
            let at = near.reserve(state, number, total)?;
            (near.board.arena(near.me, at, total), Location::Arena(at))
        };
        if let Some(room) = room {
            if is_result {
                room.copy_shared(View::of_own(&mut self.sum).part(0, total));
            } else {
                self.copy_blocks(near, blocks, offset, bytes, room);
            }
        }
        Some(location)
    }

    /// Ends the use of the arena, once nothing more of this operation is copied there.
    fn finish_posting(&self, near: &Near, state: &mut State) {
        // It is not the first one if its slices were so small that nothing had to be copied there.
        if let Ok(at) = state.to_copy.binary_search(&self.first) {
            state.to_copy.remove(at);
        }
        if self.must_copy {
            self.take_own(near);
        }
    }

    /// Wakes members that can proceed with a piece that this member has posted. If members need the pieces of
    /// all, only the last to post wakes them: a wake that finds a piece missing costs two context switches.
    fn ring_receivers(&self, near: &Near, piece: u64) {
        let number = self.first + piece;
        match self.call.pattern {
            Pattern::Broadcast { .. } | Pattern::Scatter { .. } => near.ring_others(),
            Pattern::Scan { .. } => (near.me + 1..near.size).for_each(|member| near.ring(member)),
            Pattern::Barrier | Pattern::AllGather | Pattern::AllToAll | Pattern::AllReduce => {
                near.ring_all_if(|member| near.has_posted(member, number))
            }
            Pattern::Reduce { .. } if self.is_split && !self.is_result(piece) => {
                near.ring_all_if(|member| near.has_posted(member, number));
            }
            Pattern::Gather { root } | Pattern::Reduce { root } => {
                near.ring_if(root, |member| member == root || near.has_posted(member, number));
            }
        }
    }

    /// Copies this member's own block, if that had to wait until all was posted.
    fn take_own(&self, near: &Near) {
        let (Some(own), Some(to)) = (&self.own, self.call.to) else { return };
        let (me, bytes) = (near.me as usize, self.call.bytes);
        match self.call.pattern {
            Pattern::Scatter { .. } => to.write(&own[me * bytes..][..bytes]),
            Pattern::AllToAll => to.part(me * bytes, bytes).write(&own[me * bytes..][..bytes]),
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

    /// Takes the current piece from all members. False: one of them has not posted it, or its place is in use.
    fn take(&mut self, near: &Near) -> bool {
        let piece = self.taken;
        if self.is_split && self.posted < piece {
            return false;
        }
        let sources = self.sources(near, piece);
        let (offset, bytes) = self.range(piece);
        let combines = self.call.combiner.as_deref().is_some() && !self.is_result(piece);
        if self.is_gathered && self.gathered.is_empty() && !sources.is_empty() {
            self.gathered.resize(near.size as usize * self.call.bytes, 0);
        }
        let (start, length) = if self.is_split { self.slice(near, near.me, bytes) } else { (0, bytes) };
        self.member = self.member.max(sources.start);
        while self.member < sources.end {
            let member = self.member;
            if combines {
                let Some(source) = self.operand(near, member, piece, start, length) else { return false };
                if self.is_gathered {
                    let at = member as usize * self.call.bytes + offset;
                    View::of_own(&mut self.gathered).part(at, bytes).copy_shared(source);
                } else {
                    self.combine(near, &sources, source, offset + start);
                }
            } else if member != near.me {
                let wanted = self.wanted(near, member, piece);
                let Some(source) = self.find(near, member, self.first + piece, &wanted) else { return false };
                if let Some(to) = self.call.to {
                    let at = match self.call.pattern {
                        Pattern::Broadcast { .. } | Pattern::Scatter { .. } => offset,
                        Pattern::Reduce { .. } | Pattern::AllReduce => {
                            offset + self.slice(near, member, bytes).0
                        }
                        _ => member as usize * self.call.bytes + offset,
                    };
                    to.part(at, wanted.bytes).copy_shared(source);
                }
            }
            self.member += 1;
        }
        self.member = 0;
        self.taken += 1;
        if self.is_gathered && self.taken == self.pieces {
            self.combine_gathered(near, sources);
        }
        true
    }

    /// The part of a piece that this member takes from another, of a pattern that combines nothing.
    fn wanted(&self, near: &Near, member: u32, piece: u64) -> PieceRange {
        let (offset, bytes) = self.range(piece);
        if self.is_result(piece) {
            let given = self.slice(near, member, bytes).1;
            return PieceRange { given, skip: 0, bytes: given, at: 0 };
        }
        let is_for_each = matches!(self.call.pattern, Pattern::Scatter { .. } | Pattern::AllToAll);
        let index = if is_for_each { near.me as usize } else { 0 };
        PieceRange {
            given: self.blocks(near) * bytes,
            skip: index * bytes,
            bytes,
            at: index * self.call.bytes + offset,
        }
    }

    /// The elements of a member, this one included, that this one combines with others'.
    fn operand(&mut self, near: &Near, member: u32, piece: u64, start: usize, length: usize) -> Option<View> {
        let (offset, bytes) = self.range(piece);
        if member != near.me {
            let wanted = PieceRange { given: bytes, skip: start, bytes: length, at: offset + start };
            return self.find(near, member, self.first + piece, &wanted);
        }
        let own = match &mut self.own {
            Some(own) => View::of_own(own),
            None => self.call.from?,
        };
        Some(own.part(offset + start, length))
    }

    /// The bytes of a piece that a member gives, once they are posted.
    fn find(&mut self, near: &Near, member: u32, number: u64, wanted: &PieceRange) -> Option<View> {
        let header = near.board.header(member, number)?;
        if header.shape != self.shape() {
            near.disagree(member, header.shape, self.shape());
            return None;
        }
        let found = match header.location {
            Location::Inline => {
                let room = near.board.inline(member, number, wanted.given);
                room.map(|room| room.part(wanted.skip, wanted.bytes))
            }
            Location::Arena(at) => {
                let at = at.checked_add(wanted.skip);
                at.and_then(|at| near.board.arena(member, at, wanted.bytes))
            }
            Location::Segment(at) => {
                self.has_borrowed = true;
                let at = at.checked_add(wanted.at as u64);
                let rank = near.ranks[member as usize];
                at.and_then(|at| near.endpoint.near_address(rank, at, wanted.bytes))
                    .map(|address| View::of_segment(address, wanted.bytes))
            }
        };
        if found.is_none() {
            let peer = near.endpoint.layout().peer_of_rank(near.ranks[member as usize]);
            let what = "a place of a collective's bytes that there is not".into();
            near.endpoint.fail(RmaError::Protocol { peer: Some(peer), what });
        }
        found
    }

    /// Combines elements of the current member with those of the members before it; the result belongs at an offset of the place.
    fn combine(&mut self, near: &Near, sources: &Range<u32>, source: View, at: usize) {
        let Some(combiner) = self.call.combiner.as_deref() else { return };
        let bytes = source.bytes();
        let goes_to = self.call.to.map(|to| to.part(at, bytes));
        let is_aside = self.must_copy || goes_to.is_none() || (self.is_split && !self.is_root(near.me));
        let place = match goes_to {
            Some(to) if !is_aside => to,
            _ => {
                self.sum.resize(bytes, 0);
                View::of_own(&mut self.sum)
            }
        };
        let is_last = self.member + 1 == sources.end;
        match (self.member == sources.start, self.left.take()) {
            (true, _) if !is_last => self.left = Some(source),
            (true, _) => place.copy_shared(source),
            (false, Some(left)) => near.combine(combiner, left, source, place),
            (false, None) => near.combine(combiner, place, source, place),
        }
        if let Some(to) = goes_to.filter(|_| is_last && is_aside) {
            to.copy_from(place);
        }
    }

    /// Combines the blocks of members, all of which have come.
    fn combine_gathered(&mut self, near: &Near, mut sources: Range<u32>) {
        let (Some(combiner), Some(to)) = (self.call.combiner.as_deref(), self.call.to) else { return };
        let (bytes, all) = (self.call.bytes, View::of_own(&mut self.gathered));
        let block = |member: u32| all.part(member as usize * bytes, bytes);
        let Some(first) = sources.next().map(block) else { return };
        sources.for_each(|member| near.combine(combiner, first, block(member), first));
        to.copy_shared(first);
        self.gathered = Vec::new();
    }

    /// Returns whether all have taken what they must have before this member may go.
    fn has_left(&mut self, near: &Near) -> bool {
        let last = self.first + self.pieces - 1;
        if !self.has_told_taken {
            self.has_told_taken = true;
            if self.call.is_left_together {
                near.board.set_taken(near.me, last);
                near.ring_all_if(|member| near.board.has_taken(member, last));
            } else {
                self.tell_taken(near, last);
            }
        }
        if !self.is_lent && !self.call.is_left_together {
            return true;
        }
        let receiver = match self.call.pattern {
            Pattern::Gather { root } | Pattern::Reduce { root }
                if !self.call.is_left_together && !self.is_split =>
            {
                Some(root)
            }
            Pattern::Scan { .. } if !self.call.is_left_together => {
                return self.followers_have_taken(near, last);
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

    /// Tells those that may wait for it that this member has taken all. If several members wait for all
    /// others, or one does, only the last to finish wakes them; then every member reports, because none knows
    /// which others have borrowed.
    fn tell_taken(&self, near: &Near, last: u64) {
        let is_of_all = match self.call.pattern {
            Pattern::AllGather | Pattern::AllToAll => self.blocks(near) * self.piece_bytes > COPIED_MAX,
            Pattern::Reduce { .. } => self.is_split,
            Pattern::AllReduce => self.is_split || self.piece_bytes > COPIED_MAX,
            _ => false,
        };
        if !self.has_borrowed && !is_of_all {
            return;
        }
        near.board.set_taken(near.me, last);
        match self.call.pattern {
            _ if is_of_all => near.ring_all_if(|member| near.board.has_taken(member, last)),
            Pattern::Broadcast { root } | Pattern::Scatter { root } => {
                near.ring_if(root, |member| member == root || near.board.has_taken(member, last));
            }
            _ => near.ring_others(),
        }
    }

    /// Returns whether the members after this one have taken all.
    fn followers_have_taken(&self, near: &Near, last: u64) -> bool {
        (near.me + 1..near.size).all(|member| near.board.has_taken(member, last))
    }

    /// Finds a member that has called something else, if its header is there.
    pub(super) fn compare(&self, near: &Near) {
        // Cells of taken and reported pieces may be used again.
        if self.taken > 0 {
            return;
        }
        for member in near.others() {
            if let Some(header) = near.board.header(member, self.first)
                && header.shape != self.shape()
            {
                return near.disagree(member, header.shape, self.shape());
            }
        }
    }
}

/// Pairs with the same on another member: of two that publish and then look for each other, one finds the other.
pub(super) fn publish_before_look() {
    fence(Ordering::SeqCst);
}
