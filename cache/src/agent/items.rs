//! What the parts of an agent hand to each other: requests in flight and what waits for them.
//!
//! A leaf: it names no other file of the agent but the wire's words, so that files which pass these on need not know each other.

use super::wire::Coherence;
use crate::error::Failure;
use crate::page::PageIndex;
use crate::partition::Which;
use crate::pool::{FaultId, FrameId, PageSize, WaitId};
use crate::request::InPlace;
use smallvec::SmallVec;
use vgas_rma::address::{NodeId, Peer};
use vgas_shm::{Span, Update};

/// Most pages that one request for reading may name; a client's windows are smaller.
pub(super) const READ_PAGES_MAX: u32 = 256;

/// Answers that may wait for a peer: as many as a rank can wait for.
pub(super) const ANSWERS_MAX: usize = 1 << 16;

/// A rank's operation that waits for something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waiter {
    pub local_rank: u32,
    pub wait: WaitId,
}

/// A put that was posted with its data.
#[derive(Debug)]
pub(super) enum PostedPut {
    /// Some bytes of the page. The waiter is told at the end.
    Part { offset: u32, data: Box<[u8]>, waiter: Option<Waiter> },
    /// Work on a piece of the page, at its home. Among the puts, because it keeps its place among them; work that only reads asks
    /// for the right to read.
    Work { offset: u32, work: FrameWork, piece: WorkPiece },
    /// All of it, in a frame. The frame is gone from here once it has become the page's own.
    Whole { frame: Option<FrameId>, waiter: Waiter },
}

/// A small operation that the home applies in place.
#[derive(Debug)]
pub(super) struct InPlaceWork {
    /// The peer that gets the answer.
    pub from: Peer,
    pub operation: InPlace,
    pub data: Box<[u8]>,
}

/// A thread that waits for a page to be mapped.
#[derive(Clone, Copy, Debug)]
pub(super) struct MapRequest {
    pub id: FaultId,
    pub write: bool,
}

/// A request that waits for the end of a claim.
#[derive(Debug)]
pub(super) enum ParkedRequest {
    Read(Waiter),
    Put(PostedPut),
    Own(Waiter),
    Map(MapRequest),
    Home(NodeId, Coherence),
    InPlace(Peer, InPlace, Box<[u8]>),
}

/// A message from one shard of an agent to another.
#[derive(Clone, Debug)]
pub(super) enum ShardMessage {
    /// A rank has unmapped this page.
    Unmapped(FaultId, PageIndex),
    /// A rank has unmapped all of its pages of the partition of this one.
    UnmappedAll(FaultId, PageIndex),
    /// A rank has filled this frame with this page by itself.
    Filled(FrameId, PageIndex),
    /// Bring the receiver's cached pages of a segment to NVMe.
    Clean(u32),
    /// That is done, or has failed.
    Cleaned(u32, Option<Failure>),
    /// The sender has nothing to evict: free so many frames for pages of this size.
    MakeRoom(PageSize, u32),
    /// Evict the receiver's pages in this block of the pool.
    Vacate(u32),
    /// Evict the receiver's pages of a segment, and report the end.
    Withdraw(Which),
    /// That is done.
    Withdrawn(Which),
    /// No shard has anything of a segment any more.
    Forget(Which),
    /// Do this with a piece of a page.
    Work(PageIndex, u32, FrameWork, WorkPiece),
    /// That is done, or cannot be.
    Worked(WorkPiece, Result<SmallVec<[u8; 8]>, Failure>),
}

slotmap::new_key_type! {
    /// Work that ends together.
    pub(super) struct BatchKey;
}

/// A piece of a batch, until it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WorkPiece {
    /// The shard of the batch.
    pub shard: u32,
    pub batch: BatchKey,
    pub number: u32,
    /// First byte of its result in that of the batch.
    pub at: u32,
}

/// Work on a piece of a page.
#[derive(Clone, Debug)]
pub(super) enum FrameWork {
    /// Returns the word's earlier value, in eight bytes.
    Update(Update),
    /// Returns so many bytes.
    Read(u32),
    /// The same, if this node has the page now.
    ReadInMemory(u32),
    /// Copies the bytes there, and returns none.
    Stage(Span),
    Write(Box<[u8]>),
}

