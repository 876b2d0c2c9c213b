//! What ranks ask of their agent, and how it travels: one active message through shared memory, data included.
//!
//! A put that misses is *posted with its data*: the agent can finish it while the rank computes, so a remote node
//! never waits for a rank that holds a half-done put. Answers are words in shared memory (wait slots), not messages.

use crate::page::PageIndex;
use crate::partition::{PartitionId, Policy, SEGMENTS_MAX, SegmentId};
use crate::pool::{FrameId, INLINE_BYTES, PageSize, WaitId};
use vgas_nvm::CheckpointId;
use vgas_rma::address::Rank;
use vgas_rma::message::ARGUMENTS_MAX;
use vgas_shm::Update;

/// Handler numbers of the cache layer (the endpoint reserves 32..64 for it).
pub mod handler {
    /// Agent to agent: one coherence message without page data.
    pub const COHERENCE: u8 = 32;
    /// Agent to agent: a coherence message whose page has been written to the receiver's frame.
    pub const DATA: u8 = vgas_rma::message::NOTE_HANDLER;
    /// Agent to agent: the same coherence message about several pages.
    pub const SEVERAL: u8 = 34;
    /// Rank to its agent.
    pub const REQUEST: u8 = 35;
    /// Rank to the agent of a page's home: a small operation where the page is.
    pub const IN_PLACE: u8 = 36;
    /// Agent to rank: the answer to it.
    pub const IN_PLACE_ANSWER: u8 = 37;
    /// Rank or agent to an agent: a call of a service. Arguments: the caller's number, the service's, what is wanted.
    pub const SERVICE: u8 = 38;
    /// Agent to rank or agent: the answer to it. Arguments: the caller's number, how it ended.
    pub const SERVICE_ANSWER: u8 = 39;
}

/// What a message to a service wants: the third argument of [`handler::SERVICE`].
pub mod service_words {
    /// The service's answer to the request that follows.
    pub const CALL: u32 = 0;
    /// What the agent has counted for it.
    pub const COUNTS: u32 = 1;
    /// Nothing: the request is told, and the first argument means nothing.
    pub const TELL: u32 = 2;
    /// As [`CALL`], of a rank whose number among the peers stands above the lowest 8 bits: the agent that it has called passes it on, and the
    /// answer goes to the rank.
    pub const PASSED: u32 = 3;
    /// Bits of what is wanted.
    pub const WHAT_BITS: u32 = 8;
}

