//! Pinned segments: the size of each rank's part, and its access path.
//!
//! A window is what this process knows of one rank's first segment: its size, and its first address when the rank is in the
//! same domain. Windows are an array by rank and are opened at first use, so that reaching a co-located rank's memory
//! is two loads and a comparison. Further segments are in [`super::further`].

use super::further::Further;
use super::shared::SharedWords;
use super::{Endpoint, Route};
use crate::address::{Layout, Peer, PinnedPart, Rank, RegionId};
use crate::domain::Domain;
use crate::error::{Result, RmaError};
use crate::message::{Destination, Source};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use vgas_shm::{Mapping, Span};

/// A rank's pinned segment, as [`Endpoint::segment_info`] returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    /// The rank.
    pub rank: Rank,
    /// Its size in bytes.
    pub bytes: u64,
    /// Its first address in this process, if loads and stores reach it. Shared memory: see [`vgas_shm`].
    pub address: Option<*mut u8>,
}

/// Size of a segment that is not known yet.
const UNKNOWN: u64 = u64::MAX;

struct Window {
    /// Null: not mapped here (yet, or ever).
    base: AtomicPtr<u8>,
    /// Read only after `base` was seen, or after the exchange of sizes.
    bytes: AtomicU64,
}

/// A rank whose memory loads and stores reach.
#[derive(Clone, Copy)]
pub(super) struct Near {
    /// Its position among the members of the domain.
    pub(super) member: usize,
    /// Bytes of its region, in which its pinned segments lie.
    pub(super) region_bytes: u64,
}

pub(super) struct Segments {
    windows: Box<[Window]>,
    /// By rank: the agent of its node, if its segment is only reached through that. Looked up once, because every put and get
    /// of another node's memory asks.
    servers: Box<[Option<Peer>]>,
    /// By rank.
    near: Box<[Option<Near>]>,
    shared: SharedWords,
    pub(super) further: Further,
    /// True if this endpoint serves the segments of other ranks.
    pub(super) serves: AtomicBool,
}

impl Segments {
    pub(super) fn new(layout: &Layout, shared: SharedWords, domain: Option<&Domain>) -> Self {
        let window = |_| Window { base: AtomicPtr::default(), bytes: AtomicU64::new(UNKNOWN) };
        let ranks = || (0..layout.ranks()).map(Rank);
        let near = |rank| {
            let owner = layout.peer_of_rank(rank);
            let member = domain?.member_index(owner)?;
            let region_bytes = domain?.region_bytes(owner, RegionId::SEGMENT).unwrap_or(0);
            Some(Near { member, region_bytes })
        };
        let near: Box<[Option<Near>]> = ranks().map(near).collect();
        let server =
            |rank: Rank| near[rank.0 as usize].is_none().then(|| layout.agent_of(layout.node_of(rank)));
        Self {
            windows: ranks().map(window).collect(),
            servers: ranks().map(server).collect(),
            near,
            shared,
            further: Further::default(),
            serves: AtomicBool::new(false),
        }
    }

    /// The address of a range of a rank's part of a segment, if its window is open and contains the range.
    #[inline(always)]
    pub(super) fn reach(&self, part: PinnedPart, offset: u64, bytes: usize) -> Option<*mut u8> {
        if part.region != RegionId::SEGMENT {
            return self.reach_further(part, offset, bytes);
        }
        let window = self.windows.get(part.owner.0 as usize)?;
        let base = window.base.load(Ordering::Acquire);
        let limit = window.bytes.load(Ordering::Relaxed);
        if base.is_null() || offset > limit || bytes as u64 > limit - offset {
            return None;
        }
        Some(base.wrapping_add(offset as usize))
    }

    /// The agent that serves a range of a rank's segment, if loads and stores do not reach it, its size is known and it
    /// has the range.
    #[inline]
    pub(super) fn server(&self, rank: Rank, offset: u64, bytes: u64) -> Option<Peer> {
        let server = self.server_of(rank)?;
        let limit = self.windows[rank.0 as usize].bytes.load(Ordering::Relaxed);
        (limit != UNKNOWN && offset <= limit && bytes <= limit - offset).then_some(server)
    }

