//! Further pinned segments: parts that a rank attaches beside its first, and gives up, while the job runs.
//!
//! A part is a range of its owner's region behind the first segment: the memory that the processes of the
//! domain share already, so that nothing has to be handed to them. Two words of the control file give its
//! place and size; the owner alone writes them, and ranks that share the memory read them at every access.
//! Others are told a part's size, by the layer above or by the agent that serves it. A part that is given up
//! leaves no memory behind: its pages go back to the system.
//!
//! ```text
//! LEARN (operation, whose, region)      → FETCHED (operation, size, or all ones for none)
//! FORGET (operation, region)            → DONE: the agent's conduit has given back what it had registered
//! ```

use super::atomic::FETCHED;
use super::segment::{Reach, Segments};
use super::serve::{DONE, low_high};
use super::wait::lock;
use super::{Endpoint, Handler, Route, Token};
use crate::address::{Peer, PinnedPart, Rank, RegionId};
use crate::error::{Result, RmaError};
use crate::message::{Arrived, Payload};
use rustc_hash::FxHashMap;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError, RwLock};

const LEARN: u8 = 13;
const FORGET: u8 = 14;

/// The answer of an agent about a part that is none.
const NONE: u64 = u64::MAX;

pub(super) fn handlers() -> [(u8, Handler); 2] {
    [(LEARN, Box::new(on_learn)), (FORGET, Box::new(on_forget))]
}

/// An endpoint's state of further segments beside the shared words.
#[derive(Default)]
pub(super) struct Further {
    /// This rank's own parts, by their places in its region.
    rooms: Mutex<Vec<(Range<u64>, RegionId)>>,
    /// Sizes of the parts of ranks that share no memory with this process.
    far: RwLock<FxHashMap<PinnedPart, u64>>,
}

impl Further {
    /// The first byte of the region that a part of this rank's has.
    pub(super) fn first_byte(&self) -> Option<u64> {
        lock(&self.rooms).iter().find(|(room, _)| !room.is_empty()).map(|(room, _)| room.start)
    }

    fn far(&self, part: PinnedPart) -> Option<u64> {
        self.far.read().unwrap_or_else(PoisonError::into_inner).get(&part).copied()
    }