/// A rank's request to its agent. `wait` is the rank's operation that waits, of which one pending part is counted down per
/// page (reads) or per request (everything else).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Make `count` pages readable here.
    Read {
        /// First page.
        page: PageIndex,
        /// Number of neighbouring pages; each counts as one pending part.
        count: u32,
        /// As many more behind them the same operation will read.
        more: u32,
        /// Who waits.
        wait: WaitId,
    },
    /// Write the bytes that follow into a page.
    Put {
        /// The page.
        page: PageIndex,
        /// First byte in the page.
        offset: u32,
        /// Who waits.
        wait: WaitId,
    },
    /// Make a frame that the rank has filled the new content of a page; the frame belongs to the agent from now on.
    PutFrame {
        /// The page.
        page: PageIndex,
        /// A frame taken from the free frames and filled.
        frame: FrameId,
        /// Who waits.
        wait: WaitId,
    },
    /// Make a page writable here, without changing it.
    Own {
        /// The page.
        page: PageIndex,
        /// Who waits.
        wait: WaitId,
    },
    /// Bring pages in when convenient; nobody waits.
    Prefetch {
        /// First page.
        page: PageIndex,
        /// How many.
        count: u32,
    },
    /// The rank has come to a page that was marked as read-ahead trigger.
    Ahead {
        /// The page.
        page: PageIndex,
    },
    /// No frame is free for pages of this one's size: evict. Ends when a frame was free; another rank may have been quicker to
    /// take it.
    MakeRoom {
        /// Any page of the size.
        page: PageIndex,
        /// Who waits.
        wait: WaitId,
    },
    /// Create the rank's partition of a segment; the answer is an [`Attached`]. A [`Named`] may follow as data: then it is kept
    /// after the job.
    Attach {
        /// Number of pages; none: the rank has no partition.
        pages: u64,
        /// Of which segment.
        segment: SegmentId,
        /// How large the pages are.
        size: PageSize,
        /// How they are treated.
        policy: Policy,
        /// Who waits.
        wait: WaitId,
    },
    /// Keep room for pages of a size, which this node will see soon. The answer, a byte, comes at once: 0 while the room is being
    /// made, so that the rank asks again, else 1.
    Room {
        /// Which size.
        size: PageSize,
        /// Who waits.
        wait: WaitId,
    },
    /// The rank's process has attached to the pool and is about to use pages.
    Attached {
        /// Who waits.
        wait: WaitId,
    },
    /// The partitions of a segment of all ranks from this one on follow: the first page and the number of pages of each, as
    /// 8-byte little-endian numbers.
    Partitions {
        /// Of which segment.
        segment: SegmentId,
        /// How large the pages are.
        size: PageSize,
        /// How they are treated.
        policy: Policy,
        /// First rank.
        first_rank: Rank,
        /// Who waits.
        wait: WaitId,
    },
    /// Nobody uses a segment any more, anywhere: forget it, in steps that all ranks take together.
    Detach {
        /// Which.
        segment: SegmentId,
        /// What is to be done.
        step: Detach,
        /// Who waits.
        wait: WaitId,
    },
    /// Make the rank's own named segment durable, with everything written to it by anybody who has told this rank; whatever
    /// the other ranks do.
    Checkpoint {
        /// Which segment.
        segment: SegmentId,
        /// Who waits.
        wait: WaitId,
    },
    /// The first step of the job's checkpoint: bring everything written to the rank's own named segment, by anybody who has
    /// told this rank, to its NVMe.
    Clean {
        /// Which segment.
        segment: SegmentId,
        /// Who waits.
        wait: WaitId,
    },
    /// The second step: make what is on NVMe a checkpoint beside the last one. Only when all ranks are clean, because a page
    /// that is written from now on may have to wait for the third step. The data: its companions, a list of
    /// [`Companion`](vgas_nvm::Companion).
    Prepare {
        /// Which segment.
        segment: SegmentId,
        /// The same on all ranks, and never used before.
        identity: u64,
        /// Who waits.
        wait: WaitId,
    },
    /// The third step: the prepared checkpoint is the job's, or is given up.
    Conclude {
        /// Which segment.
        segment: SegmentId,
        /// All ranks have prepared it.
        commit: bool,
        /// Who waits.
        wait: WaitId,
    },
    /// Why the last of these could not be done, in words: a piece of them, answered in the wait slot.
    Why {
        /// Which segment.
        segment: SegmentId,
        /// Which piece, from 0.
        piece: u32,
        /// Who waits.
        wait: WaitId,
    },
}

/// The steps of [`Request::Detach`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detach {
    /// Give up the node's copies. What was not checkpointed is lost from here on.
    Withdraw,
    /// No node has copies: give up the node's partitions, and forget all others.
    Forget,
}

/// The answer to [`Request::Attach`], in the wait slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attached {
    /// The number of the partition's first page.
    pub first: PageIndex,
    /// Why it can only be read, as [`Failure::code`](crate::error::Failure::code); 0 when it can be written.
    pub read_only: u32,
}

impl Attached {
    /// Bytes of the encoding.
    pub const BYTES: usize = 12;

    /// As bytes.
    pub fn encode(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.first.0.to_le_bytes());
        bytes[8..].copy_from_slice(&self.read_only.to_le_bytes());
        bytes
    }

    /// From the first bytes of an answer.
    pub fn decode(bytes: &[u8; INLINE_BYTES]) -> Self {
        let (first, rest) = bytes.split_first_chunk().expect("longer");
        let code = rest.first_chunk().expect("longer");
        Self { first: PageIndex(u64::from_le_bytes(*first)), read_only: u32::from_le_bytes(*code) }
    }
}

/// The answer to [`Request::Room`], in the wait slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// Not yet: ask again.
    NotYet,
    /// The size has as many blocks of the pool as it needs.
    There,
    /// It never will beside the sizes that segments have now.
    Never {
        /// Blocks that all of them need, with this one.
        least: u32,
        /// Blocks that the pool has.
        blocks: u32,
    },
}

impl Room {
    /// As bytes.
    pub fn encode(self) -> [u8; 9] {
        let (kind, least, blocks) = match self {
            Self::NotYet => (0, 0, 0),
            Self::There => (1, 0, 0),
            Self::Never { least, blocks } => (2, least, blocks),
        };
        let mut bytes = [kind; 9];
        bytes[1..5].copy_from_slice(&u32::to_le_bytes(least));
        bytes[5..].copy_from_slice(&u32::to_le_bytes(blocks));
        bytes
    }