    /// The first address of a rank's region, if its window is open.
    pub(super) fn base(&self, rank: Rank) -> Option<*mut u8> {
        let base = self.windows.get(rank.0 as usize)?.base.load(Ordering::Acquire);
        (!base.is_null()).then_some(base)
    }

    /// A rank of this domain.
    pub(super) fn near(&self, rank: Rank) -> Option<Near> {
        *self.near.get(rank.0 as usize)?
    }

    /// The agent that serves a rank's segments, if loads and stores do not reach them.
    pub(super) fn server_of(&self, rank: Rank) -> Option<Peer> {
        *self.servers.get(rank.0 as usize)?
    }

    pub(super) fn shared(&self) -> &SharedWords {
        &self.shared
    }

    pub(super) fn attached_bytes(&self, member_index: usize) -> Option<u64> {
        self.shared.member(member_index).attached.load(Ordering::Acquire).checked_sub(1)
    }

    /// Opens the window of a member's region. It has no bytes until the member has attached its first segment there.
    fn open(&self, domain: &Domain, rank: Rank, owner: Peer) -> Result<()> {
        let region = RegionId::SEGMENT;
        let window = &self.windows[rank.0 as usize];
        let is_open = !window.base.load(Ordering::Acquire).is_null();
        if is_open && window.bytes.load(Ordering::Relaxed) > 0 {
            return Ok(());
        }
        let index = domain.member_index(owner).ok_or(RmaError::NoSuchRegion { owner, region })?;
        let bytes = self.attached_bytes(index).unwrap_or(0);
        if is_open && bytes == 0 {
            return Ok(());
        }
        // The domain keeps the mapping as long as it lives, and the endpoint keeps the domain.
        let mapping = domain.map(owner, region)?;
        if bytes > mapping.bytes() as u64 {
            let what = format!("it attached {bytes} bytes of a region of {}", mapping.bytes());
            return Err(RmaError::Protocol { peer: Some(owner), what });
        }
        window.bytes.store(bytes, Ordering::Relaxed);
        window.base.store(mapping.base(), Ordering::Release);
        Ok(())
    }
}

/// Access path of a put or get.
pub(super) enum Reach {
    /// By copy.
    Here(*mut u8),
    /// Through this peer, the agent of the rank's node.
    Through(Peer),
}

impl Endpoint {
    /// Attaches this rank's pinned segment of `bytes` bytes, once; collective over all ranks: every rank calls it, with
    /// a size of its own. When it returns the segments of all ranks can be used by all.
    ///
    /// Errors: more than the region that the domain has for it; no domain ([`RmaError::NoSuchRegion`]) unless `bytes`
    /// is 0.
    pub fn attach_segment(&self, bytes: u64) -> Result<()> {
        self.attach_first(bytes)?;
        let sizes = self.barrier_with(&bytes.to_le_bytes())?;
        for (rank, size) in (0..).map(Rank).zip(sizes) {
            let Ok(size) = size.as_slice().try_into().map(u64::from_le_bytes) else {
                let what = format!("{} bytes as the size of its segment", size.len());
                return Err(RmaError::Protocol { peer: Some(self.layout.peer_of_rank(rank)), what });
            };
            self.know_first(rank, size);
        }
        Ok(())
    }

    /// Attaches this rank's part of the first segment, at the beginning of its region.
    pub(super) fn attach_first(&self, bytes: u64) -> Result<()> {
        let (owner, region) = (self.me, RegionId::SEGMENT);
        let rank = self.rank().ok_or_else(|| RmaError::Usage("an agent has no segment".into()))?;
        if bytes == 0 && self.domain.as_ref().is_none_or(|d| d.region_bytes(owner, region).is_none()) {
            return Ok(());
        }
        let domain = self.domain.as_ref().ok_or(RmaError::NoSuchRegion { owner, region })?;
        let limit = domain.region_bytes(owner, region).ok_or(RmaError::NoSuchRegion { owner, region })?;
        let index = domain.member_index(owner).ok_or(RmaError::NoSuchRegion { owner, region })?;
        // Other parts are at the end.
        let limit = self.segments.further.first_byte().map_or(limit, |first| first.min(limit));
        if bytes > limit {
            return Err(RmaError::OutOfRange { owner, region, offset: 0, bytes, limit });
        }
        let word = &self.segments.shared.member(index).attached;
        if word.compare_exchange(0, bytes + 1, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return Err(RmaError::Usage("a segment is attached once".into()));
        }
        self.segments.open(domain, rank, owner)?;
        domain.map(owner, region)?.include_in_dumps(0, bytes as usize);
        if let Some(network) = &self.network
            && bytes > 0
        {
            network.offer(region, domain.map(owner, region)?.span(0, bytes as usize));
        }
        Ok(())
    }