impl FrameWork {
    /// Whether it leaves the page as it is, whatever the page holds.
    pub fn only_reads(&self) -> bool {
        matches!(self, Self::Read(_) | Self::ReadInMemory(_) | Self::Stage(_))
    }

    /// Does work that leaves the page as it is: reads, and an update whose result is what the word is already, such as a compare
    /// and swap that fails. None: the work changes the page, and nothing was done.
    pub fn apply_unchanging(&self, frame: &Span, offset: u32) -> Option<SmallVec<[u8; 8]>> {
        match self {
            Self::Update(update) => {
                let was = frame.mapping().word(frame.offset() + offset as usize, update.word);
                (update.of(was) == was).then(|| SmallVec::from_buf(was.to_le_bytes()))
            }
            _ => self.only_reads().then(|| self.apply(frame, offset)),
        }
    }

    /// Does the work on a page in this frame.
    pub fn apply(&self, frame: &Span, offset: u32) -> SmallVec<[u8; 8]> {
        let at = frame.offset() + offset as usize;
        match self {
            Self::Update(update) => SmallVec::from_buf(frame.mapping().update(at, *update).to_le_bytes()),
            Self::Read(bytes) | Self::ReadInMemory(bytes) => {
                let mut read = SmallVec::from_elem(0, *bytes as usize);
                frame.mapping().read(at, &mut read);
                read
            }
            Self::Stage(to) => {
                to.copy_from(&frame.mapping().span(at, to.bytes()));
                SmallVec::new()
            }
            Self::Write(data) => {
                frame.mapping().write(at, data);
                SmallVec::new()
            }
        }
    }
}

/// The requester of a batch.
#[derive(Debug)]
pub(super) enum WorkRequester {
    /// A rank, under this number of its own.
    Rank(Peer, u32),
    /// The same, and these bytes go to this landing of its.
    Landing(Peer, u32, u64, Span),
    /// The same, and these bytes are copied to memory of its.
    Filled(Peer, u32),
    /// A service, under this ticket.
    Service(usize, u64),
}

/// A page's home that waits for a frame of the reserve.
#[derive(Clone, Copy, Debug)]
pub(super) enum StagingRequest {
    /// To read the page for another node.
    Read(PageIndex),
    /// To receive the page from this holder.
    Pull(PageIndex, NodeId),
    /// To store a copy of the page, which its owner has mapped.
    Copy(PageIndex),
}

impl StagingRequest {
    /// The page that it is about.
    pub fn page(&self) -> PageIndex {
        match *self {
            Self::Read(page) | Self::Pull(page, _) | Self::Copy(page) => page,
        }
    }
}

/// The rank that is told when a step of detaching is done.
#[derive(Clone, Copy, Debug)]
pub(super) enum DetachRequester {
    /// A rank of this node.
    Waiter(Waiter),
    /// A rank, under this number of its own.
    Peer(Peer, u32),
}

/// The reason for bringing a segment's cached pages to NVMe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CheckpointPurpose {
    /// A checkpoint of the segment by itself.
    Flush,
    /// The job's checkpoint, which other requests go on with.
    Clean,
    /// Either, for the first shard, which goes on with it.
    Part,
}

/// Work at the volume, by its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StorageWork {
    /// A page for the directory.
    Read(PageIndex),
    /// A page from the directory.
    Write(PageIndex),
    /// A copy of a page that its owner has mapped: of this frame, in that one.
    Copy { page: PageIndex, original: FrameId, copy: FrameId },
    /// A part of a page, for a requester that wants no more; its number among those in flight.
    Part(u32),
    /// A checkpoint of a segment by itself.
    Flush(u32),
    /// A step of the job's checkpoint of a segment, and its waiter.
    Step(u32, Waiter),
}

/// A get of neighbouring pages, by a rank of another node.
#[derive(Clone, Copy, Debug)]
pub(super) struct FetchRequest {
    /// The first page.
    pub page: PageIndex,
    /// First byte in it.
    pub offset: u32,
    /// How many.
    pub bytes: u32,
    /// The rank's number of the operation.
    pub number: u32,
}

/// A small get of a page whose home is here.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartGet {
    pub page: PageIndex,
    pub offset: u32,
    pub bytes: u32,
    /// The asking rank's number.
    pub number: u32,
}