    /// From the first bytes of an answer.
    pub fn decode(bytes: &[u8; INLINE_BYTES]) -> Self {
        let number = |at: usize| bytes[at..].first_chunk().map_or(0, |four| u32::from_le_bytes(*four));
        match bytes[0] {
            0 => Self::NotYet,
            1 => Self::There,
            _ => Self::Never { least: number(1), blocks: number(5) },
        }
    }
}

/// What makes a tiered segment a named one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The segment's name, without its rank.
    pub name: String,
    /// At which checkpoint to open it: one that all ranks have. None: at its newest, or created.
    pub checkpoint: Option<CheckpointId>,
    /// Whether this rank says it, when that is not the newest: not all who see it need to.
    pub tells: bool,
}

impl Named {
    const HEAD_BYTES: usize = 17;

    /// As data of a request.
    pub fn encode(&self) -> Vec<u8> {
        let CheckpointId { generation, identity } = self.checkpoint.unwrap_or_default();
        let mut bytes = vec![u8::from(self.checkpoint.is_some()) | u8::from(self.tells) << 1];
        bytes.extend(generation.to_le_bytes());
        bytes.extend(identity.to_le_bytes());
        bytes.extend(self.name.as_bytes());
        bytes
    }

    /// From data; `None` when it is none.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (head, name) = bytes.split_at_checked(Self::HEAD_BYTES)?;
        let number = |at: usize| head[at..].first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        let checkpoint = CheckpointId { generation: number(1)?, identity: number(9)? };
        Some(Self {
            name: std::str::from_utf8(name).ok()?.to_owned(),
            checkpoint: (head[0] & 1 != 0).then_some(checkpoint),
            tells: head[0] & 2 != 0,
        })
    }
}

/// Arguments of one [`handler::REQUEST`].
pub type Words = [u32; 6];

const _: () = assert!(std::mem::size_of::<Words>() / 4 <= ARGUMENTS_MAX);

fn low(value: u64) -> u32 {
    value as u32
}

fn high(value: u64) -> u32 {
    (value >> 32) as u32
}

/// A segment and the size of its pages in one word.
fn kind_of(segment: SegmentId, size: PageSize) -> u32 {
    size.shift() << 16 | u32::from(segment.0)
}