    /// Gives this rank's part of the first segment up: its memory goes back to the system.
    pub(super) fn detach_first(&self) -> Result<()> {
        let (owner, region) = (self.me, RegionId::SEGMENT);
        let missing = || RmaError::NoSuchRegion { owner, region };
        let (rank, domain) = self.rank().zip(self.domain.as_ref()).ok_or_else(missing)?;
        let index = domain.member_index(owner).ok_or_else(missing)?;
        let bytes = self.segments.attached_bytes(index).ok_or_else(missing)?;
        self.segments.windows[rank.0 as usize].bytes.store(0, Ordering::Relaxed);
        if let Some(network) = &self.network {
            network.forget(owner, region);
        }
        domain.discard(owner, region, 0..bytes)?;
        self.segments.shared.member(index).attached.store(0, Ordering::Release);
        Ok(())
    }

    /// Notes how large another rank's part of the first segment is.
    pub(super) fn know_first(&self, rank: Rank, bytes: u64) {
        // Sizes in shared memory need no message.
        if self.segments.near(rank).is_none()
            && let Some(window) = self.segments.windows.get(rank.0 as usize)
        {
            window.bytes.store(bytes, Ordering::Relaxed);
        }
    }

    /// Bytes of a rank's part of the first segment; none if nothing is known of it here.
    pub(super) fn first_bytes(&self, rank: Rank) -> Option<u64> {
        match self.segments.near(rank) {
            Some(near) => self.segments.attached_bytes(near.member),
            None => {
                let bytes = self.segments.windows.get(rank.0 as usize)?.bytes.load(Ordering::Relaxed);
                Some(bytes).filter(|&bytes| bytes != UNKNOWN)
            }
        }
    }

    /// Returns the known sizes of every rank's pinned segment; complete after [`Endpoint::attach_segment`].
    pub fn segment_info(&self) -> Vec<SegmentInfo> {
        let ranks = (0..self.layout.ranks()).map(Rank);
        let info = ranks.map(|rank| {
            let window = &self.segments.windows[rank.0 as usize];
            // A segment that can't be reached by loads has no address; that is an answer, not an error.
            let _ = self.open_window(rank);
            let address = Some(window.base.load(Ordering::Acquire)).filter(|base| !base.is_null());
            let bytes = Some(window.bytes.load(Ordering::Relaxed)).filter(|&bytes| bytes != UNKNOWN);
            SegmentInfo { rank, bytes: bytes.unwrap_or(0), address }
        });
        info.collect()
    }

    pub(super) fn open_window(&self, rank: Rank) -> Result<()> {
        match &self.domain {
            Some(domain) => self.segments.open(domain, rank, self.layout.peer_of_rank(rank)),
            None => Err(RmaError::NoSuchRegion { owner: self.me, region: RegionId::SEGMENT }),
        }
    }