    fn change_far<R>(&self, change: impl FnOnce(&mut FxHashMap<PinnedPart, u64>) -> R) -> R {
        change(&mut self.far.write().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The last gap of `bytes` bytes between ranges in ascending order, from `first` to `limit`, and its place among them: the first
/// segment may come later, and grows from the beginning.
fn gap(rooms: &[(Range<u64>, RegionId)], first: u64, limit: u64, bytes: u64) -> Option<(u64, usize)> {
    let mut end = limit;
    for (index, (room, _)) in rooms.iter().enumerate().rev() {
        if end - room.end >= bytes {
            return Some((end - bytes, index + 1));
        }
        end = room.start;
    }
    (end.checked_sub(first)? >= bytes).then(|| (end - bytes, 0))
}

impl Segments {
    /// Returns the place of a part of a further segment in its owner's region, and its size; none while it
    /// has none, and for a rank that shares no memory with this process.
    pub(super) fn part_near(&self, part: PinnedPart) -> Option<Range<u64>> {
        let near = self.near(part.owner)?;
        let [size, start] = self.shared().part(near.member, part.region.further_index()?)?;
        let bytes = size.load(Ordering::Acquire).checked_sub(1)?;
        let start = start.load(Ordering::Acquire);
        // Other processes can write these words, and the owner may be at it: whatever they say lies in the region.
        let end = start.checked_add(bytes).filter(|&end| end <= near.region_bytes)?;
        Some(start..end)
    }

    /// [`Segments::reach`] for further segments; out of the way of the first, which most programs have alone.
    #[cold]
    #[inline(never)]
    pub(super) fn reach_further(&self, part: PinnedPart, offset: u64, bytes: usize) -> Option<*mut u8> {
        let base = self.base(part.owner)?;
        let room = self.part_near(part)?;
        let limit = room.end - room.start;
        let is_inside = offset <= limit && bytes as u64 <= limit - offset;
        is_inside.then(|| base.wrapping_add((room.start + offset) as usize))
    }
}

impl Endpoint {
    /// Attaches this rank's part of a pinned segment: `bytes` bytes, all zeros, which may be none, out of the
    /// rest of the domain's region for pinned segments. That of [`RegionId::SEGMENT`] is reached fastest. Not
    /// collective; any thread. Ranks that share memory with this one may use it as soon as they know of it;
    /// others after [`Endpoint::know_part`] or [`Endpoint::learn_part`].
    ///
    /// # Errors
    /// [`RmaError::OutOfRange`] when no gap is as large; [`RmaError::Usage`] for a region that is no segment's or is
    /// attached; [`RmaError::NoSuchRegion`] without a domain.
    pub fn attach_part(&self, region: RegionId, bytes: u64) -> Result<()> {
        if region == RegionId::SEGMENT {
            return self.attach_first(bytes);
        }
        let (rank, index) = self.own_part(region)?;
        let shared = self.segments.near(rank).and_then(|near| {
            let first = self.segments.attached_bytes(near.member).unwrap_or(0);
            Some((near.region_bytes, first, self.segments.shared().part(near.member, index)?))
        });
        let (owner, missing) = (self.me, RmaError::NoSuchRegion { owner: self.me, region });
        let (limit, first, [size, start]) = shared.ok_or(missing)?;
        let page = rustix::param::page_size() as u64;
        let mut rooms = lock(&self.segments.further.rooms);
        if rooms.iter().any(|(_, known)| *known == region) {
            return Err(RmaError::Usage(format!("region {} is attached already", region.0)));
        }
        let whole = bytes.checked_next_multiple_of(page).unwrap_or(u64::MAX);
        let Some((begin, place)) = gap(&rooms, first.next_multiple_of(page), limit / page * page, whole)
        else {
            return Err(RmaError::OutOfRange {
                owner,
                region: RegionId::SEGMENT,
                offset: first,
                bytes,
                limit,
            });
        };
        let end = begin + whole;
        if let (Some(network), Some(domain)) = (&self.network, &self.domain)
            && bytes > 0
        {
            let memory = domain.map(self.me, RegionId::SEGMENT)?;
            network.offer(region, memory.span(begin as usize, bytes as usize));
        }
        rooms.insert(place, (begin..end, region));
        start.store(if bytes == 0 { 0 } else { begin }, Ordering::Release);
        size.store(bytes + 1, Ordering::Release);
        Ok(())
    }

    /// Gives this rank's part of a further segment up: it must not be used any more, and every operation on
    /// it has been waited for. When it returns its memory has gone back to the system, no network card can
    /// reach it, and its name is free. Not collective; any thread, but no handler. Other ranks that know it
    /// forget it by [`Endpoint::forget_part`].
    ///
    /// # Errors
    /// [`RmaError::NoSuchRegion`] when this rank has no such part; the endpoint's own.
    pub fn detach_part(&self, region: RegionId) -> Result<()> {
        if region == RegionId::SEGMENT {
            return self.detach_first();
        }
        let (rank, index) = self.own_part(region)?;
        let missing = RmaError::NoSuchRegion { owner: self.me, region };
        let is_it = |(_, known): &(Range<u64>, RegionId)| *known == region;
        let room =
            lock(&self.segments.further.rooms).iter().find(|room| is_it(room)).cloned().ok_or(missing)?.0;
        let near = self.segments.near(rank);
        if let Some([size, _]) = near.and_then(|near| self.segments.shared().part(near.member, index)) {
            size.store(0, Ordering::Release);
        }
        self.forget_part(PinnedPart { region, owner: rank });
        let agent = self.layout.agent_of(self.layout.node_of(rank));
        let has_cards = self.network.as_ref().is_some_and(|network| network.capabilities().one_sided);
        if has_cards && !matches!(self.routes[agent.0 as usize], Route::Nowhere) {
            let told = self.send_parts(agent, None, 0, 1, 1, |id, _, _| {
                let [low, high] = low_high(id);
                self.request_part(agent, FORGET, &[low, high, region.0.into()], Payload::Short)
            })?;
            self.wait_sync(told)?;
        }
        // Its room is free only when its memory is zeros again.
        if let Some(domain) = &self.domain {
            domain.discard(self.me, RegionId::SEGMENT, room)?;
        }
        lock(&self.segments.further.rooms).retain(|room| !is_it(room));
        Ok(())
    }

    /// Says how large the part of another rank is, which its owner has told: from now on it can be used here.
    /// No-op for a rank that shares memory with this one. For the layer above, which attaches segments
    /// together.
    pub fn know_part(&self, part: PinnedPart, bytes: u64) {
        if part.region == RegionId::SEGMENT {
            return self.know_first(part.owner, bytes);
        }
        if self.segments.near(part.owner).is_none() {
            self.segments.further.change_far(|far| far.insert(part, bytes));
        }
    }

    /// Asks for the size of a part that its owner has attached by itself, so that it can be used here; one
    /// message there and back if no memory is shared. Not from handlers.
    ///
    /// # Errors
    /// [`RmaError::NoSuchRegion`] when there is no such part; the endpoint's own.
    pub fn learn_part(&self, part: PinnedPart) -> Result<u64> {
        let owner = self.owner_of_further(part)?;
        let missing = RmaError::NoSuchRegion { owner, region: part.region };
        let Some(server) = self.segments.server_of(part.owner) else {
            return self.part_bytes(part).ok_or(missing);
        };
        // An earlier one may have had the name.
        self.forget_part(part);
        let mut value = Box::new([0; 8]);
        let asked = self.send_parts(server, Some(value.as_mut_ptr()), 0, 8, 8, |id, _, _| {
            let [low, high] = low_high(id);
            let arguments = [low, high, owner.0, part.region.0.into()];
            self.request_part(server, LEARN, &arguments, Payload::Short)
        })?;
        let bytes = self.wait_value(super::ValueHandle { handle: asked, value })?;
        if bytes == NONE {
            return Err(missing);
        }
        self.know_part(part, bytes);
        Ok(bytes)
    }

    /// Forgets a part that its owner gives up, or has given up; it is not used any more here.
    pub fn forget_part(&self, part: PinnedPart) {
        if part.region == RegionId::SEGMENT {
            return self.know_first(part.owner, 0);
        }
        self.segments.further.change_far(|far| far.remove(&part));
        if let Some(network) = self.network.as_ref().filter(|_| part.owner.0 < self.layout.ranks()) {
            network.forget(self.layout.peer_of_rank(part.owner), part.region);
        }
    }

    /// Bytes of a part of a further segment; none when its owner has none, or nothing is known of it here.
    pub fn part_bytes(&self, part: PinnedPart) -> Option<u64> {
        if part.region == RegionId::SEGMENT {
            return self.first_bytes(part.owner);
        }
        match self.segments.near(part.owner) {
            Some(_) => self.segments.part_near(part).map(|room| room.end - room.start),
            None => self.segments.further.far(part),
        }
    }

    /// The address of a byte of a part of any pinned segment, where loads and stores reach it: good until the part is given up. None
    /// outside of it, and on another node. Shared memory: see [`vgas_shm`].
    pub fn part_address(&self, part: impl Into<PinnedPart>, offset: u64) -> Option<*mut u8> {
        let part = part.into();
        self.segments.near(part.owner)?;
        self.open_window(part.owner).ok()?;
        self.segments.reach(part, offset, 1)
    }

    /// This rank, and which of the further segments the region is of.
    fn own_part(&self, region: RegionId) -> Result<(Rank, usize)> {
        let rank = self.rank().ok_or_else(|| RmaError::Usage("an agent has no segment".into()))?;
        Ok((rank, further_index(region)?))
    }

    /// Returns the owner of a part of a further segment, if it can be one.
    fn owner_of_further(&self, part: PinnedPart) -> Result<Peer> {
        further_index(part.region)?;
        if part.owner.0 < self.layout.ranks() {
            return Ok(self.layout.peer_of_rank(part.owner));
        }
        Err(RmaError::Usage(format!("there is no {}; the job has {}", part.owner, self.layout.ranks())))
    }

    /// [`Endpoint::reach_slow`] for further segments.
    pub(super) fn reach_further_slow(&self, part: PinnedPart, offset: u64, bytes: u64) -> Result<Reach> {
        let (owner, region) = (self.owner_of_further(part)?, part.region);
        if self.segments.near(part.owner).is_some() {
            self.open_window(part.owner)?;
        }
        let limit = self.part_bytes(part).ok_or(RmaError::NoSuchRegion { owner, region })?;
        if offset.checked_add(bytes).is_none_or(|end| end > limit) {
            return Err(RmaError::OutOfRange { owner, region, offset, bytes, limit });
        }
        match self.segments.server_of(part.owner) {
            None => {
                let here = self.segments.reach_further(part, offset, bytes as usize);
                here.map(Reach::Here).ok_or(RmaError::NoSuchRegion { owner, region })
            }
            Some(server) if matches!(self.routes[server.0 as usize], Route::Nowhere) => {
                Err(RmaError::NoSuchRegion { owner, region })
            }
            Some(server) => Ok(Reach::Through(server)),
        }
    }
}

fn further_index(region: RegionId) -> Result<usize> {
    let none = || RmaError::Usage(format!("region {} is no further pinned segment", region.0));
    region.further_index().ok_or_else(none)
}

fn on_learn(token: &Token<'_>, arguments: &[u32], _: Arrived<'_>) {
    let &[low, high, owner, region] = arguments else {
        return token.refuse("a malformed question for a part");
    };
    let endpoint = token.endpoint();
    let part = match endpoint.served_part(token.from(), Peer(owner), region) {
        Ok(part) => part,
        Err(error) => return endpoint.fail(error),
    };
    let bytes = endpoint.part_bytes(part).unwrap_or(NONE);
    let [bytes_low, bytes_high] = low_high(bytes);
    token.check(token.answer(FETCHED, &[low, high, bytes_low, bytes_high], Payload::Short));
}

fn on_forget(token: &Token<'_>, arguments: &[u32], _: Arrived<'_>) {
    let &[low, high, region] = arguments else { return token.refuse("a malformed end of a part") };
    let endpoint = token.endpoint();
    // A rank can speak of its own only: the requester is the owner.
    let owner = token.from();
    match endpoint.served_part(owner, owner, region) {
        Ok(part) if part.region.further_index().is_some() => endpoint.forget_part(part),
        Ok(_) => return token.refuse(format!("the end of region {region}")),
        Err(error) => return endpoint.fail(error),
    }
    token.check(token.answer(DONE, &[low, high], Payload::Short));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against a plain map of pages: rooms never overlap, and stay in order.
        #[test]
        fn rooms_do_not_overlap(steps in prop::collection::vec((0u64..5, any::<prop::sample::Index>()), 1..80)) {
            let mut rooms: Vec<(Range<u64>, RegionId)> = Vec::new();
            for (step, (pages, which)) in (0..).zip(steps) {
                if step % 3 == 2 && !rooms.is_empty() {
                    rooms.remove(which.index(rooms.len()));
                    continue;
                }
                let Some((start, place)) = gap(&rooms, 7, 60, pages) else {
                    let free = 53 - rooms.iter().map(|(room, _)| room.end - room.start).sum::<u64>();
                    prop_assert!(free < pages * (rooms.len() as u64 + 1), "{:?}", rooms);
                    continue;
                };
                rooms.insert(place, (start..start + pages, RegionId(step)));
                prop_assert!(rooms.is_sorted_by(|one, next| one.0.end <= next.0.start), "{:?}", rooms);
                prop_assert!(start >= 7 && start + pages <= 60);
            }
        }
    }
}