fn wide(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

impl Request {
    /// As arguments of an active message.
    pub fn encode(self) -> Words {
        match self {
            Request::Read { page, count, more, wait } => [0, wait.0, low(page.0), high(page.0), count, more],
            Request::Put { page, offset, wait } => [1, wait.0, low(page.0), high(page.0), offset, 0],
            Request::PutFrame { page, frame, wait } => [2, wait.0, low(page.0), high(page.0), frame.0, 0],
            Request::Own { page, wait } => [3, wait.0, low(page.0), high(page.0), 0, 0],
            Request::Prefetch { page, count } => [4, 0, low(page.0), high(page.0), count, 0],
            Request::Ahead { page } => [5, 0, low(page.0), high(page.0), 0, 0],
            Request::Attach { pages, segment, size, policy, wait } => {
                [6, wait.0, low(pages), high(pages), kind_of(segment, size), policy.encode()]
            }
            Request::Checkpoint { segment, wait } => [7, wait.0, 0, 0, segment.0.into(), 0],
            Request::Clean { segment, wait } => [11, wait.0, 0, 0, segment.0.into(), 0],
            Request::Prepare { segment, identity, wait } => {
                [12, wait.0, low(identity), high(identity), segment.0.into(), 0]
            }
            Request::Conclude { segment, commit, wait } => {
                [13, wait.0, u32::from(commit), 0, segment.0.into(), 0]
            }
            Request::Why { segment, piece, wait } => [14, wait.0, piece, 0, segment.0.into(), 0],
            Request::Detach { segment, step, wait } => [15, wait.0, step as u32, 0, segment.0.into(), 0],
            Request::MakeRoom { page, wait } => [8, wait.0, low(page.0), high(page.0), 0, 0],
            Request::Room { size, wait } => [16, wait.0, size.bytes(), 0, 0, 0],
            Request::Attached { wait } => [10, wait.0, 0, 0, 0, 0],
            Request::Partitions { segment, size, policy, first_rank, wait } => {
                [9, wait.0, first_rank.0, 0, kind_of(segment, size), policy.encode()]
            }
        }
    }

    /// From arguments; `None` when they are no request.
    pub fn decode(words: &[u32]) -> Option<Self> {
        let &[kind, wait, l, h, a, b] = words else { return None };
        let (wait, number) = (WaitId(wait), wide(l, h));
        let page = PageIndex(number);
        let segment = || u16::try_from(a).ok().map(SegmentId).filter(|segment| segment.0 < SEGMENTS_MAX);
        let segment_and_size = || {
            let segment = Some(SegmentId(a as u16)).filter(|segment| segment.0 < SEGMENTS_MAX)?;
            Some((segment, PageSize::of_bytes(1u32.checked_shl(a >> 16)?)?))
        };
        Some(match kind {
            0 => Request::Read { page, count: a, more: b, wait },
            1 => Request::Put { page, offset: a, wait },
            2 => Request::PutFrame { page, frame: FrameId(a), wait },
            3 => Request::Own { page, wait },
            4 => Request::Prefetch { page, count: a },
            5 => Request::Ahead { page },
            6 => {
                let (segment, size) = segment_and_size()?;
                Request::Attach { pages: number, segment, size, policy: Policy::decode(b)?, wait }
            }
            7 => Request::Checkpoint { segment: segment()?, wait },
            8 => Request::MakeRoom { page, wait },
            9 => {
                let ((segment, size), policy) = (segment_and_size()?, Policy::decode(b)?);
                Request::Partitions { segment, size, policy, first_rank: Rank(l), wait }
            }
            10 => Request::Attached { wait },
            11 => Request::Clean { segment: segment()?, wait },
            12 => Request::Prepare { segment: segment()?, identity: number, wait },
            14 => Request::Why { segment: segment()?, piece: l, wait },
            13 if l <= 1 => Request::Conclude { segment: segment()?, commit: l == 1, wait },
            15 if l <= 1 => {
                let step = if l == 0 { Detach::Withdraw } else { Detach::Forget };
                Request::Detach { segment: segment()?, step, wait }
            }
            16 => Request::Room { size: PageSize::of_bytes(l)?, wait },
            _ => return None,
        })
    }
}

/// A small operation where the page is, at its home (promises 7, 8 and 9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InPlace {
    /// Answer with `bytes` bytes.
    Get {
        /// The page.
        page: PageIndex,
        /// First byte in the page.
        offset: u32,
        /// How many.
        bytes: u32,
        /// The asking rank's number of the operation, returned in the answer.
        number: u32,
    },
    /// Write the bytes that follow.
    Put {
        /// The page.
        page: PageIndex,
        /// First byte in the page.
        offset: u32,
        /// The asking rank's number of the operation, returned in the answer.
        number: u32,
    },
    /// Write pieces of the page: their list and bytes follow ([`Pieces`]).
    PutPieces {
        /// The page.
        page: PageIndex,
        /// How many pieces.
        count: u32,
        /// The asking rank's number of the operation, returned in the answer.
        number: u32,
    },
    /// Update words of pages that need not be served in place, and answer with what each was: their list follows
    /// ([`WordUpdate`]). Their home brings the pages in, if it does not have them.
    Update {
        /// The first page; the others are served by the same thread of the agent.
        page: PageIndex,
        /// How many updates.
        count: u32,
        /// The asking rank's number of the operation, returned in the answer.
        number: u32,
    },
    /// Answer with `bytes` bytes of a page, which its home brings in if it does not have it.
    Read {
        /// The page.
        page: PageIndex,
        /// First byte in the page.
        offset: u32,
        /// How many.
        bytes: u32,
        /// The asking rank's number of the operation, returned in the answer.
        number: u32,
    },
    /// Write the bytes that follow into a page, which its home brings in if it does not have it.
    Write {
        /// The page.
        page: PageIndex,
        /// First byte in the page.
        offset: u32,
        /// The asking rank's number of the operation, returned in the answer.
        number: u32,
    },
    /// About a partition as a whole: what it is, or a step of giving it up, which its owner alone may ask for.
    Partition {
        /// Which.
        of: PartitionId,
        /// What is to be done.
        what: About,
        /// The asking rank's number of the operation, returned in the answer.
        number: u32,
    },
    /// Answer with `bytes` bytes of a page that need not be served in place: from this node's copy, or from NVMe if nobody
    /// has one. No copy is made.
    Part {
        /// The page.
        page: PageIndex,
        /// First byte in the page.
        offset: u32,
        /// How many, at most what the job's settings allow.
        bytes: u32,
        /// The asking rank's number of the operation, returned in the answer.
        number: u32,
    },
    /// Send `bytes` bytes of neighbouring pages of a partition, which their home brings in if it does not have them, as one long
    /// message to the landing ([`vgas_rma::endpoint::Landing`]) whose number follows. It is the answer. Where the asking rank has
    /// [landings](crate::region::LANDINGS) in shared memory, the number is an offset in these: the home copies the bytes there, and the
    /// answer is short.
    Fetch {
        /// The first page.
        page: PageIndex,
        /// First byte in it.
        offset: u32,
        /// How many, at most [`FETCH_BYTES_MAX`].
        bytes: u32,
        /// The asking rank's number of the operation, returned in the answer.
        number: u32,
    },
}