    /// The slow path of [`Segments::reach`]: opens the window, or finds the rank's server, or returns the
    /// error.
    #[cold]
    pub(super) fn reach_slow(&self, part: PinnedPart, offset: u64, bytes: u64) -> Result<Reach> {
        if part.region != RegionId::SEGMENT {
            return self.reach_further_slow(part, offset, bytes);
        }
        let rank = part.owner;
        let through = || {
            let server = self.segments.server(rank, offset, bytes)?;
            (!matches!(self.routes[server.0 as usize], Route::Nowhere)).then_some(Reach::Through(server))
        };
        if let Some(reach) = through() {
            return Ok(reach);
        }
        let (owner, region) = (self.layout.peer_of_rank(rank), RegionId::SEGMENT);
        if rank.0 >= self.layout.ranks() {
            return Err(RmaError::Usage(format!("there is no {rank}; the job has {}", self.layout.ranks())));
        }
        let is_member = self.domain.as_ref().is_some_and(|domain| domain.member_index(owner).is_some());
        let known = || self.first_bytes(rank).unwrap_or(UNKNOWN);
        let opened = if is_member { self.open_window(rank) } else { Ok(()) };
        // Asked of its agent, this would be an error of the whole job.
        if known() == UNKNOWN && matches!(opened, Ok(()) | Err(RmaError::NoSuchRegion { .. })) {
            let what = format!(
                "the pinned segment of {rank} is used before it is known here; attach segments first, on all ranks"
            );
            return Err(RmaError::Usage(what));
        }
        opened?;
        let limit = known();
        if offset.checked_add(bytes).is_none_or(|end| end > limit) {
            return Err(RmaError::OutOfRange { owner, region, offset, bytes, limit });
        }
        if is_member {
            let base = self.segments.reach(part, offset, bytes as usize);
            return base.map(Reach::Here).ok_or(RmaError::NoSuchRegion { owner, region });
        }
        // Its size may have become known since.
        through().ok_or(RmaError::NoSuchRegion { owner, region })
    }

    /// Checks what the receiver of a long message can't prevent, because the sender itself copies the payload: a region
    /// has more room than the segment that was attached in it.
    pub(super) fn check_long_to_member(&self, source: Source<'_>, destination: Destination) -> Result<()> {
        let Destination::Region { region: RegionId::SEGMENT, owner, offset } = destination else {
            return Ok(());
        };
        let missing = RmaError::NoSuchRegion { owner, region: RegionId::SEGMENT };
        let Some(rank) = self.layout.rank_of_peer(owner) else { return Err(missing) };
        if self.segments.reach(rank.into(), offset, source.bytes()).is_some() {
            return Ok(());
        }
        match self.reach_slow(rank.into(), offset, source.bytes() as u64)? {
            Reach::Here(_) => Ok(()),
            Reach::Through(_) => Err(missing),
        }
    }

    /// The address for the payload of a long message from `from`; everything it says is checked.
    pub(super) fn region_destination(
        &self,
        from: Peer,
        region: RegionId,
        owner: Peer,
        offset: u64,
        bytes: usize,
    ) -> Result<*mut u8> {
        let fault = |what: String| RmaError::Protocol { peer: Some(from), what };
        let outside = |limit: u64| {
            fault(format!(
                "{bytes} bytes at offset {offset} of region {} of {owner}, which has {limit}",
                region.0
            ))
        };
        let guard = self.guards.get(usize::from(region.0)).and_then(|guard| guard.get());
        if owner == self.me && guard.is_some_and(|expects| !expects(from, offset, bytes)) {
            return Err(fault(format!("{bytes} bytes at offset {offset} of region {}, unasked", region.0)));
        }
        let exposed = self.exposed.read().unwrap_or_else(|e| e.into_inner()).get(&region).cloned();
        let mapping = match (region, exposed) {
            (_, Some(mapping)) if owner == self.me => mapping,
            (region, _) if region.is_segment() => {
                let part = self.served_part(from, owner, region.0.into())?;
                return self.segment_address(from, part, offset, bytes as u64);
            }
            (RegionId::BLOCKS, _) if owner == self.me => {
                let domain = self.domain.as_ref().ok_or(RmaError::NoSuchRegion { owner, region });
                domain
                    .and_then(|domain| domain.map(owner, region))
                    .map_err(|error| fault(error.to_string()))?
            }
            _ => return Err(fault(format!("a payload for region {} of {owner}", region.0))),
        };
        if !mapping.contains(offset, bytes as u64) {
            return Err(outside(mapping.bytes() as u64));
        }
        // Exposed mappings and those of the domain live as long as the endpoint.
        Ok(mapping.base().wrapping_add(offset as usize))
    }

