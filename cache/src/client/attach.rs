//! The life of a segment, as a rank asks its agent for it: room, a part of its own, learning of others', checkpoints, the end.

use super::remote::RemoteState;
use super::{Client, Created, SegmentPages};
use crate::error::{CacheError, Failure, FailureKind, PAGE_UNKNOWN};
use crate::page::PageInSegment;
use crate::partition::{Partition, PartitionId, SegmentId};
use crate::pool::{INLINE_BYTES, Known, PageSize, WaitId};
use crate::request::{About, Attached, Detach, Extent, InPlace, Named, Request, Room, handler};
use std::time::{Duration, Instant};
use vgas_nvm::{COMPANIONS_MAX, Companion};
use vgas_rma::address::{NodeId, Rank};
use vgas_rma::conduit::Sent;
use vgas_rma::message::Payload;
use vgas_shm::cores;

/// Pieces of an agent's words that a client asks for at most: 4 KiB of them.
const WHY_PIECES_MAX: u32 = 64;

/// How long a new size of pages waits for room in the cache.
const ROOM_TIMEOUT: Duration = Duration::from_secs(10);

impl Client {
    /// Creates this rank's partition of a segment at its agent; a name keeps it after the job. `bytes` may be 0: then there is
    /// none. Agreement on everybody's is the caller's, with [`Client::know`], and on the checkpoint that named ones are opened at,
    /// too.
    ///
    /// # Errors
    /// [`CacheError::Segment`] with the agent's words.
    pub fn attach(
        &self,
        spec: SegmentPages,
        bytes: u64,
        named: Option<&Named>,
    ) -> Result<Created, CacheError> {
        let SegmentPages { segment, size, policy } = spec;
        let pages = bytes.div_ceil(size.bytes().into());
        let data = named.map(Named::encode).unwrap_or_default();
        let request = |wait| Request::Attach { pages, segment, size, policy, wait };
        let Attached { first, read_only } = Attached::decode(&self.ask_about(segment, request, &data)?);
        let read_only = (read_only != 0).then(|| Failure::from_code(read_only));
        Ok(Created { first, bytes, relaxed: false, read_only })
    }

    /// Has this node's cache keep room for pages of a size, before the first segment that has such pages is attached or learnt of.
    /// Waits while memory that pages of other sizes have is emptied.
    ///
    /// # Errors
    /// [`CacheError::Usage`] when it has too few blocks for so many sizes or nothing can leave it, at once, or when too much of it is
    /// pinned, after ten seconds. Each says what to do.
    pub fn make_room(&self, size: PageSize) -> Result<(), CacheError> {
        let most = self.pool.layout().spec().page_bytes_max;
        if size.bytes() > most {
            let what = format!("pages of {} bytes where the cache has room for {most} at most", size.bytes());
            return Err(CacheError::Usage(what));
        }
        if size == self.pool.layout().page_size() && self.segments.has_first() {
            return Ok(());
        }
        let began = Instant::now();
        let mut naps = 0;
        loop {
            let answer = self.ask(|wait| Request::Room { size, wait }, &[]).map_err(|error| match error {
                CacheError::Page { reason, place, .. } => CacheError::Usage(format!(
                    "pages of {} bytes find no room in the node's cache, which others cannot leave: {}",
                    size.bytes(),
                    reason.describe(&place)
                )),
                error => error,
            })?;
            match Room::decode(&answer) {
                Room::There => return Ok(()),
                Room::NotYet => {}
                Room::Never { least, blocks } => {
                    return Err(CacheError::Usage(format!(
                        "pages of {} bytes find no room in the node's cache: the sizes of pages that there are need {least} of its blocks \
                         with them, and it has {blocks}; use fewer sizes, fewer threads of the agent (agent.threads), or raise \
                         cache.size (--cache)",
                        size.bytes()
                    )));
                }
            }
            if began.elapsed() >= ROOM_TIMEOUT {
                return Err(CacheError::Usage(format!(
                    "pages of {} bytes find no room in the node's cache: those of other sizes need theirs, and what is pinned stays; unpin some, use fewer sizes, or \
                     raise cache.size (--cache)",
                    size.bytes()
                )));
            }
            cores::nap(&mut naps);
        }
    }

    /// Why a partition can only be read, as an error of whoever wants to write.
    pub fn check_writable(&self, of: impl Into<PartitionId>) -> Result<(), CacheError> {
        let of = of.into();
        match self.segments.refusal(of) {
            Some(reason) => {
                Err(CacheError::ReadOnly { owner: of, reason, place: self.core.place(of.owner, reason) })
            }
            None => Ok(()),
        }
    }