/// Most bytes of an [`InPlace::Fetch`]: few enough that they stay in a core's cache between two copies, and that the next is on its
/// way meanwhile.
pub const FETCH_BYTES_MAX: u32 = 256 << 10;

/// What a rank wants of the agent of another node, or of its own, about a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// Answer with an [`Extent`], if it is of this node.
    Describe,
    /// [`Detach::Withdraw`], of this partition alone.
    Withdraw,
    /// [`Detach::Forget`], of this partition alone.
    Forget,
}

/// What others need to know of a partition: the answer to [`About::Describe`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The number of its first page.
    pub first: PageIndex,
    /// Number of pages.
    pub pages: u64,
    /// How large they are.
    pub size: PageSize,
    /// How they are treated.
    pub policy: Policy,
}

impl Extent {
    const BYTES: usize = 24;

    /// As bytes.
    pub fn encode(self) -> Vec<u8> {
        let Self { first, pages, size, policy } = self;
        let words = [size.bytes(), policy.encode()].map(u32::to_le_bytes);
        [&first.0.to_le_bytes()[..], &pages.to_le_bytes(), words.as_flattened()].concat()
    }

    /// From bytes; none when they are none.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::BYTES] = bytes.try_into().ok()?;
        let (halves, words) = (bytes.as_chunks::<8>().0, bytes.as_chunks::<4>().0);
        let [first, pages] = [0, 1].map(|at| u64::from_le_bytes(halves[at]));
        let [size, policy] = [4, 5].map(|at| u32::from_le_bytes(words[at]));
        let (size, policy) = (PageSize::of_bytes(size)?, Policy::decode(policy)?);
        Some(Self { first: PageIndex(first), pages, size, policy })
    }
}

impl InPlace {
    /// The page it is about; of a partition, none.
    pub fn page(self) -> PageIndex {
        match self {
            InPlace::Partition { .. } => PageIndex::MAX,
            InPlace::Get { page, .. }
            | InPlace::Put { page, .. }
            | InPlace::PutPieces { page, .. }
            | InPlace::Update { page, .. }
            | InPlace::Read { page, .. }
            | InPlace::Write { page, .. }
            | InPlace::Part { page, .. }
            | InPlace::Fetch { page, .. } => page,
        }
    }

    /// As arguments of an active message.
    pub fn encode(self) -> Words {
        match self {
            InPlace::Get { page, offset, bytes, number } => {
                [0, number, low(page.0), high(page.0), offset, bytes]
            }
            InPlace::Put { page, offset, number } => [1, number, low(page.0), high(page.0), offset, 0],
            InPlace::Part { page, offset, bytes, number } => {
                [2, number, low(page.0), high(page.0), offset, bytes]
            }
            InPlace::PutPieces { page, count, number } => [3, number, low(page.0), high(page.0), count, 0],
            InPlace::Update { page, count, number } => [4, number, low(page.0), high(page.0), count, 0],
            InPlace::Read { page, offset, bytes, number } => {
                [5, number, low(page.0), high(page.0), offset, bytes]
            }
            InPlace::Write { page, offset, number } => [6, number, low(page.0), high(page.0), offset, 0],
            InPlace::Partition { of, what, number } => {
                [7, number, of.owner.0, of.segment.0.into(), what as u32, 0]
            }
            InPlace::Fetch { page, offset, bytes, number } => {
                [8, number, low(page.0), high(page.0), offset, bytes]
            }
        }
    }