    /// The memory of a region that peers may reach here, as far as it is in use: all of the blocks, the attached part of a
    /// segment.
    pub fn registrable(&self, from: Peer, owner: Peer, region: RegionId) -> Option<Span> {
        let whole = |mapping: Arc<Mapping>| mapping.span(0, mapping.bytes());
        let exposed = self.exposed.read().unwrap_or_else(|e| e.into_inner()).get(&region).cloned();
        match (region, exposed) {
            (_, Some(mapping)) if owner == self.me => Some(whole(mapping)),
            (region, _) if region.is_segment() => {
                let part = self.served_part(from, owner, region.0.into()).ok()?;
                let domain = self.domain.as_ref()?;
                self.segments.open(domain, part.owner, owner).ok()?;
                let used = match region {
                    RegionId::SEGMENT => {
                        0..self.segments.windows[part.owner.0 as usize].bytes.load(Ordering::Relaxed)
                    }
                    _ => self.segments.part_near(part)?,
                };
                let memory = domain.map(owner, RegionId::SEGMENT).ok().filter(|_| !used.is_empty())?;
                Some(memory.span(used.start as usize, (used.end - used.start) as usize))
            }
            // Blocks come from agents only. A card does not check each write, as a guard does: a peer with
            // access is trusted with all of them.
            (RegionId::BLOCKS, _) if owner == self.me && self.layout.rank_of_peer(from).is_none() => {
                self.domain.as_ref()?.map(owner, region).ok().map(whole)
            }
            _ => None,
        }
    }

    /// The offset in this rank's first pinned segment of bytes of this process, if all of them lie in it.
    pub(crate) fn offset_in_segment(&self, address: *const u8, bytes: usize) -> Option<u64> {
        let first = PinnedPart::from(self.rank()?);
        let base = self.segments.reach(first, 0, 0)?;
        let offset = (address.addr() as u64).checked_sub(base.addr() as u64)?;
        self.segments.reach(first, offset, bytes).map(|_| offset)
    }

    /// The address of a range of the first pinned segment of a rank of this domain; none if it is not inside.
    pub(crate) fn near_address(&self, rank: Rank, offset: u64, bytes: usize) -> Option<*mut u8> {
        let reach = || self.segments.reach(rank.into(), offset, bytes);
        reach().or_else(|| {
            self.open_window(rank).ok()?;
            reach()
        })
    }

    /// The part of a pinned segment that a peer names, which this endpoint must own or serve.
    pub(super) fn served_part(&self, from: Peer, owner: Peer, region: u32) -> Result<PinnedPart> {
        let may = owner == self.me || self.segments.serves.load(Ordering::Acquire);
        let rank = self.layout.rank_of_peer(owner).filter(|_| may && self.layout.contains(owner));
        let region = u16::try_from(region).map(RegionId).ok().filter(|region| region.is_segment());
        match (rank, region) {
            (Some(owner), Some(region)) => Ok(PinnedPart { region, owner }),
            _ => {
                let what = format!("an access to a segment of {owner}, which is not served here");
                Err(RmaError::Protocol { peer: Some(from), what })
            }
        }
    }

    /// Encodes the name of a part of a pinned segment for messages.
    pub(super) fn name_of(&self, part: PinnedPart) -> [u32; 2] {
        [self.layout.peer_of_rank(part.owner).0, part.region.0.into()]
    }

    /// [`Endpoint::segment_address`] of a part by such a name.
    pub(super) fn named_address(
        &self,
        from: Peer,
        [owner, region]: [u32; 2],
        offset: u64,
        bytes: u64,
    ) -> Result<*mut u8> {
        let part = self.served_part(from, Peer(owner), region)?;
        self.segment_address(from, part, offset, bytes)
    }

    /// The address of a range of a pinned segment that this endpoint owns or serves, for a peer that names it.
    fn segment_address(&self, from: Peer, part: PinnedPart, offset: u64, bytes: u64) -> Result<*mut u8> {
        if let Some(address) = self.segments.reach(part, offset, bytes as usize) {
            return Ok(address);
        }
        let fault = |what: String| RmaError::Protocol { peer: Some(from), what };
        match self.reach_slow(part, offset, bytes) {
            Ok(Reach::Here(address)) => Ok(address),
            Ok(Reach::Through(_)) => {
                Err(fault(format!("an access to a segment of {} on another node", part.owner)))
            }
            Err(error) => Err(fault(error.to_string())),
        }
    }
}