    /// Says which partitions a segment has, those of the ranks from one on, here and to the agent: what [`Client::attach`] has
    /// told each rank. After all of them have attached, and before any uses another's.
    ///
    /// # Errors
    /// [`CacheError::Page`] when the agent knows other partitions there.
    pub fn know(
        &self,
        spec: SegmentPages,
        first_rank: Rank,
        partitions: &[Created],
    ) -> Result<(), CacheError> {
        let SegmentPages { segment, size, policy } = spec;
        let words = partitions.iter().flat_map(|one| [one.first.0, one.bytes.div_ceil(size.bytes().into())]);
        let words: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        let most = (self.core.medium_max / 16).max(1);
        for (first, part) in (first_rank.0..).step_by(most).map(Rank).zip(words.chunks(16 * most)) {
            let request = |wait| Request::Partitions { segment, size, policy, first_rank: first, wait };
            self.ask_and_wait(request, part)?;
        }
        self.know_here(spec, first_rank, partitions)
    }

    /// The half of [`Client::know`] that concerns this client alone: for those who have told the agent in their own way, because
    /// they must not block.
    ///
    /// # Errors
    /// [`CacheError::Usage`] for a segment or a rank that cannot be.
    pub fn know_here(
        &self,
        spec: SegmentPages,
        first_rank: Rank,
        partitions: &[Created],
    ) -> Result<(), CacheError> {
        let SegmentPages { segment, size, policy } = spec;
        for (owner, one) in (first_rank.0..).map(Rank).zip(partitions) {
            let Created { first, bytes, relaxed, read_only } = *one;
            // A full disk may take what the cache holds later, or never be asked for it.
            let read_only = read_only.filter(|failure| failure.kind != FailureKind::NoSpace);
            let pages = bytes.div_ceil(size.bytes().into());
            let partition = Partition { segment, owner, size, first, pages, policy, shared: false };
            let known = Known { partition, bytes, relaxed, read_only: read_only.is_some() };
            if !self.segments.insert(known, read_only) {
                return Err(CacheError::Usage(format!("there is no {}", partition.id())));
            }
        }
        Ok(())
    }

    /// Ends this rank's use of a segment: what is in flight of its own is waited for, nothing new can begin. Puts that have been
    /// started are to be complete. The first step of three, each taken by all ranks before the next by any.
    ///
    /// # Errors
    /// Those of relaxed puts that were still waiting.
    pub fn leave(&self, segment: SegmentId) -> Result<(), CacheError> {
        self.flush_relaxed()?;
        self.segments.remove(segment);
        self.core.own.leave(&self.core, segment);
        Ok(())
    }

    /// The two steps that follow: the node gives up its copies, and then forgets the segment.
    ///
    /// # Errors
    /// [`CacheError::Page`] when somebody uses it still.
    pub fn detach(&self, segment: SegmentId, step: Detach) -> Result<(), CacheError> {
        self.ask_and_wait(|wait| Request::Detach { segment, step, wait }, &[])
    }

    /// Learns of a partition that its owner has attached by itself: here and at the agent. Nothing happens where it is known.
    ///
    /// # Errors
    /// [`CacheError::OutOfRange`] when its owner has none of that name.
    pub fn learn(&self, of: impl Into<PartitionId>) -> Result<(), CacheError> {
        let of = of.into();
        if self.segments.find(of).is_some() {
            return Ok(());
        }
        let home = self.core.home(of.owner);
        let Some(Extent { first, pages, size, policy }) =
            self.ask_about_partition(home, of, About::Describe)?.as_deref().and_then(Extent::decode)
        else {
            return Err(CacheError::OutOfRange { owner: of, offset: 0, bytes: 0, limit: 0 });
        };
        self.make_room(size)?;
        let spec = SegmentPages { segment: of.segment, size, policy };
        let bytes = pages << size.shift();
        self.know(spec, of.owner, &[Created { first, bytes, ..Created::default() }])
    }

    /// Gives a partition up that this rank has attached by itself: first every node gives up its copies, then every node
    /// forgets it.
    ///
    /// # Errors
    /// [`CacheError::Page`] when somebody uses it still.
    pub fn detach_own(&self, of: impl Into<PartitionId>) -> Result<(), CacheError> {
        let of = of.into();
        self.flush_relaxed()?;
        self.segments.remove_own(of);
        self.core.own.leave(&self.core, of.segment);
        // The home last: it waits until nobody else has copies.
        let home = self.core.home(of.owner);
        let others = (0..self.core.layout.nodes()).map(NodeId).filter(|node| *node != home);
        let nodes: Vec<NodeId> = others.chain([home]).collect();
        for what in [About::Withdraw, About::Forget] {
            for &node in &nodes {
                self.ask_about_partition(node, of, what)?;
            }
        }
        Ok(())
    }