    /// From arguments; `None` when they are no such operation.
    pub fn decode(words: &[u32]) -> Option<Self> {
        let &[kind, number, l, h, offset, bytes] = words else { return None };
        let page = PageIndex(wide(l, h));
        Some(match kind {
            0 => InPlace::Get { page, offset, bytes, number },
            1 => InPlace::Put { page, offset, number },
            2 => InPlace::Part { page, offset, bytes, number },
            3 => InPlace::PutPieces { page, count: offset, number },
            4 => InPlace::Update { page, count: offset, number },
            5 => InPlace::Read { page, offset, bytes, number },
            6 => InPlace::Write { page, offset, number },
            7 => {
                let segment = u16::try_from(h).ok().filter(|&segment| segment < SEGMENTS_MAX)?;
                let what = [About::Describe, About::Withdraw, About::Forget].get(offset as usize)?;
                InPlace::Partition { of: (SegmentId(segment), Rank(l)).into(), what: *what, number }
            }
            8 => InPlace::Fetch { page, offset, bytes, number },
            _ => return None,
        })
    }
}

/// The payload of [`InPlace::PutPieces`]: for each piece its first byte in the page and its length, 32 bits each, then the bytes of
/// all pieces, one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Pieces<'d> {
    list: &'d [u8],
    bytes: &'d [u8],
}

impl<'d> Pieces<'d> {
    /// Bytes of a piece's entry in the list.
    pub const ENTRY_BYTES: usize = 8;

    /// Adds an entry to a list.
    pub fn announce(list: &mut Vec<u8>, offset: u32, bytes: u32) {
        list.extend_from_slice(&offset.to_le_bytes());
        list.extend_from_slice(&bytes.to_le_bytes());
    }

    /// Reads what a peer has sent; `None` unless all pieces lie in a page of this size, and have just the bytes that follow.
    pub fn read(data: &'d [u8], count: u32, page_bytes: u64) -> Option<Self> {
        let (list, bytes) = data.split_at_checked((count as usize).checked_mul(Self::ENTRY_BYTES)?)?;
        let pieces = Self { list, bytes };
        let mut total = 0u64;
        for (offset, length) in pieces.entries() {
            if u64::from(offset) + u64::from(length) > page_bytes {
                return None;
            }
            total += u64::from(length);
        }
        (total == bytes.len() as u64).then_some(pieces)
    }

    fn entries(self) -> impl Iterator<Item = (u32, u32)> + 'd {
        let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |number, &byte| number << 8 | u32::from(byte));
        self.list.chunks_exact(Self::ENTRY_BYTES).map(move |entry| (number(&entry[..4]), number(&entry[4..])))
    }

    /// Each piece's first byte in the page, and its bytes.
    pub fn each(self) -> impl Iterator<Item = (u32, &'d [u8])> + 'd {
        let mut rest = self.bytes;
        self.entries().map_while(move |(offset, length)| {
            let (piece, after) = rest.split_at_checked(length as usize)?;
            rest = after;
            Some((offset, piece))
        })
    }
}

/// The payload of [`InPlace::Update`]: for each update its page, its first byte in it, and what is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WordUpdate {
    /// The page.
    pub page: PageIndex,
    /// First byte in the page; a multiple of the word's length.
    pub offset: u32,
    /// What is to be done.
    pub update: Update,
}

impl WordUpdate {
    /// Bytes of an entry of the list.
    pub const BYTES: usize = 8 + 4 + Update::ENCODED_BYTES;

    /// Adds it to a list.
    pub fn write(self, list: &mut Vec<u8>) {
        list.extend_from_slice(&self.page.0.to_le_bytes());
        list.extend_from_slice(&self.offset.to_le_bytes());
        self.update.encode().iter().for_each(|word| list.extend_from_slice(&word.to_le_bytes()));
    }

    /// Reads a list of `count` that a peer has sent; `None` unless there are as many, each of a word inside of its page, which has
    /// as many bytes as `bytes_of` says.
    pub fn read_list(data: &[u8], count: u32, bytes_of: impl Fn(PageIndex) -> u32) -> Option<Vec<Self>> {
        let (entries, rest) = data.as_chunks::<{ Self::BYTES }>();
        if entries.len() != count as usize || !rest.is_empty() {
            return None;
        }
        entries.iter().map(|entry| Self::read(entry, &bytes_of)).collect()
    }

    fn read(entry: &[u8; Self::BYTES], bytes_of: impl Fn(PageIndex) -> u32) -> Option<Self> {
        let (page, rest) = entry.split_first_chunk()?;
        let page = PageIndex(u64::from_le_bytes(*page));
        let (words, _) = rest.as_chunks::<4>();
        let [offset, update @ ..] = words else { return None };
        let words: Vec<u32> = update.iter().map(|word| u32::from_le_bytes(*word)).collect();
        let (offset, update) = (u32::from_le_bytes(*offset), Update::decode(words.try_into().ok()?)?);
        let bytes = update.word.bytes();
        let inside = offset.is_multiple_of(bytes) && offset.checked_add(bytes)? <= bytes_of(page);
        inside.then_some(Self { page, offset, update })
    }
}