    /// The answer of a node's agent; none when it has nothing of the kind.
    fn ask_about_partition(
        &self,
        node: NodeId,
        of: PartitionId,
        what: About,
    ) -> Result<Option<Vec<u8>>, CacheError> {
        let core = &self.core;
        let agent = core.layout.agent_of(node);
        let mut asked = None;
        let mut state = RemoteState::Pending;
        self.wait_for(|| {
            if asked.is_none()
                && let Some(number) = core.remote.begin(agent)
            {
                let words = InPlace::Partition { of, what, number }.encode();
                match core.endpoint.try_request(agent, handler::IN_PLACE, &words, Payload::Short)? {
                    Sent::Accepted => asked = Some(number),
                    Sent::Busy => drop(core.remote.abandon(number)),
                }
            }
            let Some(number) = asked else { return Ok(false) };
            state = core.remote.finish(number);
            core.check_awaited(number)?;
            Ok(state != RemoteState::Pending)
        })?;
        match state {
            RemoteState::Done(bytes) => Ok(Some(bytes)),
            RemoteState::Failed(_, code) => Err(core.failed(of, PageInSegment(0), code, PAGE_UNKNOWN)),
            RemoteState::NotInPlace | RemoteState::Landed | RemoteState::Pending => Ok(None),
        }
    }

    /// Makes this rank's own named segment durable: everything written to it by this rank, and by others who told it
    /// before the call (after a barrier: everything before the barrier). Returns when it would survive a crash.
    ///
    /// It is this rank's checkpoint alone: a job whose ranks have not made equally many of them when it ends badly cannot be
    /// reopened. A checkpoint of the job takes the three steps that follow, each on all ranks before the next on any.
    pub fn checkpoint(&self, segment: SegmentId) -> Result<(), CacheError> {
        self.ask_about(segment, |wait| Request::Checkpoint { segment, wait }, &[]).map(drop)
    }

    /// The first step of the job's checkpoint: brings everything that [`Client::checkpoint`] would make durable to the NVMe.
    pub fn clean(&self, segment: SegmentId) -> Result<(), CacheError> {
        self.ask_about(segment, |wait| Request::Clean { segment, wait }, &[]).map(drop)
    }

    /// The second step: a checkpoint that is durable beside the last one. `identity` is the same on all ranks and was never
    /// used before. When all ranks have taken it, a job that is killed is reopened at this checkpoint; until then, at the
    /// one before. The checkpoint names its `companions`, at most [`Client::companions_max`].
    pub fn prepare(
        &self,
        segment: SegmentId,
        identity: u64,
        companions: &[Companion],
    ) -> Result<(), CacheError> {
        let companions = Companion::encode_all(companions);
        self.ask_about(segment, |wait| Request::Prepare { segment, identity, wait }, &companions).map(drop)
    }

    /// Most other named segments that a checkpoint can name: what a file has room for, and a message.
    pub fn companions_max(&self) -> usize {
        COMPANIONS_MAX.min(self.core.medium_max / Companion::BYTES)
    }

    /// The third step: with `commit`, which all ranks have prepared for, the one before is not needed any more. Without,
    /// the checkpoint is given up, also by a rank that could not prepare it.
    pub fn conclude(&self, segment: SegmentId, commit: bool) -> Result<(), CacheError> {
        self.ask_about(segment, |wait| Request::Conclude { segment, commit, wait }, &[]).map(drop)
    }

    /// A request about this rank's partition as a whole, of which the agent can say why it fails.
    fn ask_about(
        &self,
        segment: SegmentId,
        request: impl Fn(WaitId) -> Request,
        data: &[u8],
    ) -> Result<[u8; INLINE_BYTES], CacheError> {
        match self.ask(request, data) {
            Err(CacheError::Page { owner: PartitionId { owner, .. }, reason, place, .. }) => {
                let said = self.ask_why(segment)?;
                let why = if said.is_empty() { reason.describe(&place) } else { said };
                Err(CacheError::Segment { owner: PartitionId { segment, owner }, reason, place, why })
            }
            other => other,
        }
    }

    fn ask_why(&self, segment: SegmentId) -> Result<String, CacheError> {
        let mut said = Vec::new();
        for piece in 0..WHY_PIECES_MAX {
            let bytes = self.ask(|wait| Request::Why { segment, piece, wait }, &[])?;
            let text = bytes.iter().take_while(|byte| **byte != 0);
            let before = said.len();
            said.extend(text);
            if said.len() < before + bytes.len() {
                break;
            }
        }
        Ok(String::from_utf8_lossy(&said).into_owned())
    }
}