/// How an in-place operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InPlaceAnswer {
    /// Done; for a get, the bytes come with the answer, and for a fetch they are where it said.
    Done,
    /// The page is not served in place (any more), or a part of it cannot be had: go the normal way.
    NotInPlace,
    /// A page of an update cannot be had; some of its other words may have been updated. The number of the first update that
    /// failed and [`Failure::code`](crate::error::Failure::code) come with the answer, four bytes each.
    Failed,
}

impl InPlaceAnswer {
    /// As arguments of an active message.
    pub fn encode(self, number: u32) -> [u32; 2] {
        [number, self as u32]
    }

    /// From arguments: the operation and its end.
    pub fn decode(words: &[u32]) -> Option<(u32, Self)> {
        match *words {
            [number, 0] => Some((number, InPlaceAnswer::Done)),
            [number, 1] => Some((number, InPlaceAnswer::NotInPlace)),
            [number, 2] => Some((number, InPlaceAnswer::Failed)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vgas_shm::Change;

    #[test]
    fn requests_survive_the_wire() {
        let page = PageIndex(0x1234_5678_9abc);
        let (segment, policy) = (SegmentId(1023), Policy { home_only: true, ..Policy::default() });
        let size = PageSize::of_bytes(1 << 20).unwrap();
        for request in [
            Request::Read { page, count: 7, more: 9, wait: WaitId(3) },
            Request::Put { page, offset: 4095, wait: WaitId(1) },
            Request::PutFrame { page, frame: FrameId(9), wait: WaitId(2) },
            Request::Own { page, wait: WaitId(5) },
            Request::Prefetch { page, count: 2 },
            Request::Ahead { page },
            Request::Attach { pages: 1 << 40, segment, size, policy, wait: WaitId(0) },
            Request::Checkpoint { segment, wait: WaitId(1) },
            Request::MakeRoom { page, wait: WaitId(6) },
            Request::Partitions { segment, size, policy, first_rank: Rank(2), wait: WaitId(1) },
            Request::Detach { segment, step: Detach::Withdraw, wait: WaitId(1) },
            Request::Detach { segment, step: Detach::Forget, wait: WaitId(1) },
            Request::Attached { wait: WaitId(7) },
            Request::Room { size, wait: WaitId(7) },
            Request::Clean { segment, wait: WaitId(1) },
            Request::Prepare { segment, identity: page.0 << 16, wait: WaitId(1) },
            Request::Conclude { segment, commit: true, wait: WaitId(1) },
            Request::Conclude { segment, commit: false, wait: WaitId(2) },
            Request::Why { segment, piece: 3, wait: WaitId(2) },
        ] {
            assert_eq!(Request::decode(&request.encode()), Some(request));
        }
        assert_eq!(Request::decode(&[13, 0, 2, 0, 0, 0]), None);
        let policy = policy.encode();
        for (kind, policy) in [
            (11 << 16, policy),
            (23 << 16, policy),
            (12 << 16 | 1024, policy),
            (12 << 16, 0),
            (u32::MAX, policy),
        ] {
            assert_eq!(Request::decode(&[6, 0, 1, 0, kind, policy]), None, "{kind:#x} {policy:#x}");
        }
        assert_eq!(Request::decode(&[99, 0, 0, 0, 0, 0]), None);
        assert_eq!(Request::decode(&[0, 0]), None);
    }

    #[test]
    fn names_survive_the_wire() {
        let checkpoint = CheckpointId { generation: 7, identity: u64::MAX };
        for (checkpoint, tells) in [(None, false), (Some(checkpoint), true)] {
            let named = Named { name: "data".into(), checkpoint, tells };
            assert_eq!(Named::decode(&named.encode()), Some(named));
        }
        assert_eq!(Named::decode(&[0; 16]), None);
        assert_eq!(Named::decode(&[0xff; 20]), None);
    }

    #[test]
    fn in_place_operations_survive_the_wire() {
        for operation in [
            InPlace::Get { page: PageIndex(1 << 33), offset: 1, bytes: 8, number: 2 },
            InPlace::Put { page: PageIndex(1 << 33), offset: 1, number: 2 },
            InPlace::Part { page: PageIndex(1 << 33), offset: 1, bytes: 8, number: 2 },
            InPlace::PutPieces { page: PageIndex(1 << 33), count: 3, number: 2 },
            InPlace::Update { page: PageIndex(1 << 33), count: 3, number: 2 },
            InPlace::Read { page: PageIndex(1 << 33), offset: 1, bytes: 8, number: 2 },
            InPlace::Write { page: PageIndex(1 << 33), offset: 1, number: 2 },
            InPlace::Fetch { page: PageIndex(1 << 33), offset: 1, bytes: 8, number: 2 },
            InPlace::Partition { of: Rank(7).into(), what: About::Forget, number: 2 },
            InPlace::Partition { of: (SegmentId(9), Rank(0)).into(), what: About::Describe, number: 2 },
        ] {
            assert_eq!(InPlace::decode(&operation.encode()), Some(operation));
        }
        for wrong in [[7, 0, 0, 0, 3, 0], [7, 0, 0, 1024, 0, 0]] {
            assert_eq!(InPlace::decode(&wrong), None, "{wrong:?}");
        }
        let size = PageSize::of_bytes(16 << 10).unwrap();
        let extent = Extent { first: PageIndex(1 << 50), pages: 7, size, policy: Policy::default() };
        assert_eq!(Extent::decode(&extent.encode()), Some(extent));
        assert_eq!((Extent::decode(&extent.encode()[1..]), Extent::decode(&[0; 24])), (None, None));
        for answer in [InPlaceAnswer::Done, InPlaceAnswer::NotInPlace, InPlaceAnswer::Failed] {
            assert_eq!(InPlaceAnswer::decode(&answer.encode(6)), Some((6, answer)));
        }
    }

    #[test]
    fn lists_of_updates_are_read_whole_or_not_at_all() {
        let word = |offset, update| WordUpdate { page: PageIndex(1 << 40), offset, update };
        let updates = [
            word(0, Change::Add(1u64).into()),
            word(4088, Change::CompareSwap { expected: 1i64, desired: -1 }.into()),
            word(4092, Change::Min(-7i32).into()),
        ];
        let mut list = Vec::new();
        updates.iter().for_each(|update| update.write(&mut list));
        assert_eq!(WordUpdate::read_list(&list, 3, |_| 4096).as_deref(), Some(&updates[..]));
        for count in [0, 2, 4, u32::MAX] {
            assert_eq!(WordUpdate::read_list(&list, count, |_| 4096), None);
        }
        assert_eq!(WordUpdate::read_list(&list[1..], 3, |_| 4096), None);
        for (offset, update) in [
            (4, Change::Add(1u64).into()),
            (2, Change::Add(1u32).into()),
            (4096, Change::Add(1u32).into()),
            (u32::MAX - 3, Change::Add(1u32).into()),
        ] {
            let mut list = Vec::new();
            word(offset, update).write(&mut list);
            assert_eq!(WordUpdate::read_list(&list, 1, |_| 4096), None, "{offset} {update:?}");
        }
        // An update that there is not.
        let mut list = Vec::new();
        updates[0].write(&mut list);
        list[12] = 0xff;
        assert_eq!(WordUpdate::read_list(&list, 1, |_| 4096), None);
    }

    #[test]
    fn lists_of_pieces_are_read_whole_or_not_at_all() {
        let list = |entries: &[(u32, u32)], bytes: &[u8]| {
            let mut data = Vec::new();
            entries.iter().for_each(|&(offset, length)| Pieces::announce(&mut data, offset, length));
            data.extend_from_slice(bytes);
            data
        };
        let data = list(&[(5, 2), (4095, 1), (0, 0)], b"abc");
        let pieces: Vec<_> = Pieces::read(&data, 3, 4096).expect("well-formed").each().collect();
        assert_eq!(pieces, [(5, &b"ab"[..]), (4095, b"c"), (0, b"")]);
        for (entries, bytes, count) in [
            (&[(5, 2)][..], &b"abc"[..], 1),
            (&[(5, 2)], b"a", 1),
            (&[(4095, 2)], b"ab", 1),
            (&[(u32::MAX, 1)], b"a", 1),
            (&[(0, u32::MAX), (0, u32::MAX)], b"", 2),
            (&[(5, 2)], b"ab", 2),
            (&[(5, 2)], b"ab", u32::MAX),
        ] {
            assert!(Pieces::read(&list(entries, bytes), count, 4096).is_none(), "{entries:?} {count}");
        }
    }
}
